# SPDX-License-Identifier: LGPL-2.1-or-later
"""The objects of a run: their contents, writing them before the measurements, and removing them.

With ioengine=rbd, ranges of an image take their place.
"""
import errno
import functools
import itertools
import random
import threading
import time
from typing import (Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence,
                    Tuple)
from zlib import crc32

import rados

from ..types import JobStep
from .connection import failed
from .protocol import Cancelled, Failed, words

#: Sends one operation with this callback of its completion.
Send = Callable[[Callable[..., None]], Any]
#: Seconds between two checks for a cancellation.
OBJECTS_LOOK_SECONDS = 0.05


class Batch:
    """Keeps up to `in_flight` operations in flight until a deadline (time.monotonic)."""

    def __init__(self, in_flight: int, deadline: float,
                 cancelled: Callable[[], bool] = lambda: False) -> None:
        self._max_in_flight = in_flight
        self._deadline = deadline
        self._cancelled = cancelled
        self._changed = threading.Condition()
        self._open = 0
        #: Label and return value of the first operation that failed.
        self.failure: Optional[Tuple[str, int]] = None
        #: Label -> return value of the operation.
        self.returned: Dict[str, int] = {}
        #: Label -> other arguments of the callback.
        self.values: Dict[str, Any] = {}

    def submit(self, label: str, send: Send) -> None:
        """Send an operation, once fewer than the maximum are in flight. Raises Failed (ETIMEDOUT)
        or Cancelled."""
        self._wait(self._max_in_flight - 1)
        with self._changed:
            self._open += 1

        def done(completion: Any, *values: Any) -> None:
            self._note(label, completion.get_return_value(), values)

        try:
            send(done)
        except Exception as e:
            # librados itself refused; its errors have an errno but no base class in Python.
            self._note(label, -abs(getattr(e, 'errno', None) or errno.EIO), ())

    def _note(self, label: str, returned: int, values: Any) -> None:
        """Note the end of an operation, which has returned an errno below 0 if it failed."""
        with self._changed:
            self._open -= 1
            self.returned[label] = returned
            self.values[label] = values
            if returned < 0 and self.failure is None:
                self.failure = label, returned
            self._changed.notify()

    def finish(self) -> None:
        """Wait for all. Raises Failed (ETIMEDOUT) or Cancelled."""
        self._wait(0)

    def _wait(self, open_at_most: int) -> None:
        """Wait until at most so many operations are open. Raises Cancelled, or Failed at the
        deadline."""
        with self._changed:
            while self._open > open_at_most:
                if self._cancelled():
                    raise Cancelled()
                seconds_left = self._deadline - time.monotonic()
                if seconds_left <= 0:
                    raise Failed(errno.ETIMEDOUT,
                                 'operations without an answer in time: %d' % self._open)
                self._changed.wait(min(seconds_left, OBJECTS_LOOK_SECONDS))


# ---- Contents, which depend on the seed, the name of the object and the offset

#: Objects begin at different offsets of the random bytes, so that exchanged objects are noticed.
SPAN = 1 << 20
STEP = 64


