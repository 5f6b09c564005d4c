# SPDX-License-Identifier: LGPL-2.1-or-later
"""Follows each PG in flight until it has arrived or is pinned back."""
from dataclasses import replace
from typing import AbstractSet, Dict, List, Mapping, Optional

from ..cluster.types import pool_of
from ..errors import Code
from ..tables import listed, pgs, pgs_are
from ..upmap.pins import INCOMPLETE, Pin, plan_pin, stays
from .moves import move_between
from .pinning import is_mixture
from .progress import LONGEST_TURN_SECONDS, advance
from .stalls import IntervalChange, note
from .turn import Turn
from .types import Flight, Phase, PinRecord, Sent, SetEntry

#: Seconds within which both halves of a release (items and vector) are in the OSDMap.
SETTLE_SECONDS = 3.0
#: Number of times that a release is sent before it counts as refused if the OSDMap does not show
#: it.
SEND_TIMES = 4


def follow_flights(turn: Turn) -> None:
    """Confirm releases in the OSDMap, repeat lost ones, count those that have arrived."""
    flights: Dict[str, Flight] = {}
    staying: Dict[str, str] = {}
    changes: List[IntervalChange] = []
    released, bytes_done = turn.campaign.released, turn.campaign.bytes_done
    for pgid, flight in turn.campaign.in_flight.items():
        if turn.pool(pgid) is None:
            turn.forget_pin(pgid)
            turn.event('release', 'PG %s no longer exists' % pgid, 'the PG or its pool was removed')
            continue
        if _is_refused(turn, pgid, flight):
            _keep(turn, pgid, 'PG %s is not released' % pgid,
                  'the mons did not accept its release, sent %d times' % SEND_TIMES)
            continue
        flight = _observe(turn, pgid, flight)
        if _arrived(turn, pgid, flight):
            if flight.pin is None and turn.pin_of(pgid) is not None:
                # An OSD was down for a while, and the PG is back where its pin keeps it.
                continue
            if _is_pinned_by_others(turn, pgid, flight):
                _keep(turn, pgid, 'PG %s does not move to where it was released' % pgid,
                      'its upmap was changed outside perfguard: perfguard leaves it alone')
            else:
                released += 1
                bytes_done += flight.bytes
                turn.forget_pin(pgid)
            changes.append(_arrival(turn, pgid, flight))
        elif _stays(turn, pgid, flight):
            if flight.pin is not None:
                turn.forget_pin(pgid)
            released += bool(flight.pin or flight.targets)
            staying[pgid] = INCOMPLETE
            turn.event('release', 'PG %s has stopped moving' % pgid, INCOMPLETE)
        else:
            flights[pgid] = flight
    if staying:
        turn.set(unpinnable={**turn.campaign.unpinnable, **staying})
    _count(turn, flights, released, bytes_done)
    turn.set(stalls=note(turn.campaign.stalls, changes, turn.now, turn.seen.stats_period))


def _count(turn: Turn, flights: Mapping[str, Flight], released: int, bytes_done: int) -> None:
    """Note the flights that are left, and the progress since the last turn."""
    campaign = turn.campaign
    passed = _passed(turn)
    moving = campaign.in_flight or campaign.phase is Phase.RELEASING
    # Time without releases also counts for the remaining time; the hours outside the time window do
    # not, since they are known.
    counts = moving or (campaign.phase is Phase.HOLDING
                        and campaign.limits.now != Code.WINDOW_CLOSED)
    if released > campaign.released:
        turn.set(progressed=turn.now)
    # Clients remove misplaced objects as well.
    signals = turn.seen.signals
    if campaign.in_flight and 0 < signals.recovered_objects \
            and signals.misplaced_objects < campaign.misplaced:
        turn.set(copied=turn.now)
    turn.set(misplaced=signals.misplaced_objects)
    turn.set(in_flight=flights, released=released, bytes_done=bytes_done,
             moving_seconds=campaign.moving_seconds + (passed if moving else 0.0),
             arrivals=advance(campaign.arrivals, passed if counts else 0.0,
                              bytes_done - campaign.bytes_done, len(campaign.in_flight)))


def _passed(turn: Turn) -> float:
    """Seconds since the last turn, as far as they count for the campaign's speed."""
    campaign = turn.campaign
    if not campaign.turned or campaign.paused:
        return 0.0
    return min(max(0.0, turn.now - campaign.turned), LONGEST_TURN_SECONDS)


