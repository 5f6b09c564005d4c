# SPDX-License-Identifier: LGPL-2.1-or-later
"""Frozen types of the jobs and the results of a probe.

A run is a list of steps, which run one after the other. A step is one job (in fio's sense), done by
one or more concurrent streams, each with its own objects and queue depth.
"""
from dataclasses import dataclass, replace
from typing import (Annotated, Callable, ClassVar, Dict, Iterable, Mapping, NamedTuple, Optional,
                    Sequence, Tuple, TypeVar)

from ..cluster.types import PROBE_NAMESPACE
from ..codec import As
from ..errors import InvalidValue

_T = TypeVar('_T')

#: Together with PREFIX it identifies the objects of probes.
NAMESPACE = PROBE_NAMESPACE
#: Prefix of the names of objects, cephx users ("client." + PREFIX + run) and pools of probes.
PROBE_PREFIX = 'perfguard-probe-'
#: Prefix of the names of objects at which perfguard-probes of several hosts meet.
MEETING_PREFIX = PROBE_PREFIX + 'join-'

#: Parts of a run with --interference.
ALONE, TOGETHER, AGAIN = 'alone', 'together', 'again'

READING = frozenset({'read', 'randread', 'rw', 'randrw'})
WRITING = frozenset({'write', 'randwrite', 'rw', 'randrw'})
RANDOM = frozenset({'randread', 'randwrite', 'randrw'})

#: fio's engines: RADOS objects, or an image of RBD.
RADOS, RBD = 'rados', 'rbd'


class BadJob(InvalidValue):
    """An invalid job; the message is one line and names the option and the value."""


@dataclass(frozen=True)
class Job:
    """One job with fio's options. Sizes in bytes, times in seconds."""
    name: str
    #: read, write, randread, randwrite, rw (readwrite), randrw.
    rw: str
    #: Bytes of one operation.
    bs: int
    #: Operations in flight of one stream.
    iodepth: int
    #: Total size of the objects of one stream, and their number.
    size: int
    nrfiles: int
    #: Seconds that are measured, after `ramp_time` seconds that are not.
    runtime: float
    ramp_time: float = 0.0
    #: Number of concurrent streams, each with its own objects.
    numjobs: int = 1
    #: Per cent of reads in rw and randrw.
    rwmixread: int = 50
    #: Maximum operations per second of one stream; 0: unlimited.
    rate_iops: int = 0
    #: Maximum number of bytes that one stream transfers before it ends early; 0: unlimited.
    io_size: int = 0
    #: RADOS, or RBD: what would be objects are then consecutive ranges of an image.
    ioengine: str = RADOS

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
    """Keeps `iodepth` operations in flight, like one of fio's numjobs."""
    name: str
    objects: Tuple[str, ...]
    #: The primary of the PGs of all these objects; None: any OSD.
    osd: Optional[int] = None


@dataclass(frozen=True)
class JobStep:
    job: Job
    streams: Tuple[Stream, ...]
    #: Number of the repetition of the job, from 0.
    repetition: int = 0
    #: With interference: "alone", "together" or "again"; with scale: the number of OSDs.
    part: str = ''


@dataclass(frozen=True)
class _PackedStep:
    json_row: ClassVar[bool] = True
    #: The number of its job.
    job: int
    repetition: int
    part: str
    #: The name of each stream, the number of its list of objects, and its OSD.
    streams: Tuple[Tuple[str, int, Optional[int]], ...]


@dataclass(frozen=True)
class _PackedSteps:
    """Steps with the jobs and the lists of objects that many of them share."""
    jobs: Tuple[Job, ...]
    objects: Tuple[Tuple[str, ...], ...]
    steps: Tuple[_PackedStep, ...]


def _packed_steps(steps: Sequence[JobStep]) -> _PackedSteps:
    jobs = _numbers(step.job for step in steps)
    objects = _numbers(stream.objects for step in steps for stream in step.streams)
    return _PackedSteps(tuple(jobs), tuple(objects), tuple(
        _PackedStep(jobs[step.job], step.repetition, step.part, tuple(
            (stream.name, objects[stream.objects], stream.osd) for stream in step.streams))
        for step in steps))


def _numbers(values: Iterable[_T]) -> Dict[_T, int]:
    """Each different value -> its number, in the order of their first occurrence."""
    return {value: number for number, value in enumerate(dict.fromkeys(values))}


