# SPDX-License-Identifier: LGPL-2.1-or-later
"""Slow OSDs where most comparisons do not help, or where one name says more than many: one of
three, many of a class, a rack, and OSDs whose DBs are on one device."""
import contextlib
import time
from pathlib import Path
from typing import Callable, Dict, Iterator, List

import pytest

from qa.cephadm.cache import why_unable
from qa.cephadm.loops import LoopDevice
from qa.cluster import Cluster
from qa.lib.faults import dispatch_delay, missing_controllers, throttled_device
from qa.lib.guard import FAST_CONF, Guard

ClusterFactory = Callable[..., Cluster]

pytestmark = [pytest.mark.alone,
              pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())]

SLOW = 'PERFGUARD_SLOW_OSD'
WINDOW_SECONDS = 20.0
#: As in test_slow_faults.
NAMED_SECONDS = CLEARED_SECONDS = 4 * WINDOW_SECONDS + 30


def watched(cluster: Cluster, rate: int, size: int = 3) -> Guard:
    """`rate`: of so few operations that no OSD that is delayed is overloaded."""
    cluster.pool_create('p', 64, size=size)
    cluster.wait_clean(60)
    guard = Guard(cluster, {'slow_osd_seconds': str(WINDOW_SECONDS), 'baseline_seconds': '20'})
    cluster.load('p', rate=rate, read_fraction=0.5, runtime=1800)
    return guard


def healthy(guard: Guard, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(2)
        assert SLOW not in guard.checks() and not guard.slow_osds()


def text(guard: Guard) -> str:
    check = guard.checks().get(SLOW)
    return '' if check is None else '; '.join(line['message'] for line in check['detail'])


def test_one_of_three(release: str, cluster_factory: ClusterFactory) -> None:
    cluster = cluster_factory(release, osds=3, hosts=3, store='bluestore', conf=FAST_CONF)
    guard = watched(cluster, 60)
    # A baseline needs five minutes; without it, an OSD must be slower.
    healthy(guard, 90)
    begin = time.monotonic()
    with dispatch_delay(cluster, 2, 0.005):
        cluster.wait(lambda: guard.slow_osds() == {2}, NAMED_SECONDS, 'osd.2 to be slow')
        print('named after %.0f s' % (time.monotonic() - begin))
        cluster.wait(lambda: 'slowest of 2 peers' in text(guard), 10, 'the check')
    cluster.wait(lambda: not guard.slow_osds(), CLEARED_SECONDS, 'osd.2 to recover')
    healthy(guard, 10)


def test_a_part_of_a_class(release: str, cluster_factory: ClusterFactory) -> None:
    """First one OSD, then three more of twelve."""
    cluster = cluster_factory(release, osds=12, hosts=6, store='bluestore', conf=FAST_CONF)
    guard = watched(cluster, 120)
    healthy(guard, 60)
    with contextlib.ExitStack() as delays:
        delays.enter_context(dispatch_delay(cluster, 2, 0.005))
        cluster.wait(lambda: guard.slow_osds() == {2}, NAMED_SECONDS, 'osd.2 to be slow')
        guard.wait_check(SLOW, True, 10)
        for osd in (5, 7, 9):
            delays.enter_context(dispatch_delay(cluster, osd, 0.005))

        def reported() -> bool:
            assert text(guard), guard.osds()
            return '4 of 12 ' in text(guard) and 'osd.2, osd.5, osd.7, osd.9' in text(guard)

        cluster.wait(reported, NAMED_SECONDS + 2 * WINDOW_SECONDS, 'the part')
        print(text(guard))
        assert not guard.slow_osds()
    cluster.wait(lambda: SLOW not in guard.checks(), CLEARED_SECONDS, 'the check to clear')


def causes(guard: Guard, osd: int) -> List[str]:
    return [cause['code'] for cause in guard.osds()[osd]['causes']]


def named_once(guard: Guard, subject: str, cause: str, osds: List[int]) -> None:
    """The shared part is named instead of its OSDs, and cleared again once they have recovered."""
    def named() -> bool:
        check = guard.checks().get(SLOW)
        return check is not None and check['summary']['message'].startswith(subject + ' is slower')

    begin = time.monotonic()
    guard.cluster.wait(named, NAMED_SECONDS + 2 * WINDOW_SECONDS, subject)
    print('after %.0f s: %s' % (time.monotonic() - begin, text(guard)))
    assert [line.partition(': ')[0] for line in text(guard).split('; ')][:1] == [subject]
    assert all(cause in causes(guard, osd) for osd in guard.slow_osds())
    assert guard.slow_osds() <= set(osds)


def test_a_rack(release: str, cluster_factory: ClusterFactory) -> None:
    """Two hosts of two OSDs each."""
    cluster = cluster_factory(release, osds=16, hosts=8, racks=4, conf=FAST_CONF)
    guard = watched(cluster, 120)
    healthy(guard, 60)
    rack = guard.osds()[1]['rack']
    slow = [osd for osd, row in guard.osds().items() if row['rack'] == rack]
    with contextlib.ExitStack() as delays:
        for osd in slow:
            delays.enter_context(dispatch_delay(cluster, osd, 0.005))
        named_once(guard, 'rack ' + rack, 'rack', slow)
    cluster.wait(lambda: SLOW not in guard.checks(), CLEARED_SECONDS, 'the check to clear')


GIB = 1 << 30
#: The OSDs whose DBs are on one device each, of a cluster of two hosts with two such devices.
DB_OSDS = ((0, 2, 4, 6), (1, 3, 5, 7), (8, 10), (9, 11))
#: Writes per second of the device of four DBs.
DB_IOPS = 60


@pytest.fixture
def db_devices(tmp_path: Path) -> Iterator[List[LoopDevice]]:
    devices: List[LoopDevice] = []
    try:
        for number, osds in enumerate(DB_OSDS):
            devices.append(LoopDevice(tmp_path / ('db%d' % number), len(osds) * GIB, len(osds)))
        yield devices
    finally:
        for device in devices:
            device.close()


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
@pytest.mark.skipif(why_unable() is not None or 'blkio' in missing_controllers(),
                    reason='no loop devices, or no cgroup (v1) blkio to write to')
def test_a_device_of_dbs(release: str, cluster_factory: ClusterFactory,
                         db_devices: List[LoopDevice]) -> None:
    """The host has two more OSDs, whose DBs are on another device."""
    # Otherwise the page cache writes what the OSDs write.
    conf: Dict[str, Dict[str, str]] = {**FAST_CONF, 'osd': {'bluefs_buffered_io': 'false'}}
    for device, osds in zip(db_devices, DB_OSDS):
        for osd, partition in zip(osds, device.partitions):
            conf['osd.%d' % osd] = {'bluestore block db path': partition}
    cluster = cluster_factory(release, osds=12, hosts=2, store='bluestore', conf=conf)
    guard = watched(cluster, 120, size=2)
    healthy(guard, 60)
    shared, metadata = Path(db_devices[0].path).name, cluster.mon('osd metadata')
    assert {row['id'] for row in metadata
            if row.get('bluefs_db_devices') == shared} == set(DB_OSDS[0])
    subject = 'device %s:%s' % (metadata[0]['hostname'], shared)
    with throttled_device(cluster, DB_OSDS[0], db_devices[0].path, DB_IOPS):
        named_once(guard, subject, 'device', list(DB_OSDS[0]))
    cluster.wait(lambda: SLOW not in guard.checks(), CLEARED_SECONDS, 'the check to clear')
    assert not guard.tracebacks()
