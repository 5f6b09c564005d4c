# SPDX-License-Identifier: LGPL-2.1-or-later
"""What chance, the load and other pools do to latency is not the doing of what moves."""
import random
from dataclasses import replace
from typing import Dict, Iterable, List, Optional, Sequence

import pytest

from perfguard.cluster.types import ClientOps, Ops
from perfguard.codec import decode, encode
from perfguard.errors import Code
from perfguard.observation import IDLE_SECONDS, Clients, Minute, PoolClients
from perfguard.options import DEFAULTS
from perfguard.rebalance import latency
from perfguard.rebalance.latency import (Path, PoolLatency, explains_alarm, explains_pool,
                                         judged, load_factors, minute_latencies, pool_latencies,
                                         strain)
from perfguard.rebalance.types import Pace
from perfguard.rebalance.throttle import LASTING_READINGS, decide
from perfguard.watch.slow_reads import CHANCE_MAX, LEAST_OPS, SlowReads
from perfguard.watch.slowness import OP_SPREAD

OPTIONS = replace(DEFAULTS, max_pgs_in_flight=32)
SECONDS = 5.0
#: Lognormal latencies with this sigma have a standard deviation of 2.1 means.
SIGMA, SPREAD = 1.3, 2.1
OSDS = range(24)


def lognormal(rng: random.Random, mean_ms: float, number: int) -> Ops:
    mu = -SIGMA ** 2 / 2
    return Ops(int(sum(rng.lognormvariate(mu, SIGMA) for _ in range(number)) * mean_ms * 1e6),
               number)


def small_pools(rng: random.Random, time: float, factor: float = 1.0, pools: int = 20) -> Clients:
    """Twenty pools, each with 12 operations a second; reads take 1 ms, writes 2 ms."""
    rows = [ClientOps(pool, pool % 24, lognormal(rng, 1.0 * factor, 40),
                      lognormal(rng, 2.0 * factor, 20)) for pool in range(pools)]
    rows += [row._replace(osd=(row.osd + 7) % 24) for row in rows]
    return Clients(time, SECONDS, tuple(rows), {
        pool: PoolClients('p%d' % pool, 32, 12.0, 1.5, 3.0, 1.0, 2.0, SPREAD, SPREAD)
        for pool in range(pools)}, IDLE_SECONDS)


def run(readings: Iterable[Clients], pace: Pace = Pace()) -> List[Pace]:
    paces = []
    for each in readings:
        in_flight = 0 if pace.halted else int(pace.pgs or 8)
        pace = decide(pace, each, frozenset(), 0.0, in_flight, OPTIONS)
        paces.append(pace)
    return paces


def mean_pgs(paces: List[Pace]) -> float:
    return sum(pace.pgs for pace in paces[50:]) / len(paces[50:])


def test_small_pools_do_not_slow_a_campaign() -> None:
    rng = random.Random(1)
    paces = run(small_pools(rng, SECONDS * turn) for turn in range(1, 401))
    assert not any(pace.halted for pace in paces)
    assert mean_pgs(paces) >= 0.8 * OPTIONS.max_pgs_in_flight


def test_without_a_notion_of_chance_they_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, 'CHANCE_MAX', 0.0)
    rng = random.Random(1)
    paces = run(small_pools(rng, SECONDS * turn) for turn in range(1, 401))
    assert mean_pgs(paces) < 0.1 * OPTIONS.max_pgs_in_flight


@pytest.mark.parametrize('factor', [3.0, 6.0])
def test_what_small_pools_feel_together_counts(factor: float) -> None:
    rng = random.Random(2)
    paces = run((small_pools(rng, SECONDS * turn, factor) for turn in range(1, 9)), Pace(pgs=32.0))
    assert paces[1].pgs <= 8.0 and paces[-1].halted
    assert 'all small pools' in paces[0].why or 'pool p' in paces[0].why


def test_chance_is_less_where_there_are_more_operations() -> None:
    def chance(number: int, spread: Optional[float] = None) -> float:
        rows = (ClientOps(1, 0, Ops(number * 10 ** 6, number), Ops()),)
        pools = {1: PoolClients('p', 8, 9.0, 2.0, read_spread=spread)}
        found, = judged(pool_latencies(Clients(1.0, SECONDS, rows, pools), frozenset(), 0.0))
        return found.chance

    assert chance(LEAST_OPS, 9.0) == CHANCE_MAX
    assert chance(10000) == pytest.approx(3.72 * OP_SPREAD / 100, rel=0.01)
    assert chance(10000, 0.5) == pytest.approx(3.72 * 0.5 / 100, rel=0.01)


# ---- the load

