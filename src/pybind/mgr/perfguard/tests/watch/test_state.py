# SPDX-License-Identifier: LGPL-2.1-or-later
"""Parts of the state of the watch."""
from dataclasses import replace
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

import pytest

from perfguard.cluster.types import (ClientLoad, ClientOps, KvBytes, ObjectLoad, Ops, Osd,
                                     OsdCounters, OsdMap, OsdPlace, PgCounts, PgReads, PgWrites,
                                     Placement, Pool, Pressure, Readings, Signals, UnreadablePg)
from perfguard.options import DEFAULTS
from perfguard.watch import state
from perfguard.watch.causes import HOT_LOAD, ExtraWork, KvWrites, LikelyCause, OsdEvidence
from perfguard.watch.chronic import _Count
from perfguard.watch.laggy import LaggySignals, Suspect
from perfguard.watch.osds import OsdReads
from perfguard.watch.state import (ACCEPT_SECONDS, BACKFILL_SECONDS, DEGRADED_SECONDS,
                                   LAGGY_SECONDS, MISPLACED_SECONDS, RECOVERED_BYTES,
                                   SLOW_OP_SECONDS, ExtraWorks, LaggyState, PeerMedians, Reported,
                                   WatchContext, WatchState, kv_writes)
from perfguard.watch.slow_osds import StoredSlow
from perfguard.watch.slowness import SlowSettings
from perfguard.watch.steps import ClusterChange, Step
from perfguard.watch.stop_conditions import Touched
from perfguard.watch.types import (DELETION, RESTART, SCRUB, Alarm, Chronic, Flow, OsdReading,
                                   OsdVerdict, SlowPart, SlowShared)


@pytest.mark.parametrize('laggy, waiting, since', [
    (Alarm(), Alarm(), 0.0), (Alarm(True, 5.0), Alarm(), 5.0), (Alarm(), Alarm(True, 4.0), 4.0),
    (Alarm(True, 5.0), Alarm(True, 4.0), 4.0),
    # One that is not raised yet.
    (Alarm(True, 5.0), Alarm(False, 4.0), 5.0)])
def test_pgs_are_laggy_since_the_first_of_them_was(
        laggy: Alarm, waiting: Alarm, since: float) -> None:
    state = LaggyState(laggy, waiting)
    assert (state.since, state.raised) == (since, bool(since))


#: Four disks and two flash drives.
PLACES = {osd: OsdPlace(osd, 'h', 'default', 'ssd' if osd > 4 else 'hdd') for osd in range(1, 7)}


@pytest.mark.parametrize('numbers, medians', [
    ({1: 1.0, 2: 5.0, 3: 9.0, 5: 7.0}, {1: 5.0, 2: 1.0, 3: 1.0, 4: 5.0, 5: 0.0, 6: 7.0, 99: 0.0}),
    ({1: 4.0, 2: 4.0, 3: 4.0, 4: 4.0}, {1: 4.0, 4: 4.0, 6: 0.0}),
    # Of three others, and of two.
    ({1: 1.0, 2: 2.0, 3: 4.0, 4: 8.0}, {1: 4.0, 2: 4.0, 3: 2.0, 4: 2.0})])
def test_medians_of_the_peers_of_an_osd(
        numbers: Dict[int, float], medians: Dict[int, float]) -> None:
    """Without the OSD itself; those without a number have 0."""
    peers = PeerMedians(numbers, PLACES)
    assert {osd: peers.of_peers(osd) for osd in medians} == medians


@pytest.mark.parametrize('numbers, medians', [
    ({1: 1.0, 2: 2.0, 3: 5.0}, {1: 3.5, 2: 3.0, 3: 1.5}), ({1: 4.0, 2: 7.0}, {1: 7.0, 2: 4.0}),
    ({1: 4.0}, {1: 0.0}), ({1: 0.0}, {1: 0.0})])
def test_medians_of_few_peers(numbers: Dict[int, float], medians: Dict[int, float]) -> None:
    peers = PeerMedians(numbers, {osd: PLACES[osd] for osd in numbers})
    assert {osd: peers.of_peers(osd) for osd in medians} == medians


@pytest.mark.parametrize('readings, written', [
    ([], {}), ([(10.0, {1: KvBytes(0, 0)})], {}),
    # From the first to the last reading that it is in.
    ([(0.0, {2: KvBytes(9, 9)}), (10.0, {1: KvBytes(100, 10)}), (15.0, {1: KvBytes(0, 0)}),
      (20.0, {1: KvBytes(300, 40)}), (30.0, {})], {1: KvWrites(20.0, 3.0, 0.0)}),
    # Beside a peer, and an OSD of another class.
    ([(10.0, {1: KvBytes(0, 0), 2: KvBytes(0, 0), 5: KvBytes(0, 0)}),
      (20.0, {1: KvBytes(200, 30), 2: KvBytes(100, 10), 5: KvBytes(900, 90)})],
     {1: KvWrites(20.0, 3.0, 10.0), 2: KvWrites(10.0, 1.0, 20.0), 5: KvWrites(90.0, 9.0, 0.0)}),
    # It has written nothing, or was restarted.
    ([(10.0, {1: KvBytes(5, 5)}), (20.0, {1: KvBytes(5, 5)})], {1: KvWrites(0.0, 0.0, 0.0)}),
    ([(10.0, {1: KvBytes(5, 5)}), (20.0, {1: KvBytes(4, 9)})], {}),
    ([(10.0, {1: KvBytes(5, 5)}), (20.0, {1: KvBytes(9, 4)})], {}),
    # Those without a place are left out.
    ([(10.0, {99: KvBytes(5, 5)}), (20.0, {99: KvBytes(9, 9)})], {})])
def test_what_rocksdb_writes(readings: Sequence[Tuple[float, Mapping[int, KvBytes]]],
                             written: Dict[int, KvWrites]) -> None:
    assert kv_writes(readings, PLACES) == written


# ---- work besides client operations

def backfills(**pgs: int) -> Dict[int, PgCounts]:
    return {int(osd[3:]): PgCounts(backfilling=number) for osd, number in pgs.items()}


