# SPDX-License-Identifier: LGPL-2.1-or-later
"""Campaigns, orders and plans as tables."""
import errno
import re
from typing import Any, Dict, Iterator, List, Optional, Tuple

import pytest

from perfguard.errors import Code, Reason, Refused
from perfguard.rebalance import tables
from perfguard.rebalance.orders import AWAIT
from perfguard.rebalance.report import CampaignStatus, summary
from perfguard.rebalance.tables import MISSED, REACHED, followed
from perfguard.rebalance.types import Phase
from perfguard.why.causes import campaign_causes

from ..fakes.driver import Driver
from ..fakes.zones import in_zone


@pytest.fixture(scope='module')
def moving() -> Driver:
    driver = Driver()
    driver.to_releasing()
    driver.run(2)
    return driver


def test_rebalance_status(moving: Driver) -> None:
    text = tables.rebalance_status(moving.status)
    assert '0 of 12 released, 4 in flight (at most 4), 8 pinned' in text
    assert '(paused)' not in text and 'kept as upmaps' not in text and 'ended' not in text


def changed(driver: Driver, **changes: Any) -> str:
    return tables.rebalance_status({**driver.status, **changes})


def test_rebalance_status_shows_what_is_there(moving: Driver) -> None:
    assert 'RELEASING (paused)' in changed(moving, paused=True)
    assert 'kept as upmaps  3' in changed(moving, kept=3)
    assert 'pause ends' in changed(moving, paused_until=1e9)
    assert 'pause ends' not in changed(moving, paused_until=None)
    assert 'about 4' in changed(moving, tranche=2, tranches=4)
    ended = changed(moving, ended=1e9)
    assert 'ended' in ended and 'time left' not in ended
    assert '[%s]' % ('=' * 15 + ' ' * 15) in changed(moving, done_ratio=0.5)


def test_rebalance_status_names_the_greatest_limits(moving: Driver) -> None:
    shares = {'PEERING': 0.08, 'LATENCY': 0.5, 'BATCH': 0.02, 'CAP_PGS': 0.3, 'STALL_RATIO': 0.1}
    assert ('time by limit  LATENCY 50 %, CAP_PGS 30 %, STALL_RATIO 10 %, PEERING 8 %, other 2 %'
            in changed(moving, limit_shares=shares))
    assert 'time by limit  LATENCY 100 %\n' in changed(
        moving, limit_shares={'LATENCY': 0.995, 'BATCH': 0.005})
    assert 'time by limit' not in changed(moving, limit_shares={})


def test_rebalance_status_and_why_agree_on_the_limits(moving: Driver) -> None:
    found = {cause.code: cause.share
             for cause in campaign_causes(moving.loop.rebalance.campaign, ())}
    assert found and found == moving.status['limit_shares']


def test_many_unpinnable_pgs_are_cut_short(moving: Driver) -> None:
    rows = [{'pgid': '1.%x' % i, 'reason': 'reason %d' % i} for i in range(25)]
    text = changed(moving, unpinnable=rows)
    assert 'reason 19' in text and 'reason 20' not in text and '... and 5 more' in text
    assert changed(moving, unpinnable=rows[:21]).endswith('... and 1 more')
    assert 'more' not in changed(moving, unpinnable=rows[:20])


def test_no_campaign() -> None:
    driver = Driver()
    text = tables.rebalance_status(driver.status)
    assert text.splitlines() == ['no campaign', '', '- no campaign is active']


def test_plan(moving: Driver) -> None:
    text = tables.release_preview(moving.preview)
    assert 'PGs to move          8' in text and '(speed assumed)' in text
    assert 'not pinned yet' not in text
    assert 'not pinned yet       7' in tables.release_preview({**moving.preview, 'remapped': 7})
    assert [line.split()[0] for line in text.splitlines()[-len(moving.preview['osds']):]] == [
        str(row['osd']) for row in moving.preview['osds']]


def test_an_empty_plan() -> None:
    assert tables.release_preview(Driver().preview) == 'nothing to move'


def test_history_and_one_campaign(moving: Driver) -> None:
    assert tables.history({'campaigns': []}) == 'no campaigns'
    text = tables.history({'campaigns': [moving.status]})
    assert text.splitlines()[1].split()[:2] == ['1', 'RELEASING']
    one = tables.campaign(summary(moving.loop.rebalance.campaign))
    assert 'released' in one and 'bytes done' in one and 'unpinnable' not in one


ANSWER: Dict[str, Any] = {
    'verb': 'expand', 'dry_run': True, 'campaign': None, 'weights': {'osd.8': 1.5}, 'bursts': 1,
    'one_epoch': True, 'pgs': 78, 'vectors': 3, 'shards': 108,
    'bytes': 5 << 30, 'primaries_moving': 37, 'reason': '', 'unpinnable': [],
    'unpinnable_pgs': 0, 'fast_peering': {'text': 'epochs are cheap'},
    'copying': {'text': 'OSDs sleep'}}


def test_an_order() -> None:
    shown = tables.order(ANSWER)
    for text in ('osd.8 to CRUSH weight', '1.5', '78 (pg_upmap_items 75, pg_upmap 3)',
                 '108 shards, 5.0 GiB', '37', 'epochs are cheap', 'OSDs sleep'):
        assert text in shown
    assert 'campaign 4 has begun' in tables.order({**ANSWER, 'campaign': 4})
    assert 'campaign 4 is being rolled back' in tables.order(
        {**ANSWER, 'campaign': 4, 'verb': 'rollback'})
    many = {'osd.%d' % osd: 1.0 for osd in range(30)}
    assert '30 OSDs in total' in tables.order({**ANSWER, 'weights': many})


