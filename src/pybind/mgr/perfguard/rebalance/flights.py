# SPDX-License-Identifier: LGPL-2.1-or-later
"""Follows each PG in flight until it has arrived or is pinned back."""
from dataclasses import replace
from typing import AbstractSet, Dict, List, Mapping, Optional, Sequence, Tuple

from ..cluster.types import Signals, pool_of
from ..errors import Code
from ..text import listed, pgs, pgs_are
from ..upmap.pins import DEGRADED, INCOMPLETE, Pin, has_no_target, plan_partial_pin
from .campaign import Campaign
from .change import Led
from .draft import Draft
from .moves import move_between
from .pg_limit import landed, still_uncounted
from .pinning import is_mixture
from .progress import LONGEST_COUNTED_SECONDS, advance
from .stalls import IntervalChange, note_changes
from .types import Flight, Landed, Phase, PinRecord, SetEntry

#: Seconds within which both halves of a release (items and vector) are in the OSDMap.
RELEASE_SETTLE_SECONDS = 3.0
#: Seconds until the OSDMap that shows a release is followed by one with the acting set that came
#: with it: the mons may commit an epoch between the two. They have answered both by then, and the
#: mgr's OSDMap is less than this behind.
PRIMED_SECONDS = 1.0
#: Number of times that a release is sent before it counts as refused if the OSDMap does not show
#: it.
RELEASE_SEND_TIMES = 4


def follow_flights(draft: Draft) -> Draft:
    """Confirm releases in the OSDMap, and repeat lost ones. A PG is no longer in flight once it has
    arrived, which counts as progress, stays where it is, or no longer exists, or once the mons have
    refused its release. Nor is one whose release an mgr that failed has not sent: it is decided
    again whether and when the PG is released."""
    flights: Dict[str, Flight] = {}
    unsent: List[str] = []
    changes: List[IntervalChange] = []
    newly_landed: List[Landed] = []
    # Predicates of single PGs read the state from before the loop.
    begin = draft
    for pgid, flight in draft.campaign.flights.in_flight.items():
        if begin.pool(pgid) is None:
            draft = draft.forget_pins([pgid]).event(
                'release', 'PG %s no longer exists' % pgid, 'the PG or its pool was removed')
            continue
        if _is_refused(begin, pgid, flight):
            draft = _keep(draft, pgid, 'PG %s is not released' % pgid,
                          'the mons did not accept its release, sent %d times' % RELEASE_SEND_TIMES)
            continue
        if _may_be_unsent(begin, pgid, flight):
            if draft.now - max(flight.since, draft.observed.unanswered_at) \
                    <= draft.options.readback_timeout:
                flights[pgid] = flight
            else:
                unsent.append(pgid)
            continue
        draft, flight = _observe(draft, pgid, flight)
        if _arrived(begin, pgid, flight):
            if flight.pin is None and draft.pin_of(pgid) is not None:
                # An OSD was down for a while, and the PG is back where its pin keeps it.
                continue
            draft = _land(draft, pgid, flight)
            changes.append(_arrival(begin, pgid, flight))
            newly_landed.append(landed(flight))
        elif _stays(begin, pgid, flight):
            draft = _end_without_arrival(draft, pgid, flight)
            newly_landed.append(landed(flight))
        else:
            flights[pgid] = flight
    if unsent:
        draft = draft.event('release', '%s still pinned: %s' % (
            pgs_are(len(unsent)), listed(sorted(unsent))),
            'the mgr that was to release them has failed before')
    draft = _note_progress(draft, begin.campaign, flights)
    # The mons may still receive a release that this mgr considers unsent.
    recalled = tuple(sorted({*begin.campaign.flights.recalled, *unsent}))
    return draft.set(
        flights=replace(draft.campaign.flights, recalled=recalled, landed=still_uncounted(
            (*begin.campaign.flights.landed, *newly_landed), draft.observed)),
        stalls=note_changes(begin.campaign.stalls, changes, draft.now, draft.observed.stats_period))


def _land(draft: Draft, pgid: str, flight: Flight) -> Draft:
    """Count a PG in flight that is in place (_arrived) as moved, and forget its pin. Where its
    upmap is not the one from before the campaign, note that for a rollback. If an upmap of others
    keeps it elsewhere than its release led, it counts as kept instead."""
    if _is_pinned_by_others(draft, pgid, flight):
        return _keep(draft, pgid, 'PG %s does not move to where it was released' % pgid,
                     'its upmap was changed outside perfguard: perfguard leaves it alone')
    if flight.pin is not None and flight.entry != flight.pin.rollback_entry:
        # A rollback restores `Led.before`.
        draft = note_ahead(draft, {pgid: Led(flight.pin.rollback_entry, flight.entry)})
    return draft.forget_pins([pgid]).set(progress=draft.campaign.progress.landed(1, flight.bytes))


