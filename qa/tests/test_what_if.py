# SPDX-License-Identifier: LGPL-2.1-or-later
"""Previews of hosts that are not there, and of the loss of hosts, against what then happens."""
import errno
from collections import Counter
from typing import Any, Dict, List

import pytest

from qa.cluster import Cluster
from qa.lib.clusters import ClusterFactory
from qa.lib.guard import FAST_CONF, Guard
from qa.lib.joins import ask, order, refused, wait_reported
from qa.tests.test_balance_bytes import fills, settled_fills

GIB = 1 << 30
CONF = {**FAST_CONF, 'osd': {'memstore_device_bytes': str(GIB)}}
POOLS = ('rep', 'ec')
SIZES = {'rep': 3, 'ec': 4}


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick='tentacle')
def test_what_if(release: str, make_cluster: ClusterFactory) -> None:
    cluster = make_cluster(release, osds=10, hosts=5, conf=CONF)
    cluster.pool_create('rep', 64)
    cluster.pool_create('ec', 32, erasure=(2, 2))
    cluster.fill('rep', 2400, 64 << 10)
    cluster.fill('ec', 800, 64 << 10)
    guard = Guard(cluster)
    guard.option('target', 'balanced')
    cluster.mgr('balancer off')
    settle(guard)
    before = guard.foreign()

    supposed = order(guard, 'preview', change='expand', what_if='2x2x1GiB', weight='1')
    assert supposed['eta_seconds'] is None and supposed['what_if']['osds'] == 4
    refused(guard, 'preview', 'must be <hosts>x', change='expand', what_if='2x2')
    refused(guard, 'preview', "no bucket 'rack9'", change='expand', what_if='2x2x1GiB',
            under=['rack9'])
    assert ask(guard, 'preview', change='lose', what=['host9'])[0] == -errno.ENOENT
    lone = order(guard, 'preview', change='lose', what=['host1'])
    assert lone['eta_seconds'] is None
    assert guard.foreign() == before, 'a preview has changed the cluster'
    print('%s: before %s' % (release, shown(guard)))
    check(supposed, guard, 'before')

    grow(guard, supposed)
    check(supposed, guard, 'after')
    lose(guard)


def grow(guard: Guard, supposed: Dict[str, Any]) -> None:
    """The same hosts, really."""
    cluster = guard.cluster
    cluster.add_osds(4, hosts=['host5', 'host5', 'host6', 'host6'], weight=0.0)
    settle(guard)
    real = order(guard, 'preview', change='expand', weight='1')
    print('shards %d, supposed %d; balanced %d, supposed %d' % (
        real['shards'], supposed['shards'], real['balanced']['shards'],
        supposed['balanced']['shards']))
    assert supposed['balanced']['shards'] == pytest.approx(real['balanced']['shards'], rel=0.1)
    assert supposed['balanced']['bytes'] == pytest.approx(real['balanced']['bytes'], rel=0.1)
    order(guard, 'expand', weight='1')
    guard.wait_phase('DONE', timeout=240)
    settle(guard)


def lose(guard: Guard) -> None:
    """The OSDs of a host go out while they are up, so that all PGs end clean."""
    cluster = guard.cluster
    hosts = cluster.osd_hosts()
    lost = [osd for osd, host in hosts.items() if host == 'host1']
    supposed = order(guard, 'preview', change='lose', what=['host1'])
    assert supposed['osds'] == lost and supposed['eta_basis'] == 'earlier campaigns'
    assert 0 < supposed['eta_low_seconds'] <= supposed['eta_seconds'] \
        <= supposed['eta_high_seconds']
    assert_degraded(supposed, cluster, lost)
    pair = order(guard, 'preview', change='lose', what=['host1', 'host2', 'host3'])
    assert_degraded(pair, cluster, [osd for osd, host in hosts.items()
                                    if host in ('host1', 'host2', 'host3')])
    assert any(row['inactive_pgs'] for row in pair['pools'])
    check(supposed, guard, 'before')
    cluster.mon('osd out', ids=[str(osd) for osd in lost])
    settle(guard)
    check(supposed, guard, 'after', lost)
    assert not guard.tracebacks()


def assert_degraded(supposed: Dict[str, Any], cluster: Cluster, lost: List[int]) -> None:
    """The PGs of each pool that have so few OSDs without the lost ones."""
    names = {row['pool']: row['pool_name'] for row in cluster.osd_dump()['pools']}
    left: Dict[str, List[int]] = {name: [] for name in names.values()}
    for pg in cluster.pgs():
        left[names[int(pg['pgid'].split('.')[0])]].append(len(set(pg['acting']) - set(lost)))
    for row in supposed['pools']:
        counts = left[row['pool']]
        size = max(SIZES.get(row['pool'], 3), max(counts))
        assert row['degraded_pgs'] == sum(count < size for count in counts), (row, counts)
        assert row['inactive_pgs'] == sum(count < row['min_size'] for count in counts)


def settle(guard: Guard) -> None:
    guard.cluster.wait_clean(120)
    settled_fills(guard.cluster)
    wait_reported(guard)


def truth(cluster: Cluster, lost: List[int]) -> Dict[str, Any]:
    pgs: 'Counter[int]' = Counter(osd for pg in cluster.pgs() for osd in pg['up'])
    kept = [osd for osd in cluster.osd_hosts() if osd not in lost]
    counts = [pgs[osd] for osd in kept]
    full = [fill for osd, fill in fills(cluster).items() if osd in kept]
    return {'osds': len(kept), 'pgs_min': min(counts), 'pgs_max': max(counts),
            'pgs_mean': sum(counts) / len(counts), 'fill': sum(full) / len(full),
            'fullest_fill': max(full), 'max_avail': {
                row['name']: row['stats']['max_avail'] for row in cluster.mon('df')['pools']}}


def check(supposed: Dict[str, Any], guard: Guard, when: str, lost: List[int] = []) -> None:
    found = truth(guard.cluster, lost)
    (row,) = supposed['capacity']['classes']
    figures = row[when]
    avail = {pool['pool']: pool['max_avail_' + when] for pool in supposed['capacity']['pools']}
    print('%s %s: supposed %s, MAX AVAIL %s; real %s' % (
        supposed['verb'], when, figures, avail, found))
    assert figures['osds'] == found['osds']
    assert figures['pgs_mean'] == pytest.approx(found['pgs_mean'], abs=0.06)
    # An expansion ends within one of the share per pool; where CRUSH places PGs is known.
    apart = 3 if supposed['verb'] == 'expand' else 0
    assert abs(figures['pgs_min'] - found['pgs_min']) <= apart
    assert abs(figures['pgs_max'] - found['pgs_max']) <= apart
    assert figures['fill'] == pytest.approx(found['fill'], abs=0.005)
    assert figures['fullest_fill'] == pytest.approx(found['fullest_fill'], abs=0.02)
    for pool in POOLS:
        assert avail[pool] == pytest.approx(found['max_avail'][pool], rel=0.05), (when, pool)


def shown(guard: Guard) -> str:
    retval, out, error = guard.cluster.command('mgr', {
        'prefix': 'perfguard preview', 'change': 'lose', 'what': ['host1']}, b'')
    assert retval == 0 and len(out.splitlines()) < 30, (out, error)
    return out
