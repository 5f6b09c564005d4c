# SPDX-License-Identifier: LGPL-2.1-or-later
"""perfguard-probe: its worker line by line, its arguments, and its end with other hosts."""
import re
import signal
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import pytest

from perfguard.codec import encode
from perfguard.probe import client
from perfguard.probe.jobs import MAX_REPEAT, default_repeat, parse_jobs, plan_steps
from perfguard.probe.meeting import FAREWELL_SECONDS, CannotJoin, Go
from perfguard.probe.placement import naming_of
from perfguard.probe.records import RunRecord, imported_record
from perfguard.probe.types import Target
from perfguard.probe.worker.protocol import STEP_WAITS, SWEEP, Failed, WorkerRequest

from ..fakes import probe_runs
from ..fakes.functions import noting
from .test_meeting import Pool

Line = Dict[str, Any]
#: What a worker prints in a turn, or what happens then.
Turn = Union[List[Line], Callable[[], Any]]

WORDS = {'rw': 'randread', 'bs': '4k', 'size': '64k', 'nrfiles': '2', 'runtime': '1'}
TARGET = Target('pool', 'rep')
JOBS = parse_jobs(None, WORDS, None)
STEPS = plan_steps(JOBS, TARGET, 3)
RUN = client.FIRST_RUN + 7
RESULTS: List[Line] = [
    {'type': 'result', 'index': index, 'result': encode(probe_runs.result(step.job, [1000]))}
    for index, step in enumerate(STEPS)]
CLEANED: Line = {'type': 'cleaned', 'removed': 2, 'left': 0}
BEGUN: Line = {'type': 'step', 'index': 0, 'state': 'run'}
KILLED = 'the worker was killed by SIGKILL'


class Clock:
    """The time module of perfguard-probe."""

    def __init__(self) -> None:
        self.now, self.asked = 100.0, 0
        self.sleeps: List[float] = []

    def monotonic(self) -> float:
        self.asked += 1
        assert self.asked < 1000, 'it waits forever'
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds


class Scripted:
    """A worker that takes one turn at each look, and ends in the last one with `status`; None: it
    goes on until it is killed."""

    def __init__(self, *turns: Turn, status: Optional[int] = 0) -> None:
        self.turns, self.status = [*turns], status
        self.sent: List[Mapping[str, Any]] = []
        self.looked_at = 0.0
        self.killed_at: List[float] = []

    def send(self, document: Mapping[str, Any]) -> None:
        self.sent.append(document)

    def ended(self, now: float) -> Optional[int]:
        self.looked_at = now
        return None if len(self.turns) > 1 else self.status

    def lines(self) -> Any:
        turn = self.turns.pop(0) if self.turns else []
        return turn() if callable(turn) else turn

    def kill(self) -> None:
        """It takes three further turns."""
        self.killed_at.append(self.looked_at)
        self.turns, self.status = [[], [], []], -9

    def why(self) -> str:
        return KILLED


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(client, 'time', made)
    monkeypatch.setattr(client, 'POLL_SECONDS', 1.0)
    return made


def measuring(child: Scripted, **others: Any) -> client.Measuring:
    request = WorkerRequest('rep', 'perfguard-probe-1-', 'client.x', 'AQ', 'm', steps=STEPS,
                            limit_seconds=10.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, 'Child', lambda argv: child)
        return client.Measuring(request, **others)


# ---- one worker

@pytest.mark.parametrize('status, lines, state, messages', [
    (0, RESULTS, 'done', []), (0, RESULTS[:2], 'failed', []), (1, RESULTS, 'failed', [KILLED]),
    (1, [{'type': 'error', 'message': 'no'}], 'failed', ['no']),
    (0, [*RESULTS, {'type': 'error', 'message': 'no'}], 'failed', ['no'])])
def test_the_state_of_a_run(status: int, lines: List[Line], state: str,
                            messages: List[str], clock: Clock) -> None:
    run = measuring(Scripted([], lines, status=status))
    assert run.wait() == state and run.messages == messages
    assert clock.sleeps == [1.0] and not run.interrupted