def test_what_an_osd_does_more_than_its_peers() -> None:
    works = ExtraWorks()
    assert not works.known
    works.update(100.0, 95.0, {1: PgCounts(backfilling=2, deep_scrubbing=1), 2: PgCounts(
        backfilling=1), 3: PgCounts(backfilling=1), 5: PgCounts(snaptrim=7)}, PLACES, 60.0)
    assert works.known
    # Twice as much as the median of the others.
    assert works.of(1, 200.0) == (ExtraWork('deep_scrub', 1, 0.0, True),
                                  ExtraWork('backfill', 2, 1.0, True))
    assert works.of(2, 200.0) == () and works.of(5, 200.0) == (
        ExtraWork('snaptrim', 7, 0.0, True),)
    # What may have begun before the first reading.
    assert {work.was_first for work in works.of(1, 99.0)} == {None}
    works.update(105.0, 100.0, {1: PgCounts(backfilling=3), 2: PgCounts(backfilling=2),
                                3: PgCounts(backfilling=2)}, PLACES, 60.0)
    assert works.of(1, 200.0) == () and works.of(5, 200.0) == ()
    # PGs that it deletes are in no acting set.
    works.update(110.0, 105.0, {}, PLACES, 60.0, {2: 6, 3: 1, 4: 1})
    assert works.of(2, 200.0) == (ExtraWork('deletion', 6, 1.0, True),)
    assert works.of(3, 200.0) == ()


@pytest.mark.parametrize('slow_since, was_first', [
    (1000.0, True), (195.0, True), (194.9, None), (165.0, None), (164.9, False), (1.0, False)])
def test_whether_work_began_before_an_osd_was_slow(slow_since: float,
                                                   was_first: Optional[bool]) -> None:
    """It began between two readings, of 195 and of 200 s; an OSD may be slow for half a minute less
    than it seems."""
    works = ExtraWorks()
    works.update(200.0, 195.0, {}, PLACES, 60.0)
    works.update(205.0, 200.0, backfills(osd1=2), PLACES, 60.0)
    assert works.of(1, slow_since) == (ExtraWork('backfill', 2, 0.0, was_first),)


@pytest.mark.parametrize('slow_since, was_first', [(99.9, None), (100.0, True), (500.0, True)])
def test_work_that_lasts_since_before_the_first_reading(slow_since: float,
                                                        was_first: Optional[bool]) -> None:
    works = ExtraWorks()
    for now in (100.0, 105.0):
        works.update(now, now - 5.0, backfills(osd1=2), PLACES, 60.0)
    assert works.of(1, slow_since)[0].was_first is was_first


@pytest.mark.parametrize('pauses, was_first', [
    # It lasts in two readings in a row, however far apart, and through short pauses.
    ((500.0,), True), ((10.0, 50.0), True), ((10.0, 50.1), False), ((70.0, 80.0), False)])
def test_whether_work_is_the_same_as_before(pauses: Sequence[float], was_first: bool) -> None:
    """`pauses`: seconds until readings, of which only the last one shows it again."""
    works = ExtraWorks()
    works.update(100.0, 95.0, {}, PLACES, 60.0)
    works.update(105.0, 100.0, backfills(osd1=2), PLACES, 60.0)
    now = 105.0
    for pause in pauses[:-1]:
        works.update(now + pause, now + pause - 5.0, {}, PLACES, 60.0)
        assert works.of(1, 110.0) == ()
    now += sum(pauses) if len(pauses) > 1 else pauses[0]
    works.update(now, now - 5.0, backfills(osd1=1), PLACES, 60.0)
    work, = works.of(1, 97.0)
    assert work.pgs == 1 and (work.was_first is True) is was_first


# ---- turns

class Turns:
    """A WatchState and its inputs; nothing moves unless a test says so. Six OSDs."""

    def __init__(self) -> None:
        self.watch = WatchState()
        self.now = 1e9
        self.pools = {1: Pool(1, 'rbd', False, 3, 2, 0, 8, 8, 8),
                      2: Pool(2, 'ec', True, 3, 2, 0, 8, 8, 8)}
        self.places: Mapping[int, OsdPlace] = dict(PLACES)
        self.osds = {osd: Osd(osd, True, 1.0) for osd in PLACES}
        self.counts: Dict[str, int] = {}
        self.signals: Dict[str, Any] = {}
        self.options = DEFAULTS

    def context(self, **fields: Any) -> WatchContext:
        osdmap = OsdMap(9, frozenset(), self.pools, self.osds, {}, {}, {})
        signals = Signals(PgCounts(**{'total': 64, 'active_clean': 64, **self.counts}),
                          **self.signals)
        return replace(WatchContext(self.now, signals, osdmap, lambda pgid: Placement(
            (1, 2, 3), (1, 2, 3)), 5.0), **fields)

    def turn(self, after: float = 5.0, context: Mapping[str, Any] = {}, **readings: Any) -> None:
        self.now += after
        self.watch.update(self.context(**context), replace(
            Readings(5.0, {}, (), self.places), **readings), self.options)


def slow_verdicts(since: float, *osds: int) -> Dict[int, OsdVerdict]:
    return {osd: OsdVerdict(osd, 3.0, True, since, 'slow') for osd in osds}


#: Nothing moves although PGs are not clean: CRUSH finds too few OSDs for them.
UNDERSIZED = {'active_clean': 60}


@pytest.mark.parametrize('counts, fields, settled, quiet', [
    ({}, {}, True, True), ({}, {'in_flight': 1}, False, False),
    (UNDERSIZED, {}, True, True), (UNDERSIZED, {'in_flight': 1}, False, False),
    *(({**UNDERSIZED, name: 1}, {}, False, False)
      for name in ('in_transition', 'recovering', 'backfilling', 'backfill_wait')),
    # The OSDs of a PG are lost.
    ({**UNDERSIZED, 'inactive': 1}, {}, True, True),
    ({'recovering': 1}, {}, True, True),
    ({'laggy': 1}, {}, True, False), ({'wait': 1}, {}, True, False),
    ({}, {'idle': False}, False, False)])
def test_when_baselines_learn(monkeypatch: pytest.MonkeyPatch, counts: Dict[str, int],
                              fields: Dict[str, Any], settled: bool, quiet: bool) -> None:
    """`settled`: no operation waits for a PG that moves."""
    turns = Turns()
    rows: List[Any] = []
    monkeypatch.setattr(turns.watch.pools, 'update', lambda *args: rows.append(args))
    quiet_rows: List[Any] = []
    monkeypatch.setattr(turns.watch.quiet_ops, 'update', lambda *args: quiet_rows.append(args))
    turns.counts = counts
    turns.turn(context={'probed': Touched({3}, {2}), **fields})
    assert (turns.watch.why_not_quiet == 'a campaign moves PGs, or a probe is active') is (
        'idle' in fields)
    (now, seconds, ops, pools, is_quiet, _, probed, idle_and_settled), = rows
    assert (now, seconds, ops, pools, probed) == (turns.now, 5.0, {}, turns.pools, {2})
    assert (is_quiet, idle_and_settled) == (quiet, settled)
    assert quiet_rows == [(turns.now, quiet, ())]


