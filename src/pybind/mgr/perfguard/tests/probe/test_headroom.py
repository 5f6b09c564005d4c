# SPDX-License-Identifier: LGPL-2.1-or-later
"""The share that clients use of what a pool serves."""
import random
import shlex
from dataclasses import replace
from typing import Any, Dict, List, Optional, Sequence, Tuple

import pytest

from perfguard.probe import tables
from perfguard.probe.curve import Curve, CurvePoint, Measure, curves
from perfguard.probe.expectations import Layout
from perfguard.probe.headroom import (TEXTS, UNCERTAIN_CODES, Headroom, ProbedCurve, capacity,
                                      headroom, headroom_json)
from perfguard.probe.report import Probed
from perfguard.probe.types import Target
from perfguard.watch.load import LoadGrowth, PoolUse, Rates

from .test_curve import JOB, measure, record

NOW, DAY = 2e9, 86400.0
#: Operations per second by p99 in ms: 3,000 at 4 ms, 4,000 at 8 ms.
POINTS = ((1, 1000.0, 1.0), (2, 2000.0, 2.0), (4, 3000.0, 4.0), (8, 4000.0, 8.0),
          (16, 4100.0, 20.0))


def points(rows: Sequence[Tuple[int, float, float]] = POINTS, noise: float = 0.0,
           limited: bool = False) -> List[CurvePoint]:
    return [CurvePoint(depth, Measure(iops, iops * (1 - noise), iops * (1 + noise)),
                       Measure(1e6, 1e6, 1e6),
                       Measure(1e6 * p99, 1e6 * p99 * (1 - noise), 1e6 * p99 * (1 + noise)),
                       limited) for depth, iops, p99 in rows]


def curve(rows: Sequence[CurvePoint], direction: str = 'write', bs: int = 4096) -> Curve:
    return Curve('x', bs, False, direction, None, tuple(rows), rows[0], rows[-1], None, ())


def probed(direction: str = 'write', bs: int = 4096, factor: float = 1.0, probe: int = 7,
           ended: float = NOW - DAY, beside: float = 0.0) -> ProbedCurve:
    rows = [(depth, factor * iops, p99) for depth, iops, p99 in POINTS]
    return ProbedCurve(probe, ended, curve(points(rows), direction, bs), beside, 64, 12)


def use(reads: float = 0.0, writes: float = 700.0, size: float = 4096.0, others: float = 0.0,
        growth: LoadGrowth = LoadGrowth(30), busiest: Optional[Rates] = None,
        p99_ms: float = 6.0) -> PoolUse:
    now = Rates(reads, writes, size * reads, size * writes)
    return PoolUse(1, 'rbd', 64, p99_ms, now, busiest or now, others, growth)


def codes(row: Headroom) -> List[str]:
    return [remark.code for remark in row.remarks]


def alike(value: Optional[float], expected: float) -> bool:
    return value is not None and value == pytest.approx(expected)


# ---- one curve

@pytest.mark.parametrize('p99_ms, ops', [(1.0, 1000.0), (3.0, 2500.0), (4.0, 3000.0),
                                         (6.0, 3500.0), (20.0, 4100.0)])
def test_what_it_serves_at_a_p99(p99_ms: float, ops: float) -> None:
    served = capacity(points(), p99_ms)
    assert served is not None and served.ops == pytest.approx(Measure(ops, ops, ops))


def test_no_depth_is_fast_enough() -> None:
    assert capacity(points(), 0.9) is None


def test_one_depth_does_not_show_whether_throughput_rises() -> None:
    served = capacity(points(POINTS[:1]), 6.0)
    assert served is not None and (served.ops.median, served.causes) == (1000.0, ())


def test_only_depths_that_are_fast_enough_show_the_limit_of_the_client() -> None:
    rows = [*points(POINTS[:4]), *points(POINTS[4:], limited=True)]
    served = capacity(rows, 8.0)
    assert served is not None and served.causes == ()
    rows[3] = rows[3]._replace(client_limited=True)
    served = capacity(rows, 8.0)
    assert served is not None and served.causes == ('CLIENT_LIMITED',)


def test_the_bounds_where_only_some_repetitions_are_fast_enough() -> None:
    """The slowest are above the limit at the lowest depth already: their throughput there is the
    lower bound."""
    served = capacity(points(POINTS[:2], noise=0.5), 1.2)
    assert served is not None
    assert served.ops == pytest.approx(Measure(1200.0, 500.0, 3000.0))


