# SPDX-License-Identifier: LGPL-2.1-or-later
"""The log of what was detected and done: bounded, kept across restarts."""
import logging
import math
from collections import Counter
from dataclasses import dataclass
from typing import Callable, Dict, List, Optional, Tuple

from .cluster.types import Json
from .store import Store

log = logging.getLogger(__name__)

#: The events, and those since that document was last written. Only the latter is written often: the
#: mgr keeps its last 10,000 debug messages in memory, and each write makes three of its size.
EVENTS_DOCUMENT, RECENT_DOCUMENT = 'events', 'events_recent'
#: The values of a stored event beside its id.
_HINTS = {'time': float, 'kind': str, 'what': str, 'why': str}
#: Events that are kept.
MOST_EVENTS = 500
#: Events in RECENT_DOCUMENT at most.
MOST_RECENT = 30
#: Seconds between two writes of the log; a crash loses at most the events of this time.
SAVE_SECONDS = 10.0
#: Maximum number of lines with the same text in the cluster log, and the time in which they count.
#: A campaign may hold and release PGs every 15 s for days, and the mons keep the last 10,000 lines
#: of all daemons (mon_log_max).
MOST_LINES, LINES_SECONDS = 4, 3600.0


@dataclass(frozen=True)
class Event:
    """One line of the log of what was detected and done."""
    kind: str
    what: str
    why: str = ''


class EventLog:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._events: List[Json] = []
        self._last_id = 0
        self._saved_id = 0
        #: Id of the last event in EVENTS_DOCUMENT.
        self._archived_id = 0
        self._saved_at = 0.0

    def load(self) -> None:
        self._events = self._store.get_entries(EVENTS_DOCUMENT, _HINTS)
        self._archived_id = max((event['id'] for event in self._events), default=0)
        self._events += self._recent(self._store.get_entries(RECENT_DOCUMENT, _HINTS))
        self._last_id = max((event['id'] for event in self._events), default=0)
        self._saved_id = self._last_id

    def note(self, event: Event, now: float) -> None:
        """Add an event, also to the log of the mgr. Events of one kind take at most half of the
        event log if there are others: a campaign may hold and release PGs for days.
        """
        self._last_id += 1
        self._events.append({'time': round(now, 3), 'kind': event.kind, 'what': event.what,
                             'why': event.why, 'id': self._last_id})
        while len(self._events) > MOST_EVENTS:
            del self._events[self._index_to_drop()]
        log.info('%s: %s%s', event.kind, event.what, ' (%s)' % event.why if event.why else '')

    def _index_to_drop(self) -> int:
        """Index of the event to drop: the oldest one, or the oldest of the kind that takes more
        than half of the log."""
        kinds = [event['kind'] for event in self._events]
        (commonest, number), = Counter(kinds).most_common(1)
        return kinds.index(commonest) if 2 * number > MOST_EVENTS else 0

    def save(self) -> None:
        """Store the events since the last call, if there are any: in RECENT_DOCUMENT, or all in
        EVENTS_DOCUMENT once more than MOST_RECENT are not in that."""
        if self._saved_id == self._last_id:
            return
        recent = self._recent(self._events)
        if len(recent) > MOST_RECENT:
            # Events in both documents count once, if the mgr fails between the two writes.
            self._store.put(EVENTS_DOCUMENT, self._events)
            self._archived_id, recent = self._last_id, []
        self._store.put(RECENT_DOCUMENT, recent)
        self._saved_id = self._last_id

    def _recent(self, events: List[Json]) -> List[Json]:
        return [event for event in events if event['id'] > self._archived_id]

    def save_soon(self) -> None:
        """Make the log due at the end of this turn: its events must survive a failure of the
        mgr."""
        self._saved_at = -math.inf

    def save_now_and_then(self, now: float, may_write: Callable[[], bool]) -> None:
        """Write the log if it is due, SAVE_SECONDS after the last time. `may_write`: whether this
        mgr owns the journal, and the mons answer; until then, the log remains due."""
        has_unsaved = self._saved_id != self._last_id
        if now - self._saved_at > SAVE_SECONDS and (not has_unsaved or may_write()):
            # Also if there is nothing to write: events that follow are written together.
            self._saved_at = now
            self.save()

    def all(self) -> Tuple[Json, ...]:
        return tuple(self._events)


class ClusterLogLines:
    """Limits the lines of the cluster log: what is repeated often is in the event log only."""

    def __init__(self) -> None:
        #: When each text was written.
        self._written: Dict[str, List[float]] = {}

    def line(self, event: Event, now: float) -> Optional[str]:
        """The line to write to the cluster log for an event; None if MOST_LINES lines with its text
        were written within LINES_SECONDS. The last of these says so."""
        lately = {subject: [time for time in times if now - time < LINES_SECONDS]
                  for subject, times in self._written.items()}
        self._written = {subject: times for subject, times in lately.items() if times}
        times = self._written.setdefault(event.what, [])
        if len(times) == MOST_LINES:
            return None
        times.append(now)
        line = event.what + (' (%s)' % event.why if event.why else '')
        if len(times) == MOST_LINES:
            line += '; %d times within an hour: only "ceph perfguard events" shows more' \
                % MOST_LINES
        return line
