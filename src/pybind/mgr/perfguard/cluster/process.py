# SPDX-License-Identifier: LGPL-2.1-or-later
"""A child process that is talked to in lines of JSON and never waited for."""
import fcntl
import json
import logging
import os
import subprocess
from typing import IO, Any, Dict, List, Mapping, Optional, Sequence

log = logging.getLogger(__name__)

#: fcntl's command (Linux) and the bytes that a pipe shall hold, so that a request goes out in one
#: write and the child need not wait for the next turn of the loop to go on.
F_SETPIPE_SZ = 1031
PIPE_BYTES = 1 << 20
#: Bytes that are read at a time, more than a pipe holds: what has ended is read to its end. And
#: those of a line, without an end so far, that are kept.
TURN_BYTES = 4 << 20
LINE_BYTES = 32 << 20
#: Bytes of its standard error that are kept.
ERROR_BYTES = 4096


class Child:
    """Reads and writes only what is possible at once. For one thread."""

    def __init__(self, argv: Sequence[str]) -> None:
        # In a session of its own, so that no signal to the mgr's group ends it half-way.
        self._process = subprocess.Popen(
            list(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd='/', env={'PATH': '/usr/bin:/bin', 'LC_ALL': 'C.UTF-8'}, start_new_session=True)
        self._outgoing = b''
        self._incoming = b''
        self._errors = b''
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            try:
                fcntl.fcntl(pipe.fileno(), F_SETPIPE_SZ, PIPE_BYTES)
            except OSError as error:
                # Above the user's limit; smaller pipes take more turns.
                log.debug('pipes stay small: %s', error)

    def send(self, document: Mapping[str, Any]) -> None:
        self._outgoing += json.dumps(document).encode() + b'\n'
        self._flush()

    def lines(self) -> List[Dict[str, Any]]:
        """What has come in since the last call; what is no JSON object is logged and left out."""
        self._flush()
        self._errors = (self._errors + _read(self._process.stderr))[-ERROR_BYTES:]
        *whole, self._incoming = (self._incoming + _read(self._process.stdout)).split(b'\n')
        if len(self._incoming) > LINE_BYTES:
            log.warning('a line of a probe has no end: %r', self._incoming[:200])
            self._incoming = b''
        found: List[Dict[str, Any]] = []
        for line in whole:
            try:
                parsed = json.loads(line)
            except ValueError:
                parsed = None
            if isinstance(parsed, dict):
                found.append(parsed)
            else:
                log.warning('not a line of a probe: %r', line[:200])
        return found

    def ended(self) -> Optional[int]:
        """Its exit status; None: it runs. Ask for the lines after this."""
        return self._process.poll()

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
        return True

    def close(self) -> None:
        """After its end."""
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
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
            log.debug('a probe does not listen: %s', error)
            self._outgoing = b''


def _read(pipe: Optional[IO[bytes]]) -> bytes:
    assert pipe is not None
    parts: List[bytes] = []
    while not pipe.closed and sum(map(len, parts)) < TURN_BYTES:
        try:
            part = os.read(pipe.fileno(), PIPE_BYTES)
        except BlockingIOError:
            break
        if not part:
            break
        parts.append(part)
    return b''.join(parts)
