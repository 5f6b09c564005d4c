# SPDX-License-Identifier: LGPL-2.1-or-later
"""Scheduled probes: when each is due, and the results of attempts to begin it."""
import re
import time
from dataclasses import dataclass
from datetime import date
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Set, Tuple

from ..window import DAY_MINUTES, BadWindow, Window, is_open, window
from .types import BadJob, Json

#: Arguments of the schedule; all others are those of the probe.
TIME_WORDS = ('begin_time', 'end_time', 'begin_weekday', 'end_weekday', 'every_days')
DEFAULTS = {'begin_time': '0000', 'end_time': '2400', 'begin_weekday': '0', 'end_weekday': '0',
            'every_days': '1'}
MAX_DAYS = 366
#: "command" is the trigger of runs that no schedule began.
RESERVED = frozenset({'command'})
#: Seconds after which a schedule whose probe was refused is tried again, within its window.
AGAIN_SECONDS = 60.0


@dataclass(frozen=True)
class Schedule:
    """A probe that begins once in each window, or in the first window after `every_days`."""
    name: str
    #: Of the probe: profile, target, words of the job.
    words: Tuple[Tuple[str, str], ...]
    window: Window
    #: As given, to be shown again.
    times: Tuple[Tuple[str, str], ...]
    every_days: int = 1


def schedule_of(name: str, words: Mapping[str, str]) -> Schedule:
    """From TIME_WORDS and the arguments of the probe; BadJob if invalid or never due.

    begin_time and end_time as HHMM, weekdays with Sunday as 0 and the end excluded, as in the
    options of the rebalance; every_days from 1.
    """
    if not re.match(r'[A-Za-z0-9._-]{1,64}\Z', name) or name in RESERVED:
        raise BadJob('invalid schedule name %r: use letters, digits, ".", "_" and "-"' % name)
    times = {**DEFAULTS, **{word: words[word] for word in TIME_WORDS if word in words}}
    try:
        when = window(times['begin_time'], times['end_time'],
                      _number('begin_weekday', times['begin_weekday'], 0, 6),
                      _number('end_weekday', times['end_weekday'], 0, 7) % 7)
    except BadWindow as reason:
        raise BadJob(str(reason)) from None
    every = _number('every_days', times['every_days'], 1, MAX_DAYS)
    probe = tuple(sorted((word, text) for word, text in words.items() if word not in TIME_WORDS))
    return Schedule(name, probe, when, tuple(times.items()), every)


def _number(word: str, text: str, low: int, high: int) -> int:
    if text.isascii() and text.isdigit() and len(text) < 6 and low <= int(text) <= high:
        return int(text)
    raise BadJob('%s is %r: must be a number from %d to %d' % (word, text, low, high))


def schedule_to_json(schedule: Schedule) -> Json:
    return {'name': schedule.name, **dict(schedule.times), 'probe': dict(schedule.words)}


def schedule_from_json(raw: Mapping[str, Any]) -> Schedule:
    """Raises BadJob, ValueError, TypeError or LookupError if the data is invalid."""
    times = {word: str(raw[word]) for word in TIME_WORDS}
    probe = {str(word): str(text) for word, text in raw['probe'].items()}
    return schedule_of(str(raw['name']), {**probe, **times})


def due(schedules: Iterable[Schedule], last_started: Mapping[str, float],
        now: float) -> Tuple[str, ...]:
    """Names of the schedules that may begin now, the one that has waited longest first."""
    names: List[Tuple[float, str]] = []
    for schedule in schedules:
        last = last_started.get(schedule.name)
        if is_open(schedule.window, now) and (
                last is None or _days_between(schedule.window, last, now)
                not in range(schedule.every_days)):
            names.append((last or 0.0, schedule.name))
    return tuple(name for _, name in sorted(names))


def _days_between(when: Window, last: float, now: float) -> int:
    """Windows are counted by the day on which they open, so that changes to and from daylight
    saving time have no effect. Negative if the clock was set back."""
    return _day_of_window(when, now) - _day_of_window(when, last)


def _day_of_window(when: Window, at: float) -> int:
    local = time.localtime(at)
    today = date(local.tm_year, local.tm_mon, local.tm_mday).toordinal()
    over_midnight = 60 * local.tm_hour + local.tm_min < when.begin_minute % DAY_MINUTES
    return today - over_midnight


class Attempts:
    """When scheduled probes were last tried, and why they could not begin."""

    def __init__(self) -> None:
        self._tried: Dict[str, float] = {}
        #: Schedules whose refusal was reported since their window opened.
        self._reported: Set[str] = set()
        self.reasons: Dict[str, str] = {}

    def next_ones(self, due_names: Iterable[str], now: float) -> Iterator[str]:
        """Those of the schedules that are due that are tried now."""
        names = list(due_names)
        self._reported &= set(names)
        for name in names:
            if not 0.0 <= now - self._tried.get(name, float('-inf')) < AGAIN_SECONDS:
                self._tried[name] = now
                yield name

    def refused(self, name: str, why: str) -> bool:
        """Whether to report the refusal: once per window, because the reason may last for hours
        with changing numbers."""
        self.reasons[name] = why
        known = name in self._reported
        self._reported.add(name)
        return not known

    def forget(self, name: str) -> None:
        """It has begun, or was changed or removed."""
        self._tried.pop(name, None)
        self.reasons.pop(name, None)
        self._reported.discard(name)
