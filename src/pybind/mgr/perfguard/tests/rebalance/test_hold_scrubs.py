# SPDX-License-Identifier: LGPL-2.1-or-later
"""With hold_scrubs, OSDs start no scrubs while PGs are released, and catch up afterwards."""
from dataclasses import replace
from typing import Dict, List, Optional, Tuple

import pytest

from ..fakes.cluster import FakeCluster
from ..fakes.driver import OPTIONS, Driver

SCRUBS = ('osd', 'osd_max_scrubs')


#: Events of the beginning and of the end.
BEGIN = 'OSDs start no scrubs while PGs are released (hold_scrubs)'
END = 'OSDs start scrubs again (hold_scrubs)'


def noted(driver: Driver) -> List[str]:
    return [event['what'] for event in driver.loop.published.events
            if 'hold_scrubs' in event['what']]


def releasing(found: Optional[str], hold: bool = True) -> Driver:
    stored: Dict[Tuple[str, str], str] = {} if found is None else {SCRUBS: found}
    driver = Driver(FakeCluster(osd_config=stored, backfill_seconds=20.0),
                    replace(OPTIONS, hold_scrubs=hold))
    driver.to_pinned()
    assert driver.cluster.osd_config.get(SCRUBS) == found
    driver.ask('start')
    driver.run_until(lambda: driver.status['in_flight'] > 0)
    return driver


@pytest.mark.parametrize('found', [None, '3'])
def test_held_while_pgs_are_released_and_given_back_at_the_end(found: Optional[str]) -> None:
    driver = releasing(found)
    assert driver.cluster.osd_config[SCRUBS] == '0'
    row = {row.what: row for row in driver.loop.published.ledger.rows}['osd_max_scrubs of the OSDs']
    assert (row.found, row.put) == (found, '0')
    assert noted(driver) == [BEGIN]
    driver.restart()
    driver.run_to('DONE', 1000)
    assert driver.cluster.osd_config.get(SCRUBS) == found and driver.cluster.clean()
    # The event of the beginning may be lost with the mgr.
    assert noted(driver)[-1] == END and noted(driver).count(END) == 1


def test_off_by_default() -> None:
    assert not OPTIONS.hold_scrubs
    assert SCRUBS not in releasing(None, hold=False).cluster.osd_config


@pytest.mark.parametrize('verb', ['pause', 'abort'])
def test_given_back_when_the_operator_ends_the_releases(verb: str) -> None:
    driver = releasing('2')
    driver.ask(verb)
    driver.run_until(lambda: driver.cluster.osd_config[SCRUBS] == '2', 30)
    driver.run_until(lambda: driver.phase in ('HOLDING', 'ABORTED'), 30)
    assert noted(driver) == [BEGIN, END]
    driver.ask('resume')
    driver.run_until(lambda: driver.cluster.osd_config[SCRUBS] == '0', 60)
    assert noted(driver) == [BEGIN, END, BEGIN]


def test_given_back_outside_the_release_window_with_a_pg_stuck_in_flight() -> None:
    driver = releasing('2')
    driver.cluster.backfill_seconds = 1e9
    driver.options = replace(driver.options, end_time='0000')
    driver.run_until(lambda: driver.cluster.osd_config[SCRUBS] == '2', 60)
    assert driver.phase == 'HOLDING' and driver.status['in_flight'] > 0


def test_given_back_while_a_pg_is_stuck_in_flight() -> None:
    driver = releasing('2')
    driver.options = replace(driver.options, stalled_after=60.0)
    driver.cluster.backfill_seconds = 1e9
    driver.run_until(lambda: driver.cluster.osd_config[SCRUBS] == '2', 200)
    assert driver.phase == 'RELEASING' and driver.status['in_flight'] > 0
    driver.run(30)
    assert driver.cluster.osd_config[SCRUBS] == '2'
    driver.cluster.backfill_seconds = 2.0
    driver.run_to('DONE', 1000)
    assert driver.cluster.osd_config[SCRUBS] == '2'


def test_a_value_that_others_set_meanwhile_is_theirs() -> None:
    driver = releasing(None)
    driver.cluster.osd_config[SCRUBS] = '5'
    driver.run_to('DONE', 1000)
    assert driver.cluster.osd_config[SCRUBS] == '5'


def test_mons_that_refuse_it_do_not_hold_the_campaign() -> None:
    cluster = FakeCluster()
    cluster.refuse['config set osd_max_scrubs'] = 'EINVAL'
    driver = Driver(cluster, replace(OPTIONS, hold_scrubs=True))
    driver.to_pinned()
    driver.ask('start')
    driver.run_to('DONE', 1000)
    assert SCRUBS not in cluster.osd_config and cluster.clean()
