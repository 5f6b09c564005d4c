# SPDX-License-Identifier: LGPL-2.1-or-later
"""Campaigns, orders and plans as tables."""
from typing import Any, Dict

import pytest

from perfguard.rebalance import tables
from perfguard.why.causes import campaign_causes

from ..fakes.driver import Driver


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
    one = tables.campaign(moving.status)
    assert 'in flight' in one and 'bytes done' in one and 'reasons' not in one


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
