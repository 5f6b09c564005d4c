# SPDX-License-Identifier: LGPL-2.1-or-later
"""The balanced places of the PGs of one pool, such that all OSDs have their share and little data
moves.

Single shards move from OSDs with too many to OSDs with too few. First shards that CRUSH places
there, since they need no upmap; then any that the rule allows; if none is left, two shards in a
chain (from A to B in one PG, from B to C in another).
"""
import math
from collections import Counter
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from typing import (AbstractSet, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional,
                    Sequence, Set, Tuple)

from ..cluster.crush import CrushRules
from ..cluster.types import NO_OSD, Osd, OsdSet, Pool
from .shares import ROUNDING, PoolRoom, Targets, targets, weights_of

#: Maximum number of shards that are examined for chains, which takes a few seconds. Only clusters
#: with few more failure domains than shards need chains.
CHAIN_CHECKS = 5_000_000

#: Share of its PGs that an OSD may lack if it held none before.
LACKING_SHARE = 0.25

#: Number of a PG, and position in it.
_Shard = Tuple[int, int]


class PlacedPg(NamedTuple):
    pgid: str
    #: Where its data is.
    here: OsdSet
    #: Where CRUSH alone places it; None: unknown, so it stays.
    raw: Optional[OsdSet]
    #: Whether it may be moved.
    free: bool = True


@dataclass(frozen=True)
class Balance:
    #: The new sets of the PGs that move.
    finals: Mapping[str, OsdSet]
    targets: Targets
    #: PGs by OSD before and after.
    before: Mapping[int, int]
    after: Mapping[int, int]

    @property
    def least(self) -> int:
        """Shards that any plan must move to bring every OSD within 1 of its ideal."""
        high, low, before = self.targets.high, self.targets.low, self.before
        given = sum(max(0, before[osd] - most) for osd, most in high.items())
        taken = sum(max(0, least - before[osd]) for osd, least in low.items())
        return max(given, taken)

    @property
    def deviation(self) -> float:
        """Greatest distance of an OSD from its ideal, in PGs."""
        return max((abs(self.after.get(osd, 0) - ideal)
                    for osd, ideal in self.targets.ideal.items()), default=0.0)


def balance(pool: Pool, pgs: Sequence[PlacedPg], crush: CrushRules,
            osds: Mapping[int, Osd], budget: Optional[int] = None,
            deviation: float = 1.0, room: PoolRoom = PoolRoom()) -> Balance:
    """The end state of a pool; never raises. Takes a few microseconds a shard.

    `deviation`: PGs that an OSD may be away from its ideal before shards move for the balance
    alone. Shards that CRUSH moves anyway are balanced to within 1.

    `budget`: shards that may move in all, besides those that leave an OSD without weight; None:
    unlimited. The fullest and the emptiest OSDs are served first.

    `room`: no OSD gets more than it has room for. If that would keep shards on an OSD without
    weight, they go to any OSDs with room, beyond their share, or to where CRUSH places them if none
    has room.
    """
    work = _Work(pool, pgs, crush, osds, deviation, room)
    work.budget = budget
    before = dict(work.count)
    low, high = work.targets.low, work.targets.high
    work.follow_crush(high, low, keep_first=True)
    work.follow_crush(high, low)
    for floor, ceiling in ((work.wide.high, low), (work.wide.high, high), (low, work.wide.low)):
        if floor is low:
            work.follow_crush(low, work.filled)
        work.move_directly(floor, ceiling)
        work.move_in_chains(floor, ceiling)
    if room.more:
        work.move_directly(work.emptied, work.most)
        work.move_in_chains(work.emptied, work.most)
        # An OSD that is drained must not keep shards that fit nowhere: the preview shows, and
        # refuses, OSDs that get too full.
        work.follow_crush(work.emptied, work.any)
        work.move_directly(work.emptied, work.any)
    return Balance(work.finals(), work.targets, before, dict(work.count))


