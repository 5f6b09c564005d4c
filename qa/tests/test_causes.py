# SPDX-License-Identifier: LGPL-2.1-or-later
"""Causes of a slow OSD, provoked one at a time on a real cluster: `perfguard why osd.N` names them.

The tests of a release share one cluster under client load, with bluestore. Each test undoes what it
does to the cluster. test_intermittent.py has a slow host and a heavy client.
"""
import contextlib
import json
import os
import random
import threading
import time
from collections import Counter
from statistics import median
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import pytest
import rados

from qa.cluster import Cluster
from qa.cluster.connection import Connection
from qa.lib.faults import (cpu_throttle, dispatch_delay, missing_controllers, narrow_disk,
                           repeated, throttled_writes)
from qa.lib.guard import FAST_CONF, Guard
from qa.lib.network import Network, why_impossible

ClusterFactory = Callable[..., Cluster]
Json = Dict[str, Any]

pytestmark = [pytest.mark.alone, pytest.mark.timeout(600),
              pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())]

POOL = 'p'
VICTIM = 2
#: All OSDs of its host, if there are twelve in six hosts.
NEIGHBOURS = (2, 8)
DELAY_SECONDS = 0.015
#: Otherwise the page cache writes what a compaction writes, and journals of the file system wait.
#: The default scheduler of later releases ignores the sleeps that make what is provoked last.
CONF = {**FAST_CONF, 'osd': {'bluefs_buffered_io': 'false', 'osd_op_queue': 'wpq'}}
OPTIONS = {'slow_osd_seconds': '8', 'slow_osd_factor': '4', 'baseline_seconds': '5'}
#: Heartbeats are averages over a minute, which OSDs report at its end.
NAMED_SECONDS, CLEARED_SECONDS = 180.0, 90.0
QUIET_PING_MS = 5.0
#: An object on which one client works, and how many operations there are at a time in all.
HOT, HOT_DEPTH = 'hot', 16
#: A pool with one PG, and its objects.
BUSY, BUSY_OBJECTS = 'busy', ['busy-%d' % number for number in range(64)]
#: Objects with a snapshot. Their removal takes the suspect the first time for each two of them, and
#: other OSDs the second.
SNAPS, SNAP_OBJECTS, TRIM_SECONDS, SHORT_TRIM_SECONDS = 'snaps', 800, 5.0, 0.001
#: Keys of objects in RocksDB, in all 60 MB; how many of them are overwritten at a time, and the
#: bytes per second of the disk, which nothing but a compaction writes.
OMAP, OMAP_OBJECTS, OMAP_KEYS, OMAP_BYTES = 'omap', 30, 2000, 1024
OMAP_CHANGES, OMAP_PAUSE_SECONDS = 10, 0.05
DISK_BYTES_PER_SECOND = 8_000_000
#: Pause before PGs are scrubbed again, and how long they are scrubbed before the OSD becomes slow:
#: longer than half of `slow_osd_seconds`, by which the beginning of that may be early.
SCRUB_SECONDS, SCRUB_LEAD_SECONDS = 5.0, 10.0
#: Traffic of a host before its cable becomes narrow, as a share of what that carries.
CABLE_SHARE, CABLE_SECONDS = 0.75, 10.0
#: Of half a second, an OSD hangs for so long, again and again; or so briefly that heartbeats, which
#: are averages, remain fast.
HICCUP_SECONDS, AWAKE_SECONDS = 0.3, 0.2
BRIEF_HICCUP_SECONDS, BRIEF_AWAKE_SECONDS = 0.05, 0.12
#: Objects of a pool that is copied, and the pause before each.
COPIED, COPIED_OBJECTS, COPY_SLEEP_SECONDS = 'copied', 200, 10.0
#: Objects of PGs that are copied at the same time.
SHARED_OBJECTS = 800
#: Time for which something is not named as the cause, with several reports of PGs.
NOT_NAMED_SECONDS = 15.0


@pytest.fixture(scope='module')
def network() -> Iterator[Optional[Network]]:
    """Of the OSD that is made slow; None: not possible on this machine."""
    if why_impossible():
        yield None
    else:
        with Network() as network:
            yield network


