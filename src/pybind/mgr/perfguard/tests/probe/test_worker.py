# SPDX-License-Identifier: LGPL-2.1-or-later
"""The worker's parts without a cluster: offsets, payload, queue depth, time limits, protocol."""
import collections
import errno
import json
import os
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any, Deque, Dict, List, cast

import pytest
import rados

from perfguard.codec import decode, encode
from perfguard.probe import worker
from perfguard.probe.jobs import plan_steps
from perfguard.probe.placement import (JournalledNaming, all_names, naming_of,
                                       with_objects)
from perfguard.probe.types import BadJob, Job, JobStep, StepResult, Stream, Target
from perfguard.probe.worker import objects
from perfguard.probe.worker.engine import ERRORS_MAX, Offsets, Timing, python_streams
from perfguard.probe.worker.objects import Batch, Cleaned, Payload, names_with, prefill, remove
from perfguard.probe.worker.protocol import (Cancelled, Failed, Input, WorkerRequest,
                                             request_from_json, request_to_json, step_result)
from perfguard.probe.worker.work import Stepping, Used, Work, cpu_between

SECOND_NS = 10 ** 9
PREFIX = 'perfguard-probe-7-'


def job(rw='randread', **fields):
    return Job(**{'name': 'j', 'rw': rw, 'bs': 4096, 'iodepth': 4, 'size': 4 << 16, 'nrfiles': 4,
                  'runtime': 0.5, **fields})


def step(a_job, streams=1):
    return JobStep(a_job, tuple(Stream('s%d' % one, tuple(
        '%s%d-%d' % (PREFIX, one, number) for number in range(a_job.nrfiles)))
        for one in range(streams)))


class Completion:
    def __init__(self, returned):
        self._returned = returned

    def get_return_value(self):
        return self._returned


class FakeIoctx:
    """Objects in memory; operations are answered when the test says so."""

    def __init__(self):
        self.objects = {}
        self.waiting: Deque[Any] = collections.deque()
        self.most = 0
        self.operations = []
        #: What operations return instead of being done.
        self.fails = 0
        #: What librados raises instead of sending.
        self.refusal = None
        self.hangs = set()

    def _queue(self, name, answer):
        if self.refusal:
            raise self.refusal
        self.waiting.append((name, answer))
        self.most = max(self.most, len(self.waiting))

    def aio_read(self, name, length, offset, oncomplete):
        def answer():
            data = bytes(self.objects.get(name, b'')[offset:offset + length])
            oncomplete(Completion(self.fails or len(data)), None if self.fails else data)
        self.operations.append(('read', name, offset))
        self._queue(name, answer)

    def aio_write(self, name, data, offset, oncomplete):
        def answer():
            content = self.objects.setdefault(name, bytearray())
            content.extend(bytes(max(0, offset + len(data) - len(content))))
            content[offset:offset + len(data)] = data
            oncomplete(Completion(self.fails))
        self.operations.append(('write', name, offset))
        self._queue(name, answer)

    def aio_write_full(self, name, data, oncomplete):
        self.objects[name] = bytearray()
        self.aio_write(name, data, 0, oncomplete)

    def aio_stat(self, name, oncomplete):
        self._queue(name, lambda: oncomplete(Completion(0), len(self.objects[name]), None))

    def aio_remove(self, name, oncomplete):
        self._queue(name, lambda: oncomplete(
            Completion(0 if self.objects.pop(name, None) is not None else -2)))

    def answer(self, number=1):
        for _ in range(number):
            if self.waiting:
                self.waiting.popleft()[1]()


class Prompt(FakeIoctx):
    """Answers at once, but for the objects that hang."""

    def _queue(self, name, answer):
        if name in self.hangs:
            super()._queue(name, answer)
        else:
            answer()


def filled(ioctx, a_step, payload):
    for stream in a_step.streams:
        for name in stream.objects:
            ioctx.objects[name] = bytearray(payload.slice(name, 0, a_step.job.object_bytes))
    return ioctx


