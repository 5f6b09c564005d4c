# SPDX-License-Identifier: LGPL-2.1-or-later
"""The JSON of perfguard-probe, which runs on client hosts, and the record that the mgr keeps of it.

The steps are not part of it: they follow from the jobs, so that no document can contradict itself.
"""
import json
import math
from typing import Any, Mapping, Sequence

from .fio_json import job_options
from .jobs import MAX_JOBS, MAX_REPEAT, job_of, plan_steps
from .records import CLIENT, ENDED, MAX_TEXTS, RunRecord
from .types import BadJob, Job, Json, StepResult, Target
from .wire import step_result_from_json, step_result_to_json

VERSION = 1
#: The trigger of an imported run.
TRIGGER = 'import'
MAX_TEXT = 200
#: Limits of the document and of a whole number in it: longer ones would block the mgr.
MAX_CHARACTERS, MAX_DIGITS = 4 << 20, 20
#: Fields of fio's options of a job that are not options of ours.
_EXTRA = frozenset({'name', 'rwmixwrite'})


def to_json(record: RunRecord, jobs: Sequence[Job], repeat: int) -> Json:
    """The document of a run on a pool of the operator."""
    return {'perfguard_probe': VERSION, 'host': record.setting[CLIENT], 'pool': record.target.pool,
            'profile': record.profile, 'repeat': repeat, 'state': record.state,
            'created': record.created, 'started': record.started, 'ended': record.ended,
            'messages': list(record.messages), 'jobs': [job_options(job) for job in jobs],
            'results': [step_result_to_json(result) for result in record.results]}


def record_of(text: str, run: int) -> RunRecord:
    """The record of a document; raises BadJob with one line if it is invalid."""
    if len(text) > MAX_CHARACTERS:
        raise BadJob('cannot import: %d characters (limit %d)' % (len(text), MAX_CHARACTERS))
    try:
        found = json.loads(text, parse_constant=_number, parse_float=_number, parse_int=_count)
        if not isinstance(found, dict) or 'perfguard_probe' not in found:
            raise ValueError('not the JSON of perfguard-probe')
        if found['perfguard_probe'] != VERSION:
            raise ValueError('version %.20r (expected %d)' % (found['perfguard_probe'], VERSION))
        return _record(found, run)
    except BadJob:
        raise
    except KeyError as error:
        raise BadJob('cannot import: %s is missing' % error) from None
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise BadJob('cannot import: %s' % ' '.join(str(error).split())[:MAX_TEXT]) from None


def _record(found: Mapping[str, Any], run: int) -> RunRecord:
    repeat = int(found['repeat'])
    if not 1 <= repeat <= MAX_REPEAT or not 1 <= len(found['jobs']) <= MAX_JOBS:
        raise ValueError('%d jobs, repeat %d (limits %d and %d)' % (
            len(found['jobs']), repeat, MAX_JOBS, MAX_REPEAT))
    target = Target('pool', _text(found['pool']))
    steps = plan_steps([_job(options) for options in found['jobs']], target, repeat)
    results = tuple(map(_result, found['results']))
    _check(results, [len(step.streams) for step in steps])
    if found['state'] not in ENDED:
        raise ValueError('state is %.20r' % (found['state'],))
    return RunRecord(
        run, found['state'], _text(found['profile']), target, _time(found['created']),
        _time(found['started']), _time(found['ended']), TRIGGER, steps, results,
        messages=tuple(map(_text, found['messages'][-MAX_TEXTS:])),
        setting={CLIENT: _text(found['host'])})


def _job(options: Mapping[str, Any]) -> Job:
    if not all(isinstance(value, str) for value in options.values()):
        raise TypeError('options of a job must be texts')
    return job_of(_text(options['name']), {
        word: value for word, value in options.items() if word not in _EXTRA})


def _result(given: Json) -> StepResult:
    """The conversion and its reverse must give the same: a text is not accepted as a number."""
    result = step_result_from_json(given)
    if step_result_to_json(result) != given:
        raise TypeError('results with other types or keys')
    return result


def _check(results: Sequence[StepResult], streams: Sequence[int]) -> None:
    if len(results) > len(streams):
        raise ValueError('%d results of %d measurements' % (len(results), len(streams)))
    for result, expected in zip(results, streams):
        if len(result.streams) != expected:
            raise ValueError('%d streams instead of %d' % (len(result.streams), expected))


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT or not value.isprintable():
        raise ValueError('not a line of text: %.50r' % (value,))
    return value


def _time(value: Any) -> float:
    if not isinstance(value, (int, float)):
        raise TypeError('%.50r is not a time' % (value,))
    return float(value)


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number) or number < 0.0:
        raise ValueError('%.30s is not a valid number' % text)
    return number


def _count(text: str) -> int:
    number = int(text) if len(text) <= MAX_DIGITS else -1
    if not 0 <= number < 1 << 63:
        raise ValueError('%.30s is not a valid number' % text)
    return number
