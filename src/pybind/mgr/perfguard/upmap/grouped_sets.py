# SPDX-License-Identifier: LGPL-2.1-or-later
"""The sets to which PGs move if a CRUSH rule that chooses several OSDs in each bucket does not
allow them to stay. Pure.

For rules with one take, of which all buckets of a choice have as many shards of a PG. As few shards
as possible leave their OSD. Those of a local group of an LRC, which are the positions that CRUSH
fills from one bucket, end together in one bucket.
"""
from collections import Counter
from itertools import combinations
from typing import (AbstractSet, Callable, Collection, Dict, FrozenSet, Iterable, Iterator, List,
                    Mapping, NamedTuple, Optional, Sequence, Set, Tuple)

from ..cluster.crush_rule import Group
from ..cluster.types import Pool

#: Weight of the emptiness of buckets against one shard that stays, for a whole PG. That of each
#: further choice is half of it: together less than a shard.
_EMPTINESS = 0.5
#: Maximum number of failure domains that are tried for a set, for a PG and for all, which takes a
#: few seconds. Those of a PG do not count up to the number of its shards, since most need no more.
#: Only PGs for which there is hardly any set that two rules allow need many.
_TRIES, _ALL_TRIES = 1_000, 100_000

_Positions = Sequence[int]
#: Positions of a set -> the OSDs that are new there. If positions have no meaning, only their
#: number counts.
_New = Mapping[int, int]


class _Kept(NamedTuple):
    """What stays of some positions, in the buckets of a choice."""
    value: float
    #: Position -> OSD.
    osds: Mapping[int, int]
    #: Of each block of positions: its bucket (None: it gets another one), and what stays there.
    blocks: Sequence[Tuple[Optional[int], '_Kept']] = ()


_NOTHING = _Kept(0.0, {})


class _Placing(NamedTuple):
    """Of a PG: where CRUSH places it, and the OSDs that keep a shard."""
    raw: Sequence[int]
    staying: Sequence[int]


class EarlierRule:
    """What the rule from before, which the new sets must obey as well, allows. It has one take, of
    which all buckets of a choice have as many shards of a PG."""

    def __init__(self, groups: Sequence[Group], size: int, domain: Mapping[int, int],
                 usable: AbstractSet[int]) -> None:
        """`groups`: from the top; `domain`: OSD -> failure domain; `usable`: OSDs that may receive
        shards."""
        self._groups, self.domain, self._usable = groups, domain, usable
        #: By choice: most buckets with shards of a PG in the bucket above.
        self._most_buckets = [above // group.shards for above, group in zip(
            (size, *(group.shards for group in groups)), groups)]

    def beside(self, osds: Collection[int]) -> Callable[[int], bool]:
        """A function that returns whether an OSD may be in a set with `osds`, which the rule allows
        together: at each choice, its bucket may have one more shard, or the bucket above one more
        bucket with shards."""
        used_domains = {self.domain.get(osd) for osd in osds}
        choices, above_of = [], dict.fromkeys(self.domain, 0)
        for group, most in zip(self._groups, self._most_buckets):
            shards = Counter(group.bucket_of.get(osd) for osd in osds)
            buckets_below: Dict[Optional[int], Set[Optional[int]]] = {}
            for osd in osds:
                buckets_below.setdefault(above_of.get(osd), set()).add(group.bucket_of.get(osd))
            full = {above for above, buckets in buckets_below.items() if len(buckets) >= most}
            # `full`: buckets above in which no further bucket may have shards.
            choices.append((group, above_of, shards, full))
            above_of = dict(group.bucket_of)

        def fits(osd: int) -> bool:
            return osd in self._usable and self.domain[osd] not in used_domains and all(
                shards[bucket] < group.shards if bucket in shards
                else above_of[osd] not in full
                for group, above_of, shards, full in choices
                for bucket in (group.bucket_of.get(osd),))

        return fits


