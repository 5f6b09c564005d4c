# SPDX-License-Identifier: LGPL-2.1-or-later
"""A run of the OSDs' own bench, turn by turn."""
from typing import Any, Dict, List, Sequence

import pytest

from perfguard.cluster.types import PgCounts, Signals
from perfguard.probe.limits import Budget
from perfguard.probe.osd_bench import (BENCH_SECONDS, STILL_SECONDS, StoreRun, capacities,
                                       store_budget)
from perfguard.probe.records import RunRecord
from perfguard.probe.types import Target

from .test_waits import Silent

NOW = 1e6
MIB = 1 << 20


class Answering(Silent):
    """OSDs whose answers a test gives."""

    def __init__(self) -> None:
        super().__init__()
        self.given: Dict[int, Any] = {}
        self.commands: List[Any] = []

    def ask(self, topic: str, osds: Any, command: Any, patience_seconds: float) -> None:
        assert patience_seconds == STILL_SECONDS
        super().ask(topic, osds, command, patience_seconds)
        self.commands.append((list(osds), command))

    def answer(self, osd: int, answer: Any) -> None:
        self.open, self.given = {}, {osd: answer}

    def answers(self, topic: str) -> Dict[int, Any]:
        given, self.given = self.given, {}
        return given


class Benching:
    """A run of the stores of these OSDs, and the cluster that it runs on."""

    def __init__(self, osds: Sequence[int] = (3,), repeat: int = 1) -> None:
        self.cluster = Answering()
        cluster: Any = self.cluster
        self.run = StoreRun(cluster, osds, repeat, NOW)

    def turn(self, seconds: float, *reasons: str, signals: Signals = Signals(PgCounts())) -> None:
        view: Any = None
        self.run.turn(NOW + seconds, view, signals, reasons, 1.0)

    def ended(self) -> Any:
        return self.run.finished, self.run.outcome, self.run.message


SECOND_AND_A_HALF = {'elapsed_sec': 1.5}


