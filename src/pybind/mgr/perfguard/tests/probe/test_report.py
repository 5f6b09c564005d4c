# SPDX-License-Identifier: LGPL-2.1-or-later
"""What commands see of the probes, as data and as tables."""
import errno
import json
from dataclasses import replace
from typing import Any, Dict, List

import pytest

from perfguard.cluster.types import OsdPlace
from perfguard.errors import PerfguardError, Refused
from perfguard.probe import report as probed_module, tables
from perfguard.probe.compare import compare, rank
from perfguard.probe.expectations import Layout, expect
from perfguard.probe.orders import RunOrder
from perfguard.probe.records import ABORTED, DONE, FAILED, RELEASE, RunRecord
from perfguard.probe.report import Caches, Probed, Results
from perfguard.probe.schedules import Baselines, Regression, schedule_of
from perfguard.probe.tables import runs
from perfguard.probe.types import Counted, Job, JobStep, StepResult, Stream, Target

from ..fakes import probe_runs

JOB = Job('latency', 'randread', 4096, 1, 1 << 20, 4, 2.0)
OSDS = tuple(range(8))
PLACES = {osd: OsdPlace(osd, 'host%d' % (osd % 4), 'default', 'ssd') for osd in OSDS}


def record(run: int, *rates: int, **changes: Any) -> RunRecord:
    steps, results = probe_runs.repeated(JOB, rates)
    plain = RunRecord(run, DONE, 'latency', Target('pool', 'rbd'), 100.0, 101.0, 130.0,
                      steps=tuple(steps), results=tuple(results))
    return replace(plain, **changes)


def by_osd(run: int, slow: int, part: str = '') -> RunRecord:
    steps = tuple(JobStep(JOB, (Stream('osd.%d' % osd, (), osd),), 0, part) for osd in OSDS)
    results = tuple(probe_runs.result(JOB, [300 if osd == slow else 2000]) for osd in OSDS)
    return record(run, target=Target('osd', '', OSDS), steps=steps, results=results,
                  counted=(Counted(0, 5, 6),), conditions=('deep scrub',))


SLOWER = Regression(1, 2, 'pool:rbd', ('latency read: slow',))
PROBED = Probed(
    records=(record(1, 2000, 2100, 2050), record(2, 700, 710, 690), by_osd(3, 5),
             record(4, state=FAILED, messages=('no connection', 'objects left: 3'))),
    running=record(5, state='running', messages=('step 1 of 6',)),
    schedules=(schedule_of('nightly', RunOrder(profile='quick'), {'begin_time': '0200'}),),
    refused={'nightly': 'not now'}, baselines=Baselines().with_run(record(1, 2000)),
    regressions=(SLOWER,), places=PLACES, layouts={'rbd': Layout(8, 3)})


def test_the_list() -> None:
    found = json.loads(json.dumps(PROBED.listing()))
    rows: Dict[int, Any] = {row['id']: row for row in found['probes']}
    assert list(rows) == [1, 2, 3, 4, 5]
    assert [row['id'] for row in rows.values() if row['baseline']] == [1]
    assert rows[1]['verdict'] == 'as expected'
    assert rows[2]['verdict'] == 'slower than its baseline'
    assert rows[4]['message'] == 'no connection' and rows[4]['verdict'] == 'failed: no connection'
    assert rows[5]['message'] == 'step 1 of 6' and rows[5]['state'] == 'running'
    text = runs(PROBED.listing())
    assert 'slower than its baseline' in text and 'pool:rbd' in text


def test_details() -> None:
    found = json.loads(json.dumps(PROBED.details(3)))
    assert [row['osd'] for row in found['osds'] if row['outlier']] == [5]
    assert any('osd.5' in text for text in found['findings'])
    assert found['counted'] == [{'osd': 0, 'reads': 5, 'writes': 6, 'read_ns': 0, 'write_ns': 0}]
    text = tables.details(found)
    assert 'disturbed by: deep scrub' in text and '! osd.5' in text
    assert any('osd.5' in line and line.endswith('slow') for line in text.splitlines())


