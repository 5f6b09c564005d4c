# SPDX-License-Identifier: LGPL-2.1-or-later
"""The page that Prometheus reads: valid with any names, and correct."""
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, FrozenSet, List, Tuple

import pytest

from perfguard import VERSION
from perfguard.metrics.catalogue import CATALOGUE, CHECK_CODES, METRIC_PREFIX
from perfguard.metrics.page import (Build, MAX_SUBJECTS, MetricsPage, labels, render,
                                    target_text)
from perfguard.mitigation.report import MitigationListing, RungRow
from perfguard.mitigation.types import Rung
from perfguard.probe.orders import RunOrder
from perfguard.probe.records import CANCELLED, FAILED
from perfguard.probe.report import Probed
from perfguard.probe.schedules import Baselines, Regression, schedule_of
from perfguard.probe.types import Target
from perfguard.rebalance.progress import Eta
from perfguard.rebalance.types import Phase
from perfguard.status import Published
from perfguard.watch.laggy import Suspect
from perfguard.watch.load import LoadGrowth, PoolUse, Rates
from perfguard.watch.report import ClusterRow, LaggyStatus, OsdRow, PoolRow
from perfguard.watch.types import Chronic

from ..fakes import probe_records
from ..fakes.driver import OPTIONS, Driver
from ..fakes.exposition import Key, key, parse
from ..fakes.promtool import promtool
from ..probe import test_curve
from ..rebalance.test_phases import out_of_hours
from ..watch.test_controller import LATENCY, Watched

BUILD = Build('1.2.3', 'ceph version 99', 'mgr.x')
HOSTILE = 'a"b\\c\n{d="e"} 1\n# TYPE x counter\r\x85\u2028\udcff'

POOL = PoolRow(
    pool='rbd', id=3, read_ms=1.5, write_ms=None, read_rate=10.0, write_rate=0.0, baseline_ms=1.0,
    read_baseline_ms=1.0, write_baseline_ms=None, target_ms=1.5, read_target_ms=1.5,
    write_target_ms=None, read_alarm_ms=3.0, write_alarm_ms=None, slow=('reads',), pgs={})
OSD = OsdRow(
    osd=7, host='h1', device_class='ssd', model='', read_ms=0.7, write_ms=2.0, store_ms=0.123,
    score=2.5, slow=True, why='it is', causes=(),
    chronic=Chronic(7, 1.0, 2.0, 3.0, 0.09, 2, 4.0, 'x'), slow_time_ratio=0.09, since=5.0,
    read_rate=1.0, write_rate=2.0, read_p99_ms=9.0, write_p99_ms=None, ping_ms=0.4,
    silent_seconds=1.0, pgs={'laggy': 4})
LAGGY = LaggyStatus(4, 0, 1.0, (), (Suspect(7, 0.9, ''),))
#: 4,000 writes per second of the 16,000 of its curve, with 80 days until it is full.
USE = PoolUse(3, 'rbd', 32, 3.5, Rates(0.0, 4000.0, 0.0, 4e3 * 4096), Rates(0.0, 8000.0), 0.0,
              LoadGrowth(60, 100.0))
SIGNALS = ClusterRow(
    read_ms=1.0, write_ms=2.0, read_rate=0.0, write_rate=0.0, read_p99_ms=5.0, write_p99_ms=7.0,
    untrimmed_osdmaps=500)


def measured() -> Probed:
    done = [probe_records.step(probe_records.LATENCY, [100, 200], repetition=number)
            for number in range(3)]
    curve = test_curve.record([
        test_curve.measure(replace(test_curve.JOB, iodepth=depth), test_curve.ideal(depth))
        for depth in test_curve.DEPTHS])
    records = (probe_records.run(1, done, ended=100.0), probe_records.run(2, done, ended=200.0),
               probe_records.run(3, (), state=FAILED, ended=300.0),
               replace(curve, id=5, target=Target('pool', 'rbd')))
    return Probed(records=records, running=replace(records[0], id=4, state='running'),
                  schedules=(schedule_of('nightly', RunOrder(profile='quick'),
                                         {'begin_time': '0200'}),),
                  refused={'nightly': 'not now'}, baselines=Baselines().with_run(records[0]),
                  regressions=(Regression(1, 2, 'pool:rbd', ('slow',)),))


