# SPDX-License-Identifier: LGPL-2.1-or-later
"""The messages between the mgr and the worker, and their JSON."""
import zlib
from dataclasses import asdict, dataclass
from typing import Any, Dict, Iterable, Optional, Sequence, Tuple, TypeVar

from ..cluster.types import Json
from ..codec import decode
from ..version import VERSION
from .placement import Naming, naming_from_json, naming_to_json, run_prefix
from .types import MEETING_PREFIX, NAMESPACE, BadJob, Job, JobStep, StepResult, Stream

_T = TypeVar('_T')

RUN = 'run'
SWEEP = 'sweep'
ENGINES = ('auto', 'python', 'native')
#: State of a step that waits for other hosts.
STEP_WAITS = 'waits'


@dataclass(frozen=True)
class WorkerRequest:
    """The first line that the worker reads."""
    pool: str
    #: Run: the prefix of the names of all objects of this run. Sweep: what is removed.
    prefix: str
    entity: str
    #: The secret of the cephx user; it is sent in this line only.
    key: str
    mon_host: str
    mode: str = RUN
    #: Path of ceph.conf, '' for none.
    conf: str = ''
    namespace: str = NAMESPACE
    steps: Tuple[JobStep, ...] = ()
    #: Wall time of the whole process, including connecting, prefill and cleaning up.
    limit_seconds: float = 60.0
    #: Seconds without a line from the sender after which the worker ends; 0: it never does.
    silence_seconds: float = 0.0
    engine: str = 'auto'
    seed: int = 0
    #: Determines the names of the objects of the steps or of the sweep; None: the steps contain the
    #: names, and a sweep lists the pool.
    naming: Optional[Naming] = None
    #: Where an earlier sweep ended: the number of a name.
    cursor: int = 0
    #: The object at which several hosts have met to measure at the same time; '': one measures
    #: alone. Before each step the worker waits for {"begin": index}, and its results have counts.
    meeting: str = ''
    #: This host has created the meeting: the worker removes it if its sender has ended.
    leads: bool = False
    #: Of the sender. A worker is what is installed when it begins, an mgr what was when it began.
    version: str = VERSION


def request_to_json(request: WorkerRequest) -> Json:
    """Steps refer to jobs and lists of objects by number: with 60 OSDs and 18 steps each, repeating
    the same names 18 times would take 12 MB."""
    jobs = _numbers(step.job for step in request.steps)
    objects = _numbers(stream.objects for step in request.steps for stream in step.streams)
    steps = [{'job': jobs[step.job], 'repetition': step.repetition, 'part': step.part,
              'streams': [[stream.name, objects[stream.objects], stream.osd]
                          for stream in step.streams]} for step in request.steps]
    naming = None if request.naming is None else naming_to_json(request.naming)
    return {**vars(request), 'jobs': [asdict(job) for job in jobs],
            'objects': [list(names) for names in objects], 'steps': steps, 'naming': naming}


def _numbers(values: Iterable[_T]) -> Dict[_T, int]:
    return {value: number for number, value in enumerate(dict.fromkeys(values))}


def request_from_json(data: Json) -> WorkerRequest:
    """Raises BadJob if a field is missing, unknown or invalid, or another version sent it."""
    if data.get('version') != VERSION:
        raise BadJob(other_version(data.get('version', 'of another version'), VERSION))
    try:
        jobs = [Job(**job) for job in data.get('jobs', ())]
        objects = [tuple(names) for names in data.get('objects', ())]
        raw_naming = data.get('naming')
        naming = None if raw_naming is None else naming_from_json(raw_naming)
        steps = tuple(_step(step, jobs, objects, naming) for step in data.get('steps', ()))
        fields: Json = {name: value for name, value in data.items()
                        if name not in ('jobs', 'objects', 'steps', 'naming')}
        request = WorkerRequest(**fields, steps=steps, naming=naming)
    except (TypeError, LookupError, AttributeError, zlib.error) as e:
        raise BadJob('bad request: %s' % e)
    if request.mode not in (RUN, SWEEP):
        raise BadJob('bad request: mode %r' % (request.mode,))
    if request.engine not in ENGINES:
        raise BadJob('bad request: engine %r' % (request.engine,))
    if not request.prefix or not request.namespace:
        # Both protect the objects of other clients.
        raise BadJob('bad request: prefix and namespace must not be empty')
    if naming is not None and run_prefix(naming.run) != request.prefix:
        raise BadJob('bad request: objects of run %d lack the prefix %r' % (
            naming.run, request.prefix))
    if request.meeting and not request.meeting.startswith(MEETING_PREFIX):
        raise BadJob('bad request: meeting %r' % (request.meeting,))
    names = (name for group in objects for name in group)
    foreign = next((name for name in names if not name.startswith(request.prefix)), None)
    if foreign is not None:
        raise BadJob('bad request: object %r lacks the prefix %r' % (foreign, request.prefix))
    return request


#: Why the mgr cannot use a worker.
NO_FILES = 'the files of perfguard are missing on the host of the mgr: install them again'


def other_version(running: str, installed: str) -> str:
    """Why the mgr, which runs one version, cannot use a worker of another one."""
    return 'the mgr runs perfguard %s, but %s is installed: restart the mgr, or run "ceph mgr ' \
        'fail"' % (running, installed)


def _step(data: Json, jobs: Sequence[Job], objects: Sequence[Tuple[str, ...]],
          naming: Optional[Naming]) -> JobStep:
    """Raises BadJob if no operation fits into an object."""
    job = jobs[data['job']]
    if job.bs < 1 or job.iodepth < 1 or job.nrfiles < 1 or job.bs > job.object_bytes:
        raise BadJob('job %s: inconsistent bs %d, iodepth %d, size %d and nrfiles %d' % (
            job.name, job.bs, job.iodepth, job.size, job.nrfiles))
    streams = tuple(Stream(name, objects[number], osd) for name, number, osd in data['streams'])
    if not streams or naming is None and not all(stream.objects for stream in streams):
        raise BadJob('job %s: a stream has no objects' % job.name)
    return JobStep(job, streams, data['repetition'], data['part'])


#: Exclusive upper bound of all numbers of a result.
VALUE_BOUND = 1 << 63


def step_result(raw: Any) -> StepResult:
    """The result of a worker, or of an imported run, from its JSON. Malformed if it is none;
    ValueError for a number that nothing can have."""
    result: StepResult = decode(StepResult, raw)
    _check_numbers(raw)
    return result


def _check_numbers(raw: Any) -> None:
    if isinstance(raw, dict):
        raw = list(raw.values())
    if isinstance(raw, list):
        for part in raw:
            _check_numbers(part)
    elif isinstance(raw, (int, float)) and not 0 <= raw < VALUE_BOUND:
        raise ValueError('%r is no measure' % raw)
