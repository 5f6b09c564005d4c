# SPDX-License-Identifier: LGPL-2.1-or-later
"""Lists a pool slice by slice, so that a listing goes on where an earlier one was cut short.

librados' Python binding lists a pool from its begin only; the C API has slices. Only what an
earlier version of perfguard has left, or a damaged journal, is looked for in this way.
"""
import ctypes
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_size_t, c_void_p
from typing import Any, List

from ..wire import Request
from .connection import LIBRARY, conf_path, settings
from .errors import Failed, words

#: Of the hash space of any pool: some 250,000 of a thousand million objects each.
SLICES = 4096
#: Names that one call asks for.
CHUNK = 512


class _Item(Structure):
    _fields_ = [('length', c_size_t), ('name', POINTER(ctypes.c_char)),
                ('space_length', c_size_t), ('space', POINTER(ctypes.c_char)),
                ('locator_length', c_size_t), ('locator', POINTER(ctypes.c_char))]


class Listing:
    """With a connection of its own. Raises Failed."""

    def __init__(self, request: Request) -> None:
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
