# SPDX-License-Identifier: LGPL-2.1-or-later
"""Counters of the operations of one stream, and percentiles of their latency."""
from typing import List, Mapping, Sequence, Tuple

from ..types import PERCENTILES, Direction, Quantiles, Second

SUB_BITS = 8
SUB_BUCKETS = 1 << SUB_BITS
#: The last bucket contains all latencies from 2^42 ns (73 minutes) on.
BUCKETS = (42 - SUB_BITS) * SUB_BUCKETS + SUB_BUCKETS
#: Keys of fio, and the percentiles in hundredths of a percent, which are integers.
_HUNDREDTHS = tuple(('%.6f' % percentile, round(100 * percentile)) for percentile in PERCENTILES)


def bucket_of(latency_ns: int) -> int:
    """The bucket of a latency; below 512 ns, each nanosecond has its own bucket."""
    octave = latency_ns.bit_length() - SUB_BITS - 1
    if octave <= 0:
        return latency_ns
    return min(octave * SUB_BUCKETS + (latency_ns >> octave), BUCKETS - 1)


def middle_of(bucket: int) -> int:
    """The latency in ns that represents a bucket; the error is below 0.2 %."""
    octave = bucket // SUB_BUCKETS - 1
    if octave <= 0:
        return bucket
    return ((bucket - octave * SUB_BUCKETS) << octave) + (1 << octave >> 1)


def percentiles(counts: Sequence[int], least: int, most: int) -> Mapping[str, int]:
    """Percentiles in ns by the keys of fio.

    A percentile is the lowest latency that at least this share of the operations does not exceed
    (the method "inverted_cdf" of numpy). `least` and `most` are the exact minimum and maximum.
    """
    total = sum(counts)
    found = {}
    below, bucket = counts[0], 0
    for key, hundredths in _HUNDREDTHS:
        rank = -(-hundredths * total // 10000)
        while below < rank:
            bucket += 1
            below += counts[bucket]
        found[key] = min(max(middle_of(bucket), least), most)
    return found


def quantiles(counts: Sequence[int], least: int, most: int, total_ns: float,
              squares: float) -> Quantiles:
    """`total_ns` and `squares` are the sums of the latencies and of their squares.

    The standard deviation is that of a sample (with n - 1), as in fio.
    """
    number = sum(counts)
    if not number:
        return Quantiles(0, 0, 0.0, 0.0, {key: 0 for key, _ in _HUNDREDTHS})
    # This form is exact for integers.
    variance = (number * squares - total_ns * total_ns) / (number * max(number - 1, 1))
    return Quantiles(least, most, total_ns / number, max(variance, 0.0) ** 0.5,
                     percentiles(counts, least, most))


SECOND_NS = 1_000_000_000


class Tally:
    """Counters of one direction of one stream; times in ns since the start of the measurement."""

    def __init__(self) -> None:
        self.ios = 0
        self.bytes = 0
        #: Latencies.
        self.least = 0
        self.most = 0
        self.total: float = 0
        self.squares: float = 0
        self.counts: Sequence[int] = [0] * BUCKETS
        #: By second: operations, bytes, sum of latencies.
        self.rows: List[List[int]] = []
        self.last_ns = 0

    def add(self, latency_ns: int, end_ns: int, length: int) -> None:
        """Count an operation. Only for the Python engine, whose `counts` is a list."""
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
        """Operations and bytes of a second; the first one is 0."""
        if number >= len(self.rows):
            return 0, 0
        ios, length, _ = self.rows[number]
        return ios, length

    def direction(self, ended_ns: int) -> Direction:
        """`ended_ns`: when the stream sent its last operation.

        The time until then counts even without answers: a cluster that does not answer is slow.
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
