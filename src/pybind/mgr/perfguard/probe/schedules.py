# SPDX-License-Identifier: LGPL-2.1-or-later
"""What operators set up for probes: schedules, and baselines for later runs."""
import collections
import errno
import logging
import re
import time
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from typing import (Any, Callable, Deque, Dict, FrozenSet, Iterable, Iterator, List, Mapping,
                    NamedTuple, Optional, Sequence, Set, Tuple)

from ..cluster.tool_thread import ToolJob, ToolThread
from ..cluster.types import Document, Json
from ..codec import decode, encode
from ..errors import HealthChecks, Refused, warning
from ..events import Event
from ..text import listed
from ..window import DAY_MINUTES, Window, is_open, window
from .compare import NothingInCommon, RunComparison, compare
from .jobs import number_between
from .orders import RunOrder, words_of_order
from .records import RunHistory, RunRecord, differing_conditions
from .stats import JobWords, job_words
from .types import BadJob

log = logging.getLogger(__name__)

# ---- Schedules: when each is due, and the results of attempts to begin it

SCHEDULE_DEFAULTS = {'begin_time': '0000', 'end_time': '2400', 'begin_weekday': '0',
                     'end_weekday': '0', 'every_days': '1'}
MAX_DAYS = 366
#: "command" is the trigger of runs that no schedule began.
RESERVED = frozenset({'command'})
#: Verbs of other commands, which are no names of new schedules: operators expect that they list or
#: remove schedules.
SCHEDULE_VERBS = frozenset({'add', 'ls', 'rm', 'show'})
#: Seconds after which a schedule whose probe was refused is tried again, within its window.
SCHEDULE_AGAIN_SECONDS = 60.0


@dataclass(frozen=True)
class Schedule:
    """A probe that begins once in each window, or in the first window after `every_days`."""
    name: str
    run: RunOrder
    window: Window
    #: As given, to be shown again.
    times: Tuple[Tuple[str, str], ...]
    every_days: int = 1


def schedule_of(name: str, run: RunOrder, times: Mapping[str, str]) -> Schedule:
    """A schedule of the words that an operator has given. `times`: those that differ from
    SCHEDULE_DEFAULTS. Raises BadJob or BadWindow if they are invalid, or the schedule is never due.

    begin_time and end_time as HHMM, weekdays with Sunday as 0 and the end excluded, as in the
    options of campaigns; every_days from 1.
    """
    if not re.match(r'[A-Za-z0-9._-]{1,64}\Z', name) or name in RESERVED:
        raise BadJob('invalid schedule name %r: use letters, digits, ".", "_" and "-"' % name)
    times = {**SCHEDULE_DEFAULTS, **times}
    # An end_weekday of 7 is Sunday, as 0 is.
    when = window(times['begin_time'], times['end_time'],
                  number_between('begin_weekday', times['begin_weekday'], 0, 6),
                  number_between('end_weekday', times['end_weekday'], 0, 7) % 7)
    every = number_between('every_days', times['every_days'], 1, MAX_DAYS)
    return Schedule(name, replace(run, trigger=name), when, tuple(times.items()), every)


def schedule_to_json(schedule: Schedule) -> Json:
    return {'name': schedule.name, **dict(schedule.times), 'probe': words_of_order(schedule.run)}


def due_schedules(schedules: Iterable[Schedule], last_started: Mapping[str, float], now: float,
                  clock_set: float = 0.0) -> Tuple[str, ...]:
    """Names of the schedules that may begin now, the one that has waited longest first: their
    window is open, and they have not begun in it, nor in a window of the last `every_days`.

    `last_started`: name -> when it last began; times in seconds since the epoch, of the clock of
    this mgr. `clock_set`: by how many seconds the wall clock was set since, as
    Observation.clock_set.
    """
    last_and_name: List[Tuple[float, str]] = []
    for schedule in schedules:
        last = last_started.get(schedule.name)
        # Negative days, since the clock of another mgr was ahead, do not delay it.
        has_begun_lately = last is not None and 0 <= _days_between(
            schedule.window, last + clock_set, now + clock_set) < schedule.every_days
        if is_open(schedule.window, now + clock_set) and not has_begun_lately:
            last_and_name.append((last or 0.0, schedule.name))
    return tuple(name for _, name in sorted(last_and_name))


