# SPDX-License-Identifier: LGPL-2.1-or-later
"""What one OSD did in the last minute, in a ring whose size does not depend on the period."""
import math
from operator import truediv
from typing import List, NamedTuple, Optional, Tuple

from .types import Flow, OsdSample

#: The kinds of operation that accuse an OSD. Client writes as a whole are not among them: a slow
#: replica inflates them on all the primaries that write to it. In their place is what a write
#: costs in this OSD: queue and preparation, and a commit; and what writes cost that it replicates.
CHANNELS = ('reads', 'writes', 'store commits', 'store reads', 'replicated writes')
READS, WRITES, COMMITS, STORE_READS, REPLICATED = range(5)
#: A window has this many slots of equal length.
SLOTS = 12
#: Operations that a mean is made of; slots with fewer are merged. A median of means is as robust
#: as a median and still sees the slow tail (Nemirovski and Yudin 1983).
BLOCK_OPS = 8
#: Fewer means than this are no evidence: one stall (peering takes 1 to 3 s) could be most of it.
MIN_BLOCKS = 3
#: The last means, of which the median says how it is now.
RECENT = 3
#: Beyond these a flow is nonsense: operations per second, milliseconds.
MAX_RATE = 1e8
MAX_MS = 1e7
#: Longest interval of a sample in seconds.
MAX_SECONDS = 3600.0

#: Columns of a slot; (operations, their milliseconds) of each channel follow.
_END, _SECONDS, _WRITES, _FIRST = 0, 1, 2, 3


class WindowLatency(NamedTuple):
    """One kind of operation in a window."""
    #: Median of means.
    ms: float
    #: The same of its end.
    recent_ms: float
    #: Logarithm of ms.
    log_ms: float
    ops: float


class OsdWindow:
    """The last `seconds` of one OSD, by columns."""
    __slots__ = ('_columns',)

    def __init__(self) -> None:
        self._columns: List[List[float]] = [[] for _ in range(_FIRST + 2 * len(CHANNELS))]

    def add(self, now: float, sample: OsdSample, seconds: float) -> None:
        """Take a sample in; nonsense counts as no operations."""
        if not 0.0 < sample.seconds <= MAX_SECONDS:
            return
        columns = self._columns
        # A little less than a slot's length, since intervals vary.
        if not columns[_END] or columns[_SECONDS][-1] > 0.9 * seconds / SLOTS:
            for column in columns:
                column.append(0.0)
        columns[_END][-1] = now
        columns[_SECONDS][-1] += sample.seconds
        columns[_WRITES][-1] += _ops(sample.write) * sample.seconds
        number = _FIRST
        for flow in flows_of(sample):
            ops = _ops(flow) * sample.seconds
            if ops:
                columns[number][-1] += ops
                columns[number + 1][-1] += ops * flow.ms
            number += 2

    def expire(self, now: float, seconds: float) -> bool:
        """Drop what is older than `seconds`, or than six slots where those are longer, and all if
        the clock was set back; False: nothing recent is left."""
        ends = self._columns[_END]
        if ends and ends[-1] > now:
            for column in self._columns:
                column.clear()
        if not ends:
            return False
        beat = self._columns[_SECONDS][-1]
        oldest = now - max(seconds, 6 * beat) - 0.5
        while ends and (ends[0] < oldest or len(ends) > SLOTS):
            for column in self._columns:
                del column[0]
        return bool(ends) and ends[-1] >= now - max(seconds / 4, 2 * beat)

    def rate(self, channel: int) -> float:
        """Operations of a kind per second."""
        seconds = sum(self._columns[_SECONDS])
        return sum(self._columns[_FIRST + 2 * channel]) / seconds if seconds else 0.0

    def is_fed(self, channel: int) -> bool:
        """Whether the last slot has operations of a kind."""
        column = self._columns[_FIRST + 2 * channel]
        return bool(column) and column[-1] > 0.0

    def least_ms(self, channel: int, seconds: float) -> Optional[float]:
        """The least mean of the slots of the last `seconds`; None where they are not all there, or
        one of them has too few operations for a mean."""
        number = _FIRST + 2 * channel
        least, covered = math.inf, 0.0
        for length, ops, spent in zip(*(reversed(self._columns[column])
                                        for column in (_SECONDS, number, number + 1))):
            if ops < BLOCK_OPS:
                return None
            least = min(least, spent / ops)
            covered += length
            if covered >= seconds:
                return least
        return None

    def totals(self) -> List[float]:
        """The columns' sums, which rates() and reading() are made of."""
        return [sum(column) for column in self._columns]

    def reading(self, channel: int, totals: List[float]) -> Optional[WindowLatency]:
        """The median of means of a kind of operation; None without evidence."""
        number = _FIRST + 2 * channel
        if totals[number] < MIN_BLOCKS * BLOCK_OPS:
            return None
        ops, spent = self._columns[number], self._columns[number + 1]
        means = list(map(truediv, spent, ops)) if min(ops) >= BLOCK_OPS else _merged(ops, spent)
        count = len(means)
        if count < MIN_BLOCKS:
            return None
        recent = sorted(means[-RECENT:])[RECENT // 2]
        means.sort()
        middle = means[count // 2]
        if count % 2 == 0:
            middle = 0.5 * (middle + means[count // 2 - 1])
        return WindowLatency(middle, recent, math.log(middle), totals[number])


def flows_of(sample: OsdSample) -> Tuple[Flow, ...]:
    """By channel."""
    own = sample.own_write
    if _ops(own) and _ops(sample.commit):
        # Alone it would be a small number that any queue multiplies.
        own = Flow(own.rate, own.ms + sample.commit.ms)
    return sample.read, own, sample.commit, sample.store_read, sample.replica


def _merged(ops: List[float], spent: List[float]) -> List[float]:
    """Means of as many operations as one needs."""
    means: List[float] = []
    count = total = 0.0
    for each, ms in zip(ops, spent):
        count += each
        total += ms
        if count >= BLOCK_OPS:
            means.append(total / count)
            count = total = 0.0
    return means


def rates(totals: List[float], busy: bool) -> Tuple[float, float]:
    """Reads and writes per second, as clients or as the store count them: the greater, but the
    clients' reads where the store has others, of a deep scrub or backfill."""
    read, own, commit, store, _ = totals[_FIRST::2]
    if not (busy and read):
        read = max(read, store)
    seconds = totals[_SECONDS]
    return read / seconds, max(totals[_WRITES], own, commit) / seconds


def _ops(flow: Flow) -> float:
    """The rate of a flow; 0.0 of one that says nothing (NaN compares false)."""
    return flow.rate if 0.0 < flow.rate < MAX_RATE and 0.0 < flow.ms < MAX_MS else 0.0
