# SPDX-License-Identifier: LGPL-2.1-or-later
"""A worker from its request to its end, on a librados in memory: connecting, steps, cleaning."""
import errno
import importlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import types
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import pytest

import perfguard
from perfguard import VERSION
from perfguard.cluster.types import Json
from perfguard.probe.placement import naming_of
from perfguard.probe.types import MEETING_PREFIX, NAMESPACE, Job, JobStep, Stream, Target
from perfguard.probe.worker.objects import LISTING_SECONDS
from perfguard.probe.worker.protocol import (ALIVE, GONE, STEP_WAITS, SWEEP, Cancelled, Failed,
                                             Input, WorkerRequest, request_to_json)

from .test_worker import FakeIoctx

PREFIX = 'perfguard-probe-7-'


class Error(Exception):
    """rados.Error"""

    def __init__(self, text: str, code: Optional[int] = None) -> None:
        super().__init__(text)
        self.errno = code


class Ioctx(FakeIoctx):
    """Answers in a thread of its own, as librados does."""

    def __init__(self) -> None:
        super().__init__()
        self.namespace = ''
        self.full_try = False
        self._answers: 'queue.Queue[Optional[Callable[[], None]]]' = queue.Queue()
        threading.Thread(target=self._run, daemon=True).start()

    def _queue(self, name: str, answer: Callable[[], None]) -> None:
        self._answers.put(answer)

    def _run(self) -> None:
        for answer in iter(self._answers.get, None):
            answer()

    def close(self) -> None:
        self._answers.put(None)

    def set_namespace(self, namespace: str) -> None:
        self.namespace = namespace

    def set_osdmap_full_try(self) -> None:
        self.full_try = True

    def list_objects(self) -> Iterator[Any]:
        return iter([types.SimpleNamespace(key=name) for name in list(self.objects)])


class Handle:
    """rados.Rados"""
    newest: 'Handle'
    made: List['Handle'] = []
    connect_fails: Optional[Error] = None
    pool_fails: Optional[Error] = None
    hangs: Optional[threading.Event] = None
    objects: Dict[str, bytes] = {}

    def __init__(self, name: str, conffile: Optional[str]) -> None:
        self.name, self.conffile = name, conffile
        self.conf: Dict[str, str] = {}
        self.ioctx = Ioctx()
        self.ioctx.objects = dict(Handle.objects)
        Handle.newest = self
        Handle.made.append(self)

    def conf_set(self, name: str, value: str) -> None:
        self.conf[name] = value

    def connect(self) -> None:
        if Handle.hangs is not None:
            Handle.hangs.wait(30.0)
        if Handle.connect_fails is not None:
            raise Handle.connect_fails

    def open_ioctx(self, pool: str) -> Ioctx:
        if Handle.pool_fails is not None:
            raise Handle.pool_fails
        self.pool = pool
        return self.ioctx


class Said:
    """A output that remembers."""

    def __init__(self) -> None:
        self.lines: List[Json] = []
        self.closed = False

    def say(self, kind: str, **fields: Any) -> None:
        # As it travels: what JSON cannot hold is noticed.
        self.lines.append(json.loads(json.dumps({'type': kind, **fields})))

    def error(self, code: int, text: object) -> None:
        self.say('error', errno=-abs(code), message=str(text))

    def close(self, seconds: float, idle: float) -> None:
        self.closed = True

    def of(self, kind: str) -> List[Json]:
        return [line for line in self.lines if line['type'] == kind]


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The worker's modules, with a librados that needs no cluster."""
    fake = types.ModuleType('rados')
    setattr(fake, 'Error', Error)
    setattr(fake, 'Rados', Handle)
    monkeypatch.setitem(sys.modules, 'rados', fake)
    names = ('connection', 'work')
    for name in names:
        monkeypatch.delitem(sys.modules, 'perfguard.probe.worker.%s' % name, raising=False)
    for name in ('connect_fails', 'pool_fails', 'hangs'):
        monkeypatch.setattr(Handle, name, None)
    monkeypatch.setattr(Handle, 'objects', {})
    yield types.SimpleNamespace(**{
        name: importlib.import_module('perfguard.probe.worker.%s' % name) for name in names})
    for handle in Handle.made:
        handle.ioctx.close()
    Handle.made.clear()
    # Those that come after have a librados of their own.
    for name in names:
        sys.modules.pop('perfguard.probe.worker.%s' % name, None)


