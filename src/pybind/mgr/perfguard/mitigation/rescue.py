# SPDX-License-Identifier: LGPL-2.1-or-later
"""Upmaps that map degraded PGs away from OSDs that are too full, to others with room. Pure.

Without an upmap, recovery of such a PG waits until space is freed. The upmap maps it to an OSD
with room that its CRUSH rule allows, and is removed once the full OSD has room again.
"""
from dataclasses import dataclass, replace
from typing import (AbstractSet, Container, Dict, FrozenSet, Iterable, List, Mapping, NamedTuple,
                    Optional, Tuple)

from ..cluster.types import (NO_OSD, OsdMap, OsdSet, Pool, Question, Space, UpmapEntry,
                             pool_of)
from ..codec import Time
from ..observation import Observation
from ..upmap.pins import Unpinnable, broken_rule, merge_reason, plan_pin, released_up
from ..upmap.shares import DRAIN_WEIGHT, Room

#: PGs whose states are requested at a time, and PGs that are rescued at a time.
QUERIED_PGS, AT_ONCE = 16, 4
#: Degraded PGs that are looked up at a time: ceph-mgr is asked for each.
LOOKED_UP = 512
#: PGs of one pool differ in size: an OSD must have room for so many of the mean size.
ROOM_FOR_PGS = 2
TOOFULL = 'backfill_toofull'


class Stuck(NamedTuple):
    """A degraded PG, and the OSDs that it would copy to and that are too full."""
    pgid: str
    primary: int
    full: Tuple[int, ...]


@dataclass(frozen=True)
class Rescue:
    """An upmap that rescues a degraded PG: in force, or about to be."""
    #: Entries of the PG before and with it.
    before: UpmapEntry
    entry: UpmapEntry
    #: The OSDs that are too full.
    full: Tuple[int, ...]
    #: The OSDs that take the shards of those in `full`.
    taken_by: Tuple[int, ...]
    #: When the upmap was planned.
    since: Time
    #: Whether the OSDMap has shown the upmap.
    seen: bool = False
    #: Whether the upmap is being removed.
    returning: bool = False
    #: The entry of an earlier rescue that this one replaces, until the OSDMap shows this one.
    replaced: Optional[UpmapEntry] = None


NO_RESCUES: Mapping[str, Rescue] = {}


class RescueFacts(NamedTuple):
    """What rescues are planned and followed by."""
    observed: Observation
    #: OSD -> its space.
    space: Mapping[int, Space]
    #: PGs that a campaign has pinned.
    pinned: AbstractSet[str] = frozenset()
    #: PG -> its present rescue.
    rescued: Mapping[str, Rescue] = NO_RESCUES
    #: OSDs that are about to be drained or removed.
    leaving: AbstractSet[int] = frozenset()
    #: As Reader.hard_pg_limit.
    hard_pg_limit: int = 0


def stuck(facts: RescueFacts, last: str = '',
          skipped: Container[str] = ()) -> Tuple[List[Stuck], str]:
    """Some degraded PGs that may be stuck, judged by the OSDMap and the space of OSDs, and the last
    PG checked. The primaries of these PGs are asked afterwards (`questions`).

    `last`: the last PG that the previous call checked ('': none). This call continues after it, so
    that every PG is checked in the end. `skipped`: PGs that are left out.
    """
    stuck_pgs: List[Stuck] = []
    degraded = [pgid for pgid, acting in facts.observed.osdmap.pg_temp.items()
                if pgid not in skipped and _may_be_stuck(pgid, acting, facts)]
    # Those after `last` first.
    for pgid in sorted(degraded, key=lambda pgid: (pgid <= last, pgid))[:LOOKED_UP]:
        last, full = pgid, _full_targets(pgid, facts)
        if full:
            acting = facts.observed.osdmap.pg_temp[pgid]
            stuck_pgs.append(Stuck(pgid, next(osd for osd in acting if osd != NO_OSD), full))
        if len(stuck_pgs) == QUERIED_PGS:
            break
    return stuck_pgs, last


