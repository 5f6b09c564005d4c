# SPDX-License-Identifier: LGPL-2.1-or-later
"""Health checks of real trouble, raised and cleared: a slow OSD, slow clients, a campaign that
makes no progress, a probe that cannot clean up.

The tests of a release share one cluster with clients. Each test undoes what it does to the
cluster; test_watch.py covers laggy PGs, and what must not raise an alarm.
"""
import contextlib
import errno
import itertools
import os
import time
from statistics import median
from typing import Callable, Dict, Iterator, List, Sequence, Set

import pytest

from perfguard.probe.types import NAMESPACE
from qa.cluster import Cluster
from qa.lib.faults import dispatch_delay, stall
from qa.lib.guard import FAST_CONF, Guard, Json
from qa.lib.probes import ENDED, PATIENT_CLIENTS, SHORT, Probes

ClusterFactory = Callable[..., Cluster]

pytestmark = pytest.mark.releases('pacific', 'reef', 'tentacle')

POOL, CODED_POOL = 'p', 'coded'
#: Reads per second, and as many writes.
CLIENT_READS = 100
#: An OSD that is slowed, and its primary affinity, which is not the default.
VICTIM = 2
AFFINITY = 0.75
#: Each message to it waits for so long: some twenty times what an operation usually takes.
DELAY_SECONDS = 0.015
#: Shorter than by default (60 s), for a test that is done in time; and a ratio that a machine with
#: other things to do does not reach for so long.
WINDOW_SECONDS = 8.0
RATIO = 4.0
NAMED_SECONDS = 90.0
#: A pool's latency is that of a minute; it has to be high, or normal, for another one.
LATENCY_SECONDS = 200.0
ALARM_FACTOR = 2.0
STALLED_SECONDS = 10.0
#: A stall that is no alarm, and a delay that makes an operation well over 20 times as slow.
STALL_SECONDS = 2.0
MUCH_DELAY_SECONDS = 0.025
#: With the defaults, such slowness is an alarm within a minute, and none two minutes after it.
RAISED_SECONDS = 60.0
CLEARED_SECONDS = 120.0
#: Alarms in one run. Two OSDs are slow at a time, each at most twice: three episodes would be a
#: chronically slow OSD. With those before them, whose alarms are still to be cleared, they are a
#: quarter of all OSDs: of more, none would be named.
ALARMS, MANY_OSDS, MANY_HOSTS, AT_A_TIME = 20, 16, 8, 2
#: Duration of the test without a fault, which belongs to the nightly tier.
HEALTHY_SECONDS = float(os.environ.get('PERFGUARD_HEALTHY_SECONDS', '3600'))
#: Health checks of perfguard that a healthy cluster does not raise, however busy it is.
ALARM_CHECKS = {'PERFGUARD_SLOW_OSD', 'PERFGUARD_OSD_CHRONIC', 'PERFGUARD_LAGGY_PGS',
                'PERFGUARD_LATENCY', 'PERFGUARD_STALLED', 'PERFGUARD_LOOP_FAILED'}
#: A probe cleans up for a minute before its check is raised, in sweeps that end after 20 s.
LEFT_SECONDS = 150.0
OPTIONS = {**PATIENT_CLIENTS,
           'slow_osd_seconds': '%g' % WINDOW_SECONDS, 'slow_osd_factor': '%g' % RATIO,
           'baseline_seconds': '5', 'stalled_after': '%g' % STALLED_SECONDS,
           'mitigation_seconds': '2', 'latency_alarm_factor': '%g' % ALARM_FACTOR}
#: Few writes that take long: much higher latency at nearly the same load.
HEAVY = {'rw': 'write', 'bs': '32m', 'iodepth': '2', 'rate_iops': '4', 'size': '256m',
         'nrfiles': '8', 'repeat': '1', 'ramp_time': '0'}
#: Each longer than it takes to name a slow OSD, and a slow pool.
HEAVY_OSDS = {'osd': '1,5', 'runtime': '25'}
HEAVY_POOL = {'pool': POOL, 'runtime': '130'}


