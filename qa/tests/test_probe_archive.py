# SPDX-License-Identifier: LGPL-2.1-or-later
"""Where records of probes are kept, when perfguard runs before there is any OSD."""
from typing import Callable

import pytest

from qa.cluster import Cluster
from qa.lib.guard import FAST_CONF, Guard
from qa.lib.probes import SHORT, Probes

ClusterFactory = Callable[..., Cluster]

pytestmark = pytest.mark.releases('reef', 'tentacle', quick=())

#: The archive tries again every half minute.
DATABASE_SECONDS = 100.0


def test_the_database_is_found_once_there_are_osds(cluster_factory: ClusterFactory,
                                                   release: str) -> None:
    cluster = cluster_factory(release, osds=3, hosts=3, conf=FAST_CONF)
    cluster.pool_create('rbd', 16, size=2)
    probes = Probes(Guard(cluster))
    run = probes.measure(**SHORT, rw='randwrite', pool='rbd')['id']
    print(probes.guard.get('probe ls')['kept_in'])
    cluster.wait(lambda: probes.guard.get('probe ls')['kept_in'] == "the module's database",
                 DATABASE_SECONDS, 'the database')
    documents = cluster.mon('config-key ls')
    print([key for key in documents if 'perfguard' in key])
    cluster.wait(lambda: not [key for key in cluster.mon('config-key ls') if key.endswith(
        '/probe/%d' % run)], 30, 'the record to be moved')
    cluster.restart_mgr(60)
    probes.guard.wait_ready()
    cluster.wait(lambda: run in probes.ids(), 60, 'the record in the next mgr')
