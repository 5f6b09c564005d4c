# SPDX-License-Identifier: LGPL-2.1-or-later
"""What CRUSH will do is worked out beside the loop, which watches and releases meanwhile."""
import errno
from dataclasses import replace
from typing import Any

import pytest

from perfguard.rebalance.orders import Order
from perfguard.rebalance.requests import Refused
from perfguard.tests.fakes.cluster import FakeCluster
from perfguard.tests.fakes.driver import OPTIONS, Driver, codes


def waiting() -> Driver:
    """Three OSDs of CRUSH weight 0, and tools that take their time."""
    cluster = FakeCluster()
    cluster.add_waiting()
    driver = Driver(cluster)
    driver.tools.late = True
    return driver


def ask(driver: Driver, *args: Any, **kwargs: Any) -> Any:
    return driver.loop._desk.put(Order(*args, **kwargs))


def test_the_loop_turns_while_an_order_is_worked_out() -> None:
    driver = waiting()
    asked, turned = ask(driver, 'expand', weight='1.0', dry_run=True), driver.cluster.now
    driver.run(3)
    assert not asked.done.is_set() and driver.loop.published.turned > turned
    driver.tools.work()
    driver.turn()
    assert asked.answer['pgs'] > 0 and driver.phase == 'IDLE'


def test_a_campaign_releases_while_a_preview_is_worked_out() -> None:
    driver = Driver()
    driver.to_releasing()
    driver.tools.late = True
    asked = ask(driver, 'drain', ('h3',), dry_run=True)
    driver.run_to('DONE')
    assert not asked.done.is_set()
    driver.tools.work()
    driver.turn()
    assert asked.answer['pgs'] > 0


def test_a_change_is_sent_once_it_is_worked_out() -> None:
    driver = waiting()
    asked = ask(driver, 'expand', weight='1.0')
    driver.turn()
    driver.tools.work()
    driver.run_until(lambda: 'OUTLOOK' in codes(driver.status))
    driver.run(3)
    assert asked.answer is not None and driver.cluster.clean()
    assert not [command for command in driver.cluster.sent if 'reweight' in command['prefix']]
    driver.tools.late = False
    driver.tools.work()
    driver.run_to('PINNED')
    assert driver.cluster.most_unclean == 0


def test_a_change_of_crush_meanwhile_refuses_what_was_worked_out_before() -> None:
    driver = waiting()
    asked = ask(driver, 'expand', weight='1.0')
    driver.turn()
    driver.cluster._crush_changed()
    driver.run(2)
    driver.tools.work()
    driver.turn()
    assert asked.refused.errno == errno.EAGAIN and driver.phase == 'IDLE'


def test_a_campaign_that_began_meanwhile_refuses_the_second_one() -> None:
    driver = waiting()
    first, second = [ask(driver, 'expand', weight='1.0') for _ in range(2)]
    driver.turn()
    driver.tools.work()
    driver.turn()
    assert first.answer['campaign'] == 1 and second.refused.errno == errno.EBUSY


def test_what_is_not_waited_for_is_not_worked_out() -> None:
    driver = waiting()
    asked = ask(driver, 'expand', weight='1.0')
    driver.turn()
    asked.done.set()
    driver.turn()
    job, = driver.tools.jobs
    assert job.cancelled
    driver.tools.work()
    driver.run(3)
    assert driver.phase == 'IDLE' and asked.answer is None


def test_a_change_that_fails_to_be_worked_out_is_refused_alone() -> None:
    driver = waiting()
    bad = ask(driver, 'drain', ('nowhere',))
    good = ask(driver, 'expand', weight='1.0', dry_run=True)
    driver.turn()
    driver.tools.work()
    driver.turn()
    assert bad.refused.errno == errno.ENOENT and good.answer is not None


def test_too_many_previews_are_refused() -> None:
    driver = waiting()
    setattr(driver.tools, 'submit', lambda *args, **kwargs: None)
    with pytest.raises(Refused) as refused:
        driver.order('expand', weight='1.0', dry_run=True)
    assert refused.value.errno == errno.EAGAIN


def test_nothing_is_released_while_a_rollback_is_worked_out() -> None:
    """Its OSDs get no weight, so none of them may receive data that it does not know of."""
    driver = waiting()
    driver.tools.late = False
    driver.options = replace(OPTIONS, max_pgs_in_flight=1)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status['in_flight'] > 0)
    driver.tools.late = True
    asked = ask(driver, 'rollback')
    driver.turn()
    released = driver.status['released'] + driver.status['in_flight']
    driver.run(20)
    assert driver.status['released'] + driver.status['in_flight'] == released
    assert 'OUTLOOK' in codes(driver.status) and driver.status['pinned'] > 0
    driver.tools.late = False
    driver.tools.work()
    driver.run_to('DONE')
    assert asked.answer is not None and driver.cluster.clean()
    assert not {osd for pg in driver.cluster.pg.values() for osd in pg.data} & set(
        driver.cluster.new)


def test_a_preview_of_a_rollback_holds_nothing() -> None:
    driver = waiting()
    driver.tools.late = False
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status['in_flight'] > 0)
    driver.tools.late = True
    ask(driver, 'rollback', dry_run=True)
    driver.run_to('DONE')
