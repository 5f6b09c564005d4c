# SPDX-License-Identifier: LGPL-2.1-or-later
"""The state of a campaign: what the changes of several fields at once do, and what is derived."""
import json
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

import pytest

from perfguard.cluster.types import UpmapEntry
from perfguard.codec import Malformed, decode, encode
from perfguard.rebalance.campaign import (COUNT_SECONDS, LISTED_UNDERSIZED, Basis, Orders, OwnCrush,
                                          Pinning, Rollback)
from perfguard.rebalance.change import ChangeStage, Led
from perfguard.rebalance.types import Phase, Sent
from perfguard.rebalance.weights import WeightChange
from perfguard.upmap.pins import DEGRADED, INCOMPLETE

from ..fakes.campaigns import campaign_of
from .test_auto_expand import seen

WANTED = WeightChange(weights={1: 0.0})
LANDED = replace(WANTED, stage=ChangeStage.LANDED)


# ---- whose CRUSH map it is

@pytest.mark.parametrize('own, version, same, is_own', [
    (7, 7, False, True), (7, 8, True, True), (7, 8, False, False), (0, 8, True, True),
    (-1, 8, True, False)])
def test_crush_is_its_own_by_version_or_by_what_is_in_it(own: int, version: int, same: bool,
                                                         is_own: bool) -> None:
    identity = seen(7, 0.0).crush.identity if same else 1
    crush = OwnCrush(version=own, own=own, identity=identity)
    present = seen(version, 0.0, identity=7)
    assert crush.is_own(present) == is_own
    accepted = crush.accepted(present)
    assert accepted == OwnCrush(version if is_own else own, version, present.crush.identity)


def test_a_crush_map_that_others_have_changed_does_not_become_its_own() -> None:
    present, crush = seen(8, 0.0), OwnCrush(version=7, own=7, identity=1)
    assert crush.claimed(present, True) == OwnCrush(7, 8, present.crush.identity)
    assert crush.claimed(present, False) == OwnCrush(7, -1, present.crush.identity)
    # The version from before the own change remains the one to compare with.
    assert OwnCrush(5, 7, 1).accepted(seen(7, 0.0)).version == 5


def test_reweights_are_stored_in_a_few_bytes() -> None:
    """The document of a campaign is written every few seconds."""
    crush = OwnCrush(reweights={osd: (0xFFFF - osd) / 0x10000 for osd in range(1, 5000)})
    stored = json.dumps(encode(crush))
    assert len(stored) < 15000 and decode(OwnCrush, json.loads(stored)) == crush
    few = OwnCrush(reweights={0: 1 / 0x10000, 9999: 0xFFFF / 0x10000})
    assert len(json.dumps(encode(few))) < 100 and decode(OwnCrush, encode(few)) == few


@pytest.mark.parametrize('stored', ['AAAA', '?', {'3': 0.5}])
def test_reweights_that_cannot_be_read(stored: object) -> None:
    with pytest.raises(Malformed):
        decode(OwnCrush, {'reweights': stored})


# ---- pauses

def test_a_pause_ends_at_its_time() -> None:
    paused = Orders().pausing(1000.0, 300.0)
    assert paused == Orders(paused=True, paused_at=1000.0, paused_seconds=300.0,
                            paused_counted=1000.0)
    assert paused.paused_until == 1300.0
    assert paused.resumed() == Orders(paused_at=1000.0)


def test_a_pause_without_an_end_lasts_until_resume() -> None:
    paused = Orders().pausing(1000.0, 0.0)
    assert paused.paused_until == 0.0
    assert paused.with_pause_counted(5000.0) is paused and paused.taken_over(5000.0) is paused


@pytest.mark.parametrize('seconds, left', [(COUNT_SECONDS - 0.5, 300.0), (COUNT_SECONDS, 240.0)])
def test_what_is_left_of_a_pause_is_counted_every_minute(seconds: float, left: float) -> None:
    counted = Orders().pausing(1000.0, 300.0).with_pause_counted(1000.0 + seconds)
    assert counted.paused_seconds == left and counted.paused_until == 1300.0
    # The clock of the next mgr may differ, and time without one does not count.
    assert counted.taken_over(9000.0).paused_until == 9000.0 + left


# ---- other orders

