# SPDX-License-Identifier: LGPL-2.1-or-later
"""One run of a probe at work: from its first command until the last trace of it is gone.

Fed every turn and never waiting for the worker or an OSD. Whatever it makes on the cluster is
journalled first (probe/site.py); a run of which only that is left, because the mgr that began it
is gone, is cleaned up in the same way.
"""
import errno
import json
import logging
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from .cluster.ports import Cluster, View
from .cluster.process import Child
from .cluster.types import Pool, Signals
from .probe import site as sites
from .probe.history import ABORTED, CLEANING, FAILED, PREPARING, RUNNING
from .probe.safety import met
from .probe.site import Site
from .probe.types import PREFIX, BadJob, Counted, Step, StepResult
from .probe.wire import RUN, SWEEP, Request, request_to_json, step_result_from_json
from .probe.worker import argv

log = logging.getLogger(__name__)

Json = Dict[str, Any]

#: Seconds until an own pool must be active+clean.
POOL_SECONDS = 60.0
#: Seconds over its limit after which a worker that does not end by itself is killed.
GRACE_SECONDS = 2.0
#: Seconds for one sweep, and between two. Where another mgr may have left a worker, two sweeps
#: that find nothing must lie further apart than that worker takes to notice that it is alone.
SWEEP_SECONDS = 20.0
SWEEP_PAUSE_SECONDS = 5.0
ORPHAN_SECONDS = 12.0
#: Seconds after which a worker that was told to end is killed: it takes some 10 to clean up.
CANCEL_SECONDS = 20.0
#: Between two attempts at something that the mons refuse: from the first of these, twice as long
#: each time, up to the second.
LEAST_PAUSE_SECONDS, MOST_PAUSE_SECONDS = 1.0, 60.0
#: Seconds that the OSDs' counters are waited for.
COUNTERS_SECONDS = 5.0
COUNTERS = 'probe counters'


@dataclass(frozen=True)
class Plan:
    """What a run is to do, once it knows where the PGs are."""
    #: Steps of a pool: (pool, PG -> OSD that leads it) -> steps; raises BadJob.
    steps: Callable[[Pool, Mapping[str, int]], Tuple[Step, ...]]
    #: OSDs whose counters shall prove that the operations went there.
    osds: Tuple[int, ...]
    #: For the whole of the worker.
    limit_seconds: float
    engine: str
    replicas: int
    pg_num: int


