# SPDX-License-Identifier: LGPL-2.1-or-later
"""Probes as tables."""
from dataclasses import replace
from typing import Any, Dict, List, Sequence

from perfguard.probe import tables
from perfguard.probe.fio_json import fio_json
from perfguard.probe.jobs import parse_jobs
from perfguard.probe.limits import budget_of, budget_refusals, preview_json
from perfguard.probe.osd_bench import store_budget
from perfguard.probe.types import Job, JobStep, StepResult, Stream, StreamResult, Target

from ..fakes.probe_runs import repeated, result

MIXED = Job('mixed', 'randrw', bs=4096, iodepth=1, size=1 << 20, nrfiles=4, runtime=2.0)
READS = replace(MIXED, name='reads', rw='randread')
RUN = {'id': 7, 'state': 'done', 'verdict': ''}


def shown(steps: Sequence[JobStep], results: Sequence[StepResult], started: float = 0.0,
          **run: Any) -> str:
    return tables.show({**RUN, **run, **fio_json(started, steps, results)})


def cells(text: str, begin: str) -> list:
    """The first line of a table that begins so."""
    return next(line.split() for line in text.splitlines() if line.startswith(begin))


def test_a_row_for_each_direction() -> None:
    text = shown(*repeated(MIXED, [100, 130, 120]))
    assert cells(text, 'job') == ['job', 'IOPS', 'MB/s', 'spread', 'mean', 'p50', 'p95', 'p99',
                                  'p99.9', 'max', 'errors']
    rows = [line.split() for line in text.splitlines() if line.startswith('mixed')]
    assert rows == [
        ['mixed', 'read', '120', '0.5', '30', '%', '1', '1', '1.45', '2.49', '2.5', '4', '0'],
        ['mixed', 'write', '120', '0.5', '30', '%', '2', '2', '2.9', '4.98', '5', '8', '0']]
    assert text.startswith('probe 7: done\n') and 'client_limited' not in text


def test_streams_are_added_up() -> None:
    streams = Stream('0', ()), Stream('1', ())
    steps = [JobStep(READS, streams, repetition) for repetition in (0, 1)]
    text = shown(steps, [result(READS, [100, 50]), result(READS, [150, 150])])
    assert cells(text, 'reads')[:6] == ['reads', 'read', '150', '0.6', '100', '%']


def test_osds_and_parts() -> None:
    streams = (Stream('osd.1', (), 1), Stream('osd.2', (), 2))
    steps = [JobStep(READS, streams[:1], 0, 'alone'), JobStep(READS, streams, 0, 'together')]
    text = shown(steps, [result(READS, [100]), result(READS, [60, 7])])
    rows = [line.split()[:5] for line in text.splitlines() if line.startswith('reads')]
    assert rows == [['reads', 'osd.1', 'alone', 'read', '100'],
                    ['reads', 'osd.1', 'together', 'read', '60'],
                    ['reads', 'osd.2', 'together', 'read', '7']]
    assert cells(text, 'job')[:3] == ['job', 'of', 'part']


def test_what_else_is_to_be_said() -> None:
    steps, results = repeated(READS, [100])
    failed = replace(results[0], client_limited=True, streams=(
        StreamResult('0', errors=3, first_error='[errno 110] timed out'),))
    text = shown(steps, [failed], verdict='below', profile='quick', target='cluster:x3',
                 state='failed', messages=['osd.3 went down'], started=1e9)
    assert text.startswith('probe 7: failed, quick, cluster:x3, 2001-09-0')
    assert cells(text, 'reads')[1:4] == ['read', '0', '0.0'] and cells(text, 'reads')[-1] == '3'
    assert 'write' not in text.splitlines()[3]
    assert 'reads: [errno 110] timed out' in text and 'verdict: below' in text
    assert 'the CPU of the probe process was the bottleneck' in text
    assert text.endswith('\n- osd.3 went down')


def test_nothing_measured() -> None:
    assert 'no measurements' in shown([], [], state='queued')


def test_runs() -> None:
    assert tables.runs({'probes': []}) == 'no probes'
    row = {'id': 3, 'state': 'done', 'profile': 'quick', 'target': 'cluster:x3',
           'trigger': 'nightly', 'started': 1e9, 'ended': 1e9 + 55, 'verdict': 'as expected'}
    text = tables.runs({'probes': [row, {**row, 'id': 4, 'state': 'running', 'profile': '',
                                         'ended': 0.0}]})
    lines = text.splitlines()
    assert len(lines) == 3 and '55 s' in lines[1] and '55 s' not in lines[2]
    assert lines[1].split()[:5] == ['3', 'done', 'quick', 'cluster:x3', 'nightly']


