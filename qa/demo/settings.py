# SPDX-License-Identifier: LGPL-2.1-or-later
"""Size of the demonstration, and settings of its cluster and of perfguard."""

import math
from dataclasses import dataclass
OSDS_MIN = 6
OSDS_MAX = 40
OBJECT_BYTES = 16384
POOL = 'demo'
OPERATION_BYTES = 4096
READ_FRACTION = 0.7
CLIENT_OBJECTS = 1000

#: Options of perfguard: with few OSDs, each PG in flight affects clients, and the baseline must be
#: learned during the quiet phase.
OPTIONS = {'max_pgs_in_flight': '4', 'baseline_seconds': '5'}

#: The probes before and after the expansion, about 25 s each, with many short repetitions to
#: distinguish a difference from chance. They use their own pool, because the baseline of POOL must
#: be learned from the clients.
PROBE = {'profile': 'latency', 'size': '16m', 'nrfiles': '64', 'runtime': '2',
         'ramp_time': '200ms', 'repeat': '4'}


@dataclass(frozen=True)
class DemoSettings:
    release: str
    osds: int
    quiet_seconds: int
    rate: int
    objects: int
    pg_num: int
    propose_seconds: float

    @property
    def hosts(self) -> int:
        return self.osds // 2

    @property
    def added_hosts(self) -> int:
        return max(2, round(self.hosts / 3))

    @property
    def added_osds(self) -> int:
        return 2 * self.added_hosts


def usual_pg_num(osds: int) -> int:
    """The power of two closest to 16 PGs per OSD (36 to 68 on each OSD, with three copies)."""
    return 1 << round(math.log2(16 * osds))