def test_accepted_stop_conditions_are_listed_once() -> None:
    accepted = Orders(acknowledged=('A', 'B')).accepting('C', 'A')
    assert accepted.acknowledged == ('A', 'B', 'C')
    assert replace(accepted, paused=True).over() == Orders()


@pytest.mark.parametrize('absent, now, acknowledged, since', [
    ({'A'}, 599.9, ('A', 'B'), {'A': 0.0}), ({'A'}, 600.0, ('B',), {}),
    ({'A', 'B'}, 600.0, ('B',), {'B': 600.0}), (set(), 600.0, ('A', 'B'), {}),
    # The clock was set back.
    ({'A'}, -7.0, ('A', 'B'), {'A': -7.0})])
def test_what_was_accepted_ends_with_its_condition(
        absent: Set[str], now: float, acknowledged: Tuple[str, ...],
        since: Mapping[str, float]) -> None:
    orders = Orders(acknowledged=('A', 'B'), absent={'A': 0.0}).without_past(absent, now, 600.0)
    assert orders == Orders(acknowledged=acknowledged, absent=since)


def test_what_is_accepted_again_lasts_as_if_it_were_new() -> None:
    orders = Orders(acknowledged=('A', 'B'), absent={'A': 1.0, 'B': 2.0})
    assert orders.accepting('A') == replace(orders, absent={'B': 2.0})
    assert orders.over() == Orders()


def test_a_setting_of_the_campaign_is_replaced_and_removed() -> None:
    orders = Orders().with_setting('a', '1').with_setting('b', '2').with_setting('a', '3')
    assert orders.settings == {'a': '3', 'b': '2'}
    assert orders.with_setting('a', '').settings == {'b': '2'}


# ---- the basis of goals

@pytest.mark.parametrize('now, covered', [
    (Basis('x', {1: 'a', 2: 'b'}), True), (Basis('x', {1: 'a'}), True), (Basis('x', {}), True),
    (Basis('x', {1: 'a', 2: 'c'}), False), (Basis('x', {1: 'a', 3: 'c'}), False),
    (Basis('y', {1: 'a', 2: 'b'}), False), (Basis('x', {1: 'a'}, frozenset({7})), True)])
def test_goals_hold_as_long_as_their_basis_covers_the_present_one(now: Basis,
                                                                  covered: bool) -> None:
    assert Basis('x', {1: 'a', 2: 'b'}).covers(now) == covered


# ---- pins on their way

def test_pins_on_their_way() -> None:
    first = Pinning().sending(['1.0', '1.1'], 5.0)
    assert first == Pinning(sent={'1.0': Sent(5.0), '1.1': Sent(5.0)}, sent_at=5.0)
    assert first.sending(['1.1', '1.2'], 8.0) == Pinning(
        sent={'1.0': Sent(5.0), '1.1': Sent(8.0), '1.2': Sent(8.0)}, sent_at=8.0)
    assert first.sending_only(['1.3'], 9.0) == Pinning(sent={'1.3': Sent(9.0)}, sent_at=9.0)
    assert first.sending_only([], 9.0) == Pinning(sent_at=5.0)


def test_an_attempt_without_an_answer_does_not_count() -> None:
    pinning = Pinning(sent={'1.0': Sent(5.0, 3), '1.1': Sent(5.0, 3)}).count_again(['1.1', '1.2'])
    assert pinning.sent == {'1.0': Sent(5.0, 3), '1.1': Sent(5.0, 2)}


def test_pgs_with_nowhere_to_move_stay_unpinnable() -> None:
    pinning = Pinning().with_unpinnable('1.0', DEGRADED).with_unpinnable('1.1', INCOMPLETE)
    assert pinning.unpinnable == {'1.0': DEGRADED, '1.1': INCOMPLETE}
    assert pinning.incomplete == pinning.tried_again().unpinnable == {'1.1': INCOMPLETE}
    assert pinning.for_campaign_document().unpinnable == {}


def test_a_rule_is_tried_with_one_pin() -> None:
    pinning = Pinning(trials={1: '1.0', 2: '2.0'}).tried('1.0', 'kept').tried('2.0', 'refused')
    assert pinning.trials == {1: 'kept', 2: 'refused'} and pinning.kept_rules == {1}


