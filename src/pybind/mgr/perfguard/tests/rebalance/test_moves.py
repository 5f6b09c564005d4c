# SPDX-License-Identifier: LGPL-2.1-or-later
"""What releases move, and how long they take."""
import random
from collections import Counter
from dataclasses import replace
from typing import Any, Dict, List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.cluster.types import (NO_OSD, Osd, OsdMap, OsdSet, Pool, UpmapEntry, mask_of,
                                     stable_mod)
from perfguard.rebalance.moves import (ASSUMED_BACKFILL_BYTES_PER_SECOND, MAX_SCANNED,
                                       MOVE_PATIENCE_SECONDS, RELEASE_OVERHEAD_SECONDS, Caps, Load,
                                       Move, MoveIndex, MoveSums, choose, load_of, move_between,
                                       movement_of, release_move, serving_until_moved, window)
from perfguard.rebalance.types import Flight, PinRecord

REP = Pool(1, 'rep', False, 3, 2, 0, 8, 8, 8)
EC = Pool(2, 'ec', True, 3, 2, 0, 8, 8, 8, data_shards=2)
OSDMAP = OsdMap(1, frozenset(), {1: REP, 2: EC}, {}, {}, {}, {})
SIZE = 800
SETS = st.lists(st.integers(0, 9), min_size=3, max_size=3, unique=True).map(
    lambda osds: tuple(osds))


def test_replicated_move() -> None:
    move = move_between('1.0', REP, (1, 2, 3), (1, 5, 4), SIZE)
    assert move == Move('1.0', (2, 3), (5, 4), 1, 2 * 100, False, staying=(1,), here=(1, 2, 3),
                        leaders=(1, 1, 1))


@pytest.mark.parametrize('pg_num', [1, 2, 3, 8, 11, 96])
@pytest.mark.parametrize('pool', [REP, EC])
def test_some_pgs_hold_twice_as_much_where_pg_num_is_no_power_of_two(
        pool: Pool, pg_num: int) -> None:
    pool, each = replace(pool, pg_num=pg_num), 1 << 20
    hashes = 1 << (pg_num - 1).bit_length()
    found = Counter(stable_mod(number, pg_num, mask_of(pg_num)) for number in range(hashes))
    for seed in range(pg_num):
        move = move_between('%d.%x' % (pool.id, seed), pool, (1, 2, 3), (4, 2, 3), each * hashes)
        assert move.bytes == found[seed] * each // pool.data_shards


def test_order_is_no_move_in_a_replicated_pool_but_in_an_erasure_coded_one() -> None:
    assert move_between('1.0', REP, (1, 2, 3), (2, 1, 3), SIZE) == Move(
        '1.0', (), (), 2, 0, True, staying=(1, 2, 3), here=(1, 2, 3), leaders=(1, 2, 2))
    move = move_between('2.0', EC, (1, 2, 3), (2, 1, 3), SIZE)
    assert (move.sources, move.targets, move.bytes) == ((1, 2), (2, 1), 2 * 50)