def spread_out(ms: Dict[int, float], pool: Optional[PoolClients] = None, ops: int = 500,
               time: float = SECONDS) -> Clients:
    """One pool on all OSDs, whose reads take 1 ms and more where `ms` says so."""
    rows = tuple(ClientOps(1, osd, Ops(int(ops * ms.get(osd, 1.0) * 1e6), ops), Ops())
                 for osd in OSDS)
    pool = pool or PoolClients('p', 256, 900.0, 1.5, 3.0, 1.0, 2.0)
    return Clients(time, SECONDS, rows, {1: pool}, IDLE_SECONDS, dict.fromkeys(OSDS, 1.0))


#: Four OSDs of a host of eight are on the path.
PATH = Path(frozenset(range(4)), frozenset(range(8)))


def pace_after(clients: Clients, path: Path = PATH) -> float:
    return decide(Pace(pgs=16.0), clients, frozenset(), 0.0, 16, OPTIONS, path=path).pgs


def test_a_change_of_the_load_is_not_attributed_to_movement() -> None:
    everywhere = dict.fromkeys(OSDS, 1.7)
    assert pace_after(spread_out(everywhere)) >= 16.0
    assert pace_after(spread_out(everywhere), Path(PATH.osds, frozenset(OSDS))) == 8.0, \
        'nothing to compare with'
    worse_on_the_path = {**everywhere, **dict.fromkeys(range(8), 8.0)}
    assert pace_after(spread_out(worse_on_the_path)) == 8.0


def test_in_trouble_movement_yields_whatever_the_cause() -> None:
    assert pace_after(spread_out(dict.fromkeys(OSDS, 3.5))) == 8.0


def test_slow_osds_away_from_the_path_are_no_load() -> None:
    away = {osd: 3.0 for osd in OSDS if osd >= 8}
    clients = replace(spread_out(away), norms={osd: away.get(osd, 1.0) for osd in OSDS})
    assert load_factors(clients, PATH.near) == {1: 1.0}
    assert load_factors(spread_out(away), PATH.near)[1] > 2.5


def test_an_order_of_the_operator_is_no_matter_of_the_load() -> None:
    ordered = PoolClients('p', 256, 900.0, 1.5, 3.0, 1.0, 2.0, named=True)
    assert pace_after(spread_out(dict.fromkeys(OSDS, 1.7), ordered)) == 8.0


@pytest.mark.parametrize('change', [
    {'ops': 5}, {'rows': spread_out(dict.fromkeys(OSDS, 1.7)).rows[:10]},
    {'pool': PoolClients('p', 256, 900.0, 1.5, 3.0, 1.0, 2.0, erasure=True)}])
def test_a_reference_needs_reads_of_several_osds(change: Dict[str, object]) -> None:
    clients = spread_out(dict.fromkeys(OSDS, 1.7), ops=change.pop('ops', 500),  # type: ignore
                         pool=change.pop('pool', None))  # type: ignore
    assert load_factors(replace(clients, **change), PATH.near).get(1, 1.0) == 1.0


def test_pools_away_from_the_path_do_not_count() -> None:
    rows = (ClientOps(1, 0, Ops(10 ** 9, 1000), Ops()),
            ClientOps(2, 20, Ops(9 * 10 ** 9, 1000), Ops()))
    pools = {pool: PoolClients('p%d' % pool, 32, 9.0, 2.0) for pool in (1, 2)}
    clients = Clients(1.0, SECONDS, rows, pools, IDLE_SECONDS)
    assert [each.pool for each in pool_latencies(clients, frozenset(), 0.0, PATH)] == ['p1']
    assert [each.pool for each in pool_latencies(clients, frozenset(), 0.0)] == ['p1', 'p2']


@pytest.mark.parametrize('reads, factor', [
    # Twice the baseline, divided by 1 and what chance explains: 1.25 * 3.717 * 0.1 / sqrt(200).
    ((60, 70, 70), 1.9363835), ((60, 70, 69), 1.0), ((100, 100), 1.0), ((50, 50, 50, 50), 1.9363835)
])
def test_the_least_reads_that_show_the_load(reads: Sequence[int], factor: float) -> None:
    rows = tuple(ClientOps(1, osd, Ops(2 * 10 ** 6 * number, number), Ops())
                 for osd, number in enumerate(reads))
    pool = PoolClients('p', 256, 900.0, 1.5, 3.0, 1.0, 2.0, 0.1)
    clients = Clients(1.0, SECONDS, rows, {1: pool}, IDLE_SECONDS)
    assert load_factors(clients, frozenset()) == {1: pytest.approx(factor, rel=1e-7)}


# ---- what must not pass for chance or load

def test_failing_osds_are_no_load() -> None:
    failing = {**dict.fromkeys(OSDS, 1.0), **dict.fromkeys(range(4), 2.6), 20: 1000.0, 21: 1000.0}
    assert load_factors(spread_out(failing), PATH.near) == {1: 1.0}
    assert pace_after(spread_out({**dict.fromkeys(range(20), 2.6), 20: 1000.0})) == 8.0