@pytest.fixture(scope='module')
def shared(release: str, cluster_factory: ClusterFactory) -> Iterator[Guard]:
    cluster = cluster_factory(release, osds=8, hosts=4, mgrs=2, conf=FAST_CONF)
    cluster.pool_create(POOL, 64)
    cluster.wait_clean(60)
    guard = Guard(cluster, OPTIONS)
    cluster.load(POOL, rate=2 * CLIENT_READS, read_fraction=0.5, runtime=1800)
    yield guard
    cluster.down()


@pytest.fixture
def guard(shared: Guard) -> Iterator[Guard]:
    """With a baseline, and nothing wrong before the test and after it."""
    shared.cluster.wait(lambda: baseline_ms(shared), 60, 'a baseline')
    assert not shared.checks() and not shared.slow_osds()
    before = shared.foreign()
    yield shared
    assert shared.foreign() == before and not shared.checks()
    assert not shared.tracebacks()


def pool_row(guard: Guard) -> Json:
    return next((row for row in guard.get('pools')['pools'] if row['pool'] == POOL), {})


def baseline_ms(guard: Guard) -> float:
    return float(pool_row(guard).get('baseline_ms') or 0.0)


def wait_slow(guard: Guard, wanted: Set[int], timeout: float) -> None:
    """Until exactly these OSDs are slow; no other one may be at any time."""
    allowed = guard.slow_osds() | wanted
    seen = {}

    def there() -> bool:
        retval, out, _ = guard.ask('osds')
        if retval != 0:
            return False
        seen.update(guard.osds())
        slow = {osd for osd, row in seen.items() if row['slow']}
        assert slow <= allowed, [seen[osd] for osd in slow - allowed]
        return slow == wanted

    try:
        guard.cluster.wait(there, timeout, 'slow OSDs to be %s' % wanted)
    except Exception as problem:
        raise AssertionError('%s; %s' % (problem, [
            'osd.%d %s' % (osd, row['score']) for osd, row in seen.items()])) from problem


def affinity(guard: Guard) -> float:
    return float(next(row['primary_affinity'] for row in guard.cluster.osd_dump()['osds']
                      if row['osd'] == VICTIM))


@contextlib.contextmanager
def acting_on_affinity(guard: Guard) -> Iterator[None]:
    """perfguard may lower the primary affinity of the slow OSD, and finds one that is not 1."""
    guard.cluster.mon('osd primary-affinity', id=VICTIM, weight=AFFINITY)
    try:
        guard.option('mitigation_mode', 'act')
        guard.option('mitigation_affinity', 'true')
        yield
    finally:
        for option in ('mitigation_mode', 'mitigation_affinity'):
            guard.unset(option)
        guard.cluster.wait(lambda: not affinity_row(guard), 60, 'the affinity to be let go of')
        guard.cluster.mon('osd primary-affinity', id=VICTIM, weight=1.0)


def affinity_row(guard: Guard) -> Json:
    """The mitigation of the slow OSD; {} if there is none."""
    return next((row for row in guard.get('mitigation ls')['rungs']
                 if row['subject'] == 'osd.%d' % VICTIM), {})


def test_an_option_that_is_removed_has_its_default(guard: Guard) -> None:
    """ceph-mgr does not notice it: to its modules the removed value remains in force."""
    guard.option('latency_limits_ms', POOL + '=123')
    try:
        guard.cluster.wait(lambda: pool_row(guard)['target_ms'] == 123, 15, 'the target')
    finally:
        guard.unset('latency_limits_ms')
    guard.cluster.wait(lambda: pool_row(guard)['target_ms'] != 123, 40, 'no target')


