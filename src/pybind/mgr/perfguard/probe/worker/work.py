# SPDX-License-Identifier: LGPL-2.1-or-later
"""A worker: receives a request, runs its steps, each with its ramp and its measurement, and removes
the objects."""
import errno
import os
import signal
import threading
import time
import traceback
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from types import FrameType
from typing import Any, Callable, Collection, Dict, List, NamedTuple, Optional, Sequence, TypeVar

from ...codec import encode
from ..placement import all_names, with_objects
from ..types import RBD, BadJob, Direction, JobStep, StepResult
from .connection import Connection
from .engine import PYTHON_ENGINE, Streams, Timing, python_streams
from .native import NATIVE_ENGINE, Core, native_streams
from .objects import (LISTING_OPTIONS, OBJECTS_LOOK_SECONDS, Cleaned, Image, Payload, librbd,
                      names_with, prefill, remove, remove_images)
from .protocol import (GONE, STEP_WAITS, SWEEP, Cancelled, Failed, Input, Output, WorkerRequest,
                       finish, request_from_json)

#: CPU share of a core from which the worker may be the bottleneck.
LIMITED_SHARE = 0.9


class Used(NamedTuple):
    """CPU time that the worker has used until `at` (time.monotonic())."""
    at: float
    user: float
    system: float
    #: CPU seconds by thread.
    threads: Dict[str, float]


class Cpu(NamedTuple):
    """CPU seconds between two readings, and the used share (0 to 1) of the limiting core."""
    user: float
    system: float
    share: float

    @property
    def limited(self) -> bool:
        return self.share >= LIMITED_SHARE


def usage_now() -> Used:
    times = os.times()
    return Used(time.monotonic(), times.user, times.system, _threads())


def cpu_between(before: Used, after: Used, one_lock: bool) -> Cpu:
    """The CPU time of the worker between two readings. `one_lock`: only one thread runs at a time
    (Python's GIL), so all threads share the limit of one core."""
    seconds = max(after.at - before.at, 1e-9)
    user, system = after.user - before.user, after.system - before.system
    busiest = max((spent - before.threads.get(thread, 0.0)
                   for thread, spent in after.threads.items()), default=0.0)
    limiting = user + system if one_lock else busiest
    return Cpu(user, system, min(1.0, limiting / seconds))


def _threads() -> Dict[str, float]:
    return {thread: _seconds(thread) for thread in os.listdir('/proc/self/task')}


def _seconds(thread: str) -> float:
    try:
        with open('/proc/self/task/%s/stat' % thread) as stat:
            fields = stat.read().rpartition(')')[2].split()
    except OSError:
        return 0.0  # the thread has just ended
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


#: Seconds to wait for answers after the last operation was sent.
DRAIN_SECONDS = 10.0
#: Seconds to wait for answers if the step was cancelled.
CANCELLED_DRAIN_SECONDS = 1.0
#: Shortest pause between two checks: they use CPU time that the probe needs.
LEAST_SECONDS = 0.0005