def preview(**changes: Any) -> str:
    target = Target('cluster')
    jobs = [replace(job, **changes) for job in parse_jobs('latency', {}, None)]
    budget = budget_of(jobs, target, 3, 3)
    refused = budget_refusals(budget, None, 10, 1e6, None, None)
    return tables.preview(preview_json(target, jobs, 3, budget, refused))


def test_preview() -> None:
    text = preview()
    assert text.startswith('measures cluster:x3: 6 measurements, 3 repetitions of each:')
    assert cells(text, 'randwrite-4k-1') == ['randwrite-4k-1', 'randwrite', '4k', '1', '1', '256',
                                             '256m', '1', '+', '10']
    assert 'writes 256 objects (256.0 MiB, with all replicas 768.0 MiB)' in text
    assert 'takes about 74 s, at most 116 s' in text
    assert 'an unlimited number of bytes' in text
    assert text.endswith('refused: the probe would store 768.0 MiB (limit 10 B, probe_max_bytes)')
    assert 'reads and writes at most 2.6 MiB' in preview(rate_iops=10)


def test_the_preview_of_a_bench_of_the_stores_shows_no_jobs() -> None:
    target = Target('store', '', (0, 3))
    text = tables.preview(preview_json(target, (), 2, store_budget(2, 2), ()))
    first, *_, takes, writes = text.splitlines()
    assert first == "runs the OSDs' own bench (%s) on one OSD at a time, 2 repetitions:" \
        % target.key
    assert takes.startswith('takes about ') and writes == (
        'writes 1.6 GiB first, then at most 558.9 MiB, and stores at most 400.0 MiB at a time')
    assert 'measurement' not in text and 'replicas' not in text and '0 objects' not in text


# ---- Details

def measured(value: float) -> Dict[str, float]:
    return {'median': value, 'low': 0.9 * value, 'high': 1.1 * value}


def point(depth: int, iops: float) -> Dict[str, Any]:
    return {'depth': depth, 'iops': measured(iops), 'latency_ns': measured(1e6 * depth),
            'p99_ns': measured(2e6 * depth)}


def scaled(osds: int, hosts: Any, linear: float) -> Dict[str, Any]:
    return {'hosts': hosts, 'osds': osds, 'iops': measured(1000.0 * osds * linear),
            'latency_ns': measured(1e6 / linear), 'linear': linear}


RANK = {'osd': 3, 'host': 'h1', 'device_class': 'ssd', 'job': 'latency', 'direction': 'read',
        'iops': 1234.6, 'latency_ns': 812345.0, 'ratio': 0.51, 'outlier': True}
CURVE = {'label': 'randwrite 4096 write', 'knee_depth': 2, 'peak_depth': 4,
         'points': [point(1, 99.5), point(2, 1000.0), point(4, 1100.4)],
         'last_tenth': {'from_iops': 100.0, 'to_iops': 1100.0, 'times': 2.04,
                        'from_latency_ns': 1.96e6, 'to_latency_ns': 100e6},
         'notes': ['it still rises']}
EMPTY: Dict[str, List[Any]] = {
    'expected': [], 'osds': [], 'curves': [], 'scalings': [], 'conditions': [], 'findings': []}


def details(**parts: Any) -> List[str]:
    """The lines below the measurements."""
    plain = {**RUN, **EMPTY, **fio_json(0.0, *repeated(READS, [100]))}
    begin, lines = tables.details(plain), tables.details({**plain, **parts}).splitlines()
    assert lines[:len(begin.splitlines())] == begin.splitlines()
    return lines[len(begin.splitlines()):]


def test_details_without_findings_end_after_the_measurements() -> None:
    assert details() == []


def test_expectations_disturbances_and_findings() -> None:
    assert details(expected=[{'label': 'reads read', 'verdict': 'below', 'why': '100 IOPS'}],
                   conditions=['deep scrub', 'recovery'], findings=['osd.3 is slow', 'b']) == [
        '', 'reads read: below (100 IOPS)', '', 'disturbed by: deep scrub, recovery',
        '', '! osd.3 is slow', '! b']


