# SPDX-License-Identifier: LGPL-2.1-or-later
"""The probe's worker on real clusters: what it counts, what it notices, what it leaves."""
import itertools
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

import pytest

from perfguard.probe.types import NAMESPACE, PROBE_PREFIX, Job, JobStep, StepResult, Stream
from perfguard.probe.worker.protocol import SWEEP, WorkerRequest, request_to_json, step_result
from qa.cluster import Cluster
from qa.lib.probe_worker import Json, Worker, mon_host, probe_key

ClusterFactory = Callable[..., Cluster]

POOL = 'worker'
OSDS = 3
USER = PROBE_PREFIX + '7'
RUN = PROBE_PREFIX + '7-'
OBJECTS = 12
#: Well formed, but the key of no entity.
WRONG_KEY = 'AQAX9AFrTTd0OxAApWbemo1UmIKhSg5eUNjM/Q=='
MIB = 1 << 20

#: test_release.py counts operations on every release.
pytestmark = pytest.mark.releases('pacific', 'reef', 'tentacle', quick='reef')
ENGINES = ('python', 'native')


class Place(NamedTuple):
    cluster: Cluster
    key: str
    #: Objects that are not the probe's: (namespace, name) -> content.
    foreign: Dict[Tuple[str, str], bytes]


@pytest.fixture(scope='module')
def place(release: str, cluster_factory: ClusterFactory) -> Iterator[Place]:
    cluster = cluster_factory(release, osds=OSDS, hosts=OSDS)
    yield prepared(cluster)
    cluster.down()


def prepared(cluster: Cluster) -> Place:
    """A pool in which every OSD leads PGs, with objects of others."""
    cluster.pool_create(POOL, 32, size=2)
    cluster.wait_clean(30)
    foreign = {(space, name): ('%s/%s' % (space, name)).encode() * 100
               for space in ('', NAMESPACE, 'other')
               for name in ('mine', 'perfguard-prob', PROBE_PREFIX + '8-0', 'x' + RUN + '0')}
    for (space, name), data in foreign.items():
        ioctx(cluster, space).write_full(name, data)
    return Place(cluster, probe_key(cluster, USER, POOL), foreign)


def ioctx(cluster: Cluster, space: str) -> Any:
    found = cluster.rados().open_ioctx(POOL)
    found.set_namespace(space)
    return found


def names_of(place: Place) -> List[str]:
    """This run's objects that are there."""
    return [entry.key for entry in ioctx(place.cluster, NAMESPACE).list_objects()
            if entry.key.startswith(RUN)]


def check_foreign(place: Place) -> None:
    for (space, name), data in place.foreign.items():
        assert ioctx(place.cluster, space).read(name, 1 << 16) == data


def streams(job: Job) -> Tuple[Stream, ...]:
    return tuple(Stream('%s.%d' % (job.name, one), tuple(
        '%s%d-%d' % (RUN, one, number) for number in range(job.nrfiles)))
        for one in range(job.numjobs))


def a_job(rw: str, **fields: Any) -> Job:
    usual: Json = {'name': rw, 'rw': rw, 'bs': 4096, 'iodepth': 8, 'size': OBJECTS * MIB,
                   'nrfiles': OBJECTS, 'runtime': 1.0}
    return Job(**{**usual, **fields})


def a_request(place: Place, *jobs: Job, **fields: Any) -> Json:
    """Without a ceph.conf: what the worker needs to know is in the request."""
    options: Json = {'mon_host': mon_host(place.cluster), 'seed': 1, 'limit_seconds': 30.0,
                     'steps': tuple(JobStep(job, streams(job)) for job in jobs), **fields}
    return request_to_json(WorkerRequest(POOL, RUN, 'client.' + USER, place.key, **options))


def results(lines: List[Json]) -> List[StepResult]:
    return [step_result(line['result']) for line in lines if line['type'] == 'result']


def only(lines: List[Json], kind: str) -> Json:
    found = [line for line in lines if line['type'] == kind]
    assert len(found) == 1, lines
    return found[0]


def run(place: Place, *jobs: Job, **fields: Any) -> List[Json]:
    with Worker(place.cluster, a_request(place, *jobs, **fields)) as worker:
        return worker.lines()


