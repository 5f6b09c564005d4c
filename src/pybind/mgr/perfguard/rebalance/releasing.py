# SPDX-License-Identifier: LGPL-2.1-or-later
"""Releases pinned PGs in batches, and applies stop conditions of all releases or of those to some
OSDs."""
from dataclasses import replace
from typing import (AbstractSet, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence,
                    Tuple)

from ..cluster.evacuation import too_full
from ..cluster.set_by_others import BALANCER
from ..cluster.types import NO_OSD, OsdMap, OsdSet, UpmapEntry, pool_of
from ..errors import Code, Reason, texts
from ..options import Options
from ..text import are, listed, osds_text, pgs, pgs_are, plural
from ..upmap.pins import broken_rule, released_up
from ..upmap.semantics import led_by, prime_commands
from ..watch.slow_reads import stopped_osds
from ..watch.stop_conditions import (ABSENT_SECONDS, ABSENT_TEXT, LASTING, OwnPg, Stop, is_muted,
                                     is_waived, osds_with_slow_ops, stop_conditions)
from .campaign import GoalsMark
from .change import Led
from .copying import slowed_text
from .draft import Draft
from .epochs import epoch_of, peering_text
from .flights import note_ahead
from .goals import basis, moves_for_balance, without_goals
from .holds import foreign_movement_flags, option_text
from .latency import explains_alarm, slow_read_stops
from .moves import (MAX_SCANNED, Caps, Load, Move, choose, domains_of, load_of, move_between,
                    route_osds, serving_until_moved, window)
from .pg_limit import awaits_reading, receives
from .pinning import lacks_an_osd, may_be_degraded, pinned_once_recovered
from .stalls import (BATCH_SECONDS, IntervalChange, Stalls, affords, batch_pgs, batch_seconds,
                     note_changes, spend)
from .throttle import limit, out_of_hours
from .types import Flight, Holds, PinRecord, SetEntry

BALANCER_ON = Reason(Code.BALANCER_ON, 'the balancer is on and would change the pins; run '
                     '"ceph balancer off" to continue')


def stops_of(draft: Draft) -> List[Stop]:
    """Stop conditions of releases, without those that the operator has waived or muted."""
    observation = draft.observed
    stops = stop_conditions(observation.signals, observation.osd_counts, recovering_own_pgs(draft))
    # Slow operations are left to stop_conditions, which knows their OSDs.
    covered = {stop.reason.code for stop in stops} | {Code.SLOW_OPS}
    stops += _as_stops(draft, [reason for reason in observation.stops if reason.code not in covered
                               and not is_muted(reason, observation.signals)])
    if observation.same_drive:
        stops.append(Stop(Reason(
            Code.SAME_DRIVE, 'no PG is released to OSDs on the drives that are being replaced: %s; '
            'replace the drives, or "campaign accept SAME_DRIVE" continues'
            % osds_text(observation.same_drive)), observation.same_drive))
    waived = draft.campaign.orders.acknowledged
    stops = [stop for stop in stops if not is_waived(stop.reason, waived)]
    return stops + [Stop(reason) for reason in _foreign_settings(draft)]


def follow_accepted(draft: Draft) -> Draft:
    """Report the stop conditions that hold although the operator has accepted them, and end the
    acceptance of those that have been absent for ABSENT_SECONDS."""
    orders = draft.campaign.orders
    codes = [code for code in orders.acknowledged if code not in LASTING]
    if not codes:
        return draft
    # The same conditions, muted or not.
    observation = draft.observed
    present = [stop.reason for stop in stop_conditions(
        replace(observation.signals, muted=frozenset()), observation.osd_counts,
        recovering_own_pgs(draft))]
    covered = {reason.code for reason in present}
    present += [reason for reason in (*observation.stops, *observation.accepted)
                if reason.code not in covered]
    reasons = {code: [reason for reason in present if is_waived(reason, (code,))]
               for code in codes}
    absent = {code for code in codes if not reasons[code]}
    if observation.orchestrating.image:
        absent.discard(Code.UPGRADE)  # the same upgrade restarts further OSDs
    orders_after = orders.without_past(absent, draft.now, ABSENT_SECONDS)
    draft = draft.set(orders=orders_after)
    for code in codes:
        if reasons[code]:
            draft = draft.because(Code.ACCEPTED, '%s; %s was accepted, and stops no release until '
                                  'it has been %s' % ('; '.join(dict.fromkeys(
                                      reason.text for reason in reasons[code])), code, ABSENT_TEXT))
        elif code not in orders_after.acknowledged:
            draft = draft.event('accept', 'campaign %d: %s stops releases again if it recurs' % (
                draft.campaign.id, code), 'it was accepted, and has been ' + ABSENT_TEXT)
    return draft