def test_findings_about_osds_that_slow_each_other_down() -> None:
    steps = tuple(JobStep(JOB, (Stream('osd.%d' % osd, (), osd),), 0, part)
                  for part in ('alone', 'together', 'again') for osd in (0, 1))
    results = tuple(probe_runs.result(JOB, [500 if step.part == 'together' else 2000])
                    for step in steps)
    found = Probed(records=(record(7, target=Target('interference', '', (0, 1)), steps=steps,
                                   results=results),)).details(7)
    assert found['findings'] == [
        '%s: latency read: together 0.25 times as fast as alone (%s IOPS)' % row
        for row in (('osd.0', '500, 2,000'), ('osd.1', '500, 2,000'),
                    ('all OSDs', '1,000, 4,000'))]
    row = found['interference'][0]
    assert row == {'job': 'latency', 'direction': 'read', 'osd': 0, 'alone': 2000.0,
                   'together': 500.0, 'again': 2000.0, 'spread': pytest.approx(0.1 * 2 ** 0.5),
                   'quantity': 'iops'}


def test_findings_about_osds_that_were_slow_in_a_probe_of_a_pool() -> None:
    found = replace(PROBED, regressions=(), records=(record(7, 2000, counted=tuple(
        Counted(osd, 0, 500, 0, (8 if osd == 5 else 1) * 500 * 10 ** 6) for osd in OSDS)),))
    text, = found.details(7)['findings']
    assert text.startswith('osd.5: client writes during the probe took 8 ms, 8.0 times the ')


def test_one_osd_has_no_rank() -> None:
    alone = replace(by_osd(7, 5), target=Target('osd', '', (0,)), steps=by_osd(7, 5).steps[:1],
                    results=by_osd(7, 5).results[:1])
    assert replace(PROBED, records=(alone,)).details(7)['osds'] == []


@pytest.mark.parametrize('last, ids', [(None, [1, 2, 3, 4, 5]), (1, [1, 5]), (3, [1, 3, 4, 5]),
                                       (9, [1, 2, 3, 4, 5])])
def test_the_list_of_the_last_runs_has_all_baselines(last: Any, ids: List[int]) -> None:
    assert [row['id'] for row in PROBED.listing(last)['probes']] == ids


def test_details_of_a_regression() -> None:
    found = PROBED.details(2)
    assert found['findings'] == ['slower than probe 1: latency read: slow']
    assert '! slower than probe 1' in tables.details(found)


def test_details_of_what_has_measured_nothing() -> None:
    text = tables.details(PROBED.details(4))
    assert 'no measurements' in text and '- no connection' in text


def test_expectations_follow_the_device_class() -> None:
    label, = [each['verdict'] for each in PROBED.details(1)['expected']]
    assert label == 'as expected'
    mixed = replace(PROBED, places={**PLACES, 0: PLACES[0]._replace(device_class='hdd')})
    label, = [each['verdict'] for each in mixed.details(1)['expected']]
    assert label == 'no expectation'
    # Those of the pool may be of one class.
    of_one_class = replace(mixed, layouts={'rbd': Layout(7, 3, device_class='ssd')})
    label, = [each['verdict'] for each in of_one_class.details(1)['expected']]
    assert label == 'as expected'
    osds, = {row['verdict'] for row in replace(
        of_one_class, records=(record(1, 2000, target=Target('osd', 'rbd', (0,))),)
    ).details(1)['expected']}
    assert osds == 'above', 'of the chosen OSD, an hdd'


def test_comparison() -> None:
    found = json.loads(json.dumps(PROBED.compared(1, 2)))
    assert found['verdict'] == 'slower' and found['lines'][0]['iops']['a'] == 2050.0
    assert tables.comparison(found).startswith('probe 2 compared with probe 1: slower')


@pytest.mark.parametrize('before, after, code', [(1, 9, errno.ENOENT), (9, 1, errno.ENOENT),
                                                 (1, 3, errno.EINVAL)])
