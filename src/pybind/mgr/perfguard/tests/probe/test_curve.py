# SPDX-License-Identifier: LGPL-2.1-or-later
"""Curves of latency against throughput."""
import json
import random
from dataclasses import replace
from typing import Sequence, Tuple

import pytest

from perfguard.probe import tables
from perfguard.probe.curve import Curve, curves
from perfguard.probe.jobs import PROFILES, parse_jobs
from perfguard.probe.records import DONE, RunRecord
from perfguard.probe.report import Probed
from perfguard.probe.types import (Direction, Job, JobStep, Quantiles, StepResult, Stream,
                                   StreamResult, Target)

JOB = Job('w', 'randwrite', 4096, 1, 1 << 20, 4, 2.0)
DEPTHS = (1, 2, 4, 8, 16, 32, 64, 128)
MS = 1000000
Pair = Tuple[JobStep, StepResult]
#: An ideal cluster: each operation takes 1 ms, and 16 are served at the same time.
SERVED = 16


def direction(iops: float, latency_ns: float) -> Direction:
    at = int(latency_ns)
    return Direction(int(2 * iops), int(2 * iops) * 4096, 2 * 10 ** 9,
                     Quantiles(at, at, latency_ns, 0.0, {'99.000000': 3 * at}))


def measure(job: Job, iops: float, repetition: int = 0, limited: bool = False) -> Pair:
    # Little's law.
    done = direction(iops, job.iodepth * 1e9 / iops)
    return (JobStep(job, (Stream('0', ()),), repetition),
            StepResult((StreamResult('0', write=done),), client_limited=limited))


def ideal(depth: int) -> float:
    return 1000.0 * min(depth, SERVED)


def record(pairs: Sequence[Pair]) -> RunRecord:
    return RunRecord(7, DONE, 'curve', Target('cluster'), 0.0,
                     steps=tuple(step for step, _ in pairs),
                     results=tuple(result for _, result in pairs))


def curve(factors: Sequence[float] = (0.98, 1.0, 1.02), depths: Sequence[int] = DEPTHS) -> Curve:
    found, = curves(record([
        measure(replace(JOB, iodepth=depth), factor * ideal(depth), number)
        for number, factor in enumerate(factors) for depth in depths]))
    return found


def test_the_knee_is_where_the_cluster_is_just_busy() -> None:
    found = curve()
    assert [point.depth for point in found.points] == list(DEPTHS)
    assert found.knee.depth == SERVED
    assert found.label == 'randwrite 4096 write' and found.osd is None


def test_error_bars_are_the_lowest_and_the_highest_repetition() -> None:
    iops = curve().points[2].iops
    assert (iops.low, iops.median, iops.high) == (3920.0, 4000.0, 4080.0)
    latency = curve().points[2].latency_ns
    assert latency.median == pytest.approx(MS) and latency.low < MS < latency.high


def test_the_peak_is_the_first_depth_that_reaches_the_best() -> None:
    """Not the last one of a plateau, where chance decides which is best."""
    plateau = [measure(replace(JOB, iodepth=depth), factor * ideal(depth) * (1 + depth / 1e5), n)
               for n, factor in enumerate((0.98, 1.0, 1.02)) for depth in DEPTHS]
    found, = curves(record(plateau))
    assert max(found.points, key=lambda point: point.iops.median).depth == 128
    assert found.peak.depth == SERVED


def test_the_price_of_the_last_tenth() -> None:
    # 14,400 of 16,000 IOPS are reached between 8 (8,000 IOPS) and 16 operations in flight.
    price = curve().price
    assert price is not None
    assert (price.from_iops, price.to_iops) == (pytest.approx(14400.0), 16000.0)
    assert price.times == pytest.approx(1.0)
    # A system with a queue: latency rises before the peak is reached.
    served = [(1, 1000.0), (2, 1800.0), (4, 2800.0), (8, 3600.0), (16, 3900.0), (32, 4000.0)]
    found, = curves(record([measure(replace(JOB, iodepth=depth), iops) for depth, iops in served]))
    assert found.price is not None and found.peak.depth == 32
    assert found.price.from_latency_ns == pytest.approx(8e9 / 3600)
    assert found.price.times == pytest.approx(3.6)


def test_no_price_where_the_lowest_depth_reaches_nearly_all() -> None:
    found, = curves(record([measure(replace(JOB, iodepth=depth), 1000.0 + depth / 2)
                            for depth in DEPTHS]))
    assert found.price is None and found.knee.depth == 1


