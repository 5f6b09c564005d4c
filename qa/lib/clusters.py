# SPDX-License-Identifier: LGPL-2.1-or-later
"""Clusters that several tests share, to save the time of a boot.

The tests of one module share a cluster through a Lender:

    @pytest.fixture(scope='module')
    def lender(release: str, cluster_factory: ClusterFactory) -> Iterator[Lender[Guard]]:
        with Lender(lambda: Guard(cluster_factory(release))) as lender:
            yield lender

    @pytest.fixture
    def guard(lender: Lender[Guard], failed: Failed) -> Iterator[Guard]:
        with lender.lend(failed) as guard:
            yield guard
            tidy(guard)

The tests of several modules share clusters that are restored after each test:

    pytestmark = pytest.mark.shares('campaign')

    def test_an_expansion(guard: Guard) -> None: ...

A worker has one such cluster at a time. It ends with the last test of its kind and release.
"""
import contextlib
from dataclasses import dataclass
from types import TracebackType
from typing import (Any, Callable, Dict, FrozenSet, Generic, Iterator, List, Optional, Protocol,
                    Set, Tuple, Type, TypeVar)

from qa.cluster import Cluster
from qa.lib.auditor import MGR_POOLS
from qa.lib.guard import CALM, FAST_CONF, USUAL_CONF, Guard
from qa.lib.joins import crush_weights, wait_reported

ClusterFactory = Callable[..., Cluster]


def small_cluster(make: ClusterFactory, release: str, conf: Dict[str, Any],
                  **options: Any) -> Cluster:
    """8 OSDs on 4 hosts with a replicated and an erasure-coded pool."""
    cluster = make(release, osds=8, hosts=4, conf=conf, **options)
    cluster.pool_create('rep', 64, size=3)
    cluster.pool_create('ec', 32, erasure=(2, 1))
    cluster.fill('rep', 1000, 4096)
    cluster.fill('ec', 500, 4096)
    cluster.wait_clean(60)
    return cluster


# ---- Clusters that the tests of one module share

class OnCluster(Protocol):
    """An object that uses a cluster."""
    cluster: Cluster


T = TypeVar('T', bound=OnCluster)
#: Returns whether the test that is being torn down has failed.
Failed = Callable[[], bool]


