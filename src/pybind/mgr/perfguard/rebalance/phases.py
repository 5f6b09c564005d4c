# SPDX-License-Identifier: LGPL-2.1-or-later
"""The campaign's state machine.

IDLE -> PREPARED -> PINNING -> PINNED -> RELEASING <-> HOLDING -> FINISHING -> DONE, and from any of
them ABORTING -> ABORTED. `judge` makes one turn: pure, from the observation to the actions.
"""
from dataclasses import replace
from typing import (AbstractSet, Callable, FrozenSet, List, Mapping, NamedTuple, Optional,
                    Sequence)

from ..cluster.types import pool_of
from ..errors import Code, Reason, texts
from ..observation import Observation
from ..options import Options
from ..tables import osds_text, pgs, pgs_are, plural
from ..upmap.pins import INCOMPLETE
from ..watch.stop_conditions import spread
from .flights import follow_flights, pin_back
from .goals import STUCK_SECONDS, is_adopted, unsettled, without_goals
from .holds import (GIVE_WAY_SECONDS, NOREBALANCE, blocked_since, gives_way, reconcile, settled,
                    waiting_text, wanted_mon_options)
from .joining import closing_change, drop_refused, join, on_its_way, tiny_osds
from .latency import slow_read_stops
from .moves import Move
from .orders import DRAINED_WEIGHT
from .pinning import (audit, awaited, is_still, pin_remapped, staying, unpinnable_excess,
                      waiting)
from .pool_change import begun_pools, way_back
from .progress import Limits, charge, limit_of
from .releasing import (BALANCER_ON, adopt_unpinnable, balancer_of_others, held_moves, keep,
                        keep_stayers, loose_moves, others_degraded, release_more, stops_of)
from .throttle import (caps, limit, maps_to_trim, out_of_hours, set_copying, set_pace, stopped,
                       too_much)
from .turn import CampaignDecision, Turn, flight_osds, has_own_crush
from .types import KEPT_ALL, TINY_WEIGHT, Campaign, Change, ChangeStage, Phase, PinRecord

#: Seconds for which a campaign with nothing left to do waits for a clean cluster: PGs that are
#: still unclean then have another cause.
FINISH_PATIENCE_SECONDS = 60.0
_NO_GOALS = Reason(Code.NO_GOALS,
                   'computing the targets of the pinned PGs; this waits until no PG is peering, '
                   'and CRUSH, weights and the pools with pins no longer change')
_GIVING_BACK = Reason(Code.SETTINGS,
                      'waiting until flags, balancer and autoscaler are given back')
_REPORTS = Reason(Code.REPORTS, 'waiting for the PGs to report')


def judge(campaign: Campaign, pins: Mapping[str, PinRecord], moves: Mapping[str, Move],
          seen: Observation, options: Options) -> CampaignDecision:
    """One turn of a campaign that is active or held. `moves`: the moves of releases."""
    turn = Turn(campaign, pins, moves, seen, options)
    turn.set(blocked=blocked_since(campaign.blocked, seen.signals.counts, seen.now))
    audit(turn)
    follow_flights(turn)
    _STEPS[campaign.phase](turn)
    turn.set(turned=seen.now, last_epoch=seen.osdmap.epoch, total=_total(turn),
             limits=_limits(turn, campaign))
    return turn.decision()


def _limits(turn: Turn, before: Campaign) -> Limits:
    """Count the time since the last turn for its limit."""
    campaign = turn.campaign
    if not campaign.active:
        return campaign.limits
    flying = sum(1 for flight in campaign.in_flight.values() if flight.pin is not None)
    code = limit_of(turn.reasons, campaign.phase is Phase.RELEASING, len(campaign.in_flight),
                    limit(campaign.pace, turn.options).caps.pgs, caps(turn.options).pgs,
                    turn.pin_count - flying)
    return charge(campaign.limits, code, turn.now - (before.turned or turn.now))


def _total(turn: Turn) -> int:
    """PGs of the campaign that are pinned, in flight, arrived or kept; changes by others may raise
    or lower the number."""
    campaign = turn.campaign
    return _size_of_campaign(turn) if campaign.active else campaign.released + campaign.kept_now


def _size_of_campaign(turn: Turn) -> int:
    campaign = turn.campaign
    adopted = sum(1 for flight in campaign.in_flight.values() if flight.pin is None)
    return campaign.released + campaign.kept + turn.pin_count + adopted


