# SPDX-License-Identifier: LGPL-2.1-or-later
"""Orders that no operator waits for: approved plans, and campaigns that fill new devices."""
from dataclasses import dataclass, replace
from typing import Callable, Optional, Tuple

from ..cluster.types import Document
from ..errors import Refused, as_refusal

#: Seconds until an order that was refused is tried again: doubled each time, up to the maximum.
#: Each attempt runs the tools of Ceph.
RETRY_SECONDS, MOST_RETRY_SECONDS = 60.0, 3600.0


@dataclass(frozen=True)
class Retry:
    """When one order is tried again, and why it waits."""
    #: What the order is for: a plan, or OSDs.
    name: str = ''
    #: The longest interval.
    most: float = MOST_RETRY_SECONDS
    due: float = 0.0
    waits: str = ''
    refusals: int = 0

    def is_due(self, now: float) -> bool:
        return now >= self.due

    def attempt(self, now: float, carry_out: Callable[[], Optional[Document]]
                ) -> Tuple['Retry', Optional[Refused]]:
        """The next attempt if this one is refused, and the refusal. An error is a refusal with EIO:
        it must not fail every later turn."""
        try:
            with as_refusal(self.name):
                carry_out()
        except Refused as refused:
            interval = min(self.most, RETRY_SECONDS * 2.0 ** min(self.refusals, 10))
            return replace(self, due=now + interval, waits=str(refused),
                           refusals=self.refusals + 1), refused.anew()
        return self, None
