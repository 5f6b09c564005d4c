# SPDX-License-Identifier: LGPL-2.1-or-later
"""The watch on a real cluster: laggy PGs, and what must not raise an alarm.

The tests of a release share one cluster. It begins with nothing at all.
"""
import time
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

import pytest

from qa.cluster import Cluster
from qa.lib.faults import LAGGY_CONF, laggy, write_flood
from qa.lib.guard import FAST_CONF, Guard, Json
from qa.lib.network import Network, why_impossible

ClusterFactory = Callable[..., Cluster]

LAGGY = 'PERFGUARD_LAGGY_PGS'
#: Seconds from the first laggy PG in the mgr's PG stats until the suspect is named.
NAMED_SECONDS = 15
#: The alarm is kept for 15 s after the last laggy PG.
CLEARED_SECONDS = 45
HANGS = 3
#: An OSD that hangs is silent for three report periods first.
HUNG_SECONDS = 20
#: How busy an OSD is needs two dumps of its counters, while it hardly has time to answer.
FLOODED_SECONDS = 150
PURGED = 5
#: What the cable of an OSD carries, as a share of its traffic, which is measured for some seconds.
CABLE_SHARE, CABLE_SECONDS = 0.7, 10.0
#: Ping times of heartbeats are averages of a minute.
SLOW_PING_SECONDS = 120

every_release = pytest.mark.releases('pacific', 'reef', 'tentacle', quick='tentacle')


@pytest.fixture(scope='module')
def guard(release: str, cluster_factory: ClusterFactory) -> Iterator[Guard]:
    cluster = cluster_factory(release, osds=0, hosts=3, mgrs=2,
                              conf=LAGGY_CONF)
    yield Guard(cluster, {'baseline_seconds': '5'})
    # Not beside the next release's cluster.
    cluster.down()


@every_release
def test_cluster_without_osds(guard: Guard) -> None:
    time.sleep(4)
    assert guard.get('osds') == {'osds': []}
    assert guard.get('laggy')['pgs'] == guard.get('laggy')['suspects'] == []
    quiet(guard)


@every_release
def test_idle_cluster(guard: Guard) -> None:
    six_osds(guard)
    time.sleep(4)
    assert guard.get('laggy')['pgs'] == []
    quiet(guard)


def six_osds(guard: Guard) -> None:
    """Of the tests of a release, the first one that needs them adds them."""
    cluster = guard.cluster
    if not cluster.osds():
        cluster.add_osds(6, hosts=['host0', 'host1', 'host2'])
        cluster.pool_create('p', 32)
    cluster.wait(lambda: len(guard.osds()) == 6, 20, 'six OSDs watched')


class Laggy(NamedTuple):
    """What was seen of laggy PGs."""
    #: Seconds from the first laggy PG in the PG stats until the suspect was named.
    named_after: float
    laggy: Json
    pgs: Dict[str, List[int]]


@every_release
def test_laggy_pgs(guard: Guard) -> None:
    """The mgr fails in the middle of it: nothing is lost, and nothing is reported twice."""
    six_osds(guard)
    cluster = guard.cluster
    load = cluster.load('p', rate=200, read_fraction=0.8, runtime=300)
    cluster.wait(lambda: baseline(guard), 40, 'a baseline')
    quiet(guard)
    begin = time.time()
    with laggy(cluster, HANGS):
        seen = wait_named(guard)
        print('named %.1f s after the first laggy PG' % seen.named_after)
        assert seen.named_after <= NAMED_SECONDS
        check_laggy(seen)
        guard.wait_check(LAGGY, True, 10)
        assert 'main suspect: osd.%d' % HANGS in guard.checks()[LAGGY]['summary']['message']
        since = guard.get('laggy')['since']
        cluster.mgr_fail()
        guard.wait_ready()
        assert LAGGY in guard.get('status')['health']
        assert guard.get('laggy')['since'] == since
        assert baseline(guard)
        check_laggy(wait_named(guard))
        cluster.wait(lambda: mechanism(guard, HANGS) == 'hangs', HUNG_SECONDS, 'the mechanism')
    guard.wait_check(LAGGY, False, CLEARED_SECONDS)
    load.stop()
    after = guard.get('laggy')
    assert after['pgs'] == after['suspects'] == [] and after['since'] is None
    check_last(guard, 'hangs', begin)
    first, end = guard.event_texts('laggy')
    assert ' laggy' in first and end == 'no PG is laggy anymore'
    guard.wait_log('laggy', 2)
    quiet(guard)


