# SPDX-License-Identifier: LGPL-2.1-or-later
"""Carries out one run of a probe: from its first command until it has removed everything.

A run advances once per turn and never waits for the worker or an OSD. Everything that it creates on
the cluster is journalled first (resources.py). A run of an earlier mgr is cleaned up in the same
way.
"""
import logging
from functools import partial
from typing import (AbstractSet, Any, Callable, Dict, Hashable, List, Mapping, Optional, Sequence,
                    Set, Tuple)

from ..cluster.ports import Cluster, Commander, View
from ..cluster.tool_thread import ToolJob, ToolThread
from ..cluster.types import NO_OSD, Pool, Signals
from ..observation import Observation
from ..watch.stop_conditions import NOTHING, Touched
from .child import KILLED_SECONDS, Child
from .limits import disturbances, limit_seconds
from .orders import MORE_PGS, CheckedRun
from .placement import Naming, names_seconds
from .records import ABORTED, CLEANING, FAILED, PREPARING, RUNNING
from .resources import (NOT_KEPT, CannotMake, ResourceManager, RunResources, SweepPart, Sweeps,
                        leftovers, pool_named)
from .types import BadJob, Counted, JobStep, StepResult
from .worker import argv
from .worker.protocol import ALIVE, RUN, SWEEP, WorkerRequest, request_to_json, step_result

log = logging.getLogger(__name__)

#: Seconds until an own pool must be active+clean.
POOL_SECONDS = 60.0
#: Seconds over its limit after which a worker is killed.
GRACE_SECONDS = 2.0
#: Seconds for one sweep, after it has found the names of the objects.
SWEEP_SECONDS = 20.0
#: Seconds after which a cancelled worker is killed: it takes about 10 to clean up.
CANCEL_SECONDS = 20.0
#: Interval at which a worker is told that this mgr is still the active one, and the minimum time
#: without this, in seconds and as a multiple of the interval of the loop, after which it ends: the
#: worker of an mgr that hangs or was replaced must not load the cluster until its limit.
ALIVE_SECONDS, SILENCE_SECONDS, SILENCE_INTERVALS = 30.0, 120.0, 4.0
#: Pause after an attempt that the mons refuse: it doubles from the minimum to the maximum.
LEAST_REFUSED_PAUSE_SECONDS, MOST_REFUSED_PAUSE_SECONDS = 1.0, 60.0
#: Number of OSDs that are loaded at a time, up to which their PGs are looked up one by one.
FEW_OSDS = 3
#: Number of OSDs that are asked for their counters at a time: each answers with a few kB, which the
#: mgr parses. Seconds to wait for the answer of one.
COUNTED_AT_ONCE = 64
PROBE_PATIENCE_SECONDS = 5.0
TOPIC = 'probe counters'
BEFORE, AFTER = 'before', 'after'