@pytest.mark.parametrize('number, listed, others', [
    (0, 0, 0), (LISTED_UNDERSIZED, LISTED_UNDERSIZED, 0),
    (LISTED_UNDERSIZED + 2, LISTED_UNDERSIZED, 2)])
def test_accepted_undersized_pgs_are_listed_up_to_a_limit(number: int, listed: int,
                                                          others: int) -> None:
    pgids = ['1.%x' % pg for pg in range(number)]
    pinning = Pinning().accepting_undersized(pgids)
    assert pinning.undersized_pgs == tuple(pgids[:listed]) and pinning.undersized == others


# ---- rollback

@pytest.mark.parametrize('phase, change, rollback, rolls_back, keeps_pins', [
    (Phase.RELEASING, LANDED, Rollback(), False, False),
    (Phase.RELEASING, None, Rollback(), False, False),
    (Phase.RELEASING, LANDED, Rollback(wanted=WANTED), True, False),
    (Phase.PINNING, WANTED, Rollback(begun=True), True, False),
    # Aborted before all of it was in force.
    (Phase.ABORTED, WANTED, Rollback(begun=True), False, False),
    (Phase.ABORTED, LANDED, Rollback(begun=True), True, False),
    (Phase.ABORTED, None, Rollback(begun=True), True, False),
    (Phase.RELEASING, replace(LANDED, share=0.5), Rollback(), False, False),
    (Phase.RELEASING, replace(LANDED, share=0.5), Rollback(begun=True), True, True)])
def test_a_campaign_that_rolls_back(phase: Phase, change: Optional[WeightChange],
                                    rollback: Rollback, rolls_back: bool,
                                    keeps_pins: bool) -> None:
    campaign = replace(campaign_of(1, phase, 0.0), change=change, rollback=rollback)
    assert (campaign.rolls_back, campaign.keeps_pins) == (rolls_back, keeps_pins)
    assert campaign.removes_upmaps == rollback.begun and not campaign.moving_first
    assert campaign.way_back(seen(1, 0.0).osdmap) == ('' if rolls_back else 'campaign rollback')


def test_a_rollback_undoes_the_change_from_before_it() -> None:
    started = Rollback(wanted=WANTED).started(LANDED)
    assert started == Rollback(begun=True, undone=LANDED)
    assert started.started(WANTED) == started


def test_upmaps_that_lead_ahead_are_those_of_each_change() -> None:
    led = {'1.0': Led(UpmapEntry(), UpmapEntry(((1, 2),)))}
    campaign = replace(campaign_of(1, Phase.RELEASING, 0.0), change=LANDED,
                       rollback=Rollback(undone=replace(WANTED, ahead=led)))
    assert campaign.led_ahead == [{}, {}, led] and campaign.ahead == {}
    moved = campaign.with_led_ahead([led, {}, {}])
    assert moved.led_ahead == [led, {}, {}] and moved.ahead == led
    assert moved.rollback.wanted is None


# ---- what is derived

@pytest.mark.parametrize('times, seconds', [
    ({'progressed': 90.0}, 10.0), ({'phase_since': 95.0}, 5.0), ({'sent_at': 70.0}, 30.0),
    ({'progressed': 60.0, 'phase_since': 50.0, 'sent_at': 40.0}, 40.0)])
def test_seconds_without_a_release_or_an_arrival(times: Dict[str, Any], seconds: float) -> None:
    assert campaign_of(1, Phase.RELEASING, 0.0, **times).idle_seconds(100.0) == seconds


OPEN: List[Any] = [(Phase.IDLE, False, False), (Phase.ABORTED, False, False),
                   (Phase.ABORTED, True, True), (Phase.DONE, False, False),
                   (Phase.RELEASING, False, True)]


@pytest.mark.parametrize('phase, held, is_open', OPEN)
def test_the_loop_handles_a_campaign_that_is_active_or_borrows(phase: Phase, held: bool,
                                                               is_open: bool) -> None:
    campaign = campaign_of(1, phase, 0.0, held=held, left=4, kept=3)
    assert campaign.open == is_open and campaign.active == (phase is Phase.RELEASING)
    assert campaign.kept_now == 7
    reopened = campaign.reopened(Phase.PINNING, 50.0)
    assert reopened == campaign_of(1, Phase.PINNING, 0.0, phase_since=50.0, kept=3)