def test_the_lines_of_a_worker(capsys: Any, clock: Clock) -> None:
    run = measuring(Scripted([], []))
    assert run.objects_left is None and not run.may_have_written
    run._take({'type': 'step', 'index': 1, 'state': 'run'})
    assert capsys.readouterr().err == (
        'perfguard-probe: measurement 2 of 3 (%s), run\n' % STEPS[1].job.name)
    assert run.may_have_written and run.objects_left is None
    run._take({'type': 'cleaned', 'left': 3})
    assert run.objects_left == 3


def test_a_worker_that_is_late_is_killed_once(clock: Clock) -> None:
    """After 10 s and 5 s of grace."""
    child = Scripted(status=None)
    run = measuring(child)
    assert run.wait() == 'failed' and child.killed_at == [116.0]
    assert run.messages == ['the worker did not end in time and was killed']
    assert set(clock.sleeps) == {1.0}


def test_a_signal_ends_the_measurement_and_a_later_one_the_wait_for_others(clock: Clock) -> None:
    child = Scripted([], [], [], status=1)
    run = measuring(child)
    for number in (signal.SIGINT, signal.SIGTERM):
        run.cancel(number, None)
    assert child.sent[1:] == [{'cancel': 'interrupted'}] and not run.interrupted
    assert run.wait() == 'cancelled' and run.messages == []
    run.cancel(signal.SIGINT, None)
    assert run.interrupted and len(child.sent) == 2


@pytest.mark.parametrize('reason, results, cancelled, messages, ends', [
    ('sick', 2, False, [], True), ('', 2, False, [], False), ('sick', 3, False, [], False),
    ('sick', 2, True, [], False), ('sick', 2, False, ['no'], False)])
def test_when_an_unwell_cluster_ends_the_measurement(
        reason: str, results: int, cancelled: bool, messages: List[str], ends: bool,
        clock: Clock) -> None:
    child = Scripted([], [])
    run = measuring(child, watch=SimpleNamespace(reason=reason))
    for line in RESULTS[:results]:
        run._take(line)
    run.messages += messages
    if cancelled:
        run.cancel(signal.SIGINT, None)
    del child.sent[:]
    run._end_if_unwell()
    assert child.sent == ([{'cancel': 'sick'}] if ends else [])
    assert run.messages == [*messages, *(['stopped measuring: sick'] if ends else [])]


class Crowd:
    """A meeting whose first host decides `goes`, one after the other."""

    def __init__(self, clock: Clock, *goes: Union[Go, Exception], leads: bool = False) -> None:
        self.clock, self.goes, self.leads = clock, [*goes], leads
        self.go, self.first_host = Go(), 'kvm1 (process 5)'
        self.dead: Tuple[int, ...] = ()
        self.dead_of_other_jobs: Tuple[int, ...] = ()
        self.calls: List[Tuple[Any, ...]] = []
        #: Answers of `join` and `leave`.
        self.answers: List[Union[bool, BaseException]] = []

    def _answer(self) -> bool:
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def join(self, now: float) -> bool:
        self.calls.append(('join', now))
        return self._answer()

    def attend(self, now: float, ready: int) -> Go:
        self.calls.append(('attend', now, ready))
        self.clock.now += 0.125
        go = self.goes.pop(0)
        if isinstance(go, Exception):
            raise go
        self.go = go
        return go

    def began(self, before: float, after: float) -> None:
        self.calls.append(('began', before, after))

    def deliver(self, results: Sequence[Any], now: float) -> None:
        self.calls.append(('deliver', results, now))

    def leave(self, why: str, now: float, at_once: bool = False) -> bool:
        self.calls.append(('leave', why, now, at_once))
        return self._answer() if self.answers else True


