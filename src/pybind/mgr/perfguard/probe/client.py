# SPDX-License-Identifier: LGPL-2.1-or-later
"""perfguard-probe: the probe of a pool from client hosts, without the mgr.

The same worker as in the mgr does the I/O. Prints JSON that "ceph perfguard probe import" reads.
With --join, several hosts measure at the same time and have one result (meeting.py).
"""
import argparse
import configparser
import contextlib
import hashlib
import json
import os
import random
import re
import signal
import socket
import sys
import threading
import time
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any, List, Mapping, Optional, Sequence, Tuple

from ..errors import PerfguardError
from ..text import bytes_text, listed
from ..version import VERSION
from .child import KILLED_SECONDS, Child
from .jobs import (MAX_REPEAT, WORDS, default_repeat, parse_jobs, parse_size, plan_steps,
                   profile_of, remarks, size_text)
from .limits import Budget, budget_of, limit_seconds, over_quota
from .meeting import (FAREWELL_SECONDS, JOIN_SECONDS, MAX_HOSTS, CannotJoin, Go, Meeting,
                      MeetingPlan, merged_results, object_of, shares_of_hosts)
from .placement import naming_of, run_prefix
from .records import CANCELLED, CLIENT, CLIENTS, DONE, FAILED, RunRecord, imported_to_json
from .types import NAMESPACE, PROBE_PREFIX, RBD, BadJob, Job, JobStep, StepResult, Target
from .worker import argv as worker_argv
from .worker.protocol import (RUN, STEP_WAITS, SWEEP, Failed, WorkerRequest, request_to_json,
                              step_result)

if TYPE_CHECKING:
    from .worker.connection import Connection

#: Ids of runs, which are part of the names of objects: far above those that an mgr gives.
FIRST_RUN, LAST_RUN = 1 << 40, 1 << 50
#: Assumed number of replicas of the pool, for the space and the time that the run may take.
REPLICAS = 3
#: Maximum number of bytes that all hosts store, counting all replicas, unless --max-bytes is given;
#: as probe_max_bytes.
MAX_STORED_BYTES = 64 << 30
#: Maximum share of the free space of the pool that all hosts may fill. That space ends at the full
#: ratio (0.95): in a cluster that is 80 % full, a quarter of it ends before the nearfull ratio
#: (0.85).
SPACE_SHARE = 0.25
#: Seconds between two readings of the health of the cluster during the run, and how many in
#: succession may fail.
HEALTH_SECONDS = 10.0
FAILED_READINGS = 3
#: Seconds to remove objects by their names, and to look for them in all that a pool has.
CLIENT_SWEEP_SECONDS, CLIENT_LISTING_SECONDS = 120.0, 86400.0
#: Seconds over its limit after which the worker is killed, and seconds between two checks of it.
CLIENT_GRACE_SECONDS = 5.0
POLL_SECONDS = 0.2
#: The same before a measurement that several hosts begin together, which it delays.
BEGIN_SECONDS = 0.02
#: Seconds after which an operation on the object at which they meet has failed.
MEETING_OPERATION_SECONDS = 15
#: Health checks that prevent a probe: those known to the mons of the reasons for which the mgr
#: refuses one.
UNWELL = ('OSD_FULL', 'OSD_BACKFILLFULL', 'OSD_NEARFULL', 'POOL_FULL', 'PG_AVAILABILITY',
          'PG_DEGRADED', 'PG_RECOVERY_FULL', 'PG_BACKFILL_FULL', 'SLOW_OPS')
#: Exit status for missing or invalid input; argparse uses it, too.
BAD_INPUT = 2
#: As a shell reports a process that SIGINT has ended.
INTERRUPTED = 130


class BadArguments(PerfguardError):
    """The message is the one line that the user sees."""


