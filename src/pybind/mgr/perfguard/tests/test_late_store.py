# SPDX-License-Identifier: LGPL-2.1-or-later
"""What follows from an old observation is not sent: ceph-mgr waits for the mons when it writes, and
the next mgr does not know what its predecessor has sent."""
from dataclasses import replace
from typing import Any, Callable, Dict, List, Optional

import pytest

from perfguard.rebalance.orders import Order

from .fakes.cluster import Crash, FakeCluster
from .fakes.driver import OPTIONS, Driver, codes
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


# ---- releases that were stored and not sent

def failed_before_releases(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """The mgr has stored that it releases PGs, and fails before it sends that. The next mgr has
    not run a turn yet, and no other release may begin besides these."""
    driver = Driver()
    driver.to_pinned()
    driver.ask('start')
    driver.run_until(lambda: 'norebalance' not in driver.cluster.flags)

    def fail(*args: Any) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(driver.cluster, 'run', fail)
        with pytest.raises(Crash):
            driver.run(5)
    in_flight = driver.loop.rebalance.campaign.flights.in_flight
    assert len(in_flight) == 4 and all(driver.cluster.entries()[pgid] for pgid in in_flight)
    driver.restart()
    return driver


def laggy(driver: Driver) -> None:
    driver.cluster.trouble.update(laggy=2)


def healthy(driver: Driver) -> None:
    driver.cluster.trouble.clear()


def down(driver: Driver) -> None:
    """All new OSDs: a release to another one may begin at any time."""
    for osd in (6, 7, 8):
        driver.cluster.take_down(osd)


def up(driver: Driver) -> None:
    for osd, toy in driver.cluster.toys.items():
        if not toy.up:
            driver.cluster.revive(osd)


def paused(driver: Driver) -> None:
    driver.turn()
    driver.ask('pause')


def resumed(driver: Driver) -> None:
    driver.ask('resume')


def closed(driver: Driver) -> None:
    driver.options = replace(OPTIONS, begin_time='0000', end_time='0001')


def opened(driver: Driver) -> None:
    driver.options = OPTIONS


Act = Callable[[Driver], None]


@pytest.mark.parametrize('stop, go_on', [
    (laggy, healthy), (down, up), (paused, resumed), (closed, opened)])
def test_the_next_mgr_decides_again_on_releases_that_were_not_sent(
        stop: Act, go_on: Act, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = failed_before_releases(monkeypatch)
    number = len(driver.cluster.sent)
    stop(driver)
    driver.run(30)
    assert released_since(driver, number) == [] and driver.status['in_flight'] == 0
    go_on(driver)
    driver.run_to('DONE')
    assert driver.status['released'] == 12 and driver.cluster.entries() == {}
    assert driver.cluster.most_moving <= OPTIONS.max_pgs_in_flight


@pytest.mark.parametrize('verb, end', [('abort', 'ABORTED'), ('finish', 'DONE')])
@pytest.mark.parametrize('seconds', [1, 30])
def test_a_campaign_with_releases_that_were_not_sent_can_be_ended(
        verb: str, end: str, seconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = failed_before_releases(monkeypatch)
    down(driver)
    driver.run(seconds)
    driver.ask(verb, keep=verb == 'finish')
    driver.run_to(end)
    assert driver.cluster.moved == []


@pytest.mark.parametrize('aborts', [False, True])
def test_a_release_that_arrives_after_the_next_mgr_has_given_it_up(
        aborts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replaced mgr repeats its unanswered commands, maybe hours later."""
    driver = failed_before_releases(monkeypatch)
    cluster = driver.cluster
    late = [{'prefix': 'osd rm-pg-upmap-items', 'pgid': pgid}
            for pgid in driver.loop.rebalance.campaign.flights.in_flight]
    paused(driver)
    driver.run(30)
    if aborts:
        driver.ask('abort')
        driver.run_to('ABORTED')
    cluster.run(late)
    driver.run(30)
    assert driver.phase == ('ABORTED' if aborts else 'HOLDING')
    assert cluster.moved == [] and driver.status['pinned'] == 12 and cluster.clean()
    resumed(driver)
    driver.run_to('DONE')
    assert driver.status['released'] == 12 and cluster.entries() == {}
