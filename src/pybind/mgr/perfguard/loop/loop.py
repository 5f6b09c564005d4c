# SPDX-License-Identifier: LGPL-2.1-or-later
"""The loop: observe, judge, act, publish. One turn at a time, in one thread.

Commands run in other threads. They read `published`, which is replaced whole at the end of each
turn, or leave a request in the queue.
"""
import errno
import logging
import threading
import time
from dataclasses import replace
from typing import Callable, Dict, List, Optional, Sequence, Tuple, Union

from .. import status as overview
from ..advise.controller import Advising
from ..advise.types import Advice
from ..cluster.ports import Cluster, View
from ..cluster.tool_thread import ToolThread
from ..errors import FailedTurns, Refused, idle_check, old_check, texts, too_old
from ..events import Event, EventLog
from ..holds import Row, to_json as held_to_json
from ..mitigation.controller import Mitigating, with_mitigation
from ..mitigation.ladder import KIND as MITIGATION
from ..mitigation.rescuing import Rescuing
from ..mitigation.types import Revert
from ..observation import Observation, Settings
from ..options import Options
from ..probe.archive import Archive, Database
from ..probe.controller import Probing
from ..probe.plan import RunOrder
from ..probe.report import Probed
from ..rebalance.controller import RebalanceController
from ..rebalance.report import CampaignStatus, progress_id, progress_share
from ..rebalance.requests import (check, problems, refuse_bad_options, refuse_bad_settings,
                                 Request)
from ..rebalance.throttle import FlightCap
from ..rebalance.types import Campaign
from ..requests import (AnsweredOrder, CLOSING, Json, Leaving, PendingOrder, Promised, Requests,
                       SAFE, losses, next_request, refuse)
from ..status import Published
from ..store import Journal, Store, found, found_earlier
from ..watch.checks import KINDS
from ..watch.controller import Watching
from ..watch.series import HistoryPoint
from ..why.controller import Explaining, LoopState

log = logging.getLogger(__name__)

#: Seconds between two turns at least.
REST_SECONDS = 0.2
#: Share of its time that the loop may compute.
BUSY_SHARE = 0.1
#: Kinds of events that are written to the cluster log as well.
LOGGED = frozenset({'phase', MITIGATION, *KINDS.values()})
#: A loop that has not turned for so many intervals hangs.
LATE_TURNS = 4.0


