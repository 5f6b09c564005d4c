# SPDX-License-Identifier: LGPL-2.1-or-later
"""The steps of a campaign: what it does in each phase.

PREPARED -> PINNING -> PINNED -> RELEASING <-> HOLDING -> FINISHING -> DONE, and from any active one
ABORTING -> ABORTED; states.py has all ways. `judge` makes one turn: pure, from the observation to
the actions.
"""
from dataclasses import replace
from functools import partial
from typing import (AbstractSet, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence,
                    Tuple)

from ..cluster.evacuation import by_osd
from ..cluster.types import NO_OSD, pool_of
from ..errors import Code, Reason, texts
from ..observation import Observation
from ..options import Options
from ..text import osds_text, pgs, pgs_are, plural
from ..upmap.pins import INCOMPLETE, merge_reason, next_merge_reason
from ..watch.stop_conditions import Stop, split_by_scope
from .bill import BillTurn
from .campaign import Campaign, GoalsMark
from .change import Change, ChangeStage
from .draft import Draft, Rule, flight_osds
from .flights import follow_flights, follow_late_releases, pin_back
from .goals import STUCK_GOALS_SECONDS, moves_for_balance, pgs_in_transition, without_goals
from .holds import (GIVE_WAY_SECONDS, NOREBALANCE, blocked_since, flag_is_coming, gives_way,
                    reconcile, settled, waiting_text, wanted_mon_options)
from .joining import (closing_change, keep_part_in_force, following_tranche, is_divisible, join,
                      report_left_out, remove_needless_pairs, settle_change, tiny_osds)
from .moves import Move
from .orders import DRAINED_WEIGHT
from .pinning import (are_many, audit, is_mixture, is_still, kept_on_osds, loose_pgs, outlast_out,
                      pin_remapped, pinned_after_recovery, recovering_count, immovable_count,
                      unpinnable_excess)
from .progress import Limits, charge, limit_of
from .releasing import (adopt_unpinnable, all_stops, balancer_of_others, balancer_on, burdened_osds,
                        drop_goals_planned_once, failing_osds, follow_accepted, keep, keep_stayers,
                        loose_moves, others_degraded, release_more, relieved_osds, stopped_moves)
from .report import bill_event
from .throttle import (beyond_ceiling, caps, limit, maps_to_trim, out_of_hours, pace_after_stop,
                       set_copying, set_pace)
from .types import RELEASING_PHASES, TINY_WEIGHT, Phase, PinRecord
from .weights import WeightChange

#: Seconds for which a campaign with nothing left to do waits for a clean cluster: PGs that are
#: still unclean then have another cause.
FINISH_PATIENCE_SECONDS = 60.0
#: Seconds of a pause after which PGs in flight are pinned back if the mons keep many OSDMaps. What
#: was copied of them is lost, so a short pause does not do that.
LONG_PAUSE_SECONDS = 600.0
#: Reasons to wait that OSDs cause while they are down.
BY_DOWN_OSDS = frozenset({Code.DEGRADED, Code.TARGET_DOWN, Code.OSD_DOWN, Code.PEERING,
                          Code.UNCLEAN, Code.IN_FLIGHT, Code.UPGRADE})
#: Seconds without progress for which announced maintenance is a reason.
ANNOUNCED_SECONDS = 4 * 3600.0
_NO_GOALS = Reason(Code.NO_GOALS,
                   'computing the targets of the pinned PGs; this waits until no PG is peering, '
                   'and CRUSH, weights and the pools with pins no longer change')
_GIVING_BACK = Reason(Code.SETTINGS,
                      'waiting until flags, balancer and autoscaler are given back')
#: Seconds since the last change of CRUSH or of the OSDs after which a change that can no longer be
#: made, but that others may make possible again, ends the campaign whose PGs move for it.
OVERTAKEN_SECONDS = 600.0
_TIDYING = Reason(Code.SETTINGS, 'removing pins that are no longer needed from the store')
_REPORTS = Reason(Code.REPORTS, 'waiting for the PGs to report')


def judge(campaign: Campaign, pins: Mapping[str, PinRecord], moves: Mapping[str, Move],
          observation: Observation, options: Options) -> Draft:
    """The decision of one turn of a campaign that is active or held. `moves`: the moves of
    releases."""
    draft = Draft.of(campaign, pins, moves, observation, options)
    return draft.then(_note_blocked, _note_raised, follow_late_releases, audit, follow_flights,
                      outlast_out, _step, _report_cleared_flag,
                      partial(_note_end_of_pinning, campaign), partial(_account, campaign),
                      _count_turn, follow_accepted, _report_evacuation)


def _step(draft: Draft) -> Draft:
    """The step of the present phase.

    PGs may move before the change for which they do. If others have meanwhile made that change
    impossible, no PG is released, and the campaign is aborted, at once or, if they may still undo
    that, after OVERTAKEN_SECONDS.
    """
    change, phase = draft.campaign.change, draft.campaign.phase
    if change is None or not change.moving_first or phase not in (Phase.PINNED, *RELEASING_PHASES):
        return _STEPS[phase](draft)
    why_impossible = change.impossible(draft.observed)
    if not why_impossible:
        return _STEPS[phase](draft)
    unchanged_seconds = draft.now - draft.observed.osds_or_crush_changed
    if change.impossible_for_good or unchanged_seconds >= OVERTAKEN_SECONDS:
        return draft.enter(Phase.ABORTING, why_impossible)
    return _STEPS[phase](replace(draft, observed=replace(draft.observed, stops=(
        *draft.observed.stops, Reason(Code.OVERTAKEN, why_impossible)))))


def _note_end_of_pinning(before: Campaign, draft: Draft) -> Draft:
    """Note with how many pins PINNING ends (Pinning.begun_with). `before`: the campaign from before
    the turn."""
    if before.phase is not Phase.PINNING or draft.campaign.phase is not Phase.PINNED:
        return draft
    return draft.set(pinning=replace(draft.campaign.pinning, begun_with=draft.pin_count))


def _note_blocked(draft: Draft) -> Draft:
    """Note since when norebalance may keep other PGs from recovery (Holds.blocked)."""
    holds = draft.campaign.holds
    return draft.set(holds=replace(holds, blocked=blocked_since(
        holds.blocked, draft.observed.signals.counts, draft.now,
        is_prepared=draft.campaign.phase is Phase.PREPARED)))


def _note_raised(draft: Draft) -> Draft:
    """Note which reweights others have raised: the OSD may get PGs by that, which leave if it is
    lowered again. The id of an OSD that was removed may be that of another one later."""
    crush, osds = draft.campaign.crush, draft.observed.osdmap.osds
    if not draft.observed.new_map:
        return draft
    raised = {osd: max(before, osds[osd].reweight) for osd, before in crush.reweights.items()
              if osd in osds and osds[osd].reweight < 1.0}
    return draft if raised == crush.reweights else draft.set(
        crush=replace(crush, reweights=raised))


