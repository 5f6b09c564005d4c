# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pins PGs where their data is, and compares the pins with the OSDMap."""
from dataclasses import replace
from typing import Dict, FrozenSet, Iterable, List, Optional

from ..cluster.types import NO_ENTRY, NO_OSD, OsdMap, OsdSet, Pool, UpmapEntry
from ..options import Options
from ..tables import listed, pgs, pgs_are, plural
from ..upmap.pins import INCOMPLETE, Unpinnable, lawful, plan_pin, skip_reason, without
from ..upmap.semantics import raw_from_up
from .holds import NOREBALANCE, gives_way
from .turn import Turn
from .types import Campaign, Phase, PinRecord, Sent, SetEntry

#: Each OSD of the acting set has a degraded PG, which may be this one. The pin is retried in every
#: turn, and norebalance stays set until it succeeds.
DEGRADED = 'degraded, or on OSDs with degraded PGs, which must recover first'
#: Number of times that a pin is sent before it counts as refused if the OSDMap does not show it.
SEND_TIMES = 2
#: If more PGs than this cannot be pinned, they are not replanned for each new OSDMap.
PLANNED_AGAIN = 1000
#: Seconds without a new pin after which PGs that are stuck in peering no longer delay the others.
STUCK_SECONDS = 30.0
DROPPED_BY_MON = 'the mon accepted the upmap but did not keep it'


def audit(turn: Turn) -> None:
    """Compare the pins with the OSDMap: confirm new ones, drop refused, lost and foreign ones."""
    change = turn.campaign.change
    if change is not None and change.pending and turn.campaign.phase is not Phase.ABORTED:
        return  # the pins are the earlier or the new ones: joining.py determines which
    _confirm(turn)
    if turn.seen.new_map:
        _find_lost(turn)
        _forget_purged(turn)


def _confirm(turn: Turn) -> None:
    pinning: Dict[str, Sent] = {}
    refused: Dict[str, str] = {}
    for pgid, sent in turn.campaign.pinning.items():
        pin = turn.pin_of(pgid)
        if pin is None or turn.pool(pgid) is None:
            continue
        present = turn.seen.osdmap.entry(pgid)
        if present == pin.entry:
            if pin.earlier is not None:
                turn.note_pin(pgid, pin)
            continue
        if turn.now - sent.since <= turn.options.readback_timeout:
            pinning[pgid] = sent
        elif _in_place(turn, pgid) or not turn.out.isdisjoint(pin.entry.targets):
            # The mons do not keep a vector that equals the set of CRUSH, and it is not needed. Nor
            # do they keep what leads to an OSD that is out; once it is in, the PG is planned again.
            if present and _is_remnant(present, pin) and present not in (pin.before, pin.leads_to):
                _keep(turn, pgid, pin, present)
            else:
                turn.forget_pin(pgid)
        elif not is_mixture(present, *pin.ours, pin.before, pin.leads_to):
            turn.forget_pin(pgid)
            turn.event('pins', 'the pin of PG %s was replaced outside perfguard' % pgid,
                       'perfguard leaves it alone')
        elif sent.times < SEND_TIMES:
            # It may never have been sent: this mgr may have taken over from one that failed before.
            # Or the mons dropped it because CRUSH places the PG elsewhere by now.
            if _pin_one(turn, pgid, False, pin.entry):
                turn.actions.append(SetEntry(pgid, pin.entry, present))
            pinning[pgid] = Sent(turn.now, sent.times + 1)
        else:
            # The mon returns 0 for an upmap that its own clean-up then removes.
            turn.actions.append(SetEntry(pgid, pin.leads_to, present))
            refused[pgid] = DROPPED_BY_MON
            turn.forget_pin(pgid)
            turn.event('unpinnable', 'PG %s' % pgid, DROPPED_BY_MON)
    if refused:
        turn.set(unpinnable={**turn.campaign.unpinnable, **refused})
    if pinning != turn.campaign.pinning:
        turn.set(pinning=pinning)


def is_mixture(present: UpmapEntry, *ours: UpmapEntry) -> bool:
    """Whether `present` may be a mixture of our entries.

    Items and vector are set by commands of their own, and the mon drops pairs; an entry with
    anything else in it was set by others.
    """
    return (present.vector in (None, *(entry.vector for entry in ours))
            and set(present.items) <= {pair for entry in ours for pair in entry.items})