def _borrow(turn: Turn, norebalance: bool, quiet: bool = True,
            pools: Optional[AbstractSet[int]] = None) -> bool:
    """One step towards the settings of the phase; True when they are in force. As reconcile."""
    holds = turn.campaign.holds
    begin = not turn.campaign.prepared
    lifted = norebalance and _lifted(turn)
    norebalance = norebalance and not lifted
    # Only while the campaign needs its settings; at its end all of them are given back.
    mon = wanted_mon_options(turn.campaign, turn.options, turn.seen.osdmap) \
        if quiet else {}
    done = reconcile(holds, turn.seen.settings, norebalance, quiet, begin, mon, pools)
    turn.set(holds=done.holds)
    turn.actions.extend(done.actions)
    for notice in done.notices:
        turn.event('settings', notice)
    return not lifted and settled(done.holds, turn.seen.settings, norebalance, quiet, mon, pools)


def _lifted(turn: Turn) -> bool:
    """Whether norebalance, if it is ours, is cleared for a while so that PGs can recover."""
    campaign = turn.campaign
    holds, flags = campaign.holds, turn.seen.osdmap.flags
    theirs = (NOREBALANCE in holds.given_up
              or NOREBALANCE in flags and NOREBALANCE not in holds.flags)
    if theirs or not gives_way(campaign.blocked, turn.now):
        return False
    waiting = pgs_are(turn.seen.signals.counts.degraded_waiting)
    turn.because(Code.GIVES_WAY, '%s degraded and cannot backfill: PGs without objects hold the '
                 'reservations, and norebalance defers these PGs; it is cleared for at most %d s'
                 % (waiting, GIVE_WAY_SECONDS))
    if NOREBALANCE in campaign.holds.flags and NOREBALANCE not in campaign.holds.returning:
        turn.event('settings', 'norebalance is cleared so that degraded PGs can recover',
                   waiting + ' degraded and waiting behind PGs without objects')
    return True


def _accept_own_crush(turn: Turn) -> None:
    """Attribute changes of CRUSH to the campaign until the PGs are pinned."""
    campaign, version = turn.campaign, turn.seen.crush_version
    if campaign.change is not None or campaign.crush_own == version:
        return
    if campaign.crush_own == campaign.crush_version and has_own_crush(campaign, turn.seen):
        turn.set(crush_version=version)
    turn.set(crush_own=version, crush_identity=turn.seen.crush.identity)


def _prepared(turn: Turn) -> None:
    _accept_own_crush(turn)
    _forget_others(turn, _still_incomplete(turn))
    if _borrow(turn, norebalance=True):
        turn.set(prepared=True)
    elif not turn.campaign.prepared:
        turn.because(Code.SETTINGS, waiting_text(
            turn.seen.settings, 'norebalance is set and the balancer is off'))
        return
    campaign, remapped = turn.campaign, turn.seen.osdmap.pg_temp
    moving = any(_may_move(turn, pgid) for pgid in remapped)
    if balancer_of_others(turn):
        turn.reasons.append(BALANCER_ON)
    elif campaign.automatic and (campaign.change or moving
                                 or turn.seen.crush_version != campaign.crush_version):
        turn.enter(Phase.PINNING, 'automatically')
    elif campaign.automatic:
        turn.because(Code.AWAITS_CHANGE, 'waiting for the CRUSH change; the PGs that it remaps are '
                     'pinned and released automatically')
    elif moving:
        turn.because(Code.AWAITS_PIN, '%s remapped; "rebalance pin" keeps the data in place'
                     % pgs_are(len(remapped)))
    else:
        turn.because(Code.AWAITS_CHANGE, 'waiting for the CRUSH change; run '
                     '"rebalance pin" after it')


def _may_move(turn: Turn, pgid: str) -> bool:
    """Whether a remapped PG has a place to move to."""
    pool, place = turn.pool(pgid), turn.seen.placement(pgid)
    return pool is not None and place is not None and not turn.stays(pgid, pool, place)