class Loop:
    """Conducts the jobs: watch, mitigation, rebalance and probes.

    1. Observe: the promises that wait, the OSDMap and what the OSDs report.
    2. Judge and act: watch and mitigation; promises and orders of operators; the campaign and
       the probe that are active. Each controller journals what it is about to do, reads it back,
       and does it.
    3. Publish: what commands, metrics and the page show, health checks, the progress event.
    """

    def __init__(self, cluster: Cluster, store: Store, options: Callable[[], Options],
                 clock: Callable[[], float] = time.time,
                 database: Optional[Database] = None,
                 remarks: Callable[[], Sequence[str]] = tuple,
                 tools: Optional[ToolThread] = None) -> None:
        """`remarks`: what else there is to say in the reasons of `status`."""
        self._cluster = cluster
        self._store = store
        self._options = options
        self._clock = clock
        self._remarks = remarks
        self._wake = threading.Event()
        self._resting = threading.Event()
        #: Held while `published` and the promises that wait change.
        self._publishing = threading.Lock()
        self.requests = Requests(store)
        self._events = EventLog(store)
        self._flight_cap = FlightCap()
        self.journal = Journal(cluster, store)
        #: Whether this mgr was found to own the journal in this turn; None: not asked yet.
        self._owns: Optional[bool] = None
        self.leaving = Leaving(store)
        self._tools = tools or ToolThread(self.wake)
        self.rebalance = RebalanceController(
            cluster, store, self._options_now, clock, self._tools, self._note, self._kept,
            self._may_write, self.leaving.reopen, self.requests.worked_out)
        self._watching = Watching(cluster, store, self._note)
        self._mitigating = Mitigating(cluster, store, self._note, self._kept)
        self._rescuing = Rescuing(cluster, store, self._note, self._kept)
        self._explaining = Explaining(cluster)
        self.probing = Probing(cluster, store, Archive(store, database), self._note,
                               self._tools, self._kept)
        self._advising = Advising(cluster, store)
        self.failed_turns = FailedTurns()
        #: Why this version must not act; '' for nothing.
        self._too_old = ''
        #: Health checks of the last turn that came to its end.
        self._checks: Json = {}
        #: CPU time of the last turn, but for the part that answering orders took.
        self._turn_seconds = self._answer_seconds = 0.0
        self.published = Published()

    # ---- for commands: other threads

    def request(self, promise: Union[Request, Revert], again: bool = False) -> Promised:
        """Queue a promise for the next turn; Refused if the last published state forbids it.

        Where the state has changed by then, the loop checks again, and notes the refusal; see
        Requests.confirm. `again`: after it was refused since the cluster was not fit.
        """
        self._refuse_too_early()
        checks: Dict[str, Callable[..., None]] = {
            Request.document: self._check, Revert.document: self._mitigating.check}
        checks[promise.document](promise)
        promised = self.requests.journal(promise, again)
        with self._publishing:
            self.requests.put(promised)
            self.published = self._foreseen(self.published, self._clock())
        self._wake.set()
        return promised

    def _refuse_too_early(self) -> None:
        """Raise Refused while there is no state to check a request against, or a stale one."""
        if self.journal.fenced:
            raise Refused(errno.EAGAIN, self.journal.failure)
        if self._too_old:
            raise Refused(errno.EPERM, self._too_old)
        if not self.published.turned:
            raise Refused(errno.EAGAIN, 'perfguard has just started: try again in a few seconds')

    def _check(self, request: Request) -> None:
        seen, pools = self.published.rebalanced, self.published.watched.pool_ids or None
        # An abort is the way out where what is finished cannot end.
        if self.leaving.wanted and not self.leaving.done and request.verb != 'abort':
            raise Refused(errno.EBUSY, CLOSING)
        check(seen.campaign, request, seen.pins, seen.unhealthy, seen.unfit, seen.loose)
        refuse_bad_options(request, problems(self._options_now(), pools))
        if request.verb == 'set' and seen.campaign is not None:
            refuse_bad_settings(seen.campaign, request, self._options(), pools)

    def _options_now(self) -> Options:
        """With the settings of the campaign that is active."""
        return self.rebalance.overridden(self._options())

    def _foreseen(self, published: Published, now: float) -> Published:
        """With what will come of the promises that wait."""
        for each in self.requests.promised(Request.document):
            published = overview.foreseen(published, each.promise, now)
        return published

    def ask(self, order: AnsweredOrder, again: bool = False) -> Json:
        """Have the next turn answer an order, or carry it out; waits for it.

        `again`: after it was refused since the cluster was not fit.
        """
        return self.requests.ask(order, self.wake, again)

    def status(self) -> Json:
        """`perfguard status`, how old it is, and the address of the page."""
        return {**overview.status_json(self.published, self._clock()),
                'page': self._cluster.page()}

    def report_seconds(self) -> float:
        """Within so many seconds all OSDs report anew, and a turn has seen it."""
        return self._cluster.stats_period() + REST_SECONDS

    def probed(self) -> Probed:
        """What commands see of the probes."""
        return self.probing.probed

    def advice(self) -> Advice:
        """What `perfguard advise` found last."""
        return self._advising.advice

    def wait(self) -> None:
        """Until the next turn is due, a request came in, or `wake`."""
        options = self._options()
        busy = (self.rebalance.active or self.probing.busy or self.requests.holding
                or self.leaving.wanted and not self.leaving.done)
        interval = options.campaign_interval if busy else options.loop_interval
        rest = self._rest()
        self._resting.wait(rest)
        self._wake.wait(max(0.0, interval - rest))
        self._wake.clear()

    def _rest(self) -> float:
        """Seconds for other modules: a turn holds the interpreter's lock, long if maps are huge."""
        return max(REST_SECONDS, self._turn_seconds / BUSY_SHARE)

    def wake(self) -> None:
        self._wake.set()

    def wake_for_map(self) -> None:
        """A new OSDMap: it may show that a PG in flight has peered or arrived.

        With auto_expand it may contain a change of CRUSH that has to be caught at once.
        """
        campaign = self.published.rebalanced.campaign
        active = campaign is not None and campaign.active
        if (campaign.in_flight if campaign is not None and active
                else self._options().auto_expand):
            self._wake.set()

    def stop(self) -> None:
        """End `wait` at once, now and from now on."""
        self._resting.set()
        self._wake.set()

    # ---- life

    def load(self) -> None:
        """Take up what an earlier mgr left in the store."""
        self.journal.load(self._clock())
        self._events.load()
        self._watching.load(self._options(), self._clock())
        self._mitigating.load()
        self.probing.load(self._clock())
        self._advising.load()
        self.leaving.load()
        lost = self.rebalance.load() + self._rescuing.load() + self._load_requests()
        noted, losses = found(self._store, lost)
        for text in noted:
            self._note(Event('store', text))
        self._store.losses = losses + found_earlier(self._store)
        self.rebalance.resumed()

    def close(self) -> None:
        """After the last turn: write what is not written yet, leave nothing in the OSDs."""
        self.requests.close()
        self._tools.close()
        try:
            self.probing.close()
            self._events.save()
        finally:
            self._cluster.close()

    # ---- one turn

    def turn(self) -> None:
        begin = time.thread_time()
        self._answer_seconds = 0.0
        try:
            self._turn()
            self.failed_turns.clear()
        finally:
            # An operator waits for the answer to an order: the watch does not rest for it.
            self._turn_seconds = time.thread_time() - begin - self._answer_seconds

    def failed(self, error: Exception) -> None:
        """A turn has not come to its end; operators hear of it unless the next ones do."""
        self.failed_turns.note(error)
        check = self.failed_turns.check()
        if check:
            self._warn(check)

    def _warn(self, check: Json) -> None:
        """Show a health check that no turn publishes."""
        with self._publishing:
            self.published = overview.failing(self.published, check)
        try:
            self._cluster.health_checks({**self._checks, **check})
        except Exception as why:
            # What failed the turn may fail this.
            log.debug('cannot set the health check: %r', why)

    def _turn(self) -> None:
        if self.journal.fenced and not self._claimed():
            self.requests.refuse(self.journal.failure)
            self._warn(idle_check(self.journal.failure))
            return
        if self._too_old:
            self.requests.refuse(self._too_old)
            self._warn(old_check(self._too_old))
            return
        self._owns = None
        options = self._options_now()
        if self.leaving.wanted:
            # What was borrowed goes back, and nothing is borrowed without an order.
            options = replace(options, mitigation_mode='off', auto_expand=False)
        # Off the queue before anything is observed, so that what they need is.
        requests = self.requests.promised(Request.document)
        seen, view = self.observe([each.promise for each in requests])
        options = self._flight_cap.resolve(options, seen.osdmap, seen.crush, seen.crush_version)
        seen = self._watch_and_mitigate(seen, view, options)
        self.rebalance.resume(seen.now)
        self._keep_promises(requests, seen)
        began = time.thread_time()
        answered = self._answer_orders(seen, view, options)
        self._answer_seconds = time.thread_time() - began
        try:
            self._go_on(seen, view, options)
        finally:
            for pending in answered:
                pending.done.set()

    def _load_requests(self) -> List[str]:
        """After the campaign: whether this version can read it decides whether it may act."""
        withheld = self._store.withheld()
        self._too_old = too_old(withheld) if withheld else ''
        # Promises of a newer version are left to an mgr that understands them.
        return [] if withheld else self.requests.load()

    def _claimed(self) -> bool:
        """Fenced: whether this is the active mgr after all. It continues from what is stored, since
        another one may have been active for a while."""
        if not self.journal.claim(self._clock()):
            return False
        self._store.verified()
        self.leaving.load()
        for text in (self.rebalance.load() + self._rescuing.load()
                     + self._load_requests()):
            self._note(Event('store', 'cannot read %s' % text))
        self._note(Event('start', 'this mgr acts again', 'it is the active mgr in the MgrMap'))
        return True

    def observe(self, asked: Sequence[Request] = ()) -> Tuple[Observation, View]:
        """`asked`: the requests that this turn will keep."""
        # Before the OSDMap is read: what the balancer sent last is in it.
        busy = self.rebalance.active and self._cluster.balancer_busy()
        view = self._cluster.map_view()
        signals = self._cluster.signals(view.osdmap)
        reading = self.rebalance.wants_stored_options(view.osdmap, asked)
        stored = self._cluster.stored_options() if reading else None
        scanning = self.rebalance.active and signals.counts.degraded > 0
        if self._cluster.unanswered():
            self.rebalance.answered = self._clock()
        return Observation(
            now=self._clock(), signals=signals,
            settings=Settings(view.osdmap, self._cluster.balancer_active(), stored, busy),
            placement=view.placement, crush=self._cluster.crush(view.crush_version),
            stats_period=self._cluster.stats_period(),
            degraded_osds=self._cluster.degraded_osds() if scanning else frozenset(),
            new_map=view.osdmap.epoch != self.rebalance.audited_epoch,
            crush_version=view.crush_version,
            pg_limit=self._cluster.pgs_per_osd_limit(),
            answered=min(self.rebalance.answered, self._clock()),
            balancing=self._cluster.balancing()), view

    def _watch_and_mitigate(self, seen: Observation, view: View,
                            options: Options) -> Observation:
        self._watching.turn(seen.now, view, seen.signals, options, self.rebalance.in_flight,
                            self.probing.affects_latency(seen.now, self._cluster.stats_period()))
        seen = replace(seen, clients=self._watching.clients,
                       osd_counts=self._watching.osd_counts, removing=self._watching.removing,
                       untrimmed_epochs=self._untrimmed_epochs)
        reverts = self.requests.promised(Revert.document)
        for each in reverts:
            self.requests.take(each)
        self._mitigating.turn(seen.now, view, seen.signals, self._watching.watched,
                              self.rebalance.campaign, options,
                              [each.promise.rung for each in reverts])
        self._rescuing.turn(seen, options, frozenset(self.rebalance.pins), self.rebalance.active,
                            self.leaving.wanted)
        return with_mitigation(seen, self._mitigating.mitigated)

    def _keep_promises(self, requests: Sequence[Promised], seen: Observation) -> None:
        if requests and not self._may_write():
            return
        for each in requests:
            self.requests.take(each)
            try:
                each.refused = self.rebalance.apply_request(each.promise, seen, each.again)
            except Exception as error:
                each.refused = Refused(errno.EIO, 'rebalance %s failed: %r'
                                       % (each.promise.verb, error))
                raise
            finally:
                each.done.set()

    def _answer_orders(self, seen: Observation, view: View,
                       options: Options) -> List[PendingOrder]:
        """Those that need not wait for what is being worked out for them."""
        pending = self.requests.next()
        for each in pending:
            self._answer(each, seen, view, options)
        return [each for each in pending if each.answer is not None or each.refused is not None]

    def _answer(self, pending: PendingOrder, seen: Observation, view: View,
                options: Options) -> None:
        order = pending.order
        jobs: Dict[str, Callable[..., Optional[Json]]] = {
            'rebalance': self._change_crush, 'probe': self._probe, 'advise': self._advise,
            'shutdown': self._shut_down, 'why': self._explain}
        try:
            if order.job != 'why' and not self._may_write():
                raise Refused(errno.EAGAIN, self.journal.failure)
            pending.answer = jobs[order.job](pending, seen, view, options)
            if pending.answer is None:
                self.requests.hold(pending)
        except Refused as refused:
            pending.refused = refused
            # A preview asks for nothing, and those who may only read can ask for many.
            if not (pending.again and refused.not_fit or getattr(order, 'dry_run', False)):
                self._note(Event('refused', order.verb, str(refused)))
        except Exception as error:
            # One order that goes wrong must not keep the others from being answered.
            log.exception('the order %s failed', order.verb)
            pending.refused = Refused(errno.EIO, '%s failed: %r' % (order.verb, error))

    def _change_crush(self, pending: PendingOrder, seen: Observation, view: View,
                      _: Options) -> Optional[Json]:
        return self.rebalance.carry_out(pending, seen, view)

    def _explain(self, pending: PendingOrder, seen: Observation, _: View,
                 options: Options) -> Optional[Json]:
        rebalance = self.rebalance
        return self._explaining.carry_out(pending, LoopState(
            seen, options, rebalance.campaign, rebalance.pins, rebalance.forecast.moves,
            rebalance.shown_reasons(seen), self._watching.watched))

    def _probe(self, pending: PendingOrder, seen: Observation, view: View,
               options: Options) -> Json:
        order = pending.order
        if isinstance(order, RunOrder) and not order.dry_run:
            self.leaving.reopen()
        return self.probing.carry_out(order, seen, view, options, self.rebalance.active)

    def _advise(self, pending: PendingOrder, seen: Observation, view: View, _: Options) -> Json:
        return self._advising.carry_out(pending.order, seen, view, *self._advised())

    def _advised(self) -> Tuple[bool, Optional[int]]:
        """What else the advice rests on: a campaign, and the OSDMap epochs that are kept."""
        return self.rebalance.active, self._untrimmed_epochs

    @property
    def _untrimmed_epochs(self) -> Optional[int]:
        clients = self._watching.watched.signals
        return None if clients is None else clients.untrimmed_osdmaps

    def _shut_down(self, pending: PendingOrder, seen: Observation, _: View,
                   options: Options) -> Json:
        if not self.leaving.wanted:
            found = losses(self.rebalance.campaign, len(self.rebalance.pins),
                           self.probing.active_id)
            found += self.rebalance.left_intermediate(seen.osdmap)
            if not pending.order.sure:
                refuse(found)
            self._note(Event('request', 'shutdown', '; '.join(found)))
            self.leaving.begin(seen.now)
            self._leave(seen)
        return {**held_to_json(self._held(seen)), 'safe': self.leaving.done,
                'message': self.leaving.remarks[0]}

    def _leave(self, seen: Observation) -> None:
        """The next step of a shutdown."""
        if not self.leaving.wanted or self.leaving.done:
            return
        self.probing.stop('perfguard is shutting down')
        if self._may_write():
            self.rebalance.withdraw_plans('perfguard is shutting down')
        request = next_request(self.rebalance.campaign)
        if request is not None:
            self.rebalance.apply(request, seen.now)
        elif not self.rebalance.open and not self.probing.busy \
                and not self._mitigating.held and self._may_write():
            self.leaving.finish()
            self._note(Event('shutdown', SAFE))

    def _held(self, seen: Observation) -> List[Row]:
        return self.rebalance.held(seen.osdmap) + self._mitigating.held \
            + self._rescuing.held + self.probing.held

    def _go_on(self, seen: Observation, view: View, options: Options) -> None:
        """The rest of a turn, with whatever was asked for."""
        self._leave(seen)
        self.rebalance.turn(seen, view, options, self.requests.holds('rollback'))
        self.probing.turn(seen, view, options, self.rebalance.active, self.leaving.wanted)
        self._advising.turn(seen, view, *self._advised())
        if self._store.is_verified('campaign'):
            self.requests.settle()
        self._publish(seen, options)

    # ---- the journal

    def _kept(self) -> bool:
        """Whether what was journalled is with the mons, so that commands may be sent."""
        return self._checked(self.journal.kept)

    def _may_write(self) -> bool:
        """Whether this mgr owns the journal. Asked once a turn, before the first record of it:
        another mgr writes its records under the same names."""
        if self._owns is None:
            self._owns = self._checked(self.journal.owns)
        return self._owns

    def _checked(self, check: Callable[[], bool]) -> bool:
        failure = self.journal.failure
        passed = check()
        if not passed:
            self.rebalance.not_stored(self.journal.failure)
            if self.journal.failure != failure:
                self._note(Event('failed', self.journal.failure))
        return passed

    # ---- publishing

    def _note(self, event: Event) -> None:
        self._events.note(event, self._clock(), self._options().event_history)
        if event.kind == MITIGATION or event.kind in KINDS.values():
            # Rare, and what operators ask for first when they come to look.
            self._events.save_soon()
        if event.kind in LOGGED:
            self._cluster.cluster_log(
                event.what + (' (%s)' % event.why if event.why else ''))

    def history_of(self, what: str, condensed: bool, last: int) -> Optional[List[HistoryPoint]]:
        """For commands: points of "cluster", "osd.N" or a pool; None: there is no such thing."""
        return self._watching.history(what, condensed, last)

    def drawn(self, since: float, pools: Sequence[int]) -> Json:
        """For the page: the last hour after `since` of the cluster and of some pools."""
        return self._watching.drawn(since, pools, self._clock())

    def _publish(self, seen: Observation, options: Options) -> None:
        rebalanced = self.rebalance.report(seen, options)
        campaign = rebalanced.status
        watched, mitigated = self._watching.watched, self._mitigating.mitigated
        checks = {**watched.checks, **overview.health_checks(
            rebalanced.campaign, seen, options, texts(campaign.reasons), self._store.losses),
            **self.probing.checks(seen.now), **self._advising.checks}
        self._show_progress(rebalanced.campaign, campaign)
        published = Published(
            status=overview.status(seen, campaign, checks, watched, mitigated,
                                   self.probing.status(), self._turn_seconds, self._all_remarks()),
            rebalanced=rebalanced, watched=watched, mitigated=mitigated,
            held=tuple(self._held(seen)), events=self._events.all(), turned=seen.now,
            stale_after=self._rest() + LATE_TURNS * max(options.loop_interval,
                                                        options.campaign_interval))
        with self._publishing:
            self.published = self._foreseen(published, seen.now)
        self._checks = checks
        # Last: a turn that fails before this must not clear PERFGUARD_LOOP_FAILED.
        self._cluster.health_checks(checks)
        self._events.save_now_and_then(seen.now)

    def _all_remarks(self) -> List[str]:
        return [text for text in (
            *self.leaving.remarks, *self._remarks(), *self.rebalance.replacing.remarks,
            *self._rescuing.remarks, self.journal.failure) if text]

    def _show_progress(self, campaign: Optional[Campaign], status: CampaignStatus) -> None:
        if campaign is not None and campaign.active:
            self._cluster.progress(progress_id(campaign),
                                   overview.progress_message(campaign, status),
                                   progress_share(campaign))