@pytest.fixture(scope='module')
def shared(release: str, network: Optional[Network],
           cluster_factory: ClusterFactory) -> Iterator[Guard]:
    options = {'conf': CONF} if network is None else network.options(['osd.%d' % VICTIM], CONF)
    cluster = cluster_factory(release, osds=8, hosts=4, store='bluestore', **options)
    cluster.pool_create(POOL, 64)
    cluster.wait_clean(60)
    guard = Guard(cluster, OPTIONS)
    cluster.load(POOL, rate=200, read_fraction=0.5, runtime=3000)
    yield guard
    cluster.down()


@pytest.fixture
def guard(shared: Guard) -> Iterator[Guard]:
    """With slowdowns, and no slow OSD before the test and after it."""
    shared.cluster.wait(lambda: all(row['score'] for row in shared.osds().values())
                        and not shared.slow_osds(), 120, 'slowdowns and no slow OSD')
    yield shared
    shared.cluster.wait(lambda: not shared.slow_osds(), CLEARED_SECONDS, 'no slow OSD')
    # The next cause is not to be named because of this one.
    shared.cluster.wait(lambda: all((row['ping_ms'] or 0.0) < QUIET_PING_MS
                                    for row in shared.osds().values()), 180, 'fast heartbeats')
    assert not shared.tracebacks()


def why(guard: Guard, osd: int = VICTIM) -> List[Json]:
    retval, out, error = guard.ask('why', what='osd.%d' % osd)
    assert retval == 0, error
    found: List[Json] = json.loads(out)['causes']
    return found


def wait_cause(guard: Guard, code: str, osd: int = VICTIM, others: Sequence[int] = (),
               after: Sequence[str] = (), beside: Sequence[str] = ()) -> Json:
    """Until `why` names this cause first, or `after` some causes, and `beside` others. No OSDs but
    this one and `others` may be slow at any time."""
    seen: List[Json] = []

    def named() -> bool:
        seen[:] = [cause for cause in why(guard, osd) if cause['code'] not in ('NOT_SLOW', *after)]
        assert guard.slow_osds() <= {osd, *others}, guard.slow_osds()
        return bool(seen) and seen[0]['code'] == code and {*beside} <= {
            cause['code'] for cause in seen}

    begin = time.monotonic()
    try:
        guard.cluster.wait(named, NAMED_SECONDS, code)
    finally:
        print('after %.0f s: %s' % (time.monotonic() - begin, [
            (cause['code'], cause['text']) for cause in seen]), flush=True)
    return seen[0]


@contextlib.contextmanager
def readers(cluster: Cluster, pool: str, objects: Sequence[str], clients: int,
            writes: bool = False) -> Iterator[int]:
    """So many clients read some objects all the time, or write them; the primary of the first one
    is given."""
    over = threading.Event()

    def work(handle: rados.Rados) -> None:
        with handle.open_ioctx(pool) as ioctx:
            while not over.is_set():
                if writes:
                    ioctx.write_full(random.choice(objects), b'x' * 4096)
                else:
                    ioctx.read(random.choice(objects), 4096)

    cluster.write(pool, objects, 4096)
    connections = [Connection(cluster.conf_path) for _ in range(clients)]
    threads = [threading.Thread(target=work, args=(connections[number % clients].rados(),))
               for number in range(HOT_DEPTH)]
    for thread in threads:
        thread.start()
    try:
        yield primary_of(cluster, pool, objects[0])
    finally:
        over.set()
        for thread in threads:
            thread.join(30)
        for connection in connections:
            connection.close()


def primary_of(cluster: Cluster, pool: str, name: str) -> int:
    return int(cluster.mon('osd map', pool=pool, object=name)['acting_primary'])


@contextlib.contextmanager
def own_pool(cluster: Cluster, name: str, pg_num: int, size: int = 3) -> Iterator[rados.Ioctx]:
    cluster.pool_create(name, pg_num, size=size)
    try:
        cluster.wait_clean(60)
        with cluster.rados().open_ioctx(name) as ioctx:
            yield ioctx
    finally:
        cluster.mon('osd pool rm', pool=name, pool2=name, yes_i_really_really_mean_it=True)


@contextlib.contextmanager
def set_of(cluster: Cluster, osd: int, **values: object) -> Iterator[None]:
    """Options of one OSD."""
    name = 'osd.%d' % osd
    try:
        for option, value in values.items():
            cluster.tell(name, 'config set', var=option, val=[str(value)])
        yield
    finally:
        for option in values:
            cluster.tell(name, 'config unset', var=option)


