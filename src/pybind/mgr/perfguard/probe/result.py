# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a run measured as fio 3 writes it (--output-format=json), with keys of our own beside."""
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .fio_json import entry
from .types import Direction, Job, Json, Step, StepResult, StreamResult

#: The layout is that of this version; its readers look for a number behind the first "-".
FIO_VERSION = 'fio-3.33-perfguard'

Done = Tuple[Step, StepResult]


class _Who(NamedTuple):
    """What repetitions have in common."""
    job: Job
    part: str
    streams: Tuple[str, ...]


def fio_json(run: Mapping[str, Any], steps: Sequence[Step],
             results: Sequence[StepResult]) -> Json:
    """The document of a run; `results` are those of the first steps, as many as there are.

    `run` has "started" (seconds since the epoch; 0: not yet), "id", "state", "verdict" and what
    else is to be told of the run. An entry of "jobs" is one stream of one job, in interference of
    one part: all numbers are those of the repetition with the median of the operations a second
    (of two in the middle, the slower one); "repetitions" tells what the single ones were, and
    "seconds" of a direction is that repetition's course: [end in s, operations, bytes, sum of
    latencies in ns] of each second.
    Repetitions that were cut short count only where there is no other. "client_limited" holds if
    it holds for any, "errors" are those of all: failed, corrupt and unfinished operations.
    """
    groups: Dict[_Who, List[Done]] = {}
    for step, result in zip(steps, results):
        who = _Who(step.job, step.part, tuple(stream.name for stream in step.streams))
        groups.setdefault(who, []).append((step, result))
    jobs = [each for group in groups.values() for each in _entries(group)]
    started = float(run['started'])
    document = {
        'fio version': FIO_VERSION, 'timestamp': int(started),
        'timestamp_ms': int(started * 1000), 'time': time.ctime(started),
        'global options': _shared([job['job options'] for job in jobs]), 'jobs': jobs,
        'client_limited': any(result.client_limited for result in results),
        'errors': sum(_errors(stream) for result in results for stream in result.streams)}
    return {**document, **{key: value for key, value in run.items() if key not in document}}


def one_job(document: Json, name: str) -> Json:
    """The document of one job only: many readers of fio's JSON take all entries of a file for
    the threads of one job. Without entries if there is no such job."""
    jobs = [job for job in document['jobs'] if job['jobname'] == name]
    return {**document, 'jobs': jobs,
            'global options': _shared([job['job options'] for job in jobs])}


def _shared(options: Sequence[Mapping[str, str]]) -> Dict[str, str]:
    """What all jobs have in common, but the name."""
    first = options[0] if options else {}
    return {key: value for key, value in first.items()
            if key != 'name' and all(each.get(key) == value for each in options)}


def _entries(group: Sequence[Done]) -> List[Json]:
    step, result = _median(group)
    found = []
    for number, (stream, measured) in enumerate(zip(step.streams, result.streams)):
        repetitions = [(each, done.streams[number], done) for each, done in group]
        found.append({
            **entry(step.job, measured, result), 'stream': stream.name, 'osd': stream.osd,
            'part': step.part, 'repetition': step.repetition,
            'repetitions': [_repetition(*each) for each in repetitions],
            'errors': sum(_errors(each) for _, each, _ in repetitions),
            'corrupt': sum(each.corrupt for _, each, _ in repetitions),
            'unfinished': sum(each.unfinished for _, each, _ in repetitions),
            'first_error': next((each.first_error for _, each, _ in repetitions
                                 if each.first_error), ''),
            'client_limited': any(done.client_limited for _, _, done in repetitions),
            'engine': result.engine})
    return found


def _median(group: Sequence[Done]) -> Done:
    whole = [done for done in group if not done[1].cut_short] or group
    ordered = sorted(whole, key=lambda done: _iops(done[1]))
    return ordered[(len(ordered) - 1) // 2]


def _iops(result: StepResult) -> float:
    return sum(stream.read.iops + stream.write.iops for stream in result.streams)


def _errors(stream: StreamResult) -> int:
    return stream.errors + stream.corrupt + stream.unfinished


def _repetition(step: Step, stream: StreamResult, result: StepResult) -> Json:
    return {'repetition': step.repetition, 'read': _summary(stream.read),
            'write': _summary(stream.write), 'errors': _errors(stream),
            'client_limited': result.client_limited, 'cpu_share': result.cpu_share,
            'cut_short': result.cut_short}


def _summary(direction: Direction) -> Optional[Json]:
    """None where nothing was done."""
    if not direction.ios:
        return None
    latency = direction.latency
    return {'iops': direction.iops, 'bw_bytes': int(direction.bytes_per_second),
            'lat_ns': latency and latency.mean,
            'p50_ns': latency and latency.percentile.get('50.000000'),
            'p99_ns': latency and latency.percentile.get('99.000000')}
