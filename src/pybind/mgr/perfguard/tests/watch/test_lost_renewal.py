# SPDX-License-Identifier: LGPL-2.1-or-later
"""When a lost lease renewal is beyond doubt, and what only looks like one."""
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, Set

import pytest

from perfguard.cluster.types import Osd, OsdMap, PgCounts, Pool, Signals
from perfguard.watch.laggy import (MOST_WEDGED, WEDGE_SECONDS, LaggyPg, LaggySignals, WedgeSignals,
                                   lost_renewal)

NOW = 1000.0
OLD = NOW - WEDGE_SECONDS - 1


@dataclass
class Laggy:
    """One PG of a healthy cluster of six OSDs is laggy."""
    pgs: Dict[str, LaggyPg] = field(default_factory=lambda: {
        '1.4': LaggyPg('1.4', 3, (3, 0, 5), OLD, OLD)})
    counts: PgCounts = PgCounts(total=64, active_clean=63, laggy=1)
    osd_counts: Dict[int, PgCounts] = field(default_factory=lambda: {
        osd: PgCounts(total=32, laggy=int(osd in (3, 0, 5))) for osd in range(6)})
    silent: Dict[int, float] = field(default_factory=dict)
    ping_ms: Dict[int, float] = field(default_factory=lambda: {osd: 0.5 for osd in range(6)})
    slow: Set[int] = field(default_factory=set)
    slow_daemons: Dict[str, int] = field(default_factory=lambda: {'osd.3': 7, 'mon.a': 1})
    osdmap: OsdMap = OsdMap(1, frozenset(), {1: Pool(1, 'p', False, 3, 2, 0, 64, 64, 64)},
                            {osd: Osd(osd, True, 1.0) for osd in range(6)}, {}, {}, {})

    def found(self) -> str:
        pg = lost_renewal(
            LaggySignals(self.counts.laggy, self.osd_counts, tuple(self.pgs.values()), self.silent,
                         self.ping_ms),
            WedgeSignals(NOW, Signals(self.counts, slow_daemons=self.slow_daemons), self.osdmap,
                         self.slow))
        return pg.pgid if pg is not None else ''

    def count(self, osd: int, **changes: int) -> None:
        self.osd_counts[osd] = replace(self.osd_counts[osd], **changes)

    def pool(self, **changes: Any) -> None:
        pool = replace(self.osdmap.pools[1], **changes)
        self.osdmap = replace(self.osdmap, pools={1: pool})

    def add(self, pgid: str, primary: int) -> None:
        self.pgs[pgid] = LaggyPg(pgid, primary, (primary, 0, 5), OLD, OLD)
        self.counts = replace(self.counts, laggy=self.counts.laggy + 1)


def test_a_pg_that_waits_for_a_minute_beside_healthy_ones_has_lost_a_renewal() -> None:
    assert Laggy().found() == '1.4'


def test_the_pg_that_has_waited_longest_is_first() -> None:
    seen = Laggy()
    seen.add('1.5', 3)
    assert seen.found() == '1.4'


def down(seen: Laggy) -> None:
    osds = {**seen.osdmap.osds, 5: Osd(5, False, 1.0)}
    seen.osdmap = replace(seen.osdmap, osds=osds)


LOOK_ALIKES: Dict[str, Callable[[Laggy], object]] = {
    'an OSD that hangs and does not report': lambda seen: seen.silent.update({5: 21.0}),
    'and PGs of several primaries are laggy': lambda seen: seen.add('1.6', 2),
    'an OSD that is down': down,
    'a slow replica': lambda seen: seen.slow.add(5),
    'a slow primary': lambda seen: seen.slow.add(3),
    'slow heartbeats': lambda seen: seen.ping_ms.update({0: 900.0}),
    'unknown heartbeats': lambda seen: seen.ping_ms.pop(0),
    'operations of other OSDs that wait': lambda seen: seen.slow_daemons.update({'osd.2': 1}),
    'backfill': lambda seen: seen.count(0, backfilling=1),
    'recovery': lambda seen: seen.count(5, recovering=1),
    'deep scrub': lambda seen: seen.count(3, deep_scrubbing=1),
    'removal of snapshots': lambda seen: seen.count(3, snaptrim=1),
    'most PGs of a replica': lambda seen: seen.count(5, laggy=20),
    'most PGs of the primary': lambda seen: seen.count(3, laggy=20),
    'PGs that are not known': lambda seen: setattr(seen, 'counts', replace(seen.counts, laggy=2)),
    'PGs that peer': lambda seen: setattr(seen, 'counts', replace(seen.counts, inactive=1)),
    'degraded PGs': lambda seen: setattr(seen, 'counts', replace(seen.counts, degraded=1)),
    'leases of the interval before': lambda seen: setattr(
        seen, 'counts', replace(seen.counts, wait=1)),
    'a new mgr': lambda seen: setattr(seen, 'counts', replace(seen.counts, unreported=1)),
    'operations that wait for a moment, again and again': lambda seen: seen.pgs.update(
        {'1.4': seen.pgs['1.4']._replace(oldest=NOW - 5.0)}),
    'an erasure-coded pool': lambda seen: seen.pool(erasure=True),
    'one copy': lambda seen: seen.pool(size=1),
    'a PG without a replica': lambda seen: seen.pool(size=4),
    'a remapped PG': lambda seen: setattr(
        seen, 'osdmap', replace(seen.osdmap, pg_temp={'1.4': (3, 0, 5)})),
    'a removed pool': lambda seen: setattr(seen, 'osdmap', replace(seen.osdmap, pools={})),
}


@pytest.mark.parametrize('what', LOOK_ALIKES)
def test_what_only_looks_like_a_lost_renewal(what: str) -> None:
    seen = Laggy()
    LOOK_ALIKES[what](seen)
    assert seen.found() == ''


def test_many_laggy_pgs_have_another_cause() -> None:
    seen = Laggy()
    for number in range(MOST_WEDGED):
        seen.add('1.1%d' % number, 3)
    assert seen.found() == ''
