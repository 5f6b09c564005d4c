# SPDX-License-Identifier: LGPL-2.1-or-later
"""The jobs that an operator describes, by a profile, by options or by a job file in fio's syntax,
and the steps of a run of these jobs."""
import re
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..text import listed
from .types import AGAIN, ALONE, RADOS, RBD, TOGETHER, BadJob, Job, JobStep, Stream, Target

MIB = 1 << 20

RW = ('read', 'write', 'randread', 'randwrite', 'rw', 'randrw')
#: Synonyms in fio.
_RW_ALSO = {'readwrite': 'rw'}

#: Ceph's own limits are similar: osd_max_write_size is 90 MiB, osd_max_object_size 128 MiB.
MIN_BS, MAX_BS = 512, 64 * MIB
MAX_OBJECT = 128 * MIB
MAX_OBJECTS = 4096
MIN_RUNTIME_SECONDS, MAX_RUNTIME_SECONDS = 0.1, 3600.0
MAX_RAMP_SECONDS = 600.0
MAX_SIZE = MAX_OBJECT * MAX_OBJECTS
MAX_IO_SIZE = 1 << 50

_SIZE = re.compile(r'(\d{1,18})(?:([kmgt])i?)?b?', re.ASCII | re.IGNORECASE)
_SIZE_UNITS = {'': 1, 'k': 1 << 10, 'm': 1 << 20, 'g': 1 << 30, 't': 1 << 40}
_FIO_TIME = re.compile(r'(\d{1,12}(?:\.\d{1,9})?)(ms|s|m|h)?', re.ASCII | re.IGNORECASE)
_SECOND_UNITS = {'ms': 0.001, 's': 1.0, 'm': 60.0, 'h': 3600.0}


