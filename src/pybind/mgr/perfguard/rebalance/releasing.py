# SPDX-License-Identifier: LGPL-2.1-or-later
"""Releases pinned PGs in batches, and applies stop conditions of all releases or of those to some
OSDs."""
from dataclasses import replace
from typing import Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from ..cluster.types import NO_OSD, OsdSet, UpmapEntry, pool_of
from ..errors import Code, Reason
from ..observation import BALANCER
from ..tables import are, osds_text, pgs, pgs_are, plural
from ..upmap.pins import released_up
from ..upmap.semantics import led_by
from ..watch.stop_conditions import OwnPg, Stop, is_muted, is_waived, stop_conditions
from .copying import in_force
from .fast_peering import epoch_of, peering_text
from .holds import foreign_movement_flags, refused_options
from .latency import explains_alarm, stopped_osds
from .moves import (SCAN, Caps, Load, Move, choose, domains_of, load_of, move_between, path_osds,
                    serving_until_moved, window)
from .pinning import may_be_degraded, waits
from .stalls import (BATCH_SECONDS, IntervalChange, Stalls, affords, batch_pgs, batch_seconds, note,
                     spend)
from .throttle import limit
from .turn import Turn
from .types import Flight, PinRecord, SetEntry

BALANCER_ON = Reason(Code.BALANCER_ON, 'the balancer is on and would change the pins; run '
                     '"ceph balancer off" to continue')


def stops_of(turn: Turn) -> List[Stop]:
    """Stop conditions of releases, without those that the operator has waived or muted."""
    seen = turn.seen
    stops = stop_conditions(seen.signals, seen.osd_counts, recovering(turn))
    known = {stop.reason.code for stop in stops} | {Code.SLOW_OPS}
    stops += _scoped(turn, [reason for reason in seen.stops if reason.code not in known
                            and not is_muted(reason, seen.signals)])
    stops = [stop for stop in stops if not is_waived(stop.reason, turn.campaign.acknowledged)]
    return stops + [Stop(reason) for reason in _against_us(turn)]


def _scoped(turn: Turn, reasons: Sequence[Reason]) -> List[Stop]:
    """Reasons of the watch and the mitigation, with the OSDs concerned. A pool may be slow for days
    because its clients do larger operations than before."""
    seen, found = turn.seen, []
    where = seen.osds_of({pool for reason in reasons for pool in reason.pools})
    every = {osd for osd, weight in seen.crush.weights().items() if weight > 0.0} if where else ()
    for reason in reasons:
        osds = _slow_osds(turn, reason)
        if osds is None and reason.pools:
            near = frozenset(osd for pool in reason.pools for osd in where[pool])
            whole = not near or near.issuperset(every)
            found.append(Stop(reason, None if whole else near, reason.pools))
        else:
            found.append(Stop(reason, osds))
    return found


def _slow_osds(turn: Turn, reason: Reason) -> Optional[FrozenSet[int]]:
    """The single OSDs that make a pool slow, if clients of the other OSDs are within their limits;
    None: not known. An OSD that was slow while nothing moved there stops no release."""
    pace, now = turn.campaign.pace, turn.now
    if reason.code == Code.SLOW_POOL and pace.code == Code.LATENCY_OK \
            and explains_alarm(pace.slow_reads, now, len(turn.seen.osdmap.osds)):
        return stopped_osds(pace.slow_reads, now)
    return None


def others_degraded(turn: Turn) -> bool:
    """Whether PGs are degraded that the campaign has not released, muted or not."""
    seen = turn.seen
    return any(stop.reason.code == Code.DEGRADED for stop in stop_conditions(
        replace(seen.signals, muted=frozenset()), seen.osd_counts, recovering(turn)))


def _against_us(turn: Turn) -> List[Reason]:
    """Settings of others that prevent releases; they cannot be waived."""
    stops: List[Reason] = []
    foreign = turn.seen.osdmap.flags - turn.seen.own_flags
    for flag in foreign_movement_flags(turn.campaign.holds, foreign):
        stops.append(Reason(Code.FOREIGN_FLAG, '%s is set, but not by perfguard, and no data can '
                            'move; run "ceph osd unset %s" to continue' % (flag, flag)))
    if balancer_of_others(turn):
        stops.append(BALANCER_ON)
    return stops


def balancer_of_others(turn: Turn) -> bool:
    """Whether others have switched the balancer on during the campaign, and it is on or still
    executes a plan."""
    settings = turn.seen.settings
    return BALANCER in turn.campaign.holds.given_up and (
        settings.balancer_active != 'false' or settings.balancer_busy)


