# SPDX-License-Identifier: LGPL-2.1-or-later
"""Removes the objects of a run, also of one whose worker was killed."""
import ctypes
import errno
import functools
import itertools
import threading
import time
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_size_t, c_void_p
from typing import Any, Callable, Collection, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from ..wire import WorkerRequest
from .connection import LIBRARY, conf_path, settings
from .objects import Batch
from .protocol import Failed, words

#: Operations in flight; if an OSD hangs, further ones are sent after BATCH_SECONDS.
BATCH = 256
BATCH_SECONDS = 2.0


class Cleaned(NamedTuple):
    removed: int
    left: int
    #: Number of the first names that are certainly gone.
    gone: int = 0


class Swept(NamedTuple):
    removed: int
    #: Objects that exist and could not be removed.
    left: int
    #: Where the next sweep continues.
    cursor: int


def remove(ioctx: Any, names: Iterable[str], deadline: float) -> Cleaned:
    """Remove objects; one that does not exist counts neither as removed nor as left."""
    batches: List[Tuple[Batch, List[str]]] = []
    left = 0
    for some in _groups(names):
        if time.monotonic() >= deadline:
            left += len(some)
            continue
        # The rest of the time is for late answers.
        until = min(deadline, time.monotonic() + BATCH_SECONDS)
        batch = Batch(BATCH, until)
        batches.append((batch, some))
        for name in some:
            batch.submit(name, functools.partial(ioctx.aio_remove, name))
        _finish(batch)
    while time.monotonic() < deadline and any(len(batch.returned) < len(some)
                                              for batch, some in batches):
        time.sleep(0.05)
    returned: List[Optional[int]] = []
    for batch, some in batches:
        answers = dict(batch.returned)
        returned += map(answers.get, some)
    there = len(returned) - returned.count(-errno.ENOENT)
    removed = returned.count(0)
    return Cleaned(removed, there - removed + left, _first_not(returned, (0, -errno.ENOENT)))


def _first_not(values: Sequence[Optional[int]], good: Collection[int]) -> int:
    return next((number for number, value in enumerate(values) if value not in good), len(values))


def _groups(names: Iterable[str]) -> Iterable[List[str]]:
    each = iter(names)
    return iter(lambda: list(itertools.islice(each, BATCH)), [])


def _finish(batch: Batch) -> None:
    try:
        batch.finish()
    except Failed:
        pass  # the caller checks which have no answer


def sweep_names(ioctx: Any, names: Iterable[str], cursor: int, deadline: float) -> Swept:
    """Remove objects by name, from number `cursor` on."""
    cleaned = remove(ioctx, itertools.islice(names, cursor, None), deadline)
    return Swept(cleaned.removed, cleaned.left, cursor + cleaned.gone)


def sweep_slices(ioctx: Any, listed: Callable[[int], List[str]], slices: int, prefix: str,
                 cursor: int, deadline: float) -> Swept:
    """Remove the objects of the pool's namespace whose name begins so, from slice `cursor` on."""
    begin, removed = cursor, 0
    while cursor < slices and time.monotonic() < deadline:
        try:
            found = _in_time(functools.partial(listed, cursor), deadline)
        except Failed:
            if cursor == begin:
                raise
            break
        cleaned = remove(ioctx, [name for name in found if name.startswith(prefix)], deadline)
        removed += cleaned.removed
        if cleaned.left:
            return Swept(removed, cleaned.left, cursor)
        cursor += 1
    return Swept(removed, 0, cursor)


def _in_time(call: Callable[[], List[str]], deadline: float) -> List[str]:
    """Raises Failed after the deadline: a listing waits for an OSD that hangs without limit."""
    found: List[List[str]] = []
    errors: List[Exception] = []

    def do() -> None:
        try:
            found.append(call())
        except Exception as e:
            errors.append(e)

    thread = threading.Thread(target=do, daemon=True)
    thread.start()
    thread.join(max(0.0, deadline - time.monotonic()))
    if errors:
        raise errors[0]
    if not found:
        raise Failed(errno.ETIMEDOUT, 'could not list the objects in time')
    return found[0]


