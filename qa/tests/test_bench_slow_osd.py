# SPDX-License-Identifier: LGPL-2.1-or-later
"""The bench of slow OSDs: recordings are read as written, and its cases are what they say.

No cluster is needed.
"""
import gzip
from pathlib import Path
from typing import Dict, List

import numpy as np
import pytest

from perfguard import tables
from perfguard.watch.report import OsdRow, exported_json
from perfguard.watch.series import HistoryPoint
from qa.bench import recorded
from qa.bench.bench_slow_osd import (Tally, chronic_cases, healthy_cases, named_cases,
                                     standing_cases, watch)
from qa.bench.detectors import PeerEvaluation
from qa.bench.traces import build

HEADER = 'timestamp,disk,node,iops,latency,slow\n'


CASES = {case.name: case for case in [*named_cases(), *healthy_cases(1.0), *chronic_cases(),
                                      *standing_cases()]}


def tallies(name: str) -> Dict[str, Tally]:
    """By detector, of the first trace of a case."""
    return {watcher.detector.name: watcher.tally() for watcher in watch(build(CASES[name], 0))}


def row(osd: int) -> OsdRow:
    return OsdRow(osd, 'h%d' % (osd // 2), 'ssd', 'm')


def test_an_export_of_the_module_is_a_trace(tmp_path: Path) -> None:
    points = [HistoryPoint(1e9 + 5 * beat, 5.0, (500.0, 5e8 * (beat + 1), 0.0, 0.0, 250.0, 5e8))
              for beat in range(4)]
    text = tables.exported(exported_json('cluster', [(row(osd), points) for osd in range(4)]))
    (tmp_path / 'a.csv').write_text(text)
    (trace,) = recorded.load(tmp_path)
    assert (trace.beats, trace.case.beat, trace.names[3]) == (4, 5.0, 'osd.3')
    assert trace.places[2][1:] == ('h1', 'default', 'ssd', 'm', '', '', ())
    sample = trace.samples(2)[3]
    assert (sample.read, sample.commit) == ((100.0, 3.0), (50.0, 2.0))
    assert sample.write[0] == 0.0 and sample.seconds == 5.0


def test_recordings_of_others(tmp_path: Path) -> None:
    """Other names of columns, a gap of a night, labels, compressed."""
    lines = ['%d,%s,n,%d,%g,%d' % (time, disk, 40, 9.0 if disk == 'b' else 1.0, disk == 'b')
             for time in (30, 45, 60, 86430) for disk in ('a', 'b', 'c')]
    with gzip.open(tmp_path / 'x.csv.gz', 'wt') as file:
        file.write(HEADER + '\n'.join(lines))
    (trace,) = recorded.load(tmp_path)
    assert [trace.clock(beat) for beat in range(4)] == [0.0, 15.0, 30.0, 86400.0]
    assert (trace.slow, trace.onset, trace.name(1)) == ({1}, 0, 'b')
    assert trace.device()[1][0].tolist() == [1.0, 9.0, 1.0]


def test_the_published_recordings(tmp_path: Path) -> None:
    (tmp_path / 'slow_drive_info.csv').write_text(
        'cluster,host_name,workload,disk_id,\ncluster_A,h2,block,disk1,\ncluster_A,host_2,block,'
        'disk1,\n')
    for host in ('host_1', 'host_2'):
        (tmp_path / 'cluster_A' / host).mkdir(parents=True)
        (tmp_path / 'cluster_A' / host / '2022-07-30.csv').write_text(
            '"ts","disk_id","throughput","latency"\n' + ''.join(
                '%d,"disk1",32768.0,%s\n' % (time, latency)
                for time, latency in ((30, 80.0), (45, 'NA'), (60, 90.0))))
        (tmp_path / 'cluster_A' / host / '._2022-07-30.csv').write_bytes(b'\0')
    (trace,) = recorded.load(tmp_path)
    assert (trace.case.name, trace.names, trace.slow) == (
        'cluster_A', ['host_1/disk1', 'host_2/disk1'], {1})
    assert [trace.clock(beat) for beat in range(trace.beats)] == [0.0, 30.0]
    assert [flow.tolist() for flow in trace.flows['commit']] == [
        [[2.0, 2.0], [2.0, 2.0]], [[0.08, 0.08], [0.09, 0.09]]]


@pytest.mark.parametrize('text, problem', [
    ('time,drive,latency\n', 'has no column throughput'), (HEADER + '1,a,n,x,1,0\n', 'line 2'),
    (HEADER, 'without rows'), ('', 'has no column')])
def test_a_file_that_is_not_a_recording_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / 'x.csv').write_text(text)
    with pytest.raises(ValueError, match=problem):
        list(recorded.load(tmp_path))
    with pytest.raises(ValueError, match='no .*csv'):
        list(recorded.load(tmp_path / 'nothing'))


def test_intermittent_drives_are_slow_for_their_share_of_the_time() -> None:
    """Over 14 days of three hours, with the night between two of them."""
    trace = build(CASES['flash, 10 % at 5 x'], 0)
    assert (trace.beats, trace.clock(720)) == (14 * 720, 86400.0)
    _, ms = trace.device()
    ratio = ms / np.median(ms, axis=1)[:, None]
    shares = (ratio[trace.onset:] > 2.5).mean(axis=0)
    assert all(0.05 < shares[osd] < 0.15 for osd in trace.slow), shares
    assert np.median(shares) < 0.02
    p95 = np.percentile(ratio[trace.onset:], 95, axis=0)
    assert all(2 < p95[osd] < 15 for osd in trace.slow), p95


def test_peer_evaluation_takes_half_of_five_minutes() -> None:
    trace = build(CASES['flash, healthy with tails'], 0)
    rate, ms = trace.flows['commit']
    ms[:] = 1.0
    ms[100:, 5] = 2.0
    detector = PeerEvaluation(trace)
    first: List[int] = [beat for beat in range(130) if detector.flagged(beat) == {5}]
    assert first[0] == 100 + 10


@pytest.mark.parametrize('name, slow, seconds', [
    ('NVMe 0.4 -> 8 ms', 1, 60), ('disk 10 -> 60 ms', 1, 180), ('flash, reads only', 1, 180),
    ('disk, writes only', 1, 300), ('a whole host, flash', 6, 240)])
def test_drives_that_are_slow_all_the_time_are_found(name: str, slow: int, seconds: float) -> None:
    found = tallies(name)
    assert (found['perfguard'].right, found['perfguard'].missed) == (slow, 0)
    assert max(found['perfguard'].seconds) <= seconds
    assert all(found[view].false == 0 for view in ('perfguard', 'chronic'))
    assert found['chronic'].right == 0, 'half an hour is not again and again'
    assert found['#69995'].right == 0, 'it is blind below 100 ms'


@pytest.mark.parametrize('name', [
    'hot, healthy flash', 'backfill, healthy disk', 'flash, healthy with tails',
    'disk, healthy with tails', 'flash, healthy, batch each night',
    'flash, healthy, OSDs join and leave', 'disks, half with DB, healthy'])
def test_healthy_drives_are_not_slow(name: str) -> None:
    found = tallies(name)
    assert all((found[view].false, found[view].raised) == (0, 0)
               for view in ('perfguard', 'chronic'))
    if 'disk' in name:
        assert found['peer eval.'].false > 0, 'these traces could deceive nobody'


# At twice the latency, some intervals are within the noise and do not count.
@pytest.mark.parametrize('name, minutes', [
    ('flash, slow all the time', 30), ('flash, twice as slow all the time', 45),
    ('flash, slow all the time, 20 failovers', 30), ('disks, half with DB, slow all the time', 30)])
def test_drives_that_remain_slow_are_one_finding(name: str, minutes: int) -> None:
    """In 14 days with a night after each, and nothing else is raised from then on."""
    found = tallies(name)
    chronic = found['chronic']
    assert (chronic.right, chronic.missed, chronic.false, chronic.raised) == (2, 0, 0, 2)
    assert max(chronic.seconds) <= 60.0 * minutes
    assert found['perfguard'].raised <= 2 and found['perfguard'].false == 0


def test_two_slow_hosts_of_four_are_a_part_of_the_class() -> None:
    found = tallies('two slow hosts of four')
    assert (found['perfguard'].right, found['perfguard'].false) == (12, 0)
    assert found['chronic'].right == found['chronic'].false == 0


@pytest.mark.parametrize('name', ['flash, 3 % at 8 x', 'disk, 10 % at 3 x'])
def test_drives_that_are_slow_again_and_again_are_one_finding(name: str) -> None:
    chronic = tallies(name)['chronic']
    assert (chronic.right, chronic.missed, chronic.false) == (2, 0, 0)
    assert chronic.raised == 2, 'each is raised once in 14 days'
    assert max(chronic.seconds) <= 24 * 3600.0
