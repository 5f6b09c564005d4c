# SPDX-License-Identifier: LGPL-2.1-or-later
"""Cleaning up in an operator's pool that holds very many other objects.

The objects of others lie in the probes' own namespace, where a listing has to look at each.
"""
import os
import signal
import threading
import time
from typing import Any, Callable, Iterator, List

import pytest

from perfguard.probe.types import NAMESPACE, PREFIX
from qa.cluster import Cluster
from qa.lib.guard import FAST_CONF, Guard
from qa.lib.probes import ENDED, Probes

from .test_probe_trouble import CALM, LONG, workers

ClusterFactory = Callable[..., Cluster]

POOL = 'crowded'
#: check.sh sets 1,000,000 in the nightly tier.
OBJECTS = int(os.environ.get('PERFGUARD_CROWD', '100000'))
IN_FLIGHT = 256
FILL_SECONDS = max(400.0, OBJECTS / 500)
#: For the first object of a probe to be listed among them.
FOUND_SECONDS = max(30.0, OBJECTS / 10000)
#: Two passes that find nothing lie 12 s apart; a machine that has other things to do takes longer.
CLEAN_SECONDS = 60.0


def crowd(cluster: Cluster) -> None:
    """Empty objects of others."""
    places, deadline = threading.Semaphore(IN_FLIGHT), time.monotonic() + FILL_SECONDS
    failed: List[int] = []

    def done(completion: Any) -> None:
        if completion.get_return_value() < 0:
            failed.append(completion.get_return_value())
        places.release()

    with cluster.rados().open_ioctx(POOL) as ioctx:
        ioctx.set_namespace(NAMESPACE)
        for number in range(OBJECTS):
            assert places.acquire(timeout=max(0.0, deadline - time.monotonic()))
            ioctx.aio_write_full('other-%d' % number, b'', done)
        for _ in range(IN_FLIGHT):
            assert places.acquire(timeout=max(0.0, deadline - time.monotonic()))
    assert not failed


def left(cluster: Cluster) -> int:
    """Objects of probes; all others are still there."""
    with cluster.rados().open_ioctx(POOL) as ioctx:
        ioctx.set_namespace(NAMESPACE)
        names = [each.key for each in ioctx.list_objects()]
    probes = sum(name.startswith(PREFIX) for name in names)
    assert len(names) - probes == OBJECTS
    return probes


@pytest.fixture(scope='module')
def probes(cluster_factory: ClusterFactory, release: str) -> Iterator[Probes]:
    cluster = cluster_factory(release, osds=3, hosts=3, mgrs=2, conf={
        **FAST_CONF, 'global': CALM})
    cluster.pool_create(POOL, 32, size=2)
    crowd(cluster)
    guard = Guard(cluster)
    cluster.wait_clean(60)
    yield Probes(guard)
    assert not guard.tracebacks()


def killed(probes: Probes) -> int:
    """A run in the crowded pool whose worker and mgr are gone."""
    run = probes.begin(**LONG, runtime='60', pool=POOL)
    probes.wait_state(run, 'running')
    probes.cluster.wait(lambda: left(probes.cluster), FOUND_SECONDS, 'objects')
    pid, = workers(probes.cluster)
    # Else it would notice that it is alone, and remove its objects.
    os.kill(pid, signal.SIGSTOP)
    probes.cluster.restart_mgr(60)
    os.kill(pid, signal.SIGKILL)
    probes.guard.wait_ready()
    return run


def test_what_was_killed_is_cleaned_up_by_name(probes: Probes) -> None:
    run = killed(probes)
    begin = time.monotonic()
    probes.cluster.wait(lambda: probes.row(run)['state'] in ENDED, CLEAN_SECONDS, 'the end')
    print('cleaned up %.1f s after the mgr was ready, %d objects of others' % (
        time.monotonic() - begin, OBJECTS))
    assert left(probes.cluster) == 0
    assert probes.wait_state(probes.begin(**LONG, runtime='1', pool=POOL), 'done')


def test_a_clean_up_that_cannot_succeed_is_abandoned(probes: Probes) -> None:
    cluster = probes.cluster
    run = probes.begin(**LONG, runtime='60', pool=POOL)
    probes.wait_state(run, 'running')
    cluster.wait(lambda: left(cluster), FOUND_SECONDS, 'objects')
    cluster.stop('osd.1')
    try:
        for pid in workers(cluster):
            os.kill(pid, signal.SIGKILL)
        cluster.wait(lambda: probes.state(run) == 'cleaning', 60, 'the clean-up')
        answer = probes.guard.get('probe abandon', run=run)
    finally:
        cluster.cont('osd.1')
    print(answer['message'])
    assert '%s%d-*' % (PREFIX, run) in answer['message'] and POOL in answer['message']
    assert probes.state(run) in ENDED and left(cluster) > 0
    cluster.wait_clean(60)
    after = probes.wait_state(probes.begin(**LONG, runtime='1', pool=POOL), 'done')
    assert after['id'] > run and left(cluster) > 0
