# SPDX-License-Identifier: LGPL-2.1-or-later
"""Drained OSDs under a rule that chooses several OSDs in each of some hosts."""
import re
from typing import Dict, List, Mapping

import pytest

from qa.cluster import Cluster
from qa.lib.clusters import ClusterFactory
from qa.lib.guard import FAST_CONF, Guard
from qa.lib.joins import add_rule, crush_weights, order, up_sets, wait_reported

pytestmark = pytest.mark.releases('pacific', 'reef', 'tentacle', quick='pacific')

RULE = '''
rule grouped {
    id 77
    type erasure
    step set_chooseleaf_tries 5
    step set_choose_tries 100
    step take default
    step choose indep 2 type host
    step choose indep 2 type osd
    step emit
}
'''
#: The OSDs of one host.
DRAINED, BESIDE = 2, {6, 10}
Ups = Mapping[str, List[int]]


def add_grouped_pool(cluster: Cluster, pg_num: int) -> None:
    add_rule(cluster, RULE)
    cluster.pool_create('unused', 1, erasure=(2, 2))  # for its profile
    cluster.mon('osd pool create', pool='grouped', pg_num=pg_num, pgp_num=pg_num,
                pool_type='erasure', erasure_code_profile='unused-profile', rule='grouped',
                autoscale_mode='off')
    cluster.wait_active(30)
    cluster.fill('grouped', 200, 512)


def on_drained(cluster: Cluster) -> List[str]:
    return sorted(pgid for pgid, osds in up_sets(cluster).items() if DRAINED in osds)


def exchange_groups(cluster: Cluster) -> Dict[str, List[int]]:
    """Let groups change places, with one shard on the drained OSD; returns the vectors."""
    vectors = {}
    for pgid, osds in up_sets(cluster).items():
        if len(osds) == 4 and BESIDE <= set(osds):
            swapped = [DRAINED if osd == min(BESIDE) else osd for osd in (*osds[2:], *osds[:2])]
            cluster.mon('osd pg-upmap', pgid=pgid, id=swapped)
            vectors[pgid] = swapped
    cluster.wait_clean(60)
    assert len(vectors) > 2 and all(up_sets(cluster)[pgid] == osds
                                    for pgid, osds in vectors.items())
    return vectors


def moved(before: Ups, after: Ups) -> Dict[str, int]:
    """PG -> how many of its shards have moved."""
    return {pgid: sum(old != new for old, new in zip(osds, after[pgid]))
            for pgid, osds in before.items()}


def test_pgs_of_which_two_groups_have_changed_places_leave_a_drained_osd(
        release: str, make_cluster: ClusterFactory) -> None:
    """Their vectors do not show which OSD of CRUSH's set has been replaced by the drained one."""
    cluster = make_cluster(release, osds=12, hosts=4, conf=FAST_CONF)
    hosts = cluster.osd_hosts()
    assert {osd for osd, host in hosts.items() if host == hosts[DRAINED]} == {DRAINED, *BESIDE}
    add_grouped_pool(cluster, 32)
    guard = Guard(cluster)
    cluster.mgr('balancer off')

    # An operator has drained the OSD, which upmaps survive.
    cluster.mon('osd crush reweight', name='osd.%d' % DRAINED, weight=0.0001)
    cluster.wait_active(30)
    cluster.wait_clean(60)
    vectors = exchange_groups(cluster)
    stranded = on_drained(cluster)
    assert set(vectors) <= set(stranded)
    wait_reported(guard)
    answer = order(guard, 'adopt')
    named = {row['pgid'] for row in answer['left_out']}
    assert answer['pgs'] + len(named & set(stranded)) >= len(stranded), answer
    guard.wait_phase('DONE', timeout=120)
    cluster.wait_clean(60)
    shards = moved(vectors, up_sets(cluster))
    print('%s: adopt: %d PGs on the drained OSD, %d taken, %d named; shards moved: %s' % (
        release, len(stranded), answer['pgs'], len(named), sorted(shards.values())))
    assert not named and on_drained(cluster) == [] and set(shards.values()) == {1}

    # perfguard drains it: the vectors are there before.
    guard.remove_upmaps()
    cluster.mon('osd crush reweight', name='osd.%d' % DRAINED, weight=1.0)
    cluster.wait_active(30)
    cluster.wait_clean(60)
    vectors = exchange_groups(cluster)
    wait_reported(guard)
    order(guard, 'drain', what=['osd.%d' % DRAINED])
    guard.wait_phase('DONE', timeout=120)
    cluster.wait_clean(60)
    left = on_drained(cluster)
    text = '\n'.join(guard.event_texts('join') + guard.event_texts('unpinnable'))
    print('%s: drain: %d PGs there by a vector, %d left; CRUSH weight %s' % (
        release, len(vectors), len(left), crush_weights(cluster)[DRAINED]))
    assert set(left) <= set(re.findall(r'PG (\S+)', text)), (left, text)
    assert left or crush_weights(cluster)[DRAINED] == 0.0
    assert guard.get('held')['held'] == [] and not guard.tracebacks()