def test_what_cannot_be_compared(before: int, after: int, code: int) -> None:
    with pytest.raises(PerfguardError) as refused:
        PROBED.compared(before, after)
    assert refused.value.errno == code


def test_a_run_that_is_not_known() -> None:
    with pytest.raises(Refused, match='probe 9 does not exist'):
        PROBED.details(9)


def test_a_probe_after_an_upgrade_is_not_compared_with_the_baseline_from_before() -> None:
    """It is half as fast, which may be the release or the cluster."""
    before, after = (replace(record(run, rate), setting={RELEASE: release})
                     for run, rate, release in ((1, 2000, '18.2.7'), (9, 1000, '20.2.4')))
    probed = replace(PROBED, records=(before, after), regressions=(),
                     baselines=Baselines().with_run(before))
    finding, = probed.details(9)['findings']
    assert finding == ('not compared with baseline 1: Ceph release: 20.2.4 (before: 18.2.7). '
                       '"probe baseline 9" makes this probe the baseline')
    assert not probed.details(1)['findings']
    same = replace(after, setting={RELEASE: '18.2.7'})
    assert not replace(probed, records=(before, same)).details(9)['findings']


def test_baselines() -> None:
    row, = PROBED.baselines_json()['baselines']
    assert row['id'] == 1 and row['slower'] == [{'probe': 2, 'why': ['latency read: slow']}]
    assert 'probe 2 is slower' in tables.baselines(PROBED.baselines_json())
    # The database has not brought it yet.
    assert replace(PROBED, records=()).baselines_json() == {'baselines': []}


def test_schedules() -> None:
    row, = PROBED.schedules_json()['schedules']
    assert row['begin_time'] == '0200' and row['refused'] == 'not now'
    assert 'profile=quick' in tables.schedules(PROBED.schedules_json())


def test_nothing_at_all() -> None:
    empty = Probed()
    assert runs(empty.listing()) == 'no probes'
    assert tables.baselines(empty.baselines_json()).startswith('no baselines')
    assert tables.schedules(empty.schedules_json()).startswith('no schedules')


def test_a_bench_without_latencies() -> None:
    bench = tuple(StepResult((replace(result.streams[0], read=replace(
        result.streams[0].read, latency=None, seconds=())),)) for result in by_osd(6, 5).results)
    found = replace(PROBED, records=(replace(by_osd(6, 5), results=bench),)).details(6)
    assert [row['osd'] for row in found['osds'] if row['outlier']] == [5]
    assert tables.details(found)


def test_what_was_ordered() -> None:
    assert tables.started({'dry_run': False, 'id': 4, 'remarks': []}) \
        .startswith('probe 4 has begun')


def test_a_verdict_is_worked_out_once_for_all_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    worked_out: List[int] = []

    def counted(record: RunRecord, *args: Any) -> Any:
        worked_out.append(record.id)
        return expect(record, *args)

    monkeypatch.setattr(probed_module, 'expect', counted)
    probed = replace(PROBED, caches=Caches())
    first = probed.listing()
    assert probed.listing() == first
    assert sorted(worked_out) == [1, 3, 5]
    # Other OSDs, or another active run, are judged anew.
    other = {osd: place._replace(device_class='hdd') for osd, place in PLACES.items()}
    rows = {row['id']: row['verdict'] for row in replace(probed, places=other).listing()['probes']}
    assert rows[1] == 'above' and len(worked_out) == 6


def test_results_take_no_more_memory() -> None:
    results: Results[int] = Results(3)
    for run in range(10):
        assert results.of((record(run),), None, lambda: run) == run
    assert len(results._cached) <= 3


def test_one_more_result_replaces_only_the_oldest() -> None:
    """A page that shows six runs must not compute all of them again and again."""
    results: Results[int] = Results(5)
    computed: List[int] = []

    def of(run: int, basis: str = '') -> None:
        def compute() -> int:
            computed.append(run)
            return run
        results.of((records[run],), basis, compute)

    records = [record(run) for run in range(6)]
    for run in (0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5):
        of(run)
    assert computed == [0, 1, 2, 3, 4, 5]
    # Another result of the same run takes the place of the earlier one.
    of(2, 'other')
    assert set(results._cached) == {(1,), (2,), (3,), (4,), (5,)}


