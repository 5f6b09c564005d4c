# SPDX-License-Identifier: LGPL-2.1-or-later
"""A pool is deleted in the middle of a campaign: nothing waits for its PGs."""
from dataclasses import dataclass, replace
from typing import Any, Callable

import pytest

from perfguard.cluster.types import NO_OSD, PoolPgs, pool_of

from ..fakes.cluster import FakeCluster, FakeView
from ..fakes.driver import OPTIONS, Driver
from ..fakes.split_cluster import SplitCluster
from .test_goals import BALANCED
from .test_incomplete import IncompleteCluster


@dataclass
class DeletingCluster(IncompleteCluster):
    #: The pool that was deleted; 0: none.
    deleted: int = 0

    def delete_pool(self, pool: int) -> None:
        self.deleted = pool
        for pgid in [pgid for pgid in self.pg if pool_of(pgid) == pool]:
            del self.pg[pgid]
            self.released.pop(pgid, None)
        self.epoch += 1

    def _view(self) -> FakeView:
        view = super()._view()
        pools = {number: pool for number, pool in view.osdmap.pools.items()
                 if number != self.deleted}
        return replace(view, osdmap=replace(view.osdmap, pools=pools))


def remapped(driver: Driver) -> None:
    driver.ask('prepare')
    driver.run_to('PREPARED')
    driver.cluster.expand()
    driver.run_until(lambda: len(driver.cluster.remapped()) > 8)


def pinning(driver: Driver) -> None:
    remapped(driver)
    driver.ask('pin')
    driver.turn()


def pinned(driver: Driver) -> None:
    driver.to_pinned()


def releasing(driver: Driver) -> None:
    """PGs of both pools are in flight."""
    driver.cluster.backfill_seconds = 20.0
    driver.to_releasing()
    driver.run_until(lambda: len(driver.cluster.remapped()) > 3)


def paused(driver: Driver) -> None:
    releasing(driver)
    driver.ask('pause')
    driver.run_to('HOLDING')


def finishing(driver: Driver) -> None:
    releasing(driver)
    driver.ask('finish', keep=True)
    driver.run_to('FINISHING')


def unpinnable(driver: Driver) -> None:
    """The mons refuse all pins, and CRUSH gives up on some PGs."""
    cluster = driver.cluster
    assert isinstance(cluster, DeletingCluster)
    cluster.refuse['osd pg-upmap-items'] = cluster.refuse['osd pg-upmap'] = 'EINVAL'
    remapped(driver)
    for pgid in ('1.2', '2.2'):
        cluster.set_raw(pgid, [*cluster.pg[pgid].data[:2], NO_OSD])
    driver.ask('pin')
    driver.run_to('PINNED')
    assert driver.status['unpinnable']
    cluster.refuse.clear()


STATES = (remapped, pinning, pinned, releasing, paused, finishing, unpinnable)


@pytest.mark.parametrize('options', [OPTIONS, BALANCED], ids=['crush', 'balanced'])
@pytest.mark.parametrize('pool', [1, 2])
@pytest.mark.parametrize('state', STATES, ids=[state.__name__ for state in STATES])
def test_a_campaign_ends_although_a_pool_is_deleted(
        state: Callable[[Driver], None], pool: int, options: Any) -> None:
    cluster = DeletingCluster(pgs=16)
    driver = Driver(cluster, replace(options, max_pgs_in_flight=6))
    state(driver)
    cluster.delete_pool(pool)
    driver.run(3)
    driver.restart()
    driver.run(3)
    if driver.phase == 'PREPARED':
        driver.ask('pin')
        driver.run_to('PINNED')
    if state is paused:
        driver.ask('resume')
    elif driver.phase in ('PINNING', 'PINNED'):
        driver.run_to('PINNED')
        driver.ask('start')
    driver.run_until(lambda: bool(driver.history), 600)
    assert driver.history[-1]['phase'] == 'DONE'
    fresh = FakeCluster()
    assert (cluster.flags, cluster.config) == (fresh.flags, fresh.config)
    assert cluster.modes[3 - pool] == fresh.modes[3 - pool]
    assert not [pgid for pgid in driver.loop.rebalance.pins if pool_of(pgid) == pool]


@pytest.mark.parametrize('pool', [1, 2])
@pytest.mark.parametrize('state', STATES, ids=[state.__name__ for state in STATES])
def test_an_abort_ends_although_a_pool_is_deleted(state: Callable[[Driver], None],
                                                  pool: int) -> None:
    cluster = DeletingCluster(pgs=16)
    driver = Driver(cluster, replace(OPTIONS, max_pgs_in_flight=6))
    state(driver)
    cluster.delete_pool(pool)
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.run(20)
    assert state is unpinnable or not cluster.remapped()
    driver.ask('finish', keep=True, sure=True)
    driver.run_to('DONE')
    assert cluster.flags == FakeCluster().flags


class DeletingSplits(SplitCluster):
    deleted = False

    def delete_pool(self) -> None:
        self.deleted = True
        self.pg = {pgid: pg for pgid, pg in self.pg.items() if pool_of(pgid) == 2}
        self.epoch += 1

    def _step(self, pool: int, target: PoolPgs) -> None:
        if pool == 2 or not self.deleted:
            super()._step(pool, target)

    def _view(self) -> FakeView:
        view = super()._view()
        pools = {number: pool for number, pool in view.osdmap.pools.items()
                 if number == 2 or not self.deleted}
        return replace(view, osdmap=replace(view.osdmap, pools=pools))


def test_pins_of_other_pools_are_released_after_the_pool_of_a_change_was_deleted() -> None:
    """CRUSH has remapped PGs of another pool while those of the pool moved."""
    cluster = DeletingSplits(pgs=8)
    driver = Driver(cluster, replace(OPTIONS, max_pgs_in_flight=1))
    driver.order('pg_num', 'rep', '16')
    driver.run_until(lambda: driver.status['released'] > 0)
    cluster.add_osds(2, 1.0)
    driver.run_until(lambda: any(pool_of(pgid) == 2 for pgid in driver.loop.rebalance.pins))
    cluster.delete_pool()
    driver.run_to('ABORTED')
    driver.run(5)
    assert '"campaign resume" (releases them)' in driver.status['reasons'][0]
    driver.ask('resume')
    driver.run_to('DONE', 600)
    assert cluster.clean() and not cluster.entries()
