# SPDX-License-Identifier: LGPL-2.1-or-later
"""Several perfguard-probes on client hosts that measure at the same time, and have one result.

They meet at an object in the namespace of probes, which the first host creates. Its xattrs are all
that they share: PLAN, one entry of each host, and GO, which only the first host writes. Before each
measurement a host says that it is ready; when all are, the first one writes GO, and each begins
when it reads it. So no clocks are compared, and how far apart hosts begin is at most the time
between the last two readings of any host (`tolerance`).

A host that writes nothing for SILENT_SECONDS has died. Every write requires the content of the
object, which names the first host's run: what was removed is not created again.
"""
import contextlib
import json
import re
import zlib
from typing import (Dict, List, Mapping, NamedTuple, Optional, Protocol, Sequence, Tuple, Type,
                    TypeVar)

from ..codec import decode, encode
from ..errors import PerfguardError
from ..text import listed
from .histogram import BUCKETS, quantiles
from .stats import added
from .types import MEETING_PREFIX, Direction, StepResult, StreamResult

#: Seconds that the first host waits for the others.
JOIN_SECONDS = 120.0
#: Seconds between two writes of a host, and without any after which it counts as dead: an
#: overloaded cluster may take seconds for each.
BEAT_SECONDS, SILENT_SECONDS = 1.0, 20.0
#: Seconds in which the others may learn of the end, or fetch results.
FAREWELL_SECONDS = 10.0
#: The end of a host that has delivered its results.
DELIVERED = 'done'
PLAN, GO, HOST_ENTRY = 'plan', 'go', 'host.'
#: The name of the first host among the entries, and those that hosts may have.
FIRST, _NAME = '0', re.compile('0|[1-9a-f][0-9a-f]{0,15}')
MAX_HOSTS = 64
#: The content of an object.
_RUN = re.compile('0|[1-9][0-9]{0,18}')
_Value = TypeVar('_Value')
OTHER_JOBS = 'the first host measures other jobs, or has another version of perfguard'


class CannotJoin(PerfguardError):
    """The message is one line."""


class Board(Protocol):
    """The object, and others whose names begin with its name. Raises Failed."""

    def create(self, content: str, xattrs: Mapping[str, str]) -> bool:
        """False: it exists."""

    def read(self) -> Optional[Mapping[str, str]]:
        """Its xattrs; None: it does not exist."""

    def write(self, content: str, key: str, value: str) -> bool:
        """Set an xattr if the object has this content; False: it has not."""

    def remove(self, content: str) -> None:
        """Remove the object if it has this content."""

    def put(self, suffix: str, data: bytes) -> None: ...

    def get(self, suffix: str) -> Optional[bytes]: ...

    def drop(self, suffix: str) -> None: ...


class MeetingPlan(NamedTuple):
    """What all hosts must agree on."""
    #: Of the jobs, their repetitions and the version of perfguard.
    digest: str
    hosts: int
    #: Number of measurements.
    steps: int


class _Headline(NamedTuple):
    """The value of PLAN."""
    #: The content of the object.
    content: str
    plan: MeetingPlan


class HostEntry(NamedTuple):
    host: str
    #: The measurement that it is ready to begin; -1: none yet. Their number: it has all results.
    ready: int = -1
    beat: int = 0
    #: Why it has ended early; '': it has not.
    end: str = ''


class Go(NamedTuple):
    """What all hosts do."""
    #: The measurement that has begun; -1: none. Their number: all results are written.
    step: int = -1
    #: Who takes part, since the first one has begun.
    hosts: Tuple[str, ...] = ()
    #: Why the probe has ended early; '': it has not.
    end: str = ''


def judge(go: Go, entries: Mapping[str, HostEntry], silence: Mapping[str, float],
          plan: MeetingPlan, waited: float) -> Go:
    """What all hosts do next, as the first host decides: the next measurement when all that take
    part are ready for it; the end when too few have joined in time, or one of them has ended or is
    silent; else `go`, which is what they do now. `entries`: of all hosts that have joined, by name,
    also more than take part; `silence`: seconds since each has written something new; `waited`:
    seconds since the meeting began."""
    if go.end or go.step >= plan.steps:
        return go  # the probe has ended
    # FIRST takes part in any case, so it is the first one.
    alive = [name for name in sorted(entries, key=lambda name: (name != FIRST, name))
             if silence[name] <= SILENT_SECONDS and not entries[name].end]
    hosts = go.hosts or tuple(alive[:plan.hosts])
    if len(hosts) < plan.hosts:
        return go if waited <= JOIN_SECONDS else go._replace(
            end='%d of %d hosts have joined within %.0f s' % (
                len(hosts), plan.hosts, JOIN_SECONDS))
    for name in hosts:
        entry = entries[name]
        if entry.end:
            return go._replace(end='%s has ended: %s' % (entry.host, entry.end))
        if silence[name] > SILENT_SECONDS:
            return go._replace(end=_silent(entry))
    if all(entries[name].ready > go.step for name in hosts):
        return Go(go.step + 1, hosts)
    return go


