# SPDX-License-Identifier: LGPL-2.1-or-later
"""Throughput of growing numbers of OSDs."""
import json
from dataclasses import replace
from typing import Any, Callable, Dict, Sequence, Tuple

import pytest

from perfguard.codec import decode, encode
from perfguard.probe import tables
from perfguard.probe.jobs import doubled, plan_steps, scale_counts, step_count
from perfguard.probe.limits import budget_of
from perfguard.probe.records import DONE, RunRecord
from perfguard.probe.report import Probed
from perfguard.probe.curve import scalings
from perfguard.probe.types import (BadJob, Direction, Job, JobStep, Quantiles, StepResult,
                                   StreamResult, Target)

JOB = Job('w', 'randwrite', 4096, 1, 1 << 20, 4, 2.0)
OTHER = Job('r', 'randread', 4096, 1, 1 << 20, 4, 2.0)
OSDS = (0, 3, 4, 7, 8, 9)
REPEAT = 3


def direction(iops: float) -> Direction:
    return Direction(int(2 * iops), int(2 * iops) * 4096, 2 * 10 ** 9,
                     Quantiles(1, 1, 1e9 / iops, 0.0, {}))


def result(step: JobStep, each: float, limited: bool = False) -> StepResult:
    return StepResult(tuple(StreamResult(stream.name, write=direction(each))
                            for stream in step.streams), client_limited=limited)


def record(iops: Callable[[int], float], limited: Sequence[int] = (),
           osds: Tuple[int, ...] = OSDS) -> RunRecord:
    """`iops`: of one OSD, by the number of OSDs."""
    target = Target('scale', 'rep', osds)
    steps = plan_steps([JOB, OTHER], target, REPEAT)
    return RunRecord(7, DONE, '', target, 0.0, steps=steps, results=tuple(
        result(step, iops(len(step.streams)), len(step.streams) in limited) for step in steps))


@pytest.mark.parametrize('osds, counts', [
    (1, (1,)), (2, (1, 2)), (3, (1, 2, 3)), (4, (1, 2, 4)), (6, (1, 2, 4, 6)),
    (9, (1, 2, 4, 8, 9))])
def test_numbers_of_osds(osds: int, counts: Tuple[int, ...]) -> None:
    assert doubled(osds) == counts


def test_steps_use_the_first_osds_and_alternate() -> None:
    steps = record(float).steps
    assert [(step.part, step.repetition) for step in steps] == [
        (str(count), number) for number in range(REPEAT) for count in (1, 2, 4, 6)]
    assert {step.job for step in steps} == {JOB}
    assert [stream.osd for stream in steps[2].streams] == [0, 3, 4, 7]
    target = Target('scale', 'rep', OSDS)
    assert step_count([JOB], target, REPEAT) == len(steps)
    limited = replace(JOB, rate_iops=100)
    assert budget_of([limited], target, REPEAT, 3.0).transfer_bytes == sum(
        len(step.streams) for step in steps) * 100 * 4096 * 2


def test_a_linear_cluster() -> None:
    found, = scalings(record(lambda count: 1000.0))
    assert found.label == 'randwrite 4096 write' and not found.notes
    assert [(point.osds, point.iops.median, point.linear) for point in found.points] == [
        (1, 1000.0, 1.0), (2, 2000.0, 1.0), (4, 4000.0, 1.0), (6, 6000.0, 1.0)]
    assert [point.latency_ns.median for point in found.points] == [
        pytest.approx(1e6)] * 4


BY_HOST = Target('scale', 'rep', OSDS, hosts=(1, 2, 3))


def test_whole_hosts_are_added() -> None:
    assert scale_counts(BY_HOST) == (1, 3, 6)
    steps = plan_steps([JOB, OTHER], BY_HOST, REPEAT)
    assert [step.part for step in steps] == ['1', '3', '6'] * REPEAT
    assert [stream.osd for stream in steps[1].streams] == [0, 3, 4]
    assert step_count([JOB], BY_HOST, REPEAT) == len(steps)
    limited = replace(JOB, rate_iops=100)
    assert budget_of([limited], BY_HOST, REPEAT, 3.0).transfer_bytes == sum(
        len(step.streams) for step in steps) * 100 * 4096 * 2
    assert BY_HOST.key != replace(BY_HOST, hosts=()).key


def test_a_cluster_whose_hosts_share_nothing_is_linear_by_host() -> None:
    steps = plan_steps([JOB], BY_HOST, REPEAT)
    whole = RunRecord(7, DONE, '', BY_HOST, 0.0, steps=steps, results=tuple(
        result(step, 500.0) for step in steps))
    again = decode(RunRecord, json.loads(json.dumps(encode(whole))))
    assert again.target == BY_HOST
    found, = scalings(again)
    assert [(point.hosts, point.osds, point.iops.median, point.linear)
            for point in found.points] == [
        (1, 1, 500.0, 1.0), (2, 3, 1500.0, 1.0), (3, 6, 3000.0, 1.0)]
    data = Probed(records=(whole,)).details(7)
    assert any(line.split()[:2] == ['hosts', 'OSDs'] for line in tables.details(data).splitlines())


def test_one_host_does_not_scale() -> None:
    with pytest.raises(BadJob, match='two hosts'):
        plan_steps([JOB], replace(BY_HOST, hosts=(6,)), 1)