def test_a_pool_with_another_rule() -> None:
    rule = {'pool': 'ec', 'from': 'by_host', 'to': 'by_rack', 'via': None, 'pins': 12,
            'least_moves': None, 'moves_first': False}
    shown = tables.order({**ANSWER, 'rule': rule})
    assert 'by_host -> by_rack' in shown and 'intermediate' not in shown and '78 (pg_up' in shown
    assert 'elsewhere' not in shown and 'tranches' not in shown
    least = {'shards_by_crush': 840, 'shards_required': 260, 'shards_extra': 9, 'deviation': 0.75,
             'upmaps': 230, 'trades': [{'upmaps': 115, 'shards': 400}]}
    shown = tables.order({**ANSWER, 'rule': {**rule, 'via': 'between', 'least_moves': least,
                                             'moves_first': True}})
    rows = dict(line.strip().split('  ', 1) for line in shown.splitlines() if '  ' in line.strip())
    assert rows['intermediate CRUSH rule'].strip() == 'between (12 PGs to pin)'
    assert rows['shards the new rule places elsewhere'].strip() == '840'
    assert rows['shards it does not allow to stay'].strip() == '260'
    assert rows['further shards for the balance'].strip() == (
        '9 (ends within 0.75 PGs of the share)')
    assert rows['PGs that upmaps keep in place'].strip().startswith('230 (')
    assert rows['with --upmaps-max 115'].strip() == 'about 400 shards'
    assert rows['PGs to move first'].strip() == '78' and 'PGs to pin' not in rows


def test_a_pool_with_another_pg_num() -> None:
    shown = tables.order({**ANSWER, 'pg_num': {'pool': 'rbd', 'from': 32, 'to': 64,
                                               'moves_first': False}})
    assert 'pg_num of pool rbd' in shown and '32 -> 64' in shown and 'PGs to pin' in shown


def test_an_order_in_tranches() -> None:
    assert 'about 3, of at most 500 pins' in tables.order(
        {**ANSWER, 'tranches': 3, 'pin_limit': 500})
    assert 'tranches' not in tables.order({**ANSWER, 'tranches': 1, 'pin_limit': 500})


def test_an_order_with_pgs_that_cannot_be_pinned() -> None:
    shown = tables.order({**ANSWER, 'unpinnable': [{'pgid': '1.2', 'reason': 'a hole'}],
                          'unpinnable_pgs': 1})
    assert '1 PG cannot be pinned and will be remapped' in shown
    assert '1.2' in shown and 'a hole' in shown


def test_an_order_that_goes_the_ordinary_way() -> None:
    shown = tables.order({**ANSWER, 'one_epoch': False, 'reason': 'no osdmaptool'})
    assert 'remapped first and pinned afterwards: no osdmaptool' in shown and '78' not in shown
    assert 'epochs are cheap' in shown


# ---- What each table says, to the letter

BEGUN, GIB, MIB = 1.5e9, 1 << 30, 1 << 20
TIME = {'eta_seconds': 1200.0, 'eta_low_seconds': 900.0, 'eta_high_seconds': 1860.0}
STATUS: Dict[str, Any] = {
    **TIME, 'id': 7, 'phase': 'RELEASING', 'paused': True, 'paused_until': BEGUN + 3600,
    'settings': {'max_in_flight_pgs': '8', 'begin_time': '22:00'}, 'started': BEGUN, 'ended': None,
    'done_ratio': 0.26, 'released': 26, 'moving': 100, 'in_flight': 4, 'limit': 6, 'pinned': 70,
    'bytes_done': 3 * GIB, 'bytes_total': 12 * GIB, 'epochs': 31, 'tranche': 1, 'tranches': 2,
    'kept': 3, 'limit_shares': {'LATENCY': 0.61, 'CAP_PGS': 0.39},
    'reasons': ['2 PGs are laggy', 'too many PGs'],
    'limits': [{'text': '2 PGs are laggy', 'next': 'ceph perfguard laggy'},
               {'text': 'too many PGs', 'next': ''}],
    'unpinnable': [{'pgid': '1.2', 'reason': 'a hole'}, {'pgid': '12.1f', 'reason': 'no target'}]}


@pytest.fixture(autouse=True)
def utc() -> Iterator[None]:
    with in_zone('UTC'):
        yield


def cells(text: str) -> List[List[str]]:
    """The columns of each line; empty lines are left out."""
    return [re.split(r'  +', line.strip()) for line in text.splitlines() if line]


def test_every_line_of_rebalance_status() -> None:
    assert cells(tables.rebalance_status({**STATUS, 'done_ratio': 1.0})) == [
        ['campaign', '7, begun 2017-07-14 02:40:00 UTC'],
        ['phase', 'RELEASING (paused)'],
        ['PGs', '[%s] 26 of 100 released, 4 in flight (at most 6), 70 pinned' % ('=' * 30)],
        ['bytes', '3.0 GiB of 12.0 GiB'],
        ['time left', '20 min (15 min to 31 min)'],
        ['OSDMap epochs', '31'],
        ['tranche', '1 of about 2'],
        ['kept as upmaps', '3'],
        ['pause ends', '2017-07-14 03:40:00 UTC'],
        ['settings', 'begin_time=22:00, max_in_flight_pgs=8'],
        ['time by limit', 'LATENCY 61 %, CAP_PGS 39 %'],
        ['- 2 PGs are laggy: ceph perfguard laggy'],
        ['- too many PGs'],
        ['PG', 'why it cannot be pinned'],
        ['1.2', 'a hole'],
        ['12.1f', 'no target']]