def timing(ramp=0.0, runtime=60.0):
    now = time.monotonic_ns()
    return Timing(now, now + int(ramp * SECOND_NS), now + int((ramp + runtime) * SECOND_NS))


def flows(a_job, ioctx=None, when=None, streams=1):
    a_step, payload = step(a_job, streams), Payload(1, a_job.object_bytes)
    ioctx = filled(ioctx or FakeIoctx(), a_step, payload)
    found = python_streams(ioctx, a_step, payload, when or timing(), 1)
    found.pace()
    return found, ioctx


def test_sequential_offsets_go_through_all_objects():
    offsets = Offsets(job('write', bs=3000, size=20_000, nrfiles=2), 2, 0)
    places = [(one.number, one.offset) for one in (offsets.next() for _ in range(7))]
    assert places == [(0, 0), (0, 3000), (0, 6000), (1, 0), (1, 3000), (1, 6000), (0, 0)]


def test_random_offsets_are_whole_blocks_and_reach_all():
    offsets = Offsets(job('randread'), 4, 7)
    places = collections.Counter(one[1:] for one in (offsets.next() for _ in range(20_000)))
    assert set(places) == {(number, 4096 * block) for number in range(4) for block in range(16)}
    assert max(places.values()) < 2 * min(places.values())


@pytest.mark.parametrize('rw, share, least, most', [
    ('rw', 70, 0.68, 0.72), ('randrw', 0, 0, 0), ('randrw', 100, 1, 1), ('read', 50, 1, 1),
    ('randwrite', 50, 0, 0)])
def test_share_of_reads(rw, share, least, most):
    offsets = Offsets(job(rw, rwmixread=share), 4, 7)
    assert least <= sum(offsets.next().is_read for _ in range(20_000)) / 20_000 <= most


def test_payload_differs_by_object_and_follows_from_the_seed():
    one, same, other = Payload(1, 1 << 16), Payload(1, 1 << 16), Payload(2, 1 << 16)
    assert one.slice('a', 4096, 4096) == same.slice('a', 4096, 4096)
    assert one.slice('a', 4096, 4096) == one.slice('a', 0, 8192)[4096:]
    assert len({one.slice('a', 0, 64), one.slice('b', 0, 64), one.slice('a', 64, 64),
                other.slice('a', 0, 64)}) == 4
    assert len(one.slice('z', 0, 1 << 16)) == 1 << 16


@pytest.mark.parametrize('rw', ['read', 'randwrite', 'randrw'])
def test_the_depth_is_kept(rw):
    streams, ioctx = flows(job(rw, iodepth=5), streams=2)
    for _ in range(300):
        assert len(ioctx.waiting) == streams.in_flight() == 10
        ioctx.answer()
    streams.stop()
    ioctx.answer(10)
    assert ioctx.most == 10 and streams.in_flight() == 0 and streams.ended()
    assert sum(result.read.ios + result.write.ios for result in streams.results()) == 310
    assert not any(result.errors or result.corrupt or result.unfinished
                   for result in streams.results())


class Clock:
    """Stands still until a test advances it, however long the machine takes."""

    def __init__(self):
        self.now_ns = SECOND_NS

    def advance(self, seconds):
        self.now_ns += round(seconds * SECOND_NS)

    def monotonic(self):
        return self.now_ns / SECOND_NS

    #: A worker that sleeps advances it, too.
    sleep = advance


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(time, 'monotonic_ns', lambda: found.now_ns)
    for module in (objects, objects):
        monkeypatch.setattr(module, 'time', found)
    return found


def test_operations_that_begin_in_the_ramp_do_not_count(clock):
    streams, ioctx = flows(job(iodepth=3), when=timing(ramp=0.05))
    clock.advance(0.06)
    ioctx.answer(3)
    assert streams.results()[0].read.ios == 0
    ioctx.answer(2)
    assert streams.results()[0].read.ios == 2
    second, = streams.results()[0].read.seconds
    assert (second.ios, second.bytes) == (2, 8192)


