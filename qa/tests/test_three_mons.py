# SPDX-License-Identifier: LGPL-2.1-or-later
"""An expansion in one epoch with three mons: through a peon, without a leader, beside its death.

All tests of a release share one cluster, which is put back in order before each of them.
"""
import errno
import time
from typing import Any, Callable, Dict, Iterator, List

import pytest

from qa.cluster import Cluster
from qa.lib.clusters import ClusterFactory
from qa.lib.guard import USUAL_CONF, Guard
from qa.lib.joins import crush_weights, join, landing, let_go, order, wait_reported
from qa.lib.mons import (bring_back_mons, die, disks_full, hang, kill_leader,
                         move_the_mgr_to_a_peon)
from qa.lib.probes import digest
from qa.lib.writer import Writer

pytestmark = pytest.mark.releases('pacific', 'reef', 'tentacle', quick='tentacle')

#: With which an expansion begins; the others are what it adds.
OSDS = 6
#: The mgr hears of the cluster's health every five seconds.
DIGEST_SECONDS = 12.0


@pytest.fixture(scope='module')
def shared(release: str, cluster_factory: ClusterFactory) -> Guard:
    cluster = cluster_factory(release, osds=OSDS, hosts=3, mons=3, conf=USUAL_CONF)
    cluster.pool_create('p', 48)
    cluster.pool_create('written', 16)
    cluster.fill('p', 300, 4096)
    cluster.add_osds(2, weight=0.0)
    return Guard(cluster)


@pytest.fixture
def guard(shared: Guard) -> Iterator[Guard]:
    """All mons in quorum, two OSDs that wait for their weight, and a client that writes."""
    tidy(shared)
    before, objects = shared.foreign(), digest(shared.cluster, 'p')
    with Writer(shared.cluster, 'written'):
        yield shared
    try:
        assert shared.upmaps() == {} and shared.foreign() == before
        assert digest(shared.cluster, 'p') == objects and not shared.tracebacks()
    finally:
        tidy(shared)


def tidy(guard: Guard) -> None:
    cluster = guard.cluster
    bring_back_mons(cluster)
    for flag in {'norebalance', 'nobackfill'} & set(cluster.osd_dump()['flags_set']):
        cluster.mon('osd unset', key=flag)
    if guard.status()['phase'] not in ('IDLE', 'DONE', 'ABORTED'):
        guard.do('abort')
        guard.wait_phase('ABORTED')
    guard.remove_upmaps()
    weights = crush_weights(cluster)
    cluster.burst([{'prefix': 'osd crush reweight', 'name': 'osd.%d' % osd, 'weight': 0.0}
                   for osd in added(cluster) if weights[osd]])
    cluster.wait_clean(120)
    wait_reported(guard)


def added(cluster: Cluster) -> List[int]:
    return [osd for osd in cluster.osds() if osd >= OSDS]


def both(guard: Guard) -> Dict[str, Any]:
    """The arguments that fill the added OSDs: by name, since they may have held PGs before."""
    return {'what': ['osd.%d' % osd for osd in added(guard.cluster)], 'weight': '1.0'}


# ---- the tests

@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
def test_burst_through_a_peon(guard: Guard) -> None:
    move_the_mgr_to_a_peon(guard.cluster)
    join(guard, 'expand', **both(guard))
    let_go(guard)


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
def test_burst_without_the_first_leader(guard: Guard) -> None:
    """With two of three mons: refused, unless accepted; nothing moves until the third is back."""
    cluster = guard.cluster
    dead = kill_leader(cluster)
    wait_refused(guard)
    epoch = cluster.epoch()
    assert order(guard, 'expand', accept=['MON_DOWN'], **both(guard))['one_epoch']
    guard.wait_phase('HOLDING', timeout=90)
    held = guard.wait_code('MON_DOWN')
    time.sleep(3)
    assert landing(cluster, epoch)[2] == 0
    assert held['pinned'] == held['total'] > 0 and guard.status()['released'] == 0
    assert {crush_weights(cluster)[osd] for osd in added(cluster)} == {1.0}
    cluster.start('mon.' + dead)
    let_go(guard)


def wait_refused(guard: Guard) -> None:
    """Nothing may begin while a mon is missing."""
    guard.cluster.wait(lambda: 'MON_DOWN' in guard.cluster.mon('health')['checks'], 60,
                       'the missing mon to be noticed')
    time.sleep(DIGEST_SECONDS)
    retval, _, error = guard.ask('expand', **both(guard))
    assert retval == -errno.EPERM, error


def test_leader_dies_during_the_burst(guard: Guard) -> None:
    """Whatever of the burst is lost is sent again; at worst the campaign pins after the change."""
    cluster = guard.cluster
    epoch = cluster.epoch()
    order(guard, 'expand', **both(guard))
    guard.wait_phase('PINNING')
    cluster.wait(lambda: gathering(cluster), 20, 'the mons to gather')
    time.sleep(1)
    begin = time.monotonic()
    dead = kill_leader(cluster)
    guard.wait_phase('HOLDING', 'RELEASING', timeout=180)
    crush, epochs, remapped = landing(cluster, epoch)
    print('%s: mon.%s killed; another leader and all pinned after %.1f s; CRUSH changed in %d '
          'epoch(s), upmaps in %d, at most %d PGs remapped' % (
              cluster.release.name, dead, time.monotonic() - begin, crush, len(epochs), remapped))
    assert crush == 1 and {crush_weights(cluster)[osd] for osd in added(cluster)} == {1.0}
    cluster.start('mon.' + dead)
    let_go(guard)
    assert {osd for pg in cluster.pgs() for osd in pg['acting']} >= set(added(cluster))


def gathering(cluster: Cluster) -> bool:
    """The mons wait long enough to take the whole burst into one epoch."""
    return [float(entry['value']) for entry in cluster.mon('config dump')
            if entry['name'] == 'paxos_propose_interval'] == [3.0]


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
@pytest.mark.parametrize('fault, count, seconds', [
    (hang, 1, 20.0), (hang, 2, 60.0), (die, 1, 20.0), (die, 2, 60.0),
    pytest.param(disks_full, 2, 20.0, marks=pytest.mark.releases('pacific', quick=()))])
def test_mons_fail_while_pgs_move(
        fault: Callable[[Cluster, int, float], None], count: int, seconds: float, release: str,
        guard: Guard) -> None:
    """The leader alone, or the quorum with it; nothing moves that was not journalled."""
    cluster = guard.cluster
    guard.configure({'max_pgs_in_flight': '1'})
    try:
        order(guard, 'expand', **both(guard))
        guard.wait_moving()
        fault(cluster, count, seconds)
        released = guard.status()['released']
        guard.unset('max_pgs_in_flight')
        done = guard.wait_phase('DONE', timeout=240)
        cluster.wait_clean(60)
        print('%s: %s of %d mons for %.0f s; %d of %d PGs released by then' % (
            release, fault.__name__, count, seconds, released, done['total']))
        assert done['released'] == done['total'] > released
    finally:
        guard.unset('max_pgs_in_flight')
