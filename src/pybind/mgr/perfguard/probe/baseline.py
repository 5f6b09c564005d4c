# SPDX-License-Identifier: LGPL-2.1-or-later
"""Baselines: runs that later runs of the same jobs on the same target are compared with."""
from dataclasses import dataclass, field
from typing import Any, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..errors import warning
from .compare import RunComparison, NothingInCommon, compare
from .records import RunRecord, differences
from .stats import JobWords, job_words
from .schedule import Schedule, schedule_from_json, schedule_to_json
from .types import BadJob, Json

CHECK = 'PERFGUARD_PROBE_REGRESSION'


class BaselineKey(NamedTuple):
    """What makes runs comparable: the jobs, whatever they are called, and the target."""
    jobs: Tuple[JobWords, ...]
    target: str


def baseline_key(record: RunRecord) -> BaselineKey:
    return BaselineKey(tuple(sorted({job_words(step.job) for step in record.steps})),
                       record.target.key)


class Baselines:
    """Ids of runs by what they are a baseline of; nothing is ever replaced but by `set`."""

    def __init__(self, runs: Optional[Mapping[BaselineKey, int]] = None) -> None:
        self._runs = dict(runs or {})

    def with_run(self, record: RunRecord) -> 'Baselines':
        """This run is the baseline of its key from now on; BadJob if it has measured nothing."""
        if not record.ended_well or not record.results:
            raise BadJob('probe %d is %s: only a probe that is done can be a baseline'
                         % (record.id, record.state))
        return Baselines({**self._runs, baseline_key(record): record.id})

    def without(self, run_id: int) -> 'Baselines':
        return Baselines({key: each for key, each in self._runs.items() if each != run_id})

    def of(self, record: RunRecord) -> Optional[int]:
        """The id of the run that this one is held against."""
        return self._runs.get(baseline_key(record))

    @property
    def ids(self) -> FrozenSet[int]:
        return frozenset(self._runs.values())

    def to_json(self) -> List[Json]:
        return [{'id': run_id, 'target': key.target, 'jobs': [list(job) for job in key.jobs]}
                for key, run_id in self._runs.items()]


def baselines_from_json(raw: Sequence[Mapping[str, Any]]) -> Baselines:
    """ValueError, TypeError or LookupError where it is none."""
    return Baselines({BaselineKey(tuple(JobWords(*job) for job in each['jobs']),
                                  str(each['target'])): int(each['id']) for each in raw})


class Regression(NamedTuple):
    """A run that is slower than its baseline."""
    baseline: int
    run: int
    target: str
    lines: Tuple[str, ...]


@dataclass(frozen=True)
class ProbeSettings:
    """What operators have set up, and what is slower than its baseline."""
    schedules: Tuple[Schedule, ...] = ()
    baselines: Baselines = Baselines()
    regressions: Tuple[Regression, ...] = ()
    #: When each schedule last began a probe. Not read off the records: those may be forgotten,
    #: or still be on their way from the database.
    begun: Mapping[str, float] = field(default_factory=dict)


def settings_to_json(settings: ProbeSettings) -> Json:
    return {'schedules': [schedule_to_json(each) for each in settings.schedules],
            'baselines': settings.baselines.to_json(),
            'regressions': [list(each) for each in settings.regressions],
            'begun': dict(settings.begun)}


def settings_from_json(raw: Mapping[str, Any]) -> ProbeSettings:
    """Raises BadJob, KeyError, TypeError or ValueError on what is none of ours."""
    return ProbeSettings(
        tuple(map(schedule_from_json, raw['schedules'])), baselines_from_json(raw['baselines']),
        tuple(Regression(int(base), int(run), str(target), tuple(map(str, lines)))
              for base, run, target, lines in raw['regressions']),
        {str(name): float(when) for name, when in raw['begun'].items()})


def regression(baseline: Optional[RunRecord], record: RunRecord) -> Optional[Regression]:
    """What is slower, with regard to how many lines were looked at; None: nothing is."""
    if baseline is None or differences(baseline, record):
        return None
    try:
        found = compare(baseline, record)
    except NothingInCommon:
        return None
    if not found.slower:
        return None
    return Regression(baseline.id, record.id, record.target.key, _lines(found))


def _lines(found: RunComparison) -> Tuple[str, ...]:
    return tuple('%s: %s' % (line.label, line.why) for line in found.slower)


def health_check(found: Sequence[Regression]) -> Dict[str, Any]:
    """As MgrModule.set_health_checks takes them: none, or CHECK."""
    if not found:
        return {}
    targets = ', '.join(each.target for each in found)
    lines = ['%s (probe %d '
             'compared with probe %d): %s' % (each.target, each.run, each.baseline, line)
             for each in found for line in each.lines]
    return {CHECK: warning('probes slower than their baseline: %s' % targets, lines)}
