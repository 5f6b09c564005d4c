# SPDX-License-Identifier: LGPL-2.1-or-later
"""Writes the objects that will be read or rewritten: reading what is not there is too fast."""
import functools
from typing import Any, Callable, Iterator, Sequence, Tuple

from .batch import Batch
from .errors import Failed, words
from .payload import Payload

CHUNK_BYTES = 4 << 20
IN_FLIGHT = 16

Cancelled = Callable[[], bool]


def prefill(ioctx: Any, names: Sequence[str], object_bytes: int, payload: Payload,
            deadline: float, cancelled: Cancelled) -> None:
    """Write the objects whole and look at their sizes. Raises Failed or Cancelled."""
    _write(ioctx, names, object_bytes, payload, Batch(IN_FLIGHT, deadline, cancelled))
    _check(ioctx, names, object_bytes, Batch(IN_FLIGHT, deadline, cancelled))


def _write(ioctx: Any, names: Sequence[str], object_bytes: int, payload: Payload,
           batch: Batch) -> None:
    for name, offset, length in _chunks(names, object_bytes):
        data = payload.slice(name, offset, length)
        if length == object_bytes:
            # Erasure coded pools without overwrites take this and nothing else.
            send = functools.partial(ioctx.aio_write_full, name, data)
        else:
            send = functools.partial(ioctx.aio_write, name, data, offset)
        batch.submit('%s at %d' % (name, offset), send)
        _raise_first(batch, 'prefill')
    batch.finish()
    _raise_first(batch, 'prefill')


def _chunks(names: Sequence[str], object_bytes: int) -> Iterator[Tuple[str, int, int]]:
    """Objects take turns, so that many OSDs are busy; the chunks of an object come in order."""
    for offset in range(0, object_bytes, CHUNK_BYTES):
        for name in names:
            yield name, offset, min(CHUNK_BYTES, object_bytes - offset)


def _check(ioctx: Any, names: Sequence[str], object_bytes: int, batch: Batch) -> None:
    for name in names:
        batch.submit(name, functools.partial(ioctx.aio_stat, name))
    batch.finish()
    _raise_first(batch, 'stat')
    for name in names:
        if batch.values[name][0] != object_bytes:
            raise Failed(5, 'prefill: %s has %s bytes instead of %d' % (
                name, batch.values[name][0], object_bytes))


def _raise_first(batch: Batch, what: str) -> None:
    if batch.failure is not None:
        label, code = batch.failure
        raise Failed(code, '%s of %s: %s' % (what, label, words(code)))
