# SPDX-License-Identifier: LGPL-2.1-or-later
"""Moves that bring the number of shards of OSDs, or of groups of them in buckets, closer to their
share, for `balance`."""
from abc import ABC, abstractmethod
from heapq import heapify, heappop, heappush, heapreplace
from typing import (Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple)

from .shares import Targets

#: Maximum number of shards that are examined for chains, which takes a few seconds. Only clusters
#: with few more failure domains than shards need chains.
CHAIN_CHECKS = 5_000_000

#: Number of a PG, and place in it.
_Shard = Tuple[int, int]
#: What decides which shards leave an item first, then the shard.
_Ranked = Tuple[int, float, bool, int, int]


class ShardLevel(ABC):
    """The items that hold the shards of all PGs while these are being moved: OSDs; or buckets that
    hold a group of shards each, which only moves as a whole. PGs are identified by their number."""
    #: Items of each PG by place: where its shards are in this plan, where the data is, and where
    #: CRUSH places the shards (if the PG may be moved).
    here: List[List[int]]
    origin: Sequence[Sequence[int]]
    raw: List[Sequence[int]]
    #: Whether places matter, as in erasure coded pools.
    by_place: bool
    #: PGs that may be moved.
    movable_pgs: Sequence[int]
    #: Item -> what may be in a set once at most; and by place, item -> the take or bucket that a
    #: shard there cannot leave.
    domain: Mapping[int, int]
    fences: Sequence[Mapping[int, int]]
    #: Item -> weight; 0: it must be emptied.
    weights: Mapping[int, float]
    #: How many shards, or groups, the items hold, and how many they should: bounds near the share,
    #: and wider ones.
    count: Dict[int, int]
    near: Targets
    wide: Targets
    #: Item -> the minimum to which CRUSH fills it.
    filled: Mapping[int, int]
    #: Item -> the maximum for which it has room.
    limits: Mapping[int, int]

    def __init__(self) -> None:
        self._checks_left = CHAIN_CHECKS

    # ---- What differs between OSDs and buckets

    @abstractmethod
    def move(self, pg_number: int, place: int, item: int) -> None:
        """Put what is at a place of a PG on another item."""

    @abstractmethod
    def surplus(self, item: int) -> float:
        """The number beyond the share of an item."""

    @abstractmethod
    def affords(self, giver: int, moves: int = 1) -> bool:
        """Whether so many more may move for the balance, the first of them from this item."""

    def excess(self, pg_number: int, place: int) -> float:
        """The surplus of the OSDs of a group. Single shards are moved by that of their OSD."""
        return 0.0

    def may_leave(self, pg_number: int, place: int) -> bool:
        """Whether no OSD of a group would lack it: nothing is moved in return to follow CRUSH."""
        return True

    # ---- The end state

    def even_out(self) -> None:
        """Bring all items as close to their share as possible: first by following CRUSH, then by
        single moves and chains, to wider and wider bounds: from items above a floor to items below
        a ceiling."""
        low, high, wide = self.near.low, self.near.high, self.wide
        self._follow_crush(high, low, keep_first=True)
        self._follow_crush(high, low)
        # Items beyond the wide bounds give to items below the near ones, then to all that may take
        # more. At last, items within their bounds give to those that have too few.
        for floor, ceiling in ((wide.high, low), (wide.high, high), (low, wide.low)):
            if floor is low:
                self._follow_crush(low, self.filled)
            self._move_directly(floor, ceiling)
            self._move_in_chains(floor, ceiling)
        if any(self.count[item] for item, weight in self.weights.items() if not weight):
            self._empty()

    @property
    def within_bounds(self) -> bool:
        """Whether all items have as many as the wider bounds allow."""
        return all(self.wide.low[item] <= self.count[item] <= self.wide.high[item]
                   for item in self.weights)

    def _empty(self) -> None:
        """Empty the items without weight, whatever the shares of the others."""
        no_limit = dict.fromkeys(self.weights, len(self.here))
        floor = {item: no_limit[item] if weight else 0 for item, weight in self.weights.items()}
        self._move_directly(floor, self.limits)
        self._move_in_chains(floor, self.limits)
        # An OSD that is drained must not keep shards that fit nowhere: the preview shows, and
        # refuses, OSDs that get too full.
        self._follow_crush(floor, no_limit)
        self._move_directly(floor, no_limit)

    def takers(self, ceiling: Mapping[int, int]) -> List[int]:
        """The items that may take more."""
        return [item for item, weight in self.weights.items()
                if weight and self.count[item] < ceiling[item]]

    def _givers(self, floor: Mapping[int, int]) -> List[int]:
        return [item for item in self.weights if self.count[item] > floor[item]]

    def fences_of(self, item: int) -> Set[int]:
        """The takes or buckets that shards on an item cannot leave, of all places together."""
        return {fences[item] for fences in self.fences if item in fences}

    def legal(self, pg_number: int, place: int, item: int) -> bool:
        """Whether a shard may move to an item that has none of its PG: it must not leave its fence,
        nor enter a failure domain with another shard."""
        members, domain, fence = self.here[pg_number], self.domain, self.fences[place]
        if fence.get(item) != fence[members[place]]:
            return False
        new_domain = domain[item]
        for position, member in enumerate(members):
            if domain[member] == new_domain and position != place:
                return False
        return True

    # ---- Moves towards the raw sets

    def _follow_crush(self, floor: Mapping[int, int], ceiling: Mapping[int, int],
                      keep_first: bool = False) -> None:
        """Move shards from items with more than `floor` to items with less than `ceiling`, where
        CRUSH places them. `keep_first`: leave primaries where they are."""
        count, takers = self.count, set(self.takers(ceiling))
        if not takers:
            return
        for pg_number in self.movable_pgs:
            for place, item in self._moves_to_raw(pg_number):
                giver = self.here[pg_number][place]
                if (item in takers and count[item] < ceiling[item] and count[giver] > floor[giver]
                        and not (keep_first and place == 0) and self.affords(giver)
                        and item not in self.here[pg_number] and self.legal(pg_number, place, item)
                        and self.may_leave(pg_number, place)):
                    self.move(pg_number, place, item)

    def _moves_to_raw(self, pg_number: int) -> Iterator[Tuple[int, int]]:
        """Moves that bring a PG closer to its raw set, each as (place of the shard, new item); some
        of them may be illegal."""
        members, raw = self.here[pg_number], self.raw[pg_number]
        if self.by_place:
            for place, (old, new) in enumerate(zip(members, raw)):
                if old != new:
                    yield place, new
            return
        entering = [item for item in raw if item not in members]
        if entering:
            # The primary, at the first place, last.
            for place in range(len(members) - 1, -1, -1):
                if members[place] not in raw:
                    for item in entering:
                        yield place, item

    # ---- Other legal moves

    def _move_directly(self, floor: Mapping[int, int], ceiling: Mapping[int, int]) -> None:
        """Move shards from items above `floor`, fullest first, to items below `ceiling`."""
        takers, givers = _Takers(self, ceiling), self._givers(floor)
        if not takers or not givers:
            return
        shards = self._shards_of(givers)
        heap = [(-self.surplus(item), item) for item in givers]
        heapify(heap)
        while heap and takers:
            _, giver = heappop(heap)
            if (self.count[giver] > floor[giver] and self.affords(giver)
                    and self._give_one(giver, shards[giver], takers)):
                heappush(heap, (-self.surplus(giver), giver))

    def _give_one(self, giver: int, shards: List[_Ranked], takers: '_Takers') -> bool:
        """Move one shard from `giver` to the item that needs it most. `shards`: a heap of those
        that may leave it, from which shards that cannot move are removed; their ranks may be
        outdated. Returns False if none can move."""
        while shards:
            ranked = heappop(shards)
            pg_number, place = ranked[-2:]
            if self.here[pg_number][place] != giver:
                continue
            ranked_now = self._ranked(pg_number, place)
            if ranked_now > ranked:
                heappush(shards, ranked_now)
                continue
            taker = takers.take(pg_number, place)
            if taker is not None:
                self.move(pg_number, place, taker)
                return True
        return False

    def _shards_of(self, items: Iterable[int]) -> Dict[int, List[_Ranked]]:
        """The shards of some items, as heaps."""
        heaps: Dict[int, List[_Ranked]] = {item: [] for item in items}
        for pg_number in self.movable_pgs:
            for place, item in enumerate(self.here[pg_number]):
                if item in heaps:
                    heaps[item].append(self._ranked(pg_number, place))
        for heap in heaps.values():
            heapify(heap)
        return heaps

    def _ranked(self, pg_number: int, place: int) -> _Ranked:
        """A shard, or group, with what decides when it leaves its item: first what moves anyway,
        then what is not primary; of these, groups whose OSDs hold most, and shards that CRUSH does
        not place there."""
        item = self.here[pg_number][place]
        stays = item == self.origin[pg_number][place]
        return (2 * stays + (place == 0), -self.excess(pg_number, place),
                item in self.raw[pg_number], pg_number, place)

    # ---- Chains of two moves

    def _move_in_chains(self, floor: Mapping[int, int], ceiling: Mapping[int, int]) -> None:
        """Move shards in two steps: one to an intermediate item, and another one from there to the
        target."""
        givers, takers_by_fence = self._givers(floor), self._by_fence(self.takers(ceiling))
        if not givers or not takers_by_fence:
            return
        pgs_lacking = self._pgs_lacking(takers_by_fence)
        shards = self._shards_of(givers)
        usable_by_fence = self._by_fence([item for item, weight in self.weights.items() if weight])
        for giver in givers:
            if not self.affords(giver, moves=2):
                continue
            shards_to = self._shards_by_domain(giver, shards[giver], usable_by_fence)
            for taker in sorted({taker for fence in self.fences_of(giver)
                                 for taker in takers_by_fence.get(fence, ())}):
                onward_pgs = pgs_lacking[self.domain[taker]]
                # A shard that moves anyway can move elsewhere without cost.
                for only_moving in (True, False):
                    while (self.count[giver] > floor[giver] and self.count[taker] < ceiling[taker]
                           and self.affords(giver, moves=2)
                           and self._chain(giver, taker, shards_to, onward_pgs, only_moving)):
                        pass

    def _by_fence(self, items: Iterable[int]) -> Dict[int, Set[int]]:
        """The items by the fences that their shards cannot leave; an item may have several."""
        by_fence: Dict[int, Set[int]] = {}
        for item in items:
            for fence in self.fences_of(item):
                by_fence.setdefault(fence, set()).add(item)
        return by_fence

    def _pgs_lacking(self, takers: Mapping[int, Iterable[int]]) -> Dict[int, List[int]]:
        """Failure domain of a taker -> the PGs without a shard in it: only they can get one there.
        `takers`: by fence."""
        domains = {fence: {self.domain[item] for item in items} for fence, items in takers.items()}
        pgs_by_domain: Dict[int, List[int]] = {
            domain: [] for members in domains.values() for domain in members}
        for pg_number in self.movable_pgs:
            members = self.here[pg_number]
            used_domains = [self.domain[item] for item in members]
            for fence in {fences[item] for fences, item in zip(self.fences, members)}:
                for domain in domains.get(fence, set()).difference(used_domains):
                    pgs_by_domain[domain].append(pg_number)
        return pgs_by_domain

    def _shards_by_domain(self, giver: int, shards: Sequence[_Ranked],
                          items_by_fence: Mapping[int, Iterable[int]]) -> Dict[int, List[_Shard]]:
        """Failure domain of one of the items -> the shards of `giver` that may move there, the best
        at the end."""
        domains = {fence: {self.domain[item] for item in items_by_fence.get(fence, ())}
                   for fence in self.fences_of(giver)}
        shards_by_domain: Dict[int, List[_Shard]] = {}
        for *_, pg_number, place in sorted(shards, reverse=True):
            used_domains = [self.domain[item] for item in self.here[pg_number] if item != giver]
            for domain in domains[self.fences[place][giver]].difference(used_domains):
                shards_by_domain.setdefault(domain, []).append((pg_number, place))
        return shards_by_domain

    def _chain(self, giver: int, taker: int, shards_to: Mapping[int, List[_Shard]],
               onward_pgs: List[int], only_moving: bool) -> bool:
        """Move one shard from `giver` to some item, and one of `onward_pgs` from there to `taker`;
        returns whether that was possible. `only_moving`: the latter is not where its data is."""
        for index, onward_pg in enumerate(onward_pgs):
            for place, middle in enumerate(self.here[onward_pg]):
                self._checks_left -= 1
                moving = self.origin[onward_pg][place] != middle
                if (middle == giver or (only_moving and not moving) or not self.weights[middle]
                        or not self.legal(onward_pg, place, taker)):
                    continue
                shard = self._shard_for(middle, giver, shards_to, onward_pg)
                if shard is not None:
                    self.move(*shard, middle)
                    self.move(onward_pg, place, taker)
                    # It has a shard in the failure domain of `taker` now.
                    onward_pgs[index] = onward_pgs[-1]
                    onward_pgs.pop()
                    return True
            if self._checks_left < 0:
                return False
        return False

    def _shard_for(self, middle: int, giver: int, shards_to: Mapping[int, List[_Shard]],
                   onward_pg: int) -> Optional[_Shard]:
        """The best shard of `giver` that may move to `middle`, not of the PG `onward_pg`; None:
        there is none."""
        for pg_number, place in reversed(shards_to.get(self.domain[middle], ())):
            self._checks_left -= 1
            if (self.here[pg_number][place] == giver and pg_number != onward_pg
                    and self.legal(pg_number, place, middle)):
                return pg_number, place
        return None


