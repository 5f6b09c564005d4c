# SPDX-License-Identifier: LGPL-2.1-or-later
"""Statistics of few repetitions, against exact values and simulation."""
import itertools
import math
import random
from dataclasses import replace
from typing import Any, List, Tuple

import numpy
import pytest

from perfguard.probe.stats import (_freedom, _normal, _student, difference, holm, label,
                                   mann_whitney_p, measured, figure_text, resamples)
from perfguard.probe.types import (Direction, Job, JobStep, Quantiles, Second, StepResult, Stream,
                                   StreamResult)


def by_hand(a: List[float], b: List[float]) -> float:
    """Mann-Whitney's p from all ways to choose."""
    def u(chosen: List[float], rest: List[float]) -> float:
        return sum((x > y) + 0.5 * (x == y) for x in chosen for y in rest)

    together = [*a, *b]
    middle = len(a) * len(b) / 2
    observed, far, ways = abs(u(a, b) - middle), 0, 0
    for indices in itertools.combinations(range(len(together)), len(a)):
        chosen = [together[i] for i in indices]
        rest = [together[i] for i in range(len(together)) if i not in indices]
        ways += 1
        far += abs(u(chosen, rest) - middle) >= observed - 1e-9
    return far / ways


@pytest.mark.parametrize('a, b', [
    ([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]), ([1, 3, 5, 7, 9], [2, 4, 6, 8, 10]),
    ([1, 1, 2, 2, 3], [2, 3, 3, 4]), ([5, 5, 5], [5, 5, 5, 5]), ([1.5, 9.0], [4.0, 5.0, 6.0])])
def test_mann_whitney_is_exact(a: List[float], b: List[float]) -> None:
    assert mann_whitney_p(a, b) == pytest.approx(by_hand(a, b))
    assert mann_whitney_p(b, a) == pytest.approx(by_hand(a, b))


