# SPDX-License-Identifier: LGPL-2.1-or-later
"""A child process, with small real ones."""
import json
import os
import signal
import subprocess
import time
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Optional

import pytest

from perfguard.probe import child as process
from perfguard.probe.child import Child

PYTHON = '/usr/bin/python3'
SECONDS = 20.0


def child(code: str) -> Child:
    return Child([PYTHON, '-I', '-c', 'import json, os, sys, time\n' + code])


def wait_for(done: Callable[[], Any]) -> None:
    until = time.monotonic() + SECONDS
    while not done():
        assert time.monotonic() < until
        time.sleep(0.01)


def heard(one: Child) -> List[Dict[str, Any]]:
    """Until it has ended."""
    found: List[Dict[str, Any]] = []
    ended = False
    while not ended:
        ended = one.wait(0.01) and one.ended(time.monotonic()) is not None
        found += one.lines()
    one.close()
    return found


def test_lines_both_ways() -> None:
    one = child('for line in sys.stdin: print(json.dumps({"got": json.loads(line)}), flush=True)')
    one.send({'a': 1})
    one.send({'b': 'ü'})
    found: List[Dict[str, Any]] = []

    def both() -> bool:
        found.extend(one.lines())
        return len(found) == 2

    wait_for(both)
    assert found == [{'got': {'a': 1}}, {'got': {'b': 'ü'}}] and one.ended(time.monotonic()) is None
    one.hang_up()
    assert heard(one) == [] and one.ended(time.monotonic()) == 0


def test_nonsense_is_left_out() -> None:
    one = child('print("x\\n[]\\n3\\n{}\\n{\\"a\\": 1}", flush=True); '
                'sys.stdout.buffer.write(b"\\xff\\n")')
    assert heard(one) == [{}, {'a': 1}]


def test_half_a_line_waits_for_its_end() -> None:
    one = child('sys.stdout.write(\'{"a": \'); sys.stdout.flush(); sys.stdin.readline(); '
                'print("1}")')
    time.sleep(0.3)
    assert one.lines() == []
    one.send({})
    assert heard(one) == [{'a': 1}]


def test_what_is_larger_than_a_pipe_goes_in_several_turns() -> None:
    one = child('print(json.dumps({"length": len(json.loads(sys.stdin.readline())["text"])}))')
    began = time.monotonic()
    one.send({'text': 'x' * (3 << 20)})
    assert time.monotonic() - began < 5
    assert heard(one) == [{'length': 3 << 20}]


def test_a_child_that_does_not_read_blocks_no_caller() -> None:
    one = child('time.sleep(60)')
    began = time.monotonic()
    one.send({'text': 'x' * (3 << 20)})
    assert one.lines() == [] and time.monotonic() - began < 5
    one.kill()
    assert one.wait(SECONDS) and one.ended(time.monotonic()) == -9
    one.close()


def test_a_child_that_only_writes_blocks_no_caller() -> None:
    one = child('while True: sys.stdout.write("x" * 65536)')
    began = time.monotonic()
    for _ in range(12):
        one.lines()
    assert time.monotonic() - began < 10
    one.kill()
    assert one.wait(SECONDS)
    one.close()


def test_a_line_without_an_end_is_not_gathered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, 'LINE_BYTES', 1 << 20)
    one = child('sys.stdout.write("x" * (3 << 20) + "\\n{}\\n")')
    assert heard(one) == [{}]


def test_one_that_talks_faster_than_it_is_listened_to_waits(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, 'HELD_BYTES', 1 << 20)
    one = child('for _ in range(80): print(json.dumps({"a": "x" * 100000}))')
    wait_for(lambda: one._lines._held_bytes > 1 << 20)
    assert one.ended(time.monotonic()) is None and one._lines._held_bytes < 4 << 20
    assert len(heard(one)) == 80


#: Says 4 MiB and is over, as a worker does it.
WORKER = """
sys.path.insert(0, %r)
from perfguard.probe.worker.protocol import Output, finish
output = Output()
for index in range(64):
    output.say('result', index=index, data='x' * 65536)
finish(output, 'done')
""" % os.path.abspath(os.path.join(os.path.dirname(process.__file__), '..', '..'))


def test_results_that_are_more_than_a_pipe_holds_are_not_lost() -> None:
    """The loop is busy meanwhile."""
    one = child(WORKER)
    wait_for(lambda: one._process.poll() is not None)
    found = heard(one)
    assert [line.get('index') for line in found] == [*range(64), None]
    assert found[-1] == {'type': 'end', 'state': 'done'}


