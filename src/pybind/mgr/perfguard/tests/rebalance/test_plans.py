# SPDX-License-Identifier: LGPL-2.1-or-later
"""Plans that are saved, approved, queued, and refused once the cluster has changed."""
import errno
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from perfguard.codec import decode, encode
from perfguard.errors import Code, Reason, Refused
from perfguard.rebalance import tables
from perfguard.rebalance.campaign_orders import not_fit
from perfguard.rebalance.orders import Order
from perfguard.rebalance.plans import (APPROVE, LS, MAX_PLANS, RM, SAVE, SHOW, PlanOrder, Plans,
                                       SavedPlan)
from perfguard.rebalance.report import summary
from perfguard.rebalance.risks import RISKS
from perfguard.shutdown import ShutdownOrder

from ..fakes.cluster import FakeCluster
from ..fakes.driver import Driver

EXPAND = Order('expand', weight='1.0')
DRAIN = Order('drain', ('h7',))


def waiting(**kwargs: Any) -> Driver:
    cluster = FakeCluster(**kwargs)
    cluster.add_waiting()
    cluster.tick()
    return Driver(cluster)


def save(driver: Driver, order: Order = EXPAND, plan: str = 'autumn') -> Any:
    return driver.give(PlanOrder(SAVE, plan, order))


def approve(driver: Driver, plan: str = 'autumn') -> Any:
    return driver.give(PlanOrder(APPROVE, plan))


def plans(driver: Driver) -> Any:
    return driver.give(PlanOrder(LS))['plans']


def test_a_plan_shows_what_the_preview_shows_and_changes_nothing() -> None:
    driver = waiting()
    preview = driver.order('expand', weight='1.0', dry_run=True)
    saved = save(driver)
    assert saved['preview'] == preview and saved['state'] == 'ready' and saved['pgs'] == 12
    assert plans(driver)[0]['change'] == 'expand --weight 1.0'
    driver.restart()
    driver.run(3)
    assert driver.give(PlanOrder(SHOW, 'autumn')) == saved
    assert driver.cluster.sent == [] and driver.phase == 'IDLE'


def test_an_approved_plan_is_carried_out_once() -> None:
    driver = waiting()
    save(driver)
    driver.restart()
    driver.turn()
    answer = approve(driver)
    assert answer['campaign'] == 1 and answer['queued_behind'] is None
    assert driver.status['trigger'] == 'expand' and plans(driver) == []
    driver.run_to('DONE')
    assert driver.cluster.clean() and driver.cluster.toys[8].crush_weight == 1.0
    events = [event['why'] for event in driver.loop.published.events
              if event['kind'] == 'request']
    assert 'plan autumn was approved' in events
    with pytest.raises(Refused, match='does not exist'):
        approve(driver)


def test_a_plan_whose_campaign_has_begun_is_not_listed_again() -> None:
    driver = waiting()
    save(driver)
    plan = driver.loop.rebalance.plans.saved.get('autumn')
    approve(driver)
    # The mgr dies before the plan is removed, and the clock of the next one is behind.
    driver.loop.rebalance.plans.saved.put(plan)
    driver.cluster.ahead -= 3600.0
    driver.restart()
    driver.run(2)
    assert plans(driver) == [] and driver.status['id'] == 1


def test_a_plan_that_is_saved_under_the_name_of_one_that_has_begun_stays() -> None:
    driver = waiting()
    save(driver)
    approve(driver)
    driver.cluster.ahead -= 3600.0
    driver.restart()
    driver.run(2)
    save(driver, DRAIN)
    driver.restart()
    driver.run(2)
    assert [plan['change'] for plan in plans(driver)] == ['drain h7']


def test_another_plan_than_the_one_that_was_seen_is_not_approved() -> None:
    driver = waiting()
    token = save(driver)['token']
    driver.give(PlanOrder(RM, 'autumn'))
    again = save(driver, DRAIN)
    assert token and token != again['token'] == plans(driver)[0]['token']
    with pytest.raises(Refused, match='saved again .*drain h7.* %d PGs' % again['pgs']) as refused:
        driver.give(PlanOrder(APPROVE, 'autumn', token=token))
    assert refused.value.errno == errno.ESTALE and driver.phase == 'IDLE'
    assert driver.give(PlanOrder(APPROVE, 'autumn', token=again['token']))['campaign'] == 1


def change_crush(driver: Driver) -> None:
    driver.cluster._weigh(3, 2.0)


