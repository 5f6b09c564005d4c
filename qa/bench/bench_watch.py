# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the watch costs the mgr: CPU time of a turn of the loop on a cluster of many OSDs.

    /usr/bin/python3 -m qa.bench.bench_watch [--osds 60] [--pgs 1024] [--seconds 120]

The turns are measured by the module itself (time.thread_time, so what other modules and the rest
of the mgr do does not count) and read from `perfguard status`, once healthy under client load and
once while PGs are laggy, when it looks closest. In the same run ceph-mgr is asked for pg_dump by a
command, which is how scripts outside the cluster watch it.
"""
import argparse
import json
import statistics
import time
from typing import Dict, List

from qa.cluster import Cluster

#: One turn every stats period.
PERIOD_SECONDS = 5.0
CONF = {'mon': {'paxos_propose_interval': '0.2'}, 'mgr': {'mgr_stats_period': str(PERIOD_SECONDS)},
        'osd': {'osd_pool_default_read_lease_ratio': '0.1'}, 'osd_heartbeat_grace': '10'}


def turns(cluster: Cluster, seconds: float) -> List[float]:
    """CPU milliseconds of each turn that is seen in so many seconds."""
    found: List[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        retval, out, error = cluster.mgr('perfguard status', format='json')
        assert retval == 0, error
        cost = json.loads(out)['turn_cpu_ms']
        # The same number to the hundredth of a millisecond is the same turn.
        if not found or cost != found[-1]:
            found.append(cost)
        time.sleep(1.0)
    return found


def pg_dump_ms(cluster: Cluster) -> float:
    """Wall-clock milliseconds of `pg dump`: median of five."""
    times = []
    for _ in range(5):
        begin = time.monotonic()
        retval, _, error = cluster.mgr('pg dump', format='json')
        assert retval == 0, error
        times.append(1000 * (time.monotonic() - begin))
    return statistics.median(times)


def row(name: str, costs: List[float], pg_dump: float) -> str:
    ordered = sorted(costs)
    return '%-22s %5d %8.1f %8.1f %8.1f %8.1f %12.1f %%' % (
        name, len(costs), statistics.mean(costs), statistics.median(costs),
        ordered[int(0.95 * (len(ordered) - 1))], ordered[-1],
        100 * statistics.mean(costs) / pg_dump)


def measure(cluster: Cluster, seconds: float, pgs: int) -> Dict[str, List[float]]:
    cluster.pool_create('bench', pgs, timeout=180)
    cluster.mon('mgr module enable', module='perfguard')
    cluster.wait(lambda: cluster.mgr('perfguard osds')[0] == 0, 120, 'perfguard to answer')
    load = cluster.load('bench', rate=300, read_fraction=0.9, runtime=2 * seconds + 300)
    time.sleep(4 * PERIOD_SECONDS)
    costs = {'healthy, under load': turns(cluster, seconds)}
    cluster.mon('osd set', key='nodown')
    victim = cluster.osds()[0]
    cluster.stop('osd.%d' % victim)
    try:
        cluster.wait(lambda: json.loads(cluster.mgr('perfguard laggy', format='json')[1])['pgs'],
                     90, 'laggy PGs')
        costs['one OSD hangs'] = turns(cluster, seconds / 2)
    finally:
        cluster.cont('osd.%d' % victim)
    load.stop()
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--release', default='pacific')
    parser.add_argument('--osds', type=int, default=60)
    parser.add_argument('--pgs', type=int, default=1024)
    parser.add_argument('--seconds', type=float, default=120.0)
    args = parser.parse_args()
    with Cluster.up(args.release, osds=args.osds, hosts=max(4, args.osds // 6),
                    conf=CONF) as cluster:
        costs = measure(cluster, args.seconds, args.pgs)
        pg_dump = pg_dump_ms(cluster)
    print('%d OSDs, %d PGs, %s; CPU ms a turn, one turn every %.0f s' % (
        args.osds, args.pgs, args.release, PERIOD_SECONDS))
    print('%-22s %5s %8s %8s %8s %8s %14s' % (
        '', 'turns', 'mean', 'median', 'p95', 'max', 'of a pg dump'))
    for name, measured in costs.items():
        print(row(name, measured, pg_dump))
    print('pg dump by command: %.0f ms' % pg_dump)


if __name__ == '__main__':
    main()
