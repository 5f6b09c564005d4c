# SPDX-License-Identifier: LGPL-2.1-or-later
"""A child process that is talked to in lines of JSON and never waited for.

A thread reads what it says: a pipe holds 1 MiB, a turn of the loop takes a second or more, and a
child that ends does not wait long for a reader.
"""
import fcntl
import json
import logging
import os
import subprocess
import threading
from typing import IO, Any, Dict, List, Mapping, Optional, Sequence

log = logging.getLogger(__name__)

#: fcntl's command (Linux) and the bytes that a pipe shall hold, so that a request goes out in one
#: write and the child need not wait for the next turn of the loop to go on.
F_SETPIPE_SZ = 1031
PIPE_BYTES = 1 << 20
#: Bytes of a line, without an end so far, that are kept; and of lines that were not asked for yet.
LINE_BYTES = 32 << 20
HELD_BYTES = 64 << 20
#: Seconds that the last lines of a child that has ended are waited for.
LAST_LINES_SECONDS = 2.0
#: Bytes of its standard error that are kept.
ERROR_BYTES = 4096


class Child:
    """Never waits for the child, but for `wait` and `close`. For one thread."""

    def __init__(self, argv: Sequence[str]) -> None:
        # In a session of its own, so that no signal to the mgr's group ends it half-way.
        self._process = subprocess.Popen(
            list(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd='/', env={'PATH': '/usr/bin:/bin', 'LC_ALL': 'C.UTF-8'}, start_new_session=True)
        self._outgoing = b''
        self._errors = b''
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), pipe is self._process.stdout)
            try:
                fcntl.fcntl(pipe.fileno(), F_SETPIPE_SZ, PIPE_BYTES)
            except OSError as error:
                # Above the user's limit; smaller pipes take more turns.
                log.debug('cannot enlarge the pipes: %s', error)
        assert self._process.stdout is not None
        self._lines = _Lines(self._process.stdout)

    def send(self, document: Mapping[str, Any]) -> None:
        self._outgoing += json.dumps(document).encode() + b'\n'
        self._flush()

    def lines(self) -> List[Dict[str, Any]]:
        """What has come in since the last call; what is no JSON object is logged and left out."""
        self._flush()
        self._errors = (self._errors + _read(self._process.stderr))[-ERROR_BYTES:]
        found: List[Dict[str, Any]] = []
        for line in self._lines.taken():
            try:
                parsed = json.loads(line)
            except ValueError:
                parsed = None
            if isinstance(parsed, dict):
                found.append(parsed)
            else:
                log.warning('unknown line from a worker: %r', line[:200])
        return found

    def ended(self) -> Optional[int]:
        """Its exit status; None: it runs, or not all it said is read. Ask for the lines after
        this."""
        status = self._process.poll()
        return None if status is not None and self._lines.reading else status

    @property
    def last_words(self) -> str:
        """The last line of its standard error."""
        lines = self._errors.decode(errors='replace').strip().splitlines()
        return lines[-1].strip() if lines else ''

    def hang_up(self) -> None:
        """Close its standard input: it is to come to an end by itself."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._outgoing = b''
            self._process.stdin.close()

    def kill(self) -> None:
        self._process.kill()

    def wait(self, seconds: float) -> bool:
        """Whether it has ended within so many seconds."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        self._lines.wait(LAST_LINES_SECONDS)
        return True

    def close(self) -> None:
        """After its end. What it says is read until then, so that it need not wait for that."""
        self._lines.drop()
        for pipe in (self._process.stdin, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def _flush(self) -> None:
        stdin = self._process.stdin
        if not self._outgoing or stdin is None or stdin.closed:
            return
        try:
            self._outgoing = self._outgoing[os.write(stdin.fileno(), self._outgoing):]
        except BlockingIOError:
            pass
        except OSError as error:
            # It has ended; why is in its last words.
            log.debug('a worker does not read its input: %s', error)
            self._outgoing = b''


class _Lines:
    """Reads whole lines in a thread of its own, which closes the pipe at its end."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._changed = threading.Condition()
        self._lines: List[bytes] = []
        self._held = 0
        self._dropping = False
        self._thread = threading.Thread(target=self._read, name='perfguard-child', daemon=True)
        self._thread.start()

    @property
    def reading(self) -> bool:
        return self._thread.is_alive()

    def taken(self) -> List[bytes]:
        """Those that have come in since the last call."""
        with self._changed:
            lines, self._lines, self._held = self._lines, [], 0
            self._changed.notify()
        return lines

    def wait(self, seconds: float) -> None:
        self._thread.join(seconds)

    def drop(self) -> None:
        with self._changed:
            self._dropping = True
            self._changed.notify()

    def _read(self) -> None:
        parts: List[bytes] = []
        with self._pipe:
            for part in iter(lambda: os.read(self._pipe.fileno(), PIPE_BYTES), b''):
                *whole, rest = part.split(b'\n')
                if whole:
                    self._keep([b''.join([*parts, whole[0]]), *whole[1:]])
                    parts = []
                parts.append(rest)
                if sum(map(len, parts)) > LINE_BYTES:
                    log.warning('incomplete line from a worker: %r', parts[0][:200])
                    parts = []

    def _keep(self, lines: List[bytes]) -> None:
        with self._changed:
            while self._held > HELD_BYTES and not self._dropping:
                self._changed.wait()
            if not self._dropping:
                self._lines += lines
                self._held += sum(map(len, lines))


def _read(pipe: Optional[IO[bytes]]) -> bytes:
    assert pipe is not None
    if pipe.closed:
        return b''
    try:
        return os.read(pipe.fileno(), PIPE_BYTES)
    except BlockingIOError:
        return b''
