# SPDX-License-Identifier: LGPL-2.1-or-later
"""Whether the mons keep what was journalled, and whether this mgr is still the one that may act.

A write that fails is only logged by Ceph, and an mgr reads its own cache. So what matters is read
back from the mons before anything is sent. The same reading tells of another mgr that has become
active: each writes its gid under `owner` when it does. A write may reach the mons late, when
another mgr has taken over long ago: so the mgr that the MgrMap names owns the journal again.
"""
from typing import Mapping, Optional, Protocol, Sequence

from .store import Store

#: Key of the mgr that became active last.
OWNER = 'owner'
#: Seconds between two looks at the MgrMap while fenced: the mgr builds all of it for that.
CLAIM_SECONDS = 30.0


class Mons(Protocol):
    def stored(self, keys: Sequence[str]) -> Mapping[str, Optional[str]]:
        """None: there is no such key; those of which nothing is known are left out."""

    def active_gid(self) -> int: ...


class Journal:
    def __init__(self, mons: Mons, store: Store) -> None:
        self._mons = mons
        self._store = store
        self._gid = 0
        self._token = ''
        #: The mons have shown this mgr as the owner.
        self._owned = False
        #: Another mgr has become active: this one must not act any more.
        self.fenced = False
        #: When the MgrMap was looked at last, or else this mgr was found to be fenced.
        self._looked: Optional[float] = None
        #: Why nothing may be sent now; '' where all is kept.
        self.failure = ''

    def load(self, now: float) -> None:
        """This mgr has become active."""
        self._take(self._mons.active_gid(), now)

    def _take(self, gid: int, now: float) -> None:
        self._gid, self._token = gid, '%d %.6f' % (gid, now)
        self._owned = self.fenced = False
        self._looked, self.failure = None, ''
        self._store.put_key(OWNER, self._token)

    def claim(self, now: float) -> bool:
        """While fenced, now and then: own the journal again if this is the active mgr after all."""
        if self._looked is None:
            self._looked = now  # an mgr that is deposed ends as soon as it hears of that
        if 0.0 <= now - self._looked < CLAIM_SECONDS:
            return False
        self._looked = now
        if not self._gid or self._mons.active_gid() != self._gid:
            return False
        self._take(self._gid, now)
        return True

    def owns(self) -> bool:
        """Whether no other mgr has become active; asked before records are written that it would
        write under the same names."""
        if self.fenced:
            return False
        found = self._mons.stored([OWNER])
        if found.get(OWNER) != self._token:
            return self._not_owner(found)
        self._owned, self.failure = True, ''
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
            return self._not_owner(found)
        self._owned = True
        lost = sorted(key for key, value in expected.items() if found.get(key) != value)
        if lost:
            self._store.put_again()
            self.failure = ("the mons do not store perfguard's journal (%s%s): "
                            'perfguard sends no command') % (
                lost[0], '' if len(lost) == 1 else ' and %d more' % (len(lost) - 1))
            return False
        self._store.verified()
        self.failure = ''
        return True

    def _not_owner(self, found: Mapping[str, Optional[str]]) -> bool:
        other = found.get(OWNER)
        if self._owned and other:
            self.fenced = True
            self.failure = ('the journal belongs to another mgr, which has become active (gid %s): '
                            'this mgr sends no command' % other.split()[0])
            return False
        if not self._owned or OWNER in found:
            # Its own mark did not arrive, or was removed. Without an answer another mgr may be
            # active by now, whose mark a late write would replace.
            self._store.put_key(OWNER, self._token)
        self.failure = 'cannot read the journal back from the mons: perfguard sends no command'
        return False
