# SPDX-License-Identifier: LGPL-2.1-or-later
"""The next batch: under every cap, least loaded paths first."""
from collections import Counter
from dataclasses import replace
from typing import Counter as CounterType, Dict, List, Optional, Tuple

import pytest
from hypothesis import given, settings, strategies as st

from perfguard.cluster.types import UpmapEntry
from perfguard.rebalance import moves as module
from perfguard.rebalance.moves import Caps, choose, Load, load_of, Move, window
from perfguard.rebalance.types import Flight

OSDS = st.integers(0, 7)
WIDE = Caps(pgs=100, bytes=1 << 50, source=100, primary=100, target=100, host=100)


def host_of(osd: int) -> Optional[str]:
    """Two OSDs a host; osd.7 is in none."""
    return None if osd == 7 else 'h%d' % (osd // 2)


@st.composite
def moves(draw: st.DrawFn) -> List[Move]:
    found = []
    for number in range(draw(st.integers(0, 25))):
        osds = draw(st.lists(OSDS, min_size=2, max_size=4, unique=True))
        half = len(osds) // 2
        found.append(Move('1.%x' % number, tuple(osds[:half]), tuple(osds[half:]), draw(OSDS),
                          draw(st.integers(0, 50)), draw(st.booleans())))
    return found


CAPS = st.builds(Caps, pgs=st.integers(1, 12), bytes=st.integers(1, 200),
                 source=st.integers(1, 4), primary=st.integers(1, 4), target=st.integers(1, 4),
                 host=st.integers(1, 6))


def flights_of(under_way: List[Move]) -> Dict[str, Flight]:
    return {'2.%x' % i: Flight(0.0, UpmapEntry(), sources=m.sources, targets=m.targets,
                               primary=m.primary, bytes=m.bytes)
            for i, m in enumerate(under_way)}


def tally(found: List[Move]) -> Tuple[CounterType, CounterType, CounterType, CounterType]:
    """Counted apart from Load: sources, targets, primaries, hosts."""
    sources = Counter(osd for m in found for osd in m.sources)
    targets = Counter(osd for m in found for osd in m.targets)
    primaries = Counter(m.primary for m in found)
    hosts = Counter(host for m in found
                    for host in {host_of(osd) for osd in m.sources + m.targets} - {None})
    return sources, targets, primaries, hosts


@settings(max_examples=300, deadline=None)
@given(moves(), moves(), CAPS)
def test_caps_are_never_exceeded_by_what_is_added(under_way: List[Move], candidates: List[Move],
                                                  caps: Caps) -> None:
    load = load_of(flights_of(under_way), host_of)
    chosen = choose(candidates, load, caps)
    together = under_way + chosen
    assert len(set(chosen)) == len(chosen) and set(chosen) <= set(candidates)
    if chosen:
        assert len(together) <= caps.pgs
        size = sum(m.bytes for m in together)
        assert size <= caps.bytes or len(together) == 1
    before, after = tally(under_way), tally(together)
    for was, now, cap in zip(before, after, (caps.source, caps.target, caps.primary, caps.host)):
        for key in now:
            assert now[key] <= max(cap, was[key])


@pytest.mark.parametrize('deleted, most, fitting', [
    (0, 2, 2), (1, 2, 1), (9, 2, 1), (1, 4, 3), (9, 4, 1), (9, 1, 1)])
def test_pgs_that_an_osd_deletes_count_like_those_that_leave_it(deleted: int, most: int,
                                                                fitting: int) -> None:
    candidates = [Move('1.%x' % i, (1,), (i + 2,), primary=i + 2, bytes=1) for i in range(8)]
    load = load_of({}, lambda osd: None)
    load.add_deletions({1: deleted}, most)
    caps = Caps(pgs=99, bytes=1 << 40, source=most, primary=9, target=9, host=99)
    assert len(choose(candidates, load, caps)) == fitting
    assert len(choose([move._replace(sources=(0,)) for move in candidates], load, caps)) == most


@settings(max_examples=200, deadline=None)
@given(moves(), moves(), CAPS)
def test_nothing_that_fits_is_left_out(under_way: List[Move], candidates: List[Move],
                                       caps: Caps) -> None:
    load = load_of(flights_of(under_way), host_of)
    chosen = choose(candidates, load, caps)
    left = [m for m in candidates if m not in chosen]
    assert not any(load.fits(m, caps) for m in left)


@given(moves(), CAPS)
def test_load_after_is_the_load_of_all(candidates: List[Move], caps: Caps) -> None:
    load = Load(host_of)
    chosen = choose(candidates, load, caps)
    sources, targets, primaries, hosts = tally(chosen)
    assert (load.source, load.target, load.primary, load.host) == (
        dict(sources), dict(targets), dict(primaries), dict(hosts))
    assert load.pgs == len(chosen) and load.bytes == sum(m.bytes for m in chosen)


def test_the_first_pg_may_have_any_size_and_only_the_first() -> None:
    big = [Move('1.%d' % i, (i,), (i + 2,), i, 1000) for i in range(2)]
    caps = Caps(pgs=5, bytes=10, source=5, primary=5, target=5, host=5)
    assert choose(big, Load(host_of), caps) == big[:1]


def test_least_loaded_path_first() -> None:
    busy = Move('1.0', (0,), (2,), 0, 1)
    idle = Move('1.1', (4,), (6,), 4, 1)
    load = load_of(flights_of([busy]), host_of)
    one = Caps(pgs=2, bytes=100, source=9, primary=9, target=9, host=9)
    assert choose([busy, idle], load, one) == [idle]


def test_of_equal_paths_those_that_keep_the_primary_come_first() -> None:
    moving = Move('1.0', (0,), (2,), 0, 1, moves_primary=True)
    staying = Move('1.1', (4,), (6,), 4, 1)
    assert choose([moving, staying], Load(host_of), WIDE) == [staying, moving]


def test_a_rack_has_a_cap_of_its_own() -> None:
    def rack_of(pgid: str, osd: int) -> Optional[str]:
        return 'rack r%d' % (osd // 4) if pgid.startswith('1.') else None

    many = [Move('%d.%d' % (pool, i), (i,), (i + 8,), i, 1) for pool in (1, 2) for i in range(4)]
    load = Load(host_of, rack_of)
    chosen = choose(many, load, replace(WIDE, domain=2))
    assert sorted(m.pgid for m in chosen) == ['1.0', '1.1', '2.0', '2.1', '2.2', '2.3']
    assert load.domain == {'rack r0': 2, 'rack r2': 2}


def test_a_shared_device_has_a_cap_of_its_own() -> None:
    """osd.0 to osd.2 have their DBs on one device, which also has the WAL of osd.8."""
    devices = {0: ['h0:nvme0n1'], 1: ['h0:nvme0n1'], 2: ['h0:nvme0n1', 'h0:nvme1n1'],
               8: ['h0:nvme0n1'], 9: ['h0:nvme1n1']}
    many = [Move('1.%d' % i, (i,), (i + 8,), i, 1) for i in range(4)]
    caps = replace(WIDE, device=2)
    load = Load(host_of, devices=devices)
    chosen = choose(many, load, caps)
    assert sorted(move.pgid for move in chosen) == ['1.0', '1.1', '1.3']
    assert load.device == {'h0:nvme0n1': 2, 'h0:nvme1n1': 1}
    assert [obstacle[1:] for obstacle in load.obstacles(many[2], caps)] == [
        ('max_backfills_device', 'device h0:nvme0n1', 2, 2)]


def test_those_that_help_to_rebuild_a_shard_count_as_sources() -> None:
    rebuilt = Move('2.0', (), (6,), 1, 1, readers=(1, 2, 3))
    other = Move('2.1', (2,), (7,), 2, 1)
    caps = replace(WIDE, source=1)
    assert choose([rebuilt, other], Load(host_of), caps) == [rebuilt]
    load = load_of({'2.0': Flight(0.0, UpmapEntry(), targets=(6,), readers=(1, 2, 3))}, host_of)
    assert load.source == {1: 1, 2: 1, 3: 1} and not load.fits(other, caps)


def test_nearly_full_sources_are_relieved_first() -> None:
    plain = Move('1.0', (0,), (2,), 0, 1)
    relief = Move('1.1', (4,), (6,), 4, 1, moves_primary=True, relieves=True)
    assert choose([plain, relief], Load(host_of), WIDE) == [relief, plain]


def test_no_pg_waits_for_ever() -> None:
    """A PG that needs three OSDs at once, among others that each need one of them."""
    greedy = Move('9.0', (0, 2, 4), (1, 3, 5), 0, 1)
    others = [Move('1.%d' % i, (2 * (i % 3),), (7,), 2 * (i % 3), 1) for i in range(300)]
    caps = replace(WIDE, pgs=3, source=1)
    flights: List[Move] = others[:3]
    waiting = [greedy, *others[3:]]
    for now in range(0, 4000, 50):
        flights = flights[1:]  # one arrives, never all at once
        load = load_of(flights_of(flights), host_of)
        chosen = choose(waiting, load, caps, float(now))
        waiting = [move for move in waiting if move not in chosen]
        flights = flights + chosen
        if greedy in chosen:
            break
    assert module.MOVE_PATIENCE_SECONDS < now < module.MOVE_PATIENCE_SECONDS + 300


def test_one_host_is_counted_once_a_pg() -> None:
    load = Load(host_of)
    load.add('1.0', Move('1.0', (0,), (1,), 0, 5))
    assert load.host == {'h0': 1}


@given(st.integers(0, 30), st.integers(0, 100))
def test_window_is_everything_once_when_it_fits(count: int, start: int) -> None:
    candidates = [Move('1.%x' % i, (), (), 0, 0) for i in range(count)]
    seen = window(candidates, start)
    assert sorted(m.pgid for m in seen) == sorted(m.pgid for m in candidates)
    if count:
        assert seen[0] is candidates[start % count]


def test_window_wraps_and_reaches_all() -> None:
    candidates = [Move('1.%x' % i, (), (), 0, 0) for i in range(module.MAX_SCANNED + 10)]
    last = window(candidates, module.MAX_SCANNED)
    assert len(last) == module.MAX_SCANNED
    assert last[0] is candidates[module.MAX_SCANNED] and last[10] is candidates[0]
    assert {m.pgid for m in window(candidates, 0) + last} == {m.pgid for m in candidates}


@pytest.mark.parametrize('room, chosen', [(1, []), (2, ['1.1'])])
@pytest.mark.parametrize('shared', ['host', 'device', 'domain'])
def test_no_pg_takes_the_last_place_that_one_which_has_waited_too_long_needs(
        room: int, chosen: List[str], shared: str) -> None:
    """Its target is busy; a source of each is on the same host or device, or in the same domain."""
    def place(osd: int) -> str:
        return 'shared' if osd in (0, 1) else 'of osd.%d' % osd

    busy, far = Move('2.0', (8,), (4,), 8, 1, False), 1e6
    waiting = Move('1.0', (0,), (4,), 5, 1, False)._replace(since=0.0)
    other = Move('1.1', (1,), (6,), 7, 1, False)._replace(since=far)
    load = load_of(flights_of([busy]), lambda osd: place(osd) if shared == 'host' else None,
                   lambda pgid, osd: place(osd) if shared == 'domain' else None,
                   {osd: [place(osd)] for osd in range(9) if shared == 'device'})
    caps = replace(Caps(pgs=9, bytes=99, source=9, primary=9, target=1, host=99), **{shared: room})
    found = choose([waiting, other], load, caps, far)
    assert [move.pgid for move in found] == chosen
