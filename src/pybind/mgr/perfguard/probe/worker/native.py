# SPDX-License-Identifier: LGPL-2.1-or-later
"""The native engine: drives core.c, which declares the same structures."""
import ctypes
import errno
import os
import random
from ctypes import POINTER, Structure, c_char_p, c_double, c_int64, c_uint64, c_void_p
from typing import Any, Mapping, Optional

from ..histogram import BUCKETS
from ..types import NAMESPACE, RANDOM, Job, JobStep, Stream, StreamResult
from .build import CORE
from .connection import LIBRARY, conf_path, settings
from .engine import ERRORS_MAX, SECOND_NS, Streams, Tally, Timing
from .objects import Payload
from .protocol import Failed, WorkerRequest, words

NATIVE_ENGINE = 'native'
#: As in core.c.
CORE_VERSION = 3
RBD_LIBRARY = 'librbd.so.1'
#: Seconds after the measurement for which answers are counted per second.
COUNTED_LATE_SECONDS = 30


class _Tally(Structure):
    _fields_ = [(name, c_uint64) for name in ('ios', 'bytes', 'least', 'most', 'last_ns')] + [
        ('total', c_double), ('squares', c_double), ('counts', c_uint64 * BUCKETS),
        ('rows', POINTER(c_uint64))]


class _Job(Structure):
    _fields_ = [(name, c_uint64) for name in (
        'bs', 'iodepth', 'blocks', 'objects', 'rate_iops', 'io_size', 'errors_max', 'read_share',
        'is_random', 'seconds', 'is_whole', 'begin_ns', 'measure_ns', 'end_ns')]


class _Stream(Structure):
    _fields_ = [('tally', _Tally * 2), ('errors', c_uint64), ('corrupt', c_uint64),
                ('in_flight', c_uint64), ('ended', c_uint64), ('ended_ns', c_uint64),
                ('refused', c_uint64), ('first_error', c_int64), ('first_error_is_read', c_int64)]


class Core:
    """The compiled core with its own connection. Raises Failed if it is not available.

    `on_image`: ranges of an image take the place of objects.
    """

    def __init__(self, request: WorkerRequest, on_image: bool = False) -> None:
        #: Handle of the open image; NULL: none.
        self.image = c_void_p()
        #: Object -> where its range begins, as an offset in the open image.
        self.begin_of: Mapping[str, int] = {}
        self.library = _load(os.path.join(os.path.dirname(os.path.abspath(__file__)), CORE))
        if on_image and self.library.core_load_rbd(RBD_LIBRARY.encode()) < 0:
            raise Failed(errno.ENOENT,
                         'no native engine: %s lacks required functions' % RBD_LIBRARY)
        # An image of the probe's own pool is removed with the pool, so it needs no namespace.
        namespace = '' if on_image and not request.removes_images else NAMESPACE
        names_and_values = [text.encode() for pair in settings(request).items() for text in pair]
        self.ioctx = c_void_p()
        returned = self.library.core_connect(
            conf_path(request).encode(), request.entity.encode(),
            (c_char_p * len(names_and_values))(*names_and_values), len(names_and_values) // 2,
            request.pool.encode(), namespace.encode(), ctypes.byref(self.ioctx))
        if returned < 0:
            raise Failed(-returned, 'no connection to the cluster: %s' % words(returned))

    def open_image(self, name: str, begin_of: Mapping[str, int]) -> None:
        """Use an existing image for the next streams; only with `on_image`. `begin_of`: object ->
        where its range begins. Raises Failed."""
        returned = self.library.core_open_image(self.ioctx, name.encode(), ctypes.byref(self.image))
        if returned < 0:
            raise Failed(-returned, 'image %s: %s' % (name, words(returned)))
        self.begin_of = begin_of

    def close_image(self) -> None:
        """Only where nothing is in flight: it would wait for that."""
        if self.image:
            self.library.core_close_image(self.image)
            self.image = c_void_p()


def _load(path: str) -> Any:
    """The library of the native engine, with the types of its functions. Raises Failed if it is
    missing, of another version, or finds no librados."""
    try:
        library = ctypes.CDLL(path)
    except OSError as e:
        raise Failed(2, 'no native engine: %s' % e)
    _check_layout(library)
    library.core_stream.restype = POINTER(_Stream)
    library.core_stream.argtypes = [
        c_void_p, c_void_p, POINTER(_Job), POINTER(c_char_p), POINTER(c_uint64), c_char_p,
        POINTER(c_uint64), c_uint64]
    library.core_open_image.argtypes = [c_void_p, c_char_p, POINTER(c_void_p)]
    library.core_close_image.argtypes = [c_void_p]
    library.core_pace.restype = c_uint64
    library.core_connect.argtypes = [c_char_p, c_char_p, POINTER(c_char_p), ctypes.c_size_t,
                                     c_char_p, c_char_p, POINTER(c_void_p)]
    if library.core_load(LIBRARY.encode()) < 0:
        raise Failed(2, 'no native engine: %s lacks required functions' % LIBRARY)
    return library