def recovering(turn: Turn) -> List[OwnPg]:
    """PGs that may be degraded because they were released.

    The new OSD of a small PG is brought up to date from the PG's log: the PG is never remapped, and
    degraded for a moment, which reports show until after it has arrived.
    """
    seen, campaign = turn.seen, turn.campaign
    pgids = {*campaign.in_flight, *(change.pgid for change in campaign.stalls.changes)}
    own: List[OwnPg] = []
    for pgid in pgids - set(seen.osdmap.pg_temp) - {''}:
        place = seen.placement(pgid)
        if place is not None:
            own.append(OwnPg(pool_of(pgid), frozenset(place.acting) - {NO_OSD}))
    return own


def is_held(turn: Turn, move: Move) -> bool:
    """Whether a stop condition affects an OSD or the pool of the move."""
    return any([concerns(stop, move) for stop in turn.stops])


def concerns(stop: Stop, move: Move) -> bool:
    osds = (*path_osds(move),)
    if stop.reason.code == Code.OSD_LATENCY:
        # A PG that peers with a slow OSD stalls its clients for longer, even if no data moves
        # there.
        osds += move.staying
    return stop.concerns(osds, (pool_of(move.pgid),))


def held_moves(turn: Turn, loose: Mapping[str, Move]) -> List[Reason]:
    """The stop conditions of some OSDs and pools that together stop every release, or one of the
    `loose` PGs: only norebalance stops those, and it stops everything."""
    if turn.moves and turn.stops and all(is_held(turn, move) for move in turn.moves.values()):
        return [stop.reason for stop in turn.stops]
    return [stop.reason for stop in turn.stops
            if any(concerns(stop, move) for move in loose.values())]


# ---- Batches

#: A pool's flag (allow_ec_optimizations, from Tentacle on). Its pg_temp is stored with the shards
#: that may become primary first, and OSDs and clients undo that order (OSDMap::pgtemp_primaryfirst
#: and pgtemp_undo_primaryfirst). OSDs send it in that order, but the mon takes the sets of
#: `osd pg-temp` as they are: a primed set would have shards on the wrong OSDs for an interval.
EC_OPTIMIZATIONS = 'ec_optimizations'


def loose_moves(turn: Turn) -> Dict[str, Move]:
    """PGs that are remapped, cannot be pinned, and are not counted as in flight yet.

    Only norebalance keeps them where they are. A PG without a new OSD does not move.
    """
    found: Dict[str, Move] = {}
    for pgid in turn.campaign.unpinnable:
        pool, place = turn.pool(pgid), turn.seen.placement(pgid)
        if (pgid in turn.campaign.in_flight or pool is None or place is None
                or pgid not in turn.seen.osdmap.pg_temp or waits(turn.campaign, pgid)):
            continue
        move = move_between(pgid, pool, place.acting, place.up,
                            turn.seen.signals.pool_bytes.get(pool.id, 0))
        if move.targets:
            found[pgid] = move
    return found


def adopt_unpinnable(turn: Turn, moves: Mapping[str, Move]) -> None:
    """Count PGs against the caps that move as soon as norebalance is cleared; see loose_moves."""
    if moves:
        adopted = {pgid: replace(_flight(turn, move, turn.seen.osdmap.entry(pgid)),
                                 confirmed=turn.now, seen_remapped=True)
                   for pgid, move in moves.items()}
        # The operator accepted these PGs, but not PGs that become unpinnable later.
        turn.set(in_flight={**turn.campaign.in_flight, **adopted}, accepted_unpinnable=0)


def keep_stayers(turn: Turn) -> None:
    """Pins that are already at their goal become ordinary upmaps."""
    campaign = turn.campaign
    if campaign.kept_mark == campaign.goals and not turn.seen.new_map:
        return
    stayers = [pgid for pgid in turn.pinned().staying
               if pgid not in campaign.in_flight and pgid not in turn.unpins]
    if stayers:
        keep(turn, stayers, campaign.goals)
        turn.event('keep', '%s kept as ordinary upmaps' % plural(len(stayers), 'pin'),
                   'the balance requires them')


def keep(turn: Turn, pgids: Sequence[str], mark: str) -> None:
    """Forget pins that stay in the OSDMap; count them once, even if a crash restores them."""
    for pgid in pgids:
        turn.forget_pin(pgid)
    if turn.campaign.kept_mark != mark:
        turn.set(kept=turn.campaign.kept + len(pgids), kept_mark=mark)