def test_a_curve_that_ends_early_is_a_lower_bound() -> None:
    served = capacity(points(POINTS[:3]), 6.0)
    assert served is not None and (served.ops.median, served.causes) == (3000.0, ('OPEN_END',))
    # Its throughput no longer rises: that is all.
    served = capacity(points([*POINTS[:3], (8, 2900.0, 5.0)]), 6.0)
    assert served is not None and (served.ops.median, served.causes) == (3000.0, ())
    served = capacity(points(limited=True), 6.0)
    assert served is not None and served.causes == ('CLIENT_LIMITED',)


def test_properties_of_any_curve() -> None:
    """More p99 is never fewer operations; the bounds contain the median; nothing is served that no
    repetition has reached."""
    rnd = random.Random(3)
    for _ in range(300):
        rows: List[CurvePoint] = []
        p99 = iops = 0.0
        for depth in range(1, rnd.randrange(3, 10)):
            iops = max(1.0, iops + rnd.uniform(-50.0, 300.0))
            p99 = max(0.1, p99 + rnd.uniform(-0.2, 2.0))
            noise = rnd.uniform(0.0, 0.3)
            rows += points([(depth, iops, p99)], noise)
        before = 0.0
        for limit in sorted(rnd.uniform(0.1, 20.0) for _ in range(20)):
            served = capacity(rows, limit)
            if served is None:
                assert before == 0.0
                continue
            assert 0.0 < served.ops.low <= served.ops.median <= served.ops.high
            assert before <= served.ops.median + 1e-9
            assert served.ops.high <= max(row.iops.high for row in rows) + 1e-9
            before = served.ops.median


# ---- one pool

def test_the_share_of_writes() -> None:
    row = headroom(use(), 12, [probed()], NOW)
    assert codes(row) == [] and row.certain and row.probe == 7
    assert row.capacity == pytest.approx(Measure(3500.0, 3500.0, 3500.0))
    assert row.used == pytest.approx(Measure(0.2, 0.2, 0.2)) and alike(row.alone, 0.2)


def test_the_bounds_are_those_of_the_repetitions() -> None:
    noisy = replace_points(probed(), points(noise=0.1))
    row = headroom(use(), 12, [noisy], NOW)
    assert row.used is not None and row.used.low < 0.2 < row.used.high < 0.25


def replace_points(row: ProbedCurve, rows: Sequence[CurvePoint]) -> ProbedCurve:
    return row._replace(curve=row.curve._replace(points=tuple(rows)))


def test_reads_and_writes_add_up() -> None:
    """Reads are twice as cheap: 700 of 7,000 and 700 of 3,500."""
    both = [probed(), probed('read', factor=2.0, probe=8)]
    row = headroom(use(reads=700.0), 12, both, NOW)
    assert codes(row) == [] and row.used is not None and alike(row.used.median, 0.3)
    # Without a curve of reads it is an upper bound, and said to be one.
    row = headroom(use(reads=700.0), 12, both[:1], NOW)
    assert codes(row) == ['READS_AS_WRITES'] and row.used is not None
    assert alike(row.used.median, 0.4)
    # Reads do not say what writes cost.
    row = headroom(use(reads=700.0), 12, both[1:], NOW)
    assert codes(row) == ['NO_WRITE_CURVE'] and row.used is None
    # A few of them do not matter.
    assert codes(headroom(use(reads=700.0, writes=7.0), 12, both[1:], NOW)) == []
    assert codes(headroom(use(reads=7.0), 12, both[:1], NOW)) == []


def test_other_pools_on_the_same_osds_count() -> None:
    row = headroom(use(others=1050.0), 12, [probed()], NOW)
    assert row.used is not None and alike(row.used.median, 0.5) and alike(row.alone, 0.2)


def test_what_clients_did_beside_the_probe_is_served_as_well() -> None:
    row = headroom(use(), 12, [probed(beside=3500.0)], NOW)
    assert row.used is not None and alike(row.used.median, 0.1)


