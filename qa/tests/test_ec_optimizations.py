# SPDX-License-Identifier: LGPL-2.1-or-later
"""Erasure coded pools with Tentacle's optimisations: every shard stays where its data is."""
import re
from typing import List

import pytest

from qa.lib.guard import Guard, Json

pytestmark = [pytest.mark.releases('tentacle'), pytest.mark.shares('campaign')]

POOL = 'optimized'


def primary_first(acting: List[int], nonprimary: List[int]) -> List[int]:
    """The order in which the OSDMap has the pg_temp of such a pool."""
    return [osd for shard, osd in enumerate(acting) if shard not in nonprimary] \
        + [acting[shard] for shard in nonprimary]


def pool_of(dump: Json) -> Json:
    found: Json = next(pool for pool in dump['pools'] if pool['pool_name'] == POOL)
    return found


def test_no_epoch_of_a_campaign_exchanges_shards(guard: Guard) -> None:
    cluster = guard.cluster
    pool = '%d.' % cluster.pool_create(POOL, 32, erasure=(2, 2))
    cluster.mon('osd pool set', pool=POOL, var='allow_ec_optimizations', val='true')
    cluster.fill(POOL, 200, 4096)
    cluster.wait_clean(60)
    # Printed as a set: "{1,2}".
    nonprimary = sorted(int(shard) for shard in re.findall(
        r'\d+', str(pool_of(cluster.osd_dump())['nonprimary_shards'])))
    assert nonprimary, 'optimisations are on'
    cluster.flush_pg_stats()
    acting = {pg['pgid']: pg['acting'] for pg in cluster.pgs() if pg['pgid'].startswith(pool)}
    guard.hold(lambda: cluster.mon('osd crush reweight', name='osd.5', weight=2.0))
    first = cluster.osd_dump()['epoch']
    guard.do('start')
    assert guard.wait_phase('DONE')['released'] > 4
    cluster.wait_clean(60)
    last = cluster.osd_dump()['epoch']
    seen = 0
    for epoch in range(first, last + 1):
        for entry in cluster.mon('osd dump', epoch=epoch)['pg_temp']:
            if entry['pgid'] not in acting:
                continue
            seen += 1
            assert entry['osds'] == primary_first(acting[entry['pgid']], nonprimary), (
                epoch, entry, acting[entry['pgid']])
    assert seen, 'PGs were remapped'
    assert not guard.tracebacks()
