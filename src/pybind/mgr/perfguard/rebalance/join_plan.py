# SPDX-License-Identifier: LGPL-2.1-or-later
"""The pins that a change of CRUSH requires, planned on the future mapping. Pure, for any thread."""
from dataclasses import dataclass, replace
from typing import (Collection, Container, Dict, FrozenSet, List, Mapping, Optional, TypeVar,
                    Union)

from ..cluster.crush import CrushRules
from ..cluster.evacuation import Evacuation, moves_others
from ..cluster.ports import Future, FuturePg, NoFuture, Outlook
from ..cluster.types import (NO_ENTRY, NO_OSD, OsdMap, OsdSet, Placement, Pool, UpmapEntry, pool_of,
                             seed_of)
from ..observation import Observation
from ..upmap.pins import (INCOMPLETE, Unpinnable, after_commit, has_no_target, lawful,
                          merge_reason, next_merge_reason, plan_partial_pin, plan_pin,
                          without_targets)
from ..upmap.semantics import apply_entry
from .change import Change, Planned
from .moves import Move, move_between
from .types import PinRecord

AnyOutlook = TypeVar('AnyOutlook', Future, Outlook)
NO_BASES: Mapping[str, UpmapEntry] = {}
#: No PG leaves an OSD that is to be emptied.
NO_EVACUATION: Evacuation = {}


def for_same_mons(outlook: AnyOutlook, crush: CrushRules) -> AnyOutlook:
    """The outlook with CRUSH rules under which the mons keep upmaps as they do under those of
    `crush`: the tools that compute an outlook know nothing of these mons."""
    return outlook if isinstance(outlook, NoFuture) else replace(
        outlook, crush=outlook.crush.with_upmaps_kept_under(crush.proven_rules))


def undersized(planned: Planned, future: Future) -> List[str]:
    """Those of the unpinnable PGs of a plan that lack an OSD: they can be pinned once it is back,
    or once they have recovered."""
    unpinnable = ((pgid, future.pgs[pgid]) for pgid in planned.unpinnable)
    return [pgid for pgid, pg in unpinnable if NO_OSD in pg.acting or len(pg.acting) < len(pg.raw)]


def moved_by_weights(planned: Planned, future: Future, osdmap: OsdMap) -> List[str]:
    """Those of the unpinnable PGs of a plan that move at once with the change, since the mons keep
    no upmaps under the rule of their pool. PGs with nowhere to move, and undersized ones, which may
    still be pinned, are not among them."""
    pool_ids = {pool.id for pool in osdmap.pools.values()
                if not future.crush.keeps_upmaps(pool.crush_rule, pool.size)}
    if not pool_ids:
        return []
    lacking_osds = undersized(planned, future)
    return [pgid for pgid, why in planned.unpinnable.items()
            if pool_of(pgid) in pool_ids and why != INCOMPLETE and pgid not in lacking_osds]


def mean_bytes(pgids: Collection[str], future: Future, observation: Observation) -> int:
    """Average number of bytes that one of these PGs copies to where CRUSH will place it; 0 if there
    is no PG."""
    pools, sizes = observation.osdmap.pools, observation.signals.pool_bytes
    moves = [move_between(pgid, pools[pool_of(pgid)], future.pgs[pgid].acting,
                          future.pgs[pgid].raw, sizes.get(pool_of(pgid), 0)) for pgid in pgids]
    return sum(move.bytes for move in moves) // max(1, len(moves))


def becomes_incomplete(pgid: str, future: Future, osdmap: OsdMap) -> bool:
    """Whether CRUSH finds enough OSDs for the PG now, and too few with the change."""
    pool, pg = osdmap.pools.get(pool_of(pgid)), future.pgs[pgid]
    return pool is not None and not pool.is_complete(pg.raw) and pool.is_complete(pg.present)


@dataclass(frozen=True)
class PlannedFuture(Future):
    """The mapping with the pins of the change, planned by the tool thread: on a large cluster this
    takes a second, in which the loop would hold the GIL."""
    planned: Planned = Planned()


def with_pins(outlook: Outlook, observation: Observation, change: Change) -> Outlook:
    """The outlook of a change of weights with the pins that it requires (PlannedFuture); unchanged
    for another change, or if Ceph's tools have failed."""
    if isinstance(outlook, NoFuture) or not change.weights:
        return outlook
    return PlannedFuture(**vars(outlook), planned=plan_join(
        observation.osdmap, outlook, change.drained, evacuation=observation.evacuation))