@pytest.mark.parametrize('shares, text', [
    ({'A': 0.99, 'B': 0.01}, 'A 99 %, B 1 %'),
    ({'A': 0.991, 'B': 0.009}, 'A 99 %'),
    ({'A': 0.4, 'B': 0.3, 'C': 0.2, 'D': 0.0625, 'E': 0.0375},
     'A 40 %, B 30 %, C 20 %, D 6 %, other 4 %'),
    # Small ones together are as much as one that is shown.
    ({'A': 0.984375, 'B': 0.0078125, 'C': 0.0078125}, 'A 98 %, other 2 %'),
    ({'A': 0.005, 'B': 0.005}, 'other 1 %'),
    ({'B': 0.5, 'A': 0.5}, 'A 50 %, B 50 %')])
def test_the_time_by_limit(shares: Dict[str, float], text: str) -> None:
    assert ['time by limit', text] in cells(
        tables.rebalance_status({**STATUS, 'limit_shares': shares}))


LINE = '26 of 100 PGs released, 4 in flight, 3.0 GiB of 12.0 GiB'


@pytest.mark.parametrize('changes, text', [
    ({}, 'campaign 7: RELEASING (paused), %s, 20 min (15 min to 31 min) left: 2 PGs are laggy'
     % LINE),
    ({'paused': False, 'eta_seconds': None, 'reasons': []}, 'campaign 7: RELEASING, ' + LINE),
    ({'id': None}, 'no campaign: 2 PGs are laggy'),
    ({'id': None, 'reasons': []}, 'no campaign')])
def test_a_line_of_campaign_watch(changes: Dict[str, Any], text: str) -> None:
    assert tables.watched({**STATUS, **changes}) == text


BILL: Dict[str, Any] = {
    'bytes_moved': 3 * GIB, 'bytes_required': 2 * GIB, 'rolled_back': False,
    'phase_seconds': {'RELEASING': 300, 'PINNING': 12, 'FINISHING': 12, 'PREPARED': 0.4,
                      'PINNED': 4, 'HOLDING': 2, 'ABORTING': 1},
    'limit_seconds': {'A': 5, 'B': 4, 'C': 3, 'D': 2, 'E': 1},
    'latency_while_moving': {'read_p50_ms': 1.234, 'read_p99_ms': 8.1,
                             'write_p50_ms': None, 'write_p99_ms': None},
    'latency_before': {'read_p50_ms': None, 'read_p99_ms': None,
                       'write_p50_ms': 2.0, 'write_p99_ms': 9.0},
    'counted_ratio': 0.97, 'operations': 10000,
    'over_100_ms': {'total': 9, 'movement': 4, 'others': 3, 'unknown': 2},
    'over_1_s': {'total': 0, 'movement': 0, 'others': 0, 'unknown': 0},
    'settings': [
        {'what': 'flag norebalance', 'put': 'set', 'seconds': 300, 'state': 'given back'},
        {'what': 'balancer', 'put': 'off', 'seconds': 60, 'state': 'changed by others'},
        {'what': 'osd_max_backfills', 'put': '8', 'seconds': 200, 'state': 'given back'}]}


def test_every_line_of_a_bill() -> None:
    assert cells(tables.shown({**STATUS, 'bill': BILL}))[-8:] == [
        ['bytes moved', '3.0 GiB; the change required 2.0 GiB (1.50 times)'],
        ['time by phase', 'RELEASING 5 min, FINISHING 12 s, PINNING 12 s, PINNED 4 s, HOLDING 2 s,'
                          ' other 1 s'],
        ['time by limit', 'A 5 s, B 4 s, C 3 s, D 2 s, E 1 s'],
        ['latency of reads', 'p50 1.23 ms, p99 8.10 ms while PGs moved (before: not measured)'],
        ['latency of writes', 'not measured (before: 2.00 ms, 9.00 ms)'],
        ['operations over 100 ms', '9 of 9700; movement explains 4, and not 3; unknown 2'
                                   ' (97 % of the operations were counted)'],
        ['operations over 1 s', '0 of 9700 (97 % of the operations were counted)'],
        ['borrowed settings', 'given back: flag norebalance (5 min), osd_max_backfills (3 min);'
                              ' changed by others: balancer (60 s)']]


@pytest.mark.parametrize('changes, row', [
    ({'bytes_required': None}, ['bytes moved', '3.0 GiB; what the change required is not known']),
    ({'bytes_required': 0}, ['bytes moved', '3.0 GiB; the change required 0 B']),
    ({'rolled_back': True}, ['bytes moved', '3.0 GiB; the change required 2.0 GiB, and the way back'
                                            ' what had moved of it']),
    ({'limit_seconds': {}}, ['time by limit', 'none']),
    ({'counted_ratio': 0.995}, ['operations over 1 s', '0 of 9950']),
    ({'counted_ratio': 0.0}, ['operations over 1 s', 'not measured']),
    ({'settings': []}, ['borrowed settings', 'none'])])
def test_what_a_bill_does_not_know(changes: Dict[str, Any], row: List[str]) -> None:
    assert row in cells(tables.shown({**STATUS, 'bill': {**BILL, **changes}}))