def test_a_shared_limit_is_found_where_it_begins() -> None:
    found, = scalings(record(lambda count: min(1000.0, 2500.0 / count), limited=(6,)))
    assert [round(point.linear, 2) for point in found.points] == [1.0, 1.0, 0.62, 0.42]
    assert found.notes == (
        'below 80 % of linear with 4, 6 OSDs',
        'the CPU of the probe process was the bottleneck with 6 OSDs: the cluster may be faster')


@pytest.mark.parametrize('limited, osds', [((1,), '1 OSD'), ((1, 4), '1, 4 OSDs')])
def test_numbers_at_which_the_client_was_the_limit_are_named(
        limited: Sequence[int], osds: str) -> None:
    found, = scalings(record(lambda count: 1000.0, limited=limited))
    assert found.notes == ('the CPU of the probe process was the bottleneck with %s: the cluster '
                           'may be faster' % osds,)


@pytest.mark.parametrize('share, notes', [
    (0.8, ()), (0.79, ('below 80 % of linear with 6 OSDs',))])
def test_from_80_per_cent_of_linear_on_nothing_is_said(
        share: float, notes: Tuple[str, ...]) -> None:
    found, = scalings(record(lambda count: 1000.0 * (share if count == 6 else 1.0)))
    assert found.notes == notes


def test_only_numbers_below_80_per_cent_of_linear_are_named() -> None:
    found, = scalings(record(lambda count: {1: 1000.0, 2: 790.0}.get(count, 950.0)))
    assert found.notes == ('below 80 % of linear with 2 OSDs',)


def test_a_number_at_which_an_osd_hung_for_a_repetition_does_not_count() -> None:
    whole = record(lambda count: 1000.0)
    results = [StepResult((StreamResult('osd.0'), *got.streams[1:]))
               if (step.part, step.repetition) == ('4', 0) else got for step, got in whole.done]
    found, = scalings(replace(whole, results=tuple(results)))
    assert [point.osds for point in found.points] == [1, 2, 6]


def test_the_total_of_osds() -> None:
    """The latency is the mean of all operations, and the spread that of the repetitions."""
    target = Target('scale', 'rep', (0, 3))
    steps = plan_steps([JOB], target, REPEAT)
    rates = {0: 1000.0, 3: 500.0}
    whole = RunRecord(7, DONE, '', target, 0.0, steps=steps, results=tuple(
        StepResult(tuple(StreamResult(stream.name, write=direction(
            rates[stream.osd or 0] * (1.0 + step.repetition / 10))) for stream in step.streams))
        for step in steps))
    found, = scalings(whole)
    assert [(point.osds, point.iops) for point in found.points] == [
        (1, (1100.0, 1000.0, 1200.0)), (2, (1650.0, 1500.0, 1800.0))]
    # Two operations in flight for the sum of the rates.
    assert found.points[1].latency_ns == pytest.approx((2e9 / 1650, 2e9 / 1800, 2e9 / 1500))
    assert found.points[1].linear == 0.75


@pytest.mark.parametrize('rate_iops, notes', [
    (0, ()), (1000, ('latency at the fixed rate is 1 ms with 1 OSD, and 1.26 ms with 4 OSDs',))])
def test_at_a_fixed_rate_a_shared_limit_shows_in_latency(
        rate_iops: int, notes: Tuple[str, ...]) -> None:
    target = Target('scale', 'rep', OSDS)
    steps = plan_steps([replace(JOB, rate_iops=rate_iops)], target, REPEAT)
    mean_ns = {1: 1e6, 2: 1.25e6, 4: 1.26e6, 6: 3e6}
    whole = RunRecord(7, DONE, '', target, 0.0, steps=steps, results=tuple(
        StepResult(tuple(StreamResult(stream.name, write=replace(
            direction(1000.0), latency=Quantiles(1, 1, mean_ns[len(step.streams)], 0.0, {})))
            for stream in step.streams)) for step in steps))
    found, = scalings(whole)
    assert [point.linear for point in found.points] == [1.0] * 4
    assert found.notes == notes


def test_numbers_at_which_an_osd_did_nothing_do_not_count() -> None:
    whole = record(lambda count: 1000.0)
    results = [StepResult((StreamResult('osd.0'), *got.streams[1:]))
               if step.part == '4' else got for step, got in whole.done]
    found, = scalings(replace(whole, results=tuple(results)))
    assert [point.osds for point in found.points] == [1, 2, 6]


@pytest.mark.parametrize('change', [
    {'target': Target('osd', 'rep', OSDS)}, {'results': ()}])
def test_runs_without_scaling(change: Dict[str, Any]) -> None:
    assert scalings(replace(record(float), **change)) == ()


def test_a_run_that_was_cut_before_the_second_number() -> None:
    whole = record(lambda count: 1000.0)
    assert scalings(replace(whole, results=whole.results[:1])) == ()


def test_json_and_table() -> None:
    probed = Probed(records=(record(lambda count: 1000.0), RunRecord(
        8, DONE, '', Target('cluster'), 0.0)))
    found = json.loads(json.dumps(probed.details(7)))
    point = found['scalings'][0]['points'][1]
    assert (point['osds'], point['iops']['median'], point['linear']) == (2, 2000.0, 1.0)
    lines = tables.details(found).splitlines()
    begin = lines.index('randwrite 4096 write')
    assert any('100 %' in line for line in lines[begin:])
    assert probed.details(8)['scalings'] == []
