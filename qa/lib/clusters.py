# SPDX-License-Identifier: LGPL-2.1-or-later
"""The cluster that tests of campaigns and of joins begin with."""
from typing import Any, Callable, Dict

from qa.cluster import Cluster

ClusterFactory = Callable[..., Cluster]


def small_cluster(make: ClusterFactory, release: str, conf: Dict[str, Any],
                  **options: Any) -> Cluster:
    """8 OSDs on 4 hosts with a replicated and an erasure coded pool."""
    cluster = make(release, osds=8, hosts=4, conf=conf, **options)
    cluster.pool_create('rep', 64, size=3)
    cluster.pool_create('ec', 32, erasure=(2, 1))
    cluster.fill('rep', 1000, 4096)
    cluster.fill('ec', 500, 4096)
    cluster.wait_clean(60)
    return cluster
