# SPDX-License-Identifier: LGPL-2.1-or-later
"""Measurements: client latency from the clients, everything else from the cluster."""

import json
import time
from dataclasses import dataclass
from typing import Any, Dict, List

from qa.cluster import Cluster, CommandError, Load
from qa.cluster.samples import Sample, summarise

RECENT_SECONDS = 5.0


@dataclass(frozen=True)
class Latency:
    """Latency in ms of client operations that were scheduled in an interval."""
    operations: int
    errors: int
    unfinished: int
    p50: float
    p95: float
    p99: float
    max: float
    read_p99: float
    write_p99: float
    over_100_ms: int
    over_1_s: int
    seconds: float


class Gauge:
    def __init__(self, cluster: Cluster, load: Load) -> None:
        self._cluster = cluster
        self._load = load
        #: The maximum of `misplaced_ratio` so far.
        self.misplaced_max = 0.0

    def latency(self, begin: float, end: float) -> Latency:
        """Latency of operations scheduled from `begin` to `end` (seconds since the epoch)."""
        samples = [s for s in self._load.samples() if begin <= s.scheduled < end]
        return _latency(samples, begin, end)

    def recent_p99(self) -> str:
        """A text with the p99 of the last seconds."""
        # The client writes its samples once per second.
        end = time.time() - 1.5
        p99 = self._load.percentiles(end - RECENT_SECONDS, end).get('p99')
        return 'client p99 -' if p99 is None else f'client p99 {p99:.0f} ms'

    def misplaced_ratio(self) -> float:
        """See misplaced_ratio(); updates the maximum."""
        ratio = misplaced_ratio(self._cluster)
        self.misplaced_max = max(self.misplaced_max, ratio)
        return ratio


def _latency(samples: List[Sample], begin: float, end: float) -> Latency:
    both = summarise(samples, begin, end)
    values = {name: both.get(name, 0.0) for name in ('p50', 'p95', 'p99', 'max')}
    return Latency(
        operations=int(both['count']), errors=int(both['errors']),
        unfinished=int(both['unfinished']),
        read_p99=summarise(samples, begin, end, 'read').get('p99', 0.0),
        write_p99=summarise(samples, begin, end, 'write').get('p99', 0.0),
        over_100_ms=sum(s.latency_ms > 100 for s in samples),
        over_1_s=sum(s.latency_ms > 1000 for s in samples), seconds=end - begin, **values)


def misplaced_ratio(cluster: Cluster) -> float:
    """Misplaced copies of objects of all copies, as ``ceph -s`` shows it."""
    retval, out, error = cluster.mgr('pg dump', dumpcontents=['sum'], format='json')
    if retval != 0:
        raise CommandError(-retval, error, 'pg dump')
    counts: Dict[str, Any] = json.loads(out)['pg_map']['pg_stats_sum']['stat_sum']
    return float(counts['num_objects_misplaced'] / max(1, counts['num_object_copies']))


def pushed_bytes(cluster: Cluster) -> int:
    """Bytes that all OSDs have sent in recovery and backfill since their start."""
    return sum(cluster.tell(f'osd.{osd}', 'perf dump')['osd']['push_out_bytes']
               for osd in cluster.osds())