#: Stop conditions that a failing OSD causes.
_OF_FAILING_OSDS = (Code.SLOW_OPS, Code.SLOW_POOL, Code.OSD_LATENCY)


def all_stops(draft: Draft, failing: FrozenSet[int]) -> List[Stop]:
    """The stop conditions of stops_of, and those of slow reads. An OSD that fails until it is
    drained must not keep its PGs from leaving. `failing`: as failing_osds."""
    stops = []
    for stop in (*stops_of(draft), *slow_read_stops(draft.campaign.pace.slow_reads, draft.now)):
        if stop.reason.code == Code.SLOW_OPS and stop.osds is not None:
            stop = replace(stop, osds=stop.osds | _awaited_targets(draft, failing))
        stops.append(replace(stop, failing=failing) if stop.reason.code in _OF_FAILING_OSDS
                     else stop)
    return stops


def failing_osds(draft: Draft) -> FrozenSet[int]:
    """OSDs which the campaign drains and which are slow on their own: the watch reports them as
    slower than their peers, or they report slow operations while no PG in flight leaves them.
    Others wait for them: slow operations are those of primaries, whichever OSD of the PG is the
    cause."""
    leaving = {osd for flight in draft.campaign.flights.in_flight.values()
               for osd in flight.sources}
    return frozenset(draft.campaign.drained) & (
        draft.observed.slow_osds | (osds_with_slow_ops(draft.observed.signals) - leaving))


def _awaited_targets(draft: Draft, failing: FrozenSet[int]) -> FrozenSet[int]:
    """The targets of PGs in flight of which an OSD reports slow operations: it may wait for a
    target, which reports none as long as it leads no PG."""
    slow = osds_with_slow_ops(draft.observed.signals)
    return frozenset(osd for flight in draft.campaign.flights.in_flight.values()
                     if failing.isdisjoint(flight.sources)
                     and not slow.isdisjoint(route_osds(flight)) for osd in flight.targets)


def burdened_osds(draft: Draft, failing: FrozenSet[int]) -> FrozenSet[int]:
    """OSDs of PGs in flight on which movement may be the cause of slow operations. `failing`: as
    failing_osds."""
    return frozenset(osd for flight in draft.campaign.flights.in_flight.values()
                     for osd in (route_osds(flight) if failing.isdisjoint(flight.sources)
                                 else flight.targets))


def _as_stops(draft: Draft, reasons: Sequence[Reason]) -> List[Stop]:
    """Reasons to stop (of the mitigation and of RebalanceController) as stop conditions of the OSDs
    concerned, or of all releases if these are not known, or are all OSDs. A pool may be slow for
    days because its clients do larger operations than before: that must not stop releases
    elsewhere."""
    observation, stops = draft.observed, []
    osds_of_pool = observation.osds_of({pool for reason in reasons for pool in reason.pools})
    osds_with_weight = {osd for osd, weight in observation.crush.weights().items()
                        if weight > 0.0} if osds_of_pool else ()
    for reason in reasons:
        pool_osds = frozenset(osd for pool in reason.pools for osd in osds_of_pool[pool])
        osds = _osds_that_explain(draft, reason, pool_osds)
        if osds is None and reason.pools:
            is_everywhere = not pool_osds or pool_osds.issuperset(osds_with_weight)
            stops.append(Stop(reason, None if is_everywhere else pool_osds, reason.pools))
        else:
            stops.append(Stop(reason, osds))
    return stops


def _osds_that_explain(draft: Draft, reason: Reason,
                       pool_osds: AbstractSet[int]) -> Optional[FrozenSet[int]]:
    """If slow OSDs may explain the alarm of a pool, and the throttle finds the latency of clients
    within its limits: those of them that receive no releases, so that the alarm stops releases to
    these alone. That may be none: an OSD that was slow while nothing moved there stops no release.
    `pool_osds`: the OSDs that serve the pool; others cannot explain its alarm, unless it does not
    name its pool.

    None: the alarm is not explained so, or `reason` is no such alarm.
    """
    pace, now = draft.campaign.pace, draft.now
    if reason.code != Code.SLOW_POOL or pace.code != Code.LATENCY_OK:
        return None
    states = {osd: state for osd, state in pace.slow_reads.items()
              if osd in pool_osds or not reason.pools}
    if not explains_alarm(states, now, len(draft.observed.osdmap.osds)):
        return None
    return stopped_osds(states, now)


