# SPDX-License-Identifier: LGPL-2.1-or-later
"""The watch as a whole over a cluster of OSDs that report: what it concludes, and its words."""
import random
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import pytest

from perfguard import tables
from perfguard.cluster.types import (ClientLoad, ClientOps, LatencyCounts, ObjectLoad, Ops, Osd,
                                     OsdCounters, OsdMap, OsdPlace, PgCounts, PgWrites, Placement,
                                     PlainOps, Pool, Pressure, Readings, Signals, UnreadablePg)
from perfguard.errors import DETAIL_LINES, HealthChecks, warning
from perfguard.events import Event
from perfguard.options import DEFAULTS, Options
from perfguard.text import time_text
from perfguard.watch import report, state
from perfguard.watch.causes import ClientShare, LikelyCause
from perfguard.watch.laggy import LOAD, NO_MECHANISM, LaggyEpisode, LaggyPg, Suspect
from perfguard.watch.next_steps import with_steps
from perfguard.watch.osds import OsdFlows
from perfguard.watch.pools import PoolPerformance
from perfguard.watch.report import (CHRONIC, EVENT_KINDS, LAGGY, LATENCY_CHECK, SLOW, Announcer,
                                    health_checks)
from perfguard.watch.series import HistoryPoint
from perfguard.watch.state import Reported, StoredWatch, WatchContext, WatchState
from perfguard.watch.stop_conditions import NOTHING, Touched
from perfguard.watch.types import Chronic, Flow, OsdVerdict, SlowPart, SlowShared

from ..test_codec import again

MS = 1000000
NAN = float('nan')
OPTIONS = replace(DEFAULTS, baseline_seconds=60.0)
RATE = 200
NO_COUNTERS = OsdCounters(0.0, Ops(), Ops(), Ops(), Ops())
PGS = PgCounts(total=64, active_clean=64)


def shown_osds(watch: WatchState, context: WatchContext) -> List[Any]:
    return [report.osd_json(row) for row in report.osds(watch, context)]


def shown_pools(watch: WatchState, context: WatchContext, options: Options) -> List[Any]:
    return [report.pool_json(row) for row in report.pools(watch, context, options)]


def shown_signals(watch: WatchState, context: WatchContext) -> Any:
    return report.signals_json(report.signals(watch, context))


def shown_laggy(watch: WatchState, context: WatchContext) -> Any:
    return report.laggy_json(report.laggy(watch, context))


class Osds:
    """OSDs under an even load that report every five seconds; four to a host."""

    def __init__(self, osds: int = 48, erasure: bool = False) -> None:
        self.rnd = random.Random(4)
        self.now = 1e9
        self.watch = WatchState()
        self.announcer = Announcer()
        self.events: List[Event] = []
        self.told: List[Tuple[str, str]] = []
        self.pools = {1: Pool(1, 'rbd', erasure, 3, 2, 0, 64, 64, 64)}
        self.places = {osd: OsdPlace(osd, 'h%d' % (osd // 4), 'default', 'ssd')
                       for osd in range(osds)}
        self.counters = {osd: NO_COUNTERS for osd in range(osds)}
        #: OSD -> times as slow as the others.
        self.slow: Dict[int, float] = {}
        #: The same of reads alone.
        self.slow_reads: Dict[int, float] = {}
        #: They hang: they do not report.
        self.hang: Sequence[int] = ()
        self.down: Sequence[int] = ()
        self.signals = Signals(PGS)
        self.extra: Dict[str, Any] = {}
        self.idle = True
        self.probed = NOTHING
        self.uuids: Dict[int, str] = {}

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds / 5)):
            self.turn()

    def context(self) -> WatchContext:
        osdmap = OsdMap(9, frozenset(), self.pools, {
            osd: Osd(osd, osd not in self.down, 1.0, uuid=self.uuids.get(osd, ''))
            for osd in self.places}, {}, {}, {})
        return WatchContext(self.now, self.signals, osdmap, self._placement, 5.0, self.idle,
                            probed=self.probed)

    @staticmethod
    def _placement(pgid: str) -> Optional[Placement]:
        return Placement((1, 2, 3), (1, 2, 3)) if pgid < '2' else None

    def turn(self, change: Optional[Mapping[str, Any]] = None) -> None:
        """`change`: what the readings of this turn have in place of what the OSDs do."""
        self.now += 5.0
        clients = []
        for osd in self.counters:
            if osd not in self.hang:
                clients.append(self._report(osd))
        readings = Readings(5.0, dict(self.counters), tuple(clients), dict(self.places))
        context = self.context()
        self.watch.update(context, replace(readings, **{**self.extra, **(change or {})}), OPTIONS)
        events = self.announcer.events(self.watch, context)
        self.events += events
        self.told += [(event.kind, event.what) for event in events]

    def _report(self, osd: int) -> ClientOps:
        own = 0.5 * self.slow.get(osd, 1.0) * self.rnd.uniform(0.9, 1.1)
        number = int(RATE * self.rnd.uniform(0.8, 1.2))
        old = self.counters[osd]

        def grown(ops: PlainOps, ms: float) -> PlainOps:
            sum_ns, before = ops
            return sum_ns + int(number * ms * MS), before + number
        self.counters[osd] = OsdCounters(
            self.now, grown(old.read, own * self.slow_reads.get(osd, 1.0)),
            grown(old.write, 2 * own),
            grown(old.write_process, 1.8 * own), grown(old.write_prepare, 0.1 * own),
            grown(old.commit, own), grown(old.store_read, own / 2), 10)
        return ClientOps(1, osd, Ops(int(number * own * MS), number),
                         Ops(int(number * 2 * own * MS), number))

    @property
    def checks(self) -> HealthChecks:
        return health_checks(self.watch, self.context())

    def detail(self, code: str) -> str:
        return '\n'.join(self.checks[code]['detail'])


def restarted(before: Osds) -> Osds:
    """Another mgr takes over, with what the last one wrote."""
    after = Osds(len(before.places))
    after.now, after.counters, after.slow = before.now, before.counters, before.slow
    after.signals = before.signals
    stored = again(StoredWatch, before.watch.stored(before.announcer.reported()))
    after.watch.load(stored, after.now)
    after.announcer.load(stored.told)
    return after


#: Another client sends less, and both to every OSD but one.
CLIENT, ADDRESS, OBJECT = 'client.4711', '10.0.0.7:0/1', 'rbd_header.tenant'
LOADS: Dict[str, Any] = {
    'client_loads': tuple(ClientLoad(client, ADDRESS, 1, 7, ops)
                          for client, ops in ((CLIENT, 900), ('client.1', 100))),
    'object_loads': (ObjectLoad(OBJECT, 1, 7, 900),)}


