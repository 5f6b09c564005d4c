# SPDX-License-Identifier: LGPL-2.1-or-later
"""Each step that evens several pools out, on a few OSDs."""
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.types import NO_OSD, Osd, OsdSet, Pool, Space
from perfguard.upmap import evening
from perfguard.upmap.balance import PlacedPg
from perfguard.upmap.evening import (
    EvenGround, EvenPool, _balanced_alone, _deviation, _differs, _Evening, even_out)

Rows = Sequence[OsdSet]


def rules(*roots: Sequence[int]) -> CrushRules:
    """For each root a rule that chooses OSDs, of weight 1 each."""
    return CrushRules.from_dump({
        'buckets': [{'id': -1 - root, 'name': 'root%d' % root, 'type_id': 10, 'items': [
            {'id': osd, 'weight': 65536} for osd in osds]} for root, osds in enumerate(roots)],
        'types': [{'type_id': 0, 'name': 'osd'}, {'type_id': 10, 'name': 'root'}],
        'devices': [{'id': osd, 'name': 'osd.%d' % osd, 'class': 'class%d' % root}
                    for root, osds in enumerate(roots) for osd in osds],
        'rules': [{'rule_id': root, 'rule_name': 'r%d' % root, 'type': 1, 'steps': [
            {'op': 'take', 'item': -1 - root}, {'op': 'choose_firstn', 'num': 0, 'type': 'osd'},
            {'op': 'emit'}]} for root in range(len(roots))]})


def ground(osds: int = 2, by_bytes: bool = False, used: Sequence[int] = (), total: int = 100,
           **fields: Any) -> EvenGround:
    space = {osd: Space(total, used[osd] if used else 0) for osd in range(osds)}
    rows = {osd: Osd(osd, True, 1.0) for osd in space}
    on = EvenGround(rules(range(osds)), rows, space, full=0.9,
                    deviation=9.0 if by_bytes else 1.0, by_bytes=by_bytes)
    return on._replace(**fields)


def a_pool(number: int, here: Rows, sizes: Sequence[int] = (), raw: Optional[Rows] = None,
           erasure: bool = False) -> EvenPool:
    size, count = len(here[0]), len(here)
    pool = Pool(number, 'p%d' % number, erasure, size, 1, 0, count, count, count)
    pgids = ['%d.%x' % (number, seed) for seed in range(count)]
    return EvenPool(pool, [PlacedPg(*row) for row in zip(pgids, here, raw or here)],
                    dict(zip(pgids, sizes)))


def test_the_sums_of_a_pool() -> None:
    assert (a_pool(1, [(0, 1), (1, 2), (2, 0)], [5, 4, 2]).shards,
            a_pool(1, [(0, 1), (1, 2), (2, 0)], [5, 4, 2]).mean_bytes) == (6, 3)
    assert a_pool(1, [(0,)]).mean_bytes == 0


TWO_POOLS = [a_pool(1, [(0,)], [7]), a_pool(2, [(0,)], [5])]


def test_pools_that_are_balanced_alone() -> None:
    """Of two PGs that serve as well, that of the first pool moves."""
    found = even_out(TWO_POOLS, ground(), 9)
    assert found.finals == {'1.0': (1,)} and (found.moved, found.moved_without_limit) == (1, 1)
    assert found.deviations == {1: (0.5, 0.5), 2: (0.5, 0.5)}
    assert found.loads == {0: (2.0, 1.0), 1: (0.0, 1.0)} and found.gained == {0: -7, 1: 7}
    stays = even_out(TWO_POOLS, ground(), 0)
    assert stays.finals == {} and (stays.moved, stays.moved_without_limit) == (0, 1)
    assert stays.loads == {0: (2.0, 2.0), 1: (0.0, 0.0)} and stays.gained == {}


def test_a_pool_that_is_not_balanced_alone() -> None:
    found = even_out([a_pool(1, [(0,)] * 4, [7, 7, 7, 7])], ground(), 9)
    assert found.moved == found.moved_without_limit == 2 and found.deviations == {1: (2.0, 0.0)}
    assert found.gained == {0: -14, 1: 14} and found.loads == {0: (2.0, 1.0), 1: (0.0, 1.0)}


