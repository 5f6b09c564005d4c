# SPDX-License-Identifier: LGPL-2.1-or-later
"""The balanced places of the PGs of several pools, by number of PGs or by the fill of the OSDs.
Pure.

1. Each pool is balanced alone: every OSD has its share of the PGs to within a deviation.
2. Shards move from the OSDs that have most of all pools together to those that have least, as far
   as that deviation allows. A load is relative: PGs to the share of PGs, or used to total bytes.
"""
from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from ..cluster.crush import CrushRules
from ..cluster.types import Osd, OsdSet, Pool, Space
from .balance import PlacedPg, Shards, balanced_shards
from .shares import ROUNDING, PoolRoom, Room

#: Differences of relative loads up to this are left: of PGs, and of fill.
PGS_TOLERANCE, FILL_TOLERANCE = 0.01, 0.005
#: Maximum number of other OSDs that are examined for the moves of one OSD, and of shards in all,
#: which takes a few seconds.
MOST_PARTNERS, MOST_CHECKS = 50, 2_000_000


class EvenPool(NamedTuple):
    """A pool that is evened out."""
    pool: Pool
    pgs: Sequence[PlacedPg]
    #: PG -> bytes of one shard.
    sizes: Mapping[str, int]

    @property
    def shards(self) -> int:
        return sum(len(pg.here) for pg in self.pgs)

    @property
    def mean_bytes(self) -> int:
        return sum(self.sizes.values()) // max(1, len(self.sizes))


@dataclass(frozen=True)
class Evened:
    """The end state."""
    #: The new sets of the PGs that move.
    finals: Mapping[str, OsdSet]
    #: Shards that move, and that would move without a limit.
    moved: int
    moved_without_limit: int
    #: Pool id -> greatest distance of an OSD from its share, in PGs, before and after.
    deviations: Mapping[int, Tuple[float, float]]
    #: OSD -> its relative load before and after.
    loads: Mapping[int, Tuple[float, float]]
    #: OSD -> bytes that it gains, or loses.
    gained: Mapping[int, int]


class EvenGround(NamedTuple):
    """What the places depend on, besides the pools."""
    crush: CrushRules
    osds: Mapping[int, Osd]
    #: With what the backfill in progress has yet to copy.
    space: Mapping[int, Space]
    #: Share of an OSD's space that may be used.
    full: float
    #: PGs by which an OSD may differ from its share of a pool.
    deviation: float
    by_bytes: bool
    #: OSD -> bytes of `space` that leave it with the backfill in progress.
    leaving: Mapping[int, int] = {}


