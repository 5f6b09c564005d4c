# SPDX-License-Identifier: LGPL-2.1-or-later
"""Releasing pinned PGs batch by batch, following each until it has arrived, pinning back."""
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import (AbstractSet, Any, Callable, Dict, FrozenSet, List, Mapping, Optional,
                    Sequence, Tuple)

from ..cluster.types import NO_OSD, OsdSet, UpmapEntry, pool_of
from ..errors import Code, Reason
from ..tables import pgs, plural
from ..upmap.pins import Pin, plan_pin, released_up
from ..watch.stop_conditions import OwnPg, Stop, is_muted, is_waived, osds_text
from .copying import in_force
from .holds import epoch_of, peering_text, refused_options
from .moves import (SCAN, Caps, Load, Move, choose, load_of, move_between, path_osds,
                    serving_until_moved, window)
from .pinning import is_mixture, may_be_degraded, waits
from .progress import LONGEST_TURN_SECONDS, advance
from .stalls import IntervalChange, Stalls, affords, note, spend
from .throttle import limit
from .turn import Turn
from .types import Flight, Phase, PinRecord, Sent, SetEntry

#: Report periods after which a PG that was never seen remapped has arrived even though others are
#: peering: were it one of them, the OSDMap would have shown its acting set long before.
PEERING_PATIENCE_PERIODS = 6
#: Seconds within which both halves of a release (items and vector) are in the OSDMap.
SETTLE_SECONDS = 3.0
#: A release that the OSDMap does not show is sent so often before it counts as refused.
SEND_TIMES = 4
#: Each release, and each arrival, takes two OSDMap epochs: a new interval, and the up_thru of the
#: PG's primary. PGs that are released together share theirs. So releases wait for one another
#: until there are so many, or for so long after the last ones.
#: With 8 s instead of 5 s the same expansion took 344 s instead of 240 s, and p99 was not lower
#: (3.4 and 3.1 times that at rest; Pacific, qa/bench/expansion, one run each).
#: Arrivals are not gathered: only the mons' paxos_min_wait would do that, and the up_thru of a
#: primary that learns late of its new interval waits for it as well. With 1 s and an interval of
#: 0.2 s a PG took 1.4 epochs instead of 2.4, but a stall 0.2 s instead of 0.05 s, and p99.9 was
#: 22 times that at rest instead of 11 times.
BATCH_PGS = 8
BATCH_SECONDS = 5.0
#: A pool's flag (allow_ec_optimizations, from Tentacle on). Its pg_temp is stored with the shards
#: that may become primary first, and OSDs and clients undo that order (OSDMap::pgtemp_primaryfirst
#: and pgtemp_undo_primaryfirst). OSDs send it in that order, but the mon takes the sets of
#: `osd pg-temp` as they are: a primed set would have shards on the wrong OSDs for an interval.
EC_OPTIMIZATIONS = 'ec_optimizations'


def follow_flights(turn: Turn) -> None:
    """Confirm releases in the OSDMap, repeat lost ones, count those that have arrived."""
    flights: Dict[str, Flight] = {}
    changes: List[IntervalChange] = []
    released, bytes_done = turn.campaign.released, turn.campaign.bytes_done
    for pgid, flight in turn.campaign.in_flight.items():
        if turn.pool(pgid) is None:
            turn.forget_pin(pgid)
            turn.event('release', 'PG %s no longer exists' % pgid, 'the PG or its pool was removed')
            continue
        if _is_refused(turn, pgid, flight):
            _give_up(turn, pgid)
            continue
        flight = _observe(turn, pgid, flight)
        if _arrived(turn, pgid, flight):
            if flight.pin is None and turn.pin_of(pgid) is not None:
                # An OSD was down for a while, and the PG is back where its pin keeps it.
                continue
            released += 1
            bytes_done += flight.bytes
            turn.forget_pin(pgid)
            changes.append(_arrival(turn, pgid, flight))
        else:
            flights[pgid] = flight
    campaign = turn.campaign
    passed = _passed(turn)
    moving = campaign.in_flight or campaign.phase is Phase.RELEASING
    # Holds count for the time left as well; the hours outside the time window are known.
    counts = moving or (campaign.phase is Phase.HOLDING
                        and campaign.limits.now != Code.WINDOW_CLOSED)
    if released > turn.campaign.released:
        turn.set(progressed=turn.now)
    turn.set(in_flight=flights, released=released, bytes_done=bytes_done,
             moving_seconds=campaign.moving_seconds + (passed if moving else 0.0),
             arrivals=advance(campaign.arrivals, passed if counts else 0.0,
                              bytes_done - campaign.bytes_done),
             stalls=note(campaign.stalls, changes, turn.now, turn.seen.stats_period))


