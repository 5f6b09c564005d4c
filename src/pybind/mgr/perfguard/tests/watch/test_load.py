# SPDX-License-Identifier: LGPL-2.1-or-later
"""The load of a pool: its busiest hours, and whether they grow."""
import math
import random
from typing import Any, Callable, List, Sequence

import pytest

from perfguard.codec import Malformed, decode
from perfguard.watch.load import (HOUR_SECONDS, KEPT_DAYS, LEAST_DAYS, DayLoad, LoadGrowth,
                                  PoolLoad, Rates, growth)

from ..test_codec import again

DAY = 24 * HOUR_SECONDS
#: The begin of a day.
BEGIN = 20000 * DAY


def days(ops: Sequence[float]) -> List[DayLoad]:
    return [DayLoad(20000 + number, 24, Rates(0.0, rate)) for number, rate in enumerate(ops)]


def filled(rate: Callable[[float], float], hours: int, begin: float = BEGIN) -> PoolLoad:
    """`rate`: operations per second by hour; a third of them are reads."""
    load = PoolLoad()
    for hour in range(hours):
        for part in (0, 1, 2):
            ops = 1200.0 * rate(hour)
            load.add(begin + HOUR_SECONDS * hour + 1200.0 * part, 1200.0,
                     Rates(ops / 3, ops * 2 / 3, 4096 * ops / 3, 8192 * ops * 2 / 3))
    return load


def test_the_busiest_hour_of_each_day_is_kept() -> None:
    # The busiest hour is the 14th of the first day and the 3rd of the second.
    load = filled(lambda hour: 300.0 if hour in (14, 27) else 30.0, 49)
    first, second = load.days
    assert (first.day, first.hours, second.day, second.hours) == (20000, 24, 20001, 24)
    assert first.busiest == pytest.approx(Rates(100.0, 200.0, 409600.0, 1638400.0))
    now = BEGIN + 49 * HOUR_SECONDS
    assert load.busiest(now).ops == pytest.approx(300.0)
    assert load.busiest(now + 5 * DAY).ops == pytest.approx(300.0)
    assert load.busiest(now + 9 * DAY).ops == pytest.approx(30.0)
    assert load.sized(7.0, 0.0) == pytest.approx(Rates(7.0, 0.0, 7 * 4096.0, 0.0))


def test_an_hour_with_few_readings_does_not_count() -> None:
    load = PoolLoad()
    load.add(BEGIN, 60.0, Rates(0.0, 60000.0))
    load.add(BEGIN + HOUR_SECONDS, 1200.0, Rates(0.0, 1200.0))
    assert load.days == [] and load.growth(BEGIN + DAY) == LoadGrowth(0)


@pytest.mark.parametrize('seconds, rows', [
    (1800.0, [DayLoad(20000, 1, Rates(2.0, 0.0))]), (1799.0, [])])
def test_an_hour_counts_from_half_of_it_on(seconds: float, rows: List[DayLoad]) -> None:
    load = PoolLoad()
    load.add(BEGIN, seconds, Rates(2.0 * seconds))
    load.add(BEGIN + HOUR_SECONDS, 60.0, Rates())
    assert load.days == rows


