# SPDX-License-Identifier: LGPL-2.1-or-later
"""The balanced places of the PGs of one pool, such that all OSDs have their share and little data
moves.

Single shards move from OSDs with too many to OSDs with too few. First shards that CRUSH places
there, since they need no upmap; then any that the rule allows; if none is left, two shards in a
chain (from A to B in one PG, from B to C in another). Where a rule chooses several OSDs in each
bucket, the shards of a PG leave a bucket only together: such groups move in the same way, before
single shards move between the OSDs of a bucket.
"""
import enum
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from heapq import heappop, heappush
from itertools import islice, product
from typing import (AbstractSet, Collection, Dict, Iterator, List, Mapping, NamedTuple, Optional,
                    Sequence, Set, Tuple)

from ..cluster.crush import CrushRules
from ..cluster.crush_rule import Group
from ..cluster.types import NO_OSD, Balancing, Osd, OsdSet, Pool, out_osds
from .grouped_sets import EarlierRule, GroupedSets
from .levels import ShardLevel
from .pins import broken_rule
from .shares import (ROUNDING, PoolRoom, Targets, bucket_targets, ideals, in_whole_groups, targets,
                     weights_of, widened_in_buckets)


class PlacedPg(NamedTuple):
    pgid: str
    #: Where its data is.
    here: OsdSet
    #: Where CRUSH alone places it; None: unknown, so it stays.
    raw: Optional[OsdSet]
    #: Whether it may be moved.
    may_move: bool = True


class BalanceLimit(str, enum.Enum):
    """What keeps OSDs further from their ideal than the deviation that was asked for."""
    #: The budget.
    MOVEMENT = 'MOVEMENT'
    #: OSDs below their ideal have no room for more.
    ROOM = 'ROOM'
    #: The rule chooses several OSDs in each bucket, and whole groups of shards cannot give each
    #: bucket exactly its share.
    GROUPS = 'GROUPS'
    #: PGs that may not be moved.
    STAYING_PGS = 'STAYING_PGS'
    #: No further legal move was found.
    RULE = 'RULE'

    @property
    def text(self) -> str:
        return _LIMIT_TEXTS[self]


_LIMIT_TEXTS = {
    BalanceLimit.MOVEMENT: 'max_extra_movement',
    BalanceLimit.ROOM: 'OSDs that would be nearfull',
    BalanceLimit.GROUPS: 'a CRUSH rule that places several shards in each bucket',
    BalanceLimit.STAYING_PGS: 'PGs that must stay, such as those with upmaps of others',
    BalanceLimit.RULE: 'the failure domains of a CRUSH rule'}


@dataclass(frozen=True)
class Balance:
    #: The new sets of the PGs that move.
    finals: Mapping[str, OsdSet]
    targets: Targets
    #: PGs by OSD before and after.
    before: Mapping[int, int]
    after: Mapping[int, int]
    #: None: every OSD is within the deviation that was asked for.
    limit: Optional[BalanceLimit] = None
    #: Shards that a new rule does not allow to stay.
    required: int = 0

    @property
    def least(self) -> int:
        """Shards that any plan must move to bring every OSD within 1 of its ideal."""
        high, low, before = self.targets.high, self.targets.low, self.before
        surplus = sum(max(0, before[osd] - highest) for osd, highest in high.items())
        lacking = sum(max(0, lowest - before[osd]) for osd, lowest in low.items())
        return max(surplus, lacking)

    @property
    def deviation(self) -> float:
        """Greatest distance of an OSD from its ideal, in PGs."""
        return max((abs(self.after.get(osd, 0) - ideal)
                    for osd, ideal in self.targets.ideal.items()), default=0.0)


def is_merging(pool: Pool) -> bool:
    """ceph-mgr merges its PGs one by one, which may take hours. The balancer leaves it alone."""
    return pool.pg_num > min(pool.pg_num_target, pool.pg_num_pending)


def is_balanced(pool: Pool, crush: CrushRules, balancing: Balancing) -> bool:
    """Whether its PGs end balanced, rather than where CRUSH places them."""
    return (crush.balances(pool.crush_rule, pool.size) and balancing.covers(pool.id)
            and not is_merging(pool))


def why_unbalanced(pool: Pool, crush: CrushRules) -> str:
    """Why the CRUSH rule of a pool keeps its PGs from being balanced; '' if it does not."""
    if not crush.keeps_upmaps(pool.crush_rule, pool.size):
        return 'the mons keep no upmaps under the CRUSH rule'
    if not crush.balances(pool.crush_rule, pool.size):
        return 'perfguard does not know the shares of OSDs under the CRUSH rule, which has MSR ' \
            'steps or takes an OSD'
    return ''