class Stepping:
    """Runs the streams of one step, at most until `stop_at` (time.monotonic)."""

    def __init__(self, streams: Streams, timing: Timing, stop_at: float, commands: Input) -> None:
        self._streams, self._timing, self._stop_at, self._input = streams, timing, stop_at, commands
        self._cut_short = ''

    def run(self, measured: Callable[[], None]) -> StepResult:
        """Run the streams of a step until its time is over, and wait for their last operations. A
        cancellation, the time limit or errors cut it short. `measured` is called when the ramp is
        over."""
        self._streams.pace()
        self._until(self._timing.measure_from_ns)
        before = usage_now()
        measured()
        self._until(self._timing.end_ns)
        self._streams.stop()
        busy = cpu_between(before, usage_now(), one_lock=self._streams.engine == PYTHON_ENGINE)
        self._drain()
        return StepResult(tuple(self._streams.results()), busy.user, busy.system, busy.share,
                          busy.limited, self._streams.engine, self._why_cut_short())

    def _may_continue(self) -> bool:
        """Whether the streams of the step continue, in its ramp as well. Notes a cancellation and
        the time limit as the reason why they are cut short; _why_cut_short() adds errors."""
        now = time.monotonic()
        if self._input.cancelled.is_set():
            self._cut_short = self._input.reason
        elif now >= self._stop_at:
            self._cut_short = 'the time limit of the probe is reached'
        return not (self._cut_short or self._streams.ended()
                    or now * 1e9 >= self._timing.end_ns)

    def _until(self, until_ns: int) -> None:
        """Wait until this time (time.monotonic_ns), and send the operations that a fixed rate has
        delayed; not longer than the streams may continue."""
        while self._may_continue() and time.monotonic_ns() < until_ns:
            due_ns = self._streams.pace() or until_ns
            # `due_ns` may have passed: with `iodepth` operations in flight, none can be sent.
            pause = max((min(due_ns, until_ns) - time.monotonic_ns()) / 1e9, LEAST_SECONDS)
            self._input.cancelled.wait(min(pause, OBJECTS_LOOK_SECONDS))

    def _drain(self) -> None:
        """Wait for the answers to operations in flight, for DRAIN_SECONDS at most, or
        CANCELLED_DRAIN_SECONDS from a cancellation on: not beyond the time limit of the probe, but
        at least for a moment."""
        cancelled = self._input.cancelled.is_set()
        seconds = CANCELLED_DRAIN_SECONDS if cancelled else DRAIN_SECONDS
        until = min(time.monotonic() + seconds, max(self._stop_at, time.monotonic() + 0.2))
        while self._streams.in_flight() and time.monotonic() < until:
            time.sleep(0.002)
            if self._input.cancelled.is_set() and not cancelled:
                cancelled = True
                until = min(until, time.monotonic() + CANCELLED_DRAIN_SECONDS)

    def _why_cut_short(self) -> str:
        """Why the step has ended early, or without all answers; '': it has not."""
        open_operations = self._streams.in_flight()
        if not self._cut_short and open_operations:
            return 'operations without an answer: %d' % open_operations
        return self._cut_short or self._streams.why_given_up()


T = TypeVar('T')

#: Share of the limit that is reserved for removing the objects, and its maximum.
CLEANING_SHARE = 0.1
CLEANING_SECONDS_MAX = 10.0
#: Maximum time to remove the objects.
CLEANING_SECONDS = 10.0
#: Maximum time to remove the objects in a sweep, once it has the names; the limit of the sweep may
#: be for a long listing.
REMOVING_SECONDS_MAX = 120.0
#: Additional time for the second pass.
SECOND_PASS_SECONDS = 0.5


