# SPDX-License-Identifier: LGPL-2.1-or-later
"""Runs that later runs of the same jobs on the same target are held against."""
from typing import Any, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..errors import warning
from .compare import RunComparison, NothingInCommon, compare
from .records import RunHistory, RunRecord, differences
from .stats import JobWords, job_words
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


def regressions(baselines: Baselines, history: RunHistory) -> Tuple[Regression, ...]:
    """Of the last run of each baseline's key that is done; the next one that is not slower ends
    it, and so does a new baseline."""
    last: Dict[int, RunRecord] = {}
    for record in history.all():
        run_id = baselines.of(record)
        if run_id is not None and record.ended_well and record.id > run_id:
            last[run_id] = record
    found = [regression(history.get(run_id), record) for run_id, record in sorted(last.items())]
    return tuple(each for each in found if each is not None)


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