def balance(pool: Pool, pgs: Sequence[PlacedPg], crush: CrushRules,
            osds: Mapping[int, Osd], budget: Optional[int] = None,
            deviation: float = 1.0, room: PoolRoom = PoolRoom(),
            new_rule: bool = False, earlier: Optional[CrushRules] = None) -> Balance:
    """The end state of a pool; never raises. Takes a few microseconds a shard.

    `new_rule`: the rule of `pool`, for which `finds_lawful_sets` is true, need not allow PGs to be
    where they are. Those that it does not allow move first, with as few shards as possible.
    `earlier`: CRUSH before the change, in which that rule must allow the new sets as well, if
    `finds_lawful_sets` is true in both; a PG without such a set ends where `crush` places it.

    `deviation`: PGs that an OSD may be away from its ideal before shards move for the balance
    alone. Shards that CRUSH moves anyway are balanced to within 1.

    `budget`: shards that may move in all, besides those that leave an OSD without weight and those
    that a new rule does not allow to stay; None: unlimited. The fullest and the emptiest OSDs are
    served first.

    `room`: no OSD gets more than it has room for. If that would keep shards on an OSD without
    weight, they go to any OSDs with room, beyond their share, or to where CRUSH places them if none
    has room.
    """
    return balanced_shards(pool, pgs, crush, osds, budget, deviation, room, new_rule,
                           earlier=earlier).result()


def balanced_shards(pool: Pool, pgs: Sequence[PlacedPg], crush: CrushRules,
                    osds: Mapping[int, Osd], budget: Optional[int] = None,
                    deviation: float = 1.0, room: PoolRoom = PoolRoom(),
                    new_rule: bool = False, near: float = 1.0,
                    earlier: Optional[CrushRules] = None) -> 'Shards':
    """The shards of a pool, balanced; upmap/evening.py moves them further. Arguments as in
    `balance`; `near`: PGs that an OSD may be from its ideal for shards that CRUSH moves anyway
    (`deviation`: for those that move for the balance alone)."""
    # The same state leads to the same answer, in whatever order it is given.
    ordered = sorted(pgs, key=lambda pg: (len(pg.pgid), pg.pgid))
    shards = Shards(pool, ordered, crush, osds, budget, deviation, room, new_rule, near, earlier)
    # First whole groups of shards between buckets, for rules that choose several OSDs per bucket.
    # If all buckets of a choice have equally many shards of a PG (`even`), these leave a bucket
    # only together: from the top choice down.
    for number, take in enumerate(shards.takes):
        for depth in range(len(take.groups) if take.even else 0):
            groups = _Groups(shards, number, depth)
            groups.even_out()
            shards.whole_groups_fit = shards.whole_groups_fit and groups.within_bounds
    # Then single shards between OSDs. Where groups cannot give a bucket exactly its share, its OSDs
    # have nothing to exchange with others, so their targets are widened.
    shards.share_within_buckets()
    shards.even_out()
    return shards


