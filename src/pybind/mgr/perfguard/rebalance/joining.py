# SPDX-License-Identifier: LGPL-2.1-or-later
"""A change of CRUSH together with the pins that keep every PG where it is: a burst, in one epoch.

`_WAITS` is the table of what it waits for. The kinds of changes are in files of their own.

If the future mapping is not available, as in the preview of the order, or if the burst is split
over two epochs, the ordinary way remains: norebalance is set, and PGs that become remapped are
pinned.
"""
from dataclasses import replace
from typing import (AbstractSet, Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Optional,
                    Sequence, Tuple)

from ..cluster.crush import CrushRules
from ..cluster.evacuation import by_osd
from ..cluster.ports import Future, NoFuture, Outlook
from ..cluster.types import OsdSet, Pool, UpmapEntry, pool_of
from ..errors import Code, Reason
from ..observation import Observation
from ..options import Options
from ..text import listed, osds_text, pgs, pgs_are, plural
from ..upmap.pins import INCOMPLETE, Unpinnable, after_commit, without_targets
from ..upmap.semantics import apply_entry, raw_from_up
from ..watch.stop_conditions import is_muted, is_waived
from .campaign import Campaign, GoalsMark, Rollback
from .change import Change, ChangeStage, Planned
from .draft import Draft
from .epochs import pin_limit
from .goals import basis
from .holds import flag_is_coming, flags_settled, quiet_settled, waiting_text
from .join_plan import (NO_EVACUATION, PlannedFuture, bases_of, becomes_incomplete, mean_bytes,
                        moved_by_weights, plan_join, survives, undersized)
from .orders import is_tiny
from .pinning import STUCK_PINS_SECONDS, audit, pin_remapped
from .releasing import balancer_of_others, foreign_flags
from .throttle import caps, limit
from .types import TINY_WEIGHT, Action, Phase, PinRecord, SetEntry
from .weights import SHARE_MIN, WeightChange

#: Attempts after which the change counts as refused by the mons.
CHANGE_SEND_TIMES = 3
#: Maximum number of pins that are sent with a change, which always fit into one proposal of the
#: mons. The weights of further OSDs wait for the next burst; the weight of one OSD, a map, a rule
#: or a pg_num cannot be divided. PGs whose pins do not fit are remapped until they are pinned. If
#: these were most PGs of a large cluster, clients would stall.
MAX_BURST_PINS = 2000
#: Maximum number of PGs on a drained OSD that an event names.
NAMED_FEW_PGS = 10
_READ_BACK = 'read back from the OSDMap'


def wants_outlook(campaign: Campaign, observation: Observation) -> bool:
    """Whether the loop must compute the outlook (where CRUSH will place the PGs): the change is
    about to be sent, and nothing else of the campaign changes the mapping."""
    change, holds = campaign.change, campaign.holds
    # What the change waits for may depend on it, and norebalance may yield to an evacuation then.
    yields = bool(observation.evacuation) and holds.flag is None
    # Pins that were sent change the mapping, but those of a pending change are its own.
    return (campaign.phase is Phase.PINNING and change is not None
            and change.stage is ChangeStage.WANTED and change.needs_outlook
            and (change.pending or not campaign.pinning.sent)
            and flags_settled(holds, observation.settings, norebalance=not yields, quiet=True))


def closing_change(draft: Draft) -> Optional[WeightChange]:
    """The change to weight 0 that closes a drain, or a rollback that empties OSDs, since the
    balancer takes an OSD of a tiny weight for one that lacks PGs. None: no OSD has a tiny weight,
    or the change of the campaign is the closing one."""
    change, osds = draft.campaign.change, tiny_osds(draft)
    if not osds or change is not None and change.closing:
        return None
    drained = {*osds, *draft.campaign.drained}
    return WeightChange(weights=dict.fromkeys(osds, 0.0), drained=tuple(sorted(drained)),
                        closing=True).begun(draft.observed)


def tiny_osds(draft: Draft) -> List[int]:
    """OSDs that still have a tiny weight, of the campaign's drain and of an aborted one that it
    continues."""
    campaign, weights = draft.campaign, draft.observed.crush.weights()
    drained = {*campaign.crush.draining, *campaign.drained}
    return sorted(osd for osd in drained if is_tiny(weights.get(osd, 0.0)))


def join(draft: Draft) -> Draft:
    """One step of a change: wanted -> sent -> landed."""
    change = draft.campaign.change
    assert change is not None
    if draft.campaign.pinning.undersized_pgs and draft.observed.new_map:
        draft = _forget_recovered(draft)
    if change.pending and change.landed(draft.observed):
        return _land(draft, change)
    impossible = change.impossible(draft.observed)
    if impossible:
        return draft.enter(Phase.ABORTING, impossible)
    # Others may have changed weights, or, after the first burst, purged OSDs of it: before, the
    # preview fails, and `_refuse_blind` aborts.
    remaining = change.remaining(draft.observed)
    if remaining != change:
        return report_left_out(draft, change, remaining).set(change=remaining)
    if change.stage is ChangeStage.WANTED:
        return _next_burst(draft, change)
    if change_is_overdue(draft.campaign, draft.observed, draft.options):
        return _send_again_or_give_up(draft, change)
    return draft.set(change=change.accepted(draft.observed)).because(
        Code.CRUSH_SENT, change.awaited(draft.observed))


def _next_burst(draft: Draft, change: Change) -> Draft:
    """Send the next burst, unless one of `_WAITS` applies."""
    if change.follows_parts and not change.pending:
        draft = pin_remapped(draft)  # PGs that the pins of the burst before have missed
    for wait in _WAITS:
        waiting = wait(draft, change)
        if waiting is not None:
            return waiting
    return _send(draft, change)