class GroupedSets:
    """The OSDs of a rule, with the number of shards that they and their buckets hold, from which
    the new sets of PGs are chosen one after the other."""

    def __init__(self, groups: Sequence[Group], pool: Pool, domain: Mapping[int, int],
                 weights: Mapping[int, float], limits: Mapping[int, int],
                 earlier: Optional[EarlierRule]) -> None:
        """`groups`: of the take, from the top; `domain`: OSD -> failure domain; `weights`: OSD ->
        weight, 0.0 if it must have no shards; `limits`: OSD -> shards for which it has room;
        `earlier`: another rule that the sets obey as well."""
        self._groups, self._size, self._by_place = groups, pool.size, pool.local_groups
        self._domain, self._limits, self._earlier = domain, limits, earlier
        #: Failure domains, and combinations of shards that stay, that may still be tried for this
        #: PG, and for all.
        self._tries_left, self._all_tries_left = 0, _ALL_TRIES
        self._weights = {osd: weight for osd, weight in weights.items() if weight}
        self._count = dict.fromkeys(self._weights, 0)
        self._weight_sum, self._shard_sum = sum(self._weights.values()), 0
        #: By depth: the bucket, or at last the domain, of each OSD.
        self._item_of: List[Mapping[int, int]] = [
            *(group.bucket_of for group in groups), domain]
        #: By depth, parent and item: the OSDs.
        self._osds_below: List[Dict[int, Dict[int, List[int]]]] = []
        for depth, item_of in enumerate(self._item_of):
            below: Dict[int, Dict[int, List[int]]] = {}
            for osd in self._weights:
                parent = self._item_of[depth - 1][osd] if depth else 0
                below.setdefault(parent, {}).setdefault(item_of[osd], []).append(osd)
            self._osds_below.append(below)
        #: By depth and item: weight, and number of shards.
        self._item_weights: List[Dict[int, float]] = [{} for _ in self._item_of]
        self._item_shards: List[Dict[int, int]] = [{} for _ in self._item_of]
        for depth, item_of in enumerate(self._item_of):
            for osd, weight in self._weights.items():
                item = item_of[osd]
                self._item_weights[depth][item] = self._item_weights[depth].get(item, 0.0) + weight
                self._item_shards[depth][item] = 0

    def place(self, pgs: Sequence[Sequence[int]], raws: Sequence[Sequence[int]],
              movable_pgs: AbstractSet[int]) -> List[Sequence[int]]:
        """Each PG's set; of `movable_pgs` (by number), those that the rule does not allow are
        changed. `pgs`: complete sets; `raws`: where CRUSH places them. A PG for which no set is
        found goes to its raw set."""
        for members in pgs:
            self._add(members, 1)
        kept_by_pg: Dict[int, _Kept] = {}
        for pg_number in sorted(movable_pgs):
            kept = self._keep(pgs[pg_number])
            if len(kept.osds) < self._size:
                self._add([osd for position, osd in enumerate(pgs[pg_number])
                           if position not in kept.osds], -1)
                kept_by_pg[pg_number] = kept
        return [self._completed(members, raws[pg_number], kept_by_pg[pg_number])
                if pg_number in kept_by_pg else members for pg_number, members in enumerate(pgs)]

    def _add(self, osds: Sequence[int], change: int) -> None:
        for osd in osds:
            if osd in self._weights:
                self._count[osd] += change
                self._shard_sum += change
                for item_of, shards in zip(self._item_of, self._item_shards):
                    shards[item_of[osd]] += change

    # ---- What stays

    def _keep(self, members: Sequence[int]) -> _Kept:
        """The most shards of a PG that may stay."""
        present = {position: osd for position, osd in enumerate(members) if osd in self._weights}
        return self._best_kept(0, present, range(self._size))

    def _choices(self, members: Sequence[int], best: _Kept) -> Iterator[_Kept]:
        """What may stay, the best first. The earlier rule may allow no set with that, so with two
        rules every other part that may stay follows, the largest first."""
        yield best
        if self._earlier is None:
            return
        present = [(position, osd) for position, osd in enumerate(members) if osd in self._weights]
        for number in range(len(best.osds), -1, -1):
            for kept_rows in combinations(present, number):
                self._tries_left -= 1
                if self._tries_left < 0:
                    return
                kept = self._best_kept(0, dict(kept_rows), range(self._size))
                if len(kept.osds) == number:  # all of them may stay together
                    yield kept

    def _best_kept(self, depth: int, osds: Mapping[int, int], positions: _Positions) -> _Kept:
        """The largest part of `osds` that may stay, in the emptiest buckets. Its value is the
        number of shards that stay, plus less than one for the emptiness.

        `osds`: position -> OSD, all in one bucket of the choice above `depth`; `positions`: those
        that the rule fills from this bucket.
        """
        by_item: Dict[int, Dict[int, int]] = {}
        for position, osd in osds.items():
            by_item.setdefault(self._item_of[depth][osd], {})[position] = osd
        if depth == len(self._groups):
            return self._one_in_each_domain(by_item, len(positions))
        step = self._groups[depth].shards
        blocks = [positions[first:first + step] for first in range(0, len(positions), step)]
        emptiness = _EMPTINESS / self._size / 2 ** depth

        def candidates(block: _Positions) -> List[Tuple[int, _Kept]]:
            """The buckets that may serve a block, each with what stays there, the best first."""
            rows = []
            for bucket, osds_of_bucket in by_item.items():
                usable = {position: osd for position, osd in osds_of_bucket.items()
                          if not self._by_place or position in block}
                if usable:
                    kept = self._best_kept(depth + 1, usable, block)
                    fullness = self._item_shards[depth][bucket] / self._item_weights[depth][bucket]
                    value = kept.value + emptiness / (1.0 + fullness)
                    rows.append((bucket, kept._replace(value=value)))
            return sorted(rows, key=lambda row: (-row[1].value, row[0]))

        chosen: List[Tuple[Optional[int], _Kept]]
        if self._by_place:
            chosen = _assigned([candidates(block) for block in blocks])
        else:
            # All blocks are alike: the best buckets serve them, one each.
            chosen = [*candidates(blocks[0])[:len(blocks)]]
            chosen += [(None, _NOTHING)] * (len(blocks) - len(chosen))
        return _Kept(sum(kept.value for _, kept in chosen), {
            position: osd for _, kept in chosen for position, osd in kept.osds.items()}, chosen)

    def _one_in_each_domain(self, by_domain: Mapping[int, Mapping[int, int]], most: int) -> _Kept:
        """What may stay if no failure domain may have two shards: one in each, on the emptiest OSD,
        `most` in all."""
        rows = sorted(min((self._count[osd] / self._weights[osd], position, osd)
                          for position, osd in osds.items()) for osds in by_domain.values())
        kept = {position: osd for _, position, osd in rows[:most]}
        return _Kept(float(len(kept)), kept)

    # ---- What is new

    def _completed(self, members: Sequence[int], raw: Sequence[int], best: _Kept) -> Sequence[int]:
        """The best set that the rules allow, `raw` if none is found: as many shards as possible
        stay; new ones are where CRUSH places them, else on the emptiest OSDs. Its shards are
        counted in place of those of `best`, the most that can stay."""
        tries = self._tries_left = self._size + min(_TRIES, self._all_tries_left)
        sets = ((kept.osds, new) for kept in self._choices(members, best)
                for new in self._fillings(depth=0, parent=0, positions=range(self._size), kept=kept,
                                          pg=_Placing(raw, list(kept.osds.values())), new={}))
        chosen = next(sets, None)
        self._all_tries_left -= max(0, tries - self._tries_left - self._size)
        self._add(list(best.osds.values()), -1)
        completed = raw if chosen is None else self._in_order(*chosen, raw)
        self._add(completed, 1)
        return completed

    def _in_order(self, staying: Mapping[int, int], new: _New, raw: Sequence[int]) -> List[int]:
        """The complete set. OSDs that stay keep their position; where positions have no meaning,
        new ones take that of `raw` if they are in it."""
        if self._by_place:
            return [osd for _, osd in sorted({**staying, **new}.items())]
        entering = list(new.values())
        places = [staying.get(position) for position in range(self._size)]
        for position, osd in enumerate(raw):
            if places[position] is None and osd in entering:
                places[position] = osd
                entering.remove(osd)
        return [entering.pop(0) if osd is None else osd for osd in places]

    def _fillings(self, depth: int, parent: int, positions: _Positions, kept: _Kept, pg: _Placing,
                  new: _New) -> Iterator[_New]:
        """The ways to fill `positions` with OSDs below the bucket `parent`, the best first.

        `depth`: choices of the rule above; `kept`: what stays at these positions; `pg`: where CRUSH
        places the PG, and all that stays of it; `new`: what was filled elsewhere before, which each
        way contains as well.
        """
        if depth == len(self._groups):
            # Where positions have no meaning, only the number of lacking ones counts.
            lacking = [position for position in positions if position not in kept.osds] \
                if self._by_place else positions[len(kept.osds):]
            used_domains = frozenset(self._domain[osd] for osd in kept.osds.values())
            yield from self._domain_fillings(parent, lacking, used_domains, pg, new)
            return
        step = self._groups[depth].shards
        blocks = [positions[first:first + step] for first in range(0, len(positions), step)]
        kept_in_blocks = kept.blocks or [(None, _NOTHING)] * len(blocks)
        used_buckets = frozenset(bucket for bucket, _ in kept_in_blocks if bucket is not None)
        yield from self._block_fillings(depth, parent, list(zip(blocks, kept_in_blocks)),
                                        used_buckets, pg, new)

    def _block_fillings(self, depth: int, parent: int,
                        rows: Sequence[Tuple[_Positions, Tuple[Optional[int], _Kept]]],
                        used: FrozenSet[int], pg: _Placing, new: _New) -> Iterator[_New]:
        """The ways to fill blocks of positions from different buckets below `parent`, the best
        first. `rows`: blocks of positions, each with its bucket (None: any) and what stays there;
        `used`: buckets that have a block."""
        if not rows:
            yield new
            return
        (block, (kept_in, kept)), *other_rows = rows
        raw = [pg.raw[position] for position in block] if self._by_place else pg.raw
        buckets = self._by_preference(depth, parent, used, raw) if kept_in is None else [kept_in]
        for bucket in buckets:
            for filled in self._fillings(depth + 1, bucket, block, kept, pg, new):
                yield from self._block_fillings(depth, parent, other_rows, used | {bucket}, pg,
                                                filled)

    def _domain_fillings(self, parent: int, lacking: _Positions, used: FrozenSet[int],
                         pg: _Placing, new: _New) -> Iterator[_New]:
        """The ways to put the positions `lacking` on OSDs of different failure domains below a
        bucket, the best first. `used`: failure domains with shards."""
        if not lacking:
            yield new
            return
        position, *other_positions = lacking
        raw_osds = [pg.raw[position]] if self._by_place else pg.raw
        fits = None if self._earlier is None else self._earlier.beside((*pg.staying, *new.values()))
        for domain in self._by_preference(len(self._groups), parent, used, raw_osds):
            self._tries_left -= 1
            if self._tries_left < 0:
                return
            for osd in self._alternatives(self._osds_below[-1][parent][domain], fits, raw_osds):
                yield from self._domain_fillings(parent, other_positions, used | {domain}, pg,
                                                 {**new, position: osd})

    def _alternatives(self, osds: Sequence[int], fits: Optional[Callable[[int], bool]],
                      raw_osds: Sequence[int]) -> Iterable[int]:
        """The best of the OSDs `osds` of a failure domain; if there are two rules (`fits` is not
        None), the best that `fits` in each failure domain of the earlier rule. `raw_osds`: where
        CRUSH places the PG."""
        ordered = sorted(osds, key=lambda osd: (
            self._count[osd] >= self._limits[osd],
            not (osd in raw_osds and self._is_below_share(osd)),
            self._count[osd] / self._weights[osd], osd))
        if self._earlier is None or fits is None:
            return ordered[:1]
        best_by_domain: Dict[int, int] = {}
        for osd in filter(fits, ordered):
            best_by_domain.setdefault(self._earlier.domain[osd], osd)
        return best_by_domain.values()

    def _by_preference(self, depth: int, parent: int, used: AbstractSet[int],
                       raw_osds: Sequence[int]) -> Iterator[int]:
        """The buckets, or domains, below `parent` that are not `used`, for what is new: first that
        of CRUSH (`raw_osds`) unless it has more than its share, then the others, the emptiest
        first."""
        items = self._osds_below[depth].get(parent, {})
        shards, weights = self._item_shards[depth], self._item_weights[depth]
        of_crush = next((item for item in map(self._item_of[depth].get, raw_osds)
                         if item is not None and item in items and item not in used
                         and shards[item] * self._weight_sum <= self._shard_sum * weights[item]),
                        None)
        if of_crush is not None:
            yield of_crush
        yield from sorted((item for item in items if item != of_crush and item not in used),
                          key=lambda item: (shards[item] / weights[item], item))

    def _is_below_share(self, osd: int) -> bool:
        """Whether it has at most its share of what the OSDs hold."""
        return self._count[osd] * self._weight_sum <= self._shard_sum * self._weights[osd]


def _assigned(rows: Sequence[Sequence[Tuple[int, _Kept]]]) -> List[Tuple[Optional[int], _Kept]]:
    """A bucket for each block, none twice, such that the most stays. `rows`: by block, the buckets
    with a part of it, the best first."""
    best_value = -1.0
    best: List[Tuple[Optional[int], _Kept]] = []
    # By block: what stays at most in it and in those after it.
    bounds = [sum(row[0][1].value for row in rows[block:] if row) for block in range(len(rows) + 1)]

    def search(block: int, used: FrozenSet[int], value: float,
               chosen: List[Tuple[Optional[int], _Kept]]) -> None:
        """Try all buckets for this block and those after it, unless even the best ones that these
        could have would not exceed the best choice so far."""
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