def others_degraded(draft: Draft) -> bool:
    """Whether PGs are degraded that the campaign has not released, muted or not."""
    observation = draft.observed
    return any(stop.reason.code == Code.DEGRADED for stop in stop_conditions(
        replace(observation.signals, muted=frozenset()), observation.osd_counts,
        recovering_own_pgs(draft)))


def _foreign_settings(draft: Draft) -> List[Reason]:
    """Settings of others that prevent releases; they cannot be waived."""
    stops = foreign_flags(draft.campaign.holds, draft.observed.osdmap.flags
                          - draft.observed.settings.borrowed_elsewhere)
    if balancer_of_others(draft):
        stops.append(balancer_on(draft.campaign.holds))
    return stops


def foreign_flags(holds: Holds, flags: AbstractSet[str]) -> List[Reason]:
    """Reasons for flags of others with which no data moves."""
    return [Reason(Code.FOREIGN_FLAG, '%s is set, but not by perfguard, and no data can move; run '
                   '"ceph osd unset %s" to continue' % (flag, flag))
            for flag in foreign_movement_flags(holds, flags)]


def balancer_of_others(draft: Draft) -> bool:
    """Whether others have switched the balancer on during the campaign, and it is on or still
    executes a plan."""
    settings = draft.observed.settings
    return BALANCER in draft.campaign.holds.given_up and (
        settings.balancer_active != 'false' or settings.balancer_busy)


def balancer_on(holds: Holds) -> Reason:
    """The reason that others have switched the balancer on, and what becomes of it if the operator
    switches it off."""
    if holds.balancer_found is None:
        return BALANCER_ON
    return replace(BALANCER_ON, text='%s; perfguard switches it on again at the end of the campaign'
                   % BALANCER_ON.text)


def recovering_own_pgs(draft: Draft) -> List[OwnPg]:
    """PGs that may be degraded because they were released.

    The new OSD of a small PG is brought up to date from the PG's log: the PG is never remapped, and
    degraded for a moment, which reports show until after it has arrived.
    """
    observation, campaign = draft.observed, draft.campaign
    pgids = {*campaign.flights.in_flight, *(change.pgid for change in campaign.stalls.changes)}
    own_pgs: List[OwnPg] = []
    # '': an interval change that does not name its PG.
    for pgid in pgids - set(observation.osdmap.pg_temp) - {''}:
        place = observation.placement(pgid)
        if place is not None:
            own_pgs.append(OwnPg(pool_of(pgid), frozenset(place.acting) - {NO_OSD}))
    return own_pgs


def is_stopped(stops: Sequence[Stop], move: Move) -> bool:
    """Whether one of the stop conditions affects an OSD or the pool of the move."""
    return any([concerns(stop, move) for stop in stops])


def concerns(stop: Stop, move: Move) -> bool:
    """Whether a stop condition affects an OSD or the pool of a move."""
    if stop.reason.code == Code.SAME_DRIVE:
        # PGs may leave such an OSD.
        return not move.targets_known or stop.concerns(move.targets, ())
    if not stop.failing.isdisjoint(move.sources):
        # The sooner the PG leaves this OSD, the better. Its primaries, targets of others among
        # them, report slow operations while they wait for it.
        return stop.reason.code != Code.SLOW_OPS \
            and stop.concerns(move.targets, (pool_of(move.pgid),))
    osds = (*route_osds(move),)
    if stop.reason.code == Code.OSD_LATENCY:
        # A PG that peers with a slow OSD stalls its clients for longer, even if no data moves
        # there.
        osds += move.staying
    return stop.concerns(osds, (pool_of(move.pgid),))


def stopped_moves(draft: Draft, loose: Mapping[str, Move], stops: Sequence[Stop]) -> List[Reason]:
    """The stop conditions of some OSDs and pools (`stops`) for which all movement must stop: all of
    them if every release is affected, else those that affect a `loose` PG, which only norebalance
    stops."""
    if draft.moves and stops and all(is_stopped(stops, move) for move in draft.moves.values()):
        return [stop.reason for stop in stops]
    return [stop.reason for stop in stops
            if any(concerns(stop, move) for move in loose.values())]


# ---- Batches

#: A pool's flag (allow_ec_optimizations, from Tentacle on). Its pg_temp is stored with the shards
#: that may become primary first, and OSDs and clients undo that order (OSDMap::pgtemp_primaryfirst
#: and pgtemp_undo_primaryfirst). OSDs send it in that order, but the mon takes the sets of
#: `osd pg-temp` as they are: a primed set would have shards on the wrong OSDs for an interval.
EC_OPTIMIZATIONS = 'ec_optimizations'


