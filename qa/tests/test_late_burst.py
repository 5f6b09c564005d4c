# SPDX-License-Identifier: LGPL-2.1-or-later
"""A burst that the mons carry out long after it was sent: its pins remain the campaign's."""
import time

import pytest

from qa.cluster import Cluster
from qa.lib.clusters import ClusterFactory, small_cluster
from qa.lib.guard import Guard
from qa.lib.joins import SLOW_PEERING, order, wait_reported
from qa.lib.writer import Writer

CONF = {'mgr': {'mgr_stats_period': '1'}}
#: Longer than perfguard waits for answers (60 s) and for what it has sent (readback_timeout).
OUTAGE_SECONDS = 90.0


def reweights(cluster: Cluster) -> int:
    """How often the mon's log names the command."""
    return (cluster.directory / 'log' / 'mon.a.log').read_bytes().count(b'osd crush reweight')


@pytest.mark.releases('pacific', quick=())
@pytest.mark.parametrize('end', ['DONE', 'ABORTED'])
def test_a_burst_that_the_mon_holds_for_long(release: str, make_cluster: ClusterFactory,
                                             end: str) -> None:
    cluster = small_cluster(make_cluster, release, CONF)
    guard = Guard(cluster, {**SLOW_PEERING, 'readback_timeout': '2'})
    added = cluster.add_osds(4, weight=0.0)
    cluster.wait_clean(60)
    wait_reported(guard)
    before = reweights(cluster)
    with Writer(cluster, 'rep', 'ec'):
        number = order(guard, 'expand', weight='1.0', what=['osd.%d' % osd for osd in added])['pgs']
        # It gathers commands for 3 s before it proposes them.
        deadline = time.monotonic() + 60
        while reweights(cluster) == before:
            assert time.monotonic() < deadline, 'no burst was sent'
            time.sleep(0.02)
        cluster.stop('mon.a')
        try:
            time.sleep(OUTAGE_SECONDS)
        finally:
            cluster.cont('mon.a')
        if end == 'ABORTED':
            guard.do('abort')
        done = guard.wait_phase(end, timeout=240)
    print('%s: %s after %g s without the mon: %d of %d PGs released, %d upmaps' % (
        release, end, OUTAGE_SECONDS, done['released'], number, len(guard.upmaps())))
    assert any('crush reweight' in text
               for text in guard.event_texts('failed')), 'it was answered in time'
    assert done['released'] + done['pinned'] == number
    assert len(guard.upmaps()) == done['pinned'] and (end == 'ABORTED') == bool(done['pinned'])
    assert not guard.tracebacks()
