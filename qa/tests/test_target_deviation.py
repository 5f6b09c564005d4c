# SPDX-License-Identifier: LGPL-2.1-or-later
"""target_deviation: every OSD ends within one PG of its share, though the balancer allows five."""
import time
from typing import Any, Dict

import pytest

from qa.cluster import Cluster
from qa.lib.clusters import ClusterFactory
from qa.lib.guard import FAST_CONF, Guard
from qa.lib.joins import add_rule, ask, order, wait_reported

from .test_balanced import assert_nothing_for_the_balancer, distances

pytestmark = pytest.mark.releases('pacific', 'reef', 'tentacle', quick='pacific')

#: Two shards of a PG on each of three hosts.
BY_TWOS = """
rule by_twos {
    id 7
    type erasure
    step take default
    step choose indep 3 type host
    step choose indep 2 type osd
    step emit
}
"""


def pools(cluster: Cluster) -> Dict[str, int]:
    add_rule(cluster, BY_TWOS)
    cluster.mon('osd erasure-code-profile set', name='by_twos',
                profile=['k=4', 'm=2', 'crush-failure-domain=osd'])
    cluster.mon('osd pool create', pool='twos', pg_num=64, pgp_num=64, pool_type='erasure',
                erasure_code_profile='by_twos', rule='by_twos')
    cluster.mon('osd pool application enable', pool='twos', app='qa')
    numbers = {'rep': cluster.pool_create('rep', 128),
               **{row['pool_name']: row['pool'] for row in cluster.osd_dump()['pools']
                  if row['pool_name'] == 'twos'}}
    for pool in numbers:
        cluster.fill(pool, 1500, 4096)
    cluster.wait_clean(60)
    return numbers


def farthest(cluster: Cluster, numbers: Dict[str, int]) -> Dict[str, float]:
    """By pool, the greatest distance of an OSD from its share."""
    sets = {pg['pgid']: pg['acting'] for pg in cluster.pgs()}
    return {name: max(distances(sets, number, cluster.osds())) for name, number in numbers.items()}


def upmaps_of_balancer(cluster: Cluster, deviation: int) -> str:
    osdmap, upmaps = cluster.directory / 'osdmap', cluster.directory / 'upmaps'
    cluster.ceph('osd', 'getmap', '-o', str(osdmap))
    upmaps.unlink(missing_ok=True)
    cluster.run_tool(['osdmaptool', str(osdmap), '--upmap', str(upmaps), '--upmap-deviation',
                      str(deviation), '--upmap-max', '100'])
    return upmaps.read_text() if upmaps.exists() else ''


def expanded(guard: Guard) -> Dict[str, Any]:
    """Add four OSDs; returns the preview, whose movement is that of the campaign."""
    cluster = guard.cluster
    what: Dict[str, Any] = {
        'what': ['osd.%d' % osd for osd in cluster.add_osds(4, weight=0.0)], 'weight': '1.0'}
    wait_reported(guard)
    # The mgr may not have their CRUSH yet.
    cluster.wait(lambda: ask(guard, 'expand', dry_run=True, **what)[0] == 0, 30, 'the OSDs')
    preview = order(guard, 'expand', dry_run=True, **what)
    order(guard, 'expand', **what)
    guard.wait_phase('DONE', timeout=240)
    cluster.wait_clean(60)
    return dict(preview['balanced'])


def test_every_osd_ends_within_one_of_its_share(release: str,
                                                make_cluster: ClusterFactory) -> None:
    cluster = make_cluster(release, osds=8, hosts=4, conf=FAST_CONF)
    numbers = pools(cluster)
    guard = Guard(cluster, {'target': 'balanced'})
    # With the balancer's default of 5.
    cluster.mon('config rm', who='mgr', name='mgr/balancer/upmap_max_deviation')
    cluster.mgr('balancer off')
    before = farthest(cluster, numbers)
    begin = time.monotonic()
    preview = expanded(guard)
    seconds = time.monotonic() - begin
    after = farthest(cluster, numbers)
    print('%s: %.0f s; from the share at most %s -> %s; preview %s' % (
        release, seconds, before, after, preview))
    assert max(after.values()) < 1
    assert not preview['limited'] and preview['deviation'] < preview['target_deviation'] == 1
    assert preview['shards'] <= preview['limit_shards']
    for deviation in (5, 1):
        assert upmaps_of_balancer(cluster, deviation) == ''
        assert_nothing_for_the_balancer(cluster, deviation)
    assert not guard.tracebacks()
