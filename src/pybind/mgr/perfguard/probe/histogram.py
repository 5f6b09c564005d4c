# SPDX-License-Identifier: LGPL-2.1-or-later
"""Latencies, counted in buckets, and their percentiles. core.c has the same buckets."""
from typing import Mapping, Sequence

from .types import PERCENTILES, Quantiles

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


def percentiles(counts: Sequence[int], lowest: int, highest: int) -> Mapping[str, int]:
    """Percentiles in ns by the keys of fio. `counts`: operations by bucket, at least one.

    A percentile is the lowest latency that at least this share of the operations does not exceed
    (the method "inverted_cdf" of numpy). `lowest` and `highest` are the exact minimum and maximum.
    """
    total = sum(counts)
    by_key = {}
    up_to_bucket, bucket = counts[0], 0
    for key, hundredths in _HUNDREDTHS:
        rank = -(-hundredths * total // 10000)
        while up_to_bucket < rank:
            bucket += 1
            up_to_bucket += counts[bucket]
        by_key[key] = min(max(middle_of(bucket), lowest), highest)
    return by_key


def quantiles(counts: Sequence[int], lowest: int, highest: int, total_ns: float,
              squares: float) -> Quantiles:
    """The figures of a histogram of latencies, in ns; zeros without operations. `total_ns` and
    `squares` are the sums of the latencies and of their squares.

    The standard deviation is that of a sample (with n - 1), as in fio.
    """
    number = sum(counts)
    if not number:
        return Quantiles(0, 0, 0.0, 0.0, {key: 0 for key, _ in _HUNDREDTHS})
    # This form is exact for integers.
    variance = (number * squares - total_ns * total_ns) / (number * max(number - 1, 1))
    return Quantiles(lowest, highest, total_ns / number, max(variance, 0.0) ** 0.5,
                     percentiles(counts, lowest, highest))
