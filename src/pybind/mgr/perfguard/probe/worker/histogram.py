# SPDX-License-Identifier: LGPL-2.1-or-later
"""Latencies counted in log-linear buckets: 256 an octave, so 0.4 % wide at most."""
from typing import Mapping, Sequence

from ..types import PERCENTILES, Quantiles

SUB_BITS = 8
SUB_BUCKETS = 1 << SUB_BITS
#: Latencies from 2^42 ns (73 minutes) on are counted in the last bucket.
BUCKETS = (42 - SUB_BITS) * SUB_BUCKETS + SUB_BUCKETS
#: fio's keys with the percentiles in hundredths of a per cent, in which all are whole numbers.
_HUNDREDTHS = tuple(('%.6f' % percentile, round(100 * percentile)) for percentile in PERCENTILES)


def bucket_of(latency_ns: int) -> int:
    """The bucket of a latency; below 512 ns each nanosecond has one of its own."""
    octave = latency_ns.bit_length() - SUB_BITS - 1
    if octave <= 0:
        return latency_ns
    return min(octave * SUB_BUCKETS + (latency_ns >> octave), BUCKETS - 1)


def middle_of(bucket: int) -> int:
    """The latency in ns that stands for a bucket: off by less than 0.2 %."""
    octave = bucket // SUB_BUCKETS - 1
    if octave <= 0:
        return bucket
    return ((bucket - octave * SUB_BUCKETS) << octave) + (1 << octave >> 1)


def percentiles(counts: Sequence[int], least: int, most: int) -> Mapping[str, int]:
    """fio's keys -> ns: the smallest latency that at least so many per cent do not exceed.

    This is numpy's method "inverted_cdf". `least` and `most` are the exact ends.
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

    Standard deviation as fio has it: of a sample, with n - 1.
    """
    number = sum(counts)
    if not number:
        return Quantiles(0, 0, 0.0, 0.0, {key: 0 for key, _ in _HUNDREDTHS})
    # In this form it is exact for whole numbers.
    variance = (number * squares - total_ns * total_ns) / (number * max(number - 1, 1))
    return Quantiles(least, most, total_ns / number, max(variance, 0.0) ** 0.5,
                     percentiles(counts, least, most))
