# SPDX-License-Identifier: LGPL-2.1-or-later
"""Client latency of each pool, and its baseline."""
import functools
import math
from collections import deque
from dataclasses import dataclass, field
from typing import (Collection, Deque, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple)

from ..cluster.types import ClientOps
from ..codec import Time
from ..errors import InvalidValue
from ..observation import Minute
from ..options import Options
from ..text import decimal_number
from .load import DayLoad, PoolLoad, Rates
from .peers import weighted_median, weighted_quantile
from .series import (READ_NS, READS, WINDOW_SECONDS, WRITE_NS, WRITES, Amount, History,
                     HistoryPoint, Rows, Series, mean_flow, recent)
from .steps import POINTS, Step, step_of
from .types import Alarm, Flow

#: Points of a baseline that are kept (one quiet week with operations), and that are stored for a
#: failover: the last ones, and the last ones with operations of each kind.
BASELINE_POINTS = 1008
STORED_POINTS = 144
STORED_POINTS_OF_KIND = 36
#: Minimum number of operations of the time that counts as one value of a baseline.
BASELINE_OPS = 100
#: The baseline is the latency that is not exceeded in this share of the time. A batch that makes
#: the pool slow for some hours does not raise it, however many operations it has.
BASELINE_SHARE = 0.25
#: Quiet time with operations after which a pool has a provisional baseline, and the maximum number
#: of readings for it.
PROVISIONAL_SECONDS = 20.0
PROVISIONAL_READINGS = 120
#: Minimum number of operations of a point that lowers a provisional baseline. The lowest of many
#: points counts, so that chance must be small.
LEAST_LOWERING_OPS = 1000
#: Minimum number of operations in the last minute.
LEAST_OPS_NOW = 30
#: Time without operations after which an alarm is cleared.
FORGET_SECONDS = 600.0
OP_KINDS = (('reads', READS, READ_NS), ('writes', WRITES, WRITE_NS))
#: Length of the points in which steps are looked for, as a share of baseline_seconds: a minute.
STEP_POINT_SHARE = 1 / 10


@dataclass(frozen=True)
class PoolSettings:
    """The options that the watch of pools depends on."""
    #: An alarm is raised above this multiple of the baseline or of the level that is accepted at
    #: this hour (AlarmLevel), if latency is also `least_excess_ms` above it.
    alarm_factor: float
    #: Quiet seconds with operations (nothing moves, no problem exists) of one point of the
    #: baseline.
    baseline_seconds: float
    least_excess_ms: float = 2.0
    #: Time for which latency must be high to raise the alarm, and normal to clear it.
    raise_seconds: float = 60.0
    clear_seconds: float = 60.0

    def alarm_ms(self, usual_ms: float) -> float:
        return max(self.alarm_factor * usual_ms, usual_ms + self.least_excess_ms)


class PoolPerformance(NamedTuple):
    """One pool in the last minute. Latencies in ms; None: no operations, or no baseline yet.

    The baselines may be provisional: campaigns use them, alarms do not.
    """
    pool: int
    read: Flow
    write: Flow
    read_baseline_ms: Optional[float]
    write_baseline_ms: Optional[float]
    #: Standard deviation of one operation's latency over its mean; None: not measured yet.
    read_spread: Optional[float] = None
    write_spread: Optional[float] = None
    read_minute: Minute = Minute()
    write_minute: Minute = Minute()
    #: Latencies above which the alarm is raised at this hour; None without a baseline that is not
    #: provisional.
    read_alarm_ms: Optional[float] = None
    write_alarm_ms: Optional[float] = None

    @property
    def baseline_ms(self) -> Optional[float]:
        """Expected mean latency at the current mix of reads and writes; without operations, the
        higher baseline; None: no baseline is known."""
        known = [(flow.rate, usual) for flow, usual in (
            (self.read, self.read_baseline_ms), (self.write, self.write_baseline_ms))
            if usual is not None]
        rate = sum(rate for rate, _ in known)
        if known and not rate:
            return max(usual for _, usual in known)
        return sum(rate * usual for rate, usual in known) / rate if known else None


class PoolOps(NamedTuple):
    """Client operations on one pool in one reading."""
    #: By the OSD that served them; all other fields are their sums.
    rows: Sequence[ClientOps] = ()
    reads: int = 0
    read_ns: int = 0
    writes: int = 0
    write_ns: int = 0
    read_bytes: int = 0
    write_bytes: int = 0

    @property
    def columns(self) -> Tuple[int, int, int, int]:
        """The first columns of a history."""
        return self.reads, self.read_ns, self.writes, self.write_ns


