# SPDX-License-Identifier: LGPL-2.1-or-later
"""Power loss, two active mgrs, clocks that jump, mons that refuse writes, a host that is cut off,
OSDs that flap, die or are full.

A client writes known content all the time, and reads all of it back.
"""
import errno
import json
import os
import signal
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Callable, ContextManager, Dict, Iterator, List, Sequence, Set, Tuple

import pytest

from qa.cluster import Cluster, CommandError
from qa.cluster.patience import patient
from qa.lib import mon_commands
from qa.lib.clock import ShiftedClock, times_of_log
from qa.lib.clusters import ClusterFactory
from qa.lib.faults import osd_dies, osd_flaps
from qa.lib.guard import FAST_CONF, FAST_OPTIONS, Guard, Json
from qa.lib.joins import crush_weights, order, wait_reported
from qa.lib.mon_commands import LOGGING
from qa.lib.mons import MONS, bring_back_mons, leader, mon_of_the_mgr, move_the_mgr_to_a_peon
from qa.lib.network import Network, why_impossible
from qa.lib.probes import digest
from qa.lib.seed import chance
from qa.lib.writer import Writer

#: Seconds for which an mgr is stopped while another one is active.
STOPPED_SECONDS = 10.0
#: Seconds for which two mgrs act: an mgr waits ten for an answer of the mons.
BOTH_SECONDS = 15.0
#: Seconds for which the mons refuse to store, and after which no PG moves to a full OSD.
REFUSED_SECONDS = 8.0
FULL_SECONDS = 6.0
#: Until two more PGs have arrived after the clock of the mgr has jumped.
JUMP_SECONDS = 60.0
#: Seconds for which the clock of an OSD or of a mon is wrong, and in which PGs move again after.
WRONG_SECONDS, RIGHT_SECONDS = 60.0, 120.0
#: Meanwhile, a mon may not answer.
ANSWER_SECONDS = 5.0
#: Three times the grace of heartbeats: the OSDs are marked down, and return when it is over.
PARTITION_SECONDS = 60.0
#: PGs that have been released when the power is lost: a third of them.
POWER_RELEASED = 12
#: The pools of `with_two_pools`, and of the shared cluster.
POOLS, SHARED_POOLS = ('p', 'still'), ('rep', 'ec')


def with_two_pools(cluster: Cluster, pg_num: int, in_flight: str) -> Guard:
    """One that the client writes to, and one that only moves."""
    cluster.pool_create('p', pg_num)
    cluster.pool_create('still', 16)
    cluster.fill('p', 300, 65536)
    cluster.fill('still', 100, 4096)
    return Guard(cluster, {'max_pgs_in_flight': in_flight})


def digests(cluster: Cluster, pools: Sequence[str] = POOLS) -> List[str]:
    return [digest(cluster, pool) for pool in pools]


def begin_expansion(guard: Guard, count: int = 2, released: int = 1) -> None:
    """An expansion of which some PGs have been released, and others are moving."""
    added = guard.cluster.add_osds(count, weight=0.0)
    wait_reported(guard)
    order(guard, 'expand', what=['osd.%d' % osd for osd in added], weight='1.0')
    guard.wait_moving(released, timeout=120)


