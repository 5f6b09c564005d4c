# SPDX-License-Identifier: LGPL-2.1-or-later
"""Single steps of the balance of one pool, on a few OSDs."""
from dataclasses import replace
from typing import AbstractSet, Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

import pytest

from perfguard.cluster.crush_rule import Group
from perfguard.cluster.types import NO_OSD, Balancing, Osd, OsdSet, Pool
from perfguard.upmap import balance as balance_module
from perfguard.upmap.balance import (
    Balance, BalanceLimit, LawfulSets, PlacedPg, Shards, _Exchange, balance, finds_lawful_sets,
    is_balanced, is_merging, why_unbalanced)
from perfguard.upmap.grouped_sets import EarlierRule
from perfguard.upmap.shares import PoolRoom, Targets

from .test_evening_steps import rules

CRUSH = rules(range(6))
ROWS = {osd: Osd(osd, True, 1.0) for osd in range(6)}


def a_pool(size: int = 2, pgs: int = 4, rule: int = 0, **fields: Any) -> Pool:
    return replace(Pool(1, 'p', False, size, 1, rule, pgs, pgs, pgs), **fields)


# ---- pools

@pytest.mark.parametrize('target, pending, merging', [
    (4, 4, False), (3, 4, True), (4, 3, True), (5, 4, False)])
def test_pools_whose_pgs_are_being_merged(target: int, pending: int, merging: bool) -> None:
    pool = a_pool(pg_num_target=target, pg_num_pending=pending)
    assert is_merging(pool) is merging
    assert is_balanced(pool, CRUSH, Balancing()) is not merging


def test_pools_that_are_not_balanced() -> None:
    assert is_balanced(a_pool(), CRUSH, Balancing(upmap=False)) is False
    assert is_balanced(a_pool(rule=7), CRUSH, Balancing()) is False
    assert why_unbalanced(a_pool(), CRUSH) == ''
    assert why_unbalanced(a_pool(rule=7), CRUSH).startswith('perfguard does not know the shares of')
    assert finds_lawful_sets(a_pool(), CRUSH) is True
    assert finds_lawful_sets(a_pool(rule=7), CRUSH) is False


# ---- results

@pytest.mark.parametrize('before, low, high, least', [
    ({0: 3, 1: 1}, 2, 2, 1), ({0: 5, 1: 1}, 2, 3, 2), ({0: 5, 1: 0}, 1, 4, 1),
    ({0: 2, 1: 0}, 2, 2, 2), ({0: 2, 1: 2}, 2, 2, 0), ({0: 5, 1: 0}, 2, 9, 2)])
def test_the_least_number_of_moves(before: Dict[int, int], low: int, high: int,
                                   least: int) -> None:
    targets = Targets({0: 2.0, 1: 2.0}, {0: low, 1: low}, {0: high, 1: high})
    assert Balance({}, targets, before, before).least == least


@pytest.mark.parametrize('after, deviation', [
    ({0: 2, 1: 2}, 0.5), ({0: 5, 1: 1}, 2.5), ({1: 2}, 2.5), ({0: 3, 1: 2, 9: 50}, 0.5)])
def test_the_deviation_of_a_result(after: Dict[int, int], deviation: float) -> None:
    targets = Targets({0: 2.5, 1: 2.0}, {}, {})
    assert Balance({}, targets, {}, after).deviation == deviation
    assert Balance({}, Targets({}, {}, {}), {}, after).deviation == 0.0


def shards(here: Sequence[OsdSet], raw: Optional[Sequence[Optional[OsdSet]]] = None,
           budget: Optional[int] = None, size: int = 2, room: PoolRoom = PoolRoom(),
           rows: Mapping[int, Osd] = ROWS, free: Sequence[bool] = (), **fields: Any) -> Shards:
    pgs = [PlacedPg('1.%x' % number, *row) for number, row in enumerate(zip(
        here, raw or here, free or [True] * len(here)))]
    pool = a_pool(size, len(here), **fields)
    return Shards(pool, pgs, CRUSH, rows, budget, 1.0, room, False, 1.0, None)


