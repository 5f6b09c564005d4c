# SPDX-License-Identifier: LGPL-2.1-or-later
"""Client operations by latency: slow ones, and those of quiet time."""
import random
from typing import Sequence

import pytest

from perfguard.cluster.types import LatencyCounts
from perfguard.watch.op_counts import HALF_LIFE_SECONDS, OpCounts, QuietOps, Tail, tail_of

#: As Ceph's: 100 us and its doubles.
BOUNDS = (0, *(100000 << number for number in range(30)))


def counts(*read: int, seconds: float = 30.0, age: float = 5.0) -> LatencyCounts:
    """In the buckets from 51 ms to 102 ms on."""
    return LatencyCounts(3, seconds, BOUNDS, (*[0] * 11, *read, *[0] * (21 - len(read))),
                         (0,) * 32, age)


def test_a_limit_inside_a_bucket() -> None:
    assert BOUNDS[11] == 102400000
    tail = tail_of(BOUNDS, counts(1000, 8).read)
    assert tail.ops == 1008 and tail.very_slow == 0
    assert tail.slow == pytest.approx(8 + 1000 * (1 / 100 - 1 / 102.4) / (1 / 51.2 - 1 / 102.4))
    assert tail_of(BOUNDS, counts(0, 0, 0, 0, 100, 5).read).very_slow == pytest.approx(
        5 + 100 * (1 / 1000 - 1 / 1638.4) / (1 / 819.2 - 1 / 1638.4))
    assert tail_of(BOUNDS, (0,) * 31 + (4,)) == Tail(4, 4, 4)


@pytest.mark.parametrize('bounds, read, tail', [
    # The limits lie between two buckets.
    ((50000000, 100000000, 1000000000), (1, 2, 4, 8), Tail(15, 12, 8)),
    # In the middle of a bucket: (1/100 - 1/150) / (1/50 - 1/150) = 1/4 of it.
    ((50000000, 150000000), (0, 8, 1), Tail(9, 3, 0)),
    ((), (), Tail())])
def test_the_operations_over_a_limit(
        bounds: Sequence[int], read: Sequence[int], tail: Tail) -> None:
    assert tuple(tail_of(bounds, read)) == pytest.approx(tuple(tail))


def test_tails_add_up_to_hundredths() -> None:
    assert Tail(1.0, 0.333, 0.004).plus(Tail(2.0, 0.333, 0.002)) == Tail(3.0, 0.67, 0.01)


def test_buckets_of_reads_and_of_writes_add_up() -> None:
    one, two = (LatencyCounts(3, 30.0, (1, 2), read, write) for read, write in (
        ((1, 2, 0), (0, 0, 4)), ((10, 0, 0), (5, 0, 0))))
    counts = OpCounts().plus(one).plus(two)
    assert counts == OpCounts((1, 2), (11, 2), (5, 0, 4))
    assert counts.faded(HALF_LIFE_SECONDS) == OpCounts((1, 2), (5.5, 1.0), (2.5, 0.0, 2.0))


def test_the_number_of_slow_operations_is_close_to_the_true_one() -> None:
    chance = random.Random(5)
    values = [chance.lognormvariate(16.0, 1.6) for _ in range(100000)]
    read = [0] * 32
    for value in values:
        read[sum(value >= bound for bound in BOUNDS)] += 1
    tail = tail_of(BOUNDS, read)
    assert tail.slow == pytest.approx(sum(value > 1e8 for value in values), rel=0.1)
    assert tail.very_slow == pytest.approx(sum(value > 1e9 for value in values), rel=0.2)


def test_sums_leave_out_empty_buckets() -> None:
    found = OpCounts().plus(counts(5)).plus(counts(0, 2))
    assert found.read == (*[0] * 11, 5, 2) and found.write == ()
    assert found.levels.read.p99_ms == pytest.approx(102.4 + 102.4 * (0.99 * 7 - 5) / 2)
    assert found.levels.write.p99_ms is None
    other = counts(1)._replace(bounds=(1, 2))
    assert found.plus(other) == found


def test_quiet_operations_are_those_of_wholly_quiet_intervals() -> None:
    quiet = QuietOps()
    assert quiet.summed_counts is None
    quiet.update(1000.0, True, [counts(7)])
    assert quiet.summed_counts is None, 'most of it was before this mgr knew'
    quiet.update(1040.0, True, [counts(7)])
    quiet.update(1045.0, False, [counts(100)])
    quiet.update(1050.0, True, [counts(100)])
    assert quiet.summed_counts is not None and sum(quiet.summed_counts.read) == 7
    quiet.update(1085.0, True, [counts(4)])
    assert sum(quiet.summed_counts.read) == 11


@pytest.mark.parametrize('age, counted', [(5.0, 7), (5.01, 0)])
def test_a_sample_is_quiet_from_its_first_second_on(age: float, counted: int) -> None:
    quiet = QuietOps()
    quiet.update(1000.0, True, [])
    quiet.update(1035.0, True, [counts(7, seconds=30.0, age=age)])
    assert sum(quiet.summed_counts.read if quiet.summed_counts else ()) == counted


def test_what_is_known_of_quiet_operations() -> None:
    quiet = QuietOps()
    for now in (0.0, 100.0):
        quiet.update(now, True, [LatencyCounts(3, 30.0, (1, 2), (1, 2, 3), (4, 0, 0))])
    quiet.update(100.0 + HALF_LIFE_SECONDS, True, [
        LatencyCounts(4, 30.0, (1, 2), (1, 0, 0), (0, 0, 0))])
    assert quiet.summed_counts == LatencyCounts(-1, 0.0, (1, 2), (2, 1, 2), (2,))


def test_quiet_operations_lose_their_weight() -> None:
    quiet = QuietOps()
    for now in (1000.0, 1100.0):
        quiet.update(now, True, [counts(1000, seconds=50.0)])
    quiet.update(1100.0 + HALF_LIFE_SECONDS, True, [counts(0, 8)])
    assert quiet.summed_counts is not None and sum(quiet.summed_counts.read) == 508
