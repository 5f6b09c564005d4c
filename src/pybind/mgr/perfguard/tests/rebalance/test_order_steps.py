# SPDX-License-Identifier: LGPL-2.1-or-later
"""The steps in which an order begins a campaign or rolls one back, without a cluster."""
import errno
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import pytest

from perfguard.cluster.ports import Future, FuturePg, NoFuture, Outlook
from perfguard.cluster.types import (NO_ENTRY, Document, Osd, OsdSet, PgCounts, Signals, Space,
                                     UpmapEntry)
from perfguard.errors import Code, Refused
from perfguard.observation import Observation
from perfguard.rebalance import campaign_orders
from perfguard.rebalance.adopting import Adoption, Imported
from perfguard.rebalance.campaign import NO_CAMPAIGN, Campaign, OwnCrush
from perfguard.rebalance.campaign_orders import CampaignOrders
from perfguard.rebalance.change import ChangeStage, Details, Planned
from perfguard.rebalance.moves import Move
from perfguard.rebalance.orders import Order
from perfguard.rebalance.preview import Preview
from perfguard.rebalance.queued import QueuedOrder, WaitingOrder
from perfguard.rebalance.requests import Request
from perfguard.rebalance.risks import Risk
from perfguard.rebalance.types import TINY_WEIGHT, Phase, PinRecord
from perfguard.rebalance.weights import WeightChange
from perfguard.watch.stop_conditions import NOTHING, Touched

from ..fakes.campaigns import campaign_of
from ..fakes.drafts import CRUSH, HERE, OPTIONS, OSDS, PIN, PINNED, THERE, draft_of
from .test_campaign_orders import Tools
from .test_orders import crush

CHANGE = WeightChange(weights={3: 1.0})
DRAIN = Order('drain', ('h3',))
SPACE = {0: Space(100, 5, 1)}
ACTIVE = campaign_of(4, Phase.RELEASING, 900.0)
HELD = campaign_of(4, Phase.ABORTED, 900.0, held=True, crush=OwnCrush(1, 1), change=replace(
    CHANGE, stage=ChangeStage.LANDED))
CROWDED = Risk(Code.PG_LIMIT, 'too many PGs', errno.E2BIG)
MOVE = Move('1.1', (0,), (3,), 0, 700, True)


@dataclass(frozen=True)
class Shown(Preview):
    """A preview with given effects."""
    risks: Tuple[Risk, ...] = ()
    divided: bool = False
    size: Optional[int] = 500
    affected: Optional[Touched] = Touched(frozenset({3}), frozenset({1}))
    lacking: Tuple[str, ...] = ()
    pins: int = 1
    codes: Tuple[str, ...] = ()

    def all_risks(self, *_: Any) -> List[Risk]:
        return list(self.risks)

    @property
    def required_bytes(self) -> Optional[int]:
        return self.size

    @property
    def touched(self) -> Optional[Touched]:
        return self.affected

    @property
    def undersized(self) -> List[str]:
        return list(self.lacking)

    @property
    def most_pins(self) -> int:
        return self.pins

    @property
    def accepted(self) -> Tuple[str, ...]:
        return self.codes

    def in_tranches(self, *_: Any) -> bool:
        return self.divided

    def answer(self, order: Order, campaign: Optional[int], observation: Observation,
               options: Any, health: Sequence[Risk] = ()) -> Document:
        return {'order': order, 'campaign': campaign, 'warnings': list(self.warnings),
                'health': [risk.code for risk in health]}

    def as_json(self, order: Order, campaign: Optional[int]) -> Document:
        return {'order': order, 'campaign': campaign}


class CampaignsFake:
    def __init__(self) -> None:
        self.current, self.pins = NO_CAMPAIGN, {}  # type: Campaign, Mapping[str, PinRecord]
        self.active = self.storing = self.removing = self.no_map = False
        self.pins_held_back = 0
        self.history = SimpleNamespace(rates=lambda: [50.0])
        self.calls: List[Any] = []

    def refuse_held(self) -> None:
        if self.current.held:
            raise Refused(errno.EBUSY, 'it keeps PGs pinned')

    def refuse_removing(self) -> None:
        if self.removing:
            raise Refused(errno.EAGAIN, 'it is being removed')

    def why_larger(self, change: Any, observation: Observation) -> List[str]:
        return []

    def remember_crush(self, observation: Observation) -> None:
        if self.no_map:
            raise Refused(errno.EAGAIN, 'no map')

    def begin(self, observation: Observation, trigger: str, *plan: str) -> Campaign:
        self.calls.append(('begin', trigger, *plan))
        self.current = campaign_of(5, Phase.PREPARED, 1000.0, target='balanced')
        return self.current

    def begin_after(self, observation: Observation, trigger: str) -> Campaign:
        return replace(self.begin(observation, trigger), automatic=True)

    def put(self, campaign: Campaign) -> None:
        self.calls.append(campaign)
        self.current = campaign

    def store_first_pins(self, pins: Mapping[str, PinRecord],
                         observation: Observation) -> Campaign:
        self.calls.append(dict(pins))
        return replace(self.current, storing=self.storing)