def test_the_load_of_one_pool_excuses_no_other() -> None:
    slow, fast = spread_out(dict.fromkeys(OSDS, 2.2)), spread_out({})
    rows = (*fast.rows, *(row._replace(pool=2) for row in slow.rows))
    clients = replace(fast, rows=rows, pools={1: fast.pools[1],
                                              2: fast.pools[1]._replace(name='q')})
    loads = load_factors(clients, PATH.near)
    assert loads[1] == 1.0 and loads[2] > 1.8


def test_limits_stay_below_three_baselines() -> None:
    louder = replace(OPTIONS, latency_alarm_factor=1000.0)
    clients = spread_out(dict.fromkeys(OSDS, 80.0))
    pace = decide(Pace(pgs=16.0), clients, frozenset(), 0.0, 16, louder, path=PATH)
    assert pace.pgs == 8.0 and 'limit 3.00 ms' in pace.why


def few(ms: float, time: float, ops: int = 60, named: bool = False) -> Clients:
    rows = (ClientOps(1, 0, Ops(int(ops * ms * 1e6), ops), Ops()),)
    pools = {1: PoolClients('p', 64, 12.0, 1.5, 3.0, 1.0, 2.0, named=named)}
    return Clients(time, SECONDS, rows, pools, IDLE_SECONDS)


def test_chance_never_explains_twice_the_limit() -> None:
    clients = few(3.3, 1.0)
    pools = {1: clients.pools[1]._replace(read_spread=9.0)}
    pace = decide(Pace(pgs=16.0), replace(clients, pools=pools), frozenset(), 0.0, 16, OPTIONS)
    assert pace.pgs == 8.0 and pace.code == Code.LATENCY


def test_what_chance_may_explain_is_no_comfort() -> None:
    pace, halted = Pace(pgs=4.0), Pace(pgs=1.0, halted=True)
    for turn in range(1, 11):
        pace = decide(pace, few(2.0, turn), frozenset(), 0.0, 4, OPTIONS)
        halted = decide(halted, few(2.0, turn), frozenset(), 0.0, 0, OPTIONS, nothing_moves=True)
        assert pace.pgs == 4.0 and halted.halted
    assert decide(Pace(pgs=4.0), few(2.0, 1, named=True), frozenset(), 0.0, 4, OPTIONS).pgs == 2.0


def test_what_lasts_is_no_chance() -> None:
    pace = Pace(pgs=16.0)
    assert LASTING_READINGS * SECONDS <= 60.0
    for turn in range(1, LASTING_READINGS + 1):
        assert pace.pgs == 16.0
        pace = decide(pace, few(2.0, turn), frozenset(), 0.0, 16, OPTIONS)
    assert pace.pgs == 8.0 and pace.code == Code.LATENCY and pace.above == 0
    assert decode(Pace, encode(replace(pace, above=3))).above == 3


def test_a_new_baseline_of_small_pools_counts_for_them_together() -> None:
    rng = random.Random(5)
    pace, halted = Pace(pgs=16.0), 0
    for turn in range(1, 1500):
        pace = decide(pace, small_pools(rng, SECONDS * turn, 2.0), frozenset(), 0.0,
                      0 if pace.halted else int(pace.pgs), OPTIONS, nothing_moves=pace.halted)
        halted += pace.halted
    assert halted < 0.2 * 1500


def test_a_stray_operation_ends_no_baseline() -> None:
    pace = Pace(pgs=4.0, levels={'reads of pool p': 5.0})
    for ms in (0.1, 9.0):
        assert decide(pace, few(ms, 1.0, ops=2), frozenset(), 0.0, 4, OPTIONS).levels \
            == pace.levels


def test_where_nearly_all_osds_peer_all_count() -> None:
    clients = spread_out(dict.fromkeys(range(23), 15.0), ops=4000)
    thin = clients.rows[23]._replace(read=Ops(30 * 10 ** 6, 30), write=Ops(60 * 10 ** 6, 30))
    clients = replace(clients, rows=(*clients.rows[:23], thin))
    pace = decide(Pace(pgs=16.0), clients, frozenset(range(23)), 0.0, 16, OPTIONS)
    assert pace.pgs == 8.0


def test_pools_whose_rules_lead_to_the_path_count() -> None:
    rows = (ClientOps(1, 20, Ops(9 * 10 ** 9, 1000), Ops()),)
    clients = Clients(1.0, SECONDS, rows, {1: PoolClients('p', 32, 9.0, 2.0)}, IDLE_SECONDS)
    for path, pools in ((PATH, []), (PATH._replace(pools=frozenset({1})), ['p']),
                        (PATH._replace(near=frozenset({*PATH.near, 20})), ['p'])):
        assert [each.pool for each in pool_latencies(clients, frozenset(), 0.0, path)] == pools


