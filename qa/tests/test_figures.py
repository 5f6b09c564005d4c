# SPDX-License-Identifier: LGPL-2.1-or-later
"""Figures that operators take away: of pools --expected, and an exported history."""
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict

import pytest

from qa.bench import recorded
from qa.conftest import CHECKOUT
from qa.lib.clusters import ClusterFactory
from qa.lib.guard import FAST_CONF, Guard
from qa.lib.joins import crush_weights
from qa.lib.probes import SHORT, Probes

pytestmark = pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())

OSDS = 6
#: Readings of each OSD that an export has at least.
POINTS = 15
#: Published operations per second of a hard disk with a deep queue, and writes of a virtual machine
#: that runs Linux.
DISK_IOPS, LINUX_WRITES = (80.0, 144.0), 20.0


@pytest.fixture(scope='module')
def probes(release: str, cluster_factory: ClusterFactory) -> Probes:
    cluster = cluster_factory(release, osds=OSDS, hosts=3, conf=FAST_CONF)
    cluster.pool_create('rep', 32)
    cluster.pool_create('ec', 16, erasure=(2, 1))
    cluster.wait_clean(60)
    return Probes(Guard(cluster))


def by_pool(probes: Probes, key: str) -> Dict[str, Any]:
    return {row['pool']: row for row in probes.guard.get('pools', expected=True)[key]}


def test_a_probe_stands_beside_what_is_expected(probes: Probes) -> None:
    run = probes.measure(pool='rep', rw='randread', iodepth='1', repeat='1', **SHORT)
    iops = run['jobs'][0]['read']['iops']
    rows = {(row['direction'], row['bs'], row['iodepth']): row
            for row in by_pool(probes, 'pools')['rep']['expected']}
    row = rows.pop(('read', 4096, 1))
    print('%s: %.0f IOPS, expected %.0f to %.0f: %s' % (
        probes.cluster.release.name, iops, row['low'], row['high'], row['verdict']))
    assert row['probe'] == max(probes.ids()) and row['measured'] == pytest.approx(iops, rel=0.01)
    assert row['verdict'] == ('below' if iops < row['low'] else
                              'above' if iops > row['high'] else 'as expected')
    assert rows and all(each['probe'] is each['measured'] is None for each in rows.values())


def ranged(factor: float) -> Any:
    low, high = DISK_IOPS
    return pytest.approx({'low': low * factor, 'high': high * factor})


def test_capacities_follow_the_size_of_the_cluster(probes: Probes) -> None:
    """Of 3 replicas, and of an erasure code of 2+1, on disks of 1 TiB."""
    cluster = probes.cluster
    rows = by_pool(probes, 'capacity')
    rep, ec = rows['rep'], rows['ec']
    assert sum(crush_weights(cluster).values()) == OSDS
    assert (rep['device_class'], rep['osds'], rep['copies'], ec['copies']) == (
        'hdd', OSDS, '3x', '2+1')
    assert (rep['usable_tib'], ec['usable_tib']) == pytest.approx((OSDS / 3, OSDS * 2 / 3))
    assert rep['read_iops'] == ec['read_iops'] == ranged(OSDS)
    # Each write is one of three OSDs; of an erasure code, a third of those of two replicas.
    assert rep['write_iops'] == ranged(OSDS / 3) and ec['write_iops'] == ranged(OSDS / 2 / 3)
    assert rep['write_iops_per_tib'] == ranged(1.0)
    assert rep['linux_vms'] == ranged(OSDS / 3 / LINUX_WRITES)
    cluster.mon('osd crush reweight', name='osd.0', weight=2.0)
    try:
        cluster.wait(lambda: by_pool(probes, 'capacity')['rep']['usable_tib']
                     == pytest.approx((OSDS + 1) / 3), 30, 'the new size')
    finally:
        cluster.mon('osd crush reweight', name='osd.0', weight=1.0)
    cluster.wait_clean(60)


def test_an_exported_history_is_read_by_the_bench(probes: Probes, tmp_path: Path) -> None:
    guard, cluster = probes.guard, probes.cluster
    load = cluster.load('rep', rate=200, read_fraction=0.5, runtime=300)
    try:
        cluster.wait(lambda: all(row['score'] for row in guard.osds().values()), 90, 'slowdowns')
        cluster.wait(lambda: len(exported(guard, tmp_path).splitlines()) > 2 * POINTS * OSDS, 120,
                     'readings of all OSDs')
    finally:
        load.stop()
    [trace] = recorded.load(tmp_path)
    names = [trace.name(osd) for osd in range(OSDS)]
    assert names == ['osd.%d' % osd for osd in range(OSDS)] and trace.beats >= POINTS
    assert {osd: place.host for osd, place in trace.places.items()} == cluster.osd_hosts()
    for flow in 'read', 'write':
        rate, ms = trace.flows[flow]
        # The pool has three copies on six OSDs, so each OSD is the primary of some PGs.
        assert (rate.max(axis=0) > 0.0).all() and (ms[rate > 0.0] > 0.0).all(), flow
    bench = subprocess.run([sys.executable, '-m', 'qa.bench.bench_slow_osd', '--trace', tmp_path],
                           cwd=CHECKOUT, stdout=subprocess.PIPE, encoding='utf-8', timeout=120,
                           check=True)
    assert 'history.csv' in bench.stdout
    assert not guard.tracebacks()


def exported(guard: Guard, directory: Path) -> str:
    """As `perfguard history --export` prints it; also in a file."""
    retval, out, error = guard.ask('history', export=True, format='plain')
    assert retval == 0, error
    (directory / 'history.csv').write_text(out)
    return out
