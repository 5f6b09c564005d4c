# SPDX-License-Identifier: LGPL-2.1-or-later
"""The results of a run in the JSON of fio 3."""
import math
import time
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..cluster.types import Json
from .jobs import job_options
from .types import Direction, Job, JobStep, Quantiles, Second, StepResult, StreamResult

#: Exclusive upper bounds in ns of the classes in which fio counts latencies: key, unit in ns.
_EDGES = (2, 4, 10, 20, 50, 100, 250, 500, 750, 1000)
_CLASSES: Sequence[Tuple[str, int, Sequence[int]]] = (
    ('latency_ns', 1, _EDGES), ('latency_us', 1000, _EDGES),
    ('latency_ms', 1000000, (*_EDGES, 2000)))
_LAST_CLASS = '>=2000'
#: fio's classes of depth, by the least depth of each.
_DEPTHS = ((1, '1'), (2, '2'), (4, '4'), (8, '8'), (16, '16'), (32, '32'), (64, '>=64'))
#: fio's classes of operations that are submitted or completed together: here always one.
_BATCHES = ('0', '4', '8', '16', '32', '64', '>=64')
_NO_QUANTILES = Quantiles(0, 0, 0.0, 0.0, {})
#: Minimum length of the last second to be counted, as a share of a whole one.
_LEAST_SECOND = 0.5
EIO, EILSEQ = 5, 84

NS_PER_SECOND = 10 ** 9


def entry(job: Job, stream: StreamResult, step: StepResult) -> Json:
    """The entry of fio's "jobs" for one stream of one step. The latency from submission to
    completion is both clat and lat; slat, page faults and context switches are not measured (0).

    The worker's CPU time is divided between the streams of the step. The shares of latency_ns,
    latency_us and latency_ms are interpolated between the percentiles.
    """
    runtime_ns = max(stream.read.runtime_ns, stream.write.runtime_ns)
    cpu_scale = 100.0 * NS_PER_SECOND / runtime_ns / len(step.streams) if runtime_ns else 0.0
    row: Json = {
        'jobname': job.name, 'groupid': 0, 'error': _error(stream), 'eta': 0,
        'elapsed': math.ceil(job.ramp_time + runtime_ns / NS_PER_SECOND),
        'job options': job_options(job), 'read': direction(stream.read),
        'write': direction(stream.write),
        'trim': {key: value for key, value in direction(Direction()).items() if key != 'seconds'},
        'sync': {'total_ios': 0, 'lat_ns': _latency(_NO_QUANTILES, 0)},
        'job_runtime': runtime_ns // 1000000, 'usr_cpu': step.cpu_user * cpu_scale,
        'sys_cpu': step.cpu_system * cpu_scale, 'ctx': 0, 'majf': 0, 'minf': 0}
    row['iodepth_level'] = _depths(job.iodepth if stream.read.ios + stream.write.ios else 0)
    # Operations are submitted and completed one by one, which fio counts in its class of 1 to 4.
    for key in ('iodepth_submit', 'iodepth_complete'):
        row[key] = {batch: 100.0 if batch == '4' else 0.0 for batch in _BATCHES}
    row.update(_classes([stream.read, stream.write]))
    row.update(latency_depth=job.iodepth, latency_target=0, latency_percentile=100.0,
               latency_window=0)
    return row


def _error(stream: StreamResult) -> int:
    if stream.corrupt:
        return EILSEQ
    return EIO if stream.errors or stream.unfinished else 0


def direction(measured: Direction) -> Json:
    """The reads or the writes of a stream in fio's format."""
    latency = measured.latency or _NO_QUANTILES
    clat = _latency(latency, measured.ios)
    if latency.percentile:
        clat['percentile'] = dict(latency.percentile)
    return {
        'io_bytes': measured.bytes, 'io_kbytes': measured.bytes >> 10,
        'bw_bytes': int(measured.bytes_per_second), 'bw': int(measured.bytes_per_second) >> 10,
        'iops': measured.iops, 'runtime': measured.runtime_ns // 1000000, 'total_ios': measured.ios,
        'short_ios': 0, 'drop_ios': 0, 'slat_ns': _latency(_NO_QUANTILES, 0), 'clat_ns': clat,
        'lat_ns': _latency(latency, measured.ios), **_bandwidth(measured.seconds),
        **_operations(measured.seconds), 'seconds': [list(second) for second in measured.seconds]}


