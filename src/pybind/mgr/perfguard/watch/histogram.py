# SPDX-License-Identifier: LGPL-2.1-or-later
"""Percentiles from counts by bucket."""
from typing import List, Optional, Sequence

from ..cluster.types import LatencyCounts


def percentile_ms(bounds: Sequence[int], counts: Sequence[float],
                  share: float) -> Optional[float]:
    """The latency that `share` (0 to 1) of the operations stay under, in ms; None without any.

    `bounds`: upper bounds in ns of all buckets but the last. Within a bucket the operations are
    taken to be spread evenly, so with Ceph's buckets, each twice as wide as the one before, the
    result is off by a factor of two at most.
    """
    total = sum(counts)
    if total <= 0:
        return None
    wanted = share * total
    below = 0.0
    for number, count in enumerate(counts):
        if count and below + count >= wanted:
            lower = bounds[number - 1] if number else 0
            upper = bounds[number] if number < len(bounds) else 2 * lower
            return (lower + (upper - lower) * (wanted - below) / count) / 1e6
        below += count
    raise AssertionError('not reached')


def merged(samples: Sequence[LatencyCounts]) -> Optional[LatencyCounts]:
    """The samples of several OSDs as one; those with other buckets than the first are left out."""
    if not samples:
        return None
    first = samples[0]
    alike = [sample for sample in samples if sample.bounds == first.bounds]

    def total(rows: Sequence[Sequence[int]]) -> List[int]:
        return [sum(column) for column in zip(*rows)]

    return first._replace(read=tuple(total([sample.read for sample in alike])),
                          write=tuple(total([sample.write for sample in alike])))