class CrushOrdersFake:
    def __init__(self) -> None:
        self.preview: Any = Shown(CHANGE)
        self.asked: List[Tuple[Any, ...]] = []
        self.checked: List[Order] = []
        self.journalled: List[Any] = []

    def check_arguments(self, order: Order, observation: Observation) -> None:
        self.checked.append(order)
        if 'nowhere' in order.names:
            raise Refused(errno.ENOENT, 'nowhere')

    def _asked(self, *args: Any) -> Callable[[], Any]:
        self.asked.append(args)
        return lambda: self.preview

    previewing = supposing = previewing_back = _asked

    def journal(self, preview: Any, observation: Observation) -> None:
        self.journalled.append(preview)


class Orders(CampaignOrders):
    def __init__(self, current: Campaign = NO_CAMPAIGN) -> None:
        self.tools, self.campaigns, self.crush = Tools(), CampaignsFake(), CrushOrdersFake()
        self.campaigns.current = current
        self.events: List[Tuple[str, str, str]] = []
        self.reopened = 0
        self.closing = False
        self.options = OPTIONS
        self.outlook: Outlook = Future({}, CRUSH)
        self.outlooks: List[Tuple[Any, ...]] = []
        context: Any = SimpleNamespace(
            tools=self.tools, options=lambda: self.options, reopen=self._reopened,
            note=lambda event: self.events.append((event.kind, event.what, event.why)),
            refuse_closing=self._refuse_closing, job_left_behind=lambda *_: None,
            cluster=SimpleNamespace(osd_space=lambda: SPACE, outlook=self._outlook))
        super().__init__(context, self.campaigns, self.crush)  # type: ignore[arg-type]

    def _reopened(self) -> None:
        self.reopened += 1

    def _refuse_closing(self) -> None:
        if self.closing:
            raise Refused(errno.EBUSY, 'the cluster is being shut down')

    def _outlook(self, *args: Any, whole: bool) -> Outlook:
        self.outlooks.append((*args, whole))
        return self.outlook

    def answer(self, waiting: Any, seen: Optional[Observation] = None) -> Any:
        """In the turn after the one that asks, if that does not refuse."""
        waiting = waiting if isinstance(waiting, WaitingOrder) else WaitingOrder(waiting)
        observation = SEEN if seen is None else seen
        assert self.carry_out(waiting, observation, VIEW) is None
        self.tools.jobs[-1].run()
        return self.carry_out(waiting, observation, VIEW)


class ViewFake:
    def pool_up(self, pool_id: int) -> Mapping[str, OsdSet]:
        return {'%d.%x' % (pool_id, seed): HERE for seed in range(8)}


VIEW: Any = ViewFake()


def observed(**fields: Any) -> Observation:
    fields = {'crush_version': 1, **fields}
    return draft_of(NO_CAMPAIGN, **fields).observed


SEEN = observed()
PEERING = observed(signals=Signals(PgCounts(total=16, in_transition=1)))
#: In pool 2.
DEGRADED = observed(signals=Signals(PgCounts(total=16, degraded=1), {2: PgCounts(degraded=1)}))
IS_PEERING = '1 PG is peering or activating'


def refused(number: int, text: str, orders: Orders, waiting: Any, seen: Observation = SEEN,
            tools: bool = False) -> None:
    """`tools`: whether Ceph's tools run before that."""
    waiting = waiting if isinstance(waiting, WaitingOrder) else WaitingOrder(waiting)
    with pytest.raises(Refused) as error:
        if tools:
            orders.answer(waiting, seen)
        else:
            orders.carry_out(waiting, seen, VIEW)
    assert (error.value.errno, str(error.value)) == (number, text)
    assert len(orders.tools.jobs) == (1 if tools else 0)
    assert orders.events == orders.campaigns.calls == [] and orders.reopened == 0


# ---- previews

@pytest.mark.parametrize('order', [Order('lose', ('h3',), dry_run=True),
                                   Order('expand', what_if='1x1x1T', dry_run=True)])
