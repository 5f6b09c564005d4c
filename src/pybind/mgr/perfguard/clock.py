# SPDX-License-Identifier: LGPL-2.1-or-later
"""The clock of the process: its wall clock when it began, plus monotonic time since then.

It never goes back and never jumps, so the difference of two of its times is the time that has
passed. Times that another mgr has stored may be after its present time: they are limited once, when
they are loaded (codec.no_later_than); the length of a pause (campaign.Orders) and of a wait for
OSDs (awaiting.Await) does not depend on them. If the wall clock of the host is set meanwhile, the
time windows, which operators think of in local time, and exported metrics follow it at once. All
other times are off by as much until another mgr becomes active, and `status` reports that.
"""
import time
from typing import Callable, List

#: Minimum step of the wall clock that counts as setting it; minimum seconds that `status` reports.
STEP_SECONDS, REPORTED_SECONDS = 1.0, 60.0
#: When the process began, in seconds since the epoch: ceph-mgr imports all modules first, also as a
#: standby.
PROCESS_BEGAN = time.time()


class Clock:
    def __init__(self, wall: Callable[[], float] = time.time,
                 steady: Callable[[], float] = time.monotonic,
                 process_began: float = PROCESS_BEGAN) -> None:
        self.process_began = process_began
        self._wall, self._steady = wall, steady
        self._begin = wall() - steady()
        self._set_by = 0.0

    def __call__(self) -> float:
        """Seconds since the epoch."""
        return self._begin + self._steady()

    def set_by(self) -> float:
        """Seconds by which the wall clock was set since the clock began. It does not vary with
        rounding: metrics that include it change when the clock is set, and only then."""
        seconds = self._wall() - self()
        if abs(seconds - self._set_by) >= STEP_SECONDS:
            self._set_by = seconds
        return self._set_by

    def remarks(self) -> List[str]:
        """Reasons for `status`."""
        seconds = self.set_by()
        return [] if abs(seconds) < REPORTED_SECONDS else [
            'the clock of the mgr\'s host was set by %+.0f s: time windows follow it, other times '
            'are off by as much until another mgr is active ("ceph mgr fail")' % seconds]