def test_io_size_ends_a_stream():
    streams, ioctx = flows(job('write', io_size=10 * 4096 + 100))
    ioctx.answer(100)
    assert streams.ended() and streams.results()[0].write.ios == 10
    assert streams.results()[0].write.bytes == 40_960


def test_a_rate_is_an_open_loop_with_the_depth_as_its_bound(clock):
    streams, ioctx = flows(job(rate_iops=4, iodepth=3))
    assert len(ioctx.waiting) == 1
    clock.advance(0.3)
    assert streams.pace() > time.monotonic_ns() and len(ioctx.waiting) == 2
    # What is late follows as soon as there is a place.
    clock.advance(0.5)
    streams.pace()
    assert len(ioctx.waiting) == 3
    ioctx.answer(1)
    assert len(ioctx.operations) == 4 and len(ioctx.waiting) == 3


def test_wrong_and_short_data_are_told_apart():
    streams, ioctx = flows(job('read', iodepth=1))
    first, second = ioctx.operations[0][1], None
    ioctx.objects[first][7] ^= 1
    ioctx.answer()
    second = ioctx.operations[-1]
    ioctx.objects[second[1]] = ioctx.objects[second[1]][:second[2] + 10]
    ioctx.answer()
    result = streams.results()[0]
    assert (result.corrupt, result.errors) == (1, 1)
    assert result.first_error == 'read: 10 bytes instead of 4096'


@pytest.mark.parametrize('code, words', [
    (1, 'Operation not permitted (EPERM)'), (122, 'Disk quota exceeded (EDQUOT)')])
def test_a_stream_that_only_fails_ends(code, words):
    streams, ioctx = flows(job('randwrite'))
    ioctx.fails = -code
    ioctx.answer(1000)
    assert streams.ended() and not ioctx.waiting
    assert streams.results()[0].errors == ERRORS_MAX + 3
    assert streams.results()[0].first_error == 'write: ' + words
    assert words in streams.why_given_up()


def test_a_step_with_a_refused_operation_is_cut_short():
    a_job, when = job('randwrite', runtime=30.0), timing(runtime=30.0)
    streams, ioctx = flows(a_job, when=when)
    assert streams.why_given_up() == ''
    ioctx.refusal = rados.Error('down', errno=108)
    ioctx.answer(4)
    result = Stepping(streams, when, time.monotonic() + 30.0, Input()).run(lambda: None)
    stream, = result.streams
    assert (stream.write.ios, stream.errors, stream.unfinished) == (4, 1, 0)
    assert result.cut_short == 'operation refused; first error: ' + stream.first_error


def test_a_step_whose_osd_hangs_ends_in_time():
    a_job = job('randread', runtime=30.0)
    when = timing(runtime=30.0)
    streams, ioctx = flows(a_job, when=when)
    begin = time.monotonic()
    told: List[Any] = []
    result = Stepping(streams, when, begin + 1.3, Input()).run(lambda: told.append('run'))
    assert 1.2 < time.monotonic() - begin < 20.0 and told == ['run']
    assert result.streams[0].unfinished == 4 and 'time' in result.cut_short
    # A late answer does no harm.
    ioctx.answer(4)
    assert not ioctx.waiting


def test_a_rate_that_cannot_be_kept_does_not_keep_the_worker_busy():
    when = timing(runtime=0.4)
    streams, _ = flows(job(rate_iops=100_000, iodepth=1), when=when)
    paces: List[int] = []
    pace = streams.pace

    def counted():
        paces.append(1)
        return pace()

    streams.pace = counted
    Stepping(streams, when, time.monotonic() + 0.4, Input()).run(lambda: None)
    # A worker that is kept busy paces many thousand times.
    assert 0 < len(paces) < 2000


