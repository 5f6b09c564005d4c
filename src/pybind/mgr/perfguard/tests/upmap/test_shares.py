# SPDX-License-Identifier: LGPL-2.1-or-later
"""Drains by fill, on what Ceph's own CRUSH gives: no OSD nearfull, and the rest spread evenly."""
from collections import Counter
from pathlib import Path
from typing import Dict, List, NamedTuple

import pytest

from perfguard.cluster.crush_rule import Group, Spread, Take
from perfguard.cluster.types import OsdSet, Space
from perfguard.upmap.balance import Balance, balance
from perfguard.upmap.shares import (PoolRoom, Room, Targets, bucket_targets, ideals,
                                    in_whole_groups, targets, widened_in_buckets)

from ..fakes.crushmaps import Map
from .test_balance import FIRSTN, INDEP, Outcome, change, check, hosts

#: Bytes of one shard; of an OSD of CRUSH weight 1.
SHARD, SIZE = 10, 1000
NEARFULL = 0.85


class Drained(NamedTuple):
    outcome: Outcome
    space: Dict[int, Space]

    def placed(self, space: Dict[int, Space]) -> Balance:
        each = self.outcome
        room = Room(space, NEARFULL).of_pool(SHARD)
        return balance(each.pool, each.pgs, each.crush, each.osds, room=room)


def drained(directory: Path, erasure: bool, fill: float = 0.75, weight: float = 1.0) -> Drained:
    """One OSD of ten hosts is drained; OSDs of every other host are larger by `weight`."""
    rule = INDEP if erasure else FIRSTN
    racks = hosts(10, 2)
    for host in racks[0][::2]:
        host.update(dict.fromkeys(host, weight))
    before = Map(racks, rule)
    after = Map([[{osd: 0.0001 if osd == 3 else each for osd, each in host.items()}
                  for host in racks[0]]], rule)
    found = change(directory, before, after, 3, 256, erasure)
    there = Counter(osd for pg in found.pgs for osd in pg.here)
    # Data of other pools fills every OSD to the same share.
    return Drained(found, {osd: Space(int(there[osd] * SHARD / fill), there[osd] * SHARD)
                           for osd in there})


def fills(found: Balance, drained: Drained, space: Dict[int, Space]) -> Dict[int, float]:
    return {osd: (row.used_bytes + SHARD * (found.after.get(osd, 0) - found.before.get(osd, 0)))
            / row.total_bytes for osd, row in space.items()}


@pytest.mark.parametrize('erasure', [False, True])
@pytest.mark.parametrize('weight', [1.0, 2.0])
def test_no_osd_is_nearfull_after_a_drain(tmp_path: Path, erasure: bool, weight: float) -> None:
    found = drained(tmp_path, erasure, weight=weight)
    # One OSD has hardly any room, for reasons of its own.
    there = found.space[0]
    space = {**found.space, 0: there._replace(
        used_bytes=int(NEARFULL * there.total_bytes) - SHARD)}
    careless = balance(found.outcome.pool, found.outcome.pgs, found.outcome.crush,
                       found.outcome.osds)
    assert max(fills(careless, found, space).values()) > NEARFULL
    result = found.placed(space)
    after = fills(result, found, space)
    assert result.after[3] == 0 and max(after.values()) <= NEARFULL
    check(found.outcome._replace(result=result))


def test_shards_of_a_drained_osd_go_beyond_the_share_where_only_there_is_room(
        tmp_path: Path) -> None:
    found = drained(tmp_path, False)
    roomy = {0, 1, 100, 101, 2, 102}
    space = {osd: row if osd in roomy else row._replace(used_bytes=int(0.9 * row.total_bytes))
             for osd, row in found.space.items()}
    space = {osd: Space(row.total_bytes * (3 if osd in roomy else 1), row.used_bytes)
             for osd, row in space.items()}
    result = found.placed(space)
    assert result.after[3] == 0
    gained = {osd for osd, number in result.after.items() if number > result.before.get(osd, 0)}
    assert gained <= roomy


