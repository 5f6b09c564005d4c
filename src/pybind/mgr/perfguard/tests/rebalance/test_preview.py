# SPDX-License-Identifier: LGPL-2.1-or-later
"""The effects that an order would have on OSDs, and the risks that follow. Previews of whole
orders, against what then happens: test_plans.py and others."""
import errno
from dataclasses import replace
from typing import Any, Dict, List, Tuple

import pytest

from perfguard.cluster.types import OsdSet, Space, UpmapEntry
from perfguard.errors import Code
from perfguard.rebalance.change import Details, Planned
from perfguard.rebalance.joining import MAX_BURST_PINS
from perfguard.rebalance.moves import Move
from perfguard.rebalance.orders import Order, OrderFacts
from perfguard.rebalance.preview import (NAMED_PGS, Effects, OsdEffect, Preview, effects, eta_of)
from perfguard.rebalance.progress import Eta
from perfguard.rebalance.risks import Risk
from perfguard.rebalance.types import PinRecord
from perfguard.rebalance.weights import WeightChange
from perfguard.upmap.pins import Unpinnable

from .test_phases import OPTIONS, Machine

PIN = PinRecord(UpmapEntry(), UpmapEntry(((0, 1),)))
VECTOR = PinRecord(UpmapEntry(), UpmapEntry(vector=(0, 1, 2)))
MOVES = [Move('1.0', (0,), (1,), 0, 100), Move('1.1', (0, 2), (1, 3), 0, 200, moves_primary=True)]


def computed(pgs_by_split: Dict[int, int] = {}, pool_space: int = 800, **facts: Any) -> Effects:
    """OSDs have 4000 bytes, of which 1000 are used, and ten PGs; a pool stores 800 bytes."""
    seen = Machine().observe()
    seen = replace(seen, signals=replace(seen.signals, pool_bytes={1: 800},
                                         pool_space={1: pool_space}))
    known = OrderFacts(seen.osdmap, seen.crush, {osd: Space(4000, 1000, 10) for osd in range(6)})
    return effects(MOVES, replace(known, **facts), seen, OPTIONS, pgs_by_split)


def test_what_osds_gain_and_lose() -> None:
    found = computed(pg_limit=99)
    assert found.osds == (
        OsdEffect(0, 10, 8, 10, 0.25, 0.2), OsdEffect(1, 10, 12, 12, 0.25, 0.3),
        OsdEffect(2, 10, 9, 10, 0.25, 0.225), OsdEffect(3, 10, 11, 11, 0.25, 0.275))
    assert (found.pg_limit, found.clone_bytes) == (99, 0)
    assert found.space[1] == Space(4000, 1200, 12) and found.space[5] == Space(4000, 1000, 10)


def test_splits_and_merges_change_the_number_of_pgs_at_once() -> None:
    rows = {row.osd: row for row in computed({3: 2, 4: -1}).osds}
    assert rows[3] == OsdEffect(3, 10, 13, 13, 0.25, 0.275)
    assert rows[4] == OsdEffect(4, 10, 9, 10, 0.25, 0.25)


@pytest.mark.parametrize('pool_space, shared, used', [
    # A shard takes half as much again, on either side.
    (1200, {}, (700, 1300, 850, 1150)),
    # A quarter of what moves is shared with clones, and is not freed where it was.
    (800, {1: 0.25}, (850, 1200, 925, 1100)), (1200, {1: 0.25}, (750, 1300, 875, 1150)),
    (800, {2: 0.25}, (800, 1200, 900, 1100))])
def test_shards_take_another_space_than_they_store(pool_space: int, shared: Dict[int, float],
                                                   used: Tuple[int, ...]) -> None:
    found = computed(pool_space=pool_space, shared=shared)
    assert tuple(found.space[osd].used_bytes for osd in range(4)) == used
    assert found.clone_bytes == (75 if 1 in shared else 0)


def test_osds_that_have_not_reported_have_no_fill() -> None:
    rows = {row.osd: row for row in computed(space={1: Space(0, 0, None)}).osds}
    assert rows[1] == OsdEffect(1, 0, 2, 2, None, None)
    assert rows[3] == OsdEffect(3, 0, 1, 1, None, None)


@pytest.mark.parametrize('rates, expected', [
    ((10.0, 40.0, 20.0), Eta(15.0, 7.5, 30.0)), ((40.0, 20.0, 10.0, 5.0), Eta(30.0, 7.5, 60.0)),
    # Few campaigns say less.
    ((10.0, 20.0), Eta(30.0, 7.5, 60.0)), ((10.0,), Eta(30.0, 15.0, 60.0))])
def test_the_time_by_the_rates_of_earlier_campaigns(rates: Tuple[float, ...],
                                                    expected: Eta) -> None:
    assert eta_of(300, rates) == expected
    found = computed(rates=rates)
    assert (found.eta, found.eta_basis) == (expected, 'earlier campaigns')


