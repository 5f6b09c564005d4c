# SPDX-License-Identifier: LGPL-2.1-or-later
"""Charts of the page: readings of the last hour that the page does not have yet."""
import math
from typing import Any, Dict, Iterable, List, Optional, Sequence

from .percentiles import LatencyPercentiles, Levels
from .series import (DETAILED_POINTS, READ_NS, READS, WRITE_NS, WRITES, HistoryPoint, Series,
                     mean_flow)

Json = Dict[str, Any]

#: Maximum number of pools with percentiles: the cost grows with pools and OSDs.
TAIL_POOLS = 8
_CLIENTS = ('time', 'seconds', 'read_ms', 'write_ms', 'read_rate', 'write_rate')
#: In the order of the cluster's history after the clients' columns (state.py).
_STATES = ('laggy_pgs', 'degraded_pgs', 'backfilling_pgs', 'slow_ops', 'misplaced_ratio',
           'recovery_bytes_per_second')
CLUSTER_COLUMNS = (*_CLIENTS, *_STATES, 'in_flight', *Levels._fields)
POOL_COLUMNS = (*_CLIENTS, *Levels._fields)


class Charts:
    """Series that histories, which contain sums, cannot hold: percentiles and PGs in flight."""

    def __init__(self) -> None:
        self._cluster = Series(1 + len(Levels._fields), DETAILED_POINTS)
        self._pools: Dict[int, Series] = {}

    def update(self, now: float, seconds: float, percentiles: LatencyPercentiles,
               busiest: Iterable[int], pools: Iterable[int], in_flight: int) -> None:
        """Call this for each point of the histories. `busiest`: pools, the busiest first."""
        self._cluster.add(now, seconds, [in_flight, *_numbers(percentiles.levels_of_cluster(now))])
        for pool in set(self._pools) - set(pools):
            del self._pools[pool]
        for pool in list(busiest)[:TAIL_POOLS]:
            series = self._pools.setdefault(pool, Series(len(Levels._fields), DETAILED_POINTS))
            series.add(now, seconds, _numbers(percentiles.levels_of_pool(now, pool)))

    def cluster(self, points: Sequence[HistoryPoint]) -> Json:
        """`points`: of the cluster's history, newest last."""
        own = _by_time(self._cluster, points)
        return {'columns': list(CLUSTER_COLUMNS), 'rows': [
            [*_clients(point), *(round(value / max(point.seconds, 1e-9), 6)
                                 for value in point.sums[WRITE_NS + 1:]),
             *own.get(point.end, [None] * (1 + len(Levels._fields)))] for point in points]}

    def pool(self, pool_id: int, name: str, points: Sequence[HistoryPoint]) -> Json:
        """`points`: of the pool's history, newest last."""
        series = self._pools.get(pool_id)
        own = _by_time(series, points) if series is not None else {}
        return {'pool': name, 'columns': list(POOL_COLUMNS), 'rows': [
            [*_clients(point), *own.get(point.end, [None] * len(Levels._fields))]
            for point in points]}


def newer(series: Series, since: float) -> List[HistoryPoint]:
    """The points after `since`, newest last."""
    have = len(series)
    number = 8
    while number < have:
        found = series.points(number)
        if found[0].end <= since:
            return [point for point in found if point.end > since]
        number *= 4
    return [point for point in series.points() if point.end > since]


def _by_time(series: Series, points: Sequence[HistoryPoint]) -> Dict[float, List[Optional[float]]]:
    if not points:
        return {}
    found = newer(series, math.nextafter(points[0].end, -math.inf))
    return {point.end: [None if math.isnan(value) else round(value, 3)
                        for value in point.sums] for point in found}


def _clients(point: HistoryPoint) -> List[Optional[float]]:
    flows = [mean_flow([point], READS, READ_NS), mean_flow([point], WRITES, WRITE_NS)]
    return [round(point.end, 3), round(point.seconds, 1),
            *(round(flow.ms, 3) if flow.rate else None for flow in flows),
            *(round(flow.rate, 1) for flow in flows)]


def _numbers(levels: Levels) -> List[float]:
    return [math.nan if value is None else value for value in levels]
