# SPDX-License-Identifier: LGPL-2.1-or-later
"""Time windows, and the other options that are text."""
import time
from dataclasses import replace
from typing import List, Tuple

import pytest

from perfguard.options import DEFAULTS
from perfguard.rebalance.settings import problems
from perfguard.watch.pools import BadLimit, latency_limits_ms, named_target, target_ms
from perfguard.window import BadWindow, Window, is_open, opens_in, seconds_until_done, window

from .fakes.zones import in_zone

HOUR, DAY = 3600.0, 86400.0
#: A Sunday, 00:00 UTC.
SUNDAY = 1700352000.0
NIGHT = window('2200', '0600', 0, 0)
WORKDAYS = window('0000', '2400', 1, 6)


pytestmark = pytest.mark.usefixtures('utc')


def hours(when: Window, day: int = 0) -> List[int]:
    return [hour for hour in range(24) if is_open(when, SUNDAY + day * DAY + hour * HOUR)]


def test_by_default_it_is_always_open() -> None:
    always = window(DEFAULTS.begin_time, DEFAULTS.end_time, DEFAULTS.begin_weekday,
                    DEFAULTS.end_weekday)
    assert always.always and hours(always) == list(range(24))
    assert opens_in(always, SUNDAY) == 0.0 and seconds_until_done(always, SUNDAY, 7.5) == 7.5


def test_over_midnight() -> None:
    assert hours(NIGHT) == [0, 1, 2, 3, 4, 5, 22, 23]
    assert opens_in(NIGHT, SUNDAY + 6 * HOUR) == 16 * HOUR
    assert opens_in(NIGHT, SUNDAY + 5.9 * HOUR) == 0.0


def test_weekdays() -> None:
    assert [day for day in range(7) if hours(WORKDAYS, day)] == [1, 2, 3, 4, 5]
    weekend = window('0800', '2400', 6, 1)
    assert [day for day in range(7) if hours(weekend, day)] == [0, 6]
    assert opens_in(WORKDAYS, SUNDAY + 12 * HOUR) == 12 * HOUR
    assert opens_in(weekend, SUNDAY + DAY) == 5 * DAY + 8 * HOUR


def test_work_rests_while_it_is_shut() -> None:
    assert seconds_until_done(NIGHT, SUNDAY, 6 * HOUR) == 6 * HOUR
    assert seconds_until_done(NIGHT, SUNDAY, 7 * HOUR) == 23 * HOUR
    assert seconds_until_done(NIGHT, SUNDAY + 12 * HOUR, 8 * HOUR) == 18 * HOUR
    assert seconds_until_done(NIGHT, SUNDAY, 80 * HOUR) == pytest.approx(
        10 * DAY - 2 * HOUR + 0 * HOUR, abs=2 * HOUR)
    assert seconds_until_done(WORKDAYS, SUNDAY, 1.0) == DAY + 1.0


def test_minutes_count() -> None:
    when = window('1215', '1245', 0, 0)
    noon = SUNDAY + 12 * HOUR
    assert not is_open(when, noon + 14.9 * 60) and is_open(when, noon + 15 * 60)
    assert is_open(when, noon + 44.9 * 60) and not is_open(when, noon + 45 * 60)


@pytest.mark.parametrize('zone', ['Europe/Berlin', 'America/New_York', 'Australia/Lord_Howe'])
def test_where_clocks_are_changed(zone: str) -> None:
    with in_zone(zone):
        for day in range(0, 400, 3):
            now = SUNDAY + day * DAY + 1234.0
            seconds = opens_in(NIGHT, now)
            assert seconds is not None and 0.0 <= seconds <= 17 * HOUR
            assert is_open(NIGHT, now + seconds)


@pytest.mark.parametrize('zone, begin, end, weekdays, now, seconds', [
    # The clock goes from 2:00 to 3:00, so 2:30 does not exist.
    ('America/New_York', '0230', '0330', (6, 1), (2017, 3, 11, 21, 10), 17400.0),
    ('Europe/Berlin', '0215', '0400', (6, 1), (2017, 3, 26, 0, 20), 6000.0),
    # It goes from 2:00 to 1:00, so 1:15 is open twice.
    ('America/New_York', '0030', '0115', (0, 0), (2017, 11, 5, 1, 20), 2400.0),
    # 3:10 in summer time is 2:10.
    ('Europe/Berlin', '0245', '0430', (0, 0), (2017, 10, 29, 3, 10), 2100.0)])
def test_times_that_the_clock_skips_or_repeats(
        zone: str, begin: str, end: str, weekdays: Tuple[int, int],
        now: Tuple[int, int, int, int, int], seconds: float) -> None:
    with in_zone(zone):
        # The first of two, where the clock repeats the hour.
        at = time.mktime((*now, 0, 0, 0, int(now[1] > 9)))
        assert opens_in(window(begin, end, *weekdays), at) == seconds


@pytest.mark.parametrize('begin, end', [('0800', '0800'), ('2400', '0000'), ('0000', '0000'),
                                        ('8', '1000'), ('1\u00b200', '1400'),
                                        ('0860', '1000'), ('2500', '1000'),
                                        ('', '1000'), ('0800', '08:0'), ('-800', '1000')])
def test_what_is_no_window(begin: str, end: str) -> None:
    with pytest.raises(BadWindow):
        window(begin, end, 0, 0)


def test_targets() -> None:
    assert latency_limits_ms('') == {}
    assert latency_limits_ms('rbd=5, cephfs.data=20.5,a=b=1') == {
        'rbd': 5.0, 'cephfs.data': 20.5, 'a=b': 1.0}
    options = replace(DEFAULTS, latency_limits_ms='rbd=5')
    assert named_target(options, 'rbd') == 5.0 and named_target(options, 'other') is None
    assert named_target(replace(options, latency_limits_ms='x'), 'rbd') is None
    assert target_ms(2.0, None, options) == 3.0 and target_ms(2.0, 5.0, options) == 5.0
    assert target_ms(None, None, options) is None


@pytest.mark.parametrize('text', ['rbd', 'rbd=', 'rbd=0', 'rbd=-1', 'rbd=fast', '=5', 'rbd=nan',
                                  'rbd=inf', 'rbd=5;x'])
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(BadLimit, match='latency_limits_ms'):
        latency_limits_ms(text)


def test_problems_name_the_option() -> None:
    assert problems(DEFAULTS, {'rbd'}) == []
    bad = replace(DEFAULTS, begin_time='0800', end_time='0800', latency_limits_ms='rdb=5',
                  latency_factor=4.0)
    found = problems(bad, {'rbd'})
    assert len(found) == 3
    assert 'begin_time' in found[0] and "pool 'rdb' does not exist" in found[1]
    assert 'latency_factor (4)' in found[2]
    assert len(problems(bad, None)) == 2, 'pools that are not known are not judged'
