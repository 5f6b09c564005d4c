# SPDX-License-Identifier: LGPL-2.1-or-later
"""The watch in the loop: events, cluster log, health checks, and what survives the mgr."""
import json
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Sequence
from unittest import mock

import pytest

from perfguard import tables
from perfguard.cluster.types import (ClientOps, OsdCounters, OsdMap, OsdPlace, Ops, PgCounts,
                                     PgWrites, Readings, Signals, UnreadablePg)
from perfguard.probe.controller import Probing
from perfguard.rebalance.report import ReleasePreview
from perfguard.rebalance.risks import RISKS
from perfguard.status import osds_json
from perfguard.store import Store
from perfguard.watch import rounds
from perfguard.watch.report import laggy_json, pool_json
from perfguard.watch.rounds import Work
from perfguard.watch.slow_osds import SlowOsds
from perfguard.watch.slowness import SlowSettings
from perfguard.watch.state import LAGGY_SECONDS, StoredWatch
from perfguard.watch.types import OsdReading

from ..fakes.cluster import FakeCluster
from ..fakes.driver import OPTIONS, Driver

MS = 1000000
PERIOD = 5.0
LAGGY, SLOW, LATENCY = ('PERFGUARD_LAGGY_PGS', 'PERFGUARD_SLOW_OSD', 'PERFGUARD_LATENCY')
CHRONIC = 'PERFGUARD_OSD_CHRONIC'
FAILED = 'PERFGUARD_LOOP_FAILED'
NAN = float('nan')


class OsdCluster(FakeCluster):
    """The cluster in memory, its OSDs under an even load."""

    def __post_init__(self) -> None:
        self.period = PERIOD
        super().__post_init__()
        #: OSD -> times as slow as the others.
        self.slow: Dict[int, float] = {}
        #: OSDs without operations.
        self.idle: Sequence[int] = ()
        self.factor = 1.0
        #: OSDs that serve the other pool, with the bytes of each operation; empty: none does, and
        #: sizes are unknown.
        self.large: Dict[int, int] = {}
        #: What the OSDs report in place of what they do.
        self.change: Mapping[str, Any] = {}
        self.fail: Sequence[Exception] = ()
        self.counters: Dict[int, OsdCounters] = {}
        #: PGs of OSDs without CRUSH weight.
        self.pgs_of_drained = 0

    def readings(self, view: object, signals: Signals) -> Readings:
        for error in self.fail:
            raise error
        clients: List[ClientOps] = []
        for osd in self.toys:
            ms = self.factor * self.slow.get(osd, 1.0)
            ns_before, before = self.counters[osd].read if osd in self.counters else Ops()
            done = 0 if osd in self.idle else 1000
            each = Ops(ns_before + int(done * ms * MS), before + done)
            self.counters[osd] = OsdCounters(
                self.now, each, each, each, each, each, each,
                pgs=8 if self.toys[osd].crush_weight else self.pgs_of_drained)
            reads = Ops(int(done * ms * MS), done)
            size = self.large.get(osd, 4096) if self.large else 0
            clients.append(ClientOps(2 if osd in self.large else 1, osd, reads,
                                     reads if size else Ops(), done * size, done * size))
        readings = Readings(
            seconds=self.period, counters=dict(self.counters), clients=tuple(clients),
            places={osd: OsdPlace(osd, 'h%d' % osd, 'default', 'hdd') for osd in self.toys})
        return replace(readings, **self.change)


class Watched(Driver):
    """Quiet for long enough that each pool with clients has a baseline."""

    def __init__(self, baseline_seconds: float = 60.0) -> None:
        self.osds = OsdCluster(hosts=12)
        super().__init__(self.osds, replace(OPTIONS, baseline_seconds=baseline_seconds))
        self.minutes(2)

    def minutes(self, number: float) -> None:
        for _ in range(int(number * 60 / PERIOD)):
            self.turn(PERIOD)

    @property
    def checks(self) -> List[str]:
        return sorted(self.osds.checks)

    def events(self, kind: str) -> List[str]:
        return [event['what'] for event in self.loop.published.events if event['kind'] == kind]

    @property
    def pool(self) -> Any:
        return self.loop.status()['pools'][0]

    @property
    def rows(self) -> List[Any]:
        """Of `osds`."""
        return osds_json(self.loop.published.watched.osds, ReleasePreview())

    @property
    def laggy(self) -> Any:
        return laggy_json(self.loop.published.watched.laggy)


def test_a_quiet_cluster() -> None:
    driver = Watched()
    published = driver.loop.published
    assert driver.checks == [] and driver.osds.logged == [] and published.events == ()
    assert driver.pool['pool'] == 'rep' and driver.pool['read_baseline_ms'] == 1.0
    status = driver.loop.status()
    assert status['pools'] == [pool_json(row) for row in published.watched.pools]
    assert status['signals']['read_ms'] == 1.0
    assert len(published.watched.osds) == 12


def test_the_release_of_the_osds_is_stored_at_once() -> None:
    driver = Watched()
    driver.osds.change = {'software': {osd: ('18.2.7', '6.1') for osd in range(12)}}
    driver.turn(PERIOD)
    stored = Store(driver.kv).load('watch', StoredWatch, StoredWatch())[0]
    assert stored.release.release == '18.2.7'


# ---- begin and end

