# SPDX-License-Identifier: LGPL-2.1-or-later
"""Faults of one OSD of a test cluster, which are removed at the end of the block in any case.

    with throttled_writes(cluster, 3, iops=50):
        ...
"""
import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable, Iterator, List, Sequence

from qa.cluster import Cluster, ClusterError
from qa.cluster.patience import patient

from .guard import ENABLED
from .mons import die, hang

#: Where the controllers of cgroup v1 are mounted.
CGROUP = Path('/sys/fs/cgroup')
CPU_PERIOD_US = 100_000
#: The minimum quota of the kernel.
CPU_QUOTA_US_MIN = 1_000
#: Time to measure the CPU usage of an OSD.
CPU_SAMPLE_SECONDS = 4.0

#: Options for a read lease of one second instead of 16, and immediate reports to the mgr. They must
#: be set before the first pool is created.
LAGGY_CONF = {
    'global': {'osd_heartbeat_grace': '10'},
    'osd': {'osd_pool_default_read_lease_ratio': '0.1'},
    'mon': {**ENABLED, 'osd_pool_default_read_lease_ratio': '0.1',
            'paxos_propose_interval': '0.2'},
    'mgr': {'mgr_stats_period': '2'},
}


@contextlib.contextmanager
def dispatch_delay(cluster: Cluster, osd: int, seconds: float) -> Iterator[None]:
    """Each message that the OSD receives is delayed, with any store.

    The messages of a connection are delayed one after another, so an operation takes several times
    `seconds`, and too many messages per second overload the OSD.
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


@contextlib.contextmanager
def intermittent_delay(cluster: Cluster, osd: int, seconds: float, episode_seconds: float,
                       pause_seconds: float) -> Iterator[None]:
    """`dispatch_delay` for an episode, then a pause, again and again; begins with an episode."""
    def episode(over: threading.Event) -> None:
        with dispatch_delay(cluster, osd, seconds):
            over.wait(episode_seconds)

    with repeated(episode, pause_seconds):
        yield


@contextlib.contextmanager
def repeated(act: Callable[[threading.Event], None], pause_seconds: float = 0.0) -> Iterator[None]:
    """During the block, a thread does this again and again, with an event for its end."""
    over = threading.Event()
    problems: List[BaseException] = []

    def work() -> None:
        try:
            while not over.is_set():
                act(over)
                over.wait(pause_seconds)
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(120)
    assert not thread.is_alive() and not problems, problems


def _set(cluster: Cluster, osd: int, option: str, value: float) -> None:
    cluster.tell(f'osd.{osd}', 'config set', var=option, val=[str(value)])


@contextlib.contextmanager
def cpu_throttle(cluster: Cluster, osd: int, share: float) -> Iterator[None]:
    """The CPU time of the OSD is limited to `share` times the current usage, in slices of 100 ms.

    With 1.0, the OSD can do its work, but each burst waits for the next slices. With much less, its
    queues grow without limit.
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


def throttled_writes(cluster: Cluster, osd: int,
                     iops: int) -> 'contextlib.AbstractContextManager[None]':
    """The writes per second of the disk of a bluestore OSD are limited; reads are not.

    bluestore bypasses the page cache, so the kernel delays threads of the OSD.
    """
    return _throttled(cluster, osd, 'blkio.throttle.write_iops_device', iops)


def narrow_disk(cluster: Cluster, osd: int,
                bytes_per_second: int) -> 'contextlib.AbstractContextManager[None]':
    """As `throttled_writes`, but the bytes per second are limited."""
    return _throttled(cluster, osd, 'blkio.throttle.write_bps_device', bytes_per_second)


def _throttled(cluster: Cluster, osd: int, limit: str,
               value: int) -> 'contextlib.AbstractContextManager[None]':
    disk = os.stat(cluster.directory / 'data' / f'osd.{osd}' / 'block').st_dev
    return _limited_disk(cluster, [osd], disk, limit, value)


def throttled_device(cluster: Cluster, osds: Sequence[int], device: str,
                     iops: int) -> 'contextlib.AbstractContextManager[None]':
    """The writes per second of some OSDs together to one block device, on which they may have only
    partitions, are limited."""
    return _limited_disk(cluster, osds, os.stat(device).st_rdev,
                         'blkio.throttle.write_iops_device', iops)


@contextlib.contextmanager
def _limited_disk(cluster: Cluster, osds: Sequence[int], disk: int, limit: str,
                  value: int) -> Iterator[None]:
    with _cgroup('blkio', cluster, osds[0]) as group:
        _write(group / limit, f'{os.major(disk)}:{os.minor(disk)} {value}')
        for osd in osds:
            _write(group / 'cgroup.procs', _pid(cluster, osd))
        yield


@contextlib.contextmanager
def laggy(cluster: Cluster, osd: int) -> Iterator[None]:
    """The OSD hangs and is not marked down: PGs with it as a replica become laggy.

    The cluster needs LAGGY_CONF and a client with several operations in flight.
    """
    cluster.mon('osd set', key='nodown')
    try:
        cluster.stop(f'osd.{osd}')
        yield
    finally:
        cluster.cont(f'osd.{osd}')
        cluster.mon('osd unset', key='nodown')


#: Clients of a flood, operations of each in flight, and bytes of an operation. Each removes its
#: objects after so many, so that OSDs in memory do not grow without limit.
FLOOD_CLIENTS, FLOOD_DEPTH, FLOOD_BYTES, FLOOD_OBJECTS = 4, 128, 65536, 4000
_FLOOD = ('while :; do rados -c %s -p %s bench 60 write -t %d -b %d --max-objects %d '
          '--run-name flood$$; done')


