# SPDX-License-Identifier: LGPL-2.1-or-later
"""Campaigns whose goals are computed while OSDs are down."""
import contextlib
import signal
from typing import Iterator, List

import pytest

from qa.cluster import Cluster
from qa.lib.guard import Guard
from qa.lib.joins import crush_weights, order, wait_reported

from .test_balanced import acting_sets, balance_from_now_on, distances, pools

pytestmark = [pytest.mark.releases('pacific', 'reef', 'tentacle', quick='pacific'),
              pytest.mark.shares('campaign')]


@contextlib.contextmanager
def held_back(cluster: Cluster) -> Iterator[None]:
    """Nothing is released meanwhile."""
    cluster.mon('osd set', key='nobackfill')
    try:
        yield
    finally:
        cluster.mon('osd unset', key='nobackfill')


def take_down(cluster: Cluster, osds: List[int]) -> None:
    """Stop OSDs in order: those in memory keep their data."""
    for osd in osds:
        cluster.kill('osd.%d' % osd, signal.SIGTERM)
    cluster.wait(lambda: not any(row['up'] for row in cluster.osd_dump()['osds']
                                 if row['osd'] in osds), 40, 'OSDs down')


def wait_planned(guard: Guard, last: int) -> None:
    guard.cluster.wait(lambda: guard.event_texts('plan', last), 60, 'goals')


def has_its_share(cluster: Cluster) -> None:
    sets = acting_sets(cluster)
    for pool in pools(cluster):
        weighted = [osd for osd, weight in crush_weights(cluster).items() if weight]
        assert max(distances(sets, pool, weighted)) < 1


def test_a_new_host_that_restarts_gets_its_share(release: str, guard: Guard) -> None:
    cluster, last = guard.cluster, guard.last_event()
    balance_from_now_on(guard)
    added = cluster.add_osds(2, weight=0.0)
    wait_reported(guard)
    with held_back(cluster):
        order(guard, 'expand', what=['osd.%d' % osd for osd in added], weight='1.0')
        cluster.wait(lambda: crush_weights(cluster)[added[-1]] == 1.0, 60, 'the new weights')
        take_down(cluster, added)
    wait_planned(guard, last)
    guard.wait_code('TARGET_DOWN')
    for osd in added:
        cluster.start('osd.%d' % osd)
    done = guard.wait_phase('DONE', timeout=240)
    cluster.wait_clean(60)
    has_its_share(cluster)
    print('%s: %d PGs released, %d kept' % (release, done['released'], done['kept']))
    assert len(guard.event_texts('plan', last)) == 1 and not guard.tracebacks()


@pytest.mark.parametrize('when', ['before', 'after'])
def test_a_drain_while_another_osd_is_down_empties_its_osd(when: str, release: str,
                                                           guard: Guard) -> None:
    """The other OSD is down before the order, which is forced, or when CRUSH has changed."""
    cluster, last = guard.cluster, guard.last_event()
    balance_from_now_on(guard)
    wait_reported(guard)
    cluster.mon('osd set', key='noout')
    try:
        with held_back(cluster):
            if when == 'before':
                take_down(cluster, [0])
                cluster.wait(lambda: guard.get('status')['signals']['degraded_pgs'], 30,
                             'degraded PGs')
            answer = order(guard, 'drain', what=['osd.7'], force=when == 'before')
            cluster.wait(lambda: crush_weights(cluster)[7] < 0.1, 60, 'the new weight')
            if when == 'after':
                take_down(cluster, [0])
        wait_planned(guard, last)
        remapped = cluster.osd_dump()['pg_temp']
        cluster.start('osd.0')
    finally:
        cluster.mon('osd unset', key='noout')
    done = guard.wait_phase('DONE', timeout=240)
    cluster.wait_clean(60)
    left = [pg['pgid'] for pg in cluster.pgs() if 7 in pg['acting']]
    print('%s, %s: %d of %d PGs released, %d kept, %d left on osd.7' % (
        release, when, done['released'], answer['pgs'], done['kept'], len(left)))
    assert not left and crush_weights(cluster)[7] == 0.0
    assert not answer['unpinnable'] and (when == 'after' or not remapped)
    has_its_share(cluster)
    assert len(guard.event_texts('plan', last)) == 1 and not guard.tracebacks()