@pytest.mark.parametrize('leads, before', [(True, 102.0), (False, 101.0)])
def test_measurements_begin_with_those_of_the_others(leads: bool, before: float,
                                                     clock: Clock) -> None:
    child = Scripted([], [])
    crowd = Crowd(clock, Go(-1), Go(-1), Go(0), Go(0), Go(0), leads=leads)
    run = measuring(child, meeting=crowd)
    del child.sent[:]
    assert run._attend_meeting() == client.POLL_SECONDS and not child.sent
    run._take({'type': 'step', 'index': 0, 'state': STEP_WAITS})
    clock.now = 101.0
    assert run._attend_meeting() == client.BEGIN_SECONDS and not child.sent
    clock.now = 102.0
    assert run._attend_meeting() == client.POLL_SECONDS and child.sent == [{'begin': 0}]
    run._take(BEGUN)
    clock.now = 103.0
    assert run._attend_meeting() == client.POLL_SECONDS
    run._take({'type': 'step', 'index': 1, 'state': STEP_WAITS})
    clock.now = 104.0
    assert run._attend_meeting() == client.BEGIN_SECONDS and len(child.sent) == 1
    assert crowd.calls == [
        ('attend', 100.0, -1), ('attend', 101.0, 0), ('attend', 102.0, 0),
        ('began', before, 102.125), ('attend', 103.0, 0), ('attend', 104.0, 1)]


@pytest.mark.parametrize('go, reason', [
    (Go(0, end='kvm2 has ended'), 'kvm2 has ended'), (CannotJoin('other jobs'), 'other jobs'),
    (Failed(5, 'no answer'), 'no answer')])
def test_the_end_of_another_host_ends_the_measurement(go: Any, reason: str, clock: Clock) -> None:
    child = Scripted([], [])
    crowd = Crowd(clock, go)
    run = measuring(child, meeting=crowd)
    assert run._attend_meeting() == run._attend_meeting() == client.POLL_SECONDS
    assert run.messages == [reason] and child.sent[1:] == [{'cancel': reason}]
    assert len(crowd.calls) == 1


def test_a_cancelled_worker_follows_no_meeting(clock: Clock) -> None:
    crowd = Crowd(clock, Go(0))
    run = measuring(Scripted([], []), meeting=crowd)
    run.cancel(signal.SIGINT, None)
    assert run._attend_meeting() == client.POLL_SECONDS and not crowd.calls