def test_counts(place: Place) -> None:
    count_with_every_engine(place)


def count_with_every_engine(place: Place) -> None:
    """As many operations as were asked for, all of them in the seconds and in the percentiles."""
    for engine in ENGINES:
        check_counts(place, engine)
    check_foreign(place)


def check_counts(place: Place, engine: str) -> None:
    ramp = {'ramp_time': 0.3}
    # The first two end with their last byte, however long that takes.
    jobs = [a_job('read', io_size=4 * MIB, runtime=60.0),
            a_job('randwrite', io_size=MIB, numjobs=2, runtime=60.0),
            a_job('randrw', rwmixread=70, runtime=2.0, **ramp),
            a_job('randread', rate_iops=200, runtime=2.0, **ramp)]
    lines = run(place, *jobs, engine=engine, limit_seconds=180.0)
    read, write, mix, paced = results(lines)
    assert {result.engine for result in results(lines)} == {engine}
    assert read.streams[0].read.ios == 1024 and read.streams[0].read.bytes == 4 * MIB
    assert [stream.write.ios for stream in write.streams] == [256, 256]
    check_stream(mix)
    both = mix.streams[0]
    assert 0.6 < both.read.ios / (both.read.ios + both.write.ios) < 0.8
    # What waits when the ramp ends is counted too, on a busy machine all of the ramp. What waits at
    # the end is not, for at most as long as an operation took, and as long as the worker itself got
    # no CPU: a tenth of the time where dozens of daemons share two cores.
    paced_reads = paced.streams[0].read
    assert paced_reads.latency is not None
    waiting = 10 + 200 * paced_reads.latency.max / 1e9
    assert -waiting - 400 * 0.1 <= paced_reads.ios - 400 <= 10 + 200 * 0.3
    assert only(lines, 'cleaned')['left'] == 0
    assert only(lines, 'cleaned')['removed'] == 2 * OBJECTS
    assert lines[-1] == {'type': 'end', 'state': 'done'}
    assert names_of(place) == []


def check_stream(result: StepResult) -> None:
    """By Little's law, the queue was full: operations a second x latency = depth."""
    stream = result.streams[0]
    assert not stream.errors and not stream.corrupt and not stream.unfinished
    busy_ns = 0.0
    for direction in (stream.read, stream.write):
        assert direction.latency is not None
        assert sum(second.ios for second in direction.seconds) == direction.ios
        assert sum(second.bytes for second in direction.seconds) == direction.bytes
        spent_ns = sum(second.lat_sum_ns for second in direction.seconds)
        assert spent_ns == pytest.approx(direction.ios * direction.latency.mean, rel=1e-6)
        busy_ns += spent_ns
    # The last answers come after the last operation was sent.
    depth = busy_ns / max(stream.read.runtime_ns, stream.write.runtime_ns)
    assert 0.85 * 8 < depth <= 8


def test_wrong_bytes_are_seen(place: Place) -> None:
    """In the middle of a run one object is overwritten, another is cut."""
    for engine, bs in itertools.product(ENGINES, (4096, 256 << 10)):
        check_wrong_bytes(place, engine, bs)


def check_wrong_bytes(place: Place, engine: str, bs: int) -> None:
    with Worker(place.cluster, a_request(place, a_job('randread', bs=bs, runtime=2.0),
                                         engine=engine)) as worker:
        wait_for(worker, 'step', 'run')
        changed = ioctx(place.cluster, NAMESPACE)
        changed.trunc(RUN + '0-1', 0)
        changed.write(RUN + '0-0', bytes(MIB))
        lines = worker.lines()
    stream = results(lines)[0].streams[0]
    assert stream.corrupt > 0
    assert stream.errors > 0 and stream.first_error == 'read: 0 bytes instead of %d' % bs
    assert names_of(place) == []


def wait_for(worker: Worker, kind: str, state: str) -> None:
    for line in worker.each_line():
        if line['type'] == kind and line['state'] == state:
            return
    raise AssertionError('the worker ended')


def wait_until_it_measures(worker: Worker) -> None:
    wait_for(worker, 'step', 'run')
    time.sleep(1.0)


