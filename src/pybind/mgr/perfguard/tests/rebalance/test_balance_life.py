# SPDX-License-Identifier: LGPL-2.1-or-later
"""balance: what others change while its campaign is active, and its end."""
from dataclasses import replace
from typing import Any, Dict, Iterable, List, Mapping, Tuple

import pytest

from perfguard.errors import Refused
from perfguard.rebalance.orders import Order
from perfguard.rebalance.plans import APPROVE, SAVE, PlanOrder
from perfguard.rebalance.types import Flight

from ..fakes.cluster import FakeView
from ..fakes.driver import Driver
from .test_balancing import counts, give, shards_moved
from .test_rule_change import Watcher, sets


def take_away(cluster: Watcher, osd: int, most: int) -> None:
    """Upmaps of others take this many PGs from an OSD."""
    pgids = [pgid for pgid, pg in sorted(cluster.pg.items())
             if osd in pg.data and pgid not in cluster.entries()][:most]
    for number, pgid in enumerate(pgids):
        hosts = {cluster.toys[other].host for other in cluster.pg[pgid].data}
        free = [other for other, toy in cluster.toys.items() if toy.host not in hosts]
        cluster.add_upmap(pgid, osd, free[number % len(free)])


def disturbed(pgs: int, most: int) -> Tuple[Watcher, Driver]:
    """After a balance, upmaps of others have taken this many PGs from osd.3."""
    cluster = Watcher(pgs=pgs)
    driver = Driver(cluster)
    give(driver)
    driver.run_to('DONE')
    take_away(cluster, 3, most)
    driver.run(5)
    return cluster, driver


def lacking_pgs() -> Tuple[Watcher, Driver]:
    """A balance is moving PGs to osd.3, and has only begun."""
    cluster, driver = disturbed(96, 20)
    moved = len(cluster.moved)
    give(driver)
    driver.run_until(lambda: len(cluster.moved) > moved + 2)
    return cluster, driver


def flying(driver: Driver) -> Mapping[str, Flight]:
    campaign = driver.loop.rebalance.campaigns.current
    return campaign.flights.in_flight


def events(driver: Driver) -> str:
    return ' '.join(str(event['what']) for event in driver.loop.published.events)


def test_goals_from_before_a_reweight_are_dropped() -> None:
    cluster, driver = lacking_pgs()
    most = counts(cluster)[3] + len(flying(driver))
    cluster.toys[3] = cluster.toys[3]._replace(reweight=0.2)
    cluster.place()
    driver.run_to('DONE')
    driver.run(3)
    assert counts(cluster)[3] <= most < 36
    assert cluster.clean() and driver.status['pinned'] == 0 and not driver.loop.rebalance.open
    assert 'not moved: CRUSH, a reweight or a pool has changed' in events(driver)
    assert give(driver, dry_run=True)['balance']['shards']


def test_a_pool_that_begins_to_merge_meanwhile_is_left_alone() -> None:
    """ceph-mgr removes the upmaps of PGs that it merges."""
    cluster, driver = lacking_pgs()
    view, before = cluster._view, set(flying(driver))

    def merging() -> FakeView:
        shown = view()
        pool = replace(shown.osdmap.pools[1], pg_num_target=90, pgp_num_target=90)
        return replace(shown, osdmap=replace(shown.osdmap, pools={**shown.osdmap.pools, 1: pool}))

    setattr(cluster, '_view', merging)
    sent = len(cluster.sent)
    driver.run_to('DONE')
    assert 'not moved: CRUSH, a reweight or a pool has changed' in events(driver)
    moved = {command['pgid'] for command in cluster.sent[sent:]
             if command['prefix'] == 'osd pg-upmap-items'}
    assert moved <= before and cluster.clean()
    with pytest.raises(Refused, match='its PGs are being merged'):
        driver.order('balance', 'rep')


def to_the_end(driver: Driver) -> None:
    """Accept the PGs that a change of CRUSH by others remaps and that cannot be pinned."""
    for _ in range(600):
        driver.turn()
        if 'cannot be pinned' in str(driver.status.get('reasons')):
            driver.ask('start')
        if driver.phase == 'DONE':
            return
    raise AssertionError(driver.status)


def crowding(cluster: Watcher,
             pairs: Iterable[Tuple[str, Tuple[int, int]]]) -> Tuple[str, int, Dict[int, Any]]:
    """A PG to which such a pair of OSDs would apply, the second of these, and the OSDs once that
    one is in the host of another OSD of the PG, if this does not change where CRUSH places the PG.
    """
    for pgid, (old, new) in pairs:
        raw = list(cluster.pg[pgid].mon.raw)
        for other in set(raw) - {old, new} if old in raw and new not in raw else ():
            toys, host = dict(cluster.toys), cluster.toys[other]
            toys[new] = toys[new]._replace(host=host.host, rack=host.rack)
            if cluster.raw_under(pgid, toys) == raw:
                return pgid, new, toys
    raise AssertionError('no such PG')


