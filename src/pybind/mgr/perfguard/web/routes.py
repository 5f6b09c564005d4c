# SPDX-License-Identifier: LGPL-2.1-or-later
"""The REST API as a table: which request is which command. Pure.

Each request is answered by the command's own handler, so it says, refuses and does the same as the
command line. Only what the table and `arguments` say about fields is the API's own.
"""
import errno
from typing import Any, Callable, Collection, Dict, List, Mapping, NamedTuple, Tuple

from ..errors import PerfguardError

READ, CREATE, UPDATE, DELETE = 'read', 'create', 'update', 'delete'
#: Bytes of a request's body, which is read before the dashboard looks who sends it; and with a
#: CRUSH map: the text form of that of 10,000 OSDs takes 2 MB.
LARGEST_BODY = 64 << 10
LARGEST_MAP_BODY = 16 << 20


class BadField(PerfguardError):
    """A field that cannot be taken; the text names it."""


class Field(NamedTuple):
    name: str
    kind: 'Kind'
    about: str
    required: bool = False
    #: Parameter of the handler, where it has another name.
    parameter: str = ''


class Kind(NamedTuple):
    """What a field may hold. `take` gets a value of JSON, or the text of a path or query."""
    #: As the dashboard's documentation wants it.
    documented: Any
    take: Callable[[str, Any], Any]


class Route(NamedTuple):
    method: str
    #: Below /api/perfguard; {names} are fields as well.
    path: str
    #: Method of perfguard's Module; of one route only.
    handler: str
    about: str
    permission: str
    fields: Tuple[Field, ...] = ()


# ---- kinds of fields

def _bad(name: str, expected: str, value: Any) -> BadField:
    return BadField('field %r must be %s, not %.40r' % (name, expected, value))


