# SPDX-License-Identifier: LGPL-2.1-or-later
"""Devices that are replaced under the same OSD ids, from the order to the filled device."""
import errno
from dataclasses import replace
from typing import Any, Dict, List

import pytest

from perfguard.cluster.orchestrator import Orchestrating
from perfguard.cluster.types import Space
from perfguard.errors import Refused
from perfguard.rebalance import tables
from perfguard.rebalance.replacing import (CANCEL, DRAINS, NO_UUID, REMOVAL_SECONDS, REPLACE,
                                           ReplaceFacts, ReplacePhase, Replacement, created_again,
                                           ending, given_up, is_withheld, new_weight, next_step,
                                           phase_of)
from perfguard.rebalance.types import Phase
from perfguard.rebalance.weights import WeightChange
from perfguard.shutdown import ShutdownOrder
from perfguard.store import Store

from ..fakes.campaigns import campaign_of
from ..fakes.cluster import FakeCluster
from ..fakes.mon_model import HOLE
from ..fakes.straw_cluster import StrawCluster
from ..fakes.driver import Driver
from .test_orders import facts as order_facts

RECORD = Replacement('first', 1.0, 100, 0.0)


def filled(count: int = 1) -> Driver:
    """OSDs from 8 on hold PGs, and lose them when one of them is drained."""
    cluster = FakeCluster()
    cluster.add_waiting(count)
    cluster.tick()
    driver = Driver(cluster)
    driver.order('expand', weight='1.0')
    driver.run_to('DONE')
    return driver


def rows(driver: Driver) -> Dict[int, Any]:
    return {row['osd']: row for row in driver.order(DRAINS, dry_run=True)['drains']}


def phases(driver: Driver) -> Dict[int, str]:
    return {osd: row['phase'] for osd, row in rows(driver).items()}


def kinds(driver: Driver, kind: str) -> List[str]:
    return [event['what'] for event in driver.loop.published.events if event['kind'] == kind]


def settle(driver: Driver) -> None:
    """Until OSDs are read again, and a new device has served for long enough."""
    driver.run(45)


def emptied(remove: bool = False) -> Driver:
    driver = filled()
    driver.cluster.orchestrator = Orchestrating(present=remove)
    answer = driver.order(REPLACE, 'osd.8', remove=remove)
    assert answer['campaign'] == 2 and answer['verb'] == 'replace' and answer['weights']
    assert driver.status['trigger'] == 'drain'
    driver.run_to('DONE')
    settle(driver)
    return driver


def test_a_device_is_drained_replaced_and_filled() -> None:
    driver = emptied()
    assert phases(driver) == {8: 'EMPTY'} and 'destroy' in rows(driver)[8]['next']
    assert any('osd.8' in text for text in driver.loop.status()['reasons'])
    driver.cluster.take_down(8)
    settle(driver)
    assert phases(driver) == {8: 'EMPTY'}
    driver.cluster.destroy(8)
    settle(driver)
    assert phases(driver) == {8: 'WAITING'} and driver.phase == 'DONE'
    driver.cluster.create_again(8)
    driver.run_until(lambda: driver.status['id'] == 3)
    driver.run_to('DONE')
    settle(driver)
    assert phases(driver) == {} and driver.cluster.toys[8].crush_weight == 1.0
    assert any(8 in pg.data for pg in driver.cluster.pg.values()) and driver.cluster.clean()
    assert 'osd.8 is EMPTY' in kinds(driver, 'replace')
    assert Store(driver.kv).get('replacements') is None


def test_the_orchestrator_removes_an_osd_once_it_is_empty() -> None:
    driver = filled()
    with pytest.raises(Refused, match='requires cephadm'):
        driver.order(REPLACE, 'osd.8', remove=True)
    driver.cluster.orchestrator = Orchestrating(present=True)
    driver.order(REPLACE, 'osd.8', remove=True)
    driver.run_until(lambda: 0 < driver.status['released'] < driver.status['total'])
    assert driver.cluster.removals == []
    # The order survives a failover.
    driver.restart()
    driver.run_to('DONE')
    settle(driver)
    assert driver.cluster.removals == [8] and 'orchestrator' in rows(driver)[8]['next']
    # It is ordered again while the orchestrator does not do it.
    driver.cluster.removal_retval = -5
    driver.run(int(REMOVAL_SECONDS))
    assert driver.cluster.removals == [8, 8]
    # What it refuses again and again is one event.
    driver.run(3 * int(REMOVAL_SECONDS))
    assert len(driver.cluster.removals) > 3
    assert sum(event['why'] == 'no host' for event in driver.loop.published.events) == 1
    driver.cluster.removals = [8, 8]
    driver.cluster.destroy(8)
    driver.run(2 * int(REMOVAL_SECONDS))
    assert driver.cluster.removals == [8, 8] and phases(driver) == {8: 'WAITING'}
    driver.cluster.create_again(8)
    driver.run_until(lambda: driver.status['id'] == 3)
    driver.run_to('DONE')
    assert driver.cluster.removals == [8, 8]


