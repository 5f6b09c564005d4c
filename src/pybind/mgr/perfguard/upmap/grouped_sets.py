# SPDX-License-Identifier: LGPL-2.1-or-later
"""The sets to which PGs move if a CRUSH rule that chooses several OSDs in each bucket does not
allow them to stay. Pure.

For rules with one take, of which all buckets of a choice have as many shards of a PG. As few shards
as possible leave their OSD. Those of a local group of an LRC, which are the positions that CRUSH
fills from one bucket, end together in one bucket.
"""
from typing import (AbstractSet, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence,
                    Tuple)

from ..cluster.crush_rule import Group
from ..cluster.types import Pool

#: Weight of the emptiness of buckets against one shard that stays, for a whole PG. That of each
#: further choice is half of it: together less than a shard.
_EMPTINESS = 0.5

_Positions = Sequence[int]


class _Kept(NamedTuple):
    """What stays of some positions, in the buckets of a choice."""
    value: float
    #: Position -> OSD.
    osds: Mapping[int, int]
    #: Of each block of positions: its bucket (None: it gets another one), and what stays there.
    blocks: Sequence[Tuple[Optional[int], '_Kept']] = ()


_NOTHING = _Kept(0.0, {})


class GroupedSets:
    """The OSDs of a rule, with the number of shards that they and their buckets hold."""

    def __init__(self, groups: Sequence[Group], pool: Pool, domain: Mapping[int, int],
                 weights: Mapping[int, float], limits: Mapping[int, int]) -> None:
        """`groups`: of the take, from the top. Others: as of LawfulSets."""
        self._groups, self._size, self._by_place = groups, pool.size, pool.local_groups
        self._domain, self._limits = domain, limits
        self._weights = {osd: weight for osd, weight in weights.items() if weight}
        self._count = dict.fromkeys(self._weights, 0)
        self._weight, self._total = sum(self._weights.values()), 0
        #: By depth: the bucket, or at last the domain, of each OSD.
        self._items: List[Mapping[int, int]] = [
            *(group.bucket_of for group in groups), domain]
        #: By depth, parent and item: the OSDs.
        self._below: List[Dict[int, Dict[int, List[int]]]] = []
        for depth, item_of in enumerate(self._items):
            below: Dict[int, Dict[int, List[int]]] = {}
            for osd in self._weights:
                below.setdefault(self._parent(depth, osd), {}).setdefault(
                    item_of[osd], []).append(osd)
            self._below.append(below)
        #: By depth and item: weight, and number of shards.
        self._sums: List[Dict[int, float]] = [{} for _ in self._items]
        self._shards: List[Dict[int, int]] = [{} for _ in self._items]
        for depth, item_of in enumerate(self._items):
            for osd, weight in self._weights.items():
                item = item_of[osd]
                self._sums[depth][item] = self._sums[depth].get(item, 0.0) + weight
                self._shards[depth][item] = 0

    def place(self, pgs: Sequence[Sequence[int]], raws: Sequence[Sequence[int]],
              free: AbstractSet[int]) -> List[Sequence[int]]:
        """Each PG's set; of the PGs `free` (by number), those that the rule does not allow are
        changed. `pgs`: complete sets; `raws`: where CRUSH places them. A PG for which no set is
        found goes to its raw set."""
        for members in pgs:
            self._add(members, 1)
        kept_by_pg: Dict[int, _Kept] = {}
        for number in sorted(free):
            kept = self._keep(pgs[number])
            if len(kept.osds) < self._size:
                self._add([osd for position, osd in enumerate(pgs[number])
                           if position not in kept.osds], -1)
                kept_by_pg[number] = kept
        return [self._completed(raws[number], kept_by_pg[number])
                if number in kept_by_pg else members for number, members in enumerate(pgs)]

    def _add(self, osds: Sequence[int], change: int) -> None:
        for osd in osds:
            if osd in self._weights:
                self._count[osd] += change
                self._total += change
                for item_of, shards in zip(self._items, self._shards):
                    shards[item_of[osd]] += change

    def _parent(self, depth: int, osd: int) -> int:
        return self._items[depth - 1][osd] if depth else 0

    # ---- What stays

    def _keep(self, members: Sequence[int]) -> _Kept:
        present = {position: osd for position, osd in enumerate(members) if osd in self._weights}
        return self._best(0, present, range(self._size))

    def _best(self, depth: int, osds: Mapping[int, int], positions: _Positions) -> _Kept:
        """The most that may stay of `osds` (position -> OSD, all in one bucket), where `positions`
        are in one bucket."""
        by_item: Dict[int, Dict[int, int]] = {}
        for position, osd in osds.items():
            by_item.setdefault(self._items[depth][osd], {})[position] = osd
        if depth == len(self._groups):
            return self._one_in_each(by_item, len(positions))
        step = self._groups[depth].shards
        blocks = [positions[first:first + step] for first in range(0, len(positions), step)]
        emptiness = _EMPTINESS / self._size / 2 ** depth

        def candidates(block: _Positions) -> List[Tuple[int, _Kept]]:
            rows = []
            for item, there in by_item.items():
                inside = {position: osd for position, osd in there.items()
                          if not self._by_place or position in block}
                if inside:
                    kept = self._best(depth + 1, inside, block)
                    rows.append((item, kept._replace(value=kept.value + emptiness / (
                        1.0 + self._shards[depth][item] / self._sums[depth][item]))))
            return sorted(rows, key=lambda row: (-row[1].value, row[0]))

        rows = [candidates(block) for block in blocks] if self._by_place \
            else [candidates(blocks[0])] * len(blocks)
        chosen = _assigned(rows) if self._by_place else [
            *rows[0][:len(blocks)], *[(None, _NOTHING)] * (len(blocks) - len(rows[0]))]
        return _Kept(sum(kept.value for _, kept in chosen), {
            position: osd for _, kept in chosen for position, osd in kept.osds.items()}, chosen)

    def _one_in_each(self, by_domain: Mapping[int, Mapping[int, int]], most: int) -> _Kept:
        """One shard in each failure domain stays, on the emptiest OSD."""
        rows = sorted(min((self._count[osd] / self._weights[osd], position, osd)
                          for position, osd in there.items()) for there in by_domain.values())
        kept = {position: osd for _, position, osd in rows[:most]}
        return _Kept(float(len(kept)), kept)

    # ---- What is new

    def _completed(self, raw: Sequence[int], kept: _Kept) -> Sequence[int]:
        places: List[Optional[int]] = [kept.osds.get(position) for position in range(self._size)]
        new: List[int] = []
        if not self._fill(0, 0, range(self._size), kept, raw, places, new):
            self._add(list(kept.osds.values()), -1)
            self._add(raw, 1)
            return raw
        if not self._by_place:
            for position, osd in enumerate(raw):
                if places[position] is None and osd in new:
                    places[position] = osd
                    new.remove(osd)
            places = [new.pop(0) if osd is None else osd for osd in places]
        return [osd for osd in places if osd is not None]

    def _fill(self, depth: int, parent: int, positions: _Positions, kept: _Kept,
              raw: Sequence[int], places: List[Optional[int]], new: List[int]) -> bool:
        """Complete `positions` below a bucket: in `places` if they have a meaning, else the OSDs in
        `new` are added. False: there are too few OSDs."""
        if depth == len(self._groups):
            return self._fill_domains(parent, positions, kept, raw, places, new)
        step = self._groups[depth].shards
        blocks = [positions[first:first + step] for first in range(0, len(positions), step)]
        rows = kept.blocks or [(None, _NOTHING)] * len(blocks)
        used = {item for item, _ in rows if item is not None}
        for block, (item, inside) in zip(blocks, rows):
            if item is None:
                item = self._emptiest(depth, parent, used, [
                    raw[position] for position in block] if self._by_place else raw)
            if item is None or not self._fill(depth + 1, item, block, inside, raw, places, new):
                return False
            used.add(item)
        return True

    def _fill_domains(self, parent: int, positions: _Positions, kept: _Kept, raw: Sequence[int],
                      places: List[Optional[int]], new: List[int]) -> bool:
        depth = len(self._groups)
        used = {self._domain[osd] for osd in kept.osds.values()}
        lacking = [position for position in positions if position not in kept.osds] \
            if self._by_place else positions[len(kept.osds):]
        for position in lacking:
            wishes = [raw[position]] if self._by_place else raw
            domain = self._emptiest(depth, parent, used, wishes)
            if domain is None:
                return False
            osds = self._below[depth][parent][domain]
            osd = min(osds, key=lambda osd: (
                self._count[osd] >= self._limits[osd], not (osd in wishes and self._is_low(osd)),
                self._count[osd] / self._weights[osd], osd))
            used.add(domain)
            self._add([osd], 1)
            if self._by_place:
                places[position] = osd
            else:
                new.append(osd)
        return True

    def _emptiest(self, depth: int, parent: int, used: AbstractSet[int],
                  wishes: Sequence[int]) -> Optional[int]:
        """The bucket, or domain, for what is new: that of CRUSH unless it has more than its share,
        else the emptiest."""
        items = self._below[depth].get(parent, {})
        shards, weights = self._shards[depth], self._sums[depth]
        for osd in wishes:
            wish = self._items[depth].get(osd)
            if wish is not None and wish in items and wish not in used \
                    and shards[wish] * self._weight <= self._total * weights[wish]:
                return wish
        rows = [(shards[item] / weights[item], item) for item in items if item not in used]
        return min(rows)[1] if rows else None

    def _is_low(self, osd: int) -> bool:
        """Whether it has at most its share of what the OSDs hold."""
        return self._count[osd] * self._weight <= self._total * self._weights[osd]


def _assigned(rows: Sequence[Sequence[Tuple[int, _Kept]]]) -> List[Tuple[Optional[int], _Kept]]:
    """A bucket for each block, none twice, such that the most stays. `rows`: by block, the buckets
    with a part of it, the best first."""
    best_value = -1.0
    best: List[Tuple[Optional[int], _Kept]] = []
    bounds = [sum(row[0][1].value for row in rows[block:] if row) for block in range(len(rows) + 1)]

    def search(block: int, used: FrozenSet[int], value: float,
               chosen: List[Tuple[Optional[int], _Kept]]) -> None:
        nonlocal best_value, best
        if value + bounds[block] <= best_value:
            return
        if block == len(rows):
            best_value, best = value, chosen
            return
        for item, kept in rows[block]:
            if item not in used:
                search(block + 1, used | {item}, value + kept.value, [*chosen, (item, kept)])
        search(block + 1, used, value, [*chosen, (None, _NOTHING)])

    search(0, frozenset(), 0.0, [])
    return best