def test_laggy_pgs_begin_and_end() -> None:
    driver = Watched()
    driver.osds.trouble = {'laggy': 3}
    driver.osds.change = {'osd_counts': {osd: PgCounts(total=6, laggy=3 if osd == 2 else 1)
                                         for osd in range(4)},
                          'unreadable': {1: (UnreadablePg('1.3', 4.0, 9),)}}
    driver.turn(PERIOD)
    for _ in range(5):
        driver.turn(PERIOD)
        assert driver.checks == [LAGGY]
    assert driver.events('laggy') == ['3 PGs are laggy; main suspect: osd.2']
    assert len(driver.osds.logged) == 1 and driver.osds.logged[0].startswith(
        '3 PGs are laggy; main suspect: osd.2 (osd.2: in the acting set of 3 of 3')
    status = driver.loop.status()
    assert status['health'] == [LAGGY] and status['signals']['laggy_pgs'] == 3
    points = driver.loop.history_of('cluster', False)
    assert points is not None
    point = points[-1]
    assert point.sums[LAGGY_SECONDS] == 3 * point.seconds
    assert any(LAGGY in reason for reason in status['reasons'])
    laggy = driver.laggy
    assert laggy['pgs'][0]['pgid'] == '1.3' and laggy['suspects'][0]['osd'] == 2
    driver.osds.trouble, driver.osds.change = {}, {}
    driver.minutes(1)
    assert driver.checks == [] and driver.loop.status()['health'] == []
    assert driver.events('laggy')[1:] == ['no PG is laggy anymore']
    assert len(driver.osds.logged) == 2


def test_what_was_laggy_is_over_after_three_stats_periods() -> None:
    driver = Watched()
    driver.osds.period = 2.0
    driver.osds.trouble = {'laggy': 1}
    driver.run_until(lambda: LAGGY in driver.checks)
    driver.osds.trouble = {}
    begin = driver.osds.now
    driver.run_until(lambda: LAGGY not in driver.checks)
    assert 2 * 2.0 <= driver.osds.now - begin <= 4 * 2.0


def test_laggy_pgs_are_reported_within_two_stats_periods() -> None:
    driver = Watched()
    driver.osds.trouble = {'laggy': 1}
    begin = driver.osds.now
    driver.run_until(lambda: LAGGY in driver.checks)
    assert driver.osds.now - begin <= 2 * PERIOD


def test_a_slow_osd_begins_and_ends() -> None:
    driver = Watched()
    driver.osds.slow = {7: 6.0}
    driver.minutes(6)
    assert SLOW in driver.checks and driver.events('slow-osd') == ['osd.7 is slow']
    assert [row['osd'] for row in driver.rows if row['slow']] == [7]
    driver.osds.slow = {}
    driver.minutes(10)
    assert driver.checks == []
    assert driver.events('slow-osd') == ['osd.7 is slow', 'osd.7 is no longer slow']
    assert [line for line in driver.osds.logged if 'osd.7' in line][-1].startswith(
        'osd.7 is no longer slow (after ')


def intermittent(minutes: float, driver: Watched) -> None:
    """OSD 7 is slow for a minute of ten; reports each minute."""
    driver.osds.period = 60.0
    for minute in range(int(minutes)):
        driver.osds.slow = {7: 8.0} if minute % 10 == 0 else {}
        driver.turn(60.0)
    driver.osds.slow = {}


def chronic() -> Watched:
    driver = Watched()
    intermittent(230, driver)
    assert driver.checks == [CHRONIC]
    return driver


