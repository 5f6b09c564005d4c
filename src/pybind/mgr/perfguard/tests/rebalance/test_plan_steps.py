# SPDX-License-Identifier: LGPL-2.1-or-later
"""Saved plans and their queue, without a cluster."""
import errno
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Optional, Tuple

import pytest

from perfguard.cluster.types import Document
from perfguard.codec import encode
from perfguard.errors import Refused
from perfguard.observation import Observation
from perfguard.rebalance.campaign import NO_CAMPAIGN, Campaign
from perfguard.rebalance.orders import Order
from perfguard.rebalance.plans import (
    APPROVE, LS, MAX_PLANS, NAMED_PLAN_CHANGES, RM, SAVE, SHOW, PlanGround, PlanOrder, PlanQueue,
    Plans, SavedPlan, changed, ground_of)
from perfguard.rebalance.preview import Effects, Preview
from perfguard.rebalance.queued import QueuedOrder, Retry, WaitingOrder
from perfguard.rebalance.types import Phase
from perfguard.rebalance.weights import WeightChange
from perfguard.store import Store

from ..fakes.campaigns import campaign_of
from ..fakes.cluster import MemoryKv
from ..fakes.driver import OPTIONS
from .test_auto_expand import seen

DRAIN = Order('drain', ('h7',))
CHANGE = WeightChange(weights={3: 1.0})
GROUND = ground_of(seen(1, 1000.0))
SHOWN: Document = {'pgs': 12, 'bytes': 34, 'eta_seconds': 5, 'other': 6}


def a_plan(name: str = 'p', **fields: Any) -> SavedPlan:
    return replace(SavedPlan(name, 900.0, DRAIN, CHANGE, GROUND, SHOWN, 12, token='t1'), **fields)


# ---- what operators write

@pytest.mark.parametrize('order, command, dry_run', [
    (PlanOrder(SAVE, 'p', DRAIN), 'ceph perfguard plan save p drain h7', False),
    (PlanOrder(SHOW, 'p'), 'ceph perfguard plan show p', True),
    (PlanOrder(LS), 'ceph perfguard plan ls ', True),
    (PlanOrder(RM, 'p'), 'ceph perfguard plan rm p', False),
    (PlanOrder(APPROVE, 'p', token='a b'), "ceph perfguard plan approve p --token 'a b'", False),
    (PlanOrder(APPROVE, 'p', previews=True), 'ceph perfguard plan approve p', True)])
def test_the_command_of_an_order(order: PlanOrder, command: str, dry_run: bool) -> None:
    assert order.command == command and order.dry_run is dry_run


@pytest.mark.parametrize('order, text', [
    (PlanOrder(SAVE, 'p', replace(DRAIN, accept=('PG_LIMIT', 'MON_DOWN'))),
     'MON_DOWN is a state of the cluster: it is accepted when the change begins ("plan approve p '
     '--accept MON_DOWN")'),
    (PlanOrder(SAVE, 'p', replace(DRAIN, accept=('PG_LIMIT',)), accept=('MON_DOWN',)), ''),
    (PlanOrder(APPROVE, 'p', accept=('MON_DOWN', 'PG_LIMIT')),
     'PG_LIMIT is a risk of the change: it is accepted when the plan is saved ("plan show p" '
     'lists the accepted codes)'),
    (PlanOrder(APPROVE, 'p', accept=('MON_DOWN',)), '')])
def test_codes_that_a_step_does_not_examine(order: PlanOrder, text: str) -> None:
    if not text:
        order.refuse_codes()
        return
    with pytest.raises(Refused) as refused:
        order.refuse_codes()
    assert (refused.value.errno, str(refused.value)) == (errno.EINVAL, text)


# ---- what has changed

def with_map(observation: Observation, **fields: Any) -> Observation:
    osdmap = replace(observation.osdmap, **fields)
    return replace(observation, settings=replace(observation.settings, osdmap=osdmap))


BEFORE = seen(1, 1000.0)
OSDS, POOL = BEFORE.osdmap.osds, BEFORE.osdmap.pools[1]