def report_left_out(draft: Draft, before: Optional[Change], change: Change) -> Draft:
    """Report the OSDs of `before` (None: no earlier change) that the change leaves out since others
    have set their weight, remove them, or have created them again. The change is what remains of
    `before`, or its next tranche. Purged OSDs are not reported."""
    if before is None:
        return draft
    weights = draft.observed.crush.weights()
    osds_by_reason: Dict[str, List[int]] = {}
    for osd in before.weights:
        if osd in weights and osd not in change.weights:
            osds_by_reason.setdefault(_why_left_out(osd, before, draft.observed), []).append(osd)
    for why, osds in osds_by_reason.items():
        draft = draft.event('join', 'the CRUSH weight of %s stays as it is' % osds_text(osds), why)
    return draft


def _why_left_out(osd: int, before: Change, observation: Observation) -> str:
    """Why a change leaves out an OSD of `before` that has a CRUSH weight."""
    is_filled = before.weights[osd] > observation.crush.weights()[osd]
    if is_filled and osd in observation.orchestrating.removing:
        return 'the orchestrator is removing the OSD'
    if not is_filled and osd in before.drained and osd in observation.other_device:
        return 'the OSD is on another device than the one whose drain was ordered'
    return 'it was changed outside perfguard'


class _NotEmpty(NamedTuple):
    """Drained OSDs on which PGs remain, so that they must keep the tiny weight."""
    #: None: it is not known which ones.
    osds: Optional[FrozenSet[int]]
    why: str


def _not_empty(draft: Draft, change: WeightChange, outlook: Outlook) -> Optional[_NotEmpty]:
    """The OSDs of a closing change (to weight 0) on which PGs remain, and why; None: no PG does.
    Weight 0 would move these PGs at once, since the mons drop pins to such OSDs. PGs that lack an
    OSD do not count: `_await_osds_or_divide` waits for them."""
    if isinstance(outlook, NoFuture):
        return _NotEmpty(None, 'cannot preview weight 0: ' + outlook.reason)
    planned = _planned(draft, change, outlook)
    awaited = undersized(planned, outlook)
    # INCOMPLETE: CRUSH finds only OSDs that have the data, so the PG stays there without a pin.
    would_move = {pgid: _why_it_stays(draft, pgid, change, why.reason)
                  for pgid, why in planned.unpinnable.items()
                  if why != INCOMPLETE and pgid not in awaited}
    would_move.update(
        (pgid, 'CRUSH would find too few OSDs')
        for pgid in (*planned.unpinnable, *planned.pins)
        if becomes_incomplete(pgid, outlook, draft.observed.osdmap))
    if not would_move:
        return None
    osds = {osd for pgid in would_move for osd in outlook.pgs[pgid].acting} & change.weights.keys()
    return _NotEmpty(frozenset(osds), 'with weight 0, %s could not be pinned: %s' % (
        pgs(len(would_move)),
        listed(['PG %s (%s)' % row for row in sorted(would_move.items())], NAMED_FEW_PGS)))


def _close_emptied_only(draft: Draft, change: WeightChange, not_empty: _NotEmpty) -> Draft:
    """Give weight 0 only to the OSDs without PGs; the others keep the tiny weight. All keep it if
    it is not known which are empty, if no OSD or every one is, or if the change was sent
    already."""
    emptied = {osd: weight for osd, weight in change.weights.items()
               if not_empty.osds is not None and osd not in not_empty.osds}
    if not_empty.osds is None or change.pending or len(emptied) in (0, len(change.weights)):
        return _keep_tiny_weight(draft, change, not_empty.why)
    return _report_tiny_weight(draft, not_empty.osds, not_empty.why).set(
        change=replace(change, weights=emptied, burst=0, gathers=False))


def _why_it_stays(draft: Draft, pgid: str, change: WeightChange, why: str) -> str:
    """Why a PG is still on an OSD that was drained; `why` if it is not. `change`: the closing one,
    which has drained OSDs alone."""
    place, entry = draft.observed.placement(pgid), draft.observed.osdmap.entry(pgid)
    drained_osds = change.weights.keys() & set(place.up if place is not None else ())
    if not drained_osds:
        return why
    cause = 'an upmap keeps' if drained_osds & set(entry.targets) else 'CRUSH still places'
    return '%s it on %s' % (cause, osds_text(drained_osds))


def _keep_tiny_weight(draft: Draft, change: WeightChange, why: str) -> Draft:
    """End the change to weight 0: OSDs that do not have it yet keep the tiny weight."""
    if change.pending:
        draft = _take_back_burst(draft, change)
    closed = replace(change, weights={osd: change.weights[osd] for osd in change.done}, burst=0,
                     times=0, gathers=False, stage=ChangeStage.LANDED)
    return _report_tiny_weight(draft, change.weights.keys() - set(change.done), why).set(
        change=closed, phase_since=draft.now)


def _report_tiny_weight(draft: Draft, osds: AbstractSet[int], why: str) -> Draft:
    """Report that these OSDs do not get weight 0."""
    return draft.event(
        'join', 'the CRUSH weight of %s stays %s' % (osds_text(osds), TINY_WEIGHT), why)


def _without_gathering(draft: Draft, change: Change) -> Draft:
    """Before a wait that may be long: let the mons no longer gather commands, since clients would
    wait for each of their proposals."""
    return draft.set(change=replace(change, gathers=False))


def _await_parts(draft: Draft, change: Change) -> Optional[Draft]:
    """Wait for the pins of earlier parts of the change, and for peering PGs."""
    if not change.follows_parts or change.pending or not _unsettled(draft, change):
        return None
    return _without_gathering(draft, change).because(Code.PINS_SENT, change.awaited_pins)


def _unsettled(draft: Draft, change: Change) -> bool:
    """Whether PGs have not reported since the last burst, are peering, or still lack their pins."""
    if change.awaits_reports and draft.now - change.since <= draft.observed.stats_period + 1:
        return True
    peering = draft.observed.signals.counts.in_transition > 0
    return bool(draft.to_pin or draft.campaign.pinning.sent
                or peering and draft.now - change.since <= STUCK_PINS_SECONDS)


