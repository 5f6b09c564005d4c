# SPDX-License-Identifier: LGPL-2.1-or-later
"""What was counted of the operations of one stream."""
from typing import List, Sequence, Tuple

from ..types import Direction, Second
from .histogram import BUCKETS, bucket_of, quantiles

SECOND_NS = 1_000_000_000


class Tally:
    """One direction of one stream; times in ns, the begin of the measured time is 0."""

    def __init__(self) -> None:
        self.ios = 0
        self.bytes = 0
        #: Latencies.
        self.least = 0
        self.most = 0
        self.total: float = 0
        self.squares: float = 0
        self.counts: Sequence[int] = [0] * BUCKETS
        #: Of each second: operations, bytes, sum of latencies.
        self.rows: List[List[int]] = []
        self.last_ns = 0

    def add(self, latency_ns: int, end_ns: int, length: int) -> None:
        """Only where `counts` is a list of this object's own, that is in the Python engine."""
        self.least = min(self.least, latency_ns) if self.ios else latency_ns
        self.most = max(self.most, latency_ns)
        self.ios += 1
        self.bytes += length
        self.total += latency_ns
        self.squares += latency_ns * latency_ns
        self.counts[bucket_of(latency_ns)] += 1  # type: ignore[index]
        self.last_ns = max(self.last_ns, end_ns)
        row = self._row(end_ns // SECOND_NS)
        row[0] += 1
        row[1] += length
        row[2] += latency_ns

    def second(self, number: int) -> Tuple[int, int]:
        """Operations and bytes of a second, from 0."""
        if number >= len(self.rows):
            return 0, 0
        ios, length, _ = self.rows[number]
        return ios, length

    def direction(self, ended_ns: int) -> Direction:
        """`ended_ns`: when the stream sent its last operation.

        The time until then counts in any case: a cluster that does not answer is not fast.
        """
        runtime_ns = max(ended_ns, self.last_ns, 0)
        latency = quantiles(self.counts, self.least, self.most, self.total,
                            self.squares) if self.ios else None
        return Direction(self.ios, self.bytes, runtime_ns, latency, self._seconds(runtime_ns))

    def _seconds(self, runtime_ns: int) -> Tuple[Second, ...]:
        number = -(-runtime_ns // SECOND_NS)
        rows = [*self.rows, *[[0, 0, 0]] * number][:number]
        return tuple(Second(min(n * SECOND_NS, runtime_ns) / SECOND_NS, *row)
                     for n, row in enumerate(rows, 1))

    def _row(self, number: int) -> List[int]:
        while len(self.rows) <= number:
            self.rows.append([0, 0, 0])
        return self.rows[number]
