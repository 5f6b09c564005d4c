# SPDX-License-Identifier: LGPL-2.1-or-later
"""Orders of operators that begin a campaign, or roll one back."""
import errno
from dataclasses import replace
from typing import (AbstractSet, Callable, Iterable, List, NamedTuple, Optional, Sequence, Tuple,
                    TypeVar)

from ..cluster.ports import Future, View
from ..cluster.tool_thread import AnyJob, ToolJob
from ..cluster.types import Document, pool_of
from ..errors import Code, Reason, Refused
from ..events import Event
from ..observation import Observation
from ..upmap.semantics import NO_RAWS, PoolUp, Raws, pgs_lacking_osds
from ..watch.stop_conditions import NOTHING, WAIVABLE, Touched, unhealthy
from .adopting import Adoption, Imported, parsed, plan_adoption, plan_import
from .campaign import AnyChange, Campaign
from .campaigns import CampaignContext, Campaigns
from .crush_orders import CrushOrders
from .epochs import why_too_many_pins
from .orders import EARLIER_MAP, LOSE, Order
from .plans import PlanGround, SavedPlan, ground_of
from .preview import Preview, costs
from .queued import QueuedOrder, WaitingOrder
from .requests import Request, check, refuse_bad_options, unfit, why_rule_first
from .risks import RISKS, Risk, of_health, refuse, risks_json
from .turn_inputs import what_places
from .types import Phase

Result = TypeVar('Result')
#: Upmaps that become the pins of a campaign.
Found = TypeVar('Found', Adoption, Imported)


#: Seconds for which the effects of an order that was a preview, or accepted less, serve an order in
#: other words that has the same ones.
COMPUTED_SECONDS = 300.0


class _Computed(NamedTuple):
    """The last order whose effects were computed, when, and what they depend on."""
    order: Order
    begun: float
    basis: Tuple[object, ...]
    job: AnyJob


def not_fit(observation: Observation, touched: Optional[Touched] = None) -> List[Reason]:
    """Why no campaign may begin; []: one may. `touched`: OSDs and pools that its change concerns;
    None: not known, so all may be."""
    reasons = unhealthy(observation.signals, observation.osdmap, observation.osd_counts, touched)
    if unfit(observation.osdmap):
        reasons.append(Reason(Code.OLD_CLIENTS, unfit(observation.osdmap)))
    return reasons


def _bare(order: Order) -> Order:
    """The order without what its effects do not depend on: --accept and --dry-run. But pg_num
    without a number is possible with --dry-run only."""
    needs_dry_run = order.verb == 'pg_num' and len(order.names) == 1
    return replace(order, accept=(), dry_run=order.dry_run and needs_dry_run)


def _acceptable(health: Iterable[Reason]) -> List[Risk]:
    """The reasons that the operator may accept, as risks for a preview. The others refuse each
    order, whatever it changes, so a preview names them as warnings."""
    return [risk for risk in of_health(health) if risk.code in RISKS]


def _accepted_to_begin(health: Iterable[Reason], accept: Sequence[str]) -> List[str]:
    """Warnings: the states of the cluster in `health` that the order accepts (`accept`: codes), and
    that stop releases nevertheless."""
    codes = dict.fromkeys(reason.code for reason in health
                          if reason.code in accept and reason.code in WAIVABLE)
    return ['%s is accepted for the beginning of the campaign, and still stops releases: '
            '"campaign accept %s" ignores it' % (code, code) for code in codes]


