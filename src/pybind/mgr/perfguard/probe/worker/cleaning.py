# SPDX-License-Identifier: LGPL-2.1-or-later
"""Removes a run's objects, or what runs that were killed have left."""
import errno
import functools
import itertools
import threading
import time
from typing import Any, Iterable, List, NamedTuple, Tuple

from .batch import Batch
from .errors import Failed

#: Where an OSD hangs, so many operations wait for it; those after them are then sent anyway.
BATCH = 256
BATCH_SECONDS = 2.0


class Cleaned(NamedTuple):
    removed: int
    left: int


def remove(ioctx: Any, names: Iterable[str], deadline: float) -> Cleaned:
    """Remove objects; one that is not there counts neither as removed nor as left."""
    batches: List[Tuple[Batch, int]] = []
    for some in _groups(names):
        # The last moment is kept for those whose answer only comes late.
        until = min(deadline, time.monotonic() + BATCH_SECONDS)
        batch = Batch(BATCH, until)
        batches.append((batch, len(some)))
        for name in some:
            batch.submit(name, functools.partial(ioctx.aio_remove, name))
        _finish(batch)
    while time.monotonic() < deadline and any(len(batch.returned) < number
                                              for batch, number in batches):
        time.sleep(0.05)
    returned = [ret for batch, _ in batches for ret in list(batch.returned.values())]
    there = sum(number for _, number in batches) - returned.count(-errno.ENOENT)
    removed = returned.count(0)
    return Cleaned(removed, there - removed)


def _groups(names: Iterable[str]) -> Iterable[List[str]]:
    each = iter(names)
    return iter(lambda: list(itertools.islice(each, BATCH)), [])


def _finish(batch: Batch) -> None:
    try:
        batch.finish()
    except Failed:
        pass  # the caller sees which have no answer


def list_names(ioctx: Any, prefix: str, deadline: float) -> List[str]:
    """The objects of the namespace whose name begins so. Raises Failed where that takes too long.

    Listing asks one PG after the other and waits for ever for an OSD that hangs.
    """
    names: List[str] = []
    errors: List[Exception] = []

    def collect() -> None:
        try:
            names.extend(entry.key for entry in ioctx.list_objects()
                         if entry.key.startswith(prefix))
        except Exception as e:
            errors.append(e)

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(max(0.0, deadline - time.monotonic()))
    if thread.is_alive():
        raise Failed(errno.ETIMEDOUT, 'the objects could not be listed in time')
    if errors:
        code = getattr(errors[0], 'errno', None) or errno.EIO
        raise Failed(code, 'the objects could not be listed: %s' % errors[0])
    return names
