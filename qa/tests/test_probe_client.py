# SPDX-License-Identifier: LGPL-2.1-or-later
"""perfguard-probe on a client host with just the documented caps, and the import of its results."""
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Iterator, List

import pytest

from perfguard.probe.client import FIRST_RUN
from perfguard.probe.types import NAMESPACE, PROBE_PREFIX
from perfguard.probe.worker.objects import LISTING_SECONDS
from qa.cluster import Cluster
from qa.cluster.modules import default_module_dir
from qa.lib.clusters import ClusterFactory
from qa.lib.guard import Guard
from qa.lib.joins import ask
from qa.lib.probes import Probes

pytestmark = pytest.mark.releases('pacific', 'tentacle', quick=())

USER = 'client.probe'
SHORT = ['--bs', '4k', '--size', '1m', '--nrfiles', '16', '--runtime', '1', '--ramp_time', '0']


@pytest.fixture(scope='module')
def probes(release: str, cluster_factory: ClusterFactory) -> Iterator[Probes]:
    cluster = cluster_factory(release, osds=3, hosts=3)
    cluster.pool_create('rep', 16)
    cluster.pool_create('other', 8)
    cluster.fill('rep', 50, 4096)
    key = cluster.mon('auth get-or-create', entity=USER, caps=[
        'mon', 'allow r', 'osd', 'allow rw pool=rep namespace=' + NAMESPACE])[0]['key']
    keyring(cluster).write_text('[%s]\n\tkey = %s\n' % (USER, key))
    cluster.wait_clean(60)
    yield Probes(Guard(cluster))


def keyring(cluster: Cluster) -> Path:
    return cluster.directory / 'probe.keyring'


def begin(cluster: Cluster, *words: str) -> 'subprocess.Popen[str]':
    command = ['/usr/bin/python3', '-m', 'perfguard.probe.client', '--conf',
               str(cluster.conf_path), '--name', USER, '--keyring', str(keyring(cluster)), *words]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        universal_newlines=True, env={'PATH': '/usr/bin:/bin',
                                      'PYTHONPATH': str(default_module_dir().parent)})


def of_probes(cluster: Cluster) -> List[str]:
    with cluster.rados().open_ioctx('rep') as ioctx:
        ioctx.set_namespace(NAMESPACE)
        return [each.key for each in ioctx.list_objects() if each.key.startswith(PROBE_PREFIX)]


def wait_well(cluster: Cluster) -> None:
    cluster.wait_clean(60)
    cluster.wait(lambda: not {'PG_DEGRADED', 'SLOW_OPS'} & set(cluster.mon('health')['checks']),
                 60, 'the cluster to be well')


def test_results_are_imported_and_nothing_is_left(probes: Probes) -> None:
    cluster, guard = probes.cluster, probes.guard
    before = probes.traces()
    run = begin(cluster, '--pool', 'rep', '--rw', 'randrw', '--repeat', '2', *SHORT)
    out, said = run.communicate(timeout=90)
    assert run.returncode == 0, said
    assert probes.traces() == before
    retval, answer, error = ask(guard, 'probe import', out)
    assert retval == 0, error
    found = probes.details(json.loads(answer)['id'])
    assert found['state'] == 'done' and found['jobs']
    for job in found['jobs']:
        assert job['read']['total_ios'] > 0 and job['write']['total_ios'] > 0
        assert job['errors'] == job['corrupt'] == job['unfinished'] == 0
    # The same operations, measured by the mgr: comparable, with the host named as a difference.
    own = probes.measure(pool='rep', rw='randrw', repeat='2', bs='4k', size='1m', nrfiles='16',
                         runtime='1', ramp_time='0')
    assert socket.gethostname() in probes.plain('probe compare', before=found['id'],
                                                after=own['id'])
    assert ask(guard, 'probe import', out)[0] < 0 and not guard.tracebacks()


@pytest.mark.skipif(shutil.which('fio') is None, reason='no fio')
def test_a_run_of_fio_is_imported(probes: Probes) -> None:
    """Debian's fio, with the job that a probe would do."""
    cluster, guard = probes.cluster, probes.guard
    out = subprocess.run(
        ['fio', '--name=writes', '--ioengine=rados', '--clientname=admin', '--pool=rep',
         '--conf=%s' % cluster.conf_path, '--rw=randwrite', '--bs=4k', '--size=1m', '--nrfiles=4',
         '--iodepth=4', '--runtime=2', '--time_based', '--output-format=json'],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=90,
        cwd=str(cluster.directory))
    assert out.returncode == 0, out.stderr
    by_fio, = json.loads(out.stdout)['jobs']
    retval, answer, error = ask(guard, 'probe import', out.stdout)
    assert retval == 0, error
    shown = probes.details(json.loads(answer)['id'])
    ours, = shown['jobs']
    assert shown['state'] == 'done' and ours['write']['total_ios'] == by_fio['write']['total_ios']
    assert ours['write']['iops'] == pytest.approx(by_fio['write']['iops'], rel=0.01)
    assert ours['write']['clat_ns']['percentile']['99.000000'] == \
        by_fio['write']['clat_ns']['percentile']['99.000000'] > 0