def test_health_checks_name_no_client_and_no_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may read the health of the cluster need not have access to the mgr; its commands do
    name them."""
    cluster = Osds()
    cluster.run(600)
    cluster.extra = LOADS
    monkeypatch.setattr(cluster.watch.slow, 'load_ratio', lambda osd: 3.0)
    cluster.slow = {**dict.fromkeys(cluster.places, 8.0), 7: 60.0}
    cluster.run(300)
    told = '%s %s' % (cluster.checks, cluster.told)
    assert 'one client sends 90 % of the operations' in cluster.detail(LATENCY_CHECK)
    assert '90 % are on one object of pool rbd' in cluster.detail(SLOW)
    assert not [name for name in (CLIENT, ADDRESS, OBJECT) if name in told]
    context = cluster.context()
    osd = shown_osds(cluster.watch, context)[7]
    assert [(cause['code'], name in cause['text']) for cause, name in zip(
        osd['causes'], (OBJECT, CLIENT))] == [('object', True), ('client', True)]
    pool, = shown_pools(cluster.watch, context, OPTIONS)
    assert pool['clients'] == [{'client': CLIENT, 'address': ADDRESS, 'share': 0.9}]


def test_loads_that_are_not_read_all_the_time_are_kept_as_long_as_something_is_slow(
        monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Osds()
    cluster.run(600)
    cluster.extra = LOADS
    monkeypatch.setattr(cluster.watch.slow, 'load_ratio', lambda osd: 3.0)
    cluster.slow = {7: 60.0}
    cluster.run(300)
    cluster.extra = {}
    cluster.run(900)
    assert '90 % are on one object of pool rbd' in cluster.detail(SLOW)
    cluster.slow = {}
    cluster.run(300)
    assert [cause.code for cause in cluster.watch.load_of(7, cluster.context())] == ['load']


# ---- nothing is wrong

def test_a_healthy_cluster_raises_nothing() -> None:
    cluster = Osds()
    for _ in range(120):
        cluster.turn()
        assert cluster.checks == {}
    assert cluster.told == []


def test_an_empty_cluster() -> None:
    cluster = Osds(0)
    cluster.pools = {}
    cluster.signals = Signals(PgCounts())
    cluster.run(60)
    context = cluster.context()
    assert cluster.checks == {} and cluster.told == []
    assert shown_osds(cluster.watch, context) == []
    assert shown_pools(cluster.watch, context, OPTIONS) == []
    assert shown_signals(cluster.watch, context)['read_ms'] is None
    laggy = shown_laggy(cluster.watch, context)
    assert (laggy['laggy_pgs'], laggy['pgs'], laggy['suspects']) == (0, [], [])


# ---- laggy

def laggy_signals(laggy: int = 4, wait: int = 0, **more: int) -> Signals:
    return Signals(PgCounts(total=64, active_clean=64, laggy=laggy, wait=wait, **more))


def test_laggy_pgs_are_reported_at_once_and_cleared_later() -> None:
    cluster = Osds()
    cluster.run(20)
    cluster.signals = laggy_signals()
    cluster.extra = {
        'osd_counts': {osd: PgCounts(total=4, laggy=4 if osd == 2 else 1) for osd in (1, 2, 3)},
        'unreadable': {1: [UnreadablePg('1.a', 7.0, 3), UnreadablePg('1.b', 2.0, 1),
                           UnreadablePg('2.0', 2.0, 1)]}, 'ping_ms': {2: 500.0, 1: 0.4, 3: 0.4}}
    cluster.turn()
    check = cluster.checks[LAGGY]
    assert check['severity'] == 'warning'
    assert check['summary'] == '4 PGs are laggy; main suspect: osd.2'
    assert cluster.told == [('laggy', '4 PGs are laggy; main suspect: osd.2')]
    detail = cluster.detail(LAGGY)
    assert detail.startswith('osd.2: in the acting set of 4 of 4 laggy PGs')
    assert ('PG 1.a, acting [1, 2, 3]: clients '
            'have been waiting for 7 s') in detail and '2.0' not in detail
    shown = shown_laggy(cluster.watch, cluster.context())
    assert shown['laggy_pgs'] == 4 and shown['since'] == cluster.now - 5
    assert shown['pgs'][0] == {'pgid': '1.a', 'acting': [1, 2, 3], 'since': cluster.now - 7,
                               'primary': 1}
    assert shown['suspects'][0]['osd'] == 2 and set(shown['suspects'][0]) == {
        'osd', 'score', 'why', 'advice', 'mechanism'}
    cluster.signals, cluster.extra = Signals(PGS), {}
    cluster.run(10)
    assert LAGGY in cluster.checks and 'a moment ago' in cluster.checks[LAGGY]['summary']
    cluster.run(10)
    assert cluster.checks == {}
    assert cluster.told[1:] == [('laggy', 'no PG is laggy anymore')]
    shown = shown_laggy(cluster.watch, cluster.context())
    assert shown['pgs'] == [] and (shown['last']['osd'], shown['last']['mechanism']) == (
        2, 'unknown')
    assert shown['last']['until'] == cluster.now - 5


def test_pgs_that_wait_after_peering_are_no_trouble_unless_it_lasts() -> None:
    cluster = Osds()
    for _ in range(20):
        cluster.signals = laggy_signals(0, 5)
        cluster.run(20)
        cluster.signals = Signals(PGS)
        cluster.turn()
    assert cluster.told == []
    cluster.signals = laggy_signals(0, 5)
    cluster.run(35)
    assert '5 waiting for read leases' in cluster.checks[LAGGY]['summary']
    cluster.signals = Signals(PGS)
    cluster.turn()
    assert cluster.checks == {}


def test_an_osd_that_hangs_is_found_by_its_missing_reports() -> None:
    cluster = Osds()
    cluster.run(30)
    cluster.hang = (7,)
    cluster.signals = laggy_signals()
    cluster.extra = {'osd_counts': {osd: PgCounts(total=4, laggy=4) for osd in (1, 5, 7)},
                     'silent': {7: 25.0}}
    cluster.run(5)
    assert cluster.checks[LAGGY]['summary'].endswith('main suspect: osd.7')
    assert 'osd.7: ' in cluster.detail(LAGGY) and 'no report for 25 s' in \
        cluster.detail(LAGGY)
    rows = {row['osd']: row for row in shown_osds(cluster.watch, cluster.context())}
    assert rows[7]['silent_seconds'] == 25.0 and rows[5]['silent_seconds'] is None
    assert rows[7]['pgs'] == {'laggy': 4}


def test_osds_are_not_blamed_for_an_mgr_that_is_cut_off() -> None:
    cluster = Osds()
    cluster.run(30)
    cluster.signals = laggy_signals()
    cluster.extra = {'osd_counts': {osd: PgCounts(total=4, laggy=4) for osd in (1, 5, 7)},
                     'unreported': 'all are late'}
    cluster.run(5)
    assert cluster.checks[LAGGY]['detail'][0] == 'all are late'
    assert 'ceph osd down' not in cluster.detail(LAGGY)


def test_what_made_pgs_laggy_can_be_read_later() -> None:
    """Also where the mgr fails before it is over."""
    cluster = Osds()
    cluster.run(30)
    cluster.signals = laggy_signals()
    cluster.extra = {'osd_counts': {osd: PgCounts(total=4, laggy=4) for osd in (1, 5, 7)},
                     'silent': {7: 25.0}}
    cluster.run(10)
    assert 'likely mechanism: it hangs' in cluster.detail(LAGGY)
    evidence = cluster.now
    # Its last evidence stays.
    del cluster.extra['silent']
    cluster.run(10)
    after = restarted(cluster)
    after.extra, after.signals = {}, Signals(PGS)
    after.run(30)
    end, = after.events
    assert end.what == 'no PG is laggy anymore'
    for text in (end.why, tables.laggy(shown_laggy(after.watch, after.context()))):
        assert 'main suspect osd.7 (mechanism: it hangs' in text and 'no report for 25 s' in text
    assert time_text(evidence) in end.why


def test_readings_of_busy_threads_are_evidence_for_a_minute() -> None:
    cluster = Osds()
    cluster.signals = laggy_signals()
    cluster.extra = {'osd_counts': {osd: PgCounts(total=4, laggy=4) for osd in (1, 5, 7)},
                     'pressures': {5: Pressure(0.9)}}
    cluster.turn()
    first = cluster.watch.laggy.suspects[0]
    assert (first.osd, first.mechanism) == (5, LOAD)
    del cluster.extra['pressures']
    cluster.run(60)
    assert cluster.watch.laggy.suspects[0].mechanism == LOAD
    cluster.turn()
    assert {suspect.mechanism for suspect in cluster.watch.laggy.suspects} == {NO_MECHANISM}


def test_pgs_without_a_report_clear_nothing() -> None:
    cluster = Osds()
    cluster.signals = laggy_signals()
    cluster.run(10)
    after = restarted(cluster)
    assert LAGGY in after.checks
    after.signals = Signals(PgCounts(total=64, unreported=60, inactive=60, in_transition=60))
    after.run(60)
    assert LAGGY in after.checks
    after.signals = laggy_signals()
    after.run(10)
    assert after.told == []
    after.signals = Signals(PGS)
    after.run(20)
    assert after.checks == {} and after.told == [('laggy', 'no PG is laggy anymore')]


# ---- slow OSDs

def test_a_host_whose_osds_are_slow_again_and_again_is_named() -> None:
    cluster = Osds(16)
    found = Chronic(0, 1e9, 1e9, 1e9, 0.09, 14, 6.1, 'slow 9.0 % of the time')
    cluster.run(60)
    standing = {osd: found._replace(osd=osd) for osd in (4, 5, 6, 7, 9)}
    cluster.watch.slow.chronic._standing = standing
    check = cluster.checks[CHRONIC]
    assert check['summary'] == 'host h1 and osd.9 are chronically slow'
    assert check['detail'][0] == 'host h1: 4 OSDs on it are chronically slow: check its CPU, ' \
        'memory, disk controller and network before any drive'
    assert check['detail'][5] == 'osd.9 on h2: slow 9.0 % of the time'
    assert 'for a new drive' in with_steps(cluster.checks)[CHRONIC]['detail'][-1]
    assert report.chronic_parts(cluster.watch) == {check['detail'][0]: {4, 5, 6, 7}}
    # Without osd.9, no new drive helps.
    del standing[9]
    detail = with_steps(cluster.checks)[CHRONIC]['detail']
    assert detail[0].endswith('before any drive; "ceph perfguard why osd.4" lists the evidence')
    assert len(detail) == 5 and not any('new drive' in line for line in detail)


def test_a_slow_osd_is_the_only_one_named() -> None:
    cluster = Osds()
    cluster.run(300)
    cluster.slow = {13: 8.0}
    cluster.run(600)
    assert list(cluster.checks) == [SLOW]
    assert cluster.checks[SLOW]['summary'] == 'osd.13 is slower than its peers'
    (line,) = cluster.checks[SLOW]['detail']
    assert line.startswith('osd.13 on h3: ') and ' take ' in line and ' peers, for ' in line
    assert cluster.told == [('slow-osd', 'osd.13 is slow')]
    rows = {row['osd']: row for row in shown_osds(cluster.watch, cluster.context())}
    assert [osd for osd, row in rows.items() if row['slow']] == [13]
    assert rows[13]['score'] > 3.0 > 1.5 > rows[12]['score'] and rows[13]['why'] in line
    assert rows[13]['since'] > 0.0 and rows[12]['since'] is None
    assert set(rows[13]) >= {'osd', 'host', 'device_class', 'read_ms', 'write_ms', 'store_ms',
                             'score', 'slow'}
    cluster.slow = {}
    cluster.run(900)
    assert cluster.checks == {}
    assert cluster.told[1:] == [('slow-osd', 'osd.13 is no longer slow')]


def test_only_osds_that_share_pgs_with_a_slow_osd_are_excused_by_it() -> None:
    """All PGs are on the OSDs 1, 2 and 3."""
    cluster = Osds()
    cluster.run(300)
    cluster.slow, cluster.slow_reads = {2: 8.0}, {1: 6.0, 7: 6.0}
    cluster.run(300)
    rows = {row['osd']: row for row in shown_osds(cluster.watch, cluster.context())}
    assert [osd for osd, row in rows.items() if row['slow']] == [2, 7]
    assert rows[1]['score'] > 4.0 and rows[1]['waits_for'] == 2
    assert rows[7]['waits_for'] is None


def test_a_slow_host_is_named_once() -> None:
    cluster = Osds()
    cluster.run(300)
    cluster.slow = {osd: 8.0 for osd in (8, 9, 10, 11)}
    cluster.run(600)
    assert cluster.checks[SLOW]['summary'] == 'host h2 is slower than its peers'
    lines = cluster.checks[SLOW]['detail']
    assert len(lines) == 1
    assert re.match('host h2: 4 of its 4 ssd OSDs are slow, osd.*; likely cause: 4 of 4 OSDs on '
                    'host h2 are slow: check its CPU', lines[0])
    assert [what for kind, what in cluster.told if kind == 'slow-osd'][-1] == 'host h2 is slow'


def test_a_part_of_a_class_is_reported_as_one() -> None:
    cluster = Osds(12)
    cluster.run(300)
    cluster.slow = {2: 30.0}
    cluster.run(240)
    assert cluster.checks[SLOW]['summary'] == 'osd.2 is slower than its peers'
    cluster.slow = dict.fromkeys((2, 5, 6, 11), 30.0)
    for _ in range(60):
        cluster.turn()
        assert SLOW in cluster.checks
    assert cluster.checks[SLOW]['summary'] == '4 of 12 ssd OSDs are slower than the others'
    assert re.match(r'4 of 12 ssd OSDs are \d+ times as slow as the others: osd.2, osd.5, osd.6, '
                    'osd.11; osd', cluster.detail(SLOW))
    part = 'part of the ssd OSDs of root default'
    told = [each for each in cluster.told if each[0] == 'slow-osd']
    assert told == [('slow-osd', 'osd.2 is slow'), ('slow-osd', part + ' is slow')]
    after = restarted(cluster)
    after.run(120)
    assert after.checks[SLOW]['summary'] == cluster.checks[SLOW]['summary']
    assert not [each for each in after.told if each[0] == 'slow-osd']
    after.slow = {}
    after.run(300)
    assert SLOW not in after.checks
    assert sorted(each for each in after.told if each[0] == 'slow-osd') == [
        ('slow-osd', 'osd.2 is no longer slow'), ('slow-osd', part + ' is no longer slow')]


def test_an_upgrade_is_named_beside_a_latency_above_the_baseline() -> None:
    """It restarts the mgrs first, which forget all but the baselines."""
    cluster = Osds()
    cluster.extra = {'software': {osd: ('18.2.7', '6.1') for osd in cluster.places}}
    cluster.run(600)
    after = restarted(cluster)
    after.extra = {'software': {osd: ('20.2.4', '6.1') for osd in cluster.places}}
    for pool_id, pool in cluster.watch.pools._pools.items():
        after.watch.pools._pools[pool_id] = pool
    after.slow = dict.fromkeys(cluster.places, 8.0)
    after.run(300)
    assert 'OSDs were upgraded from 18.2.7 to 20.2.4' in after.detail(LATENCY_CHECK)
    event = next(event for event in after.events if event.kind == 'latency')
    assert 'OSDs were upgraded from 18.2.7 to 20.2.4' in event.why


def test_a_latency_that_recurs_ends_as_accepted() -> None:
    cluster = Osds()
    cluster.run(600)
    cluster.slow = dict.fromkeys(cluster.places, 8.0)
    cluster.run(300)
    assert LATENCY_CHECK in cluster.checks
    for level in cluster.watch.pools._pools[1].levels.values():
        level.daily = dict.fromkeys(range(24), 9.0)
    cluster.run(90)
    assert LATENCY_CHECK not in cluster.checks
    assert cluster.told[-1] == ('latency',
                                'the latency of writes of pool rbd is accepted at this hour')


def test_a_host_that_remains_slow_is_a_standing_finding_and_has_not_recovered() -> None:
    cluster = Osds()
    cluster.run(300)
    cluster.slow.update(dict.fromkeys((8, 9, 10, 11), 8.0))
    cluster.run(2000)
    assert set(cluster.checks) == {CHRONIC}
    assert cluster.checks[CHRONIC]['summary'] == 'host h2 is chronically slow'
    assert not [what for _, what in cluster.told if 'no longer' in what]


def test_whatever_begins_ends() -> None:
    """OSDs of one host become slow one by one, until it is the host, and recover one by one."""
    cluster = Osds()
    cluster.run(300)
    for osd in (8, 9, 10, 11):
        cluster.slow[osd] = 8.0
        cluster.run(150)
    cluster.run(300)
    assert cluster.checks[SLOW]['summary'] == 'host h2 is slower than its peers'
    for osd in (8, 9, 10, 11):
        del cluster.slow[osd]
        cluster.run(250)
    cluster.run(150)
    assert cluster.checks == {}
    whats = [what for _, what in cluster.told]
    begun = [what[:-len(' is slow')] for what in whats if what.endswith(' is slow')]
    ended = [what[:-len(' is no longer slow')] for what in whats
             if what.endswith(' is no longer slow')]
    assert 'host h2' in begun and sorted(begun) == sorted(ended)
    assert len(begun) == len(set(begun)) and len(whats) == 2 * len(begun)


def test_a_slow_host_is_not_announced_again_by_the_next_mgr() -> None:
    cluster = Osds()
    cluster.run(300)
    cluster.slow = {osd: 8.0 for osd in (8, 9, 10, 11)}
    cluster.run(600)
    after = restarted(cluster)
    after.run(300)
    assert after.told == []
    after.slow = {}
    after.run(900)
    assert after.checks == {} and after.told == [('slow-osd', 'host h2 is no longer slow')]


def test_a_slow_osd_is_not_announced_again_by_the_next_mgr() -> None:
    cluster = Osds()
    cluster.run(300)
    cluster.slow = {13: 8.0}
    cluster.run(600)
    after = restarted(cluster)
    assert after.checks[SLOW]['summary'] == 'osd.13 is slower than its peers'
    after.run(300)
    assert SLOW in after.checks and after.told == []
    after.slow = {}
    after.run(900)
    assert after.checks == {} and after.told == [('slow-osd', 'osd.13 is no longer slow')]


def test_reads_of_erasure_coded_pools_make_no_suspect() -> None:
    """They wait for other OSDs; here the reads are all that is slow."""
    for erasure in (False, True):
        cluster = Osds(erasure=erasure)
        cluster.run(300)
        for _ in range(120):
            ns_before, _ = cluster.counters[13].read
            cluster.turn()
            sum_ns, number = cluster.counters[13].read
            late = ns_before + 20 * (sum_ns - ns_before), number
            cluster.counters[13] = cluster.counters[13]._replace(read=late)
        assert (SLOW in cluster.checks) != erasure


# ---- pools

def test_a_pool_that_is_slower_than_its_baseline() -> None:
    cluster = Osds()
    cluster.run(180)
    (row,) = shown_pools(cluster.watch, cluster.context(), OPTIONS)
    assert row['read_baseline_ms'] == pytest.approx(0.5, rel=0.1)
    assert row['read_target_ms'] == pytest.approx(row['read_baseline_ms'] + 0.5, abs=0.002)
    assert row['baseline_ms'] == pytest.approx(0.75, rel=0.1)
    assert row['target_ms'] == pytest.approx(row['baseline_ms'] + 0.5, abs=0.002)
    assert row['slow'] == [] and row['pgs'] == {}
    begin = cluster.now
    cluster.idle = False
    cluster.slow = {osd: 10.0 for osd in cluster.places}
    cluster.signals = Signals(PGS, pool_counts={1: PgCounts(total=64, degraded=3, backfilling=2)})
    cluster.run(180)
    assert list(cluster.checks) == [LATENCY_CHECK]
    assert cluster.checks[LATENCY_CHECK]['summary'] == '1 pool is slower than its baseline'
    detail = cluster.detail(LATENCY_CHECK)
    assert detail.startswith('pool rbd: reads take 5.') and '(baseline 0.5 ms) for 1' in detail
    assert 'writes take 10.' in detail or 'writes take 9.' in detail
    assert sorted(cluster.told) == [('latency', 'reads of pool rbd are slower than their baseline'),
                                    ('latency', 'writes of pool rbd are '
                                     'slower than their baseline')]
    (row,) = shown_pools(cluster.watch, cluster.context(), OPTIONS)
    assert row['slow'] == ['reads', 'writes'] and row['pgs'] == {'degraded': 3, 'backfilling': 2}
    assert begin < cluster.watch.pools.slow()[0][2] <= begin + 60
    cluster.slow = {}
    cluster.run(240)
    assert cluster.checks == {} and len(cluster.told) == 4
    assert cluster.told[-1] == ('latency', 'writes of pool rbd are back at their baseline')


@pytest.mark.parametrize('name', ['rbd', 'images'])
def test_a_slow_pool_that_is_removed_or_renamed_is_not_back_at_its_baseline(name: str) -> None:
    cluster = Osds()
    cluster.run(180)
    cluster.idle = False
    cluster.slow = {osd: 10.0 for osd in cluster.places}
    cluster.run(180)
    assert len(cluster.told) == 2
    cluster.pools = {} if name == 'rbd' else {1: replace(cluster.pools[1], name=name)}
    cluster.run(5)
    assert ('latency', 'reads of pool rbd are no longer watched') in cluster.told
    assert not [what for _, what in cluster.told if 'back at' in what]


def test_a_slow_osd_that_is_removed_or_down_has_not_recovered() -> None:
    cluster = Osds()
    cluster.run(180)
    cluster.slow = {9: 12.0, 13: 12.0}
    cluster.run(240)
    assert sorted(cluster.told) == [('slow-osd', 'osd.13 is slow'), ('slow-osd', 'osd.9 is slow')]
    cluster.hang = cluster.down = (13,)
    del cluster.counters[9], cluster.places[9]
    cluster.run(620)
    assert cluster.told[2:] == [('slow-osd', 'osd.9 is no longer watched'),
                                ('slow-osd', 'osd.13 is no longer watched')]


@pytest.mark.parametrize('subject', ['osd.x', 'osd.', 'osd.-1', 'x', ''])
def test_a_problem_of_nothing_that_an_earlier_mgr_has_stored_ends(subject: str) -> None:
    cluster = Osds()
    cluster.announcer.load([Reported(check, subject, 1.0)
                            for check in (SLOW, CHRONIC, LATENCY_CHECK)])
    cluster.run(5)
    assert len(cluster.told) == 3
    cluster.run(5)
    assert len(cluster.told) == 3


def test_a_slow_pool_without_operations_has_no_latency() -> None:
    """Its clients have stopped, or no operation completes: 0 ms would be wrong."""
    cluster = Osds()
    cluster.run(180)
    cluster.idle = False
    cluster.slow = {osd: 10.0 for osd in cluster.places}
    cluster.run(180)
    cluster.hang = list(cluster.places)
    cluster.run(65)
    assert cluster.detail(LATENCY_CHECK).startswith(
        'pool rbd: reads were slow (baseline 0.5 ms; none completed in the last minute) for 2')
    assert '0.0 ms' not in cluster.detail(LATENCY_CHECK)


@pytest.mark.parametrize('noisy', [
    Signals(replace(PGS, active_clean=60, backfilling=4)), Signals(PGS, slow_ops=1),
    Signals(replace(PGS, laggy=1)), Signals(PGS, recovery_bytes_per_second=1e6)])
def test_no_baseline_where_something_moves_or_is_wrong(noisy: Signals) -> None:
    cluster = Osds(4)
    cluster.signals = noisy
    cluster.run(180)
    assert cluster.watch.pools.latency(1).read_baseline_ms is None
    cluster.signals, cluster.idle = Signals(PGS), False
    cluster.run(180)
    assert cluster.watch.pools.latency(1).read_baseline_ms is None
    cluster.idle = True
    cluster.run(180)
    assert cluster.watch.pools.latency(1).read_baseline_ms is not None


@pytest.mark.parametrize('down, learned', [((), True), ((3,), False)])
def test_pgs_for_which_crush_finds_too_few_osds_prevent_no_baseline(
        down: Sequence[int], learned: bool) -> None:
    """One pool with a rule that cannot be met must not stop all others from being judged."""
    cluster = Osds(4)
    cluster.signals, cluster.down = Signals(replace(PGS, active_clean=60, degraded=4)), down
    cluster.run(180)
    assert (cluster.watch.pools.latency(1).read_baseline_ms is not None) == learned


# ---- what is shown

def test_signals_of_the_whole_cluster() -> None:
    cluster = Osds(4)
    bounds = (MS, 2 * MS)
    cluster.turn({'latencies': (LatencyCounts(1, 30.0, bounds, (0, 100, 0), (100, 0, 0)),),
                  'untrimmed_epochs': 512})
    cluster.run(55)
    shown = shown_signals(cluster.watch, cluster.context())
    assert shown['read_ms'] == pytest.approx(0.5, rel=0.1)
    assert shown['write_rate'] == pytest.approx(4 * RATE / 5, rel=0.1)
    assert (shown['read_p99_ms'], shown['write_p99_ms']) == (1.99, 0.99)
    assert shown['untrimmed_osdmaps'] == 512
    rows = shown_osds(cluster.watch, cluster.context())
    assert rows[1]['read_p99_ms'] == 1.99 and rows[2]['read_p99_ms'] is None
    cluster.run(120)
    assert shown_signals(cluster.watch, cluster.context())['read_p99_ms'] is None


def test_a_reading_that_was_not_taken_leaves_the_last_one() -> None:
    cluster = Osds(4)
    cluster.turn({'ping_ms': {1: 2.5}, 'osd_counts': {1: PgCounts(total=3, degraded=1)},
                  'untrimmed_epochs': 7})
    cluster.run(30)
    row = shown_osds(cluster.watch, cluster.context())[1]
    assert row['ping_ms'] == 2.5 and row['pgs'] == {'degraded': 1}
    assert cluster.watch.untrimmed_epochs == 7


def test_history() -> None:
    cluster = Osds(4)
    cluster.run(1200)
    pools = {'rbd': 1}
    for what in ('cluster', 'rbd', 'osd.3'):
        points = (cluster.watch.history_of(what, pools, False) or [])[-3:]
        assert [point.end for point in points] == [
            cluster.now - 10, cluster.now - 5, cluster.now]
        shown = report.history_json(what, points)
        assert shown['of'] == what and shown['points'][0]['read_ms'] == pytest.approx(0.5, rel=0.2)
        week = cluster.watch.history_of(what, pools, True)
        assert week is not None and week[0].seconds == pytest.approx(600.0)
    hour = cluster.watch.history_of('cluster', pools, False)
    assert hour is not None and len(hour) == 240
    whole, summed = (report.history_json('cluster', hour, rows)['points'] for rows in (0, 23))
    assert len(whole) == 240 and len(summed) == 22 and 'read_max_ms' not in whole[0]
    assert [row['seconds'] for row in summed] == [45.0, *[55.0] * 21]
    assert [row['time'] for row in summed] == [row['time'] for row in whole[8::11]]
    assert summed[-1]['read_max_ms'] == max(row['read_ms'] for row in whole[-11:])
    assert sum(row['read_rate'] * row['seconds'] for row in summed) == pytest.approx(
        sum(row['read_rate'] * row['seconds'] for row in whole), rel=0.01)
    assert report.history_json('cluster', hour[:3], 23)['points'] == whole[:3]
    for nothing in ('osd.9', 'osd.', 'osd.x', 'rgw', '', 'osd.-1'):
        assert cluster.watch.history_of(nothing, pools, False) is None


def test_health_checks_keep_ceph_s_limit() -> None:
    check = warning('many', ['line %d' % number for number in range(500)])
    assert check['count'] == 500 and len(check['detail']) == DETAIL_LINES
    assert set(EVENT_KINDS) == {LAGGY, SLOW, CHRONIC, LATENCY_CHECK}


# ---- bad input

def garbage(rnd: random.Random, osds: int) -> Dict[str, Any]:
    """Readings of OSDs that have lost their minds."""
    def number() -> Any:
        return rnd.choice((0, 1, -1, 77, 2 ** 64 - 1, -2 ** 63, 10 ** 25))

    def ops() -> Ops:
        return Ops(number(), number())
    times = (0.0, 1e9, -1.0, 1e300, NAN, float('inf'))
    anybody = [rnd.randrange(-2, 2 * osds) for _ in range(10)]
    return {
        'seconds': rnd.choice((5.0, 0.0, -5.0, 1e9, NAN)),
        'counters': {osd: OsdCounters(rnd.choice(times), ops(), ops(), ops(), ops(), ops(), ops(),
                                      number()) for osd in anybody},
        'clients': tuple(ClientOps(rnd.choice((1, 99, -1)), osd, ops(), ops()) for osd in anybody),
        'osd_counts': rnd.choice((None, {}, {osd: PgCounts(laggy=number(), wait=number())
                                             for osd in anybody})),
        'ping_ms': rnd.choice((None, {}, {osd: rnd.choice(times) for osd in anybody})),
        'latencies': tuple(LatencyCounts(osd, 30.0, (MS, MS // 2, 7), (1, 2, 3, number()),
                                         (number(), 1, 1, 1)) for osd in anybody[:2]),
        'unreadable': {osd: [UnreadablePg('1.%x' % osd, 3.0, number())]
                       for osd in anybody if osd >= 0},
        'untrimmed_epochs': number()}


@pytest.mark.parametrize('seed', range(6))
def test_nonsense_raises_nothing(seed: int) -> None:
    rnd = random.Random(seed)
    cluster = Osds(8)
    for number in range(300):
        if number % 3 == 0:
            cluster.turn()
            continue
        cluster.turn(garbage(rnd, 8))
        if number % 50 == 1:
            cluster.now += rnd.choice((1e6, -1e6))
        context = cluster.context()
        assert cluster.checks == {} and cluster.told == []
        shown_osds(cluster.watch, context), shown_pools(cluster.watch, context, OPTIONS)
        shown_laggy(cluster.watch, context), shown_signals(cluster.watch, context)


def test_osds_that_vanish_and_counters_that_are_missing() -> None:
    cluster = Osds(12)
    cluster.run(120)
    cluster.turn({'counters': {}, 'clients': (), 'places': {}})
    cluster.run(60)
    for osd in range(6):
        del cluster.counters[osd], cluster.places[osd]
    cluster.run(300)
    assert cluster.checks == {} and cluster.told == []
    rows = shown_osds(cluster.watch, cluster.context())
    assert [row['osd'] for row in rows] == list(range(6, 12))
    assert cluster.watch.history_of('osd.3', {}, False) is None
    assert cluster.watch.percentiles.levels_of_osd(3).read_p99_ms is None


def test_many_slow_pools_read_the_load_by_client_once() -> None:
    class Rows(List[ClientLoad]):
        read = 0

        def __iter__(self) -> Iterator[ClientLoad]:
            Rows.read += 1
            return super().__iter__()

    watch = WatchState()
    for _ in range(2):
        watch._loads.append({7: Rows(ClientLoad(client, ADDRESS, pool, 7, ops) for pool in range(9)
                                     for client, ops in (('client.1', 900), ('client.2', 100)))})
    found = [watch.heavy_clients(pool) for pool in range(10)]
    assert [[each.client for each in clients] for clients in found] == [['client.1']] * 9 + [[]]
    assert Rows.read == 2


# ---- probes

@pytest.mark.parametrize('probed', [False, True])
def test_a_replica_that_was_probed_within_half_a_minute_is_not_named(probed: bool) -> None:
    """Writes by PG are read that often, and osd.5 delays those that it replicates."""
    rows = tuple(PgWrites('1.%x' % (8 * osd + number), (osd, (osd + step) % 48), Ops(
        (40 if (osd + step) % 48 == 5 else 1) * 100 * MS, 100))
        for osd in range(48) for number, step in enumerate((1, 7, 13, 19, 29)))
    cluster = Osds()
    cluster.run(60)
    for turn in range(60):
        cluster.probed = Touched({5}, {1}) if probed and turn % 6 in (1, 2, 3) else NOTHING
        cluster.turn({} if turn % 6 else {'pg_seconds': 30.0, 'pg_writes': rows})
    assert (SLOW in cluster.checks) != probed
    if not probed:
        assert cluster.detail(SLOW).startswith('osd.5 on h1: replicated writes take ')


# ---- the load of pools

def test_pools_on_the_same_osds_share_what_these_serve() -> None:
    """Of pools 1 and 2 on the same OSDs, one is three times as busy; pool 3 has OSDs of its own."""
    cluster = Osds(8)
    cluster.pools = {number: Pool(number, 'p%d' % number, False, 3, 2, 0, 64, 64, 64)
                     for number in (1, 2, 3, 4)}
    cluster.places = {osd: place._replace(device_class='hdd' if osd >= 6 else 'ssd')
                      for osd, place in cluster.places.items()}

    def ops(pool: int, osd: int, number: int, size: int) -> ClientOps:
        return ClientOps(pool, osd, Ops(0, 0), Ops(number * MS, number), 0, size * number)

    cluster.extra = {'clients': (ops(1, 0, 300, 4096), ops(1, 1, 300, 4096), ops(2, 2, 200, 16384),
                                 ops(3, 6, 50, 4096))}
    cluster.run(60)
    uses = {use.id: use for use in report.pool_uses(cluster.watch, cluster.context(), OPTIONS)}
    assert [round(uses[pool].now.writes) for pool in (1, 2, 3, 4)] == [120, 40, 10, 0]
    assert [round(uses[pool].others) for pool in (1, 2, 3, 4)] == [40, 120, 0, 0]
    assert [uses[pool].p99_ms for pool in (1, 2, 3)] == [5.0, 5.0, 50.0]
    assert uses[2].now.write_bytes == pytest.approx(40 * 16384)
    strict = replace(OPTIONS, capacity_p99_ms=2.0)
    assert {use.p99_ms for use in report.pool_uses(
        cluster.watch, cluster.context(), strict)} == {2.0}
    # A pool that is gone is no neighbour.
    del cluster.pools[2]
    cluster.turn()
    assert report.pool_uses(cluster.watch, cluster.context(), OPTIONS)[0].others == 0.0


def test_a_pool_that_another_rule_has_moved_is_not_on_its_old_osds(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, 'SERVED_SECONDS', 60.0)
    osds = Osds(8)
    osds.places = {osd: place._replace(device_class='hdd') for osd, place in osds.places.items()}
    osds.run(10)
    assert osds.watch.is_on_disks(1)
    osds.places = {osd: place._replace(device_class='ssd') for osd, place in osds.places.items()}
    osds.run(60)
    assert osds.watch.is_on_disks(1)
    osds.run(5)
    assert not osds.watch.is_on_disks(1)
    # An idle pool stays where it was.
    osds.turn({'clients': ()})
    osds.now += 600.0
    osds.turn({'clients': ()})
    assert osds.watch.others_rates == {1: 0.0}


@pytest.mark.parametrize('number', [5, 250])
def test_an_outage_of_many_pools_is_one_event(number: int) -> None:
    osds = Osds(8)
    osds.pools = {pool: Pool(pool, 'p%d' % pool, False, 3, 2, 0, 64, 64, 64)
                  for pool in range(number)}
    slow = [(pool, kind, osds.now) for pool in range(number) for kind in ('reads', 'writes')]
    for rows, what in ((slow, ' are slower than their baseline'),
                       ([], ' are back at their baseline')):
        setattr(osds.watch.pools, 'slow', lambda rows=rows: rows)
        events = [event for event in osds.announcer.events(osds.watch, osds.context())
                  if event.kind == 'latency']
        assert len(events) == (2 * number if number == 5 else 1)
        assert events[0].what.startswith('reads of pool p0' + what)
        if number == 250:
            assert events[0].what.endswith('and 495 more') and len(events[0].why) < 500


@pytest.mark.parametrize('number', [5, 240])
def test_many_osds_that_become_slow_at_once_are_one_event(number: int) -> None:
    """Each event is a line of the cluster log, also when these OSDs recover or are removed."""
    osds = Osds(1000)
    for slow, what in ((range(number), ' is slow'), ((), ' is no longer slow')):
        osds.watch.slow.verdicts = {osd: OsdVerdict(osd, 9.0, True, osds.now, 'slow reads')
                                    for osd in slow}
        events = osds.announcer.events(osds.watch, osds.context())
        assert len(events) == (5 if number == 5 else 1)
        assert events[0].what.startswith('osd.0' + what) and len(events[0].what) < 200
        assert number == 5 or events[0].what.endswith('and 235 more')


def test_a_problem_that_an_mgr_with_a_fast_clock_has_noted_ends_after_no_negative_time() -> None:
    osds = Osds(8)
    osds.announcer.load([Reported(SLOW, 'osd.3', osds.now + 3600.0)])
    event, = osds.announcer.events(osds.watch, osds.context())
    assert (event.what, event.why) == ('osd.3 is no longer slow', 'after 0 s')


@pytest.mark.parametrize('number, learned', [(40, False), (120, True)])
def test_one_slow_osd_of_many_prevents_no_baseline(number: int, learned: bool) -> None:
    """Among 1,000 OSDs, one has nearly always become slow within the last day."""
    osds = Osds(number)
    osds.slow, osds.idle = {3: 5.0}, False
    osds.run(180)
    assert SLOW in osds.checks
    osds.idle = True
    osds.run(120)
    assert (1 in osds.watch.pools.read_baselines()) == learned
    assert 3 not in osds.watch.norms.norms(), 'its latency is not usual'


# ---- Figures in the data of commands

def point(end: float, seconds: float, *sums: float) -> HistoryPoint:
    return HistoryPoint(end, seconds, sums)


def test_a_history_is_rounded_and_summed_up_to_few_rows() -> None:
    points = [point(100.04, 5.04, 7.0, 7.0004 * MS, 0.0, 0.0),
              point(105.06, 5.04, 21.0, 42.0 * MS, 10.0, 5.0 * MS),
              point(110.0, 5.0, 0.0, 0.0, 0.0, 0.0)]
    rows = report.history_json('osd.3', points)
    assert rows['of'] == 'osd.3' and rows['points'] == [
        {'time': 100.0, 'seconds': 5.0, 'read_ms': 1.0, 'read_rate': 1.4, 'write_ms': None,
         'write_rate': 0.0},
        {'time': 105.1, 'seconds': 5.0, 'read_ms': 2.0, 'read_rate': 4.2, 'write_ms': 0.5,
         'write_rate': 2.0},
        {'time': 110.0, 'seconds': 5.0, 'read_ms': None, 'read_rate': 0.0, 'write_ms': None,
         'write_rate': 0.0}]
    # The newest rows are whole: here of two points.
    assert report.history_json('osd.3', points, 2)['points'] == [
        rows['points'][0],
        {'time': 110.0, 'seconds': 10.0, 'read_ms': 2.0, 'read_rate': 2.1, 'read_max_ms': 2.0,
         'write_ms': 0.5, 'write_rate': 1.0, 'write_max_ms': 0.5}]
    one, = report.history_json('osd.3', points, 1)['points']
    assert (one['seconds'], one['read_ms'], one['read_max_ms']) == (15.1, 1.75, 2.0)
    assert report.history_json('osd.3', points, 3)['points'] == rows['points']
    assert report.history_json('osd.3', [], 3)['points'] == []


def test_an_export_has_a_row_for_each_kind_of_operation() -> None:
    row = report.OsdRow(3, 'h1', 'ssd', 'M')
    points = [point(100.06, 3.0, 10.0, 12.34567 * MS, 0.0, 0.0, 7.0, 3.5 * MS)]
    assert report.exported_json('osd.3', [(row, points)]) == {
        'of': 'osd.3',
        'columns': ['time', 'drive', 'host', 'class', 'model', 'kind', 'throughput', 'latency'],
        'rows': [[100.1, 'osd.3', 'h1', 'ssd', 'M', 'reads', 3.33, 1.2346],
                 [100.1, 'osd.3', 'h1', 'ssd', 'M', 'commits', 2.33, 0.5]]}


def test_a_standing_finding_is_rounded() -> None:
    assert report.chronic(Chronic(3, 1.26, 2.24, 3.25001, 0.123456, 4, 5.678, 'why')) == {
        'since': 1.3, 'raised': 2.2, 'last': 3.3, 'slow_time_ratio': 0.1235, 'episodes': 4,
        'slowdown': 5.68, 'why': 'why'}


@pytest.mark.parametrize('flow, ms', [
    (Flow(1.0, 1.23456), 1.235), (Flow(0.0, 1.0), None), (Flow(0.1, 0.0), 0.0)])
def test_the_latency_of_a_flow(flow: Flow, ms: Optional[float]) -> None:
    assert report.ms(flow) == ms


def test_conditions_without_pgs_are_left_out() -> None:
    assert report.trouble(PgCounts(total=9, active_clean=4, laggy=2, recovering=1)) == {
        'laggy': 2, 'recovering': 1}
    assert report.trouble(PgCounts(total=9, active_clean=9)) == {}


def test_the_json_of_laggy_pgs() -> None:
    status = report.LaggyStatus(
        3, 1, 1e9, (LaggyPg('1.a', 2, (2, 3), 1e9 - 0.12345),), (Suspect(3, 0.6, 'in all'),),
        LaggyEpisode(1e9, 0.0, 3, LOAD, 'busy', 1e9 + 5.0))
    assert report.laggy_json(status) == {
        'laggy_pgs': 3, 'wait_pgs': 1, 'since': 1e9,
        'pgs': [{'pgid': '1.a', 'acting': [2, 3], 'since': 999999999.877, 'primary': 2}],
        'suspects': [{'osd': 3, 'score': 0.6, 'why': 'in all', 'advice': '',
                      'mechanism': 'unknown'}],
        'last': {'since': 1e9, 'until': 0.0, 'osd': 3, 'mechanism': LOAD, 'why': 'busy',
                 'time': 1e9 + 5.0, 'text': 'main suspect osd.3 (mechanism: its messenger threads '
                                            'are too busy for lease renewals): busy'}}
    assert report.laggy_json(report.LaggyStatus())['last'] is None


# ---- One state of the watch, in words

NOW = 1e9
SIX = {osd: OsdPlace(osd, 'h%d' % (osd // 2), 'default', 'ssd', 'M', 'r1') for osd in range(6)}
UPGRADE = 'OSDs were upgraded'


class Known:
    """What the watch knows, as far as reports need it."""

    def __init__(self) -> None:
        self.places: Dict[int, OsdPlace] = dict(SIX)
        self.chronic = SimpleNamespace(standing={}, unjudged={}, away=(),
                                       shares=lambda: {1: 0.123456})
        self.shared: List[SlowShared] = []
        self.parts: List[SlowPart] = []
        self.verdicts: Dict[int, OsdVerdict] = {}
        self.slow = SimpleNamespace(
            chronic=self.chronic, verdicts=self.verdicts, shared=lambda: self.shared,
            class_parts=lambda: self.parts, slow_verdicts=self.verdicts)
        self.laggy = SimpleNamespace(raised=False, since=0.0, last_episode=None, suspects=[],
                                     pgs=SimpleNamespace(all=lambda: self.laggy_pgs))
        self.laggy_pgs: Tuple[LaggyPg, ...] = ()
        self.unreported = ''
        self.slow_pools: List[Tuple[int, str, float]] = []
        self.accepted: List[Tuple[int, str, float]] = []
        self.performance = PoolPerformance(1, Flow(12.345, 1.23456), Flow(0.26, 2.34567), 1.11111,
                                           None, read_alarm_ms=3.33333)
        self.pools = SimpleNamespace(slow=lambda: self.slow_pools, accepted=lambda: self.accepted,
                                     latency=lambda pool: self.performance)
        #: Likely causes of slow OSDs.
        self.causes: Dict[int, List[LikelyCause]] = {}
        self.clients: Tuple[ClientShare, ...] = ()
        self.upgraded_at = 0.0
        self.release = SimpleNamespace(upgrade_text=lambda now, since: UPGRADE if (
            self.upgraded_at > since) else '')
        self.disks: Sequence[int] = ()
        self.ping_ms, self.silent = {1: 1.23456}, {1: 20.26}
        self.osd_counts = {1: PgCounts(total=4, degraded=2)}
        tail = SimpleNamespace(read_p99_ms=7.77777, write_p99_ms=None)
        self.percentiles = SimpleNamespace(levels_of_osd=lambda osd: tail,
                                           levels_of_cluster=lambda now: tail)
        self.osds = SimpleNamespace(flows=lambda osd, now, period: OsdFlows(
            Flow(10.26, 0.12345), Flow(20.24, 0.98765), Flow(30.0, 0.55555)) if osd == 1
            else OsdFlows())

    def causes_of(self, osd: int, context: WatchContext) -> List[LikelyCause]:
        return self.causes.get(osd, [])

    def load_of(self, osd: int, context: WatchContext) -> Tuple[LikelyCause, ...]:
        return (LikelyCause('load', 'busy', {}),) if osd == 1 else ()

    def heavy_clients(self, pool: int) -> Tuple[ClientShare, ...]:
        return self.clients

    def is_on_disks(self, pool: int) -> bool:
        return pool in self.disks

    @property
    def watch(self) -> WatchState:
        """As its users see it."""
        watch: Any = self
        return watch


def in_context(**signals: Any) -> WatchContext:
    osdmap = OsdMap(9, frozenset(), {
        number: Pool(number, 'p%d' % number, False, 3, 2, 0, 8, 8, 8) for number in (2, 1)},
        {osd: Osd(osd, osd != 2, 1.0) for osd in range(4)}, {}, {}, {})
    return WatchContext(NOW, Signals(PgCounts(**signals), {1: PgCounts(total=8, laggy=3)}), osdmap,
                        lambda pgid: None, 5.0)


def verdict(osd: int, since: float = NOW - 90.0, why: str = 'slow reads') -> OsdVerdict:
    return OsdVerdict(osd, 4.321, True, since, why, 5)


def shared_part(kind: str, name: str, *osds: int) -> SlowShared:
    return SlowShared((kind, name), osds, len(osds), (), 4.0, NOW - 60.0, 'all are slow')


def standing(osd: int, why: str = 'again and again') -> Chronic:
    return Chronic(osd, NOW - 900.0, NOW - 600.0, NOW - 60.0, 0.2, 4, 5.0, why)


def test_the_row_of_an_osd() -> None:
    known = Known()
    known.verdicts.update({1: verdict(1), 2: verdict(2)._replace(slow=False, since=0.0, why='')})
    known.chronic.standing = {2: standing(2)}
    cause = LikelyCause('drive', 'its drive', {'x': 1})
    known.causes = {1: [cause], 2: [cause]}
    rows = report.osds(known.watch, in_context())
    assert [row.osd for row in rows] == list(range(6))
    assert rows[1] == report.OsdRow(
        1, 'h0', 'ssd', 'M', 0.123, 0.988, 0.556, 4.32, True, 'slow reads', (cause,),
        (LikelyCause('load', 'busy', {}),), None, 0.1235, NOW - 90.0, 10.3, 20.2, 7.778, None,
        1.235, 20.3, {'degraded': 2}, 'r1', 5)
    assert rows[2] == report.OsdRow(2, 'h1', 'ssd', 'M', score=4.32, chronic=standing(2),
                                    read_p99_ms=7.778, rack='r1', waits_for=5)
    assert rows[0] == report.OsdRow(0, 'h0', 'ssd', 'M', read_p99_ms=7.778, rack='r1')


def test_the_rows_of_pools() -> None:
    known = Known()
    known.slow_pools = [(1, 'reads', NOW), (1, 'writes', NOW)]
    known.clients = (ClientShare('client.1', 'a', 0.9, 9.0),)
    one, two = report.pools(known.watch, in_context(), DEFAULTS)
    assert one == report.PoolRow(
        'p1', 1, 1.235, 2.346, 12.3, 0.3, 1.111, 1.111, None, 1.667, 1.667, None, 3.333, None,
        ('reads', 'writes'), {'laggy': 3}, known.clients)
    assert two == replace(one, pool='p2', id=2, slow=(), pgs={}, clients=())
    known.disks = (1,)
    known.performance = known.performance._replace(read_baseline_ms=3.0)
    limited = report.pools(known.watch, in_context(), replace(
        DEFAULTS, latency_limits_ms='p2=3.14159'))
    assert [(row.target_ms, row.read_target_ms, row.write_target_ms) for row in limited] == [
        (5.0, 5.0, None), (3.142, 3.142, 3.142)]


def test_the_signals_of_the_cluster() -> None:
    known = Known()
    rows = [[NOW - 61.0, 5.0, 99.0, 99.0 * MS, 0.0, 0.0],
            [NOW, 4.0, 5.0, 6.17284 * MS, 9.0, 9.0 * MS]]
    detailed = SimpleNamespace(rows=lambda last: rows)
    watch: Any = known
    watch.cluster, watch.untrimmed_epochs = SimpleNamespace(detailed=detailed), 7
    assert report.signals(watch, in_context()) == report.ClusterRow(
        1.235, 1.0, 1.2, 2.2, 7.778, None, 7)


def test_the_state_of_laggy_pgs() -> None:
    known = Known()
    assert report.laggy(known.watch, in_context(laggy=2, wait=1)) == report.LaggyStatus(2, 1)
    known.laggy.since, known.laggy.suspects = 5.0, [Suspect(3, 0.5, 'x')]
    known.laggy_pgs = (LaggyPg('1.a', 2, (2, 3), NOW),)
    assert report.laggy(known.watch, in_context()) == report.LaggyStatus(
        0, 0, 5.0, known.laggy_pgs, (Suspect(3, 0.5, 'x'),))


@pytest.mark.parametrize('counts, suspects, summary', [
    ({'laggy': 1}, 0, '1 PG is laggy'), ({'laggy': 2, 'wait': 1}, 0, '2 PGs are laggy, 1 waiting '
                                         'for read leases to expire'),
    ({'wait': 3}, 0, '0 PGs are laggy, 3 waiting for read leases to expire'),
    ({}, 0, 'PGs were laggy until a moment ago'),
    ({'laggy': 2}, 2, '2 PGs are laggy; main suspect: osd.0')])
def test_the_summary_of_laggy_pgs(counts: Dict[str, int], suspects: int, summary: str) -> None:
    known = Known()
    known.laggy.suspects = [Suspect(osd, 0.5, 'why') for osd in range(suspects)]
    assert health_checks(known.watch, in_context(**counts)) == {}
    known.laggy.raised = True
    checks = health_checks(known.watch, in_context(**counts))
    assert {check: value['summary'] for check, value in checks.items()} == {LAGGY: summary}


def test_the_detail_of_laggy_pgs() -> None:
    known = Known()
    known.laggy.raised = True

    def detail() -> Sequence[str]:
        return health_checks(known.watch, in_context(laggy=30))[LAGGY]['detail']

    assert detail() == ['no OSD has reported yet which PGs are laggy']
    known.laggy.suspects = [
        Suspect(0, 0.5, 'why', 'look', LOAD), *(Suspect(osd, 0.4, 'y') for osd in (1, 2, 3))]
    known.laggy_pgs = tuple(LaggyPg('1.%x' % number, 2, (2, 3), NOW - 5.4 + 100.0 * (number == 1))
                            for number in range(21))
    lines = detail()
    assert lines[:5] == [
        'osd.0: why; likely mechanism: its messenger threads are too busy for lease renewals; look',
        'osd.1: y', 'osd.2: y', 'PG 1.0, acting [2, 3]: clients have been waiting for 5 s',
        'PG 1.1, acting [2, 3]: clients have been waiting for 0 s']
    assert len(lines) == 23 and lines[-1].startswith('PG 1.13, ')
    known.unreported = '4 of 6 OSDs have not reported'
    assert detail()[0] == known.unreported and len(detail()) == 24


def part(osds: Sequence[int]) -> SlowPart:
    return SlowPart('default', 'ssd', tuple(osds), '3 of 6 ssd OSDs', 4.0, NOW - 50.0, 'all slow')


@pytest.mark.parametrize('shared, single, parts, summary', [
    ([], [3], [], 'osd.3 is slower than its peers'),
    ([], [4, 3], [], 'osd.3, osd.4 are slower than their peers'),
    ([('host', 'h1')], [], [], 'host h1 is slower than its peers'),
    ([('host', 'h1')], [4], [], 'host h1 and osd.4 are slower than their peers'),
    ([('host', 'h2'), ('device', 'h0:x'), ('rack', 'r1'), ('host', 'h1')], [], [],
     'rack r1 and device h0:x and hosts h1, h2 are slower than their peers'),
    ([], [], [(3, 4)], '3 of 6 ssd OSDs are slower than the others'),
    ([], [3], [(4,), (5,)], 'osd.3 is slower than its peers; 3 of 6 ssd OSDs are slower than the '
     'others; 3 of 6 ssd OSDs are slower than the others')])
def test_the_summary_of_slow_osds(shared: Any, single: List[int], parts: Any,
                                  summary: str) -> None:
    known = Known()
    known.shared = [shared_part(*named, 0, 1) for named in shared]
    known.verdicts.update({osd: verdict(osd) for osd in [*single, *([0, 1] if shared else [])]})
    known.parts = [part(osds) for osds in parts]
    checks = health_checks(known.watch, in_context())
    assert {check: value['summary'] for check, value in checks.items()} == {SLOW: summary}
    assert report.reported_osds(known.watch) == {
        SLOW: frozenset(known.verdicts), CHRONIC: frozenset()}


def test_the_detail_of_slow_osds() -> None:
    known = Known()
    known.shared, known.parts = [shared_part('host', 'h0', 0, 1)], [part((2,))]
    known.verdicts.update({osd: verdict(osd) for osd in (0, 1, 3, 4, 9)})
    known.causes = {0: [LikelyCause('host', 'its host', {})], 3: [
        LikelyCause('client', 'client.7', {}, 'one client'), LikelyCause('drive', 'its drive', {})]}
    known.chronic.standing = {4: standing(4)}
    checks = health_checks(known.watch, in_context())
    assert checks[SLOW]['detail'] == [
        'all slow', 'host h0: all are slow; likely cause: its host',
        'osd.3 on h1: slow reads; likely causes: one client, its drive', 'osd.9: slow reads']
    assert checks[CHRONIC] == warning('osd.4 is chronically slow', [
        'osd.4 on h2: again and again; slow now: slow reads'])
    assert report.reported_osds(known.watch) == {
        SLOW: frozenset({0, 1, 3, 9}), CHRONIC: frozenset({4})}
    # A shared part of which all OSDs are chronically slow is no slow one.
    known.chronic.standing = {0: standing(0), 1: standing(1)}
    assert not any('host h0' in line for line in health_checks(
        known.watch, in_context())[SLOW]['detail'])
    known.chronic.standing[8] = standing(8)
    known.verdicts[1] = known.verdicts[1]._replace(slow=False)
    checks = health_checks(known.watch, in_context())
    assert not any('host h0' in line for line in checks[SLOW]['detail'])
    assert checks[CHRONIC] == warning('host h0 and osd.8 are chronically slow', [
        'host h0: 2 OSDs on it are chronically slow: check its CPU, memory, disk controller and '
        'network before any drive',
        'osd.0 on h0: again and again; slow now: slow reads', 'osd.1 on h0: again and again',
        'osd.8: again and again'])


@pytest.mark.parametrize('performance, kind, text', [
    ({}, 'reads', 'reads take 1.2 ms (baseline 1.1 ms)'),
    ({}, 'writes', 'writes take 2.3 ms (baseline 0.0 ms)'),
    ({'read': Flow(0.0, 7.0)}, 'reads',
     'reads were slow (baseline 1.1 ms; none completed in the last minute)'),
    ({'write': Flow(0.0, 7.0)}, 'writes',
     'writes were slow (baseline 0.0 ms; none completed in the last minute)')])
def test_the_detail_of_a_slow_pool(performance: Dict[str, Any], kind: str, text: str) -> None:
    known = Known()
    known.performance = known.performance._replace(**performance)
    known.slow_pools = [(1, kind, NOW - 59.6), (7, kind, NOW)]
    checks = health_checks(known.watch, in_context())
    assert checks == {LATENCY_CHECK: warning('1 pool is slower than its baseline', [
        'pool p1: %s for 60 s' % text])}


def test_slow_pools_with_an_upgrade_and_a_busy_client() -> None:
    known = Known()
    known.slow_pools = [(1, 'reads', NOW - 9.0), (1, 'writes', NOW - 20.0), (2, 'reads', NOW - 5.0)]
    known.clients = (ClientShare('client.1', 'a', 0.9, 9.0),)
    known.upgraded_at = NOW - 10.0
    client = 'one client sends 90 % of the operations ("ceph perfguard pools" names it)'
    reads, writes = 'reads take 1.2 ms (baseline 1.1 ms)', 'writes take 2.3 ms (baseline 0.0 ms)'
    assert health_checks(known.watch, in_context())[LATENCY_CHECK] == warning(
        '2 pools are slower than their baselines', [
            'pool p1: %s for 9 s; pool p1: %s for 20 s; %s; %s' % (reads, writes, UPGRADE, client),
            'pool p2: %s for 5 s; %s' % (reads, client)])
    events = Announcer().events(known.watch, in_context())
    assert events == [
        Event('latency', 'reads of pool p1 are slower than their baseline', reads),
        Event('latency', 'writes of pool p1 are slower than their baseline',
              '%s; %s' % (writes, UPGRADE)),
        Event('latency', 'reads of pool p2 are slower than their baseline', reads)]


def test_the_events_of_problems_that_begin() -> None:
    known = Known()
    known.laggy.raised = True
    known.shared, known.parts = [shared_part('host', 'h0', 0, 1)], [part((2,))]
    known.verdicts.update({osd: verdict(osd) for osd in (0, 1, 3)})
    known.chronic.standing = {5: standing(5)}
    announcer = Announcer()
    assert announcer.events(known.watch, in_context(laggy=1)) == [
        Event('laggy', '1 PG is laggy'), Event('slow-osd', 'host h0 is slow', 'all are slow'),
        Event('slow-osd', 'part of the ssd OSDs of root default is slow', 'all slow'),
        Event('slow-osd', 'osd.3 is slow', 'slow reads'),
        Event('chronic-osd', 'osd.5 is chronically slow', 'again and again')]
    assert announcer.reported() == (
        Reported(LAGGY, 'PGs', 0.0), Reported(SLOW, 'host h0', NOW - 60.0),
        Reported(SLOW, 'part of the ssd OSDs of root default', NOW - 50.0),
        Reported(SLOW, 'osd.3', NOW - 90.0), Reported(CHRONIC, 'osd.5', NOW - 900.0))
    assert announcer.events(known.watch, in_context(laggy=1)) == []
    # The suspect is why.
    known.laggy.suspects = [Suspect(3, 0.5, 'why'), Suspect(4, 0.5, 'y')]
    assert Announcer().events(known.watch, in_context(laggy=1))[0] == Event(
        'laggy', '1 PG is laggy; main suspect: osd.3', 'osd.3: why')


@pytest.mark.parametrize('check, subject, what, why', [
    (LAGGY, 'PGs', 'no PG is laggy anymore', 'after 30 s; at %s, main suspect osd.3 (mechanism: '
     'its messenger threads are too busy for lease renewals): busy' % time_text(NOW - 5.0)),
    (SLOW, 'osd.3', 'osd.3 is no longer slow', 'after 30 s'),
    (SLOW, 'osd.2', 'osd.2 is no longer watched', 'after 30 s: it is down'),
    (SLOW, 'osd.7', 'osd.7 is no longer watched', 'after 30 s: it was removed'),
    (SLOW, 'host h0', 'host h0 is no longer slow', 'after 30 s'),
    (CHRONIC, 'osd.1', 'osd.1 is no longer chronically slow', 'after 30 s'),
    (CHRONIC, 'osd.3', 'osd.3 is no longer chronically slow', 'after 30 s: it is idle'),
    (CHRONIC, 'osd.0', 'osd.0 is no longer chronically slow', 'after 30 s: it has no PGs'),
    (LATENCY_CHECK, 'reads of pool p9', 'reads of pool p9 are no longer watched',
     'after 30 s: pool p9 no longer exists'),
    (LATENCY_CHECK, 'reads of pool p1', 'reads of pool p1 are back at their baseline',
     'after 30 s'),
    (LATENCY_CHECK, 'writes of pool p1', 'the latency of writes of pool p1 is accepted at this '
     'hour', 'after 30 s: it recurs; the limit is 7.2 ms')])
def test_the_event_of_a_problem_that_ends(check: str, subject: str, what: str, why: str) -> None:
    known = Known()
    known.chronic.unjudged, known.chronic.away = {3: 'it is idle'}, {0}
    known.accepted = [(1, 'writes', 7.249), (9, 'reads', 1.0)]
    known.laggy.last_episode = LaggyEpisode(NOW - 30.0, NOW, 3, LOAD, 'busy', NOW - 5.0)
    announcer = Announcer()
    announcer.load([Reported(check, subject, NOW - 30.4), Reported('OTHER', 'x', NOW)])
    assert announcer.events(known.watch, in_context()) == [
        Event(EVENT_KINDS[check], what, why)]
    assert announcer.reported() == ()


@pytest.mark.parametrize('number, events', [(10, 10), (11, 1)])
def test_how_many_events_of_one_kind_there_are(number: int, events: int) -> None:
    many = [Event('slow-osd', 'osd.%d is slow' % osd, 'x') for osd in range(number)]
    bounded = report._bounded([Event('laggy', 'y'), *many])
    assert bounded[0] == Event('laggy', 'y') and len(bounded) == 1 + events
    if events == 1:
        assert bounded[1] == Event('slow-osd', '%s and 6 more' % '; '.join(
            event.what for event in many[:5]), 'x; x; x; x; x and 6 more')


@pytest.mark.parametrize('subject, now', [
    # It is one of many of its class, a part of a slow host, or chronically slow.
    ('osd.2', {'parts': [part((2,))]}), ('host h0', {'slow': [0]}),
    ('osd.0', {'slow': [0], 'shared': [shared_part('host', 'h0', 0, 1)]}),
    ('osd.3', {'standing': {3: standing(3)}}), ('host h0', {'shared': [
        shared_part('host', 'h0', 0, 1)], 'standing': {0: standing(0), 1: standing(1)}})])
def test_an_osd_that_is_slow_otherwise_has_not_recovered(subject: str, now: Dict[str, Any]) -> None:
    known = Known()
    known.parts, known.shared = now.get('parts', []), now.get('shared', [])
    known.verdicts.update({osd: verdict(osd) for osd in now.get('slow', [])})
    known.chronic.standing = now.get('standing', {})
    announcer = Announcer()
    announcer.load([Reported(SLOW, subject, NOW - 30.0)])
    events = announcer.events(known.watch, in_context())
    assert not [event for event in events if 'no longer' in event.what or subject in event.what
                and event.kind == 'slow-osd'], events


def test_the_use_of_pools() -> None:
    known = Known()
    load = SimpleNamespace(sized=lambda reads, writes: (reads, writes), busiest=lambda now: now,
                           growth=lambda now: -now)
    watch: Any = known
    watch.pools.load_of, watch.others_rates, known.disks = lambda pool: load, {2: 3.5}, (2,)
    assert report.pool_uses(watch, in_context(), DEFAULTS) == (
        (1, 'p1', 8, 5.0, (12.345, 0.26), NOW, 0.0, -NOW),
        (2, 'p2', 8, 50.0, (12.345, 0.26), NOW, 3.5, -NOW))
    assert [use.p99_ms for use in report.pool_uses(
        watch, in_context(), replace(DEFAULTS, capacity_p99_ms=7.0))] == [7.0, 7.0]


def test_rows_as_json() -> None:
    known = Known()
    known.clients, known.slow_pools = (ClientShare('client.1', 'a', 0.91239, 9.0),), [
        (1, 'reads', NOW)]
    row = report.pools(known.watch, in_context(), DEFAULTS)[0]
    assert report.pool_json(row) == {
        'pool': 'p1', 'id': 1, 'read_ms': 1.235, 'write_ms': 2.346, 'read_rate': 12.3,
        'write_rate': 0.3, 'baseline_ms': 1.111, 'read_baseline_ms': 1.111,
        'write_baseline_ms': None, 'target_ms': 1.667, 'read_target_ms': 1.667,
        'write_target_ms': None, 'read_alarm_ms': 3.333, 'write_alarm_ms': None,
        'slow': ['reads'], 'pgs': {'laggy': 3},
        'clients': [{'client': 'client.1', 'address': 'a', 'share': 0.912}]}
    osd = report.OsdRow(1, 'h', 'ssd', 'M', chronic=standing(1), pgs={'laggy': 1}, causes=(
        LikelyCause('a', 'b', {'x': 1}, 'c'),), load=(LikelyCause('d', 'e', {}),))
    shown = report.osd_json(osd)
    assert {**shown, 'chronic': None} == {
        **osd._asdict(), 'chronic': None, 'causes': [
            {'code': 'a', 'text': 'b', 'evidence': {'x': 1}}],
        'load': [{'code': 'd', 'text': 'e', 'evidence': {}}]}
    assert shown['chronic'] == report.chronic(standing(1))
    assert report.osd_json(osd._replace(chronic=None))['chronic'] is None
    assert report.signals_json(None) == {}
    assert report.signals_json(report.ClusterRow(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7)) == {
        'read_ms': 1.0, 'write_ms': 2.0, 'read_rate': 3.0, 'write_rate': 4.0, 'read_p99_ms': 5.0,
        'write_p99_ms': 6.0, 'untrimmed_osdmaps': 7}


def test_an_export_contains_rare_operations() -> None:
    rows = report.exported_json('osd.3', [(report.OsdRow(3, 'h1', 'ssd', 'M'), [
        point(100.0, 5.0, 4.0, 4.0 * MS, 0.0, 0.0, 0.0, 0.0)])])['rows']
    assert rows == [[100.0, 'osd.3', 'h1', 'ssd', 'M', 'reads', 0.8, 1.0]]