class CampaignOrders:
    """Carries out an order in up to three steps, each of which may answer it.

    1. Refuse it if no campaign may begin.
    2. Compute its effects with Ceph's tools, in the tool thread; each turn asks for the result.
    3. Refuse unsafe effects; journal its data; begin its campaign.
    """

    def __init__(self, context: CampaignContext, campaigns: Campaigns,
                 crush_orders: CrushOrders) -> None:
        self._context = context
        self._options, self._note = context.options, context.note
        self.reopen = context.reopen
        self._campaigns = campaigns
        self._crush_orders = crush_orders
        #: An order whose pins are being stored, and its answer.
        self._storing: Optional[Tuple[WaitingOrder, Document]] = None
        #: The last change for which the cluster was not fit, its CRUSH version, and what it
        #: concerns, as `touched` of not_fit.
        self._unfit: Optional[Tuple[Order, int, Optional[Touched]]] = None
        self._computed: Optional[_Computed] = None

    def carry_out(self, waiting: WaitingOrder, observation: Observation,
                  view: View) -> Optional[Document]:
        """Carry out an order that begins or rolls back a campaign, or only supposes another cluster
        (LOSE, `what_if`), and return the answer. None while a job of the order is running, or its
        pins are being stored; raises Refused."""
        if waiting.order.verb == LOSE or waiting.order.what_if is not None:
            return self._preview(waiting, observation, lambda: self._crush_orders.supposing(
                waiting.order, observation, self._options(), self._campaigns.history.rates()))
        if waiting.order.verb == 'adopt':
            answer = self._adopt(waiting, observation, view)
        elif waiting.order.verb == 'import':
            answer = self._import(waiting, observation, view)
        elif waiting.order.verb == 'rollback':
            answer = self._roll_back(waiting, observation)
        else:
            return self.begin_change(waiting, observation, waiting.order)
        return answer and {**answer, **costs(observation, self._options())}

    def begin_change(self, waiting: WaitingOrder, observation: Observation, order: Order,
                     saved: Optional[SavedPlan] = None, why: str = 'by command',
                     keep: Callable[[], None] = lambda: None) -> Optional[Document]:
        """Begin the campaign of an order that makes a change, and return its preview as the answer;
        with --dry-run, only return that. None while the effects are being computed. Raises Refused.

        `order`: that of `waiting`, or the one that a queued `waiting` stands for. `saved`: the plan
        that is carried out; None: none. `why`: of the event. `keep`: called when the campaign
        begins, to journal what the caller knows of it.
        """
        # Another rule for a pool also ends the intermediate one of an aborted campaign.
        pool_name = order.names[0] if order.verb == 'rule' else ''
        if not order.dry_run:
            # Refuse impossible changes before running the tools of Ceph.
            self._crush_orders.check_arguments(order, observation)
        if order.verb == 'balance':
            self._campaigns.refuse_held()
        if not order.dry_run:
            self._check_new(observation, pool_name)
            if waiting.refused_before:
                # It was refused a moment ago: the tools of Ceph run only once the cluster is fit.
                self._refuse_health(
                    waiting, not_fit(observation, self._known_touched(order, observation)))
        preview = self._preview(
            waiting, observation, lambda: self._crush_orders.previewing(
                order, observation, self._options(), self._campaigns.history.rates()))
        if preview is None:
            return None
        if saved is not None:
            saved.refuse_other(preview, order)
        preview = replace(preview, warnings=(
            *self._campaigns.why_larger(preview.change, observation), *preview.warnings))
        if order.dry_run:
            warned = replace(preview, warnings=(*preview.warnings,
                                                *self._refusal(observation, pool_name)))
            return warned.answer(order, None, observation, self._options(),
                                 _acceptable(not_fit(observation, preview.touched)))
        self._check_new(observation, pool_name)
        self._refuse_not_accepted(waiting, observation, order, saved, preview)
        self._campaigns.remember_crush(observation)
        self.reopen()
        self._crush_orders.journal(preview, observation)
        keep()
        self._note(Event('request', order.verb, why))
        last = self._campaigns.current
        change = preview.change.begun(observation).continuing(
            last.change if last.held else None, observation.osdmap)
        campaign = self._with_change(order, preview, change, observation, self._campaigns.begin(
            observation, order.verb, *((saved.name, saved.token) if saved is not None else ())))
        self._campaigns.put(campaign)
        warned = replace(preview, warnings=(*preview.warnings, *_accepted_to_begin(
            not_fit(observation, preview.touched), (*order.accept, *waiting.order.accept))))
        return warned.answer(order, campaign.id, observation, self._options())

    def _with_change(self, order: Order, preview: Preview, change: AnyChange,
                     observation: Observation, campaign: Campaign) -> Campaign:
        """`campaign`, which has just begun, with the change of its order, and with what the order
        accepts."""
        campaign = replace(campaign, automatic=True, change=change,
                           orders=campaign.orders.accepting(*preview.accepted),
                           pinning=campaign.pinning.accepting_undersized(preview.undersized))
        # The bytes are unknown if it also moves PGs of an earlier change, whose pins it has.
        if preview.required_bytes is not None and not self._campaigns.pins:
            campaign = replace(campaign, bill=replace(
                campaign.bill, required_bytes=preview.required_bytes))
        if preview.details.follows_change:
            campaign = replace(campaign, target='crush')
        # Accepted pins would keep a change from being divided into tranches.
        if not preview.in_tranches(order, observation):
            campaign = self._accepting_pins(campaign, preview.most_pins, observation)
        return campaign

    def _refuse_not_accepted(self, waiting: WaitingOrder, observation: Observation, order: Order,
                             saved: Optional[SavedPlan], preview: Preview) -> None:
        """Raise Refused for risks of a change, and for a state of the cluster, that the order does
        not accept. Risks of a saved plan were accepted when it was saved; the state is accepted
        when the plan is approved. If the cluster is not fit, note what the change concerns, for the
        retries (_known_touched)."""
        health = not_fit(observation, preview.touched)
        risks = preview.all_risks(order, observation, self._options())
        self._unfit = (order, observation.crush_version, preview.touched) if health else None
        if isinstance(waiting, QueuedOrder):
            self._refuse_health(waiting, health)
        if saved is not None:
            refuse(risks, order.accept, saved.command_to_save)
            self._refuse_health(waiting, health)
        else:
            # The `waiting.order` of a queued order is only a placeholder.
            command = (order if isinstance(waiting, QueuedOrder) else waiting.order).command
            refuse([*of_health(health), *risks], order.accept, command)

    def _known_touched(self, order: Order, observation: Observation) -> Optional[Touched]:
        """What the change of an order concerns, as `touched` of not_fit, if this order was refused
        a moment ago for the state of the cluster: its retries must not run the tools of Ceph to
        learn this again. NOTHING for another order, whose effects are then computed first."""
        if self._unfit is not None:
            refused_order, crush_version, touched = self._unfit
            if (refused_order, crush_version) == (order, observation.crush_version):
                return touched
        return NOTHING

    def _refuse_health(self, waiting: WaitingOrder, health: Sequence[Reason]) -> None:
        """Raise Refused for the state of the cluster, unless the order accepts it. A queued order
        accepts none: no operator has seen the state in which it begins."""
        if isinstance(waiting, QueuedOrder) and health:
            raise Refused(errno.EPERM, '%s; it begins when this has cleared' % '; '.join(
                reason.text for reason in health), not_fit=True)
        refuse(of_health(health), waiting.order.accept, waiting.order.command)

    def preview(self, waiting: WaitingOrder, observation: Observation,
                order: Order) -> Optional[Tuple[Preview, PlanGround]]:
        """The effects of an order, and the state they were computed from; None: not computed
        yet."""
        def prepare() -> Callable[[], Tuple[Preview, PlanGround]]:
            work = self._crush_orders.previewing(
                order, observation, self._options(), self._campaigns.history.rates())
            return lambda: (work(), ground_of(observation))

        return self._preview(waiting, observation, prepare)

    def _adopt(self, waiting: WaitingOrder, observation: Observation,
               view: View) -> Optional[Document]:
        """Begin a campaign that takes over upmaps of other tools as pins. Returns the answer of the
        command; None: it is being computed, or the pins are being stored."""
        own_pgids = frozenset(self._campaigns.pins)
        # Only vectors that keep PGs on drained OSDs: others may have been set by hand.
        with_vector = [pgid for pgid, osds in observation.osdmap.upmap_vectors.items()
                       if not observation.crush.light_osds.isdisjoint(osds)]

        def work() -> Adoption:
            pools = set(map(pool_of, (*observation.osdmap.upmap_items,
                                      *observation.osdmap.upmap_vectors)))
            return plan_adoption(
                observation.osdmap, observation.crush, view.pool_up, observation.balancing,
                own_pgids, uncovered=Code.NOT_BALANCED in waiting.order.accept,
                raws=self._raws_behind(with_vector, pools, observation, view.pool_up),
                pool_bytes=observation.signals.pool_bytes)

        return self._begin_with(waiting, observation, lambda: work, Adoption.risks)

    def _import(self, waiting: WaitingOrder, observation: Observation,
                view: View) -> Optional[Document]:
        """Begin a campaign whose goals are exported upmaps. Returns the answer of the command;
        None: it is being computed, or the pins are being stored."""
        order, space = waiting.order, self._context.cluster.osd_space()

        def risks(result: Imported) -> List[Risk]:
            # A preview may show that nothing would move.
            return [] if order.dry_run and not result.pins else result.risks(
                observation, space, self._options())

        def work() -> Imported:
            pairs = parsed(order.mappings or b'')
            with_vector = [pgid for pgid in pairs if pgid in observation.osdmap.upmap_vectors]
            return plan_import(observation, view.pool_up, pairs, self._raws_behind(
                with_vector, set(map(pool_of, pairs)), observation, view.pool_up))

        # With the target "balanced", other goals would replace the imported ones.
        return self._begin_with(waiting, observation, lambda: work, risks,
                                lambda campaign: replace(campaign, target='crush'))

    def _accepting_pins(self, campaign: Campaign, pins: int, observation: Observation) -> Campaign:
        """The campaign, which ignores the limit of pins if so many exceed it: the order would have
        been refused if the operator had not accepted that."""
        if not why_too_many_pins(pins, self._options(), observation.osdmap):
            return campaign
        return replace(campaign, orders=campaign.orders.accepting(Code.PIN_LIMIT))

    def _raws_behind(self, with_vector: Sequence[str], pools: AbstractSet[int],
                     observation: Observation, pool_up: PoolUp) -> Raws:
        """PG -> where CRUSH places it, of the PGs `with_vector` and those of `pools` that lack an
        OSD which is down; {} if Ceph's tools do not show it. For the tool thread."""
        osdmap = observation.osdmap
        lacking = [pgid for pgid in pgs_lacking_osds(osdmap, pool_up, pools & osdmap.pools.keys())
                   if pgid not in osdmap.upmap_vectors]
        if not with_vector and not lacking:
            return NO_RAWS
        # PGs that lack an OSD may have no upmap: then the tools have to list all PGs.
        outlook = self._context.cluster.outlook(osdmap, {}, None, whole=bool(lacking))
        return outlook.raws([*with_vector, *lacking]) if isinstance(outlook, Future) else NO_RAWS

    def _begin_with(self, waiting: WaitingOrder, observation: Observation,
                    work: Callable[[], Callable[[], Found]], risks: Callable[[Found], List[Risk]],
                    adjust: Callable[[Campaign], Campaign] = lambda campaign: campaign
                    ) -> Optional[Document]:
        """Begin a campaign with the pins that `work` finds, and return the answer; None: they are
        still being computed or stored. With --dry-run, only return the answer. Raises Refused.

        `work`: as in `_preview`; `risks`: of its result, raises Refused if there are no pins;
        `adjust`: changes the campaign before it is stored.
        """
        order = waiting.order
        if self._storing is not None and self._storing[0] is waiting:
            return self._answer_once_stored(self._storing[1])
        self._campaigns.refuse_held()
        if not order.dry_run:
            self._check_new(observation)
            if waiting.refused_before:
                # It was refused a moment ago: the tools of Ceph run only once the cluster is fit.
                self._refuse_health(waiting, not_fit(observation))
        result = self._preview(waiting, observation, work)
        if result is None:
            return None
        all_risks: List[Risk] = risks(result)
        if order.dry_run:
            return {**result.as_json(None),
                    'warnings': self._refusal(observation),
                    'risks': risks_json([*_acceptable(not_fit(observation)), *all_risks],
                                        order.accept)}
        refuse([*of_health(not_fit(observation)), *all_risks], order.accept, order.command)
        still_valid = result.still_valid(observation.osdmap)
        self.reopen()
        self._note(Event('request', order.verb, 'by command'))
        campaign = self._campaigns.begin_after(observation, order.verb)
        # An adoption takes over upmaps that exist; an import of too many was accepted.
        campaign = self._accepting_pins(campaign, len(still_valid.pins), observation)
        campaign = replace(campaign, bill=replace(
            campaign.bill, required_bytes=sum(move.bytes for move in still_valid.moves)))
        self._campaigns.put(replace(adjust(campaign), storing=True))
        self._campaigns.put(self._campaigns.store_first_pins(still_valid.pins, observation))
        self._storing = waiting, still_valid.as_json(campaign.id)
        return self._answer_once_stored(self._storing[1])

    def _answer_once_stored(self, answer: Document) -> Optional[Document]:
        """The answer once all pins of the campaign that the order has begun are stored; None until
        then. Raises Refused if the campaign ended before."""
        if self._campaigns.current.id != answer['campaign']:
            raise Refused(errno.ECANCELED, 'campaign %s has not begun: it ended before all of its '
                          'pins were stored; no upmap has changed' % answer['campaign'])
        return None if self._campaigns.storing else answer

    def _roll_back(self, waiting: WaitingOrder, observation: Observation) -> Optional[Document]:
        """Begin the rollback of the campaign, and return the answer; with --dry-run, only return
        that. None: the effects are being computed. Raises Refused."""
        order = waiting.order
        campaign = check_rollback(self._campaigns.current, observation)
        rate = campaign.progress.rate
        preview = self._preview(
            waiting, observation, lambda: self._crush_orders.previewing_back(
                campaign, self._campaigns.pins, observation, self._options(),
                [*self._campaigns.history.rates(), *([] if rate is None else [rate])]))
        if preview is None:
            return None
        risks = preview.all_risks(order, observation, self._options())
        if order.dry_run:
            return {**preview.as_json(order, None), 'risks': risks_json(risks, order.accept)}
        refuse(risks, order.accept, order.command)
        self.reopen()
        self._crush_orders.journal(preview, observation)
        self._note(Event('request', order.verb, 'by command'))
        campaign = self._accepting_pins(begin_rollback(
            campaign, preview.change.begun(observation), observation.now),
            len(preview.planned.pins), observation)
        self._campaigns.put(replace(
            campaign, orders=campaign.orders.accepting(*preview.accepted),
            pinning=campaign.pinning.accepting_undersized(preview.undersized)))
        return preview.as_json(order, campaign.id)

    def _preview(self, waiting: WaitingOrder, observation: Observation,
                 work: Callable[[], Callable[[], Result]]) -> Optional[Result]:
        """The effects of an order, computed by the tool thread; None: not yet. Raises Refused, also
        if CRUSH has changed meanwhile, unless it is a dry run.

        `work`: reads what the loop's thread alone may read, and returns the task for the tool
        thread. It is not called if a job of an earlier order serves this one.
        """
        if waiting.job is None:
            waiting.crush_version = observation.crush_version
            # The basis of a rollback changes with each release, until the abort has completed. A
            # result from before would give weight 0 to OSDs that have received PGs since.
            is_rollback = waiting.order.verb == 'rollback'
            waiting.phase_since = self._campaigns.current.phase_since if is_rollback else 0.0
            # The order may take over the job of an earlier one. If that was the same order, whose
            # command did not wait for the end, the job may still run, and OSDs may have changed:
            # otherwise a preview that takes longer than commands wait would never be of use. If
            # that was a preview of this order, or accepted less, its effects must be the same now.
            earlier = None if is_rollback and self._campaigns.active else \
                self._context.job_left_behind(waiting.order, observation.crush_version,
                                              waiting.phase_since)
            waiting.job = earlier or self._computed_before(waiting.order, observation) \
                or self._submit(waiting.order, observation, work())
            if waiting.job is None:
                raise Refused(errno.EAGAIN, 'too many previews are being computed: try again in '
                              'a moment')
        if not waiting.job.done:
            return None
        if waiting.crush_version != observation.crush_version and not waiting.order.dry_run:
            raise Refused(errno.EAGAIN, 'CRUSH has changed during the computation: try again')
        job: ToolJob[Result] = waiting.job
        return job.result()

    def _submit(self, order: object, observation: Observation,
                task: Callable[[], Result]) -> Optional[ToolJob[Result]]:
        """The new job of an order, which is noted for the same order without --dry-run (see
        _computed_before); None: too many jobs are waiting."""
        job = self._context.tools.submit(task)
        if job is not None and isinstance(order, Order):
            self._computed = _Computed(order, observation.now, self._basis(observation), job)
        return job

    def forget_computed(self, now: float) -> None:
        """Forget the noted effects of an order if they are too old: they have a row for each PG of
        the cluster."""
        if self._computed is not None and now - self._computed.begun > COMPUTED_SECONDS:
            self._computed = None

    def _computed_before(self, order: object, observation: Observation) -> Optional[AnyJob]:
        """The job of the last order, if that was the same but for --dry-run and --accept, and
        nothing has changed since: Ceph's tools may take longer than a command waits for them. None
        if it does not serve this order: a rollback and a dry run need new numbers, and so does an
        order in the same words."""
        self.forget_computed(observation.now)
        last = self._computed
        if last is None or not isinstance(order, Order) or order.verb == 'rollback' \
                or order.dry_run or order == last.order or _bare(order) != _bare(last.order) \
                or not last.job.succeeded or last.basis != self._basis(observation):
            return None
        result = last.job.result()
        return last.job if isinstance(result, Preview) and not result.no_outlook else None

    def _basis(self, observation: Observation) -> Tuple[object, ...]:
        """All that the effects of an order depend on. The pools are part of it since orders name
        them, and their names, limits and flags are not part of what places PGs."""
        space = self._context.cluster.osd_space()
        return (what_places(observation), observation.osdmap.pools, self._options(),
                observation.orchestrating, observation.crush.proven_rules,
                observation.balancing, {osd: row.pgs is None for osd, row in space.items()})

    def _refusal(self, observation: Observation, pool_name: str = '') -> List[str]:
        """For a dry run: why the order itself would be refused now. `pool_name`: as
        `_check_new`."""
        try:
            self._check_new(observation, pool_name)
        except Refused as refused:
            return ['the order would be refused now: %s' % refused]
        return []

    def _check_new(self, observation: Observation, pool_name: str = '') -> None:
        """Raise Refused if no campaign may begin, whatever the operator accepts: another one is
        active or is still being removed from the store, an aborted one has left a pool with an
        intermediate CRUSH rule, perfguard shuts down, clients are too old, or options are invalid.
        `pool_name`: the pool whose rule the campaign changes; '': none."""
        request = Request('prepare')
        self._campaigns.refuse_removing()
        self._context.refuse_closing()
        # The state of the cluster is examined apart: the operator may accept it.
        check(self._campaigns.current, request, self._campaigns.pins_held_back, unhealthy=(),
              unfit=unfit(observation.osdmap), left_rule=why_rule_first(
                  self._campaigns.current, observation.osdmap, pool_name))
        refuse_bad_options(request, self._options(),
                           {pool.name for pool in observation.osdmap.pools.values()})


