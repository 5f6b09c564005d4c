# SPDX-License-Identifier: LGPL-2.1-or-later
"""What is left of a change once its PGs are in place begins only when releases may."""
from dataclasses import replace
from typing import Any, Callable

import pytest

from perfguard.errors import Code

from ..fakes.cluster import FakeView
from ..fakes.driver import Driver, codes
from ..fakes.split_cluster import SplitCluster
from .test_drain_end import closing, small_weights
from .test_hybrid_rules import HybridCluster, expanding
from .test_phases import out_of_hours
from .test_tranches import expandable


class AllHybrid(HybridCluster):
    """Both pools are under a rule for which the mons cancel every upmap."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.pg.update({pgid: replace(pg, mon=self.mons(self.toys, 3, pg.mon.raw))
                        for pgid, pg in self.pg.items()})
        self._views = [self._view()]

    def _view(self) -> FakeView:
        view = super()._view()
        pools = {number: replace(pool, crush_rule=1) for number, pool in view.osdmap.pools.items()}
        return replace(view, osdmap=replace(view.osdmap, pools=pools))


def weights_in_steps() -> Driver:
    driver, _ = expanding(kind=AllHybrid)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status.get('tranche') == 2 and bool(
        driver.cluster.remapped()), 600)
    return driver


def tranches() -> Driver:
    driver = expandable()
    driver.order('expand')
    driver.run_until(lambda: driver.status.get('tranche') == 2 and bool(
        driver.status['pinned']), 600)
    return driver


def weight_0() -> Driver:
    driver = small_weights()
    driver.order('drain', 'osd.0')
    driver.run_until(lambda: driver.phase == 'RELEASING', 600)
    return driver


def fewer_pgs() -> Driver:
    driver = Driver(SplitCluster(pgs=8))
    driver.order('pg_num', 'rep', '4')
    driver.run_until(lambda: driver.phase == 'RELEASING', 600)
    return driver


def last_arrives(driver: Driver) -> None:
    """The PGs of the present part are released and in place."""
    driver.run_until(lambda: not driver.status['pinned'] and not driver.cluster.remapped(), 600)


def close_window(driver: Driver) -> Callable[[], Any]:
    before, driver.options = driver.options, out_of_hours(driver.options, driver.cluster.now)
    return lambda: setattr(driver, 'options', before)


def fill_disk_of_a_mon(driver: Driver) -> Callable[[], Any]:
    driver.cluster.health['MON_DISK_CRIT'] = 'mon a is very low on available space'
    return driver.cluster.health.clear


def keep_osdmaps(driver: Driver) -> Callable[[], Any]:
    def keep(epochs: int) -> None:
        driver.cluster.read = replace(driver.cluster.read, untrimmed_epochs=epochs)

    keep(300000)
    return lambda: keep(500)


@pytest.mark.parametrize('begun', [weights_in_steps, tranches, weight_0, fewer_pgs])
@pytest.mark.parametrize('stop, code', [
    (close_window, Code.WINDOW_CLOSED), (fill_disk_of_a_mon, Code.MON_DISK),
    (keep_osdmaps, Code.UNTRIMMED_CEILING)])
def test_no_further_part_begins_while_no_release_may(
        begun: Callable[[], Driver], stop: Callable[[Driver], Callable[[], Any]],
        code: str) -> None:
    driver = begun()
    last_arrives(driver)
    end_stop = stop(driver)
    driver.run(5)
    before = driver.loop.rebalance.campaign.change
    driver.run(40)
    assert driver.loop.rebalance.campaign.change == before
    assert driver.phase == 'HOLDING' and codes(driver.status) == [code]
    assert not driver.cluster.remapped()
    end_stop()
    driver.run_to('DONE', 3000)
    assert driver.cluster.clean()


def test_a_campaign_ends_while_no_release_may_begin_if_nothing_is_left() -> None:
    driver = small_weights()
    driver.order('drain', 'osd.0')
    driver.run_until(lambda: closing(driver) and driver.phase == 'RELEASING', 600)
    last_arrives(driver)
    close_window(driver)
    driver.run_to('DONE', 60)