def _await_settings(draft: Draft, change: Change) -> Optional[Draft]:
    """Wait for the settings that the change requires; None: the cluster has them."""
    others_balance = balancer_of_others(draft)
    if draft.settings_in_force and not others_balance:
        return None
    # The interval is raised last, for the burst alone, as is norebalance if it has yielded to an
    # evacuation. Both take effect soon, and are no reason to lower the interval again.
    holds, settings = draft.campaign.holds, draft.observed.settings
    only_for_burst = not others_balance and (
        quiet_settled(holds, settings, quiet=True) if flag_is_coming(holds)
        else flags_settled(holds, settings, norebalance=True, quiet=True))
    return (draft if only_for_burst else _without_gathering(draft, change)).because(
        Code.SETTINGS, waiting_text(
            settings, 'norebalance is %s, the balancer is off, and paxos_propose_interval is %s' % (
                'cleared' if holds.flag is not None and holds.flag.returning else 'set',
                'raised' if change.gathers else 'not raised')))


def _await_outlook(draft: Draft, change: Change) -> Optional[Draft]:
    """Wait for the outlook, which the tool thread computes; None: it is known, or not needed."""
    if draft.observed.outlook is not None or not change.needs_outlook:
        return None
    failure = draft.observed.outlook_failure
    return _without_gathering(draft, change).because(
        Code.OUTLOOK, 'computing where CRUSH will place the PGs%s' % (
            failure and ' again: ' + failure))


def _leave_pgs_in_place(draft: Draft, change: Change) -> Optional[Draft]:
    """Keep the tiny weight of drained OSDs on which PGs remain."""
    if not isinstance(change, WeightChange) or not change.closing or draft.observed.outlook is None:
        return None
    not_empty = _not_empty(draft, change, draft.observed.outlook)
    return None if not_empty is None else _close_emptied_only(draft, change, not_empty)


def _refuse_blind(draft: Draft, change: Change) -> Optional[Draft]:
    """Abort if the change cannot be previewed, unless the operator has accepted that."""
    outlook = draft.observed.outlook
    if not isinstance(outlook, NoFuture) or change.ordinary:
        return None
    return draft.enter(Phase.ABORTING, 'cannot preview the CRUSH change: %s' % outlook.reason)


def _await_first_moves(draft: Draft, change: Change) -> Optional[Draft]:
    """Note where PGs move before the change is made, and enter PINNED, after which they are
    released. None: no PG moves first, the change is pending, or the outlook is not known."""
    outlook = draft.observed.outlook
    if change.pending or not isinstance(outlook, Future):
        return None
    moves = change.first_moves(draft.observed, outlook, draft.pins)
    if moves is None:
        return None
    return _move_first(draft, change, outlook, moves).enter(Phase.PINNED, change.why_first)


def _move_first(draft: Draft, change: Change, future: Future, moves: Planned) -> Draft:
    """Pin the PGs that move before the change is made, with their new places as goals."""
    # PGs with an earlier pin that move no further stay where they are by their upmaps, which are
    # removed after the change.
    settled = [pgid for pgid in draft.pins if pgid in future.pgs and pgid not in moves.pins]
    if change.moves_only:
        # The goals are dropped once this basis has changed (`drop_goals_planned_once`).
        goals = GoalsMark(number=1, basis=basis(
            draft.observed.osdmap, draft.observed.crush, set(map(pool_of, moves.pins))))
        draft = draft.set(pinning=replace(draft.campaign.pinning, goals=goals))
    return draft.forget_pins(settled).note_pins(moves.pins).set(change=change.moves_noted()).event(
        'plan', '%s %s' % (pgs(len(moves.pins)), change.first_moves_text(draft.observed.osdmap)),
        'the current rule allows their new places')


def _await_recovery_between_passes(draft: Draft, change: Change) -> Optional[Draft]:
    """As `_await_recovery_of_pool`, before PGs move in a further pass: they recover one after the
    other, and each would take one of the few passes."""
    return _await_recovery_of_pool(draft, change) if change.passes else None


def _await_recovery_of_pool(draft: Draft, change: Change) -> Optional[Draft]:
    """Wait for PGs that cannot be pinned before they have recovered, if the change of their pool
    would remap more of them than it may (`harmful`): they leave OSDs that are to be emptied, or
    lack an OSD, which the operator may accept. None: there is nothing to wait for.

    Examined until the change is sent, as OSDs may fail at any time. Not once it is pending: it may
    take effect at any moment, and norebalance, which stays set for it, keeps PGs on their OSDs.
    """
    outlook = draft.observed.outlook
    if change.pending or not isinstance(outlook, Future):
        return None
    recovering = _recovering(draft, change, outlook)
    leaving = {pgid: draft.observed.evacuation[pgid] for pgid in recovering
               if pgid in draft.observed.evacuation}
    why_undersized = _why_await_osds(draft, len(recovering.keys() - leaving.keys() - set(
        draft.campaign.pinning.undersized_pgs)))
    awaited = {pgid: why for pgid, why in recovering.items()
               if pgid in leaving or why_undersized is not None}
    if not change.harmful(draft.observed, awaited):
        return None
    draft = _without_gathering(draft, change)
    if why_undersized is not None:
        draft = draft.report(why_undersized)
    return draft if not leaving else draft.because(
        Code.UNCLEAN, '%s leaving OSDs that are to be emptied (%s) and would be remapped by the '
        'change; waiting until no such PG is left' % (
            pgs_are(len(leaving)), osds_text(by_osd(leaving)))).report(*foreign_flags(
                draft.campaign.holds, draft.observed.osdmap.flags
                - draft.observed.settings.borrowed_elsewhere))