def _may_be_stuck(pgid: str, acting: OsdSet, facts: RescueFacts) -> bool:
    """Whether a PG is degraded and may be rescued: no campaign has pinned it, it is not about to be
    merged, and the OSDMap shows the rescue that it has, if any."""
    pool, rescue = facts.observed.osdmap.pools.get(pool_of(pgid)), facts.rescued.get(pgid)
    # The new OSD of a rescue may have become too full.
    is_settled = rescue is None or rescue.seen and not rescue.returning
    return pool is not None and _is_degraded(pool, acting) and pgid not in facts.pinned \
        and is_settled and merge_reason(pool, pgid) is None


def _full_targets(pgid: str, facts: RescueFacts) -> Tuple[int, ...]:
    """The OSDs that a remapped PG would copy to and that are too full for it; (): none, or its sets
    are not known."""
    osdmap, place = facts.observed.osdmap, facts.observed.placement(pgid)
    size = facts.observed.shard_bytes(osdmap.pools[pool_of(pgid)])
    return () if place is None else tuple(
        osd for osd in place.up if osd not in osdmap.pg_temp[pgid] and osd in osdmap.osds
        and _is_too_full(osd, osdmap, facts.space, size))


def may_be_copying(pgid: str, facts: RescueFacts) -> bool:
    """Whether the PG is remapped, and no OSD that it copies to refuses backfill."""
    osdmap, place = facts.observed.osdmap, facts.observed.placement(pgid)
    return place is not None and pgid in osdmap.pg_temp and not any(
        osd in osdmap.osds and osdmap.osds[osd].refuses_backfill
        for osd in place.up if osd not in osdmap.pg_temp[pgid])


def questions(stuck_pgs: Iterable[Stuck]) -> List[Question]:
    """What to ask the primaries of these PGs: the states of the PGs."""
    return [Question(pg.primary, pgid=pg.pgid) for pg in stuck_pgs]


def _is_degraded(pool: Pool, acting: OsdSet) -> bool:
    """Whether a PG with this acting set has some of its shards, but not all."""
    members = sum(osd != NO_OSD for osd in acting)
    return 0 < members < pool.size


def _is_too_full(osd: int, osdmap: OsdMap, space: Mapping[int, Space], size: int) -> bool:
    """Whether an OSD is nearfull or fuller, or would be with `size` bytes more."""
    row = space.get(osd)
    return bool(osdmap.osds[osd].fullness) or (
        row is not None and row.used_bytes + size > osdmap.nearfull_ratio * row.total_bytes)


def room_of(facts: RescueFacts) -> Room:
    """The room on OSDs, less what remapped PGs, rescued ones among them, still copy to them."""
    room = Room(facts.space, facts.observed.osdmap.nearfull_ratio)
    room.add_arrivals(facts.observed.osdmap, facts.observed.placement,
                      facts.observed.shard_bytes)
    return room


def _receiving_osds(facts: RescueFacts) -> Iterable[int]:
    """The OSDs to which rescued PGs copy, or will copy once the OSDMap shows their upmaps."""
    for pgid, rescue in facts.rescued.items():
        if not rescue.seen:
            yield from rescue.taken_by
        place, acting = facts.observed.placement(pgid), facts.observed.osdmap.pg_temp.get(pgid)
        if place is not None and acting is not None:
            yield from set(place.up) - set(acting)


def plan_rescues(waiting: Iterable[Stuck], facts: RescueFacts, number: int) -> Dict[str, Rescue]:
    """PG -> its new rescue, at most `number` of those that are `waiting`. Their upmaps lead to OSDs
    that stay below nearfull and receive no other rescued PG. A PG whose rescue leads to OSDs that
    are too full may go back instead: that rescue is `returning`."""
    room, busy = room_of(facts), set(_receiving_osds(facts))
    rescues: Dict[str, Rescue] = {}
    for pg in waiting:
        if len(rescues) >= number:
            break
        rescue = _rescue(pg, facts, room, busy)
        if rescue is not None:
            rescues[pg.pgid] = rescue
            busy.update(rescue.full if rescue.returning else rescue.taken_by)
    return rescues


