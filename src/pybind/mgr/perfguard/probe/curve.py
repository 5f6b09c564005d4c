# SPDX-License-Identifier: LGPL-2.1-or-later
"""Curves of a run: latency as a function of throughput, and throughput by number of OSDs.

Latency is from a run with one job at several queue depths.

At the knee, throughput / latency, the "power" of a queueing system, is highest (Kleinrock, Power
and Deterministic Rules of Thumb for Probabilistic Problems in Computer Communications, ICC 1979):
with fewer operations in flight the cluster idles, with more of them operations wait. Error bars
are the lowest and the highest repetition.

With the number of OSDs, throughput is linear if it is that of one OSD times their number; by host,
if it is that of each OSD of the first host times their number. What is missing is what these OSDs
share: hosts, network, the OSDs of their replicas, or the client. At a fixed rate, latency shows it.
"""
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..text import plural
from ..watch.peers import median
from .jobs import doubled, scale_counts
from .records import RunRecord
from .stats import Key, Repetition, label, measured, figure_text
from .types import READING, WRITING

#: Minimum number of depths of a curve.
LEAST_DEPTHS = 4
#: The last share of the throughput, whose price is reported.
LAST_SHARE = 0.1
#: Gain of the highest depth over the previous one from which throughput still rises.
RISING = 0.05
#: Depths at which operations hardly wait for one another, but come without a pause; and the ratio
#: of the latency at depth 1 to that at these depths from which the pauses cost time. CPUs that save
#: power between operations cost 10 to 20 %, elsewhere a factor of 2 to 3.
SHALLOW_DEPTHS, PAUSE_RATIO = (2, 3, 4), 1.1
#: Repetitions of each depth, and shallow depths, without which that may be chance.
PAUSE_REPETITIONS, PAUSE_DEPTHS = 3, 2
#: Ratio of the highest to the lowest repetition from which a curve is uncertain.
UNCERTAIN = 1.5


class Measure(NamedTuple):
    """The median of the repetitions, the lowest and the highest."""
    median: float
    low: float
    high: float


class CurvePoint(NamedTuple):
    """The measurements of a job at one depth."""
    #: Operations in flight of all streams.
    depth: int
    iops: Measure
    latency_ns: Measure
    p99_ns: Measure
    #: Whether the CPU of the probe process was the bottleneck.
    client_limited: bool
    repetitions: int = 1

    @property
    def power(self) -> float:
        """IOPS per ns of latency, as in the module's docstring."""
        return self.iops.median / self.latency_ns.median


class Price(NamedTuple):
    """The price of the last share of the throughput, in latency."""
    from_iops: float
    to_iops: float
    from_latency_ns: float
    to_latency_ns: float

    @property
    def times(self) -> float:
        """Latency at the end of that share over the latency at its beginning."""
        return self.to_latency_ns / self.from_latency_ns


class Curve(NamedTuple):
    """Latency as a function of throughput, for one job in one direction."""
    #: "randwrite 4096 write osd.3"
    label: str
    #: Bytes of an operation, and whether the job has operations of the other direction as well.
    bs: int
    is_mixed: bool
    direction: str
    #: The primary of all objects; None: any OSD.
    osd: Optional[int]
    #: By depth.
    points: Tuple[CurvePoint, ...]
    knee: CurvePoint
    #: The first depth whose repetitions reach the highest throughput.
    peak: CurvePoint
    #: None: the lowest depth already exceeds the rest of the throughput.
    price: Optional[Price]
    notes: Tuple[str, ...]


def curves(record: RunRecord) -> Tuple[Curve, ...]:
    """A curve for each job, direction and OSD that was measured at LEAST_DEPTHS or more depths.

    Left out are jobs with a fixed rate, benches of OSDs, which measure no latency, and the parts of
    runs with --interference or of scale runs, in which the number of OSDs varies.
    """
    families: Dict[Key, List[CurvePoint]] = {}
    for key, repetitions in measured(record.done).items():
        has_latency = all(repetition.latency_ns for repetition in repetitions)
        if not key.part and not key.job.rate_iops and has_latency:
            # A family is one job at all of its depths.
            family = key._replace(job=key.job._replace(iodepth=0))
            families.setdefault(family, []).append(_point(key, repetitions))
    return tuple(_curve(family, sorted(points)) for family, points in families.items()
                 if len(points) >= LEAST_DEPTHS)


def _point(key: Key, repetitions: Sequence[Repetition]) -> CurvePoint:
    return CurvePoint(key.job.iodepth * key.job.numjobs,
                      measure_of(repetitions, lambda repetition: repetition.iops),
                      measure_of(repetitions, lambda repetition: repetition.latency_ns),
                      measure_of(repetitions, lambda repetition: repetition.p99_ns),
                      any(repetition.client_limited for repetition in repetitions),
                      len(repetitions))


