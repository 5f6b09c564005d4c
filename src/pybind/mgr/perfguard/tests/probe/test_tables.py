# SPDX-License-Identifier: LGPL-2.1-or-later
"""Probes as tables."""
from dataclasses import replace
from typing import Any, Sequence

from perfguard.probe import tables
from perfguard.probe.fio_json import fio_json
from perfguard.probe.jobs import parse_jobs
from perfguard.probe.limits import budget_of, preview_json, refusals
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
    return tables.preview(preview_json(target, jobs, 3, budget, refusals(budget, None, 10, 1e6)))


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
