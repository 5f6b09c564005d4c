# SPDX-License-Identifier: LGPL-2.1-or-later
"""Probes on real clusters, by command: what they find, and that nothing is left of them.

The tests of a release share one cluster. Mons do not let pools be deleted, and know of no pool of
one replica, as Ceph has it by default.
"""
import contextlib
import errno
import json
from typing import Any, Callable, Dict, Iterator

import pytest

from perfguard.probe.types import NAMESPACE, PROBE_PREFIX
from qa.cluster import Cluster, CommandError
from qa.lib.clusters import Failed, Lender
from qa.lib.faults import dispatch_delay
from qa.lib.guard import FAST_CONF, FAST_OPTIONS, Guard
from qa.lib.probes import LOOKALIKES, RUN_SECONDS, SHORT, Probes, objects, put_lookalikes, users

ClusterFactory = Callable[..., Cluster]

pytestmark = pytest.mark.releases('pacific', 'reef', 'tentacle', quick='tentacle')

OSDS = 6
CONF: Dict[str, Any] = {**FAST_CONF, 'mon': dict(
    FAST_CONF['mon'], mon_allow_pool_delete=None, mon_allow_pool_size_one=None)}
REGRESSION = 'PERFGUARD_PROBE_REGRESSION'
JOB_FILE = '''\
[global]
ioengine=rados
bs=4k
size=1m       ; 16 objects of 64 KiB
nrfiles=16
runtime=1
time_based
[writes]
rw=randwrite
iodepth=4
numjobs=2
[both]
rw=randrw
rwmixread=80
rate_iops=50
'''
#: Verdicts of a comparison, and those of the same two probes the other way round.
OPPOSITE = {'faster': 'slower', 'slower': 'faster', 'no difference': 'no difference',
            'cannot tell': 'cannot tell'}
#: Keys that readers of fio's JSON look for.
FIO_KEYS = {'jobname', 'groupid', 'error', 'elapsed', 'job options', 'read', 'write', 'trim',
            'job_runtime', 'usr_cpu', 'sys_cpu', 'iodepth_level', 'latency_ns', 'latency_us',
            'latency_ms'}


def booted(make: ClusterFactory, release: str) -> Probes:
    # Tentacle's OSDs do not bench a memstore.
    store = 'bluestore' if release == 'tentacle' else 'memstore'
    cluster = make(release, osds=OSDS, hosts=3, conf=CONF, store=store)
    cluster.pool_create('rep', 32)
    cluster.pool_create('ec', 16, erasure=(2, 1))
    cluster.fill('rep', 100, 4096)
    cluster.fill('ec', 50, 8192)
    put_lookalikes(cluster, 'rep')
    cluster.wait_clean(60)
    return Probes(Guard(cluster))


@pytest.fixture(scope='module')
def lender(release: str, cluster_factory: ClusterFactory) -> Iterator[Lender[Probes]]:
    with Lender(lambda: booted(cluster_factory, release)) as lender:
        yield lender


@pytest.fixture
def probes(lender: Lender[Probes], failed: Failed) -> Iterator[Probes]:
    """No trace of a probe is left after the test, and what was there is there unchanged."""
    with lender.lend(failed) as probes:
        before = probes.traces()
        yield probes
        assert not [row for row in probes.guard.get('probe ls')['probes']
                    if row['state'] in ('preparing', 'running', 'cleaning')]
        assert probes.traces() == before
        assert not probes.guard.tracebacks()


def has_option(cluster: Cluster, option: str) -> bool:
    return option in {entry['name'] for entry in cluster.mon('config dump')}


# ---- what is refused

