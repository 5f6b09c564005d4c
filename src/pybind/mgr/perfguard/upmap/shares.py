# SPDX-License-Identifier: LGPL-2.1-or-later
"""The number of shards of a pool that each OSD should have, and its space for more. Pure."""
import math
from collections import Counter
from dataclasses import dataclass
from operator import itemgetter
from typing import (AbstractSet, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional,
                    Sequence, Set, Tuple)

from ..cluster.crush import CrushRules
from ..cluster.crush_rule import Group, Spread, Take
from ..cluster.types import Osd, OsdMap, Placement, Pool, Space, pool_of

#: An OSD with a CRUSH weight up to this is being drained: 0.0001 in units of 1/65536, rounded. So
#: is an OSD whose weight is below this share of the mean weight.
DRAIN_WEIGHT = 0.00012
DRAIN_SHARE = 0.001
#: Room for the rounding of Ceph, which computes deviations in single precision: 1.0 exactly is
#: within max_deviation for us and may be beyond it for the balancer.
ROUNDING = 1e-5
#: Share of its PGs that an OSD may lack if it held none before.
LACKING_SHARE = 0.25


@dataclass(frozen=True)
class Targets:
    """The ideal number by OSD of the rule's tree, or by bucket, and the whole numbers that are
    close enough to it."""
    ideal: Mapping[int, float]
    low: Mapping[int, int]
    high: Mapping[int, int]

    def filled(self, count: Mapping[int, int], limits: Mapping[int, int]) -> Dict[int, int]:
        """The number of shards up to which each OSD takes more from OSDs within their targets, if
        CRUSH places them there: `low`; or, if the OSD holds nothing of the pool yet, all but a
        quarter of its share (LACKING_SHARE).

        By `low` alone, an OSD whose share is hardly more than the deviation would stay empty. Where
        the share is less than a PG, as in a pool of one PG, nothing moves.
        """
        return {osd: low if count.get(osd) else min(limits[osd], max(
            low, math.floor((1.0 - LACKING_SHARE) * self.ideal[osd] + ROUNDING)))
                for osd, low in self.low.items()}


def weights_of(pool: Pool, crush: CrushRules, osds: Mapping[int, Osd],
               spread: Spread) -> Dict[int, float]:
    """CRUSH weight times reweight, as OSDMap::calc_pg_upmaps counts; 0.0: to be emptied, such as
    the last OSD of a bucket in which the rule chooses two, if there are other buckets."""
    crush_weight = {osd: crush.weight_of(pool.crush_rule, osd) for osd in spread.domain}
    mean = sum(crush_weight.values()) / max(1, len(crush_weight))
    weights: Dict[int, float] = {}
    for osd, weight in crush_weight.items():
        osd_row = osds.get(osd)
        drained = weight <= max(DRAIN_WEIGHT, DRAIN_SHARE * mean)
        usable = osd_row is not None and osd_row.exists and not osd_row.destroyed
        weights[osd] = weight * osd_row.reweight if osd_row and usable and not drained else 0.0
    usable_osds = {osd for osd, weight in weights.items() if weight}
    choosable = {osd for take in spread.takes
                 for osd in _choosable(take, usable_osds, spread.domain)}
    if crush.fewest_chosen(pool.crush_rule, pool.size, choosable) < pool.size:
        # Without other buckets, CRUSH uses incomplete ones.
        return weights
    return {osd: weight if osd in choosable else 0.0 for osd, weight in weights.items()}


def _choosable(take: Take, osds: AbstractSet[int], domain: Mapping[int, int]) -> AbstractSet[int]:
    """The OSDs of a take in buckets that have enough of them for the shards of a PG. All if the
    take is not even: then a bucket may have fewer shards."""
    choosable = osds & take.osds
    # Items: failure domains, then the buckets of each choice, from the lowest.
    item_of, item_shards = domain, 1
    for group in reversed(take.groups if take.even else ()):
        items_by_bucket: Dict[int, Set[int]] = {}
        for osd in choosable:
            items_by_bucket.setdefault(group.bucket_of[osd], set()).add(item_of[osd])
        choosable = {osd for osd in choosable
                     if item_shards * len(items_by_bucket[group.bucket_of[osd]]) >= group.shards}
        item_of, item_shards = group.bucket_of, group.shards
    return choosable