def count_again(campaign: Campaign, unanswered: Iterable[str]) -> Campaign:
    """The campaign after some of its pins were sent without an answer: these attempts do not
    count."""
    pinning = dict(campaign.pinning)
    for pgid in unanswered:
        if pgid in pinning:
            pinning[pgid] = replace(pinning[pgid], times=pinning[pgid].times - 1)
    return replace(campaign, pinning=pinning)


def _in_place(turn: Turn, pgid: str) -> bool:
    place = turn.seen.placement(pgid)
    return place is not None and place.up == place.acting and pgid not in turn.seen.osdmap.pg_temp


def _find_lost(turn: Turn) -> None:
    osdmap = turn.seen.osdmap
    gone: List[str] = []
    foreign: List[str] = []
    pinned = turn.pinned()
    for pgid in pinned.differing(osdmap):
        if pgid in turn.campaign.in_flight or pgid in turn.campaign.pinning \
                or turn.pin_of(pgid) is None:
            continue
        now, pin = osdmap.entry(pgid), pinned[pgid]
        if now in (pin.before, pin.leads_to):
            turn.forget_pin(pgid)  # released; a restart may bring its record back
        elif turn.pool(pgid) is None:
            gone.append(pgid)
            turn.forget_pin(pgid)
        elif now and _is_remnant(now, pin):
            # The mons dropped some pairs, as they do when CRUSH changes: the rest is ours. Or this
            # pin was noted and not sent.
            _keep(turn, pgid, pin, now)
        elif not now:
            gone.append(pgid)
            turn.forget_pin(pgid)
        else:
            foreign.append(pgid)
            turn.forget_pin(pgid)
    if gone:
        turn.event('pins', '%s removed outside perfguard' % plural(len(gone), 'pin'),
                   'the pool, the PG or the upmap was removed: %s' % listed(sorted(gone)))
    if foreign:
        turn.event('pins', '%s replaced outside perfguard' % plural(len(foreign), 'pin'),
                   'perfguard leaves them alone: %s' % listed(sorted(foreign)))


def _forget_purged(turn: Turn) -> None:
    """The mons refuse upmaps to OSDs that no longer exist, so no release may lead to one."""
    osds, found = turn.seen.osdmap.osds, []
    for pgid in turn.pinned().leading_elsewhere(osds):
        pin = turn.pin_of(pgid)
        if pin is not None:
            gone = pin.ahead - osds.keys()
            turn.note_pin(pgid, replace(
                pin, before=without(pin.before, gone), goal=pin.goal and without(pin.goal, gone),
                was=pin.was and without(pin.was, gone)))
            found.append(pgid)
    if found:
        turn.event('pins', '%s will be released without an upmap to an OSD that was purged'
                   % pgs(len(found)), listed(sorted(found)))


def _keep(turn: Turn, pgid: str, pin: PinRecord, present: UpmapEntry) -> None:
    goal = pin.goal if turn.campaign.removes_upmaps else None
    turn.note_pin(pgid, replace(pin, entry=present, raw=None, goal=goal))


def _is_remnant(now: UpmapEntry, pin: PinRecord) -> bool:
    """A rollback sends the pairs that the PG is to end with along with those of the pin."""
    return any(now.vector == entry.vector and set(now.items) <= {*entry.items, *pin.leads_to.items}
               for entry in pin.ours)


