# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which orders begin a campaign or roll one back, and when their effects are computed again."""
import errno
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, get_args

import pytest

from perfguard.cluster.tool_thread import ToolJob
from perfguard.cluster.types import Document, PgCounts, Signals, Space
from perfguard.errors import Code, Reason, Refused
from perfguard.rebalance.campaign import NO_CAMPAIGN, AnyChange, Campaign, OwnCrush, Rollback
from perfguard.rebalance.balancing import BalanceChange
from perfguard.rebalance.campaign_orders import (
    COMPUTED_SECONDS, CampaignOrders, _acceptable, _bare, begin_rollback, check_rollback, not_fit)
from perfguard.rebalance.change import ChangeStage
from perfguard.rebalance.orders import Order
from perfguard.rebalance.pg_num import PgNumChange
from perfguard.rebalance.pool_change import PoolChange
from perfguard.rebalance.preview import Preview
from perfguard.rebalance.queued import QueuedOrder, WaitingOrder
from perfguard.rebalance.types import Phase
from perfguard.rebalance.weights import WeightChange
from perfguard.watch.stop_conditions import NOTHING

from ..fakes.campaigns import campaign_of
from ..fakes.driver import OPTIONS
from .test_auto_expand import seen

CHANGE = WeightChange(weights={3: 1.0}, stage=ChangeStage.LANDED)
OWN = OwnCrush(version=1, own=1)


def a_campaign(change: Any = CHANGE, phase: Phase = Phase.RELEASING, **fields: Any) -> Campaign:
    return campaign_of(4, phase, 900.0, change=change, **{'crush': OWN, **fields})


# ---- rollbacks

@pytest.mark.parametrize('campaign', [
    a_campaign(), a_campaign(None), a_campaign(phase=Phase.ABORTED, held=True),
    a_campaign(replace(CHANGE, closing=True)),
    a_campaign(BalanceChange(stage=ChangeStage.LANDED), crush=OwnCrush(1, -1))])
def test_campaigns_that_can_be_rolled_back(campaign: Campaign) -> None:
    assert check_rollback(campaign, seen(1, 1000.0)) is campaign


@pytest.mark.parametrize('campaign, number, text', [
    (NO_CAMPAIGN, errno.ENOENT, 'no campaign is active, and none has left pins: "undrain" fills '),
    (a_campaign(phase=Phase.ABORTED), errno.ENOENT, 'no campaign is active'),
    (a_campaign(phase=Phase.DONE), errno.ENOENT, 'no campaign is active'),
    (a_campaign(rollback=Rollback(begun=True)), errno.EALREADY,
     'campaign 4 is already being rolled back (see "campaign status")'),
    (a_campaign(rollback=Rollback(CHANGE)), errno.EALREADY, 'campaign 4 is already being'),
    (a_campaign(phase=Phase.FINISHING), errno.EBUSY,
     'campaign 4 is FINISHING: run "campaign abort" first'),
    (a_campaign(PgNumChange(found_pg_num=8, stage=ChangeStage.LANDED)), errno.EPERM,
     'campaign 4 changes pg_num of a pool: "campaign abort" first, then "pg_num <pool> 8", or '),
    (a_campaign(replace(CHANGE, closing=True), trigger='rule'), errno.EPERM,
     'campaign 4 has changed the CRUSH rule or pg_num of a pool: wait until it is DONE, or '
     '"campaign abort" first, then "rule" with the value from before'),
    *[(a_campaign(replace(CHANGE, closing=True), trigger=kind.kind), errno.EPERM,
       '"%s" with' % kind.kind) for kind in get_args(AnyChange) if issubclass(kind, PoolChange)],
    (a_campaign(replace(CHANGE, stage=ChangeStage.SENT)), errno.EBUSY,
     'campaign 4 is changing CRUSH: try again in a few seconds, or "campaign abort" first'),
    (a_campaign(replace(CHANGE, stage=ChangeStage.WANTED)), errno.EBUSY,
     'campaign 4 has not changed CRUSH: end it with "campaign abort"'),
    (a_campaign(crush=OwnCrush(1, -1)), errno.EPERM, 'the CRUSH change of campaign 4 is not known'),
    (a_campaign(crush=OwnCrush(1, 0, identity=5)), errno.EPERM,
     'CRUSH (version 1) was changed after campaign 4, which left version 0: '),
    (a_campaign(None, crush=OwnCrush(1, -1)), errno.EPERM, 'the CRUSH change of campaign 4')])
def test_campaigns_that_cannot_be_rolled_back(campaign: Campaign, number: int, text: str) -> None:
    with pytest.raises(Refused) as refused:
        check_rollback(campaign, seen(1, 1000.0))
    assert refused.value.errno == number and text in str(refused.value)


