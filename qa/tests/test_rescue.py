# SPDX-License-Identifier: LGPL-2.1-or-later
"""Degraded PGs that wait for an OSD that is too full, while others have room."""
import contextlib
import time
from typing import Dict, Iterator, List

import pytest

from perfguard.mitigation.rescuing import SPACE_LOOK_SECONDS
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
#: One on each of the hosts that may take a PG, and their neighbours. Several PGs are rescued at a
#: time, and each OSD takes one of them, so that some would go to the neighbours if these had room.
ROOMY, TIGHT = (0, 1, 2), (4, 5, 6)
OBJECTS, SIZE = 4000, 32768
NEARFULL = 0.85
#: Shards of the replicated pool that a neighbour has room for: fewer than perfguard leaves as a
#: margin.
LEFT = 1.6


def toofull(cluster: Cluster) -> List[str]:
    return [pg['pgid'] for pg in cluster.pgs() if 'backfill_toofull' in pg['state']]


def states(cluster: Cluster) -> Dict[int, List[str]]:
    return {row['osd']: row['state'] for row in cluster.osd_dump()['osds']}


def full(cluster: Cluster) -> List[int]:
    return [osd for osd, state in states(cluster).items()
            if {'nearfull', 'backfillfull', 'full'} & set(state)]


def clean(cluster: Cluster) -> bool:
    return all(pg['state'].startswith('active+clean') for pg in cluster.pgs())


@contextlib.contextmanager
def tight_neighbours(cluster: Cluster) -> Iterator[None]:
    """They are smaller for a while: two more PGs make them nearfull."""
    def resize(osd: int, size: int) -> None:
        cluster.tell('osd.%d' % osd, 'config set', var='memstore_device_bytes', val=[str(size)])

    rows = {row['id']: row for row in cluster.mon('osd df')['nodes']}
    pool = next(row for row in cluster.osd_dump()['pools'] if row['pool_name'] == 'rep')
    shard = OBJECTS * SIZE / pool['pg_num']
    try:
        for osd in TIGHT:
            resize(osd, round((rows[osd]['kb_used'] * 1024 + LEFT * shard) / NEARFULL))
        cluster.wait(lambda: all(0.7 < row['utilization'] / 100 < NEARFULL
                                 for row in cluster.mon('osd df')['nodes'] if row['id'] in TIGHT),
                     30, 'neighbours that are nearly full')
        # perfguard may have read what they hold just before.
        time.sleep(SPACE_LOOK_SECONDS + 2.0)
        yield
    finally:
        for osd in TIGHT:
            resize(osd, rows[osd]['kb'] * 1024)


def check_takers(cluster: Cluster) -> None:
    """No neighbour has got a PG of the replicated pool, or is backfillfull."""
    dump = cluster.osd_dump()
    pool = next(row['pool'] for row in dump['pools'] if row['pool_name'] == 'rep')
    takers = {pair['to'] for row in dump['pg_upmap_items'] for pair in row['mappings']
              if row['pgid'].startswith('%d.' % pool)}
    assert takers and takers <= set(ROOMY), takers
    assert not [osd for osd in TIGHT if {'backfillfull', 'full'} & set(states(cluster)[osd])]


@pytest.mark.timeout(2400)
def test_degraded_pgs_avoid_a_full_osd(guard: Guard, tier: str) -> None:
    cluster = guard.cluster
    guard.option('mitigation_seconds', '5')
    guard.option('mitigation_mode', 'observe')
    cluster.fill('rep', OBJECTS, SIZE)
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
        with tight_neighbours(cluster), FullWatch(cluster) as watch:
            guard.option('mitigation_mode', 'act')
            cluster.wait(lambda: clean(cluster), 180, 'all PGs clean')
            check_takers(cluster)
        held = [row['what'] for row in guard.get('held')['held']]
        print('%s: %d PGs stuck, clean %.0f s after mode act, %d upmaps' % (
            cluster.release.name, len(stuck), time.time() - begin, len(held)))
        assert len(held) >= len(stuck) > len(ROOMY)
        # OSDMaps alone may make a neighbour nearfull.
        assert watch.full - set(TIGHT) == {FULL}
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
