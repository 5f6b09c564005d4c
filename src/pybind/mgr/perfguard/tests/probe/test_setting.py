# SPDX-License-Identifier: LGPL-2.1-or-later
"""A baseline that was taken with another engine, release or options proves nothing."""
from dataclasses import replace
from typing import Any, Dict, Iterable

import pytest

from perfguard.cluster.inventory import store_and_drive
from perfguard.cluster.types import ConfigEntry, Pool
from perfguard.codec import decode, encode
from perfguard.probe.schedules import regression
from perfguard.probe.compare import compare
from perfguard.probe.orders import RunId, RunOrder
from perfguard.probe.records import DONE, RunRecord, differing_conditions, setting_of
from perfguard.probe.types import Job, Target

from ..fakes import probe_runs
from ..fakes.probe_cluster import ProbeCluster, ProbeDriver, fake_children

JOB = Job('latency', 'randread', 4096, 1, 1 << 20, 4, 2.0)
SETTING = {'Ceph release': '18.2.7', 'PGs': '64', 'options': 'read',
           'option osd/osd_op_queue': 'wpq', 'drives': 'bluestore on WDC_A'}

WITHOUT_EFFECT = ('osd_pool_default_size', 'osd_crush_initial_weight', 'osd_heartbeat_grace',
                  'osd_op_complaint_time', 'osd_mon_report_interval', 'osd_beacon_report_interval',
                  'osd_failsafe_full_ratio', 'osd_fast_shutdown')


def record(run: int, rate: int, engine: str = 'native', **changes: Any) -> RunRecord:
    steps, results = probe_runs.repeated(JOB, (rate, rate + 5, rate + 9))
    plain = RunRecord(run, DONE, 'latency', Target('pool', 'rbd'), 100.0, 101.0, 130.0,
                      steps=tuple(steps), setting=SETTING,
                      results=tuple(replace(each, engine=engine) for each in results))
    return replace(plain, **changes)


@pytest.mark.parametrize('changes, told', [
    ({}, ''), ({'engine': 'python'}, 'engine: python (before: native)'),
    ({'setting': {**SETTING, 'Ceph release': '19.2.0'}}, 'release: 19.2.0 (before: 18.2.7)'),
    ({'setting': {**SETTING, 'PGs': '128'}}, 'PGs: 128 (before: 64)'),
    ({'setting': {'PGs': '64', 'options': 'read'}}, 'osd_op_queue: not set (before: wpq)'),
    ({'setting': {'PGs': '64'}}, ''),
    ({'setting': {**SETTING, 'option osd.3/osd_recovery_sleep': '1'}}, '(before: not set)'),
    ({'setting': {**SETTING, 'drives': 'bluestore on WDC_B'}},
     'WDC_B (before: bluestore on WDC_A)'),
    # The drives are not known.
    ({'setting': {key: value for key, value in SETTING.items() if key != 'drives'}}, ''),
    # The mons did not answer.
    ({'setting': {}}, ''), ({'setting': {}, 'engine': 'python'}, 'engine')])
def test_slower_under_another_setting_is_no_regression(changes: Dict[str, Any],
                                                       told: str) -> None:
    fast, slow = record(1, 5000), record(2, 1500, **changes)
    found = differing_conditions(fast, slow)
    assert len(found) == (1 if told else 0) and told in ''.join(found)
    assert (regression(fast, slow) is None) == bool(told)
    assert any('conditions differ' in note for note in compare(fast, slow).notes) == bool(told)


def test_many_differences_are_counted() -> None:
    many = {**SETTING, **{'option osd/osd_%d' % number: '1' for number in range(20)}}
    found = differing_conditions(record(1, 5000), record(2, 5000, setting=many))
    assert len(found) == 6 and found[-1] == 'and 15 more'