def page(published: Published, probed: Probed = Probed()) -> Dict[Key, float]:
    return parse(MetricsPage(lambda: BUILD).page(published, probed))


def with_watch(published: Published, **changes: Any) -> Published:
    watched = replace(published.watched, pools=(POOL,), osds=(OSD,), laggy=LAGGY, signals=SIGNALS,
                      uses=(USE,))
    return replace(published, watched=replace(watched, **changes))


def with_status(published: Published, **changes: Any) -> Published:
    rebalanced = published.rebalanced
    return replace(published, rebalanced=replace(
        rebalanced, status=replace(rebalanced.status, **changes)))


@pytest.fixture
def moving() -> Published:
    driver = Driver()
    driver.to_releasing()
    return driver.loop.published


def names(found: Dict[Key, float]) -> List[str]:
    return list(dict.fromkeys(name for name, _ in found))


def test_the_share_of_what_a_pool_serves(moving: Published) -> None:
    published = with_watch(moving)
    used, full = ('ceph_perfguard_pool_capacity_' + name for name in ('used_ratio', 'full_seconds'))
    who = frozenset({('pool_id', '3'), ('name', 'rbd')})
    found = page(published, measured())
    assert found[used, who] == pytest.approx(4000.0 / 16667.0, rel=0.1)
    assert found[full, who] == pytest.approx(80 * 86400.0, rel=0.1)
    # Not where it may be wrong, or is not known.
    other_sizes = USE._replace(now=Rates(0.0, 4000.0, 0.0, 4e3 * 65536))
    for other in (page(with_watch(moving, uses=(other_sizes,)), measured()), page(published)):
        assert not {used, full} & set(names(other))


def test_all_metrics_are_in_the_order_of_the_catalogue(moving: Published) -> None:
    published = with_watch(moving, osds=(OSD._replace(write_p99_ms=3.0),))
    published = with_status(published, eta=Eta(60.0, 50.0, 70.0), stall_seconds=0.4,
                            limit_shares={'LATENCY': 1.0})
    found = page(published, measured())
    assert names(found) == [METRIC_PREFIX + metric.name for metric in CATALOGUE]
    allowed: Dict[str, FrozenSet[str]] = {METRIC_PREFIX + metric.name: frozenset(metric.labels)
                                          for metric in CATALOGUE}
    for name, pairs in found:
        assert {label for label, _ in pairs} <= allowed[name], name


def test_prometheus_finds_nothing_to_remark(moving: Published) -> None:
    text = MetricsPage(lambda: BUILD).page(with_watch(moving), measured())
    assert promtool('check', 'metrics', given=text) == ''


def test_before_the_first_turn() -> None:
    found = page(Published())
    assert found[key('info', version='1.2.3', ceph_version='ceph version 99',
                     ceph_daemon='mgr.x')] == 1
    assert found[key('mitigation_mode', mode='off')] == 1
    assert not any(name.endswith(('_turn_timestamp_seconds', '_campaign_active'))
                   for name in names(found))


def test_the_version_is_that_of_the_package() -> None:
    setup = Path(__file__).resolve().parents[6] / 'setup.py'
    assert "version='%s'" % VERSION in setup.read_text()


def test_without_a_campaign() -> None:
    found = page(Driver().loop.published)
    assert found[key('campaign_phase', phase='IDLE')] == 1
    assert found[key('campaign_active')] == found[key('campaign_id')] == 0
    assert key('campaign_started_timestamp_seconds') not in found
    assert key('campaign_eta_seconds') not in found


@pytest.mark.parametrize('seconds', [600.0, -3600.0])
def test_times_follow_a_wall_clock_that_is_set(seconds: float) -> None:
    """Prometheus compares them with its own clock."""
    driver = Driver()
    driver.to_releasing()
    driver.cluster.ahead = seconds
    driver.turn()
    found = page(driver.loop.published, measured())
    wall = driver.cluster.now - 1.0 + seconds
    assert found[key('last_loop_timestamp_seconds')] == wall
    for name in 'campaign_started', 'campaign_progress':
        assert 0.0 <= wall - found[key(name + '_timestamp_seconds')] < 100.0
    ended = key('probe_ended_timestamp_seconds', measured='pool:rbd', profile='quick')
    assert found[ended] == 300.0 + seconds


