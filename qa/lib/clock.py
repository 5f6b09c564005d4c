# SPDX-License-Identifier: LGPL-2.1-or-later
"""A daemon whose wall clock jumps, while the clocks of all others stay right."""
import contextlib
import struct
import subprocess
from datetime import datetime
from pathlib import Path
from typing import List

import pytest

from qa.cluster import Cluster

SOURCE = Path(__file__).with_name('shifted_clock.c')


class ShiftedClock:
    def __init__(self, directory: Path) -> None:
        self._library = directory / 'shifted_clock.so'
        self._shift = directory / 'shift'
        subprocess.run(['cc', '-shared', '-fPIC', '-O1', '-o', str(self._library), str(SOURCE),
                        '-ldl'], check=True, timeout=60)
        self.set(0)

    def set(self, seconds: int) -> None:
        """At once, for each daemon that was started with this clock."""
        # Daemons have mapped the file, so it is neither replaced nor shortened.
        with open(self._shift, 'r+b' if self._shift.exists() else 'w+b') as file:
            file.write(struct.pack('l', seconds))

    def restart(self, cluster: Cluster, daemon: str) -> None:
        """With this clock. An OSD is up again, but a memstore is empty."""
        cluster.kill(daemon)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv('LD_PRELOAD', str(self._library))
            patch.setenv('SHIFTED_CLOCK', str(self._shift))
            cluster.start(daemon)


def times_of_log(cluster: Cluster, daemon: str) -> List[float]:
    """At which a daemon has written to its log, by its own clock."""
    found = []
    with open(cluster.log_path(daemon), errors='replace') as log:
        for line in log:
            # Further lines of a message begin with something else.
            with contextlib.suppress(ValueError):
                found.append(datetime.strptime(line.partition(' ')[0],
                                               '%Y-%m-%dT%H:%M:%S.%f%z').timestamp())
    return found
