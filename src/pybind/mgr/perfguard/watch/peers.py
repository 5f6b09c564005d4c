# SPDX-License-Identifier: LGPL-2.1-or-later
"""What latency to expect of an OSD, judged by its peers at their load.

Everything is in logarithms: slowness is a factor. Medians throughout, so that the slow ones among
the peers do not move what is expected.
"""
import math
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .osd_window import WindowLatency
from .types import OsdPlace

#: Others with evidence that an OSD needs to be judged.
MIN_PEERS = 3
#: Members with which a model is a group of its own, else it is judged among its device class.
MODEL_MEMBERS = 5
#: From this many members on, latency is regressed on load; a third of fewer is no crowd.
SLOPE_MEMBERS = 9
#: Up to this many, one vote counts in a median.
FEW_MEMBERS = 30
#: Spread of the loads between the lower and the upper third that a slope can be seen in.
SLOPE_SPREAD = math.log(1.15)
#: Greatest slope that is believed; a queue has it at a utilisation of nine tenths.
MAX_SLOPE = 9.0
#: Beyond this utilisation any latency is possible.
SATURATION = 0.95
#: No two OSDs of a group can do the same: by so much a healthy one may be nearer to saturation
#: than its load tells. Near to it this is all the difference.
CAPACITY = 1.2
#: Beyond the peers' loads nothing is known, and the latency may grow with at least the square.
BEYOND_SLOPE = 2.0
#: Least spread of healthy OSDs (PGs differ in what is asked of them), as a standard deviation.
MIN_SPREAD = 0.08
#: Variance of an operation's latency, relative to the mean's square, in a window's mean: an
#: exponential has 1, disks and compactions more.
OP_VARIANCE = 2.0
#: The median absolute deviation of a normal distribution in standard deviations.
MAD_SIGMA = 1.4826

#: Logarithms of the load: reads + writes, reads + 4 writes, 4 reads + writes. What a write costs
#: against a read is not known, but within these bounds.
Loads = Tuple[float, float, float]
#: Root, device class, model ('*': all models).
GroupKey = Tuple[str, str, str]


class LoadPoint(NamedTuple):
    """One OSD in one kind of operation."""
    osd: int
    reading: WindowLatency
    loads: Loads


class PeerComparison(NamedTuple):
    """An OSD against its peers."""
    ms: float
    #: That of the window's end.
    recent_ms: float
    #: What the peers would have at this OSD's load, and its standard deviation.
    expected_ms: float
    spread_ms: float
    #: Logarithm of ms / expected_ms in standard deviations.
    deviations: float
    #: Standard deviation of the logarithm of ms, for the number of operations.
    op_sigma: float
    #: This OSD's load / the peers' median.
    load_ratio: float
    peers: int

    @property
    def score(self) -> float:
        return self.ms / self.expected_ms


class Peers:
    """The common behaviour of a group."""

    def __init__(self, points: Sequence[LoadPoint]) -> None:
        self._points = points
        self.count = len(points)
        loads = [sorted(point.loads[i] for point in points) for i in range(3)]
        self._middle = median(loads[0])
        # The largest but a tenth, so that a hot OSD in a large group does not vouch for itself.
        last = self.count - 1 - self.count // 10
        self._top = [column[last] for column in loads]
        self.slope = self._slope()
        #: Utilisation at the median load: M/M/1's latency, 1 / (1 - utilisation), there has the
        #: slope utilisation / (1 - utilisation).
        self.utilisation = self.slope / (1.0 + self.slope)
        residuals = sorted(point.reading.log_ms - self._growth(point.loads[0] - self._middle)
                           for point in points)
        self._center = median(residuals)
        self.spread = MAD_SIGMA * median(sorted(abs(each - self._center) for each in residuals))

    def _slope(self) -> float:
        """Of latency on load, between the medians of the lower and the upper third by load."""
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
        """Logarithm of the milliseconds; a low load does not lower it."""
        within = max(0.0, min(loads[0], self._top[0]) - self._middle)
        top = self._top
        beyond = max(0.0, loads[0] - top[0], loads[1] - top[1], loads[2] - top[2])
        return self._center + max(self._growth(within + beyond),
                                  self._growth(within) + BEYOND_SLOPE * beyond)

    def compare(self, point: LoadPoint, others: int) -> PeerComparison:
        """A point against this group, in which it has `others` beside it."""
        expected = self.expected(point.loads)
        # Of few peers the median deviation is a guess; of few operations so is the mean.
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
    """A point against its peers; `member`: it is one of those given. None: too few of them."""
    others = peers.count - member
    if others < MIN_PEERS:
        return None
    found = peers.compare(point, others)
    if member and peers.count <= FEW_MEMBERS and found.score > 1.15:
        # Only where it matters, since it costs: without its own vote.
        found = peers.without(point.osd).compare(point, others)
    return found


def growth(utilisation: float, load: float) -> float:
    """Logarithm of a queue's latency by that of its load, both relative to those at a
    utilisation."""
    if not utilisation:
        return 0.0
    grown = min(utilisation * math.exp(min(load, 10.0)), SATURATION)
    return math.log((1.0 - utilisation) / (1.0 - grown))


def queue_allowance(utilisation: float, load_ratio: float, factor: float) -> float:
    """How much slower an OSD may be with `factor` times its load; where it may be saturated no
    latency is too much. It has `load_ratio` times the load that makes its peers' utilisation."""
    if utilisation * load_ratio * factor * CAPACITY >= SATURATION:
        return math.inf
    load = math.log(load_ratio)
    return math.exp(growth(utilisation, load + math.log(factor)) - growth(utilisation, load))


def loads_of(reads: float, writes: float) -> Loads:
    """Of operations per second; idle counts as one in a thousand seconds."""
    return (math.log(max(reads + writes, 1e-3)), math.log(max(reads + 4.0 * writes, 1e-3)),
            math.log(max(4.0 * reads + writes, 1e-3)))


def groups_of(places: Mapping[int, OsdPlace]) -> Tuple[Dict[int, GroupKey], Dict[int, bool]]:
    """The group of each OSD, and whether it is a stranger there: of a model that most of its
    group are not."""
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
    """Of a sorted list that is not empty."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else 0.5 * (ordered[half - 1] + ordered[half])


def weighted_median(values: Iterable[Tuple[float, float]]) -> float:
    """Of (value, weight above 0): the least value up to which half of all weight lies."""
    ordered = sorted(values)
    total, below = sum(weight for _, weight in ordered), 0.0
    for value, weight in ordered:
        below += weight
        if below >= total / 2:
            return value
    raise ValueError('no values')