@pytest.mark.parametrize('now, texts', [
    (BEFORE, []), (replace(BEFORE, crush_version=2), []), (seen(1, 2000.0), []),
    (with_map(BEFORE, osds={**OSDS, 2: replace(OSDS[2], up=False, fullness='full')}), []),
    (with_map(BEFORE, osds={**OSDS, 2: replace(OSDS[2], reweight=0.5, destroyed=True, uuid='u')}),
     ['osd.2: reweight 1.0, now 0.5', 'osd.2: destroyed False, now True', 'osd.2: uuid , now u']),
    (with_map(BEFORE, osds={osd: row for osd, row in OSDS.items() if osd}), ['osd.0 was removed']),
    (with_map(BEFORE, osds={**OSDS, 2: replace(OSDS[2], exists=False),
                            7: replace(OSDS[2], id=7)}), ['osd.2 was removed', 'osd.7 was added']),
    (with_map(BEFORE, pools={}), ['pool p was removed']),
    (with_map(BEFORE, pools={1: POOL, 2: replace(POOL, id=2, name='q')}), ['pool q was added']),
    (with_map(BEFORE, pools={1: replace(POOL, pg_num=16, min_size=1)}), []),
    (with_map(BEFORE, pools={1: replace(POOL, pg_num_target=16, pgp_num=8, size=2)}),
     ['pool p: size 3, now 2', 'pool p: pg_num 32, now 16', 'pool p: pgp_num 0, now 8']),
    (with_map(BEFORE, pools={1: replace(POOL, pgp_num=8, pgp_num_target=4, crush_rule=1)}),
     ['pool p: crush_rule 0, now 1', 'pool p: pgp_num 0, now 4'])])
def test_what_has_changed_since_a_plan_was_saved(now: Observation, texts: List[str]) -> None:
    assert changed(GROUND, ground_of(now)) == texts


@pytest.mark.parametrize('fields, texts', [
    ({'crush_version': 1}, []), ({'crush_version': 2, 'identity': 5, 'crush': {'a': 1}}, []),
    ({'crush_version': 2, 'identity': 6}, ['CRUSH (version 1, now 2): tunables or weight sets']),
    ({'crush_version': 2, 'crush': {'a': 2}}, ['CRUSH (version 1, now 2): a']),
    ({'crush_version': 1, 'identity': 6, 'crush': {'a': 2}}, [])])
def test_versions_of_crush_that_differ(fields: Dict[str, Any], texts: List[str]) -> None:
    before = PlanGround(1, {'a': 1}, {}, {}, 5)
    assert changed(before, replace(before, **fields)) == texts


def test_a_plan_is_refused_with_a_few_changes() -> None:
    a_plan().refuse_changed(GROUND)
    with pytest.raises(Refused) as refused:
        a_plan().refuse_changed(replace(GROUND, osds={}, pools={str(number): {
            'name': 'p%d' % number} for number in range(2, 8)}))
    assert refused.value.errno == errno.ESTALE
    text = str(refused.value)
    assert text.startswith('the cluster has changed since plan p was saved: osd.0 was removed; ')
    assert text.count('was removed') + text.count('was added') == NAMED_PLAN_CHANGES
    assert text.endswith(' and 3 more ("plan save" it again)')


def test_a_plan_that_was_saved_again() -> None:
    a_plan().refuse_saved_again('')
    a_plan().refuse_saved_again('t1')
    with pytest.raises(Refused) as refused:
        a_plan().refuse_saved_again('t2')
    assert (refused.value.errno, str(refused.value)) == (
        errno.ESTALE, 'plan p was removed and saved again (token t1, not t2) and is "drain h7" '
        'now, with 12 PGs: see "plan show p"')
    assert a_plan().command_to_save == \
        'ceph perfguard plan rm p && ceph perfguard plan save p drain h7'


@pytest.mark.parametrize('preview, number, text', [
    (Preview(CHANGE, order=DRAIN), 0, ''),
    (Preview(CHANGE, order=Order('drain')), errno.EAGAIN,
     'plan p was saved again during the computation: try again'),
    (Preview(CHANGE, order=DRAIN, no_outlook='no answer'), errno.EAGAIN,
     'cannot preview plan p now: no answer (try again)'),
    (Preview(WeightChange(weights={3: 2.0, 4: 1.0}), order=DRAIN), errno.ESTALE,
     'the change of plan p is different now: osd.3: weight 1.0, now 2.0; osd.4: weight none, now '
     '1.0 ("plan save" it again)'),
    (Preview(WeightChange(weights={4: 1.0}), order=DRAIN), errno.ESTALE,
     'the change of plan p is different now: osd.3: weight 1.0, now none; osd.4: weight none, now '
     '1.0 ("plan save" it again)'),
    (Preview(replace(CHANGE, closing=True), order=DRAIN), errno.ESTALE,
     'the change of plan p is different now: another CRUSH map ("plan save" it again)')])