@pytest.mark.parametrize('change, why', [
    ({'signals': {'slow_ops': 1}}, 'operations are slow'),
    ({'signals': {'slow_ops': 1, 'muted': {'SLOW_OPS'}}}, ''),
    ({'signals': {'slow_ops': 3, 'slow_daemons': {'osd.3': 2, 'osd.1': 1}}},
     'operations on osd.1, osd.3 are slow'),
    ({'signals': {'slow_ops': 2, 'slow_daemons': {'osd.3': 2}, 'muted': {'OSD_DOWN'}}},
     'operations on osd.3 are slow'),
    ({'signals': {'slow_ops': 2, 'slow_daemons': {'osd.3': 2}, 'muted': {'SLOW_OPS'}}}, ''),
    # Clients do not wait for mons.
    ({'signals': {'slow_ops': 9, 'slow_daemons': {'mon.a': 9}}}, ''),
    ({'signals': {'recovery_bytes_per_second': 1.0}}, 'objects are recovered'),
    ({'counts': {'laggy': 1}}, 'PGs are laggy'),
    ({'counts': {'recovering': 1, 'active_clean': 63}}, 'PGs peer, move or recover'),
    ({'counts': UNDERSIZED, 'osds': {3: Osd(3, False, 1.0)}}, 'PGs peer, move or recover'),
    ({'osds': {3: Osd(3, False, 1.0)}}, ''),
    ({'counts': UNDERSIZED, 'osds': {3: Osd(3, False, 0.0)}}, '')])
def test_other_problems_teach_no_baseline(monkeypatch: pytest.MonkeyPatch,
                                          change: Dict[str, Any], why: str) -> None:
    turns = Turns()
    rows: List[bool] = []
    monkeypatch.setattr(turns.watch.quiet_ops, 'update',
                        lambda now, is_quiet, counted: rows.append(is_quiet))
    for name, value in change.items():
        setattr(turns, name, value)
    turns.turn()
    assert rows == [not why] and turns.watch.why_not_quiet == why


@pytest.mark.parametrize('slow, quiet', [(0, True), (1, True), (2, False)])
def test_slow_operations_of_few_osds_prevent_no_baseline(
        monkeypatch: pytest.MonkeyPatch, slow: int, quiet: bool) -> None:
    """One of a hundred."""
    turns = Turns()
    rows: List[bool] = []
    monkeypatch.setattr(turns.watch.quiet_ops, 'update',
                        lambda now, is_quiet, counted: rows.append(is_quiet))
    turns.places = {osd: OsdPlace(osd, 'h', 'default', 'hdd') for osd in range(100)}
    turns.turn()
    turns.signals = {'slow_ops': 5, 'slow_daemons': {
        'mon.a': 5 - slow, **{'osd.%d' % osd: 1 for osd in range(slow)}}}
    turns.turn()
    assert rows == [True, quiet]


@pytest.mark.parametrize('slow, age, quiet', [
    ((), 0.0, True), ((1,), 0.0, True), ((1, 2), 0.0, False),
    ((1, 2), ACCEPT_SECONDS - 1.0, False), ((1, 2), ACCEPT_SECONDS, True)])
@pytest.mark.parametrize('of_part', [False, True])
def test_few_slow_osds_and_old_ones_prevent_no_baseline(
        monkeypatch: pytest.MonkeyPatch, slow: Sequence[int], age: float, quiet: bool,
        of_part: bool) -> None:
    """One of a hundred; a part of a class counts in any case."""
    turns = Turns()
    rows: List[bool] = []
    monkeypatch.setattr(turns.watch.quiet_ops, 'update',
                        lambda now, is_quiet, counted: rows.append(is_quiet))
    turns.places = {osd: OsdPlace(osd, 'h', 'default', 'hdd') for osd in range(100)}
    since = turns.now + 5.0 - age
    if of_part:
        turns.watch.slow._parts.parts = (SlowPart('default', 'hdd', (1,), '', 3.0, since, ''),) \
            if slow else ()
    else:
        turns.watch.slow.verdicts = slow_verdicts(since, *slow)
    turns.turn()
    assert rows == [quiet and not (of_part and slow == (1,))]
    assert turns.watch.why_not_quiet == ('' if rows == [True] else (
        'a part of the OSDs of a class is slow' if of_part
        else '2 OSDs have become slow within a day'))


def test_norms_learn_from_osds_that_are_not_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    turns.places = {osd: OsdPlace(osd, 'h', 'default', 'hdd') for osd in range(100)}
    rows: List[Any] = []
    monkeypatch.setattr(turns.watch.norms, 'update',
                        lambda clients, baselines: rows.append([row.osd for row in clients]))
    clients = tuple(ClientOps(1, osd, Ops(10 ** 6, 1), Ops()) for osd in (1, 2, 3))
    turns.watch.slow.verdicts = slow_verdicts(turns.now, 2)
    turns.turn(clients=clients)
    assert rows == [[1, 3]] and turns.watch.norms.places is turns.places
    turns.counts = {'laggy': 1}
    turns.turn(clients=clients)
    assert len(rows) == 1


@pytest.mark.parametrize('seconds, is_counted', [
    (0.0, False), (-0.5, False), (0.5, True), (120.0, True), (120.5, False)])
def test_which_readings_are_intervals(monkeypatch: pytest.MonkeyPatch, seconds: float,
                                      is_counted: bool) -> None:
    turns = Turns()
    updates: List[Any] = []
    monkeypatch.setattr(turns.watch.pools, 'update', lambda *args: updates.append(args))
    turns.turn(seconds=seconds)
    assert len(updates) == is_counted
    points = turns.watch.history_of('cluster', {}, False)
    assert points is not None
    assert [point.seconds for point in points] == [seconds] * is_counted


def test_the_history_of_the_cluster() -> None:
    turns = Turns()
    turns.counts = {'laggy': 2, 'degraded': 3, 'backfilling': 4, 'backfill_wait': 5}
    turns.signals = {'slow_ops': 6, 'misplaced_ratio': 0.5, 'recovery_bytes_per_second': 7.0}
    turns.turn(seconds=10.0, clients=(
        ClientOps(1, 1, Ops(100, 1), Ops(2000, 2)), ClientOps(2, 1, Ops(30000, 3), Ops(400000, 4)),
        ClientOps(1, 2, Ops(7, 5), Ops(8, 6))))
    points = turns.watch.history_of('cluster', {}, False)
    assert points is not None
    sums = points[0].sums
    assert sums[:4] == (9, 30107, 12, 402008) and len(sums) == 10
    assert {column: sums[column] for column in range(4, 10)} == {
        LAGGY_SECONDS: 20.0, DEGRADED_SECONDS: 30.0, BACKFILL_SECONDS: 90.0,
        SLOW_OP_SECONDS: 60.0, MISPLACED_SECONDS: 5.0, RECOVERED_BYTES: 70.0}


