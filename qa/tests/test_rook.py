# SPDX-License-Identifier: LGPL-2.1-or-later
"""What Rook's operator does to a cluster in mid-campaign, by its documentation: no Kubernetes."""
import time
from typing import Set

import pytest

from qa.lib.guard import Guard
from qa.lib.joins import order, wait_reported

from .test_down_osds import noout_for, take_down

pytestmark = [pytest.mark.releases('pacific', quick=()), pytest.mark.shares('campaign')]

#: For most of a campaign: it must outlast what happens meanwhile.
SLOW = {'max_pgs_in_flight': '1', 'campaign_interval': '3'}
FASTER = {'max_pgs_in_flight': '64', 'campaign_interval': '0.3'}


def expand_slowly(guard: Guard) -> None:
    added = guard.cluster.add_osds(2, weight=0.0)
    wait_reported(guard)
    guard.configure(SLOW)
    order(guard, 'expand', what=['osd.%d' % osd for osd in added], weight='1.0')
    guard.wait_moving()


def test_nodes_are_drained_one_after_the_other(release: str, guard: Guard) -> None:
    """The operator sets noout for the node whose pods are evicted, and clears it afterwards."""
    cluster = guard.cluster
    expand_slowly(guard)
    alarms: Set[str] = set()
    for node in ('host1', 'host2'):
        osds = [osd for osd, host in cluster.osd_hosts().items() if host == node]
        with noout_for(cluster, node):
            take_down(cluster, osds)
            begin = time.monotonic()
            while time.monotonic() - begin < 10:
                alarms |= set(guard.checks())
                assert guard.phase() in ('RELEASING', 'HOLDING'), guard.status()
                time.sleep(0.5)
            for osd in osds:
                cluster.start('osd.%d' % osd)
            cluster.wait_clean(120)
    assert guard.status()['pinned'] and not alarms
    guard.configure(FASTER)
    guard.wait_phase('DONE', timeout=240)
    cluster.wait_clean(60)
    assert not guard.tracebacks()


def test_an_osd_is_marked_out_purged_and_created_again(release: str, guard: Guard) -> None:
    """The operator does not wait for perfguard: the PGs of the OSD move at once."""
    cluster, gone = guard.cluster, 3
    node = cluster.osd_hosts()[gone]
    expand_slowly(guard)
    cluster.mon('osd out', ids=[str(gone)])
    cluster.wait(lambda: not any(gone in pg['acting'] for pg in cluster.pgs()), 120,
                 'osd.%d empty' % gone)
    assert guard.phase() in ('RELEASING', 'HOLDING') and guard.status()['pinned'], guard.status()
    cluster.remove_osds([gone])
    assert cluster.add_osds(1, [node], ids=[gone]) == [gone]
    cluster.wait(lambda: any(gone in pg['acting'] for pg in cluster.pgs()), 120,
                 'PGs on the new osd.%d' % gone)
    guard.configure(FASTER)
    done = guard.wait_phase('DONE', timeout=240)
    cluster.wait_clean(60)
    assert not done['pinned'] and not guard.checks() and not guard.tracebacks()