def test_the_time_by_an_assumed_rate() -> None:
    found = computed()
    assert found.eta_basis == 'assumed' and found.eta.seconds > 0.0
    assert found.eta.low == found.eta.seconds / 4 and found.eta.high == found.eta.seconds * 4


# ---- Risks

def effect(osd: int, before: int, after: int, fill_before: Any = None,
           fill_after: Any = None) -> OsdEffect:
    return OsdEffect(osd, before, after, after, fill_before, fill_after)


def on(*rows: OsdEffect, limit: int = 100) -> Effects:
    return Effects(rows, Eta(1.0, 1.0, 1.0), 'assumed', (), limit)


MANY = '%s would hold more PGs than mon_max_pg_per_osd (100), such as osd.%d with %d PGs' \
    ': change more OSDs of the host at a time, or lower pg_num'


@pytest.mark.parametrize('rows, undoes, text', [
    ([effect(1, 90, 100)], False, None), ([effect(1, 90, 101)], False, MANY % ('1 OSD', 1, 101)),
    # The fullest, or the first of those that are as full.
    ([effect(1, 90, 101), effect(3, 90, 102), effect(2, 90, 102)], False,
     MANY % ('3 OSDs', 2, 102)),
    # One that had as many PGs before, or more.
    ([effect(1, 101, 101), effect(2, 103, 102)], False, None),
    # The way back may lead to OSDs that are beyond their limit already.
    ([effect(1, 101, 102)], False, MANY % ('1 OSD', 1, 102)), ([effect(1, 101, 102)], True, None),
    ([effect(1, 100, 102)], True, (MANY % ('1 OSD', 1, 102)).partition(': ')[0])])
def test_more_pgs_than_an_osd_may_hold(rows: List[OsdEffect], undoes: bool, text: Any) -> None:
    assert on(*rows).risks(0.85, undoes) == (
        [] if text is None else [Risk(Code.PG_LIMIT, text, errno.E2BIG)])
    assert not on(*rows, limit=0).risks(0.85)


FULL = 'not enough space: %s would be fuller than nearfull (85 %%), such as osd.%d with %d %%'


@pytest.mark.parametrize('fills, undoes, text', [
    ([(0.5, 0.85)], False, None), ([(0.5, 0.86)], False, FULL % ('1 OSD', 0, 86)),
    ([(0.5, 0.86), (0.5, 0.9), (0.5, 0.9)], False, FULL % ('3 OSDs', 1, 90)),
    ([(None, 0.9)], False, FULL % ('1 OSD', 0, 90)), ([(0.5, None)], False, None),
    # One that becomes no fuller.
    ([(0.9, 0.9), (0.95, 0.9)], False, None), ([(0.87, 0.9)], False, FULL % ('1 OSD', 0, 90)),
    ([(0.87, 0.9)], True, None), ([(0.85, 0.9)], True, FULL % ('1 OSD', 0, 90))])
def test_osds_that_become_fuller_than_nearfull(fills: List[Tuple[Any, Any]], undoes: bool,
                                               text: Any) -> None:
    rows = [effect(osd, 1, 1, *fill) for osd, fill in enumerate(fills)]
    assert on(*rows).risks(0.85, undoes) == (
        [] if text is None else [Risk(Code.TARGET_FULL, text, errno.ENOSPC)])


def test_effects_as_json() -> None:
    found = Effects((effect(1, 2, 3, 0.25, 0.5),), Eta(20.04, 10.06, 40.07), 'assumed',
                    (('flag norebalance', 'set'),), 100, 7)
    assert found.as_json() == {
        'osds': [{'osd': 1, 'pgs_before': 2, 'pgs_after': 3, 'pgs_peak': 3, 'fill_before': 0.25,
                  'fill_after': 0.5}],
        'pg_limit': 100, 'clone_bytes': 7, 'eta_seconds': 20.0, 'eta_low_seconds': 10.1,
        'eta_high_seconds': 40.1, 'eta_basis': 'assumed',
        'borrowed': [{'what': 'flag norebalance', 'put': 'set'}]}


def pinned(number: int, **changes: Any) -> Preview:
    planned = Planned({'1.%x' % seed: PIN for seed in range(number)})
    return Preview(WeightChange(), planned, **changes)


@pytest.mark.parametrize('preview, bursts', [
    (pinned(0), 1), (pinned(MAX_BURST_PINS), 1), (pinned(MAX_BURST_PINS + 1), 2),
    (pinned(2 * MAX_BURST_PINS + 1), 3), (pinned(9, entries=MAX_BURST_PINS + 1), 2),
    (pinned(9, details=Details(moves_first=True, pins_at_once=MAX_BURST_PINS + 1)), 2)])
def test_how_many_bursts_a_change_takes(preview: Preview, bursts: int) -> None:
    assert preview.bursts == bursts


