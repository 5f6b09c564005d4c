# SPDX-License-Identifier: LGPL-2.1-or-later
"""Causes of a slow OSD, provoked one at a time on a real cluster: `perfguard why osd.N` names them.

The tests of a release share one cluster under client load, with bluestore. Each test undoes what it
does to the cluster. test_intermittent.py has a slow host and a heavy client.
"""
import contextlib
import json
import threading
import time
from typing import Any, Callable, Dict, Iterator, List

import pytest
import rados

from qa.cluster import Cluster
from qa.lib.faults import cpu_throttle, dispatch_delay, missing_controllers, throttled_writes
from qa.lib.guard import FAST_CONF, Guard

ClusterFactory = Callable[..., Cluster]
Json = Dict[str, Any]

pytestmark = [pytest.mark.alone, pytest.mark.timeout(600),
              pytest.mark.releases('pacific', quick=())]

POOL = 'p'
VICTIM = 2
DELAY_SECONDS = 0.015
OPTIONS = {'slow_osd_seconds': '8', 'slow_osd_ratio': '4', 'baseline_seconds': '5'}
#: Heartbeats are averages over a minute, which OSDs report at its end.
NAMED_SECONDS, CLEARED_SECONDS = 180.0, 90.0
QUIET_PING_MS = 5.0
#: An object on which one client works, so many operations at a time.
HOT, HOT_DEPTH = 'hot', 16
#: Of half a second, an OSD hangs for so long, again and again.
HICCUP_SECONDS, AWAKE_SECONDS = 0.3, 0.2


@pytest.fixture(scope='module')
def shared(release: str, cluster_factory: ClusterFactory) -> Iterator[Guard]:
    cluster = cluster_factory(release, osds=8, hosts=4, store='bluestore', conf=FAST_CONF)
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


def wait_cause(guard: Guard, *codes: str, osd: int = VICTIM) -> Json:
    """Until `why` names one of these first; no other OSD may be slow at any time."""
    seen: List[Json] = []

    def named() -> bool:
        seen[:] = [cause for cause in why(guard, osd) if cause['code'] != 'NOT_SLOW']
        assert guard.slow_osds() <= {VICTIM}, guard.slow_osds()
        return bool(seen) and seen[0]['code'] in codes

    begin = time.monotonic()
    try:
        guard.cluster.wait(named, NAMED_SECONDS, ' or '.join(codes))
    finally:
        print('after %.0f s: %s' % (time.monotonic() - begin, [
            (cause['code'], cause['text']) for cause in seen]), flush=True)
    return seen[0]


@contextlib.contextmanager
def hot_object(cluster: Cluster) -> Iterator[int]:
    """One client reads and writes one object all the time; its primary is given."""
    over = threading.Event()

    def work(ioctx: rados.Ioctx) -> None:
        while not over.is_set():
            ioctx.read(HOT, 4096)

    with cluster.rados().open_ioctx(POOL) as ioctx:
        ioctx.write_full(HOT, b'x' * 4096)
        threads = [threading.Thread(target=work, args=(ioctx,)) for _ in range(HOT_DEPTH)]
        for thread in threads:
            thread.start()
        try:
            yield int(cluster.mon('osd map', pool=POOL, object=HOT)['acting_primary'])
        finally:
            over.set()
            for thread in threads:
                thread.join(30)


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
def hiccups(cluster: Cluster, osd: int) -> Iterator[None]:
    """The OSD hangs for moments, as behind a network that drops packets."""
    over, name = threading.Event(), 'osd.%d' % osd

    def alternate() -> None:
        try:
            while not over.is_set():
                cluster.stop(name)
                time.sleep(HICCUP_SECONDS)
                cluster.cont(name)
                over.wait(AWAKE_SECONDS)
        finally:
            cluster.cont(name)

    thread = threading.Thread(target=alternate)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)


def test_a_hot_object_is_named_and_no_osd_is_slow(guard: Guard) -> None:
    with hot_object(guard.cluster) as primary:
        cause = wait_cause(guard, 'object', osd=primary)
        assert (cause['evidence']['object'], cause['evidence']['pool']) == (HOT, POOL)
        assert cause['evidence']['load_ratio'] >= 1.5 and cause['evidence']['share'] >= 0.5
        assert not guard.slow_osds() and 'PERFGUARD_SLOW_OSD' not in guard.checks()


def test_a_deep_scrub(guard: Guard) -> None:
    cluster = guard.cluster
    with set_of(cluster, VICTIM, osd_scrub_sleep=2.0, osd_scrub_chunk_max=1,
                osd_scrub_chunk_min=1), dispatch_delay(cluster, VICTIM, DELAY_SECONDS):
        for pg in cluster.pgs():
            if pg['acting'][0] == VICTIM:
                cluster.mon('pg deep-scrub', pgid=pg['pgid'])
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


def test_slow_heartbeats(guard: Guard) -> None:
    with hiccups(guard.cluster, VICTIM):
        cause = wait_cause(guard, 'network')
    assert cause['evidence']['ping_ms'] > 10 * cause['evidence']['median_ping_ms']


@pytest.mark.skipif('cpu' in missing_controllers(), reason='no cgroup (v1) cpu to write to')
def test_too_little_cpu(guard: Guard) -> None:
    with cpu_throttle(guard.cluster, VICTIM, 0.75):
        cause = wait_cause(guard, 'cpu')
    assert cause['evidence']['ping_ms'] > 10 * cause['evidence']['median_ping_ms']
    assert cause['evidence']['slowdowns']


@pytest.mark.skipif('blkio' in missing_controllers(), reason='no cgroup (v1) blkio to write to')
def test_a_slow_drive(guard: Guard) -> None:
    with throttled_writes(guard.cluster, VICTIM, 60):
        wait_cause(guard, 'drive')
