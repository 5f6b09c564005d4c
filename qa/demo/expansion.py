# SPDX-License-Identifier: LGPL-2.1-or-later
"""One expansion from boot to end, with or without perfguard, and its measurements."""

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from qa.cluster import Cluster, WaitTimeout

from .gauge import Gauge, Latency, pushed_bytes
from .operator import Operator
from .screen import Screen
from .settings import (CLIENT_OBJECTS, CONF, OBJECT_BYTES, OPERATION_BYTES, POOL, PROBE,
                       PROBE_PG_NUM, PROBE_POOL, READ_FRACTION, DemoSettings)
from .text import bytes_text, page_text, progress_text

PERFGUARD = 'perfguard'
STOCK = 'stock'

# Steps, which are timed.
QUIET = 'quiet'
ADDING = 'adding OSDs'
JOINING = 'joining'
RELEASING = 'releasing'
MOVING = 'moving'

# Intervals for which client latency is reported.
BEFORE = 'before'
JOIN = 'join'
RELEASE = 'release'
DURING = 'in all'

# Longer than any demonstration, which stops the client at its end.
LOAD_SECONDS = 3600
STEP_SECONDS = 900.0
FILL_SECONDS = 600.0
POLL_SECONDS = 1.0

# Maximum time to wait for operations; librados resends lost ones after 10 s.
LAST_OPERATIONS_SECONDS = 20.0


@dataclass(frozen=True)
class Outcome:
    """The result of one expansion."""
    arm: str
    #: Client latency BEFORE and DURING the expansion and, with perfguard, of its two parts.
    latency: Mapping[str, Latency]
    #: Durations of the steps, in their order.
    seconds: Mapping[str, float]
    #: The last output of ``perfguard campaign status``.
    campaign: Optional[Mapping[str, Any]]
    #: Output of ``perfguard probe compare`` for the probes before and after the expansion.
    speed: Optional[Mapping[str, Any]]
    #: The probes that did not complete, if there is no such comparison.
    failed_probes: Tuple[str, ...]
    #: Load average of this machine, which also slows probes down, after each probe.
    loads: Tuple[float, ...]
    pushed_bytes: int
    epochs: int
    misplaced_max: float
    #: Directory of the cluster if it is kept, and text on its page.
    kept: Optional[Path]
    page: str

    @property
    def errors(self) -> int:
        return self.latency[BEFORE].errors + self.latency[DURING].errors

    @property
    def unfinished(self) -> int:
        return self.latency[BEFORE].unfinished + self.latency[DURING].unfinished

    def problems(self) -> List[str]:
        """Reasons why the demonstration has failed."""
        found = []
        if self.campaign is not None and self.campaign['phase'] != 'DONE':
            found.append(f'the campaign ended in {self.campaign["phase"]}')
        for count, what in ((self.errors, 'failed'), (self.unfinished, 'did not end')):
            if count:
                found.append(f'{self.arm}: {count} client operations {what}')
        return found


def expand(settings: DemoSettings, arm: str, screen: Screen, keep: bool = False) -> Outcome:
    """Boot a cluster, expand it under load, and take it down unless `keep`."""
    screen.step(f'Booting a cluster of {settings.osds} OSDs on {settings.hosts} hosts'
                + (' (for the expansion without perfguard)' if arm == STOCK else ''))
    # A cluster that outlives this process cannot be tied to it.
    cluster = Cluster.up(settings.release, osds=settings.osds, hosts=settings.hosts,
                         conf=CONF, tied=not keep)
    kept = False
    try:
        outcome = _Expansion(settings, arm, screen, cluster).run(keep)
        kept = keep
        return outcome
    finally:
        if not kept:
            cluster.down()


