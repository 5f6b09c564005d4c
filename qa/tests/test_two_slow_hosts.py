# SPDX-License-Identifier: LGPL-2.1-or-later
"""Two slow hosts in a cluster of twenty OSDs, with the periods of a real cluster: reports each 5 s
and a window of a minute."""
import contextlib
import re
import time
from typing import Callable, Dict, Iterator, Set

import pytest

from qa.cluster import Cluster
from qa.lib.faults import dispatch_delay
from qa.lib.guard import Guard

ClusterFactory = Callable[..., Cluster]

pytestmark = [pytest.mark.alone, pytest.mark.releases('pacific', quick=())]

OSDS, HOSTS = 20, 10
#: Operations per second: some 30 of each OSD, replication included.
RATE = 200.0
DELAY_SECONDS = 0.025
CLEARED_SECONDS = 120.0
#: Until each rung is taken: slowness, an interval of the mitigation for each OSD, peering.
LOWERED_SECONDS = 180.0
OPTIONS = {'mitigation_seconds': '5'}


@pytest.fixture(scope='module')
def shared(release: str, cluster_factory: ClusterFactory) -> Iterator[Guard]:
    cluster = cluster_factory(release, osds=OSDS, hosts=HOSTS)
    cluster.pool_create('p', 128)
    cluster.wait_clean(120)
    guard = Guard(cluster, OPTIONS)
    cluster.load('p', rate=RATE, read_fraction=0.5, runtime=7200)
    yield guard
    cluster.down()


@pytest.fixture
def guard(shared: Guard) -> Iterator[Guard]:
    shared.cluster.wait(lambda: all(row['score'] for row in shared.osds().values()), 180,
                        'slowdowns of all OSDs')
    shared.cluster.wait(lambda: not shared.slow_osds(), CLEARED_SECONDS, 'no slow OSD')
    before = shared.foreign()
    yield shared
    assert shared.foreign() == before
    assert not shared.tracebacks()


def hosts(guard: Guard) -> Dict[str, Set[int]]:
    found: Dict[str, Set[int]] = {}
    for osd, row in guard.osds().items():
        found.setdefault(row['host'], set()).add(osd)
    return found


def lowered(guard: Guard) -> Set[int]:
    return {row['osd'] for row in guard.cluster.osd_dump()['osds'] if row['primary_affinity'] < 1}


def affinity_rungs(guard: Guard, state: str) -> Set[int]:
    return {int(row['subject'][len('osd.'):]) for row in guard.get('mitigation ls')['rungs']
            if row['rung'] == 'primary affinity' and row['state'] == state}


@pytest.mark.timeout(1200)
def test_of_two_slow_hosts_one_loses_its_primaries_and_the_other_is_reported(guard: Guard) -> None:
    cluster, last = guard.cluster, guard.last_event()
    slow_hosts = dict(sorted(hosts(guard).items())[2:4])
    slow = set().union(*slow_hosts.values())
    assert len(slow) == 4

    def within_one_host() -> Set[int]:
        osds = lowered(guard)
        assert any(osds <= members for members in slow_hosts.values()), osds
        return osds

    try:
        guard.option('mitigation_mode', 'act')
        guard.option('mitigation_affinity', 'true')
        with contextlib.ExitStack() as faults:
            for osd in sorted(slow):
                faults.enter_context(dispatch_delay(cluster, osd, DELAY_SECONDS))
            cluster.wait(lambda: len(within_one_host()) == 2, LOWERED_SECONDS, 'a host to be eased')
            eased = within_one_host()
            cluster.wait(lambda: affinity_rungs(guard, 'limited') == slow - eased, LOWERED_SECONDS,
                         'the other host to be left alone')
            print('lowered %s, left alone %s' % (sorted(eased), sorted(slow - eased)))
            assert guard.slow_osds() == slow
            cluster.wait(lambda: all(host in guard.checks()['PERFGUARD_SLOW_OSD']['summary'][
                'message'] for host in slow_hosts), 30, 'both hosts to be named')
            end = time.monotonic() + 60
            while time.monotonic() < end:
                assert within_one_host() == eased
                time.sleep(2)
            assert affinity_rungs(guard, 'held') == eased
        # While the first host recovers before the second one, that one may have its turn.
        cluster.wait(lambda: not within_one_host() and not guard.slow_osds(), 2 * CLEARED_SECONDS,
                     'all affinities given back')
    finally:
        guard.unset('mitigation_affinity')
        guard.unset('mitigation_mode')
    cluster.wait(lambda: not lowered(guard), 60, 'all affinities given back')
    done = [event for event in guard.events()
            if event['kind'] == 'mitigation' and event['id'] > last]
    print('\n'.join('%s (%s)' % (event['what'], event['why']) for event in done))
    # Each is on record with a reason: what was lowered and given back, and what was left alone.
    for osd in slow:
        about = [event for event in done
                 if re.search(r'osd\.%d\b' % osd, event['what']) and event['why']]
        assert len(about) >= (2 if osd in eased else 1), (osd, done)