def even_out(pools: Sequence[EvenPool], on: EvenGround, budget: int) -> Evened:
    """The end state, with `budget` moved shards at most. Takes about 0.1 ms a shard. `on`: what the
    places depend on, besides the pools."""
    evened = _Evening(pools, on, budgets=None, budget=None)
    moves_without_limit = evened.moved
    if moves_without_limit > budget:
        # Each pool, when it is balanced alone, may use its share of the budget.
        budgets = [budget * moved // moves_without_limit for moved in evened.moved_alone]
        evened = _Evening(pools, on, budgets, budget)
    return evened.result(moves_without_limit)


class _Evening:
    """The moves that even out the loads, in progress; Evened is their result."""

    def __init__(self, pools: Sequence[EvenPool], on: EvenGround, budgets: Optional[Sequence[int]],
                 budget: Optional[int]) -> None:
        """`budgets`: shards that each pool may move when it is balanced alone; `budget`: in all;
        None: unlimited."""
        self._on, self._pools, self._budget = on, pools, budget
        #: The shards of each pool, which move on from where its own balance has put them.
        self._levels, ideal = _balanced_alone(pools, on, budgets)
        self.moved_alone = [level.moved for level in self._levels]
        self._capacity = self._capacities(ideal)
        self._load_at_first = {osd: self._load_before(osd) for osd in self._capacity}
        #: OSD -> bytes that it gains.
        self._gained: Dict[int, int] = {}
        self._load = dict(self._load_at_first)
        for level, even_pool in zip(self._levels, pools):
            for pg, members, origin in zip(level.pgs, level.here, level.origin):
                for old, new in zip(origin, members):
                    if old != new:
                        self._count_move(old, new, even_pool.sizes.get(pg.pgid, 0))
        self._checks_left = MOST_CHECKS
        self.moved = sum(self.moved_alone)
        self._shards_on = self._shards_of()
        #: OSD -> the pools that may use it.
        self._used_by = {osd: {index for index, level in enumerate(self._levels)
                               if level.weights.get(osd)} for osd in self._capacity}
        #: Two OSDs between which no move was of use, and the number of moves of each by then.
        self._useless: Dict[Tuple[int, int], Tuple[int, int]] = {}
        self._move_counts = dict.fromkeys(self._capacity, 0)
        #: (relative load, OSD), the emptiest first.
        self._order = sorted((self._relative(osd), osd) for osd in self._capacity)
        self._even_out()

    def _capacities(self, ideal: Mapping[int, float]) -> Dict[int, float]:
        """What the loads of OSDs are relative to."""
        if not self._on.by_bytes:
            return {osd: share for osd, share in ideal.items() if share > 0.0}
        capacities = {}
        for osd, share in ideal.items():
            row, osd_row = self._on.space.get(osd), self._on.osds.get(osd)
            if share > 0.0 and row is not None and row.total_bytes > 0 and osd_row is not None:
                capacities[osd] = row.total_bytes * osd_row.reweight
        return capacities

    def _load_before(self, osd: int) -> float:
        """The load of an OSD before all moves: bytes, or shards of the pools."""
        if self._on.by_bytes:
            return float(max(0, self._on.space[osd].used_bytes - self._on.leaving.get(osd, 0)))
        return float(sum(level.before.get(osd, 0) for level in self._levels))

    def _relative(self, osd: int) -> float:
        """The load of an OSD relative to its capacity."""
        return self._load[osd] / self._capacity[osd]

    def _count_move(self, giver: int, taker: int, size: int) -> None:
        """Count a shard of `size` bytes that moves from the OSD `giver` to `taker`."""
        for osd, sign in ((giver, -1), (taker, 1)):
            self._gained[osd] = self._gained.get(osd, 0) + sign * size
            if osd in self._load:
                self._load[osd] += sign * (size if self._on.by_bytes else 1)

    def _shards_of(self) -> Dict[int, List[Set[Tuple[int, int]]]]:
        """OSD -> for each pool, the number of the PG and the place of each shard that may move."""
        shards: Dict[int, List[Set[Tuple[int, int]]]] = {
            osd: [set() for _ in self._levels] for osd in self._capacity}
        for index, level in enumerate(self._levels):
            for pg_number in level.movable_pgs:
                for place, osd in enumerate(level.here[pg_number]):
                    if osd in shards:
                        shards[osd][index].add((pg_number, place))
        return shards

    # ---- moves over all pools

    def _even_out(self) -> None:
        """Let the fullest OSDs give first; then let the emptiest take what is left to improve."""
        for fullest_first in (True, False):
            stuck: Set[int] = set()
            while self._checks_left > 0:
                osd = next((osd for _, osd in self._osds_by_load(fullest_first)
                            if osd not in stuck), None)
                if osd is None:
                    break
                if not self._move_one(osd, fullest_first):
                    stuck.add(osd)

    def _osds_by_load(self, fullest_first: bool) -> Iterator[Tuple[float, int]]:
        """(relative load, OSD), the emptiest first, or last if `fullest_first`."""
        return reversed(self._order) if fullest_first else iter(self._order)

    def _move_one(self, osd: int, gives: bool) -> bool:
        """Move one shard from the OSD if it `gives`, else to it, so that the loads get more even;
        returns whether such a move was found."""
        load = self._relative(osd)
        tolerance = FILL_TOLERANCE if self._on.by_bytes else PGS_TOLERANCE
        tried = 0
        # Partners that differ most come first: after one that differs too little, none is of use.
        for other_load, partner in self._osds_by_load(not gives):
            if abs(load - other_load) <= tolerance or tried >= MOST_PARTNERS or \
                    (other_load > load) == gives:
                return False
            if self._used_by[osd].isdisjoint(self._used_by[partner]):
                continue
            tried += 1
            giver, taker = (osd, partner) if gives else (partner, osd)
            best = self._best_move(giver, taker)
            if best is not None:
                self._move(*best, giver, taker)
                return True
        return False

    def _best_move(self, giver: int, taker: int) -> Optional[Tuple[int, int, int]]:
        """The shard whose move evens the loads most, as (index of the pool, number of the PG,
        place); of those that do as much, one that copies no further data, needs no further upmap
        and is not primary. None: no move is legal, within the budget, and evens the loads."""
        candidates: List[Tuple[Tuple[float, int, int, bool, int], Tuple[int, int, int]]] = []
        move_counts = self._move_counts[giver], self._move_counts[taker]
        if self._useless.get((giver, taker)) == move_counts:
            return None
        difference = self._relative(giver) - self._relative(taker)
        inverse_capacities = 1 / self._capacity[giver] + 1 / self._capacity[taker]
        for index, shards in enumerate(self._shards_on[giver]):
            level, sizes = self._levels[index], self._pools[index].sizes
            if not shards or not level.weights.get(taker):
                continue
            # Each pool stays within its deviation.
            if level.count[giver] <= level.wide.low[giver] \
                    or level.count[taker] >= level.wide.high[taker]:
                continue
            for pg_number, place in shards:
                size = sizes.get(level.pgs[pg_number].pgid, 0)
                amount = size if self._on.by_bytes else 1
                # How much the sum of capacity * (relative load)^2 of all OSDs falls.
                gain = amount * (2 * difference - (1.0 + ROUNDING) * amount * inverse_capacities)
                if gain <= 0.0 or not self._has_room(taker, size):
                    continue
                self._checks_left -= 1
                if level.legal(pg_number, place, taker):
                    cost = self._cost(level, pg_number, place, taker)
                    if cost is not None:
                        candidates.append(((-gain, *cost, place == 0, pg_number),
                                           (index, pg_number, place)))
        if not candidates:
            self._useless[giver, taker] = move_counts
            return None
        return min(candidates)[1]

    def _has_room(self, osd: int, size: int) -> bool:
        """Whether so many bytes fit on an OSD, which is not even nearfull; an OSD whose space is
        not known has room for any number."""
        row = self._on.space.get(osd)
        return not self._on.osds[osd].fullness and (row is None or row.total_bytes <= 0 or (
            row.used_bytes + self._gained.get(osd, 0) + size <= self._on.full * row.total_bytes))

    def _cost(self, level: Shards, pg_number: int, place: int,
              taker: int) -> Optional[Tuple[int, int]]:
        """(how many more shards are copied, how many more PGs need an upmap) after a move of a
        shard to the OSD `taker`, -1 to 1 each; None: more than the budget would be copied."""
        members, origin, raw = level.here[pg_number], level.origin[pg_number][place], \
            level.raw[pg_number]
        copied = (taker != origin) - (members[place] != origin)
        if self._budget is not None and self.moved + copied > self._budget:
            return None
        changed = list(members)
        changed[place] = taker
        return copied, _differs(level, changed, raw) - _differs(level, members, raw)

    def _move(self, index: int, pg_number: int, place: int, giver: int, taker: int) -> None:
        """Move a shard of a pool, and keep all that is derived from its place up to date."""
        for osd in (giver, taker):
            del self._order[bisect_left(self._order, (self._relative(osd), osd))]
        level = self._levels[index]
        self.moved -= level.moved
        level.move(pg_number, place, taker)
        self.moved += level.moved
        self._shards_on[giver][index].discard((pg_number, place))
        self._shards_on[taker][index].add((pg_number, place))
        self._count_move(giver, taker, self._pools[index].sizes.get(level.pgs[pg_number].pgid, 0))
        for osd in (giver, taker):
            insort(self._order, (self._relative(osd), osd))
            self._move_counts[osd] += 1

    def result(self, moves_without_limit: int) -> Evened:
        """Where all PGs end, and how even the OSDs are before and after. `moves_without_limit`:
        shards that would move."""
        finals: Dict[str, OsdSet] = {}
        deviations: Dict[int, Tuple[float, float]] = {}
        for level in self._levels:
            finals.update(level.result().finals)
            deviations[level.pool.id] = (_deviation(level, level.before),
                                         _deviation(level, level.count))
        return Evened(finals, self.moved, moves_without_limit, deviations=deviations, loads={
            osd: (self._load_at_first[osd] / capacity, self._relative(osd))
            for osd, capacity in self._capacity.items()}, gained=dict(self._gained))


def _balanced_alone(pools: Sequence[EvenPool], on: EvenGround,
                    budgets: Optional[Sequence[int]]) -> Tuple[List[Shards], Dict[int, float]]:
    """The shards of each pool, balanced one pool after the other, and OSD -> the sum of its ideal
    numbers of shards of all pools. `budgets`: shards that may move, by pool; None: any."""
    levels: List[Shards] = []
    room = Room(on.space, on.full)
    full_osds = {osd: 0 for osd, row in on.osds.items() if row.fullness}
    load: Dict[int, int] = {}
    ideal: Dict[int, float] = {}
    for number, even_pool in enumerate(pools):
        size = even_pool.mean_bytes
        limits = room.of_pool(size)
        if not on.by_bytes:
            # Below 1, so that it only decides between OSDs that lack as much: the one with fewer
            # PGs of the earlier pools is filled first.
            limits = limits._replace(fill={
                osd: min(0.99, max(0.0, 0.5 + (load[osd] - share) / (4 * number + 4)))
                for osd, share in ideal.items()})
        limits = PoolRoom({**limits.more_shards, **full_osds}, limits.fill)
        level = balanced_shards(even_pool.pool, even_pool.pgs, on.crush, on.osds,
                                None if budgets is None else budgets[number], on.deviation,
                                limits, near=on.deviation)
        levels.append(level)
        for osd, count in level.count.items():
            load[osd] = load.get(osd, 0) + count
            ideal[osd] = ideal.get(osd, 0.0) + level.targets.ideal.get(osd, 0.0)
            room.add(osd, size * (count - level.before[osd]))
    return levels, ideal


def _differs(level: Shards, members: Sequence[int], raw: Sequence[int]) -> bool:
    """Whether a PG needs an upmap."""
    return list(members) != list(raw) if level.by_place else set(members) != set(raw)


def _deviation(level: Shards, count: Mapping[int, int]) -> float:
    """The greatest distance of an OSD from its ideal number of shards. OSDs that are to be empty do
    not count: the balance leaves their PGs alone."""
    return max((abs(count[osd] - ideal) for osd, ideal in level.targets.ideal.items()
                if ideal > 0.0), default=0.0)
