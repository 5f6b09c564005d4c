# SPDX-License-Identifier: LGPL-2.1-or-later
"""Slow OSDs on a real cluster: intermittent ones, a slow host, a heavy client, and what the
mitigation gives back to clients.

The tests of a release share one cluster under client load, with bluestore: an OSD without primary
affinity is judged by the latency of its store. Each test undoes what it does to the cluster.
test_alarms.py has what is slow all the time.
"""
import contextlib
import time
from typing import Callable, Dict, Iterator, Set

import pytest

from qa.cluster import Cluster
from qa.cluster.load_control import Load
from qa.lib.faults import dispatch_delay, intermittent_delay
from qa.lib.guard import FAST_CONF, Guard, Json

ClusterFactory = Callable[..., Cluster]

pytestmark = [pytest.mark.alone, pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())]

POOL = 'p'
SLOW, CHRONIC, LATENCY = 'PERFGUARD_SLOW_OSD', 'PERFGUARD_OSD_CHRONIC', 'PERFGUARD_LATENCY'
#: An OSD that is slowed, and for how long each message to it waits.
INTERMITTENT, DELAY_SECONDS = 2, 0.015
#: What is counted of intermittent OSDs fades with this; the finding is cleared after twice as long.
MEMORY_SECONDS = 90.0
#: With this memory, an OSD that is slow all the time is a standing finding after the minimum time.
LASTING_MEMORY_SECONDS, LASTING_SECONDS = 3600.0, 240.0
#: Slow and quiet for so long in turn. An episode is ten seconds or more, and so is the gap that
#: ends it; what has queued up meanwhile is served in the pause.
EPISODE_SECONDS, PAUSE_SECONDS = 12.0, 30.0
RAISED_SECONDS, CLEARED_SECONDS = 400.0, 2 * MEMORY_SECONDS + 120.0
#: The window of slow OSDs: with its hold of as long again, and reports.
NAMED_SECONDS = 90.0
#: A pool's latency is that of a minute, and has to be high for another one.
LATENCY_SECONDS = 240.0
#: Operations per second of all clients but the heavy one, and of that; more than the cluster does.
USUAL_RATE, HEAVY_RATE = 200.0, 8000.0
#: How long latency is measured without a fault, with it, and with the mitigation: two episodes.
MEASURED_SECONDS = 2 * (EPISODE_SECONDS + PAUSE_SECONDS)
#: Minimum ratio of the p99 of reads with a slow OSD to that without: what is to be recovered.
FAR = 3.0
OPTIONS = {'slow_osd_seconds': '8', 'slow_osd_factor': '4', 'baseline_seconds': '5',
           'chronic_period_seconds': '%g' % MEMORY_SECONDS, 'latency_alarm_factor': '1.5',
           'mitigation_seconds': '2'}


class Setup:
    def __init__(self, guard: Guard, load: Load) -> None:
        self.guard, self.cluster, self.load = guard, guard.cluster, load


@pytest.fixture(scope='module')
def shared(release: str, cluster_factory: ClusterFactory) -> Iterator[Setup]:
    cluster = cluster_factory(release, osds=8, hosts=4, store='bluestore', conf=FAST_CONF)
    cluster.pool_create(POOL, 64)
    cluster.wait_clean(60)
    guard = Guard(cluster, OPTIONS)
    yield Setup(guard, cluster.load(POOL, rate=USUAL_RATE, read_fraction=0.7, runtime=3000))
    cluster.down()


@pytest.fixture
def setup(shared: Setup) -> Iterator[Setup]:
    """With slowdowns and a baseline, and nothing wrong before the test and after it."""
    guard = shared.guard
    guard.cluster.wait(lambda: all(row['score'] for row in guard.osds().values())
                       and pool_row(guard).get('baseline_ms'), 120, 'slowdowns and a baseline')
    guard.cluster.wait(lambda: nothing_slow(guard), 120, 'no slow OSD')
    before = guard.foreign()
    yield shared
    assert guard.foreign() == before
    assert not guard.tracebacks()


def pool_row(guard: Guard) -> Json:
    return next((row for row in guard.get('pools')['pools'] if row['pool'] == POOL), {})


def nothing_slow(guard: Guard) -> bool:
    return not {SLOW, CHRONIC} & set(guard.checks()) and not guard.slow_osds()