BAD: Dict[str, Any] = {
    'pool': (errno.ENOENT, 'nosuch', {'pool': 'nosuch'}),
    'osd': (errno.ENOENT, 'osd.99', {'osd': '99'}),
    'osd in words': (errno.EINVAL, 'first', {'osd': 'first'}),
    'host': (errno.ENOENT, 'nowhere', {'host': 'nowhere'}),
    'class': (errno.ENOENT, 'floppy', {'device_class': 'floppy'}),
    'profile': (errno.EINVAL, 'bogus', {'profile': 'bogus'}),
    'block': (errno.EINVAL, 'larger than an object',
              {'rw': 'write', 'bs': '1m', 'size': '4m', 'nrfiles': '8'}),
    'byte budget': (errno.EBUSY, 'probe_max_bytes',
                    {'rw': 'write', 'size': '30g', 'nrfiles': '2048'}),
    'free space': (errno.EBUSY, 'are free', {'rw': 'write', 'size': '30g', 'nrfiles': '2048'}),
    'time budget': (errno.EBUSY, 'probe_max_seconds', {'rw': 'read', 'runtime': '3000',
                                                       'repeat': '2'}),
    'runtime 0': (errno.EINVAL, 'runtime=0', {'rw': 'read', 'runtime': '0'}),
    'huge runtime': (errno.EINVAL, 'runtime=1000000', {'rw': 'read', 'runtime': '1000000'}),
    'runtime in words': (errno.EINVAL, 'runtime=ten', {'rw': 'read', 'runtime': 'ten'}),
    'negative runtime': (errno.EINVAL, 'runtime=-1', {'rw': 'read', 'runtime': '-1'}),
    'no number': (errno.EINVAL, 'runtime=nan', {'rw': 'read', 'runtime': 'nan'}),
    'infinity': (errno.EINVAL, 'runtime=inf', {'rw': 'read', 'runtime': 'inf'}),
    'depth 0': (errno.EINVAL, 'iodepth=0', {'rw': 'read', 'iodepth': '0'}),
    'erasure code': (errno.EBUSY, 'erasure coded',
                     {'pool': 'ec', 'rw': 'randwrite', **SHORT}),
    'store and pool': (errno.EINVAL, '--store', {'store': True, 'pool': 'rep'}),
    'store and profile': (errno.EINVAL, '--store', {'store': True, 'profile': 'quick'}),
    'interference of one': (errno.EINVAL, 'two OSDs', {'interference': True, 'osd': '0'}),
    'no replicas': (errno.EINVAL, 'replicas', {'replicas': '0'}),
    '99 replicas': (errno.EINVAL, 'replicas', {'replicas': '99'}),
    'one replica': (errno.EPERM, '--yes-i-really-mean-it', {'replicas': '1'}),
    'replicas of a pool': (errno.EINVAL, '--replicas', {'replicas': '2', 'pool': 'rep'}),
    'repeat 0': (errno.EINVAL, 'repeat', {'repeat': '0'}),
    'profile and file': (errno.EINVAL, 'not both', {'profile': 'quick', 'inbuf': JOB_FILE}),
    'key in file': (errno.EINVAL, 'unknown key zonemode',
                    {'inbuf': '[a]\nrw=read\nzonemode=zbd\n'}),
    'empty file': (errno.EINVAL, 'no job', {'inbuf': '# nothing\n'}),
}


def test_bad_input(probes: Probes) -> None:
    """One line, an errno, and nothing has been made meanwhile."""
    epoch, known = probes.cluster.epoch(), users(probes.cluster)
    for code, text, args in BAD.values():
        probes.refused('probe run', code, text, **args)
        assert (probes.cluster.epoch(), users(probes.cluster)) == (epoch, known), args
    assert probes.ids() == []
    for command in ('show', 'cancel', 'rm', 'baseline'):
        probes.refused('probe ' + command, errno.ENOENT, '77', run=77)
    probes.refused('probe compare', errno.ENOENT, 'probe 77', before=77, after=78)


@contextlib.contextmanager
def meanwhile(cluster: Cluster, prefix: str, undo: str = '', value: str = '1', back: str = '0',
              **args: Any) -> Iterator[None]:
    """A command that is undone at the end in any case."""
    values = ({'val': value}, {'val': back}) if not undo else ({}, {})
    cluster.mon(prefix, **args, **values[0])
    try:
        yield
    finally:
        cluster.mon(undo or prefix, **args, **values[1])


def test_closed_to_clients(release: str, probes: Probes) -> None:
    """A pool that is at its quota, or gives errors only; an OSDMap that holds clients back; an
    OSD that is down."""
    cluster = probes.cluster
    with meanwhile(cluster, 'osd pool set-quota', pool='rep', field='max_objects'):
        cluster.wait(lambda: probes.guard.get('probe run', dry_run=True, pool='rep', rw='write',
                                              **SHORT)['refusals'], 30, 'the quota to be known')
        probes.refused('probe run', errno.EBUSY, 'quota', pool='rep', rw='write', **SHORT)
    if release != 'pacific':
        with meanwhile(cluster, 'osd pool set', pool='ec', var='eio', value='true', back='false'):
            refused_soon(probes, errno.EBUSY, 'flag eio', pool='ec', rw='read')
    with meanwhile(cluster, 'osd pause', undo='osd unpause'):
        refused_soon(probes, errno.EBUSY, 'flag pausewr', rw='write')
    with meanwhile(cluster, 'osd set', undo='osd unset', key='noup'):
        cluster.mon('osd down', ids=['5'])
        refused_soon(probes, errno.EINVAL, 'osd.5 is down', osd='5')
    cluster.wait_up([5], 30)
    cluster.wait_clean(60)
    cluster.wait_health_ok(60)
    assert probes.ids() == []