def test_days_are_stored_when_one_begins_at_a_busier_hour_and_every_six_hours() -> None:
    load = PoolLoad()
    rates = [5.0, 5.0, 7.0, 1.0, 1.0, 7.0, 1.0, 8.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    stored = [load.add(BEGIN + HOUR_SECONDS * hour, HOUR_SECONDS, Rates(HOUR_SECONDS * rate))
              for hour, rate in enumerate(rates)]
    # Each hour is noted when the next one begins.
    assert [hour - 1 for hour, is_new in enumerate(stored) if is_new] == [0, 2, 5, 7, 11]


def test_the_rates_of_late_are_those_of_an_hour_that_is_long_enough() -> None:
    load, rates = PoolLoad(), []
    assert load.lately() == Rates()
    for begin, seconds, ops in ((0.0, 60.0, 5.0), (60.0, 1740.0, 9.0), (3600.0, 1799.0, 2.0),
                                (5399.0, 1.0, 2.0)):
        load.add(BEGIN + begin, seconds, Rates(0.0, seconds * ops))
        rates.append(load.lately().writes)
    assert rates == pytest.approx([5.0, 8.866667, 8.866667, 2.0])


@pytest.mark.parametrize('late, sized', [
    (Rates(2.0, 4.0, 8192.0, 4096.0), Rates(7.0, 5.0, 7 * 4096.0, 5 * 1024.0)),
    (Rates(0.0, 4.0, 0.0, 4096.0), Rates(7.0, 5.0, 0.0, 5 * 1024.0)),
    (Rates(2.0, 0.0, 8192.0, 0.0), Rates(7.0, 5.0, 7 * 4096.0, 0.0))])
def test_operations_have_the_mean_sizes_of_late(late: Rates, sized: Rates) -> None:
    load = PoolLoad()
    load.add(BEGIN, 1.0, late)
    assert load.sized(7.0, 5.0) == sized


def test_the_busiest_hour_of_seven_days_with_today() -> None:
    load = PoolLoad()
    load.load([DayLoad(day, 24, Rates(0.0, ops)) for day, ops in (
        (19993, 9.0), (19994, 7.0), (20000, 5.0), (20001, 11.0))])
    assert load.busiest(BEGIN).ops == 7.0  # neither a week ago nor tomorrow
    assert load.busiest(BEGIN + DAY - 1.0).ops == 7.0
    assert load.busiest(BEGIN + DAY).ops == 11.0


@pytest.mark.parametrize('hours, number', [(20, 3), (19, 2)])
def test_a_day_counts_for_growth_from_twenty_hours_on(hours: int, number: int) -> None:
    load = PoolLoad()
    load.load([DayLoad(19990, 24, Rates()), DayLoad(19991, 24, Rates()),
               DayLoad(19999, hours, Rates())])
    assert load.growth(BEGIN) == LoadGrowth(number)


def test_growth_survives_a_failover_and_is_stored_a_few_times_a_day() -> None:
    load, stored = PoolLoad(), 0
    for hour in range(48):
        stored += load.add(BEGIN + HOUR_SECONDS * hour, HOUR_SECONDS, Rates(0.0, 3600.0))
    assert len(load.days) == 2 and 4 <= stored <= 10
    after = PoolLoad()
    after.load(again(List[DayLoad], load.days))
    assert after.days == load.days


@pytest.mark.parametrize('row', [
    5, [1], [1, 2, 3], [1, 2, ['x']], [1, 2, [-1.0]], [math.nan, 2, [3]], [1, 2, [math.inf]]])
def test_what_is_no_day_is_refused(row: Any) -> None:
    with pytest.raises(Malformed):
        decode(DayLoad, row)


def test_growth_is_not_known_from_a_few_days() -> None:
    for number in range(LEAST_DAYS):
        assert growth(days([100.0 * (1 + day) for day in range(number)])) == LoadGrowth(number)
    assert growth(days([100.0 * (1 + day) for day in range(LEAST_DAYS)])) == LoadGrowth(
        LEAST_DAYS, 100.0)


def test_a_week_with_quiet_weekends_does_not_grow() -> None:
    """Whatever day it begins on; and a week that grows does, by its own slope."""
    for begin in range(7):
        week = [20.0 if (begin + day) % 7 in (5, 6) else 100.0 for day in range(28)]
        assert growth(days(week)).per_day is None
        grown = growth(days([ops + 2.0 * day for day, ops in enumerate(week)]))
        assert grown.per_day == pytest.approx(2.0)


@pytest.mark.parametrize('rising, grows', [(1, False), (2, True)])
def test_how_many_days_of_the_week_have_to_grow(rising: int, grows: bool) -> None:
    """Of three weeks, the variance of Kendall's score is 11/3 for each day of the week: the score
    has to be above 1.96 * (77/3) ** 0.5 + 1 = 10.9."""
    ops = [100.0 + (week if day < rising else (0, 2, 1)[week])  # scores 3 and 1
           for week in range(3) for day in range(7)]
    assert (growth(days(ops)).per_day is not None) is grows


def test_one_busy_day_is_no_growth() -> None:
    ops = [100.0] * 28
    ops[-1] = 1e6
    assert growth(days(ops)).per_day is None
    assert growth(days([ops - day for day, ops in enumerate(ops)])).per_day is None


def test_days_that_vary_by_chance_grow_rarely() -> None:
    """2.5 % of them, on the side of growth, with a test of 5 % on both sides."""
    rnd = random.Random(5)
    grows = sum(growth(days([rnd.lognormvariate(5.0, 0.4) for _ in range(56)])).per_day is not None
                for _ in range(400))
    assert grows <= 20
    slopes = [growth(days([rnd.gauss(100.0 + 2.0 * day, 10.0) for day in range(56)])).per_day
              for _ in range(50)]
    assert all(slope is not None and 1.5 < slope < 2.5 for slope in slopes)


def test_a_quarter_is_kept() -> None:
    load = filled(lambda hour: 10.0 + hour // 24, 24 * 120)
    assert len(load.days) == KEPT_DAYS
    now = BEGIN + 120 * DAY
    assert load.growth(now).per_day == pytest.approx(1.0)
    # Today is not complete.
    assert load.growth(now - 3600.0).days == load.growth(now).days - 1


def test_a_day_that_two_mgrs_have_stored_is_one() -> None:
    """The clock of the first one was a day ahead."""
    load = filled(lambda hour: 10.0, 24 * 30 + 21)
    after = PoolLoad()
    after.load(load.days)
    today = BEGIN + 29 * DAY
    for hour in range(20, 60):
        after.add(today + HOUR_SECONDS * hour, HOUR_SECONDS, Rates(0.0, 3600.0 * 11.0))
    numbers = [row.day for row in after.days]
    assert numbers == sorted(set(numbers)) and numbers[-1] == 20031
    assert after.growth(today + 60 * HOUR_SECONDS).days == 31
    after.load([*load.days, *load.days])
    assert after.days == load.days