def test_ranks_begin_with_the_slowest_osd() -> None:
    """OSDs without peers count as fast as theirs."""
    assert details(osds=[
        {**RANK, 'osd': 5, 'ratio': 1.2, 'outlier': False},
        {**RANK, 'osd': 4, 'ratio': None, 'latency_ns': 0.0, 'outlier': False}, RANK]) == [
        '',
        'OSD    host  class  job            IOPS     ms  ratio to peers  remarks',
        'osd.3  h1    ssd    latency  read  1235  0.812            0.51  slow',
        'osd.4  h1    ssd    latency  read  1235      -               -',
        'osd.5  h1    ssd    latency  read  1235  0.812            1.20']


def test_a_curve() -> None:
    lines = [
        'randwrite 4096 write',
        '',
        'depth  IOPS   low  high  mean ms  low   high   p99 ms  remarks',
        '    1  99.5  89.5   109        1   0.9    1.1       2',
        '    2  1000   900  1100        2   1.8    2.2       4  knee',
        '    4  1100   990  1210        4   3.6    4.4       8  peak',
        '',
        'knee: 1000 IOPS at 2 ms (depth 2)']
    assert details(curves=[CURVE, {**CURVE, 'last_tenth': None, 'notes': []}]) == [
        '', *lines, 'the last 10 % of throughput, from 100 to 1100 IOPS, raise latency 2.0 times, '
        'from 1.96 to 100 ms', '- it still rises', '', *lines]


def test_scaling_by_osd_and_by_host() -> None:
    by_osd = {'label': 'randread 4096 read', 'notes': ['below 80 % of linear'],
              'points': [scaled(1, None, 1.0), scaled(2, None, 0.754)]}
    by_host = {'label': 'randread 4096 read', 'notes': [],
               'points': [scaled(3, 1, 1.0), scaled(6, 2, 0.9)]}
    assert details(scalings=[by_osd, by_host]) == [
        '', 'randread 4096 read', '',
        'OSDs  IOPS   low  high  of linear  mean ms',
        '   1  1000   900  1100      100 %        1',
        '   2  1508  1357  1659       75 %     1.33',
        '', '- below 80 % of linear',
        '', 'randread 4096 read', '',
        'hosts  OSDs  IOPS   low  high  of linear  mean ms',
        '    1     3  3000  2700  3300      100 %        1',
        '    2     6  5400  4860  5940       90 %     1.11']


def test_a_direction_without_operations_has_no_latency_and_no_spread() -> None:
    steps, results = repeated(READS, [100, 100])
    failed = [replace(each, streams=(StreamResult('0', errors=2, first_error='EIO'),))
              for each in results]
    assert cells(shown(steps, failed), 'reads') == [
        'reads', 'read', '0', '0.0', *7 * ['-'], '4']
    assert cells(shown(steps[:1], results[:1]), 'reads')[4] == '-'


# ---- Other tables

def test_a_comparison() -> None:
    assert tables.comparison({
        'before': 3, 'after': 7, 'verdict': 'slower', 'notes': ['one', 'two'], 'lines': [
            {'job': 'latency read', 'verdict': 'slower', 'why': '0.5 times'},
            {'job': 'x', 'verdict': 'no difference', 'why': ''}]}).splitlines() == [
        'probe 7 compared with probe 3: slower', '',
        'job           verdict        why',
        'latency read  slower         0.5 times',
        'x             no difference', '- one', '- two']


def test_runs_take_no_time_before_they_have_begun() -> None:
    row = {'id': 3, 'state': 'done', 'profile': 'quick', 'target': 'cluster:x3',
           'trigger': 'nightly', 'started': 0.0, 'ended': 5.0, 'verdict': 'as expected'}
    assert tables.runs({'probes': [row, {**row, 'id': 14, 'profile': ''}]}).splitlines() == [
        'id  state  profile  measured    by       started  took  verdict',
        ' 3  done   quick    cluster:x3  nightly                 as expected',
        '14  done   -        cluster:x3  nightly                 as expected']


def test_the_order_of_a_probe() -> None:
    assert tables.started({'dry_run': False, 'id': 4, 'remarks': ['ignored: direct']}) == (
        'probe 4 has begun; see "perfguard probe show 4"\nignored: direct')