def parse_size(word: str, text: str) -> int:
    """Bytes of "4096", "4k", "4M", "1g", "4KiB". k is 1024, as in fio; and so is KiB, unlike in fio
    (1000 with its default of kb_base). Raises BadJob, which names the option `word`."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise BadJob('%s=%s: must be a size, such as 4096, 4k, 4m or 1g' % (word, text))
    return int(match.group(1)) * _SIZE_UNITS[(match.group(2) or '').lower()]


def parse_seconds(word: str, text: str) -> float:
    """Seconds of "10", "2.5", "10s", "500ms", "2m" (minutes), "1h". Raises BadJob, which names the
    option `word`."""
    match = _FIO_TIME.fullmatch(text.strip())
    if not match:
        raise BadJob('%s=%s: must be a time, such as 10, 10s, 500ms or 2m' % (word, text))
    return float(match.group(1)) * _SECOND_UNITS[(match.group(2) or 's').lower()]


def parse_number(word: str, text: str) -> int:
    """A whole number. Raises BadJob, which names the option `word`."""
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise BadJob('%s=%s: must be a whole number' % (word, text))
    return int(digits)


def number_between(word: str, text: str, low: int, high: int) -> int:
    """A whole number from `low` to `high`, the argument `word` of a command. Raises BadJob."""
    if text.isascii() and text.isdigit() and len(text) < 6 and low <= int(text) <= high:
        return int(text)
    raise BadJob('%s is %r: must be a number from %d to %d' % (word, text, low, high))


def size_text(size: int) -> str:
    """As fio takes it: 4k, 64m, 4097."""
    for unit in ('t', 'g', 'm', 'k'):
        if size and size % _SIZE_UNITS[unit] == 0:
            return '%d%s' % (size // _SIZE_UNITS[unit], unit)
    return str(size)


def _rw(word: str, text: str) -> str:
    name = _RW_ALSO.get(text.strip().lower(), text.strip().lower())
    if name not in RW:
        raise BadJob('%s=%s: must be one of %s' % (word, text, ', '.join(RW)))
    return name


def _ioengine(word: str, text: str) -> str:
    name = text.strip().lower()
    if name not in (RADOS, RBD):
        raise BadJob('%s=%s: must be %s or %s' % (word, text, RADOS, RBD))
    return name


def _between(parse: Callable[[str, str], Any], lowest: float, highest: float,
             text_of: Callable[[Any], str]) -> Callable[[str, str], Any]:
    """A parser of an option that accepts what `parse` does, from `lowest` to `highest`; it raises
    BadJob for other values. `text_of`: how it writes the bounds."""
    def bounded(word: str, text: str) -> Any:
        value = parse(word, text)
        if not lowest <= value <= highest:
            raise BadJob('%s=%s: must be from %s to %s'
                         % (word, text, text_of(lowest), text_of(highest)))
        return value
    return bounded


def _seconds_text(seconds: float) -> str:
    return '%g s' % seconds


class Word(NamedTuple):
    """An option of a job."""
    #: Its value, from its name and the text that was given. Raises BadJob.
    parse: Callable[[str, str], Any]
    help: str


#: All options of a job.
WORDS: Mapping[str, Word] = {
    'rw': Word(_rw, 'read, write, randread, randwrite, rw (or readwrite), randrw'),
    'bs': Word(_between(parse_size, MIN_BS, MAX_BS, size_text),
               'size of one operation in bytes, 512 to 64m'),
    'iodepth': Word(_between(parse_number, 1, 1024, str),
                    'operations in flight per stream, 1 to 1024'),
    'numjobs': Word(_between(parse_number, 1, 64, str),
                    'number of concurrent streams, each with its own objects, 1 to 64'),
    'size': Word(_between(parse_size, MIN_BS, MAX_SIZE, size_text),
                 'total size of the objects of each stream in bytes'),
    'nrfiles': Word(_between(parse_number, 1, MAX_OBJECTS, str),
                    'number of objects of each stream, 1 to 4096, each of size / nrfiles bytes'),
    'runtime': Word(_between(parse_seconds, MIN_RUNTIME_SECONDS, MAX_RUNTIME_SECONDS,
                             _seconds_text), 'measured time in seconds, 0.1 to 3600'),
    'ramp_time': Word(_between(parse_seconds, 0.0, MAX_RAMP_SECONDS, _seconds_text),
                      'time before the measurement in seconds, 0 to 600'),
    'rate_iops': Word(_between(parse_number, 0, 10 ** 6, str),
                      'maximum operations per second of each stream; 0: unlimited'),
    'rwmixread': Word(_between(parse_number, 0, 100, str), 'percentage of reads in rw and randrw'),
    'io_size': Word(_between(parse_size, 0, MAX_IO_SIZE, size_text),
                    'maximum number of bytes that each stream transfers; 0: unlimited'),
    'ioengine': Word(_ioengine, 'rados (objects) or rbd (an image, through librbd)'),
}


def parsed_options(words: Mapping[str, str]) -> Dict[str, Any]:
    """The values of options of a job. Raises BadJob for an unknown option or an invalid value."""
    by_option = {}
    for word, text in words.items():
        if word not in WORDS:
            raise BadJob('%s=%s: unknown job option; must be one of %s'
                         % (word, text, ', '.join(WORDS)))
        by_option[word] = WORDS[word].parse(word, text)
    return by_option


# ---- Job files in fio's syntax: [sections] of key=value, [global] for those below it, comment

GLOBAL = 'global'
#: Keys with an effect.
SUPPORTED: Tuple[str, ...] = tuple(WORDS)
#: fio's other names of keys, as "fio --cmdhelp" lists them.
ALIASES: Mapping[str, str] = {
    'readwrite': 'rw', 'blocksize': 'bs', 'nr_files': 'nrfiles', 'timeout': 'runtime',
    'io_limit': 'io_size', 'wait_for_previous': 'stonewall'}
#: The complement of rwmixread. fio uses the one that is given last.
RWMIXWRITE = 'rwmixwrite'
#: Keys without effect, and their allowed values ('' stands for the key alone): jobs always run one
#: after the other, for their runtime, and each stream is reported separately.
IMPLIED: Mapping[str, Tuple[str, ...]] = {
    'time_based': ('', '1'), 'stonewall': ('', '0', '1'), 'group_reporting': ('', '0', '1'),
    'thread': ('', '0', '1'), 'direct': ('', '0', '1')}
#: Keys of fio's engines rados and rbd that say how to reach the cluster.
CONNECTION_KEYS = ('pool', 'rbdname', 'clientname', 'clustername', 'conf', 'busy_poll',
                   'touch_objects')
#: Keys that have no effect on objects: on names, logs, reports, files, and the order of blocks.
NO_EFFECT = (
    'name', 'description', 'write_bw_log', 'write_lat_log', 'write_iops_log', 'write_hist_log',
    'log_avg_msec', 'log_hist_msec', 'per_job_logs', 'bwavgtime', 'iopsavgtime', 'disk_util',
    'clat_percentiles', 'lat_percentiles', 'slat_percentiles', 'percentile_list', 'invalidate',
    'fallocate', 'fadvise_hint', 'overwrite', 'unlink', 'create_serialize', 'create_on_open',
    'openfiles', 'norandommap', 'randrepeat', 'allrandrepeat', 'randseed')
MAX_NAME = 64
_COMMENT = re.compile('[#;].*')
MAX_LINES = 2000

Section = Tuple[str, Dict[str, str]]


def sections(text: str) -> List[Section]:
    """The name and the keys of each job of a file, those of the [global] sections above it
    included. Raises BadJob, with the line, for a syntax error or an invalid value."""
    lines = text.splitlines()
    if len(lines) > MAX_LINES:
        raise BadJob('the job file has %d lines (limit %d)' % (len(lines), MAX_LINES))
    parsed: List[Section] = []
    inherited: Dict[str, str] = {}
    # The keys of the section that contains the line; None: no section has begun.
    settings = None
    name = ''
    for number, raw_line in enumerate(lines, 1):
        line = _COMMENT.sub('', raw_line).strip()
        if not line:
            continue
        if line[0] == '[':
            name = _section_name(line, number)
            if name == GLOBAL:
                settings = inherited
                continue
            if name in dict(parsed):
                raise BadJob('line %d of the job file: duplicate job [%s]' % (number, name))
            settings = dict(inherited)
            parsed.append((name, settings))
            continue
        if settings is None:
            raise BadJob('line %d of the job file: %s is not in a [section]' % (number, line))
        settings.update(_setting(line, name, number))
    if not parsed:
        raise BadJob('the job file has no job: add a [section] other than [global]')
    return parsed


def _section_name(line: str, number: int) -> str:
    name = line[1:-1].strip()
    if not (line.endswith(']') and 0 < len(name) <= MAX_NAME and name.isprintable()):
        raise BadJob('line %d of the job file: %s is not a [section]' % (number, line[:80]))
    return name


def _setting(line: str, section: str, number: int) -> Dict[str, str]:
    """The key of a line, by its name in WORDS, and its value; also of a key without effect, for
    `remarks`. Raises BadJob for an unknown key or an invalid value."""
    key, _, value = (part.strip() for part in line.partition('='))
    key = ALIASES.get(key, key)
    where = 'line %d of the job file, [%s]' % (number, section)
    if key in CONNECTION_KEYS or key in NO_EFFECT:
        return {key: value}
    if key in IMPLIED:
        # No value has an effect, but one that fio would not accept is an error.
        if value.lower() not in IMPLIED[key]:
            raise BadJob('%s: %s=%s: must be %s' % (where, key, value, ' or '.join(
                '%s=%s' % (key, accepted) if accepted else key for accepted in IMPLIED[key])))
        return {key: value}
    if key not in WORDS and key != RWMIXWRITE:
        raise BadJob('%s: unknown key %s; must be one of %s (%s are accepted without effect)' % (
            where, key[:80], ', '.join(SUPPORTED), ', '.join(IMPLIED)))
    try:
        if key == RWMIXWRITE:
            return {'rwmixread': str(100 - WORDS['rwmixread'].parse(key, value))}
        WORDS[key].parse(key, value)
    except BadJob as error:
        raise BadJob('%s: %s' % (where, error)) from None
    return {key: value}


def remarks(job_file: Optional[str]) -> Tuple[str, ...]:
    """What fio would do differently with a valid file, as texts; `job_file`: None: there is none.
    """
    jobs = [] if job_file is None else sections(job_file)
    texts = []
    for keys, text in (
            (CONNECTION_KEYS, 'options of the command, not of the job file, determine the pool and '
                              'the access to the cluster; ignored: %s'),
            (NO_EFFECT, 'without effect on objects: %s')):
        present = [key for key in keys if any(key in settings for _, settings in jobs)]
        if present:
            texts.append(text % ', '.join(present))
    together = [name for name, settings in jobs[1:] if settings.get('stonewall', '0') == '0']
    if together:
        texts.append('all jobs run one after the other; fio would start those without stonewall '
                     'together with the job before: %s' % listed(together))
    return tuple(texts)


# ---- Profiles: 4 KiB at depth 1 (latency), 4 KiB at depth 128 (operations), 4 MiB (throughput)

Words = Mapping[str, str]

#: Many objects, so that small operations reach many PGs; large ones fill the objects of 4 MiB
#: that RBD and CephFS have.
_LATENCY = {'bs': '4k', 'iodepth': '1', 'size': '256m', 'nrfiles': '256'}
_IOPS = {'bs': '4k', 'iodepth': '128', 'size': '256m', 'nrfiles': '256'}
_THROUGHPUT = {'bs': '4m', 'iodepth': '16', 'size': '256m', 'nrfiles': '64'}
_LONG = {'runtime': '10', 'ramp_time': '1'}
#: 18 steps (6 jobs, 3 repetitions) of this are 43 s, which leaves 15 s for making a pool, filling
#: it and clearing up.
_QUICK = {'size': '64m', 'runtime': '2', 'ramp_time': '400ms'}


def _random(words: Words) -> Tuple[Words, ...]:
    return {'rw': 'randwrite', **words}, {'rw': 'randread', **words}


def _linear(words: Words) -> Tuple[Words, ...]:
    return {'rw': 'write', **words}, {'rw': 'read', **words}


#: From one operation in flight to more than any flash cluster benefits from.
_SWEPT_DEPTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128)
#: 39 steps (13 jobs, 3 repetitions) of this are 105 s.
_CURVE = {**_IOPS, 'runtime': '2', 'ramp_time': '500ms'}

PROFILES: Mapping[str, Sequence[Words]] = {
    'latency': _random({**_LATENCY, **_LONG}),
    'iops': _random({**_IOPS, **_LONG}),
    'throughput': _linear({**_THROUGHPUT, **_LONG}),
    'quick': (*_random({**_LATENCY, **_QUICK}), *_random({**_IOPS, **_QUICK}),
              *_linear({**_THROUGHPUT, **_QUICK, 'nrfiles': '16'})),
    # For the curve of "probe show".
    'curve': tuple({'rw': 'randwrite', **_CURVE, 'iodepth': str(depth)} for depth in _SWEPT_DEPTHS),
}
DEFAULT_PROFILE = 'quick'
#: The median of three repetitions is shown.
DEFAULT_REPEAT = 3
MAX_REPEAT = 20


def default_repeat(profile: str) -> int:
    """Number of repetitions of each job of a profile; other jobs run once."""
    return DEFAULT_REPEAT if profile else 1


#: Defaults of a job. Without nrfiles: objects of OBJECT_BYTES.
JOB_DEFAULTS: Words = {'bs': '4k', 'iodepth': '1', 'size': '64m', 'runtime': '10', 'ramp_time': '1'}
#: Size of an object, as in RBD and CephFS.
OBJECT_BYTES = 4 * MIB
MAX_JOBS = 32
#: Limits of one job with all its streams: memory of the worker, and the capacity of one client.
MAX_BYTES_IN_FLIGHT = 512 * MIB
MAX_IN_FLIGHT = 4096
MAX_OBJECTS_IN_ALL = 4 * MAX_OBJECTS


def profile_of(profile: Optional[str], words: Words, job_file: Optional[str]) -> str:
    """The name of the profile, "quick" if neither jobs nor a profile are given; '': none."""
    if profile:
        return profile
    return '' if job_file is not None or 'rw' in words else DEFAULT_PROFILE


def parse_jobs(profile: Optional[str], words: Words, job_file: Optional[str]) -> Tuple[Job, ...]:
    """The jobs of a profile, of a job file (its text), or of the option rw. `words`: options that
    override those of all jobs.

    Without any of these: the profile "quick". Raises BadJob with one line that names the option.
    """
    explicit = parsed_options(words)  # first, so that an error in them names no job
    if profile and job_file is not None:
        raise BadJob('give either a profile (%s) or a job file, not both' % profile)
    name = profile_of(profile, words, job_file)
    if name and name not in PROFILES:
        raise BadJob('unknown profile %r: must be one of %s' % (name, ', '.join(PROFILES)))
    if job_file is not None:
        jobs = [job_of(section, {
            **JOB_DEFAULTS, **{key: value for key, value in settings.items() if key in WORDS},
            **words}) for section, settings in sections(job_file)]
    elif name:
        jobs = _of_profile(name, words)
    else:
        jobs = [job_of(explicit['rw'], {**JOB_DEFAULTS, **words})]
    _check_all(jobs, words)
    return tuple(jobs)


def _of_profile(profile: str, words: Words) -> List[Job]:
    """The jobs of a profile, whose options `words` override; jobs that differ in none of rw, bs and
    iodepth afterwards count once. Raises BadJob."""
    jobs: Dict[str, Job] = {}
    for base in PROFILES[profile]:
        merged = {**base, **words}
        # The number of objects of a profile is only valid for its own size and block size; without
        # it, job_of computes one.
        if {'size', 'bs'} & words.keys() and 'nrfiles' not in words:
            del merged['nrfiles']
        options = parsed_options(merged)
        name = '%s-%s-%d' % (options['rw'], size_text(options['bs']), options['iodepth'])
        jobs.setdefault(name, job_of(name, merged))
    return list(jobs.values())


def job_of(name: str, words: Words) -> Job:
    """A job from its options as texts. Raises BadJob, with the name of the job, if an option is
    invalid or two contradict each other."""
    try:
        if 'rw' not in words:
            raise BadJob('rw is missing: give read, write, randread, randwrite, rw or randrw')
        options = parsed_options(words)
        options.setdefault('nrfiles', _objects(options['size'], options['bs']))
        job = Job(name=name, **options)
        _check(job)
    except BadJob as error:
        raise BadJob('job %s: %s' % (name, error)) from None
    return job


def job_options(job: Job) -> Dict[str, str]:
    """The job in fio's options, sizes in plain bytes, which most readers expect."""
    options = {'name': job.name, 'ioengine': job.ioengine, 'rw': job.rw, 'bs': str(job.bs),
               'iodepth': str(job.iodepth), 'numjobs': str(job.numjobs), 'size': str(job.size),
               'nrfiles': str(job.nrfiles), 'runtime': '%g' % job.runtime,
               'ramp_time': '%g' % job.ramp_time}
    if job.reads and job.writes:
        options.update(rwmixread=str(job.rwmixread), rwmixwrite=str(100 - job.rwmixread))
    if job.rate_iops:
        options['rate_iops'] = str(job.rate_iops)
    if job.io_size:
        options['io_size'] = str(job.io_size)
    return options


