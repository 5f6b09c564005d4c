# SPDX-License-Identifier: LGPL-2.1-or-later
"""Flags by which operators stop all movement without perfguard: it never clears them."""
from typing import Callable, Dict

import pytest

from ..fakes.cluster import BALANCER, FakeCluster
from ..fakes.driver import Driver, codes
from ..fakes.straw_cluster import AuditedCluster, StrawCluster


def releasing() -> Driver:
    driver = Driver(FakeCluster(pgs=48, hosts=12, backfill_seconds=30.0))
    driver.to_releasing()
    return driver


def paused(driver: Driver) -> None:
    driver.ask('pause', seconds=20.0)
    driver.run_until(lambda: 'norebalance' in driver.cluster.flags)
    driver.run(3)


def stopped(driver: Driver, flag: str) -> None:
    """Nothing moves, and nothing is released, until the operator clears the flag."""
    cluster = driver.cluster
    released = driver.status['released'] + driver.status['in_flight']
    for _ in range(120):
        driver.turn()
        assert flag in cluster.flags
    assert 'FOREIGN_FLAG' in codes(driver.status) and driver.phase == 'HOLDING'
    assert driver.status['released'] + driver.status['in_flight'] == released
    cluster.order_flag(flag, False)
    cluster.backfill_seconds = 1.0
    driver.run_to('DONE', 1000)
    assert not cluster.flags - {'noscrub'}


@pytest.mark.parametrize('failover', [False, True])
def test_nobackfill_stops_releases_and_stays(failover: bool) -> None:
    driver = releasing()
    driver.cluster.order_flag('nobackfill')
    if failover:
        driver.restart()
        driver.turn()
    stopped(driver, 'nobackfill')


@pytest.mark.parametrize('before_campaign', [False, True])
@pytest.mark.parametrize('setting, modes, active', [
    (BALANCER, {1: 'on', 2: 'warn'}, 'false'),
    ('pg_autoscale_mode of rep', {1: 'off', 2: 'warn'}, 'true')])
def test_what_is_switched_off_a_second_time_stays_off(
        setting: str, modes: Dict[int, str], active: str, before_campaign: bool) -> None:
    """The command changes nothing, but is the last one of the operator."""
    off = 'false' if setting == BALANCER else 'off'
    driver = Driver()
    if before_campaign:
        driver.cluster.set_value_again(setting, off)
        driver.cluster.now += 1.0
    driver.to_releasing()
    assert (driver.cluster.config[BALANCER], driver.cluster.modes[1]) == ('false', 'off')
    if not before_campaign:
        driver.cluster.set_value_again(setting, off)
    driver.run_to('DONE')
    driver.run(3)
    if before_campaign:
        modes, active = {1: 'on', 2: 'warn'}, 'true'
    assert (driver.cluster.modes, driver.cluster.config[BALANCER]) == (modes, active)
    assert before_campaign != any('was switched off outside perfguard, too' in event['what']
                                  for event in driver.loop.published.events)


@pytest.mark.parametrize('failover', [False, True])
@pytest.mark.parametrize('logged', [False, True])
def test_the_balancer_is_on_again_after_the_operator_has_followed_the_advice(
        logged: bool, failover: bool) -> None:
    """Others have switched it on, so the campaign asks for "ceph balancer off"; the log may show
    that command, which is then not the last word on it."""
    driver = releasing()
    cluster = driver.cluster
    assert cluster.config[BALANCER] == 'false'
    cluster.config[BALANCER] = 'true'
    driver.run_until(lambda: 'BALANCER_ON' in codes(driver.status))
    reason, = [text for text in driver.status['reasons'] if 'ceph balancer off' in text]
    assert reason.endswith('; perfguard switches it on again at the end of the campaign')
    cluster.config[BALANCER] = 'false'
    if logged:
        cluster.set_value_again(BALANCER, 'false')
    if failover:
        driver.turn()
        driver.restart()
        driver.turn()
    driver.run_until(lambda: 'BALANCER_ON' not in codes(driver.status))
    assert any(row.what == BALANCER for row in driver.loop.published.ledger.rows)
    driver.run_to('DONE', 1000)
    driver.run(3)
    assert cluster.config[BALANCER] == 'true'
    assert not any(row.what == BALANCER for row in driver.loop.published.ledger.rows)
    assert sum('was switched off again outside perfguard' in event['what']
               for event in driver.loop.published.events) == 1


