# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a pool's alarm is measured from: levels that recur are accepted, degradation is not."""
import json
import math
from typing import Any, Callable, List

import pytest

from perfguard.codec import Malformed, decode, encode
from perfguard.watch.pools import AlarmLevel

HOUR, DAY = 3600.0, 86400.0
FACTOR = 3.0
#: Thursday, 00:00 UTC.
START = 1000 * 7 * DAY
#: Latency in ms of an hour since the start.
Pattern = Callable[[int], float]


class Hours:
    """One reading per hour, which lasts."""

    def __init__(self, baseline_ms: float = 1.0) -> None:
        self.level, self.hour, self.baseline_ms = AlarmLevel(), 0, baseline_ms

    def play(self, days: float, pattern: Pattern) -> List[float]:
        """The days of hours in which the alarm was raised."""
        raised = []
        for _ in range(round(days * 24)):
            now = START + self.hour * HOUR + 60.0
            self.level.review(now, self.baseline_ms, FACTOR)
            ms, base_ms = pattern(self.hour), FACTOR * self.level.base_ms(self.baseline_ms)
            if ms > max(base_ms, FACTOR * (self.level.accepted_ms(now) or 0.0)):
                raised.append(self.hour / 24)
            self.level.note(now, 60.0, ms if ms > base_ms else None, 60.0)
            self.hour += 1
        return raised


def batch(ms: float = 20.0, *hours: int, days: int = 1) -> Pattern:
    """In these hours of each day, or of each so many days."""
    return lambda hour: ms if hour % 24 in hours and hour // 24 % days == 0 else 1.0


def test_a_nightly_batch_raises_the_alarm_on_three_days_and_only_then_in_its_hours() -> None:
    hours = Hours()
    raised = hours.play(28, batch(20.0, 2, 3))
    assert [round(day, 2) for day in raised] == [0.08, 0.12, 1.08, 1.12, 2.08, 2.12]
    assert hours.play(1, batch(20.0, 2, 3, 12)) == [28.5], 'not accepted at noon'
    assert hours.play(1, batch(70.0, 2)) == pytest.approx([29 + 2 / 24]), 'slower than accepted'


def test_a_batch_may_begin_an_hour_later_or_pause_for_some_days() -> None:
    hours = Hours()
    hours.play(7, batch(20.0, 2))
    assert hours.play(1, batch(20.0, 3)) == [] and hours.play(1, batch(20.0, 1)) == []
    hours.play(3, batch())
    assert hours.play(1, batch(20.0, 2)) == []


def test_a_weekly_batch_is_accepted_in_the_third_week() -> None:
    hours = Hours()
    assert [int(day) for day in hours.play(60, batch(20.0, 2, days=7))] == [0, 7]


def test_what_recurs_no_more_is_forgotten() -> None:
    hours = Hours()
    hours.play(7, batch(20.0, 2))
    assert hours.play(30, batch()) == []
    assert len(hours.play(5, batch(20.0, 2))) == 3, 'and learned again'
    assert (list(hours.level.daily), hours.level.weekly) == ([1, 2, 3], {})


def test_single_incidents_are_not_accepted() -> None:
    hours = Hours()
    for start in range(0, 60, 5):
        incident = 24 * start + start % 24
        assert len(hours.play(5, lambda hour: 20.0 if hour == incident else 1.0)) == 1


def test_a_step_raises_the_alarm_for_three_days() -> None:
    raised = Hours().play(30, lambda hour: 20.0)
    assert len(raised) == pytest.approx(72, abs=2) and raised[-1] < 3.01


def test_a_slow_degradation_raises_the_alarm_with_each_factor() -> None:
    """One percent per day; the baseline follows."""
    hours, raised = Hours(), []
    for day in range(260):
        hours.baseline_ms = 1.01 ** day
        raised += hours.play(1, lambda hour: 1.01 ** day)
    days = sorted(set(map(int, raised)))
    assert days[:3] == [days[0], days[0] + 1, days[0] + 2] and 105 < days[0] < 140
    assert 6 <= len(days) <= 8 and 230 < days[-1] < 260


def test_a_fast_week_of_many_is_no_standard() -> None:
    """A week of holidays."""
    hours = Hours()
    for week in range(12):
        hours.baseline_ms = 0.2 if week == 8 else 1.0
        assert not hours.play(7, lambda hour: hours.baseline_ms)
    assert hours.level.base_ms(1.0) == 1.0
    for week in range(12):
        hours.baseline_ms = 0.2
        hours.play(7, lambda hour: 0.2)
    assert hours.level.base_ms(0.2) == 0.2


def test_a_latency_has_to_last() -> None:
    level = AlarmLevel()
    for ms in (9.0, 9.0, None, 9.0, 7.0, 8.0, 8.0):
        level.note(START, 20.0, ms, 60.0)
    assert list(level.high.values()) == [7.0]


def test_state_is_small_and_survives() -> None:
    hours = Hours()
    hours.play(250, lambda hour: 20.0 if hour % 24 < 12 else 1.0)
    document = json.dumps(encode(hours.level))
    assert len(document) < 12000
    later = Hours()
    later.level = decode(AlarmLevel, json.loads(document))
    later.hour = hours.hour
    assert encode(later.level) == encode(hours.level)
    assert later.play(3, batch(20.0, 2)) == []


@pytest.mark.parametrize('wrong', [
    {'high': []}, {'daily': {'x': 1.0}}, {'daily': {'5': -1.0}}, {'weekly': {'6': 'y'}},
    {'baselines': {}}, {'baselines': [math.nan]}, {'baselines': [10 ** 400]}, {'week': 'x'}])
def test_what_is_no_level_is_refused(wrong: Any) -> None:
    with pytest.raises(Malformed):
        decode(AlarmLevel, wrong)
