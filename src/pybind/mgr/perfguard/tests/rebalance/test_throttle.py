# SPDX-License-Identifier: LGPL-2.1-or-later
"""The feedback on client latency: increases, decreases, halts; no change without evidence."""
from collections import deque
from dataclasses import replace
from typing import Any, Dict, List, Optional

import pytest

from perfguard.cluster.types import ClientOps, Ops
from perfguard.codec import decode, encode
from perfguard.errors import Code
from perfguard.observation import IDLE_SECONDS, Clients, Minute, Observation, PoolClients
from perfguard.options import DEFAULTS
from perfguard.rebalance.latency import pool_latencies
from perfguard.rebalance.moves import Caps
from perfguard.rebalance.throttle import (BLIND_READINGS, HALT_READINGS, NEW_BASELINE_READINGS,
                                          caps, decide, limit, pace_after_stop)
from perfguard.rebalance.types import Pace
from perfguard.watch.peers import weighted_median
from perfguard.watch.slow_reads import LEAST_OPS
from perfguard.watch.slowness import EXEMPT_SECONDS

from ..fakes.cluster import FakeCluster
from .test_phases import releasing

OPTIONS = replace(DEFAULTS, max_pgs_in_flight=32)
TARGET = 2.0


def reading(time: float, ms: float, ops: int = 1000, rate: float = 200.0,
            target: Optional[float] = TARGET, osds: int = 4) -> Clients:
    """Each of some OSDs served `ops` reads of one pool, which took `ms` on average."""
    rows = tuple(ClientOps(1, osd, Ops(int(ops * ms * 1e6), ops), Ops()) for osd in range(osds))
    return Clients(time, 5.0, rows, {1: PoolClients('rbd', 64, rate, target, target)},
                   IDLE_SECONDS)


class Throttle:
    """A cluster whose clients feel `per_pg` ms for each PG in flight, on top of `base`."""

    def __init__(self, base: float, per_pg: float) -> None:
        self.base, self.per_pg = base, per_pg
        self.pace = Pace()
        self.now = 0.0
        self.in_flight = 0

    def step(self, **more: float) -> Pace:
        self.now += 5.0
        self.in_flight = 0 if self.pace.halted else limit(self.pace, OPTIONS).caps.pgs
        ms = self.base + self.per_pg * self.in_flight
        clients = reading(self.now, ms, **more)  # type: ignore
        self.pace = decide(self.pace, clients, frozenset(), 0.0,
                           self.in_flight, OPTIONS)
        return self.pace

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()


def test_opens_to_the_cap_where_clients_do_not_feel_it() -> None:
    throttle = Throttle(1.0, 0.0)
    assert limit(throttle.pace, OPTIONS).caps.pgs == 8
    throttle.run(30)
    assert limit(throttle.pace, OPTIONS).caps.pgs == 32
    throttle.run(30)
    assert limit(throttle.pace, OPTIONS).caps.pgs == 32


def test_settles_about_as_many_pgs_as_the_target_allows() -> None:
    throttle = Throttle(1.0, 0.1)  # ten PGs make it twice what it was
    throttle.run(30)
    seen = []
    for _ in range(60):
        throttle.step()
        seen.append(throttle.in_flight)
    assert max(seen) <= 12 and 5 <= sum(seen) / len(seen) <= 10
    assert not throttle.pace.halted


@pytest.mark.parametrize('depth', [1, 2, 4, 64])
def test_few_clients_that_wait_are_not_forgotten(depth: int) -> None:
    """Clients that keep `depth` operations in flight send fewer where these take longer."""
    pace, recent, now, served = Pace(), deque(maxlen=12), 0.0, []  # type: ignore
    for _ in range(400):
        now += 5.0
        in_flight = 0 if pace.halted else limit(pace, OPTIONS).caps.pgs
        ms = 10.0 + 20.0 * in_flight  # the limit is 15 ms, and a single PG makes it 30 ms
        recent.append((ms, depth * 5e3 / ms))
        ops = sum(number for _, number in recent)
        clients = reading(now, ms, int(recent[-1][1]), ops / 60.0, 15.0, osds=1)
        pools = {1: clients.pools[1]._replace(read_minute=Minute(ops, weighted_median(recent)))}
        pace = decide(pace, replace(clients, pools=pools), frozenset(), 0.0, in_flight, OPTIONS)
        served.append(ms)
    assert max(served[100:]) <= 30.0 and 10.0 in served


def test_few_clients_whose_load_has_changed_do_not_hold_a_campaign_for_long() -> None:
    """With 8 reads in 5 s, each of which takes twice its limit although nothing moves."""
    pace, now = Pace(pgs=1.0, judged=1.0), 1.0
    while not pace.levels and now < 900.0:
        now += 5.0
        clients = reading(now, 30.0, 8, 1.6, 15.0, osds=1)
        pools = {1: clients.pools[1]._replace(read_minute=Minute(96, 30.1))}
        pace = decide(pace, replace(clients, pools=pools), frozenset(), 0.0,
                      int(not pace.halted), OPTIONS, nothing_moves=pace.halted)
    assert pace.code == Code.NEW_BASELINE and now < 400.0


