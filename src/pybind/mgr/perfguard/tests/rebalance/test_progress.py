# SPDX-License-Identifier: LGPL-2.1-or-later
"""The time left lies in the interval in 9 of 10 campaigns, however their rates change."""
import math
import random
from statistics import median
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import pytest

from perfguard.codec import decode, encode
from perfguard.errors import Code, Reason
from perfguard.rebalance.progress import (BLOCK_SECONDS, MOST_BLOCKS, MOST_CODES, Arrivals, Eta,
                                          Limits, Progress, advance, charge, in_minutes, limit_of,
                                          path_seconds, remaining, shares)

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


# ---- To the digit

def test_bytes_are_spread_over_the_blocks_of_their_time() -> None:
    progress = advance(advance(Arrivals(), 2.0, 0.0), 10.0, 120.0, in_flight=3)
    assert progress == Arrivals((50, 50), 5.0, 2.0, 20, flown=30.0, busy=10.0)
    assert (progress.whole_seconds, progress.whole_bytes) == (12.0, 120)


def test_pairs_of_blocks_are_merged() -> None:
    progress = Arrivals(tuple(range(MOST_BLOCKS - 2)))
    progress = advance(progress, BLOCK_SECONDS, 62.0)
    assert progress.blocks == tuple(range(63)) and progress.length == 5.0
    progress = advance(progress, BLOCK_SECONDS, 63.0)
    assert progress.blocks == tuple(4 * pair + 1 for pair in range(32))
    assert progress.length == 10.0


@pytest.mark.parametrize('arrivals, seconds', [
    (Arrivals((100,), flown=10.0, busy=4.0), 12.5), (Arrivals((100,), flown=10.0, busy=5.0), 10.0),
    (Arrivals((1,), flown=10.0, busy=0.5), 10000.0),
    (Arrivals((0,), flown=10.0, busy=5.0), 0.0), (Arrivals((100,), flown=10.0), 0.0)])
def test_the_time_of_bytes_that_move_one_pg_at_a_time(arrivals: Arrivals, seconds: float) -> None:
    assert path_seconds(arrivals, 100.0) == seconds


#: Of 100 of 200 PGs, at a rate that does not vary.
BY_NUMBER = 1.96 * 0.02 ** 0.5
#: Blocks of 5 s; their first and second half differ threefold: variance of the rates of 4 and of 8
#: batches, relative to the squared rate.
VARIED = 3.18 * (400 / 3 * 10 / 400 * (1 / 40 + 1 / 40)) ** 0.5
VARIED_LONGER = 3.18 * (400 / 3 * 10 / 400 * (1 / 40 + 1 / 60)) ** 0.5


@pytest.mark.parametrize('blocks, slowest, seconds, low, high, error', [
    ((100,) * 8, 0.0, 40.0, 40.0, 40.0, BY_NUMBER),
    # The slowest OSD.
    ((100,) * 8, 60.0, 60.0, 60.0, 60.0, BY_NUMBER),
    ((100,) * 8, 39.0, 40.0, 40.0, 40.0, BY_NUMBER),
    # Three times as fast of late, or as slow: 600 of 800 bytes in 20 s, or 200.
    ((50,) * 4 + (150,) * 4, 0.0, 40.0, 80 / 3, 40.0, math.hypot(BY_NUMBER, VARIED)),
    ((150,) * 4 + (50,) * 4, 0.0, 40.0, 40.0, 80.0, math.hypot(BY_NUMBER, VARIED)),
    # The slowest OSD is faster of late as well.
    ((50,) * 4 + (150,) * 4, 60.0, 60.0, 40.0, 60.0, math.hypot(BY_NUMBER, VARIED_LONGER)),
    ((150,) * 4 + (50,) * 4, 60.0, 60.0, 60.0, 80.0, math.hypot(BY_NUMBER, VARIED_LONGER)),
    # No more than twice as long.
    ((200,) * 4 + (0,) * 4, 0.0, 40.0, 5.0, 320.0, 0.0),
    ((196,) * 4 + (4,) * 4, 0.0, 40.0, 5.0, 640.0, 0.0),
    # One block says nothing of how much rates vary.
    ((800,), 0.0, 5.0, 5 / 8, 40.0, 0.0),
    # Two are enough: rates of 20 and 140 bytes/s.
    ((390, 410), 0.0, 10.0, 80 / 8.2, 10.0,
     math.hypot(BY_NUMBER, 12.71 * (2 * 2.0 ** 2 * 5 / 80 ** 2 * (1 / 10 + 1 / 10)) ** 0.5)),
    # A ninth block does not fill a batch.
    ((0,) + (100,) * 8, 0.0, 45.0, 40.0, 45.0, BY_NUMBER)])