class _Work:
    """The sets as they are while shards are being moved. PGs are identified by their number."""

    def __init__(self, pool: Pool, pgs: Sequence[PlacedPg], crush: CrushRules,
                 osds: Mapping[int, Osd], deviation: float, room: PoolRoom) -> None:
        self._pool, self._pgs, self._crush = pool, pgs, crush
        self.fill = room.fill
        self.spread = crush.spread(pool.crush_rule)
        self.here = [list(pg.here) for pg in pgs]
        self.free = [number for number, pg in enumerate(pgs) if self._may_move(pg)]
        weights = weights_of(pool, crush, osds, self.spread)
        self._cross_fences(weights)
        self.count: Dict[int, int] = {osd: 0 for osd in weights}
        shards: Dict[int, int] = {}
        holders: Dict[int, int] = {}
        fence = self.spread.fence
        for here in self.here:
            for osd in here:
                self.count[osd] = self.count.get(osd, 0) + 1
            parts = [fence[osd] for osd in here if osd in fence]
            for part in parts:
                shards[part] = shards.get(part, 0) + 1
            for part in set(parts):
                holders[part] = holders.get(part, 0) + 1
        self.count.pop(NO_OSD, None)
        #: Maximum number of shards of each OSD; and the minimum, if only OSDs without weight give.
        there = Counter(osd for pg in pgs for osd in pg.here)
        self.most = {osd: there[osd] + room.more[osd] if osd in room.more else len(pgs)
                     for osd in weights}
        self.emptied = {osd: len(pgs) if weight else 0 for osd, weight in weights.items()}
        self.any = dict.fromkeys(weights, len(pgs))
        self.targets = self._within(targets(weights, self.spread, shards, holders))
        self.wide = self._within(targets(weights, self.spread, shards, holders,
                                         max(1.0, deviation)))
        #: For each OSD, the minimum number of shards that CRUSH places there.
        self.filled = {**self.wide.low, **self._filled(pgs)}
        #: OSDs that can take a shard, if need be after their return.
        self._takers = [osd for osd, weight in weights.items() if weight]
        self.weights = weights
        self._checks = CHAIN_CHECKS
        self.budget: Optional[int] = None
        #: Shards that are not where their data is.
        self.moved = sum(old != new for pg, here in zip(pgs, self.here)
                         for old, new in zip(pg.here, here))

    def _within(self, found: Targets) -> Targets:
        """No OSD may hold more than it has room for."""
        most = self.most
        return Targets(found.ideal,
                       {osd: min(least, most[osd]) for osd, least in found.low.items()},
                       {osd: min(high, most[osd]) for osd, high in found.high.items()})

    def _filled(self, pgs: Sequence[PlacedPg]) -> Dict[int, int]:
        """OSDs that hold nothing of the pool yet -> PGs of which they lack at most a quarter.

        Where an OSD's share is hardly more than the deviation, they would stay empty. Where it is
        less than a PG, as in a pool of one PG, nothing moves.
        """
        holding = {osd for pg in pgs for osd in pg.here}
        return {osd: min(self.most[osd], max(
            self.wide.low[osd], math.floor((1.0 - LACKING_SHARE) * share + ROUNDING)))
                for osd, share in self.targets.ideal.items() if osd not in holding}

    def _may_move(self, pg: PlacedPg) -> bool:
        fence = self.spread.fence
        return (pg.free and pg.raw is not None and len(pg.here) == len(pg.raw) == self._pool.size
                and all(osd in fence for osd in pg.here))

    def _cross_fences(self, weights: Mapping[int, float]) -> None:
        """If a rule chooses some racks first, whole PGs move to the racks that CRUSH chooses."""
        fence = self.spread.fence
        if len(set(fence.values())) < 2:
            return
        excess: Dict[int, float] = {}
        total = sum(len(here) for here in self.here) / (sum(weights.values()) or 1.0)
        for osd, weight in weights.items():
            excess[fence[osd]] = excess.get(fence[osd], 0.0) - total * weight
        for here in self.here:
            for osd in here:
                if osd in fence:
                    excess[fence[osd]] += 1
        emptied = excess.keys() - {fence[osd] for osd, weight in weights.items() if weight}
        # First those that must leave, even if other racks get more than their share.
        for number in sorted(self.free, key=lambda each: not self._is_in(each, emptied)):
            raw = self._pgs[number].raw
            assert raw is not None
            if any(not weights.get(osd) for osd in raw):
                continue
            change: Dict[int, int] = {}
            for old, new in zip(self.here[number], raw):
                change[fence[old]] = change.get(fence[old], 0) - 1
                change[fence[new]] = change.get(fence[new], 0) + 1
            gain = sum(abs(excess[part]) - abs(excess[part] + by) for part, by in change.items())
            if (gain > 0 or self._is_in(number, emptied)) and any(change.values()):
                self.here[number] = _in_place(self.here[number], raw, self._pool.erasure)
                for part, by in change.items():
                    excess[part] += by

    def _is_in(self, number: int, fences: AbstractSet[int]) -> bool:
        return any(self.spread.fence[osd] in fences for osd in self.here[number])

    def legal(self, number: int, position: int, osd: int) -> bool:
        """Whether a shard may move to an OSD that has none of this PG: one per failure domain."""
        here, domain, fence = self.here[number], self.spread.domain, self.spread.fence
        if fence[osd] != fence[here[position]]:
            return False
        wanted = domain[osd]
        for other, member in enumerate(here):
            if domain[member] == wanted and other != position:
                return False
        return True

    def move(self, number: int, position: int, osd: int) -> None:
        here, origin = self.here[number], self._pgs[number].here[position]
        self.moved += (osd != origin) - (here[position] != origin)
        self.count[here[position]] -= 1
        self.count[osd] += 1
        here[position] = osd

    def affords(self, giver: int) -> bool:
        """Whether one more shard may leave this OSD for the balance."""
        return self.budget is None or self.moved < self.budget or not self.weights.get(giver)

    def finals(self) -> Dict[str, OsdSet]:
        return {pg.pgid: tuple(here) for pg, here in zip(self._pgs, self.here)
                if tuple(here) != pg.here}

    # ---- moves towards the raw sets

    def follow_crush(self, floor: Mapping[int, int], ceiling: Mapping[int, int],
                     keep_first: bool = False) -> None:
        """Moves towards the raw sets, from OSDs with more than `floor` to OSDs with less than
        `ceiling`."""
        count = self.count
        takers = {osd for osd in self._takers if count[osd] < ceiling[osd]}
        if not takers:
            return
        for number in self.free:
            for position, osd in self._wishes(number):
                giver = self.here[number][position]
                if (osd in takers and count[osd] < ceiling[osd] and count[giver] > floor[giver]
                        and not (keep_first and position == 0) and self.affords(giver)
                        and osd not in self.here[number] and self.legal(number, position, osd)):
                    self.move(number, position, osd)

    def _wishes(self, number: int) -> Iterator[Tuple[int, int]]:
        """(position, OSD) that bring a PG closer to its raw set."""
        here, raw = self.here[number], self._pgs[number].raw
        assert raw is not None
        if self._pool.erasure:
            for position, (old, new) in enumerate(zip(here, raw)):
                if old != new:
                    yield position, new
            return
        entering = [osd for osd in raw if osd not in here]
        if entering:
            for position in range(len(here) - 1, -1, -1):
                if here[position] not in raw:
                    for osd in entering:
                        yield position, osd

    # ---- other legal moves

    def move_directly(self, floor: Mapping[int, int], ceiling: Mapping[int, int]) -> None:
        """From OSDs with more than `floor` to OSDs with less than `ceiling`, fullest first."""
        takers = _Takers(self, self._takers, ceiling)
        givers = [osd for osd in self.targets.ideal if self.count[osd] > floor[osd]]
        if not takers or not givers:
            return
        shards = self._shards_of(givers)
        heap = [(-self.surplus(osd), osd) for osd in givers]
        heapify(heap)
        while heap and takers:
            _, giver = heappop(heap)
            if (self.count[giver] > floor[giver] and self.affords(giver)
                    and self._give_one(giver, shards[giver], takers)):
                heappush(heap, (-self.surplus(giver), giver))

    def surplus(self, osd: int) -> float:
        """The number of PGs of an OSD beyond its share. Of two that hold the same, the emptier one
        is first: it has room for at most one more in either case."""
        return self.count[osd] - self.targets.ideal[osd] + self.fill.get(osd, 0.0)

    def _give_one(self, giver: int, shards: List[Tuple[int, int]], takers: '_Takers') -> bool:
        while shards:
            number, position = shards.pop()
            if self.here[number][position] != giver:
                continue
            taker = takers.take(number, position)
            if taker is not None:
                self.move(number, position, taker)
                return True
        return False

    def _shards_of(self, osds: Iterable[int]) -> Dict[int, List[Tuple[int, int]]]:
        """(number, position) of the shards on some OSDs, sorted so that the last moves first.

        Shards that are not primary, and shards that CRUSH does not place there, move first.
        """
        found: Dict[int, List[Tuple[int, int, int]]] = {osd: [] for osd in osds}
        for number in self.free:
            raw = self._pgs[number].raw
            assert raw is not None
            for position, osd in enumerate(self.here[number]):
                if osd in found:
                    found[osd].append((2 * (position > 0) + (osd not in raw), number, position))
        return {osd: [(number, position) for _, number, position in sorted(rows)]
                for osd, rows in found.items()}

    # ---- chains of two moves

    def move_in_chains(self, floor: Mapping[int, int], ceiling: Mapping[int, int]) -> None:
        """The same in two steps: one shard to an intermediate OSD, and another one from there to
        the target."""
        givers = [osd for osd in self.targets.ideal if self.count[osd] > floor[osd]]
        takers = [osd for osd in self._takers if self.count[osd] < ceiling[osd]]
        if not givers or not takers:
            return
        lacking = self._lacking({self.spread.domain[osd] for osd in takers})
        shards = self._shards_of(givers)
        for giver in givers:
            reach = self._reach(giver, shards[giver])
            for taker in takers:
                onward = lacking[self.spread.domain[taker]]
                only_moving = True
                while (self.count[giver] > floor[giver] and self.count[taker] < ceiling[taker]
                       and self.affords(giver)):
                    # A shard that moves anyway can move elsewhere without cost.
                    if not self._chain(giver, taker, reach, onward, only_moving):
                        if not only_moving:
                            break
                        only_moving = False

    def _lacking(self, domains: Set[int]) -> Dict[int, List[int]]:
        """PGs without a shard in a failure domain: only they can have one there."""
        found: Dict[int, List[int]] = {domain: [] for domain in domains}
        for number in self.free:
            for domain in domains.difference([self.spread.domain[o] for o in self.here[number]]):
                found[domain].append(number)
        return found

    def _reach(self, giver: int, shards: Sequence[Tuple[int, int]]) -> Dict[int, List[_Shard]]:
        """Failure domain -> the shards of an OSD that may move there, the best at the end."""
        domain = self.spread.domain
        everywhere = {domain[osd] for osd in self._takers}
        found: Dict[int, List[_Shard]] = {}
        for number, position in shards:
            taken = [domain[osd] for osd in self.here[number] if osd != giver]
            for free in everywhere.difference(taken):
                found.setdefault(free, []).append((number, position))
        return found

    def _chain(self, giver: int, taker: int, reach: Mapping[int, List[_Shard]],
               onward: List[int], only_moving: bool) -> bool:
        """One shard from `giver` to some OSD, and one of `onward` from there to `taker`."""
        for index, after in enumerate(onward):
            for place, middle in enumerate(self.here[after]):
                self._checks -= 1
                moving = self._pgs[after].here[place] != middle
                if (middle == giver or (only_moving and not moving) or not self.weights[middle]
                        or not self.legal(after, place, taker)):
                    continue
                shard = self._shard_for(middle, giver, reach, after)
                if shard is not None:
                    self.move(*shard, middle)
                    self.move(after, place, taker)
                    onward[index] = onward[-1]
                    onward.pop()
                    return True
            if self._checks < 0:
                return False
        return False

    def _shard_for(self, middle: int, giver: int, reach: Mapping[int, List[_Shard]],
                   after: int) -> Optional[_Shard]:
        """A shard of `giver` that may move to `middle`, not of the PG `after`."""
        for number, position in reversed(reach.get(self.spread.domain[middle], ())):
            self._checks -= 1
            if (self.here[number][position] == giver and number != after
                    and self.legal(number, position, middle)):
                return number, position
        return None


