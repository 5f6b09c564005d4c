# SPDX-License-Identifier: LGPL-2.1-or-later
"""Client operations by latency, from the histograms of the OSDs. Pure.

An OSD measures from the arrival of an operation to its reply. What a client waits before it sends
an operation again to another OSD is not contained.
"""
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import NamedTuple, Optional, Sequence, Tuple

from ..cluster.types import LatencyCounts
from .series import MEDIAN, TAIL, percentile_ms

#: Latencies above which operations count as slow, and as very slow.
SLOW_MS, VERY_SLOW_MS = 100.0, 1000.0
#: In this time, what was counted before loses half of its weight.
HALF_LIFE_SECONDS = 1800.0


class Tail(NamedTuple):
    """Operations of one kind in all, over SLOW_MS, and over VERY_SLOW_MS.

    These limits are inside buckets, each of which is twice as wide as the one before. There the
    density of operations is assumed to fall with the square of their latency.
    """
    ops: float = 0.0
    slow: float = 0.0
    very_slow: float = 0.0

    def plus(self, other: 'Tail') -> 'Tail':
        return Tail(*(round(one + another, 2) for one, another in zip(self, other)))


class OpLevel(NamedTuple):
    """Operations of one kind, and percentiles of their latency in ms; None without operations."""
    tail: Tail = Tail()
    p50_ms: Optional[float] = None
    p99_ms: Optional[float] = None


class OpLevels(NamedTuple):
    read: OpLevel = OpLevel()
    write: OpLevel = OpLevel()


@dataclass(frozen=True)
class OpCounts:
    """Sums of samples. Empty buckets at the end are left out."""
    #: Upper bounds of the buckets, as LatencyCounts.bounds.
    bounds: Tuple[int, ...] = ()
    read: Tuple[float, ...] = ()
    write: Tuple[float, ...] = ()

    def plus(self, sample: LatencyCounts) -> 'OpCounts':
        """The sums with one more sample. A sample with other buckets does not count."""
        if self.bounds not in ((), sample.bounds):
            return self
        return OpCounts(sample.bounds, _sum(self.read, sample.read), _sum(self.write, sample.write))

    def faded(self, seconds: float) -> 'OpCounts':
        """The counts with the weight that they have `seconds` later."""
        weight = 0.5 ** (seconds / HALF_LIFE_SECONDS)
        return replace(self, read=tuple([weight * count for count in self.read]),
                       write=tuple([weight * count for count in self.write]))

    @property
    def levels(self) -> OpLevels:
        return OpLevels(*(OpLevel(tail_of(self.bounds, counts),
                                  percentile_ms(self.bounds, counts, MEDIAN),
                                  percentile_ms(self.bounds, counts, TAIL))
                          for counts in (self.read, self.write)))


def tail_of(bounds: Sequence[int], counts: Sequence[float]) -> Tail:
    """The operations in buckets with these upper bounds in ns."""
    return Tail(sum(counts), *(_over(bounds, counts, 1e6 * ms) for ms in (SLOW_MS, VERY_SLOW_MS)))


def _over(bounds: Sequence[int], counts: Sequence[float], limit_ns: float) -> float:
    """The number of operations over a limit. `counts`: by bucket, `bounds`: their upper bounds in
    ns. In a bucket from a to b, the density of operations is assumed to fall as 1/x^2. So a share
    of (1/x - 1/b) / (1/a - 1/b) of them is over a limit of x."""
    number = 0.0
    for bucket, count in enumerate(counts):
        lower = bounds[bucket - 1] if bucket else 0
        upper = bounds[bucket] if bucket < len(bounds) else 2 * lower
        if lower >= limit_ns:
            number += count
        elif upper > limit_ns:
            number += count * lower * (upper - limit_ns) / (limit_ns * (upper - lower))
    return number


def _sum(counts: Sequence[float], added: Sequence[float]) -> Tuple[float, ...]:
    """The sums by bucket, without empty buckets at the end."""
    sums = [before + count for before, count in zip_longest(counts, added, fillvalue=0)]
    while sums and not sums[-1]:
        sums.pop()
    return tuple(sums)


# ---- what was usual before a campaign

class QuietOps:
    """The operations while nothing moved and no problem existed, mostly those of the last hour."""

    def __init__(self) -> None:
        self._counts = OpCounts()
        #: Since when it has been quiet; None: it is not.
        self._since: Optional[float] = None
        self._updated = 0.0

    def update(self, now: float, quiet: bool, samples: Sequence[LatencyCounts]) -> None:
        """Add the samples that began after clients were last disturbed. `quiet`: nothing moves and
        no problem exists now; `samples`: operations of OSDs in intervals that may reach back to
        before the last call."""
        self._since = (now if self._since is None else self._since) if quiet else None
        quiet_samples = [sample for sample in samples if self._since is not None
                         and now - sample.age - sample.seconds >= self._since]
        if quiet_samples:
            self._counts = self._counts.faded(now - self._updated)
            self._updated = now
        for sample in quiet_samples:
            self._counts = self._counts.plus(sample)

    @property
    def summed_counts(self) -> Optional[LatencyCounts]:
        """The counts of all OSDs together (OSD -1); None: nothing was counted."""
        counts = self._counts
        return LatencyCounts(-1, 0.0, counts.bounds, tuple(map(round, counts.read)), tuple(
            map(round, counts.write))) if counts.bounds else None
