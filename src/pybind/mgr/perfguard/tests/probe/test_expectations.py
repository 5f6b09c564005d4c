# SPDX-License-Identifier: LGPL-2.1-or-later
"""Verdicts against what devices of a class usually do."""
from dataclasses import replace
from typing import Dict, Tuple

import pytest

from perfguard.probe.expectations import (ABOVE, AS_EXPECTED, BELOW, NO_EXPECTATION, Layout,
                                          capacity_of, expect, expected_of, last_measured)
from perfguard.probe.records import CLIENTS
from perfguard.probe.types import Job, Target

from ..fakes.probe_records import IOPS, LATENCY, LINEAR, WRITING, run, step

ONE = Layout(1)
DEEP_WRITE = replace(IOPS, rw='randwrite')
LINEAR_WRITE = replace(LINEAR, rw='write')


def verdict(job: Job, iops: float, device_class: str, layout: Layout = ONE, osd=None
            ) -> Tuple[str, str]:
    found, = expect(run(1, [step(job, [iops] * 9, osd)]), device_class, layout)
    return found.verdict, found.why


@pytest.mark.parametrize('device_class, job, iops, expected', [
    ('hdd', LATENCY, 66, AS_EXPECTED), ('hdd', WRITING, 30, BELOW), ('hdd', LATENCY, 900, ABOVE),
    ('hdd', IOPS, 110, AS_EXPECTED), ('hdd', IOPS, 70, BELOW),
    ('ssd', WRITING, 1000, AS_EXPECTED), ('ssd', WRITING, 200, BELOW),
    ('ssd', WRITING, 2600, ABOVE),
    ('nvme', LATENCY, 2000, AS_EXPECTED), ('nvme', LATENCY, 700, BELOW),
    ('nvme', IOPS, 20000, AS_EXPECTED), ('nvme', DEEP_WRITE, 9000, BELOW),
    ('hdd', LINEAR, 10, AS_EXPECTED), ('hdd', LINEAR, 5, BELOW)])
def test_one_osd(device_class: str, job: Job, iops: float, expected: str) -> None:
    assert verdict(job, iops, device_class, osd=3)[0] == expected


def test_the_words() -> None:
    assert verdict(WRITING, 200, 'ssd')[1] == '200 IOPS; ssd: 300 IOPS to 2,500 IOPS at iodepth 1'
    assert verdict(LINEAR_WRITE, 10, 'hdd', Layout(6, 3))[1] == (
        '41.9 MB/s; hdd: 54 MB/s to 120 MB/s from 6 OSDs, 3 replicas')


@pytest.mark.parametrize('device_class, job, iops, layout, why', [
    ('hdd', LATENCY, 66, Layout(12, 3), '66 IOPS; hdd: 44 IOPS to 99 IOPS at iodepth 1'),
    ('hdd', IOPS, 1300, Layout(12, 3),
     '1,300 IOPS; hdd: 960 IOPS to 1,728 IOPS at depth 128 from 12 OSDs'),
    ('hdd', DEEP_WRITE, 440, Layout(12, 3),
     '440 IOPS; hdd: 320 IOPS to 576 IOPS at depth 128 from 12 OSDs, 3 replicas'),
    ('hdd', DEEP_WRITE, 440, Layout(1), '440 IOPS; hdd: 80 IOPS to 144 IOPS at depth 128 from '
                                        '1 OSD'),
    ('hdd', DEEP_WRITE, 440, Layout(12, 1, 4, 2),
     '440 IOPS; hdd: 107 IOPS to 192 IOPS at depth 128 from 12 OSDs, erasure coded 4+2'),
    # 256 in flight, each as fast as one alone.
    ('hdd', replace(IOPS, numjobs=2), 4000, Layout(600, 3),
     '4,000 IOPS; hdd: 11,264 IOPS to 25,344 IOPS at depth 256 from 600 OSDs'),
    ('ssd', DEEP_WRITE, 16000, Layout(60, 3),
     '16,000 IOPS; ssd: 15,000 IOPS to 320,000 IOPS at depth 128 from 60 OSDs, 3 replicas'),
    ('hdd', LINEAR, 100, Layout(60, 1, 4, 2),
     '419 MB/s; hdd: 1,620 MB/s to 3,600 MB/s from 60 OSDs'),
    ('hdd', LINEAR_WRITE, 100, Layout(60, 3),
     '419 MB/s; hdd: 432 MB/s to 960 MB/s from 60 OSDs, 3 replicas'),
    ('', LATENCY, 66, ONE, 'no expected values for device class (none)'),
    ('ssd', LINEAR, 66, ONE, 'expected values exist for 4 KiB at iodepth 1 and 128, and for 4 MiB '
                             'at iodepth 16 on disks')])
def test_the_figures(device_class: str, job: Job, iops: float, layout: Layout, why: str) -> None:
    assert verdict(job, iops, device_class, layout)[1] == why


@pytest.mark.parametrize('iops, expected', [
    (43, BELOW), (44, AS_EXPECTED), (99, AS_EXPECTED), (100, ABOVE)])