def test_cancelled_step():
    when = timing(runtime=30.0)
    streams, _ = flows(job(), when=when)
    commands = Input()
    commands.cancel('slow ops')
    commands.cancel('too late')
    begin = time.monotonic()
    result = Stepping(streams, when, begin + 30, commands).run(lambda: None)
    assert result.cut_short == 'slow ops' and time.monotonic() - begin < 20.0


def test_prefill_writes_what_reads_expect():
    ioctx, payload = Prompt(), Payload(3, 9 << 20)
    prefill(ioctx, ['a', 'b'], 9 << 20, payload, time.monotonic() + 5, lambda: False)
    assert ioctx.objects['a'] == payload.slice('a', 0, 9 << 20)
    assert ioctx.objects['b'] == payload.slice('b', 0, 9 << 20)
    with pytest.raises(Cancelled):
        prefill(FakeIoctx(), ['a'], 4096, payload, time.monotonic() + 5, lambda: True)
    with pytest.raises(Failed, match='without an answer in time'):
        prefill(FakeIoctx(), ['a'], 4096, payload, time.monotonic() + 0.1, lambda: False)
    ioctx.fails = -28
    with pytest.raises(Failed, match='ENOSPC') as e:
        prefill(ioctx, ['a'], 4096, payload, time.monotonic() + 5, lambda: False)
    assert e.value.errno == -28


def test_prefill_fails_if_an_object_has_another_size_afterwards(monkeypatch):
    ioctx = Prompt()
    monkeypatch.setattr(ioctx, 'aio_write_full', lambda name, data, oncomplete:
                        ioctx.aio_write(name, data[1:], 0, oncomplete))
    with pytest.raises(Failed, match='a has 4095 bytes instead of 4096'):
        prefill(ioctx, ['a'], 4096, Payload(1, 4096), time.monotonic() + 5, lambda: False)


def test_a_batch_keeps_its_bound():
    ioctx = FakeIoctx()
    batch = Batch(2, time.monotonic() + 0.1)
    batch.submit('a', lambda done: ioctx.aio_remove('a', done))
    batch.submit('b', lambda done: ioctx.aio_remove('b', done))
    with pytest.raises(Failed):
        batch.submit('c', lambda done: ioctx.aio_remove('c', done))
    assert len(ioctx.waiting) == 2
    ioctx.answer(2)
    batch.finish()
    assert batch.failure == ('a', -2)


def test_removing_does_not_wait_for_what_hangs(clock, monkeypatch):
    """Each batch waits a while for what hangs, and the rest of the time is for late answers."""
    monkeypatch.setattr(Batch, 'finish', lambda batch: clock.advance(objects.OBJECT_BATCH_SECONDS))
    ioctx = Prompt()
    ioctx.objects = {str(number): b'' for number in range(1000)}
    ioctx.hangs = {'1', '2', '300'}
    begin = clock.monotonic()
    # One is not there.
    names = [str(number) for number in range(1001)]
    assert remove(ioctx, names, begin + 10) == Cleaned(997, 3, 1)
    assert clock.monotonic() - begin < 10.5
    assert set(ioctx.objects) == ioctx.hangs


class Crowded(Prompt):
    """A pool with very many objects of others beside the run's."""

    def list_objects(self):
        raise AssertionError('nothing is looked for')


def test_objects_are_removed_by_name_however_many_others_there_are():
    naming = naming_of(7, [job()], Target('cluster'), None, 1, 8)
    ioctx = Crowded()
    ioctx.objects = {name: b'' for name in all_names(naming)}
    ioctx.objects['other'] = b''
    names = list(all_names(naming))
    assert remove(ioctx, names, time.monotonic() + 5) == Cleaned(4, 0, 4)
    assert set(ioctx.objects) == {'other'}


