# SPDX-License-Identifier: LGPL-2.1-or-later
"""Rolling history: one hour of single readings, and one week of readings summed up.

Every column is a sum over the time of the point (operations, nanoseconds, PG-seconds), so points
can be added up. Readers divide by operations or seconds. Charts of the page add the columns that
cannot be added up: percentiles, from samples of a few OSDs at a time, and PGs in flight.
"""
import functools
import math
from array import array
from operator import add
from typing import (AbstractSet, Annotated, Dict, Iterable, List, Mapping, NamedTuple, Optional,
                    Sequence, Tuple, TypedDict)

from ..cluster.types import ClientOps, LatencyCounts
from ..codec import As
from .types import NO_FLOW, Flow

#: One hour of points every 5 s (mgr_stats_period), and one week of points every 10 minutes.
DETAILED_POINTS = 720
CONDENSED_POINTS = 1008
CONDENSED_SECONDS = 600.0
#: Upper bound of valid sums and times.
LARGEST = 1e24


def _amount(number: float) -> float:
    if not 0.0 <= number < LARGEST:
        raise ValueError('%r is no amount' % number)
    return number


#: A stored number that is never below 0, such as a count, a sum or a latency.
Amount = Annotated[float, As(float, functools.partial(round, ndigits=4), _amount)]
#: The stored points of a series: end, seconds and sums.
Rows = Sequence[Sequence[Amount]]
#: First columns of every history: client operations.
READS, READ_NS, WRITES, WRITE_NS = range(4)


class HistoryPoint(NamedTuple):
    #: When it ended, in seconds since the epoch.
    end: float
    seconds: float
    sums: Tuple[float, ...]


class Series:
    """The last `length` points of `width` columns each.

    Readings are summed up until a point covers `seconds`; with 0, each reading is a point.
    """

    def __init__(self, width: int, length: int, seconds: float = 0.0) -> None:
        self._width = width
        #: Number of values of a row: end, seconds and sums.
        self.row_size = width + 2
        self._length = length
        self.point_seconds = seconds
        #: Ring buffer of rows, each a point: end, seconds, sums; and the number of the oldest row.
        self._rows = array('d')
        self._oldest = 0
        #: Seconds and sums of the point that is not complete yet; empty: none has begun.
        self._open = array('d')

    def add(self, now: float, seconds: float, sums: Sequence[float]) -> bool:
        """Add a reading of `seconds`, with a sum for each column, to the open point. Returns
        whether this completed the point. Raises ValueError for another number of sums, which is an
        error of the caller."""
        if len(sums) != self._width:
            raise ValueError('%d sums for a series of %d columns' % (len(sums), self._width))
        point: Tuple[float, ...] = (seconds, *sums)
        if self._open:
            point = tuple(map(add, self._open, point))
        if point[0] < self.point_seconds:
            self._open = array('d', point)
            return False
        if self._open:
            self._open = array('d')
        self._keep(array('d', (now, *point)))
        return True

    def _keep(self, row: 'array[float]') -> None:
        """Keep a complete point, in place of the oldest row if the ring buffer is full."""
        size = self.row_size
        if len(self._rows) < self._length * size:
            self._rows.extend(row)
        else:
            self._rows[self._oldest * size:(self._oldest + 1) * size] = row
            self._oldest = (self._oldest + 1) % self._length

    def __len__(self) -> int:
        return len(self._rows) // self.row_size

    def points(self, last: int = 0) -> List[HistoryPoint]:
        """The last points (0: all), newest last."""
        return list(map(_point, self.rows(last)))

    def rows(self, last: int = 0) -> List['array[float]']:
        """The last points (0: all), newest last, each as end, seconds and sums."""
        size, kept = self.row_size, len(self)
        begins = [(self._oldest + number) % max(1, kept) * size
                  for number in range(kept - last if 0 < last < kept else 0, kept)]
        return [self._rows[begin:begin + size] for begin in begins]

    def flat(self, last: int) -> 'array[float]':
        """The rows of the last points, newest last, as one array."""
        size, kept = self.row_size, len(self)
        last = min(last, kept)
        begin = (self._oldest + kept - last) % max(1, kept)
        # How many of them, the newest ones, are at the front of the ring buffer.
        front = max(0, begin + last - kept)
        return self._rows[begin * size:(begin + last - front) * size] + self._rows[:front * size]

    def load(self, rows: Rows) -> None:
        """Add points that an earlier mgr has stored, as `rows` returns them. Those with another
        number of columns, as another release may have stored, are skipped."""
        for row in rows:
            if len(row) == self.row_size:
                self._keep(array('d', row))