def _rescue(pg: Stuck, facts: RescueFacts, room: Room,
            busy: AbstractSet[int]) -> Optional[Rescue]:
    """The rescue whose upmap replaces the full OSDs of a PG by OSDs with room; None: there is none.
    If that is the entry from before an earlier rescue, the earlier one, returning. `busy`: OSDs
    that already receive a PG."""
    observation, osdmap = facts.observed, facts.observed.osdmap
    pool, place = osdmap.pools[pool_of(pg.pgid)], observation.placement(pg.pgid)
    assert place is not None
    out, present = osdmap.out, osdmap.entry(pg.pgid)
    new_up, substitutes = place.up, {}
    for osd in pg.full:
        substitute = _substitute(osd, new_up, place.acting, pool, facts, room, busy, out)
        if substitute is None:
            return None
        new_up = tuple(substitute if member == osd else member for member in new_up)
        substitutes[osd] = substitute
    pin = plan_pin(pool, place.up, new_up, present, osdmap.osds, observation.crush, out=out)
    if isinstance(pin, Unpinnable) or pin.entry.vector is not None:
        # A vector (pg_upmap) would hide what CRUSH chooses.
        return None
    earlier = facts.rescued.get(pg.pgid)
    if earlier is not None:
        return _replacing_rescue(earlier, pin.entry, substitutes, observation.now)
    return Rescue(present, pin.entry, pg.full, tuple(substitutes.values()), observation.now)


def _replacing_rescue(rescue: Rescue, entry: UpmapEntry, substitutes: Mapping[int, int],
                      now: float) -> Rescue:
    """The rescue that replaces `rescue`, whose new OSDs are too full, by the upmap `entry`; the
    same one, returning, if that is the entry from before. `substitutes`: the OSDs that are too
    full, each with the one that takes its shard."""
    if entry == rescue.before:
        return replace(rescue, returning=True)
    others = {osd: taker for osd, taker in substitutes.items() if osd not in rescue.taken_by}
    return Rescue(rescue.before, entry, (*rescue.full, *others),
                  (*(substitutes.get(osd, osd) for osd in rescue.taken_by), *others.values()), now,
                  replaced=rescue.entry)


def _substitute(osd: int, up: OsdSet, acting: OsdSet, pool: Pool, facts: RescueFacts, room: Room,
                busy: AbstractSet[int], out: FrozenSet[int]) -> Optional[int]:
    """The emptiest OSD with room that the rule allows in the place of `osd` in the set `up`; None:
    there is none."""
    crush = facts.observed.crush
    pool_room = room.of_pool(facts.observed.shard_bytes(pool))
    candidates = sorted((fill, candidate) for candidate, fill in pool_room.fill.items()
                        if pool_room.more_shards.get(candidate, 0) >= ROOM_FOR_PGS
                        and candidate not in busy)
    for _, candidate in candidates:
        if candidate in up or candidate in acting or not _may_take(candidate, facts) \
                or crush.weight_of(pool.crush_rule, candidate) <= DRAIN_WEIGHT:
            # A drained OSD is the emptiest, and is about to be replaced or removed.
            continue
        new_up = tuple(candidate if member == osd else member for member in up)
        if broken_rule(pool, new_up, crush, out) is None:
            return candidate
    return None


def _may_take(osd: int, facts: RescueFacts) -> bool:
    """Whether an OSD may take another PG. One with a reweight below 1 was fuller than others, or is
    being emptied."""
    row, space = facts.observed.osdmap.osds.get(osd), facts.space.get(osd)
    if row is None or not row.up or row.destroyed or row.fullness or row.reweight < 1.0 \
            or osd in facts.leaving:
        return False
    # Beyond the limit, a PG would wait without being active.
    pgs = None if space is None else space.pgs
    return pgs is None or not 0 < facts.hard_pg_limit <= pgs


# ---- the end of a rescue

