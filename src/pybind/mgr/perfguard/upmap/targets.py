# SPDX-License-Identifier: LGPL-2.1-or-later
"""How many PGs of a pool each OSD should have."""
import math
from dataclasses import dataclass
from typing import Dict, Iterable, List, Mapping, Tuple

from ..cluster.crush import CrushRules, Spread
from ..cluster.types import Osd, Pool

#: CRUSH weights up to this are those of an OSD that is being drained: 0.0001 in units of 1/65536,
#: and what rounding makes of it. One below this share of the mean weight is too.
DRAIN_WEIGHT = 0.00012
DRAIN_SHARE = 0.001
#: Room for the rounding of Ceph, which computes deviations in single precision: 1.0 exactly is
#: within max_deviation for us and may be beyond it for the balancer.
_EPSILON = 1e-5


@dataclass(frozen=True)
class Targets:
    """By OSD of the rule's tree: what is ideal, and the whole numbers that are near enough."""
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
        low[osd] = max(0, math.ceil(share - within + _EPSILON))
        high[osd] = math.floor(share + within - _EPSILON) if weights[osd] else 0
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
