# SPDX-License-Identifier: LGPL-2.1-or-later
"""Measurements of a run by comparable key, and statistics of few repetitions.

Values are logarithms, so that differences are ratios. Random generators have fixed seeds, so that
the same data has the same result.
"""
import math
import random
from itertools import accumulate
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from ..watch.peers import median
from .types import (RADOS, READING, WRITING, Direction, Job, JobStep, Quantiles, Second, StepResult,
                    summed)

#: Resamples of the seconds of one repetition.
RESAMPLES = 40
#: Minimum number of seconds that show how a repetition varies.
MIN_SECONDS = 4
#: Two-sided 95 % of a normal distribution.
Z_95 = 1.96
#: Degrees of freedom from which Student's distribution equals the normal one.
MUCH_FREEDOM = 1e4
#: Maximum number of repetitions per side for an exact Mann-Whitney test.
EXACT_REPETITIONS = 12


class Difference(NamedTuple):
    """Difference of the values of two sides, with its 95 % interval."""
    value: float
    low: float
    high: float
    #: Two-sided probability of at least this difference if the sides are equal.
    p: float


#: Repetitions of one side; each is its value followed by resamples.
Side = Sequence[Sequence[float]]


#: The random generators of both sides. Neither depends on the other side, so that the difference
#: a - b is exactly the negative of b - a.
Generators = Tuple[random.Random, random.Random]


def difference(a: Side, b: Side, prior_sd: float, rngs: Generators,
               replicates: int) -> Difference:
    """The difference b - a, as the median of all differences between repetitions of both sides
    (Hodges and Lehmann, Annals of Mathematical Statistics 34, 1963). With three repetitions per
    side it is nearly as exact as the difference of means, and as robust as that of medians.

    The standard error is that of a bootstrap in two stages: repetitions first, because seconds of
    one are correlated, then resamples within each (Davison and Hinkley, Bootstrap Methods and
    their Application, 1997, section 3.8). n repetitions alone show (n - 1) / n of their variance,
    and one shows none. So `prior_sd`, the known variation of repetitions, counts as one more degree
    of freedom (as in Smyth, Statistical Applications in Genetics and Molecular Biology 3, 2004),
    as noise on the drawn values (a smoothed bootstrap: Silverman and Young, Biometrika 74, 1987).
    The interval is Student's, because the variance of few repetitions is uncertain (Efron and
    Tibshirani, An Introduction to the Bootstrap, 1993, chapter 12).
    """
    value = _shift([repetition[0] for repetition in a], [repetition[0] for repetition in b])
    drawn = [_shift(_drawn(a, prior_sd, rngs[0]), _drawn(b, prior_sd, rngs[1]))
             for _ in range(replicates)]
    mean = sum(drawn) / replicates
    error = math.sqrt(sum((drawn_value - mean) ** 2 for drawn_value in drawn) / (replicates - 1))
    freedom = _freedom(a, b, prior_sd)
    if not error:
        # Equal sides with equal generators: a run and itself.
        return Difference(value, value, value, 1.0)
    reach = error * _student(Z_95, freedom)
    return Difference(value, value - reach, value + reach,
                      math.erfc(_normal(abs(value) / error, freedom) / math.sqrt(2.0)))


def _freedom(a: Side, b: Side, prior_sd: float) -> float:
    """Degrees of freedom of the variance (Satterthwaite, Biometrics Bulletin 2, 1946). The known
    part has no uncertainty; the observed part has n - 1 degrees, and one more (Smyth)."""
    total = uncertain = 0.0
    for side in (a, b):
        count = len(side)
        mean = sum(repetition[0] for repetition in side) / count
        variance = sum((repetition[0] - mean) ** 2 for repetition in side) / count ** 2
        total += variance + (prior_sd / count) ** 2
        uncertain += variance ** 2 / count
    return total ** 2 / uncertain if uncertain else math.inf


def _student(normal: float, freedom: float) -> float:
    """The quantile of Student's distribution for that of the normal one; _normal() is the inverse.
    The error is below 5 % from two degrees on (Wallace, Annals of Mathematical Statistics 30,
    1959)."""
    if freedom > MUCH_FREEDOM:
        return normal
    inner = (normal * (8.0 * freedom + 3.0) / (8.0 * freedom + 1.0)) ** 2 / freedom
    return math.sqrt(freedom * math.expm1(inner))


def _normal(student: float, freedom: float) -> float:
    """The quantile of the normal distribution for that of Student's; the inverse of _student()."""
    if freedom > MUCH_FREEDOM:
        return student
    return ((8.0 * freedom + 1.0) / (8.0 * freedom + 3.0)
            * math.sqrt(freedom * math.log1p(student ** 2 / freedom)))


