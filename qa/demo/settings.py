# SPDX-License-Identifier: LGPL-2.1-or-later
"""Size of the demonstration, and settings of its cluster. perfguard has its defaults."""

import math
from dataclasses import dataclass
OSDS_MIN = 6
OSDS_MAX = 40
OBJECT_BYTES = 16384
POOL = 'demo'
OPERATION_BYTES = 4096
READ_FRACTION = 0.7
CLIENT_OBJECTS = 1000

#: OSDs have no device class. Otherwise they have that of hard disks, by which probes would judge
#: them, although they keep their data in memory.
CONF = {'osd class update on start': 'false'}

#: The probes before and after the expansion, about 30 s each, with many short repetitions to
#: distinguish a difference from chance. Both use this pool: the pool that a probe creates has more
#: PGs when there are more OSDs. It is not POOL, whose baseline must be learned from the clients.
PROBE_POOL = 'probed'
PROBE_PG_NUM = 32
PROBE = {'profile': 'latency', 'pool': PROBE_POOL, 'size': '16m', 'nrfiles': '64', 'runtime': '1',
         'ramp_time': '200ms', 'repeat': '10'}


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
