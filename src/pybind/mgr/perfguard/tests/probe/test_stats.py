# SPDX-License-Identifier: LGPL-2.1-or-later
"""Statistics of few repetitions, against exact values and simulation."""
import itertools
import math
import random
from typing import List

import numpy
import pytest

from perfguard.probe.stats import (_freedom, _normal, _student, difference, holm, mann_whitney_p,
                                   resamples)
from perfguard.probe.types import Second


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


def test_holm() -> None:
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


def test_degrees_of_freedom_are_those_of_the_measured_values() -> None:
    """Resamples follow the value of each repetition. Two variances of 0.5 with two repetitions."""
    assert _freedom([(1.0, 9.0), (3.0, -5.0)], [(2.0, 0.0), (4.0, 100.0)], 0.0) == \
        pytest.approx(4.0)
