# SPDX-License-Identifier: LGPL-2.1-or-later
"""Another admin lowers pg_num of a pool whose PGs are pinned."""
from collections import Counter
from dataclasses import replace

import pytest

from perfguard.cluster.types import Pool, PoolPgs
from perfguard.upmap.pins import merge_reason, next_merge_reason

from ..fakes.driver import OPTIONS, Driver
from ..fakes.split_cluster import SplitCluster

POOL = Pool(1, 'p', False, 3, 2, 0, 8, 8, 8)


@pytest.mark.parametrize('pool, seeds', [
    (POOL, []), (replace(POOL, pg_num_target=16), []),
    (replace(POOL, pg_num_target=4), [3, 7]),
    (replace(POOL, pg_num=6, pg_num_pending=6, pg_num_target=4), [1, 5])])
def test_the_next_merge(pool: Pool, seeds: object) -> None:
    pgids = ['1.%x' % seed for seed in range(pool.pg_num)]
    assert [int(pgid[2:], 16) for pgid in pgids if next_merge_reason(pool, pgid)] == seeds
    assert not any(merge_reason(pool, pgid) for pgid in pgids), 'the mons keep their upmaps'


class SlowMgr(SplitCluster):
    """A pin is in force for two turns until ceph-mgr removes it."""

    def _merge(self, now: PoolPgs) -> None:
        if int(self.now) % 3 == 0:
            super()._merge(now)


def releasing(cluster: SlowMgr, target: str = 'crush') -> Driver:
    driver = Driver(cluster, replace(OPTIONS, target=target, max_pgs_in_flight=2))
    cluster.add_osds(3, 0.0)
    driver.run(3)
    driver.order('expand', weight='1.0')
    driver.run_to('RELEASING')
    driver.run(3)
    return driver


@pytest.mark.parametrize('paused', [False, True])
@pytest.mark.parametrize('target', ['crush', 'balanced'])
def test_pgs_that_are_merged_next_are_not_pinned_again_and_again(target: str, paused: bool) -> None:
    cluster = SlowMgr(hosts=10, pgs=16)
    driver = releasing(cluster, target)
    if paused:
        driver.ask('pause')
        driver.run(10)
    sent = len(cluster.sent)
    cluster.targets[1] = PoolPgs(1, 8, 8)
    if paused:
        driver.run(300)
        assert 'norebalance' in cluster.flags
        driver.ask('resume')
    driver.run_to('DONE', 1500)
    driver.run(100)
    assert cluster.numbers[1].pg_num == 8 and cluster.clean()
    commands = Counter((command['prefix'], command['pgid']) for command in cluster.sent[sent:]
                       if 'upmap' in command['prefix'])
    assert max(commands.values()) <= 3, commands.most_common(3)


def test_an_aborted_campaign_does_not_keep_pgs_from_being_merged() -> None:
    cluster = SlowMgr(hosts=10, pgs=16)
    driver = releasing(cluster)
    driver.ask('pause')
    cluster.targets[1] = PoolPgs(1, 8, 8)
    driver.run_until(lambda: '1.f' in cluster.remapped())
    driver.ask('abort')
    driver.run_to('ABORTED')
    assert driver.status['pinned']
    driver.run_until(lambda: cluster.numbers[1].pg_num == 8)
    assert 'norebalance' not in cluster.flags
