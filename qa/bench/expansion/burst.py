# SPDX-License-Identifier: LGPL-2.1-or-later
"""A burst of client load in the middle of a release: does perfguard slow down, and recover?"""

from dataclasses import dataclass
from typing import Any, List, Mapping, Optional, Sequence

from .clients import Clients

#: Share of the PGs that have been released when it begins: the limit has found its level.
BEGIN_RATIO = 0.25


class Burst:
    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._begun = False

    def tick(self, status: Mapping[str, Any]) -> bool:
        """Begin the burst when it is due; returns whether it is active."""
        if not self._begun and status['phase'] == 'RELEASING' and \
                status['released'] >= BEGIN_RATIO * status['total']:
            self._clients.start_burst()
            self._begun = True
        return self._clients.in_burst()


@dataclass(frozen=True)
class Verdict:
    """Seconds are from the begin, or the end, of the burst; None where it did not happen."""
    limit_before: Optional[float]
    lowest_limit: Optional[float]
    yielded_after: Optional[float]
    came_back_after: Optional[float]


def verdict(timeline: Sequence[Mapping[str, Any]]) -> Verdict:
    """When the limit fell below that of before the burst, and when it was that high again."""
    on = [i for i, moment in enumerate(timeline) if moment['burst']]
    if not on or on[0] == 0:
        return Verdict(None, None, None, None)
    # perfguard cannot react to a burst in the second in which it begins.
    before = timeline[on[0]]['limit']
    begun = timeline[on[0]]['time']
    during = [timeline[i] for i in on]
    after: List[Mapping[str, Any]] = list(timeline[on[-1] + 1:])
    lower = [moment for moment in during if moment['limit'] < before]
    back = [moment for moment in after if lower and moment['limit'] >= before
            and moment['phase'] == 'RELEASING']
    return Verdict(before, min(moment['limit'] for moment in during),
                   lower[0]['time'] - begun if lower else None,
                   back[0]['time'] - after[0]['time'] if back else None)