class Health:
    """A connection with one answer after the other about the health of the cluster."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = answers, 0

    def fsid(self) -> str:
        return 'f1'

    def health(self) -> Any:
        self.asked += 1
        answer = self.answers[min(self.asked, len(self.answers)) - 1]
        if callable(answer):
            answer = answer()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def free_bytes(self) -> int:
        return 1 << 40

    def quota_left(self) -> Tuple[None, None]:
        return None, None

    def board(self, name: str) -> str:
        return name


@pytest.mark.parametrize('answers, asked, reason', [
    ([KeyError()], 3, 'KeyError'), ([{}, KeyError(), {}, KeyError()], 6, 'KeyError'),
    ([ValueError('cut off')], 3, 'cut off'),
    ([{}, {'SLOW_OPS': '3 slow ops', 'OSD_FULL': '1 full osd(s)', 'X': 'x'}], 2,
     '1 full osd(s) (OSD_FULL), 3 slow ops (SLOW_OPS)')])
def test_the_watch_of_the_health(answers: List[Any], asked: int, reason: str,
                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, 'HEALTH_SECONDS', 0.001)
    connection: Any = Health(*answers)
    watch = client.HealthWatch(connection)
    watch._thread.join(10)
    watch.close()
    assert (watch.reason, connection.asked) == (reason, asked)


def test_the_watch_ends_with_the_answer_that_it_waits_for(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, 'HEALTH_SECONDS', 0.001)
    asked, answered = threading.Event(), threading.Event()

    def slow() -> Any:
        asked.set()
        answered.wait(0.05)
        return {}

    connection: Any = Health(slow)
    watch = client.HealthWatch(connection)
    assert asked.wait(10)
    watch.close()
    assert not watch._thread.is_alive() and connection.asked == 1 and not watch.reason


# ---- the command

class Command:
    """Runs perfguard-probe with one worker after the other."""

    def __init__(self, keyring: str, patch: pytest.MonkeyPatch, capsys: Any) -> None:
        self.keyring, self._capsys = keyring, capsys
        self.children: List[Scripted] = []
        self.connection: Any = Health({})
        #: Signal -> its handlers, the last one last.
        self.handlers: Dict[int, List[Any]] = {signal.SIGINT: [], signal.SIGTERM: []}
        self._left: List[Scripted] = []
        patch.setattr(client, 'Child', lambda argv: self._left.pop(0))
        patch.setattr(client, 'connect', lambda request: self.connection)
        patch.setattr(client.signal, 'signal', lambda number, handler: self.handlers.setdefault(
            number, []).append(handler))
        patch.setattr(client, 'POLL_SECONDS', 0.001)
        patch.setattr(client, 'HEALTH_SECONDS', 0.001)

    def __call__(self, *words: str, children: Sequence[Scripted] = ()) -> int:
        self.children, self._left = [*children], [*children]
        status = client.main(['--pool', 'rep', '--name', 'client.probe', '--keyring',
                              self.keyring, *words])
        self.out, err = self._capsys.readouterr()
        self.said = [line.replace('perfguard-probe: ', '', 1) for line in err.splitlines()]
        assert not self._left
        return status

    @property
    def run(self) -> int:
        return int(self.children[0].sent[0]['naming']['run'])


JOB = tuple(text for word, value in WORDS.items() for text in ('--' + word, value))


@pytest.fixture
def probe(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Command:
    keyring = tmp_path / 'keyring'
    keyring.write_text('[client.probe]\n\tkey = AQ==\n')
    return Command(str(keyring), monkeypatch, capsys)


def watches() -> List[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == 'perfguard-health']


def test_what_a_good_run_says(probe: Command) -> None:
    assert probe(*JOB, children=[Scripted([BEGUN], [RESULTS[0], CLEANED])]) == 0
    assert re.fullmatch(r'run %d on pool rep: about \d+ s \(at most \d+ s\), 2 objects' % probe.run,
                        probe.said[0])
    assert probe.said[1:] == ['measurement 1 of 1 (%s), run' % JOBS[0].name]
    assert imported_record(probe.out).state == 'done' and not watches()


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_no_failure_of_the_cluster(number: int, probe: Command) -> None:
    def interrupted() -> List[Line]:
        for _ in range(2):
            probe.handlers[number][-1](number, None)
        return [BEGUN]

    assert probe(*JOB, children=[Scripted(interrupted, [CLEANED])]) == 1
    assert probe.children[0].sent[1:] == [{'cancel': 'interrupted'}]
    record = imported_record(probe.out)
    assert (record.state, record.messages) == ('cancelled', ())


def test_with_force_the_health_is_not_read(probe: Command) -> None:
    probe.connection = Health({'OSD_FULL': '1 full osd(s)'})
    turns: List[Turn] = [[BEGUN], [], [], [], [RESULTS[0], CLEANED]]
    assert probe(*JOB, '--force', children=[Scripted(*turns)]) == 0
    assert probe.connection.asked == 0


@pytest.mark.parametrize('lines, requests, text', [
    ([], 1, ''), ([CLEANED], 1, ''), ([BEGUN, CLEANED], 1, ''),
    ([BEGUN], 2, 'removing the objects of run %d'),
    ([BEGUN, {'type': 'cleaned', 'left': 3}], 1,
     'objects left: 3; remove them with --clean %d')])
def test_what_a_worker_has_left(lines: List[Line], requests: int, text: str,
                                probe: Command) -> None:
    sweeps = [Scripted([], [CLEANED])] * (requests - 1)
    assert probe(*JOB, children=[Scripted([], lines, status=-9), *sweeps]) == 1
    said = [line for line in probe.said if not line.startswith(('run ', 'measurement '))]
    assert said == [KILLED, *([text % probe.run] if text else [])]
    assert imported_record(probe.out).messages == (KILLED,)
    handlers = [signal.default_int_handler, signal.SIG_DFL] if sweeps else []
    assert [probe.handlers[number][-1] for number in (signal.SIGINT, signal.SIGTERM)
            if len(probe.handlers[number]) == 2] == handlers
    if sweeps:
        request = probe.children[1].sent[0]
        assert (request['mode'], request['naming']['run']) == (SWEEP, probe.run)


@pytest.mark.parametrize('lines, status, said', [
    ([CLEANED], 0, ['objects left: 0']),
    ([{'type': 'error', 'message': 'late'}, CLEANED], 1, ['late', 'objects left: unknown']),
    ([{'type': 'error', 'message': 'late'}, {'type': 'cleaned', 'left': 2}], 1,
     ['late', 'objects left: 2'])])
def test_what_a_clean_up_says(lines: List[Line], status: int, said: List[str],
                              probe: Command) -> None:
    assert probe('--clean', str(RUN), children=[Scripted([], lines)]) == status
    assert probe.said == said


def test_a_cluster_that_does_not_answer_is_not_probed(probe: Command) -> None:
    probe.connection = Health(Failed(110, 'cannot read the health'))
    assert probe(*JOB) == 1 and probe.said == ['cannot read the health']


def test_the_request_to_the_worker(probe: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    run, ranges = client.FIRST_RUN + 0xffffffff, []

    def randrange(first: int, last: int) -> int:
        ranges.append((first, last))
        return run

    monkeypatch.setattr(client.random, 'SystemRandom', lambda: SimpleNamespace(
        randrange=randrange))
    probe(*JOB, children=[Scripted([], [CLEANED])])
    request = probe.children[0].sent[0]
    assert ranges == [(client.FIRST_RUN, client.LAST_RUN)] and probe.run == run
    assert (request['seed'], request['pool'], request['key']) == (0x7fffffff, 'rep', 'AQ==')


def test_the_connection_to_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = SimpleNamespace(Connection=lambda *arguments: arguments)
    monkeypatch.setitem(sys.modules, 'perfguard.probe.worker.connection', module)
    request: Any = object()
    connection: Any = client.connect(request)
    assert connection == (request, {'rados_osd_op_timeout': '15'})


# ---- arguments

def parsed(*words: str) -> Any:
    return client._parser().parse_args(['--pool', 'rep', *words])


@pytest.mark.parametrize('words, repeat', [
    (['--rw', 'read'], 1), (['quick'], default_repeat('quick')), (['quick', '--repeat', '1'], 1),
    (['quick', '--repeat', str(MAX_REPEAT)], MAX_REPEAT), (['quick', '--repeat', '0'], None),
    (['quick', '--repeat', str(MAX_REPEAT + 1)], None)])
def test_repetitions(words: List[str], repeat: Optional[int]) -> None:
    if repeat is not None:
        assert client._jobs(parsed(*words))[1] == repeat
        return
    with pytest.raises(client.BadArguments) as refused:
        client._jobs(parsed(*words))
    assert str(refused.value) == '--repeat %s: must be from 1 to %d' % (words[-1], MAX_REPEAT)


def test_what_fio_would_do_differently_is_said(tmp_path: Any, capsys: Any) -> None:
    file = tmp_path / 'jobs'
    file.write_text('[a]\nrw=read\npool=x\n')
    jobs, repeat, profile = client._jobs(parsed('--job-file', str(file)))
    assert ([job.name for job in jobs], repeat, profile) == (['a'], 1, '')
    said, = capsys.readouterr().err.splitlines()
    assert said.startswith('perfguard-probe: ') and said.endswith('ignored: pool')


@pytest.mark.parametrize('words, why', [
    (['--keyring', '/nonesuch'], '/nonesuch: No such file or directory'),
    (['--name', 'client.nonesuch'],
     '/etc/ceph/ceph.client.nonesuch.keyring: No such file or directory'),
    (['--keyring', '/dev/null'], '/dev/null has no key of client.admin')])
def test_why_there_is_no_key(words: List[str], why: str) -> None:
    with pytest.raises(client.BadArguments) as refused:
        client._key(parsed(*words))
    assert str(refused.value) == why


def test_a_file_that_is_no_text(tmp_path: Any) -> None:
    (tmp_path / 'file').write_bytes(b'\xff')
    with pytest.raises(client.BadArguments, match="file: 'utf-8' codec"):
        client._read(str(tmp_path / 'file'))


@pytest.mark.parametrize('words', [
    ['--clean', str(client.FIRST_RUN)], ['--clean', str(client.LAST_RUN - 1)],
    ['--join', 'x' * 64], ['--hosts', '2'], ['--hosts', str(client.MAX_HOSTS)]])
def test_arguments_at_their_limits(words: List[str]) -> None:
    assert str(getattr(parsed(*words), words[0].lstrip('-'))) == words[1]


@pytest.mark.parametrize('words, why', [
    (['--clean', str(client.FIRST_RUN - 1)], '%d is not the ID' % (client.FIRST_RUN - 1)),
    (['--clean', str(client.LAST_RUN)], '%d is not the ID' % client.LAST_RUN),
    (['--join', 'x' * 65], 'use up to 64 letters'), (['--hosts', '1'], 'invalid choice: 1'),
    (['--hosts', str(client.MAX_HOSTS + 1)], 'invalid choice: %d' % (client.MAX_HOSTS + 1)),
    (['--max-bytes', '1q'], '--max-bytes=1q: must be a size')])
def test_arguments_beyond_their_limits(words: List[str], why: str, capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(*words)
    assert ended.value.code == client.BAD_INPUT and why in capsys.readouterr().err


# ---- several hosts

@pytest.fixture
def joining(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Joins a meeting, whose answers to this are given; none: a real one that is empty."""
    request = WorkerRequest('rep', 'x', 'client.x', 'AQ', 'm', steps=STEPS,
                            naming=naming_of(RUN, JOBS, TARGET, None, -1, 0))

    def join(crowd: Optional[Crowd] = None) -> Any:
        made: List[Any] = []
        connection: Any = SimpleNamespace(board=lambda name: Pool() if crowd is None else name)
        if crowd is not None:
            monkeypatch.setattr(client, 'Meeting', noting(made, crowd))
        meeting = client._join(parsed('--join', 'night'), connection, request, JOBS, 3)
        if crowd is not None:
            (board, plan, _, run, now), = made
            assert (board, run, now) == ('perfguard-probe-join-night', RUN, 100.0)
            assert (plan.hosts, plan.steps) == (2, 3)
        return meeting

    return join