@pytest.mark.parametrize('failover', [False, True])
def test_a_removal_that_an_operator_stops_is_not_ordered_again(failover: bool) -> None:
    driver = emptied(remove=True)
    driver.cluster.orchestrator = Orchestrating(present=True, removing=frozenset({8}))
    driver.run(2 * int(REMOVAL_SECONDS))
    if failover:
        driver.restart()
    # "ceph orch osd rm stop 8"
    driver.cluster.orchestrator = Orchestrating(present=True)
    driver.run(2 * int(REMOVAL_SECONDS))
    assert driver.cluster.removals == [8] and 'osd.8 is not removed' in kinds(driver, 'replace')
    assert 'destroy' in rows(driver)[8]['next']


def test_a_cancelled_replacement_names_the_removal_that_goes_on() -> None:
    driver = emptied(remove=True)
    driver.cluster.orchestrator = Orchestrating(present=True, removing=frozenset({8}))
    driver.run(2)
    assert driver.order(CANCEL, 'osd.8')['message'].endswith(
        'the orchestrator still removes osd.8 ("ceph orch osd rm stop 8")')


def test_no_osd_is_removed_that_a_rollback_may_fill_again() -> None:
    driver = filled(2)
    driver.cluster.orchestrator = Orchestrating(present=True)
    driver.order(REPLACE, 'osd.8', 'osd.9', remove=True)
    driver.run_until(lambda: phases(driver)[9] == 'EMPTY')
    driver.run(5)
    assert driver.phase == 'RELEASING' and 'campaign has ended' in rows(driver)[9]['next']
    driver.order('rollback')
    driver.run_to('DONE')
    settle(driver)
    assert driver.cluster.removals == [] and phases(driver) == {}


def test_an_osd_that_goes_down_with_pinned_pgs_is_not_empty() -> None:
    driver = filled()
    driver.order(REPLACE, 'osd.8')
    driver.run_until(lambda: driver.status['released'] > 0 and not driver.cluster.remapped())
    assert any(8 in pg.data for pg in driver.cluster.pg.values())
    # The mgr knows the OSDMap before the PGs report.
    driver.cluster.period = 5.0
    driver.cluster.report()
    driver.cluster.take_down(8)
    driver.run(10)
    assert 'osd.8 is EMPTY' not in kinds(driver, 'replace') and phases(driver) == {8: 'RECOVERING'}


def drained_and_created_again() -> Driver:
    """The orchestrator wiped the failing drive of osd.8, and has created an OSD on it again."""
    driver = filled()
    driver.cluster.drive_ids_ = {8: 'ACME_D1_S1'}
    driver.order(REPLACE, 'osd.8')
    driver.run_to('DONE')
    driver.cluster.destroy(8)
    driver.cluster.create_again(8)
    return driver


def test_a_drive_is_not_filled_again_unless_an_operator_orders_it() -> None:
    driver = drained_and_created_again()
    settle(driver)
    driver.restart()
    settle(driver)
    assert driver.phase == 'IDLE' and phases(driver) == {8: 'WAITING'}
    assert 'same drive' in rows(driver)[8]['next']
    assert any('ACME_D1_S1' in text for text in driver.loop.status()['reasons'])
    driver.order('undrain', 'osd.8')
    driver.run_to('DONE')
    settle(driver)
    assert phases(driver) == {} and driver.cluster.toys[8].crush_weight == 1.0


def test_an_order_fills_the_drive_also_if_the_clock_of_an_earlier_mgr_was_ahead() -> None:
    driver = filled()
    driver.cluster.drive_ids_ = {8: 'ACME_D1_S1'}
    driver.cluster.ahead = 36000.0
    driver.restart()
    driver.run(2)
    driver.order(REPLACE, 'osd.8')
    driver.run_to('DONE')
    driver.cluster.ahead = 0.0
    driver.restart()
    driver.cluster.destroy(8)
    driver.cluster.create_again(8)
    settle(driver)
    driver.order('undrain', 'osd.8')
    driver.run_to('DONE')


def test_another_drive_is_filled_once_the_mgr_knows_it() -> None:
    driver = drained_and_created_again()
    driver.run(5)
    driver.cluster.drive_ids_ = {8: 'ACME_D1_S2'}
    driver.run_until(lambda: driver.status['trigger'] == 'undrain')
    driver.run_to('DONE')


def failed_and_created_again(by_log: bool = False) -> Driver:
    """osd.8 has failed, and is created again on its drive, with all its CRUSH weight. `by_log`: all
    that its PGs lack is in their logs."""
    driver = filled()
    if by_log:
        driver.cluster.filled_by_log, driver.cluster.recovery_seconds = {8}, 60.0
    driver.cluster.drive_ids_ = {8: 'ACME_D1_S1'}
    driver.cluster.take_down(8)
    driver.order(REPLACE, 'osd.8')
    driver.cluster.mark_out(8)
    driver.run_until(lambda: driver.cluster.clean())
    driver.cluster.destroy(8)
    settle(driver)
    driver.cluster.create_again(8)
    driver.run(4)
    return driver