def test_an_order_that_makes_another_change_now(preview: Preview, number: int, text: str) -> None:
    if not text:
        a_plan().refuse_other(preview, DRAIN)
        return
    with pytest.raises(Refused) as refused:
        a_plan().refuse_other(preview, DRAIN)
    assert (refused.value.errno, str(refused.value)) == (number, text)


@pytest.mark.parametrize('fields, now, waits, state, refused', [
    ({}, GROUND, '', 'ready', ''), ({'approved': 950.0}, GROUND, 'not fit', 'queued', 'not fit'),
    ({'refused': 'too full'}, GROUND, 'x', 'ready', 'too full'),
    ({}, replace(GROUND, pools={}), '', 'changed', ''),
    ({'approved': 950.0}, replace(GROUND, pools={}), '', 'queued', '')])
def test_a_line_of_a_plan(fields: Dict[str, Any], now: PlanGround, waits: str, state: str,
                          refused: str) -> None:
    plan = a_plan(**fields)
    row: Document = {
        'plan': 'p', 'saved': 900.0, 'state': state, 'token': 't1', 'change': 'drain h7',
        'accepted': [], 'approved': fields.get('approved'), 'refused': refused,
        'changed': [] if now is GROUND else ['pool p was removed'], 'pgs': 12, 'bytes': 34,
        'eta_seconds': 5, 'eta_low_seconds': None, 'eta_high_seconds': None}
    assert plan.row(now, waits) == row and plan.details(now, waits) == dict(
        row, preview=SHOWN)


# ---- the saved plans

def saved_plans(*plans: SavedPlan, kv: Optional[MemoryKv] = None) -> Plans:
    found = Plans(Store(kv or MemoryKv()))
    for plan in plans:
        found.put(plan)
    return found


def test_plans_in_order() -> None:
    kv = MemoryKv()
    plans = saved_plans(a_plan('b', saved=1.0, approved=9.0), a_plan('c', saved=0.0, approved=8.0),
                        a_plan('a', saved=1.0), a_plan('d', saved=2.0, approved=8.0), kv=kv)
    assert [plan.name for plan in plans.all()] == ['c', 'a', 'b', 'd']
    assert [plan.name for plan in plans.queue()] == ['c', 'd', 'b']
    assert plans.next_approval_time(10.0) == 10.0 and plans.next_approval_time(5.0) == 9.001
    plans.remove('c')
    store = Store(kv)
    again = Plans(store)
    assert again.load() == [] and again.all() == plans.all()
    # Another mgr has removed one, and one cannot be read.
    plans.remove('a')
    Store(kv).put('plans/x', {'name': 5})
    store.recheck_newer()
    lost, = again.load()
    assert lost.startswith('the plan x (') and again.all() == plans.all()
    with pytest.raises(Refused) as refused:
        again.get('c')
    assert (refused.value.errno, str(refused.value)) == (
        errno.ENOENT, "plan 'c' does not exist (see \"plan ls\")")
    assert Plans(Store(MemoryKv())).next_approval_time(5.0) == 5.0


@pytest.mark.parametrize('name, number', [
    ('a', 0), ('a' * 64, 0), ('9_.-', 0), ('a' * 65, errno.EINVAL), ('', errno.EINVAL),
    ('.a', errno.EINVAL), ('a b', errno.EINVAL), ('p', errno.EEXIST)])
def test_names_of_plans(name: str, number: int) -> None:
    plans = saved_plans(a_plan())
    if number:
        with pytest.raises(Refused) as refused:
            plans.check_new(name)
        assert refused.value.errno == number
    else:
        plans.check_new(name)