def renewed(future: Future, before: Observation, now: Observation, change: Change) -> Future:
    """`future`, which was computed for the observation `before`, updated to `now`, whose OSDMap
    differs in pg_temp alone: PGs recover and are remapped all the time.

    The future place of a PG does not depend on pg_temp; its present place, and so its pin, does.
    """
    temps, present_temps = before.osdmap.pg_temp, now.osdmap.pg_temp
    changed = {pgid: (future.pgs[pgid], now.placement(pgid))
               for pgid in temps.keys() | present_temps.keys()
               if pgid in future.pgs and (
                   temps.get(pgid) != present_temps.get(pgid)
                   or before.evacuation.get(pgid) != now.evacuation.get(pgid))}
    updated_pgs = {pgid: pg._replace(acting=place.acting)
                   for pgid, (pg, place) in changed.items() if place is not None}
    if not updated_pgs:
        return future
    renewed_future = replace(future, pgs={**future.pgs, **updated_pgs})
    if not isinstance(renewed_future, PlannedFuture):
        return renewed_future
    # Each field of Planned maps PGs: the rows of the updated PGs are replaced.
    replanned = vars(plan_join(now.osdmap, replace(future, pgs=updated_pgs), change.drained,
                               evacuation=now.evacuation))
    return replace(renewed_future, planned=Planned(**{
        name: {**{pgid: value for pgid, value in rows.items() if pgid not in updated_pgs},
               **replanned[name]} for name, rows in vars(renewed_future.planned).items()}))


def plan_join(osdmap: OsdMap, future: Future, drained: OsdSet = (),
              pool_bytes: Optional[Mapping[int, int]] = None,
              bases: Mapping[str, UpmapEntry] = NO_BASES,
              evacuation: Evacuation = NO_EVACUATION) -> Planned:
    """Pins which make the future up set of every PG its present acting set, order included, and the
    moves of their releases.

    PGs that leave OSDs which are to be emptied (`evacuation`) are kept in place but for the shards
    on these OSDs, which move to where CRUSH will place them.

    `drained`: OSDs to which no release may lead. `pool_bytes`: by pool, for the bytes of the moves;
    None: they are not needed. `bases`: pinned PG -> its entry before the campaign, which is
    restored if it keeps the PG in place.
    """
    out = osdmap.out
    merging_pools = {pool.id for pool in osdmap.pools.values()
                     if min(pool.pg_num_pending, pool.pg_num_target) < pool.pg_num}
    pins: Dict[str, PinRecord] = {}
    removed: Dict[str, UpmapEntry] = {}
    unpinnable: Dict[str, Unpinnable] = {}
    moves: Dict[str, Move] = {}
    for pgid, pg in future.pgs.items():
        pool = osdmap.pools.get(pool_of(pgid))
        if pool is None or seed_of(pgid) >= pool.pg_num:
            continue
        present = osdmap.entry(pgid)
        entry_before = bases.get(pgid, present)
        if entry_before:
            entry_before = after_commit(pg.raw, entry_before, pool, osdmap.osds, future.crush, pgid,
                                        out)
        after_release = without_targets(entry_before, drained)
        if pg.raw == pg.present and present == entry_before == after_release and pgid not in bases:
            # The change does not concern it, even if it is moving or recovering now.
            continue
        # One that lacks an OSD cannot be pinned, and the change waits for that OSD.
        leaving = evacuation.get(pgid, ()) if pool.is_complete(pg.acting) else ()
        entry = _entry(pool, pgid, pg, entry_before, present, osdmap, future.crush, out,
                       merges=pool.id in merging_pools, leaving=leaving)
        if isinstance(entry, Unpinnable):
            unpinnable[pgid] = entry
            continue
        if entry == after_release:  # the PG stays in place without a pin
            if pgid in bases and present != entry:
                removed[pgid] = entry
            continue
        after_release = lawful(after_release, pg.raw, pool, future.crush, out)
        # A vector hides the raw set, which shows where its release leads.
        raw = None if entry.vector is None else pg.raw
        # Pairs that the mons drop with the change are restored by a rollback (`was`) only.
        pins[pgid] = PinRecord(after_release, entry, raw,
                               was=None if present == after_release else present)
        moves[pgid] = move_between(pgid, pool, pg.acting, apply_entry(pg.raw, after_release, out),
                                   (pool_bytes or {}).get(pool.id, 0))
    return Planned(pins, unpinnable, moves, removed)


