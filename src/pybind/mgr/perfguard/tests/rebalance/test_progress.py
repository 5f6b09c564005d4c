# SPDX-License-Identifier: LGPL-2.1-or-later
"""The time left lies in the interval in 9 of 10 campaigns, however their rates change."""
import math
import random
from statistics import median
from typing import Callable, Iterator, List, Sequence, Tuple

import pytest

from perfguard.codec import decode, encode
from perfguard.rebalance.progress import (BLOCK_SECONDS, MOST_BLOCKS, Eta, Arrivals, advance,
                                          path_seconds, remaining)

#: Rates in bytes a second, one for each second.
Rates = Callable[[random.Random], Iterator[float]]
PG = 4 << 30
PGS = 1000


def steady(rng: random.Random) -> Iterator[float]:
    while True:
        yield 1e9


def noisy(rng: random.Random) -> Iterator[float]:
    """Around a mean, from which it goes far and for some minutes."""
    level = 0.0
    while True:
        level += -level / 90.0 + rng.gauss(0.0, 0.08)
        yield 1e9 * math.exp(level)


def throttled(rng: random.Random) -> Iterator[float]:
    """The throttle: halved when clients are not well, and from a quarter to the cap in 75 s."""
    limit = 0.25
    while True:
        limit = limit / 2 if rng.random() < 0.01 else min(1.0, limit + 0.01)
        yield 2e9 * limit


def held(rng: random.Random) -> Iterator[float]:
    """With stop conditions of half a minute, on average every three."""
    left = 0
    while True:
        left = left - 1 if left > 0 else (30 if rng.random() < 1 / 180 else 0)
        yield 0.0 if left else 1e9


def beginning_slowly(rng: random.Random) -> Iterator[float]:
    """A quarter of the limit at first, all of it after 75 s."""
    for second in range(75):
        yield 1e9 * (0.25 + 0.01 * second)
    yield from noisy(rng)


def campaign(rates: Rates, seed: int, share: float, pgs: int = PGS) -> Tuple[Eta, float]:
    """The estimate when a share of the PGs has arrived, and the truth."""
    rng = random.Random(seed)
    sizes = [PG * rng.uniform(0.7, 1.3) for _ in range(pgs)]
    progress, done, copied, second = Arrivals(), 0, 0.0, 0
    asked, estimate = 0, None
    for rate in rates(rng):
        second += 1
        copied, arrived = copied + rate, 0.0
        while done < pgs and copied >= sizes[done]:
            copied, arrived, done = copied - sizes[done], arrived + sizes[done], done + 1
        progress = advance(progress, 1.0, arrived)
        if estimate is None and done >= share * pgs:
            estimate, asked = remaining(progress, sum(sizes[done:]), done, pgs - done), second
        if done == pgs:
            assert estimate is not None
            return estimate, float(second - asked)
    raise AssertionError('not reached')


@pytest.mark.parametrize('rates', [steady, noisy, throttled, held, beginning_slowly])
@pytest.mark.parametrize('pgs, share, width', [(PGS, 0.1, 4.0), (PGS, 0.5, 4.0), (100, 0.1, 8.5)])
def test_the_truth_is_in_the_interval_in_nine_of_ten_runs(
        rates: Rates, pgs: int, share: float, width: float) -> None:
    runs = [campaign(rates, seed, share, pgs) for seed in range(60)]
    inside = sum(eta.low <= truth <= eta.high for eta, truth in runs)
    assert inside >= 0.9 * len(runs)
    assert all(eta.low <= eta.seconds <= eta.high for eta, _ in runs)
    # An interval that holds anything says nothing.
    assert median(eta.high / eta.low for eta, _ in runs) < width


def on_paths(rates: Rates, seed: int, paths: Sequence[int], share: float) -> Tuple[Eta, float]:
    """The estimate when a share of the PGs has arrived, and the truth, if OSDs receive so many PGs
    each, one at a time, all at the same changing rate."""
    rng = random.Random(seed)
    waiting = [[PG * rng.uniform(0.7, 1.3) for _ in range(number)] for number in paths]
    copied = [PG * rng.random() for _ in paths]
    progress, second, done, pgs = Arrivals(), 0, 0, sum(paths)
    estimate, asked = None, 0
    for rate in rates(rng):
        second += 1
        arrived, flying = 0.0, sum(1 for sizes in waiting if sizes)
        for osd, sizes in enumerate(waiting):
            copied[osd] += rate / 10 if sizes else 0.0
            if sizes and copied[osd] >= sizes[0]:
                copied[osd], arrived, done = 0.0, arrived + sizes.pop(0), done + 1
        progress = advance(progress, 1.0, arrived, flying)
        if estimate is None and done >= share * pgs:
            left = [sum(sizes) for sizes in waiting]
            estimate = remaining(progress, sum(left), done, pgs - done,
                                 path_seconds(progress, max(left)))
            asked = second
        if done == pgs:
            assert estimate is not None
            return estimate, float(second - asked)
    raise AssertionError('not reached')