def test_what_has_limited_the_campaign(moving: Published) -> None:
    found = page(with_status(moving, limit_shares={'LATENCY': 0.25, 'CAP_PGS': 0.75}))
    assert found[key('campaign_limited_ratio', reason='LATENCY')] == 0.25
    assert found[key('campaign_limited_ratio', reason='CAP_PGS')] == 0.75


def test_osds_that_hold_no_data() -> None:
    driver = Driver()
    assert page(driver.loop.published)[key('idle_osds')] == 0
    driver.cluster.add_waiting(2)
    driver.turn()
    assert page(driver.loop.published)[key('idle_osds')] == 2


def test_a_campaign_under_way(moving: Published) -> None:
    found = page(moving)
    status = moving.rebalanced.status
    phases = {phase.value: found[key('campaign_phase', phase=phase.value)] for phase in Phase}
    assert [phase for phase, value in phases.items() if value] == [status.phase.value]
    assert sum(phases.values()) == found[key('campaign_active')] == 1
    for state in ('pinned', 'in_flight', 'released', 'kept'):
        assert found[key('campaign_pgs', state=state)] == getattr(status, state)
    assert found[key('campaign_pgs', state='in_flight')] > 0
    assert found[key('campaign_size_bytes')] == status.bytes_total > 0
    assert found[key('campaign_limit_pgs')] == status.limit
    campaign = moving.rebalanced.campaign
    assert found[key('campaign_progress_timestamp_seconds')] == max(
        campaign.progress.progressed, campaign.phase_since)
    assert found[key('last_loop_timestamp_seconds')] == moving.turned > 0
    timed = replace(moving, status=replace(moving.status, turn_cpu_ms=12.5))
    assert page(timed)[key('loop_cpu_seconds')] == 0.0125
    assert moving.status.signals is not None
    clean = moving.status.signals.counts.active_clean
    assert found[key('cluster_pgs')] >= found[key('pgs', state='active_clean')] == clean > 0


def test_outside_the_time_window() -> None:
    driver = Driver()
    driver.options = out_of_hours(OPTIONS, driver.cluster.now)
    driver.to_pinned()
    waits = key('campaign_waits_for_window')
    assert page(driver.loop.published)[waits] == 0
    driver.ask('start')
    driver.run_to('HOLDING')
    assert page(driver.loop.published)[waits] == 1
    driver.ask('pause')
    driver.run(2)
    assert (driver.phase, page(driver.loop.published)[waits]) == ('HOLDING', 0)
    driver.ask('resume')
    driver.options = replace(OPTIONS, begin_time='nonsense')
    driver.run(2)
    assert (driver.phase, page(driver.loop.published)[waits]) == ('HOLDING', 0)
    driver.options = OPTIONS
    driver.run_to('RELEASING')
    assert page(driver.loop.published)[waits] == 0


def test_when_it_has_ended() -> None:
    driver = Driver()
    driver.to_releasing()
    driver.run_to('DONE')
    found = page(driver.loop.published)
    assert found[key('campaign_phase', phase='DONE')] == found[key('campaign_id')] == 1
    assert found[key('campaign_active')] == 0


def test_pools(moving: Published) -> None:
    found = page(with_watch(moving))
    who = {'pool_id': '3', 'name': 'rbd'}
    assert found[key('pool_latency_seconds', op='read', **who)] == 0.0015
    assert found[key('pool_latency_baseline_seconds', op='read', **who)] == 0.001
    assert found[key('pool_latency_limit_seconds', op='read', **who)] == 0.0015
    assert found[key('pool_slow', op='read', **who)] == 1
    assert found[key('pool_slow', op='write', **who)] == 0
    # Without operations there is no latency, which is not the same as none.
    assert key('pool_latency_seconds', op='write', **who) not in found
    assert found[key('pool_ops_per_second', op='write', **who)] == 0


def test_a_slow_pool_as_the_watch_reports_it() -> None:
    driver = Watched()
    slow = key('pool_slow', op='read', pool_id='1', name='rep')
    assert page(driver.loop.published)[slow] == 0
    driver.osds.factor = 10.0
    driver.minutes(2)
    assert driver.checks == [LATENCY]
    found = page(driver.loop.published)
    assert found[slow] == 1
    assert found[key('pool_slow', op='write', pool_id='1', name='rep')] == 0


