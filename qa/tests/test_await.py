# SPDX-License-Identifier: LGPL-2.1-or-later
"""`expand --await` with OSDs that place themselves into CRUSH, as they do outside of tests."""
from typing import List, Optional

import pytest

from qa.cluster import Cluster
from qa.lib.clusters import ClusterFactory, small_cluster
from qa.lib.guard import FAST_CONF, Guard
from qa.lib.joins import crush_weights, order, refused, wait_reported

pytestmark = pytest.mark.releases('pacific', 'reef', 'tentacle')
OPTION = 'osd_crush_initial_weight'


def boot(cluster: Cluster, count: int) -> List[int]:
    """OSDs of 1 TiB in a new host each, which add themselves to CRUSH."""
    first = max(cluster.osds()) + 1
    osds = list(range(first, first + count))
    with open(cluster.conf_path, 'a') as conf:
        conf.writelines('[osd.%d]\nosd crush update on start = true\nmemstore device bytes = %d\n'
                        'crush location = root=default host=new%d\n' % (osd, 1 << 40, osd)
                        for osd in osds)
    return cluster.add_osds(count, in_crush=False)


def option(cluster: Cluster) -> Optional[float]:
    return next((float(entry['value']) for entry in cluster.mon('config dump')
                 if entry['name'] == OPTION), None)


def fail_over(guard: Guard) -> None:
    guard.cluster.mon('mgr fail', who=guard.cluster.mon('mgr dump')['active_name'])
    guard.wait_ready()


def awaiting(guard: Guard, osds: int) -> None:
    """Wait until so many OSDs are collected."""
    def collected() -> bool:
        return any(reason['code'] == 'AWAITS_OSDS' and '%s so far' % (osds or 'none')
                   in reason['text'] for reason in guard.get('status')['limits'])

    guard.cluster.wait(collected, 60, '%d OSDs that are awaited' % osds)


def test_osds_that_boot_are_expanded(release: str, make_cluster: ClusterFactory) -> None:
    """With a failover before they boot, and one before they stand still; then with an abort."""
    guard = Guard(small_cluster(make_cluster, release, FAST_CONF, mgrs=2))
    cluster = guard.cluster
    cluster.mon('config set', who='osd', name=OPTION, value='0.5')
    before = guard.foreign()
    wait_reported(guard)
    preview = order(guard, 'preview', change='expand', **{'await': True})
    assert float(preview['found']) == option(cluster) == 0.5

    guard.option('auto_expand_settle', '25')
    answer = order(guard, 'expand', **{'await': True})
    assert (answer['put'], option(cluster)) == ('0', 0.0)
    refused(guard, 'expand', 'awaited already', **{'await': True})
    held, = guard.get('held')['held']
    assert held['owner'] == 'expand --await' and float(held['found']) == 0.5
    fail_over(guard)
    added = boot(cluster, 2)
    assert not any(crush_weights(cluster)[osd] for osd in added)
    awaiting(guard, 2)
    fail_over(guard)
    added += boot(cluster, 1)
    assert guard.phase() == 'IDLE'
    done = guard.wait_phase('DONE', timeout=180)
    assert done['trigger'] == 'expand' and done['released'] > 0
    assert {round(crush_weights(cluster)[osd], 2) for osd in added} == {0.5}
    cluster.wait(lambda: guard.get('held')['held'] == [], 30, 'the option given back')
    cluster.wait_clean(60)
    assert {osd for pg in cluster.pgs() for osd in pg['acting']} >= set(added)

    order(guard, 'expand', **{'await': True}, within='2h')
    empty = boot(cluster, 1)
    awaiting(guard, 1)
    guard.do('abort')
    cluster.wait(lambda: guard.get('held')['held'] == [], 30, 'the option given back')
    assert crush_weights(cluster)[empty[0]] == 0.0 and guard.phase() == 'DONE'
    assert guard.foreign() == before and 'await' not in {
        key.split('/')[0] for key in guard.store_keys()}
    # What the option has prevented.
    full, = boot(cluster, 1)
    assert crush_weights(cluster)[full] == 0.5
    assert not guard.tracebacks()


def test_old_osds_are_drained_with_them(release: str, make_cluster: ClusterFactory) -> None:
    guard = Guard(small_cluster(make_cluster, release, FAST_CONF, mgrs=2))
    cluster = guard.cluster
    wait_reported(guard)
    guard.option('auto_expand_settle', '10')
    refused(guard, 'expand', "no OSD, host or rack 'host99'", drain=['host99'], **{'await': True})
    order(guard, 'expand', drain=['osd.0'], weight='1.0', **{'await': True})
    fail_over(guard)
    new, = boot(cluster, 1)
    assert guard.wait_phase('DONE', timeout=180)['trigger'] == 'expand'
    cluster.wait_clean(60)
    holding = {osd for pg in cluster.pgs() for osd in (*pg['up'], *pg['acting'])}
    assert 0 not in holding and new in holding
    assert crush_weights(cluster)[0] == 0.0
    cluster.wait(lambda: option(cluster) is None, 30, 'the option to be given back')
    assert not guard.tracebacks()