def test_ends_on_request(place: Place) -> None:
    for engine, how in itertools.product(ENGINES, ('cancel', 'EOF', 'SIGTERM')):
        check_ends(place, engine, how)


def check_ends(place: Place, engine: str, how: str) -> None:
    with Worker(place.cluster, a_request(place, a_job('randwrite', runtime=20.0),
                                         engine=engine)) as worker:
        wait_until_it_measures(worker)
        begin = time.monotonic()
        if how == 'cancel':
            worker.tell({'cancel': 'slow ops'})
        elif how == 'EOF':
            worker.hang_up()
        else:
            worker.process.terminate()
        lines = worker.lines()
        seconds = time.monotonic() - begin
    assert seconds < 2
    assert only(lines, 'end')['state'] == 'cancelled' and worker.process.returncode == 0
    result = results(lines)[0]
    assert result.streams[0].write.ios > 0
    if how == 'cancel':
        assert result.cut_short == 'slow ops'
    assert names_of(place) == []


def test_killed_then_swept(place: Place) -> None:
    with Worker(place.cluster, a_request(place, a_job('randwrite', runtime=20.0))) as worker:
        wait_until_it_measures(worker)
        worker.process.kill()
        worker.process.wait()
    assert len(names_of(place)) == OBJECTS
    # By a listing of the pool, for this request does not say which names there were.
    lines = run(place, mode=SWEEP)
    cleaned = only(lines, 'cleaned')
    assert (cleaned['removed'], cleaned['left'], cleaned['total']) == (OBJECTS, 0, OBJECTS)
    assert lines[-1]['state'] == 'done'
    assert names_of(place) == []
    check_foreign(place)


def test_an_osd_hangs(place: Place) -> None:
    for engine in ENGINES:
        check_hanging(place, engine)
    check_foreign(place)


def check_hanging(place: Place, engine: str) -> None:
    limit = 6.0
    hangs = 'osd.1'
    begin = time.monotonic()
    request = a_request(place, a_job('randrw', iodepth=32, runtime=3.0), a_job('read'),
                        engine=engine, limit_seconds=limit)
    try:
        with Worker(place.cluster, request) as worker:
            wait_until_it_measures(worker)
            place.cluster.stop(hangs)
            lines = worker.lines()
        seconds = time.monotonic() - begin
    finally:
        place.cluster.cont(hangs)
    assert seconds < limit + 2
    result, = results(lines)
    stream = result.streams[0]
    assert 0 < stream.unfinished <= 32 and stream.read.ios > 0
    # The standstill counts.
    assert stream.read.runtime_ns >= 3e9
    assert 'without an answer' in result.cut_short
    assert only(lines, 'error')['errno'] == -110
    cleaned = only(lines, 'cleaned')
    assert cleaned['left'] > 0 and cleaned['removed'] + cleaned['left'] == OBJECTS
    assert lines[-1] == {'type': 'end', 'state': 'failed'}
    assert worker.process.returncode == 1
    lines = run(place, mode=SWEEP)
    assert only(lines, 'cleaned')['left'] == 0 and names_of(place) == []
    # Nor do writes that the OSD still had bring one back.
    time.sleep(1.0)
    assert names_of(place) == []


def test_errors_are_one_line(place: Place) -> None:
    cases: List[Tuple[Json, int, str]] = [
        ({'pool': 'nowhere'}, -2, 'pool nowhere'), ({'key': WRONG_KEY}, -13, 'no connection'),
        ({'prefix': ''}, -22, 'prefix'), ({'namespace': ''}, -22, 'namespace'),
        ({'prefix': PROBE_PREFIX + '8-'}, -22, RUN), ({'bogus': 1}, -22, 'bogus')]
    for wrong, code, word in cases:
        begin = time.monotonic()
        with Worker(place.cluster, {**a_request(place, a_job('read')), **wrong}) as worker:
            lines = worker.lines()
        error = only(lines, 'error')
        assert error['errno'] == code and word in error['message'], error
        assert '\n' not in error['message']
        assert worker.process.returncode == 1 and time.monotonic() - begin < 12
    assert names_of(place) == []