def test_osds(moving: Published) -> None:
    found = page(with_watch(moving))
    who = {'ceph_daemon': 'osd.7', 'hostname': 'h1', 'device_class': 'ssd'}
    assert found[key('osd_latency_seconds', op='store', **who)] == 0.000123
    assert found[key('osd_latency_p99_seconds', op='read', **who)] == 0.009
    assert (found[key('osd_slowdown_ratio', **who)], found[key('osd_slow', **who)]) == (2.5, 1)
    assert found[key('osd_chronically_slow', **who)] == 1
    assert found[key('osd_slow_time_ratio', **who)] == 0.09
    assert found[key('osd_laggy_pgs', **who)] == 4
    assert found[key('osd_laggy_suspect_score', ceph_daemon='osd.7')] == 0.9


def test_an_osd_without_class_has_no_such_label(moving: Published) -> None:
    found = page(with_watch(moving, osds=(OSD._replace(device_class=''),)))
    assert found[key('osd_slow', ceph_daemon='osd.7', hostname='h1')] == 1


def test_hostile_names(moving: Published) -> None:
    found = page(with_watch(
        moving, pools=(replace(POOL, pool=HOSTILE),),
        osds=(OSD._replace(host=HOSTILE, device_class=HOSTILE),)))
    as_told = HOSTILE.replace('\udcff', '?')
    assert found[key('pool_slow', op='read', pool_id='3', name=as_told)] == 1
    assert found[key('osd_slow', ceph_daemon='osd.7', hostname=as_told,
                     device_class=as_told)] == 1
    assert set(names(found)) <= {METRIC_PREFIX + metric.name for metric in CATALOGUE}


def test_health_checks_that_are_raised(moving: Published) -> None:
    raised = replace(moving, status=replace(moving.status, health=('PERFGUARD_SLOW_OSD',)))
    found = page(raised)
    assert {name: found[key('health_check', name=name)] for name in CHECK_CODES} == {
        name: float(name == 'PERFGUARD_SLOW_OSD') for name in CHECK_CODES}


def test_rungs_are_counted(moving: Published) -> None:
    rows = (RungRow(Rung.AFFINITY, 'held'), RungRow(Rung.AFFINITY, 'held'), RungRow(Rung.HOLD),
            RungRow(Rung.PIN_BACK, 'would'))
    listing = MitigationListing('act', rows)
    found = page(replace(moving, mitigated=replace(moving.mitigated, listing=listing)))
    assert found[key('mitigation_mode', mode='act')] == 1
    assert found[key('mitigation_mode', mode='observe')] == 0
    assert found[key('mitigations', mitigation='primary_affinity', state='held')] == 2
    assert found[key('mitigations', mitigation='pin_back', state='would')] == 1
    assert found[key('mitigations', mitigation='hold_releases', state='held')] == 0


def test_probes() -> None:
    found = page(Published(), measured())
    who = {'measured': 'pool:rbd', 'profile': 'quick'}
    assert found[key('probe_running')] == 1
    # The last run failed; what was measured is that of the last whole one.
    assert found[key('probe_success', **who)] == 0
    assert found[key('probe_ended_timestamp_seconds', **who)] == 300.0
    assert found[key('probe_regression', **who)] == 1
    measurement = {**who, 'probe_job': 'latency', 'op': 'read'}
    assert found[key('probe_ops_per_second', **measurement)] == 150.0
    assert found[key('probe_bytes_per_second', **measurement)] == 150.0 * 4096
    mean = found[key('probe_latency_seconds', **measurement)]
    assert found[key('probe_latency_p99_seconds', **measurement)] == pytest.approx(3 * mean)
    assert found[key('probe_schedule_refused', schedule='nightly')] == 1


def test_a_run_without_a_baseline_is_not_said_to_be_well() -> None:
    probed = replace(measured(), baselines=Baselines(), regressions=())
    found = page(Published(), probed)
    assert key('probe_regression', measured='pool:rbd', profile='quick') not in found


