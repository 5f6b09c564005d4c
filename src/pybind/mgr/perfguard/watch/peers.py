# SPDX-License-Identifier: LGPL-2.1-or-later
"""The latency to expect of an OSD at its load, given the latencies of its peers.

All latencies and loads are logarithms, because slowness is a factor. All averages are medians, so
that slow OSDs among the peers do not shift the expectation.
"""
import math
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .osd_window import WindowLatency
from .types import OsdPlace

#: Minimum number of peers with evidence for a comparison.
MIN_PEERS = 3
#: Minimum number of OSDs of a drive model to form a group; others are grouped by device class.
MODEL_MEMBERS = 5
#: Minimum number of members for a regression of latency on load.
SLOPE_MEMBERS = 9
#: Maximum number of members for which the OSD itself is excluded from the median.
FEW_MEMBERS = 30
#: Minimum difference of load between the lower and the upper third for a slope.
SLOPE_SPREAD = math.log(1.15)
#: Maximum slope, that of a queue at a utilisation of 0.9.
MAX_SLOPE = 9.0
#: Utilisation above which any latency is possible.
SATURATION = 0.95
#: The capacity of the OSDs of a group differs: a healthy OSD may be closer to saturation than its
#: load suggests by this factor.
CAPACITY = 1.2
#: Slope that is assumed above the loads of the peers, for which there are no measurements.
BEYOND_SLOPE = 2.0
#: Minimum standard deviation of healthy OSDs, whose PGs differ in their operations.
MIN_SPREAD = 0.08
#: Variance of the latency of an operation relative to the square of the mean. An exponential
#: distribution has 1, disks and compactions more.
OP_VARIANCE = 2.0
#: The median absolute deviation of a normal distribution in standard deviations.
MAD_SIGMA = 1.4826

#: Logarithms of the load: reads + writes, reads + 4 writes, 4 reads + writes. The cost of a write
#: relative to a read is unknown, but within these bounds.
Loads = Tuple[float, float, float]
#: Root, device class, model ('*': all models).
GroupKey = Tuple[str, str, str]


class LoadPoint(NamedTuple):
    """One OSD in one kind of operation."""
    osd: int
    reading: WindowLatency
    loads: Loads


class PeerComparison(NamedTuple):
    """Comparison of one OSD with its peers."""
    ms: float
    #: The same at the end of the window.
    recent_ms: float
    #: Latency of the peers at the load of this OSD, and its standard deviation.
    expected_ms: float
    spread_ms: float
    #: Logarithm of ms / expected_ms in standard deviations.
    deviations: float
    #: Standard deviation of the logarithm of ms, for the number of operations.
    op_sigma: float
    #: Load of this OSD / median load of the peers.
    load_ratio: float
    peers: int

    @property
    def score(self) -> float:
        return self.ms / self.expected_ms


