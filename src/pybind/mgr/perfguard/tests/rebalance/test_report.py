# SPDX-License-Identifier: LGPL-2.1-or-later
"""What commands, events and the ledger say of a campaign."""
import json
from dataclasses import replace
from typing import Any, List, Tuple

import pytest

from perfguard.cluster.types import UpmapEntry
from perfguard.errors import Code, Reason
from perfguard.ledger import Held
from perfguard.observation import Observation
from perfguard.rebalance.bill import Bill, BorrowedSetting
from perfguard.rebalance.campaign import NO_CAMPAIGN, Campaign
from perfguard.rebalance.moves import Move, movement_of
from perfguard.rebalance.progress import Arrivals, Limits
from perfguard.rebalance.report import (ReleasePreview, bill_event, bill_json, campaign_rows, eta,
                                        pinned_count, idle_reasons, progress_share, progress_text,
                                        release_preview_json, stalled, status, status_json,
                                        summary, possible_leftovers, waits_for_window)
from perfguard.rebalance.types import Flight, Holds, Phase, PinRecord
from perfguard.rebalance.weights import WeightChange
from perfguard.upmap.pins import Unpinnable
from perfguard.watch.op_counts import OpCounts, OpLevel, OpLevels, Tail

from ..fakes.campaigns import campaign_of, changed
from .test_phases import OPTIONS, Machine, out_of_hours

GIB = 1 << 30
PIN = PinRecord(UpmapEntry(), UpmapEntry())
#: The second of two tranches.
SECOND = WeightChange(tranche=1, following=2)


def flight(since: float = 0.0, size: int = GIB) -> Flight:
    return Flight(since, UpmapEntry(), bytes=size)


def campaign(phase: Any = Phase.RELEASING, **changes: Any) -> Campaign:
    return campaign_of(7, phase, 5.0, **{
        'total': 12, 'released': 3, 'kept': 2, 'bytes_done': 3 * GIB, **changes})


def shown(subject: Campaign, *reasons: Reason, **changes: Any) -> Any:
    moves = movement_of([Move('1.%d' % seed, (0,), (1,), 0, GIB) for seed in range(4)], 4, 1)
    return status(subject, {'1.%d' % seed: PIN for seed in range(6)}, moves, reasons,
                  replace(OPTIONS, **changes), 1000.0)


def test_the_status_of_a_campaign() -> None:
    flights = {'1.4': flight(), '1.5': flight(), '2.0': flight()}
    row = shown(campaign(in_flight=flights, left=1))
    assert (row.id, row.phase, row.total, row.moving) == (7, Phase.RELEASING, 12, 10)
    # Of those in flight, one was never pinned.
    assert (row.pinned, row.in_flight, row.released, row.kept) == (4, 3, 3, 3)
    assert (row.bytes_done, row.bytes_total) == (3 * GIB, 10 * GIB)
    assert row.done_ratio == 0.3 and (row.tranche, row.tranches) == (0, 0)
    assert (row.limit, row.started, row.ended) == (1, 5.0, None)


@pytest.mark.parametrize('phase, limit', [(Phase.HOLDING, 0), (Phase.RELEASING, 1)])
def test_nothing_may_be_in_flight_while_releases_wait(phase: Phase, limit: int) -> None:
    assert shown(campaign(phase)).limit == limit


@pytest.mark.parametrize('phase, prepared, expected', [
    (Phase.PREPARED, True, Phase.PREPARED), (Phase.PREPARED, False, Phase.IDLE),
    (Phase.PINNING, False, Phase.PINNING)])
def test_a_campaign_is_idle_until_its_settings_are_in_force(phase: Phase, prepared: bool,
                                                            expected: Phase) -> None:
    assert shown(campaign(phase, prepared=prepared)).phase is expected


@pytest.mark.parametrize('paused, seconds, until', [
    (True, 60.0, 960.0), (True, 0.0, 0.0), (False, 60.0, 0.0)])
def test_when_a_pause_ends(paused: bool, seconds: float, until: float) -> None:
    row = shown(campaign(paused=paused, paused_counted=900.0, paused_seconds=seconds))
    assert (row.paused, row.paused_until) == (paused, until)


