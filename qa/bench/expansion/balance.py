# SPDX-License-Identifier: LGPL-2.1-or-later
"""Runs the balancer until it finds no further change; how even the PGs are then."""

import json
import time
from collections import Counter
from typing import Any, Dict, Iterable, List, Mapping

from qa.cluster import Cluster, WaitTimeout

from .settings import BALANCER, ERASURE, REPLICATED

#: Parts of the balancer's status when it finds no change; the same in all releases.
NOTHING_TO_DO = ('unable to find further optimization', 'distribution is already perfect')

POLL_SECONDS = 1.0


def set_up(cluster: Cluster) -> None:
    """Off, until `balance`."""
    for name, value in BALANCER.items():
        cluster.mon('config set', who='mgr', name=f'mgr/balancer/{name}', value=value)
    _balancer(cluster, 'balancer off')
    _balancer(cluster, 'balancer mode', mode='upmap')


def balance(cluster: Cluster, timeout: float) -> None:
    """Switch the balancer on until all is clean and it finds nothing more, then off again."""
    _balancer(cluster, 'balancer on')
    deadline = time.monotonic() + timeout
    upmaps: Any = None
    before = ''
    while True:
        dump = cluster.osd_dump()
        status = json.loads(_balancer(cluster, 'balancer status', format='json'))
        if dump['pg_temp'] or dump['pg_upmap_items'] != upmaps:
            upmaps, before = dump['pg_upmap_items'], status['last_optimize_started']
        elif is_done(status, before):
            break
        if time.monotonic() > deadline:
            raise WaitTimeout(f'the balancer is at work after {timeout:g} s; {cluster.health()}')
        time.sleep(POLL_SECONDS)
    _balancer(cluster, 'balancer off')
    cluster.wait_clean(max(10.0, deadline - time.monotonic()))


def is_done(status: Mapping[str, Any], before: str) -> bool:
    """Whether the balancer, by its own status, found nothing in a try begun after `before`."""
    text = status['optimize_result'].lower()
    return (status['last_optimize_started'] != before
            and any(part in text for part in NOTHING_TO_DO))


def _balancer(cluster: Cluster, prefix: str, **args: Any) -> str:
    seen: List[str] = []

    def answered() -> bool:
        retval, out, _ = cluster.mgr(prefix, **args)
        if retval == 0:
            seen.append(out)
        return bool(seen)

    cluster.wait(answered, 30.0, f'an answer to {prefix}')
    return seen[0]


def deviation(cluster: Cluster) -> Dict[str, float]:
    """By pool: PGs (shards) too many or too few on the OSD where that is most, against CRUSH."""
    cluster.flush_pg_stats()
    ids = {pool['pool_name']: f'{pool["pool"]}.' for pool in cluster.osd_dump()['pools']}
    weights = {row['id']: float(row['crush_weight']) for row in cluster.mon('osd df')['nodes']}
    pgs = cluster.pgs()
    return {pool: worst_deviation([pg['up'] for pg in pgs if pg['pgid'].startswith(ids[pool])],
                                  weights)
            for pool in (REPLICATED, ERASURE)}


def worst_deviation(ups: Iterable[List[int]], weights: Mapping[int, float]) -> float:
    """Of the up sets of a pool; the ideal follows from the weights, not from the CRUSH rule."""
    # Shards without an OSD do not count.
    counts = Counter(osd for up in ups for osd in up if osd in weights)
    per_weight = sum(counts.values()) / sum(weights.values())
    return max(abs(counts[osd] - per_weight * weight) for osd, weight in weights.items())
