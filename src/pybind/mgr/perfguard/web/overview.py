# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the page is shown in one answer: made of what the loop publishes. Pure."""
from typing import Any, Dict, List, Sequence

from ..overview import Published
from ..probed import Probed

Json = Dict[str, Any]

#: In one answer, which is asked for again and again.
MOST_EVENTS = 100
MOST_PROBES = 20
MOST_PGS = 50


def overview(published: Published, probed: Probed, drawn: Json, since: float, now: float) -> Json:
    """`drawn`: Watch.drawn; `since` and `now`: seconds since the epoch, of the mgr's clock."""
    probes = probed.listing()
    return {
        'now': round(now, 3), 'turned': round(published.turned, 3),
        'stale_after': round(published.stale_after, 3), 'status': published.status,
        'rebalance': _bounded(published.rebalance, 'unpinnable'),
        'mitigation': published.mitigated.listing,
        'laggy': _bounded(published.watched.laggy, 'pgs'),
        'events': _newer(published.events, since),
        'probe': {**probes, 'probes': _last(probes['probes'])},
        'schedules': probed.schedules_json()['schedules'], 'series': drawn}


def _bounded(document: Json, key: str) -> Json:
    """With the first PGs of a list, and how many there are."""
    pgs = document.get(key, [])
    return {**document, key: pgs[:MOST_PGS], key + '_count': len(pgs)}


def _last(probes: Sequence[Json]) -> List[Json]:
    """The last ones, and the baselines, however old."""
    return [probe for number, probe in enumerate(probes, 1)
            if probe['baseline'] or number > len(probes) - MOST_PROBES]


def _newer(events: Sequence[Json], since: float) -> List[Json]:
    return [event for event in events[-MOST_EVENTS:] if event['time'] > since]