def test_what_a_budget_affords() -> None:
    state = shards([(0, 1), (2, 3)], budget=2, rows={**ROWS, 5: Osd(5, True, 0.0)})
    assert state.affords(0, 2) and not state.refused
    # An OSD that has to be emptied is.
    assert state.affords(5, 3) is True and state.refused
    state.refused = False
    assert state.affords(0, 3) is False and state.refused
    state.refused = False
    state.move(0, 0, 4)
    assert state.moved == 1 and state.count == {0: 0, 1: 1, 2: 1, 3: 1, 4: 1, 5: 0}
    assert state.affords(1) is True and state.refused is False
    # From one place to another, and back.
    state.move(0, 0, 2)
    assert state.moved == 1
    state.move(0, 0, 0)
    assert state.moved == 0
    assert shards([(0, 1)]).within_budget(10 ** 9) is True


@pytest.mark.parametrize('refused, after, limit', [
    (True, 3, BalanceLimit.MOVEMENT), (False, 3, BalanceLimit.RULE),
    (True, 2, BalanceLimit.MOVEMENT), (True, 1, None), (False, 1, None)])
def test_whether_the_budget_limits_a_result(refused: bool, after: int,
                                            limit: Optional[BalanceLimit]) -> None:
    state = shards([(0, 1), (2, 3)])
    state.targets = Targets({0: 1.0}, {}, {})
    state.refused, state.count = refused, {0: after}
    assert state.result().limit is limit


#: Twelve PGs, none of which has a shard on OSD 5.
UNEVEN = [(number % 5, (number + 1) % 5) for number in range(12)]


@pytest.mark.parametrize('fields, limit', [
    ({}, None), ({'budget': 1}, BalanceLimit.MOVEMENT),
    ({'room': PoolRoom({5: 1})}, BalanceLimit.ROOM),
    # Others have room for all that it does not take.
    ({'room': PoolRoom({0: 0})}, None), ({'may_move': 2}, BalanceLimit.STAYING_PGS)])
def test_what_limits_a_result(fields: Dict[str, Any], limit: Optional[BalanceLimit]) -> None:
    fields = dict(fields)
    free = fields.pop('may_move', len(UNEVEN))
    pgs = [PlacedPg('1.%x' % number, here, here, number < free)
           for number, here in enumerate(UNEVEN)]
    result = balance(a_pool(pgs=len(pgs)), pgs, CRUSH, ROWS, **fields)
    assert result.limit is limit and (result.deviation >= 1.0) is (limit is not None)


def test_the_result_contains_what_moves() -> None:
    state = shards([(0, 1), (2, 3)])
    state.move(1, 1, 4)
    found = state.result()
    assert found.finals == {'1.1': (2, 4)} and found.required == 0
    assert found.before == {0: 1, 1: 1, 2: 1, 3: 1, 4: 0, 5: 0}
    assert found.after == {0: 1, 1: 1, 2: 1, 3: 0, 4: 1, 5: 0}


@pytest.mark.parametrize('here, raw, free, moves', [
    ((0, 1), (0, 1), True, True), ((0, 1), (0, 1), False, False), ((0, 1), None, True, False),
    ((0,), (0, 1), True, False), ((0, NO_OSD), (0, 1), True, False),
    ((0, 9), (0, 1), True, False)])
def test_pgs_that_may_be_moved(here: OsdSet, raw: Optional[OsdSet], free: bool,
                               moves: bool) -> None:
    state = shards([here, (2, 3)], [raw, (2, 3)], free=[free, True])
    assert list(state.movable_pgs) == ([0, 1] if moves else [1])


def test_the_room_and_the_fill_of_osds() -> None:
    state = shards([(0, 1), (0, 2)], room=PoolRoom({0: 3, 1: 0}, {0: 0.25}))
    assert state.limits == {0: 5, 1: 1, 2: 2, 3: 2, 4: 2, 5: 2}
    ideal = state.targets.ideal[0]
    assert state.surplus(0) == pytest.approx(2 - ideal + 0.25)
    assert state.surplus(1) == pytest.approx(1 - ideal)


@pytest.mark.parametrize('here, place, osd, room', [
    # At most two shards of a PG in a bucket, and no further bucket in place of two.
    ((10, 11, 20), 0, 12, True), ((10, 11, 20), 2, 12, False), ((10, 11, 20), 2, 30, True),
    ((10, 11, 20), 0, 21, True), ((10, 11, 20), 0, 30, False), ((10, 20, 30), 0, 21, True),
    ((10, 11, 20), 1, 20, True)])
