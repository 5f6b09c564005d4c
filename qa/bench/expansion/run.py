# SPDX-License-Identifier: LGPL-2.1-or-later
"""One expansion from boot to end, and its measurements."""

import contextlib
import time
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

from qa.cluster import Cluster, ClusterError
from qa.demo.gauge import pushed_bytes
from qa.demo.operator import Operator
from qa.demo.screen import Screen

from . import balance, epochs
from .arms import METHODS, STOCK, Expander
from .burst import Burst
from .clients import Clients
from .settings import (DRIVES, ERASURE, NO_SLEEP_IN_CONF, REPLICATED, SETTLE_SECONDS,
                       Arm, Settings)

LOAD, IDLE, BURST = 'load', 'idle', 'burst'
SCENARIOS = (LOAD, IDLE, BURST)

#: Spans of time; MOVE is the other two together.
QUIET, MOVE, EXPAND, BALANCE = 'quiet', 'move', 'expand', 'balance'

#: Keys of ``campaign status`` that are kept for each second.
TOLD = ('phase', 'limit', 'in_flight', 'released', 'total', 'bytes_done', 'reasons')

#: Operations that take longer than so many times the p99 before the expansion are slow.
SLOW_FACTOR = 1.5

#: Data in, cluster up: seconds that a cluster may need to be healthy.
HEALTHY_SECONDS = 120.0

Result = Dict[str, Any]


def run(settings: Settings, arm: Arm, scenario: str, screen: Screen) -> Result:
    """The raw result; an expansion that did not complete has an 'error' and little else."""
    result: Result = {'release': settings.release, 'arm': arm.name, 'scenario': scenario,
                      'begun': time.time()}
    try:
        screen.step(f'{arm.name}, {scenario}: a cluster of {settings.osds} OSDs boots')
        conf = {'mon': epochs.KEEP_MAPS, 'osd': NO_SLEEP_IN_CONF}
        with Cluster.up(settings.release, osds=settings.osds, hosts=settings.hosts,
                        conf=conf) as cluster:
            result.update(_Run(settings, arm, scenario, screen, cluster).measure())
    except ClusterError as e:
        result['error'] = str(e)
        screen.say(f'FAILED: {e}')
    return result