_NO_OPS = PoolOps()


def ops_by_pool(clients: Sequence[ClientOps]) -> Dict[int, PoolOps]:
    """The operations of a reading by pool, without rows with invalid values."""
    rows_by_pool: Dict[int, List[ClientOps]] = {}
    for row in clients:
        if row.sane:
            rows_by_pool.setdefault(row.pool, []).append(row)
    return {pool_id: _pool_ops(rows) for pool_id, rows in rows_by_pool.items()}


def _pool_ops(rows: Sequence[ClientOps]) -> PoolOps:
    """The sums of the operations of one pool."""
    reads = read_ns = writes = write_ns = read_bytes = write_bytes = 0
    for _, _, read, write, bytes_read, bytes_written in rows:
        read_ns += read[0]
        reads += read[1]
        write_ns += write[0]
        writes += write[1]
        read_bytes += bytes_read
        write_bytes += bytes_written
    return PoolOps(rows, reads, read_ns, writes, write_ns, read_bytes, write_bytes)


class _Pool:
    """What is known of one pool. Times are seconds since the epoch."""

    def __init__(self, baseline_seconds: float) -> None:
        self.history = History(4)
        self.load = PoolLoad()
        #: The points of the baselines: of readings in which nothing moved and no problem existed.
        self.quiet = Series(4, BASELINE_POINTS, baseline_seconds)
        #: The last points in which no operation waited for moving PGs or a probe.
        self.unhindered = Series(4, POINTS, STEP_POINT_SHARE * baseline_seconds)
        #: The points of the last minute.
        self.recent: List[HistoryPoint] = []
        #: By kind, "reads" or "writes".
        self.alarms = {kind: Alarm() for kind, _, _ in OP_KINDS}
        self.spreads = {kind: OpSpread() for kind, _, _ in OP_KINDS}
        self.levels = {kind: AlarmLevel() for kind, _, _ in OP_KINDS}
        #: By kind, the latency in ms above which the alarm is raised at this hour ({}: no baseline
        #: yet); and whether latency is above the limit of other hours, and accepted at this one.
        self.alarm_ms: Dict[str, float] = {}
        self.accepted = {kind: False for kind, _, _ in OP_KINDS}
        #: By kind, the baseline in ms; None: not known yet.
        self.baselines: Dict[str, Optional[float]] = {kind: None for kind, _, _ in OP_KINDS}
        #: Quiet readings with operations of a kind without a baseline; and by kind, the provisional
        #: baseline in ms that they gave.
        self._first_readings: Deque[HistoryPoint] = deque(maxlen=PROVISIONAL_READINGS)
        self.provisional: Dict[str, float] = {}
        #: The last complete point of readings that were not quiet, and by kind, the lowest latency
        #: of such points in ms.
        self._disturbed = Series(4, 1, baseline_seconds)
        self._lowest: Dict[str, float] = {}
        #: When a probe of this module last affected clients of the pool.
        self.probed = -math.inf

    def add_quiet(self, now: float, seconds: float, sums: Sequence[float]) -> bool:
        """Add a reading during which nothing disturbed clients: to the points of the baselines, to
        the spreads, and, for kinds of operations without a baseline, to a provisional one. Returns
        whether it completed a point of the baselines, so that learn() may be called. `sums`: by
        column of the history."""
        for kind, ops_column, ns_column in OP_KINDS:
            self.spreads[kind].add(sums[ops_column], sums[ns_column])
        missing = [(kind, ops_column, ns_column) for kind, ops_column, ns_column in OP_KINDS
                   if self.baselines[kind] is None and sums[ops_column]]
        if missing:
            self._first_readings.append(HistoryPoint(now, seconds, tuple(sums)))
        for kind, ops_column, ns_column in missing:
            points = [point for point in self._first_readings if point.sums[ops_column]]
            ms = _median_ms(points, ops_column, ns_column, BASELINE_OPS)
            # Until then, the provisional baseline of an earlier mgr remains.
            if ms is not None and sum(point.seconds for point in points) >= PROVISIONAL_SECONDS:
                self.provisional[kind] = ms
        # Points without operations would displace those with operations.
        return bool(sums[READS] or sums[WRITES]) and self.quiet.add(now, seconds, sums)

    def set_point_length(self, baseline_seconds: float) -> None:
        """Take over another PoolSettings.baseline_seconds."""
        self.quiet.point_seconds = self._disturbed.point_seconds = baseline_seconds
        self.unhindered.point_seconds = STEP_POINT_SHARE * baseline_seconds

    def baseline(self, kind: str) -> Optional[float]:
        """The baseline in ms of a kind of operation; the provisional one if no point is complete;
        None: not known yet."""
        if self.baselines[kind] is not None or kind not in self.provisional:
            return self.baselines[kind]
        # A lower latency in readings that are not quiet shows that the provisional baseline is from
        # a moment of high latency.
        provisional_ms = self.provisional[kind]
        return min(provisional_ms, self._lowest.get(kind, provisional_ms))

    def add_disturbed(self, now: float, seconds: float, sums: Sequence[float]) -> None:
        """Add a reading that is not quiet. It is no part of baselines, but movement and problems do
        not make operations faster: lower latency shows that a provisional baseline is from a moment
        of high latency, and lowers it."""
        for spread in self.spreads.values():
            spread.skip()
        # Only a provisional baseline is lowered, by a complete point.
        if None not in self.baselines.values() or not self._disturbed.add(now, seconds, sums):
            return
        point, = self._disturbed.points()
        for kind, ops_column, ns_column in OP_KINDS:
            ms = _median_ms([point], ops_column, ns_column, LEAST_LOWERING_OPS)
            if ms is not None:
                self._lowest[kind] = min(ms, self._lowest.get(kind, ms))

    def learn(self) -> None:
        """Compute the baselines from the quiet points, and drop first readings that only contain
        operations with a baseline."""
        points = self.quiet.points()
        self.baselines = {kind: _low_ms(points, ops_column, ns_column)
                          for kind, ops_column, ns_column in OP_KINDS}
        missing = [ops_column for kind, ops_column, _ in OP_KINDS if self.baselines[kind] is None]
        self._first_readings = deque((point for point in self._first_readings
                                      if any(point.sums[ops_column] for ops_column in missing)),
                                     PROVISIONAL_READINGS)

    def set_alarm_limit(self, now: float, kind: str, baseline_ms: float,
                        settings: PoolSettings) -> float:
        """Set the limit of the alarm at this hour (`alarm_ms`): for the lowest baseline of the last
        half year, or for the latency that is accepted at this hour because it recurs, if that is
        higher. `baseline_ms`: the present baseline. Returns the limit, in ms, of hours at which
        nothing but the baseline is accepted."""
        level = self.levels[kind]
        base_limit_ms = settings.alarm_ms(level.base_ms(baseline_ms))
        self.alarm_ms[kind] = max(base_limit_ms, settings.alarm_ms(level.accepted_ms(now) or 0.0))
        return base_limit_ms

    def take_steps(self, pool_id: int) -> List[Step]:
        """The steps that the last point has completed, AFTER_POINTS before it: one for each kind of
        operation that has become slower. Points before a step are forgotten, so that each is
        returned once."""
        points = self.unhindered.points()
        steps = [step for step in (step_of(pool_id, kind, points, ops_column, ns_column)
                                   for kind, ops_column, ns_column in OP_KINDS) if step is not None]
        if steps:
            last_before = max(step.last_before for step in steps)
            # row[0]: when the point ended.
            rows = [row for row in self.unhindered.rows() if row[0] > last_before]
            self.unhindered = Series(4, POINTS, self.unhindered.point_seconds)
            self.unhindered.load(rows)
        return steps

    @property
    def may_learn(self) -> bool:
        """Whether readings may become part of the baseline: not while latency is high."""
        return not any(alarm.since for alarm in self.alarms.values())