def measure_of(repetitions: Sequence[Repetition], get: Callable[[Repetition], float]) -> Measure:
    """The measure of a quantity, which `get` reads from each repetition."""
    values = sorted(map(get, repetitions))
    return Measure(median(values), values[0], values[-1])


def _curve(family: Key, points: Sequence[CurvePoint]) -> Curve:
    """The curve of one job, from its points in the order of their depths. Its knee is the point of
    the highest power, its peak the lowest depth of which a repetition reaches the best median."""
    best = max(points, key=lambda point: point.iops.median)
    peak = next(point for point in points if point.iops.high >= best.iops.median)
    words = family.job
    return Curve(label(family, '%s %d' % (words.rw, words.bs)), words.bs,
                 words.rw in READING & WRITING, family.direction, family.osd, tuple(points),
                 max(points, key=lambda point: point.power), peak,
                 _price(points, peak), tuple(_notes(points)))


def _price(points: Sequence[CurvePoint], peak: CurvePoint) -> Optional[Price]:
    """How much latency rises with the last LAST_SHARE of the throughput of the peak; None: the
    lowest depth has more than the rest of it. Latency is assumed to be linear in throughput between
    two points. `points`: by depth."""
    from_iops = (1.0 - LAST_SHARE) * peak.iops.median
    rising = [point for point in points if point.depth <= peak.depth]
    for below, above in zip(rising, rising[1:]):
        if below.iops.median <= from_iops < above.iops.median:
            share = (from_iops - below.iops.median) / (above.iops.median - below.iops.median)
            latency = below.latency_ns.median + share * (
                above.latency_ns.median - below.latency_ns.median)
            return Price(from_iops, peak.iops.median, latency, peak.latency_ns.median)
    return None


def _notes(points: Sequence[CurvePoint]) -> List[str]:
    """What limits the value of a curve, or what it shows of the cluster, as texts. `points`: by
    depth, at least LEAST_DEPTHS."""
    notes = []
    alone_and_shallow = slower_alone(points)
    if alone_and_shallow is not None:
        alone, fastest_shallow = alone_and_shallow
        notes.append('one operation at a time takes %.2f ms, %d at a time take %.2f ms, in all '
                     'repetitions: CPUs of the OSDs or of the client may save power in the pauses '
                     '("cpupower idle-info" on these hosts)'
                     % (alone.latency_ns.median / 1e6, fastest_shallow.depth,
                        fastest_shallow.latency_ns.median / 1e6))
    before, last = points[-2], points[-1]
    if last.iops.median > (1.0 + RISING) * before.iops.median:
        notes.append('throughput still rises at depth %d: the cluster can do more' % last.depth)
    unsteady = [str(point.depth) for point in points
                if point.iops.high > UNCERTAIN * point.iops.low]
    if unsteady:
        notes.append('the curve is uncertain: repetitions differ by more than %.0f %% at depth %s'
                     % (100 * (UNCERTAIN - 1.0), ', '.join(unsteady)))
    limited = [str(point.depth) for point in points if point.client_limited]
    if limited:
        notes.append('the CPU of the probe process was the bottleneck at depth %s: the cluster may '
                     'be faster' % ', '.join(limited))
    return notes


def slower_alone(points: Sequence[CurvePoint]) -> Optional[Tuple[CurvePoint, CurvePoint]]:
    """The point of depth 1, and the one of SHALLOW_DEPTHS with the lowest latency, if one operation
    at a time is slower than several, which queues do not explain; None: it is not, or that is not
    certain.

    Each repetition at depth 1 must be slower than each at SHALLOW_DEPTHS, which chance alone
    achieves, with three of these depths and three repetitions, once in 220 times (12 choose 3). The
    repetitions take turns, so that a change in the cluster affects all depths alike.
    """
    alone = next((point for point in points if point.depth == 1), None)
    others = [point for point in points if point.depth in SHALLOW_DEPTHS]
    if alone is None or len(others) < PAUSE_DEPTHS or min(
            point.repetitions for point in (alone, *others)) < PAUSE_REPETITIONS:
        return None
    fastest_shallow = min(others, key=lambda point: point.latency_ns.median)
    is_apart = alone.latency_ns.low > max(point.latency_ns.high for point in others)
    is_slower = alone.latency_ns.low > PAUSE_RATIO * fastest_shallow.latency_ns.high
    return (alone, fastest_shallow) if is_apart and is_slower else None


# ---- Throughput by number of OSDs

#: Kind of the target of such a run.
SCALE = 'scale'
#: Share of linear throughput below which a number of OSDs is a finding; at a fixed rate, of the
#: speed of one operation.
LINEAR_SHARE = 0.8