def loose_moves(draft: Draft) -> Dict[str, Move]:
    """PGs that are remapped, cannot be pinned, and are not counted as in flight yet.

    Only norebalance keeps them where they are. A PG without a new OSD does not move.
    """
    moves: Dict[str, Move] = {}
    for pgid in draft.campaign.pinning.unpinnable:
        pool, place = draft.pool(pgid), draft.observed.placement(pgid)
        if (pgid in draft.campaign.flights.in_flight or pool is None or place is None
                or pgid not in draft.observed.osdmap.pg_temp
                or pinned_once_recovered(draft.campaign, pgid)):
            continue
        move = move_between(pgid, pool, place.acting, place.up,
                            draft.observed.signals.pool_bytes.get(pool.id, 0))
        if move.targets:
            moves[pgid] = move
    return moves


def adopt_unpinnable(draft: Draft, moves: Mapping[str, Move]) -> Draft:
    """Count the PGs of loose_moves as in flight: they move as soon as norebalance is cleared."""
    if not moves:
        return draft
    adopted = {pgid: replace(_flight(draft, move, draft.observed.osdmap.entry(pgid)),
                             confirmed=draft.now, seen_remapped=True)
               for pgid, move in moves.items()}
    # The operator accepted these PGs, but not PGs that become unpinnable later.
    return draft.set(flights=draft.campaign.flights.joined_by(adopted),
                     orders=replace(draft.campaign.orders, accepted_unpinnable=0))


def drop_goals_planned_once(draft: Draft) -> Draft:
    """Drop goals that were computed before a change of CRUSH, a reweight or a pool by others: they
    may overfill OSDs, or put two shards of a PG into one failure domain.

    Without its goal, a PG that would only have moved for the balance needs no pin, which is
    forgotten; the others stay pinned where their data is. PGs in flight keep their goals. Only for
    changes that consist of moves (`moves_only`), which are planned once.
    """
    change, computed_for = draft.campaign.change, draft.campaign.pinning.goals.basis
    if change is None or not change.moves_only or computed_for is None or computed_for.covers(
            basis(draft.observed.osdmap, draft.observed.crush, computed_for.pools)):
        return draft
    pins = {pgid: draft.pin_of(pgid) for pgid in (*draft.pins, *draft.new_pins)
            if pgid not in draft.campaign.flights.in_flight}
    stale = {pgid: pin for pgid, pin in pins.items() if pin is not None and pin.goal is not None}
    if not stale:
        return draft
    needless = {pgid for pgid, pin in stale.items() if moves_for_balance(pin)}
    pinned = {pgid: pin for pgid, pin in without_goals(stale).items() if pgid not in needless}
    return draft.forget_pins(needless).note_pins(pinned).event(
        'plan', '%s not moved: CRUSH, a reweight or a pool has changed since the plan'
        % pgs_are(len(stale)), 'run "%s" again' % draft.campaign.origin.trigger)


def keep_stayers(draft: Draft) -> Draft:
    """Pins that are already at their goal become ordinary upmaps."""
    campaign = draft.campaign
    # A crash may have restored their records: they are forgotten again, but not counted again.
    already_kept = campaign.pinning.kept_mark == campaign.pinning.goals
    if already_kept and not draft.observed.new_map:
        return draft
    stayers = [pgid for pgid in draft.pins.staying
               if pgid not in campaign.flights.in_flight and pgid not in draft.unpins]
    if not stayers:
        return draft
    pins = {pgid: draft.pins[pgid] for pgid in stayers}
    # A rollback restores their earlier upmaps.
    draft = note_ahead(draft, {pgid: Led(pin.rollback_entry, pin.entry)
                               for pgid, pin in pins.items() if pin.entry != pin.rollback_entry})
    return keep(draft, stayers, campaign.pinning.goals).event(
        'keep', '%s kept as ordinary upmaps' % plural(len(stayers), 'pin'),
        'the PGs are where a later tranche of the change places them'
        if campaign.target != 'balanced' else 'the balance requires them')


def keep(draft: Draft, pgids: Sequence[str], mark: Optional[GoalsMark]) -> Draft:
    """Forget pins that stay in the OSDMap as ordinary upmaps. They are counted once, even if a
    crash restores them: `mark`, the goals with which they stay (None: all pins stay), is stored
    with the count."""
    draft, campaign = draft.forget_pins(pgids), draft.campaign
    if campaign.pinning.kept_mark == mark:
        return draft
    return draft.set(progress=campaign.progress.keeping(len(pgids)),
                     pinning=replace(campaign.pinning, kept_mark=mark))


def present_load(draft: Draft, limits: Caps) -> Load:
    """The load that counts against the caps: PGs in flight, and PGs that OSDs are deleting."""
    load = load_of(draft.campaign.flights.in_flight, draft.observed.crush.host_of,
                   domains_of(draft.observed.crush, draft.observed.osdmap.pools),
                   draft.observed.devices)
    load.add_deletions(draft.observed.deleting, limits.source)
    return load


