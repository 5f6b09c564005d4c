# SPDX-License-Identifier: LGPL-2.1-or-later
"""The exact rules of OSDs and hosts with slow reads; for what follows from them, see rebalance."""
from dataclasses import replace
from typing import AbstractSet, Any, Dict, FrozenSet, Iterable, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.types import LONGEST_OP_NS, ClientOps, Ops
from perfguard.observation import Clients, PoolClients
from perfguard.watch.slow_reads import (Places, SlowReads, judged_osds, places_of, slow_osds,
                                        slow_reads_after, stopped_osds)

from ..fakes.cluster import FakeCluster

NOW = 1000.0
#: Reads take 1 ms, and 1.5 ms are allowed.
POOL = PoolClients('rbd', 64, 800.0, 1.5, None, 1.0, read_spread=1.0)
NOBODY: FrozenSet[int] = frozenset()


def reading(ms: Dict[int, float], ops: int = 1000, osds: Iterable[int] = range(8),
            norms: Dict[int, float] = {}, **pool: Any) -> Clients:
    """`ms`: latency of OSDs whose reads do not take 1 ms."""
    rows = tuple(ClientOps(1, osd, Ops(round(ops * ms.get(osd, 1.0) * 1e6), ops), Ops())
                 for osd in osds)
    return Clients(5.0, 5.0, rows, {1: POOL._replace(**pool)},
                   norms={**dict.fromkeys(range(10), 1.0), **norms})


def with_row(clients: Clients, of_osd: int, **row: Any) -> Clients:
    """The reading with another row of this OSD."""
    return replace(clients, rows=tuple(
        before._replace(**row) if before.osd == of_osd else before for before in clients.rows))


def without(clients: Clients, osd: int) -> Clients:
    return replace(clients, rows=tuple(row for row in clients.rows if row.osd != osd))


def over(clients: Clients, unsteady: AbstractSet[int] = NOBODY, places: Places = {}
         ) -> Dict[int, str]:
    """OSD over its limit -> the place that is slow."""
    return {osd: state.place for osd, state in slow_reads_after(
        {}, clients, unsteady, NOBODY, NOW, places).items()}


@pytest.mark.parametrize('state, now, stops, is_slow, recent, has_been, would_continue', [
    (SlowReads(100.0, 0.0), 100.0, True, True, True, True, True),
    (SlowReads(100.0, 0.0), 129.9, True, True, True, True, True),
    (SlowReads(100.0, 0.0), 130.0, False, False, False, True, False),
    (SlowReads(100.0, 0.0), 249.9, False, False, False, True, False),
    (SlowReads(100.0, 0.0), 250.0, False, False, False, False, False),
    # Later readings did not contradict it.
    (SlowReads(100.0, 0.0, assumed=200.0), 229.9, True, True, True, True, True),
    (SlowReads(100.0, 0.0, assumed=200.0), 230.0, False, False, False, True, False),
    (SlowReads(100.0, 0.0, assumed=200.0), 349.9, False, False, False, True, False),
    (SlowReads(100.0, 0.0, assumed=200.0), 350.0, False, False, False, False, False),
    # One reading only.
    (SlowReads(100.0, 0.0, single=True), 100.0, False, True, True, False, True),
    (SlowReads(100.0, 0.0, single=True), 100.1, False, False, True, False, True),
    # Exempt.
    (SlowReads(100.0, 0.0, 120.0), 119.9, False, True, True, True, True),
    (SlowReads(100.0, 0.0, 120.0), 120.0, True, True, True, True, True),
    (SlowReads(100.0, 0.0, 500.0), 499.9, False, False, False, False, True),
    (SlowReads(100.0, 0.0, 500.0), 500.0, False, False, False, False, False)])
def test_what_a_state_means(state: SlowReads, now: float, stops: bool, is_slow: bool,
                            recent: bool, has_been: bool, would_continue: bool) -> None:
    assert (state.stops(now), state.is_slow(now), state.recent(now), state.has_been(now),
            state.would_continue(now)) == (stops, is_slow, recent, has_been, would_continue)
    assert stopped_osds({3: state}, now) == ({3} if stops else set())
    assert slow_osds({3: state}, now) == ({3} if is_slow else set())