def holders(driver: Driver) -> int:
    """PGs with data on osd.8."""
    return sum(1 for pg in driver.cluster.pg.values() if 8 in pg.data)


def test_pgs_are_pinned_when_a_failed_drive_serves_again() -> None:
    driver = failed_and_created_again()
    assert driver.status['id'] == 2 and phases(driver) == {8: 'FILLING'}
    driver.run_until(lambda: driver.status['pinned'] > 0)
    assert 'same drive' in rows(driver)[8]['next'] and 'osd out 8' in rows(driver)[8]['next']
    assert any('ACME_D1_S1' in text for text in driver.loop.status()['reasons'])
    assert holders(driver) == 0


def test_no_pg_is_released_to_a_failed_drive_until_it_is_accepted() -> None:
    driver = failed_and_created_again()
    driver.options = replace(driver.options, stalled_after=30.0)
    driver.run_to('HOLDING')
    driver.restart()
    driver.run(60)
    assert driver.status['released'] == driver.status['in_flight'] == holders(driver) == 0
    assert 'SAME_DRIVE' in [row['code'] for row in driver.status['limits']]
    assert 'SAME_DRIVE' in ' '.join(driver.cluster.checks['PERFGUARD_STALLED']['detail'])
    driver.ask('accept', code='SAME_DRIVE')
    driver.run_to('DONE')
    settle(driver)
    assert holders(driver) and phases(driver) == {}


def test_pgs_are_released_once_the_mgr_knows_the_new_drive() -> None:
    driver = failed_and_created_again()
    driver.run_to('HOLDING')
    driver.cluster.drive_ids_ = {8: 'ACME_D1_S2'}
    driver.run_to('DONE')
    assert holders(driver)


def test_a_cancelled_replacement_holds_no_release() -> None:
    driver = failed_and_created_again()
    driver.run_to('HOLDING')
    driver.order(CANCEL, 'osd.8')
    driver.run_to('DONE')
    assert holders(driver)


def test_an_operator_decides_on_a_failed_drive_that_recovery_has_filled() -> None:
    driver = failed_and_created_again(by_log=True)
    for _ in range(2):
        settle(driver)
        assert phases(driver) == {8: 'FILLING'} and holders(driver)
        assert driver.phase in ('DONE', 'IDLE')
        assert 'replace --cancel osd.8' in rows(driver)[8]['next']
        assert any('ACME_D1_S1' in text for text in driver.loop.status()['reasons'])
        driver.restart()
    driver.order(CANCEL, 'osd.8')
    settle(driver)
    assert phases(driver) == {}


def test_recovery_that_fills_a_new_drive_needs_no_campaign() -> None:
    driver = failed_and_created_again(by_log=True)
    driver.cluster.drive_ids_ = {8: 'ACME_D1_S2'}
    driver.run_until(lambda: 'the replacement of osd.8 has ended' in kinds(driver, 'replace'))
    assert driver.status['id'] == 1 and holders(driver)
    assert 'recovery from the PG logs fills it' in driver.loop.published.events[-1]['why']


def test_recovery_to_a_device_that_was_replaced_at_once_begins_no_campaign() -> None:
    """With noout: the PGs lack a copy and are remapped, and nothing can be pinned."""
    driver = filled()
    cluster = driver.cluster
    cluster.take_down(8)
    driver.order(REPLACE, 'osd.8')
    cluster.destroyed.add(8)
    for pgid, pg in cluster.pg.items():
        pg.data = tuple(HOLE if osd == 8 else osd for osd in pg.data
                        if osd != 8 or pgid.startswith('2.'))
    settle(driver)
    cluster.backfill_seconds = 300.0
    cluster.create_again(8)
    driver.run(3)
    assert cluster.remapped() and phases(driver) == {8: 'FILLING'}
    driver.run_until(lambda: 'the replacement of osd.8 has ended' in kinds(driver, 'replace'), 400)
    assert driver.status['id'] == 1 and holders(driver) and cluster.clean()


def test_an_order_from_before_the_replacement_does_not_fill_the_failed_drive() -> None:
    record = RECORD._replace(drive='ACME_D1_S1', since=5.0)
    known = ReplaceFacts(order_facts(), weights={1: 1.0}, drives={1: 'ACME_D1_S1'})
    for started, withheld in ((4.0, True), (6.0, False)):
        fill = campaign_of(2, Phase.RELEASING, started, change=WeightChange(weights={1: 1.0}))
        assert is_withheld(1, record, replace(known, campaign=fill)) is withheld
    assert is_withheld(1, record, known)
    assert not is_withheld(1, record, replace(known, weights={1: 0.0}))
    assert not is_withheld(1, record._replace(drive='ACME_D1_S2'), known)