def _count_turn(draft: Draft) -> Draft:
    """Note this turn in the progress of the campaign."""
    campaign = draft.campaign
    # After the end, the epoch stays the same: each change of it would write the history again.
    epoch = draft.observed.osdmap.epoch if campaign.active or campaign.ended == draft.now \
        else campaign.progress.last_epoch
    total = _size_of_campaign(draft) if campaign.active \
        else campaign.progress.released + campaign.kept_now
    progress = campaign.progress.turn(draft.now, epoch, total, _limits_with_this_turn(draft))
    # `excused`: when announced maintenance last was the reason; such a campaign is not stalled.
    return draft.set(progress=replace(progress, excused=draft.now)) \
        if _is_excused(draft) else draft.set(progress=progress)


def _account(before: Campaign, draft: Draft) -> Draft:
    """Add the costs of the turn to the bill of the campaign, which an event reports at the end.
    `before`: the campaign from before the turn."""
    campaign, observation = draft.campaign, draft.observed
    clients = observation.clients
    if not before.active:
        # With seconds, each turn would change the ended campaign, and write its history.
        return draft.set(bill=campaign.bill.borrowing(before.holds, campaign.holds, 0.0))
    seconds = max(0.0, draft.now - (before.progress.turned or before.origin.started))
    # `troubled`: when something besides movement last may have slowed operations, such as an OSD
    # whose report was late (`silent`).
    bill = campaign.bill.after(BillTurn(
        now=draft.now, started=before.origin.started, seconds=seconds, phase=before.phase,
        clients=clients, osds=flight_osds(campaign) | flight_osds(before),
        troubled=draft.now if _has_other_trouble(draft)
        else max(observation.osds_or_crush_changed, clients.silent),
        slow=observation.slow_osds, erasure=any(
            pool.erasure and not clients.idle(pool) for pool in clients.pools.values())))
    draft = draft.set(bill=bill.borrowing(before.holds, campaign.holds, seconds))
    return draft if draft.campaign.active else draft.event('bill', *bill_event(draft.campaign))


def _has_other_trouble(draft: Draft) -> bool:
    """Whether something besides the movement of the campaign may slow operations: PGs are laggy,
    degraded by others, or inactive, or peer without having been released."""
    counts, campaign = draft.observed.signals.counts, draft.campaign
    peering = 0 if campaign.flights.in_flight else counts.in_transition
    return counts.laggy + counts.wait + peering > 0 or counts.stuck > 0 \
        or counts.degraded > 0 and others_degraded(draft)


def _is_excused(draft: Draft) -> bool:
    """Whether releases wait for the OSDs of announced maintenance; not for longer than
    ANNOUNCED_SECONDS, after which it may only be noout that was forgotten."""
    return bool(draft.observed.announced) and draft.campaign.idle_seconds(draft.now) \
        < ANNOUNCED_SECONDS and any(reason.code in BY_DOWN_OSDS for reason in draft.reasons)


def _limits_with_this_turn(draft: Draft) -> Limits:
    """Progress.limits (seconds by what has limited the progress) with those since the last turn."""
    campaign, progress = draft.campaign, draft.campaign.progress
    if not campaign.active:
        return progress.limits
    flights = campaign.flights.in_flight
    still_pinned = draft.pin_count - sum(flight.pin is not None for flight in flights.values())
    code = limit_of(draft.reasons, campaign.phase is Phase.RELEASING, len(flights),
                    limit(campaign.pace, draft.options).caps.pgs, caps(draft.options).pgs,
                    still_pinned)
    return charge(progress.limits, code, draft.now - (progress.turned or draft.now))


def _size_of_campaign(draft: Draft) -> int:
    """PGs of the campaign that are pinned, in flight, arrived or kept; changes by others may raise
    or lower the number."""
    campaign = draft.campaign
    # Those that were released keep the records of their pins until they arrive.
    never_pinned = sum(1 for flight in campaign.flights.in_flight.values() if flight.pin is None)
    return campaign.progress.released + campaign.progress.kept + draft.pin_count + never_pinned


def _borrow_settings(draft: Draft, norebalance: bool, quiet: bool = True,
                     pools: Optional[AbstractSet[int]] = None) -> Draft:
    """One step towards the settings of the phase; `settings_in_force` of the draft: the
    cluster has them, apart from those that others have changed, and norebalance does not give way.

    `norebalance`: it must be set, unless it gives way to recovery. `quiet`: balancer and autoscaler
    must be off, the latter for `pools` only (None: all), and options of mons and OSDs may be
    borrowed; False: all of these are given back.
    """
    lifted = False
    if norebalance and _gives_way(draft):
        loose_count = _loose_count(draft)
        lifted = not loose_count
        draft = _report_kept_flag(draft, loose_count) if loose_count else _report_lifted_flag(draft)
    norebalance = norebalance and not lifted
    campaign, settings = draft.campaign, draft.observed.settings
    # Earlier commands are from before the settings were borrowed.
    settings = replace(settings, values_set_by_others={
        setting: (value, set_at) for setting, (value, set_at)
        in settings.values_set_by_others.items() if set_at > campaign.origin.started})
    # Only while the campaign needs its settings; at its end all of them are given back.
    mon = wanted_mon_options(campaign, draft.options, draft.observed.osdmap) if quiet else {}
    step = reconcile(campaign.holds, settings, norebalance, quiet,
                     begin=not campaign.holds.prepared, mon=mon, pools=pools, now=draft.now)
    draft = draft.set(holds=step.holds).send(*step.actions)
    for notice in step.notices:
        draft = draft.event('settings', notice)
    return replace(
        draft, settings_in_force=not lifted and settled(
            step.holds, settings, norebalance, quiet, mon, pools),
        # It counts as given up only as long as it is needed.
        lacks_flag=step.holds.gave_up_flag and NOREBALANCE not in settings.osdmap.flags)


def _report_cleared_flag(draft: Draft) -> Draft:
    """Report that others have cleared norebalance although the campaign needs it, and how an
    operator sets it again. Last, since this is not what limits the campaign."""
    if not draft.lacks_flag:
        return draft
    cleared, phase = 'norebalance was cleared outside perfguard', draft.campaign.phase
    if phase in RELEASING_PHASES:
        text = '%s and no longer stops PGs; "campaign pause" sets it again' % cleared
    elif phase is Phase.PREPARED:
        text = '%s: PGs that a change of CRUSH remaps move at once; run "ceph osd set ' \
            'norebalance", and do not change CRUSH before' % cleared
    elif draft.observed.evacuation:
        # A flag of others would also keep the PGs on OSDs that are to be emptied.
        text = '%s: PGs without a pin move at once' % cleared
    else:
        text = '%s: PGs without a pin move at once; run "ceph osd set norebalance" to stop them' \
            % cleared
    return draft.because(Code.FLAG_CLEARED, text)


def _is_flag_cleared(draft: Draft) -> bool:
    """Whether others have cleared norebalance, although the campaign had set it, or needs it."""
    flag = draft.campaign.holds.flag
    was_in_force = flag is not None and flag.seen and not flag.returning
    return NOREBALANCE not in draft.observed.osdmap.flags and (
        draft.campaign.holds.gave_up_flag or was_in_force)