class History:
    """One hour in detail and one week condensed."""

    def __init__(self, width: int, detailed: int = DETAILED_POINTS,
                 condensed: int = CONDENSED_POINTS) -> None:
        self.detailed = Series(width, detailed)
        self.condensed = Series(width, condensed, CONDENSED_SECONDS)

    def add(self, now: float, seconds: float, sums: Sequence[float]) -> None:
        self.detailed.add(now, seconds, sums)
        self.condensed.add(now, seconds, sums)


#: Length of the recent past.
WINDOW_SECONDS = 60.0


def recent(series: Series, now: float, seconds: float) -> List[HistoryPoint]:
    """The points of the last minute, of about `seconds` each."""
    return [_point(row) for row in series.rows(last=_number(seconds))
            if now - row[0] < WINDOW_SECONDS]


def recent_total(series: Series, now: float, seconds: float) -> Optional[HistoryPoint]:
    """The points of the last minute, summed up as one; None: there are none. `seconds`: as for
    recent(). Fast, as there may be 10,000 OSDs with such a series."""
    rows, size = series.flat(_number(seconds)), series.row_size
    begin = 0  # of the first row of the last minute
    while begin < len(rows) and now - rows[begin] >= WINDOW_SECONDS:
        begin += size
    return HistoryPoint(rows[-size], sum(rows[begin + 1::size]), tuple(
        [sum(rows[column::size]) for column in range(begin + 2, begin + size)])) \
        if begin < len(rows) else None


def _number(seconds: float) -> int:
    """Points of about `seconds` each that may be recent."""
    return int(WINDOW_SECONDS / max(1.0, seconds)) + 2


def _point(row: 'array[float]') -> HistoryPoint:
    return HistoryPoint(row[0], row[1], tuple(row[2:]))


def mean_flow(points: Sequence[HistoryPoint], ops_column: int, ns_column: int) -> Flow:
    return flow_of(sum([point.seconds for point in points]),
                   sum([point.sums[ops_column] for point in points]),
                   sum([point.sums[ns_column] for point in points]))


def flow_of(seconds: float, ops: float, total_ns: float) -> Flow:
    return Flow(ops / seconds, total_ns / ops / 1e6) if ops and seconds else NO_FLOW


# ---- Percentiles of latency

def percentile_ms(bounds: Sequence[int], counts: Sequence[float], share: float) -> Optional[float]:
    """The latency in ms below which `share` (0 to 1) of the operations are; None without any.
    `counts`: operations by bucket.

    `bounds`: upper bounds in ns of all buckets except the last. Operations are assumed to be spread
    evenly within a bucket. Each of Ceph's buckets is twice as wide as the previous one, so the
    result is wrong by at most a factor of two.
    """
    total = sum(counts)
    if total <= 0:
        return None
    ops_below = share * total
    below = 0.0
    for number, count in enumerate(counts):
        if count and below + count >= ops_below:
            lower = bounds[number - 1] if number else 0
            upper = bounds[number] if number < len(bounds) else 2 * lower
            return (lower + (upper - lower) * (ops_below - below) / count) / 1e6
        below += count
    raise AssertionError('not reached')


#: Maximum age of a sample.
RECENT_SECONDS = 120.0
MEDIAN, TAIL = 0.5, 0.99

#: Pool -> its share (0 to 1) of the reads and of the writes of one OSD.
Shares = Mapping[int, Tuple[float, float]]


class Levels(NamedTuple):
    """Percentiles in ms; None without operations."""
    read_p50_ms: Optional[float] = None
    read_p99_ms: Optional[float] = None
    write_p50_ms: Optional[float] = None
    write_p99_ms: Optional[float] = None


class _Sample(NamedTuple):
    at: float
    counts: LatencyCounts
    shares: Shares
    levels: Levels


