# SPDX-License-Identifier: LGPL-2.1-or-later
"""The goals of pins, and the raw sets behind vectors, turn by turn and without a thread."""
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any, Dict, List, Mapping, Optional, Tuple

import pytest

from perfguard.cluster.ports import Future, FuturePg, NoFuture, Outlook
from perfguard.cluster.types import NO_ENTRY, Balancing, Osd, OsdSet, Space, UpmapEntry
from perfguard.events import Event
from perfguard.observation import Observation
from perfguard.rebalance import goals as goals_of_pins
from perfguard.rebalance.campaign import Basis, Campaign, GoalsMark
from perfguard.rebalance.campaign_store import PinStore
from perfguard.rebalance.change import ChangeStage
from perfguard.rebalance.turn_inputs import PREVIEW_TIMES, RAW_SECONDS, NewGoals, PinGoals
from perfguard.rebalance.types import Bounds, Flight, Phase, PinRecord, Sent
from perfguard.rebalance.weights import WeightChange
from perfguard.store import Store

from ..fakes.campaigns import campaign_of, changed
from ..fakes.cluster import MemoryKv
from ..fakes.drafts import (CRUSH, HERE, OPTIONS, OSDS, PIN, PINNED, THERE,
                            draft_of)
from .test_orders import crush
from .test_turn_inputs import Tools

CAMPAIGN = campaign_of(1, Phase.PINNED, 900.0, target='balanced')
OTHER_CRUSH = crush({**dict.fromkeys(OSDS, 1.0), 0: 2.0}, hosts=8)
OTHER = UpmapEntry(((5, 4),))
VECTOR_PIN = PinRecord(NO_ENTRY, UpmapEntry(vector=HERE))
#: All PGs whose raw set Ceph's tools show.
FUTURE = Future(dict.fromkeys(('1.1', '1.2'), FuturePg(HERE, THERE)), CRUSH)
FAILED = NoFuture('no answer')
SPACE = {0: Space(100, 5, 1)}
CHANGE = WeightChange(weights={3: 1.0}, start={3: 0.25}, stage=ChangeStage.LANDED)