class RaisedAlarm(NamedTuple):
    """An alarm on the latency of one kind of operation of a pool."""
    pool: int
    #: "reads" or "writes".
    kind: str
    #: Since when it is raised, in seconds since the epoch.
    since: Time


#: Pool -> kind -> provisional baseline in ms.
Provisional = Mapping[int, Mapping[str, Amount]]


class PoolWatch:
    """The latency of all pools, with their baselines and alarms. Times are seconds since the epoch,
    and pools are IDs."""

    def __init__(self) -> None:
        self._pools: Dict[int, _Pool] = {}
        #: What `latency` has returned since the pool last changed: several parts of a turn ask.
        self._computed_latencies: Dict[int, PoolPerformance] = {}
        #: Pools of which something has to be stored (StoredPool) that changed since it last was:
        #: points of baselines, loads of days, levels of alarms; the first one first.
        self._unsaved: Dict[int, None] = {}
        #: PoolSettings.baseline_seconds at the last reading; 0.0: there was none.
        self._baseline_seconds = 0.0
        #: Steps of latency that the last reading completed.
        self.steps: List[Step] = []

    def update(self, now: float, seconds: float, ops: Mapping[int, PoolOps],
               pools: Collection[int], quiet: bool, settings: PoolSettings,
               probed: Collection[int] = (), unhindered: bool = False) -> None:
        """Update the latencies of all pools with a reading of `seconds`, their baselines, loads and
        alarms, and look for steps (latency that has risen from one minute to the next and stays
        so).

        `ops`: by pool, without pools that served none. `pools`: all that exist. `quiet`: nothing
        moves and no problem exists, so baselines learn from the reading. `probed`: pools in which a
        probe of this module affects clients: their alarms are not judged until the last minute is
        without a probe. `unhindered`: no operation waits for PGs that move, or for a probe; only
        then are steps looked for.
        """
        self._forget_removed(pools, settings)
        self.steps = []
        for pool_id in pools:
            pool = self._pool(pool_id, settings)
            pool_ops = ops.get(pool_id, _NO_OPS)
            sums = pool_ops.columns
            if pool_id in probed:
                pool.probed = now
            pool.history.add(now, seconds, sums)
            if pool.load.add(now, seconds, Rates(pool_ops.reads, pool_ops.writes,
                                                 pool_ops.read_bytes, pool_ops.write_bytes)):
                self._unsaved[pool_id] = None
            pool.recent = recent(pool.history.detailed, now, seconds)
            if unhindered and pool.unhindered.add(now, seconds, sums):
                self.steps += pool.take_steps(pool_id)
            if self._update_alarms(now, seconds, pool, quiet, settings):
                self._unsaved[pool_id] = None
            if not quiet or not pool.may_learn:
                pool.add_disturbed(now, seconds, sums)
            elif pool.add_quiet(now, seconds, sums):
                pool.learn()
                self._unsaved[pool_id] = None

    def _pool(self, pool_id: int, settings: PoolSettings) -> _Pool:
        """The pool with this ID, created if it is new, for a caller that changes it."""
        self._computed_latencies.pop(pool_id, None)
        if pool_id not in self._pools:
            self._pools[pool_id] = _Pool(settings.baseline_seconds)
        return self._pools[pool_id]

    def _forget_removed(self, pools: Collection[int], settings: PoolSettings) -> None:
        """Forget all pools but `pools`, and take over PoolSettings.baseline_seconds if the operator
        has changed it."""
        for pool_id in [pool_id for pool_id in self._pools if pool_id not in pools]:
            del self._pools[pool_id]
            self._computed_latencies.pop(pool_id, None)
        if settings.baseline_seconds != self._baseline_seconds:
            self._baseline_seconds = settings.baseline_seconds
            for pool in self._pools.values():
                pool.set_point_length(settings.baseline_seconds)

    def _update_alarms(self, now: float, seconds: float, pool: _Pool, quiet: bool,
                       settings: PoolSettings) -> bool:
        """Raise and clear the alarms of a pool, on reads and on writes, by the last minute. Returns
        whether its accepted levels (AlarmLevel) must be stored."""
        changed = False
        # The last minute may contain operations that a probe has slowed down.
        probed = now - pool.probed < WINDOW_SECONDS
        for kind, ops_column, ns_column in OP_KINDS:
            ms = _median_ms(pool.recent, ops_column, ns_column, LEAST_OPS_NOW)
            baseline_ms, level = pool.baselines[kind], pool.levels[kind]
            if probed:
                is_slow: Optional[bool] = None  # an alarm stays as it is
            elif baseline_ms is None:
                # As after a failover with an unreadable document. An alarm ends: it would prevent a
                # new baseline.
                is_slow = False
            else:
                changed |= level.review(now, baseline_ms, settings.alarm_factor)
                base_limit_ms = pool.set_alarm_limit(now, kind, baseline_ms, settings)
                high_ms = ms if ms is not None and ms > base_limit_ms else None
                is_slow = high_ms is not None and high_ms > pool.alarm_ms[kind]
                # What is high while PGs move or a problem exists is never accepted.
                level.note(now, seconds, high_ms if quiet else None, settings.raise_seconds)
                pool.accepted[kind] = high_ms is not None and not is_slow
            # Without operations, clients are idle, or no operation completes.
            pool.alarms[kind].update(now, seconds, is_slow, settings.raise_seconds,
                                     FORGET_SECONDS if ms is None else settings.clear_seconds)
        return changed

    def latency(self, pool_id: int) -> PoolPerformance:
        """The latency of a pool in the last minute, with its baselines; no operations and None of a
        pool that is not known. Computed once for each reading."""
        pool, performance = self._pools.get(pool_id), self._computed_latencies.get(pool_id)
        if pool is None:
            return PoolPerformance(pool_id, Flow(), Flow(), None, None)
        if performance is None:
            performance = self._computed_latencies[pool_id] = PoolPerformance(
                pool_id, mean_flow(pool.recent, READS, READ_NS),
                mean_flow(pool.recent, WRITES, WRITE_NS),
                pool.baseline('reads'), pool.baseline('writes'),
                pool.spreads['reads'].value, pool.spreads['writes'].value,
                _minute(pool.recent, READS, READ_NS), _minute(pool.recent, WRITES, WRITE_NS),
                pool.alarm_ms.get('reads'), pool.alarm_ms.get('writes'))
        return performance

    def read_baselines(self) -> Dict[int, float]:
        """Pool -> baseline of reads in ms, if known and while reads are not high."""
        baselines = {pool_id: pool.baselines['reads'] for pool_id, pool in self._pools.items()
                     if not pool.alarms['reads'].since}
        return {pool_id: ms for pool_id, ms in baselines.items() if ms is not None}

    def slow(self) -> List[RaisedAlarm]:
        """All raised alarms."""
        return [RaisedAlarm(pool_id, kind, alarm.since)
                for pool_id, pool in sorted(self._pools.items())
                for kind, alarm in pool.alarms.items() if alarm.raised]

    def accepted(self) -> List[Tuple[int, str, float]]:
        """(pool, "reads" or "writes", limit in ms) of operations whose latency is high, and
        accepted at this hour."""
        return [(pool_id, kind, pool.alarm_ms[kind])
                for pool_id, pool in sorted(self._pools.items())
                for kind, accepted in pool.accepted.items() if accepted]

    def busiest(self) -> List[int]:
        """All pools, the one with the most operations in the last minute first."""
        def ops(pool_id: int) -> float:
            return sum(point.sums[READS] + point.sums[WRITES]
                       for point in self._pools[pool_id].recent)
        return sorted(self._pools, key=lambda pool_id: (-ops(pool_id), pool_id))

    def load_of(self, pool_id: int) -> PoolLoad:
        """The load of a pool; an empty one before its first reading."""
        pool = self._pools.get(pool_id)
        return pool.load if pool is not None else PoolLoad()

    def history(self, pool_id: int) -> Optional[History]:
        """The readings of a pool; None before the first one."""
        pool = self._pools.get(pool_id)
        return pool.history if pool is not None else None

    # ---- State that survives a failover

    @property
    def has_unsaved(self) -> bool:
        """Whether `take_unsaved` may have something to store."""
        return bool(self._unsaved)

    def take_unsaved(self) -> Optional[Tuple[int, 'StoredPool']]:
        """A pool of which something must be stored, and what; None: all is stored."""
        while self._unsaved:
            pool_id = next(iter(self._unsaved))
            del self._unsaved[pool_id]
            pool = self._pools.get(pool_id)
            if pool is not None:
                return pool_id, StoredPool(_to_store(pool.quiet.rows()), tuple(pool.load.days),
                                           pool.levels)
        return None

    def load(self, pool_id: int, stored: 'StoredPool', settings: PoolSettings) -> None:
        """Take over what an earlier mgr has stored of a pool: the points of its baselines, the load
        of its days, and the accepted levels of its alarms."""
        # The stored points have this length, so the next update must not take it for a new one.
        self._baseline_seconds = settings.baseline_seconds
        pool = self._pool(pool_id, settings)
        pool.quiet.load(stored.points)
        pool.load.load(stored.load)
        pool.levels.update(stored.levels)
        pool.learn()  # the baselines, from these points

    def spreads(self) -> Dict[int, Dict[str, 'OpSpread']]:
        """Pool -> kind -> its spread, if known."""
        known = {pool_id: {kind: spread for kind, spread in pool.spreads.items()
                           if spread.value is not None}
                 for pool_id, pool in self._pools.items()}
        return {pool_id: kinds for pool_id, kinds in known.items() if kinds}

    def load_spreads(self, spreads: Mapping[int, Mapping[str, 'OpSpread']],
                     settings: PoolSettings) -> None:
        """Take over what `spreads` has returned."""
        for pool_id, kinds in spreads.items():
            self._pool(pool_id, settings).spreads.update(kinds)

    def provisional(self) -> Provisional:
        """The provisional baselines of kinds of operations without another one."""
        by_pool: Dict[int, Dict[str, float]] = {}
        for pool_id, pool in self._pools.items():
            for kind, baseline_ms in pool.baselines.items():
                ms = pool.baseline(kind)
                if baseline_ms is None and ms is not None:
                    by_pool.setdefault(pool_id, {})[kind] = ms
        return by_pool

    def load_provisional(self, provisional: Provisional, settings: PoolSettings) -> None:
        """Take over what `provisional` has returned."""
        for pool_id, kinds in provisional.items():
            self._pool(pool_id, settings).provisional.update(kinds)

    def load_alarms(self, alarms: Sequence[RaisedAlarm]) -> None:
        """Raise the alarms that `slow` has returned."""
        for pool_id, kind, since in alarms:
            pool = self._pools.get(pool_id)
            if pool is not None and kind in pool.alarms:
                pool.alarms[kind] = Alarm(True, since)


