# SPDX-License-Identifier: LGPL-2.1-or-later
"""Compares two runs (what is faster, slower, unchanged, or uncertain), and the OSDs of one run.

Speed means IOPS (both runs have the same bs, so bandwidth follows); for jobs with a fixed rate it
means mean latency. p99 varies more from run to run, so that only a larger difference counts.
Exchanging the runs reverses the result; only where some lines are faster and some slower, the
verdict on all lines is "slower" both ways.
"""
import math
import random
from operator import attrgetter
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..cluster.types import OsdPlace
from ..errors import InvalidValue
from ..watch.peers import MAD_SIGMA, MIN_PEERS, groups_of, median
from ..watch.slowness import OP_SPREAD
from .records import RunRecord, differing_conditions
from .stats import (Difference, Generators, Key, Measured, Repetition, difference, holm, label,
                    mann_whitney_p, measured, figure_text, resamples)
from .types import AGAIN, ALONE, TOGETHER

FASTER, SLOWER, SAME, UNKNOWN = 'faster', 'slower', 'no difference', 'cannot tell'
IOPS, BANDWIDTH, LATENCY, P99 = 'iops', 'bandwidth', 'latency', 'p99'

#: Minimum relevant differences: 5 % of the speed, and 50 % of p99.
LEAST_EFFECT = 0.05
LEAST_TAIL_EFFECT = 0.5
#: "No difference" is reported if a difference of 30 % is ruled out.
RULED_OUT = 0.3
#: Standard deviation of the logarithm from run to run on an unchanged cluster: at the upper end
#: of the 5 to 10 % that quiet clusters show; more for what few operations decide.
PRIOR_SD = 0.1
TAIL_PRIOR_SD = 0.25
#: Minimum number of repetitions; with fewer, the report calls the result uncertain.
ENOUGH_REPETITIONS = 3
#: Minimum number of repetitions of each run for a rank test.
RANK_REPETITIONS = 5
#: Probability of a false "slower" or "faster" for one line, and for all lines together where an
#: alarm depends on it.
SIGNIFICANCE_LEVEL = 0.05
ALARM_LEVEL = 0.02
#: Bootstrap replicates of one quantity; fewer where there are very many lines. 50 to 200 are
#: enough for a standard error (Efron and Tibshirani, 1993, section 6.4).
REPLICATES = 200
FEWEST_REPLICATES = 60
ALL_REPLICATES = 30000
SEED = 16


class NothingInCommon(InvalidValue):
    """The runs share no job and target; the message lists those of each run."""


class Estimate(NamedTuple):
    """One quantity of both runs: operations or bytes a second, or ns."""
    #: Medians of the repetitions.
    a: float
    b: float
    #: By how many times b is above a, with its 95 % interval: close to b / a, but not equal
    #: (stats.difference).
    ratio: float
    low: float
    high: float
    verdict: str


class Line(NamedTuple):
    """One job in one direction (on one OSD)."""
    label: str
    key: Key
    repetitions: Tuple[int, int]
    #: IOPS, BANDWIDTH, LATENCY, P99.
    estimates: Dict[str, Estimate]
    verdict: str
    #: Two-sided p of no change.
    p: float
    #: "0.69 times (0.58 to 0.83); 3,912 IOPS, before 5,640"
    why: str


class RunComparison(NamedTuple):
    """Run b compared with run a."""
    a: int
    b: int
    lines: Tuple[Line, ...]
    #: The verdict on all lines together.
    verdict: str
    #: Lines that are slower, corrected for the number of lines.
    slower: Tuple[Line, ...]
    #: Differences between the conditions of the runs, and doubts.
    notes: Tuple[str, ...]