def test_yields_within_two_readings_and_comes_back() -> None:
    throttle = Throttle(1.0, 0.0)
    throttle.run(40)
    throttle.base = 5.0
    throttle.run(2)
    assert limit(throttle.pace, OPTIONS).caps.pgs <= 8
    throttle.base = 1.0
    throttle.run(30)
    assert limit(throttle.pace, OPTIONS).caps.pgs == 32


def test_halts_where_one_pg_is_too_much_and_continues_when_latency_is_back() -> None:
    throttle = Throttle(1.0, 50.0)
    steps = 0
    while not throttle.step().halted:
        steps += 1
        assert steps < 12
    assert throttle.pace.code == Code.LATENCY and 'pool rbd' in throttle.pace.why
    for _ in range(HALT_READINGS - 1):
        assert throttle.step().halted
    assert not throttle.step().halted, 'clients are well while nothing moves'
    assert limit(throttle.pace, OPTIONS).caps.pgs == 1


@pytest.mark.parametrize('clients, readings', [
    (reading(0.0, 0.95 * TARGET), HALT_READINGS),
    (reading(0.0, 9.0, ops=1), BLIND_READINGS)])
def test_what_was_halted_goes_on(clients: Clients, readings: int) -> None:
    pace = Pace(pgs=1.0, halted=True)
    assert 5.0 * readings <= 90.0
    for now in range(1, readings + 1):
        assert pace.halted
        pace = decide(pace, replace(clients, time=float(now)), frozenset(), 0.0, 0, OPTIONS)
    assert not pace.halted and pace.pgs == 1.0


def test_pgs_that_come_and_go_between_readings_are_halted_too() -> None:
    pace = Pace(pgs=1.0)
    for now in range(1, HALT_READINGS + 1):
        still = decide(pace, reading(float(now), 2 * TARGET), frozenset(), 0.0, 0, OPTIONS)
        assert not still.halted, 'nothing moved, so it is not what clients feel'
        pace = decide(pace, reading(float(now), 2 * TARGET), frozenset({5}), 0.0, 0, OPTIONS)
    assert pace.halted


def test_where_latency_stays_high_while_nothing_moves_movement_is_not_the_cause() -> None:
    pace = Pace(pgs=1.0, halted=True)
    for now in range(1, NEW_BASELINE_READINGS + 2):
        assert pace.halted
        pace = decide(pace, reading(float(now), 1.1 * TARGET), frozenset(), 0.0, 2, OPTIONS,
                      nothing_moves=True)
    assert not pace.halted and pace.pgs == 1.0 and pace.code == Code.NEW_BASELINE
    assert decode(Pace, encode(pace)) == pace
    begin = pace
    for now in range(100, 200):
        pace = decide(pace, reading(float(now), 1.1 * TARGET), frozenset(), 0.0, int(pace.pgs),
                      OPTIONS)
        assert not pace.halted
    assert pace.pgs > 4.0, 'the load is as it was while nothing moved'
    for now in range(100, 100 + HALT_READINGS):
        begin = decide(begin, reading(float(now), 2 * TARGET), frozenset(), 0.0, 1, OPTIONS)
    assert begin.halted, 'and what is slower than that is still pool_latencies'


def still(pace: Pace, ms: float, times: int, now: float, in_flight: int = 0) -> Pace:
    """After some readings during which nothing could move."""
    for step in range(1, times + 1):
        pace = decide(pace, reading(now + step, ms), frozenset(), 0.0, in_flight, OPTIONS,
                      nothing_moves=True)
    return pace


def test_a_halt_does_not_end_while_movement_continues() -> None:
    """Others cleared norebalance, say: what moves may be the cause."""
    pace = Pace(pgs=1.0, halted=True)
    for now in range(1, 5 * NEW_BASELINE_READINGS):
        pace = decide(pace, reading(float(now), 20 * TARGET), frozenset(), 0.0, 1, OPTIONS)
        assert pace.halted and not pace.levels
    assert still(pace, 20 * TARGET, NEW_BASELINE_READINGS - 1, 1000.0).halted


def test_a_baseline_from_a_peak_falls_with_the_load() -> None:
    name = 'reads of pool rbd'
    pace = still(Pace(pgs=1.0, halted=True), 20 * TARGET, NEW_BASELINE_READINGS + 1, 0.0)
    assert not pace.halted and pace.levels == {name: 20 * TARGET}
    for now, ms, level in ((100.0, 5 * TARGET, 5 * TARGET), (101.0, 7 * TARGET, 5 * TARGET),
                           (102.0, 0.5 * TARGET, None)):
        pace = decide(pace, reading(now, ms), frozenset(), 0.0, 1, OPTIONS)
        assert pace.levels.get(name) == level
    for now in range(200, 200 + HALT_READINGS + 5):
        pace = decide(pace, reading(float(now), 5 * TARGET), frozenset(), 0.0, 1, OPTIONS)
    assert pace.halted, 'against the ordinary limit again'


