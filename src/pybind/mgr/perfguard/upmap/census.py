# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pins for a whole cluster, as data and as ceph commands."""
from dataclasses import dataclass
from typing import Any, Dict, Iterable, Iterator, Mapping, Optional, Tuple

from ..cluster.crush import CrushRules
from ..cluster.types import OsdMap, PgSets, UpmapEntry, pool_of, seed_of
from .commands import as_line, entry_commands
from .pins import Unpinnable, plan_pin, skip_reason
from .semantics import out_osds


@dataclass(frozen=True)
class PinPlan:
    """What pins every remapped PG. Keyed by PG id."""
    #: The complete new entry of each PG whose entry changes; an empty one is a removal.
    entries: Mapping[str, UpmapEntry]
    #: Why the others stay remapped.
    unpinnable: Mapping[str, str]

    def as_json(self) -> Dict[str, Any]:
        """The documented JSON: items, pg_upmap, remove, unpinnable."""
        entries = self.entries.items()
        return {
            'items': {pgid: [list(pair) for pair in e.items] for pgid, e in entries if e.items},
            'pg_upmap': {pgid: list(e.vector) for pgid, e in entries if e.vector is not None},
            'remove': [pgid for pgid, e in entries if not e],
            'unpinnable': [{'pgid': pgid, 'reason': reason}
                           for pgid, reason in self.unpinnable.items()],
        }


def plan_pins(osdmap: OsdMap, pgs: Iterable[PgSets], crush: Optional[CrushRules]) -> PinPlan:
    """Plans the pins of many PGs.

    PGs which need no change are left out of the plan, so ``pgs`` may hold clean ones.
    """
    out = out_osds(osdmap.osds)
    entries: Dict[str, UpmapEntry] = {}
    unpinnable: Dict[str, str] = {}
    for pgid, up, acting, state in sorted(pgs, key=_by_pgid):
        if up == acting:
            continue
        pool = osdmap.pools.get(pool_of(pgid))
        reason = skip_reason(pool, pgid)
        if reason is None and 'degraded' in state:
            reason = 'the PG is degraded: recovery goes first'
        if pool is None or reason:
            unpinnable[pgid] = reason or ''
            continue
        pin = plan_pin(pool, up, acting, osdmap.entry(pgid), osdmap.osds, crush, out=out)
        if isinstance(pin, Unpinnable):
            unpinnable[pgid] = pin.reason
        elif pin.changed:
            entries[pgid] = pin.entry
    return PinPlan(entries, unpinnable)


def _by_pgid(pg: PgSets) -> Tuple[int, int]:
    return pool_of(pg[0]), seed_of(pg[0])


def commands(osdmap: OsdMap, plan: PinPlan) -> Iterator[str]:
    """The ceph commands of a plan, one a line of a shell script, in safe order."""
    for pgid, wanted in plan.entries.items():
        yield from map(as_line, entry_commands(pgid, osdmap.entry(pgid), wanted))