class Payload:
    """The contents of all objects of up to `object_bytes` of a run."""

    def __init__(self, seed: int, object_bytes: int) -> None:
        self.base = random.Random(seed).randbytes(object_bytes + SPAN)

    @staticmethod
    def start(name: str) -> int:
        """Where in `base` the object's content begins."""
        return crc32(name.encode()) % (SPAN // STEP) * STEP

    def slice(self, name: str, offset: int, length: int) -> bytes:
        begin = self.start(name) + offset
        return self.base[begin:begin + length]


# ---- Prefill: reading a nonexistent object is too fast

CHUNK_BYTES = 4 << 20
IN_FLIGHT = 16


def prefill(ioctx: Any, names: Sequence[str], object_bytes: int, payload: Payload,
            deadline: float, cancelled: Callable[[], bool]) -> None:
    """Write whole objects, and check their sizes. `deadline`: time.monotonic(). Raises Failed or
    Cancelled."""
    write_all(ioctx, names, object_bytes, payload, Batch(IN_FLIGHT, deadline, cancelled))
    _check(ioctx, names, object_bytes, Batch(IN_FLIGHT, deadline, cancelled))


def write_all(ioctx: Any, names: Sequence[str], object_bytes: int, payload: Payload,
              batch: Batch) -> None:
    """Write whole objects. Raises Failed or Cancelled."""
    for name, offset, length in _chunks(names, object_bytes):
        data = payload.slice(name, offset, length)
        if length == object_bytes:
            # Erasure coded pools without overwrites accept nothing else.
            send = functools.partial(ioctx.aio_write_full, name, data)
        else:
            send = functools.partial(ioctx.aio_write, name, data, offset)
        batch.submit('%s at %d' % (name, offset), send)
        _raise_first(batch, 'prefill')
    batch.finish()
    _raise_first(batch, 'prefill')


def _chunks(names: Sequence[str], object_bytes: int) -> Iterator[Tuple[str, int, int]]:
    """(object, offset, length) of chunks of all objects in turn, so that many OSDs are busy; in
    order for each object."""
    for offset in range(0, object_bytes, CHUNK_BYTES):
        for name in names:
            yield name, offset, min(CHUNK_BYTES, object_bytes - offset)


def _check(ioctx: Any, names: Sequence[str], object_bytes: int, batch: Batch) -> None:
    """Raise Failed unless all objects exist with this size."""
    for name in names:
        batch.submit(name, functools.partial(ioctx.aio_stat, name))
    batch.finish()
    _raise_first(batch, 'stat')
    for name in names:
        size = batch.values[name][0]
        if size != object_bytes:
            raise Failed(5, 'prefill: %s has %s bytes instead of %d' % (name, size, object_bytes))


def _raise_first(batch: Batch, subject: str) -> None:
    if batch.failure is not None:
        label, code = batch.failure
        raise Failed(code, '%s of %s: %s' % (subject, label, words(code)))


# ---- An image instead of objects

MISSING = ('ioengine=rbd requires the Python binding of librbd on the host of the worker: install '
           'the package python3-rbd there (%s)')
NO_NAMESPACE = 'the pool has no namespace %s for images: create it with "rbd namespace create"'


class Image:
    """Creates and opens an image, with a range for each object of these steps. Raises Failed. Has
    the methods of an ioctx that the Python engine uses."""

    def __init__(self, ioctx: Any, name: str, steps: Iterable[JobStep]) -> None:
        rbd = librbd()
        self._error = rbd.Error
        #: Object -> where its range begins, as an offset in the image.
        self.begin_of: Dict[str, int] = {}
        size = 0
        for step in steps:
            objects = (stream.objects for stream in step.streams)
            for object_name in itertools.chain.from_iterable(objects):
                if object_name not in self.begin_of:
                    self.begin_of[object_name] = size
                    size += step.job.object_bytes
        try:
            # Features, order and striping are those of the cluster's other new images.
            rbd.RBD().create(ioctx, name, size, old_format=False)
            self._image = rbd.Image(ioctx, name)
        except rbd.ImageNotFound:
            raise Failed(errno.ENOENT, NO_NAMESPACE % ioctx.nspace)
        except rbd.Error as e:
            raise failed(e, 'image %s' % name)

    def close(self) -> None:
        """Only where nothing is in flight: it would wait for that."""
        self._image.close()

    def prefill(self, names: Sequence[str], length: int, payload: Payload, deadline: float,
                cancelled: Callable[[], bool]) -> None:
        """Write the ranges of these objects: reading what was never written needs no OSD. Raises
        Failed or Cancelled."""
        write_all(self, names, length, payload, Batch(IN_FLIGHT, deadline, cancelled))

    def aio_read(self, name: str, length: int, offset: int, oncomplete: Any) -> None:
        self._send(self._image.aio_read, self.begin_of[name] + offset, length, oncomplete)

    def aio_write(self, name: str, data: bytes, offset: int, oncomplete: Any) -> None:
        self._send(self._image.aio_write, data, self.begin_of[name] + offset, oncomplete)

    def aio_write_full(self, name: str, data: bytes, oncomplete: Any) -> None:
        self.aio_write(name, data, 0, oncomplete)

    def _send(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Raises rados.Error, as an ioctx does."""
        try:
            call(*arguments)
        except self._error as e:
            raise rados.OSError('librbd', errno=getattr(e, 'errno', errno.EIO)) from e


def librbd() -> Any:
    """The binding. Raises Failed."""
    try:
        import rbd
    except ImportError as e:
        raise Failed(errno.ENOTSUP, MISSING % e)
    return rbd


# ---- Removing the objects of a run, also of one whose worker was killed

#: Operations in flight; if an OSD hangs, further ones are sent after OBJECT_BATCH_SECONDS.
BATCH = 256
OBJECT_BATCH_SECONDS = 2.0


class Cleaned(NamedTuple):
    """The result of removing objects or images."""
    removed: int
    #: Objects that exist and could not be removed.
    remaining: int
    #: Number of the first names that are certainly gone.
    first_gone: int = 0

    def plus(self, images: 'Cleaned') -> 'Cleaned':
        return self._replace(removed=self.removed + images.removed,
                             remaining=self.remaining + images.remaining)


def remove(ioctx: Any, names: Iterable[str], deadline: float) -> Cleaned:
    """Remove objects until `deadline` (time.monotonic()). One that does not exist counts neither as
    removed nor as remaining; one without an answer, or not tried, counts as remaining."""
    batches: List[Tuple[Batch, List[str]]] = []
    untried = 0
    for group in _groups(names):
        if time.monotonic() >= deadline:
            untried += len(group)
            continue
        # The next batch does not wait for late answers; they are awaited below.
        batch = Batch(BATCH, min(deadline, time.monotonic() + OBJECT_BATCH_SECONDS))
        batches.append((batch, group))
        for name in group:
            batch.submit(name, functools.partial(ioctx.aio_remove, name))
        _finish(batch)
    while time.monotonic() < deadline and any(len(batch.returned) < len(group)
                                              for batch, group in batches):
        time.sleep(0.05)
    # In the order of the names; None: no answer.
    returned: List[Optional[int]] = []
    for batch, group in batches:
        answers = dict(batch.returned)  # a copy, since late answers may still arrive
        returned += map(answers.get, group)
    # Without an answer, an object may exist.
    existing = len(returned) - returned.count(-errno.ENOENT)
    removed = returned.count(0)
    first_left = next((number for number, answer in enumerate(returned)
                       if answer not in (0, -errno.ENOENT)), len(returned))
    return Cleaned(removed, remaining=existing - removed + untried, first_gone=first_left)


def _groups(names: Iterable[str]) -> Iterable[List[str]]:
    remaining = iter(names)
    return iter(lambda: list(itertools.islice(remaining, BATCH)), [])


def _finish(batch: Batch) -> None:
    try:
        batch.finish()
    except Failed:
        pass  # the caller checks which have no answer


#: Seconds between two attempts to remove an image. One that is open in a worker that was killed can
#: be removed when its watch expires, after 30 s.
IMAGE_PAUSE_SECONDS = 1.0
#: Exists where images were created.
RBD_DIRECTORY = 'rbd_directory'


def remove_images(ioctx: Any, prefix: str, deadline: float) -> Cleaned:
    """Remove the images of the pool and namespace whose names begin with `prefix`. Repeats this
    until the deadline while some cannot be removed. Raises Failed."""
    try:
        ioctx.stat(RBD_DIRECTORY)
    except rados.ObjectNotFound:
        return Cleaned(0, 0)
    rbd = librbd()
    images, removed = rbd.RBD(), 0
    while True:
        outcomes: List[bool] = []
        try:
            for name in images.list(ioctx):
                if name.startswith(prefix):
                    outcomes.append(_try_to_remove(rbd, images.remove, ioctx, name))
            # Those that a killed worker began to remove, or all (rbd_move_to_trash_on_remove).
            # True: even before their deferment ends.
            for entry in images.trash_list(ioctx):
                if entry['name'].startswith(prefix):
                    outcomes.append(_try_to_remove(
                        rbd, images.trash_remove, ioctx, entry['id'], True))
        except (rados.Error, rbd.Error) as e:
            raise failed(e, 'could not list the images')
        removed, failed_count = removed + outcomes.count(True), outcomes.count(False)
        if not failed_count or time.monotonic() >= deadline:
            return Cleaned(removed, failed_count)
        time.sleep(IMAGE_PAUSE_SECONDS)


def _try_to_remove(rbd: Any, remove_one: Callable[..., Any], *arguments: Any) -> bool:
    """Remove an image, or one in the trash. Returns whether it is gone, perhaps since before."""
    try:
        remove_one(*arguments)
    except rbd.ImageNotFound:
        return True
    except rbd.Error:
        return False
    return True


#: Seconds for each operation of a listing, which would wait without limit for an OSD that hangs.
LISTING_SECONDS = 300
#: Options of librados for a listing.
LISTING_OPTIONS = {'rados_osd_op_timeout': str(LISTING_SECONDS)}


def names_with(ioctx: Any, prefix: str) -> List[str]:
    """The objects of the pool and namespace whose names begin with `prefix`. `ioctx`: of a
    connection with LISTING_OPTIONS. Raises Failed."""
    names: List[str] = []
    last = time.monotonic()
    try:
        for entry in ioctx.list_objects():
            if entry.key.startswith(prefix):
                names.append(entry.key)
            last = time.monotonic()
    except rados.Error as e:
        raise failed(e, 'could not list the objects')
    # The binding of librados treats a failed operation as the end of the listing.
    if time.monotonic() - last >= LISTING_SECONDS:
        raise Failed(errno.ETIMEDOUT, 'could not list the objects: no answer for %d s'
                     % LISTING_SECONDS)
    return names