def test_a_supposed_cluster_is_only_a_preview(order: Order) -> None:
    orders = Orders(ACTIVE)
    orders.crush.preview = answer = {'verb': order.verb}
    assert orders.answer(order, PEERING) is answer
    assert orders.crush.asked == [(order, PEERING, OPTIONS, [50.0])]


@pytest.mark.parametrize('current, seen, warnings, health', [
    (NO_CAMPAIGN, SEEN, [], []), (NO_CAMPAIGN, PEERING, [], [Code.PEERING]),
    (ACTIVE, SEEN, ['the order would be refused now: campaign 4 is RELEASING'], [])])
def test_a_dry_run_begins_nothing(current: Campaign, seen: Observation, warnings: List[str],
                                  health: List[str]) -> None:
    orders = Orders(current)
    orders.crush.preview = Shown(CHANGE, warnings=('a warning',), risks=(CROWDED,))
    order = replace(DRAIN, dry_run=True)
    found = orders.answer(order, seen)
    assert found is not None and found['campaign'] is None and found['order'] is order
    first, *others = found['warnings']
    assert first == 'a warning' and len(others) == len(warnings)
    assert all(text.startswith(begin) for text, begin in zip(others, warnings))
    assert found['health'] == health
    assert orders.crush.asked == [(order, seen, OPTIONS, [50.0])] and orders.crush.checked == []
    assert orders.events == orders.campaigns.calls == orders.crush.journalled == []
    assert orders.reopened == 0


def test_a_preview_for_others() -> None:
    orders, waiting = Orders(ACTIVE), WaitingOrder(DRAIN)
    assert orders.preview(waiting, SEEN, DRAIN) is None
    orders.tools.jobs[0].run()
    found = orders.preview(waiting, SEEN, DRAIN)
    assert found is not None and found[0] is orders.crush.preview
    assert found[1].crush_version == 1
    assert orders.crush.asked == [(DRAIN, SEEN, OPTIONS, [50.0])]


# ---- refusals

def test_no_tools_run_for_an_order_that_is_refused_in_any_case() -> None:
    refused(errno.ENOENT, 'nowhere', Orders(), Order('drain', ('nowhere',)))
    for verb in ('balance', 'adopt', 'import'):
        for dry_run in (False, True):
            refused(errno.EBUSY, 'it keeps PGs pinned', Orders(HELD), Order(verb, dry_run=dry_run))
    orders = Orders()
    orders.campaigns.removing = True
    refused(errno.EAGAIN, 'it is being removed', orders, DRAIN)
    orders = Orders()
    orders.closing = True
    refused(errno.EBUSY, 'the cluster is being shut down', orders, DRAIN)
    orders = Orders()
    orders.options = replace(OPTIONS, latency_limits_ms='none=5')
    with pytest.raises(Refused, match='invalid module options'):
        orders.carry_out(WaitingOrder(DRAIN), SEEN, VIEW)
    with pytest.raises(Refused, match='campaign 4 is RELEASING'):
        Orders(ACTIVE).carry_out(WaitingOrder(DRAIN), SEEN, VIEW)
    old = observed(flags=())
    old = replace(old, settings=replace(old.settings, osdmap=replace(
        old.osdmap, min_compat_client='jewel')))
    with pytest.raises(Refused, match='upmaps require luminous'):
        Orders().carry_out(WaitingOrder(DRAIN), old, VIEW)


@pytest.mark.parametrize('verb', ['drain', 'adopt', 'import'])
def test_an_order_that_is_tried_again_waits_for_the_cluster_without_tools(verb: str) -> None:
    text = '%s; to accept: "ceph perfguard %s --accept PEERING"' % (
        '%s (PEERING)' % IS_PEERING, verb)
    order = Order(verb)
    refused(errno.EPERM, text, Orders(), WaitingOrder(order, refused_before=True), PEERING)
    queued = '%s; it begins when this has cleared' % IS_PEERING
    refused(errno.EPERM, queued, Orders(), QueuedOrder(order), PEERING)
    # The first time they run; with --accept as well.
    for waiting in (WaitingOrder(order), WaitingOrder(replace(order, accept=('PEERING',)),
                                                      refused_before=True)):
        orders = Orders()
        assert orders.carry_out(waiting, PEERING, VIEW) is None and len(orders.tools.jobs) == 1


