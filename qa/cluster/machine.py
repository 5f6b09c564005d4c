# SPDX-License-Identifier: LGPL-2.1-or-later
"""Is there room for a cluster on this machine?"""

import shutil
from pathlib import Path

from .errors import ClusterError

MiB = 1 << 20

# Resident memory, measured on idle clusters and rounded up.
OSD_BYTES = {'memstore': 60 * MiB, 'bluestore': 400 * MiB}
MON_BYTES = 150 * MiB
MGR_BYTES = 500 * MiB

OSD_DISK_BYTES = {'memstore': 5 * MiB, 'bluestore': 300 * MiB}
MON_DISK_BYTES = 300 * MiB


def check_room(directory: Path, store: str, osds: int, mons: int = 0, mgrs: int = 0) -> None:
    """Raise ClusterError when memory or disk will not suffice."""
    memory = osds * OSD_BYTES[store] + mons * MON_BYTES + mgrs * MGR_BYTES
    available = _available_memory()
    if memory > available:
        raise ClusterError(f'{osds} more OSDs ({store}), {mons} mons and {mgrs} mgrs need '
                           f'{memory // MiB} MiB of memory, {available // MiB} MiB are available')
    disk = osds * OSD_DISK_BYTES[store] + mons * MON_DISK_BYTES
    free = shutil.disk_usage(directory).free
    if disk > free:
        raise ClusterError(f'{directory} has {free // MiB} MiB free, {disk // MiB} MiB are needed')


def _available_memory() -> int:
    with open('/proc/meminfo') as f:
        for line in f:
            if line.startswith('MemAvailable:'):
                return int(line.split()[1]) * 1024
    raise ClusterError('/proc/meminfo has no MemAvailable')