class _Takers:
    """The OSDs with less than their ceiling: a heap of failure domains, and one in each of them.

    A PG has shards in only a few domains, so one of the first candidates is usually valid.
    """

    def __init__(self, work: _Work, osds: Iterable[int], ceiling: Mapping[int, int]) -> None:
        self._work, self._ceiling = work, ceiling
        self._osds: Dict[int, List[Tuple[float, int]]] = {}
        for osd in osds:
            if work.count[osd] < ceiling[osd]:
                domain = work.spread.domain[osd]
                self._osds.setdefault(domain, []).append((work.surplus(osd), osd))
        for members in self._osds.values():
            heapify(members)
        self._domains = [(members[0][0], domain) for domain, members in self._osds.items()]
        heapify(self._domains)

    def __bool__(self) -> bool:
        return bool(self._domains)

    def take(self, number: int, position: int) -> Optional[int]:
        """The OSD that lacks most PGs and may have this shard; None if there is none."""
        passed = []
        found: Optional[int] = None
        while self._domains and found is None:
            entry = heappop(self._domains)
            members = self._osds[entry[1]]
            if self._work.legal(number, position, members[0][1]):
                found = self._taken(members)
                if not members:
                    continue
                entry = members[0][0], entry[1]
            passed.append(entry)
        for entry in passed:
            heappush(self._domains, entry)
        return found

    def _taken(self, members: List[Tuple[float, int]]) -> int:
        """The first of a domain, whose count is about to rise by one."""
        osd = members[0][1]
        if self._work.count[osd] + 1 < self._ceiling[osd]:
            heapreplace(members, (self._work.surplus(osd) + 1, osd))
        else:
            heappop(members)
        return osd


def _in_place(here: Sequence[int], raw: OsdSet, by_position: bool) -> List[int]:
    """`raw`, in which OSDs keep their position if positions do not matter."""
    if by_position:
        return list(raw)
    entering = iter([osd for osd in raw if osd not in here])
    return [osd if osd in raw else next(entering) for osd in here]
