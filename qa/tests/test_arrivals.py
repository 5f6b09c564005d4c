# SPDX-License-Identifier: LGPL-2.1-or-later
"""The OSDs of a new host come up one by one: none gets more PGs than it may hold, none is stuck."""
import time
from collections import Counter
from typing import Dict

import pytest

from qa.cluster import Cluster
from qa.cluster.patience import patient
from qa.lib.clusters import ClusterFactory
from qa.lib.guard import CALM, FAST_CONF, Guard

pytestmark = pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())

LIMIT = 70
CONF = {**FAST_CONF, 'global': CALM,
        'mgr': {**FAST_CONF['mgr'], 'mon_max_pg_per_osd': str(LIMIT)},
        # An OSD refuses PGs beyond that, and they are stuck.
        'osd': {'mon_max_pg_per_osd': str(LIMIT), 'osd_max_pg_per_osd_hard_ratio': '1'}}
#: Seconds between two OSDs.
APART = 5
#: Seconds for which a PG may activate; one that an OSD refuses stays so until it holds fewer.
ACTIVATING_SECONDS = 8.0


def serving(cluster: Cluster) -> Dict[int, int]:
    """PGs by the OSDs that serve them."""
    return Counter(osd for pg in cluster.pgs() for osd in pg['acting'])


class Activating:
    """Fails once a PG activates for too long."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: PG -> since when it was seen activating.
        self._since: Dict[str, float] = {}
        self.longest = 0.0

    def look(self) -> None:
        now = time.monotonic()
        # An OSD reports PGs with its next statistics, which a busy machine delays.
        activating = {pg['pgid'] for pg in self._cluster.pgs() if 'activating' in pg['state']}
        self._since = {pgid: self._since.get(pgid, now) for pgid in activating}
        for pgid, since in self._since.items():
            self.longest = max(self.longest, now - since)
            assert now - since <= patient(ACTIVATING_SECONDS), '%s is stuck activating' % pgid


def test_a_host_whose_osds_arrive_one_by_one(make_cluster: ClusterFactory, release: str) -> None:
    cluster = make_cluster(release, osds=6, hosts=3, conf=CONF)
    cluster.pool_create('rep', 96, size=3)
    cluster.fill('rep', 1000, 4096)
    cluster.wait_clean(60)
    guard = Guard(cluster, {'auto_expand': 'true', 'auto_expand_settle': str(3 * APART)})
    before = guard.foreign()
    time.sleep(3)
    new, alone, activating = [], 0, Activating(cluster)
    for _ in range(4):
        # Four times the weight of the others: the first one is to have nearly all PGs.
        [osd] = cluster.add_osds(1, hosts=['fresh'], weight=4.0)
        new.append(osd)
        begin = time.monotonic()
        while time.monotonic() - begin < APART:
            assert max(serving(cluster).values()) <= LIMIT
            activating.look()
            time.sleep(0.5)
        if len(new) == 1:
            alone = sum(new[0] in pg['up'] for pg in cluster.pgs()) + guard.status()['pinned']
    assert alone > LIMIT, 'the first OSD would not have been crowded'

    def done() -> bool:
        counts = serving(cluster)
        assert max(counts.values()) <= LIMIT, counts
        activating.look()
        return guard.phase() == 'DONE'

    cluster.wait(done, 240, 'the end of the campaign')
    cluster.wait_clean(60)
    counts = serving(cluster)
    assert all(counts[osd] > 0 for osd in new) and not guard.upmaps()
    print('%s: %d PGs of the first OSD alone, then %s; no PG activated for more than %.1f s' % (
        release, alone, {osd: counts[osd] for osd in new}, activating.longest))
    assert guard.status()['trigger'] == 'auto' and guard.foreign() == before
    assert not guard.tracebacks()
