# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which shards move between a few items, and in which order they are chosen."""
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

import pytest

from perfguard.upmap.levels import CHAIN_CHECKS, ShardLevel, _Takers
from perfguard.upmap.shares import Targets

Sets = List[List[int]]
Numbers = Mapping[int, int]


class Items(ShardLevel):
    """Items of which each is a failure domain, unless `domain` says otherwise. They may hold all
    that CRUSH places there, and their bounds allow exactly `share`, unless others are given."""

    def __init__(self, here: Sequence[Sequence[int]], share: Numbers, *,
                 low: Optional[Numbers] = None, ideal: Optional[Mapping[int, float]] = None,
                 raw: Optional[Sequence[Sequence[int]]] = None,
                 origin: Optional[Sequence[Sequence[int]]] = None,
                 takes: Sequence[Sequence[int]] = (), domain: Optional[Numbers] = None,
                 drained: Sequence[int] = (), limits: Optional[Numbers] = None,
                 by_place: bool = True, moves: int = 99) -> None:
        super().__init__()
        self.here = [list(row) for row in here]
        self.origin, self.raw = origin or here, list(raw or here)
        self.by_place, self.moves = by_place, moves
        self.movable_pgs = range(len(here))
        self.domain = domain or {item: item for item in share}
        self.fences = [dict.fromkeys(take, number) for number, take in enumerate(takes)] \
            or [dict.fromkeys(share, 0)] * len(here[0])
        self.weights = {item: 0.0 if item in drained else 1.0 for item in share}
        self.count = {item: sum(row.count(item) for row in self.here) for item in share}
        self.near = self.wide = Targets(
            ideal or {item: float(number) for item, number in share.items()},
            dict(low or share), dict(share))
        self.filled, self.limits = self.near.low, limits or share

    def move(self, number: int, place: int, item: int) -> None:
        self.count[self.here[number][place]] -= 1
        self.here[number][place] = item
        self.count[item] += 1
        self.moves -= 1

    def surplus(self, item: int) -> float:
        return self.count[item] - self.near.ideal[item]

    def affords(self, giver: int, moves: int = 1) -> bool:
        return moves <= self.moves

    def evened_out(self) -> Sets:
        self.even_out()
        return self.here


