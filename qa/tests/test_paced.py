# SPDX-License-Identifier: LGPL-2.1-or-later
"""The pace of copying on real OSDs: set while PGs are released, and given back for recovery."""
from typing import Any, Dict

import pytest

from qa.cluster import Cluster
from qa.lib.clusters import ClusterFactory, small_cluster
from qa.lib.guard import FAST_CONF, Guard

pytestmark = pytest.mark.releases('pacific', 'tentacle')

#: The OSDs of a test cluster count as rotating drives and do not sleep, by their ceph.conf. Here
#: the configuration database says so, as an operator would.
CONF: Dict[str, Dict[str, Any]] = {
    **FAST_CONF, 'osd': {'osd recovery sleep': None, 'osd recovery sleep hdd': None}}
#: Release -> what a campaign must have borrowed, beside what has no effect here.
PACED = {'pacific': ('osd_recovery_sleep_hdd', '0.025'),
         'tentacle': ('osd_mclock_profile', 'high_client_ops')}


def shown(cluster: Cluster, osd: int, name: str) -> str:
    """The value in force in an OSD."""
    return str(cluster.tell(f'osd.{osd}', 'config get', var=name)[name])


def same(one: str, other: str) -> bool:
    try:
        return float(one) == float(other)
    except ValueError:
        return one == other


def stored(cluster: Cluster) -> Dict[str, str]:
    return {entry['name']: entry['value'] for entry in cluster.mon('config dump')
            if entry['section'] == 'osd'}


def test_set_while_releasing_and_given_back_when_an_osd_fails(
        release: str, make_cluster: ClusterFactory) -> None:
    cluster = small_cluster(make_cluster, release, CONF, mgrs=2)
    cluster.mon('config set', who='osd', name='osd_recovery_sleep_hdd', value='0')
    guard = Guard(cluster, {'pace_copying': 'on', 'max_pgs_in_flight': '1'})
    name, value = PACED[release]
    usual = shown(cluster, 0, name)
    cluster.fill('rep', 6000, 4096, prefix='more')
    # Without clients nothing is paced. These are too few for their latency to change the pace.
    cluster.load('rep', rate=4)

    def paced() -> bool:
        return same(stored(cluster).get(name, ''), value)

    guard.hold(lambda: cluster.add_osds(4))
    assert not paced()
    guard.do('start')
    cluster.wait(paced, 60, f'{name} {value}')
    cluster.wait(lambda: same(shown(cluster, 0, name), value), 30, 'the OSD to follow')
    guard.wait_code('PACED')
    assert f'{name} of the OSDs' in {row['what'] for row in guard.get('held')['held']}

    cluster.mgr_fail()
    guard.wait_ready()
    guard.wait_phase('RELEASING', 'HOLDING')
    assert paced()

    cluster.kill('osd.1')
    cluster.mon('osd down', ids=['1'])
    cluster.wait(lambda: not paced(), 60, 'recovery at full speed')
    cluster.wait(lambda: same(shown(cluster, 0, name), usual), 30, 'the OSD to follow')
    assert not guard.tracebacks()