def ideals(weights: Mapping[int, float], spread: Spread, shards: Sequence[int],
           pgs: Sequence[int]) -> List[Dict[int, float]]:
    """The ideal number of shards of the OSDs of each take.

    `shards` and `pgs`: how many shards, and how many PGs with a shard, each take holds. Shares go
    by weight; but a part of the tree has at most as many shards of each PG as the rule places
    there, and what it therefore cannot take is shared by the others.
    """
    takes_of = Counter(osd for take in spread.takes for osd in take.osds)
    return [_shares({osd: weights[osd] / takes_of[osd] for osd in sorted(take.osds)},
                    [*take.groups, Group(1, spread.domain)], total, pg_count, even=take.even)
            for take, total, pg_count in zip(spread.takes, shards, pgs)]


def _shares(weights: Mapping[int, float], choices: Sequence[Group], total: float, pgs: float,
            even: bool = True) -> Dict[int, float]:
    """How many of the `total` shards of `pgs` PGs each OSD should have: by weight, but a bucket has
    at most so many shards of each PG as its choice allows. `choices`: from the top; `even`: of each
    PG, a bucket has that number of shards, or none."""
    if not choices:
        whole = sum(weights.values())
        return {osd: total * weight / whole if weight else 0.0 for osd, weight in weights.items()}
    choice, *below = choices
    #: Bucket -> OSD -> weight.
    buckets: Dict[int, Dict[int, float]] = {}
    for osd, weight in weights.items():
        buckets.setdefault(choice.bucket_of[osd], {})[osd] = weight
    share = _capped(sorted(((bucket, sum(members.values())) for bucket, members in buckets.items()),
                           key=itemgetter(1)), total, pgs * choice.shards)
    shares: Dict[int, float] = {}
    for bucket, members in buckets.items():
        shares.update(_shares(members, below, share[bucket],
                              share[bucket] / choice.shards if even else pgs, even))
    return shares


def targets(weights: Mapping[int, float], by_take: Sequence[Mapping[int, float]], within: float,
            limits: Mapping[int, int]) -> Targets:
    """The targets of OSDs, by the ideals in each take. `within`: how far from the ideal is near
    enough; `limits`: OSD -> shards for which it has room."""
    ideal = {osd: sum(shares.get(osd, 0.0) for shares in by_take) for osd in weights}
    return Targets(ideal,
                   {osd: min(limits[osd], _low(share, within)) for osd, share in ideal.items()},
                   {osd: min(limits[osd], _high(share, within) if weights[osd] else 0)
                    for osd, share in ideal.items()})


def _low(share: float, within: float) -> int:
    return max(0, math.ceil(share - within + ROUNDING))


def _high(share: float, within: float) -> int:
    return math.floor(share + within - ROUNDING)


def bucket_targets(weights: Mapping[int, float], ideal: Mapping[int, float],
                   buckets: Mapping[int, Sequence[int]], unit: float, within: float,
                   limits: Mapping[int, int]) -> Targets:
    """How many groups of shards buckets (with their OSDs) should have, so that each of their OSDs
    can be near enough to its ideal; `unit`: shards of a group; `limits`: by bucket."""
    shares, low, high = {}, {}, {}
    for bucket, osds in buckets.items():
        usable = [ideal[osd] for osd in osds if weights[osd]]
        share = shares[bucket] = sum(usable) / unit
        lowest = math.ceil(sum(_low(share_of_osd, within)
                               for share_of_osd in usable) / unit - ROUNDING)
        highest = math.floor(sum(_high(share_of_osd, within)
                                 for share_of_osd in usable) / unit + ROUNDING)
        if lowest > highest:
            # No whole number of groups suits all OSDs: the two next to the share.
            lowest, highest = math.floor(share + ROUNDING), math.ceil(share - ROUNDING)
        low[bucket], high[bucket] = min(limits[bucket], lowest), min(limits[bucket], highest)
    return Targets(shares, low, high)


def in_whole_groups(bounds: Targets, limits: Mapping[int, int]) -> Targets:
    """Targets of buckets, widened so that they can be reached although only whole groups of shards
    move: the next smaller and the next larger number of groups are near enough to the ideal.
    `limits`: bucket -> groups for which it has room."""
    return Targets(bounds.ideal, {bucket: min(low, math.floor(bounds.ideal[bucket] + ROUNDING))
                                  for bucket, low in bounds.low.items()},
                   {bucket: min(limits[bucket], max(
                       high, math.ceil(bounds.ideal[bucket] - ROUNDING)))
                       for bucket, high in bounds.high.items()})