def present_load(turn: Turn, most: Caps) -> Load:
    """PGs in flight, and PGs that OSDs are deleting."""
    load = load_of(turn.campaign.in_flight, turn.seen.crush.host_of,
                   domains_of(turn.seen.crush, turn.seen.osdmap.pools))
    load.add_removals(turn.seen.removing, most.source)
    return load


def release_more(turn: Turn) -> None:
    """Release what fits under the caps; at most as many as may peer at once."""
    campaign = turn.campaign
    allowed = limit(campaign.pace, turn.options)
    _report_conditions(turn, allowed.reason)
    room = turn.peering_room()
    if room <= 0:
        most = turn.peering_limit()
        turn.because(Code.PEERING, '%s peering or activating; releases wait until fewer than %d '
                     'are (max_transition_ratio)' % (pgs_are(most - room), most))
        return
    load = present_load(turn, allowed.caps)
    if load.pgs >= allowed.caps.pgs:
        return
    candidates = _candidates(turn)
    if not candidates:
        return
    affordable = [move for move in candidates if affords(campaign.stalls, pool_of(move.pgid))]
    if not affordable:
        turn.because(Code.STALL_SHARE, 'waiting a few seconds between releases, so that at most '
                     "%g %% of a pool's operations wait for released PGs (stall_share)"
                     % (100 * turn.options.stall_share))
        return
    caps = replace(allowed.caps, pgs=min(allowed.caps.pgs, load.pgs + room),
                   receives=receives(turn))
    fitting = _chosen(turn, affordable, load, caps)
    if not fitting:
        return
    chosen, stalls = _afforded(turn, campaign.stalls, fitting)
    spread = len(chosen) < len(fitting) or len(affordable) < len(candidates)
    if not _is_batch(turn, len(chosen), allowed.caps.pgs, spread):
        turn.because(Code.BATCH, 'waiting up to %.0f s for further PGs that share OSDMap epochs '
                     'with the next release' % batch_seconds(turn.seen.commit_seconds))
        return
    _release(turn, chosen, stalls)
    turn.event('release', 'releasing ' + pgs(len(chosen)), allowed.reason.text)


def _report_conditions(turn: Turn, limit_reason: Reason) -> None:
    """Give the reasons for the speed of releases."""
    campaign = turn.campaign
    turn.reasons.append(limit_reason)
    turn.reasons.extend(Reason(stop.reason.code, stop.reason.text + '; releases that do '
                               'not affect these continue') for stop in turn.stops)
    turn.because(Code.FAST_PEERING,
                 peering_text(epoch_of(turn.seen.osdmap), turn.options.fast_peering))
    if campaign.copying.wanted:
        turn.because(Code.PACED, in_force(campaign.copying))
    for option in refused_options(campaign.holds):
        turn.because(Code.COMMAND_FAILED, 'the mons did not accept %s; the campaign continues '
                     'without it' % option)


def _candidates(turn: Turn) -> List[Move]:
    """Moves that no condition prevents, out of some that change from turn to turn."""
    full = full_osds(turn)
    nearly_full = {osd.id for osd in turn.seen.osdmap.osds.values() if osd.fullness}
    found = [move if nearly_full.isdisjoint(move.sources) else replace(move, relieves=True)
             for move in window(list(turn.moves.values()), start=int(turn.now) * SCAN)
             if _releasable(turn, move, full)]
    if turn.stops:
        found = [move for move in found if not is_held(turn, move)]
    return _without_degraded(turn, _without_displaced(turn, found))


def _without_displaced(turn: Turn, moves: List[Move]) -> List[Move]:
    """Moves of PGs whose data is on their up set.

    The mons do not always prime pg_temp: after an OSD was marked out or reweighted, the OSDMap
    shows PGs on other OSDs until they have peered. Their release would lead from OSDs without
    their data.
    """
    found = [move for move in moves if not move.displaced or turn.now < move.displaced
             or turn.has_peered(move.displaced)]
    if len(found) < len(moves):
        turn.because(Code.PEERING, 'waiting for %s, whose OSDs may have changed, to peer'
                     % pgs(len(moves) - len(found)))
    return found


