# SPDX-License-Identifier: LGPL-2.1-or-later
"""Records of runs: their JSON, how long they are kept, the conditions they were made under, and the
records of imported runs."""
import json
from dataclasses import dataclass, field, replace
from typing import AbstractSet, Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from ..cluster.types import ConfigEntry, Json
from ..codec import Malformed, Newer, decode, encode
from ..store import Store
from ..text import listed, plural
from .jobs import MAX_JOBS, MAX_REPEAT, job_of, job_options, parse_jobs, plan_steps
from .types import (BadJob, Counted, Direction, Job, JobStep, JobSteps, Quantiles, Second,
                    StepResult, StreamResult, Target, summed)
from .worker.protocol import step_result

PREPARING, RUNNING, CLEANING = 'preparing', 'running', 'cleaning'
#: Aborted: a stop condition ended the run.
DONE, FAILED, CANCELLED, ABORTED = 'done', 'failed', 'cancelled', 'aborted'
#: Final states.
ENDED_STATES = frozenset({DONE, FAILED, CANCELLED, ABORTED})

#: Maximum number of points of a series of one direction of one stream, in short and in long runs.
MAX_POINTS = 60
MIN_POINTS = 6
#: Maximum number of points in all series of a run.
RUN_POINTS = 6000
#: Maximum number of messages and conditions of a record; the last ones are kept.
MAX_TEXTS = 50


@dataclass(frozen=True)
class RunRecord:
    """One run. Times in seconds since the epoch; 0.0: not yet."""
    id: int
    state: str
    #: Name of the profile; '' where the jobs were given in words or in a file.
    profile: str
    target: Target
    created: float
    started: float = 0.0
    ended: float = 0.0
    #: "command", or the name of the schedule.
    trigger: str = 'command'
    #: Without the names of objects, which were removed.
    steps: JobSteps = ()
    #: Of the completed steps, from the first one on.
    results: Tuple[StepResult, ...] = ()
    #: What disturbed the run: scrub, deep scrub, balancer, autoscaler, recovery.
    conditions: Tuple[str, ...] = ()
    messages: Tuple[str, ...] = ()
    #: By the counters of the OSDs that were probed.
    counted: Tuple[Counted, ...] = ()
    #: Other conditions that affect results (setting_of).
    setting: Mapping[str, str] = field(default_factory=dict)
    #: Of the operator's pool when it began: OSDs, and operations per second of clients on them.
    osds: int = 0
    beside: float = 0.0

    @property
    def done(self) -> Sequence[Tuple[JobStep, StepResult]]:
        return tuple(zip(self.steps, self.results))

    @property
    def ended_well(self) -> bool:
        return self.state == DONE


