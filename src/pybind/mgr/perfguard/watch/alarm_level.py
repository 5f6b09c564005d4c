# SPDX-License-Identifier: LGPL-2.1-or-later
"""The latency of a pool from which its alarm is measured.

It must not depend on the hour at which the module was enabled. It is the baseline of the pool, but:

* A level that recurs is accepted for the hours in which it does: on three of the last seven days,
  as during a nightly batch, or in two of the last three weeks. Until then the alarm is raised each
  time. A level that stays is accepted in the same way, hour by hour after three days.
* The baseline of a pool follows a slow degradation, and the alarm does not: the lowest baseline of
  the last half year counts. An accepted level does not rise either, unless by another alarm.
"""
from collections import deque
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Tuple

from .series import LARGEST

HOUR_SECONDS = 3600.0
WEEK_HOURS = 168


class Recurrence(NamedTuple):
    """A level is accepted at an hour of the period once it was reached at this hour in `least` of
    the last `of` periods."""
    hours: int
    least: int
    of: int


DAILY, WEEKLY = Recurrence(24, 3, 7), Recurrence(WEEK_HOURS, 2, 3)
#: Hours for which high levels are kept: a batch may begin an hour later than weeks ago.
KEPT_HOURS = WEEKLY.of * WEEKLY.hours + 1
#: Number of weekly baselines that are kept, and the share of them that may be unusually low, as in
#: a week of holidays.
KEPT_WEEKS, LOW_WEEKS = 26, 1 / 8


class AlarmLevel:
    """Of one kind of operation of one pool."""

    def __init__(self) -> None:
        #: Hour since the epoch -> highest latency in ms that lasted, of hours in which it was high.
        self._high: Dict[int, float] = {}
        #: Hour of the day or week -> accepted latency in ms.
        self._accepted: Dict[Recurrence, Dict[int, float]] = {DAILY: {}, WEEKLY: {}}
        #: The hour for which the accepted latency was computed; -1: none.
        self._hour = -1
        #: Baselines in ms, one per week, and the week of the last one.
        self._baselines: List[float] = []
        self._week = -1
        #: Seconds and ms of the last readings.
        self._readings: Deque[Tuple[float, float]] = deque()

    def base_ms(self, baseline_ms: float) -> float:
        """The lowest baseline of the last half year, without unusual weeks."""
        baselines = sorted([baseline_ms, *self._baselines])
        return baselines[int(LOW_WEEKS * len(baselines))]

    def accepted_ms(self, now: float) -> Optional[float]:
        """What is accepted in this hour; None: nothing but the baseline."""
        hour = int(now // HOUR_SECONDS)
        return max((levels[hour % period.hours] for period, levels in self._accepted.items()
                    if hour % period.hours in levels), default=None)

    def note(self, now: float, seconds: float, ms: Optional[float], lasting: float) -> None:
        """Add a high latency; None: it is not. It counts once it has lasted so many seconds."""
        if ms is None:
            self._readings.clear()
            return
        self._readings.append((seconds, ms))
        covered = sum(length for length, _ in self._readings)
        while covered - self._readings[0][0] >= lasting:
            covered -= self._readings.popleft()[0]
        if covered >= lasting:
            hour = int(now // HOUR_SECONDS)
            level_ms = min(latency for _, latency in self._readings)
            self._high[hour] = max(level_ms, self._high.get(hour, 0.0))

    def review(self, now: float, baseline_ms: float, factor: float) -> bool:
        """Once an hour: what is accepted in it, and once a week the baseline. `factor`: what is
        accepted rises to a level that is so many times as high. Returns whether there is something
        new to store."""
        hour = int(now // HOUR_SECONDS)
        if hour == self._hour:
            return False
        self._hour = hour
        self._high = {at: ms for at, ms in self._high.items() if 0 <= hour - at <= KEPT_HOURS}
        for period in self._accepted:
            self._accept(period, hour, self.base_ms(baseline_ms), factor)
        week, last = hour // WEEK_HOURS, self._week
        self._week = week
        if week != last >= 0:
            self._baselines = [*self._baselines, baseline_ms][-KEPT_WEEKS:]
        return week != last or bool(self._high)

    def _accept(self, period: Recurrence, hour: int, base_ms: float, factor: float) -> None:
        """It rises only to what has raised the alarm, and ends with what recurs."""
        accepted, slot = self._accepted[period], hour % period.hours
        # The hours before and after it count as well, since nothing begins at the same second.
        highest = sorted((max(self._high.get(hour - back * period.hours + near, 0.0)
                              for near in (-1, 0, 1))
                          for back in range(1, period.of + 1)), reverse=True)
        accepted_ms, recurring_ms = accepted.pop(slot, base_ms), highest[period.least - 1]
        if recurring_ms > factor * accepted_ms:
            accepted_ms = recurring_ms
        accepted_ms = min(accepted_ms, highest[0])
        if accepted_ms > base_ms:
            accepted[slot] = accepted_ms

    # ---- State that survives a failover

    def to_json(self) -> Dict[str, Any]:
        return {'high': _rounded(self._high), 'daily': _rounded(self._accepted[DAILY]),
                'weekly': _rounded(self._accepted[WEEKLY]), 'week': self._week,
                'baselines': [round(ms, 4) for ms in self._baselines]}

    def from_json(self, value: Any) -> None:
        """Load the output of to_json(); invalid data is skipped."""
        if not isinstance(value, dict):
            return
        self._high = _json_levels(value.get('high'))
        self._hour = max(self._high, default=-1)
        self._accepted = {DAILY: _json_levels(value.get('daily')),
                          WEEKLY: _json_levels(value.get('weekly'))}
        baselines, week = value.get('baselines'), value.get('week')
        if isinstance(baselines, list) and isinstance(week, int):
            self._baselines = [float(ms) for ms in baselines if _is_json_ms(ms)][-KEPT_WEEKS:]
            self._week = week


def _rounded(levels: Dict[int, float]) -> Dict[str, float]:
    return {str(hour): round(ms, 4) for hour, ms in levels.items()}


def _json_levels(value: Any) -> Dict[int, float]:
    return {int(hour): float(ms) for hour, ms in value.items()
            if hour.isdecimal() and len(hour) < 10 and _is_json_ms(ms)} \
        if isinstance(value, dict) else {}


def _is_json_ms(ms: Any) -> bool:
    return isinstance(ms, (int, float)) and 0.0 < ms < LARGEST
