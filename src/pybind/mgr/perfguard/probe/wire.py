# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the mgr and the worker send each other, as JSON and back."""
from dataclasses import asdict, dataclass
from typing import Optional, Sequence, Tuple

from .types import (NAMESPACE, BadJob, Direction, Job, Json, Quantiles, Second, Step, StepResult,
                    Stream, StreamResult)

RUN = 'run'
SWEEP = 'sweep'
ENGINES = ('auto', 'python', 'native')


@dataclass(frozen=True)
class Request:
    """The one line that the worker begins with."""
    pool: str
    #: Run: the begin of all names of this run's objects. Sweep: what is removed.
    prefix: str
    entity: str
    #: The secret of the cephx user; it travels in this line only.
    key: str
    mon_host: str
    mode: str = RUN
    #: Path of ceph.conf, '' for none.
    conf: str = ''
    namespace: str = NAMESPACE
    steps: Tuple[Step, ...] = ()
    #: Wall time of the whole process, with connecting, prefill and cleaning.
    limit_seconds: float = 60.0
    engine: str = 'auto'
    seed: int = 0


def request_to_json(request: Request) -> Json:
    fields = {name: getattr(request, name) for name in Request.__dataclass_fields__}
    return {**fields, 'steps': [step_to_json(step) for step in request.steps]}


def request_from_json(data: Json) -> Request:
    """Raises BadJob where a field is missing, unknown or makes no sense."""
    try:
        steps = tuple(step_from_json(step) for step in data.get('steps', ()))
        fields: Json = {**data, 'steps': steps}
        request = Request(**fields)
    except (TypeError, KeyError, AttributeError) as e:
        raise BadJob('bad request: %s' % e)
    if request.mode not in (RUN, SWEEP):
        raise BadJob('bad request: mode %r' % (request.mode,))
    if request.engine not in ENGINES:
        raise BadJob('bad request: engine %r' % (request.engine,))
    if not request.prefix or not request.namespace:
        # Both protect the objects of others.
        raise BadJob('bad request: prefix and namespace must not be empty')
    names = (name for step in steps for stream in step.streams for name in stream.objects)
    stranger = next((name for name in names if not name.startswith(request.prefix)), None)
    if stranger is not None:
        raise BadJob('bad request: object %r has not the prefix %r' % (stranger, request.prefix))
    return request


def step_to_json(step: Step) -> Json:
    return {'job': asdict(step.job), 'streams': [stream._asdict() for stream in step.streams],
            'repetition': step.repetition, 'part': step.part}


def step_from_json(data: Json) -> Step:
    """Raises BadJob where no operation fits into an object."""
    job = Job(**data['job'])
    if job.bs < 1 or job.iodepth < 1 or job.nrfiles < 1 or job.bs > job.object_bytes:
        raise BadJob('job %s: bs %d, iodepth %d, size %d and nrfiles %d do not go together' % (
            job.name, job.bs, job.iodepth, job.size, job.nrfiles))
    streams = tuple(Stream(row['name'], tuple(row['objects']), row.get('osd'))
                    for row in data['streams'])
    if not streams or not all(stream.objects for stream in streams):
        raise BadJob('job %s: a stream without objects' % job.name)
    return Step(job, streams, data.get('repetition', 0), data.get('part', ''))


def step_result_to_json(result: StepResult) -> Json:
    return {'streams': [_stream_to_json(stream) for stream in result.streams],
            'cpu_user': result.cpu_user, 'cpu_system': result.cpu_system,
            'cpu_share': result.cpu_share, 'client_limited': result.client_limited,
            'engine': result.engine, 'cut_short': result.cut_short}


def step_result_from_json(data: Json) -> StepResult:
    """The other fields of the worker's line ("type", "index") are ignored."""
    return StepResult(tuple(_stream_from_json(stream) for stream in data['streams']),
                      data['cpu_user'], data['cpu_system'], data['cpu_share'],
                      data['client_limited'], data['engine'], data['cut_short'])


def _stream_to_json(result: StreamResult) -> Json:
    return {'name': result.name, 'read': _direction_to_json(result.read),
            'write': _direction_to_json(result.write), 'errors': result.errors,
            'corrupt': result.corrupt, 'unfinished': result.unfinished,
            'first_error': result.first_error}


def _stream_from_json(data: Json) -> StreamResult:
    return StreamResult(data['name'], _direction_from_json(data['read']),
                        _direction_from_json(data['write']), data['errors'], data['corrupt'],
                        data['unfinished'], data['first_error'])


def _direction_to_json(direction: Direction) -> Json:
    latency = direction.latency
    return {'ios': direction.ios, 'bytes': direction.bytes, 'runtime_ns': direction.runtime_ns,
            'latency': {**latency._asdict(), 'percentile': dict(latency.percentile)}
            if latency is not None else None,
            'seconds': [list(second) for second in direction.seconds]}


def _direction_from_json(data: Json) -> Direction:
    return Direction(data['ios'], data['bytes'], data['runtime_ns'],
                     _quantiles_from_json(data['latency']), _seconds(data['seconds']))


def _quantiles_from_json(data: Optional[Json]) -> Optional[Quantiles]:
    return Quantiles(**data) if data is not None else None


def _seconds(rows: Sequence[Sequence[float]]) -> Tuple[Second, ...]:
    return tuple(Second(row[0], int(row[1]), int(row[2]), int(row[3])) for row in rows)