def test_a_worker_waits_for_a_slow_reader() -> None:
    with subprocess.Popen([PYTHON, '-I', '-c', 'import sys\n' + WORKER],
                          stdout=subprocess.PIPE) as one:
        assert one.stdout is not None
        data = b''
        for part in iter(lambda: os.read(one.stdout.fileno(), 32 << 10), b''):  # type: ignore
            data += part
            time.sleep(0.01)
    assert data.count(b'\n') == 65


def test_a_worker_does_not_wait_for_one_that_does_not_read() -> None:
    with subprocess.Popen([PYTHON, '-I', '-c', 'import sys\n' + WORKER],
                          stdout=subprocess.PIPE) as one:
        assert one.wait(SECONDS) == 0


def test_one_that_is_killed_has_ended_although_another_process_holds_its_output(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, 'LAST_LINES_SECONDS', 0.3)
    one = child('pid = os.fork()\nif pid: print(json.dumps({"other": pid}), flush=True)\n'
                'time.sleep(60)')
    found: List[Dict[str, Any]] = []
    while not found:
        found += one.lines()
    one.kill()
    try:
        wait_for(lambda: one.ended(time.monotonic()) == -signal.SIGKILL)
    finally:
        os.kill(found[0]['other'], signal.SIGKILL)
    assert one.why() == 'the worker was killed by SIGKILL, perhaps because memory ran out'
    one.close()


def test_sending_to_one_that_has_ended() -> None:
    one = child('sys.exit(3)')
    assert one.wait(SECONDS)
    one.send({'a': 1})
    assert one.lines() == [] and one.ended(time.monotonic()) == 3
    one.hang_up()
    one.hang_up()
    one.close()
    one.send({'a': 1})
    assert one.lines() == []


def test_its_last_words() -> None:
    one = child('sys.stderr.write("x" * 10000 + "\\nfirst\\nlast \\n"); sys.exit(1)')
    assert heard(one) == [] and one.why() == 'last'
    quiet = child('sys.exit(3)')
    assert heard(quiet) == [] and quiet.why() == 'the worker ended with status 3'
    ended = child('sys.stderr.write("a warning\\n"); os.kill(os.getpid(), 15)')
    assert heard(ended) == [] and ended.why() == 'the worker was killed by SIGTERM'


def test_what_it_has_of_its_parent() -> None:
    os.environ['PERFGUARD_TEST'] = 'x'
    try:
        one = child('print(json.dumps({"env": sorted(os.environ), "cwd": os.getcwd(), '
                    '"leads": os.getsid(0) == os.getpid()}))')
    finally:
        del os.environ['PERFGUARD_TEST']
    line, = heard(one)
    assert line['cwd'] == '/' and line['leads']
    assert 'PERFGUARD_TEST' not in line['env'] and 'PATH' in line['env']


def test_waiting_has_an_end() -> None:
    one = child('time.sleep(60)')
    assert not one.wait(0.05)
    one.kill()
    assert one.wait(SECONDS)
    one.close()


def test_no_such_program() -> None:
    with pytest.raises(OSError):
        Child(['/nowhere/python'])


def test_lines_after_the_end() -> None:
    lines = json.dumps({'a': 'x' * 1000})
    one = child('if os.fork(): os._exit(0)\n'
                'time.sleep(0.3)\nfor _ in range(500): print(%r)' % lines)
    assert one.wait(SECONDS)
    assert len(one.lines()) == 500
    one.close()


def wait_until_exited(one: Child) -> None:
    wait_for(lambda: one._process.poll() is not None)


def test_a_document_is_written_at_once() -> None:
    """The next turn may be late."""
    one = child('sys.stdin.readline()')
    one.send({})
    assert one.wait(SECONDS) and one.ended(0.0) == 0
    one.close()


def test_pipes_are_enlarged(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: List[Any] = []
    monkeypatch.setattr(process, 'fcntl', SimpleNamespace(
        fcntl=lambda fd, *rest: calls.append((fd, *rest))))
    one = child('pass')
    popen = one._process
    assert popen.stdin and popen.stdout and popen.stderr
    assert calls == [(pipe.fileno(), process.F_SETPIPE_SZ, 1 << 20)
                     for pipe in (popen.stdin, popen.stdout, popen.stderr)]
    assert heard(one) == []


def test_small_pipes_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: Any) -> None:
        raise PermissionError(1, 'above the limit')

    monkeypatch.setattr(process, 'fcntl', SimpleNamespace(fcntl=refused))
    one = child('print(json.dumps({"length": len(sys.stdin.readline())}))')
    one.send({'text': 'x' * (1 << 20)})
    assert heard(one) == [{'length': (1 << 20) + len('{"text": ""}\n')}]