def _pinning(turn: Turn) -> None:
    settled = _borrow(turn, norebalance=True)
    if settled and not turn.campaign.prepared:
        turn.set(prepared=True)  # resumed after an abort
    if balancer_of_others(turn):
        turn.reasons.append(BALANCER_ON)
        settled = False
    if turn.campaign.trigger != 'auto':
        _accept_own_crush(turn)
    change = turn.campaign.change
    if change is not None and change.stage is not ChangeStage.LANDED:
        join(turn, settled)
        return
    left = pin_remapped(turn)
    pins = {**turn.pinned(), **turn.new_pins}
    peering = unsettled(turn.campaign, pins, turn.seen, turn.options.max_transition_ratio)
    if left:
        _report_left(turn, left)
    elif turn.campaign.pinning:
        turn.because(Code.PINS_SENT, 'waiting for %s to show in the OSDMap'
                     % plural(len(turn.campaign.pinning), 'pin'))
    elif peering:
        turn.because(Code.PEERING, '%s peering' % pgs_are(peering))
    elif not _reported(turn):
        turn.reasons.append(_REPORTS)
    elif not turn.seen.goals_fit:
        turn.reasons.append(_NO_GOALS)
    else:
        turn.enter(Phase.PINNED, _pinned_summary(turn))
        turn.because(Code.PINNED, _pinned_summary(turn))


def _report_left(turn: Turn, left: int) -> None:
    turn.because(Code.UNPINNED, '%s still to be pinned%s' % (pgs_are(left), _recovering(turn)))


def _recovering(turn: Turn) -> str:
    degraded = waiting(turn.campaign)
    return ' (%d of them must recover first)' % degraded if degraded else ''


def _reported(turn: Turn) -> bool:
    """The PG states are younger than the phase and than the last pins."""
    last = max(turn.campaign.pins_sent, turn.campaign.phase_since)
    return turn.now - last > turn.seen.stats_period + 1


def _pinned_summary(turn: Turn) -> str:
    text = '%s pinned' % pgs_are(turn.pin_count)
    if turn.campaign.unpinnable:
        text += ', %d cannot be pinned' % len(turn.campaign.unpinnable)
    return text


def _pinned(turn: Turn) -> None:
    _borrow(turn, norebalance=True)
    left = pin_remapped(turn)
    excess = unpinnable_excess(turn.campaign, _size_of_campaign(turn), turn.options)
    if left:
        _report_left(turn, left)
    elif excess:
        turn.because(Code.UNPINNABLE, excess)
    elif _arriving(turn):
        turn.reasons += _arriving(turn)
    elif turn.campaign.automatic:
        turn.enter(Phase.RELEASING, 'automatically')
    else:
        turn.because(Code.AWAITS_START,
                     _pinned_summary(turn) + '; "rebalance start" releases them')


def _arriving(turn: Turn) -> List[Reason]:
    """The OSDs of a new host start one by one, and the first would receive the PGs of all."""
    settle = turn.options.auto_expand_settle
    quiet = turn.now - turn.seen.osds_changed
    if turn.campaign.trigger != 'auto' or not 0.0 <= quiet < settle:
        return []
    return [Reason(Code.OSDS_ARRIVING, 'CRUSH or the OSDs changed %d s ago; waiting for %g s '
                   'without a change (auto_expand_settle)' % (quiet, settle))]


def _releasing(turn: Turn) -> None:
    _end_pause(turn)
    left = pin_remapped(turn)
    excess = unpinnable_excess(turn.campaign, _size_of_campaign(turn), turn.options)
    # CRUSH was changed outside perfguard: no PG may move for that before it is pinned.
    unguarded = bool(left or excess or turn.campaign.pinning or _flag_is_coming(turn))
    found = _obstacles(turn)
    still = (turn.campaign.paused or unguarded or turn.campaign.pace.halted
             # PGs without pins are released by clearing the flag, others by removing their pins.
             or bool(found.loose and (found.stops or found.shut or _confirming(turn))))
    if not still:
        adopt_unpinnable(turn, found.loose)
    in_force = _borrow(turn, norebalance=still)
    if left:
        _report_left(turn, left)
    if turn.seen.pin_back and is_still(turn):
        pin_back(turn, turn.seen.pin_back)
    if excess:
        # It was started, so it continues once recovery or the operator has handled these PGs.
        turn.set(automatic=True)
        turn.enter(Phase.PINNED, excess)
        turn.because(Code.UNPINNABLE, excess)
        return
    if _holding(turn, found):
        return
    turn.enter(Phase.RELEASING)
    if not in_force or unguarded:
        turn.because(Code.SETTINGS, 'waiting until flags and pins are in force')
        return
    if not turn.seen.goals_fit:
        turn.reasons.append(_NO_GOALS)
        return
    keep_stayers(turn)
    release_more(turn)
    if not turn.campaign.in_flight and not turn.pin_count and _quiet(turn):
        if turn.campaign.moving_first:
            turn.enter(Phase.PINNING, 'all PGs are where the change places them')
            return
        closing = closing_change(turn)
        if closing is not None:
            # It was started, so it continues.
            turn.set(change=closing, automatic=True)
            turn.enter(Phase.PINNING, 'CRUSH weight 0 follows for ' + osds_text(closing.weights))
            return
        turn.enter(Phase.FINISHING, pgs(turn.campaign.released) + ' released' + _refilled(turn))