class LatencyPercentiles:
    def __init__(self) -> None:
        self._samples: Dict[int, _Sample] = {}
        #: OSD that is being sampled -> pool -> reads and writes since the sample began.
        self._ops: Dict[int, Dict[int, List[float]]] = {}

    def update(self, now: float, samples: Sequence[LatencyCounts], osds: Sequence[int],
               clients: Sequence[ClientOps] = (), sampling: AbstractSet[int] = frozenset()) -> None:
        """Count the operations of each pool on OSDs while they are sampled, and keep the last
        sample of each OSD with the shares of the pools in it. `samples`: those that this reading
        has completed; `sampling`: OSDs whose sample is in progress; `clients`: operations since the
        last reading; `osds`: all others are forgotten."""
        for osd in sampling - self._ops.keys():
            self._ops[osd] = {}
        for row in clients:
            pools = self._ops.get(row.osd)
            if pools is not None and row.sane:
                sums = pools.setdefault(row.pool, [0.0, 0.0])
                (_, reads), (_, writes) = row.read, row.write
                sums[0] += reads
                sums[1] += writes
        for sample in samples:
            self._samples[sample.osd] = _Sample(
                now, sample, _shares(self._ops.get(sample.osd, {})),
                _levels(sample.bounds, sample.read, sample.write))
        for osd in set(self._ops) - sampling:
            del self._ops[osd]
        for osd in set(self._samples) - set(osds):
            del self._samples[osd]

    def levels_of_osd(self, osd: int) -> Levels:
        """From the last sample of the OSD."""
        return self._samples[osd].levels if osd in self._samples else Levels()

    def levels_of_cluster(self, now: float) -> Levels:
        """From the recent samples of all OSDs."""
        return _weighted_levels((sample.counts, 1.0, 1.0) for sample in self._recent(now))

    def levels_of_pool(self, now: float, pool: int) -> Levels:
        """From the recent samples of all OSDs: an estimate, as OSDs do not measure latency by pool.

        The sample of each OSD is weighted with the share of the pool in its operations. This is
        exact for pools that have their own OSDs, or that are active at other times. Pools that use
        the same OSDs at the same time are assumed to be equally fast there.
        """
        return _weighted_levels((sample.counts, *sample.shares.get(pool, (0.0, 0.0)))
                                for sample in self._recent(now))

    def _recent(self, now: float) -> List[_Sample]:
        return [sample for sample in self._samples.values() if now - sample.at <= RECENT_SECONDS]


def _shares(ops: Mapping[int, Sequence[float]]) -> Shares:
    """The shares of pools in the operations of one OSD. `ops`: pool -> reads and writes."""
    reads, writes = (sum(sums[kind] for sums in ops.values()) for kind in (0, 1))
    return {pool: (sums[0] / reads if reads else 0.0, sums[1] / writes if writes else 0.0)
            for pool, sums in ops.items()}


def _add(sums: List[float], counts: Sequence[int], share: float) -> None:
    for bucket, count in enumerate(counts):
        sums[bucket] += share * count


def _levels(bounds: Sequence[int], read: Sequence[float], write: Sequence[float]) -> Levels:
    return Levels(*(percentile_ms(bounds, counts, share)
                    for counts in (read, write) for share in (MEDIAN, TAIL)))


def _weighted_levels(histograms: Iterable[Tuple[LatencyCounts, float, float]]) -> Levels:
    """The percentiles of all histograms together, each weighted with the two shares after it: of
    its reads and of its writes. Those with other buckets than the first are left out."""
    bounds: Tuple[int, ...] = ()
    reads: List[float] = []
    writes: List[float] = []
    for counts, read_share, write_share in histograms:
        if not read_share + write_share:
            continue
        if not bounds:
            bounds = counts.bounds
            reads, writes = [0.0] * len(counts.read), [0.0] * len(counts.write)
        if counts.bounds == bounds:
            _add(reads, counts.read, read_share)
            _add(writes, counts.write, write_share)
    return _levels(bounds, reads, writes)


# ---- Charts of the page