def request(rw: str = 'randread', steps: int = 1, **fields: Any) -> WorkerRequest:
    job = Job(name='j', rw=rw, bs=4096, iodepth=2, size=2 << 14, nrfiles=2, runtime=0.1)
    streams = (Stream('s', tuple('%s%d' % (PREFIX, number) for number in range(2))),)
    given: Dict[str, Any] = dict(
        pool='rbd', prefix=PREFIX, entity='client.p', key='secret', mon_host='127.0.0.1',
        steps=steps * (JobStep(job, streams),), limit_seconds=20.0, engine='python')
    return WorkerRequest(**{**given, **fields})


def ran(worker: Any, given: WorkerRequest, commands: Optional[Input] = None) -> Tuple[str, Said]:
    said = Said()
    began = worker.work.time.monotonic()
    return worker.work.Work(given, said, commands or Input(), began).run(), said


# ---- connection

def test_the_connection_is_the_probes_own(worker: Any, tmp_path: Any) -> None:
    conf = tmp_path / 'ceph.conf'
    conf.write_text('[global]\n')
    made = worker.connection.Connection(request(conf=str(conf)))
    handle = Handle.newest
    assert (handle.name, handle.conffile, handle.pool) == ('client.p', str(conf), 'rbd')
    assert handle.conf['key'] == 'secret' and handle.conf['mon_host'] == '127.0.0.1'
    # Nothing is looked for or written anywhere.
    assert {handle.conf[name] for name in ('keyring', 'log_file', 'admin_socket')} == {''}
    assert made.ioctx.namespace == NAMESPACE and made.ioctx.full_try


def test_without_a_readable_ceph_conf_the_request_has_all_that_is_needed(worker: Any) -> None:
    worker.connection.Connection(request(conf='/nonexistent/ceph.conf', mon_host=''))
    assert Handle.newest.conffile is None and 'mon_host' not in Handle.newest.conf


@pytest.mark.parametrize('limit, timeout', [(1.0, '1'), (30.0, '10'), (3600.0, '15')])
def test_timeouts_are_whole_seconds_within_the_limit(worker: Any, limit: float,
                                                     timeout: str) -> None:
    found = worker.connection.settings(request(limit_seconds=limit))
    assert found['rados_mon_op_timeout'] == found['client_mount_timeout'] == timeout


def test_no_image_is_cached_on_this_host_or_stored_in_other_pools(worker: Any) -> None:
    """Regardless of the mons' configuration for the site's own clients."""
    found = worker.connection.settings(request())
    assert {name: value for name, value in found.items() if name.startswith('rbd_')} == {
        'rbd_cache': 'false', 'rbd_plugins': '', 'rbd_persistent_cache_mode': 'disabled',
        'rbd_default_data_pool': '', 'rbd_journal_pool': '',
        'rbd_validate_pool': 'false', 'rbd_blocklist_on_break_lock': 'false'}


@pytest.mark.parametrize('where, error, code, word', [
    ('connect_fails', Error('x', errno.EACCES), errno.EACCES, 'client.p'),
    ('connect_fails', Error('x', -errno.ETIMEDOUT), errno.ETIMEDOUT, 'client.p'),
    ('connect_fails', Error('x'), errno.EIO, 'client.p'),
    ('pool_fails', Error('x', errno.ENOENT), errno.ENOENT, 'pool rbd')])
def test_what_librados_refuses_is_told_without_the_key(
        worker: Any, monkeypatch: pytest.MonkeyPatch, where: str, error: Error, code: int,
        word: str) -> None:
    monkeypatch.setattr(Handle, where, error)
    with pytest.raises(Failed) as failed:
        ran(worker, request())
    assert failed.value.errno == -code
    assert word in str(failed.value) and 'secret' not in str(failed.value)


# ---- work

@pytest.mark.parametrize('rw', ['randread', 'write'])
def test_a_run_says_what_it_does_and_leaves_nothing(worker: Any, rw: str) -> None:
    state, said = ran(worker, request(rw, steps=2))
    assert state == 'done' and Handle.newest.ioctx.objects == {}
    # The second step has its objects already.
    assert [(line['index'], line['state']) for line in said.of('step')] == [
        (0, 'prefill'), (0, 'run'), (1, 'run')]
    assert [line['index'] for line in said.of('result')] == [0, 1]
    assert said.lines[-1] == {'type': 'cleaned', 'removed': 2, 'left': 0}


MEETING = MEETING_PREFIX + 'night'


