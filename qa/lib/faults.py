# SPDX-License-Identifier: LGPL-2.1-or-later
"""Real trouble for one OSD of a test cluster, undone at the end of the block whatever happens.

    with throttled_writes(cluster, 3, iops=50):
        ...
"""
import contextlib
import os
import time
from pathlib import Path
from typing import Iterator, List

from qa.cluster import Cluster, ClusterError

from .guard import ENABLED

#: Where the controllers of cgroup v1 are mounted.
CGROUP = Path('/sys/fs/cgroup')
CPU_PERIOD_US = 100_000
#: The least quota that the kernel takes.
CPU_QUOTA_US_MIN = 1_000
#: How long an OSD is watched to know what CPU time it needs.
CPU_SAMPLE_SECONDS = 4.0

#: With these, to be set before the first pool is made, a read lease lasts one second instead of
#: sixteen, and the mgr hears of it at once.
LAGGY_CONF = {
    'global': {'osd_heartbeat_grace': '10'},
    'osd': {'osd_pool_default_read_lease_ratio': '0.1'},
    'mon': {**ENABLED, 'osd_pool_default_read_lease_ratio': '0.1',
            'paxos_propose_interval': '0.2'},
    'mgr': {'mgr_stats_period': '2'},
}


@contextlib.contextmanager
def dispatch_delay(cluster: Cluster, osd: int, seconds: float) -> Iterator[None]:
    """Every message that the OSD receives waits before it is looked at, on any store.

    The messages of a connection wait one after the other: an operation is slowed by several
    times `seconds`, and where more messages come than fit into a second the OSD is overloaded.
    """
    options = {'osd_debug_inject_dispatch_delay_duration': seconds,
               'osd_debug_inject_dispatch_delay_probability': 1.0}
    try:
        for name, value in options.items():
            _set(cluster, osd, name, value)
        yield
    finally:
        for name in options:
            _set(cluster, osd, name, 0.0)


def _set(cluster: Cluster, osd: int, option: str, value: float) -> None:
    cluster.tell(f'osd.{osd}', 'config set', var=option, val=[str(value)])


@contextlib.contextmanager
def cpu_throttle(cluster: Cluster, osd: int, share: float) -> Iterator[None]:
    """The OSD gets `share` times the CPU time that it takes now, in slices of 100 ms.

    With 1.0 it can just do its work, but each burst of it waits for the next slices; much less,
    and its queues grow without end.
    """
    pid = _pid(cluster, osd)
    before = _cpu_seconds(pid)
    time.sleep(CPU_SAMPLE_SECONDS)
    used = (_cpu_seconds(pid) - before) / CPU_SAMPLE_SECONDS
    quota = max(CPU_QUOTA_US_MIN, round(share * used * CPU_PERIOD_US))
    with _cgroup('cpu', cluster, osd) as group:
        _write(group / 'cpu.cfs_period_us', CPU_PERIOD_US)
        _write(group / 'cpu.cfs_quota_us', quota)
        _write(group / 'cgroup.procs', pid)
        yield


@contextlib.contextmanager
def throttled_writes(cluster: Cluster, osd: int, iops: int) -> Iterator[None]:
    """The disk of a bluestore OSD takes so many writes a second; its reads are not touched.

    bluestore writes past the page cache, so the kernel holds back the OSD's own threads.
    """
    disk = os.stat(cluster.directory / 'data' / f'osd.{osd}' / 'block').st_dev
    with _cgroup('blkio', cluster, osd) as group:
        _write(group / 'blkio.throttle.write_iops_device',
               f'{os.major(disk)}:{os.minor(disk)} {iops}')
        _write(group / 'cgroup.procs', _pid(cluster, osd))
        yield


@contextlib.contextmanager
def laggy(cluster: Cluster, osd: int) -> Iterator[None]:
    """The OSD hangs and is not marked down: PGs that it is a replica of become laggy.

    The cluster needs LAGGY_CONF and a client that does not wait for one operation before it
    sends the next.
    """
    cluster.mon('osd set', key='nodown')
    try:
        cluster.stop(f'osd.{osd}')
        yield
    finally:
        cluster.cont(f'osd.{osd}')
        cluster.mon('osd unset', key='nodown')


def missing_controllers() -> List[str]:
    """What throttling cannot be done with on this machine."""
    return [name for name in ('cpu', 'blkio') if not os.access(CGROUP / name, os.W_OK)]


@contextlib.contextmanager
def _cgroup(controller: str, cluster: Cluster, osd: int) -> Iterator[Path]:
    """A new control group; the processes in it go back to the root group at the end."""
    group = CGROUP / controller / f'perfguard-{cluster.directory.name}-osd{osd}'
    group.mkdir()
    try:
        yield group
    finally:
        for pid in (group / 'cgroup.procs').read_text().split():
            # It may just have ended.
            with contextlib.suppress(ProcessLookupError):
                _write(group.parent / 'cgroup.procs', pid)
        _remove(group)


def _remove(group: Path) -> None:
    """A group whose last process is a zombie is busy for a moment."""
    for _ in range(50):
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)
    group.rmdir()


def _write(path: Path, value: object) -> None:
    path.write_text(f'{value}\n')


def _pid(cluster: Cluster, osd: int) -> int:
    pid = cluster.pid(f'osd.{osd}')
    if pid is None:
        raise ClusterError(f'osd.{osd} is not running')
    return pid


def _cpu_seconds(pid: int) -> float:
    """CPU time of a process, its threads included."""
    fields = Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')
