# SPDX-License-Identifier: LGPL-2.1-or-later
"""The loop: observe, judge, act, publish. One turn at a time, in one thread.

Commands run in other threads. They read `published`, which is replaced whole at the end of each
turn, or leave a request in the queue.
"""
import contextlib
import errno
import logging
import queue
import threading
import time
from dataclasses import replace
from typing import Callable, List, Mapping, Optional, Sequence, Tuple, Union

from . import shutdown, status as overview
from .cluster.ports import Cluster, View
from .cluster.tool_thread import Job, ToolThread
from .cluster.types import OsdMap
from .errors import FailedTurns, Refused, idle_check, old_check, too_old
from .events import Event, EventLog
from .held import Row, campaign_rows, to_json as held_to_json
from .journal import Journal
from .mitigation.controller import Mitigating, with_mitigation
from .mitigation.ladder import KIND as MITIGATION
from .observation import Observation, Settings
from .options import Options
from .probe.archive import Archive, Database
from .probe.controller import Order as ProbeOrder, Probed, Probing
from .probe.orders import RunOrder
from .reasons import Code, Reason, texts
from .rebalance import goals, mon_options, report, rollback
from .rebalance.auto_expand import Calm, look
from .rebalance.change import Stage
from .rebalance.crush_orders import Joiner, Prepared
from .rebalance.executor import execute
from .rebalance.forecast import Forecast
from .rebalance.joining import overdue, wants_outlook
from .rebalance.orders import Order
from .rebalance.pace import Pace
from .rebalance.phases import judge
from .rebalance.pin_store import PinBook
from .rebalance.pinning import count_again, let_loose
from .rebalance.requests import Request, apply, check, from_json, refuse_bad_options, to_json
from .rebalance.room import Room
from .rebalance.settings import problems
from .rebalance.stalls import Stalls
from .rebalance.trials import Trials
from .rebalance.types import (Campaign, Holds, Phase, campaign_from_json, campaign_record,
                              unpinnable_from_json, unpinnable_to_json)
from .requests import Consultation, Desk, Json
from .status import Published
from .store import REQUESTS, Store, found, found_earlier
from .upmap.future import NoFuture, Outlook
from .watch.checks import KINDS
from .watch.controller import Watching
from .watch.series import Point
from .watch.stop_conditions import NOTHING, Touched, unhealthy
from .words import plural

log = logging.getLogger(__name__)

#: Oldest require_min_compat_client values under which the mon refuses upmaps.
_BEFORE_LUMINOUS = frozenset({'argonaut', 'bobtail', 'cuttlefish', 'dumpling', 'emperor',
                              'firefly', 'giant', 'hammer', 'infernalis', 'jewel', 'kraken'})
#: Seconds between two turns at least.
REST_SECONDS = 0.2
#: Share of its time that the loop may compute.
BUSY_SHARE = 0.1
#: Kinds of events that the cluster log tells as well.
LOGGED = frozenset({'phase', MITIGATION, *KINDS.values()})
#: Seconds until Ceph's tools are asked again for what CRUSH chooses, after they failed.
RAW_SECONDS = 60.0
#: A loop that has not turned for so many intervals hangs.
LATE_TURNS = 4.0
#: Document beside that of the campaign: PGs that cannot be pinned. Most may change with each
#: OSDMap, and the OSDMap shows which are remapped: so it is written with each new phase, and else
#: only after so many seconds.
UNPINNABLE = 'unpinnable'
UNPINNABLE_SECONDS = 60.0
#: What the OSDMap shows again, such as arrivals, may wait so long for the next write.
ARRIVAL_SECONDS = 5.0