def _silent(entry: HostEntry) -> str:
    return '%s has not answered for %.0f s' % (entry.host, SILENT_SECONDS)


class Meeting:
    """One host's part. `now` is a monotonic time in seconds."""

    def __init__(self, board: Board, plan: MeetingPlan, host: str, run: int, now: float) -> None:
        """`host`: the name of this host, for others; `run`: the id of its run."""
        self._board, self._plan, self._run, self._joined_at = board, plan, run, now
        self._entry = HostEntry(host)
        #: FIRST, or the run of this host in hexadecimal digits.
        self._name = ''
        #: The content of the object, which is the run of its first host; '': not joined.
        self._content = ''
        self._written_at = float('-inf')
        #: Name of a host -> its entry, and when a change of it was last read.
        self._entries: Dict[str, HostEntry] = {}
        self._changed_at: Dict[str, float] = {}
        self.go = Go()
        #: Why this host cannot join if the first one is alive; '': it can.
        self._refusal = ''
        #: Seconds by which this host may have begun later than another.
        self.tolerance = 0.0
        #: Runs of hosts that have died, which have left objects: of the same jobs, and of others.
        self.dead: Tuple[int, ...] = ()
        self.dead_of_other_jobs: Tuple[int, ...] = ()

    @property
    def leads(self) -> bool:
        return self._name == FIRST

    @property
    def first_host(self) -> str:
        entry = self._entries.get(FIRST)
        return entry.host if entry is not None else 'the first host'

    # ---- Joining

    def join(self, now: float) -> bool:
        """Join the meeting, or begin it; to be called until it returns True. A meeting whose first
        host has died is removed, even one of other jobs, and the next call begins another. Raises
        CannotJoin: the first host is alive and has other jobs, or has begun without this one."""
        if not self._content:
            return self._enter(now)
        xattrs = self._board.read()
        if xattrs is None or not self._belongs(xattrs):
            self._content = ''
            return False
        self._take_entries(xattrs, now)
        if not self._refusal and now - self._written_at >= BEAT_SECONDS:
            self._write(now)
        if self._silence(FIRST, now) > SILENT_SECONDS:
            self._remove_all(now)
            self._content = ''
            return False
        if self._changed_at[FIRST] <= self._joined_at:
            return False  # only a change shows that the first host is alive
        if self._refusal:
            raise CannotJoin(self._refusal)
        self.go = _go_of(xattrs)
        if self.go.end or self.go.step >= 0 and self._name not in self.go.hosts:
            self._leave('too late', now)
            raise CannotJoin('the probe has begun without this host; %s' % (
                self.go.end or 'wait until it has ended, or join another name'))
        return True

    def _enter(self, now: float) -> bool:
        """Begin the meeting as its first host, or write an entry into the one that exists. Returns
        whether this host is the first. To a meeting of other jobs it writes nothing. Raises
        CannotJoin if the object is not readable."""
        content = '%d' % self._run
        self._entries, self._changed_at = {}, {}
        if self._board.create(content, {
                PLAN: json.dumps(encode(_Headline(content, self._plan))),
                GO: json.dumps(encode(Go())),
                HOST_ENTRY + FIRST: json.dumps(encode(self._entry))}):
            self._name, self._content, self._refusal = FIRST, content, ''
            self._joined_at = self._written_at = now
            return True
        xattrs = self._board.read()
        if xattrs is None:
            return False  # it was removed meanwhile
        first_run, plan = _plan_of(xattrs)
        self._refusal = _refusal(plan, self._plan)
        self._name, self._content, self._joined_at = '%x' % self._run, '%d' % first_run, now
        self._take_entries(xattrs, now)
        if FIRST not in self._entries:  # its entry is unreadable
            raise CannotJoin(OTHER_JOBS)
        if not self._refusal:
            self._write(now)
        return False

    # ---- Measuring

    def attend(self, now: float, ready: int) -> Go:
        """Show the other hosts that this one is alive, and which measurement it is `ready` to begin
        (-1: none yet). Returns what to do now, which the first host decides; after the meeting has
        ended in any way, its `end` says why. To be called after `join`, a few times per second, but
        not after an `end`. Raises CannotJoin (PLAN or GO is not readable) or Failed."""
        if ready != self._entry.ready or now - self._written_at >= BEAT_SECONDS:
            self._entry = self._entry._replace(ready=ready)
            self._write(now)
        xattrs = self._board.read()
        if xattrs is None or not self._belongs(xattrs):
            return self._ended('%s has ended the probe' % self.first_host)
        self._take_entries(xattrs, now)
        if self.leads:
            go = judge(self.go, self._entries, {
                name: self._silence(name, now) for name in self._entries}, self._plan,
                now - self._joined_at)
            if go != self.go:
                self._board.write(self._content, GO, json.dumps(encode(go)))
        else:
            go = _go_of(xattrs)
            if not go.end and self._silence(FIRST, now) > SILENT_SECONDS:
                self._remove_all(now)
                return self._ended(_silent(self._entries[FIRST]))
        if go.step >= 0 and self._name not in go.hosts:
            go = go._replace(end='the probe has begun without this host')
        self.go = go
        return go

    def began(self, before: float, after: float) -> None:
        """Note that this host has begun a measurement at `after`; at `before`, GO did not yet name
        it, so that no other host had begun."""
        self.tolerance = max(self.tolerance, after - before)

    def _ended(self, why: str) -> Go:
        """What to do when the meeting no longer exists."""
        self._content = ''
        self.go = self.go._replace(end=why)
        return self.go

    # ---- The end

    def deliver(self, results: Sequence[StepResult], now: float) -> None:
        """Write the results of this host, and show that all of them are written."""
        self._board.put(self._name, zlib.compress(json.dumps(
            [self.tolerance, [encode(result) for result in results]]).encode()))
        self._entry = self._entry._replace(ready=self._plan.steps)
        self._write(now)

    def gathered(self) -> Tuple[float, Tuple[str, ...], Tuple[Sequence[StepResult], ...]]:
        """The largest tolerance in seconds, the hosts, and the results of each, in the same order.
        To be called by the first host when all are written. Raises CannotJoin if some are missing
        or damaged."""
        tolerance, results = 0.0, []
        for name in self.go.hosts:
            data = self._board.get(name)
            try:
                their_tolerance, raw = json.loads(zlib.decompress(data or b''))
                tolerance = max(tolerance, float(their_tolerance))
                results.append(tuple(decode(Tuple[StepResult, ...], raw)))
                damaged = len(results[-1]) != self._plan.steps
            except (TypeError, ValueError, zlib.error):
                damaged = True
            if damaged:
                raise CannotJoin('the results of %s are %s' % (
                    self._entries[name].host, 'missing' if data is None else 'damaged'))
        return tolerance, tuple(self._entries[name].host for name in self.go.hosts), tuple(results)

    def leave(self, why: str, now: float, at_once: bool = False) -> bool:
        """Leave the meeting; to be called until it returns True. The first host removes the object
        when the others have left or fallen silent, or `at_once`: those that still follow the
        meeting then end with a failure. `why`: '' after its regular end."""
        if not self._content or self._refusal:
            return True  # this host has no entry
        if not self.leads:
            if why:
                # After the regular end, the first host still reads these results.
                self._board.drop(self._name)
            self._leave(why or DELIVERED, now)
            return True
        if why and not self.go.end:
            self.go = self.go._replace(end=why)
            self._board.write(self._content, GO, json.dumps(encode(self.go)))
        xattrs = self._board.read()
        if xattrs is not None and self._belongs(xattrs):
            self._take_entries(xattrs, now)
            if not at_once and any(
                    name != FIRST and not entry.end
                    and self._silence(name, now) <= FAREWELL_SECONDS
                    for name, entry in self._entries.items()):
                return False
        self._remove_all(now)
        return True

    def _leave(self, why: str, now: float) -> None:
        self._entry = self._entry._replace(end=why)
        self._write(now)
        self._content = ''

    def _remove_all(self, now: float) -> None:
        """Remove the meeting with all results, and note the runs of hosts that have died: they may
        have written objects, even before the first measurement."""
        for name, entry in self._entries.items():
            if name != self._name and not entry.end and self._silence(name, now) > SILENT_SECONDS:
                dead_run = int(self._content) if name == FIRST else int(name, 16)
                if self._refusal:
                    self.dead_of_other_jobs += (dead_run,)
                else:
                    self.dead += (dead_run,)
            self._board.drop(name)
        self._board.remove(self._content)

    # ---- The object

    def _write(self, now: float) -> None:
        self._entry = self._entry._replace(beat=self._entry.beat + 1)
        self._board.write(self._content, HOST_ENTRY + self._name, json.dumps(encode(self._entry)))
        self._written_at = now

    def _belongs(self, xattrs: Mapping[str, str]) -> bool:
        return PLAN in xattrs and _plan_of(xattrs)[0] == int(self._content)

    def _take_entries(self, xattrs: Mapping[str, str], now: float) -> None:
        """Take in the entries of the hosts, except for unreadable ones. An entry that has changed
        shows that its host is alive."""
        for key, value in xattrs.items():
            if not key.startswith(HOST_ENTRY):
                continue
            name = key[len(HOST_ENTRY):]
            # Who may write to the pool may write anything.
            if not _NAME.fullmatch(name):
                continue
            with contextlib.suppress(ValueError, RecursionError):
                entry: HostEntry = decode(HostEntry, json.loads(value))
                if self._entries.get(name) != entry:
                    self._entries[name], self._changed_at[name] = entry, now

    def _silence(self, name: str, now: float) -> float:
        """Seconds since the entry of a host has changed, or since this host has joined."""
        return now - self._changed_at.get(name, self._joined_at)