@pytest.mark.parametrize('budget, moved', [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (9, 4)])
def test_no_more_shards_move_than_the_budget_allows(budget: int, moved: int) -> None:
    pools = [a_pool(1, [(0,)] * 4), a_pool(2, [(0,)] * 4)]
    found = even_out(pools, ground(), budget)
    assert (found.moved, found.moved_without_limit) == (moved, 4) and len(found.finals) == moved


def test_each_pool_has_its_share_of_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    budgets: List[Any] = []
    real = evening.balanced_shards

    def noted(*args: Any, **rest: Any) -> Any:
        budgets.append(args[4])
        return real(*args, **rest)

    monkeypatch.setattr(evening, 'balanced_shards', noted)
    even_out([a_pool(1, [(0,)] * 8), a_pool(2, [(0,)] * 4)], ground(), 4)
    # They would move 4 and 2.
    assert budgets == [None, None, 2, 1]
    budgets.clear()
    even_out([a_pool(1, [(0,)] * 8), a_pool(2, [(0,)] * 4)], ground(), 6)
    assert budgets == [None, None]


@pytest.mark.parametrize('used, moves', [(90, True), (91, False)])
def test_pgs_of_unknown_size_count_as_empty(used: int, moves: bool) -> None:
    pools = [a_pool(1, [(0,)]), a_pool(2, [(0,)])]
    found = even_out(pools, ground(used=(0, used)), 9)
    assert found.gained == ({0: 0, 1: 0} if moves else {}) and found.moved == moves
    assert even_out([a_pool(1, [(0,)] * 4)], ground(), 9).gained == {0: 0, 1: 0}


def test_no_shard_moves_that_makes_nothing_more_even() -> None:
    pools = [a_pool(1, [(0,)]), a_pool(2, [(0,)]), a_pool(3, [(1,)])]
    assert even_out(pools, ground(), 9).finals == {}
    empty = a_pool(1, [(0,)], [0])
    assert even_out([empty], ground(by_bytes=True, used=(60, 20)), 9).finals == {}


# ---- by bytes

SIZES = [10, 30, 20]


@pytest.mark.parametrize('used, leaving, final', [
    # The one that leaves both as full as each other.
    ((60, 20), {}, {'1.2': (1,)}), ((60, 20), {0: 40}, {}), ((60, 60), {1: 40}, {'1.2': (1,)}),
    ((40, 20), {}, {'1.0': (1,)}), ((80, 20), {}, {'1.1': (1,)}),
    # What is full to 90 % takes nothing.
    ((100, 81), {}, {}), ((99, 70), {}, {'1.0': (1,)}),
    # More leaves than is used.
    ((60, 10), {1: 30}, {'1.1': (1,)})])
def test_the_shard_that_evens_the_fill_most_moves(
        used: Sequence[int], leaving: Mapping[int, int], final: Mapping[str, OsdSet]) -> None:
    pools = [a_pool(1, [(0,)] * 3, SIZES)]
    found = even_out(pools, ground(by_bytes=True, used=used, leaving=leaving), 9)
    assert found.finals == final
    before = [max(0, used[osd] - leaving.get(osd, 0)) / 100 for osd in (0, 1)]
    assert [found.loads[osd][0] for osd in (0, 1)] == before
    size = sum(SIZES[int(pgid[2:])] for pgid in final)
    assert [found.loads[osd][1] for osd in (0, 1)] == pytest.approx(
        [before[0] - size / 100, before[1] + size / 100])


@pytest.mark.parametrize('by_bytes', [False, True])
def test_osds_without_capacity_do_not_count(by_bytes: bool) -> None:
    on = ground(6, by_bytes, used=(60, 20, 0, 0, 0, 0))
    space = {**on.space, 2: Space(0, 0), 5: Space(1, 0)}
    del space[3]
    found = even_out([a_pool(1, [(0,)] * 3, SIZES)], on._replace(space=space, osds={
        **on.osds, 1: Osd(1, True, 0.5), 4: Osd(4, True, 0.0)}), 0)
    if by_bytes:
        # Relative to the bytes that its reweight leaves.
        assert found.loads == {0: (0.6, 0.6), 1: (0.4, 0.4), 5: (0.0, 0.0)}
    else:
        # It has all of the shares of the others, of which one has half of a share.
        assert {osd: load for osd, (_, load) in found.loads.items()} == pytest.approx(
            {0: 4.5, 1: 0.0, 2: 0.0, 3: 0.0, 5: 0.0})


