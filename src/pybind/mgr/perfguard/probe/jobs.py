# SPDX-License-Identifier: LGPL-2.1-or-later
"""Jobs from what people say: a profile, words on the command line, a job file in fio's syntax."""
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from . import jobfile
from .profiles import DEFAULT_PROFILE, PROFILES
from .types import BadJob, Job
from .words import MAX_OBJECT, MAX_OBJECTS, MIB, size_text, values

Words = Mapping[str, str]

#: What a job is that does not say otherwise. Without nrfiles: objects of OBJECT_BYTES.
DEFAULTS: Words = {'bs': '4k', 'iodepth': '1', 'size': '64m', 'runtime': '10', 'ramp_time': '1'}
#: As RBD and CephFS have them.
OBJECT_BYTES = 4 * MIB
MAX_JOBS = 32
#: Of one job, all its streams together: what the worker holds in memory, and what one client is
#: good for.
MAX_BYTES_IN_FLIGHT = 512 * MIB
MAX_IN_FLIGHT = 4096
MAX_OBJECTS_IN_ALL = 4 * MAX_OBJECTS


def profile_of(profile: Optional[str], words: Words, job_file: Optional[str]) -> str:
    """The profile that is meant: "quick" where nothing says what to do; '': none."""
    if profile:
        return profile
    return '' if job_file is not None or 'rw' in words else DEFAULT_PROFILE


def parse_jobs(profile: Optional[str], words: Words, job_file: Optional[str]) -> Tuple[Job, ...]:
    """The jobs that a profile, or a job file, or rw= describes, all with `words` laid over them.

    Without any of these: the profile "quick". Raises BadJob, of one line that names the word.
    """
    explicit = values(words)
    if profile and job_file is not None:
        raise BadJob('a profile (%s) or a job file, not both' % profile)
    name = profile_of(profile, words, job_file)
    if name and name not in PROFILES:
        raise BadJob('there is no profile %r: %s are known' % (name, ', '.join(PROFILES)))
    if job_file is not None:
        jobs = [_job(section, {**DEFAULTS, **keys, **words})
                for section, keys in jobfile.sections(job_file)]
    elif name:
        jobs = _of_profile(name, words)
    else:
        jobs = [_job(explicit['rw'], {**DEFAULTS, **words})]
    _check_all(jobs, words)
    return tuple(jobs)


def _of_profile(profile: str, words: Words) -> List[Job]:
    """Jobs that `words` make equal count once."""
    jobs: Dict[str, Job] = {}
    for base in PROFILES[profile]:
        merged = {**base, **words}
        # The number of objects of a profile goes with its size and block size.
        if {'size', 'bs'} & words.keys() and 'nrfiles' not in words:
            del merged['nrfiles']
        found = values(merged)
        name = '%s-%s-%d' % (found['rw'], size_text(found['bs']), found['iodepth'])
        jobs.setdefault(name, _job(name, merged))
    return list(jobs.values())


def _job(name: str, words: Words) -> Job:
    """BadJob if words contradict one another."""
    try:
        if 'rw' not in words:
            raise BadJob('rw is missing: read, write, randread, ...')
        found = values(words)
        found.setdefault('nrfiles', _objects(found['size'], found['bs']))
        job = Job(name=name, **found)
        _check(job)
    except BadJob as error:
        raise BadJob('job %s: %s' % (name, error)) from None
    return job


def _objects(size: int, bs: int) -> int:
    """How many objects of 4 MiB, or of one block if that is larger, make up a size."""
    return max(1, -(-size // max(OBJECT_BYTES, bs)))


def _check(job: Job) -> None:
    objects = 'size=%s in %d objects' % (size_text(job.size), job.nrfiles)
    if job.nrfiles > MAX_OBJECTS:
        raise BadJob('%s: at most %d; give nrfiles for larger ones' % (objects, MAX_OBJECTS))
    if job.size % job.nrfiles:
        raise BadJob('%s: they would not be equally large' % objects)
    if job.object_bytes > MAX_OBJECT:
        raise BadJob('%s: an object can have %s at most' % (objects, size_text(MAX_OBJECT)))
    if job.bs > job.object_bytes:
        raise BadJob('bs=%s is larger than an object, which has %s (%s)'
                     % (size_text(job.bs), size_text(job.object_bytes), objects))
    if job.nrfiles * job.numjobs > MAX_OBJECTS_IN_ALL:
        raise BadJob('nrfiles=%d in %d streams: more than %d objects'
                     % (job.nrfiles, job.numjobs, MAX_OBJECTS_IN_ALL))
    if 0 < job.io_size < job.bs:
        raise BadJob('io_size=%s is less than one operation (bs=%s)'
                     % (size_text(job.io_size), size_text(job.bs)))
    check_in_flight(job, job.numjobs)


def check_in_flight(job: Job, streams: int) -> None:
    """BadJob if so many streams of the job would hold too much at the same time."""
    operations = job.iodepth * streams
    if operations > MAX_IN_FLIGHT:
        raise BadJob('iodepth=%d in %d streams: more than %d operations in flight'
                     % (job.iodepth, streams, MAX_IN_FLIGHT))
    if operations * job.bs > MAX_BYTES_IN_FLIGHT:
        raise BadJob('bs=%s, iodepth=%d in %d streams: more than %s in flight'
                     % (size_text(job.bs), job.iodepth, streams, size_text(MAX_BYTES_IN_FLIGHT)))


def _check_all(jobs: Sequence[Job], words: Words) -> None:
    if len(jobs) > MAX_JOBS:
        raise BadJob('%d jobs: at most %d' % (len(jobs), MAX_JOBS))
    if 'rwmixread' in words and not any(job.reads and job.writes for job in jobs):
        raise BadJob('rwmixread=%s: no job reads and writes (rw=rw or rw=randrw)'
                     % words['rwmixread'])