def _objects(size: int, bs: int) -> int:
    """The number of objects of 4 MiB, or of one block if that is larger, that hold `size` bytes."""
    return max(1, -(-size // max(OBJECT_BYTES, bs)))


def _check(job: Job) -> None:
    """Raise BadJob if the options of a job contradict each other, or exceed a limit together."""
    objects = 'size=%s in %d objects' % (size_text(job.size), job.nrfiles)
    if job.nrfiles > MAX_OBJECTS:
        raise BadJob('%s: limit is %d objects; set nrfiles for larger objects'
                     % (objects, MAX_OBJECTS))
    if job.size % job.nrfiles:
        raise BadJob('%s: the objects would differ in size' % objects)
    if job.object_bytes > MAX_OBJECT:
        raise BadJob('%s: an object is limited to %s' % (objects, size_text(MAX_OBJECT)))
    if job.bs > job.object_bytes:
        raise BadJob('bs=%s is larger than an object of %s (%s)'
                     % (size_text(job.bs), size_text(job.object_bytes), objects))
    if job.nrfiles * job.numjobs > MAX_OBJECTS_IN_ALL:
        raise BadJob('nrfiles=%d with numjobs=%d: limit is %d objects in total'
                     % (job.nrfiles, job.numjobs, MAX_OBJECTS_IN_ALL))
    if 0 < job.io_size < job.bs:
        raise BadJob('io_size=%s is less than one operation (bs=%s)'
                     % (size_text(job.io_size), size_text(job.bs)))
    check_in_flight(job, job.numjobs)


def check_in_flight(job: Job, streams: int) -> None:
    """Raise BadJob if so many streams of the job would have too many operations or bytes in flight.
    """
    operations = job.iodepth * streams
    if operations > MAX_IN_FLIGHT:
        raise BadJob('iodepth=%d with numjobs=%d: limit is %d operations in flight'
                     % (job.iodepth, streams, MAX_IN_FLIGHT))
    if operations * job.bs > MAX_BYTES_IN_FLIGHT:
        raise BadJob('bs=%s, iodepth=%d with numjobs=%d: limit is %s in flight'
                     % (size_text(job.bs), job.iodepth, streams, size_text(MAX_BYTES_IN_FLIGHT)))


def _check_all(jobs: Sequence[Job], words: Words) -> None:
    """Raise BadJob if the jobs of a run are too many, use different engines, or cannot have an
    option that was given for all of them (`words`)."""
    if len(jobs) > MAX_JOBS:
        raise BadJob('%d jobs (limit %d)' % (len(jobs), MAX_JOBS))
    if 'rwmixread' in words and not any(job.reads and job.writes for job in jobs):
        raise BadJob('rwmixread=%s requires a job that reads and writes (rw=rw or rw=randrw)'
                     % words['rwmixread'])
    if len({job.ioengine for job in jobs}) > 1:
        raise BadJob('ioengine: must be the same for all jobs of a probe')


# ---- The steps of a run: which job on which OSDs, in which order; objects: placement.py

def check_target(jobs: Sequence[Job], target: Target) -> None:
    """Raise BadJob if the jobs cannot be done on the target: the objects of an image, which librbd
    names, would need a chosen primary; OSDs that work together are too few; or they would have too
    much in flight."""
    if jobs[0].ioengine == RBD and target.kind not in ('cluster', 'pool'):
        raise BadJob('ioengine=rbd measures an image, which is on all OSDs of its pool: OSDs and '
                     '--interference or --scale do not apply')
    if target.kind not in ('interference', 'scale'):
        return
    if len(target.osds) < 2:
        raise BadJob('--%s requires at least two OSDs' % target.kind)
    if len(target.hosts) == 1:
        raise BadJob('--by_host requires OSDs of at least two hosts')
    # These targets use only the first job.
    check_in_flight(jobs[0], jobs[0].numjobs * len(target.osds))


def step_count(jobs: Sequence[Job], target: Target, repeat: int) -> int:
    """The number of steps of `plan_steps`, without planning them."""
    if target.kind == 'interference':
        # Each OSD alone and alone again, and all of them together.
        return repeat * (2 * len(target.osds) + 1)
    if target.kind == 'scale':
        return repeat * len(scale_counts(target))
    return repeat * len(jobs) * max(1, len(target.osds))


def plan_steps(jobs: Sequence[Job], target: Target, repeat: int) -> Tuple[JobStep, ...]:
    """The steps of a run on a pool, in order, without names of objects. Raises BadJob.

    Each repetition covers all jobs and all OSDs before the next one begins, so that a change in the
    cluster affects all of them alike (with interference, each part has all repetitions).
    """
    check_target(jobs, target)
    if target.kind == 'interference':
        return _interference(jobs[0], target.osds, repeat)
    if target.kind == 'scale':
        return _scale(jobs[0], target, repeat)
    osds: Sequence[Optional[int]] = target.osds or (None,)
    return tuple(JobStep(job, _streams(job, osd), repetition)
                 for repetition in range(repeat) for osd in osds for job in jobs)


def _streams(job: Job, osd: Optional[int]) -> Tuple[Stream, ...]:
    """One for each of numjobs."""
    return tuple(Stream(_stream_name(job, osd, number), (), osd) for number in range(job.numjobs))


def _stream_name(job: Job, osd: Optional[int], number: int) -> str:
    if osd is None:
        return str(number)
    return 'osd.%d' % osd + ('/%d' % number if job.numjobs > 1 else '')


def _interference(job: Job, osds: Sequence[int], repeat: int) -> Tuple[JobStep, ...]:
    """The steps that show whether OSDs slow each other down: each OSD alone, then all together,
    then each alone again. All repetitions of a part precede the next part, because the load of all
    OSDs may have lasting effects."""
    streams = {osd: _streams(job, osd) for osd in osds}
    everyone = tuple(stream for osd in osds for stream in streams[osd])
    steps: List[JobStep] = []
    for part, loads in ((ALONE, list(streams.values())), (TOGETHER, [everyone]),
                        (AGAIN, list(streams.values()))):
        steps += [JobStep(job, streams_at_once, repetition, part)
                  for repetition in range(repeat) for streams_at_once in loads]
    return tuple(steps)


def doubled(number: int) -> Tuple[int, ...]:
    """1, 2, 4 ... below the number, and the number."""
    return (*(1 << power for power in range((number - 1).bit_length())), number)


def scale_counts(target: Target) -> Tuple[int, ...]:
    """The numbers of OSDs that work at the same time: 1, 2, 4 ... and all of them; by host, the
    OSDs of 1, 2, 4 ... and all hosts."""
    if not target.hosts:
        return doubled(len(target.osds))
    return tuple(sum(target.hosts[:hosts]) for hosts in doubled(len(target.hosts)))


def _scale(job: Job, target: Target, repeat: int) -> Tuple[JobStep, ...]:
    """The steps that show how throughput grows with the number of OSDs: more and more of them work
    at the same time."""
    return tuple(
        JobStep(job, tuple(stream for osd in target.osds[:count] for stream in _streams(job, osd)),
                repetition, part=str(count))
        for repetition in range(repeat) for count in scale_counts(target))