class _Run:
    def __init__(self, settings: Settings, arm: Arm, scenario: str, screen: Screen,
                 cluster: Cluster) -> None:
        self._settings = settings
        self._arm = arm
        self._scenario = scenario
        self._screen = screen
        self._cluster = cluster
        self._operator = Operator(cluster, screen)
        self._clients: Optional[Clients] = None
        self._burst: Optional[Burst] = None
        #: Begin and end, in seconds since the epoch.
        self._spans: Dict[str, List[float]] = {}
        self._pushed: Dict[str, int] = {}
        #: The status of perfguard, second by second.
        self._timeline: List[Dict[str, Any]] = []

    def measure(self) -> Result:
        settings, cluster = self._settings, self._cluster
        # Not in ceph.conf, which would override what perfguard sets temporarily.
        cluster.mon('config set', who='mon', name='paxos_propose_interval',
                    value=f'{settings.propose_seconds:g}')
        cluster.mon('config set', who='osd', name='osd_recovery_sleep_hdd',
                    value=DRIVES[settings.drives])
        added = self._make_ready()
        if self._scenario != IDLE:
            self._screen.step('The clients start, and nothing changes')
            self._clients = Clients(cluster, settings)
            if self._scenario == BURST:
                self._burst = Burst(self._clients)
            time.sleep(SETTLE_SECONDS)
            with self._span(QUIET):
                time.sleep(settings.quiet_seconds)
        epoch = cluster.epoch()
        with self._span(EXPAND):
            self._screen.step(f'{settings.added} OSDs join')
            METHODS[self._arm.method](
                Expander(cluster, self._operator, added, settings.step_seconds, self._tick))
        causes = epochs.measure(cluster, epoch, cluster.epoch())
        expanded = balance.deviation(cluster)
        with self._span(BALANCE):
            self._screen.step('The balancer, until it finds nothing more')
            balance.balance(cluster, settings.step_seconds)
        self._spans[MOVE] = [self._spans[EXPAND][0], self._spans[BALANCE][1]]
        return {**self._client_result(causes['times']),
                'seconds': {name: end - begin for name, (begin, end) in self._spans.items()},
                'pushed_bytes': self._pushed, 'least_bytes': settings.least_bytes,
                'epochs': cluster.epoch() - epoch, 'causes': causes,
                'deviation_expanded': expanded,
                'deviation': balance.deviation(cluster), 'timeline': self._timeline}

    def _make_ready(self) -> List[int]:
        """Pools, data, perfguard, and the new OSDs' processes; returns their ids."""
        settings, cluster = self._settings, self._cluster
        balance.set_up(cluster)
        cluster.pool_create(REPLICATED, settings.pgs)
        cluster.pool_create(ERASURE, settings.erasure_pgs, erasure=settings.erasure)
        self._screen.step('The pools are balanced, then filled')
        balance.balance(cluster, settings.step_seconds)
        for pool in (REPLICATED, ERASURE):
            cluster.fill(pool, settings.objects, settings.object_bytes)
        if self._arm.method != STOCK:
            self._enable_perfguard()
        else:
            for name, value in self._arm.options.items():
                cluster.mon('config set', who='osd', name=name, value=value)
        added = cluster.add_osds(settings.added, in_crush=False)
        cluster.wait_clean(HEALTHY_SECONDS)
        cluster.wait_health_ok(HEALTHY_SECONDS)
        return added

    def _enable_perfguard(self) -> None:
        self._operator.type('mgr module enable', module='perfguard')
        options = {**self._settings.options, **self._arm.options}
        for name, value in options.items():
            self._operator.type('config set', who='mgr', name=f'mgr/perfguard/{name}',
                                value=value)
        self._operator.wait_ready()

    @contextlib.contextmanager
    def _span(self, name: str) -> Iterator[None]:
        pushed, begin = pushed_bytes(self._cluster), time.time()
        yield
        self._spans[name] = [begin, time.time()]
        self._pushed[name] = pushed_bytes(self._cluster) - pushed
        self._screen.end_line()

    def _tick(self, status: Mapping[str, Any]) -> None:
        moment: Dict[str, Any] = {'time': time.time(), 'burst': False}
        moment.update({key: status[key] for key in TOLD})
        if self._burst is not None:
            moment['burst'] = self._burst.tick(status)
        self._timeline.append(moment)
        self._screen.progress(
            f'{moment["phase"]} {moment["released"]}/{moment["total"]} PGs, '
            f'{moment["in_flight"]} in flight, limit {moment["limit"]}'
            + (' BURST' if moment['burst'] else '') + f' | {"; ".join(moment["reasons"][-1:])}',
            at_once=self._burst is not None)

    def _client_result(self, epoch_times: Sequence[float]) -> Result:
        if self._clients is None:
            return {}
        clients, spans = self._clients, self._spans
        clients.wait_for_last(spans[QUIET][0], spans[MOVE][1])
        problems = clients.problems()
        clients.stop()
        if problems:
            raise ClusterError('; '.join(problems))
        if self._timeline:
            begin = self._timeline[0]['time']
            by_second = clients.p99_by_second(begin, self._timeline[-1]['time'])
            for moment in self._timeline:
                moment['p99_ms'] = by_second[int(moment['time'] - begin)]
        latency = clients.latency(spans)
        limit_ms = SLOW_FACTOR * latency[QUIET]['all'].get('p99', 0.0)
        return {'latency': latency,
                'slow_at_rest': epochs.slow_share(clients.samples(*spans[QUIET]), limit_ms),
                'slow': epochs.slow_by_distance(
                    clients.samples(*spans[EXPAND]), epoch_times, limit_ms)}