def mark_out(driver: Driver) -> None:
    driver.cluster.mark_out(2)


def add_osd(driver: Driver) -> None:
    driver.cluster.add_waiting(1)


def purge(driver: Driver) -> None:
    driver.cluster.purge(9)


@pytest.mark.parametrize('change, text', [
    (change_crush, r'CRUSH \(version 2, now 3\): osd.3'), (mark_out, 'osd.2: reweight 1.0, now 0'),
    (add_osd, 'osd.11 was added'), (purge, 'osd.9 was removed')])
def test_a_plan_is_refused_with_what_has_changed(change: Any, text: str) -> None:
    driver = waiting()
    save(driver)
    change(driver)
    driver.run(20)
    sent = list(driver.cluster.sent)
    with pytest.raises(Refused, match=text) as refused:
        approve(driver)
    assert refused.value.errno == errno.ESTALE
    assert plans(driver)[0]['state'] == 'changed'
    driver.run(5)
    assert driver.phase == 'IDLE' and driver.cluster.sent == sent


WEIGHTS = {str(osd): 1.0 for osd in range(11)}


@pytest.mark.parametrize('order', [EXPAND, Order(
    'crushmap', crush_map=json.dumps(WEIGHTS).encode(), prior_version=2)],
    ids=['expand', 'crushmap'])
def test_a_plan_outlives_a_new_version_of_the_same_crush_map(order: Order) -> None:
    driver = waiting()
    save(driver, order)
    driver.cluster.restart_osd()
    driver.run(3)
    assert plans(driver)[0]['state'] == 'ready'
    approve(driver)
    driver.run_to('DONE')


def test_the_same_order_that_would_change_something_else_is_refused() -> None:
    driver = waiting()
    save(driver, Order('expand', ('8',)))
    driver.cluster.sizes[8] = 1 << 41
    with pytest.raises(Refused, match='osd.8: weight 1.0, now 2.0'):
        approve(driver)


def test_a_plan_that_is_approved_during_a_campaign_begins_after_it() -> None:
    driver = waiting()
    driver.order('expand', weight='1.0')
    driver.run_to('RELEASING')
    save(driver, DRAIN)
    answer = approve(driver)
    assert answer['queued_behind'] == 1 and plans(driver)[0]['state'] == 'queued'
    driver.restart()
    driver.run_until(lambda: driver.status.get('id') == 2)
    assert [row['phase'] for row in driver.loop.published.rebalanced.history] == ['DONE']
    assert driver.status['trigger'] == 'drain'
    driver.run_to('DONE')
    assert driver.cluster.toys[7].crush_weight < 0.001 and plans(driver) == []


@pytest.mark.parametrize('ahead', [0.0, 3600.0])
def test_plans_queue_in_the_order_of_their_approval(ahead: float) -> None:
    """Also if the clock of the mgr that took the first approval was ahead."""
    driver = waiting()
    driver.cluster.ahead = ahead
    driver.restart()
    driver.run(2)
    driver.order('expand', weight='1.0')
    driver.run_to('RELEASING')
    for plan, host in ('z', 'h7'), ('y', 'h6'), ('a', 'h5'):
        save(driver, Order('drain', (host,)), plan)
    first = [driver.loop.requests.submit(PlanOrder(APPROVE, plan)) for plan in ('z', 'y')]
    driver.turn()
    assert all(waiting.answer is not None for waiting in first)
    driver.cluster.ahead = 0.0
    driver.restart()
    driver.turn()
    approve(driver, 'a')
    assert [plan.name for plan in driver.loop.rebalance.plans.saved.queue()] == ['z', 'y', 'a']


def test_a_queued_plan_is_compared_once_more_when_its_turn_comes() -> None:
    driver = waiting()
    driver.order('expand', weight='1.0')
    driver.run_to('RELEASING')
    save(driver, DRAIN)
    approve(driver)
    change_crush(driver)
    driver.run_until(lambda: len(driver.loop.published.rebalanced.history) == 1)
    driver.run(10)
    [plan] = plans(driver)
    assert plan['state'] == 'changed' and 'osd.3' in plan['refused']
    assert len(driver.loop.published.rebalanced.history) == 1 and driver.phase == 'DONE'