@pytest.mark.parametrize('before', [True, False])
def test_a_probe_that_was_cancelled_is_no_failure(before: bool) -> None:
    probed = measured()
    cancelled = probe_records.run(5, (), state=CANCELLED, ended=500.0)
    records = (*probed.records[:2], cancelled) if before else (cancelled,)
    found = page(Published(), replace(probed, records=records))
    who = {'measured': 'pool:rbd', 'profile': 'quick'}
    told = (found.get(key('probe_success', **who)),
            found.get(key('probe_ended_timestamp_seconds', **who)))
    # The result of the last one before it still applies.
    assert told == ((1, 200.0) if before else (None, None))


def test_scrapes_of_one_state_are_the_same_page() -> None:
    metrics, published, probed = MetricsPage(lambda: BUILD), Published(), measured()
    page = metrics.page(published, probed)
    assert metrics.page(published, probed) is page
    assert metrics.page(replace(published), probed) is not page


def test_a_newer_run_replaces_the_remembered_one() -> None:
    metrics, probed = MetricsPage(lambda: BUILD), measured()
    before = parse(metrics.page(Published(), probed))
    faster = probe_records.run(5, [probe_records.step(probe_records.LATENCY, [900])], ended=500.0)
    after = parse(metrics.page(Published(), replace(probed, records=(*probed.records, faster))))
    rate = key('probe_ops_per_second', measured='pool:rbd', profile='quick',
               probe_job='latency', op='read')
    assert (before[rate], after[rate]) == (150.0, 900.0)


def by_target(found: Dict[Key, float], name: str) -> List[str]:
    return [dict(pairs)['measured'] for each, pairs in found if each == METRIC_PREFIX + name]


def test_the_targets_probed_last_are_reported() -> None:
    records = tuple(probe_records.run(number, (), Target('pool', 'p%d' % number), ended=number)
                    for number in range(1, MAX_SUBJECTS + 6))
    found = page(Published(), Probed(records=records))
    told = by_target(found, 'probe_success')
    assert len(told) == MAX_SUBJECTS
    assert 'pool:p%d' % (MAX_SUBJECTS + 5) in told and 'pool:p5' not in told


def test_long_lists_of_osds_are_counted() -> None:
    assert target_text(Target('osd', '', (1, 2))) == 'osd:x3:1,2'
    assert target_text(Target('osd', '', tuple(range(630)))) == 'osd:x3:630 OSDs'
    assert target_text(Target('osd', 'rbd', tuple(range(9)), 2)) == 'osd:rbd:9 OSDs'
    by_host = Target('scale', '', tuple(range(9)), hosts=(3, 3, 3))
    assert target_text(by_host) == 'scale:x3:9 OSDs:hosts'


@pytest.mark.parametrize('value, text', [
    (float('nan'), 'NaN'), (float('inf'), '+Inf'), (float('-inf'), '-Inf'), (0.25, '0.25'),
    (3, '3'), (True, '1')])
def test_numbers_are_written_as_prometheus_reads_them(value: float, text: str) -> None:
    assert render({'pgs': [('', value)]}).decode().splitlines()[-1] == 'ceph_perfguard_pgs ' + text


def test_two_values_for_one_name_would_be_refused_by_prometheus() -> None:
    same: List[Tuple[str, float]] = [(labels(state='a'), 1.0), (labels(state='a'), 2.0)]
    assert parse(render({'pgs': same})) == {key('pgs', state='a'): 1.0}


def test_metrics_have_the_words_of_commands_and_manual() -> None:
    words = {word for metric in CATALOGUE for name in (metric.name, *metric.labels)
             for word in name.split('_')}
    assert not words & {'rung', 'rungs', 'turn', 'target', 'burst', 'vector', 'usual'}


def test_a_metric_outside_the_catalogue_is_an_error() -> None:
    with pytest.raises(KeyError):
        render({'nonesuch': [('', 1)]})


@pytest.mark.parametrize('bad', [
    b'x 1', b'x 1\n', b'# HELP x h\n# TYPE x gauge\ny 1\n',
    b'# HELP x h\n# TYPE x gauge\nx 1\nx 2\n', b'# HELP x h\n# TYPE x gauge\nx{a="b"c"} 1\n',
    b'# HELP x h\n# TYPE x gauge\nx{a="\\q"} 1\n', b'# HELP x h\n# TYPE x gauge\nx\n'])
def test_the_reader_is_strict(bad: bytes) -> None:
    with pytest.raises(ValueError):
        parse(bad)