def refused_soon(probes: Probes, number: int, text: str, **args: Any) -> None:
    """The mgr learns of what is wrong with its next OSDMap."""
    def known() -> bool:
        retval, out, _ = probes.guard.ask('probe run', dry_run=True, **args, **SHORT)
        return retval < 0 or bool(json.loads(out)['refusals'])

    probes.cluster.wait(known, 30, 'the mgr to know of it: %s' % text)
    probes.refused('probe run', number, text, **args, **SHORT)


# ---- what is measured

def test_dry_run(probes: Probes) -> None:
    epoch = probes.cluster.epoch()
    found = probes.guard.get('probe run', dry_run=True)
    assert found['dry_run'] and found['target'] == 'cluster:x3' and found['steps'] == 18
    assert 0 < found['seconds'] < 60 and found['seconds'] < found['limit_seconds']
    assert 0 < found['prefill_bytes'] * 3 == found['stored_bytes'] and found['refusals'] == []
    text = probes.plain('probe run', dry_run=True, pool='rep', **SHORT, rw='read')
    assert 'takes about' in text and 'writes 16 objects (1.0 MiB' in text, text
    # A preview lists the objections and is not refused.
    assert 'quota' not in text
    assert probes.guard.get('probe run', dry_run=True, pool='ec', rw='randwrite',
                            **SHORT)['refusals']
    assert probes.ids() == [] and probes.cluster.epoch() == epoch


def test_own_pool(probes: Probes) -> None:
    """One at a time; seen while it runs, with a user that reaches no more than its own objects."""
    cluster = probes.cluster
    # `ceph -s` takes some seconds on a busy machine.
    run = probes.begin(rw='randwrite', **{**SHORT, 'runtime': '12', 'iodepth': '4'})
    probes.wait_state(run, 'running')
    pool, user = PROBE_PREFIX + str(run), 'client.' + PROBE_PREFIX + str(run)
    assert pool in {each['pool_name'] for each in cluster.osd_dump()['pools']}
    caps = cluster.mon('auth get', entity=user)[0]['caps']
    assert caps == {'mon': 'allow r', 'osd': 'allow rw pool=%s namespace=%s' % (pool, NAMESPACE)}
    cluster.wait(lambda: probes.progress(run), 10, 'a progress event')
    assert 'probe %d: ' % run in cluster.ceph('-s').stdout
    probes.refused('probe run', errno.EBUSY, 'probe %d is active' % run, rw='read', **SHORT)
    probes.refused('probe rm', errno.EBUSY, 'is active', run=run)
    found = probes.wait_state(run, 'done')
    assert found['target'] == 'cluster:x3' and found['fio version'].startswith('fio-')
    job, = found['jobs']
    assert FIO_KEYS <= job.keys()
    assert job['write']['total_ios'] > 0 and job['read']['total_ios'] == 0
    latency = job['write']['clat_ns']
    assert latency['min'] <= latency['percentile']['50.000000'] \
        <= latency['percentile']['99.000000'] <= latency['max']
    assert probes.row(run)['state'] == 'done' and probes.row(run)['trigger'] == 'command'
    text = probes.plain('probe show', run=run)
    assert 'IOPS' in text and 'randwrite' in text and text.startswith('probe %d: done' % run)
    assert 'cluster:x3' in probes.plain('probe ls')
    cluster.wait(lambda: not probes.progress(run), 15, 'the progress event to go')
    assert not has_option(cluster, 'mon_allow_pool_delete')


def test_image(probes: Probes) -> None:
    """Through librbd: written, read back and verified; nothing stays, not even in the trash."""
    run = probes.begin(rw='randrw', ioengine='rbd', **{**SHORT, 'runtime': '3', 'numjobs': '2',
                                                       'iodepth': '4', 'size': '8m'})
    probes.wait_state(run, 'running')
    pool = PROBE_PREFIX + str(run)
    caps = probes.cluster.mon('auth get', entity='client.' + pool)[0]['caps']
    assert caps == {'mon': 'allow r', 'osd': 'allow rwx pool=' + pool}
    probes.cluster.wait(lambda: ('', 'rbd_directory') in objects(probes.cluster, pool),
                        RUN_SECONDS, 'the image')
    found = probes.wait_state(run, 'done')
    assert [job['job options']['ioengine'] for job in found['jobs']] == ['rbd', 'rbd']
    for job in found['jobs']:
        assert job['read']['total_ios'] > 0 and job['write']['total_ios'] > 0, job
        assert job['errors'] == job['corrupt'] == job['unfinished'] == job['error'] == 0, job
    probes.refused('probe run', errno.EINVAL, 'ioengine=rbd', rw='read', ioengine='rbd',
                   pool='rep', **SHORT)


