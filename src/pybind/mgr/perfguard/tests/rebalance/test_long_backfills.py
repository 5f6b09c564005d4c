# SPDX-License-Identifier: LGPL-2.1-or-later
"""Backfills of hours: a lower limit of PGs in flight does not reduce those that are in flight."""
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Set, Tuple

import pytest

from perfguard.cluster.types import NO_ENTRY, ClientOps, Ops, Osd, Readings
from perfguard.errors import Code
from perfguard.rebalance.throttle import (CEILING_SECONDS, HALT_READINGS, _follow_halt,
                                          _is_repeated, _with_ceiling, beyond_ceiling, limit)
from perfguard.rebalance.types import Flight, Pace, Phase

from ..fakes.driver import OPTIONS, Driver
from ..fakes.straw_cluster import StrawCluster
from .test_steps import PIN, at


class BusyCluster(StrawCluster):
    """Each PG that moves adds a quarter to client latency; three of them exceed its limit."""

    def __init__(self, backfill_seconds: float) -> None:
        super().__init__(hosts=10, pgs=24, backfill_seconds=backfill_seconds, period=5.0)
        self.quiet = False
        self.per_pg = 0.25
        #: Every five minutes clients slow each other down, for 40 s.
        self.bursts = False
        #: (time, PGs that move, latency in ms) of each reading.
        self.history: List[Tuple[float, int, float]] = []

    def readings(self, *_: Any) -> Readings:
        moving = sum(pg.temp is not None and self._backfills(pgid, pg)
                     for pgid, pg in self.pg.items())
        burst = 2.0 if self.bursts and self.now % 300.0 < 40.0 else 0.0
        ms = 2.0 * (1.0 + self.per_pg * moving) + burst
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


def pinned_back(driver: Driver) -> List[Any]:
    return [event for event in driver.loop.published.events
            if event['what'].endswith('back that were released last')]


def test_pgs_that_do_not_arrive_are_pinned_back_until_clients_are_served() -> None:
    cluster, driver = expanding(backfill_seconds=7200.0)
    before = driver.loop.rebalance.campaign.flights.in_flight
    cluster.history.clear()
    driver.run(900)
    after = driver.loop.rebalance.campaign.flights.in_flight
    # They all had the same progress; those that were released last have lost it.
    assert set(after) < set(before) and len(after) in (1, 2)
    assert all(flight.since == before[pgid].since for pgid, flight in after.items())
    slow = [ms for _, _, ms in cluster.history if ms > 3.0]
    assert len(slow) < 0.25 * len(cluster.history), 'it was 50 % with halts alone'
    assert pinned_back(driver)
    # For a while no more are released, although clients would not notice.
    cluster.per_pg = 0.0
    driver.run(300)
    assert len(driver.loop.rebalance.campaign.flights.in_flight) == len(after)
    driver.run(700)
    assert len(driver.loop.rebalance.campaign.flights.in_flight) > len(after)


def test_bursts_of_clients_pin_no_pgs_back() -> None:
    cluster, driver = expanding(backfill_seconds=7200.0)
    cluster.per_pg, cluster.bursts = 0.0, True
    driver.run(1500)
    halts = [event for event in driver.loop.published.events
             if event['what'] == 'all movement is halted']
    assert len(halts) > 3 and not pinned_back(driver)


def test_pgs_that_arrive_are_never_pinned_back() -> None:
    _, driver = expanding(backfill_seconds=60.0)
    driver.run_until(lambda: driver.phase == 'DONE', 3000)
    assert not pinned_back(driver)


def flights(*since: float) -> Dict[str, Flight]:
    return {'1.%x' % index: Flight(time, NO_ENTRY, pin=PIN) for index, time in enumerate(since)}


@pytest.mark.parametrize('resumed, in_flight, repeated', [
    # The first halt, and one that follows later than backfills need to have their speed again.
    (0.0, (10.0,), False), (969.0, (10.0,), False), (970.0, (10.0,), True),
    # A PG that has not been in flight for long may arrive soon.
    (990.0, (700.0,), False), (990.0, (699.0,), True), (990.0, (10.0, 999.0), True),
    (990.0, (), False)])
def test_a_halt_repeats_the_last_one_if_its_pgs_do_not_arrive(
        resumed: float, in_flight: Tuple[float, ...], repeated: bool) -> None:
    assert _is_repeated(Pace(resumed=resumed), flights(*in_flight), 5.0, 1000.0) == repeated


@pytest.mark.parametrize('before, count, repeated, repetitions, ceiling', [
    (0, 4, True, 1, 7), (1, 4, True, 2, 2), (5, 5, True, 6, 3), (1, 4, False, 0, 7),
    # The last PG stays in flight, and what was learned with more is forgotten in time.
    (1, 1, True, 2, 7), (1, 0, True, 2, 7)])
