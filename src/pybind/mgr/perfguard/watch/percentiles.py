# SPDX-License-Identifier: LGPL-2.1-or-later
"""Percentiles of latency, from samples of a few OSDs at a time."""
from typing import AbstractSet, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..cluster.types import ClientOps, LatencyCounts


def percentile_ms(bounds: Sequence[int], counts: Sequence[float],
                  share: float) -> Optional[float]:
    """The latency in ms below which `share` (0 to 1) of the operations are; None without any.

    `bounds`: upper bounds in ns of all buckets except the last. Operations are assumed to be spread
    evenly within a bucket. Each of Ceph's buckets is twice as wide as the previous one, so the
    result is wrong by at most a factor of two.
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
    """The sum of samples of several OSDs; samples with other buckets than the first are skipped."""
    if not samples:
        return None
    first = samples[0]
    alike = [sample for sample in samples if sample.bounds == first.bounds]

    def total(rows: Sequence[Sequence[int]]) -> List[int]:
        return [sum(column) for column in zip(*rows)]

    return first._replace(read=tuple(total([sample.read for sample in alike])),
                          write=tuple(total([sample.write for sample in alike])))


#: Maximum age of a sample.
RECENT_SECONDS = 120.0
MEDIAN, TAIL = 0.5, 0.99

#: Pool -> its share (0 to 1) of the reads and of the writes of one OSD.
Shares = Mapping[int, Tuple[float, float]]


class P99(NamedTuple):
    """p99 in ms; None without operations."""
    read_ms: Optional[float] = None
    write_ms: Optional[float] = None


_NO_P99 = P99()


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


class LatencyPercentiles:
    def __init__(self) -> None:
        self._samples: Dict[int, _Sample] = {}
        #: OSD that is being sampled -> pool -> reads and writes since the sample began.
        self._ops: Dict[int, Dict[int, List[float]]] = {}

    def update(self, now: float, samples: Sequence[LatencyCounts], osds: Sequence[int],
               clients: Sequence[ClientOps] = (), sampling: AbstractSet[int] = frozenset()) -> None:
        """`samples`: completed samples; `sampling`: OSDs whose sample is in progress."""
        for osd in sampling - self._ops.keys():
            self._ops[osd] = {}
        for row in clients:
            pools = self._ops.get(row.osd)
            if pools is not None and row.read.sane and row.write.sane:
                sums = pools.setdefault(row.pool, [0.0, 0.0])
                sums[0] += row.read.number
                sums[1] += row.write.number
        for sample in samples:
            self._samples[sample.osd] = _Sample(now, sample,
                                                _shares(self._ops.get(sample.osd, {})))
        for osd in set(self._ops) - sampling:
            del self._ops[osd]
        for osd in set(self._samples) - set(osds):
            del self._samples[osd]

    def of_osd(self, osd: int) -> P99:
        """From the last sample of the OSD."""
        found = self._samples.get(osd)
        return _p99(found.counts) if found else _NO_P99

    def of_cluster(self, now: float) -> P99:
        """From the recent samples of all OSDs."""
        levels = self.levels_of_cluster(now)
        return P99(levels.read_p99_ms, levels.write_p99_ms)

    def levels_of_cluster(self, now: float) -> Levels:
        both = merged([sample.counts for sample in self._recent(now)])
        return _levels(both.bounds, both.read, both.write) if both else Levels()

    def levels_of_pool(self, now: float, pool: int) -> Levels:
        """An estimate, because OSDs do not measure latency by pool.

        The sample of each OSD is weighted with the share of the pool in its operations. This is
        exact for pools that have their own OSDs, or that are active at other times. Pools that use
        the same OSDs at the same time are assumed to be equally fast there.
        """
        bounds: Tuple[int, ...] = ()
        reads: List[float] = []
        writes: List[float] = []
        for sample in self._recent(now):
            read_share, write_share = sample.shares.get(pool, (0.0, 0.0))
            if not read_share + write_share:
                continue
            if not bounds:
                bounds = sample.counts.bounds
                reads, writes = [0.0] * len(sample.counts.read), [0.0] * len(sample.counts.write)
            if sample.counts.bounds == bounds:
                _add(reads, sample.counts.read, read_share)
                _add(writes, sample.counts.write, write_share)
        return _levels(bounds, reads, writes)

    def _recent(self, now: float) -> List[_Sample]:
        return [sample for sample in self._samples.values()
                if 0.0 <= now - sample.at <= RECENT_SECONDS]


def _shares(ops: Mapping[int, Sequence[float]]) -> Shares:
    """`ops`: pool -> reads and writes."""
    reads, writes = (sum(sums[kind] for sums in ops.values()) for kind in (0, 1))
    return {pool: (sums[0] / reads if reads else 0.0, sums[1] / writes if writes else 0.0)
            for pool, sums in ops.items()}


def _add(sums: List[float], counts: Sequence[int], share: float) -> None:
    for bucket, count in enumerate(counts):
        sums[bucket] += share * count


def _levels(bounds: Sequence[int], read: Sequence[float], write: Sequence[float]) -> Levels:
    return Levels(*(percentile_ms(bounds, counts, share)
                    for counts in (read, write) for share in (MEDIAN, TAIL)))


def _p99(counts: LatencyCounts) -> P99:
    return P99(percentile_ms(counts.bounds, counts.read, TAIL),
               percentile_ms(counts.bounds, counts.write, TAIL))
