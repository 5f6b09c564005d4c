# SPDX-License-Identifier: LGPL-2.1-or-later
"""Orders that are carried out in a later turn: once their job in the tool thread is done, or when
the cluster is ready for an order that no operator waits for."""
import errno
from dataclasses import dataclass, replace
from typing import Any, Callable, Optional, Tuple

from ..cluster.tool_thread import AnyJob
from ..cluster.types import Document
from ..errors import Refused, as_refusal

#: Seconds until an order that was refused is tried again: doubled each time, up to the maximum.
#: Each attempt runs the tools of Ceph.
RETRY_SECONDS, MOST_RETRY_SECONDS = 60.0, 3600.0
#: Seconds until an order that waits for the cluster is tried again: the tools of Ceph do not run
#: before the cluster is fit.
UNFIT_RETRY_SECONDS = 5.0


@dataclass
class WaitingOrder:
    """An order that is carried out in a later turn, and its job in the tool thread."""
    order: Any
    #: It was refused a moment ago, which was logged then: only the state of the cluster is examined
    #: first.
    refused_before: bool = False
    #: None: not begun, or not needed.
    job: Optional[AnyJob] = None
    #: The version of CRUSH that the job is based on.
    crush_version: int = -1
    #: For a rollback: when the phase of the campaign began that the job is based on.
    phase_since: float = 0.0


@dataclass
class QueuedOrder(WaitingOrder):
    """An approved plan, or other order that no command waits for."""
    refused_before: bool = True


@dataclass(frozen=True)
class Retry:
    """When one order is tried again, and why it waits."""
    #: What the order is for: a plan, or OSDs.
    name: str = ''
    due: float = 0.0
    waits: str = ''
    refusals: int = 0

    def is_due(self, now: float) -> bool:
        return now >= self.due

    def attempt(self, now: float, carry_out: Callable[[], Optional[Document]]
                ) -> Tuple['Retry', Optional[Refused]]:
        """Carry out the order. Returns when to try again, and the refusal; if it is not refused,
        this retry and None. An error is a refusal with EIO: it must not fail every later turn."""
        try:
            with as_refusal(self.name):
                carry_out()
        except Refused as refused:
            return self._after(now, refused), refused.anew()
        return self, None

    def _after(self, now: float, refused: Refused) -> 'Retry':
        interval = min(MOST_RETRY_SECONDS, RETRY_SECONDS * 2.0 ** min(self.refusals, 10))
        refusals = self.refusals + 1
        # What waits for the cluster is not tried less and less often.
        if refused.not_fit or refused.errno == errno.EAGAIN:
            interval, refusals = UNFIT_RETRY_SECONDS if refused.not_fit else RETRY_SECONDS, 0
        return replace(self, due=now + interval, waits=str(refused), refusals=refusals)