def test_an_aborted_campaign_releases_nothing_to_a_failed_drive_when_it_resumes() -> None:
    driver = failed_and_created_again()
    driver.run_to('HOLDING')
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.ask('resume')
    driver.run(60)
    assert driver.phase == 'HOLDING' and holders(driver) == 0


def test_a_device_that_waits_for_an_aborted_campaign_names_it() -> None:
    driver = Driver(StrawCluster(hosts=10, pgs=16))
    driver.order(REPLACE, 'osd.2')
    driver.run_to('DONE')
    driver.cluster.destroy(2)
    settle(driver)
    driver.order('drain', 'osd.5')
    driver.run_to('PINNED')
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.cluster.create_again(2)
    driver.run(60)
    assert phases(driver)[2] == 'READY' and 'until campaign 2' in rows(driver)[2]['next']
    assert any('READY, waiting until campaign 2' in text
               for text in driver.loop.status()['reasons'])
    driver.ask('resume')
    driver.run_until(lambda: 2 not in phases(driver), 600)
    assert driver.cluster.toys[2].crush_weight == 1.0


def test_each_phase_survives_a_failover() -> None:
    driver = filled()
    driver.order(REPLACE, 'osd.8')
    driver.restart()
    assert phases(driver) == {8: 'DRAINING'}
    driver.run_to('DONE')
    driver.cluster.destroy(8)
    driver.restart()
    settle(driver)
    assert phases(driver) == {8: 'WAITING'}
    driver.cluster.create_again(8)
    driver.restart()
    driver.run_until(lambda: driver.status.get('id') == 3)
    driver.restart()
    driver.run_to('DONE')
    settle(driver)
    assert phases(driver) == {}


def interrupted(driver: Driver) -> None:
    """The next mgr cannot read something."""
    for key in [key for key in driver.kv.data if key.startswith('history/')]:
        driver.kv.data[key] = 'x'
    driver.restart()


def test_no_new_device_is_filled_over_state_that_could_not_be_read() -> None:
    driver = emptied()
    driver.cluster.destroy(8)
    settle(driver)
    interrupted(driver)
    driver.cluster.create_again(8)
    settle(driver)
    assert driver.phase == 'IDLE' and 'PERFGUARD_INTERRUPTED' in driver.cluster.checks
    assert kinds(driver, 'refused') == ['filling of osd.8']
    assert 'could not read all of its state' in rows(driver)[8]['next']
    # An operator has seen it.
    driver.ask('prepare')
    driver.run_to('PREPARED')
    driver.ask('abort')
    driver.run_until(lambda: driver.status['trigger'] == 'undrain')
    driver.run_to('DONE')
    assert driver.cluster.toys[8].crush_weight == 1.0


def test_no_pgs_are_pinned_for_a_new_device_over_state_that_could_not_be_read() -> None:
    driver = filled()
    driver.cluster.take_down(8)
    driver.order(REPLACE, 'osd.8')
    driver.cluster.mark_out(8)
    driver.run_until(lambda: driver.cluster.clean())
    driver.cluster.destroy(8)
    settle(driver)
    interrupted(driver)
    driver.cluster.create_again(8)
    settle(driver)
    assert driver.phase == 'IDLE' and driver.cluster.clean()
    assert kinds(driver, 'refused') == ['filling of osd.8']
    assert 'PERFGUARD_INTERRUPTED' in driver.cluster.checks


@pytest.mark.parametrize('verb', ['drain', REPLACE])
def test_what_the_balancer_places_on_a_drained_osd_is_moved_away_again(verb: str) -> None:
    """It fills each OSD of a weight above 0 up to its share, which is less than one PG here."""
    driver = filled()
    cluster = driver.cluster
    driver.order(verb, 'osd.8')
    driver.run_to('DONE')
    assert cluster.toys[8].crush_weight == 0.0
    cluster._weigh(8, 0.0001)  # as after a drain by an earlier version
    settle(driver)
    assert phases(driver) == {8: 'EMPTY'}
    assert '"ceph osd crush reweight osd.8 0" keeps the balancer' in rows(driver)[8]['next']
    cluster.add_upmap('1.1', cluster.pg['1.1'].up[0], 8)
    settle(driver)
    # "undrain" would fill it.
    assert phases(driver) == {8: 'DRAINING'} and 'undrain' not in rows(driver)[8]['next']
    assert '"adopt" moves' in rows(driver)[8]['next']
    assert driver.order('adopt')['pgs'] == 1
    driver.run_to('DONE')
    settle(driver)
    assert phases(driver) == {8: 'EMPTY'} and cluster.clean()


