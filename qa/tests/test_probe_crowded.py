# SPDX-License-Identifier: LGPL-2.1-or-later
"""Cleaning up in an operator's pool that holds very many other objects.

The objects of others lie in the probes' own namespace, where a listing has to look at each.
"""
import os
import signal
import time
from typing import Callable, Iterator

import pytest
import rados

from perfguard.probe.types import NAMESPACE, PROBE_PREFIX
from perfguard.probe.worker.protocol import SWEEP, WorkerRequest, request_to_json
from qa.cluster import Cluster
from qa.lib.crowd import fill
from qa.lib.guard import CALM, FAST_CONF, Guard
from qa.lib.probe_worker import Worker, mon_host, probe_key
from qa.lib.probes import ENDED, Probes, workers

from .test_probe_trouble import LONG

ClusterFactory = Callable[..., Cluster]

#: test_probe_trouble.py kills probes in the quick tier, beside few objects of others.
pytestmark = pytest.mark.releases('pacific', quick=())

POOL = 'crowded'
#: check.sh sets 1,000,000 in the nightly tier.
OBJECTS = int(os.environ.get('PERFGUARD_CROWD', '100000'))
#: Of the objects of LONG: 4 MiB in 16 objects.
OBJECT_BYTES = 262144
WRITTEN_SECONDS = 60.0
#: Two passes that find nothing lie 12 s apart; a machine that has other things to do takes longer.
CLEAN_SECONDS = 60.0
STRAY_OBJECTS = 40
LISTING_SECONDS = 120.0 + OBJECTS / 2000


def written(cluster: Cluster, run: int) -> bool:
    """Whether a run has written its objects; the pool is too full to be listed for this."""
    with cluster.rados().open_ioctx(POOL) as ioctx:
        ioctx.set_namespace(NAMESPACE)
        for number in range(int(LONG['nrfiles'])):
            try:
                ioctx.stat('%s%d-%d-%d' % (PROBE_PREFIX, run, OBJECT_BYTES, number))
            except rados.ObjectNotFound:
                return False
    return True


def left(cluster: Cluster) -> int:
    """Objects of probes; all others are still there."""
    with cluster.rados().open_ioctx(POOL) as ioctx:
        ioctx.set_namespace(NAMESPACE)
        names = [each.key for each in ioctx.list_objects()]
    probes = sum(name.startswith(PROBE_PREFIX) for name in names)
    assert len(names) - probes == OBJECTS
    return probes


@pytest.fixture(scope='module')
def probes(cluster_factory: ClusterFactory, release: str) -> Iterator[Probes]:
    cluster = cluster_factory(release, osds=3, hosts=3, mgrs=2, conf={
        **FAST_CONF, 'global': CALM})
    cluster.pool_create(POOL, 32, size=2)
    begin = time.monotonic()
    fill(cluster, POOL, NAMESPACE, OBJECTS)
    print('%d objects of others written in %.0f s' % (OBJECTS, time.monotonic() - begin))
    guard = Guard(cluster)
    cluster.wait_clean(60)
    yield Probes(guard)
    assert not guard.tracebacks()


def killed(probes: Probes) -> int:
    """A run in the crowded pool whose worker and mgr are gone."""
    run = probes.begin(**LONG, runtime='60', pool=POOL)
    probes.wait_state(run, 'running')
    probes.cluster.wait(lambda: written(probes.cluster, run), WRITTEN_SECONDS, 'objects')
    pid, = workers(probes.cluster)
    # Else it would notice that it is alone, and remove its objects.
    os.kill(pid, signal.SIGSTOP)
    probes.cluster.restart_mgr(60)
    os.kill(pid, signal.SIGKILL)
    probes.guard.wait_ready()
    return run


def test_a_killed_probe_is_cleaned_up_by_name(probes: Probes) -> None:
    run = killed(probes)
    begin = time.monotonic()
    probes.cluster.wait(lambda: probes.row(run)['state'] in ENDED, CLEAN_SECONDS, 'the end')
    print('cleaned up %.1f s after the mgr was ready, %d objects of others' % (
        time.monotonic() - begin, OBJECTS))
    assert left(probes.cluster) == 0
    assert probes.wait_state(probes.begin(**LONG, runtime='1', pool=POOL), 'done')


def test_objects_of_unknown_names_are_found_by_a_listing(probes: Probes) -> None:
    cluster, run = probes.cluster, 9999
    prefix = '%s%d-' % (PROBE_PREFIX, run)
    with cluster.rados().open_ioctx(POOL) as ioctx:
        ioctx.set_namespace(NAMESPACE)
        for number in range(STRAY_OBJECTS):
            ioctx.write_full('%s4096-%d' % (prefix, number), bytes(64))
    user = PROBE_PREFIX + str(run)
    key = probe_key(cluster, user, POOL)
    begin = time.monotonic()
    request = WorkerRequest(POOL, prefix, 'client.' + user, key, mon_host(cluster), SWEEP,
                            limit_seconds=LISTING_SECONDS)
    with Worker(cluster, request_to_json(request)) as worker:
        cleaned, = (line for line in worker.lines() if line['type'] == 'cleaned')
    print('listed %d objects of others in %.0f s' % (OBJECTS, time.monotonic() - begin))
    assert (cleaned['removed'], cleaned['left']) == (STRAY_OBJECTS, 0) and left(cluster) == 0


def test_a_clean_up_that_cannot_succeed_is_abandoned(probes: Probes) -> None:
    cluster = probes.cluster
    run = probes.begin(**LONG, runtime='60', pool=POOL)
    probes.wait_state(run, 'running')
    cluster.wait(lambda: written(cluster, run), WRITTEN_SECONDS, 'objects')
    cluster.stop('osd.1')
    try:
        for pid in workers(cluster):
            os.kill(pid, signal.SIGKILL)
        cluster.wait(lambda: probes.state(run) == 'cleaning', 60, 'the clean-up')
        answer = probes.guard.get('probe cancel', run=run, force=True)
    finally:
        cluster.cont('osd.1')
    print(answer['message'])
    assert '%s%d-*' % (PROBE_PREFIX, run) in answer['message'] and POOL in answer['message']
    assert probes.state(run) in ENDED and left(cluster) > 0
    cluster.wait_clean(60)
    after = probes.wait_state(probes.begin(**LONG, runtime='1', pool=POOL), 'done')
    assert after['id'] > run and left(cluster) > 0
