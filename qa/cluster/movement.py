# SPDX-License-Identifier: LGPL-2.1-or-later
"""How much data moves, by the cluster's own counts."""

import json
from typing import Any, Dict

from .cluster import Cluster
from .errors import CommandError


def misplaced_ratio(cluster: Cluster) -> float:
    """Misplaced copies of objects of all copies, as ``ceph -s`` shows it."""
    retval, out, error = cluster.mgr('pg dump', dumpcontents=['sum'], format='json')
    if retval != 0:
        raise CommandError(-retval, error, 'pg dump')
    counts: Dict[str, Any] = json.loads(out)['pg_map']['pg_stats_sum']['stat_sum']
    return float(counts['num_objects_misplaced'] / max(1, counts['num_object_copies']))


def pushed_bytes(cluster: Cluster) -> int:
    """What all OSDs have sent to others in recovery and backfill since they started."""
    return sum(cluster.tell(f'osd.{osd}', 'perf dump')['osd']['push_out_bytes']
               for osd in cluster.osds())