def test_a_plan_of_a_newer_version_is_not_overwritten() -> None:
    kv = MemoryKv()
    Store(kv).put('plans/a', {**encode(a_plan('a')), 'of_a_newer_version': 1})
    plans = Plans(Store(kv))
    assert plans.load() == [] and not plans.all()
    with pytest.raises(Refused) as refused:
        plans.check_new('a')
    assert refused.value.errno == errno.EEXIST and 'newer version' in str(refused.value)
    plans.check_new('b')


def test_the_number_of_plans() -> None:
    plans = saved_plans(*(a_plan('p%d' % number) for number in range(MAX_PLANS - 1)))
    plans.check_new('a')
    plans.put(a_plan('q'))
    limit = '%d plans saved .limit %d' % (MAX_PLANS, MAX_PLANS)
    with pytest.raises(Refused, match=limit) as refused:
        plans.check_new('a')
    assert refused.value.errno == errno.ENOSPC


@pytest.mark.parametrize('plan, token, begun', [
    ('p', 't1', True), ('p', 't2', False), ('q', 't1', False), ('', '', False)])
def test_a_plan_that_was_begun(plan: str, token: str, begun: bool) -> None:
    campaign = campaign_of(1, Phase.PINNING, 900.0, plan=plan, plan_token=token)
    assert saved_plans(a_plan()).was_begun(campaign) is begun


# ---- the queue

@dataclass
class CampaignsFake:
    """The answers of Campaigns."""
    current: Campaign = NO_CAMPAIGN
    is_held: bool = False
    end: Optional[Tuple[int, str]] = (1, 'DONE')

    @property
    def active(self) -> bool:
        return self.current.active

    def refuse_held(self) -> None:
        if self.is_held:
            raise Refused(errno.EBUSY, 'held')

    def last_end(self) -> Optional[Tuple[int, str]]:
        return self.end


@dataclass
class Starter:
    """Begins nothing, and notes what it should."""
    found: Optional[Tuple[Preview, PlanGround]] = None
    answer: Optional[Document] = None
    error: Optional[Refused] = None
    began: List[Tuple[WaitingOrder, Order, Optional[SavedPlan], str]] = field(default_factory=list)
    reopened: int = 0

    def reopen(self) -> None:
        self.reopened += 1

    def preview(self, waiting: WaitingOrder, observation: Observation,
                order: Order) -> Optional[Tuple[Preview, PlanGround]]:
        return self.found

    def begin_change(self, waiting: WaitingOrder, observation: Observation, order: Order,
                     saved: Optional[SavedPlan] = None, why: str = '',
                     keep: Callable[[], None] = lambda: None) -> Optional[Document]:
        self.began.append((waiting, order, saved, why))
        keep()
        if self.error is not None:
            raise self.error
        return self.answer


class Queue(PlanQueue):
    def __init__(self, *plans: SavedPlan) -> None:
        self.events: List[Any] = []
        self.campaigns, self.starter, self.kept = CampaignsFake(), Starter(), 0
        self.store = Store(MemoryKv())
        context: Any = SimpleNamespace(store=self.store, options=lambda: OPTIONS,
                                       note=self.events.append)
        super().__init__(context, self.campaigns, self.starter, self.unfold)  # type: ignore
        for plan in plans:
            self.saved.put(plan)

    def unfold(self, order: Order, observation: Observation) -> Tuple[Order, Callable[[], None]]:
        def keep() -> None:
            self.kept += 1

        return replace(order, remove=True), keep

    def give(self, verb: str, plan: str = 'p', **fields: Any) -> Any:
        return self.carry_out(WaitingOrder(PlanOrder(verb, plan, **fields)), BEFORE)

    @property
    def noted(self) -> List[Tuple[str, str, str]]:
        return [(event.kind, event.what, event.why) for event in self.events]


def test_plans_are_listed_shown_and_removed() -> None:
    queue = Queue(a_plan(), a_plan('a', approved=950.0))
    queue._retry = Retry('a', waits='not fit')
    rows = queue.give(LS)['plans']
    assert [(row['plan'], row['refused']) for row in rows] == [('a', 'not fit'), ('p', '')]
    assert queue.give(SHOW, 'a') == {**rows[0], 'preview': SHOWN}
    assert queue.give(RM) == {'plan': 'p', 'message': 'plan p is removed'}
    assert [plan.name for plan in queue.saved.all()] == ['a']
    # What it waited for was that of another plan, or of one that is not approved.
    queue._retry = Retry('b', waits='not fit')
    assert queue.give(SHOW, 'a')['refused'] == ''
    queue.saved.put(a_plan('b'))
    assert queue.give(SHOW, 'b')['refused'] == ''