def test_every_line_of_a_campaign_that_has_ended() -> None:
    data = {'id': 7, 'phase': 'DONE', 'started': BEGUN, 'ended': BEGUN + 60, 'moving_seconds': 2.5,
            'bytes_done': 1024, 'unpinnable': 0, 'bill': BILL}
    rows = cells(tables.campaign(data))
    assert rows[:6] == [
        ['id', '7'], ['phase', 'DONE'], ['moving seconds', '2.5'],
        ['started', '2017-07-14 02:40:00 UTC'], ['ended', '2017-07-14 02:41:00 UTC'],
        ['bytes done', '1.0 KiB']]
    assert rows[6][0] == 'bytes moved' and len(rows) == 14
    assert len(cells(tables.campaign({**data, 'bill': None}))) == 6


def test_every_line_of_the_history() -> None:
    row = {'id': 12, 'phase': 'ABORTED', 'started': BEGUN, 'ended': BEGUN + 60, 'total': 8,
           'released': 1, 'kept': 7, 'bytes_done': GIB, 'epochs': 3}
    assert cells(tables.history({'campaigns': [row]})) == [
        ['id', 'phase', 'started', 'ended', 'PGs', 'released', 'kept', 'bytes', 'epochs'],
        ['12', 'ABORTED', '2017-07-14 02:40:00 UTC', '2017-07-14 02:41:00 UTC', '8', '1', '7',
         '1.0 GiB', '3']]


LOADS = [{'osd': 1, 'pgs_in': 1, 'pgs_out': 0, 'bytes_in': 3 * MIB, 'bytes_out': 0},
         {'osd': 10, 'pgs_in': 0, 'pgs_out': 1, 'bytes_in': 0, 'bytes_out': 3 * MIB}]
LOAD_CELLS = [['OSD', 'PGs in', 'bytes in', 'PGs out', 'bytes out'],
              ['1', '1', '3.0 MiB', '0', '0 B'], ['10', '0', '0 B', '1', '3.0 MiB']]
RISKS = {'warnings': ['osd.2 is slow'],
         'risks': [{'code': 'PG_LIMIT', 'text': 'osd.1 would have 300 PGs'}]}
RISK = 'refused without --accept PG_LIMIT: osd.1 would have 300 PGs'
ADOPTION: Dict[str, Any] = {
    **RISKS, 'campaign': None, 'pgs': 5, 'shards': 1, 'bytes': 2048, 'primaries_moving': 2,
    'balancing_pgs': 3, 'left_out_pgs': 1, 'osds': LOADS,
    'taken': [{'pgid': '1.2', 'pairs': [[1, 2], [3, 4]]}],
    'left_out': [{'pgid': '1.3', 'reason': 'it is incomplete'}]}


def test_every_line_of_an_adoption() -> None:
    assert cells(tables.adoption(ADOPTION)) == [
        ['upmaps to take over', '5'],
        ['CRUSH moves', '1 shard, 2.0 KiB'],
        ['primaries that move', '2'],
        ['upmaps of a balanced state', '3'],
        ['upmaps left alone', '1'],
        ['osd.2 is slow'],
        [RISK],
        # OSDs that receive nothing are left out.
        *LOAD_CELLS[:2],
        ['PG', 'returns to'],
        ['1.2', 'osd.1 (from osd.2), osd.3 (from osd.4)'],
        ['PG', 'why its upmap is left alone'],
        ['1.3', 'it is incomplete']]


def numbered(row: Dict[str, Any], number: int) -> List[Dict[str, Any]]:
    return [{**row, 'pgid': '2.%x' % seed} for seed in range(number)]


def test_an_adoption_names_twenty_pgs_of_each_kind() -> None:
    shown = cells(tables.adoption({
        **ADOPTION, 'campaign': 4, 'taken': numbered(ADOPTION['taken'][0], 21),
        'left_out': numbered(ADOPTION['left_out'][0], 21)}))
    assert shown[0] == ['campaign 4 has begun; "campaign status" shows the progress']
    # Risks are those of a preview.
    assert [RISK] not in shown and ['osd.2 is slow'] in shown
    for text in ('osd.1 (from osd.2), osd.3 (from osd.4)', 'it is incomplete'):
        assert [row[0] for row in shown if row[1:] == [text]] == ['2.%x' % seed
                                                                  for seed in range(20)]


def test_every_line_of_an_import() -> None:
    data = {**ADOPTION, 'in_force_pgs': 4}
    shown = [['PGs to move', '5'], ['shards to copy', '1, 2.0 KiB'], ['primaries that move', '2'],
             ['PGs whose mappings are in force', '4'], ['PGs left out', '1'], ['osd.2 is slow']]
    assert cells(tables.importing(data)) == [
        *shown, [RISK], ['PG', 'why it is left out'], ['1.3', 'it is incomplete']]
    assert cells(tables.importing({**data, 'left_out': [], 'campaign': 4})) == [
        ['campaign 4 has begun; "campaign status" shows the progress'], *shown]


