# SPDX-License-Identifier: LGPL-2.1-or-later
"""The bill of an expansion under load, against what clients and PG statistics show."""
import json
import time
from typing import Any, Dict, List, Tuple

import pytest

from qa.cluster import Cluster
from qa.cluster.samples import READ, WRITE, Sample, quantile
from qa.lib.clusters import ClusterFactory
from qa.lib.guard import ENABLED, Guard
from qa.lib.joins import order, wait_reported

pytestmark = [pytest.mark.releases('pacific', 'reef', 'tentacle'), pytest.mark.alone]

POOL = 'rep'
CONF = {'mon': ENABLED, 'mgr': {'mgr_stats_period': '2'}}
#: Without fast_peering, operations on a released PG wait for a second or two. The throttle allows
#: any latency, so that the campaign does not depend on the machine.
OPTIONS = {'baseline_seconds': '5', 'fast_peering': 'off', 'max_pgs_in_flight': '2',
           'latency_factor': '50', 'latency_alarm_factor': '100', 'pace_copying': 'off'}
#: Of all messages to OSDs, so many are delayed, by so long, from before the campaign on.
DELAYED, DELAY_SECONDS = 0.001, 0.15
#: The counts of an OSD cover half a minute.
QUIET_SECONDS = 90.0


def shards(cluster: Cluster) -> Dict[str, Tuple[List[int], int]]:
    """PG -> its acting set, and its bytes."""
    cluster.flush_pg_stats()
    retval, out, error = cluster.mgr('pg dump', dumpcontents=['pgs'], format='json')
    assert retval == 0, error
    dump = json.loads(out)
    return {row['pgid']: (row['acting'], row['stat_sum']['num_bytes'])
            for row in dump.get('pg_map', dump)['pg_stats']}


def moved_bytes(before: Dict[str, Tuple[List[int], int]],
                after: Dict[str, Tuple[List[int], int]]) -> int:
    return sum(number * len(set(acting) - set(before[pgid][0]))
               for pgid, (acting, number) in after.items())


def inject(cluster: Cluster, probability: float) -> None:
    cluster.order([{'prefix': 'config set', 'who': 'osd', 'value': str(value),
                    'name': 'osd_debug_inject_dispatch_delay_' + name}
                   for name, value in (('duration', DELAY_SECONDS), ('probability', probability))])


def share_over(samples: List[Sample], limit_ms: float) -> float:
    return sum(sample.latency_ms > limit_ms for sample in samples) / max(1, len(samples))


def test_the_bill_of_an_expansion_under_load(release: str, make_cluster: ClusterFactory) -> None:
    cluster = make_cluster(release, osds=8, hosts=4, conf=CONF)
    cluster.pool_create(POOL, 64, size=3)
    cluster.fill(POOL, 1000, 32768)
    cluster.wait_clean(60)
    guard = Guard(cluster, OPTIONS)
    cluster.add_osds(4, weight=0.0)
    wait_reported(guard)
    load = cluster.load(POOL, rate=300, read_fraction=0.5, runtime=900, objects=300)
    try:
        inject(cluster, DELAYED)
        time.sleep(5)
        quiet = time.time()
        time.sleep(QUIET_SECONDS)
        before, begin = shards(cluster), time.time()
        campaign = order(guard, 'expand', weight='1.0')['campaign']
        guard.wait_phase('DONE', timeout=400)
        end = time.time()
        after = shards(cluster)
        time.sleep(3)
        bill = guard.get('campaign show', campaign=campaign)['bill']
        samples = list(load.samples())
    finally:
        load.stop()
        inject(cluster, 0.0)
    print(release, json.dumps(bill))
    text = guard.cluster.mgr('perfguard campaign show', campaign=campaign)[1]
    print(text)

    # Bytes: perfguard reckons with the mean of a pool's PGs, the statistics have each PG.
    moved = moved_bytes(before, after)
    print('bytes: %d moved by the bill, %d by PG statistics' % (bill['bytes_moved'], moved))
    assert bill['bytes_moved'] == pytest.approx(moved, rel=0.1)
    assert bill['bytes_required'] == pytest.approx(bill['bytes_moved'], rel=0.02)

    # Time.
    assert sum(bill['phase_seconds'].values()) == pytest.approx(end - begin, abs=10)
    assert bill['phase_seconds']['RELEASING'] == max(bill['phase_seconds'].values())
    assert 0 < bill['epochs'] <= cluster.epoch()
    assert {row['state'] for row in bill['settings']} == {'given back'}

    # Latency: OSDs measure from the arrival of an operation, and clients from when it was due.
    assert bill['counted_ratio'] > 0.6
    kinds = (('read', READ), ('write', WRITE))
    for name, spans in (('latency_before', (quiet, begin)), ('latency_while_moving', (begin, end))):
        for kind, number in kinds:
            found = sorted(sample.latency_ms for sample in samples if sample.kind == number
                           and spans[0] <= sample.scheduled < spans[1])
            for percentile, share in (('p50', 0.5), ('p99', 0.99)):
                client, osd = quantile(found, share), bill[name]['%s_%s_ms' % (kind, percentile)]
                print('%s %s %s: OSDs %.2f ms, clients %.2f ms' % (
                    name, kind, percentile, osd, client))
                # Buckets are twice as wide as the ones before.
                assert osd <= 2.0 * client

    # Slow operations: as many as clients see, and those of the injected delays are not explained.
    check_slow(bill, [sample for sample in samples if begin <= sample.scheduled < end],
               [sample for sample in samples if quiet <= sample.scheduled < begin])


def check_slow(bill: Dict[str, Any], during: List[Sample], before: List[Sample]) -> None:
    for key, limit_ms in (('over_100_ms', 100.0), ('over_1_s', 1000.0)):
        counted = bill['counted_ratio'] * bill['operations']
        row = bill[key]
        share, usual = share_over(during, limit_ms), share_over(before, limit_ms)
        print('%s: OSDs %s of %d; clients %d of %d, and %d by the share before' % (
            key, row, counted, round(share * len(during)), len(during),
            round(usual * len(during))))
        assert row['total'] == row['movement'] + row['others'] + row['unknown']
        assert row['total'] / counted <= 2.0 * share + 0.002
    slow = bill['over_100_ms']
    share, usual = share_over(during, 100.0), share_over(before, 100.0)
    assert slow['total'] / counted >= 0.3 * share
    assert slow['movement'] > 0 and slow['others'] > 0
    assert slow['others'] / counted <= 2.0 * usual + 0.002
