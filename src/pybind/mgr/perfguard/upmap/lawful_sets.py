# SPDX-License-Identifier: LGPL-2.1-or-later
"""The sets to which PGs move if a CRUSH rule does not allow them to stay: as few shards as possible
leave their OSD. Pure.

A rule chooses buckets of one type, below each of them buckets of the next type, and so on down to
the failure domain, which holds at most one shard of a PG. Most shards stay if each bucket keeps as
many as it may hold, and if the buckets with the most of them are chosen. The others go to OSDs that
complete the set: to those of CRUSH unless they have more than their share, else to the emptiest.
"""
from heapq import heappop, heappush
from typing import (AbstractSet, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple)

from ..cluster.crush_rule import Group, Take


class LawfulSets:
    """The takes of a rule, with the number of shards that its buckets and OSDs hold."""

    def __init__(self, takes: Sequence[Take], domain: Mapping[int, int],
                 weights: Mapping[int, float], most: Mapping[int, int]) -> None:
        """`weights`: OSD -> weight, 0.0 if it must have no shards; `most`: OSD -> shards for which
        it has room."""
        self._takes = takes
        self._trees = [_Part([*take.groups, Group(1, domain)], take.shards, {
            osd: weight for osd, weight in weights.items() if weight and osd in take.osds}, most)
            for take in takes]

    def place(self, pgs: Sequence[Sequence[int]], raws: Sequence[Sequence[int]],
              broken: AbstractSet[int], by_place: bool) -> List[Sequence[int]]:
        """Each PG's set; those of the PGs `broken` (by number) are changed.

        `pgs`: complete sets; `raws`: where CRUSH places them. `by_place`: positions matter, as in
        erasure coded pools. A PG for which no set is found goes to its raw set.
        """
        for here in pgs:
            for osd in here:
                self._count(osd, 1)
        kept = {number: self._kept(pgs[number], by_place) for number in sorted(broken)}
        return [self._completed(here, raws[number], kept[number], by_place)
                if number in kept else here for number, here in enumerate(pgs)]

    def _kept(self, here: Sequence[int], by_place: bool) -> List[List[int]]:
        """By take, the OSDs that stay."""
        found: List[List[int]] = []
        begin, left = 0, list(here)
        for take, tree in zip(self._takes, self._trees):
            candidates = here[begin:begin + take.shards] if by_place else left
            found.append(tree.kept([osd for osd in candidates if osd in tree], take.shards))
            left = [osd for osd in left if osd not in found[-1]]
            begin += take.shards
        for osd in here:
            if not any(osd in osds for osds in found):
                self._count(osd, -1)
        return found

    def _completed(self, here: Sequence[int], raw: Sequence[int], kept: Sequence[List[int]],
                   by_place: bool) -> Sequence[int]:
        found: List[int] = []
        for take, tree, osds in zip(self._takes, self._trees, kept):
            raw_part = raw[len(found):len(found) + take.shards]
            fresh = tree.added(osds, take.shards, tree.below_share(raw_part))
            if len(osds) + len(fresh) < take.shards:
                return raw
            for osd in fresh:
                self._count(osd, 1)
            part = here[len(found):len(found) + take.shards] \
                if by_place or len(self._takes) == 1 else tuple(osds)
            found += _at_places(part, set(osds), fresh, raw_part, take.shards)
        return tuple(found)

    def _count(self, osd: int, more: int) -> None:
        for tree in self._trees:
            tree.count(osd, more)


def _at_places(part: Sequence[int], kept: AbstractSet[int], fresh: Sequence[int],
               raw: Sequence[int], shards: int) -> List[int]:
    """What stays remains at its position. Of what is new, as much as possible is where CRUSH has
    it, which needs no pair."""
    places: List[Optional[int]] = [osd if osd in kept else None for osd in part]
    places += [None] * (shards - len(places))
    left = list(fresh)
    for place, osd in enumerate(raw):
        if places[place] is None and osd in left:
            places[place] = osd
            left.remove(osd)
    return [left.pop(0) if osd is None else osd for osd in places]