def chronic_osds(guard: Guard) -> Set[int]:
    return {osd for osd, row in guard.osds().items() if row['chronic']}


def episodes(cluster: Cluster) -> 'contextlib.AbstractContextManager[None]':
    return intermittent_delay(cluster, INTERMITTENT, DELAY_SECONDS, EPISODE_SECONDS, PAUSE_SECONDS)


def wait_chronic(guard: Guard) -> None:
    """Until the OSD is named; no other one may be at any time."""
    def raised() -> bool:
        assert chronic_osds(guard) <= {INTERMITTENT}
        return CHRONIC in guard.checks()

    guard.cluster.wait(raised, RAISED_SECONDS, 'an OSD that is slow again and again')


def test_an_intermittently_slow_osd_is_one_finding_that_is_cleared(setup: Setup) -> None:
    guard, cluster, last = setup.guard, setup.cluster, setup.guard.last_event()
    name, begin = 'osd.%d' % INTERMITTENT, time.monotonic()
    with episodes(cluster):
        wait_chronic(guard)
    row = guard.osds()[INTERMITTENT]
    print('chronic after %.0f s: %s' % (time.monotonic() - begin, row['chronic']['why']))
    check = guard.checks()[CHRONIC]
    assert name in check['summary']['message'] and check['summary']['count'] == 1
    assert row['chronic']['episodes'] >= 3 and row['slow_time_ratio'] > 0.1
    assert CHRONIC in guard.get('status')['health']
    guard.cluster.wait(lambda: CHRONIC not in guard.checks(), CLEARED_SECONDS, 'it to be cleared')
    assert not chronic_osds(guard)
    assert len(guard.event_texts('chronic-osd', last)) == 2, 'raised once and cleared once'


def test_an_osd_that_remains_slow_is_one_finding_that_survives_the_mgr(setup: Setup) -> None:
    guard, cluster, last = setup.guard, setup.cluster, setup.guard.last_event()
    guard.option('chronic_period_seconds', '%g' % LASTING_MEMORY_SECONDS)
    try:
        with dispatch_delay(cluster, INTERMITTENT, DELAY_SECONDS):
            cluster.wait(lambda: SLOW in guard.checks(), NAMED_SECONDS, 'a slow OSD')
            begin = time.monotonic()
            cluster.wait(lambda: CHRONIC in guard.checks(), LASTING_SECONDS + 120,
                         'a standing finding')
            print('standing %.0f s after it was slow: %s' % (
                time.monotonic() - begin, guard.osds()[INTERMITTENT]['chronic']['why']))
            cluster.wait(lambda: SLOW not in guard.checks(), 10, 'one finding')
            cluster.mgr_fail()
            guard.wait_ready()
            end = time.monotonic() + NAMED_SECONDS
            while time.monotonic() < end:
                assert CHRONIC in guard.checks() and SLOW not in guard.checks()
                time.sleep(1)
            assert guard.osds()[INTERMITTENT]['slow'] and chronic_osds(guard) == {INTERMITTENT}
        cluster.wait(lambda: not guard.slow_osds(), NAMED_SECONDS, 'the OSD to be fast')
        assert CHRONIC in guard.checks(), 'it is not known yet whether it remains fast'
        assert guard.event_texts('slow-osd', last) == ['osd.%d is slow' % INTERMITTENT]
        assert guard.event_texts('chronic-osd', last) == [
            'osd.%d is chronically slow' % INTERMITTENT]
    finally:
        guard.option('chronic_period_seconds', OPTIONS['chronic_period_seconds'])
    cluster.wait(lambda: CHRONIC not in guard.checks(), CLEARED_SECONDS, 'it to be cleared')


def test_a_slow_host_is_the_cause_of_its_slow_osds(setup: Setup) -> None:
    guard, cluster = setup.guard, setup.cluster
    host = guard.osds()[0]['host']
    members = {osd for osd, row in guard.osds().items() if row['host'] == host}
    assert len(members) == 2

    def both_slow() -> bool:
        slow = guard.slow_osds()
        assert slow <= members, 'OSDs of other hosts: %s' % (slow - members)
        return slow == members

    with contextlib.ExitStack() as slow:
        for osd in members:
            slow.enter_context(dispatch_delay(cluster, osd, DELAY_SECONDS))
        cluster.wait(both_slow, NAMED_SECONDS, 'both OSDs to be slow')
        cluster.wait(lambda: both_slow() and SLOW in guard.checks()
                     and 'host ' + host in guard.checks()[SLOW]['summary']['message'], 30,
                     'the host to be named')
        rows = guard.osds()
        for osd in members:
            cause = rows[osd]['causes'][0]
            assert cause['code'] == 'host', rows[osd]
            assert cause['evidence']['osds'] == sorted(members)
        assert any('likely cause' in line['message'] for line in guard.checks()[SLOW]['detail'])
    cluster.wait(lambda: not guard.slow_osds(), NAMED_SECONDS, 'no slow OSD')


