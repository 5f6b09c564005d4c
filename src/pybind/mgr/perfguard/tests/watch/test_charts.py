# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the page draws: rows newer than those it has, with percentiles by pool."""
import json
from typing import Any, List, Optional, Sequence

import pytest

from perfguard.cluster.types import ClientOps, LatencyCounts, Ops
from perfguard.watch.series import (CLUSTER_COLUMNS, POOL_COLUMNS, TAIL_POOLS, Charts,
                                    HistoryPoint, LatencyPercentiles, Levels, Series, newer)

MS = 1000000
BOUNDS = (MS, 2 * MS, 4 * MS)


def sample(osd: int, read: Sequence[int] = (0, 0, 0, 0), write: Sequence[int] = (0, 0, 0, 0),
           bounds: Sequence[int] = BOUNDS) -> LatencyCounts:
    return LatencyCounts(osd, 30.0, tuple(bounds), tuple(read), tuple(write))


def client(pool: int, osd: int, reads: int = 0, writes: int = 0) -> ClientOps:
    return ClientOps(pool, osd, Ops(reads, reads * MS), Ops(writes, writes * MS))


def sampled(*samples: LatencyCounts, clients: Sequence[ClientOps]) -> LatencyPercentiles:
    """As of 100 s, when they ended."""
    percentiles = LatencyPercentiles()
    osds = [each.osd for each in samples]
    percentiles.update(70.0, [], osds, [], set(osds))
    percentiles.update(100.0, samples, osds, clients)
    return percentiles


def test_a_pool_with_osds_of_its_own_has_their_latency() -> None:
    percentiles = sampled(sample(0, read=(100, 0, 0, 0)), sample(1, read=(0, 0, 100, 0)),
                          clients=[client(7, 0, reads=50), client(8, 1, reads=50)])
    assert percentiles.levels_of_pool(100.0, 7) == Levels(0.5, 0.99, None, None)
    assert percentiles.levels_of_pool(100.0, 8) == pytest.approx((3.0, 3.98, None, None))
    assert percentiles.levels_of_pool(100.0, 9) == Levels()


def test_shares_of_an_osd() -> None:
    """Three quarters of the operations of a fast OSD, a quarter of those of a slow one."""
    rows = sample(0, write=(100, 0, 0, 0)), sample(1, write=(0, 0, 100, 0))
    percentiles = sampled(*rows, clients=[
        client(7, 0, writes=30), client(8, 0, writes=10),
        client(7, 1, writes=10), client(8, 1, writes=30)])
    found = percentiles.levels_of_pool(100.0, 7)
    assert found.write_p50_ms == pytest.approx(2 / 3) and found.read_p50_ms is None
    assert percentiles.levels_of_pool(100.0, 8).write_p50_ms == pytest.approx(2 + 2 / 3)


def test_operations_during_the_sample_count_and_no_others() -> None:
    percentiles = LatencyPercentiles()
    percentiles.update(10.0, [], [0, 1], [client(8, 0, reads=1000)], {1})
    percentiles.update(80.0, [], [0, 1], [client(7, 0, reads=10), client(9, 1, reads=1)], {0})
    percentiles.update(100.0, [sample(0, read=(100, 0, 0, 0))], [0, 1], [client(7, 0, reads=10)])
    assert percentiles.levels_of_pool(100.0, 7).read_p50_ms == 0.5
    assert percentiles.levels_of_pool(100.0, 8) == percentiles.levels_of_pool(100.0, 9) == Levels()
    percentiles.update(130.0, [sample(0, read=(0, 0, 100, 0))], [0, 1])
    assert percentiles.levels_of_pool(130.0, 7) == Levels(), 'nothing is known of its clients'


def test_samples_grow_old_and_other_buckets_are_left_out() -> None:
    percentiles = sampled(sample(0, read=(100, 0, 0, 0)),
                          sample(1, read=(9, 9, 9, 9), bounds=(1, 2, 3)),
                          clients=[client(7, 0, reads=1), client(7, 1, reads=1)])
    assert percentiles.levels_of_pool(100.0, 7).read_p99_ms == 0.99
    assert percentiles.levels_of_pool(230.0, 7) == Levels()


def series_to(count: int, length: int = 720) -> Series:
    series = Series(4, length)
    for number in range(count):
        series.add(5.0 * number, 5.0, [0.0] * 4)
    return series


@pytest.mark.parametrize('count', [0, 1, 9, 100, 800])
@pytest.mark.parametrize('behind', [0, 1, 7, 8, 9, 31, 32, 33, 500, 5000])
def test_newer(count: int, behind: int) -> None:
    series = series_to(count)
    since = 5.0 * (count - 1 - behind)
    assert [point.end for point in newer(series, since)] == [
        point.end for point in series.points() if point.end > since]


def charted(columns: Sequence[str], row: Sequence[Any]) -> Any:
    return dict(zip(columns, row))