class ProbeRun:
    """One run: PREPARING, RUNNING, CLEANING, and then its end, which `finished` shows.

    Private methods take `now` as seconds since the run began, public ones as seconds since the
    epoch, as the dates in the record and the journal are.
    """

    def __init__(self, cluster: Cluster, keep: Callable[[RunResources], bool],
                 resources: RunResources, checked: Optional[CheckedRun], now: float,
                 tools: ToolThread, is_active: Callable[[], bool]) -> None:
        """`keep`: stores the resources in the journal, and returns whether the mons have stored
        that. `checked`: the order; None: the run only completes the clean-up of an earlier mgr.
        `is_active`: whether this mgr still is the active one."""
        self._cluster = cluster
        self._is_active = is_active
        self._tools = tools
        self._naming: Optional[ToolJob[Naming]] = None
        #: PG -> the probed OSD that led it when the run placed objects there; empty if no OSDs are
        #: probed one by one. And pg_num of the pool.
        self._primaries: Mapping[str, int] = {}
        self._pg_num = 0
        #: What determined primaries when they were last read, the job that reads them again (None:
        #: none runs), and a PG that has another one ('': none is known).
        self._primaries_basis: object = None
        self._primaries_job: Optional[ToolJob[Mapping[str, int]]] = None
        self._moved_pg = ''
        self._manager = ResourceManager(cluster, keep, resources, checked is None)
        self._op_counters = OpCounters(cluster, checked.counted_osds if checked is not None else ())
        self._checked = checked
        #: Seconds since the epoch, as `started`; all other times are seconds since the run began.
        #: When the run began here, and the time of the last turn.
        self._began = self._now = now
        #: When the worker must have ended, and when it has to hear of this mgr.
        self._ends_at, self._alive_at = 0.0, 0.0
        #: Interval of the loop, in seconds.
        self._interval = 0.0
        self._child: Optional[Child] = None
        self._sweeping = False
        #: The worker of this run has removed its objects, or wrote none.
        self._worker_left_nothing = checked is not None
        self._step_began = False
        #: When `_follow_worker` found that the worker was cancelled; None: it was not.
        self._cancelled_at: Optional[float] = None
        self._cancel_sent = False
        self._sweeps = Sweeps(orphan=checked is None, cursor=resources.cursor)
        #: The result of the last sweep; None: it has returned none yet.
        self._sweep_result: Optional[SweepPart] = None
        #: When the last sweep must have ended.
        self._sweep_ends = 0.0
        #: When the clean-up continues, and the length of its last pause; 0.0: none.
        self._clean_up_at, self._pause = 0.0, 0.0
        # ---- Results
        self.steps: Tuple[JobStep, ...] = ()
        self.results: Dict[int, StepResult] = {}
        #: Index of the step that began last, and its state in the worker's words; '': none began.
        self.step, self.step_state = 0, ''
        #: Steps that have begun since the last call of `loads`; the basis and the result of the
        #: last call that had to look them up.
        self._steps_begun: Set[int] = set()
        self._loads_cache: Tuple[object, Touched] = (None, NOTHING)
        #: When the worker was started; None: not yet.
        self.started: Optional[float] = None
        #: State and reason of a run that did not complete; '' otherwise.
        self.outcome, self.message = ('', '') if checked is not None else (
            FAILED, 'the mgr that began the probe failed or stopped')
        self.disturbed_by: Dict[str, None] = {}
        self.finished = False

    @property
    def resources(self) -> RunResources:
        """The resources of the run in the cluster."""
        return self._manager.resources

    # ---- Control

    def end(self, outcome: str, message: str) -> None:
        """Let the worker stop, or begin the clean-up if none runs. `outcome`: the final state;
        `message`: its reason. Those of the first call count."""
        if not self.outcome:
            self.outcome, self.message = outcome, message
        if self._child is not None and not self._sweeping:
            if not self._cancel_sent:
                self._child.send({'cancel': message})
            self._cancel_sent = True
        elif self.resources.stage != RUNNING:  # else the next turn sees that no worker is left
            self._begin_cleaning()

    def turn(self, now: float, view: View, signals: Signals, reasons: Sequence[str],
             interval: float) -> None:
        """Run one turn of the stage in which the run is. `reasons`: why no probe may continue;
        `interval`: of the loop, in seconds."""
        seconds, self._now = now - self._began, now
        self._interval = interval
        if reasons and self.resources.stage == RUNNING:
            self.end(ABORTED, reasons[0])
        if self.resources.stage != CLEANING:  # where the run itself unsets them
            self._manager.follow_flags(view)
        for text in disturbances(signals):
            self.disturbed_by[text] = None
        if self.resources.stage == PREPARING:
            self._prepare(seconds, view, signals, reasons)
        if self.resources.stage == RUNNING:
            self._follow_worker(seconds)
        if self.resources.stage == CLEANING and seconds >= self._clean_up_at:
            self._try_to_clean_up(seconds, view)

    def displaced(self, view: View) -> str:
        """Why the objects of the probed OSDs are no longer on them, as a text: a PG has another
        primary, or pg_num has changed. '': neither is known, or no OSDs are probed one by one."""
        pool = view.osdmap.pools.get(self.resources.pool_id)
        if pool is None or not self._primaries:
            return ''
        if pool.pg_num != self._pg_num:
            return 'pg_num of pool %s has changed' % pool.name
        osdmap = view.osdmap
        overrides = frozenset((pgid, pgids[pgid]) for pgids in (
            osdmap.upmap_items, osdmap.upmap_vectors, osdmap.upmap_primaries, osdmap.pg_temp)
            for pgid in self._primaries.keys() & pgids.keys())
        if not pool.erasure:
            # The first OSD of a PG leads it, so these few PGs can be compared at once.
            for pgid, _ in overrides:
                place = view.placement(pgid)
                if place is not None and place.acting[:1] != (self._primaries[pgid],):
                    self._moved_pg = pgid
        self._compare_primaries(view, pool, overrides)
        return 'PG %s of the pool is no longer led by osd.%d' % (
            self._moved_pg, self._primaries[self._moved_pg]) if self._moved_pg else ''

    def _compare_primaries(self, view: View, pool: Pool, overrides: Hashable) -> None:
        """Note a PG whose primary has changed. All primaries are read in the tool thread, each time
        that something has changed that determines them. `overrides`: what the OSDMap sets for
        single PGs."""
        basis = view.crush_version, view.osdmap.osds, pool, overrides
        if self._primaries_job is None and basis != self._primaries_basis:
            self._primaries_basis = basis
            self._primaries_job = self._tools.submit(partial(view.primaries, pool.id), first=True)
        if self._primaries_job is not None and self._primaries_job.done:
            job, self._primaries_job = self._primaries_job, None
            primaries = job.result()
            self._moved_pg = next((pgid for pgid, osd in self._primaries.items()
                                   if primaries.get(pgid) != osd), self._moved_pg)

    def loads(self, observation: Observation) -> Touched:
        """The pool and the OSDs that the worker has loaded since the last call, loads now, and will
        load in the next step: it does not wait for the loop between two steps. NOTHING: the worker
        has measured nothing since, or its pool is gone."""
        begun, self._steps_begun = self._steps_begun, set()
        if self.resources.stage == RUNNING:
            begun |= {self.step, self.step + 1}
        pool = observation.osdmap.pools.get(self.resources.pool_id)
        basis = begun, observation.osdmap.epoch
        if not begun or pool is None:
            return NOTHING
        if self._loads_cache[0] != basis:
            steps = [step for index, step in enumerate(self.steps) if index in begun]
            self._loads_cache = basis, Touched(self._osds_of(steps, pool, observation), {pool.id})
        return self._loads_cache[1]

    def _osds_of(self, steps: Sequence[JobStep], pool: Pool,
                 observation: Observation) -> AbstractSet[int]:
        """The OSDs that the steps load: the probed ones, or all of the pool if none are chosen.
        Writes load all OSDs of a PG, and so do reads of an erasure-coded pool. The first repetition
        of a job counts as writing: it creates the objects that the job reads."""
        probed = {stream.osd for step in steps for stream in step.streams if stream.osd is not None}
        loads_whole_pgs = pool.erasure or any(
            step.job.writes or not step.repetition for step in steps)
        # To look up the PGs of many OSDs would take too long for the loop.
        if not probed or loads_whole_pgs and len(probed) > FEW_OSDS:
            return observation.osds_of([pool.id])[pool.id]
        places = [observation.placement(pgid) for pgid, osd in self._primaries.items()
                  if osd in probed] if loads_whole_pgs else []
        return probed.union(*(place.acting for place in places if place is not None)) - {NO_OSD}

    def _try_to_clean_up(self, now: float, view: View) -> None:
        """Continue the clean-up, with growing pauses while something prevents it."""
        pause = min(max(2 * self._pause, LEAST_REFUSED_PAUSE_SECONDS), MOST_REFUSED_PAUSE_SECONDS)
        # Set before the attempt, which may raise.
        self._manager.met_problem, self._clean_up_at = False, now + pause
        self._manager.now = now
        self._clean_up(now, view)
        if self._manager.met_problem:
            self._pause = pause
            return
        self._clean_up_at = now
        # While the deletion of pools is allowed, half of an attempt is done: if the other half, in
        # the next turn, fails, the pause doubles as well.
        if not self._manager.pool_delete_allowed:
            self._pause = 0.0

    def close(self) -> None:
        """The module stops: leave as little as possible to the next start."""
        if self._child is not None:
            # A worker that needs longer to remove its objects is not killed: no other process may
            # be able to remove them.
            self._child.hang_up()
            self._child.wait(GRACE_SECONDS)
            self._child.close()
        self._manager.close()

    # ---- Preparing

    def _prepare(self, now: float, view: View, signals: Signals,
                 reasons: Sequence[str]) -> None:
        """One turn before the worker runs: make the resources, wait until the pool is usable and
        the objects have names, then start the worker. `reasons`: why no probe may continue."""
        checked = self._checked
        assert checked is not None
        if not self.resources.user:
            try:
                self._manager.make(view, checked.target.replicas, checked.pg_num)
                if checked.order.hold_scrub:
                    self._manager.set_flags(view)
            except CannotMake as error:
                self._fail(str(error))
                return
        pool = self._usable_pool(view, signals)
        if pool is None:
            if now > POOL_SECONDS:
                self._fail('pool %s is not active+clean after %d s'
                           % (self.resources.pool, POOL_SECONDS))
            return
        if reasons:
            # Not earlier: PGs of a new pool that are still peering are no stop condition.
            self.end(ABORTED, reasons[0])
            return
        if not self._op_counters.collect(BEFORE, now):
            return
        if self._naming is None:
            # Primaries of all PGs: about 20 us per PG.
            self._naming = self._tools.submit(
                partial(checked.naming, self.resources.run, pool, view), first=True)
        if self._naming is None or not self._naming.done:
            return
        try:
            naming = self._naming.result()
        except BadJob as error:
            # The pool of a run has MOST_PROBE_PGS at most.
            self._fail('%s%s' % (error, MORE_PGS if self.resources.own else ''))
            return
        self._begin_measuring(now, checked, pool.id, naming)

    def _usable_pool(self, view: View, signals: Signals) -> Optional[Pool]:
        """The pool of the probe; None: it does not exist, or is the probe's own and not
        active+clean yet."""
        pool = pool_named(view, self.resources.pool)
        if pool is None or not self.resources.own:
            return pool
        counts = signals.pool_counts.get(pool.id)
        is_clean = counts is not None and counts.active_clean >= pool.pg_num
        return pool if is_clean else None

    def _begin_measuring(self, now: float, checked: CheckedRun, pool_id: int,
                         naming: Naming) -> None:
        """Journal what the worker will write, for the next mgr to remove, and start the worker.
        `now`: seconds since the run began; the journal and the record have dates (`_now`)."""
        self.steps = checked.steps()
        self._pg_num = naming.pg_num
        self._primaries = {'%d.%x' % (naming.pool_id, pg): osd
                           for osd, pgs in naming.led for pg in pgs}
        limit = limit_seconds(checked.budget)
        if not self._manager.journal(stage=RUNNING, pool_id=pool_id,
                                     worker_ends=self._now + limit + GRACE_SECONDS,
                                     naming=None if self.resources.own else naming):
            # The next mgr would not remove what the worker writes.
            self._fail(NOT_KEPT)
            return
        self.started, self._ends_at = self._now, now + limit + GRACE_SECONDS
        self._alive_at = now + ALIVE_SECONDS
        self._start_worker(self._request(RUN, limit, naming))

    # ---- Running

    def _start_worker(self, request: WorkerRequest) -> bool:
        """Start a worker and send it the request. Returns False if it cannot start: the run has
        failed, or its clean-up has a problem."""
        try:
            self._child = Child(argv())
        except OSError as error:
            self._fail('cannot start the worker: %s' % error)
            self._manager.report_problem('cannot start the worker: %s' % error)
            return False
        self._worker_left_nothing = False
        self._child.send(request_to_json(request))
        return True

    def _request(self, mode: str, limit: float, naming: Optional[Naming]) -> WorkerRequest:
        """The request to the worker: to measure all steps (RUN), or to remove what an earlier
        worker has left (SWEEP). `limit`: seconds; `naming`: of the objects; None: none is
        journalled, and a sweep lists the pool."""
        conf, hosts = self._cluster.connection()
        resources = self.resources
        return WorkerRequest(
            resources.pool, resources.prefix, resources.entity, self._manager.key, hosts, mode,
            conf, steps=self.steps if mode == RUN else (), limit_seconds=limit,
            silence_seconds=max(SILENCE_SECONDS, SILENCE_INTERVALS * self._interval),
            seed=resources.run, naming=naming, cursor=self._sweeps.cursor)

    def _follow_worker(self, now: float) -> None:
        """Follow the worker that measures until it has ended, and begin the clean-up then. A late
        worker is killed, and given up if that does not end it."""
        child = self._child
        if child is None:  # an error has prevented its start
            self._begin_cleaning()
            return
        status = child.ended(now)
        self._listen(child)
        if status is None:
            if now >= self._alive_at and self._is_active():
                child.send(ALIVE)
                self._alive_at = now + ALIVE_SECONDS
            if self._cancel_sent and self._cancelled_at is None:
                self._cancelled_at = now
            must_end_at = self._ends_at
            if self._cancelled_at is not None:
                must_end_at = min(must_end_at, self._cancelled_at + CANCEL_SECONDS)
            if now > must_end_at + GRACE_SECONDS:
                self._fail('the worker did not end in time and was killed')
                child.kill()
            if now <= must_end_at + GRACE_SECONDS + KILLED_SECONDS:
                return
        if status != 0 and not self.outcome:
            self.outcome, self.message = FAILED, child.why()
        if len(self.results) < len(self.steps) and not self.outcome:
            self.outcome, self.message = FAILED, 'the worker ended before all jobs were measured'
        child.close()
        self._child = None
        self._begin_cleaning()

    def _listen(self, child: Child) -> None:
        """Take in what the worker has written since the last call; lines that cannot be parsed are
        logged."""
        for line in child.lines():
            try:
                self._take(line)
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                log.warning('probe %d: cannot parse a line of its worker: %r: %.200s',
                            self.resources.run, error, line)

    def _take(self, line: Mapping[str, Any]) -> None:
        """Take in one line of the worker's output, be it one that measures or one that sweeps."""
        kind = line.get('type')
        if kind == 'step':
            self._step_began = True
            self.step, self.step_state = self._index(line), str(line['state'])
            self._steps_begun.add(self.step)
        elif kind == 'result':
            self._take_result(self._index(line), line)
        elif kind == 'end' and not self._step_began and not self._sweeping:
            # The worker ended regularly before the first step, so it has written nothing.
            self._worker_left_nothing = True
        elif kind == 'cleaned':
            self._worker_left_nothing = line['left'] == 0
            self._manager.problem = '' if self._worker_left_nothing else (
                'objects not removed yet: %d' % line['left'])
            if self._sweeping:
                self._sweep_result = SweepPart(int(line['removed']), int(line['left']),
                                               int(line['cursor']), int(line['total']))
        elif kind == 'error' and self._sweeping:
            self._manager.problem = str(line['message'])
        elif kind == 'error' and not self.outcome:
            self.outcome, self.message = FAILED, str(line['message'])

    def _index(self, line: Mapping[str, Any]) -> int:
        """The step that a line is about. Raises ValueError if the run has no such step."""
        index = int(line['index'])
        if not 0 <= index < len(self.steps):
            raise ValueError('no step %d' % index)
        return index

    def _take_result(self, index: int, line: Mapping[str, Any]) -> None:
        result = step_result(line['result'])
        if len(result.streams) != len(self.steps[index].streams):
            raise ValueError('%d streams' % len(result.streams))
        self.results[index] = result

    # ---- Cleaning up

    def _clean_up(self, now: float, view: View) -> None:
        """Continue the clean-up: restore the flags, read the counters of OSDs, remove the pool or
        the objects, then the user, and restore the options of the mons. Sets `finished` when all
        that is done."""
        # First, because the rest may take long; restore_settings() tries again.
        self._manager.unset_flags()
        if self.results and not self._op_counters.collect(AFTER, now):
            return
        # The user is journalled before anything is created: without it, nothing was.
        if self.resources.user and not (
                self._remove_data(now, view) and self._manager.remove_user()):
            return
        self.finished = self._manager.restore_settings()

    def _remove_data(self, now: float, view: View) -> bool:
        """Remove the run's own pool, or its objects from the operator's pool, in several calls.
        Returns whether they are gone, which they also are if the operator has removed the pool."""
        self._manager.follow_rename(view)
        if self.resources.own:
            return self._manager.remove_pool()
        if pool_named(view, self.resources.pool) is not None:
            return self._sweep_pool(now)
        self._drop_child()
        return True

    def _sweep_pool(self, now: float) -> bool:
        """Remove the objects of this run from the operator's pool, in several calls, if its worker
        has not done so. Returns whether none is left, and none can appear anymore (Sweeps.done).
        `now`: seconds since the run began."""
        worker_cleaned_up = self._worker_left_nothing and not self._sweeping
        if worker_cleaned_up or not self.resources.worker_ends:  # 0: no worker was started
            return True
        if self._child is not None:
            self._follow_sweep(now)
        if self._sweeps.done:
            return True
        if self._child is None and self._sweeps.is_due(now):
            self._start_sweep(now)
        return False

    def _start_sweep(self, now: float) -> None:
        """Start a worker that only removes objects."""
        # The key is unknown if another mgr began the run, and forgotten after a failed sweep.
        if not self._manager.key and not self._ensure_user():
            return
        naming = self.resources.naming
        # A sweep whose time ends before it has all names would never remove one.
        limit = SWEEP_SECONDS + (names_seconds(naming) if naming is not None else 0.0)
        self._sweeping, self._sweep_result = True, None
        self._sweep_ends = now + limit + 2 * GRACE_SECONDS
        if not self._start_worker(self._request(SWEEP, limit, naming)):
            self._sweeps.note_failure(now)

    def _ensure_user(self) -> bool:
        """Create the user of the worker, or fetch its key if it exists. Returns whether this has
        succeeded."""
        try:
            self._manager.make_user()
        except CannotMake as error:
            # The mons refuse it if its capabilities have changed; the next turn creates it again.
            self._manager.report_problem(str(error))
            self._manager.drop_user()
            return False
        return True

    def _follow_sweep(self, now: float) -> None:
        """Follow a worker that only removes objects until it has ended."""
        child = self._child
        assert child is not None
        status = child.ended(now)
        self._listen(child)
        if status is None:
            if now > self._sweep_ends:
                child.kill()
            return
        if self._sweep_result is not None:
            self._sweeps.note_result(self._sweep_result, now)
        else:
            self._manager.problem = self._manager.problem or child.why()
            log.warning('probe %d: sweep: %s', self.resources.run, self._manager.problem)
            self._sweeps.note_failure(now)
            # An operator may have removed the user.
            self._manager.key = ''
        if self._sweeps.cursor != self.resources.cursor:
            self._manager.journal(cursor=self._sweeps.cursor)
        child.close()
        self._child = None

    def abandon(self) -> Tuple[str, ...]:
        """Give up the clean-up after one last attempt. Returns what remains on the cluster, as
        texts."""
        self._manager.journal(abandoned=True)
        self._drop_child()
        removed = []
        if self.resources.own and self._manager.remove_pool():
            removed.append('pool %s' % self.resources.pool)
        self._manager.restore_settings()
        if self.resources.user and self._manager.try_to_remove_user():
            removed.append(self.resources.entity)
        self.finished = True
        return tuple(leftover for leftover in leftovers(self.resources)
                     if leftover not in removed)

    def _drop_child(self) -> None:
        """Kill the worker, if one runs."""
        if self._child is not None:
            self._child.kill()
            self._child.wait(GRACE_SECONDS)
            self._child.close()
            self._child = None

    # ---- Results

    @property
    def total(self) -> int:
        """The number of steps; 0 before they are known."""
        return len(self.steps)

    @property
    def share(self) -> float:
        """The share of the steps that have a result, 0 to 1."""
        return len(self.results) / self.total if self.total else 0.0

    @property
    def state(self) -> str:
        """PREPARING, RUNNING or CLEANING."""
        return self.resources.stage

    @property
    def text(self) -> str:
        """The progress, or what prevents it, as a text."""
        if self.outcome and self.resources.stage == RUNNING:
            return 'stopping: ' + self.message
        if self.resources.stage != RUNNING or not self.steps:
            return ': '.join(filter(None, (self.resources.stage, self._manager.problem
                                           or self._op_counters.progress)))
        step = self.steps[self.step]
        return 'measurement %d of %d (%s), %s' % (
            self.step + 1, self.total, ' '.join([step.job.name] + [
                stream.name for stream in step.streams[:1] if stream.osd is not None]),
            self.step_state)

    def in_order(self) -> Tuple[StepResult, ...]:
        """Results of the steps from the first one on, up to one without a result."""
        results: List[StepResult] = []
        while len(results) in self.results:
            results.append(self.results[len(results)])
        return tuple(results)

    def counted(self) -> Tuple[Counted, ...]:
        """Client operations that the OSDs counted during the run."""
        return self._op_counters.counted()

    def _fail(self, message: str) -> None:
        """Note the failure, unless the run has an outcome, and begin the clean-up unless a worker
        runs that measures."""
        if not self.outcome:
            self.outcome, self.message = FAILED, message
        if self.resources.stage == PREPARING or self._child is None:
            self._begin_cleaning()

    def _begin_cleaning(self) -> None:
        if self.resources.stage != CLEANING:
            self._manager.journal(stage=CLEANING)


