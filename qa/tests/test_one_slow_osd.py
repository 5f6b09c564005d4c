# SPDX-License-Identifier: LGPL-2.1-or-later
"""One OSD suffers while a campaign releases PGs: it gets none, and the others continue."""
import time
from typing import Callable, Dict, List, Set, Tuple

import pytest

from qa.cluster import Cluster
from qa.lib.faults import dispatch_delay
from qa.lib.guard import ENABLED, Guard

ClusterFactory = Callable[..., Cluster]

CONF = {'mon': ENABLED, 'mgr': {'mgr_stats_period': '1'}}
#: Ceph's own pace, and perfguard's own judgement of latency. What two shared cores add to the
#: latency of an OSD in memory is no slowness.
OPTIONS = {'latency_floor_ms': '3', 'baseline_seconds': '10', 'loop_interval': '1',
           'latency_alarm_factor': '100', 'target': 'crush', 'stall_ratio': '0.05',
           'max_backfills_source': '1', 'max_backfills_primary': '1', 'max_backfills_target': '1',
           'max_backfills_host': '2'}
POOL = 'rep'
SLOW = 2
#: An operation takes several times as long.
DELAY_SECONDS = 0.004
#: Until the baseline of each OSD is known, from so many reads.
QUIET_SECONDS = 120.0
#: Until perfguard has noticed, and for a rate of releases.
NOTICE_SECONDS, SPAN_SECONDS = 10.0, 35.0


def releases(cluster: Cluster, seconds: float) -> List[Set[int]]:
    """The OSDs that serve each PG released meanwhile, and those that will."""
    before: Set[str] = set(temps(cluster))
    found: Dict[str, Set[int]] = {}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for pgid, acting in temps(cluster).items():
            if pgid not in before and pgid not in found:
                found[pgid] = set(acting) | set(cluster.mon('pg map', pgid=pgid)['up'])
        time.sleep(0.2)
    return list(found.values())


def temps(cluster: Cluster) -> Dict[str, Tuple[int, ...]]:
    return {row['pgid']: tuple(row['osds']) for row in cluster.osd_dump()['pg_temp']}


@pytest.mark.alone
@pytest.mark.releases('pacific', quick=())
def test_one_slow_osd_gets_no_release_and_the_others_continue(
        release: str, make_cluster: ClusterFactory) -> None:
    cluster = make_cluster(release, osds=12, hosts=6, conf=CONF)
    cluster.pool_create(POOL, 512, size=3)
    cluster.fill(POOL, 2000, 16384)
    cluster.wait_clean(60)
    guard = Guard(cluster, OPTIONS)
    load = cluster.load(POOL, rate=300, read_fraction=0.7, runtime=900, objects=500)
    try:
        time.sleep(QUIET_SECONDS)
        guard.hold(lambda: cluster.add_osds(4))
        guard.do('start')
        guard.wait_moving()
        usual = [osds for osds in releases(cluster, SPAN_SECONDS) if SLOW not in osds]
        with dispatch_delay(cluster, SLOW, DELAY_SECONDS):
            guard.wait_code('OSD_LATENCY', timeout=60)
            time.sleep(NOTICE_SECONDS)
            slow = guard.osds()[SLOW]
            others = releases(cluster, SPAN_SECONDS)
    finally:
        load.stop()
    print('osd.%d: %s; released in %d s before: %d, with it: %d'
          % (SLOW, slow, SPAN_SECONDS, len(usual), len(others)))
    assert len(usual) >= 5
    assert not [osds for osds in others if SLOW in osds]
    assert len(others) >= 0.8 * len(usual)
    assert not guard.tracebacks()