def sends(cluster: Watcher, after: int, pgid: str, osd: int) -> List[Any]:
    """Upmaps of a PG to an OSD that were sent after so many commands."""
    return [command for command in cluster.sent[after:] if command.get('pgid') == pgid
            and osd in command.get('id', ())[1::2]]


def test_no_pg_is_released_into_a_host_that_has_another_of_its_shards_meanwhile() -> None:
    cluster = Watcher(pgs=96)
    driver = Driver(cluster)
    give(driver)
    driver.run_until(lambda: len(cluster.moved) > 4)
    pins = driver.loop.rebalance.campaigns.pins
    pgid, osd, cluster.toys = crowding(cluster, [
        (pgid, pair) for pgid, pin in sorted(pins.items()) if pgid not in flying(driver)
        for pair in pin.leads_to.items])
    sent = len(cluster.sent)
    cluster.place()
    to_the_end(driver)
    assert not sends(cluster, sent, pgid, osd)


def test_a_rollback_after_others_have_changed_crush() -> None:
    cluster = Watcher(pgs=48)
    driver = Driver(cluster)
    give(driver)
    driver.run_until(lambda: len(cluster.moved) > 8)
    cluster.weigh(5, 1.5)
    driver.turn()
    assert driver.give(Order('rollback', dry_run=True))['pgs'] >= 8
    driver.give(Order('rollback'))
    driver.run_to('DONE')
    driver.run(3)
    assert cluster.entries() == {} and cluster.clean()


def test_a_rollback_puts_no_two_shards_into_one_host() -> None:
    """Others have moved the OSD to which an upmap from before the balance leads."""
    cluster = Watcher(pgs=48)
    take_away(cluster, 3, 12)
    driver = Driver(cluster)
    led = {pgid: entry.items[0] for pgid, entry in cluster.entries().items()}
    give(driver)
    driver.run_until(lambda: len(cluster.moved) > 20)
    pgid, osd, cluster.toys = crowding(cluster, [
        (pgid, pair) for pgid, pair in sorted(led.items())
        if pair[1] not in cluster.pg[pgid].data and pgid not in flying(driver)])
    cluster.place()
    driver.turn()
    sent = len(cluster.sent)
    driver.give(Order('rollback'))
    to_the_end(driver)
    assert not sends(cluster, sent, pgid, osd)
    assert 'not moved: ' + pgid in events(driver) and cluster.clean()


def test_an_aborted_rollback_offers_only_what_is_possible() -> None:
    cluster = Watcher(pgs=48)
    take_away(cluster, 3, 1)
    driver = Driver(cluster)
    before, entries, found = sets(cluster, ''), cluster.entries(), cluster.foreign()
    give(driver)
    driver.run_until(lambda: len(cluster.moved) > 20)
    driver.give(Order('rollback'))
    driver.run_until(lambda: len(cluster.moved) > 28)
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.run(2)
    reason = ' '.join(driver.status['reasons'])
    detail = ' '.join(cluster.checks['PERFGUARD_HELD_PINS']['detail'])
    with pytest.raises(Refused, match='already being rolled back'):
        driver.give(Order('rollback'))
    for text in (reason, detail):
        assert 'campaign resume' in text and 'campaign rollback' not in text
    driver.ask('resume')
    driver.run_to('DONE')
    assert sets(cluster, '') == before and cluster.entries() == entries
    assert cluster.foreign() == found


def test_a_plan_moves_no_more_than_its_preview_said() -> None:
    cluster, driver = disturbed(48, 2)
    order = Order('balance', max_movement='100%')
    saved = driver.give(PlanOrder(SAVE, 'even', order))['preview']['balance']['shards']
    take_away(cluster, 3, 6)
    driver.run(5)
    before = sets(cluster, '')
    with pytest.raises(Refused, match='shards: %d, now ' % saved):
        driver.give(PlanOrder(APPROVE, 'even'))
    assert driver.phase == 'DONE' and sets(cluster, '') == before


def test_a_campaign_moves_no_more_than_its_order_was_answered() -> None:
    """Others set upmaps after the answer, before the moves are planned."""
    cluster, driver = disturbed(48, 2)
    shown = give(driver)['balance']['shards']
    take_away(cluster, 3, 6)
    before = sets(cluster, '')
    driver.run_to('DONE')
    assert 0 < shards_moved(before, sets(cluster, '')) <= shown
    assert cluster.clean()
