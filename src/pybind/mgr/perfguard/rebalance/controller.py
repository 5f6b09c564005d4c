# SPDX-License-Identifier: LGPL-2.1-or-later
"""The campaign's controller: between operators' orders, the cluster, and the store."""
import errno
import logging
from dataclasses import replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, cast

from ..cluster.ports import Cluster, View
from ..cluster.tool_thread import ToolJob, ToolThread
from ..cluster.types import OsdMap
from ..errors import Code, Reason, Refused
from ..events import Event
from ..holds import Row
from ..observation import Observation
from ..options import Options
from ..store import Store
from ..watch.stop_conditions import NOTHING, Touched, unhealthy
from . import goals, report
from .adopting import adopted
from .auto_expand import AutoExpand
from .campaign_store import CampaignHistory, CampaignStore, PinStore
from .crush_orders import CrushOrders, Prepared, begin_rollback, check_rollback
from .executor import execute
from .holds import can_be_missed, needs_stored_options, option_text, without_refused
from .orders import Order
from .mappings import exported, imported, parsed
from .phases import judge
from .pin_goals import PinGoals
from .pinning import count_again, unpinned_warning
from .plans import (PlanGround, PlanOrder, PlanQueue, QueuedOrder, SavedPlan, WaitingOrder,
                    with_ground)
from .preview import costs
from .replacing import CANCEL, DRAINS, REPLACE, Replacing
from .report import Forecast, Rebalanced, ReleasePlan, campaign_rows
from .requests import Request, apply, check, overridden, problems, refuse_bad_options, unfit
from .rule_change import left_intermediate
from .set_back import without_future
from .turn_inputs import TurnInputs
from .types import Campaign, Holds, Phase

log = logging.getLogger(__name__)

Json = Dict[str, Any]