def test_further_tranches_count_as_much_as_those_so_far() -> None:
    """3 GiB have arrived and 4 are left of the first two tranches; two more follow."""
    row = shown(campaign(change=SECOND))
    assert (row.tranche, row.tranches) == (2, 4)
    assert row.bytes_total == 14 * GIB and row.done_ratio == 0.5 * 0.3
    ended = shown(campaign(Phase.DONE, change=SECOND))
    assert ended.bytes_total == 3 * GIB


@pytest.mark.parametrize('total, released, kept, change, share', [
    (0, 0, 0, None, 0.0), (10, 4, 2, None, 0.5), (10, 9, 2, None, 1.0), (2, 0, 2, None, 1.0),
    (2, 0, 2, SECOND, 0.5), (10, 4, 2, SECOND, 0.25)])
def test_the_share_that_is_done(total: int, released: int, kept: int, change: Any,
                                share: float) -> None:
    assert progress_share(campaign(
        total=total, released=released, kept=kept, change=change)) == share


def test_the_json_of_a_status() -> None:
    row = shown(campaign(
        phase=Phase.PINNED, released=1, total=5, kept=2, unpinnable={
            '1.b': Unpinnable('two'), '1.a': Unpinnable('one')},
        limits=Limits({'A': 1.0, 'B': 2.0})), Reason(Code.LAGGY, 'a PG is laggy'))
    data = status_json(replace(row, eta=(60.0, 30.0, 90.0)))
    assert (data['id'], data['phase'], data['done_ratio']) == (7, 'PINNED', 0.3333)
    assert (data['eta_seconds'], data['eta_low_seconds'], data['eta_high_seconds']) == (
        60.0, 30.0, 90.0)
    assert [item['pgid'] for item in data['unpinnable']] == ['1.a', '1.b']
    assert data['limit_shares'] == {'A': 0.3333, 'B': 0.6667}
    assert data['reasons'] == ['a PG is laggy'] and data['limits'][0]['code'] == 'LAGGY'
    assert data['paused_until'] is None and data['started'] == 5.0
    none = status_json(shown(NO_CAMPAIGN))
    assert none['id'] is none['started'] is none['eta_seconds'] is none['bill'] is None
    json.dumps(data)


def test_the_pins_of_pgs_in_flight_are_not_held_back() -> None:
    pins = {'1.0': PIN, '1.1': PIN, '1.2': PIN}
    assert pinned_count(campaign(in_flight={'1.0': flight(), '2.0': flight()}), pins) == 2


def test_the_json_of_a_preview() -> None:
    preview = ReleasePreview(movement_of([Move('1.0', (0,), (1,), 0, GIB)], 1, 1), 3,
                             {'1.1': Unpinnable('a hole')})
    data = release_preview_json(preview)
    assert (data['pgs'], data['shards'], data['bytes'], data['remapped']) == (1, 1, GIB, 3)
    assert data['estimated_seconds'] == 24.5 and data['estimate_basis'] == 'assumed'
    assert [row['osd'] for row in data['osds']] == [0, 1]
    assert data['unpinnable'][0]['pgid'] == '1.1'


# ---- Time

@pytest.mark.parametrize('phase, paused, waits', [
    (Phase.HOLDING, False, True), (Phase.HOLDING, True, False), (Phase.RELEASING, False, False)])
def test_releases_wait_for_the_time_window(phase: Phase, paused: bool, waits: bool) -> None:
    subject, now = campaign(phase, paused=paused), 1.5e9
    assert waits_for_window(subject, out_of_hours(OPTIONS, now), now) == waits
    assert not waits_for_window(subject, OPTIONS, now)
    assert not waits_for_window(subject, replace(OPTIONS, begin_time='never'), now)


def seen() -> Observation:
    return replace(Machine().observe(), now=100000.0)


#: More than half an hour ago; the last release was exactly then.
IDLE = {'phase_since': 90000.0, 'excused': 90000.0, 'copied': 98200.0, 'progressed': 98200.0}