def _to_store(rows: Rows) -> Rows:
    """Those of the rows of a Series that are stored: the last STORED_POINTS, and the last
    STORED_POINTS_OF_KIND with operations of each kind, as one kind may be rare."""
    stored = set(range(len(rows))[-STORED_POINTS:])
    for _, column, _ in OP_KINDS:
        # The first two values of a row are its end and its length.
        stored.update([index for index, row in enumerate(rows)
                       if row[2 + column]][-STORED_POINTS_OF_KIND:])
    return [rows[index] for index in sorted(stored)]


def _minute(points: Sequence[HistoryPoint], ops_column: int, ns_column: int) -> Minute:
    """Number and median latency of the operations of points; Minute(): there are none. Columns as
    in _low_ms."""
    ms = _median_ms(points, ops_column, ns_column, 1)
    return Minute() if ms is None else Minute(sum(point.sums[ops_column] for point in points), ms)


def _low_ms(points: Sequence[HistoryPoint], ops_column: int, ns_column: int) -> Optional[float]:
    """The baseline that points show: the latency in ms that is not exceeded in BASELINE_SHARE of
    the time with operations. None: there are fewer than BASELINE_OPS operations. Consecutive points
    are one value until they have so many. `ops_column`, `ns_column`: of the number of operations
    and of the sum of their latencies in the points."""
    values: List[Tuple[float, float]] = []
    seconds = ops = spent_ns = 0.0
    for point in points:
        if point.sums[ops_column]:
            seconds += point.seconds
            ops += point.sums[ops_column]
            spent_ns += point.sums[ns_column]
        if ops >= BASELINE_OPS:
            values.append((spent_ns / ops / 1e6, seconds))
            seconds = ops = spent_ns = 0.0
    return weighted_quantile(values, BASELINE_SHARE) if values else None