def pin_remapped(turn: Turn) -> int:
    """Pin PGs that are remapped and not in flight; returns how many are left for later turns,
    including those that are `awaited`.

    PGs that cannot be pinned are noted in the campaign with the reason, and so are those that wait
    for recovery.
    """
    campaign, osdmap = turn.campaign, turn.seen.osdmap
    pinning = dict(campaign.pinning)
    # A pin ends the remapping of a PG and moves no data, so many may peer at once, but not all.
    room = turn.options.pin_batch - max(len(pinning), turn.in_transition)
    if room <= 0 and not pinning and turn.now - campaign.pins_sent > STUCK_SECONDS:
        room = turn.options.pin_batch
    unpinnable: Dict[str, str] = {}
    fresh = later = 0
    other_crush = turn.seen.crush_version != campaign.refused_crush
    # A PG that arrives before norebalance is in force would move back to its pin.
    early = not is_still(turn) and not gives_way(campaign.blocked, turn.now)
    for pgid in osdmap.pg_temp:
        if pgid in campaign.in_flight or pgid in pinning:
            continue
        if _is_final(turn, pgid, other_crush):
            unpinnable[pgid] = campaign.unpinnable[pgid]
            continue
        if fresh >= room:
            later += 1
            continue
        reason = _pin_one(turn, pgid, early)
        if reason is None:
            continue
        if reason:
            unpinnable[pgid] = reason
        else:
            fresh += 1
            later += early
            if not early:
                pinning[pgid] = Sent(turn.now)
    _note_unpinnable(turn, unpinnable)
    if other_crush:
        turn.set(refused_crush=turn.seen.crush_version)
    if fresh and not early:
        turn.set(pinning=pinning, pins_sent=turn.now)
        turn.event('pin', 'pinning ' + pgs(fresh))
    return later + awaited(turn)


def is_still(turn: Turn) -> bool:
    """norebalance is in force, or others want it cleared."""
    return (NOREBALANCE in turn.seen.osdmap.flags - turn.seen.coming_flags
            or NOREBALANCE in turn.campaign.holds.given_up)


def _is_final(turn: Turn, pgid: str, other_crush: bool) -> bool:
    """Whether the reason why the PG cannot be pinned is known and has not changed.

    OSDs may return and complete a set; what the mons have refused, they refuse again as long as
    CRUSH is the same.
    """
    reason = turn.campaign.unpinnable.get(pgid, DEGRADED)
    if reason == DEGRADED or other_crush:
        return False
    if reason == DROPPED_BY_MON or not turn.seen.new_map:
        return True
    # A PG that can move after all must be noticed.
    return reason != INCOMPLETE and len(turn.campaign.unpinnable) > PLANNED_AGAIN


def waits(campaign: Campaign, pgid: str) -> bool:
    """Whether the PG is remapped and will be pinned after its recovery."""
    return campaign.unpinnable.get(pgid) == DEGRADED


def waiting(campaign: Campaign) -> int:
    """How many PGs wait for recovery."""
    return sum(1 for pgid in campaign.unpinnable if waits(campaign, pgid))


def lastingly_unpinnable(campaign: Campaign) -> Dict[str, str]:
    """PGs that cannot be pinned, with the reasons, without those that wait for recovery."""
    return {pgid: why for pgid, why in campaign.unpinnable.items() if why != DEGRADED}


def awaited(turn: Turn) -> int:
    """How many PGs have to be pinned after their recovery.

    Those that lack an OSD which is out do not: norebalance does not stop them, and they recover to
    where CRUSH places them. They may wait for an OSD that is too full, until releases have made
    room.
    """
    return sum(1 for pgid in turn.campaign.unpinnable
               if waits(turn.campaign, pgid) and not _has_lost_an_osd(turn, pgid))


def _has_lost_an_osd(turn: Turn, pgid: str) -> bool:
    """Whether the PG lacks an OSD, and none is down that may come back."""
    pool, place = turn.pool(pgid), turn.seen.placement(pgid)
    return (not turn.lost and pool is not None and place is not None
            and not pool.is_complete(place.acting))


def staying(campaign: Campaign) -> int:
    """How many PGs are remapped and have nowhere to move."""
    return len(campaign.incomplete)


def unpinned(campaign: Campaign) -> int:
    """How many PGs without a pin move as soon as norebalance is cleared, or once they have
    recovered."""
    return len(campaign.unpinnable) - staying(campaign)


def unpinnable_excess(campaign: Campaign, held: int, options: Options) -> str:
    """Why releases must not begin: too many PGs would move outside the caps; '' if they may.

    `held`: PGs of the campaign that are pinned, move or have moved.
    """
    number = unpinned(campaign) - waiting(campaign)
    ratio = options.max_unpinnable_ratio
    if number <= max(options.max_backfills_target, ratio * (number + held),
                     campaign.accepted_unpinnable):
        return ''
    return ('%s of %d cannot be pinned (limit %g %%, max_unpinnable_ratio) and will move all at '
            'once, regardless of the caps, when norebalance is cleared: "rebalance start" accepts '
            'that; otherwise revert the CRUSH change' % (
                pgs(number), number + held, 100 * ratio))