def test_every_line_of_the_preview_of_releases() -> None:
    data: Dict[str, Any] = {
        'pgs': 3, 'shards': 4, 'bytes': 3 * GIB, 'primaries_moving': 1, 'estimated_seconds': 130.0,
        'estimate_basis': 'measured', 'remapped': 2, 'osds': LOADS,
        'unpinnable': [{'pgid': '1.0', 'code': 'DROPPED_BY_MON'}]}
    assert cells(tables.release_preview(data)) == [
        ['PGs to move', '3'], ['shards to copy', '4'], ['bytes to copy', '3.0 GiB'],
        ['primaries that move', '1'], ['estimated time', '2 min (speed measured)'],
        ['not pinned yet', '2'], ['cannot be pinned', '1'], *LOAD_CELLS]
    # Many remapped PGs are not previewed.
    unpinned: List[Dict[str, Any]] = [{'remapped': 1, 'unpinnable': []}, {**data, 'remapped': 0}]
    for more in unpinned:
        assert tables.release_preview({**more, 'pgs': 0}) == (
            '1 PG is remapped: run "campaign pin" for a preview')
    assert tables.release_preview({'pgs': 0, 'remapped': 0, 'unpinnable': [
        {'pgid': '1.0', 'code': 'INCOMPLETE'}]}) == 'nothing to move'


EFFECTS: Dict[str, Any] = {
    **ANSWER, **TIME, **RISKS, 'bursts': 2, 'pg_limit': 250, 'clone_bytes': MIB,
    'eta_basis': 'measured', 'borrowed': [{'what': 'flag norebalance', 'put': 'set'},
                                          {'what': 'balancer', 'put': 'off'}],
    'osds': [{'osd': 0, 'pgs_before': 100, 'pgs_peak': 130, 'pgs_after': 90,
              'fill_before': 0.5, 'fill_after': 0.25},
             {'osd': 1, 'pgs_before': 99, 'pgs_peak': 120, 'pgs_after': 91,
              'fill_before': 0.75, 'fill_after': 0.65625},
             {'osd': 2, 'pgs_before': 0, 'pgs_peak': 1, 'pgs_after': 1,
              'fill_before': None, 'fill_after': None}],
    'balanced': {'shards': 8, 'bytes': MIB, 'extra_shards': 2, 'limit_shards': 9,
                 'deviation': 0.75, 'target_deviation': 1.5, 'max_extra_movement': 10.0,
                 'limited': True, 'limits': ['MOVEMENT', 'ROOM'], 'kept': 5},
    'left_out': [{'osd': 9, 'reason': 'was drained'}], 'moved_by_weights': {'rbd': 1},
    'pins_removed': 4, 'tranches': 2, 'pin_limit': 60}
#: As a plan that was stored before it had them.
WITHOUT_LIMITS = {**EFFECTS, 'balanced': {
    name: value for name, value in EFFECTS['balanced'].items() if name != 'limits'}}
REMARKS = [['left out: osd.9 was drained ("expand osd.9" adds it)'], ['osd.2 is slow'], [RISK]]
EFFECT_CELLS = [
    ['osd.8 to CRUSH weight', '1.5'],
    ['PGs to pin', '78 (pg_upmap_items 75, pg_upmap 3)'],
    ['CRUSH moves', '108 shards, 5.0 GiB'],
    ['moved with target=balanced', '8 shards, 1.0 MiB; 2 only for the balance (limit 9 in total)'],
    ['OSDs end within', '0.75 PGs of their share of each pool (target_deviation 1.5, limited by'
                        ' max_extra_movement 10, limited by OSDs that would be nearfull)'],
    ['pins that stay as upmaps', '5'],
    ['primaries that move', '37'],
    ['tranches of the change', 'about 2, of at most 60 pins (max_pins)'],
    ['moved by weights, as the mons keep no upmaps', '1 PG of pool rbd'],
    ['OSDMap epochs of the change', '2 or more'],
    ['most PGs at the peak', 'osd.0: 130 (before 100, after 90, mon_max_pg_per_osd 250)'],
    ['fullest OSD', 'osd.1: 66 % (before 75 %)'],
    ['shared by clones of snapshots', 'up to 1.0 MiB more are stored after the moves'],
    ['estimated time', '20 min (15 min to 31 min) (speed: measured)'],
    ['borrowed settings', 'flag norebalance: set, balancer: off'],
    ['pins to remove', '4'], *REMARKS, ['epochs are cheap'], ['OSDs sleep']]


def test_every_line_of_an_order() -> None:
    assert cells(tables.order(EFFECTS)) == EFFECT_CELLS
    assert ['OSDs end within', '0.75 PGs of their share of each pool (target_deviation 1.5, limited'
            ' by max_extra_movement 10)'] in cells(tables.order(WITHOUT_LIMITS))
    assert cells(tables.order({**EFFECTS, 'one_epoch': False, 'reason': 'no osdmaptool'})) == [
        ['PGs will be remapped first and pinned afterwards: no osdmaptool'],
        EFFECT_CELLS[0], *EFFECT_CELLS[-5:]]


@pytest.mark.parametrize('number, last', [
    (20, ['osd.19 to CRUSH weight', '1']), (21, ['...', '21 OSDs in total'])])
def test_an_order_names_twenty_weights(number: int, last: List[str]) -> None:
    shown = cells(tables.order({**EFFECTS, 'weights': {
        'osd.%d' % osd: 1.0 for osd in range(number)}}))
    assert shown[19] == ['osd.19 to CRUSH weight', '1']
    assert shown[number - 1:number + 1] == [last, EFFECT_CELLS[1]]


@pytest.mark.parametrize('changes, absent', [
    ({'balanced': {**EFFECTS['balanced'], 'deviation': None}}, 'OSDs end within'),
    ({'bursts': 1}, 'OSDMap epochs of the change'),
    ({'tranches': 1}, 'tranches of the change'),
    ({'clone_bytes': 0}, 'shared by clones of snapshots'),
    ({'osds': EFFECTS['osds'][2:]}, 'fullest OSD'),
    ({'pins_removed': 0}, 'pins to remove')])