class HealthWatch:
    """Reads the health of the cluster during the run, in its own thread: mons without a quorum
    answer late, and hosts that measure together wait for each other."""

    def __init__(self, cluster: 'Connection') -> None:
        self._cluster = cluster
        #: Why the run has to end; '' if it may continue.
        self.reason = ''
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name='perfguard-health', daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Waits for an answer of the mons, for which librados has a limit."""
        self._closing.set()
        self._thread.join()

    def _watch(self) -> None:
        """The thread: watch until there is a `reason`: the cluster is unwell, or its health could
        not be read FAILED_READINGS times in a row."""
        failures = 0
        while not self.reason and not self._closing.wait(HEALTH_SECONDS):
            try:
                texts = _unwell(self._cluster.health())
            except Exception as error:  # a thread that ends watches nothing
                failures += 1
                texts = [str(error) or type(error).__name__] if failures == FAILED_READINGS else []
            else:
                failures = 0
            self.reason = ', '.join(texts)


class Measuring:
    """One worker from its request to its end. With a meeting, it begins each measurement together
    with the workers of other hosts."""

    def __init__(self, request: WorkerRequest, meeting: Optional[Meeting] = None,
                 watch: Optional[HealthWatch] = None) -> None:
        self._meeting = meeting
        self._watch = watch
        #: The step that the worker is ready to begin, and the last one that it has begun.
        self._ready_step = self._begun_step = -1
        #: When it last followed the meeting.
        self._attended_at = time.monotonic()
        self._child = Child(worker_argv())
        self._child.send(request_to_json(request))
        self._limit_seconds = request.limit_seconds + CLIENT_GRACE_SECONDS
        self.steps = request.steps
        self.results: List[StepResult] = []
        self.messages: List[str] = []
        #: Number of objects that are not removed; None: not known.
        self.objects_left: Optional[int] = None
        self.may_have_written = False
        self._cancelled = self._was_killed = self._has_ended = False
        #: A signal has come after the end of the worker.
        self.interrupted = False

    def cancel(self, number: int, frame: Optional[FrameType]) -> None:
        """A signal handler: let the worker remove its objects and end. If it has ended already,
        note that this process must not wait for other hosts any longer."""
        if self._has_ended:
            self.interrupted = True
        elif not self._cancelled:
            self._cancelled = True
            self._child.send({'cancel': 'interrupted'})

    def wait(self) -> str:
        """Follow the worker until it has ended. At its limit it is killed, and given up if that
        does not end it. Returns the state of the run: DONE, CANCELLED or FAILED."""
        end = time.monotonic() + self._limit_seconds
        while True:
            # Before its lines, so that they include the last ones.
            status = self._child.ended(time.monotonic())
            for line in self._child.lines():
                self._take(line)
            if status is not None:
                self._has_ended = True
                return self._state(status)
            if time.monotonic() > end and self._was_killed:
                self._has_ended = True
                self.messages.append('the worker does not end although it was killed')
                return self._state(status=1)
            if time.monotonic() > end:
                self._child.kill()
                self._was_killed, end = True, time.monotonic() + KILLED_SECONDS
                self.messages.append('the worker did not end in time and was killed')
            self._end_if_unwell()
            time.sleep(self._attend_meeting() if self._meeting is not None else POLL_SECONDS)

    def _end_if_unwell(self) -> None:
        """When the cluster is unwell, let the worker remove its objects and end, unless it is
        ending already or has measured all."""
        reason = '' if self._watch is None else self._watch.reason
        is_measuring = len(self.results) < len(self.steps)
        if reason and is_measuring and not (self._cancelled or self.messages):
            self.messages.append('stopped measuring: %s' % reason)
            self._child.send({'cancel': reason})

    def _attend_meeting(self) -> float:
        """Follow the meeting: let the worker begin the next measurement when all hosts are ready
        for it, and end when the meeting has ended. Returns the seconds to wait before the next
        call."""
        assert self._meeting is not None
        if self._cancelled or self.messages:
            # The worker is ending.
            return POLL_SECONDS
        attended_before, self._attended_at = self._attended_at, time.monotonic()
        try:
            go = self._meeting.attend(self._attended_at, self._ready_step)
        except (CannotJoin, Failed) as error:
            go = Go(end=str(error))
        if go.end:
            self.messages.append(go.end)
            self._child.send({'cancel': go.end})
        elif go.step > self._begun_step:
            self._child.send({'begin': go.step})
            self._begun_step = go.step
            # Others may have begun since the call before this one; the first host decides it now.
            self._meeting.began(self._attended_at if self._meeting.leads else attended_before,
                                time.monotonic())
        return BEGIN_SECONDS if self._ready_step > self._begun_step else POLL_SECONDS

    def _take(self, line: Mapping[str, Any]) -> None:
        """Take in one line of the worker's output, and print its progress."""
        kind = line.get('type')
        if kind == 'step':
            self.may_have_written = True
            step = self.steps[int(line['index'])]
            if line['state'] == STEP_WAITS:
                self._ready_step = int(line['index'])
            say('measurement %d of %d (%s), %s' % (
                line['index'] + 1, len(self.steps), step.job.name, line['state']))
        elif kind == 'result':
            self.results.append(step_result(line['result']))
        elif kind == 'cleaned':
            self.objects_left = int(line['left'])
        elif kind == 'error':
            self.messages.append(str(line['message']))

    def _state(self, status: int) -> str:
        """The state of the run after the worker has ended with an exit status."""
        if self._cancelled:
            return CANCELLED
        if status and not self.messages:
            self.messages.append(self._child.why())
        is_complete = len(self.results) == len(self.steps)
        return DONE if is_complete and not status and not self.messages else FAILED


