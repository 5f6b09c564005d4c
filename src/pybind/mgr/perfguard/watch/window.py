# SPDX-License-Identifier: LGPL-2.1-or-later
"""What one OSD did in the last minute, in a ring whose size does not depend on the period."""
import math
from typing import List, NamedTuple, Optional, Tuple

from .types import Flow, OsdSample

#: The kinds of operation that accuse an OSD. Client writes as a whole are not among them: a slow
#: replica inflates them on all the primaries that write to it. In their place is what a write
#: costs in this OSD: queue and preparation, and a commit.
CHANNELS = ('reads', 'writes', 'store commits', 'store reads')
STORE_READS = 3
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


class Reading(NamedTuple):
    """One kind of operation in a window."""
    #: Logarithm of the median of means, in milliseconds.
    log_ms: float
    #: The same of its end.
    recent_log_ms: float
    ops: float


class Window:
    """The last `seconds` of one OSD."""

    def __init__(self) -> None:
        self._slots: List[List[float]] = []

    def add(self, now: float, sample: OsdSample, seconds: float) -> None:
        """Take a sample in; nonsense counts as no operations."""
        if not 0.0 < sample.seconds <= MAX_SECONDS:
            return
        slots = self._slots
        # A little less than a slot's length, since intervals vary.
        if not slots or slots[-1][_SECONDS] > 0.9 * seconds / SLOTS:
            slots.append([now] + [0.0] * (_FIRST - 1 + 2 * len(CHANNELS)))
        slot = slots[-1]
        slot[_END] = now
        slot[_SECONDS] += sample.seconds
        slot[_WRITES] += _ops(sample.write) * sample.seconds
        own = sample.own_write
        if _ops(own) and _ops(sample.commit):
            # Alone it would be a small number that any queue multiplies.
            own = Flow(own.rate, own.ms + sample.commit.ms)
        column = _FIRST
        for flow in (sample.read, own, sample.commit, sample.store_read):
            ops = _ops(flow) * sample.seconds
            if ops:
                slot[column] += ops
                slot[column + 1] += ops * flow.ms
            column += 2

    def expire(self, now: float, seconds: float) -> bool:
        """Drop what is older than `seconds`, or than six slots where those are longer, and what
        the clock has not reached; False: nothing recent is left."""
        slots = self._slots
        if not slots:
            return False
        beat = slots[-1][_SECONDS]
        oldest = now - max(seconds, 6 * beat) - 0.5
        if slots[0][_END] < oldest or slots[-1][_END] > now or len(slots) > SLOTS:
            slots[:] = [slot for slot in slots if oldest <= slot[_END] <= now][-SLOTS:]
        return bool(slots) and slots[-1][_END] >= now - max(seconds / 4, 2 * beat)

    def totals(self) -> List[float]:
        """The columns' sums, which rates() and reading() are made of."""
        return [sum(column) for column in zip(*self._slots)]

    def reading(self, channel: int, totals: List[float]) -> Optional[Reading]:
        """The median of means of a kind of operation; None without evidence."""
        column = _FIRST + 2 * channel
        if totals[column] < MIN_BLOCKS * BLOCK_OPS:
            return None
        means = [slot[column + 1] / slot[column] for slot in self._slots
                 if slot[column] >= BLOCK_OPS]
        if len(means) < len(self._slots):
            means = self._merged(column)
        count = len(means)
        if count < MIN_BLOCKS:
            return None
        recent = sorted(means[-RECENT:])[RECENT // 2]
        means.sort()
        middle = means[count // 2]
        if count % 2 == 0:
            middle = 0.5 * (middle + means[count // 2 - 1])
        return Reading(math.log(middle), math.log(recent), totals[column])

    def _merged(self, column: int) -> List[float]:
        """Means of as many operations as one needs."""
        means: List[float] = []
        ops = spent = 0.0
        for slot in self._slots:
            ops += slot[column]
            spent += slot[column + 1]
            if ops >= BLOCK_OPS:
                means.append(spent / ops)
                ops = spent = 0.0
        return means


def rates(totals: List[float], busy: bool) -> Tuple[float, float]:
    """Reads and writes per second, as clients or as the store count them: the greater, but the
    clients' reads where the store has others, of a deep scrub or backfill."""
    read, own, commit, store = totals[_FIRST::2]
    if not (busy and read):
        read = max(read, store)
    seconds = totals[_SECONDS]
    return read / seconds, max(totals[_WRITES], own, commit) / seconds


def _ops(flow: Flow) -> float:
    """The rate of a flow; 0.0 of one that says nothing (NaN compares false)."""
    return flow.rate if 0.0 < flow.rate < MAX_RATE and 0.0 < flow.ms < MAX_MS else 0.0