def test_only_trouble_that_concerns_the_change_matters() -> None:
    seen = observed(signals=Signals(PgCounts(total=16, degraded=1)), osd_counts={
        7: PgCounts(total=1, degraded=1)})
    assert Orders().answer(DRAIN, seen) is not None
    orders = Orders()
    orders.crush.preview = Shown(CHANGE, affected=None)
    waiting = WaitingOrder(DRAIN)
    with pytest.raises(Refused, match='DEGRADED'):
        orders.answer(waiting, seen)
    # Known by now: the tools do not run again.
    again = WaitingOrder(DRAIN, refused_before=True)
    with pytest.raises(Refused, match='DEGRADED'):
        orders.carry_out(again, seen, VIEW)
    assert again.job is None and len(orders.tools.jobs) == 1
    # Once the cluster is fit, it is forgotten.
    assert orders.answer(DRAIN) is not None and orders._unfit is None


def test_risks_have_to_be_accepted() -> None:
    orders = Orders()
    orders.crush.preview = Shown(CHANGE, risks=(CROWDED,))
    refused(errno.EPERM, '%s (PEERING); too many PGs (PG_LIMIT); to accept: "ceph perfguard drain '
            'h3 --accept PEERING --accept PG_LIMIT"' % IS_PEERING, orders, DRAIN, PEERING,
            tools=True)
    orders = Orders()
    orders.crush.preview = Shown(CHANGE, risks=(CROWDED,), codes=('PG_LIMIT',))
    found = orders.answer(replace(DRAIN, accept=('PEERING', 'PG_LIMIT')), PEERING)
    assert found is not None and found['campaign'] == 5 and found['warnings'] == []
    assert orders.campaigns.current.orders.acknowledged == ('PG_LIMIT',)


def test_a_condition_that_stops_releases_is_named_although_it_is_accepted() -> None:
    order = replace(DRAIN, accept=('DEGRADED', 'PEERING'))
    seen = observed(signals=Signals(PgCounts(total=16, degraded=1, in_transition=1)))
    found = Orders().answer(order, seen)
    assert found is not None and found['warnings'] == [
        'DEGRADED is accepted for the beginning of the campaign, and still stops releases: '
        '"campaign accept DEGRADED" ignores it']


# ---- the beginning of a campaign

def test_a_change_begins_a_campaign() -> None:
    orders = Orders()
    orders.crush.preview = preview = Shown(CHANGE, warnings=('a warning',), lacking=('1.1', '1.2'),
                                           codes=('PG_LIMIT',))
    assert orders.answer(DRAIN) == {'order': DRAIN, 'campaign': 5, 'warnings': ['a warning'],
                                    'health': []}
    begun, campaign = orders.campaigns.calls
    assert begun == ('begin', 'drain') and campaign.automatic is True
    assert campaign.change == CHANGE.begun(SEEN) and campaign.target == 'balanced'
    assert campaign.orders.acknowledged == ('PG_LIMIT',)
    assert campaign.pinning.undersized_pgs == ('1.1', '1.2')
    assert campaign.bill.required_bytes == 500
    assert orders.crush.journalled == [preview] and orders.reopened == 1
    assert orders.events == [('request', 'drain', 'by command')]
    assert orders.crush.checked == [DRAIN, DRAIN]


def test_a_change_is_not_journalled_without_the_map_from_before() -> None:
    orders = Orders()
    orders.campaigns.no_map = True
    with pytest.raises(Refused, match='no map'):
        orders.answer(DRAIN)
    assert orders.crush.journalled == orders.events == orders.campaigns.calls == []
    assert orders.reopened == 0


@pytest.mark.parametrize('fields, pins, expected', [
    ({}, {}, (500, 'balanced', ())), ({'size': None}, {}, (0, 'balanced', ())),
    # It also moves the PGs of an earlier change.
    ({}, {'1.1': PIN}, (0, 'balanced', ())),
    ({'details': Details(follows_change=True)}, {}, (500, 'crush', ())),
    ({'pins': 8}, {}, (500, 'balanced', ('PIN_LIMIT',))),
    ({'pins': 7}, {}, (500, 'balanced', ())),
    ({'pins': 8, 'divided': True}, {}, (500, 'balanced', ()))])
def test_a_campaign_with_the_change_of_its_order(fields: Dict[str, Any], pins: Any,
                                                 expected: Tuple[Any, ...]) -> None:
    orders = Orders()
    orders.options = replace(OPTIONS, max_pins=7)
    orders.campaigns.pins, orders.crush.preview = pins, Shown(CHANGE, **fields)
    assert orders.answer(DRAIN) is not None
    found = orders.campaigns.current
    assert (found.bill.required_bytes or 0, found.target, found.orders.acknowledged) == expected


@pytest.mark.parametrize('order, pool', [
    (Order('rule', ('rep', 'racks')), 'rep'), (Order('drain', ('osd.1',)), '')])