def test_an_osd_of_weight_0_is_replaced_as_well() -> None:
    driver = emptied()
    assert driver.cluster.toys[8].crush_weight == 0.0
    assert phases(driver) == {8: 'EMPTY'} and 'reweight' not in rows(driver)[8]['next']
    driver.cluster.destroy(8)
    driver.cluster.create_again(8)
    driver.run_until(lambda: driver.status['id'] == 3)
    driver.run_to('DONE')
    assert driver.cluster.toys[8].crush_weight == 1.0


def test_a_larger_device_receives_a_larger_weight() -> None:
    driver = emptied()
    driver.cluster.destroy(8)
    driver.cluster.sizes[8] = 2 << 40
    driver.cluster.create_again(8)
    driver.run_until(lambda: driver.status['id'] == 3)
    driver.run_to('DONE')
    assert driver.cluster.toys[8].crush_weight == 2.0


@pytest.mark.parametrize('size, weight', [(0, 1.0), (100, 1.0), (101, 1.01), (50, 0.5)])
def test_weights_of_new_devices(size: int, weight: float) -> None:
    assert new_weight(RECORD, Space(size, 0)) == weight
    assert new_weight(RECORD._replace(total_bytes=0), Space(size, 0)) == 1.0
    assert new_weight(RECORD, None) == 1.0


def test_a_failed_device_is_left_to_recovery_and_its_successor_is_filled_by_a_campaign() -> None:
    driver = filled()
    driver.cluster.take_down(8)
    assert driver.order(REPLACE, 'osd.8')['campaign'] is None
    assert phases(driver) == {8: 'RECOVERING'} and 'osd out 8' in rows(driver)[8]['next']
    driver.cluster.mark_out(8)
    driver.run_until(lambda: driver.cluster.clean())
    settle(driver)
    assert phases(driver) == {8: 'EMPTY'} and driver.phase == 'DONE'
    assert driver.cluster.toys[8].crush_weight == 1.0
    driver.cluster.destroy(8)
    settle(driver)
    assert phases(driver) == {8: 'WAITING'}
    driver.cluster.create_again(8)
    driver.run_until(lambda: driver.status['id'] == 2)
    assert 'the new device of osd.8 is in use' in [
        event['why'] for event in driver.loop.published.events]
    driver.run_to('DONE')
    settle(driver)
    assert phases(driver) == {} and driver.cluster.clean()


def test_the_devices_of_a_host_are_filled_together() -> None:
    cluster = FakeCluster()
    driver = Driver(cluster)
    facts = order_facts()
    row = facts.osdmap.osds
    facts = replace(facts, osdmap=replace(facts.osdmap, osds={
        **row, 1: replace(row[1], uuid='second'), 5: replace(row[5], destroyed=True)}))
    known = ReplaceFacts(facts, weights={1: 0.0001, 5: 0.0001, 2: 0.0001})
    found = {osd: phase_of(osd, RECORD, known) for osd in (1, 5)}
    assert found == {1: ReplacePhase.READY, 5: ReplacePhase.WAITING}
    waits = driver.loop.rebalance.replacing._waits_for_host
    assert waits([1], known, found) and not waits([2], known, found)


def test_an_abort_keeps_the_data_and_undrain_ends_the_replacement() -> None:
    driver = filled()
    driver.order(REPLACE, 'osd.8')
    driver.run_to('RELEASING')
    driver.ask('abort')
    driver.run_to('ABORTED')
    settle(driver)
    assert phases(driver) == {8: 'DRAINING'} and 'campaign resume' in rows(driver)[8]['next']
    driver.order('rollback')
    driver.run_until(lambda: driver.phase == 'DONE')
    settle(driver)
    assert phases(driver) == {} and driver.cluster.toys[8].crush_weight == 1.0
    assert 'the replacement of osd.8 has ended' in kinds(driver, 'replace')


@pytest.mark.parametrize('how', ['cancel', 'undrain', 'purge', 'shutdown'])
def test_a_replacement_ends_early(how: str) -> None:
    driver = emptied()
    settle(driver)
    assert 'replacement of osd.8' in str(driver.loop.status()['reasons'])
    if how == 'cancel':
        assert 'osd.8' in driver.order(CANCEL, 'osd.8')['message']
        assert rows(driver)[8]['replace'] is False
    elif how == 'undrain':
        driver.order('undrain', 'osd.8')
        driver.run_to('DONE')
    elif how == 'purge':
        driver.cluster.purge(8)
    else:
        driver.give(ShutdownOrder(True))
    settle(driver)
    assert not driver.loop.rebalance.replacing
    assert Store(driver.kv).get('replacements') is None
    assert 'replacement of osd.8' not in str(driver.loop.status()['reasons'])
    campaigns = driver.status.get('id')
    if how in ('cancel', 'shutdown'):
        driver.cluster.destroy(8)
        driver.cluster.create_again(8)
        settle(driver)
        assert driver.status.get('id') == campaigns


