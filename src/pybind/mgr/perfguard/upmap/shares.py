# SPDX-License-Identifier: LGPL-2.1-or-later
"""The number of shards of a pool that each OSD should have, and its space for more. Pure."""
import math
from dataclasses import dataclass
from typing import Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from ..cluster.crush import CrushRules, Spread
from ..cluster.types import Osd, OsdMap, Placement, Pool, Space, pool_of

#: An OSD with a CRUSH weight up to this is being drained: 0.0001 in units of 1/65536, rounded. So
#: is an OSD whose weight is below this share of the mean weight.
DRAIN_WEIGHT = 0.00012
DRAIN_SHARE = 0.001
#: Room for the rounding of Ceph, which computes deviations in single precision: 1.0 exactly is
#: within max_deviation for us and may be beyond it for the balancer.
ROUNDING = 1e-5


@dataclass(frozen=True)
class Targets:
    """The ideal number by OSD of the rule's tree, and the whole numbers that are close enough to
    it."""
    ideal: Mapping[int, float]
    low: Mapping[int, int]
    high: Mapping[int, int]


def weights_of(pool: Pool, crush: CrushRules, osds: Mapping[int, Osd],
               spread: Spread) -> Dict[int, float]:
    """CRUSH weight times reweight, as OSDMap::calc_pg_upmaps counts; 0.0: to be emptied."""
    crush_weight = {osd: crush.weight_of(pool.crush_rule, osd) for osd in spread.domain}
    mean = sum(crush_weight.values()) / max(1, len(crush_weight))
    found: Dict[int, float] = {}
    for osd, weight in crush_weight.items():
        known = osds.get(osd)
        drained = weight <= max(DRAIN_WEIGHT, DRAIN_SHARE * mean)
        usable = known is not None and known.exists and not known.destroyed
        found[osd] = weight * known.reweight if known and usable and not drained else 0.0
    return found


def targets(weights: Mapping[int, float], spread: Spread,
            shards: Mapping[int, int], pgs: Mapping[int, int], within: float = 1.0) -> Targets:
    """`shards` and `pgs`: how many shards, and how many PGs with a shard, each fence holds;
    `within`: how far from the ideal is near enough.

    Within a fence, shares go by weight; but a failure domain has at most one shard of each PG, and
    what it therefore cannot take is shared by the others.
    """
    ideal: Dict[int, float] = {}
    by_fence: Dict[int, Dict[int, float]] = {}
    for osd, weight in weights.items():
        by_fence.setdefault(spread.fence[osd], {})[osd] = weight
    for fence, members in by_fence.items():
        ideal.update(_shares(members, spread, shards.get(fence, 0), pgs.get(fence, 0)))
    low, high = {}, {}
    for osd, share in ideal.items():
        low[osd] = max(0, math.ceil(share - within + ROUNDING))
        high[osd] = math.floor(share + within - ROUNDING) if weights[osd] else 0
    return Targets(ideal, low, high)


def _shares(weights: Mapping[int, float], spread: Spread, total: int,
            cap: int) -> Dict[int, float]:
    """`total` by weight, at most `cap` a domain."""
    domains: Dict[int, float] = {}
    for osd, weight in weights.items():
        domain = spread.domain[osd]
        domains[domain] = domains.get(domain, 0.0) + weight
    share = _capped(sorted(domains.items(), key=_weight), float(total), float(cap))
    return {osd: share[spread.domain[osd]] * weight / domains[spread.domain[osd]] if weight else 0.0
            for osd, weight in weights.items()}


def _weight(item: Tuple[int, float]) -> float:
    return item[1]


def _capped(domains: Iterable[Tuple[int, float]], total: float, cap: float) -> Dict[int, float]:
    """Shares of domains sorted by weight: the heaviest are capped first."""
    left: List[Tuple[int, float]] = list(domains)
    weight_left = sum(weight for _, weight in left)
    shares: Dict[int, float] = {}
    while left and total * left[-1][1] > cap * weight_left:
        domain, weight = left.pop()
        shares[domain] = cap
        total -= cap
        weight_left -= weight
    for domain, weight in left:
        shares[domain] = total * weight / weight_left if weight_left else 0.0
    return shares


# ---- Space for more PGs, while pools are placed one after the other

class PoolRoom(NamedTuple):
    """Limits of the placement of one pool."""
    #: OSD -> shards of the pool that it can hold in addition; an OSD that is missing: any number.
    more: Mapping[int, int] = {}
    #: OSD -> used share of its space.
    fill: Mapping[int, float] = {}


class Room:
    """Sums of the pools that are already placed."""

    def __init__(self, space: Mapping[int, Space], limit: float) -> None:
        """`limit`: share of an OSD's space that may be used."""
        self._space = {osd: row for osd, row in space.items() if row.total_bytes > 0}
        self._limit = limit
        self._used: Dict[int, int] = {osd: row.used_bytes for osd, row in self._space.items()}

    def of_pool(self, shard_bytes: int) -> PoolRoom:
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
        for pgid, acting in osdmap.pg_temp.items():
            place, pool = placement(pgid), osdmap.pools.get(pool_of(pgid))
            if place is not None and pool is not None:
                for osd in set(place.up) - set(acting):
                    self.add(osd, shard_bytes(pool))

    def add(self, osd: int, size: int) -> None:
        """Bytes that the OSD gains, or loses."""
        if osd in self._used:
            self._used[osd] = max(0, self._used[osd] + size)
