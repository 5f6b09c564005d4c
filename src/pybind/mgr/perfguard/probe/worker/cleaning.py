# SPDX-License-Identifier: LGPL-2.1-or-later
"""Removes a run's objects, or what runs that were killed have left."""
import errno
import functools
import itertools
import threading
import time
from typing import (Any, Callable, Collection, Iterable, List, NamedTuple, Optional, Sequence,
                    Tuple)

from .batch import Batch
from .errors import Failed

#: Where an OSD hangs, so many operations wait for it; those after them are then sent anyway.
BATCH = 256
BATCH_SECONDS = 2.0


class Cleaned(NamedTuple):
    removed: int
    left: int
    #: So many of the first names are gone for sure.
    gone: int = 0


class Swept(NamedTuple):
    removed: int
    #: Objects that are there and could not be removed.
    left: int
    #: Where the next sweep goes on.
    cursor: int


def remove(ioctx: Any, names: Iterable[str], deadline: float) -> Cleaned:
    """Remove objects; one that is not there counts neither as removed nor as left."""
    batches: List[Tuple[Batch, List[str]]] = []
    left = 0
    for some in _groups(names):
        if time.monotonic() >= deadline:
            left += len(some)
            continue
        # The last moment is kept for those whose answer only comes late.
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
        pass  # the caller sees which have no answer


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
    """Nothing where it takes too long: a listing waits for ever for an OSD that hangs."""
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