class Orders(Input):
    """Lets steps begin when asked, up to a number of them, and then `last`."""

    def __init__(self, steps: int, last: Callable[['Orders'], None] = lambda orders: None) -> None:
        super().__init__()
        self._steps, self._last = steps, last
        self.asked: List[int] = []

    def wait_to_begin(self, step: int, seconds: float) -> bool:
        self.asked.append(step)
        if step >= self._steps:
            self._last(self)
        return step < self._steps or self.cancelled.is_set()


def test_steps_of_several_hosts_wait_for_each_other(worker: Any) -> None:
    orders = Orders(2)
    state, said = ran(worker, request(steps=2, meeting=MEETING), orders)
    assert state == 'done' and orders.asked == [0, 1]
    assert [(line['index'], line['state']) for line in said.of('step')] == [
        (0, 'prefill'), (0, STEP_WAITS), (0, 'run'), (1, STEP_WAITS), (1, 'run')]
    for line in said.of('result'):
        read = line['result']['streams'][0]['read']
        assert sum(number for _, number in read['counts']) == read['ios'] > 0
    alone = ran(worker, request())[1].of('result')[0]['result']['streams'][0]['read']
    assert alone['ios'] and 'counts' not in alone


def test_hosts_that_do_not_begin_end_the_run(worker: Any) -> None:
    state, said = ran(worker, request(steps=2, meeting=MEETING), Orders(1))
    assert state == 'failed' and 'did not begin in time' in said.of('error')[0]['message']
    assert Handle.newest.ioctx.objects == {}


@pytest.mark.parametrize('leads, reason, left', [
    (True, GONE, []), (True, 'interrupted', [MEETING]), (False, GONE, [MEETING])])
def test_only_the_first_host_that_is_killed_has_its_meeting_removed(
        worker: Any, monkeypatch: pytest.MonkeyPatch, leads: bool, reason: str,
        left: List[str]) -> None:
    monkeypatch.setattr(Handle, 'objects', {MEETING: b'7'})
    orders = Orders(0, lambda orders: orders.cancel(reason))
    assert ran(worker, request(meeting=MEETING, leads=leads), orders)[0] == 'cancelled'
    assert list(Handle.newest.ioctx.objects) == left


def test_orders_of_other_hosts_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with open(reading) as stdin, open(writing, 'w') as sender:
        monkeypatch.setattr('sys.stdin', stdin)
        sender.write('{}\nnonsense\n[1]\n{"begin": 1}\n')
        sender.flush()
        commands = Input()
        commands.request()
        assert commands.wait_to_begin(0, 5.0) and commands.wait_to_begin(1, 5.0)
        assert not commands.wait_to_begin(2, 0.01) and not commands.cancelled.is_set()
        sender.write('{"cancel": "enough"}\n')
        sender.flush()
        assert commands.wait_to_begin(2, 5.0) and commands.reason == 'enough'


def test_objects_of_others_stay(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handle, 'objects', {'mine': b'x', 'perfguard-probe-70-0': b'y'})
    assert ran(worker, request())[0] == 'done'
    assert set(Handle.newest.ioctx.objects) == {'mine', 'perfguard-probe-70-0'}


def test_a_sweep_removes_the_runs_objects_and_no_others(
        worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handle, 'objects', {PREFIX + '0': b'', PREFIX + '1': b'', 'mine': b''})
    state, said = ran(worker, request(mode=SWEEP, steps=0))
    assert state == 'done' and list(Handle.newest.ioctx.objects) == ['mine']
    cleaned, = said.of('cleaned')
    assert (cleaned['removed'], cleaned['left']) == (2, 0)
    assert cleaned['cursor'] == cleaned['total'] == 2


def test_a_listing_does_not_wait_without_limit_for_an_osd_that_hangs(worker: Any) -> None:
    job = Job(name='j', rw='randread', bs=4096, iodepth=2, size=2 << 14, nrfiles=2, runtime=0.1)
    naming = naming_of(7, (job,), Target('pool', 'rbd'), None, -1, 0)
    limits = []
    # Measurements wait for slow OSDs, and names that are known need no listing.
    for given in (request(mode=SWEEP, steps=0), request(),
                  request(mode=SWEEP, steps=0, naming=naming)):
        ran(worker, given)
        limits.append(int(Handle.newest.conf.get('rados_osd_op_timeout', '0')))
    assert limits == [LISTING_SECONDS, 0, 0]


def test_a_sweep_that_leaves_objects_has_failed(
        worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handle, 'objects', {PREFIX + '0': b''})
    monkeypatch.setattr(Ioctx, 'aio_remove', lambda self, name, oncomplete: self._queue(
        name, lambda: oncomplete(types.SimpleNamespace(get_return_value=lambda: -errno.EPERM))))
    state, said = ran(worker, request(mode=SWEEP, steps=0))
    assert state == 'failed' and said.of('cleaned')[0]['left'] == 1


