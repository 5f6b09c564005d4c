# SPDX-License-Identifier: LGPL-2.1-or-later
"""perfguard-probe --join: several processes measure a pool at the same time and have one result."""
import json
import os
import signal
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

from perfguard.probe.meeting import GO, SILENT_SECONDS, object_of
from perfguard.probe.types import NAMESPACE
from qa.cluster import Cluster
from qa.lib.clusters import ClusterFactory
from qa.lib.guard import Guard
from qa.lib.joins import ask
from qa.lib.probes import Probes

from .test_probe_client import USER, begin, keyring

pytestmark = pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())

#: Operations per second of each process: far below what the cluster serves.
RATE = 40
JOB = ['--rw', 'randread', '--bs', '4k', '--size', '1m', '--nrfiles', '16', '--ramp_time', '0',
       '--repeat', '3', '--engine', 'python']
RATED = [*JOB, '--runtime', '3', '--rate_iops', str(RATE)]
#: OSDs that are busy answer these later than others.
SECONDS = 150.0


@pytest.fixture(scope='module')
def probes(release: str, cluster_factory: ClusterFactory) -> Iterator[Probes]:
    cluster = cluster_factory(release, osds=3, hosts=3)
    cluster.pool_create('rep', 16)
    cluster.pool_create('coded', 8, erasure=(2, 1))
    key = cluster.mon('auth get-or-create', entity=USER, caps=[
        'mon', 'allow r', 'osd', 'allow rw pool=rep namespace=%s, allow rw pool=coded namespace=%s'
        % (NAMESPACE, NAMESPACE)])[0]['key']
    keyring(cluster).write_text('[%s]\n\tkey = %s\n' % (USER, key))
    cluster.wait_clean(60)
    yield Probes(Guard(cluster))


def together(cluster: Cluster, count: int, *words: str, pool: str = 'rep') -> List[Any]:
    return [begin(cluster, '--pool', pool, '--join', 'night', '--hosts', str(count), *words)
            for _ in range(count)]


def ended(runs: List[Any]) -> List[str]:
    """What each has said; their output is in `stdout_text`."""
    said = []
    for run in runs:
        run.stdout_text, text = run.communicate(timeout=SECONDS)
        assert 'Traceback' not in text, text
        said.append(text)
    return said


def left(cluster: Cluster, pool: str = 'rep') -> List[str]:
    """All objects in the namespace of probes."""
    with cluster.rados().open_ioctx(pool) as ioctx:
        ioctx.set_namespace(NAMESPACE)
        return [each.key for each in ioctx.list_objects()]


def measures(cluster: Cluster) -> bool:
    """Whether the first host has begun a measurement (Go of meeting.py)."""
    with cluster.rados().open_ioctx('rep') as ioctx:
        ioctx.set_namespace(NAMESPACE)
        return bool(json.loads(ioctx.get_xattr(object_of('night'), GO)))


def the_result(runs: List[Any]) -> Dict[str, Any]:
    """That of the one process that has written it."""
    text, = [run.stdout_text for run in runs if run.stdout_text]
    found: Dict[str, Any] = json.loads(text)
    return found


def total(document: Dict[str, Any]) -> List[int]:
    return [sum(stream['read']['ios'] for stream in result['streams'])
            for result in document['results']]


@pytest.mark.parametrize('count', [2, 4])
def test_processes_have_one_result(probes: Probes, count: int) -> None:
    """At a fixed rate, the total is exactly as many times that of one."""
    cluster, guard = probes.cluster, probes.guard
    alone = [begin(cluster, '--pool', 'rep', *RATED)]
    ended(alone)
    runs = together(cluster, count, *RATED)
    said = ended(runs)
    assert [run.returncode for run in runs] == [0] * count, said
    document = the_result(runs)
    for one, all_of_them in zip(total(the_result(alone)), total(document)):
        assert all_of_them == pytest.approx(count * one, rel=0.05)
    assert document['clients'] == str(count)
    assert '%d hosts began each measurement within' % count in document['messages'][0]
    print(document['messages'])
    retval, answer, error = ask(guard, 'probe import', json.dumps(document))
    assert retval == 0, error
    shown = probes.details(json.loads(answer)['id'])
    assert shown['jobs'][0]['read']['iops'] == pytest.approx(count * RATE, rel=0.1)
    assert shown['verdict'] == 'no expectation' and not left(cluster)