def widened_in_buckets(before: Targets, weights: Mapping[int, float], group: Group,
                       domain: Mapping[int, int], count: Mapping[int, int], within: float,
                       limits: Mapping[int, int]) -> Targets:
    """Targets that the OSDs of each bucket can reach with the shards that it has: `before`, widened
    in buckets that have too many or too few. `within`: how far from an even share within the bucket
    is near enough."""
    low, high = dict(before.low), dict(before.high)
    buckets: Dict[int, List[int]] = {}
    for osd, bucket in group.bucket_of.items():
        buckets.setdefault(bucket, []).append(osd)
    for osds in buckets.values():
        shard_count = sum(count[osd] for osd in osds)
        if sum(low[osd] for osd in osds) <= shard_count <= sum(high[osd] for osd in osds):
            continue
        shares = _shares({osd: weights[osd] for osd in osds}, [Group(1, domain)], shard_count,
                         pgs=shard_count / group.shards)
        for osd, share in shares.items():
            low[osd] = min(low[osd], _low(share, within))
            high[osd] = max(high[osd], min(limits[osd], _high(share, within))
                            if weights[osd] else 0)
    return Targets(before.ideal, low, high)


def _capped(domains: Iterable[Tuple[int, float]], total: float, cap: float) -> Dict[int, float]:
    """Domain -> its part of `total` shards, by weight, but at most `cap`; what does not fit
    anywhere is in none. `domains`: with their weights, the lightest first."""
    uncapped: List[Tuple[int, float]] = list(domains)
    weight_left = sum(weight for _, weight in uncapped)
    shares: Dict[int, float] = {}
    while uncapped and total * uncapped[-1][1] > cap * weight_left:
        domain, weight = uncapped.pop()
        shares[domain] = cap
        total -= cap
        weight_left -= weight
    for domain, weight in uncapped:
        shares[domain] = total * weight / weight_left if weight_left else 0.0
    return shares


# ---- Space for more PGs, while pools are placed one after the other

class PoolRoom(NamedTuple):
    """Limits of the placement of one pool."""
    #: OSD -> shards of the pool that it can hold in addition; an OSD that is missing: any number.
    more_shards: Mapping[int, int] = {}
    #: OSD -> used share of its space.
    fill: Mapping[int, float] = {}


class Backfill(NamedTuple):
    """What remapped PGs move: OSD -> bytes that arrive, and bytes that leave after that."""
    arriving: Mapping[int, int]
    leaving: Mapping[int, int]


def backfill_bytes(osdmap: OsdMap, placement: Callable[[str], Optional[Placement]],
                   shard_bytes: Callable[[Pool], int]) -> Backfill:
    """The bytes that are arriving on and leaving OSDs with the PGs that are remapped, as if nothing
    were copied yet. `shard_bytes`: bytes of a PG of a pool on one OSD."""
    arriving: 'Counter[int]' = Counter()
    leaving: 'Counter[int]' = Counter()
    for pgid, acting in osdmap.pg_temp.items():
        place, pool = placement(pgid), osdmap.pools.get(pool_of(pgid))
        if place is not None and pool is not None:
            size = shard_bytes(pool)
            arriving.update(dict.fromkeys(set(place.up) - set(acting), size))
            leaving.update(dict.fromkeys(set(acting) - set(place.up), size))
    return Backfill(arriving, leaving)


class Room:
    """Sums of the pools that are already placed."""

    def __init__(self, space: Mapping[int, Space], limit: float) -> None:
        """`limit`: share of an OSD's space that may be used."""
        self._space = {osd: row for osd, row in space.items() if row.total_bytes > 0}
        self._limit = limit
        self._used: Dict[int, int] = {osd: row.used_bytes for osd, row in self._space.items()}

    def of_pool(self, shard_bytes: int) -> PoolRoom:
        """The room for a pool with shards of this size; of a pool without data, any number has
        room."""
        fill = {osd: self._used[osd] / row.total_bytes for osd, row in self._space.items()}
        if shard_bytes <= 0:
            return PoolRoom({}, fill)
        return PoolRoom({osd: max(0, math.floor(
            (self._limit * row.total_bytes - self._used[osd]) / shard_bytes))
            for osd, row in self._space.items()}, fill)

    def has(self, osd: int, size: int) -> bool:
        """Whether so many bytes fit."""
        return osd in self._used and (
            self._used[osd] + size <= self._limit * self._space[osd].total_bytes)

    def add_arrivals(self, osdmap: OsdMap, placement: Callable[[str], Optional[Placement]],
                     shard_bytes: Callable[[Pool], int]) -> None:
        """Add what remapped PGs still have to copy."""
        for osd, size in backfill_bytes(osdmap, placement, shard_bytes).arriving.items():
            self.add(osd, size)

    def add(self, osd: int, size: int) -> None:
        """Count bytes that an OSD gains, or loses."""
        if osd in self._used:
            self._used[osd] = max(0, self._used[osd] + size)
