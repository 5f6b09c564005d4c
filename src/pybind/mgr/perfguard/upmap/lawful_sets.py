# SPDX-License-Identifier: LGPL-2.1-or-later
"""The sets to which PGs move if a CRUSH rule does not allow them to stay: as few shards as possible
leave their OSD. Pure.

For rules with one take, of which each failure domain holds at most one shard of a PG. One shard in
each domain stays. The others go to domains without a shard of the PG: to the OSDs of CRUSH unless
they have more than their share, else to the emptiest.
"""
from heapq import heappop, heappush
from typing import AbstractSet, Dict, List, Mapping, Optional, Sequence, Tuple


class LawfulSets:
    """The OSDs of a rule, with the number of shards that they and their domains hold."""

    def __init__(self, domain: Mapping[int, int], weights: Mapping[int, float],
                 most: Mapping[int, int]) -> None:
        """`domain`: OSD -> failure domain; `weights`: OSD -> weight, 0.0 if it must have no
        shards; `most`: OSD -> shards for which it has room."""
        self._domain, self._most = domain, most
        self._weights = {osd: weight for osd, weight in weights.items() if weight}
        self._members: Dict[int, List[int]] = {}
        for osd in self._weights:
            self._members.setdefault(domain[osd], []).append(osd)
        self._domain_weights = {key: sum(self._weights[osd] for osd in osds)
                                for key, osds in self._members.items()}
        self._weight, self._total = sum(self._weights.values()), 0
        self._shards = dict.fromkeys(self._weights, 0)
        self._domain_shards = dict.fromkeys(self._members, 0)
        #: (fullness, domain); a fullness may be outdated, that is, too low.
        self._heap = [(0.0, key) for key in sorted(self._members)]

    def place(self, pgs: Sequence[Sequence[int]], raws: Sequence[Sequence[int]],
              broken: AbstractSet[int]) -> List[Sequence[int]]:
        """Each PG's set; those of the PGs `broken` (by number) are changed.

        `pgs`: complete sets; `raws`: where CRUSH places them. A PG for which no set is found goes
        to its raw set.
        """
        for here in pgs:
            for osd in here:
                self._count(osd, 1)
        kept = {number: self._kept(pgs[number]) for number in sorted(broken)}
        return [self._completed(here, raws[number], kept[number]) if number in kept else here
                for number, here in enumerate(pgs)]

    def _count(self, osd: int, more: int) -> None:
        if osd in self._shards:
            self._total += more
            self._shards[osd] += more
            self._domain_shards[self._domain[osd]] += more

    def _kept(self, here: Sequence[int]) -> AbstractSet[int]:
        """The emptiest OSD of each domain, which keeps its shard."""
        members: Dict[int, List[int]] = {}
        for osd in here:
            if osd in self._weights:
                members.setdefault(self._domain[osd], []).append(osd)
        kept = {min(osds, key=self._fullness) for osds in members.values()}
        for osd in here:
            if osd not in kept:
                self._count(osd, -1)
        return kept

    def _completed(self, here: Sequence[int], raw: Sequence[int],
                   kept: AbstractSet[int]) -> Sequence[int]:
        """What stays remains at its position. Of what is new, as much as possible is where CRUSH
        has it, which needs no pair."""
        new = self._new(kept, len(here), [osd for osd in raw if self._is_below_share(osd)])
        if len(kept) + len(new) < len(here):
            return raw
        for osd in new:
            self._count(osd, 1)
        places = [osd if osd in kept else None for osd in here]
        for place, osd in enumerate(raw):
            if places[place] is None and osd in new:
                places[place] = osd
                new.remove(osd)
        return [new.pop(0) if osd is None else osd for osd in places]

    def _new(self, kept: AbstractSet[int], size: int, preferred: Sequence[int]) -> List[int]:
        """The OSDs that complete a set, fewer if there are none; those that are `preferred` before
        others."""
        used = {self._domain[osd] for osd in kept}
        found: List[int] = []
        for osd in preferred:
            if len(kept) + len(found) < size and self._domain[osd] not in used:
                used.add(self._domain[osd])
                found.append(osd)
        while len(kept) + len(found) < size:
            domain = self._emptiest_domain(used)
            if domain is None:
                break
            used.add(domain)
            found.append(min(self._members[domain], key=lambda osd: (
                self._shards[osd] >= self._most[osd], self._fullness(osd), osd)))
        return found

    def _is_below_share(self, osd: int) -> bool:
        """Whether it has at most the mean number of shards for its weight, and room for another."""
        return osd in self._weights and self._shards[osd] < self._most[osd] and self._shards[osd] \
            <= self._weights[osd] * self._total / self._weight

    def _fullness(self, osd: int) -> float:
        return self._shards[osd] / self._weights[osd]

    def _emptiest_domain(self, used: AbstractSet[int]) -> Optional[int]:
        """Of those that are not used."""
        passed: List[Tuple[float, int]] = []
        chosen: Optional[int] = None
        while self._heap and chosen is None:
            known, domain = heappop(self._heap)
            fullness = self._domain_shards[domain] / self._domain_weights[domain]
            if fullness > known:
                heappush(self._heap, (fullness, domain))
                continue
            passed.append((fullness, domain))
            if domain not in used:
                chosen = domain
        for entry in passed:
            heappush(self._heap, entry)
        return chosen
