# SPDX-License-Identifier: LGPL-2.1-or-later
"""An OSD that fails is drained although its operations, and those of others that wait for it, are
slow."""
from collections import Counter

import pytest

from qa.cluster.patience import patient
from qa.lib.clusters import ClusterFactory
from qa.lib.faults import dispatch_delay
from qa.lib.guard import FAST_CONF, Guard
from qa.lib.joins import order, wait_reported

pytestmark = [pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())]

FAILING = 3
#: Operations that take longer are slow, and the delay of each message that the OSD receives.
COMPLAINT_SECONDS, DELAY_SECONDS = 0.1, 0.05


def test_a_failing_osd_is_drained(release: str, make_cluster: ClusterFactory) -> None:
    conf = {**FAST_CONF, 'osd': {'osd_op_complaint_time': str(COMPLAINT_SECONDS)}}
    cluster = make_cluster(release, osds=8, hosts=8, conf=conf)
    guard = Guard(cluster, {'slow_osd_seconds': '10'})
    cluster.pool_create('p', 64, size=3)
    cluster.fill('p', 300, 16384)
    cluster.wait_clean(60)
    wait_reported(guard)
    cluster.load('p', rate=40, read_fraction=0.5, runtime=int(patient(600)))
    with dispatch_delay(cluster, FAILING, DELAY_SECONDS):
        cluster.wait(lambda: 'SLOW_OPS' in cluster.mon('health')['checks'], 60, 'slow operations')
        order(guard, 'drain', what=['osd.%d' % FAILING], accept=['SLOW_OPS', 'PEERING'])
        codes: 'Counter[str]' = Counter()

        def is_done() -> bool:
            status = guard.status()
            codes.update(row['code'] for row in status['limits'])
            return bool(status['phase'] == 'DONE')

        cluster.wait(is_done, 300, 'the end of the drain')
    print('%s: %s' % (release, codes.most_common(8)))
    assert not any(FAILING in pg['acting'] for pg in cluster.pgs()) and not guard.tracebacks()