def release_more(draft: Draft) -> Draft:
    """Release what fits under the caps; at most as many as may peer at once."""
    campaign = draft.campaign
    limit_now = limit(campaign.pace, draft.options)
    draft = _with_conditions(draft, limit_now.reason)
    if awaits_reading(draft):
        return draft
    room = draft.peering_room()
    if room <= 0:
        peering_limit = draft.peering_limit()
        return draft.because(Code.PEERING, '%s peering or activating; releases wait until fewer '
                             'than %d are (max_transition_ratio)'
                             % (pgs_are(peering_limit - room), peering_limit))
    load = present_load(draft, limit_now.caps)
    if load.pgs >= limit_now.caps.pgs:
        return draft
    candidates = _candidates(draft)
    draft = draft.report(*candidates.reasons)
    if not candidates.moves:
        return draft
    affordable = [move for move in candidates.moves
                  if affords(campaign.stalls, pool_of(move.pgid))]
    if not affordable:
        return draft.report(_stall_ratio_reached(draft.options))
    caps = replace(limit_now.caps, pgs=min(limit_now.caps.pgs, load.pgs + room),
                   receives=receives(draft))
    fitting = _chosen(draft, affordable, load, caps)
    draft = draft.report(*fitting.reasons)
    if not fitting.moves:
        return draft
    chosen, stalls = _afforded(draft, campaign.stalls, fitting.moves)
    unlawful = sorted(move.pgid for move in chosen if _breaks_rule(draft, move.pgid))
    if unlawful:
        return draft.forget_pins(unlawful).event(
            'plan', '%s not moved: %s' % (pgs_are(len(unlawful)), listed(unlawful)),
            'others have changed CRUSH, and the upmap would break the CRUSH rule')
    limited_by_stalls = len(chosen) < len(fitting.moves) or len(affordable) < len(candidates.moves)
    if not _is_batch(draft, len(chosen), limit_now.caps.pgs, limited_by_stalls):
        # A batch waits for what prevents a larger one.
        if limited_by_stalls:
            return draft.report(_stall_ratio_reached(draft.options))
        return draft.because(
            Code.BATCH, 'waiting up to %.0f s for further PGs that share OSDMap epochs '
            'with the next release' % batch_seconds(draft.observed.commit_seconds))
    return _release(draft, chosen, stalls).event(
        'release', 'releasing ' + pgs(len(chosen)), limit_now.reason.text)


def _breaks_rule(draft: Draft, pgid: str) -> bool:
    """Whether a release would set an upmap that the CRUSH rule of the pool does not allow.

    Only for changes that consist of moves (`moves_only`): the upmaps from before them may be older
    than a change of CRUSH by others. The mons do not check some rules, such as those for several
    OSDs in each rack.
    """
    change = draft.campaign.change
    if change is None or not change.moves_only:
        return False
    pin, pool, place = draft.pin_of(pgid), draft.pool(pgid), draft.observed.placement(pgid)
    if pin is None or pool is None or place is None or not pin.leads_to:
        return False
    new_osds = released_up(pool, place.up, pin.entry, pin.leads_to, draft.out, raw=pin.raw)
    return new_osds is not None and broken_rule(
        pool, new_osds, draft.observed.crush, draft.out) is not None


def _stall_ratio_reached(options: Options) -> Reason:
    return Reason(
        Code.STALL_RATIO, 'waiting a few seconds between releases, so that at most '
        "%g %% of a pool's operations wait for released PGs (stall_ratio)"
        % (100 * options.stall_ratio))


class _Remaining(NamedTuple):
    """Moves that a filter leaves, and why it drops others."""
    moves: List[Move]
    reasons: Tuple[Reason, ...] = ()


def _with_conditions(draft: Draft, limit_reason: Reason) -> Draft:
    """The draft with the reasons that `status` shows for the speed of releases, whether or not any
    follow in this turn. `limit_reason`: the throttle's."""
    campaign = draft.campaign
    draft = draft.report(limit_reason, *[
        Reason(stop.reason.code, stop.reason.text + '; releases that do not affect these continue')
        for stop in draft.stops])
    draft = draft.because(Code.FAST_PEERING,
                          peering_text(epoch_of(draft.observed.osdmap), draft.options.fast_peering))
    toofull = draft.observed.signals.counts.degraded_toofull
    if toofull:
        draft = draft.because(
            Code.BACKFILL_TOOFULL, '%s degraded, with targets that are too full for backfill; '
            'releases do not wait for their recovery, since they make room' % pgs_are(toofull))
    if draft.relieved:
        draft = draft.because(Code.WINDOW_CLOSED, '%s; until then, only PGs that leave OSDs which '
                              'are too full are released: %s' % (
                                  '; '.join(texts(out_of_hours(draft))),
                                  osds_text(draft.relieved)))
    if campaign.copying.wanted:
        draft = draft.because(Code.PACED, slowed_text(campaign.copying))
    return draft.report(*[
        Reason(Code.COMMAND_FAILED, 'the mons did not accept %s; the campaign continues without it'
               % option_text(name)) for name in sorted(campaign.holds.refused)])


