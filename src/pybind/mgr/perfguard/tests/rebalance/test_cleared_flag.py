# SPDX-License-Identifier: LGPL-2.1-or-later
"""norebalance that others clear while a campaign needs it: it stays cleared until an operator
orders otherwise."""
from ..fakes.cluster import FakeCluster
from ..fakes.driver import Driver, codes


def paused() -> Driver:
    """PGs are in flight, and norebalance stops them."""
    driver = Driver(FakeCluster(pgs=48, hosts=12, backfill_seconds=30.0))
    driver.to_releasing()
    driver.ask('pause')
    driver.run_until(lambda: 'norebalance' in driver.cluster.flags)
    driver.run(3)
    return driver


def cleared(driver: Driver) -> None:
    driver.cluster.order_flag('norebalance', False)
    driver.run(5)
    assert 'norebalance' not in driver.cluster.flags
    assert codes(driver.status) == ['PAUSED', 'FLAG_CLEARED']
    assert driver.loop.rebalance.campaign.progress.limits.now == 'PAUSED'


def test_another_pause_sets_the_flag_again() -> None:
    driver = paused()
    cleared(driver)
    driver.ask('pause')
    driver.run(5)
    assert 'norebalance' in driver.cluster.flags and codes(driver.status) == ['PAUSED']
    moved = len(driver.cluster.moved)
    driver.run(60)
    assert len(driver.cluster.moved) == moved and driver.phase == 'HOLDING'
    # It is given back as usual, also after others have cleared it once more.
    cleared(driver)
    driver.ask('resume')
    driver.run_to('DONE', 1000)
    assert 'norebalance' not in driver.cluster.flags
