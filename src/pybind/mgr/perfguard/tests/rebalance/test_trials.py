# SPDX-License-Identifier: LGPL-2.1-or-later
"""What CRUSH will do is worked out beside the loop, which watches and releases meanwhile."""
import errno
from dataclasses import replace
from typing import Any

import pytest

from perfguard.errors import Refused
from perfguard.rebalance.orders import Order
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
    return driver.loop.requests.submit(Order(*args, **kwargs))


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


def test_what_is_not_waited_for_is_not_carried_out() -> None:
    driver = waiting()
    asked = [ask(driver, 'expand', weight=weight) for weight in ('1.0', '2.0')]
    driver.turn()
    for each in asked:
        each.done.set()
    driver.turn()
    # The last one may be given again.
    assert [job.cancelled for job in driver.tools.jobs] == [True, False]
    driver.tools.work()
    driver.run(3)
    assert driver.phase == 'IDLE' and [each.answer for each in asked] == [None, None]


def test_an_order_that_is_given_again_gets_what_was_worked_out() -> None:
    """On a cluster where it takes longer than a command waits."""
    driver = waiting()
    first = ask(driver, 'expand', weight='1.0')
    driver.turn()
    first.done.set()
    driver.turn()
    again = ask(driver, 'expand', weight='1.0')
    driver.turn()
    assert len(driver.tools.jobs) == 1 and not again.done.is_set()
    driver.tools.work()
    driver.turn()
    assert again.answer['campaign'] == 1


def test_what_was_worked_out_under_another_crush_map_is_not_used() -> None:
    driver = waiting()
    first = ask(driver, 'expand', weight='1.0')
    driver.turn()
    first.done.set()
    driver.cluster._crush_changed()
    driver.run(2)
    ask(driver, 'expand', weight='1.0')
    driver.turn()
    assert len(driver.tools.jobs) == 2


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


def test_goals_are_worked_out_beside_the_loop() -> None:
    """It takes seconds for tens of thousands of PGs."""
    driver = balancing()
    driver.run(3)
    assert driver.phase == 'PINNING' and 'NO_GOALS' in codes(driver.status)
    assert len(driver.tools.jobs) == 1
    # What changes meanwhile makes them be worked out again.
    driver.cluster.add_upmap('1.1', driver.cluster.pg['1.1'].data[0], 6)
    driver.run(3)
    assert len(driver.tools.jobs) == 2
    driver.tools.work()
    driver.run_to('PINNED')
    assert '1.1' not in driver.loop.rebalance.pins


def failing() -> Any:
    raise ZeroDivisionError


def joining() -> Driver:
    """A change waits for the mapping after it."""
    driver = waiting()
    ask(driver, 'expand', weight='1.0')
    driver.turn()
    driver.tools.work()
    driver.run_until(lambda: bool(driver.tools.jobs))
    return driver


def balancing() -> Driver:
    """Pins wait for their goals."""
    driver = Driver(options=replace(OPTIONS, target='balanced', max_extra_movement=100.0))
    driver.ask('prepare')
    driver.run_to('PREPARED')
    driver.cluster.expand()
    driver.run_until(lambda: bool(driver.cluster.remapped()))
    driver.tools.late = True
    driver.ask('pin')
    driver.run_until(lambda: bool(driver.tools.jobs), 60)
    return driver


def mapping() -> Driver:
    """Pins that are vectors wait for what CRUSH chooses behind them."""
    driver = waiting()
    driver.tools.late = False
    driver.options = replace(OPTIONS, max_pgs_in_flight=1)
    driver.order('expand', weight='1.0')
    driver.run_to('RELEASING')
    driver.ask('pause')
    driver.run_to('HOLDING')
    assert any(pin.entry.vector for pin in driver.loop.rebalance.pins.values())
    driver.tools.late = True
    driver.cluster.change_tunables()
    driver.run_until(lambda: bool(driver.tools.jobs))
    return driver


@pytest.mark.parametrize('waits', [joining, balancing, mapping])
def test_what_a_job_raises_fails_one_turn_alone(waits: Any) -> None:
    driver = waits()
    job, = driver.tools.jobs
    setattr(job, '_task', failing)
    driver.tools.work()
    with pytest.raises(ZeroDivisionError):
        driver.turn()
    driver.run(2)
    assert driver.tools.jobs  # it is worked out again
    driver.tools.late = False
    driver.tools.work()
    if driver.phase == 'HOLDING':
        driver.ask('resume')
    driver.run_to('PINNED' if waits is balancing else 'DONE')


def test_each_campaign_has_its_change_worked_out_anew() -> None:
    """The same weights may be another change under a map that was changed and changed back."""
    driver = joining()
    first, = driver.tools.jobs
    driver.ask('abort')
    driver.run_to('ABORTED')
    ask(driver, 'expand', weight='1.0')
    driver.turn()
    driver.tools.jobs[-1].run()
    driver.run_until(lambda: len(driver.tools.jobs) > 2)
    assert first.cancelled and not driver.tools.jobs[-1].done