class Peers:
    """Latency of a group of OSDs as a function of load."""

    def __init__(self, points: Sequence[LoadPoint]) -> None:
        self._points = points
        self.count = len(points)
        loads = [sorted(point.loads[i] for point in points) for i in range(3)]
        self._middle = median(loads[0])
        # The 90th percentile, so that a hot OSD in a large group does not raise it.
        last = self.count - 1 - self.count // 10
        self._top = [column[last] for column in loads]
        self.slope = self._slope()
        #: Utilisation at the median load. The latency of an M/M/1 queue, 1 / (1 - utilisation),
        #: has the slope utilisation / (1 - utilisation) there.
        self.utilisation = self.slope / (1.0 + self.slope)
        residuals = sorted(point.reading.log_ms - self._growth(point.loads[0] - self._middle)
                           for point in points)
        self._center = median(residuals)
        self.spread = MAD_SIGMA * median(sorted(abs(each - self._center) for each in residuals))

    def _slope(self) -> float:
        """Slope of latency on load between the medians of the lower and upper third by load."""
        third = self.count // 3
        if self.count < SLOPE_MEMBERS:
            return 0.0
        ordered = sorted((point.loads[0], point.reading.log_ms) for point in self._points)
        low, high = ordered[:third], ordered[-third:]
        run = high[third // 2][0] - low[third // 2][0]
        if run < SLOPE_SPREAD:
            return 0.0
        rise = median(sorted(y for _, y in high)) - median(sorted(y for _, y in low))
        return min(max(rise / run, 0.0), MAX_SLOPE)

    def _growth(self, load: float) -> float:
        return growth(self.utilisation, load)

    def expected(self, loads: Loads) -> float:
        """Logarithm of the expected latency in ms; a low load does not reduce it."""
        within = max(0.0, min(loads[0], self._top[0]) - self._middle)
        top = self._top
        beyond = max(0.0, loads[0] - top[0], loads[1] - top[1], loads[2] - top[2])
        return self._center + max(self._growth(within + beyond),
                                  self._growth(within) + BEYOND_SLOPE * beyond)

    def compare(self, point: LoadPoint, others: int) -> PeerComparison:
        """Compare a point with this group, which has `others` other members."""
        expected = self.expected(point.loads)
        # The deviation of few peers is uncertain, as is the mean of few operations.
        spread = max(MIN_SPREAD, self.spread) * (1.0 + 2.0 / self.count)
        op_sigma = math.sqrt(OP_VARIANCE / point.reading.ops)
        expected_ms = math.exp(expected)
        reading = point.reading
        return PeerComparison(reading.ms, reading.recent_ms, expected_ms,
                              expected_ms * math.expm1(self.spread),
                              (reading.log_ms - expected) / max(spread, op_sigma), op_sigma,
                              math.exp(point.loads[0] - self._middle), others)

    def without(self, osd: int) -> 'Peers':
        return Peers([point for point in self._points if point.osd != osd])


def compare(point: LoadPoint, peers: Peers, member: bool) -> Optional[PeerComparison]:
    """Compare a point with its peers; None: too few. `member`: it is one of `peers`."""
    others = peers.count - member
    if others < MIN_PEERS:
        return None
    found = peers.compare(point, others)
    if member and peers.count <= FEW_MEMBERS and found.score > 1.15:
        # Excluding it costs time, so only if it may be slow.
        found = peers.without(point.osd).compare(point, others)
    return found


def growth(utilisation: float, load: float) -> float:
    """Logarithm of the latency of a queue, given the logarithm of its load, both relative to
    the values at `utilisation`."""
    if not utilisation:
        return 0.0
    grown = min(utilisation * math.exp(min(load, 10.0)), SATURATION)
    return math.log((1.0 - utilisation) / (1.0 - grown))


def queue_allowance(utilisation: float, load_ratio: float, factor: float) -> float:
    """How much slower an OSD may be at `factor` times its load; infinite if it may be saturated.
    Its load is `load_ratio` times the load at which its peers have `utilisation`."""
    if utilisation * load_ratio * factor * CAPACITY >= SATURATION:
        return math.inf
    load = math.log(load_ratio)
    return math.exp(growth(utilisation, load + math.log(factor)) - growth(utilisation, load))


def loads_of(reads: float, writes: float) -> Loads:
    """From operations per second, at least 0.001."""
    return (math.log(max(reads + writes, 1e-3)), math.log(max(reads + 4.0 * writes, 1e-3)),
            math.log(max(4.0 * reads + writes, 1e-3)))


def groups_of(places: Mapping[int, OsdPlace]) -> Tuple[Dict[int, GroupKey], Dict[int, bool]]:
    """The group of each OSD, and whether its model is a minority in that group."""
    models: Dict[GroupKey, int] = {}
    classes: Dict[Tuple[str, str], int] = {}
    for place in places.values():
        model = (place.root, place.device_class, place.model)
        models[model] = models.get(model, 0) + 1
        classes[model[:2]] = classes.get(model[:2], 0) + 1
    groups: Dict[int, GroupKey] = {}
    minorities: Dict[int, bool] = {}
    for osd, place in places.items():
        model = (place.root, place.device_class, place.model)
        own = models[model] >= MODEL_MEMBERS
        groups[osd] = model if own else (place.root, place.device_class, '*')
        minorities[osd] = not own and 2 * models[model] <= classes[model[:2]]
    return groups, minorities


def median(ordered: List[float]) -> float:
    """Median of a sorted list that is not empty."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else 0.5 * (ordered[half - 1] + ordered[half])


def weighted_median(values: Iterable[Tuple[float, float]]) -> float:
    """Median of (value, weight) pairs with weights above 0; ValueError without any."""
    ordered = sorted(values)
    total, below = sum(weight for _, weight in ordered), 0.0
    for value, weight in ordered:
        below += weight
        if below >= total / 2:
            return value
    raise ValueError('no values')
