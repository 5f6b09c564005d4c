# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a probe does and what it found, as plain frozen data.

A run is a list of steps, one after the other; a step is one job (fio's word) done by one or more
streams at the same time, each with objects, a queue depth and numbers of its own.
"""
from dataclasses import dataclass
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..errors import InvalidValue

Json = Dict[str, Any]

#: RADOS namespace of all objects that probes write; with PREFIX it tells them from all others.
NAMESPACE = 'perfguard-probe'
#: Names of objects, cephx users ("client." + PREFIX + run) and own pools begin with it.
PREFIX = 'perfguard-probe-'

#: Parts of an interference run.
ALONE, TOGETHER, AGAIN = 'alone', 'together', 'again'

READING = frozenset({'read', 'randread', 'rw', 'randrw'})
WRITING = frozenset({'write', 'randwrite', 'rw', 'randrw'})
RANDOM = frozenset({'randread', 'randwrite', 'randrw'})


class BadJob(InvalidValue):
    """A job that makes no sense; the message is one line and names the word and the value."""


@dataclass(frozen=True)
class Job:
    """One job in fio's words. Sizes in bytes, times in seconds."""
    name: str
    #: read, write, randread, randwrite, rw (readwrite), randrw.
    rw: str
    #: Bytes of one operation.
    bs: int
    #: Operations in flight of one stream.
    iodepth: int
    #: Bytes that one stream works on, evenly in so many objects.
    size: int
    nrfiles: int
    #: Seconds that are measured, after `ramp_time` seconds that are not.
    runtime: float
    ramp_time: float = 0.0
    #: Streams at the same time, each with objects of its own.
    numjobs: int = 1
    #: Per cent of reads in rw and randrw.
    rwmixread: int = 50
    #: Operations a second of one stream at most; 0: as many as there can be.
    rate_iops: int = 0
    #: Bytes that one stream transfers at most, then it ends early; 0: no bound.
    io_size: int = 0

    @property
    def object_bytes(self) -> int:
        return self.size // self.nrfiles

    @property
    def reads(self) -> bool:
        return self.rw in READING

    @property
    def writes(self) -> bool:
        return self.rw in WRITING


class Stream(NamedTuple):
    """What keeps `iodepth` operations in flight: a job of its own, as in numjobs."""
    name: str
    objects: Tuple[str, ...]
    #: The OSD that leads the PGs of all these objects; None: they lie anywhere.
    osd: Optional[int] = None


@dataclass(frozen=True)
class JobStep:
    job: Job
    streams: Tuple[Stream, ...]
    #: Which repetition of the job this is, from 0.
    repetition: int = 0
    #: With interference: "alone", "together" or "again".
    part: str = ''


class Quantiles(NamedTuple):
    """Latencies in ns of one direction of one stream; zeros where nothing was done."""
    min: int
    max: int
    mean: float
    stddev: float
    #: fio's keys ("99.000000") -> ns.
    percentile: Mapping[str, int]


#: Percentiles that are told, p1 to p99.99.
PERCENTILES = (1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5,
               99.9, 99.95, 99.99)


class Second(NamedTuple):
    """One second of the measured time of one direction (the last one may be shorter)."""
    #: From the begin of the measurement.
    end: float
    ios: int
    bytes: int
    lat_sum_ns: int


@dataclass(frozen=True)
class Direction:
    """Reads, or writes, of one stream in the measured time."""
    ios: int = 0
    bytes: int = 0
    #: Measured time in ns: from the end of the ramp to the last completion that counts, and at
    #: least for as long as operations were sent, for a cluster that does not answer is not fast.
    runtime_ns: int = 0
    latency: Optional[Quantiles] = None
    seconds: Tuple[Second, ...] = ()

    @property
    def iops(self) -> float:
        return self.ios * 1e9 / self.runtime_ns if self.runtime_ns else 0.0

    @property
    def bytes_per_second(self) -> float:
        return self.bytes * 1e9 / self.runtime_ns if self.runtime_ns else 0.0


@dataclass(frozen=True)
class StreamResult:
    name: str
    read: Direction = Direction()
    write: Direction = Direction()
    #: Operations that failed, reads whose bytes were not what was written, operations that had no
    #: answer when the time was over, and the first error in words.
    errors: int = 0
    corrupt: int = 0
    unfinished: int = 0
    first_error: str = ''


@dataclass(frozen=True)
class StepResult:
    streams: Tuple[StreamResult, ...]
    #: CPU seconds of the worker in the measured time, and what its busiest thread (or, where one
    #: lock lets only one thread run, all of them) used of one core, 0 to 1.
    cpu_user: float = 0.0
    cpu_system: float = 0.0
    cpu_share: float = 0.0
    #: The worker's own CPU was the bound, so that the numbers are a lower bound of the cluster's.
    client_limited: bool = False
    engine: str = ''
    #: Why the step ended early, '' if it did not.
    cut_short: str = ''


class Counted(NamedTuple):
    """Operations of clients, by the counters of an OSD, between begin and end of a run."""
    osd: int
    reads: int
    writes: int


@dataclass(frozen=True)
class Target:
    """What is probed."""
    #: "cluster" (an own pool), "pool", "osd" (each of `osds`, one after the other), "store" (tell
    #: osd bench) or "interference".
    kind: str
    #: Pool of the operator's; '' for an own pool that is created and removed.
    pool: str = ''
    osds: Tuple[int, ...] = ()
    #: Of the own pool.
    replicas: int = 3

    def jobs(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Those of the jobs that are done: interference takes one."""
        return jobs[:1] if self.kind == 'interference' else jobs

    @property
    def key(self) -> str:
        """What results are compared by: the same key, the same thing."""
        osds = ','.join(map(str, self.osds))
        own = 'x%d' % self.replicas if not self.pool and self.kind != 'store' else ''
        return ':'.join(filter(None, (self.kind, self.pool or own, osds)))