class RebalanceController:
    """The campaign, between the cluster and the store.

    1. Before the observation: `wants_stored_options` and `wants_degraded_osds` say what else of
       the cluster is worth reading in this turn.
    2. `apply_requests` and `carry_out`: what operators ask for, checked once more against what is
       observed. Either may begin a campaign.
    3. `turn`: a change of CRUSH without `prepare` may begin a campaign (auto_expand). For the
       one that is open: goals, forecast and the mapping after its change are worked out, the
       phase decides (phases.judge), the decision is journalled, read back, and sent. A campaign
       that has ended is filed.
    4. `report`: what commands see of it.
    """

    def __init__(self, cluster: Cluster, store: Store, options: Callable[[], Options],
                 clock: Callable[[], float], tools: ToolThread, note: Callable[[Event], None],
                 kept: Callable[[], bool], may_write: Callable[[], bool],
                 reopen: Callable[[], None],
                 worked_out: Callable[[Any, int], Optional[ToolJob[Any]]]) -> None:
        """`tools`: works out beside the loop what takes Ceph's tools; `kept`: whether the mons have
        what was journalled; `may_write`: whether this mgr owns the journal; `reopen`: ends a
        completed shutdown, Refused during one; `worked_out`: the job of the same order
        and CRUSH version, whose answer came too late."""
        self._cluster = cluster
        self._store = store
        self._options = options
        self._clock = clock
        self._tools = tools
        self._note = note
        self._kept = kept
        self._may_write = may_write
        self.reopen = reopen
        self._worked_out = worked_out
        self._history = CampaignHistory(store)
        self._crush_orders = CrushOrders(cluster, store)
        self.plans = PlanQueue(store, self, options, note)
        self.replacing = Replacing(store, self._crush_orders, note)
        self._reasons: Tuple[Reason, ...] = ()
        self._failures: Tuple[str, ...] = ()
        self._forget()

    def _forget(self) -> None:
        """What is known of the campaign, and what follows from it."""
        self.campaign: Optional[Campaign] = None
        self.stored = CampaignStore(self._store, self._clock)
        self.pins = PinStore(self._store)
        self.forecast = Forecast()
        self._pin_goals = PinGoals(self._cluster, self._tools, self.pins, self.forecast,
                                   self._note, self._may_write)
        self._auto_expand = AutoExpand(self._store, self._may_write)
        self._inputs = TurnInputs(self._cluster, self._crush_orders, self._tools)
        #: The last OSDMap that this process compared the pins with.
        self.audited_epoch = -1
        #: Until when commands had no answer.
        self.answered = self._clock()

    # ---- life

    def load(self) -> List[str]:
        """Take up what an earlier mgr left in the store; returns what cannot be read."""
        return self.load_again()

    def load_again(self) -> List[str]:
        """Continue from what is stored: another mgr may have been active for a while."""
        self._forget()
        self._history.load()
        self._auto_expand.load()
        lost = self.pins.load()
        campaign, unread = self.stored.load()
        if campaign is not None:
            # Whether the last mgr's commands ever left is not known.
            self.campaign = count_again(campaign, campaign.pinning)
        self._crush_orders.load()
        lost += unread + self.plans.load() + self.replacing.load()
        self._adopt_pins()
        return lost

    def resumed(self) -> None:
        """This mgr has become active: note that the campaign continues."""
        if self.active:
            assert self.campaign is not None
            self._note(Event('start', 'campaign %d continues: %s' % (
                self.campaign.id, self.campaign.phase.value), 'this mgr became active'))

    def _adopt_pins(self) -> None:
        """Pins whose campaign is not known any more are held like those of an aborted one."""
        if self.campaign is None and self.pins:
            self.campaign = Campaign(
                id=self._history.last_id or 1, phase=Phase.ABORTED,
                started=self._clock(), ended=self._clock(), prepared=True, held=True,
                left=len(self.pins))

    # ---- what it is now

    def overridden(self, options: Options) -> Options:
        """The options with the settings of the campaign that is active."""
        campaign = self.campaign
        return overridden(options, campaign.settings) if campaign and campaign.active else options

    @property
    def active(self) -> bool:
        return self.campaign is not None and self.campaign.active

    @property
    def open(self) -> bool:
        """Active, or aborted with pins that are left."""
        return self.campaign is not None and self.campaign.open

    @property
    def in_flight(self) -> int:
        """PGs that an active campaign moves."""
        return len(self.campaign.in_flight) if self.campaign is not None and self.active else 0

    def held(self, osdmap: OsdMap) -> List[Row]:
        """What is borrowed from the cluster."""
        return campaign_rows(self.campaign, osdmap, len(self.pins))

    def not_stored(self, why: str) -> None:
        """Nothing can be journalled, so nothing is done: the reason that commands show."""
        self._reasons = (Reason(Code.NOT_STORED, why),)

    def wants_stored_options(self, osdmap: OsdMap, asked: Sequence[Request]) -> bool:
        """Whether settings are about to be held or given back; `asked`: what operators ask for.

        Reading the configuration database costs a mon command, so it is not done in every turn.
        """
        preparing = any(request.verb == 'prepare' for request in asked)
        return preparing or self.campaign is not None and needs_stored_options(
            self.campaign, bool(self.pins), osdmap, self._options(), bool(asked))

    # ---- requests and orders

    def apply_request(self, request: Request, seen: Observation) -> Optional[Refused]:
        """What an operator asked for; returns why it cannot be met any more."""
        self._pin_goals.look_again()
        try:
            check(self.campaign, request, self.pins_held_back, self._unhealthy(seen),
                  unfit(seen.osdmap), self._loose(seen.osdmap))
            if request.verb == 'prepare':
                self.reopen()
        except Refused as refused:
            self._note(Event('refused', 'rebalance %s' % request.verb, str(refused)))
            return refused
        self._note(Event('request', ' '.join(filter(None, ('rebalance', request.verb,
                                                           request.code))), 'by command'))
        if request.verb == 'prepare':
            self._begin(seen)
        else:
            self.apply(request, seen.now)
            if request.verb == 'finish' and request.keep:
                # Whoever stops the movement does not want the next one to begin.
                self.withdraw_plans('the campaign before it was ended by "rebalance finish --keep"')
        return None

    def apply(self, request: Request, now: float) -> None:
        """A request that `check` let through (not: prepare)."""
        assert self.campaign is not None
        self.campaign = apply(self.campaign, request, now)

    def carry_out(self, waiting: WaitingOrder, seen: Observation, view: View) -> Optional[Json]:
        """None while what the order needs is being worked out; raises Refused."""
        if isinstance(waiting.order, PlanOrder):
            return self.plans.carry_out(waiting, seen)
        if waiting.order.verb in (REPLACE, CANCEL, DRAINS):
            return self.replacing.carry_out(
                waiting.order, seen, self.campaign,
                lambda order, keep: self.change(waiting, seen, order, keep=keep))
        if waiting.order.verb == 'export':
            return exported(seen.osdmap)
        if waiting.order.verb == 'adopt':
            answer = self._adopt(waiting, seen, view)
        elif waiting.order.verb == 'import':
            answer = self._import(waiting, seen, view)
        elif waiting.order.verb == 'rollback':
            answer = self._roll_back(waiting, seen)
        else:
            return self.change(waiting, seen, waiting.order)
        return answer and {**answer, **costs(seen, self._options())}

    def change(self, waiting: WaitingOrder, seen: Observation, order: Order,
               saved: Optional[SavedPlan] = None, why: str = 'by command',
               keep: Callable[[], None] = lambda: None) -> Optional[Json]:
        """Begin the campaign of an order; None while what it does is being worked out.

        `saved`: the plan that is carried out; `keep`: journals what belongs to the change."""
        # What was forced is the change. What the cluster is like when the turn of a queued plan
        # comes, its operator has not seen.
        request = Request('prepare', order.force and not isinstance(waiting, QueuedOrder),
                          sure=order.verb == 'rule')
        if not order.dry_run:
            # Refuse what no change is allowed to do before running Ceph's tools for this one.
            self._check_new(request, seen, NOTHING)
        prepared: Optional[Prepared] = self._prepared(
            waiting, seen, lambda: self._crush_orders.preparing(order, seen, self._options(),
                                                                self._history.rows))
        if prepared is None:
            return None
        if order.dry_run:
            return {**prepared.as_json(order, None), **costs(seen, self._options())}
        if saved is not None:
            saved.refuse_other(prepared)
        check(self.campaign, request, self.pins_held_back,
              self._unhealthy(seen, prepared.touched))
        prepared.refuse_unfit(order, seen, self._options())
        self._crush_orders.keep(prepared, seen)
        keep()
        self._note(Event('request', order.verb, why))
        self._begin(seen)
        assert self.campaign is not None
        self.campaign = replace(self.campaign, trigger=order.verb, automatic=True,
                                change=prepared.change, acknowledged=prepared.accepted,
                                plan=saved.name if saved is not None else '')
        if prepared.moves_first:
            # PGs end where the new rule or pgp_num places them, whatever the present one does.
            self.campaign = replace(self.campaign, target='crush')
        self.stored.save(self.campaign)
        return {**prepared.as_json(order, self.campaign.id), **costs(seen, self._options())}

    def preview(self, waiting: WaitingOrder, seen: Observation,
                order: Order) -> Optional[Tuple[Prepared, PlanGround]]:
        """What an order will do, and on what that rests; None: not worked out yet."""
        return cast(Optional[Tuple[Prepared, PlanGround]], self._prepared(
            waiting, seen, lambda: with_ground(self._crush_orders.preparing(
                order, seen, self._options(), self._history.rows), seen)))

    def last_end(self) -> Optional[Tuple[int, str]]:
        """The id and the phase of the last campaign; None: not known."""
        if self.campaign is not None:
            # Filed after it has ended: a crash in between leaves an older one as the last there.
            return self.campaign.id, self.campaign.phase.value
        return self._history.last_end()

    def withdraw_plans(self, why: str) -> None:
        """No plan that was approved is carried out, and no new device is filled."""
        self.plans.withdraw_all(why)
        self.replacing.cancel_all(why)

    def _check_new(self, request: Request, seen: Observation,
                   touched: Optional[Touched] = None) -> None:
        """Raise Refused where no campaign may begin; see watch.stop_conditions.unhealthy."""
        self.reopen()
        check(self.campaign, request, self.pins_held_back, self._unhealthy(seen, touched),
              unfit(seen.osdmap))
        refuse_bad_options(request, problems(
            self._options(), {pool.name for pool in seen.osdmap.pools.values()}))

    def _adopt(self, waiting: WaitingOrder, seen: Observation, view: View) -> Optional[Json]:
        """Begin a campaign with upmaps of others as its pins."""
        known = frozenset(self.pins)
        return self._begin_with(
            waiting, seen, lambda: lambda: adopted(seen, view.pool_up, known, waiting.order.force),
            lambda found: found.refuse_nothing())

    def _import(self, waiting: WaitingOrder, seen: Observation, view: View) -> Optional[Json]:
        """Begin a campaign whose goals are upmaps that were exported before."""
        order, space = waiting.order, self._cluster.osd_space()
        return self._begin_with(
            waiting, seen,
            lambda: lambda: imported(seen, view.pool_up, parsed(order.mappings or b'')),
            lambda found: order.dry_run or found.refuse_unfit(seen, space, order.force),
            target='crush')

    def _begin_with(self, waiting: WaitingOrder, seen: Observation,
                    work: Callable[[], Callable[[], Any]], refuse: Callable[[Any], Any],
                    **settings: Any) -> Optional[Json]:
        """Begin a campaign with the pins that are worked out."""
        order = waiting.order
        self.refuse_held()
        if not order.dry_run:
            self._check_new(Request('prepare', order.force), seen)
        found = self._prepared(waiting, seen, work)
        if found is None:
            return None
        refuse(found)
        answer: Callable[[Optional[int]], Json] = found.as_json
        if order.dry_run:
            return answer(None)
        found = found.still_there(seen.osdmap)
        self._note(Event('request', order.verb, 'by command'))
        self._begin(seen)
        assert self.campaign is not None
        # What CRUSH was before is not known, and it has changed already.
        self._crush_orders.forget_before()
        self.campaign = replace(self.campaign, trigger=order.verb, automatic=True,
                                crush_version=-1, **settings)
        self.stored.save(self.campaign)
        self.pins.note(found.pins)
        answer = found.as_json
        return answer(self.campaign.id)

    def refuse_held(self) -> None:
        """Raise Refused while an aborted campaign holds PGs: they would be released as well, and
        how to roll it back forgotten."""
        if self.campaign is not None and self.campaign.held:
            raise Refused(errno.EBUSY, 'campaign %d is aborted and keeps PGs pinned: "rebalance '
                          'resume", "rebalance rollback" or "rebalance finish --keep" first'
                          % self.campaign.id)

    def _prepared(self, waiting: WaitingOrder, seen: Observation,
                  work: Callable[[], Callable[[], Any]]) -> Any:
        """What an order will do, worked out beside the loop; None: not yet. Raises Refused."""
        if waiting.job is None:
            waiting.crush_version = seen.crush_version
            # What a rollback rests on changes with each release, until the abort is over.
            earlier = None if waiting.order.verb == 'rollback' and self.active else \
                self._worked_out(waiting.order, seen.crush_version)
            waiting.job = earlier or self._tools.submit(work())
            if waiting.job is None:
                raise Refused(errno.EAGAIN, 'too many changes are being worked out: try again in '
                              'a moment')
        if not waiting.job.done:
            return None
        if waiting.crush_version != seen.crush_version and not waiting.order.dry_run:
            raise Refused(errno.EAGAIN, 'CRUSH has changed while the change was being worked out: '
                          'try again')
        return waiting.job.result()

    def _roll_back(self, waiting: WaitingOrder, seen: Observation) -> Optional[Json]:
        order = waiting.order
        campaign = check_rollback(self.campaign, seen.crush_version)
        prepared = self._prepared(
            waiting, seen, lambda: self._crush_orders.preparing_back(campaign, self.pins, seen))
        if prepared is None:
            return None
        assert prepared.change is not None
        if order.dry_run:
            return prepared.as_json(order, None)
        self.reopen()
        self._crush_orders.keep(prepared, seen)
        self._note(Event('request', order.verb, 'by command'))
        self.campaign = begin_rollback(campaign, prepared.change, seen.now)
        self.stored.save(self.campaign)
        return prepared.as_json(order, campaign.id)

    # ---- one turn

    def turn(self, seen: Observation, view: View, options: Options, rolling_back: bool) -> None:
        """With whatever was asked for. `rolling_back`: the order to do so is being worked out."""
        self._crush_orders.forget_purged(seen.osdmap)
        self._catch_unannounced(seen, options)
        if self.plans.due(seen.now) and self._may_write():
            self.plans.start_next(seen)
        self._go_on_replacing(seen, options)
        seen = replace(seen, osds_changed=self._auto_expand.osds_changed)
        if self.open:
            if rolling_back:
                # Where its pins may lead is being worked out: no other OSD may get data meanwhile.
                seen = _held(seen, 'working out the rollback')
            assert self.campaign is not None
            seen = self._with_goals(self._inputs.with_balancer(seen), view)
            self.forecast.update_moves(self.pins, seen, view.crush_version)
            seen = self._inputs.complete(self.campaign, seen, options)
            self.answered = seen.answered
            self._judge_and_act(seen, options)
        self._archive_ended()

    def _catch_unannounced(self, seen: Observation, options: Options) -> None:
        """auto_expand: begin a campaign for a change of CRUSH without `prepare`."""
        why = self._auto_expand.look(seen, self.campaign, options.auto_expand_ratio,
                                     keep=options.auto_expand)
        if not why or not options.auto_expand or unfit(seen.osdmap) or not self._may_write():
            return
        if self.campaign is not None and self.campaign.held:
            # Its pins would be released, and how to roll it back forgotten: operators decide.
            self._note(Event('refused', 'auto_expand', '%s, but campaign %d is '
                             'aborted and keeps PGs pinned' % (why, self.campaign.id)))
            self._auto_expand.forget()
            return
        self._begin_unannounced(seen, 'auto_expand', why)

    def _begin_unannounced(self, seen: Observation, what: str, why: str) -> None:
        self._note(Event('request', what, why))
        self._begin(seen)
        assert self.campaign is not None
        self._crush_orders.forget_before()
        # What it is for has happened already, whatever the CRUSH version is by now.
        self.campaign = replace(self.campaign, trigger='auto', automatic=True, crush_version=-1)

    def _go_on_replacing(self, seen: Observation, options: Options) -> None:
        """Fill the new devices that serve."""
        if not self.replacing or not self._may_write():
            return

        def catch(why: str) -> None:
            if not unfit(seen.osdmap):
                self._begin_unannounced(seen, REPLACE, why)

        self.replacing.turn(
            seen, self.campaign, options.auto_expand_settle,
            lambda waiting, order: self.change(waiting, seen, order, why='new devices serve'),
            catch)

    def _begin(self, seen: Observation) -> None:
        last = max(self._history.last_id, self.campaign.id if self.campaign else 0)
        self._store.acknowledge_losses()
        self._inputs.begin()
        # Pins that an aborted campaign left are this one's to release, to goals of its own.
        self.pins.note(goals.without_goals(self.pins))
        self._remember_crush(seen)
        self.campaign = Campaign(
            id=last + 1, phase=Phase.PREPARED, started=seen.now, phase_since=seen.now,
            target=self._options().target, first_epoch=seen.osdmap.epoch,
            last_epoch=seen.osdmap.epoch, crush_version=seen.crush_version,
            holds=self._holds_left(),
            crush_own=seen.crush_version)

    def _remember_crush(self, seen: Observation) -> None:
        """For a rollback. A campaign that continues an aborted one goes back to before that."""
        last = self.campaign
        if last is not None and last.held and last.crush_own == seen.crush_version:
            return
        why_not = self._crush_orders.remember(seen)
        if why_not:
            self._note(Event('rollback', 'this campaign cannot be rolled back', why_not))

    def _holds_left(self) -> Holds:
        """What an aborted campaign still borrows is given back by the one that follows it."""
        if self.campaign is None or not self.campaign.held:
            return Holds()
        return replace(self.campaign.holds, given_up=())

    @property
    def pins_held_back(self) -> int:
        return report.held_back(self.campaign, self.pins)

    def _loose(self, osdmap: OsdMap) -> str:
        return ''.join(self.left_intermediate(osdmap)) or unpinned_warning(
            self.campaign, self.pins_held_back, osdmap, self._options())

    def left_intermediate(self, osdmap: OsdMap) -> List[str]:
        """What the end of the campaign would leave in force; at most one."""
        change = self.campaign.change if self.campaign is not None and self.campaign.open else None
        found = left_intermediate(change, osdmap)
        return [found] if found else []

    def _unhealthy(self, seen: Observation, touched: Optional[Touched] = None) -> List[Reason]:
        reasons = unhealthy(seen.signals, seen.osdmap, seen.osd_counts, touched)
        if unfit(seen.osdmap):
            reasons.append(Reason(Code.OLD_CLIENTS, unfit(seen.osdmap)))
        return reasons

    def _with_goals(self, seen: Observation, view: View) -> Observation:
        """`seen` with whether the pins have the goals that the OSDMap and the phase ask for."""
        assert self.campaign is not None
        if not self._pin_goals.refresh_raws(self.campaign, seen):
            return replace(
                _held(seen, 'working out where CRUSH places the PGs that are pinned by a vector'),
                goals_fit=False)
        found = self._pin_goals.work_out(self.campaign, seen, view, self._options())
        if found is not None:
            self.campaign = replace(self.campaign, goals=found.mark)
            self.stored.save(self.campaign)
            self._note(goals.event(found, self.pins))
        return seen if self._pin_goals.fit else replace(seen, goals_fit=False)

    def _judge_and_act(self, seen: Observation, options: Options) -> None:
        assert self.campaign is not None
        before = self.campaign
        decision = judge(before, self.pins, self.forecast.moves, seen, options)
        sending = bool(decision.pins or decision.actions)
        if (sending or decision.unpins or self.stored.due(decision.campaign, sending)) \
                and not self._may_write():
            return
        # The intent goes to the store before anything is sent.
        self.pins.note(decision.pins)
        self.campaign = decision.campaign
        self.stored.save(self.campaign, sending)
        if not self._kept():
            # Decided anew in the next turn. New pins that nothing shows are forgotten then.
            self.campaign = before
            self.stored.write_again()
            return
        for event in decision.events:
            self._note(event)
        outcome = execute(self._cluster, decision.actions)
        if decision.campaign.change != before.change:
            # That may have taken a minute.
            self.answered = self._clock()
        if outcome.unanswered:
            self.campaign = count_again(self.campaign, outcome.unanswered)
        self._continue_without(outcome.refused)
        self._failures = outcome.failures
        for failure in self._failures[:5]:
            log.warning('command failed: %s', failure)
            self._note(Event('failed', failure))
        self.pins.forget(decision.unpins)
        self.forecast.forget(set(decision.pins) | decision.unpins)
        self.audited_epoch = seen.osdmap.epoch
        self._reasons = decision.reasons

    def _continue_without(self, refused: Mapping[str, str]) -> None:
        """Options that the mons did not accept, with the error."""
        assert self.campaign is not None
        holds = self.campaign.holds
        names = [name for name in sorted(refused) if can_be_missed(holds, name)]
        self.campaign = replace(self.campaign, holds=without_refused(holds, names))
        for name in names:
            self._note(Event('settings', 'the campaign continues without %s' % option_text(name),
                             'the mons did not accept it: %s' % refused[name]))

    def resume(self, now: float) -> None:
        """Finish what an mgr that died was about to write, before another campaign may begin."""
        if self.campaign is not None:
            self.campaign = without_future(self.campaign, now)
        if self.plans.saved.was_begun(self.campaign) and self._may_write():
            assert self.campaign is not None
            self.plans.saved.remove(self.campaign.plan)
        self._archive_ended()

    def _archive_ended(self) -> None:
        """File a campaign that has ended; again if the last attempt was cut short."""
        campaign = self.campaign
        if campaign is None or campaign.active or not self.stored.known:
            return
        row = report.summary(campaign)
        filed = row in self._history.rows
        if filed and campaign.held or not self._may_write():
            return
        if not filed:
            self._cluster.progress_done(report.progress_id(campaign))
            self._history.file(row, self._options().history)
        if campaign.held:
            return
        if campaign.phase is Phase.DONE:
            self.pins.clear()
        self._crush_orders.ended()
        self.stored.remove()

    # ---- what commands see

    def report(self, seen: Observation, options: Options) -> Rebalanced:
        self.forecast.update_plan(self.campaign, self.pins, seen, options)
        moves = self.forecast.plan
        return Rebalanced(
            campaign=self.campaign,
            status=report.status(self.campaign, self.pins, moves.bytes if self.active else 0,
                                 self.shown_reasons(seen), options, seen.now),
            plan=ReleasePlan(moves, self.forecast.unheld, self.campaign.unpinnable
                             if self.campaign is not None else {}),
            history=tuple(self._history.rows), pins=self.pins_held_back,
            unhealthy=tuple(self._unhealthy(seen)), unfit=unfit(seen.osdmap),
            loose=self._loose(seen.osdmap))

    def shown_reasons(self, seen: Observation) -> Tuple[Reason, ...]:
        """Of the last turn."""
        if not self.open:
            return tuple(report.idle_reasons(seen, self.campaign))
        return (*self._reasons, *(Reason(Code.COMMAND_FAILED, 'a command failed: %s' % text)
                                  for text in self._failures[:3]))


def _held(seen: Observation, why: str) -> Observation:
    """Nothing is released in this turn."""
    return replace(seen, stops=(*seen.stops, Reason(Code.OUTLOOK, why)))
