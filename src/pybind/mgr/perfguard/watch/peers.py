# SPDX-License-Identifier: LGPL-2.1-or-later
"""Compares each OSD with its peers at this moment: the latency to expect at its load, given the
latencies of its peers, and the findings. slow_osds.py and chronic.py decide how long a finding
must last.

All latencies and loads are logarithms, because slowness is a factor. All averages are medians, so
that slow OSDs among the peers do not shift the expectation.
"""
import math
from collections import Counter
from typing import (AbstractSet, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional,
                    Sequence, Tuple)

from ..cluster.types import OsdPlace
from .osd_window import (CHANNELS, COMMITS, READS, REPLICATED, STORE_READS, WRITES, OsdWindow,
                         WindowLatency, rates)
from .rounds import Work, chunks, latest
from .slowness import OP_SPREAD
from .types import DELETION

#: Minimum number of peers with evidence for a comparison with most of them. In a group with fewer,
#: an OSD is compared with the fastest of them and with its own history, or, until that is known,
#: with the slowest of them.
MIN_PEERS = 3
#: Minimum number of OSDs of a drive model to form a group; others are grouped by device class and
#: store.
MODEL_MEMBERS = 5
#: Minimum number of members for a regression of latency on load.
SLOPE_MEMBERS = 9
#: Maximum number of members for which the OSD itself is excluded from the median.
FEW_MEMBERS = 30
#: Share of the members whose latency is taken for that of healthy ones if most of them are far
#: slower, and the logarithm of the slowdown from which they are. Otherwise, which OSDs stand out
#: would depend on the order in which most of them became slow.
FAST_PART = 1 / 4
APART_LOG = math.log(3.0)
#: Loads within this factor are the same.
SAME_LOAD = 1.2
#: Logarithm of the slowdown from which an OSD is far slower than most: load seldom explains it.
FAR_LOG = math.log(5.0)
#: Minimum difference of load between the lower and the upper third for a slope.
SLOPE_SPREAD = math.log(1.15)
#: Maximum slope, that of a queue at a utilisation of 0.9.
MAX_SLOPE = 9.0
#: Halvings of an interval of utilisations: to a millionth of it.
FITTING_STEPS = 20
#: Utilisation above which any latency is possible.
SATURATION = 0.95
#: Utilisation that is assumed of small groups, whose queues are unknown.
SMALL_UTILISATION = 0.5
#: The capacity of the OSDs of a group differs: a healthy OSD may be closer to saturation than its
#: load suggests by this factor.
CAPACITY = 1.2
#: Slope that is assumed above the loads of the peers, for which there are no measurements.
BEYOND_SLOPE = 2.0
#: Minimum standard deviation of healthy OSDs, whose PGs differ in their operations.
MIN_SPREAD = 0.08
MIN_VARIANCE = MIN_SPREAD ** 2
#: The median absolute deviation of a normal distribution in standard deviations.
MAD_SIGMA = 1.4826

#: Logarithms of the load: reads + writes, reads + 4 writes, 4 reads + writes. The cost of a write
#: relative to a read is unknown, but within these bounds.
Loads = Tuple[float, float, float]
#: Root, device class, store, model ('*': all models).
GroupKey = Tuple[str, str, str, str]


class LoadPoint(NamedTuple):
    """One OSD in one kind of operation."""
    osd: int
    reading: WindowLatency
    loads: Loads


class PeerComparison(NamedTuple):
    """Comparison of one OSD with its peers."""
    ms: float
    #: Its latency at the end of the window.
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
    #: Logarithm of the operations per second of this OSD.
    load: float = 0.0
    #: Standard deviation of the logarithm of ms.
    sigma: float = MIN_SPREAD

    @property
    def score(self) -> float:
        return self.ms / self.expected_ms


class Rise(NamedTuple):
    """How latency grows between the medians of two parts of a group."""
    #: Of each part.
    low_load: float
    high_load: float
    #: 0: it does not grow, or too little is known.
    slope: float


NO_RISE = Rise(0.0, 0.0, 0.0)