class Shards(ShardLevel):
    """The shards of a pool on OSDs."""

    def __init__(self, pool: Pool, pgs: Sequence[PlacedPg], crush: CrushRules,
                 osds: Mapping[int, Osd], budget: Optional[int], deviation: float,
                 room: PoolRoom, new_rule: bool, near: float,
                 earlier: Optional[CrushRules]) -> None:
        """The arguments are those of balanced_shards. With `new_rule`, the shards that the rule
        does not allow to stay are moved here already."""
        super().__init__()
        self.pool, self.pgs, self._budget, self._fill = pool, pgs, budget, room.fill
        spread = crush.spread(pool.crush_rule, pool.size)
        self.takes, self.domain, self.by_place = spread.takes, spread.domain, pool.erasure
        # A shard cannot leave its take, nor its lowest bucket if all have equally many shards of a
        # PG: whole groups move between these.
        fences = [take.groups[-1].bucket_of if take.groups and take.even
                  else dict.fromkeys(take.osds, number) for number, take in enumerate(self.takes)]
        self.fences = [fence for fence, take in zip(fences, self.takes)
                       for _ in range(take.shards)]
        #: By place: the choices whose buckets need not have equally many shards of a PG.
        self._uneven = [() if take.even else take.groups
                        for take in self.takes for _ in range(take.shards)]
        self.origin = [self._ordered(crush, pg.here) for pg in pgs]
        raws = [self._ordered(crush, pg.raw or (), pg.here) for pg in pgs]
        self.weights = weights_of(pool, crush, osds, spread)
        shards_by_osd = Counter(osd for members in self.origin for osd in members)
        self.limits = {osd: shards_by_osd[osd] + room.more_shards[osd]
                       if osd in room.more_shards else len(pgs) for osd in self.weights}
        self._earlier = None if earlier is None else _earlier_rule(pool, earlier, osds)
        #: Shards that the rule does not allow to stay.
        self.required = 0
        self.here = [list(members) for members in self.origin]
        if new_rule:
            self._obey_rule(raws, crush, osds)
            shards_by_osd = Counter(osd for members in self.here for osd in members)
        self.movable_pgs = [pg_number for pg_number, pg in enumerate(pgs)
                            if pg.may_move and self._may_move(pg_number, raws[pg_number])]
        movable_pgs = frozenset(self.movable_pgs)
        self.raw = [raw if pg_number in movable_pgs else () for pg_number, raw in enumerate(raws)]
        self.count = {osd: shards_by_osd[osd] for osd in (*self.weights, *shards_by_osd)
                      if osd != NO_OSD}
        #: By take: OSD -> ideal number of shards.
        self.ideals = ideals(self.weights, spread, *self._totals())
        self.deviation = max(1.0, deviation)
        #: `near` (for shards that CRUSH moves anyway) and `wide` (for others) may be widened later.
        self.targets = self.near = targets(self.weights, self.ideals, near, self.limits)
        self.wide = targets(self.weights, self.ideals, self.deviation, self.limits)
        self.filled = self.wide.filled(self.count, self.limits)
        #: `count` before the balance.
        self.before = dict(self.count)
        #: Shards, besides the required ones, that are not where their data is.
        self.moved = 0
        #: The budget did not allow a move.
        self.refused = False
        #: Whole groups move between buckets, and each bucket has as many as it should.
        self.whole_groups_fit = any(take.even and take.groups for take in self.takes)

    def _obey_rule(self, raws: Sequence[OsdSet], crush: CrushRules,
                   osds: Mapping[int, Osd]) -> None:
        """Move the shards that a new rule does not allow to stay, and count them (`required`)."""
        out, size = out_osds(osds), self.pool.size
        to_check = {pg_number for pg_number, members in enumerate(self.origin)
                    if self.pgs[pg_number].may_move and len(members) == len(raws[pg_number]) == size
                    # The mons keep an upmap with which a local group of an LRC is in several
                    # buckets, so GroupedSets checks all PGs of such a pool.
                    and (self.pool.local_groups and self.takes[0].groups
                         or broken_rule(self.pool, tuple(members), crush, out))}
        sets = self._lawful_sets(raws, to_check)
        self.here = [list(members) for members in sets]
        self.required = sum(osd != before for members, origin in zip(self.here, self.origin)
                            for osd, before in zip(members, origin))

    def _lawful_sets(self, raws: Sequence[OsdSet],
                     to_check: AbstractSet[int]) -> List[Sequence[int]]:
        """The set of each PG once those of the PGs `to_check` (by number), which may break the
        rule, obey it."""
        groups = self.takes[0].groups
        if groups:
            return GroupedSets(groups, self.pool, self.domain, self.weights, self.limits,
                               self._earlier).place(self.origin, raws, to_check)
        return LawfulSets(self.domain, self.weights, self.limits, self._earlier).place(
            self.origin, raws, to_check)

    def _ordered(self, crush: CrushRules, osds: OsdSet, like: OsdSet = ()) -> OsdSet:
        """A set of OSDs in the order of the takes; an acting set may have another order."""
        if self.by_place or len(self.takes) < 2:
            return osds
        return crush.in_order(self.pool.crush_rule, self.pool.size, osds, like)

    def _may_move(self, pg_number: int, raw: Sequence[int]) -> bool:
        """Whether a PG may be balanced: its set and that of CRUSH (`raw`) are complete, each shard
        is in its take, and the earlier rule allows where `_obey_rule` has put it."""
        members = self.here[pg_number]
        return (len(members) == len(raw) == self.pool.size == len(self.fences)
                and all([osd in fence for osd, fence in zip(members, self.fences)])
                and (tuple(members) == self.origin[pg_number]
                     or self.obeys_earlier(pg_number, range(self.pool.size), members)))

    def _totals(self) -> Tuple[List[int], List[int]]:
        """By take: how many shards it holds, and how many PGs with at least one shard in it."""
        shards, pgs = [], []
        begin = 0
        for take in self.takes:
            shards_by_pg = [sum([osd in take.osds for osd in members[begin:begin + take.shards]])
                            for members in self.here]
            shards.append(sum(shards_by_pg))
            pgs.append(len(shards_by_pg) - shards_by_pg.count(0))
            begin += take.shards
        return shards, pgs

    def share_within_buckets(self) -> None:
        """Widen the targets of the OSDs in a bucket that has too many or too few shards for them,
        so that its OSDs share these evenly: they have nothing to exchange with other buckets. Only
        for takes whose lowest buckets shards leave in whole groups."""
        for take in self.takes:
            if not take.even or not take.groups:
                continue
            for_bucket = partial(widened_in_buckets, weights=self.weights, group=take.groups[-1],
                                 domain=self.domain, count=self.count, limits=self.limits)
            self.near = for_bucket(self.near, within=1.0)
            self.wide = for_bucket(self.wide, within=self.deviation)
        self.filled = self.wide.filled(self.count, self.limits)

    def legal(self, pg_number: int, place: int, osd: int) -> bool:
        return super().legal(pg_number, place, osd) and all(
            self._bucket_has_room(group, pg_number, place, osd) for group in self._uneven[place]) \
            and self.obeys_earlier(pg_number, [place], [osd])

    @property
    def two_rules(self) -> bool:
        return self._earlier is not None

    def obeys_earlier(self, pg_number: int, places: Collection[int], osds: Sequence[int]) -> bool:
        """Whether the rule from before allows these OSDs at these places of a PG as well."""
        if self._earlier is None:
            return True
        members = [osd for place, osd in enumerate(self.here[pg_number]) if place not in places]
        for osd in osds:
            if not self._earlier.beside(members)(osd):
                return False
            members.append(osd)
        return True

    def _bucket_has_room(self, group: Group, pg_number: int, place: int, osd: int) -> bool:
        """Whether the bucket of an OSD may have one more shard of a PG, if that comes from this
        place: it has fewer than the rule allows, and the PG is not in more buckets afterwards."""
        buckets = [group.bucket_of.get(member) for member in self.here[pg_number]]
        origin, bucket = buckets.pop(place), group.bucket_of[osd]
        return bucket == origin or (buckets.count(bucket) < group.shards
                                    and (bucket in buckets or origin not in buckets))

    def surplus(self, osd: int) -> float:
        """Shards beyond the share of an OSD, plus its fill, which is below 1: of two OSDs that lack
        as much, the emptier one is first."""
        return self.count[osd] - self.targets.ideal[osd] + self._fill.get(osd, 0.0)

    def affords(self, giver: int, moves: int = 1) -> bool:
        return self.within_budget(moves) or not self.weights.get(giver)

    def within_budget(self, moves: int) -> bool:
        """Whether so many more shards may move within the budget. If not, this is noted in
        `refused`, for `_limit`."""
        within = self._budget is None or self.moved + moves <= self._budget
        self.refused = self.refused or not within
        return within

    def move(self, pg_number: int, place: int, osd: int) -> None:
        members, origin = self.here[pg_number], self.origin[pg_number][place]
        self.moved += (osd != origin) - (members[place] != origin)
        self.count[members[place]] -= 1
        self.count[osd] += 1
        members[place] = osd

    def result(self) -> Balance:
        finals = {pg.pgid: tuple(members) for pg, members, origin
                  in zip(self.pgs, self.here, self.origin) if tuple(members) != origin}
        reached = Balance(finals, self.targets, self.before, dict(self.count))
        return replace(reached, required=self.required, limit=(
            self._limit() if reached.deviation > self.deviation - ROUNDING else None))

    def _limit(self) -> BalanceLimit:
        """What keeps an OSD from its ideal; the first of several."""
        if self.refused:
            return BalanceLimit.MOVEMENT
        if any(self.limits[osd] <= self.count[osd] < ideal - ROUNDING
               for osd, ideal in self.targets.ideal.items()):
            return BalanceLimit.ROOM
        if self.whole_groups_fit and self.within_bounds:
            return BalanceLimit.GROUPS
        return BalanceLimit.RULE if len(self.movable_pgs) == len(self.pgs) \
            else BalanceLimit.STAYING_PGS