def compare(a: RunRecord, b: RunRecord) -> RunComparison:
    """Run b compared with run a, in the jobs that both have. Raises NothingInCommon if they have
    none, or measured different OSDs or pools. OSDs that were probed one by one are compared one by
    one, even if each run probed others as well."""
    measured_a, measured_b = measured(a.done), measured(b.done)
    common = [key for key in measured_a if key in measured_b]
    if a.target.key != b.target.key and not _are_of_single_osds(common):
        raise NothingInCommon('cannot compare probe %d of %s with probe %d of %s: they measured '
                              'different OSDs or pools'
                              % (a.id, a.target.key, b.id, b.target.key))
    if not common:
        raise NothingInCommon('cannot compare probes %d and %d: they have no job in common (%s; %s)'
                              % (a.id, b.id, _names(measured_a), _names(measured_b)))
    replicates = max(FEWEST_REPLICATES, min(REPLICATES, ALL_REPLICATES // len(common)))
    lines = tuple(_line(
        key, measured_a[key], measured_b[key],
        (_generator(a.id, key, measured_a[key]), _generator(b.id, key, measured_b[key])),
        replicates) for key in common)
    significances = holm([line.p for line in lines], ALARM_LEVEL)
    significant = [line for line, is_significant in zip(lines, significances) if is_significant]
    slower = tuple(line for line in significant if line.verdict == SLOWER)
    return RunComparison(a.id, b.id, lines, _overall(lines, significant), slower,
                         tuple(_notes(a, b, measured_a, measured_b, common)))


def _are_of_single_osds(keys: Sequence[Key]) -> bool:
    """Whether there are keys, all of OSDs that were probed one by one: then the other OSDs of a run
    do not matter."""
    return bool(keys) and all(key.osd is not None and not key.part for key in keys)


def _generator(run_id: int, key: Key, side: Sequence[Repetition]) -> random.Random:
    """The generator of one run in one line. The results of the run are part of the seed because
    imported runs may have the same id, and the id is because runs may have the same results."""
    results = [(repetition.iops, repetition.latency_ns, repetition.p99_ns) for repetition in side]
    return random.Random(repr((SEED, run_id, tuple(key), results)))


def _line(key: Key, a: List[Repetition], b: List[Repetition], rngs: Generators,
          replicates: int) -> Line:
    """The comparison of one job of two probes by its speed and, if latency was measured, its p99:
    if p99 has changed and the speed does not contradict it, the verdict is that of p99. `a`, `b`:
    the repetitions of each probe; `rngs`: their generators."""
    speed, speed_p = _estimate(a, b, 'iops', _of_iops, rngs, replicates, more_is_better=True)
    bandwidth = speed._replace(a=_middle(a, 'bytes_per_second'), b=_middle(b, 'bytes_per_second'))
    if not all(repetition.latency_ns for repetition in (*a, *b)):
        # The bench of an OSD measures no latency (0.0).
        without_latency = {IOPS: speed, BANDWIDTH: bandwidth}
        return Line(label(key, b[-1].name), key, (len(a), len(b)), without_latency,
                    speed.verdict, speed_p, _why(key, without_latency, speed.verdict))
    latency, latency_p = _estimate(
        a, b, 'latency_ns', _of_latency, rngs, replicates, more_is_better=False)
    tail, tail_p = _tail(a, b, rngs, replicates)
    # At a fixed rate, the IOPS are given, and latency is the speed.
    main, p = (latency, latency_p) if key.job.rate_iops else (speed, speed_p)
    verdict = main.verdict
    if _tail_counts(tail, verdict):
        # Either of the two would have been reported: Bonferroni.
        verdict, p = tail.verdict, min(1.0, 2.0 * min(p, tail_p))
    estimates = {IOPS: speed, BANDWIDTH: bandwidth, LATENCY: latency, P99: tail}
    return Line(label(key, b[-1].name), key, (len(a), len(b)), estimates, verdict, p,
                _why(key, estimates, main.verdict))


def _tail_counts(tail: Estimate, verdict: str) -> bool:
    """Whether p99 is faster or slower, and the `verdict` on the speed is not the opposite."""
    return tail.verdict in (FASTER, SLOWER) and verdict in (tail.verdict, SAME, UNKNOWN)


def _of_iops(seconds: float, ios: int, _lat_sum_ns: int) -> float:
    return math.log(ios / seconds)


def _of_latency(_seconds: float, ios: int, lat_sum_ns: int) -> float:
    return math.log(max(1.0, lat_sum_ns / ios))


def _values(side: Sequence[Repetition], quantity: str) -> List[float]:
    """`quantity`: a field of Repetition."""
    return list(map(attrgetter(quantity), side))


def _middle(side: Sequence[Repetition], quantity: str) -> float:
    """The median of a quantity; of two in the middle, their geometric mean, since differences are
    ratios."""
    ordered = sorted(_values(side, quantity))
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else math.sqrt(ordered[half - 1] * ordered[half])


def _estimate(a: Sequence[Repetition], b: Sequence[Repetition], quantity: str,
              value_of: Callable[[float, int, int], float], rngs: Generators, replicates: int,
              more_is_better: bool) -> Tuple[Estimate, float]:
    """The estimate of a quantity that is known for each second, and its p. `quantity`: a field of
    Repetition; `value_of`: its logarithm from sums of seconds, as in `resamples`. With enough
    repetitions, a change must also show in their ranks."""
    side_a, side_b = ([resamples(math.log(value), repetition.seconds, value_of, rng)
                       for value, repetition in zip(_values(side, quantity), side)]
                      for side, rng in zip((a, b), rngs))
    estimate = difference(side_a, side_b, PRIOR_SD, rngs, replicates)
    # The logarithm of a fall to 1 - LEAST_EFFECT; a rise counts from the inverse of that.
    is_change = estimate.p <= SIGNIFICANCE_LEVEL \
        and abs(estimate.value) >= -math.log1p(-LEAST_EFFECT)
    if is_change and min(len(a), len(b)) >= RANK_REPETITIONS:
        is_change = mann_whitney_p(_values(a, quantity), _values(b, quantity)) <= SIGNIFICANCE_LEVEL
    return _verdict_of(a, b, quantity, estimate, is_change, more_is_better), estimate.p


def _tail(a: Sequence[Repetition], b: Sequence[Repetition], rngs: Generators,
          replicates: int) -> Tuple[Estimate, float]:
    """The estimate of p99, and its p. It depends on few operations and has outliers: each
    repetition of one run must be beyond each of the other, and an alarm requires that the ranks
    alone prove the difference."""
    side_a, side_b = ([math.log(repetition.p99_ns) for repetition in side] for side in (a, b))
    # Without resamples: p99 is not known for each second.
    estimate = difference([[log_p99] for log_p99 in side_a], [[log_p99] for log_p99 in side_b],
                          TAIL_PRIOR_SD, rngs, replicates)
    is_disjoint = min(side_a) > max(side_b) or max(side_a) < min(side_b)
    is_change = (is_disjoint and min(len(a), len(b)) > 1 and estimate.p <= SIGNIFICANCE_LEVEL
                 and abs(estimate.value) >= math.log1p(LEAST_TAIL_EFFECT))
    p = max(estimate.p, mann_whitney_p(side_a, side_b))
    return _verdict_of(a, b, 'p99_ns', estimate, is_change, more_is_better=False), p


def _verdict_of(a: Sequence[Repetition], b: Sequence[Repetition], quantity: str,
                estimated: Difference, is_change: bool, more_is_better: bool) -> Estimate:
    """A difference of two logarithms as a ratio, with its verdict: FASTER or SLOWER if `is_change`
    (it is neither small nor due to chance), else SAME if the interval rules out a difference of
    RULED_OUT, else UNKNOWN."""
    bound = -math.log1p(-RULED_OUT)
    if is_change:
        verdict = FASTER if (estimated.value > 0.0) == more_is_better else SLOWER
    else:
        verdict = SAME if -bound <= estimated.low and estimated.high <= bound else UNKNOWN
    return Estimate(_middle(a, quantity), _middle(b, quantity), math.exp(estimated.value),
                    math.exp(estimated.low), math.exp(estimated.high), verdict)


def _why(key: Key, estimates: Dict[str, Estimate], verdict: str) -> str:
    """The figures behind the verdict on a job, as text. `verdict`: that on its speed."""
    main, tail = estimates[LATENCY if key.job.rate_iops else IOPS], estimates.get(P99)
    text = '%.2f times (%.2f to %.2f); ' % (main.ratio, main.low, main.high)
    if key.job.rate_iops:
        text += '%s ms (before: %s ms)' % (figure_text(main.b / 1e6), figure_text(main.a / 1e6))
    else:
        text += '%s IOPS (before: %s IOPS)' % (figure_text(main.b), figure_text(main.a))
    if tail is not None and _tail_counts(tail, verdict):
        text += '; p99 %s ms (before: %s ms)' % (
            figure_text(tail.b / 1e6), figure_text(tail.a / 1e6))
    return text


def _overall(lines: Sequence[Line], significant: Sequence[Line]) -> str:
    """The verdict on all lines of two probes together. `significant`: the lines that chance does
    not explain, even given the number of lines. SAME requires that none of the lines is UNKNOWN."""
    verdicts = {line.verdict for line in significant}
    if SLOWER in verdicts:
        return SLOWER
    if FASTER in verdicts:
        return FASTER
    # Lines that differ but are not significant: chance may explain so many of them.
    differing = sum(1 for line in lines if line.verdict in (SLOWER, FASTER))
    is_chance = differing <= SIGNIFICANCE_LEVEL * len(lines)
    return SAME if is_chance and all(line.verdict != UNKNOWN for line in lines) else UNKNOWN


def _notes(a: RunRecord, b: RunRecord, measured_a: Measured, measured_b: Measured,
           common: Sequence[Key]) -> List[str]:
    """What limits the value of a comparison, as texts. `measured_a`, `measured_b`: what probes a
    and b have measured; `common`: what both have."""
    if a.id == b.id and measured_a == measured_b:
        return ['probe %d is compared with itself' % a.id]
    notes = ['the conditions differ: %s' % text for text in differing_conditions(a, b)]
    fewest_repetitions = min(min(len(measured_a[key]), len(measured_b[key])) for key in common)
    if fewest_repetitions < ENOUGH_REPETITIONS:
        notes.append('the result is uncertain: %s the variation, which is assumed to be %.0f %%; '
                     'use at least three repetitions'
                     % ('one repetition does not show' if fewest_repetitions == 1
                        else 'two repetitions show little of', 100.0 * PRIOR_SD))
    for record, side, other in ((a, measured_a, measured_b), (b, measured_b, measured_a)):
        only_here = sorted({label(key, side[key][-1].name) for key in side if key not in other})
        if only_here:
            notes.append('only in probe %d: %s' % (record.id, ', '.join(only_here)))
        limited = sorted({label(key, side[key][-1].name) for key in common
                          if any(repetition.client_limited for repetition in side[key])})
        if limited:
            notes.append('the CPU of the probe process limited probe %d in %s: the cluster may '
                         'be faster' % (record.id, ', '.join(limited)))
        if record.conditions:
            notes.append('during probe %d: %s' % (record.id, '; '.join(record.conditions)))
        if not record.ended_well:
            notes.append('probe %d is %s with %d of %d measurements' % (
                record.id, record.state, len(record.results), len(record.steps)))
    return notes


def _names(has: Measured) -> str:
    return ', '.join(sorted({label(key, has[key][-1].name) for key in has})) or 'no measurement'


# ---- OSDs that were probed one by one, and interference between OSDs of one host. The peers of an
# OSD have the same CRUSH root, device class and store, and the same drive model if enough OSDs have
# it, as in the watch.

#: Minimum spread of healthy OSDs, as a standard deviation of the logarithm.
MIN_RESULT_SPREAD = 0.1
#: Weight of the minimum spread, as a number of peers.
SPREAD_WEIGHT = 4
#: Deviations and slowdown from which an OSD is an outlier. Both are required, so that neither very
#: uniform nor very mixed groups cause false alarms. 3.5 is recommended by Iglewicz and Hoaglin (How
#: to Detect and Handle Outliers, 1993).
OUTLIER_DEVIATIONS = 3.5
OUTLIER_FACTOR = 1.6
#: Ratios (together / alone, and alone again / alone) below which interference is reported, if they
#: are also more than three standard deviations below 1.
INTERFERENCE = 0.8
INTERFERENCE_DEVIATIONS = 3.0


class Rank(NamedTuple):
    """One OSD in one job and direction; values are medians of the repetitions."""
    job: str
    direction: str
    osd: int
    host: str
    device_class: str
    iops: float
    bytes_per_second: float
    latency_ns: float
    p99_ns: float
    #: IOPS / median of the peers; with a fixed rate, latency of the peers / latency. None: no
    #: peers.
    ratio: Optional[float]
    #: Robust standard deviations below the peers; negative if the OSD is faster.
    deviations: float
    peers: int
    outlier: bool


class Interference(NamedTuple):
    """IOPS of an OSD (None: the sum) alone, together with its host, and alone again; for jobs with
    a fixed rate, its latency in ns (None: the mean)."""
    job: str
    direction: str
    osd: Optional[int]
    alone: float
    together: float
    again: float
    #: Standard deviation of the logarithm of a ratio of two of these.
    spread: float
    #: IOPS or LATENCY.
    quantity: str = IOPS

    @property
    def together_ratio(self) -> float:
        return self._speed_ratio(self.together)

    @property
    def again_ratio(self) -> float:
        return self._speed_ratio(self.again)

    def _speed_ratio(self, value: float) -> float:
        return self.alone / value if self.quantity == LATENCY else value / self.alone


def rank(record: RunRecord, places: Mapping[int, OsdPlace]) -> Tuple[Rank, ...]:
    """The ranks of the OSDs that a run has probed one by one: by job and direction in the order of
    the run, the slowest OSD first. `places`: of OSDs that are up and in."""
    by_job: Dict[Key, Dict[int, Repetition]] = {}
    for key, repetitions in measured(record.done).items():
        if key.osd is not None and not key.part:
            by_job.setdefault(key._replace(osd=None), {})[key.osd] = _median(repetitions)
    ranks: List[Rank] = []
    for key, results in by_job.items():
        groups, _ = groups_of({osd: places[osd] for osd in results if osd in places})
        # An OSD that is down, out or gone has no place, and its kind is unknown: it has no peers.
        of_job = [_rank(key, osd, results, [peer for peer in groups if peer != osd
                                            and groups[peer] == groups.get(osd)],
                        places.get(osd)) for osd in results]
        ranks.extend(sorted(of_job, key=lambda row: (-row.deviations, row.osd)))
    return tuple(ranks)


def _median(repetitions: Sequence[Repetition]) -> Repetition:
    """The last repetition, with the medians of all repetitions as its figures."""
    def middle(quantity: str) -> float:
        return median(sorted(_values(repetitions, quantity)))

    return repetitions[-1]._replace(
        iops=middle('iops'), bytes_per_second=middle('bytes_per_second'),
        latency_ns=middle('latency_ns'), p99_ns=middle('p99_ns'))


def _rank(key: Key, osd: int, results: Mapping[int, Repetition], peers: Sequence[int],
          place: Optional[OsdPlace]) -> Rank:
    """How fast an OSD is in one job, compared with its peers. `results`: of all probed OSDs;
    `place`: None: the OSD is down, out or gone."""
    result = results[osd]
    compared = _compared_with_peers(
        _log_speed(key, result), [_log_speed(key, results[peer]) for peer in peers])
    return Rank(result.name, key.direction, osd, place.host if place else '',
                place.device_class if place else '', result.iops, result.bytes_per_second,
                result.latency_ns, result.p99_ns, compared.ratio, compared.deviations, len(peers),
                compared.outlier)


class _PeerComparison(NamedTuple):
    """An OSD compared with its peers, as in Rank."""
    ratio: Optional[float]
    deviations: float
    outlier: bool


def _compared_with_peers(log_speed: float, peers: Sequence[float]) -> _PeerComparison:
    """How much slower an OSD is than its peers; all are logarithms of speeds. Fewer than MIN_PEERS
    peers prove nothing: the ratio is None, and the OSD no outlier."""
    if len(peers) < MIN_PEERS:
        return _PeerComparison(ratio=None, deviations=0.0, outlier=False)
    speeds = sorted(peers)
    log_slowdown = median(speeds) - log_speed
    deviations = log_slowdown / _robust_sd(speeds)
    return _PeerComparison(math.exp(-log_slowdown), deviations, deviations >= OUTLIER_DEVIATIONS
                           and log_slowdown >= math.log(OUTLIER_FACTOR))


def _log_speed(key: Key, repetition: Repetition) -> float:
    """Logarithm of IOPS, or, for jobs with a fixed rate, of the inverse latency."""
    return -math.log(repetition.latency_ns) if key.job.rate_iops else math.log(repetition.iops)


def _robust_sd(ordered: Sequence[float]) -> float:
    """The standard deviation of the logarithms of the speeds of peers, which are sorted, from their
    median absolute deviation. That of few peers is uncertain, so MIN_RESULT_SPREAD counts as the
    deviation of SPREAD_WEIGHT more peers; it is also the minimum."""
    center = median(list(ordered))
    sd = MAD_SIGMA * median(sorted(abs(value - center) for value in ordered))
    count = len(ordered)
    variance = (count * sd ** 2 + SPREAD_WEIGHT * MIN_RESULT_SPREAD ** 2) / (
        count + SPREAD_WEIGHT)
    return max(MIN_RESULT_SPREAD, math.sqrt(variance))


def outlier_text(row: Rank) -> str:
    """An OSD that is an outlier, as in "osd.3: latency read 490 IOPS, 0.51 times the median of 11
    peers (6.7 deviations)"."""
    assert row.ratio is not None
    return 'osd.%d: %s %s %s IOPS, %.2f times the median of %d peers (%.1f deviations)' % (
        row.osd, row.job, row.direction, figure_text(row.iops), row.ratio, row.peers,
        row.deviations)


#: Minimum number of operations of an OSD in a probe of a pool for a mean latency, and how far the
#: mean must be above that of the peers, in standard deviations of a mean of so many operations: a
#: single one of seconds doubles that of 100.
LEAST_COUNTED, COUNTED_DEVIATIONS = 20, 7.0


def slow_in_pool(record: RunRecord, places: Mapping[int, OsdPlace]) -> List[str]:
    """Texts on the OSDs that were slower than their peers in a probe of a pool or the cluster, by
    the mean latency of the client operations, reads and writes apart, that they led during the
    probe. `places`: of OSDs that are up and in."""
    texts: List[str] = []
    if record.target.osds:
        return texts  # OSDs that are probed one by one have ranks
    # The fields of Counted that have the number of operations and the sum of their latencies.
    for ops, total_ns in (('reads', 'read_ns'), ('writes', 'write_ns')):
        means = {row.osd: getattr(row, total_ns) / getattr(row, ops)
                 for row in record.counted if row.osd in places
                 and getattr(row, ops) >= LEAST_COUNTED and getattr(row, total_ns)}
        ops_by_osd = {row.osd: getattr(row, ops) for row in record.counted}
        groups, _ = groups_of({osd: places[osd] for osd in means})
        for osd, mean in sorted(means.items()):
            peer_log_speeds = [-math.log(means[peer]) for peer in means
                               if peer != osd and groups[peer] == groups[osd]]
            compared = _compared_with_peers(-math.log(mean), peer_log_speeds)
            # Chance may make the mean of so many operations as slow as that.
            chance_ratio = math.exp(-COUNTED_DEVIATIONS * OP_SPREAD / math.sqrt(ops_by_osd[osd]))
            if compared.outlier and compared.ratio is not None and compared.ratio <= chance_ratio:
                texts.append(
                    'osd.%d: client %s during the probe took %s ms, %.1f times the median of '
                    '%d peers (%.1f deviations)' % (
                        osd, ops, figure_text(mean / 1e6), 1.0 / compared.ratio,
                        len(peer_log_speeds), compared.deviations))
    return texts


def interference(record: RunRecord) -> Tuple[Interference, ...]:
    """Interference in a run with --interference: by job and direction, of each OSD of which all
    three parts were measured, and in total."""
    by_key = measured(record.done)
    rows = list(filter(None, (_interference(key, by_key) for key in by_key
                              if key.part == ALONE)))
    return (*rows, *_sums(rows))


def _interference(key: Key, repetitions: Measured) -> Optional[Interference]:
    """The speed of an OSD alone, while the others work, too, and alone again; None: not all three
    parts were measured. `key`: of its part ALONE."""
    parts = [repetitions.get(key._replace(part=part)) for part in (ALONE, TOGETHER, AGAIN)]
    medians = [_median(part) for part in parts if part]
    if len(medians) < 3:
        return None
    fewest = min(len(part) for part in parts if part)
    quantity = LATENCY if key.job.rate_iops else IOPS
    alone, together, again = (
        repetition.latency_ns if quantity == LATENCY else repetition.iops for repetition in medians)
    return Interference(medians[0].name, key.direction, key.osd, alone, together, again,
                        spread=MIN_RESULT_SPREAD * math.sqrt(2.0 / fewest), quantity=quantity)


def _sums(rows: Sequence[Interference]) -> List[Interference]:
    """For each job and direction with several OSDs: the sum of their IOPS, or, for jobs with a
    fixed rate, the mean of their latencies."""
    groups: Dict[Tuple[str, str, str], List[Interference]] = {}
    for row in rows:
        groups.setdefault((row.job, row.direction, row.quantity), []).append(row)
    sums = []
    for (job, direction, quantity), group in groups.items():
        if len(group) > 1:  # else the sum is the OSD
            divisor = len(group) if quantity == LATENCY else 1
            sums.append(Interference(
                job, direction, None, sum(row.alone for row in group) / divisor,
                sum(row.together for row in group) / divisor,
                sum(row.again for row in group) / divisor,
                # Independent deviations average out.
                max(row.spread for row in group) / math.sqrt(len(group)), quantity))
    return sums


def interference_findings(rows: Sequence[Interference]) -> Tuple[str, ...]:
    """Texts on ratios below the limits. Together: the OSDs share a resource that is too small.
    Alone again: something has not recovered (for example the locks of an IOMMU, for 30 min)."""
    findings: List[str] = []
    for row in rows:
        # A lower limit where few repetitions leave more to chance.
        limit = min(INTERFERENCE, math.exp(-INTERFERENCE_DEVIATIONS * row.spread))
        who = 'all OSDs' if row.osd is None else 'osd.%d' % row.osd
        subject = '%s: %s %s' % (who, row.job, row.direction)
        if row.together_ratio < limit:
            findings.append('%s: together %.2f times as fast as alone (%s)' % (
                subject, row.together_ratio,
                _two_values_text(row.together, row.alone, row.quantity)))
        if row.again_ratio < limit:
            findings.append('%s: alone again %.2f times as fast as alone before (%s)' % (
                subject, row.again_ratio, _two_values_text(row.again, row.alone, row.quantity)))
    return tuple(findings)


def _two_values_text(value: float, alone: float, quantity: str) -> str:
    if quantity == LATENCY:
        return '%s, %s ms' % (figure_text(value / 1e6), figure_text(alone / 1e6))
    return '%s, %s IOPS' % (figure_text(value), figure_text(alone))