def test_a_rollback_begins() -> None:
    campaign = a_campaign(phase=Phase.ABORTED, held=True, ended=950.0, paused=True,
                          rollback=Rollback(begun=True, undone=CHANGE))
    after = begin_rollback(campaign, WeightChange(weights={3: 0.0}), 1000.0)
    assert (after.phase, after.phase_since, after.ended, after.held) == (
        Phase.ABORTING, 1000.0, None, False)
    assert after.automatic is True and after.orders.paused is False
    assert after.rollback == Rollback(WeightChange(weights={3: 0.0}), True, CHANGE)
    assert after.holds.prepared is True and after.holds.given_up == campaign.holds.given_up


# ---- the state of the cluster

def test_why_no_campaign_may_begin() -> None:
    healthy = seen(1, 1000.0)
    assert not_fit(healthy) == []
    old = replace(healthy.osdmap, min_compat_client='jewel')
    unfit = replace(healthy, settings=replace(healthy.settings, osdmap=old))
    assert [reason.code for reason in not_fit(unfit)] == [Code.OLD_CLIENTS]
    degraded = replace(unfit, signals=Signals(PgCounts(total=4, degraded=1)))
    assert [reason.code for reason in not_fit(degraded)] == [Code.DEGRADED, Code.OLD_CLIENTS]
    # What cannot be accepted is no risk of a preview.
    assert [risk.code for risk in _acceptable(not_fit(degraded))] == [Code.DEGRADED]


@pytest.mark.parametrize('order, bare', [
    (Order('drain', ('h7',), accept=('PG_LIMIT',), dry_run=True), Order('drain', ('h7',))),
    (Order('pg_num', ('p',), dry_run=True), Order('pg_num', ('p',), dry_run=True)),
    (Order('pg_num', ('p', '8'), dry_run=True), Order('pg_num', ('p', '8'))),
    (Order('pg_num', ('p',)), Order('pg_num', ('p',))),
    (Order('drain', ('h',), dry_run=True), Order('drain', ('h',)))])
def test_what_the_effects_of_an_order_depend_on(order: Order, bare: Order) -> None:
    assert _bare(order) == bare


# ---- computed effects

@dataclass
class Tools:
    jobs: List[Any] = field(default_factory=list)
    refuses: bool = False

    def submit(self, task: Callable[[], Any]) -> Optional[Any]:
        if self.refuses:
            return None
        self.jobs.append(ToolJob(task))
        return self.jobs[-1]


class Orders(CampaignOrders):
    def __init__(self) -> None:
        self.tools = Tools()
        self.left: Any = None
        self.asked: List[Any] = []
        self.space: Dict[int, Space] = {0: Space(100, 5, 1)}
        self.result: Any = Preview(CHANGE)
        self.campaigns = SimpleNamespace(current=NO_CAMPAIGN, active=False, storing=False)

        def job_left_behind(*args: Any) -> Any:
            self.asked.append(args)
            return self.left

        context: Any = SimpleNamespace(
            tools=self.tools, options=lambda: OPTIONS, note=None, reopen=None,
            job_left_behind=job_left_behind, cluster=SimpleNamespace(osd_space=lambda: self.space))
        super().__init__(context, self.campaigns, SimpleNamespace())  # type: ignore[arg-type]

    def effects(self, waiting: WaitingOrder, observation: Any = None) -> Any:
        return self._preview(waiting, observation or seen(1, 1000.0), lambda: lambda: self.result)

    def computed(self, order: Order, now: float = 1000.0) -> WaitingOrder:
        waiting = WaitingOrder(order)
        assert self.effects(waiting, seen(1, now)) is None
        self.tools.jobs[-1].run()
        assert self.effects(waiting, seen(1, now)) is self.result
        return waiting


DRAIN = Order('drain', ('h7',))
SHOWN = replace(DRAIN, dry_run=True)


def test_effects_are_computed_in_the_tool_thread() -> None:
    orders = Orders()
    waiting = orders.computed(DRAIN)
    assert waiting.crush_version == 1 and waiting.phase_since == 0.0
    assert orders.asked == [(DRAIN, 1, 0.0)]
    # With another version, a preview still shows them.
    with pytest.raises(Refused, match='CRUSH has changed during') as refused:
        orders.effects(waiting, seen(2, 1000.0))
    assert refused.value.errno == errno.EAGAIN
    shown = orders.computed(SHOWN)
    assert orders.effects(shown, seen(2, 1000.0)) is orders.result


def test_a_full_tool_thread_refuses() -> None:
    orders = Orders()
    orders.tools.refuses = True
    with pytest.raises(Refused, match='too many previews') as refused:
        orders.effects(WaitingOrder(DRAIN))
    assert refused.value.errno == errno.EAGAIN and orders._computed is None


