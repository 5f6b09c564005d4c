# SPDX-License-Identifier: LGPL-2.1-or-later
"""A client that writes known content all the time, and reads all of it back at the end."""
import contextlib
import threading
from types import TracebackType
from typing import Dict, Optional, Tuple, Type

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
    """Writes to the pools in turn:

           with Writer(cluster, 'rep', 'ec'):
               ...

    Fails at the end if an acknowledged write is missing, or if nothing was written.
    """

    def __init__(self, cluster: Cluster, *pools: str) -> None:
        self._cluster, self._pools = cluster, pools
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        #: (pool, name) -> version of the last write that was acknowledged.
        self._acknowledged: Dict[Tuple[str, str], int] = {}
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
            assert self.writes > 0, 'nothing was written'
            missing = self._missing()
            assert not missing, missing

    def _write(self) -> None:
        try:
            with contextlib.ExitStack() as stack:
                ioctxs = {pool: stack.enter_context(self._cluster.rados().open_ioctx(pool))
                          for pool in self._pools}
                version = 0
                while not self._over.is_set():
                    version += 1
                    name = '%s%d' % (WRITTEN, version % OBJECTS)
                    for pool, ioctx in ioctxs.items():
                        ioctx.write_full(name, content(name, version))
                        self._acknowledged[pool, name] = version
                        self.writes += 1
                    self._over.wait(0.005)
        except BaseException as problem:
            self._problem = problem

    def _missing(self) -> Dict[Tuple[str, str], bytes]:
        """Objects that do not hold what was acknowledged last, with the begin of what they hold."""
        wrong = {}
        for (pool, name), version in self._acknowledged.items():
            with self._cluster.rados().open_ioctx(pool) as ioctx:
                found = ioctx.read(name, 2 * BYTES)
            if found != content(name, version):
                wrong[pool, name] = found[:40]
        return wrong
