# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pools whose rules take two sites one after the other, or choose racks before hosts; and Ceph's
stretch mode, in which a whole site may fail."""
import time
from collections import Counter
from typing import Dict, List

import pytest

from qa.cluster import Cluster
from qa.lib.clusters import ClusterFactory
from qa.lib.guard import FAST_CONF, Guard
from qa.lib.joins import add_rule, order, wait_reported
from qa.lib.probes import digest
from qa.lib.writer import Writer

pytestmark = pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())

TWO_SITES = """
rule two_sites {
    id 7
    type replicated
    step take rack0
    step chooseleaf firstn 2 type host
    step emit
    step take rack1
    step chooseleaf firstn 2 type host
    step emit
}
"""
TWO_RACKS = """
rule two_racks {
    id 7
    type replicated
    step take default
    step choose firstn 2 type rack
    step chooseleaf firstn 2 type host
    step emit
}
"""
#: The mons of the two sites in stretch mode, and the tiebreaker.
MONS = {'rack0': 'ab', 'rack1': 'cd', 'rack2': 'e'}
#: Copies of a PG in each site.
COPIES = {'rack0': 2, 'rack1': 2}


def make_pool(cluster: Cluster, name: str, rule: str, objects: int = 300) -> int:
    pool = cluster.pool_create(name, 64, size=4)
    cluster.mon('osd pool set', pool=name, var='crush_rule', val=rule)
    cluster.fill(name, objects, 4096)
    cluster.wait_clean(60)
    return pool


def acting_sets(cluster: Cluster, pool: int) -> Dict[str, List[int]]:
    return {pg['pgid']: sorted(pg['acting']) for pg in cluster.pgs()
            if pg['pgid'].startswith('%d.' % pool)}


def unevenly_spread(cluster: Cluster, acting: Dict[str, List[int]]) -> List[str]:
    """PGs that do not have two copies in each site."""
    racks = {osd: rack for rack in COPIES for osd in cluster.mon('osd ls-tree', name=rack)}
    return [pgid for pgid, osds in acting.items()
            if Counter(racks.get(osd) for osd in osds) != COPIES]


def test_an_expansion_of_both_sites_is_pinned_whole(release: str,
                                                    make_cluster: ClusterFactory) -> None:
    cluster = make_cluster(release, osds=8, hosts=8, racks=2, conf=FAST_CONF)
    add_rule(cluster, TWO_SITES)
    # PGs with few objects recover from their logs: they would not be remapped.
    pool = make_pool(cluster, 'sites', 'two_sites', objects=1500)
    before = acting_sets(cluster, pool)
    guard = Guard(cluster, {'target': 'balanced'})
    added: List[int] = []
    guard.hold(lambda: added.extend(
        cluster.add_osds(4, hosts=['host8', 'host9', 'host10', 'host11'])))
    status = guard.status()
    print('%s: %d PGs pinned, unpinnable: %s' % (
        release, status['pinned'], status['unpinnable']))
    assert status['pinned'] > 0 and status['unpinnable'] == []
    cluster.wait_clean(60)
    assert acting_sets(cluster, pool) == before
    guard.do('start')
    done = guard.wait_phase('DONE', timeout=180)
    cluster.wait_clean(60)
    acting = acting_sets(cluster, pool)
    assert done['released'] > 0 and not unevenly_spread(cluster, acting)
    assert {osd for osds in acting.values() for osd in osds} >= set(added)
    assert not guard.tracebacks()


def test_a_pool_gets_the_rule_of_two_sites(release: str, make_cluster: ClusterFactory) -> None:
    """Positions have a meaning under it: all PGs move to where it places them, a few at a time."""
    cluster = make_cluster(release, osds=8, hosts=8, racks=2, conf=FAST_CONF)
    add_rule(cluster, TWO_SITES)
    pool = cluster.pool_create('flat', 16, size=4)
    cluster.fill('flat', 300, 4096)
    cluster.wait_clean(60)
    assert unevenly_spread(cluster, acting_sets(cluster, pool))
    guard = Guard(cluster, {'target': 'balanced', 'max_pgs_in_flight': '4'})
    wait_reported(guard)
    shown = order(guard, 'rule', pool='flat', rule='two_sites')
    assert 'several takes' in str(shown['warnings'])
    done = guard.wait_phase('DONE', timeout=240)
    cluster.wait_clean(60)
    print('%s: %d PGs moved: %s' % (release, done['released'], shown['warnings']))
    assert not unevenly_spread(cluster, acting_sets(cluster, pool)) and guard.upmaps() == {}
    assert not guard.tracebacks()


@pytest.mark.parametrize('target', ['balanced', 'crush'])
def test_a_drained_rack_is_empty_at_the_end(target: str, release: str,
                                            make_cluster: ClusterFactory) -> None:
    """Under a rule that chooses racks first, no shard can leave a rack alone."""
    cluster = make_cluster(release, osds=12, hosts=12, racks=4, conf=FAST_CONF)
    add_rule(cluster, TWO_RACKS)
    make_pool(cluster, 'racks', 'two_racks')
    guard = Guard(cluster, {'target': target})
    wait_reported(guard)
    drained = set(map(int, cluster.mon('osd ls-tree', name='rack0')))
    order(guard, 'drain', what=['rack0'])
    done = guard.wait_phase('DONE', timeout=240)
    cluster.wait_clean(60)
    left = {pg['pgid'] for pg in cluster.pgs() if drained & {*pg['up'], *pg['acting']}}
    print('%s, %s: %d PGs released, %d left in the drained rack' % (
        release, target, done['released'], len(left)))
    assert done['released'] > 0 and not left
    assert not guard.tracebacks()


def enable_stretch_mode(cluster: Cluster) -> None:
    for site, mons in MONS.items():
        for mon in mons:
            cluster.mon('mon set_location', name=mon, args=['rack=' + site])
    cluster.mon('mon set election_strategy', strategy='connectivity')
    cluster.mon('mon enable_stretch_mode', tiebreaker_mon=MONS['rack2'],
                new_crush_rule='two_racks', dividing_bucket='rack')


def degraded_stretch_mode(cluster: Cluster) -> bool:
    return bool(cluster.osd_dump()['stretch_mode']['degraded_stretch_mode'])


def lose_a_site(guard: Guard) -> None:
    """For long enough to see that nothing is released; returns once both are in use again."""
    cluster = guard.cluster
    site = [f'mon.{mon}' for mon in MONS['rack1']] + [
        f'osd.{osd}' for osd in cluster.mon('osd ls-tree', name='rack1')]
    for daemon in site:
        cluster.kill(daemon)
    cluster.wait(lambda: degraded_stretch_mode(cluster), 90, 'degraded stretch mode')
    guard.wait_phase('HOLDING')
    upmaps = guard.upmaps()
    time.sleep(10.0)
    assert upmaps and guard.upmaps() == upmaps
    for daemon in site:
        cluster.start(daemon)
    cluster.wait(lambda: not degraded_stretch_mode(cluster), 90, 'both sites')


def test_nothing_is_released_while_a_site_is_down(release: str,
                                                  make_cluster: ClusterFactory) -> None:
    """In stretch mode clients go on with the other site, and its OSDs have the only copies."""
    cluster = make_cluster(release, osds=8, hosts=8, racks=2, mons=5, conf=FAST_CONF)
    add_rule(cluster, TWO_RACKS)
    make_pool(cluster, 'p', 'two_racks')
    enable_stretch_mode(cluster)
    cluster.add_osds(2, hosts=['host0', 'host1'], weight=0.0)
    objects = digest(cluster, 'p')
    guard = Guard(cluster, {'max_pgs_in_flight': '1'})
    wait_reported(guard)
    order(guard, 'expand', weight=1.0)
    guard.wait_moving()
    with Writer(cluster, 'p') as writer:
        lose_a_site(guard)
        guard.option('max_pgs_in_flight', '0')
        done = guard.wait_phase('DONE', timeout=300)
    cluster.wait_clean(60)
    print('%s: %d PGs released; %d writes, all read back' % (
        release, done['released'], writer.writes))
    assert not unevenly_spread(cluster, {pg['pgid']: pg['acting'] for pg in cluster.pgs()})
    assert digest(cluster, 'p') == objects and not guard.tracebacks()
