# SPDX-License-Identifier: LGPL-2.1-or-later
"""The throttle: limits the PGs in flight by feedback on client latency (`decide`).

Measured, per reading (5 s): the mean latency of each pool near the movement, reads and writes
apart, without operations that wait for PGs that peer, and without OSDs that are slow on their own;
if there are too few operations, the latency of the last minute.
Against: the limit of the pool, plus what the load and chance explain (latency.py). The pressure is
the ratio, for the worst pool.

1. Up to COMFORT: the limit of PGs in flight grows by STEP_SHARE of the cap, if it is reached.
   Up to 1: it stays.
2. Above 1, or for a minute above it without the allowance for chance: half of the PGs in flight.
3. Above 1 for HALT_READINGS with one PG in flight: all movement is halted.
4. Up to 1 for HALT_READINGS of a halt: it ends, with one PG.
5. Above 1 for NEW_BASELINE_READINGS of a halt in which nothing moves, less those up to 1: movement
   is not the cause. The halt ends, and the latency is the baseline of the pool until it falls; once
   an hour.
6. Without evidence for BLIND_READINGS: a halt ends, and a limit below the first one is doubled.
   After the cap was raised: a limit that was not lowered grows up to the first one as in 1.
7. A halt within REPEATED_READINGS of the end of another one, during which latency was up to 1,
   twice in a row, and PGs that have been in flight for LONG_FLIGHT_SECONDS: as they do not arrive,
   a lower limit alone does not help. Half of the PGs in flight are pinned back, the last released
   first, and for CEILING_SECONDS no more may be in flight, unless clients are idle.
"""
import heapq
from dataclasses import dataclass, replace
from typing import AbstractSet, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from ..cluster.crush import CrushRules
from ..cluster.types import OsdMap
from ..errors import Code, Reason
from ..observation import IDLE_SECONDS, OSD_OPTION, Clients
from ..options import Options
from ..text import bytes_text, ms_text, plural
from ..watch.pools import BadLimit, named_target
from ..watch.slow_reads import judged_osds, places_of, slow_osds, slow_reads_after
from ..watch.slowness import CROWD_PART, EXEMPT_SECONDS
from ..watch.stop_conditions import is_waived
from ..window import BadWindow, opens_in
from . import copying
from .draft import Draft, flight_osds
from .epochs import PROPOSE_INTERVAL, epoch_of
from .holds import NOREBALANCE
from .latency import (SMALL_OPS, Path, PoolLatency, comparable_osds, explains_pool, judged,
                      minute_latencies, pool_latencies, slowed_by_movement, strain, without_slow)
from .moves import Caps
from .settings import problems, unknown_pools, window_of
from .stalls import credit, mean_stall_ms, measure, unsteady
from .types import Flight, Pace

#: Cap if max_pgs_in_flight is 0 and the cluster is small; the caps by OSD and host are reached
#: first.
LEAST_PGS = 32
#: Bytes in flight for each of these PGs if max_bytes_in_flight is 0.
BYTES_PER_PG = 128 << 30
#: Share of the cap with which a campaign begins, as its effect on clients is unknown, and share of
#: each increase: the cap is reached in 75 s.
FIRST_SHARE = 0.25
STEP_SHARE = 0.05
#: Maximum increase at a time, as a share of the limit: if little of a large cluster moves, a step
#: relative to its cap would be too large.
STEP_MAX = 0.25
#: Factor of the limit of PGs in flight when latency exceeds its limit.
DECREASE = 0.5
#: Pressure (latency / its limit) up to which the PGs in flight are raised; between this and 1 they
#: are kept.
COMFORT = 0.8
#: Readings over the limit of latency with one PG in flight after which movement is halted, and
#: readings below it until it resumes.
HALT_READINGS = 3
#: Readings after the end of a halt within which another one is its repetition: HALT_READINGS, and
#: as many until backfills have their speed again. Later bursts of clients do not count.
REPEATED_READINGS = 2 * HALT_READINGS
#: Repetitions in a row after which PGs are pinned back.
REPETITIONS = 2
#: A PG in flight for less is left to arrive.
LONG_FLIGHT_SECONDS = 300.0
#: How long a ceiling lasts: much longer than a halt, and a small part of a backfill of hours.
CEILING_SECONDS = 900.0
#: Time after the last evidence in which a reading with too few operations changes nothing; after
#: it, the last minute is judged.
MINUTE_SECONDS = 60.0
#: Further readings without evidence after which a halt ends or a lowered limit is doubled (90 s).
BLIND_READINGS = 18
#: Number of readings over the limit of latency while nothing can move (3 min) after which movement
#: is not the cause.
NEW_BASELINE_READINGS = 36
#: Maximum multiple of the baseline to which the load raises a limit: beyond it, the cluster has a
#: problem regardless of the cause, and movement is slowed.
LOAD_BASELINES_MAX = 3.0
#: Consecutive readings in which all pools together exceed their limits that count like one clear
#: reading, even if chance may explain each of them (1 min).
LASTING_READINGS = 12
#: Seconds after the last arrival for which releases wait for the mons to trim OSDMaps. The mons
#: trim every few seconds; what they keep is read once a minute.
TRIM_SECONDS = 150.0
#: untrimmed_ceiling if it is 0: as many epochs as take this space on each mon and OSD, below the
#: 15 GiB of MON_DISK_BIG (mon_data_size_warn). At most so many, as an OSD removes only 30 with each
#: new map (osd_target_transaction_size); at least twice what mons always keep.
CEILING_BYTES = 10 << 30
CEILING_EPOCHS_MAX, CEILING_EPOCHS_MIN = 50000, 1500


