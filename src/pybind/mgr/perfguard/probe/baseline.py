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
    """Runs with the same jobs, regardless of their names, and the same target are comparable."""
    jobs: Tuple[JobWords, ...]
    target: str


def baseline_key(record: RunRecord) -> BaselineKey:
    return BaselineKey(tuple(sorted({job_words(step.job) for step in record.steps})),
                       record.target.key)


class Baselines:
    """The baseline of each combination of jobs and target; only `with_run` replaces one."""

    def __init__(self, runs: Optional[Mapping[BaselineKey, int]] = None) -> None:
        self._runs = dict(runs or {})

    def with_run(self, record: RunRecord) -> 'Baselines':
        """With this run as the baseline of its key; BadJob if the run has no results."""
        if not record.ended_well or not record.results:
            raise BadJob('probe %d is %s: only a probe that is done can be a baseline'
                         % (record.id, record.state))
        return Baselines({**self._runs, baseline_key(record): record.id})

    def without(self, run_id: int) -> 'Baselines':
        return Baselines({key: each for key, each in self._runs.items() if each != run_id})

    def of(self, record: RunRecord) -> Optional[int]:
        """The id of the run that this one is compared with."""
        return self._runs.get(baseline_key(record))

    @property
    def ids(self) -> FrozenSet[int]:
        return frozenset(self._runs.values())

    def to_json(self) -> List[Json]:
        return [{'id': run_id, 'target': key.target, 'jobs': [list(job) for job in key.jobs]}
                for key, run_id in self._runs.items()]


def baselines_from_json(raw: Sequence[Mapping[str, Any]]) -> Baselines:
    """Raises ValueError, TypeError or LookupError if the data is invalid."""
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
    #: When each schedule last began a probe. The records do not suffice: they may be removed, or
    #: not be loaded from the database yet.
    begun: Mapping[str, float] = field(default_factory=dict)


def settings_to_json(settings: ProbeSettings) -> Json:
    return {'schedules': [schedule_to_json(each) for each in settings.schedules],
            'baselines': settings.baselines.to_json(),
            'regressions': [list(each) for each in settings.regressions],
            'begun': dict(settings.begun)}


def settings_from_json(raw: Mapping[str, Any]) -> ProbeSettings:
    """Raises BadJob, KeyError, TypeError or ValueError if the data is invalid."""
    return ProbeSettings(
        tuple(map(schedule_from_json, raw['schedules'])), baselines_from_json(raw['baselines']),
        tuple(Regression(int(base), int(run), str(target), tuple(map(str, lines)))
              for base, run, target, lines in raw['regressions']),
        {str(name): float(when) for name, when in raw['begun'].items()})


def regression(baseline: Optional[RunRecord], record: RunRecord) -> Optional[Regression]:
    """What is slower, corrected for the number of lines compared; None: nothing is."""
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
    """For MgrModule.set_health_checks: nothing, or CHECK."""
    if not found:
        return {}
    targets = ', '.join(each.target for each in found)
    lines = ['%s (probe %d '
             'compared with probe %d): %s' % (each.target, each.run, each.baseline, line)
             for each in found for line in each.lines]
    return {CHECK: warning('probes slower than their baseline: %s' % targets, lines)}
