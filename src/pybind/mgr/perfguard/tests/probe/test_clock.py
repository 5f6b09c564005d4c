# SPDX-License-Identifier: LGPL-2.1-or-later
"""A clock that is set back or ahead neither prolongs a wait nor ends a run."""
from dataclasses import replace
from typing import Any, Dict

import pytest

from perfguard.cluster.types import PgCounts, Signals
from perfguard.probe.limits import LONGEST_TURN_SECONDS, Elapsed
from perfguard.probe.osd_bench import BENCH_SECONDS, StoreRun
from perfguard.probe.plan import RunOrder

from ..fakes.driver import OPTIONS
from ..fakes.probe_cluster import ProbeCluster, ProbeDriver, fake_children
from .test_run import IN_POOL, OWN, WORDS, begun


@pytest.fixture(autouse=True)
def workers(monkeypatch: Any) -> None:
    fake_children(monkeypatch)


class Peering(ProbeCluster):
    """PGs of new pools do not become clean."""

    def signals(self, osdmap: Any) -> Signals:
        found = super().signals(osdmap)
        counts = {id_: replace(each, active_clean=0) if id_ in {pool.id for pool in
                  self.made.values()} else each for id_, each in found.pool_counts.items()}
        return replace(found, pool_counts=counts)


def test_the_wait_for_its_own_pool_is_not_prolonged() -> None:
    driver = ProbeDriver(Peering())
    driver.give(OWN)
    driver.run(10)
    driver.cluster.ahead -= 3600.0
    driver.finish(90)
    assert 'not active+clean after 60 s' in driver.listed[1]['message']
    assert driver.cluster.is_untouched()


def test_the_wait_for_its_own_pool_does_not_end_early() -> None:
    driver = ProbeDriver(Peering())
    driver.give(OWN)
    driver.run(3)
    driver.cluster.ahead += 3600.0
    driver.run(10)
    assert driver.state(1) == 'preparing'


def test_the_wait_for_its_own_pool_is_not_prolonged_by_a_long_interval() -> None:
    driver = ProbeDriver(Peering(), replace(OPTIONS, campaign_interval=60.0))
    driver.give(OWN)
    for _ in range(3):
        driver.turn(60.0)
    driver.finish(5)
    assert 'not active+clean after 60 s' in driver.listed[1]['message']


@pytest.mark.parametrize('turns', range(8))
@pytest.mark.parametrize('jump', [-3600.0, 3600.0])
def test_a_run_ends_well(jump: float, turns: int) -> None:
    driver = begun(IN_POOL)
    driver.run(turns)
    driver.cluster.ahead += jump
    driver.finish()
    assert driver.state(1) == 'done' and driver.cluster.is_untouched()


def test_a_worker_that_hangs_is_killed_in_time() -> None:
    driver = begun(RunOrder(words=WORDS, pool='rep'), 'deaf')
    driver.run_until(lambda: driver.state(1) == 'running')
    limit = driver.loop.probing._run._plan.limit_seconds  # type: ignore[union-attr]
    driver.cluster.ahead -= 3600.0
    driver.run_until(lambda: not driver.busy, int(limit) + 60)
    assert 'was killed' in driver.listed[1]['message'] and driver.cluster.is_untouched()


def test_a_worker_that_works_is_not_killed() -> None:
    driver = begun(RunOrder(words={**WORDS, 'runtime': '900'}, pool='rep'), 'deaf')
    driver.run_until(lambda: driver.state(1) == 'running')
    driver.cluster.ahead += 3600.0
    driver.run(10)
    assert driver.state(1) == 'running' and driver.cluster.workers[0].status is None


class Silent:
    """An OSD that does not answer."""

    def __init__(self) -> None:
        self.open: Dict[str, Any] = {}

    def ask(self, topic: str, osds: Any, command: Any, patience_seconds: float) -> None:
        self.open[topic] = set(osds)

    def asked(self, topic: str) -> Any:
        return self.open.get(topic, set())

    def answers(self, topic: str) -> Dict[int, Any]:
        return {}


def test_an_osd_that_does_not_answer_its_bench_ends_the_run() -> None:
    cluster: Any = Silent()
    signals, now = Signals(PgCounts()), 1e6
    run = StoreRun(cluster, [3], 1, now)
    for seconds in range(int(BENCH_SECONDS) + 5):
        if seconds == 5:
            now -= 3600.0
        run.turn(now + seconds, Any, signals, (), 1.0)  # type: ignore[arg-type]
    assert run.finished and 'osd.3 refused or did not answer' in run.message


def test_elapsed_time() -> None:
    elapsed = Elapsed(100.0)
    assert [elapsed.at(now, 1.0) for now in (101.0, 103.0, 3.0, 4.0)] == [1.0, 3.0, 3.0, 4.0]
    assert elapsed.at(3604.0, 1.0) == 4.0 + LONGEST_TURN_SECONDS
    assert elapsed.at(3664.0, 60.0) == 64.0 + LONGEST_TURN_SECONDS
