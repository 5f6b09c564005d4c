# SPDX-License-Identifier: LGPL-2.1-or-later
"""The REST API as a table of requests and their commands. Pure.

Each request is answered by the command's own handler, so it says, refuses and does the same as the
command line. Only what the table and `arguments` say about fields is the API's own.
"""
import errno
from typing import Any, Callable, Collection, Dict, List, Mapping, NamedTuple, Tuple

from ..errors import PerfguardError

MAY_READ, CREATE, UPDATE, DELETE = 'read', 'create', 'update', 'delete'
#: Maximum size of a body, which is read before the dashboard checks the user; and the maximum with
#: a file: the text of a CRUSH map with 10,000 OSDs has 2 MB, 20,000 exported mappings have 1 MB.
LARGEST_BODY = 64 << 10
LARGEST_FILE_BODY = 16 << 20


class BadField(PerfguardError):
    """An invalid field, which the text names."""


class Field(NamedTuple):
    name: str
    kind: 'FieldKind'
    about: str
    required: bool = False
    #: Parameter of the handler, if its name differs.
    parameter: str = ''


class FieldKind(NamedTuple):
    """The type of a field. `take` converts a JSON value, or the text of a path or query."""
    #: For the documentation of the dashboard.
    documented: Any
    take: Callable[[str, Any], Any]


class Route(NamedTuple):
    method: str
    #: Below /api/perfguard; {names} are fields.
    path: str
    #: Method of the Module of perfguard. Each has one route, except campaign_watch: a client that
    #: follows a campaign asks for its status again.
    handler: str
    about: str
    permission: str
    fields: Tuple[Field, ...] = ()


# ---- kinds of fields

def _bad(name: str, expected: str, value: Any) -> BadField:
    return BadField('field %r must be %s, not %.40r' % (name, expected, value))


