# SPDX-License-Identifier: LGPL-2.1-or-later
"""Whether this mgr may act: it owns the journal, and can read the stored state."""
import errno
from typing import List

from ..errors import Refused, idle_check, old_check, too_old
from ..events import Event
from ..status import TOO_EARLY, Published
from ..store import found, found_earlier
from .jobs import Jobs, LoopContext
from .publishing import Publishing


class Ownership:
    """1. `load`: this mgr has become the active one; load the state of an earlier mgr.
    2. `may_act`: at the beginning of each turn. If the journal belonged to another mgr in the
       meantime, load the state again.
    3. `refuse_idle`: for commands, in other threads.
    """

    def __init__(self, context: LoopContext, jobs: Jobs, publishing: Publishing) -> None:
        self._store = context.store
        self._clock = context.clock
        self._requests = context.requests
        self._jobs = jobs
        self._publishing = publishing
        #: Why this version must not act; '' if it may.
        self._too_old = ''

    def load(self) -> None:
        now = self._clock()
        self._jobs.journal.load(now)
        self._publishing.events.load()
        self._jobs.load(now)
        losses = found(self._store, self._load_shared())
        for loss in losses:
            self._publishing.note(Event('store', loss.text))
        self._store.losses = losses + found_earlier(self._store)
        self._jobs.rebalance.resumed()

    def _load_shared(self) -> List[str]:
        """Load the state that another mgr may have changed; returns texts on what cannot be
        read."""
        lost = self._jobs.load_shared(self._clock())
        # After the campaign: this version may only act if it can read the campaign.
        withheld = self._store.withheld()
        self._too_old = too_old(withheld) if withheld else ''
        # Requests of a newer version are left to an mgr of that version.
        return lost if withheld else lost + self._requests.load()

    def may_act(self) -> bool:
        """Whether this mgr may act. If not, orders are refused, and a health check gives the
        reason."""
        journal = self._jobs.journal
        self._jobs.read_back(self._clock())
        if journal.fenced and not self._claimed():
            self._requests.refuse(journal.failure)
            self._publishing.warn(idle_check(journal.failure))
            return False
        if self._too_old:
            self._requests.refuse(self._too_old)
            self._publishing.warn(old_check(self._too_old))
            return False
        return True

    def _claimed(self) -> bool:
        """While fenced: whether this mgr is the active one again. It continues from the stored
        state, since another mgr may have been active meanwhile."""
        if not self._jobs.journal.claim(self._clock()):
            return False
        self._store.verified()
        for text in self._load_shared():
            self._publishing.note(Event('store', 'cannot read %s' % text))
        self._publishing.note(
            Event('start', 'this mgr acts again', 'it is the active mgr in the MgrMap'))
        return True

    def refuse_idle(self, published: Published) -> None:
        """Raise Refused while the state is unknown or stale."""
        if self._jobs.journal.fenced:
            raise Refused(errno.EAGAIN, self._jobs.journal.failure)
        if self._too_old:
            raise Refused(errno.EPERM, self._too_old)
        if not published.turned:
            raise Refused(errno.EAGAIN, TOO_EARLY)