def test_baselines_do_not_pile_up() -> None:
    """A level rises at most once an hour, however the load grows."""
    pace = still(Pace(pgs=1.0, halted=True), 2 * TARGET, NEW_BASELINE_READINGS + 1, 0.0)
    assert not pace.halted
    pace = still(replace(pace, halted=True), 9 * TARGET, 3 * NEW_BASELINE_READINGS, 100.0)
    assert pace.halted and pace.levels == {'reads of pool rbd': 2 * TARGET}
    later = still(pace, 9 * TARGET, NEW_BASELINE_READINGS + 1, 100.0 + EXEMPT_SECONDS)
    assert not later.halted and later.levels == {'reads of pool rbd': 9 * TARGET}
    assert decode(Pace, encode(later)) == later


def test_a_halt_counts_its_own_readings() -> None:
    """Those that led to it were readings of movement."""
    pace = Pace(pgs=1.0)
    for now in range(1, HALT_READINGS + 1):
        pace = decide(pace, reading(float(now), 2 * TARGET), frozenset(), 0.0, 1, OPTIONS)
    assert pace.halted
    assert still(pace, 2 * TARGET, NEW_BASELINE_READINGS, 100.0).halted
    assert not still(pace, 2 * TARGET, NEW_BASELINE_READINGS + 1, 100.0).halted


def test_a_limit_that_the_operator_set_is_never_raised() -> None:
    options = replace(OPTIONS, latency_limits_ms='rbd=%g' % TARGET)
    pace = Pace(pgs=1.0, halted=True)
    for now in range(1, 3 * NEW_BASELINE_READINGS):
        pace = decide(pace, reading(float(now), 1.1 * TARGET), frozenset(), 0.0, 0, options,
                      nothing_moves=True)
        assert pace.halted and pace.code == Code.LATENCY
    learned = replace(pace, halted=False, levels={'reads of pool rbd': 10 * TARGET})
    lowered = decide(learned, reading(1000.0, 1.1 * TARGET), frozenset(), 0.0, 4, options)
    assert lowered.code == Code.LATENCY, 'a baseline that was learned before it was set'


def test_latency_that_is_high_at_times_does_not_end_a_halt() -> None:
    pace = Pace(pgs=1.0, halted=True, over=NEW_BASELINE_READINGS - 1)
    for now, ms in enumerate((1.1, 0.9, 1.1), 1):
        pace = decide(pace, reading(float(now), ms * TARGET), frozenset(), 0.0, 0, OPTIONS,
                      nothing_moves=True)
    assert pace.halted


def test_latency_that_varies_about_its_limit_while_nothing_moves_is_not_due_to_movement() -> None:
    pace, readings = Pace(pgs=1.0, halted=True), 0
    while pace.halted:
        readings += 1
        assert readings < 3 * NEW_BASELINE_READINGS
        ms = (0.9 if readings % 4 == 0 else 1.1) * TARGET
        pace = decide(pace, reading(float(readings), ms), frozenset(), 0.0, 0, OPTIONS,
                      nothing_moves=True)
    assert pace.code == Code.NEW_BASELINE and readings > 1.5 * NEW_BASELINE_READINGS


@pytest.mark.parametrize('over, left', [(0, 0), (1, 0), (3, 2)])
def test_a_fast_reading_during_a_halt_makes_up_for_a_slow_one(over: int, left: int) -> None:
    pace = decide(Pace(pgs=1.0, over=over, halted=True), reading(5.0, 0.9 * TARGET), frozenset(),
                  0.0, 0, OPTIONS)
    assert pace.halted and pace.over == left


def test_a_limit_that_is_not_used_does_not_grow() -> None:
    pace = Pace(pgs=10.0)
    for now in range(1, 10):
        pace = decide(pace, reading(now, 1.0), frozenset(), 0.0, 3, OPTIONS)
    assert pace.pgs == 10.0


def test_what_was_not_used_was_not_what_clients_felt() -> None:
    pace = decide(Pace(pgs=32.0), reading(5.0, 3.0), frozenset(), 0.0, 4, OPTIONS)
    assert pace.pgs == 2.0


def test_between_comfort_and_target_nothing_changes() -> None:
    pace = decide(Pace(pgs=10.0), reading(5.0, 1.9), frozenset(), 0.0, 10, OPTIONS)
    assert pace.pgs == 10.0 and pace.code == Code.LATENCY_OK
    assert pace.why == 'read latency of pool rbd is 1.90 ms (limit 2.00 ms)'