def _passed(turn: Turn) -> float:
    """Seconds since the last turn, as far as they count for the campaign's speed."""
    campaign = turn.campaign
    if not campaign.turned or campaign.paused:
        return 0.0
    return min(max(0.0, turn.now - campaign.turned), LONGEST_TURN_SECONDS)


def _is_refused(turn: Turn, pgid: str, flight: Flight) -> bool:
    """The mon does not take the release: its target is gone, for example."""
    return (flight.confirmed is None and flight.pin is not None and flight.sent >= SEND_TIMES
            and turn.seen.osdmap.entry(pgid) == flight.pin.entry
            and turn.now - flight.since > turn.options.readback_timeout)


def _give_up(turn: Turn, pgid: str) -> None:
    """The PG stays where it is, with its pin as an ordinary upmap."""
    turn.forget_pin(pgid)
    turn.set(kept=turn.campaign.kept + 1)
    turn.event('keep', 'PG %s is not released' % pgid,
               'the mons did not accept its release, sent %d times' % SEND_TIMES)


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
    """The flight with what it moves, of a PG whose way was not known before it was released."""
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
        # Sent twice and still not what it was before: the mon keeps only this much of it.
        return replace(flight, confirmed=turn.now)
    turn.actions.append(SetEntry(pgid, flight.entry, present))
    turn.event('release', 'PG %s is released again' % pgid,
               'the OSDMap does not show the release')
    return replace(flight, since=turn.now, sent=flight.sent + 1)


def _fall_back(turn: Turn, pgid: str, flight: Flight, pin: PinRecord) -> Flight:
    """The mon does not keep the PG's goal: release it to what was before instead."""
    turn.actions.append(SetEntry(pgid, pin.before, turn.seen.osdmap.entry(pgid)))
    turn.event('release', 'PG %s is released to its upmap from before the campaign' % pgid,
               'the mons do not keep the upmap that the balance requires')
    return replace(flight, entry=pin.before, since=turn.now, pin=replace(pin, goal=None))


def _arrived(turn: Turn, pgid: str, flight: Flight) -> bool:
    """Whether the PG is served from its target.

    Right after the release the OSDMap shows up = acting as well, until the primary has peered and
    asked for its old acting set. So either that was seen to come and go, or two reports of the PG
    states have passed and no PG is peering: a PG without data never asks.
    """
    if flight.confirmed is None or pgid in turn.seen.osdmap.pg_temp:
        return False
    place = turn.seen.placement(pgid)
    if place is None or place.up != place.acting:
        return False
    if flight.seen_remapped:
        return True
    age = turn.now - flight.confirmed
    peering = turn.in_transition
    return age > 2 * turn.seen.stats_period and (
        peering == 0 or age > PEERING_PATIENCE_PERIODS * turn.seen.stats_period)


def loose_moves(turn: Turn) -> Dict[str, Move]:
    """PGs that are remapped, cannot be pinned, and are not counted as in flight yet.

    Only norebalance keeps them where they are.
    """
    found: Dict[str, Move] = {}
    for pgid in turn.campaign.unpinnable:
        pool, place = turn.pool(pgid), turn.seen.placement(pgid)
        if (pgid in turn.campaign.in_flight or pool is None or place is None
                or pgid not in turn.seen.osdmap.pg_temp or waits(turn.campaign, pgid)):
            continue
        found[pgid] = move_between(pgid, pool, place.acting, place.up,
                                   turn.seen.signals.pool_bytes.get(pool.id, 0))
    return found


def adopt_unpinnable(turn: Turn, moves: Mapping[str, Move]) -> None:
    """Count PGs against the caps that move as soon as norebalance is cleared; see loose_moves."""
    if moves:
        adopted = {pgid: _flight(turn, move, turn.seen.osdmap.entry(pgid), confirmed=turn.now,
                                 seen_remapped=True) for pgid, move in moves.items()}
        # What was accepted is these PGs, and none that a later change makes unpinnable.
        turn.set(in_flight={**turn.campaign.in_flight, **adopted}, accepted_unpinnable=0)


def keep_stayers(turn: Turn) -> None:
    """Pins whose goal is what they say already become ordinary upmaps."""
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
    """Let pins go that stay in the OSDMap; counted once, also if a crash brings them back."""
    for pgid in pgids:
        turn.forget_pin(pgid)
    if turn.campaign.kept_mark != mark:
        turn.set(kept=turn.campaign.kept + len(pgids), kept_mark=mark)


