# SPDX-License-Identifier: LGPL-2.1-or-later
"""Results as fio writes them."""
import json
import math
from dataclasses import replace
from typing import Any, Dict, List, Set

import pytest

from perfguard.cluster.types import Json
from perfguard.probe.fio_json import direction, fio_json, share_below
from perfguard.probe.types import (Direction, Job, JobStep, Quantiles, Second, StepResult, Stream,
                                   StreamResult)

from ..fakes.probe_runs import MS, repeated, result

READ = Job('reads', 'randread', bs=4096, iodepth=3, size=1 << 20, nrfiles=4, runtime=2.0,
           ramp_time=0.4)
MIXED = replace(READ, name='mixed', rw='randrw', rwmixread=70, rate_iops=50, io_size=1 << 30,
                numjobs=2)
STARTED = 1795289581.205

#: Keys that fio 3.33 writes with --output-format=json, of one job.
FIO_TOP = {'fio version', 'timestamp', 'timestamp_ms', 'time', 'global options', 'jobs'}
FIO_JOB = set('''jobname groupid error eta elapsed read write trim sync job_runtime usr_cpu sys_cpu
    ctx majf minf iodepth_level iodepth_submit iodepth_complete latency_ns latency_us latency_ms
    latency_depth latency_target latency_percentile latency_window'''.split()) | {'job options'}
FIO_DIRECTION = set('''io_bytes io_kbytes bw_bytes bw iops runtime total_ios short_ios drop_ios
    slat_ns clat_ns lat_ns bw_min bw_max bw_agg bw_mean bw_dev bw_samples iops_min iops_max
    iops_mean iops_stddev iops_samples'''.split())
FIO_LATENCY = {'min', 'max', 'mean', 'stddev', 'N'}
FIO_PERCENTILES = set('''1.000000 5.000000 10.000000 20.000000 30.000000 40.000000 50.000000
    60.000000 70.000000 80.000000 90.000000 95.000000 99.000000 99.500000 99.900000 99.950000
    99.990000'''.split())
FIO_CLASSES = set('2 4 10 20 50 100 250 500 750 1000'.split())
#: Numbers that fio writes with a decimal point; all others have none.
FIO_FLOATS = set('''iops mean stddev bw_agg bw_mean bw_dev iops_mean iops_stddev usr_cpu sys_cpu
    latency_percentile'''.split())


def document(job: Job = READ, *rates: int) -> Json:
    steps, results = repeated(job, rates or (100, 300, 200))
    found: Json = json.loads(json.dumps(fio_json(STARTED, steps, results)))
    return found


def keys_of(found: Json) -> Set[str]:
    return set(found)


def test_same_keys_as_fio() -> None:
    found = document()
    assert keys_of(found) == FIO_TOP | {'client_limited', 'errors'}
    job, = found['jobs']
    assert keys_of(job) == FIO_JOB | {
        'stream', 'osd', 'part', 'repetition', 'repetitions', 'errors', 'corrupt', 'unfinished',
        'first_error', 'client_limited', 'engine'}
    for name in ('read', 'write'):
        assert keys_of(job[name]) == FIO_DIRECTION | {'seconds'}
    assert keys_of(job['trim']) == FIO_DIRECTION
    for latency in ('slat_ns', 'lat_ns'):
        assert keys_of(job['read'][latency]) == FIO_LATENCY
    assert keys_of(job['read']['clat_ns']) == FIO_LATENCY | {'percentile'}
    assert keys_of(job['read']['clat_ns']['percentile']) == FIO_PERCENTILES
    # As with fio: none where nothing was done.
    assert keys_of(job['write']['clat_ns']) == keys_of(job['trim']['clat_ns']) == FIO_LATENCY
    assert job['sync'] == {'total_ios': 0, 'lat_ns': job['trim']['lat_ns']}
    assert keys_of(job['latency_ns']) == keys_of(job['latency_us']) == FIO_CLASSES
    assert keys_of(job['latency_ms']) == FIO_CLASSES | {'2000', '>=2000'}
    assert keys_of(job['iodepth_level']) == set('1 2 4 8 16 32 >=64'.split())
    for batch in ('iodepth_submit', 'iodepth_complete'):
        assert keys_of(job[batch]) == set('0 4 8 16 32 64 >=64'.split())
    assert set(map(type, job['job options'].values())) == {str}