def test_a_prefill_that_fails_is_an_error_and_is_cleaned_up(
        worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ioctx, 'aio_write_full', lambda self, name, data, oncomplete: oncomplete(
        types.SimpleNamespace(get_return_value=lambda: -errno.EDQUOT)))
    state, said = ran(worker, request())
    assert state == 'failed' and said.of('error')[0]['errno'] == -errno.EDQUOT
    assert said.of('cleaned') == [{'type': 'cleaned', 'removed': 0, 'left': 0}]
    assert said.of('result') == []


def test_a_cancelled_run_measures_nothing_and_is_cleaned_up(
        worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = Input()
    write = Ioctx.aio_write_full

    def write_and_cancel(self: Ioctx, name: str, data: bytes, oncomplete: Any) -> None:
        write(self, name, data, oncomplete)
        commands.cancel('cancelled by command')

    monkeypatch.setattr(Ioctx, 'aio_write_full', write_and_cancel)
    state, said = ran(worker, request(), commands)
    assert state == 'cancelled' and said.of('result') == []
    assert said.of('cleaned')[0]['left'] == 0 and Handle.newest.ioctx.objects == {}


def test_a_connection_that_hangs_can_be_cancelled(worker: Any,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    hang, commands = threading.Event(), Input()
    monkeypatch.setattr(Handle, 'hangs', hang)
    commands.cancel('cancelled by command')
    try:
        with pytest.raises(Cancelled):
            ran(worker, request(), commands)
    finally:
        hang.set()


def test_the_native_engine_is_taken_where_it_can_be(
        worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_core(given: WorkerRequest, on_image: bool) -> None:
        raise Failed(errno.ENOENT, 'not built')

    monkeypatch.setattr(worker.work, 'Core', no_core)
    result, = ran(worker, request(engine='auto'))[1].of('result')
    assert result['result']['engine'] == 'python'
    with pytest.raises(Failed, match='not built'):
        ran(worker, request(engine='native'))


# ---- main

class Ended(BaseException):
    """In place of the end of the process."""


@pytest.fixture
def life(worker: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Plays main with a request; gives back the exit code and what was said."""
    work, said, timers = worker.work, Said(), []
    codes: List[int] = []

    def end(code: int) -> None:
        codes.append(code)
        raise Ended()

    monkeypatch.setattr(work, 'Output', lambda: said)
    monkeypatch.setattr('os._exit', end)
    monkeypatch.setattr(work.signal, 'signal', lambda number, handler: None)
    monkeypatch.setattr(work.signal, 'setitimer', lambda which, seconds: timers.append(seconds))
    monkeypatch.setattr(work.threading, 'Timer', lambda seconds, call: types.SimpleNamespace(
        start=lambda: timers.append(seconds), daemon=False))

    def play(document: Any) -> Tuple[int, Said, List[float]]:
        monkeypatch.setattr(work.Input, 'request', lambda self: document)
        with pytest.raises(Ended):
            work.main()
        return codes[0], said, timers

    return play


def test_a_life(life: Any) -> None:
    code, said, timers = life(request_to_json(request()))
    assert code == 0 and said.lines[-1] == {'type': 'end', 'state': 'done'} and said.closed
    assert sorted(timers) == pytest.approx([21.2, 21.8]), 'it ends in time, whatever hangs'


@pytest.mark.parametrize('document, code', [
    ({}, errno.EINVAL), ({**request_to_json(request()), 'bogus': 1}, errno.EINVAL),
    ({**request_to_json(request()), 'mode': 'dance'}, errno.EINVAL)])
def test_a_bad_request_ends_it_before_anything_is_done(life: Any, document: Json,
                                                       code: int) -> None:
    exit_code, said, timers = life(document)
    assert exit_code == 1 and said.lines[-1]['state'] == 'failed'
    assert [line['errno'] for line in said.of('error')] == [-code] and timers == []


@pytest.mark.parametrize('change', [{'version': '0.0.9'}, {'version': '0.0.9', 'added': 1}])
def test_a_worker_of_another_version_begins_nothing(life: Any, change: Json) -> None:
    """The package was upgraded, and the mgr was not restarted."""
    exit_code, said, timers = life({**request_to_json(request()), **change})
    assert exit_code == 1 and timers == []
    assert said.lines == [
        {'type': 'error', 'errno': -errno.EINVAL, 'message': 'the mgr runs perfguard 0.0.9, but '
         '%s is installed: restart the mgr, or run "ceph mgr fail"' % VERSION},
        {'type': 'end', 'state': 'failed'}]


def test_nor_does_it_for_an_mgr_that_sends_no_version(life: Any) -> None:
    sent = request_to_json(request())
    del sent['version']
    assert life(sent)[1].lines[0]['message'].startswith(
        'the mgr runs perfguard of another version, but ')


@pytest.mark.parametrize('error, state, code, told', [
    (Failed(errno.EACCES, 'no'), 'failed', 1, [-errno.EACCES]), (Cancelled(), 'cancelled', 0, []),
    (ValueError('x'), 'failed', 1, [-errno.EINVAL]), (KeyError('x'), 'failed', 1, [-errno.EIO])])
def test_whatever_goes_wrong_is_told(
        life: Any, worker: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any, error: Exception,
        state: str, code: int, told: List[int]) -> None:
    def fail(self: Any) -> str:
        raise error

    monkeypatch.setattr(worker.work.Work, 'run', fail)
    exit_code, said, _ = life(request_to_json(request()))
    assert (exit_code, said.lines[-1]['state']) == (code, state)
    assert [line['errno'] for line in said.of('error')] == told
    assert ('KeyError' in capsys.readouterr().err) == isinstance(error, KeyError)


def test_a_line_that_is_no_json_is_a_bad_request(
        life: Any, worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def request(self: Any) -> Json:
        raise json.JSONDecodeError('x', 'y', 0)

    with monkeypatch.context() as patch:
        patch.setattr(worker.work, 'request_from_json', lambda document: request(None))
        assert life({})[1].of('error')[0]['errno'] == -errno.EINVAL


#: A worker whose cluster does not answer.
HANGS = """
import sys, time, types
sys.path.insert(0, %r)
rados = sys.modules['rados'] = types.ModuleType('rados')
rados.Error, rados.Rados = OSError, lambda **arguments: time.sleep(60)
from perfguard.probe.worker.work import main
main()
"""
MGR = os.path.dirname(os.path.dirname(perfguard.__file__))


@pytest.mark.parametrize('lives', [False, True])
def test_it_ends_when_it_hears_nothing_of_the_mgr(lives: bool) -> None:
    """The mgr hangs, or another one has replaced it. Nothing else ends its worker then."""
    sent = request_to_json(request(silence_seconds=1.0))
    with subprocess.Popen([sys.executable, '-c', HANGS % MGR], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as one:
        assert one.stdin is not None and one.stdout is not None
        print(json.dumps(sent), file=one.stdin, flush=True)
        begin = time.monotonic()
        while lives and time.monotonic() < begin + 3.0:
            print(json.dumps(ALIVE), file=one.stdin, flush=True)
            time.sleep(0.2)
            assert one.poll() is None
        assert one.wait(10.0) == 0
        told = [json.loads(line) for line in one.stdout]
    assert told == [{'type': 'error', 'errno': -errno.ETIMEDOUT,
                     'message': 'no sign of life from the mgr for 1 s'},
                    {'type': 'end', 'state': 'cancelled'}]


def test_sigterm_cancels_in_a_thread_of_its_own(
        worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: Dict[int, Any] = {}
    monkeypatch.setattr(worker.work.signal, 'signal', handlers.__setitem__)
    commands = Input()
    worker.work._handle_signals(commands)
    assert handlers[signal.SIGINT] == handlers[signal.SIGHUP] == signal.SIG_IGN
    handlers[signal.SIGTERM](signal.SIGTERM, None)
    assert commands.cancelled.wait(10.0) and commands.reason == 'terminated'


def test_a_process_that_is_late_says_so_and_ends(
        worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    said = Said()
    late: List[Callable[[], None]] = []

    def timer(seconds: float, call: Callable[[], None]) -> Any:
        late.append(call)
        return types.SimpleNamespace(start=lambda: None)

    monkeypatch.setattr(worker.work.signal, 'setitimer', lambda which, seconds: None)
    monkeypatch.setattr(worker.work.threading, 'Timer', timer)
    codes: List[int] = []
    monkeypatch.setattr('os._exit', codes.append)
    worker.work._limit_lifetime(said, 5.0)
    late[0]()
    assert said.of('error')[0]['errno'] == -errno.ETIMEDOUT and codes == [1]
    assert said.lines[-1] == {'type': 'end', 'state': 'failed'}
