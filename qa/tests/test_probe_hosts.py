# SPDX-License-Identifier: LGPL-2.1-or-later
"""perfguard-probe --join: several processes measure a pool at the same time and have one result."""
import json
import os
import signal
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest
import rados
import rbd

from perfguard.probe.meeting import GO, SILENT_SECONDS, object_of
from perfguard.probe.types import NAMESPACE
from perfguard.probe.worker import HERE
from perfguard.probe.worker.build import build
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
#: A pool of images, and images that no probe may touch: of a client, and with the name of one of a
#: probe that is not removed here.
VMS = 'vms'
OTHERS = [('', 'disk'), (NAMESPACE, 'perfguard-probe-1-image')]
ON_IMAGE = ['--ioengine', 'rbd']


@pytest.fixture(scope='module')
def probes(release: str, cluster_factory: ClusterFactory) -> Iterator[Probes]:
    cluster = cluster_factory(release, osds=3, hosts=3)
    cluster.pool_create('rep', 16)
    cluster.pool_create('coded', 8, erasure=(2, 1))
    cluster.pool_create(VMS, 16)
    key = cluster.mon('auth get-or-create', entity=USER, caps=[
        'mon', 'allow r', 'osd', 'allow rw pool=rep namespace=%s, allow rw pool=coded namespace=%s'
        ', profile rbd pool=%s namespace=%s' % (NAMESPACE, NAMESPACE, VMS, NAMESPACE)])[0]['key']
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


def measures(cluster: Cluster, pool: str = 'rep') -> bool:
    """Whether the first host has begun a measurement (Go of meeting.py)."""
    with cluster.rados().open_ioctx(pool) as ioctx:
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
        workers = children(victim.pid)
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


# ---- Images

def in_namespace(cluster: Cluster, namespace: str) -> rados.Ioctx:
    ioctx = cluster.rados().open_ioctx(VMS)
    ioctx.set_namespace(namespace)
    return ioctx


def images(cluster: Cluster) -> List[Tuple[str, str]]:
    """(namespace, name) of all, those in the trash too."""
    found = []
    for namespace in ('', NAMESPACE):
        with in_namespace(cluster, namespace) as ioctx:
            found += [(namespace, name) for name in rbd.RBD().list(ioctx)]
            found += [(namespace, row['name']) for row in rbd.RBD().trash_list(ioctx)]
    return sorted(found)


def contents(cluster: Cluster) -> List[bytes]:
    found = []
    for namespace, name in OTHERS:
        with in_namespace(cluster, namespace) as ioctx, rbd.Image(ioctx, name) as image:
            found.append(image.read(0, image.size()))
    return found


def test_a_pool_without_a_namespace_for_images(probes: Probes) -> None:
    run = begin(probes.cluster, '--pool', VMS, *JOB, '--runtime', '1', *ON_IMAGE)
    text, = ended([run])
    assert run.returncode == 1 and 'rbd namespace create' in text, text
    assert images(probes.cluster) == [] and not left(probes.cluster, VMS)


@pytest.fixture(scope='module')
def vms(probes: Probes) -> Cluster:
    """As an operator prepares the pool, with the images of others."""
    cluster = probes.cluster
    with in_namespace(cluster, '') as ioctx:
        rbd.RBD().namespace_create(ioctx, NAMESPACE)
    for namespace, name in OTHERS:
        with in_namespace(cluster, namespace) as ioctx:
            rbd.RBD().create(ioctx, name, 8 << 20, old_format=False)
            with rbd.Image(ioctx, name) as image:
                image.write(os.urandom(8 << 20), 0)
    return cluster


@pytest.mark.parametrize('engine', ['python', 'native'])
def test_images_of_several_hosts(probes: Probes, vms: Cluster, engine: str) -> None:
    if engine == 'native':
        assert build(HERE) is None
    before = contents(vms)
    words = [*RATED, *ON_IMAGE, '--rw', 'randrw', '--engine', engine]
    alone = [begin(vms, '--pool', VMS, *words)]
    ended(alone)
    runs = together(vms, 2, *words, pool=VMS)
    said = ended(runs)
    assert [run.returncode for run in runs] == [0, 0], said
    document = the_result(runs)
    for one, both in zip(total(the_result(alone)), total(document)):
        assert both > 1.5 * one > 0
    for result in document['results']:
        assert result.get('engine', 'python') == engine
        assert not any(stream.get(key) for stream in result['streams']
                       for key in ('errors', 'corrupt'))
    retval, answer, error = ask(probes.guard, 'probe import', json.dumps(document))
    assert retval == 0, error
    shown = probes.details(json.loads(answer)['id'])['jobs'][0]
    assert shown['job options']['ioengine'] == 'rbd' and shown['write']['total_ios'] > 0
    assert images(vms) == OTHERS and contents(vms) == before


@pytest.mark.parametrize('whole_host', [True, False])
def test_the_image_of_a_host_that_is_killed_is_removed(vms: Cluster, whole_host: bool) -> None:
    """By its worker, or by the other host when its watch has expired."""
    before = contents(vms)
    runs = together(vms, 2, *JOB, '--runtime', '60', *ON_IMAGE, '--rw', 'randwrite', pool=VMS)
    try:
        vms.wait(lambda: any('join-night' in name for name in left(vms, VMS))
                 and measures(vms, VMS), 60, 'the measurement to begin')
        assert len(images(vms)) == len(OTHERS) + 2
        killed = [runs[1].pid] if not whole_host else [runs[1].pid, *children(runs[1].pid)]
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        text, = ended(runs[:1])
        assert runs[0].returncode == 1 and 'objects left' not in text, text
        vms.wait(lambda: images(vms) == OTHERS, 30, 'the images to be removed')
        assert contents(vms) == before
    finally:
        for run in runs:
            run.kill()
            run.communicate()


def children(pid: int) -> List[int]:
    return [int(child) for child in Path('/proc/%d/task/%d/children' % (
        pid, pid)).read_text().split()]


def test_the_image_of_a_run_that_was_killed_is_removed_by_clean(vms: Cluster) -> None:
    before = contents(vms)
    run = begin(vms, '--pool', VMS, *JOB, '--runtime', '60', *ON_IMAGE)
    vms.wait(lambda: len(images(vms)) > len(OTHERS), 60, 'the image')
    for pid in (run.pid, *children(run.pid)):
        os.kill(pid, signal.SIGKILL)
    run.communicate()
    (_, name), = set(images(vms)) - set(OTHERS)
    clean = begin(vms, '--pool', VMS, '--clean', name.split('-')[2])
    text, = ended([clean])
    assert clean.returncode == 0 and 'objects left: 0' in text, text
    assert images(vms) == OTHERS and contents(vms) == before