def test_pools_on_other_osds_do_not_count() -> None:
    other = a_pool(2, [(2,), (3,)])
    other = other._replace(pool=replace(other.pool, crush_rule=1))
    on = ground(4)._replace(crush=rules((0, 1), (2, 3)))
    found = even_out([a_pool(1, [(0,)]), other], on, 9)
    assert found.loads == {0: (2.0, 2.0), 1: (0.0, 0.0), 2: (1.0, 1.0), 3: (1.0, 1.0)}


@pytest.mark.parametrize('name, by_bytes', [('PGS_TOLERANCE', False), ('FILL_TOLERANCE', True)])
@pytest.mark.parametrize('tolerance, moves', [(0.5, False), (0.49, True)])
def test_small_differences_stay(name: str, by_bytes: bool, tolerance: float, moves: bool,
                                monkeypatch: pytest.MonkeyPatch) -> None:
    """OSDs with 5 and 3 shards of 1 in 4, or of their share of 4."""
    other = 'PGS_TOLERANCE' if by_bytes else 'FILL_TOLERANCE'
    monkeypatch.setattr(evening, name, tolerance)
    monkeypatch.setattr(evening, other, 9.0 if moves else 0.0)
    pools = [a_pool(number, [(0,)], [25]) for number in range(1, 6)]
    pools += [a_pool(number, [(1,)], [25]) for number in range(6, 9)]
    on = ground(by_bytes=by_bytes, used=(100, 50), total=100, full=9.0)
    assert len(even_out(pools, on, 9).finals) == moves


@pytest.mark.parametrize('most, moved', [(0, 0), (1, 1), (9999, 2)])
def test_few_shards_are_examined(most: int, moved: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evening, 'MOST_CHECKS', most)
    pools = [a_pool(number, [(0,)]) for number in range(1, 5)]
    assert even_out(pools, ground(), 9).moved == moved


# ---- single steps

def unmoved(pools: Sequence[EvenPool], on: EvenGround) -> _Evening:
    """With these pools where they are, and no budget for what follows."""
    state = _Evening(pools, on._replace(deviation=9.0), [0] * len(pools), budget=0)
    state._budget, state._useless, state._checks_left = None, {}, evening.MOST_CHECKS
    return state


@pytest.mark.parametrize('gives', [False, True])
def test_osds_that_share_no_pool_exchange_nothing(gives: bool) -> None:
    for used_by, moves in (({0: {0}, 1: {1}}, False), ({0: {0}, 1: {0, 1}}, True)):
        state = unmoved(TWO_POOLS, ground())
        state._used_by = used_by
        assert state._move_one(0 if gives else 1, gives) is moves
        assert state.moved == moves