def _chosen(turn: Turn, affordable: Sequence[Move], load: Load, caps: Caps) -> List[Move]:
    """The moves that fit under the caps. One whose targets are not known moves alone."""
    found = choose(affordable, load, caps, turn.now)
    crowded = {osd for move in affordable for osd in move.targets
               if load.target.get(osd, 0) >= caps.receives.get(osd, caps.pgs + 1)}
    if crowded:
        turn.because(Code.PG_LIMIT, 'no PG is released to OSDs that hold as many PGs as '
                     'mon_max_pg_per_osd (%d) allows: %s; "rebalance acknowledge PG_LIMIT" '
                     'continues' % (turn.seen.pg_limit, osds_text(crowded)))
    if not found and not crowded:
        turn.because(Code.CAP_BACKFILLS, 'every remaining PG has an OSD, host or failure domain at '
                     'its limit (max_backfills_*)%s' % _deleting(turn))
    return [move for move in found if move.known] or found[:1]


def _release(turn: Turn, moves: Sequence[Move], stalls: Stalls) -> None:
    """Remove the pins of these PGs."""
    flights: Dict[str, Flight] = dict(turn.campaign.in_flight)
    for move in moves:
        pin = turn.pin_of(move.pgid)
        assert pin is not None
        flights[move.pgid] = replace(_flight(turn, move, pin.leads_to), pin=pin)
        turn.actions.append(SetEntry(move.pgid, pin.leads_to, turn.seen.osdmap.entry(move.pgid),
                                     prime=_prime(turn, move, pin)))
    changes = [IntervalChange(turn.now, pool_of(move.pgid), _peering(move), move.pgid)
               for move in moves for _ in range(1 if _is_primed(turn, move) else 2)]
    turn.set(in_flight=flights, progressed=turn.now,
             stalls=replace(note(stalls, changes, turn.now, turn.seen.stats_period),
                            released=turn.now))


def _deleting(turn: Turn) -> str:
    number = len(turn.seen.removing)
    return '; PGs that %s still deleting also count' % are(number, 'OSD') if number else ''


def _is_batch(turn: Turn, number: int, most: int, spread: bool) -> bool:
    """Whether to release this number of PGs now; at most `most` may be in flight. `spread`: only
    the budget of stalls prevents more, so with no PG in flight there is nothing to wait for. The
    same holds without active clients. PGs in flight on OSDs with a stop condition may arrive
    late."""
    flights = turn.campaign.in_flight
    waiting = turn.pin_count - sum(1 for flight in flights.values() if flight.pin is not None)
    stuck = sum(1 for pgid, flight in flights.items()
                if any(stop.concerns(path_osds(flight), (pool_of(pgid),)) for stop in turn.stops))
    seconds = batch_seconds(turn.seen.commit_seconds)
    if number >= min(batch_pgs(turn.seen.commit_seconds), waiting, most - stuck) \
            or not 0.0 <= turn.now - turn.campaign.stalls.released < seconds:
        return True
    # Slow mons are also spared if no client would notice.
    return seconds <= BATCH_SECONDS and (
        not (spread or flights) or turn.campaign.pace.code == Code.NO_CLIENTS)


def _without_degraded(turn: Turn, moves: List[Move]) -> List[Move]:
    """Moves of PGs that are known not to be degraded.

    Reported degraded PGs are a stop condition; those whose OSD has just gone down are not reported
    yet. If it is waived or muted, other PGs are released.
    """
    reason = Reason(Code.DEGRADED, 'the remaining PGs may be degraded; they are '
                    'released after recovery')
    waived = is_waived(reason, turn.campaign.acknowledged) or is_muted(reason, turn.seen.signals)
    found = [move for move in moves if not (waived and _may_be_degraded(turn, move)
                                            or turn.lost and _lacks_an_osd(turn, move))]
    if len(found) < len(moves):
        turn.reasons.append(reason)
    return found


def _lacks_an_osd(turn: Turn, move: Move) -> bool:
    """By the OSDMap, which is seconds newer than the statistics."""
    place, pool = turn.seen.placement(move.pgid), turn.pool(move.pgid)
    return place is not None and pool is not None and (
        len(set(place.acting) - {NO_OSD}) < pool.size)


def _may_be_degraded(turn: Turn, move: Move) -> bool:
    place = turn.seen.placement(move.pgid)
    return place is not None and may_be_degraded(place.acting, turn.seen.degraded_osds)