def test_an_order_leaves_out_what_does_not_apply(changes: Dict[str, Any], absent: str) -> None:
    names = [row[0] for row in cells(tables.order({**EFFECTS, **changes}))]
    assert names == [row[0] for row in EFFECT_CELLS if row[0] != absent]


BALANCE: Dict[str, Any] = {
    'by': 'bytes', 'wanted_shards': 12, 'shards': 10, 'load_after': (0.5, 0.625),
    'load_before': (0.375, 0.75), 'upmaps_after': 6, 'upmaps_before': 5, 'upmaps_changed': 3,
    'moves_first': True, 'left_out': [{'pool': 'empty', 'reason': 'it is empty'}], 'pools': [
        {'pool': 'rbd', 'deviation_after': 0.5, 'deviation_before': 2.25,
         'max_avail_after': 2 * GIB, 'limited_by_after': 3, 'max_avail_before': GIB,
         'limited_by_before': 4},
        {'pool': 'ec', 'deviation_after': 0.25, 'deviation_before': 1.0,
         'max_avail_after': None}]}


def test_every_line_of_a_balance() -> None:
    data = {**ANSWER, 'weights': {}, 'balance': BALANCE}
    rows = [
        ['PGs to move', '78'],
        ['shards to copy', '108 shards, 5.0 GiB'],
        ['shards that --max-movement leaves out', '2'],
        ['fill of the OSDs', '50.0 to 62.5 % (before 37.5 to 75.0 %)'],
        ['upmaps of the pools', '6 (before 5, of which 3 change or are removed)'],
        ['pool rbd', 'OSDs end within 0.50 PGs of their share (before 2.25); MAX AVAIL 2.0 GiB,'
                     ' limited by osd.3 (before 1.0 GiB, osd.4)'],
        ['pool ec', 'OSDs end within 0.25 PGs of their share (before 1.00)'],
        ['pool empty', 'left out: it is empty'],
        ['primaries that move', '37'],
        ['epochs are cheap'], ['OSDs sleep']]
    assert cells(tables.order(data)) == rows
    assert cells(tables.order({**data, 'balance': {**BALANCE, 'by': 'pgs', 'shards': 12}})) == [
        *rows[:2], ['PGs of the OSDs, of their share', *rows[3][1:]], *rows[4:]]


def test_a_balance_names_twenty_pools_of_each_kind() -> None:
    shown = cells(tables.order({**ANSWER, 'balance': {
        **BALANCE, 'pools': [{**BALANCE['pools'][1], 'pool': 'ec%d' % pool} for pool in range(21)],
        'left_out': [{'pool': 'empty%d' % pool, 'reason': 'it is empty'} for pool in range(21)]}}))
    names = [row[0] for row in shown if row[0].startswith('pool ')]
    assert names == ['pool %s%d' % (kind, pool) for kind in ('ec', 'empty') for pool in range(20)]


def test_a_crush_map_that_lets_no_pg_stay() -> None:
    least = {'shards_by_crush': 840, 'shards_required': 260, 'shards_extra': 9, 'deviation': 0.75,
             'upmaps': 230, 'trades': [{'upmaps': 0, 'shards': 1}]}
    assert cells(tables.order({**ANSWER, 'crushmap': {'pgs': 12, 'least_moves': least}}))[1:7] == [
        ['PGs to move before the map is set', '12'],
        ['shards the new map places elsewhere', '840'],
        ['shards it does not allow to stay', '260'],
        ['further shards for the balance', '9 (ends within 0.75 PGs of the share)'],
        ['PGs that upmaps keep in place', '230 (an OSD that goes out later moves two to four times'
                                          ' its data: the mons drop upmaps that no longer fit)'],
        ['with --upmaps-max 0', 'about 1 shard']]


def test_an_expansion_that_awaits_osds_says_so() -> None:
    assert tables.order({'verb': AWAIT, 'message': 'waiting for 2 OSDs'}) == 'waiting for 2 OSDs'


STAND = {'osds': 3, 'fill': 0.5, 'fullest_fill': 0.625, 'pgs_min': 1, 'pgs_mean': 2.5, 'pgs_max': 4}
CAPACITY = {
    'classes': [{'class': '', 'before': STAND, 'after': {
        'osds': 4, 'fill': 0.25, 'fullest_fill': None, 'pgs_min': None, 'pgs_mean': None,
        'pgs_max': None}}, {'class': 'ssd', 'before': STAND, 'after': STAND}],
    'pools': [{'pool': 'rbd', 'max_avail_before': GIB, 'max_avail_after': None,
               'limited_by_before': 3, 'limited_by_after': None}]}
CAPACITY_CELLS = [
    ['class', 'OSDs', 'fill', 'fullest OSD', 'PGs per OSD (min/mean/max)'],
    ['-', '3 -> 4', '50.0 % -> 25.0 %', '62.5 % -> -', '1/2.5/4 -> -'],
    ['ssd', '3', '50.0 %', '62.5 %', '1/2.5/4'],
    ['pool', 'MAX AVAIL', 'limited by'],
    ['rbd', '1.0 GiB -> -', 'osd.3 -> -']]


