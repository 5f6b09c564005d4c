# SPDX-License-Identifier: LGPL-2.1-or-later
"""Latency against throughput, measured on a real cluster."""
import itertools
import os
import signal
import time
from collections import Counter
from typing import Any, Dict, List, Set

import pytest

from perfguard.probe.jobs import doubled
from qa.lib.guard import Guard
from qa.lib.probes import ENDED, SHORT, Probes, objects, workers

pytestmark = pytest.mark.shares('campaign')

POOL = 'curve'
DEPTHS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128]
#: 13 depths and three repetitions of a second each.
CURVE_SECONDS = 240.0


def test_a_curve(guard: Guard) -> None:
    guard.cluster.pool_create(POOL, 16, size=2)
    guard.cluster.wait_clean(60)
    probes = Probes(guard)
    before = probes.traces()
    run = probes.begin(**SHORT, profile='curve', rw='randread', pool=POOL)
    probes.cluster.wait(lambda: probes.state(run) in ENDED, CURVE_SECONDS, 'the curve')
    assert probes.state(run) == 'done', probes.row(run)
    found, = probes.guard.get('probe show', run=run)['curves']
    print(probes.guard.ask('probe show', run=run, format='plain')[1])
    points: Dict[int, Any] = {point['depth']: point for point in found['points']}
    assert list(points) == DEPTHS and found['direction'] == 'read'
    for point in points.values():
        for name in ('iops', 'latency_ns', 'p99_ns'):
            assert 0.0 < point[name]['low'] <= point[name]['median'] <= point[name]['high']
        # Little's law.
        in_flight = point['iops']['median'] * point['latency_ns']['median'] / 1e9
        assert 0.6 * point['depth'] < in_flight < 1.4 * point['depth'], point
    peak, knee = points[found['peak_depth']], points[found['knee_depth']]
    assert knee['iops']['median'] <= peak['iops']['high']
    assert peak['iops']['high'] >= max(point['iops']['median'] for point in points.values())
    assert points[128]['latency_ns']['median'] > points[1]['latency_ns']['median']

    # One depth makes no curve.
    run = probes.measure(**SHORT, rw='randread', pool=POOL)['id']
    assert guard.get('probe show', run=run)['curves'] == []

    kill_worker(probes)
    assert probes.traces() == before and not guard.tracebacks()


#: Rates of the client, as shares of what the pool serves.
LOADS = (0.2, 0.4)
#: What the client counts and the OSDs report, of other seconds; and a minute until it is the mean.
TOLERANCE, MINUTE_SECONDS = 0.15, 75.0


@pytest.mark.releases('pacific', 'tentacle', quick=())
def test_the_share_of_what_a_pool_serves(guard: Guard) -> None:
    """Against the rate that the client counts itself."""
    cluster, probes = guard.cluster, Probes(guard)
    cluster.pool_create(POOL, 16, size=2)
    cluster.wait_clean(60)
    assert row_of(guard)['used'] is None and remarks(row_of(guard)) == {'NO_CURVE'}
    run = probes.begin(**SHORT, profile='curve', pool=POOL)
    cluster.wait(lambda: probes.state(run) in ENDED, CURVE_SECONDS, 'the curve')
    assert probes.state(run) == 'done', probes.row(run)
    points = guard.get('probe show', run=run)['curves'][0]['points']
    # A p99 between those of two depths.
    below, above = next((a, b) for a, b in zip(points[3:], points[4:])
                        if b['p99_ns']['median'] > a['p99_ns']['median'] == max(
                            point['p99_ns']['median'] for point in points[:points.index(b)]))
    guard.configure({'capacity_p99_ms': '%.6f' % (
        (below['p99_ns']['median'] + above['p99_ns']['median']) / 2e6)})
    serves = max((below['iops']['median'] + above['iops']['median']) / 2,
                 *(point['iops']['median'] for point in points[:points.index(above)]))
    counted: List[float] = []
    for share in LOADS:
        load = cluster.load(POOL, rate=share * serves, read_fraction=0.0, runtime=240)
        time.sleep(MINUTE_SECONDS)
        row = row_of(guard)
        now = time.time()
        load.stop()
        rate = load.percentiles(now - 60.0, now)['count'] / 60.0
        print('%.0f of %.0f operations per second: %r; %s' % (
            rate, serves, row, load.described(now - 60.0, now)))
        assert row['capacity']['median'] == pytest.approx(serves, rel=0.02)
        assert row['probe'] == run and remarks(row) == {'SHORT_HISTORY'}
        assert row['used']['low'] <= row['used']['median'] <= row['used']['high']
        assert row['used']['median'] == pytest.approx(rate / serves, rel=TOLERANCE)
        assert row['full_seconds'] is None and row['days'] == 0
        counted.append(row['used']['median'])
    assert counted[1] > 1.5 * counted[0]
    # What the curve says nothing of is said.
    load = cluster.load(POOL, rate=LOADS[0] * serves, read_fraction=0.7, runtime=240, size=65536,
                        objects=64)
    time.sleep(MINUTE_SECONDS)
    row = row_of(guard)
    load.stop()
    print(guard.ask('pools', capacity=True, format='plain')[1])
    assert {'READS_AS_WRITES', 'UNLIKE_SIZE'} <= remarks(row) and not row['certain'], row
    assert not guard.tracebacks()


