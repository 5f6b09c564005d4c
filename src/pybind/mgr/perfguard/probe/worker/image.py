# SPDX-License-Identifier: LGPL-2.1-or-later
"""An image of RBD instead of objects, with the calls of an ioctx that the engine needs.

The name of what would be an object stands for a range of the image, so that a stream reads and
writes consecutive ranges as fio's rbd engine does. The image is removed with its pool.
"""
import errno
from typing import Any, Callable, Dict, Iterable, Sequence

import rados

from ..types import JobStep
from .connection import failed
from .objects import IN_FLIGHT, Batch, Payload, write_all
from .protocol import Failed

MISSING = ('ioengine=rbd requires the Python binding of librbd on the host of the worker: install '
           'the package python3-rbd there (%s)')


class Image:
    """Creates and opens an image for the objects of these steps. Raises Failed."""

    def __init__(self, ioctx: Any, name: str, steps: Iterable[JobStep]) -> None:
        rbd = _librbd()
        self._error = rbd.Error
        self._begins: Dict[str, int] = {}
        size = 0
        for step in steps:
            for each in (each for stream in step.streams for each in stream.objects):
                if each not in self._begins:
                    self._begins[each] = size
                    size += step.job.object_bytes
        try:
            # Features, order and striping are those of the cluster's other new images.
            rbd.RBD().create(ioctx, name, size, old_format=False)
            self._image = rbd.Image(ioctx, name)
        except rbd.Error as e:
            raise failed(e, 'image %s' % name)

    def prefill(self, names: Sequence[str], length: int, payload: Payload, deadline: float,
                cancelled: Callable[[], bool]) -> None:
        """Write whole ranges: reading what was never written needs no OSD."""
        write_all(self, names, length, payload, Batch(IN_FLIGHT, deadline, cancelled))

    def aio_read(self, name: str, length: int, offset: int, oncomplete: Any) -> None:
        self._send(self._image.aio_read, self._begins[name] + offset, length, oncomplete)

    def aio_write(self, name: str, data: bytes, offset: int, oncomplete: Any) -> None:
        self._send(self._image.aio_write, data, self._begins[name] + offset, oncomplete)

    def aio_write_full(self, name: str, data: bytes, oncomplete: Any) -> None:
        self.aio_write(name, data, 0, oncomplete)

    def _send(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Raises rados.Error, as an ioctx does."""
        try:
            call(*arguments)
        except self._error as e:
            raise rados.OSError('librbd', errno=getattr(e, 'errno', errno.EIO)) from e


def _librbd() -> Any:
    try:
        import rbd
    except ImportError as e:
        raise Failed(errno.ENOTSUP, MISSING % e)
    return rbd