def test_one_replica(probes: Probes) -> None:
    found = probes.measure(rw='write', replicas='1', yes_i_really_mean_it=True, **SHORT)
    assert found['target'] == 'cluster:x1'
    assert not has_option(probes.cluster, 'mon_allow_pool_size_one')


def test_pool_with_job_file(probes: Probes) -> None:
    command = {'prefix': 'perfguard probe run', 'format': 'json', 'pool': 'rep', 'repeat': '2'}
    retval, out, error = probes.cluster.command('mgr', command, JOB_FILE.encode())
    assert retval == 0, error
    found = probes.wait_state(json.loads(out)['id'], 'done')
    assert found['target'] == 'pool:rep'
    first, second, both = found['jobs']
    assert [job['jobname'] for job in found['jobs']] == ['writes', 'writes', 'both']
    assert [len(job['repetitions']) for job in found['jobs']] == [2, 2, 2]
    assert first['job options']['numjobs'] == '2' and second['write']['total_ios'] > 0
    reads, writes = both['read']['total_ios'], both['write']['total_ios']
    assert reads > writes > 0 and reads + writes <= 60
    # A lookalike was there all the time.
    assert set(LOOKALIKES) <= objects(probes.cluster, 'rep').keys()


#: Names that mean something else in capabilities, unless they are quoted.
HOSTILE = ('two words', 'a,b=c', "it's", '6"', '*', 'rep namespace=')


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
def test_pools_of_any_name(probes: Probes) -> None:
    """Each user reaches its own pool, and that of the refused name is left alone."""
    cluster = probes.cluster
    names = (*HOSTILE, '6" it\'s')
    for name in names:
        cluster.mon('osd pool create', pool=name, pg_num=1, pool_type='replicated')
    try:
        cluster.wait_clean(60)
        for name in HOSTILE:
            probes.measure(pool=name, rw='randrw', **SHORT)
        probes.refused('probe run', errno.EINVAL, 'both kinds of quotes', pool=names[-1],
                       rw='randrw', **SHORT)
    finally:
        cluster.mon('config set', who='mon', name='mon_allow_pool_delete', value='true')
        for name in names:
            cluster.wait(lambda: removed(cluster, name), 20, 'the end of pool %s' % name)
        cluster.mon('config rm', who='mon', name='mon_allow_pool_delete')


def removed(cluster: Cluster, name: str) -> bool:
    with contextlib.suppress(CommandError):
        cluster.mon('osd pool delete', pool=name, pool2=name, yes_i_really_really_mean_it=True)
    return name not in {pool['pool_name'] for pool in cluster.osd_dump()['pools']}


def test_erasure_coded_pool(probes: Probes) -> None:
    """Whole objects can be written, and read in parts."""
    found = probes.measure(pool='ec', rw='write', bs='64k', size='1m', nrfiles='16', runtime='1',
                           ramp_time='0')
    assert found['jobs'][0]['write']['total_ios'] > 0
    found = probes.measure(pool='ec', rw='randread', **SHORT)
    assert found['jobs'][0]['read']['total_ios'] > 0


def check_counted(found: Dict[str, Any], osds: Any) -> None:
    """The OSDs' own counters: at least what the probe says went to each of them."""
    counted = {row['osd']: row for row in found['counted']}
    assert sorted(counted) == sorted(osds)
    for osd in osds:
        jobs = [job for job in found['jobs'] if job['osd'] == osd]
        assert jobs
        for name, column in (('read', 'reads'), ('write', 'writes')):
            done = sum(job[name]['total_ios'] for job in jobs)
            assert counted[osd][column] >= done, (osd, name, counted[osd], done)


def test_one_osd_in_a_pool(probes: Probes) -> None:
    found = probes.measure(pool='rep', osd='osd.2', rw='randrw', **SHORT)
    check_counted(found, [2])
    assert found['target'] == 'osd:rep:2'


