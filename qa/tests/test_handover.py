# SPDX-License-Identifier: LGPL-2.1-or-later
"""A rolling upgrade of Ceph in the middle of a campaign: the mgr of the next release finishes it.

The mons are upgraded first, then the standby mgr, which takes over. The OSDs keep the release that
they have: those of memstore would lose their data.
"""
import json
from dataclasses import replace
from typing import Tuple

import pytest

from qa.cluster import Cluster
from qa.lib.auditor import MGR_POOLS, Foreign, Rows, known
from qa.lib.clusters import ClusterFactory, small_cluster
from qa.lib.guard import FAST_CONF, Guard
from qa.lib.joins import crush_weights, order, wait_reported
from qa.lib.probes import digest
from qa.lib.writer import Writer

#: The release before. Tentacle does not support an upgrade from Pacific.
EARLIER = {'reef': 'pacific', 'tentacle': 'reef'}
#: For most of the campaign: it must outlast the upgrade.
SLOW = {'max_pgs_in_flight': '1', 'campaign_interval': '5'}
FASTER = {'max_pgs_in_flight': '64', 'campaign_interval': '0.3'}

#: Keys that CRUSH rules no longer have in Reef.
DROPPED = {'ruleset', 'min_size', 'max_size'}


def own(foreign: Foreign, before: Foreign) -> Foreign:
    """Without what the mgrs and mons of the next release change of themselves: the pool of the mgr
    has another name, and new options, keys and values of the OSDMap are stored."""
    autoscale: Tuple[Tuple[str, str], ...] = tuple(
        (pool, mode) for pool, mode in foreign.autoscale if not pool.startswith(MGR_POOLS))
    return replace(foreign, autoscale=autoscale, crush=rules_of_reef(known(
        foreign.crush, before.crush)), **{
            name: known(getattr(foreign, name), getattr(before, name))
            for name in ('keys', 'pools', 'osds', 'osdmap')})


def rules_of_reef(crush: Rows) -> Rows:
    return tuple((path, json.dumps([{
        name: setting for name, setting in rule.items() if name not in DROPPED}
        for rule in json.loads(value)]) if path == '/rules' else value) for path, value in crush)


def release_of(cluster: Cluster, mgr: str) -> str:
    """As it reports it; '': the mons do not know it."""
    return next((str(row.get('ceph_release', '')) for row in cluster.mon('mgr metadata')
                 if row['name'] == mgr), '')


@pytest.mark.releases('reef', 'tentacle', quick=())
def test_a_campaign_outlives_the_upgrade_of_mons_and_mgrs(
        release: str, make_cluster: ClusterFactory) -> None:
    cluster = small_cluster(make_cluster, EARLIER[release], FAST_CONF, mgrs=2)
    guard = Guard(cluster, SLOW)
    found = guard.foreign()
    before = own(found, found)
    objects = [digest(cluster, pool) for pool in ('rep', 'ec')]
    added = cluster.add_osds(2, weight=0.0)
    wait_reported(guard)
    with Writer(cluster, 'rep', 'ec'):
        order(guard, 'expand', what=['osd.%d' % osd for osd in added], weight='1.0')
        guard.wait_moving()
        number = guard.status()['id']
        active = cluster.active_mgr()
        standby, = {'x', 'y'} - {active}

        cluster.become(release)
        for mon in cluster.mon('mon dump')['mons']:
            cluster.kill('mon.' + mon['name'])
            cluster.start('mon.' + mon['name'])
        guard.wait_ready()
        cluster.kill('mgr.' + standby)
        cluster.start('mgr.' + standby)
        # The mons may list the one that was killed for a while.
        cluster.wait(lambda: release_of(cluster, standby) == release, 90,
                     'the standby of the next release')
        assert release_of(cluster, active) == EARLIER[release]
        cluster.mgr_fail()
        guard.wait_ready()
        assert cluster.active_mgr() == standby and release_of(cluster, standby) == release
        cluster.kill('mgr.' + active)
        cluster.start('mgr.' + active)

        status = guard.status()
        print('%s to %s: %d of %d PGs released before the new mgr took over' % (
            EARLIER[release], release, status['released'], status['total']))
        assert status['id'] == number and status['pinned'] > 0, status
        guard.configure(FASTER)
        done = guard.wait_phase('DONE', timeout=240)
        assert done['released'] == done['total'] and not done['pinned'] and not done['unpinnable']
    cluster.wait_clean(120)
    cluster.wait(lambda: guard.get('held')['held'] == [], 30, 'nothing to be borrowed')
    assert guard.upmaps() == {} and own(guard.foreign(), found) == before
    assert set(crush_weights(cluster).values()) == {1.0}
    assert [digest(cluster, pool) for pool in ('rep', 'ec')] == objects
    assert not guard.tracebacks()
