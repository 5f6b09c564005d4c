# SPDX-License-Identifier: LGPL-2.1-or-later
"""Removes the cgroups of a rig after the end of its keeper, which the kernel does not do.

    python3 -m qa.cephadm.sweeper FD RIG    FD: a pipe that the keeper holds open
"""
import os
import sys
import time
from pathlib import Path
from typing import List

#: Killed processes leave their cgroups within milliseconds.
SECONDS_MAX = 10.0


def hierarchies() -> List[Path]:
    """Where systemd-nspawn makes cgroups: that of cgroup2, and with cgroup v1 that of systemd."""
    base = Path('/sys/fs/cgroup')
    return [base] if (base / 'cgroup.procs').exists() else [base / 'unified', base / 'systemd']


def cgroup(rig: str) -> str:
    """The name of the cgroup of a rig."""
    return f'perfguard-cephadm-{rig}'


def sweep(rig: str) -> None:
    """Remove the cgroups of a rig, as far as they have no processes."""
    deadline = time.monotonic() + SECONDS_MAX
    tops = [hierarchy / cgroup(rig) for hierarchy in hierarchies()]
    while any(not _removed(top) for top in tops) and time.monotonic() < deadline:
        time.sleep(0.1)


def _removed(top: Path) -> bool:
    for path, _, _ in os.walk(top, topdown=False):
        try:
            os.rmdir(path)
        except OSError:
            return False
    return True


if __name__ == '__main__':
    while os.read(int(sys.argv[1]), 1):
        pass
    sweep(sys.argv[2])