# ---- the last minute, and small pools together

@pytest.mark.parametrize('path, pools', [
    (Path(), [1, 2, 3]), (Path(frozenset({9})), []),
    (Path(frozenset({9}), pools=frozenset({2})), [2]),
    (Path(frozenset({9}), near=frozenset({6, 9}), pools=frozenset({3})), [1, 3])])
def test_the_last_minute_of_pools_that_the_path_may_slow(path: Path, pools: List[int]) -> None:
    rows = tuple(ClientOps(pool, osd, Ops(5, 5), Ops()) for pool, osd in ((1, 6), (2, 7), (3, 7)))
    clients = Clients(1.0, SECONDS, rows, {pool: PoolClients(
        'p%d' % pool, 32, 9.0, 1.5, 3.0, read_spread=0.5, named=pool == 2,
        read_minute=Minute(60.0, 1.25), write_minute=Minute(80.0, 2.5)) for pool in (1, 2, 3)})
    assert minute_latencies(clients, path) == [row for pool in pools for row in (
        PoolLatency('p%d' % pool, 'reads', 1.25, 1.5, 60.0, 0.5, named=pool == 2),
        PoolLatency('p%d' % pool, 'writes', 2.5, 3.0, 80.0, OP_SPREAD, named=pool == 2))]


def test_a_minute_without_operations_or_limit_is_not_compared() -> None:
    minute = Minute(60.0, 1.0)
    clients = Clients(1.0, SECONDS, (), {1: PoolClients(
        'p', 32, 9.0, 1.5, None, read_minute=Minute(), write_minute=minute)})
    assert minute_latencies(clients, Path()) == []


def row_of(pool: str, ops: float, kind: str = 'reads', ms: float = 1.0,
           target_ms: float = 2.0) -> PoolLatency:
    return PoolLatency(pool, kind, ms, target_ms, ops, 0.5)


@pytest.mark.parametrize('rows, pools', [
    ([row_of('a', 50)], ['a']), ([row_of('a', 49.9)], []),
    ([row_of('a', 25), row_of('b', 25)], ['']), ([row_of('a', 25), row_of('b', 24.9)], []),
    ([row_of('a', 49), row_of('b', 1, 'writes')], []),
    ([row_of('a', 999), row_of('b', 1000)], ['a', 'b']),
    ([row_of('a', 999), row_of('b', 999)], ['a', 'b', '']),
    ([row_of('a', 60), row_of('b', 20), row_of('c', 60, 'writes'), row_of('d', 1, 'writes')],
     ['a', 'c', '', ''])])
def test_small_pools_are_judged_together(rows: List[PoolLatency], pools: List[str]) -> None:
    assert [row.pool for row in judged(rows)] == pools


def test_the_latency_of_small_pools_is_their_mean_by_operations() -> None:
    rows = [row_of('a', 10, ms=1.0, target_ms=2.0)._replace(spread=1.0),
            row_of('b', 40, ms=6.0, target_ms=7.0)._replace(spread=2.0)]
    together, = judged(rows)
    assert together[:5] == ('', 'reads', 5.0, 6.0, 50.0)
    assert together.spread == pytest.approx((0.2 * 1.0 + 0.8 * 4.0) ** 0.5)
    assert together.chance == pytest.approx(0.9693, abs=1e-4)
    assert (together.who, rows[0].who) == ('all small pools', 'pool a')


@pytest.mark.parametrize('rows, ratio', [
    ([], 0.0), ([row_of('a', 60, ms=3.0)], 1.5),
    # Beside the row of all small pools, a small one does not count.
    ([row_of('a', 999, ms=3.0), row_of('', 2000, ms=1.0)], 0.5),
    ([row_of('a', 1000, ms=3.0), row_of('', 2000, ms=1.0)], 1.5),
    ([row_of('a', 60, 'writes', ms=3.0), row_of('', 2000, ms=1.0)], 1.5),
    ([row_of('a', 60, ms=1.0), row_of('', 200, ms=3.0)], 1.5)])
def test_the_strain_is_the_highest_ratio_to_a_limit(rows: List[PoolLatency], ratio: float) -> None:
    assert strain(rows) == ratio


@pytest.mark.parametrize('slow, osds, explains', [(0, 1, False), (1, 99, True), (1, 100, False),
                                                  (2, 100, True), (2, 200, False)])
def test_more_than_one_slow_osd_in_a_hundred_explains_a_slow_pool(
        slow: int, osds: int, explains: bool) -> None:
    assert explains_pool(frozenset(range(slow)), osds) == explains
    states = {osd: SlowReads(9990.0, 9990.0) for osd in range(slow)}
    assert explains_alarm({**states, 9: SlowReads(0.0, 0.0)}, 10000.0, osds) == explains