def _gives_way(draft: Draft) -> bool:
    """Whether norebalance, if it is ours, must be cleared for a moment, so that the PGs that it
    defers become clean."""
    holds, flags = draft.campaign.holds, draft.observed.osdmap.flags
    theirs = holds.gave_up_flag or holds.flag is None and (
        NOREBALANCE in flags | draft.observed.settings.borrowed_elsewhere)
    return not theirs and gives_way(draft.campaign.holds.blocked, draft.now)


def _loose_count(draft: Draft) -> int:
    """The number of PGs that would move at once if norebalance was cleared now (`_loose`); 0 also
    if they are few enough."""
    number = len(_loose(draft))
    return number if are_many(number, _size_of_campaign(draft), draft.options) else 0


def _loose(draft: Draft) -> List[str]:
    """The PGs that would move at once if norebalance was cleared now, as a change of CRUSH has
    remapped them and they have no pin. PGs that lack a copy move in any case, and those that have
    nowhere to move do not: neither count."""
    loose: List[str] = []
    for pgid in loose_pgs(draft.campaign, draft.observed):
        pool, place = draft.pool(pgid), draft.observed.placement(pgid)
        if pool is not None and place is not None and pool.is_complete(place.acting) \
                and not draft.has_no_target(pgid, pool, place):
            loose.append(pgid)
    return loose


def _report_kept_flag(draft: Draft, loose: int) -> Draft:
    """Report that norebalance stays set, although it defers PGs that harm the cluster."""
    return draft.because(
        Code.GIVES_WAY, '%s; it stays set, since %s remapped without a pin and would move at once'
        % (_why_give_way(draft), pgs_are(loose)))


def _report_lifted_flag(draft: Draft) -> Draft:
    """Report that norebalance is cleared, so that the PGs that it defers become clean."""
    holds, why = draft.campaign.holds, _why_give_way(draft)
    if holds.flag is not None and not holds.flag.returning:
        draft = draft.event('settings', 'norebalance is cleared so that PGs become clean', why)
    return draft.because(Code.GIVES_WAY, '%s; it is cleared for at most %d s'
                         % (why, GIVE_WAY_SECONDS))


def _why_give_way(draft: Draft) -> str:
    """Text on the PGs that norebalance keeps from recovery."""
    counts = draft.observed.signals.counts
    if counts.inactive_empty:
        return '%s inactive, and norebalance defers their backfill' % pgs_are(
            counts.inactive_empty)
    if counts.degraded_waiting:
        return '%s degraded and cannot backfill: PGs that are not degraded hold the ' \
            'reservations, and norebalance defers these' % pgs_are(counts.degraded_waiting)
    return '%s undersized but not degraded, and norebalance defers their backfill: the mons ' \
        'keep all OSDMaps meanwhile' % pgs_are(counts.undersized_empty)


def _yields_to_evacuation(draft: Draft) -> bool:
    """Whether norebalance is cleared because of an evacuation, although the phase would keep it
    set.

    Not for the moment in which pins are sent, or PGs are pinned back. Nor if the operator has
    paused the campaign, or if too many other PGs cannot be pinned: they would all move at once. Nor
    if others have cleared it: `reconcile` would forget that, and set the flag again later.
    """
    campaign = draft.campaign
    # PGs that are pinned only after their recovery (`pinned_after_recovery`) do not count.
    is_pinning = draft.to_pin > pinned_after_recovery(draft) or campaign.pinning.sent \
        or flag_is_coming(draft.campaign.holds) or _to_pin_back(draft)
    # PGs of an OSD that the operator's change empties are noted in this turn.
    emptied = set(campaign.crush.emptied)
    is_evacuated = any(not emptied.issuperset(osds) for osds in draft.observed.evacuation.values())
    return is_evacuated and not (
        is_pinning or campaign.orders.paused or campaign.holds.gave_up_flag
        or unpinnable_excess(campaign, _size_of_campaign(draft), draft.options))


def _to_pin_back(draft: Draft) -> AbstractSet[str]:
    """PGs in flight that are to be pinned back once norebalance is in force: usually those that the
    mitigation names, and those that are too many for the throttle.

    All that were pinned and do not leave an OSD to be emptied, if a long pause keeps the mons from
    trimming OSDMaps, or if movement is halted and an evacuation keeps norebalance cleared.
    """
    campaign, evacuation = draft.campaign, draft.observed.evacuation
    if campaign.phase not in RELEASING_PHASES:
        return frozenset()
    pins_all_back = _pause_keeps_maps(draft) if campaign.orders.paused \
        else bool(evacuation) and campaign.pace.halted
    if not pins_all_back:
        return draft.observed.pin_back & campaign.flights.in_flight.keys() | beyond_ceiling(draft)
    return {pgid for pgid, flight in campaign.flights.in_flight.items()
            if flight.pin is not None and pgid not in evacuation}


def _pause_keeps_maps(draft: Draft) -> bool:
    """Whether the mons cannot trim OSDMaps because a long pause keeps PGs in flight unclean."""
    is_long = draft.now - draft.campaign.orders.paused_at >= LONG_PAUSE_SECONDS
    return is_long and bool(draft.campaign.flights.in_flight) and not others_degraded(draft) \
        and bool(maps_to_trim(draft, degraded=False))


def _report_evacuation(draft: Draft) -> Draft:
    """Report PGs that leave OSDs which are to be emptied, or that norebalance keeps there, and note
    since when it does."""
    flag, kept_pgs = draft.campaign.holds.flag, kept_on_osds(draft.campaign, draft.observed)
    if kept_pgs and NOREBALANCE in draft.observed.osdmap.flags and flag is not None \
            and not flag.returning:
        holds = draft.campaign.holds
        return draft.set(holds=replace(
            holds, evacuation_held=holds.evacuation_held or draft.now)).because(
            Code.EVACUATION_HELD, 'norebalance keeps %s on OSDs that are to be emptied: %s'
            % (pgs(len(kept_pgs)), osds_text(by_osd(kept_pgs))))
    draft = draft.set(holds=replace(draft.campaign.holds, evacuation_held=0.0))
    leaving = by_osd(draft.observed.evacuation)
    return draft.because(
        Code.EVACUATING, '%s leaving OSDs that are to be emptied: %s; perfguard does not set '
        'norebalance meanwhile' % (pgs_are(len(draft.observed.evacuation)), osds_text(leaving))
    ) if leaving else draft


def _accept_own_crush(draft: Draft) -> Draft:
    """If the operator makes the change of CRUSH: attribute all changes to the campaign until the
    PGs are pinned."""
    # crush.version: at the beginning; crush.own: the last one attributed to the campaign.
    campaign, version = draft.campaign, draft.observed.crush_version
    if campaign.change is None and version != campaign.crush.version:
        draft = _note_emptied(draft)
    if campaign.change is not None or campaign.crush.own == version:
        return draft
    return draft.set(crush=draft.campaign.crush.accepted(draft.observed))