def _days_between(when: Window, last: float, now: float) -> int:
    """The number of days from the window of `last` to that of `now`; 0: both are in the same one.
    Windows are counted by the day on which they open, so that changes to and from daylight saving
    time have no effect. Negative if the clock of another mgr was ahead."""
    return _day_of_window(when, now) - _day_of_window(when, last)


def _day_of_window(when: Window, at: float) -> int:
    """The local day on which the window that contains `at` opens, as an ordinal number."""
    local = time.localtime(at)
    today = date(local.tm_year, local.tm_mon, local.tm_mday).toordinal()
    opened_yesterday = 60 * local.tm_hour + local.tm_min < when.begin_minute % DAY_MINUTES
    return today - opened_yesterday


class Attempts:
    """When scheduled probes were last tried, and why they could not begin."""

    def __init__(self) -> None:
        self._tried: Dict[str, float] = {}
        #: Schedules whose refusal was reported since their window opened.
        self._reported: Set[str] = set()
        self.reasons: Dict[str, str] = {}

    def next_ones(self, due_names: Iterable[str], now: float) -> Iterator[str]:
        """The schedules of `due_names` to try now, in this order: each once per
        SCHEDULE_AGAIN_SECONDS. One that is not taken from the iterator does not count as tried."""
        names = list(due_names)
        # The windows of the others have closed: a refusal in the next one is reported again.
        self._reported &= set(names)
        for name in names:
            if now - self._tried.get(name, float('-inf')) >= SCHEDULE_AGAIN_SECONDS:
                self._tried[name] = now
                yield name

    def retry_now(self, name: str) -> None:
        """Allow another attempt at once: the last one has not ended."""
        self._tried.pop(name, None)

    def note_refusal(self, name: str, why: str) -> bool:
        """Note why a schedule could not begin. Returns whether to report it: once per window,
        because the reason may last for hours with changing numbers."""
        self.reasons[name] = why
        already_reported = name in self._reported
        self._reported.add(name)
        return not already_reported

    def forget(self, name: str) -> None:
        """Forget the attempts of a schedule that has begun, or was changed or removed."""
        self._tried.pop(name, None)
        self.reasons.pop(name, None)
        self._reported.discard(name)


# ---- Baselines: runs that later runs of the same jobs on the same target are compared with

REGRESSION_CHECK = 'PERFGUARD_PROBE_REGRESSION'


class BaselineKey(NamedTuple):
    """Runs with the same jobs, regardless of their names, and the same target are comparable."""
    jobs: Tuple[JobWords, ...]
    target: str


def baseline_key(record: RunRecord) -> BaselineKey:
    return BaselineKey(tuple(sorted({job_words(step.job) for step in record.steps})),
                       record.target.key)


@dataclass(frozen=True)
class Baselines:
    """The baseline of each combination of jobs and target; only `with_run` replaces one."""
    #: By the id of the run.
    keys: Mapping[int, BaselineKey] = field(default_factory=dict)

    def with_run(self, record: RunRecord) -> 'Baselines':
        """The baselines with this run as that of its key, in place of another one. Raises BadJob if
        the run is not done, or has no results."""
        if not record.ended_well or not record.results:
            raise BadJob('probe %d is %s: only a probe that is done can be a baseline'
                         % (record.id, record.state))
        key = baseline_key(record)
        return Baselines({**{run: other_key for run, other_key in self.keys.items()
                             if other_key != key},
                          record.id: key})

    def without(self, run_id: int) -> 'Baselines':
        return Baselines({run: key for run, key in self.keys.items() if run != run_id})

    def of(self, record: RunRecord) -> Optional[int]:
        """The id of the baseline that this run is compared with; None: there is none."""
        key = baseline_key(record)
        return next((run for run, other_key in self.keys.items() if other_key == key), None)

    @property
    def ids(self) -> FrozenSet[int]:
        return frozenset(self.keys)