def test_every_line_on_the_room_of_a_cluster() -> None:
    assert cells('\n'.join(tables.capacity({'capacity': CAPACITY}))) == CAPACITY_CELLS
    assert tables.capacity({}) == []


def test_only_a_preview_of_an_order_shows_the_room() -> None:
    data = {**EFFECTS, 'capacity': CAPACITY}
    first = len(EFFECT_CELLS) - 5
    assert cells(tables.order(data)) == [
        *EFFECT_CELLS[:first], *CAPACITY_CELLS, *EFFECT_CELLS[first:]]
    assert cells(tables.order({**data, 'dry_run': False})) == EFFECT_CELLS


def test_every_line_of_an_expansion_by_hosts_that_are_not_there() -> None:
    new = {'osds': 4, 'size_bytes': 1 << 40, 'hosts': 2, 'under': ['r1', 'r2'],
           'device_class': 'ssd', 'weight': 0.999999}
    data = {**EFFECTS, 'what_if': new, 'capacity': CAPACITY}
    assert cells(tables.growth(data)) == [
        ['new OSDs', '4 of 1.0 TiB in 2 hosts below r1, r2, class ssd, CRUSH weight 1'],
        ['to copy', '8 shards, 1.0 MiB'],
        ['time to fill them', '20 min (15 min to 31 min) (speed: measured)'],
        *CAPACITY_CELLS, ['osd.2 is slow'], [RISK]]
    alone = {**new, 'osds': 1, 'hosts': 1, 'under': ['r1'], 'device_class': ''}
    assert cells(tables.growth({**data, 'what_if': alone, 'balanced': None,
                                'eta_seconds': None}))[:3] == [
        ['new OSDs', '1 of 1.0 TiB in 1 host below r1, CRUSH weight 1'],
        ['to copy', '108 shards, 5.0 GiB'],
        ['time to fill them', 'not known: no campaign of this cluster has moved data yet']]


LOSS: Dict[str, Any] = {
    **TIME, 'osds': [1, 2], 'total_bytes': 1 << 40, 'used_bytes': 1 << 39, 'shards': 12,
    'bytes': GIB, 'moved_bytes': MIB, 'eta_basis': 'measured', 'capacity': CAPACITY,
    'campaign': None, 'warnings': ['osd.9 is slow'], 'full_osds': [4], 'nearfull_osds': [5, 6],
    'pools': [{'pool': 'rbd', 'degraded_pgs': 4, 'inactive_pgs': 3, 'unreadable_pgs': 2,
               'unplaced_pgs': 1}]}


def test_every_line_of_a_loss() -> None:
    rows = [['lost', '2 OSDs of 1.0 TiB, 512.0 GiB used'],
            ['to recover', '12 shards, 1.0 GiB; 1.0 MiB more move'],
            ['time to full redundancy', '20 min (15 min to 31 min) (speed: measured)'],
            *CAPACITY_CELLS]
    assert cells(tables.loss(LOSS)) == [
        *rows, ['pool', 'PGs degraded', 'below min_size', 'unreadable', 'not placed again'],
        ['rbd', '4', '3', '2', '1'], ['1 OSD would be above full, such as osd.4'],
        ['osd.9 is slow']]
    assert cells(tables.loss({**LOSS, 'pools': [], 'full_osds': [], 'warnings': []})) == [
        *rows, ['2 OSDs would be above nearfull, such as osd.5']]
    assert cells(tables.loss({**LOSS, 'pools': [], 'full_osds': [], 'nearfull_osds': []})) == [
        *rows, ['osd.9 is slow']]


DRAINS = [{'osd': 3, 'host': None, 'phase': 'DRAINING', 'replace': True, 'weight_before': 1.81,
           'pgs': None, 'fill': None, 'next': 'wait'},
          {'osd': 12, 'host': 'h1', 'phase': 'DRAINED', 'replace': False, 'weight_before': 1.0,
           'pgs': 0, 'fill': 0.25, 'next': 'remove it'}]


def test_every_line_of_the_drains() -> None:
    columns = ['OSD', 'host', 'phase', 'replace', 'weight before', 'PGs', 'fill', 'next']
    assert cells(tables.drains({'drains': DRAINS})) == [
        columns, ['3', '-', 'DRAINING', 'yes', '1.81', '-', '-', 'wait'],
        ['12', 'h1', 'DRAINED', 'no', '1', '0', '25.0 %', 'remove it']]
    assert cells(tables.replacement({'drains': DRAINS[:1], 'dry_run': True})) == [
        columns, ['3', '-', 'would be DRAINING', 'yes', '1.81', '-', '-', 'wait']]


PLAN: Dict[str, Any] = {
    **TIME, 'plan': 'p1', 'saved': BEGUN, 'change': 'drain osd.1', 'pgs': 3, 'bytes': 1024,
    'accepted': ['PG_LIMIT', 'MON_DOWN'], 'state': 'valid', 'refused': '',
    'changed': ['osd.%d is new' % osd for osd in range(11)]}


def test_every_line_of_the_saved_plans() -> None:
    first = ['p1', '2017-07-14 02:40:00 UTC', 'drain osd.1', '3', '1.0 KiB',
             '20 min (15 min to 31 min)']
    assert cells(tables.saved_plans({'plans': [
        PLAN, {**PLAN, 'refused': 'osd.1 is out'}, {**PLAN, 'accepted': [], 'changed': []}]})) == [
        ['plan', 'saved', 'change', 'PGs', 'bytes', 'estimated time', 'accepted', 'state',
         'reason'],
        [*first, 'PG_LIMIT, MON_DOWN', 'valid', 'osd.0 is new; osd.1 is new; osd.2 is new'],
        [*first, 'PG_LIMIT, MON_DOWN', 'valid', 'osd.1 is out'],
        [*first, '-', 'valid', '-']]
    assert tables.saved_plans({'plans': []}) == 'no plans'