def _candidates(draft: Draft) -> _Remaining:
    """Moves of pinned PGs that no condition prevents, and reasons why others are left out. At most
    MAX_SCANNED pins are examined in a turn, and others in the next one."""
    full = full_osds(draft)
    nearly_full = {osd.id for osd in draft.observed.osdmap.osds.values() if osd.fullness}
    moves = [move if nearly_full.isdisjoint(move.sources) else move._replace(relieves=True)
             for move in window(list(draft.moves.values()), start=int(draft.now) * MAX_SCANNED)
             if _releasable(draft, move, full.osds)]
    if draft.relieved:
        moves = [move for move in moves if not draft.relieved.isdisjoint(move.sources)]
    if draft.stops:
        moves = [move for move in moves if not is_stopped(draft.stops, move)]
    placed = _without_displaced(draft, moves)
    clean = _without_degraded(draft, placed.moves)
    return _Remaining(clean.moves, full.reasons + placed.reasons + clean.reasons)


def _without_displaced(draft: Draft, moves: List[Move]) -> _Remaining:
    """Moves of PGs whose data is on their up set.

    The mons do not always prime pg_temp: after an OSD was marked out or reweighted, the OSDMap
    shows PGs on other OSDs until they have peered. Their release would lead from OSDs without
    their data.
    """
    # `displaced` is a time, and the clock may have been set back since.
    placed = [move for move in moves if not move.displaced or draft.now < move.displaced
              or draft.has_peered(move.displaced)]
    if len(placed) == len(moves):
        return _Remaining(moves)
    return _Remaining(placed, (Reason(
        Code.PEERING, 'waiting for %s, whose OSDs may have changed, to peer'
        % pgs(len(moves) - len(placed))),))


def _chosen(draft: Draft, affordable: Sequence[Move], load: Load, caps: Caps) -> _Remaining:
    """The moves that fit under the caps. One whose targets are not known moves alone."""
    fitting = choose(affordable, load, caps, draft.now)
    # An OSD without such a limit is never crowded.
    crowded = {osd for move in affordable for osd in move.targets
               if load.target.get(osd, 0) >= caps.receives.get(osd, caps.pgs + 1)}
    moves = [move for move in fitting if move.targets_known] or fitting[:1]
    if crowded:
        return _Remaining(moves, (Reason(
            Code.PG_LIMIT, 'no PG is released to OSDs that hold as many PGs as '
            'mon_max_pg_per_osd (%d) allows: %s; "campaign accept PG_LIMIT" '
            'continues' % (draft.observed.pg_limit, osds_text(crowded))),))
    if not fitting:
        return _Remaining(moves, (Reason(
            Code.CAP_BACKFILLS, 'every remaining PG has an OSD, host, device or failure domain at '
            'its limit (max_backfills_*)%s' % (
                '; PGs that %s still deleting also count' % are(len(draft.observed.deleting), 'OSD')
                if draft.observed.deleting else '')),))
    return _Remaining(moves)


def _release(draft: Draft, moves: Sequence[Move], stalls: Stalls) -> Draft:
    """Remove the pins of these PGs."""
    flights: Dict[str, Flight] = dict(draft.campaign.flights.in_flight)
    actions: List[SetEntry] = []
    for move in moves:
        pin = draft.pin_of(move.pgid)
        assert pin is not None
        prime = _prime(draft, move, pin)
        flights[move.pgid] = replace(_flight(draft, move, pin.leads_to), pin=pin,
                                     primed=_primed_epoch(draft, move.pgid, prime))
        actions.append(SetEntry(move.pgid, pin.leads_to, draft.observed.osdmap.entry(move.pgid),
                                prime=prime))
    # Without its pg_temp, the primary has to request it: one more interval change.
    changes = [IntervalChange(draft.now, pool_of(move.pgid), _peering(move), move.pgid)
               for move in moves for _ in range(1 if _takes_pg_temp(draft, move) else 2)]
    stalls = note_changes(stalls, changes, draft.now, draft.observed.stats_period)
    return draft.send(*actions).set(
        flights=replace(draft.campaign.flights, in_flight=flights),
        progress=replace(draft.campaign.progress, progressed=draft.now),
        stalls=replace(stalls, released=draft.now))