# On two cores beside other clusters, Tentacle's messenger threads reach 68 %: no "load".
@pytest.mark.releases('pacific', quick=())
def test_a_flood_of_writes_is_told_from_an_osd_that_hangs(guard: Guard) -> None:
    """All OSDs respond, and renewals of leases wait behind writes."""
    six_osds(guard)
    cluster = guard.cluster
    after = guard.last_event()
    reader = cluster.load('p', rate=100, read_fraction=1.0, runtime=FLOODED_SECONDS)
    begin = time.time()
    seen: Dict[str, Json] = {}

    def is_told() -> bool:
        for row in guard.get('laggy')['suspects']:
            if row['why'] not in seen:
                print(row)
                seen[row['why']] = row
        return any(row['mechanism'] == 'load' for row in seen.values())

    with write_flood(cluster, 'p'):
        cluster.wait(is_told, FLOODED_SECONDS, 'a suspect with a mechanism')
    assert {row['mechanism'] for row in seen.values()} <= {'load', 'unknown'}, seen
    assert all('its busiest messenger thread works' in row['why'] for row in seen.values()
               if row['mechanism'] == 'load')
    cluster.wait(lambda: not guard.get('laggy')['laggy_pgs'], FLOODED_SECONDS, 'the end')
    guard.wait_check(LAGGY, False, CLEARED_SECONDS)
    reader.stop()
    check_last(guard, 'load', begin)
    assert guard.event_texts('laggy', after)[-1] == 'no PG is laggy anymore'
    assert not guard.tracebacks()


@pytest.mark.skipif(bool(why_impossible()), reason='no host has its own network on this machine')
@pytest.mark.releases('pacific', quick=())
def test_a_slow_network_makes_pgs_laggy(release: str, make_cluster: ClusterFactory) -> None:
    """Of one OSD, which has more to send and to receive than its cable carries. It is suspected,
    with its slow heartbeats, which an OSD that stops for moments has as well."""
    with Network() as network:
        cluster = make_cluster(release, osds=6, hosts=3, **network.options(
            ['osd.%d' % HANGS], LAGGY_CONF))
        cluster.pool_create('p', 32)
        guard = Guard(cluster, {'baseline_seconds': '5'})
        cluster.load('p', rate=100, read_fraction=0.8, runtime=300)
        cluster.wait(lambda: baseline(guard), 40, 'a baseline')
        quiet(guard)
        begin = time.time()
        traffic = network.traffic()
        time.sleep(CABLE_SECONDS)
        carried = (network.traffic() - traffic) / CABLE_SECONDS
        print('%.0f kB/s' % (carried / 1000))
        seen: Dict[str, Json] = {}

        def is_named() -> bool:
            rows = guard.get('laggy')['suspects']
            seen.update((row['why'], row) for row in rows)
            return bool(rows and rows[0]['osd'] == HANGS
                        and 'heartbeat ping time' in rows[0]['why']
                        and 'messenger thread works' in rows[0]['why'])

        cluster.mon('osd set', key='nodown')
        with network.narrow(round(carried * CABLE_SHARE)):
            cluster.wait(is_named, SLOW_PING_SECONDS, 'slow heartbeats')
        suspect = [row for row in seen.values() if 'heartbeat ping time' in row['why']][-1]
        print(suspect)
        assert suspect['advice'] == 'check the network and the load of the host of osd.%d' % HANGS
        mechanisms = {row['mechanism'] for row in seen.values()}
        # Its reports are late as well.
        assert mechanisms <= {'unknown', 'hangs'}, seen
        cluster.mon('osd unset', key='nodown')
        guard.wait_check(LAGGY, False, 2 * CLEARED_SECONDS)
        check_last(guard, 'hangs' if 'hangs' in mechanisms else 'unknown', begin)
        assert not guard.tracebacks()
        # Before its network ends.
        cluster.down()


def mechanism(guard: Guard, osd: int) -> str:
    """Of a suspect; '': it is none."""
    return next((row['mechanism'] for row in guard.get('laggy')['suspects']
                 if row['osd'] == osd), '')