def test_baselines_and_schedules() -> None:
    baseline = {'id': 1, 'target': 'pool:rbd', 'profile': 'quick', 'slower': [
        {'probe': 7, 'why': ['a', 'b']}, {'probe': 8, 'why': ['c']}]}
    assert tables.baselines({'baselines': [baseline, {
        'id': 12, 'target': 'cluster:x3', 'profile': 'latency', 'slower': []}]}).splitlines() == [
        'baseline  measured    profile  remarks',
        '       1  pool:rbd    quick    probe 7 is slower: a; probe 8 is slower: c',
        '      12  cluster:x3  latency']
    assert tables.schedules({'schedules': [{
        'name': 'nightly', 'begin_time': '0200', 'end_time': '0400', 'begin_weekday': '1',
        'end_weekday': '5', 'every_days': 1, 'probe': {'profile': 'quick', 'pool': 'rbd'},
        'refused': 'not now'}]}).splitlines() == [
        'schedule  from    to  from day  to day  every  probe                   remarks',
        'nightly   0200  0400         1       5      1  pool=rbd profile=quick  not now']
    assert tables.probes({'probes': [], 'baselines': [], 'schedules': []}) == (
        'no probes\n\nno baselines (add one with "probe baseline <id>")\n\n'
        'no schedules (add one with "probe schedule <name>")')


def test_capacity() -> None:
    unknown = {'pool': 'cold', 'p99_ms': 10.0, 'capacity': None, 'ops': 0.0, 'others': 0.0,
               'used': None, 'busiest': None, 'full_seconds': None, 'probe': None, 'remarks': []}
    assert tables.capacity({'pools': [{
        'pool': 'rbd', 'p99_ms': 5.5, 'capacity': {'median': 1.0, 'low': 1234.0, 'high': 45678.0},
        'ops': 12.34, 'others': 0.0, 'used': {'median': 0.2, 'low': 0.15, 'high': 0.3},
        'busiest': 0.4, 'full_seconds': 0.0, 'probe': 7,
        'remarks': [{'text': 'a'}, {'text': 'b'}]}, unknown]}).splitlines() == [
        'pool  p99 ms     serves ops/s  now ops/s  others               used  busiest hour  '
        'full in  probe  remarks',
        'rbd      5.5  1,234 to 45,678       12.3       0  20 % (15 to 30 %)          40 %      '
        '0 s      7  a; b',
        'cold      10                -          0       0                  -             -        '
        '-      -']


def test_expected_values_and_the_capacity_of_pools() -> None:
    row = {'direction': 'read', 'bs': 4096, 'iodepth': 1, 'low': 1000.0, 'high': 4000.0,
           'unit': 'iops', 'measured': 700.0, 'probe': 2, 'verdict': 'below'}
    linear = {**row, 'bs': 4 << 20, 'iodepth': 16, 'unit': 'bytes_per_second', 'low': 324e6,
              'high': 720e6, 'measured': None, 'probe': None, 'verdict': None}
    pool: Dict[str, Any] = {
        'pool': 'rbd', 'device_class': 'ssd', 'osds': 8, 'copies': '3x', 'expected': [row, linear]}
    capacity = {**pool, 'usable_tib': 2666.6, 'read_iops': {'low': 8e4, 'high': 16e4},
                'write_iops': {'low': 26666.0, 'high': 53333.0},
                'write_iops_per_tib': {'low': 1e4, 'high': 2e4},
                'linux_vms': {'low': 1333.9, 'high': 2666.0},
                'windows_vms': {'low': 600.0, 'high': 1200.0}}
    assert tables.expected({'pools': [
        pool, {**pool, 'pool': '', 'expected': [{**linear, 'measured': 2e8}]},
        {**pool, 'pool': 'odd', 'device_class': '', 'expected': []},
        {**pool, 'pool': '', 'device_class': '', 'expected': []},
        {**pool, 'pool': 't', 'device_class': 'tape', 'expected': []}],
        'capacity': [capacity, {**pool, 'read_iops': None}]}).splitlines() == [
        'pool       class  OSDs  copies  job                             expected  measured  '
        'probe  verdict',
        'rbd        ssd       8      3x  read 4k, iodepth 1   1,000 to 4,000 IOPS  700 IOPS      '
        '2  below',
        'rbd        ssd       8      3x  read 4m, iodepth 16      324 to 720 MB/s         -      '
        '-  -',
        '(cluster)  ssd       8      3x  read 4m, iodepth 16      324 to 720 MB/s  200 MB/s      '
        '-  -',
        '',
        'pool  class  OSDs  copies  usable TiB         4k reads/s       4k writes/s  '
        'writes/s per TiB       Linux VMs   Windows VMs',
        'rbd   ssd       8      3x       2,667  80,000 to 160,000  26,666 to 53,333  '
        '10,000 to 20,000  1,333 to 2,666  600 to 1,200',
        'Pools that share OSDs share their operations. A TiB is a CRUSH weight of 1.',
        '',
        'no published values for device class (mixed or none): odd, (cluster)',
        'no published values for device class tape: t']
