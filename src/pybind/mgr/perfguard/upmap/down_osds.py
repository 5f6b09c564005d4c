# SPDX-License-Identifier: LGPL-2.1-or-later
"""Up sets together with the OSDs that are down, which Ceph leaves out of them. Pure.

An OSD that is down and in keeps its place in CRUSH, and its PGs. A plan for up sets that lack it
would move PGs for the minutes of a restart.
"""
from typing import AbstractSet, Callable, Container, Iterable, List, Mapping, Optional

from ..cluster.types import NO_OSD, OsdMap, OsdSet, Pool, UpmapEntry
from .semantics import apply_entry, out_osds, vector_applies

#: Pool -> up sets of its PGs.
PoolUp = Callable[[int], Mapping[str, OsdSet]]
#: Where CRUSH alone places PGs, as far as it is known; OSDs that are down are included.
Raws = Mapping[str, OsdSet]
NO_RAWS: Raws = {}


def lacking_osds(osdmap: OsdMap, pool_up: PoolUp, pools: Iterable[int]) -> List[str]:
    """PGs of these pools whose up sets are incomplete while OSDs are down."""
    if not osdmap.absent:
        return []
    return [pgid for pool in pools for pgid, up in pool_up(pool).items()
            if not osdmap.pools[pool].is_complete(up)]


def with_down_osds(osdmap: OsdMap, pool_up: PoolUp, raws: Raws) -> PoolUp:
    """`pool_up` with complete sets where they are known."""
    absent, out = osdmap.absent, out_osds(osdmap.osds)
    if not absent:
        return pool_up

    def whole_sets(pool_id: int) -> Mapping[str, OsdSet]:
        pool = osdmap.pools[pool_id]
        return {pgid: up if pool.is_complete(up) else
                whole_set(pool, up, raws.get(pgid), osdmap.entry(pgid), absent, out)
                for pgid, up in pool_up(pool_id).items()}

    return whole_sets


def whole_set(pool: Pool, up: OsdSet, raw: Optional[OsdSet], entry: UpmapEntry,
              absent: AbstractSet[int], out: Container[int]) -> OsdSet:
    """The set of a PG of which `up` lacks the OSDs that are down; `up` if that is not known."""
    if raw is None and not vector_applies(entry, out):
        return up
    whole = apply_entry(raw or (), entry, out)
    live = set(up) - {NO_OSD}
    fits = pool.is_complete(whole) and live <= set(whole) <= live | absent
    return whole if fits else up