# ---- Counters of OSDs

class OpCounters:
    """Counts the client operations of OSDs during a run: a dump before it, and one after it."""

    def __init__(self, cluster: Commander, osds: Sequence[int]) -> None:
        self._cluster = cluster
        self._osds = frozenset(osds)
        self._counters: Dict[str, Dict[int, Counted]] = {BEFORE: {}, AFTER: {}}
        #: The OSDs that are asked for the present dump; those of them that are not asked yet, and
        #: when those whose answer is expected were asked, in seconds since the run began.
        self._chosen: Sequence[int] = ()
        self._not_asked: List[int] = []
        self._asked_at: Dict[int, float] = {}
        #: Which dump is being collected, BEFORE or AFTER; '': none yet.
        self._collecting = ''
        #: BEFORE, AFTER: which dumps are complete.
        self._collected: Set[str] = set()

    def collect(self, when: str, now: float) -> bool:
        """Ask the OSDs for their counters, some at a time, and take in the answers. To be called
        until it returns True: all have answered, or were given up after PROBE_PATIENCE_SECONDS.
        `when`: BEFORE or AFTER the measurements."""
        if when in self._collected:
            return True
        answers = self._cluster.answers(TOPIC)
        if self._collecting != when:
            # A late answer to an earlier request would have old values.
            self._collecting = when
            self._chosen = sorted(self._osds - self._cluster.asked(TOPIC))
            self._not_asked, self._asked_at = list(self._chosen), {}
        for osd in answers.keys() & self._asked_at.keys():
            del self._asked_at[osd]
            self._read(osd, answers[osd], self._counters[when])
        self._asked_at = {osd: asked_at for osd, asked_at in self._asked_at.items()
                          if now - asked_at <= PROBE_PATIENCE_SECONDS}
        self._ask(now)
        if self._asked_at:
            return False
        self._collected.add(when)
        return True

    @property
    def progress(self) -> str:
        """How many OSDs have answered in the present dump, as a text; '': all have been asked."""
        return 'counters of %d of %d OSDs' % (
            len(self._counters[self._collecting]), len(self._chosen)) if self._not_asked else ''

    def _read(self, osd: int, answer: Any, counters_by_osd: Dict[int, Counted]) -> None:
        """Take in the counters of an OSD; invalid ones are logged."""
        try:
            counters = answer.get('osd', {})
            counters_by_osd[osd] = Counted(
                osd, int(counters.get('op_r', 0)), int(counters.get('op_w', 0)),
                _sum_ns(counters, 'op_r_latency'), _sum_ns(counters, 'op_w_latency'))
        except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
            log.warning('osd.%d: cannot read its counters: %r', osd, error)

    def _ask(self, now: float) -> None:
        """Ask the next OSDs for their counters: COUNTED_AT_ONCE at a time."""
        free_places = COUNTED_AT_ONCE - len(self._asked_at)
        osds, self._not_asked = self._not_asked[:free_places], self._not_asked[free_places:]
        if osds:
            self._asked_at.update(dict.fromkeys(osds, now))
            self._cluster.ask(TOPIC, osds, {'prefix': 'perf dump', 'logger': 'osd'})

    def counted(self) -> Tuple[Counted, ...]:
        """Client operations of each OSD between the two dumps; without OSDs that have not answered
        both, or were restarted between them."""
        before, after = self._counters[BEFORE], self._counters[AFTER]
        counts = []
        for osd in sorted(set(before) & set(after)):
            # Of all fields but the first, the OSD.
            differences = [now - then for now, then in zip(after[osd][1:], before[osd][1:])]
            if min(differences) >= 0:  # a restart sets the counters to 0
                counts.append(Counted(osd, *differences))
        return tuple(counts)


def _sum_ns(counters: Mapping[str, Any], name: str) -> int:
    """The sum of a latency counter, which Ceph gives in seconds, in ns."""
    return round(1e9 * float(counters.get(name, {}).get('sum', 0.0)))