def test_a_pool_that_the_user_may_not_write_is_refused(probes: Probes) -> None:
    run = begin(probes.cluster, '--pool', 'other', '--rw', 'randwrite', *SHORT)
    out, said = run.communicate(timeout=90)
    assert run.returncode == 1 and 'Traceback' not in said, said
    assert json.loads(out)['state'] == 'failed' and 'EPERM' in said


def test_a_quota_that_leaves_too_little_is_kept(probes: Probes) -> None:
    cluster = probes.cluster
    # Too little also as long as the mons do not know of the 50 objects that are there.
    cluster.mon('osd pool set-quota', pool='rep', field='max_objects', val='80')
    try:
        run = begin(cluster, '--pool', 'rep', '--rw', 'randread', '--force', '--bs', '4k',
                    '--size', '4m', '--nrfiles', '64', '--runtime', '1', '--ramp_time', '0')
        said = run.communicate(timeout=60)[1]
        assert run.returncode == 1 and "of the pool's remaining quota" in said, said
        assert not of_probes(cluster)
    finally:
        cluster.mon('osd pool set-quota', pool='rep', field='max_objects', val='0')


def test_the_objects_of_a_worker_that_is_killed_are_removed(probes: Probes) -> None:
    cluster = probes.cluster
    run = begin(cluster, '--pool', 'rep', '--rw', 'randwrite', *SHORT, '--runtime', '60')
    cluster.wait(lambda: of_probes(cluster), 30, 'objects of the probe')
    for pid in Path('/proc/%d/task/%d/children' % (run.pid, run.pid)).read_text().split():
        os.kill(int(pid), signal.SIGKILL)
    out, said = run.communicate(timeout=60)
    assert run.returncode == 1 and 'objects left' not in said, said
    assert 'killed by SIGKILL' in json.loads(out)['messages'][0]
    assert not of_probes(cluster)


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGKILL])
def test_a_probe_that_is_killed_leaves_nothing(probes: Probes, number: signal.Signals) -> None:
    """The worker ends when its standard input is closed."""
    cluster = probes.cluster
    run = begin(cluster, '--pool', 'rep', '--rw', 'randwrite', *SHORT, '--runtime', '60')
    try:
        cluster.wait(lambda: of_probes(cluster), 30, 'objects of the probe')
        time.sleep(0.5)
        os.kill(run.pid, number)
        run.communicate(timeout=60)
        assert run.returncode != 0
        cluster.wait(lambda: not of_probes(cluster), 30, 'its objects to be removed')
    finally:
        run.kill()
        run.communicate()


@pytest.mark.timeout(900)
def test_a_listing_ends_though_an_osd_hangs(probes: Probes) -> None:
    """In a cluster that does not mark it down."""
    cluster = probes.cluster
    cluster.mon('osd set', key='nodown')
    cluster.stop('osd.2')
    try:
        out, said = begin(cluster, '--pool', 'rep', '--clean', str(FIRST_RUN)).communicate(
            timeout=2 * LISTING_SECONDS)
        assert 'could not list the objects' in said and 'objects left: unknown' in said, said
    finally:
        cluster.cont('osd.2')
        cluster.mon('osd unset', key='nodown')
        wait_well(cluster)


def test_a_cluster_that_is_unwell_is_refused(probes: Probes) -> None:
    """With the documented caps, which allow to ask for the health."""
    cluster = probes.cluster
    cluster.stop('osd.2')
    try:
        cluster.wait(lambda: 'PG_DEGRADED' in cluster.mon('health')['checks'], 60, 'degraded PGs')
        run = begin(cluster, '--pool', 'rep', '--rw', 'randwrite', *SHORT)
        out, said = run.communicate(timeout=90)
        assert run.returncode == 1 and not out and 'PG_DEGRADED' in said, said
    finally:
        cluster.cont('osd.2')
        wait_well(cluster)