def test_mann_whitney_of_published_tables() -> None:
    """U = 0 of 5 and 5 has 2 of 252 ways, of 4 and 4 2 of 70."""
    assert mann_whitney_p([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == pytest.approx(2 / 252)
    assert mann_whitney_p([1, 2, 3, 4], [6, 7, 8, 9]) == pytest.approx(2 / 70)


def test_mann_whitney_of_many_is_near_to_exact() -> None:
    rng = random.Random(1)
    for shift in (0.0, 0.5, 1.0):
        a = [rng.gauss(0.0, 1.0) for _ in range(12)]
        b = [rng.gauss(shift, 1.0) for _ in range(12)]
        # One more on one side: beyond the exact part.
        assert mann_whitney_p(a, b + [shift]) == pytest.approx(mann_whitney_p(a, b), abs=0.12)
    assert mann_whitney_p([7.0] * 20, [7.0] * 20) == 1.0


@pytest.mark.parametrize('a, b, deviations', [
    # U = 0 of 13 and 13: the mean is 84.5, the standard deviation 19.5.
    (list(range(13)), list(range(13, 26)), 84.5 / 19.5),
    # The ranks of 19 equal values are 10, those of the other seven 23.
    ([1] * 13, [1] * 6 + [2] * 7,
     45.5 / math.sqrt(169 / 12 * (27 - (19 ** 3 - 19 + 7 ** 3 - 7) / (26 * 25))))])
def test_mann_whitney_of_more_than_12_repetitions(
        a: List[float], b: List[float], deviations: float) -> None:
    """The normal distribution, with the correction for ties."""
    expected = math.erfc(deviations / math.sqrt(2.0))
    assert mann_whitney_p(a, b) == pytest.approx(expected)
    assert mann_whitney_p(b, a) == pytest.approx(expected)


def test_mann_whitney_is_exact_up_to_12_repetitions() -> None:
    assert mann_whitney_p(range(12), range(12, 24)) == pytest.approx(2 / math.comb(24, 12))
    assert mann_whitney_p(range(1), range(1, 13)) == pytest.approx(2 / 13)


def test_holm() -> None:
    # A p-value that equals its level is significant.
    assert holm([0.025, 0.05], 0.05) == [True, True]
    assert holm([0.0251, 0.05], 0.05) == [False, False]
    assert holm([0.01, 0.04, 0.03, 0.005], 0.05) == [True, False, False, True]
    assert holm([0.013, 0.6], 0.02) == [False, False] and holm([], 0.05) == []
    # The least p-value is compared with level / 2, the other one with the whole level.
    assert holm([0.04, 0.01], 0.05) == [True, True]


@pytest.mark.parametrize('repetitions, run_sd', [
    (1, 0.08), (2, 0.08), (3, 0.05), (3, 0.1), (6, 0.1)])
def test_the_interval_covers_the_truth(repetitions: int, run_sd: float) -> None:
    rng = random.Random(repr((repetitions, run_sd)))
    covered, trials = 0, 400
    for _ in range(trials):
        a, b = ([[rng.gauss(0.0, run_sd)] for _ in range(repetitions)] for _ in range(2))
        found = difference(a, b, 0.1, (rng, rng), 100)
        covered += found.low <= 0.0 <= found.high
    assert covered / trials >= 0.9


@pytest.mark.parametrize('freedom, quantile', [
    (2, 4.303), (3, 3.182), (4, 2.776), (8, 2.306), (30, 2.042), (math.inf, 1.96)])
def test_students_distribution(freedom: float, quantile: float) -> None:
    """Published 97.5 % points; never less than they are."""
    assert 0.999 * quantile < _student(1.96, freedom) < 1.05 * quantile
    assert _normal(_student(1.96, freedom), freedom) == pytest.approx(1.96)


def test_more_repetitions_narrow_the_interval() -> None:
    rng = random.Random(2)
    widths = []
    for repetitions in (1, 3, 9):
        side = [[rng.gauss(0.0, 0.08)] for _ in range(repetitions)]
        found = difference(side, side, 0.1, (random.Random(3), random.Random(4)), 400)
        widths.append(found.high - found.low)
        assert found.value == pytest.approx(0.0, abs=1e-9) and found.p == pytest.approx(1.0)
    assert widths[0] > 1.4 * widths[1] > 1.9 * widths[2]


def seconds_of(rates: List[float]) -> List[Second]:
    return [Second(at + 1.0, round(rate), 0, 1000 * round(rate)) for at, rate in enumerate(rates)]


def test_resamples_know_that_seconds_are_correlated() -> None:
    """Their spread is that of the mean of such a series, which is twice that of independent ones:
    blocks see most of it (in ten seconds there is not more to see)."""
    numbers = numpy.random.default_rng(4)
    rng = random.Random(5)

    def mean_spread(count: int, correlation: float) -> float:
        spreads = []
        for _ in range(60):
            noise = numbers.normal(0.0, 0.1 * math.sqrt(1 - correlation ** 2), count)
            state, rates = numbers.normal(0.0, 0.1), []
            for each in noise:
                rates.append(1e5 * math.exp(state))
                state = correlation * state + each
            found = resamples(math.log(1e5), seconds_of(rates),
                              lambda span, ios, _: math.log(ios / span), rng)
            assert found[0] == math.log(1e5)
            spreads.append(numpy.var(found[1:]))
        return math.sqrt(numpy.mean(spreads))

    assert mean_spread(60, 0.0) == pytest.approx(0.1 / math.sqrt(60), rel=0.2)
    # The true one is twice that: sqrt((1 + 0.6) / (1 - 0.6)).
    assert 1.4 < mean_spread(60, 0.6) / mean_spread(60, 0.0) < 2.1


def test_short_series_and_halts_have_no_resamples() -> None:
    def of(span: float, ios: int, _: int) -> float:
        return math.log(ios / span)

    rng = random.Random(6)
    assert resamples(3.0, seconds_of([9.0] * 3), of, rng) == [3.0]
    assert resamples(3.0, seconds_of([9.0] * 9 + [0.0]), of, rng) == [3.0]
    steady = resamples(3.0, seconds_of([9.0] * 9), of, rng)
    assert len(steady) == 41 and steady == pytest.approx([3.0] * 41)


@pytest.mark.parametrize('count, length, blocks', [(4, 2, 2), (8, 2, 4), (9, 3, 3), (10, 3, 4)])
def test_resamples_are_of_blocks_of_neighbours(count: int, length: int, blocks: int) -> None:
    """Blocks of the cube root of the length, around the end, as many as cover it."""
    calls: List[Tuple[float, int, int]] = []

    def noted(span: float, ios: int, lat_sum_ns: int) -> float:
        calls.append((span, ios, lat_sum_ns))
        return float(len(calls))

    # The digits of the operations are the seconds that a sample consists of.
    seconds = [Second(2.0 * at + 2.0, 100 ** at, 0, 3 * 100 ** at) for at in range(count)]
    found = resamples(0.5, seconds, noted, random.Random(1))
    every = sum(second.ios for second in seconds)
    assert calls[0] == (2.0 * count * length, length * every, 3 * length * every)
    assert found == [0.5, *(0.5 - 1.0 + number for number in range(2, 42))]
    # Each block begins at a second, and the one before it ends there.
    begins = set()
    for span, ios, lat_sum_ns in calls[1:]:
        digits = [ios // 100 ** at % 100 for at in range(count)]
        assert (span, lat_sum_ns, sum(digits)) == (2.0 * length * blocks, 3 * ios, length * blocks)
        begins.add(tuple(digits))
    assert len(begins) > 1


def test_the_same_data_has_the_same_difference() -> None:
    a, b = [[0.0, 0.1], [0.2], [0.1, 0.0, 0.2]], [[0.5], [0.7, 0.6]]
    found = difference(a, b, 0.1, (random.Random(1), random.Random(2)), 50)
    assert found == difference(a, b, 0.1, (random.Random(1), random.Random(2)), 50)
    # The differences are 0.3 to 0.7; the two in the middle are both 0.5.
    assert found.value == pytest.approx(0.5)
    assert found.value - found.low == pytest.approx(found.high - found.value)
    assert 0.0 < found.low and found.p < 0.05
    mirrored = difference(b, a, 0.1, (random.Random(2), random.Random(1)), 50)
    assert (mirrored.low, mirrored.high, mirrored.p) == pytest.approx(
        (-found.high, -found.low, found.p))


def test_equal_sides_with_equal_generators_differ_by_chance_alone() -> None:
    side = [[0.0, 0.1], [0.2]]
    assert difference(side, side, 0.1, (random.Random(1), random.Random(1)), 50) == (
        0.0, 0.0, 0.0, 1.0)


def test_degrees_of_freedom_grow_with_the_known_variation() -> None:
    """It has no uncertainty: (0.5 + 0.5 + 2 * (2 / 2)^2)^2 / (2 * 0.5^2 / 2)."""
    sides = [(1.0,), (3.0,)], [(2.0,), (4.0,)]
    assert _freedom(*sides, 2.0) == pytest.approx(36.0)
    assert _freedom([(1.0,)], [(2.0,)], 0.1) == math.inf


# ---- Several streams as one measurement

def stream(name: str, ios: int, mean: float, p99: int, **changes: Any) -> StreamResult:
    latency = Quantiles(1, 2 * p99, mean, 0.0, {'99.000000': p99})
    return StreamResult(name, read=replace(Direction(ios, 10 * ios, 10 ** 9, latency), **changes))


def test_streams_of_an_osd_are_one_measurement() -> None:
    job = Job('latency', 'randread', 4096, 1, 1 << 20, 4, 2.0, numjobs=3)
    step = JobStep(job, tuple(Stream(name, (), osd) for name, osd in (
        ('a', 1), ('b', 1), ('c', 1), ('d', 2), ('e', 3))), 0, 'alone')
    done = StepResult((
        stream('a', 300, 1e6, 5000000, seconds=(Second(1.0, 200, 9, 7), Second(2.0, 100, 1, 2))),
        stream('b', 100, 3e6, 4000000, seconds=(Second(1.5, 60, 3, 5),)),
        # Without operations, and without a percentile.
        stream('c', 0, 9e9, 9 * 10 ** 9), stream('d', 50, 0.25, 0, latency=Quantiles(
            0, 700, 0.25, 0.0, {})), stream('e', 0, 0.0, 0)), client_limited=True)
    found = measured([(step, done), (step, done)])
    assert [(key.direction, key.osd, key.part, len(rows)) for key, rows in found.items()] == [
        ('read', 1, 'alone', 2), ('read', 2, 'alone', 2)]
    first, second = (rows[0] for rows in found.values())
    assert first == ('latency', 400.0, 4000.0, 1.5e6, 5000000.0, (Second(1.5, 260, 12, 12),), True)
    # A mean latency is at least 1 ns; without a percentile, the maximum counts.
    assert (second.latency_ns, second.p99_ns) == (1.0, 700.0)
    assert [label(key, 'latency') for key in found] == [
        'latency read osd.1 (alone)', 'latency read osd.2 (alone)']


def test_results_without_latencies_have_none() -> None:
    job = Job('store', 'randwrite', 4096, 1, 1 << 20, 4, 2.0)
    step = JobStep(job, (Stream('0', ()),), 0)
    row, = measured([(step, StepResult((StreamResult('0', write=Direction(
        10, 40960, 10 ** 9)),)))]).values()
    assert (row[0].iops, row[0].latency_ns, row[0].p99_ns) == (10.0, 0.0, 0.0)


@pytest.mark.parametrize('value, text', [
    (0.0, '0'), (0.1234, '0.123'), (99.44, '99.4'), (100.4, '100'), (12345.6, '12,346')])
def test_rates_as_text(value: float, text: str) -> None:
    assert figure_text(value) == text


def test_degrees_of_freedom_are_those_of_the_measured_values() -> None:
    """Resamples follow the value of each repetition. Two variances of 0.5 with two repetitions."""
    assert _freedom([(1.0, 9.0), (3.0, -5.0)], [(2.0, 0.0), (4.0, 100.0)], 0.0) == \
        pytest.approx(4.0)


def test_two_replicates_are_enough_for_an_error() -> None:
    found = difference([[0.0]], [[0.5]], 0.1, (random.Random(1), random.Random(2)), 2)
    assert found.value == 0.5 and found.low < 0.5 < found.high
