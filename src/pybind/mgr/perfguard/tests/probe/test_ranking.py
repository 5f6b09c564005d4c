# SPDX-License-Identifier: LGPL-2.1-or-later
"""OSDs against each other: no false alarm on healthy ones, and one slow one is found."""
import math
import random
import re
from dataclasses import replace
from typing import Dict, List

import pytest

from perfguard.cluster.types import OsdPlace
from perfguard.probe.compare import (interference, interference_findings, outlier_text, rank,
                                     slow_in_pool)
from perfguard.probe.records import RunRecord
from perfguard.probe.types import Counted, Target

from ..fakes.probe_records import LATENCY, WRITING, Done, noisy, run, step, with_mean


def places(count: int, device_class: str = 'ssd') -> Dict[int, OsdPlace]:
    return {osd: OsdPlace(osd, 'host%d' % (osd % 4), 'default', device_class)
            for osd in range(count)}


def probed(rng: random.Random, factors: List[float], spread: float, repetitions: int = 1
           ) -> RunRecord:
    """Each OSD has a speed of its own and repetitions that vary as well."""
    done = [pair for osd, factor in enumerate(factors)
            for pair in noisy(rng, LATENCY, 1000.0 * factor * rng.lognormvariate(0.0, spread),
                              repetitions, spread, osd)]
    return run(1, done, Target('osd', '', tuple(range(len(factors)))))


def outliers(record: RunRecord, count: int) -> List[int]:
    return [each.osd for each in rank(record, places(count)) if each.outlier]


