# SPDX-License-Identifier: LGPL-2.1-or-later
"""What OSDs answer and what the workers of probes say makes sense but for one value.

The value is passed over: no turn of the loop fails, no command fails, and nothing is left behind.
"""
import json
import math
from typing import Any, Dict, Iterable, List, Mapping, Tuple

import pytest
from hypothesis import strategies as st

from perfguard.cluster.types import OSD_ANSWER_SECONDS, Question
from perfguard.probe.jobs import parse_jobs, plan_steps
from perfguard.probe.placement import naming_of, run_prefix
from perfguard.probe.orders import RunOrder
from perfguard.probe.types import BadJob, Target
from perfguard.probe.worker.protocol import WorkerRequest, request_from_json, request_to_json

from .cluster.test_sensors import (HISTOGRAM, LAGGY, OPS, PINGS, STATUS, Mgr, Reader, dump, op,
                                   pings, waiting)
from .fakes.driver import Driver
from .fakes.probe_cluster import FakeWorker, ProbeCluster, ProbeDriver, fake_children
from .probe.test_controller import STORE, Benching
from .probe.test_run import ORDERS, WORDS
from .test_fuzz import fuzz
from .test_fuzz_documents import Path_, spoiled, with_value
from .why.test_explaining import AskedCluster, explain, flights

INFINITE = float('inf')
#: With the counters of these OSDs.
ON_OSDS = RunOrder(words=WORDS, pool='rep', osd='0,1')

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


# ---- what probes read of OSDs

class Counting(ProbeCluster):
    """OSDs that say how many operations they have done."""
    usual = {'osd': {'op_r': 100, 'op_w': 200}}

    def __post_init__(self) -> None:
        super().__post_init__()
        self.answer: Any = self.usual
        self.open: List[int] = []

    def ask(self, topic: str, osds: Iterable[int], command: Mapping[str, Any],
            patience_seconds: float = OSD_ANSWER_SECONDS) -> None:
        self.open += list(osds)

    def answers(self, topic: str) -> Dict[int, Any]:
        found, self.open = dict.fromkeys(self.open, self.answer), []
        return found


@pytest.fixture(autouse=True)
def workers(monkeypatch: Any) -> None:
    fake_children(monkeypatch)


def ended(driver: ProbeDriver) -> str:
    """The state of the only run, which has left nothing and can be shown."""
    driver.finish(600)
    driver.judged()
    assert driver.cluster.is_untouched()
    assert json.dumps(driver.loop.probed().details(1), allow_nan=False)
    assert 'internal error' not in driver.listed[1]['message']
    return driver.state(1)


def test_counters_of_operations() -> None:
    def try_(answer: Any) -> None:
        cluster = Counting()
        cluster.answer = answer
        driver = ProbeDriver(cluster)
        driver.give(ON_OSDS)
        assert ended(driver) == 'done'

    fuzz(spoiled(Counting.usual), [
        {'osd': 3}, {'osd': {'op_r': 'x'}}, {'osd': {'op_r': INFINITE}}, {'osd': {'op_w': [1]}}],
        try_)


def test_benches() -> None:
    class Odd(Benching):
        answer: Any = None

        def answers(self, topic: str) -> Dict[int, Any]:
            return dict.fromkeys(super().answers(topic), self.answer)

    def try_(answer: Any) -> None:
        cluster = Odd()
        cluster.answer = answer
        driver = ProbeDriver(cluster)
        driver.give(STORE)
        assert ended(driver) in ('done', 'failed')

    fuzz(spoiled({'bytes_written': 1 << 20, 'blocksize': 4096, 'elapsed_sec': 2.0}), [
        7, {}, *({'elapsed_sec': seconds} for seconds in ('x', INFINITE, 0.0, -1.0, 1e-300))],
        try_)


# ---- what the mgr and a worker say to each other

def said(order: RunOrder) -> List[Dict[str, Any]]:
    """What the worker of an undisturbed run says."""
    lines: List[Dict[str, Any]] = []

    class Loud(FakeWorker):
        def lines(self) -> List[Any]:
            found = super().lines()
            lines.extend(json.loads(json.dumps(found)))
            return found

    run_with(Loud, order)
    return lines


def run_with(worker: Any, order: RunOrder) -> str:
    class Cluster(ProbeCluster):
        def worker(self, argv: Any) -> Any:
            self.workers.append(worker(self))
            return self.workers[-1]

    driver = ProbeDriver(Cluster())
    driver.give(order)
    return ended(driver)


@pytest.mark.parametrize('order', [*ORDERS.values(), ON_OSDS], ids=[*ORDERS, 'OSDs'])
def test_a_worker(order: RunOrder) -> None:
    usual = said(order)

    def try_(other: Tuple[int, Any]) -> None:
        class Odd(FakeWorker):
            count = 0

            def lines(self) -> List[Any]:
                found = super().lines()
                begin, self.count = self.count, self.count + len(found)
                if begin <= other[0] < self.count:
                    found[other[0] - begin] = other[1]
                # As in child.py.
                return [line for line in found if isinstance(line, dict)]

        assert run_with(Odd, order) in ('done', 'failed')

    results = [number for number, line in enumerate(usual) if line['type'] == 'result']
    found = [(number, with_value(usual[number], place, value)) for number in results
             for place, value in (
                 (('index',), INFINITE), (('result', 'streams', 0, 'read', 'ios'), 1e299),
                 (('result', 'streams', 0, 'read', 'ios'), -1),
                 (('result', 'cpu_share'), INFINITE))]
    fuzz(st.integers(0, len(usual) - 1).flatmap(
        lambda number: st.tuples(st.just(number), spoiled(usual[number]))), found, try_)


def test_a_request() -> None:
    jobs, target = parse_jobs('quick', {}, None), Target('osd', osds=(0, 1))
    leads = {'1.%x' % pg: pg % 2 for pg in range(8)}
    usual = json.loads(json.dumps(request_to_json(WorkerRequest(
        'p', run_prefix(7), 'client.x', 'AQ', 'm', steps=plan_steps(jobs, target, 1),
        naming=naming_of(7, jobs, target, leads, 1, 8)))))

    def try_(request: Any) -> None:
        if not isinstance(request, dict):
            return  # refused where it is read
        try:
            request_from_json(request)
        except (BadJob, ValueError) as refused:
            # As the worker reports it.
            assert str(refused)

    fuzz(spoiled(usual), [], try_)