def test_only_another_rule_for_the_pool_may_replace_an_intermediate_one(
        monkeypatch: pytest.MonkeyPatch, order: Order, pool: str) -> None:
    requests: List[Any] = []
    monkeypatch.setattr(campaign_orders, 'why_rule_first', lambda campaign, osdmap, pool_name: (
        'first ' + pool_name))
    monkeypatch.setattr(campaign_orders, 'check', lambda campaign, request, pins, **given:
                        requests.append((request, pins, given['left_rule'])))
    orders = Orders()
    orders.campaigns.pins_held_back = 3
    assert orders.answer(order) is not None
    assert requests == [(Request('prepare'), 3, 'first ' + pool)] * 3


class PlanFake:
    name, token, command_to_save = 'weekly', 'x1', 'ceph perfguard plan save weekly'

    def __init__(self) -> None:
        self.compared: List[Any] = []

    def refuse_other(self, preview: Any, order: Order) -> None:
        self.compared.append((preview, order))


def test_a_saved_plan_is_carried_out() -> None:
    orders, saved, kept = Orders(), PlanFake(), []  # type: Orders, Any, List[int]
    accepts = replace(DRAIN, accept=('PG_LIMIT',))
    orders.crush.preview = Shown(CHANGE, risks=(CROWDED,))
    waiting = WaitingOrder(Order('approve', accept=('DEGRADED',)))
    seen = observed(signals=Signals(PgCounts(total=16, degraded=1)))
    orders.begin_change(waiting, seen, accepts, saved, 'as planned', lambda: kept.append(1))
    orders.tools.jobs[0].run()
    found: Any = orders.begin_change(waiting, seen, accepts, saved, 'as planned',
                                     lambda: kept.append(1))
    assert found is not None and found['order'] is accepts and kept == [1]
    assert 'DEGRADED is accepted' in found['warnings'][0] and len(found['warnings']) == 1
    assert saved.compared == [(orders.crush.preview, accepts)]
    assert orders.campaigns.calls[0] == ('begin', 'drain', 'weekly', 'x1')
    assert orders.events == [('request', 'drain', 'as planned')]


@pytest.mark.parametrize('waiting, seen, text', [
    (WaitingOrder(Order('approve')), SEEN, 'too many PGs (PG_LIMIT); to accept: "ceph perfguard '
     'plan save weekly --accept PG_LIMIT"'),
    (WaitingOrder(Order('approve', accept=('PG_LIMIT',))), SEEN, 'too many PGs (PG_LIMIT); to '
     'accept: "ceph perfguard plan save weekly --accept PG_LIMIT"'),
    (QueuedOrder(Order('approve')), PEERING, IS_PEERING + '; it begins when this has cleared')])
def test_what_a_saved_plan_does_not_accept(waiting: WaitingOrder, seen: Observation,
                                           text: str) -> None:
    orders, saved = Orders(), PlanFake()  # type: Orders, Any
    orders.crush.preview = Shown(CHANGE, risks=(CROWDED,))
    waiting.refused_before = False
    orders.begin_change(waiting, seen, DRAIN, saved)
    orders.tools.jobs[0].run()
    with pytest.raises(Refused) as error:
        orders.begin_change(waiting, seen, DRAIN, saved)
    assert str(error.value) == text and orders.campaigns.calls == []


def test_the_state_of_the_cluster_is_accepted_with_a_plan() -> None:
    """Not by the order that was saved."""
    orders, saved = Orders(), PlanFake()  # type: Orders, Any
    waiting, order = WaitingOrder(Order('approve')), replace(DRAIN, accept=('PEERING',))
    orders.begin_change(waiting, PEERING, order, saved)
    orders.tools.jobs[0].run()
    with pytest.raises(Refused, match='PEERING.*"ceph perfguard approve --accept PEERING"'):
        orders.begin_change(waiting, PEERING, order, saved)


def test_a_queued_order_names_its_own_command() -> None:
    orders = Orders()
    orders.crush.preview = Shown(CHANGE, risks=(CROWDED,))
    waiting = QueuedOrder(Order('placeholder'))
    orders.begin_change(waiting, SEEN, DRAIN)
    orders.tools.jobs[0].run()
    with pytest.raises(Refused, match='"ceph perfguard drain h3 --accept PG_LIMIT"'):
        orders.begin_change(waiting, SEEN, DRAIN)


# ---- adoptions and imports

