# SPDX-License-Identifier: LGPL-2.1-or-later
"""Steps of latency: a pool that is slower from one minute to the next, and remains so.

Comparisons with peers say nothing if all OSDs become slow at the same time, as after an upgrade or
a change of an option. So each pool is compared with its own last hour. An event names the step,
with what else changed at that time. Pure.
"""
import math
import re
from collections import Counter, deque
from dataclasses import dataclass, replace
from typing import (AbstractSet, Deque, Dict, Iterable, List, Mapping, NamedTuple, Optional,
                    Sequence, Tuple)

from ..cluster.drive_health import READ_SECONDS, DriveHealth
from ..cluster.types import OptionChange, OsdMap
from ..codec import Time
from ..text import figure, listed, seconds_text, time_text
from .peers import median
from .series import HistoryPoint, mean_flow
from .types import Flow

#: Numbers of points, of a minute by default, before a step and after it. The points after it are
#: more than ten minutes: releases of OSDs are read that often (cluster/sensors.py).
LEAST_BEFORE_POINTS, MOST_BEFORE_POINTS, AFTER_POINTS = 20, 60, 11
POINTS = MOST_BEFORE_POINTS + AFTER_POINTS
#: Minimum number of operations of a point; of 100, the mean varies by a seventh.
LEAST_POINT_OPS = 100
#: Minimum slowdown, and minimum excess in ms.
STEP_RATIO = 1.3
STEP_MS = 0.1
#: Share of the points that must be on their side of the middle, and share of the difference that
#: the medians of a few points around the step must show: a slow rise over the day is no step.
APART_SHARE = 0.9
NEAR_POINTS, NEAR_SHARE = 5, 0.7
#: Change of the operations per second that is named, as a factor.
LOAD_RATIO = 1.2
#: Times around a step in which a change may have caused it, in seconds: changes take effect within
#: a minute or two, and what OSDs report of themselves is read every ten minutes.
MARGIN_SECONDS = 120.0
UNNOTICED_SECONDS = 660.0
#: Facts that are read from time to time -> seconds for which a change may not have been noticed.
OSD_RELEASES, OSD_KERNELS = 'release of OSDs', 'kernel of OSDs'
LATE = {OSD_RELEASES: UNNOTICED_SECONDS, OSD_KERNELS: UNNOTICED_SECONDS}
#: The same of the firmware of drives: OSDs run smartctl once a day.
FIRMWARE_LATE_SECONDS = 86400.0 + READ_SECONDS
#: Changes that are kept.
MOST_CHANGES = 200
#: Pools and changes that an event names: events are stored, and a cluster may have 500 pools that
#: all become slower with an upgrade. Characters of a value.
SLOWER_POOLS, NAMED_CHANGES = 5, 12
VALUE_CHARACTERS = 60
#: A step to a latency that the pool has risen to before, within this factor and this time, is no
#: news: a batch that runs each night, or each week.
SAME_LATENCY = 1.2
RECURRING_SECONDS = 8 * 86400.0
#: Sections of options that concern OSDs, and names of options whose values are not shown: events
#: have more readers than the configuration database.
OSD_SECTIONS = re.compile(r'(global|osd(\.\d+)?)(/|$)(?!mgr/)')
SECRET = re.compile('key|secret|passw|token|credential|auth', re.IGNORECASE)


class Step(NamedTuple):
    """One kind of operation of one pool that has become slower."""
    pool: int
    #: "reads" or "writes".
    kind: str
    #: When the last point before it ended and the first after it began, in seconds since the epoch.
    #: Time in between was not quiet.
    last_before: float
    begin: float
    #: Its operations in the last hour before it, and after it.
    before: Flow
    after: Flow


class ClusterChange(NamedTuple):
    """Something that has another value than before."""
    #: When that was noticed, in seconds since the epoch.
    at: float
    what: str
    before: str
    after: str
    #: For how long it may not have been noticed, in seconds.
    late: float = 0.0