@pytest.mark.parametrize('subject, is_known', [
    ('cluster', True), ('rbd', True), ('osd.1', True), ('osd.000000001', True),
    ('osd.0000000001', False), ('osd.2', False), ('osd.', False), ('osd.x', False),
    ('osd.\u00b9', False), ('osd.\u0661', False), ('xosd.1', False), ('ec', False), ('x', False)])
def test_whose_history_is_known(subject: str, is_known: bool) -> None:
    turns = Turns()
    for number in (1, 2):
        turns.turn(clients=(ClientOps(1, 1, Ops(100, 1), Ops()),), counters={
            1: OsdCounters(turns.now, Ops(number, number), Ops(), Ops(), Ops())})
    points = turns.watch.history_of(subject, {'rbd': 1, 'ec': 7}, False)
    assert (points is not None) is is_known
    if subject == 'osd.1':
        assert turns.watch.history_of(subject, {'osd.1': 7}, False) == points, 'a pool is osd.1'


def test_what_charts_draw() -> None:
    turns = Turns()
    turns.pools = {number: Pool(number, 'p%d' % number, False, 3, 2, 0, 8, 8, 8)
                   for number in (1, 2, 3)}
    for _ in range(3):
        turns.turn(clients=tuple(ClientOps(pool, 1, Ops(100, 100 * pool), Ops())
                                 for pool in turns.pools))
    names = {1: 'p1', 2: 'p2', 3: 'p3'}

    def drawn(since: float, pools: Sequence[int], names: Mapping[int, str], limit: int) -> Any:
        return turns.watch.drawn(since, pools, names, limit)

    assert list(drawn(0.0, [], names, 2)['pools']) == ['3', '2'], 'the busiest'
    assert list(drawn(0.0, [1, 2, 3], names, 9)['pools']) == ['1', '2', '3']
    # Those that are gone do not count.
    assert list(drawn(0.0, [1, 2, 3], {2: 'p2', 3: 'p3'}, 1)['pools']) == ['2']
    for since, rows in ((0.0, 3), (turns.now - 5.0, 1), (turns.now - 5.0009, 1),
                        (turns.now - 5.0011, 2), (turns.now, 0)):
        chart = drawn(since, [2], names, 9)
        assert len(chart['cluster']['rows']) == len(chart['pools']['2']['rows']) == rows
    assert chart['pools']['2']['pool'] == 'p2'
    turns.turn(context={'in_flight': 3})
    cluster = drawn(turns.now - 5.0, [], names, 9)['cluster']
    assert cluster['rows'][-1][cluster['columns'].index('in_flight')] == 3.0
    assert drawn(0.0, [7], {7: 'new'}, 9)['pools']['7']['rows'] == []


# ---- readings that are kept

def test_readings_that_were_not_taken_leave_the_last_ones() -> None:
    turns = Turns()
    counts, pings = {1: PgCounts(total=3)}, {1: 2.5}
    turns.turn(osd_counts=counts, ping_ms=pings, untrimmed_epochs=7, silent={4: 9.0},
               unreported='why', counters={1: counters(0.0, 1)._replace(deleting=2),
                                           2: counters(0.0, 1)})
    watch = turns.watch
    assert (watch.deleting, watch.silent, watch.unreported) == ({1: 2}, {4: 9.0}, 'why')
    assert watch.places is turns.places
    for _ in range(2):
        assert (watch.osd_counts, watch.ping_ms, watch.untrimmed_epochs) == (counts, pings, 7)
        turns.turn()
    assert (watch.deleting, watch.silent, watch.unreported) == ({}, {}, '')


def test_devices_that_osds_share() -> None:
    turns = Turns()
    turns.places = {1: PLACES[1]._replace(devices=('h:sda', 'h:nvme')),
                    2: PLACES[2]._replace(devices=('h:nvme', 'h:sdb')), 3: PLACES[3],
                    4: PLACES[4]._replace(devices=('h:sdc',))}
    turns.turn()
    assert turns.watch.devices == {1: ['h:nvme'], 2: ['h:nvme']}


def client_load(osd: int, ops: int, pool: int = 1, client: str = 'client.1') -> ClientLoad:
    return ClientLoad(client, 'a', pool, osd, ops)


def test_the_last_loads_are_kept_while_something_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    turns.turn(client_loads=(client_load(1, 100), client_load(2, 90, client='client.2')))
    assert [row.client for row in turns.watch.heavy_clients(1)] == ['client.1']
    assert turns.watch.heavy_clients(2) == ()
    for alarms, any_slow, kept in (([1], False, True), ([], True, True), ([], False, False)):
        monkeypatch.setattr(turns.watch.pools, 'slow', lambda: alarms)
        monkeypatch.setattr(type(turns.watch.slow), 'any_slow', any_slow)
        for _ in range(6):
            turns.turn()
        assert bool(turns.watch.heavy_clients(1)) is kept
    # New ones replace them, also if they are of clients alone.
    monkeypatch.setattr(turns.watch.pools, 'slow', lambda: [1])
    turns.turn(client_loads=(client_load(1, 100, client='client.7'), client_load(2, 90)))
    assert [row.client for row in turns.watch.heavy_clients(1)] == ['client.7']


@pytest.mark.parametrize('load_ratio, ops, codes', [
    (3.0, 50, ['replicas']),
    (HOT_LOAD, 50, ['replicas']), (HOT_LOAD - 0.01, 50, []), (HOT_LOAD, 49, ['pool'])])
def test_why_an_osd_has_more_load(monkeypatch: pytest.MonkeyPatch, load_ratio: float, ops: int,
                                  codes: List[str]) -> None:
    """Those of clients count if the median OSD serves fifty of them."""
    turns = Turns()
    turns.turn(client_loads=(client_load(1, 50), *(client_load(osd, ops) for osd in (2, 3, 4))))
    monkeypatch.setattr(turns.watch.slow, 'load_ratio', lambda osd: load_ratio)
    causes = turns.watch.load_of(1, turns.context())
    assert [cause.code for cause in causes] == codes