def slimmed(record: RunRecord) -> RunRecord:
    """The stored form of a record: without names of objects, with fewer points in the series of
    seconds, and with its last MAX_TEXTS conditions and messages."""
    directions = sum(len(result.streams) * (step.job.reads + step.job.writes)
                     for step, result in record.done)
    points = max(MIN_POINTS, min(MAX_POINTS, RUN_POINTS // max(1, directions)))

    def thin(direction: Direction) -> Direction:
        return replace(direction, seconds=thinned(direction.seconds, points))

    return replace(
        record,
        steps=tuple(replace(step, streams=tuple(stream._replace(objects=())
                                                for stream in step.streams))
                    for step in record.steps),
        results=tuple(result.with_directions(thin) for result in record.results),
        conditions=record.conditions[-MAX_TEXTS:], messages=record.messages[-MAX_TEXTS:])


def thinned(seconds: Sequence[Second], points: int) -> Tuple[Second, ...]:
    """A series with at most `points` points: neighbours are added up, so sums do not change."""
    step = -(-len(seconds) // points)
    if step <= 1:
        return tuple(seconds)
    return tuple(summed(seconds[at:at + step]) for at in range(0, len(seconds), step))


# ---- Which runs are kept

#: Streams of all steps of all runs that are kept. A stream takes up to 1.2 kB of the store of the
#: mons, and more of the memory of the mgr.
MOST_STREAMS = 6000


class RunHistory:
    """Slimmed records by id. To be used by one thread."""

    def __init__(self) -> None:
        self._records: Dict[int, RunRecord] = {}

    def put(self, record: RunRecord) -> None:
        self._records[record.id] = slimmed(record)

    def remove(self, run_id: int) -> None:
        self._records.pop(run_id, None)

    def get(self, run_id: int) -> Optional[RunRecord]:
        return self._records.get(run_id)

    def all(self) -> List[RunRecord]:
        """The oldest first."""
        return [self._records[run_id] for run_id in sorted(self._records)]

    def outlived(self, keep: int, baselines: AbstractSet[int]) -> List[int]:
        """The ids of the runs to be removed, the oldest first. The newest `keep` ended runs remain,
        fewer of them if all runs together have more than MOST_STREAMS streams, but at least one;
        and all active runs and baselines."""
        outlived: List[int] = []
        runs, streams = 0, sum(_streams(record) for record in self._records.values()
                               if record.id in baselines or record.state not in ENDED_STATES)
        for record in reversed(self.all()):
            if record.id in baselines or record.state not in ENDED_STATES:
                continue
            runs, streams = runs + 1, streams + _streams(record)
            if runs > 1 and (runs > keep or streams > MOST_STREAMS):
                outlived.append(record.id)
        return outlived[::-1]


def _streams(record: RunRecord) -> int:
    """The number of streams of all steps: the size of a record."""
    return sum(len(step.streams) for step in record.steps)


# ---- Conditions of a run other than jobs and target: runs that differ in them are not comparable

#: Prefixes of options that affect the speed of OSDs and clients, except for these: defaults of new
#: pools and OSDs, failure detection, reports to the mons and the mgr, the start and end of an OSD.
#: Options of which it is not certain count.
_PREFIXES = ('osd_', 'bluestore_', 'bluefs_', 'rocksdb_', 'memstore_', 'ms_', 'objecter_', 'rbd_')
_WITHOUT_EFFECT = (
    'osd_beacon_', 'osd_crush_', 'osd_failsafe_', 'osd_fast_shutdown', 'osd_heartbeat_', 'osd_mon_',
    'osd_op_complaint_time', 'osd_op_log_threshold', 'osd_pool_default_')
#: It places the pool that a probe creates.
_WITH_EFFECT = ('osd_pool_default_crush_rule',)
#: Sections whose options count.
_SECTIONS = ('global', 'osd', 'client')
#: Maximum number of options recorded, and of differences named.
MOST_OPTIONS, MOST_NAMED = 200, 5
ENGINE, RELEASE, POOL_PGS, DRIVES, OPTION = 'engine', 'Ceph release', 'PGs', 'drives', 'option '
#: Of the operator's pool.
REDUNDANCY = 'redundancy'
#: Its CPU and network are those of the client.
MGR_HOST = 'host of the mgr'
#: The client host of an imported run, and what stands for the host of the mgr.
CLIENT, ACTIVE_MGR = 'client', 'the active mgr'
#: Number of client hosts, if several have measured at the same time.
CLIENTS = 'clients'
#: Maximum number of drive models recorded.
MOST_DRIVES = 20
#: Present if the options were read: then a missing option is not set.
OPTIONS_READ = 'options'


def redundancy_text(size: int, data_shards: int) -> str:
    """The redundancy of a pool. `data_shards`: of an erasure-coded one; 0: it is replicated."""
    return 'erasure coded %d+%d' % (data_shards, size - data_shards) \
        if data_shards else plural(size, 'replica')


def setting_of(release: str, pg_num: int, entries: Optional[Iterable[ConfigEntry]],
               drives: Iterable[str] = (), host: str = '',
               redundancy: str = '') -> Dict[str, str]:
    """The circumstances of a run that may change its results, as RunRecord.setting: name -> value.

    `pg_num`: of the pool, 0 for a bench of the stores; `entries`: the configuration database, None
    if the mons did not answer; `drives`: models of the OSDs of the pool or target, '' if unknown;
    `host`: of the mgr, '' if it does not matter or is unknown; `redundancy`: of the operator's
    pool, '' if the run creates its pool.
    """
    setting = {RELEASE: release} if release else {}
    if redundancy:
        setting[REDUNDANCY] = redundancy
    if host:
        setting[MGR_HOST] = host
    if pg_num:
        setting[POOL_PGS] = str(pg_num)
    known_drives = sorted(set(drives) - {''})
    if known_drives:
        setting[DRIVES] = listed(known_drives, MOST_DRIVES)
    if entries is not None:
        setting[OPTIONS_READ] = 'read'
    options = sorted((OPTION + '/'.join(filter(None, (entry.section, entry.mask, entry.name))),
                      entry.value) for entry in entries or () if _counts(entry))
    setting.update(options[:MOST_OPTIONS])
    return setting


def _counts(entry: ConfigEntry) -> bool:
    """Whether an option may change what a probe measures."""
    return (entry.section.split('.')[0] in _SECTIONS and entry.name.startswith(_PREFIXES)
            and (entry.name in _WITH_EFFECT or not entry.name.startswith(_WITHOUT_EFFECT)))


def differing_conditions(a: RunRecord, b: RunRecord) -> List[str]:
    """The conditions, such as options and drives, in which run `b` differs from run `a`, as texts;
    empty: they are comparable, as far as known."""
    ours, theirs = _conditions_of(a), _conditions_of(b)
    both_read = OPTIONS_READ in ours and OPTIONS_READ in theirs
    # An option that is missing is not set if the options were read; otherwise it is unknown.
    keys = [key for key in dict.fromkeys((*ours, *theirs))
            if key in ours and key in theirs or both_read and key.startswith(OPTION)]
    texts = ['%s: %s (before: %s)' % (key, theirs.get(key, 'not set'), ours.get(key, 'not set'))
             for key in keys if ours.get(key) != theirs.get(key)]
    return texts if len(texts) <= MOST_NAMED else [
        *texts[:MOST_NAMED], 'and %d more' % (len(texts) - MOST_NAMED)]


def _conditions_of(record: RunRecord) -> Mapping[str, str]:
    """The setting of a run with its client, which is the active mgr unless the setting names
    another one, and the engines of its results."""
    engines = sorted({result.engine for result in record.results if result.engine})
    return {CLIENT: ACTIVE_MGR, **({ENGINE: ', '.join(engines)} if engines else {}),
            **record.setting}


# ---- The JSON of perfguard-probe, which runs on client hosts, and the record of it in the mgr. The
# steps are not part of it: they follow from the jobs, so that no document can contradict itself.

#: The version of the document.
RECORDS_VERSION = 1
#: The trigger of an imported run.
IMPORTED = 'import'
#: The client and the engine of a run of fio.
FIO = 'fio'
#: Maximum length of a text in it.
MAX_LINE = 200
#: Limits of the document and of a whole number in it: longer ones would block the mgr.
MAX_IMPORTED, MAX_DIGITS = 4 << 20, 20
#: Limits of a number and of a time in it, the end of the year 9999: tables cannot show larger ones.
MAX_NUMBER, MAX_TIME = 1 << 63, 253402300800
#: Fields of fio's options of a job that are not options of ours.
_EXTRA = frozenset({'name', 'rwmixwrite'})


def imported_to_json(record: RunRecord, jobs: Sequence[Job], repeat: int, fsid: str) -> Json:
    """The document that perfguard-probe prints of a run. `fsid`: of the cluster."""
    return {'perfguard_probe': RECORDS_VERSION, 'fsid': fsid, 'host': record.setting[CLIENT],
            'pool': record.target.pool, 'profile': record.profile, 'repeat': repeat,
            'state': record.state,
            'created': record.created, 'started': record.started, 'ended': record.ended,
            'messages': list(record.messages), 'jobs': [job_options(job) for job in jobs],
            'results': [encode(result) for result in record.results],
            **({'clients': record.setting[CLIENTS]} if CLIENTS in record.setting else {})}


def imported_record(text: str, fsid: str = '') -> RunRecord:
    """The record of a document of perfguard-probe or of fio, without an id. Raises BadJob with one
    line if the document is invalid, or of another cluster than `fsid` ('': any; fio does not name
    the cluster)."""
    if len(text) > MAX_IMPORTED:
        raise BadJob('cannot import: %d characters (limit %d)' % (len(text), MAX_IMPORTED))
    try:
        document = json.loads(text, parse_constant=_number, parse_float=_number, parse_int=_whole)
        if not isinstance(document, dict):
            raise ValueError('not a JSON object')
        if 'fio version' in document:
            return _of_fio(document)
        if 'perfguard_probe' not in document:
            raise ValueError('neither the JSON of perfguard-probe nor that of fio')
        if document['perfguard_probe'] != RECORDS_VERSION:
            raise ValueError('version %.20r (expected %d)' % (
                document['perfguard_probe'], RECORDS_VERSION))
        # Earlier versions do not name the cluster.
        measured_on = _text(document.get('fsid', fsid))
        if fsid and measured_on != fsid:
            raise ValueError('measured on cluster %s, and this is %s' % (measured_on, fsid))
        return _imported(document)
    except BadJob:
        raise
    except KeyError as error:
        raise BadJob('cannot import: %s is missing' % error) from None
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise BadJob('cannot import: %s' % ' '.join(str(error).split())[:MAX_LINE]) from None


def _imported(document: Mapping[str, Any]) -> RunRecord:
    """The record of a run of perfguard-probe, from its JSON, which may be anything. Raises
    ValueError, TypeError, LookupError or AttributeError if it is invalid."""
    repeat = int(document['repeat'])
    if not 1 <= repeat <= MAX_REPEAT or not 1 <= len(document['jobs']) <= MAX_JOBS:
        raise ValueError('%d jobs, repeat %d (limits %d and %d)' % (
            len(document['jobs']), repeat, MAX_JOBS, MAX_REPEAT))
    target = Target('pool', _text(document['pool']))
    steps = plan_steps([_imported_job(options) for options in document['jobs']], target, repeat)
    results = tuple(map(step_result, document['results']))
    _check_streams(results, [len(step.streams) for step in steps])
    if document['state'] not in ENDED_STATES:
        raise ValueError('state is %.20r' % (document['state'],))
    return RunRecord(
        0, document['state'], _text(document['profile']), target, _time(document['created']),
        _time(document['started']), _time(document['ended']), IMPORTED, steps, results,
        messages=tuple(map(_text, document['messages'][-MAX_TEXTS:])),
        setting={CLIENT: _text(document['host']), **(
            {CLIENTS: _text(document['clients'])} if 'clients' in document else {})})


def _of_fio(document: Mapping[str, Any]) -> RunRecord:
    """The record of a run of fio itself, from its JSON, which may be anything. Raises BadJob if a
    probe cannot have its jobs, and ValueError, TypeError, LookupError or AttributeError if the JSON
    is invalid."""
    # By name of the job: an entry for each of its processes, and its options as in a job file.
    entries: Dict[str, List[Mapping[str, Any]]] = {}
    lines: Dict[str, List[str]] = {}
    pools = set()
    for entry in document['jobs']:
        options = {**document.get('global options', {}), **entry['job options']}
        name = _text(entry['jobname'])
        entries.setdefault(name, []).append(entry)
        lines[name] = [_text('%s=%s' % (key, value) if value else key)
                       for key, value in options.items() if key != 'name']
        pools.add(_text(options.get('pool', '')))
    if len(pools) != 1 or pools == {''}:
        raise ValueError('the jobs of fio must name one pool (ioengine rados or rbd)')
    jobs = parse_jobs(None, {}, '\n'.join(
        line for name in entries for line in ('[%s]' % name, *lines[name])))
    for job in jobs:
        if job.numjobs != len(entries[job.name]):
            raise ValueError('%s has %d entries instead of %d: run fio without group_reporting'
                             % (job.name, len(entries[job.name]), job.numjobs))
    ended = _time(_whole(str(document['timestamp_ms'])) / 1000.0)
    began = _time(ended - sum(_time(entries[job.name][0].get('elapsed', 0)) for job in jobs))
    failed = [name for name in entries if any(entry.get('error') for entry in entries[name])]
    # A step is planned for each job, whatever the target. step_result() checks the numbers.
    return RunRecord(
        0, FAILED if failed else DONE, '', Target('pool', pools.pop()), began,
        began, ended, IMPORTED, plan_steps(jobs, Target('cluster'), 1),
        tuple(step_result(encode(_step_of_fio(entries[job.name]))) for job in jobs),
        messages=tuple('fio reports an error of job %s' % name for name in failed),
        setting={CLIENT: FIO})


def _step_of_fio(entries: Sequence[Mapping[str, Any]]) -> StepResult:
    return StepResult(tuple(
        StreamResult(str(number), _direction_of_fio(entry['read']),
                     _direction_of_fio(entry['write'])) for number, entry in enumerate(entries)),
        engine=FIO)


def _direction_of_fio(row: Mapping[str, Any]) -> Direction:
    ios, clat = int(row['total_ios']), row['clat_ns']
    latency = Quantiles(int(clat['min']), int(clat['max']), float(clat['mean']),
                        float(clat['stddev']), {_text(key): int(value) for key, value in
                                                clat.get('percentile', {}).items()})
    return Direction(ios, int(row['io_bytes']), int(row['runtime']) * 1000000,
                     latency if ios else None)


def _imported_job(options: Mapping[str, Any]) -> Job:
    if not all(isinstance(value, str) for value in options.values()):
        raise TypeError('options of a job must be strings')
    return job_of(_text(options['name']), {
        word: value for word, value in options.items() if word not in _EXTRA})


def _check_streams(results: Sequence[StepResult], streams: Sequence[int]) -> None:
    if len(results) > len(streams):
        raise ValueError('%d results of %d measurements' % (len(results), len(streams)))
    for result, expected in zip(results, streams):
        if len(result.streams) != expected:
            raise ValueError('%d streams instead of %d' % (len(result.streams), expected))


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_LINE or not value.isprintable():
        raise ValueError('not a line of text: %.50r' % (value,))
    return value


def _time(value: Any) -> float:
    if not isinstance(value, (int, float)):
        raise TypeError('%.50r is not a time' % (value,))
    if not 0 <= value < MAX_TIME:
        raise ValueError('%.50r is not a time in seconds' % (value,))
    return float(value)


def _number(text: str) -> float:
    number = float(text)
    if not 0.0 <= number < MAX_NUMBER:
        raise ValueError('%.30s is not a valid number' % text)
    return number


def _whole(text: str) -> int:
    number = int(text) if len(text) <= MAX_DIGITS else -1
    if not 0 <= number < MAX_NUMBER:
        raise ValueError('%.30s is not a valid number' % text)
    return number


# ---- The records in the key/value store

#: Documents of records, one per run, such as 'probe/7'; and the last id that was assigned.
DOCUMENTS = 'probe/'
IDS = 'probe-ids'


class Archive:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._last_id = 0

    def load(self) -> List[RunRecord]:
        """All records except those that cannot be read: the store reports damaged ones, and keeps
        those of a newer version. To be called before the first `new_id`."""
        ids = self._store.get(IDS)
        if isinstance(ids, dict) and isinstance(ids.get('last'), int):
            self._last_id = ids['last']
        records: List[RunRecord] = []
        for name in self._store.names(DOCUMENTS):
            document = self._store.get(name)
            try:
                if document is not None:
                    records.append(decode(RunRecord, document))
            except Newer:
                self._store.withhold(name)
            except Malformed as error:
                self._store.set_aside_unreadable(name, str(error))
        self._last_id = max([self._last_id, *(record.id for record in records)])
        return records

    def new_id(self) -> int:
        """An id that no mgr has assigned before: objects and cephx users are named after it."""
        self._last_id += 1
        self._store.put(IDS, {'last': self._last_id})
        return self._last_id

    def put(self, record: RunRecord) -> None:
        """Store a record; it replaces the one with the same id."""
        # IDS may have been lost, and the run may be that of another mgr, with a higher id.
        self._last_id = max(self._last_id, record.id)
        self._store.put('%s%d' % (DOCUMENTS, record.id), encode(slimmed(record)))

    def remove(self, run_id: int) -> None:
        self._store.remove('%s%d' % (DOCUMENTS, run_id))
