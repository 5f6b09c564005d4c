# SPDX-License-Identifier: LGPL-2.1-or-later
"""Settings of one campaign, and pauses that end by the clock."""
import errno
from dataclasses import replace
from typing import Any, Dict, Tuple

import pytest

from perfguard.errors import Refused
from perfguard.options import DEFAULTS, OPTIONS
from perfguard.rebalance.campaign import COUNT_SECONDS
from perfguard.rebalance.settings import SETTABLE, assignment, overridden
from perfguard.shutdown import ShutdownOrder
from perfguard.window import duration_seconds

from ..fakes.cluster import FakeCluster
from ..fakes.driver import Driver, codes


def releasing() -> Driver:
    driver = Driver(FakeCluster(backfill_seconds=30.0))
    driver.to_releasing()
    return driver


def test_a_setting_counts_for_the_campaign_only_and_survives_a_failover() -> None:
    driver = releasing()
    driver.run_until(lambda: driver.status['in_flight'] == 4)
    driver.ask('set', option='max_pgs_in_flight', value='6')
    assert driver.status['settings'] == {'max_pgs_in_flight': '6'}
    driver.run_until(lambda: driver.status['in_flight'] > 4)
    driver.restart()
    driver.turn()
    assert driver.status['settings'] == {'max_pgs_in_flight': '6'}
    assert driver.loop.rebalance.overridden(driver.options).max_pgs_in_flight == 6
    driver.ask('set', option='max_pgs_in_flight', value='')
    driver.run(2)
    assert driver.status['settings'] == {} and driver.status['limit'] <= 4
    driver.ask('set', option='max_pgs_in_flight', value='8')
    driver.run_to('DONE', 2000)
    assert driver.loop.rebalance.overridden(driver.options) == driver.options


@pytest.mark.parametrize('settings, changed', [
    ({'latency_factor': '2'}, {'latency_factor': 2.0}),
    ({'begin_time': '0100', 'end_weekday': '3'}, {'begin_time': '0100', 'end_weekday': 3}),
    # As a later or an earlier version may have stored them.
    ({'target': 'crush', 'nonsense': '1', 'latency_factor': '0.1'}, {}),
])
def test_values(settings: Dict[str, str], changed: Dict[str, Any]) -> None:
    found = overridden(DEFAULTS, settings)
    assert {name: value for name, value in vars(found).items()
            if value != getattr(DEFAULTS, name)} == changed


def test_every_settable_option_exists_and_takes_its_default() -> None:
    specs = {spec['name']: spec for spec in OPTIONS}
    for name in SETTABLE:
        default = specs[name]['default']
        assert assignment('%s=%s' % (name, default)) == (name, str(default))


def test_a_setting_that_contradicts_another_option_is_refused() -> None:
    driver = releasing()
    with pytest.raises(Refused, match='latency_alarm_factor'):
        driver.ask('set', option='latency_factor', value='50')
    driver.ask('set', option='begin_time', value='1200')
    driver.turn()
    with pytest.raises(Refused, match='never opens'):
        driver.ask('set', option='end_time', value='1200')
    assert driver.status['settings'] == {'begin_time': '1200'}


def limit_of_no_pool(driver: Driver) -> None:
    driver.options = replace(driver.options, latency_limits_ms='gone=5')


@pytest.mark.parametrize('setting', ['max_pgs_in_flight=1', 'begin_time=0100', 'end_time=2400'])
def test_a_setting_is_accepted_beside_module_options_that_contradict_each_other(
        setting: str) -> None:
    """It may be urgent, or the first of two that correct them."""
    driver = Driver()
    driver.to_releasing()
    driver.options = replace(driver.options, begin_time='9999', end_time='25')
    driver.run(3)
    option, value = setting.split('=')
    driver.ask('set', option=option, value=value)
    driver.turn()
    campaign = driver.loop.rebalance.campaign
    assert campaign.orders.settings == {option: value}
    with pytest.raises(Refused, match='end_time is .26.'):
        driver.ask('set', option='end_time', value='26')
    with pytest.raises(Refused, match='must not exceed'):
        driver.ask('set', option='latency_factor', value='99')
    driver.ask('set', option='begin_time', value='0000')
    driver.ask('set', option='end_time', value='2400')
    driver.run(3)
    assert driver.phase == 'RELEASING'


def test_a_campaign_goes_on_without_the_limit_of_a_pool_that_was_deleted() -> None:
    driver = releasing()
    limit_of_no_pool(driver)
    driver.run(3)
    limit = driver.status['limits'][-1]
    assert driver.phase == 'RELEASING' and (limit['code'], limit['text']) == (
        'BAD_OPTIONS', "latency_limits_ms: pool 'gone' does not exist; this limit is ignored")
    assert 'BAD_OPTIONS' not in driver.loop.rebalance.campaign.progress.limits.seconds
    driver.ask('pause')
    driver.run_to('HOLDING')
    driver.ask('resume')
    driver.ask('set', option='max_pgs_in_flight', value='6')
    driver.run_to('DONE', 2000)
    driver.turn()
    assert 'BAD_OPTIONS' not in codes(driver.status)


def test_a_limit_that_is_no_number_still_holds_a_campaign() -> None:
    driver = releasing()
    driver.options = replace(driver.options, latency_limits_ms='rep=x')
    driver.run_to('HOLDING')
    assert 'BAD_OPTIONS' in codes(driver.status)


