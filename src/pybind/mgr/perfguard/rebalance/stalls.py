# SPDX-License-Identifier: LGPL-2.1-or-later
"""Interval stalls: the cost of peering of released PGs for clients, measured and limited.

Each release takes its PG through interval changes, in which its operations wait, however little
data moves. The share of operations that wait is about

    releases per second x seconds of stall / PGs of the pool

and an option limits it. The stall itself is measured on the clients' operations: while a PG with r
operations per second stalls for s seconds, r x s operations wait s / 2 on average. This adds
r x s^2 / 2 seconds to the latency of the OSD's operations.
"""
from dataclasses import dataclass, field, replace
from typing import (AbstractSet, Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional,
                    Sequence, Tuple)

from ..cluster.types import ClientOps, Ops, OsdSet, PlainOps
from ..codec import Time
from ..observation import Clients, PoolClients
from ..watch.slow_reads import LEAST_OPS

#: Interval changes of a release whose pg_temp is primed: into remapped, and out at the end. There
#: is one more if the primary has to request its pg_temp.
CHANGES_PER_RELEASE = 2
#: Seconds of stall of one interval change until it is measured: medians on Pacific with the mon's
#: paxos_propose_interval at 1 s and at 0.1 s.
DEFAULT_SECONDS = 1.6
FAST_SECONDS = 0.25
#: Lower bound of an interval change: the shortest proposal interval.
SHORTEST_SECONDS = 0.02
#: Seconds after a change for which operations on its PG may still be waiting.
AFTERMATH_SECONDS = 5.0
#: Decay of the weight of a reading per later reading.
STALL_MEMORY = 0.9
#: Maximum growth of the measured stall by one reading, if it is above FAST_SECONDS. An OSD that
#: hangs for less time than its reports take is not noticed, and its operations seem to be stalled.
#: A stall that takes longer from now on is measured within a minute nevertheless.
MOST_GROWTH = 1.5
#: Minimum expected number of stalled operations for a measurement.
LEAST_STALLED = 5.0
#: Each release, and each arrival, takes two OSDMap epochs: a new interval, and the up_thru of the
#: PG's primary. PGs that are released together share them. So releases wait until there is this
#: number of them (or half of those that may be in flight), or this time after the last ones. With
#: 8 s instead of 5 s the same expansion took 344 s instead of 240 s, and p99 was not lower (3.4 and
#: 3.1 times that at rest; Pacific, qa/bench/expansion, one run each). Arrivals are not batched:
#: only the mons' paxos_min_wait would do that, and the up_thru of a primary that is notified late
#: of its new interval waits for it as well. With 1 s and an interval of 0.2 s a PG took 1.4 epochs
#: instead of 2.4, but a stall 0.2 s instead of 0.05 s, and p99.9 was 22 times that at rest instead
#: of 11 times.
BATCH_PGS = 8
BATCH_SECONDS = 5.0
#: Maximum share of time in which the mons commit releases: an OSDMap epoch takes them seconds with
#: tens of thousands of PGs and upmaps. Before the answer they also gather commands, by default for
#: up to a second, which does not lengthen the pause.
COMMIT_SHARE = 0.2
#: Maximum pause between two batches.
LONGEST_BATCH_SECONDS = 60.0
#: Maximum of saved releases, in pauses between two batches at the allowed rate.
SAVED_BATCHES = 1.6
#: Maximum interval of turns that counts; the loop rested during longer ones.
LONGEST_TURN_SECONDS = 60.0


class IntervalChange(NamedTuple):
    """A PG that went into another interval."""
    time: Time
    pool: int
    #: Its primaries, before and after.
    primaries: OsdSet
    pgid: str = ''


@dataclass(frozen=True)
class Stalls:
    """Measurements of stalls, and the budget of releases; part of the campaign."""
    changes: Tuple[IntervalChange, ...] = ()
    #: The reading that was last measured.
    measured: Time = 0.0
    #: Sums over the last readings: seconds of added latency, and operations per second of the
    #: changed PGs.
    excess: float = 0.0
    rates: float = 0.0
    #: Pool -> unused releases; when they were last counted.
    credits: Mapping[int, float] = field(default_factory=dict)
    credited: Time = 0.0
    #: Measured seconds of stall of one interval change, when there last was enough evidence.
    seconds: Optional[float] = None
    #: When PGs were released last.
    released: Time = 0.0