def test_a_queued_plan_waits_until_the_cluster_is_fit() -> None:
    driver = waiting()
    driver.order('expand', weight='1.0')
    driver.run_to('RELEASING')
    save(driver, DRAIN)
    approve(driver)
    driver.run_to('FINISHING')
    driver.cluster.health['MON_DOWN'] = '1/3 mons down'
    driver.run_to('DONE')
    driver.run(10)
    assert driver.status['id'] == 1 and plans(driver)[0]['state'] == 'queued'
    driver.cluster.health.clear()
    driver.run_until(lambda: driver.status.get('id') == 2)


@pytest.mark.parametrize('end', ['abort', 'shutdown'])
def test_what_is_aborted_takes_the_queue_along(end: str) -> None:
    driver = waiting()
    driver.order('expand', weight='1.0')
    driver.run_to('RELEASING')
    save(driver, DRAIN)
    approve(driver)
    if end == 'shutdown':
        driver.give(ShutdownOrder(True))
        driver.run(60)
    else:
        driver.ask('abort')
        driver.run_to('ABORTED')
        driver.run(5)
        assert plans(driver)[0]['refused'] == 'campaign 1 is ABORTED'
        driver.ask('finish', keep=True)
        driver.run_until(lambda: not driver.loop.rebalance.open)
        driver.run(10)
    assert driver.cluster.toys[7].crush_weight > 0.5 and driver.status['id'] == 1
    assert driver.give(PlanOrder(LS))['plans'][0]['state'] in ('ready', 'changed')


def test_a_queued_plan_waits_until_its_preview_is_available() -> None:
    """Without pins in the same epoch it is not the plan that was approved."""
    driver = waiting()
    driver.order('expand', weight='1.0')
    driver.run_to('RELEASING')
    save(driver, DRAIN)
    approve(driver)
    driver.run_to('FINISHING')
    driver.cluster.no_tools = 'no answer from the mons'
    driver.run_to('DONE')
    driver.run(10)
    [plan] = plans(driver)
    assert plan['state'] == 'queued' and driver.status['id'] == 1
    assert plan['refused'].startswith('cannot preview plan autumn now: no answer from the mons')
    driver.cluster.no_tools = ''
    driver.run_until(lambda: driver.status.get('id') == 2)
    assert driver.status['trigger'] == 'drain'


def test_names_and_numbers_of_plans() -> None:
    driver = waiting()
    save(driver)
    with pytest.raises(Refused, match='exists'):
        save(driver)
    with pytest.raises(Refused, match='invalid plan name'):
        save(driver, plan='a/b')
    for number in range(MAX_PLANS - 1):
        save(driver, plan='p%d' % number)
    with pytest.raises(Refused, match='limit %d' % MAX_PLANS):
        save(driver, plan='one-more')
    driver.give(PlanOrder(RM, 'autumn'))
    save(driver, plan='one-more')


def test_what_would_be_refused_cannot_be_saved() -> None:
    driver = waiting()
    driver.cluster.pg_limit = 3
    with pytest.raises(Refused, match='mon_max_pg_per_osd'):
        save(driver)
    driver.cluster.no_tools = 'osdmaptool is not installed'
    with pytest.raises(Refused, match='osdmaptool'):
        save(driver)
    assert plans(driver) == []


def test_a_plan_that_removes_osds_requires_cephadm() -> None:
    driver = waiting()
    with pytest.raises(Refused, match='requires cephadm'):
        save(driver, Order('replace', ('osd.1',), remove=True))
    assert plans(driver) == []


def test_a_plan_with_a_crush_map_survives_the_store() -> None:
    driver = waiting()
    save(driver, Order('crushmap', crush_map=json.dumps(WEIGHTS).encode()))
    loaded = Plans(driver.loop._store)
    assert loaded.load() == []
    plan = loaded.get('autumn')
    assert decode(SavedPlan, json.loads(json.dumps(encode(plan)))) == plan
    answer = approve(driver)
    assert answer['campaign'] == 1
    driver.run_to('DONE')
    assert driver.cluster.toys[8].crush_weight == 1.0


def test_a_document_that_makes_no_sense_is_reported() -> None:
    driver = waiting()
    save(driver)
    store = driver.loop._store
    store.put('plans/other', {'name': 'other'})
    loaded = Plans(store)
    assert [text.startswith('the plan other') for text in loaded.load()] == [True]
    assert [plan.name for plan in loaded.all()] == ['autumn']


