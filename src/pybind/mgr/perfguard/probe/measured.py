# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a run measured, sorted by what may be compared: job, direction, OSD and part."""
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from .types import READING, WRITING, Direction, Job, Quantiles, Second, Step, StepResult

READ, WRITE = 'read', 'write'
P99 = '99.000000'

Done = Iterable[Tuple[Step, StepResult]]


class JobWords(NamedTuple):
    """The words of a job that change what is measured; name and length do not."""
    rw: str
    bs: int
    iodepth: int
    numjobs: int
    size: int
    nrfiles: int
    rwmixread: int
    rate_iops: int


def job_words(job: Job) -> JobWords:
    mixed = job.rw in READING & WRITING
    return JobWords(job.rw, job.bs, job.iodepth, job.numjobs, job.size, job.nrfiles,
                    job.rwmixread if mixed else 0, job.rate_iops)


class Key(NamedTuple):
    job: JobWords
    #: "read" or "write".
    direction: str
    #: The OSD that led all of it; None: it lay anywhere.
    osd: Optional[int]
    #: Of an interference run: "alone", "together" or "again".
    part: str


class Repetition(NamedTuple):
    """All streams of one step that share a key, together."""
    #: The job's name.
    name: str
    iops: float
    bytes_per_second: float
    #: Of one operation; 0.0 where nobody measures it (the bench of an OSD).
    latency_ns: float
    #: Of the stream where it is the highest, which bounds that of all together.
    p99_ns: float
    seconds: Tuple[Second, ...]
    client_limited: bool


Measured = Dict[Key, List[Repetition]]


def measured(done: Done) -> Measured:
    """By key in the order of the steps; a direction in which nothing was done is left out."""
    found: Measured = {}
    for step, result in done:
        for key, parts in _directions(step, result).items():
            repetition = _together(step.job.name, parts, result.client_limited)
            if repetition is not None:
                found.setdefault(key, []).append(repetition)
    return found


def _directions(step: Step, result: StepResult) -> Dict[Key, List[Direction]]:
    words = job_words(step.job)
    found: Dict[Key, List[Direction]] = {}
    for stream, got in zip(step.streams, result.streams):
        if step.job.reads:
            found.setdefault(Key(words, READ, stream.osd, step.part), []).append(got.read)
        if step.job.writes:
            found.setdefault(Key(words, WRITE, stream.osd, step.part), []).append(got.write)
    return found


def _together(name: str, parts: Sequence[Direction],
              client_limited: bool) -> Optional[Repetition]:
    working = [part for part in parts if part.ios]
    iops = sum(part.iops for part in working)
    if not iops:
        return None
    return Repetition(
        name, iops, sum(part.bytes_per_second for part in working), _mean_ns(working),
        _p99_ns(working), added([part.seconds for part in working]), client_limited)


def _latencies(parts: Sequence[Direction]) -> List[Tuple[int, Quantiles]]:
    return [(part.ios, part.latency) for part in parts if part.latency is not None]


def _mean_ns(parts: Sequence[Direction]) -> float:
    found = _latencies(parts)
    ios = sum(count for count, _ in found)
    return max(1.0, sum(count * latency.mean for count, latency in found) / ios) if ios else 0.0


def _p99_ns(parts: Sequence[Direction]) -> float:
    found = [latency.percentile.get(P99, latency.max) for _, latency in _latencies(parts)]
    return float(max(1, *found)) if found else 0.0


def added(series: Sequence[Tuple[Second, ...]]) -> Tuple[Second, ...]:
    """Series of streams that ran at the same time, as one; as long as the shortest of them."""
    if len(series) == 1:
        return series[0]
    return tuple(Second(max(each.end for each in column), sum(each.ios for each in column),
                        sum(each.bytes for each in column),
                        sum(each.lat_sum_ns for each in column)) for column in zip(*series))


def label(key: Key, name: str) -> str:
    """As in "latency read osd.3 (again)"."""
    return ' '.join(filter(None, (
        name, key.direction, '' if key.osd is None else 'osd.%d' % key.osd,
        '(%s)' % key.part if key.part else '')))


def rate_text(value: float) -> str:
    """A rate as people write it: 12,345 or 45.6."""
    return '{:,.0f}'.format(value) if value >= 100 else '%.3g' % value