def note_ahead(draft: Draft, upmaps: Mapping[str, Led]) -> Draft:
    """Note, in `ahead` of the change, PGs that have another upmap than before the change, so that a
    rollback leads them back. A later tranche or the balance requires the other one, or the mons
    have dropped the first."""
    change = draft.campaign.change
    if change is None or change.moves_first:
        return draft  # upmaps of PGs that move first are removed with the change
    # Of several such changes, a rollback undoes all.
    from_first = {pgid: replace(led, before=change.ahead.get(pgid, led).before)
                  for pgid, led in upmaps.items()}
    return draft.set(change=replace(change, ahead={**change.ahead, **from_first}))


def _end_without_arrival(draft: Draft, pgid: str, flight: Flight) -> Draft:
    """Count a PG in flight that stays remapped where it is (_stays) as moved and not pinnable, and
    forget its pin. It may only lack an OSD that is down: it has arrived on the others, and recovers
    when that OSD is back."""
    campaign = draft.campaign
    why = DEGRADED if draft.lost else INCOMPLETE
    draft = draft.forget_pins([pgid] if flight.pin is not None else ())
    # A PG that was never pinned, and has no new OSD, has not moved at all.
    has_moved = flight.pin is not None or bool(flight.targets)
    return draft.event('release', 'PG %s has stopped moving' % pgid, why.reason).set(
        progress=campaign.progress.landed(int(has_moved)),
        pinning=campaign.pinning.with_unpinnable(pgid, why))


def _note_progress(draft: Draft, before: Campaign, flights: Mapping[str, Flight]) -> Draft:
    """Note the flights that are left, and the progress since the last turn. `before`: the campaign
    before the flights of this turn were followed."""
    campaign = draft.campaign
    elapsed_seconds = _counted_seconds(before, draft.now)
    may_arrive = before.flights.in_flight or before.phase is Phase.RELEASING
    # Time without releases also counts for the remaining time; the hours outside the time window do
    # not, since they are known.
    time_counts = may_arrive or (before.phase is Phase.HOLDING
                                 and before.progress.limits.now != Code.WINDOW_CLOSED)
    progress = campaign.progress.timed(elapsed_seconds if may_arrive else 0.0, advance(
        before.progress.arrivals, elapsed_seconds if time_counts else 0.0,
        campaign.progress.bytes_done - before.progress.bytes_done,
        len(before.flights.in_flight)))
    if progress.released > before.progress.released:
        progress = replace(progress, progressed=draft.now)
    copied = draft.now if _has_copied(before, draft.observed.signals) else before.flights.copied
    return draft.set(progress=progress, flights=replace(
        campaign.flights, in_flight=flights, copied=copied,
        misplaced=draft.observed.signals.misplaced_objects))


def _has_copied(before: Campaign, signals: Signals) -> bool:
    """Whether misplaced objects of PGs in flight were copied since the last turn. That there are
    fewer does not show it: clients remove some as well."""
    return bool(before.flights.in_flight) and signals.recovered_objects > 0 \
        and signals.misplaced_objects < before.flights.misplaced


def _counted_seconds(campaign: Campaign, now: float) -> float:
    """Seconds since the last turn, as far as they count for the campaign's speed."""
    if not campaign.progress.turned or campaign.orders.paused:
        return 0.0
    return min(now - campaign.progress.turned, LONGEST_COUNTED_SECONDS)


def _is_refused(draft: Draft, pgid: str, flight: Flight) -> bool:
    """Whether the mons refuse the release of the PG, for example because its target no longer
    exists: it was sent RELEASE_SEND_TIMES times, and the pin is still in the OSDMap."""
    return (flight.confirmed is None and flight.pin is not None
            and flight.sent >= RELEASE_SEND_TIMES
            and draft.observed.osdmap.entry(pgid) == flight.pin.entry
            and draft.now - flight.since > draft.options.readback_timeout)


def _may_be_unsent(draft: Draft, pgid: str, flight: Flight) -> bool:
    """Whether only an mgr that failed may have sent the release of the PG, and the OSDMap still
    shows the pin. The state of the cluster for which that mgr decided it may be long past. Once the
    operator has ended the campaign without pins, the release is repeated."""
    campaign = draft.campaign
    return (flight.sent == 0 and flight.confirmed is None and flight.pin is not None
            and draft.pin_of(pgid) is not None
            and draft.observed.osdmap.entry(pgid) == flight.pin.entry
            and (campaign.phase is not Phase.FINISHING or campaign.orders.keep))