#: Maximum number of pools with percentiles: the cost grows with pools and OSDs.
TAIL_POOLS = 8
_CLIENTS = ('time', 'seconds', 'read_ms', 'write_ms', 'read_rate', 'write_rate')
#: In the order of the cluster's history after the clients' columns (state.py).
_STATES = ('laggy_pgs', 'degraded_pgs', 'backfilling_pgs', 'slow_ops', 'misplaced_ratio',
           'recovery_bytes_per_second')
CLUSTER_COLUMNS = (*_CLIENTS, *_STATES, 'in_flight', *Levels._fields)
POOL_COLUMNS = (*_CLIENTS, *Levels._fields)


class ChartRows(TypedDict, total=False):
    """What the page draws of the cluster, or of one pool."""
    pool: str
    columns: List[str]
    rows: List[List[Optional[float]]]


class Charts:
    """Series that histories, which contain sums, cannot hold: percentiles and PGs in flight."""

    def __init__(self) -> None:
        self._cluster = Series(1 + len(Levels._fields), DETAILED_POINTS)
        self._pools: Dict[int, Series] = {}

    def update(self, now: float, seconds: float, percentiles: LatencyPercentiles,
               busiest: Iterable[int], pools: Iterable[int], in_flight: int) -> None:
        """Add the percentiles and the PGs in flight of this moment, as a point that ends with that
        of the histories. `busiest`: pools, the busiest first: only TAIL_POOLS of them are added, as
        each costs time; `pools`: all that exist."""
        self._cluster.add(now, seconds, [in_flight, *_numbers(percentiles.levels_of_cluster(now))])
        for pool in set(self._pools) - set(pools):
            del self._pools[pool]
        for pool in list(busiest)[:TAIL_POOLS]:
            series = self._pools.setdefault(pool, Series(len(Levels._fields), DETAILED_POINTS))
            series.add(now, seconds, _numbers(percentiles.levels_of_pool(now, pool)))

    def cluster(self, points: Sequence[HistoryPoint]) -> ChartRows:
        """The chart of the cluster. `points`: of its history, newest last."""
        levels_by_time = _by_time(self._cluster, points)
        # The sums after those of clients are states times seconds.
        return {'columns': list(CLUSTER_COLUMNS), 'rows': [
            [*_clients(point), *(round(value / max(point.seconds, 1e-9), 6)
                                 for value in point.sums[WRITE_NS + 1:]),
             *levels_by_time.get(point.end, [None] * (1 + len(Levels._fields)))]
            for point in points]}

    def pool(self, pool_id: int, name: str, points: Sequence[HistoryPoint]) -> ChartRows:
        """The chart of a pool; without percentiles if it was not among the busiest. `points`: of
        its history, newest last."""
        series = self._pools.get(pool_id)
        levels_by_time = _by_time(series, points) if series is not None else {}
        return {'pool': name, 'columns': list(POOL_COLUMNS), 'rows': [
            [*_clients(point), *levels_by_time.get(point.end, [None] * len(Levels._fields))]
            for point in points]}


def newer(series: Series, since: float) -> List[HistoryPoint]:
    """The points that ended after `since`, newest last. Usually few, so few are read first."""
    number = 8
    while number < len(series):
        points = series.points(number)
        if points[0].end <= since:
            return [point for point in points if point.end > since]
        number *= 4
    return [point for point in series.points() if point.end > since]


def _by_time(series: Series, points: Sequence[HistoryPoint]) -> Dict[float, List[Optional[float]]]:
    """End of a point -> what `series` adds to it in a chart, from the first of `points` on."""
    if not points:
        return {}
    levels = newer(series, math.nextafter(points[0].end, -math.inf))
    return {point.end: [None if math.isnan(value) else round(value, 3)
                        for value in point.sums] for point in levels}


def _clients(point: HistoryPoint) -> List[Optional[float]]:
    flows = [mean_flow([point], READS, READ_NS), mean_flow([point], WRITES, WRITE_NS)]
    return [round(point.end, 3), round(point.seconds, 1),
            *(round(flow.ms, 3) if flow.rate else None for flow in flows),
            *(round(flow.rate, 1) for flow in flows)]


def _numbers(levels: Levels) -> List[float]:
    return [math.nan if value is None else value for value in levels]