def test_names_of_osds_are_the_same_for_the_sweep():
    target = Target('osd', osds=(0, 2))
    jobs, leads = [job(), job('read', numjobs=2)], {'5.%x' % pg: pg % 3 for pg in range(24)}
    naming = naming_of(7, jobs, target, leads, 5, 24)
    written = {name for each in with_objects(plan_steps(jobs, target, 3), naming)
               for stream in each.streams for name in stream.objects}
    raw = json.loads(json.dumps(encode(naming, JournalledNaming)))
    assert decode(JournalledNaming, raw) == naming
    assert set(all_names(naming)) == written and len(written) == 16


def test_a_sweep_continues_where_the_last_one_stopped(clock, monkeypatch):
    """The deadline passes while the second batch waits for an object that hangs."""
    ioctx = Crowded()
    names = [PREFIX + str(number) for number in range(600)]
    ioctx.objects = dict.fromkeys(names, b'')
    ioctx.hangs = {names[300]}
    finish = Batch.finish

    def passes(batch):
        clock.advance(30.0 if ioctx.waiting else 0.0)
        finish(batch)

    monkeypatch.setattr(Batch, 'finish', passes)
    assert remove(ioctx, names, clock.monotonic() + 30) == Cleaned(511, 89, 300)
    ioctx.hangs = set()
    ioctx.waiting.clear()
    assert remove(ioctx, names[300:], clock.monotonic() + 30) == Cleaned(89, 0, 300)


def test_a_run_of_unknown_names_is_looked_for():
    mine = [PREFIX + '4096-0', PREFIX + '4096-1']
    entries = [SimpleNamespace(key=name) for name in (*mine, 'x' + PREFIX + '0', PREFIX[:-1])]
    assert names_with(SimpleNamespace(list_objects=lambda: entries), PREFIX) == mine


def test_a_listing_that_ends_for_want_of_an_answer(monkeypatch):
    """The binding of librados does not tell such an end from the real one."""
    clock = [0.0]
    monkeypatch.setattr('time.monotonic', lambda: clock[0])

    def list_objects(last):
        for _ in range(3):
            clock[0] += 0.9 * objects.LISTING_SECONDS
            yield SimpleNamespace(key=PREFIX + '0')
        clock[0] += last

    late = SimpleNamespace(list_objects=lambda: list_objects(objects.LISTING_SECONDS))
    with pytest.raises(Failed, match='could not list the objects: no answer'):
        names_with(late, PREFIX)
    slow = SimpleNamespace(list_objects=lambda: list_objects(0.9 * objects.LISTING_SECONDS))
    assert len(names_with(slow, PREFIX)) == 3


def test_a_listing_that_fails():
    def list_objects():
        raise rados.OSError('no', errno=13)

    with pytest.raises(Failed, match='could not list the objects: .*EACCES'):
        names_with(SimpleNamespace(list_objects=list_objects), PREFIX)


def request(**fields):
    usual: Dict[str, Any] = {'pool': 'p', 'prefix': PREFIX, 'entity': 'client.x', 'key': 'AQ',
                             'mon_host': 'm', 'steps': (step(job(), 2),)}
    return WorkerRequest(**{**usual, **fields})


def test_requests_go_and_come():
    sent = request(seed=4, limit_seconds=5.5)
    assert request_from_json(json.loads(json.dumps(request_to_json(sent)))) == sent


@pytest.mark.parametrize('wrong, word', [
    ({'mode': 'walk'}, 'mode'), ({'engine': 'diesel'}, 'engine'), ({'prefix': ''}, 'prefix'),
    ({'namespace': ''}, 'namespace'), ({'prefix': 'mine'}, 'mine'), ({'bogus': 1}, 'bogus'),
    ({'steps': {'jobs': [{}], 'objects': [], 'steps': []}}, 'name'), ({'steps': [1]}, 'request'),
    ({'steps': {'jobs': [], 'objects': [], 'steps': [[3, 0, '', []]]}}, 'range')])
def test_bad_requests(wrong, word):
    with pytest.raises(BadJob, match=word):
        request_from_json({**request_to_json(request()), **wrong})


