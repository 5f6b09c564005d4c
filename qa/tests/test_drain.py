# SPDX-License-Identifier: LGPL-2.1-or-later
"""Drains of clusters that are nearly full."""
import threading
from typing import Dict, Iterator, Set

import pytest

from qa.cluster import Cluster
from qa.lib.guard import Guard
from qa.lib.joins import crush_weights, order, refused, safe_to_destroy, wait_reported

pytestmark = [pytest.mark.releases('pacific', 'reef', 'tentacle', quick='tentacle'),
              pytest.mark.shares('join')]

#: How full the fullest OSD is, of which shares the ratios make it nearfull and backfillfull.
FILL, NEARFULL, BACKFILLFULL = 0.75, 0.85, 0.90
#: Objects of three copies, and their size.
OBJECTS, SIZE = 4000, 16384


def fills(cluster: Cluster) -> Dict[int, float]:
    """OSD -> used share of its space."""
    return {row['id']: row['kb_used'] / row['kb'] for row in cluster.mon('osd df')['nodes']}


class FullWatch:
    """Collects the OSDs that the OSDMap ever shows as nearfull or worse."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.full: Set[int] = set()
        self.looks = 0

    def __enter__(self) -> 'FullWatch':
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)
        assert not self._thread.is_alive() and self.looks > 0

    def _look(self) -> None:
        while not self._over.wait(0.3):
            self.full |= {row['osd'] for row in self._cluster.osd_dump()['osds']
                          if {'nearfull', 'backfillfull', 'full'} & set(row['state'])}
            self.looks += 1


@pytest.fixture
def nearly_full(guard: Guard) -> Iterator[float]:
    """The ratio of `nearfull`, after the ratios were lowered until the fullest OSD is at FILL."""
    cluster = guard.cluster
    dump = cluster.osd_dump()
    found = {name: dump[name + '_ratio'] for name in ('nearfull', 'backfillfull')}
    cluster.fill('rep', OBJECTS, SIZE)
    cluster.wait_clean(60)
    cluster.wait(lambda: 1024 * sum(row['kb_used'] for row in cluster.mon('osd df')['nodes'])
                 >= 3 * OBJECTS * SIZE, 60, 'all OSDs to report what they hold')
    wait_reported(guard)
    scale = max(fills(cluster).values()) / FILL
    try:
        cluster.mon('osd set-nearfull-ratio', ratio=NEARFULL * scale)
        cluster.mon('osd set-backfillfull-ratio', ratio=BACKFILLFULL * scale)
        yield NEARFULL * scale
    finally:
        for name, ratio in found.items():
            cluster.mon('osd set-%s-ratio' % name, ratio=ratio)


def test_a_nearly_full_cluster_is_drained_and_no_osd_is_nearfull(
        guard: Guard, nearly_full: float) -> None:
    cluster = guard.cluster
    guard.option('target', 'balanced')
    wait_reported(guard)
    refused(guard, 'drain', 'not enough space', what=['osd.3', 'osd.6', 'osd.7'])
    preview = order(guard, 'drain', what=['osd.7'], dry_run=True)
    foreseen = {row['osd']: row['fill_after'] for row in preview['osds']}
    with FullWatch(cluster) as watch:
        order(guard, 'drain', what=['osd.7'])
        guard.wait_phase('DONE', timeout=240)
        cluster.wait(lambda: safe_to_destroy(cluster, 7), 60, 'osd.7 safe to destroy')
        cluster.wait_clean(60)
    after = fills(cluster)
    scale = nearly_full / NEARFULL
    held = sorted(fill / scale for osd, fill in after.items() if osd != 7)
    print('%s: fill %.1f %% to %.1f %% (nearfull %.0f %%), foreseen at most %.1f %%, %d looks' % (
        cluster.release.name, 100 * held[0], 100 * held[-1], 100 * NEARFULL,
        100 * max(foreseen.values()) / scale, watch.looks))
    assert watch.full == set() and held[-1] < NEARFULL
    cluster.wait(lambda: [(row['osd'], row['phase'], row['replace'], row['pgs']) for row in
                          guard.get('drain ls')['drains']] == [(7, 'EMPTY', False, 0)],
                 30, 'osd.7 reported empty')
    assert guard.get('held')['held'] == [] and not guard.tracebacks()


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
def test_the_devices_of_a_host_are_replaced_with_the_same_ids(guard: Guard) -> None:
    cluster = guard.cluster
    wait_reported(guard)
    hosts, weights = cluster.osd_hosts(), crush_weights(cluster)
    host = hosts[7]
    osds = sorted(osd for osd, at in hosts.items() if at == host)

    def phases() -> Set[str]:
        return {row['phase'] for row in guard.get('drain ls')['drains']}

    answer = order(guard, 'replace', what=[host])
    assert [row['osd'] for row in answer['drains']] == osds
    guard.wait_phase('DONE', timeout=240)
    cluster.wait(lambda: phases() == {'EMPTY'}, 60, 'an empty host')
    assert all(safe_to_destroy(cluster, osd) for osd in osds)
    cluster.remove_osds(osds, destroy=True)
    cluster.mgr_fail()
    guard.wait_ready()
    cluster.wait(lambda: phases() == {'WAITING'}, 60, 'a host that waits for its devices')
    last = max(row['id'] for row in guard.get('rebalance ls')['campaigns'])
    cluster.add_osds(len(osds), hosts=[host] * len(osds), ids=osds, in_crush=False)
    cluster.wait(lambda: (guard.status()['id'] or 0) > last, 90, 'a campaign')
    guard.wait_phase('DONE', timeout=240)
    cluster.wait(lambda: phases() == set(), 60, 'the end of the replacement')
    cluster.wait_clean(60)
    assert crush_weights(cluster) == weights
    assert {osd for pg in cluster.pgs() for osd in pg['acting']} >= set(osds)
    [first, *others] = [row for row in guard.get('rebalance ls')['campaigns']
                        if row['id'] > last]
    assert first['trigger'] == 'undrain' and not others, 'all devices are filled at once'
    assert guard.get('held')['held'] == [] and not guard.tracebacks()
