# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pins of PGs that lack an OSD, or for which CRUSH finds too few."""
import time
from typing import List, Set

import pytest

from qa.cluster import Cluster
from qa.lib.clusters import ClusterFactory
from qa.lib.guard import FAST_CONF, Guard
from qa.lib.joins import up_sets

from .test_balanced import Sets, acting_sets
from .test_down_osds import take_down

NO_OSD = 0x7FFFFFFF

pytestmark = pytest.mark.releases('pacific', 'reef', 'tentacle', quick='pacific')


def cancelled(cluster: Cluster) -> List[str]:
    """Commands with which the mons would clean up the upmaps."""
    osdmap, commands = cluster.directory / 'osdmap', cluster.directory / 'cleanup'
    cluster.ceph('osd', 'getmap', '-o', str(osdmap))
    cluster.run_tool(['osdmaptool', str(osdmap), '--upmap-cleanup', str(commands)])
    return commands.read_text().splitlines()


def test_pgs_with_a_hole_that_move_are_pinned_by_vectors(release: str,
                                                         make_cluster: ClusterFactory) -> None:
    """CRUSH hardly finds an OSD in a host of little weight. norebalance alone does not keep such
    PGs from moving."""
    cluster = make_cluster(release, osds=8, hosts=4, conf=FAST_CONF)
    cluster.pool_create('ec', 64, erasure=(3, 1))
    # So many that no PG recovers from its log instead.
    cluster.fill('ec', 2000, 512)
    cluster.wait_clean(60)
    guard = Guard(cluster)
    small = [osd for osd, host in cluster.osd_hosts().items() if host == cluster.osd_hosts()[7]]
    before = acting_sets(cluster)
    guard.prepare()
    cluster.mon('osd set', key='nobackfill')
    cluster.order([{'prefix': 'osd crush reweight', 'name': 'osd.%d' % osd, 'weight': weight}
                   for osd, weight in ((0, 0.3), *((osd, 0.003) for osd in small))])
    guard.wait_remapped()
    cluster.flush_pg_stats()
    ups = up_sets(cluster)
    moved = [pgid for pgid, acting in before.items() if NO_OSD in ups[pgid] and any(
        new not in (old, NO_OSD) for old, new in zip(acting, ups[pgid]))]
    guard.do('pin')
    status = guard.wait_phase('PINNED')
    vectors = {row['pgid']: row['osds'] for row in cluster.osd_dump()['pg_upmap']}
    print('%s: %d PGs with a hole move, %d pinned in all, %d cannot be' % (
        release, len(moved), status['pinned'], len(status['unpinnable'])))
    assert moved and {pgid: vectors.get(pgid) for pgid in moved} == {
        pgid: before[pgid] for pgid in moved}
    assert cancelled(cluster) == []
    cluster.mon('osd unset', key='nobackfill')
    time.sleep(5)
    cluster.flush_pg_stats()
    assert acting_sets(cluster) == before
    assert {pgid: up_sets(cluster)[pgid] for pgid in moved} == {
        pgid: before[pgid] for pgid in moved}
    assert set(moved).isdisjoint(row['pgid'] for row in status['unpinnable'])
    guard.do('start')
    guard.wait_phase('DONE', timeout=120)
    assert guard.upmaps() == {} and not guard.tracebacks()


@pytest.mark.shares('campaign')
def test_degraded_pgs_keep_what_they_have_left(release: str, guard: Guard) -> None:
    """norebalance does not defer their backfill: they would move to the new OSDs at once."""
    cluster = guard.cluster
    guard.prepare()
    before = acting_sets(cluster)
    cluster.order([{'prefix': 'osd set', 'key': key} for key in ('noout', 'nobackfill')])
    try:
        take_down(cluster, [1])
        cluster.add_osds(2)
        guard.wait_remapped()
        cluster.flush_pg_stats()
        lacking = {pgid for pgid, osds in before.items() if 1 in osds}
        aimed = lacking - kept(before, up_sets(cluster))
        guard.do('pin')
        cluster.wait(lambda: len(lacking - kept(before, up_sets(cluster))) <= len(aimed) / 4, 40,
                     'PGs pinned')
        # Some may still be on their way to the mons.
        cluster.wait(lambda: lacking - kept(before, up_sets(cluster)) <= {
            row['pgid'] for row in guard.status()['unpinnable']}, 20, 'a reason for each other PG')
        assert cancelled(cluster) == []
        cluster.mon('osd unset', key='nobackfill')
        # Until they report, PGs are in the states from before.
        time.sleep(5)
        cluster.flush_pg_stats()
        cluster.wait(lambda: not any('backfill' in pg['state'] and not has_arrived(pg['state'])
                                     for pg in cluster.pgs()), 60, 'the backfill of what is lost')
        moved = before.keys() - kept(before, acting_sets(cluster))
        print('%s: of %d PGs that lack an OSD, %d were to move another copy or shard, %d did' % (
            release, len(lacking), len(aimed), len(moved)))
        # Where a lost shard is rebuilt in the failure domain of another one, that one moves.
        assert len(moved) <= len(aimed) / 4
        cluster.start('osd.1')
    finally:
        for key in ('noout', 'nobackfill'):
            cluster.mon('osd unset', key=key)
    guard.wait_phase('PINNED', timeout=120)
    cluster.wait_clean(60)
    # perfguard sees that with the next report of the PGs.
    cluster.wait(lambda: not guard.status()['unpinnable'], 30, 'no PG that cannot be pinned')
    guard.do('start')
    guard.wait_phase('DONE', timeout=240)
    cluster.wait_clean(60)
    assert guard.upmaps() == {} and not guard.tracebacks()


def has_arrived(state: str) -> bool:
    """Whether all objects of an undersized PG are in place. norebalance then defers the end of its
    backfill, if its primary reports before the target has confirmed the end, and perfguard keeps
    the flag as long as other PGs are unclean as well."""
    words = state.split('+')
    return 'undersized' in words and 'degraded' not in words


def kept(before: Sets, now: Sets) -> Set[str]:
    """PGs all of whose OSDs still have it, but for the one that is down."""
    return {pgid for pgid, osds in before.items() if set(osds) - {1} <= set(now[pgid])}