def _latency(latency: Quantiles, count: int) -> Json:
    return {'min': latency.min, 'max': latency.max, 'mean': latency.mean,
            'stddev': latency.stddev, 'N': count}


def _bandwidth(seconds: Sequence[Second]) -> Json:
    """The bandwidth in KiB/s, as in fio."""
    lowest, highest, mean, stddev, samples = _spread([
        second.bytes / length / 1024 for second, length in _lengths(seconds)])
    return {'bw_min': int(lowest), 'bw_max': int(highest), 'bw_agg': 100.0 if samples else 0.0,
            'bw_mean': mean, 'bw_dev': stddev, 'bw_samples': samples}


def _operations(seconds: Sequence[Second]) -> Json:
    lowest, highest, mean, stddev, samples = _spread([
        second.ios / length for second, length in _lengths(seconds)])
    return {'iops_min': int(lowest), 'iops_max': int(highest), 'iops_mean': mean,
            'iops_stddev': stddev, 'iops_samples': samples}


def _lengths(seconds: Sequence[Second]) -> List[Tuple[Second, float]]:
    """Each second and its length in seconds, without a last one that is shorter than _LEAST_SECOND,
    unless it is the only one."""
    begins = [0.0, *(second.end for second in seconds)]
    pairs = [(second, second.end - begin) for second, begin in zip(seconds, begins)
             if second.end > begin]
    if len(pairs) > 1 and pairs[-1][1] < _LEAST_SECOND:
        pairs.pop()
    return pairs


def _spread(values: Sequence[float]) -> Tuple[float, float, float, float, int]:
    """Least, most, mean, standard deviation of the sample, number."""
    if not values:
        return 0.0, 0.0, 0.0, 0.0, 0
    mean = sum(values) / len(values)
    squares = sum((value - mean) ** 2 for value in values)
    return (min(values), max(values), mean, (squares / max(1, len(values) - 1)) ** 0.5,
            len(values))


def _depths(depth: int) -> Dict[str, float]:
    """Per cent of the operations in fio's classes of depth. All are in that of `depth`, which the
    engine keeps exactly unless a rate is requested; a `depth` of 0: there are no operations."""
    mine = [key for lowest, key in _DEPTHS if lowest <= depth][-1:]
    return {key: 100.0 if [key] == mine else 0.0 for _, key in _DEPTHS}


def _classes(directions: Iterable[Direction]) -> Dict[str, Dict[str, float]]:
    """Per cent of the operations in fio's classes of latency, as the objects latency_ns, latency_us
    and latency_ms; 0.0 without operations."""
    working = [(measured.ios, measured.latency) for measured in directions
               if measured.latency and measured.ios]
    total = sum(ios for ios, _ in working)
    shares: Dict[str, Dict[str, float]] = {}
    below = 0.0
    for name, unit_ns, edges in _CLASSES:
        shares[name] = {}
        for edge in edges:
            share = sum(ios * share_below(latency, edge * unit_ns)
                        for ios, latency in working) / total if total else 0.0
            shares[name][str(edge)] = 100.0 * (share - below)
            below = share
    shares['latency_ms'][_LAST_CLASS] = 100.0 * (1.0 - below) if total else 0.0
    return shares


def share_below(latency: Quantiles, ns: int) -> float:
    """The share (0 to 1) of the operations that took less than `ns`; linear between percentiles."""
    points = [(latency.min, 0.0), *sorted((value, float(key) / 100)
                                          for key, value in latency.percentile.items()),
              (latency.max, 1.0)]
    if ns <= latency.min:
        return 0.0
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        if ns < x1:
            return y0 + (y1 - y0) * (ns - x0) / (x1 - x0)
    return 1.0


# ---- A run as fio 3 writes it (--output-format=json), with keys of our own

#: The layout is that of this version; its readers look for a number behind the first "-".
FIO_VERSION = 'fio-3.33-perfguard'

Done = Tuple[JobStep, StepResult]


class _Who(NamedTuple):
    """The common properties of repetitions."""
    job: Job
    part: str
    streams: Tuple[str, ...]