def test_a_plan_is_saved_once_its_effects_are_known() -> None:
    queue = Queue()
    order = replace(DRAIN, accept=('PG_LIMIT',), prior_version=4)
    assert queue.give(SAVE, order=order) is None and queue.saved.all() == []
    with pytest.raises(Refused, match='is a state of the cluster'):
        queue.give(SAVE, order=replace(DRAIN, accept=('MON_DOWN',)))
    unknown = Preview(CHANGE, no_outlook='no answer')
    queue.starter.found = unknown, GROUND
    with pytest.raises(Refused, match='nothing to save: no answer') as refused:
        queue.give(SAVE, order=order)
    assert refused.value.errno == errno.EINVAL and queue.noted == []
    effects = Effects.__new__(Effects)
    preview: Any = SimpleNamespace(
        effects=effects, change=CHANGE, planned=SimpleNamespace(pins={'1.1': 0, '1.2': 0}),
        all_risks=lambda *args: [], answer=lambda order, *args: {**SHOWN, 'dry': order.dry_run})
    queue.starter.found = preview, GROUND
    shown = queue.give(SAVE, order=order)
    plan, = queue.saved.all()
    assert len(plan.token) == 8 and plan == a_plan(
        saved=BEFORE.now, order=replace(order, prior_version=None),
        preview={**SHOWN, 'dry': True}, pgs=2, token=plan.token)
    assert shown == plan.details(GROUND) and queue.noted == [
        ('request', 'plan save p', 'by command')]
    with pytest.raises(Refused) as refused:
        queue.give(SAVE, order=order)
    assert refused.value.errno == errno.EEXIST


ACTIVE = campaign_of(4, Phase.RELEASING, 900.0)


def test_a_plan_is_queued_behind_a_campaign() -> None:
    queue = Queue(a_plan(refused='x'), a_plan('q', approved=2000.0))
    queue.campaigns.current = ACTIVE
    answer: Document = {**SHOWN, 'plan': 'p', 'accepted': [], 'queued_behind': 4}
    assert queue.give(APPROVE, previews=True) == answer
    assert queue.starter.reopened == 0 and queue.noted == []
    assert queue.give(APPROVE) == dict(answer, dry_run=False) and queue.starter.reopened == 1
    assert queue.saved.get('p') == a_plan(approved=2000.001)
    assert queue.noted == [('request', 'plan approve p', 'queued behind campaign 4')]
    # A second approval leaves its place.
    queue.saved.put(a_plan('q', approved=3000.0))
    queue.give(APPROVE)
    assert queue.saved.get('p').approved == 2000.001
    with pytest.raises(Refused, match='plan p begins after campaign 4: .*omit --accept') as refused:
        queue.give(APPROVE, accept=('MON_DOWN',))
    assert refused.value.errno == errno.EINVAL


def test_an_approved_plan_begins_at_once() -> None:
    queue = Queue(a_plan())
    assert queue.give(APPROVE) is None and queue.saved.all() == [a_plan()]
    queue.starter.answer = {'campaign': 2}
    shown: Document = {'campaign': 2, 'plan': 'p', 'accepted': ['MON_DOWN'], 'queued_behind': None}
    assert queue.give(APPROVE, accept=('MON_DOWN',), previews=True) == shown
    assert queue.starter.began[-1][1:] == (
        replace(DRAIN, remove=True, dry_run=True, accept=('MON_DOWN',)), a_plan(),
        'plan p was approved')
    assert queue.saved.all() == [a_plan()]
    assert queue.give(APPROVE, accept=('MON_DOWN',)) == shown
    assert queue.starter.began[-1][1] == replace(DRAIN, remove=True)
    assert queue.saved.all() == [] and queue.kept == 3