def test_the_time_comes_from_earlier_campaigns() -> None:
    driver = waiting()
    first = driver.order('expand', weight='1.0', dry_run=True)
    assert first['eta_basis'] == 'assumed'
    assert first['eta_low_seconds'] < first['eta_seconds'] < first['eta_high_seconds']
    driver.order('expand', weight='1.0')
    driver.run_to('DONE')
    row = summary(driver.loop.rebalance.campaign)
    rate = row['bytes_done'] / row['moving_seconds']
    then = driver.order('drain', 'h7', dry_run=True)
    assert then['eta_basis'] == 'earlier campaigns'
    assert then['eta_seconds'] == pytest.approx(then['bytes'] / rate, abs=0.1)
    assert then['eta_low_seconds'] == pytest.approx(then['eta_seconds'] / 2, abs=0.1)


def test_a_preview_counts_pgs_and_fill_of_each_osd() -> None:
    driver = waiting()
    preview = driver.order('expand', weight='1.0', dry_run=True)
    rows = {row['osd']: row for row in preview['osds']}
    new = [rows[osd] for osd in (8, 9, 10)]
    assert all(row['pgs_before'] == 0 and row['pgs_peak'] == row['pgs_after'] > 0 for row in new)
    assert all(row['fill_after'] > row['fill_before'] for row in new)
    assert sum(row['pgs_after'] - row['pgs_before'] for row in rows.values()) == 0
    assert {'what': 'flag norebalance', 'put': 'set'} in preview['borrowed']
    driver.order('expand', weight='1.0')
    driver.run_to('DONE')
    held = driver.cluster.osd_space()
    assert {osd: row['pgs_after'] for osd, row in rows.items()} == {
        osd: held[osd].pgs for osd in rows}


def test_a_preview_counts_what_clones_of_snapshots_share() -> None:
    """A copy of a PG may store it several times, and its old OSD frees only what it stores."""
    driver = waiting()
    alone = driver.order('expand', weight='1.0', dry_run=True)
    assert alone['clone_bytes'] == 0 and 'clones' not in tables.order(alone)
    driver.cluster.shared = {1: 0.25, 2: 0.25}
    shared = driver.order('expand', weight='1.0', dry_run=True)
    assert shared['bytes'] == alone['bytes']
    assert shared['clone_bytes'] == pytest.approx(0.25 * shared['bytes'], rel=1e-6)
    assert re.search(r'shared by clones of snapshots +up to \S+ GiB more', tables.order(shared))
    for row, other in zip(alone['osds'], shared['osds']):
        gives = row['fill_before'] > row['fill_after']
        assert (row['fill_after'] < other['fill_after'] < row['fill_before']) == gives, row


def test_a_change_that_overfills_an_osd_is_refused_unless_it_is_forced() -> None:
    driver = waiting()
    driver.cluster.sizes[9] = 37 << 30
    fills = {row['osd']: row['fill_after']
             for row in driver.order('expand', weight='1.0', dry_run=True)['osds']}
    assert fills[9] > 0.85 > fills[8]
    with pytest.raises(Refused, match='1 OSD would be fuller than nearfull .*osd.9') as refused:
        driver.order('expand', weight='1.0')
    assert refused.value.errno == errno.ENOSPC
    with pytest.raises(Refused, match='osd.9'):
        save(driver)
    assert driver.order('expand', weight='1.0', accept=RISKS)['campaign'] == 1


def test_an_approval_uses_nothing_that_was_worked_out_for_another_plan_of_that_name() -> None:
    driver = waiting()

    def apply_order(weight: float) -> Order:
        return Order('crushmap', crush_map=json.dumps({**WEIGHTS, '8': weight}).encode())
    save(driver, apply_order(3.0))
    driver.tools.late = True
    late = driver.loop.requests.submit(PlanOrder(APPROVE, 'autumn'))
    driver.turn()
    late.done.set()  # its command does not wait any longer
    driver.tools.work()
    driver.tools.late = False
    driver.turn()
    driver.give(PlanOrder(RM, 'autumn'))
    save(driver, apply_order(1.0))
    with pytest.raises(Refused, match='saved again') as refused:
        approve(driver)
    assert refused.value.errno == errno.EAGAIN
    assert approve(driver)['campaign'] == 1
    driver.run_to('DONE')
    assert driver.cluster.toys[8].crush_weight == 1.0


def queued(driver: Driver, order: Order = DRAIN) -> None:
    """A plan waits for a campaign that releases PGs."""
    driver.order('expand', weight='1.0')
    driver.run_to('RELEASING')
    save(driver, order)
    approve(driver)