def fio_json(started: float, steps: Sequence[JobStep], results: Sequence[StepResult]) -> Json:
    """The document of a run; `results` are those of the first steps, as many as there are.

    `started`: seconds since the epoch; 0: not yet. An entry of "jobs" is one stream of one job (of
    one part of it, with interference or scale). Its figures are those of the repetition with the
    median of the operations per second (of two in the middle, the slower one); repetitions that
    were cut short count only if there is no other. "seconds" of a direction has the values of each
    second: [end in s, operations, bytes, sum of latencies in ns]. "repetitions" summarizes each
    repetition. "client_limited" is true if it is true for any of them; "errors" is the sum of all:
    failed, corrupt and unfinished operations.
    """
    groups: Dict[_Who, List[Done]] = {}
    for step, result in zip(steps, results):
        who = _Who(step.job, step.part, tuple(stream.name for stream in step.streams))
        groups.setdefault(who, []).append((step, result))
    jobs = [job for group in groups.values() for job in _entries(group)]
    return {
        'fio version': FIO_VERSION, 'timestamp': int(started),
        'timestamp_ms': int(started * 1000), 'time': time.ctime(started),
        'global options': _shared([job['job options'] for job in jobs]), 'jobs': jobs,
        'client_limited': any(result.client_limited for result in results),
        'errors': sum(_errors(stream) for result in results for stream in result.streams)}


def _shared(options: Sequence[Mapping[str, str]]) -> Dict[str, str]:
    """The options that all jobs share, except the name."""
    first = options[0] if options else {}
    return {key: value for key, value in first.items()
            if key != 'name' and all(each_options.get(key) == value for each_options in options)}


def _entries(group: Sequence[Done]) -> List[Json]:
    """The entries of a job in fio's format: one for each stream, with the figures of the median
    repetition, and a list of all repetitions. `group`: all repetitions, with the same streams."""
    step, result = _median(group)
    entries = []
    for number, (stream, measured) in enumerate(zip(step.streams, result.streams)):
        repetitions = [(job_step, done.streams[number], done) for job_step, done in group]
        entries.append({
            **entry(step.job, measured, result), 'stream': stream.name, 'osd': stream.osd,
            'part': step.part, 'repetition': step.repetition,
            'repetitions': [_repetition(*repetition) for repetition in repetitions],
            'errors': sum(_errors(stream_result) for _, stream_result, _ in repetitions),
            'corrupt': sum(stream_result.corrupt for _, stream_result, _ in repetitions),
            'unfinished': sum(stream_result.unfinished for _, stream_result, _ in repetitions),
            'first_error': next((stream_result.first_error for _, stream_result, _ in repetitions
                                 if stream_result.first_error), ''),
            'client_limited': any(done.client_limited for _, _, done in repetitions),
            'engine': result.engine})
    return entries


def _median(group: Sequence[Done]) -> Done:
    """The repetition with the median of the operations per second, of two in the middle the slower
    one. Those that were cut short count only if there is no other."""
    whole = [done for done in group if not done[1].cut_short] or group
    ordered = sorted(whole, key=lambda done: sum(
        stream.read.iops + stream.write.iops for stream in done[1].streams))
    return ordered[(len(ordered) - 1) // 2]


def _errors(stream: StreamResult) -> int:
    return stream.errors + stream.corrupt + stream.unfinished


def _repetition(step: JobStep, stream: StreamResult, result: StepResult) -> Json:
    """One repetition of a stream, for the list of all repetitions."""
    return {'repetition': step.repetition, 'read': _summary(stream.read),
            'write': _summary(stream.write), 'errors': _errors(stream),
            'client_limited': result.client_limited, 'cpu_share': result.cpu_share,
            'cut_short': result.cut_short}


def _summary(direction: Direction) -> Optional[Json]:
    """The figures of a direction for a list of repetitions; None without operations."""
    if not direction.ios:
        return None
    latency = direction.latency
    return {'iops': direction.iops, 'bw_bytes': int(direction.bytes_per_second),
            'lat_ns': latency and latency.mean,
            'p50_ns': latency and latency.percentile.get('50.000000'),
            'p99_ns': latency and latency.percentile.get('99.000000')}
