# SPDX-License-Identifier: LGPL-2.1-or-later
"""The wall clock is set while an mgr is active, and the clock of the next mgr differs."""
from dataclasses import replace
from typing import Any, List

import pytest

from perfguard.clock import REPORTED_SECONDS, Clock
from perfguard.codec import encode, no_later_than
from perfguard.mitigation.types import MitigationState
from perfguard.rebalance.campaign import Campaign

from .fakes.driver import OPTIONS, Driver


pytestmark = pytest.mark.usefixtures('utc')


@pytest.mark.parametrize('seconds', [3600.0, -3600.0])
def test_a_wall_clock_that_is_set_changes_no_time(seconds: float) -> None:
    wall, steady = [1e9], [50.0]
    clock = Clock(lambda: wall[0], lambda: steady[0])
    assert clock() == 1e9 and not clock.remarks()
    wall[0], steady[0] = 1e9 + 7.0 + seconds, 57.0
    assert clock() == 1e9 + 7.0 and clock.set_by() == seconds
    [text] = clock.remarks()
    assert 'was set by %+.0f s' % seconds in text


def test_small_steps_are_not_reported() -> None:
    wall = [1e9]
    clock = Clock(lambda: wall[0], lambda: 50.0)
    wall[0] += REPORTED_SECONDS - 1.0
    assert not clock.remarks()


def test_rounding_does_not_set_the_clock() -> None:
    wall = [1e9]
    clock = Clock(lambda: wall[0], lambda: 50.0)
    wall[0] += 600.0
    assert clock.set_by() == 600.0
    wall[0] += 1e-3
    assert clock.set_by() == 600.0
    wall[0] += 5.0
    assert clock.set_by() == wall[0] - 1e9


def releasing(**options: Any) -> Driver:
    driver = Driver(options=replace(OPTIONS, max_pgs_in_flight=1, **options))
    # No time is before the epoch.
    driver.cluster.now = 86400.0 * 3
    driver.turn()
    driver.to_releasing()
    driver.run(5)
    return driver


@pytest.mark.parametrize('seconds', [3600.0, -3600.0])
def test_a_wall_clock_that_is_set_changes_no_campaign(seconds: float) -> None:
    plain, jumped = releasing(), releasing()
    jumped.cluster.ahead = seconds
    for driver in plain, jumped:
        driver.run(40)
    assert jumped.loop.rebalance.campaign == plain.loop.rebalance.campaign
    assert any('was set by %+.0f s' % seconds in text for text in jumped.loop.status()['reasons'])
    assert not any('was set' in text for text in plain.loop.status()['reasons'])


@pytest.mark.parametrize('begin, end, seconds', [
    ('2300', '0030', 3600.0), ('0000', '0030', 3600.0), ('0000', '0030', -1800.0)])
def test_the_time_window_follows_the_wall_clock(begin: str, end: str, seconds: float) -> None:
    driver = releasing(begin_time=begin, end_time=end)
    driver.cluster.ahead = seconds
    driver.run(2)
    assert driver.phase == 'HOLDING' and driver.status['waits_for_window']
    assert any('outside the time window' in text for text in driver.status['reasons'])
    driver.cluster.ahead = 0.0
    driver.run_to('RELEASING')


def times(value: Any, after: float) -> List[float]:
    """Numbers of stored data that can only be times after this one."""
    if isinstance(value, (dict, list)):
        parts = value.values() if isinstance(value, dict) else value
        return [time for part in parts for time in times(part, after)]
    return [value] if isinstance(value, float) and after < value < after + 1e5 else []


@pytest.mark.parametrize('kind', [Campaign, MitigationState])
def test_no_stored_time_is_in_the_future_of_the_next_mgr(kind: type) -> None:
    driver = releasing()
    driver.ask('pause', seconds=600.0)
    driver.run(3)
    jobs = driver.loop.jobs
    stored = jobs.rebalance.campaign if kind is Campaign else jobs.mitigating._state
    before = driver.cluster.now - 3600.0
    assert len(times(encode(stored), before)) >= (8 if kind is Campaign else 1)
    assert not times(encode(no_later_than(kind, stored, before)), before)
    assert no_later_than(kind, stored, driver.cluster.now) == stored


def test_the_next_mgr_begins_waits_anew_if_its_clock_is_behind() -> None:
    driver = releasing()
    driver.cluster.ahead = 3600.0
    driver.restart()
    driver.run(20)
    driver.cluster.ahead = 0.0
    driver.restart()
    driver.turn()
    campaign = driver.loop.rebalance.campaign
    assert not times(encode(campaign), driver.loop.clock())
    driver.run_to('DONE')
