# SPDX-License-Identifier: LGPL-2.1-or-later
"""Histories, and hysteresis."""
import random
from typing import List, Optional, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfguard.codec import Malformed, decode
from perfguard.watch.series import (History, HistoryPoint, Rows, Series, flow_of, mean_flow, recent,
                                    recent_total)
from perfguard.watch.types import Alarm, Flow

from ..test_codec import again


def test_a_series_keeps_the_newest() -> None:
    rnd = random.Random(5)
    for length in (1, 2, 7):
        series = Series(2, length)
        expected: List[HistoryPoint] = []
        for number in range(30):
            values = (rnd.random(), rnd.random())
            series.add(float(number), 1.0, values)
            expected = [*expected, HistoryPoint(float(number), 1.0, values)][-length:]
            assert series.points() == expected and len(series) == len(expected)
            for last in range(1, length + 2):
                assert series.points(last) == expected[-last:]


def test_an_empty_series() -> None:
    assert Series(3, 5).points() == Series(3, 5).points(2) == [] and len(Series(3, 5)) == 0


def test_readings_are_summed_up_to_points() -> None:
    series = Series(1, 10, seconds=10.0)
    for number in range(1, 8):
        series.add(100.0 + 4 * number, 4.0, (1.0,))
    assert series.points() == [(112.0, 12.0, (3.0,)), (124.0, 12.0, (3.0,))]


def test_a_reading_that_completes_a_point_is_reported() -> None:
    series = Series(1, 10, seconds=10.0)
    assert [series.add(100.0 + 5 * number, 5.0, (1.0,)) for number in range(5)] == [
        False, True, False, True, False]
    assert series.row_size == 3 and list(series.flat(1)) == [115.0, 10.0, 2.0]
    assert list(series.flat(9)) == [105.0, 10.0, 2.0, 115.0, 10.0, 2.0]


@pytest.mark.parametrize('sums', [(), (1.0,), (1.0, 2.0, 3.0)])
def test_a_reading_of_another_width_is_refused(sums: Sequence[float]) -> None:
    series = Series(2, 5, seconds=10.0)
    series.add(1000.0, 5.0, (1.0, 2.0))
    with pytest.raises(ValueError, match=r'^%d sums for a series of 2 columns$' % len(sums)):
        series.add(1005.0, 5.0, sums)
    # The open point is as it was.
    assert series.add(1005.0, 5.0, (1.0, 2.0))
    assert series.points() == [(1005.0, 10.0, (2.0, 4.0))]


def test_the_recent_past_is_a_minute() -> None:
    series = Series(1, 99)
    for number in range(30):
        series.add(100.0 + 5 * number, 5.0, (float(number),))
    assert [point.end for point in recent(series, 245.0, 5.0)] == [
        190.0 + 5 * number for number in range(12)]
    assert recent_total(series, 245.0, 5.0) == (245.0, 60.0, (sum(range(18, 30)),))
    shorter = Series(1, 99)
    for number in range(30):
        shorter.add(100.0 + 4.5 * number, 4.5, (1.0,))
    assert len(recent(shorter, 230.5, 5.0)) == 14
    # Of points every second, no more are read than fill it.
    assert len(recent(series, 245.0, 0.5)) == 12
    assert recent(series, 305.0, 5.0) == [] and recent_total(series, 305.0, 5.0) is None
    assert recent(series, 304.9, 5.0) == [(245.0, 5.0, (29.0,))]


def test_the_flow_of_several_points() -> None:
    points = [HistoryPoint(5.0, 5.0, (10.0, 4e6)), HistoryPoint(10.0, 5.0, (30.0, 4e6))]
    assert mean_flow(points, 0, 1) == Flow(4.0, 0.2)
    assert mean_flow([], 0, 1) == Flow() == flow_of(0.0, 5.0, 1.0) == flow_of(5.0, 0.0, 1.0)


@pytest.mark.parametrize('number, is_amount', [
    (0.0, True), (9.9e23, True), (1e24, False), (-0.001, False)])
def test_the_bounds_of_stored_numbers(number: float, is_amount: bool) -> None:
    if is_amount:
        assert decode(Rows, [[number]]) == ((number,),)
    else:
        with pytest.raises(Malformed):
            decode(Rows, [[number]])