def _is_refused(turn: Turn, pgid: str, flight: Flight) -> bool:
    """The mon does not accept the release, for example because its target no longer exists."""
    return (flight.confirmed is None and flight.pin is not None and flight.sent >= SEND_TIMES
            and turn.seen.osdmap.entry(pgid) == flight.pin.entry
            and turn.now - flight.since > turn.options.readback_timeout)


def _keep(turn: Turn, pgid: str, what: str, why: str) -> None:
    """The PG stays where it is, with its present upmap as an ordinary one."""
    turn.forget_pin(pgid)
    turn.set(kept=turn.campaign.kept + 1)
    turn.event('keep', what, why)


def _arrival(turn: Turn, pgid: str, flight: Flight) -> IntervalChange:
    place = turn.seen.placement(pgid)
    primaries = {flight.primary, *(place.acting[:1] if place is not None else ())}
    return IntervalChange(turn.now, pool_of(pgid), tuple(sorted(primaries)), pgid)


def _observe(turn: Turn, pgid: str, flight: Flight) -> Flight:
    osdmap = turn.seen.osdmap
    if flight.confirmed is None:
        flight = _confirm(turn, pgid, flight)
    if flight.confirmed is not None and pgid in osdmap.pg_temp:
        flight = replace(flight, seen_remapped=True)
        if not flight.targets:
            flight = _charged(turn, pgid, flight)
    return flight


def _charged(turn: Turn, pgid: str, flight: Flight) -> Flight:
    """The flight with what it moves, for a PG whose targets were not known before its release."""
    pool, place = turn.pool(pgid), turn.seen.placement(pgid)
    if pool is None or place is None:
        return flight
    move = move_between(pgid, pool, place.acting, place.up,
                        turn.seen.signals.pool_bytes.get(pool.id, 0))
    return replace(flight, sources=move.sources, targets=move.targets, bytes=move.bytes,
                   readers=move.readers)


def _confirm(turn: Turn, pgid: str, flight: Flight) -> Flight:
    """Look for the release in the OSDMap, and send it again where it is not there whole."""
    present = turn.seen.osdmap.entry(pgid)
    if flight.pin is None or present == flight.entry:
        return replace(flight, confirmed=turn.now)
    if not is_mixture(present, flight.entry, flight.pin.entry):
        turn.event('release', 'the upmap of PG %s was changed outside perfguard' % pgid,
                   'perfguard leaves it alone')
        return replace(flight, confirmed=turn.now)
    pinned = present == flight.pin.entry
    patience = turn.options.readback_timeout if pinned else SETTLE_SECONDS
    if turn.now - flight.since <= patience:
        return flight
    if flight.sent > 1 and flight.entry != flight.pin.before:
        return _fall_back(turn, pgid, flight, flight.pin)
    if not pinned and flight.sent > 1:
        # Sent twice, and the entry still differs: the mons keep only this part of it.
        return replace(flight, confirmed=turn.now)
    turn.actions.append(SetEntry(pgid, flight.entry, present))
    turn.event('release', 'PG %s is released again' % pgid,
               'the OSDMap does not show the release')
    return replace(flight, since=turn.now, sent=flight.sent + 1)


def _fall_back(turn: Turn, pgid: str, flight: Flight, pin: PinRecord) -> Flight:
    """The mons do not keep the goal of the PG: release it to its earlier entry instead."""
    turn.actions.append(SetEntry(pgid, pin.before, turn.seen.osdmap.entry(pgid)))
    turn.event('release', 'PG %s is released to its upmap from before the campaign' % pgid,
               'the mons do not keep the upmap that the balance requires')
    return replace(flight, entry=pin.before, since=turn.now, pin=replace(pin, goal=None))


def _arrived(turn: Turn, pgid: str, flight: Flight) -> bool:
    """Whether the PG is served from its target.

    Right after the release the OSDMap shows up = acting as well, until the primary has peered and
    asked for its old acting set. So the PG counts as arrived if it was remapped and no longer is,
    or once it must have peered.
    """
    if flight.confirmed is None or pgid in turn.seen.osdmap.pg_temp:
        return False
    place = turn.seen.placement(pgid)
    if place is None or place.up != place.acting:
        return False
    return flight.seen_remapped or turn.has_peered(flight.confirmed)


def _is_pinned_by_others(turn: Turn, pgid: str, flight: Flight) -> bool:
    """Whether a PG in place has none of its new OSDs because of an upmap of others: tools such as
    upmap-remapped.py pin all PGs that move."""
    place = turn.seen.placement(pgid)
    return (place is not None and bool(flight.targets) and set(flight.targets).isdisjoint(place.up)
            and not is_mixture(turn.seen.osdmap.entry(pgid), flight.entry))


