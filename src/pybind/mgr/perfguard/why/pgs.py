# SPDX-License-Identifier: LGPL-2.1-or-later
"""Why a PG does not move. Pure: from the state of the loop and the answers of its OSDs."""
from dataclasses import dataclass, field
from typing import AbstractSet, Dict, FrozenSet, Iterable, List, Mapping, Optional, Tuple

from ..cluster.types import MCLOCK, NO_OSD, QUEUE, Osd, Placement
from ..errors import Code, Reason
from ..rebalance.campaign import NO_CAMPAIGN, Campaign
from ..rebalance.holds import NOREBALANCE
from ..rebalance.moves import Move, Obstacle
from ..rebalance.types import Flight, Phase, PinRecord
from ..text import listed, osds_text
from .causes import Cause, Gate, passed_on

#: Flags that stop backfill; norebalance only that of PGs that are not degraded.
STOPPING_FLAGS = ('nobackfill', NOREBALANCE)
#: Reasons of a turn that affect all remaining PGs.
_REASONS_OF_ALL_PGS = frozenset({
    Code.PEERING, Code.BATCH, Code.SETTINGS, Code.NO_GOALS, Code.CONFIRMING, Code.NOT_STORED,
    Code.OUTLOOK, Code.BACKFILL_TOOFULL})


@dataclass(frozen=True)
class Queue:
    """The local or the remote backfill reservations of one OSD."""
    limit: int
    #: PGs that hold a reservation, and those that wait for one.
    granted: Tuple[str, ...] = ()
    waiting: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Reservations:
    """The backfill reservations of one OSD: local ones for PGs that it leads, remote ones for PGs
    of which it is a target."""
    local: Queue
    remote: Queue


@dataclass(frozen=True)
class PgAnswers:
    """The answers of the OSDs of one PG that arrived in time."""
    #: Words of the PG's state; empty: the primary has not answered.
    state: FrozenSet[str] = frozenset()
    #: By OSD, of the primary and the targets.
    reservations: Mapping[int, Reservations] = field(default_factory=dict)
    #: Options of the primary.
    options: Mapping[str, str] = field(default_factory=dict)
    #: OSDs that have not answered.
    silent: Tuple[int, ...] = ()


@dataclass(frozen=True)
class PgCase:
    """What is known of a PG that may not move."""
    pgid: str
    place: Placement
    #: Its acting set differs from its up set.
    remapped: bool
    osds: Mapping[int, Osd]
    #: Of the OSDMap, and those of them that perfguard has set.
    flags: FrozenSet[str] = frozenset()
    own_flags: FrozenSet[str] = frozenset()
    campaign: Campaign = NO_CAMPAIGN
    #: The reasons of the campaign's last turn.
    reasons: Tuple[Reason, ...] = ()
    #: Its pin; None: the campaign has not pinned it.
    pin: Optional[PinRecord] = None
    #: The move that its release would make; None: it has no pin in force, or the move is not
    #: computed yet.
    move: Optional[Move] = None
    gate: Gate = Gate()
    #: OSDs that it leaves because they are to be emptied.
    leaves: Tuple[int, ...] = ()
    answers: PgAnswers = PgAnswers()

    @property
    def flight(self) -> Optional[Flight]:
        return self.campaign.flights.in_flight.get(self.pgid)

    @property
    def primary(self) -> int:
        return self.place.primary

    @property
    def targets(self) -> Tuple[int, ...]:
        """The OSDs that will receive it."""
        return tuple(osd for osd in self.place.up if osd not in self.place.acting and osd != NO_OSD)


def causes(case: PgCase) -> List[Cause]:
    """Why the PG does not move, the most decisive cause first; never empty."""
    campaign = case.campaign
    if case.flight is not None or case.remapped:
        return _on_its_way(case)
    if campaign.open and case.pin is not None:
        return _held_back(case, campaign, case.pin) + _condition(case)
    condition = _condition(case)
    if not condition and case.answers.silent and not case.answers.state:
        # The OSDMap alone does not show that nothing is wrong.
        return [_without_known_cause(case)]
    return condition or [Cause(
        Code.IN_PLACE, 'the PG is where CRUSH and its upmaps place it: there is nothing to move',
        {'up': list(case.place.up)})]


# ---- pinned, and not released yet

def _held_back(case: PgCase, campaign: Campaign, pin: PinRecord) -> List[Cause]:
    """Why the campaign has not released a PG that it has pinned (`pin`)."""
    evidence = {'phase': campaign.phase.value, 'campaign': campaign.id}
    if case.pgid in campaign.pinning.sent:
        return [Cause(Code.PINS_SENT, 'its pin is not in the OSDMap yet', evidence)]
    if pin.stays:
        return [Cause(Code.KEPT, 'an ordinary upmap keeps it where it is, because the balance '
                      'requires that', {**evidence, 'upmap': _entry(pin)})]
    if campaign.phase is not Phase.RELEASING:  # no PG of it is released now
        return [passed_on(reason, **evidence) for reason in case.reasons] or [Cause(
            Code.PINNED, 'it is pinned, and campaign %d is %s' % (campaign.id,
                                                                  campaign.phase.value), evidence)]
    return _queued(case, campaign)


