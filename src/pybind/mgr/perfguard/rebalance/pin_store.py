# SPDX-License-Identifier: LGPL-2.1-or-later
"""perfguard's own pins, kept across a restart: which are ours, and what was there before.

The OSDMap holds the pins themselves. A batch of pins is one document that is written once; a
document goes when none of its PGs is pinned any more. Until then it may list PGs that have been
released: after a restart the audit against the OSDMap sorts them out.
"""
from typing import AbstractSet, Dict, Iterator, List, Mapping, Set

from ..store import Store
from .types import PinRecord, pin_from_json, pin_to_json

PREFIX = 'pins/'


class PinBook(Mapping[str, PinRecord]):
    def __init__(self, store: Store) -> None:
        self._store = store
        self._pins: Dict[str, PinRecord] = {}
        self._document_of: Dict[str, str] = {}
        self._members: Dict[str, Set[str]] = {}
        self._next = 1

    def __getitem__(self, pgid: str) -> PinRecord:
        return self._pins[pgid]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pins)

    def __len__(self) -> int:
        return len(self._pins)

    def load(self) -> List[str]:
        """Read what is stored; returns what could not be read."""
        lost: List[str] = []
        for name in self._store.names(PREFIX):
            document = self._store.get(name)
            try:
                self._next = max(self._next, int(name[len(PREFIX):]) + 1)
                pins = {pgid: pin_from_json(raw) for pgid, raw in (document or {}).items()}
            except (AttributeError, LookupError, TypeError, ValueError):
                lost.append(name)
                continue
            self._adopt(name, pins)
        return lost

    def note(self, pins: Mapping[str, PinRecord]) -> None:
        """Store new or changed pins, before they are sent to the mon."""
        if not pins:
            return
        name = '%s%06d' % (PREFIX, self._next)
        self._next += 1
        self._store.put(name, {pgid: pin_to_json(pin) for pgid, pin in pins.items()})
        self._adopt(name, pins)

    def forget(self, pgids: AbstractSet[str]) -> None:
        for pgid in pgids:
            if self._pins.pop(pgid, None) is not None:
                self._leave(pgid)

    def clear(self) -> None:
        self.forget(set(self._pins))
        for name in self._store.names(PREFIX):
            self._store.remove(name)

    def _adopt(self, name: str, pins: Mapping[str, PinRecord]) -> None:
        for pgid, pin in pins.items():
            if pgid in self._document_of:
                self._leave(pgid)
            self._pins[pgid] = pin
            self._document_of[pgid] = name
            self._members.setdefault(name, set()).add(pgid)

    def _leave(self, pgid: str) -> None:
        name = self._document_of.pop(pgid)
        members = self._members[name]
        members.discard(pgid)
        if not members:
            del self._members[name]
            self._store.remove(name)
