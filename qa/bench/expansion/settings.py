# SPDX-License-Identifier: LGPL-2.1-or-later
"""The size of a run, and the settings of its cluster, clients and perfguard."""

from dataclasses import dataclass, field
from typing import List, Mapping, Sequence, Tuple, TypeVar

OSDS_A_HOST = 2
REPLICATED, ERASURE = 'replicated', 'erasure'
COPIES = 3

CLIENT_OBJECTS = 1000
OPERATION_BYTES = 4096
READ_FRACTION = 0.7

#: Seconds that are not measured: connections are established, caches fill.
SETTLE_SECONDS = 5.0

#: The balancer evens out to a PG in steps as fast as it is on a small cluster; Ceph's defaults
#: (five PGs, a minute between steps of ten) would make a run wait, not move other data.
BALANCER = {'upmap_max_deviation': '1', 'sleep_interval': '2', 'upmap_max_optimizations': '20'}

#: The drives that the OSDs pretend to have -> seconds of osd_recovery_sleep_hdd, for OSDs that keep
#: data in memory count as rotating drives. In the configuration database, where perfguard can
#: replace it for a while; a ceph.conf would win.
FLASH, DISK = 'flash', 'disk'
DRIVES = {FLASH: '0', DISK: '0.1'}
NO_SLEEP_IN_CONF = {'osd recovery sleep': None, 'osd recovery sleep hdd': None}


@dataclass(frozen=True)
class Settings:
    """One run's size; rates are operations a second."""
    release: str
    osds: int = 8
    added: int = 4
    quiet_seconds: int = 30
    #: Of the client of each pool that has many operations in flight.
    many_rate: float = 100.0
    #: Clients of each pool that have one in flight, and the rate of each.
    ones: int = 2
    one_rate: float = 20.0
    #: Objects of each pool, and their size.
    objects: int = 8000
    object_kib: int = 16
    pgs: int = 128
    erasure_pgs: int = 64
    propose_seconds: float = 1.0
    burst_factor: float = 3.0
    burst_seconds: int = 30
    step_seconds: int = 900
    drives: str = FLASH
    #: For every arm of perfguard: its options.
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def object_bytes(self) -> int:
        return self.object_kib * 1024

    @property
    def hosts(self) -> int:
        return self.osds // OSDS_A_HOST

    @property
    def erasure(self) -> Tuple[int, int]:
        """k and m: the larger code where there is a host for each shard."""
        return (4, 2) if self.hosts >= 6 else (2, 1)

    @property
    def least_bytes(self) -> float:
        """What has to move onto new OSDs until these have their share, and no more."""
        k, m = self.erasure
        stored = self.objects * self.object_bytes * (COPIES + (k + m) / k)
        return stored * self.added / (self.osds + self.added)


@dataclass(frozen=True)
class Arm:
    """A way to expand, with options that differ from the other arms': of perfguard, or of the OSDs
    where Ceph is alone."""
    name: str
    method: str
    options: Mapping[str, str]


def parse_arm(text: str, methods: Sequence[str],
              presets: Mapping[str, Mapping[str, str]] = {}) -> Arm:
    """``METHOD[:KEY=VALUE[:KEY=VALUE...]]``; raises ValueError with what is wrong."""
    method, *pairs = text.split(':')
    if method not in methods:
        raise ValueError(f'no such arm: {method!r} (one of {", ".join(methods)})')
    options = dict(parse_option(pair) for pair in pairs)
    return Arm(text, method, {**presets.get(method, {}), **options})


def parse_option(text: str) -> Tuple[str, str]:
    """``KEY=VALUE``; raises ValueError."""
    key, equals, value = text.partition('=')
    if not (key and equals and value):
        raise ValueError(f'not KEY=VALUE: {text!r}')
    return key, value


T = TypeVar('T')


def alternating(arms: Sequence[T], repetitions: int) -> List[Tuple[int, T]]:
    """(repetition, arm) in the order ABBAAB..., so that a drift of the machine favours none."""
    return [(number, arm) for number in range(repetitions)
            for arm in (arms if number % 2 == 0 else arms[::-1])]