def _is_batch(draft: Draft, number: int, pg_limit: int, limited_by_stalls: bool) -> bool:
    """Whether to release this number of PGs now, or to wait for more; at most `pg_limit` may be in
    flight. `limited_by_stalls`: the budget of stalls prevents more. If it does not and no PG is
    in flight, or if no client is active, there is nothing to wait for."""
    flights = draft.campaign.flights.in_flight
    unreleased = draft.pin_count - sum(1 for flight in flights.values() if flight.pin is not None)
    # Those on OSDs with a stop condition may arrive late.
    stuck = sum(1 for pgid, flight in flights.items()
                if any(stop.concerns(route_osds(flight), (pool_of(pgid),)) for stop in draft.stops))
    pause_seconds = batch_seconds(draft.observed.commit_seconds)
    slow_mons = pause_seconds > BATCH_SECONDS
    # Half of what may be in flight is enough: PGs arrive one by one, and each arrival takes two
    # epochs of its own. Only slow mons need the largest batches.
    enough = pg_limit - stuck if slow_mons else (pg_limit - stuck + 1) // 2
    if number >= min(batch_pgs(draft.observed.commit_seconds), unreleased, enough) \
            or draft.now - draft.campaign.stalls.released >= pause_seconds:
        return True
    # Slow mons are also spared if no client would notice.
    return not slow_mons and (
        not (limited_by_stalls or flights) or draft.campaign.pace.code == Code.NO_CLIENTS)


_DEGRADED = Reason(Code.DEGRADED, 'the remaining PGs may be degraded; they are released after '
                   'recovery')


def _without_degraded(draft: Draft, moves: List[Move]) -> _Remaining:
    """Moves of PGs that are known not to be degraded.

    Reported degraded PGs are a stop condition; those whose OSD has just gone down are not reported
    yet. If it is waived or muted, other PGs are released.
    """
    waived = ignores_degraded(draft)
    if not (waived or draft.lost):
        return _Remaining(moves)
    whole = [move for move in moves if not waits_for_recovery(draft, move.pgid, waived)]
    return _Remaining(whole, (_DEGRADED,) if len(whole) < len(moves) else ())


def ignores_degraded(draft: Draft) -> bool:
    """Whether degraded PGs are no stop condition for the others, as it is waived or muted."""
    return is_waived(_DEGRADED, draft.campaign.orders.acknowledged) or is_muted(
        _DEGRADED, draft.observed.signals)


def waits_for_recovery(draft: Draft, pgid: str, waived: bool) -> bool:
    """Whether the PG is not released because it may be degraded, though no stop condition concerns
    it. `waived`: degraded PGs are no stop condition (ignores_degraded)."""
    place, pool = draft.observed.placement(pgid), draft.pool(pgid)
    # `lost`: an OSD has just gone down; the OSDMap is seconds newer than the statistics.
    return place is not None and pool is not None and (
        waived and may_be_degraded(place.acting, draft.observed.degraded_osds)
        and not any(_only_lacks_room(draft, osd) for osd in place.acting)
        or draft.lost and lacks_an_osd(pool, place))


def _only_lacks_room(draft: Draft, osd: int) -> bool:
    """Whether all degraded PGs of the OSD are backfill_toofull. These are remapped, so a PG that is
    in place is none of them. Not if it has PGs whose state is unknown."""
    counts = draft.observed.osd_counts.get(osd)
    return counts is not None and 0 < counts.degraded <= counts.degraded_toofull \
        and counts.stuck <= 0


def _prime(draft: Draft, move: Move, pin: PinRecord) -> OsdSet:
    """The pg_temp to send along with a release: the acting set until the PG's data has moved.
    Without it the OSDs ask for this set, which costs another interval. (): not sent, since no data
    is known to move, the PG is moving already, or the mon would misread it (EC_OPTIMIZATIONS)."""
    osdmap = draft.observed.osdmap
    pool, place = osdmap.pools.get(pool_of(move.pgid)), draft.observed.placement(move.pgid)
    if (pool is None or place is None or place.up != place.acting or not move.targets
            or not _takes_pg_temp(draft, move)):
        return ()
    new_osds = released_up(pool, place.up, pin.entry, pin.leads_to, draft.out, raw=pin.raw)
    # If the new set is unknown, or with a primary affinity, it is not known which OSD will lead.
    if not new_osds or _has_affinity(osdmap, new_osds):
        return place.acting
    new_osds = led_by(new_osds, osdmap.upmap_primaries.get(move.pgid), draft.out)
    return serving_until_moved(pool, place.acting, new_osds)


