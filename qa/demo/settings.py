# SPDX-License-Identifier: LGPL-2.1-or-later
"""How large the demonstration is, and how its cluster and perfguard are set up."""

import math
from dataclasses import dataclass
OSDS_MIN = 6
OSDS_MAX = 40
OBJECT_BYTES = 16384
POOL = 'demo'
OPERATION_BYTES = 4096
READ_FRACTION = 0.7
CLIENT_OBJECTS = 1000

#: perfguard's options that are not left at their defaults: on few OSDs each PG that moves is felt,
#: and what is usual has to be learned in the quiet seconds.
OPTIONS = {'max_pgs_in_flight': '4', 'baseline_seconds': '5'}

#: What the speed before and after is measured with, some 25 s each time: short and often, for the
#: repetitions distinguish a difference from chance. In a pool of its own: what is usual for
#: POOL is to be learned from the clients.
PROBE = {'profile': 'latency', 'size': '16m', 'nrfiles': '64', 'runtime': '2',
         'ramp_time': '200ms', 'repeat': '4'}


@dataclass(frozen=True)
class Settings:
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
    """The power of two next to 16 PGs an OSD: of three copies, 36 to 68 on each at first."""
    return 1 << round(math.log2(16 * osds))
