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
from typing import Callable, FrozenSet, List, Mapping, Optional, Sequence, Tuple, Union

from ..advise.report import ADVICE_FRESH_SECONDS, Advice, AdviseOrder, to_json as advice_json
from ..clock import Clock
from ..cluster.crush import CrushRules
from ..cluster.evacuation import Evacuation, evacuated
from ..cluster.ports import Cluster, View
from ..cluster.tool_thread import ToolThread
from ..cluster.types import HeldPgs, Json, Osd, OsdMap, OsdSet, Signals
from ..errors import FailedTurns, HealthChecks, Refused, idle_check, old_check, too_old
from ..events import Event, EventLog, ClusterLogLines
from ..ledger import Owner
from ..mitigation.controller import with_mitigation
from ..mitigation.ladder import MITIGATION
from ..mitigation.report import reverted_texts
from ..mitigation.types import Revert
from ..observation import Observation, Settings
from ..options import Options
from ..probe.report import Probed
from ..rebalance.campaign import Campaign
from ..rebalance.holds import NOREBALANCE
from ..rebalance.report import CampaignStatus, progress_id, progress_share
from ..rebalance.requests import DryRun, Request, effects
from ..rebalance.throttle import FlightCap
from ..rebalance.types import RELEASING_PHASES, Phase
from ..request_queue import AnsweredOrder, Promised, Requests
from ..status import (TOO_EARLY, Published, foreseen, health_checks, progress_message,
                      status as status_of, status_json, with_health_check)
from ..store import Store, earlier_losses, new_losses
from ..watch.next_steps import with_steps
from ..watch.report import EVENT_KINDS
from ..watch.series import HistoryPoint
from .answering import Answering
from .jobs import Jobs, LoopContext

log = logging.getLogger(__name__)

#: Kinds of events that are written to the cluster log as well.
LOGGED = frozenset({'phase', MITIGATION, *EVENT_KINDS.values()})
#: Minimum interval of two turns in seconds.
REST_SECONDS = 0.2
#: Seconds from an OSDMap that a campaign waits for to the turn that reads it. All OSDs handle a map
#: at once, and clients wait for them: ceph-mgr need not compete for the same cores just then. PGs
#: that peer also cause further maps within this time.
MAP_HANDLED_SECONDS = 0.25
#: CPU time of a turn as a share of the rest after it; while an operator waits for an order, rests
#: are shorter: with 10,000 OSDs a turn takes 3 s, and a rest of 30 s exceeds the patience of a
#: command.
BUSY_SHARE, ORDERED_SHARE = 0.1, 0.5
#: Seconds between two readings of the PGs that OSDs hold: at least so many, and so many for each
#: OSD. A reading takes 0.1 ms for each OSD (6 ms with 60 OSDs), and so 0.5 % of the time at most.
HELD_SECONDS, HELD_SECONDS_PER_OSD = 10.0, 0.02
#: Seconds after a change of a reweight in which the OSDMap may not show yet which PGs leave the
#: OSD: they are peering.
OSDS_BEFORE_SECONDS = 60.0
#: Number of intervals without a turn after which the loop is considered to hang.
LATE_TURNS = 4.0