def has_own_entry(rescue: Rescue, osdmap: OsdMap, pgid: str) -> bool:
    """Whether the OSDMap shows the upmap of the rescue, or has never shown it and shows the entry
    from before, or of the rescue that it replaces."""
    entry = osdmap.entry(pgid)
    return entry == rescue.entry or not rescue.seen and entry in (rescue.before, rescue.replaced)


def without_dropped_pairs(rescue: Rescue, entry: UpmapEntry) -> Rescue:
    """The rescue with `entry`, the present entry of its PG, if that has only lost pairs: the mons
    drop those of OSDs that CRUSH no longer chooses, and a campaign those of drained ones. The
    rescue as it is if others have changed the entry, or nothing of ours is left."""
    pairs, dropped = set(entry.items), set(rescue.entry.items) - set(entry.items)
    has_changed = entry.vector is not None or not pairs <= set(rescue.entry.items)
    if not dropped or has_changed or pairs <= set(rescue.before.items):
        return rescue
    return replace(rescue, entry=entry, before=UpmapEntry(
        tuple(pair for pair in rescue.before.items if pair not in dropped)))


def dropped_by_mons(pgid: str, rescue: Rescue, observation: Observation) -> bool:
    """Whether the mons may have dropped the pairs of a rescue: CRUSH no longer chooses the OSDs
    from which they lead, or one to which they lead is out or no longer under the rule. Otherwise,
    others have removed or changed them."""
    osdmap, place = observation.osdmap, observation.placement(pgid)
    # While another rescue is being replaced, either may have been in force.
    pairs = {*rescue.entry.items, *(rescue.replaced.items if rescue.replaced else ())} \
        - set(rescue.before.items)
    takers = {*rescue.taken_by, *(taker for _, taker in pairs)}
    if any(osd not in osdmap.osds or osd in osdmap.out or observation.crush.weight_of(
            osdmap.pools[pool_of(pgid)].crush_rule, osd) <= 0.0 for osd in takers):
        return True
    entry = osdmap.entry(pgid)
    mapped_away = {source for source, _ in entry.items}
    sources = {source for source, _ in pairs}
    return place is not None and entry.vector is None \
        and sources.isdisjoint(mapped_away.union(place.up))


def any_too_full(osds: Iterable[int], pgid: str, facts: RescueFacts) -> bool:
    """Whether some of these OSDs are too full for the PG."""
    osdmap = facts.observed.osdmap
    pool = osdmap.pools.get(pool_of(pgid))
    if pool is None:
        return False
    size = facts.observed.shard_bytes(pool)
    return any(osd in osdmap.osds and _is_too_full(osd, osdmap, facts.space, size) for osd in osds)


def may_return(pgid: str, rescue: Rescue, observation: Observation, room: Room) -> bool:
    """Whether the upmap is needed no more: its PG is not remapped, the OSDs that were too full are
    up, in, not nearfull and have twice the room that it needs, and the entry from before leads to
    OSDs that serve."""
    osdmap = observation.osdmap
    if pgid in osdmap.pg_temp or not all(
            osd in osdmap.osds and osdmap.osds[osd].is_up_and_in
            and not osdmap.osds[osd].fullness for osd in rescue.full):
        return False
    if not _leads_to_serving(pgid, rescue, observation):
        return False
    size = observation.shard_bytes(osdmap.pools[pool_of(pgid)])
    return all(room.has(osd, 2 * ROOM_FOR_PGS * size) for osd in rescue.full)


def _leads_to_serving(pgid: str, rescue: Rescue, observation: Observation) -> bool:
    """Whether the entry from before maps the PG to OSDs that serve: one may have been drained."""
    osdmap, place = observation.osdmap, observation.placement(pgid)
    pool = osdmap.pools[pool_of(pgid)]
    out = osdmap.out
    restored_up = place and released_up(pool, place.up, rescue.entry, rescue.before, out)
    return bool(restored_up) and all(
        osd in osdmap.osds and osdmap.osds[osd].up and osd not in out
        and observation.crush.weight_of(pool.crush_rule, osd) > DRAIN_WEIGHT
        for osd in restored_up or ())
