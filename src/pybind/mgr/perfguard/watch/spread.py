# SPDX-License-Identifier: LGPL-2.1-or-later
"""How much latency varies by chance, and from OSD to OSD, while nothing is wrong."""
from statistics import median
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from ..cluster.types import ClientOps

#: What an older reading counts, against one reading later: about the last 50 readings.
MEMORY = 0.98
#: Pairs of readings from which on the spread is known.
LEAST_PAIRS = 10.0
#: Operations of one reading that say anything, and reads of one OSD that make its norm.
LEAST_OPS = 20
LEAST_READS = 500.0


#: A difference counts at most so many times the mean of the squares.
OUTLIER = 9.0


def weighted_median(values: Iterable[Tuple[float, float]]) -> float:
    """Of (value, weight above 0): the least value up to which half of all weight lies."""
    ordered = sorted(values)
    total, below = sum(weight for _, weight in ordered), 0.0
    for value, weight in ordered:
        below += weight
        if below >= total / 2:
            return value
    raise ValueError('no values')


class Spread:
    """Standard deviation of the latency of one operation over its mean.

    Only sums and counts are known. The means m and m' of two readings in a row, of n and n'
    operations, differ by chance with the variance s^2 (1/n + 1/n'), which gives s (von Neumann et
    al., 1941: successive differences leave out what changes slowly, such as the load).
    """

    def __init__(self) -> None:
        self._pairs = 0.0
        self._sum = 0.0
        self._last: Optional[List[float]] = None

    def add(self, ops: float, total_ns: float) -> None:
        """One reading while it is quiet."""
        if ops < LEAST_OPS or total_ns <= 0.0:
            self._last = None
            return
        mean = total_ns / ops
        if self._last is not None:
            before, number = self._last
            middle = (mean * ops + before * number) / (ops + number)
            square = (mean - before) ** 2 / (1.0 / ops + 1.0 / number) / middle ** 2
            if self._pairs >= LEAST_PAIRS:
                square = min(square, OUTLIER * self._sum / self._pairs)
            self._pairs = MEMORY * self._pairs + 1.0
            self._sum = MEMORY * self._sum + square
        self._last = [mean, ops]

    def skip(self) -> None:
        """A reading that is not quiet lies between."""
        self._last = None

    @property
    def value(self) -> Optional[float]:
        return (self._sum / self._pairs) ** 0.5 if self._pairs >= LEAST_PAIRS else None


class OsdNorms:
    """OSD -> latency of its reads against those of the median OSD, while nothing moves."""

    def __init__(self) -> None:
        self._sums: Dict[int, List[float]] = {}

    def update(self, rows: Sequence[ClientOps], baselines: Mapping[int, float]) -> None:
        """One reading while it is quiet; `baselines`: of reads in ms, by pool."""
        read: Dict[int, List[float]] = {}
        for row in rows:
            usual_ms = baselines.get(row.pool)
            if usual_ms and row.read.number and row.read.sane:
                sums = read.setdefault(row.osd, [0.0, 0.0, 0.0])
                sums[0] += row.read.sum_ns
                sums[1] += row.read.number * 1e6 * usual_ms
                sums[2] += row.read.number
        if not read:
            return
        # The load of the hour is not a property of the OSDs.
        common = median(actual / usual for actual, usual, _ in read.values()) or 1.0
        for osd, (actual, usual, number) in read.items():
            sums = self._sums.setdefault(osd, [0.0, 0.0, 0.0])
            sums[0] += actual
            sums[1] += usual * common
            sums[2] += number
        for sums in self._sums.values():
            sums[:] = [MEMORY * each for each in sums]

    def forget_others(self, osds: Mapping[int, object]) -> None:
        for osd in [osd for osd in self._sums if osd not in osds]:
            del self._sums[osd]

    def norms(self) -> Dict[int, float]:
        """Of OSDs with reads enough."""
        return {osd: actual / usual for osd, (actual, usual, reads) in self._sums.items()
                if reads >= LEAST_READS and actual > 0.0}