def _recovering(draft: Draft, change: Change, future: Future) -> Mapping[str, Unpinnable]:
    """PGs of the pool of a change that cannot be pinned, but will be possible to pin once they have
    recovered: they leave OSDs that are to be emptied, or lack an OSD. Only these are planned, since
    this may be repeated in each turn for hours."""
    pool = draft.observed.osdmap.pools.get(-1 if change.pool is None else change.pool)
    if pool is None:
        return {}
    evacuation = draft.observed.evacuation
    unsettled = {pgid: pg for pgid, pg in future.pgs.items()
                 if (pgid in evacuation or not pool.is_complete(pg.acting))
                 and pool_of(pgid) == pool.id}
    return _planned(draft, change, replace(future, pgs=unsettled)).unpinnable if unsettled else {}


def _await_osds_or_divide(draft: Draft, change: Change) -> Optional[Draft]:
    """Wait for OSDs that PGs lack, unless the operator accepts that (_why_await_osds); else, if the
    change requires too many pins at once, wait for the preview of a smaller part of it. None: there
    is nothing to wait for. Not examined again once the burst is known (`gathers`)."""
    outlook = draft.observed.outlook
    # moves_first: PGs have moved, and few may be remapped (`_await_recovery_of_pool`, `_send`).
    if change.gathers or change.moves_first or not isinstance(outlook, Future):
        return None
    planned = _planned(draft, change, outlook)
    newly_undersized = set(undersized(planned, outlook)).difference(
        draft.campaign.pinning.undersized_pgs)
    why_wait = _why_await_osds(draft, len(newly_undersized))
    if why_wait is not None:
        return draft.report(why_wait)
    return _divided(draft, change, planned, outlook) \
        if isinstance(change, WeightChange) else None


def _divided(draft: Draft, change: WeightChange, planned: Planned,
             future: Future) -> Optional[Draft]:
    """The draft with a smaller change if it requires too many pins at once, which is previewed
    before it is sent; None: it does not."""
    tranche, why = _in_tranches(draft, change, planned, future)
    if tranche != change:
        return draft.set(change=tranche).because(
            Code.OUTLOOK, why + '; computing it with a smaller part of the weights')
    entries = _entries_to_send(draft, planned)
    burst = change.in_bursts(entries, MAX_BURST_PINS)
    if burst == change:
        return None
    return draft.set(change=burst).because(
        Code.OUTLOOK, 'the change requires %d pins, too many for one epoch; changing fewer OSDs '
        'at a time' % entries)


def _await_interval(draft: Draft, change: Change) -> Optional[Draft]:
    """Wait for the longer interval in which the mons gather commands. All other waits may be long,
    so it is raised last, once all pins of the burst can be sent."""
    if change.gathers:
        return None
    return draft.set(change=replace(change, gathers=True)).because(
        Code.SETTINGS, 'waiting until paxos_propose_interval is raised')


#: What a change waits for before it is sent, in this order. Each returns the draft of a turn that
#: does not send it; None: the wait does not apply. `_leave_pgs_in_place` and `_refuse_blind` end
#: the waiting without a change.
_WAITS: Sequence[Callable[[Draft, Change], Optional[Draft]]] = (
    _await_parts, _await_settings, _await_outlook, _leave_pgs_in_place, _refuse_blind,
    _await_recovery_between_passes, _await_first_moves, _await_recovery_of_pool,
    _await_osds_or_divide, _await_interval)


def _forget_recovered(draft: Draft) -> Draft:
    """Forget accepted undersized PGs that have recovered: if they lack an OSD again, the change
    waits."""
    incomplete = []
    for pgid in draft.campaign.pinning.undersized_pgs:
        pool, place = draft.pool(pgid), draft.observed.placement(pgid)
        if pool is not None and (place is None or not pool.is_complete(place.acting)):
            incomplete.append(pgid)
    return draft.set(pinning=replace(draft.campaign.pinning, undersized_pgs=tuple(incomplete)))


def _why_await_osds(draft: Draft, newly_undersized: int) -> Optional[Reason]:
    """Why the change waits for PGs that lack an OSD; None: it does not. Without pins, all these PGs
    would be copied to other OSDs at once, although the OSD may only have restarted.

    `newly_undersized`: the number of such PGs, without those that the order has accepted by name.
    The order has also accepted a number of others, `pinning.undersized`.
    """
    reason = Reason(Code.DEGRADED, '%s undersized and would be remapped by the change; waiting '
                    'until the OSDs are back or the PGs have recovered ("campaign accept '
                    'DEGRADED" changes CRUSH anyway)' % pgs_are(newly_undersized))
    if newly_undersized <= draft.campaign.pinning.undersized \
            or is_muted(reason, draft.observed.signals) \
            or is_waived(reason, draft.campaign.orders.acknowledged):
        return None
    return reason


def _in_tranches(draft: Draft, change: WeightChange, planned: Planned,
                 future: Future) -> Tuple[WeightChange, str]:
    """The change with a smaller tranche if the present one requires too many pins, or moves too
    many PGs without a pin, and why. The same change, and '', if it does not, or cannot be
    divided any further."""
    other_pins = len(draft.pins.keys() - planned.pins.keys())
    max_pins = pin_limit(draft.options, draft.observed.osdmap, draft.pin_count)
    # A rollback makes pins unnecessary: it is divided only for PGs that cannot be pinned.
    waived = draft.campaign.rollback.begun or is_waived(
        Reason(Code.PIN_LIMIT, ''), draft.campaign.orders.acknowledged)
    # Number, limit, and text.
    limits = [(0 if waived else len(planned.pins), max_pins - other_pins,
               'the change requires %d pins (limit %d, max_pins)' % (len(planned.pins), max_pins))]
    moving = moved_by_weights(planned, future, draft.observed.osdmap)
    max_moving = change.moving_at_once(
        limit(draft.campaign.pace, draft.options).caps, draft.observed, moving,
        mean_bytes(moving, future, draft.observed))
    limits.append((len(moving), max_moving, '%s that the change moves cannot be pinned (limit %d, '
                   'as for PGs in flight)' % (pgs(len(moving)), max_moving)))
    # The limit that is exceeded by the largest factor.
    number, bound, why = max(limits, key=lambda row: row[0] / max(1, row[1]))
    # OSDs of earlier bursts may have the weights of this tranche already.
    in_bursts = bool(change.done or change.burst)
    if number <= max(0, bound) or in_bursts or change.share <= SHARE_MIN \
            or not is_divisible(draft.campaign, draft.observed.crush):
        return change, ''
    return change.divided(number, max(1, bound), draft.observed.crush.weights()), why