@pytest.mark.parametrize('fields', [{'bs': 1 << 20}, {'iodepth': 0}, {'bs': 0}, {'nrfiles': 0}])
def test_jobs_that_cannot_be_done(fields):
    data = request_to_json(request())
    data['steps']['jobs'][0].update(fields)
    with pytest.raises(BadJob, match='inconsistent'):
        request_from_json(data)


def test_results_go_and_come():
    streams, ioctx = flows(job('randrw'))
    ioctx.answer(100)
    streams.stop()
    result = StepResult(tuple(streams.results()), 0.5, 0.25, 0.7, True, 'python', 'why not')
    assert result.streams[0].read.ios > 0 and result.streams[0].write.latency is not None
    assert step_result(json.loads(json.dumps(encode(result)))) == result


def test_the_mgr_starts_it_without_rados():
    code = ('import sys; sys.modules["rados"] = None; from perfguard.probe import worker; '
            'print(worker.argv()[0])')
    folder = os.path.join(os.path.dirname(worker.__file__), *['..'] * 3)
    done = subprocess.run([sys.executable, '-c', code], cwd=folder, stdout=subprocess.PIPE,
                          text=True, check=True)
    assert done.stdout == '/usr/bin/python3\n'


@pytest.mark.parametrize('sent, word', [('', 'bad request'), ('nonsense\n', 'bad request'),
                                        ('[]\n', 'not a JSON object'),
                                        ('{}\n', 'another version')])
def test_nonsense_is_refused_in_one_line(sent, word):
    nothing: Dict[str, str] = {}
    done = subprocess.run(worker.argv(), input=sent, stdout=subprocess.PIPE, text=True,
                          env=nothing, cwd='/', timeout=20)
    error, end = [json.loads(line) for line in done.stdout.splitlines()]
    assert error['errno'] == -22 and word in error['message']
    assert end == {'type': 'end', 'state': 'failed'} and done.returncode == 1


def test_it_is_killed_before_the_mgr_where_memory_runs_out():
    with subprocess.Popen(worker.argv(), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as one:
        until, score = time.monotonic() + 20, ''
        while score != '900' and time.monotonic() < until:
            with open('/proc/%d/oom_score_adj' % one.pid) as file:
                score = file.read().strip()
            time.sleep(0.01)
        one.communicate(timeout=20)
    assert score == '900'


@pytest.mark.parametrize('one_lock, share', [(True, 0.95), (False, 0.8)])
def test_the_share_of_the_limiting_core_in_a_short_step(one_lock: bool, share: float) -> None:
    """Half a second: one thread used 0.4 s of its core, all together 0.475 s."""
    cpu = cpu_between(Used(10.0, 1.0, 0.5, {'1': 1.0}),
                      Used(10.5, 1.4, 0.575, {'1': 1.4, '2': 0.075}), one_lock)
    assert cpu.share == pytest.approx(share) and cpu.limited == one_lock


class FreedOnce:
    """Streams that may not be used once they are freed."""

    def __init__(self) -> None:
        self.is_freed = False

    def free(self) -> None:
        self.is_freed = True

    def in_flight(self) -> int:
        assert not self.is_freed
        return 0


def test_streams_that_were_freed_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be no memory for those of the next step."""
    def no_memory(*_: Any) -> Any:
        raise Failed(errno.ENOMEM, 'no memory')

    commands = SimpleNamespace(cancelled=SimpleNamespace(is_set=lambda: False), reason='')
    request: Any = SimpleNamespace(limit_seconds=30.0, seed=1, meeting='', removes_images=False)
    output: Any = SimpleNamespace(say=lambda *_, **__: None)
    work = Work(request, output, cast(Any, commands), time.monotonic())
    work._latest_streams = [cast(Any, FreedOnce())]
    monkeypatch.setattr(work, '_streams', no_memory)
    with pytest.raises(Failed):
        work._measure(None, 1, step(job()), cast(Any, None))
    assert work._open_operations() == 0