@pytest.mark.parametrize('thin, code', [
    ({'ops': LEAST_OPS // 8}, Code.FEW_OPS), ({'target': None}, Code.NO_BASELINE),
    ({'ops': 0}, Code.FEW_OPS)])
def test_thin_evidence_changes_nothing(thin: Dict[str, int], code: str) -> None:
    pace = decide(Pace(pgs=10.0), reading(5.0, 100.0, **thin), frozenset(), 0.0, 10, OPTIONS)
    assert pace.pgs == 10.0 and pace.code == code


@pytest.mark.parametrize('thin', [{'ops': 1}, {'target': None}])
def test_without_evidence_a_lowered_limit_returns_to_that_of_the_beginning(
        thin: Dict[str, Any]) -> None:
    pace = pace_after_stop(pace_after_stop(pace_after_stop(Pace(pgs=8.0))))
    assert pace.pgs == 1.0
    seen = []
    for now in range(1, 5 * BLIND_READINGS + 1):
        pace = decide(pace, reading(float(now), 1.0, **thin), frozenset(), 0.0, 1, OPTIONS)
        seen.append(pace.pgs)
    assert seen[BLIND_READINGS - 2] == 1.0 and seen[BLIND_READINGS - 1] == 2.0
    assert seen[-1] == 8.0 == max(seen)


def test_the_same_reading_is_judged_once() -> None:
    clients = reading(5.0, 9.0)
    pace = decide(Pace(pgs=32.0), clients, frozenset(), 0.0, 32, OPTIONS)
    assert decide(pace, clients, frozenset(), 0.0, 32, OPTIONS) == pace


def test_idle_clients_need_no_throttle_but_silent_ones_may_be_stuck() -> None:
    silent = reading(5.0, 0.0, ops=0, rate=0.0)
    assert decide(Pace(), silent, frozenset(), 0.0, 0, OPTIONS).pgs == 32
    stuck = decide(Pace(pgs=4.0), reading(5.0, 0.0, ops=0, rate=50.0), frozenset(), 0.0, 4, OPTIONS)
    assert stuck.pgs == 4.0


@pytest.mark.parametrize('ms, idle', [(10.0, True), (1200.0, True), (6000.0, False)])
def test_a_client_that_waits_for_its_only_operation_is_not_idle(ms: float, idle: bool) -> None:
    rate = min(0.4, 1e3 / ms)
    clients = reading(5.0, ms, 1, rate, osds=1)
    pools = {1: clients.pools[1]._replace(in_progress=rate * ms / 1e3)}
    pace = decide(Pace(pgs=4.0), replace(clients, pools=pools), frozenset(), 0.0, 4, OPTIONS)
    assert (pace.code == Code.NO_CLIENTS) == idle and pace.pgs == (32.0 if idle else 4.0)


def test_after_a_failover_silence_says_nothing() -> None:
    silent = replace(reading(5.0, 0.0, ops=0, rate=0.0), covered=IDLE_SECONDS - 1)
    pace = decide(Pace(pgs=4.0, halted=True), silent, frozenset(), 0.0, 4, OPTIONS)
    assert pace.pgs == 4.0 and pace.halted and pace.code == Code.NO_READINGS


def test_before_the_first_reading_it_goes_slowly() -> None:
    pace = decide(Pace(), Clients(), frozenset(), 0.0, 0, OPTIONS)
    assert pace.pgs == 8.0 and pace.code == Code.NO_READINGS


def test_osds_whose_pgs_peer_are_left_out() -> None:
    clients = reading(5.0, 1.0)
    row = ClientOps(1, 3, Ops(10 ** 12, 1000), Ops())
    stalled = replace(clients, rows=(*clients.rows[:3], row))
    assert decide(Pace(pgs=8.0), stalled, frozenset(), 0.0, 8, OPTIONS).pgs == 4.0
    assert decide(Pace(pgs=8.0), stalled, frozenset({3}), 0.0, 8, OPTIONS).pgs > 8.0


def test_where_all_osds_have_peering_pgs_their_budget_comes_on_top() -> None:
    everywhere = frozenset(range(4))
    for ms, stall_ms, pgs in ((2.7, 0.0, 4.0), (2.7, 1.0, 8.0), (3.5, 1.0, 4.0)):
        pace = decide(Pace(pgs=8.0), reading(5.0, ms), everywhere, stall_ms, 8, OPTIONS)
        assert pace.pgs == pgs


def test_the_worst_kind_of_the_worst_pool_decides() -> None:
    pools = {1: PoolClients('a', 8, 9.0, 2.0, 2.0), 2: PoolClients('b', 8, 9.0, 10.0, 1.0)}
    rows = (ClientOps(1, 0, Ops(10 ** 8, 100), Ops(10 ** 8, 100)),
            ClientOps(2, 0, Ops(10 ** 8, 100), Ops(3 * 10 ** 8, 100)))
    seen = {(each.pool, each.kind): each.pressure
            for each in pool_latencies(Clients(1.0, 5.0, rows, pools), frozenset(), 0.0)}
    assert seen == pytest.approx({('a', 'reads'): 0.5, ('a', 'writes'): 0.5, ('b', 'reads'): 0.1,
                                  ('b', 'writes'): 3.0})


def test_nonsense_of_an_osd_is_left_out() -> None:
    rows = (ClientOps(1, 0, Ops(-5, 100), Ops()), ClientOps(9, 0, Ops(10 ** 8, 100), Ops()))
    pools = {1: PoolClients('a', 8, 9.0, 2.0, 2.0)}
    assert pool_latencies(Clients(1.0, 5.0, rows, pools), frozenset(), 0.0) == []


def test_the_operators_cap_holds_at_once() -> None:
    three = replace(OPTIONS, max_pgs_in_flight=3)
    pace = decide(Pace(pgs=32.0), Clients(), frozenset(), 0.0, 0, three)
    assert pace.pgs == 3.0
    small = limit(Pace(pgs=32.0), three)
    assert small.caps.pgs == 3 and 'at most 3 of 3 PGs' in small.reason.text


def test_each_cap_is_the_option_of_its_name() -> None:
    options = replace(DEFAULTS, max_pgs_in_flight=1, max_bytes_in_flight=2, max_backfills_source=3,
                      max_backfills_primary=4, max_backfills_target=5, max_backfills_host=6,
                      max_backfills_domain=7, max_backfills_device=8)
    assert caps(options) == Caps(pgs=1, bytes=2, source=3, primary=4, target=5, host=6, domain=7,
                                 device=8)


@pytest.mark.parametrize('pgs, most, expected', [
    (0, 0, 4 << 40), (7, 0, 4 << 40), (400, 0, 50 << 40), (400, 1 << 40, 1 << 40)])
def test_bytes_in_flight_scale_with_the_pgs_unless_they_are_set(
        pgs: int, most: int, expected: int) -> None:
    options = replace(DEFAULTS, max_pgs_in_flight=pgs, max_bytes_in_flight=most)
    assert caps(options).bytes == expected


def test_fewer_pgs_leave_the_bytes_to_the_operator() -> None:
    assert limit(Pace(pgs=8.0), OPTIONS).caps == replace(caps(OPTIONS), pgs=8)
    assert limit(Pace(pgs=32.0), OPTIONS).caps == caps(OPTIONS)


def test_after_a_stop_half_is_left() -> None:
    assert pace_after_stop(Pace(pgs=9.0, over=2)).pgs == 4.5
    assert pace_after_stop(Pace(pgs=1.0)).pgs == 1.0


def test_only_readings_under_norebalance_show_that_movement_is_not_the_cause() -> None:
    machine = releasing(FakeCluster(backfill_seconds=1e6))
    cluster, observe = machine.cluster, machine.observe

    def slow() -> Observation:
        return replace(observe(), clients=reading(cluster.now, 20 * TARGET))

    setattr(machine, 'observe', slow)
    machine.until(lambda: machine.campaign.pace.halted and 'norebalance' in cluster.flags)
    machine.turn()
    cluster.flags.discard('norebalance')  # by other hands, and left to them
    for _ in range(2 * NEW_BASELINE_READINGS):
        machine.turn()
    assert 'norebalance' not in cluster.flags
    assert machine.campaign.pace.halted and machine.campaign.flights.in_flight
    cluster.flags.add('norebalance')
    machine.until(lambda: not machine.campaign.pace.halted, NEW_BASELINE_READINGS + 5)


@pytest.mark.parametrize('cap, pgs', [(1000, 4.0), (1000, 40.0), (1000, 900.0), (32, 8.0)])
def test_no_step_is_large_for_what_moves(cap: int, pgs: float) -> None:
    """A twentieth of a large cluster's cap is many times what is in flight after a stop."""
    options = replace(DEFAULTS, max_pgs_in_flight=cap)
    pace = decide(Pace(pgs=pgs), reading(5.0, 0.1 * TARGET), frozenset(), 0.0, int(pgs), options)
    assert 1.0 <= pace.pgs - pgs <= max(1.0, min(0.05 * cap, 0.25 * pgs))


# ---- One reading, to the digit

def exact(time: float, ms: float, **changes: Any) -> Clients:
    """A reading against a limit of 2 ms that the operator has set: chance explains nothing."""
    clients = reading(time, ms)
    return replace(clients, pools={1: clients.pools[1]._replace(named=True, **changes)})


def after(pace: Pace, ms: float, in_flight: int, **more: Any) -> Pace:
    return decide(pace, exact(100.0, ms), frozenset(), 0.0, in_flight, OPTIONS, **more)


@pytest.mark.parametrize('before, ms, in_flight, expected', [
    # Within the limit: more PGs, if as many are in flight.
    (Pace(pgs=10.0, over=2, under=3), 1.6, 10, Pace(pgs=11.6, under=4)),
    (Pace(pgs=10.9, over=2, under=3), 1.6, 10, Pace(pgs=12.5, under=4)),
    (Pace(pgs=10.9, over=2, under=3), 1.6, 9, Pace(pgs=10.9, under=4)),
    (Pace(pgs=31.5), 1.6, 31, Pace(pgs=32.0, under=1)),
    (Pace(pgs=2.0), 1.6, 2, Pace(pgs=3.0, under=1)),
    (Pace(pgs=5.0), 1.6, 5, Pace(pgs=6.25, under=1)),
    # Close to it, and up to it: as many.
    (Pace(pgs=10.0, over=2, under=3, above=4), 1.61, 10, Pace(pgs=10.0)),
    (Pace(pgs=10.0, over=2, under=3, above=4), 2.0, 10, Pace(pgs=10.0)),
    # Over it: half of those in flight.
    (Pace(pgs=10.0, over=2, under=3, above=4), 2.01, 10, Pace(pgs=5.0, over=3, above=5)),
    (Pace(pgs=10.0, over=2), 2.01, 4, Pace(pgs=2.0, over=3, above=1)),
    (Pace(pgs=10.0, over=2), 2.01, 0, Pace(pgs=1.0, over=3, above=1)),
    # The twelfth reading in a row is a minute.
    (Pace(pgs=10.0, above=10), 2.01, 10, Pace(pgs=5.0, over=1, above=11)),
    (Pace(pgs=10.0, above=11), 2.01, 10, Pace(pgs=5.0, over=1, above=0)),
    # The third reading with one PG in flight halts all movement.
    (Pace(pgs=1.0, over=1), 2.01, 1, Pace(pgs=1.0, over=2, above=1)),
    (Pace(pgs=1.0, over=2), 2.01, 1, Pace(pgs=1.0, above=1, halted=True)),
    (Pace(pgs=1.0, over=2), 2.01, 0, Pace(pgs=1.0, over=3, above=1)),
    (Pace(pgs=1.5, over=2), 2.01, 1, Pace(pgs=1.0, over=3, above=1)),
    # The third one up to the limit ends the halt, and one makes up for one over it.
    (Pace(pgs=1.0, over=5, under=1, halted=True), 2.0, 1,
     Pace(pgs=1.0, over=4, under=2, halted=True)),
    (Pace(pgs=1.0, over=5, under=2, halted=True), 2.0, 1, Pace(pgs=1.0, under=3)),
    (Pace(pgs=1.0, over=5, under=2, halted=True), 2.01, 1, Pace(pgs=1.0, above=1, halted=True))])
def test_one_reading_more(before: Pace, ms: float, in_flight: int, expected: Pace) -> None:
    """At most 32 PGs may be in flight."""
    pace = after(before, ms, in_flight)
    assert replace(pace, why='', pgs=0.0) == replace(
        expected, decided=100.0, code=pace.code, pgs=0.0)
    assert pace.pgs == pytest.approx(expected.pgs)


@pytest.mark.parametrize('ms, above, code, why', [
    (2.0, 0, Code.LATENCY_OK, ''), (2.01, 10, Code.LATENCY, ''),
    (2.01, 11, Code.LATENCY, ' for a minute')])
def test_what_a_reading_says(ms: float, above: int, code: str, why: str) -> None:
    pace = after(Pace(pgs=10.0, above=above), ms, 10)
    assert (pace.code, pace.why) == (
        code, 'read latency of pool rbd is %.2f ms (limit 2.00 ms)%s' % (ms, why))


def test_idle_clients_end_a_halt_at_once() -> None:
    silent = reading(5.0, 0.0, ops=0, rate=0.0)
    pace = decide(Pace(pgs=4.0, over=2, under=2, halted=True), silent, frozenset(), 0.0, 4, OPTIONS)
    assert pace == Pace(pgs=32.0, decided=5.0, why='clients are idle', code=Code.NO_CLIENTS)


@pytest.mark.parametrize('pgs, left', [(9.0, 4.5), (2.0, 1.0), (1.5, 1.0)])
def test_a_stop_forgets_the_readings_before_it(pgs: float, left: float) -> None:
    assert pace_after_stop(Pace(pgs=pgs, over=2, under=3)) == Pace(pgs=left)


@pytest.mark.parametrize('judged, seconds, readings', [
    # The last evidence is a minute old: the last minute counts like all of its readings.
    (40.0, 5.0, 12), (0.0, 5.0, 12), (40.0, 20.0, 3), (40.0, 60.0, 1), (40.0, 200.0, 1),
    (40.0, 1.0, 60), (40.0, 0.5, 60),
    # It is younger: nothing changes.
    (40.1, 5.0, 0)])
def test_without_enough_operations_the_last_minute_counts(judged: float, seconds: float,
                                                          readings: int) -> None:
    clients = replace(exact(100.0, 1.0, read_minute=Minute(100, 1.0)), rows=(), seconds=seconds)
    pace = decide(Pace(pgs=10.0, judged=judged, under=2), clients, frozenset(), 0.0, 0, OPTIONS)
    assert pace.under == 2 + readings and pace.pgs == 10.0
    assert pace.judged == (100.0 if readings else judged)
    assert pace.code == (Code.LATENCY_OK if readings else Code.FEW_OPS)


@pytest.mark.parametrize('before, expected', [
    (Pace(pgs=2.0, over=2, under=BLIND_READINGS - 2), Pace(pgs=2.0, under=BLIND_READINGS - 1)),
    (Pace(pgs=2.0, over=2, under=BLIND_READINGS - 1), Pace(pgs=4.0)),
    # Up to the limit of the beginning.
    (Pace(pgs=6.0, under=BLIND_READINGS - 1), Pace(pgs=8.0)),
    (Pace(pgs=10.0, under=BLIND_READINGS - 1), Pace(pgs=10.0)),
    # A halt ends with one PG.
    (Pace(pgs=1.0, under=BLIND_READINGS - 2, halted=True),
     Pace(pgs=1.0, under=BLIND_READINGS - 1, halted=True)),
    (Pace(pgs=1.0, under=BLIND_READINGS - 1, halted=True), Pace(pgs=1.0))])
def test_one_reading_without_evidence_more(before: Pace, expected: Pace) -> None:
    pace = decide(before, reading(5.0, 1.0, ops=1), frozenset(), 0.0, 1, OPTIONS)
    assert pace == replace(expected, decided=5.0, code=Code.FEW_OPS,
                           why='too few client operations to judge latency')


READS = 'reads of pool rbd'


@pytest.mark.parametrize('over, nothing_moves, acquitted, levels, rises', [
    (NEW_BASELINE_READINGS, True, 0.0, {}, True),
    (NEW_BASELINE_READINGS - 1, True, 0.0, {}, False),
    (NEW_BASELINE_READINGS, False, 0.0, {}, False),
    # Again after an hour.
    (NEW_BASELINE_READINGS, True, 100.0 - EXEMPT_SECONDS, {READS: 1.5}, True),
    (NEW_BASELINE_READINGS, True, 101.0 - EXEMPT_SECONDS, {READS: 1.5}, False),
    (NEW_BASELINE_READINGS, True, 101.0 - EXEMPT_SECONDS, {'writes of pool rbd': 1.5}, True)])
def test_latency_while_nothing_moves_becomes_the_baseline(
        over: int, nothing_moves: bool, acquitted: float, levels: Dict[str, float],
        rises: bool) -> None:
    before = Pace(pgs=1.0, over=over, under=1, halted=True, acquitted=acquitted, levels=levels)
    pace = after(before, 9.0, 0, nothing_moves=nothing_moves)
    assert pace.halted != rises and pace.under == 0 and pace.pgs == 1.0
    if rises:
        assert pace.levels == {**levels, READS: 9.0} and pace.acquitted == 100.0
        assert pace.over == 0 and pace.code == Code.NEW_BASELINE
        assert pace.why.endswith(' although nothing moves, so this latency becomes the new '
                                 'baseline')
    else:
        assert pace.levels == levels and pace.acquitted == acquitted
        assert pace.over == (over + 1 if nothing_moves else 0)


@pytest.mark.parametrize('ratio, code', [(0.99, Code.LATENCY_OK), (1.01, Code.LATENCY)])
def test_the_limit_follows_the_new_baseline(ratio: float, code: str) -> None:
    """Latency may exceed it by latency_factor, as an ordinary baseline."""
    level = 3.0
    pace = after(Pace(pgs=10.0, levels={READS: level}), ratio * OPTIONS.latency_factor * level, 10)
    assert pace.code == code


@pytest.mark.parametrize('ms, level', [(2.0, None), (2.01, 2.01), (3.0, 3.0), (3.5, 3.0)])
def test_a_new_baseline_falls_to_the_ordinary_limit(ms: float, level: Optional[float]) -> None:
    other = {'reads of pool other': 5.0}
    pace = after(Pace(pgs=10.0, levels={READS: 3.0, **other}), ms, 10)
    assert pace.levels == pytest.approx({**other, READS: level} if level else other)


@pytest.mark.parametrize('ops, named, code', [
    (999, False, Code.LATENCY_OK), (1000, False, Code.LATENCY), (999, True, Code.LATENCY)])
def test_small_pools_use_the_new_baseline_of_all_of_them(ops: int, named: bool, code: str) -> None:
    """All reads take twice their limit."""
    rows = tuple(ClientOps(pool, 0, Ops(number * 4 * 10 ** 6, number), Ops())
                 for pool, number in ((1, ops), (2, 500), (3, 500)))
    clients = Clients(100.0, 5.0, rows, {
        pool: PoolClients('p%d' % pool, 64, 200.0, TARGET, TARGET, named=named and pool == 1)
        for pool in (1, 2, 3)}, IDLE_SECONDS)
    before = Pace(pgs=10.0, levels={'reads of all small pools': 20.0})
    pace = decide(before, clients, frozenset(), 0.0, 10, OPTIONS)
    assert pace.code == code and (code == Code.LATENCY_OK or 'pool p1' in pace.why)


@pytest.mark.parametrize('seconds, rate, pools, code, why', [
    (IDLE_SECONDS, 0.0, {}, Code.NO_CLIENTS, 'clients are idle'),
    (IDLE_SECONDS - 1, 0.0, {}, Code.NO_READINGS,
     'client latency is not known yet: it takes %d s of measurements' % IDLE_SECONDS),
    (IDLE_SECONDS - 1, 9.0, {}, Code.FEW_OPS, 'too few client operations to judge latency'),
    (IDLE_SECONDS, 9.0, {}, Code.FEW_OPS, 'too few client operations to judge latency'),
    (IDLE_SECONDS, 9.0, {'read_target_ms': None}, Code.FEW_OPS,
     'too few client operations to judge latency'),
    (IDLE_SECONDS, 9.0, {'read_target_ms': None, 'write_target_ms': None}, Code.NO_BASELINE,
     'pool rbd has no baseline yet; perfguard learns it while no data moves')])
def test_why_latency_cannot_be_judged(seconds: float, rate: float, pools: Dict[str, Any],
                                      code: str, why: str) -> None:
    clients = replace(exact(100.0, 1.0, rate=rate, **pools), rows=(), covered=seconds)
    pace = decide(Pace(pgs=10.0), clients, frozenset(), 0.0, 0, OPTIONS)
    assert (pace.code, pace.why) == (code, why)


def test_what_prevents_that_a_baseline_is_learned_is_named() -> None:
    clients = replace(exact(100.0, 1.0, rate=9.0, read_target_ms=None, write_target_ms=None),
                      rows=(), why_not_quiet='operations on osd.3 are slow')
    pace = decide(Pace(pgs=10.0), clients, frozenset(), 0.0, 0, OPTIONS)
    assert (pace.code, pace.why) == (Code.NO_BASELINE, 'pool rbd has no baseline yet; perfguard '
                                     'learns none while operations on osd.3 are slow')


@pytest.mark.parametrize('cap, before, seen', [
    # At the old cap, and where a campaign begins: at once, up to a quarter of the new cap.
    (4, Pace(pgs=4.0), [5.0, 6.25, 7.8125, 8.0, 8.0]),
    (4, Pace(pgs=1.0), [2.0, 3.0, 4.0, 5.0, 6.25]),
    # Movement is halted, or latency has lowered it: not before BLIND_READINGS.
    (4, Pace(pgs=1.0, halted=True), [1.0] * 5), (16, Pace(pgs=3.0), [3.0] * 5),
    (16, Pace(pgs=4.0), [5.0, 6.25, 7.8125, 8.0, 8.0])])
def test_a_raised_cap_takes_effect_without_evidence(cap: int, before: Pace,
                                                    seen: List[float]) -> None:
    old, pace, levels = replace(DEFAULTS, max_pgs_in_flight=cap), before, []
    pace = decide(pace, reading(5.0, 9.0, ops=1), frozenset(), 0.0, 4, old)
    assert pace.pgs == before.pgs
    for number in range(2, 7):
        pace = decide(pace, reading(5.0 * number, 9.0, ops=1), frozenset(), 0.0, 8, OPTIONS)
        levels.append(pace.pgs)
    assert levels == seen and pace.halted == before.halted


def test_a_raised_cap_is_used_no_further_while_few_pgs_are_in_flight_or_latency_is_known() -> None:
    old, pace = replace(DEFAULTS, max_pgs_in_flight=4), Pace(pgs=4.0)
    few: Dict[str, int] = {'ops': 1}
    pace = decide(pace, reading(5.0, 9.0, **few), frozenset(), 0.0, 4, old)
    pace = decide(pace, reading(10.0, 9.0, **few), frozenset(), 0.0, 3, OPTIONS)
    assert pace.pgs == 4.0 and pace.raised
    # Between COMFORT and the limit.
    pace = decide(pace, reading(15.0, 0.9 * TARGET), frozenset(), 0.0, 4, OPTIONS)
    assert pace.pgs == 4.0 and not pace.raised
    pace = decide(pace, reading(100.0, 9.0, **few), frozenset(), 0.0, 4, OPTIONS)
    assert pace.pgs == 4.0
