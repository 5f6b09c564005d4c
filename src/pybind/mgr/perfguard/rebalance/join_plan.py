# SPDX-License-Identifier: LGPL-2.1-or-later
"""The pins that a change of CRUSH takes, planned on the future mapping. Pure, for any thread."""
from dataclasses import dataclass, field
from typing import Dict, FrozenSet, Mapping, Optional, Union

from ..cluster.crush import CrushRules
from ..cluster.ports import Future, FuturePg, NoFuture, Outlook
from ..cluster.types import OsdMap, OsdSet, Pool, UpmapEntry, pool_of, seed_of
from ..upmap.pins import Unpinnable, after_commit, lawful, plan_pin, skip_reason, without
from ..upmap.semantics import apply_entry, out_osds
from .moves import Move, move_between
from .types import Change, PinRecord

NO_BASES: Mapping[str, UpmapEntry] = {}


@dataclass(frozen=True)
class Join:
    """The pins that a change takes, planned on the future mapping."""
    pins: Mapping[str, PinRecord]
    #: PG -> why it will be remapped by the change.
    unpinnable: Mapping[str, str]
    #: What the release of each pin will move.
    moves: Mapping[str, Move]
    #: Pinned PG -> the entry with which it stays where it is without a pin.
    removed: Mapping[str, UpmapEntry] = field(default_factory=dict)

    @property
    def vectors(self) -> int:
        return sum(1 for pin in self.pins.values() if pin.entry.vector is not None)


@dataclass(frozen=True)
class PlannedFuture(Future):
    """With the pins of the change, planned beside the loop: on a large cluster that takes a second,
    in which the loop would hold the interpreter's lock."""
    join: Join = field(default_factory=lambda: Join({}, {}, {}))


def with_pins(outlook: Outlook, osdmap: OsdMap, change: Change) -> Outlook:
    """The outlook with the pins of the change, if it has a future."""
    if isinstance(outlook, NoFuture) or not change.weights:
        return outlook
    return PlannedFuture(outlook.pgs, outlook.crush, outlook.crush_map, outlook.others,
                         plan_join(osdmap, outlook, change.drained))


def plan_join(osdmap: OsdMap, future: Future, drained: OsdSet = (),
              pool_bytes: Optional[Mapping[int, int]] = None,
              bases: Mapping[str, UpmapEntry] = NO_BASES) -> Join:
    """Pins which make the future up set of every PG its present acting set, order included.

    `bases`: pinned PG -> its entry from before, to go back to where that keeps it in place.
    """
    out = out_osds(osdmap.osds)
    pins: Dict[str, PinRecord] = {}
    removed: Dict[str, UpmapEntry] = {}
    unpinnable: Dict[str, str] = {}
    moves: Dict[str, Move] = {}
    for pgid, pg in future.pgs.items():
        pool = osdmap.pools.get(pool_of(pgid))
        if pool is None or seed_of(pgid) >= pool.pg_num:
            continue
        kept = bases.get(pgid, osdmap.entry(pgid))
        if kept:
            kept = after_commit(pg.raw, kept, pool, osdmap.osds, future.crush, pgid, out)
        goal = without(kept, drained)
        entry = _entry(pool, pgid, pg, kept, osdmap, future.crush, out)
        if isinstance(entry, Unpinnable):
            unpinnable[pgid] = entry.reason
            continue
        if entry == goal:
            if pgid in bases and osdmap.entry(pgid) != entry:
                removed[pgid] = entry
            continue
        goal = lawful(goal, pg.raw, pool, future.crush, out)
        # A vector hides the raw set, which shows where its release leads.
        raw = None if entry.vector is None else pg.raw
        # What of the entry from before the mon drops with the change does not come back either.
        present = osdmap.entry(pgid)
        pins[pgid] = PinRecord(goal, entry, raw, was=None if present == goal else present)
        moves[pgid] = move_between(pgid, pool, pg.acting, apply_entry(pg.raw, goal, out),
                                   (pool_bytes or {}).get(pool.id, 0))
    return Join(pins, unpinnable, moves, removed)


def _entry(pool: Pool, pgid: str, pg: FuturePg, kept: UpmapEntry, osdmap: OsdMap,
           crush: CrushRules, out: FrozenSet[int]) -> Union[UpmapEntry, Unpinnable]:
    """The entry with which the PG stays where it is; `kept` if that does it already."""
    if apply_entry(pg.raw, kept, out) == pg.acting:
        return kept
    reason = skip_reason(pool, pgid)
    if reason is not None:
        return Unpinnable(reason)
    # From the raw set itself: the pairs of `kept` need not be undone.
    result = plan_pin(pool, pg.raw, pg.acting, UpmapEntry(), osdmap.osds, crush, exact=True,
                      existing=kept.items, out=out)
    return result if isinstance(result, Unpinnable) else result.entry


def bases_of(pins: Mapping[str, PinRecord]) -> Dict[str, UpmapEntry]:
    """Pinned PG -> its entry from before the campaign changed CRUSH."""
    return {pgid: pin.before if pin.was is None else pin.was for pgid, pin in pins.items()}