@pytest.mark.parametrize('changes, idle', [
    ({}, 1800), ({'progressed': 98201.0}, None),
    ({'progressed': 98000.0, 'copied': 98000.5}, 1999),
    # Copied bytes are progress, and so is a phase that has begun.
    ({'copied': 98201.0}, None), ({'phase_since': 98201.0}, None),
    # Maintenance is an excuse.
    ({'excused': 98201.0}, None), ({'excused': 98200.0}, 1800),
    # The campaign waits for the operator.
    ({'paused': True}, None), ({'phase': Phase.DONE}, None),
    ({'phase': Phase.PREPARED, 'prepared': True}, None),
    ({'phase': Phase.PREPARED, 'prepared': False}, 1800), ({'phase': Phase.PINNED}, None),
    ({'phase': Phase.PINNED, 'automatic': True}, 1800)])
def test_a_campaign_without_progress(changes: Any, idle: Any) -> None:
    subject = campaign(**{**IDLE, **changes})
    text = stalled(subject, seen(), replace(OPTIONS, stalled_after=1800.0))
    assert text == (None if idle is None else 'campaign 7 is %s and has made no progress for %d s'
                    % (subject.phase.value, idle))


def test_a_campaign_that_waits_for_its_time_window_is_not_stalled() -> None:
    observation = seen()
    options = replace(out_of_hours(OPTIONS, observation.wall), stalled_after=1800.0)
    subject = campaign(Phase.HOLDING, **IDLE)
    assert stalled(subject, observation, options) is None
    assert stalled(changed(subject, in_flight={'1.0': flight()}), observation, options)


@pytest.mark.parametrize('changes, seconds', [
    # 8 GiB in 40 s; the 4 GiB that wait leave one OSD for another, one PG at a time.
    ({}, 40.0), ({'paused': True}, None), ({'phase': Phase.PINNED}, None),
    ({'phase': Phase.HOLDING}, 40.0)])
def test_the_time_left_of_a_campaign(changes: Any, seconds: Any) -> None:
    arrivals = Arrivals((GIB,) * 8, flown=40.0, busy=40.0)
    waiting = movement_of([Move('1.%d' % seed, (0,), (1,), 0, GIB) for seed in range(4)], 4, 1)
    subject = campaign(**{'arrivals': arrivals, **changes})
    found = eta(subject, 8 * GIB, waiting.osds, OPTIONS, 1000.0)
    assert (found and found.seconds) == seconds


@pytest.mark.parametrize('source, target, seconds', [(1, 2, 160.0), (2, 1, 160.0), (4, 4, 40.0)])
def test_the_time_left_is_at_least_that_of_the_longest_queue(source: int, target: int,
                                                             seconds: float) -> None:
    """4 GiB at 1 GiB in 40 s, one or four at a time."""
    arrivals = Arrivals((GIB,) * 8, flown=320.0, busy=40.0)
    waiting = movement_of([Move('1.%d' % seed, (0,), (1,), 0, GIB) for seed in range(4)], 4, 1)
    options = replace(OPTIONS, max_backfills_source=source, max_backfills_target=target)
    found = eta(campaign(arrivals=arrivals), 4 * GIB, waiting.osds, options, 1000.0)
    assert found is not None and found.seconds == seconds


# ---- Texts

@pytest.mark.parametrize('subject, remapped, code, text', [
    (campaign(Phase.DONE), 1, Code.REMAPPED, '1 PG is remapped, and no campaign is active: '
     '"campaign prepare", then "campaign pin"'),
    (campaign(Phase.DONE, left=1), 0, Code.ENDED,
     'campaign 7 is DONE: 3 PGs released, 3 kept as upmaps'),
    (NO_CAMPAIGN, 0, Code.NO_CAMPAIGN, 'no campaign is active')])
def test_why_there_is_no_campaign(subject: Campaign, remapped: int, code: str, text: str) -> None:
    assert idle_reasons(subject, remapped) == [Reason(code, text)]


def test_the_text_of_a_progress_event() -> None:
    assert progress_text(campaign()) == 'perfguard campaign 7: RELEASING, 3 of 10 PGs released'


# ---- The bill

BOUNDS = (10 ** 6, 2 * 10 ** 6, 10 ** 7)
BILL = Bill(
    required_bytes=2 * GIB, quiet=OpLevels(OpLevel(p50_ms=1.23456, p99_ms=7.5)),
    phases={'RELEASING': 290.4, 'PINNED': 9.8}, ops=1000,
    moving=OpCounts(BOUNDS, (0.0, 99.0, 1.0), (100.0,)), tails={'still reads': Tail(995, 9, 1)},
    settings={'flag/norebalance': BorrowedSetting('norebalance', 12.6),
              'mgr/balancer/active': BorrowedSetting('false', 3.0, held=False, left=True),
              'pg_autoscale_mode': BorrowedSetting('off', 3.4, held=False),
              'osd/osd_max_scrubs': BorrowedSetting('0', 3.0)})