def test_the_first_host_joins_at_once(joining: Callable[..., Any], clock: Clock,
                                      capsys: Any) -> None:
    assert joining().leads and clock.sleeps == []
    assert capsys.readouterr().err == (
        'perfguard-probe: joined night; this process writes the result\n')


def test_another_host_waits_until_it_has_joined(joining: Callable[..., Any], clock: Clock,
                                                capsys: Any) -> None:
    crowd = Crowd(clock)
    crowd.answers = [False, False, True]
    assert joining(crowd) is crowd and clock.sleeps == [1.0, 1.0]
    assert crowd.calls == [('join', 100.0), ('join', 101.0), ('join', 102.0)]
    assert capsys.readouterr().err == (
        'perfguard-probe: joined night; kvm1 (process 5) writes the result\n')


LEFT = ''.join('perfguard-probe: objects left: unknown; remove them with --clean %d\n' % run
               for run in (RUN + 1, RUN + 2))


@pytest.mark.parametrize('error, raised, text, calls', [
    (CannotJoin('other jobs'), client.BadArguments, 'cannot join night: other jobs', []),
    (Failed(5, 'no answer'), client.BadArguments, 'cannot join night: no answer', []),
    (KeyboardInterrupt(), KeyboardInterrupt, '', [('leave', 'interrupted', 101.0, False)])])
