# SPDX-License-Identifier: LGPL-2.1-or-later
"""What is borrowed: the same cases for everything that perfguard changes for a while.

Each kind of setting goes through the code of its own job. The record is read back from JSON in
every turn, as after a failover.
"""
import json
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Type

import pytest

from perfguard.cluster.set_by_others import BALANCER
from perfguard.cluster.types import ConfigEntry, OsdMap, Pool
from perfguard.codec import decode, encode
from perfguard.errors import Reason
from perfguard.ledger import Held, Ledger, Owner, Row, give_back, hold, hold_other
from perfguard.mitigation import ladder
from perfguard.mitigation.types import (Evidence, LadderStep, LadderView, MitigationState, Policy,
                                        Rung, Setting, SettingKind, StepStage)
from perfguard.observation import Settings
from perfguard.probe.resources import DELETE_OPTION, ResourceManager, RunResources
from perfguard.rebalance.campaign import Campaign
from perfguard.rebalance.holds import NOREBALANCE, reconcile
from perfguard.rebalance.types import (Action, Holds, Phase, SetPool, SetBalancer, SetFlag,
                                       SetOption)

from .fakes.campaigns import campaign_of

BAD = Evidence((Reason('LAGGY', '1 PG is laggy'),), moving=True, rebalancing=True)
ACT = Policy('act', 10.0, affinity=True)
Value = Optional[str]


class Engine:
    """One setting, and the job that borrows it. `value`: its value in the cluster."""
    found: Value = None
    put: str = ''
    #: What an administrator may set it to; None for a setting with no third value.
    foreign: Value = None

    def __init__(self) -> None:
        self.value = self.found
        #: The next so many commands are refused.
        self.refused = 0
        self.sent: List[Value] = []
        self.notices: List[str] = []

    def turn(self, wanted: bool) -> None:
        """One turn of the job, which wants to hold the setting or to give it back."""
        raise NotImplementedError

    def held(self) -> bool:
        raise NotImplementedError

    def send(self, value: Value) -> None:
        self.sent.append(value)
        if self.refused:
            self.refused -= 1
        else:
            self.value = value

    def run(self, wanted: bool, turns: int = 4) -> None:
        for _ in range(turns):
            self.turn(wanted)


class OfCampaign(Engine):
    def __init__(self) -> None:
        super().__init__()
        self.holds = Holds()

    def settings(self) -> Settings:
        return self.with_settings(None, 'false', 'off', {})

    @staticmethod
    def with_settings(flag: Value, stored: Value, mode: str, mon: Mapping[str, str]) -> Settings:
        osdmap = OsdMap(1, frozenset(filter(None, [flag])),
                        {1: Pool(1, 'p', False, 3, 2, 0, 8, 8, 8, mode)}, {}, {}, {}, {})
        balancer = {} if stored is None else {BALANCER: stored}
        return Settings(osdmap, stored or 'true', {'mgr': balancer, 'mon': mon})

    def turn(self, wanted: bool) -> None:
        done = reconcile(self.holds, self.settings(), **self.wish(wanted))
        self.notices += done.notices
        campaign = encode(campaign_of(1, Phase.PREPARED, 1.0, holds=done.holds))
        self.holds = decode(Campaign, json.loads(json.dumps(campaign))).holds
        assert self.holds == done.holds
        for action in done.actions:
            self.act(action)

    def wish(self, wanted: bool) -> Dict[str, Any]:
        return {'norebalance': False, 'quiet': wanted, 'begin': True}

    def act(self, action: Action) -> None:
        raise NotImplementedError

    def held(self) -> bool:
        return bool(self.holds)


class Flag(OfCampaign):
    put = NOREBALANCE

    def settings(self) -> Settings:
        return self.with_settings(self.value, 'false', 'off', {})

    def wish(self, wanted: bool) -> Dict[str, Any]:
        return {'norebalance': wanted, 'quiet': False, 'begin': True}

    def act(self, action: Action) -> None:
        assert isinstance(action, SetFlag)
        self.send(NOREBALANCE if action.on else None)


