# SPDX-License-Identifier: LGPL-2.1-or-later
"""Baselines: runs that later runs of the same jobs on the same target are compared with."""
import collections
import errno
import logging
from dataclasses import dataclass, field, replace
from functools import partial
from typing import (Any, Callable, Deque, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence,
                    Tuple)

from ..cluster.tool_thread import ToolJob, ToolThread
from ..errors import HealthChecks, Refused, warning
from ..events import Event
from .compare import RunComparison, NothingInCommon, compare
from .records import RunHistory, RunRecord, differences
from .stats import JobWords, job_words
from .schedule import Schedule, schedule_from_json, schedule_to_json
from .types import BadJob, Json

log = logging.getLogger(__name__)

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


def health_check(found: Sequence[Regression]) -> HealthChecks:
    """For MgrModule.set_health_checks: nothing, or CHECK."""
    if not found:
        return {}
    targets = ', '.join(each.target for each in found)
    lines = ['%s (probe %d '
             'compared with probe %d): %s' % (each.target, each.run, each.baseline, line)
             for each in found for line in each.lines]
    return {CHECK: warning('probes slower than their baseline: %s' % targets, lines)}


# ---- Settings at work

class StoredSettings:
    """Changes schedules and baselines as operators ask, and compares runs with their baselines.

    A comparison of runs on many OSDs takes seconds, so the tool thread makes it, one at a time.
    """

    def __init__(self, put: Callable[[Json], None], note: Callable[[Event], None],
                 tools: ToolThread) -> None:
        """`put` writes the document to the store."""
        self._put = put
        self._note = note
        self._tools = tools
        self.now = ProbeSettings()
        #: Why the stored settings cannot be read; '': they can.
        self.unreadable = ''
        #: Baselines and runs that are not compared yet.
        self._to_compare: Deque[Tuple[RunRecord, RunRecord]] = collections.deque()
        #: The ids of the baseline and the run that are being compared, and the comparison.
        self._comparing: Optional[Tuple[int, int, ToolJob[Optional[Regression]]]] = None

    def load(self, stored: Optional[Mapping[str, Any]]) -> None:
        """Raises what settings_from_json raises."""
        if stored is not None:
            self.now = settings_from_json(stored)

    def check(self) -> None:
        """Raises Refused if a change cannot be stored."""
        if self.unreadable:
            raise Refused(errno.EBUSY, 'cannot store schedules or baselines because the stored '
                          'ones are unreadable (%s)' % self.unreadable)

    def _set(self, **changes: Any) -> None:
        self.now = replace(self.now, **changes)
        if not self.unreadable:
            self._put(settings_to_json(self.now))

    # ---- Schedules

    def add_schedule(self, made: Schedule) -> None:
        """A schedule of the same name is replaced."""
        others = tuple(each for each in self.now.schedules if each.name != made.name)
        self._set(schedules=others + (made,))

    def drop_schedule(self, name: str) -> None:
        self.check()
        kept = tuple(each for each in self.now.schedules if each.name != name)
        if len(kept) == len(self.now.schedules):
            raise Refused(errno.ENOENT, 'schedule %r does not exist (see "probe schedule ls")'
                          % name)
        self._set(schedules=kept, begun={each: when for each, when in self.now.begun.items()
                                         if each != name})

    def note_begun(self, name: str, now: float) -> None:
        """A schedule has begun its probe."""
        self._set(begun={**self.now.begun, name: now})

    # ---- Baselines

    def set_baseline(self, record: RunRecord) -> None:
        self.check()
        try:
            baselines = self.now.baselines.with_run(record)
        except BadJob as error:
            raise Refused(errno.EINVAL, str(error)) from error
        kept = tuple(each for each in self.now.regressions if each.baseline in baselines.ids)
        self._set(baselines=baselines, regressions=kept)

    def drop_baseline(self, run: int) -> None:
        """Also of a baseline whose record is unreadable."""
        self.check()
        if run not in self.now.baselines.ids:
            raise Refused(errno.ENOENT, 'probe %d is not a baseline' % run)
        kept = tuple(each for each in self.now.regressions if each.baseline != run)
        self._set(baselines=self.now.baselines.without(run), regressions=kept)

    def forget_run(self, run: int) -> None:
        """The record of a run is removed."""
        kept = tuple(each for each in self.now.regressions if each.run != run)
        if kept != self.now.regressions:
            self._set(regressions=kept)

    # ---- Comparisons

    def compare(self, record: RunRecord, history: RunHistory) -> None:
        """Compare a run with its baseline, if the record of the baseline is loaded."""
        base = self.now.baselines.of(record)
        known = None if base is None else history.get(base)
        if known is None:
            return
        other = differences(known, record)
        if other:
            # Not comparable: an earlier regression stays.
            self._note(Event('probe', 'probe %d cannot be compared with its baseline %d'
                             % (record.id, known.id), '; '.join(other)))
        else:
            self._to_compare.append((known, record))

    def compare_next(self, history: RunHistory) -> None:
        """Take the result of a comparison, and begin the next one."""
        if self._comparing is not None and self._comparing[2].done:
            base, run, job = self._comparing
            self._comparing = None
            try:
                self._take_comparison(base, run, job.result(), history)
            except Exception:
                log.exception('cannot compare probe %d with probe %d', run, base)
        if self._comparing is None and self._to_compare:
            known, record = self._to_compare[0]
            job_or_none = self._tools.submit(partial(regression, known, record))
            if job_or_none is not None:
                self._to_compare.popleft()
                self._comparing = known.id, record.id, job_or_none

    def _take_comparison(self, base: int, run: int, found: Optional[Regression],
                         history: RunHistory) -> None:
        """Unless the baseline or the run was removed meanwhile."""
        if base not in self.now.baselines.ids or history.get(run) is None:
            return
        others = tuple(each for each in self.now.regressions if each.baseline != base)
        if found is not None:
            self._note(Event('probe', 'probe %d is slower than its baseline %d'
                             % (run, base), found.lines[0]))
        self._set(regressions=others if found is None else others + (found,))