def recovering(turn: Turn) -> List[OwnPg]:
    """PGs that may be degraded because they were released.

    The new OSD of a PG that holds little is brought up to date from the PG's log: the PG is never
    remapped, and degraded for a moment, which the reports show until after it has arrived.
    """
    seen, campaign = turn.seen, turn.campaign
    pgids = {*campaign.in_flight, *(change.pgid for change in campaign.stalls.changes)}
    own: List[OwnPg] = []
    for pgid in pgids - set(seen.osdmap.pg_temp) - {''}:
        place = seen.placement(pgid)
        if place is not None:
            own.append(OwnPg(pool_of(pgid), frozenset(place.acting) - {NO_OSD}))
    return own


def _is_held(turn: Turn, move: Move) -> bool:
    """A stop condition concerns an OSD or the pool of the move."""
    return any(concerns(stop, move) for stop in turn.stops)


def concerns(stop: Stop, move: Move) -> bool:
    return stop.concerns(path_osds(move), (pool_of(move.pgid),))


def held_moves(turn: Turn, loose: Mapping[str, Move]) -> List[Reason]:
    """The stop conditions of some OSDs and pools that hold every release between them, or one of
    the `loose` PGs: only norebalance holds those, and it holds everything."""
    if turn.moves and turn.stops and all(_is_held(turn, move) for move in turn.moves.values()):
        return [stop.reason for stop in turn.stops]
    return [stop.reason for stop in turn.stops
            if any(concerns(stop, move) for move in loose.values())]


def present_load(turn: Turn, most: Caps) -> Load:
    """What is moving, and the deletion of what has moved away."""
    load = load_of(turn.campaign.in_flight, turn.seen.crush.host_of, domains(turn))
    load.add_removals(turn.seen.removing, most.source)
    return load


def release_more(turn: Turn) -> None:
    """Release what fits under the caps; at most as many as may peer at once."""
    campaign = turn.campaign
    allowed = limit(campaign.pace, turn.options)
    turn.reasons.append(allowed.reason)
    turn.reasons.extend(Reason(stop.reason.code, stop.reason.text + '; releases that do '
                               'not affect these continue') for stop in turn.stops)
    turn.because(Code.FAST_PEERING,
                 peering_text(epoch_of(turn.seen.osdmap), turn.options.fast_peering))
    if campaign.copying.wanted:
        turn.because(Code.PACED, in_force(campaign.copying))
    for option in refused_options(campaign.holds):
        turn.because(Code.COMMAND_FAILED, 'the mons did not accept %s; the campaign continues '
                     'without it' % option)
    room = turn.peering_room()
    if room <= 0:
        turn.because(Code.PEERING, 'waiting for PGs to peer (max_transition_ratio)')
        return
    load = present_load(turn, allowed.caps)
    if load.pgs >= allowed.caps.pgs:
        return
    full = full_osds(turn)
    candidates = [_judged(turn, move)
                  for move in window(list(turn.moves.values()), start=int(turn.now) * SCAN)
                  if _releasable(turn, move, full)]
    if turn.stops:
        candidates = [move for move in candidates if not _is_held(turn, move)]
    candidates = _without_degraded(turn, candidates)
    if not candidates:
        return
    affordable = [move for move in candidates if affords(campaign.stalls, pool_of(move.pgid))]
    if not affordable:
        turn.because(Code.STALL_SHARE, 'waiting a few seconds between releases (stall_share)')
        return
    caps = replace(allowed.caps, pgs=min(allowed.caps.pgs, load.pgs + room),
                   receives=receives(turn))
    chosen = choose(affordable, load, caps, turn.now)
    crowded = {osd for move in affordable for osd in move.targets
               if load.target.get(osd, 0) >= caps.receives.get(osd, caps.pgs + 1)}
    if crowded:
        turn.because(Code.PG_LIMIT, 'no PG is released to OSDs that hold as many PGs as '
                     'mon_max_pg_per_osd (%d) allows: %s; "rebalance acknowledge PG_LIMIT" '
                     'continues' % (turn.seen.pg_limit, osds_text(crowded)))
    if not chosen and not crowded:
        turn.because(Code.CAP_BACKFILLS, 'every remaining PG has an OSD, host or failure domain at '
                     'its limit (max_backfills_*)%s' % _deleting(turn))
    if not chosen:
        return
    chosen = [move for move in chosen if move.known] or chosen[:1]
    fitting = len(chosen)
    chosen, stalls = _afforded(turn, campaign.stalls, chosen)
    spread = len(chosen) < fitting or len(affordable) < len(candidates)
    if not _is_batch(turn, len(chosen), allowed.caps.pgs, spread):
        turn.because(Code.BATCH, 'waiting up to %g s for further PGs that share OSDMap epochs with '
                     'the next release' % BATCH_SECONDS)
        return
    flights: Dict[str, Flight] = dict(campaign.in_flight)
    for move in chosen:
        pin = turn.pin_of(move.pgid)
        assert pin is not None
        flights[move.pgid] = _flight(turn, move, pin.leads_to, pin=pin)
        turn.actions.append(SetEntry(move.pgid, pin.leads_to, turn.seen.osdmap.entry(move.pgid),
                                     prime=_prime(turn, move, pin)))
    changes = [IntervalChange(turn.now, pool_of(move.pgid), _peering(move), move.pgid)
               for move in chosen for _ in range(1 if _is_primed(turn, move) else 2)]
    turn.set(in_flight=flights, progressed=turn.now,
             stalls=replace(note(stalls, changes, turn.now, turn.seen.stats_period),
                            released=turn.now))
    turn.event('release', 'releasing ' + pgs(len(chosen)), allowed.reason.text)


