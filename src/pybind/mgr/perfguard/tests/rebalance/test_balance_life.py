# SPDX-License-Identifier: LGPL-2.1-or-later
"""balance: what others change while its campaign is active, and its end."""
import itertools
from typing import Any, Dict, Mapping, Tuple

from perfguard.rebalance.types import Flight

from ..fakes.driver import Driver
from .test_balancing import counts, give
from .test_rule_change import Watcher


def take_away(cluster: Watcher, osd: int, most: int) -> None:
    """Upmaps of others take this many PGs from an OSD."""
    pgids = [pgid for pgid, pg in sorted(cluster.pg.items())
             if osd in pg.data and pgid not in cluster.entries()][:most]
    for number, pgid in enumerate(pgids):
        hosts = {cluster.toys[other].host for other in cluster.pg[pgid].data}
        free = [other for other, toy in cluster.toys.items() if toy.host not in hosts]
        cluster.add_upmap(pgid, osd, free[number % len(free)])


def lacking_pgs() -> Tuple[Watcher, Driver]:
    """A balance is moving PGs to osd.3, and has only begun."""
    cluster = Watcher(pgs=96)
    driver = Driver(cluster)
    give(driver)
    driver.run_to('DONE')
    take_away(cluster, 3, 20)
    driver.run(5)
    moved = len(cluster.moved)
    give(driver)
    driver.run_until(lambda: len(cluster.moved) > moved + 2)
    return cluster, driver


def flying(driver: Driver) -> Mapping[str, Flight]:
    campaign = driver.loop.rebalance.campaigns.current
    assert campaign is not None
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


def crowding(cluster: Watcher, driver: Driver) -> Tuple[str, int, Dict[int, Any]]:
    """A PG that waits, the OSD that it is to move to, and the OSDs once that one is in the host of
    another OSD of the PG, if this does not change where CRUSH places the PG."""
    pins = driver.loop.rebalance.campaigns.pins
    for pgid in sorted(pins.keys() - flying(driver).keys()):
        pairs = pins[pgid].leads_to.items
        for (old, new), other in itertools.product(pairs, cluster.pg[pgid].up):
            if other in (old, new):
                continue
            toys, host = dict(cluster.toys), cluster.toys[other]
            toys[new] = toys[new]._replace(host=host.host, rack=host.rack)
            if cluster.raw_under(pgid, toys) == list(cluster.pg[pgid].mon.raw):
                return pgid, new, toys
    raise AssertionError('no such PG')


def test_no_pg_is_released_into_a_host_that_has_another_of_its_shards_meanwhile() -> None:
    cluster = Watcher(pgs=96)
    driver = Driver(cluster)
    give(driver)
    driver.run_until(lambda: len(cluster.moved) > 4)
    pgid, osd, cluster.toys = crowding(cluster, driver)
    sent = len(cluster.sent)
    cluster.place()
    for _ in range(1500):
        driver.turn()
        if 'cannot be pinned' in str(driver.status.get('reasons')):
            driver.ask('start')
        if driver.phase == 'DONE':
            break
    assert driver.phase == 'DONE'
    assert not [command for command in cluster.sent[sent:]
                if command.get('pgid') == pgid and osd in command.get('id', ())]
