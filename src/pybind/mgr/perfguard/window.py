# SPDX-License-Identifier: LGPL-2.1-or-later
"""Times of the day and days of the week in which PGs may be released, with the syntax of the
balancer."""
import re
import time
from dataclasses import dataclass
from typing import Optional

from .errors import InvalidValue

DAY_MINUTES = 1440
#: Maximum number of times at which a window opens or closes that are considered: three per day for
#: eight days, and some more for clock changes; and for two years, beyond which estimates are
#: useless.
EDGES_IN_A_WEEK = 3 * 8 + 6
EDGES_IN_AN_ESTIMATE = 3 * 730


class BadWindow(InvalidValue):
    """The options describe no window; the message says which and why."""


@dataclass(frozen=True)
class Window:
    """Local time of the mgr. Minutes of the day, the end excluded; weekdays with Sunday as 0.

    If the begin is after the end, the window continues past midnight, or over the weekend. If the
    weekdays are equal, it is every day.
    """
    begin_minute: int = 0
    end_minute: int = DAY_MINUTES
    begin_weekday: int = 0
    end_weekday: int = 0

    @property
    def always(self) -> bool:
        whole_day = (self.begin_minute, self.end_minute) == (0, DAY_MINUTES)
        return whole_day and self.begin_weekday == self.end_weekday


def window(begin_time: str, end_time: str, begin_weekday: int, end_weekday: int) -> Window:
    """The time window of the options of these names. Raises BadWindow if they are invalid, or if
    the window never opens."""
    begin, end = _minute(begin_time), _minute(end_time)
    if begin is None or end is None:
        times = (('begin_time', begin_time, begin), ('end_time', end_time, end))
        raise BadWindow('; '.join('%s is %r: must be a time of day, 0000 to 2400' % (name, text)
                                  for name, text, minute in times if minute is None))
    if begin % DAY_MINUTES == end:
        raise BadWindow('begin_time and end_time are both %s: the '
                        'time window never opens' % end_time)
    return Window(begin % DAY_MINUTES, end, begin_weekday, end_weekday)


def _minute(text: str) -> Optional[int]:
    """None: it is no time of day."""
    if len(text) == 4 and text.isascii() and text.isdigit():
        hours, minutes = int(text[:2]), int(text[2:])
        if (hours < 24 and minutes < 60) or text == '2400':
            return 60 * hours + minutes
    return None


def is_open(when: Window, now: float) -> bool:
    local = time.localtime(now)
    minute = 60 * local.tm_hour + local.tm_min
    every_day = when.begin_weekday == when.end_weekday
    return (_within(minute, when.begin_minute, when.end_minute)
            and (every_day or _within((local.tm_wday + 1) % 7, when.begin_weekday,
                                      when.end_weekday)))


def _within(value: int, begin: int, end: int) -> bool:
    return begin <= value < end if begin < end else value >= begin or value < end


def opens_in(when: Window, now: float) -> Optional[float]:
    """Seconds until it is open, 0.0 if it is; None: not within a week, because of a clock
    change."""
    at = now
    for _ in range(EDGES_IN_A_WEEK):
        if is_open(when, at):
            return at - now
        at = _next_edge(when, at)
    return None


def seconds_until_done(when: Window, now: float, work: float) -> float:
    """Wall-clock seconds until `work` seconds have passed with the window open; at most those to
    the last of EDGES_IN_AN_ESTIMATE edges, about two years."""
    if when.always:
        return work
    at = now
    for _ in range(EDGES_IN_AN_ESTIMATE):
        edge = _next_edge(when, at)
        if is_open(when, at):
            if work <= edge - at:
                return at + work - now
            work -= edge - at
        at = edge
    return at - now


def _next_edge(when: Window, now: float) -> float:
    """The next time at which the window may open or close, including midnight, since days
    differ."""
    local = time.localtime(now)
    minutes = sorted({0, when.begin_minute, when.end_minute % DAY_MINUTES})
    month = local.tm_year, local.tm_mon
    # In an hour that the clock repeats, each time occurs twice: mktime chooses one (-1), and the
    # other may be that of the present offset.
    stamps = {time.mktime((*month, local.tm_mday + day, 0, minute, 0, 0, 0, is_dst))
              for day in (0, 1) for minute in minutes for is_dst in (-1, local.tm_isdst)}
    return _clock_change(now, min(stamp for stamp in stamps if stamp > now))


def _clock_change(begin: float, end: float) -> float:
    """The time between `begin` and `end`, about a day, at which the local clock is changed (for
    summer time), and so skips or repeats times at which a window opens or closes; `end` if it is
    not."""
    offset = time.localtime(begin).tm_gmtoff
    if time.localtime(end).tm_gmtoff == offset:
        return end
    while end - begin > 1.0:
        middle = (begin + end) // 2
        begin, end = (middle, end) if time.localtime(middle).tm_gmtoff == offset else (begin,
                                                                                       middle)
    return end


#: Units of a duration, in seconds.
_TIME_UNITS = {'s': 1, 'm': 60, 'min': 60, 'h': 3600, 'd': 86400}
_DURATION = re.compile(r'([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(s|m|min|h|d)')
LONGEST_PAUSE_SECONDS = 30 * 86400.0


def duration_seconds(text: str) -> float:
    """Seconds of "90s", "30m", "2h" or "1d"; raises InvalidValue."""
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match.group(1)) * _TIME_UNITS[match.group(2)] if match else 0.0
    if seconds <= 0.0:
        raise InvalidValue('%.30r is not a duration: give one such as 30m, 2h or 1d, at most 30d'
                           % text)
    if seconds > LONGEST_PAUSE_SECONDS:
        raise InvalidValue('the duration must be at most 30d, not %.30r' % text)
    return seconds