def step_of(pool: int, kind: str, points: Sequence[HistoryPoint], ops_column: int,
            ns_column: int) -> Optional[Step]:
    """The step of latency AFTER_POINTS before the end of `points` (oldest first); None: there is
    none, or too few points have enough operations. `ops_column`, `ns_column`: of the number of
    operations and of the sum of their latencies in the points."""
    with_ops = [point for point in points if point.sums[ops_column] >= LEAST_POINT_OPS]
    before, after = with_ops[:-AFTER_POINTS][-MOST_BEFORE_POINTS:], with_ops[-AFTER_POINTS:]
    if len(before) < LEAST_BEFORE_POINTS:
        return None
    logs = [math.log(max(point.sums[ns_column], 1.0) / point.sums[ops_column])
            for point in (*before, *after)]
    old_logs, new_logs = logs[:len(before)], logs[len(before):]
    old_median, new_median = median(sorted(old_logs)), median(sorted(new_logs))
    rise = new_median - old_median
    if rise < math.log(STEP_RATIO):
        return None
    middle = 0.5 * (old_median + new_median)
    share_below = sum(value < middle for value in old_logs) / len(old_logs)
    share_above = sum(value > middle for value in new_logs) / len(new_logs)
    rise_at_step = median(sorted(new_logs[:NEAR_POINTS])) - median(sorted(old_logs[-NEAR_POINTS:]))
    old, new = mean_flow(before, ops_column, ns_column), mean_flow(after, ops_column, ns_column)
    # A slow rise over the day is no step.
    is_abrupt = rise_at_step >= NEAR_SHARE * rise and new_logs[0] > middle
    # Texts divide by the latency before the step.
    if min(share_below, share_above) < APART_SHARE or not is_abrupt \
            or new.ms - old.ms < STEP_MS or not old.ms:
        return None
    return Step(pool, kind, before[-1].end, after[0].end - after[0].seconds, old, new)


class Changes:
    """What has changed lately in the cluster, as far as it may make it slower."""

    def __init__(self) -> None:
        #: The last known facts: name -> value, as facts_of().
        self._facts: Dict[str, str] = {}
        #: Device id of a drive -> its firmware. Drives that cannot be read for some days are no
        #: change.
        self._firmware: Dict[str, str] = {}
        #: The last reading of SMART data; None: there was none.
        self._drives: Optional[Mapping[str, DriveHealth]] = None
        self._changes: Deque[ClusterChange] = deque(maxlen=MOST_CHANGES)
        #: Those that the last call of `note` has noticed.
        self.noticed: List[ClusterChange] = []

    def note(self, now: float, facts: Mapping[str, str],
             drives: Optional[Mapping[str, DriveHealth]] = None) -> None:
        """Note the changes since the last call. `facts`: name -> value now, as facts_of(); facts
        that are new or missing are no change. `drives`: device -> its SMART data, a new mapping
        after each reading; None: not read yet."""
        self.noticed = [ClusterChange(now, name, self._facts[name], value, LATE.get(name, 0.0))
                        for name, value in facts.items() if self._facts.get(name, value) != value]
        if drives is not self._drives:
            self.noticed += self._firmware_changes(now, drives or {})
            self._drives = drives
        self._changes += self.noticed
        # Pools are removed; what is read from time to time remains known.
        late_facts = {name: value for name, value in self._facts.items() if name in LATE}
        self._facts = {**late_facts, **facts}

    def around(self, step: Step) -> List[ClusterChange]:
        """The last changes that may be the cause of a step."""
        return changes_around(self._changes, step)

    def _firmware_changes(self, now: float,
                          drives: Mapping[str, DriveHealth]) -> List[ClusterChange]:
        """The changes of firmware since the last reading of SMART data: one for all drives of a
        model that had the same firmware before, and have the same now."""
        known = {drive.device_id: drive for drive in drives.values() if drive.model}
        updates = {(drive.model, self._firmware[device_id], drive.firmware)
                   for device_id, drive in known.items()
                   if self._firmware.get(device_id, drive.firmware) != drive.firmware}
        self._firmware.update({device_id: drive.firmware for device_id, drive in known.items()})
        return [ClusterChange(now, 'firmware of drive model %s' % model, before, after,
                              FIRMWARE_LATE_SECONDS)
                for model, before, after in sorted(updates)]