@contextlib.contextmanager
def hiccups(cluster: Cluster, osd: int, hang_seconds: float = HICCUP_SECONDS,
            awake_seconds: float = AWAKE_SECONDS) -> Iterator[None]:
    """The OSD hangs briefly and often, as behind a network that drops packets."""
    name = 'osd.%d' % osd

    def hang(over: threading.Event) -> None:
        try:
            cluster.stop(name)
            time.sleep(hang_seconds)
        finally:
            cluster.cont(name)

    with repeated(hang, awake_seconds):
        yield


def test_a_hot_object_is_named_and_no_osd_is_slow(guard: Guard) -> None:
    """Until a command asks for it, only the load is known."""
    with readers(guard.cluster, POOL, [HOT], 1) as primary:
        guard.cluster.wait(lambda: guard.osds()[primary]['load'], 60, 'a load')
        load, = guard.osds()[primary]['load']
        assert load['code'] == 'load' and load['evidence']['load_ratio'] >= 1.5
        cause = wait_cause(guard, 'object', osd=primary)
        assert (cause['evidence']['object'], cause['evidence']['pool']) == (HOT, POOL)
        assert cause['evidence']['load_ratio'] >= 1.5 and cause['evidence']['share'] >= 0.5
        assert not guard.slow_osds() and 'PERFGUARD_SLOW_OSD' not in guard.checks()


@pytest.mark.parametrize('clients, code', [(1, 'client'), (3, 'pool')])
def test_a_busy_client_or_pool_is_named_and_no_osd_is_slow(
        clients: int, code: str, guard: Guard) -> None:
    """Its objects have one primary, which others use as well."""
    cluster = guard.cluster
    with own_pool(cluster, BUSY, 1), readers(cluster, BUSY, BUSY_OBJECTS, clients) as primary:
        evidence = wait_cause(guard, code, osd=primary)['evidence']
        assert evidence['load_ratio'] >= 1.5 and evidence['share'] >= 0.5
        assert evidence['pool'] == BUSY if code == 'pool' else \
            evidence['client'].startswith('client.')
        assert not guard.slow_osds() and 'PERFGUARD_SLOW_OSD' not in guard.checks()


def test_the_removal_of_a_snapshot(guard: Guard) -> None:
    cluster, names = guard.cluster, ['snap-%d' % number for number in range(SNAP_OBJECTS)]
    with own_pool(cluster, SNAPS, 32) as ioctx:
        cluster.write(SNAPS, names, 4096)
        ioctx.create_snap('s')
        cluster.write(SNAPS, names, 4096)
        with contextlib.ExitStack() as stack:
            for osd in cluster.osds():
                # Otherwise it would be seconds on all of them.
                stack.enter_context(set_of(cluster, osd, osd_snap_trim_sleep=TRIM_SECONDS
                                           if osd == VICTIM else SHORT_TRIM_SECONDS))
            stack.enter_context(dispatch_delay(cluster, VICTIM, DELAY_SECONDS))
            ioctx.remove_snap('s')
            assert wait_cause(guard, 'snaptrim')['evidence']['pgs'] >= 1


@pytest.mark.skipif('blkio' in missing_controllers(), reason='no cgroup (v1) blkio to write to')
def test_a_compaction(guard: Guard) -> None:
    """It rewrites the whole database, on a disk that has nothing else to do."""
    cluster = guard.cluster
    with own_pool(cluster, OMAP, 1, size=1) as ioctx:
        def write(number: int, keys: Sequence[int]) -> None:
            with rados.WriteOpCtx() as op:
                ioctx.set_omap(op, tuple('%05d' % key for key in keys),
                               tuple(os.urandom(OMAP_BYTES) for _ in keys))
                ioctx.operate_write_op(op, 'omap-%d' % number)

        def change(over: threading.Event) -> None:
            write(random.randrange(OMAP_OBJECTS), random.sample(range(OMAP_KEYS), OMAP_CHANGES))

        for number in range(OMAP_OBJECTS):
            write(number, range(OMAP_KEYS))
        osd = primary_of(cluster, OMAP, 'omap-0')
        with narrow_disk(cluster, osd, DISK_BYTES_PER_SECOND), \
                repeated(change, OMAP_PAUSE_SECONDS):
            with repeated(lambda over: compact(cluster, osd)):
                evidence = wait_cause(guard, 'compaction', osd=osd)['evidence']
            print(evidence)
            assert evidence['sst_bytes_per_second'] > 2 * evidence['peers_sst_bytes_per_second']
            # Without it, the same disk is fast enough.
            cluster.wait(lambda: not guard.slow_osds(), CLEARED_SECONDS, 'no slow OSD')


