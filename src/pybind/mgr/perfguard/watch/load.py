# SPDX-License-Identifier: LGPL-2.1-or-later
"""The load that clients put on a pool: its busiest hour of each day, and how that grows. Pure.

Growth is judged by the seasonal Kendall test with the slope of Sen (Hirsch, Slack and Smith,
Techniques of Trend Analysis for Monthly Water Quality Data, Water Resources Research 18, 1982):
only days of the same weekday are compared, so that weekends and a single busy day are no growth.
"""
from statistics import median
from typing import Iterable, List, NamedTuple, Optional, Sequence

from .series import Amount

HOUR_SECONDS = 3600.0
DAY_HOURS, WEEK_DAYS = 24, 7
#: Days that are kept, and those without which growth is unknown: three of each weekday.
KEPT_DAYS, LEAST_DAYS = 91, 21
#: Minimum hours with readings of a day that counts for growth, and seconds of an hour that counts.
LEAST_HOURS, LEAST_HOUR_SECONDS = 20, 1800.0
#: Hours after which a day is stored again: a failover loses the hours since.
STORED_HOURS = 6
#: Standard deviations from which growth is significant: 5 % on both sides.
SIGNIFICANT = 1.96


class Rates(NamedTuple):
    """Operations per second, and bytes per second that they read and write."""
    reads: Amount = 0.0
    writes: Amount = 0.0
    read_bytes: Amount = 0.0
    write_bytes: Amount = 0.0

    @property
    def ops(self) -> float:
        return self.reads + self.writes


class DayLoad(NamedTuple):
    #: Days since the epoch, and hours with readings so far.
    day: int
    hours: int
    #: Of the hour with the most operations.
    busiest: Rates


class LoadGrowth(NamedTuple):
    #: Days with enough readings.
    days: int
    #: Operations per second that the busiest hour grows by in a day; None: the days are too few, or
    #: it does not grow significantly.
    per_day: Optional[float] = None


class PoolUse(NamedTuple):
    """The load of a pool at present."""
    id: int
    pool: str
    pg_num: int
    #: What is expected of it.
    p99_ms: float
    #: Of the last minute, and of the busiest hour of the last seven days.
    now: Rates
    busiest: Rates
    #: Operations per second of other pools on its OSDs.
    others: float
    growth: LoadGrowth


class PoolLoad:
    """The load of a pool: of the present hour, of the hour before, and the busiest hour of each of
    the last KEPT_DAYS days, from which its growth is computed."""

    def __init__(self) -> None:
        #: The last KEPT_DAYS days, the oldest first.
        self.days: List[DayLoad] = []
        #: The present hour (hours since the epoch), the seconds of its readings, and the numbers of
        #: their operations and bytes.
        self._hour = -1
        self._seconds = 0.0
        self._sums = Rates()
        #: Operations and bytes per second of the last hour with enough readings.
        self._last_hour = Rates()
        #: The day for which growth was computed last, and the growth.
        self._growth = (-1, LoadGrowth(0))

    def add(self, now: float, seconds: float, counts: Rates) -> bool:
        """Add the operations and bytes of a reading of `seconds`; `counts` has their numbers, not
        rates. Returns whether the days must be stored: after the first hour of a day, a new busiest
        hour, or STORED_HOURS more."""
        hour = int(now // HOUR_SECONDS)
        changed = hour != self._hour and self._close()
        if hour != self._hour:
            self._hour, self._seconds, self._sums = hour, 0.0, Rates()
        self._seconds += seconds
        self._sums = Rates(*(total + count for total, count in zip(self._sums, counts)))
        return changed

    def _close(self) -> bool:
        """Note the hour that has ended in its day, if its readings cover enough of it. Returns
        whether the days must be stored."""
        if self._seconds < LEAST_HOUR_SECONDS:
            return False
        self._last_hour = rates = self._rates()
        day = self._hour // DAY_HOURS
        # An mgr whose clock was ahead may have stored this day, or later ones.
        days = {row.day: row for row in self.days}
        before = days.get(day, DayLoad(day, 0, Rates()))
        hours, busiest = before.hours + 1, max(before.busiest, rates, key=lambda row: row.ops)
        days[day] = DayLoad(day, hours, busiest)
        self.days = [row for _, row in sorted(days.items())][-KEPT_DAYS:]
        # Hours since the last time would be lost with a failover.
        return hours == 1 or busiest is rates or not hours % STORED_HOURS

    def _rates(self) -> Rates:
        return Rates(*(total / self._seconds for total in self._sums)) if self._seconds else Rates()

    def lately(self) -> Rates:
        """The rates of this hour; of the one before as long as this one is too short."""
        return self._rates() if self._seconds >= LEAST_HOUR_SECONDS or not self._last_hour.ops \
            else self._last_hour

    def sized(self, reads: float, writes: float) -> Rates:
        """These operations per second, with the bytes of operations of the mean sizes of late."""
        late = self.lately()
        return Rates(reads, writes, reads * late.read_bytes / late.reads if late.reads else 0.0,
                     writes * late.write_bytes / late.writes if late.writes else 0.0)

    def busiest(self, now: float) -> Rates:
        """The busiest hour of the last seven days, with this one."""
        today = int(now // HOUR_SECONDS) // DAY_HOURS
        return max([row.busiest for row in self.days if 0 <= today - row.day < WEEK_DAYS]
                   + [self.lately()], key=lambda row: row.ops)

    def growth(self, now: float) -> LoadGrowth:
        today = int(now // HOUR_SECONDS) // DAY_HOURS
        if today != self._growth[0]:
            self._growth = today, growth([row for row in self.days if row.day < today
                                          and row.hours >= LEAST_HOURS])
        return self._growth[1]

    def load(self, days: Iterable[DayLoad]) -> None:
        """Take over what an earlier mgr has stored."""
        self._growth = (-1, LoadGrowth(0))
        self.days = sorted({row.day: row for row in days}.values())


def growth(days: Sequence[DayLoad]) -> LoadGrowth:
    """By how many operations per second the busiest hour of a pool grows each day, by the seasonal
    Kendall test (see above). `days`: complete ones, oldest first, none of them twice."""
    if len(days) < LEAST_DAYS:
        return LoadGrowth(len(days))
    slopes: List[float] = []
    # Pairs of days that rise minus pairs that fall, and the variance of that without any growth.
    score, variance = 0, 0.0
    for weekday in range(WEEK_DAYS):
        same_weekday = [row for row in days if row.day % WEEK_DAYS == weekday]
        number = len(same_weekday)
        variance += number * (number - 1) * (2 * number + 5) / 18.0
        for index, before in enumerate(same_weekday):
            for after in same_weekday[index + 1:]:
                rise = after.busiest.ops - before.busiest.ops
                slopes.append(rise / (after.day - before.day))
                score += (rise > 0) - (rise < 0)
    # The score is an integer: one less corrects for continuity.
    grows = variance > 0.0 and score - 1 >= SIGNIFICANT * variance ** 0.5
    per_day = median(slopes) if grows else 0.0
    return LoadGrowth(len(days), per_day if per_day > 0.0 else None)
