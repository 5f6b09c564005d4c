# SPDX-License-Identifier: LGPL-2.1-or-later
"""Plans: previews that are saved by name and carried out once they are approved.

A plan is carried out as it was saved, or refused with a list of the changes since then. The moves
of a balance are computed again, and are no more than those saved. A plan that is approved while a
campaign is active waits until that is DONE, and is compared with the cluster once more."""
import errno
import re
import secrets
import shlex
from dataclasses import dataclass, replace
from typing import Callable, ClassVar, Dict, List, Mapping, Optional, Protocol, Tuple

from ..cluster.types import Document
from ..codec import encode
from ..errors import Refused
from ..events import Event
from ..observation import Observation
from ..store import PLANS_PREFIX, Store
from ..text import listed, pgs, plural
from ..watch.stop_conditions import UNHEALTHY
from .campaign import AnyChange, Campaign
from .campaigns import CampaignContext, Campaigns
from .crush_orders import changed_crush_parts
from .orders import Order
from .preview import Preview
from .queued import QueuedOrder, Retry, WaitingOrder
from .risks import refuse
from .types import Phase

#: Verbs of PlanOrder.
SAVE, LS, SHOW, RM, APPROVE = 'plan save', 'plan ls', 'plan show', 'plan rm', 'plan approve'
#: Maximum number of plans: each may contain a CRUSH map.
MAX_PLANS = 20
_PLAN_NAME = re.compile(r'[A-Za-z0-9][A-Za-z0-9_.-]{0,63}')
#: Differences that a refusal names.
NAMED_PLAN_CHANGES = 10


@dataclass(frozen=True)
class PlanOrder:
    verb: str
    plan: str = ''
    #: save: the order of the plan.
    order: Optional[Order] = None
    #: approve: of the plan that the operator has reviewed; '': any plan of this name.
    token: str = ''
    #: approve: accepted states of the cluster (UNHEALTHY), for this moment. Risks of the change are
    #: accepted with the order, when the plan is saved.
    accept: Tuple[str, ...] = ()
    #: approve: only show what it would do.
    previews: bool = False
    addressee: ClassVar[str] = 'rebalance'

    @property
    def command(self) -> str:
        """The order as operators write it, without "--accept"."""
        if self.order is None:
            return 'ceph perfguard %s %s%s' % (
                self.verb, self.plan, ' --token ' + shlex.quote(self.token) if self.token else '')
        return 'ceph perfguard plan save %s %s' % (self.plan, self.order.text)

    def refuse_codes(self) -> None:
        """Raise Refused for accepted codes that this step does not examine."""
        accept = self.accept if self.order is None else self.order.accept
        for code in accept:
            if self.verb == SAVE and code in UNHEALTHY:
                raise Refused(errno.EINVAL, '%s is a state of the cluster: it is accepted when the '
                              'change begins ("plan approve %s --accept %s")' % (
                                  code, self.plan, code))
            if self.verb == APPROVE and code not in UNHEALTHY:
                raise Refused(errno.EINVAL, '%s is a risk of the change: it is accepted when the '
                              'plan is saved ("plan show %s" lists the accepted codes)' % (
                                  code, self.plan))

    @property
    def dry_run(self) -> bool:
        """It changes nothing."""
        return self.previews or self.verb in (LS, SHOW)


@dataclass(frozen=True)
class PlanGround:
    """The state of the cluster that a plan is based on."""
    crush_version: int
    #: Checksums of the items of CRUSH (CrushRules.digest).
    crush: Mapping[str, int]
    #: "osd.<id>" -> its reweight, whether it is destroyed, its uuid.
    osds: Mapping[str, Mapping[str, object]]
    #: Pool id -> its name, size, rule, pg_num and pgp_num.
    pools: Mapping[str, Mapping[str, object]]
    #: CrushRules.identity.
    identity: int