def compact(cluster: Cluster, osd: int) -> None:
    cluster.ceph('tell', 'osd.%d' % osd, 'compact')


def test_a_deep_scrub(guard: Guard) -> None:
    """The PGs have few objects, so they are scrubbed again until the cause is named."""
    cluster = guard.cluster

    def scrub(over: threading.Event) -> None:
        for pg in cluster.pgs():
            if pg['acting'][0] == VICTIM:
                cluster.mon('pg deep-scrub', pgid=pg['pgid'])

    with set_of(cluster, VICTIM, osd_scrub_sleep=2.0, osd_scrub_chunk_max=1,
                osd_scrub_chunk_min=1), repeated(scrub, SCRUB_SECONDS):
        # What begins once the OSD is slow may be an effect of that. Later releases begin a scrub
        # only seconds after the command.
        cluster.wait(lambda: any('deep' in pg['state'] for pg in cluster.pgs()), 60, 'a deep scrub')
        time.sleep(SCRUB_LEAD_SECONDS)
        with dispatch_delay(cluster, VICTIM, DELAY_SECONDS):
            cause = wait_cause(guard, 'deep_scrub')
        assert cause['evidence']['pgs'] >= 1
    cluster.wait_clean(240)


def test_a_full_device(guard: Guard) -> None:
    cluster, name = guard.cluster, 'osd.%d' % VICTIM
    cluster.tell(name, 'injectfull', type='nearfull', count=-1)
    try:
        with dispatch_delay(cluster, VICTIM, DELAY_SECONDS):
            cause = wait_cause(guard, 'full')
        assert cause['evidence'] == {'fullness': 'nearfull'}
    finally:
        cluster.tell(name, 'injectfull', type='none', count=0)
    cluster.wait(lambda: 'OSD_NEARFULL' not in cluster.mon('health')['checks'], 60,
                 'it to be no longer nearfull')


def assert_slow_heartbeats(evidence: Json) -> None:
    """Even fast heartbeats of idle OSDs differ by small factors."""
    assert evidence['ping_ms'] > max(10.0, 5 * evidence['median_ping_ms'])


def test_slow_heartbeats(guard: Guard) -> None:
    with hiccups(guard.cluster, VICTIM):
        cause = wait_cause(guard, 'network')
    assert_slow_heartbeats(cause['evidence'])


def test_a_slow_process_with_a_fast_store(guard: Guard) -> None:
    with dispatch_delay(guard.cluster, VICTIM, DELAY_SECONDS):
        wait_cause(guard, 'process')


def test_brief_hangs(guard: Guard) -> None:
    """An operation that arrives meanwhile is late for who sent it, but not for the OSD itself."""
    with hiccups(guard.cluster, VICTIM, BRIEF_HICCUP_SECONDS, BRIEF_AWAKE_SECONDS):
        evidence = wait_cause(guard, 'stalls')['evidence']
    assert set(evidence['slowdowns']) == {'replicated writes'}


def test_writes_to_a_pg_load_its_replicas(guard: Guard) -> None:
    """What is sent to a replica by its own clients is no cause."""
    cluster = guard.cluster
    with own_pool(cluster, BUSY, 1), readers(cluster, BUSY, BUSY_OBJECTS, 3, writes=True):
        replica = cluster.mon('osd map', pool=BUSY, object=BUSY_OBJECTS[0])['acting'][1]
        evidence = wait_cause(guard, 'replicas', osd=replica)['evidence']
    assert evidence['load_ratio'] >= 1.5 * evidence['client_load_ratio']


@contextlib.contextmanager
def slow_copies(cluster: Cluster, pg_num: int = 8, **options: object) -> Iterator[int]:
    """A pool whose PGs are copied slowly, with further options of OSDs. Yields its id."""
    sleeps = ['osd_recovery_sleep']
    if cluster.release.name == 'tentacle':
        # Since then, the other one counts for PGs that are not degraded only.
        sleeps.append('osd_recovery_sleep_degraded')
    with contextlib.ExitStack() as stack:
        stack.enter_context(own_pool(cluster, COPIED, pg_num))
        for osd in cluster.osds():
            stack.enter_context(set_of(cluster, osd, **options,
                                       **dict.fromkeys(sleeps, COPY_SLEEP_SECONDS)))
        yield next(pool['pool'] for pool in cluster.osd_dump()['pools']
                   if pool['pool_name'] == COPIED)