def _plan_of(xattrs: Mapping[str, str]) -> Tuple[int, MeetingPlan]:
    """The run of the first host, and its plan. Raises CannotJoin if they are not readable."""
    content, plan = _decoded(_Headline, xattrs, PLAN)
    if not _RUN.fullmatch(content):
        raise CannotJoin(OTHER_JOBS)
    return int(content), plan


def _go_of(xattrs: Mapping[str, str]) -> Go:
    """What the first host has decided. Raises CannotJoin if it is not readable."""
    return _decoded(Go, xattrs, GO)


def _decoded(kind: Type[_Value], xattrs: Mapping[str, str], key: str) -> _Value:
    """The value that a host has written. Raises CannotJoin: its version has other fields, or who
    may write to the pool has written something else."""
    try:
        value: _Value = decode(kind, json.loads(xattrs[key]))
    except (LookupError, ValueError, RecursionError):
        raise CannotJoin(OTHER_JOBS) from None
    return value


def _refusal(theirs: MeetingPlan, ours: MeetingPlan) -> str:
    """Why hosts with these plans cannot measure together; '': they can."""
    if theirs == ours:
        return ''
    return OTHER_JOBS if theirs.hosts == ours.hosts \
        else 'the first host has given --hosts %d' % theirs.hosts


def object_of(name: str) -> str:
    return MEETING_PREFIX + name