class _Expansion:
    def __init__(self, settings: DemoSettings, arm: str, screen: Screen, cluster: Cluster) -> None:
        self._settings = settings
        self._arm = arm
        self._screen = screen
        self._cluster = cluster
        self._operator = Operator(cluster, screen)
        #: Begin and end of each step, in seconds since the epoch.
        self._steps: Dict[str, Tuple[float, float]] = {}
        self._loads: List[float] = []

    def run(self, keep: bool) -> Outcome:
        settings, cluster = self._settings, self._cluster
        self._fill()
        page = self._open_dashboard() if keep else ''
        if self._arm == PERFGUARD:
            self._set_up_perfguard()
        cluster.wait_clean(60)
        cluster.wait_health_ok(60)
        probes = [self._probe('before')] if self._arm == PERFGUARD else []
        load = cluster.load(POOL, rate=settings.rate, read_fraction=READ_FRACTION,
                            runtime=LOAD_SECONDS, objects=CLIENT_OBJECTS, size=OPERATION_BYTES)
        self._gauge = Gauge(cluster, load)
        self._quiet()
        pushed, epoch = pushed_bytes(cluster), cluster.epoch()
        campaign = None
        if self._arm == PERFGUARD:
            campaign = self._under_perfguard()
        else:
            self._at_once()
        epochs = cluster.epoch() - epoch
        self._wait_for_last_operations()
        load.stop()
        moved = pushed_bytes(cluster) - pushed
        probes += [self._probe('after')] if probes else []
        failed = tuple(f'probe {row["id"]} {row["state"]}: {row["message"]}'
                       for row in probes if row['state'] != 'done')
        return Outcome(
            self._arm, self._latency(), {step: b - a for step, (a, b) in self._steps.items()},
            campaign, self._compare(probes) if probes and not failed else None, failed,
            tuple(self._loads), moved, epochs, self._gauge.misplaced_max,
            cluster.directory if keep else None, page)

    def _latency(self) -> Mapping[str, Latency]:
        steps = self._steps
        spans = {BEFORE: steps[QUIET]}
        if self._arm == PERFGUARD:
            spans[JOIN] = (steps[ADDING][0], steps[JOINING][1])
            spans[RELEASE] = steps[RELEASING]
        spans[DURING] = (steps[QUIET][1], max(end for _, end in steps.values()))
        return {name: self._gauge.latency(*span) for name, span in spans.items()}

    def _fill(self) -> None:
        settings = self._settings
        # Not in ceph.conf, which would override the temporary setting of perfguard.
        self._cluster.mon('config set', who='mon', name='paxos_propose_interval',
                          value=f'{settings.propose_seconds:g}')
        self._screen.step(
            f'Filling a pool of {settings.pg_num} PGs with 3 copies: {settings.objects} '
            f'objects, {bytes_text(settings.objects * OBJECT_BYTES)}')
        # The balancer is on, as by default, but has nothing to do: its moves in a young pool would
        # count as those of the expansion.
        self._cluster.mon('config set', who='mgr', name='mgr/balancer/upmap_max_deviation',
                          value='100')
        self._cluster.pool_create(POOL, settings.pg_num)
        self._cluster.pool_create(PROBE_POOL, PROBE_PG_NUM)
        # On a machine that does much else it takes minutes.
        self._cluster.fill(POOL, settings.objects, OBJECT_BYTES, timeout=FILL_SECONDS)

    def _open_dashboard(self) -> str:
        """Enable the dashboard for users; returns a text with its address."""
        self._screen.step('Enabling the dashboard; the page of perfguard is available in a moment, '
                          'as long as the cluster is up')
        page = page_text(self._cluster.dashboard())
        self._screen.say(page)
        return page

    def _set_up_perfguard(self) -> None:
        self._screen.step('Enabling perfguard')
        self._operator.type('mgr module enable', module='perfguard')
        self._operator.wait_ready()

    # -- Steps

    @contextlib.contextmanager
    def _step(self, name: str, text: str) -> Iterator[None]:
        self._screen.step(text)
        begin = time.time()
        yield
        self._screen.end_line()
        self._steps[name] = (begin, time.time())

    def _quiet(self) -> None:
        seconds = self._settings.quiet_seconds
        with self._step(QUIET, f'{self._settings.rate} client operations per second (open loop), '
                               f'{seconds} s without changes'):
            end = time.time() + seconds
            while time.time() < end:
                self._screen.progress(f'quiet | {self._gauge.recent_p99()}')
                time.sleep(max(0.0, min(POLL_SECONDS, end - time.time())))

    def _probe(self, when: str) -> Mapping[str, Any]:
        """Run a probe without clients, so that runs are comparable; returns its row."""
        self._screen.step(f'Running a probe {when} the expansion, without clients')
        self._operator.type('perfguard probe run', **PROBE)
        row = self._operator.newest_probe()

        def ended() -> bool:
            row.update(self._operator.newest_probe())
            self._screen.progress(f'probe {row["id"]} is {row["state"]} | {row["message"]}')
            return bool(row['ended'])

        self._poll(ended, f'the end of probe {row["id"]}')
        self._screen.end_line()
        self._loads.append(os.getloadavg()[0])
        self._operator.type('perfguard probe show', run=row['id'])
        return row

    def _compare(self, probes: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        before, after = (row['id'] for row in probes)
        return self._operator.compare_probes(before, after)

    def _under_perfguard(self) -> Mapping[str, Any]:
        with self._adding(weight=0.0):
            pass
        with self._step(JOINING, 'Setting their weights and pinning all PGs that this would '
                                 'move, in one OSDMap epoch'):
            self._operator.type('perfguard expand', weight='1.0')
            self._follow_campaign('RELEASING', 'HOLDING', 'FINISHING', 'DONE', 'ABORTED')
        with self._step(RELEASING, 'Releasing PGs, only as many as the balance requires'):
            return self._follow_campaign('DONE', 'ABORTED')

    def _at_once(self) -> None:
        with self._adding(weight=1.0):
            pass
        with self._step(MOVING, 'Moving all data at once, without perfguard'):
            self._poll(self._is_settled, 'all PGs active+clean')

    @contextlib.contextmanager
    def _adding(self, weight: float) -> Iterator[None]:
        settings = self._settings
        with self._step(ADDING, f'Booting {settings.added_osds} OSDs on {settings.added_hosts} '
                                'new hosts'):
            for osd in self._cluster.add_osds(settings.added_osds, weight=weight):
                host = self._cluster.osd_hosts()[osd]
                self._screen.command(f'ceph osd crush add osd.{osd} {weight:g} root=default '
                                     f'host={host}')
            # PGs report every few seconds, and the peak is now.
            self._cluster.flush_pg_stats()
            self._gauge.misplaced_ratio()
            yield

    # -- Waiting

    def _poll(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + STEP_SECONDS
        while not done():
            if time.monotonic() > deadline:
                raise WaitTimeout(f'not in {STEP_SECONDS:g} s: {what}; {self._cluster.health()}')
            time.sleep(POLL_SECONDS)

    def _follow_campaign(self, *phases: str) -> Mapping[str, Any]:
        seen: List[Dict[str, Any]] = []

        def there() -> bool:
            seen[:] = [self._operator.campaign()]
            arrived = seen[0]['phase'] in phases
            self._screen.progress(progress_text(seen[0], self._gauge.misplaced_ratio(),
                                                self._gauge.recent_p99()), at_once=arrived)
            return arrived

        self._poll(there, f'the campaign to be {phases[0]}')
        return seen[0]

    def _is_settled(self) -> bool:
        waiting = len(self._cluster.osd_dump()['pg_temp'])
        self._screen.progress(f'{waiting} PGs left | {self._gauge.misplaced_ratio():.1%} '
                              f'misplaced | {self._gauge.recent_p99()}')
        if waiting:
            return False
        with contextlib.suppress(WaitTimeout):
            self._cluster.wait_clean(10)
            return True
        return False

    def _wait_for_last_operations(self) -> None:
        """Wait for slow operations, so that their whole latency counts."""
        begin, end = self._steps[QUIET][0], max(end for _, end in self._steps.values())
        deadline = time.monotonic() + LAST_OPERATIONS_SECONDS
        # After one report interval of the client, all operations in flight are known.
        time.sleep(2.0)
        while self._gauge.latency(begin, end).unfinished and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