def _unpacked_steps(packed: _PackedSteps) -> Tuple[JobStep, ...]:
    return tuple(JobStep(packed.jobs[step.job], tuple(
        Stream(name, packed.objects[number], osd) for name, number, osd in step.streams),
        step.repetition, step.part) for step in packed.steps)


#: With 60 OSDs and 18 steps each, repeating the same names 18 times would take 12 MB.
JobSteps = Annotated[Tuple[JobStep, ...], As(_PackedSteps, _packed_steps, _unpacked_steps)]


@dataclass(frozen=True)
class Quantiles:
    """Latencies in ns of one direction of one stream; zeros without operations."""
    min: int
    max: int
    mean: float
    stddev: float
    #: fio's keys ("99.000000") -> ns.
    percentile: Mapping[str, int]


#: Percentiles that are reported, p1 to p99.99.
PERCENTILES = (1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5,
               99.9, 99.95, 99.99)


class Second(NamedTuple):
    """One second of the measured time of one direction (the last one may be shorter)."""
    #: Seconds since the beginning of the measurement.
    end: float
    ios: int
    bytes: int
    lat_sum_ns: int


def summed(seconds: Sequence[Second]) -> Second:
    """Several seconds as one, which ends with the last of them."""
    return Second(max(second.end for second in seconds), sum(second.ios for second in seconds),
                  sum(second.bytes for second in seconds),
                  sum(second.lat_sum_ns for second in seconds))


@dataclass(frozen=True)
class Direction:
    """Reads, or writes, of one stream in the measured time."""
    ios: int = 0
    bytes: int = 0
    #: Measured time in ns: from the end of the ramp to the last completion that counts, but not
    #: less than the time in which operations were sent: a cluster that does not answer is slow.
    runtime_ns: int = 0
    latency: Optional[Quantiles] = None
    seconds: Tuple[Second, ...] = ()
    #: (bucket, operations) of histogram.py, for results that are merged; else empty.
    counts: Tuple[Tuple[int, int], ...] = ()

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
    #: Failed operations, reads that returned wrong data, operations without an answer at the end,
    #: and the text of the first error.
    errors: int = 0
    corrupt: int = 0
    unfinished: int = 0
    first_error: str = ''


@dataclass(frozen=True)
class StepResult:
    streams: Tuple[StreamResult, ...]
    #: CPU seconds of the worker in the measured time, and the share of one core, 0 to 1, that its
    #: busiest thread used (all threads, if a lock lets only one of them run).
    cpu_user: float = 0.0
    cpu_system: float = 0.0
    cpu_share: float = 0.0
    #: The CPU of the worker was the bottleneck: the cluster may be faster.
    client_limited: bool = False
    engine: str = ''
    #: Why the step ended early; '' if it did not.
    cut_short: str = ''

    def with_directions(self, change: Callable[[Direction], Direction]) -> 'StepResult':
        """The result with `change` applied to each direction of each stream."""
        return replace(self, streams=tuple(
            replace(stream, read=change(stream.read), write=change(stream.write))
            for stream in self.streams))


class Counted(NamedTuple):
    """Client operations that an OSD counted from the beginning to the end of a run."""
    osd: int
    reads: int
    writes: int
    #: Sums of their latencies, with those of the other OSDs that an operation waits for.
    read_ns: int = 0
    write_ns: int = 0


@dataclass(frozen=True)
class Target:
    """What is probed."""
    #: "cluster" (in a pool that the run creates), "pool", "osd" (each of `osds`, one after the
    #: other), "store" (the command bench of OSDs), "interference" or "scale".
    kind: str
    #: Pool of the operator; '' for a pool that the run creates and removes.
    pool: str = ''
    osds: Tuple[int, ...] = ()
    #: Copies in the pool that the run creates.
    replicas: int = 3
    #: With scale by host: the number of OSDs of each host; `osds` are ordered by host.
    hosts: Tuple[int, ...] = ()

    def jobs(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Those of the given jobs that are done: interference and scale use only the first."""
        return jobs[:1] if self.kind in ('interference', 'scale') else jobs

    @property
    def key(self) -> str:
        """Results with the same key are comparable."""
        osds = ','.join(map(str, self.osds))
        pool = 'x%d' % self.replicas if not self.pool and self.kind != 'store' else ''
        hosts = 'hosts' if self.hosts else ''
        return ':'.join(filter(None, (self.kind, self.pool or pool, osds, hosts)))