def _keep(draft: Draft, pgid: str, subject: str, why: str) -> Draft:
    """Count the PG as one that stays where it is, with its present upmap as an ordinary one, and
    forget its pin. `subject`, `why`: of the event."""
    return draft.forget_pins([pgid]).set(
        progress=draft.campaign.progress.keeping(1)).event('keep', subject, why)


def _arrival(draft: Draft, pgid: str, flight: Flight) -> IntervalChange:
    """The interval change of a PG that arrives now: both its earlier and its new primary peer."""
    place = draft.observed.placement(pgid)
    primaries = {flight.primary, *(place.acting[:1] if place is not None else ())}
    return IntervalChange(draft.now, pool_of(pgid), tuple(sorted(primaries)), pgid)


def _observe(draft: Draft, pgid: str, flight: Flight) -> Tuple[Draft, Flight]:
    """The flight with what the OSDMap shows of the released PG: whether the release is confirmed,
    whether the PG was remapped since, and what it moves if that was not known. The draft sends the
    release again if it was lost."""
    if flight.confirmed is None:
        draft, flight = _confirm(draft, pgid, flight)
    if flight.confirmed is not None and pgid in draft.observed.osdmap.pg_temp:
        # An acting set that came with the release shows before the PG has peered.
        flight = replace(flight, seen_remapped=flight.seen_remapped or not flight.primed
                         or _has_led(draft, pgid, flight.primed))
        if not flight.targets or not draft.out.isdisjoint(flight.targets):
            flight = _with_known_targets(draft, pgid, flight)
    return draft, flight


def _has_led(draft: Draft, pgid: str, epoch: int) -> bool:
    """Whether up_thru shows that the PG's primary has been about to serve PGs in an interval after
    this epoch: this PG, or others."""
    place, osds = draft.observed.placement(pgid), draft.observed.osdmap.osds
    return place is not None and place.primary in osds and osds[place.primary].up_thru > epoch


def _with_known_targets(draft: Draft, pgid: str, flight: Flight) -> Flight:
    """The flight with what it moves, for a PG whose targets were not known before its release, or
    one of whose targets is out, so that CRUSH has chosen others: they count for the limits from now
    on."""
    pool, place = draft.pool(pgid), draft.observed.placement(pgid)
    if pool is None or place is None:
        return flight
    move = move_between(pgid, pool, place.acting, place.up,
                        draft.observed.signals.pool_bytes.get(pool.id, 0))
    return replace(flight, sources=move.sources, targets=move.targets, bytes=move.bytes,
                   readers=move.readers)


def _confirm(draft: Draft, pgid: str, flight: Flight) -> Tuple[Draft, Flight]:
    """The flight is confirmed if the OSDMap shows its release, an upmap of others, or the only part
    of the release that the mons keep; one without a pin, which had no release, at once. Otherwise
    the release is sent again after a while, at last with the PG's entry from before the campaign if
    the mons do not keep the goal."""
    present = draft.observed.osdmap.entry(pgid)
    if flight.pin is None or present == flight.entry:
        return draft, replace(flight, confirmed=draft.now)
    if not is_mixture(present, flight.entry, flight.pin.entry):
        return draft.event('release', 'the upmap of PG %s was changed outside perfguard' % pgid,
                           'perfguard leaves it alone'), replace(flight, confirmed=draft.now)
    still_pinned = present == flight.pin.entry
    patience = draft.options.readback_timeout if still_pinned else RELEASE_SETTLE_SECONDS
    if draft.now - flight.since <= patience:
        return draft, flight
    # Sent twice in vain: the mons do not keep the goal.
    if flight.sent > 1 and flight.entry != flight.pin.before:
        return _fall_back(draft, pgid, flight, flight.pin)
    if not still_pinned and flight.sent > 1:
        # Sent twice, and the entry still differs: the mons keep only this part of it.
        return draft, replace(flight, confirmed=draft.now)
    draft = draft.send(SetEntry(pgid, flight.entry, present)).event(
        'release', 'PG %s is released again' % pgid, 'the OSDMap does not show the release')
    return draft, replace(flight, since=draft.now, sent=flight.sent + 1, primed=0)