# ---- One result of several hosts

def merged_results(by_host: Sequence[Sequence[StepResult]]) -> Tuple[StepResult, ...]:
    """Each measurement of all hosts as one, stream by stream, as if one client had done it.
    `by_host`: the results of each host, one for each measurement."""
    return tuple(_merged_step(steps) for steps in zip(*by_host))


def _merged_step(steps: Sequence[StepResult]) -> StepResult:
    """One measurement, from the result of each host. CPU seconds add up; the highest share of a
    core counts."""
    return StepResult(
        tuple(_merged_stream(streams) for streams in zip(*(step.streams for step in steps))),
        sum(step.cpu_user for step in steps), sum(step.cpu_system for step in steps),
        max(step.cpu_share for step in steps), any(step.client_limited for step in steps),
        listed(sorted({step.engine for step in steps})),
        next((step.cut_short for step in steps if step.cut_short), ''))


def _merged_stream(streams: Sequence[StreamResult]) -> StreamResult:
    """The streams of the same number of all hosts, as one."""
    return StreamResult(
        streams[0].name, merged([stream.read for stream in streams]),
        merged([stream.write for stream in streams]), sum(stream.errors for stream in streams),
        sum(stream.corrupt for stream in streams), sum(stream.unfinished for stream in streams),
        next((stream.first_error for stream in streams if stream.first_error), ''))


def merged(parts: Sequence[Direction]) -> Direction:
    """The same direction of streams that ran at the same time, as one. Each needs its `counts`.

    Percentiles are those of all operations together; those of parts must not be averaged.
    """
    counts = [0] * BUCKETS
    for part in parts:
        for bucket, number in part.counts:
            counts[bucket] += number
    latencies = [(part.ios, part.latency) for part in parts if part.latency is not None]
    total_ns = sum(ios * latency.mean for ios, latency in latencies)
    # The sum of squares of all latencies: `stddev` is that of a sample, with ios - 1.
    squares = sum(latency.stddev ** 2 * (ios - 1) + ios * latency.mean ** 2
                  for ios, latency in latencies)
    return Direction(
        sum(part.ios for part in parts), sum(part.bytes for part in parts),
        max((part.runtime_ns for part in parts), default=0),
        quantiles(counts, min(latency.min for _, latency in latencies),
                  max(latency.max for _, latency in latencies), total_ns, squares)
        if latencies else None, added([part.seconds for part in parts]))


def shares_of_hosts(hosts: Sequence[str], by_host: Sequence[Sequence[StepResult]]) -> List[str]:
    """The share of each host in all operations, as texts: a host that is slow has a small one."""
    counts = [sum(stream.read.ios + stream.write.ios for step in steps for stream in step.streams)
              for steps in by_host]
    return ['%s: %.0f %% of the operations' % (host, 100.0 * count / max(1, sum(counts)))
            for host, count in zip(hosts, counts)]
