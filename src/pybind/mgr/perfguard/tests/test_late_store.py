# SPDX-License-Identifier: LGPL-2.1-or-later
"""What follows from an old observation is not sent: ceph-mgr waits for the mons when it writes."""
from typing import Callable, Dict, List, Optional

import pytest

from perfguard.rebalance.orders import Order

from .fakes.cluster import FakeCluster
from .fakes.driver import Driver, codes
from .rebalance.test_joining import waiting


class SlowWrite:
    """The next write of the campaign takes some seconds, at whose end something happens."""

    def __init__(self, driver: Driver, seconds: float,
                 then: Optional[Callable[[], None]] = None) -> None:
        self._cluster, self._seconds, self._then = driver.cluster, seconds, then
        self._write = driver.kv.set_store
        self.done = False
        setattr(driver.kv, 'set_store', self)

    def __call__(self, key: str, val: Optional[str]) -> None:
        self._write(key, val)
        if key.startswith('campaign/') and not self.done:
            self.done = True
            self._cluster.now += self._seconds
            if self._then is not None:
                self._then()


def released_since(driver: Driver, number: int) -> List[str]:
    return [command['pgid'] for command in driver.cluster.sent[number:]
            if command['prefix'] == 'osd rm-pg-upmap-items']


#: readback_timeout of the driver is 6 s.
@pytest.mark.parametrize('seconds, released', [(5.9, True), (6.1, False)])
def test_releases_that_were_stored_too_late_are_decided_again(
        seconds: float, released: bool) -> None:
    """Meanwhile PGs have become laggy: the readback would release these PGs nevertheless."""
    driver = Driver()
    cluster = driver.cluster
    driver.to_pinned()
    driver.ask('start')
    driver.run_until(lambda: 'norebalance' not in cluster.flags)
    number = len(cluster.sent)
    slow = SlowWrite(driver, seconds, lambda: cluster.trouble.update(laggy=2))
    driver.turn()
    assert slow.done and bool(released_since(driver, number)) == released
    assert (driver.status['in_flight'] > 0) == released
    driver.run(12)
    assert driver.phase == 'HOLDING' and 'LAGGY' in codes(driver.status)
    assert bool(released_since(driver, number)) == released
    failed = [event for event in driver.loop.published.events if event['kind'] == 'failed']
    assert len(failed) == (not released)
    cluster.trouble.clear()
    driver.run_to('DONE')
    assert driver.status['released'] == 12 and cluster.entries() == {}


def prepare(driver: Driver) -> None:
    driver.ask('prepare')


def expand(driver: Driver) -> None:
    driver.loop.requests.submit(Order('expand', weight='1.0'))


def pin(driver: Driver) -> None:
    driver.ask('prepare')
    driver.run_to('PREPARED')
    driver.cluster.expand()
    driver.run_until(lambda: len(driver.cluster.remapped()) == 12)
    driver.ask('pin')


def abort(driver: Driver) -> None:
    driver.to_releasing()
    driver.ask('abort')


ENDS: Dict[Callable[[Driver], None], str] = {
    prepare: 'PREPARED', pin: 'PINNED', expand: 'RELEASING', abort: 'ABORTED'}


@pytest.mark.parametrize('act, skipped, dropped', [
    (prepare, 0, 0), (pin, 0, 0), (expand, 1, 0), (expand, 7, 0), (abort, 0, 0), (abort, 1, 0)])
def test_each_action_is_repeated(act: Callable[[Driver], None], skipped: int,
                                 dropped: int) -> None:
    """One of the writes that follow an order takes a minute. Only decisions that move data are
    dropped: an abort must pin PGs back, and norebalance must be set, at any time."""
    driver = Driver(waiting() if act is expand else FakeCluster())
    act(driver)
    driver.run(skipped)
    slow = SlowWrite(driver, 60.0)
    driver.run_to(ENDS[act])
    assert slow.done and driver.cluster.most_moving <= driver.options.max_pgs_in_flight
    failed = [event for event in driver.loop.published.events if event['kind'] == 'failed']
    assert len(failed) == dropped and all('too late' in str(event) for event in failed)
