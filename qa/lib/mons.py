# SPDX-License-Identifier: LGPL-2.1-or-later
"""Three mons of a test cluster: the leader, the mon of the mgr, and faults of one or more mons."""
import contextlib
import shutil
import subprocess
import time
from pathlib import Path
from typing import Iterator, List

from qa.cluster import Cluster, CommandError

MONS = 'abc'
#: Seconds until the mons have a quorum with another leader, several elections included.
ELECTION_SECONDS = 90.0


def leader(cluster: Cluster) -> str:
    """The mon that leads the quorum, '' while there is none."""
    return str(cluster.mon('quorum_status')['quorum_leader_name'])


def kill_leader(cluster: Cluster) -> str:
    """Kill the leading mon; returns its id when the others have a quorum."""
    victim = leader(cluster)
    cluster.kill('mon.' + victim)
    cluster.wait(lambda: leader(cluster) not in ('', victim), ELECTION_SECONDS, 'another leader')
    return victim


def bring_back_mons(cluster: Cluster) -> None:
    for mon in MONS:
        if cluster.pid('mon.' + mon) is None:
            cluster.start('mon.' + mon)
    cluster.wait(lambda: len(cluster.mon('quorum_status')['quorum']) == len(MONS), ELECTION_SECONDS,
                 'all mons in quorum')
    cluster.wait(lambda: 'MON_DOWN' not in cluster.mon('health')['checks'], 30, 'their health')


def mon_of_the_mgr(cluster: Cluster) -> str:
    """The mon that the mgr sends its commands to, '' while it looks for one."""
    mgr = 'mgr.%d' % cluster.mon('mgr dump')['active_gid']
    for mon in MONS:
        if cluster.pid('mon.' + mon) is not None and mgr in [
                session['name'] for session in cluster.tell('mon.' + mon, 'sessions')]:
            return mon
    return ''


def move_the_mgr_to_a_peon(cluster: Cluster) -> None:
    """While the first mon, the natural leader, is away the mgr finds another."""
    first = leader(cluster)
    if mon_of_the_mgr(cluster) == first:
        kill_leader(cluster)
        cluster.wait(lambda: mon_of_the_mgr(cluster) not in ('', first), 60, 'another mon')
        bring_back_mons(cluster)
    assert mon_of_the_mgr(cluster) not in ('', leader(cluster))


# ---- faults, after which all mons are in quorum; those of two mons with the leader end it

def leading(cluster: Cluster, count: int) -> List[str]:
    """Daemons: the leader, then others."""
    first = leader(cluster)
    return ['mon.' + mon for mon in [first, *(mon for mon in MONS if mon != first)][:count]]


def hang(cluster: Cluster, count: int, seconds: float) -> None:
    mons = leading(cluster, count)
    try:
        for mon in mons:
            cluster.stop(mon)
        time.sleep(seconds)
    finally:
        for mon in mons:
            cluster.cont(mon)
    bring_back_mons(cluster)


def die(cluster: Cluster, count: int, seconds: float) -> None:
    try:
        for mon in leading(cluster, count):
            cluster.kill(mon)
        time.sleep(seconds)
    finally:
        bring_back_mons(cluster)


#: Room for the data of a mon of a small cluster.
DISK_BYTES = 256 << 20
#: Seconds until a mon has noticed that its disk is full.
FULL_SECONDS = 60.0


def disks_full(cluster: Cluster, count: int, seconds: float) -> None:
    """A mon ends when it cannot write."""
    mons = leading(cluster, count)
    with contextlib.ExitStack() as disks:
        fillers = [disks.enter_context(small_disk(cluster, mon)) for mon in mons]
        try:
            for filler in fillers:
                fill(filler)
            for mon in mons:
                with contextlib.suppress(CommandError):
                    # For a while its writes fit into space that it has already allocated.
                    cluster.tell(mon, 'compact')
                wait_dead(cluster, mon)
            time.sleep(seconds)
        finally:
            for filler in fillers:
                filler.unlink(missing_ok=True)
            bring_back_mons(cluster)


@contextlib.contextmanager
def small_disk(cluster: Cluster, mon: str) -> Iterator[Path]:
    """The data of the mon is on a file system of its own; yields a file to fill that with."""
    data = cluster.directory / 'data' / mon
    kept = data.with_name(mon + '.kept')
    cluster.kill(mon)
    data.rename(kept)
    data.mkdir()
    subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=%d' % DISK_BYTES, 'perfguard', str(data)],
                   check=True, timeout=30)
    try:
        shutil.copytree(kept, data, dirs_exist_ok=True)
        shutil.rmtree(kept)
        bring_back_mons(cluster)
        yield data / 'filler'
        cluster.kill(mon)
        shutil.copytree(data, kept)
    finally:
        subprocess.run(['umount', '-l', str(data)], check=True, timeout=30)
        data.rmdir()
    kept.rename(data)
    bring_back_mons(cluster)


def fill(filler: Path) -> None:
    with open(filler, 'wb', buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass


def wait_dead(cluster: Cluster, daemon: str) -> None:
    cluster.wait(lambda: cluster.pid(daemon) is None, FULL_SECONDS, '%s to end' % daemon)