def test_the_time_left(blocks: Tuple[int, ...], slowest: float, seconds: float, low: float,
                       high: float, error: float) -> None:
    """Of 1600 bytes, half have arrived. `low`, `high`: the estimates whose error bounds the
    interval."""
    assert remaining(Arrivals(blocks), 800.0, 100, 100, slowest) == pytest.approx(
        Eta(seconds, low * math.exp(-error), high * math.exp(error)))


@pytest.mark.parametrize('done, left', [(0, 100), (100, 0)])
def test_the_time_left_without_a_pg_on_one_side(done: int, left: int) -> None:
    error = 1.96 * 1.01 ** 0.5
    assert remaining(Arrivals((100,) * 8), 800.0, done, left) == pytest.approx(
        Eta(40.0, 40.0 * math.exp(-error), 40.0 * math.exp(error)))


def test_the_time_of_pgs_without_data() -> None:
    progress = Arrivals((0,) * 8)
    assert remaining(progress, 0.0, 100, 100) == pytest.approx(
        Eta(40.0, 5.0, 40.0 * math.exp(BY_NUMBER)))
    assert remaining(progress, 0.0, 0, 9) is None
    assert remaining(Arrivals((0,)), 1.0, 9, 9) is None


# ---- Limits

@pytest.mark.parametrize('codes, releasing, in_flight, allowed, waiting, expected', [
    # What prevents all releases: the first reason.
    ([Code.WINDOW_CLOSED, Code.PEERING], False, 0, 8, 9, Code.WINDOW_CLOSED),
    ([], False, 0, 8, 9, Code.NO_LIMIT),
    # Nothing waits for its release.
    ([Code.LATENCY_OK, Code.PEERING], True, 1, 8, 0, Code.IN_FLIGHT),
    ([Code.LATENCY_OK, Code.PEERING], True, 0, 8, 0, Code.PEERING),
    ([], True, 0, 8, 0, Code.NO_LIMIT),
    # As many are in flight as the throttle, or the operator, allows.
    ([Code.LATENCY, Code.PEERING], True, 8, 8, 9, Code.LATENCY),
    ([Code.LATENCY, Code.PEERING], True, 16, 16, 9, Code.CAP_PGS),
    ([], True, 8, 8, 9, Code.CAP_PGS),
    # Further ones would be allowed: the last reason not to release them.
    ([Code.LATENCY_OK, Code.PEERING, Code.BATCH], True, 7, 8, 9, Code.BATCH),
    ([Code.LATENCY_OK, Code.BATCH, Code.TARGET_FULL], True, 7, 8, 9, Code.BATCH),
    # Else the PGs that are no candidates.
    ([Code.LATENCY_OK, Code.DEGRADED, Code.TARGET_FULL], True, 7, 8, 9, Code.TARGET_FULL),
    ([Code.LATENCY_OK, Code.WINDOW_CLOSED], True, 7, 8, 9, Code.WINDOW_CLOSED),
    ([Code.LATENCY_OK], True, 7, 8, 9, Code.NO_LIMIT)])
def test_the_limit_of_a_turn(codes: List[str], releasing: bool, in_flight: int, allowed: int,
                             waiting: int, expected: str) -> None:
    """At most 16 PGs may be in flight."""
    reasons = [Reason(code, 'text') for code in codes]
    assert limit_of(reasons, releasing, in_flight, allowed, 16, waiting) == expected


def test_the_time_of_a_turn_counts_for_its_limit() -> None:
    limits = charge(charge(charge(Limits(), 'A', 4.5), 'B', 30.5), 'A', 0.5)
    assert limits == Limits({'A': 5.0, 'B': 30.0}, 'A')
    assert shares(limits) == {'A': 5 / 35, 'B': 30 / 35} and shares(Limits()) == {}


@pytest.mark.parametrize('number, key', [(MOST_CODES - 1, 'NEW'), (MOST_CODES, Code.OTHER)])
def test_further_limits_count_together(number: int, key: str) -> None:
    before: Dict[str, float] = {'A%d' % code: 1.0 for code in range(number)}
    assert charge(Limits(before), 'NEW', 2.0).seconds == {**before, key: 2.0}
    assert charge(Limits(before), 'A0', 2.0).seconds == {**before, 'A0': 3.0}


@pytest.mark.parametrize('seconds, minutes', [(59.9, 0.0), (60.0, 1.0), (119.9, 1.0)])
def test_limits_are_stored_once_a_minute(seconds: float, minutes: float) -> None:
    assert in_minutes(Limits({'A': seconds - 9.0, 'B': 9.0}, 'B')) == Limits({'': minutes})


@pytest.mark.parametrize('bytes_done, seconds, rate', [
    (100, 4.0, 25.0), (1, 0.5, 2.0), (0, 4.0, None), (100, 0.0, None)])
def test_the_rate_of_a_campaign(bytes_done: int, seconds: float, rate: Optional[float]) -> None:
    assert Progress(bytes_done=bytes_done, moving_seconds=seconds).rate == rate
