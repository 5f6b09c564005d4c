# SPDX-License-Identifier: LGPL-2.1-or-later
"""OSDs whose DBs are partitions of one device: how many PGs they receive at a time, and whether one
that is replaced is filled."""
import contextlib
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Sequence, Set, Tuple

import pytest

from qa.cephadm.cache import why_unable
from qa.cephadm.loops import LoopDevice
from qa.cluster import Cluster
from qa.lib.clusters import ClusterFactory
from qa.lib.faults import of_model
from qa.lib.guard import FAST_CONF, Guard
from qa.lib.joins import ask, order, wait_reported

pytestmark = [pytest.mark.releases('pacific', 'reef', 'tentacle', quick=()),
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


def stores(devices: List[LoopDevice], osds: Sequence[int]) -> Dict[str, Dict[str, str]]:
    """Sections of ceph.conf: where OSDs have their data and DBs."""
    db, *main = devices
    return {'osd.%d' % osd: {
        'osd objectstore': 'bluestore', 'bluestore block path': device.path,
        'bluestore block db path': partition, 'bluestore cache autotune': 'false',
        'bluestore cache size': '67108864', 'osd memory target': '939524096'}
        for osd, device, partition in zip(osds, main, db.partitions)}


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
    cluster = make_cluster(release, osds=OLD, hosts=OLD, conf={**FAST_CONF, **stores(devices, NEW)})
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


#: Two OSDs in memory have a DB device instead.
WITH_DB = [4, 5]


def created_again(cluster: Cluster, osd: int, device: LoopDevice, partition: str) -> None:
    """On a device for its data and its old partition for the DB, as ceph-volume leaves them after
    "zap"."""
    host = cluster.osd_hosts()[osd]
    cluster.remove_osds([osd], destroy=True)
    with open(cluster.conf_path, 'a') as conf:
        conf.write('[osd.%d]\nbluestore block path = %s\n' % (osd, device.path))
    for path in (device.path, partition):
        with open(path, 'r+b') as wiped:
            wiped.write(bytes(16 << 20))
    cluster.add_osds(1, hosts=[host], ids=[osd], in_crush=False)


def replaced(guard: Guard, osd: int) -> Dict[str, Any]:
    """Of "osds --drained"; empty once the replacement has ended."""
    return next((row for row in guard.get('osds', drained=True)['drains'] if row['osd'] == osd), {})


def test_an_osd_with_a_db_device_is_filled_on_another_drive_only(
        release: str, make_cluster: ClusterFactory, devices: List[LoopDevice]) -> None:
    db, old_drive, _, new_drive, _ = devices
    osd = WITH_DB[0]
    with contextlib.ExitStack() as stack:
        try:
            for device in devices:
                stack.enter_context(of_model(device.path, 'ACME_D1'))
        except OSError as error:
            pytest.skip('no such drives: %s' % error)
        cluster = make_cluster(release, osds=OLD, hosts=OLD,
                               conf={**FAST_CONF, **stores(devices, WITH_DB)})
        guard = Guard(cluster)
        cluster.pool_create('rep', 32, size=3)
        cluster.fill('rep', 500, 65536)
        cluster.wait_clean(60)
        wait_reported(guard)
        # PGs of a cluster this young may peer again after they were reported clean.
        cluster.wait(lambda: ask(guard, 'replace', what=['osd.%d' % osd])[0] == 0, 60, 'the order')
        drained = guard.wait_phase('DONE', timeout=240)['id']
        created_again(cluster, osd, old_drive, db.partitions[0])
        cluster.wait(lambda: 'on the same drive as before' in replaced(guard, osd).get('next', ''),
                     90, 'the old drive to be named')
        time.sleep(15)
        assert guard.status()['id'] == drained and osd not in acting_osds(cluster)
        created_again(cluster, osd, new_drive, db.partitions[0])
        cluster.wait(lambda: guard.status()['id'] != drained, 90, 'a campaign')
        guard.wait_phase('DONE', timeout=240)
        cluster.wait(lambda: not replaced(guard, osd), 60, 'the end of the replacement')
        row, = (row for row in cluster.mon('osd metadata') if row['id'] == osd)
        assert row['bluestore_bdev_devices'] == Path(new_drive.path).name
        assert row['bluefs_db_devices'] == Path(db.path).name
        assert osd in acting_osds(cluster) and not guard.tracebacks()


def acting_osds(cluster: Cluster) -> Set[int]:
    return {osd for pg in cluster.pgs() for osd in pg['acting']}