def _note_emptied(draft: Draft) -> Draft:
    """Note the OSDs without CRUSH weight that still serve remapped PGs: the operator's own change
    empties them. So their PGs are movement of the campaign and no evacuation: those that cannot be
    pinned stay until the operator reverts the change, or accepts it as a whole."""
    weights, emptied = draft.observed.crush.weights(), set(draft.campaign.crush.emptied)
    for acting in draft.observed.osdmap.pg_temp.values():
        emptied.update([osd for osd in acting if osd != NO_OSD and not weights.get(osd)])
    if len(emptied) == len(draft.campaign.crush.emptied):
        return draft
    return draft.set(crush=replace(draft.campaign.crush, emptied=tuple(sorted(emptied))))


def _prepared(draft: Draft) -> Draft:
    """One turn of PREPARED: wait for the settings, then for the CRUSH change."""
    draft = _accept_own_crush(draft)
    # While an OSD is down, it cannot be found out again that a PG has nowhere to move.
    draft = _forget_unpinnable_except(draft, _still_incomplete(draft))
    draft = _borrow_settings(draft, norebalance=True)
    if draft.settings_in_force:
        draft = draft.set(holds=replace(draft.campaign.holds, prepared=True))
    elif not draft.campaign.holds.prepared:
        return draft.because(Code.SETTINGS, waiting_text(
            draft.observed.settings, 'norebalance is set and the balancer is off'))
    campaign = draft.campaign
    remapped = draft.observed.osdmap.pg_temp.keys() - draft.observed.evacuation.keys()
    moving = any(_may_move(draft, pgid) for pgid in remapped)
    if balancer_of_others(draft):
        return draft.report(balancer_on(draft.campaign.holds))
    if campaign.automatic and (campaign.change or moving
                               or draft.observed.crush_version != campaign.crush.version):
        return draft.enter(Phase.PINNING, 'automatically')
    if draft.lacks_flag and not moving:
        return draft  # CRUSH must not be changed now, as _report_cleared_flag reports
    if campaign.automatic:
        return draft.because(Code.AWAITS_CHANGE, 'waiting for the CRUSH change; the PGs that it '
                             'remaps are pinned and released automatically')
    if moving:
        return draft.because(Code.AWAITS_PIN, '%s remapped; "campaign pin" %s' % (
            pgs_are(len(remapped)), 'pins those that have not moved yet' if draft.lacks_flag
            else 'keeps the data in place'))
    return draft.because(Code.AWAITS_CHANGE, 'waiting for the CRUSH change; run '
                         '"campaign pin" after it')


def _may_move(draft: Draft, pgid: str) -> bool:
    """Whether a remapped PG has a place to move to."""
    pool, place = draft.pool(pgid), draft.observed.placement(pgid)
    return pool is not None and place is not None and not draft.has_no_target(pgid, pool, place)


def _pinning(draft: Draft) -> Draft:
    """One turn of PINNING: pin the PGs that are remapped, or carry out the change of the campaign
    in such a way that no PG becomes remapped; then enter PINNED."""
    change = draft.campaign.change
    joining = change is not None and change.stage is not ChangeStage.LANDED
    # 'auto': the campaign began after the change of others, so later ones are not its own either.
    if draft.campaign.origin.trigger != 'auto':
        draft = _accept_own_crush(draft)
    by_ceph_mgr = joining and _made_by_ceph_mgr(draft, change)
    # Many PGs that others have remapped keep norebalance set, and so PGs on an OSD that is to be
    # emptied, for which the change of a pool may wait (`_await_recovery_of_pool`): these are pinned
    # now.
    if not joining or by_ceph_mgr or _is_kept_by_loose(draft, change):
        draft = pin_remapped(draft)
    # A change is sent under norebalance, even while OSDs are to be emptied; but it may wait for
    # hours before. So may ceph-mgr with a change of its own, and it merges no PG that is remapped.
    # If others have cleared the flag, `reconcile` would forget that, and set it again later.
    may_clear = _yields_to_evacuation(draft) or by_ceph_mgr and _only_merged_move(draft) \
        and not draft.campaign.holds.gave_up_flag
    needs_flag = joining and not by_ceph_mgr and not (
        may_clear and _may_yield_before_burst(draft, change))
    draft = _borrow_settings(draft, norebalance=needs_flag or not may_clear)
    if draft.settings_in_force and not draft.campaign.holds.prepared:
        # "campaign resume" after an abort has cleared `prepared`.
        draft = draft.set(holds=replace(draft.campaign.holds, prepared=True))
    if balancer_of_others(draft):
        draft = draft.report(balancer_on(draft.campaign.holds))
    if joining:
        return join(draft)
    reason = _awaited_by_pins(draft)
    if reason is not None:
        return draft.report(reason)
    return draft.enter(Phase.PINNED, _pinned_summary(draft)).because(
        Code.PINNED, _pinned_summary(draft))


def _is_kept_by_loose(draft: Draft, change: Optional[Change]) -> bool:
    """Whether only PGs that others have remapped prevent norebalance from yielding to an evacuation
    while the change of a pool waits to be sent (`_may_yield_before_burst`)."""
    return change is not None and change.pool is not None and not change.follows_parts \
        and _waits_to_be_sent(change) and bool(draft.observed.evacuation) \
        and _loose_count(draft) > 0


def _waits_to_be_sent(change: Change) -> bool:
    """Not once its burst is about to be sent (`gathers`), or was sent and is not read back."""
    return change.stage is ChangeStage.WANTED and not change.pending and not change.gathers


def _may_yield_before_burst(draft: Draft, change: Optional[Change]) -> bool:
    """Whether norebalance may yield to an evacuation while a change waits to be sent. Not while PGs
    would move at once: before the first burst many that others have remapped, between two bursts
    any that has missed its pin and gets it now."""
    if change is None or not _waits_to_be_sent(change):
        return False
    if change.follows_parts:
        return set(_loose(draft)) <= draft.campaign.pinning.unpinnable.keys()
    return not _loose_count(draft)


def _made_by_ceph_mgr(draft: Draft, change: Optional[Change]) -> bool:
    """Whether ceph-mgr carries out the change, which may take hours."""
    return change is not None and change.pending and change.is_accepted(draft.observed.osdmap)


def _only_merged_move(draft: Draft) -> bool:
    """Whether without norebalance, besides those that leave an OSD to be emptied, only PGs would
    move that are merged next: ceph-mgr removes their pins, and merges no PG that is remapped."""
    loose = list(loose_pgs(draft.campaign, draft.observed))
    return bool(loose) and not flag_is_coming(draft.campaign.holds) and all(
        _is_merged(draft, pgid) for pgid in loose)


