# SPDX-License-Identifier: LGPL-2.1-or-later
"""SMART data that Ceph's module devicehealth has stored becomes advice, and evidence on slow OSDs.

Loop devices have none, so the test stores what smartctl would print, as the module of Pacific
stores it: in the omap of an object for each drive.
"""
import contextlib
import json
import time
from pathlib import Path
from typing import Any, Dict, Iterator, Set

import pytest
import rados

from qa.cluster import Cluster
from qa.lib.clusters import ClusterFactory
from qa.lib.faults import drive_of_model, missing_controllers, throttled_device
from qa.lib.guard import FAST_CONF, Guard

pytestmark = [pytest.mark.alone, pytest.mark.timeout(900),
              # Later releases keep the data of drives in SQLite, which this test does not write.
              pytest.mark.releases('pacific', quick=()),
              pytest.mark.skipif('blkio' in missing_controllers(),
                                 reason='no cgroup (v1) blkio to write to')]

OSDS, MODEL, DAY = 8, 'INTEL_SSDPE2KX040T8', 86400.0
#: Where Pacific's module keeps its data.
POOL = 'device_health_metrics'
#: OSDs with the old firmware, one with a worn drive, and one with a write cache.
OLD, WORN, CACHED = (2, 5), 1, 3
#: Minutes above the warning temperature, yesterday and today.
HOT = (20, 61)
DRIVE_IOPS = 60
NAMED_SECONDS = 240.0


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[Dict[int, str]]:
    """OSD -> its device."""
    with contextlib.ExitStack() as stack:
        try:
            yield {osd: stack.enter_context(drive_of_model(
                tmp_path / ('drive%d' % osd), 4 << 30, MODEL)) for osd in range(OSDS)}
        except OSError as error:
            pytest.skip('no such drives: %s' % error)


def smart(osd: int, hot_minutes: int) -> Dict[str, Any]:
    """With the keys of smartctl that are read."""
    return {'model_name': MODEL, 'firmware_version': 'OLD' if osd in OLD else 'NEW',
            'write_cache': {'enabled': osd == CACHED},
            'nvme_smart_health_information_log': {
                'percentage_used': 96 if osd == WORN else 3, 'media_errors': 0,
                'warning_temp_time': hot_minutes if osd in OLD else 0, 'critical_comp_time': 0}}


def store(cluster: Cluster, ids: Dict[int, str]) -> None:
    cluster.wait(lambda: POOL in cluster.rados().list_pools(), 120, 'pool ' + POOL)
    with cluster.rados().open_ioctx(POOL) as ioctx:
        for osd, device_id in ids.items():
            samples = {time.strftime('%Y%m%d-%H%M%S', time.gmtime(time.time() - age)):
                       json.dumps(smart(osd, minutes)) for age, minutes in zip((DAY, 0.0), HOT)}
            with rados.WriteOpCtx() as op:
                ioctx.set_omap(op, tuple(samples), tuple(samples.values()))
                ioctx.operate_write_op(op, device_id)


def metrics(cluster: Cluster, device_id: str) -> Dict[str, Any]:
    out: Dict[str, Any] = json.loads(
        cluster.ceph('device', 'get-health-metrics', device_id).stdout or '{}')
    return out


def codes(guard: Guard) -> Set[str]:
    return {row['code'] for row in guard.get('advise', refresh=True)['findings']}


def test_smart_data(release: str, make_cluster: ClusterFactory, devices: Dict[int, str]) -> None:
    cluster = make_cluster(release, osds=OSDS, hosts=4, store='bluestore', conf={
        **FAST_CONF, **{'osd.%d' % osd: {'bluestore_block_path': device}
                        for osd, device in devices.items()}})
    cluster.pool_create('p', 64)
    cluster.wait_clean(60)
    guard = Guard(cluster, {'slow_osd_seconds': '8', 'slow_osd_factor': '4',
                            'baseline_seconds': '5'})
    ids = {row['id']: row['device_ids'].partition('=')[2] for row in cluster.mon('osd metadata')}
    assert all(device_id.startswith(MODEL + '_') for device_id in ids.values()), ids

    def remarks() -> str:
        return '; '.join(guard.get('advise', refresh=True)['remarks'])

    cluster.wait(lambda: 'no SMART data of the drives of 8 OSDs is stored' in remarks(), 120,
                 'absent data to be said to be absent')
    assert not {code for code in codes(guard) if code.startswith('DRIVE_W')}
    store(cluster, ids)
    assert len(metrics(cluster, ids[0])) == 2
    cluster.mgr_fail()
    guard.wait_ready()
    expected = {'DRIVE_FIRMWARE_DIFFERS', 'DRIVE_WEAR', 'DRIVE_WRITE_CACHE'}
    cluster.wait(lambda: expected <= codes(guard), 180, 'the findings')
    assert 'SMART' not in remarks()
    seen = {row['code']: row['seen'] for row in guard.get('advise')['findings']}
    print(json.dumps(seen, indent=1))
    assert seen['DRIVE_FIRMWARE_DIFFERS'] == \
        MODEL + ' has firmware OLD on osd.2, osd.5 (NEW on 6 others)'
    assert '(osd.1), 96 % used' in seen['DRIVE_WEAR']
    assert seen['DRIVE_WRITE_CACHE'].endswith('osd.3')
    cluster.load('p', rate=200, read_fraction=0.5, runtime=1200)
    cluster.wait(lambda: all(row['score'] for row in guard.osds().values()), 120, 'slowdowns')

    def cause(osd: int) -> Dict[str, Any]:
        return next((row for row in guard.osds()[osd]['causes'] if row['code'] == 'drive'), {})

    with contextlib.ExitStack() as faults:
        for osd in OLD:
            faults.enter_context(throttled_device(cluster, [osd], devices[osd], DRIVE_IOPS))
        cluster.wait(lambda: all('2 slow OSDs of this drive model have firmware OLD; 6 of 6 others '
                                 'have NEW' in cause(osd).get('text', '') for osd in OLD),
                     NAMED_SECONDS, 'the firmware to be named')
        print(cause(OLD[0]))
        assert 'it was too hot for 41 minutes of the last 24 hours' in cause(OLD[0])['text']
        assert cause(OLD[0])['evidence']['drive']['device_id'] == ids[OLD[0]]
    assert not guard.tracebacks()
