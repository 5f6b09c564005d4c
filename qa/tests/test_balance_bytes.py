# SPDX-License-Identifier: LGPL-2.1-or-later
"""balance --by bytes: OSDs of two sizes, pools with PGs of different sizes."""
import time
from typing import Dict, Set, Tuple

import pytest

from qa.cluster import Cluster
from qa.lib.clusters import ClusterFactory
from qa.lib.guard import FAST_CONF, Guard
from qa.lib.joins import order, refused, wait_reported
from qa.tests.test_balanced import assert_nothing_for_the_balancer

MIB = 1 << 20
#: OSD -> MiB: each host has a small and a large one.
SIZES = {osd: 128 if osd < 4 else 256 for osd in range(8)}
CONF = {**FAST_CONF, **{'osd.%d' % osd: {'memstore_device_bytes': str(size * MIB)}
                        for osd, size in SIZES.items()}}
#: Pool -> its PGs, and the number of its objects of 64 KiB.
POOLS: Dict[str, Tuple[int, int]] = {'large': (32, 2800), 'small': (64, 900)}
#: That the balancer allows.
DEVIATION = 4
#: How long the built-in balancer runs beside the result, at its own pace: sixty of its plans.
BESIDE_SECONDS, BETWEEN_SECONDS = 3600.0, 60.0


def uneven_cluster(release: str, make_cluster: ClusterFactory) -> Guard:
    cluster = make_cluster(release, osds=8, hosts=4, conf=CONF)
    for osd, size in SIZES.items():
        cluster.mon('osd crush reweight', name='osd.%d' % osd, weight=size / 128)
    for pool, (pgs, objects) in POOLS.items():
        cluster.pool_create(pool, pgs)
        cluster.fill(pool, objects, 64 << 10)
    guard = Guard(cluster)
    cluster.mon('config set', who='mgr', name='mgr/balancer/upmap_max_deviation',
                value=str(DEVIATION))
    cluster.mgr('balancer off')
    cluster.wait_clean(60)
    wait_reported(guard)
    cluster.mgr('balancer on')
    return guard


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick='tentacle')
def test_balance_by_bytes(release: str, make_cluster: ClusterFactory) -> None:
    guard = uneven_cluster(release, make_cluster)
    cluster = guard.cluster
    before, free = settled_fills(cluster), max_avail(cluster)
    refused(guard, 'balance', 'BALANCER_UNDOES', by='bytes', deviation=str(DEVIATION + 1),
            max_movement='100%')
    plan = order(guard, 'balance', by='bytes', max_movement='100%', dry_run=True)['balance']
    assert plan['deviation'] == DEVIATION
    rows = {row['pool']: row for row in plan['pools'] if row['pool'] in POOLS}
    for pool, row in rows.items():
        assert row['max_avail_before'] == pytest.approx(free[pool], rel=0.03), (pool, free)
    assert spread(before) == pytest.approx(
        plan['load_before'][1] - plan['load_before'][0], abs=0.02)

    order(guard, 'balance', by='bytes', max_movement='100%')
    guard.wait_phase('DONE', timeout=180)
    cluster.wait_clean(30)
    after, freed = settled_fills(cluster), max_avail(cluster)
    print('%s: fill %.1f to %.1f %%, before %.1f to %.1f %%; MAX AVAIL %s, before %s; %d upmaps' % (
        release, 100 * min(after.values()), 100 * max(after.values()), 100 * min(before.values()),
        100 * max(before.values()), freed, free, plan['upmaps_after']))
    assert spread(after) == pytest.approx(
        plan['load_after'][1] - plan['load_after'][0], abs=0.03)
    assert spread(after) < spread(before) / 2
    for pool, row in rows.items():
        assert row['deviation_after'] <= DEVIATION
        assert freed[pool] > free[pool]
        assert row['max_avail_after'] == pytest.approx(freed[pool], rel=0.1)
    assert_balancer_rests(guard)
    assert not guard.tracebacks()


@pytest.mark.releases('tentacle', quick=())
@pytest.mark.timeout(4500)
def test_the_balancer_undoes_nothing_for_an_hour(release: str,
                                                 make_cluster: ClusterFactory) -> None:
    guard = uneven_cluster(release, make_cluster)
    cluster = guard.cluster
    order(guard, 'balance', by='bytes', max_movement='100%')
    guard.wait_phase('DONE', timeout=180)
    cluster.wait_clean(30)
    upmaps, even, free, epoch = guard.upmaps(), settled_fills(cluster), max_avail(cluster), \
        cluster.epoch()
    assert guard.balancer()['active']
    plans: Set[str] = set()
    end = time.monotonic() + BESIDE_SECONDS
    while time.monotonic() < end:
        time.sleep(BETWEEN_SECONDS / 2)
        plans.add(guard.balancer()['last_optimize_started'])
        assert guard.upmaps() == upmaps, sorted(plans)
        assert not cluster.osd_dump()['pg_temp']
    print('%s: %d plans of the balancer, %d OSDMap epochs; fill %.1f to %.1f %%, %.1f to %.1f %% '
          'at first; MAX AVAIL %s, %s at first' % (
              release, len(plans), cluster.epoch() - epoch, 100 * min(fills(cluster).values()),
              100 * max(fills(cluster).values()), 100 * min(even.values()),
              100 * max(even.values()), max_avail(cluster), free))
    assert len(plans) > BESIDE_SECONDS / BETWEEN_SECONDS / 2
    assert spread(fills(cluster)) == pytest.approx(spread(even), abs=0.02)
    for pool in POOLS:
        assert max_avail(cluster)[pool] == pytest.approx(free[pool], rel=0.02)
    assert not guard.tracebacks()


def assert_balancer_rests(guard: Guard) -> None:
    """The balancer is on again and changes nothing."""
    cluster = guard.cluster
    assert guard.balancer()['active']
    upmaps = guard.upmaps()
    cluster.mon('config set', who='mgr', name='mgr/balancer/sleep_interval', value='1')
    cluster.mgr('balancer on')
    time.sleep(10.0)
    assert guard.upmaps() == upmaps
    # It has not merely been too slow.
    assert_nothing_for_the_balancer(cluster, DEVIATION)


def fills(cluster: Cluster) -> Dict[int, float]:
    return {row['id']: row['utilization'] / 100 for row in cluster.mon('osd df')['nodes']}


def settled_fills(cluster: Cluster) -> Dict[int, float]:
    """Once the OSDs have removed the PGs that have left them."""
    last: Dict[int, float] = {}

    def still() -> bool:
        nonlocal last
        before, last = last, fills(cluster)
        time.sleep(2.0)
        return before == last

    cluster.wait(still, 90, 'OSDs that have removed PGs')
    return last


def spread(found: Dict[int, float]) -> float:
    return max(found.values()) - min(found.values())


def max_avail(cluster: Cluster) -> Dict[str, int]:
    return {row['name']: row['stats']['max_avail'] for row in cluster.mon('df')['pools']
            if row['name'] in POOLS}