@pytest.mark.parametrize('verb, changes, number, text', [
    ('crushmap', {'crush_map': b'map'}, MAX_BURST_PINS, None),
    ('crushmap', {}, MAX_BURST_PINS + 1, None),
    ('crushmap', {'crush_map': b'map'}, MAX_BURST_PINS + 1,
     'the change requires %d pins, but the mons accept at most %d in the same epoch: apply the '
     'change in several steps; otherwise 1 PG is pinned one epoch later, after a second peering '
     'that stalls client I/O' % (MAX_BURST_PINS + 1, MAX_BURST_PINS)),
    ('rollback', {'crush_map': b'map'}, MAX_BURST_PINS + 2,
     'the rollback requires %d pins, but the mons accept at most %d in the same epoch: run '
     '"campaign abort", then undo the change in several steps with "crushmap"; otherwise 2 PGs '
     'are pinned one epoch later, after a second peering that stalls client I/O'
     % (MAX_BURST_PINS + 2, MAX_BURST_PINS)),
    ('rule', {'details': Details('rule', moves_first=True, pins_at_once=MAX_BURST_PINS + 2,
                                 upmaps=MAX_BURST_PINS + 2)}, 0,
     'the change requires %d pins, but the mons accept at most %d in the same epoch: use '
     '"--upmaps-max %d", with which more data moves; otherwise 2 PGs are pinned one epoch later, '
     'after a second peering that stalls client I/O'
     % (MAX_BURST_PINS + 2, MAX_BURST_PINS, MAX_BURST_PINS))])
def test_more_pins_than_an_epoch_takes(verb: str, changes: Any, number: int, text: Any) -> None:
    risks = pinned(number, **changes).all_risks(Order(verb), Machine().observe(), OPTIONS)
    found = [risk for risk in risks if risk.code == Code.ONE_EPOCH]
    assert found == ([] if text is None else [Risk(Code.ONE_EPOCH, text, errno.EFBIG)])


@pytest.mark.parametrize('drained, crush_map, is_risk', [
    ((3,), None, True), ((), b'map', True), ((), None, False)])
def test_too_few_osds_for_some_pgs(drained: OsdSet, crush_map: Any, is_risk: bool) -> None:
    """Filling OSDs is only worth a warning."""
    preview = Preview(WeightChange(drained=drained), crush_map=crush_map, incomplete=('1.b', '1.a'))
    text = 'CRUSH would find too few OSDs for 2 PGs, such as PG 1.a: data would stay where it is'
    risks = preview.all_risks(Order('drain'), Machine().observe(), OPTIONS)
    assert risks == ([Risk(Code.TOO_FEW_OSDS, text + ' (raise the tunable choose_total_tries, or '
                           'the step set_choose_tries of an erasure-coded rule)')]
                     if is_risk else [])
    assert preview.as_json(Order('drain'), None)['warnings'] == [text]


def test_the_sums_of_a_preview() -> None:
    planned = Planned({'1.0': PIN, '1.1': VECTOR}, {
        '1.%x' % seed: Unpinnable('a hole') for seed in range(16, 67)},
        {move.pgid: move for move in MOVES}, {'1.5': UpmapEntry()})
    preview = Preview(WeightChange(weights={7: 1.5}), planned, first=(
        Move('2.0', (4,), (5,), 4, 50),), left_out=tuple((osd, 'was drained') for osd in range(51)))
    data = preview.as_json(Order('expand'), 3)
    assert (data['verb'], data['campaign'], data['weights']) == ('expand', 3, {'osd.7': 1.5})
    assert (data['pgs'], data['vectors'], data['pins_removed']) == (2, 1, 1)
    assert (data['shards'], data['bytes'], data['primaries_moving']) == (3, 300, 1)
    assert len(data['unpinnable']) == len(data['left_out']) == NAMED_PGS
    assert data['unpinnable_pgs'] == 51 and data['unpinnable'][0]['pgid'] == '1.10'
    assert data['one_epoch'] and data['reason'] == '' and data['incomplete_pgs'] == 0
    assert preview.required_bytes == 350 and preview.most_pins == 2
    touched = preview.touched
    assert touched is not None and touched.osds == {0, 1, 2, 3, 4, 5, 7} and touched.pools == {1}
    # It is computed once for each preview, so one that was changed computes it again.
    unpinned = replace(preview, planned=Planned(), first=()).touched
    assert unpinned is not None and (unpinned.osds, unpinned.pools) == ({7}, set())
    half = replace(preview, details=Details(required_share=0.5, upmaps=3))
    assert half.required_bytes == 175 and half.most_pins == 3


def test_nothing_is_known_without_an_outlook() -> None:
    preview = Preview(WeightChange(), no_outlook='no osdmaptool')
    assert preview.required_bytes is None and preview.touched is None
    assert not preview.as_json(Order('expand'), None)['one_epoch']
    (risk,) = preview.all_risks(Order('expand'), Machine().observe(), OPTIONS)
    assert (risk.code, risk.errno) == (Code.NO_PREVIEW, errno.EIO)
    assert risk.text.startswith('cannot preview the CRUSH change: no osdmaptool (try again;')