class Loop:
    """Runs the jobs: watch, mitigation, rebalance and probes.

    1. Observe: the promises that wait, the OSDMap and what the OSDs report.
    2. Judge and act: watch and mitigation; promises and orders of operators; the campaign and
       the probe that are active. Each controller journals what it is about to do, reads it back,
       and does it.
    3. Publish: what commands, metrics and the page show, health checks, the progress event.
    """

    def __init__(self, cluster: Cluster, store: Store, options: Callable[[], Options],
                 clock: Optional[Clock] = None,
                 remarks: Callable[[], Sequence[str]] = tuple,
                 tools: Optional[ToolThread] = None) -> None:
        """`remarks`: further reasons for `status`."""
        self._cluster = cluster
        self._store = store
        self._options = options
        self.clock = clock = clock or Clock()
        self._remarks = remarks
        self._wake = threading.Event()
        #: The wake is for an OSDMap of a campaign that releases PGs.
        self._new_map = threading.Event()
        #: An operator waits; the module stops.
        self._ordered, self._stopped = threading.Event(), threading.Event()
        self._tools = tools or ToolThread(self.wake)
        self.requests = Requests(store, clock)
        context = LoopContext(cluster, store, options, clock, self._tools, self.requests)
        self._publishing = Publishing(context)
        self.jobs = Jobs(context, self._publishing.note)
        self.journal, self.shutdown = self.jobs.journal, self.jobs.shutdown
        self.rebalance, self.probing = self.jobs.rebalance, self.jobs.probing
        self._ownership = Ownership(context, self.jobs, self._publishing)
        self._observing = Observing(cluster, clock, self.jobs)
        self._answering = Answering(context, self.jobs, self._publishing.note)
        self.failed_turns = FailedTurns()
        #: CPU time of the last turn, except for answering orders.
        self._turn_seconds = self._answer_seconds = 0.0

    @property
    def published(self) -> Published:
        return self._publishing.published

    # ---- for commands: other threads

    def request(self, promise: Union[Request, Revert], refused_before: bool = False) -> Promised:
        """Queue a promise for the next turn, once the mons have stored it. Raises Refused if the
        last published state forbids it.

        The loop checks again, as the state may have changed, and logs a refusal; see
        Requests.confirm. `refused_before`: it was refused before because the cluster was not fit.
        """
        self._ownership.refuse_idle(self.published)
        self._answering.check(promise, self.published)
        promised = self.requests.put(promise, refused_before)
        self._publishing.publish_expected()
        self._wake_for_order()
        return promised

    def dry_run(self, promise: Union[Request, Revert], refused_before: bool = False) -> List[str]:
        """Texts on what a promise would do; raises Refused if it cannot be met now."""
        self._ownership.refuse_idle(self.published)
        self._answering.check(promise, self.published)
        if isinstance(promise, Revert):
            return reverted_texts(self.published.mitigated.listing, promise)
        # PGs in flight that an abort would let arrive, and pins that it would forget.
        counts = self.ask(DryRun(promise), refused_before)
        return effects(promise, self.published.rebalanced, self.published.ledger.rows,
                       self.jobs.options(), counts['arriving'], counts['forgotten'])

    def ask(self, order: AnsweredOrder, refused_before: bool = False) -> Json:
        """Have the loop answer an order, or carry it out; waits for the answer. Raises Refused.

        `refused_before`: it was refused before because the cluster was not fit.
        """
        return self.requests.ask(order, self._wake_for_order, refused_before)

    def _wake_for_order(self) -> None:
        self._ordered.set()
        self._wake.set()

    def status(self) -> Json:
        """`perfguard status`, how old it is, and the address of the page."""
        return {**status_json(self.published, self.clock()), 'page': self._cluster.page()}

    def report_seconds(self) -> float:
        """Seconds until all OSDs have reported again and a turn has read the reports."""
        return self._cluster.stats_period() + REST_SECONDS

    def probed(self) -> Probed:
        """The state of the probes for commands."""
        return self.probing.probed

    def advice(self) -> Advice:
        """The last result of `perfguard advise`."""
        return self.jobs.advising.advice

    def advise(self) -> Json:
        """`perfguard advise --refresh`: the advice as JSON, examined again unless it is younger
        than ADVICE_FRESH_SECONDS: readers may repeat the command all the time."""
        advice = self.advice()
        if self.clock() - advice.time < ADVICE_FRESH_SECONDS:
            return advice_json(advice)
        return self.ask(AdviseOrder('advise'))

    def history_of(self, subject: str, condensed: bool) -> Optional[List[HistoryPoint]]:
        """The points of "cluster", "osd.N" or a pool, newest last: of an hour, or `condensed` of a
        week. None: unknown name."""
        return self.jobs.watching.history(subject, condensed)

    def drawn(self, since: float, pools: Sequence[int]) -> Json:
        """The last hour after `since` of the cluster and of some pools, for the page."""
        return self.jobs.watching.drawn(since, pools)

    # ---- between two turns

    def wait(self) -> None:
        """Wait until the next turn is due, or `wake` is called, but at least for a rest in relation
        to the last turn, which is shorter once an operator has given an order."""
        options = self._options()
        # `waiting`: an earlier turn has deferred an order. A new order sets `_ordered`.
        busy = self.jobs.busy or self.requests.waiting
        interval = options.campaign_interval if busy else options.loop_interval
        rest_seconds, shortest_rest = self._rest_seconds(), self._rest_seconds(ORDERED_SHARE)
        self._stopped.wait(shortest_rest)
        if not self.requests.waiting:
            self._ordered.wait(rest_seconds - shortest_rest)
        self._wake.wait(max(0.0, interval - rest_seconds))
        # All OSDs handle a new map at once: leave the cores to them.
        if self._new_map.is_set() and not self.requests.waiting:
            self._ordered.wait(MAP_HANDLED_SECONDS)
        self._ordered.clear()
        self._new_map.clear()
        self._wake.clear()

    def _rest_seconds(self, busy_share: float = BUSY_SHARE) -> float:
        """Seconds to leave to other modules after the last turn, whose CPU time is at most
        `busy_share` of them: a turn holds the GIL, for long on a large cluster."""
        return max(REST_SECONDS, self._turn_seconds / busy_share)

    def wake(self) -> None:
        self._wake.set()

    def wake_for_map(self) -> None:
        """For a new OSDMap: wake the loop if it may show that a PG in flight has peered or arrived
        or, with auto_expand and without a campaign, a change of CRUSH to catch at once."""
        campaign = self.published.rebalanced.campaign
        if not campaign.active:
            if self._options().auto_expand:
                self._wake.set()
        elif campaign.flights.in_flight:
            self._new_map.set()
            self._wake.set()

    def stop(self) -> None:
        """End `wait` at once."""
        self._stopped.set()
        self._wake_for_order()

    # ---- life

    def load(self) -> None:
        """Load the state of an earlier mgr from the store."""
        self._ownership.load()

    def close(self) -> None:
        """After the last turn: refuse orders that wait, end the threads and the active probe, write
        pending events, and close the cluster."""
        self.requests.close()
        self._tools.close()
        self.jobs.drives.close()
        try:
            self.probing.close()
            self.jobs.begin_turn()
            # Without a quorum of the mons, a write would never return.
            if self.jobs.may_record():
                self._publishing.events.save()
        finally:
            self._cluster.close()

    # ---- one turn

    def turn(self) -> None:
        """Run one turn, if this mgr owns the journal, and measure its CPU time."""
        begin_seconds = time.thread_time()
        self._answer_seconds = 0.0
        try:
            if self._ownership.may_act():
                self._turn()
            self.failed_turns.clear()
        finally:
            # The rest after a turn grows with this time, and the watch must continue while an
            # operator waits for an answer. So answers do not count.
            self._turn_seconds = time.thread_time() - begin_seconds - self._answer_seconds

    def failed(self, error: Exception) -> None:
        """Note that a turn failed; after a few in a row, a health check is raised."""
        self.failed_turns.note(error)
        check = self.failed_turns.check()
        if check:
            self._publishing.warn(check)

    def _turn(self) -> None:
        """Observe, carry out requests and orders, run all jobs, and publish. Commands that wait for
        an order are woken last."""
        self.jobs.begin_turn()
        self._answering.expire(self.clock())
        # Taken off the queue before the observation, which depends on them.
        requests = self.requests.promised(Request.document)
        observation, view = self._observing.observe([request.promise for request in requests])
        # Read after the OSDMap, so that an option that was set before a change of CRUSH applies.
        options = self._limited_by_shutdown(self.jobs.options())
        options = self._observing.with_flight_cap(options, observation)
        observation = self._observing.run_watch(observation, view, options)
        self._answering.revert_mitigations()
        observation = self._observing.run_mitigation(observation, view, options)
        # Complete pending writes before a request may begin another campaign.
        self.rebalance.finish_pending_writes(observation)
        self._answering.execute(requests, observation)
        begin_seconds = time.thread_time()
        answered = self._answering.answer(observation, view, options)
        self._answer_seconds = time.thread_time() - begin_seconds
        try:
            self._rest_of_turn(observation, view, options)
        finally:
            self._answering.wake(answered)

    def _limited_by_shutdown(self, options: Options) -> Options:
        """During a shutdown borrowed settings are given back, and none is borrowed without an
        order."""
        return replace(options, mitigation_mode='off', auto_expand=False) \
            if self.shutdown.ordered else options

    def _rest_of_turn(self, observation: Observation, view: View, options: Options) -> None:
        """The rest of a turn, after the requests and orders: the next step of a shutdown, the
        campaign, probes, drives and advice; then publish."""
        self._answering.shut_down_further(observation)
        # OSDs keep their last queries when the module is disabled, which no code of it notices.
        self._cluster.count_clients(not self.shutdown.done)
        # The shutdown may have been ordered in this turn, and be complete.
        options = self._limited_by_shutdown(options)
        self.rebalance.turn(observation, view, options, self.requests.waits_for('rollback'))
        self.probing.turn(observation, view, options, self.rebalance.active, self.shutdown.ordered)
        self.jobs.drives.turn(observation.now, available=not observation.signals.counts.inactive)
        self.jobs.advising.turn(observation, view, self.rebalance.open, self.jobs.untrimmed_epochs)
        self.requests.settle(self._store.is_verified)
        remarks = [*observation.orchestrating.remarks, *self.shutdown.remarks,
                   *self.requests.remarks, *self.clock.remarks(), *self._remarks(),
                   *self.jobs.remarks]
        self._publishing.publish(
            self.jobs, observation, options, self._turn_seconds, stale_after=self._rest_seconds()
            + LATE_TURNS * max(options.loop_interval, options.campaign_interval),
            remarks=[text for text in remarks if text])