def test_the_total_is_what_the_osds_serve(probes: Probes) -> None:
    """Without a rate: the OSDs count all these operations, and few others."""
    cluster = probes.cluster
    before = reads_of(cluster)
    runs = together(cluster, 4, *JOB, '--runtime', '3', '--iodepth', '8')
    said = ended(runs)
    assert [run.returncode for run in runs] == [0] * 4, said
    measured, counted = sum(total(the_result(runs))), reads_of(cluster) - before
    print('measured %d, counted %d; %s' % (measured, counted, the_result(runs)['messages']))
    assert measured <= counted <= 1.2 * measured + 3000


def reads_of(cluster: Cluster) -> int:
    return sum(int(cluster.tell('osd.%d' % osd, 'perf dump')['osd']['op_r']) for osd in range(3))


def test_an_erasure_coded_pool_can_be_the_meeting_place(probes: Probes) -> None:
    """It has neither omap nor overwrites."""
    runs = together(probes.cluster, 2, *JOB, '--bs', '64k', '--runtime', '1', pool='coded')
    said = ended(runs)
    assert [run.returncode for run in runs] == [0, 0], said
    assert min(total(the_result(runs))) > 0 and not left(probes.cluster, 'coded')


@pytest.mark.parametrize('first', [True, False])
@pytest.mark.parametrize('whole_host', [True, False])
def test_a_host_that_is_killed_ends_the_probe_of_all(probes: Probes, first: bool,
                                                     whole_host: bool) -> None:
    """Its worker removes its objects, or, if the host has died, the others do."""
    cluster = probes.cluster
    leader = begin(cluster, '--pool', 'rep', '--join', 'night', '--hosts', '3', *JOB,
                   '--runtime', '60')
    cluster.wait(lambda: any('join-night' in name for name in left(cluster)), 30, 'the meeting')
    runs = [leader, *(begin(cluster, '--pool', 'rep', '--join', 'night', '--hosts', '3', *JOB,
                            '--runtime', '60') for _ in range(2))]
    try:
        cluster.wait(lambda: measures(cluster), 60, 'the measurement to begin')
        victim = runs[0] if first else runs[2]
        workers = [int(pid) for pid in Path('/proc/%d/task/%d/children' % (
            victim.pid, victim.pid)).read_text().split()]
        victim.kill()
        for pid in workers if whole_host else ():
            os.kill(pid, signal.SIGKILL)
        victim.communicate(timeout=10)
        others = [run for run in runs if run is not victim]
        said = ended(others)
        assert [run.returncode for run in others] == [1, 1], said
        for text in said:
            assert 'has not answered for %.0f s' % SILENT_SECONDS in text \
                or 'has ended the probe' in text, text
        cluster.wait(lambda: not left(cluster), 60, 'all objects to be removed')
    finally:
        for run in runs:
            run.kill()
            run.communicate()


def test_a_host_that_is_late_is_refused(probes: Probes) -> None:
    cluster = probes.cluster
    runs = together(cluster, 2, *JOB, '--runtime', '8', '--repeat', '1')
    cluster.wait(lambda: len(left(cluster)) == 1 + 2 * 16, 60, 'objects of both')
    late = begin(cluster, '--pool', 'rep', '--join', 'night', *JOB, '--runtime', '8', '--repeat',
                 '1')
    text, = ended([late])
    assert late.returncode != 0 and 'has begun without this host' in text, text
    said = ended(runs)
    assert [run.returncode for run in runs] == [0, 0], said
    assert not left(cluster)
