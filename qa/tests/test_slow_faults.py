# SPDX-License-Identifier: LGPL-2.1-or-later
"""Slow OSDs, made slow for real: the slow OSD is named, and never another one.

The tests of a release share one cluster under load, first healthy, then with one fault after
another.
PERFGUARD_HEALTHY_SECONDS=600 makes the healthy time ten minutes.
"""
import os
import time
from contextlib import AbstractContextManager
from typing import Callable, Iterator, List, NamedTuple, Set

import pytest

from qa.cluster import Cluster
from qa.lib import faults
from qa.lib.guard import FAST_CONF, Guard

ClusterFactory = Callable[..., Cluster]

pytestmark = [pytest.mark.alone, pytest.mark.releases('pacific', 'tentacle', quick=())]

SLOW = 'PERFGUARD_SLOW_OSD'
HEALTHY_SECONDS = float(os.environ.get('PERFGUARD_HEALTHY_SECONDS', '30'))
#: A shorter window than in real life (60 s), for a test that is done in time.
WINDOW_SECONDS = float(os.environ.get('PERFGUARD_SLOW_SECONDS', '20'))
#: The median of the window has risen after half of it, must stay high for all of it, and longer
#: the less slow the OSD is.
NAMED_SECONDS = 4 * WINDOW_SECONDS + 10
CLEARED_SECONDS = 4 * WINDOW_SECONDS + 10


class SlowFault(NamedTuple):
    name: str
    osd: int
    begin: Callable[[Cluster, int], 'AbstractContextManager[None]']
    #: The controller of cgroup v1 that it takes, if any.
    controller: str = ''


FAULTS = (
    SlowFault('dispatch delay', 2, lambda cluster, osd: faults.dispatch_delay(cluster, osd, 0.003)),
    SlowFault('CPU', 5, lambda cluster, osd: faults.cpu_throttle(cluster, osd, 0.75), 'cpu'),
    SlowFault('writes', 7, lambda cluster, osd: faults.throttled_writes(cluster, osd, 100),
              'blkio'),
)


@pytest.fixture(scope='module')
def guard(release: str, cluster_factory: ClusterFactory) -> Iterator[Guard]:
    cluster = cluster_factory(release, osds=8, hosts=4, store='bluestore', conf=FAST_CONF)
    cluster.pool_create('p', 64)
    cluster.wait_clean(60)
    guard = Guard(cluster, {'slow_osd_seconds': str(WINDOW_SECONDS), 'baseline_seconds': '20'})
    cluster.load('p', rate=300, read_fraction=0.5, runtime=1800)
    yield guard
    # Not beside the next release's cluster.
    cluster.down()


def test_healthy(guard: Guard) -> None:
    begin = time.monotonic()
    while time.monotonic() - begin < HEALTHY_SECONDS:
        time.sleep(2)
        assert not guard.checks() and not guard.slow_osds()
    pool = next(row for row in guard.get('pools')['pools'] if row['pool'] == 'p')
    assert pool['read_ms'] and pool['write_ms'] and pool['baseline_ms']
    for osd, row in guard.osds().items():
        assert row['read_ms'] and row['write_ms'] and row['store_ms'] and row['score'], osd
    assert not guard.event_texts('slow-osd') and not guard.event_texts('latency')
    assert not guard.tracebacks()


@pytest.mark.parametrize('fault', FAULTS, ids=lambda fault: fault.name)
def test_named_and_cleared(guard: Guard, fault: SlowFault) -> None:
    if fault.controller in faults.missing_controllers():
        pytest.skip('this machine has no cgroup (v1) %s to write to: no %s fault' % (
            fault.controller, fault.name))
    cluster, victim = guard.cluster, 'osd.%d' % fault.osd
    last = guard.last_event()
    begin = time.monotonic()
    with fault.begin(cluster, fault.osd):
        wait_slow(guard, {fault.osd}, NAMED_SECONDS)
        print('%s: named after %.0f s' % (fault.name, time.monotonic() - begin))
        guard.wait_check(SLOW, True, 10)
        check = guard.checks()[SLOW]
        assert victim in check['summary']['message']
        assert 'peers, for' in check['detail'][0]['message'], check
        stays(guard, {fault.osd}, 3)
        cluster.mgr_fail()
        guard.wait_ready()
        stays(guard, {fault.osd}, 3)
    begin = time.monotonic()
    wait_slow(guard, set(), CLEARED_SECONDS)
    print('%s: cleared after %.0f s' % (fault.name, time.monotonic() - begin))
    guard.wait_check(SLOW, False, 10)
    assert guard.event_texts('slow-osd', last) == [
        victim + ' is slow', victim + ' is no longer slow']
    guard.wait_log(victim + ' is no longer slow', 1)
    guard.wait_log(victim + ' is slow', 1)
    assert not guard.tracebacks()


def wait_slow(guard: Guard, wanted: Set[int], timeout: float) -> None:
    """Until exactly these OSDs are slow; no other one may be at any time."""
    deadline = time.monotonic() + timeout
    allowed = guard.slow_osds() | wanted
    while True:
        rows = guard.osds()
        slow = {osd for osd, row in rows.items() if row['slow']}
        assert slow <= allowed, [rows[osd] for osd in slow - allowed]
        if slow == wanted:
            return
        assert time.monotonic() < deadline, (
            'slow: %s, wanted: %s; scores: %s' % (slow, wanted, scores(guard)))
        time.sleep(1)


def stays(guard: Guard, wanted: Set[int], seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert guard.slow_osds() == wanted
        time.sleep(1)


def scores(guard: Guard) -> List[str]:
    return ['osd.%d %s' % (osd, row['score']) for osd, row in guard.osds().items()]