@contextlib.contextmanager
def away(cluster: Cluster, osd: int) -> Iterator[None]:
    """The OSD is down meanwhile, without the end of its process, and keeps its options."""
    cluster.mon('osd set', key='noup')
    try:
        cluster.mon('osd down', ids=[str(osd)])
        yield
    finally:
        cluster.mon('osd unset', key='noup')
        cluster.wait_up([osd], 60)


def test_recovery_of_an_osd_that_was_away(guard: Guard) -> None:
    """More of its PGs recover than of any other OSD."""
    cluster, names = guard.cluster, ['c-%d' % number for number in range(COPIED_OBJECTS)]
    with slow_copies(cluster):
        cluster.write(COPIED, names, 4096)
        with away(cluster, VICTIM):
            cluster.write(COPIED, names, 4096)
        with dispatch_delay(cluster, VICTIM, DELAY_SECONDS):
            evidence = wait_cause(guard, 'recovery')['evidence']
    assert evidence['pgs'] > evidence['peers_pgs']
    cluster.wait_clean(120)


def test_recovery_that_all_osds_share_is_not_the_cause(guard: Guard) -> None:
    cluster, names = guard.cluster, ['c-%d' % number for number in range(SHARED_OBJECTS)]
    with slow_copies(cluster, pg_num=32, osd_max_backfills=32) as pool:
        cluster.write(COPIED, names, 4096)
        other, suspect = typical_pair(cluster, pool)
        with away(cluster, other):
            cluster.write(COPIED, names, 4096)
        with dispatch_delay(cluster, suspect, DELAY_SECONDS):
            wait_cause(guard, 'process', osd=suspect, beside=['DEGRADED'])
    cluster.wait_clean(120)