class Balancer(OfCampaign):
    found = 'true'
    put = 'false'

    def settings(self) -> Settings:
        return self.with_settings(None, self.value, 'off', {})

    def act(self, action: Action) -> None:
        assert isinstance(action, SetBalancer)
        self.send('true' if action.active else 'false')


class Autoscaler(OfCampaign):
    found = 'on'
    put = 'off'
    foreign = 'warn'

    def settings(self) -> Settings:
        return self.with_settings(None, 'false', self.value or '', {})

    def act(self, action: Action) -> None:
        assert isinstance(action, SetPool)
        self.send(action.value)


class MonOption(OfCampaign):
    found: Value = '1'
    put = '0.1'
    foreign = '2'

    def settings(self) -> Settings:
        return self.with_settings(None, 'false', 'off',
                                  {} if self.value is None else {'x': self.value})

    def wish(self, wanted: bool) -> Dict[str, Any]:
        return {'norebalance': False, 'quiet': False, 'begin': True,
                'mon': {'x': self.put} if wanted else {}}

    def act(self, action: Action) -> None:
        assert isinstance(action, SetOption)
        # As the mons write the value of an option that is a float.
        self.send(action.value and '%f' % float(action.value))


class MonOptionNotSet(MonOption):
    found = None


class OfMitigation(Engine):
    rung = Rung.SLOW
    setting = Setting(SettingKind.CONFIG, 'osd_max_backfills', 'osd', Held('4', '1'))

    def __init__(self) -> None:
        super().__init__()
        self.state = MitigationState(stepped=1e6)
        self.begun = False

    def seen(self) -> LadderView:
        entry = ConfigEntry('osd', '', 'osd_max_backfills', self.value or '')
        return LadderView(config=() if self.value is None else (entry,))

    def turn(self, wanted: bool) -> None:
        steps = self.state.steps
        if wanted and not self.begun:
            self.begun = True
            self.state = replace(self.state, steps=(
                LadderStep(1, self.rung, StepStage.HELD, 1e6, 'bad', '3', (self.setting,)),))
        elif not wanted and steps and steps[0].stage is StepStage.HELD:
            self.state = ladder.revert(self.state, 1)
        decision = ladder.decide(self.state, BAD, self.seen(), ACT, 1e6)
        self.notices += [event.what for event in decision.events if 'given up' in event.what
                         or 'unchanged' in event.what]
        self.state = decode(MitigationState, json.loads(json.dumps(encode(decision.state))))
        for put in decision.actions:
            self.send(put.value)

    def held(self) -> bool:
        return any(step.stage in (StepStage.HELD, StepStage.UNDOING) for step in self.state.steps)


class OsdOption(OfMitigation):
    found = '4'
    put = '1'
    foreign = '2'


class MitigationFlag(OfMitigation):
    rung = Rung.NOREBALANCE
    setting = Setting(SettingKind.FLAG, NOREBALANCE, '', Held(None, 'set'))
    put = 'set'

    def seen(self) -> LadderView:
        return LadderView(frozenset([NOREBALANCE] if self.value else []), config=())


class PrimaryAffinity(OfMitigation):
    rung = Rung.AFFINITY
    setting = Setting(SettingKind.AFFINITY, '3', '', Held('1', '0'))
    found = '1'
    put = '0'
    foreign = '0.5'

    def seen(self) -> LadderView:
        return LadderView(affinities={3: float(self.value or 0)}, config=())


ENGINES: Sequence[Type[Engine]] = (Flag, Balancer, Autoscaler, MonOption, MonOptionNotSet,
                                   OsdOption, MitigationFlag, PrimaryAffinity)
with_a_third_value = pytest.mark.parametrize(
    'kind', [kind for kind in ENGINES if kind.foreign is not None])
each_kind = pytest.mark.parametrize('kind', ENGINES)


def same(one: Value, other: Value) -> bool:
    return one == other or None not in (one, other) and float(one or 0) == float(other or 0)


@each_kind
def test_held_seen_and_given_back(kind: Type[Engine]) -> None:
    engine = kind()
    engine.run(True)
    assert engine.held() and len(engine.sent) == 1 and same_text(engine.value, engine.put)
    engine.run(False)
    assert not engine.held() and same_text(engine.value, engine.found)
    assert len(engine.sent) == 2 and not engine.notices


