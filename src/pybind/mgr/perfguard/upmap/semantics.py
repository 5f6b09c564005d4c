# SPDX-License-Identifier: LGPL-2.1-or-later
"""The up set that Ceph computes from a PG's raw CRUSH set and its upmap entry, and the reverse.

Pacific, Reef and Tentacle agree. ``out`` is always the set of OSD ids whose reweight is 0;
neither the CRUSH weight nor whether an OSD is up matters when an entry is applied.
"""
from typing import AbstractSet, Callable, Container, Iterable, List, Mapping, Optional

from ..cluster.types import NO_OSD, Command, Items, OsdMap, OsdSet, Pair, Pool, UpmapEntry


def vector_applies(entry: UpmapEntry, out: Container[int]) -> bool:
    """Whether the entry's pg_upmap vector replaces the raw set.

    One member that is out voids the vector (OSDMap::_apply_upmap).
    """
    return entry.vector is not None and not any(osd in out for osd in entry.vector)


def apply_entry(raw: OsdSet, entry: UpmapEntry, out: Container[int]) -> OsdSet:
    """The set that a PG gets from its raw CRUSH set and its entry (OSDMap::_apply_upmap).

    A voided vector voids the items of the entry as well. Items apply in order; a pair whose
    target is in the set already, or out, is skipped.
    """
    if entry.vector is None:
        if not entry.items:
            return raw
    elif not vector_applies(entry, out):
        return raw
    result = list(raw if entry.vector is None else entry.vector)
    for source, target in entry.items:
        if source in result and target not in result and target not in out:
            result[result.index(source)] = target
    return tuple(result)


def led_by(osds: OsdSet, primary: Optional[int], out: Container[int]) -> OsdSet:
    """A set in which the OSD of a pg_upmap_primary entry has changed places with the first one, if
    it is in the set (OSDMap::_apply_upmap)."""
    if primary is None or primary in out or primary not in osds:
        return osds
    first = osds[0]
    return tuple(primary if osd == first else first if osd == primary else osd for osd in osds)


def raw_from_up(up: OsdSet, entry: UpmapEntry, out: Container[int]) -> Optional[OsdSet]:
    """The raw CRUSH set behind a complete up set, or None if it cannot be known.

    ``up`` has no holes. The answer relies on what the mon guarantees of stored items: every
    source is in the raw set. A pair whose source is visibly no longer in it is ignored, as the mon
    drops it in its next clean-up. None: a vector that applies has replaced the raw set; or two
    pairs share a source, and more than one raw set explains ``up``. Where a primary affinity or
    pg_upmap_primaries reorders the up set of a replicated pool, the answer has that order.
    """
    if entry.vector is not None:
        return None if vector_applies(entry, out) else up
    if not entry.items:
        return up
    items = tuple(pair for pair in entry.items if not _is_void(pair, up, entry.items, out))
    if not items:
        return up
    sources = {source for source, _ in items}
    candidates = _undo(up, items, shared_source=len(sources) < len(items))
    fitting = {raw for raw in candidates
               if sources.issubset(raw) and apply_entry(raw, entry, out) == up}
    return fitting.pop() if len(fitting) == 1 else None


def _is_void(pair: Pair, up: OsdSet, items: Items, out: Container[int]) -> bool:
    """Whether the source of a pair is certainly not in the raw set.

    If it were, and no other pair has either OSD, the source or the target would be in ``up``.
    """
    source, target = pair
    other_osds = [osd for other_pair in items if other_pair != pair for osd in other_pair]
    return (source not in up and target not in up and target not in out
            and source not in other_osds and target not in other_osds)