def test_a_drained_osd_keeps_nothing_where_there_is_no_room(tmp_path: Path) -> None:
    found = drained(tmp_path, False)
    space = {osd: row._replace(used_bytes=int(0.9 * row.total_bytes))
             for osd, row in found.space.items()}
    result = found.placed(space)
    assert result.after[3] == 0
    assert sum(result.after.values()) == sum(result.before.values())


def test_the_emptier_of_two_osds_comes_first(tmp_path: Path) -> None:
    found = drained(tmp_path, False, fill=0.5)
    plain = found.placed(found.space)
    emptier = {osd: row._replace(used_bytes=row.used_bytes // 2) if osd % 2 else row
               for osd, row in found.space.items()}
    result = found.placed(emptier)

    def gains(each: Balance) -> int:
        return sum(number - each.before.get(osd, 0) for osd, number in each.after.items()
                   if osd % 2 and osd != 3)

    assert gains(result) >= gains(plain) and result.deviation <= plain.deviation + 1.0


def test_room_counts_the_pools_that_are_placed_already() -> None:
    room = Room({0: Space(1000, 700), 1: Space(0, 0), 2: Space(1000, 900)}, 0.85)
    assert room.of_pool(50) == PoolRoom({0: 3, 2: 0}, {0: 0.7, 2: 0.9})
    room.add(0, 100)
    room.add(1, 100)
    room.add(2, -2000)
    assert room.of_pool(50) == PoolRoom({0: 1, 2: 17}, {0: 0.8, 2: 0.0})
    assert room.of_pool(0).more_shards == {}
    assert room.has(0, 50) and not room.has(0, 51) and not room.has(1, 0) and not room.has(9, 0)


def test_many_pools_add_up(tmp_path: Path) -> None:
    """Of each pool an OSD may hold one shard more than its share; of all pools it does not."""
    found = drained(tmp_path, False)
    room = Room({osd: Space(SIZE * 100, 0) for osd in found.space}, NEARFULL)
    careless: 'Counter[int]' = Counter()
    careful: 'Counter[int]' = Counter()
    each = found.outcome
    pools: List[OsdSet] = []
    for _ in range(8):
        result = balance(each.pool, each.pgs, each.crush, each.osds, room=room.of_pool(SHARD))
        for osd, number in result.after.items():
            room.add(osd, number * SHARD)
        careful.update(result.after)
        careless.update(each.result.after)
        pools.append(tuple(result.after.values()))

    def spread(counts: 'Counter[int]') -> int:
        held = [number for osd, number in counts.items() if osd != 3]
        return max(held) - min(held)

    assert spread(careful) <= spread(careless)
    assert len(pools) == 8


# ---- targets

def own(*osds: int) -> Dict[int, int]:
    """The rule chooses OSDs: each is a failure domain."""
    return dict(zip(osds, osds))


#: Two OSDs of each of three racks, each on a host of its own.
RACK_OF = {0: -1, 1: -1, 2: -2, 3: -2, 4: -3, 5: -3}


@pytest.mark.parametrize('spread, weights, pgs, expected', [
    # Host -1 has one shard of each PG at most; its OSDs share that by weight.
    (Spread({0: -1, 1: -1, 2: -2, 3: -3}, (Take(2, {0, 1, 2, 3}, ()),)),
     {0: 3.0, 1: 1.0, 2: 1.0, 3: 1.0}, 10, [{0: 7.5, 1: 2.5, 2: 5.0, 3: 5.0}]),
    # Nothing is above its limit, and an OSD that is to be emptied has no share.
    (Spread(own(0, 1, 2, 3), (Take(2, {0, 1, 2, 3}, ()),)),
     {0: 2.0, 1: 1.0, 2: 1.0, 3: 0.0}, 10, [{0: 10.0, 1: 5.0, 2: 5.0, 3: 0.0}]),
    (Spread(own(0, 1), (Take(2, {0, 1}, ()),)), {0: 0.0, 1: 0.0}, 10, [{0: 0.0, 1: 0.0}]),
    # Two shards in each of two racks: a rack has two of a PG, or none.
    (Spread(own(*RACK_OF), (Take(4, RACK_OF.keys(), (Group(2, RACK_OF),)),)),
     {0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0, 4: 3.0, 5: 1.0}, 10,
     [{0: 5.0, 1: 5.0, 2: 5.0, 3: 5.0, 4: 10.0, 5: 10.0}]),
    (Spread(own(*RACK_OF), (Take(4, RACK_OF.keys(), (Group(2, RACK_OF),)),)),
     {0: 3.0, 1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0, 5: 1.0}, 10,
     [{0: 10.0, 1: 10.0, 2: 5.0, 3: 5.0, 4: 5.0, 5: 5.0}]),
    # Three copies, at most two in a rack: a rack may have one of a PG.
    (Spread(own(0, 1, 2, 3), (Take(3, {0, 1, 2, 3}, (Group(2, RACK_OF),)),)),
     {0: 3.0, 1: 1.0, 2: 2.0, 3: 2.0}, 10, [{0: 10.0, 1: 5.0, 2: 7.5, 3: 7.5}]),
    # Half the weight of an OSD counts for each of two takes.
    (Spread(own(0, 1, 2), (Take(1, {0, 1}, ()), Take(1, {1, 2}, ()))),
     {0: 1.0, 1: 1.0, 2: 1.0}, 9, [{0: 6.0, 1: 3.0}, {1: 3.0, 2: 6.0}])])
def test_ideals(spread: Spread, weights: Dict[int, float], pgs: int,
                expected: List[Dict[int, float]]) -> None:
    shards = [pgs * take.shards for take in spread.takes]
    assert ideals(weights, spread, shards, [pgs] * len(shards)) == expected


@pytest.mark.parametrize('within, low, high', [
    # As the balancer, which computes in single precision, may count 1.0 as more than 1.
    (1.0, {0: 2, 1: 5, 2: 0, 3: 0}, {0: 3, 1: 5, 2: 0, 3: 1}),
    (1.1, {0: 2, 1: 4, 2: 0, 3: 0}, {0: 3, 1: 6, 2: 0, 3: 1}),
    (0.5, {0: 3, 1: 5, 2: 0, 3: 1}, {0: 2, 1: 5, 2: 0, 3: 0})])
def test_targets_are_within_the_deviation(within: float, low: Dict[int, int],
                                          high: Dict[int, int]) -> None:
    weights = {0: 1.0, 1: 1.0, 2: 0.0, 3: 1.0}
    by_take = [{0: 2.5, 1: 4.0}, {1: 1.0, 2: 0.0, 3: 0.5}]
    ideal = {0: 2.5, 1: 5.0, 2: 0.0, 3: 0.5}
    assert targets(weights, by_take, within, dict.fromkeys(weights, 9)) == Targets(
        ideal, low, high)
    assert targets(weights, by_take, within, {0: 1, 1: 4, 2: 0, 3: 0}) == Targets(
        ideal, {0: 1, 1: 4, 2: 0, 3: 0}, {0: 1, 1: min(4, high[1]), 2: 0, 3: 0})


def test_crush_fills_osds_without_shards_to_three_quarters_of_their_share() -> None:
    ideal = {0: 4.0, 1: 4.0, 2: 4.0, 3: 1.3, 4: 4.0, 5: 4.0}
    low = {0: 2, 1: 2, 2: 2, 3: 0, 4: 4, 5: 2}
    count, limits = {0: 1, 5: 0}, {0: 9, 1: 9, 2: 1, 3: 9, 4: 9, 5: 3}
    assert Targets(ideal, low, low).filled(count, limits) == {
        0: 2, 1: 3, 2: 1, 3: 0, 4: 4, 5: 3}


@pytest.mark.parametrize('within, low, high', [
    (1.0, {-1: 5, -2: 1}, {-1: 5, -2: 2}),
    (1.2, {-1: 4, -2: 1}, {-1: 6, -2: 2}),
    # No whole number of groups is near enough for all OSDs of -2: the next ones are.
    (0.5, {-1: 5, -2: 1}, {-1: 5, -2: 2})])
def test_targets_of_buckets(within: float, low: Dict[int, int], high: Dict[int, int]) -> None:
    weights = {0: 1.0, 1: 1.0, 2: 1.0, 3: 0.0, 4: 1.0}
    ideal = {0: 5.0, 1: 5.0, 2: 1.5, 3: 7.0, 4: 1.5}
    buckets = {-1: [0, 1], -2: [2, 3, 4]}
    assert bucket_targets(weights, ideal, buckets, 2, within, {-1: 9, -2: 9}) == Targets(
        {-1: 5.0, -2: 1.5}, low, high)
    assert bucket_targets(weights, ideal, buckets, 2, within, {-1: 3, -2: 0}) == Targets(
        {-1: 5.0, -2: 1.5}, {-1: 3, -2: 0}, {-1: 3, -2: 0})


def test_the_only_number_of_groups_that_is_near_enough_is_the_target() -> None:
    assert bucket_targets({0: 1.0, 1: 1.0}, {0: 2.25, 1: 2.25}, {-1: [0, 1]}, 2, 0.5,
                          {-1: 9}) == Targets({-1: 2.25}, {-1: 2}, {-1: 2})


def test_targets_that_whole_groups_can_reach() -> None:
    ideal = {-1: 2.4, -2: 3.0, -3: 3.0, -4: 2.4}
    assert in_whole_groups(
        Targets(ideal, {-1: 3, -2: 1, -3: 4, -4: 1}, {-1: 2, -2: 5, -3: 2, -4: 2}),
        {-1: 9, -2: 4, -3: 9, -4: 2}) == Targets(
            ideal, {-1: 2, -2: 1, -3: 3, -4: 1}, {-1: 3, -2: 4, -3: 3, -4: 2})


@pytest.mark.parametrize('count, low, high', [
    # The bounds of both buckets are just kept.
    ({0: 6, 1: 0, 2: 4, 3: 0}, {0: 2, 1: 2, 2: 2, 3: 2}, {0: 3, 1: 3, 2: 3, 3: 3}),
    # One too many in the first, of which OSD 1 has no room for; one too few in the second.
    ({0: 7, 1: 2, 2: 3, 3: 0}, {0: 2, 1: 2, 2: 1, 3: 1}, {0: 5, 1: 3, 2: 3, 3: 3}),
    ({0: 4, 1: 3, 2: 0, 3: 0}, {0: 2, 1: 2, 2: 0, 3: 0}, {0: 4, 1: 3, 2: 3, 3: 3})])
def test_targets_within_buckets(count: Dict[int, int], low: Dict[int, int],
                                high: Dict[int, int]) -> None:
    ideal = dict.fromkeys(range(4), 2.5)
    before = Targets(ideal, dict.fromkeys(range(4), 2), dict.fromkeys(range(4), 3))
    assert widened_in_buckets(before, dict.fromkeys(range(4), 1.0), Group(1, {
        0: -1, 1: -1, 2: -2, 3: -2}), own(0, 1, 2, 3), count, 1.0, {0: 9, 1: 3, 2: 9, 3: 9}
        ) == Targets(ideal, low, high)


def test_no_osd_has_more_than_one_shard_of_a_pg_of_its_bucket() -> None:
    """A rack has two shards of each of four PGs; and an OSD that is to be emptied gets none."""
    bounds = dict.fromkeys(range(3), 2)
    assert widened_in_buckets(Targets({}, bounds, {0: 2, 1: 2, 2: 0}), {0: 3.0, 1: 1.0, 2: 0.0},
                              Group(2, dict.fromkeys(range(3), -1)), own(0, 1, 2),
                              {0: 4, 1: 3, 2: 1}, 1.0, dict.fromkeys(range(3), 9)) == Targets(
        {}, {0: 2, 1: 2, 2: 0}, {0: 4, 1: 4, 2: 0})