class Work:
    """Carries out one request. `began`: time.monotonic() at the start of the process; all times are
    on this clock."""

    def __init__(self, request: WorkerRequest, output: Output, commands: Input,
                 began: float) -> None:
        self._request, self._output, self._input = request, output, commands
        self._limit_at = began + request.limit_seconds
        self._stop_at = self._limit_at - min(CLEANING_SECONDS_MAX,
                                             CLEANING_SHARE * request.limit_seconds)
        #: Objects that may exist, in the order of writing.
        self._touched: Dict[str, None] = {}
        #: Objects that were prefilled, and their bytes.
        self._written: Dict[str, int] = {}
        #: The native engine; None: the Python engine.
        self._core: Optional[Core] = None
        #: Streams of the latest step; empty before the first one.
        self._latest_streams: List[Streams] = []
        #: The image that the steps measure; None: they measure objects.
        self._image: Optional[Image] = None
        #: The last call of _unless_cancelled, which may continue after a cancellation.
        self._librados_call: 'Future[Any]' = Future()

    def run(self) -> str:
        """Measure all steps and remove what was written, or sweep. Returns the final state: "done",
        "cancelled" or "failed". Raises Failed or Cancelled before anything is written."""
        sweeps = self._request.mode == SWEEP
        # Only a sweep that does not know the names lists the pool.
        options = LISTING_OPTIONS if sweeps and self._request.naming is None else {}
        connection = self._unless_cancelled(lambda: Connection(self._request, options))
        if sweeps:
            return self._sweep(connection.ioctx)
        if _on_image(self._request):
            librbd()  # raises Failed if it is missing
        self._core = self._unless_cancelled(lambda: _load_core(self._request))
        state = 'done'
        try:
            self._measure_all(connection)
        except Cancelled:
            state = 'cancelled'
        except Failed as e:
            self._output.error(e.errno, e)
            state = 'failed'
        finally:
            if self._request.leads and self._input.reason == GONE:
                # The process that would remove the object of the meeting has died.
                self._touched[self._request.meeting] = None
            self._clean(connection.ioctx, self._touched)
        return state

    def _unless_cancelled(self, call: Callable[[], T]) -> T:
        """Call librados in a thread, since it blocks if the cluster does not answer. Returns what
        `call` returns. Raises what it raises, and Cancelled, after which the call may continue."""
        self._librados_call = future = ThreadPoolExecutor().submit(call)
        while not future.done():
            if self._input.cancelled.is_set():
                raise Cancelled()
            wait([future], OBJECTS_LOOK_SECONDS)
        return future.result()

    def _sweep(self, ioctx: Any) -> str:
        """Remove the objects and images that another worker has left; names before the cursor of
        the request are gone. Without a naming, the pool is listed. Returns the final state:
        "failed" if some remain."""
        request = self._request
        names = list(all_names(request.naming)) if request.naming is not None else \
            self._unless_cancelled(lambda: names_with(ioctx, request.prefix))
        until = min(self._stop_at, time.monotonic() + REMOVING_SECONDS_MAX)
        cleaned = remove(ioctx, names[request.cursor:], until)
        if request.removes_images:
            cleaned = cleaned.plus(remove_images(ioctx, request.prefix, until))
        self._output.say('cleaned', removed=cleaned.removed, left=cleaned.remaining,
                         cursor=request.cursor + cleaned.first_gone, total=len(names))
        return 'failed' if cleaned.remaining else 'done'

    def _clean(self, ioctx: Any, names: Collection[str]) -> None:
        """Remove the objects and images of the run, and report how many are left. `names`: objects
        that may exist."""
        until = min(self._limit_at, time.monotonic() + CLEANING_SECONDS)
        had_open_operations = self._open_operations() > 0
        cleaned = remove(ioctx, names, until)
        # If objects remain, the sender has them swept later in any case.
        if had_open_operations and not cleaned.remaining:
            cleaned = self._clean_again(ioctx, names, until, cleaned)
        if self._request.removes_images:
            cleaned = cleaned.plus(self._remove_images(ioctx, until))
        self._output.say('cleaned', removed=cleaned.removed, left=cleaned.remaining)

    def _clean_again(self, ioctx: Any, names: Collection[str], until: float,
                     cleaned: Cleaned) -> Cleaned:
        """Remove the objects once more when no operation is in flight: the native engine has its
        own connection, so its writes may arrive after the removal, and recreate objects. `cleaned`:
        the result of the first removal."""
        while self._open_operations() and time.monotonic() < until:
            time.sleep(OBJECTS_LOOK_SECONDS)
        if self._open_operations():
            # Each may still recreate its object.
            return cleaned._replace(remaining=self._open_operations())
        later = remove(ioctx, names, until + SECOND_PASS_SECONDS)
        return Cleaned(cleaned.removed + later.removed, later.remaining)

    def _remove_images(self, ioctx: Any, until: float) -> Cleaned:
        """Remove the images of the run, unless operations on one are still open."""
        # A call that was cancelled may still be creating the image.
        wait([self._librados_call], max(0.0, until - time.monotonic()))
        if self._open_operations() or not self._librados_call.done():
            # To close the image would wait for these.
            return Cleaned(removed=0, remaining=1)
        if self._core is not None:
            self._core.close_image()
        if self._image is not None:
            self._image.close()
        return remove_images(ioctx, self._request.prefix, until)

    def _open_operations(self) -> int:
        """The number of operations in flight."""
        return sum(streams.in_flight() for streams in self._latest_streams)

    def _measure_all(self, connection: Connection) -> None:
        """Measure the steps one after the other, each with its objects written before. Raises
        Failed or Cancelled."""
        steps = self._request.steps
        if self._request.naming is not None:
            steps = with_objects(steps, self._request.naming)
        ioctx = connection.ioctx
        if _on_image(self._request):
            ioctx = self._create_image(connection, steps)
        largest = max((step.job.object_bytes for step in steps), default=0)
        payload = Payload(self._request.seed, largest)
        try:
            for index, step in enumerate(steps):
                self._prefill(ioctx, index, step, payload)
                if self._request.meeting:
                    self._wait_for_others(index)
                self._measure(ioctx, index, step, payload)
        finally:
            if self._core is not None and not self._open_operations():
                self._core.close_image()

    def _create_image(self, connection: Connection, steps: Sequence[JobStep]) -> Image:
        """Create the image that the steps measure, and open it, also in the native engine. Raises
        Failed or Cancelled."""
        name = self._request.prefix + 'image'
        # NAMESPACE, or the default namespace of a pool that is removed with the image.
        ioctx = connection.ioctx if self._request.removes_images else connection.open_pool()

        def create() -> Image:
            self._image = Image(ioctx, name, steps)
            return self._image

        # If the worker is killed from here on, its sender removes the image.
        self._output.say('step', index=0, state='prefill')
        image = self._unless_cancelled(create)
        if self._core is not None:
            core = self._core
            self._unless_cancelled(lambda: core.open_image(name, image.begin_of))
        return image

    def _prefill(self, ioctx: Any, index: int, step: JobStep, payload: Payload) -> None:
        """Write the objects of a step unless an earlier step has written them with this size. A
        step that only writes needs them as well: otherwise, its first repetition would create
        objects, and the others would overwrite them. Raises Failed or Cancelled."""
        object_bytes = step.job.object_bytes
        names = [name for stream in step.streams for name in stream.objects
                 if self._written.get(name) != object_bytes]
        if not names:
            return
        self._output.say('step', index=index, state='prefill')
        cancelled = self._input.cancelled.is_set
        if isinstance(ioctx, Image):
            ioctx.prefill(names, object_bytes, payload, self._stop_at, cancelled)
        else:
            self._touched.update(dict.fromkeys(names))
            prefill(ioctx, names, object_bytes, payload, self._stop_at, cancelled)
        self._written.update(dict.fromkeys(names, object_bytes))

    def _wait_for_others(self, index: int) -> None:
        """Wait until all hosts of a meeting begin a step. Raises Failed or Cancelled."""
        self._output.say('step', index=index, state=STEP_WAITS)
        if not self._input.wait_to_begin(index, self._stop_at - time.monotonic()):
            raise Failed(errno.ETIMEDOUT, 'the other hosts did not begin in time')
        if self._input.cancelled.is_set():
            raise Cancelled()

    def _measure(self, ioctx: Any, index: int, step: JobStep, payload: Payload) -> None:
        """Measure one step and send its result. Raises Failed at the time limit, and if operations
        have no answer: later steps would count them as well."""
        if self._input.cancelled.is_set():
            raise Cancelled()
        # The streams of the previous step are kept until now, because _clean counts their open
        # operations if no step follows.
        for streams in self._latest_streams:
            streams.free()
        self._latest_streams = []
        timing = _timing(step)
        streams = self._streams(ioctx, step, payload, timing, index)
        self._latest_streams = [streams]
        if step.job.ramp_time:
            self._output.say('step', index=index, state='ramp')
        stepping = Stepping(streams, timing, self._stop_at, self._input)
        result = stepping.run(lambda: self._output.say('step', index=index, state='run'))
        # Hosts that measure together merge their latency counts.
        self._output.say('result', index=index, result=encode(
            result if self._request.meeting else result.with_directions(_without_counts)))
        if self._input.cancelled.is_set():
            raise Cancelled()
        if result.cut_short:
            raise Failed(errno.EIO if streams.why_given_up() else errno.ETIMEDOUT,
                         'job %s: %s' % (step.job.name, result.cut_short))

    def _streams(self, ioctx: Any, step: JobStep, payload: Payload, timing: Timing,
                 index: int) -> Streams:
        """The streams of a step, by the native engine, or by the Python engine without it."""
        seed = self._request.seed + index
        if self._core is not None:
            return native_streams(self._core, step, payload, timing, seed)
        return python_streams(ioctx, step, payload, timing, seed)


