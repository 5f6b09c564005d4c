# SPDX-License-Identifier: LGPL-2.1-or-later
"""The campaign's controller: connects orders, the cluster and the store."""
import errno
import logging
import math
import statistics
from collections import deque
from dataclasses import replace
from typing import Callable, Deque, List, Mapping, Optional, Sequence, Tuple

from ..cluster.set_by_others import BALANCER
from ..cluster.ports import View
from ..cluster.types import Document, OsdMap
from ..errors import Code, Reason, Refused
from ..events import Event
from ..ledger import Row
from ..observation import Observation
from ..options import Options
from ..text import osds_text
from . import report
from .adopting import exported
from .auto_expand import LAST_CLEAN, AutoExpand, StoredClean
from .awaiting import Awaiting
from .campaign import NO_CAMPAIGN, Campaign
from .campaign_orders import CampaignOrders, not_fit
from .campaign_store import PinStore
from .campaigns import CampaignContext, Campaigns
from .crush_orders import CrushOrders
from .draft import Draft
from .epochs import why_too_many_pins
from .executor import Outcome, execute
from .goals import moves_for_balance
from .holds import gives_back, needs_stored_options, without_refused
from .orders import AWAIT, Order
from .phases import judge, moved_by_last_tranche
from .pinning import unpinned_warning
from .plans import PlanOrder, PlanQueue
from .queued import QueuedOrder, WaitingOrder
from .release_moves import ReleaseMoves
from .replacing import CANCEL, DRAINS, REPLACE, Replacing
from .report import Rebalanced, ReleasePreview, campaign_rows
from .requests import DryRun, Request, aborted_again, apply, check, unfit, why_rule_first
from .risks import Risk, refuse
from .settings import overridden
from .throttle import ignored_targets
from .turn_inputs import PinGoals, TurnInputs
from .types import Action, Phase, SetEntry

log = logging.getLogger(__name__)

#: Number of the last batches of upmaps whose median counts, so that one election of the mons does
#: not.
MEASURED_COMMITS = 3
#: Upmaps that the OSDMap does not show are sent again after this multiple of the mons' answering
#: time, if that is longer than readback_timeout.
READBACK_COMMITS = 4.0
#: Seconds after the observation, about as long as a turn, from which its commands count as late.
#: For less, the campaign need not be written again.
LATE_COMMANDS_SECONDS = 1.0
#: Age up to which a reading of the log for "balancer off" suffices while it stays borrowed.
BALANCER_LOG_SECONDS = 300.0
#: OSDs that a text names.
_NAMED_OSDS = 10
_STORING = Reason(Code.UNPINNED, 'storing the pins that the campaign begins with')


