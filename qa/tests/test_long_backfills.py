# SPDX-License-Identifier: LGPL-2.1-or-later
"""Backfills that last much longer than a halt: a halt that repeats pins PGs back on real OSDs."""
import time
from typing import Any, Dict, Set

import pytest

from perfguard.rebalance.throttle import LONG_FLIGHT_SECONDS
from qa.lib.clusters import ClusterFactory, small_cluster
from qa.lib.guard import FAST_CONF, Guard

pytestmark = pytest.mark.releases('pacific', 'tentacle', quick=())

#: An OSD sleeps for so many seconds after each object that no PG arrives during the test.
SLOW, FAST = '60', '0'
CONF: Dict[str, Dict[str, Any]] = {
    'mon': FAST_CONF['mon'], 'mgr': {'mgr_stats_period': '5'},
    'osd': {'osd recovery sleep': None, 'osd op queue': 'wpq'}}
#: The test decides when movement raises latency above its limit.
MET, NOT_MET = 'rep=10000', 'rep=0.001'


def upmapped(guard: Guard) -> Set[str]:
    return {name.split()[0] for name in guard.upmaps()}


def halt(guard: Guard) -> None:
    """Latency exceeds its limit until all movement is halted, and then no longer."""
    guard.option('latency_limits_ms', NOT_MET)
    guard.wait_code('HALTED', timeout=60)
    guard.option('latency_limits_ms', MET)


def test_a_halt_that_repeats_pins_back_half_of_what_does_not_arrive(
        release: str, make_cluster: ClusterFactory) -> None:
    cluster = small_cluster(make_cluster, release, CONF, mgrs=2)
    cluster.mon('config set', who='osd', name='osd_recovery_sleep', value=SLOW)
    guard = Guard(cluster, {'pace_copying': 'off', 'max_pgs_in_flight': '8',
                            'latency_limits_ms': MET})
    cluster.fill('rep', 2000, 4096, prefix='more')
    cluster.load('rep', rate=200, read_fraction=0.5, runtime=1200, objects=200)
    guard.hold(lambda: cluster.add_osds(4))
    guard.do('start')
    cluster.wait(lambda: guard.status()['in_flight'] >= 6, 120, 'PGs in flight')
    time.sleep(LONG_FLIGHT_SECONDS)

    for _ in range(2):
        halt(guard)
        before, pins = guard.status(), upmapped(guard)
        assert before['in_flight'] >= 6, 'the first two halts only interrupt'
        guard.wait_phase('RELEASING')
    halt(guard)
    to_pin_back = before['in_flight'] // 2
    left = before['in_flight'] - to_pin_back
    cluster.wait(lambda: guard.status()['in_flight'] == left, 60, 'PGs to be pinned back')
    assert len(upmapped(guard) - pins) == to_pin_back

    # A new mgr goes on with what is left; copying at full speed, all PGs arrive.
    cluster.mgr_fail()
    guard.wait_ready()
    cluster.mon('config set', who='osd', name='osd_recovery_sleep', value=FAST)
    status = guard.wait_phase('DONE', timeout=240)
    assert status['released'] + status['kept'] == status['total']
    assert not guard.tracebacks()
    cluster.wait_clean(30)