class Observing:
    """The first part of a turn.

    1. `observe`: the OSDMap and what the OSDs report.
    2. `run_watch`: what that says about PGs, pools and OSDs.
    3. `run_mitigation`: what is done against it.
    """

    def __init__(self, cluster: Cluster, clock: Clock, jobs: Jobs) -> None:
        self._cluster = cluster
        self._clock = clock
        self._jobs = jobs
        self._flight_cap = FlightCap()
        #: The evacuation, and what it was computed from.
        self._evacuation: Evacuation = {}
        self._basis: Optional[Tuple[object, ...]] = None
        #: The OSDs at `_osds_noted_at`, and those that were noted before them; {}: none yet.
        self._osds_noted: Mapping[int, Osd] = {}
        self._osds_before: Mapping[int, Osd] = {}
        self._osds_noted_at = 0.0
        #: The last reading of the PGs that OSDs hold; None: no campaign needs one.
        self._held_pgs: Optional[HeldPgs] = None

    def observe(self, requests: Sequence[Request] = ()) -> Tuple[Observation, View]:
        """Read the cluster once, for all jobs of a turn; what is costly only if one needs it.
        `requests`: the requests that this turn will execute. The observation lacks what the watch
        and the mitigation add (`run_watch`, `run_mitigation`)."""
        rebalance = self._jobs.rebalance
        # Read before the OSDMap, so that the OSDMap contains the last commands of the balancer.
        balancer_busy = rebalance.active and self._cluster.balancer_busy()
        view = self._cluster.map_view()
        signals = self._cluster.signals(view.osdmap)
        stored = self._cluster.stored_options() \
            if rebalance.wants_stored_options(view.osdmap, requests) else None
        # The OSDs of a PG that is stale may lack copies as well.
        needs_degraded = rebalance.active and (signals.counts.degraded > 0
                                               or signals.counts.stuck > 0)
        if self._cluster.unanswered():
            rebalance.unanswered_at = self._clock()
        # Also of a campaign that has ended: the next one, and so its preview, knows them as well.
        kept_rules = rebalance.campaign.pinning.kept_rules
        mons_alike = bool(rebalance.campaign.open or kept_rules) and self._cluster.mons_alike()
        # Some mons cancel upmaps under rules under which others keep them. While mons differ, the
        # next leader may cancel what this one keeps.
        crush = self._cluster.crush(view.crush_version).with_upmaps_kept_under(
            kept_rules if mons_alike else frozenset())
        now, pg_limit = self._clock(), self._cluster.pgs_per_osd_limit()
        return Observation(
            now=now, clock_set=self._clock.set_by(), signals=signals,
            settings=Settings(view.osdmap, self._cluster.balancer_active(), stored, balancer_busy,
                              self._cluster.flags_set_by_others()
                              if NOREBALANCE in view.osdmap.flags else frozenset(),
                              self._cluster.values_set_by_others(rebalance.balancer_log_seconds)
                              if rebalance.campaign.holds.held or self._jobs.mitigating.held
                              else {}),
            placement=view.placement, crush=crush, evacuation=self._evacuated(view, crush),
            osds_before=self._earlier_osds(now, view.osdmap),
            stats_period=self._cluster.stats_period(),
            degraded_osds=self._cluster.degraded_osds() if needs_degraded else frozenset(),
            new_map=view.osdmap.epoch != rebalance.audited_epoch,
            crush_version=view.crush_version,
            pg_limit=pg_limit,
            held_pgs=self._recent_held_pgs(now, view.osdmap, signals) if pg_limit else None,
            split_limit=self._cluster.split_limit(), unanswered_at=rebalance.unanswered_at,
            balancing=self._cluster.balancing(),
            orchestrating=self._cluster.orchestrating(), mons_alike=mons_alike), view

    def _recent_held_pgs(self, now: float, osdmap: OsdMap, signals: Signals) -> Optional[HeldPgs]:
        """The PGs that OSDs hold, for a campaign that releases PGs; None: there is none. While OSDs
        have not reported their PGs to this mgr, they are read as often as their number allows."""
        held, interval = self._held_pgs, HELD_SECONDS_PER_OSD * len(osdmap.osds)
        if not signals.counts.unreported:
            interval = max(HELD_SECONDS, interval)
        if self._jobs.rebalance.campaign.phase not in RELEASING_PHASES:
            held = None
        elif held is None or not 0.0 <= now - held.time < interval:
            held = HeldPgs(now, {osd: space.pgs for osd, space in self._cluster.osd_space().items()
                                 if space.pgs is not None})
        self._held_pgs = held
        return held

    def _earlier_osds(self, now: float, osdmap: OsdMap) -> Mapping[int, Osd]:
        """The OSDs OSDS_BEFORE_SECONDS ago, or up to twice as long; at first: since this mgr became
        active."""
        if not 0.0 <= now - self._osds_noted_at < OSDS_BEFORE_SECONDS:
            self._osds_before = self._osds_noted or osdmap.osds
            self._osds_noted, self._osds_noted_at = osdmap.osds, now
        return self._osds_before

    def _evacuated(self, view: View, crush: CrushRules) -> Evacuation:
        """The remapped PGs that leave OSDs which are out, were reweighted, have no CRUSH weight, or
        are too full. OSDs whose weight the change of the campaign has set to 0 do not count, nor do
        reweights from before the campaign. Computed once per OSDMap, and again if the PGs of the
        campaign change: with reweights on all of 5,000 OSDs and 48,000 remapped PGs it takes 0.3 to
        0.8 s."""
        campaign = self._jobs.rebalance.campaign
        emptied_and_released: Tuple[OsdSet, FrozenSet[str]] = (
            campaign.crush.emptied, frozenset(campaign.flights.in_flight)) \
            if campaign.open else ((), frozenset())
        # PGs that others have remapped leave OSDs that are too full as well. Before PINNED, and
        # in an abort, the campaign decides on every remapped PG.
        decided = campaign.flights.in_flight.keys() | campaign.pinning.unpinnable.keys() \
            if campaign.phase in (Phase.PINNED, *RELEASING_PHASES) else None
        reweights = campaign.crush.reweights if campaign.open else {}
        basis = (view.osdmap.epoch, *emptied_and_released, decided, reweights)
        if basis != self._basis:
            # These stay too full until they are not even nearly full.
            leaving = {osd for osds in self._evacuation.values() for osd in osds}
            self._evacuation = evacuated(view.osdmap, view.placement, crush, *emptied_and_released,
                                         decided, leaving, reweights)
            self._basis = basis
        return self._evacuation

    def with_flight_cap(self, options: Options, observation: Observation) -> Options:
        """The options, with the limit of PGs in flight that applies on this cluster if
        max_pgs_in_flight is 0."""
        return self._flight_cap.resolve(options, observation.osdmap, observation.crush,
                                        observation.crush_version)

    def run_watch(self, observation: Observation, view: View, options: Options) -> Observation:
        """Run the watch, and add what it knows to the observation."""
        jobs, watching, now = self._jobs, self._jobs.watching, observation.now
        watching.turn(now, view, observation.signals, options, jobs.rebalance.in_flight,
                      probing=jobs.probing.affects_latency(now, observation.stats_period),
                      probed=jobs.probing.loaded(now, observation.stats_period),
                      weights=observation.crush.weights())
        return replace(observation, clients=watching.clients, osd_counts=watching.osd_counts,
                       slow_osds=frozenset(watching.watched.slow_osds),
                       deleting=watching.deleting, devices=watching.devices,
                       untrimmed_epochs=jobs.untrimmed_epochs)

    def run_mitigation(self, observation: Observation, view: View, options: Options) -> Observation:
        """Carry out mitigations and rescues. The observation then shows the campaign what these
        require of it, and which settings others than the campaign have borrowed."""
        jobs = self._jobs
        jobs.mitigating.turn(observation, view, jobs.watching.watched, jobs.rebalance.campaign,
                             options, borrowed_elsewhere=jobs.ledger(
                                 observation.osdmap).borrowed_by_others(Owner.MITIGATION))
        # After the campaign, the CRUSH weights show what it has drained.
        drained = jobs.rebalance.campaign.drained if jobs.rebalance.active else ()
        jobs.rescuing.turn(observation, options, jobs.rebalance.pins.keys(),
                           campaign=jobs.rebalance.active, shutting_down=jobs.shutdown.ordered,
                           drained=drained)
        settings = replace(observation.settings, borrowed_elsewhere=jobs.ledger(
            observation.osdmap).borrowed_by_others(Owner.CAMPAIGN))
        return with_mitigation(replace(observation, settings=settings), jobs.mitigating.mitigated)