def _deleting(turn: Turn) -> str:
    number = len(turn.seen.removing)
    return '; %s deleting PGs that have moved away, which count as well' % (
        '1 OSD is' if number == 1 else '%d OSDs are' % number) if number else ''


def _is_batch(turn: Turn, number: int, most: int, spread: bool) -> bool:
    """Whether to release so many PGs now, of `most` that may be in flight. `spread`: only the
    budget of stalls speaks against more; while nothing is in flight that is all to wait for. Where
    no client is active, nothing is. PGs in flight whose OSDs are held may not arrive soon."""
    flights = turn.campaign.in_flight
    waiting = turn.pin_count - sum(1 for flight in flights.values() if flight.pin is not None)
    stuck = sum(1 for pgid, flight in flights.items()
                if any(stop.concerns(path_osds(flight), (pool_of(pgid),)) for stop in turn.stops))
    return (number >= min(BATCH_PGS, waiting, most - stuck) or not (spread or flights)
            or turn.campaign.pace.code == Code.NO_CLIENTS
            or not 0.0 <= turn.now - turn.campaign.stalls.released < BATCH_SECONDS)


def _without_degraded(turn: Turn, moves: List[Move]) -> List[Move]:
    """Moves of PGs that are known not to be degraded.

    Degraded PGs that are reported hold what they concern; those whose OSD has just gone down are
    not reported yet. A waiver, or a mute, is for the sake of the other PGs.
    """
    reason = Reason(Code.DEGRADED, 'the remaining PGs may be degraded; they are '
                    'released after recovery')
    waived = is_waived(reason, turn.campaign.acknowledged) or is_muted(reason, turn.seen.signals)
    lost = any(osd.exists and not osd.up and osd.reweight > 0
               for osd in turn.seen.osdmap.osds.values())
    found = [move for move in moves if not (waived and _may_be_degraded(turn, move)
                                            or lost and _lacks_an_osd(turn, move))]
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
    """Who serves the PG until its data has moved, if any does; (): leave it to the OSDs."""
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
    return serving_until_moved(pool, place.acting, there)


def _is_primed(turn: Turn, move: Move) -> bool:
    """The PG's acting set is sent along with its release."""
    pool = turn.seen.osdmap.pools.get(pool_of(move.pgid))
    return pool is None or EC_OPTIMIZATIONS not in pool.flags


def _afforded(turn: Turn, stalls: Stalls,
              moves: Sequence[Move]) -> Tuple[List[Move], Stalls]:
    """The first moves of each pool, as many as its budget of stalls allows, and what is left."""
    found: List[Move] = []
    for move in moves:
        if affords(stalls, pool_of(move.pgid)):
            found.append(move)
            stalls = spend(stalls, pool_of(move.pgid), _is_primed(turn, move))
    return found, stalls


def _peering(move: Move) -> OsdSet:
    """OSDs that may lead the PG while it peers."""
    if move.moves_primary:
        return (move.primary, *move.targets)
    return (move.primary,)


def _flight(turn: Turn, move: Move, entry: UpmapEntry, **more: Any) -> Flight:
    return Flight(since=turn.now, entry=entry, sources=move.sources, targets=move.targets,
                  primary=move.primary, bytes=move.bytes, readers=move.readers, **more)