def test_a_plan_is_not_carried_out_after_an_abort_that_was_not_filed(
        monkeypatch: pytest.MonkeyPatch) -> None:
    driver = waiting()
    queued(driver)
    # An earlier campaign is the last one in the history.
    store = driver.loop._store
    store.put('history', [{**summary(driver.loop.rebalance.campaign), 'id': 0, 'phase': 'DONE'}])
    driver.restart()
    driver.turn()
    monkeypatch.setattr(driver.loop.rebalance.campaigns, 'file_in_history', lambda: None)
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.restart()
    driver.run(5)
    assert plans(driver)[0]['refused'] == 'campaign 1 is ABORTED'
    assert driver.phase == 'ABORTED' and driver.status['id'] == 1
    assert driver.cluster.toys[7].crush_weight > 0.5


def test_a_queued_plan_that_has_to_wait_is_not_worked_out_in_each_turn(
        monkeypatch: pytest.MonkeyPatch) -> None:
    driver = waiting()
    queued(driver)
    driver.run_to('FINISHING')
    reason = Reason(Code.DEGRADED, '3 PGs are degraded')
    # What the change concerns is not fit, which shows only once it is known.
    monkeypatch.setattr('perfguard.rebalance.campaign_orders.not_fit', lambda seen, touched=None: (
        [reason] if touched and touched.osds else not_fit(seen, touched)))
    driver.run_to('DONE')
    submitted = driver.tools.submitted
    driver.run(60)
    assert plans(driver)[0]['state'] == 'queued'
    assert '3 PGs are degraded' in plans(driver)[0]['refused']
    assert 1 <= driver.tools.submitted - submitted <= 3
    monkeypatch.undo()
    driver.run_until(lambda: driver.status.get('id') == 2)


def test_a_queued_plan_that_fails_does_not_fail_the_loop(
        monkeypatch: pytest.MonkeyPatch) -> None:
    driver = waiting()
    queued(driver)
    driver.run_to('FINISHING')
    monkeypatch.setattr(driver.cluster, 'outlook', broken)
    driver.run_to('DONE')
    driver.run(3)
    [plan] = plans(driver)
    assert plan['state'] != 'queued' and 'no memory' in plan['refused']


def broken(*_: Any) -> Any:
    raise MemoryError('no memory')


def test_a_queued_plan_overrides_no_state_of_the_cluster_that_its_operator_has_not_seen() -> None:
    driver = waiting()
    queued(driver)
    # An earlier version saved it.
    saved = driver.loop.rebalance.plans.saved
    saved.put(replace(saved.get('autumn'), order=replace(DRAIN, accept=RISKS)))
    driver.run_to('FINISHING')
    driver.cluster.health['MON_DOWN'] = '1/3 mons down'
    driver.run_to('DONE')
    driver.run(10)
    assert driver.status['id'] == 1 and plans(driver)[0]['state'] == 'queued'
    driver.cluster.health.clear()
    driver.run_until(lambda: driver.status.get('id') == 2)


def test_a_campaign_that_its_operator_cuts_short_takes_the_queue_along() -> None:
    driver = waiting()
    queued(driver)
    driver.ask('finish', keep=True)
    driver.turn()
    driver.restart()
    driver.run_to('DONE')
    driver.run(5)
    assert driver.status['id'] == 1 and driver.status['kept'] > 0
    [plan] = plans(driver)
    assert plan['state'] != 'queued' and 'finish --keep' in plan['refused']


def test_no_plan_begins_once_a_shutdown_is_ordered() -> None:
    driver = waiting()
    queued(driver)
    plan = driver.loop.rebalance.plans.saved.get('autumn')
    driver.give(ShutdownOrder(True))
    with pytest.raises(Refused, match='shutting down'):
        approve(driver)
    # A crash between the order and the withdrawal.
    driver.loop.rebalance.plans.saved.put(plan)
    driver.restart()
    driver.run_until(lambda: driver.loop.shutdown.done)
    driver.run(5)
    assert driver.loop.shutdown.done and driver.status['id'] == 1
    assert driver.cluster.toys[7].crush_weight > 0.5


def test_a_plan_is_refused_while_an_aborted_campaign_holds_pgs() -> None:
    driver = waiting()
    driver.order('expand', weight='1.0')
    driver.run_to('RELEASING')
    driver.ask('abort')
    driver.run_to('ABORTED')
    save(driver, DRAIN)
    with pytest.raises(Refused, match='aborted and keeps PGs pinned') as refused:
        approve(driver)
    assert refused.value.errno == errno.EBUSY
    driver.run(5)
    assert driver.phase == 'ABORTED' and driver.status['id'] == 1