def test_the_room_of_a_bucket(here: OsdSet, place: int, osd: int, room: bool) -> None:
    state = shards([(0, 1)])
    state.here = [list(here)]
    group = Group(2, {osd: osd // 10 for osd in (*range(10, 14), *range(20, 24), *range(30, 34))})
    assert state._bucket_has_room(group, 0, place, osd) is room


def test_the_order_of_pgs_makes_no_difference() -> None:
    pgs = [PlacedPg('1.%x' % number, (0, 1), (0, 1)) for number in range(20)]
    found = balance(a_pool(2, 20), pgs, CRUSH, ROWS)
    assert found.finals == balance(a_pool(2, 20), pgs[::-1], CRUSH, ROWS).finals != {}
    assert found.deviation < 1.0


# ---- sets that obey a rule

#: OSDs 0 to 5, two in each failure domain.
DOMAIN = {osd: osd // 2 for osd in range(6)}


def lawful(pgs: Sequence[OsdSet], raws: Sequence[OsdSet], broken: Set[int],
           weights: Mapping[int, float] = {}, limits: Mapping[int, int] = {},
           domain: Mapping[int, int] = DOMAIN,
           earlier: Optional[EarlierRule] = None) -> List[Tuple[int, ...]]:
    found = LawfulSets(domain, {**dict.fromkeys(range(6), 1.0), **weights},
                       {**dict.fromkeys(range(6), 99), **limits}, earlier).place(pgs, raws, broken)
    return [tuple(row) for row in found]


@pytest.mark.parametrize('here, raw, others, fields, expected', [
    # One of a domain stays, the emptiest; the other goes where CRUSH places it.
    ((0, 1, 2), (4, 2, 0), [], {}, (0, 4, 2)), ((0, 1, 2), (4, 2, 0), [(0, 2)], {}, (4, 1, 2)),
    ((0, 1, 2), (4, 2, 0), [(0, 2)], {'weights': {0: 3.0}}, (0, 4, 2)),
    # What CRUSH names has more than its share, or no room.
    ((0, 1, 2), (4, 2, 0), [(4, 2), (4, 3)], {}, (0, 5, 2)),
    ((0, 1, 2), (4, 2, 0), [], {'limits': {4: 0}}, (0, 5, 2)),
    ((0, 1, 2), (4, 2, 0), [], {'limits': {4: 1}}, (0, 4, 2)),
    # One with exactly its share of six shards, and of five.
    ((0, 1, 2), (4, 2, 0), [(4, 3), (1, 3)], {}, (0, 4, 2)),
    ((0, 1, 2), (4, 2, 0), [(4, 3), (1,)], {}, (0, 5, 2)),
    ((0, 1, 2), (4, 2, 0), [(4, 3), (1, 3)], {'limits': {4: 1}}, (0, 5, 2)),
    # The emptiest domain, by its weight.
    ((0, 1), (1, 0), [(2,), (4, 5), (4, 5), (4,)], {'weights': {4: 4.0, 5: 4.0}}, (0, 3)),
    # CRUSH names none in another domain: the emptiest one there.
    ((0, 1, 2), (3, 2, 0), [(4,)], {}, (0, 5, 2)), ((0, 1, 2), (3, 2, 0), [], {}, (0, 4, 2)),
    ((0, 1, 2), (3, 2, 0), [], {'limits': {4: 0}}, (0, 5, 2)),
    ((0, 1, 2), (3, 2, 0), [(4, 5), (4, 0)], {'weights': {4: 9.0}}, (4, 1, 2)),
    # OSDs without weight keep nothing, and get nothing.
    ((0, 2, 4), (1, 2, 4), [], {'weights': {0: 0.0}}, (1, 2, 4)),
    ((0, 1, 2), (4, 2, 0), [], {'weights': {4: 0.0}}, (0, 5, 2)),
    # There is no set: the raw one.
    ((0, 1, 2), (4, 2, 0), [], {'weights': {4: 0.0, 5: 0.0}}, (4, 2, 0))])
def test_sets_that_obey_the_rule(here: OsdSet, raw: OsdSet, others: List[OsdSet],
                                 fields: Any, expected: OsdSet) -> None:
    found = lawful([here, *others], [raw, *others], {0}, **fields)
    assert found == [expected, *others]


@pytest.mark.parametrize('domain, raw, expected', [
    # Two new OSDs: one at its position in the raw set, or none of them; each in a domain of its
    # own, and no more than the set needs.
    ((0, 0, 0, 1, 2, 3), (0, 3, 1), (0, 3, 4)), ((0, 0, 0, 1, 2, 3), (0, 1, 2), (0, 3, 4)),
    ((0, 0, 0, 1, 1, 2), (0, 1, 2), (0, 3, 5)), ((0, 0, 1, 2, 3, 4), (3, 4, 0), (0, 3, 2))])
def test_new_osds_of_a_set(domain: Tuple[int, ...], raw: OsdSet, expected: OsdSet) -> None:
    assert lawful([(0, 1, 2)], [raw], {0}, domain=dict(enumerate(domain))) == [expected]


@pytest.mark.parametrize('earlier', [None, EarlierRule((), 3, {
    0: 0, 1: 1, 2: 2, 3: 3, 4: 0, 5: 0}, set(range(6)))])
def test_shards_are_counted_where_sets_end(earlier: Optional[EarlierRule]) -> None:
    """Also those of a PG without a set, which goes to its raw set."""
    pgs = [(0, 1, 2), (0, 1, 2), (2, 3), (0, 1, 2), (4, 0), (0, 1, 9)]
    raws = [(4, 2, 0), (5, 3, 1), (2, 3), (0, 2, 5), (4, 0), (1, 4, 2)]
    all_weights: List[Dict[int, float]] = [{}, {4: 0.0, 5: 0.0}, {0: 2.0, 4: 3.0}]
    for weights in all_weights:
        sets = LawfulSets(DOMAIN, {**dict.fromkeys(range(6), 1.0), **weights},
                          dict.fromkeys(range(6), 99), earlier)
        found = sets.place(pgs, raws, {0, 1, 3, 5})
        for osd, number in sets._shards.items():
            assert number == sum(list(members).count(osd) for members in found)
        assert sets._shard_sum == sum(sets._shards.values())
        for domain, number in sets._domain_shards.items():
            assert number == sum(count for osd, count in sets._shards.items()
                                 if DOMAIN[osd] == domain)
            assert sets._noted[domain] <= sets._domain_fullness(domain)


def test_a_domain_that_has_lost_a_shard_may_be_the_emptiest() -> None:
    sets = LawfulSets({0: 0, 1: 0, 2: 1, 3: 2}, dict.fromkeys(range(4), 1.0),
                      dict.fromkeys(range(4), 99), None)
    sets.place([(0, 1, 2)], [(0, 1, 2)], set())
    for _ in range(2):
        assert sets._in_emptiest_domain(set(), ()) == [3]
        assert sets._in_emptiest_domain({1, 2}, ()) == [0, 1]
    sets._replace((2,), ())
    assert sets._in_emptiest_domain({2}, ()) == [2]


def test_new_shards_count_for_the_pgs_that_follow() -> None:
    """Four PGs leave a domain by turns, for the emptiest OSDs of the others."""
    domain = {0: 0, 1: 0, 2: 1, 3: 2, 4: 3, 5: 4}
    found = lawful([(0, 1)] * 4, [(0, 1)] * 4, {0, 1, 2, 3}, domain=domain)
    assert sorted(osd for members in found for osd in members if osd > 1) == [2, 3, 4, 5]
    # Those that stay, on the emptier one each time.
    assert [members[0] == 0 for members in found].count(True) == 2


@pytest.mark.parametrize('choices, expected', [(64, (5, 1, 2)), (1, (5, 3, 1))])
def test_two_rules(choices: int, expected: OsdSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The earlier rule allows neither OSD 4 nor 5 beside OSD 0, so that OSD 1 has to stay. If that
    is not tried, there is no set."""
    monkeypatch.setattr(balance_module, 'CHOICES', choices)
    earlier = EarlierRule((), 3, {0: 0, 1: 1, 2: 2, 3: 3, 4: 0, 5: 0}, set(range(6)))
    assert lawful([(0, 1, 2)], [(5, 3, 1)], {0}, earlier=earlier) == [expected]


# ---- exchanges of groups

class GroupsFake:
    """Groups that may move where `ways` says, if `illegal` does not contain the move."""

    def __init__(self, here: Sequence[Sequence[int]], ways: Sequence[Mapping[int, Sequence[int]]],
                 low: Mapping[int, int], high: Mapping[int, int],
                 illegal: AbstractSet[Tuple[int, int, int]] = frozenset()) -> None:
        self.here, self.ways, self.illegal = [list(row) for row in here], ways, illegal
        self.movable_pgs = range(len(here))
        self.count = {bucket: sum(row.count(bucket) for row in self.here) for bucket in high}
        self.near = Targets({}, dict(low), dict(high))

    def ways_back(self, number: int) -> List[Tuple[int, int]]:
        return [(place, bucket) for place, buckets in self.ways[number].items()
                for bucket in buckets if bucket not in self.here[number]]

    def legal(self, number: int, place: int, bucket: int) -> bool:
        return (number, place, bucket) not in self.illegal

    def move(self, number: int, place: int, bucket: int) -> None:
        self.count[self.here[number][place]] -= 1
        self.here[number][place] = bucket
        self.count[bucket] += 1


ONE, NONE = {1: 1, 2: 1, 3: 1}, {1: 0, 2: 0, 3: 0}


@pytest.mark.parametrize('here, ways, low, high, illegal, expected', [
    # From a bucket with too many, straight and over another one.
    ([[1], [1], [2]], [{}, {0: [3]}, {}], ONE, ONE, set(), [[1], [3], [2]]),
    ([[1], [1], [2]], [{0: [2]}, {}, {0: [3]}], ONE, ONE, set(), [[2], [1], [3]]),
    # Although no bucket has too few; also if the shortest way is not legal.
    ([[1], [1], [2]], [{0: [3]}, {}, {}], NONE, ONE, set(), [[3], [1], [2]]),
    ([[1], [1], [2]], [{0: [3, 2]}, {}, {0: [3]}], NONE, ONE, {(0, 0, 3)}, [[2], [1], [3]]),
    # One after the other, but none twice from where it was.
    ([[1], [1], [1], [2]], [{0: [3]}, {0: [4]}, {}, {}], {**NONE, 4: 0}, {**ONE, 4: 1}, set(),
     [[3], [4], [1], [2]]),
    ([[1], [1], [1]], [{0: [2, 3]}, {}, {}], ONE, ONE, set(), [[2], [1], [1]]),
    # To a bucket with too few, of one that may give.
    ([[1], [1], [2]], [{0: [3]}, {}, {}], ONE, {1: 2, 2: 1, 3: 1}, set(), [[3], [1], [2]]),
    # Bounds allow it, or there is no way.
    ([[1], [1], [2]], [{0: [3]}, {}, {}], {1: 1, 2: 1, 3: 0}, {1: 2, 2: 1, 3: 1}, set(),
     [[1], [1], [2]]),
    ([[1], [1], [2]], [{0: [2]}, {}, {}], ONE, ONE, set(), [[1], [1], [2]]),
    # The shortest way is not legal: another group, then another way.
    ([[1], [1], [2]], [{0: [3]}, {0: [3]}, {}], ONE, ONE, {(0, 0, 3)}, [[1], [3], [2]]),
    ([[1], [1], [2]], [{0: [3, 2]}, {}, {0: [3]}], ONE, ONE, {(0, 0, 3)}, [[2], [1], [3]]),
    # Both steps would move the same PG.
    ([[1, 2], [1, 2]], [{0: [2], 1: [3]}, {}], {1: 1, 2: 2, 3: 1}, {1: 1, 2: 2, 3: 1}, set(),
     [[1, 2], [1, 2]])])
def test_groups_change_places_in_chains(
        here: List[List[int]], ways: List[Dict[int, List[int]]], low: Dict[int, int],
        high: Dict[int, int], illegal: Set[Tuple[int, int, int]],
        expected: List[List[int]]) -> None:
    groups: Any = GroupsFake(here, ways, low, high, illegal)
    _Exchange(groups).even_out()
    assert groups.here == expected