def test_same_types_as_fio() -> None:
    job, = document()['jobs']
    for found in (job, job['read'], job['write'], job['trim'], job['read']['clat_ns'],
                  job['trim']['lat_ns']):
        for key in FIO_DIRECTION | FIO_LATENCY | FIO_JOB:
            if isinstance(found.get(key), (int, float)):
                assert isinstance(found[key], float) == (key in FIO_FLOATS), key


def test_numbers() -> None:
    found = document(READ, 1000)
    assert (found['client_limited'], found['errors']) == (False, 0)
    assert (found['timestamp'], found['timestamp_ms']) == (1795289581, 1795289581205)
    job, = found['jobs']
    assert (job['jobname'], job['error'], job['elapsed'], job['job_runtime']) == (
        'reads', 0, 3, 2000)
    assert (job['usr_cpu'], job['sys_cpu']) == (25.0, 12.5)
    read = job['read']
    assert (read['total_ios'], read['io_bytes'], read['io_kbytes'], read['runtime']) == (
        2000, 8192000, 8000, 2000)
    assert (read['iops'], read['bw_bytes'], read['bw']) == (1000.0, 4096000, 4000)
    assert read['clat_ns']['percentile']['99.000000'] == int(2.49 * MS)
    assert {key: read['clat_ns'][key] for key in FIO_LATENCY} == read['lat_ns'] == {
        'min': MS // 4, 'max': 4 * MS, 'mean': float(MS), 'stddev': MS / 5, 'N': 2000}
    assert (read['iops_min'], read['iops_max'], read['iops_mean'], read['iops_samples']) == (
        990, 1010, 1000.0, 2)
    assert read['iops_stddev'] == pytest.approx(math.sqrt(200))
    assert (read['bw_min'], read['bw_max'], read['bw_mean'], read['bw_dev']) == (
        4000, 4000, 4000.0, 0.0)
    assert read['seconds'] == [[1.0, 990, 4096000, 1000 * MS], [2.0, 1010, 4096000, 1000 * MS]]
    assert job['iodepth_level']['2'] == 100.0 and sum(job['iodepth_level'].values()) == 100.0
    assert job['write']['iops'] == 0.0


def test_a_whole_entry() -> None:
    """Writes are the shorter of the two, and their latency was not measured."""
    job = replace(READ, name='mixed', rw='randrw', iodepth=64, ramp_time=0.25)
    latency = Quantiles(1500, 9 * MS, 2.5 * MS, 0.5 * MS, {'50.000000': 2 * MS,
                                                           '99.000000': 8 * MS})
    read = Direction(300, 300 * 5000, 3000 * MS, latency, (
        Second(1.0, 90, 450000, 1), Second(2.0, 110, 550000, 2), Second(3.0, 100, 500000, 3)))
    write = Direction(100, 100 * 5000, 2500 * MS)
    measured = StepResult((StreamResult('0', read, write), StreamResult('1')), cpu_user=0.6,
                          cpu_system=0.3, cpu_share=0.4, engine='native')
    step = JobStep(job, (Stream('0', ()), Stream('1', ())), 3)
    found, idle = fio_json(STARTED, [step], [measured])['jobs']
    none: Json = {'min': 0, 'max': 0, 'mean': 0.0, 'stddev': 0.0, 'N': 0}
    lat_ns: Json = {'min': 1500, 'max': 9 * MS, 'mean': 2.5 * MS, 'stddev': 0.5 * MS, 'N': 300}
    assert found['read'] == {
        'io_bytes': 1500000, 'io_kbytes': 1464, 'bw_bytes': 500000, 'bw': 488, 'iops': 100.0,
        'runtime': 3000, 'total_ios': 300, 'short_ios': 0, 'drop_ios': 0, 'slat_ns': none,
        'clat_ns': {**lat_ns, 'percentile': latency.percentile}, 'lat_ns': lat_ns,
        'bw_min': 439, 'bw_max': 537, 'bw_agg': 100.0, 'bw_mean': 488.28125, 'bw_dev': 48.828125,
        'bw_samples': 3, 'iops_min': 90, 'iops_max': 110, 'iops_mean': 100.0, 'iops_stddev': 10.0,
        'iops_samples': 3,
        'seconds': [[1.0, 90, 450000, 1], [2.0, 110, 550000, 2], [3.0, 100, 500000, 3]]}
    nothing: Json = {
        **dict.fromkeys(FIO_DIRECTION, 0), 'slat_ns': none, 'clat_ns': none, 'lat_ns': none}
    assert found['trim'] == idle['trim'] == nothing
    assert idle['read'] == idle['write'] == {**nothing, 'seconds': []}
    assert found['write'] == {
        **nothing, 'io_bytes': 500000, 'io_kbytes': 488, 'bw_bytes': 200000, 'bw': 195,
        'iops': 40.0, 'runtime': 2500, 'total_ios': 100, 'clat_ns': {**none, 'N': 100},
        'lat_ns': {**none, 'N': 100}, 'seconds': []}
    for row, depth in ((found, '>=64'), (idle, None)):
        assert row['iodepth_level'] == {
            key: 100.0 if key == depth else 0.0 for key in '1 2 4 8 16 32 >=64'.split()}
        assert row['iodepth_submit'] == row['iodepth_complete'] == {
            key: 100.0 if key == '4' else 0.0 for key in '0 4 8 16 32 64 >=64'.split()}
    assert {key: value for key, value in found.items() if not isinstance(value, (dict, list))} == {
        'jobname': 'mixed', 'groupid': 0, 'error': 0, 'eta': 0, 'elapsed': 4, 'job_runtime': 3000,
        'usr_cpu': 10.0, 'sys_cpu': 5.0, 'ctx': 0, 'majf': 0, 'minf': 0, 'latency_depth': 64,
        'latency_target': 0, 'latency_percentile': 100.0, 'latency_window': 0, 'stream': '0',
        'osd': None, 'part': '', 'repetition': 3, 'errors': 0, 'corrupt': 0, 'unfinished': 0,
        'first_error': '', 'client_limited': False, 'engine': 'native'}
    assert found['repetitions'] == [{
        'repetition': 3, 'errors': 0, 'client_limited': False, 'cpu_share': 0.4, 'cut_short': '',
        'read': {'iops': 100.0, 'bw_bytes': 500000, 'lat_ns': 2.5 * MS, 'p50_ns': 2 * MS,
                 'p99_ns': 8 * MS},
        'write': {'iops': 40.0, 'bw_bytes': 200000, 'lat_ns': None, 'p50_ns': None,
                  'p99_ns': None}}]
    # Classes of latency: 2 ms is the median, and 8 ms the 99th percentile.
    assert [found['latency_ms'][key] for key in ('4', '10', '20', '2000', '>=2000')] == [
        pytest.approx(49 / 3), pytest.approx(50 - 49 / 3), 0.0, 0.0, 0.0]
    assert found['latency_ns']['1000'] == 0.0 and found['latency_us']['2'] > 0.0


@pytest.mark.parametrize('depth, level', [
    (1, '1'), (2, '2'), (3, '2'), (4, '4'), (7, '4'), (8, '8'), (16, '16'), (31, '16'), (32, '32'),
    (63, '32'), (64, '>=64'), (4096, '>=64')])
def test_classes_of_depth(depth: int, level: str) -> None:
    job, = document(replace(READ, iodepth=depth))['jobs']
    assert [key for key, share in job['iodepth_level'].items() if share] == [level]


def test_job_options() -> None:
    assert document()['jobs'][0]['job options'] == {
        'name': 'reads', 'ioengine': 'rados', 'rw': 'randread', 'bs': '4096', 'iodepth': '3',
        'numjobs': '1', 'size': '1048576', 'nrfiles': '4', 'runtime': '2', 'ramp_time': '0.4'}
    options = document(MIXED)['jobs'][0]['job options']
    assert (options['rwmixread'], options['rwmixwrite'], options['rate_iops'],
            options['io_size']) == ('70', '30', '50', str(1 << 30))


def test_the_median_repetition_is_told_and_all_are_kept() -> None:
    job, = document(READ, 100, 300, 200)['jobs']
    assert (job['read']['iops'], job['repetition']) == (200.0, 2)
    assert [(each['repetition'], each['read']['iops'], each['write'])
            for each in job['repetitions']] == [(0, 100.0, None), (1, 300.0, None),
                                                (2, 200.0, None)]
    assert job['repetitions'][0]['read'] == {
        'iops': 100.0, 'bw_bytes': 409600, 'lat_ns': float(MS), 'p50_ns': MS,
        'p99_ns': int(2.49 * MS)}
    job, = document(READ, 100, 400, 300, 200)['jobs']
    assert job['read']['iops'] == 200.0


def test_repetitions_that_were_cut_short_do_not_count_if_there_are_others() -> None:
    steps, results = repeated(READ, [100, 300, 200])
    cut = [replace(results[0], cut_short='cancelled'), results[1],
           replace(results[2], cut_short='cancelled')]
    job, = fio_json(STARTED, steps, cut)['jobs']
    assert job['repetition'] == 1
    assert [each['cut_short'] for each in job['repetitions']] == ['cancelled', '', 'cancelled']
    job, = fio_json(STARTED, steps, [replace(each, cut_short='x') for each in results])['jobs']
    assert job['repetition'] == 2


def test_a_run_that_has_not_come_far() -> None:
    steps, results = repeated(READ, [100, 300, 200])
    job, = fio_json(STARTED, steps, results[:1])['jobs']
    assert len(job['repetitions']) == 1
    empty = fio_json(0.0, steps, [])
    assert empty['jobs'] == [] and empty['global options'] == {} and empty['errors'] == 0
    idle = replace(results[0], streams=(StreamResult('0'),))
    job, = fio_json(STARTED, steps, [idle])['jobs']
    assert (job['usr_cpu'], job['elapsed'], job['latency_ms']['>=2000']) == (0.0, 1, 0.0)
    assert [job['read'][key] for key in ('bw_mean', 'bw_agg', 'bw_samples', 'iops_mean',
                                         'iops_samples')] == [0] * 5
    assert sum(job['iodepth_level'].values()) == 0.0
    assert job['repetitions'][0]['read'] is None


def test_errors() -> None:
    steps, results = repeated(READ, [100, 300, 200])
    streams = [StreamResult('0', results[0].streams[0].read, errors=2, unfinished=1,
                            first_error='timed out'),
               StreamResult('0', results[1].streams[0].read, corrupt=4),
               results[2].streams[0]]
    broken = [replace(each, streams=(stream,), client_limited=stream is streams[1])
              for each, stream in zip(results, streams)]
    found = fio_json(STARTED, steps, broken)
    job, = found['jobs']
    assert (found['errors'], found['client_limited'], job['client_limited']) == (7, True, True)
    assert (job['errors'], job['corrupt'], job['unfinished'], job['first_error']) == (
        7, 4, 1, 'timed out')
    assert [each['errors'] for each in job['repetitions']] == [3, 4, 0]
    assert job['error'] == 0, 'the repetition that is told had none'
    for repetition, code in ((0, 5), (1, 84)):
        job, = fio_json(STARTED, steps, broken[repetition:repetition + 1])['jobs']
        assert job['error'] == code


def test_an_entry_for_each_stream_and_part() -> None:
    job = replace(READ, numjobs=2)
    both = (Stream('osd.1', (), 1), Stream('osd.2', (), 2))
    steps = [JobStep(job, both[:1], 0, 'alone'), JobStep(job, both[1:], 0, 'alone'),
             JobStep(job, both, 0, 'together')]
    results = [result(job, [100]), result(job, [110]), result(job, [60, 70])]
    found = fio_json(STARTED, steps, results)
    assert [(each['stream'], each['osd'], each['part'], each['read']['iops'])
            for each in found['jobs']] == [
        ('osd.1', 1, 'alone', 100.0), ('osd.2', 2, 'alone', 110.0),
        ('osd.1', 1, 'together', 60.0), ('osd.2', 2, 'together', 70.0)]
    assert [each['usr_cpu'] for each in found['jobs']] == [25.0, 25.0, 12.5, 12.5]


def two_jobs() -> Json:
    steps, results = repeated(READ, [100])
    more = repeated(replace(READ, name='writes', rw='randwrite'), [100])
    return fio_json(STARTED, [*steps, *more[0]], [*results, *more[1]])


def test_global_options_are_what_all_jobs_share() -> None:
    found = two_jobs()
    assert 'rw' not in found['global options'] and 'name' not in found['global options']
    assert found['global options']['bs'] == '4096'


def test_readers_find_their_keys() -> None:
    """What fio-plot (1.1.21), the Ceph Benchmarking Tool's post processing and its
    fio-parse-jsons.py look up, in the document of one job."""
    found = fio_json(STARTED, *repeated(READ, [100]))
    shared = found['global options']
    assert int(shared['iodepth']) == 3 and int(shared['numjobs']) == 1 and shared['runtime'] == '2'
    # The Ceph Benchmarking Tool takes blocks for bytes, once it has cut off one letter.
    assert int(shared['bs']) == 4096 and shared['rw'] == 'randread'
    for job in found['jobs']:
        assert job['jobname'] != 'All clients'
        assert {'rw', 'iodepth', 'numjobs', 'bs'} <= job['job options'].keys()
        # fio-plot lays the global options over those of the job.
        assert {**job['job options'], **shared} == job['job options']
        for name in ('read', 'write'):
            numbers: Dict[str, Any] = job[name]
            for key in ('io_bytes', 'bw_bytes', 'total_ios'):
                assert type(numbers[key]) is int
            rates: List[float] = [numbers[key] for key in ('iops', 'bw', 'iops_stddev')]
            rates += [numbers[kind][key] for kind in ('clat_ns', 'lat_ns')
                      for key in ('mean', 'stddev')]
            assert all(math.isfinite(rate) for rate in rates)
        assert all(isinstance(job[key], float) for key in ('usr_cpu', 'sys_cpu'))
        shares = [share for unit in ('latency_ns', 'latency_us', 'latency_ms')
                  for share in job[unit].values()]
        assert sum(shares) == pytest.approx(100.0) and min(shares) >= 0.0


def test_mixed_jobs_report_both_shares() -> None:
    shared = document(MIXED, 100)['global options']
    assert (shared['rwmixread'], shared['rwmixwrite']) == ('70', '30')


def test_classes_of_latency() -> None:
    # A quarter of all took less than 1 us, half of them 1 us to 3 ms, a quarter more than 2 s.
    latency = Quantiles(500, 3000 * MS, 1.0, 1.0, {'25.000000': 1000, '75.000000': 3 * MS,
                                                   '75.000001': 2000 * MS})
    found = StreamResult('0', Direction(100, 409600, 1000 * MS, latency))
    steps, results = repeated(READ, [100])
    job, = fio_json(STARTED, steps, [replace(results[0], streams=(found,))])['jobs']
    assert sum(job['latency_ns'].values()) == pytest.approx(25.0)
    assert job['latency_ns']['500'] == 0.0 and job['latency_ns']['750'] == pytest.approx(12.5)
    assert job['latency_ms']['4'] == pytest.approx(50.0 / 3, rel=0.01)
    assert job['latency_ms']['>=2000'] == pytest.approx(25.0, abs=0.01)


def test_share_below_where_all_are_alike() -> None:
    same = Quantiles(MS, MS, float(MS), 0.0, {'50.000000': MS, '99.000000': MS})
    assert [share_below(same, ns) for ns in (0, MS, MS + 1)] == [0.0, 0.0, 1.0]


def test_a_short_last_second_does_not_count() -> None:
    short = Direction(210, 210, 2100 * MS, None, (
        Second(1.0, 100, 100, 1), Second(2.0, 100, 100, 1), Second(2.1, 10, 10, 1)))
    found = direction(short)
    assert (found['iops_min'], found['iops_samples']) == (100, 2)
    only = direction(replace(short, seconds=(Second(0.1, 10, 10, 1),)))
    assert (only['iops_min'], only['iops_max'], only['iops_samples']) == (100, 100, 1)
    # Half a second suffices; one that is not after the one before has no length.
    half = direction(replace(short, seconds=(Second(1.0, 90, 90, 1), Second(1.5, 100, 100, 1))))
    assert (half['iops_min'], half['iops_max'], half['iops_samples']) == (90, 200, 2)
    twice = direction(replace(short, seconds=(Second(1.0, 90, 90, 1), Second(1.0, 100, 100, 1))))
    assert (twice['iops_max'], twice['iops_stddev'], twice['iops_samples']) == (90, 0.0, 1)
    assert found['clat_ns']['N'] == 210 and 'percentile' not in found['clat_ns']
    # Series that were thinned for the history.
    thin = direction(replace(short, seconds=(Second(2.0, 200, 200, 1), Second(4.0, 300, 300, 1))))
    assert (thin['iops_min'], thin['iops_max']) == (100, 150)