def _drawn(side: Side, prior_sd: float, rng: random.Random) -> List[float]:
    """One sample of the bootstrap: as many repetitions, drawn with replacement, one resample of
    each, with noise."""
    noise, uniform = prior_sd / math.sqrt(len(side)), rng.random
    repetitions = [side[int(uniform() * len(side))] for _ in side]
    return [repetition[int(uniform() * len(repetition))] + rng.gauss(0.0, noise)
            for repetition in repetitions]


def _shift(a: Sequence[float], b: Sequence[float]) -> float:
    """The median of all differences b - a."""
    return median(sorted(theirs - ours for ours in a for theirs in b))


def resamples(value: float, seconds: Sequence[Second],
              value_of: Callable[[float, int, int], float], rng: random.Random) -> List[float]:
    """The value of a repetition, followed by RESAMPLES values with resampled seconds; alone if the
    seconds are too few, or one has no operations.

    `value_of` gives the value of (seconds, operations, sum of latencies in ns). Blocks of
    neighbours are drawn, since seconds are correlated: the circular block bootstrap (Politis and
    Romano, in Exploring the Limits of Bootstrap, 1992) with blocks of the cube root of the length
    (Hall, Horowitz and Jing, Biometrika 82, 1995).
    """
    count = len(seconds)
    # A second without operations is a halt: blocks in it may have no value (a logarithm of 0).
    if count < MIN_SECONDS or not all(second.ios for second in seconds):
        return [value]
    length = math.ceil(count ** (1 / 3))
    blocks = _blocks(seconds, length)
    # Each second is in equally many blocks. Resamples vary around the value of all of them, which
    # may differ from `value`, and are moved there.
    middle = value_of(*_sum(blocks))
    blocks_per_sample = math.ceil(count / length)
    return [value] + [value - middle + value_of(*_sum(rng.choices(blocks, k=blocks_per_sample)))
                      for _ in range(RESAMPLES)]


_Sums = Tuple[float, int, int]


def _blocks(seconds: Sequence[Second], length: int) -> List[_Sums]:
    """The sums of each `length` neighbours; the first seconds follow the last one."""
    begins = [0.0] + [second.end for second in seconds[:-1]]
    single = [(second.end - begin, second.ios, second.lat_sum_ns)
              for begin, second in zip(begins, seconds)]
    around = single + single[:length - 1]
    return [_sum(around[at:at + length]) for at in range(len(single))]


def _sum(blocks: Sequence[_Sums]) -> _Sums:
    return (sum(block[0] for block in blocks), sum(block[1] for block in blocks),
            sum(block[2] for block in blocks))


def mann_whitney_p(a: Sequence[float], b: Sequence[float]) -> float:
    """Two-sided p of Mann and Whitney's U test (Annals of Mathematical Statistics 18, 1947).

    Exact, given the ties, up to EXACT_REPETITIONS a side; beyond by the normal distribution.
    """
    ranks = _double_ranks([*a, *b])
    total = sum(ranks)

    def distance(rank_sum: int) -> int:
        """The distance of a sum of ranks of `a` from the expected one, times the number of ranks:
        an integer, so that a and b may change places."""
        return abs(rank_sum * len(ranks) - total * len(a))

    observed = distance(sum(ranks[:len(a)]))
    if max(len(a), len(b)) <= EXACT_REPETITIONS:
        choices_by_sum = _choices_by_sum(ranks, len(a))
        as_far = sum(count for rank_sum, count in enumerate(choices_by_sum)
                     if count and distance(rank_sum) >= observed)
        return as_far / sum(choices_by_sum)
    mean_square = sum(rank * rank for rank in ranks) / len(ranks)
    spread = mean_square - (total / len(ranks)) ** 2
    variance = len(a) * len(b) / (len(ranks) - 1) * spread
    return math.erfc(observed / len(ranks) / math.sqrt(2.0 * variance)) if variance else 1.0


def _double_ranks(values: Sequence[float]) -> List[int]:
    """Twice the rank of each value, from 1; equal values have the mean of their ranks."""
    ordered = sorted(values)
    return [2 * ordered.index(value) + 1 + ordered.count(value) for value in values]


def _choices_by_sum(ranks: Sequence[int], chosen: int) -> List[int]:
    """Sum of ranks -> how many choices of `chosen` ranks have it."""
    # Number of ranks chosen -> sum -> number of choices, of the ranks up to the present one.
    by_count = [[0] * (sum(ranks) + 1) for _ in range(chosen + 1)]
    by_count[0][0] = 1
    for max_sum, rank in zip(accumulate(ranks), ranks):
        for count in range(chosen, 0, -1):
            without_rank, with_rank = by_count[count - 1], by_count[count]
            for rank_sum in range(rank, max_sum + 1):
                with_rank[rank_sum] += without_rank[rank_sum - rank]
    return by_count[chosen]