@pytest.mark.parametrize('change, size, osds, code, text', [
    ({}, 8193.0, 12, 'UNLIKE_SIZE', 'writes have 8193 bytes, those of probe 7 4096: the share is a '
                                    'guess; probe with --bs 8193'),
    ({}, 2047.0, 12, 'UNLIKE_SIZE', 'writes have 2047 bytes, those of probe 7 4096: the share is a '
                                    'guess; probe with --bs 2047'),
    ({'ended': NOW - 40.9 * DAY}, 4096.0, 12, 'OLD', 'probe 7 is 40 days old'),
    ({'ended': NOW - 30 * DAY - 1}, 4096.0, 12, 'OLD', 'probe 7 is 30 days old'),
    ({}, 4096.0, 13, 'OTHER_OSDS', 'the pool has 13 OSDs, and had 12 in probe 7'),
    ({'redundancy': '2 replicas'}, 4096.0, 12, 'OTHER_REDUNDANCY',
     'the redundancy of the pool is 3 replicas, and was 2 replicas in probe 7'),
    ({'pg_num': 32}, 4096.0, 12, 'OTHER_PGS', 'the pool has 64 PGs, and had 32 in probe 7')])
def test_a_share_that_may_be_wrong_is_said_to_be(
        change: Dict[str, Any], size: float, osds: int, code: str, text: str) -> None:
    row = headroom(use(size=size), osds, [probed()._replace(**change)], NOW, '3 replicas')
    assert codes(row) == [code] and not row.certain and row.used is not None
    assert row.remarks[0].text == text


@pytest.mark.parametrize('change, size, osds', [
    ({}, 8192.0, 12), ({}, 2048.0, 12), ({'ended': NOW - 30 * DAY}, 4096.0, 12),
    ({'osds': 0}, 4096.0, 13), ({'pg_num': 0}, 4096.0, 12)])
def test_a_share_within_the_limits_or_of_unknown_conditions_is_certain(
        change: Dict[str, Any], size: float, osds: int) -> None:
    row = headroom(use(size=size), osds, [probed()._replace(**change)], NOW)
    assert codes(row) == [] and row.certain


@pytest.mark.parametrize('reads, writes, has_reads, remarks', [
    (100.0, 900.0, False, []), (101.0, 899.0, False, ['READS_AS_WRITES']),
    (900.0, 100.0, True, []), (899.0, 101.0, True, ['NO_WRITE_CURVE'])])
def test_a_tenth_of_the_operations_does_not_matter(
        reads: float, writes: float, has_reads: bool, remarks: List[str]) -> None:
    row = headroom(use(reads=reads, writes=writes), 12,
                   [probed('read' if has_reads else 'write')], NOW)
    assert codes(row) == remarks


def test_the_doubts_about_a_direction_count_from_a_tenth_of_the_operations() -> None:
    both = [probed(), probed('read', ended=NOW - 40 * DAY)]
    assert codes(headroom(use(reads=99.0, writes=901.0), 12, both, NOW)) == []
    assert codes(headroom(use(reads=100.0, writes=900.0), 12, both, NOW)) == ['OLD']


def test_the_curve_of_such_operations_is_chosen_and_of_these_the_newest() -> None:
    of_size = [probed(bs=16384, probe=1, factor=0.5), probed(bs=16384, probe=2, factor=0.25),
               probed(probe=3)]
    row = headroom(use(size=20000.0), 12, of_size, NOW)
    assert row.probe == 2 and row.certain and row.used is not None
    assert alike(row.used.median, 0.8)
    assert headroom(use(size=0.0), 12, of_size, NOW).probe == 3


def test_without_a_curve_or_a_depth_that_is_fast_enough_there_is_no_share() -> None:
    for row in (headroom(use(), 12, [], NOW), headroom(use(p99_ms=0.5), 12, [probed()], NOW)):
        assert row.used is row.capacity is row.busiest is row.full_seconds is None
    assert codes(headroom(use(p99_ms=0.5), 12, [probed()], NOW)) == ['OVER_AT_ONCE']
    for row, text in (
            (headroom(use(), 12, [], NOW),
             'no probe has measured it: "ceph perfguard probe run curve --pool rbd"'),
            (headroom(use(), 12, [probed('read')], NOW),
             'writes were not probed: "ceph perfguard probe run curve --pool rbd"'),
            (headroom(use(p99_ms=0.5), 12, [probed()], NOW),
             'p99 is 1.0 ms at the lowest depth of probe 7: raise capacity_p99_ms to see a share'),
            (headroom(use(reads=700.0), 12, [probed()], NOW),
             'reads were not probed and count as writes: the share is an upper bound; "ceph '
             'perfguard probe run curve --pool rbd --rw randread"'),
            (headroom(use(p99_ms=30.0), 12, [probed()], NOW),
             'probe 7 has not reached the p99: the share is an upper bound'),
            (headroom(use(), 12, [replace_points(probed(), points(limited=True))], NOW),
             'the CPU of probe 7 was the bottleneck: the share is an upper bound')):
        assert [remark.text for remark in row.remarks] == [text]