def test_pgs_are_pinned_back_at_the_second_repetition(
        before: int, count: int, repeated: bool, repetitions: int, ceiling: int) -> None:
    pace = Pace(repetitions=before, ceiling=7, ceiling_until=1500.0)
    after = _with_ceiling(pace, flights(*[0.0] * count), repeated, 1000.0)
    assert (after.repetitions, after.ceiling) == (repetitions, ceiling)
    assert after.ceiling_until == (1500.0 if ceiling == 7 else 1000.0 + CEILING_SECONDS)


def test_pgs_without_a_pin_do_not_count_among_those_to_pin_back() -> None:
    in_flight = {**flights(0.0, 0.0), '2.0': FOREIGN, '2.1': FOREIGN}
    assert _with_ceiling(Pace(repetitions=1), in_flight, True, 1000.0).ceiling == 3


HALTED = Pace(halted=True)


@pytest.mark.parametrize('pace, was_halted, helps, resumed', [
    (HALTED, False, True, 0.0), (replace(HALTED, helps=True), True, True, 0.0),
    (replace(HALTED, helps=True, over=HALT_READINGS - 1), True, True, 0.0),
    # Latency stays above its limit although nothing moves; it may fall again later.
    (replace(HALTED, helps=True, over=HALT_READINGS), True, False, 0.0),
    (replace(HALTED, helps=False, over=0), True, False, 0.0),
    # The halt has ended.
    (Pace(helps=True), True, True, 1000.0), (Pace(helps=False, resumed=7.0), True, False, 0.0),
    (Pace(helps=True, resumed=7.0), False, True, 7.0)])
def test_what_a_halt_shows(pace: Pace, was_halted: bool, helps: bool, resumed: float) -> None:
    after = _follow_halt(pace, was_halted, 1000.0)
    assert (after.helps, after.resumed) == (helps, resumed)


@pytest.mark.parametrize('until, code, expected', [
    (1001.0, Code.LATENCY_OK, (3.0, 3)), (1000.0, Code.LATENCY_OK, (5.0, 0)),
    (1001.0, Code.NO_CLIENTS, (5.0, 0))])
def test_how_long_the_ceiling_lasts(until: float, code: str, expected: Tuple[float, int]) -> None:
    after = _follow_halt(Pace(pgs=5.0, ceiling=3, ceiling_until=until, code=code), False, 1000.0)
    assert (after.pgs, after.ceiling) == expected


def test_without_a_ceiling_the_limit_stays() -> None:
    assert _follow_halt(Pace(pgs=5.0), False, 1000.0).pgs == 5.0


OLD, YOUNG, FOREIGN = flights(80.0)['1.0'], flights(90.0)['1.0'], Flight(95.0, NO_ENTRY)


@pytest.mark.parametrize('in_flight, pace, expected', [
    ({'1.1': OLD, '1.2': YOUNG, '1.3': OLD}, Pace(halted=True, ceiling=2), {'1.2'}),
    ({'1.1': OLD, '1.2': YOUNG, '1.3': OLD}, Pace(halted=True, ceiling=1), {'1.2', '1.3'}),
    ({'1.1': OLD, '1.2': YOUNG}, Pace(halted=True, ceiling=2), set()),
    ({'1.1': OLD, '1.2': YOUNG}, Pace(halted=True), set()),
    # The halt is over before the OSDMap has the flag.
    ({'1.1': OLD, '1.2': YOUNG}, Pace(ceiling=1), set()),
    # A PG that leaves a nearly full OSD makes room there.
    ({'1.1': OLD, '1.2': replace(YOUNG, sources=(5,))}, Pace(halted=True, ceiling=1), {'1.1'}),
    # A PG that was never pinned cannot be pinned back.
    ({'1.1': FOREIGN, '1.2': YOUNG}, Pace(halted=True, ceiling=1), {'1.2'}),
    ({'1.1': FOREIGN, '1.2': FOREIGN}, Pace(halted=True, ceiling=1), set())])
def test_the_pgs_released_last_are_pinned_back(in_flight: Mapping[str, Flight], pace: Pace,
                                               expected: Set[str]) -> None:
    before = at(Phase.HOLDING, {'in_flight': in_flight, 'pace': pace},
                osds={5: Osd(5, True, 1.0, fullness='nearfull')})
    assert beyond_ceiling(before) == expected


def test_the_operator_sees_the_ceiling() -> None:
    text = limit(Pace(pgs=1.0, ceiling=2, why='ok'), OPTIONS).reason.text
    assert text == 'at most 1 of 4 PGs may be in flight, and 2 for 15 min after repeated halts: ok'