def note_changes(stalls: Stalls, changes: Iterable[IntervalChange], now: float,
                 period: float) -> Stalls:
    """Add interval changes, and remove those that no later reading of client latency will cover.
    `period`: seconds between two readings."""
    keep = now - 2 * period - AFTERMATH_SECONDS
    remaining = tuple(change for change in (*stalls.changes, *changes) if change.time >= keep)
    return replace(stalls, changes=remaining)


def unsteady(stalls: Stalls, clients: Clients) -> FrozenSet[int]:
    """OSDs that led a PG in an interval change while the reading's operations were done."""
    begin = clients.time - clients.seconds - AFTERMATH_SECONDS
    return frozenset(osd for change in stalls.changes if change.time >= begin
                     for osd in change.primaries)


def measure(stalls: Stalls, clients: Clients, osds_or_crush_changed: float) -> Stalls:
    """The measurement of how long a released PG stalls its clients, with one more reading.

    `osds_or_crush_changed`: when an OSD last went down or came back, or CRUSH changed. The reading
    does not count soon after that, nor after an OSD was silent: its latency has other causes.
    """
    if not clients.time or clients.time == stalls.measured:
        return stalls
    begin = clients.time - clients.seconds
    # PGs peer that were not released, and operations wait for the OSD. They also wait for one that
    # hangs and stays up; its report is late before these operations end.
    if begin - AFTERMATH_SECONDS <= max(osds_or_crush_changed, clients.silent):
        return replace(stalls, measured=clients.time)
    # Sums as in Stalls, and the most that `excess` may plausibly be.
    excess = rates = plausible = 0.0
    covered = clients.seconds + AFTERMATH_SECONDS
    unsteady_osds = unsteady(stalls, clients)
    rows_by_pool: Dict[int, List[ClientOps]] = {}
    for row in clients.rows:
        if row.sane:
            rows_by_pool.setdefault(row.pool, []).append(row)
    for pool_id, pool in clients.pools.items():
        change_times = [change.time for change in stalls.changes if change.pool == pool_id
                        and clients.time - covered <= change.time < clients.time]
        changes = sum(1 for time in change_times if time >= begin)
        rows = rows_by_pool.get(pool_id, [])
        ops = sum([row.read[1] + row.write[1] for row in rows])
        pool_excess = _excess_seconds(rows, unsteady_osds, pool)
        if pool_excess is not None and clients.seconds > 0.0:
            # Operations that stalled in one reading may end in the next one, so added latency
            # also counts in readings without a change.
            pg_rate = ops / clients.seconds / max(1, pool.pg_num)
            excess += pool_excess
            rates += changes * pg_rate
            plausible += len(change_times) * pg_rate * covered ** 2 / 2.0
    # If the clock of an OSD was set ahead, its operations in flight seem to have taken that long:
    # more than if each changed PG had stalled all the time.
    if excess > plausible:
        return replace(stalls, measured=clients.time)
    excess, rates = STALL_MEMORY * stalls.excess + excess, STALL_MEMORY * stalls.rates + rates
    measured = _measured_seconds(excess, rates)
    seconds_before = DEFAULT_SECONDS if stalls.seconds is None else stalls.seconds
    most_seconds = max(FAST_SECONDS, MOST_GROWTH * seconds_before)
    # The bound holds for the result, not for the evidence: few operations would never have enough
    # of a stall that has become longer.
    seconds = stalls.seconds if measured is None else min(measured, most_seconds)
    return replace(stalls, measured=clients.time, rates=rates, seconds=seconds,
                   excess=min(excess, rates * most_seconds ** 2 / 2.0))


def _measured_seconds(excess: float, rates: float) -> Optional[float]:
    """Seconds of stall, from the sums in Stalls: excess = rates * seconds ** 2 / 2. None: too
    little evidence."""
    if rates <= 0.0:
        return None
    seconds = float((2.0 * max(0.0, excess) / rates) ** 0.5)
    # If hardly anything stalls, many operations on many PGs are evidence too.
    return seconds if rates * max(seconds, FAST_SECONDS) >= LEAST_STALLED else None