class Turns:
    """Turns with some pins. Each write takes so long that the next one follows
    in the next turn."""

    def __init__(self, *pgids: str, pin: PinRecord = PIN) -> None:
        self.events: List[Event] = []
        self.may_write, self.reworked = True, 0
        self.outlook: Outlook = FUTURE
        self.asked: List[Tuple[Any, ...]] = []
        self.up: Dict[str, OsdSet] = {}
        self.tools = Tools()
        self.pins = PinStore(Store(MemoryKv()), count().__next__)
        self.pins.note(dict.fromkeys(pgids, pin))
        context: Any = SimpleNamespace(
            cluster=SimpleNamespace(outlook=self._outlook, osd_space=lambda: SPACE),
            note=self.events.append, may_write=lambda: self.may_write, tools=self.tools)
        moves: Any = SimpleNamespace(outdate_movement=self._outdate_movement)
        self.goals = PinGoals(context, self.pins, moves)

    def _outdate_movement(self) -> None:
        self.reworked += 1

    def _outlook(self, *args: Any) -> Outlook:
        self.asked.append(args)
        return self.outlook

    def pool_up(self, pool_id: int) -> Mapping[str, OsdSet]:
        return {pgid: self.up.get(pgid, HERE)
                for pgid in ('%d.%x' % (pool_id, seed) for seed in range(8))}

    def seen(self, now: float, **fields: Any) -> Observation:
        fields = {'balancing': Balancing(upmap=False), **fields}
        return draft_of(CAMPAIGN, self.pins, now=now, entries={
            pgid: pin.entry for pgid, pin in self.pins.items()}, **fields).observed

    def raws(self, now: float = 1000.0, campaign: Campaign = CAMPAIGN, **fields: Any) -> bool:
        return self.goals.refresh_raws(campaign, self.seen(now, **fields))

    def work_out(self, now: float, campaign: Campaign = CAMPAIGN,
                 **fields: Any) -> Optional[NewGoals]:
        view: Any = SimpleNamespace(pool_up=self.pool_up)
        options = fields.pop('options', OPTIONS)
        return self.goals.work_out(campaign, self.seen(now, **fields), view, options)

    def compute(self, campaign: Campaign = CAMPAIGN, **fields: Any) -> None:
        """The goals are computed, and are to be stored from 1006 on."""
        for now, jobs in ((1000.0, 0), (1005.0, 0), (1005.5, 1)):
            assert self.work_out(now, campaign, **fields) is None
            assert len(self.tools.jobs) == jobs and not self.goals.goals_fit
        self.tools.jobs[0].run()

    @property
    def with_goal(self) -> List[str]:
        return [pgid for pgid, pin in self.pins.items() if pin.goal is not None]

    @property
    def with_raw(self) -> List[str]:
        return [pgid for pgid, pin in self.pins.items() if pin.raw is not None]


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pin is stored with a write of its own."""
    monkeypatch.setattr('perfguard.rebalance.campaign_store.PART_BYTES', 1)


# ---- raw sets

def test_raw_sets_are_computed_once_for_each_crush_map() -> None:
    turns = Turns('1.1', pin=VECTOR_PIN)
    turns.goals.goals_fit = True
    assert turns.raws() is False and turns.pins['1.1'] == VECTOR_PIN
    assert turns.raws() is False and len(turns.tools.jobs) == 1
    turns.tools.jobs[0].run()
    assert turns.asked == [(turns.seen(1000.0).osdmap, {}, None)]
    assert turns.raws() is True and turns.pins['1.1'] == replace(VECTOR_PIN, raw=THERE)
    # Goals depend on raw sets, and so do the moves of releases.
    assert turns.goals.goals_fit is False and turns.reworked == 1
    turns.goals.goals_fit = True
    assert turns.raws(1e6) is True and len(turns.tools.jobs) == 1 and turns.reworked == 1
    assert turns.raws(crush=OTHER_CRUSH) is False and len(turns.tools.jobs) == 2
    turns.tools.jobs[1].run()
    # They are the same as before.
    assert turns.raws(crush=OTHER_CRUSH) is True and turns.goals.goals_fit is True
    assert turns.raws(crush=OTHER_CRUSH) is True and len(turns.tools.jobs) == 2
    assert turns.events == []


def test_pgs_without_raw_sets_of_their_own() -> None:
    """Pairs show where CRUSH places a PG, and PGs in flight leave their pin."""
    in_flight = changed(CAMPAIGN, in_flight={'1.1': Flight(900.0, NO_ENTRY)})
    assert Turns('1.1').raws() is True
    turns = Turns('1.1', pin=VECTOR_PIN)
    assert turns.raws(campaign=in_flight) is True and turns.tools.jobs == []
    turns = Turns('1.1', '1.2', pin=VECTOR_PIN)
    assert turns.raws(campaign=in_flight) is False
    turns.tools.jobs[0].run()
    assert turns.raws(campaign=in_flight) is True and turns.with_raw == ['1.2']


@pytest.mark.parametrize('change, computes', [
    (None, True), (CHANGE, True), (replace(CHANGE, stage=ChangeStage.SENT), False),
    (replace(CHANGE, stage=ChangeStage.WANTED), False)])
def test_raw_sets_are_computed_once_a_change_is_in_force(change: Any, computes: bool) -> None:
    turns = Turns('1.1', pin=VECTOR_PIN)
    assert turns.raws(campaign=replace(CAMPAIGN, change=change)) is not computes
    assert len(turns.tools.jobs) == (1 if computes else 0)


def test_raw_sets_are_computed_by_the_mgr_that_owns_the_journal() -> None:
    turns = Turns('1.1', pin=VECTOR_PIN)
    turns.may_write = False
    assert turns.raws() is True and turns.tools.jobs == []
    turns.may_write = True
    assert turns.raws() is False and len(turns.tools.jobs) == 1


def raws_stored_in_part() -> Turns:
    turns = Turns('1.1', '1.2', pin=VECTOR_PIN)
    assert turns.raws() is False
    turns.tools.jobs[0].run()
    assert turns.raws() is False and turns.with_raw == ['1.1']
    return turns


@pytest.mark.usefixtures('small_parts')
def test_many_raw_sets_are_stored_over_several_turns() -> None:
    turns = raws_stored_in_part()
    turns.goals.goals_fit, turns.may_write = True, False
    assert turns.raws() is False and turns.with_raw == ['1.1'] and turns.reworked == 1
    turns.may_write = True
    assert turns.raws() is True and turns.with_raw == ['1.1', '1.2'] and turns.reworked == 2
    assert turns.goals.goals_fit is False
    assert turns.raws() is True and len(turns.tools.jobs) == 1


@pytest.mark.usefixtures('small_parts')
def test_raw_sets_of_another_crush_map_are_stored_no_further() -> None:
    turns = raws_stored_in_part()
    assert turns.raws(crush=OTHER_CRUSH) is False and turns.with_raw == ['1.1']
    assert len(turns.tools.jobs) == 2
    turns.tools.jobs[1].run()
    # The first one is known already.
    assert turns.raws(crush=OTHER_CRUSH) is True and turns.with_raw == ['1.1', '1.2']


@pytest.mark.usefixtures('small_parts')
def test_raw_sets_are_stored_no_further_while_a_change_is_made() -> None:
    turns = raws_stored_in_part()
    sent = replace(CAMPAIGN, change=replace(CHANGE, stage=ChangeStage.SENT))
    assert turns.raws(campaign=sent) is True and turns.with_raw == ['1.1']
    assert turns.raws() is False and turns.with_raw == ['1.1'] and len(turns.tools.jobs) == 2


@pytest.mark.parametrize('outlook', [FUTURE, FAILED])
def test_raw_sets_of_pins_that_others_have_changed_are_computed_again(outlook: Outlook) -> None:
    pin = replace(VECTOR_PIN, raw=(7, 1, 2))
    turns = Turns('1.1', pin=pin)
    turns.outlook = outlook
    assert turns.raws() is False
    turns.tools.jobs[0].run()
    turns.pins.note({'1.1': replace(pin, was=OTHER)})
    assert turns.raws() is False and turns.pins['1.1'] == replace(pin, was=OTHER)
    assert turns.events == []
    turns.outlook = FUTURE
    assert turns.raws() is False and len(turns.tools.jobs) == 2
    turns.tools.jobs[1].run()
    assert turns.raws() is True and turns.pins['1.1'] == replace(pin, was=OTHER, raw=THERE)


def test_raw_sets_are_unknown_for_a_while_if_the_tools_fail() -> None:
    turns = Turns('1.1', '1.2', pin=replace(VECTOR_PIN, raw=THERE))
    turns.outlook = FAILED
    assert turns.raws() is False
    turns.tools.jobs[0].run()
    assert turns.raws() is True and turns.with_raw == []
    assert [(event.kind, event.what, event.why) for event in turns.events] == [(
        'pins', 'the CRUSH mapping of 2 PGs pinned by pg_upmap is not known', 'no answer')]
    assert turns.raws(999.0 + RAW_SECONDS) is True and len(turns.tools.jobs) == 1
    turns.outlook = FUTURE
    assert turns.raws(1000.0 + RAW_SECONDS) is False and len(turns.tools.jobs) == 2
    turns.tools.jobs[1].run()
    assert turns.raws(1000.0 + RAW_SECONDS) is True and turns.with_raw == ['1.1', '1.2']
    assert len(turns.events) == 1


# ---- goals

def test_goals_are_computed_once_the_basis_is_steady() -> None:
    turns = Turns('1.1')
    turns.compute()
    new = turns.work_out(1006.0)
    assert new is not None and new.event is not None and new.event.kind == 'plan'
    assert new.event.what == '1 PG will move, 0 pins will stay as upmaps'
    assert new.mark.number == 1 and new.mark.basis is not None
    assert turns.pins['1.1'] == replace(PIN, goal=NO_ENTRY) and turns.reworked == 1
    assert turns.goals.goals_fit is True
    noted = changed(CAMPAIGN, goals=new.mark)
    assert turns.work_out(1007.0, noted) is None and turns.goals.goals_fit is True
    # Another CRUSH map is noticed in a turn with a new OSDMap, or after a request.
    assert turns.work_out(1008.0, noted, crush=OTHER_CRUSH, new_map=False) is None
    assert turns.goals.goals_fit is True
    turns.goals.look_again()
    assert turns.work_out(1009.0, noted, crush=OTHER_CRUSH, new_map=False) is None
    assert turns.goals.goals_fit is False and len(turns.tools.jobs) == 1
    # PGs peer for a while.
    assert turns.work_out(1014.0, noted, crush=OTHER_CRUSH) is None and len(turns.tools.jobs) == 1
    assert turns.work_out(1014.5, noted, crush=OTHER_CRUSH) is None and len(turns.tools.jobs) == 2


def test_a_change_of_the_basis_begins_the_time_anew() -> None:
    turns = Turns('1.1')
    for now in (1000.0, 1004.0, 1008.0):
        rules = CRUSH if now == 1000.0 else OTHER_CRUSH
        assert turns.work_out(now, crush=rules) is None and turns.tools.jobs == []
    assert turns.work_out(1010.0, crush=OTHER_CRUSH) is None and len(turns.tools.jobs) == 1


@pytest.mark.parametrize('field, value', [
    ('balancing', Balancing(upmap=False, pools=frozenset({1}))),
    ('options', replace(OPTIONS, target_deviation=3.0))])
def test_goals_depend_on_how_pools_are_balanced(field: str, value: Any) -> None:
    turns = Turns('1.1')
    turns.compute()
    new = turns.work_out(1006.0)
    assert new is not None
    noted = changed(CAMPAIGN, goals=new.mark)
    fields = {field: value}
    assert turns.work_out(1007.0, noted, **fields) is None and turns.goals.goals_fit is False


@pytest.mark.parametrize('campaign', [
    changed(CAMPAIGN, sent={'1.1': Sent(990.0)}), replace(CAMPAIGN, target='crush'),
    replace(CAMPAIGN, phase=Phase.FINISHING)])
def test_no_goals_are_computed(campaign: Campaign) -> None:
    """Pins are on their way, or goals are not needed."""
    turns = Turns('1.1')
    for now in (1000.0, 1100.0):
        assert turns.work_out(now, campaign) is None and turns.tools.jobs == []
    assert turns.goals.goals_fit is not bool(campaign.pinning.sent)


def test_goals_are_computed_by_the_mgr_that_owns_the_journal() -> None:
    turns = Turns('1.1')
    turns.may_write = False
    for now in (1000.0, 1100.0):
        assert turns.work_out(now) is None and turns.tools.jobs == []
    turns.may_write = True
    assert turns.work_out(1101.0) is None and len(turns.tools.jobs) == 1
    turns.tools.jobs[0].run()
    turns.may_write = False
    assert turns.work_out(1102.0) is None and len(turns.tools.jobs) == 1
    turns.may_write = True
    assert turns.work_out(1103.0) is not None and turns.with_goal == ['1.1']


def test_a_pg_that_no_longer_has_to_move_is_forgotten() -> None:
    turns = Turns('1.1')
    turns.pins.note({'1.2': PinRecord(PINNED, PINNED, goal=OTHER)})
    turns.compute()
    assert turns.work_out(1006.0) is not None
    assert dict(turns.pins) == {'1.1': replace(PIN, goal=NO_ENTRY)}


def goals_stored_in_part() -> Turns:
    turns = Turns('1.1', '1.2')
    turns.compute()
    assert turns.work_out(1006.0) is None and turns.with_goal == ['1.1']
    assert turns.goals.goals_fit is False and turns.reworked == 1
    return turns


@pytest.mark.usefixtures('small_parts')
def test_many_goals_are_stored_over_several_turns() -> None:
    turns = goals_stored_in_part()
    turns.may_write = False
    assert turns.work_out(1007.0) is None and turns.with_goal == ['1.1']
    turns.may_write = True
    new = turns.work_out(1008.0)
    assert new is not None and new.mark.number == 1 and new.event is not None
    assert turns.with_goal == ['1.1', '1.2'] and turns.reworked == 2
    assert turns.goals.goals_fit is True
    assert len(turns.tools.jobs) == 1


@pytest.mark.usefixtures('small_parts')
@pytest.mark.parametrize('pgids, parts', [(('1.1',), 1), (('1.1', '1.2'), 2)])
def test_earlier_goals_count_no_longer_before_a_part_of_new_ones_is_stored(
        pgids: Tuple[str, ...], parts: int) -> None:
    campaign = changed(CAMPAIGN, goals=GoalsMark(3, Basis('earlier', {})))
    turns = Turns(*pgids)
    turns.compute(campaign)
    new = turns.work_out(1006.0, campaign)
    assert new is not None
    if parts > 1:
        assert new == NewGoals(GoalsMark(3)) and turns.with_goal == [] and turns.reworked == 0
        campaign = changed(campaign, goals=new.mark)
        assert turns.work_out(1007.0, campaign) is None
        new = turns.work_out(1008.0, campaign)
        assert new is not None
    assert new.mark.number == 4 and turns.with_goal == list(pgids)


@pytest.mark.usefixtures('small_parts')
@pytest.mark.parametrize('campaign, fields, jobs', [
    # Another campaign, another basis; and goals that are not needed any longer.
    (replace(CAMPAIGN, id=2), {}, 2), (CAMPAIGN, {'crush': OTHER_CRUSH}, 1),
    (replace(CAMPAIGN, target='crush'), {}, 1)])
def test_goals_that_do_not_serve_are_stored_no_further(campaign: Campaign, fields: Dict[str, Any],
                                                       jobs: int) -> None:
    turns = goals_stored_in_part()
    assert turns.work_out(1007.0, campaign, **fields) is None
    assert turns.with_goal == ['1.1'] and len(turns.tools.jobs) == jobs
    # They were discarded: those of the campaign from before are computed again.
    for now in (1008.0, 1020.0):
        assert turns.work_out(now) is None
    assert turns.with_goal == ['1.1'] and len(turns.tools.jobs) == jobs + 1


@pytest.mark.usefixtures('small_parts')
def test_goals_of_pins_that_others_have_changed_are_computed_again() -> None:
    turns = goals_stored_in_part()
    turns.pins.note({'1.2': replace(PIN, was=OTHER)})
    assert turns.work_out(1007.0) is None and turns.with_goal == ['1.1']
    assert turns.goals.goals_fit is False and turns.reworked == 2
    assert turns.work_out(1008.0) is None and len(turns.tools.jobs) == 2
    turns.tools.jobs[1].run()
    assert turns.work_out(1009.0) is not None and turns.with_goal == ['1.1', '1.2']
    assert turns.pins['1.2'] == replace(PIN, was=OTHER, goal=NO_ENTRY)


# ---- what goals are computed from

def inputs(turns: Turns, monkeypatch: pytest.MonkeyPatch, campaign: Campaign = CAMPAIGN,
           **fields: Any) -> Tuple[Any, ...]:
    """The arguments of goals.work_out after the campaign and the observation."""
    calls: List[Tuple[Any, ...]] = []

    def work_out(*args: Any) -> goals_of_pins.Goals:
        calls.append(args)
        return goals_of_pins.Goals()

    monkeypatch.setattr(goals_of_pins, 'work_out', work_out)
    turns.compute(campaign, **fields)
    (ground, seen, *rest), = calls
    assert ground.pins == dict(turns.pins) and seen.now == 1005.5
    return tuple(rest)


def test_what_goals_are_computed_from(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns('1.1')
    assert inputs(turns, monkeypatch) == (
        turns.pool_up, Bounds.of(OPTIONS), SPACE, frozenset(), goals_of_pins.NO_TRANCHES)
    assert turns.asked == []


FIRST = replace(CHANGE, share=0.5, following=2)


@pytest.mark.parametrize('change, before, ahead', [
    (CHANGE, False, False), (FIRST, False, True),
    (replace(FIRST, tranche=1, following=1), True, True),
    (replace(FIRST, tranche=2, share=1.0, following=0), True, False)])
def test_the_mappings_of_other_tranches(monkeypatch: pytest.MonkeyPatch, change: WeightChange,
                                        before: bool, ahead: bool) -> None:
    turns = Turns('1.1')
    *_, tranches = inputs(turns, monkeypatch, replace(CAMPAIGN, change=change),
                          options=replace(OPTIONS, max_pins=7))
    if not before and not ahead:
        assert tranches == goals_of_pins.NO_TRANCHES
        return
    assert (tranches.osds, tranches.upmaps) == ({3}, 3)
    assert (tranches.before, tranches.ahead) == (FUTURE if before else None,
                                                 FUTURE if ahead else None)
    osdmap = turns.seen(1000.0).osdmap
    assert turns.asked == [(osdmap, weights, None, True) for weights, asks in (
        (change.start, before), (change.weights, ahead)) if asks]


MIDDLE = replace(FIRST, tranche=1, following=1)


@pytest.mark.parametrize('target, asks', [
    ('crush', [(MIDDLE.weights, False)]),
    # The other mapping is not computed in vain.
    ('balanced', [(MIDDLE.start, True)])])
def test_goals_wait_while_no_tool_can_map_other_tranches(target: str, asks: Any) -> None:
    """Otherwise a tool that the kernel kills once makes the PGs of a tranche move twice."""
    turns, campaign = Turns('1.1'), replace(CAMPAIGN, change=MIDDLE, target=target)
    turns.outlook = FAILED
    turns.compute(campaign)
    now = 1006.0
    for number in range(1, PREVIEW_TIMES):
        assert turns.work_out(now, campaign) is None and not turns.with_goal
        assert turns.work_out(now + RAW_SECONDS - 0.1, campaign) is None
        assert len(turns.tools.jobs) == number and not turns.goals.goals_fit
        now += RAW_SECONDS
        assert turns.work_out(now, campaign) is None and len(turns.tools.jobs) == number + 1
        turns.tools.jobs[-1].run()
    assert [(event.kind, event.what, event.why) for event in turns.events] == [(
        'plan', 'cannot compute the targets of the pinned PGs; perfguard will retry', 'no answer')]
    assert turns.asked == [(turns.seen(1000.0).osdmap, weights, None, whole)
                           for weights, whole in asks] * PREVIEW_TIMES

    # After so many failures, PGs rather move twice than not at all.
    assert turns.work_out(now, campaign) is None and not turns.with_goal
    assert turns.events[1].what \
        == 'the targets of the pinned PGs ignore the later tranches, so PGs may move twice'
    assert turns.work_out(now + RAW_SECONDS, campaign) is None
    turns.tools.jobs[-1].run()
    assert turns.work_out(now + RAW_SECONDS + 1.0, campaign) is not None
    assert turns.with_goal == ['1.1'] and len(turns.events) == 2


def test_a_tool_that_failed_once_is_asked_again() -> None:
    turns, campaign = Turns('1.1'), replace(CAMPAIGN, change=MIDDLE, target='crush')
    turns.outlook = FAILED
    turns.compute(campaign)
    assert turns.work_out(1006.0, campaign) is None
    turns.outlook = FUTURE
    assert turns.work_out(1006.0 + RAW_SECONDS, campaign) is None
    turns.tools.jobs[-1].run()
    assert turns.work_out(1007.0 + RAW_SECONDS, campaign) is not None
    assert turns.goals._tranche_failures == 0 and len(turns.events) == 1


@pytest.mark.parametrize('up, outlook, shown, absent', [
    # No PG lacks it.
    (HERE, FUTURE, HERE, set()), ((1, 2), FUTURE, THERE, set()), ((1, 2), FAILED, (1, 2), {3}),
    ((1, 2), replace(FUTURE, pgs={}), (1, 2), {3})])
def test_up_sets_with_osds_that_are_down(monkeypatch: pytest.MonkeyPatch, up: OsdSet,
                                         outlook: Outlook, shown: OsdSet, absent: Any) -> None:
    turns = Turns('1.3')
    turns.up, turns.outlook = {'1.1': up}, outlook
    down: Any = {'osds': {3: Osd(3, False, 1.0)}}
    pool_up, *_, lacking, _ = inputs(turns, monkeypatch, **down)
    assert pool_up(1) == {**turns.pool_up(1), '1.1': shown} and lacking == absent
    assert turns.asked == ([] if up == HERE else [
        (turns.seen(1000.0, **down).osdmap, {}, None, True)])