def same_text(one: Value, other: Value) -> bool:
    try:
        return same(one, other)
    except ValueError:
        return False


@each_kind
@pytest.mark.parametrize('refused', [1, 2])
def test_a_refused_or_lost_command_is_sent_again(kind: Type[Engine], refused: int) -> None:
    """Also a crash of the mgr between the journal and the command."""
    engine = kind()
    engine.refused = refused
    engine.run(True)
    assert engine.held() and same_text(engine.value, engine.put)
    engine.refused = refused
    engine.run(False)
    assert not engine.held() and same_text(engine.value, engine.found) and not engine.notices


@each_kind
def test_given_back_before_it_was_seen(kind: Type[Engine]) -> None:
    """The command may have arrived all the same."""
    engine = kind()
    engine.turn(True)
    engine.run(False)
    assert not engine.held() and same_text(engine.value, engine.found)


@each_kind
def test_a_command_of_a_dead_mgr_that_may_still_arrive_is_taken_back(kind: Type[Engine]) -> None:
    """It crashed again between the journal and the command that takes it back."""
    engine = kind()
    engine.refused = 2
    engine.turn(True)
    engine.turn(False)
    assert engine.refused == 0 and same_text(engine.value, engine.found)
    engine.turn(False)
    assert len(engine.sent) == 3 and same_text(engine.sent[-1], engine.found)
    engine.run(False)
    assert not engine.held() and len(engine.sent) == 3 and not engine.notices


@each_kind
def test_cleared_by_others_while_it_is_held(kind: Type[Engine]) -> None:
    engine = kind()
    engine.run(True)
    sent, engine.value = len(engine.sent), engine.found
    engine.run(True)
    engine.run(False)
    assert not engine.held() and same_text(engine.value, engine.found)
    assert len(engine.sent) == sent and len(engine.notices) == 1


@with_a_third_value
def test_changed_by_others_while_it_is_held(kind: Type[Engine]) -> None:
    engine = kind()
    engine.run(True)
    sent, engine.value = len(engine.sent), engine.foreign
    engine.run(True)
    engine.run(False)
    assert not engine.held() and engine.value == engine.foreign
    assert len(engine.sent) == sent and len(engine.notices) == 1


@with_a_third_value
def test_changed_by_others_right_before_it_is_given_back(kind: Type[Engine]) -> None:
    engine = kind()
    engine.run(True)
    sent, engine.value = len(engine.sent), engine.foreign
    engine.run(False)
    assert not engine.held() and engine.value == engine.foreign and len(engine.sent) == sent


@with_a_third_value
@pytest.mark.parametrize('wanted', [True, False])
def test_changed_by_others_before_the_command_was_sent(kind: Type[Engine],
                                                       wanted: bool) -> None:
    """The mgr crashed before it sent anything; what is neither found nor put is not ours."""
    engine = kind()
    engine.refused = 1
    engine.turn(True)
    sent, engine.value = len(engine.sent), engine.foreign
    engine.run(wanted)
    engine.run(False)
    assert not engine.held() and engine.value == engine.foreign and len(engine.sent) == sent


class Mons:
    """The configuration database, as a probe's run sees it."""

    def __init__(self, value: Value) -> None:
        self.value = value
        self.commands: List[str] = []

    def config_entries(self) -> List[ConfigEntry]:
        return [] if self.value is None else [ConfigEntry('mon', '', DELETE_OPTION, self.value)]

    def unanswered(self) -> bool:
        return False

    def run(self, commands: Sequence[Mapping[str, Any]]) -> List[Any]:
        for command in commands:
            self.commands.append(command['prefix'])
            self.value = command.get('value')
        return [type('Reply', (), {'retval': 0, 'error': '', 'out': ''}) for _ in commands]