def _refilled(turn: Turn) -> str:
    """Text on OSDs of a drain to which others have given a weight meanwhile, for example by
    setting an older CRUSH map."""
    change, weights = turn.campaign.change, turn.seen.crush.weights()
    osds = [osd for osd in change.drained if weights.get(osd, 0.0) > DRAINED_WEIGHT] \
        if change is not None else []
    return '; not drained, because others gave them a CRUSH weight: ' + osds_text(osds) \
        if osds else ''


def _flag_is_coming(turn: Turn) -> bool:
    """norebalance was set, and no OSDMap has shown it. If it was cleared now and set again, the
    OSDMaps of both commands would come later, and look like changes by others."""
    holds = turn.campaign.holds
    return holds.flags.get(NOREBALANCE) is False and NOREBALANCE not in holds.returning


class _Obstacles(NamedTuple):
    """What prevents releases."""
    #: Moves of PGs without pins, as of loose_moves.
    loose: Mapping[str, Move]
    #: Stop conditions of all releases.
    stops: List[Reason]
    #: Reasons why none may begin now, while those in flight continue.
    shut: List[Reason]


def _obstacles(turn: Turn) -> _Obstacles:
    """Sets the pace of releases and of copying, and the stop conditions of single OSDs."""
    before = turn.campaign.pace
    set_pace(turn)
    degraded = others_degraded(turn)
    set_copying(turn, before, degraded)
    loose = loose_moves(turn)
    wide, turn.stops = spread(stops_of(turn), flight_osds(turn))
    turn.stops += slow_read_stops(turn.campaign.pace.slow_reads, turn.now)
    full = [stop.reason for stop in wide if stop.reason.code == Code.MON_DISK]
    stops = [stop.reason for stop in wide if stop.reason not in full] + too_much(turn)
    stops += held_moves(turn, loose) + _arriving(turn)
    # The mons do not trim OSDMaps while norebalance keeps PGs remapped.
    return _Obstacles(loose, stops,
                      out_of_hours(turn) + ([] if loose else full + maps_to_trim(turn, degraded)))


def _holding(turn: Turn, found: _Obstacles) -> bool:
    """Whether no PG is released now; the reasons are noted."""
    if turn.campaign.paused:
        turn.enter(Phase.HOLDING, 'paused by the operator')
        turn.because(Code.PAUSED, 'paused by the operator%s; "rebalance resume" continues'
                     % _pause_left(turn))
        turn.reasons.extend(found.stops)
    elif found.stops:
        if turn.campaign.phase is Phase.RELEASING:
            turn.set(pace=stopped(turn.campaign.pace))
        turn.enter(Phase.HOLDING, '; '.join(texts(found.stops)))
        turn.set(stopped=turn.now)
        turn.reasons.extend(found.stops)
    elif found.shut and (found.loose or any(pgid not in turn.campaign.in_flight
                                            for pgid in turn.pinned())):
        turn.enter(Phase.HOLDING, '; '.join(texts(found.shut)))
        turn.reasons.extend(found.shut)
    elif _confirming(turn):
        turn.because(Code.CONFIRMING,
                     'waiting one report to confirm that the stop condition has cleared')
    else:
        return False
    return True


def _end_pause(turn: Turn) -> None:
    """Resume after the duration of the pause."""
    campaign = turn.campaign
    if campaign.paused and campaign.paused_until and turn.now >= campaign.paused_until:
        turn.set(paused=False, paused_until=0.0)
        turn.event('pause', 'campaign %d continues' % campaign.id, 'the pause has expired')


def _pause_left(turn: Turn) -> str:
    left = turn.campaign.paused_until - turn.now
    return ' for another %s' % plural(max(1, round(left / 60)), 'minute') if left > 0.0 else ''


def _confirming(turn: Turn) -> bool:
    """A stop condition that has just cleared may recur with the next report: wait, to avoid
    flapping."""
    return turn.now - turn.campaign.stopped < turn.seen.stats_period


