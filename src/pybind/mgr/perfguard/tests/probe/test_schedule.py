# SPDX-License-Identifier: LGPL-2.1-or-later
"""When scheduled probes are due."""
import json
import time
from typing import Dict, List, Optional

import pytest

from perfguard.errors import InvalidValue
from perfguard.probe.orders import RunOrder
from perfguard.probe.schedules import (Attempts, Schedule, due_schedules, schedule_of,
                                       schedule_to_json)

from ..fakes.zones import in_zone

HOUR, DAY = 3600.0, 86400.0
#: A Sunday, 00:00 UTC.
SUNDAY = 1700352000.0
NIGHT = {'begin_time': '0200', 'end_time': '0500'}
RUN = RunOrder()


pytestmark = pytest.mark.usefixtures('utc')


def starts(schedule: Schedule, begin: float, days: float, run_seconds: float = 60.0,
           period: float = 300.0) -> List[float]:
    """Hours from `begin` at which it runs, looked at every five minutes."""
    last: Dict[str, float] = {}
    found: List[float] = []
    at = begin
    while at < begin + days * DAY:
        if due_schedules([schedule], last, at):
            last[schedule.name] = at
            found.append((at - begin) / HOUR)
            at += run_seconds
        at += period
    return found


def test_nightly_once_a_window() -> None:
    nightly = schedule_of('night', RUN, NIGHT)
    assert starts(nightly, SUNDAY, 3) == pytest.approx([2, 26, 50], abs=0.2)


def test_started_late_it_is_still_due_the_next_night() -> None:
    nightly = schedule_of('night', RUN, NIGHT)
    last = {'night': SUNDAY + 4.9 * HOUR}
    assert due_schedules([nightly], last, SUNDAY + 4.95 * HOUR) == ()
    assert due_schedules([nightly], last, SUNDAY + 25 * HOUR) == ()
    assert due_schedules([nightly], last, SUNDAY + 26 * HOUR) == ('night',)


def test_a_run_outside_the_window_belongs_to_the_one_before() -> None:
    nightly = schedule_of('night', RUN, NIGHT)
    assert due_schedules([nightly], {'night': SUNDAY + 1.5 * HOUR}, SUNDAY + 2 * HOUR) == ('night',)


def test_over_midnight_is_one_window() -> None:
    late = schedule_of('late', RUN, {'begin_time': '2200', 'end_time': '0400'})
    assert starts(late, SUNDAY, 3) == pytest.approx([0, 22, 46, 70], abs=0.2)


def test_all_day_is_once_a_day() -> None:
    assert starts(schedule_of('daily', RUN, {}), SUNDAY + 12 * HOUR, 2.9) == pytest.approx(
        [0, 12, 36, 60], abs=0.2)


