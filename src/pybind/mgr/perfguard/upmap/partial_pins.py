# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pins of PGs that lack a shard, or have one on an OSD that it must leave. Pure.

Such a shard recovers, or moves, to where the PG's up set has it. The others may be misplaced, and
norebalance does not defer the backfill of a degraded PG: a pin keeps them where their data is.
"""
from itertools import combinations
from typing import (AbstractSet, Callable, Collection, Container, FrozenSet, Iterator, Mapping,
                    Optional, Union)

from ..cluster.crush import CrushRules
from ..cluster.types import NO_OSD, Osd, OsdSet, Pool, UpmapEntry
from .pins import Pin, Unpinnable, broken_rule, pin_from_raw, plan_pin, target_reason
from .semantics import apply_entry, out_osds, vector_applies


def plan_partial_pin(pool: Pool, up: OsdSet, acting: OsdSet, entry: UpmapEntry,
                     osds: Mapping[int, Osd], crush: Optional[CrushRules],
                     out: Optional[FrozenSet[int]] = None,
                     leaving: Collection[int] = ()) -> Union[Pin, Unpinnable]:
    """As plan_pin; if a shard is lost, or must leave its OSD, the pin of the others that can stay,
    with the reason why it is not all of them (Pin.left). `leaving`: further OSDs that shards must
    leave."""
    gone = out_osds(osds) if out is None else out
    whole = plan_pin(pool, up, acting, entry, osds, crush, out=gone) if not leaving \
        else Unpinnable('one of its OSDs is to be emptied')
    left = {osd for osd in acting if osd != NO_OSD and target_reason((osd,), osds) is None and (
        crush is None or crush.weight_of(pool.crush_rule, osd) > 0.0)} - {*leaving}
    if isinstance(whole, Pin) or len(left) == pool.size \
            or not (_is_set(up) and _is_set(acting)):
        return whole

    def legal(osds: OsdSet) -> bool:
        live = tuple(osd for osd in osds if osd != NO_OSD)
        no_further_hole = all(new != NO_OSD or old == NO_OSD for old, new in zip(up, osds))
        return no_further_hole and _is_set(osds) and (
            crush is None or broken_rule(pool, live, crush, gone) is None)

    for wanted in _candidates(pool, up, acting, left, legal):
        if wanted != up and legal(wanted):
            pinned = _entry(pool, up, wanted, entry, osds, gone)
            if pinned is not None and pinned != entry:
                return Pin(pinned, True, whole.reason)
    return whole


def _is_set(osds: OsdSet) -> bool:
    """Some rules choose an OSD twice."""
    return all(osd == NO_OSD or osds.count(osd) == 1 for osd in osds)


def _candidates(pool: Pool, up: OsdSet, acting: OsdSet, left: AbstractSet[int],
                legal: Callable[[OsdSet], bool]) -> Iterator[OsdSet]:
    """Sets with OSDs of `acting` that are `left`, and those of `up` for the others; first those
    with all of them. `left` need not have the place of one that is lost: an OSD of `up` may be in
    the same failure domain."""
    if pool.erasure:
        if len(up) != len(acting):
            return
        if NO_OSD not in acting:
            yield _elsewhere(up, acting, left)
        yield _by_position(up, acting, left)
        # No pair fills a hole.
        left = left - {osd for osd, new in zip(acting, up) if new == NO_OSD}
        yield _by_position(up, acting, left)
        swaps = [(position, osd) for position, osd in enumerate(acting) if osd in left]
    else:
        leaving = [osd for osd in acting if osd in left and osd not in up]
        entering = [osd for osd in up if osd not in acting]
        for replaced in combinations(entering, len(leaving)):
            stays = dict(zip(replaced, leaving))
            yield tuple(stays.get(osd, osd) for osd in up)
        swaps = [(up.index(new), old) for old in leaving for new in entering]
    some = up
    for position, osd in swaps:
        tried = (*some[:position], osd, *some[position + 1:])
        if some[position] == up[position] and osd not in some and legal(tried):
            some = tried
    yield some


def _by_position(up: OsdSet, acting: OsdSet, left: AbstractSet[int]) -> OsdSet:
    """A shard cannot stay on an OSD that another one moves to, either."""
    moving = {position for position, osd in enumerate(acting) if osd not in left}
    while True:
        taken = {up[position] for position in moving}
        more = {position for position, osd in enumerate(acting) if osd in taken} - moving
        if not more:
            return tuple(up[position] if position in moving else osd
                         for position, osd in enumerate(acting))
        moving |= more


def _elsewhere(up: OsdSet, acting: OsdSet, left: AbstractSet[int]) -> OsdSet:
    """Where another shard stays on the OSD that a shard is to move to, it moves to the one that
    the other shard would move to, and so on."""
    instead = {old: new for old, new in zip(acting, up) if old in left}

    def free(osd: int) -> int:
        while osd in instead:
            osd = instead[osd]
        return osd

    return tuple(osd if osd in left else free(new) for osd, new in zip(acting, up))


def _entry(pool: Pool, up: OsdSet, wanted: OsdSet, entry: UpmapEntry, osds: Mapping[int, Osd],
           out: Container[int]) -> Optional[UpmapEntry]:
    """The entry that leads to a set, whose holes are those of `up`; None: there is none.

    OSDs that are down leave holes, or are missing: they are in the raw set, which is not known.
    Pairs for the other OSDs do not depend on them.
    """
    if vector_applies(entry, out):
        changes = dict((old, new) for old, new in zip(up, wanted) if old != new)
        whole = apply_entry((), entry, out)
        changed = tuple(changes.get(osd, osd) for osd in whole)
        fits = changes.keys() <= set(whole) and len(set(changed)) == len(changed)
        return UpmapEntry(vector=changed) if fits and NO_OSD not in changes else None
    if pool.is_complete(wanted) and not pool.is_complete(up):
        return UpmapEntry(vector=wanted)
    if any(old == NO_OSD != new for old, new in zip(up, wanted)):
        return None  # no pair fills a hole
    if NO_OSD in wanted and not any(osd.is_down_but_in for osd in osds.values()):
        return None  # CRUSH finds no OSD there, so the mons cancel all pairs
    raw = list(up)
    for source, target in reversed(entry.items):
        if target in raw and source not in raw:
            if source in osds and osds[source].is_down_but_in and not pool.is_complete(up):
                return None  # it may be missing from the set that CRUSH chose, or replaced in it
            raw[raw.index(target)] = source
    hidden = tuple(pair for pair in entry.items if pair[0] not in raw)
    pin = pin_from_raw(tuple(raw), wanted, entry, pool.erasure, out)
    if isinstance(pin, Unpinnable):
        return None
    if pin.entry.vector is not None:
        return pin.entry if pool.is_complete(wanted) else None
    items = hidden + pin.entry.items
    # The mons refuse more pairs than the PG has OSDs.
    return UpmapEntry(items) if len(items) <= pool.size else None