def is_divisible(campaign: Campaign, crush: CrushRules) -> bool:
    """Whether the change comes in tranches if it is too large."""
    change = campaign.change
    return change is not None and not change.closing and change.is_divisible(crush)


def following_tranche(draft: Draft) -> Optional[WeightChange]:
    """The change with its next tranche, once the PGs of the present one have moved; None: no
    tranche follows, or others have set all weights that are left."""
    change = draft.campaign.change
    if not isinstance(change, WeightChange) or change.is_last:
        return None
    following = change.next_tranche(draft.observed.crush.weights())
    return following if following.weights else None


def _send(draft: Draft, change: Change) -> Draft:
    """Send the change of CRUSH together with the pins that it requires; without pins if the outlook
    is not available (NoFuture, which the operator has accepted) or not needed (None)."""
    outlook, drained = draft.observed.outlook, change.drained
    planned = Planned()
    if isinstance(outlook, Future):
        drained = change.drains(draft.observed.crush, outlook)
        planned = _planned(draft, change, outlook)
        # Those were awaited, are few, or were accepted.
        recovering = _recovering(draft, change, outlook)
        harm = change.harmful(draft.observed, {
            pgid: why for pgid, why in planned.unpinnable.items() if pgid not in recovering})
        if harm:
            return draft.enter(Phase.ABORTING, harm)
        if not _restores_upmaps(draft, change):
            # As pins, upmaps that it makes unnecessary are removed once it is read back.
            draft = draft.note_pins({
                pgid: pin for pgid, pin in change.upmaps_to_remove(
                    draft.observed.osdmap, outlook).items() if draft.pin_of(pgid) != pin})
    if not draft.campaign.crush.is_own(draft.observed):
        # Others have changed CRUSH before: `_note_crush_as_own` must not take the result for the
        # campaign's.
        draft = draft.set(crush=replace(draft.campaign.crush, own=-1))
    draft = _redirect_old_pins(draft, drained)
    draft = draft.send(*change.commands(draft.observed))
    if isinstance(outlook, NoFuture):
        draft = _adopt_upmaps(draft, drained).event(
            'join', 'the change remaps PGs first and perfguard pins them afterwards',
            outlook.reason)
    elif outlook is not None:
        draft = _send_pins(draft, planned, outlook)
        if isinstance(change, WeightChange):
            change = replace(change, unpinned=_accepted_unpinned(draft, planned, outlook))
            draft = draft.set(orders=replace(draft.campaign.orders, accepted_unpinnable=max(
                change.unpinned, draft.campaign.orders.accepted_unpinnable)))
    fingerprint, tunables = change.expected(draft.observed)
    return draft.set(change=replace(
        change.sent(draft.observed), stage=ChangeStage.SENT, since=draft.now,
        times=change.times + 1, fingerprint=fingerprint, tunables=tunables, gathers=False),
        pinning=replace(draft.campaign.pinning, sent_at=draft.now)).event(
            'join', 'changing %s and pinning %s in one OSDMap epoch' % (
                change.subject, pgs(len(planned.pins))),
            '%d of them with pg_upmap' % planned.vectors)


def _accepted_unpinned(draft: Draft, planned: Planned, future: Future) -> int:
    """The number of PGs that this tranche moves without a pin, if that counts as accepted: the
    change comes in tranches, and these PGs are no more than may be in flight. Else 0."""
    moving = len(moved_by_weights(planned, future, draft.observed.osdmap))
    is_few = moving <= caps(draft.options).pgs \
        and is_divisible(draft.campaign, draft.observed.crush)
    return moving if is_few else 0


def _restores_upmaps(draft: Draft, change: Change) -> bool:
    """Whether the change is that of a rollback, whose pins lead back to the upmaps from before the
    campaign. Its closing change, to weight 0, has no such pins."""
    return draft.campaign.rollback.begun and not change.closing


def _planned(draft: Draft, change: Change, outlook: Future) -> Planned:
    """The pins and upmaps that the change requires."""
    osdmap, drained = draft.observed.osdmap, change.drains(draft.observed.crush, outlook)
    # A change of a pool waits for these PGs (`_await_recovery_of_pool`).
    evacuation = draft.observed.evacuation if change.pool is None else NO_EVACUATION
    if _restores_upmaps(draft, change):
        return plan_join(osdmap, outlook, drained, bases=bases_of(draft.pins),
                         evacuation=evacuation)
    if change.removes_upmaps:
        # Empty bases: these PGs get no upmap if they stay in place without one.
        return plan_join(osdmap, outlook, drained, bases=dict.fromkeys(
            change.upmaps_to_remove(osdmap, outlook), UpmapEntry()), evacuation=evacuation)
    return outlook.planned if isinstance(outlook, PlannedFuture) else plan_join(
        osdmap, outlook, drained, evacuation=evacuation)


def _entries_to_send(draft: Draft, planned: Planned) -> int:
    """The number of upmap entries to be sent."""
    osdmap = draft.observed.osdmap
    return sum(osdmap.entry(pgid) != pin.entry for pgid, pin in planned.pins.items()) \
        + len(planned.removed)


