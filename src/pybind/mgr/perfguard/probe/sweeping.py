# SPDX-License-Identifier: LGPL-2.1-or-later
"""When the objects that a run has left in an operator's pool are looked for, and until when.

A pass goes over all names that the run may have written, or over the whole pool where these are
not known. A sweep is one worker's part of a pass; the next one goes on at its cursor.
"""
from typing import List, NamedTuple

#: Seconds between two passes; and, where a sweep came no further, between it and the next: twice
#: as long each time, up to the last.
PAUSE_SECONDS = 5.0
MOST_PAUSE_SECONDS = 300.0
#: Where another mgr may have left a worker, two passes that find nothing must lie further apart
#: than that worker takes to notice that it is alone.
ORPHAN_SECONDS = 12.0


class Part(NamedTuple):
    """What one sweep has done."""
    removed: int
    left: int
    #: Where the next one goes on, and where there is nothing more.
    cursor: int
    total: int

    @property
    def whole(self) -> bool:
        return not self.left and self.cursor >= self.total


class Sweeps:
    def __init__(self, orphan: bool, cursor: int) -> None:
        """`orphan`: another mgr has begun the run. `cursor`: where its sweeps came to."""
        self._orphan = orphan
        self.cursor = cursor
        #: When passes in a row have found nothing.
        self._empty: List[float] = []
        self._removed = 0
        self._next_at = float('-inf')
        self._pause = 0.0

    @property
    def done(self) -> bool:
        """Nothing is left, and nothing can come any more."""
        return bool(self._empty) and (
            not self._orphan or self._empty[-1] - self._empty[0] > ORPHAN_SECONDS)

    def due(self, now: float) -> bool:
        # A clock that was put back must not put the next sweep off.
        return not now < self._next_at <= now + MOST_PAUSE_SECONDS

    def failed(self, now: float) -> None:
        """A sweep could not begin, or said nothing."""
        self._pause = min(max(2.0 * self._pause, PAUSE_SECONDS), MOST_PAUSE_SECONDS)
        self._next_at = now + self._pause

    def ended(self, part: Part, now: float) -> None:
        forward = part.removed > 0 or part.cursor > self.cursor
        self._removed += part.removed
        self.cursor = part.cursor
        if part.whole:
            # What was on its way when its worker died may come after the removal.
            self._empty = [] if self._removed else [*self._empty, now]
            self.cursor = self._removed = 0
            self._pause, self._next_at = 0.0, now + PAUSE_SECONDS
        elif forward:
            self._pause, self._next_at = 0.0, now
        else:
            self.failed(now)
