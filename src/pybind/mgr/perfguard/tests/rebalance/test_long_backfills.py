# SPDX-License-Identifier: LGPL-2.1-or-later
"""Backfills of hours: a lower limit of PGs in flight does not reduce those that are in flight."""
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Set, Tuple

import pytest

from perfguard.cluster.types import NO_ENTRY, ClientOps, Ops, Readings
from perfguard.errors import Code
from perfguard.rebalance.throttle import (CEILING_SECONDS, _halted_again, _under_ceiling,
                                          beyond_ceiling, limit)
from perfguard.rebalance.types import Flight, Pace, Phase

from ..fakes.driver import OPTIONS, Driver
from ..fakes.straw_cluster import StrawCluster
from .test_steps import PIN, at


class BusyCluster(StrawCluster):
    """Each PG that moves adds a quarter to client latency; three of them exceed its limit."""

    def __init__(self, backfill_seconds: float) -> None:
        super().__init__(hosts=10, pgs=24, backfill_seconds=backfill_seconds, period=5.0)
        self.quiet = False
        #: (time, PGs that move, latency in ms) of each reading.
        self.history: List[Tuple[float, int, float]] = []

    def readings(self, *_: Any) -> Readings:
        moving = sum(pg.temp is not None and self._backfills(pgid, pg)
                     for pgid, pg in self.pg.items())
        ms = 2.0 * (1.0 + 0.25 * moving)
        self.history.append((self.now, moving, ms))
        ops = Ops(int(ms * 1e6 * 400), 400)
        return Readings(5.0, {}, () if self.quiet else tuple(
            ClientOps(pool, osd, ops, ops) for osd in self.toys for pool in (1, 2)), {})


def expanding(backfill_seconds: float) -> Tuple[BusyCluster, Driver]:
    """Clients were idle when PGs were released, and are busy from now on."""
    cluster = BusyCluster(backfill_seconds)
    cluster.quiet = True
    driver = Driver(cluster, replace(OPTIONS, max_pgs_in_flight=16,
                                     latency_limits_ms='rep=3,ec=3'))
    driver.run(70)
    cluster.add_osds(4, 0.0)
    driver.run(3)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status.get('in_flight', 0) >= 6, 300)
    cluster.quiet = False
    return cluster, driver


def test_pgs_that_do_not_arrive_are_pinned_back_until_clients_are_served() -> None:
    cluster, driver = expanding(backfill_seconds=7200.0)
    flights = driver.loop.rebalance.campaign.flights.in_flight
    cluster.history.clear()
    driver.run(900)
    after = driver.loop.rebalance.campaign.flights.in_flight
    # They all had the same progress; those that were released last have lost it.
    assert set(after) < set(flights) and len(after) in (1, 2)
    assert all(flight.since == flights[pgid].since for pgid, flight in after.items())
    slow = [ms for _, _, ms in cluster.history if ms > 3.0]
    assert len(slow) < 0.25 * len(cluster.history), 'it was 50 % with halts alone'
    assert [event['what'] for event in driver.loop.published.events
            if event['what'].endswith('back that were released last')]


def test_pgs_that_arrive_are_never_pinned_back() -> None:
    _, driver = expanding(backfill_seconds=60.0)
    driver.run_until(lambda: driver.phase == 'DONE', 3000)
    assert not [event for event in driver.loop.published.events
                if event['what'].endswith('back that were released last')]


def flights(*since: float) -> Dict[str, Flight]:
    return {'1.%x' % index: Flight(time, NO_ENTRY, pin=PIN) for index, time in enumerate(since)}


@pytest.mark.parametrize('began, in_flight, ceiling', [
    # The first halt, one whose PGs have all been released since the last one, and one whose PGs
    # have not been in flight for long.
    (0.0, (10.0, 20.0), 0), (1100.0, (1100.0, 1120.0), 0),
    (1100.0, (850.0,), 0), (1100.0, (849.0, 1120.0, 1120.0, 1120.0, 1120.0), 2),
    (840.0, (840.0, 849.0, 1120.0), 0), (840.0, (839.0, 849.0, 1120.0, 1140.0), 2),
    # At least one PG stays in flight.
    (1100.0, (99.0,), 1), (1100.0, (), 0)])
def test_a_halt_with_pgs_of_the_last_one(began: float, in_flight: Tuple[float, ...],
                                         ceiling: int) -> None:
    after = _halted_again(Pace(pgs=1.0, halted=True, halt_began=began), flights(*in_flight), 1150.0)
    assert (after.halt_began, after.ceiling) == (1150.0, ceiling)


@pytest.mark.parametrize('now, code, expected', [
    (100.0 + CEILING_SECONDS - 1.0, Code.LATENCY_OK, (3.0, 100.0, 3)),
    (100.0 + CEILING_SECONDS, Code.LATENCY_OK, (5.0, 0.0, 0)),
    (101.0, Code.NO_CLIENTS, (5.0, 0.0, 0))])
def test_how_long_the_ceiling_lasts(now: float, code: str,
                                    expected: Tuple[float, float, int]) -> None:
    after = _under_ceiling(Pace(pgs=5.0, halt_began=100.0, ceiling=3, code=code), now)
    assert (after.pgs, after.halt_began, after.ceiling) == expected


def test_without_a_ceiling_the_limit_stays() -> None:
    assert _under_ceiling(Pace(pgs=5.0, halt_began=100.0), 101.0).pgs == 5.0


OLD, YOUNG, FOREIGN = flights(80.0)['1.0'], flights(90.0)['1.0'], Flight(95.0, NO_ENTRY)


@pytest.mark.parametrize('in_flight, pace, expected', [
    ({'1.1': OLD, '1.2': YOUNG, '1.3': OLD}, Pace(halted=True, ceiling=2), {'1.2'}),
    ({'1.1': OLD, '1.2': YOUNG, '1.3': OLD}, Pace(halted=True, ceiling=1), {'1.2', '1.3'}),
    ({'1.1': OLD, '1.2': YOUNG}, Pace(halted=True, ceiling=2), set()),
    ({'1.1': OLD, '1.2': YOUNG}, Pace(halted=True), set()),
    # The halt is over before the OSDMap has the flag.
    ({'1.1': OLD, '1.2': YOUNG}, Pace(ceiling=1), set()),
    # A PG that was never pinned cannot be pinned back.
    ({'1.1': FOREIGN, '1.2': YOUNG}, Pace(halted=True, ceiling=1), {'1.2'}),
    ({'1.1': FOREIGN, '1.2': FOREIGN}, Pace(halted=True, ceiling=1), set())])
def test_the_pgs_released_last_are_pinned_back(in_flight: Mapping[str, Flight], pace: Pace,
                                               expected: Set[str]) -> None:
    before = at(Phase.HOLDING, {'in_flight': in_flight, 'pace': pace})
    assert beyond_ceiling(before) == expected


def test_the_operator_sees_the_ceiling() -> None:
    text = limit(Pace(pgs=2.0, ceiling=2, why='fine'), OPTIONS).reason.text
    assert text == 'at most 2 of 4 PGs may be in flight, 2 until 15 min after the last halt: fine'