def test_the_ends_of_a_range_are_as_expected(iops: float, expected: str) -> None:
    assert verdict(LATENCY, iops, 'hdd')[0] == expected


@pytest.mark.parametrize('changes, is_expected', [
    ({'iodepth': 127}, False), ({'iodepth': 128}, True), ({'iodepth': 64, 'numjobs': 2}, True),
    ({'iodepth': 2}, False), ({'bs': 4095}, False)])
def test_small_operations_are_judged_at_depth_1_and_from_128_on(
        changes: Dict[str, int], is_expected: bool) -> None:
    assert (verdict(replace(IOPS, **changes), 100, 'hdd')[0] != NO_EXPECTATION) == is_expected


def test_a_run_of_several_clients_is_not_judged() -> None:
    record = run(1, [step(LATENCY, [66] * 9)])
    assert expect(record, 'hdd', ONE)
    assert expect(replace(record, setting={CLIENTS: '2'}), 'hdd', ONE) == ()


def test_the_capacity_of_pools() -> None:
    found = capacity_of(DISKS)
    assert found is not None
    assert found.read == (960.0, 1728.0) and found.write == (320.0, 576.0)
    assert found.vms('linux') == pytest.approx((16.0, 28.8))
    assert found.vms('windows') == pytest.approx((6.4, 11.52))


def test_depth_one_does_not_add_up() -> None:
    for layout in (Layout(1), Layout(60, 3)):
        assert verdict(WRITING, 1000, 'ssd', layout)[0] == AS_EXPECTED


def test_depth_128_adds_up() -> None:
    """Twelve disks do 1,000 to 1,700 reads, and a third of that in writes of three replicas."""
    assert verdict(IOPS, 1300, 'hdd', Layout(12, 3))[0] == AS_EXPECTED
    assert verdict(IOPS, 110, 'hdd', Layout(12, 3))[0] == BELOW
    assert verdict(DEEP_WRITE, 440, 'hdd', Layout(12, 3))[0] == AS_EXPECTED
    assert verdict(DEEP_WRITE, 1300, 'hdd', Layout(12, 3))[0] == ABOVE


def test_no_more_than_the_depth_and_one_client_allow() -> None:
    """60 SSDs could do 600,000 reads; 128 in flight and one client cannot."""
    found, why = verdict(IOPS, 31000, 'ssd', Layout(60, 3))
    assert found == AS_EXPECTED and '30,000 IOPS to 512,000 IOPS' in why
    # 128 in flight on disks: each takes a 44th of a second at worst.
    assert '5,632 IOPS' in verdict(IOPS, 6000, 'hdd', Layout(600, 3))[1]


def test_linear() -> None:
    """OSDs / replicas, and k / (k + m)."""
    assert '324 MB/s to 720 MB/s from 12 OSDs' in verdict(LINEAR, 100, 'hdd', Layout(12, 3))[1]
    assert '108 MB/s to 240 MB/s' in verdict(LINEAR_WRITE, 40, 'hdd', Layout(12, 3))[1]
    assert '216 MB/s to 480 MB/s from 12 OSDs, erasure coded 4+2' in verdict(
        LINEAR_WRITE, 80, 'hdd', Layout(12, 1, 4, 2))[1]
    # 16 reads in flight reach 16 disks, however many there are.
    assert '432 MB/s' in verdict(LINEAR, 100, 'hdd', Layout(60, 3))[1]


def test_linear_is_at_least_1_mib_at_a_depth_of_8() -> None:
    for bs, iodepth, numjobs, linear in ((1 << 20, 8, 1, True), (1 << 20, 4, 2, True),
                                         (1 << 20, 7, 1, False), (1 << 19, 8, 1, False)):
        job = replace(LINEAR, bs=bs, iodepth=iodepth, numjobs=numjobs)
        found = verdict(job, 100, 'hdd', Layout(12, 3))[0]
        assert (found != NO_EXPECTATION) == linear, job


def test_small_erasure_coded_writes_are_a_third() -> None:
    assert '100 IOPS to 833 IOPS' in verdict(WRITING, 300, 'ssd', Layout(12, 3, 4, 2))[1]
    assert '1,000 IOPS to 4,000 IOPS' in verdict(LATENCY, 2000, 'ssd', Layout(12, 3, 4, 2))[1]


@pytest.mark.parametrize('device_class, job', [
    ('memstore', LATENCY), ('', LATENCY), ('ssd', LINEAR), ('ssd', replace(LATENCY, bs=8192)),
    ('hdd', replace(LATENCY, iodepth=32)), ('hdd', replace(LATENCY, rate_iops=10)),
    ('hdd', replace(LATENCY, rw='randrw'))])
def test_no_expectation(device_class: str, job: Job) -> None:
    found = expect(run(1, [step(job, [50.0] * 9)]), device_class, ONE)
    assert [each.verdict for each in found] == [NO_EXPECTATION] and found[0].why


