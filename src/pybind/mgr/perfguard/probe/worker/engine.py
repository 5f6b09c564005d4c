# SPDX-License-Identifier: LGPL-2.1-or-later
"""The Python engine: each completed operation sends the next one."""
import functools
import random
import threading
import time
from typing import Any, Callable, List, NamedTuple, Optional, Protocol, Sequence, Tuple

import rados

from ..histogram import BUCKETS, bucket_of, quantiles
from ..types import RANDOM, Direction, Job, JobStep, Second, Stream, StreamResult
from .connection import failed
from .objects import Payload
from .protocol import words

SECOND_NS = 1_000_000_000


class Tally:
    """The counters of one direction of one stream, of operations that were sent in the measurement;
    times in ns since its start."""

    def __init__(self) -> None:
        self.ios = 0
        self.bytes = 0
        #: Of latencies in ns: minimum, maximum, sum, sum of squares, histogram.
        self.least = 0
        self.most = 0
        self.total: float = 0
        self.squares: float = 0
        self.counts: Sequence[int] = [0] * BUCKETS
        #: By second: operations, bytes, sum of latencies.
        self.rows: List[List[int]] = []
        self.last_ns = 0

    def add(self, latency_ns: int, end_ns: int, length: int) -> None:
        """Count an operation that was answered at `end_ns`. Only for the Python engine, whose
        `counts` is a list."""
        self.least = min(self.least, latency_ns) if self.ios else latency_ns
        self.most = max(self.most, latency_ns)
        self.ios += 1
        self.bytes += length
        self.total += latency_ns
        self.squares += latency_ns * latency_ns
        self.counts[bucket_of(latency_ns)] += 1  # type: ignore[index]
        self.last_ns = max(self.last_ns, end_ns)
        row = self._row(end_ns // SECOND_NS)
        row[0] += 1
        row[1] += length
        row[2] += latency_ns

    def direction(self, ended_ns: int) -> Direction:
        """What was measured. `ended_ns`: when the stream stopped sending operations; negative: in
        its ramp. The time until then counts even without answers: a cluster that does not answer is
        slow."""
        runtime_ns = max(ended_ns, self.last_ns, 0)
        latency = quantiles(self.counts, self.least, self.most, self.total,
                            self.squares) if self.ios else None
        return Direction(self.ios, self.bytes, runtime_ns, latency, self._seconds(runtime_ns),
                         tuple((bucket, number) for bucket, number in enumerate(self.counts)
                               if number))

    def _seconds(self, runtime_ns: int) -> Tuple[Second, ...]:
        """The seconds of the measured time, those without operations included; the last one may be
        shorter."""
        number = -(-runtime_ns // SECOND_NS)
        rows = [*self.rows, *[[0, 0, 0]] * number][:number]
        return tuple(Second(min(n * SECOND_NS, runtime_ns) / SECOND_NS, *row)
                     for n, row in enumerate(rows, 1))

    def _row(self, number: int) -> List[int]:
        while len(self.rows) <= number:
            self.rows.append([0, 0, 0])
        return self.rows[number]


# ---- The engine

class Operation(NamedTuple):
    is_read: bool
    #: Index among the stream's objects.
    number: int
    offset: int


class Offsets:
    """The sequence of operations of one stream; not thread-safe.

    Sequential: all blocks of an object, then those of the next; after the last object, the first
    one again. Random: any block of any object. An incomplete block at the end is not used.
    """

    def __init__(self, job: Job, objects: int, seed: int) -> None:
        self._bs = job.bs
        self._blocks_per_object = job.object_bytes // job.bs
        self._blocks_in_all = self._blocks_per_object * objects
        self._random = random.Random(seed)
        self._is_random = job.rw in RANDOM
        self._read_share = (job.rwmixread / 100 if job.reads and job.writes
                            else 1.0 if job.reads else 0.0)
        self._next_block = 0

    def next(self) -> Operation:
        number, block = divmod(self._block(), self._blocks_per_object)
        return Operation(self._reads(), number, block * self._bs)

    def _block(self) -> int:
        if self._is_random:
            return int(self._random.random() * self._blocks_in_all)
        block = self._next_block
        self._next_block = (block + 1) % self._blocks_in_all
        return block

    def _reads(self) -> bool:
        share = self._read_share
        return share == 1.0 or share > 0.0 and self._random.random() < share


#: Errors after which a stream gives up.
ERRORS_MAX = 100

PYTHON_ENGINE = 'python'


class Timing(NamedTuple):
    """time.monotonic_ns() of the first operation, of the start of the measurement, of its end."""
    begin_ns: int
    measure_from_ns: int
    end_ns: int


class PythonStream:
    """One stream: it keeps `iodepth` operations in flight.

    Callbacks run in threads of librados, so a lock protects the state.
    """

    def __init__(self, ioctx: Any, job: Job, stream: Stream, payload: Payload, timing: Timing,
                 seed: int) -> None:
        self._ioctx, self._job, self._stream, self._timing = ioctx, job, stream, timing
        self._offsets = Offsets(job, len(stream.objects), seed)
        #: The contents of all objects, and where those of each begin.
        self._base = payload.base
        self._starts = [payload.start(name) for name in stream.objects]
        self._lock = threading.Lock()
        self.in_flight = 0
        #: Numbers of operations.
        self._sent = self._sent_after_ramp = 0
        #: When it stopped sending operations, as Timing; None: it sends them.
        self._ended_ns: Optional[int] = None
        self.errors = self._corrupt = 0
        self.first_error = ''
        self.refused = False
        self.read, self.write = Tally(), Tally()

    def pace(self) -> Optional[int]:
        """As in EngineStream."""
        while self._send_next():
            pass
        return self._due_ns() if self._job.rate_iops and not self.ended else None

    def stop(self) -> None:
        with self._lock:
            self._end(time.monotonic_ns())

    @property
    def ended(self) -> bool:
        return self._ended_ns is not None

    def free(self) -> None:
        """Nothing to do: callbacks reference what they need."""

    def result(self) -> StreamResult:
        """What the stream has measured so far."""
        with self._lock:
            # Since the start of the measurement; negative for a stream that has not ended.
            ended_ns = (self._ended_ns or 0) - self._timing.measure_from_ns
            nothing = StreamResult('')
            return StreamResult(
                self._stream.name,
                self.read.direction(ended_ns) if self._job.reads else nothing.read,
                self.write.direction(ended_ns) if self._job.writes else nothing.write,
                self.errors, self._corrupt, self.in_flight, self.first_error)

    def _due_ns(self) -> int:
        """When the rate allows the next operation, as Timing; only with a rate."""
        return self._timing.begin_ns + self._sent * SECOND_NS // self._job.rate_iops

    def _end(self, now_ns: int) -> None:
        if self._ended_ns is None:
            self._ended_ns = now_ns

    def _send_next(self) -> bool:
        """Send one operation, if one may be sent now. Returns whether it was sent."""
        now_ns = time.monotonic_ns()
        with self._lock:
            operation = self._next_operation(now_ns)
        return operation is not None and self._send(operation)

    def _next_operation(self, now_ns: int) -> Optional[Operation]:
        """The next operation, which counts as sent; None: none may be sent now. Ends the stream if
        its time is over, io_size is reached, or too many operations have failed. The caller holds
        the lock."""
        job = self._job
        if self._ended_ns is not None or self.in_flight >= job.iodepth:
            return None
        if (now_ns >= self._timing.end_ns or self.errors >= ERRORS_MAX
                or job.io_size and (self._sent_after_ramp + 1) * job.bs > job.io_size):
            self._end(now_ns)
            return None
        if job.rate_iops and now_ns < self._due_ns():
            return None
        self._sent += 1
        self._sent_after_ramp += now_ns >= self._timing.measure_from_ns
        self.in_flight += 1
        return self._offsets.next()

    def _send(self, operation: Operation) -> bool:
        """Send an operation. Returns False if librados refuses it, which ends the stream."""
        is_read, number, offset = operation
        name = self._stream.objects[number]
        begin = self._starts[number] + offset
        start_ns = time.monotonic_ns()
        try:
            if is_read:
                self._ioctx.aio_read(name, self._job.bs, offset, functools.partial(
                    self._read_done, start_ns, begin))
            else:
                self._write(name, self._base[begin:begin + self._job.bs], offset,
                            functools.partial(self._write_done, start_ns))
        except rados.Error as e:
            # librados itself refused; a retry is useless.
            self._note_refused(str(failed(e, 'not sent')))
            return False
        return True

    def _write(self, name: str, data: bytes, offset: int, done: Callable[[Any], None]) -> None:
        if len(data) == self._job.object_bytes:
            # Equivalent in a replicated pool. An erasure-coded pool without overwrites accepts no
            # other write.
            self._ioctx.aio_write_full(name, data, done)
        else:
            self._ioctx.aio_write(name, data, offset, done)

    def _note_refused(self, text: str) -> None:
        with self._lock:
            self.in_flight -= 1
            self.refused = True
            self._note_error(text)
            self._end(time.monotonic_ns())

    def _read_done(self, start_ns: int, begin: int, completion: Any, data: Any) -> None:
        """The callback of a read: check its data, and count it. `begin`: where in the contents of
        all objects the expected data begin."""
        end_ns = time.monotonic_ns()
        returned = completion.get_return_value()
        error, is_intact = '', True
        if returned < 0:
            error = 'read: %s' % words(returned)
        elif returned != self._job.bs:
            error = 'read: %d bytes instead of %d' % (returned, self._job.bs)
        else:
            # Compares with the expected content in place, without a copy of it.
            is_intact = self._base.startswith(data, begin)
        self._done(self.read, start_ns, end_ns, error, is_intact)

    def _write_done(self, start_ns: int, completion: Any) -> None:
        end_ns = time.monotonic_ns()
        returned = completion.get_return_value()
        self._done(self.write, start_ns, end_ns,
                   'write: %s' % words(returned) if returned < 0 else '', is_intact=True)

    def _done(self, tally: Tally, start_ns: int, end_ns: int, error: str,
              is_intact: bool) -> None:
        """Count a completed operation, unless it was sent in the ramp, and send the next one. A
        failed one only counts as an error. `error`: '': it has succeeded."""
        measure_from_ns = self._timing.measure_from_ns
        with self._lock:
            self.in_flight -= 1
            self._corrupt += not is_intact
            if error:
                self._note_error(error)
            elif start_ns >= measure_from_ns:
                tally.add(end_ns - start_ns, end_ns - measure_from_ns, self._job.bs)
            operation = self._next_operation(time.monotonic_ns())
        if operation is not None:
            self._send(operation)

    def _note_error(self, text: str) -> None:
        self.errors += 1
        self.first_error = self.first_error or text


class EngineStream(Protocol):
    """One stream in an engine."""

    @property
    def ended(self) -> bool: ...

    @property
    def in_flight(self) -> int: ...

    @property
    def errors(self) -> int: ...

    @property
    def first_error(self) -> str: ...

    @property
    def refused(self) -> bool:
        """Whether it has ended because the client library refused to send an operation."""

    def pace(self) -> Optional[int]:
        """Send all operations that may be sent now. Returns the time in ns when the next one is
        due; None without a rate, or after the end."""

    def stop(self) -> None:
        """Send no further operation."""

    def result(self) -> StreamResult: ...

    def free(self) -> None:
        """Free the memory, unless operations are in flight."""


class Streams:
    """All streams of a step."""

    def __init__(self, engine: str, streams: Sequence[EngineStream]) -> None:
        self.engine = engine
        self._streams = streams

    def pace(self) -> Optional[int]:
        """Send all operations that may be sent now. Returns the time in ns (time.monotonic_ns) when
        the next one is due; None without a rate, or after the end."""
        return min(filter(None, [stream.pace() for stream in self._streams]), default=None)

    def stop(self) -> None:
        for stream in self._streams:
            stream.stop()

    def ended(self) -> bool:
        return all(stream.ended for stream in self._streams)

    def in_flight(self) -> int:
        return sum(stream.in_flight for stream in self._streams)

    def why_given_up(self) -> str:
        """The errors of the first stream that has ended because it had too many, or because an
        operation was refused; '': none has."""
        return next(('%s; first error: %s' % (
            'operation refused' if stream.refused else '%d failed operations' % stream.errors,
            stream.first_error) for stream in self._streams
            if stream.refused or stream.errors >= ERRORS_MAX), '')

    def results(self) -> List[StreamResult]:
        return [stream.result() for stream in self._streams]

    def free(self) -> None:
        for stream in self._streams:
            stream.free()


def python_streams(ioctx: Any, step: JobStep, payload: Payload, timing: Timing,
                   seed: int) -> Streams:
    seeds = random.Random(seed)
    return Streams(PYTHON_ENGINE, [
        PythonStream(ioctx, step.job, stream, payload, timing, seeds.getrandbits(32))
        for stream in step.streams])