def test_two_runs_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With many OSDs that takes seconds of CPU, and readers may ask for it all the time."""
    compared: List[int] = []

    def counted(before: RunRecord, after: RunRecord) -> Any:
        compared.append(after.id)
        return compare(before, after)

    monkeypatch.setattr(probed_module, 'compare', counted)
    probed = replace(PROBED, caches=Caches())
    assert probed.compared(1, 2) == replace(probed, running=None).compared(1, 2)
    assert probed.compared(2, 1)['verdict'] == 'faster'
    assert compared == [2, 1]


def test_what_a_run_has_measured_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 200 OSDs that takes almost a second of CPU, and readers may ask for it all the time."""
    ranked: List[int] = []

    def counted(record: RunRecord, *args: Any) -> Any:
        ranked.append(record.id)
        return rank(record, *args)

    monkeypatch.setattr(probed_module, 'rank', counted)
    probed = replace(PROBED, caches=Caches())
    first = probed.details(3)
    assert probed.details(3) == first and ranked == [3]
    # What changes later is shown nevertheless.
    later = replace(probed, baselines=Baselines(), regressions=(SLOWER._replace(run=3),),
                    running=None).details(3)
    assert ranked == [3] and later['findings'] == [
        *first['findings'], 'slower than probe 1: latency read: slow']
    assert later['verdict'] == 'slower than its baseline'
    # So are the OSDs where they are now.
    moved = {osd: place._replace(host='host9') for osd, place in PLACES.items()}
    assert {row['host'] for row in replace(probed, places=moved).details(3)['osds']} == {'host9'}
    assert ranked == [3, 3]


def test_the_last_probe_is_shown_without_a_number() -> None:
    assert PROBED.details(None) == PROBED.details(5)
    with pytest.raises(Refused, match='no probes'):
        Probed().details(None)


def test_a_probe_that_a_campaign_ends_has_no_other_verdict() -> None:
    aborted = record(6, 200000, state=ABORTED, messages=('a campaign began',))
    assert Probed(records=(aborted,), layouts={'rbd': Layout(8, 3)}).details(6)['verdict'] \
        == 'aborted: a campaign began'


def test_what_is_expected_beside_what_was_measured() -> None:
    probed = replace(PROBED, regressions=(), layouts={
        'rbd': Layout(8, 3, device_class='ssd', tib=8.0), 'odd': Layout(8, 3, device_class='')})
    found = json.loads(json.dumps(probed.expected_json()))
    odd, rbd = found['pools']
    assert odd['pool'] == 'odd' and odd['expected'] == [] and rbd['copies'] == '3x'
    shallow = rbd['expected'][0]
    assert (shallow['direction'], shallow['bs'], shallow['iodepth']) == ('read', 4096, 1)
    assert (shallow['probe'], shallow['measured'], shallow['verdict']) == (2, 700, 'below')
    assert {row['measured'] for row in rbd['expected'][1:]} == {None}
    text = tables.expected(found)
    first = next(line for line in text.splitlines() if line.startswith('rbd'))
    assert ' 1,000 to 4,000 IOPS ' in first and ' 700 IOPS ' in first
    assert 'no published values for device class (mixed or none): odd' in text

    disks = replace(probed, layouts={'disks': Layout(6, 3, device_class='hdd', tib=8.0)})
    assert tables.expected(json.loads(json.dumps(disks.expected_json()))).count(' MB/s ') == 2

    odd, rbd = found['capacity']
    assert odd['read_iops'] is None and odd['linux_vms'] is None
    assert rbd['write_iops']['low'] == pytest.approx(8 * 10000 / 3)
    assert rbd['write_iops_per_tib']['low'] == pytest.approx(10000)
    assert 'writes/s per TiB' in text and 'odd' in text.splitlines()[-1]