class RebalanceController:
    """Controls the campaign.

    1. Before the observation: `wants_stored_options` determines whether this turn reads the
       configuration database.
    2. `apply_request` and `carry_out`: requests and orders of operators, checked once more against
       the observation. Either may begin a campaign.
    3. `turn`: a change of CRUSH without `prepare`, an approved plan, or a new device may begin a
       campaign. For the open campaign: goals, release moves and the mapping after its change are
       computed, the phase decides (phases.judge), the decision is journalled, read back, and
       sent. A campaign that has ended is filed.
    4. `report`: the state for commands.
    """

    def __init__(self, context: CampaignContext) -> None:
        self._context = context
        self._note, self._may_write = context.note, context.may_write
        self._crush_orders = CrushOrders(context.cluster, context.store)
        self.campaigns = Campaigns(context, self._crush_orders, lambda: self._inputs.begin())
        self._orders = CampaignOrders(context, self.campaigns, self._crush_orders)
        self.plans = PlanQueue(context, self.campaigns, self._orders, self._unfold)
        self.replacing = Replacing(context.store, self._crush_orders, context.note)
        self.awaiting = Awaiting(context, self._crush_orders)
        self._reasons: Tuple[Reason, ...] = ()
        self._failures: Tuple[str, ...] = ()
        self._forget()

    def _forget(self) -> None:
        """Forget what this process has derived from the campaign and its pins, or measured, as
        before `load`."""
        self.release_moves = ReleaseMoves()
        self._pin_goals = PinGoals(self._context, self.pins, self.release_moves)
        self._auto_expand = AutoExpand(
            lambda document: self._context.store.put(LAST_CLEAN, document), self._may_write)
        self._inputs = TurnInputs(self._context.cluster, self._crush_orders, self._context.tools)
        #: The last OSDMap that this process compared the pins with.
        self.audited_epoch = -1
        #: The OSDMap epoch at which an earlier mgr has last stored the campaign, and when this one
        #: has loaded it.
        self._epoch_before = self.campaign.progress.last_epoch
        self._loaded_at = self._context.clock()
        #: As Observation.down_since, of the last turn.
        self._down_since: Mapping[int, float] = {}
        #: When commands were last unanswered, or took long: their readback is awaited from then on.
        self.unanswered_at = self._context.clock()
        #: Seconds until the mons answered the last batches of upmaps.
        self._commit_seconds: Deque[float] = deque(maxlen=MEASURED_COMMITS)

    # ---- life

    def load(self) -> List[str]:
        """Continue from the stored state; returns texts on what cannot be read.

        Also called later, once another mgr may have been active for a while.
        """
        lost = self.campaigns.load()
        self._forget()
        self._auto_expand.load(
            self._context.store.load_record(LAST_CLEAN, Optional[StoredClean], None))
        return lost + self._crush_orders.load() + self.plans.load() + self.replacing.load(
            self._context.clock()) + self.awaiting.load()

    def resumed(self) -> None:
        """This mgr has become active: log that the campaign continues."""
        campaign = self.campaign
        if campaign.active:
            self._note(Event('start', 'campaign %d continues: %s' % (
                campaign.id, campaign.phase.value), 'this mgr became active'))

    # ---- the present state

    @property
    def campaign(self) -> Campaign:
        return self.campaigns.current

    @campaign.setter
    def campaign(self, campaign: Campaign) -> None:
        self.campaigns.current = campaign

    @property
    def pins(self) -> PinStore:
        return self.campaigns.pins

    def overridden(self, options: Options) -> Options:
        """The options with the settings of the campaign that is active."""
        campaign = self.campaign
        if not campaign.active:
            return options
        return overridden(options, campaign.orders.settings)

    @property
    def active(self) -> bool:
        return self.campaigns.active

    @property
    def busy(self) -> bool:
        """A campaign is active, or may begin soon."""
        return self.active or self.awaiting.busy

    @property
    def open(self) -> bool:
        """Active, or aborted with remaining pins."""
        return self.campaigns.open

    @property
    def in_flight(self) -> int:
        """PGs that an active campaign moves."""
        campaign = self.campaign
        return len(campaign.flights.in_flight) if campaign.active else 0

    def held(self, osdmap: OsdMap) -> List[Row]:
        """Borrowed settings."""
        return [*campaign_rows(self.campaign, osdmap, len(self.pins)), *self.awaiting.held]

    def not_stored(self, why: str) -> None:
        """The journal cannot be written, so nothing is done; the reason for commands."""
        self._reasons = (Reason(Code.NOT_STORED, why),)

    def wants_stored_options(self, osdmap: OsdMap, requests: Sequence[Request]) -> bool:
        """Whether settings are about to be borrowed or given back; `requests`: those of operators
        for this turn.

        Reading the configuration database costs a mon command, so it is not done in every turn.
        """
        preparing = any(request.verb == 'prepare' for request in requests)
        return preparing or needs_stored_options(
            self.campaign, pinned=bool(self.pins), osdmap=osdmap, options=self._context.options(),
            has_requests=bool(requests))

    @property
    def balancer_log_seconds(self) -> float:
        """Age in seconds up to which a reading of the log for "balancer off" suffices. The command
        must be known when a borrowed balancer is given back, and the log is short."""
        if BALANCER not in self.campaign.holds.held:
            return math.inf
        return 0.0 if gives_back(self.campaign, bool(self.pins)) else BALANCER_LOG_SECONDS

    # ---- requests and orders

    def apply_request(self, request: Request, observation: Observation,
                      refused_before: bool = False) -> Optional[Refused]:
        """Carry out a request of an operator; returns the refusal if that is no longer possible,
        else None. `refused_before`: it was refused a moment ago, as the cluster was not fit:
        another refusal is not logged."""
        self._pin_goals.look_again()  # the request may change what they depend on
        try:
            self._check(request, observation)
            if request.verb == 'prepare':
                self._context.refuse_closing()
                self.campaigns.remember_crush(observation)
                self._context.reopen()
        except Refused as refused:
            if not refused_before:
                self._note(Event('refused', 'campaign %s' % request.verb, str(refused)))
            return refused
        self._note(Event('request', request.text, 'by command'))
        if request.verb == 'prepare':
            self.campaigns.begin(observation)
        else:
            self.apply(request, observation.now)
            if request.verb == 'finish' and request.keep:
                # After an abort, operators do not expect the next campaign to begin.
                self.withdraw_all('the previous campaign was ended by "campaign finish --keep"')
        return None

    def _check(self, request: Request, observation: Observation) -> None:
        """Raise Refused if a request of an operator is not possible in the present state of the
        campaign and the cluster."""
        check(self.campaign, request, self.campaigns.pins_held_back, not_fit(observation),
              unfit(observation.osdmap), loose=self._why_not_finish(observation),
              awaiting=self.awaiting.waits,
              left_rule=why_rule_first(self.campaign, observation.osdmap))
        if request.verb == 'prepare':
            self.campaigns.refuse_removing()
        if request.verb == 'pin':
            self._refuse_pins(observation.osdmap, request)

    def _refuse_pins(self, osdmap: OsdMap, request: Request) -> None:
        """Raise Refused if more PGs are remapped or pinned than the campaign may pin, and the
        request does not accept that: PGs without a pin would move with the first release."""
        pins = len(osdmap.pg_temp.keys() | self.pins.keys())
        why = why_too_many_pins(pins, self.overridden(self._context.options()), osdmap,
                                len(self.pins))
        if why:
            refuse([Risk(Code.PIN_LIMIT, why + ': revert the CRUSH change and make it in several '
                         'steps', errno.E2BIG)], request.accept, 'ceph perfguard campaign pin')

    def apply(self, request: Request, now: float) -> None:
        """Apply a request that `check` has accepted (except prepare). Without an active campaign,
        an abort ends the wait of "expand --await"."""
        if request.verb == 'abort' and not self.active:
            self.awaiting.end('"campaign abort" was ordered')
            return
        # A campaign that is abandoned does not become ABORTED, for which `_start_next_plan` would
        # withdraw the plans.
        if request.verb == 'abort' and self.campaigns.abandon():
            self.plans.withdraw_all('the campaign was aborted')
        else:
            self.campaign = apply(self.campaign, request, now)

    def carry_out(self, waiting: WaitingOrder, observation: Observation,
                  view: View) -> Optional[Document]:
        """Carry out any order, and return the answer. None while a job of the order is running, or
        what it needs is being stored; raises Refused."""
        if isinstance(waiting.order, DryRun):
            self._check(waiting.order.request, observation)
            return {'arriving': self._arriving(observation),
                    'forgotten': sum(map(moves_for_balance, self.pins.values()))}
        if isinstance(waiting.order, PlanOrder):
            return self.plans.carry_out(waiting, observation)
        if waiting.order.verb in (REPLACE, CANCEL, DRAINS):
            return self.replacing.carry_out(
                waiting.order, observation, self.campaign,
                lambda order, keep: self._orders.begin_change(
                    waiting, observation, order, keep=keep))
        if waiting.order.verb == AWAIT:
            return self.awaiting.carry_out(waiting, observation, self._context.options())
        if waiting.order.verb == 'export':
            return exported(observation.osdmap)
        return self._orders.carry_out(waiting, observation, view)

    def _arriving(self, observation: Observation) -> int:
        """The number of PGs in flight that an abort cannot pin back, and so lets arrive."""
        campaign, options = self.campaign, self.overridden(self._context.options())
        if not campaign.active:
            return 0
        return len(moved_by_last_tranche(Draft.of(
            campaign, self.pins, self.release_moves.moves, observation, options)))

    def _unfold(self, order: Order, observation: Observation) -> Tuple[Order, Callable[[], None]]:
        """What the first campaign of a saved plan's order carries out, and a function that journals
        the rest: the drain of a replacement; of any other order the order itself, and no rest."""
        if order.verb != REPLACE:
            return order, lambda: None
        return self.replacing.draining(order, observation, self.campaign)

    def withdraw_all(self, why: str) -> None:
        """Cancel approved plans, and stop waiting for new devices and OSDs."""
        self.plans.withdraw_all(why)
        self.replacing.cancel_all(why)
        self.awaiting.end(why)

    @property
    def withdrawn(self) -> List[str]:
        """Texts on what `withdraw_all` would end."""
        return [
            *(['"expand --await" will end: OSDs that boot later get data at once']
              if self.awaiting.waits else []),
            *self.plans.withdrawn,
            *(['the replacement of %s will end: the new devices are not filled at the pace of '
               'clients' % osds_text(self.replacing, _NAMED_OSDS)]
              if self.replacing else [])]

    # ---- one turn

    def turn(self, observation: Observation, view: View, options: Options,
             rolling_back: bool) -> None:
        """One turn, after requests and orders. `rolling_back`: the effects of a rollback are being
        computed."""
        self._orders.forget_computed(observation.now)
        self._crush_orders.forget_old_records(
            observation, self.campaign if self.open else NO_CAMPAIGN, self._may_write)
        self._catch_unannounced_crush_change(observation, options)
        if self.plans.may_start_next(observation.now) and self._may_write():
            self._start_next_plan(observation)
        self._go_on_replacing(observation, options)
        self._go_on_awaiting(observation, options)
        commit_seconds = statistics.median(self._commit_seconds or [0.0])
        observation = replace(
            observation, osds_or_crush_changed=self._auto_expand.osds_or_crush_changed,
            down_since=self._note_down_osds(observation),
            commit_seconds=commit_seconds)
        # The slower the mons are, the later commands count as lost and are sent again.
        options = replace(options, readback_timeout=max(
            options.readback_timeout, READBACK_COMMITS * commit_seconds))
        waits = self._why_it_waits(observation, options)
        if waits is not None:
            # Requests may have changed the campaign, which another failover must not forget.
            if self._may_write():
                self.campaigns.put(self.campaign)
            self._reasons = (waits,)
        elif self.open:
            self._turn_of_campaign(observation, view, options, rolling_back)
        self.campaigns.file_in_history()

    def _note_down_osds(self, observation: Observation) -> Mapping[int, float]:
        self._down_since = {osd.id: self._down_since.get(osd.id, observation.now)
                            for osd in observation.osdmap.osds.values() if osd.is_down_but_in}
        return self._down_since

    def _why_it_waits(self, observation: Observation, options: Options) -> Optional[Reason]:
        """Why the campaign is only stored in this turn; None: it is not, or there is none."""
        if self.campaigns.storing:
            # Until all pins that it begins with are stored, the campaign does nothing else.
            return _STORING
        if self.open and self._awaits_osdmap(observation, options):
            return Reason(Code.STARTING, 'waiting for OSDMap %d, which an earlier mgr has seen'
                          % self._epoch_before)
        return None

    def _awaits_osdmap(self, observation: Observation, options: Options) -> bool:
        """Whether the OSDMap is older than one that an earlier mgr has acted on: it does not show
        all pins, which would count as released. ceph-mgr only waits for the OSDMap that blocklists
        that mgr. The wait ends, since the epochs of a cluster that was rebuilt are lower."""
        return observation.osdmap.epoch < self._epoch_before \
            and observation.now - self._loaded_at <= options.readback_timeout

    def _turn_of_campaign(self, observation: Observation, view: View, options: Options,
                          rolling_back: bool) -> None:
        """Complete the observation with what the open campaign needs, then let it decide and
        act."""
        restarting = observation.orchestrating.restarting(observation.osdmap)
        if restarting:
            observation = _with_stop(
                observation, restarting + '; "campaign accept UPGRADE" continues', Code.UPGRADE)
        if rolling_back:
            # The targets of its pins are being computed: no other OSD may get data meanwhile.
            observation = _with_stop(observation, 'computing the rollback')
        observation = replace(
            observation, same_drive=self.replacing.on_replaced_drive,
            other_device=self._crush_orders.on_other_device(observation.osdmap))
        observation = self._with_goals(self._inputs.with_balancer(observation), view)
        self.release_moves.update_moves(self.pins, observation,
                                        pinning=self.campaign.phase is Phase.PINNING)
        observation = self._inputs.complete(self.campaign, observation, options)
        self.unanswered_at = observation.unanswered_at
        self._judge_and_act(observation, options)

    def _start_next_plan(self, observation: Observation) -> None:
        """Begin the campaign of the plan that was approved first. Withdraw all plans unless the
        last campaign is known to be DONE."""
        why = self.plans.why_queue_waits()
        if why:
            # Only the plans: awaited OSDs must stay empty, and devices are still replaced.
            self.plans.withdraw_all(why)
        else:
            self.plans.start_next(observation)

    def _catch_unannounced_crush_change(self, observation: Observation, options: Options) -> None:
        """auto_expand: begin a campaign for a change of CRUSH without `prepare`, or say why none
        begins. An aborted campaign with pins pins the remapped PGs as well."""
        # Also without auto_expand, for `osds_or_crush_changed`.
        why = self._auto_expand.look(observation, self.campaign, options.auto_expand_ratio,
                                     is_enabled=options.auto_expand)
        may_begin = options.auto_expand and self._may_write() and not self.campaigns.removing
        if not why or not may_begin or unfit(observation.osdmap):
            return
        # Why an operator has to decide.
        why_not = self._context.store.interrupted
        if why_not:
            self._note(Event('refused', 'auto_expand', '%s, but %s' % (why, why_not)))
            self._auto_expand.forget()
        elif self.campaign.held:
            # Another campaign would release its pins, and make its rollback impossible.
            self._note(Event('request', 'auto_expand', '%s: campaign %d, which is aborted, pins '
                             'these as well' % (why, self.campaign.id)))
            self.campaigns.put(aborted_again(self.campaign, observation.now))
        else:
            self._begin_unannounced(observation, 'auto_expand', why)

    def _begin_unannounced(self, observation: Observation, subject: str, why: str) -> None:
        """Begin a campaign for PGs that are remapped already."""
        self._note(Event('request', subject, why))
        # The CRUSH change has already happened, at an unknown version.
        self.campaign = self.campaigns.begin_after(observation, 'auto')

    def _go_on_replacing(self, observation: Observation, options: Options) -> None:
        """Let `Replacing` run one turn, in which it may fill new devices that are in use."""
        if not self.replacing or not self._may_write() or self.campaigns.removing:
            return

        def begin_for_remapped(why: str) -> None:
            if not unfit(observation.osdmap):
                self._begin_unannounced(observation, REPLACE, why)

        self.replacing.turn(
            observation, self.campaign, options.auto_expand_settle,
            lambda waiting, order: self._orders.begin_change(
                waiting, observation, order, why='new devices are in use'),
            begin_for_remapped, self._context.cluster.remove_osd)

    def _go_on_awaiting(self, observation: Observation, options: Options) -> None:
        """Let `Awaiting` run one turn, in which it may expand the OSDs that were awaited."""
        def fill(waiting: QueuedOrder, order: Order) -> Optional[Document]:
            # An operator decides on the pins of an aborted campaign.
            self.campaigns.refuse_held()
            return self._orders.begin_change(waiting, observation, order,
                                             why='no other OSD has appeared')

        self.awaiting.turn(observation, self.campaign, options.auto_expand_settle, fill)

    def _why_not_finish(self, observation: Observation) -> str:
        """What "campaign finish" would leave behind, or set moving; '': nothing."""
        return ''.join(self.left_intermediate(observation.osdmap)) or unpinned_warning(
            self.campaign, self.campaigns.pins_held_back, observation, self._context.options())

    def left_intermediate(self, osdmap: OsdMap) -> List[str]:
        """The intermediate change that the end of the campaign would leave in force; at most
        one."""
        change = self.campaign.change if self.campaign.open else None
        text = '' if change is None else change.left_intermediate(osdmap)
        return [text] if text else []

    def _with_goals(self, observation: Observation, view: View) -> Observation:
        """The observation with whether the pins have goals for the OSDMap and the phase
        (`goals_fit`), and with a stop while it is not known where CRUSH places PGs with a vector.
        Goals that were computed are journalled."""
        if not self._pin_goals.refresh_raws(self.campaign, observation):
            return replace(
                _with_stop(observation, 'computing where CRUSH places PGs with a pg_upmap entry'),
                goals_fit=False)
        computed = self._pin_goals.work_out(self.campaign, observation, view,
                                            self._context.options())
        if computed is not None:
            self.campaigns.put(replace(
                self.campaign, pinning=replace(self.campaign.pinning, goals=computed.mark)))
            if computed.event is not None:
                self._note(computed.event)
        return observation if self._pin_goals.goals_fit else replace(observation, goals_fit=False)

    def _judge_and_act(self, observation: Observation, options: Options) -> None:
        """Decide what the campaign does in this turn, store that, and only then send the commands.
        A decision to move data is dropped if storing took so long that it is outdated."""
        before = self.campaign
        decision = judge(before, self.pins, self.release_moves.moves, observation, options)
        sending = bool(decision.new_pins or decision.actions)
        if (sending or decision.unpins
                or self.campaigns.stored.must_save(decision.campaign, sending)) \
                and not self._may_write():
            return
        # The decision is stored before commands are sent.
        self.pins.note(decision.new_pins)
        self.campaign = decision.campaign
        self.campaigns.stored.save(self.campaign, sending)
        if not self._context.journal_is_stored():
            self._drop_decision(before)
            return
        age = self._context.clock() - observation.now
        if age > options.readback_timeout and decision.moves_data(before):
            # ceph-mgr waits for the mons without limit when it writes. Nothing was sent, so the
            # state from before is the true one. A decision that is kept would be repeated whatever
            # has happened since: the readback sends a release again without a look at its
            # conditions. Pins and norebalance harm nothing late, and an abort must not wait.
            self._drop_decision(before)
            self._note(Event('failed', 'nothing is sent: a decision was stored too late',
                             'it is based on what was observed %d s before' % age))
            return
        for event in decision.events:
            self._note(event)
        outcome = self._execute(decision.actions)
        if decision.campaign.change != before.change:
            # Sending a change may have taken a minute: its readback is awaited from now on.
            self.unanswered_at = self._context.clock()
        late_seconds = self._context.clock() - observation.now
        if late_seconds >= LATE_COMMANDS_SECONDS and self.campaign.pinning.sent:
            self.campaign = replace(
                self.campaign, pinning=self.campaign.pinning.delayed(late_seconds))
        if outcome.unanswered:
            self.campaign = replace(self.campaign, pinning=self.campaign.pinning.count_again(
                outcome.unanswered))
        holds, events = without_refused(self.campaign.holds, outcome.refused)
        self.campaign = replace(self.campaign, holds=holds)
        for event in events:
            self._note(event)
        self._failures = outcome.failures
        for failure in self._failures[:5]:
            log.warning('command failed: %s', failure)
            self._note(Event('failed', failure))
        self.pins.forget(decision.unpins)
        if not self.pins.is_tidy and self._may_write():
            self.pins.tidy()
        self.release_moves.forget(set(decision.new_pins) | decision.unpins)
        self.audited_epoch = observation.osdmap.epoch
        self._reasons = decision.reasons

    def _drop_decision(self, before: Campaign) -> None:
        """Let the next turn decide again, from the state before the decision. It forgets new pins
        that the OSDMap does not show."""
        self.campaign = before
        self.campaigns.stored.write_again()

    def _execute(self, actions: Sequence[Action]) -> Outcome:
        """Carry out the actions, and note how long the mons take for upmaps."""
        begin = self._context.clock()
        outcome = execute(self._context.cluster, actions)
        # Along with a change of CRUSH, the mons gather commands for longer.
        if actions and all(isinstance(action, SetEntry) for action in actions):
            self._commit_seconds.append(self._context.clock() - begin)
        return outcome

    def finish_pending_writes(self, observation: Observation) -> None:
        """Complete the pending writes of the last turn, or of a failed mgr, before another campaign
        may begin."""
        self.campaigns.remove_abandoned()
        self.campaigns.store_more_pins(observation)
        self.campaigns.tidy()
        if self.plans.saved.was_begun(self.campaign) and self._may_write():
            self.plans.saved.remove(self.campaign.origin.plan)
        self.campaigns.file_in_history()

    # ---- for commands

    def report(self, observation: Observation, options: Options) -> Rebalanced:
        """What commands and other parts of perfguard read of the campaign."""
        self.release_moves.update_movement(self.campaign, self.pins, observation, options)
        moves = self.release_moves.movement
        return Rebalanced(
            campaign=self.campaign,
            status=report.status(self.campaign, self.pins, moves, self.shown_reasons(observation),
                                 options, observation.wall),
            preview=ReleasePreview(moves, self.release_moves.pinnable_count, {
                **self.release_moves.refused, **self.campaign.pinning.unpinnable}),
            history=tuple(self.campaigns.history.rows), pins=self.campaigns.pins_held_back,
            unhealthy=tuple(not_fit(observation)), unfit=unfit(observation.osdmap),
            loose=self._why_not_finish(observation),
            left_rule=why_rule_first(self.campaign, observation.osdmap),
            idle_osds=sum(1 for osd in observation.crush.light_osds
                          if osd in observation.osdmap.osds
                          and observation.osdmap.osds[osd].is_up_and_in),
            awaiting=self.awaiting.waits, withdrawn=tuple(self.withdrawn),
            withdrawn_plans=tuple(self.plans.withdrawn))

    def shown_reasons(self, observation: Observation) -> Tuple[Reason, ...]:
        """What the campaign waits for, or does, according to the last turn."""
        if not self.open:
            return (*self.awaiting.reasons,
                    *report.idle_reasons(self.campaign, self.release_moves.moving_count))
        return (*self._reasons, *self.awaiting.reasons,
                *ignored_targets(observation.osdmap, self.overridden(self._context.options())),
                *(Reason(Code.COMMAND_FAILED, 'a command failed: %s' % text)
                  for text in self._failures[:3]))


def _with_stop(observation: Observation, why: str, code: str = Code.OUTLOOK) -> Observation:
    """The observation with a stop condition that is no signal of the cluster: no PG is released in
    this turn. `why`: text; `code`: what "campaign accept" calls it, OUTLOOK cannot be accepted."""
    return replace(observation, stops=(*observation.stops, Reason(code, why)))