def _excess_seconds(rows: Sequence[ClientOps], unsteady_osds: AbstractSet[int],
                    pool: PoolClients) -> Optional[float]:
    """Latency of the unsteady OSDs' operations beyond that of other OSDs, in seconds; None: there
    is nothing to compare it with.

    If PGs of all OSDs peer, the baseline replaces the latency of other OSDs.
    """
    total = 0.0
    steady_rows = [row for row in rows if row.osd not in unsteady_osds]
    unsteady_rows = [row for row in rows if row.osd in unsteady_osds]
    for steady, unsteady_ops, baseline_ms in (
            (_sum([row.read for row in steady_rows]), _sum([row.read for row in unsteady_rows]),
             pool.read_baseline_ms),
            (_sum([row.write for row in steady_rows]), _sum([row.write for row in unsteady_rows]),
             pool.write_baseline_ms)):
        if not unsteady_ops.number:
            continue
        if steady.number >= LEAST_OPS:
            baseline_ns = steady.sum_ns / steady.number
            if baseline_ms is not None:
                # A slow OSD among the others must not hide a stall.
                baseline_ns = min(baseline_ns, 1e6 * baseline_ms)
        elif baseline_ms is not None:
            baseline_ns = 1e6 * baseline_ms
        else:
            return None
        total += (unsteady_ops.sum_ns - unsteady_ops.number * baseline_ns) / 1e9
    return total


def _sum(parts: Sequence[PlainOps]) -> Ops:
    return Ops(sum([sum_ns for sum_ns, _ in parts]), sum([number for _, number in parts]))


def release_rate(stalls: Stalls, pg_num: int, share: float, fast: bool) -> float:
    """Releases per second that the budget allows in a pool with active clients."""
    return share * pg_num / (CHANGES_PER_RELEASE * _seconds(stalls, fast))


def mean_stall_ms(stalls: Stalls, share: float, fast: bool) -> float:
    """The effect of a fully used budget on the mean latency: that share of operations waits half a
    stall."""
    return 1000.0 * share * _seconds(stalls, fast) / 2.0


def _seconds(stalls: Stalls, fast: bool) -> float:
    if stalls.seconds is not None:
        return max(SHORTEST_SECONDS, stalls.seconds)
    return FAST_SECONDS if fast else DEFAULT_SECONDS


def batch_seconds(commit_seconds: float) -> float:
    """Pause between two batches of releases, for mons that answer a batch after
    `commit_seconds`."""
    return min(LONGEST_BATCH_SECONDS, max(BATCH_SECONDS, commit_seconds / COMMIT_SHARE))


def batch_pgs(commit_seconds: float) -> int:
    """Number of PGs with which a batch is released at once: in proportion to the pause."""
    return int(BATCH_PGS * batch_seconds(commit_seconds) / BATCH_SECONDS)


def credit(stalls: Stalls, clients: Clients, now: float, share: float, fast: bool,
           commit_seconds: float = 0.0) -> Stalls:
    """Add the releases that the time since the last turn allows to the budget of each pool. Pools
    without clients have no entry: their releases are not limited.

    `share`: stall_ratio; `fast`: the mons have the shorter proposal interval; `commit_seconds`: how
    long they take to answer a batch.
    """
    elapsed_seconds = now - stalls.credited
    saved_seconds = SAVED_BATCHES * batch_seconds(commit_seconds)
    if elapsed_seconds > LONGEST_TURN_SECONDS:  # the loop rested
        elapsed_seconds = saved_seconds
    credits: Dict[int, float] = {}
    for pool_id, pool in clients.pools.items():
        if not clients.idle(pool):
            rate = release_rate(stalls, pool.pg_num, share, fast)
            # Fractions of a release are kept.
            limit = 1.0 + rate * max(saved_seconds, elapsed_seconds)
            credits[pool_id] = min(limit, stalls.credits.get(pool_id, 1.0) + rate * elapsed_seconds)
    return replace(stalls, credits=credits, credited=now)


def affords(stalls: Stalls, pool_id: int) -> bool:
    """Whether one more release in the pool is within its budget."""
    return stalls.credits.get(pool_id, 1.0) >= 1.0


def spend(stalls: Stalls, pool_id: int, primed: bool = True) -> Stalls:
    """Charge one release to the budget of the pool. `primed`: with its pg_temp; without, it takes
    one more interval change."""
    if pool_id not in stalls.credits:
        return stalls
    price = 1.0 if primed else 1.0 + 1.0 / CHANGES_PER_RELEASE
    return replace(stalls, credits={**stalls.credits, pool_id: stalls.credits[pool_id] - price})