class KnownSteps:
    """To which latencies pools have risen lately."""

    def __init__(self) -> None:
        #: Step that was new -> when it, or one that resembles it, last began.
        self._last_begins: Dict[Step, float] = {}

    def around(self, changes: Sequence[ClusterChange]) -> Dict[float, List[Step]]:
        """The steps that were new of which one of the changes may be the cause, by the time when
        they began."""
        steps_by_begin: Dict[float, List[Step]] = {}
        for step in self._last_begins:
            if changes_around(changes, step):
                steps_by_begin.setdefault(step.begin, []).append(step)
        return steps_by_begin

    def new_of(self, steps: Sequence[Step]) -> List[Step]:
        """Those of the `steps` (at least one) that do not recur: to a latency to which the pool has
        not risen within RECURRING_SECONDS. All are known from now on, and one that recurs is known
        for longer."""
        last_begin = max(step.begin for step in steps)
        self._last_begins = {step: begin for step, begin in self._last_begins.items()
                             if last_begin - begin < RECURRING_SECONDS}
        known: Dict[Tuple[int, str], List[Step]] = {}
        for step in self._last_begins:
            known.setdefault((step.pool, step.kind), []).append(step)
        new: List[Step] = []
        for step in steps:
            similar = [earlier for earlier in known.get((step.pool, step.kind), ())
                       if 1 / SAME_LATENCY < step.after.ms / earlier.after.ms < SAME_LATENCY]
            if not similar:
                new.append(step)
            for earlier in similar:
                self._last_begins[earlier] = max(self._last_begins[earlier], step.begin)
        self._last_begins.update((step, step.begin) for step in new)
        return new


def changes_around(changes: Iterable[ClusterChange], step: Step) -> List[ClusterChange]:
    """The changes that may be the cause of a step, by when they happened or were noticed."""
    return [change for change in changes
            if step.last_before - MARGIN_SECONDS <= change.at
            and change.at - change.late <= step.begin + MARGIN_SECONDS]


#: Time for which a baseline may be from before an upgrade: it covers a week of quiet time.
BASELINE_SECONDS = 14 * 86400.0
#: Flags of a pool that change what its OSDs do for an operation. With ec_optimizations (Tentacle),
#: they read and write less than a stripe. With split_reads (after Tentacle), clients may read from
#: the OSDs that have the data; the mons set it (src/osd/osd_types.h).
SPLIT_READS = 'split_reads'
IO_FLAGS = ('ec_optimizations', SPLIT_READS)


def facts_of(osdmap: OsdMap, software: Iterable[Sequence[str]]) -> Dict[str, str]:
    """What may change the latency of pools, such as pg_num and the release of OSDs: what it is ->
    its value. `software`: of each OSD, its release and its kernel; '' if unknown."""
    facts = {'pg_num of pool %s' % pool.name: str(pool.pg_num) for pool in osdmap.pools.values()}
    # Not by pool: an upgrade sets a flag of all of them.
    flags = Counter(flag for pool in osdmap.pools.values() for flag in pool.flags)
    facts.update({'pools with %s' % flag: str(flags[flag]) for flag in IO_FLAGS})
    facts['OSDs that are up and in'] = str(sum(osd.is_up_and_in for osd in osdmap.osds.values()))
    for name, values in zip((OSD_RELEASES, OSD_KERNELS), zip(*software)):
        known_values = sorted({value for value in values if value})
        if known_values:
            facts[name] = ' and '.join(known_values)
    return facts


class ReleaseChange(NamedTuple):
    """An upgrade of all OSDs."""
    #: When the first of them had the new release, in seconds since the epoch.
    begun: Time
    before: str
    after: str