def test_notes() -> None:
    assert curve().notes == ()
    rising = curve(depths=(1, 2, 4, 8))
    assert 'still rises at depth 8' in rising.notes[0]
    unsteady = curve(factors=(0.7, 1.0, 1.1)).notes
    assert len(unsteady) == 1 and 'uncertain' in unsteady[0] and unsteady[0].endswith('64, 128')
    limited = [measure(replace(JOB, iodepth=depth), ideal(depth), limited=depth >= 64)
               for depth in DEPTHS]
    found, = curves(record(limited))
    assert found.notes == ('the CPU of the probe process was the bottleneck at depth 64, 128: the '
                           'cluster may be faster',)


def of(iops: Sequence[Tuple[int, float]]) -> Curve:
    """One repetition of each (depth, IOPS)."""
    found, = curves(record([measure(replace(JOB, iodepth=depth), rate) for depth, rate in iops]))
    return found


@pytest.mark.parametrize('last, notes', [
    (1050.0, ()),
    (1051.0, ('throughput still rises at depth 16: the cluster can do more',))])
def test_throughput_still_rises_from_5_per_cent_on(last: float, notes: Sequence[str]) -> None:
    assert of([(1, 400.0), (2, 800.0), (8, 1000.0), (16, last)]).notes == notes


@pytest.mark.parametrize('factor, notes', [
    (1.5, ()),
    (1.51, ('the curve is uncertain: repetitions differ by more than 50 % at depth 16',))])
def test_a_curve_is_uncertain_where_repetitions_differ_by_half(
        factor: float, notes: Sequence[str]) -> None:
    rates = [(1, 400.0), (2, 800.0), (8, 1000.0), (16, 1000.0)]
    found, = curves(record([
        *(measure(replace(JOB, iodepth=depth), rate) for depth, rate in rates),
        measure(replace(JOB, iodepth=16), 1000.0 * factor, 1),
        measure(replace(JOB, iodepth=16), 1000.0, 2)]))
    assert found.notes == notes


def test_four_depths_make_a_curve() -> None:
    found = of([(8, 1000.0), (1, 400.0), (2, 800.0), (16, 1000.0)])
    assert [point.depth for point in found.points] == [1, 2, 8, 16]
    assert (found.bs, found.is_mixed, found.direction) == (4096, False, 'write')
    assert (found.knee.depth, found.peak.depth) == (2, 8)
    assert found.points[0] == (1, (400.0,) * 3, (2.5e6,) * 3, (7.5e6,) * 3, False, 1)


def test_the_price_is_linear_between_two_depths() -> None:
    # 900 of 1,000 IOPS are half way between 800 at 2.5 ms and 1,000 at 8 ms.
    found = of([(1, 400.0), (2, 800.0), (8, 1000.0), (16, 1000.0)])
    assert found.price == pytest.approx((900.0, 1000.0, 5.25e6, 8e6))
    assert found.price is not None and found.price.times == pytest.approx(8 / 5.25)
    # A depth exactly at the share is the beginning.
    found = of([(1, 400.0), (2, 900.0), (8, 1000.0), (16, 1000.0)])
    assert found.price is not None
    assert found.price.from_latency_ns == pytest.approx(2e9 / 900)


def test_streams_count_as_depth() -> None:
    jobs = [replace(JOB, iodepth=depth, numjobs=2) for depth in (1, 2, 4, 8)]
    pairs = []
    for job in jobs:
        step = JobStep(job, (Stream('0', ()), Stream('1', ())))
        done = StreamResult('0', write=direction(500.0 * job.iodepth, MS))
        pairs.append((step, StepResult((done, replace(done, name='1')))))
    found, = curves(record(pairs))
    assert [point.depth for point in found.points] == [2, 4, 8, 16]
    assert found.points[0].iops.median == 1000.0


def test_too_few_depths() -> None:
    few = [measure(replace(JOB, iodepth=depth), ideal(depth)) for depth in (1, 2, 4)]
    assert curves(record(few)) == ()
    # Jobs that differ in more than their depth make no curve.
    others = [measure(replace(JOB, iodepth=depth, bs=512 * depth, size=1 << 20), ideal(depth))
              for depth in DEPTHS]
    assert curves(record(others)) == ()
    # Nor do jobs of a fixed rate.
    rates = [measure(replace(JOB, iodepth=depth, rate_iops=100), 100.0) for depth in DEPTHS]
    assert curves(record(rates)) == ()


def test_the_profile() -> None:
    jobs = parse_jobs('curve', {}, None)
    assert [job.iodepth for job in jobs] == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128]
    assert len(jobs) == len(PROFILES['curve']) and {job.rw for job in jobs} == {'randwrite'}
    assert {job.rw for job in parse_jobs('curve', {'rw': 'randread'}, None)} == {'randread'}