class _Takers:
    """The items with less than their ceiling: for each part of the tree that a shard cannot leave,
    a heap of failure domains, and a heap of items in each of them.

    A PG has shards in only a few domains, so one of the first candidates is usually valid.
    """

    def __init__(self, level: ShardLevel, ceiling: Mapping[int, int]) -> None:
        self._level, self._ceiling = level, ceiling
        #: (fence, failure domain) -> heap of (surplus, item).
        self._items: Dict[Tuple[int, int], List[Tuple[float, int]]] = {}
        for item in level.takers(ceiling):
            for fence in level.fences_of(item):
                self._items.setdefault((fence, level.domain[item]), []).append(
                    (level.surplus(item), item))
        #: Fence -> heap of (least surplus of an item in it, failure domain).
        self._domains: Dict[int, List[Tuple[float, int]]] = {}
        for (fence, domain), members in self._items.items():
            heapify(members)
            self._domains.setdefault(fence, []).append((members[0][0], domain))
        for domains in self._domains.values():
            heapify(domains)

    def __bool__(self) -> bool:
        return bool(self._domains)

    def take(self, pg_number: int, place: int) -> Optional[int]:
        """The item that lacks most and may have this shard; None if there is none."""
        level = self._level
        fence = level.fences[place][level.here[pg_number][place]]
        domains = self._domains.get(fence)
        if domains is None:
            return None
        examined = []
        taker: Optional[int] = None
        while domains and taker is None:
            _, domain = heappop(domains)
            members = self._items[fence, domain]
            # Those that are in another fence as well, by which they were filled.
            while members and level.count[members[0][1]] >= self._ceiling[members[0][1]]:
                heappop(members)
            if members and level.legal(pg_number, place, members[0][1]):
                taker = self._taken(members)
            if members:
                examined.append((members[0][0], domain))
        for entry in examined:
            heappush(domains, entry)
        if not domains:
            del self._domains[fence]
        return taker

    def _taken(self, members: List[Tuple[float, int]]) -> int:
        """The first item of a domain's heap, which is about to get a shard: it moves back in the
        heap, or leaves it at its ceiling."""
        item = members[0][1]
        if self._level.count[item] + 1 < self._ceiling[item]:
            heapreplace(members, (self._level.surplus(item) + 1, item))
        else:
            heappop(members)
        return item