class Peers:
    """Latency of a group of OSDs as a function of load."""

    def __init__(self, points: Sequence[LoadPoint],
                 of_few: Optional[Callable[[Sequence[float]], float]] = None) -> None:
        """`points`: the members, at least one. `of_few`: max or min, for the latency of the slowest
        or the fastest of few members; None: that of the median."""
        self._points = points
        self.count = len(points)
        loads = [sorted(column) for column in zip(*[point.loads for point in points])]
        self._median_load = median(loads[0])
        # The 90th percentile, so that a hot OSD in a large group does not raise it. In a group that
        # is too small for a slope, the load that two others have as well.
        top = self.count - 1 - self.count // 10
        if of_few is None and self.count < SLOPE_MEMBERS:
            top = max(0, self.count - MIN_PEERS)
        #: The highest loads up to which the latency of the members is known.
        self._top_loads = [column[top] for column in loads]
        rise = self._rise()
        #: Utilisation, at the median load, of two queues: of the one whose latency grows as that of
        #: the members, and of the one that has their slope at this load, which is higher. The
        #: latency of an M/M/1 queue, 1 / (1 - utilisation), has the slope utilisation /
        #: (1 - utilisation).
        self._fitted_utilisation = fitted_utilisation(rise, self._median_load)
        self.utilisation = rise.slope / (1.0 + rise.slope)
        # What the latency of each would be at the median load.
        levels = [(point.reading.log_ms - growth(self._fitted_utilisation,
                                                 point.loads[0] - self._median_load),
                   point.loads[0]) for point in points]
        residuals = _healthy(levels) if of_few is None else [level for level, _ in levels]
        center = self._center = of_few(residuals) if of_few is not None else median(residuals)
        self.spread = MAD_SIGMA * median(sorted([abs(residual - center) for residual in residuals]))
        # The deviation of few peers is uncertain.
        self._least_sigma = max(MIN_SPREAD, self.spread) * (1.0 + 2.0 / self.count)
        self._spread_ratio = math.expm1(self.spread)

    def _rise(self) -> Rise:
        """By how much latency rises with load: from the lower to the upper third by load, without
        members that are far slower than others."""
        if self.count < SLOPE_MEMBERS:
            return NO_RISE
        ordered = self._by_load()
        third = len(ordered) // 3
        if len(ordered) < SLOPE_MEMBERS:
            return NO_RISE
        low, high = ordered[:third], ordered[-third:]
        # The median load of each third; both are sorted by load.
        low_load, high_load = low[third // 2][0], high[third // 2][0]
        if high_load - low_load < SLOPE_SPREAD:
            return NO_RISE
        rise = median(sorted(log_ms for _, log_ms in high)) \
            - median(sorted(log_ms for _, log_ms in low))
        return Rise(low_load, high_load, min(max(rise / (high_load - low_load), 0.0), MAX_SLOPE))

    def _by_load(self) -> List[Tuple[float, float]]:
        """The logarithms of load and latency of the OSDs, by load. Without those that are far
        slower than healthy ones, unless fewer than two healthy ones have as much load: then the
        load may be the reason."""
        ordered = sorted([(point.loads[0], point.reading.log_ms) for point in self._points])
        healthy = _healthy([(log_ms, load) for load, log_ms in ordered])
        bound = FAR_LOG + median(healthy)
        if len(healthy) == len(ordered) and healthy[-1] <= bound:
            return ordered  # nearly always
        # The second highest load of healthy ones, or that of the only one.
        second_load = [load for load, log_ms in ordered if log_ms <= bound][-2:][0]
        return [(load, log_ms) for load, log_ms in ordered if log_ms <= bound or load > second_load]

    def expected(self, loads: Loads) -> float:
        """Logarithm of the expected latency in ms; a low load does not reduce it. Up to the highest
        known load by the queue that fits the members, beyond it by a steeper one."""
        load, write_load, read_load = loads
        top_load, top_write_load, top_read_load = self._top_loads
        within = (load if load < top_load else top_load) - self._median_load
        if within < 0.0:
            within = 0.0
        level = self._center + growth(self._fitted_utilisation, within) if within else self._center
        if load <= top_load and write_load <= top_write_load and read_load <= top_read_load:
            return level  # nearly always
        beyond = max(load - top_load, write_load - top_write_load, read_load - top_read_load)
        return level + max(BEYOND_SLOPE * beyond, growth(self.utilisation, within + beyond)
                           - growth(self.utilisation, within))

    def compare(self, point: LoadPoint, others: int) -> PeerComparison:
        """Compare a point with this group, which has `others` other members."""
        _, reading, loads = point
        expected = self.expected(loads)
        # The mean of few operations is uncertain.
        op_sigma = OP_SPREAD / math.sqrt(reading.ops)
        sigma = self._least_sigma if self._least_sigma > op_sigma else op_sigma
        expected_ms = math.exp(expected)
        return PeerComparison(
            reading.ms, reading.recent_ms, expected_ms, expected_ms * self._spread_ratio,
            (reading.log_ms - expected) / sigma, op_sigma, math.exp(loads[0] - self._median_load),
            others, loads[0], sigma)

    def without(self, osd: int) -> 'Peers':
        return Peers([point for point in self._points if point.osd != osd])


def compare(point: LoadPoint, peers: Peers, member: bool) -> Optional[PeerComparison]:
    """Compare a point with its peers; None: they are fewer than MIN_PEERS. `member`: the point is
    one of `peers`."""
    others = peers.count - (1 if member else 0)
    if others < MIN_PEERS:
        return None
    comparison = peers.compare(point, others)
    if member and peers.count <= FEW_MEMBERS and comparison.score > 1.15:
        # Among few, it shifts their median. Excluding it costs time, so only if it may be slow.
        comparison = peers.without(point.osd).compare(point, others)
    return comparison


def compare_with_few(point: LoadPoint, points: Sequence[LoadPoint]
                     ) -> Optional[Tuple[PeerComparison, float]]:
    """Compare a point of a small group with the slowest of the others. Returns that comparison, and
    the latency in ms of the fastest of the others at the load of the point; None: there are no
    others."""
    others = [other_point for other_point in points if other_point.osd != point.osd]
    if not others:
        return None
    return (Peers(others, max).compare(point, len(others)),
            math.exp(Peers(others, min).expected(point.loads)))


def _healthy(levels: List[Tuple[float, float]]) -> List[float]:
    """The latencies of members, ascending, from pairs of latency and load, all of them logarithms.
    Without latencies far above those of the fastest FAST_PART if most of them are, unless that part
    may be fast because it has less to do."""
    ordered = sorted([level for level, _ in levels])
    fast_count = min(len(ordered), max(MIN_PEERS, math.ceil(FAST_PART * len(ordered))))
    bound = APART_LOG + ordered[fast_count - 1]
    if median(ordered) <= bound:
        return ordered
    loads = sorted([load for _, load in levels])
    fast_loads = sorted([load for level, load in levels if level <= bound])
    less_to_do = median(fast_loads) < median(loads) - math.log(SAME_LOAD)
    return ordered if less_to_do else ordered[:len(fast_loads)]


def growth(utilisation: float, load: float) -> float:
    """Logarithm of the latency of a queue, given the logarithm of its load, both relative to
    the values at `utilisation`."""
    if not utilisation:
        return 0.0
    grown = min(utilisation * math.exp(min(load, 10.0)), SATURATION)
    return math.log((1.0 - utilisation) / (1.0 - grown))


def fitted_utilisation(rise: Rise, middle: float) -> float:
    """The utilisation, at load `middle` (a logarithm), of a queue whose latency grows by `rise`
    between the two loads of that. 0.0: it does not grow. With loads that are far apart, the queue
    that has the slope of `rise` at `middle` would grow many times more."""
    low_load, high_load = rise.low_load - middle, rise.high_load - middle
    measured_growth = rise.slope * (high_load - low_load)
    if not measured_growth:
        return 0.0
    # At the high load, the queue is at most saturated.
    too_low, too_high = 0.0, SATURATION * math.exp(-max(0.0, high_load))
    for _ in range(FITTING_STEPS):
        utilisation = 0.5 * (too_low + too_high)
        if growth(utilisation, high_load) - growth(utilisation, low_load) < measured_growth:
            too_low = utilisation
        else:
            too_high = utilisation
    return too_high


def queue_allowance(utilisation: float, load_ratio: float, factor: float) -> float:
    """How many times as slow an OSD may be if its load were `factor` times as high; infinite if it
    may be saturated then. Its load is `load_ratio` times that at which its peers have
    `utilisation`."""
    if utilisation * load_ratio * factor * CAPACITY >= SATURATION:
        return math.inf
    load = math.log(load_ratio)
    return math.exp(growth(utilisation, load + math.log(factor)) - growth(utilisation, load))


def loads_of(reads: float, writes: float) -> Loads:
    """From operations per second, at least 0.001."""
    return (math.log(max(reads + writes, 1e-3)), math.log(max(reads + 4.0 * writes, 1e-3)),
            math.log(max(4.0 * reads + writes, 1e-3)))


@latest
def groups_of(places: Mapping[int, OsdPlace]) -> Tuple[Dict[int, GroupKey], Dict[int, bool]]:
    """The group of each OSD, and whether its model is a minority in that group. The group is that
    of its drive model, or that of all models if fewer than MODEL_MEMBERS OSDs have its model.

    OSDs with different stores are no peers: without a DB device, a commit waits for the disk.
    """
    stores = _stores(places)
    key_by_model: Dict[int, GroupKey] = {
        osd: (place.root, place.device_class, stores[osd], place.model)
        for osd, place in places.items()}
    of_model = Counter(key_by_model.values())
    of_all_models = Counter(all_models(key) for key in key_by_model.values())
    groups: Dict[int, GroupKey] = {}
    minorities: Dict[int, bool] = {}
    for osd, key in key_by_model.items():
        has_own_group = of_model[key] >= MODEL_MEMBERS
        groups[osd] = key if has_own_group else all_models(key)
        minorities[osd] = not has_own_group and 2 * of_model[key] <= of_all_models[all_models(key)]
    return groups, minorities


def all_models(key: GroupKey) -> GroupKey:
    root, device_class, store, _ = key
    return root, device_class, store, '*'


def _stores(places: Mapping[int, OsdPlace]) -> Dict[int, str]:
    """The kind of store of each OSD, with the devices of its DB and WAL (OsdPlace.store); if
    unknown, the most frequent one of its root and class (OsdPlace.kind)."""
    stores_by_kind: Dict[Tuple[str, str], Counter[str]] = {}
    for place in places.values():
        if place.store:
            stores_by_kind.setdefault(place.kind, Counter())[place.store] += 1
    usual = {kind: max(stores, key=lambda store: (stores[store], store))
             for kind, stores in stores_by_kind.items()}
    return {osd: place.store or usual.get(place.kind, '') for osd, place in places.items()}


def median(ordered: List[float]) -> float:
    """Median of a sorted list that is not empty."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else 0.5 * (ordered[half - 1] + ordered[half])


def weighted_quantile(values: Iterable[Tuple[float, float]], share: float) -> float:
    """The value below or at which `share` (0 to 1) of the weight is, of (value, weight) pairs with
    weights above 0. Raises ValueError without any."""
    ordered = sorted(values)
    total, below = sum(weight for _, weight in ordered), 0.0
    for value, weight in ordered:
        below += weight
        if below >= share * total:
            return value
    raise ValueError('no values')


def weighted_median(values: Iterable[Tuple[float, float]]) -> float:
    return weighted_quantile(values, 0.5)


# ---- Findings

#: Time constant of a baseline, and time until it is known.
USUAL_SECONDS = 3600.0
LEARN_SECONDS = 300.0
#: Standard deviations at which values that a baseline learns are clipped.
CLIP = 2.0


class ScoreBaseline(NamedTuple):
    """Exponentially weighted mean and variance of the logarithm of a score."""
    mean: float = 0.0
    variance: float = MIN_VARIANCE
    #: Seconds that it has learned.
    seconds: float = 0.0

    @property
    def known(self) -> bool:
        return self.seconds >= LEARN_SECONDS

    def sigma(self) -> float:
        return math.sqrt(max(self.variance, MIN_VARIANCE))

    def learned(self, value: float, elapsed: float) -> 'ScoreBaseline':
        """The baseline with one more value, which lasted for `elapsed` seconds, more than 0."""
        seconds = self.seconds + elapsed
        # Until USUAL_SECONDS, this is the arithmetic mean.
        weight = elapsed / min(seconds, USUAL_SECONDS)
        deviation = value - self.mean
        if seconds >= LEARN_SECONDS:
            bound = CLIP * self.sigma()
            deviation = min(max(deviation, -bound), bound)
        return ScoreBaseline(self.mean + weight * deviation, self.variance + weight * (
            deviation * deviation - self.variance), seconds)


#: Minimum excess of a slow OSD over the expected latency.
MIN_EXCESS_MS = 0.2
#: Minimum excess of a slow OSD on flash. With 0.2 ms, a slow drive among peers of 0.065 ms would
#: have to be four times as slow; 0.05 ms finds nearly all slow drives of labelled recordings, and
#: no healthy one.
FLASH_EXCESS_MS = 0.05
FLASH_CLASSES = frozenset({'ssd', 'nvme'})
#: Standard deviations of a finding; a day of 60 OSDs has about 350,000 independent samples.
MIN_DEVIATIONS = 5.0
#: Standard deviations below which slowness has ended.
CLEAR_DEVIATIONS = 2.0
#: How much slower an OSD that backfills or deep scrubs may be than others that do the same; and
#: the load that this work adds if it is compared with OSDs without it.
ALIKE_ALLOWANCE = 2.0
BUSY_LOAD = 1.75
BUSY_ALLOWANCE = BUSY_LOAD ** BEYOND_SLOPE
#: How much slower an OSD of a minority model may be than its group, or one of a small group whose
#: history is not known than its slowest peer.
MINORITY_ALLOWANCE = 2.0
#: The whole group, instead of a kind of work.
EVERYONE = '*'
#: An OSD with a score up to this is not slow, with any allowance.
LEAST_SCORE = 1.1
#: Slowdown from which a finding needs no more time than the window. Smaller slowdowns need more:
#: evidence adds up by its logarithm (Page's CUSUM, 1954).
SURE_RATIO = 10.0


class OsdExpectation(NamedTuple):
    """What was expected of a slow OSD when it last stood out from its peers."""
    ms: float
    #: Load at which it was compared, as PeerComparison.load.
    load: float
    #: Standard deviation of the logarithm.
    sigma: float


class PeerFinding(NamedTuple):
    """Comparison of one kind of operation of one OSD with its peers."""
    channel: int
    comparison: PeerComparison
    #: Factor on the ratio from which this OSD counts as slow.
    allowance: float
    #: Excess over the expected latency that matters.
    least_ms: float = MIN_EXCESS_MS
    #: The expectation is an earlier one.
    earlier: bool = False
    #: In a group of two or three OSDs: the latency of the fastest peer, at the load of this OSD;
    #: else 0.0. And whether the comparison is with that and with the history of the OSD, instead of
    #: with the slowest peer.
    fastest_ms: float = 0.0
    with_own: bool = False

    @property
    def score(self) -> float:
        return self.comparison.score

    def is_slow(self, ratio: float, baseline: Optional[ScoreBaseline] = None) -> bool:
        """Whether the OSD is slow, provided that it lasts: it deviates from its peers, or from its
        own baseline against them (`baseline`; None: only its peers count). `ratio`: slowdown from
        which an OSD is slow."""
        comparison, lowest_score = self.comparison, ratio * self.allowance
        expected_ms = comparison.expected_ms
        if comparison.ms / expected_ms < lowest_score \
                or comparison.recent_ms / expected_ms < lowest_score or not self.matters():
            return False
        if comparison.deviations >= MIN_DEVIATIONS:
            return True
        if baseline is None or not baseline.known:
            return False
        # A baseline is that of the logarithm of the score.
        change = math.log(self.score) - baseline.mean
        sigma = max(baseline.sigma(), comparison.op_sigma)
        return change >= math.log(lowest_score) and change >= MIN_DEVIATIONS * sigma

    def is_still_slow(self, ratio: float, baseline: Optional[ScoreBaseline]) -> bool:
        """Whether a slow OSD is still slow against its peers or its own baseline, as for is_slow().
        Its allowance does not apply, and smaller deviations and excesses suffice. `ratio`: slowdown
        below which it is healthy again (SlowSettings.clear_ratio)."""
        if min(self.score, self.recent_score) < ratio or not self.matters(factor=0.5):
            return False
        comparison = self.comparison
        if comparison.deviations >= CLEAR_DEVIATIONS:
            return True
        if baseline is None or not baseline.known:
            return False
        sigma = max(baseline.sigma(), comparison.op_sigma)
        return math.log(self.score) - baseline.mean >= max(math.log(ratio),
                                                           CLEAR_DEVIATIONS * sigma)

    def expected(self) -> OsdExpectation:
        """For `against`, of an OSD that is slow."""
        comparison = self.comparison
        return OsdExpectation(comparison.expected_ms, comparison.load, comparison.sigma)

    def against(self, expectation: OsdExpectation) -> 'PeerFinding':
        """The same operations against what was expected earlier. A higher load than then raises
        the expectation; a lower one does not reduce it."""
        comparison = self.comparison
        # Limited, so that no stored load lets exp() overflow.
        more_load = min(max(0.0, comparison.load - expectation.load), 10.0)
        expected_ms = expectation.ms * math.exp(BEYOND_SLOPE * more_load)
        sigma = max(expectation.sigma, comparison.op_sigma)
        deviations = math.log(comparison.ms / expected_ms) / sigma
        return self._replace(earlier=True, comparison=comparison._replace(
            expected_ms=expected_ms, deviations=deviations))

    def with_more(self, ms: float) -> 'PeerFinding':
        """The same operations, where `ms` more is expected than in this finding."""
        comparison = self.comparison
        expected_ms = comparison.expected_ms + ms
        return self._replace(comparison=comparison._replace(
            expected_ms=expected_ms,
            deviations=math.log(comparison.ms / expected_ms) / comparison.sigma))

    def with_history(self, own_baselines: Optional[Tuple[ScoreBaseline, ScoreBaseline]]
                     ) -> 'PeerFinding':
        """The finding in a small group against the fastest peer and the history of this OSD, as the
        other peers may be slow too. `own_baselines`: those of the logarithms of its latency,
        relative to the fastest peer and in ms. None or unknown: the comparison with the slowest
        peer remains, with a larger allowance."""
        if own_baselines is None or not own_baselines[0].known:
            return self._replace(allowance=MINORITY_ALLOWANCE * self.allowance)
        relative, latency = own_baselines
        comparison = self.comparison
        expected_ms = max(self.fastest_ms * math.exp(max(0.0, relative.mean)),
                          math.exp(latency.mean))
        sigma = max(comparison.op_sigma, relative.sigma())
        return self._replace(with_own=True, comparison=comparison._replace(
            expected_ms=expected_ms, sigma=sigma,
            deviations=math.log(comparison.ms / expected_ms) / sigma))

    @property
    def recent_score(self) -> float:
        """The score at the end of the window, which falls as soon as the slowness ends."""
        return self.comparison.recent_ms / self.comparison.expected_ms

    def weight(self) -> float:
        """Evidence per second: 1 from SURE_RATIO on, less for smaller slowdowns."""
        return min(1.0, math.log(self.score / self.allowance) / math.log(SURE_RATIO))

    def matters(self, factor: float = 1.0) -> bool:
        """Whether the excess in ms matters, whatever the score."""
        comparison = self.comparison
        return comparison.ms - comparison.expected_ms >= factor * self.least_ms


Findings = Dict[int, List[PeerFinding]]


class _Group(NamedTuple):
    """The OSDs of a group with their latencies of one kind of operation."""
    key: GroupKey
    channel: int
    points: List[LoadPoint]
    #: The members by their work; '': client operations only.
    kinds: Dict[str, Peers]
    #: It has fewer OSDs than a comparison with most of them needs.
    small: bool


def judge(windows: Mapping[int, OsdWindow], places: Mapping[int, OsdPlace],
          busy: Mapping[int, str]) -> Work[Findings]:
    """OSD -> its findings, one for each kind of operation in which it can be compared; without OSDs
    that have none. `windows`: of the OSDs to judge; `busy`: OSD -> its work besides client
    operations. Yields for how many OSDs it has made a pass (rounds.py)."""
    group_of, minorities = groups_of(places)
    keys_of, member_counts = _keys(group_of)
    #: By channel, group -> its members with evidence.
    members: List[Dict[GroupKey, List[LoadPoint]]] = [{} for _ in CHANNELS]
    for chunk in chunks(windows.items()):
        for osd, window in chunk:
            if osd not in places:
                continue
            summary = window.summary()
            loads = loads_of(*rates(summary, osd in busy))
            keys = keys_of[group_of[osd]]
            for of_channel, latency in zip(members, summary.latencies):
                if latency is not None:
                    point = LoadPoint(osd, latency, loads)
                    for key in keys:
                        of_channel.setdefault(key, []).append(point)
        yield (2 + len(CHANNELS)) * len(chunk)
    groups: List[_Group] = []
    for channel, of_channel in enumerate(members):
        for key, points in of_channel.items():
            groups.append(_Group(key, channel, points, _by_kind(points, busy),
                                 small=member_counts[key] <= MIN_PEERS))
            yield len(points)
    return (yield from _judge_all(groups, group_of, minorities, busy))


def _judge_all(groups: Sequence[_Group], group_of: Mapping[int, GroupKey],
               minorities: Mapping[int, bool], busy: Mapping[int, str]) -> Work[Findings]:
    """Compare each OSD with the others of its own group, in each kind of operation. `minorities`:
    OSD -> whether its model is a minority in its group; `busy`: OSD -> its work besides client
    operations. Yields passes over OSDs (rounds.py)."""
    utilisation = _utilisations(groups)
    findings: Findings = {}
    for group in groups:
        for points in chunks(group.points):
            for point in points:
                osd = point.osd
                if group_of[osd] != group.key:
                    continue
                finding = _judge(point, busy.get(osd, ''), group, utilisation[group.key],
                                 minorities[osd])
                if finding is None:
                    continue
                if osd in findings:
                    findings[osd].append(finding)
                else:
                    findings[osd] = [finding]
            yield len(points)
    return findings


@latest
def _keys(group_of: Mapping[int, GroupKey]
          ) -> Tuple[Dict[GroupKey, List[GroupKey]], Mapping[GroupKey, int]]:
    """Group -> the groups in which its OSDs count as members: itself and that of all models. And
    group -> number of these members. `group_of`: OSD -> its group."""
    # A group of all models is of no use where each of them has a group of its own.
    used = set(group_of.values())
    keys_of = {key: [other for other in {key, all_models(key)} if other in used] for key in used}
    return keys_of, Counter([key for own_key in group_of.values() for key in keys_of[own_key]])


def _utilisations(groups: Iterable[_Group]) -> Dict[GroupKey, float]:
    """Utilisation of the OSDs without other work (kind '') of each group: the maximum over the
    channels, which share queues."""
    by_group: Dict[GroupKey, float] = {}
    for group in groups:
        by_group[group.key] = max(by_group.get(group.key, 0.0),
                                  group.kinds[''].utilisation if '' in group.kinds else 0.0)
    return by_group


def _judge(point: LoadPoint, kind: str, group: _Group, utilisation: float,
           minority: bool) -> Optional[PeerFinding]:
    """Compare an OSD with members of its group; None: it cannot be compared. `kind`: its work
    besides client operations, '' without any; members that do the same are preferred, except in
    small groups. `utilisation`: of the group; `minority`: its model is a minority in the group."""
    if kind and kind != DELETION and group.channel == STORE_READS:
        # Deep scrub and backfill read more per operation than clients do, and a cold cache reads
        # from the drive what others have in memory. Deletion reads no data.
        return None
    chosen = _choose(kind, group.kinds)
    if chosen not in group.kinds:
        # EVERYONE is computed only if an OSD needs it.
        group.kinds[chosen] = Peers(group.points)
    peers = group.kinds[chosen]
    fastest_ms = 0.0
    if group.small:
        with_few = compare_with_few(point, group.points)
        if with_few is None:
            return None
        comparison, fastest_ms = with_few
    else:
        compared = compare(point, peers, member=chosen in (kind, EVERYONE))
        if compared is None:
            return None
        comparison = compared
    utilisation = max(utilisation, SMALL_UTILISATION if group.small else peers.utilisation)
    allowance = _allowance(comparison, kind, chosen, peers.count, utilisation, minority)
    return PeerFinding(group.channel, comparison, allowance, FLASH_EXCESS_MS
                       if group.key[1] in FLASH_CLASSES else MIN_EXCESS_MS,
                       fastest_ms=fastest_ms)


def _allowance(comparison: PeerComparison, kind: str, chosen: str, members: int,
               utilisation: float, minority: bool) -> float:
    """By what factor an OSD may exceed its expected latency: its work (`kind`), its model
    (`minority`), and the queue at its load may explain that much. `chosen`: the work of those that
    it is compared with, as from _choose(), and `members` their number."""
    allowance = MINORITY_ALLOWANCE if minority else 1.0
    if kind:
        allowance *= ALIKE_ALLOWANCE if chosen == kind else BUSY_ALLOWANCE
    if comparison.score > LEAST_SCORE:
        # The queues of few busy OSDs are unknown, so their work counts as load.
        queue_unknown = kind and (chosen != kind or members < SLOPE_MEMBERS)
        factor = BUSY_LOAD if queue_unknown else CAPACITY
        allowance = max(allowance, queue_allowance(utilisation, comparison.load_ratio, factor))
    return allowance


def _by_kind(points: Iterable[LoadPoint], busy: Mapping[int, str]) -> Dict[str, Peers]:
    """The members by their work; '': client operations only."""
    kinds: Dict[str, List[LoadPoint]] = {}
    for point in points:
        kinds.setdefault(busy.get(point.osd, ''), []).append(point)
    return {kind: Peers(members) for kind, members in kinds.items()}


def _choose(kind: str, kinds: Mapping[str, Peers]) -> str:
    """The work of the members to compare an OSD with: the same as its own (`kind`), else '', client
    operations only, else EVERYONE. Those before are chosen if they are enough."""
    if kind in kinds and kinds[kind].count > MIN_PEERS:
        return kind
    return '' if kind and '' in kinds and kinds[''].count >= MIN_PEERS else EVERYONE


def worst(findings: Iterable[PeerFinding], ratio: float) -> Tuple[Optional[PeerFinding], float]:
    """The most significant finding, and its score (see score_of); (None, -1.0) without findings."""
    best: Optional[PeerFinding] = None
    highest_rank = (False, -1.0)
    for finding in findings:
        # A significant deviation precedes a mean of few operations that is high by chance.
        rank = (finding.comparison.deviations >= MIN_DEVIATIONS, score_of(finding, ratio))
        if rank > highest_rank:
            best, highest_rank = finding, rank
    return best, highest_rank[1]


def score_of(finding: PeerFinding, ratio: float) -> float:
    """The slowdown of a finding; below `ratio`, the slowdown from which an OSD is slow, as long as
    the excess in ms does not matter."""
    comparison = finding.comparison
    excess = max(0.0, comparison.ms - comparison.expected_ms) / finding.least_ms
    return finding.score if excess >= 1.0 else min(finding.score, 1.0 + (ratio - 1.0) * excess)


# ---- OSDs that are slow only because of another OSD

#: Operations that are slow if a replica is. The store and replicated writes depend on the OSD.
_WAITING = frozenset({READS, WRITES})
#: Operations that wait for a slow write exceed it by less than this factor.
WAITING_FACTOR = 2.0


#: OSD -> the OSDs with which it shares a PG, of OSDs of which that is known.
Partners = Mapping[int, AbstractSet[int]]


class Excused(NamedTuple):
    """Findings without those of OSDs that only wait for a slow replica."""
    findings: Findings
    #: OSD that is slow for no other reason -> the slow replica.
    waits_for: Mapping[int, int]
    #: The slow replicas, whether an OSD waits for them or not.
    replicas: AbstractSet[int]


def excuse_waiting(findings: Findings, ratio: float, places: Mapping[int, OsdPlace],
                   partners: Partners) -> Excused:
    """The findings by OSD, without those that a slow replica explains.

    A replica is slow if its own writes, in its store or for other primaries, are over `ratio`. It
    explains slow reads and writes of clients on OSDs that share a PG with it, up to WAITING_FACTOR
    times its own excess in ms, unless such an OSD is slow in another channel as well.
    """
    excess_ms: Dict[int, float] = {}
    for osd, findings_of_osd in findings.items():
        for finding in findings_of_osd:
            if finding.channel in (COMMITS, REPLICATED) and finding.is_slow(ratio):
                excess_ms[osd] = max(excess_ms.get(osd, 0.0), _excess_ms(finding))
    if not excess_ms:
        return Excused(findings, {}, frozenset())
    replica_of = _slowest_replicas(excess_ms, findings, places, partners)
    unexplained: Dict[int, List[PeerFinding]] = {}
    waits_for: Dict[int, int] = {}
    for osd, findings_of_osd in findings.items():
        slow = [finding for finding in findings_of_osd if finding.is_slow(ratio)]
        is_slow_itself = any(finding.channel not in _WAITING for finding in slow)
        # An OSD that shares no PG with a slow replica waits for none.
        explained_ms = WAITING_FACTOR * excess_ms[replica_of[osd]] if osd in replica_of \
            else -math.inf
        unexplained[osd] = [
            finding for finding in findings_of_osd
            if is_slow_itself or finding.channel not in _WAITING
            or _excess_ms(finding) > explained_ms]
        if slow and not any(finding in unexplained[osd] for finding in slow):
            waits_for[osd] = replica_of[osd]
    return Excused(unexplained, waits_for, excess_ms.keys())


def _slowest_replicas(excess_ms: Mapping[int, float], osds: Iterable[int],
                      places: Mapping[int, OsdPlace], partners: Partners) -> Dict[int, int]:
    """OSD -> the slowest of the slow replicas with which it shares PGs, if there is one.
    `excess_ms`: by slow replica; `osds`: all that were judged; `partners`: OSD -> those with which
    it shares PGs. A replica whose partners are not known may share PGs with any OSD of its root and
    device class."""
    members: Dict[Tuple[str, str], List[int]] = {}
    for osd in osds:
        members.setdefault(places[osd].kind, []).append(osd)
    replica_of: Dict[int, int] = {}
    for replica in sorted(excess_ms, key=lambda osd: -excess_ms[osd]):
        kind = places[replica].kind
        for osd in partners[replica] if replica in partners else members[kind]:
            if osd != replica:
                replica_of.setdefault(osd, replica)
        if replica not in partners:
            # Its class is covered, except for the replica itself.
            members[kind] = [osd for osd in members[kind] if osd not in replica_of]
    return replica_of


def _excess_ms(finding: PeerFinding) -> float:
    return finding.comparison.ms - finding.comparison.expected_ms
