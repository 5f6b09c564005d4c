# SPDX-License-Identifier: LGPL-2.1-or-later
"""`crushmap` and another administrator who changes CRUSH at the same time."""
import base64
import signal
import subprocess
from pathlib import Path

import pytest

from qa.cluster import Cluster
from qa.cluster.patience import patient
from qa.lib.guard import Guard

pytestmark = [pytest.mark.releases('pacific'), pytest.mark.shares('join')]


def crush_version(cluster: Cluster) -> int:
    return int(cluster.osd_dump()['crush_version'])


def heavier(cluster: Cluster, osd: int) -> str:
    """The CRUSH map in force with twice the weight of one OSD, compiled, in base64."""
    here, there = (str(cluster.directory / name) for name in ('crush', 'heavy'))
    cluster.ceph('osd', 'getcrushmap', '-o', here)
    subprocess.run(cluster.release.argv(
        ['crushtool', '-i', here, '--reweight-item', 'osd.%d' % osd, '2', '-o', there],
        cluster.directory), check=True, stdout=subprocess.DEVNULL, timeout=patient(60))
    return base64.b64encode(Path(there).read_bytes()).decode()


def weight(cluster: Cluster, osd: int) -> float:
    return float(next(node['crush_weight'] for node in cluster.mon('osd tree')['nodes']
                      if node['id'] == osd))


def test_a_concurrent_change_of_crush_survives(release: str, guard: Guard) -> None:
    cluster = guard.cluster
    before = guard.foreign()
    given = heavier(cluster, 1)

    def apply(**args: object) -> 'tuple[int, str, str]':
        return cluster.command('mgr', {'prefix': 'perfguard crushmap', 'format': 'json',
                                       **args}, given.encode())

    version = crush_version(cluster)
    retval, _, error = apply(prior_version=version - 1)
    assert retval < 0 and 'has version %d, not %d' % (version, version - 1) in error
    retval, _, error = apply(prior_version=version)
    assert retval == 0, error
    cluster.mon('osd crush reweight', name='osd.3', weight=1.5)
    assert crush_version(cluster) == version + 1 and weight(cluster, 1) == 1.0, 'too late to race'
    guard.wait_phase('ABORTED', timeout=90)
    assert (weight(cluster, 1), weight(cluster, 3)) == (1.0, 1.5)
    aborted = [event for event in guard.events() if event['what'].endswith('ABORTING')]
    print('%s: %s' % (release, aborted[-1]['why']))
    assert 'osd.3.' in aborted[-1]['why'] and 'osd.1' not in aborted[-1]['why']
    # The other change is pinned like any other that a campaign meets.
    cluster.wait_clean(60)
    if guard.status()['pinned']:
        guard.do('finish', keep=True)
        guard.wait_phase('DONE', timeout=60)
        cluster.wait_clean(60)
    assert guard.foreign() == before and not guard.tracebacks()


def test_a_map_is_applied_although_an_osd_restarts_meanwhile(release: str, guard: Guard) -> None:
    """An OSD that starts names its device class, and the mons give the same map a new version."""
    cluster = guard.cluster
    given, version = heavier(cluster, 1), crush_version(cluster)
    try:
        retval, _, error = cluster.command('mgr', {
            'prefix': 'perfguard crushmap', 'format': 'json', 'prior_version': version},
            given.encode())
        assert retval == 0, error
        device_class = cluster.mon('osd crush get-device-class', ids=['0'])[0]['device_class']
        cluster.mon('osd crush set-device-class', ids=['0'], **{'class': device_class})
        renamed = crush_version(cluster)
        assert weight(cluster, 1) == 1.0, 'too late to race'
        cluster.kill('osd.0', signal.SIGTERM)
        cluster.start('osd.0')
        guard.wait_phase('DONE', timeout=300)
        print('%s: CRUSH version %d, %d, %d' % (release, version, renamed, crush_version(cluster)))
        assert renamed > version and weight(cluster, 1) == 2.0
    finally:
        cluster.mon('osd crush reweight', name='osd.1', weight=1.0)
        cluster.wait_clean(120)
    assert not guard.tracebacks()
