# SPDX-License-Identifier: LGPL-2.1-or-later
"""What OSDs answer makes sense but for one value.

The value is passed over: no turn of the loop fails, no command fails, and nothing is left behind.
"""
import json
import math
from typing import Any, Dict, Mapping, Tuple

import pytest
from hypothesis import strategies as st

from perfguard.cluster.types import Question

from .cluster.test_sensors import (HISTOGRAM, LAGGY, OPS, PINGS, STATUS, Mgr, Reader, dump, op,
                                   pings, waiting)
from .fakes.driver import Driver
from .test_fuzz import fuzz
from .test_fuzz_documents import Path_, spoiled, with_value
from .why.test_explaining import AskedCluster, explain, flights

INFINITE = float('inf')

# ---- what the watch reads

READINGS: Dict[str, Any] = {
    HISTOGRAM: dump((1, 2, 3), (4, 5, 6)), OPS: {'ops': [op('2.1f', 3.0), op('3.as0', 1.0)]},
    STATUS: {'oldest_map': 10, 'newest_map': 509}, PINGS: pings(o1=1.0, o2=900.0)}


@pytest.mark.usefixtures('mgr_stub')
@pytest.mark.parametrize('prefix', READINGS)
def test_readings(prefix: str) -> None:
    def try_(answer: Any) -> None:
        reader = Reader(Mgr())
        reader.mgr.data.update(waiting(1, 1, 1))
        for _ in range(9):
            found = reader(LAGGY, seconds=30.0)
            for each, usual in READINGS.items():
                reader.mgr.answer(each, answer if each == prefix else usual)
            assert len(found.counters) == 3
            assert all(map(math.isfinite, (found.ping_ms or {}).values()))

    fuzz(spoiled(READINGS[prefix]), [], try_)


@pytest.mark.usefixtures('mgr_stub')
@pytest.mark.parametrize('question, usual', [
    (Question(0, option='osd_op_queue'), {'osd_op_queue': 'wpq'}),
    (Question(0, pgid='1.2'), {'state': 'active+clean', 'info': {'pgid': '1.2'}})],
    ids=['option', 'PG'])
def test_single_questions(question: Question, usual: Any) -> None:
    from perfguard.cluster.osd_commands import OsdCommands, OsdQuestions

    def try_(answer: Any) -> None:
        mgr = Mgr()
        asks = OsdQuestions(OsdCommands(mgr, lambda: mgr.now), lambda: mgr.now)
        assert asks.answers([question]) == {}
        for _, prefix, _ in mgr.sent:
            mgr.answer(prefix, answer)
        assert all(isinstance(each, str) for each in asks.answers([question]).values())

    fuzz(spoiled(usual), [], try_)


# ---- what `why` asks

class Answering(AskedCluster):
    """One of the questions has another answer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.others: Dict[str, Any] = {}

    def _reply(self, command: Mapping[str, Any]) -> Any:
        prefix = command['prefix']
        return self.others[prefix] if prefix in self.others else super()._reply(command)


def releasing() -> Tuple[Driver, Answering, str]:
    """A campaign, and a PG in flight."""
    cluster = Answering(backfill_seconds=600.0)
    driver = Driver(cluster)
    driver.to_releasing()
    return driver, cluster, sorted(flights(driver))[0]


@pytest.mark.parametrize('command, found', [
    ({'prefix': 'query'}, ()),
    ({'prefix': 'dump_recovery_reservations'}, ('local_reservations', 'max_allowed')),
    ({'prefix': 'config get', 'var': 'osd_op_queue'}, ())],
    ids=['query', 'reservations', 'option'])
def test_why(command: Dict[str, Any], found: Path_) -> None:
    _, cluster, pgid = releasing()
    cluster.waiting['local'] = [pgid]
    usual = cluster._reply({**command, 'pgid': pgid})

    def try_(answer: Any) -> None:
        driver, cluster, pgid = releasing()
        cluster.others[command['prefix']] = answer
        why = explain(driver, pgid)
        assert why['causes'] and json.dumps(why, allow_nan=False)

    fuzz(spoiled(usual), [with_value(usual, found, INFINITE)], try_)