BILLED = campaign(Phase.DONE, first_epoch=10, last_epoch=41, bill=BILL,
                  limits=Limits({'LATENCY': 4.6}))
SLOW = '9 over 100 ms (movement explains 0, and not 9; unknown 0); 1 over 1 s' \
    ' (movement explains 0, and not 1; unknown 0)'
P99 = 'p99 of reads 2.00 ms (before: 7.50 ms); p99 of writes 0.99 ms'
SETTINGS = 'still borrowed: flag norebalance, osd_max_scrubs of the OSDs;' \
    ' changed by others and left alone: mgr/balancer/active'
WHAT = 'campaign 7: 3.0 GiB moved (the change required 2.0 GiB) in 5 min, 31 OSDMap epochs'


def test_what_an_event_says_of_a_bill() -> None:
    assert bill_event(BILLED) == (WHAT, '; '.join([P99, SLOW, SETTINGS]))


GIVEN_BACK = {'pg_autoscale_mode': BILL.settings['pg_autoscale_mode']}


@pytest.mark.parametrize('bill, parts', [
    ({'settings': {}}, [P99, SLOW, 'no settings were borrowed']),
    ({'settings': GIVEN_BACK}, [P99, SLOW, 'all borrowed settings are given back']),
    ({'ops': 2000}, [P99, SLOW + ', of 50 % of the operations', SETTINGS]),
    ({'tails': {'still reads': Tail(995, 0, 0)}}, [P99, '0 over 100 ms; 0 over 1 s', SETTINGS]),
    ({'ops': 0}, [P99, SETTINGS]),
    ({'moving': OpCounts()}, [SLOW, SETTINGS])])
def test_what_an_event_says_of_other_bills(bill: Any, parts: List[str]) -> None:
    assert bill_event(replace(BILLED, bill=replace(BILL, **bill)))[1] == '; '.join(parts)


@pytest.mark.parametrize('required, begun, text', [
    (None, False, ''), (None, True, ''), (0, False, ' (the change required 0 B)'),
    (GIB, True, ' (the change required 1.0 GiB, and the way back what had moved of it)')])
def test_what_an_event_says_of_the_required_bytes(required: Any, begun: bool, text: str) -> None:
    subject = changed(BILLED, bill=replace(BILL, required_bytes=required), begun=begun)
    assert bill_event(subject)[0].partition(' moved')[2].partition(' in ')[0] == text


def test_the_json_of_a_bill() -> None:
    data: Any = bill_json(BILLED)
    settings = data.pop('settings')
    assert data == {
        'bytes_moved': 3 * GIB, 'bytes_required': 2 * GIB, 'rolled_back': False,
        'phase_seconds': {'RELEASING': 290, 'PINNED': 10}, 'limit_seconds': {'LATENCY': 5},
        'latency_before': {'read_p50_ms': 1.235, 'read_p99_ms': 7.5, 'write_p50_ms': None,
                           'write_p99_ms': None},
        'latency_while_moving': {'read_p50_ms': 1.505, 'read_p99_ms': 2.0, 'write_p50_ms': 0.5,
                                 'write_p99_ms': 0.99},
        'operations': 1000, 'counted_ratio': 0.995, 'epochs': 31,
        'over_100_ms': {'total': 9, 'movement': 0, 'others': 9, 'unknown': 0},
        'over_1_s': {'total': 1, 'movement': 0, 'others': 1, 'unknown': 0}}
    assert [(row['what'], row['put'], row['seconds'], row['state']) for row in settings] == [
        ('flag norebalance', 'norebalance', 13, 'borrowed'),
        ('mgr/balancer/active', 'false', 3, 'changed by others'),
        ('pg_autoscale_mode of pools', 'off', 3, 'given back'),
        ('osd_max_scrubs of the OSDs', '0', 3, 'borrowed')]
    assert bill_json(replace(BILLED, bill=replace(BILL, ops=3000)))['counted_ratio'] == 0.3317