def _text(name: str, value: Any) -> str:
    """Accepts numbers as well: words of fio are often numbers in JSON."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise _bad(name, 'a string or a number', value)
    return str(value)


def _string(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _bad(name, 'a text', value)
    return value


def _integer(name: str, value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _bad(name, 'an integer of at least 0', value)
    return value


def _number(name: str, value: Any) -> float:
    """A field that is a number of at least 0. Raises BadField."""
    try:
        number = float(value) if not isinstance(value, bool) else -1.0
    except (TypeError, ValueError):
        number = -1.0
    if not 0.0 <= number < 1e15:
        raise _bad(name, 'a number of at least 0', value)
    return number


def _boolean(name: str, value: Any) -> bool:
    if value in ('true', 'false'):
        return bool(value == 'true')
    if not isinstance(value, bool):
        raise _bad(name, 'true or false', value)
    return value


def _words(name: str, value: Any) -> List[str]:
    """A list of names or ids, or one text of them, as on the command line."""
    words = value.replace(',', ' ').split() if isinstance(value, str) else value
    if not isinstance(words, list) or not words:
        raise _bad(name, 'a list of names or IDs', value)
    return [_text(name, part) for part in words]


TEXT = FieldKind(str, _text)
STRING = FieldKind(str, _string)
INTEGER = FieldKind(int, _integer)
NUMBER = FieldKind(float, _number)
BOOLEAN = FieldKind(bool, _boolean)
WORDS_KIND = FieldKind([str], _words)


# ---- fields that several routes have

_ACCEPT = Field('accept', WORDS_KIND, 'Codes of accepted risks')
_DRY_RUN = Field('dry_run', BOOLEAN, 'Only show what would happen')
_DRAIN = 'OSDs, hosts or racks that the same change empties'
_WHAT = Field('what', WORDS_KIND, 'OSDs, hosts or racks', required=True)
_RUN_FIELD = Field('run', INTEGER, 'ID of the probe', required=True)
_PLAN = Field('plan', STRING, 'Name of the plan', required=True)
_SCHEDULE = Field('schedule', STRING, 'Name of the schedule', required=True)

_BALANCE = (
    Field('by', STRING, 'balance: pgs (default) or bytes'),
    Field('deviation', TEXT, 'balance: PGs by which an OSD may differ from its share of a pool'),
    Field('max_movement', STRING, 'balance: maximum share of the shards that moves, such as 5%'))

_UPMAPS_MAX = Field('upmaps_max', INTEGER,
                    'rule, crushmap: how many upmaps may keep PGs in place')

#: The arguments of a change, by its name.
_CHANGE = (
    Field('what', WORDS_KIND, 'OSDs, hosts or racks; a pool and a rule or a number; pools, device '
          'classes or CRUSH roots'),
    Field('weight', TEXT, 'expand: CRUSH weight of each OSD'),
    Field('drain', WORDS_KIND, 'expand: ' + _DRAIN),
    Field('file', STRING, 'crushmap: as text, or compiled and in base64; import: the exported '
          'list, as JSON text', parameter='inbuf'),
    Field('prior_version', INTEGER, 'crushmap: refuse unless this is the current CRUSH version'),
    _UPMAPS_MAX, *_BALANCE)

#: Of expand.
_AWAIT = (
    # Not "await": the dashboard makes it a parameter of a function, and Python has that word.
    Field('awaited', BOOLEAN, 'Expand the OSDs that boot later, once no more appear',
          parameter='await'),
    Field('within', TEXT, 'With awaited: how long to wait, such as 12h; default: a day'))

#: Of the preview of expand.
_WHAT_IF = (
    Field('what_if', STRING, 'expand: hosts that are not there: <hosts>x<OSDs of each>x<size>, '
          'such as 4x12x16T'),
    Field('under', WORDS_KIND, 'With what_if: the CRUSH buckets that they are added to'),
    Field('device_class', STRING, 'With what_if: the device class of their OSDs',
          parameter='class'))

_TARGET = (
    Field('profile', STRING, 'latency, iops, throughput, quick or curve'),
    Field('pool', STRING, 'Pool to measure; default: a pool that the probe creates'),
    Field('osd', TEXT, 'OSDs to measure one at a time: IDs, or all'),
    Field('host', STRING, 'Host whose OSDs to measure'),
    Field('device_class', STRING, 'Device class whose OSDs to measure'),
    Field('repeat', TEXT, 'Number of repetitions of each job'),
    Field('replicas', TEXT, 'Replicas in the pool that the probe creates'),
    Field('store', BOOLEAN, "Run the OSDs' own bench"))

_WHERE = (
    *_TARGET,
    Field('during_campaign', BOOLEAN, 'Measure even while a campaign moves data'),
    Field('hold_scrub', BOOLEAN, 'Pause scrubs and the removal of snapshots meanwhile'),
    Field('yes_i_really_mean_it', BOOLEAN, 'Allow a pool with one replica'))

_FIO = tuple(Field(word, TEXT, about) for word, about in (
    ('rw', 'read, write, randread, randwrite, randrw ...'), ('bs', 'Block size, such as 4k'),
    ('iodepth', 'Operations in flight per stream'), ('numjobs', 'Number of concurrent streams'),
    ('size', 'Total size of the objects of a stream, such as 64m'), ('nrfiles', 'Objects'),
    ('runtime', 'Measured time in seconds'), ('ramp_time', 'Time before the '
                                              'measurement in seconds'),
    ('rwmixread', 'Percentage of reads'), ('rate_iops', 'Maximum operations '
                                           'per second of each stream'),
    ('io_size', 'Maximum number of bytes that each stream transfers'),
    ('ioengine', 'rados (objects) or rbd (an image, through librbd)')))

_JOBS = (Field('interference', BOOLEAN, 'Measure OSDs alone, together, and alone again'),
         Field('scale', BOOLEAN, 'Measure 1, 2, 4 ... of the OSDs at a time'),
         Field('by_host', BOOLEAN, 'With scale: 1, 2, 4 ... of their hosts at a time'),
         Field('job_file', STRING, "Job file in fio's syntax", parameter='inbuf'))


def _get(path: str, handler: str, about: str, *fields: Field) -> Route:
    return Route('GET', path, handler, about, MAY_READ, fields)


def _post(path: str, handler: str, about: str, *fields: Field,
          permission: str = UPDATE) -> Route:
    return Route('POST', path, handler, about, permission, fields)


def _delete(path: str, handler: str, about: str, *fields: Field) -> Route:
    return Route('DELETE', path, handler, about, DELETE, fields)


ROUTES: Tuple[Route, ...] = (
    _get('/status', 'status', 'Show the state of the cluster and of perfguard, with reasons'),
    _get('/events', 'events', 'List what perfguard detected and did, newest last',
         Field('count', INTEGER, 'Number of events, 20 by default')),
    _get('/osds', 'osds', 'Show the latency of each OSD and its slowdown against its peers',
         Field('drained', BOOLEAN, 'Show drained OSDs and those whose devices are replaced')),
    _get('/pools', 'pools', 'Show the client latency of each pool and its baseline',
         Field('expected', BOOLEAN, 'What each pool is expected to achieve and to serve'),
         Field('capacity', BOOLEAN, 'What clients use of what each pool serves, by its probes')),
    _get('/laggy', 'laggy', 'Show laggy PGs and the suspect OSDs'),
    _get('/history', 'history', 'Show latency over the last hour or week',
         Field('what', STRING, 'cluster, a pool, or osd.<id>'),
         Field('week', BOOLEAN, 'Show the last week'),
         Field('export', BOOLEAN, 'All readings of the OSDs of the cluster, a host, or osd.<id>')),
    _get('/held', 'held', 'List every borrowed setting and how to restore it'),
    _get('/advice', 'advise', 'List settings and devices that cost performance',
         Field('refresh', BOOLEAN, 'Examine the cluster now')),
    _post('/advice/{code}/mute', 'advise_mute', 'Hide the findings of one code',
          Field('code', STRING, 'Code of the finding', required=True)),
    _post('/advice/{code}/unmute', 'advise_unmute', 'Show the findings of one code again',
          Field('code', STRING, 'Code of the finding', required=True)),
    _get('/why', 'why', 'Explain why a PG does not move, why an OSD is slow, or what limits the '
         'campaign', Field('what', STRING, 'A PG ID, osd.<id>, or campaign', required=True)),
    _post('/shutdown', 'shut_down', 'Give back every borrowed setting',
          _DRY_RUN,
          Field('yes_i_really_mean_it', BOOLEAN, 'Confirm that this ends a campaign or a probe')),
    _get('/mitigation', 'mitigation_ls', 'Show the mitigations in force and why'),
    _post('/mitigation/{mitigation}/revert', 'mitigation_revert', 'Undo one mitigation',
          Field('mitigation', INTEGER, 'ID of the mitigation', required=True), _DRY_RUN),

    _get('/campaign', 'campaign_status', 'Show the active campaign, or the last one'),
    _post('/campaign/prepare', 'campaign_prepare',
          'Begin a campaign: set norebalance, stop the balancer and the autoscaler', _DRY_RUN,
          _ACCEPT),
    _post('/campaign/pin', 'campaign_pin', 'Pin every remapped PG where its data is', _DRY_RUN,
          _ACCEPT),
    _post('/campaign/start', 'campaign_start', 'Release the pinned PGs in batches', _DRY_RUN),
    _post('/campaign/pause', 'campaign_pause', 'Stop all movement; what was copied is kept',
          Field('duration', TEXT, 'Such as 2h; default: until resume'), _DRY_RUN),
    _post('/campaign/resume', 'campaign_resume', 'Continue after a pause or an abort', _DRY_RUN),
    _post('/campaign/set', 'campaign_set', 'Set an option for the active campaign only',
          Field('setting', STRING, '<option>=<value>', required=True), _DRY_RUN),
    _post('/campaign/accept', 'campaign_accept', 'Ignore a stop condition until it is over',
          Field('code', STRING, 'Code of the stop condition', required=True), _DRY_RUN),
    _post('/campaign/abort', 'campaign_abort',
          'Pin back the PGs in flight and keep the rest pinned', _DRY_RUN),
    _post('/campaign/rollback', 'campaign_rollback',
          'Restore the CRUSH weights or map from before the campaign', _DRY_RUN, _ACCEPT),
    _post('/campaign/finish', 'campaign_finish', 'End the campaign',
          Field('keep', BOOLEAN, 'Turn the remaining pins into ordinary upmaps'), _DRY_RUN,
          Field('yes_i_really_mean_it', BOOLEAN, 'Accept that unpinnable PGs move at once')),
    _get('/campaign/export', 'campaign_export', 'Export all pg_upmap_items'),
    _get('/campaigns', 'campaign_ls', 'List campaigns, newest last'),
    _get('/campaigns/{campaign}', 'campaign_show', 'Show one campaign',
         Field('campaign', INTEGER, 'ID of the campaign', required=True)),

    _post('/expand', 'expand',
          'Give new OSDs (CRUSH weight 0) their weight without remapping a PG, then fill them',
          Field('what', WORDS_KIND, 'Only these OSDs, hosts or racks'),
          Field('weight', TEXT, 'CRUSH weight of each OSD'),
          Field('drain', WORDS_KIND, _DRAIN), *_AWAIT, _DRY_RUN, _ACCEPT),
    _post('/drain', 'drain', 'Empty OSDs, hosts or racks', _WHAT, _DRY_RUN, _ACCEPT),
    _post('/undrain', 'undrain', 'Restore the CRUSH weights of drained OSDs, hosts or racks',
          _WHAT, _DRY_RUN, _ACCEPT),
    _post('/replace', 'replace', 'Empty OSDs or hosts, then fill their new devices under the same '
          'OSD IDs', _WHAT, _DRY_RUN, _ACCEPT,
          Field('cancel', BOOLEAN, 'End the replacement instead'),
          Field('remove', BOOLEAN, 'Have the orchestrator remove the OSDs once they are empty')),
    _post('/rule', 'rule', 'Give a pool another CRUSH rule',
          Field('pool', STRING, 'Name of the pool', required=True),
          Field('rule', STRING, 'Name of the CRUSH rule', required=True), _UPMAPS_MAX, _DRY_RUN,
          _ACCEPT),
    _post('/pg_num', 'pg_num', 'Split or merge the PGs of a pool',
          Field('pool', STRING, 'Name of the pool', required=True),
          Field('pg_num', INTEGER, 'Number of PGs; dry_run: as the autoscaler recommends'),
          _DRY_RUN, _ACCEPT),
    _post('/balance', 'balance', 'Move PGs until OSDs have their share of the PGs or bytes',
          Field('what', WORDS_KIND, 'Only these pools, device classes or CRUSH roots'), *_BALANCE,
          _DRY_RUN, _ACCEPT),
    _post('/crushmap', 'crushmap', 'Set a new CRUSH map',
          Field('crush_map', STRING, 'As text, or compiled and in base64', required=True,
                parameter='inbuf'),
          Field('prior_version', INTEGER, 'Refuse unless this is the current CRUSH version'),
          _UPMAPS_MAX, _DRY_RUN, _ACCEPT),
    _post('/adopt', 'adopt', 'Take over an expansion that another tool has pinned', _DRY_RUN,
          _ACCEPT),
    _post('/import', 'import_mappings', 'Move PGs to where exported mappings place them',
          Field('mappings', STRING, 'The exported list, as JSON text', required=True,
                parameter='inbuf'), _DRY_RUN, _ACCEPT),
    # Changes nothing. Fields are in the body, because one may be a CRUSH map or a job file.
    _post('/preview', 'preview', 'Show what a change would do, or what a changed CRUSH map moves',
          Field('change', STRING, 'expand, drain, undrain, replace, rule, pg_num, balance, '
                'crushmap, adopt, import, rollback or lose'), *_CHANGE, *_AWAIT, *_WHAT_IF,
          permission=MAY_READ),

    _get('/plan', 'plan_ls', 'List saved plans, and what has changed since'),
    _post('/plan', 'plan_save', 'Save the preview of a change for approval', _PLAN,
          Field('change', STRING, 'expand, drain, undrain, replace, rule, pg_num, balance or '
                'crushmap', required=True), *_CHANGE, _ACCEPT, permission=CREATE),
    _get('/plan/{plan}', 'plan_show', 'Show a saved plan', _PLAN),
    _delete('/plan/{plan}', 'plan_rm', 'Remove a saved plan', _PLAN),
    _post('/plan/{plan}/approve', 'plan_approve', 'Carry out a saved plan', _PLAN,
          Field('token', STRING, 'Refuse if the plan of that name has another token'), _DRY_RUN,
          Field('accept', WORDS_KIND, 'Codes of accepted states of the cluster')),

    _post('/preview/probe', 'preview_probe', 'Show what a probe would write', *_TARGET, *_FIO,
          *_JOBS, permission=MAY_READ),

    _get('/probe', 'probe_ls', 'List probes, baselines and schedules'),
    _post('/probe', 'probe_run', 'Measure with short I/O', *_WHERE, *_FIO, *_JOBS, _DRY_RUN,
          permission=CREATE),
    _post('/probe/import', 'probe_import', 'Import results of perfguard-probe',
          Field('results', STRING, 'The JSON of perfguard-probe, as text', required=True,
                parameter='inbuf'), permission=CREATE),
    _get('/probe/compare', 'probe_compare', 'Compare two probes',
         Field('before', INTEGER, 'ID of the earlier probe', required=True),
         Field('after', INTEGER, 'ID of the later probe', required=True)),
    _get('/probe/{run}', 'probe_show', 'Show the results of a probe', _RUN_FIELD),
    _post('/probe/{run}/cancel', 'probe_cancel', 'Stop the active probe', _RUN_FIELD,
          Field('force', BOOLEAN, 'Give up its clean-up, and list what remains')),
    _delete('/probe/{run}', 'probe_rm', 'Remove a probe and its results', _RUN_FIELD),
    _post('/baseline', 'probe_baseline', 'Make a probe a baseline', _RUN_FIELD,
          Field('rm', BOOLEAN, 'Remove the baseline instead; the probe itself is kept')),
    _post('/schedule', 'probe_schedule', 'Run a probe once in each time window', _SCHEDULE,
          *_WHERE, *(Field(name, TEXT, about) for name, about in (
              ('begin_time', 'HHMM'), ('end_time', 'HHMM'),
              ('begin_weekday', 'Weekday, 0 is Sunday'), ('end_weekday', 'Weekday, 0 is Sunday'),
              ('every_days', 'Days between two probes'))),
          Field('rm', BOOLEAN, 'Remove the schedule instead')))

#: The request of the page, which is not a command.
OVERVIEW_FIELDS = (
    Field('since', NUMBER, 'Seconds since the epoch: return only newer points and events'),
    Field('pools', WORDS_KIND,
          'IDs of the pools whose history to return; default: the busiest pools'))


def arguments(fields: Tuple[Field, ...], values: Mapping[str, Any]) -> Dict[str, Any]:
    """The arguments of the handler; raises BadField.

    JSON's null stands for a field that is not given.
    """
    field_by_name = {field.name: field for field in fields}
    for name in values:
        if name not in field_by_name:
            raise BadField('unknown field %.60r; must be one of: %s' % (
                name, ', '.join(sorted(field_by_name)) or 'none'))
    for field in fields:
        if field.required and values.get(field.name) is None:
            raise BadField('field %r is missing' % field.name)
    return {field_by_name[name].parameter or name: field_by_name[name].kind.take(name, value)
            for name, value in values.items() if value is not None}


def largest_body(path: str) -> int:
    """Maximum size of the body of a request to a path."""
    with_file = path.rstrip('/').endswith((
        '/perfguard/crushmap', '/perfguard/import', '/perfguard/preview', '/perfguard/plan',
        '/perfguard/probe/import'))
    return LARGEST_FILE_BODY if with_file else LARGEST_BODY


def refuse_twice(in_path: Collection[str], body: Collection[str]) -> None:
    """Raises BadField if the body has a field of the path."""
    for name in in_path:
        if name in body:
            raise BadField('field %r is already in the path' % name)


_HTTP_OF = {errno.EINVAL: 400, errno.ENOENT: 404, errno.EAGAIN: 503, errno.ETIMEDOUT: 504}


def http_status(retval: int) -> int:
    """The status of a refusal: 409 (state of the cluster), unless errno is more specific."""
    return _HTTP_OF.get(abs(retval), 409)