def _fall_back(draft: Draft, pgid: str, flight: Flight, pin: PinRecord) -> Tuple[Draft, Flight]:
    """The mons do not keep the goal of the PG: release it to its earlier entry instead."""
    draft = draft.send(SetEntry(pgid, pin.before, draft.observed.osdmap.entry(pgid))).event(
        'release', 'PG %s is released to its upmap from before the campaign' % pgid,
        'the mons do not keep the upmap that the balance requires')
    return draft, replace(flight, entry=pin.before, since=draft.now, primed=0,
                          pin=replace(pin, goal=None))


def _arrived(draft: Draft, pgid: str, flight: Flight) -> bool:
    """Whether the PG is served by its new OSDs.

    Right after the release the OSDMap shows up = acting as well, until the primary has peered and
    asked for its old acting set. So the PG counts as arrived if it was remapped and no longer is,
    or once it must have peered. One with little data arrives between two turns.
    """
    if flight.confirmed is None or pgid in draft.observed.osdmap.pg_temp:
        return False
    place = draft.observed.placement(pgid)
    if place is None or place.up != place.acting:
        return False
    return (flight.seen_remapped or _was_remapped(draft, pgid, flight)
            or draft.has_peered(flight.confirmed))


def _was_remapped(draft: Draft, pgid: str, flight: Flight) -> bool:
    """Whether the PG was remapped since its release, and no OSDMap that was read showed it.

    Its pg_temp came with the release, unless the mons have not answered since or the mgr has
    failed. up_thru of its primary shows that it has peered; other PGs raise that as well.
    """
    return (bool(flight.primed) and flight.confirmed is not None
            and draft.observed.unanswered_at <= flight.since
            and draft.now - flight.confirmed >= PRIMED_SECONDS
            and _has_led(draft, pgid, flight.primed))


def _is_pinned_by_others(draft: Draft, pgid: str, flight: Flight) -> bool:
    """Whether a PG that is in place has none of the OSDs to which it was released, because of an
    upmap of others: tools such as upmap-remapped.py pin all PGs that move."""
    place = draft.observed.placement(pgid)
    return (place is not None and bool(flight.targets) and set(flight.targets).isdisjoint(place.up)
            and not is_mixture(draft.observed.osdmap.entry(pgid), flight.entry))


def _stays(draft: Draft, pgid: str, flight: Flight) -> bool:
    """Whether the PG stays remapped where it is, because CRUSH finds too few OSDs for it and those
    that it finds have the data. A target that is down may return."""
    osds, pool, place = draft.observed.osdmap.osds, draft.pool(pgid), draft.observed.placement(pgid)
    return (flight.confirmed is not None and pgid in draft.observed.osdmap.pg_temp
            and pool is not None and place is not None
            and has_no_target(pool, place.up, place.acting)
            and not any(osd in osds and osds[osd].is_down_but_in for osd in flight.targets))


def follow_late_releases(draft: Draft) -> Draft:
    """Abort once more if releases from before the abort take effect: a replaced mgr repeats its
    unanswered commands as soon as it connects to a mon (MonClient), maybe hours later."""
    late: Dict[str, Flight] = {}
    for pgid in draft.campaign.flights.recalled if draft.campaign.phase is Phase.ABORTED else ():
        pin, entry = draft.pin_of(pgid), draft.observed.osdmap.entry(pgid)
        if pin is not None and entry != pin.entry and entry in (pin.before, pin.leads_to):
            late[pgid] = Flight(draft.now, entry, confirmed=draft.now, pin=pin)
    if not late:
        return draft
    # Once: operators may remove a pin themselves.
    remaining = tuple(pgid for pgid in draft.campaign.flights.recalled if pgid not in late)
    flights = replace(draft.campaign.flights.joined_by(late), recalled=tuple(remaining))
    return draft.set(flights=flights, held=False, ended=None).event(
        'release', '%s released after the abort: %s' % (pgs_are(len(late)), listed(sorted(late))),
        'commands from before the abort took effect, for example those of an mgr that was replaced'
    ).enter(Phase.ABORTING, 'pinning back what was released late')


