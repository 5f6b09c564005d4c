# SPDX-License-Identifier: LGPL-2.1-or-later
"""How full the OSDs of each device class are, how many PGs they hold, and what pools can still
store: before a change and after it. Pure.

Nothing is limited by the sum of the space of a class, but by its fullest OSD, so both are shown.
"""
from dataclasses import dataclass
from typing import AbstractSet, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ..cluster.crush import CrushRules
from ..cluster.types import Document, OsdMap, Pool, Space
from ..text import osds_text
from .orders import DRAINED_WEIGHT


class CrushAndSpace(NamedTuple):
    """The OSDs at one moment."""
    crush: CrushRules
    #: An OSD that is lost or out has 0 bytes, as in Ceph's own reports.
    space: Mapping[int, Space]


class RuleRoom(NamedTuple):
    #: Bytes of all copies or shards that fit until the OSD is full.
    raw_bytes: float
    #: The OSD that is full first.
    osd: int


@dataclass(frozen=True)
class Fill:
    """The OSDs of one device class that have a CRUSH weight and have reported their size."""
    osds: int
    total_bytes: int
    used_bytes: int
    #: Used share of all of them, 0 to 1, and of the fullest one; None: there is none.
    fill: Optional[float]
    fullest: Optional[int]
    fullest_fill: Optional[float]
    #: PGs of an OSD; None: not known.
    pgs_min: Optional[int]
    pgs_mean: Optional[float]
    pgs_max: Optional[int]


@dataclass(frozen=True)
class PoolAvail:
    pool: str
    #: As Ceph computes MAX AVAIL, and the OSD that limits it; None: OSDs have not reported.
    max_avail_before: Optional[int]
    max_avail_after: Optional[int]
    limited_by_before: Optional[int]
    limited_by_after: Optional[int]


@dataclass(frozen=True)
class CapacityChange:
    #: Device class ('' for OSDs without one) -> before and after.
    classes: Mapping[str, Tuple[Fill, Fill]]
    pools: Tuple[PoolAvail, ...]

    def as_json(self) -> Document:
        return {'classes': [{'class': name, 'before': dict(vars(before)),
                             'after': dict(vars(after))}
                            for name, (before, after) in self.classes.items()],
                'pools': [dict(vars(row)) for row in self.pools]}


def unreported(osdmap: OsdMap, space: Mapping[int, Space], osds: AbstractSet[int]) -> str:
    """Text on those of these OSDs (`osds`) that are up and in and have not reported their size, as
    after a failover of the mgr; '': all have."""
    missing = [osd for osd in osds & osdmap.osds.keys() - space.keys()
               if osdmap.osds[osd].is_up_and_in]
    return 'not known yet: the size of %s (try again in a few seconds)' % osds_text(missing) \
        if missing else ''


def capacity_change(osdmap: OsdMap, before: CrushAndSpace, after: CrushAndSpace) -> CapacityChange:
    """How full the OSDs of each device class are, and what pools can store, before and after a
    change. `osdmap`: the pools and the full ratio, which are the same before and after."""
    fills_before, fills_after = _fill_by_class(before), _fill_by_class(after)
    no_osds = _fill_of({})
    rooms: Dict[int, List[Optional[RuleRoom]]] = {
        rule: [rule_room(rule, cluster, osdmap.full_ratio) for cluster in (before, after)]
        for rule in {pool.crush_rule for pool in osdmap.pools.values()}}
    return CapacityChange(
        {device_class: (fills_before.get(device_class, no_osds),
                        fills_after.get(device_class, no_osds))
         for device_class in sorted(fills_before.keys() | fills_after.keys())},
        tuple(pool_avail(pool, *rooms[pool.crush_rule])
              for _, pool in sorted(osdmap.pools.items())))


def _fill_by_class(cluster: CrushAndSpace) -> Dict[str, Fill]:
    """Device class -> how full its OSDs are, without those that are drained, have not reported
    their size, or are lost or out."""
    spaces_by_class: Dict[str, Dict[int, Space]] = {}
    for osd, weight in cluster.crush.weights().items():
        row = cluster.space.get(osd)
        if weight > DRAINED_WEIGHT and row is not None and row.total_bytes > 0:
            spaces_by_class.setdefault(cluster.crush.class_of(osd), {})[osd] = row
    return {device_class: _fill_of(spaces) for device_class, spaces in spaces_by_class.items()}


def _fill_of(spaces: Mapping[int, Space]) -> Fill:
    """How full these OSDs (`spaces`: by OSD) are together, and the fullest of them."""
    total = sum(row.total_bytes for row in spaces.values())
    used = sum(row.used_bytes for row in spaces.values())
    pgs = [row.pgs for row in spaces.values() if row.pgs is not None]
    fullest = max(spaces, key=lambda osd: (_share(spaces[osd]), -osd), default=None)
    return Fill(osds=len(spaces), total_bytes=total, used_bytes=used,
                fill=round(used / total, 4) if total else None, fullest=fullest,
                fullest_fill=None if fullest is None else round(_share(spaces[fullest]), 4),
                pgs_min=min(pgs, default=None), pgs_max=max(pgs, default=None),
                pgs_mean=round(sum(pgs) / len(pgs), 1) if pgs else None)


def _share(row: Space) -> float:
    return row.used_bytes / row.total_bytes


def pool_avail(pool: Pool, before: Optional[RuleRoom], after: Optional[RuleRoom]) -> PoolAvail:
    """What clients can store in the pool with the room of its rule before and after a change; None:
    not known."""
    return PoolAvail(pool.name, before and _stored(pool, before), after and _stored(pool, after),
                     before and before.osd, after and after.osd)


def _stored(pool: Pool, room: RuleRoom) -> int:
    return max(0, int(room.raw_bytes * pool.data_shards / pool.size))


def rule_room(rule: int, cluster: CrushAndSpace, full_ratio: float) -> Optional[RuleRoom]:
    """What fits under a rule until its first OSD is full, as PGMap::get_rule_avail computes it:
    each OSD gets data by its CRUSH weight, and OSDs that are out keep their share. None: no OSD of
    the rule has a known size."""
    weights = {osd: cluster.crush.weight_of(rule, osd) for osd in cluster.space}
    total = sum(weights.values())
    rows = [RuleRoom((full_ratio * row.total_bytes - row.used_bytes) * total / weights[osd], osd)
            for osd, row in cluster.space.items() if row.total_bytes > 0 and weights[osd] > 0.0]
    return min(rows, default=None)
