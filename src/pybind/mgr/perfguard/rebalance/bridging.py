# SPDX-License-Identifier: LGPL-2.1-or-later
"""The upmap entries that are sent for the epoch of a change.

The mons may commit the pins without the change, so an entry that is sent with it fits both mappings
if possible.
"""
from typing import Optional

from ..cluster.crush import CrushRules
from ..cluster.ports import Future
from ..cluster.types import OsdSet, UpmapEntry
from ..upmap.pins import after_commit
from ..upmap.semantics import apply_entry, raw_from_up
from .draft import Draft
from .join_plan import survives


def in_both(draft: Draft, pgid: str, entry: UpmapEntry, future: Future) -> UpmapEntry:
    """The entry that is sent for a pin: with the earlier pairs if the PG needs them until CRUSH has
    changed. The mons may refuse the change, and drop them."""
    present = draft.seen.osdmap.entry(pgid)
    if not present.items or entry.vector is not None:
        return entry
    merged = UpmapEntry(tuple(dict.fromkeys((*present.items, *entry.items))), present.vector)
    serves = (_serves_both(draft, pgid, merged, future)
              and _left(draft, pgid, merged, future.pgs[pgid].raw, future.crush) == entry)
    return merged if serves else entry


def bridging(draft: Draft, pgid: str, entry: UpmapEntry, future: Future) -> UpmapEntry:
    """The entry that keeps a PG in place in the epoch of the change that makes its pin
    unnecessary."""
    present, pool = draft.seen.osdmap.entry(pgid), draft.pool(pgid)
    if pool is not None and survives(pgid, future, draft.seen.osdmap, pool, draft.out):
        return present
    merged = UpmapEntry(tuple(dict.fromkeys((*present.items, *entry.items))))
    return merged if _serves_both(draft, pgid, merged, future) else entry


def hides_raw(draft: Draft, pgid: str, sent: UpmapEntry, future: Future) -> bool:
    """Whether the part of an entry that the mons keep hides the raw set of a PG."""
    pg = future.pgs[pgid]
    remaining = _left(draft, pgid, sent, pg.raw, future.crush)
    return remaining is None or raw_from_up(pg.acting, remaining, draft.out) != pg.raw


def _serves_both(draft: Draft, pgid: str, entry: UpmapEntry, future: Future) -> bool:
    """Whether the entry keeps the PG in place both with and without the change of CRUSH.

    The mon drops the pairs whose source is not in the raw set: those meant for the other mapping.
    """
    place, pool, pg = draft.seen.placement(pgid), draft.pool(pgid), future.pgs[pgid]
    if place is None or pool is None or len(entry.items) > pool.size:
        return False
    raw = raw_from_up(place.up, draft.seen.osdmap.entry(pgid), draft.out)
    return (raw is not None
            and _serves(draft, pgid, entry, raw, draft.seen.crush) == pg.acting
            and _serves(draft, pgid, entry, pg.raw, future.crush) == pg.acting)


def _serves(draft: Draft, pgid: str, entry: UpmapEntry, raw: OsdSet,
            crush: CrushRules) -> Optional[OsdSet]:
    """The set of a PG with the part of an entry that the mons keep; None: there is no such PG."""
    remaining = _left(draft, pgid, entry, raw, crush)
    return None if remaining is None else apply_entry(raw, remaining, draft.out)


def _left(draft: Draft, pgid: str, entry: UpmapEntry, raw: OsdSet,
          crush: CrushRules) -> Optional[UpmapEntry]:
    """The part of an entry that the mons keep; None: there is no such PG."""
    pool = draft.pool(pgid)
    return None if pool is None else after_commit(
        raw, entry, pool, draft.seen.osdmap.osds, crush, pgid, draft.out)