def check_last(guard: Guard, expected: str, begin: float) -> None:
    """What made PGs laggy can be read once it is over."""
    last = guard.get('laggy')['last']
    print(last)
    assert last['mechanism'] == expected
    assert begin - 10 < last['since'] <= last['time'] <= last['until'] < time.time() + 1
    end = [event for event in guard.events() if event['kind'] == 'laggy'][-1]
    assert last['text'] in end['why'], (last, end)


def wait_named(guard: Guard) -> Laggy:
    """Until the PGs' list is complete and has a first suspect."""
    cluster = guard.cluster
    first: List[float] = []

    def named() -> Optional[Tuple[Json, Dict[str, List[int]]]]:
        pgs = {pg['pgid']: pg['acting'] for pg in cluster.pgs() if 'laggy' in pg['state']}
        if pgs and not first:
            first.append(time.monotonic())
        found: Json = guard.get('laggy')
        ready = pgs and found['suspects'] and pgs.keys() == {pg['pgid'] for pg in found['pgs']}
        return (found, pgs) if ready else None

    # The first laggy PGs show 5 to 6 s after the OSD has stopped.
    found, pgs = cluster.wait(named, 10 + 2 * NAMED_SECONDS, 'a suspect')
    return Laggy(time.monotonic() - first[0], found, pgs)


def check_laggy(seen: Laggy) -> None:
    assert seen.laggy['suspects'][0]['osd'] == HANGS, seen.laggy['suspects']
    for pg in seen.laggy['pgs']:
        assert pg['acting'] == seen.pgs[pg['pgid']]
        assert HANGS in pg['acting'] and HANGS != pg['acting'][0]
        assert 0 <= time.time() - pg['since'] < 120


@every_release
def test_osd_purged(guard: Guard) -> None:
    six_osds(guard)
    cluster = guard.cluster
    load = cluster.load('p', rate=100, runtime=120)
    time.sleep(4)
    cluster.kill('osd.%d' % PURGED)
    cluster.ceph('osd', 'purge', str(PURGED), '--yes-i-really-mean-it')
    cluster.wait(lambda: PURGED not in guard.osds(), 20, 'the OSD to be forgotten')
    assert not guard.checks().keys() - {LAGGY}
    load.stop()
    assert not guard.tracebacks()


@every_release
def test_disabled_leaves_nothing_in_the_mgr(guard: Guard) -> None:
    """Last in this file on the shared cluster.

    OSDs continue to count: ceph-mgr does not send them a list of perf queries that has become
    empty.
    """
    cluster = guard.cluster
    cluster.mon('mgr module disable', module='perfguard')
    cluster.wait(lambda: cluster.mgr('perfguard status')[0] != 0, 60, 'the commands to go')
    cluster.wait(lambda: not guard.checks(), 30, 'health checks to go')


def baseline(guard: Guard) -> bool:
    """Whether the pool's baseline is known."""
    rows = [row for row in guard.get('pools')['pools'] if row['pool'] == 'p']
    return bool(rows and rows[0]['baseline_ms'])


def quiet(guard: Guard) -> None:
    """No alarm, no traceback."""
    assert not guard.checks() and not guard.slow_osds()
    assert not guard.tracebacks()


@pytest.mark.alone
@pytest.mark.releases('pacific', 'tentacle', quick='tentacle')
def test_expansion_raises_no_alarm(release: str, make_cluster: ClusterFactory) -> None:
    """New OSDs that are filled under load are busy, not slow."""
    cluster = make_cluster(release, osds=8, hosts=4, conf=FAST_CONF)
    cluster.pool_create('p', 64)
    cluster.fill('p', 2000, 16384)
    cluster.wait_clean(30)
    guard = Guard(cluster, {'slow_osd_seconds': '10', 'baseline_seconds': '5'})
    cluster.load('p', rate=200, runtime=300)
    time.sleep(10)
    guard.hold(lambda: cluster.add_osds(4))
    guard.do('start')
    slow: Set[int] = set()
    scored: Set[int] = set()

    def watched() -> Set[int]:
        rows = guard.osds()
        slow.update(osd for osd, row in rows.items() if row['slow'])
        scored.update(osd for osd, row in rows.items() if row['score'])
        return scored

    cluster.wait(lambda: watched() and guard.status()['phase'] == 'DONE', 150,
                 'the end of the campaign')
    # No alarm proves nothing unless each OSD is compared with its peers.
    cluster.wait(lambda: watched() == set(range(12)), 60, 'scores of all OSDs')
    assert not slow and not guard.event_texts('slow-osd')
    assert not guard.tracebacks()
