# SPDX-License-Identifier: LGPL-2.1-or-later
"""Hysteresis: nothing is raised by one bad reading, nor cleared by one good one."""
from typing import Optional


class Alarm:
    """Raised once its condition has held for a while, cleared once it has not for a while.

    Time comes as the length of each reading, so that a clock that jumps raises nothing.
    """

    def __init__(self, raised: bool = False, since: float = 0.0) -> None:
        self.raised = raised
        #: When the trouble began, in seconds since the epoch; 0.0 when there is none.
        self.since = since
        self._held = 0.0
        self._not_held = 0.0

    def update(self, now: float, seconds: float, holds: Optional[bool], raise_after: float,
               clear_after: float) -> None:
        """`holds`: None where the reading tells neither way; then nothing changes."""
        if holds is None:
            return
        if holds:
            if not self.raised and not self._held:
                self.since = now - seconds
            self._held += seconds
            self._not_held = 0.0
            if self._held >= raise_after:
                self.raised = True
        else:
            self._not_held += seconds
            self._held = 0.0
            if not self.raised or self._not_held >= clear_after:
                self.raised = False
                self.since = 0.0