class Publishing:
    """`published` is replaced whole at the end of each turn; other threads read it."""

    def __init__(self, context: LoopContext) -> None:
        self._cluster = context.cluster
        self._store = context.store
        self._clock = context.clock
        self._requests = context.requests
        self.events = EventLog(self._store)
        self._lines = ClusterLogLines()
        #: Held while `published` changes.
        self._lock = threading.Lock()
        #: Health checks of the last complete turn.
        self._checks: HealthChecks = {}
        self.published = Published()

    def note(self, event: Event) -> None:
        """Keep an event, and write the important ones to the cluster log."""
        now = self._clock()
        self.events.note(event, now)
        if event.kind == MITIGATION or event.kind in EVENT_KINDS.values():
            # Rare events, which matter most to operators.
            self.events.save_soon()
        if event.kind in LOGGED:
            line = self._lines.line(event, now)
            if line is not None:
                self._cluster.cluster_log(line)

    def publish_expected(self) -> None:
        """For the thread of a command: publish the last state again, with the effect of its request
        before the next turn."""
        with self._lock:
            self.published = self._expected(self.published, self._clock())

    def _expected(self, published: Published, now: float) -> Published:
        """The status with the effects of pending requests."""
        for request in self._requests.promised(Request.document):
            published = foreseen(published, request.promise, now)
        return published

    def warn(self, check: HealthChecks) -> None:
        """Raise a health check that no turn can publish, beside those of the last complete turn."""
        with self._lock:
            self.published = with_health_check(self.published, check)
        try:
            self._cluster.health_checks(with_steps({**self._checks, **check}))
        except Exception as why:
            # The error that failed the turn may occur here as well.
            log.debug('cannot set the health check: %r', why)

    def publish(self, jobs: Jobs, observation: Observation, options: Options, turn_seconds: float,
                stale_after: float, remarks: List[str]) -> None:
        """Publish the results of a turn: for commands, and as health checks and progress events.
        `turn_seconds`: CPU time of the turn before this one; `stale_after`: seconds after which the
        next turn is late; `remarks`: texts of further reasons for `status`."""
        rebalanced = jobs.rebalance.report(observation, options)
        campaign = rebalanced.status
        watched, mitigated = jobs.watching.watched, jobs.mitigating.mitigated
        checks = {**watched.checks, **health_checks(
            rebalanced.campaign, observation, options, campaign.reasons,
            [loss.text for loss in self._store.losses]),
            **jobs.probing.checks(observation.now), **jobs.advising.checks}
        self._show_progress(rebalanced.campaign, campaign)
        published = Published(
            status=status_of(observation, campaign, checks, watched, mitigated,
                             jobs.probing.status(), turn_seconds, remarks),
            rebalanced=rebalanced, watched=watched, mitigated=mitigated,
            ledger=jobs.ledger(observation.osdmap), events=self.events.all(),
            turned=observation.now, stale_after=stale_after, clock_set=observation.clock_set)
        with self._lock:
            self.published = self._expected(published, observation.now)
        self._checks = checks
        # Last: a turn that fails before this must not clear PERFGUARD_LOOP_FAILED.
        self._cluster.health_checks(with_steps(checks))
        self.events.save_now_and_then(observation.now, jobs.may_record)

    def _show_progress(self, campaign: Campaign, status: CampaignStatus) -> None:
        if campaign.active:
            self._cluster.progress(progress_id(campaign),
                                   progress_message(campaign, status),
                                   progress_share(campaign))