def test_slow_osd_is_named_and_its_primary_affinity_lowered(guard: Guard) -> None:
    """The mgr fails in the middle of it: the OSD stays slow, and has its own affinity back."""
    cluster, last = guard.cluster, guard.last_event()
    name = 'osd.%d' % VICTIM
    with acting_on_affinity(guard):
        with dispatch_delay(cluster, VICTIM, DELAY_SECONDS):
            begin = time.monotonic()
            wait_slow(guard, {VICTIM}, NAMED_SECONDS)
            print('named after %.0f s' % (time.monotonic() - begin))
            guard.wait_check('PERFGUARD_SLOW_OSD', True, 15)
            check = guard.checks()['PERFGUARD_SLOW_OSD']
            assert name in check['summary']['message'] and check['summary']['count'] == 1
            cluster.wait(lambda: affinity(guard) == 0.0, 30, 'a lower primary affinity')
            cluster.mgr_fail()
            guard.wait_ready()
            wait_slow(guard, {VICTIM}, 10)
            row = affinity_row(guard)
            assert (row['rung'], row['state']) == ('primary affinity', 'held')
            assert (row['settings'][0]['found'], row['settings'][0]['put']) == ('0.75', '0')
        begin = time.monotonic()
        wait_slow(guard, set(), NAMED_SECONDS)
        print('cleared after %.0f s' % (time.monotonic() - begin))
        guard.wait_check('PERFGUARD_SLOW_OSD', False, 15)
        cluster.wait(lambda: affinity(guard) == AFFINITY, 30, 'the affinity given back')
        cluster.wait(lambda: not affinity_row(guard), 15, 'the rung to be idle')
        assert len(guard.event_texts('slow-osd', last)) == 2, 'begins and ends once'


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick='tentacle')
def test_a_slow_osd_that_clients_read_from_in_any_case_keeps_its_primary_affinity(
        guard: Guard) -> None:
    """Most of its reads are of an erasure-coded pool."""
    cluster = guard.cluster
    cluster.pool_create(CODED_POOL, 32, erasure=(2, 1))
    try:
        load = cluster.load(CODED_POOL, rate=4 * CLIENT_READS, read_fraction=1.0, runtime=600)
        with acting_on_affinity(guard):
            with dispatch_delay(cluster, VICTIM, DELAY_SECONDS):
                wait_slow(guard, {VICTIM}, NAMED_SECONDS)
                # At first, the last affinity may have been given back a moment ago.
                cluster.wait(lambda: 'of its reads are of erasure-coded pools'
                             in (affinity_row(guard) or {'note': ''})['note'], 90, 'a decision')
                assert affinity_row(guard)['state'] == 'limited'
                assert affinity(guard) == AFFINITY
            wait_slow(guard, set(), NAMED_SECONDS)
        load.stop()
    finally:
        cluster.mon('osd pool delete', pool=CODED_POOL, pool2=CODED_POOL,
                    yes_i_really_really_mean_it=True)
        cluster.mon('osd crush rule rm', name=CODED_POOL)
        cluster.mon('osd erasure-code-profile rm', name=CODED_POOL + '-profile')
    cluster.wait(lambda: not guard.checks(), LATENCY_SECONDS, 'no health check')


@pytest.mark.alone
@pytest.mark.releases('pacific', quick=())
def test_with_the_defaults_a_stall_is_no_alarm_and_slowness_is_one_within_a_minute(
        release: str, make_cluster: ClusterFactory) -> None:
    """Reports each 5 s, a window of a minute: the periods of a real cluster."""
    cluster = make_cluster(release, osds=8, hosts=4)
    cluster.pool_create(POOL, 64)
    cluster.wait_clean(120)
    guard = Guard(cluster)
    cluster.load(POOL, rate=80, read_fraction=0.5, runtime=1500)
    cluster.wait(lambda: all(row['score'] for row in guard.osds().values()), 180, 'slowdowns')
    stall(cluster, VICTIM, STALL_SECONDS)
    stays_well(guard, 75.0)
    with dispatch_delay(cluster, VICTIM, MUCH_DELAY_SECONDS):
        begin = time.monotonic()
        wait_slow(guard, {VICTIM}, RAISED_SECONDS)
        print('raised after %.0f s: %s' % (time.monotonic() - begin, guard.osds()[VICTIM]['why']))
        guard.wait_check('PERFGUARD_SLOW_OSD', True, 15)
    begin = time.monotonic()
    wait_slow(guard, set(), CLEARED_SECONDS)
    print('cleared after %.0f s' % (time.monotonic() - begin))
    name = 'osd.%d' % VICTIM
    assert guard.event_texts('slow-osd') == [name + ' is slow', name + ' is no longer slow']
    assert not guard.tracebacks()


