# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pins that are pg_upmap vectors hide what CRUSH chooses; it may choose anew meanwhile."""
from dataclasses import replace
from typing import Dict, Tuple

import pytest

from perfguard.options import Options

from ..fakes.cluster import FakeCluster
from ..fakes.driver import OPTIONS, Driver

PGID = '2.1'


def charged(driver: Driver) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    """The targets that the release of the PG was charged to, and where it went."""
    found: Dict[str, Tuple[int, ...]] = {}
    here = driver.cluster.pg[PGID].data
    driver.ask('start')

    def note() -> bool:
        campaign = driver.loop.published.rebalanced.campaign
        if PGID in campaign.flights.in_flight and campaign.flights.in_flight[PGID].targets:
            found[PGID] = campaign.flights.in_flight[PGID].targets
        return driver.phase == 'DONE'

    driver.run_until(note)
    there = driver.cluster.pg[PGID].data
    return found.get(PGID, ()), tuple(new for old, new in zip(here, there) if old != new)


def swapped(options: Options = OPTIONS) -> Driver:
    """A PG that two OSDs changed their places in is pinned by a vector."""
    driver = Driver(options=options)
    driver.ask('prepare')
    driver.run_to('PREPARED')
    driver.cluster.expand()
    first, second, third = driver.cluster.pg[PGID].mon.raw
    driver.cluster.set_raw(PGID, (second, first, third))
    driver.run_until(lambda: PGID in driver.cluster.remapped())
    driver.ask('pin')
    driver.run_to('PINNED')
    assert driver.cluster.entries()[PGID].vector is not None
    return driver


@pytest.mark.parametrize('tools', [True, False])
def test_a_release_is_charged_to_where_it_leads_after_a_second_change(tools: bool) -> None:
    driver = swapped()
    cluster = driver.cluster
    if not tools:
        cluster.no_tools = 'osdmaptool is not installed'
    first, second, third = cluster.pg[PGID].mon.raw
    spare = next(osd for osd in range(8) if osd not in (first, second, third))
    cluster.set_raw(PGID, (first, second, spare))
    driver.run(5)
    assert driver.cluster.entries()[PGID].vector is not None
    told, moved = charged(driver)
    assert spare in moved and told == moved


def test_goals_are_worked_out_again_once_it_is_known_where_crush_places_a_pg() -> None:
    driver = swapped(replace(OPTIONS, target='balanced'))
    cluster = driver.cluster
    cluster.no_tools = 'osdmaptool is not installed'
    first, second, third = cluster.pg[PGID].mon.raw
    cluster.set_raw(PGID, (first, third, second))
    driver.run(10)
    assert driver.loop.rebalance.pins[PGID].raw is None
    goals = driver.loop.published.rebalanced.campaign
    cluster.no_tools = ''
    driver.run(80)
    campaign = driver.loop.published.rebalanced.campaign
    assert driver.loop.rebalance.pins[PGID].raw == (first, third, second)
    assert goals is not None and goals.pinning.goals
    assert campaign.pinning.goals.number == goals.pinning.goals.number + 1


def test_a_release_whose_way_is_not_known_goes_alone() -> None:
    driver = swapped()
    driver.cluster.no_tools = 'osdmaptool is not installed'
    driver.cluster.change_tunables()
    driver.restart()
    driver.turn()
    if driver.phase == 'PINNED':
        driver.ask('start')
    alone = False
    for _ in range(200):
        driver.turn()
        campaign = driver.loop.published.rebalanced.campaign
        released = campaign.flights.in_flight.get(PGID)
        if released is not None and released.confirmed is None:
            alone = True
            assert set(campaign.flights.in_flight) == {PGID}
        if driver.phase == 'DONE':
            break
    assert alone and driver.phase == 'DONE'


def test_the_tools_are_asked_once_for_each_change() -> None:
    driver = swapped()
    cluster, real, calls = driver.cluster, driver.cluster.outlook, []

    def outlook(*args: object) -> object:
        calls.append(args)
        return real(*args)  # type: ignore[arg-type]

    setattr(cluster, 'outlook', outlook)
    driver.run(5)
    assert calls == []
    cluster.change_tunables()
    driver.run(5)
    assert len(calls) == 1
    driver.restart()
    driver.run(5)
    assert len(calls) == 2


def test_a_map_that_cannot_be_fetched_leaves_no_pg_behind() -> None:
    """The balance has no goal for a PG that it knows nothing of; the PG still leaves its pin."""
    driver = Driver(options=replace(OPTIONS, target='balanced', max_extra_movement=100.0,
                                    max_pgs_in_flight=1))
    cluster = driver.cluster
    driver.ask('prepare')
    driver.run_to('PREPARED')
    drain_by_hand(cluster, 1)
    driver.run_until(lambda: bool(cluster.remapped()))
    driver.ask('pin')
    driver.run_to('PINNED')
    assert any(entry.vector is not None for entry in cluster.entries().values())
    cluster.no_tools = 'the mons do not give the OSDMap: no answer'
    cluster.toys[5] = cluster.toys[5]._replace(reweight=0.95)
    cluster._map_changed()
    driver.run(12)
    driver.ask('start')
    driver.run_to('DONE', 600)
    assert not [pgid for pgid, pg in cluster.pg.items() if 1 in pg.data]


def drain_by_hand(cluster: FakeCluster, osd: int) -> None:
    """Others take the places of the OSD, and the PGs' two other OSDs change theirs."""
    for pg in cluster.pg.values():
        raw = list(pg.mon.raw)
        if osd in raw:
            at = raw.index(osd)
            raw[at] = next(other for other in cluster.toys if other not in raw)
            raw[at - 1], raw[at - 2] = raw[at - 2], raw[at - 1]
            pg.mon.raw = raw
    cluster.toys[osd] = cluster.toys[osd]._replace(crush_weight=0.0001)
    cluster._crush_changed()