@pytest.mark.parametrize('weights, load_ratio, codes', [
    ({1: 16.0}, 2.0, []), ({1: 16.0}, 2.99, []), ({1: 16.0}, 3.0, ['load']),
    # Half as large as the others; not in CRUSH; and before the CRUSH map is known.
    ({1: 4.0}, 1.5, ['load']), ({1: 0.0}, 1.5, ['load']), (None, 2.0, ['load']),
    # Others are as large, have another weight than PGs, or are of another class.
    ({1: 16.0, 2: 16.0, 3: 16.0}, 2.0, ['load']), ({1: 16.0, 2: 0.0, 3: 0.0}, 2.0, []),
    ({1: 16.0, 5: 16.0, 6: 16.0}, 2.0, [])])
def test_a_larger_drive_should_serve_more(
        monkeypatch: pytest.MonkeyPatch, weights: Optional[Dict[int, float]], load_ratio: float,
        codes: List[str]) -> None:
    turns = Turns()
    turns.turn()
    known = {} if weights is None else {**dict.fromkeys(PLACES, 8.0), **weights}
    monkeypatch.setattr(turns.watch.slow, 'load_ratio', lambda osd: load_ratio)
    causes = turns.watch.load_of(1, turns.context(weights=known))
    assert [cause.code for cause in causes] == codes
    assert all(cause.evidence == {'load_ratio': load_ratio} for cause in causes)