#: Letters of a target in texts.
TARGET_LENGTH = 40


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
    #: When each schedule last began a probe. The records do not suffice: they may be removed.
    begun: Mapping[str, float] = field(default_factory=dict)


def regression(baseline: RunRecord, record: RunRecord) -> Optional[Regression]:
    """What `record` did significantly slower than its baseline, given how many results are
    compared; None: nothing, or their conditions differ, or they have no job in common."""
    if differing_conditions(baseline, record):
        return None
    try:
        comparison = compare(baseline, record)
    except NothingInCommon:
        return None
    if not comparison.slower:
        return None
    return Regression(baseline.id, record.id, record.target.key, _lines(comparison, record))


def _lines(comparison: RunComparison, record: RunRecord) -> Tuple[str, ...]:
    """What a run did slower than its baseline, one text for each job, with what disturbed the run:
    that may be the reason."""
    disturbed = '; during the probe: %s' % ', '.join(record.conditions) if record.conditions else ''
    return tuple('%s: %s%s' % (line.label, line.why, disturbed) for line in comparison.slower)


def health_check(regressions: Sequence[Regression]) -> HealthChecks:
    """The health check on probes that were slower than their baseline, as
    MgrModule.set_health_checks takes it; empty: none was."""
    if not regressions:
        return {}
    lines = ['%s (probe %d compared with probe %d): %s' % (
        _short(row.target), row.run, row.baseline, line)
        for row in regressions for line in row.lines]
    targets = list(dict.fromkeys(_short(row.target) for row in regressions))
    return {REGRESSION_CHECK: warning(
        'probes slower than their baseline: %s' % listed(targets), lines)}


def _short(target: str) -> str:
    """A target as texts name it: its key has the ids of all its OSDs."""
    return target if len(target) <= TARGET_LENGTH else target[:TARGET_LENGTH] + '...'


# ---- Settings in force

