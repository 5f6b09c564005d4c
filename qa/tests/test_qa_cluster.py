# SPDX-License-Identifier: LGPL-2.1-or-later
"""The test clusters themselves: do they behave, and do they leave nothing behind?"""

import errno
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest

from qa.cluster import Cluster, ClusterError, CommandError
from qa.cluster.daemons import heed_interrupts
from qa.cluster.load_control import Load
from qa.cluster.patience import patient
from qa.cluster.releases import Recipe, check_candidate
from qa.cluster.samples import ERROR, OK, READ, UNFINISHED, WRITE, Sample, quantile, summarise
from qa.cluster.state import (State, base_dir, is_stopped, new_directory, process_identity,
                              threads)
from qa.lib.faults import laggy

CHECKOUT = Path(__file__).resolve().parents[2]

ClusterFactory = Callable[..., Cluster]

#: What an operation takes only where an OSD hangs.
STUCK_MS = 3000.0


@pytest.fixture(scope='module')
def pacific(cluster_factory: ClusterFactory) -> Cluster:
    """A cluster with a pool, for tests that leave it clean."""
    cluster = cluster_factory('pacific', mgrs=2, conf={'mon': {'paxos_propose_interval': 0.2}})
    cluster.pool_create('p', 64)
    cluster.fill('p', 500, 4096)
    return cluster


def _run_cli(*argv: str) -> 'subprocess.CompletedProcess[str]':
    return subprocess.run([sys.executable, '-m', 'qa.cluster', *argv], cwd=CHECKOUT,
                          timeout=patient(60),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True)


def _processes_of(directory: Path) -> List[int]:
    """All processes whose command line names a directory, with any parent."""
    found = []
    for path in Path('/proc').glob('[0-9]*/cmdline'):
        try:
            if os.fsencode(f'{directory}/') in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def _eventually(predicate: Callable[[], Any], timeout: float) -> Any:
    deadline = time.monotonic() + patient(timeout)
    while not predicate() and time.monotonic() < deadline:
        time.sleep(0.1)
    return predicate()


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick='tentacle')
def test_boots_and_serves(release: str, make_cluster: ClusterFactory) -> None:
    if release != 'pacific' and os.getuid() != 0:
        pytest.skip('chroots take root')
    cluster = make_cluster(release, osds=6, racks=3)
    cluster.wait_health_ok(15)
    assert cluster.mon('osd stat')['num_up_osds'] == 6
    assert release in cluster.ceph('version').stdout
    tree = cluster.mon('osd tree')['nodes']
    assert Counter(node['type'] for node in tree) == {'root': 1, 'rack': 3, 'host': 3, 'osd': 6}

    cluster.pool_create('p', 32)
    cluster.fill('p', 100, 4096)
    with cluster.rados().open_ioctx('p') as ioctx:
        assert len(ioctx.read('obj99', 8192)) == 4096
    cluster.wait_clean(30)
    assert len(cluster.pgs()) >= 32
    with pytest.raises(CommandError) as refused:
        cluster.mon('osd pool get', pool='nonesuch', var='size')
    assert refused.value.errno == 2

    directory = cluster.directory
    assert len(_processes_of(directory)) == 8
    cluster.connect_as_release()
    refused_again = [cluster.command(daemon, {'prefix': 'nonesuch'}) for daemon in (
        'mon', 'mgr', 'osd.0', 'rbd')]
    assert [reply[0] for reply in refused_again] == [-errno.EINVAL] * 4
    cluster.flush_pg_stats()
    assert cluster.mon('osd stat')['num_up_osds'] == 6
    cluster.down()
    assert _processes_of(directory) == []
    assert not directory.exists()
    assert str(directory) not in Path('/proc/self/mounts').read_text()


@pytest.mark.releases('pacific', quick=())
def test_a_pool_of_the_name_of_a_removed_pool(pacific: Cluster) -> None:
    for _ in range(5):
        pacific.pool_create('again', 1)
        try:
            pacific.fill('again', 4, 4096)
        finally:
            pacific.mon('osd pool rm', pool='again', pool2='again',
                        yes_i_really_really_mean_it=True)


@pytest.mark.releases('pacific', quick=())
def test_two_clusters_side_by_side(pacific: Cluster, make_cluster: ClusterFactory) -> None:
    other = make_cluster('pacific', osds=1, hosts=1)
    assert other.mon('fsid') != pacific.mon('fsid')
    addresses = [{osd['public_addr'] for osd in cluster.osd_dump()['osds']}
                 for cluster in (pacific, other)]
    assert not addresses[0] & addresses[1]
    other.down()
    assert pacific.active_mgr()


@pytest.mark.releases('pacific', quick=())
def test_kill_start_stop_cont(pacific: Cluster) -> None:
    def is_up(osd: int) -> bool:
        return bool(pacific.osd_dump()['osds'][osd]['up'])

    pacific.kill('osd.1')
    assert pacific.pid('osd.1') is None
    pacific.wait(lambda: not is_up(1), 10, 'osd.1 down')
    pacific.start('osd.1')
    assert is_up(1)

    pacific.stop('osd.2')
    with pytest.raises(CommandError, match='no answer'):
        pacific.command('osd.2', {'prefix': 'version'}, timeout=1)
    pacific.cont('osd.2')
    assert pacific.tell('osd.2', 'version')['version'].startswith('16.')
    pacific.wait_clean(30)