def _text(name: str, value: Any) -> str:
    """Numbers as well: what is a word of fio on the command line is often a number in JSON."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise _bad(name, 'a text or a number', value)
    return str(value)


def _string(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _bad(name, 'a text', value)
    return value


def _integer(name: str, value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _bad(name, 'an integer, 0 or more', value)
    return value


def _number(name: str, value: Any) -> float:
    try:
        found = float(value) if not isinstance(value, bool) else -1.0
    except (TypeError, ValueError):
        found = -1.0
    if not 0.0 <= found < 1e15:
        raise _bad(name, 'a number, 0 or more', value)
    return found


def _boolean(name: str, value: Any) -> bool:
    if value in ('true', 'false'):
        return bool(value == 'true')
    if not isinstance(value, bool):
        raise _bad(name, 'true or false', value)
    return value


def _words(name: str, value: Any) -> List[str]:
    """A list of names or ids; one text of them as well, as on the command line."""
    found = value.replace(',', ' ').split() if isinstance(value, str) else value
    if not isinstance(found, list) or isinstance(value, str) and not found:
        raise _bad(name, 'a list of names or ids', value)
    return [_text(name, each) for each in found]


def _joined(name: str, value: Any) -> str:
    return ' '.join(_words(name, value))


TEXT = Kind(str, _text)
STRING = Kind(str, _string)
INTEGER = Kind(int, _integer)
NUMBER = Kind(float, _number)
BOOLEAN = Kind(bool, _boolean)
WORDS = Kind([str], _words)
JOINED = Kind([str], _joined)


# ---- fields that several routes have

_FORCE = Field('force', BOOLEAN, 'Although the cluster is not healthy')
_DRY_RUN = Field('dry_run', BOOLEAN, 'Only tell what it would do')
_WHAT = Field('what', WORDS, 'OSDs, hosts or racks', required=True)
_RUN = Field('run', INTEGER, 'Number of the probe', required=True)
_SCHEDULE = Field('schedule', STRING, 'Name of the schedule', required=True)

_NEW_OSDS = (Field('osds', JOINED, 'Only these'),
             Field('hosts', JOINED, 'Only those of these hosts'),
             Field('weight', TEXT, 'CRUSH weight of each'))

_MAP = (Field('crush_map', STRING, 'In its text form, or compiled and in base64', required=True,
              parameter='inbuf'),
        Field('prior_version', INTEGER, 'Refuse unless this CRUSH version is in force'))

_TARGET = (
    Field('profile', STRING, 'latency, iops, throughput or quick'),
    Field('pool', STRING, 'Measure this pool; without: a pool of its own'),
    Field('osd', TEXT, 'Measure these OSDs one by one: ids, or all'),
    Field('host', STRING, 'Measure the OSDs of this host'),
    Field('device_class', STRING, 'Measure the OSDs of this device class'),
    Field('repeat', TEXT, 'How often to run the jobs'),
    Field('replicas', TEXT, "Copies in the probe's own pool"),
    Field('store', BOOLEAN, "Bench the OSDs' stores"))

_WHERE = (
    *_TARGET,
    Field('during_campaign', BOOLEAN, 'Although a campaign moves data'),
    Field('yes_i_really_mean_it', BOOLEAN, 'Consent to a pool of one replica'))

_FIO = tuple(Field(word, TEXT, about) for word, about in (
    ('rw', 'read, write, randread, randwrite, randrw ...'), ('bs', 'Block size, such as 4k'),
    ('iodepth', 'Operations under way at a time'), ('numjobs', 'Clones of the job'),
    ('size', 'Bytes to work on, such as 64m'), ('nrfiles', 'Objects'),
    ('runtime', 'Seconds to measure'), ('ramp_time', 'Seconds before that'),
    ('rwmixread', 'Percentage of reads'), ('rate_iops', 'Operations per second at most'),
    ('io_size', 'Bytes to transfer at most')))

_JOBS = (Field('interference', BOOLEAN, 'Measure the OSDs alone, together, and alone again'),
         Field('job_file', STRING, 'A job file of fio', parameter='inbuf'))


def _get(path: str, handler: str, about: str, *fields: Field) -> Route:
    return Route('GET', path, handler, about, READ, fields)


def _post(path: str, handler: str, about: str, *fields: Field,
          permission: str = UPDATE) -> Route:
    return Route('POST', path, handler, about, permission, fields)


def _delete(path: str, handler: str, about: str, *fields: Field) -> Route:
    return Route('DELETE', path, handler, about, DELETE, fields)


ROUTES: Tuple[Route, ...] = (
    _get('/status', 'status', 'Show what perfguard sees and does, with reasons'),
    _get('/events', 'events', 'Show what was detected and done, newest last',
         Field('count', INTEGER, 'How many, 20 by default')),
    _get('/osds', 'osds', 'Show latency and slowdown of each OSD against its peers'),
    _get('/pools', 'pools', 'Show what clients of each pool feel, and what is usual'),
    _get('/laggy', 'laggy', 'Show laggy PGs and which OSD is to blame'),
    _get('/history', 'history', 'Show latency over the last hour, or week',
         Field('what', STRING, 'cluster, a pool, or osd.<id>'),
         Field('week', BOOLEAN, 'The last week'),
         Field('export', BOOLEAN, 'All readings of the OSDs of the cluster, a host, or osd.<id>')),
    _get('/held', 'held', 'List what is borrowed from the cluster, and how to restore it'),
    _post('/shutdown', 'shut_down', 'Give back everything that is borrowed',
          Field('yes_i_really_mean_it', BOOLEAN, 'Although a campaign or a probe ends by it')),
    _get('/mitigation', 'mitigation_ls', 'Show what is done while clients suffer'),
    _post('/mitigation/{rung}/revert', 'mitigation_revert', 'Undo one rung of the mitigation',
          Field('rung', INTEGER, 'Its id', required=True)),

    _get('/rebalance', 'rebalance_status', 'Show the campaign under way, or the last one'),
    _get('/rebalance/plan', 'rebalance_plan', 'Preview what would move'),
    _get('/rebalance/campaign', 'rebalance_ls', 'List campaigns, newest last'),
    _get('/rebalance/campaign/{campaign}', 'rebalance_show', 'Show one campaign',
         Field('campaign', INTEGER, 'Its id', required=True)),
    _post('/rebalance/prepare', 'rebalance_prepare',
          'Begin a campaign: set norebalance, stop balancer and autoscaler', _FORCE),
    _post('/rebalance/pin', 'rebalance_pin', 'Pin every remapped PG where its data is'),
    _post('/rebalance/start', 'rebalance_start', 'Release the pinned PGs, batch by batch'),
    _post('/rebalance/pause', 'rebalance_pause', 'Stop all movement, losing nothing'),
    _post('/rebalance/resume', 'rebalance_resume', 'Go on after a pause'),
    _post('/rebalance/acknowledge', 'rebalance_acknowledge',
          'Release although a stop condition holds',
          Field('code', STRING, 'The code of the stop condition', required=True)),
    _post('/rebalance/abort', 'rebalance_abort',
          'Pin back what is under way and leave the rest pinned'),
    _post('/rebalance/rollback', 'rebalance_rollback',
          'Restore the CRUSH weights or CRUSH map from before the campaign', _DRY_RUN),
    _post('/rebalance/finish', 'rebalance_finish', 'End the campaign',
          Field('keep', BOOLEAN, 'The pins that are left become ordinary upmaps'),
          Field('yes_i_really_mean_it', BOOLEAN, 'Although PGs without a pin move at once')),
    _post('/rebalance/expand', 'expand',
          'Give new OSDs their weight without remapping one PG, then fill them',
          *_NEW_OSDS, _DRY_RUN, _FORCE),
    _post('/rebalance/drain', 'drain', 'Empty OSDs, hosts or racks', _WHAT, _DRY_RUN, _FORCE),
    _post('/rebalance/undrain', 'undrain', 'Give what was drained its weight back',
          _WHAT, _DRY_RUN, _FORCE),
    _post('/rebalance/apply', 'rebalance_apply', 'Put a new CRUSH map in force', *_MAP,
          _DRY_RUN, _FORCE),

    # Nothing is changed. Fields are in the body, since a CRUSH map or a job file may be one.
    _post('/preview/expand', 'preview_expand', 'Show what expand would do', *_NEW_OSDS,
          permission=READ),
    _post('/preview/drain', 'preview_drain', 'Show what drain would do', _WHAT, permission=READ),
    _post('/preview/undrain', 'preview_undrain', 'Show what undrain would do', _WHAT,
          permission=READ),
    _post('/preview/apply', 'preview_apply', 'Show what a new CRUSH map would do', *_MAP,
          permission=READ),
    _post('/preview/rollback', 'preview_rollback', 'Show what a rollback would do',
          permission=READ),
    _post('/preview/probe', 'preview_probe', 'Show what a probe would write', *_TARGET, *_FIO,
          *_JOBS, permission=READ),

    _get('/probe', 'probe_ls', 'List probes, newest last'),
    _post('/probe', 'probe_run', 'Measure with short I/O', *_WHERE, *_FIO, *_JOBS, _DRY_RUN,
          permission=CREATE),
    _get('/probe/compare', 'probe_compare', 'Compare two probes',
         Field('before', INTEGER, 'Number of a probe', required=True),
         Field('after', INTEGER, 'Number of another', required=True)),
    _get('/probe/{run}', 'probe_show', 'Show what a probe has found', _RUN),
    _post('/probe/{run}/cancel', 'probe_cancel', 'Stop the probe under way', _RUN),
    _post('/probe/{run}/abandon', 'probe_abandon', 'Give up cleaning up after a probe', _RUN),
    _delete('/probe/{run}', 'probe_rm', "Forget a probe's results", _RUN),
    _get('/baseline', 'probe_baseline_ls', 'List what later probes are held against'),
    _post('/baseline', 'probe_baseline_set', 'Hold later probes against this one', _RUN,
          permission=CREATE),
    _delete('/baseline/{run}', 'probe_baseline_rm', 'Hold probes against this one no more', _RUN),
    _get('/schedule', 'probe_schedule_ls', 'List scheduled probes and when they are due'),
    _post('/schedule', 'probe_schedule_add', 'Run a probe once in every window', _SCHEDULE,
          *_WHERE, *(Field(name, TEXT, about) for name, about in (
              ('begin_time', 'HHMM'), ('end_time', 'HHMM'),
              ('begin_weekday', '0 is Sunday'), ('end_weekday', '0 is Sunday'),
              ('every_days', 'Days between two'))), permission=CREATE),
    _delete('/schedule/{schedule}', 'probe_schedule_rm', 'Drop a scheduled probe', _SCHEDULE))

#: The page's own request, which is no command.
OVERVIEW_FIELDS = (
    Field('since', NUMBER, 'Seconds since the epoch: only points and events that are newer'),
    Field('pools', WORDS, 'Ids of the pools to tell the history of; without: the busiest'))


def arguments(fields: Tuple[Field, ...], given: Mapping[str, Any]) -> Dict[str, Any]:
    """The handler's arguments; raises BadField.

    JSON's null stands for a field that is not given.
    """
    known = {field.name: field for field in fields}
    for name in given:
        if name not in known:
            raise BadField('field %.60r is not known here; known: %s' % (
                name, ', '.join(sorted(known)) or 'none'))
    for field in fields:
        if field.required and given.get(field.name) is None:
            raise BadField('field %r is missing' % field.name)
    return {known[name].parameter or name: known[name].kind.take(name, value)
            for name, value in given.items() if value is not None}


def largest_body(path: str) -> int:
    """Bytes that a request to a path may have in its body."""
    with_map = path.rstrip('/').endswith(('/perfguard/rebalance/apply', '/perfguard/preview/apply'))
    return LARGEST_MAP_BODY if with_map else LARGEST_BODY


def refuse_twice(in_path: Collection[str], body: Collection[str]) -> None:
    """Raises BadField where the body has a field that the path has already."""
    for name in in_path:
        if name in body:
            raise BadField('field %r is in the path already' % name)


_HTTP_OF = {errno.EINVAL: 400, errno.ENOENT: 404, errno.EAGAIN: 503, errno.ETIMEDOUT: 504}


def http_status(retval: int) -> int:
    """Of a refusal: the state of the cluster speaks against it (409), unless errno says more."""
    return _HTTP_OF.get(abs(retval), 409)