def _awaited_by_pins(draft: Draft) -> Optional[Reason]:
    """Why PINNING does not end yet: PGs are not pinned, may still be remapped, or have no goals;
    None: it does."""
    peering = pgs_in_transition(draft.campaign, {**draft.pins, **draft.new_pins}, draft.observed,
                                draft.options.max_transition_ratio)
    if draft.to_pin:
        return _left_reason(draft)
    if draft.campaign.pinning.sent:
        return Reason(Code.PINS_SENT, 'waiting for %s to show in the OSDMap'
                      % plural(len(draft.campaign.pinning.sent), 'pin'))
    if peering:
        return Reason(Code.PEERING, '%s peering' % pgs_are(peering))
    if not _all_have_reported(draft):
        return _REPORTS
    return None if draft.observed.goals_fit else _NO_GOALS


def _left_reason(draft: Draft) -> Reason:
    """The reason to wait for PGs that are still to be pinned."""
    return Reason(Code.UNPINNED, '%s still to be pinned%s' % (
        pgs_are(draft.to_pin), _recovering(draft)))


def _recovering(draft: Draft) -> str:
    """Text on PGs that are pinned after their recovery; '' if there are none."""
    degraded = recovering_count(draft.campaign)
    return ' (%d of them must recover first)' % degraded if degraded else ''


def _all_have_reported(draft: Draft) -> bool:
    """Whether all PGs have reported their states since the phase began and the last pins were
    sent."""
    last = max(draft.campaign.pinning.sent_at, draft.campaign.phase_since)
    return draft.now - last > draft.observed.stats_period + 1


def _pinned_summary(draft: Draft) -> str:
    text = '%s pinned' % pgs_are(draft.pin_count)
    if draft.campaign.pinning.unpinnable:
        text += ', %d cannot be pinned' % len(draft.campaign.pinning.unpinnable)
    return text


def _pinned(draft: Draft) -> Draft:
    """One turn of PINNED: pin what others remap, and wait for the start."""
    draft = draft.then(drop_goals_planned_once, pin_remapped)
    draft = _borrow_settings(draft, norebalance=not _yields_to_evacuation(draft))
    excess = unpinnable_excess(draft.campaign, _size_of_campaign(draft), draft.options)
    if draft.to_pin:
        return draft.report(_left_reason(draft))
    if excess:
        return draft.because(Code.UNPINNABLE, excess)
    if _osds_arriving(draft):
        return draft.report(*_osds_arriving(draft))
    if draft.campaign.automatic:
        return draft.enter(Phase.RELEASING, 'automatically')
    return draft.because(Code.AWAITS_START,
                         _pinned_summary(draft) + '; "campaign start" releases them')


def _osds_arriving(draft: Draft) -> List[Reason]:
    """Why an automatic expansion does not release PGs yet; []: it may. The OSDs of a new host start
    one by one, and the first would receive the PGs of all."""
    settle_seconds = draft.options.auto_expand_settle
    unchanged_seconds = draft.now - draft.observed.osds_or_crush_changed
    if draft.campaign.origin.trigger != 'auto' or unchanged_seconds >= settle_seconds:
        return []
    return [Reason(Code.OSDS_ARRIVING, 'CRUSH or the OSDs changed %d s ago; waiting for %g s '
                   'without a change (auto_expand_settle)' % (unchanged_seconds, settle_seconds))]


def _releasing(draft: Draft) -> Draft:
    """One turn of RELEASING and HOLDING: pin what others have remapped, set the pace, and release
    PGs unless something holds them back."""
    draft = draft.then(_end_pause, drop_goals_planned_once, pin_remapped)
    excess = unpinnable_excess(draft.campaign, _size_of_campaign(draft), draft.options)
    # CRUSH was changed outside perfguard: no PG may move for that before it is pinned.
    unguarded = bool(draft.to_pin or excess or draft.campaign.pinning.sent
                     or flag_is_coming(draft.campaign.holds))
    pace_before, draft = draft.campaign.pace, set_pace(draft)
    degraded = others_degraded(draft)
    draft = set_copying(draft, pace_before, degraded)
    obstacles = _obstacles(draft, degraded)
    draft = replace(draft, stops=obstacles.partial_stops)
    # PGs without pins are released by clearing norebalance, others by removing their pins.
    keeps_loose = bool(obstacles.loose and (
        obstacles.stops or obstacles.may_not_begin or _confirming(draft)))
    norebalance = (draft.campaign.orders.paused or unguarded or draft.campaign.pace.halted
                   or keeps_loose) and not _yields_to_evacuation(draft)
    if not norebalance:
        draft = adopt_unpinnable(draft, obstacles.loose)
    draft = _borrow_settings(draft, norebalance=norebalance)
    if draft.to_pin:
        draft = draft.report(_left_reason(draft))
    if is_still(draft):
        draft = pin_back(draft, _to_pin_back(draft))
    if excess:
        # It was started, so it continues once recovery or the operator has handled these PGs.
        return draft.set(automatic=True).enter(Phase.PINNED, excess).because(
            Code.UNPINNABLE, excess)
    held_back = _held_back(draft, obstacles)
    if held_back is not None:
        return held_back
    draft = replace(draft.enter(Phase.RELEASING), relieved=obstacles.relieved)
    if not draft.settings_in_force or unguarded:
        return draft.because(Code.SETTINGS, 'waiting until flags and pins are in force')
    if not draft.observed.goals_fit:
        return draft.report(_NO_GOALS)
    # A rollback in tranches keeps its pins until the last one, so that no PG moves twice.
    return _complete(draft) if draft.campaign.keeps_pins \
        else draft.then(keep_stayers, release_more, _complete)


def _complete(draft: Draft) -> Draft:
    """Once all PGs have been released and are in place: go on with what is left of the change, else
    to FINISHING."""
    if draft.campaign.flights.in_flight or draft.pin_count and not draft.campaign.keeps_pins:
        return draft
    unclean = _unclean(draft)
    draft = draft.report(*unclean.reasons)
    if not unclean.wait_is_over:
        return draft
    if draft.campaign.moving_first:
        return draft.enter(Phase.PINNING, 'all PGs are where the change places them')
    cleaned = remove_needless_pairs(draft)
    if cleaned is not draft:
        return cleaned.because(Code.UNCLEAN, 'removing upmaps that the change of CRUSH has made '
                               'unnecessary')
    following = following_tranche(draft)
    if following is not None:
        return _begin_tranche(draft, following)
    change = draft.campaign.change
    if draft.pin_count and isinstance(change, WeightChange):
        # Others have set the weights that were left: this tranche was the last one.
        return draft.set(change=replace(change, share=1.0))
    closing = closing_change(draft)
    if closing is not None:
        # It was started, so it continues.
        return draft.set(change=closing, automatic=True).enter(
            Phase.PINNING, 'CRUSH weight 0 follows for ' + osds_text(closing.weights))
    return draft.enter(Phase.FINISHING,
                       pgs(draft.campaign.progress.released) + ' released' + _refilled(draft))