def test_a_larger_drive_with_a_lower_reweight_should_serve_no_more(
        monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    turns.osds[1] = Osd(1, True, 0.5)
    turns.turn()
    monkeypatch.setattr(turns.watch.slow, 'load_ratio', lambda osd: 2.0)
    context = turns.context(weights={**dict.fromkeys(PLACES, 8.0), 1: 16.0})
    assert [cause.code for cause in turns.watch.load_of(1, context)] == ['load']


@pytest.mark.parametrize('large, codes', [(4, []), (5, ['load'])])
def test_large_drives_have_the_peers_with_which_their_load_is_compared(
        monkeypatch: pytest.MonkeyPatch, large: int, codes: List[str]) -> None:
    """Five of a model are peers of each other; fewer have the drives of all models as peers."""
    turns = Turns()
    turns.places = {osd: OsdPlace(osd, 'h%d' % osd, 'default', 'hdd', 'L' if osd < large else 'S')
                    for osd in range(12)}
    turns.turn()
    monkeypatch.setattr(turns.watch.slow, 'load_ratio', lambda osd: 2.0)
    context = turns.context(weights={osd: 16.0 if osd < large else 8.0 for osd in range(12)})
    assert [cause.code for cause in turns.watch.load_of(1, context)] == codes


def test_the_evidence_on_a_slow_osd(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    given: List[OsdEvidence] = []

    def causes(facts: OsdEvidence) -> Tuple[LikelyCause, ...]:
        given.append(facts)
        return ()

    monkeypatch.setattr(state, 'causes', causes)
    turns.places = {**PLACES, 6: PLACES[6]._replace(host='h2')}
    turns.osds[1] = Osd(1, True, 1.0, fullness='nearfull')
    turns.options = replace(DEFAULTS, slow_osd_factor=2.5)
    turns.turn(kv_bytes={1: KvBytes(0, 0)})

    def facts(osd: int) -> OsdEvidence:
        assert turns.watch.causes_of(osd, turns.context()) == ()
        return given[-1]

    assert not facts(1).work_known and facts(1).kv_writes is None
    turns.turn(osd_counts={})
    turns.turn(osd_counts={1: PgCounts(backfilling=2)}, ping_ms={1: 3.0},
               kv_bytes={1: KvBytes(100, 10)}, client_loads=(client_load(1, 60),),
               object_loads=(ObjectLoad('x', 1, 1, 9), ObjectLoad('y', 1, 2, 9)))
    turns.watch.slow.verdicts = slow_verdicts(turns.now, 1)
    shared = SlowShared(('host', 'h'), (1, 2), 5, (), 3.0, 1.0, 'slow')
    turns.watch.slow._shared = (shared,)
    seen = facts(1)
    assert (seen.osd, seen.ratio, seen.host, seen.host_osds) == (1, 2.5, 'h', (1, 2, 3, 4, 5))
    assert seen.shared == shared and seen.fullness == 'nearfull' and seen.ping_ms == {1: 3.0}
    assert seen.work_known and seen.work == (ExtraWork('backfill', 2, 0.0, True),)
    assert seen.kv_writes == KvWrites(10.0, 1.0, 0.0)
    assert list(seen.clients) == [client_load(1, 60)]
    assert list(seen.objects) == [ObjectLoad('x', 1, 1, 9)]
    assert seen.pool_names == {1: 'rbd', 2: 'ec'} and seen.load_ratio == 1.0
    # Of another one, less is known, and nothing of an unknown one.
    assert facts(6).shared is None and facts(6).host_osds == (6,) and facts(6).work == ()
    stranger = facts(99)
    assert (stranger.host, stranger.host_osds, stranger.fullness, stranger.shared) == (
        '', (), '', None)


# ---- which OSDs serve a pool

def served(pool: int, osd: int, reads: int = 1, writes: int = 0) -> ClientOps:
    return ClientOps(pool, osd, Ops(reads, reads), Ops(writes, writes))


@pytest.mark.parametrize('row, on_disks', [
    (served(1, 1), True), (served(1, 1, 0, 1), True), (served(1, 1, 0, 0), False),
    (served(1, 5), False), (served(1, 99), False), (served(2, 1), False)])
def test_whether_disks_serve_a_pool(row: ClientOps, on_disks: bool) -> None:
    turns = Turns()
    turns.turn(clients=(row,))
    assert turns.watch.is_on_disks(1) is on_disks


def test_a_pool_that_has_moved_to_flash_is_on_disks_for_an_hour() -> None:
    turns = Turns()
    turns.turn(clients=(served(1, 1),))
    # What serves it is noted once a minute.
    for after, on_disks in ((59.875, True), (0.125, True), (3540.0, True), (59.875, True),
                            (0.125, False)):
        turns.turn(after, clients=(served(1, 5),))
        assert turns.watch.is_on_disks(1) is on_disks, turns.now
    # An idle pool stays where it was.
    turns.turn(8000.0)
    turns.turn(5.0, clients=(served(1, 1),))
    assert turns.watch.is_on_disks(1)


@pytest.mark.parametrize('after, on_disks', [
    (0.0, False), (0.5, False), (59.875, False), (60.0, True),
    # The clock was set back.
    (-0.5, True), (-100.0, True)])
def test_how_often_it_is_noted_what_serves_a_pool(after: float, on_disks: bool) -> None:
    turns = Turns()
    turns.turn(clients=(served(1, 5),))
    turns.turn(after, clients=(served(1, 1),))
    assert turns.watch.is_on_disks(1) is on_disks
    del turns.pools[1]
    turns.turn()
    assert not turns.watch.is_on_disks(1)


def test_the_operations_of_other_pools_on_the_same_osds() -> None:
    turns = Turns()
    turns.pools = {number: Pool(number, 'p%d' % number, False, 3, 2, 0, 8, 8, 8)
                   for number in range(1, 6)}
    turns.places = {**PLACES, 7: PLACES[1]._replace(root='other')}
    for _ in range(2):
        turns.turn(clients=(served(1, 1, 50), served(2, 2, 100, 50), served(3, 5, 500),
                            served(4, 1, 5), served(4, 5, 5), served(5, 7, 5)))
    assert turns.watch.others_rates == pytest.approx(
        {1: 32.0, 2: 12.0, 3: 2.0, 4: 140.0, 5: 0.0})
    del turns.pools[2]
    turns.turn()
    assert sorted(turns.watch.others_rates) == [1, 3, 4, 5]


# ---- replaced OSDs

def test_what_is_forgotten_with_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    calls: List[Any] = []
    watch = turns.watch

    def note(part: object, method: str) -> None:
        original = getattr(part, method)

        def noted(*args: Any) -> None:
            calls.append((method, *map(set, args)))
            original(*args)

        monkeypatch.setattr(part, method, noted)

    note(watch.slow, 'forget')
    note(watch.norms, 'forget_others')
    note(watch.rounds, 'finish')
    turns.osds = {osd: replace(row, uuid='first') for osd, row in turns.osds.items()}
    turns.turn()
    # The id is away for a while.
    third = turns.osds.pop(3)
    turns.turn()
    calls.clear()
    turns.osds[3] = replace(third, uuid='second')
    turns.turn()
    assert calls[:3] == [('finish',), ('forget', {3}), ('forget_others', {1, 2, 4, 5, 6})]
    calls.clear()
    turns.turn()
    assert calls == [('forget_others', {1, 2, 3, 4, 5, 6})]
    assert watch.stored_chronic() == {}


def test_counts_of_slow_time_that_an_earlier_mgr_has_stored_are_of_the_same_device() -> None:
    for uuid in ('first', 'second'):
        turns = Turns()
        turns.osds[3] = Osd(3, True, 1.0, uuid=uuid)
        turns.watch.load_chronic({3: _Count(slow=9e4, evidence=1e5, seen=turns.now, raised=5.0,
                                            uuid='first')})
        turns.turn()
        assert list(turns.watch.stored_chronic()) == [3] * (uuid == 'first')


def test_of_which_osds_the_counts_of_slow_time_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    calls: List[Any] = []
    monkeypatch.setattr(turns.watch.slow.chronic, 'keep',
                        lambda osds, away: calls.append((set(osds), set(away))))
    turns.osds = {1: Osd(1, True, 1.0), 2: Osd(2, False, 1.0), 3: Osd(3, False, 0.0),
                  4: Osd(4, True, 0.0), 5: Osd(5, False, 0.0, destroyed=True)}
    turns.turn()
    assert calls == [({1, 2, 3, 4}, {3, 5})]
    turns.osds = {}
    turns.turn()
    assert len(calls) == 1, 'the initial OSDMap'


@pytest.mark.parametrize('reweight, weights, pgs, is_away', [
    (1.0, {2: 0.0}, 0, True), (1.0, {2: 0.0}, 1, False), (1.0, {2: 0.0001}, 0, True),
    (1.0, {2: 0.5}, 0, False), (1.0, {}, 0, True), (0.0, {2: 0.5}, 0, True),
    (0.0, {2: 0.5}, 1, False), (1.0, None, 0, False),
    # It has not reported yet.
    (1.0, {2: 0.0}, None, False)])
def test_a_drained_osd_is_not_reported_as_chronically_slow(
        reweight: float, weights: Optional[Dict[int, float]], pgs: Optional[int],
        is_away: bool) -> None:
    """`weights`: CRUSH weights; None: they are not known."""
    turns = Turns()
    turns.osds[2] = Osd(2, True, reweight)
    turns.watch.load_chronic({2: _Count(slow=9e4, evidence=1e5, seen=turns.now, raised=5.0)})
    read = {} if pgs is None else {2: counters(turns.now, 1)._replace(pgs=pgs)}
    known = {} if weights is None else {1: 1.0, **weights}
    turns.turn(counters=read, context={'weights': known})
    chronic = turns.watch.slow.chronic
    assert list(chronic.standing) == ([] if is_away else [2])
    # It gets its PGs back.
    turns.turn(counters={2: counters(turns.now, 1)._replace(pgs=3)}, context={'weights': {2: 1.0}})
    assert list(chronic.standing) == [2]


# ---- the reading that is judged

class Judged:
    """What rounds are given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, turns: Turns) -> None:
        self.rows: List[Tuple[OsdReading, SlowSettings]] = []
        self.passes: List[int] = []
        begin = turns.watch.rounds.begin

        def judge(reading: OsdReading, settings: SlowSettings) -> Any:
            self.rows.append((reading, settings))
            return iter(())

        def begun(now: float, work: Any, osds: int, turns_per_reading: int) -> None:
            passes = list(work)
            self.passes += passes
            begin(now, iter(passes), osds, turns_per_reading)  # type: ignore

        monkeypatch.setattr(turns.watch.slow, 'round', judge)
        monkeypatch.setattr(turns.watch.rounds, 'begin', begun)

    @property
    def reading(self) -> OsdReading:
        return self.rows[-1][0]


def counters(now: float, number: int) -> OsdCounters:
    ops = Ops(number * 10 ** 6, number)
    return OsdCounters(now, ops, ops, ops, ops, ops, ops)


def test_what_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    judged = Judged(monkeypatch, turns)
    turns.options = replace(DEFAULTS, slow_osd_factor=2.5, slow_osd_seconds=40.0,
                            chronic_period_seconds=7200.0)
    turns.osds[4] = Osd(4, True, 1.0, primary_affinity=0.0)
    for number in (1, 2):
        turns.turn(counters={osd: counters(turns.now, 100 * number) for osd in (1, 2)},
                   osd_counts={1: PgCounts(deep_scrubbing=1)},
                   clients=(served(1, 1, 100), served(1, 2, 100)),
                   context={'probed': Touched({5}, set())} if number == 2 else {})
    reading, settings = judged.rows[-1]
    assert settings == SlowSettings(2.5, seconds=40.0, memory_seconds=7200.0)
    assert reading.now == turns.now and reading.places is turns.places
    assert [(sample.osd, sample.read) for sample in reading.samples] == [
        (osd, Flow(20.0, 1.0)) for osd in (1, 2)]
    assert reading.busy == {1: SCRUB} and reading.busy_read == turns.now - 5.0
    assert reading.learning and reading.settled and reading.observed == 5.0
    assert reading.replicas_only == {4} and reading.probed == {5} and reading.partners == {}
    # Two OSDs.
    assert judged.passes == [6, 6]
    assert turns.watch.rounds.ended == 2
    turns.turn(context={'probing': True, 'in_flight': 1})
    assert not judged.reading.learning and not judged.reading.settled
    assert judged.reading.probed == set()


@pytest.mark.parametrize('after, observed', [(5.0, 5.0), (15.0, 15.0), (16.0, 15.0), (-5.0, 0.0)])
def test_how_much_of_an_interval_was_observed(monkeypatch: pytest.MonkeyPatch, after: float,
                                              observed: float) -> None:
    turns = Turns()
    judged = Judged(monkeypatch, turns)
    turns.turn()
    assert judged.reading.observed == 0.0
    turns.turn(after)
    assert judged.reading.observed == observed


def test_what_is_read_during_a_round_is_judged_with_the_next(
        monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    judged = Judged(monkeypatch, turns)
    turns.turn()
    rounds = turns.watch.rounds
    with monkeypatch.context() as patch:
        patch.setattr(type(rounds), 'idle', False)
        turns.turn(context={'probed': Touched({1}, set())})
        turns.turn(context={'probing': True})
        turns.turn(context={'in_flight': 1}, osd_counts={1: PgCounts(deep_scrubbing=1)},
                   counters={1: counters(0.0, 1)})
        assert len(judged.rows) == 1
    turns.turn(osd_counts={})
    reading = judged.reading
    assert reading.probed == {1} and not reading.learning and not reading.settled
    assert reading.busy == {1: SCRUB} and reading.observed == 20.0
    turns.turn()
    assert judged.reading.learning and judged.reading.settled and judged.reading.busy == {}
    assert judged.reading.observed == 5.0
    turns.turn(counters={1: counters(turns.now, 2)._replace(deleting=2)})
    assert judged.reading.busy == {1: DELETION}
    turns.turn(counters={1: counters(turns.now, 1)})
    assert judged.reading.busy == {1: RESTART}


def pg_writes(pool: int, ms: float, *acting: int) -> Tuple[PgWrites, ...]:
    """Of six PGs."""
    return tuple(PgWrites('%d.%x' % (pool, seed), acting, Ops(int(ms * 1e8), 100))
                 for seed in range(6))


def test_replicated_writes_are_the_faster_ones_of_two_readings(
        monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    judged = Judged(monkeypatch, turns)
    number = 0

    def replica(after: float = 5.0, probed: FrozenSet[int] = frozenset(),
                **readings: Any) -> Optional[Flow]:
        nonlocal number
        number += 1
        turns.turn(after, counters={osd: counters(turns.now, 100 * number) for osd in (1, 2)},
                   context={'probed': Touched(probed, frozenset())}, **readings)
        samples = {sample.osd: sample for sample in judged.reading.samples}
        return Flow(*samples[2].replica) if 2 in samples else None

    assert replica() is None
    slow, fast = pg_writes(1, 9.0, 1, 2), pg_writes(1, 1.0, 1, 2)
    assert replica(pg_writes=slow, pg_seconds=10.0) == Flow()
    known = replica(pg_writes=slow, pg_seconds=10.0)
    assert known is not None and known.rate == 60.0 and known.ms == pytest.approx(9.0)
    # It remains known in between.
    assert replica() == known
    faster = replica(pg_writes=fast, pg_seconds=10.0)
    assert faster is not None and faster.ms == pytest.approx(1.0)
    # One slow reading is not enough; PGs of OSDs that a probe has loaded do not count.
    assert replica(pg_writes=slow, pg_seconds=10.0) == faster
    assert replica(probed=frozenset({1})) == faster
    assert replica(pg_writes=slow, pg_seconds=10.0) == Flow()
    assert replica(pg_writes=slow, pg_seconds=10.0) == Flow()
    again = replica(pg_writes=slow, pg_seconds=10.0)
    assert again is not None and again.ms == pytest.approx(9.0)


def test_reads_of_erasure_coded_pools_are_no_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    judged = Judged(monkeypatch, turns)
    for number in (1, 2):
        turns.turn(counters={osd: counters(turns.now, 100 * number) for osd in (1, 2)},
                   clients=(served(1, 1, 100), served(2, 2, 100)))
    assert [sample.read[0] for sample in judged.reading.samples] == [20.0, 0.0]


def test_sizes_and_partners_of_osds_are_judged_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    judged = Judged(monkeypatch, turns)
    turns.watch.slow.slow_replicas = {1}
    for _ in range(2):
        turns.turn(clients=(served(1, 1, 10)._replace(read_bytes=40960),))
    assert judged.reading.partners == {1: {1, 2, 3}}
    assert judged.reading.sizes[1].read == 4096.0


def test_drives_are_compared_by_their_firmware(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    given: List[Any] = []

    def firmwares(*args: Any) -> Dict[str, Any]:
        given.append(args)
        return {}

    monkeypatch.setattr(state, 'firmwares', firmwares)
    turns.turn()
    drives: Dict[str, Any] = {'h:sda': None}
    turns.watch.causes_of(1, turns.context(drives=drives))
    turns.turn()
    turns.watch.causes_of(1, turns.context())
    assert given == [(turns.places, {}, drives), (turns.places, {}, {})]


def test_which_osds_are_slow() -> None:
    turns = Turns()
    watch = turns.watch
    watch.slow.verdicts = slow_verdicts(5.0, 2, 1)
    standing = Chronic(2, 1.0, 1.0, 1.0, 0.1, 3, 5.0, 'chronic')
    watch.slow.chronic._standing = {osd: standing._replace(osd=osd) for osd in (2, 4)}
    assert watch.slow_osds() == {1: 'slow', 2: 'slow', 4: 'chronic'}
    step = Step(1, 'reads', 4.0, 6.0, Flow(), Flow())
    assert watch.changes_around(step) == [ClusterChange(
        5.0, 'osd.%d' % osd, 'as fast as its peers', 'slow') for osd in (1, 2)]


@pytest.mark.parametrize('affinity, mode, is_read', [
    (True, 'act', True), (True, 'observe', True), (True, 'off', False), (False, 'act', False)])
def test_reads_of_slow_osds_are_read_if_their_affinity_may_be_lowered(
        monkeypatch: pytest.MonkeyPatch, affinity: bool, mode: str, is_read: bool) -> None:
    turns = Turns()
    monkeypatch.setattr(turns.watch, 'slow_osds', lambda: {3: 'slow'})
    turns.options = replace(DEFAULTS, mitigation_affinity=affinity, mitigation_mode=mode)
    for _ in range(3):
        turns.turn(pg_reads={3: (PgReads('1.0', (3, 1), 7), PgReads('2.0', (3, 1), 5))})
    assert turns.watch.reads.osds_to_read == ({3} if is_read else set())
    assert turns.watch.reads.sums_by_osd() == ({3: OsdReads(21, 0, 15)} if is_read else {})


# ---- laggy PGs

def test_the_alarm_on_laggy_pgs_ends_after_three_periods() -> None:
    turns = Turns()
    turns.counts = {'laggy': 1}
    turns.turn(seconds=0.5)
    assert turns.watch.laggy.alarm.raised
    turns.counts = {}
    for seconds, is_raised in ((14.0, True), (0.5, True), (0.5, False)):
        turns.turn(seconds=seconds)
        assert turns.watch.laggy.alarm.raised is is_raised


def test_pgs_may_wait_for_half_a_minute() -> None:
    turns = Turns()
    turns.counts = {'wait': 1}
    for seconds, is_raised in ((29.5, False), (0.5, True)):
        turns.turn(seconds=seconds)
        assert turns.watch.laggy.waiting.raised is is_raised
    assert not turns.watch.laggy.alarm.raised
    turns.counts = {}
    turns.turn(seconds=0.5)
    assert not turns.watch.laggy.waiting.raised


@pytest.mark.parametrize('seconds, is_raised', [(99.5, True), (100.0, False)])
def test_unreported_pgs_clear_nothing_for_five_minutes(seconds: float, is_raised: bool) -> None:
    turns = Turns()
    for _ in range(2):
        # What is reported in between counts.
        turns.counts = {'laggy': 1}
        turns.turn()
        turns.counts = {'unreported': 1}
        turns.turn(seconds=100.0)
        turns.turn(seconds=100.0)
        assert turns.watch.laggy.alarm.raised
    turns.turn(seconds=seconds)
    assert turns.watch.laggy.alarm.raised is is_raised


def test_the_first_readings_of_unreported_pgs_clear_nothing_either() -> None:
    turns = Turns()
    # By an earlier mgr.
    turns.watch.laggy.alarm = Alarm(True, 5.0)
    turns.counts = {'unreported': 1}
    for seconds in (0.5, 0.5, 100.0, 100.0, 98.5):
        turns.turn(seconds=seconds, context={'period': 0.125})
        assert turns.watch.laggy.alarm.raised


def test_the_work_of_unreported_pgs_is_not_known() -> None:
    turns = Turns()
    turns.counts = {'unreported': 1}
    turns.turn(osd_counts={1: PgCounts(backfilling=1)})
    assert not turns.watch._work.known
    turns.counts = {}
    turns.turn(osd_counts={1: PgCounts(backfilling=1)})
    assert turns.watch._work.of(1, turns.now) != ()


@pytest.mark.parametrize('counts', [{'laggy': 1}, {'wait': 1}])
def test_the_suspects_of_laggy_pgs(counts: Dict[str, int]) -> None:
    turns = Turns()
    turns.counts = counts
    suspected = {osd: PgCounts(total=4, laggy=4) for osd in (1, 2)}
    for _ in range(7):
        turns.turn(osd_counts=suspected, silent={2: 30.0},
                   unreadable={1: (UnreadablePg('1.0', 4.0, 9),)})
    laggy = turns.watch.laggy
    assert [pg.pgid for pg in laggy.pgs.all()] == ['1.0']
    assert laggy.suspects[0].osd == 2 and laggy.last_episode is not None
    assert (laggy.last_episode.osd, laggy.last_episode.until) == (2, 0.0)
    turns.counts = {}
    for _ in range(3):
        turns.turn()
        assert laggy.suspects == () and not laggy.pgs.all()
    assert laggy.last_episode is not None and laggy.last_episode.until > 0.0
    until = laggy.last_episode.until
    turns.turn()
    assert laggy.last_episode.until == until


def test_suspects_are_noted_once_the_alarm_is_raised() -> None:
    turns = Turns()
    turns.counts = {'wait': 1}
    turns.turn(osd_counts={2: PgCounts(total=4, laggy=4)}, silent={2: 30.0})
    assert turns.watch.laggy.suspects and turns.watch.laggy.last_episode is None


@pytest.mark.parametrize('after, is_known', [(60.0, True), (60.125, False)])
def test_for_how_long_it_is_known_how_busy_threads_are(
        monkeypatch: pytest.MonkeyPatch, after: float, is_known: bool) -> None:
    turns = Turns()
    pressures: List[Any] = []

    def suspects(signals: LaggySignals) -> Tuple[Suspect, ...]:
        pressures.append((signals.total, signals.pressures))
        return ()

    monkeypatch.setattr(state, 'suspects', suspects)
    turns.counts = {'laggy': 2, 'wait': 3}
    turns.turn(pressures={4: Pressure(0.9)})
    turns.turn(after)
    assert pressures == [(5, {4: Pressure(0.9)}), (5, {4: Pressure(0.9)} if is_known else {})]


# ---- state that survives a failover

def test_what_the_next_mgr_knows() -> None:
    turns = Turns()
    watch = turns.watch
    reported = (Reported('SLOW', 'osd.3', 5.0),)
    assert watch.stored(reported).laggy_since is None
    turns.counts = {'laggy': 1}
    turns.turn(osd_counts={2: PgCounts(total=4, laggy=4)}, silent={2: 30.0},
               software={osd: ('18.2.7', '6.1') for osd in PLACES})
    stored = watch.stored(reported)
    assert stored.laggy_since == turns.now - 5.0 and stored.told == reported
    assert stored.laggy_last is not None and stored.laggy_last.osd == 2
    assert stored.release.release == '18.2.7'
    after = WatchState()
    after.load(stored, turns.now)
    assert after.laggy.raised and after.laggy.since == turns.now - 5.0
    assert after.laggy.last_episode == stored.laggy_last and after.release == stored.release
    assert after.stored(reported) == stored
    slow = WatchState()
    slow.load(replace(stored, slow={3: StoredSlow(5.0, 'slow')}), turns.now)
    assert slow.slow_osds() == {3: 'slow'}
    calm = WatchState()
    calm.load(replace(stored, laggy_since=None), turns.now)
    assert not calm.laggy.raised