def test_what_the_client_bounds_is_not_below() -> None:
    each, result = step(IOPS, [2000.0] * 9)
    found, = expect(run(1, [(each, replace(result, client_limited=True))]), 'ssd', ONE)
    assert found.verdict == NO_EXPECTATION and ('the CPU of the probe '
                                                'process was the bottleneck') in found.why


def test_of_interference_only_the_first_part_is_judged() -> None:
    record = run(1, [step(LATENCY, [66.0] * 9, 1, part=part)
                     for part in ('alone', 'together', 'again')])
    assert [each.label for each in expect(record, 'hdd', ONE)] == ['latency read osd.1 (alone)']


def test_the_median_of_repetitions_counts() -> None:
    record = run(1, [step(LATENCY, [rate] * 9, repetition=number)
                     for number, rate in enumerate((66.0, 1.0, 70.0))])
    assert expect(record, 'hdd', ONE)[0].verdict == AS_EXPECTED


# ---- Without a run

DISKS = Layout(12, 3, device_class='hdd', tib=120.0)
FLASH_EC = Layout(60, data_chunks=4, coding_chunks=2, device_class='nvme', tib=600.0)


def rows(layout: Layout) -> Dict[Tuple[str, int, int], Tuple[float, float]]:
    return {(each.key.direction, each.key.job.bs, each.key.job.iodepth):
            (round(each.range.low), round(each.range.high)) for each in expected_of(layout)}


def test_what_a_pool_on_disks_is_expected_to_achieve() -> None:
    mib = 1 << 20
    assert rows(DISKS) == {
        ('read', 4096, 1): (44, 99), ('write', 4096, 1): (44, 99),
        ('read', 4096, 128): (960, 1728), ('write', 4096, 128): (320, 576),
        ('read', 4 * mib, 16): (324e6, 720e6), ('write', 4 * mib, 16): (108e6, 240e6)}


def test_nothing_is_expected_of_unknown_devices() -> None:
    for layout in (DISKS._replace(device_class=''), DISKS._replace(osds=0)):
        assert expected_of(layout) == () and capacity_of(layout) is None


def test_small_writes_to_an_erasure_code_take_a_third_of_the_same_redundancy() -> None:
    erasure, replicated = capacity_of(FLASH_EC), capacity_of(FLASH_EC._replace(
        data_chunks=0, coding_chunks=0, replicas=3))
    assert erasure is not None and replicated is not None and erasure.read == replicated.read
    assert erasure.write.high == pytest.approx(replicated.write.high / 3)
    assert erasure.vms('linux').low == pytest.approx(erasure.write.low / 20)
    assert (FLASH_EC.usable_tib, DISKS.usable_tib) == (400.0, 40.0)


def test_one_client_is_the_limit_of_what_is_expected_and_not_of_the_capacity() -> None:
    found = capacity_of(FLASH_EC)
    assert found is not None and found.read.low == 600000
    assert rows(FLASH_EC)['read', 4096, 128][0] == 30000


def test_the_last_probe_with_such_a_job_counts() -> None:
    deep = next(each for each in expected_of(DISKS)
                if each.key.direction == 'read' and each.key.job.iodepth == 128)
    image = replace(IOPS, ioengine='rbd')
    records = [run(1, [step(IOPS, [900] * 9)]), run(2, [step(IOPS, [1100] * 9)]),
               run(3, [step(LATENCY, [60] * 9)]), run(4, [step(image, [700] * 9)])]
    pool = records[0].target.pool
    assert last_measured(records, pool, deep) == (2, 1100.0, AS_EXPECTED)
    assert last_measured(records, pool + 'x', deep) is None
    assert last_measured([replace(records[1], setting={CLIENTS: '2'})], pool, deep) is None
    one_by_one = replace(records[1], target=Target('osd', pool, (1,)))
    assert last_measured([one_by_one], pool, deep) is None
    for job in (replace(IOPS, rate_iops=10), replace(IOPS, iodepth=64), replace(IOPS, bs=8192),
                replace(IOPS, rw='randwrite')):
        assert last_measured([run(5, [step(job, [900] * 9)])], pool, deep) is None
    both = replace(IOPS, iodepth=64, numjobs=2, size=1 << 30)
    assert last_measured([run(6, [step(both, [900] * 9)])], pool, deep) == (6, 900.0, BELOW)
    stopped = [records[0], replace(records[1], state='cancelled')]
    assert last_measured(stopped, pool, deep) == (1, 900.0, BELOW)


def test_a_probe_that_the_client_limited_is_not_below() -> None:
    deep = next(each for each in expected_of(DISKS)
                if each.key.direction == 'read' and each.key.job.iodepth == 128)
    each, result = step(IOPS, [900.0] * 9)
    limited = run(1, [(each, replace(result, client_limited=True))])
    pool = limited.target.pool
    assert last_measured([limited], pool, deep) == (1, 900.0, NO_EXPECTATION)
    assert expect(limited, DISKS.device_class, DISKS)[0].verdict == NO_EXPECTATION