class ProbeRun:
    def __init__(self, cluster: Cluster, keep: Callable[[Optional[Site]], None], site: Site,
                 plan: Optional[Plan], now: float) -> None:
        """Without a plan: only what an earlier mgr has left is cleaned up."""
        self._cluster = cluster
        self._keep = keep
        self._plan = plan
        self.site = site
        self._since = now
        self._key = ''
        self._child: Optional[Child] = None
        self._sweeping = False
        #: Nothing of the run's own worker is left: it has said so, or never began.
        self._clean = plan is not None
        self._worked = False
        #: When the worker was told to end.
        self._cancelled_at: Optional[float] = None
        self._cancel = False
        #: When sweeps in a row have found nothing, and how much the last one removed.
        self._swept: List[float] = []
        self._removed = 0
        self._next_sweep = 0.0
        #: Why objects could not be removed yet, in words.
        self._hindrance = ''
        self._counters: Dict[str, Dict[int, Json]] = {}
        self._asked_at: Optional[float] = None
        self._asked: Set[int] = set()
        #: When cleaning up goes on, and how long it paused the last time.
        self._again_at, self._pause = 0.0, 0.0
        self._hindered = False
        # ---- what came of it
        self.steps: Tuple[Step, ...] = ()
        self.results: Dict[int, StepResult] = {}
        self.step, self.step_state = 0, ''
        self.started: Optional[float] = None
        #: "", or why it did not come to its end: state and words.
        self.outcome, self.message = ('', '') if plan is not None else (
            FAILED, 'the mgr that began it is gone')
        self.met: Dict[str, None] = {}
        self.finished = False

    # ---- from outside

    def end(self, outcome: str, message: str) -> None:
        """Have it stop and clean up; the first reason counts."""
        if not self.outcome:
            self.outcome, self.message = outcome, message
        if self._child is not None and not self._sweeping:
            if not self._cancel:
                self._child.send({'cancel': message})
            self._cancel = True
        elif self.site.stage != RUNNING:
            self._stage(CLEANING)

    def turn(self, now: float, view: View, signals: Signals, reasons: Sequence[str]) -> None:
        """`reasons`: why no probe may go on, in words."""
        if reasons and self.site.stage == RUNNING:
            self.end(ABORTED, reasons[0])
        for text in met(signals):
            self.met[text] = None
        if self.site.stage == PREPARING:
            self._prepare(now, view, signals, reasons)
        if self.site.stage == RUNNING:
            self._follow(now)
        if self.site.stage == CLEANING and not 0.0 < self._again_at - now <= MOST_PAUSE_SECONDS:
            self._try_to_clean_up(now, view)

    def _try_to_clean_up(self, now: float, view: View) -> None:
        """The longer something has been in its way, the more rarely."""
        pause = min(max(2 * self._pause, LEAST_PAUSE_SECONDS), MOST_PAUSE_SECONDS)
        # In case that this raises.
        self._hindered, self._again_at = False, now + pause
        self._clean_up(now, view)
        self._pause = pause if self._hindered else 0.0
        self._again_at = now + self._pause

    def close(self) -> None:
        """The module is being stopped: leave as little as possible to the next start."""
        if self._child is not None:
            # One that takes longer to remove its objects ends by itself: nobody else may be left
            # to do it.
            self._child.hang_up()
            self._child.wait(GRACE_SECONDS)
            self._child.close()
        if not self.site.user:
            return
        # The journal stays, so that the next start sees to what the mons do not do in time.
        if self.site.own and not self._remove_pool():
            self._remove_pool()
        self._cluster.run([sites.remove_user_command(self.site)])
        self._restored()

    # ---- preparing

    def _prepare(self, now: float, view: View, signals: Signals,
                 reasons: Sequence[str]) -> None:
        assert self._plan is not None
        if not self.site.user:
            if self.site.own and pool_named(view, self.site.pool) is not None:
                # Whoever made it, it is not the run's to remove.
                self.site = replace(self.site, own=False)
                self._fail('there is a pool %s, which no probe has made' % self.site.pool)
                return
            self._note(user=True)
            if self.site.own and not self._make_pool() or not self._make_user():
                return
        pool = pool_named(view, self.site.pool)
        counts = signals.pool_counts.get(pool.id) if pool is not None else None
        if pool is None or self.site.own and (
                counts is None or counts.active_clean < pool.pg_num):
            if now - self._since > POOL_SECONDS:
                self._fail('pool %s is not active+clean after %d s'
                           % (self.site.pool, POOL_SECONDS))
            return
        if not self._counted('before', now):
            return
        if reasons:
            # Not before: PGs of a new pool are no trouble until they have peered.
            self.end(ABORTED, reasons[0])
            return
        try:
            self.steps = self._plan.steps(pool, view.leads(pool.id))
        except BadJob as error:
            self._fail(str(error))
            return
        limit = self._plan.limit_seconds
        self._note(stage=RUNNING, pool_id=pool.id, worker_ends=now + limit + GRACE_SECONDS)
        self.started = now
        self._start(self._request(RUN, limit))

    def _make_pool(self) -> bool:
        assert self._plan is not None
        for command in sites.pool_commands(self.site, self._plan.replicas, self._plan.pg_num):
            if command.get('yes_i_really_mean_it') and not self._allow(sites.SIZE_ONE_OPTION):
                self._fail('the mons do not take %s' % sites.SIZE_ONE_OPTION)
                return False
            reply = self._cluster.run([command])[0]
            if 'already exists' in reply.error:
                # Somebody has made it just now; the mons take that for success.
                self._note(own=False)
            if reply.retval != 0 or not self.site.own:
                self._fail('%s: %s' % (command['prefix'], reply.error))
                return False
        # Not for longer than it takes.
        self._restored()
        return True

    def _make_user(self) -> bool:
        reply = self._cluster.run([sites.user_command(self.site)])[0]
        if reply.retval != 0:
            self._fail('auth get-or-create: %s' % reply.error)
            return False
        self._key = str(json.loads(reply.out)[0]['key'])
        return True

    def _allow(self, option: str) -> bool:
        """Set an option of the mons for a moment; False: they did not."""
        if option not in self.site.allowed:
            entries = self._cluster.config_entries()
            if entries is None:
                self._hinder('config dump: no answer')
                return False
            self._note(allowed={**self.site.allowed, option: sites.in_force(entries, option)})
        return self._done(sites.allow_command(option))

    def _counted(self, when: str, now: float) -> bool:
        """Whether the OSDs have told their counters, or need not be waited for any more."""
        osds = self._plan.osds if self._plan is not None else ()
        known = self._counters.setdefault(when, {})
        if self._asked_at is None:
            self._asked_at = now
            self._cluster.answers(COUNTERS)
            # An answer that is owed from before would tell of then.
            self._asked = set(osds) - self._cluster.asked(COUNTERS)
            self._cluster.ask(COUNTERS, sorted(self._asked),
                              {'prefix': 'perf dump', 'logger': 'osd'})
        known.update({osd: answer for osd, answer in self._cluster.answers(COUNTERS).items()
                      if osd in self._asked and isinstance(answer, dict)})
        if self._asked <= set(known) or now - self._asked_at > COUNTERS_SECONDS:
            self._asked_at = None
            return True
        return False

    # ---- running

    def _start(self, request: Request) -> None:
        try:
            self._child = Child(argv())
        except OSError as error:
            self._fail('the worker cannot be started: %s' % error)
            self._hinder('the worker cannot be started: %s' % error)
            return
        self._clean = False
        self._child.send(request_to_json(request))

    def _request(self, mode: str, limit_seconds: float) -> Request:
        conf, hosts = self._cluster.connection()
        running = mode == RUN
        return Request(
            self.site.pool, self.site.prefix if running else PREFIX, self.site.entity, self._key,
            hosts, mode, conf, steps=self.steps if running else (), limit_seconds=limit_seconds,
            engine=self._plan.engine if self._plan is not None else 'auto', seed=self.site.run)

    def _follow(self, now: float) -> None:
        child = self._child
        if child is None:
            self._stage(CLEANING)
            return
        status = child.ended()
        self._listen(child)
        if status is None:
            if self._cancel and self._cancelled_at is None:
                self._cancelled_at = now
            cancelled_at = self.site.worker_ends if self._cancelled_at is None \
                else self._cancelled_at + CANCEL_SECONDS
            if now > min(self.site.worker_ends, cancelled_at) + GRACE_SECONDS:
                self._fail('the worker did not end in time and was killed')
                child.kill()
            return
        if status != 0 and not self.outcome:
            self.outcome = FAILED
            self.message = child.last_words or 'the worker ended with status %d' % status
        if len(self.results) < len(self.steps) and not self.outcome:
            self.outcome, self.message = FAILED, 'the time was over before all steps were'
        child.close()
        self._child = None
        self._since = now
        self._stage(CLEANING)

    def _listen(self, child: Child) -> None:
        for line in child.lines():
            try:
                self._take(line)
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                log.warning('probe %d: a line of its worker makes no sense: %r: %.200s',
                            self.site.run, error, line)

    def _take(self, line: Mapping[str, Any]) -> None:
        kind = line.get('type')
        if kind == 'step':
            self._worked = True
            self.step, self.step_state = self._index(line), str(line['state'])
        elif kind == 'result':
            self._take_result(self._index(line), line)
        elif kind == 'end' and not self._worked and not self._sweeping:
            # In good order, and no step was begun: it has written nothing.
            self._clean = True
        elif kind == 'cleaned':
            self._clean = line['left'] == 0
            self._hindrance = '' if self._clean else (
                '%d objects could not be removed yet' % line['left'])
            if self._sweeping:
                self._removed = int(line['removed'])
        elif kind == 'error' and self._sweeping:
            self._hindrance = str(line['message'])
        elif kind == 'error' and not self.outcome:
            self.outcome, self.message = FAILED, str(line['message'])

    def _index(self, line: Mapping[str, Any]) -> int:
        index = int(line['index'])
        if not 0 <= index < len(self.steps):
            raise ValueError('there is no step %d' % index)
        return index

    def _take_result(self, index: int, line: Mapping[str, Any]) -> None:
        result = step_result_from_json(dict(line))
        if len(result.streams) != len(self.steps[index].streams):
            raise ValueError('%d streams' % len(result.streams))
        self.results[index] = result

    # ---- cleaning up

    def _hinder(self, text: str) -> None:
        self._hindrance, self._hindered = text, True

    def _done(self, command: Json) -> bool:
        reply = self._cluster.run([command])[0]
        if reply.retval not in (0, -errno.ENOENT):
            self._hinder('%s: %s' % (command['prefix'], reply.error or 'no answer'))
            return False
        return True

    def _clean_up(self, now: float, view: View) -> None:
        if not self._counted_after(now):
            return
        # It is noted before anything is made, so without it there is nothing.
        if self.site.user:
            if not self._emptied(now, view):
                return
            if not self._done(sites.remove_user_command(self.site)):
                return
            self._note(user=False)
        # What it ended with is kept before the journal goes.
        self.finished = self._restored()

    def _emptied(self, now: float, view: View) -> bool:
        """Whether neither its own pool nor an object is left."""
        self._follow_rename(view)
        if self.site.own:
            return self._remove_pool()
        if pool_named(view, self.site.pool) is not None:
            return self._swept_clean(now)
        if self._child is not None:
            self._child.kill()
            self._child.wait(GRACE_SECONDS)
            self._child.close()
            self._child = None
        return True

    def _follow_rename(self, view: View) -> None:
        """The operator may have renamed the pool; the user has no right under the new name."""
        pool = view.osdmap.pools.get(self.site.pool_id)
        if pool is not None and pool.name != self.site.pool:
            self._key = ''
            self._cluster.run([sites.remove_user_command(self.site)])
            self._note(pool=pool.name)

    def _counted_after(self, now: float) -> bool:
        if self._plan is None or not self.results or 'done' in self._counters:
            return True
        if not self._counted('after', now):
            return False
        self._counters['done'] = {}
        return True

    def _remove_pool(self) -> bool:
        """What the mons say counts: this mgr's OSDMap need not show yet what was just made."""
        command = sites.remove_pool_command(self.site)
        if sites.DELETE_OPTION in self.site.allowed:
            return self._allow(sites.DELETE_OPTION) and self._removed_at_last(command)
        reply = self._cluster.run([command])[0]
        if reply.retval not in (-errno.EPERM, -errno.EBUSY):
            return reply.retval in (0, -errno.ENOENT) or self._done(command)
        # Mons do not delete pools unless they are told that they may.
        self._allow(sites.DELETE_OPTION)
        return False

    def _removed_at_last(self, command: Json) -> bool:
        """Where the mons refuse even so, it is their ceph.conf that wins over the database."""
        reply = self._cluster.run([command])[0]
        if reply.retval == -errno.EPERM:
            self._hinder('osd pool rm: the mons do not delete pools, whatever the configuration '
                         'database says: ceph tell mon.* config set %s true' % sites.DELETE_OPTION)
            return False
        return reply.retval in (0, -errno.ENOENT) or self._done(command)

    def _restored(self) -> bool:
        """Give back what the operator has not set anew meanwhile."""
        if not self.site.allowed:
            return True
        entries = self._cluster.config_entries()
        if entries is None:
            self._hinder('config dump: no answer')
            return False
        for option, before in self.site.allowed.items():
            ours = sites.in_force(entries, option) == sites.ALLOWED and before != sites.ALLOWED
            if ours and not self._done(sites.restore_command(option, before)):
                return False
        self._note(allowed={})
        return True

    def _swept_clean(self, now: float) -> bool:
        """Whether no object of this run, or of an earlier one, is left in the operator's pool."""
        orphan = self._plan is None
        if self._clean and not orphan and not self._sweeping:
            return True
        if self._child is not None:
            self._follow_sweep(now)
        if self._child is None and now >= self._next_sweep:
            if self._swept and (not orphan or self._swept[-1] - self._swept[0] > ORPHAN_SECONDS):
                return True
            if not self._key and not self._make_user():
                # Its rights are not what they were; the next turn makes it anew.
                self._cluster.run([sites.remove_user_command(self.site)])
                return False
            self._sweeping, self._clean, self._removed = True, False, -1
            self._next_sweep = now + SWEEP_PAUSE_SECONDS
            self._start(self._request(SWEEP, SWEEP_SECONDS))
        return False

    def _follow_sweep(self, now: float) -> None:
        child = self._child
        assert child is not None
        status = child.ended()
        self._listen(child)
        if status is None:
            if now > self._next_sweep + SWEEP_SECONDS + GRACE_SECONDS:
                child.kill()
            return
        if not self._clean:
            log.warning('probe %d: sweep: %s', self.site.run,
                        self._hindrance or child.last_words or status)
            self._swept = []
            # The user may have been removed by hand.
            self._key = ''
        elif self._removed:
            # What was on its way when its worker died may come after it.
            self._swept = []
        else:
            self._swept.append(now)
        child.close()
        self._child = None

    # ---- what came of it

    @property
    def total(self) -> int:
        return len(self.steps)

    @property
    def share(self) -> float:
        return len(self.results) / self.total if self.total else 0.0

    @property
    def state(self) -> str:
        return self.site.stage

    @property
    def text(self) -> str:
        """How far it is, in words."""
        if self.outcome and self.site.stage == RUNNING:
            return 'stopping: ' + self.message
        if self.site.stage != RUNNING or not self.steps:
            return self.site.stage + (': ' + self._hindrance if self._hindrance else '')
        step = self.steps[self.step]
        return 'step %d of %d (%s), %s' % (
            self.step + 1, self.total, ' '.join([step.job.name] + [
                stream.name for stream in step.streams[:1] if stream.osd is not None]),
            self.step_state)

    def in_order(self) -> Tuple[StepResult, ...]:
        """Of the first steps, as many as came to an end."""
        found: List[StepResult] = []
        while len(found) in self.results:
            found.append(self.results[len(found)])
        return tuple(found)

    def counted(self) -> Tuple[Counted, ...]:
        """What the OSDs counted of clients while the run went on."""
        before, after = self._counters.get('before', {}), self._counters.get('after', {})
        found: List[Counted] = []
        for osd in sorted(set(before) & set(after)):
            then, now = before[osd].get('osd', {}), after[osd].get('osd', {})
            reads, writes = (int(now.get(name, 0)) - int(then.get(name, 0))
                             for name in ('op_r', 'op_w'))
            if min(reads, writes) >= 0:  # else it has been started anew
                found.append(Counted(osd, reads, writes))
        return tuple(found)

    # ---- the journal

    def _fail(self, message: str) -> None:
        if not self.outcome:
            self.outcome, self.message = FAILED, message
        if self.site.stage == PREPARING or self._child is None:
            self._stage(CLEANING)

    def _stage(self, stage: str) -> None:
        if self.site.stage != stage:
            self._note(stage=stage)

    def _note(self, **changes: Any) -> None:
        self.site = replace(self.site, **changes)
        self._keep(self.site)


def pool_named(view: View, name: str) -> Optional[Pool]:
    return next((pool for pool in view.osdmap.pools.values() if pool.name == name), None)