@contextlib.contextmanager
def write_flood(cluster: Cluster, pool: str) -> Iterator[None]:
    """Clients write as much as OSDs can take: with LAGGY_CONF, PGs become laggy although all OSDs
    respond."""
    command = _FLOOD % (cluster.conf_path, pool, FLOOD_DEPTH, FLOOD_BYTES, FLOOD_OBJECTS)
    clients = [subprocess.Popen(
        cluster.release.argv(['timeout', '--kill-after=2', '900', 'sh', '-c', command],
                             cluster.directory),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True)
        for _ in range(FLOOD_CLIENTS)]
    try:
        yield
    finally:
        for client in clients:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(client.pid, signal.SIGKILL)
            client.wait()


def missing_controllers() -> List[str]:
    """The cgroup controllers that cannot be used on this machine."""
    return [name for name in ('cpu', 'blkio') if not os.access(CGROUP / name, os.W_OK)]


@contextlib.contextmanager
def _cgroup(controller: str, cluster: Cluster, osd: int) -> Iterator[Path]:
    """A new control group; at the end, its processes return to the root group."""
    group = CGROUP / controller / f'perfguard-{cluster.directory.name}-osd{osd}'
    group.mkdir()
    try:
        yield group
    finally:
        for pid in (group / 'cgroup.procs').read_text().split():
            # The process may have ended.
            with contextlib.suppress(ProcessLookupError):
                _write(group.parent / 'cgroup.procs', pid)
        _remove(group)


def _remove(group: Path) -> None:
    """Remove a group; it is busy for a moment if its last process is a zombie."""
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
    """CPU time of a process with all threads."""
    fields = Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


# ---- Faults that end without help, in the middle of something else

#: Seconds for which a daemon hangs or is away.
AWAY_SECONDS = 6.0

#: A fault of a cluster with three mons, which strikes one of some OSDs.
Fault = Callable[[Cluster, int], None]


@contextlib.contextmanager
def meanwhile(act: Callable[[], None], after_seconds: float) -> Iterator[None]:
    """`act` runs in a thread during the block, which waits for its end."""
    def wait_and_act() -> None:
        time.sleep(after_seconds)
        act()

    with ThreadPoolExecutor(1) as executor:
        acted = executor.submit(wait_and_act)
        yield
        acted.result(patient(300))


def osd_flaps(cluster: Cluster, osd: int) -> None:
    """It is marked down while it runs, so it returns at once; twice."""
    for _ in range(2):
        before = cluster.epoch()
        cluster.mon('osd down', ids=[str(osd)])
        cluster.wait(lambda: cluster.epoch() > before, 10, 'osd.%d down' % osd)
        cluster.wait_up([osd], 60)


def stall(cluster: Cluster, osd: int, seconds: float) -> None:
    """It hangs for a while."""
    cluster.stop('osd.%d' % osd)
    try:
        time.sleep(seconds)
    finally:
        cluster.cont('osd.%d' % osd)


def osd_hangs(cluster: Cluster, osd: int) -> None:
    stall(cluster, osd, AWAY_SECONDS)
    cluster.wait_up([osd], 60)


def osd_dies(cluster: Cluster, osd: int) -> None:
    """A memstore OSD returns empty."""
    cluster.kill('osd.%d' % osd)
    time.sleep(AWAY_SECONDS)
    cluster.start('osd.%d' % osd)


def leader_hangs(cluster: Cluster, osd: int) -> None:
    hang(cluster, 1, AWAY_SECONDS)


def leader_dies(cluster: Cluster, osd: int) -> None:
    die(cluster, 1, AWAY_SECONDS)


FAULTS: Sequence[Fault] = (osd_flaps, osd_hangs, osd_dies, leader_hangs, leader_dies)


def some_fault(cluster: Cluster, osds: Sequence[int], chance: random.Random) -> Callable[[], None]:
    fault, osd = chance.choice(FAULTS), chance.choice(osds)

    def strike() -> None:
        print('%s (osd.%d)' % (fault.__name__, osd), flush=True)
        fault(cluster, osd)

    return strike


#: The database of udev, from which OSDs read models of drives, and whether udev runs.
UDEV, UDEV_RUNS = Path('/run/udev/data'), Path('/run/udev/control')


@contextlib.contextmanager
def drive_of_model(file: Path, size_bytes: int, model: str) -> Iterator[str]:
    """A loop device of a new file, which OSDs take for a drive of this model. Raises OSError where
    that cannot be had."""
    with file.open('wb') as backing:
        backing.truncate(size_bytes)
    found = subprocess.run(['losetup', '--find', '--show', str(file)], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, universal_newlines=True, timeout=30)
    if found.returncode:
        raise OSError(found.stderr.strip())
    device = found.stdout.strip()
    try:
        with of_model(device, model):
            yield device
    finally:
        subprocess.run(['losetup', '--detach', device], check=True, timeout=30)


@contextlib.contextmanager
def of_model(device: str, model: str) -> Iterator[str]:
    """OSDs take the device for a drive of this model meanwhile, with a serial number of its own.
    Raises OSError where that cannot be had."""
    if UDEV_RUNS.exists():
        raise OSError('udev would describe the device')
    number = os.stat(device).st_rdev
    entry = UDEV / ('b%d:%d' % (os.major(number), os.minor(number)))
    try:
        UDEV.mkdir(parents=True, exist_ok=True)
        entry.write_text('E:ID_MODEL=%s\nE:ID_SERIAL_SHORT=S%d\n' % (model, os.minor(number)))
        yield device
    finally:
        with contextlib.suppress(OSError):
            entry.unlink()
            os.removedirs(UDEV)