def test_the_state_of_the_cluster_is_accepted_at_the_approval() -> None:
    """What the operator saw when the plan was saved says nothing about the cluster days later."""
    driver = waiting()
    with pytest.raises(Refused, match='plan approve autumn --accept MON_DOWN') as refused:
        save(driver, replace(EXPAND, accept=('MON_DOWN',)))
    assert refused.value.errno == errno.EINVAL
    save(driver)
    with pytest.raises(Refused, match='PG_LIMIT is a risk of the change'):
        driver.give(PlanOrder(APPROVE, 'autumn', accept=('PG_LIMIT',)))
    driver.cluster.health['MON_DOWN'] = '1/3 mons down'
    with pytest.raises(Refused, match='to accept: "ceph perfguard plan approve autumn '
                       '--accept MON_DOWN"'):
        approve(driver)
    assert driver.give(PlanOrder(APPROVE, 'autumn', accept=('MON_DOWN',)))['accepted'] == [
        'MON_DOWN']
    assert driver.status['trigger'] == 'expand'


def test_a_state_of_the_cluster_that_an_earlier_plan_accepts_is_refused() -> None:
    driver = waiting()
    save(driver)
    saved = driver.loop.rebalance.plans.saved
    saved.put(replace(saved.get('autumn'), order=replace(EXPAND, accept=('MON_DOWN',))))
    driver.cluster.health['MON_DOWN'] = '1/3 mons down'
    with pytest.raises(Refused, match='MON_DOWN'):
        approve(driver)


def test_the_state_of_the_cluster_after_a_campaign_cannot_be_accepted_before() -> None:
    driver = waiting()
    driver.order('expand', weight='1.0')
    driver.run_to('RELEASING')
    save(driver, DRAIN)
    with pytest.raises(Refused, match='begins after campaign 1'):
        driver.give(PlanOrder(APPROVE, 'autumn', accept=('MON_DOWN',)))
    assert plans(driver)[0]['state'] == 'ready'


def test_a_preview_shows_the_state_of_the_cluster_for_which_it_is_refused() -> None:
    driver = waiting()
    driver.cluster.health['MON_DOWN'] = '1/3 mons down'
    shown = driver.order('expand', weight='1.0', dry_run=True)
    assert 'refused without --accept MON_DOWN: ' in tables.order(shown)


def test_the_accepted_risks_of_a_plan_are_shown() -> None:
    driver = waiting()
    driver.cluster.pg_limit = 3
    saved = save(driver, replace(EXPAND, accept=('PG_LIMIT',)))
    assert saved['accepted'] == ['PG_LIMIT']
    assert 'accepted risks: PG_LIMIT' in tables.saved_plan(saved).splitlines()
    assert 'PG_LIMIT' in tables.saved_plans(driver.give(PlanOrder(LS))).splitlines()[1]
    assert 'accepted risks: PG_LIMIT' in tables.approved(approve(driver))


def test_a_risk_that_appears_later_is_accepted_by_saving_the_plan_again() -> None:
    driver = waiting()
    save(driver)
    driver.cluster.pg_limit = 3
    with pytest.raises(Refused, match='to accept: "ceph perfguard plan rm autumn && ceph perfguard '
                       'plan save autumn expand --weight 1.0 --accept PG_LIMIT"'):
        approve(driver)


@pytest.mark.parametrize('planned', [False, True])
def test_retries_for_trouble_at_the_osds_of_a_change_run_no_tools(
        monkeypatch: pytest.MonkeyPatch, planned: bool) -> None:
    driver = waiting()
    order: Any = EXPAND
    if planned:
        save(driver)
        order = PlanOrder(APPROVE, 'autumn')
    reason = Reason(Code.DEGRADED, '3 PGs are degraded')
    monkeypatch.setattr('perfguard.rebalance.campaign_orders.not_fit', lambda seen, touched=None: (
        [reason] if touched is None or touched.osds else []))
    jobs = []
    for again in (False, True, True):
        before = driver.tools.submitted
        pending = driver.loop.requests.submit(order, again)
        driver.turn()
        assert pending.refused is not None and '3 PGs are degraded' in str(pending.refused)
        jobs.append(driver.tools.submitted - before)
    assert jobs == [1, 0, 0]
    monkeypatch.undo()
    pending = driver.loop.requests.submit(order, True)
    driver.turn()
    assert pending.answer is not None and pending.answer['campaign'] == 1
