# SPDX-License-Identifier: LGPL-2.1-or-later
"""A client that writes known content all the time, and reads all of it back."""
import threading
from types import TracebackType
from typing import Dict, Optional, Type

from qa.cluster import Cluster
from qa.cluster.patience import patient

#: Begin of the names of its objects, which are overwritten in turn.
WRITTEN = 'known-'
OBJECTS = 200
BYTES = 4096


def content(name: str, version: int) -> bytes:
    text = '%s %d ' % (name, version)
    return (text * (BYTES // len(text) + 1))[:BYTES].encode()


class Writer:
    """    with Writer(cluster, 'p') as writer:
               ...
           assert writer.missing() == {} and writer.writes > 0
    """

    def __init__(self, cluster: Cluster, pool: str) -> None:
        self._cluster, self._pool = cluster, pool
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        #: Name -> version of the last write that was acknowledged.
        self._acknowledged: Dict[str, int] = {}
        self._problem: Optional[BaseException] = None
        self.writes = 0

    def __enter__(self) -> 'Writer':
        self._thread.start()
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self._over.set()
        self._thread.join(patient(60))
        if error is None:
            assert not self._thread.is_alive(), 'a write has not ended'
            assert self._problem is None, repr(self._problem)

    def _write(self) -> None:
        try:
            with self._cluster.rados().open_ioctx(self._pool) as ioctx:
                version = 0
                while not self._over.is_set():
                    version += 1
                    name = '%s%d' % (WRITTEN, version % OBJECTS)
                    ioctx.write_full(name, content(name, version))
                    self._acknowledged[name] = version
                    self.writes += 1
                    self._over.wait(0.005)
        except BaseException as problem:
            self._problem = problem

    def missing(self) -> Dict[str, bytes]:
        """Objects that do not hold what was acknowledged last, with the begin of what they hold."""
        wrong = {}
        with self._cluster.rados().open_ioctx(self._pool) as ioctx:
            for name, version in self._acknowledged.items():
                found = ioctx.read(name, 2 * BYTES)
                if found != content(name, version):
                    wrong[name] = found[:40]
        return wrong