class Episodes:
    """OSDs that are slow, and that have been; how long each alarm took to be raised and cleared."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        #: OSD -> when its delay began, or ended.
        self._slowed: Dict[int, float] = {}
        #: Those that are slow now, reported or not.
        self._victims: Set[int] = set()
        self._ended: Dict[int, float] = {}
        self.raised: List[float] = []
        self.cleared: List[float] = []

    def play(self, victims: Sequence[int]) -> None:
        """Delay the OSDs until all of them are reported; those before them may clear meanwhile."""
        self.until(lambda: len(self._ended) <= AT_A_TIME and not set(victims) & set(self._ended),
                   'earlier episodes to be cleared')
        self._victims = set(victims)
        with contextlib.ExitStack() as slow:
            for osd in victims:
                slow.enter_context(dispatch_delay(self._guard.cluster, osd, MUCH_DELAY_SECONDS))
                self._slowed[osd] = time.monotonic()
            self.until(lambda: not self._slowed, 'slow OSDs to be reported')
        self._ended.update(dict.fromkeys(victims, time.monotonic()))

    def finish(self) -> None:
        self.until(lambda: not self._ended, 'the last episodes to be cleared')

    def until(self, over: Callable[[], bool], what: str) -> None:
        def look() -> bool:
            self._look()
            return over()

        self._guard.cluster.wait(look, 2 * CLEARED_SECONDS, what)

    def _look(self) -> None:
        """An answer counts for the time at which it was asked for."""
        now = time.monotonic()
        slow = self._guard.slow_osds()
        assert slow <= self._victims | set(self._ended), 'healthy OSDs: %s' % slow
        for osd in slow & set(self._slowed):
            self.raised.append(now - self._slowed.pop(osd))
            print('osd.%d raised after %.0f s' % (osd, self.raised[-1]), flush=True)
        for osd in set(self._ended) - slow:
            self.cleared.append(now - self._ended.pop(osd))
            print('osd.%d cleared after %.0f s' % (osd, self.cleared[-1]), flush=True)


@pytest.mark.alone
@pytest.mark.releases('pacific', quick=())
@pytest.mark.timeout(3600)
def test_twenty_alarms_are_raised_within_a_minute_and_cleared_within_two(
        release: str, make_cluster: ClusterFactory) -> None:
    cluster = make_cluster(release, osds=MANY_OSDS, hosts=MANY_HOSTS)
    cluster.pool_create(POOL, 128)
    cluster.wait_clean(120)
    guard = Guard(cluster)
    cluster.load(POOL, rate=120, read_fraction=0.5, runtime=3600)
    cluster.wait(lambda: all(row['score'] for row in guard.osds().values()), 240, 'slowdowns')
    episodes, osds = Episodes(guard), itertools.cycle(cluster.osds())
    for _ in range(ALARMS // AT_A_TIME):
        episodes.play([next(osds) for _ in range(AT_A_TIME)])
    episodes.finish()
    for name, seconds in (('raised', episodes.raised), ('cleared', episodes.cleared)):
        print('%s after: least %.0f, median %.0f, most %.0f s: %s' % (
            name, min(seconds), median(seconds), max(seconds), [round(s) for s in seconds]))
    assert len(episodes.raised) == len(episodes.cleared) == ALARMS
    assert max(episodes.raised) <= RAISED_SECONDS and max(episodes.cleared) <= CLEARED_SECONDS
    assert len(guard.event_texts('slow-osd')) == 2 * ALARMS
    assert not guard.tracebacks()


@pytest.mark.alone
@pytest.mark.releases('pacific', quick=())
@pytest.mark.timeout(HEALTHY_SECONDS + 900)
def test_a_busy_healthy_cluster_raises_nothing(release: str, make_cluster: ClusterFactory) -> None:
    """For PERFGUARD_HEALTHY_SECONDS, with a second client that comes and goes each minute."""
    cluster = make_cluster(release, osds=8, hosts=4)
    cluster.pool_create(POOL, 64)
    cluster.wait_clean(120)
    guard = Guard(cluster)
    cluster.load(POOL, rate=120, read_fraction=0.5, runtime=HEALTHY_SECONDS + 600)
    cluster.wait(lambda: all(row['score'] for row in guard.osds().values()), 240, 'slowdowns')
    last, end, scores = guard.last_event(), time.monotonic() + HEALTHY_SECONDS, [0.0]
    while time.monotonic() < end:
        burst = cluster.load(POOL, rate=200, read_fraction=0.7, runtime=600)
        try:
            scores.append(stays_calm(guard, min(60.0, end - time.monotonic())))
        finally:
            burst.stop()
        scores.append(stays_calm(guard, min(60.0, end - time.monotonic())))
    print('%.0f s, highest slowdown %.2f' % (HEALTHY_SECONDS, max(scores)))
    assert not [event for event in guard.events() if event['id'] > last]
    assert not guard.tracebacks()


def stays_calm(guard: Guard, seconds: float) -> float:
    """The highest slowdown of an OSD meanwhile, which is no alarm."""
    end, highest = time.monotonic() + seconds, 0.0
    while time.monotonic() < end:
        rows = guard.osds()
        assert not [row for row in rows.values() if row['slow'] or row['chronic']], rows
        assert not ALARM_CHECKS & set(guard.checks()), guard.checks()
        highest = max([highest, *(row['score'] or 0.0 for row in rows.values())])
        time.sleep(3)
    return highest


def stays_well(guard: Guard, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert not guard.slow_osds() and 'PERFGUARD_SLOW_OSD' not in guard.checks()
        time.sleep(2)


@pytest.mark.alone
@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
def test_slow_clients(guard: Guard) -> None:
    cluster, last = guard.cluster, guard.last_event()
    with contextlib.ExitStack() as slow:
        # What is measured from now on is no baseline.
        guard.option('baseline_seconds', '86400')
        slow.callback(guard.option, 'baseline_seconds', OPTIONS['baseline_seconds'])
        for osd in range(8):
            # All alike: none is slower than its peers.
            slow.enter_context(dispatch_delay(cluster, osd, DELAY_SECONDS))
        guard.wait_check('PERFGUARD_LATENCY', True, LATENCY_SECONDS)
        check = guard.checks()['PERFGUARD_LATENCY']
        assert 'pool %s' % POOL in check['detail'][0]['message'] and check['summary']['count'] == 1
        row = pool_row(guard)
        assert max(row['read_ms'], row['write_ms']) > ALARM_FACTOR * row['baseline_ms'], row
    guard.wait_check('PERFGUARD_LATENCY', False, LATENCY_SECONDS)
    assert guard.event_texts('latency', last)
    assert not guard.event_texts('slow-osd', last)


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
def test_campaign_without_progress(guard: Guard) -> None:
    cluster = guard.cluster
    # A campaign's limit must not exceed that of the alarm.
    guard.option('latency_factor', '1.5')
    cluster.mon('osd set', key='nobackfill')
    try:
        guard.hold(lambda: cluster.mon('osd crush reweight', name='osd.5', weight=2.0))
        guard.do('start')
        guard.wait_phase('HOLDING')
        assert 'PERFGUARD_STALLED' not in guard.checks()
        guard.wait_check('PERFGUARD_STALLED', True, 4 * STALLED_SECONDS)
        check = guard.checks()['PERFGUARD_STALLED']
        assert 'campaign %d' % guard.status()['id'] in check['summary']['message']
        assert any('nobackfill' in line['message'] for line in check['detail']), check
        cluster.mon('osd unset', key='nobackfill')
        guard.wait_check('PERFGUARD_STALLED', False, 30)
        assert guard.wait_phase('DONE')['released'] > 0
    finally:
        cluster.mon('osd unset', key='nobackfill')
        tidy(guard)
        guard.configure(PATIENT_CLIENTS)
        guard.option('latency_alarm_factor', OPTIONS['latency_alarm_factor'])


def tidy(guard: Guard) -> None:
    """After a campaign, however it ended."""
    cluster = guard.cluster
    if guard.status()['phase'] not in ('IDLE', 'DONE', 'ABORTED'):
        guard.do('abort')
        guard.wait_phase('ABORTED')
    cluster.mon('osd crush reweight', name='osd.5', weight=1.0)
    guard.remove_upmaps()
    cluster.wait_clean(60)


@pytest.mark.alone
@pytest.mark.parametrize('args, alarming', [
    pytest.param(HEAVY_OSDS, RATIO, id='osds'),
    pytest.param(HEAVY_POOL, ALARM_FACTOR, id='pool',
                 marks=pytest.mark.releases('pacific', 'reef', 'tentacle', quick=()))])
def test_a_probe_raises_no_alarm_and_causes_no_mitigation(
        guard: Guard, args: Dict[str, str], alarming: float) -> None:
    """OSDs become slower than others, or slower than the pool usually is."""
    probes, last = Probes(guard), guard.last_event()
    slowest, rates, usual_ms = 0.0, [0.0], pool_row(guard)['write_baseline_ms']
    with acting_on_affinity(guard):
        run = probes.begin(**HEAVY, **args)
        while probes.state(run) not in ENDED:
            stays_well(guard, 1.0)
            write_ms = [row['write_ms'] or 0.0 for row in guard.osds().values()]
            slowest = max(slowest, max(write_ms) / (usual_ms if 'pool' in args else min(write_ms)))
            rates.append(pool_row(guard)['write_rate'])
            assert not ALARM_CHECKS & set(guard.checks()), guard.checks()
            assert not affinity_row(guard)
        found = probes.details(run)
        assert found['state'] == 'done', found['message']
    probed = min(job['write']['iops'] for job in found['jobs'])
    print('%.1f writes/s of the probe, up to %.0f of clients; they took up to %.1f times as long'
          % (probed, max(rates), slowest))
    assert slowest > 1.2 * alarming, 'no OSD looked slow, so this shows nothing'
    assert not [kind for kind in ('slow-osd', 'latency', 'mitigation')
                if guard.event_texts(kind, last)]


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
def test_clients_over_their_limit_end_a_probe(guard: Guard) -> None:
    probes = Probes(guard)
    run = probes.begin(**HEAVY, **HEAVY_POOL)
    guard.cluster.wait(lambda: ', run' in probes.row(run)['message'], 30, 'measurements')
    guard.option('latency_limits_ms', POOL + '=0.01')
    try:
        found = probes.wait_state(run, 'aborted')
        assert 'latency of clients of pool %s is' % POOL in found['message'], found['message']
        probes.refused('probe run', errno.EBUSY, '(limit 0.01 ms)', pool=POOL, **SHORT)
    finally:
        guard.unset('latency_limits_ms')


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
def test_probe_that_cannot_clean_up(guard: Guard) -> None:
    cluster = guard.cluster
    probes = Probes(guard)
    run = probes.begin(pool=POOL, rw='randwrite', bs='4k', iodepth='4', size='1m', nrfiles='16',
                       ramp_time='0', repeat='1', runtime='30')
    probes.wait_state(run, 'running')
    cluster.wait(lambda: ', run' in probes.row(run)['message'], 30, 'objects of the probe')
    assert probe_objects(cluster)
    cluster.mon('osd set', key='pause')
    try:
        guard.wait_check('PERFGUARD_PROBE_LEFT', True, LEFT_SECONDS)
        check = guard.checks()['PERFGUARD_PROBE_LEFT']
        assert 'probe %d' % run in check['summary']['message']
        assert any(POOL in line['message'] for line in check['detail']), check
        assert probes.state(run) == 'cleaning'
    finally:
        cluster.mon('osd unset', key='pause')
    probes.wait_state(run, *ENDED)
    guard.wait_check('PERFGUARD_PROBE_LEFT', False, 30)
    assert not probe_objects(cluster)


def probe_objects(cluster: Cluster) -> List[str]:
    with cluster.rados().open_ioctx(POOL) as ioctx:
        ioctx.set_namespace(NAMESPACE)
        return [each.key for each in ioctx.list_objects()]