#: Chance explains 3.717 standard deviations of the mean of the reads.
@pytest.mark.parametrize('clients, is_over', [
    (reading({3: 1.67}), False), (reading({3: 1.68}), True),
    (reading({3: 1.84}, read_spread=2.0), False), (reading({3: 1.86}, read_spread=2.0), True),
    # The spread is not measured yet.
    (reading({3: 1.74}, read_spread=None), False), (reading({3: 1.76}, read_spread=None), True),
    # From 50 reads on, it explains at most as much as the baseline.
    (reading({3: 3.2}, ops=50, read_spread=5.0), True),
    (reading({3: 2.9}, ops=50, read_spread=5.0), False),
    (reading({3: 3.2}, ops=49, read_spread=5.0), False),
    # At least five reads.
    (with_row(reading({}), 3, read=Ops(20_000_000, 4)), False),
    (with_row(reading({}), 3, read=Ops(25_000_000, 5)), True),
    (with_row(reading({}), 3, read=Ops(100_000_000, 4)), False)])
def test_how_slow_reads_must_be(clients: Clients, is_over: bool) -> None:
    assert over(clients) == ({3: ''} if is_over else {})


@pytest.mark.parametrize('norm, limit_ns', [
    (1.0, 1_500_000_000),
    # A fast OSD may exceed its baseline by as much as the pool, a slow one by more.
    (0.5, 1_000_000_000), (2.0, 3_000_000_000)])
def test_the_limit_is_not_exceeded_by_what_equals_it(norm: float, limit_ns: int) -> None:
    """Without chance."""
    clients = reading({}, norms={3: norm}, read_spread=1e-300)
    assert over(with_row(clients, 3, read=Ops(limit_ns, 1000))) == {}
    assert over(with_row(clients, 3, read=Ops(limit_ns + 1, 1000))) == {3: ''}


def test_an_osd_is_compared_with_the_others_as_well() -> None:
    doubled = dict.fromkeys(range(8), 2.0)
    assert over(reading({**doubled, 3: 3.0}, read_spread=1e-300)) == {}
    assert over(reading({**doubled, 3: 3.001}, read_spread=1e-300)) == {3: ''}
    # Not with a host that is as slow as itself.
    assert over(reading({osd: 2.0 for osd in range(4)}, osds=range(10)),
                places={'host a': {0, 1, 2, 3}}) == dict.fromkeys(range(4), 'host a')


@pytest.mark.parametrize('osds, ops, is_over', [
    # Three others, with fifty reads.
    (range(4), 1000, True), (range(1, 4), 1000, False), (range(6), 10, True),
    (range(5), 12, False), (range(5), 13, True)])
def test_with_how_many_others_an_osd_is_compared(osds: Iterable[int], ops: int,
                                                 is_over: bool) -> None:
    assert over(reading({3: 20.0}, ops, osds)) == ({3: ''} if is_over else {})


def test_others_that_wait_for_peering_pgs_count_if_there_are_too_few() -> None:
    slow = {**dict.fromkeys(range(4, 8), 20.0), 3: 20.0}
    assert over(reading(slow), {4, 5, 6, 7}) == {3: ''}
    # Of those with enough reads only.
    few = reading(slow, osds=(3, 4, 5, 6, 7))
    assert over(few, {4, 5, 6, 7}) == {}
    for osd in (4, 5):
        few = with_row(few, osd, read=Ops(4_000_000, 4))
    assert over(few, {6, 7}) == {}
    assert over(reading({3: 20.0}, osds=(3, 4, 5, 6)), {4, 5, 6}) == {3: ''}


def test_the_pools_of_an_osd_are_judged_together() -> None:
    """Each read by the baseline, the limit and the spread of its pool: 1.455 baselines."""
    slow = replace(reading({}), pools={1: POOL, 2: POOL._replace(
        read_target_ms=12.0, read_baseline_ms=10.0, read_spread=2.0)})
    for ms, is_over in ((15.2, False), (15.3, True)):
        clients = with_row(slow, 3, read=Ops(600_000_000, 600))
        clients = replace(clients, rows=(*clients.rows, ClientOps(
            2, 3, Ops(round(400 * ms * 1e6), 400), Ops())))
        assert over(clients) == ({3: ''} if is_over else {})


@pytest.mark.parametrize('row, pool', [
    ({'pool': 2}, {}), ({'osd': 77}, {}), ({'read': Ops(0, 0)}, {}),
    ({'read': Ops(LONGEST_OP_NS + 1, 1)}, {}), ({}, {'erasure': True}), ({}, {'named': True}),
    ({}, {'read_baseline_ms': None}), ({}, {'read_baseline_ms': 0.0}),
    ({}, {'read_target_ms': None})])