def _earlier_rule(pool: Pool, crush: CrushRules, osds: Mapping[int, Osd]) -> EarlierRule:
    spread = crush.spread(pool.crush_rule, pool.size)
    weights = weights_of(pool, crush, osds, spread)
    return EarlierRule(spread.takes[0].groups, pool.size, spread.domain,
                       {osd for osd, weight in weights.items() if weight})


class _Groups(ShardLevel):
    """Groups of shards in the buckets of one choice of a rule. The place of a group is its number
    among the groups of its PG; positions are those of its shards in the set of the PG."""

    def __init__(self, shards: Shards, number: int, depth: int) -> None:
        """`number`: of the take; `depth`: number of choices of the take above this one."""
        super().__init__()
        self._shards, self.by_place, self.movable_pgs = shards, shards.by_place, shards.movable_pgs
        take = shards.takes[number]
        self._take_number, self._group, self._choices_below = (
            number, take.groups[depth], take.groups[depth + 1:])
        begin = sum(earlier.shards for earlier in shards.takes[:number])
        positions_by_bucket = [self._positions_in(members, range(begin, begin + take.shards))
                               for members in shards.here]
        #: By PG and place of a group: the positions of its shards.
        self._positions = [list(groups.values()) for groups in positions_by_bucket]
        self.here = [list(groups) for groups in positions_by_bucket]
        self.origin = [self._buckets_at(*row) for row in zip(shards.origin, self._positions)]
        self.raw = [self._raw_buckets(*row) for row in zip(shards.raw, self._positions)]
        self._osds: Dict[int, List[int]] = {}
        for osd in sorted(take.osds):
            self._osds.setdefault(self._group.bucket_of[osd], []).append(osd)
        self.domain = {bucket: bucket for bucket in self._osds}
        # A group cannot leave its bucket of the choice above.
        above = take.groups[depth - 1].bucket_of if depth else {}
        self.fences = [{bucket: above.get(osds[0], 0) for bucket, osds in self._osds.items()}
                       ] * take.shards
        self.weights = {bucket: sum(shards.weights[osd] for osd in osds)
                        for bucket, osds in self._osds.items()}
        self._set_targets()

    def _positions_in(self, osds: Sequence[int], positions: range) -> Dict[int, List[int]]:
        """Bucket -> those of the `positions` of a set whose OSD is in it."""
        positions_by_bucket: Dict[int, List[int]] = {}
        for position, osd in zip(positions, osds[positions.start:positions.stop]):
            bucket = self._group.bucket_of.get(osd)
            if bucket is not None:
                positions_by_bucket.setdefault(bucket, []).append(position)
        return positions_by_bucket

    def _buckets_at(self, osds: Sequence[int], positions: Sequence[Sequence[int]]) -> List[int]:
        """The bucket of each group in a set, by the first OSD of the group; empty if the set is.
        `positions`: of each group, those of its shards."""
        return [self._group.bucket_of.get(osds[first], NO_OSD) for first, *_ in positions if osds]

    def _raw_buckets(self, raw: Sequence[int], positions: Sequence[Sequence[int]]) -> List[int]:
        """The buckets where CRUSH places the groups of a PG; empty if it may not be moved."""
        if self.by_place:
            return self._buckets_at(raw, positions)
        return list(dict.fromkeys(self._group.bucket_of.get(osd, NO_OSD) for osd in raw))

    def _set_targets(self) -> None:
        """Set how many groups each bucket holds, and how many it should hold (`near`, `wide`): the
        sum of the shares of its OSDs, in groups."""
        shards = self._shards
        groups_by_bucket = Counter(bucket for members in self.here for bucket in members)
        self.count = {bucket: groups_by_bucket[bucket] for bucket in self._osds}
        shard_count = sum(len(group) for groups in self._positions for group in groups)
        # On average: groups of incomplete PGs have fewer.
        group_shards = shard_count / sum(groups_by_bucket.values()) if shard_count \
            else self._group.shards
        ideal = shards.ideals[self._take_number]
        self.limits = {bucket: int(sum(shards.limits[osd] for osd in osds) / group_shards)
                       for bucket, osds in self._osds.items()}
        self.near = bucket_targets(shards.weights, ideal, self._osds, group_shards, within=1.0,
                                   limits=self.limits)
        # Not to the limit, so that the OSDs of a bucket need not all be at theirs.
        self.wide = bucket_targets(shards.weights, ideal, self._osds, group_shards,
                                   within=(1.0 + shards.deviation) / 2, limits=self.limits)
        self.filled = self.wide.filled(self.count, self.limits)

    def even_out(self) -> None:
        """Exchange groups of which shards must move anyway; then even out twice, the second time
        with targets that whole groups can reach."""
        if self._shards.required:
            _Exchange(self).even_out()
        super().even_out()
        self.near, self.wide = (in_whole_groups(bounds, self.limits)
                                for bounds in (self.near, self.wide))
        super().even_out()

    def surplus(self, bucket: int) -> float:
        return self.count[bucket] - self.near.ideal[bucket]

    def excess(self, pg_number: int, place: int) -> float:
        return sum(map(self._shards.surplus, self._members(pg_number, place)))

    def may_leave(self, pg_number: int, place: int) -> bool:
        count, high = self._shards.count, self._shards.near.high
        return all(count[osd] > high[osd] for osd in self._members(pg_number, place))

    def _members(self, pg_number: int, place: int) -> List[int]:
        members = self._shards.here[pg_number]
        return [members[position] for position in self._positions[pg_number][place]]

    def affords(self, giver: int, moves: int = 1) -> bool:
        return (self._shards.within_budget(moves * self._group.shards)
                or not self.weights.get(giver))

    def legal(self, pg_number: int, place: int, bucket: int) -> bool:
        """Whether a group may move to a bucket. Shards of several takes must be in different
        buckets, so that no failure domain has two shards of the PG."""
        return super().legal(pg_number, place, bucket) and (
            len(self._shards.takes) == 1
            or bucket not in map(self._group.bucket_of.get, self._shards.here[pg_number])) and (
                not self._shards.two_rules or self._obeys_earlier(pg_number, place, bucket))

    def _obeys_earlier(self, pg_number: int, place: int, bucket: int) -> bool:
        positions = self._positions[pg_number][place]
        return self._shards.obeys_earlier(pg_number, positions,
                                          self._osds_for(pg_number, positions, bucket))

    def move(self, pg_number: int, place: int, bucket: int) -> None:
        positions = self._positions[pg_number][place]
        for position, osd in zip(positions, self._osds_for(pg_number, positions, bucket)):
            self._shards.move(pg_number, position, osd)
        self.count[self.here[pg_number][place]] -= 1
        self.count[bucket] += 1
        self.here[pg_number][place] = bucket

    def _osds_for(self, pg_number: int, positions: Sequence[int], bucket: int) -> Sequence[int]:
        """The OSDs of a bucket for the group that has its shards at these positions: those that
        have its data, completed with the emptiest. Else those of CRUSH, if each has fewer shards
        than its upper target. Else the emptiest."""
        shards, bucket_of = self._shards, self._group.bucket_of
        returning = self._osds_with_data(pg_number, positions, bucket)
        if returning:
            used = set(map(shards.domain.get, returning.values()))
            others = self._emptiest([osd for osd in self._osds[bucket]
                                     if shards.domain[osd] not in used], self._choices_below,
                                    len(positions) - len(returning))
            if len(returning) + len(others) == len(positions):
                return [returning[position] if position in returning else others.pop()
                        for position in positions]
        raw = shards.raw[pg_number]
        if self.by_place:
            raw = [raw[position] for position in positions]
        raw = [osd for osd in raw if bucket_of.get(osd) == bucket][:len(positions)]
        if len(raw) == len(positions) and all(
                shards.count[osd] < shards.near.high[osd] for osd in raw):
            return raw
        return self._emptiest(self._osds[bucket], self._choices_below, len(positions))

    def _osds_with_data(self, pg_number: int, positions: Sequence[int],
                        bucket: int) -> Dict[int, int]:
        """Position -> OSD of a bucket that has the data of the shard there, one in each failure
        domain. Only for the last choice of a rule: the OSDs may be too many for one bucket of a
        choice below."""
        shards = self._shards
        by_domain: Dict[int, Tuple[int, int]] = {}
        for position in positions if not self._choices_below else ():
            osd = shards.origin[pg_number][position]
            if self._group.bucket_of.get(osd) == bucket and shards.weights[osd]:
                by_domain.setdefault(shards.domain[osd], (position, osd))
        return dict(by_domain.values())

    def ways_back(self, pg_number: int) -> Iterator[Tuple[int, int]]:
        """(place of a group, bucket) of the moves after which no more shards of the PG than before
        are elsewhere than their data. The rule may not allow all of them."""
        shards, bucket_of = self._shards, self._group.bucket_of
        members, origin = shards.here[pg_number], shards.origin[pg_number]
        for place, positions in enumerate(self._positions[pg_number]):
            moved = [position for position in positions if members[position] != origin[position]]
            buckets = {bucket_of.get(origin[position]) for position in moved}
            for bucket in sorted(bucket for bucket in buckets if bucket is not None):
                # At least as many shards return to their data as leave it.
                if self.weights[bucket] and bucket not in self.here[pg_number] \
                        and len(positions) - len(moved) <= len(
                            self._osds_with_data(pg_number, positions, bucket)):
                    yield place, bucket

    def _emptiest(self, osds: Sequence[int], below: Sequence[Group], number: int) -> List[int]:
        """The emptiest OSDs, so many (`number`), with as many in each bucket of the choices `below`
        as these allow, and one in each failure domain."""
        osds_by_bucket: Dict[int, List[int]] = {}
        bucket_of = below[0].bucket_of if below else self._shards.domain
        for osd in osds:
            if self._shards.weights[osd]:
                osds_by_bucket.setdefault(bucket_of[osd], []).append(osd)
        if not below:
            emptiest = [min(members, key=self._fullness) for members in osds_by_bucket.values()]
            return sorted(emptiest, key=self._fullness)[:number]
        chosen: List[int] = []
        for members in sorted(osds_by_bucket.values(), key=self._mean_surplus):
            chosen += self._emptiest(members, below[1:],
                                     min(below[0].shards, number - len(chosen)))
        return chosen

    def _fullness(self, osd: int) -> Tuple[bool, float, int]:
        return (self._shards.count[osd] >= self._shards.limits[osd], self._shards.surplus(osd), osd)

    def _mean_surplus(self, osds: Sequence[int]) -> float:
        return sum(map(self._shards.surplus, osds)) / len(osds)


