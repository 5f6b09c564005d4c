# SPDX-License-Identifier: LGPL-2.1-or-later
"""Whether the mons keep what was journalled, and whether this mgr is still the one that may act.

A write that fails is only logged by Ceph, and an mgr reads its own cache. So what matters is read
back from the mons before anything is sent. The same reading tells of another mgr that has become
active: each writes its gid under `owner` when it does.
"""
from typing import Mapping, Optional, Protocol, Sequence

from .store import Store

#: Key of the mgr that became active last.
OWNER = 'owner'


class Mons(Protocol):
    def stored(self, keys: Sequence[str]) -> Mapping[str, Optional[str]]: ...

    def active_gid(self) -> int: ...


class Journal:
    def __init__(self, mons: Mons, store: Store) -> None:
        self._mons = mons
        self._store = store
        self._token = ''
        #: The mons have shown this mgr as the owner.
        self._owned = False
        #: Another mgr has become active: this one must not act any more.
        self.fenced = False
        #: Why nothing may be sent now; '' where all is kept.
        self.failure = ''

    def load(self, now: float) -> None:
        """This mgr has become active."""
        self._token = '%d %.6f' % (self._mons.active_gid(), now)
        self._store.put_key(OWNER, self._token)

    def owns(self) -> bool:
        """Whether no other mgr has become active; asked before records are written that it would
        write under the same names."""
        if self.fenced:
            return False
        other = self._mons.stored([OWNER]).get(OWNER)
        if other != self._token:
            return self._not_owner(other)
        self._owned = True
        return True

    def kept(self) -> bool:
        """Whether all that was written since the last time is with the mons.

        Costs nothing where nothing was written that matters.
        """
        if self.fenced:
            return False
        expected = self._store.unverified()
        if not expected and self._owned:
            return True
        found = self._mons.stored([OWNER, *expected])
        if found.get(OWNER) != self._token:
            return self._not_owner(found.get(OWNER))
        self._owned = True
        lost = sorted(key for key, value in expected.items() if found.get(key) != value)
        if lost:
            self._store.put_again()
            self.failure = 'the mons do not keep what perfguard stores (%s%s): nothing is sent' % (
                lost[0], '' if len(lost) == 1 else ' and %d more' % (len(lost) - 1))
            return False
        self._store.verified()
        self.failure = ''
        return True

    def _not_owner(self, other: Optional[str]) -> bool:
        if self._owned and other:
            self.fenced = True
            self.failure = ('another mgr has become active (gid %s): this one sends nothing'
                            % other.split()[0])
        else:
            # Its own mark did not arrive, or the mons do not answer.
            self._store.put_key(OWNER, self._token)
            self.failure = 'the mons do not show what perfguard stores: nothing is sent'
        return False