def test_osds_of_a_host(probes: Probes) -> None:
    """In a pool of their own; each is ranked."""
    host = probes.cluster.osd_hosts()[1]
    osds = [osd for osd, its in probes.cluster.osd_hosts().items() if its == host]
    found = probes.measure(host=host, rw='randwrite', **SHORT)
    check_counted(found, osds)
    assert {row['osd'] for row in found['osds']} == set(osds) and len(osds) == 2
    assert 'ratio to peers' in probes.plain('probe show', run=found['id'])


def test_interference(probes: Probes) -> None:
    found = probes.measure(interference=True, osd='0,3', pool='rep', rw='randwrite', **SHORT)
    parts = [(job['part'], job['osd']) for job in found['jobs']]
    assert sorted(parts) == sorted((part, osd) for part in ('alone', 'together', 'again')
                                   for osd in (0, 3))
    # One row is of all together.
    assert {row['osd'] for row in found['interference']} == {0, 3, None}
    check_counted(found, [0, 3])


@pytest.mark.releases('pacific', quick=())
def test_more_results_than_a_pipe_holds(probes: Probes) -> None:
    """Some 8 MB, while the loop turns rarely; without them there would be nothing to sweep for."""
    probes.guard.option('campaign_interval', '10')
    try:
        found = probes.measure(interference=True, osd='all', pool='rep', rw='randrw', bs='4k',
                               numjobs='64', size='64k', nrfiles='1', runtime='0.2',
                               ramp_time='0', repeat='3')
    finally:
        probes.guard.option('campaign_interval', FAST_OPTIONS['campaign_interval'])
    assert len(found['jobs']) == 3 * 64 * OSDS
    assert all(len(job['repetitions']) == 3 for job in found['jobs'])


def test_store(probes: Probes) -> None:
    found = probes.measure(store=True, osd='4')
    assert found['target'] == 'store:4'
    assert [job['jobname'] for job in found['jobs']] == ['bench-4096', 'bench-4194304']


# ---- runs, later

def test_cancel_and_rm(probes: Probes) -> None:
    run = probes.begin(pool='rep', rw='randwrite', **{**SHORT, 'runtime': '60'})
    probes.wait_state(run, 'running')
    assert probes.guard.get('probe cancel', run=run)['message'] == 'stopping'
    found = probes.wait_state(run, 'cancelled')
    assert found['messages'] == ['by command']
    probes.refused('probe cancel', errno.EINVAL, 'is not active', run=run)
    probes.refused('probe baseline', errno.EINVAL, 'cancelled', run=run)
    assert probes.guard.get('probe rm', run=run)['message'] == 'forgotten'
    assert run not in probes.ids()
    probes.refused('probe show', errno.ENOENT, 'probe %d does not exist' % run, run=run)


def test_compare_and_baseline(probes: Probes) -> None:
    """OSDs that are slower than at the time of the baseline are reported as long as they are."""
    cluster, guard = probes.cluster, probes.guard
    job = {'pool': 'rep', 'rw': 'randwrite', 'repeat': '3', **SHORT}
    first, second = (probes.measure(**job)['id'] for _ in range(2))
    found = guard.get('probe compare', before=first, after=second)
    back = guard.get('probe compare', before=second, after=first)
    assert found['verdict'] == OPPOSITE[back['verdict']]
    assert [line['repetitions'] for line in found['lines']] == [[3, 3]]
    assert 'probe %d compared with probe %d: ' % (second, first) in probes.plain(
        'probe compare', before=first, after=second)
    other = probes.measure(pool='rep', rw='randread', **SHORT)['id']
    probes.refused('probe compare', errno.EINVAL, 'no job in common', before=first, after=other)

    guard.get('probe baseline', run=first)
    assert [row['id'] for row in guard.get('probe ls')['baselines']] == [first]
    probes.refused('probe rm', errno.EBUSY, 'baseline', run=first)
    with slow_osds(cluster):
        slow = probes.measure(**job)['id']
    guard.wait_check(REGRESSION, True, 20)
    assert 'pool:rep' in guard.checks()[REGRESSION]['summary']['message']
    assert probes.row(slow)['verdict'] == 'slower than its baseline'
    assert guard.get('probe compare', before=first, after=slow)['verdict'] == 'slower'
    assert 'probe %d is slower' % slow in probes.plain('probe ls')
    # One that is as fast again ends it; the machine may be busy with something else for a while.
    cluster.wait(lambda: probes.measure(**job) and not guard.get(
        'probe ls')['baselines'][0]['slower'], 60, 'a probe as fast as the baseline')
    guard.wait_check(REGRESSION, False, 20)
    guard.get('probe baseline', run=first, rm=True)
    assert guard.get('probe ls')['baselines'] == []
    probes.refused('probe baseline', errno.ENOENT, 'is not a baseline', run=first, rm=True)