def test_the_line_of_a_campaign_in_the_history() -> None:
    line = summary(changed(BILLED, moving_seconds=1.26, left=1, ended=99.0,
                           unpinnable={'1.a': Unpinnable('one')}))
    assert line.pop('bill') == bill_json(BILLED)
    assert line == {
        'id': 7, 'phase': 'DONE', 'trigger': BILLED.origin.trigger, 'target': 'crush',
        'started': 5.0, 'ended': 99.0, 'total': 12, 'released': 3, 'kept': 3,
        'bytes_done': 3 * GIB, 'moving_seconds': 1.3, 'epochs': 31, 'unpinnable': 1,
        'rolled_back': False}
    # An OSDMap that is older than the campaign.
    assert summary(changed(BILLED, last_epoch=0))['epochs'] == 0


# ---- Borrowed settings

HOLDS = Holds(held={
    'flag/norebalance': Held(None, 'norebalance'), 'mgr/balancer/active': Held('true', 'false'),
    'pg_autoscale_mode/1': Held(None, 'off'), 'pg_autoscale_mode/2': Held('warn', 'off'),
    'pg_autoscale_mode/99': Held('on', 'off'), 'osd/osd_max_scrubs': Held('3', '0'),
    'paxos_propose_interval': Held(None, '0.2')})


def borrowed(subject: Campaign, pins: int) -> List[Tuple[Any, ...]]:
    rows = campaign_rows(replace(subject, holds=HOLDS), seen().osdmap, pins)
    assert all(row.since == 5.0 and row.can_stay == row.what.startswith('upmaps') for row in rows)
    return [(row.what, row.found, row.put, row.restore, row.name) for row in rows]


def test_the_settings_that_a_campaign_has_borrowed() -> None:
    settings = [
        ('flag norebalance', None, 'set', 'ceph osd unset norebalance', 'norebalance'),
        ('mgr/balancer/active', 'true', 'false', 'ceph balancer on', 'mgr/balancer/active'),
        # A pool that is deleted has no setting.
        ('pg_autoscale_mode of pool rep', None, 'off',
         'ceph osd pool set rep pg_autoscale_mode on', ''),
        ('pg_autoscale_mode of pool ec', 'warn', 'off',
         'ceph osd pool set ec pg_autoscale_mode warn', ''),
        ('osd_max_scrubs of the OSDs', '3', '0', 'ceph config set osd osd_max_scrubs 3',
         'osd_max_scrubs'),
        ('paxos_propose_interval of the mons', None, '0.2',
         'ceph config rm mon paxos_propose_interval', 'paxos_propose_interval')]
    assert borrowed(campaign(), 0) == settings
    assert borrowed(campaign(), 1) == [*settings, (
        'upmaps of pinned PGs', 'upmaps from before the campaign', '1 pin',
        'ceph osd rm-pg-upmap-items <pgid>, ceph osd rm-pg-upmap <pgid>: moves the PG; the pins '
        'may stay as ordinary upmaps', '')]
    assert borrowed(campaign(Phase.DONE), 1) == []
    assert borrowed(campaign(Phase.ABORTED, held=True), 0) == settings


def test_what_to_check_without_the_journal() -> None:
    machine = Machine()
    observation = machine.observe()
    options = possible_leftovers(observation)
    assert options[0] == ('if perfguard, and not an operator, changed it: paxos_propose_interval of'
                          ' the mons may be set: ceph config rm mon paxos_propose_interval')
    assert len(options) == 8
    machine.cluster.flags.add('norebalance')
    osdmap = machine.observe().osdmap
    pools = {number: replace(pool, autoscale_mode='off' if pool.name == 'ec' else 'warn')
             for number, pool in osdmap.pools.items()}
    settings = replace(observation.settings, osdmap=replace(osdmap, pools=pools),
                       balancer_active='false')
    begin = 'if perfguard, and not an operator, changed it: '
    assert possible_leftovers(replace(observation, settings=settings)) == [
        begin + 'the flag norebalance is set: ceph osd unset norebalance',
        begin + 'the balancer is off: ceph balancer on',
        begin + 'pg_autoscale_mode of pool ec is off: ceph osd pool set ec pg_autoscale_mode on',
        *options]