@dataclass(frozen=True)
class Limit:
    caps: Caps
    reason: Reason


def limit(pace: Pace, options: Options) -> Limit:
    """The caps in force. Bytes are not reduced with the PGs: otherwise the limit of PGs would not
    be used fully, and could not grow."""
    all_caps = caps(options)
    pgs = max(1, int(min(pace.pgs or first_limit(options), all_caps.pgs)))
    text = 'at most %d of %s may be in flight' % (pgs, plural(all_caps.pgs, 'PG'))
    if pace.ceiling:
        text += ', and %d for %d min after repeated halts' % (pace.ceiling, CEILING_SECONDS // 60)
    return Limit(replace(all_caps, pgs=pgs),
                 Reason(pace.code, text + (': ' + pace.why if pace.why else '')))


def caps(options: Options) -> Caps:
    """The operator's caps, which no feedback exceeds."""
    pgs = options.max_pgs_in_flight or LEAST_PGS
    return Caps(pgs=pgs, bytes=options.max_bytes_in_flight or BYTES_PER_PG * max(LEAST_PGS, pgs),
                source=options.max_backfills_source, primary=options.max_backfills_primary,
                target=options.max_backfills_target, host=options.max_backfills_host,
                device=options.max_backfills_device, domain=options.max_backfills_domain)


def first_limit(options: Options) -> float:
    """The limit of PGs in flight with which a campaign begins."""
    return max(1.0, FIRST_SHARE * caps(options).pgs)


def pace_after_stop(pace: Pace) -> Pace:
    """The pace after a stop condition: half of the limit before it."""
    return replace(pace, pgs=max(1.0, DECREASE * pace.pgs), over=0, under=0, raised=False)


def decide(pace: Pace, clients: Clients, unsteady: AbstractSet[int], stall_ms: float,
           in_flight: int, options: Options, nothing_moves: bool = False,
           path: Path = Path()) -> Pace:
    """The pace after a new reading of client latency; without a new one, `pace` as it is.

    The limit of PGs in flight rises while latency is well within its limits, and falls, down to a
    halt, while it is over them. `unsteady`: OSDs whose operations wait for peering PGs;
    `stall_ms`: what such stalls may add to the mean latency; `in_flight`: number of PGs;
    `nothing_moves`: norebalance is in force, or keeps nothing in place; `path`: where data moves.
    """
    cap = float(caps(options).pgs)
    pace = replace(pace, pgs=min(pace.pgs or first_limit(options), cap))
    if clients.time == pace.decided:
        return pace if pace.why else _because(pace, _no_evidence(clients))
    is_raised = 0.0 < pace.cap < cap and pace.pgs >= FIRST_SHARE * pace.cap
    pace = replace(pace, decided=clients.time, cap=cap, raised=pace.raised or is_raised)
    if clients.all_idle:
        return replace(pace, pgs=cap, over=0, under=0, halted=False, raised=False,
                       why='clients are idle', code=Code.NO_CLIENTS)
    latencies, readings = judged(pool_latencies(
        clients, unsteady, stall_ms, path, LOAD_BASELINES_MAX)), 1
    is_recently_judged = bool(pace.judged) and clients.time - pace.judged < MINUTE_SECONDS
    if not latencies and not is_recently_judged:
        latencies = judged(minute_latencies(clients, path))
        readings = max(1, round(MINUTE_SECONDS / max(1.0, clients.seconds)))
    if not latencies:
        return _because(pace, _no_evidence(clients)) if is_recently_judged \
            else _without_evidence(pace, clients, in_flight, options)
    pace = _lower_new_baselines(replace(pace, judged=clients.time, raised=False), latencies)
    return _steer(pace, _with_levels(latencies, pace, options), readings, in_flight,
                  is_peering=bool(unsteady), nothing_moves=nothing_moves, options=options)


def _steer(pace: Pace, rows: Sequence[PoolLatency], readings: int, in_flight: int,
           is_peering: bool, nothing_moves: bool, options: Options) -> Pace:
    """The pace by latency relative to its limits. `readings`: how many are judged together;
    `is_peering`: operations of some OSDs waited for peering PGs."""
    # The highest ratio to the limit, with and without the allowance for chance.
    worst, plain_ratio = max(rows, key=lambda row: row.pressure), strain(rows)
    # Many consecutive readings prove what a single one cannot.
    above_in_row = pace.above + 1 if plain_ratio > 1.0 else 0
    is_lasting = above_in_row >= LASTING_READINGS
    pace = replace(pace, above=0 if is_lasting else above_in_row)
    # A halt goes on as long as only chance explains the latency.
    pressure = max(worst.pressure, plain_ratio) if pace.halted else worst.pressure
    if pressure > 1.0 or is_lasting:
        if pace.halted and pace.over >= NEW_BASELINE_READINGS and nothing_moves \
                and _may_become_baseline(pace, rows, options):
            return _with_new_baseline(pace, rows)
        # A small PG may move between two readings: its OSDs show that.
        moving_pgs = max(in_flight, 1 if is_peering else 0)
        return _lower(pace, _latency(worst, is_lasting), moving_pgs, nothing_moves, readings)
    # During a halt no movement raises latency, so it need not be well below its limit.
    if max(worst.pressure, plain_ratio) <= (1.0 if pace.halted else COMFORT):
        return _raise(pace, _latency(worst), in_flight, float(caps(options).pgs), readings)
    return _because(replace(pace, over=0, under=0), _latency(worst))


def _with_levels(plain: Sequence[PoolLatency], pace: Pace, options: Options) -> List[PoolLatency]:
    """The latencies, with limits that allow for the new baselines (Pace.levels). Small pools also
    use that of all small pools together, as those of single ones are random."""
    common_factor = {row.kind: _with_own_level(row, pace, options).target_ms / row.target_ms
                     for row in plain if not row.pool}
    with_levels = []
    for row in plain:
        target_ms = _with_own_level(row, pace, options).target_ms
        if row.ops < SMALL_OPS and row.pool and not row.named:
            target_ms = max(target_ms, common_factor.get(row.kind, 1.0) * row.target_ms)
        with_levels.append(row._replace(target_ms=target_ms))
    return with_levels


def _with_own_level(row: PoolLatency, pace: Pace, options: Options) -> PoolLatency:
    """A latency with the limit that follows from its level while nothing moved (Pace.levels), if
    that is higher than its own."""
    level = pace.levels.get(_name(row))
    if level is None or named_target(options, row.pool) is not None:
        return row
    return row._replace(target_ms=max(row.target_ms, options.latency_factor * level))


def _name(row: PoolLatency) -> str:
    return '%s of %s' % (row.kind, row.who)


def _lower_new_baselines(pace: Pace, with_ordinary_limits: Sequence[PoolLatency]) -> Pace:
    """A latency that has become a new baseline (Pace.levels) falls with the latency, and is removed
    once that is within its ordinary limit."""
    if not pace.levels:
        return pace
    present_ms = {_name(row): row.ms for row in with_ordinary_limits}
    within = {_name(row) for row in with_ordinary_limits if row.ms <= row.target_ms}
    return replace(pace, levels={name: min(level, present_ms.get(name, level))
                                 for name, level in pace.levels.items() if name not in within})


def _may_become_baseline(pace: Pace, rows: Sequence[PoolLatency], options: Options) -> bool:
    """Whether latency over its limit may become the new baseline.

    Limits of latency_limits_ms always hold. A baseline (Pace.levels) is raised at most once in
    EXEMPT_SECONDS, so that it does not follow every rise of latency; without an end of this time, a
    load that grows twice would halt a campaign forever.
    """
    over = [row for row in rows if row.pressure > 1.0]
    recently_raised = pace.decided - pace.acquitted < EXEMPT_SECONDS
    return not any(named_target(options, row.pool) is not None
                   or recently_raised and _name(row) in pace.levels for row in over)


def _with_new_baseline(pace: Pace, rows: Sequence[PoolLatency]) -> Pace:
    """Latency stayed high although nothing moved: the load has changed, and this latency is the new
    baseline."""
    levels = {_name(row): row.ms for row in rows if row.ms > row.target_ms}
    worst = max(rows, key=lambda row: row.pressure)
    return replace(pace, pgs=1.0, over=0, under=0, halted=False, acquitted=pace.decided,
                   levels={**pace.levels, **levels}, code=Code.NEW_BASELINE,
                   why=_latency(worst).text + ' although nothing moves, so this latency '
                   'becomes the new baseline')


def _lower(pace: Pace, why: Reason, in_flight: int, nothing_moves: bool, readings: int) -> Pace:
    """Latency is over its limit for `readings` more readings: lower the limit of PGs, and halt once
    there were enough of them at a limit of one PG."""
    # During a halt, only readings count during which nothing could move.
    over = pace.over + readings if nothing_moves or not pace.halted else 0
    halted = pace.halted or (over >= HALT_READINGS and pace.pgs <= 1.0 and in_flight > 0)
    # Only the used part of the limit was tried: the PGs in flight are too many.
    used = min(pace.pgs, float(max(1, in_flight)))
    # A halt that begins counts its own readings.
    return _because(replace(pace, pgs=max(1.0, DECREASE * used), under=0, halted=halted,
                            over=over if halted == pace.halted else 0), why)


def _raise(pace: Pace, why: Reason, in_flight: int, cap: float, readings: int) -> Pace:
    """Latency is within its limit for `readings` more readings: end a halt once there were enough
    of them; else raise the limit of PGs, if as many are in flight."""
    under, pgs, halted = pace.under + readings, pace.pgs, pace.halted
    if halted:
        halted = under < HALT_READINGS
    elif in_flight >= int(pgs):
        pgs = min(cap, _increased(pgs, cap))
    # Latency that varies about its limit during a halt would otherwise neither end it nor become
    # the baseline.
    over = max(0, pace.over - readings) if halted else 0
    return _because(replace(pace, pgs=pgs, over=over, under=under, halted=halted), why)


def _increased(pgs: float, cap: float) -> float:
    """The limit of PGs after one increase."""
    return pgs + max(1.0, min(STEP_SHARE * cap, STEP_MAX * pgs))


def _without_evidence(pace: Pace, clients: Clients, in_flight: int, options: Options) -> Pace:
    """The pace without evidence: after BLIND_READINGS, a halt ends, or a low limit rises. Not
    earlier, because clients that send nothing may wait for what moves; but a limit that is low
    because the cap was, and not because of latency, follows the cap."""
    # `under` counts these readings, too.
    under, pgs, halted = pace.under + 1, pace.pgs, pace.halted
    if pace.raised and not halted and pgs < first_limit(options):
        if in_flight >= int(pgs):
            pgs = min(first_limit(options), _increased(pgs, float(caps(options).pgs)))
        under = 0
    elif under >= BLIND_READINGS:
        pgs = pgs if halted else max(pgs, min(first_limit(options), pgs / DECREASE))
        under, halted = 0, False
    return _because(replace(pace, pgs=pgs, over=0, under=under, halted=halted),
                    _no_evidence(clients))


def _because(pace: Pace, reason: Reason) -> Pace:
    return replace(pace, why=reason.text, code=reason.code)


def _latency(worst: PoolLatency, lasting: bool = False) -> Reason:
    """Why the pace is as it is: the latency that is closest to its limit, or over it. `lasting`: it
    was over it for a minute."""
    text = '%s latency of %s is %s (limit %s)' % (
        worst.kind.rstrip('s'), worst.who, ms_text(worst.ms), ms_text(worst.target_ms))
    if worst.pressure > 1.0 or lasting:
        return Reason(Code.LATENCY, text + (' for a minute' if lasting else ''))
    if worst.ms > worst.target_ms:
        text += ', within the variation of %s' % plural(int(worst.ops), 'operation')
    return Reason(Code.LATENCY_OK, text)


def _no_evidence(clients: Clients) -> Reason:
    """Why client latency cannot be judged."""
    if clients.covered < IDLE_SECONDS and not any(pool.rate for pool in clients.pools.values()):
        return Reason(Code.NO_READINGS, 'client latency is not known yet: it takes %d s of '
                      'measurements' % IDLE_SECONDS)
    unknown = [pool.name for pool in clients.pools.values()
               if not clients.idle(pool)
               and pool.read_target_ms is None and pool.write_target_ms is None]
    if unknown:
        return Reason(Code.NO_BASELINE, 'pool %s has no baseline yet; perfguard learns %s' % (
            unknown[0], 'none while ' + clients.why_not_quiet if clients.why_not_quiet
            else 'it while no data moves'))
    return Reason(Code.FEW_OPS, 'too few client operations to judge latency')


#: Seconds after a move for which its hosts do not count for measuring the load.
AFTERWARDS_SECONDS = 600.0


def set_pace(draft: Draft) -> Draft:
    """Update the limit of PGs in flight and the budget of releases."""
    campaign, clients, options = draft.campaign, draft.observed.clients, draft.options
    stalls = measure(campaign.stalls, clients, draft.observed.osds_or_crush_changed)
    # Whether the mons have the shorter proposal interval, so that stalls are short.
    interval = campaign.holds.held.get(PROPOSE_INTERVAL)
    fast = interval is not None and interval.seen
    # `used`: the most PGs that were in flight since the last reading.
    pace = replace(campaign.pace, used=max(campaign.pace.used, len(campaign.flights.in_flight)))
    if pace.halted or NOREBALANCE not in draft.observed.osdmap.flags:
        # Otherwise nothing moves, so movement affects no latency.
        pace = _note_hosts_with_movement(draft, pace)
        path = Path()
        if clients.time != pace.decided:
            path = _path(draft, pace)
            pace = replace(pace, slow_reads=slow_reads_after(
                pace.slow_reads, clients, unsteady(stalls, clients), path.osds, draft.now,
                places_of(draft.observed.crush, _rules(draft.observed.osdmap))))
        pace = decide(pace, _judged_clients(draft, pace), unsteady(stalls, clients),
                      mean_stall_ms(stalls, options.stall_ratio, fast),
                      pace.used, options, _nothing_moves(draft), path)
        if pace.decided != campaign.pace.decided:
            pace = replace(pace, used=len(campaign.flights.in_flight))
        pace = _follow_halt(pace, campaign.pace.halted, draft.now)
    stalls = credit(stalls, clients, draft.now, options.stall_ratio, fast,
                    draft.observed.commit_seconds)
    if pace.halted and not campaign.pace.halted:
        pace = _with_ceiling(pace, campaign.flights.in_flight, _is_repeated(
            campaign.pace, campaign.flights.in_flight, clients.seconds, draft.now), draft.now)
    draft = draft.set(pace=pace, stalls=stalls)
    if pace.halted == campaign.pace.halted:
        return draft
    draft = draft.event('throttle', 'all movement is halted' if pace.halted
                        else 'movement continues', pace.why)
    excess = beyond_ceiling(draft)
    return draft.event(
        'throttle', 'pinning up to %s back that were released last' % plural(len(excess), 'PG'),
        'halts help, but the same PGs raise latency above its limit again'
    ) if excess else draft


def _is_repeated(before: Pace, in_flight: Mapping[str, Flight], reading_seconds: float,
                 now: float) -> bool:
    """Whether a halt that begins now is due to PGs that were in flight during the last one, which
    helped. No PG is released during a halt, so those in flight for long were. `before`: the pace
    until now."""
    is_soon = bool(before.resumed) and now - before.resumed <= REPEATED_READINGS * reading_seconds
    return is_soon and any(
        now - flight.since > LONG_FLIGHT_SECONDS for flight in in_flight.values())


def _with_ceiling(pace: Pace, in_flight: Mapping[str, Flight], repeated: bool,
                  now: float) -> Pace:
    """The pace when a halt begins. Bursts of clients may repeat it once by chance. The last PG is
    not pinned back: if it alone is too much, or others cause the latency, that would not help."""
    pace = replace(pace, repetitions=pace.repetitions + 1 if repeated else 0)
    to_pin_back = sum(flight.pin is not None for flight in in_flight.values()) // 2
    if pace.repetitions < REPETITIONS or not to_pin_back:
        return pace
    return replace(pace, ceiling=len(in_flight) - to_pin_back,
                   ceiling_until=now + CEILING_SECONDS)


def _follow_halt(pace: Pace, was_halted: bool, now: float) -> Pace:
    """The pace with what its halt has shown so far, and with its ceiling. `over` counts the
    readings of a halt during which nothing moved and latency was over its limit."""
    if pace.halted:
        pace = replace(pace, helps=pace.over < HALT_READINGS and (pace.helps or not was_halted))
    elif was_halted:
        pace = replace(pace, resumed=now if pace.helps else 0.0)
    if now >= pace.ceiling_until or pace.code == Code.NO_CLIENTS:
        return replace(pace, ceiling=0)
    return replace(pace, pgs=min(pace.pgs, pace.ceiling)) if pace.ceiling else pace


def beyond_ceiling(draft: Draft) -> AbstractSet[str]:
    """PGs to pin back during a halt, as more PGs are in flight than the ceiling: those that were
    released last, of which least is copied, and last of all those that leave OSDs which are nearly
    full."""
    pace, in_flight = draft.campaign.pace, draft.campaign.flights.in_flight
    excess = len(in_flight) - pace.ceiling
    if not (pace.halted and pace.ceiling and excess > 0):
        return frozenset()
    osds = draft.observed.osdmap.osds

    def order(pgid: str) -> Tuple[bool, float, str]:
        flight = in_flight[pgid]
        relieves = any(osd in osds and osds[osd].fullness for osd in flight.sources)
        return not relieves, flight.since, pgid

    pinned = [pgid for pgid, flight in in_flight.items() if flight.pin is not None]
    return frozenset(heapq.nlargest(excess, pinned, key=order))


def _judged_clients(draft: Draft, pace: Pace) -> Clients:
    """The reading without single slow OSDs: they get no release (slow_reads.py), and releases to
    others must not wait for them.

    Many that are slow in the same reading are caused by the campaign, as are those of several hosts
    with movement: if they did not count, releases would move on to other OSDs at full speed, and
    make these slow.
    """
    clients, slow = draft.observed.clients, slow_osds(pace.slow_reads, draft.now)
    # With few reads, each reading may find another OSD that is slow for a moment.
    slow_in_reading = {osd for osd in slow if pace.slow_reads[osd].over == draft.now}
    if slow_in_reading:
        if len(slow_in_reading) > CROWD_PART * len(judged_osds(clients)):
            return clients
        # Those that were slow without movement as well are slow for another reason.
        exempt = {osd for osd in slow if draft.now < pace.slow_reads[osd].exempt_until}
        moving = _osds_with_movement(draft, pace)
        if slowed_by_movement(slow_in_reading - exempt, moving, comparable_osds(clients, moving),
                              draft.observed.host_of):
            slow -= moving - exempt
    # A few of very many do not slow the operations of other OSDs, which then count in full: in a
    # large cluster some OSD is always slow, and writes and erasure codes would never count.
    slows_pools = explains_pool(slow, len(draft.observed.osdmap.osds))
    return without_slow(clients, slow, _pools_on(draft, slow) if slows_pools else frozenset())


def set_copying(draft: Draft, pace_before: Pace, degraded: bool) -> Draft:
    """Follow client latency with the pace of copying, where the operator allows that: the options
    to borrow for it, such as osd_recovery_sleep_hdd.

    `pace_before`: the pace of the campaign before this turn. `degraded`: there are degraded PGs
    that the campaign has not released, so copying is not slowed.
    """
    campaign, observation, mode = draft.campaign, draft.observed, draft.options.pace_copying
    pacing = copying.after_reading(campaign.copying, _reading(pace_before, campaign.pace),
                                   draft.now)
    if not pacing.changed:
        # Before the first reading: nothing is borrowed for clients that are idle.
        pacing = replace(pacing, idle=observation.clients.all_idle)
    if degraded:
        pacing = replace(pacing, degraded=draft.now)
    pacing = copying.with_basis(
        pacing, copying.basis_for(pacing, mode, observation.schedulers, draft.now))
    pacing = _with_options_to_borrow(draft, pacing)
    draft = draft.set(copying=pacing)
    if pacing.wanted == campaign.copying.wanted:
        return draft
    if pacing.wanted:
        text = copying.slowed_text(pacing)
    else:
        text = 'the copying speed is as set outside perfguard' if pacing.basis \
            else 'copying continues at full speed'
    return draft.event('throttle', text, campaign.pace.why)


def _with_options_to_borrow(draft: Draft, pacing: copying.Copying) -> copying.Copying:
    """`pacing` with the options to borrow (`wanted`), computed again from the configuration
    database if that is due, or if some are not borrowed: others may have set these since. Options
    that others have changed during the campaign, or that another part of perfguard has borrowed,
    are left out."""
    holds, observation = draft.campaign.holds, draft.observed
    values_before = {name[len(OSD_OPTION):]: held.found for name, held in holds.mon.items()
                     if name.startswith(OSD_OPTION)}
    stored, values = observation.settings.stored, pacing.wanted
    all_borrowed = values.keys() <= values_before.keys()
    if stored is not None and (pacing.due or not all_borrowed):
        values = copying.options_to_borrow(
            pacing, draft.options.pace_copying, pacing.schedulers,
            copying.values_of_others(stored, values_before))
        pacing = replace(pacing, due=False)
    return replace(pacing, wanted={
        name: value for name, value in values.items()
        if name not in observation.settings.borrowed_elsewhere
        and OSD_OPTION + name not in holds.given_up})


def _reading(before: Pace, now: Pace) -> Optional[copying.Reading]:
    """What a new reading of client latency says about copying; None: there is no new one."""
    if now.decided == before.decided:
        return None
    # `under` also counts readings without evidence: few clients do not slow copying for long.
    return copying.Reading(idle=now.code == Code.NO_CLIENTS, comfortable=now.under > 0,
                           lowered=now.halted or now.pgs < before.pgs)


def _note_hosts_with_movement(draft: Draft, pace: Pace) -> Pace:
    """The pace with the hosts that have movement now, or had it recently: they delete PGs and catch
    up for a while afterwards."""
    now = draft.now
    hosts = {host: since for host, since in pace.burdened.items()
             if now - since < AFTERWARDS_SECONDS}
    # `seen_since`: from when on this mgr knows the hosts with movement.
    hosts.update(dict.fromkeys(map(draft.observed.host_of, flight_osds(draft.campaign)), now))
    return replace(pace, burdened=hosts, seen_since=pace.seen_since or now)


def _osds_with_movement(draft: Draft, pace: Pace) -> FrozenSet[int]:
    """OSDs of PGs in flight, and those that still delete PGs which may have moved away."""
    return flight_osds(draft.campaign) | {osd for osd in draft.observed.deleting
                                          if draft.observed.host_of(osd) in pace.burdened}


def _path(draft: Draft, pace: Pace) -> Path:
    """Where data moves: the OSDs of PGs in flight, all OSDs of hosts with movement now or recently,
    and pools whose rules lead to OSDs of PGs in flight. A new mgr does not know recent movement, so
    all OSDs count."""
    observation, osds = draft.observed, flight_osds(draft.campaign)
    if draft.now - pace.seen_since < AFTERWARDS_SECONDS:
        near = frozenset(observation.osdmap.osds)
    else:
        near = frozenset(osd for osd in observation.osdmap.osds
                         if observation.host_of(osd) in pace.burdened)
    return Path(osds, near | osds, _pools_on(draft, osds))


def _pools_on(draft: Draft, osds: AbstractSet[int]) -> FrozenSet[int]:
    """Pools whose CRUSH rules lead to some of the OSDs."""
    crush, pools = draft.observed.crush, draft.observed.osdmap.pools.values()
    leading = {rule for rule in {pool.crush_rule for pool in pools}
               if any(crush.weight_of(rule, osd) > 0.0 for osd in osds)}
    return frozenset(pool.id for pool in pools if pool.crush_rule in leading)


def _rules(osdmap: OsdMap) -> FrozenSet[int]:
    return frozenset(pool.crush_rule for pool in osdmap.pools.values())


def _nothing_moves(draft: Draft) -> bool:
    """Whether norebalance is in force or, if others have cleared it, nothing would move."""
    osdmap = draft.observed.osdmap
    return NOREBALANCE in osdmap.flags or not (draft.campaign.flights.in_flight or osdmap.pg_temp)


def out_of_hours(draft: Draft) -> List[Reason]:
    """Why nothing is released now because of the time window, or of invalid options of any kind."""
    # None: `ignored_targets` reports limits of unknown pools.
    reasons = [Reason(Code.BAD_OPTIONS, text) for text in problems(draft.options, None)]
    try:
        seconds = opens_in(window_of(draft.options), draft.observed.wall)
    except BadWindow:
        return reasons  # which include the bad window
    if seconds is None:
        opening = 'it does not open within the next week (clock change)'
    else:
        opening = 'it opens in %s' % plural(max(1, round(seconds / 60)), 'minute')
    if seconds != 0.0:
        reasons.append(Reason(Code.WINDOW_CLOSED,
                              'outside the time window (begin_time to end_time): ' + opening))
    return reasons


def ignored_targets(osdmap: OsdMap, options: Options) -> List[Reason]:
    """Texts on limits of pools that were deleted or renamed since the campaign began."""
    # An OSDMap without pools may be the initial, empty one.
    pools = {pool.name for pool in osdmap.pools.values()} or None
    try:
        texts = unknown_pools(options, pools)
    except BadLimit:
        return []
    return [Reason(Code.BAD_OPTIONS, text + '; this limit is ignored') for text in texts]


def maps_to_trim(draft: Draft, degraded: bool) -> List[Reason]:
    """Why releases wait for the mons, which trim OSDMaps only while all PGs are clean.

    PGs that are unclean for other reasons, or mons that keep more epochs, must not stop a campaign
    forever: a PG may wait, backfill_toofull, for space that only releases make. Peering PGs are no
    such reason, as each release makes its PG peer. `degraded`: PGs are degraded that the campaign
    has not released.
    """
    epochs, most_epochs = draft.observed.untrimmed_epochs, draft.options.max_untrimmed_osdmaps
    if epochs is None:
        return []
    ceiling = _above_ceiling(draft, epochs)
    if ceiling:
        return ceiling
    counts, idle = draft.observed.signals.counts, draft.now - draft.campaign.progress.progressed
    unclean_otherwise = degraded or counts.backfill_toofull > 0 or counts.stuck > 0
    # With no PG in flight for so long, something else keeps the mons from trimming.
    if not most_epochs or epochs <= most_epochs or unclean_otherwise \
            or not draft.campaign.flights.in_flight and idle > TRIM_SECONDS:
        return []
    return [Reason(Code.UNTRIMMED_MAPS, 'the mons keep %d OSDMap epochs (limit %d, '
                   'max_untrimmed_osdmaps); releases wait until all PGs are clean and the mons '
                   'have trimmed them, which may take osd_beacon_report_interval (300 s)'
                   % (epochs, most_epochs))]


def _above_ceiling(draft: Draft, epochs: int) -> List[Reason]:
    """Why nothing is released whatever keeps the mons from trimming: the disks of mons and OSDs
    would fill up."""
    map_bytes = max(1, epoch_of(draft.observed.osdmap).map_bytes)
    ceiling = draft.options.untrimmed_ceiling or max(
        CEILING_EPOCHS_MIN, min(CEILING_EPOCHS_MAX, CEILING_BYTES // map_bytes))
    reason = Reason(Code.UNTRIMMED_CEILING, 'the mons keep %d OSDMap epochs, about %s on each mon '
                    'and OSD (limit %d, untrimmed_ceiling), and trim them only while all '
                    'PGs are clean; "campaign accept UNTRIMMED_CEILING" continues'
                    % (epochs, bytes_text(epochs * map_bytes), ceiling))
    may_go_on = epochs <= ceiling or is_waived(reason, draft.campaign.orders.acknowledged)
    return [] if may_go_on else [reason]


class FlightCap:
    """max_pgs_in_flight if it is 0, computed again if CRUSH, the rules of the pools or the other
    caps have changed."""

    def __init__(self) -> None:
        self._basis: Optional[Tuple[object, ...]] = None
        self._pgs = LEAST_PGS

    def resolve(self, options: Options, osdmap: OsdMap, crush: CrushRules,
                crush_version: int) -> Options:
        """The options with max_pgs_in_flight above 0."""
        if options.max_pgs_in_flight:
            return options
        basis = (crush_version, _rules(osdmap), options)
        if basis != self._basis:
            self._basis, self._pgs = basis, pgs_in_flight(options, osdmap, crush)
        return replace(options, max_pgs_in_flight=self._pgs)


def pgs_in_flight(options: Options, osdmap: OsdMap, crush: CrushRules) -> int:
    """The number of PGs that may move under the caps by OSD, host and failure domain.

    Each PG leaves an OSD and enters another one, mostly in another host and failure domain.
    """
    osds = [osd for osd, weight in crush.weights().items() if weight > 0.0]
    hosts = {crush.host_of(osd) for osd in osds} - {None}
    bounds = [len(osds) * min(options.max_backfills_source, options.max_backfills_target)]
    if hosts:
        bounds.append(len(hosts) * options.max_backfills_host // 2)
    domains = [_domain_count(pool.crush_rule, osds, crush) for pool in osdmap.pools.values()]
    if domains and None not in domains:
        most_domains = max(number for number in domains if number is not None)
        bounds.append(most_domains * options.max_backfills_domain // 2)
    return max(LEAST_PGS, min(bounds))


def _domain_count(rule: int, osds: Sequence[int], crush: CrushRules) -> Optional[int]:
    """Number of failure domains of a rule; None: OSDs, which have caps of their own."""
    kind = crush.failure_domain(rule)
    if kind is None or kind == 'osd':
        return None
    return len({crush.domain_of(osd, kind) for osd in osds} - {None})
