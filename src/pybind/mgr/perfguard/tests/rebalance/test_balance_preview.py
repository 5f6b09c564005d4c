# SPDX-License-Identifier: LGPL-2.1-or-later
"""--dry-run shows both parts of the movement, as the campaign makes it afterwards."""
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from perfguard.cluster.types import Balancing
from perfguard.options import DEFAULTS
from perfguard.rebalance import tables
from perfguard.tests.fakes.cluster import FakeCluster
from perfguard.tests.fakes.driver import OPTIONS, Driver
from perfguard.tests.fakes.straw_cluster import StrawCluster

BALANCED = replace(OPTIONS, target='balanced', max_extra_movement=100.0)


def waiting(**options: Any) -> Driver:
    """Two OSDs of CRUSH weight 0; CRUSH places by chance, so that OSDs differ by many PGs."""
    cluster = StrawCluster(hosts=6, pgs=64)
    cluster.add_osds(2, 0.0)
    driver = Driver(cluster, replace(BALANCED, **options))
    driver.run(3)
    return driver


def planned(driver: Driver) -> Any:
    """What the campaign itself plans to move."""
    driver.order('expand', weight='1.0')
    driver.run_to('PINNED')
    return driver.preview


@pytest.mark.parametrize('options', [{}, {'max_extra_movement': 0.0}])
def test_the_preview_is_what_the_campaign_plans(options: Any) -> None:
    driver = waiting(**options)
    preview = driver.order('expand', weight='1.0', dry_run=True)
    found, plan = preview['balanced'], planned(driver)
    assert found['shards'] == plan['shards'] and found['bytes'] == plan['bytes']
    assert found['shards'] <= found['limit_shards']
    assert 0 < found['extra_shards'] < found['shards']
    assert '%d only for the balance' % found['extra_shards'] in tables.order(preview)


def test_the_preview_says_in_how_many_epochs_a_large_change_is_made() -> None:
    preview = waiting().order('expand', weight='1.0', dry_run=True)
    assert 'OSDMap epochs' not in tables.order(preview)
    assert 'OSDMap epochs of the change  3 or more' in tables.order({**preview, 'bursts': 3})


def test_movement_for_the_balance_is_bounded() -> None:
    loose, tight = (waiting(max_extra_movement=most).order('expand', weight='1.0', dry_run=True)
                    for most in (100.0, 0.0))
    assert tight['shards'] == loose['shards'] == tight['balanced']['limit_shards']
    assert tight['balanced']['shards'] < loose['balanced']['shards']


def test_shards_of_a_drained_osd_do_not_move_for_the_balance() -> None:
    driver = waiting()
    drained = sum(0 in pg.data for pg in driver.cluster.pg.values())
    found = driver.order('drain', 'osd.0', dry_run=True)['balanced']
    assert drained and found['extra_shards'] <= found['shards'] - drained


def test_without_balance_only_crush_moves() -> None:
    assert waiting(target='crush').order('expand', weight='1.0', dry_run=True)['balanced'] is None


@pytest.mark.parametrize('balancer, untouched', [
    (Balancing(upmap=False), (1, 2)), (Balancing(pools=frozenset({1})), (2,)),
    (Balancing(pools=frozenset({7})), (1, 2))])
def test_pools_that_the_balancer_leaves_alone_end_where_crush_puts_them(
        balancer: Balancing, untouched: Any) -> None:
    driver = waiting()
    driver.cluster.balancer = balancer
    preview = driver.order('expand', weight='1.0', dry_run=True)
    plan = planned(driver)
    assert preview['balanced']['shards'] == plan['shards']
    if untouched == (1, 2):
        assert preview['balanced']['extra_shards'] == 0 and plan['shards'] == preview['shards']
    driver.ask('start')
    driver.run_to('DONE', 2000)
    cluster = driver.cluster
    for pgid, pg in cluster.pg.items():
        if int(pgid.partition('.')[0]) in untouched:
            assert list(pg.data) == list(pg.mon.raw) and not cluster.entries().get(pgid)


def test_shards_move_for_the_balance_only_beyond_the_target_deviation() -> None:
    fine, coarse = waiting(), waiting(target_deviation=100.0)
    tight, wide = (driver.order('expand', weight='1.0', dry_run=True)['balanced']
                   for driver in (fine, coarse))
    assert tight['extra_shards'] > wide['extra_shards'] == 0 < wide['shards']
    assert planned(coarse)['shards'] == wide['shards']


def test_every_osd_ends_within_one_of_its_share_whatever_the_balancer_allows() -> None:
    driver = waiting(max_extra_movement=DEFAULTS.max_extra_movement,
                     target_deviation=DEFAULTS.target_deviation)
    driver.cluster.balancer = Balancing(deviation=5.0)
    preview = driver.order('expand', weight='1.0', dry_run=True)
    assert preview['balanced']['deviation'] < 1 and preview['balanced']['limits'] == []
    assert planned(driver)['shards'] == preview['balanced']['shards']
    driver.ask('start')
    driver.run_to('DONE', 2000)
    assert farthest(driver.cluster) < 1


def farthest(cluster: FakeCluster) -> float:
    """Greatest distance of an OSD from its share of a pool, in PGs."""
    counts = Counter((pgid.partition('.')[0], osd) for pgid, pg in cluster.pg.items()
                     for osd in pg.data)
    pools = {pool for pool, _ in counts}
    osds = {osd for _, osd in counts}
    return max(abs(counts[pool, osd] - sum(counts[pool, each] for each in osds) / len(osds))
               for pool in pools for osd in osds)


def test_the_preview_shows_the_deviation_at_the_end_and_what_limits_it() -> None:
    free, bound, loose = (driver.order('expand', weight='1.0', dry_run=True) for driver in (
        waiting(), waiting(max_extra_movement=0.0), waiting(target_deviation=3.0)))
    assert 'OSDs end within             %.2f PGs of their share of each pool (target_deviation 1)' \
        % free['balanced']['deviation'] in tables.order(free)
    assert bound['balanced']['deviation'] >= 1 and bound['balanced']['limited']
    assert '(target_deviation 1, limited by max_extra_movement 0)' in tables.order(bound)
    assert 1 < loose['balanced']['deviation'] < 3 and not loose['balanced']['limited']
    crush = waiting()
    crush.cluster.balancer = Balancing(upmap=False)
    unbalanced = crush.order('expand', weight='1.0', dry_run=True)
    assert unbalanced['balanced']['deviation'] is None
    assert 'OSDs end within' not in tables.order(unbalanced)


def test_goals_are_worked_out_again_for_another_deviation() -> None:
    driver = waiting()
    shards = planned(driver)['shards']
    driver.options = replace(driver.options, target_deviation=100.0)
    driver.run_until(lambda: driver.preview['shards'] < shards, 30)


def test_goals_are_worked_out_again_when_the_balancer_is_configured_anew() -> None:
    driver = waiting()
    shards = planned(driver)['shards']
    driver.cluster.balancer = Balancing(upmap=False)
    driver.run_until(lambda: driver.preview['shards'] != shards, 30)