class NotedRounds:
    """Rounds in small chunks: when they began, and what their steps have yielded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: List[float] = []
        self.passes: List[int] = []
        whole_round = SlowOsds.round

        def noted(osds: SlowOsds, reading: OsdReading, settings: SlowSettings) -> Work[None]:
            self.begun.append(reading.now)
            for passes in whole_round(osds, reading, settings):
                self.passes.append(passes)
                yield passes

        monkeypatch.setattr(rounds, 'CHUNK_OSDS', 2)
        monkeypatch.setattr(SlowOsds, 'round', noted)


def test_turns_between_two_readings_share_the_judgement_of_osds(
        monkeypatch: pytest.MonkeyPatch) -> None:
    driver, noted = Watched(), NotedRounds(monkeypatch)
    driver.osds.slow = {7: 6.0}
    judged_in_turns: List[int] = []
    published: List[Any] = []
    for _ in range(600):
        noted.passes.clear()
        driver.turn(1.0)
        judged_in_turns.append(sum(noted.passes))
        rows = driver.loop.published.watched.osds
        if not published or rows is not published[-1]:
            published.append(rows)
    # After the first readings, each turn has its share. There may be nothing left for the last one.
    later = judged_in_turns[50:]
    assert max(later) < sum(later) / (len(later) / PERIOD) / 3
    assert later.count(0) <= len(later) / PERIOD
    # Each round ends before the next reading.
    assert len(published) >= 600 / PERIOD
    assert driver.checks == [SLOW] and [row['osd'] for row in driver.rows if row['slow']] == [7]


def test_the_judgement_of_osds_that_fails_between_two_readings_is_reported(
        monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(rounds, 'CHUNK_OSDS', 2)
    driver = Watched()
    for _ in range(20):
        driver.turn(1.0)

    def failing(self: SlowOsds, reading: OsdReading, settings: SlowSettings) -> Work[None]:
        yield rounds.PASSES_PER_ROUND * 12
        raise KeyError('round')

    with monkeypatch.context() as patch:
        patch.setattr(SlowOsds, 'round', failing)
        for _ in range(6):
            driver.turn(1.0)
        for _ in range(20):
            driver.turn(1.0)
            assert driver.loop.published.watched.failure == "KeyError('round')"
            assert driver.pool['read_ms'] == 1.0 and not driver.rows
        # The latency of clients is known nevertheless.
        before = driver.loop.jobs.watching.clients.time
        driver.turn(PERIOD)
        driver.turn(PERIOD)
        assert driver.loop.jobs.watching.clients.time > before > 0.0
    assert driver.checks == [FAILED]
    assert caplog.text.count('the watch failed to judge the OSDs') == 1
    for _ in range(11):
        driver.turn(1.0)
    assert driver.loop.published.watched.failure == '' and len(driver.rows) == 12
    assert driver.checks == []


def test_an_earlier_verdict_is_no_evidence_while_osds_are_not_judged(
        monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Watched()
    driver.osds.slow = {7: 6.0}
    driver.minutes(6)
    assert driver.checks == [SLOW] and set(driver.loop.published.watched.slow_osds) == {7}
    driver.osds.slow = {}

    def failing(self: SlowOsds, reading: OsdReading, settings: SlowSettings) -> Work[None]:
        raise KeyError('round')
        yield

    monkeypatch.setattr(SlowOsds, 'round', failing)
    for number in range(4):
        driver.turn(PERIOD)
        watched = driver.loop.published.watched
        assert not watched.slow_osds and not watched.osds and watched.failure
        assert driver.checks == ([SLOW] if number < 2 else [FAILED, SLOW]), 'three rounds fail'
    driver.osds.fail = [KeyError('reading')]
    driver.turn(PERIOD)
    assert driver.checks == [FAILED, SLOW], 'the mons log each change'


def test_a_failed_round_counts_once_however_many_readings_follow(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """Three failures in a row raise a health check (see the test above)."""
    monkeypatch.setattr(rounds, 'READING_OSDS', 3)
    monkeypatch.setattr(rounds, 'CHUNK_OSDS', 1)
    driver = Watched()

    def failing(self: SlowOsds, reading: OsdReading, settings: SlowSettings) -> Work[None]:
        raise KeyError('round')
        yield

    with monkeypatch.context() as patch:
        patch.setattr(SlowOsds, 'round', failing)
        while not driver.loop.published.watched.failure:
            driver.turn(PERIOD)
    # The next round takes four readings.
    for _ in range(3):
        driver.turn(PERIOD)
        assert driver.loop.published.watched.failure
    assert driver.checks == []


def test_each_reading_has_a_round_though_the_number_of_turns_varies(
        monkeypatch: pytest.MonkeyPatch) -> None:
    driver, noted = Watched(), NotedRounds(monkeypatch)
    for _ in range(50):
        for turns in (5, 4, 1):
            for _ in range(turns):
                driver.turn(PERIOD / turns)
    assert len(noted.begun) == 150


def test_what_the_last_turn_of_a_round_finds_is_an_event_and_stored_at_once(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, 'CHUNK_OSDS', 2)
    driver = Watched()
    driver.osds.slow = {7: 6.0}
    while driver.checks != [SLOW]:
        driver.turn(1.0)
        assert len(driver.events('slow-osd')) == len(driver.checks)
    stored = Store(driver.kv).load('watch', StoredWatch, StoredWatch())[0]
    assert set(stored.slow) == {7}


def test_an_osd_that_is_slow_again_and_again_is_one_standing_finding() -> None:
    driver = chronic()
    check = driver.osds.checks[CHRONIC]
    assert check['summary'] == 'osd.7 is chronically slow'
    assert check['detail'][0].startswith('osd.7 on h7: slow 10 % of the time since ')
    assert driver.events('chronic-osd') == ['osd.7 is chronically slow']
    row = driver.rows[7]
    assert row['chronic']['why'] in check['detail'][0] and not row['slow']
    assert row['chronic']['slow_time_ratio'] == pytest.approx(0.1, abs=0.01)
    assert row['slow_time_ratio'] == pytest.approx(0.1, abs=0.01)
    assert row['chronic']['episodes'] == 22
    assert row['chronic']['slowdown'] == pytest.approx(8.0, 0.1)
    assert driver.rows[6]['chronic'] is None
    # The mitigation relieves it between episodes as well: they are shorter than its reaction.
    assert driver.loop.published.watched.slow_osds == {7: row['chronic']['why']}
    assert driver.loop.status()['health'] == [CHRONIC]
    intermittent(100, driver)
    driver.restart()
    driver.osds.counters.clear()
    intermittent(100, driver)
    assert driver.checks == [CHRONIC]
    assert driver.events('chronic-osd') == ['osd.7 is chronically slow']
    assert driver.rows[7]['chronic']['since'] == row['chronic']['since']
    driver.osds.now += 20 * 3600.0
    driver.osds.period = 120.0
    for _ in range(4 * 30):
        driver.turn(120.0)
    assert driver.checks == [CHRONIC], 'a day has passed, but most of it was not observed'
    for _ in range(2 * 30 + 5):
        driver.turn(120.0)
    assert driver.checks == []
    assert driver.events('chronic-osd')[1:] == ['osd.7 is no longer chronically slow']
    assert len(driver.osds.logged) == 2


def test_a_finding_about_an_osd_without_primaries_ends_with_a_reason() -> None:
    """Without reads, a store such as memstore shows no evidence for it or against it."""
    driver = chronic()
    driver.options = replace(driver.options, chronic_period_seconds=3600.0)
    driver.osds.idle, driver.osds.affinity = [7], {7: 0.0}
    for _ in range(119):
        driver.turn(60.0)
    assert driver.checks == [CHRONIC]
    for _ in range(3):
        driver.turn(60.0)
    assert driver.checks == []
    last = [event for event in driver.loop.published.events if event['kind'] == 'chronic-osd'][-1]
    assert last['what'] == 'osd.7 is no longer chronically slow'
    assert 'its primary affinity is 0' in last['why']


def test_a_finding_does_not_outlive_the_device() -> None:
    """The new device has the id of the old one, and its place in CRUSH."""
    driver = chronic()
    driver.osds.slow = {7: 8.0}
    for _ in range(40):
        driver.turn(60.0)
    assert driver.checks == [CHRONIC] and driver.rows[7]['slow']
    driver.osds.slow = {}
    driver.osds.uuids[7] = 'second'
    driver.osds.epoch += 1
    driver.turn(60.0)
    driver.turn(60.0)
    assert driver.checks == [] and not driver.rows[7]['slow']
    assert driver.rows[7]['chronic'] is None and driver.rows[7]['slow_time_ratio'] is None
    last = {event['what']: event['why'] for event in driver.loop.published.events[-2:]}
    assert 'osd.7 was replaced' in last['osd.7 is no longer chronically slow']
    driver.restart()
    driver.minutes(2)
    assert driver.checks == []


def test_nor_does_it_if_the_device_is_replaced_while_no_mgr_is_active() -> None:
    driver = chronic()
    driver.osds.uuids[7] = 'second'
    driver.osds.epoch += 1
    driver.restart()
    driver.osds.counters.clear()
    driver.turn(60.0)
    assert driver.checks == []
    assert driver.rows[7]['chronic'] is None and driver.rows[7]['slow_time_ratio'] is None
    last = [event for event in driver.loop.published.events if event['kind'] == 'chronic-osd'][-1]
    assert last['what'] == 'osd.7 is no longer chronically slow'
    assert last['why'].endswith(': osd.7 was replaced')


def test_nor_do_the_counts_if_its_id_is_removed_in_between() -> None:
    """For less time than passes between two judgements of the counts."""
    driver = chronic()
    driver.osds.period = PERIOD
    driver.turn(PERIOD)
    before = driver.osds.toys[7]
    driver.osds.purge(7)
    driver.turn(PERIOD)
    assert len(driver.rows) == 11
    driver.osds.toys[7] = before
    driver.osds.epoch += 1
    driver.turn(PERIOD)
    row = next(row for row in driver.rows if row['osd'] == 7)
    assert row['chronic'] is None and row['slow_time_ratio'] is None


def test_a_finding_survives_a_failover_while_the_osd_is_down() -> None:
    """A new mgr knows no place of an OSD that it has never seen up."""
    driver = chronic()
    driver.restart()
    driver.osds.counters.clear()
    driver.osds.period = PERIOD
    driver.osds.change = {'counters': {}, 'places': {
        osd: OsdPlace(osd, 'h%d' % osd, 'default', 'hdd') for osd in driver.osds.toys if osd != 7}}
    driver.minutes(2)
    assert driver.checks == [CHRONIC]
    assert driver.osds.checks[CHRONIC]['summary'] == 'osd.7 is chronically slow'
    driver.osds.change = {}
    driver.minutes(2)
    assert driver.checks == [CHRONIC] and driver.rows[7]['chronic']['episodes'] == 22
    assert driver.events('chronic-osd') == ['osd.7 is chronically slow']


def test_a_finding_ends_when_the_osd_is_removed() -> None:
    driver = chronic()
    driver.osds.purge(7)
    driver.turn(60.0)
    assert driver.checks == []


def test_a_finding_ends_when_the_osd_is_down_and_out_and_applies_again_if_it_returns() -> None:
    """A dead drive may stay in the OSDMap for weeks."""
    driver = chronic()
    toy = driver.osds.toys[7]
    for up, reweight, checks in ((False, 1.0, [CHRONIC]), (True, 0.0, [CHRONIC]),
                                 (False, 0.0, []), (True, 1.0, [CHRONIC])):
        driver.osds.toys[7] = toy._replace(up=up, reweight=reweight)
        driver.osds.epoch += 1
        driver.turn(60.0)
        assert driver.checks == checks
    events = [event for event in driver.loop.published.events if event['kind'] == 'chronic-osd']
    assert (events[-2]['what'], events[-1]['what']) == (
        'osd.7 is no longer watched', 'osd.7 is chronically slow')
    assert events[-2]['why'].endswith('it is down')


def test_a_finding_ends_when_the_osd_is_drained_and_applies_again_if_it_gets_pgs() -> None:
    driver = chronic()
    toy = driver.osds.toys[7]
    for weight, pgs, checks in ((0.0, 8, [CHRONIC]), (0.0, 0, []), (1.0, 8, [CHRONIC])):
        driver.osds.toys[7], driver.osds.pgs_of_drained = toy._replace(crush_weight=weight), pgs
        driver.osds.crush_version_ += 1
        driver.osds.epoch += 1
        driver.turn(60.0)
        assert driver.checks == checks
    events = [event for event in driver.loop.published.events if event['kind'] == 'chronic-osd']
    assert events[-2]['what'] == 'osd.7 is no longer chronically slow'
    assert events[-2]['why'].endswith('it has no PGs')


def test_episodes_of_a_chronically_slow_osd_are_not_raised_one_by_one() -> None:
    driver = chronic()
    driver.osds.slow = {7: 8.0}
    while not driver.rows[7]['slow']:
        driver.turn(60.0)
    assert driver.checks == [CHRONIC] and not driver.events('slow-osd')
    assert '; slow now: ' in driver.osds.checks[CHRONIC]['detail'][0]
    assert driver.loop.published.watched.slow_osds == {7: driver.rows[7]['why']}
    for _ in range(35):
        driver.turn(60.0)
    assert driver.checks == [CHRONIC] and not driver.events('slow-osd')


def test_an_osd_that_remains_slow_is_one_finding_and_no_other() -> None:
    driver = Watched()
    driver.osds.period = 60.0
    driver.osds.slow = {7: 3.0}
    checks: List[List[str]] = []
    for minute in range(120):
        driver.turn(60.0)
        checks.append(driver.checks)
        if minute == 20:
            driver.restart()
            driver.osds.counters.clear()
    first = checks.index([CHRONIC])
    # Of each of these long readings, only 15 s count for SLOW.
    assert 24 <= first <= 40 and checks[first - 1] == [SLOW] and checks[-1] == [CHRONIC]
    assert checks[first:] == [[CHRONIC]] * (120 - first)
    assert driver.events('slow-osd') == ['osd.7 is slow'], 'it has not recovered'
    assert driver.events('chronic-osd') == ['osd.7 is chronically slow']


def test_what_is_counted_is_written_four_times_an_hour() -> None:
    driver = chronic()
    written: List[str] = []
    with mock.patch.object(driver.kv, 'set_store', lambda key, _: written.append(key)):
        intermittent(60, driver)
    assert 3 <= written.count('chronic/head') <= 4


def test_a_slow_pool_begins_and_ends() -> None:
    driver = Watched()
    driver.osds.factor = 20.0
    driver.minutes(3)
    assert driver.checks == [LATENCY] and driver.pool['slow'] == ['reads']
    assert driver.pool['read_baseline_ms'] == 1.0
    driver.osds.factor = 1.0
    driver.minutes(3)
    assert driver.checks == [] and len(driver.osds.logged) == 2
    assert driver.osds.logged[0].startswith('reads of pool rep are slower than '
                                            'their baseline (reads take ')
    assert driver.osds.logged[0].endswith(' ms (baseline 1.0 ms))')
    assert driver.events('latency')[1] == 'reads of pool rep are back at their baseline'


# ---- what survives the mgr

def test_flags_and_baselines_survive() -> None:
    driver = Watched()
    driver.osds.slow = {7: 6.0}
    driver.minutes(6)
    driver.osds.factor = 20.0
    driver.osds.trouble = {'laggy': 1}
    driver.minutes(3)
    before, logged = driver.checks, list(driver.osds.logged)
    assert before == [LAGGY, LATENCY, SLOW]
    since = {row['osd']: row['since'] for row in driver.rows}
    driver.restart()
    driver.osds.counters.clear()
    for _ in range(12):
        driver.turn(PERIOD)
        assert driver.checks == before
    assert driver.osds.logged == logged
    assert driver.pool['read_baseline_ms'] == pytest.approx(1.0, abs=0.5)
    assert {row['osd']: row['since'] for row in driver.rows} == since
    driver.osds.slow, driver.osds.factor, driver.osds.trouble = {}, 1.0, {}
    driver.minutes(12)
    assert driver.checks == [] and len(driver.osds.logged) == len(logged) + 3


def test_what_has_not_changed_is_not_written() -> None:
    driver = Watched()
    driver.osds.slow = {7: 6.0}
    driver.minutes(6)
    assert SLOW in driver.checks
    written: List[str] = []
    with mock.patch.object(driver.kv, 'set_store', lambda key, _: written.append(key)):
        driver.minutes(5)
    assert {key for key in written if not key.startswith('chronic/')} == set()


def test_a_baseline_is_removed_with_its_pool() -> None:
    driver = Watched()
    Store(driver.kv).put('baseline/77', {})
    driver.restart()
    driver.run(3)
    # The other pool has no clients.
    assert Store(driver.kv).names('baseline/') == ['baseline/1']


@pytest.mark.parametrize('size, slow', [(4096, True), (1 << 22, False)])
def test_an_osd_with_larger_operations_than_its_peers_is_not_slow(size: int, slow: bool) -> None:
    driver = Watched()
    driver.osds.large = {7: size}
    driver.osds.change = {'pg_writes': [
        PgWrites('2.0' if osd == 7 else '1.%x' % osd, (osd,), Ops(MS, 1000)) for osd in range(12)]}
    driver.minutes(2)
    driver.osds.slow = {7: 4.0}
    driver.minutes(6)
    assert (SLOW in driver.checks) is slow


def test_no_turn_waits_until_the_baselines_of_many_pools_are_removed() -> None:
    driver = Watched()
    store = Store(driver.kv)
    for pool in range(77, 97):
        store.put('baseline/%d' % pool, {})
    driver.restart()
    for _ in range(20):
        before = len(Store(driver.kv).names('baseline/'))
        driver.turn(PERIOD)
        assert before - len(Store(driver.kv).names('baseline/')) == 1
    assert Store(driver.kv).names('baseline/') == ['baseline/1']


@pytest.mark.parametrize('name', ['watch', 'chronic', 'baseline/1'])
@pytest.mark.parametrize('document', [
    None, [], {}, 5, 'x', [[]], [[1, 2]], {'slow': 5, 'laggy_since': 'x', 'latency': 7},
    {'slow': {'0': {'since': {}, 'why': 3}}, 'latency': [[[1], 'reads', 1.0]]},
    {'laggy_since': NAN}, {'latency': [[1, {}, 1.0]]}, {'slow': {'0': 5}},
    {'slow': {}, 'laggy_last': 5}, {'slow': {}, 'laggy_last': {'osd': 3}}, [[NAN] * 6],
    [[10 ** 400] * 6]])
def test_documents_of_a_wrong_shape(name: str, document: Any) -> None:
    driver = Watched()
    Store(driver.kv).put(name, document)
    driver.restart()
    driver.minutes(1)
    assert driver.phase == 'IDLE' and {*driver.checks} <= {'PERFGUARD_INTERRUPTED'}
    json.dumps(driver.loop.status(), allow_nan=False)


@pytest.mark.parametrize('name, document', [
    ('watch', {'slow': {'3': {'since': 'x', 'why': ''}}}), ('watch', {'latency': [[1, 'reads']]}),
    ('chronic', {'3': {'slow': -1.0}}), ('usual', {'osds': {'3': [1.0]}}),
    ('provisional', {'1': {'reads': -1.0}}), ('baseline/1', {'points': [[1.0, 'x']]})])
def test_a_document_that_cannot_be_read_is_set_aside_and_reported(
        name: str, document: Any) -> None:
    driver = Watched()
    Store(driver.kv).put(name, document)
    driver.restart()
    driver.turn(PERIOD)
    assert [name] == [text.partition(':')[0] for text in driver.events('store')]
    assert driver.checks == ['PERFGUARD_INTERRUPTED']
    assert any(key.startswith('damaged/' + name) for key in driver.kv.data)
    # Nothing on the cluster depends on it.
    assert not driver.loop._store.interrupted


def test_what_an_mgr_with_a_fast_clock_has_stored_began_now() -> None:
    driver = Watched()
    later = driver.cluster.now + 1e6
    store = Store(driver.kv)
    store.put('watch', {'slow': {'3': {'since': later, 'why': 'x'}}, 'laggy_since': later,
                        'latency': [[1, 'reads', later]]})
    store.put('chronic', {'3': {'seen': later, 'raised': later}})
    driver.restart()
    driver.loop.turn()
    watch = driver.loop.jobs.watching._watch
    chronic = watch.slow.chronic._counts[3]
    times = [watch.slow.verdicts[3].since, watch.laggy.since, watch.pools.slow()[0].since,
             chronic.seen, chronic.raised]
    assert all(later - 1e6 <= at < later - 9e5 for at in times)


def test_damaged_documents() -> None:
    driver = Watched()
    for key in list(driver.kv.data):
        if key.startswith(('watch/', 'baseline/')):
            driver.kv.data[key] = 'x' + driver.kv.data[key][:20]
    driver.restart()
    driver.turn(PERIOD)
    assert driver.pool['read_baseline_ms'] is None
    assert driver.events('store')
    driver.minutes(2)
    assert driver.pool['read_baseline_ms'] == 1.0


def test_the_perf_query_is_given_back() -> None:
    driver = Watched()
    assert not driver.osds.closed
    driver.loop.close()
    assert driver.osds.closed


def test_the_perf_query_is_given_back_though_the_store_fails() -> None:
    driver = Watched()
    driver.osds.trouble = {'laggy': 1}
    driver.turn(PERIOD)
    driver.ask('prepare', accept=RISKS)
    # Too soon after the reports of the watch for these events to be written.
    driver.turn(1.0)
    driver.osds.fault.error, driver.osds.fault.at = RuntimeError('no mons'), 0
    with pytest.raises(RuntimeError):
        driver.loop.close()
    assert driver.osds.closed


# ---- bad input

BAD = Ops(-1, -1)
NONSENSE: List[Dict[str, Any]] = [
    {'seconds': NAN}, {'seconds': -5.0}, {'seconds': 1e12}, {'counters': {}, 'clients': ()},
    {'places': {}}, {'counters': {}, 'clients': (), 'places': {}},
    {'counters': {-1: OsdCounters(NAN, BAD, BAD, BAD, BAD)}},
    {'clients': (ClientOps(1, 0, Ops(2 ** 64 - 1, 1), Ops(-1, -1)),)},
    {'clients': (ClientOps(99, -5, Ops(), Ops()),)},
    {'osd_counts': {-3: PgCounts(laggy=-5), 9999: PgCounts(total=-1)}},
    {'ping_ms': {1: NAN, 2: -1.0, 3: float('inf'), 9999: 1.0}},
    {'unreadable': {1: (UnreadablePg('9.ffff', 1.0, 1),)}},
    {'untrimmed_epochs': -5}, {'silent': {5: 1e9, -1: NAN}}]


@pytest.mark.parametrize('change', NONSENSE)
def test_nonsense_raises_nothing(change: Mapping[str, Any]) -> None:
    driver = Watched()
    driver.osds.change = change
    driver.minutes(5)
    assert driver.checks == [] and driver.osds.logged == []
    assert driver.loop.published.watched.failure == ''
    for data, plain in (({'osds': driver.rows}, tables.osds), (driver.laggy, tables.laggy),
                        ({'pools': driver.loop.status()['pools']}, tables.pools)):
        assert plain(data)


def test_an_empty_cluster() -> None:
    class Empty(OsdCluster):
        def map_view(self) -> Any:
            return replace(super().map_view(), osdmap=OsdMap(1, frozenset(), {}, {}, {}, {}, {}))

        def signals(self, osdmap: OsdMap) -> Signals:
            return Signals(PgCounts())

        def readings(self, view: object, signals: Signals) -> Readings:
            return self.read
    driver = Driver(Empty())
    driver.run(20)
    published = driver.loop.published
    assert driver.cluster.checks == {} and driver.cluster.logged == []
    assert published.watched.osds == published.watched.pools == ()
    assert driver.loop.status()['pools'] == [] and published.watched.failure == ''


def test_a_watch_that_fails_stops_no_campaign(caplog: pytest.LogCaptureFixture) -> None:
    driver = Watched()
    driver.osds.trouble = {'laggy': 1}
    driver.minutes(0.5)
    assert driver.checks == [LAGGY]
    driver.osds.trouble = {}
    driver.osds.fail = [KeyError('numpg')]
    driver.turn(PERIOD)
    driver.turn(PERIOD)
    driver.to_releasing()
    driver.run_to('DONE')
    assert caplog.text.count('the watch failed to process the readings') == 1
    assert driver.checks == [LAGGY, FAILED]
    status = driver.loop.status()
    assert any("KeyError('numpg')" in reason for reason in status['reasons'])
    assert driver.laggy['pgs'] == []
    driver.osds.fail = ()
    driver.minutes(2)
    assert driver.pool['read_ms'] == 1.0 and driver.checks == []
    assert not any('KeyError' in reason for reason in driver.loop.status()['reasons'])


def test_health_checks_stay_while_the_watch_fails() -> None:
    """A check that is cleared and raised again is reported twice to operators."""
    driver = Watched()
    driver.osds.slow, driver.osds.factor = {7: 6.0}, 20.0
    driver.minutes(6)
    before = dict(driver.osds.checks)
    assert sorted(before) == [LATENCY, SLOW]
    driver.osds.fail = [KeyError('numpg')]
    for _ in range(2):
        driver.turn(PERIOD)
        assert driver.osds.checks == before
    driver.turn(PERIOD)
    found = {**driver.osds.checks}
    failed = found.pop(FAILED)
    assert found == before and failed['summary'] == 'the perfguard watch fails in every iteration'
    assert "KeyError: 'numpg'" in failed['detail'][0]
    driver.minutes(1)
    assert driver.osds.checks[FAILED]['summary'] == failed['summary'], 'the mons log each change'
    driver.osds.fail = ()
    driver.turn(PERIOD)
    assert driver.checks == sorted(before)
    assert driver.loop.published.watched.failure == ''


def test_no_baseline_is_learned_while_a_campaign_moves_pgs() -> None:
    driver = Watched()
    driver.osds.backfill_seconds = 1e6
    driver.to_releasing()
    driver.osds.factor = 2.5
    # The mgr does not know yet that they move.
    driver.osds.trouble = {'active_clean': 24}
    driver.minutes(30)
    assert driver.status['in_flight'] > 0
    assert driver.pool['read_baseline_ms'] == 1.0 and driver.pool['read_ms'] == 2.5


def test_no_baseline_is_learned_while_a_probe_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Watched()
    driver.osds.factor = 1.5
    monkeypatch.setattr(Probing, 'affects_latency', lambda self, now, period: True)
    driver.minutes(30)
    assert driver.pool['read_baseline_ms'] == 1.0 and driver.pool['read_ms'] == 1.5
    monkeypatch.setattr(Probing, 'affects_latency', lambda self, now, period: False)
    driver.minutes(30)
    assert driver.pool['read_baseline_ms'] == 1.5


@pytest.mark.parametrize('probing', [False, True])
def test_how_osds_compare_is_not_learned_while_a_probe_affects_latency(
        monkeypatch: pytest.MonkeyPatch, probing: bool) -> None:
    driver = Watched()
    learned: List[bool] = []
    judge = SlowOsds.round

    def noted(self: SlowOsds, reading: OsdReading, settings: SlowSettings) -> Work[None]:
        learned.append(reading.learning)
        return judge(self, reading, settings)

    monkeypatch.setattr(SlowOsds, 'round', noted)
    monkeypatch.setattr(Probing, 'affects_latency', lambda self, now, period: probing)
    driver.minutes(1)
    assert set(learned) == {not probing}


def test_misplaced_objects_have_an_explanation() -> None:
    class Misplaced(OsdCluster):
        def signals(self, osdmap: OsdMap) -> Signals:
            return replace(super().signals(osdmap), misplaced_ratio=0.0312)
    driver = Driver(Misplaced())
    driver.turn()
    assert '3.12 % of the objects are misplaced, and no campaign moves them' in \
        driver.loop.status()['reasons']
    driver.to_pinned()
    assert '3.12 % of the objects are misplaced, and campaign 1 moves none now' in \
        driver.loop.status()['reasons']
    driver = Driver(Misplaced())
    driver.to_releasing()
    driver.turn()
    assert any(reason.startswith('3.12 % of the objects are misplaced: campaign 1 moves ')
               for reason in driver.loop.status()['reasons'])


# ---- history

def test_history() -> None:
    driver = Watched()
    assert driver.loop.history_of('cluster', False)
    assert driver.loop.history_of('rep', False) and driver.loop.history_of('osd.3', False)
    assert driver.loop.history_of('osd.99', False) is None
    assert driver.loop.history_of('nothing', True) is None


def test_how_latency_varies_while_nothing_moves_survives_the_mgr() -> None:
    """A new mgr could not learn it while a campaign moves data."""
    watched = Watched()
    watched.osds.slow = {3: 1.5}
    watched.minutes(10)
    before = watched.loop.jobs.watching.clients
    assert before.norms[3] == pytest.approx(1.5, rel=0.05)
    watched.restart()
    watched.osds.trouble = {'active_clean': 0, 'backfilling': 4}
    watched.minutes(0.5)
    after = watched.loop.jobs.watching.clients
    assert after.norms == pytest.approx(before.norms, rel=0.1)


def test_provisional_baselines_survive_the_mgr() -> None:
    """An expansion may begin minutes after the module was enabled, and take weeks."""
    watched = Watched(baseline_seconds=600.0)
    assert not watched.loop.jobs.watching._store.names('baseline/')
    before = watched.loop.jobs.watching.clients.pools[1].read_baseline_ms
    assert before is not None
    # Seconds of quiet while the campaign continues do not suffice for another one.
    for trouble in (False, True):
        watched.restart()
        watched.osds.trouble = {'active_clean': 0, 'backfilling': 4} if trouble else {}
        watched.minutes(0.25)
        after = watched.loop.jobs.watching.clients.pools
        assert after[1].read_baseline_ms == pytest.approx(before, rel=0.05)
        assert after[1].write_baseline_ms is None and after[2].read_baseline_ms is None


def test_provisional_baselines_are_removed_once_no_pool_needs_one() -> None:
    watched = Watched(baseline_seconds=600.0)
    store = watched.loop.jobs.watching._store
    assert store.get('provisional') == {'1': {'reads': pytest.approx(1.0, rel=0.05)}}
    watched.minutes(10)
    assert store.get('provisional') is None


@pytest.mark.parametrize('change', [{'silent': {5: 16.0}}, {'unreported': 'all are late'}])
def test_the_throttle_knows_when_an_osd_was_silent_last(change: Dict[str, Any]) -> None:
    watched = Watched()
    assert watched.loop.jobs.watching.clients.silent == 0.0
    watched.osds.change = change
    watched.turn(PERIOD)
    silent = watched.loop.jobs.watching.clients.time
    watched.osds.change = {}
    watched.minutes(1)
    clients = watched.loop.jobs.watching.clients
    assert clients.silent == silent < clients.time


def test_the_status_says_why_it_is_not_known_which_osds_hang() -> None:
    watched = Watched()
    for text in ('all are late', ''):
        watched.osds.change = {'unreported': text}
        watched.turn(PERIOD)
        assert ('all are late' in watched.loop.status()['reasons']) is bool(text)


def test_operations_of_the_last_minute_are_for_the_throttle() -> None:
    watched = Watched()
    watched.minutes(2)
    clients = watched.loop.jobs.watching.clients
    for pool, row in ((pool, clients.pools[pool]) for pool in clients.pools):
        of_pool = [each for each in clients.rows if each.pool == pool]
        waited = sum(each.read[0] + each.write[0] for each in of_pool) / 1e9
        assert row.in_progress == pytest.approx(waited / clients.seconds, rel=0.3)
        reads = sum(each.read[1] for each in of_pool) / clients.seconds
        assert row.read_minute.ops == pytest.approx(60.0 * reads, rel=0.3)


def test_how_latency_varies_is_written_seldom() -> None:
    watched = Watched()
    written: List[str] = []
    put = watched.loop.jobs.watching._store.put

    def noted(name: str, document: Any) -> None:
        written.append(name)
        put(name, document)

    setattr(watched.loop.jobs.watching._store, 'put', noted)
    for minute in range(130):
        watched.osds.slow = {minute % 12: 1.2}
        watched.minutes(1)
    assert 1 <= written.count('usual') <= 4


@pytest.mark.parametrize('document', [
    [], {'osds': [], 'pools': 7}, {'osds': {'3': [1.0, NAN, 600], 'x': [1, 1, 1]}},
    {'osds': {'3': None}, 'pools': {'1': {'reads': [1]}, 'y': {}}}])
def test_nonsense_about_how_latency_varies_is_passed_over(document: Any) -> None:
    watched = Watched()
    watched.loop.jobs.watching._store.put('usual', document)
    watched.osds.trouble = {'active_clean': 0, 'backfilling': 4}
    watched.restart()
    watched.turn(PERIOD)
    assert 3 not in watched.loop.jobs.watching.clients.norms
