# SPDX-License-Identifier: LGPL-2.1-or-later
"""Plans: refused once CRUSH has changed, carried out, queued behind a campaign."""
from typing import Sequence

import pytest

from qa.cluster import Cluster
from qa.lib.guard import Guard
from qa.lib.joins import (SLOW_PEERING, crush_weights, order, refused_after_a_change_of_crush,
                          replace_devices, safe_to_destroy, wait_reported)

pytestmark = [pytest.mark.releases('pacific', 'reef', 'tentacle', quick='pacific'),
              pytest.mark.shares('join')]


def test_plans_are_reviewed_approved_and_queued(guard: Guard) -> None:
    cluster = guard.cluster
    guard.configure(SLOW_PEERING)
    added = cluster.add_osds(2, weight=0.0)
    wait_reported(guard)
    what = {'plan': 'autumn', 'change': 'expand', 'weight': '1',
            'what': ['osd.%d' % osd for osd in added]}
    refused_after_a_change_of_crush(guard, **what)
    saved = order(guard, 'plan save', **what)
    rows = {row['osd']: row for row in saved['preview']['osds']}
    assert saved['state'] == 'ready' and guard.phase() == 'IDLE'
    assert all(rows[osd]['pgs_before'] == 0 < rows[osd]['pgs_after'] for osd in added)

    answer = order(guard, 'plan approve', plan='autumn')
    assert answer['campaign'] and not answer['queued_behind']
    guard.wait_phase('PINNED', 'RELEASING', 'HOLDING', 'FINISHING', timeout=120)
    guard.do('pause')
    order(guard, 'plan save', plan='leave', change='drain', what=['osd.0'])
    assert order(guard, 'plan approve', plan='leave')['queued_behind'] == answer['campaign']
    guard.do('resume')

    def second() -> bool:
        status = guard.status()
        return bool(status['id'] == answer['campaign'] + 1 and status['phase'] == 'DONE')

    cluster.wait(second, 240, 'the queued plan to be carried out')
    weights = crush_weights(cluster)
    assert weights[0] < 0.001 and all(weights[osd] == 1.0 for osd in added)
    assert guard.get('plan ls')['plans'] == [] and safe_to_destroy(cluster, 0)
    held = {row['osd']: row['num_pgs'] for row in cluster.mon('pg dump', dumpcontents=['osds'])[
        'osd_stats']}
    for osd in added:
        # PGs of the drained OSD have arrived as well.
        assert held[osd] >= rows[osd]['pgs_after'] - 1
    assert not guard.tracebacks()


@pytest.mark.releases('pacific', quick=())
def test_a_crush_map_is_planned_and_carried_out(guard: Guard) -> None:
    cluster = guard.cluster
    guard.configure(SLOW_PEERING)
    added = cluster.add_osds(2, weight=0.0)
    wait_reported(guard)
    what = {'plan': 'map', 'change': 'crushmap', 'given': crush_map(cluster, added)}
    refused_after_a_change_of_crush(guard, **what)
    saved = order(guard, 'plan save', **what)
    rows = {row['osd']: row for row in saved['preview']['osds']}
    assert all(rows[osd]['pgs_before'] == 0 < rows[osd]['pgs_after'] for osd in added)
    assert guard.phase() == 'IDLE' and {crush_weights(cluster)[osd] for osd in added} == {0.0}
    answer = order(guard, 'plan approve', plan='map', token=saved['token'])
    done = guard.wait_phase('DONE', timeout=240)
    assert (done['id'], done['trigger']) == (answer['campaign'], 'crushmap')
    assert set(crush_weights(cluster).values()) == {1.0}
    assert {osd for pg in cluster.pgs() for osd in pg['acting']} >= set(added)
    assert guard.get('plan ls')['plans'] == [] and guard.upmaps() == {}
    assert not guard.tracebacks()


def crush_map(cluster: Cluster, full: Sequence[int]) -> str:
    """The present map as text, but with full weights of these OSDs."""
    path = cluster.directory / 'crush'
    cluster.ceph('osd', 'getcrushmap', '-o', str(path))
    for osd in full:
        cluster.run_tool(['crushtool', '-i', str(path), '--reweight-item', 'osd.%d' % osd, '1.0',
                          '-o', str(path)])
    return cluster.run_tool(['crushtool', '-d', str(path)])


@pytest.mark.releases('pacific', quick=())
def test_a_replacement_is_planned_and_carried_out(guard: Guard) -> None:
    cluster = guard.cluster
    wait_reported(guard)
    weights = crush_weights(cluster)
    what = {'plan': 'worn', 'change': 'replace', 'what': ['osd.7']}
    refused_after_a_change_of_crush(guard, **what)
    saved = order(guard, 'plan save', **what)
    [row] = [row for row in saved['preview']['osds'] if row['osd'] == 7]
    assert row['pgs_before'] > 0 == row['pgs_after'] and guard.phase() == 'IDLE'
    answer = order(guard, 'plan approve', plan='worn', token=saved['token'])
    assert guard.wait_phase('DONE', timeout=240)['id'] == answer['campaign']
    replace_devices(guard, [7])
    assert crush_weights(cluster) == weights and guard.get('plan ls')['plans'] == []
    assert guard.get('held')['held'] == [] and not guard.tracebacks()
