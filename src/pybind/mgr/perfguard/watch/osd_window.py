# SPDX-License-Identifier: LGPL-2.1-or-later
"""Operations of one OSD in the last minute, in a fixed number of slots."""
import math
from array import array
from operator import truediv
from typing import Iterable, List, NamedTuple, Optional, Sequence, Tuple

from .types import OsdSample, PlainFlow

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
_COLUMNS = _FIRST + 2 * len(CHANNELS)
#: Of each channel.
_FIRST_COLUMNS = range(_FIRST, _COLUMNS, 2)
_EMPTY_SLOT = array('d', [0.0]) * _COLUMNS


class WindowLatency(NamedTuple):
    """Latency of one kind of operation in a window."""
    #: Median of means.
    ms: float
    #: Median of the means at the end of the window.
    recent_ms: float
    #: Logarithm of ms.
    log_ms: float
    ops: float


class WindowSummary(NamedTuple):
    """Sums over a window, and its latencies."""
    seconds: float
    #: Client writes.
    writes: float
    #: Operations by channel.
    ops: Tuple[float, ...]
    #: By channel; None without evidence.
    latencies: Tuple[Optional[WindowLatency], ...]


class OsdWindow:
    """The operations of one OSD in the last `seconds`. In one array: there may be 10,000 OSDs, and
    Python's garbage collector examines each container."""
    __slots__ = ('_slots',)

    def __init__(self) -> None:
        #: The columns of the oldest slot, those of the next one, and so on.
        self._slots = array('d')

    def add(self, now: float, sample: OsdSample, seconds: float) -> None:
        """Add a sample to the last slot, or to a new one if that is full. Invalid flows count as no
        operations. `seconds`: length of the window."""
        if not 0.0 < sample.seconds <= MAX_SECONDS:
            return
        slots = self._slots
        # A slot is full a little below its length, since intervals vary.
        if not slots or slots[_SECONDS - _COLUMNS] > 0.9 * seconds / SLOTS:
            slots.extend(_EMPTY_SLOT)
        last = len(slots) - _COLUMNS
        slots[last + _END] = now
        slots[last + _SECONDS] += sample.seconds
        slots[last + _WRITES] += _valid_rate(sample.write) * sample.seconds
        column = last + _FIRST
        for rate, ms in flows_of(sample):
            if 0.0 < rate < MAX_RATE and 0.0 < ms < MAX_MS:
                ops = rate * sample.seconds
                slots[column] += ops
                slots[column + 1] += ops * ms
            column += 2

    def expire(self, now: float, seconds: float) -> None:
        """Drop slots older than `seconds`, the length of the window, or than six slots if these are
        longer, as with rare reports. The tolerance is half a second."""
        slots = self._slots
        if not slots:
            return
        oldest = now - max(seconds, 6 * slots[_SECONDS - _COLUMNS]) - 0.5
        while slots and (slots[_END] < oldest or len(slots) > SLOTS * _COLUMNS):
            del slots[:_COLUMNS]

    def is_recent(self, now: float, seconds: float) -> bool:
        """Whether the last slot is from the last quarter of `seconds`, or of the last two slots."""
        slots = self._slots
        return bool(slots) and slots[_END - _COLUMNS] >= now - max(
            seconds / 4, 2 * slots[_SECONDS - _COLUMNS])

    def rate(self, channel: int) -> float:
        """Operations of a kind per second."""
        seconds = sum(self._column(_SECONDS))
        return sum(self._column(_FIRST + 2 * channel)) / seconds if seconds else 0.0

    def _column(self, number: int) -> 'array[float]':
        return self._slots[number::_COLUMNS]

    def is_fed(self, channel: int) -> bool:
        """Whether the last slot has operations of a kind."""
        return bool(self._slots) and self._slots[_FIRST + 2 * channel - _COLUMNS] > 0.0

    def least_ms(self, channel: int, seconds: float) -> Optional[float]:
        """The lowest mean latency of the slots of the last `seconds` (0.0: of the last slot), of a
        kind of operation; None if a slot is missing or has too few operations for a mean."""
        first = _FIRST + 2 * channel
        lowest_ms, covered = math.inf, 0.0
        for length, ops, ops_ms in zip(*(reversed(self._column(column))
                                         for column in (_SECONDS, first, first + 1))):
            if ops < SLOT_OPS:
                return None
            lowest_ms = min(lowest_ms, ops_ms / ops)
            covered += length
            if covered >= seconds:
                return lowest_ms
        return None

    def summary(self) -> WindowSummary:
        """The sums and latencies of all channels."""
        slots = self._slots
        columns = [slots[first::_COLUMNS] for first in _FIRST_COLUMNS]
        sums_of_ops = tuple([sum(column) for column in columns])
        return WindowSummary(
            sum(slots[_SECONDS::_COLUMNS]), sum(slots[_WRITES::_COLUMNS]), sums_of_ops, tuple([
                _latency(ops, slots[first + 1::_COLUMNS], all_ops)
                if all_ops >= MIN_BLOCKS * BLOCK_OPS else None
                for first, ops, all_ops in zip(_FIRST_COLUMNS, columns, sums_of_ops)]))


def _latency(ops: Sequence[float], ops_ms: Sequence[float],
             all_ops: float) -> Optional[WindowLatency]:
    """The median of means of a kind of operation; None: too few operations. `ops`, `ops_ms`:
    operations of each slot, and their milliseconds in total; `all_ops`: the sum of `ops`."""
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


def flows_of(sample: OsdSample) -> Tuple[PlainFlow, ...]:
    """The operations of a sample, by channel (CHANNELS)."""
    own_write = sample.own_write
    if _valid_rate(own_write) and _valid_rate(sample.commit):
        (rate, ms), (_, commit_ms) = own_write, sample.commit
        # Without the commit, the latency would be so small that any queue multiplies it.
        own_write = rate, ms + commit_ms
    return sample.read, own_write, sample.commit, sample.store_read, sample.replica


def _merged(ops: Iterable[float], ops_ms: Iterable[float]) -> List[float]:
    """Means of latency in ms of consecutive slots with enough operations each. `ops`, `ops_ms`: as
    in _latency."""
    means: List[float] = []
    count = total = 0.0
    for slot_ops, ms in zip(ops, ops_ms):
        count += slot_ops
        total += ms
        if count >= BLOCK_OPS:
            means.append(total / count)
            count = total = 0.0
    return means


def rates(summary: WindowSummary, busy: bool) -> Tuple[float, float]:
    """Reads and writes per second of an OSD, its load: the higher of the counts of clients and
    store. Of a `busy` OSD, which deep scrubs or backfills, client reads count if there are any,
    because its store reads for that work as well."""
    read, own_writes, commit, store, _ = summary.ops
    if not (busy and read):
        read = max(read, store)
    return read / summary.seconds, max(summary.writes, own_writes, commit) / summary.seconds


def _valid_rate(flow: PlainFlow) -> float:
    """The rate of a flow; 0.0 if the flow is invalid (NaN compares false)."""
    rate, ms = flow
    return rate if 0.0 < rate < MAX_RATE and 0.0 < ms < MAX_MS else 0.0