class Loop:
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
        #: Requests with their keys in the store.
        self._requests: 'queue.Queue[Tuple[str, Request]]' = queue.Queue()
        #: Off the queue and to be applied; applied and still noted in the store.
        self._taken: List[Tuple[str, Request]] = []
        self._applied: List[str] = []
        self._wake = threading.Event()
        self._resting = threading.Event()
        #: Held while `published` and the queue of requests change.
        self._publishing = threading.Lock()
        self._campaign: Optional[Campaign] = None
        #: The campaign as it is in the store.
        self._saved: Optional[Campaign] = None
        self._saved_at = 0.0
        #: The PGs that cannot be pinned as they are in the store, the campaign's phase then, and
        #: when they were written.
        self._saved_unpinnable: Mapping[str, str] = {}
        self._saved_phase: Optional[Phase] = None
        self._unpinnable_saved = 0.0
        self._pins = PinBook(store)
        self._forecast = Forecast()
        #: What the PGs' goals would rest on, and since when: PGs have peered a while after.
        self._basis, self._basis_since = '', 0.0
        #: The basis of the raw sets behind vectors, and when they are asked for again.
        self._raw_basis, self._raws_due = '', 0.0
        #: The pins had the goals that this OSDMap and the campaign's phase ask for.
        self._goals_fit = False
        self._joiner = Joiner(cluster, store)
        self._room = Room()
        self._calm: Optional[Calm] = None
        self._leaving = shutdown.Leaving(store)
        self._journal = Journal(cluster, store)
        #: Whether this mgr was found to own the journal in this turn; None: not asked yet.
        self._owns: Optional[bool] = None
        self._desk = Desk()
        self._tools = tools or ToolThread(self.wake)
        self._trials = Trials(self._tools, self._joiner)
        #: The basis of raw sets that are being worked out.
        self._raw_job: Optional[Tuple[str, Job[Outlook]]] = None
        #: What goals that are being worked out rest on.
        self._goals_job: Optional[Tuple[goals.Ground, Job[goals.Goals]]] = None
        #: The last OSDMap that the pins were held against, by this process.
        self._audited_epoch = -1
        #: Until when commands had no answer.
        self._answered = 0.0
        self._history: List[Json] = []
        self._events = EventLog(store)
        self._watching = Watching(cluster, store, self._note)
        self._mitigating = Mitigating(cluster, store, self._note, self._kept)
        self._probing = Probing(cluster, store, Archive(store, database), self._note,
                                self._tools, self._kept)
        self._reasons: Tuple[Reason, ...] = ()
        self._failures: Tuple[str, ...] = ()
        #: What of the stored state could not be read.
        self._interrupted: List[str] = []
        self._failed_turns = FailedTurns()
        #: Why this version must not act; '' for nothing.
        self._too_old = ''
        #: Health checks of the last turn that came to its end.
        self._checks: Json = {}
        #: CPU time of the last turn.
        self._turn_seconds = 0.0
        #: CPU time of it that answering orders took.
        self._answer_seconds = 0.0
        self.published = Published()

    # ---- for commands: other threads

    def request(self, request: Request) -> None:
        """Queue a request for the next turn; Refused if the last turn's state speaks against it.

        Where the state has changed by then, the loop checks again and notes the refusal.
        """
        seen = self.published
        self._refuse_too_early()
        if self._leaving.wanted and not self._leaving.done:
            raise Refused(errno.EBUSY, shutdown.CLOSING)
        check(seen.campaign, request, seen.pins, seen.unhealthy, seen.unfit, seen.loose)
        refuse_bad_options(request, problems(self._options(), seen.watched.pool_ids or None))
        # The answer is a promise: it must hold even if this mgr fails before the next turn.
        key = self._store.note(REQUESTS, to_json(request))
        with self._publishing:
            self._requests.put((key, request))
            self.published = overview.foreseen(self.published, request, self._clock())
        self._wake.set()

    def revert(self, step_id: int) -> None:
        """Queue the undoing of a rung of the mitigation; Refused if it is not held."""
        self._refuse_too_early()
        self._mitigating.request_revert(step_id)
        self._wake.set()

    def _refuse_too_early(self) -> None:
        """Raise Refused while there is no state to check a request against, or a stale one."""
        if self._journal.fenced:
            raise Refused(errno.EAGAIN, self._journal.failure)
        if self._too_old:
            raise Refused(errno.EPERM, self._too_old)
        if self.published.campaign is None and not self.published.rebalance:
            raise Refused(errno.EAGAIN, 'perfguard has just started: try again in a moment')

    def ask(self, order: Union[Order, ProbeOrder, shutdown.Shutdown],
            again: bool = False) -> Json:
        """Have the next turn answer an order, or carry it out; waits for it.

        `again`: after it was refused since the cluster was not fit.
        """
        return self._desk.ask(order, self.wake, again)

    def status(self) -> Json:
        """`perfguard status`, and how old it is."""
        return overview.aged(self.published, self._clock())

    def report_seconds(self) -> float:
        """Within so many seconds all OSDs report anew, and a turn has seen it."""
        return self._cluster.stats_period() + REST_SECONDS

    def probed(self) -> Probed:
        """What commands see of the probes."""
        return self._probing.probed

    def wait(self) -> None:
        """Until the next turn is due, a request came in, or `wake`."""
        options = self._options()
        busy = (self._moving() or self._probing.busy
                or self._leaving.wanted and not self._leaving.done)
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
        """A new OSDMap: while PGs are under way it may tell that one has peered or arrived.

        With auto_expand it may bring a change of CRUSH that has to be caught at once.
        """
        campaign = self.published.campaign
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
        self._answered = self._clock()
        self._journal.load(self._clock())
        self._history = self._store.get_entries('history')
        self._events.load()
        self._watching.load(self._options(), self._clock())
        self._mitigating.load()
        self._probing.load(self._clock())
        self._leaving.load()
        lost = self._load_work()
        noted, losses = found(self._store, lost)
        for text in noted:
            self._note(Event('store', text))
        self._interrupted = losses + found_earlier(self._store)
        if self._campaign is not None and self._campaign.active:
            self._note(Event('start', 'campaign %d goes on: %s' % (
                self._campaign.id, self._campaign.phase.value), 'this mgr became active'))

    def _load_work(self) -> List[str]:
        """Campaign, pins and requests; returns what could not be read."""
        lost = self._pins.load() + self._load_requests() + self._load_campaign()
        withheld = self._store.withheld()
        self._too_old = too_old(withheld) if withheld else ''
        self._adopt_pins()
        return lost

    def _load_requests(self) -> List[str]:
        lost: List[str] = []
        for key, raw in self._store.notes(REQUESTS):
            try:
                self._requests.put((key, from_json(raw)))
            except (TypeError, ValueError) as error:
                lost.append('the request %s (%s)' % (key, error))
                self._store.drop_note(key)
        return lost

    def _load_campaign(self) -> List[str]:
        self._saved_unpinnable = {}
        document = self._store.get('campaign')
        if document is None:
            return []
        try:
            self._saved = campaign_from_json(document)
            self._saved = self._with_unpinnable(self._saved)
            # Whether the last mgr's commands ever left is not known.
            self._campaign = count_again(self._saved, self._saved.pinning)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            self._store.unreadable.add('campaign')
            return ['the campaign (%s)' % error]
        return []

    def _with_unpinnable(self, campaign: Campaign) -> Campaign:
        stored = unpinnable_from_json(self._store.get(UNPINNABLE) or ())
        self._saved_unpinnable = stored
        return replace(campaign, unpinnable={**campaign.unpinnable, **stored})

    def _adopt_pins(self) -> None:
        """Pins whose campaign is not known any more are held like those of an aborted one."""
        if self._campaign is None and self._pins:
            self._campaign = Campaign(
                id=max([entry['id'] for entry in self._history] or [1]), phase=Phase.ABORTED,
                started=self._clock(), ended=self._clock(), prepared=True, held=True,
                left=len(self._pins))

    # ---- one turn

    def turn(self) -> None:
        begin = time.thread_time()
        self._answer_seconds = 0.0
        try:
            self._turn()
            self._failed_turns.clear()
        finally:
            # An operator waits for the answer to an order: the watch does not rest for it.
            self._turn_seconds = time.thread_time() - begin - self._answer_seconds

    def failed(self, error: Exception) -> None:
        """A turn has not come to its end; operators hear of it unless the next ones do."""
        self._failed_turns.note(error)
        check = self._failed_turns.check()
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
            log.debug('the health check cannot be set: %r', why)

    def _turn(self) -> None:
        if self._journal.fenced and not self._claimed():
            self._desk.refuse(self._journal.failure)
            self._warn(idle_check(self._journal.failure))
            return
        if self._too_old:
            self._desk.refuse(self._too_old)
            self._warn(old_check(self._too_old))
            return
        self._owns = None
        options = self._options()
        if self._leaving.wanted:
            # What was borrowed goes back, and nothing is borrowed without an order.
            options = replace(options, mitigation_mode='off', auto_expand=False)
        self._take_requests()
        seen, view = self._observe()
        options = self._room.resolve(options, seen.osdmap, seen.crush, seen.crush_version)
        self._watching.turn(seen.now, view, seen.signals, options,
                            self._campaign, self._probing.felt(
                                seen.now, self._cluster.stats_period()))
        seen = replace(seen, clients=self._watching.clients,
                       osd_counts=self._watching.osd_counts)
        self._mitigating.turn(seen.now, view, seen.signals, self._watching.watched,
                              self._campaign, options)
        seen = with_mitigation(seen, self._mitigating.mitigated)
        self._apply_requests(seen)
        began = time.thread_time()
        served = self._serve_orders(seen, view, options)
        self._answer_seconds = time.thread_time() - began
        try:
            self._go_on(seen, view, options)
        finally:
            for consultation in served:
                consultation.done.set()

    def _claimed(self) -> bool:
        """Fenced: whether this is the active mgr after all. It goes on from what is stored, since
        another one may have been active for a while."""
        if not self._journal.claim(self._clock()):
            return False
        self._store.verified()
        self._answered = self._clock()
        self._campaign = self._saved = None
        self._pins, self._forecast, self._calm = PinBook(self._store), Forecast(), None
        self._goals_fit, self._raw_basis, self._audited_epoch = False, '', -1
        self._leaving.load()
        self._taken, self._requests = [], queue.Queue()
        for text in self._load_work():
            self._note(Event('store', '%s cannot be read' % text))
        self._note(Event('start', 'this mgr acts again', 'it is the active mgr by the MgrMap'))
        return True

    def _go_on(self, seen: Observation, view: View, options: Options) -> None:
        """The rest of a turn, with whatever was asked for."""
        self._leave(seen)
        self._joiner.forget_purged(seen.osdmap)
        self._catch_unannounced(seen, options)
        if self._campaign is not None and self._campaign.open:
            if self._desk.holds('rollback'):
                # Where its pins may lead is being worked out: no other OSD may get data meanwhile.
                seen = _held(seen, 'working out the rollback')
            seen = self._with_goals(seen, view) if self._refresh_raws(seen) else replace(
                _held(seen, 'working out where CRUSH places the PGs that are pinned by a vector'),
                goals_fit=False)
            self._forecast.update_moves(self._pins, seen, view.crush_version)
            seen = self._with_outlook(seen, options)
            self._judge_and_act(self._patient(seen, options), options)
        self._archive_ended()
        self._probing.turn(seen, view, options, self._moving(), self._leaving.wanted)
        for key in self._applied:
            self._store.drop_note(key)
        self._applied.clear()
        self._publish(seen, options)

    def _observe(self) -> Tuple[Observation, View]:
        view = self._cluster.map_view()
        campaign = self._campaign
        signals = self._cluster.signals(view.osdmap)
        reading = self._wants_stored_options(view.osdmap)
        stored = self._cluster.stored_options() if reading else None
        scanning = campaign is not None and campaign.active and signals.counts.degraded > 0
        if self._cluster.unanswered():
            self._answered = self._clock()
        return Observation(
            now=self._clock(), signals=signals,
            settings=Settings(view.osdmap, self._cluster.balancer_active(), stored),
            placement=view.placement, crush=self._cluster.crush(view.crush_version),
            stats_period=self._cluster.stats_period(),
            degraded_osds=self._cluster.degraded_osds() if scanning else frozenset(),
            new_map=view.osdmap.epoch != self._audited_epoch,
            crush_version=view.crush_version, answered=self._answered,
            balancing=self._cluster.balancing()), view

    def _wants_stored_options(self, osdmap: OsdMap) -> bool:
        """Whether settings are about to be held or given back.

        Reading the configuration database costs a mon command, so it is not done in every turn.
        """
        if any(request.verb == 'prepare' for _, request in self._taken):
            return True
        campaign = self._campaign
        if campaign is None:
            return False
        if campaign.active and not campaign.prepared:
            return True
        if campaign.phase is Phase.PREPARED:
            return False
        mon = mon_options.wanted(campaign, self._options(), osdmap)
        if campaign.active and not mon_options.settled(campaign.holds, None, mon):
            return True
        giving_back = campaign.phase is Phase.ABORTING or (
            campaign.phase is Phase.FINISHING and not campaign.in_flight) or (
            campaign.held and not self._pins)
        return bool(self._taken) or giving_back and bool(campaign.holds.options
                                                         or campaign.holds.mon)

    def _take_requests(self) -> None:
        """Off the queue before anything is observed, so that what they need is."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._taken.append(self._requests.get_nowait())

    def _apply_requests(self, seen: Observation) -> None:
        if self._taken and not self._may_write():
            return
        while self._taken:
            key, request = self._taken.pop(0)
            self._goals_fit = False
            self._applied.append(key)
            try:
                check(self._campaign, request, self._held_back(), self._unhealthy(seen),
                      _unfit(seen.osdmap), self._loose(seen.osdmap))
                if request.verb == 'prepare':
                    self._leaving.reopen()
            except Refused as refused:
                self._note(Event('refused', 'rebalance %s' % request.verb, str(refused)))
                continue
            self._note(Event('request', ' '.join(filter(None, ('rebalance', request.verb,
                                                               request.code))), 'by command'))
            if request.verb == 'prepare':
                self._begin(seen)
            else:
                assert self._campaign is not None
                self._campaign = apply(self._campaign, request, seen.now)

    def _serve_orders(self, seen: Observation, view: View,
                      options: Options) -> List[Consultation]:
        served: List[Consultation] = []
        for consultation in self._desk.take():
            order = consultation.order
            try:
                if not self._may_write():
                    raise Refused(errno.EAGAIN, self._journal.failure)
                consultation.answer = self._answer(consultation, seen, view, options)
                if consultation.answer is None:
                    self._desk.hold(consultation)
                    continue
            except Refused as refused:
                consultation.refused = refused
                if not (consultation.again and refused.not_fit):
                    self._note(Event('refused', order.verb, str(refused)))
            except Exception as error:
                # One order that goes wrong must not keep the others from being answered.
                log.exception('the order %s failed', order.verb)
                consultation.refused = Refused(errno.EIO, '%s failed: %r' % (order.verb, error))
            served.append(consultation)
        return served

    def _answer(self, consultation: Consultation, seen: Observation, view: View,
                options: Options) -> Optional[Json]:
        """None while what the order needs is being worked out; raises Refused."""
        order = consultation.order
        if isinstance(order, shutdown.Shutdown):
            return self._shut_down(order, seen)
        if isinstance(order, Order):
            answer = (self._roll_back if order.verb == 'rollback' else self._carry_out)(
                consultation, seen)
            return answer and {**answer, 'fast_peering': mon_options.forecast(
                seen.osdmap, options.fast_peering)}
        if isinstance(order, RunOrder) and not order.dry_run:
            self._leaving.reopen()
        return self._probing.carry_out(order, seen, view, options, self._moving())

    def _carry_out(self, consultation: Consultation, seen: Observation) -> Optional[Json]:
        order = consultation.order
        request = Request('prepare', order.force)
        if not order.dry_run:
            self._leaving.reopen()
            # What speaks against any change is known before Ceph's tools are run for this one.
            check(self._campaign, request, self._held_back(), self._unhealthy(seen, NOTHING),
                  _unfit(seen.osdmap))
            refuse_bad_options(request, problems(
                self._options(), {pool.name for pool in seen.osdmap.pools.values()}))
        prepared = self._prepared(consultation, seen,
                                  lambda: self._joiner.preparing(order, seen, self._options()))
        if prepared is None:
            return None
        if order.dry_run:
            return prepared.as_json(order, None)
        check(self._campaign, request, self._held_back(),
              self._unhealthy(seen, prepared.touched))
        prepared.refuse_unpinnable(order, self._options())
        prepared.refuse_storm(order)
        self._joiner.keep(prepared, seen)
        self._note(Event('request', order.verb, 'asked for by command'))
        self._begin(seen)
        assert self._campaign is not None
        self._campaign = replace(self._campaign, trigger=order.verb, automatic=True,
                                 change=prepared.change)
        self._save()
        return prepared.as_json(order, self._campaign.id)

    def _prepared(self, consultation: Consultation, seen: Observation,
                  work: Callable[[], Callable[[], Prepared]]) -> Optional[Prepared]:
        """What an order will do, worked out beside the loop; None: not yet. Raises Refused."""
        if consultation.job is None:
            consultation.crush_version = seen.crush_version
            # What a rollback rests on changes with each release.
            earlier = None if consultation.order.verb == 'rollback' else \
                self._desk.worked_out(consultation.order, seen.crush_version)
            consultation.job = earlier or self._tools.submit(work())
            if consultation.job is None:
                raise Refused(errno.EAGAIN, 'too many changes are being worked out: try again in '
                              'a moment')
        if not consultation.job.done:
            return None
        if consultation.crush_version != seen.crush_version and not consultation.order.dry_run:
            raise Refused(errno.EAGAIN, 'CRUSH has changed while the change was being worked out: '
                          'try again')
        prepared: Prepared = consultation.job.result()
        return prepared

    def _shut_down(self, order: shutdown.Shutdown, seen: Observation) -> Json:
        if not self._leaving.wanted:
            probe = self._probing.status()
            found = shutdown.losses(self._campaign, len(self._pins),
                                    None if probe is None else probe['id'])
            if not order.sure:
                shutdown.refuse(found)
            self._note(Event('request', 'shutdown', '; '.join(found)))
            self._leaving.begin(seen.now)
            self._leave(seen)
        return {**held_to_json(self._held(seen)), 'safe': self._leaving.done,
                'message': self._leaving.remarks[0]}

    def _leave(self, seen: Observation) -> None:
        """The next step of a shutdown."""
        if not self._leaving.wanted or self._leaving.done:
            return
        self._probing.stop('perfguard is shutting down')
        request = shutdown.next_request(self._campaign)
        if request is not None:
            assert self._campaign is not None
            self._campaign = apply(self._campaign, request, seen.now)
        elif not (self._campaign is not None and self._campaign.open) \
                and not self._probing.busy and not self._mitigating.held and self._may_write():
            self._leaving.finish()
            self._note(Event('shutdown', shutdown.SAFE))

    def _held(self, seen: Observation) -> List[Row]:
        return (campaign_rows(self._campaign, seen.osdmap, len(self._pins))
                + self._mitigating.held + self._probing.held)

    def _roll_back(self, consultation: Consultation, seen: Observation) -> Optional[Json]:
        order = consultation.order
        campaign = rollback.check(self._campaign, seen.crush_version)
        prepared = self._prepared(
            consultation, seen, lambda: self._joiner.preparing_back(campaign, self._pins, seen))
        if prepared is None:
            return None
        assert prepared.change is not None
        if order.dry_run:
            return prepared.as_json(order, None)
        self._leaving.reopen()
        self._joiner.keep(prepared, seen)
        self._note(Event('request', order.verb, 'asked for by command'))
        self._campaign = rollback.begin(campaign, prepared.change, seen.now)
        self._save()
        return prepared.as_json(order, campaign.id)

    def _catch_unannounced(self, seen: Observation, options: Options) -> None:
        """auto_expand: begin a campaign for a change of CRUSH that nobody announced."""
        self._calm, why = look(self._calm, seen, self._campaign, options.auto_expand_ratio)
        if not why or not options.auto_expand or _unfit(seen.osdmap) or not self._may_write():
            return
        if self._campaign is not None and self._campaign.held:
            # Its pins would be released, and how to roll it back forgotten: operators decide.
            self._note(Event('refused', 'auto_expand', '%s, but campaign %d is aborted and holds '
                             'PGs back' % (why, self._campaign.id)))
            self._calm = None
            return
        self._note(Event('request', 'auto_expand', why))
        self._begin(seen)
        assert self._campaign is not None
        self._joiner.forget_before()
        # What it is for has happened already, whatever the CRUSH version is by now.
        self._campaign = replace(self._campaign, trigger='auto', automatic=True, crush_version=-1)

    def _moving(self) -> bool:
        return self._campaign is not None and self._campaign.active

    def _patient(self, seen: Observation, options: Options) -> Observation:
        """No burst counts as lost while the mons have a newer CRUSH map than this mgr."""
        assert self._campaign is not None
        if overdue(self._campaign, seen, options) and self._joiner.behind(seen):
            self._answered = seen.now
            return replace(seen, answered=seen.now)
        return seen

    def _with_outlook(self, seen: Observation, options: Options) -> Observation:
        """`seen` with the mapping after the campaign's change, if that is about to be sent."""
        campaign = self._campaign
        assert campaign is not None
        if campaign.change is None or campaign.change.stage is Stage.LANDED:
            return seen
        seen = replace(seen, overtaken=self._joiner.overtaken(seen, campaign.change))
        if seen.overtaken or not wants_outlook(campaign, seen, options):
            return seen
        return replace(seen, outlook=self._trials.outlook(campaign.change, seen))

    def _begin(self, seen: Observation) -> None:
        last = max([entry['id'] for entry in self._history]
                   + ([self._campaign.id] if self._campaign else [0]))
        self._interrupted = []
        self._store.damaged.clear()
        self._store.unreadable.clear()
        for name in self._store.names('damaged/'):
            self._store.remove(name)
        # Pins that an aborted campaign left are this one's to release, to goals of its own.
        self._pins.note(goals.without_goals(self._pins))
        self._remember_crush(seen)
        self._campaign = Campaign(
            id=last + 1, phase=Phase.PREPARED, started=seen.now, phase_since=seen.now,
            target=self._options().target, first_epoch=seen.osdmap.epoch,
            last_epoch=seen.osdmap.epoch, crush_version=seen.crush_version,
            holds=self._holds_left(),
            crush_own=seen.crush_version)

    def _remember_crush(self, seen: Observation) -> None:
        """For a rollback. A campaign that continues an aborted one goes back to before that."""
        last = self._campaign
        if last is not None and last.held and last.crush_own == seen.crush_version:
            return
        why_not = self._joiner.remember(seen)
        if why_not:
            self._note(Event('rollback', 'this campaign cannot be rolled back', why_not))

    def _holds_left(self) -> Holds:
        """What an aborted campaign still borrows is given back by the one that follows it."""
        if self._campaign is None or not self._campaign.held:
            return Holds()
        return replace(self._campaign.holds, given_up=())

    def _held_back(self) -> int:
        return report.held_back(self._campaign, self._pins)

    def _loose(self, osdmap: OsdMap) -> str:
        return let_loose(self._campaign, self._held_back(), osdmap, self._options())

    def _unhealthy(self, seen: Observation, touched: Optional[Touched] = None) -> List[Reason]:
        reasons = unhealthy(seen.signals, seen.osdmap, seen.osd_counts, touched)
        if _unfit(seen.osdmap):
            reasons.append(Reason(Code.OLD_CLIENTS, _unfit(seen.osdmap)))
        return reasons

    def _refresh_raws(self, seen: Observation) -> bool:
        """Learn what CRUSH chooses behind the pins that are vectors, once it chooses anew.

        Ceph's tools show it. Without them it is unknown, and such PGs are released one by one.
        Returns whether it is known by now.
        """
        campaign = self._campaign
        assert campaign is not None
        joining = campaign.change is not None and campaign.change.stage is not Stage.LANDED
        vectors = {pgid: pin for pgid, pin in self._pins.items()
                   if pin.entry.vector is not None and pgid not in campaign.in_flight}
        now = goals.basis(seen.osdmap, seen.crush_version) if vectors else ''
        if joining or not vectors or now == self._raw_basis or seen.now < self._raws_due \
                or not self._may_write():
            return True
        outlook = self._raw_outlook(seen.osdmap, now)
        if outlook is None:
            return False
        if isinstance(outlook, NoFuture):
            self._raws_due = seen.now + RAW_SECONDS
            self._note(Event('pins', 'what CRUSH chooses for %s pinned by a vector is not known'
                             % plural(len(vectors), 'PG'), outlook.reason))
            raws = {}
        else:
            self._raw_basis = now
            raws = {pgid: pg.raw for pgid, pg in outlook.pgs.items()}
        # The goal of a PG whose raw set was not known then is but what was there before.
        stale = {pgid: replace(pin, raw=raws.get(pgid), goal=None if pin.raw is None else pin.goal)
                 for pgid, pin in vectors.items() if pin.raw != raws.get(pgid)}
        self._goals_fit = self._goals_fit and not stale
        self._pins.note(stale)
        self._forecast.rework(stale)
        return True

    def _raw_outlook(self, osdmap: OsdMap, basis: str) -> Optional[Outlook]:
        """The mapping as it is, which shows what CRUSH chooses; None: it is being worked out."""
        if self._raw_job is None or self._raw_job[0] != basis:
            job = self._tools.submit(lambda: self._cluster.outlook(osdmap, {}, None), first=True)
            self._raw_job = None if job is None else (basis, job)
        if self._raw_job is None or not self._raw_job[1].done:
            return None
        found, self._raw_job = self._raw_job[1].result(), None
        return found

    def _with_goals(self, seen: Observation, view: View) -> Observation:
        """Work out where the pinned PGs shall go, if that is due; noted before it is used."""
        assert self._campaign is not None
        if self._goals_fit and not seen.new_map:
            return seen
        now = goals.basis(seen.osdmap, view.crush_version, seen.balancing)
        if now != self._basis:
            self._basis, self._basis_since = now, seen.now
        self._goals_fit = not goals.needed(self._campaign, self._pins, now)
        if self._goals_fit:
            return seen
        still = seen.now - self._basis_since > seen.stats_period
        if not still or not goals.settled(self._campaign, self._pins, seen,
                                          self._options().max_transition_ratio) \
                or not self._may_write():
            return replace(seen, goals_fit=False)
        found = self._worked_out_goals(goals.ground(self._campaign, self._pins, seen, now), seen,
                                       view)
        if found is None:
            return replace(seen, goals_fit=False)
        self._pins.note(found.records)
        self._pins.forget(found.dropped)
        self._campaign = replace(self._campaign, goals=found.mark)
        self._save()
        self._forecast.rework(set(found.records) | found.dropped)
        self._note(goals.event(found, self._pins))
        self._goals_fit = True
        return seen

    def _worked_out_goals(self, ground: goals.Ground, seen: Observation,
                          view: View) -> Optional[goals.Goals]:
        """None: they are being worked out, beside the loop since it takes a while: 8 s for two
        pools of 16,000 PGs."""
        if self._goals_job is None or self._goals_job[0] != ground:
            most = self._options().max_extra_movement
            job = self._tools.submit(lambda: goals.work_out(ground, seen, view.pool_up, most),
                                     first=True)
            self._goals_job = None if job is None else (ground, job)
        if self._goals_job is None or not self._goals_job[1].done:
            return None
        found, self._goals_job = self._goals_job[1].result(), None
        return found

    def _judge_and_act(self, seen: Observation, options: Options) -> None:
        assert self._campaign is not None
        before = self._campaign
        decision = judge(before, self._pins, self._forecast.moves, seen, options)
        sending = bool(decision.pins or decision.actions)
        if (sending or decision.unpins or self._unsaved(decision.campaign, sending)) \
                and not self._may_write():
            return
        # The intent goes to the store before anything is sent.
        self._pins.note(decision.pins)
        self._campaign = decision.campaign
        self._save(sending)
        if not self._kept():
            # Decided anew in the next turn. New pins that nothing shows are forgotten then.
            self._campaign, self._saved = before, None
            return
        for event in decision.events:
            self._note(event)
        outcome = execute(self._cluster, decision.actions)
        if decision.campaign.change != before.change:
            # That may have taken a minute.
            self._answered = self._clock()
        if outcome.unanswered:
            self._campaign = count_again(self._campaign, outcome.unanswered)
        self._failures = outcome.failures
        for failure in self._failures[:5]:
            log.warning('command failed: %s', failure)
            self._note(Event('failed', failure))
        self._pins.forget(decision.unpins)
        self._forecast.forget(set(decision.pins) | decision.unpins)
        self._audited_epoch = seen.osdmap.epoch
        self._reasons = decision.reasons

    def _kept(self) -> bool:
        """Whether what was journalled is with the mons, so that commands may be sent."""
        return self._checked(self._journal.kept)

    def _may_write(self) -> bool:
        """Whether this mgr owns the journal. Asked once a turn, before the first record of it:
        another mgr writes its records under the same names."""
        if self._owns is None:
            self._owns = self._checked(self._journal.owns)
        return self._owns

    def _checked(self, check: Callable[[], bool]) -> bool:
        failure = self._journal.failure
        passed = check()
        if not passed:
            self._reasons = (Reason(Code.NOT_STORED, self._journal.failure),)
            if self._journal.failure != failure:
                self._note(Event('failed', self._journal.failure))
        return passed

    def _save(self, sending: bool = True) -> None:
        """Write the campaign if it changed in more than its clocks. `sending`: and what it has
        decided is sent next."""
        assert self._campaign is not None
        if self._unpinnable_due(self._campaign):
            self._put_unpinnable(self._campaign)
        if self._campaign_due(self._campaign, sending):
            self._store.put('campaign', campaign_record(self._campaign))
            self._saved, self._saved_at = self._campaign, self._clock()

    def _unsaved(self, campaign: Campaign, sending: bool) -> bool:
        return self._campaign_due(campaign, sending) or self._unpinnable_due(campaign)

    def _campaign_due(self, campaign: Campaign, sending: bool) -> bool:
        if self._saved is None:
            return True
        before, now = _lasting(self._saved), _lasting(campaign)
        if before == now:
            return False
        return (sending or not 0.0 <= self._clock() - self._saved_at < ARRIVAL_SECONDS
                or _without_flights(before) != _without_flights(now))

    def _unpinnable_due(self, campaign: Campaign) -> bool:
        if campaign.unpinnable == self._saved_unpinnable:
            return False
        passed = self._clock() - self._unpinnable_saved
        return campaign.phase is not self._saved_phase or not 0.0 <= passed < UNPINNABLE_SECONDS

    def _put_unpinnable(self, campaign: Campaign) -> None:
        if campaign.unpinnable:
            self._store.put(UNPINNABLE, unpinnable_to_json(campaign.unpinnable))
        else:
            self._store.remove(UNPINNABLE)
        self._saved_unpinnable, self._saved_phase = campaign.unpinnable, campaign.phase
        self._unpinnable_saved = self._clock()

    def _archive_ended(self) -> None:
        """File a campaign that has ended; again if the last attempt was cut short."""
        campaign = self._campaign
        if campaign is None or campaign.active or self._saved is None:
            return
        row = report.summary(campaign)
        if row not in self._history:
            self._cluster.progress_done(overview.progress_id(campaign))
            self._history = [entry for entry in self._history if entry['id'] != campaign.id]
            self._history.append(row)
            self._history = self._history[-self._options().history:]
            self._store.put('history', self._history)
        if campaign.held:
            return
        if campaign.phase is Phase.DONE:
            self._pins.clear()
        self._joiner.ended()
        self._store.remove(UNPINNABLE)
        self._store.remove('campaign')
        self._saved, self._saved_unpinnable = None, {}

    # ---- publishing

    def _note(self, event: Event) -> None:
        self._events.note(event, self._clock(), self._options().event_history)
        if event.kind == MITIGATION or event.kind in KINDS.values():
            # Rare, and what operators ask for first when they come to look.
            self._events.save_soon()
        if event.kind in LOGGED:
            self._cluster.cluster_log(
                event.what + (' (%s)' % event.why if event.why else ''))

    def close(self) -> None:
        """After the last turn: write what is not written yet, leave nothing in the OSDs."""
        self._desk.close()
        self._tools.close()
        try:
            self._probing.close()
            self._events.save()
        finally:
            self._cluster.close()

    def history_of(self, what: str, condensed: bool, last: int) -> Optional[List[Point]]:
        """For commands: points of "cluster", "osd.N" or a pool; None: there is no such thing."""
        return self._watching.history(what, condensed, last)

    def drawn(self, since: float, pools: Sequence[int]) -> Json:
        """For the page: the last hour after `since` of the cluster and of some pools."""
        return self._watching.drawn(since, pools, self._clock())

    def _publish(self, seen: Observation, options: Options) -> None:
        campaign = self._campaign
        active = campaign is not None and campaign.active
        judged = campaign is not None and campaign.open
        reasons = list(self._reasons if judged else overview.idle_reasons(seen, campaign))
        reasons += [Reason(Code.COMMAND_FAILED, 'a command failed: %s' % text)
                    for text in self._failures[:3] if judged]
        self._forecast.update_plan(campaign, self._pins, seen, options)
        plan = self._forecast.plan
        rebalance = report.status(campaign, self._pins, plan.bytes if active else 0, reasons,
                                  options, seen.now)
        watched = self._watching.watched
        checks = {**watched.checks, **overview.health_checks(
            campaign, seen, options, texts(reasons), self._interrupted),
            **self._probing.checks(seen.now)}
        if active:
            assert campaign is not None
            self._cluster.progress(overview.progress_id(campaign),
                                   overview.progress_text(campaign),
                                   report.progress_share(campaign))
        published = Published(
            status=overview.status(seen, rebalance, reasons, checks, watched,
                                   self._mitigating.mitigated, self._probing.status(),
                                   self._turn_seconds,
                                   [text for text in (*self._leaving.remarks, *self._remarks(),
                                                      self._journal.failure) if text]),
            rebalance=rebalance,
            watched=watched, mitigated=self._mitigating.mitigated,
            plan=report.plan_json(plan, self._forecast.unheld,
                                  campaign.unpinnable if campaign is not None else {}),
            held=tuple(self._held(seen)), events=self._events.all(),
            history=tuple(self._history), campaign=campaign,
            pins=self._held_back(), unhealthy=tuple(self._unhealthy(seen)),
            unfit=_unfit(seen.osdmap), loose=self._loose(seen.osdmap),
            turned=seen.now,
            stale_after=self._rest() + LATE_TURNS * max(options.loop_interval,
                                                        options.campaign_interval))
        with self._publishing:
            for _, request in [*self._taken, *self._requests.queue]:
                published = overview.foreseen(published, request, seen.now)
            self.published = published
        self._checks = checks
        # Last: a turn that fails before this must not clear PERFGUARD_LOOP_FAILED.
        self._cluster.health_checks(checks)
        self._events.save_now_and_then(seen.now)


def _unfit(osdmap: OsdMap) -> str:
    """Why no campaign can begin, whatever is forced: the mons would refuse every pin."""
    if osdmap.min_compat_client not in _BEFORE_LUMINOUS:
        return ''
    return ('require_min_compat_client is %s, and upmaps need luminous ("ceph osd '
            'set-require-min-compat-client luminous")' % osdmap.min_compat_client)


def _held(seen: Observation, why: str) -> Observation:
    """Nothing is released in this turn."""
    return replace(seen, stops=(*seen.stops, Reason(Code.OUTLOOK, why)))


def _lasting(campaign: Campaign) -> Campaign:
    """What has to be in the store: all but clocks, and what is a document of its own."""
    return replace(campaign, turned=0.0, moving_seconds=0.0, stopped=0.0, last_epoch=0,
                   pace=Pace(), stalls=Stalls(), unpinnable={})


def _without_flights(campaign: Campaign) -> Campaign:
    return replace(campaign, in_flight={}, released=0, bytes_done=0, progressed=0.0, total=0)
