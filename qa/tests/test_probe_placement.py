# SPDX-License-Identifier: LGPL-2.1-or-later
"""Probes compute the PG of an object, and who leads it, as the mons do."""
import random
from typing import Any, Dict

import pytest

from perfguard.probe.placement import led_by, names_by_osd
from perfguard.probe.types import NAMESPACE, PROBE_PREFIX
from qa.cluster import Cluster
from qa.lib.guard import Guard
from qa.lib.pgids import pgid_of

pytestmark = [pytest.mark.releases('pacific', 'reef', 'tentacle', quick='tentacle'),
              pytest.mark.shares('campaign')]

#: Most are no powers of two.
PG_NUMS = (1, 12, 32, 100)


def test_placement(guard: Guard) -> None:
    cluster = guard.cluster
    osds = cluster.osds()
    chance = random.Random(1)
    for pg_num in PG_NUMS:
        pool = 'pool%d' % pg_num
        pool_id = cluster.pool_create(pool, pg_num)
        for length in range(1, 81):
            name = ''.join(chance.choices('perfguard-_.0123456789\u00e4', k=length))
            namespace = chance.choice(('', NAMESPACE, 'x'))
            found = osd_map(cluster, pool, name, namespace)
            assert found['pgid'] == pgid_of(pool_id, pg_num, namespace, name), (name, namespace)

    leads = {pg['pgid']: pg['acting_primary'] for pg in cluster.pgs()}
    led = led_by(pool_id, PG_NUMS[-1], leads, osds)
    names = names_by_osd(PROBE_PREFIX + '7-4194304-', PG_NUMS[-1], led, 16)
    for osd in osds:
        assert {osd_map(cluster, pool, name, NAMESPACE)['acting_primary']
                for name in names[osd]} == {osd}


def osd_map(cluster: Cluster, pool: str, name: str, namespace: str) -> Dict[str, Any]:
    more = {'nspace': namespace} if namespace else {}
    found: Dict[str, Any] = cluster.mon('osd map', pool=pool, object=name, **more)
    return found
