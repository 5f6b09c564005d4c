# SPDX-License-Identifier: LGPL-2.1-or-later
"""Single steps of the balance of a pool under rules that choose several OSDs in each bucket, and
under rules with several takes."""
from collections import Counter
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.crush_rule import Group, Spread, Take
from perfguard.cluster.types import NO_OSD, Osd, OsdSet, Pool
from perfguard.upmap import balance as balance_module
from perfguard.upmap.balance import (PlacedPg, Shards, _Groups, balanced_shards, why_unbalanced)
from perfguard.upmap.grouped_sets import EarlierRule
from perfguard.upmap.levels import CHAIN_CHECKS
from perfguard.upmap.shares import PoolRoom, Targets, in_whole_groups

from ..fakes.drafts import HYBRID
from ..rebalance.test_orders import crush as crush_of

#: Buckets 1 to 3 with four OSDs each: 10 to 13, 20 to 23, 30 to 33. Buckets 1 and 2 are in zone 7,
#: bucket 3 is in zone 8.
OSDS = [10 * bucket + number for bucket in (1, 2, 3) for number in range(4)]
BUCKET_OF = {osd: osd // 10 for osd in OSDS}
PAIRS = Group(2, BUCKET_OF)
ZONES = Group(4, {osd: 8 if osd >= 30 else 7 for osd in OSDS})
ONE_TAKE = (Take(4, frozenset(OSDS), (PAIRS,)),)
TWO_TAKES = (Take(2, frozenset(OSDS), (PAIRS,)), Take(2, frozenset(OSDS), (PAIRS,)))
NESTED = (Take(4, frozenset(OSDS), (ZONES, PAIRS)),)
HERE: OsdSet = (10, 11, 20, 21)
EVERY = dict.fromkeys(OSDS, 99)
NONE = dict.fromkeys(OSDS, 0)


class State(Shards):
    """The shards of a few PGs, all of which may move."""

    def __init__(self, here: Sequence[OsdSet], *, origin: Optional[Sequence[OsdSet]] = None,
                 raw: Optional[Sequence[OsdSet]] = None, takes: Sequence[Take] = ONE_TAKE,
                 by_place: bool = False, weights: Mapping[int, float] = {}, ideal: float = 1.0,
                 limits: Mapping[int, int] = {}, domain: Mapping[int, int] = {},
                 high: Mapping[int, int] = {}, deviation: float = 1.0,
                 budget: Optional[int] = None, earlier: Optional[EarlierRule] = None,
                 required: int = 0) -> None:
        super(Shards, self).__init__()
        self.takes, self.by_place, self.movable_pgs = tuple(takes), by_place, range(len(here))
        self.here, self.origin = [list(row) for row in here], list(origin or here)
        self.raw = list(raw or here)
        self.weights = {**dict.fromkeys(OSDS, 1.0), **weights}
        self.limits, self.domain = {**EVERY, **limits}, {**{osd: osd for osd in OSDS}, **domain}
        counted = Counter(osd for row in here for osd in row)
        self.count = {osd: counted[osd] for osd in OSDS}
        self.ideals = [dict.fromkeys(OSDS, ideal) for _ in takes]
        self.near = self.targets = Targets(dict.fromkeys(OSDS, ideal), NONE, {**EVERY, **high})
        self.deviation, self.required = deviation, required
        self.moved, self.refused = 0, False
        self.fences, self._uneven = [dict.fromkeys(OSDS, 0)] * 4, [()] * 4
        self._budget, self._fill, self._earlier = budget, {}, earlier


def groups(*here: OsdSet, number: int = 0, depth: int = 0, **fields: Any) -> _Groups:
    return _Groups(State(here, **fields), number, depth)


# ---- where groups are

def test_the_groups_of_pgs() -> None:
    found = groups(HERE, (30, 10, 31, 11), origin=[HERE, (10, 20, 11, 21)],
                   raw=[(20, 21, 30, 31), (10, 30, 11, 31)])
    assert found.here == [[1, 2], [3, 1]]
    # By the first shard of each group.
    assert found.origin == [[1, 2], [1, 2]] and found.raw == [[2, 3], [1, 3]]
    assert found.count == {1: 2, 2: 1, 3: 1} and found.domain == {1: 1, 2: 2, 3: 3}
    assert found.weights == {1: 4.0, 2: 4.0, 3: 4.0}
    assert found.fences == [{1: 0, 2: 0, 3: 0}] * 4 and list(found.movable_pgs) == [0, 1]
    assert found._members(1, 1) == [10, 11]


def test_where_crush_places_the_groups_of_an_erasure_code() -> None:
    found = groups((30, 10, 31, 11), raw=[(10, 30, 11, 31)], by_place=True)
    assert found.here == [[3, 1]] and found.raw == [[1, 3]]
    # A PG that cannot be moved has no raw set.
    assert groups(HERE, raw=[()], by_place=True).raw == [[]]
    assert groups(HERE, raw=[()]).raw == [[]]


def test_shards_that_are_in_no_bucket() -> None:
    found = groups((10, NO_OSD, 20, 21), raw=[(10, NO_OSD, 20, 21)], origin=[(NO_OSD,) * 4])
    assert found.here == [[1, 2]] and found.origin == [[NO_OSD, NO_OSD]]
    assert found.raw == [[1, NO_OSD, 2]] and found._members(0, 0) == [10]


def test_the_groups_of_each_take() -> None:
    for number, here, members in ((0, [[1], [2]], [20, 21]), (1, [[2], [3]], [31, 30])):
        found = groups(HERE, (20, 21, 31, 30), takes=TWO_TAKES, number=number)
        assert found.here == here and found._members(1, 0) == members
        assert len(found.fences) == 2


def test_a_group_cannot_leave_its_bucket_of_the_choice_above() -> None:
    found = groups(HERE, takes=NESTED, depth=1)
    assert found.here == [[1, 2]] and found.fences == [{1: 7, 2: 7, 3: 8}] * 4
    assert found._choices_below == () and found.legal(0, 0, 3) is False
    above = groups(HERE, takes=NESTED)
    assert above.here == [[7]] and above.fences == [{7: 0, 8: 0}] * 4
    assert above._choices_below == (PAIRS,) and above.legal(0, 0, 8) is True


# ---- how many there should be

@pytest.mark.parametrize('deviation, low, high', [(1.0, 2, 4), (3.0, 0, 6)])
def test_the_targets_of_buckets(deviation: float, low: int, high: int) -> None:
    """As many as each OSD can have, by its ideal number of 1.6 shards: 1 to 2,
    or 0 to 3."""
    found = groups(HERE, (10, 11, 30, 31), ideal=1.6, deviation=deviation,
                   limits=dict.fromkeys(range(30, 34), 1), weights={20: 0.0, 21: 0.0})
    # Two of the OSDs of bucket 2 are to be emptied; bucket 3 has room for two groups.
    assert found.near.ideal == {1: pytest.approx(3.2), 2: pytest.approx(1.6),
                                3: pytest.approx(3.2)}
    assert (found.near.low, found.near.high) == ({1: 2, 2: 1, 3: 2}, {1: 4, 2: 2, 3: 2})
    assert (found.wide.low[1], found.wide.high[1]) == (low, high)
    assert found.limits == {1: 198, 2: 198, 3: 2} and found.weights[2] == 2.0
    # Of a bucket without groups, nearly its share.
    assert found.filled == {1: found.wide.low[1], 2: found.wide.low[2], 3: found.wide.low[3]}
    assert found.surplus(1) == pytest.approx(2 - 3.2)


def test_groups_of_incomplete_pgs_have_fewer_shards() -> None:
    found = groups((10, NO_OSD, 20, 21), limits=dict.fromkeys(range(30, 34), 3))
    # Three shards in two groups.
    assert found.near.ideal[1] == pytest.approx(4 / 1.5) and found.limits[3] == 8
    empty = groups((NO_OSD,) * 4, limits=dict.fromkeys(range(30, 34), 3))
    assert empty.near.ideal[1] == pytest.approx(2.0) and empty.limits[3] == 6


def test_crush_fills_buckets_without_groups() -> None:
    found = groups(HERE, ideal=2.0, deviation=5.0)
    assert found.filled == {1: found.wide.low[1], 2: found.wide.low[2], 3: 3}


# ---- which group moves

def test_what_its_osds_hold() -> None:
    found = groups(HERE, HERE, (10, 30, 11, 31), ideal=1.0, high={10: 2, 11: 2, 20: 2, 21: 1})
    assert found.excess(0, 0) == 4.0 and found.excess(0, 1) == 2.0 and found.excess(2, 1) == 0.0
    # All of its OSDs have more than their share.
    assert found.may_leave(0, 0) is True and found.may_leave(0, 1) is False
    assert groups(HERE, high={10: 0, 11: 1}).may_leave(0, 0) is False


def test_what_a_budget_affords() -> None:
    found = groups(HERE, budget=4, weights=dict.fromkeys(range(30, 34), 0.0))
    assert found.affords(1) is found.affords(1, 2) is True and found.affords(1, 3) is False
    assert found._shards.refused is True and found.affords(3, 3) is True
    assert groups(HERE, budget=2).affords(1) is True
    assert groups(HERE, budget=1).affords(1) is False


EARLIER = EarlierRule((), 4, {osd: 0 if osd in (30, 31) else osd for osd in OSDS}, set(OSDS))


def test_buckets_to_which_a_group_may_move() -> None:
    assert groups(HERE).legal(0, 0, 3) is True and groups(HERE).legal(0, 0, 2) is False
    # Of several takes, also none of the other ones.
    both = groups((10, 11, 30, 31), takes=TWO_TAKES)
    assert both.legal(0, 0, 2) is True and both.legal(0, 0, 3) is False
    # The rule from before allows only one of the OSDs 30 and 31.
    full = {32: 0, 33: 0}
    assert groups(HERE, earlier=EARLIER, limits=full).legal(0, 0, 3) is False
    assert groups(HERE, earlier=EARLIER, limits={30: 0, 31: 0}).legal(0, 0, 3) is True
    # Those that leave do not count.
    assert groups((30, 31, 20, 21), earlier=EARLIER).legal(0, 0, 1) is True


def test_a_group_moves_as_a_whole() -> None:
    found = groups((10, 20, 11, 21), limits={30: 0, 32: 0})
    found.move(0, 0, 3)
    shards = found._shards
    assert shards.here == [[31, 20, 33, 21]] and found.here == [[3, 2]] and shards.moved == 2
    assert found.count == {1: 0, 2: 1, 3: 1}
    assert (shards.count[10], shards.count[31], shards.count[21]) == (0, 1, 1)


# ---- the OSDs of a group in its new bucket

@pytest.mark.parametrize('origin, raw, fields, chosen', [
    # Those that have its data.
    ((31, 33, 20, 21), (30, 31, 20, 21), {}, [31, 33]),
    ((33, 31, 20, 21), (30, 31, 20, 21), {}, [33, 31]),
    # Of these, one in each failure domain, and the emptiest of the others.
    ((31, 33, 20, 21), HERE, {'domain': {33: 31}}, [31, 30]),
    ((10, 33, 20, 21), HERE, {}, [30, 33]), ((33, 10, 20, 21), HERE, {}, [33, 30]),
    ((33, 10, 20, 21), HERE, {'domain': {30: 33}}, [33, 31]),
    ((33, 10, 20, 21), HERE, {'limits': {30: 0}}, [33, 31]),
    ((33, 10, 20, 21), HERE, {'weights': {33: 0.0}}, [30, 31]),
    # No other one is left.
    ((33, 10, 20, 21), HERE, {'domain': {30: 33, 31: 33, 32: 33}}, [30]),
    ((33, 10, 20, 21), (31, 32, 20, 21), {'domain': {30: 33, 31: 33, 32: 33}}, [31, 32]),
    # Where CRUSH places the PG, if these have room.
    (HERE, (20, 21, 33, 31), {}, [33, 31]), (HERE, (33, 10, 31, 32), {}, [33, 31]),
    (HERE, (20, 21, 33, 31), {'high': {33: 1, 31: 1}}, [33, 31]),
    (HERE, (20, 21, 33, 31), {'high': {31: 0}}, [30, 31]), (HERE, (20, 21, 33, 10), {}, [30, 31]),
    # Else the emptiest.
    (HERE, HERE, {}, [30, 31]), (HERE, HERE, {'limits': {30: 0}}, [31, 32]),
    (HERE, HERE, {'weights': {31: 0.0}}, [30, 32])])
def test_the_osds_of_a_group_in_another_bucket(origin: OsdSet, raw: OsdSet, fields: Dict[str, Any],
                                               chosen: List[int]) -> None:
    found = groups(HERE, origin=[origin], raw=[raw], **fields)
    assert found._osds_for(0, [0, 1], 3) == chosen


@pytest.mark.parametrize('raw, chosen', [
    ((33, 20, 31, 21), [33, 31]), ((33, 31, 20, 21), [30, 31])])
def test_the_shards_of_an_erasure_code_keep_their_places(raw: OsdSet, chosen: List[int]) -> None:
    found = groups((10, 20, 11, 21), raw=[raw], by_place=True)
    assert found._osds_for(0, [0, 2], 3) == chosen


def test_the_emptiest_osds_of_the_buckets_of_a_choice_below() -> None:
    """A zone gets two shards in each of two of its buckets."""
    found = groups((30, 31, 32, 33), (20, 21, 10, 11), takes=NESTED)
    assert found._osds_for(0, [0, 1, 2, 3], 7) == [12, 13, 22, 23]
    assert found._emptiest(OSDS, (PAIRS,), 4) == [12, 13, 22, 23]
    assert found._emptiest(OSDS, (PAIRS,), 3) == [12, 13, 22]
    assert found._emptiest(OSDS, (), 3) == [12, 13, 22]
    assert found._emptiest(OSDS, (ZONES._replace(shards=2), PAIRS._replace(shards=1)), 3) == [
        12, 22, 30]
    # The bucket that lacks most comes first, of the choice at the top.
    zones = groups((20, 21, 22, 23), (30, NO_OSD, NO_OSD, NO_OSD), takes=NESTED)
    assert zones._emptiest(OSDS, (ZONES._replace(shards=2), PAIRS._replace(shards=1)), 3) == [
        31, 10, 20]
    fuller = groups((10, 11, 20, 21), (10, 11, 30, 31), takes=NESTED)
    assert fuller._emptiest(OSDS, (PAIRS,), 4) == [22, 23, 32, 33]
    # Data in a bucket of the choice below does not show how many shards it may have.
    back = groups((30, 31, 32, 33), origin=[(10, 11, 12, 13)], takes=NESTED)
    assert back._osds_with_data(0, [0, 1, 2, 3], 7) == {}
    assert back._osds_for(0, [0, 1, 2, 3], 7) == [10, 11, 20, 21]


def test_the_emptiest_osd_of_each_failure_domain() -> None:
    found = groups((10, 12, 20, 21), (10, 30, 20, 31), domain={11: 10, 13: 12})
    assert found._emptiest([10, 11, 12, 13], (), 2) == [11, 13]
    assert found._emptiest([10, 12, 13], (), 2) == [13, 10]
    # One without room is last.
    assert groups(HERE, limits={12: 0})._emptiest([10, 12, 13], (), 3) == [13, 10, 12]
    assert groups(HERE, limits={10: 1})._emptiest([10, 11, 12], (), 3) == [12, 11, 10]


# ---- groups that return to their data

@pytest.mark.parametrize('here, origin, fields, returns', [
    # Both shards return, or one of two in place of one that is where its data is.
    ((30, 31, 20, 21), HERE, {}, [(0, 1)]), ((10, 11, 20, 21), HERE, {}, []),
    ((30, 31, 20, 21), (30, 11, 20, 21), {}, [(0, 1)]),
    ((10, 11, 30, 31), HERE, {}, [(1, 2)]),
    # Of two buckets with its data.
    ((30, 31, 20, 21), (10, 22, 20, 21), {}, [(0, 1)]),
    ((30, 31, 32, 33), (10, 20, 11, 21), {}, [(0, 1), (0, 2)]),
    # The bucket is to be emptied, or another OSD of it has the same failure domain.
    ((30, 31, 20, 21), HERE, {'weights': dict.fromkeys(range(10, 14), 0.0)}, []),
    ((30, 31, 20, 21), (30, 11, 20, 21), {'weights': {11: 0.0}}, []),
    # It has a group of the PG, or the data is in no bucket.
    ((30, 31, 10, 11), (12, 13, 10, 11), {}, []), ((30, 31, 20, 21), (5, 6, 20, 21), {}, [])])
def test_where_groups_return_to_their_data(here: OsdSet, origin: OsdSet, fields: Dict[str, Any],
                                           returns: List[Tuple[int, int]]) -> None:
    assert list(groups(here, origin=[origin], **fields).ways_back(0)) == returns


# ---- the end state

def test_groups_are_evened_out() -> None:
    found = groups(*[(10, 11, 20, 21)] * 4, ideal=4 / 3)
    before = found.near, found.wide
    found.even_out()
    assert found.count == {1: 3, 2: 3, 3: 2}
    assert (found.near, found.wide) == tuple(in_whole_groups(bounds, found.limits)
                                             for bounds in before)


#: For each of three OSDs of a bucket. With the first ones the bucket may have a single group,
#: although its share is 1.45; with the others two, although it is 1.5; and two or three.
ONE_GROUP, UP_TO_TWO, FROM_TWO = (1.0, 1.0, 0.9), (1.0, 1.0, 1.0), (1.3, 1.3, 1.3)


@pytest.mark.parametrize('first, second, here, near, expected', [
    # As close as the OSDs allow, and where that is not possible as close as whole groups do.
    (ONE_GROUP, FROM_TWO, [1, 1, 2], ((1, 1), (2, 3)), {1: 1, 2: 2}),
    (UP_TO_TWO, ONE_GROUP, [1, 1, 1, 2], ((1, 2), (1, 1)), {1: 2, 2: 2})])
def test_groups_are_evened_out_in_two_steps(
        first: Tuple[float, ...], second: Tuple[float, ...], here: List[int],
        near: Tuple[Tuple[int, int], ...], expected: Dict[int, int]) -> None:
    takes = (Take(2, frozenset(OSDS), (PAIRS,)),)
    shards = State([(10 * bucket, 10 * bucket + 1) for bucket in here], takes=takes,
                   weights={13: 0.0, 23: 0.0, **dict.fromkeys(range(30, 34), 0.0)})
    shards.ideals = [{**dict.fromkeys(OSDS, 0.0), **dict(zip((10, 11, 12), first)),
                      **dict(zip((20, 21, 22), second))}]
    found = _Groups(shards, 0, 0)
    assert tuple((found.near.low[bucket], found.near.high[bucket]) for bucket in (1, 2)) == near
    found.even_out()
    assert found.count == {**expected, 3: 0}


@pytest.mark.parametrize('required, exchanged', [(0, 0), (1, 1)])
def test_groups_are_exchanged_if_shards_must_move(required: int, exchanged: int,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    calls: List[Any] = []

    class Exchange:
        def __init__(self, level: _Groups) -> None:
            calls.append(level)

        def even_out(self) -> None:
            pass

    monkeypatch.setattr(balance_module, '_Exchange', Exchange)
    found = groups(HERE, required=required)
    found.even_out()
    assert calls == [found] * exchanged


# ---- the shards of a pool

class CrushFake:
    """A rule with these takes, under which OSDs have weight 1."""

    def __init__(self, takes: Sequence[Take], domain: Mapping[int, int] = {}) -> None:
        self._spread = Spread({**{osd: osd for osd in OSDS}, **domain}, tuple(takes))
        #: Sets, and those that they are to be like.
        self.ordered: List[Tuple[OsdSet, OsdSet]] = []

    def spread(self, rule: int, size: int) -> Spread:
        return self._spread

    def weight_of(self, rule: int, osd: int) -> float:
        return 1.0

    def fewest_chosen(self, rule: int, size: int, osds: Any) -> int:
        return size

    def in_order(self, rule: int, size: int, osds: OsdSet, like: OsdSet = ()) -> OsdSet:
        self.ordered.append((osds, like))
        return tuple(sorted(osds))


ROWS = {osd: Osd(osd, True, 1.0) for osd in OSDS}


def state(crush: Any, pgs: Sequence[PlacedPg], size: int = 4, room: PoolRoom = PoolRoom(),
          deviation: float = 1.0, near: float = 1.0, erasure: bool = False, **pool: Any) -> Shards:
    a_pool = replace(Pool(1, 'p', erasure, size, 1, 0, 8, 8, 8), **pool)
    return Shards(a_pool, pgs, crush, ROWS, None, deviation, room, False, near, None)


def pg(number: int, here: OsdSet, raw: Optional[OsdSet] = None, free: bool = True) -> PlacedPg:
    return PlacedPg('1.%x' % number, here, raw, free)


def test_what_a_shard_cannot_leave() -> None:
    """The lowest bucket of an even choice; else its take."""
    whole = state(CrushFake(NESTED), [pg(0, HERE, HERE)])
    assert whole.fences == [BUCKET_OF] * 4 and whole._uneven == [()] * 4
    odd = (Take(3, frozenset(OSDS), (PAIRS,)), Take(1, frozenset(OSDS[:4]), ()))
    found = state(CrushFake(odd), [pg(0, HERE, HERE)])
    assert found.fences == [dict.fromkeys(OSDS, 0)] * 3 + [dict.fromkeys(OSDS[:4], 1)]
    assert found._uneven == [(PAIRS,)] * 3 + [()]


def test_sets_are_in_the_order_of_the_takes() -> None:
    crush = CrushFake(TWO_TAKES)
    found = state(crush, [pg(0, (21, 11, 20, 10), (31, 30, 11, 10)), pg(1, HERE)])
    assert found.origin == [(10, 11, 20, 21), HERE] and found.raw == [(10, 11, 30, 31), ()]
    # Where CRUSH places a PG, like where it is.
    assert crush.ordered[2:] == [((31, 30, 11, 10), (21, 11, 20, 10)), ((), HERE)]
    for other, fields in ((CrushFake(ONE_TAKE), {}), (CrushFake(TWO_TAKES), {'erasure': True})):
        same = state(other, [pg(0, (21, 11, 20, 10), HERE)], **fields)  # type: ignore[arg-type]
        assert same.origin == [(21, 11, 20, 10)] and other.ordered == []


def test_pgs_that_stay_count_on_their_osds() -> None:
    found = state(CrushFake(ONE_TAKE), [
        pg(0, HERE, (30, 31, 20, 21), free=False), pg(1, (10, 11, NO_OSD, 99), HERE),
        pg(2, HERE, (30, 31, 20, 21))])
    assert list(found.movable_pgs) == [2] and found.raw == [(), (), (30, 31, 20, 21)]
    assert found.count == {**NONE, 10: 3, 11: 3, 20: 2, 21: 2, 99: 1} == found.before
    found.move(2, 0, 30)
    assert found.before[10] == 3 and found.origin[2] == HERE and found.moved == 1


def test_the_bounds_of_osds() -> None:
    """Twelve shards on twelve OSDs."""
    pgs = [pg(number, HERE, HERE) for number in range(3)]
    found = state(CrushFake(ONE_TAKE), pgs)
    assert found.targets is found.near and set(found.near.ideal.values()) == {1.0}
    assert (found.near.low[10], found.near.high[10]) == (1, 1) == (
        found.wide.low[10], found.wide.high[10])
    found = state(CrushFake(ONE_TAKE), pgs, deviation=2.5, near=1.5)
    assert (found.near.low[10], found.near.high[10], found.deviation) == (0, 2, 2.5)
    assert (found.wide.low[10], found.wide.high[10]) == (0, 3)
    assert state(CrushFake(ONE_TAKE), pgs, deviation=0.5).deviation == 1.0
    # CRUSH fills empty OSDs nearly to their share.
    many = state(CrushFake(ONE_TAKE), pgs * 4, deviation=9.0)
    assert (many.filled[10], many.filled[30]) == (0, 3)
    limited = state(CrushFake(ONE_TAKE), pgs, room=PoolRoom({10: 2, 20: 0}, {10: 0.5}))
    assert (limited.limits[10], limited.limits[20], limited.limits[30]) == (5, 3, 3)
    assert limited.surplus(10) == 2.5 and limited.surplus(20) == 2.0


def test_each_take_has_the_shards_that_it_holds() -> None:
    first, second = frozenset(OSDS[:4]), frozenset(OSDS[4:8])
    takes = (Take(2, first, ()), Take(2, second, ()))
    found = state(CrushFake(takes), [pg(0, HERE, HERE), pg(1, (10, 11, NO_OSD, NO_OSD)),
                                     pg(2, (10, 30, 20, 30))], erasure=True)
    assert found._totals() == ([5, 3], [3, 2])


def test_osds_share_what_their_bucket_has() -> None:
    """Bucket 1 has too many shards for its OSDs, and bucket 3 has too few."""
    found = state(CrushFake(ONE_TAKE), [pg(number, HERE, HERE) for number in range(6)])
    assert (found.near.low[10], found.near.high[10]) == (2, 2)
    found.share_within_buckets()
    assert (found.near.low[10], found.near.high[10]) == (2, 3)
    assert (found.near.low[30], found.near.high[30]) == (0, 2)
    assert (found.wide.low[30], found.wide.high[10]) == (0, 3) and found.filled[30] == 1
    # The lowest choice counts.
    nested = state(CrushFake(NESTED), [pg(number, (10, 11, 12, 13)) for number in range(6)])
    nested.share_within_buckets()
    assert nested.near.high[10] == 6
    # A choice whose buckets have unequal numbers of shards has no such targets.
    for takes in ((Take(3, frozenset(OSDS), (PAIRS,)),), (Take(4, frozenset(OSDS), ()),)):
        other = state(CrushFake(takes), [pg(number, HERE, HERE) for number in range(6)])
        before = other.near
        other.share_within_buckets()
        assert other.near is before


def test_groups_and_then_single_shards_move() -> None:
    """From the choice at the top down, in each take."""
    pgs = [pg(number, HERE, HERE) for number in range(6)]
    pool = Pool(1, 'p', False, 4, 1, 0, 6, 6, 6)
    crush: Any = CrushFake(ONE_TAKE)
    found = balanced_shards(pool, pgs, crush, ROWS)
    assert set(found.count.values()) == {2}
    for members in found.here:
        assert sorted(Counter(map(BUCKET_OF.__getitem__, members)).values()) == [2, 2]


@pytest.mark.parametrize('takes, choices', [
    (NESTED, [(0, 0), (0, 1)]), (TWO_TAKES, [(0, 0), (1, 0)]),
    ((Take(3, frozenset(OSDS), (PAIRS,)), Take(1, frozenset(OSDS), ())), [])])
def test_the_order_of_the_choices(monkeypatch: pytest.MonkeyPatch, takes: Sequence[Take],
                                  choices: List[Tuple[int, int]]) -> None:
    """Then each bucket shares what it has."""
    found: List[Tuple[int, int]] = []

    class Groups:
        within_bounds = True

        def __init__(self, shards: Shards, number: int, depth: int) -> None:
            found.append((number, depth))

        def even_out(self) -> None:
            pass

    monkeypatch.setattr(balance_module, '_Groups', Groups)
    pool, crush = Pool(1, 'p', False, 4, 1, 0, 6, 6, 6), CrushFake(takes)  # type: Pool, Any
    balanced = balanced_shards(pool, [pg(number, HERE, HERE) for number in range(6)], crush, ROWS)
    assert found == choices and balanced.near.high[10] == (3 if choices else 2)


#: Hosts with two OSDs each: 0 and 4, 1 and 5, 2 and 6, 3 and 7.
HOSTS = crush_of(dict.fromkeys(range(8), 1.0))


@pytest.mark.parametrize('here, raw, free, after', [
    ((0, 4, 1), (0, 1, 2), True, (0, 2, 1)), ((0, 4, 1), (0, 1, 2), False, (0, 4, 1)),
    ((0, 4, 1), (0, 1), True, (0, 4, 1)), ((0, 4), (0, 1, 2), True, (0, 4)),
    ((0, 5, 2), (0, 1, 2), True, (0, 5, 2))])
def test_shards_that_a_new_rule_does_not_allow_to_stay(here: OsdSet, raw: OsdSet, free: bool,
                                                       after: OsdSet) -> None:
    pool, rows = Pool(1, 'p', False, 3, 1, 0, 8, 8, 8), {osd: ROWS[10] for osd in range(8)}
    pgs = [pg(0, here, raw, free), pg(1, (7, 6, 5), (7, 6, 5))]
    for new_rule, expected in ((True, after), (False, here)):
        found = Shards(pool, pgs, HOSTS, rows, None, 1.0, PoolRoom(), new_rule, 1.0, None)
        assert [tuple(row) for row in found.here] == [expected, (7, 6, 5)]
        assert found.required == (1 if expected != here else 0) and found.moved == 0
        assert found.origin[0] == here and sum(found.count.values()) == len(here) + 3
        assert found.count[2] == found.before[2] == expected.count(2)
        assert found.result().required == found.required


def pairs(steps: Sequence[Tuple[str, int, str]]) -> CrushRules:
    """Three hosts with the OSDs of the buckets."""
    return CrushRules.from_dump({
        'types': [{'type_id': 0, 'name': 'osd'}, {'type_id': 1, 'name': 'host'},
                  {'type_id': 11, 'name': 'root'}],
        'buckets': [{'id': -1, 'name': 'default', 'type_id': 11, 'items': [
            {'id': -2 - host, 'weight': 4 * 65536} for host in range(3)]}, *(
                {'id': -2 - host, 'name': 'h%d' % host, 'type_id': 1, 'items': [
                    {'id': osd, 'weight': 65536} for osd in OSDS[4 * host:4 * host + 4]]}
                for host in range(3))],
        'rules': [{'rule_id': 0, 'rule_name': 'r', 'steps': [
            {'op': 'take', 'item': -1}, *({'op': op, 'num': number, 'type': kind}
                                          for op, number, kind in steps), {'op': 'emit'}]}]})


@pytest.mark.parametrize('here, raw, pool, after', [
    ((10, 11, 12, 20), (20, 22, 10, 13), {}, (10, 11, 22, 20)),
    ((10, 20, 11, 21), (10, 11, 20, 21), {}, (10, 20, 11, 21)),
    # Local groups stay together, which the mons do not require.
    ((10, 20, 11, 21), (10, 11, 20, 21), {'erasure': True, 'local_groups': True},
     (21, 20, 11, 10))])
def test_groups_that_a_new_rule_does_not_allow_to_stay(here: OsdSet, raw: OsdSet,
                                                       pool: Dict[str, Any],
                                                       after: OsdSet) -> None:
    rules = pairs([('choose_indep', 2, 'host'), ('choose_indep', 2, 'osd')])
    a_pool = replace(Pool(1, 'p', False, 4, 1, 0, 8, 8, 8), **pool)
    found = Shards(a_pool, [pg(0, here, raw)], rules, ROWS, None, 1.0, PoolRoom(), True, 1.0, None)
    assert tuple(found.here[0]) == after


def test_a_pg_that_another_rule_does_not_allow_to_be_moved_stays() -> None:
    pool, rows = Pool(1, 'p', False, 3, 1, 0, 8, 8, 8), {osd: ROWS[10] for osd in range(8)}
    found = Shards(pool, [pg(0, (0, 1, 2), (0, 1, 2))], HOSTS, rows, None, 1.0, PoolRoom(), False,
                   1.0, None)
    # OSDs 0 to 3 may not be together.
    found._earlier = EarlierRule((), 3, {osd: osd // 4 for osd in range(8)}, set(range(8)))
    assert found._may_move(0, (0, 1, 2)) is True
    found.here[0] = [0, 1, 3]
    assert found._may_move(0, (0, 1, 2)) is False
    found._earlier = EarlierRule((), 3, {osd: osd for osd in range(8)}, set(range(8)))
    assert found._may_move(0, (0, 1, 2)) is True


def test_the_rule_from_before() -> None:
    pool, rows = Pool(1, 'p', False, 3, 1, 0, 8, 8, 8), {osd: ROWS[10] for osd in range(8)}
    rows[3] = Osd(3, True, 0.0)
    found = Shards(pool, [pg(0, (0, 1, 2), (0, 1, 2))], HOSTS, rows, None, 1.0, PoolRoom(), False,
                   1.0, HOSTS)
    # One OSD of each host, with a weight.
    assert [osd for osd in range(8) if found.obeys_earlier(0, [0], [osd])] == [0, 4, 7]


def test_chains_are_limited() -> None:
    for level in (groups(HERE), state(CrushFake(ONE_TAKE), [pg(0, HERE, HERE)])):
        assert level._checks_left == CHAIN_CHECKS


def test_a_rule_under_which_the_mons_keep_no_upmaps() -> None:
    pool = Pool(1, 'p', False, 3, 1, 0, 8, 8, 8)
    assert why_unbalanced(pool, HYBRID) == 'the mons keep no upmaps under the CRUSH rule'


def test_what_an_earlier_rule_allows() -> None:
    """Only one of the OSDs 30 and 31."""
    both = State([HERE], earlier=EARLIER)
    assert both.two_rules is True and State([HERE]).two_rules is False
    assert State([HERE]).obeys_earlier(0, [0, 1], [30, 31]) is True
    assert both.obeys_earlier(0, [0, 1], [30, 31]) is False
    assert both.obeys_earlier(0, [0, 1], [30, 32]) is True
    one = State([(30, 10, 20, 21)], earlier=EARLIER)
    assert one.obeys_earlier(0, [1], [31]) is False and one.obeys_earlier(0, [0], [31]) is True
    assert one.legal(0, 1, 11) is True and one.legal(0, 1, 31) is False