class _Exchange:
    """Groups of which shards must move, between the buckets in which the PG had shards: in chains
    of any length, as long as no further shard moves."""

    def __init__(self, groups: _Groups) -> None:
        self._groups = groups
        #: Bucket -> another one -> (PG, place) of the groups that may move there.
        self._ways: Dict[int, Dict[int, Set[Tuple[int, int]]]] = {}
        #: PG -> the sets in `_ways` that contain its groups, and the place of each.
        self._noted: Dict[int, List[Tuple[Set[Tuple[int, int]], int]]] = {}
        for pg_number in groups.movable_pgs:
            self._note(pg_number)

    def _note(self, pg_number: int) -> None:
        """Note where the groups of a PG may move now, in place of where they could before."""
        for movable, place in self._noted.pop(pg_number, ()):
            movable.discard((pg_number, place))
        for place, bucket in self._groups.ways_back(pg_number):
            ways_from = self._ways.setdefault(self._groups.here[pg_number][place], {})
            movable = ways_from.setdefault(bucket, set())
            movable.add((pg_number, place))
            self._noted.setdefault(pg_number, []).append((movable, place))

    def even_out(self) -> None:
        """Bring the buckets with too many groups, and those with too few, closer to their share."""
        count, low, high = self._groups.count, self._groups.near.low, self._groups.near.high
        for bucket in sorted(count):
            while count[bucket] > high[bucket] and self._move_along(
                    {bucket}, {other for other in count if count[other] < high[other]}):
                pass
            while count[bucket] < low[bucket] and self._move_along(
                    {other for other in count if count[other] > low[other]}, {bucket}):
                pass

    def _move_along(self, givers: AbstractSet[int], takers: AbstractSet[int]) -> bool:
        """Move one group along each step of the shortest way from a giver to a taker. Returns
        whether to call this again.

        If a step has no legal group, nothing moves, and its illegal groups are discarded: True if
        none is left, since there may be another way.
        """
        moves: List[Tuple[int, int, int]] = []
        way = self._shortest_way(givers, takers)
        for giver, taker in zip(way, way[1:]):
            groups = self._ways[giver][taker]
            moving_pgs = {pg_number for pg_number, _, _ in moves}
            for pg_number, place in sorted(groups):
                if pg_number in moving_pgs:
                    continue
                if self._groups.legal(pg_number, place, taker):
                    moves.append((pg_number, place, taker))
                    break
                groups.discard((pg_number, place))
            else:
                # What is left are groups of PGs that an earlier step moves: the same way would be
                # found again.
                return not groups
        for pg_number, place, taker in moves:
            self._groups.move(pg_number, place, taker)
            self._note(pg_number)
        return bool(moves)

    def _shortest_way(self, givers: AbstractSet[int], takers: AbstractSet[int]) -> List[int]:
        """The shortest way from a giver to a taker, as buckets; empty: there is none."""
        way_to = {bucket: [bucket] for bucket in sorted(givers)}
        queue = list(way_to)
        for bucket in queue:
            for other in sorted(other for other, groups in self._ways.get(bucket, {}).items()
                                if groups and other not in way_to):
                way_to[other] = [*way_to[bucket], other]
                if other in takers:
                    return way_to[other]
                queue.append(other)
        return []