def test_of_which_osds_the_reads_are_judged(row: Dict[str, Any], pool: Dict[str, Any]) -> None:
    clients = reading({}, **pool)
    assert judged_osds(with_row(clients, 3, **row)) == (
        frozenset() if pool else frozenset(range(8)) - {3})
    assert judged_osds(with_row(reading({}), 3, read=Ops(LONGEST_OP_NS, 1))) == set(range(8))


SLOW, FAST = reading({3: 20.0}), reading({})
#: Too few reads of OSD 3 to judge them.
FEW = with_row(FAST, 3, read=Ops(80_000_000, 4))
SEEN = SlowReads(995.0, 900.0)
SINGLE = SlowReads(995.0, 900.0, single=True)


@pytest.mark.parametrize('before, clients, unsteady, in_flight, after', [
    # It begins, and is confirmed.
    (None, SLOW, (), (), SlowReads(NOW, NOW, single=True)),
    (SINGLE, SLOW, (), (), SlowReads(NOW, 900.0)),
    (SINGLE, SLOW, (), (3,), SlowReads(NOW, NOW)),
    (SEEN, SLOW, (), (4,), SlowReads(NOW, 900.0)),
    # What has not been slow for a while begins anew.
    (SlowReads(970.5, 900.0), SLOW, (), (), SlowReads(NOW, 900.0)),
    (SlowReads(970.0, 900.0), SLOW, (), (), SlowReads(NOW, NOW, single=True)),
    # Long after the last movement, it is exempt for an hour.
    (SlowReads(995.0, 820.0), SLOW, (), (), SlowReads(NOW, 820.0)),
    (SlowReads(995.0, 819.0), SLOW, (), (), SlowReads(NOW, 819.0, 4600.0)),
    (SlowReads(995.0, 819.0), SLOW, (), (3,), SlowReads(NOW, NOW)),
    (SlowReads(995.0, 819.0, NOW), SLOW, (), (), SlowReads(NOW, 819.0, 4600.0)),
    (SlowReads(995.0, 819.0, 1000.5), SLOW, (), (), SlowReads(NOW, 819.0, 1000.5)),
    (SlowReads(100.0, 90.0, 1000.5), SLOW, (), (), SlowReads(NOW, 90.0, 1000.5)),
    (SlowReads(100.0, 90.0, NOW), SLOW, (), (), SlowReads(NOW, NOW, single=True)),
    # A fast reading ends what is based on one.
    (SINGLE, FAST, (), (), None), (SEEN, FAST, (), (), SEEN),
    (SlowReads(850.5, 800.0), FAST, (), (), SlowReads(850.5, 800.0)),
    (SlowReads(850.0, 800.0), FAST, (), (), None),
    (SlowReads(850.0, 800.0, 1000.5), FAST, (), (), SlowReads(850.0, 800.0, 1000.5)),
    (SEEN, FAST, (), (3,), SlowReads(995.0, NOW)),
    # A reading that says nothing prolongs what is recent, for three minutes.
    (SEEN, FEW, (), (), SEEN._replace(assumed=NOW)), (SINGLE, FEW, (), (), SINGLE),
    (SlowReads(970.0, 900.0, single=True), FEW, (), (), None),
    (SlowReads(970.0, 900.0), FEW, (), (), SlowReads(970.0, 900.0)),
    (SlowReads(820.0, 800.0, assumed=990.0), FEW, (), (),
     SlowReads(820.0, 800.0, assumed=NOW)),
    (SlowReads(819.0, 800.0, assumed=990.0), FEW, (), (),
     SlowReads(819.0, 800.0, assumed=990.0)),
    (SEEN, without(FAST, 3), (), (), SEEN), (SINGLE, without(FAST, 3), (), (), SINGLE),
    # Operations that wait for a peering PG are slower, not faster.
    (SEEN, SLOW, (3,), (), SEEN._replace(assumed=NOW)), (SEEN, FAST, (3,), (), SEEN),
    (SEEN, reading({3: 1.5}), (3,), (), SEEN),
    (SEEN, reading({3: 1.51}), (3,), (), SEEN._replace(assumed=NOW)),
    (SEEN, with_row(FAST, 3, read=Ops(4_000_000, 4)), (3,), (), SEEN._replace(assumed=NOW)),
    (SINGLE, FAST, (3,), (), SINGLE), (SINGLE, SLOW, (3,), (), SINGLE)])
