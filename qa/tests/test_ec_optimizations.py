# SPDX-License-Identifier: LGPL-2.1-or-later
"""Erasure coded pools with Tentacle's optimisations: every shard stays where its data is."""
import re
from typing import Any, Callable, Dict, List

import pytest

from qa.cluster import Cluster
from qa.lib.guard import FAST_CONF, Guard

ClusterFactory = Callable[..., Cluster]
Json = Dict[str, Any]

pytestmark = pytest.mark.releases('tentacle')


def primary_first(acting: List[int], nonprimary: List[int]) -> List[int]:
    """The order in which the OSDMap has the pg_temp of such a pool."""
    return [osd for shard, osd in enumerate(acting) if shard not in nonprimary] \
        + [acting[shard] for shard in nonprimary]


def pool_of(dump: Json) -> Json:
    found: Json = next(pool for pool in dump['pools'] if pool['pool_name'] == 'ec')
    return found


def test_no_epoch_of_a_campaign_exchanges_shards(release: str, make_cluster: ClusterFactory
                                                 ) -> None:
    cluster = make_cluster(release, osds=8, hosts=8, conf=FAST_CONF)
    cluster.pool_create('ec', 32, erasure=(2, 2))
    cluster.mon('osd pool set', pool='ec', var='allow_ec_optimizations', val='true')
    cluster.fill('ec', 200, 4096)
    cluster.wait_clean(60)
    # Printed as a set: "{1,2}".
    nonprimary = sorted(int(shard) for shard in re.findall(
        r'\d+', str(pool_of(cluster.osd_dump())['nonprimary_shards'])))
    assert nonprimary, 'optimisations are on'
    guard = Guard(cluster)
    cluster.flush_pg_stats()
    acting = {pg['pgid']: pg['acting'] for pg in cluster.pgs()}
    guard.hold(lambda: cluster.mon('osd crush reweight', name='osd.5', weight=2.0))
    first = cluster.osd_dump()['epoch']
    guard.do('start')
    assert guard.wait_phase('DONE')['released'] > 4
    cluster.wait_clean(60)
    last = cluster.osd_dump()['epoch']
    seen = 0
    for epoch in range(first, last + 1):
        for entry in cluster.mon('osd dump', epoch=epoch)['pg_temp']:
            seen += 1
            assert entry['osds'] == primary_first(acting[entry['pgid']], nonprimary), (
                epoch, entry, acting[entry['pgid']])
    assert seen, 'PGs were remapped'
    assert not guard.tracebacks()