def test_the_name_of_a_pool_is_one_word_of_a_command() -> None:
    remark, = headroom(use()._replace(pool="a b'c"), 12, [], NOW).remarks
    words = shlex.split(remark.text.split('"', 1)[1][:-1])
    assert words == ['ceph', 'perfguard', 'probe', 'run', 'curve', '--pool', "a b'c"]


def test_a_pool_without_clients() -> None:
    row = headroom(use(writes=0.0), 12, [probed()], NOW)
    assert row.used == Measure(0.0, 0.0, 0.0) and row.capacity is not None
    assert row.capacity.median == pytest.approx(3500.0)


# ---- growth

def test_when_it_is_full() -> None:
    busiest = Rates(0.0, 1400.0, 0.0, 1400 * 4096.0)
    row = headroom(use(growth=LoadGrowth(30, 35.0), busiest=busiest, others=350.0), 12, [probed()],
                   NOW)
    assert alike(row.busiest, 0.5) and alike(row.full_seconds, 50 * DAY)
    # Not so far ahead.
    row = headroom(use(growth=LoadGrowth(30, 1.0), busiest=busiest), 12, [probed()], NOW)
    assert row.full_seconds is None
    # Growth is extended to four times its history, here 120 days.
    for per_day, seconds in ((2100 / 120, 120 * DAY), (2100 / 121, None)):
        row = headroom(use(growth=LoadGrowth(30, per_day), busiest=busiest), 12, [probed()], NOW)
        assert row.full_seconds == (None if seconds is None else pytest.approx(seconds))
    # It is full.
    row = headroom(use(growth=LoadGrowth(30, 1.0), busiest=Rates(0.0, 9000.0)), 12, [probed()], NOW)
    assert row.full_seconds == 0.0


def test_a_short_history_is_said_to_be_one() -> None:
    row = headroom(use(growth=LoadGrowth(1)), 12, [probed()], NOW)
    assert codes(row) == ['SHORT_HISTORY'] and row.certain and row.full_seconds is None
    assert row.remarks[0].text == 'growth is known after 21 days of readings (so far 1)'


# ---- what is shown

def test_texts_are_of_codes() -> None:
    assert UNCERTAIN_CODES < TEXTS.keys()


def test_a_curve_of_a_record_knows_its_operations() -> None:
    found, = curves(record([measure(replace(JOB, iodepth=depth), 100.0 * depth)
                            for depth in (1, 2, 4, 8)]))
    assert found.bs == 4096 and not found.is_mixed


@pytest.mark.parametrize('replicas, remarks', [(2, []), (3, ['OTHER_REDUNDANCY'])])
def test_a_pool_that_was_probed_with_another_number_of_replicas(replicas: int,
                                                                remarks: List[str]) -> None:
    """With 3, writes take half as much again of the OSDs as with 2."""
    before = replace(record([measure(replace(JOB, iodepth=depth), 100.0 * depth)
                             for depth in (1, 2, 4, 8)]), target=Target('pool', 'rbd'),
                     ended=NOW - DAY, setting={'redundancy': '2 replicas', 'PGs': '64'}, osds=12)
    row, = Probed(records=(before,), layouts={'rbd': Layout(12, replicas)}).headrooms(
        [use(writes=7.0, p99_ms=1000.0)], NOW)
    assert [code for code in codes(row) if code in UNCERTAIN_CODES] == remarks
    assert row.used is not None


def test_the_table() -> None:
    busiest = Rates(0.0, 1400.0, 0.0, 1400 * 4096.0)
    shown = [use(growth=LoadGrowth(30, 42.0), busiest=busiest), use()]
    rows = [headroom(shown[0], 12, [probed()], NOW), headroom(shown[1], 12, [], NOW)]
    text = tables.capacity({'pools': [headroom_json(row, used)
                                      for row, used in zip(rows, shown)]}).splitlines()
    assert '20 % (20 to 20 %)' in text[1] and '40 %' in text[1] and '50.0 days' in text[1]
    assert 'no probe has measured it' in text[2]
    assert tables.capacity({'pools': []}) == 'no pools'