def row_of(guard: Guard) -> Any:
    """Of the pool, in `pools --capacity`."""
    return next(row for row in guard.get('pools', capacity=True)['pools'] if row['pool'] == POOL)


def remarks(row: Any) -> Set[str]:
    return {remark['code'] for remark in row['remarks']}


def kill_worker(probes: Probes) -> None:
    """In the midst of a curve, as the kernel does where memory runs out: the run ends at once."""
    run = probes.begin(**SHORT, profile='curve', rw='randread', pool=POOL)
    probes.cluster.wait(lambda: probes.row(run)['message'].startswith('measurement 3 '),
                        60, 'the third measurement')
    pid, = workers(probes.cluster)
    os.kill(pid, signal.SIGKILL)
    probes.cluster.wait(lambda: probes.state(run) != 'running', 5, 'the run to notice')
    probes.cluster.wait(lambda: probes.state(run) in ENDED, 30, 'the run to clean up')
    row = probes.row(run)
    assert row['state'] == 'failed' and 'killed by SIGKILL' in row['message'], row
    assert objects(probes.cluster, POOL) == {}


@pytest.mark.releases('pacific', 'tentacle', quick=())
@pytest.mark.skipif(len(os.sched_getaffinity(0)) > 4, reason='the CPUs may suffice for all OSDs')
def test_a_shared_limit_is_found_with_growing_numbers_of_osds(guard: Guard) -> None:
    """All OSDs and the probe share the CPUs of one machine, which one OSD nearly occupies."""
    run = Probes(guard).measure(**SHORT, rw='randread', pool='rep', osd='all', scale=True,
                                repeat='2', iodepth='16')['id']
    found, = guard.get('probe show', run=run)['scalings']
    print(guard.ask('probe show', run=run, format='plain')[1])
    points = {point['osds']: point for point in found['points']}
    assert points[1]['linear'] == 1.0 and points[8]['linear'] < 0.6
    assert any('of linear' in note for note in found['notes']), found['notes']
    # Eight times as many operations wait for the same CPUs.
    assert points[8]['latency_ns']['median'] > 2 * points[1]['latency_ns']['median']


@pytest.mark.releases('pacific', 'tentacle', quick=())
def test_throughput_of_growing_numbers_of_osds(guard: Guard) -> None:
    """The rate of each OSD is limited, so that the machine can do all of them."""
    probes = Probes(guard)
    before = probes.traces()
    run = probes.measure(**SHORT, rw='randread', pool='rep', osd='all', scale=True, repeat='2',
                         rate_iops='50')['id']
    found, = guard.get('probe show', run=run)['scalings']
    print(guard.ask('probe show', run=run, format='plain')[1])
    assert [point['osds'] for point in found['points']] == [1, 2, 4, 8]
    for point in found['points']:
        assert point['iops']['median'] == pytest.approx(50.0 * point['osds'], rel=0.3)
        assert 0.7 < point['linear'] < 1.4
    run_by_host = probes.measure(**SHORT, rw='randread', pool='rep', osd='all', scale=True,
                                 by_host=True, rate_iops='50')['id']
    found, = guard.get('probe show', run=run_by_host)['scalings']
    print(guard.ask('probe show', run=run_by_host, format='plain')[1])
    hosts = Counter(row['host'] for _, row in sorted(guard.osds().items()))
    counts = list(itertools.accumulate(hosts[name] for name in sorted(hosts)))
    assert [(point['hosts'], point['osds']) for point in found['points']] == [
        (number, counts[number - 1]) for number in doubled(len(hosts))]
    assert all(0.7 < point['linear'] < 1.4 for point in found['points'])
    assert probes.traces() == before
    assert guard.get('probe show', run=run)['curves'] == [] and not guard.tracebacks()