@pytest.mark.parametrize('found', [None, 'false', 'true'])
@pytest.mark.parametrize('later', ['', 'false', 'true', None])
def test_mon_allow_pool_delete(found: Value, later: Value) -> None:
    mons = Mons(found)
    kept: List[RunResources] = []

    def keep(resources: RunResources) -> bool:
        kept.append(decode(RunResources, json.loads(json.dumps(encode(resources)))))
        return True

    made: Any = ResourceManager
    manager = made(mons, keep, RunResources(7, 'p', True, user=True))
    assert manager._allow(DELETE_OPTION) and mons.value == 'true'
    assert kept[0].allowed == {DELETE_OPTION: found}
    if later != '':
        mons.value = later
    # Another mgr continues from the journal.
    assert made(mons, keep, kept[-1]).restore_settings() and not kept[-1].allowed
    theirs = later not in ('', 'true')
    assert mons.value == (later if theirs else found)


# ---- the rule itself

@pytest.mark.parametrize('held, value, expected', [
    (Held('1', '3'), '1', (Held('1', '3'), True, False)),
    (Held('1', '3'), '3.000', (Held('1', '3', True), False, False)),
    (Held('1', '3'), '2', (None, False, True)),
    (Held('1', '3', True), '1', (None, False, True)),
    (Held('1', '3', earlier=('5',)), '5', (Held('1', '3', earlier=('5',)), True, False)),
    (Held('1', '3', earlier=('5',)), '3', (Held('1', '3', True), False, False)),
    (Held('1', '3', True, True), '1', (Held('1', '3'), True, False)),
    (Held('1', '3', True, True), '3', (Held('1', '3', True), False, False)),
    (Held('1', '3', True, True), '2', (None, False, True))])
def test_hold(held: Held, value: Value, expected: Any) -> None:
    assert hold(held, value) == expected


@pytest.mark.parametrize('held, value, expected', [
    (Held('1', '3', True), '3', (Held('1', '3', True, True), True, False)),
    (Held('1', '3', True, True), '1', (None, False, False)),
    (Held('1', '3'), '1', (Held('1', '3', False, True), True, False)),
    (Held('1', '3', False, True), '1', (Held('1', '3', True, True), True, False)),
    (Held('1', '3'), '2', (None, False, True)),
    (Held('1', '3', earlier=('5',)), '5', (Held('1', '3', True, True, ('5',)), True, False)),
    (Held('3', '3', True), '3', (None, False, False)),
    (Held('1', '3', True), None, (None, False, True))])
def test_give_back(held: Held, value: Value, expected: Any) -> None:
    assert give_back(held, value) == expected


def test_an_earlier_value_that_arrives_late_is_still_ours() -> None:
    """It was never seen when another one was wanted."""
    changed = hold_other(Held('1', '3'), '1', '0.1')
    assert changed == (Held('1', '0.1', earlier=('3',)), True, False) and changed.held is not None
    assert hold_other(changed.held, '3', '0.1') == changed
    assert give_back(changed.held, '3').send
    # Nor where the command for the new value was refused.
    assert hold_other(Held('1', '3', True), '3', '0.1') == changed
    assert hold_other(Held('1', '3', True), '2', '0.1').theirs


def test_what_was_found_and_put_before_is_given_back_once() -> None:
    """The value that was found was wanted first, then another one that never arrived."""
    changed = hold_other(Held('0.1', '0.1', True), '0.1', '3').held
    for held in (changed, Held('0.1', '3', earlier=('0.1',))):  # as earlier versions noted it
        assert held is not None
        back = give_back(held, '0.1')
        assert back.send and back.held is not None
        assert give_back(back.held, '0.1') == (None, False, False)


def test_a_part_leaves_alone_what_another_one_has_borrowed() -> None:
    """It would take the value of that one for the operator's, and give it back for good."""
    ledger = Ledger(tuple(Row(owner, name, None, '1', 1.0, 'ceph ...', name) for owner, name in (
        (Owner.CAMPAIGN, 'osd_max_backfills'), (Owner.MITIGATION, NOREBALANCE))))
    assert ledger.borrowed_by_others(Owner.MITIGATION) == {'osd_max_backfills'}
    assert ledger.borrowed_by_others(Owner.CAMPAIGN) == {NOREBALANCE}
    assert ledger.borrowed_by_others(Owner.PROBE) == {'osd_max_backfills', NOREBALANCE}
