# SPDX-License-Identifier: LGPL-2.1-or-later
"""Waits of a run end in time."""
from dataclasses import replace
from typing import Any, Dict

import pytest

from perfguard.cluster.types import PgCounts, Signals
from perfguard.probe.osd_bench import BENCH_SECONDS, StoreRun

from ..fakes.driver import OPTIONS
from ..fakes.probe_cluster import ProbeCluster, ProbeDriver, fake_children
from .test_run import OWN


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


@pytest.mark.parametrize('interval, turns', [(1.0, 58), (60.0, 1)])
def test_the_wait_for_its_own_pool(interval: float, turns: int) -> None:
    driver = ProbeDriver(Peering(), replace(OPTIONS, campaign_interval=interval))
    driver.give(OWN)
    for _ in range(turns):
        driver.turn(interval)
    assert driver.state(1) == 'preparing'
    for _ in range(3):
        driver.turn(interval)
    driver.finish(5)
    assert 'not active+clean after 60 s' in driver.listed[1]['message']


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
        run.turn(now + seconds, Any, signals, (), 1.0)  # type: ignore[arg-type]
    assert run.finished and 'osd.3 refused or did not answer' in run.message