def test_the_job_of_the_same_order_is_taken_over() -> None:
    orders = Orders()
    orders.left = ToolJob(lambda: 'left')
    orders.left.run()
    assert orders.effects(WaitingOrder(DRAIN)) == 'left' and orders.tools.jobs == []
    rollback = WaitingOrder(Order('rollback'))
    orders.campaigns.current = replace(a_campaign(), phase_since=955.0)
    assert orders.effects(rollback) == 'left' and orders.asked[-1] == (Order('rollback'), 1, 955.0)
    # The basis of a rollback changes with each release.
    orders.campaigns.active = True
    assert orders.effects(WaitingOrder(Order('rollback'))) is None and len(orders.tools.jobs) == 1
    assert orders.effects(WaitingOrder(DRAIN)) == 'left'


@pytest.mark.parametrize('now, serves', [
    (1000.0, True), (1000.0 + COMPUTED_SECONDS, True), (1000.5 + COMPUTED_SECONDS, False)])
def test_the_effects_of_a_preview_serve_its_order_for_a_while(now: float, serves: bool) -> None:
    orders = Orders()
    orders.computed(SHOWN)
    found = orders.effects(WaitingOrder(replace(DRAIN, accept=('PG_LIMIT',))), seen(1, now))
    assert (found is orders.result) is serves and len(orders.tools.jobs) == (1 if serves else 2)


@pytest.mark.parametrize('order, result', [
    (SHOWN, None), (Order('drain', ('h8',)), None), (DRAIN, 'x'),
    (DRAIN, Preview(CHANGE, no_outlook='no answer')), (Order('rollback'), None)])
def test_effects_that_do_not_serve_an_order(order: Any, result: Any) -> None:
    orders = Orders()
    if result is not None:
        orders.result = result
    orders.computed(SHOWN)
    assert orders.effects(WaitingOrder(order)) is None and len(orders.tools.jobs) == 2


def test_what_the_effects_depend_on() -> None:
    changes: Sequence[Tuple[str, Any]] = [
        ('space', {0: Space(100, 5)}), ('space', {0: Space(100, 5, 1), 1: Space(1, 1, 1)}),
        ('left_space', None)]
    for name, value in changes:
        orders = Orders()
        orders.computed(SHOWN)
        if name == 'space':
            orders.space = value
        else:
            orders.space = {0: Space(100, 99, 7)}  # numbers do not matter
        found = orders.effects(WaitingOrder(DRAIN))
        assert (found is None) is (name == 'space')
    for observation in (seen(2, 1000.0), replace(seen(1, 1000.0), balancing=None)):
        orders = Orders()
        orders.computed(SHOWN)
        assert orders.effects(WaitingOrder(DRAIN), observation) is None


def test_a_job_that_fails_is_of_no_use_for_others() -> None:
    orders = Orders()
    waiting = WaitingOrder(SHOWN)
    assert orders.effects(waiting) is None

    def fails() -> Any:
        raise ValueError('broken')

    orders.tools.jobs[0]._task = fails
    orders.tools.jobs[0].run()
    with pytest.raises(ValueError):
        orders.effects(waiting)
    assert orders.effects(WaitingOrder(DRAIN)) is None and len(orders.tools.jobs) == 2


# ---- refusals

def test_a_queued_order_accepts_no_state_of_the_cluster() -> None:
    health = [Reason(Code.DEGRADED, 'PGs are degraded'), Reason(Code.MON_DOWN, 'a mon is down')]
    orders = Orders()
    accepted = replace(DRAIN, accept=('DEGRADED', 'MON_DOWN'))
    orders._refuse_health(WaitingOrder(accepted), health)
    orders._refuse_health(QueuedOrder(DRAIN), [])
    with pytest.raises(Refused) as refused:
        orders._refuse_health(QueuedOrder(accepted), health)
    assert (refused.value.errno, str(refused.value), refused.value.not_fit) == (
        errno.EPERM, 'PGs are degraded; a mon is down; it begins when this has cleared', True)
    with pytest.raises(Refused, match='a mon is down') as refused:
        orders._refuse_health(WaitingOrder(replace(DRAIN, accept=('DEGRADED',))), health)
    assert refused.value.not_fit and 'PGs are degraded' not in str(refused.value)


def test_what_is_known_of_an_order_that_was_refused() -> None:
    orders, observation = Orders(), seen(1, 1000.0)
    assert orders._known_touched(DRAIN, observation) is NOTHING
    orders._unfit = DRAIN, 1, None
    assert orders._known_touched(DRAIN, observation) is None
    assert orders._known_touched(DRAIN, seen(2, 1000.0)) is NOTHING
    assert orders._known_touched(SHOWN, observation) is NOTHING


def test_the_answer_of_a_campaign_whose_pins_are_being_stored() -> None:
    orders = Orders()
    orders.campaigns.current, orders.campaigns.storing = a_campaign(), True
    answer: Document = {'campaign': 4}
    assert orders._answer_once_stored(answer) is None
    orders.campaigns.storing = False
    assert orders._answer_once_stored(answer) is answer
    with pytest.raises(Refused, match='campaign 5 has not begun') as refused:
        orders._answer_once_stored({'campaign': 5})
    assert refused.value.errno == errno.ECANCELED