def test_mgr_failover(pacific: Cluster) -> None:
    before = pacific.active_mgr()
    assert pacific.mgr_fail() != before
    assert pacific.mgr('pg stat')[0] == 0
    # The failed mgr starts again. Before it is a standby, the next one may take over again.
    pacific.wait(lambda: pacific.mon('mgr dump')['standbys'], 30, 'a standby mgr')
    assert pacific.restart_mgr() == before


def test_added_osds_leave_pgs_remapped(pacific: Cluster) -> None:
    cluster = pacific
    cluster.mon('osd set', key='norebalance')
    added = cluster.add_osds(4)
    assert added == [6, 7, 8, 9]
    assert {cluster.osd_hosts()[osd] for osd in added} == {'host3', 'host4'}
    cluster.wait_active(30)

    def remapped() -> Dict[str, str]:
        return {pg['pgid']: pg['state'] for pg in cluster.pgs() if pg['up'] != pg['acting']}

    first = remapped()
    assert len(first) > 20
    assert all('remapped' in state and 'degraded' not in state for state in first.values())
    time.sleep(4)
    cluster.flush_pg_stats()
    assert set(remapped()) == set(first)
    cluster.mon('osd unset', key='norebalance')
    cluster.wait_clean(60)
    assert not remapped()


@pytest.mark.releases('pacific', quick=())
def test_load_sees_a_hung_osd(pacific: Cluster) -> None:
    load = pacific.load('p', rate=100, runtime=120, objects=64)
    calm = time.time()
    pacific.wait(lambda: load.percentiles(calm, calm + 2)['count'] == 200, 30, 'operations')
    with laggy(pacific, 0):
        hung = time.time()
        # The operations that hang are there while they hang.
        pacific.wait(lambda: stuck(load, hung), 30, 'operations that hang')
        until = time.time()
    # None has been left out after.
    pacific.wait(lambda: not load.percentiles(calm, until)['unfinished'], 60,
                 'the end of those that hung')
    load.stop()
    assert not load.running()

    before, during = load.percentiles(calm, hung), load.percentiles(hung, until)
    assert before['count'] == pytest.approx(100 * (hung - calm), abs=1)
    assert during['count'] == pytest.approx(100 * (until - hung), abs=1)
    assert before['p50'] <= before['p99'] <= before['max']
    assert during['max'] > STUCK_MS and before['errors'] == during['errors'] == 0
    assert load.intervals()[0]['reads'] > 0


def stuck(load: Load, since: float) -> bool:
    """Whether several operations of the first second have waited for long: of 100, those whose PG
    the OSD leads, and writes to its other PGs."""
    found = load.percentiles(since, since + 1)
    return found['unfinished'] > 3 and found['max'] > STUCK_MS


def test_nothing_is_left_when_the_owner_is_killed(run_dir: Path) -> None:
    script = ('import time; from qa.cluster import Cluster; c = Cluster.up(osds=2, hosts=2);'
              'c.pool_create("p", 8, size=2); c.load("p"); print(c.directory, flush=True);'
              'time.sleep(60)')
    owner = subprocess.Popen([sys.executable, '-c', script], cwd=CHECKOUT, text=True,
                             stdout=subprocess.PIPE)
    assert owner.stdout is not None
    directory = Path(owner.stdout.readline().strip())
    # One mon, mgr and two OSDs; `timeout` and the load client.
    assert len(_processes_of(directory)) == 6
    owner.kill()
    owner.wait()
    assert _eventually(lambda: not _processes_of(directory), 5)
    assert 'abandoned' in _run_cli('ls').stdout
    Cluster.up(osds=0).down()
    assert not directory.exists()


def test_up_interrupted_leaves_nothing(run_dir: Path) -> None:
    up = subprocess.Popen([sys.executable, '-m', 'qa.cluster', 'up'], cwd=CHECKOUT,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          preexec_fn=heed_interrupts)
    assert _eventually(lambda: list(run_dir.glob('*/run/osd.0.pid')), 60)
    up.send_signal(signal.SIGINT)
    assert up.wait(patient(30)) == 130
    assert _processes_of(run_dir) == []
    assert list(run_dir.iterdir()) == []


def test_command_line(run_dir: Path) -> None:
    assert _run_cli('up', '--name', 'c', '--osds', '2', '--hosts', '2').returncode == 0
    assert 'c  pacific  2 OSDs (memstore)  4 processes  persistent' in _run_cli('ls').stdout
    assert _run_cli('add-osds', '1').stdout == 'osd.2\n'
    assert _run_cli('kill', 'osd.2').returncode == 0
    failed = _run_cli('stop', 'osd.2')
    assert (failed.returncode, failed.stdout) == (1, 'error: osd.2 is not running\n')
    assert _run_cli('start', 'osd.2').returncode == 0
    assert '3 osds: 3 up' in _run_cli('ceph', '--', 'osd', 'stat').stdout
    assert _run_cli('ceph', '--', 'osd', 'pool', 'create', 'p', '8').returncode == 0
    load = _run_cli('load', 'p', '--runtime', '2', '--rate', '50')
    assert load.stdout.count('"write_ms"') >= 2
    assert _run_cli('down').stdout == 'c is down\n'
    assert _processes_of(run_dir) == [] and list(run_dir.iterdir()) == []