def _prime(turn: Turn, move: Move, pin: PinRecord) -> OsdSet:
    """The acting set of the PG until its data has moved; (): the OSDs determine it."""
    osdmap = turn.seen.osdmap
    pool, place = osdmap.pools.get(pool_of(move.pgid)), turn.seen.placement(move.pgid)
    if (pool is None or place is None or place.up != place.acting or not move.targets
            or not _is_primed(turn, move)):
        return ()
    there = released_up(pool, place.up, pin.entry, pin.leads_to, turn.out, raw=pin.raw)
    # With a primary affinity, another OSD than the first one of the new set may lead it.
    if not there or any(osd in osdmap.osds and osdmap.osds[osd].primary_affinity < 1.0
                        for osd in there):
        return place.acting
    there = led_by(there, osdmap.upmap_primaries.get(move.pgid), turn.out)
    return serving_until_moved(pool, place.acting, there)


def _is_primed(turn: Turn, move: Move) -> bool:
    """The PG's acting set is sent along with its release."""
    pool = turn.seen.osdmap.pools.get(pool_of(move.pgid))
    return pool is None or EC_OPTIMIZATIONS not in pool.flags


def _afforded(turn: Turn, stalls: Stalls,
              moves: Sequence[Move]) -> Tuple[List[Move], Stalls]:
    """The first moves of each pool, as many as its budget of stalls allows, and the stalls after
    them."""
    found: List[Move] = []
    for move in moves:
        if affords(stalls, pool_of(move.pgid)):
            found.append(move)
            stalls = spend(stalls, pool_of(move.pgid), _is_primed(turn, move))
    return found, stalls


def _peering(move: Move) -> OsdSet:
    """OSDs that may lead the PG while it peers."""
    if not move.moves_primary:
        return (move.primary,)
    return tuple(dict.fromkeys((*move.leaders, *move.targets)))


def _flight(turn: Turn, move: Move, entry: UpmapEntry) -> Flight:
    return Flight(since=turn.now, entry=entry, sources=move.sources, targets=move.targets,
                  primary=move.primary, bytes=move.bytes, readers=move.readers)


def full_osds(turn: Turn) -> FrozenSet[int]:
    """OSDs that should receive no data now.

    The mgr cannot find out cheaply which PGs are too full to be backfilled: while there are any, it
    may be the target of each flight.
    """
    osds = turn.seen.osdmap.osds
    full = {osd.id for osd in osds.values() if osd.fullness}
    waiting = turn.moves.targets()
    for code, text, found in (
            (Code.TARGET_FULL, 'too full', waiting & full),
            (Code.TARGET_DOWN, 'down', {osd for osd in waiting
                                        if osd not in osds or not osds[osd].up})):
        if found:
            turn.because(code, 'PGs wait for targets that are %s: %s' % (text, osds_text(found)))
    if turn.seen.signals.counts.backfill_toofull:
        turn.because(Code.BACKFILL_TOOFULL, 'targets are too full for backfill; no PG is released '
                     'to the targets of the PGs in flight')
        full.update(osd for flight in turn.campaign.in_flight.values() for osd in flight.targets)
    return frozenset(full)


def receives(turn: Turn) -> Mapping[int, int]:
    """OSD -> PGs that it may receive until it holds as many as mon_max_pg_per_osd allows.

    PGs that have arrived since the last reading of the OSDs may count twice.
    """
    seen, campaign = turn.seen, turn.campaign
    if not seen.pg_limit or not seen.osd_counts or Code.PG_LIMIT in campaign.acknowledged:
        return {}
    left = {osd: seen.pg_limit - (seen.osd_counts[osd].total if osd in seen.osd_counts else 0)
            for osd in seen.osdmap.osds}
    arrived = {change.pgid for change in campaign.stalls.changes
               if turn.now - change.time <= 2 * seen.stats_period} - campaign.in_flight.keys()
    for pgid in arrived - {''}:
        place = seen.placement(pgid)
        for osd in place.acting if place is not None else ():
            left[osd] = left.get(osd, seen.pg_limit) - 1
    return left


def _releasable(turn: Turn, move: Move, full: FrozenSet[int]) -> bool:
    """Whether the pin is in force and the targets are ready."""
    pgid, campaign, osds = move.pgid, turn.campaign, turn.seen.osdmap.osds
    if pgid in campaign.in_flight or pgid in campaign.pinning or turn.pin_of(pgid) is None:
        return False
    if not move.known and campaign.in_flight:
        return False  # it may concern any OSD, so it is released alone
    for osd in move.targets:
        if osd in full or osd not in osds or not osds[osd].up:
            return False
    return True