def test_items_that_two_takes_share_are_all_filled() -> None:
    """The first shard of each PG cannot leave the first take, the second cannot leave the second.
    Domain 1 has five items that both takes may use: the shards of the first take that are too
    many fill some of them, and those of the second the others."""
    shared = list(range(10, 18))
    takes = [[20, *range(50, 55), *shared], [30, *range(40, 45), *shared]]
    here = [[20, 40 + number] for number in range(5)] + [[50 + number, 30] for number in range(5)]
    items = sorted({item for take in takes for item in take})
    level = Items(here, dict.fromkeys(items, 1), takes=takes,
                  domain={item: item // 10 for item in items})
    level.even_out()
    assert set(level.count.values()) == {1}


# ---- towards the raw sets

def test_shards_move_first_where_crush_places_them_and_primaries_last() -> None:
    assert Items([[0, 1], [1, 0]], {0: 1, 1: 2, 2: 1},
                 raw=[[2, 1], [1, 2]]).evened_out() == [[0, 1], [1, 2]]
    # Only a primary is too many, and item 2 has room as well.
    share = {0: 0, 1: 1, 2: 1, 3: 1}
    assert Items([[0, 1]], share, raw=[[3, 1]]).evened_out() == [[3, 1]]
    # The places of a replicated PG do not matter.
    assert Items([[0, 1]], share, raw=[[1, 3]], by_place=False).evened_out() == [[3, 1]]
    # An OSD of the PG, or of its failure domain, is no target.
    assert Items([[0, 1]], {0: 0, 1: 2, 2: 1}, raw=[[1, 1]]).evened_out() == [[2, 1]]
    assert Items([[0, 1]], share, raw=[[3, 1]],
                 domain={0: 0, 1: 1, 2: 2, 3: 1}).evened_out() == [[2, 1]]


def test_no_item_is_filled_beyond_its_bounds() -> None:
    assert Items([[1, 0], [1, 0]], {0: 0, 1: 2, 2: 1},
                 raw=[[1, 2], [1, 2]]).evened_out() == [[1, 2], [1, 0]]


def test_each_place_is_tried_once() -> None:
    """Item 2 is in the failure domain of 0 and in both takes. The last place of the first PG could
    only move there once its primary has moved, which is the last to move."""
    assert Items([[0, 1], [5, 4]], {0: 0, 1: 0, 2: 1, 3: 1, 4: 1, 5: 0},
                 raw=[[3, 2], [2, 4]], by_place=False, takes=[[0, 2, 3, 5], [1, 2, 4]],
                 domain={0: 0, 1: 1, 2: 0, 3: 3, 4: 4, 5: 5}).evened_out() == [[3, 1], [2, 4]]


def test_a_shard_does_not_leave_its_take() -> None:
    assert Items([[0, 1]], {0: 0, 1: 1, 2: 0, 3: 1}, takes=[[0, 2], [1, 3]],
                 raw=[[3, 1]]).evened_out() == [[0, 1]]


def test_of_a_replicated_pg_the_last_osd_that_crush_has_left_is_replaced_first() -> None:
    share = {0: 0, 1: 1, 2: 1, 3: 0, 4: 1}
    assert Items([[0, 3, 1]], share, raw=[[1, 2, 4]], by_place=False).evened_out() == [[4, 2, 1]]
    assert Items([[1, 0, 3]], share, raw=[[1, 4, 2]], by_place=False).evened_out() == [[1, 2, 4]]


@pytest.mark.parametrize('filled, last', [({2: 1, 3: 1}, 3), ({2: 1, 3: 0}, 2)])
def test_items_within_their_bounds_give_to_those_that_have_too_few(filled: Dict[int, int],
                                                                   last: int) -> None:
    """Where CRUSH places the shard, if it fills that item; else to the first one."""
    level = Items([[0, 1], [1, 0]], {0: 2, 1: 2, 2: 1, 3: 1}, low={0: 1, 1: 2, 2: 1, 3: 1},
                  raw=[[0, 1], [1, 3]])
    level.filled = {0: 1, 1: 2, **filled}
    assert level.evened_out() == [[0, 1], [1, last]]


def test_items_above_their_bounds_give_before_those_within() -> None:
    """Although CRUSH would move a shard of the latter."""
    here = [[1, 0], [1, 0], [1, 5], [1, 5]]
    assert Items(here, {0: 2, 1: 4, 2: 1, 5: 1}, low={0: 1, 1: 4, 2: 1, 5: 1},
                 raw=[[1, 2], [1, 0], [1, 5], [1, 5]]).evened_out() == [
        [1, 0], [1, 0], [1, 2], [1, 5]]


# ---- single moves

@pytest.mark.parametrize('first, second, origin, raw, moved', [
    # What moves anyway, even a primary; then what is not primary.
    ([0, 1], [1, 0], [[9, 1], [1, 0]], [[0, 1], [1, 0]], 0),
    ([1, 0], [0, 1], [[1, 0], [9, 1]], [[1, 0], [0, 1]], 1),
    ([0, 1], [1, 0], [[9, 1], [1, 9]], [[0, 1], [1, 0]], 1),
    ([0, 1], [1, 0], [[0, 1], [1, 0]], [[0, 1], [1, 0]], 1),
    # What CRUSH does not place there; then the first PG.
    ([1, 0], [1, 0], [[1, 0], [1, 0]], [[1, 0], [1, 9]], 1),
    ([1, 0], [1, 0], [[1, 0], [1, 0]], [[1, 0], [1, 0]], 0)])
def test_which_shard_leaves_an_item(first: List[int], second: List[int], origin: Sets, raw: Sets,
                                    moved: int) -> None:
    here = [first, second]
    level = Items(here, {0: 1, 1: 2, 2: 1, 9: 0}, origin=origin, raw=raw)
    expected = [list(row) for row in here]
    expected[moved] = [2 if item == 0 else item for item in here[moved]]
    assert level.evened_out() == expected


def test_the_fullest_items_give_first() -> None:
    here = [[1, 5], [1, 5], [1, 5], [1, 0], [1, 0]]
    share = {0: 1, 1: 5, 2: 1, 5: 1}
    assert Items(here, share).evened_out() == [[1, 2], *here[1:]]
    # Then both hold as many.
    assert Items(here, {**share, 2: 2}).evened_out() == [
        [1, 2], [1, 5], [1, 5], [1, 2], [1, 0]]


def test_the_items_that_lack_most_take_first() -> None:
    here = [[1, 0], [1, 0], [1, 0]]
    high, low = {0: 1, 1: 3, 2: 3, 3: 3}, {0: 0, 1: 3, 2: 0, 3: 0}
    assert Items(here, high, low=low, ideal={0: 1.0, 1: 3.0, 2: 2.0, 3: 2.5}).evened_out() == [
        [1, 3], [1, 2], [1, 0]]
    # Those below their lower bound come before all others.
    low = {0: 0, 1: 3, 2: 0, 3: 1}
    assert Items(here, high, low=low, ideal={0: 1.0, 1: 3.0, 2: 3.0, 3: 1.0}).evened_out() == [
        [1, 3], [1, 2], [1, 0]]


def test_nothing_moves_beyond_the_budget() -> None:
    here = [[1, 0], [1, 0]]
    assert Items(here, {0: 1, 1: 2, 2: 1}, moves=0).evened_out() == here
    assert Items(here, {0: 1, 1: 2, 2: 1}, raw=[[1, 2], [1, 0]], moves=0).evened_out() == here
    assert Items(here, {0: 1, 1: 2, 2: 1}, moves=1).evened_out() == [[1, 2], [1, 0]]


class Ranks(Items):
    """The excess of the shards at the first places of PGs."""
    excesses: Sequence[float] = ()

    def excess(self, number: int, place: int) -> float:
        return self.excesses[number]


def test_a_shard_whose_rank_has_fallen_waits_for_the_others() -> None:
    level = Ranks([[0, 1], [0, 1]], {0: 0, 1: 2, 2: 2})
    level.excesses = 1.0, 3.0
    shards = [(3, -5.0, True, 0, 0), (3, -3.0, True, 1, 0)]
    takers = _Takers(level, level.near.high)
    assert level._give_one(0, shards, takers) is True and level.here == [[0, 1], [2, 1]]
    assert shards == [(3, -1.0, True, 0, 0)]
    assert level._give_one(0, shards, takers) is True and level.here == [[2, 1], [2, 1]]
    assert level._give_one(0, shards, takers) is False and shards == []


# ---- which item takes a shard

def taken(level: Items, takers: _Takers, shards: Sequence[int], place: int = 0) -> List[int]:
    found = []
    for number in shards:
        item = takers.take(number, place)
        if item is None:
            break
        level.move(number, place, item)
        found.append(item)
    return found


def test_items_take_in_turn_until_they_are_full() -> None:
    """Always the one that lacks most, of several ones in a failure domain as well."""
    level = Items([[0, 1]] * 10, {0: 0, 1: 10, 7: 1, 8: 3, 9: 2, 6: 3},
                  ideal={0: 0.0, 1: 10.0, 7: 1.0, 8: 3.0, 9: 2.0, 6: 2.5},
                  domain={0: 0, 1: 1, 7: 5, 8: 5, 9: 5, 6: 6})
    takers = _Takers(level, level.near.high)
    assert taken(level, takers, range(8)) == [8, 6, 8, 9, 6, 7, 8, 9] and takers
    assert taken(level, takers, [8]) == [6] and not takers
    assert taken(level, takers, [9]) == []


def test_an_item_that_one_take_has_filled_does_not_hide_the_next_one() -> None:
    level = Items([[0, 1], [0, 1], [0, 1]], {0: 3, 1: 3, 10: 1, 11: 1},
                  takes=[[0, 10, 11], [1, 10, 11]], domain={0: 0, 1: 1, 10: 5, 11: 5})
    takers = _Takers(level, level.near.high)
    assert taken(level, takers, [0], 0) == [10]
    assert taken(level, takers, [1], 1) == [11]
    assert taken(level, takers, [2], 0) == [] and level.count == {0: 2, 1: 2, 10: 1, 11: 1}


# ---- chains

CHAIN = [[0, 2], [1, 3]]
CHAIN_SHARE = {0: 0, 1: 1, 2: 2, 3: 1}


def test_a_shard_moves_to_an_item_that_gives_another_one() -> None:
    """Item 2 has a shard of the only PG that item 0 may give."""
    assert Items(CHAIN, CHAIN_SHARE).evened_out() == [[1, 2], [2, 3]]
    # The shard of item 3 moves anyway.
    assert Items(CHAIN, CHAIN_SHARE, origin=[[0, 2], [1, 9]]).evened_out() == [[3, 2], [1, 2]]
    # That is two moves.
    assert Items(CHAIN, CHAIN_SHARE, moves=1).evened_out() == CHAIN
    assert Items(CHAIN, CHAIN_SHARE, moves=2).evened_out() == [[1, 2], [2, 3]]
    # Item 1 is in the failure domain of 0.
    assert Items(CHAIN, CHAIN_SHARE, domain={0: 0, 1: 0, 2: 2, 3: 3}).evened_out() == [
        [1, 2], [2, 3]]
    # Item 2 is in the failure domain of 3, of which both PGs have a shard.
    assert Items(CHAIN, CHAIN_SHARE, domain={0: 0, 1: 1, 2: 3, 3: 3}).evened_out() == CHAIN


#: Both PGs of item 0 can only leave it in a chain over item 1 to 2.
CHAINS = [[0, 2], [0, 2], [1, 3], [1, 3]]
ONE_CHAIN = [[1, 2], [0, 2], [2, 3], [1, 3]]


@pytest.mark.parametrize('keeps, room, moves, expected', [
    (0, 3, 99, ONE_CHAIN), (1, 4, 99, ONE_CHAIN), (0, 4, 3, ONE_CHAIN),
    (0, 4, 4, [[1, 2], [1, 2], [2, 3], [2, 3]])])
def test_chains_end_with_the_surplus_the_room_or_the_budget(
        keeps: int, room: int, moves: int, expected: Sets) -> None:
    assert Items(CHAINS, {0: keeps, 1: 2, 2: room, 3: 2}, moves=moves).evened_out() == expected


@pytest.mark.parametrize('checks_left, only_moving, possible', [
    # The second PG moves anyway, the first does not: two places are examined in vain.
    (CHAIN_CHECKS, True, True), (2, True, True), (1, True, False), (1, False, True)])
def test_a_chain_is_given_up_after_many_checks(checks_left: int, only_moving: bool,
                                               possible: bool) -> None:
    level = Items([[0, 2], [1, 3], [1, 3], [4, 5]], {0: 0, 1: 9, 2: 9, 3: 9, 4: 9, 5: 9},
                  origin=[[0, 2], [1, 3], [9, 3], [4, 5]])
    level._checks_left = checks_left
    onward_pgs = [1, 2, 3]
    found = level._chain(0, 2, {1: [(0, 0)], 3: [(0, 0)]}, onward_pgs, only_moving)
    assert found is possible
    if not possible:
        assert onward_pgs == [1, 2, 3] and level.here[0] == [0, 2]
    elif only_moving:
        assert level.here == [[1, 2], [1, 3], [2, 3], [4, 5]] and onward_pgs == [1, 3]
        # Three places, and one shard for the first of the two moves.
        assert checks_left - level._checks_left == 4
    else:
        assert level.here == [[1, 2], [2, 3], [1, 3], [4, 5]] and onward_pgs == [3, 2]
        assert checks_left - level._checks_left == 2


@pytest.mark.parametrize('onward_pg, shard, checks', [
    (0, (1, 0), 3), (1, (0, 0), 4), (9, (1, 0), 3)])
def test_the_shard_that_begins_a_chain(onward_pg: int, shard: Tuple[int, int],
                                       checks: int) -> None:
    """The best is at the end: one that has left item 0, and one of a PG with a shard on item 3,
    are passed over."""
    level = Items([[0, 1], [0, 2], [0, 3], [4, 0]], {0: 4, 1: 1, 2: 1, 3: 1, 4: 1})
    shards_to = {3: [(0, 0), (1, 0), (2, 0), (3, 0)]}
    assert level._shard_for(3, 0, shards_to, onward_pg) == shard
    assert CHAIN_CHECKS - level._checks_left == checks
    assert level._shard_for(4, 0, shards_to, onward_pg) is None


# ---- items that must be emptied

@pytest.mark.parametrize('raw, limits, last', [
    # Beyond the bounds, up to where there is room.
    ([[0, 1], [2, 1], [3, 1]], {2: 2, 3: 1}, 2), ([[0, 1], [2, 1], [3, 1]], {2: 1, 3: 2}, 3),
    # There is no room: where CRUSH places it, or anywhere.
    ([[3, 1], [2, 1], [3, 1]], {2: 1, 3: 1}, 3), ([[0, 1], [2, 1], [3, 1]], {2: 1, 3: 1}, 2)])
def test_a_drained_item_keeps_nothing(raw: Sets, limits: Dict[int, int], last: int) -> None:
    here = [[0, 1], [2, 1], [3, 1]]
    assert Items(here, {0: 0, 1: 3, 2: 1, 3: 1}, raw=raw, drained=[0],
                 limits={0: 0, 1: 3, **limits}).evened_out() == [[last, 1], [2, 1], [3, 1]]


def test_no_drained_item_takes_what_another_one_gives() -> None:
    assert Items([[0, 1], [9, 1], [2, 1]], {0: 0, 1: 3, 2: 1, 9: 0},
                 drained=[0, 9]).evened_out() == [[2, 1], [2, 1], [2, 1]]


def test_a_drained_item_is_emptied_by_a_chain() -> None:
    """Only item 3, which has a shard of the PG, has room."""
    assert Items([[0, 3], [2, 1]], {0: 0, 1: 1, 2: 1, 3: 1}, drained=[0],
                 limits={0: 0, 1: 1, 2: 1, 3: 2}).evened_out() == [[2, 3], [3, 1]]


def test_a_drained_item_is_emptied_although_no_other_one_has_shards() -> None:
    assert Items([[0]], {0: 0, 1: 0}, drained=[0]).evened_out() == [[1]]