def test_rows_have_all_columns_and_are_json() -> None:
    charts = Charts()
    percentiles = sampled(sample(0, read=(100, 0, 0, 0)), clients=[client(7, 0, reads=5)])
    charts.update(100.0, 5.0, percentiles, [7, 8], {7, 8}, 12)
    sums = (10.0, 20.0 * MS, 0.0, 0.0, 15.0, 0.0, 5.0, 0.0, 1.25, 500.0)
    points = [HistoryPoint(100.0, 5.0, sums)]
    found = json.loads(json.dumps(charts.cluster(points)))
    assert found['columns'] == list(CLUSTER_COLUMNS)
    assert charted(found['columns'], found['rows'][0]) == {
        'time': 100.0, 'seconds': 5.0, 'read_ms': 2.0, 'write_ms': None, 'read_rate': 2.0,
        'write_rate': 0.0, 'laggy_pgs': 3.0, 'degraded_pgs': 0.0, 'backfilling_pgs': 1.0,
        'slow_ops': 0.0, 'misplaced_ratio': 0.25, 'recovery_bytes_per_second': 100.0,
        'in_flight': 12.0, 'read_p50_ms': 0.5, 'read_p99_ms': 0.99, 'write_p50_ms': None,
        'write_p99_ms': None}
    pool = charts.pool(7, 'rbd', [points[0]._replace(sums=points[0].sums[:4])])
    assert pool['pool'] == 'rbd' and pool['columns'] == list(POOL_COLUMNS)
    assert charted(POOL_COLUMNS, pool['rows'][0])['read_p99_ms'] == 0.99


def test_figures_of_charts_are_rounded() -> None:
    charts = Charts()
    latest = sampled(sample(0, read=(7, 0, 0, 0), write=(0, 3, 0, 0)), clients=[
        client(7, 0, reads=5, writes=5)])
    charts.update(100.12345, 5.0, latest, [7], {7}, 12)
    sums = (11.0, 13.0 * MS, 7.0, 3.0 * MS, 1e-5, 0.0, 5.0, 0.0, 1.25, 7.0)
    point = HistoryPoint(100.12345, 5.04, sums)
    clients = [100.123, 5.0, 1.182, 0.429, 2.2, 1.4]
    levels = [0.5, 0.99, 1.5, 1.99]
    assert charts.cluster([point])['rows'] == [
        [*clients, 0.000002, 0.0, 0.992063, 0.0, 0.248016, 1.388889, 12.0, *levels]]
    assert charts.pool(7, 'rbd', [point._replace(sums=sums[:4])])['rows'] == [[*clients, *levels]]
    # Before the first sample, and of a time of which nothing is known.
    earlier = point._replace(end=50.0)
    assert charts.cluster([earlier])['rows'][0][-5:] == [None] * 5
    assert charts.pool(8, 'new', [point])['rows'][0][-4:] == [None] * 4
    assert charts.cluster([])['rows'] == [] == charts.pool(7, 'rbd', [])['rows']


def test_the_shares_of_a_pool_are_of_reads_and_of_writes() -> None:
    percentiles = sampled(
        sample(0, read=(60, 0, 0, 0), write=(0, 0, 40, 0)),
        sample(1, read=(0, 0, 60, 0), write=(40, 0, 0, 0)),
        clients=[client(7, 0, reads=10, writes=30), client(8, 0, reads=30, writes=10),
                 client(7, 1, reads=30, writes=10)])
    # A quarter of the reads of osd.0, and all of osd.1: 15 and 60; 30 and 40 writes.
    assert percentiles.levels_of_pool(100.0, 7) == pytest.approx((
        2 + 2 * 22.5 / 60, 2 + 2 * (0.99 * 75 - 15) / 60, 35 / 40, 2 + 2 * (0.99 * 70 - 40) / 30))


def test_a_pool_without_writes_has_no_share_of_them() -> None:
    percentiles = sampled(sample(0, read=(60, 0, 0, 0), write=(0, 0, 40, 0)),
                          clients=[client(7, 0, reads=10)])
    assert percentiles.levels_of_pool(100.0, 7) == Levels(0.5, 0.99, None, None)
    percentiles = sampled(sample(0, read=(60, 0, 0, 0), write=(40, 0, 0, 0)),
                          clients=[client(7, 0, writes=10)])
    assert percentiles.levels_of_pool(100.0, 7) == Levels(None, None, 0.5, 0.99)


@pytest.mark.parametrize('now, is_recent', [(220.0, True), (220.1, False)])
def test_samples_of_two_minutes_are_recent(now: float, is_recent: bool) -> None:
    percentiles = sampled(sample(0, read=(9, 0, 0, 0)), clients=[])
    assert percentiles.levels_of_cluster(now) == (
        Levels(0.5, 0.99) if is_recent else Levels())
    assert percentiles.levels_of_osd(0) == Levels(0.5, 0.99)
    assert percentiles.levels_of_osd(1) == Levels()
    percentiles.update(now, [], [])
    assert percentiles.levels_of_osd(0) == Levels(), 'the OSD is forgotten'


def percentiles(charts: Charts, pool: int) -> List[Optional[float]]:
    return [row[-3] for row in charts.pool(
        pool, 'p', [HistoryPoint(100.0, 5.0, (0.0,) * 4)])['rows']]


def test_only_the_busiest_pools_have_percentiles_and_pools_that_are_gone_none() -> None:
    charts = Charts()
    pools = range(TAIL_POOLS + 1)
    latest = sampled(sample(0, read=(100, 0, 0, 0)),
                     clients=[client(pool, 0, reads=5) for pool in pools])
    charts.update(100.0, 5.0, latest, pools, set(pools), 0)
    assert percentiles(charts, 0) == [0.99] and percentiles(charts, TAIL_POOLS) == [None]
    charts.update(105.0, 5.0, latest, [], set(), 0)
    assert percentiles(charts, 0) == [None]