def _begin_tranche(draft: Draft, change: Change) -> Draft:
    """Pin and release again, for the next tranche of the change."""
    draft = report_left_out(draft, draft.campaign.change, change)
    # It was started, so it continues.
    return draft.set(change=change, automatic=True).enter(
        Phase.PINNING, 'tranche %d of %d of the CRUSH change follows' % (
            change.tranche + 1, change.tranches))


def _refilled(draft: Draft) -> str:
    """Text on OSDs of a drain to which others have given a weight meanwhile, for example by
    setting an older CRUSH map."""
    campaign, weights = draft.campaign, draft.observed.crush.weights()
    osds = [osd for osd in campaign.drained if weights.get(osd, 0.0) > DRAINED_WEIGHT]
    return '; not drained, because others gave them a CRUSH weight: ' + osds_text(osds) \
        if osds else ''


class _Obstacles(NamedTuple):
    """What prevents releases."""
    #: Moves of PGs without pins, as of loose_moves.
    loose: Mapping[str, Move]
    #: Stop conditions of releases that touch certain OSDs or pools.
    partial_stops: Tuple[Stop, ...]
    #: Stop conditions of all releases.
    stops: Tuple[Reason, ...]
    #: Reasons why no release may begin now, while PGs in flight continue to move.
    may_not_begin: Tuple[Reason, ...]
    #: OSDs that are too full, if only the time window is closed: PGs that leave them may be
    #: released.
    relieved: FrozenSet[int] = frozenset()


def _obstacles(draft: Draft, degraded: bool) -> _Obstacles:
    """What prevents releases now: for all PGs, or only for those on some OSDs and pools.
    `degraded`: PGs are degraded that the campaign has not released."""
    loose, failing = loose_moves(draft), failing_osds(draft)
    general_stops, partial_stops = split_by_scope(
        all_stops(draft, failing), burdened_osds(draft, failing))
    mon_disk = [stop.reason for stop in general_stops if stop.reason.code == Code.MON_DISK]
    stops = [stop.reason for stop in general_stops if stop.reason not in mon_disk]
    if draft.campaign.pace.halted:
        stops.append(_halted(draft))
    stops += stopped_moves(draft, loose, partial_stops) + _osds_arriving(draft)
    # The mons trim OSDMaps only while all PGs are clean: PGs in flight must arrive, and those that
    # only norebalance keeps in place must move.
    untrimmed = [] if loose else mon_disk + maps_to_trim(draft, degraded)
    may_not_begin = (*out_of_hours(draft), *untrimmed)
    is_only_closed = [reason.code for reason in may_not_begin] == [Code.WINDOW_CLOSED]
    # A rollback that keeps its pins releases none, and would begin its next tranche.
    may_relieve = is_only_closed and not loose and not draft.campaign.keeps_pins
    return _Obstacles(loose, tuple(partial_stops), tuple(stops), may_not_begin,
                      relieved=relieved_osds(draft) if may_relieve else frozenset())


def _none_may_begin(draft: Draft, obstacles: _Obstacles) -> bool:
    """Whether PGs are left to be released, or a part of the change to be made, and neither may
    begin now."""
    if not obstacles.may_not_begin:
        return False
    in_flight = draft.campaign.flights.in_flight
    if obstacles.loose or any(pgid not in in_flight for pgid in draft.pins):
        return not obstacles.relieved
    return not in_flight and _change_is_left(draft)


def _change_is_left(draft: Draft) -> bool:
    """Whether a part of the change follows once all PGs have been released and are in place."""
    return draft.campaign.moving_first or following_tranche(draft) is not None \
        or closing_change(draft) is not None


def _held_back(draft: Draft, obstacles: _Obstacles) -> Optional[Draft]:
    """The draft of a turn that releases no PG; None: nothing prevents releases."""
    if draft.campaign.orders.paused:
        return draft.enter(Phase.HOLDING, 'paused by the operator').because(
            Code.PAUSED, 'paused by the operator%s; "campaign resume" continues'
            % _pause_left(draft)).report(*obstacles.stops)
    if obstacles.stops:
        if draft.campaign.phase is Phase.RELEASING:
            # Releases resume with half of the limit.
            draft = draft.set(pace=pace_after_stop(draft.campaign.pace))
        return draft.enter(Phase.HOLDING, '; '.join(texts(obstacles.stops))).set(
            progress=replace(draft.campaign.progress, stopped=draft.now)).report(*obstacles.stops)
    if _none_may_begin(draft, obstacles):
        return draft.enter(Phase.HOLDING, '; '.join(texts(obstacles.may_not_begin))).report(
            *obstacles.may_not_begin)
    if _confirming(draft):
        return draft.because(Code.CONFIRMING,
                             'waiting one report to confirm that the stop condition has cleared')
    return None


def _end_pause(draft: Draft) -> Draft:
    """Resume once the pause has expired; until then, note from time to time how much of it is
    left."""
    campaign, orders = draft.campaign, draft.campaign.orders
    if not orders.paused or not orders.paused_until or draft.now < orders.paused_until:
        return draft.set(orders=orders.with_pause_counted(draft.now))
    return draft.set(orders=orders.resumed()).event(
        'pause', 'campaign %d continues' % campaign.id, 'the pause has expired')


def _pause_left(draft: Draft) -> str:
    seconds = draft.campaign.orders.paused_until - draft.now
    if seconds <= 0.0:
        return ''
    return ' for another %s' % plural(max(1, round(seconds / 60)), 'minute')


def _confirming(draft: Draft) -> bool:
    """Whether a stop condition has cleared that may recur with the next report: wait, to avoid
    flapping."""
    return draft.now - draft.campaign.progress.stopped < draft.observed.stats_period


class _Unclean(NamedTuple):
    """What the end of releases waits for."""
    #: All PGs have reported that they are in place, or have had enough time for it.
    wait_is_over: bool
    reasons: Tuple[Reason, ...] = ()


def _unclean(draft: Draft) -> _Unclean:
    """Whether the campaign waits for PGs to become clean, or has waited long enough."""
    counts, campaign = draft.observed.signals.counts, draft.campaign
    # PGs that have nowhere to move (`immovable_count`) or leave OSDs to be emptied remain remapped.
    unclean = counts.in_transition + max(
        0, counts.remapped - immovable_count(campaign) - len(draft.observed.evacuation))
    idle = draft.now - max(campaign.pinning.sent_at, campaign.progress.progressed)
    if unclean:
        waited = min(idle, draft.now - campaign.phase_since)
        return _Unclean(waited > FINISH_PATIENCE_SECONDS, (Reason(
            Code.UNCLEAN, 'waiting for %s to become clean' % pgs(unclean)),))
    if idle <= draft.observed.stats_period + 1:
        return _Unclean(False, (_REPORTS,))
    return _Unclean(True)


def _finishing(draft: Draft) -> Draft:
    """One turn of FINISHING: wait for PGs in flight, give everything back, and end."""
    if draft.campaign.orders.keep:
        draft = _hand_over(draft)
    if draft.campaign.flights.in_flight:
        return _await_arrivals(draft)
    draft = _borrow_settings(draft, norebalance=False, quiet=False)
    if not draft.settings_in_force:
        return draft.report(_GIVING_BACK)
    unclean = _unclean(draft)
    draft = draft.report(*unclean.reasons)
    if _must_tidy(draft):
        return draft.report(_TIDYING)
    return _end(draft, Phase.DONE) if unclean.wait_is_over else draft