def test_weekdays() -> None:
    workdays = schedule_of('work', RUN, {**NIGHT, 'begin_weekday': '1', 'end_weekday': '6'})
    assert [int(hour // 24) for hour in starts(workdays, SUNDAY, 14)] == [
        1, 2, 3, 4, 5, 8, 9, 10, 11, 12]
    weekend = schedule_of('weekend', RUN, {**NIGHT, 'begin_weekday': '6', 'end_weekday': '1'})
    assert [int(hour // 24) for hour in starts(weekend, SUNDAY, 8)] == [0, 6, 7]
    saturday = schedule_of('saturday', RUN, {**NIGHT, 'begin_weekday': '6', 'end_weekday': '7'})
    assert [int(hour // 24) for hour in starts(saturday, SUNDAY, 14)] == [6, 13]


def test_every_few_days() -> None:
    rare = schedule_of('rare', RUN, {**NIGHT, 'every_days': '3'})
    assert [int(hour // 24) for hour in starts(rare, SUNDAY, 10)] == [0, 3, 6, 9]


def test_a_missed_window_is_made_up_for_in_the_next() -> None:
    rare = schedule_of('rare', RUN, {**NIGHT, 'every_days': '3'})
    last = {'rare': SUNDAY + 2 * HOUR}
    assert due_schedules([rare], last, SUNDAY + 5 * DAY + 3 * HOUR) == ('rare',)


@pytest.mark.parametrize('begin, end', [('0130', '0230'), ('0200', '0300'), ('0230', '0500'),
                                        ('0000', '2400'), ('2300', '0230'), ('0100', '0330')])
@pytest.mark.parametrize('shift', ['2023-03-26', '2023-10-29'])
def test_once_a_window_where_clocks_are_changed(begin: str, end: str, shift: str) -> None:
    """Central Europe, as a rule: zones need not be installed."""
    with in_zone('CET-1CEST,M3.5.0,M10.5.0/3'):
        day = time.mktime(time.strptime(shift, '%Y-%m-%d'))
        found = starts(schedule_of('s', RUN, {'begin_time': begin, 'end_time': end}),
                       day - 36 * HOUR, 4, period=120.0)
        # One on each of the days; that of the spring night may not be there at all.
        assert len(found) in (3, 4, 5)
        assert all(later - earlier > 4.0 for earlier, later in zip(found, found[1:]))


def test_who_has_waited_longest_comes_first() -> None:
    names = ['a', 'b', 'c', 'new']
    schedules = [schedule_of(name, RUN, NIGHT) for name in names]
    last = {'a': SUNDAY - 20 * HOUR, 'b': SUNDAY - 90 * HOUR, 'c': SUNDAY + 2 * HOUR}
    assert due_schedules(schedules, last, SUNDAY + 3 * HOUR) == ('new', 'b', 'a')
    assert due_schedules(schedules, last, SUNDAY + 6 * HOUR) == ()


def test_a_clock_that_was_put_back_stops_nothing_for_long() -> None:
    nightly = schedule_of('night', RUN, NIGHT)
    assert due_schedules([nightly], {'night': SUNDAY + 90 * DAY}, SUNDAY + 3 * HOUR) == ('night',)


def test_a_wall_clock_that_was_set_moves_the_window() -> None:
    """Both the last start and now are times of the clock before."""
    nightly = schedule_of('night', RUN, NIGHT)
    assert due_schedules([nightly], {}, SUNDAY + HOUR, clock_set=2 * HOUR) == ('night',)
    assert due_schedules([nightly], {}, SUNDAY + 3 * HOUR, clock_set=3 * HOUR) == ()
    last = {'night': SUNDAY - 22 * HOUR}
    assert due_schedules([nightly], last, SUNDAY + 2 * HOUR) == ('night',)
    assert due_schedules([nightly], last, SUNDAY, clock_set=26.0 * HOUR) == ('night',)
    assert due_schedules([nightly], {'night': SUNDAY}, SUNDAY + HOUR, clock_set=2 * HOUR) == ()


@pytest.mark.parametrize('words', [
    {'begin_weekday': '6', 'end_weekday': '7'}, {'every_days': '366'}, {'begin_weekday': '0'}])
def test_the_ends_of_ranges_are_valid(words: Dict[str, str]) -> None:
    assert dict(schedule_of('x' * 64, RUN, words).times).items() >= words.items()


def test_a_refused_schedule_is_tried_again_after_a_minute_and_reported_once_a_window() -> None:
    attempts = Attempts()
    assert list(attempts.next_ones(['a', 'b'], 0.0)) == ['a', 'b']
    assert attempts.note_refusal('a', 'PGs are moving')
    assert not attempts.note_refusal('a', 'and still are')
    assert attempts.reasons == {'a': 'and still are'}
    attempts.retry_now('b')
    assert list(attempts.next_ones(['a', 'b'], 59.0)) == ['b']
    assert list(attempts.next_ones(['a', 'b'], 60.0)) == ['a']
    assert not attempts.note_refusal('a', 'x')
    # The window has closed meanwhile.
    assert list(attempts.next_ones([], 100.0)) == []
    assert attempts.note_refusal('a', 'x')
    attempts.forget('a')
    assert attempts.reasons == {} and attempts.note_refusal('a', 'x')
    assert list(attempts.next_ones(['a'], 101.0)) == ['a']


def test_words() -> None:
    schedule = schedule_of('n', RunOrder(profile='quick', pool='rbd', store=True), NIGHT)
    assert schedule.run.trigger == 'n'
    raw = json.loads(json.dumps(schedule_to_json(schedule)))
    assert raw == {'name': 'n', 'begin_time': '0200', 'end_time': '0500', 'begin_weekday': '0',
                   'end_weekday': '0', 'every_days': '1',
                   'probe': {'profile': 'quick', 'pool': 'rbd', 'store': 'yes'}}


@pytest.mark.parametrize('name, words, message', [
    ('a b', {}, "invalid schedule name 'a b'"), ('command', {}, "name 'command'"),
    ('', {}, "name ''"), ('x' * 65, {}, 'invalid schedule name'),
    ('n', {'begin_time': '25'}, "begin_time is '25': must be a time of day, 0000 to 2400"),
    ('n', {'begin_time': '0200', 'end_time': '0200'}, 'are both 0200: the time window never opens'),
    ('n', {'begin_weekday': 'monday'}, "begin_weekday is 'monday': must be a number from 0 to 6"),
    ('n', {'end_weekday': '8'}, "end_weekday is '8': must be a number from 0 to 7"),
    ('n', {'begin_weekday': '7'}, "begin_weekday is '7': must be a number from 0 to 6"),
    ('n', {'every_days': '367'}, "every_days is '367': must be a number from 1 to 366"),
    ('n', {'every_days': '0'}, "every_days is '0': must be a number from 1 to 366"),
    ('n', {'every_days': '9' * 5000}, 'every_days is'),
    ('n', {'every_days': '\u0663'}, 'every_days is')])
def test_bad_schedules(name: str, words: Dict[str, str], message: Optional[str]) -> None:
    with pytest.raises(InvalidValue) as caught:
        schedule_of(name, RUN, words)
    assert str(message) in str(caught.value) and '\n' not in str(caught.value)