def _undo(up: OsdSet, items: Items, shared_source: bool) -> List[OsdSet]:
    """The sets that ``items`` may have turned into ``up``; the pairs are undone last to first.
    ``shared_source``: two pairs have the same source.

    With sources all different and in the raw set, a pair took effect exactly if its target is there
    and its source is not. A source shared by two pairs may be missing because the other pair
    replaced it: then both possibilities are followed.
    """
    possible_sets = [up]
    for source, target in reversed(items):
        sets_before = []
        for osds in possible_sets:
            took_effect = target in osds and source not in osds
            if took_effect:
                position = osds.index(target)
                sets_before.append(osds[:position] + (source,) + osds[position + 1:])
            if shared_source or not took_effect:
                sets_before.append(osds)
        possible_sets = sets_before
    return possible_sets


# ---- The mon commands that change upmap entries

def entry_commands(pgid: str, present: UpmapEntry, wanted: UpmapEntry) -> List[Command]:
    """The fewest commands that turn one entry of a PG into another, in the order in which they must
    be sent; none if the entries are equal.

    Removals come first: a new vector with old items on top of it, or the reverse, is a third
    set, and if that one is illegal the mon cancels both. Items without an effect on the new vector
    stay until it is set: otherwise the PG would have neither if the mons commit an epoch between
    the two commands.
    """
    commands: List[Command] = []
    removes_items = bool(present.items) and not wanted.items
    removes_last = removes_items and wanted.vector is not None and apply_entry(
        wanted.vector, UpmapEntry(present.items), out=()) == wanted.vector
    removal: Command = {'prefix': 'osd rm-pg-upmap-items', 'pgid': pgid}
    if removes_items and not removes_last:
        commands.append(removal)
    if present.vector is not None and wanted.vector is None:
        commands.append({'prefix': 'osd rm-pg-upmap', 'pgid': pgid})
    if wanted.vector is not None and wanted.vector != present.vector:
        commands.append({'prefix': 'osd pg-upmap', 'pgid': pgid, 'id': list(wanted.vector)})
    if removes_last:
        commands.append(removal)
    if wanted.items and wanted.items != present.items:
        commands.append({'prefix': 'osd pg-upmap-items', 'pgid': pgid,
                         'id': [osd for pair in wanted.items for osd in pair]})
    return commands


def prime_commands(pgid: str, acting: OsdSet) -> List[Command]:
    """The command that lets `acting`, the OSDs with the data of a PG, serve it when its up set
    changes: in the order for which the OSDs would ask, maybe with another primary than now.

    Empty if `acting` is () (no command is needed) or has a hole. The command must follow the
    change: if it came first and the mons committed an epoch between the two, they would remove the
    pg_temp, which would equal the up set.
    """
    if not acting or NO_OSD in acting:
        return []
    return [{'prefix': 'osd pg-temp', 'pgid': pgid, 'id': list(acting)}]


def as_line(command: Command) -> str:
    """A command of this file as a shell command."""
    words = ['ceph', command['prefix'], command['pgid'], *map(str, command.get('id', ()))]
    return ' '.join(words)


# ---- Up sets together with the OSDs that are down, which Ceph leaves out of them
#
# An OSD that is down and in keeps its place in CRUSH, and its PGs. A plan for up sets that lack it
# would move PGs for the minutes of a restart.

#: Pool -> up sets of its PGs.
PoolUp = Callable[[int], Mapping[str, OsdSet]]
#: Where CRUSH alone places PGs, as far as it is known; OSDs that are down are included.
Raws = Mapping[str, OsdSet]
NO_RAWS: Raws = {}


def pgs_lacking_osds(osdmap: OsdMap, pool_up: PoolUp, pools: Iterable[int]) -> List[str]:
    """PGs of these pools whose up sets are incomplete; none unless OSDs are down and in, which up
    sets lack."""
    if not osdmap.absent:
        return []
    return [pgid for pool in pools for pgid, up in pool_up(pool).items()
            if not osdmap.pools[pool].is_complete(up)]


def with_down_osds(osdmap: OsdMap, pool_up: PoolUp, raws: Raws) -> PoolUp:
    """`pool_up` with the OSDs that are down and in, where the places of these are known."""
    absent, out = osdmap.absent, osdmap.out
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