def _await_arrivals(draft: Draft) -> Draft:
    """One turn of FINISHING with PGs in flight: until they have arrived, client latency may halt
    them and slow their copying, as in RELEASING."""
    pace_before, draft = draft.campaign.pace, set_pace(draft)
    draft = set_copying(draft, pace_before, others_degraded(draft))
    halted = draft.campaign.pace.halted
    draft = _borrow_settings(draft, norebalance=(halted or flag_is_coming(draft.campaign.holds))
                             and not _yields_to_evacuation(draft))
    draft = draft.because(Code.IN_FLIGHT, '%s still in flight'
                          % pgs_are(len(draft.campaign.flights.in_flight)))
    return draft.report(_halted(draft)) if halted else draft


def _halted(draft: Draft) -> Reason:
    return Reason(Code.HALTED, '%s until client latency is back within its limit: %s' % (
        'no PG is released' if _is_flag_cleared(draft) else 'all movement is halted',
        draft.campaign.pace.why))


def _must_tidy(draft: Draft) -> bool:
    """Whether the store still contains pins that were forgotten: the next campaign must not find
    them after a restart."""
    return bool(draft.unpins) or not draft.pins.is_tidy


def _hand_over(draft: Draft) -> Draft:
    """finish --keep: the pins stay in the OSDMap as ordinary upmaps."""
    draft = _forget_balance_moves(draft)
    draft = keep(draft, [pgid for pgid in draft.pins
                         if pgid not in draft.campaign.flights.in_flight
                         and pgid not in draft.unpins], mark=None)
    return draft.set(pinning=replace(draft.campaign.pinning, sent={}))


def _forget_balance_moves(draft: Draft) -> Draft:
    """Forget the PGs that were never pinned and would only move for the balance."""
    in_flight = draft.campaign.flights.in_flight
    return draft.forget_pins([pgid for pgid, pin in draft.pins.items()
                              if moves_for_balance(pin) and pgid not in in_flight])


def _aborting(draft: Draft) -> Draft:
    """One turn of ABORTING: pin back what moves, then roll the change back if that was ordered, or
    give back what was borrowed, and end."""
    draft = settle_change(draft)
    if draft.campaign.change is not None and draft.campaign.change.pending:
        return _await_abort(draft, Reason(
            Code.CRUSH_SENT, 'waiting for the result of the CRUSH change'))
    waited = draft.now - draft.campaign.phase_since
    if draft.campaign.flights.in_flight and not is_still(draft) \
            and waited <= draft.options.readback_timeout:
        return _await_abort(draft, Reason(
            Code.SETTINGS, 'waiting until norebalance is set, to pin back the PGs in flight'))
    draft = draft.then(pin_back, pin_remapped, _accept_last_tranche)
    reason = _awaited_by_abort(draft)
    if reason is not None:
        return _await_abort(draft, reason)
    draft = _forget_balance_moves(draft)
    if draft.campaign.rollback.wanted is not None:
        return _roll_back(draft, draft.campaign.rollback.wanted).enter(
            Phase.PINNING, 'restoring %s from before the campaign'
            % draft.campaign.rollback.wanted.subject)
    unpinned = _unpinned(draft)
    draft = _keep_settings(draft, unpinned)
    if not draft.settings_in_force:
        return draft.report(_GIVING_BACK)
    # The decision depends on what is in force of the change; `keep_part_in_force` drops the rest.
    draft = keep_part_in_force(draft)
    held = _awaits_decision(draft, unpinned)
    if not held and _must_tidy(draft):
        return draft.report(_TIDYING)
    return _end(draft.set(held=held), Phase.ABORTED)


def _await_abort(draft: Draft, reason: Reason) -> Draft:
    """Keep norebalance set while the abort waits."""
    return _borrow_settings(draft, norebalance=True).report(reason)


def _awaited_by_abort(draft: Draft) -> Optional[Reason]:
    """What to wait for after PGs were pinned back; None: nothing."""
    campaign = draft.campaign
    # Recovery may take hours, or never end: such PGs are left like those that cannot be pinned.
    unpinned = draft.to_pin - pinned_after_recovery(draft)
    if unpinned or campaign.pinning.sent or campaign.flights.in_flight:
        return Reason(Code.PINS_SENT, '%s being pinned back' % pgs_are(
            unpinned + len(campaign.pinning.sent) + len(campaign.flights.in_flight)))
    if not _all_have_reported(draft):
        return _REPORTS
    # A peering PG may be remapped a moment later, but the abort must not wait for it forever.
    peering = pgs_in_transition(campaign, draft.pins, draft.observed,
                                draft.options.max_transition_ratio)
    if peering and draft.now - campaign.phase_since <= STUCK_GOALS_SECONDS:
        return Reason(Code.PEERING, '%s peering' % pgs_are(peering))
    return None


def _roll_back(draft: Draft, change: Change) -> Draft:
    """Replace the change by the one that undoes it, and pin PGs so that they end with their upmaps
    from before."""
    campaign = draft.campaign
    # The pins lead back to the upmaps from before, not to a balanced state.
    pins = {pgid: pin for pgid, pin in without_goals(draft.pins).items()
            if draft.pin_of(pgid) is not None}
    # PGs that the campaign has moved by upmaps, which are no pins, return as well.
    for pgid, led in campaign.ahead.items():
        pin, present = draft.pin_of(pgid), draft.observed.osdmap.entry(pgid)
        if not is_mixture(present if pin is None else pin.before, led.entry, led.before):
            continue  # others have set another upmap since
        if pin is not None:
            pins[pgid] = replace(pin, before=led.before, goal=None)
        elif present != led.before:
            pins[pgid] = PinRecord(led.before, present)
    return draft.note_pins(pins).set(
        change=change, rollback=campaign.rollback.started(campaign.change), target='crush',
        pinning=replace(campaign.pinning.tried_again(), goals=GoalsMark()))


def _awaits_decision(draft: Draft, unpinned: Sequence[str]) -> bool:
    """Whether the operator has to decide how an aborted campaign ends. `unpinned`: PGs that only
    norebalance keeps in place."""
    change = draft.campaign.change
    return bool(draft.pin_count or unpinned or _begun_pools(draft)
                or change is not None and change.partly)


def _begun_pools(draft: Draft) -> FrozenSet[int]:
    """The pool whose PGs have moved for a change that is not in force yet, if any."""
    change = draft.campaign.change
    return frozenset() if change is None else change.begun_pools(draft.observed.osdmap)