def typical_pair(cluster: Cluster, pool: int) -> Tuple[int, int]:
    """An OSD, and the one that shares a median number of PGs of the pool with it."""
    first, *others = cluster.osds()
    shared = Counter(osd for pg in pgs_of(cluster, pool) if first in pg['acting']
                     for osd in pg['acting'])
    return first, sorted(others, key=lambda osd: shared[osd])[len(others) // 2]


def pgs_of(cluster: Cluster, pool: int) -> List[Json]:
    return [pg for pg in cluster.pgs() if pg['pgid'].startswith('%d.' % pool)]


def copy(guard: Guard, pgs: Sequence[Json]) -> None:
    """One copy of each PG moves, none away from the suspect. Returns once that is reported."""
    cluster, hosts = guard.cluster, {osd: row['host'] for osd, row in guard.osds().items()}
    for pg in pgs:
        used = {hosts[osd] for osd in pg['acting']}
        target = next(osd for osd in hosts if hosts[osd] not in used)
        source = next(osd for osd in pg['acting'] if osd != VICTIM)
        cluster.mon('osd pg-upmap-items', pgid=pg['pgid'], id=[source, target])
    cluster.wait(lambda: 'BACKFILLING' in codes(guard), 60, 'a backfill of the suspect')


def codes(guard: Guard) -> List[str]:
    return [cause['code'] for cause in why(guard)]


def is_no_cause(guard: Guard, work: str) -> None:
    """For some time, with the work that an operator would take for it."""
    wait_cause(guard, 'process', beside=[work])
    end = time.monotonic() + NOT_NAMED_SECONDS
    while time.monotonic() < end:
        time.sleep(1)
        named = codes(guard)
        assert named[0] == 'process' and work in named, named


def test_a_backfill(guard: Guard) -> None:
    """Of a PG of the OSD, between two others."""
    cluster = guard.cluster
    with slow_copies(cluster) as pool:
        cluster.write(COPIED, ['c-%d' % number for number in range(COPIED_OBJECTS)], 4096)
        copy(guard, [pg for pg in pgs_of(cluster, pool) if VICTIM in pg['acting']][:1])
        with dispatch_delay(cluster, VICTIM, DELAY_SECONDS):
            assert wait_cause(guard, 'backfill')['evidence']['pgs'] >= 1


def test_an_osd_that_copies_longest(guard: Guard) -> None:
    """It becomes slow while its peers copy as much, and at the end it alone does."""
    cluster = guard.cluster
    with slow_copies(cluster, pg_num=32, osd_max_backfills=32) as pool:
        cluster.write(COPIED, ['c-%d' % number for number in range(SHARED_OBJECTS)], 4096)
        copy(guard, pgs_of(cluster, pool))
        with dispatch_delay(cluster, VICTIM, DELAY_SECONDS):
            is_no_cause(guard, 'BACKFILLING')
            for osd in {*cluster.osds()} - {VICTIM}:
                cluster.tell('osd.%d' % osd, 'config set', var='osd_recovery_sleep', val=['0'])
            cluster.wait(lambda: {pg['acting'][0] for pg in pgs_of(cluster, pool)
                                  if 'backfilling' in pg['state']} == {VICTIM}, 90,
                         'the suspect to copy alone')
            left = Counter(osd for pg in pgs_of(cluster, pool) if 'backfilling' in pg['state']
                           for osd in pg['acting'])
            print('PGs that are copied, by OSD: %s' % left)
            assert left[VICTIM] >= 2 * median(left[osd] for osd in cluster.osds() if osd != VICTIM)
            is_no_cause(guard, 'BACKFILLING')


@pytest.mark.skipif('cpu' in missing_controllers(), reason='no cgroup (v1) cpu to write to')
def test_too_little_cpu(guard: Guard) -> None:
    with cpu_throttle(guard.cluster, VICTIM, 0.75):
        cause = wait_cause(guard, 'cpu')
    assert_slow_heartbeats(cause['evidence'])
    assert cause['evidence']['slowdowns']


@pytest.mark.skipif('blkio' in missing_controllers(), reason='no cgroup (v1) blkio to write to')
def test_a_slow_drive(guard: Guard) -> None:
    with throttled_writes(guard.cluster, VICTIM, 60):
        wait_cause(guard, 'drive')


def test_a_narrow_network(network: Optional[Network], guard: Guard) -> None:
    """Of one OSD."""
    if network is None:
        pytest.skip('no OSD has its own network on this machine: ' + why_impossible())
    with narrowed(network):
        evidence = wait_cause(guard, 'network')['evidence']
    assert_slow_heartbeats(evidence)


@contextlib.contextmanager
def narrowed(network: Network) -> Iterator[None]:
    """The network carries hardly more than is sent."""
    before = network.traffic()
    time.sleep(CABLE_SECONDS)
    used = (network.traffic() - before) / CABLE_SECONDS
    print('of %.0f kB/s, %.0f %% are used' % (used / CABLE_SHARE / 1000, 100 * CABLE_SHARE))
    with network.narrow(round(used / CABLE_SHARE)):
        yield


@pytest.mark.skipif(bool(why_impossible()), reason='no host has its own network on this machine')
@pytest.mark.parametrize('number, code', [(6, 'host_network'), (12, 'switch')])
def test_a_narrow_network_of_hosts(release: str, make_cluster: ClusterFactory, number: int,
                                   code: str) -> None:
    """Of one host with two OSDs, or of two with one, of few PGs, so that operations elsewhere
    hardly wait for it."""
    with Network() as network:
        cluster = make_cluster(release, osds=12, hosts=number, **network.options(
            ['osd.%d' % osd for osd in NEIGHBOURS], FAST_CONF))
        cluster.pool_create(POOL, 64, size=2)
        cluster.wait_clean(60)
        guard = Guard(cluster, OPTIONS)
        hosts = {osd: row['host'] for osd, row in guard.osds().items()}
        names = {hosts[osd] for osd in NEIGHBOURS}
        assert {osd for osd in hosts if hosts[osd] in names} == set(NEIGHBOURS)
        cluster.load(POOL, rate=200, read_fraction=0.5, runtime=600)
        cluster.wait(lambda: all(row['score'] for row in guard.osds().values()), 120, 'slowdowns')
        with narrowed(network):
            evidence = wait_cause(guard, code, others=NEIGHBOURS, after=['host'])['evidence']
        assert_slow_heartbeats(evidence)
        assert evidence['osds'] == list(NEIGHBOURS)
        assert names == ({evidence['host']} if code == 'host_network' else {*evidence['hosts']})
        assert not guard.tracebacks()
        # Before its network ends.
        cluster.down()