# ---- The sets to which PGs move if a CRUSH rule does not allow them to stay
#
# As few shards as possible leave their OSD.
#
# For rules with one take, of which each failure domain holds at most one shard of a PG. One shard
# in each domain stays. The others go to domains without a shard of the PG: to the OSDs of CRUSH
# unless they have more than their share, else to the emptiest.

#: Maximum number of choices of shards to keep that are tried for a PG.
CHOICES = 64


def finds_lawful_sets(pool: Pool, crush: CrushRules) -> bool:
    """Whether `balance` finds sets for PGs that the pool's rule does not allow to stay."""
    takes = crush.spread(pool.crush_rule, pool.size).takes
    return len(takes) == 1 and takes[0].even


class LawfulSets:
    """The OSDs of a rule, with the number of shards that they and their domains hold."""

    def __init__(self, domain: Mapping[int, int], weights: Mapping[int, float],
                 limits: Mapping[int, int], earlier: Optional[EarlierRule]) -> None:
        """`domain`: OSD -> failure domain; `weights`: OSD -> weight, 0.0 if it must have no
        shards; `limits`: OSD -> shards for which it has room; `earlier`: another rule that the sets
        obey as well."""
        self._domain, self._limits, self._earlier = domain, limits, earlier
        self._weights = {osd: weight for osd, weight in weights.items() if weight}
        self._members: Dict[int, List[int]] = {}
        for osd in self._weights:
            self._members.setdefault(domain[osd], []).append(osd)
        self._domain_weights = {key: sum(self._weights[osd] for osd in osds)
                                for key, osds in self._members.items()}
        self._weight_sum, self._shard_sum = sum(self._weights.values()), 0
        self._shards = dict.fromkeys(self._weights, 0)
        self._domain_shards = dict.fromkeys(self._members, 0)
        #: (fullness, domain). An entry counts only if it has the domain's fullness in `_noted`,
        #: which may be lower than the actual one, but not higher.
        self._heap = [(0.0, key) for key in sorted(self._members)]
        self._noted = dict.fromkeys(self._members, 0.0)

    def place(self, pgs: Sequence[Sequence[int]], raws: Sequence[Sequence[int]],
              broken: AbstractSet[int]) -> List[Sequence[int]]:
        """Each PG's set; those of the PGs `broken` (by number) are changed.

        `pgs`: complete sets; `raws`: where CRUSH places them. A PG for which no set is found goes
        to its raw set.
        """
        for members in pgs:
            for osd in members:
                self._count(osd, 1)
        staying_by_pg = {pg_number: self._keep_in_each_domain(pgs[pg_number])
                         for pg_number in sorted(broken)}
        return [self._completed(members, raws[pg_number], staying_by_pg[pg_number])
                if pg_number in staying_by_pg else members
                for pg_number, members in enumerate(pgs)]

    def _count(self, osd: int, change: int) -> None:
        """Add `change` to the number of shards of an OSD and of its domain."""
        if osd in self._shards:
            self._shard_sum += change
            self._shards[osd] += change
            domain = self._domain[osd]
            self._domain_shards[domain] += change
            if self._domain_fullness(domain) < self._noted[domain]:
                self._note_fullness(domain)

    def _domain_fullness(self, domain: int) -> float:
        return self._domain_shards[domain] / self._domain_weights[domain]

    def _note_fullness(self, domain: int) -> None:
        self._noted[domain] = self._domain_fullness(domain)
        heappush(self._heap, (self._noted[domain], domain))

    def _keep_in_each_domain(self, pg_osds: Sequence[int]) -> AbstractSet[int]:
        """Stop counting the shards of a PG except one in each domain, on its emptiest OSD. Returns
        the OSDs that keep their shard."""
        staying = {min(osds, key=self._fullness) for osds in self._by_domain(pg_osds)}
        for osd in pg_osds:
            if osd not in staying:
                self._count(osd, -1)
        return staying

    def _completed(self, before: Sequence[int], raw: Sequence[int],
                   staying: AbstractSet[int]) -> Sequence[int]:
        """A set that obeys the rule: `staying` at their positions, completed with new OSDs, as many
        as possible where CRUSH (`raw`) places them, which needs no upmap pair; `raw` if none is
        found. Of the PG's shards, only `staying` are counted so far; all of the set are counted
        afterwards."""
        preferred, choices = [osd for osd in raw if self._is_below_share(osd)], [staying]
        if self._earlier is not None:
            # The earlier rule may allow no set with all of `staying`.
            choices += self._choices(before)
        for choice in choices:
            new = self._new_osds(choice, len(before), preferred)
            if len(choice) + len(new) == len(before):
                break
        else:
            self._replace(staying, raw)
            return raw
        self._replace(staying, (*choice, *new))
        completed = [osd if osd in choice else None for osd in before]
        for position, osd in enumerate(raw):
            if completed[position] is None and osd in new:
                completed[position] = osd
                new.remove(osd)
        return [new.pop(0) if osd is None else osd for osd in completed]

    def _replace(self, counted: Collection[int], osds: Collection[int]) -> None:
        """Count the shards of a PG on `osds` in place of those on `counted`."""
        for osd in osds:
            self._count(osd, 1)
        for osd in counted:
            self._count(osd, -1)

    def _choices(self, before: Sequence[int]) -> List[AbstractSet[int]]:
        """Sets of shards that may stay, one in each domain."""
        return [frozenset(osds) for osds in islice(product(*self._by_domain(before)), CHOICES)]

    def _by_domain(self, pg_osds: Sequence[int]) -> Collection[List[int]]:
        """The OSDs of a PG that may keep a shard, by failure domain."""
        members: Dict[int, List[int]] = {}
        for osd in pg_osds:
            if osd in self._weights:
                members.setdefault(self._domain[osd], []).append(osd)
        return members.values()

    def _new_osds(self, staying: AbstractSet[int], size: int,
                  preferred: Sequence[int]) -> List[int]:
        """The OSDs that complete a set, fewer if there are none; those that are `preferred` before
        others."""
        used_domains = {self._domain[osd] for osd in staying}
        entering: List[int] = []

        def enter(osd: int) -> None:
            used_domains.add(self._domain[osd])
            entering.append(osd)

        for osd in preferred:
            if len(staying) + len(entering) < size and self._domain[osd] not in used_domains \
                    and self._fitting([osd], (*staying, *entering)):
                enter(osd)
        while len(staying) + len(entering) < size:
            osds = self._in_emptiest_domain(used_domains, (*staying, *entering))
            if not osds:
                break
            enter(min(osds, key=lambda osd: (
                self._shards[osd] >= self._limits[osd], self._fullness(osd), osd)))
        return entering

    def _fitting(self, osds: List[int], others: Collection[int]) -> List[int]:
        """Those of `osds` that the earlier rule, if there is one, allows beside `others`."""
        return osds if self._earlier is None else list(filter(self._earlier.beside(others), osds))

    def _is_below_share(self, osd: int) -> bool:
        """Whether it has at most the mean number of shards for its weight, and room for another."""
        return osd in self._weights and self._shards[osd] < self._limits[osd] \
            and self._shards[osd] <= self._weights[osd] * self._shard_sum / self._weight_sum

    def _fullness(self, osd: int) -> float:
        return self._shards[osd] / self._weights[osd]

    def _in_emptiest_domain(self, used: AbstractSet[int], others: Collection[int]) -> List[int]:
        """The OSDs that may receive a shard in the emptiest failure domain that has any. `used`:
        domains with a shard of the PG; `others`: its other OSDs."""
        popped: List[Tuple[float, int]] = []
        chosen: List[int] = []
        while self._heap and not chosen:
            noted_fullness, domain = heappop(self._heap)
            if noted_fullness != self._noted[domain]:
                continue
            if self._domain_fullness(domain) > noted_fullness:
                self._note_fullness(domain)
                continue
            popped.append((noted_fullness, domain))
            if domain not in used:
                chosen = self._fitting(self._members[domain], others)
        for entry in popped:
            heappush(self._heap, entry)
        return chosen