def _unpinned(draft: Draft) -> List[str]:
    """PGs without pins that only norebalance keeps in place.

    The recorded reason may date from a time when an OSD was down; then it does not show whether
    CRUSH has a place for the PG.
    """
    arriving = frozenset(moved_by_last_tranche(draft))
    return [pgid for pgid, why in draft.campaign.pinning.unpinnable.items()
            if pgid in draft.observed.osdmap.pg_temp and pgid not in draft.observed.evacuation
            and pgid not in arriving and why != INCOMPLETE and _may_move(draft, pgid)
            and not _is_merged(draft, pgid)]


def _is_merged(draft: Draft, pgid: str) -> bool:
    """Whether the PG is one of the next two that are merged, for which it must not be remapped."""
    pool = draft.pool(pgid)
    return pool is not None and bool(merge_reason(pool, pgid) or next_merge_reason(pool, pgid))


def moved_by_last_tranche(draft: Draft) -> List[str]:
    """PGs that the latest tranche of a change has remapped, under rules for which the mons cancel
    every upmap. An abort lets them arrive: they cannot be pinned back, and norebalance would keep
    the cluster unclean until the operator decides. [] if they are more than may be in flight now,
    and more than might be when the tranche was sent."""
    observation, change = draft.observed, draft.campaign.change
    if not isinstance(change, WeightChange) or not is_divisible(
            draft.campaign, observation.crush):
        return []  # there are no tranches
    pgids = [pgid for pgid in observation.osdmap.pg_temp
             for pool in [draft.pool(pgid)] if pool is not None
             and not observation.crush.keeps_upmaps(pool.crush_rule, pool.size)
             and pgid not in observation.evacuation and _may_move(draft, pgid)]
    return pgids if len(pgids) <= max(caps(draft.options).pgs, change.unpinned) else []


def _accept_last_tranche(draft: Draft) -> Draft:
    """Accept that the PGs of the last tranche move without a pin, now and if the campaign is
    resumed before they have arrived. An earlier acceptance has ended once PGs were taken into
    flight (adopt_unpinnable)."""
    orders = draft.campaign.orders
    return draft.set(orders=replace(orders, accepted_unpinnable=max(
        orders.accepted_unpinnable, len(moved_by_last_tranche(draft)))))


def _last_tranche_text(draft: Draft) -> str:
    """Text on the PGs of the last tranche that still move after an abort; '' if there are none."""
    pgids = moved_by_last_tranche(draft)
    return '; %s that cannot be pinned still %s to where CRUSH places %s' % (
        pgs(len(pgids)), *(('moves', 'it') if len(pgids) == 1 else ('move', 'them'))) \
        if pgids else ''


def _still_incomplete(draft: Draft) -> List[str]:
    """The remapped PGs that still have nowhere to move."""
    return [pgid for pgid in draft.campaign.pinning.incomplete
            if pgid in draft.observed.osdmap.pg_temp and not _may_move(draft, pgid)]


def _forget_unpinnable_except(draft: Draft, still_known: Sequence[str]) -> Draft:
    """Forget that PGs are unpinnable, except for these."""
    unpinnable = draft.campaign.pinning.unpinnable
    if len(still_known) == len(unpinnable):
        return draft
    return draft.set(pinning=replace(
        draft.campaign.pinning, unpinnable={pgid: unpinnable[pgid] for pgid in still_known}))


def _keep_settings(draft: Draft, unpinned: Sequence[str]) -> Draft:
    """Give back the settings that an aborted campaign does not need to keep every PG in place
    until the operator has decided. `unpinned`: PGs that only norebalance keeps in place.

    The balancer would move pinned PGs regardless of all caps, and a change of pg_num would remove
    upmaps of its pool. norebalance stays only for PGs that have no pin, and gives way to an
    evacuation.
    """
    pinned = {pgid for pgid in (*draft.pins, *draft.new_pins) if pgid not in draft.unpins}
    draft = draft.set(left=draft.pin_count)  # pins that remain until the decision
    return _borrow_settings(draft, norebalance=bool(unpinned) and not _yields_to_evacuation(draft),
                            quiet=_awaits_decision(draft, unpinned),
                            pools={*map(pool_of, pinned), *_begun_pools(draft)})


def _aborted(draft: Draft) -> Draft:
    """One turn of an ABORTED campaign that keeps PGs in place until the operator decides; it ends
    once there is none left."""
    unpinned = _unpinned(draft)
    draft = _forget_unpinnable_except(draft, [*unpinned, *_still_incomplete(draft)])
    draft = _keep_settings(draft, unpinned)
    campaign = draft.campaign
    if not _awaits_decision(draft, unpinned):
        if not draft.settings_in_force or _must_tidy(draft):
            return draft.report(_TIDYING if draft.settings_in_force else _GIVING_BACK)
        return draft.set(held=False).event('settings', 'campaign %d has no pins left'
                                           % campaign.id, 'balancer and autoscaler are given back')
    command_back = campaign.way_back(draft.observed.osdmap)
    return draft.because(
        Code.HELD_PINS, 'campaign %d is aborted and keeps %s pinned%s%s: "campaign resume" '
        '(%s)%s or "campaign finish --keep"' % (
            campaign.id, pgs(draft.pin_count + len(unpinned)), _recovering(draft),
            _parts_text(campaign) + _last_tranche_text(draft),
            _resume_does(draft), ', "%s"' % command_back if command_back else ''))


def _resume_does(draft: Draft) -> str:
    """What "campaign resume" does with an aborted campaign."""
    change = draft.campaign.change
    if change is not None and (change.stage is ChangeStage.WANTED or change.partly):
        return ('continues the rollback' if draft.campaign.rollback.begun
                else 'continues the change of CRUSH')
    return 'releases them'


def _end(draft: Draft, phase: Phase) -> Draft:
    """Enter DONE or ABORTED."""
    campaign = draft.campaign
    draft = draft.enter(phase, '%s released, %d kept as upmaps%s%s' % (
        pgs(campaign.progress.released), campaign.kept_now, _left_tiny(draft),
        _parts_text(campaign)))
    draft = draft.set(ended=draft.now, orders=campaign.orders.over())
    # A held campaign keeps settings borrowed, and leaves those alone that others have changed.
    return draft if campaign.held else draft.set(holds=campaign.holds.with_nothing_given_up())


def _parts_text(campaign: Campaign) -> str:
    return '' if campaign.change is None else campaign.change.parts_text


def _left_tiny(draft: Draft) -> str:
    """Text on OSDs that keep a tiny weight: the mons would drop the upmaps that keep PGs on them if
    they got weight 0, and these PGs would move at once."""
    osds = tiny_osds(draft)
    return '; CRUSH weight %s remains for %s: see "osds --drained"' % (
        TINY_WEIGHT, osds_text(osds)) \
        if osds else ''


_STEPS: Mapping[Phase, Rule] = {
    Phase.PREPARED: _prepared,
    Phase.PINNING: _pinning,
    Phase.PINNED: _pinned,
    Phase.RELEASING: _releasing,
    Phase.HOLDING: _releasing,
    Phase.FINISHING: _finishing,
    Phase.ABORTING: _aborting,
    Phase.ABORTED: _aborted,
}