def test_every_line_of_a_saved_plan() -> None:
    title = [['plan p1, saved 2017-07-14 02:40:00 UTC: drain osd.1 (valid)'],
             ['accepted risks: PG_LIMIT, MON_DOWN'],
             *(['changed since: osd.%d is new' % osd] for osd in range(10))]
    approve = ['carry it out with "ceph perfguard plan approve p1"']
    assert cells(tables.saved_plan({**PLAN, 'preview': EFFECTS})) == [
        *title, *EFFECT_CELLS,
        ['OSD', 'PGs before', 'at the peak', 'after', 'fill before', 'fill after'],
        ['0', '100', '130', '90', '50.0 %', '25.0 %'], ['1', '99', '120', '91', '75.0 %', '65.6 %'],
        ['2', '0', '1', '1', '-', '-'], approve]
    assert cells(tables.saved_plan({**PLAN, 'preview': ANSWER}))[-2:] == [['OSDs sleep'], approve]


def test_a_saved_plan_shows_fifty_osds() -> None:
    osds = [{**EFFECTS['osds'][0], 'osd': osd} for osd in range(51)]
    shown = cells(tables.saved_plan({**PLAN, 'preview': {**EFFECTS, 'osds': osds}}))
    assert shown[-2][0] == '49' and shown[-52][0] == 'OSD'


@pytest.mark.parametrize('changes, lines', [
    ({'dry_run': True}, [
        'accepted risks: PG_LIMIT, MON_DOWN', 'plan p1 would be queued: it begins once campaign 4'
        ' is DONE, unless the cluster has changed by then']),
    ({'dry_run': False, 'accepted': []}, [
        'plan p1 is queued: it begins once campaign 4 is DONE, unless the cluster has changed by'
        ' then'])])
def test_every_line_of_a_plan_that_waits(changes: Dict[str, Any], lines: List[str]) -> None:
    assert tables.approved({**PLAN, 'queued_behind': 4, **changes}).splitlines() == lines


# ---- Following a campaign

def at(phase: str, *reasons: Reason, campaign: int = 7) -> CampaignStatus:
    return CampaignStatus(id=campaign, phase=Phase(phase), released=1, moving=1, kept=2,
                          reasons=reasons)


AWAITED = Reason(Code.AWAITS_OSDS, '2 OSDs are awaited')
REQUESTED = Reason(Code.REQUESTED, 'a campaign is requested')
OTHER = Reason(Code.ENDED, 'osd.1 is full')


@pytest.mark.parametrize('status, until, ending', [
    (at('RELEASING'), None, None),
    (at('DONE'), None, (REACHED, 'campaign 7 is DONE: 1 of 1 PG released, 2 kept as upmaps')),
    (at('RELEASING'), 'pinned', (
        REACHED, 'campaign 7 is RELEASING: 1 of 1 PG released, 2 kept as upmaps')),
    (at('PINNED'), 'PINNED', (
        REACHED, 'campaign 7 is PINNED: 1 of 1 PG released, 2 kept as upmaps')),
    (at('PINNED'), 'releasing', None),
    # HOLDING is a part of RELEASING.
    (at('HOLDING'), 'pinned', (
        REACHED, 'campaign 7 is HOLDING: 1 of 1 PG released, 2 kept as upmaps')),
    (at('HOLDING'), 'releasing', None),
    (at('RELEASING'), 'holding', None),
    # An abort is not on the way to DONE.
    (at('ABORTING'), 'pinned', None),
    (at('ABORTED', OTHER), 'pinned', (MISSED, 'campaign 7 is ABORTED; osd.1 is full')),
    (at('ABORTED'), 'aborted', (
        REACHED, 'campaign 7 is ABORTED: 1 of 1 PG released, 2 kept as upmaps')),
    (at('DONE'), 'aborted', (MISSED, 'campaign 7 is DONE')),
    # The next campaign begins once the OSDs have booted.
    (at('DONE', AWAITED), None, None),
    (at('IDLE', AWAITED, campaign=0), None, None),
    (at('ABORTED', AWAITED), None, None),
    (at('PINNED', AWAITED), 'pinned', (
        REACHED, 'campaign 7 is PINNED: 1 of 1 PG released, 2 kept as upmaps')),
    (at('IDLE', REQUESTED, campaign=0), None, None),
    (at('IDLE', OTHER, campaign=0), None, (MISSED, 'no campaign is active')),
    (at('IDLE', campaign=0), 'idle', (MISSED, 'no campaign is active'))])
def test_how_campaign_watch_ends(status: CampaignStatus, until: Optional[str],
                                 ending: Optional[Tuple[int, str]]) -> None:
    assert followed(status, until) == ending


def test_campaign_watch_refuses_an_unknown_phase() -> None:
    with pytest.raises(Refused) as refused:
        followed(at('PINNED'), 'finished')
    assert refused.value.errno == errno.EINVAL and str(refused.value) == (
        "unknown phase 'finished': must be one of IDLE, PREPARED, PINNING, PINNED, RELEASING,"
        " HOLDING, FINISHING, DONE, ABORTING, ABORTED")