def lose_power(cluster: Cluster) -> int:
    """Kill all daemons at once; returns how many."""
    pids = {name: pid for name, pid in cluster.pids().items()
            if name.startswith(('mon.', 'mgr.', 'osd.'))}
    for pid in pids.values():
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + patient(30)
    while any(cluster.pid(name) is not None for name in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    names = chance('power loss').sample(sorted(pids), len(pids))
    print('restarted: %s' % ' '.join(names))
    for name in names:
        cluster.launch(name)
    return len(names)


@pytest.mark.releases('pacific', 'tentacle', quick=())
def test_power_is_lost_while_pgs_move(release: str, make_cluster: ClusterFactory) -> None:
    cluster = make_cluster(release, osds=6, hosts=3, mgrs=2, store='bluestore', conf=FAST_CONF)
    guard = with_two_pools(cluster, 32, '2')
    before, objects = guard.foreign(), digests(cluster)
    with Writer(cluster, 'p') as writer:
        begin_expansion(guard, released=POWER_RELEASED)
        assert lose_power(cluster) >= 11
        cluster.wait(lambda: all(osd['up'] for osd in cluster.osd_dump()['osds']), 120, 'all OSDs')
        written = writer.writes
        guard.wait_ready()
        status = guard.status()
        assert status['total'] > status['released'] >= POWER_RELEASED, 'nothing was left to do'
        guard.wait_phase('DONE', timeout=300)
        cluster.wait(lambda: writer.writes > written, 60, 'the client to write again')
    cluster.wait_clean(120)
    print('%s: power lost with %d of %d PGs released; %d writes, all read back' % (
        release, status['released'], status['total'], writer.writes))
    assert digests(cluster) == objects
    assert guard.upmaps() == {} and guard.foreign() == before
    assert set(crush_weights(cluster).values()) == {1.0} and not guard.tracebacks()


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
@pytest.mark.shares('campaign')
def test_an_mgr_that_does_not_know_that_it_was_replaced(release: str, guard: Guard) -> None:
    """Stopped meanwhile; what it had begun goes on when another one is active."""
    cluster = guard.cluster
    before, objects = guard.foreign(), digests(cluster, SHARED_POOLS)
    guard.configure({'max_pgs_in_flight': '2'})
    begin_expansion(guard, 4)
    with Writer(cluster, 'ec') as writer:
        first = cluster.active_mgr()
        cluster.stop('mgr.' + first)
        try:
            cluster.mon('mgr fail', who=first)
            cluster.wait(lambda: cluster.active_mgr() not in ('', first), 60, 'another active mgr')
            time.sleep(STOPPED_SECONDS)
        finally:
            cluster.cont('mgr.' + first)
        released = guard.status()['released']
        done = guard.wait_phase('DONE', timeout=300)
    cluster.wait_clean(60)
    print('%s: mgr.%s stopped for %.0f s beside another; %d PGs released by then, %d in all; %d '
          'writes, all read back' % (release, first, STOPPED_SECONDS, released, done['released'],
                                     writer.writes))
    assert done['released'] == done['total'] and guard.upmaps() == {}
    assert digests(cluster, SHARED_POOLS) == objects
    assert guard.foreign() == before and not guard.tracebacks()


@pytest.mark.releases('pacific', 'tentacle', quick=())
@pytest.mark.parametrize('cut', [Network.deaf, Network.partition], ids=lambda cut: cut.__name__)
def test_two_mgrs_that_both_act(cut: Callable[[Network], ContextManager[None]], release: str,
                                network: Network, make_cluster: ClusterFactory) -> None:
    """The first one runs on its old state, as it does not notice the other. If it only
    receives nothing, the mons still get all that it sends."""
    conf = {**FAST_CONF, 'mgr.x': LOGGING}
    cluster = make_cluster(release, osds=8, hosts=4, mgrs=2, **network.options(['mgr.x'], conf))
    guard = with_two_pools(cluster, 64, '2')
    while cluster.active_mgr() != 'x':
        cluster.mgr_fail()
    guard.wait_ready()
    before, objects = guard.foreign(), digests(cluster)
    with Writer(cluster, 'p'):
        begin_expansion(guard)
        with cut(network):
            cluster.mon('mgr fail', who='x')
            begin = time.time()
            cluster.wait(lambda: cluster.active_mgr() == 'y', 60, 'another active mgr')
            guard.wait_ready()
            first = guard.status()['released']
            time.sleep(BOTH_SECONDS)
            status = guard.status()
        done = guard.wait_phase('DONE', timeout=300)
    cluster.wait_clean(60)
    cluster.wait(lambda: cluster.mon('mgr dump')['standbys'], 90, 'the first mgr as a standby')
    sent = mon_commands.sent(cluster, 'x', begin)
    arrived = mon_commands.arrived(cluster, 'x', begin)
    print('%s: %s: both acted for %.0f s; %d to %d of %d PGs released meanwhile; mgr.x sent %s, '
          'the mons got %s' % (release, cut.__name__, BOTH_SECONDS, first, status['released'],
                               status['total'], dict(sent), dict(arrived)))
    # Without an answer it reports that: the question may be older than `begin`.
    assert sent, 'the first mgr did not act'
    assert status['total'] > status['released'] > first, 'the second mgr did not act'
    assert mon_commands.changes(sent) == mon_commands.changes(arrived) == {}
    assert done['released'] == done['total'] and guard.upmaps() == {}
    assert digests(cluster) == objects
    assert guard.foreign() == before and not guard.tracebacks()


# ---- faults of OSDs, and mons that refuse to store anything

def refused_writes(guard: Guard) -> None:
    """Nothing is sent that is not journalled."""
    cluster = guard.cluster
    cluster.mon('config set', who='mon', name='mon_config_key_max_entry_size', value='1')
    try:
        guard.wait_code('NOT_STORED')
        sent = guard.upmaps()
        time.sleep(REFUSED_SECONDS)
        assert guard.upmaps() == sent and guard.codes() == ['NOT_STORED']
    finally:
        cluster.mon('config rm', who='mon', name='mon_config_key_max_entry_size')


def flapping(guard: Guard) -> None:
    """Four times: an OSD ends after more than osd_max_markdown_count (5) in ten minutes."""
    for _ in range(2):
        osd_flaps(guard.cluster, 1)


def dead(guard: Guard) -> None:
    osd_dies(guard.cluster, 1)


def full(kind: str, guard: Guard) -> None:
    """A target of the campaign; of the last PGs of a full one, none is lost."""
    cluster, osd = guard.cluster, max(guard.cluster.osds())
    check = 'OSD_' + kind.upper()
    cluster.tell('osd.%d' % osd, 'injectfull', type=kind, count=-1)
    try:
        cluster.wait(lambda: check in cluster.mon('health')['checks'], 60, check)
        time.sleep(FULL_SECONDS)
        arrived = arrivals(guard, osd)
        time.sleep(FULL_SECONDS)
        assert arrivals(guard, osd) == arrived
    finally:
        cluster.tell('osd.%d' % osd, 'injectfull', type='none', count=0)
    cluster.wait(lambda: check not in cluster.mon('health')['checks'], 60, 'no ' + check)


def arrivals(guard: Guard, osd: int) -> Set[str]:
    """PGs that the OSD serves or is to serve."""
    return {pg['pgid'] for pg in guard.cluster.pgs() if osd in pg['up'] + pg['acting']}


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
@pytest.mark.shares('campaign')
@pytest.mark.parametrize('fault', [refused_writes, flapping, dead, *(
    pytest.param(partial(full, kind), id=kind) for kind in ('nearfull', 'backfillfull', 'full'))])
def test_a_fault_while_pgs_move(fault: Callable[[Guard], None], release: str, guard: Guard) -> None:
    cluster = guard.cluster
    before, objects = guard.foreign(), digests(cluster, SHARED_POOLS)
    guard.configure({'max_pgs_in_flight': '2'})
    begin_expansion(guard, 4)
    with Writer(cluster, 'ec') as writer:
        fault(guard)
        released = guard.status()['released']
        guard.unset('max_pgs_in_flight')
        done = guard.wait_phase('DONE', timeout=300)
    cluster.wait_clean(60)
    print('%s: %s: %d PGs released by then, %d in all; %d writes, all read back' % (
        release, fault, released, done['released'], writer.writes))
    assert done['released'] == done['total'] > released and guard.upmaps() == {}
    assert digests(cluster, SHARED_POOLS) == objects
    assert guard.foreign() == before and not guard.tracebacks()


# ---- a host that is cut off

@pytest.fixture
def network() -> Iterator[Network]:
    problem = why_impossible()
    if problem:
        pytest.skip('no host can be partitioned on this machine: ' + problem)
    with Network() as network:
        yield network


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
@pytest.mark.parametrize('osds', [(1, 5), (8, 9)], ids=['with data', 'being filled'])
def test_a_host_is_partitioned_while_pgs_move(
        osds: Sequence[int], release: str, network: Network, make_cluster: ClusterFactory) -> None:
    """From the mons, the mgr, the client and all other hosts."""
    cluster = make_cluster(release, osds=8, hosts=4, **network.options(
        ['osd.%d' % osd for osd in osds], FAST_CONF))
    guard = with_two_pools(cluster, 64, '1')
    before, objects = guard.foreign(), digests(cluster)
    with Writer(cluster, 'p') as writer:
        begin_expansion(guard)
        pids = [cluster.pid('osd.%d' % osd) for osd in osds]
        with network.partition():
            over = time.monotonic() + PARTITION_SECONDS
            cluster.wait(lambda: down(cluster) == set(osds), 50, 'both OSDs down')
            guard.wait_code('DEGRADED')
            sent, written = guard.upmaps(), writer.writes
            time.sleep(max(5.0, over - time.monotonic()))
            status = guard.status()
            assert guard.upmaps() == sent and down(cluster) == set(osds)
            assert writer.writes > written, 'clients of the other hosts are not served'
        cluster.wait_up(osds, 90)
        guard.unset('max_pgs_in_flight')
        done = guard.wait_phase('DONE', timeout=300)
    cluster.wait_clean(120)
    print('%s: osd.%s without a network for %.0f s; %d PGs released by then, %d in all; %d writes, '
          'all read back' % (release, ' and osd.'.join(map(str, osds)), PARTITION_SECONDS,
                             status['released'], done['released'], writer.writes))
    assert pids == [cluster.pid('osd.%d' % osd) for osd in osds], 'an OSD was restarted'
    assert done['released'] == done['total'] > status['released']
    assert digests(cluster) == objects
    assert guard.upmaps() == {} and guard.foreign() == before and not guard.tracebacks()


def down(cluster: Cluster) -> Set[int]:
    return {osd['osd'] for osd in cluster.osd_dump()['osds'] if not osd['up']}


# ---- clocks

@pytest.mark.releases('pacific', quick=())
def test_the_clock_of_the_mgr_jumps_while_pgs_move(release: str, make_cluster: ClusterFactory,
                                                   tmp_path: Path) -> None:
    """By an hour to the future, to the past, and back: the time of the mgr goes on regardless."""
    cluster = make_cluster(release, osds=8, hosts=4, conf=FAST_CONF)
    cluster.pool_create('p', 64)
    cluster.fill('p', 300, 65536)
    guard = Guard(cluster, {'max_pgs_in_flight': '1'})
    before, objects, clock = guard.foreign(), digests(cluster, 'p'), ShiftedClock(tmp_path)
    clock.restart(cluster, 'mgr.x')
    guard.wait_ready()
    released = []
    with Writer(cluster, 'p') as writer:
        begin_expansion(guard)
        for seconds in (3600, -3600, 0):
            clock.set(seconds)
            begun = guard.status()['released']
            status = guard.wait_moving(begun + 2, timeout=JUMP_SECONDS)
            released.append(status['released'])
            told = [text for text in guard.get('status')['reasons'] if 'was set by' in text]
            assert bool(told) == bool(seconds) and all('%+d s' % seconds in text for text in told)
        assert status['released'] < status['total'], 'nothing was left to do'
        guard.wait_phase('DONE', timeout=300)
    cluster.wait_clean(120)
    print('%s: the clock jumped with %s of %d PGs released; %d writes, all read back' % (
        release, released, status['total'], writer.writes))
    times = [event['time'] for event in guard.events()]
    assert times == sorted(times) and max(times) - min(times) < 3600
    jumped = times_of_log(cluster, 'mgr.x')
    assert max(jumped) - min(jumped) > 7000, 'the clock did not jump'
    assert digests(cluster, 'p') == objects
    assert guard.tracebacks() == []
    assert guard.upmaps() == {} and guard.foreign() == before


def clock_of_an_osd(cluster: Cluster, directory: Path) -> Tuple[str, ShiftedClock]:
    clock = ShiftedClock(directory)
    clock.restart(cluster, 'osd.1')
    return 'osd.1', clock


def clock_of_a_mon(cluster: Cluster, directory: Path) -> Tuple[str, ShiftedClock]:
    """A peon, which the mgr sends its commands to."""
    clocks: Dict[str, ShiftedClock] = {}
    for mon in sorted(set(MONS) - {leader(cluster)}):
        (directory / mon).mkdir()
        clocks[mon] = ShiftedClock(directory / mon)
        clocks[mon].restart(cluster, 'mon.' + mon)
        bring_back_mons(cluster)
    move_the_mgr_to_a_peon(cluster)
    mon = mon_of_the_mgr(cluster)
    return 'mon.' + mon, clocks[mon]


@pytest.mark.releases('pacific', quick=())
@pytest.mark.timeout(1800)
@pytest.mark.parametrize('prepared, mons', [(clock_of_an_osd, 1), (clock_of_a_mon, 3)],
                         ids=['osd', 'mon'])
def test_the_clock_of_another_daemon_jumps_while_pgs_move(
        prepared: Callable[[Cluster, Path], Tuple[str, ShiftedClock]], mons: int, release: str,
        make_cluster: ClusterFactory, tmp_path: Path) -> None:
    """By an hour to the future and to the past, for a minute each, under load.

    The timers of an OSD whose clock was set back rest for as long, also when it is right again: it
    serves clients, but does not report.
    """
    cluster = make_cluster(release, osds=8, hosts=4, mons=mons, mgrs=2, conf={
        **FAST_CONF, 'osd.1': LOGGING, 'mon': {**FAST_CONF['mon'], 'debug_paxos': '10'}})
    daemon, clock = prepared(cluster, tmp_path)
    # Enough for two minutes: an idle machine moves 80 PGs per minute.
    cluster.pool_create('p', 128)
    cluster.pool_create('busy', 128)
    cluster.fill('p', 300, 65536)
    guard = Guard(cluster, {'max_pgs_in_flight': '1', 'campaign_interval': '2'})
    before, objects = guard.foreign(), digests(cluster, ['p'])
    load = cluster.load('busy', rate=200, runtime=1200)
    raised: Set[str] = set()
    with Writer(cluster, 'p') as writer:
        begin_expansion(guard, 4)
        for seconds in (3600, -3600):
            begun, written = guard.status()['released'], writer.writes
            clock.set(seconds)
            try:
                seen = looks(guard, WRONG_SECONDS)
            finally:
                clock.set(0)
            guard.wait_ready()
            status = guard.status()
            print('%s: %s %+d s for %.0f s: %d to %d of %d PGs released, %d writes; %s' % (
                release, daemon, seconds, WRONG_SECONDS, begun, status['released'],
                status['total'], writer.writes - written, dict(seen)))
            raised.update(seen)
            if seconds > 0:
                cluster.wait(lambda: not [osd for osd, row in guard.osds().items()
                                          if row['silent_seconds']], 30, 'reports of all OSDs')
            status = guard.wait_moving(status['released'] + 2, timeout=RIGHT_SECONDS)
        assert status['released'] < status['total'], 'nothing was left to do'
        guard.unset('max_pgs_in_flight')
        guard.option('campaign_interval', FAST_OPTIONS['campaign_interval'])
        guard.wait_phase('DONE', timeout=300)
    load.stop()
    cluster.wait_clean(120)
    times = times_of_log(cluster, daemon)
    # Less what has passed between the end of the first jump and the second one.
    assert max(times) - min(times) > 7200 - RIGHT_SECONDS, 'the clock did not jump'
    assert not raised & {'PERFGUARD_SLOW_OSD', 'PERFGUARD_LATENCY', 'PERFGUARD_LAGGY_PGS'}
    assert digests(cluster, ['p']) == objects
    assert guard.tracebacks() == []
    assert guard.upmaps() == {} and guard.foreign() == before


def looks(guard: Guard, seconds: float) -> 'Counter[str]':
    """How often there was which health check, or reason to hold releases, or no answer."""
    found: 'Counter[str]' = Counter()
    over = time.monotonic() + seconds
    while time.monotonic() < over:
        for target, prefix, names in (('mgr', 'perfguard campaign status', reasons),
                                      ('mon', 'health', checks)):
            try:
                retval, out, _ = guard.cluster.command(
                    target, {'prefix': prefix, 'format': 'json'}, timeout=ANSWER_SECONDS)
            except CommandError:
                retval = -errno.ETIMEDOUT
            found.update(names(json.loads(out)) if retval == 0 else ['%s: no answer' % target])
        time.sleep(1)
    return found


def reasons(status: Json) -> List[str]:
    return [reason['code'] for reason in status['limits']]


def checks(health: Json) -> List[str]:
    return list(health['checks'])