def test_each_bench_of_each_osd_in_turn() -> None:
    bench = Benching((3, 4), repeat=2)
    for number in range(8):
        bench.turn(2.0 * number)
        assert (bench.run.share, bench.run.text) == (number / 8, 'bench %d of 8' % (number + 1))
        assert len(bench.cluster.commands) == number + 1 and bench.ended() == (False, '', '')
        bench.turn(2.0 * number + 0.5)
        bench.cluster.answer(3 if number // 2 % 2 == 0 else 4, SECOND_AND_A_HALF)
    assert not bench.run.finished
    bench.turn(20.0)
    assert bench.ended() == (True, '', '') and bench.run.share == 1.0
    assert [(osds, command['size']) for osds, command in bench.cluster.commands] == [
        ([3], 4096), ([3], 4 * MIB), ([4], 4096), ([4], 4 * MIB)] * 2
    assert [(step.repetition, step.streams[0].osd, step.job.name) for step in bench.run.steps] == [
        (number, osd, job) for number in (0, 1) for osd in (3, 4)
        for job in ('bench-4096', 'bench-4194304')]
    assert bench.run.counted() == ()


def test_an_answer_as_a_result() -> None:
    bench = Benching()
    for _ in range(2):
        bench.turn(0.0)
        bench.cluster.answer(3, SECOND_AND_A_HALF)
    bench.turn(1.0)
    small, large = bench.run.steps
    assert (small.job.rw, small.job.bs, small.job.iodepth, small.job.size, small.job.nrfiles,
            small.job.runtime) == ('randwrite', 4096, 1, 400 * MIB, 100, 0.0)
    assert (large.job.rw, large.job.bs, large.job.iodepth, large.job.size, large.job.nrfiles,
            large.job.runtime) == ('write', 4 * MIB, 1, 128 * MIB, 1, 0.0)
    first, second = (result.streams[0].write for result in bench.run.in_order())
    assert (first.ios, first.bytes, first.runtime_ns) == (3000, 12288000, 1500000000)
    assert (second.ios, second.bytes, second.latency) == (32, 128 * MIB, None)
    assert {result.engine for result in bench.run.in_order()} == {'osd bench'}


@pytest.mark.parametrize('answer', [
    None, {}, [], 'x', {'elapsed_sec': 'x'}, {'elapsed_sec': None}, {'elapsed_sec': 0},
    {'elapsed_sec': -1.0}, {'elapsed_sec': float('inf')}, {'elapsed_sec': float('nan')},
    {'elapsed_sec': 1e10}])
def test_an_answer_that_is_no_measurement_fails_the_run(answer: Any) -> None:
    bench = Benching()
    bench.turn(0.0)
    bench.cluster.answer(3, answer)
    bench.turn(1.0)
    assert bench.ended() == (
        True, 'failed', 'osd.3 did not answer the command "bench" with a measurement')
    assert bench.run.steps == ()


def test_a_bench_may_take_its_time() -> None:
    bench = Benching()
    bench.turn(7.0)
    bench.turn(7.0 + BENCH_SECONDS - 1.0)
    assert bench.ended() == (False, '', '')
    bench.turn(7.0 + BENCH_SECONDS)
    assert bench.ended() == (
        True, 'failed', 'osd.3 refused or did not answer the command "bench"')


def test_an_osd_that_refuses_the_bench_fails_the_run_at_once() -> None:
    bench = Benching()
    bench.turn(0.0)
    bench.cluster.open = {}
    bench.turn(1.0)
    assert bench.ended() == (
        True, 'failed', 'osd.3 refused or did not answer the command "bench"')


def test_an_earlier_bench_of_the_osd_is_waited_for() -> None:
    """Its answer would be mistaken for that of this run."""
    bench = Benching()
    bench.cluster.open = {'probe bench': {3}}
    bench.turn(0.0)
    bench.turn(STILL_SECONDS)
    assert bench.ended() == (False, '', '') and bench.cluster.commands == []
    bench.turn(STILL_SECONDS + 1.0)
    assert bench.run.message == 'osd.3 is still running an earlier bench'
    assert bench.run.finished and bench.run.outcome == 'failed'


def test_a_stop_condition_begins_no_other_bench_and_waits_for_the_one_that_runs() -> None:
    bench = Benching()
    bench.turn(0.0)
    bench.turn(1.0, 'PGs are laggy', 'and more')
    bench.turn(2.0, 'a later reason')
    assert bench.ended() == (False, 'aborted', 'PGs are laggy')
    bench.cluster.answer(3, SECOND_AND_A_HALF)
    bench.turn(3.0)
    assert bench.ended() == (True, 'aborted', 'PGs are laggy')
    assert len(bench.cluster.commands) == len(bench.run.steps) == 1


def test_a_run_that_is_stopped_before_its_first_bench_is_over() -> None:
    bench = Benching()
    bench.run.end('cancelled', 'by the operator')
    assert bench.ended() == (True, 'cancelled', 'by the operator')
    bench.turn(0.0)
    assert bench.cluster.commands == []


def test_what_disturbs_it_is_noted_once() -> None:
    bench = Benching()
    scrubbing = Signals(PgCounts(deep_scrubbing=1))
    for second in range(2):
        bench.turn(float(second), signals=scrubbing)
    bench.turn(2.0, signals=Signals(PgCounts(recovering=1)))
    assert list(bench.run.disturbed_by) == ['deep scrub', 'recovery or backfill']


def test_its_budget() -> None:
    """Each OSD removes what it wrote before the next bench."""
    assert store_budget(2, 3) == Budget(
        120.0, 6 * 400 * MIB, 400 * MIB, 6 * (12288000 + 128 * MIB), 0)


def test_only_random_writes_of_a_run_that_is_done_are_a_capacity() -> None:
    bench = Benching()
    for _ in range(3):
        bench.turn(0.0)
        bench.cluster.answer(3, SECOND_AND_A_HALF)
    record = RunRecord(7, 'done', '', Target('store', osds=(3,)), 0.0, steps=bench.run.steps,
                       results=bench.run.in_order())
    assert capacities([record]) == {3: (7, 2000.0)}
    for other in (RunRecord(8, 'failed', '', record.target, 0.0, steps=record.steps,
                            results=record.results),
                  RunRecord(9, 'done', '', Target('osd', osds=(3,)), 0.0, steps=record.steps,
                            results=record.results)):
        assert capacities([record, other]) == {3: (7, 2000.0)}