def ground_of(observation: Observation) -> PlanGround:
    """What a plan is based on: if it has changed, the plan is outdated."""
    osdmap = observation.osdmap
    return PlanGround(
        observation.crush_version, observation.crush.digest,
        {'osd.%d' % osd.id: {'reweight': osd.reweight, 'destroyed': osd.destroyed,
                             'uuid': osd.uuid} for osd in osdmap.osds.values() if osd.exists},
        {str(pool.id): {'name': pool.name, 'size': pool.size, 'crush_rule': pool.crush_rule,
                        'pg_num': pool.pg_num_target,
                        'pgp_num': pool.pgp_num_target or pool.pgp_num}
         for pool in osdmap.pools.values()}, observation.crush.identity)


def changed(before: PlanGround, now: PlanGround) -> List[str]:
    """What has changed since a plan was saved, as texts; []: nothing that matters to it."""
    texts = []
    # The version also counts changes that were undone.
    if before.crush_version != now.crush_version and (
            before.identity != now.identity or before.crush != now.crush):
        texts.append('CRUSH (version %d, now %d): %s' % (
            before.crush_version, now.crush_version, changed_crush_parts(before.crush, now.crush)))
    return texts + _changed_rows(before.osds, now.osds, str) + _changed_rows(
        before.pools, now.pools, lambda pool: 'pool %s' % (
            before.pools.get(pool) or now.pools[pool])['name'])


def _changed_rows(before: Mapping[str, Mapping[str, object]],
                  now: Mapping[str, Mapping[str, object]], name: Callable[[str], str]) -> List[str]:
    """The differences of OSDs or pools as texts."""
    texts = ['%s was %s' % (name(key), 'removed' if key in before else 'added')
             for key in sorted(before.keys() ^ now.keys())]
    for key in sorted(before.keys() & now.keys()):
        texts += ['%s: %s %s, now %s' % (name(key), field, value, now[key].get(field))
                  for field, value in before[key].items() if now[key].get(field) != value]
    return texts


@dataclass(frozen=True)
class SavedPlan:
    name: str
    saved: float
    order: Order
    change: AnyChange
    ground: PlanGround
    #: The preview of the order when it was saved.
    preview: Document
    #: PGs that it pins.
    pgs: int
    #: When it was approved, while it is queued; 0: not approved.
    approved: float = 0.0
    #: Why it was refused when the campaign before it had ended.
    refused: str = ''
    #: Differs from that of any other plan of its name.
    token: str = ''

    def refuse_saved_again(self, token: str) -> None:
        """Raise Refused if another plan was reviewed. `token`: of that plan; '': any."""
        if token and token != self.token:
            raise Refused(errno.ESTALE, 'plan %s was removed and saved again (token %s, not %.40s) '
                          'and is "%s" now, with %s: see "plan show %s"' % (
                              self.name, self.token, token, self.order.text,
                              pgs(self.pgs), self.name))

    @property
    def command_to_save(self) -> str:
        """The command that saves the plan again."""
        return 'ceph perfguard plan rm %s && %s' % (
            self.name, PlanOrder(SAVE, self.name, self.order).command)

    def refuse_changed(self, now: PlanGround) -> None:
        """Raise Refused if the cluster has changed since the plan was saved."""
        changes = changed(self.ground, now)
        if changes:
            raise Refused(errno.ESTALE, 'the cluster has changed since plan %s was saved: %s '
                          '("plan save" it again)'
                          % (self.name, listed(changes, NAMED_PLAN_CHANGES, '; ')))

    def refuse_other(self, preview: Preview, order: Order) -> None:
        """Raise Refused if the order now makes another change. `preview`: of the order as it was
        when the computation began; `order`: the first one of the plan as it is saved now."""
        change = preview.change
        if preview.order != order:
            raise Refused(errno.EAGAIN, 'plan %s was saved again during the computation: try '
                          'again' % self.name)
        if preview.no_outlook:
            raise Refused(errno.EAGAIN, 'cannot preview plan %s now: %s (try again)'
                          % (self.name, preview.no_outlook))
        if change.same_as(self.change):
            return
        before, now = self.change.features, change.features
        rows = ['%s %s, now %s' % (name, before.get(name) or 'none', now.get(name) or 'none')
                for name in {**before, **now} if before.get(name) != now.get(name)]
        raise Refused(errno.ESTALE, 'the change of plan %s is different now: %s ("plan save" it '
                      'again)' % (self.name,
                                  listed(rows, NAMED_PLAN_CHANGES, '; ') or 'another CRUSH map'))

    def row(self, now: PlanGround, waits: str = '') -> Document:
        """One line of `plan ls`. `waits`: why it is not carried out yet."""
        changes = changed(self.ground, now)
        state = 'queued' if self.approved else 'changed' if changes else 'ready'
        return {'plan': self.name, 'saved': self.saved, 'state': state,
                'token': self.token, 'change': self.order.text,
                'accepted': list(self.order.accept),
                'approved': self.approved or None, 'refused': self.refused or waits,
                'changed': changes,
                **{key: self.preview.get(key) for key in (
                    'pgs', 'bytes', 'eta_seconds', 'eta_low_seconds', 'eta_high_seconds')}}

    def details(self, now: PlanGround, waits: str = '') -> Document:
        """The answer of `plan show`: `row`, with the preview."""
        return {**self.row(now, waits), 'preview': self.preview}