def test_a_probe_of_a_pool_names_the_osd_that_was_slow_in_it(probes: Probes) -> None:
    """Reads, which wait for no other OSD. Few others are named, where the machine slows them."""
    with dispatch_delay(probes.cluster, 3, 0.03):
        shown = probes.measure(pool='rep', rw='randread', bs='4k', size='1m', nrfiles='64',
                               iodepth='2', runtime='6', ramp_time='0')
    print(shown['findings'])
    reads = [text for text in shown['findings'] if 'client reads during the probe' in text]
    named = [text.split(':')[0] for text in reads]
    assert 'osd.3' in named and len(named) <= OSDS // 3


@contextlib.contextmanager
def slow_osds(cluster: Cluster) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for osd in range(OSDS):
            stack.enter_context(dispatch_delay(cluster, osd, 0.02))
        yield


def test_schedule_and_failover(release: str, probes: Probes) -> None:
    """It begins automatically, once in its window, and so it does with the next mgr."""
    guard = probes.guard
    before = probes.ids()
    probes.refused('probe schedule', errno.EINVAL, '2500', schedule='nightly',
                   begin_time='2500')
    probes.refused('probe schedule', errno.ENOENT, 'osd.99', schedule='nightly', osd='99')
    probes.refused('probe schedule', errno.ENOENT, 'nightly', schedule='nightly', rm=True)
    guard.get('probe schedule', schedule='nightly', store=True, osd='0')
    started = probes.cluster.wait(lambda: [each for each in probes.ids() if each not in before],
                                  20, 'the scheduled probe to begin')
    found = probes.wait_state(started[0], 'done')
    assert found['target'] == 'store:0' and probes.row(started[0])['trigger'] == 'nightly'
    listed = guard.get('probe ls')

    probes.cluster.mgr_fail()
    guard.wait_ready()
    assert guard.get('probe ls') == listed
    assert probes.details(started[0])['jobs'] == found['jobs']
    row, = guard.get('probe ls')['schedules']
    assert row['name'] == 'nightly' and row['refused'] == ''
    assert 'nightly' in probes.plain('probe ls')
    guard.get('probe schedule', schedule='nightly', rm=True)
    assert guard.get('probe ls')['schedules'] == []
    assert probes.ids() == [row['id'] for row in listed['probes']]


def test_campaign(probes: Probes) -> None:
    """No probe disturbs a campaign unless the operator overrides this."""
    guard = probes.guard
    guard.prepare()
    probes.refused('probe run', errno.EBUSY, 'a campaign is active', pool='rep', rw='read',
                   **SHORT)
    probes.measure(pool='rep', rw='read', during_campaign=True, **SHORT)
    guard.do('abort')
    guard.wait_phase('ABORTED')


def test_pool_that_cannot_be_removed(probes: Probes) -> None:
    """A value set by "ceph tell" overrides that of the module: the reason is shown."""
    cluster = probes.cluster
    cluster.tell('mon.a', 'config set', var='mon_allow_pool_delete', val=['false'])
    try:
        cannot_be_removed(probes)
    finally:
        cluster.tell('mon.a', 'config unset', var='mon_allow_pool_delete')


def cannot_be_removed(probes: Probes) -> None:
    cluster = probes.cluster
    run = probes.begin(rw='write', replicas='2', **SHORT)

    def explained() -> bool:
        row = probes.row(run)
        return row['state'] == 'cleaning' and 'mon_allow_pool_delete' in row['message']

    cluster.wait(explained, RUN_SECONDS, 'the reason why it does not end')
    assert 'mon_allow_pool_delete' in probes.plain('status')
    probes.refused('probe run', errno.EBUSY, 'probe %d is active' % run, rw='read', **SHORT)
    cluster.tell('mon.a', 'config set', var='mon_allow_pool_delete', val=['true'])
    assert probes.wait_state(run, 'done')['jobs'][0]['write']['total_ios'] > 0
    pools = {pool['pool_name'] for pool in cluster.osd_dump()['pools']}
    assert PROBE_PREFIX + str(run) not in pools
    assert 'client.' + PROBE_PREFIX + str(run) not in users(cluster)
    assert not has_option(cluster, 'mon_allow_pool_delete')