def test_the_state_after_a_reading(
        before: Any, clients: Clients, unsteady: Tuple[int, ...], in_flight: Tuple[int, ...],
        after: Any) -> None:
    states = slow_reads_after({} if before is None else {3: before}, clients,
                              frozenset(unsteady), frozenset(in_flight), NOW)
    assert states == ({} if after is None else {3: after})


#: OSD 9 has no reads.
HOST: Places = {'host a': frozenset({0, 1, 2, 9}), 'host b': frozenset({6, 7})}
OF_HOST = SlowReads(995.0, 900.0, place='host a')


@pytest.mark.parametrize('before, clients, places, after', [
    (OF_HOST, FAST, HOST, OF_HOST), (OF_HOST._replace(single=True), FAST, HOST, None),
    # It is not judged by this reading.
    (OF_HOST._replace(single=True), FAST, {}, OF_HOST._replace(single=True)),
    (SINGLE, FAST, HOST, SINGLE)])
def test_a_place_is_judged_although_an_osd_of_it_has_no_reads(
        before: SlowReads, clients: Clients, places: Places, after: Any) -> None:
    assert slow_reads_after({9: before}, clients, NOBODY, NOBODY, NOW, places) == (
        {} if after is None else {9: after})


def test_a_fast_host_contradicts_what_few_reads_of_its_osd_do_not() -> None:
    few = with_row(FAST, 2, read=Ops(4_000_000, 4))
    assert slow_reads_after({2: OF_HOST}, few, NOBODY, NOBODY, NOW, HOST) == {2: OF_HOST}
    assert slow_reads_after({2: OF_HOST}, few, NOBODY, NOBODY, NOW) == {
        2: OF_HOST._replace(assumed=NOW)}


@pytest.mark.parametrize('slow, ops, unsteady, spread, is_slow', [
    # Three OSDs are a sample of a host, two are none.
    ((0, 1, 2), 30, (), 1.4, True), ((0, 1, 2), 30, (2,), 1.4, False),
    ((6, 7), 30, (), 1.4, False), ((0, 1), 30, (), 1.4, True), ((0,), 30, (), 1.4, False),
    ((0, 1, 2), 4, (), 1.4, False)])
def test_the_reads_of_a_host_are_judged_together(
        slow: Tuple[int, ...], ops: int, unsteady: Tuple[int, ...], spread: float,
        is_slow: bool) -> None:
    clients = reading(dict.fromkeys(slow, 2.6), ops, read_spread=spread)
    assert over(clients, frozenset(unsteady), HOST) == (
        dict.fromkeys(HOST['host a'], 'host a') if is_slow else {})


@pytest.mark.parametrize('slow, is_slow', [((0,), False), ((0, 1), True)])
def test_one_busy_slow_osd_does_not_make_its_host_slow(slow: Tuple[int, ...], is_slow: bool
                                                       ) -> None:
    clients = reading({})
    for osd in slow:
        clients = with_row(clients, osd, read=Ops(4000 * 4_000_000, 4000))
    places: Places = {'host a': frozenset(range(4))}
    assert over(clients, places=places) == (
        dict.fromkeys(range(4), 'host a') if is_slow else {0: ''})


def test_of_many_reads_of_a_host_chance_explains_little() -> None:
    """1.25 times as much as of the mean of an OSD with all of them: 1.720 ms."""
    places: Places = {'host a': frozenset(range(4))}
    for ms, slow in ((1.71, {}), (1.73, dict.fromkeys(range(4), 'host a'))):
        clients = reading(dict.fromkeys(range(4), ms), read_spread=2.0)
        assert over(clients, places=places) == slow


@pytest.mark.parametrize('domain, kinds', [
    ('rack', {'host', 'rack'}), ('host', {'host'}), ('osd', {'host'}), ('', {'host'})])
def test_which_places_are_judged(monkeypatch: pytest.MonkeyPatch, domain: str,
                                 kinds: AbstractSet[str]) -> None:
    cluster = FakeCluster(hosts=4, racks=2)
    crush = cluster.crush(cluster.crush_version_)
    monkeypatch.setattr(CrushRules, 'failure_domain', lambda _, rule: domain)
    places = places_of(crush, [0])
    assert {place.split()[0] for place in places} == kinds
    assert len(places) == (6 if domain == 'rack' else 4)
