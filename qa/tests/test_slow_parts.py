# SPDX-License-Identifier: LGPL-2.1-or-later
"""Slow OSDs where most comparisons do not help: one of three, and many of a class."""
import contextlib
import time
from typing import Callable

import pytest

from qa.cluster import Cluster
from qa.lib.faults import dispatch_delay
from qa.lib.guard import FAST_CONF, Guard

ClusterFactory = Callable[..., Cluster]

pytestmark = [pytest.mark.alone, pytest.mark.releases('pacific', 'tentacle', quick=())]

SLOW = 'PERFGUARD_SLOW_OSD'
WINDOW_SECONDS = 20.0
#: As in test_slow_faults.
NAMED_SECONDS = CLEARED_SECONDS = 4 * WINDOW_SECONDS + 30


def watched(cluster: Cluster, rate: int) -> Guard:
    """`rate`: of so few operations that no OSD that is delayed is overloaded."""
    cluster.pool_create('p', 64)
    cluster.wait_clean(60)
    guard = Guard(cluster, {'slow_osd_seconds': str(WINDOW_SECONDS), 'baseline_seconds': '20'})
    cluster.load('p', rate=rate, read_fraction=0.5, runtime=1800)
    return guard


def healthy(guard: Guard, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(2)
        assert SLOW not in guard.checks() and not guard.slow_osds()


def text(guard: Guard) -> str:
    check = guard.checks().get(SLOW)
    return '' if check is None else '; '.join(line['message'] for line in check['detail'])


def test_one_of_three(release: str, cluster_factory: ClusterFactory) -> None:
    cluster = cluster_factory(release, osds=3, hosts=3, store='bluestore', conf=FAST_CONF)
    guard = watched(cluster, 60)
    # A baseline needs five minutes; without it, an OSD must be slower.
    healthy(guard, 90)
    begin = time.monotonic()
    with dispatch_delay(cluster, 2, 0.005):
        cluster.wait(lambda: guard.slow_osds() == {2}, NAMED_SECONDS, 'osd.2 to be slow')
        print('named after %.0f s' % (time.monotonic() - begin))
        cluster.wait(lambda: 'slowest of 2 peers' in text(guard), 10, 'the check')
    cluster.wait(lambda: not guard.slow_osds(), CLEARED_SECONDS, 'osd.2 to recover')
    healthy(guard, 10)


def test_a_part_of_a_class(release: str, cluster_factory: ClusterFactory) -> None:
    """First one OSD, then three more of twelve."""
    cluster = cluster_factory(release, osds=12, hosts=6, store='bluestore', conf=FAST_CONF)
    guard = watched(cluster, 120)
    healthy(guard, 60)
    with contextlib.ExitStack() as delays:
        delays.enter_context(dispatch_delay(cluster, 2, 0.005))
        cluster.wait(lambda: guard.slow_osds() == {2}, NAMED_SECONDS, 'osd.2 to be slow')
        guard.wait_check(SLOW, True, 10)
        for osd in (5, 7, 9):
            delays.enter_context(dispatch_delay(cluster, osd, 0.005))

        def reported() -> bool:
            assert text(guard), guard.osds()
            return '4 of 12 ' in text(guard) and 'osd.2, osd.5, osd.7, osd.9' in text(guard)

        cluster.wait(reported, NAMED_SECONDS + 2 * WINDOW_SECONDS, 'the part')
        print(text(guard))
        assert not guard.slow_osds()
    cluster.wait(lambda: SLOW not in guard.checks(), CLEARED_SECONDS, 'the check to clear')