def test_the_load_counts_each_pg_once_in_a_host_and_in_a_domain() -> None:
    flights = {'1.%d' % number: Flight(0.0, UpmapEntry(), sources=(number, 8), targets=(9,))
               for number in range(2)}
    load = load_of(flights, lambda osd: 'h%d' % (osd // 8), lambda pgid, osd: 'd%d' % (osd // 9))
    assert load.host == {'h0': 2, 'h1': 2} and load.domain == {'d0': 2, 'd1': 2}
    assert load.source == {0: 1, 1: 1, 8: 2} and load.target == {9: 2} and load.pgs == 2


def test_an_osd_that_has_the_data_leads_the_pg_while_it_is_copied() -> None:
    """If its first OSD leaves, the next one holds the reservation, and is to be spared."""
    move = move_between('1.0', REP, (1, 2, 3), (2, 3, 8), SIZE)
    assert (move.primary, move.leaders, move.moves_primary) == (2, (1, 2, 2), True)
    assert serving_until_moved(REP, (1, 2, 3), (2, 3, 8))[0] == 2
    second = move_between('1.1', REP, (4, 2, 5), (2, 5, 9), SIZE)
    load = load_of({}, lambda osd: None)
    caps = Caps(pgs=9, bytes=1 << 40, source=9, primary=1, target=9, host=9)
    assert choose([move, second], load, caps) == [move]
    # A new OSD leads the PG once it has the data.
    move = move_between('1.0', REP, (1, 2, 3), (8, 2, 3), SIZE)
    assert (move.primary, move.leaders, move.moves_primary) == (1, (1, 1, 8), True)
    # Shards keep their positions.
    move = move_between('2.0', EC, (1, 2, 3), (2, 8, 3), SIZE)
    assert (move.primary, move.moves_primary) == (1, True)


def test_holes_are_no_osds() -> None:
    move = move_between('2.0', EC, (NO_OSD, 2, 3), (1, 2, NO_OSD), SIZE)
    assert (move.sources, move.targets, move.primary) == ((3,), (1,), 2)


def test_a_shard_that_is_nowhere_is_read_from_all_others() -> None:
    move = move_between('2.0', EC, (NO_OSD, 2, 3), (1, 2, 4), SIZE)
    assert (move.sources, move.targets, move.readers) == ((3,), (1, 4), (2,))
    assert move_between('2.0', EC, (1, 2, 3), (4, 2, 3), SIZE).readers == ()


def test_unknown_target() -> None:
    assert move_between('1.0', REP, (1, 2, 3), None, SIZE) == Move(
        '1.0', (), (), 1, 0, targets_known=False, here=(1, 2, 3))


@given(SETS, SETS)
def test_move_leads_from_here_to_there(here: OsdSet, there: OsdSet) -> None:
    move = move_between('1.0', REP, here, there, SIZE)
    assert (set(here) - set(move.sources)) | set(move.targets) == set(there)
    assert move.moves_primary == (here[0] != there[0])
    shards = move_between('2.0', EC, here, there, SIZE)
    assert len(shards.targets) == len(shards.sources) == sum(
        1 for a, b in zip(here, there) if a != b)


def test_release_goes_to_what_was_before() -> None:
    pin = PinRecord(before=UpmapEntry(((3, 9),)), entry=UpmapEntry(((3, 4), (2, 5))))
    # raw (1, 2, 3), pinned to (1, 5, 4), released to (1, 2, 9)
    move = release_move('1.0', OSDMAP, (1, 5, 4), pin, frozenset(), SIZE)
    assert (move.sources, move.targets) == ((5, 4), (2, 9))


def test_release_of_a_vector_needs_the_recorded_raw_set() -> None:
    pin = PinRecord(UpmapEntry(), UpmapEntry(vector=(2, 1, 3)), raw=(1, 2, 3))
    assert release_move('2.0', OSDMAP, (2, 1, 3), pin, frozenset(), SIZE).targets == (1, 2)
    blind = PinRecord(UpmapEntry(), UpmapEntry(vector=(2, 1, 3)))
    assert release_move('2.0', OSDMAP, (2, 1, 3), blind, frozenset(), SIZE).targets == ()


@pytest.mark.parametrize('changes, leaders', [
    ({}, (1, 0, 0)),
    # It leads the PG before and after.
    ({'upmap_primaries': {'1.0': 1}}, (1, 1, 1)),
    # A new OSD will lead it, once it has the data.
    ({'upmap_primaries': {'1.0': 9}}, (1, 1, 9)),
    ({'upmap_primaries': {'1.0': 5}}, (1, 0, 0)),
    ({'osds': {0: Osd(0, True, 1.0, primary_affinity=0.0)}}, (1, 1, 1)),
    ({'osds': {0: Osd(0, True, 1.0, primary_affinity=0.5),
               1: Osd(1, True, 1.0, primary_affinity=0.5)}}, (1, 1, 1)),
    ({'osds': {osd: Osd(osd, True, 1.0, primary_affinity=0.0) for osd in (0, 1, 9)}}, (1, 0, 0))])
def test_who_leads_a_released_pg(changes: Any, leaders: OsdSet) -> None:
    """CRUSH places osd.0 first; osd.1 leads the PG, which a vector pins."""
    pin = PinRecord(UpmapEntry(), UpmapEntry(vector=(1, 0, 2)), raw=(0, 1, 9))
    move = release_move('1.0', replace(OSDMAP, **changes), (1, 0, 2), pin, frozenset(), SIZE)
    assert move.leaders == leaders and move.primary == leaders[1]
    assert move.moves_primary == (leaders[2] != 1)
    assert (move.sources, move.targets) == ((2,), (9,))


MOVES = [Move('1.0', (1,), (5,), 1, 100), Move('1.1', (2, 3), (5, 6), 9, 200, True)]


def test_plan_sums_up() -> None:
    found = movement_of(MOVES, 4, 2)
    assert (found.pgs, found.shards, found.bytes, found.primaries_moving) == (2, 3, 300, 1)
    assert {load.osd: (load.pgs_in, load.pgs_out, load.bytes_in, load.bytes_out)
            for load in found.osds} == {1: (0, 1, 0, 100), 2: (0, 1, 0, 100),
                                        3: (0, 1, 0, 100), 5: (2, 0, 200, 0),
                                        6: (1, 0, 100, 0)}
    assert [load.osd for load in found.osds] == [1, 2, 3, 5, 6]


def test_measured_speed_wins() -> None:
    sums = MoveSums()
    for move in MOVES:
        sums.count(move)
    found = sums.movement(4, 2, 10.0)
    assert (found.estimated_seconds, found.basis) == (30.0, 'measured')


@pytest.mark.parametrize('parallel, per_target, pgs, at_a_time', [(100, 2, 2, 2), (1, 2, 2, 1)])
def test_assumed_time_is_that_of_the_narrowest_place(parallel: int, per_target: int, pgs: int,
                                                     at_a_time: int) -> None:
    size = int(ASSUMED_BACKFILL_BYTES_PER_SECOND)
    found = movement_of([Move('1.%d' % i, (i,), (9,), i, size) for i in range(pgs)],
                        parallel, per_target)
    assert found.basis == 'assumed'
    assert found.estimated_seconds == pytest.approx(
        pgs * (RELEASE_OVERHEAD_SECONDS + 1.0) / at_a_time)


def test_nothing_to_move() -> None:
    found = movement_of([], 4, 2)
    assert (found.pgs, found.osds, found.estimated_seconds) == (0, (), 0.0)


@pytest.mark.parametrize('there, serving', [
    ((1, 4, 3), (1, 3, 2)), ((4, 5, 2), (1, 2, 3)), ((4, 5, 6), (1, 2, 3)),
    ((3, 4, 1), (3, 1, 2)), ((2, 1, 4), (2, 1, 3))])
def test_osds_order_an_acting_set_by_the_new_set_first(there: OsdSet, serving: OsdSet) -> None:
    assert serving_until_moved(REP, (1, 2, 3), there) == serving


def test_shards_keep_their_positions() -> None:
    assert serving_until_moved(EC, (1, 2, 3), (3, 4, 1)) == (1, 2, 3)


def test_what_an_index_adds_up_to_is_the_plan_of_its_moves() -> None:
    rng = random.Random(3)
    moves = {'1.%x' % i: Move('1.%x' % i, (rng.randrange(6),), (6 + rng.randrange(6),), 0,
                              rng.randrange(1000), moves_primary=i % 3 == 0) for i in range(60)}
    index = MoveIndex(moves)
    for pgid in list(moves)[:50:2]:
        index.drop(pgid)
        index.put('1.0', moves['1.0'])  # once, however often
    left = {pgid: moves[pgid] for pgid in index}
    assert len(left) == len(index) == 36 and list(index.values()) == list(left.values())
    assert index.sums(without=()).movement(8, 2) == movement_of(left.values(), 8, 2)
    few = list(left)[:30]
    rest = [move for pgid, move in left.items() if pgid not in few]
    assert index.sums(without=[*few, 'gone']).movement(8, 2) == movement_of(rest, 8, 2)
    assert index.targets() == {osd for move in left.values() for osd in move.targets}
    for pgid in few:
        index.drop(pgid)
    assert index.targets() == {osd for move in rest for osd in move.targets}
    index.clear()
    assert index.sums(without=()).movement(8, 2) == movement_of((), 8, 2)
    assert not index.targets()


def test_no_osd_leads_a_pg_without_osds() -> None:
    assert move_between('2.0', EC, (NO_OSD, NO_OSD, NO_OSD), (1, 2, 3), SIZE).primary == -1
    assert move_between('1.0', REP, (), None, SIZE).primary == -1


# ---- Caps, exactly reached and just missed

ROUTE = Move('1.9', (1,), (2,), 3, 100, readers=(4,))
CAPS = Caps(pgs=9, bytes=1000, source=3, primary=3, target=3, host=3, device=3, domain=3)


def loaded(number: int, **changes: Any) -> Load:
    """With so many other PGs on one role of the route of ROUTE; OSDs 0 to 4 are in the host h0."""
    load = Load(lambda osd: 'h0' if osd < 5 else 'h%d' % osd,
                lambda pgid, osd: 'rack r0' if osd < 5 else None, {2: ('nvme0',), 7: ('nvme0',)})
    for seed in range(number):
        load.add('1.%d' % seed, Move('', (10,), (11,), 12, 10)._replace(**changes))
    return load


@pytest.mark.parametrize('changes, caps, at, obstacles', [
    ({}, {}, 9, [('CAP_PGS', 'max_pgs_in_flight', '', 9, 9)]),
    ({'bytes': 300}, {'bytes': 1000}, 4, [('CAP_BYTES', 'max_bytes_in_flight', '', 1300, 1000)]),
    ({'sources': (1,)}, {'host': 9, 'domain': 9}, 3,
     [('CAP_BACKFILLS', 'max_backfills_source', 'osd.1', 3, 3)]),
    # An OSD that helps to rebuild a shard is read as well.
    ({'sources': (4,)}, {'host': 9, 'domain': 9}, 3,
     [('CAP_BACKFILLS', 'max_backfills_source', 'osd.4', 3, 3)]),
    ({'targets': (2,)}, {'host': 9, 'device': 9, 'domain': 9}, 3,
     [('CAP_BACKFILLS', 'max_backfills_target', 'osd.2', 3, 3)]),
    ({'targets': (2,)}, {'host': 9, 'device': 9, 'domain': 9, 'receives': {2: 2}}, 2,
     [('PG_LIMIT', 'mon_max_pg_per_osd', 'osd.2', 2, 2)]),
    ({'primary': 3}, {}, 3, [('CAP_BACKFILLS', 'max_backfills_primary', 'osd.3', 3, 3)]),
    ({'sources': (0,)}, {'domain': 9}, 3, [('CAP_BACKFILLS', 'max_backfills_host', 'host h0', 3,
                                            3)]),
    # It shares a device with osd.7.
    ({'targets': (7,)}, {}, 3, [('CAP_BACKFILLS', 'max_backfills_device', 'device nvme0', 3, 3)]),
    ({'sources': (0,)}, {'host': 9}, 3, [('CAP_BACKFILLS', 'max_backfills_domain', 'rack r0', 3,
                                          3)])])
def test_a_move_fits_until_a_cap_is_reached(changes: Any, caps: Any, at: int,
                                            obstacles: List[Tuple[Any, ...]]) -> None:
    bounds = replace(CAPS, **caps)
    before, reached = loaded(at - 1, **changes), loaded(at, **changes)
    assert before.fits(ROUTE, bounds) and before.obstacles(ROUTE, bounds) == []
    assert not reached.fits(ROUTE, bounds)
    assert [tuple(row) for row in reached.obstacles(ROUTE, bounds)] == obstacles


def test_the_first_pg_may_have_any_size() -> None:
    large = ROUTE._replace(bytes=5000)
    assert loaded(0).fits(large, CAPS) and not loaded(0).obstacles(large, CAPS)
    assert not loaded(1).fits(large, CAPS)
    assert loaded(1).fits(ROUTE._replace(bytes=990), CAPS)


@pytest.mark.parametrize('number, counted', [(1, 1), (2, 2), (9, 2)])
def test_an_osd_that_deletes_many_pgs_may_give_up_one_more(number: int, counted: int) -> None:
    load = loaded(1, sources=(1,))
    load.add_deletions({1: number, 5: number}, 3)
    assert load.source == {1: 1 + counted, 5: counted}


# ---- The order of releases

ROOM = replace(CAPS, pgs=1)


@pytest.mark.parametrize('first, second', [
    # The least loaded path, then the least loaded hosts.
    (Move('1.b', (5,), (6,), 7, 1), Move('1.a', (5,), (6,), 20, 1)),
    (Move('1.b', (5,), (6,), 7, 1), Move('1.a', (5,), (22,), 7, 1)),
    # A nearly full source, the primary that stays, and the id.
    (Move('1.b', (5,), (6,), 7, 1, relieves=True), Move('1.a', (5,), (6,), 7, 1)),
    (Move('1.b', (5,), (6,), 7, 1), Move('1.a', (5,), (6,), 7, 1, moves_primary=True)),
    (Move('1.a', (5,), (6,), 7, 1), Move('1.b', (5,), (6,), 7, 1))])
def test_which_move_is_released_first(first: Move, second: Move) -> None:
    """osd.20 leads a PG in flight, which leaves osd.21 in the same host as osd.22."""
    load = Load(lambda osd: 'h%d' % (osd // 2 if osd < 20 else 10))
    load.add('1.0', Move('1.0', (21,), (31,), 20, 1))
    assert choose([second, first], load, replace(ROOM, pgs=2)) == [first]


def test_the_osd_with_the_most_moves_comes_first() -> None:
    moves = [Move('1.a', (5,), (6,), 7, 1), Move('1.b', (8,), (9,), 7, 1),
             Move('1.c', (8,), (11,), 7, 1)]
    assert choose(moves, loaded(0), ROOM) == [moves[1]]


@pytest.mark.parametrize('waited, first', [(0.0, '1.a'), (-1.0, '1.b')])
def test_a_move_that_has_waited_for_too_long_comes_first(waited: float, first: str) -> None:
    """After more than MOVE_PATIENCE_SECONDS."""
    moves = [Move('1.a', (5,), (6,), 7, 1, since=50.0),
             Move('1.b', (8,), (9,), 7, 1, moves_primary=True, since=waited)]
    found = choose(moves, loaded(0), ROOM, now=MOVE_PATIENCE_SECONDS)
    assert [move.pgid for move in found] == [first]


@pytest.mark.parametrize('changes, receives, released', [
    # Its OSDs are kept free until it fits.
    ({}, {}, []),
    # Only PGs that leave its target make room there.
    ({}, {2: 0}, ['1.a']), ({'since': 100.0}, {}, ['1.a'])])
def test_the_route_of_a_move_that_never_fits_is_kept_free(
        changes: Any, receives: Dict[int, int], released: List[str]) -> None:
    load = loaded(3, primary=3)
    moves = [ROUTE._replace(**changes), Move('1.a', (1,), (8,), 9, 1, since=100.0)]
    found = choose(moves, load, replace(CAPS, receives=receives), now=601.0)
    assert [move.pgid for move in found] == released


def test_long_lists_are_considered_in_slices() -> None:
    moves = [Move('1.%x' % seed, (), (), 0, 0) for seed in range(MAX_SCANNED + 2)]
    assert window(moves, MAX_SCANNED) == [*moves[MAX_SCANNED:], *moves[:MAX_SCANNED - 2]]
    assert window(moves[:3], 2) == [moves[2], moves[0], moves[1]]
    assert window([], 5) == []
