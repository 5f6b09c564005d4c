# SPDX-License-Identifier: LGPL-2.1-or-later
"""The throttle on real clients: it opens, yields, halts, keeps to the clock, and gives back."""
import errno
import time
from typing import Callable, Dict, Iterator

import pytest

from qa.cluster import Cluster
from qa.lib.faults import dispatch_delay
from qa.lib.guard import ENABLED, Guard

ClusterFactory = Callable[..., Cluster]

#: The mons' own default, so that there is something to shorten.
CONF = {'mon': ENABLED, 'mgr': {'mgr_stats_period': '2'}}
OPTIONS = {'baseline_seconds': '5', 'latency_factor': '50', 'latency_alarm_factor': '100',
           'max_pgs_in_flight': '8', 'stall_ratio': '0.003'}
POOL = 'rep'
INTERVAL = 'paxos_propose_interval'

pytestmark = [pytest.mark.releases('pacific', 'reef', 'tentacle'), pytest.mark.alone]


@pytest.fixture(scope='module')
def guard(release: str, cluster_factory: ClusterFactory) -> Iterator[Guard]:
    """A cluster whose expansion is pinned: as many PGs to release as the tests need."""
    cluster = cluster_factory(release, osds=8, hosts=4, mgrs=2, conf=CONF)
    cluster.pool_create(POOL, 64, size=3)
    cluster.fill(POOL, 1000, 4096)
    cluster.wait_clean(60)
    guard = Guard(cluster, OPTIONS)
    guard.hold(lambda: cluster.add_osds(4))
    assert guard.status()['pinned'] > 20
    yield guard
    assert not guard.tracebacks()
    cluster.down()


def stored(guard: Guard) -> Dict[str, str]:
    """The configuration database's section of the mons."""
    return {entry['name']: entry['value'] for entry in guard.cluster.mon('config dump')
            if entry['section'] == 'mon'}


def test_invalid_options(guard: Guard) -> None:
    for option, value, usual, word in (
            ('latency_limits_ms', POOL + '=0', '', 'latency_limits_ms'),
            ('latency_limits_ms', 'x=5', '', 'does not exist'),
            ('end_time', '25', '2400', 'end_time'),
            ('end_time', '0000', '2400', 'never opens'),
            ('latency_factor', '100', OPTIONS['latency_factor'], ''),
            ('latency_alarm_factor', '49', OPTIONS['latency_alarm_factor'], 'latency_factor')):
        guard.option(option, value)
        time.sleep(0.5)
        if word:
            retval, _, error = guard.ask('campaign start')
            assert retval == -errno.EINVAL and word in error and '\n' not in error
        guard.option(option, usual)
    time.sleep(0.5)
    assert guard.status()['phase'] == 'PINNED'


def wait_fast_proposals(guard: Guard) -> None:
    guard.cluster.wait(lambda: float(stored(guard).get(INTERVAL, 1.0)) < 0.5, 10, 'fast proposals')


def test_outside_the_window_nothing_is_released(guard: Guard) -> None:
    hour = time.localtime().tm_hour
    guard.option('begin_time', '%02d00' % ((hour + 2) % 24))
    guard.option('end_time', '%02d00' % ((hour + 3) % 24))
    time.sleep(0.5)
    guard.do('start')
    status = guard.wait_code('WINDOW_CLOSED')
    assert status['phase'] == 'HOLDING' and status['limit'] == 0
    time.sleep(4)
    assert guard.status()['in_flight'] == guard.status()['released'] == 0


def test_it_yields_to_clients_halts_and_recovers(guard: Guard) -> None:
    cluster = guard.cluster
    load = cluster.load(POOL, rate=200, read_fraction=0.5, runtime=600, objects=200)
    try:
        # A latency limit that cannot be met: any movement exceeds it.
        guard.option('latency_limits_ms', POOL + '=0.001')
        # As operators do it, and not by setting the defaults.
        guard.unset('begin_time')
        guard.unset('end_time')
        status = guard.wait_code('HALTED')
        assert status['phase'] == 'HOLDING' and status['limit'] == 0
        assert 'latency of pool rep' in ' '.join(status['reasons'])
        cluster.wait(lambda: 'norebalance' in cluster.osd_dump()['flags_set'], 10, 'norebalance')
        released = guard.status()['released']
        cluster.mgr_fail()
        guard.wait_ready()
        time.sleep(6)
        status = guard.status()
        assert status['phase'] == 'HOLDING' and status['released'] <= released + 2
        # An OSD that becomes slow in the middle of it, and well again.
        usual = max(row['write_ms'] for row in guard.get('pools')['pools'] if row['pool'] == POOL)
        guard.option('latency_limits_ms', '%s=%.1f' % (POOL, usual + 5.0))
        guard.wait_phase('RELEASING')
        with dispatch_delay(cluster, 1, 0.015):
            guard.wait_code('HALTED', timeout=60)
        guard.wait_phase('RELEASING', timeout=60)

        guard.option('latency_limits_ms', POOL + '=10000')
        guard.wait_phase('RELEASING')
        wait_fast_proposals(guard)
        guard.option('fast_peering', 'off')
        cluster.wait(lambda: INTERVAL not in stored(guard), 10, 'the default interval')
        guard.option('fast_peering', 'auto')
        wait_fast_proposals(guard)
        guard.option('stall_ratio', '0.05')
        cluster.wait(lambda: 'norebalance' not in cluster.osd_dump()['flags_set'], 10,
                     'no norebalance')
        status = guard.wait_phase('DONE', timeout=240)
        assert status['stall_seconds'] is not None, 'measured on the clients'
    finally:
        load.stop()
    assert status['released'] + status['kept'] == status['total']
    assert INTERVAL not in stored(guard)
    assert 'norebalance' not in cluster.osd_dump()['flags_set']
    cluster.wait_clean(30)