def say(text: str) -> None:
    print('perfguard-probe: ' + text, file=sys.stderr, flush=True)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """The console script. Returns the exit status: 0, 1 for a failure, BAD_INPUT or INTERRUPTED."""
    args = _parser().parse_args(argv)
    try:
        return _run(args) if args.clean is None else _clean(args)
    except (BadArguments, BadJob) as error:
        say(str(error))
        return BAD_INPUT
    except KeyboardInterrupt:
        # Before the worker has begun, or while it removes objects: it ends with this process.
        say('interrupted')
        return INTERRUPTED


def _run(args: argparse.Namespace) -> int:
    """Measure as the arguments say, write the results, and remove what was written. Returns the
    exit status: 0 if the run is done, else 1."""
    jobs, repeat, profile = _jobs(args)
    target = Target('pool', args.pool)
    steps = plan_steps(jobs, target, repeat)
    run = random.SystemRandom().randrange(FIRST_RUN, LAST_RUN)
    budget = budget_of(jobs, target, repeat, REPLICAS)
    created = time.time()
    request = _request(args, run, RUN, limit_seconds(budget), jobs, steps)
    cluster = _connect_and_check(request, budget, args)
    if cluster is None:
        return 1
    fsid = cluster.fsid()
    if args.output != '-':
        # Before measuring, because results that cannot be written are lost. 'a': an existing file
        # stays as it is until then.
        _write(args.output, '', 'a')
    meeting = None
    if args.join:
        meeting = _join(args, cluster, request, jobs, repeat)
        request = replace(request, meeting=object_of(args.join), leads=meeting.leads,
                          limit_seconds=request.limit_seconds + JOIN_SECONDS)
    watch = None if args.force else HealthWatch(cluster)
    measuring = Measuring(request, meeting, watch)
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, measuring.cancel)
    say('run %d on pool %s: about %.0f s (at most %.0f s), %d objects' % (
        run, args.pool, budget.seconds, request.limit_seconds, budget.objects))
    started = time.time()
    state = measuring.wait()
    if watch is not None:
        watch.close()
    # The mgr that imports the record replaces its id, 0.
    record = RunRecord(0, state, profile, target, created, started, time.time(), steps=steps,
                       results=tuple(measuring.results), messages=tuple(measuring.messages),
                       setting={CLIENT: socket.gethostname()})
    if meeting is not None:
        record = _end_meeting(measuring, meeting, record)
    try:
        if meeting is None or meeting.leads:  # the first host writes the results of all
            _write(args.output, json.dumps(imported_to_json(record, jobs, repeat, fsid)) + '\n')
    finally:
        # Also if the results cannot be written: a disk is full, or the reader of a pipe has ended.
        for text in record.messages:
            say(text)
        _remove_own_objects(request, measuring, run)
        if meeting is not None:
            _remove_objects_of_dead(request, meeting)
    return 0 if record.state == DONE else 1


def _remove_own_objects(request: WorkerRequest, measuring: Measuring, run: int) -> None:
    """Remove the objects of this run if its worker ended before it did so. If the worker could not
    remove some, report their number."""
    objects_left = measuring.objects_left
    if objects_left is None and measuring.may_have_written:
        say('removing the objects of run %d' % run)
        _remove_by_name(request, run)
    elif objects_left:
        _say_left(run, objects_left)


def _remove_objects_of_dead(request: WorkerRequest, meeting: Meeting) -> None:
    """Remove the objects of hosts that have died in the meeting. Those of other jobs have unknown
    names, so they are only reported."""
    for dead_run in meeting.dead:
        say('removing the objects of run %d, whose host has died' % dead_run)
        _remove_by_name(request, dead_run)
    for dead_run in meeting.dead_of_other_jobs:
        _say_left(dead_run, objects_left=None)