def test_options_that_count() -> None:
    entries = [ConfigEntry('osd', '', 'osd_op_queue', 'wpq'),
               ConfigEntry('osd', 'class:ssd', 'osd_recovery_sleep', '0'),
               ConfigEntry('osd.3', '', 'bluestore_cache_size', '1'),
               ConfigEntry('mon', '', 'osd_pool_default_size', '2'),
               ConfigEntry('mgr', '', 'mgr/perfguard/target', 'crush'),
               ConfigEntry('osd', '', 'debug_osd', '20'),
               ConfigEntry('global', '', 'osd_pool_default_crush_rule', '1'),
               *(ConfigEntry('global', '', name, '1') for name in WITHOUT_EFFECT)]
    assert setting_of('18.2.7', 32, entries) == {
        'Ceph release': '18.2.7', 'PGs': '32', 'options': 'read', 'option osd/osd_op_queue': 'wpq',
        'option osd/class:ssd/osd_recovery_sleep': '0',
        'option osd.3/bluestore_cache_size': '1',
        # Places the pool that a probe creates.
        'option global/osd_pool_default_crush_rule': '1'}
    assert setting_of('', 0, None) == {} == setting_of('', 0, None, ['', ''])


def test_models_of_drives_are_named_once() -> None:
    assert setting_of('', 0, None, ['b', 'a', '', 'a'])['drives'] == 'a, b'
    many = setting_of('', 0, None, ['model %02d' % number for number in range(40)])['drives']
    assert many.count(',') == 19 and many.endswith(' and 20 more')


def test_what_osds_say_of_store_and_drive() -> None:
    said = {'osd_objectstore': 'bluestore', 'bluestore_bdev_devices': 'sdb',
            'device_ids': 'sda=QEMU_DISK_1,sdb=INTEL_SSDSC2KB96_PHYF1'}
    assert store_and_drive(said) == 'bluestore on INTEL_SSDSC2KB96'
    assert store_and_drive({'osd_objectstore': 'memstore'}) == 'memstore'
    assert store_and_drive({}) == ''


def test_it_is_kept() -> None:
    kept = record(1, 5000)
    assert decode(RunRecord, encode(kept)).setting == SETTING


class Upgraded(ProbeCluster):
    version = '18.2.7'

    def release(self) -> str:
        return self.version


class Refitted(ProbeCluster):
    drive = 'WDC_A'

    def drives(self, osds: Iterable[int]) -> Dict[int, str]:
        return {osd: 'bluestore on ' + self.drive for osd in osds}


class FailedOver(ProbeCluster):
    host = 'rack1-a'

    def mgr_host(self) -> str:
        return self.host


class Recreated(ProbeCluster):
    """Its pool is removed, and another one gets the name."""
    pool = Pool(1, 'rep', False, 3, 2, 0, 12, 12, 12)

    def map_view(self) -> Any:
        view = super().map_view()
        return replace(view, osdmap=replace(view.osdmap, pools={1: self.pool}))


CHANGED = {'version': Upgraded, 'drive': Refitted, 'host': FailedOver, 'pool': Recreated}
ANOTHER = {'pool': replace(Recreated.pool, erasure=True, size=6, data_shards=4)}


@pytest.mark.parametrize('change', CHANGED)
def test_a_run_after_a_change_is_not_judged(monkeypatch: pytest.MonkeyPatch,
                                            change: str) -> None:
    fake_children(monkeypatch)
    cluster: Any = CHANGED[change]()
    driver = ProbeDriver(cluster)
    order = RunOrder(words={'rw': 'randread', 'bs': '4k', 'size': '64k', 'nrfiles': '2',
                            'runtime': '1'}, pool='rep')
    driver.give(order)
    driver.finish()
    driver.give(RunId('probe baseline', 1))
    setting = driver.loop.probed().record_of(1).setting
    assert {'version': setting['Ceph release'] == '18.2.7',
            'drive': setting.get('drives') == 'bluestore on WDC_A',
            'host': setting.get('host of the mgr') == 'rack1-a',
            'pool': setting.get('redundancy') == '3 replicas'}[change]
    setattr(cluster, change, ANOTHER.get(change, 'another'))
    driver.give(order)
    driver.finish()
    assert any('cannot be compared with its baseline 1' in text for text in driver.told('probe'))