class Ownership:
    """1. `load`: this mgr has become the active one; load the state of an earlier mgr.
    2. `may_act`: at the beginning of each turn. If the journal belonged to another mgr in the
       meantime, load the state again.
    3. `refuse_idle`: for commands, in other threads.
    """

    def __init__(self, context: LoopContext, jobs: Jobs, publishing: Publishing) -> None:
        self._store = context.store
        self._clock = context.clock
        self._requests = context.requests
        self._jobs = jobs
        self._publishing = publishing
        #: Why this version is too old to read the stored campaign, so that it must not act; '' if
        #: it is not.
        self._too_old = ''

    def load(self) -> None:
        """Load the state of an earlier mgr from the store, and report what is lost."""
        now = self._clock()
        self._jobs.journal.load(now)
        self._publishing.events.load()
        self._jobs.load(now)
        self._note_losses(self._load_shared())
        # Log that the campaign continues.
        self._jobs.rebalance.resumed()

    def _load_shared(self) -> List[str]:
        """Load the state that another mgr may have changed; returns texts on what cannot be
        read."""
        lost = self._jobs.load_shared(self._clock())
        # After the campaign: this version may only act if it can read the campaign.
        withheld = self._store.withheld()
        self._too_old = too_old(withheld) if withheld else ''
        # Requests of a newer version are left to an mgr of that version.
        return lost if withheld else lost + self._requests.load()

    def may_act(self) -> bool:
        """At the beginning of a turn: whether this mgr may act. It may not while its journal is
        fenced, since another mgr has become the active one, or if this version is too old to read
        the stored state. Then orders are refused, and a health check gives the reason."""
        journal = self._jobs.journal
        self._jobs.read_back(self._clock())
        if journal.fenced and not self._claim_again():
            self._requests.refuse(journal.failure)
            self._publishing.warn(idle_check(journal.failure))
            return False
        if self._too_old:
            self._requests.refuse(self._too_old)
            self._publishing.warn(old_check(self._too_old))
            return False
        return True

    def _claim_again(self) -> bool:
        """While fenced: own the journal again if this mgr is the active one again, and load the
        stored state, since another mgr may have been active meanwhile. Returns whether it owns it:
        the MgrMap is read at intervals only (Journal.claim), and `_too_old` may be set by then."""
        if not self._jobs.journal.claim(self._clock()):
            return False
        # Another mgr may have replaced what this one wrote, so that is not read back any more.
        self._store.expect_nothing()
        self._store.recheck_newer()
        self._note_losses(self._load_shared())
        self._publishing.note(
            Event('start', 'this mgr acts again', 'it is the active mgr in the MgrMap'))
        return True

    def _note_losses(self, lost: Sequence[str]) -> None:
        """Report what could not be read by events and, until an operator acknowledges it, by a
        health check. `lost`: as for `new_losses`."""
        store = self._store
        losses = [loss for loss in new_losses(store, lost) if loss not in store.losses]
        for loss in losses:
            self._publishing.note(Event('store', loss.text))
        store.losses = [*store.losses, *losses, *(
            loss for loss in earlier_losses(store) if loss not in store.losses)]

    def refuse_idle(self, published: Published) -> None:
        """Raise Refused while this mgr must not act, or has not completed a turn yet."""
        if self._jobs.journal.fenced:
            raise Refused(errno.EAGAIN, self._jobs.journal.failure)
        if self._too_old:
            raise Refused(errno.EPERM, self._too_old)
        if not published.turned:
            raise Refused(errno.EAGAIN, TOO_EARLY)