def test_a_host_that_does_not_join_names_what_dead_ones_have_left(
        error: BaseException, raised: Any, text: str, calls: List[Any],
        joining: Callable[..., Any], clock: Clock, capsys: Any) -> None:
    crowd = Crowd(clock)
    crowd.dead, crowd.dead_of_other_jobs, crowd.answers = (RUN + 1,), (RUN + 2,), [False, error]
    with pytest.raises(raised) as why:
        joining(crowd)
    assert str(why.value) == text and capsys.readouterr().err == LEFT
    assert crowd.calls[2:] == calls


def test_a_host_is_interrupted_though_the_cluster_does_not_answer(
        joining: Callable[..., Any], clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(clock)
    crowd.answers = [False, KeyboardInterrupt()]

    def leave(*given: Any) -> None:
        raise Failed(110, 'timed out')

    monkeypatch.setattr(crowd, 'leave', leave)
    with pytest.raises(KeyboardInterrupt):
        joining(crowd)


def ended_together(crowd: Crowd, interrupted: bool = False, **changes: Any) -> RunRecord:
    record = RunRecord(0, 'done', '', TARGET, 1.0, steps=STEPS)
    run: Any = SimpleNamespace(interrupted=interrupted)
    meeting: Any = crowd
    return client._end_meeting(run, meeting, replace(record, **changes))


@pytest.mark.parametrize('changes, why', [
    (dict(state='failed', messages=('a', 'b')), 'a and 1 more'),
    (dict(state='failed', messages=('a',)), 'a'), (dict(state='cancelled'), 'cancelled')])
@pytest.mark.parametrize('interrupted', [False, True])
def test_a_host_says_why_it_leaves(changes: Dict[str, Any], why: str, interrupted: bool,
                                   clock: Clock) -> None:
    crowd = Crowd(clock)
    record = ended_together(crowd, interrupted, **changes)
    assert record.state == changes['state'] and not clock.sleeps
    assert crowd.calls == [('leave', why, 100.0, interrupted)]


def test_the_first_host_waits_for_the_others_but_not_forever(clock: Clock) -> None:
    crowd = Crowd(clock)
    crowd.answers = [False] * 100
    ended_together(crowd, state='failed', messages=('a',))
    assert [call[2] for call in crowd.calls] == [
        100.0 + second for second in range(int(2 * FAREWELL_SECONDS) + 1)]


@pytest.mark.parametrize('state', ['done', 'failed'])
def test_a_meeting_that_cannot_be_left_is_a_failure(state: str, clock: Clock) -> None:
    crowd = Crowd(clock)
    crowd.go, crowd.answers = Go(3), [Failed(5, 'no answer')]
    record = ended_together(crowd, state=state, messages=('a',))
    assert (record.state, record.messages) == ('failed', ('a', 'no answer'))


@pytest.mark.parametrize('goes, end, state, messages', [
    ([], '', 'done', ('a',)), ([Go(2), Go(2), Go(3)], '', 'done', ('a',)),
    ([Go(2), Go(2, end='kvm2 has ended')], 'kvm2 has ended', 'failed', ('kvm2 has ended',)),
    ([Go(2), CannotJoin('other jobs')], 'a and 1 more', 'failed', ('a', 'other jobs'))])
def test_another_host_waits_until_all_have_delivered(
        goes: List[Any], end: str, state: str, messages: Tuple[str, ...], clock: Clock) -> None:
    crowd = Crowd(clock, *goes)
    crowd.go = Go(2) if goes else Go(3)
    record = ended_together(crowd, messages=('a',))
    assert (record.state, record.messages) == (state, messages)
    deliver, *attends, leave = crowd.calls
    assert deliver == ('deliver', (), 100.0) and leave[:2] == ('leave', end)
    assert [call[2] for call in attends] == [3] * len(goes)
    assert clock.sleeps == [1.0] * len(goes)


def test_objects_of_hosts_that_have_died_are_removed_or_named(
        probe: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of other jobs have unknown names."""
    clock: Any = SimpleNamespace(now=0.0)
    crowd = Crowd(clock, Go(-1))
    crowd.dead, crowd.dead_of_other_jobs = (RUN + 1,), (RUN + 2,)
    monkeypatch.setattr(client, '_join', lambda *given: crowd)
    monkeypatch.setattr(client, '_end_meeting', lambda measuring, meeting, record: record)
    children = [Scripted([BEGUN], [RESULTS[0], CLEANED]), Scripted([], [CLEANED])]
    assert probe(*JOB, '--join', 'night', children=children) == 0
    assert probe.out == '' and probe.said[2:] == [
        'removing the objects of run %d, whose host has died' % (RUN + 1),
        'objects left: unknown; remove them with --clean %d' % (RUN + 2)]
    sweep = children[1].sent[0]
    assert (sweep['mode'], sweep['naming']['run']) == (SWEEP, RUN + 1)
