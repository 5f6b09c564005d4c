# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a turn of the watch costs on a cluster of many OSDs, all of which report.

    /usr/bin/python3 -m qa.bench.bench_judging [--osds 1000 10000] [--slow 0 2] [--busy 0 0.1]
        [--turns 20] [--seed 1] [--profile ROWS]

No daemon and no model runs: the counters of the OSDs are drawn at random, and the watch gets them
as the mgr would give them. Each OSD has client reads, client writes, store commits and store reads,
a drive of its own, and a DB on a drive that it shares with others. The watch has known for longer
how latency varies.
CPU time is that of whole turns, from the reading to the report, without the drawing, once the
window of a minute is full. `slow`: OSDs whose operations take four times as long; `busy`: share of
the OSDs that backfill. The digest is that of all verdicts and scores: two states of the code that
conclude the same from the same seed have the same.
"""
import argparse
import cProfile
import hashlib
import itertools
import pstats
import statistics
import time
from typing import AbstractSet, Any, List, Optional, Tuple

import numpy as np

from perfguard.cluster.types import (ClientOps, OptionChange, Osd, OsdCounters, OsdMap, OsdPlace,
                                     PgCounts, Placement, PlainOps, Pool, Readings, Signals)
from perfguard.options import DEFAULTS
from perfguard.store import Store
from perfguard.watch.controller import FIRST_USUAL_SECONDS, USUAL, Watching
from qa.sim.port import Kv

PERIOD = 5.0
PER_HOST, HOSTS_PER_RACK = 20, 20
#: OSDs that share the device of their DBs.
PER_DB = 5
POOLS = 4
PGS_PER_OSD = 100
#: The fields of StoredNorm.
NORM = [1.0, 40000, 100000]
#: Turns until the window is full.
FIRST_TURNS = 14
#: Operations per second, and milliseconds of each counter of an OSD.
RATE = 200.0
MS = {'read': 0.4, 'write': 1.1, 'write_process': 1.05, 'write_prepare': 0.02, 'commit': 0.3,
      'store_read': 0.25}


class Reports:
    """The part of the cluster's interface that the watch uses, and the view of a turn."""
    crush_version = 1

    def __init__(self, osds: int, slow: int, busy: float, seed: int) -> None:
        self.now = 1e9
        self._random = np.random.default_rng(seed)
        self._slow = np.arange(osds) < slow
        self._sums = {kind: np.zeros((osds, 2), dtype=np.int64) for kind in MS}
        #: Of each OSD, its load and the age of its drive.
        self._load = self._random.lognormal(0.0, 0.2, osds)
        self._age = self._random.lognormal(0.0, 0.06, osds)
        self._places = {osd: OsdPlace(
            osd, 'h%d' % (osd // PER_HOST), 'default', 'ssd', 'm',
            'r%d' % (osd // PER_HOST // HOSTS_PER_RACK), 'bluestore, DB on nvme',
            ('h%d:sd%d' % (osd // PER_HOST, osd % PER_HOST),
             'h%d:nvme%d' % (osd // PER_HOST, osd % PER_HOST // PER_DB)))
            for osd in range(osds)}
        idle, backfills = PgCounts(total=PGS_PER_OSD), PgCounts(total=PGS_PER_OSD, backfilling=1)
        self._counts = {osd: backfills if osd < busy * osds else idle for osd in range(osds)}
        pgs = PGS_PER_OSD * osds // 3
        moving = sum(count.backfilling for count in self._counts.values())
        self.signals = Signals(PgCounts(total=pgs, active_clean=pgs - moving, remapped=moving,
                                        backfilling=moving))
        self.osdmap = OsdMap(
            1, frozenset(), {number: Pool(number, 'p%d' % number, False, 3, 2, 0, pgs // POOLS,
                                          pgs // POOLS, pgs // POOLS)
                             for number in range(1, POOLS + 1)},
            {osd: Osd(osd, True, 1.0, uuid='u') for osd in range(osds)}, {}, {}, {})

    def placement(self, pgid: str) -> Optional[Placement]:
        return None

    def stats_period(self) -> float:
        return PERIOD

    def option_changes(self) -> Tuple[OptionChange, ...]:
        return ()

    def read_by_pg(self, osds: AbstractSet[int]) -> None:
        """Nothing is slow by PG."""

    def draw(self) -> None:
        """One stats period of operations."""
        self.now += PERIOD
        osds = len(self._load)
        noise = self._random.lognormal(0.0, 0.08, osds) * np.where(self._slow, 4.0, 1.0)
        ops = self._random.poisson(RATE * PERIOD * self._load)
        for kind, ms in MS.items():
            spent = ops * ms * 1e6 * self._age * noise * self._random.lognormal(0.0, 0.03, osds)
            self._sums[kind] += np.column_stack([spent.astype(np.int64), ops])
        shares = self._random.dirichlet(np.ones(POOLS), osds)
        columns = [map(tuple, sums.tolist()) for sums in self._sums.values()]
        counters = {osd: OsdCounters(self.now, *sums)._replace(pgs=PGS_PER_OSD)
                    for osd, sums in enumerate(zip(*columns))}
        clients = tuple(
            ClientOps(pool + 1, osd, _ops(number * share, MS['read']),
                      _ops(number * share, MS['write']))
            for osd, (number, row) in enumerate(zip(ops.tolist(), shares.tolist()))
            for pool, share in enumerate(row))
        self._readings = Readings(PERIOD, counters, clients, self._places,
                                  osd_counts=self._counts)

    def readings(self, view: object, signals: Signals) -> Readings:
        return self._readings


def _ops(number: float, ms: float) -> PlainOps:
    return round(number * ms * 1e6), round(number)


def measure(reports: Reports, turns: int, profile: int) -> Tuple[List[float], str]:
    """Milliseconds of each turn, and the digest."""
    cluster: Any = reports
    store = Store(Kv())
    store.put(USUAL, {'osds': dict.fromkeys(map(str, reports.osdmap.osds), NORM)})
    watching = Watching(cluster, store, lambda event: None, lambda: None, lambda: True)
    watching.load(DEFAULTS, reports.now - FIRST_USUAL_SECONDS)
    digest, times, profiler = hashlib.sha256(), [], cProfile.Profile()
    for number in range(FIRST_TURNS + turns):
        reports.draw()
        began = time.thread_time()
        if profile and number >= FIRST_TURNS:
            profiler.enable()
        watching.turn(reports.now, cluster, reports.signals, DEFAULTS, 0, False)
        profiler.disable()
        times.append(1e3 * (time.thread_time() - began))
        assert not watching.watched.failure, watching.watched.failure
        digest.update(repr([(row.osd, row.score, row.slow, row.why, row.slow_time_ratio)
                            for row in watching.watched.osds]).encode())
        digest.update(repr(sorted(watching.watched.checks)).encode())
    if profile:
        pstats.Stats(profiler).sort_stats('tottime').print_stats(profile)
    return times[FIRST_TURNS:], digest.hexdigest()[:12]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--osds', type=int, nargs='+', default=[1000, 10000])
    parser.add_argument('--slow', type=int, nargs='+', default=[0, 2])
    parser.add_argument('--busy', type=float, nargs='+', default=[0.0, 0.1])
    parser.add_argument('--turns', type=int, default=20)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--profile', type=int, default=0, metavar='ROWS')
    args = parser.parse_args()
    print('%6s %6s %6s %10s %10s  %s' % ('OSDs', 'slow', 'busy', 'median ms', 'longest', 'digest'))
    for osds, slow, busy in itertools.product(args.osds, args.slow, args.busy):
        times, digest = measure(Reports(osds, slow, busy, args.seed), args.turns, args.profile)
        print('%6d %6d %6.2f %10.1f %10.1f  %s' % (
            osds, slow, busy, statistics.median(times), max(times), digest), flush=True)


if __name__ == '__main__':
    main()