def _queued(case: PgCase, campaign: Campaign) -> List[Cause]:
    """Why a pinned PG is not released yet while the campaign releases others; never empty."""
    gate = case.gate
    causes = [passed_on(stop) for stop in gate.stops]
    if gate.degraded:
        causes.append(Cause(Code.DEGRADED, 'it may be degraded, and is released after recovery'))
    for code, text, osds in ((Code.TARGET_DOWN, 'down', gate.down),
                             (Code.TARGET_FULL, 'too full', gate.full)):
        if osds:
            causes.append(Cause(code, 'its target is %s: %s' % (text, osds_text(osds)),
                                {'osds': sorted(osds)}))
    if gate.pace is not None:
        causes.append(passed_on(gate.pace, in_flight=len(campaign.flights.in_flight)))
    causes += [_capped(obstacle) for obstacle in gate.obstacles]
    if not gate.affordable:
        causes.append(Cause(Code.STALL_RATIO, 'the pool waits a few seconds between releases '
                            '(stall_ratio)', {'option': 'stall_ratio'}))
    if case.move is not None and not case.move.targets_known and campaign.flights.in_flight:
        causes.append(Cause(Code.GOES_ALONE, 'its target is known only after the release, so it '
                            'is released alone', {'in_flight': len(campaign.flights.in_flight)}))
    causes += [passed_on(reason) for reason in case.reasons if reason.code in _REASONS_OF_ALL_PGS]
    return causes or [Cause(Code.NEXT, 'it can be released: PGs whose OSDs have less load '
                            'are released first', {'in_flight': len(campaign.flights.in_flight)})]


def _capped(obstacle: Obstacle) -> Cause:
    place = ' of ' + obstacle.place if obstacle.place else ''
    return Cause(obstacle.code, '%s%s is at its limit: %d of %d' % (
        obstacle.option, place, obstacle.used, obstacle.limit), {
            'option': obstacle.option, 'where': obstacle.place, 'used': obstacle.used,
            'limit': obstacle.limit})


def _entry(pin: PinRecord) -> Dict[str, object]:
    return {'items': [list(pair) for pair in pin.entry.items],
            'vector': None if pin.entry.vector is None else list(pin.entry.vector)}


# ---- released, or remapped and not pinned

def _on_its_way(case: PgCase) -> List[Cause]:
    """Why a PG that is released or remapped has not arrived yet; never empty."""
    flight = case.flight
    if flight is not None and flight.confirmed is None:
        return [Cause(Code.RELEASE_SENT, 'its release was sent and is not in the OSDMap yet',
                      {'sent': flight.sent})]
    # Causes that stop or slow the backfill; those of the campaign come last.
    return [*_flags(case), *_of_backfill(case), *_condition(case), *_unpinned(case)] or [
        _without_known_cause(case)]


def _flags(case: PgCase) -> List[Cause]:
    """The flags that stop the backfill of a PG; for one that perfguard has set, the reasons of the
    campaign's last turn. [] if none stops it: norebalance does not stop that of a degraded PG."""
    causes = []
    for flag in STOPPING_FLAGS:
        if flag == NOREBALANCE and 'degraded' in case.answers.state:
            continue
        if flag in case.flags and flag in case.own_flags:
            causes += [passed_on(reason, flag=flag) for reason in case.reasons] or [Cause(
                Code.OWN_FLAG, 'perfguard has set %s' % flag, {'flag': flag})]
        elif flag in case.flags:
            causes.append(Cause(Code.FOREIGN_FLAG, '%s is set, but not by perfguard: "ceph osd '
                                'unset %s"' % (flag, flag), {'flag': flag}))
    return causes


def _of_backfill(case: PgCase) -> List[Cause]:
    """What the backfill of a PG waits for, or that it is moving, by its state; [] without one of
    the states of backfill."""
    state = case.answers.state
    if 'backfill_toofull' in state:
        return [Cause(Code.BACKFILL_TOOFULL, 'too full for backfill: %s' % (
            osds_text(_full(case)) or 'a target'), {
                'targets': list(case.targets), 'full': sorted(_full(case))})]
    if 'backfill_wait' in state:
        return _reservation(case)
    if 'backfilling' in state:
        return [*_slowed(case), Cause(Code.BACKFILLING, 'it is moving', {
            'targets': list(case.targets)})]
    return []


def _full(case: PgCase) -> AbstractSet[int]:
    return {osd for osd in case.targets if osd in case.osds and case.osds[osd].fullness}