def _quiet(turn: Turn) -> bool:
    """Whether all PGs have reported that they are in place, or have had enough time for it."""
    counts = turn.seen.signals.counts
    unclean = max(0, counts.remapped - staying(turn.campaign)) + counts.in_transition
    since = turn.now - max(turn.campaign.pins_sent, turn.campaign.progressed)
    if unclean:
        turn.because(Code.UNCLEAN, 'waiting for %s to become clean' % pgs(unclean))
        return min(since, turn.now - turn.campaign.phase_since) > FINISH_PATIENCE_SECONDS
    if since <= turn.seen.stats_period + 1:
        turn.reasons.append(_REPORTS)
        return False
    return True


def _finishing(turn: Turn) -> None:
    campaign = turn.campaign
    if campaign.keep:
        _hand_over(turn)
    if turn.campaign.in_flight:
        _borrow(turn, norebalance=False)
        turn.because(Code.IN_FLIGHT, '%s still in flight' % pgs_are(len(turn.campaign.in_flight)))
        return
    restored = _borrow(turn, norebalance=False, quiet=False)
    if not restored:
        turn.reasons.append(_GIVING_BACK)
    elif _quiet(turn):
        _end(turn, Phase.DONE)


def _hand_over(turn: Turn) -> None:
    """finish --keep: the pins stay in the OSDMap as ordinary upmaps."""
    _release_adopted(turn)
    keep(turn, [pgid for pgid in turn.pinned()
                if pgid not in turn.campaign.in_flight and pgid not in turn.unpins], KEPT_ALL)
    turn.set(pinning={})


def _release_adopted(turn: Turn) -> None:
    """Forget the PGs that were never pinned and would only move for the balance."""
    for pgid, pin in turn.pinned().items():
        if is_adopted(pin) and pgid not in turn.campaign.in_flight:
            turn.forget_pin(pgid)


def _aborting(turn: Turn) -> None:
    awaited = _awaited_by_abort(turn)
    if awaited is not None:
        _borrow(turn, norebalance=True)
        turn.reasons.append(awaited)
        return
    _release_adopted(turn)
    back = turn.campaign.back
    if back is not None:
        _roll_back(turn, back)
        turn.enter(Phase.PINNING, 'restoring CRUSH from before the campaign')
        return
    unpinned = _unpinned(turn)
    if _keep_settings(turn, unpinned):
        drop_refused(turn)
        turn.set(held=_must_stay_pinned(turn, unpinned))
        _end(turn, Phase.ABORTED)
    else:
        turn.reasons.append(_GIVING_BACK)


def _awaited_by_abort(turn: Turn) -> Optional[Reason]:
    """Pin back moving PGs, and pin remapped ones; returns what to wait for."""
    if on_its_way(turn):
        return Reason(Code.CRUSH_SENT, 'waiting for the result of the CRUSH change')
    waited = turn.now - turn.campaign.phase_since
    if turn.campaign.in_flight and not is_still(turn) and waited <= turn.options.readback_timeout:
        return Reason(Code.SETTINGS, 'waiting until norebalance is set, to pin back the PGs in '
                      'flight')
    pin_back(turn)
    # Recovery may take hours, or never end: such PGs are left like those that cannot be pinned.
    left = pin_remapped(turn) - awaited(turn)
    campaign = turn.campaign
    if left or campaign.pinning or campaign.in_flight:
        return Reason(Code.PINS_SENT, '%s being pinned back' % pgs_are(
            left + len(campaign.pinning) + len(campaign.in_flight)))
    if not _reported(turn):
        return _REPORTS
    # A peering PG may be remapped a moment later, but the abort must not wait for it forever.
    peering = unsettled(campaign, turn.pinned(), turn.seen, turn.options.max_transition_ratio)
    if peering and waited <= STUCK_SECONDS:
        return Reason(Code.PEERING, '%s peering' % pgs_are(peering))
    return None


def _roll_back(turn: Turn, change: Change) -> None:
    campaign = turn.campaign
    turn.set(change=change, back=None, rolled_back=True, unpinnable=campaign.incomplete,
             target='crush', goals='',
             undone=campaign.undone if campaign.rolled_back else campaign.change)
    # The pins lead back to the upmaps from before, not to a balanced state.
    for pgid, pin in without_goals(turn.pinned()).items():
        if turn.pin_of(pgid) is not None:
            turn.note_pin(pgid, pin)