def check_rollback(campaign: Campaign, observation: Observation) -> Campaign:
    """The campaign, if it can be rolled back; raises Refused otherwise."""
    if not campaign.open:
        raise Refused(errno.ENOENT, 'no campaign is active, and none has left pins: "undrain" '
                      'fills OSDs that were drained, %s' % EARLIER_MAP)
    if campaign.rolls_back:
        raise Refused(errno.EALREADY, 'campaign %d is already being rolled back (see "campaign '
                      'status")' % campaign.id)
    if campaign.phase is Phase.FINISHING:
        raise Refused(errno.EBUSY, 'campaign %d is %s: run "campaign abort" first'
                      % (campaign.id, campaign.phase.value))
    change = campaign.change
    no_rollback = '' if change is None else change.why_no_rollback(campaign.id)
    if no_rollback:
        raise Refused(errno.EPERM, no_rollback)
    if change is not None and change.closing and campaign.origin.trigger in ('rule', 'pg_num'):
        # Its own change, which this one has replaced, is in force.
        raise Refused(errno.EPERM, 'campaign %d has changed the CRUSH rule or pg_num of a pool: '
                      'wait until it is DONE, or "campaign abort" first, then "%s" with '
                      'the value from before' % (campaign.id, campaign.origin.trigger))
    if change is not None and change.pending:
        raise Refused(errno.EBUSY, 'campaign %d is changing CRUSH: try again in a few seconds, or '
                      '"campaign abort" first' % campaign.id)
    if change is not None and change.untouched:
        raise Refused(errno.EBUSY, 'campaign %d has not changed CRUSH: end it '
                      'with "campaign abort"' % campaign.id)
    if not campaign.crush.is_own(observation) and not (change is not None and change.moves_only):
        raise Refused(errno.EPERM, _changed_by_others(campaign, observation.crush_version))
    return campaign


def _changed_by_others(campaign: Campaign, crush_version: int) -> str:
    if campaign.crush.own < 0:
        return 'the CRUSH change of campaign %d is not known: %s' % (campaign.id, EARLIER_MAP)
    return 'CRUSH (version %d) was changed after campaign %d, which left version %d: %s' % (
        crush_version, campaign.id, campaign.crush.own, EARLIER_MAP)


def begin_rollback(campaign: Campaign, change: AnyChange, now: float) -> Campaign:
    """The campaign in the first phase of its rollback: PGs in flight are pinned back, then the
    change of the rollback (`change`) is made."""
    return replace(campaign.reopened(Phase.ABORTING, now), ended=None, automatic=True,
                   orders=campaign.orders.resumed(),
                   rollback=replace(campaign.rollback, wanted=change),
                   holds=replace(campaign.holds.with_nothing_given_up(), prepared=True))