def test_condensed_history_loses_nothing_but_detail() -> None:
    rnd = random.Random(11)
    history = History(1, detailed=10, condensed=1000)
    total = seconds = 0.0
    for number in range(5000):
        value, length = float(rnd.randint(0, 100)), rnd.choice((4.5, 5.0, 60.0))
        total, seconds = total + value, seconds + length
        history.add(float(number), length, (value,))
    points = history.condensed.points()
    missing = total - sum(point.sums[0] for point in points)
    assert 0 <= seconds - sum(point.seconds for point in points) < 600 and 0 <= missing < 13400
    assert all(600 <= point.seconds < 660 for point in points)
    assert len(history.detailed) == 10


def test_a_series_survives_as_json() -> None:
    series, other = Series(2, 5), Series(2, 5)
    for number in range(8):
        series.add(1000.0 + number, 1.0, (number, 2.5))
    other.load(again(Rows, series.rows()))
    assert other.points() == series.points()


@pytest.mark.parametrize('row', [[], [1.0, 2.0], [1.0, 2.0, 3.0, 4.0, 5.0]])
def test_a_point_of_another_width_is_not_loaded(row: List[float]) -> None:
    series = Series(2, 5)
    series.load([[9.0, 1.0, 2.0, 3.0], row])
    assert series.points() == [(9.0, 1.0, (2.0, 3.0))]


@pytest.mark.parametrize('row', [None, ['a', 1.0], [[1], 1.0], {'end': 1}, [-1.0], [1e300]])
def test_what_is_no_point_is_refused(row: object) -> None:
    with pytest.raises(Malformed):
        decode(Rows, [row])


# ---- alarm

def fed(readings: Sequence[Optional[bool]], raise_after: float = 15.0, clear_after: float = 10.0,
        alarm: Optional[Alarm] = None) -> List[bool]:
    alarm = alarm or Alarm()
    states = []
    for number, holds in enumerate(readings):
        alarm.update(1000.0 + 5 * number, 5.0, holds, raise_after, clear_after)
        states.append(alarm.raised)
    return states


YES, NO, UNKNOWN = True, False, None


def test_raised_after_a_while_and_cleared_after_a_while() -> None:
    assert fed([YES, YES, YES, NO, NO, NO]) == [False, False, True, True, False, False]


def test_one_other_reading_starts_the_while_again() -> None:
    assert not any(fed([YES, YES, NO] * 10))
    assert all(fed([NO, YES] * 10, alarm=Alarm(True, 500.0)))


def test_no_evidence_changes_nothing() -> None:
    assert fed([YES, YES, UNKNOWN, YES]) == [False, False, False, True]
    assert all(fed([UNKNOWN] * 50, alarm=Alarm(True, 500.0)))
    assert fed([NO, UNKNOWN, UNKNOWN, NO], alarm=Alarm(True, 500.0)) == [True, True, True, False]


def test_without_a_while_it_follows_at_once() -> None:
    assert fed([YES, NO, YES], 0.0, 0.0) == [True, False, True]


def test_since_is_when_the_trouble_began() -> None:
    alarm = Alarm()
    for now, holds in ((1000.0, YES), (1005.0, NO), (1010.0, YES), (1015.0, YES), (1020.0, YES)):
        alarm.update(now, 5.0, holds, 15.0, 10.0)
    assert alarm.raised and alarm.since == 1005.0
    alarm.update(1025.0, 5.0, NO, 15.0, 10.0)
    assert alarm.since == 1005.0
    alarm.update(1030.0, 5.0, NO, 15.0, 10.0)
    assert not alarm.raised and alarm.since == 0.0


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([1.0, 5.0, 5.5, 30.0]), max_size=40), st.integers(1, 20),
       st.sampled_from([0.0, 7.0, 59.0, 61.0]))
def test_the_total_is_that_of_the_recent_points(steps: List[float], length: int,
                                                later: float) -> None:
    """Also where the ring buffer wraps around."""
    series, now = Series(2, length), 1000.0
    for number, step in enumerate(steps):
        now += step
        series.add(now, 5.0, (number, 2.0 * number))
    points = recent(series, now + later, 5.0)
    total = recent_total(series, now + later, 5.0)
    assert (total is None) == (not points)
    if total is not None:
        assert total.end == points[-1].end and total.seconds == 5.0 * len(points)
        assert total.sums == tuple(sum(point.sums[column] for point in points)
                                   for column in (0, 1))