class Plans:
    """The saved plans, and the queue of those that are approved."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._plans: Dict[str, SavedPlan] = {}

    def load(self) -> List[str]:
        """Load the saved plans. Returns texts on what cannot be read."""
        lost = []
        self._plans = {}
        for document in self._store.names(PLANS_PREFIX):
            plan, errors = self._store.load(document, Optional[SavedPlan], None)
            if plan is not None:
                self._plans[plan.name] = plan
            lost += ['the plan %s (%s)' % (document[len(PLANS_PREFIX):], error) for error in errors]
        return lost

    def all(self) -> List[SavedPlan]:
        """Oldest first."""
        return sorted(self._plans.values(), key=lambda plan: (plan.saved, plan.name))

    def queue(self) -> List[SavedPlan]:
        """Approved plans that wait, in the order of their approval."""
        return sorted((plan for plan in self._plans.values() if plan.approved),
                      key=lambda plan: (plan.approved, plan.name))

    def next_approval_time(self, now: float) -> float:
        """The time to note for a plan that is approved now: later than that of all others, even of
        those of the same turn, or of an mgr whose clock was ahead."""
        return max([now, *(plan.approved + 1e-3 for plan in self.queue())])

    def get(self, name: str) -> SavedPlan:
        if name not in self._plans:
            raise Refused(errno.ENOENT, 'plan %.64r does not exist (see "plan ls")'
                          % name)
        return self._plans[name]

    def check_new(self, name: str) -> None:
        """Raise Refused if no plan can be saved under this name."""
        if not _PLAN_NAME.fullmatch(name):
            raise Refused(errno.EINVAL, 'invalid plan name %.40r: use at most 64 letters, digits, '
                          '"_", "." and "-"' % name)
        if self._store.is_newer(PLANS_PREFIX + name):
            raise Refused(errno.EEXIST, 'plan %s exists: a newer version of perfguard has saved '
                          'it: "plan save" takes another name' % name)
        if name in self._plans:
            raise Refused(errno.EEXIST, 'plan %s exists: remove it with "plan rm %s"'
                          % (name, name))
        if len(self._plans) >= MAX_PLANS:
            raise Refused(errno.ENOSPC, '%s saved (limit %d): remove one with "plan rm"'
                          % (plural(len(self._plans), 'plan'), MAX_PLANS))

    def put(self, plan: SavedPlan) -> None:
        self._store.put(PLANS_PREFIX + plan.name, encode(plan))
        self._plans[plan.name] = plan

    def was_begun(self, campaign: Campaign) -> bool:
        """Whether the campaign executes a saved plan that should have been removed: the mgr failed
        in between. A plan that was saved later may have the same name."""
        plan = self._plans.get(campaign.origin.plan)
        return plan is not None and plan.token == campaign.origin.plan_token

    def remove(self, name: str) -> None:
        self._store.remove(PLANS_PREFIX + name)
        self._plans.pop(name, None)


class CampaignStarter(Protocol):
    """Begins the campaigns of plans."""

    def reopen(self) -> None:
        """End a completed shutdown; raises Refused during one."""

    def preview(self, waiting: WaitingOrder, observation: Observation,
                order: Order) -> Optional[Tuple[Preview, PlanGround]]:
        """The effects of an order; None: not computed yet. Raises Refused."""

    def begin_change(self, waiting: WaitingOrder, observation: Observation, order: Order,
                     saved: Optional[SavedPlan] = None, why: str = '',
                     keep: Callable[[], None] = lambda: None) -> Optional[Document]:
        """Begin the campaign of a saved plan; None: not computed yet. Raises Refused. `keep`:
        journals the data of the change."""


#: Splits the order of a plan: the order of its first campaign (of a replacement, the drain), and a
#: function that journals the rest.
Unfold = Callable[[Order, Observation], Tuple[Order, Callable[[], None]]]


class PlanQueue:
    """Saves and shows plans, and carries out those that are approved, one after the other.

    1. `carry_out`: orders of operators. A plan that is approved begins its campaign at once,
       or waits until the campaign that is active is DONE.
    2. `start_next`: once a turn; begins the campaign of the plan that was approved first. One that
       is refused is withdrawn, or tried again later if only the cluster is not ready.
    """

    def __init__(self, context: CampaignContext, campaigns: Campaigns, starter: CampaignStarter,
                 unfold: Unfold) -> None:
        """`unfold`: see Unfold; it raises Refused if the order of a plan needs no campaign."""
        self._unfold = unfold
        self.saved = Plans(context.store)
        self._store, self._options, self._note = context.store, context.options, context.note
        self._campaigns = campaigns
        self._starter = starter
        #: The order of the queue that is being computed.
        self._computing: Optional[QueuedOrder] = None
        self._retry = Retry()

    def load(self) -> List[str]:
        """Returns texts on what cannot be read."""
        self._computing = None
        return self.saved.load()

    def carry_out(self, waiting: WaitingOrder, observation: Observation) -> Optional[Document]:
        """Carry out an order about a plan, and return the answer. None while a job of the order is
        running; raises Refused."""
        order, saved = waiting.order, self.saved
        if order.verb == SAVE:
            return self._save(waiting, observation)
        if order.verb == APPROVE:
            return self._approve(waiting, observation)
        if order.verb == LS:
            ground = ground_of(observation)
            return {'plans': [plan.row(ground, self._waits(plan)) for plan in saved.all()]}
        plan = saved.get(order.plan)
        if order.verb == SHOW:
            return plan.details(ground_of(observation), self._waits(plan))
        saved.remove(plan.name)
        return {'plan': plan.name, 'message': 'plan %s is removed' % plan.name}

    def _save(self, waiting: WaitingOrder, observation: Observation) -> Optional[Document]:
        """Compute and save a plan, and return the answer; None: it is being computed. Raises
        Refused."""
        name, order = waiting.order.plan, waiting.order.order
        waiting.order.refuse_codes()
        self.saved.check_new(name)
        # The order of its first campaign, such as the drain of a replacement.
        first_order, _ = self._unfold(order, observation)
        result = self._starter.preview(waiting, observation, first_order)
        if result is None:
            return None
        preview, ground = result
        if preview.effects is None:
            raise Refused(errno.EINVAL, 'nothing to save: %s' % preview.no_outlook)
        refuse(preview.all_risks(order, observation, self._options()), order.accept,
               waiting.order.command)
        answer = preview.answer(replace(order, dry_run=True), None, observation, self._options())
        # The version was checked; from now on, the ground shows whether CRUSH has changed.
        order = replace(order, prior_version=None)
        plan = SavedPlan(name, observation.now, order, preview.change, ground, answer,
                         len(preview.planned.pins), token=secrets.token_hex(4))
        self.saved.put(plan)
        self._note(Event('request', 'plan save %s' % name, 'by command'))
        return plan.details(ground)

    def _approve(self, waiting: WaitingOrder, observation: Observation) -> Optional[Document]:
        """Begin the campaign of a plan, or queue it behind the active one; only show that if the
        order previews. None: it is being computed. Raises Refused, also while an aborted campaign
        keeps PGs pinned."""
        plan, campaign = self.saved.get(waiting.order.plan), self._campaigns.current
        plan.refuse_saved_again(waiting.order.token)
        waiting.order.refuse_codes()
        self._campaigns.refuse_held()
        plan.refuse_changed(ground_of(observation))
        if campaign.active:
            if waiting.order.accept:
                raise Refused(errno.EINVAL, 'plan %s begins after campaign %d: the state of the '
                              'cluster at that time cannot be accepted now (omit --accept)' % (
                                  plan.name, campaign.id))
            queued = {**plan.preview, 'plan': plan.name, 'accepted': list(plan.order.accept),
                      'queued_behind': campaign.id}
            if waiting.order.previews:
                return queued
            self._starter.reopen()  # refused during a shutdown
            approved_at = plan.approved or self.saved.next_approval_time(observation.now)
            self.saved.put(replace(plan, approved=approved_at, refused=''))
            self._note(Event('request', 'plan approve %s' % plan.name,
                             'queued behind campaign %d' % campaign.id))
            return {**queued, 'dry_run': False}
        first_order, keep_rest = self._unfold(plan.order, observation)
        if waiting.order.previews:
            first_order = replace(first_order, dry_run=True,
                                  accept=(*first_order.accept, *waiting.order.accept))
        answer = self._starter.begin_change(waiting, observation, first_order, plan,
                                            'plan %s was approved' % plan.name, keep_rest)
        if answer is None:
            return None
        if not waiting.order.previews:
            self.saved.remove(plan.name)
        return {**answer, 'plan': plan.name, 'accepted': [*plan.order.accept,
                                                          *waiting.order.accept],
                'queued_behind': None}

    def may_start_next(self, now: float) -> bool:
        """Whether a plan may be carried out now."""
        return (not self._campaigns.active and bool(self.saved.queue())
                and self._retry.is_due(now))

    def start_next(self, observation: Observation) -> None:
        """Carry out the plan that was approved first; the campaign before it is DONE. If it is
        refused it is withdrawn, unless it may be accepted later."""
        name = self.saved.queue()[0].name
        computing, self._computing = self._computing, None
        waiting = (computing if computing is not None and computing.order.plan == name
                   else QueuedOrder(PlanOrder(APPROVE, name)))
        retry, refused = Retry(name).attempt(
            observation.now, lambda: self._begin_next(waiting, observation))
        if refused is None or refused.not_fit or refused.errno == errno.EAGAIN:
            self._retry = retry
        else:
            self._withdraw(self.saved.get(name), str(refused))

    def _begin_next(self, waiting: QueuedOrder, observation: Observation) -> Optional[Document]:
        """Begin the campaign of the first plan in the queue; None: it is being computed, and the
        next turn continues with `waiting`."""
        answer = self._approve(waiting, observation)
        if answer is None:
            self._computing = waiting
        return answer

    def why_queue_waits(self) -> str:
        """Why no plan in the queue may follow the last campaign; '' if it may."""
        if self._store.interrupted:
            return self._store.interrupted
        last = self._campaigns.last_end()
        if last is None:
            return 'the outcome of the previous campaign is not known'
        return '' if last[1] == Phase.DONE.value else 'campaign %d is %s' % last

    def _waits(self, plan: SavedPlan) -> str:
        """Why an approved plan still waits, by its last attempt; '': there was none."""
        return self._retry.waits if plan.approved and plan.name == self._retry.name else ''

    def withdraw_all(self, why: str) -> None:
        """Cancel the approval of all plans."""
        for plan in self.saved.queue():
            self._withdraw(plan, why)

    @property
    def withdrawn(self) -> List[str]:
        """Texts on what `withdraw_all` does."""
        return ['the approval of plan %s will be withdrawn' % plan.name
                for plan in self.saved.queue()]

    def _withdraw(self, plan: SavedPlan, why: str) -> None:
        """Cancel its approval; it stays saved."""
        self.saved.put(replace(plan, approved=0.0, refused=why))
        self._note(Event('refused', 'plan approve %s' % plan.name, why))
