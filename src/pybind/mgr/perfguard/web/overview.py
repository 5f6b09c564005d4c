# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the page is shown in one answer: made of what the loop publishes. Pure."""
from typing import Any, Dict, List, Sequence

from ..overview import Published
from ..probed import Probed

Json = Dict[str, Any]

#: Events in one answer, and probes.
MOST_EVENTS = 100
MOST_PROBES = 20


def overview(published: Published, probed: Probed, drawn: Json, since: float, now: float) -> Json:
    """`drawn`: Watch.drawn; `since` and `now`: seconds since the epoch, of the mgr's clock."""
    probes = probed.listing()
    return {
        'now': round(now, 3), 'turned': round(published.turned, 3),
        'stale_after': published.stale_after, 'status': published.status,
        'rebalance': published.rebalance, 'mitigation': published.mitigated.listing,
        'laggy': published.watched.laggy, 'events': _newer(published.events, since),
        'probe': {**probes, 'probes': probes['probes'][-MOST_PROBES:]},
        'schedules': probed.schedules_json()['schedules'], 'series': drawn}


def _newer(events: Sequence[Json], since: float) -> List[Json]:
    return [event for event in events[-MOST_EVENTS:] if event['time'] > since]