def _stays(turn: Turn, pgid: str, flight: Flight) -> bool:
    """Whether the PG stays remapped where it is, because CRUSH finds too few OSDs for it and those
    that it finds have the data. A target that is down may return."""
    osds, pool, place = turn.seen.osdmap.osds, turn.pool(pgid), turn.seen.placement(pgid)
    return (flight.confirmed is not None and pgid in turn.seen.osdmap.pg_temp
            and pool is not None and place is not None and stays(pool, place.up, place.acting)
            and not any(osd in osds and osds[osd].is_down_but_in for osd in flight.targets))


def pin_back(turn: Turn, only: Optional[AbstractSet[str]] = None) -> None:
    """Pin PGs in flight (`only` these) back to where their data is.

    To be called once norebalance is in force: the OSDMap is some seconds old, and a PG that has
    arrived meanwhile would move again.
    """
    campaign = turn.campaign
    back = {pgid: flight for pgid, flight in campaign.in_flight.items()
            if (only is None or pgid in only) and not _may_have_arrived(turn, pgid, flight)}
    if not back:
        return
    pinning = dict(campaign.pinning)
    released = campaign.released
    stuck: List[str] = []
    foreign: List[str] = []
    for pgid, flight in back.items():
        if flight.pin is None:
            continue
        if _is_led_by_others(turn, pgid, flight):
            # Without its record the PG is like any remapped one: pin_remapped notes the upmap of
            # others as the one that a release restores.
            foreign.append(pgid)
            turn.forget_pin(pgid)
            continue
        pin = _way_back(turn, pgid, flight.pin)
        if pin is None:
            stuck.append(pgid)
            turn.forget_pin(pgid)
        elif pin.entry == flight.entry:
            released += 1  # it has just arrived: what it was released to serves it
            turn.forget_pin(pgid)
        else:
            turn.note_pin(pgid, pin)
            # A release that the OSDMap does not show yet may be in it a moment later.
            unseen = flight.confirmed is None
            present = flight.entry if unseen else turn.seen.osdmap.entry(pgid)
            turn.actions.append(SetEntry(pgid, pin.entry, present))
            pinning[pgid] = Sent(turn.now)
    if len(pinning) > len(campaign.pinning):
        turn.event('pin', 'pinning %s back' % pgs(len(pinning) - len(campaign.pinning)))
    if foreign:
        turn.event('pin', 'pinning %s with the present upmap as the one from before the campaign: '
                   '%s' % (pgs(len(foreign)), listed(sorted(foreign))),
                   'it was changed outside perfguard while the data moved')
    if stuck:
        turn.event('unpinnable', '%s still moving: %s' % (
            pgs_are(len(stuck)), ', '.join(sorted(stuck))), 'cannot be pinned back')
    turn.set(in_flight={pgid: flight for pgid, flight in campaign.in_flight.items()
                        if pgid not in back},
             pinning=pinning, pins_sent=turn.now, released=released)


def _may_have_arrived(turn: Turn, pgid: str, flight: Flight) -> bool:
    """The PG is released and not remapped: it has arrived, or has not peered yet. It is followed
    until the OSDMap shows which is the case."""
    return (flight.pin is not None and flight.confirmed is not None
            and pgid not in turn.seen.osdmap.pg_temp)


def _is_led_by_others(turn: Turn, pgid: str, flight: Flight) -> bool:
    """Whether others have given a remapped PG another upmap since its release."""
    return (flight.pin is not None and pgid in turn.seen.osdmap.pg_temp
            and not is_mixture(turn.seen.osdmap.entry(pgid), flight.entry, flight.pin.entry))


def _way_back(turn: Turn, pgid: str, pin: PinRecord) -> Optional[PinRecord]:
    """The pin that keeps a PG in flight where its data is; None if it cannot be pinned."""
    pool, place = turn.pool(pgid), turn.seen.placement(pgid)
    if pool is None or place is None:
        return None
    if pgid not in turn.seen.osdmap.pg_temp:
        return pin  # the OSDMap does not show the release: its data is where the old pin says
    present = turn.seen.osdmap.entry(pgid)
    result = plan_pin(pool, place.up, place.acting, present, turn.seen.osdmap.osds,
                      turn.seen.crush, out=turn.out)
    if not isinstance(result, Pin):
        return None
    return replace(pin, entry=result.entry)
