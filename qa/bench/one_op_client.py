# SPDX-License-Identifier: LGPL-2.1-or-later
"""A client that has one write in flight, always to the same object, and times each."""
import random
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, List, Sequence

from qa.cluster.connection import Connection

#: Between two writes, so that the client does not take the CPU from what it measures.
WRITE_GAP_SECONDS = 0.01
READ_GAP_SECONDS = 0.02


@dataclass(frozen=True)
class Write:
    """One write: begin by the monotonic clock, both in seconds."""

    begin: float
    seconds: float


class Run:
    """Writes to one object, and reads of others besides, until it is stopped."""

    def __init__(self, ioctx: Any, name: str, data: bytes, reads: List[str]) -> None:
        self._ioctx = ioctx
        self._stop = threading.Event()
        self._writes: List[Write] = []
        self._begun = 0.0
        self._writer = threading.Thread(target=self._write, args=(name, data), daemon=True)
        self._threads = [self._writer]
        if reads:
            self._threads.append(threading.Thread(target=self._read, args=(reads,), daemon=True))
        for thread in self._threads:
            thread.start()

    def stop(self, timeout: float) -> bool:
        """End after the operations in flight: whether they came back in time."""
        self._stop.set()
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def writes(self) -> List[Write]:
        """All writes; one that is still in flight with the time it has taken so far."""
        if not self._writer.is_alive():
            return list(self._writes)
        return [*self._writes, Write(self._begun, time.monotonic() - self._begun)]

    def _write(self, name: str, data: bytes) -> None:
        while not self._stop.is_set():
            self._begun = begin = time.monotonic()
            self._ioctx.write_full(name, data)
            self._writes.append(Write(begin, time.monotonic() - begin))
            time.sleep(WRITE_GAP_SECONDS)

    def _read(self, names: List[str]) -> None:
        choice = random.Random(0)
        while not self._stop.is_set():
            self._ioctx.read(choice.choice(names), 4096)
            time.sleep(READ_GAP_SECONDS)


class OneOpClient:
    """A librados client of its own, so that it knows only the OSDMaps that its own I/O brings."""

    def __init__(self, conf: Path, pool: str, background: Sequence[str] = ()) -> None:
        """`background`: objects of which it reads fifty a second while it writes."""
        self._connection = Connection(conf)
        self._ioctx = self._connection.rados().open_ioctx(pool)
        self._background = background

    def run(self, name: str, data: bytes, not_read: Sequence[str]) -> Run:
        """Begin to write object `name`; the objects `not_read` are those of its PG."""
        reads = sorted(set(self._background) - set(not_read))
        return Run(self._ioctx, name, data, reads)

    def close(self) -> None:
        """Disconnect; no run may be active."""
        self._ioctx.close()
        self._connection.close()