def test_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match='unknown release'):
        Cluster.up('firefly')
    with pytest.raises(ClusterError, match='of memory'):
        Cluster.up(osds=100000)
    (tmp_path / 'file').write_text('')
    with pytest.raises(ClusterError, match='File exists'):
        Cluster.up(directory=tmp_path)
    with pytest.raises(ClusterError, match='too long for a socket'):
        Cluster.up(directory=tmp_path / ('x' * 100))
    assert [path.name for path in tmp_path.iterdir()] == ['file']


@pytest.mark.parametrize('candidate, refused', [
    ('20.2.4+ds-2', False), ('1:20.2.1-1', False), ('20.3.0-1', True), ('21.1.0~rc1-1', True),
    ('(none)', True)])
def test_a_suite_that_has_moved_on_is_refused(candidate: str, refused: bool) -> None:
    recipe = Recipe(suite='forky', version='20.2.')
    policy = f'ceph-mon:\n  Installed: (none)\n  Candidate: {candidate}\n  Version table:\n'
    if refused:
        with pytest.raises(ClusterError, match=r'has Ceph .*, expected 20\.2\.\*'):
            check_candidate('tentacle', recipe, policy)
    else:
        check_candidate('tentacle', recipe, policy)


def test_what_the_threads_of_a_process_do() -> None:
    with subprocess.Popen(['sleep', '60']) as child:
        child.send_signal(signal.SIGSTOP)
        assert _eventually(lambda: is_stopped(child.pid), 5)
        line, = threads(child.pid)
        child.kill()
    assert line.startswith('1 sleep: T ') and line.endswith(', 0 s') and not threads(child.pid)
    done = threading.Event()
    waiting = [threading.Thread(target=done.wait) for _ in range(3)]
    for thread in waiting:
        thread.start()
    counts = [int(line.split()[0]) for line in threads(os.getpid())]
    done.set()
    assert sum(counts) >= 4 and max(counts) >= 3


def test_owner_is_distinguished_from_a_process_that_reuses_its_pid() -> None:
    identity = process_identity(os.getpid())
    assert identity is not None
    state = State('pacific', 'memstore', '', True, identity, (0, 0), [], [])
    assert not state.abandoned()
    state.owner = (identity[0], identity[1] - 1)
    assert state.abandoned()


def test_summary_of_samples() -> None:
    samples = [Sample(10 + i / 100, float(i), WRITE if i % 2 else READ, OK) for i in range(100)]
    samples.append(Sample(10.5, 5000.0, READ, UNFINISHED))
    samples.append(Sample(10.6, 1.0, WRITE, ERROR))
    found = summarise(samples, 10, 11)
    assert (found['count'], found['unfinished'], found['errors']) == (101, 1, 1)
    assert (found['p50'], found['p99'], found['max']) == (50.0, 99.0, 5000.0)
    assert summarise(samples, 10, 11, 'write')['max'] == 99.0
    assert summarise(samples, 10.0, 10.105)['count'] == 11
    assert summarise(samples, 20, 30) == {'count': 0, 'errors': 0, 'unfinished': 0}
    assert quantile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.0


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory that stands for /tmp; its path is short enough for sockets."""
    with tempfile.TemporaryDirectory() as directory:
        monkeypatch.delenv('PERFGUARD_RUN', raising=False)
        monkeypatch.setattr(tempfile, 'tempdir', directory)
        yield Path(directory)


@pytest.mark.parametrize('kind', ['link', 'open', 'file'])
def test_a_base_that_others_may_have_made_is_refused(kind: str, elsewhere: Path) -> None:
    base, other = base_dir(), elsewhere / 'other'
    other.mkdir(mode=0o700)
    if kind == 'link':
        base.symlink_to(other)
    elif kind == 'open':
        base.mkdir()
        base.chmod(0o777)
    else:
        base.write_text('')
    with pytest.raises((ClusterError, FileExistsError)):
        new_directory('pacific')
    assert not any(other.iterdir())
    if kind == 'open':
        base.chmod(0o700)
        assert new_directory('pacific').parent == base


@pytest.mark.usefixtures('elsewhere')
def test_a_cluster_with_a_name_leaves_a_base_that_is_accepted() -> None:
    assert new_directory('pacific', base_dir() / 'walk') == base_dir() / 'walk'
    assert new_directory('pacific').parent == base_dir()
    (base_dir() / 'walk' / 'file').touch()
    with pytest.raises(ClusterError, match='exists'):
        new_directory('pacific', base_dir() / 'walk')