@dataclass(frozen=True)
class OsdRelease:
    """The release of the OSDs. It is stored: an upgrade restarts the mgrs first, so that the steps
    of latency before it are forgotten, while baselines are not."""
    #: The last one that all OSDs had; '': not known yet.
    release: str = ''
    #: Since when some OSDs have had another one; 0.0: none has.
    begun: Time = 0.0
    change: Optional[ReleaseChange] = None

    def noted(self, now: float, releases: AbstractSet[str]) -> 'OsdRelease':
        """The state with the present releases of all OSDs; '' among them: some are unknown, so
        nothing changes."""
        if not releases or '' in releases:
            return self
        if releases == {self.release}:
            return replace(self, begun=0.0)
        if len(releases) > 1:  # an upgrade is in progress
            return replace(self, begun=self.begun or now) if self.release else self
        release, = releases
        change = ReleaseChange(self.begun or now, self.release, release) if self.release else None
        return OsdRelease(release, 0.0, change or self.change)

    def upgrade_text(self, now: float, since: float) -> str:
        """A text on the upgrade that may be the reason for a latency that has been above its
        baseline since `since`; '': there was none, latency was high before it, or baselines are
        from after it."""
        # A release is noticed up to UNNOTICED_SECONDS late.
        begun = self.begun or (self.change.begun if self.change is not None else 0.0)
        if not begun or begun - UNNOTICED_SECONDS > since or now - begun > BASELINE_SECONDS:
            return ''
        if self.begun or self.change is None:
            return 'OSDs are being upgraded from %s since %s' % (self.release, time_text(begun))
        return ('OSDs were upgraded from %s to %s, the first at %s: the baseline may be from before'
                % (self.change.before, self.change.after, time_text(begun)))


def of_options(changes: Iterable[OptionChange]) -> List[ClusterChange]:
    """The changes of options that OSDs read: others do not change the latency that OSDs measure.
    """
    return [ClusterChange(change.at, '%s of %s' % (change.name, change.who),
                          _shown(change.name, change.before), _shown(change.name, change.after))
            for change in changes
            if OSD_SECTIONS.match(change.who + '/') and not change.name.startswith('rgw_')]


def _shown(name: str, value: str) -> str:
    if value and SECRET.search(name):
        return 'a hidden value'
    shown = value[:VALUE_CHARACTERS] + '...' if len(value) > VALUE_CHARACTERS else value
    return shown or 'no value'


def what_text(steps: Sequence[Step], names: Mapping[int, str]) -> str:
    """A sentence on steps of latency at about the same time, as in "reads and writes of pool p take
    1.4 times as long since 2026-11-30 14:02:00 CET"."""
    kinds: Dict[str, List[str]] = {}
    for step in steps:
        kinds.setdefault(names[step.pool], []).append(step.kind)
    ratios = sorted(step.after.ms / step.before.ms for step in steps)
    first = min(steps, key=lambda step: step.begin)
    return '%s take %s times as long since %s' % (
        listed(['%s of pool %s' % (' and '.join(sorted(kinds[name])), name)
                for name in sorted(kinds)], SLOWER_POOLS, ' and '), figure(median(ratios)),
        time_text(first.begin))


def why_text(steps: Sequence[Step], changes: Sequence[ClusterChange], with_options: bool) -> str:
    """A text on the latencies before and after steps, and on what changed at that time.
    `with_options`: `changes` include those of options, if there were any."""
    parts = ['%s take %s ms instead of %s ms' % (step.kind, figure(step.after.ms),
                                                 figure(step.before.ms)) for step in steps]
    # First what is noticed late, such as an upgrade: only NAMED_CHANGES are named.
    causes = ['%s: %s instead of %s, %s' % (
        change.what, change.after, change.before, _when_text(change))
        for change in sorted(changes, key=lambda change: not change.late)]
    for step in steps:
        ratio = step.after.rate / step.before.rate
        if not 1 / LOAD_RATIO < ratio < LOAD_RATIO:
            causes.append('client load: %s %s per second instead of %s' % (
                figure(step.after.rate), step.kind, figure(step.before.rate)))
    if not with_options:
        causes.append('options: not known, as the mons did not answer "config log"')
    # A pool may have two steps: of reads and of writes.
    return '%s; %s' % (listed(parts, 2 * SLOWER_POOLS),
                       'changed at that time: ' + listed(causes, NAMED_CHANGES, '; ') if causes
                       else 'no change at that time is known that may be the cause')


def _when_text(change: ClusterChange) -> str:
    return 'noticed at %s, up to %s late' % (time_text(change.at), seconds_text(change.late)) \
        if change.late else 'at ' + time_text(change.at)