def _check_layout(library: Any) -> None:
    """Raise Failed for a core of another version, which would corrupt memory."""
    expected = [CORE_VERSION, ctypes.sizeof(_Tally), ctypes.sizeof(_Job), ctypes.sizeof(_Stream)]
    actual = (c_uint64 * len(expected))()
    try:
        library.core_layout(actual)
    except AttributeError:
        pass  # older than the version check
    if list(actual) != expected:
        raise Failed(2, 'no native engine: %s has version %s, not %s' % (
            CORE, list(actual), expected))


def _job(job: Job, objects: int, timing: Timing) -> _Job:
    """The job of a stream as core.c takes it: the share of reads is from 0 to 2^32, and `seconds`
    include those in which late answers are counted."""
    share = job.rwmixread / 100 if job.reads and job.writes else float(job.reads)
    seconds = -(-(timing.end_ns - timing.measure_from_ns) // SECOND_NS) + COUNTED_LATE_SECONDS
    return _Job(job.bs, job.iodepth, job.object_bytes // job.bs, objects, job.rate_iops,
                job.io_size, ERRORS_MAX, round(share * (1 << 32)), job.rw in RANDOM, seconds,
                job.bs == job.object_bytes, *timing)


class _NativeStream:
    """One stream. Its buffers must exist while operations are in flight."""

    def __init__(self, core: Core, job: Job, stream: Stream, payload: Payload, timing: Timing,
                 seed: int) -> None:
        self._library, self._job, self._name = core.library, job, stream.name
        self._measure_from_ns = timing.measure_from_ns
        number = len(stream.objects)
        self._settings = _job(job, number, timing)
        self._names = (c_char_p * number)(*[name.encode() for name in stream.objects])
        # Where in `base` the content of each object begins, and, if there is an image, where in the
        # image its range begins.
        self._starts = (c_uint64 * number)(*map(payload.start, stream.objects))
        self._base = payload.base
        self._begins = (c_uint64 * number)(
            *(core.begin_of[name] for name in stream.objects)) if core.image else None
        self._stream = core.library.core_stream(
            core.ioctx, core.image, ctypes.byref(self._settings), self._names, self._begins,
            self._base, self._starts, seed)
        if not self._stream:
            raise Failed(12, 'no memory for %d operations in flight' % job.iodepth)

    @property
    def counters(self) -> Any:
        """The counters of the core, which may change at any time."""
        return self._stream.contents

    @property
    def ended(self) -> bool:
        return bool(self.counters.ended)

    @property
    def in_flight(self) -> int:
        return int(self.counters.in_flight)

    @property
    def errors(self) -> int:
        return int(self.counters.errors)

    @property
    def refused(self) -> bool:
        return bool(self.counters.refused)

    def pace(self) -> Optional[int]:
        return int(self._library.core_pace(self._stream)) or None

    def stop(self) -> None:
        self._library.core_stop(self._stream)

    def free(self) -> None:
        if not self.in_flight:
            self._library.core_free(self._stream)

    @property
    def first_error(self) -> str:
        """The first error as text; '': there was none."""
        state = self.counters
        if not state.errors:
            return ''
        direction = 'read' if state.first_error_is_read else 'write'
        if state.first_error >= 0:  # returned by a read that was too short
            return '%s: %d bytes instead of %d' % (direction, state.first_error, self._job.bs)
        return '%s: %s' % (direction, words(state.first_error))

    def result(self) -> StreamResult:
        """What the stream has measured so far."""
        self._library.core_lock(self._stream)
        try:
            state, empty = self.counters, StreamResult('')
            ended_ns = state.ended_ns - self._measure_from_ns
            return StreamResult(
                self._name,
                self._tally(is_read=True).direction(ended_ns) if self._job.reads else empty.read,
                self._tally(is_read=False).direction(ended_ns) if self._job.writes else empty.write,
                state.errors, state.corrupt, state.in_flight, self.first_error)
        finally:
            self._library.core_unlock(self._stream)

    def _tally(self, is_read: bool) -> Tally:
        """A copy of the counters of one direction; the caller holds the lock."""
        counted, tally = self.counters.tally[is_read], Tally()
        for name in ('ios', 'bytes', 'least', 'most', 'last_ns', 'total', 'squares'):
            setattr(tally, name, getattr(counted, name))
        tally.counts = list(counted.counts)
        tally.rows = [counted.rows[3 * n:3 * n + 3] for n in range(self._settings.seconds)]
        return tally


def native_streams(core: Core, step: JobStep, payload: Payload, timing: Timing,
                   seed: int) -> Streams:
    seeds = random.Random(seed)
    return Streams(NATIVE_ENGINE, [
        _NativeStream(core, step.job, stream, payload, timing, seeds.getrandbits(63))
        for stream in step.streams])