def _redirect_old_pins(draft: Draft, drained: OsdSet) -> Draft:
    """Keep pins that an aborted campaign left from being released to OSDs that are drained now."""
    if not drained:
        return draft
    return draft.note_pins({
        pgid: replace(pin, before=without_targets(pin.before, drained))
        for pgid, pin in draft.pins.items() if without_targets(pin.before, drained) != pin.before})


def _adopt_upmaps(draft: Draft, drained: OsdSet) -> Draft:
    """Note upmaps to drained OSDs as pins: they stay in force under the tiny weight, so their PGs
    have to be released."""
    osdmap = draft.observed.osdmap
    entries = {pgid: osdmap.entry(pgid) for pgid in (*osdmap.upmap_items, *osdmap.upmap_vectors)
               if draft.pin_of(pgid) is None}
    return draft.note_pins({pgid: PinRecord(without_targets(entry, drained), entry)
                            for pgid, entry in entries.items()
                            if without_targets(entry, drained) != entry})


def _send_pins(draft: Draft, planned: Planned, future: Future) -> Draft:
    """Note and send the pins of the change; pins that it makes unnecessary stay for its epoch."""
    pins: Dict[str, PinRecord] = {}
    actions: List[Action] = []
    for pgid, pin in planned.pins.items():
        old = draft.pin_of(pgid)
        pins[pgid] = pin if old is None else replace(pin, before=old.before, was=old.was)
        present = draft.observed.osdmap.entry(pgid)
        if present != pin.entry:
            actions.append(SetEntry(
                pgid, entry_for_both_maps(draft, pgid, pin.entry, future), present))
    pinning = draft.campaign.pinning.sending(
        [action.pgid for action in actions if isinstance(action, SetEntry)], draft.now)
    draft = draft.note_pins(pins).send(*actions)
    for pgid, entry in planned.removed.items():
        draft = _send_bridging_entry(draft, pgid, entry, future)
    return draft.set(pinning=pinning)


def _send_bridging_entry(draft: Draft, pgid: str, entry: UpmapEntry, future: Future) -> Draft:
    """For a pin that the change makes unnecessary: send the entry that keeps the PG in place in the
    epoch of the change, unless the present one does. `entry`: suffices afterwards. An entry that
    keeps the PG in place under both CRUSH maps is preferred; if there is none, `entry` is sent.

    The mons may refuse the change of CRUSH and carry out all the rest. So the record of the pin
    stays until the change is read back, when `_unpin` removes both.
    """
    present, pin = draft.observed.osdmap.entry(pgid), draft.pin_of(pgid)
    sent = bridging_entry(draft, pgid, entry, future)
    # None: forgotten since the plan.
    if pin is not None and hides_raw(draft, pgid, sent, future):
        # The entry is a vector, or has pairs that more than one raw set explains. `_unpin` cannot
        # see then where CRUSH places the PG, and takes the goal.
        draft = draft.note_pins({pgid: replace(pin, goal=entry)})
    return draft if sent == present else draft.send(SetEntry(pgid, sent, present))


def _sufficient_part(draft: Draft, pgid: str, pool: Pool, up: OsdSet,
                     base: UpmapEntry) -> Optional[UpmapEntry]:
    """The part of the earlier entry `base` that the mons keep, if the PG stays in place (on `up`)
    with it; None: it needs its pin."""
    present, pin = draft.observed.osdmap.entry(pgid), draft.pins[pgid]
    raw = raw_from_up(up, present, draft.out)
    if raw is None:
        return pin.goal  # what `_send_bridging_entry` has noted, if anything
    remaining = after_commit(raw, base, pool, draft.observed.osdmap.osds, draft.observed.crush,
                             pgid, draft.out)
    return remaining if apply_entry(raw, remaining, draft.out) == up else None


def _unpin(draft: Draft, change: Change) -> Draft:
    """Remove the pins that are unnecessary now that the change is in force, among them upmaps that
    were noted as pins for this."""
    osdmap = draft.observed.osdmap
    needless: Dict[str, UpmapEntry] = {}
    for pgid, base in bases_of(draft.pins).items():
        pool, place = draft.pool(pgid), draft.observed.placement(pgid)
        if pool is None or place is None or pgid in osdmap.pg_temp or place.up != place.acting:
            continue
        if pgid in draft.campaign.pinning.sent and osdmap.entry(pgid) != draft.pins[pgid].entry:
            continue  # the change needs this pin, which follows; until then the PG peers without it
        remaining = _sufficient_part(draft, pgid, pool, place.up, base)
        # An upmap to a drained OSD does not stay: the PG is released from it.
        if remaining is not None and remaining == without_targets(remaining, change.drained):
            needless[pgid] = remaining
    if not needless:
        return draft
    return draft.forget_pins(needless).send(*[
        SetEntry(pgid, entry, osdmap.entry(pgid)) for pgid, entry in sorted(needless.items())
        if osdmap.entry(pgid) != entry
    ]).set(pinning=replace(draft.campaign.pinning, sent_at=draft.now, sent={
        pgid: sent for pgid, sent in draft.campaign.pinning.sent.items()
        if pgid not in needless and draft.pin_of(pgid) is not None})).event(
               'join', '%s removed' % plural(len(needless), 'pin'),
               'CRUSH places the PGs there without them')


def _note_crush_as_own(draft: Draft, change: Change) -> Draft:
    """Note the CRUSH version as the campaign's own, or none (-1) if others changed CRUSH along with
    it."""
    crush = draft.campaign.crush
    if crush.own in (-1, draft.observed.crush_version):
        return draft
    return draft.set(crush=crush.claimed(draft.observed, change.is_ours(draft.observed)))


def _land(draft: Draft, change: Change) -> Draft:
    """Go on after the OSDMap shows the part of the change that was sent."""
    if draft.campaign.removes_upmaps:
        draft = _unpin(draft, change)
    return audit(_enter_next_stage(_note_crush_as_own(draft, change), change))


