# SPDX-License-Identifier: LGPL-2.1-or-later
"""CRUSH gives up on some PGs after a drain: they stay where they are, active+clean+remapped."""
import re
import subprocess
from typing import List

import pytest

from qa.cluster import Cluster
from qa.lib.clusters import ClusterFactory
from qa.lib.guard import FAST_CONF, Guard
from qa.lib.joins import order, refused, wait_reported

pytestmark = pytest.mark.releases('pacific', quick=())

HOLE = 2147483647


def crushtool(cluster: Cluster, *argv: str) -> None:
    subprocess.run(cluster.release.argv(['crushtool', *argv], cluster.directory), check=True,
                   stdout=subprocess.DEVNULL)


def set_tries(cluster: Cluster, tries: int) -> None:
    """How often erasure-coded rules try to find an OSD (100 by default)."""
    text, binary = cluster.directory / 'crush.txt', cluster.directory / 'crush.bin'
    cluster.ceph('osd', 'getcrushmap', '-o', str(binary))
    crushtool(cluster, '-d', str(binary), '-o', str(text))
    text.write_text(re.sub(r'set_choose_tries \d+', 'set_choose_tries %d' % tries,
                           text.read_text()))
    crushtool(cluster, '-c', str(text), '-o', str(binary))
    cluster.ceph('osd', 'setcrushmap', '-i', str(binary))


def with_holes(cluster: Cluster) -> List[str]:
    """PGs whose up set has a hole, and whose acting set has none."""
    return sorted(pg['pgid'] for pg in cluster.pgs()
                  if HOLE in pg['up'] and HOLE not in pg['acting'])


def test_a_drain_ends_although_crush_gives_up_on_pgs(release: str,
                                                     make_cluster: ClusterFactory) -> None:
    cluster = make_cluster(release, osds=6, hosts=6, conf=FAST_CONF)
    cluster.pool_create('ec', 128, erasure=(3, 2))
    cluster.fill('ec', 600, 4096)
    cluster.wait_clean(60)
    # As many of them as may be in flight.
    guard = Guard(cluster, {'max_unpinnable_ratio': '0.01', 'max_pgs_in_flight': '2'})
    wait_reported(guard)
    before = guard.foreign()
    for tries in range(40, 10, -2):
        set_tries(cluster, tries)
        cluster.wait_clean(30)
        assert not with_holes(cluster), tries
        preview = order(guard, 'drain', what=['osd.5'], dry_run=True)
        if preview['incomplete_pgs'] > 1:
            break
    number = preview['incomplete_pgs']
    print('%s: with %d tries CRUSH gives up on %d PGs of %d' % (
        release, tries, number, preview['pgs'] + preview['unpinnable_pgs']))
    assert len(preview['unpinnable']) >= number > 1
    refused(guard, 'drain', 'too few OSDs for %d PGs' % number, what=['osd.5'])
    answer = order(guard, 'drain', what=['osd.5'], accept=['TOO_FEW_OSDS'])
    assert answer['incomplete_pgs'] == number
    status = guard.wait_phase('DONE', timeout=240)
    holes = with_holes(cluster)
    print(status['released'], holes, [pg['state'] for pg in cluster.pgs() if pg['pgid'] in holes])
    assert len(holes) == number and status['released'] > 0
    assert all(set(pg['state'].split('+')) >= {'active', 'clean', 'remapped'}
               for pg in cluster.pgs() if pg['pgid'] in holes)
    assert guard.foreign() == before and not guard.tracebacks()
    assert {pg['pgid'] for pg in cluster.pgs() if 5 in pg['acting']} == set(holes)
    # The next campaign has them from the start.
    guard.option('max_pgs_in_flight', '32')
    order(guard, 'undrain', what=['osd.5'])
    guard.wait_phase('DONE', timeout=240)
    cluster.wait_clean(60)
    assert not with_holes(cluster) and not guard.tracebacks()