class _Part:
    """A part of a rule's tree that holds up to so many shards of a PG."""

    def __init__(self, choices: Sequence[Group], shards: int, weights: Mapping[int, float],
                 most: Mapping[int, int]) -> None:
        """`choices`: the rule's choices below it; none: it is a failure domain."""
        self._most, self._weights = most, weights
        self._weight, self._shards = sum(weights.values()), 0
        self._each = choices[0].shards if choices else 1
        #: OSD -> bucket of the next choice, or the OSD itself.
        self._child_of = {osd: choices[0].bucket_of[osd] if choices else osd for osd in weights}
        self._osd_shards = dict.fromkeys(() if choices else weights, 0)
        members: Dict[int, Dict[int, float]] = {}
        for osd, weight in weights.items() if choices else ():
            members.setdefault(self._child_of[osd], {})[osd] = weight
        self._children = {bucket: _Part(choices[1:], self._each, osds, most)
                          for bucket, osds in members.items()}
        #: For how many shards of a PG it has room.
        self._room: int = min(shards, sum(child._room for child in self._children.values())) \
            if choices else min(1, len(weights))
        #: (fullness, bucket) of children; a fullness may be outdated, that is, too low.
        self._heap = [(0.0, bucket) for bucket in sorted(self._children)]

    def __contains__(self, osd: int) -> bool:
        return osd in self._weights

    @property
    def _fullness(self) -> float:
        return self._shards / self._weight

    def count(self, osd: int, more: int) -> None:
        """Note that an OSD has so many shards more."""
        if osd in self._weights:
            self._shards += more
            if self._children:
                self._children[self._child_of[osd]].count(osd, more)
            else:
                self._osd_shards[osd] += more

    def below_share(self, osds: Iterable[int]) -> List[int]:
        """Those with at most the mean number of shards for their weight, and room for one more."""
        return [osd for osd in osds if osd in self._weights
                and self._shards_on(osd) <= self._weights[osd] * self._fullness
                and self._shards_on(osd) < self._most[osd]]

    def _shards_on(self, osd: int) -> int:
        return self._children[self._child_of[osd]]._shards_on(osd) if self._children \
            else self._osd_shards[osd]

    def kept(self, osds: Sequence[int], shards: int) -> List[int]:
        """As many of these OSDs as may stay, in their order; of those, the emptiest."""
        if not self._children:
            return [min(osds, key=lambda osd: self._osd_shards[osd] / self._weights[osd])]
        kept = {child: self._children[child].kept(members, self._each)
                for child, members in self._by_child(osds).items()}
        chosen = sorted(kept, key=lambda child: (
            -len(kept[child]), self._children[child]._fullness))[:self._children_for(shards)]
        staying = [osd for child in chosen for osd in kept[child]][:shards]
        return sorted(staying, key=osds.index)

    def added(self, kept: Sequence[int], shards: int, preferred: Sequence[int]) -> List[int]:
        """The OSDs that complete what is kept, fewer if there are none; those that are `preferred`
        before others."""
        if not self._children:
            return [] if kept else [self._emptiest_osd(preferred)]
        used, found = self._by_child(kept), list[int]()
        wished = self._by_child(preferred)
        while len(kept) + len(found) < shards:
            left = shards - len(kept) - len(found)
            child = next((child for child in used if self._lacks(child, used[child])), None)
            if child is None:
                child = self._next_child(used, wished, min(self._each, left))
                if child is None or len(used) == self._children_for(shards):
                    break
                used[child] = []
            have = used[child]
            fresh = self._children[child].added(
                have, min(self._each, len(have) + left), wished.get(child, ()))
            if not fresh:
                break
            used[child] = [*have, *fresh]
            found += fresh
        return found

    def _lacks(self, child: int, osds: Sequence[int]) -> bool:
        return len(osds) < min(self._each, self._children[child]._room)

    def _children_for(self, shards: int) -> int:
        return -(-shards // self._each)

    def _by_child(self, osds: Iterable[int]) -> Dict[int, List[int]]:
        found: Dict[int, List[int]] = {}
        for osd in osds:
            if osd in self._child_of:
                found.setdefault(self._child_of[osd], []).append(osd)
        return found

    def _emptiest_osd(self, preferred: Sequence[int]) -> int:
        if preferred:
            return preferred[0]
        return min(self._weights, key=lambda osd: (
            self._osd_shards[osd] >= self._most[osd], self._osd_shards[osd] / self._weights[osd],
            osd))

    def _next_child(self, used: Mapping[int, object], wished: Mapping[int, object],
                    shards: int) -> Optional[int]:
        """The bucket for so many further shards, of those that have none yet."""
        for child in wished:
            if child not in used and self._children[child]._room >= shards:
                return child
        passed: List[Tuple[float, int]] = []
        chosen: Optional[int] = None
        while self._heap and chosen is None:
            known, child = heappop(self._heap)
            fullness = self._children[child]._fullness
            if fullness > known:
                heappush(self._heap, (fullness, child))
                continue
            passed.append((fullness, child))
            if child not in used and self._children[child]._room >= shards:
                chosen = child
        for entry in passed:
            heappush(self._heap, entry)
        return chosen