def _median_ms(points: Sequence[HistoryPoint], ops_column: int, ns_column: int,
               least_ops: int) -> Optional[float]:
    """Median in ms of the mean latencies of points, weighted by operations; None: there are fewer
    than `least_ops` operations. Columns as in _low_ms.

    A single point with a stall (an OSD that restarts, a PG that peers) has no effect.
    """
    means = [(point.sums[ns_column] / point.sums[ops_column] / 1e6, point.sums[ops_column])
             for point in points if point.sums[ops_column] > 0]
    if sum(ops for _, ops in means) < least_ops:
        return None
    return weighted_median(means)


# ---- Random variation of latency

#: Decay per reading: about the last 50 readings count.
DECAY_PER_READING = 0.98
#: Minimum number of pairs of readings.
LEAST_PAIRS = 10.0
#: Minimum number of operations of a reading.
LEAST_PAIR_OPS = 20
#: Maximum of a squared difference, as a multiple of the mean: a single stall must not hide later
#: increases.
LARGEST_SQUARE_RATIO = 9.0


@dataclass
class OpSpread:
    """Standard deviation of the latency of one operation divided by the mean.

    Only sums and counts are known. The means of two consecutive readings of n and n' operations
    differ by chance with the variance s^2 (1/n + 1/n'), which gives s. Successive differences
    exclude slow changes such as those of the load (von Neumann et al., 1941).
    """
    #: Number of pairs of readings, and the sum of what they say of (s / mean)^2; both decay.
    pairs: Amount = 0.0
    squares: Amount = 0.0
    #: Mean and number of operations of the last reading; None: it was not quiet.
    last: Optional[Tuple[float, float]] = field(default=None, compare=False)

    def add(self, ops: float, total_ns: float) -> None:
        """Add a quiet reading of `ops` operations that took `total_ns` together: with the one
        before it, it is a pair, unless one of them has too few operations or was not quiet."""
        if ops < LEAST_PAIR_OPS or total_ns <= 0.0:
            self.last = None
            return
        mean_ns = total_ns / ops
        if self.last is not None:
            last_mean_ns, last_ops = self.last
            mean_of_both_ns = (mean_ns * ops + last_mean_ns * last_ops) / (ops + last_ops)
            # What this pair alone says of (s / mean)^2.
            square = ((mean_ns - last_mean_ns) ** 2 / (1.0 / ops + 1.0 / last_ops)
                      / mean_of_both_ns ** 2)
            if self.pairs >= LEAST_PAIRS:
                square = min(square, LARGEST_SQUARE_RATIO * self.squares / self.pairs)
            self.pairs = DECAY_PER_READING * self.pairs + 1.0
            self.squares = DECAY_PER_READING * self.squares + square
        self.last = mean_ns, ops

    def skip(self) -> None:
        """Skip a reading that is not quiet."""
        self.last = None

    @property
    def value(self) -> Optional[float]:
        """The standard deviation over the mean; None: not known yet."""
        return (self.squares / self.pairs) ** 0.5 if self.pairs >= LEAST_PAIRS else None