def _must_stay_pinned(turn: Turn, unpinned: Sequence[str]) -> bool:
    """`unpinned`: as _unpinned."""
    return bool(turn.pin_count or unpinned or _begun(turn))


def _begun(turn: Turn) -> FrozenSet[int]:
    return begun_pools(turn.campaign.change, turn.seen.osdmap)


def _unpinned(turn: Turn) -> List[str]:
    """PGs without pins that would move without norebalance.

    The recorded reason may date from a time when an OSD was down; then it does not show whether
    CRUSH has a place for the PG.
    """
    return [pgid for pgid, why in turn.campaign.unpinnable.items()
            if pgid in turn.seen.osdmap.pg_temp and why != INCOMPLETE and _may_move(turn, pgid)]


def _still_incomplete(turn: Turn) -> List[str]:
    return [pgid for pgid in turn.campaign.incomplete
            if pgid in turn.seen.osdmap.pg_temp and not _may_move(turn, pgid)]


def _forget_others(turn: Turn, known: Sequence[str]) -> None:
    """Only these PGs are still known to be unpinnable."""
    if len(known) < len(turn.campaign.unpinnable):
        turn.set(unpinnable={pgid: turn.campaign.unpinnable[pgid] for pgid in known})


def _keep_settings(turn: Turn, unpinned: Sequence[str]) -> bool:
    """Give back the settings that an aborted campaign does not need to keep every PG in place.

    The balancer would move pinned PGs regardless of all caps, and a change of pg_num would remove
    upmaps of its pool. norebalance stays only for PGs that have no pin.
    """
    turn.set(left=turn.pin_count)
    pinned = {pgid for pgid in (*turn.pinned(), *turn.new_pins) if pgid not in turn.unpins}
    return _borrow(turn, norebalance=bool(unpinned), quiet=_must_stay_pinned(turn, unpinned),
                   pools={*map(pool_of, pinned), *_begun(turn)})


def _aborted(turn: Turn) -> None:
    """An aborted campaign that keeps PGs pinned."""
    unpinned = _unpinned(turn)
    _forget_others(turn, [*unpinned, *_still_incomplete(turn)])
    settled = _keep_settings(turn, unpinned)
    if not _must_stay_pinned(turn, unpinned) and settled:
        turn.set(held=False)
        turn.event('settings', 'campaign %d has no pins left' % turn.campaign.id,
                   'balancer and autoscaler are given back')
    else:
        back = way_back(turn.campaign.change, turn.seen.osdmap)
        turn.reasons.append(Reason(
            Code.HELD_PINS, 'campaign %d is aborted and keeps %s pinned%s: "rebalance resume" '
            '(%s)%s or "rebalance finish --keep"' % (
                turn.campaign.id, pgs(turn.pin_count + len(unpinned)), _recovering(turn),
                _resume_does(turn), ', "%s"' % back if back else '')))


def _resume_does(turn: Turn) -> str:
    change = turn.campaign.change
    if change is not None and change.stage is ChangeStage.WANTED:
        return ('continues the rollback' if turn.campaign.rolled_back
                else 'continues the change of CRUSH')
    return 'releases them'


def _end(turn: Turn, phase: Phase) -> None:
    campaign = turn.campaign
    turn.enter(phase, '%s released, %d kept as upmaps%s' % (
        pgs(campaign.released), campaign.kept_now, _left_tiny(turn)))
    turn.set(ended=turn.now, paused=False, acknowledged=())
    if not turn.campaign.held:
        turn.set(holds=replace(campaign.holds, given_up=()))


def _left_tiny(turn: Turn) -> str:
    """Text on OSDs that keep a tiny weight: the mons would drop the upmaps that keep PGs on them if
    they got weight 0, and these PGs would move at once."""
    osds = tiny_osds(turn)
    return '; CRUSH weight %s remains for %s: see "drain ls"' % (TINY_WEIGHT, osds_text(osds)) \
        if osds else ''


_STEPS: Mapping[Phase, Callable[[Turn], None]] = {
    Phase.PREPARED: _prepared,
    Phase.PINNING: _pinning,
    Phase.PINNED: _pinned,
    Phase.RELEASING: _releasing,
    Phase.HOLDING: _releasing,
    Phase.FINISHING: _finishing,
    Phase.ABORTING: _aborting,
    Phase.ABORTED: _aborted,
}