def unpinned_warning(campaign: Optional[Campaign], pins: int, osdmap: OsdMap,
                     options: Options) -> str:
    """Why the campaign must not give norebalance back now: too many PGs would move outside the
    caps; '' if it may. `pins`: PGs that are pinned and not in flight."""
    if campaign is None or NOREBALANCE not in campaign.holds.flags:
        return ''
    number = sum(1 for pgid in osdmap.pg_temp
                 if pgid not in campaign.in_flight
                 and campaign.unpinnable.get(pgid) not in (DEGRADED, INCOMPLETE))
    held = pins + campaign.released + campaign.kept
    if number <= max(options.max_backfills_target,
                     options.max_unpinnable_ratio * (number + held)):
        return ''
    return '%s remapped without a pin and will move at once, outside the caps' % pgs_are(number)


def _pin_one(turn: Turn, pgid: str, early: bool, sent: UpmapEntry = NO_ENTRY) -> Optional[str]:
    """Plan one pin. None: nothing to do; '': planned; text: why it cannot be pinned.

    `early`: only find out which of these it is. `sent`: the entry of an earlier plan that the mons
    may still have in their queue.
    """
    pool = turn.pool(pgid)
    place = turn.seen.placement(pgid)
    if pool is None or place is None or place.up == place.acting:
        return None
    reason = skip_reason(pool, pgid)
    if reason is None and turn.stays(pgid, pool, place):
        reason = INCOMPLETE
    if reason is None and may_be_degraded(place.acting, turn.seen.degraded_osds):
        reason = DEGRADED
    if reason is not None:
        return reason
    present = turn.seen.osdmap.entry(pgid)
    result = plan_pin(pool, place.up, place.acting, present, turn.seen.osdmap.osds,
                      turn.seen.crush, out=turn.out)
    if isinstance(result, Unpinnable):
        return result.reason
    if not result.changed:
        return None
    if early:
        return ''
    old = turn.pin_of(pgid)
    raw = raw_from_up(place.up, present, turn.out)
    before = _before(turn, pool, present, raw) if old is None else old.before
    if result.entry == before:
        turn.forget_pin(pgid)  # the earlier entry suffices
        turn.actions.append(SetEntry(pgid, before, _with_late(present, sent, before)))
        return None
    # A vector hides the raw set, which shows where its release leads.
    raw = None if result.entry.vector is None else raw
    pin = PinRecord(before, result.entry, raw, was=None if old is None else old.was)
    turn.note_pin(pgid, pin if old is None or old.entry != pin.entry else replace(old, raw=raw))
    turn.actions.append(SetEntry(pgid, result.entry, _with_late(present, sent, result.entry)))
    return ''


def _with_late(present: UpmapEntry, sent: UpmapEntry, wanted: UpmapEntry) -> UpmapEntry:
    """The present entry with what would stay beside `wanted` if the mons set `sent` before."""
    return UpmapEntry(present.items or (() if wanted.items else sent.items),
                      present.vector or (None if wanted.vector else sent.vector))


def may_be_degraded(acting: OsdSet, degraded_osds: FrozenSet[int]) -> bool:
    """Whether each OSD that serves the PG has a degraded PG; holes in the set are ignored."""
    return degraded_osds.issuperset(set(acting) - {NO_OSD})


def _before(turn: Turn, pool: Pool, present: UpmapEntry, raw: Optional[OsdSet]) -> UpmapEntry:
    """The entry that a release restores: the part of the present entry that is still valid."""
    change = turn.campaign.change
    before = without(present, change.drained if change is not None else ())
    return before if raw is None else lawful(before, raw, pool, turn.seen.crush, turn.out)


def _note_unpinnable(turn: Turn, unpinnable: Dict[str, str]) -> None:
    fresh = {pgid: why for pgid, why in unpinnable.items()
             if pgid not in turn.campaign.unpinnable}
    for pgid, why in sorted(fresh.items())[:10]:
        turn.event('unpinnable', 'PG %s cannot be pinned' % pgid, why)
    if len(fresh) > 10:
        turn.event('unpinnable', '%s more cannot be pinned' % pgs(len(fresh) - 10))
    if unpinnable != turn.campaign.unpinnable:
        turn.set(unpinnable=unpinnable)
