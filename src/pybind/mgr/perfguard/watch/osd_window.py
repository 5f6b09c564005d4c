# SPDX-License-Identifier: LGPL-2.1-or-later
"""Operations of one OSD in the last minute, in a fixed number of slots."""
import math
from array import array
from operator import truediv
from typing import Iterable, List, NamedTuple, Optional, Tuple

from .types import Flow, OsdSample

#: The kinds of operation that are evidence against an OSD. Client writes as a whole are not: a
#: slow replica inflates them on all primaries that write to it. Instead, "writes" is the part
#: spent in this OSD (queue, preparation and commit), and "replicated writes" is the latency of
#: writes that it replicates.
CHANNELS = ('reads', 'writes', 'store commits', 'store reads', 'replicated writes')
READS, WRITES, COMMITS, STORE_READS, REPLICATED = range(5)
#: A window has this many slots of equal length.
SLOTS = 12
#: Minimum number of operations of a mean; slots with fewer are merged. A median of means is as
#: robust as a median and still reflects the slow tail (Nemirovski and Yudin 1983).
BLOCK_OPS = 8
#: Minimum number of means: with fewer, one stall (peering takes 1 to 3 s) could dominate.
MIN_BLOCKS = 3
#: Minimum number of operations in each of several slots in a row that must all be slow: an OSD
#: that is very slow serves few operations.
SLOT_OPS = 3
#: Number of the last means whose median is the current latency.
RECENT_MEANS = 3
#: Upper bounds of a valid flow: operations per second, milliseconds.
MAX_RATE = 1e8
MAX_MS = 1e7
#: Longest interval of a sample in seconds.
MAX_SECONDS = 3600.0

#: Columns of a slot: when its last sample was added, its seconds, its client writes. (operations,
#: their milliseconds) of each channel follow.
_END, _SECONDS, _WRITES, _FIRST = 0, 1, 2, 3


class WindowLatency(NamedTuple):
    """Latency of one kind of operation in a window."""
    #: Median of means.
    ms: float
    #: Median of the means at the end of the window.
    recent_ms: float
    #: Logarithm of ms.
    log_ms: float
    ops: float


class WindowTotals(NamedTuple):
    """Sums over a window."""
    seconds: float
    #: Client writes.
    writes: float
    #: Operations by channel.
    ops: Tuple[float, ...]