# ---- Limits of client latency: a multiple of the baseline, or set by the operator

#: Minimum excess of the limit over the baseline, in ms; smaller differences are noise.
HDD_FLOOR_MS = 2.0
FLASH_FLOOR_MS = 0.5


class BadLimit(InvalidValue):
    """latency_limits_ms is invalid; the message names the reason."""


@functools.lru_cache(maxsize=4)  # each pool asks for its limit in each turn
def latency_limits_ms(text: str) -> Mapping[str, float]:
    """Name of a pool -> milliseconds, from "rbd=5,cephfs.data=20"; raises BadLimit."""
    limits: Dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(','))):
        pool, _, number = part.rpartition('=')
        try:
            value = decimal_number(number)
        except ValueError:
            value = 0.0
        if not pool or not 0.0 < value < float('inf'):
            raise BadLimit('latency_limits_ms: %r is not <pool>=<milliseconds>, '
                           'with milliseconds above 0' % part)
        limits[pool.strip()] = value
    return limits


def named_target(options: Options, pool: str) -> Optional[float]:
    """The limit in ms that the operator has set for a pool; None: none, or invalid."""
    try:
        return latency_limits_ms(options.latency_limits_ms).get(pool)
    except BadLimit:
        return None


def target_ms(baseline_ms: Optional[float], named: Optional[float], options: Options,
              disk: bool = False) -> Optional[float]:
    """The limit in ms of the latency of a pool: `named`, the one that the operator has set (None:
    none), otherwise the one for a baseline; None: that is not known yet.

    `disk`: OSDs of the class hdd serve the pool.
    """
    if named is not None or baseline_ms is None:
        return named
    floor = options.latency_floor_ms
    if not floor:
        # A disk with a flash cache is as fast as flash until the cache is full.
        floor = HDD_FLOOR_MS if disk and baseline_ms >= HDD_FLOOR_MS else FLASH_FLOOR_MS
        # This floor at most doubles a baseline; that of the operator may do more.
        floor = min(floor, baseline_ms)
    return max(options.latency_factor * baseline_ms, baseline_ms + floor)