def test_a_replacement_after_a_shutdown_ends_it() -> None:
    driver = filled()
    driver.cluster.take_down(8)
    driver.cluster.mark_out(8)
    driver.run_until(lambda: driver.cluster.clean())
    driver.give(ShutdownOrder(True))
    driver.run_until(lambda: driver.loop.shutdown.done)
    driver.order(REPLACE, 'osd.8', dry_run=True)
    assert driver.loop.shutdown.done
    assert driver.order(REPLACE, 'osd.8')['campaign'] is None
    driver.turn()
    assert not any('is safe now' in reason for reason in driver.loop.status()['reasons'])
    driver.cluster.destroy(8)
    driver.cluster.create_again(8)
    driver.run_until(lambda: driver.status.get('id') == 2)
    driver.loop.shutdown.begin(driver.cluster.now)
    with pytest.raises(Refused, match='shutting down'):
        driver.order(REPLACE, 'osd.7')


def test_orders_that_are_refused() -> None:
    driver = emptied()
    for verb, name, code in ((REPLACE, 'osd.8', errno.EALREADY), (REPLACE, 'h9', errno.ENOENT),
                             (CANCEL, 'osd.3', errno.ENOENT)):
        with pytest.raises(Refused) as refused:
            driver.order(verb, name)
        assert refused.value.errno == code
    driver.cluster._weigh(3, 0.0)
    with pytest.raises(Refused, match='osd.3 has CRUSH weight 0') as refused:
        driver.order(REPLACE, 'osd.3')
    assert set(phases(driver)) == {8}


def test_a_preview_changes_nothing() -> None:
    driver = filled()
    sent = list(driver.cluster.sent)
    answer = driver.order(REPLACE, 'osd.8', dry_run=True)
    assert answer['osds'] and answer['drains'][0]['phase'] == 'DRAINING'
    assert 'osd.8 to CRUSH weight' in tables.replacement(answer)
    assert 'would be DRAINING' in tables.replacement(answer)
    # Not that no campaign is draining it yet.
    assert answer['drains'][0]['next'] == 'wait until the campaign has emptied it'
    driver.run(3)
    assert driver.cluster.sent == sent and not driver.loop.rebalance.replacing
    ordered = driver.order(REPLACE, 'osd.8')
    assert ordered['drains'] == answer['drains'] and 'would be' not in tables.replacement(ordered)


def test_a_drain_that_is_refused_leaves_no_replacement() -> None:
    driver = filled()
    driver.cluster.trouble = {'inactive': 1}
    driver.run(3)
    with pytest.raises(Refused):
        driver.order(REPLACE, 'osd.8')
    assert not driver.loop.rebalance.replacing


def test_a_drained_osd_may_be_replaced_later() -> None:
    driver = filled()
    driver.order('drain', 'osd.8')
    driver.run_to('DONE')
    settle(driver)
    [row] = rows(driver).values()
    assert (row['phase'], row['replace'], row['weight_before']) == ('EMPTY', False, 1.0)
    assert driver.order(REPLACE, 'osd.8')['campaign'] is None
    assert rows(driver)[8]['replace']
    assert 'yes' in tables.drains({'drains': list(rows(driver).values())})
    assert tables.drains({'drains': []}) == 'no drained OSDs'


def test_a_fill_that_is_refused_is_tried_again() -> None:
    driver = emptied()
    driver.cluster.destroy(8)
    driver.cluster.create_again(8)
    driver.cluster.trouble = {'inactive': 1}
    settle(driver)
    assert driver.status['id'] == 2 and phases(driver) == {8: 'READY'}
    assert 'inactive' in rows(driver)[8]['next']
    driver.cluster.trouble = {}
    driver.run_until(lambda: driver.status['id'] == 3)


def test_a_refused_fill_names_the_command_that_accepts_its_risks() -> None:
    driver = emptied()
    driver.cluster.destroy(8)
    driver.cluster.create_again(8)
    driver.cluster.pg_limit = 3
    settle(driver)
    assert '; to accept: "ceph perfguard undrain osd.8 --accept PG_LIMIT"' in rows(
        driver)[8]['next']
    assert driver.order('undrain', 'osd.8', accept=('PG_LIMIT',))['campaign'] == 3


def test_a_fill_that_stays_refused_is_tried_less_and_less_often() -> None:
    driver = emptied()
    driver.cluster.destroy(8)
    driver.cluster.create_again(8)
    driver.cluster.pg_limit = 3
    settle(driver)
    submitted = driver.tools.submitted
    driver.run(600)
    refused = [event for event in driver.loop.published.events if event['kind'] == 'refused']
    assert len(refused) == 1 and 1 <= driver.tools.submitted - submitted <= 4


