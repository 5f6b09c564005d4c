# SPDX-License-Identifier: LGPL-2.1-or-later
"""Degraded PGs that wait for an OSD that is too full, while others have room."""
import time
from typing import Dict, List

import pytest

from qa.cluster import Cluster
from qa.lib.guard import Guard
from qa.lib.joins import wait_reported

from .test_drain import FullWatch

pytestmark = [pytest.mark.releases('pacific', 'reef', 'tentacle', quick='tentacle'),
              pytest.mark.shares('join')]

#: On the same host: the PGs of the one that fails go to the other, among others.
FAILED, FULL = 7, 3
#: Seconds for which Ceph alone is watched.
STUCK_SECONDS = 12.0


def toofull(cluster: Cluster) -> List[str]:
    return [pg['pgid'] for pg in cluster.pgs() if 'backfill_toofull' in pg['state']]


def states(cluster: Cluster) -> Dict[int, List[str]]:
    return {row['osd']: row['state'] for row in cluster.osd_dump()['osds']}


def full(cluster: Cluster) -> List[int]:
    return [osd for osd, state in states(cluster).items()
            if {'nearfull', 'backfillfull', 'full'} & set(state)]


def clean(cluster: Cluster) -> bool:
    return all(pg['state'].startswith('active+clean') for pg in cluster.pgs())


@pytest.mark.timeout(2400)
def test_degraded_pgs_avoid_a_full_osd(guard: Guard, tier: str) -> None:
    cluster = guard.cluster
    guard.option('mitigation_seconds', '5')
    guard.option('mitigation_mode', 'observe')
    wait_reported(guard)
    try:
        cluster.tell('osd.%d' % FULL, 'injectfull', type='backfillfull', count=-1)
        cluster.wait(lambda: full(cluster) == [FULL], 60, 'an OSD that is backfillfull')
        cluster.kill('osd.%d' % FAILED)
        cluster.mon('osd out', ids=[str(FAILED)])
        cluster.wait(lambda: bool(toofull(cluster)), 60, 'PGs that are backfill_toofull')
        # Everything that can recover does; the rest waits for good.
        cluster.wait(lambda: all(pg['state'].startswith('active+clean')
                                 or 'backfill_toofull' in pg['state'] for pg in cluster.pgs()),
                     120, 'nothing but PGs that are stuck')
        stuck = sorted(toofull(cluster))
        time.sleep(STUCK_SECONDS)
        # An OSD that tries again whether there is room reports its PG as backfill_wait meanwhile.
        cluster.wait(lambda: set(toofull(cluster)) >= set(stuck), 30, 'the same PGs to be stuck')
        assert guard.upmaps() == {}
        begin = time.time()
        with FullWatch(cluster) as watch:
            guard.option('mitigation_mode', 'act')
            cluster.wait(lambda: clean(cluster), 180, 'all PGs clean')
        held = [row['what'] for row in guard.get('held')['held']]
        print('%s: %d PGs stuck, clean %.0f s after mode act, %d upmaps' % (
            cluster.release.name, len(stuck), time.time() - begin, len(held)))
        assert len(held) >= len(stuck) > 0 and watch.full == {FULL}
        cluster.tell('osd.%d' % FULL, 'injectfull', type='none', count=0)
        # One at a time, which takes a while for all of them.
        left = 0 if tier == 'nightly' else len(held) - 1
        begin = time.time()
        cluster.wait(lambda: len(guard.upmaps()) <= left, 60 + 30 * (len(held) - left),
                     'upmaps to be removed')
        cluster.wait(lambda: clean(cluster), 60, 'all PGs clean')
        print('%d upmaps removed in %.0f s' % (len(held) - left, time.time() - begin))
        if not left:
            cluster.wait(lambda: guard.get('held')['held'] == [], 30, 'nothing to be held')
        assert full(cluster) == []
    finally:
        cluster.tell('osd.%d' % FULL, 'injectfull', type='none', count=0)
        if 'up' not in states(cluster)[FAILED]:
            cluster.start('osd.%d' % FAILED)
    assert not guard.tracebacks()