def _remove_by_name(request: WorkerRequest, run: int) -> None:
    """Remove the objects of a run with the jobs of `request`, by their names: a pool may have too
    many objects to list them. Reports the number of those that remain. From now on, SIGINT and
    SIGTERM end this process."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert request.naming is not None
    objects_left = _run_sweep(replace(
        request, mode=SWEEP, prefix=run_prefix(run), steps=(), meeting='',
        naming=replace(request.naming, run=run), limit_seconds=CLIENT_SWEEP_SECONDS))
    if objects_left != 0:  # None: not known
        _say_left(run, objects_left)


def _say_left(run: int, objects_left: Optional[int]) -> None:
    say('objects left: %s; remove them with --clean %d' % (_number(objects_left), run))


# ---- Several hosts

def _join(args: argparse.Namespace, cluster: 'Connection', request: WorkerRequest,
          jobs: Sequence[Job], repeat: int) -> Meeting:
    """Join the meeting of --join, or begin it. Waits until it is known that its first host is
    alive. Raises BadArguments."""
    must_match = [VERSION, args.pool, repeat, *map(repr, jobs)]
    plan = MeetingPlan(hashlib.sha256(repr(must_match).encode()).hexdigest(), args.hosts,
                       len(request.steps))
    assert request.naming is not None
    host = '%s (process %d)' % (socket.gethostname(), os.getpid())
    meeting = Meeting(cluster.board(object_of(args.join)), plan, host, request.naming.run,
                      time.monotonic())
    try:
        while not meeting.join(time.monotonic()):
            time.sleep(POLL_SECONDS)
    except (CannotJoin, Failed) as error:
        _say_left_by_dead(meeting)
        raise BadArguments('cannot join %s: %s' % (args.join, error)) from None
    except KeyboardInterrupt:
        _say_left_by_dead(meeting)
        with contextlib.suppress(CannotJoin, Failed):  # the cluster may not answer any more
            meeting.leave('interrupted', time.monotonic())
        raise
    say('joined %s; %s writes the result' % (
        args.join, 'this process' if meeting.leads else meeting.first_host))
    return meeting


def _say_left_by_dead(meeting: Meeting) -> None:
    """Name the runs whose meeting this host has removed, and whose objects it does not remove."""
    for dead_run in (*meeting.dead, *meeting.dead_of_other_jobs):
        _say_left(dead_run, objects_left=None)


def _end_meeting(measuring: Measuring, meeting: Meeting, record: RunRecord) -> RunRecord:
    """Exchange the results of a run that is done, and leave the meeting. Returns the record of all
    hosts on the first host, and that of this host on others; its state is FAILED if a host has
    failed."""
    if record.ended_well:
        try:
            record = _exchange_results(measuring, meeting, record)
        except (CannotJoin, Failed) as error:
            record = _failed(record, error)
    try:
        failure = '' if record.ended_well else listed(record.messages, 1) or record.state
        # `leave` waits for hosts that still write into the meeting: not without a limit.
        until = time.monotonic() + 2 * FAREWELL_SECONDS
        while not meeting.leave(failure, time.monotonic(), at_once=measuring.interrupted) \
                and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
    except (CannotJoin, Failed) as error:
        return _failed(record, error)
    return record


def _failed(record: RunRecord, error: Exception) -> RunRecord:
    return replace(record, state=FAILED, messages=(*record.messages, str(error)))


def _exchange_results(measuring: Measuring, meeting: Meeting, record: RunRecord) -> RunRecord:
    """Deliver the results of this host, and wait until all hosts have delivered theirs. Returns the
    record of all of them on the first host, that of this host on others. Its state is CANCELLED
    after an interrupt, FAILED if the meeting has ended early. Raises CannotJoin or Failed."""
    meeting.deliver(record.results, time.monotonic())
    # GO says "begin" for the step after the last one when all hosts have delivered their results.
    while not meeting.go.end and meeting.go.step < len(record.steps):
        if measuring.interrupted:
            return replace(record, state=CANCELLED, messages=('interrupted',))
        time.sleep(POLL_SECONDS)
        meeting.attend(time.monotonic(), len(record.steps))
    if meeting.go.end:
        return replace(record, state=FAILED, messages=(meeting.go.end,))
    if not meeting.leads:
        return record
    tolerance, hosts, by_host = meeting.gathered()
    return replace(
        record, results=merged_results(by_host),
        messages=('%d hosts began each measurement within %.2f s of each other' % (
            len(hosts), tolerance), *shares_of_hosts(hosts, by_host)),
        # Without the numbers of processes: later runs on these hosts are comparable.
        setting={CLIENT: listed(sorted(host.partition(' ')[0] for host in hosts)),
                 CLIENTS: str(len(hosts))})


def _run_sweep(request: WorkerRequest) -> Optional[int]:
    """Let a worker remove the objects of a run, as a request with mode SWEEP says. Returns how many
    are left; None: not known."""
    measuring = Measuring(request)
    measuring.wait()
    for text in measuring.messages:
        say(text)
    # After an error, a count of 0 does not prove that all were found.
    return measuring.objects_left if measuring.objects_left or not measuring.messages else None


def _number(objects_left: Optional[int]) -> str:
    return 'unknown' if objects_left is None else str(objects_left)


def connect(request: WorkerRequest) -> 'Connection':
    # Only here librados is needed in this process.
    from .worker.connection import Connection
    return Connection(request, {'rados_osd_op_timeout': str(MEETING_OPERATION_SECONDS)})


def _connect_and_check(request: WorkerRequest, budget: Budget,
                       args: argparse.Namespace) -> Optional['Connection']:
    """Connect to the cluster, and check its health, its free space and the quota of the pool. None:
    it should not or cannot be probed now, and the reasons were printed. `budget`: of one host."""
    hosts = args.hosts if args.join else 1
    budget_of_all = budget._replace(prefill_bytes=hosts * budget.prefill_bytes,
                                    stored_bytes=hosts * budget.stored_bytes,
                                    objects=hosts * budget.objects)
    try:
        cluster = connect(request)
        unwell = [] if args.force else _unwell(cluster.health())
        too_large = [*_over_space(budget_of_all, args.max_bytes, cluster.free_bytes()),
                     *over_quota(budget_of_all, *cluster.quota_left())]
    except Failed as error:
        say(str(error))
        return None
    if unwell:
        say('not measuring while %s (--force overrides)' % ', '.join(unwell))
    for text in too_large:
        say(text)
    return None if unwell or too_large else cluster


def _unwell(health: Mapping[str, str]) -> List[str]:
    """The health checks that prevent a probe, as texts."""
    return ['%s (%s)' % (health[code], code) for code in UNWELL if code in health]


def _over_space(budget: Budget, max_bytes: int, free_bytes: int) -> List[str]:
    """Why a run must not begin, because of the space that it takes. `budget`: of all hosts;
    `free_bytes`: what clients can write to the pool, each byte counted once."""
    texts = []
    if budget.stored_bytes > max_bytes:
        texts.append('the probe would store %s (limit %s, --max-bytes)' % (
            bytes_text(budget.stored_bytes), bytes_text(max_bytes)))
    if budget.prefill_bytes > SPACE_SHARE * free_bytes:
        texts.append('the probe would write %s, more than a quarter of the free space of the pool, '
                     '%s' % (bytes_text(budget.prefill_bytes), bytes_text(free_bytes)))
    return texts


def _clean(args: argparse.Namespace) -> int:
    """Remove the objects of a run that was killed (--clean). Returns the exit status."""
    objects_left = _run_sweep(_request(args, args.clean, SWEEP, CLIENT_LISTING_SECONDS))
    say('objects left: %s' % _number(objects_left))
    return 0 if objects_left == 0 else 1


def _jobs(args: argparse.Namespace) -> Tuple[Tuple[Job, ...], int, str]:
    """The jobs of the arguments, the number of repetitions, and the profile ('': none). Prints what
    fio would do differently. Raises BadArguments or BadJob."""
    words = {word: getattr(args, word) for word in WORDS if getattr(args, word) is not None}
    job_file = _read(args.job_file) if args.job_file else None
    jobs = parse_jobs(args.profile, words, job_file)
    for text in remarks(job_file):
        say(text)
    profile = profile_of(args.profile, words, job_file)
    repeat = args.repeat if args.repeat is not None else default_repeat(profile)
    if not 1 <= repeat <= MAX_REPEAT:
        raise BadArguments('--repeat %d: must be from 1 to %d' % (repeat, MAX_REPEAT))
    return jobs, repeat, profile


def _request(args: argparse.Namespace, run: int, mode: str, limit: float,
             jobs: Sequence[Job] = (), steps: Tuple[JobStep, ...] = ()) -> WorkerRequest:
    """The request to the worker: to measure the steps of `jobs` (RUN), or to remove what a run with
    unknown jobs has left (SWEEP): it lists the pool, and removes images as well. `limit`: seconds.
    """
    target = Target('pool', args.pool)
    return WorkerRequest(
        args.pool, run_prefix(run), args.name, _key(args), mon_host='', mode=mode, conf=args.conf,
        steps=steps, limit_seconds=limit, engine=args.engine, seed=run & 0x7fffffff,
        naming=naming_of(run, jobs, target, primaries=None, pool_id=-1, pg_num=0)
        if mode == RUN else None,
        removes_images=mode == SWEEP or jobs[0].ioengine == RBD)


def _key(args: argparse.Namespace) -> str:
    """The secret of the user, from the keyring. Raises BadArguments."""
    path = args.keyring or '/etc/ceph/ceph.%s.keyring' % args.name
    keyring = configparser.RawConfigParser(strict=False, delimiters=('=',))
    try:
        # Without the indentation that keyrings use, which configparser takes for continued lines.
        keyring.read_string('\n'.join(line.strip() for line in _read(path).splitlines()))
        return keyring.get(args.name, 'key')
    except configparser.Error:
        raise BadArguments('%s has no key of %s' % (path, args.name)) from None


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise BadArguments('%s: %s' % (path, getattr(error, 'strerror', None) or error)) from None


def _write(path: str, text: str, mode: str = 'w') -> None:
    """Write a text to a file; "-": standard output. Raises BadArguments."""
    if path == '-':
        print(text, end='', flush=True)
        return
    try:
        with open(path, mode) as file:
            file.write(text)
    except OSError as error:
        raise BadArguments('%s: %s' % (path, error.strerror)) from None


def _run_id(text: str) -> int:
    """Of a run of this program: the mgr removes the objects of its own probes."""
    run = int(text)
    if not FIRST_RUN <= run < LAST_RUN:
        raise argparse.ArgumentTypeError('%d is not the ID of a run of perfguard-probe' % run)
    return run


def _size(text: str) -> int:
    try:
        return parse_size('--max-bytes', text)
    except BadJob as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _meeting_name(text: str) -> str:
    if not re.fullmatch('[A-Za-z0-9_.-]{1,64}', text):
        raise argparse.ArgumentTypeError('%r: use up to 64 letters, digits and "_.-"' % text)
    return text


def _parser() -> argparse.ArgumentParser:
    """The arguments of perfguard-probe."""
    parser = argparse.ArgumentParser(
        prog='perfguard-probe', description='Measure a pool from this host. Prints JSON for '
        '"ceph perfguard probe import -i FILE". All objects are removed at the end.',
        epilog="The user needs: mon 'allow r' osd 'allow rw pool=POOL namespace=%s'." % NAMESPACE)
    parser.add_argument('profile', nargs='?', help='latency, iops, throughput, quick or curve')
    parser.add_argument('--pool', required=True)
    parser.add_argument('-n', '--name', default='client.admin', help='cephx user (client.admin)')
    parser.add_argument('-c', '--conf', default='/etc/ceph/ceph.conf')
    parser.add_argument('-k', '--keyring', help='default: /etc/ceph/ceph.NAME.keyring')
    parser.add_argument('-o', '--output', default='-', help='file for the JSON (standard output)')
    parser.add_argument('--job-file', help="jobs in fio's format")
    parser.add_argument('--repeat', type=int)
    parser.add_argument('--force', action='store_true',
                        help='measure even if PGs are degraded, operations slow or OSDs full')
    parser.add_argument('--max-bytes', type=_size, default=MAX_STORED_BYTES, metavar='SIZE',
                        help='maximum space that all hosts take, counting %d replicas (%s)' % (
                            REPLICAS, size_text(MAX_STORED_BYTES)))
    parser.add_argument('--engine', default='auto', choices=('auto', 'native', 'python'))
    parser.add_argument('--join', type=_meeting_name, metavar='NAME',
                        help='measure at the same time as the other hosts that join this name')
    parser.add_argument('--hosts', type=int, default=2, choices=range(2, MAX_HOSTS + 1),
                        metavar='N', help='number of hosts that join, with this one (2)')
    parser.add_argument('--clean', type=_run_id, metavar='RUN',
                        help='remove the objects %sRUN-* of a run that was killed' % PROBE_PREFIX)
    for word in WORDS:
        parser.add_argument('--' + word, help=WORDS[word].help.replace('%', '%%'))
    return parser


if __name__ == '__main__':
    sys.exit(main())
