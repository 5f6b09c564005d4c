# SPDX-License-Identifier: LGPL-2.1-or-later
"""A child process that exchanges lines of JSON and never blocks the caller.

A thread reads its output: a pipe holds 1 MiB, a turn of the loop takes a second or more, and a
child that exits does not wait long for a reader.
"""
import fcntl
import json
import logging
import os
import signal
import subprocess
import threading
from typing import IO, Any, Dict, List, Mapping, Optional, Sequence

log = logging.getLogger(__name__)

#: fcntl's command (Linux) and the size of the pipes in bytes, so that a request is sent in one
#: write and the child does not wait for the next turn of the loop.
F_SETPIPE_SZ = 1031
PIPE_BYTES = 1 << 20
#: Maximum size of an incomplete line, and of lines that were not fetched yet, in bytes.
LINE_BYTES = 32 << 20
HELD_BYTES = 64 << 20
#: Seconds to wait for the last lines of a child that has exited. Its pipe ends at once, unless
#: another process holds it.
LAST_LINES_SECONDS = 5.0
#: Seconds after which a child that was killed is given up: one that waits for a file system that
#: hangs does not end.
KILLED_SECONDS = 30.0
#: Bytes of standard error that are kept.
ERROR_BYTES = 4096


class Child:
    """Only `wait` and `close` wait for the child. To be used by one thread."""

    def __init__(self, argv: Sequence[str]) -> None:
        # In its own session, so that no signal to the mgr's process group ends it.
        self._process = subprocess.Popen(
            list(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd='/', env={'PATH': '/usr/bin:/bin', 'LC_ALL': 'C.UTF-8'}, start_new_session=True)
        self._outgoing = b''
        self._errors = b''
        #: When it was found to have exited.
        self._exited_at: Optional[float] = None
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            # Only standard output has a thread that may wait for it.
            os.set_blocking(pipe.fileno(), pipe is self._process.stdout)
            try:
                fcntl.fcntl(pipe.fileno(), F_SETPIPE_SZ, PIPE_BYTES)
            except OSError as error:
                # Above the limit of the user; with smaller pipes, requests take more turns.
                log.debug('cannot enlarge the pipes: %s', error)
        assert self._process.stdout is not None
        self._lines = _Lines(self._process.stdout)

    def send(self, document: Mapping[str, Any]) -> None:
        self._outgoing += json.dumps(document).encode() + b'\n'
        self._flush()

    def lines(self) -> List[Dict[str, Any]]:
        """Messages since the last call; a line that is not a JSON object is logged and skipped."""
        self._flush()
        self._errors = (self._errors + _read(self._process.stderr))[-ERROR_BYTES:]
        lines_read: List[Dict[str, Any]] = []
        for line in self._lines.take():
            try:
                parsed = json.loads(line)
            except ValueError:
                parsed = None
            if isinstance(parsed, dict):
                lines_read.append(parsed)
            else:
                log.warning('unknown line from a worker: %r', line[:200])
        return lines_read

    def ended(self, now: float) -> Optional[int]:
        """Its exit status; None: it runs, or its output is not read completely. Call `lines` after
        this: then they include its last ones. `now`: of a clock in seconds."""
        status = self._process.poll()
        if status is None or not self._lines.reading:
            return status
        # Another process may hold the pipe open: do not wait forever for its end.
        self._exited_at = now if self._exited_at is None else self._exited_at
        return None if now - self._exited_at <= LAST_LINES_SECONDS else status

    def why(self) -> str:
        """Why it has exited, in one line: a signal, its last line of standard error, or its
        status."""
        status = self._process.returncode
        if status is not None and status < 0:
            return 'the worker was killed by %s' % _signal_name(-status) + (
                ', perhaps because memory ran out' if status == -signal.SIGKILL else '')
        lines = self._errors.decode(errors='replace').strip().splitlines()
        return lines[-1].strip() if lines else 'the worker ended with status %s' % status

    def hang_up(self) -> None:
        """Close its standard input, which makes a worker clean up and exit. What was not sent yet
        is dropped."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._outgoing = b''
            self._process.stdin.close()

    def kill(self) -> None:
        self._process.kill()

    def wait(self, seconds: float) -> bool:
        """Wait for its exit, at most this time, and then for its last lines. Returns whether it has
        exited."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        self._lines.wait(LAST_LINES_SECONDS)
        return True

    def close(self) -> None:
        """Close the pipes; nothing is read or sent afterwards. The output of a child that still
        runs is discarded, so that it does not block."""
        self._lines.drop()
        for pipe in (self._process.stdin, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def _flush(self) -> None:
        """Write what the pipe takes now; the rest stays for the next call."""
        stdin = self._process.stdin
        if not self._outgoing or stdin is None or stdin.closed:
            return
        try:
            self._outgoing = self._outgoing[os.write(stdin.fileno(), self._outgoing):]
        except BlockingIOError:
            pass
        except OSError as error:
            # It has exited; `why` says more.
            log.debug('a worker does not read its input: %s', error)
            self._outgoing = b''


class _Lines:
    """Reads whole lines in its own thread, which closes the pipe at the end."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._changed = threading.Condition()
        self._lines: List[bytes] = []
        #: Bytes of these lines: at HELD_BYTES, the child must wait for the reader.
        self._held_bytes = 0
        #: After `drop`: further lines are discarded, so that the child does not block.
        self._dropping = False
        self._thread = threading.Thread(target=self._read, name='perfguard-child', daemon=True)
        self._thread.start()

    @property
    def reading(self) -> bool:
        return self._thread.is_alive()

    def take(self) -> List[bytes]:
        """Lines since the last call."""
        with self._changed:
            lines, self._lines, self._held_bytes = self._lines, [], 0
            self._changed.notify()
        return lines

    def wait(self, seconds: float) -> None:
        self._thread.join(seconds)

    def drop(self) -> None:
        with self._changed:
            self._dropping = True
            self._changed.notify()

    def _read(self) -> None:
        """The thread: keep whole lines until the pipe ends. Of a line that exceeds LINE_BYTES, the
        part read so far is dropped."""
        line_so_far: List[bytes] = []
        with self._pipe:
            for chunk in iter(lambda: os.read(self._pipe.fileno(), PIPE_BYTES), b''):
                *complete, incomplete = chunk.split(b'\n')
                if complete:
                    self._keep([b''.join([*line_so_far, complete[0]]), *complete[1:]])
                    line_so_far = []
                line_so_far.append(incomplete)
                if sum(map(len, line_so_far)) > LINE_BYTES:
                    log.warning('incomplete line from a worker: %r', line_so_far[0][:200])
                    line_so_far = []

    def _keep(self, lines: List[bytes]) -> None:
        """Keep lines for `take`; wait for it while too many are kept. After `drop`: no-op."""
        with self._changed:
            while self._held_bytes > HELD_BYTES and not self._dropping:
                self._changed.wait()
            if not self._dropping:
                self._lines += lines
                self._held_bytes += sum(map(len, lines))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return 'signal %d' % number


def _read(pipe: Optional[IO[bytes]]) -> bytes:
    """What a pipe contains now; b'': nothing, or it is closed."""
    assert pipe is not None
    if pipe.closed:
        return b''
    try:
        return os.read(pipe.fileno(), PIPE_BYTES)
    except BlockingIOError:
        return b''