@pytest.mark.parametrize('most, moves', [(1, False), (2, True)])
def test_few_partners_are_examined(most: int, moves: bool,
                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """OSD 1 is nearfull and has fewest PGs, so that OSD 0 has to find OSD 2."""
    monkeypatch.setattr(evening, 'MOST_PARTNERS', most)
    on = ground(3)
    on = on._replace(osds={**on.osds, 1: Osd(1, True, 1.0, fullness='nearfull')})
    pools = [a_pool(number, [(0,)]) for number in range(1, 5)]
    pools += [a_pool(number, [(2,)]) for number in range(5, 7)]
    state = unmoved(pools, on)
    assert state._move_one(0, True) is moves and state.moved == moves
    # Not to one that has as many, or more.
    assert state._move_one(1, True) is False and state._move_one(0, False) is False


@pytest.mark.parametrize('total, used, gained, size, room', [
    (100, 80, 0, 10, True), (100, 80, 0, 11, False), (100, 80, 1, 10, False),
    (100, 80, -5, 15, True), (0, 80, 0, 10, True), (1, 0, 0, 1, False)])
def test_the_room_of_an_osd(total: int, used: int, gained: int, size: int, room: bool) -> None:
    on = ground()
    state = unmoved(TWO_POOLS, on._replace(space={1: Space(total, used)}))
    state._gained = {1: gained} if gained else {}
    assert state._has_room(1, size) is room and state._has_room(0, size) is True
    for fullness in ('nearfull', 'backfillfull', 'full'):
        state._on = on._replace(space={}, osds={1: Osd(1, True, 1.0, fullness=fullness)})
        assert state._has_room(1, 0) is False


PLACED = a_pool(1, [(0, 1)], [7], raw=[(0, 2)])


@pytest.mark.parametrize('erasure, members, place, taker, cost', [
    # (copied, upmaps): away from its data, back to it, and from one place to another.
    (False, (0, 1), 1, 3, (1, 0)), (False, (0, 1), 1, 2, (1, -1)), (False, (0, 2), 1, 1, (-1, 1)),
    (False, (0, 2), 1, 3, (0, 1)), (False, (2, 1), 1, 0, (1, -1)), (True, (2, 1), 1, 0, (1, 0)),
    (True, (0, 1), 1, 2, (1, -1)), (False, (3, 2), 0, 0, (-1, -1))])
def test_what_a_move_costs(erasure: bool, members: OsdSet, place: int, taker: int,
                           cost: Tuple[int, int]) -> None:
    pool = PLACED._replace(pool=replace(PLACED.pool, erasure=erasure))
    state = unmoved([pool], ground(4))
    level = state._levels[0]
    level.here[0] = list(members)
    assert state._cost(level, 0, place, taker) == cost
    state._budget = 5
    state.moved = 5 - cost[0]
    assert state._cost(level, 0, place, taker) == cost
    state.moved += 1
    assert state._cost(level, 0, place, taker) is None


def test_of_moves_that_even_as_much_the_cheapest_is_made() -> None:
    """OSD 0 has five shards more than OSD 3: of a PG whose data is elsewhere, one that CRUSH places
    on 3, one that is not primary, and two others."""
    here = [(0, 1), (0, 1), (1, 0), (0, 1), (0, 1)]
    raw = [(0, 1), (3, 1), (1, 0), (0, 1), (0, 1)]
    state = unmoved([a_pool(1, here, raw=raw)], ground(4))
    level = state._levels[0]
    level.origin = [*level.origin[:4], (2, 1)]
    expected = [(0, 4, 0), (0, 1, 0), (0, 2, 1), (0, 0, 0), (0, 3, 0)]
    found = []
    for _ in expected:
        best = state._best_move(0, 3)
        assert best is not None
        found.append(best)
        state._shards_on[0][0].discard(best[1:])
    assert found == expected and state._best_move(0, 3) is None


def test_what_was_of_no_use_is_not_examined_again_until_one_of_both_changes() -> None:
    state = unmoved([a_pool(1, [(0, 1), (0, 1), (0, 2)])], ground(3))
    before, state._budget = state._checks_left, 0
    assert state._best_move(0, 2) is None
    examined = before - state._checks_left
    assert examined == 3 and state._best_move(0, 2) is None
    assert before - state._checks_left == examined
    state._move_counts[2] += 1
    assert state._best_move(0, 2) is None and before - state._checks_left == 2 * examined


def test_a_pool_stays_within_its_deviation() -> None:
    state = unmoved([a_pool(1, [(0,), (0,), (0,), (1,)])], ground())
    level = state._levels[0]
    for low, high, possible in ((2, 2, True), (3, 2, False), (2, 1, False)):
        level.wide = replace(level.wide, low={0: low, 1: 0}, high={0: 4, 1: high})
        state._useless = {}
        assert (state._best_move(0, 1) is not None) is possible
    level.wide = replace(level.wide, low={0: 2, 1: 0}, high={0: 4, 1: 2})
    state._useless, level.weights = {}, {0: 1.0, 1: 0.0}
    assert state._best_move(0, 1) is None


def test_a_move_keeps_all_that_depends_on_it_up_to_date() -> None:
    state = unmoved([a_pool(1, [(0,), (0,), (0,), (1,)], [5, 6, 7, 8])], ground())
    state._move(0, 1, 0, 0, 1)
    assert state.moved == 1 and state._gained == {0: -6, 1: 6} and state._load == {0: 2.0, 1: 2.0}
    assert state._shards_on == {0: [{(0, 0), (2, 0)}], 1: [{(1, 0), (3, 0)}]}
    assert state._order == [(1.0, 0), (1.0, 1)] and state._move_counts == {0: 1, 1: 1}
    state._move(0, 1, 0, 1, 0)
    assert state.moved == 0 and state._order == [(0.5, 1), (1.5, 0)]


@pytest.mark.parametrize('by_place, members, raw, differs', [
    (True, (1, 2), (1, 2), False), (True, (1, 2), (2, 1), True), (False, (1, 2), (2, 1), False),
    (False, (1, 2), (1, 3), True)])
def test_whether_a_pg_needs_an_upmap(by_place: bool, members: OsdSet, raw: OsdSet,
                                     differs: bool) -> None:
    level = unmoved(TWO_POOLS, ground())._levels[0]
    level.by_place = by_place
    assert _differs(level, members, raw) is differs


def test_the_deviation_leaves_out_osds_that_are_to_be_empty() -> None:
    level = unmoved(TWO_POOLS, ground(3))._levels[0]
    level.targets = replace(level.targets, ideal={0: 1.5, 1: 2.0, 2: 0.0})
    assert _deviation(level, {0: 2, 1: 1, 2: 9}) == 1.0
    assert _deviation(level, {0: 0, 1: 1, 2: 9}) == 1.5
    level.targets = replace(level.targets, ideal={})
    assert _deviation(level, {}) == 0.0


# ---- each pool alone

def test_what_earlier_pools_leave_to_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms: List[Any] = []
    real = evening.balanced_shards

    def noted(*args: Any, **rest: Any) -> Any:
        rooms.append((args[6], args[5], rest))
        return real(*args, **rest)

    monkeypatch.setattr(evening, 'balanced_shards', noted)
    on = ground(3, used=(10, 20, 30))._replace(deviation=9.0)
    on = on._replace(osds={**on.osds, 2: Osd(2, True, 1.0, fullness='full')})
    pools = [a_pool(1, [(0,)] * 6, [10] * 6), a_pool(2, [(1,)], [10]),
             a_pool(3, [(1, NO_OSD)], [10])]
    levels, ideal = _balanced_alone(pools, on, None)
    assert [level.pool.id for level in levels] == [1, 2, 3]
    # As much of 90 % is free, in shards; a full OSD gets none.
    assert [dict(room.more_shards) for room, _, _ in rooms] == [{0: 8, 1: 7, 2: 0}] * 3
    assert [deviation for _, deviation, _ in rooms] == [9.0] * 3
    assert [rest for _, _, rest in rooms] == [{'near': 9.0}] * 3
    # Distances from the share, in an eighth and in a twelfth of a PG, within 0 and 0.99.
    assert rooms[0][0].fill == {}
    assert rooms[1][0].fill == {0: 0.99, 1: 0.25, 2: 0.25}
    assert rooms[2][0].fill == pytest.approx(
        {0: 0.5 + (6 - 7 / 3) / 12, 1: 0.5 + (1 - 7 / 3) / 12, 2: 0.5 - 7 / 36})
    assert ideal == pytest.approx(dict.fromkeys(range(3), 7 / 3 + 2 / 3), abs=0.4)


def test_shards_that_move_take_room_from_later_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms: List[Dict[int, int]] = []
    real = evening.balanced_shards

    def noted(*args: Any, **rest: Any) -> Any:
        rooms.append(dict(args[6].more_shards))
        return real(*args, **rest)

    monkeypatch.setattr(evening, 'balanced_shards', noted)
    _balanced_alone([a_pool(1, [(0,)] * 4, [10] * 4), a_pool(2, [(0,)], [10])],
                    ground(used=(50, 20)), None)
    assert rooms == [{0: 4, 1: 7}, {0: 6, 1: 5}]


def test_osds_that_have_far_fewer_pgs_than_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is filled in another order than by what OSDs lack."""
    fills: List[Dict[int, float]] = []
    real = evening.balanced_shards

    def noted(*args: Any, **rest: Any) -> Any:
        fills.append(dict(args[6].fill))
        return real(*args, **rest)

    monkeypatch.setattr(evening, 'balanced_shards', noted)
    _balanced_alone([a_pool(1, [(0,)] * 30), a_pool(2, [(0,)])],
                    ground(3)._replace(deviation=20.0), None)
    assert fills == [{}, {0: 0.99, 1: 0.0, 2: 0.0}]


def test_an_osd_outside_the_rule_has_no_share() -> None:
    _, ideal = _balanced_alone([EvenPool(
        a_pool(1, [(2,)]).pool, [PlacedPg('1.0', (2,), (0,), may_move=False)], {})],
        ground(4)._replace(crush=rules((0, 1), (2, 3))), None)
    assert ideal == {0: 0.0, 1: 0.0, 2: 0.0}