def test_the_wait_for_the_last_lines_has_an_end() -> None:
    one = child('pid = os.fork()\nif pid: print(json.dumps({"other": pid}), flush=True)\n'
                'else: time.sleep(60)')
    found: List[Dict[str, Any]] = []
    while not found:
        found += one.lines()
    wait_until_exited(one)
    try:
        assert [one.ended(now) for now in (100.0, 105.0, 105.1)] == [None, None, 0]
    finally:
        os.kill(found[0]['other'], signal.SIGKILL)
    assert one.wait(SECONDS) and one.ended(0.0) == 0
    one.close()


def test_why_one_has_ended_well_or_by_a_signal_without_a_name() -> None:
    one = child('pass')
    assert heard(one) == [] and one.why() == 'the worker ended with status 0'
    for number, name in ((10, 'SIGUSR1'), (40, 'signal 40')):
        killed = child('os.kill(os.getpid(), %d)' % number)
        assert heard(killed) == [] and killed.why() == 'the worker was killed by ' + name


def test_what_one_has_not_read_is_dropped_when_it_has_ended() -> None:
    one = child('pass')
    assert one.wait(SECONDS)
    one.send({})
    assert one._outgoing == b''
    one.close()
    popen = one._process
    assert popen.stdin and popen.stdin.closed and popen.stderr and popen.stderr.closed


def test_output_is_read_until_the_end_after_the_last_look(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that holds the pipe does not block, and what it writes is not kept."""
    monkeypatch.setattr(process, 'HELD_BYTES', 1)
    one = child('print("{}\\n" * (3 << 20), end="")')
    wait_for(lambda: one._lines._held_bytes > 1)
    assert not one.wait(0.05)
    one.close()
    wait_for(lambda: not one._lines.reading)
    assert one.wait(SECONDS) and len(one._lines.take()) < 3 << 20


@pytest.mark.parametrize('chunks, lines, logged', [
    ([], [], None), ([b'a'], [], None), ([b'a\n'], [b'a'], None),
    ([b'a', b'b\nc', b'd\ne'], [b'ab', b'cd'], None),
    ([b'a\nb\nc\n'], [b'a', b'b', b'c'], None),
    ([b'x' * 10, b'\n'], [b'x' * 10], None), ([b'x' * 11, b'y\n'], [b'y'], b'x' * 11),
    ([b'x' * 6, b'y' * 5, b'z\n'], [b'z'], b'x' * 6)])
def test_chunks_and_lines(
        chunks: List[bytes], lines: List[bytes], logged: Optional[bytes],
        monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    left = [*chunks, b'']
    monkeypatch.setattr(process, 'LINE_BYTES', 10)
    monkeypatch.setattr(process, 'os', SimpleNamespace(read=lambda fd, size: left.pop(0)))
    pipe = open(os.devnull, 'rb')
    reader = process._Lines(pipe)
    reader.wait(SECONDS)
    assert reader.take() == lines and reader.take() == [] and pipe.closed
    assert caplog.messages == ([] if logged is None else [
        'incomplete line from a worker: %r' % logged])


def test_a_reader_that_holds_enough_waits_until_it_is_taken(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, 'HELD_BYTES', 10)
    receiving, sending = os.pipe()
    reader = process._Lines(os.fdopen(receiving, 'rb', 0))
    for line, held in ((b'x' * 10, 10), (b'y', 11), (b'z', 11)):
        os.write(sending, line + b'\n')
        wait_for(lambda: reader._held_bytes == held)
    time.sleep(0.05)
    assert reader.take() == [b'x' * 10, b'y']
    wait_for(lambda: reader._held_bytes == 1)
    assert reader.take() == [b'z'] and reader._held_bytes == 0
    reader.drop()
    os.write(sending, b'late\n')
    os.close(sending)
    reader.wait(SECONDS)
    assert not reader.reading and reader.take() == [] and reader._held_bytes == 0


def test_a_reader_that_waits_reads_on_when_nothing_is_kept_any_longer(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, 'HELD_BYTES', 0)
    receiving, sending = os.pipe()
    reader = process._Lines(os.fdopen(receiving, 'rb', 0))
    os.write(sending, b'x\n')
    wait_for(lambda: reader._held_bytes == 1)
    os.write(sending, b'y\n')
    time.sleep(0.05)
    reader.drop()
    os.close(sending)
    reader.wait(SECONDS)
    assert not reader.reading and reader.take() == [b'x']


def test_the_log_has_the_beginning_of_what_is_no_message(
        monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(process, 'LINE_BYTES', 500)
    one = child('print("x" * 300); print("y" * 600, end="", flush=True); time.sleep(0.1)')
    assert heard(one) == []
    assert sorted(caplog.messages) == ['incomplete line from a worker: %r' % (b'y' * 200),
                                       'unknown line from a worker: %r' % (b'x' * 200)]