class ScalePoint(NamedTuple):
    """The measurements with one number of OSDs."""
    #: Number of OSDs at the same time, and of their hosts; None: not by host.
    osds: int
    hosts: Optional[int]
    #: IOPS of all of them together.
    iops: Measure
    #: Of an operation, on all of them.
    latency_ns: Measure
    #: Throughput as a share of that of the fewest OSDs times the number.
    linear: float
    client_limited: bool


class Scaling(NamedTuple):
    """Throughput by number of OSDs, in one direction."""
    #: "randwrite 4096 write"
    label: str
    direction: str
    points: Tuple[ScalePoint, ...]
    notes: Tuple[str, ...]


def scalings(record: RunRecord) -> Tuple[Scaling, ...]:
    """The throughput with more and more OSDs of a run with --scale, for each direction with two
    numbers of OSDs or more that were measured. Empty for other runs."""
    if record.target.kind != SCALE:
        return ()
    # A family is one direction: number of OSDs -> repetitions of each OSD.
    families: Dict[Key, Dict[int, List[List[Repetition]]]] = {}
    for key, repetitions in measured(record.done).items():
        # With --scale, the part of a run is the number of OSDs that work at the same time.
        family = families.setdefault(key._replace(osd=None, part=''), {})
        family.setdefault(int(key.part), []).append(repetitions)
    # Number of OSDs -> number of their hosts.
    hosts = dict(zip(scale_counts(record.target), doubled(len(record.target.hosts)))) \
        if record.target.hosts else {}
    # Without a repetition of one of its OSDs, a number of OSDs has no total.
    scaled = tuple(_scaling(key, hosts, {
        osds: rows for osds, rows in family.items()
        if len(rows) == osds and len(set(map(len, rows))) == 1})
        for key, family in families.items())
    return tuple(scaling for scaling in scaled if len(scaling.points) > 1)


def _scaling(key: Key, hosts: Mapping[int, int],
             family: Dict[int, List[List[Repetition]]]) -> Scaling:
    """The throughput in one direction with more and more OSDs; each number of OSDs is compared with
    the lowest. `hosts`: number of OSDs -> number of their hosts, empty unless by host. `family`:
    number of OSDs -> repetitions of each OSD."""
    totals = {osds: _totals(rows) for osds, rows in sorted(family.items())}
    points: List[ScalePoint] = []
    for osds, repetitions in totals.items():
        iops = measure_of(repetitions, lambda repetition: repetition.iops)
        first = points[0] if points else None
        linear = 1.0 if first is None else (
            iops.median / osds) / (first.iops.median / first.osds)
        points.append(ScalePoint(osds, hosts.get(osds), iops, measure_of(
            repetitions, lambda repetition: repetition.latency_ns), linear,
            any(repetition.client_limited for repetition in repetitions)))
    words = key.job
    return Scaling(label(key, '%s %d' % (words.rw, words.bs)), key.direction, tuple(points),
                   tuple(_scaling_notes(points, bool(words.rate_iops))))


def _totals(rows: Sequence[Sequence[Repetition]]) -> List[Repetition]:
    """For each repetition, all OSDs together: their total throughput, the mean latency of their
    operations, the highest p99. `rows`: the repetitions of each OSD."""
    totals: List[Repetition] = []
    for together in zip(*rows):
        iops = sum(repetition.iops for repetition in together)
        totals.append(Repetition(
            together[0].name, iops, sum(repetition.bytes_per_second for repetition in together),
            sum(repetition.iops * repetition.latency_ns for repetition in together) / iops,
            max(repetition.p99_ns for repetition in together), seconds=(),
            client_limited=any(repetition.client_limited for repetition in together)))
    return totals


def _scaling_notes(points: Sequence[ScalePoint], is_rate_fixed: bool) -> List[str]:
    """What is notable about the throughput with more and more OSDs, as texts; at a fixed rate, also
    about the latency. `points`: by number of OSDs."""
    notes = []
    under = [str(point.osds) for point in points if point.linear < LINEAR_SHARE]
    if under:
        notes.append('below %.0f %% of linear with %s OSDs' % (
            100 * LINEAR_SHARE, ', '.join(under)))
    slower = next((point for point in points
                   if points[0].latency_ns.median < LINEAR_SHARE * point.latency_ns.median), None)
    if is_rate_fixed and slower is not None:
        notes.append('latency at the fixed rate is %s ms with %s, and %s ms with %s' % (
            figure_text(points[0].latency_ns.median / 1e6), plural(points[0].osds, 'OSD'),
            figure_text(slower.latency_ns.median / 1e6), plural(slower.osds, 'OSD')))
    limited = [str(point.osds) for point in points if point.client_limited]
    if limited:
        notes.append('the CPU of the probe process was the bottleneck with %s %s: the cluster may '
                     'be faster' % (', '.join(limited), 'OSD' if limited == ['1'] else 'OSDs'))
    return notes
