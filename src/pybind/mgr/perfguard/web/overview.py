# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the page is shown in one answer: made of what the loop publishes. Pure."""
from typing import Any, Dict, List, Sequence

from ..probe.report import Probed
from ..status import Published, aged

Json = Dict[str, Any]

#: In one answer, which is asked for again and again.
MOST_EVENTS = 100
MOST_PROBES = 20
MOST_PGS = 50


def overview(published: Published, probed: Probed, drawn: Json, since: float, now: float) -> Json:
    """`drawn`: Watch.drawn; `since` and `now`: seconds since the epoch, of the mgr's clock."""
    return {
        'now': round(now, 3), 'turned': round(published.turned, 3),
        'stale_after': round(published.stale_after, 3), 'status': aged(published, now),
        'rebalance': _bounded(published.rebalance, 'unpinnable'),
        'mitigation': published.mitigated.listing,
        'laggy': _bounded(published.watched.laggy, 'pgs'),
        'events': _newer(published.events, since),
        'probe': probed.listing(MOST_PROBES),
        'schedules': probed.schedules_json()['schedules'], 'series': drawn}


def _bounded(document: Json, key: str) -> Json:
    """With the first PGs of a list, and how many there are."""
    pgs = document.get(key, [])
    return {**document, key: pgs[:MOST_PGS], key + '_count': len(pgs)}


def _newer(events: Sequence[Json], since: float) -> List[Json]:
    return [event for event in events[-MOST_EVENTS:] if event['time'] > since]
