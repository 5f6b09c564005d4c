# SPDX-License-Identifier: LGPL-2.1-or-later
"""Fills a pool with very many small objects, written by several clients.

    python3 -m qa.lib.crowd CONF POOL NAMESPACE FIRST COUNT     one client
"""
import subprocess
import sys
import threading
import time
from typing import Any, List

import rados

from qa.cluster import Cluster
from qa.cluster.daemons import tied_argv

WRITERS = 3
IN_FLIGHT = 256
CONTENT = bytes(64)
#: Minimum rate, which even a busy machine exceeds.
OBJECTS_PER_SECOND = 500


def fill(cluster: Cluster, pool: str, namespace: str, count: int) -> None:
    """Write the objects other-0, other-1, ...; raises if a write fails."""
    share = -(-count // WRITERS)
    writers = [subprocess.Popen(tied_argv([
        sys.executable, '-m', __name__, str(cluster.conf_path), pool, namespace, str(first),
        str(min(share, count - first))])) for first in range(0, count, share)]
    try:
        deadline = time.monotonic() + 60 + count / OBJECTS_PER_SECOND
        for writer in writers:
            assert writer.wait(max(0.0, deadline - time.monotonic())) == 0
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()


def write(conf: str, pool: str, namespace: str, first: int, count: int) -> None:
    """The work of one client."""
    places = threading.Semaphore(IN_FLIGHT)
    failed: List[int] = []

    def done(completion: Any) -> None:
        if completion.get_return_value() < 0:
            failed.append(completion.get_return_value())
        places.release()

    with rados.Rados(conffile=conf) as handle, handle.open_ioctx(pool) as ioctx:
        ioctx.set_namespace(namespace)
        for number in range(first, first + count):
            places.acquire()
            ioctx.aio_write_full('other-%d' % number, CONTENT, done)
        for _ in range(IN_FLIGHT):
            places.acquire()
    assert not failed, failed[:3]


if __name__ == '__main__':
    write(*sys.argv[1:4], *map(int, sys.argv[4:]))  # type: ignore[arg-type]
