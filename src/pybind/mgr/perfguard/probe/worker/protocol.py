# SPDX-License-Identifier: LGPL-2.1-or-later
"""Lines of JSON between the worker and the mgr, and the errors that they report.

Request: one line (wire.WorkerRequest). Standard input then stays open; its end, or
{"cancel": reason}, ends the I/O at once. So does silence, if the request limits it: an mgr sends
ALIVE at intervals, unless it hangs or another mgr has replaced it. If other hosts measure at the
same time, a step waits for {"begin": index}.

Lines out, by "type": step, result, cleaned, error, end.
"""
import errno
import json
import os
import queue
import sys
import threading
import time
from typing import Any, Optional

from ...cluster.types import Json


#: A line that only shows that the sender still follows the worker.
ALIVE: Json = {'alive': True}
#: The reasons of a cancellation when standard input is closed, and when no line comes.
GONE = 'the process that started the worker has ended'
SILENT = 'no sign of life from the mgr for %g s'
STDOUT = 1
#: Size of one write, to distinguish a slow reader from one that does not read.
PIPE_CHUNK_BYTES = 64 << 10
#: Results of many streams exceed the size of a pipe: seconds to wait for a reader that reads, and
#: for one that does not.
WORKER_LAST_LINES_SECONDS = 30.0
PIPE_IDLE_SECONDS = 2.0


class Output:
    """Sends lines; a reader that does not read never blocks the worker."""

    def __init__(self) -> None:
        self._lines: 'queue.Queue[Optional[str]]' = queue.Queue()
        #: Bytes.
        self._sent = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def say(self, kind: str, **fields: Any) -> None:
        self._lines.put(json.dumps({'type': kind, **fields}))

    def error(self, code: int, text: object) -> None:
        """An errno of either sign."""
        self.say('error', errno=-abs(code), message=' '.join(str(text).split()))

    def close(self, seconds: float, idle_seconds: float) -> None:
        """Wait until all is sent: at most `seconds`, and `idle_seconds` without progress."""
        self._lines.put(None)
        until = time.monotonic() + seconds
        sent = -1
        while self._thread.is_alive() and sent != self._sent and time.monotonic() < until:
            sent = self._sent
            self._thread.join(idle_seconds)

    def _run(self) -> None:
        for line in iter(self._lines.get, None):
            data = memoryview((line + '\n').encode())
            while data:
                try:
                    written = os.write(STDOUT, data[:PIPE_CHUNK_BYTES])
                except OSError:
                    return  # the reader has ended; Input notices it
                self._sent += written
                data = data[written:]


def finish(output: Output, state: str) -> None:
    """The end of the process."""
    output.say('end', state=state)
    output.close(WORKER_LAST_LINES_SECONDS, PIPE_IDLE_SECONDS)
    sys.stderr.flush()
    # Closing librados would wait for operations on an OSD that hangs.
    os._exit(1 if state == 'failed' else 0)


class Input:
    """Receives the request and the cancellation."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self.reason = ''
        self._heard = threading.Event()
        #: The last step that may begin, if other hosts measure at the same time.
        self._begin = -1
        self._changed = threading.Condition()

    def request(self) -> Json:
        """The first line; a thread reads further ones. Raises ValueError if it is not JSON."""
        data = json.loads(sys.stdin.readline())
        if not isinstance(data, dict):
            raise ValueError('the request is not a JSON object')
        threading.Thread(target=self._listen, daemon=True).start()
        return data

    def watch(self, silence_seconds: float, output: Output) -> None:
        """Cancel, and report an error, after this time without a line."""
        threading.Thread(target=self._watch, args=(silence_seconds, output), daemon=True).start()

    def _watch(self, silence_seconds: float, output: Output) -> None:
        while self._heard.wait(silence_seconds):
            self._heard.clear()
        if not self.cancelled.is_set():
            reason = SILENT % silence_seconds
            output.error(errno.ETIMEDOUT, reason)
            self.cancel(reason)

    def cancel(self, reason: str) -> None:
        """The first reason is kept."""
        with self._changed:
            if not self.cancelled.is_set():
                self.reason = reason
                self.cancelled.set()
            self._changed.notify_all()

    def wait_to_begin(self, step: int, seconds: float) -> bool:
        """Until this step may begin or the run is cancelled; False: not within this time."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._begin >= step or self.cancelled.is_set(), max(0.0, seconds))

    def _listen(self) -> None:
        for line in sys.stdin:
            self._heard.set()
            order = _order(line)
            if 'cancel' in order:
                self.cancel(str(order['cancel']))
            if isinstance(order.get('begin'), int):
                with self._changed:
                    self._begin = order['begin']
                    self._changed.notify_all()
        self.cancel(GONE)


def _order(line: str) -> Json:
    """A line of input; empty for an unknown one."""
    try:
        order = json.loads(line)
    except ValueError:
        return {}
    return order if isinstance(order, dict) else {}


# ---- Errors

class Failed(Exception):
    """`errno` is negative, as in the protocol; the message is one line."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(' '.join(text.split()))
        self.errno = -abs(code)


class Cancelled(Exception):
    """The worker was cancelled."""


def words(code: int) -> str:
    """An errno of either sign: "Disk quota exceeded (EDQUOT)"."""
    number = abs(code)
    return '%s (%s)' % (os.strerror(number), errno.errorcode.get(number, 'errno %d' % number))