def _reservation(case: PgCase) -> List[Cause]:
    """The OSD whose backfill reservation a PG in backfill_wait waits for: the local one of the
    primary, or else remote ones of its targets; never empty."""
    reservations = case.answers.reservations
    if case.primary in reservations and case.pgid in reservations[case.primary].local.waiting:
        return [_waits(Code.LOCAL_RESERVATION, 'local', case.primary,
                       reservations[case.primary].local)]
    causes = [_waits(Code.REMOTE_RESERVATION, 'remote', osd, reservations[osd].remote)
              for osd in case.targets if osd in reservations
              and case.pgid in reservations[osd].remote.waiting]
    return causes or [Cause(Code.BACKFILL_WAIT, 'it waits for a backfill reservation; the OSD is '
                            'not known', {'primary': case.primary, 'targets': list(case.targets),
                                          'silent': list(case.answers.silent)})]


def _waits(code: str, kind: str, osd: int, queue: Queue) -> Cause:
    return Cause(code, 'it waits for the %s backfill reservation of osd.%d, which allows %d '
                 '(osd_max_backfills): %s' % (kind, osd, queue.limit, _granted(queue.granted)), {
                     'osd': osd, 'limit': queue.limit, 'granted': list(queue.granted),
                     'waiting': len(queue.waiting)})


def _granted(pgids: Iterable[str]) -> str:
    names = listed(list(pgids))
    return 'granted to PG ' + names if names else 'none is granted'


def _slowed(case: PgCase) -> List[Cause]:
    """The scheduler options of the primary, if they slow down its backfills; [] otherwise, or if it
    has not answered."""
    options = case.answers.options
    if options.get(QUEUE) == MCLOCK \
            and options.get('osd_mclock_profile') == 'high_client_ops':
        return [Cause(Code.MCLOCK, 'osd_mclock_profile of osd.%d is high_client_ops, which leaves '
                      'little to backfill' % case.primary, {'osd': case.primary, **options})]
    return []


def _condition(case: PgCase) -> List[Cause]:
    """Causes in the state of the PG itself: inactive, peering, degraded, laggy, waiting for leases
    or scrubbing. [] if it is none of these, or its primary has not answered."""
    state, causes = case.answers.state, []
    evidence = {'state': '+'.join(sorted(state)), 'acting': list(case.place.acting)}
    if case.primary < 0:
        return [Cause(Code.INACTIVE, 'no OSD serves it', evidence)]
    if state & {'peering', 'activating', 'creating'}:
        causes.append(Cause(Code.PEERING, 'it is peering', evidence))
    elif state and 'active' not in state:
        causes.append(Cause(Code.INACTIVE, 'it is not active: %s' % evidence['state'], evidence))
    if 'degraded' in state or 'undersized' in state:
        causes.append(Cause(Code.DEGRADED, 'it is degraded and must recover first', evidence))
    if 'laggy' in state:
        causes.append(Cause(Code.LAGGY, 'it is laggy: its read lease has expired', evidence))
    if 'wait' in state:
        causes.append(Cause(Code.LEASES, 'it waits for read leases to expire', evidence))
    if 'scrubbing' in state:
        causes.append(Cause(Code.SCRUB, 'it is being scrubbed: the objects under scrub are '
                            'copied afterwards', evidence))
    return causes


def _unpinned(case: PgCase) -> List[Cause]:
    """Why a remapped PG is neither pinned nor in flight; [] if it is not remapped, or in flight."""
    campaign = case.campaign
    if case.flight is not None or not case.remapped:
        return []
    if case.leaves:
        return [Cause(Code.EVACUATING, 'it leaves OSDs that are to be emptied: %s'
                      % osds_text(case.leaves), {'osds': list(case.leaves)})]
    why = campaign.pinning.unpinnable.get(case.pgid)
    if why:
        return [Cause(Code.UNPINNABLE, 'it cannot be pinned: %s' % why.reason,
                      {'campaign': campaign.id})]
    if campaign.active:
        return [Cause(Code.UNPINNED, 'it is remapped and still to be pinned',
                      {'campaign': campaign.id, 'phase': campaign.phase.value})]
    return [Cause(Code.REMAPPED, 'it is remapped, and no campaign has pinned it',
                  {'up': list(case.place.up), 'acting': list(case.place.acting)})]


def _without_known_cause(case: PgCase) -> Cause:
    """The cause if no other one is known: OSDs have not answered, or, if all have, the PG is
    between two states."""
    if case.answers.silent:
        return Cause(Code.NO_ANSWER, '%s did not answer in time' % osds_text(case.answers.silent),
                     {'osds': list(case.answers.silent)})
    return Cause(Code.ARRIVING, 'its backfill has not begun, or has just ended',
                 {'state': '+'.join(sorted(case.answers.state))})
