# SPDX-License-Identifier: LGPL-2.1-or-later
"""Four new OSDs whose DBs are partitions of one device, which limits how many PGs they receive."""
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Set, Tuple

import pytest

from qa.cephadm.cache import why_unable
from qa.cephadm.loops import LoopDevice
from qa.lib.clusters import ClusterFactory
from qa.lib.guard import FAST_CONF, Guard
from qa.lib.joins import order, wait_reported

pytestmark = [pytest.mark.releases('pacific', quick=()),
              pytest.mark.skipif(why_unable() is not None, reason='no loop devices')]

GiB = 1 << 30
#: OSDs in memory, then those with a DB on the shared device.
OLD, NEW = 6, [6, 7, 8, 9]
CAP = 3


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[List[LoopDevice]]:
    """The device of the DBs, and one for each of the new OSDs."""
    found: List[LoopDevice] = []
    try:
        found.append(LoopDevice(tmp_path / 'db', 8 * GiB, len(NEW)))
        found.extend(LoopDevice(tmp_path / ('osd.%d' % osd), 4 * GiB) for osd in NEW)
        yield found
    finally:
        for device in found:
            device.close()


def stores(devices: List[LoopDevice]) -> Dict[str, Dict[str, str]]:
    """Sections of ceph.conf: where the new OSDs have their data and DBs."""
    db, *main = devices
    return {'osd.%d' % osd: {
        'osd objectstore': 'bluestore', 'bluestore block path': device.path,
        'bluestore block db path': partition, 'bluestore cache autotune': 'false',
        'bluestore cache size': '67108864', 'osd memory target': '939524096'}
        for osd, device, partition in zip(NEW, main, db.partitions)}


def most_moving(guard: Guard, over: Callable[[], bool]) -> Tuple[int, Set[str]]:
    """The largest number of PGs that move at a time, and the codes of what limits them."""
    most, codes = 0, set()
    while not over():
        codes |= {row['code'] for row in guard.status()['limits']}
        # By the present OSDMap: statistics of PGs are seconds old.
        most = max(most, len(guard.cluster.osd_dump()['pg_temp']))
    return most, codes


def test_a_shared_db_device_limits_what_its_osds_receive(
        release: str, make_cluster: ClusterFactory, devices: List[LoopDevice]) -> None:
    cluster = make_cluster(release, osds=OLD, hosts=OLD, conf={**FAST_CONF, **stores(devices)})
    guard = Guard(cluster, {'max_backfills_device': str(CAP), 'max_pgs_in_flight': '64'})
    cluster.pool_create('rep', 64, size=3)
    cluster.fill('rep', 1000, 65536)
    cluster.wait_clean(60)
    assert cluster.add_osds(len(NEW), ['new'] * len(NEW), weight=0.0) == NEW
    shared = Path(devices[0].path).name
    for row in cluster.mon('osd metadata'):
        assert (row['id'] in NEW) == (row.get('bluefs_db_devices') == shared), row
    wait_reported(guard)
    order(guard, 'expand', what=['new'], weight='1.0')
    guard.wait_moving()
    capped, limits = most_moving(guard, lambda: guard.status()['released'] >= 6 * CAP)
    assert capped == CAP and 'CAP_BACKFILLS' in limits
    # It was this limit.
    guard.option('max_backfills_device', '32')
    free, _ = most_moving(guard, lambda: not guard.status()['pinned'])
    done = guard.wait_phase('DONE', timeout=240)
    print('%s: %d PGs, at most %d at a time, then %d' % (release, done['released'], capped, free))
    assert free > CAP and not guard.tracebacks()
