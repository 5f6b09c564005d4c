# SPDX-License-Identifier: LGPL-2.1-or-later
"""Space that OSDs have for more PGs, while pools are placed one after the other. Pure."""
import math
from typing import Callable, Dict, Mapping, NamedTuple, Optional

from ..cluster.types import OsdMap, Placement, Pool, Space, pool_of


class PoolRoom(NamedTuple):
    """What the placement of one pool depends on."""
    #: OSD -> shards of the pool that it can hold in addition; an OSD that is missing: any number.
    more: Mapping[int, int] = {}
    #: OSD -> used share of its space.
    fill: Mapping[int, float] = {}


class Room:
    """Sums over the pools that are already placed."""

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