@pytest.mark.parametrize('count', [4, 5, 8, 16, 60])
@pytest.mark.parametrize('spread', [0.05, 0.07])
def test_no_healthy_osd_is_called_an_outlier(count: int, spread: float) -> None:
    """Between OSDs and between repetitions: 7 to 10 % together."""
    rng = random.Random(repr((count, spread)))
    for _ in range(200 // count + 10):
        assert outliers(probed(rng, [1.0] * count, spread), count) == []


@pytest.mark.parametrize('count', [4, 5, 8, 16, 60])
@pytest.mark.parametrize('spread', [0.035, 0.07])
def test_one_at_half_the_speed_is_found(count: int, spread: float) -> None:
    rng = random.Random(repr((count, spread)))
    found = 0
    for _ in range(40):
        slow = rng.randrange(count)
        factors = [0.5 if osd == slow else 1.0 for osd in range(count)]
        told = outliers(probed(rng, factors, spread, 3), count)
        assert told in ([], [slow])
        found += told == [slow]
    assert found >= 37


def in_pool(means_ms: List[float], ops: int = 500) -> RunRecord:
    """A run on a pool, with the mean latency of the writes that each OSD led."""
    record = run(1, noisy(random.Random(1), LATENCY, 1000.0, 1, 0.05, None), Target('pool', 'rbd'))
    return replace(record, counted=tuple(
        Counted(osd, 0, ops, 0, round(1e6 * ops * mean)) for osd, mean in enumerate(means_ms)))


@pytest.mark.parametrize('count', [4, 8, 60])
def test_a_probe_of_a_pool_names_the_osds_that_were_slow_in_it(count: int) -> None:
    rng = random.Random(count)
    for _ in range(20):
        means = [rng.lognormvariate(0.0, 0.07) for _ in range(count)]
        assert slow_in_pool(in_pool(means), places(count)) == []
        slow = rng.randrange(count)
        means[slow] = 8.0
        text, = slow_in_pool(in_pool(means), places(count))
        assert text.startswith('osd.%d: client writes during the probe took 8 ms, ' % slow)
        assert '%d peers' % (count - 1) in text
    # Few operations, and OSDs that were probed one by one, show nothing.
    assert slow_in_pool(in_pool(means, 19), places(count)) == []
    alone = replace(in_pool(means), target=Target('osd', 'rbd', tuple(range(count))))
    assert slow_in_pool(alone, places(count)) == []
    # Peers have the same device class, and are at least three.
    mixed = {osd: place._replace(device_class='hdd' if osd == slow else 'ssd')
             for osd, place in places(count).items()}
    assert slow_in_pool(in_pool(means), mixed) == []
    assert slow_in_pool(in_pool([1.0, 1.0, 9.0]), places(3)) == []


@pytest.mark.parametrize('ops', [25, 100])
def test_few_operations_with_heavy_tails_name_hardly_any_osd(ops: int) -> None:
    """A third to a half of such runs named healthy OSDs without regard to the number."""
    rng, named = random.Random(3), 0
    for _ in range(20):
        means = [sum(rng.lognormvariate(0.0, 1.2) for _ in range(ops)) / ops for _ in range(200)]
        named += bool(slow_in_pool(in_pool(means, ops), places(200)))
        means[7] = 20.0
        assert any(text.startswith('osd.7: ')
                   for text in slow_in_pool(in_pool(means, ops), places(200)))
    assert named <= 2


def test_the_slowest_comes_first_and_tells_why() -> None:
    rng = random.Random(1)
    ranks = rank(probed(rng, [1.0, 1.0, 0.4, 1.0, 0.9, 1.0], 0.02, 3), places(6))
    assert [each.osd for each in ranks[:2]] == [2, 4]
    first = ranks[0]
    assert (first.host, first.device_class, first.peers) == ('host2', 'ssd', 5)
    assert first.ratio == pytest.approx(0.4, rel=0.1) and first.iops == pytest.approx(400, rel=0.1)
    assert re.match(r'osd\.2: latency read \d{3} IOPS, 0\.\d\d times the median of 5 peers '
                    r'\(\d+\.\d deviations\)$', outlier_text(first))
    assert [each.deviations for each in ranks] == sorted(
        (each.deviations for each in ranks), reverse=True)


#: Of five peers: the median of the deviations from their median is 0.2.
SPREAD = (0.0, 0.2, -0.2, 0.4, -0.4)


@pytest.mark.parametrize('below, is_outlier', [(0.7, False), (0.9, True), (1.0, True)])
def test_deviations_are_those_of_the_median_of_the_peers(below: float, is_outlier: bool) -> None:
    """1.4826 * 0.2 of five peers, with the minimum of 0.1 counting as four more of them."""
    rates = [1e6 * math.exp(spread) for spread in (*SPREAD, -below)]
    record = run(1, [step(LATENCY, [rate] * 9, osd) for osd, rate in enumerate(rates)])
    first = rank(record, places(6))[0]
    sd = math.sqrt((5 * (1.4826 * 0.2) ** 2 + 4 * 0.1 ** 2) / 9)
    assert (first.osd, first.outlier) == (5, is_outlier)
    assert first.deviations == pytest.approx(below / sd, rel=1e-3)
    assert first.ratio == pytest.approx(math.exp(-below), rel=1e-4)


@pytest.mark.parametrize('factor, is_outlier', [(1.61, True), (1.59, False)])
def test_an_outlier_takes_at_least_1_6_times_as_long(factor: float, is_outlier: bool) -> None:
    record = run(1, [step(LATENCY, [1e6 / factor if osd == 5 else 1e6] * 9, osd)
                     for osd in range(6)])
    first = rank(record, places(6))[0]
    assert (first.osd, first.outlier) == (5, is_outlier)
    # The spread of peers that are all alike is taken to be 10 %.
    assert first.deviations == pytest.approx(math.log(factor) / 0.1, rel=1e-3)


def test_the_medians_of_the_repetitions_are_ranked() -> None:
    record = run(1, [step(LATENCY, [rate] * 9, 0, number)
                     for number, rate in enumerate((500.0, 100.0, 800.0))])
    row, = rank(record, {})
    assert (row.iops, row.bytes_per_second, row.latency_ns, row.p99_ns) == (
        500.0, 500.0 * 4096, 2e6, 6e6)
    assert (row.job, row.direction, row.osd, row.host, row.device_class, row.peers) == (
        'latency', 'read', 0, '', '', 0)


def test_reads_and_writes_of_a_pool_are_judged_apart() -> None:
    record = replace(in_pool([1.0] * 6), counted=tuple(
        Counted(osd, 500, 500, (8 if osd == 2 else 1) * 500 * 10 ** 6, 500 * 10 ** 6)
        for osd in range(6)))
    assert slow_in_pool(record, places(6)) == [
        'osd.2: client reads during the probe took 8 ms, 8.0 times the median of 5 peers '
        '(20.8 deviations)']


def test_peers_are_of_the_same_class() -> None:
    """Disks among SSDs are slow, and nothing is wrong with them."""
    mixed = {**places(4), **{osd: OsdPlace(osd, 'host9', 'default', 'hdd') for osd in range(4, 8)}}
    record = run(1, [step(LATENCY, [1000.0 if osd < 4 else 60.0] * 9, osd) for osd in range(8)])
    assert not any(each.outlier for each in rank(record, mixed))
    assert {each.peers for each in rank(record, mixed)} == {3}


def test_too_few_peers_for_a_judgement() -> None:
    record = run(1, [step(LATENCY, [rate] * 9, osd) for osd, rate in enumerate((900, 1000, 10))])
    ranks = rank(record, places(3))
    assert [(each.ratio, each.outlier) for each in ranks] == [(None, False)] * 3


def test_an_osd_without_a_place_has_no_peers() -> None:
    """It is gone, and may have been a disk, as OSD 4 was, or an SSD."""
    record = run(1, [step(LATENCY, [60.0 if osd == 4 else 1000.0] * 9, osd) for osd in range(9)])
    ranks = {row.osd: row for row in rank(record, places(4))}
    assert {osd: (row.peers, row.outlier) for osd, row in ranks.items()} == {
        **dict.fromkeys(range(4), (3, False)), **dict.fromkeys(range(4, 9), (0, False))}
    assert (ranks[4].ratio, ranks[4].deviations, ranks[0].ratio) == (None, 0.0, 1.0)


def test_where_the_rate_is_fixed_latency_tells() -> None:
    job = replace(LATENCY, rate_iops=50)
    done = [with_mean(step(job, [50.0] * 9, osd), 2e6 if osd == 3 else 1e6) for osd in range(5)]
    ranks = rank(run(1, done), places(5))
    assert [(each.osd, each.ratio) for each in ranks if each.outlier] == [
        (3, pytest.approx(0.5))]


def test_jobs_and_directions_are_ranked_apart() -> None:
    record = run(1, [step(job, [1000.0 if osd != 2 or job is LATENCY else 200.0] * 9, osd)
                     for osd in range(5) for job in (LATENCY, WRITING)])
    assert [(each.direction, each.osd) for each in rank(record, places(5)) if each.outlier] == [
        ('write', 2)]


def disturbed(together: float, again: float, osds: int = 3, repetitions: int = 1) -> RunRecord:
    def part(name: str, factor: float) -> Done:
        return [step(LATENCY, [1000.0 * factor] * 9, osd, repetition, name)
                for osd in range(osds) for repetition in range(repetitions)]

    return run(1, part('alone', 1.0) + part('together', together) + part('again', again),
               Target('interference', '', tuple(range(osds))))


def test_interference() -> None:
    rows = interference(disturbed(0.5, 0.95))
    assert [row.osd for row in rows] == [0, 1, 2, None]
    assert rows[0].together_ratio == 0.5 and rows[0].again_ratio == 0.95
    assert rows[-1].alone == 3000.0
    findings = interference_findings(rows)
    assert len(findings) == 4
    assert findings[-1] == ('all OSDs: latency read: together 0.50 times as fast as '
                            'alone (1,500, 3,000 IOPS)')


def test_what_does_not_recover() -> None:
    findings = interference_findings(interference(disturbed(0.95, 0.1)))
    assert findings[0] == ('osd.0: latency read: alone again 0.10 times as fast as alone '
                           'before (100, 1,000 IOPS)')


def test_what_may_be_chance_is_no_finding() -> None:
    assert interference_findings(interference(disturbed(0.85, 0.9))) == ()
    # Of one OSD probed once 0.75 may be chance, of eight together it is not.
    assert interference_findings(interference(disturbed(0.75, 1.0, osds=1))) == ()
    assert [text.split(':')[0] for text in interference_findings(
        interference(disturbed(0.75, 1.0, osds=8)))] == ['all OSDs']
    assert interference_findings(interference(disturbed(0.75, 1.0, 1, repetitions=4)))


def test_interference_at_a_fixed_rate_shows_in_latency() -> None:
    job = replace(LATENCY, rate_iops=50)
    record = run(1, [with_mean(step(job, [50.0] * 9, osd, part=part), mean_ns * (osd + 1))
                     for part, mean_ns in (('alone', 1e6), ('together', 3e6), ('again', 1.1e6))
                     for osd in range(2)], Target('interference', '', (0, 1)))
    rows = interference(record)
    assert [(row.osd, row.alone, row.together, row.again, row.quantity) for row in rows] == [
        (0, 1e6, 3e6, 1.1e6, 'latency'), (1, 2e6, 6e6, 2.2e6, 'latency'),
        (None, 1.5e6, 4.5e6, pytest.approx(1.65e6), 'latency')]
    assert rows[-1].again_ratio == pytest.approx(1 / 1.1)
    assert interference_findings(rows) == tuple(
        '%s: latency read: together 0.33 times as fast as alone (%s ms)' % found
        for found in (('osd.0', '3, 1'), ('osd.1', '6, 2'), ('all OSDs', '4.5, 1.5')))
    assert interference_findings([rows[0]._replace(together=1e6, again=4e6)]) == (
        'osd.0: latency read: alone again 0.25 times as fast as alone before (4, 1 ms)',)
    # Faster is no finding.
    assert interference_findings([rows[0]._replace(together=1e5, again=1e5)]) == ()


def test_a_run_that_was_cut_has_no_interference() -> None:
    whole = disturbed(0.5, 0.5)
    assert interference(replace(whole, results=whole.results[:6])) == ()
    assert rank(whole, places(3)) == ()