ADOPTED = Adoption({'1.1': PIN, '1.2': PIN}, moves=(MOVE, MOVE._replace(pgid='1.2')))
IMPORTED = Imported({'1.1': PinRecord(PINNED, PINNED, goal=NO_ENTRY)}, moves=(MOVE,))
BOTH = observed(entries={'1.1': PINNED, '1.2': PINNED})
MAPPINGS = b'[{"pgid": "1.1", "mapping": {"from": 0, "to": 3}}]'
ADOPT, IMPORT = Order('adopt'), Order('import', mappings=MAPPINGS)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The upmaps that become pins, and the arguments of the search."""
    found = SimpleNamespace(adopted=ADOPTED, imported=IMPORTED, args=[])

    def plan_adoption(*args: Any, raws: Any, **options: Any) -> Any:
        found.args.append((*args, options, raws))
        return found.adopted

    def plan_import(*args: Any) -> Any:
        found.args.append(args)
        return found.imported

    monkeypatch.setattr(campaign_orders, 'plan_adoption', plan_adoption)
    monkeypatch.setattr(campaign_orders, 'plan_import', plan_import)
    return found


@pytest.mark.parametrize('order, target, pins, size', [
    (ADOPT, 'balanced', ADOPTED.pins, 1400), (IMPORT, 'crush', IMPORTED.pins, 700)])
def test_upmaps_become_the_pins_of_a_campaign(found: Any, order: Order, target: str, pins: Any,
                                              size: int) -> None:
    orders = Orders()
    answer = orders.answer(order, BOTH)
    assert answer is not None and answer['verb'] == order.verb and answer['campaign'] == 5
    assert 'fast_peering' in answer
    begun, campaign, stored, after = orders.campaigns.calls
    assert begun == ('begin', order.verb) and stored == pins
    assert campaign.storing is True and campaign.automatic is True and campaign.target == target
    assert campaign.bill.required_bytes == size and campaign.orders.acknowledged == ()
    assert after == replace(campaign, storing=False)
    assert orders.events == [('request', order.verb, 'by command')] and orders.reopened == 1


def test_the_answer_waits_until_all_pins_are_stored(found: Any) -> None:
    orders, waiting = Orders(), WaitingOrder(ADOPT)
    orders.campaigns.storing = True
    assert orders.answer(waiting, BOTH) is None
    # Another order has another answer.
    refused_order = WaitingOrder(ADOPT)
    with pytest.raises(Refused, match='campaign 5 is PREPARED'):
        orders.carry_out(refused_order, BOTH, VIEW)
    assert orders.carry_out(waiting, BOTH, VIEW) is None
    orders.campaigns.storing = False
    answer = orders.carry_out(waiting, BOTH, VIEW)
    assert answer is not None and answer['campaign'] == 5 and answer['pgs'] == 2
    assert len(orders.campaigns.calls) == 4 and len(orders.tools.jobs) == 1
    orders.campaigns.current = replace(orders.campaigns.current, id=6)
    with pytest.raises(Refused, match='campaign 5 has not begun'):
        orders.carry_out(waiting, BOTH, VIEW)


def test_only_entries_that_are_still_there_become_pins(found: Any) -> None:
    orders = Orders()
    answer = orders.answer(ADOPT, observed(entries={'1.1': PINNED}))
    assert answer is not None and answer['pgs'] == 1 and answer['bytes'] == 700
    assert orders.campaigns.calls[2] == {'1.1': PIN}
    assert orders.campaigns.calls[1].bill.required_bytes == 700
    orders = Orders()
    refused(errno.EAGAIN, 'the upmaps have changed during the computation: if another tool '
            'changes them, stop it, then try again', orders, ADOPT, SEEN, tools=True)


@pytest.mark.parametrize('limit, acknowledged', [(1, ('PIN_LIMIT',)), (2, ())])
def test_too_many_pins_are_accepted_with_the_order(found: Any, limit: int,
                                                   acknowledged: Tuple[str, ...]) -> None:
    orders = Orders()
    orders.options = replace(OPTIONS, max_pins=limit)
    assert orders.answer(ADOPT, BOTH) is not None
    assert orders.campaigns.current.orders.acknowledged == acknowledged


def test_a_dry_run_takes_nothing_over(found: Any) -> None:
    found.imported = replace(IMPORTED, left_out={'1.5': 'why'})
    for order, risks in ((ADOPT, ['PEERING']), (IMPORT, ['PEERING', 'LEFT_OUT'])):
        orders = Orders(ACTIVE)
        answer = orders.answer(replace(order, dry_run=True), replace(
            BOTH, signals=PEERING.signals))
        assert answer is not None and answer['campaign'] is None
        assert [risk['code'] for risk in answer['risks']] == risks
        assert [text.partition(': ')[0] for text in answer['warnings']] == [
            'the order would be refused now']
        assert orders.events == orders.campaigns.calls == [] and orders.reopened == 0
    accepts = replace(IMPORT, dry_run=True, accept=('PEERING',))
    answer = Orders().answer(accepts, replace(BOTH, signals=PEERING.signals))
    assert answer is not None and [risk['code'] for risk in answer['risks']] == ['LEFT_OUT']
    assert answer['warnings'] == []


def test_risks_of_an_import(found: Any) -> None:
    """Of an adoption, the state of the cluster alone."""
    found.imported = replace(IMPORTED, left_out={'1.5': 'why'})
    with pytest.raises(Refused) as error:
        Orders().answer(IMPORT, replace(BOTH, signals=PEERING.signals))
    assert str(error.value).startswith(IS_PEERING + ' (PEERING); the mappings of 1 PG cannot be')
    assert str(error.value).endswith(
        '"ceph perfguard import -i <file> --accept PEERING --accept LEFT_OUT"')
    accepts = replace(IMPORT, accept=('PEERING', 'LEFT_OUT'))
    assert Orders().answer(accepts, replace(BOTH, signals=PEERING.signals)) is not None
    # A preview shows that nothing would move.
    found.imported = Imported(left_out={'1.5': 'why'})
    shown = Orders().answer(replace(IMPORT, dry_run=True), BOTH)
    assert shown is not None and shown['pgs'] == 0 and shown['risks'] == []
    with pytest.raises(Refused, match='nothing to import'):
        Orders().answer(IMPORT, BOTH)
    found.adopted = Adoption()
    for dry_run in (False, True):
        with pytest.raises(Refused, match='no upmap keeps data away'):
            Orders().answer(replace(ADOPT, dry_run=dry_run), BOTH)


DRAINED = crush({**dict.fromkeys(OSDS, 1.0), 7: TINY_WEIGHT}, hosts=8)


@pytest.mark.parametrize('accept, uncovered', [((), False), (('NOT_BALANCED',), True)])
def test_the_search_for_upmaps_to_adopt(found: Any, accept: Tuple[str, ...],
                                        uncovered: bool) -> None:
    orders = Orders()
    orders.campaigns.pins = {'1.2': PIN}
    orders.outlook = Future({pgid: FuturePg(HERE, THERE) for pgid in ('1.3', '1.4')}, CRUSH)
    # Only vectors to drained OSDs show that they are no work of an operator.
    seen = observed(crush=DRAINED, entries={
        '1.1': PINNED, '1.2': PINNED, '1.3': UpmapEntry(vector=(7, 1, 2)),
        '1.4': UpmapEntry(vector=HERE)})
    assert orders.answer(replace(ADOPT, accept=accept), seen) is not None
    assert orders.outlooks == [(seen.osdmap, {}, None, False)]
    assert found.args == [(seen.osdmap, seen.crush, VIEW.pool_up, seen.balancing, {'1.2'}, {
        'uncovered': uncovered, 'pool_bytes': seen.signals.pool_bytes}, {'1.3': THERE})]


@pytest.mark.parametrize('entry, raws', [(PINNED, {}), (UpmapEntry(vector=HERE), {'1.1': THERE})])
def test_the_search_for_pgs_of_an_import(found: Any, entry: UpmapEntry, raws: Any) -> None:
    found.imported = replace(IMPORTED, pins={'1.1': PinRecord(entry, entry, goal=NO_ENTRY)})
    orders = Orders()
    orders.outlook = Future(dict.fromkeys(('1.1', '1.4'), FuturePg(HERE, THERE)), CRUSH)
    seen = observed(entries={'1.1': entry, '1.4': UpmapEntry(vector=HERE)})
    assert orders.answer(IMPORT, seen) is not None
    assert found.args == [(seen, VIEW.pool_up, {'1.1': [(0, 3)]}, raws)]
    assert len(orders.outlooks) == len(raws)
    with pytest.raises(Refused, match='not a list of'):
        Orders().answer(replace(IMPORT, mappings=None), seen)


@pytest.mark.parametrize('pgid, whole, raws', [
    ('1.0', True, {'1.0': THERE}), ('2.0', False, {}), ('1.5', False, {})])
def test_where_crush_places_pgs_that_lack_an_osd(found: Any, pgid: str, whole: bool,
                                                 raws: Any) -> None:
    """Of pools of the import, without those that have a vector."""
    class Lacking(ViewFake):
        def pool_up(self, pool_id: int) -> Mapping[str, OsdSet]:
            sets = super().pool_up(pool_id)
            return {**sets, pgid: (1, 2)} if pgid in sets else sets

    view: Any = Lacking()
    orders, waiting = Orders(), WaitingOrder(IMPORT)
    orders.outlook = Future({'1.0': FuturePg(HERE, THERE), '2.0': FuturePg(HERE, THERE)}, CRUSH)
    seen = observed(osds={6: Osd(6, False, 1.0)}, entries={
        '1.1': PINNED, '1.5': UpmapEntry(vector=HERE)}, signals=Signals(
            PgCounts(total=16), muted=frozenset({'OSD_DOWN'})))
    orders.carry_out(waiting, seen, view)
    orders.tools.jobs[0].run()
    assert orders.carry_out(waiting, seen, view) is not None
    assert orders.outlooks == ([(seen.osdmap, {}, None, True)] if whole else [])
    assert found.args[0][3] == raws
    orders = Orders()
    orders.outlook = NoFuture('no answer')
    assert orders._raws_behind(['1.1'], {1}, seen, view.pool_up) == {}


# ---- rollbacks

BACK = WeightChange(weights={3: 0.0})
ROLLBACK = Order('rollback')


def test_a_rollback_begins() -> None:
    before = replace(HELD, progress=replace(HELD.progress, bytes_done=60, moving_seconds=2.0))
    orders = Orders(before)
    orders.crush.preview = preview = Shown(BACK, Planned({'1.1': PIN}), codes=('PG_LIMIT',),
                                           lacking=('1.4',))
    orders.campaigns.pins = {'1.1': PIN}
    answer = orders.answer(ROLLBACK)
    assert answer is not None and (answer['order'], answer['campaign']) == (ROLLBACK, 4)
    assert 'fast_peering' in answer
    assert orders.crush.asked == [(before, {'1.1': PIN}, SEEN, OPTIONS, [50.0, 30.0])]
    campaign, = orders.campaigns.calls
    assert campaign.phase is Phase.ABORTING and campaign.rollback.wanted == BACK.begun(SEEN)
    assert campaign.orders.acknowledged == ('PG_LIMIT',)
    assert campaign.pinning.undersized_pgs == ('1.4',)
    assert orders.crush.journalled == [preview] and orders.reopened == 1
    assert orders.events == [('request', 'rollback', 'by command')]


@pytest.mark.parametrize('limit, acknowledged', [(1, ()), (0, ('PIN_LIMIT',))])
def test_a_rollback_accepts_its_pins(limit: int, acknowledged: Tuple[str, ...]) -> None:
    orders = Orders(HELD)
    orders.crush.preview = Shown(BACK, Planned(dict.fromkeys(('1.1', '1.2')[limit:], PIN)))
    orders.options = replace(OPTIONS, max_pins=1)
    assert orders.answer(ROLLBACK) is not None
    assert orders.crush.asked[0][4] == [50.0]
    assert orders.campaigns.current.orders.acknowledged == acknowledged


def test_a_rollback_may_be_refused_or_shown() -> None:
    orders = Orders(HELD)
    orders.crush.preview = Shown(BACK, risks=(CROWDED,))
    refused(errno.E2BIG, 'too many PGs (PG_LIMIT); to accept: "ceph perfguard campaign rollback '
            '--accept PG_LIMIT"', orders, ROLLBACK, tools=True)
    orders = Orders(HELD)
    orders.crush.preview = Shown(BACK, risks=(CROWDED,))
    answer = orders.answer(replace(ROLLBACK, dry_run=True))
    assert answer is not None and answer['campaign'] is None
    assert answer['risks'] == [{'code': 'PG_LIMIT', 'text': 'too many PGs'}]
    assert orders.campaigns.calls == orders.crush.journalled == orders.events == []
    answer = orders.answer(replace(ROLLBACK, dry_run=True, accept=('PG_LIMIT',)))
    assert answer is not None and answer['risks'] == []
    assert orders.answer(replace(ROLLBACK, accept=('PG_LIMIT',))) is not None
    with pytest.raises(Refused, match='no campaign is active'):
        Orders().carry_out(WaitingOrder(ROLLBACK), SEEN, VIEW)


def test_the_touched_parts_of_an_order_that_was_refused_are_kept_for_its_retry() -> None:
    orders = Orders()
    assert orders._known_touched(DRAIN, SEEN) is NOTHING
    with pytest.raises(Refused):
        orders.answer(DRAIN, PEERING)
    assert orders._known_touched(DRAIN, PEERING) == orders.crush.preview.touched