def remove_needless_pairs(draft: Draft) -> Draft:
    """Remove the pairs that led PGs, with an earlier tranche, to where CRUSH alone places them by
    now. The mons drop only pairs whose source it no longer chooses.

    To be called until nothing is sent; whatever the mons do not remove for long is left.
    """
    change = draft.campaign.change
    if not isinstance(change, WeightChange) or not change.tranche \
            or change.stage is not ChangeStage.LANDED:
        return draft
    actions = _needless_pairs(draft, change)
    if not actions:
        return _pin_moved_by_vector(draft, change)
    since = change.removing or draft.now
    if draft.now - since > CHANGE_SEND_TIMES * draft.options.readback_timeout:
        return draft
    return draft.set(change=replace(change, removing=since)).send(*actions)


def _pin_moved_by_vector(draft: Draft, change: Change) -> Draft:
    """After the last tranche: pin the PGs that the campaign has moved by pg_upmap. That hides where
    CRUSH places them by now, so they are released like pinned PGs."""
    # With target=balanced, these upmaps are part of the end state.
    if draft.campaign.target == 'balanced' or not change.is_last:
        return draft
    pins = {pgid: PinRecord(led.before, led.entry) for pgid, led in change.ahead.items()
            if led.entry.vector is not None and draft.observed.osdmap.entry(pgid) == led.entry}
    return draft.note_pins(pins) if pins else draft


def _needless_pairs(draft: Draft, change: WeightChange) -> List[SetEntry]:
    """The actions that remove the campaign's pairs without effect from the upmaps of `ahead`."""
    osdmap, actions = draft.observed.osdmap, []
    for pgid, led in change.ahead.items():
        place, present = draft.observed.placement(pgid), osdmap.entry(pgid)
        items = present.items
        ours = [pair for pair in items if pair in led.entry.items and pair not in led.before.items]
        if not ours or place is None or draft.pin_of(pgid) is not None \
                or pgid in osdmap.pg_temp or place.up != place.acting:
            continue
        raw = raw_from_up(place.up, present, draft.out)
        if raw is None:
            continue
        remaining = replace(present, items=tuple([
            (source, target) for source, target in items
            if (source, target) not in ours or source in raw and target not in raw]))
        if remaining != present and apply_entry(raw, remaining, draft.out) == place.up:
            actions.append(SetEntry(pgid, remaining, present))
    return actions


def _enter_next_stage(draft: Draft, change: Change) -> Draft:
    """Go on after a part of the change is in force: to the next part, or to the release."""
    following = change.next_part(draft.observed, draft.pin_count)
    if following is not None:
        return draft.event('join', following.text, _READ_BACK).set(
            change=following.change, phase_since=draft.now)
    text = 'CRUSH is changed' if change.tranches == 1 else \
        'tranche %d of %d of the CRUSH change is in force' % (change.tranche + 1, change.tranches)
    return draft.set(change=change.settled(), phase_since=draft.now,
                     pinning=replace(draft.campaign.pinning, undersized_pgs=())).event(
        'join', '%s, %s pinned, %d remapped' % (
            text, pgs_are(draft.pin_count), len(draft.observed.osdmap.pg_temp)), _READ_BACK)


def keep_part_in_force(draft: Draft) -> Draft:
    """At the end of an abort: keep only the part of the change that is in force. If none is, a
    rollback returns to the change that it was to undo; any other change is dropped."""
    campaign, change = draft.campaign, draft.campaign.change
    if change is None or change.stage is ChangeStage.LANDED:
        return draft
    if isinstance(change, WeightChange) and change.closing:
        return _keep_tiny_weight(draft, change.with_done(draft.observed),
                                 'the campaign was aborted')
    part = change.part_in_force(draft.observed)
    if part is not None:
        return draft.set(change=part)
    if campaign.rollback.begun:
        return draft.set(change=campaign.rollback.undone, rollback=Rollback())
    return draft.set(change=WeightChange(stage=ChangeStage.LANDED))  # of no OSD


def settle_change(draft: Draft) -> Draft:
    """Read back the CRUSH change of a campaign that is being aborted, or stop it."""
    change = draft.campaign.change
    if change is None or not change.pending:
        return draft
    if change.landed(draft.observed):
        return _land(draft, change)
    if not change.stands_still(draft.observed):
        stopped, actions = change.stop(draft.observed)
        if draft.now - draft.campaign.phase_since > draft.options.readback_timeout:
            # The rest of it may take hours. It moves no data, so the abort need not wait for it.
            return _take_back_burst(draft, change).event(
                'join', 'ceph-mgr carries on with the change', 'the mons refused to stop it'
                if actions else 'two PGs are still being merged')
        return draft.send(*actions).set(change=stopped)
    if change_is_overdue(draft.campaign, draft.observed, draft.options):
        return _take_back_burst(draft, change)
    return draft


def change_is_overdue(campaign: Campaign, observation: Observation, options: Options) -> bool:
    """Whether the commands of the pending change should have taken effect by now, but the OSDMap
    does not show it. A change that the mons have accepted is never overdue: ceph-mgr still carries
    it out (as with pg_num).

    A command without an answer from the mons may still take effect, so the time counts from the
    last one at the earliest.
    """
    change = campaign.change
    if change is None or not change.pending or change.is_accepted(observation.osdmap):
        return False
    if change.stage is ChangeStage.WANTED and campaign.phase is not Phase.ABORTING:
        return False  # it is about to be sent again
    since = max(change.since, campaign.phase_since, observation.unanswered_at)
    return observation.now - since > options.readback_timeout