@pytest.mark.parametrize('plan, held, fields, number', [
    (a_plan(), True, {}, errno.EBUSY), (a_plan(), False, {'token': 't2'}, errno.ESTALE),
    (a_plan(ground=replace(GROUND, pools={})), False, {}, errno.ESTALE),
    (a_plan(), False, {'accept': ('PG_LIMIT',)}, errno.EINVAL)])
def test_approvals_that_are_refused(plan: SavedPlan, held: bool, fields: Dict[str, Any],
                                    number: int) -> None:
    queue = Queue(plan)
    queue.campaigns.is_held = held
    for campaign in (NO_CAMPAIGN, ACTIVE):
        queue.campaigns.current = campaign
        with pytest.raises(Refused) as refused:
            queue.give(APPROVE, **fields)
        assert refused.value.errno == number and queue.starter.began == []


def test_when_a_plan_is_due() -> None:
    queue = Queue(a_plan())
    assert queue.may_start_next(1000.0) is False
    queue.saved.put(a_plan(approved=950.0))
    assert queue.may_start_next(1000.0) is True
    queue._retry = Retry('p', due=1001.0)
    assert queue.may_start_next(1000.0) is False and queue.may_start_next(1001.0) is True
    queue.campaigns.current = ACTIVE
    assert queue.may_start_next(1001.0) is False


def test_the_order_of_the_queue_is_computed_over_several_turns() -> None:
    queue = Queue(a_plan(approved=950.0), a_plan('q', approved=940.0))
    queue.start_next(BEFORE)
    queue.start_next(BEFORE)
    (first, _, plan, _), (second, *_) = queue.starter.began
    assert first is second and isinstance(first, QueuedOrder) and first.order == PlanOrder(
        APPROVE, 'q')
    assert plan == a_plan('q', approved=940.0)
    # Another plan is first by now.
    queue.saved.put(a_plan('r', approved=930.0))
    queue.start_next(BEFORE)
    assert queue.starter.began[-1][0] is not first
    assert queue.starter.began[-1][0].order.plan == 'r'
    # After a failover it is computed from the beginning.
    last = queue.starter.began[-1][0]
    assert queue.load() == []
    queue.start_next(BEFORE)
    assert queue.starter.began[-1][0] is not last
    queue.starter.answer = {'campaign': 2}
    queue.start_next(BEFORE)
    assert [plan.name for plan in queue.saved.queue()] == ['q', 'p']


@pytest.mark.parametrize('error, withdrawn', [
    (Refused(errno.EPERM, 'too full'), True), (Refused(errno.EAGAIN, 'no answer'), False),
    (Refused(errno.EPERM, 'not fit', not_fit=True), False)])
def test_a_plan_that_is_refused_is_withdrawn_or_tried_again(error: Refused,
                                                            withdrawn: bool) -> None:
    queue = Queue(a_plan(approved=950.0))
    queue.starter.error = error
    queue.start_next(BEFORE)
    if withdrawn:
        assert queue.saved.get('p') == a_plan(refused='too full')
        assert queue.noted == [('refused', 'plan approve p', 'too full')]
        assert queue._retry == Retry()
    else:
        assert queue.saved.get('p') == a_plan(approved=950.0) and queue.noted == []
        assert queue._retry.name == 'p' and not queue.may_start_next(BEFORE.now)
        assert queue.give(SHOW)['refused'] == str(error)


@pytest.mark.parametrize('end, text', [
    ((3, 'DONE'), ''), ((3, 'ABORTED'), 'campaign 3 is ABORTED'),
    (None, 'the outcome of the previous campaign is not known')])
def test_whether_a_plan_may_follow(end: Optional[Tuple[int, str]], text: str) -> None:
    queue = Queue()
    queue.campaigns.end = end
    assert queue.why_queue_waits() == text


def test_all_approvals_are_withdrawn() -> None:
    queue = Queue(a_plan(approved=950.0), a_plan('q'), a_plan('r', approved=940.0))
    assert queue.withdrawn == ['the approval of plan r will be withdrawn',
                               'the approval of plan p will be withdrawn']
    queue.withdraw_all('the campaign was aborted')
    assert queue.saved.queue() == [] and queue.withdrawn == []
    assert queue.saved.get('p') == a_plan(refused='the campaign was aborted')
    assert queue.saved.get('q') == a_plan('q') and len(queue.noted) == 2