def test_the_balancer_stays_off_after_a_second_order_to_switch_it_off() -> None:
    driver = releasing()
    driver.cluster.config[BALANCER] = 'true'
    driver.run_until(lambda: 'BALANCER_ON' in codes(driver.status))
    driver.cluster.config[BALANCER] = 'false'
    driver.run_until(lambda: 'BALANCER_ON' not in codes(driver.status))
    driver.run(3)
    driver.cluster.set_value_again(BALANCER, 'false')
    driver.run_to('DONE', 1000)
    driver.run(3)
    assert driver.cluster.config[BALANCER] == 'false'


@pytest.mark.parametrize('failover', [False, True])
def test_norebalance_that_is_set_a_second_time_stays(failover: bool) -> None:
    """The command changes nothing, and says: "norebalance is set"."""
    driver = releasing()
    paused(driver)
    driver.cluster.order_flag('norebalance')
    if failover:
        driver.restart()
        driver.turn()
    stopped(driver, 'norebalance')
    assert any('set outside perfguard, too' in event['what']
               for event in driver.loop.published.events)


def test_norebalance_that_returns_after_it_was_cleared_stays() -> None:
    """The OSDMap that perfguard sees next has the flag, as if the command had had no effect."""
    driver = releasing()
    cluster = driver.cluster
    paused(driver)
    driver.run_until(lambda: bool(cluster.sent) and cluster.sent[-1] == {
        'prefix': 'osd unset', 'key': 'norebalance'})
    assert 'norebalance' not in cluster.flags
    cluster.order_flag('norebalance')
    stopped(driver, 'norebalance')


def prepared(driver: Driver) -> None:
    driver.ask('prepare')
    driver.run_to('PREPARED')


def pinned(driver: Driver) -> None:
    driver.to_pinned()


@pytest.mark.parametrize('to', [prepared, pinned])
def test_the_end_of_a_campaign_does_not_clear_it(to: Callable[[Driver], None]) -> None:
    driver = Driver()
    to(driver)
    driver.cluster.order_flag('norebalance')
    driver.run(3)
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.run(5)
    assert 'norebalance' in driver.cluster.flags


def test_once_the_operator_clears_it_the_campaign_sets_it_again() -> None:
    driver = Driver()
    prepared(driver)
    driver.cluster.order_flag('norebalance')
    driver.run(3)
    driver.cluster.order_flag('norebalance', False)
    driver.run(3)
    assert 'norebalance' in driver.cluster.flags
    driver.ask('abort')
    driver.run_to('ABORTED')
    assert 'norebalance' not in driver.cluster.flags


@pytest.mark.parametrize('turns', [0, 3])
def test_a_balancer_that_is_switched_off_before_the_next_order_is_given_back(turns: int) -> None:
    """Perhaps no turn comes between both."""
    cluster = StrawCluster(hosts=12, pgs=24)
    cluster.add_osds(6, 0.0)
    cluster.tick(5.0)
    driver = Driver(cluster)
    driver.order('expand', 'osd.12', weight='1.0')
    driver.run_to('RELEASING')
    driver.run(3)
    cluster.config[BALANCER] = 'true'
    driver.run(3)
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.run(2)
    cluster.set_value_again(BALANCER, 'false')
    cluster.config[BALANCER] = 'false'
    driver.run(turns)
    driver.order('expand', 'osd.13', weight='1.0')
    driver.run_to('DONE', 900)
    assert cluster.config[BALANCER] == 'true'


def test_the_audited_balancer_is_the_operators_unless_it_was_borrowed() -> None:
    cluster = AuditedCluster()
    cluster.put_balancer(True)
    cluster.put_balancer(False)
    cluster.switch_balancer(True)
    assert cluster.wrong and cluster.unlike_theirs()