def pin_back(draft: Draft, only: Optional[AbstractSet[str]] = None) -> Draft:
    """Pin PGs in flight back to where their data is. `only`: these PGs; None: all.

    PGs that may have arrived stay in flight. All others leave the flights: those that cannot be
    pinned back, those with an upmap of others, and those that were never pinned, too.

    To be called once norebalance is in force: the OSDMap is some seconds old, and a PG that has
    arrived meanwhile would move again.
    """
    campaign = draft.campaign
    to_pin_back = {pgid: flight for pgid, flight in campaign.flights.in_flight.items()
                   if (only is None or pgid in only) and not _may_have_arrived(draft, pgid, flight)}
    if not to_pin_back:
        return draft
    pins: Dict[str, PinRecord] = {}
    recalled = {pgid for pgid in campaign.flights.recalled if draft.pin_of(pgid) is not None}
    actions: List[SetEntry] = []
    forgotten: List[str] = []
    unpinnable: List[str] = []
    foreign: List[str] = []
    for pgid, flight in to_pin_back.items():
        if flight.pin is None:
            continue  # it was never pinned: pin_remapped decides on it
        pin = _way_back(draft, pgid, flight.pin)
        if _is_led_by_others(draft, pgid, flight):
            # Without its record the PG is like any remapped one: pin_remapped notes the upmap of
            # others as the one that a release restores.
            foreign.append(pgid)
        elif pin is None:
            unpinnable.append(pgid)
        elif pin.entry == flight.entry:
            forgotten.append(pgid)  # it has just arrived: what it was released to serves it
        else:
            pins[pgid] = pin
            # A release that the OSDMap does not show yet may be in it a moment later.
            unseen = flight.confirmed is None
            if unseen or flight.sent > 1:
                recalled.add(pgid)
            present = flight.entry if unseen else draft.observed.osdmap.entry(pgid)
            actions.append(SetEntry(pgid, pin.entry, present))
    draft = _with_events(draft.note_pins(pins).forget_pins([*forgotten, *unpinnable, *foreign])
                         .send(*actions), pins, foreign, unpinnable)
    remaining = {pgid: flight for pgid, flight in campaign.flights.in_flight.items()
                 if pgid not in to_pin_back}
    return draft.set(flights=replace(
        campaign.flights, in_flight=remaining, recalled=tuple(sorted(recalled))),
                     pinning=campaign.pinning.sending(pins, draft.now),
                     progress=campaign.progress.landed(len(forgotten)))


def _with_events(draft: Draft, pins: Mapping[str, PinRecord], foreign: Sequence[str],
                 unpinnable: Sequence[str]) -> Draft:
    """The draft with events on PGs that are pinned back (`pins`), get the upmap of others as their
    earlier one (`foreign`), or cannot be pinned back."""
    # Pins that are only sent again were reported before.
    first_sent = pins.keys() - draft.campaign.pinning.sent.keys()
    if first_sent:
        draft = draft.event('pin', 'pinning %s back' % pgs(len(first_sent)))
    if foreign:
        draft = draft.event(
            'pin', 'pinning %s with the present upmap as the one from before the campaign: %s'
            % (pgs(len(foreign)), listed(sorted(foreign))),
            'it was changed outside perfguard while the data moved')
    if unpinnable:
        draft = draft.event('unpinnable', '%s still moving: %s' % (
            pgs_are(len(unpinnable)), ', '.join(sorted(unpinnable))), 'cannot be pinned back')
    return draft


def _may_have_arrived(draft: Draft, pgid: str, flight: Flight) -> bool:
    """Whether the PG is released and not remapped: it has arrived, or has not peered yet. It stays
    in flight until the OSDMap shows which is the case."""
    return (flight.pin is not None and flight.confirmed is not None
            and pgid not in draft.observed.osdmap.pg_temp)


def _is_led_by_others(draft: Draft, pgid: str, flight: Flight) -> bool:
    """Whether others have given a remapped PG another upmap since its release."""
    return (flight.pin is not None and pgid in draft.observed.osdmap.pg_temp
            and not is_mixture(draft.observed.osdmap.entry(pgid), flight.entry, flight.pin.entry))


def _way_back(draft: Draft, pgid: str, pin: PinRecord) -> Optional[PinRecord]:
    """The pin that keeps a PG in flight where its data is; None if it cannot be pinned. It does not
    keep shards that are lost, or that leave an OSD which is evacuated."""
    pool, place = draft.pool(pgid), draft.observed.placement(pgid)
    if pool is None or place is None:
        return None
    if pgid not in draft.observed.osdmap.pg_temp:
        return pin  # the OSDMap does not show the release: its data is where the old pin says
    present = draft.observed.osdmap.entry(pgid)
    result = plan_partial_pin(pool, place.up, place.acting, present, draft.observed.osdmap.osds,
                              draft.observed.crush, draft.out,
                              draft.observed.evacuation.get(pgid, ()))
    if not isinstance(result, Pin):
        return None
    return replace(pin, entry=result.entry)