def test_a_fill_that_waits_for_the_cluster_begins_soon_after_it_is_fit() -> None:
    driver = emptied()
    driver.cluster.destroy(8)
    driver.cluster.create_again(8)
    driver.cluster.trouble = {'inactive': 1}
    settle(driver)
    submitted = driver.tools.submitted
    for number in range(6):
        driver.cluster.trouble = {'inactive': 2 + number}
        driver.run(100)
        assert f'{2 + number} PGs' in rows(driver)[8]['next']
    refused = [event for event in driver.loop.published.events if event['kind'] == 'refused']
    assert len(refused) == 1 and driver.tools.submitted == submitted
    driver.cluster.trouble = {}
    driver.run_until(lambda: driver.status['id'] == 3, turns=15)


def test_a_new_device_has_reported_its_size_before_it_is_filled() -> None:
    driver = emptied()
    driver.cluster.period = 30.0
    driver.cluster.destroy(8)
    driver.run(2)
    driver.cluster.create_again(8)
    # The last report is the old device's until the OSD reports anew.
    driver.run(40)
    driver.cluster.sizes[8] = 1 << 41
    driver.run_until(lambda: driver.status['id'] == 3)
    driver.run_to('DONE')
    assert driver.cluster.toys[8].crush_weight == 2.0


def test_undrain_restores_no_weight_from_before_one_that_the_operator_has_set() -> None:
    driver = emptied()
    driver.order(CANCEL, 'osd.8')
    driver.cluster._weigh(8, 2.0)
    driver.run(20)
    driver.cluster._weigh(8, 0.0)
    driver.run(20)
    with pytest.raises(Refused, match='not drained by perfguard'):
        driver.order('undrain', 'osd.8')
    assert rows(driver) == {}


@pytest.mark.parametrize('stored', [[1], {'x': ['a', 1.0, 0, 0.0]}, {'8': 1.0}])
def test_records_that_cannot_be_read_are_reported(stored: Any) -> None:
    driver = Driver()
    Store(driver.kv).put('replacements', stored)
    driver.restart()
    assert 'replacements' in str(driver.loop._store.losses)
    driver.turn()
    assert phases(driver) == {}


def test_a_device_that_serves_again_needs_no_replacement() -> None:
    facts = order_facts()
    known = ReplaceFacts(facts, weights={1: 1.0})
    uuid = facts.osdmap.osds[1].uuid
    assert 'same device' in ending(1, RECORD._replace(uuid=uuid), known)
    assert not ending(1, RECORD._replace(uuid=uuid), replace(known, weights={1: 0.0001}))


def test_drains_of_another_mgr_are_known_once_this_one_acts_again() -> None:
    driver = filled()
    driver.order('drain', 'osd.8')
    driver.run_to('DONE')
    assert set(phases(driver)) == {8}
    Store(driver.kv).put('drained', {})
    driver.loop.rebalance.load()
    driver.turn()
    assert phases(driver) == {}


def test_a_fill_that_is_aborted_is_not_begun_again() -> None:
    driver = emptied()
    driver.cluster.destroy(8)
    driver.cluster.create_again(8)
    driver.run_until(lambda: driver.status['id'] == 3)
    driver.ask('abort')
    driver.run(120)
    assert (driver.status['id'], driver.phase) == (3, 'ABORTED')
    assert driver.cluster.toys[8].crush_weight < 0.001 and not driver.loop.rebalance.replacing
    driver.order('undrain', 'osd.8')
    driver.run_to('DONE')
    assert driver.cluster.toys[8].crush_weight == 1.0


def test_a_fill_that_the_mons_refuse_is_not_begun_again() -> None:
    driver = emptied()
    driver.cluster.destroy(8)
    driver.cluster.create_again(8)
    driver.cluster.refuse['osd crush reweight'] = 'no'
    driver.run_until(lambda: driver.status['id'] == 3)
    driver.run_until(lambda: driver.phase == 'ABORTED')
    driver.run(120)
    assert (driver.status['id'], driver.phase) == (3, 'ABORTED')


def test_only_the_campaign_that_fills_a_device_ends_its_replacement() -> None:
    known, ready = ReplaceFacts(order_facts()), ReplacePhase.READY
    drain = campaign_of(
        2, Phase.ABORTING, 0.0, change=WeightChange(weights={1: 0.0001}, drained=(1,)))
    fill = replace(drain, change=WeightChange(weights={1: 1.0}))
    caught = campaign_of(2, Phase.ABORTING, 0.0, trigger='auto')
    assert not given_up(1, ready, replace(known, campaign=drain))
    assert given_up(1, ready, replace(known, campaign=fill))
    assert not given_up(2, ready, replace(known, campaign=fill))
    assert not given_up(1, ready, replace(known, campaign=replace(fill, phase=Phase.PINNING)))
    assert not given_up(1, ReplacePhase.WAITING, replace(known, campaign=fill))
    assert given_up(1, ReplacePhase.FILLING, replace(
        known, campaign=caught, entering=frozenset({1})))
    assert not given_up(1, ReplacePhase.FILLING, replace(known, campaign=caught))


