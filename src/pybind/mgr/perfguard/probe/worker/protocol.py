# SPDX-License-Identifier: LGPL-2.1-or-later
"""Lines of JSON between the worker and the mgr, and the errors that they report.

Request: one line (WorkerRequest). Standard input then stays open; its end, or
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
from dataclasses import dataclass
from typing import Any, Iterator, Optional

from ...cluster.types import Json
from ...codec import Malformed, decode, encode
from ...version import VERSION
from ..placement import JournalledNaming, run_prefix
from ..types import MEETING_PREFIX, BadJob, JobSteps, StepResult

RUN = 'run'
SWEEP = 'sweep'
ENGINES = ('auto', 'python', 'native')
#: State of a step that waits for other hosts.
STEP_WAITS = 'waits'
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


@dataclass(frozen=True)
class WorkerRequest:
    """The first line that the worker reads."""
    pool: str
    #: Run: the prefix of the names of all objects of this run. Sweep: what is removed.
    prefix: str
    entity: str
    #: The secret of the cephx user; it is sent in this line only.
    key: str
    mon_host: str
    mode: str = RUN
    #: Path of ceph.conf, '' for none.
    conf: str = ''
    steps: JobSteps = ()
    #: Wall time of the whole process, including connecting, prefill and cleaning up.
    limit_seconds: float = 60.0
    #: Seconds without a line from the sender after which the worker ends; 0: it never does.
    silence_seconds: float = 0.0
    engine: str = 'auto'
    seed: int = 0
    #: Determines the names of the objects of the steps or of the sweep; None: the steps contain the
    #: names, and a sweep lists the pool.
    naming: Optional[JournalledNaming] = None
    #: Where an earlier sweep ended: the number of a name.
    cursor: int = 0
    #: The object at which several hosts have met to measure at the same time; '': one measures
    #: alone. Before each step the worker waits for {"begin": index}, and its results have counts.
    meeting: str = ''
    #: This host has created the meeting: the worker removes it if its sender has ended.
    leads: bool = False
    #: Images are in NAMESPACE, and the worker removes those of the run. False: one is in the
    #: default namespace of a pool that is removed with it.
    removes_images: bool = False


def request_to_json(request: WorkerRequest) -> Json:
    """The document of a request, with the version of the sender: a worker is of the version that is
    installed when it begins, an mgr of the one that was when it began."""
    return {'version': VERSION, **encode(request)}


def request_from_json(data: Json) -> WorkerRequest:
    """The request of a document. Raises BadJob if a field is missing, unknown or invalid, or
    another version sent it."""
    version = data.get('version', 'of another version')
    if version != VERSION:
        raise BadJob(other_version(version, VERSION))
    try:
        request: WorkerRequest = decode(WorkerRequest, {
            name: value for name, value in data.items() if name != 'version'})
    except Malformed as e:
        raise BadJob('bad request: %s' % e)
    for wrong in _what_is_wrong(request):
        raise BadJob('bad request: ' + wrong)
    return request


def _what_is_wrong(request: WorkerRequest) -> Iterator[str]:
    """The errors of a request, as texts. They protect the cluster: only objects of the run may be
    written and removed."""
    naming, prefix = request.naming, request.prefix
    if request.mode not in (RUN, SWEEP):
        yield 'mode %r' % request.mode
    if request.engine not in ENGINES:
        yield 'engine %r' % request.engine
    if not prefix:
        # It protects the objects of other runs.
        yield 'prefix must not be empty'
    if naming is not None and run_prefix(naming.run) != prefix:
        yield 'objects of run %d lack the prefix %r' % (naming.run, prefix)
    if request.meeting and not request.meeting.startswith(MEETING_PREFIX):
        yield 'meeting %r' % request.meeting
    for step in request.steps:
        job = step.job
        if job.bs < 1 or job.iodepth < 1 or job.nrfiles < 1 or job.bs > job.object_bytes:
            yield 'job %s: inconsistent bs %d, iodepth %d, size %d and nrfiles %d' % (
                job.name, job.bs, job.iodepth, job.size, job.nrfiles)
        if not step.streams or naming is None and not all(
                stream.objects for stream in step.streams):
            yield 'job %s: a stream has no objects' % job.name
    for name in {name for step in request.steps for stream in step.streams
                 for name in stream.objects}:
        if not name.startswith(prefix):
            yield 'object %r lacks the prefix %r' % (name, prefix)


#: Why the mgr cannot use a worker.
NO_FILES = 'the files of perfguard are missing on the host of the mgr: install them again'


def other_version(running: str, installed: str) -> str:
    """Why the mgr, which runs one version, cannot use a worker of another one."""
    return 'the mgr runs perfguard %s, but %s is installed: restart the mgr, or run "ceph mgr ' \
        'fail"' % (running, installed)


#: Exclusive upper bound of all numbers of a result.
VALUE_BOUND = 1 << 63


def step_result(raw: Any) -> StepResult:
    """The result of a step, of a worker or an imported run, from its JSON. Raises Malformed if it
    is none, and ValueError for a number that cannot be a measurement."""
    result: StepResult = decode(StepResult, raw)
    _check_numbers(raw)
    return result


def _check_numbers(raw: Any) -> None:
    """Raise ValueError if a document contains a number that cannot be a measurement."""
    if isinstance(raw, dict):
        raw = list(raw.values())
    if isinstance(raw, list):
        for part in raw:
            _check_numbers(part)
    elif isinstance(raw, (int, float)) and not 0 <= raw < VALUE_BOUND:
        raise ValueError('%r is no measure' % raw)


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
        """Wait until all is sent, but at most `seconds`, and not after `idle_seconds` in which the
        reader has read nothing."""
        self._lines.put(None)
        until = time.monotonic() + seconds
        sent = -1
        while self._thread.is_alive() and sent != self._sent and time.monotonic() < until:
            sent = self._sent
            self._thread.join(idle_seconds)

    def _run(self) -> None:
        """The thread: write the lines, as fast as the reader takes them."""
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
    """Report the final state, and end the process."""
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
        self._last_to_begin = -1
        self._changed = threading.Condition()

    def request(self) -> Json:
        """The first line; a thread reads further ones. Raises ValueError if it is not JSON."""
        data = json.loads(sys.stdin.readline())
        if not isinstance(data, dict):
            raise ValueError('the request is not a JSON object')
        threading.Thread(target=self._listen, daemon=True).start()
        return data

    def watch(self, silence_seconds: float, output: Output) -> None:
        """From now on, cancel and report an error after this time without a line of the sender."""
        threading.Thread(target=self._watch, args=(silence_seconds, output), daemon=True).start()

    def _watch(self, silence_seconds: float, output: Output) -> None:
        """The thread of `watch`; ends when the sender was silent for too long."""
        while self._heard.wait(silence_seconds):
            self._heard.clear()
        if not self.cancelled.is_set():
            reason = SILENT % silence_seconds
            output.error(errno.ETIMEDOUT, reason)
            self.cancel(reason)

    def cancel(self, reason: str) -> None:
        """Cancel the run; of several calls, the reason of the first one is kept."""
        with self._changed:
            if not self.cancelled.is_set():
                self.reason = reason
                self.cancelled.set()
            self._changed.notify_all()

    def wait_to_begin(self, step: int, seconds: float) -> bool:
        """Wait until this step may begin or the run is cancelled; False: not within this time."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._last_to_begin >= step or self.cancelled.is_set(), max(0.0, seconds))

    def _listen(self) -> None:
        """The thread: take in the lines of the sender after the request. The end of the sender
        cancels the run, too."""
        for line in sys.stdin:
            self._heard.set()
            order = _order(line)
            if 'cancel' in order:
                self.cancel(str(order['cancel']))
            if isinstance(order.get('begin'), int):
                with self._changed:
                    self._last_to_begin = order['begin']
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