def test_nothing_begins_or_starts_with_the_limit_of_a_pool_that_does_not_exist() -> None:
    driver = Driver()
    driver.to_pinned()
    limit_of_no_pool(driver)
    with pytest.raises(Refused, match="'gone' does not exist"):
        driver.ask('start')
    driver.ask('pin')
    with pytest.raises(Refused, match="'gone' does not exist"):
        driver.ask('set', option='latency_limits_ms', value='gone=7')
    driver.run_to('PINNED')
    driver.ask('set', option='latency_limits_ms', value='rep=7')
    driver.turn()
    driver.ask('start')
    driver.run(2)
    driver.ask('set', option='latency_limits_ms', value='')
    driver.run_to('DONE')
    with pytest.raises(Refused, match="'gone' does not exist"):
        driver.ask('prepare')
    with pytest.raises(Refused, match="'gone' does not exist"):
        driver.order('drain', 'osd.0')


def test_a_pause_ends_also_after_a_failover() -> None:
    driver = releasing()
    driver.ask('pause', seconds=60.0)
    driver.run_to('HOLDING')
    until = driver.status['paused_until']
    assert until - 60.0 <= driver.cluster.now
    driver.restart()
    driver.run(20)
    assert driver.phase == 'HOLDING' and driver.status['paused']
    driver.run_until(lambda: driver.phase == 'RELEASING', 100)
    assert until <= driver.cluster.now < until + COUNT_SECONDS
    assert not driver.status['paused'] and driver.status['paused_until'] is None


@pytest.mark.parametrize('ahead', [(900.0, 0.0), (0.0, 7200.0, 0.0), (0.0, -7200.0, 0.0)])
def test_a_pause_is_as_long_if_clocks_of_mgrs_differ(ahead: Tuple[float, ...]) -> None:
    """Time without an active mgr does not count, nor do up to COUNT_SECONDS before a failover."""
    driver = releasing()
    driver.cluster.now += 10000.0  # no time is before the epoch
    driver.cluster.ahead = ahead[0]
    driver.restart()
    driver.run(2)
    driver.ask('pause', seconds=600.0)
    begun = driver.cluster.now
    for seconds in ahead[1:]:
        driver.run(130)
        driver.cluster.ahead = seconds
        driver.restart()
    driver.run_until(lambda: not driver.status.get('paused', True), 1000)
    longer = (len(ahead) - 1) * COUNT_SECONDS
    assert 600.0 <= driver.cluster.now - begun <= 600.0 + longer + 5.0


def test_a_pause_that_the_next_mgr_executes_is_as_long() -> None:
    driver = releasing()
    driver.ask('pause', seconds=600.0)
    driver.cluster.ahead = 3600.0
    driver.restart()
    driver.run(500)
    assert driver.status['paused']
    driver.run(110)
    assert not driver.status['paused']


def test_resume_ends_it_earlier_and_another_pause_has_no_end() -> None:
    driver = releasing()
    driver.ask('pause', seconds=60.0)
    driver.run_to('HOLDING')
    driver.ask('resume')
    driver.run_to('RELEASING')
    driver.ask('pause')
    driver.run(120)
    assert driver.phase == 'HOLDING' and driver.status['paused_until'] is None


@pytest.mark.parametrize('text, seconds', [
    ('90s', 90.0), ('30m', 1800.0), ('30min', 1800.0), ('2h', 7200.0), ('1.5 h', 5400.0),
    ('30d', 30 * 86400.0)])
def test_durations(text: str, seconds: float) -> None:
    assert duration_seconds(text) == seconds


@pytest.mark.parametrize('text', ['', '2', 'h', '0h', '-1h', '31d', '2 hours', '1h30m', '1e3s'])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError):
        duration_seconds(text)


@pytest.mark.parametrize('state', ['IDLE', 'ABORTED', 'shutdown'])
@pytest.mark.parametrize('option, value', [
    ('begin_time', '25:00'), ('end_time', '2460'), ('latency_limits_ms', 'rep'),
    ('latency_limits_ms', 'gone=7'), ('latency_factor', '50'), ('max_pins', 'many'),
    ('target', 'crush')])
def test_a_bad_setting_is_invalid_whatever_the_campaign_does(state: str, option: str,
                                                             value: str) -> None:
    driver = Driver()
    if state != 'IDLE':
        driver.to_pinned()
    if state == 'ABORTED':
        driver.ask('abort')
        driver.run_to('ABORTED')
    elif state == 'shutdown':
        driver.give(ShutdownOrder(True))
    with pytest.raises(Refused) as refused:
        driver.ask('set', option=option, value=value)
    assert refused.value.errno == errno.EINVAL and option in str(refused.value)


def test_settings_of_a_campaign_that_has_ended_make_none_invalid() -> None:
    driver = Driver()
    driver.ask('prepare')
    driver.run_to('PREPARED')
    driver.ask('set', option='begin_time', value='1200')
    driver.turn()
    driver.ask('abort')
    driver.run_to('ABORTED')
    with pytest.raises(Refused) as refused:
        driver.ask('set', option='end_time', value='1200')
    assert refused.value.errno == errno.ENOENT