def holm(p_values: Sequence[float], level: float) -> List[bool]:
    """Which of several differences, by their p values, are significant if the chance of any false
    one is `level` (Holm, Scandinavian Journal of Statistics 6, 1979)."""
    rejected = [False] * len(p_values)
    for tried, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[index] > level / (len(p_values) - tried):
            break
        rejected[index] = True
    return rejected


# ---- The measurements of a run by comparable key: job, direction, OSD and part

READ, WRITE = 'read', 'write'
P99_KEY = '99.000000'

Done = Iterable[Tuple[JobStep, StepResult]]


class JobWords(NamedTuple):
    """The options of a job that affect what is measured; its name and duration do not."""
    rw: str
    bs: int
    iodepth: int
    numjobs: int
    size: int
    nrfiles: int
    rwmixread: int
    rate_iops: int
    ioengine: str = RADOS


def job_words(job: Job) -> JobWords:
    """The options of a job that affect what is measured; rwmixread is 0 if it has no effect."""
    mixed = job.rw in READING & WRITING
    return JobWords(job.rw, job.bs, job.iodepth, job.numjobs, job.size, job.nrfiles,
                    job.rwmixread if mixed else 0, job.rate_iops, job.ioengine)


class Key(NamedTuple):
    job: JobWords
    #: "read" or "write".
    direction: str
    #: The primary of all objects; None: any OSD.
    osd: Optional[int]
    #: Part of a run with --interference or of a scale run, as JobStep.part; '': it has no parts.
    part: str


class Repetition(NamedTuple):
    """All streams of one step that share a key, together."""
    #: The job's name.
    name: str
    iops: float
    bytes_per_second: float
    #: Of one operation; 0.0 if it is not measured (the bench of an OSD).
    latency_ns: float
    #: The highest p99 of any stream: an upper bound for the p99 of all together.
    p99_ns: float
    seconds: Tuple[Second, ...]
    client_limited: bool


Measured = Dict[Key, List[Repetition]]


def measured(done: Done) -> Measured:
    """Results by key in the order of the steps, without directions that have no operations."""
    by_key: Measured = {}
    for step, result in done:
        for key, parts in _directions(step, result).items():
            repetition = _together(step.job.name, parts, result.client_limited)
            if repetition is not None:
                by_key.setdefault(key, []).append(repetition)
    return by_key


def _directions(step: JobStep, result: StepResult) -> Dict[Key, List[Direction]]:
    """The reads and the writes of a step, by what they measure: all streams of an OSD together."""
    words = job_words(step.job)
    by_key: Dict[Key, List[Direction]] = {}
    for stream, its_result in zip(step.streams, result.streams):
        if step.job.reads:
            by_key.setdefault(Key(words, READ, stream.osd, step.part), []).append(its_result.read)
        if step.job.writes:
            by_key.setdefault(Key(words, WRITE, stream.osd, step.part), []).append(its_result.write)
    return by_key


def _together(name: str, parts: Sequence[Direction],
              client_limited: bool) -> Optional[Repetition]:
    """One direction of several streams of a step as one measurement; None: they have completed no
    operation. `name`: of the job."""
    working = [part for part in parts if part.ios]
    iops = sum(part.iops for part in working)
    if not iops:
        return None
    return Repetition(
        name, iops, sum(part.bytes_per_second for part in working), _mean_ns(working),
        _p99_ns(working), added([part.seconds for part in working]), client_limited)


def _latencies(parts: Sequence[Direction]) -> List[Tuple[int, Quantiles]]:
    return [(part.ios, part.latency) for part in parts if part.latency is not None]


def _mean_ns(parts: Sequence[Direction]) -> float:
    latencies = _latencies(parts)
    ios = sum(count for count, _ in latencies)
    return max(1.0, sum(count * latency.mean for count, latency in latencies) / ios) if ios else 0.0


def _p99_ns(parts: Sequence[Direction]) -> float:
    tails = [latency.percentile.get(P99_KEY, latency.max) for _, latency in _latencies(parts)]
    return float(max(1, *tails)) if tails else 0.0


def added(series: Sequence[Tuple[Second, ...]]) -> Tuple[Second, ...]:
    """Series of seconds of streams that ran at the same time, as one; as long as the shortest."""
    if len(series) == 1:
        return series[0]
    return tuple(map(summed, zip(*series)))


def label(key: Key, name: str) -> str:
    """As in "latency read osd.3 (again)"."""
    return ' '.join(filter(None, (
        name, key.direction, '' if key.osd is None else 'osd.%d' % key.osd,
        '(%s)' % key.part if key.part else '')))


def figure_text(value: float) -> str:
    """A figure as text: 12,345 or 45.6."""
    return '{:,.0f}'.format(value) if value >= 100 else '%.3g' % value