class OsdWindow:
    """The operations of one OSD in the last `seconds`, stored by columns. In arrays: there may be
    10,000 OSDs, and Python's garbage collector examines each list and what is in it."""
    __slots__ = ('_columns',)

    def __init__(self) -> None:
        self._columns = [array('d') for _ in range(_FIRST + 2 * len(CHANNELS))]

    def add(self, now: float, sample: OsdSample, seconds: float) -> None:
        """Add a sample to the last slot, or to a new one if that is full. Invalid flows count as no
        operations. `seconds`: length of the window."""
        if not 0.0 < sample.seconds <= MAX_SECONDS:
            return
        columns = self._columns
        # A slot is full a little below its length, since intervals vary.
        if not columns[_END] or columns[_SECONDS][-1] > 0.9 * seconds / SLOTS:
            for column in columns:
                column.append(0.0)
        columns[_END][-1] = now
        columns[_SECONDS][-1] += sample.seconds
        columns[_WRITES][-1] += _valid_rate(sample.write) * sample.seconds
        column_of_ops = _FIRST
        for flow in flows_of(sample):
            ops = _valid_rate(flow) * sample.seconds
            if ops:
                columns[column_of_ops][-1] += ops
                columns[column_of_ops + 1][-1] += ops * flow.ms
            column_of_ops += 2

    def expire(self, now: float, seconds: float) -> None:
        """Drop slots older than `seconds`, the length of the window, or than six slots if these are
        longer, as with rare reports. The tolerance is half a second."""
        slot_ends = self._columns[_END]
        if not slot_ends:
            return
        oldest = now - max(seconds, 6 * self._columns[_SECONDS][-1]) - 0.5
        while slot_ends and (slot_ends[0] < oldest or len(slot_ends) > SLOTS):
            for column in self._columns:
                del column[0]

    def is_recent(self, now: float, seconds: float) -> bool:
        """Whether the last slot is from the last quarter of `seconds`, or of the last two slots."""
        slot_ends = self._columns[_END]
        return bool(slot_ends) and slot_ends[-1] >= now - max(
            seconds / 4, 2 * self._columns[_SECONDS][-1])

    def rate(self, channel: int) -> float:
        """Operations of a kind per second."""
        seconds = sum(self._columns[_SECONDS])
        return sum(self._columns[_FIRST + 2 * channel]) / seconds if seconds else 0.0

    def is_fed(self, channel: int) -> bool:
        """Whether the last slot has operations of a kind."""
        column = self._columns[_FIRST + 2 * channel]
        return bool(column) and column[-1] > 0.0

    def least_ms(self, channel: int, seconds: float) -> Optional[float]:
        """The lowest mean latency of the slots of the last `seconds` (0.0: of the last slot), of a
        kind of operation; None if a slot is missing or has too few operations for a mean."""
        first = _FIRST + 2 * channel
        lowest_ms, covered = math.inf, 0.0
        for length, ops, ops_ms in zip(*(reversed(self._columns[column])
                                         for column in (_SECONDS, first, first + 1))):
            if ops < SLOT_OPS:
                return None
            lowest_ms = min(lowest_ms, ops_ms / ops)
            covered += length
            if covered >= seconds:
                return lowest_ms
        return None

    def totals(self) -> WindowTotals:
        """For rates() and reading()."""
        columns = self._columns
        return WindowTotals(sum(columns[_SECONDS]), sum(columns[_WRITES]),
                            tuple(map(sum, columns[_FIRST::2])))

    def reading(self, channel: int, all_ops: float) -> Optional[WindowLatency]:
        """The median of means of a kind of operation; None: the window has too few operations.
        `all_ops`: how many of this kind it has (totals(), which the caller has already)."""
        first = _FIRST + 2 * channel
        if all_ops < MIN_BLOCKS * BLOCK_OPS:
            return None
        ops, ops_ms = self._columns[first], self._columns[first + 1]
        means = list(map(truediv, ops_ms, ops)) if min(ops) >= BLOCK_OPS else _merged(ops, ops_ms)
        count = len(means)
        if count < MIN_BLOCKS:
            return None
        recent = sorted(means[-RECENT_MEANS:])[RECENT_MEANS // 2]
        means.sort()
        middle = means[count // 2]
        if count % 2 == 0:
            middle = 0.5 * (middle + means[count // 2 - 1])
        return WindowLatency(middle, recent, math.log(middle), all_ops)


def flows_of(sample: OsdSample) -> Tuple[Flow, ...]:
    """The operations of a sample, by channel (CHANNELS)."""
    own_write = sample.own_write
    if _valid_rate(own_write) and _valid_rate(sample.commit):
        # Without the commit, the latency would be so small that any queue multiplies it.
        own_write = Flow(own_write.rate, own_write.ms + sample.commit.ms)
    return sample.read, own_write, sample.commit, sample.store_read, sample.replica


def _merged(ops: Iterable[float], ops_ms: Iterable[float]) -> List[float]:
    """Means of latency in ms of consecutive slots with enough operations each. `ops`, `ops_ms`:
    operations of each slot, and their milliseconds in total."""
    means: List[float] = []
    count = total = 0.0
    for slot_ops, ms in zip(ops, ops_ms):
        count += slot_ops
        total += ms
        if count >= BLOCK_OPS:
            means.append(total / count)
            count = total = 0.0
    return means


def rates(totals: WindowTotals, busy: bool) -> Tuple[float, float]:
    """Reads and writes per second of an OSD, its load: the higher of the counts of clients and
    store. Of a `busy` OSD, which deep scrubs or backfills, client reads count if there are any,
    because its store reads for that work as well."""
    read, own_writes, commit, store, _ = totals.ops
    if not (busy and read):
        read = max(read, store)
    return read / totals.seconds, max(totals.writes, own_writes, commit) / totals.seconds


def _valid_rate(flow: Flow) -> float:
    """The rate of a flow; 0.0 if the flow is invalid (NaN compares false)."""
    return flow.rate if 0.0 < flow.rate < MAX_RATE and 0.0 < flow.ms < MAX_MS else 0.0