def test_a_heavy_client_is_named_and_no_osd(setup: Setup) -> None:
    guard, cluster = setup.guard, setup.cluster
    # What is measured from now on is no baseline.
    guard.option('baseline_seconds', '86400')
    heavy = cluster.load(POOL, rate=HEAVY_RATE, read_fraction=0.5, runtime=LATENCY_SECONDS + 120)
    slow: Set[int] = set()

    def named() -> bool:
        slow.update(guard.slow_osds())
        return any('of the operations' in line['message'] for line in guard.checks().get(
            LATENCY, {'detail': []})['detail'])

    try:
        cluster.wait(named, LATENCY_SECONDS, 'the heavy client to be seen')
        line = guard.checks()[LATENCY]['detail'][0]['message']
        print(line)
        assert 'one client' in line and 'client.' not in line and not slow, (line, slow)
        client, = next(row['clients'] for row in guard.get('pools')['pools']
                       if row['pool'] == POOL)
        assert client['client'].startswith('client.') and client['share'] >= 0.5
    finally:
        heavy.stop()
        guard.option('baseline_seconds', OPTIONS['baseline_seconds'])


def p99_ms(load: Load, seconds: float) -> Dict[str, float]:
    """Of the reads and of the writes that are scheduled from now on."""
    begin = time.time()
    time.sleep(seconds + 3.0)
    return {kind: load.percentiles(begin, begin + seconds, kind)['p99']
            for kind in ('read', 'write')}


@pytest.mark.timeout(1500)
@pytest.mark.parametrize('intermittent', [False, True], ids=['steady', 'intermittent'])
def test_lower_affinity_recovers_half_of_the_excess_latency_of_reads(
        intermittent: bool, setup: Setup) -> None:
    """Writes wait for all replicas, so they remain as slow as they are."""
    guard, cluster = setup.guard, setup.cluster
    usual = p99_ms(setup.load, MEASURED_SECONDS)
    try:
        with (episodes(cluster) if intermittent
              else dispatch_delay(cluster, INTERMITTENT, DELAY_SECONDS)):
            if intermittent:
                wait_chronic(guard)
            else:
                cluster.wait(lambda: guard.slow_osds() == {INTERMITTENT}, NAMED_SECONDS,
                             'a slow OSD')
            slow = p99_ms(setup.load, MEASURED_SECONDS)
            assert slow['read'] > FAR * usual['read'], 'the fault has no effect on clients'
            guard.option('mitigation_mode', 'act')
            guard.option('mitigation_affinity', 'true')
            cluster.wait(lambda: affinity(guard) == 0.0, 60, 'a lower primary affinity')
            cluster.wait_clean(60)
            time.sleep(5.0)
            eased = p99_ms(setup.load, MEASURED_SECONDS)
            if intermittent:
                assert affinity(guard) == 0.0, 'it is kept between episodes'
        cluster.wait(lambda: affinity(guard) == 1.0, CLEARED_SECONDS, 'the affinity given back')
    finally:
        guard.unset('mitigation_affinity')
        guard.unset('mitigation_mode')
    recovered = (slow['read'] - eased['read']) / (slow['read'] - usual['read'])
    print('%s: p99 in ms: usual %s, slow %s, mitigated %s; %.0f %% of the excess of reads '
          'recovered' % (cluster.release.name, usual, slow, eased, 100 * recovered))
    assert recovered >= 0.5
    cluster.wait(lambda: nothing_slow(guard), CLEARED_SECONDS, 'no slow OSD')


def affinity(guard: Guard) -> float:
    return float(next(row['primary_affinity'] for row in guard.cluster.osd_dump()['osds']
                      if row['osd'] == INTERMITTENT))