# ---- Listing a pool in slices, so that a listing can be resumed. librados' Python binding lists a
# pool from its start only; the C API has slices. Only objects of an earlier version of perfguard,
# or of a run whose journal is damaged, are searched for in this way.

#: Of the hash space of any pool: some 250,000 of a thousand million objects each.
SLICES = 4096
#: Names that one call asks for.
CHUNK = 512


class _Item(Structure):
    _fields_ = [('length', c_size_t), ('name', POINTER(ctypes.c_char)),
                ('space_length', c_size_t), ('space', POINTER(ctypes.c_char)),
                ('locator_length', c_size_t), ('locator', POINTER(ctypes.c_char))]


class Listing:
    """Lists objects, with its own connection. Raises Failed."""

    def __init__(self, request: WorkerRequest) -> None:
        self._namespace = request.namespace.encode()
        self._rados = _library()
        self._ioctx = c_void_p()
        cluster = c_void_p()
        self._check(self._rados.rados_create2(byref(cluster), b'ceph', request.entity.encode(),
                                              c_size_t(0)))
        conf = conf_path(request)
        if conf:
            self._check(self._rados.rados_conf_read_file(cluster, conf.encode()))
        for name, value in settings(request).items():
            self._check(self._rados.rados_conf_set(cluster, name.encode(), value.encode()))
        self._check(self._rados.rados_connect(cluster))
        self._check(self._rados.rados_ioctx_create(cluster, request.pool.encode(),
                                                   byref(self._ioctx)))
        self._rados.rados_ioctx_set_namespace(self._ioctx, self._namespace)

    def slice(self, number: int) -> List[str]:
        """Names of the namespace in one of SLICES; waits as long as an OSD hangs."""
        rados, ioctx = self._rados, self._ioctx
        first, last = (c_void_p(begin(ioctx)) for begin in (
            rados.rados_object_list_begin, rados.rados_object_list_end))
        at, end = (c_void_p(rados.rados_object_list_begin(ioctx)) for _ in range(2))
        rados.rados_object_list_slice(ioctx, first, last, c_size_t(number), c_size_t(SLICES),
                                      byref(at), byref(end))
        names: List[str] = []
        items = (_Item * CHUNK)()
        try:
            while rados.rados_object_list_cursor_cmp(ioctx, at, end) < 0:
                found = self._check(rados.rados_object_list(
                    ioctx, at, end, c_size_t(CHUNK), None, c_size_t(0), items, byref(at)))
                names += [_text(item.name, item.length) for item in items[:found]
                          if item.space[:item.space_length] == self._namespace]
                rados.rados_object_list_free(c_size_t(found), items)
        finally:
            for cursor in (first, last, at, end):
                rados.rados_object_list_cursor_free(ioctx, cursor)
        return names

    @staticmethod
    def _check(returned: int) -> int:
        if returned < 0:
            raise Failed(returned, 'could not list the objects: %s' % words(returned))
        return returned


def _text(data: Any, length: int) -> str:
    return bytes(data[:length]).decode(errors='surrogateescape')


def _library() -> Any:
    try:
        rados = ctypes.CDLL(LIBRARY)
        for name in ('rados_object_list_begin', 'rados_object_list_end'):
            getattr(rados, name).restype = c_void_p
        rados.rados_object_list_slice.restype = None
        rados.rados_ioctx_set_namespace.restype = None
        rados.rados_object_list_cursor_free.restype = None
        rados.rados_object_list_cursor_cmp.restype = c_int
        rados.rados_conf_set.argtypes = [c_void_p, c_char_p, c_char_p]
    except (AttributeError, OSError) as e:
        raise Failed(2, 'could not list the objects: %s' % e)
    return rados