# ---- The latency from which the alarm of a pool is measured
#
# It must not depend on the hour at which the module was enabled. It is the baseline of the pool,
# but:
#
# * A level that recurs is accepted for the hours in which it does: on three of the last seven days,
#   as during a nightly batch, or in two of the last three weeks. Until then the alarm is raised
#   each time. A level that stays is accepted in the same way, hour by hour after three days.
# * The baseline of a pool follows a slow degradation, and the alarm does not: the lowest baseline
#   of the last half year counts. An accepted level does not rise either, unless by another alarm.

HOUR_SECONDS = 3600.0
WEEK_HOURS = 168


class Recurrence(NamedTuple):
    """A level is accepted at an hour of the period once it was reached at this hour in `least` of
    the last `of` periods."""
    hours: int
    least: int
    of: int


DAILY, WEEKLY = Recurrence(24, 3, 7), Recurrence(WEEK_HOURS, 2, 3)
#: Hours for which high levels are kept: a batch may begin an hour later than weeks ago.
KEPT_HOURS = WEEKLY.of * WEEKLY.hours + 1
#: Number of weekly baselines that are kept, and the share of them that may be unusually low, as in
#: a week of holidays.
KEPT_WEEKS, LOW_WEEKS = 26, 1 / 8


@dataclass
class AlarmLevel:
    """The level of the alarm of one kind of operation of one pool."""
    #: Hour since the epoch -> highest latency in ms that lasted, of hours in which it was high.
    high: Dict[int, Amount] = field(default_factory=dict)
    #: Hour of the day or week -> accepted latency in ms.
    daily: Dict[int, Amount] = field(default_factory=dict)
    weekly: Dict[int, Amount] = field(default_factory=dict)
    #: Baselines in ms, one per week, and the week of the last one.
    baselines: List[Amount] = field(default_factory=list)
    week: int = -1
    #: Seconds and ms of the last readings.
    _readings: Deque[Tuple[float, float]] = field(default_factory=deque, compare=False)

    def __post_init__(self) -> None:
        #: The hour for which the accepted latency was computed; -1: none.
        self._hour = max(self.high, default=-1)

    @property
    def _accepted(self) -> Tuple[Tuple[Recurrence, Dict[int, float]], ...]:
        return (DAILY, self.daily), (WEEKLY, self.weekly)

    def base_ms(self, baseline_ms: float) -> float:
        """The lowest baseline of the last half year, without unusual weeks."""
        baselines = sorted([baseline_ms, *self.baselines])
        return baselines[int(LOW_WEEKS * len(baselines))]

    def accepted_ms(self, now: float) -> Optional[float]:
        """The latency that is accepted at this hour of the day and of the week; None: nothing but
        the baseline is."""
        hour = int(now // HOUR_SECONDS)
        return max((levels[hour % period.hours] for period, levels in self._accepted
                    if hour % period.hours in levels), default=None)

    def note(self, now: float, seconds: float, ms: Optional[float], lasting: float) -> None:
        """Add the latency of a reading of `seconds`, if it is high; None: it is not. The hour is
        noted with the latency that was reached without a pause for `lasting` seconds."""
        if ms is None:
            self._readings.clear()
            return
        self._readings.append((seconds, ms))
        # Drop the oldest readings that are not needed to cover `lasting` seconds.
        covered = sum(length for length, _ in self._readings)
        while covered - self._readings[0][0] >= lasting:
            covered -= self._readings.popleft()[0]
        if covered >= lasting:
            hour = int(now // HOUR_SECONDS)
            level_ms = min(latency for _, latency in self._readings)
            self.high[hour] = max(level_ms, self.high.get(hour, 0.0))

    def review(self, now: float, baseline_ms: float, factor: float) -> bool:
        """Once an hour: update the latency that is accepted at this hour of the day and of the
        week. Once a week: note the baseline. Returns whether to store the level: after a new week,
        or while hours with high latency are noted.

        `factor`: PoolSettings.alarm_factor; accepted latency only rises to one that is above so
        many times it, and so has raised the alarm.
        """
        hour = int(now // HOUR_SECONDS)
        if hour == self._hour:
            return False
        self._hour = hour
        self.high = {at: ms for at, ms in self.high.items() if 0 <= hour - at <= KEPT_HOURS}
        for period, accepted in self._accepted:
            self._accept(period, accepted, hour, self.base_ms(baseline_ms), factor)
        week = hour // WEEK_HOURS
        is_new_week, is_first = week != self.week, self.week < 0
        self.week = week
        # At the first review, no week has ended.
        if is_new_week and not is_first:
            self.baselines = [*self.baselines, baseline_ms][-KEPT_WEEKS:]
        return is_new_week or bool(self.high)

    def _accept(self, period: Recurrence, accepted: Dict[int, float], hour: int, base_ms: float,
                factor: float) -> None:
        """Update the latency that is accepted at this hour of a period (`accepted`: by hour), by
        the latency at the same hour of the last periods.

        It rises to a latency that recurs, if that is more than `factor` times as high and so has
        raised the alarm. It falls to the highest latency that was reached, and is removed once
        that is not above `base_ms`.
        """
        slot = hour % period.hours
        # The hours before and after it count as well, since nothing begins at the same second.
        highest_first = sorted((max(self.high.get(hour - periods_back * period.hours + offset, 0.0)
                                    for offset in (-1, 0, 1))
                                for periods_back in range(1, period.of + 1)), reverse=True)
        recurring_ms = highest_first[period.least - 1]
        accepted_ms = accepted.pop(slot, base_ms)
        if recurring_ms > factor * accepted_ms:
            accepted_ms = recurring_ms
        accepted_ms = min(accepted_ms, highest_first[0])
        if accepted_ms > base_ms:
            accepted[slot] = accepted_ms


@dataclass(frozen=True)
class StoredPool:
    """What survives a failover of a pool."""
    points: Rows = ()
    load: Tuple[DayLoad, ...] = ()
    #: By kind of operation.
    levels: Mapping[str, AlarmLevel] = field(default_factory=dict)