class Lender(Generic[T]):
    """Lends one object to test after test; after a failed test the next one gets a new object."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: Optional[T] = None

    def __enter__(self) -> 'Lender[T]':
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.discard()

    def discard(self) -> None:
        made, self._made = self._made, None
        if made is not None:
            made.cluster.down()

    @contextlib.contextmanager
    def lend(self, failed: Failed) -> Iterator[T]:
        """For one test, including the cleanup after it."""
        if self._made is None:
            self._made = self._make()
        kept = False
        try:
            yield self._made
            kept = not failed()
        finally:
            if not kept:
                self.discard()


# ---- Clusters that the tests of several modules share

#: Kind -> configuration. "campaign": fast campaigns; "join": the default proposal interval.
KINDS = {'campaign': {**FAST_CONF, 'global': CALM}, 'join': {**USUAL_CONF, 'global': CALM}}

#: Set by commands of the balancer, which take effect at once.
BALANCER = 'mgr/balancer/active'


@dataclass(frozen=True)
class Found:
    """The initial state of a shared cluster."""
    flags: FrozenSet[str]
    #: (section, option) -> value.
    config: Dict[Tuple[str, str], str]
    #: Pool -> pg_autoscale_mode.
    pools: Dict[str, str]
    weights: Dict[int, float]
    #: OSD -> host.
    hosts: Dict[int, str]
    balancing: bool


class SharedClusters:
    """One cluster of a kind and a release at a time, lent to one test after another."""

    def __init__(self, make: ClusterFactory) -> None:
        self._make = make
        self._key: Optional[Tuple[str, str]] = None
        self._lender: Optional[Lender[Guard]] = None
        self._found: Optional[Found] = None

    @property
    def clusters(self) -> List[Cluster]:
        found: List[Cluster] = getattr(self._make, 'clusters')
        return found[-1:] if self._lender is not None else []

    @contextlib.contextmanager
    def lend(self, kind: str, release: str, failed: Failed) -> Iterator[Guard]:
        if self._key != (kind, release):
            self.discard()
            self._key, self._lender = (kind, release), Lender(lambda: self._boot(kind, release))
        assert self._lender is not None
        with self._lender.lend(failed) as guard:
            assert self._found is not None
            yield guard
            if not failed():
                put_back(guard, self._found)

    def _boot(self, kind: str, release: str) -> Guard:
        guard = Guard(small_cluster(self._make, release, KINDS[kind], mgrs=2))
        self._found = look(guard)
        return guard

    def discard(self) -> None:
        """End the cluster, if there is one."""
        lender, self._lender, self._key = self._lender, None, None
        if lender is not None:
            lender.discard()


def look(guard: Guard) -> Found:
    dump = guard.cluster.osd_dump()
    return Found(frozenset(dump['flags_set']), configuration(guard.cluster),
                 {pool['pool_name']: pool['pg_autoscale_mode'] for pool in dump['pools']},
                 crush_weights(guard.cluster), guard.cluster.osd_hosts(),
                 bool(guard.balancer()['active']))


def configuration(cluster: Cluster) -> Dict[Tuple[str, str], str]:
    return {(entry['section'], entry['name']): entry['value']
            for entry in cluster.mon('config dump') if entry['name'] != BALANCER}


def put_back(guard: Guard, found: Found) -> None:
    """Restore the initial state: no campaign, no upmaps; OSDs, weights, settings and pools."""
    cluster = guard.cluster
    if 'perfguard' not in cluster.mon('mgr module ls')['enabled_modules']:
        cluster.mon('mgr module enable', module='perfguard')
    guard.wait_ready()
    _put_back_settings(cluster, found)
    if guard.status()['phase'] not in ('IDLE', 'DONE', 'ABORTED'):
        guard.do('abort')
        guard.wait_phase('ABORTED')
    guard.remove_upmaps()
    # The settings of an aborted campaign are given back with its last pin.
    guard.wait_check('PERFGUARD_HELD_PINS', False, 30)
    if guard.balancer()['active'] != found.balancing:
        cluster.mgr('balancer on' if found.balancing else 'balancer off')
    _put_back_flags(cluster, found.flags)
    _put_back_pools(cluster, found.pools)
    _put_back_osds(cluster, found)
    cluster.wait_clean(120)
    wait_reported(guard)
    guard.former = guard.status()['id'] or 0
    assert not guard.tracebacks()


def _put_back_settings(cluster: Cluster, found: Found) -> None:
    now = configuration(cluster)
    cluster.order([{'prefix': 'config rm', 'who': who, 'name': name}
                   for who, name in now.keys() - found.config.keys()]
                  + [{'prefix': 'config set', 'who': who, 'name': name, 'value': value}
                     for (who, name), value in found.config.items()
                     if now.get((who, name)) != value])


def _put_back_flags(cluster: Cluster, flags: FrozenSet[str]) -> None:
    settable = {'norebalance', 'nobackfill', 'norecover', 'noscrub', 'nodeep-scrub', 'noout'}
    present: Set[str] = set(cluster.osd_dump()['flags_set'])
    cluster.order([{'prefix': 'osd unset', 'key': flag} for flag in (present - flags) & settable])


def _put_back_pools(cluster: Cluster, pools: Dict[str, str]) -> None:
    for pool in cluster.osd_dump()['pools']:
        name, mode = pool['pool_name'], pool['pg_autoscale_mode']
        if name.startswith(MGR_POOLS):
            continue  # the mgr creates it at any time
        if name not in pools:
            cluster.mon('osd pool rm', pool=name, pool2=name, yes_i_really_really_mean_it=True)
        elif mode != pools[name]:
            cluster.mon('osd pool set', pool=name, var='pg_autoscale_mode', val=pools[name])


def _put_back_osds(cluster: Cluster, found: Found) -> None:
    weights = found.weights
    for osd in weights.keys() - set(cluster.osds()):
        cluster.add_osds(1, hosts=[found.hosts[osd]], ids=[osd], weight=weights[osd])
    out = [str(osd['osd']) for osd in cluster.osd_dump()['osds'] if not osd['in']]
    if out:
        cluster.mon('osd in', ids=out)
    cluster.order([{'prefix': 'osd crush reweight', 'name': 'osd.%d' % osd,
                    'weight': weights.get(osd, 0.0)}
                   for osd, present in crush_weights(cluster).items()
                   if present != weights.get(osd, 0.0)])
    added = [osd for osd in cluster.osds() if osd not in weights]
    if added:
        cluster.wait_clean(120)
        cluster.remove_osds(added)