def _take_back_burst(draft: Draft, change: Change) -> Draft:
    """Take back a burst whose change of CRUSH is not in force: forget the pins that only it
    required, and send those again that were removed for it."""
    forgotten: List[str] = []
    earlier: Dict[str, PinRecord] = {}
    for pgid in draft.campaign.pinning.sent:
        pin, present = draft.pin_of(pgid), draft.observed.osdmap.entry(pgid)
        if pin is None or present == pin.entry:
            continue
        if not present or present in (pin.before, pin.was):
            # Planned for a mapping that is not in force: the present one needs no such pin.
            forgotten.append(pgid)
        else:
            earlier[pgid] = replace(pin, entry=present)  # an earlier pin is still there
    draft = _note_crush_as_own(draft.forget_pins(forgotten).note_pins(earlier), change)
    return _send_removed_pins(draft).set(change=replace(change, stage=ChangeStage.WANTED, times=0))


def _send_again_or_give_up(draft: Draft, change: Change) -> Draft:
    """Send an overdue burst (the change of CRUSH with its pins) again, or give the change up after
    CHANGE_SEND_TIMES: then the campaign is aborted, or, if the change is `closing` (to weight 0, at
    the end of a drain), its OSDs keep the tiny weight. Until then, the records of the pins stay:
    the burst may take effect late."""
    draft = _note_crush_as_own(draft, change)
    if change.times < CHANGE_SEND_TIMES:
        return draft.set(change=replace(change, stage=ChangeStage.WANTED)).event(
            'join', 'the CRUSH change is sent again', 'the OSDMap does not show it')
    if isinstance(change, WeightChange) and change.closing:
        return _keep_tiny_weight(draft, change, 'the mons did not accept weight 0')
    return _take_back_burst(draft, change).event(
        'join', 'the CRUSH change is given up', 'the mons did not accept it').enter(
            Phase.ABORTING, 'the mons did not accept the CRUSH change')


def _send_removed_pins(draft: Draft) -> Draft:
    """Send pins again that were removed with a change of CRUSH that is not in force: all that this
    turn has not changed."""
    pins = {pgid: pin for pgid, pin in draft.pins.items() if pin == draft.pin_of(pgid)} \
        if draft.campaign.removes_upmaps else {}
    actions = [SetEntry(pgid, pin.entry, draft.observed.osdmap.entry(pgid))
               for pgid, pin in pins.items() if pin.entry != draft.observed.osdmap.entry(pgid)]
    # Goals that `_send_bridging_entry` has noted apply only with the change.
    return draft.note_pins({pgid: replace(pin, goal=None) for pgid, pin in pins.items()
                            if pin.goal is not None}).send(*actions).set(
        pinning=draft.campaign.pinning.sending_only(
            [action.pgid for action in actions], draft.now))


# ---- The upmap entries that are sent for the epoch of the change
#
# The mons may commit the pins without the change, so an entry that is sent with it keeps the PG in
# place under the present CRUSH map and under the future one, if possible.

def entry_for_both_maps(draft: Draft, pgid: str, entry: UpmapEntry, future: Future) -> UpmapEntry:
    """The entry that is sent for a pin: `entry`, with the present pairs if they keep the PG in
    place should the mons refuse the change, and if the mons drop them should they accept it."""
    present = draft.observed.osdmap.entry(pgid)
    if not present.items or entry.vector is not None:
        return entry
    merged = UpmapEntry(tuple(dict.fromkeys((*present.items, *entry.items))), present.vector)
    serves = (_serves_both(draft, pgid, merged, future)
              and _kept_by_mons(draft, pgid, merged, future.pgs[pgid].raw, future.crush) == entry)
    return merged if serves else entry


def bridging_entry(draft: Draft, pgid: str, entry: UpmapEntry, future: Future) -> UpmapEntry:
    """For a PG whose pin the change makes unnecessary: the entry that keeps the PG in place in the
    epoch of the change. It is the present entry if that does so, else one that serves both CRUSH
    maps, the present one and that of the change. If there is none, it is `entry`, which suffices
    once the change is in force."""
    osdmap, present = draft.observed.osdmap, draft.observed.osdmap.entry(pgid)
    if survives(pgid, future, osdmap, osdmap.pools[pool_of(pgid)], draft.out):
        return present
    merged = UpmapEntry(tuple(dict.fromkeys((*present.items, *entry.items))))
    return merged if _serves_both(draft, pgid, merged, future) else entry


def hides_raw(draft: Draft, pgid: str, sent: UpmapEntry, future: Future) -> bool:
    """Whether, once the change is in force, the part of an entry that the mons keep hides the raw
    set of a PG: its up set and that part do not show where CRUSH places it."""
    pg = future.pgs[pgid]
    remaining = _kept_by_mons(draft, pgid, sent, pg.raw, future.crush)
    return raw_from_up(pg.acting, remaining, draft.out) != pg.raw


def _serves_both(draft: Draft, pgid: str, entry: UpmapEntry, future: Future) -> bool:
    """Whether the entry keeps the PG in place both with and without the change of CRUSH.

    The mon drops the pairs whose source is not in the raw set: those meant for the other mapping.
    """
    place, pg = draft.observed.placement(pgid), future.pgs[pgid]
    # The mons refuse more pairs than the PG has OSDs.
    if place is None or len(entry.items) > draft.observed.osdmap.pools[pool_of(pgid)].size:
        return False
    raw = raw_from_up(place.up, draft.observed.osdmap.entry(pgid), draft.out)
    return raw is not None and all(
        apply_entry(raw_set, _kept_by_mons(draft, pgid, entry, raw_set, crush),
                    draft.out) == pg.acting
        for raw_set, crush in ((raw, draft.observed.crush), (pg.raw, future.crush)))


def _kept_by_mons(draft: Draft, pgid: str, entry: UpmapEntry, raw: OsdSet,
                  crush: CrushRules) -> UpmapEntry:
    """The part of an entry that the mons keep under a CRUSH map that places the PG on `raw`."""
    osdmap = draft.observed.osdmap
    return after_commit(raw, entry, osdmap.pools[pool_of(pgid)], osdmap.osds, crush, pgid,
                        draft.out)