def _primed_epoch(draft: Draft, pgid: str, prime: OsdSet) -> int:
    """Flight.primed: the epoch before a release with an acting set (`prime`), after which up_thru
    of the primary shows that the PG has peered. 0: none is sent, or it is not known which OSD
    leads."""
    osdmap = draft.observed.osdmap
    if not prime_commands(pgid, prime) or pgid in osdmap.upmap_primaries \
            or _has_affinity(osdmap, prime):
        return 0
    return osdmap.epoch


def _has_affinity(osdmap: OsdMap, osds: OsdSet) -> bool:
    """Whether one of the OSDs is chosen as a primary less often."""
    return any(osd in osdmap.osds and osdmap.osds[osd].primary_affinity < 1.0 for osd in osds)


def _takes_pg_temp(draft: Draft, move: Move) -> bool:
    """Whether the mon takes the PG's acting set along with its release (see EC_OPTIMIZATIONS)."""
    pool = draft.observed.osdmap.pools.get(pool_of(move.pgid))
    return pool is None or EC_OPTIMIZATIONS not in pool.flags


def _afforded(draft: Draft, stalls: Stalls,
              moves: Sequence[Move]) -> Tuple[List[Move], Stalls]:
    """The first moves of each pool, as many as its budget of stalls allows, and the stalls after
    them."""
    affordable: List[Move] = []
    for move in moves:
        if affords(stalls, pool_of(move.pgid)):
            affordable.append(move)
            stalls = spend(stalls, pool_of(move.pgid), _takes_pg_temp(draft, move))
    return affordable, stalls


def _peering(move: Move) -> OsdSet:
    """OSDs that may lead the PG while it peers."""
    if not move.moves_primary:
        return (move.primary,)
    return tuple(dict.fromkeys((*move.leaders, *move.targets)))


def _flight(draft: Draft, move: Move, entry: UpmapEntry) -> Flight:
    """The record of a PG that is released now. `entry`: its upmap while it moves."""
    return Flight(since=draft.now, entry=entry, sources=move.sources, targets=move.targets,
                  primary=move.primary, bytes=move.bytes, readers=move.readers)


class _Full(NamedTuple):
    """OSDs that should receive no data now, and why; those that are down are in the reasons only,
    as _releasable looks for them."""
    osds: FrozenSet[int]
    reasons: Tuple[Reason, ...]


def full_osds(draft: Draft) -> _Full:
    """OSDs that should receive no data now.

    The mgr cannot find out cheaply which PGs are backfill_toofull: while there are any that are not
    degraded, the targets of all PGs in flight count as full.
    """
    osds = draft.observed.osdmap.osds
    full = {osd.id for osd in osds.values() if osd.fullness}
    targets = draft.moves.targets()
    down = {osd for osd in targets if osd not in osds or not osds[osd].up}
    reasons = [Reason(code, 'PGs wait for targets that are %s: %s' % (text, osds_text(waiting)))
               for code, text, waiting in ((Code.TARGET_FULL, 'too full', targets & full),
                                           (Code.TARGET_DOWN, 'down', down)) if waiting]
    counts = draft.observed.signals.counts
    if counts.backfill_toofull > counts.degraded_toofull:
        reasons.append(Reason(
            Code.BACKFILL_TOOFULL, 'targets are too full for backfill; no PG is released '
            'to the targets of the PGs in flight'))
        full.update(osd for flight in draft.campaign.flights.in_flight.values()
                    for osd in flight.targets)
    return _Full(frozenset(full), tuple(reasons))


def relieved_osds(draft: Draft) -> FrozenSet[int]:
    """OSDs that are too full and that PGs are to leave. If one becomes full, all clients that write
    to it stall, which the time window is meant to spare them."""
    return too_full(draft.observed.osdmap, draft.observed.crush.weights()) & draft.moves.sources()


def _releasable(draft: Draft, move: Move, full: FrozenSet[int]) -> bool:
    """Whether the pin is in force, the PG in place, and the targets are ready."""
    pgid, campaign, osds = move.pgid, draft.campaign, draft.observed.osdmap.osds
    if pgid in campaign.flights.in_flight or pgid in campaign.pinning.sent \
            or draft.pin_of(pgid) is None or pgid in draft.observed.osdmap.pg_temp:
        return False
    if not move.targets_known and campaign.flights.in_flight:
        return False  # it may concern any OSD, so it is released alone
    for osd in move.targets:
        if osd in full or osd not in osds or not osds[osd].up:
            return False
    return True