def domains(turn: Turn) -> Callable[[str, int], Optional[str]]:
    """PG, OSD -> the failure domain of the PG's rule that the OSD is in; None where that is the
    OSD itself, whose own caps are stricter."""
    crush, pools = turn.seen.crush, turn.seen.osdmap.pools
    kinds = {pool.id: crush.failure_domain(pool.crush_rule) for pool in pools.values()}
    names: Dict[Tuple[str, int], Optional[str]] = {}

    def domain_of(pgid: str, osd: int) -> Optional[str]:
        kind = kinds.get(pool_of(pgid))
        if kind is None or kind == 'osd':
            return None
        if (kind, osd) not in names:
            name = crush.domain_of(osd, kind)
            names[kind, osd] = None if name is None else '%s %s' % (kind, name)
        return names[kind, osd]

    return domain_of


def _judged(turn: Turn, move: Move) -> Move:
    """The move with what the OSDs' fullness says of it."""
    osds = turn.seen.osdmap.osds
    relieves = any(osd in osds and osds[osd].fullness for osd in move.sources)
    return replace(move, relieves=True) if relieves else move


def full_osds(turn: Turn) -> FrozenSet[int]:
    """OSDs that should get nothing now.

    The mgr cannot find out cheaply which PGs are too full to be backfilled: while there are any, it
    may be the target of each flight.
    """
    osds = turn.seen.osdmap.osds
    full = {osd.id for osd in osds.values() if osd.fullness}
    # No Python statement for each of 100,000 moves.
    waiting = set(chain.from_iterable(map(attrgetter('targets'), turn.moves.values())))
    for code, text, found in (
            (Code.TARGET_FULL, 'too full', waiting & full),
            (Code.TARGET_DOWN, 'down', {osd for osd in waiting
                                        if osd not in osds or not osds[osd].up})):
        if found:
            turn.because(code, 'waiting PGs have '
                         'targets that are %s: %s' % (text, osds_text(found)))
    if turn.seen.signals.counts.backfill_toofull:
        turn.because(Code.BACKFILL_TOOFULL, 'targets are too full for backfill; no PG is released '
                     'to the targets of the PGs in flight')
        full.update(osd for flight in turn.campaign.in_flight.values() for osd in flight.targets)
    return frozenset(full)


def receives(turn: Turn) -> Mapping[int, int]:
    """OSD -> PGs that it may receive until it holds as many as mon_max_pg_per_osd allows.

    What has arrived since the last reading of the OSDs may count twice: no more than that.
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
    """Pinned, its pin in force, and its targets ready to take it."""
    pgid, campaign, osds = move.pgid, turn.campaign, turn.seen.osdmap.osds
    if pgid in campaign.in_flight or pgid in campaign.pinning or turn.pin_of(pgid) is None:
        return False
    if not move.known and campaign.in_flight:
        return False  # it may be charged to anything, so it goes alone
    return all(osd in osds and osds[osd].up and osd not in full for osd in move.targets)


def pin_back(turn: Turn, only: Optional[AbstractSet[str]] = None) -> None:
    """Pin PGs in flight (`only` these) back to where their data is.

    To be called once norebalance is in force: the OSDMap is some seconds old, and a PG that has
    arrived meanwhile would move once more.
    """
    campaign = turn.campaign
    back = {pgid: flight for pgid, flight in campaign.in_flight.items()
            if (only is None or pgid in only) and not _may_have_arrived(turn, pgid, flight)}
    if not back:
        return
    pinning = dict(campaign.pinning)
    released = campaign.released
    stuck: List[str] = []
    for pgid, flight in back.items():
        if flight.pin is None:
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
    turn.event('pin', 'pinning %s back' % pgs(len(pinning) - len(campaign.pinning)))
    if stuck:
        turn.event('unpinnable', 'PGs %s continue to their targets' % ', '.join(sorted(stuck)),
                   'they cannot be pinned back')
    turn.set(in_flight={pgid: flight for pgid, flight in campaign.in_flight.items()
                        if pgid not in back},
             pinning=pinning, pins_sent=turn.now, released=released)


def _may_have_arrived(turn: Turn, pgid: str, flight: Flight) -> bool:
    """The PG is released and not remapped: it has arrived, or is to peer. It is followed until
    the OSDMap shows which."""
    return (flight.pin is not None and flight.confirmed is not None
            and pgid not in turn.seen.osdmap.pg_temp)


def _way_back(turn: Turn, pgid: str, pin: PinRecord) -> Optional[PinRecord]:
    """The pin that keeps a PG in flight where its data is; None if there cannot be one."""
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