class StoredSettings:
    """Changes schedules and baselines as operators ask, and compares runs with their baselines.

    A comparison of runs on many OSDs takes seconds, so the tool thread makes it, one at a time.
    """

    def __init__(self, put: Callable[[Document], None], note: Callable[[Event], None],
                 tools: ToolThread) -> None:
        """`put`: writes the document to the store; `note`: records an event."""
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
        """Take over the stored settings; None: there are none. Raises Malformed."""
        if stored is not None:
            self.now = decode(ProbeSettings, stored)

    def refuse_if_unreadable(self) -> None:
        """Raise Refused if a change could not be stored, because the stored settings, which are
        kept as they are, cannot be read."""
        if self.unreadable:
            raise Refused(errno.EBUSY, 'cannot store schedules or baselines because the stored '
                          'ones are unreadable (%s): upgrade this mgr, or hand over to one '
                          'that can read them with "ceph mgr fail"' % self.unreadable)

    def _set(self, **changes: Any) -> None:
        self.now = replace(self.now, **changes)
        if not self.unreadable:
            self._put(encode(self.now))

    # ---- Schedules

    def add_schedule(self, schedule: Schedule) -> None:
        """A schedule of the same name is replaced."""
        other_schedules = tuple(row for row in self.now.schedules if row.name != schedule.name)
        self._set(schedules=other_schedules + (schedule,))

    def drop_schedule(self, name: str) -> None:
        """Remove a schedule. Raises Refused if there is none, or the settings are unreadable."""
        self.refuse_if_unreadable()
        schedules = tuple(row for row in self.now.schedules if row.name != name)
        if len(schedules) == len(self.now.schedules):
            raise Refused(errno.ENOENT, 'schedule %r does not exist (see "probe ls")' % name)
        begun = {other: when for other, when in self.now.begun.items() if other != name}
        self._set(schedules=schedules, begun=begun)

    def note_begun(self, name: str, now: float) -> None:
        """A schedule has begun its probe."""
        self._set(begun={**self.now.begun, name: now})

    # ---- Baselines

    def set_baseline(self, record: RunRecord) -> None:
        """Make a run the baseline of its jobs and target. A regression of the one before is
        dropped. Raises Refused or BadJob."""
        self.refuse_if_unreadable()
        baselines = self.now.baselines.with_run(record)
        regressions = tuple(row for row in self.now.regressions if row.baseline in baselines.ids)
        self._set(baselines=baselines, regressions=regressions)

    def drop_baseline(self, run: int) -> None:
        """Remove a baseline, even one whose record is unreadable, and its regression. Raises
        Refused if there is none, or the settings are unreadable."""
        self.refuse_if_unreadable()
        if run not in self.now.baselines.ids:
            raise Refused(errno.ENOENT, 'probe %d is not a baseline (see "probe ls")' % run)
        regressions = tuple(row for row in self.now.regressions if row.baseline != run)
        self._set(baselines=self.now.baselines.without(run), regressions=regressions)

    def forget_run(self, run: int) -> None:
        """Drop the regression of a run whose record is removed."""
        regressions = tuple(row for row in self.now.regressions if row.run != run)
        if regressions != self.now.regressions:
            self._set(regressions=regressions)

    # ---- Comparisons

    def compare_later(self, record: RunRecord, history: RunHistory) -> None:
        """Have `compare_next` compare a run with its baseline, if it has one whose record exists.
        If their conditions differ, only an event says so."""
        baseline_id = self.now.baselines.of(record)
        baseline = None if baseline_id is None else history.get(baseline_id)
        if baseline is None:
            return
        conditions = differing_conditions(baseline, record)
        if conditions:
            # Not comparable: an earlier regression stays.
            self._note(Event('probe', 'probe %d cannot be compared with its baseline %d'
                             % (record.id, baseline.id), '; '.join(conditions)))
        else:
            self._to_compare.append((baseline, record))

    @property
    def comparing(self) -> bool:
        return bool(self._comparing or self._to_compare)

    def compare_next(self, history: RunHistory) -> None:
        """Take the result of the comparison that has ended, if any, and begin the next one unless
        one is running. To be called once per turn."""
        if self._comparing is not None and self._comparing[2].done:
            baseline_id, run, job = self._comparing
            self._comparing = None
            try:
                self._take_comparison(baseline_id, run, job.result(), history)
            except Exception:
                log.exception('cannot compare probe %d with probe %d', run, baseline_id)
        if self._comparing is None and self._to_compare:
            baseline, record = self._to_compare[0]
            job_or_none = self._tools.submit(partial(regression, baseline, record))
            if job_or_none is not None:  # else too many jobs wait: try again in the next turn
                self._to_compare.popleft()
                self._comparing = baseline.id, record.id, job_or_none

    def _take_comparison(self, baseline_id: int, run: int, slower: Optional[Regression],
                         history: RunHistory) -> None:
        """Keep what a comparison has shown in place of the last regression of the baseline
        (`slower` None: there is none), unless the baseline or the run was removed meanwhile."""
        if baseline_id not in self.now.baselines.ids or history.get(run) is None:
            return
        # Each baseline has one regression, that of the run compared last.
        others = tuple(row for row in self.now.regressions if row.baseline != baseline_id)
        if slower is not None:
            self._note(Event('probe', 'probe %d is slower than its baseline %d'
                             % (run, baseline_id), slower.lines[0]))
        self._set(regressions=others if slower is None else (*others, slower))