@pytest.mark.parametrize('active, change, text', [
    (True, {}, '"campaign status" shows the progress'),
    (False, {'entering_complete': frozenset({1}), 'entering': frozenset({1})},
     'waiting for a campaign to fill it'),
    # PGs that lack copies cannot be pinned, and may lack only what the PG logs contain.
    (False, {'entering': frozenset({1})}, 'recovery fills it'),
    (False, {'degraded': {1: 3}}, 'recovery fills it'),
    (False, {'degraded': {2: 3}}, 'waiting for the report of the OSD')])
def test_what_fills_a_new_device(active: bool, change: Dict[str, Any], text: str) -> None:
    facts = replace(ReplaceFacts(order_facts(), weights={1: 1.0}), **change)
    if active:
        facts = replace(facts, campaign=campaign_of(2, Phase.RELEASING, 0.0))
    assert next_step(1, RECORD, ReplacePhase.FILLING, facts) == text


@pytest.mark.parametrize('change, stored_pgs, text', [
    ({'campaign': campaign_of(2, Phase.RELEASING, 0.0)}, 4, '"campaign status" shows the progress'),
    ({'degraded': {1: 3}, 'leaving': frozenset({1})}, 4,
     'waiting for recovery: PGs on it that lack copies: 3'),
    ({'degraded': {2: 3}, 'leaving': frozenset({1})}, 4,
     'waiting until the PGs that still use it have moved'),
    ({'leaving': frozenset({2})}, 4, 'waiting until it has deleted its PGs ("adopt" moves those '
     'that upmaps keep on it)'),
    ({}, 0, 'waiting for the report of the OSD')])
def test_what_a_drained_osd_waits_for(change: Dict[str, Any], stored_pgs: int, text: str) -> None:
    orders = replace(order_facts(), space={1: Space(100, 10, stored_pgs)})
    facts = replace(ReplaceFacts(orders, weights={1: 0.0001}), **change)
    assert next_step(1, RECORD, ReplacePhase.DRAINING, facts) == text


def test_remapped_pgs_are_looked_at_only_while_a_device_is_new() -> None:
    cluster = FakeCluster()
    for uuid, new in (('first', False), (NO_UUID, False), ('second', True)):
        cluster.uuids[0] = uuid
        found = created_again(cluster.map_view().osdmap.osds, {0: RECORD, 99: RECORD})
        assert found == [0][:new]


# ---- an OSD that is replaced, or boots with its full weight, while a campaign releases nothing

def held_back(how: str) -> Driver:
    """A campaign that keeps PGs pinned, and none of whose PGs is in flight."""
    cluster = StrawCluster(hosts=8, pgs=16)
    cluster.add_osds(2, 0.0)
    driver = Driver(cluster)
    driver.run(3)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status['released'] >= 1)
    if how == 'pause':
        driver.ask('pause')
    elif how == 'window':
        driver.options = replace(driver.options, begin_time='0300', end_time='0301')
    else:
        cluster.slow_ops = 5
    driver.run_to('HOLDING')
    driver.run(8)
    cluster.backfill_seconds = 5.0
    return driver


@pytest.mark.parametrize('again', [False, True])
@pytest.mark.parametrize('how', ['pause', 'window', 'slow ops'])
def test_an_osd_that_serves_while_nothing_is_released_gets_no_pg(how: str, again: bool) -> None:
    driver = held_back(how)
    cluster, osd = driver.cluster, 2
    assert isinstance(cluster, StrawCluster)
    if again:
        cluster.destroy(osd)
        driver.run(20)  # its PGs recover elsewhere
        cluster.create_again(osd)
    else:
        cluster.add_osds(1, 1.0)
        osd = cluster.new[-1]
    pins = len(driver.loop.rebalance.pins)
    driver.run(12)
    assert not any(osd in pg.data for pg in cluster.pg.values())
    assert len(driver.loop.rebalance.pins) > pins + 3 and driver.phase == 'HOLDING'
    # The flag is set for the moment until they are pinned, and during a pause.
    assert ('norebalance' in cluster.flags) == (how == 'pause')


def test_a_pause_does_not_delay_the_recovery_to_a_replaced_device() -> None:
    """It is replaced while it is still in: only its new device can complete its PGs, but for one
    that a release has on its way to another OSD."""
    driver = held_back('pause')
    cluster = driver.cluster
    there = {pgid for pgid, pg in cluster.pg.items() if 2 in pg.up}
    cluster.take_down(2)
    cluster.destroyed.add(2)
    for pgid, pg in cluster.pg.items():
        pg.data = tuple(HOLE if osd == 2 else osd for osd in pg.data
                        if osd != 2 or pgid.startswith('2.'))
    driver.run(5)
    cluster.create_again(2)
    driver.run(8)
    assert {pgid for pgid, pg in cluster.pg.items() if 2 in pg.data} == there and len(there) > 3
    assert 'norebalance' in cluster.flags