def test_as_data_and_as_a_table() -> None:
    pairs = [measure(replace(JOB, iodepth=depth), factor * ideal(depth), number)
             for number, factor in enumerate((0.98, 1.0, 1.02)) for depth in DEPTHS]
    probed = Probed(records=(record(pairs),))
    data = json.loads(json.dumps(probed.details(7)))
    found, = data['curves']
    assert data['id'] == 7 and (found['knee_depth'], found['peak_depth']) == (16, 16)
    assert [point['depth'] for point in found['points']] == list(DEPTHS)
    assert found['points'][0]['iops'] == {'median': 1000.0, 'low': 980.0, 'high': 1020.0}
    assert found['last_tenth']['times'] == pytest.approx(1.0)
    lines = tables.details(data).splitlines()
    row, = (line.split() for line in lines if line.split()[-1:] == ['knee'])
    assert row == ['16', '16000', '15680', '16320', '1', '0.98', '1.02', '3', 'knee']
    assert 'knee: 16000 IOPS at 1 ms (depth 16)' in lines
    assert any('the last 10 % of throughput, from 14400 to 16000' in line for line in lines)


def test_a_run_without_a_curve() -> None:
    probed = Probed(records=(record([measure(JOB, 1000.0)]),))
    assert probed.details(7)['curves'] == []


# ---- pauses between operations

def with_pauses(alone_ms: Sequence[float], others_ms: Sequence[float] = (0.5, 0.51, 0.52),
                depths: Sequence[int] = (2, 3, 4, 8, 16)) -> Sequence[str]:
    """Latency by repetition; from depth 8 on, operations wait for one another."""
    pairs = [measure(replace(JOB, iodepth=1), 1e3 / ms, number)
             for number, ms in enumerate(alone_ms)]
    pairs += [measure(replace(JOB, iodepth=depth), depth * 1e3 / (ms * max(1.0, depth / 4)), number)
              for number, ms in enumerate(others_ms) for depth in depths]
    found, = curves(record(pairs))
    return [note for note in found.notes if 'save power' in note]


def test_one_operation_at_a_time_is_slower_where_cpus_sleep() -> None:
    note, = with_pauses((0.9, 0.91, 0.92))
    assert note.startswith('one operation at a time takes 0.91 ms, 2 at a time take 0.51 ms')
    assert 'may save power' in note and 'cpupower idle-info' in note


@pytest.mark.parametrize('alone_ms, others_ms, depths', [
    # As queues have it; hardly slower; once as fast as the others; of one repetition; of one depth.
    ((0.4, 0.41, 0.42), (0.5, 0.51, 0.52), (2, 3, 4, 8)),
    ((0.54, 0.55, 0.56), (0.5, 0.51, 0.52), (2, 3, 4, 8)),
    ((0.9, 0.91, 0.5), (0.5, 0.51, 0.52), (2, 3, 4, 8)),
    ((0.9, 0.91, 0.92), (0.5, 0.51, 0.95), (2, 3, 4, 8)),
    ((0.9, 0.91), (0.5, 0.51), (2, 3, 4, 8)),
    ((0.9, 0.91, 0.92), (0.5, 0.51, 0.52), (2, 8, 16, 32))])
def test_without_evidence_no_power_saving_is_named(
        alone_ms: Sequence[float], others_ms: Sequence[float], depths: Sequence[int]) -> None:
    assert with_pauses(alone_ms, others_ms, depths) == []


def test_chance_names_no_power_saving() -> None:
    """Latencies of all depths from one distribution: one curve in 220."""
    rnd, named = random.Random(11), 0
    for spread in (0.05, 0.2, 0.5) * 200:
        found, = curves(record([
            measure(replace(JOB, iodepth=depth), depth * 1e3 / rnd.lognormvariate(0.0, spread), n)
            for n in range(3) for depth in (1, 2, 3, 4)]))
        named += any('save power' in note for note in found.notes)
    assert named <= 8


def test_the_newest_curve_says_whether_power_is_saved() -> None:
    def run(number: int, alone_ms: float, kind: str = 'pool') -> RunRecord:
        pairs = [measure(replace(JOB, iodepth=depth), depth * 1e3 / (
            alone_ms if depth == 1 else 0.5 + number / 1e3 + repetition / 1e3), repetition)
            for repetition in range(3) for depth in (1, 2, 3, 4)]
        return replace(record(pairs), id=number, target=Target(kind, 'rbd'))

    saved = run(1, 0.9)
    found = Probed(records=(saved,)).slower_alone()
    assert found is not None and found[0] == 1 and found[3] == 2
    assert found[1:3] == pytest.approx((0.9, 0.502))
    # A newer one does not show it.
    assert Probed(records=(saved, run(2, 0.4))).slower_alone() is None
    # Neither one OSD, nor a run without a curve, says so of the cluster.
    short = replace(record([measure(JOB, 1000.0)]), id=3)
    assert Probed(records=(saved, run(2, 0.4, 'osd'), short)).slower_alone() == found
    assert Probed().slower_alone() is None