def _entry(pool: Pool, pgid: str, pg: FuturePg, before: UpmapEntry, present: UpmapEntry,
           osdmap: OsdMap, crush: CrushRules, out: FrozenSet[int],
           merges: bool, leaving: OsdSet) -> Union[UpmapEntry, Unpinnable]:
    """The entry that keeps the PG where it is once the change is in force; `before` if that does.

    `before`: the part of its earlier entry that the mons keep with the change; `present`: its entry
    in the OSDMap; `merges`: PGs of the pool merge; `leaving`: OSDs that the PG must leave.
    """
    if keeps(pg, before, present, out):
        return before
    reason = (merge_reason(pool, pgid) or next_merge_reason(pool, pgid)) if merges else None
    if reason is not None:
        return Unpinnable(reason)
    # CRUSH finds too few OSDs, and those have the data: the PG stays there without a pin.
    if has_no_target(pool, apply_entry(pg.raw, before, out), pg.acting):
        return INCOMPLETE
    if leaving:
        return _partial_entry(pool, pg, before, osdmap, crush, out, leaving)
    # From the raw set, not from the set that `before` leads to: its pairs need not be undone.
    result = plan_pin(pool, pg.raw, pg.acting, NO_ENTRY, osdmap.osds, crush, exact=True,
                      existing=before.items, out=out)
    return result if isinstance(result, Unpinnable) else result.entry


def _partial_entry(pool: Pool, pg: FuturePg, before: UpmapEntry, osdmap: OsdMap, crush: CrushRules,
                   out: FrozenSet[int], leaving: OsdSet) -> Union[UpmapEntry, Unpinnable]:
    """As `_entry`, for a PG that must leave some OSDs: the entry with which all others stay."""
    def moves_more(entry: UpmapEntry) -> bool:
        return moves_others(pool, Placement(apply_entry(pg.raw, entry, out), pg.acting), leaving)

    if not moves_more(before):
        return before
    result = plan_partial_pin(pool, pg.raw, pg.acting, NO_ENTRY, osdmap.osds, crush, out, leaving)
    if isinstance(result, Unpinnable):
        return result
    # Others may be unable to stay, as the change empties their OSDs.
    return Unpinnable(result.unpinned_reason) if moves_more(result.entry) else result.entry


def keeps(pg: FuturePg, entry: UpmapEntry, present: UpmapEntry, out: Container[int]) -> bool:
    """Whether a PG stays in place, order included, with an entry that the mons keep.

    An entry that leads to the same set as the present one does also leads to the same order.
    """
    placed = apply_entry(pg.raw, entry, out)
    return placed == pg.acting or (
        pg.up == pg.acting and placed == apply_entry(pg.raw, present, out))


def survives(pgid: str, future: Future, osdmap: OsdMap, pool: Pool, out: FrozenSet[int]) -> bool:
    """Whether the part of its present entry that the mons keep with the change keeps a PG in
    place."""
    pg, present = future.pgs[pgid], osdmap.entry(pgid)
    remaining = after_commit(pg.raw, present, pool, osdmap.osds, future.crush, pgid, out)
    return keeps(pg, remaining, present, out)


def entries_needed(planned: Planned, future: Future, osdmap: OsdMap) -> int:
    """Number of PGs whose upmap entry has to be set in the epoch of the change, so that they stay
    in place: those with a pin that is not their present entry, and those without one
    (`planned.removed`) whose present entry does not keep them in place."""
    out = osdmap.out
    return sum(osdmap.entry(pgid) != pin.entry for pgid, pin in planned.pins.items()) + sum(
        not survives(pgid, future, osdmap, osdmap.pools[pool_of(pgid)], out)
        for pgid in planned.removed)


def bases_of(pins: Mapping[str, PinRecord]) -> Dict[str, UpmapEntry]:
    """Pinned PG -> its entry from before the campaign changed CRUSH."""
    return {pgid: pin.rollback_entry for pgid, pin in pins.items()}
