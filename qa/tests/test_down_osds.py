# SPDX-License-Identifier: LGPL-2.1-or-later
"""Campaigns whose goals are computed while OSDs are down."""
import contextlib
import signal
import time
from typing import Any, Dict, Iterator, List, Set

import pytest

from perfguard.rebalance.pinning import DOWN_SECONDS
from perfguard.rebalance.risks import RISKS
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
            answer = order(guard, 'drain', what=['osd.7'], accept=RISKS if when == 'before' else ())
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


@pytest.mark.parametrize('noout', ['of the host', *(
    pytest.param(scope, marks=pytest.mark.releases('pacific', 'reef', 'tentacle', quick=()))
    for scope in ('of a class', 'of all'))])
def test_a_host_in_maintenance(noout: str, release: str, guard: Guard) -> None:
    """No release concerns it, nothing alarms, and the goals are those from before."""
    cluster, last = guard.cluster, guard.last_event()
    balance_from_now_on(guard)
    cluster.mon('config set', who='osd', name='osd_fast_shutdown', value='false')
    added = cluster.add_osds(2, hosts=['host0', 'host2'], weight=0.0)
    wait_reported(guard)
    guard.configure({'stalled_after': '10', 'max_pgs_in_flight': '4'})
    here = [osd for osd, host in cluster.osd_hosts().items() if host == 'host1']
    order(guard, 'expand', what=['osd.%d' % osd for osd in added], weight='1.0')
    guard.wait_moving()
    before = acting_sets(cluster)
    device_class = next(row['device_class'] for row in cluster.mon('osd df')['nodes']
                        if row['id'] == here[0])
    with noout_for(cluster, {'of the host': 'host1', 'of a class': device_class}.get(noout, '')):
        take_down(cluster, here)
        guard.wait_code('DEGRADED')
        pinned = _pinned(cluster)
        alarms: Set[str] = set()
        begin = time.monotonic()
        while time.monotonic() - begin < 30:
            alarms.update(guard.checks())
            assert guard.phase() in ('HOLDING', 'RELEASING'), guard.status()
            time.sleep(1)
        released = pinned - _pinned(cluster)
        for osd in here:
            cluster.start('osd.%d' % osd)
        cluster.wait(lambda: all(row['up'] for row in cluster.osd_dump()['osds']), 60, 'OSDs up')
    guard.configure({'max_pgs_in_flight': '64'})
    guard.wait_phase('DONE', timeout=240)
    cluster.wait_clean(60)
    after = acting_sets(cluster)
    print('%s: %d PGs released meanwhile, alarms %s' % (release, len(released), sorted(alarms)))
    assert not alarms
    assert not [pgid for pgid in released if set(here) & {*before[pgid], *after[pgid]}]
    has_its_share(cluster)
    assert len(guard.event_texts('plan', last)) == 1 and not guard.tracebacks()


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
def test_pins_outlast_that_a_new_host_is_marked_out(release: str, guard: Guard) -> None:
    """Before, all PGs that wait for the host were remapped when it went out, and when it was back.
    Still remapped is a PG that CRUSH places just where it is pinned."""
    cluster, last = guard.cluster, guard.last_event()
    added = cluster.add_osds(2, hosts=['host9', 'host9'], weight=0.0)
    names = [str(osd) for osd in added]
    wait_reported(guard)
    with held_back(cluster):
        order(guard, 'expand', what=['osd.%d' % osd for osd in added], weight='1.0')
        cluster.wait(lambda: crush_weights(cluster)[added[-1]] == 1.0, 60, 'the new weights')
        guard.wait_phase('HOLDING', 'RELEASING', timeout=60)
        pinned = _pinned(cluster)
        take_down(cluster, added)
        cluster.wait(lambda: any('by pg_upmap' in text for text in guard.event_texts('pin', last)),
                     DOWN_SECONDS + 60, 'pins by pg_upmap')
        time.sleep(10)
        vectors = _vectors(cluster)
        out = remapped_after(cluster, 'osd out', names)
        for osd in added:
            cluster.start('osd.%d' % osd)
        cluster.wait(lambda: all(row['up'] for row in cluster.osd_dump()['osds']), 60, 'OSDs up')
        back = remapped_after(cluster, 'osd in', names)
    print('%s: %d PGs pinned, %d by vectors; remapped: %d of them out, %d back' % (
        release, len(pinned), len(vectors), len(out & pinned), len(back & pinned)))
    assert len(vectors) > len(pinned) / 2
    assert len(out & pinned) < len(pinned) / 4 and len(back & pinned) < len(pinned) / 2
    done = guard.wait_phase('DONE', timeout=240)
    cluster.wait_clean(60)
    assert done['released'] and guard.event_texts('pin', last) and not guard.tracebacks()


def _vectors(cluster: Cluster) -> Set[str]:
    return {row['pgid'] for row in cluster.osd_dump()['pg_upmap']}


def remapped_after(cluster: Cluster, command: str, osds: List[str]) -> Set[str]:
    """The PGs that are remapped in the ten seconds after a command on OSDs."""
    remapped: Set[str] = set()
    cluster.mon(command, ids=osds)
    begin = time.monotonic()
    while time.monotonic() - begin < 10:
        remapped.update(row['pgid'] for row in cluster.osd_dump()['pg_temp'])
        time.sleep(0.2)
    return remapped


@contextlib.contextmanager
def noout_for(cluster: Cluster, name: str) -> Iterator[None]:
    """noout for a host or a device class; without a name, for all OSDs."""
    given: Dict[str, Any] = {'flags': 'noout', 'who': [name]} if name else {'key': 'noout'}
    verb = '-group' if name else ''
    cluster.mon('osd set' + verb, **given)
    try:
        yield
    finally:
        cluster.mon('osd unset' + verb, **given)


def _pinned(cluster: Cluster) -> Set[str]:
    dump = cluster.osd_dump()
    return {row['pgid'] for row in (*dump['pg_upmap'], *dump['pg_upmap_items'])}
