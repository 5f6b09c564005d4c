# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pins of remapped PGs. Pure."""
from dataclasses import dataclass
from typing import Any, Dict, Iterable, Mapping, Optional, Tuple

from ..cluster.crush import CrushRules
from ..cluster.types import OsdMap, PgSets, UpmapEntry, pool_of, seed_of
from ..upmap.pins import Unpinnable, plan_pin, skip_reason
from ..upmap.semantics import out_osds

Json = Dict[str, Any]


@dataclass(frozen=True)
class PinPlan:
    """What pins every remapped PG. Keyed by PG id."""
    #: The complete new entry of each PG whose entry changes; an empty one is a removal.
    entries: Mapping[str, UpmapEntry]
    #: Why the others stay remapped.
    unpinnable: Mapping[str, str]

    def as_json(self) -> Json:
        """The documented JSON: items, pg_upmap, remove, unpinnable."""
        return {**entries_json(self.entries), 'unpinnable': reasons_json(self.unpinnable)}


def entries_json(entries: Mapping[str, UpmapEntry]) -> Json:
    return {
        'items': {pgid: [list(pair) for pair in e.items] for pgid, e in entries.items() if e.items},
        'pg_upmap': {pgid: list(e.vector) for pgid, e in entries.items() if e.vector is not None},
        'remove': [pgid for pgid, e in entries.items() if not e]}


def reasons_json(reasons: Mapping[str, str]) -> Any:
    return [{'pgid': pgid, 'reason': reason} for pgid, reason in reasons.items()]


def plan_pins(osdmap: OsdMap, pgs: Iterable[PgSets], crush: Optional[CrushRules]) -> PinPlan:
    """Plans the pins of many PGs.

    PGs which need no change are left out of the plan, so ``pgs`` may hold clean ones.
    """
    out = out_osds(osdmap.osds)
    entries: Dict[str, UpmapEntry] = {}
    unpinnable: Dict[str, str] = {}
    for pgid, up, acting, state in sorted(pgs, key=by_pgid):
        if up == acting:
            continue
        pool = osdmap.pools.get(pool_of(pgid))
        reason = skip_reason(pool, pgid)
        if reason is None and 'degraded' in state:
            reason = 'the PG is degraded and must recover first'
        if pool is None or reason:
            unpinnable[pgid] = reason or ''
            continue
        pin = plan_pin(pool, up, acting, osdmap.entry(pgid), osdmap.osds, crush, out=out)
        if isinstance(pin, Unpinnable):
            unpinnable[pgid] = pin.reason
        elif pin.changed:
            entries[pgid] = pin.entry
    return PinPlan(entries, unpinnable)


def by_pgid(pg: PgSets) -> Tuple[int, int]:
    return pool_of(pg[0]), seed_of(pg[0])