def _without_counts(direction: Direction) -> Direction:
    return replace(direction, counts=())


def _on_image(request: WorkerRequest) -> bool:
    return any(step.job.ioengine == RBD for step in request.steps)


def _load_core(request: WorkerRequest) -> Optional[Core]:
    """The library of the native engine; None: use the Python engine. Raises Failed if the native
    engine is required but missing."""
    if request.engine == PYTHON_ENGINE:
        return None
    try:
        return Core(request, _on_image(request))
    except Failed:
        if request.engine == NATIVE_ENGINE:
            raise
        return None


def _timing(step: JobStep) -> Timing:
    now_ns = time.monotonic_ns()
    measure_from_ns = now_ns + round(1e9 * step.job.ramp_time)
    return Timing(now_ns, measure_from_ns, measure_from_ns + round(1e9 * step.job.runtime))


# ---- A worker's life: a request on standard input, lines of JSON on standard output

#: Seconds after its limit at which the process ends itself, and at which the kernel kills it.
PROCESS_LATE_SECONDS = 1.2
KILL_SECONDS = 1.8
#: From -1000 (never) to 1000 (first); raising it requires no privilege.
OOM_SCORE = '900'


def main() -> None:
    """The process of the worker: read the request, carry it out, and end with its state. Errors are
    reported as lines."""
    began = time.monotonic()
    _be_killed_first()
    output, commands = Output(), Input()
    _handle_signals(commands)
    state = 'failed'
    try:
        request = request_from_json(commands.request())
        _limit_lifetime(output, request.limit_seconds)
        if request.silence_seconds:
            commands.watch(request.silence_seconds, output)
        state = Work(request, output, commands, began).run()
    except Cancelled:
        state = 'cancelled'
    except BadJob as e:
        output.error(errno.EINVAL, e)
    except Failed as e:
        output.error(e.errno, e)
    except ValueError as e:
        output.error(errno.EINVAL, 'bad request: %s' % e)
    except Exception as e:
        traceback.print_exc()
        output.error(errno.EIO, '%s: %s' % (type(e).__name__, e))
    finish(output, state)


def _be_killed_first() -> None:
    """If memory runs out, the probe is killed before mgr and OSDs on the same host."""
    try:
        with open('/proc/self/oom_score_adj', 'w') as file:
            file.write(OOM_SCORE)
    except OSError:
        pass  # not supported; nothing else depends on it


def _handle_signals(commands: Input) -> None:
    """SIGTERM cancels; signals from a terminal are ignored."""
    def terminated(number: int, frame: Optional[FrameType]) -> None:
        # In a thread, because this one may hold the lock that cancelling requires.
        threading.Thread(target=commands.cancel, args=('terminated',), daemon=True).start()

    signal.signal(signal.SIGTERM, terminated)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _limit_lifetime(output: Output, limit_seconds: float) -> None:
    """End the process in time, by a thread and, if that hangs, by the kernel."""
    def late() -> None:
        output.error(errno.ETIMEDOUT, 'not completed within %g s' % limit_seconds)
        finish(output, 'failed')

    timer = threading.Timer(limit_seconds + PROCESS_LATE_SECONDS, late)
    timer.daemon = True
    timer.start()
    signal.setitimer(signal.ITIMER_REAL, limit_seconds + KILL_SECONDS)