@pytest.mark.parametrize('rates', [steady, noisy, throttled, held, beginning_slowly])
@pytest.mark.parametrize('paths', [[100] * 10, [50] * 9 + [200], [40] * 5 + [80] * 5])
def test_the_osd_with_most_pgs_left_bounds_the_time(rates: Rates, paths: List[int]) -> None:
    """The last PGs of one OSD arrive one by one, after all others."""
    runs = [on_paths(rates, seed, paths, 0.1) for seed in range(30)]
    inside = sum(eta.low <= truth <= eta.high for eta, truth in runs)
    assert inside >= 0.9 * len(runs)
    assert all(eta.low <= eta.seconds <= eta.high for eta, _ in runs)
    assert median(eta.high / eta.low for eta, _ in runs) < 4.5


def test_what_has_not_flown_bounds_nothing() -> None:
    assert path_seconds(Arrivals(), 1e9) == 0.0
    progress = advance(Arrivals(), 10.0, 100.0)
    assert path_seconds(progress, 1e9) == 0.0
    # Two PGs at a time took 10 s for 50 bytes each; half of the time nothing was in flight.
    progress = advance(advance(Arrivals(), 10.0, 100.0, 2), 10.0, 0.0, 0)
    assert path_seconds(progress, 50.0) == 20.0


def test_a_steady_rate_gives_a_narrow_interval() -> None:
    eta, truth = campaign(steady, 1, 0.3)
    assert abs(eta.seconds - truth) < 0.05 * truth and eta.high / eta.low < 2.0


def test_few_pgs_at_a_steady_rate_give_no_order_of_magnitude() -> None:
    """Ten of 100 PGs, within 40 s, are known to a third of their number."""
    eta, truth = campaign(steady, 1, 0.1, 100)
    assert eta.low < truth < eta.high < 5.5 * eta.low


def test_nothing_is_known_before_anything_has_arrived() -> None:
    assert remaining(Arrivals(), 1.0, 0, 1) is None
    assert remaining(advance(Arrivals(), 60.0, 0.0), 1.0, 0, 1) is None
    assert remaining(Arrivals(), 0.0, 0, 0) == Eta(0.0, 0.0, 0.0)


def test_pgs_without_data_take_time_too() -> None:
    progress = advance(Arrivals(), 60.0, 100.0)
    eta = remaining(progress, 0.0, 30, 40)
    assert eta is not None and eta.seconds == 80.0
    assert eta.low == pytest.approx(10.0) and eta.high > 80.0
    empty = remaining(advance(Arrivals(), 60.0, 0.0), 0.0, 30, 15)
    assert empty is not None and empty.seconds == 30.0 and empty.low == pytest.approx(3.75)
    assert remaining(Arrivals(), 0.0, 0, 9) is None


def test_the_first_arrival_gives_a_wide_interval() -> None:
    eta = remaining(advance(Arrivals(), 4.0, 100.0), 900.0, 1, 9)
    assert eta is not None and eta.seconds == 36.0 and eta.high / eta.low > 10


def test_the_history_stays_small_and_loses_nothing() -> None:
    progress, seconds, given = Arrivals(), 0.0, 0.0
    rng = random.Random(8)
    for _ in range(20000):
        step, arrived = rng.uniform(0.3, 5.0), rng.choice([0.0, 0.0, 1e9])
        progress = advance(progress, step, arrived, rng.choice([0, 7]))
        seconds, given = seconds + step, given + arrived
    assert len(progress.blocks) < MOST_BLOCKS
    assert abs(progress.whole_seconds - seconds) < 1e-3 * seconds
    assert abs(progress.whole_bytes - given) < 1e-6 * given
    assert decode(Arrivals, encode(progress)) == progress


def test_blocks_hold_what_arrived_in_them() -> None:
    progress = Arrivals()
    for number in range(4):
        progress = advance(progress, BLOCK_SECONDS, 10.0 * number)
    found: List[float] = list(progress.blocks)
    assert found == [0.0, 10.0, 20.0, 30.0]
