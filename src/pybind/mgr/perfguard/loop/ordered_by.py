# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which user gave an order, for the events that follow from it.

No release passes the sender of a command to a module. The dashboard knows its user. For other
commands ceph-mgr writes the sender to the audit log, at level debug, right before it calls the
module; this takes a second to reach the mons.
"""
import contextlib
import logging
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ..cluster.types import AuditEntry
from ..events import EventLog
from ..requests import Origin

log = logging.getLogger(__name__)

#: Seconds after an order for which its entry may be on the way to the mons.
LATE_SECONDS = 3.0
#: Maximum time from the entry of a command until its handler begins. A command may wait for others
#: of this module for longer, but an earlier entry may as well be that of another user, while that
#: of the sender has not arrived: then the event has no name.
QUEUED_SECONDS = 3.0


class _Unnamed(NamedTuple):
    origin: Origin
    #: When the loop has executed the order.
    done: float
    event_ids: Tuple[int, ...]


class OrderedBy:
    """1. `order`: while an order is executed, `noted` collects its events.
    2. `look`: some seconds later the audit log names the sender.
    """

    def __init__(self, events: EventLog, audit_log: Callable[[], Sequence[AuditEntry]],
                 clock: Callable[[], float]) -> None:
        self._events = events
        self._audit_log = audit_log
        self._clock = clock
        self._event_ids: Optional[List[int]] = None
        #: Entries by which an order was named: the command of no other order.
        self._used: Dict[AuditEntry, Origin] = {}
        self._unnamed: List[_Unnamed] = []

    @contextlib.contextmanager
    def order(self, origin: Origin) -> Iterator[None]:
        found: List[int] = []
        self._event_ids = found
        try:
            yield
        finally:
            self._event_ids = None
            if found and origin.by:
                self._events.name(found, origin.by)
            elif found and origin.prefix:
                self._unnamed.append(_Unnamed(origin, self._clock(), tuple(found)))

    def noted(self, event_id: int) -> None:
        """An event was added to the log."""
        if self._event_ids is not None:
            self._event_ids.append(event_id)

    def look(self) -> None:
        """Name the senders of orders that are long enough ago: one mon command for all."""
        now = self._clock()
        if not any(not 0.0 <= now - each.done < LATE_SECONDS for each in self._unnamed):
            return
        unnamed, self._unnamed = self._unnamed, []
        entries = self._audit_log()
        self._used = {entry: self._used[entry] for entry in entries if entry in self._used}
        for each in unnamed:
            found = sending([entry for entry in entries if self._used.get(
                entry, each.origin) == each.origin], each.origin)
            if found is not None:
                self._used[found] = each.origin
                self._events.name(each.event_ids, found.entity)
            else:
                log.debug('no audit entry of "%s"', each.origin.prefix)


def sending(entries: Sequence[AuditEntry], origin: Origin) -> Optional[AuditEntry]:
    """The last entry of the command before its handler began, by the clock of the same daemon."""
    found = [entry for entry in entries if entry.prefix == origin.prefix
             and 0.0 <= origin.at - entry.time <= QUEUED_SECONDS]
    return max(found, key=lambda entry: entry.time) if found else None
