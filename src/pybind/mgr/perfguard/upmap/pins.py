# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pins: the upmap entry that makes a PG's up set its acting set, so that no data moves.

A pin is always the complete new entry of its PG: existing pairs are merged through the raw CRUSH
set, which is their common basis with the pin.
"""
import enum
from dataclasses import dataclass, field
from itertools import combinations
from typing import (AbstractSet, Callable, ClassVar, Collection, Container, Dict, FrozenSet,
                    Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union)

from ..cluster.crush import CrushRules
from ..cluster.types import (NO_ENTRY, NO_OSD, Items, Json, Osd, OsdSet, Pair, Pool, UpmapEntry,
                             merging_seeds, out_osds, seed_of)
from .semantics import apply_entry, raw_from_up, vector_applies


class Pin(NamedTuple):
    #: The complete new entry of the PG; an empty one: remove the present one.
    entry: UpmapEntry
    #: False: the present entry already does this.
    changed: bool
    #: Why shards of the PG are not pinned; '': all of them are.
    unpinned_reason: str = ''


class UnpinnableCode(str, enum.Enum):
    #: Its acting set is no set that the mons would keep; the detail says why.
    PLACEMENT = 'PLACEMENT'
    #: CRUSH finds too few OSDs for it.
    INCOMPLETE = 'INCOMPLETE'
    #: Each OSD of the acting set has a degraded PG, which may be this one, and not all of its
    #: shards can be pinned.
    DEGRADED = 'DEGRADED'
    DROPPED_BY_MON = 'DROPPED_BY_MON'
    PIN_LIMIT = 'PIN_LIMIT'


_TEXTS = {
    UnpinnableCode.PLACEMENT: 'the mons would not keep an upmap to where it is',
    UnpinnableCode.INCOMPLETE: 'CRUSH finds too few OSDs for it, so it stays where it is',
    UnpinnableCode.DEGRADED: 'degraded, or on OSDs with degraded PGs, which must recover first',
    UnpinnableCode.DROPPED_BY_MON: 'the mons refuse the upmap, or do not keep it',
    UnpinnableCode.PIN_LIMIT: 'as many PGs are pinned as the mons should check (max_pins)'}


@dataclass(frozen=True)
class Unpinnable:
    """Why a PG cannot be pinned. Decisions depend on the code alone, which is stored; the detail
    is for operators, and only known to this process."""
    json_row: ClassVar[bool] = True
    detail: str = field(default='', compare=False)
    code: UnpinnableCode = UnpinnableCode.PLACEMENT

    @property
    def reason(self) -> str:
        return self.detail or _TEXTS[self.code]

    def as_json(self, pgid: str) -> Json:
        return {'pgid': pgid, 'reason': self.reason, 'code': self.code.value}


INCOMPLETE, DEGRADED, DROPPED_BY_MON, BEYOND_LIMIT = (Unpinnable(code=code) for code in (
    UnpinnableCode.INCOMPLETE, UnpinnableCode.DEGRADED, UnpinnableCode.DROPPED_BY_MON,
    UnpinnableCode.PIN_LIMIT))


def plan_pin(pool: Pool, up: OsdSet, acting: OsdSet, entry: UpmapEntry,
             osds: Mapping[int, Osd], crush: Optional[CrushRules], *,
             raw: Optional[OsdSet] = None, exact: bool = False, existing: Items = (),
             out: Optional[FrozenSet[int]] = None) -> Union[Pin, Unpinnable]:
    """The entry which makes up = acting; never raises.

    Erasure coded pools compare by position, replicated ones as sets, unless ``exact`` asks for
    acting's very order. No pair fills the place of an OSD that is missing in ``up``; a pg_upmap
    vector does. ``entry`` is the PG's present one. ``crush`` None: legality under the
    CRUSH rule is not checked. ``raw`` is the raw set where the caller knows it; it serves only
    where ``up`` does not show it, as behind a vector, and must be of this very CRUSH map. Pairs of
    ``entry``, or ``existing``, that still serve stay, in their order. ``out`` is out_osds(osds),
    for callers with many PGs.
    """
    if out is None:
        out = out_osds(osds)
    by_position = pool.erasure or exact
    reason = _shape_reason(pool, up, acting)
    if reason:
        return Unpinnable(reason)
    if up == acting or (not by_position and set(up) == set(acting)):
        return Pin(entry, changed=False)
    reason = target_reason(acting, osds)
    if reason is None and crush is not None:
        reason = broken_rule(pool, acting, crush, out)
    if reason:
        return Unpinnable(reason)
    derived = raw_from_up(up, entry, out) if pool.is_complete(up) else None
    raw_set = raw if derived is None else derived
    raw_set = raw_set and _in_order(pool, raw_set, crush)
    acting = _in_order(pool, acting, crush, raw_set or ())
    if raw_set is None or not pool.is_complete(raw_set):
        return Pin(UpmapEntry(vector=acting), changed=True)
    return pin_from_raw(raw_set, acting, entry, by_position, out, existing)


def broken_rule(pool: Pool, osds: OsdSet, crush: CrushRules,
                out: Container[int]) -> Optional[str]:
    """Why a PG must not be planned onto these OSDs: the mon would cancel the upmap, or one failure
    would take more of the PG than the rule allows, which no mon checks."""
    ordered = _in_order(pool, osds, crush)
    return (crush.violation(pool.crush_rule, pool.size, ordered, out)
            or crush.crowding(pool.crush_rule, pool.size, ordered))


def _in_order(pool: Pool, osds: OsdSet, crush: Optional[CrushRules],
              like: OsdSet = ()) -> OsdSet:
    """A set of a replicated pool in an order that its rule allows, if possible with OSDs that are
    also in `like` where they are there.

    The mons check a set in the order of CRUSH. That of an acting set depends on where the data is,
    and primary affinities change that of an up set.
    """
    if crush is None or pool.erasure:
        return osds
    return crush.in_order(pool.crush_rule, pool.size, osds, like)


def lawful(entry: UpmapEntry, raw: OsdSet, pool: Pool, crush: CrushRules,
           out: Container[int]) -> UpmapEntry:
    """The entry, or none if it leads to a set that breaks the pool's rule. The set of CRUSH, `raw`,
    never does."""
    if entry and broken_rule(pool, apply_entry(raw, entry, out), crush, out):
        return NO_ENTRY
    return entry


def without_vector(pool: Pool, raw: OsdSet, up: OsdSet, entry: UpmapEntry,
                   out: Container[int]) -> UpmapEntry:
    """The entry for a PG that stays where it is (`up`): no entry in place of a vector if CRUSH
    (`raw`) places the PG there anyway, items if they suffice; else the present one. An entry
    without a vector is left as it is."""
    if entry.vector is None:
        return entry
    pin = pin_from_raw(raw, up, entry, pool.erasure, out)
    return entry if isinstance(pin, Unpinnable) else pin.entry


def has_no_target(pool: Pool, up: OsdSet, acting: OsdSet) -> bool:
    """Whether a remapped PG has no OSD to move to: its up set lacks OSDs, and those in it have the
    data already. It is active+clean+remapped until CRUSH finds a complete set."""
    if pool.is_complete(up):
        return False
    if pool.erasure:
        return all(new in (old, NO_OSD) for old, new in zip(acting, up))
    return set(up) <= {*acting, NO_OSD}


def merge_reason(pool: Pool, pgid: str) -> Optional[str]:
    """Why the mon cancels every upmap of this PG, or None.

    PGs from pg_num_pending on are about to merge, each into the PG whose seed lacks its highest
    bit; the mon cancels the entries of both (OSDMap::check_pg_upmaps,
    pg_pool_t::is_pending_merge).
    """
    seed = seed_of(pgid)
    if seed >= pool.pg_num:
        return 'pg_num of the pool is only %d' % pool.pg_num
    if seed >= pool.pg_num_pending:
        return 'the PG is about to merge into another'
    for source in range(pool.pg_num_pending, pool.pg_num):
        if source & ~(1 << (source.bit_length() - 1)) == seed:
            return 'PG %d.%x is about to merge into it' % (pool.id, source)
    return None


def next_merge_reason(pool: Pool, pgid: str) -> Optional[str]:
    """Why ceph-mgr removes every upmap of this PG, or None.

    It merges PGs one by one, the last one first, and removes the upmaps of the next two
    (DaemonServer::adjust_pgs).
    """
    if pool.pg_num_target < pool.pg_num \
            and seed_of(pgid) in merging_seeds(pool.pg_num, pool.pg_num - 1):
        return 'ceph-mgr removes its upmaps, to merge PG %d.%x' % (pool.id, pool.pg_num - 1)
    return None


def after_commit(raw: OsdSet, entry: UpmapEntry, pool: Pool, osds: Mapping[int, Osd],
                 crush: Optional[CrushRules], pgid: Optional[str] = None,
                 out: Optional[FrozenSet[int]] = None) -> UpmapEntry:
    """The part of an entry that the mons commit (OSDMap::check_pg_upmaps).

    The mons remove the whole entry if the final set violates the CRUSH rule, if the PG is merging,
    if the pg_upmap equals the raw set or differs in length from the pool's size, or if no pair is
    left. They remove a pair if its source is not in the raw set or its target is out. They keep
    pairs that have no effect for another reason. ``pgid`` None: the PG is not merging. ``crush``
    None: no violation. ``out`` is out_osds(osds), for callers with many PGs.
    """
    if out is None:
        out = out_osds(osds)
    if pgid is not None and merge_reason(pool, pgid):
        return NO_ENTRY
    final = apply_entry(raw, entry, out)
    if crush is not None and crush.violation(pool.crush_rule, pool.size, final, out):
        return NO_ENTRY
    if entry.vector is not None and (entry.vector == raw or len(entry.vector) != pool.size):
        return NO_ENTRY
    pairs = tuple((source, target) for source, target in entry.items
                  if source in raw and target not in out)
    if entry.items and not pairs:
        return NO_ENTRY
    return UpmapEntry(pairs, entry.vector)


def without_targets(entry: UpmapEntry, osds: Collection[int]) -> UpmapEntry:
    """An entry without the pairs that lead to some OSDs; no entry if its vector leads to one."""
    if not entry or not osds:
        return entry
    if entry.vector is not None and any(osd in osds for osd in entry.vector):
        return NO_ENTRY
    pairs = tuple(pair for pair in entry.items if pair[1] not in osds)
    return entry if pairs == entry.items else UpmapEntry(pairs, entry.vector)


def released_up(pool: Pool, up_now: OsdSet, entry_now: UpmapEntry, entry_before: UpmapEntry,
                out: Container[int], raw: Optional[OsdSet] = None) -> Optional[OsdSet]:
    """The set a PG gets when ``entry_now``, its pin, is replaced by ``entry_before``, the entry
    that is to be in force afterwards. ``up_now``: its set with the pin.

    ``raw`` is the raw set as recorded when the PG was pinned. It serves only where the pin is a
    vector, which hides the raw set, and is stale after the next CRUSH change. None: unknown, or
    ``up_now`` is incomplete.
    """
    if vector_applies(entry_before, out):
        return apply_entry((), entry_before, out)
    if NO_OSD in up_now or len(up_now) != pool.size:
        return None
    raw_set = raw_from_up(up_now, entry_now, out)
    if raw_set is None:
        raw_set = raw
    return None if raw_set is None else apply_entry(raw_set, entry_before, out)


def _shape_reason(pool: Pool, up: OsdSet, acting: OsdSet) -> Optional[str]:
    """Why the sets cannot be made equal regardless of the OSDs; None: they may be."""
    if len(set(up)) == len(up) == len(set(acting)) == len(acting) == pool.size \
            and NO_OSD not in acting:
        return None  # nearly always
    if NO_OSD in acting:
        return 'the acting set has a hole at position %d' % acting.index(NO_OSD)
    for name, osds in (('up', up), ('acting', acting)):
        if len(osds) > pool.size or name == 'acting' and len(osds) < pool.size:
            return 'the %s set has %d OSDs, the pool\'s size is %d' % (name, len(osds), pool.size)
        # Only a hole may be in a set more than once.
        if len(set(osds)) < len(osds) and any(
                osds.count(osd) > 1 for osd in osds if osd != NO_OSD):
            return 'the %s set contains an OSD twice: %s' % (name, list(osds))
    return None


def target_reason(acting: OsdSet, osds: Mapping[int, Osd]) -> Optional[str]:
    """Why a PG must not be pinned to these OSDs, as text; None: it may be. One that is down keeps
    its place in CRUSH."""
    for osd_id in acting:
        osd = osds.get(osd_id)
        if osd is None or not osd.exists:
            return 'osd.%d does not exist' % osd_id
        if osd.destroyed:
            return 'osd.%d is destroyed' % osd_id
        if osd.reweight == 0:
            return 'osd.%d is out' % osd_id
    return None


def pin_from_raw(raw: OsdSet, acting: OsdSet, entry: UpmapEntry, by_position: bool,
                 out: Container[int], existing: Items = ()) -> Union[Pin, Unpinnable]:
    """The pin that leads from a raw set to the acting set: no entry if the sets are equal, pairs if
    they can write it, else a vector. `entry`: the present one; `existing`: pairs to keep where they
    still serve; (): those of `entry`. Unpinnable: pairs lead elsewhere, as to an OSD that is
    out."""
    if raw == acting or (not by_position and set(raw) == set(acting)):
        return _pin(NO_ENTRY, entry)
    existing = existing or entry.items
    # Existing pairs may lead to another order of the same OSDs. They stay if the primary is right.
    fewest = () if by_position else _fewest_changes(raw, acting, existing)
    if fewest and set(fewest).intersection(existing):
        reached = apply_entry(raw, UpmapEntry(fewest), out)
        if set(reached) == set(acting) and reached[0] == acting[0]:
            return _pin(UpmapEntry(fewest), entry)
    pairs = items_by_position(raw, acting, existing)
    if pairs is None:
        # The positions of some OSDs are a permutation among themselves, which pairs cannot write.
        if by_position:
            return _pin(UpmapEntry(vector=acting), entry)
        pairs = _items_as_set(raw, acting, existing)
    new_entry = UpmapEntry(pairs)
    reached = apply_entry(raw, new_entry, out)
    if reached != acting and (by_position or set(reached) != set(acting)):
        return Unpinnable('pairs %s would lead to %s' % (list(pairs), list(reached)))
    return _pin(new_entry, entry)


def _pin(new_entry: UpmapEntry, present: UpmapEntry) -> Pin:
    return Pin(new_entry, new_entry != present)


def items_by_position(raw: OsdSet, final: OsdSet, existing: Items) -> Optional[Items]:
    """Pairs that turn ``raw`` into ``final``, position by position; None if no pairs can.

    Each OSD leaves the set before it enters another position: a pair whose target is still in
    the set would be skipped. Swaps and longer cycles have no first pair to begin with. Pairs
    that are in ``existing`` come first, in their order there, as far as that rule allows.
    """
    pairs = [(old, new) for old, new in zip(raw, final) if old != new]
    if len(pairs) == 1 and pairs[0][1] not in raw:
        return (pairs[0],)  # as nearly always
    open_pairs = _existing_first(pairs, existing)
    present = set(raw)
    ordered: List[Pair] = []
    while open_pairs:
        free = next((pair for pair in open_pairs if pair[1] not in present), None)
        if free is None:
            return None
        open_pairs.remove(free)
        ordered.append(free)
        present.remove(free[0])
        present.add(free[1])
    return tuple(ordered)


def _existing_first(pairs: Sequence[Pair], existing: Items) -> List[Pair]:
    """The pairs in another order: first those of `existing`, in their order there."""
    existing_pairs = [pair for pair in existing if pair in pairs]
    return list(dict.fromkeys(existing_pairs)) + [pair for pair in pairs
                                                  if pair not in existing_pairs]


def _fewest_changes(raw: OsdSet, acting: OsdSet, existing: Items) -> Items:
    """Pairs that turn ``raw`` into some order of ``acting``, existing ones first; their order does
    not matter, since no OSD that leaves enters again."""
    leaving, entering = _matched(raw, acting, existing)
    return tuple(_existing_first(list(zip(leaving, entering)), existing))


def _items_as_set(raw: OsdSet, acting: OsdSet, existing: Items) -> Items:
    """Pairs that turn ``raw`` into a permutation of ``acting`` with the same first OSD.

    Only for sets that differ in at least one OSD. The primary of a replicated PG is the first of
    its up set, and a primary that moves stalls clients: for its sake up to two OSDs which stay in
    the set change their position, along the way leaving OSD -> raw's first -> acting's first ->
    entering OSD.
    """
    leaving, entering = _matched(raw, acting, existing)
    first_raw, first_acting = raw[0], acting[0]
    if first_raw == first_acting:
        return tuple(zip(leaving, entering))
    if first_raw not in leaving:
        way = [leaving[0], first_raw]
    else:
        way = [first_raw]
    if first_acting in entering:
        way.append(first_acting)
    else:
        way += [first_acting, entering[leaving.index(way[0])]]
    other_pairs = _other_pairs(leaving, entering, way[0], way[-1])
    return tuple(reversed(list(zip(way, way[1:])))) + other_pairs


def _matched(raw: OsdSet, acting: OsdSet, existing: Items) -> Tuple[List[int], List[int]]:
    """OSDs that leave and, in the same order, those that enter in their place.

    Existing pairs that still serve are kept; then each position gets acting's OSD if it can.
    """
    leaving = [osd for osd in raw if osd not in acting]
    entering = [osd for osd in acting if osd not in raw]
    chosen: Dict[int, int] = {}
    for source, target in existing + tuple(zip(raw, acting)):
        if source in leaving and target in entering:
            if source not in chosen and target not in chosen.values():
                chosen[source] = target
    spare = iter([osd for osd in entering if osd not in chosen.values()])
    return leaving, [chosen[osd] if osd in chosen else next(spare) for osd in leaving]


def _other_pairs(leaving: Sequence[int], entering: Sequence[int], source: int,
                 target: int) -> Items:
    """The matched pairs but for one source and one target; their two partners form a pair."""
    other_pairs = [(a, b) for a, b in zip(leaving, entering) if a != source and b != target]
    if entering[leaving.index(source)] != target:
        other_pairs.append((leaving[entering.index(target)], entering[leaving.index(source)]))
    return tuple(other_pairs)


# ---- Pins of PGs that lack a shard, or have one on an OSD that it must leave
#
# Such a shard recovers, or moves, to where the PG's up set has it. The others may be misplaced, and
# norebalance does not defer the backfill of a degraded PG: a pin keeps them where their data is.


def plan_partial_pin(pool: Pool, up: OsdSet, acting: OsdSet, entry: UpmapEntry,
                     osds: Mapping[int, Osd], crush: Optional[CrushRules],
                     out: Optional[FrozenSet[int]] = None,
                     leaving: Collection[int] = ()) -> Union[Pin, Unpinnable]:
    """The pin of plan_pin; if a shard is lost, or must leave its OSD, the pin of the others that
    can stay, with the reason why it is not all of them (Pin.unpinned_reason). Unpinnable, with the
    same reason, if none can.

    `entry`: the upmap that the PG has; `crush` None: the rule is not checked; `out`:
    out_osds(osds), for callers with many PGs; `leaving`: OSDs that shards must leave besides those
    that are out, destroyed or removed, or have no weight.
    """
    out_of_use = out_osds(osds) if out is None else out
    whole = plan_pin(pool, up, acting, entry, osds, crush, out=out_of_use) if not leaving \
        else Unpinnable('one of its OSDs is to be emptied')
    weighted = {osd for osd in acting
                if crush is None or crush.weight_of(pool.crush_rule, osd) > 0.0}
    staying = {osd for osd in weighted - {*leaving}
               if osd != NO_OSD and target_reason((osd,), osds) is None}
    # If all shards can stay, plan_pin has refused for a reason that concerns the whole set.
    all_stay = len(staying) == pool.size
    if isinstance(whole, Pin) or all_stay or not (_is_set(up) and _is_set(acting)):
        return whole

    def legal(new_up: OsdSet) -> bool:
        """Whether the PG may be mapped to this set: no OSD is missing that `up` has, and the OSDs
        obey the rule."""
        live = tuple(osd for osd in new_up if osd != NO_OSD)
        no_further_hole = all(new != NO_OSD or old == NO_OSD for old, new in zip(up, new_up))
        return no_further_hole and _is_set(new_up) and (
            crush is None or broken_rule(pool, live, crush, out_of_use) is None)

    for candidate in _candidates(pool, up, acting, staying, legal):
        if candidate != up and legal(candidate):
            new_entry = _entry_leading_to(candidate, pool, up, entry, osds, out_of_use)
            if new_entry is not None and new_entry != entry:
                return Pin(new_entry, changed=True, unpinned_reason=whole.reason)
    return whole


def _is_set(osds: OsdSet) -> bool:
    """Whether no OSD is in it twice; some rules choose one twice."""
    return all(osd == NO_OSD or osds.count(osd) == 1 for osd in osds)


def _candidates(pool: Pool, up: OsdSet, acting: OsdSet, staying: AbstractSet[int],
                legal: Callable[[OsdSet], bool]) -> Iterator[OsdSet]:
    """The sets to which a PG may be pinned, the best first: OSDs of `acting` that are `staying`,
    and OSDs of `up` for the other shards.

    First are sets in which all of `staying` remain; in an erasure-coded pool, all but those to
    whose OSD another shard moves. They may be illegal, because an OSD of `up` is in the failure
    domain of one of them: the last set keeps only those that `legal` allows, added one by one.
    """
    if pool.erasure:
        if len(up) != len(acting):
            return
        if NO_OSD not in acting:
            yield _with_all_staying(up, acting, staying)
        yield _with_displaced_moved(up, acting, staying)
        # No pair fills a hole.
        staying = staying - {osd for osd, new in zip(acting, up) if new == NO_OSD}
        yield _with_displaced_moved(up, acting, staying)
        swaps = [(position, osd) for position, osd in enumerate(acting) if osd in staying]
    else:
        not_in_up = [osd for osd in acting if osd in staying and osd not in up]
        entering = [osd for osd in up if osd not in acting]
        for replaced in combinations(entering, len(not_in_up)):
            stays_for = dict(zip(replaced, not_in_up))
            yield tuple(stays_for.get(osd, osd) for osd in up)
        swaps = [(up.index(new), old) for old in not_in_up for new in entering]
    # `swaps`: positions of `up`, each with an OSD that may stay there instead.
    osds = up
    for position, osd in swaps:
        with_osd = (*osds[:position], osd, *osds[position + 1:])
        if osds[position] == up[position] and osd not in osds and legal(with_osd):
            osds = with_osd
    yield osds


def _with_displaced_moved(up: OsdSet, acting: OsdSet, staying: AbstractSet[int]) -> OsdSet:
    """The acting set with each shard that cannot stay moved to its OSD of `up`: one that is not on
    an OSD of `staying`, or whose OSD another shard moves to."""
    moving = {position for position, osd in enumerate(acting) if osd not in staying}
    while True:
        targets = {up[position] for position in moving}
        displaced = {position for position, osd in enumerate(acting) if osd in targets} - moving
        if not displaced:
            return tuple(up[position] if position in moving else osd
                         for position, osd in enumerate(acting))
        moving |= displaced


def _with_all_staying(up: OsdSet, acting: OsdSet, staying: AbstractSet[int]) -> OsdSet:
    """The acting set in which all shards on OSDs of `staying` stay, and each other one moves to its
    OSD of `up`; if a shard stays there, to the OSD that this shard would move to, and so on."""
    instead = {old: new for old, new in zip(acting, up) if old in staying}

    def free(osd: int) -> int:
        while osd in instead:
            osd = instead[osd]
        return osd

    return tuple(osd if osd in staying else free(new) for osd, new in zip(acting, up))


def _entry_leading_to(final: OsdSet, pool: Pool, up: OsdSet, entry: UpmapEntry,
                      osds: Mapping[int, Osd], out: Container[int]) -> Optional[UpmapEntry]:
    """The upmap with which a PG that has `entry` and is mapped to `up` is mapped to `final`, whose
    holes are those of `up`; None: there is none."""
    if vector_applies(entry, out):
        return _changed_vector(apply_entry((), entry, out), up, final)
    if pool.is_complete(final) and not pool.is_complete(up):
        return UpmapEntry(vector=final)
    if any(old == NO_OSD != new for old, new in zip(up, final)):
        return None  # no pair fills a hole
    if NO_OSD in final and not any(osd.is_down_but_in for osd in osds.values()):
        return None  # CRUSH finds no OSD there, so the mons cancel all pairs
    # OSDs that are down leave holes, or are missing from `up`: they are in the raw set, which is
    # not known. Pairs for the other OSDs do not depend on them.
    raw = list(up)
    sources = [source for source, _ in entry.items]
    for source, target in reversed(entry.items):
        if target in raw and source not in raw:
            if sources.count(source) > 1:
                return None  # either of its pairs may be the one that has an effect
            if source in osds and osds[source].is_down_but_in and not pool.is_complete(up):
                return None  # it may be missing from the set that CRUSH chose, or replaced in it
            raw[raw.index(target)] = source
    pin = pin_from_raw(tuple(raw), final, entry, pool.erasure, out)
    if isinstance(pin, Unpinnable):
        return None
    if pin.entry.vector is not None:
        return pin.entry if pool.is_complete(final) else None
    pairs_of_missing = tuple(pair for pair in entry.items if pair[0] not in raw)
    pairs = pairs_of_missing + pin.entry.items
    # The mons refuse more pairs than the PG has OSDs.
    return UpmapEntry(pairs) if len(pairs) <= pool.size else None


def _changed_vector(vector: OsdSet, up: OsdSet, final: OsdSet) -> Optional[UpmapEntry]:
    """A vector in which the OSDs that differ between `up` and `final` are replaced; None: an OSD
    would be missing from it, or be in it twice."""
    changes = {old: new for old, new in zip(up, final) if old != new}
    changed = tuple(changes.get(osd, osd) for osd in vector)
    fits = changes.keys() <= set(vector) and len(set(changed)) == len(changed)
    return UpmapEntry(vector=changed) if fits and NO_OSD not in changes else None
