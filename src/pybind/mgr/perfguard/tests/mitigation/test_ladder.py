# SPDX-License-Identifier: LGPL-2.1-or-later
"""The ladder on synthetic timelines: one rung an interval, hysteresis, other hands, modes."""
import json
from dataclasses import dataclass, field, replace
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Set, Tuple

import pytest

from perfguard.cluster.types import ConfigEntry
from perfguard.codec import Malformed, decode, encode
from perfguard.errors import Code, Reason, texts
from perfguard.ledger import Held
from perfguard.mitigation import ladder
from perfguard.mitigation.evidence import IN_VAIN_REST_SECONDS, IN_VAIN_SECONDS, RECOVERY_SHARE
from perfguard.mitigation.recovery import NO_BOUND
from perfguard.mitigation.report import listing, mitigation_rows, reasons
from perfguard.mitigation.types import (Evidence, LadderDecision, LadderStep, LadderView,
                                        MitigationState, Need, Policy, Put, RecoveryPace, Rung,
                                        Setting, SettingKind, StepStage, Trouble)
from perfguard.text import plural

LAGGY = Reason(Code.LAGGY, '3 PGs are laggy')
BAD = Evidence((LAGGY,), moving=True, rebalancing=True)
CLEAR = Evidence(moving=True, rebalancing=True)
SECONDS = 10.0
FOUND = {('osd', 'osd_max_backfills'): '4'}
SLOWED = {('osd', 'osd_max_backfills'): '1', ('osd', 'osd_recovery_max_active'): '1'}
DEGRADED = replace(BAD, degraded=2)


@dataclass
class World:
    """A cluster that executes every command, and a state that goes through JSON every turn."""
    policy: Policy = Policy('act', SECONDS)
    evidence: Evidence = BAD
    flags: Set[str] = field(default_factory=set)
    #: Flags that others have set, and the values of other settings, with the time.
    set_by_others: Set[str] = field(default_factory=set)
    values_set_by_others: Dict[str, Tuple[str, float]] = field(default_factory=dict)
    config: Dict[Tuple[str, str], str] = field(default_factory=lambda: dict(FOUND))
    affinities: Dict[int, float] = field(default_factory=lambda: {i: 1.0 for i in range(20)})
    hosts: Dict[int, str] = field(default_factory=lambda: {i: 'h%d' % (i // 5) for i in range(20)})
    in_flight: FrozenSet[str] = frozenset()
    waiting: FrozenSet[str] = frozenset()
    schedulers: Optional[FrozenSet[str]] = frozenset({'wpq'})
    taken: FrozenSet[str] = frozenset()
    campaign_still: bool = False
    mixed: FrozenSet[int] = frozenset()
    futile: Dict[int, str] = field(default_factory=dict)
    unread: FrozenSet[int] = frozenset()
    #: The commands are lost.
    deaf: bool = False
    #: When the mons last left commands unanswered.
    unanswered_at: float = 0.0
    now: float = 1e6
    state: MitigationState = MitigationState()
    events: List[str] = field(default_factory=list)
    puts: List[Put] = field(default_factory=list)

    def seen(self) -> LadderView:
        config = tuple(ConfigEntry(who.partition('/')[0], who.partition('/')[2], name, value)
                       for (who, name), value in self.config.items())
        states: Mapping[str, str] = {
            pgid: 'active+remapped+backfill' + ('_wait' if pgid in self.waiting else 'ing')
            for pgid in self.in_flight}
        return LadderView(frozenset(self.flags), dict(self.affinities), dict(self.hosts), config,
                          self.schedulers, self.in_flight, states, self.campaign_still,
                          self.taken, mixed=self.mixed, futile=self.futile, unread=self.unread,
                          flags_set_by_others=frozenset(self.flags & self.set_by_others),
                          values_set_by_others=self.values_set_by_others,
                          unanswered_at=self.unanswered_at)

    def turn(self, seconds: float = 1.0) -> None:
        decision = ladder.decide(self.state, self.evidence, self.seen(), self.policy, self.now)
        self.state = decode(MitigationState, json.loads(json.dumps(encode(decision.state))))
        assert self.state == decision.state
        self.events += [event.what for event in decision.events]
        for put in decision.actions:
            self.puts.append(put)
            if not self.deaf:
                self._apply(put)
        self.now += seconds

    def _apply(self, put: Put) -> None:
        setting = put.setting
        if setting.kind is SettingKind.FLAG:
            (self.flags.discard if put.value is None else self.flags.add)(setting.name)
        elif setting.kind is SettingKind.AFFINITY:
            assert put.value is not None
            # As OSDMonitor and OSDMap do.
            self.affinities[int(setting.name)] = int(float(put.value) * 65536) / 65536
        elif put.value is None:
            self.config.pop((setting.who, setting.name), None)
        else:
            self.config[setting.who, setting.name] = put.value

    def run(self, turns: int) -> None:
        for _ in range(turns):
            self.turn()

    def run_to(self, stages: Dict[str, str]) -> None:
        for _ in range(60):
            if self.stages() == stages:
                return
            self.turn()
        assert self.stages() == stages

    def stages(self) -> Dict[str, str]:
        return {step.rung.value + step.subject: step.stage.value for step in self.state.steps}

    def climb(self) -> None:
        """All rungs for movement that there is a reason for."""
        self.run(45)
        assert self.stages()['slow recovery'] == 'held', self.stages()


def untouched(world: World) -> bool:
    return not world.flags and world.config == FOUND and set(world.affinities.values()) == {1.0}


# ---- up

def test_one_rung_an_interval_in_order() -> None:
    world = World(in_flight=frozenset({'1.1', '1.2'}), waiting=frozenset({'1.2'}))
    taken: List[Tuple[float, str]] = []
    for _ in range(60):
        before = set(world.stages())
        world.turn()
        taken += [(world.now - 1e6 - 1.0, rung) for rung in set(world.stages()) - before]
    assert taken == [(10.0, 'norebalance'), (20.0, 'pin back'), (30.0, 'slow recovery')]
    assert world.flags == {'norebalance'} and world.config == SLOWED
    assert all(setting.held.seen for step in world.state.steps for setting in step.settings)
    assert [step.id for step in world.state.steps] == [1, 2, 3]


def test_norebalance_never_keeps_degraded_pgs_from_recovery() -> None:
    """They wait behind PGs without objects, whose backfill norebalance defers."""
    blocked = replace(DEGRADED, blocked=True)
    world = World(evidence=blocked)
    world.run(30)
    assert not world.flags
    world.evidence = DEGRADED
    world.run(12)
    assert world.flags == {'norebalance'}
    world.evidence, world.campaign_still = blocked, True
    world.run(3)
    assert not world.flags


def test_pgs_are_pinned_back_once() -> None:
    world = World(in_flight=frozenset({'1.1', '1.2'}), waiting=frozenset({'1.2'}))
    world.run(25)
    (step,) = [step for step in world.state.steps if step.rung is Rung.PIN_BACK]
    assert step.pgs == ('1.2',)
    world.in_flight = frozenset({'1.1'})
    world.turn()
    world.in_flight = frozenset({'1.1', '1.2'})
    world.run(3)
    assert [step.pgs for step in world.state.steps if step.rung is Rung.PIN_BACK] == [()]


@pytest.mark.parametrize('evidence', [
    CLEAR, Evidence((LAGGY,)), Evidence(slow_osds={3: 'slow'}, moving=True),
    Evidence((LAGGY,), is_incomplete=True)])
def test_nothing_is_done_without_trouble_and_movement(evidence: Evidence) -> None:
    world = World(evidence=evidence)
    world.run(60)
    assert world.state.steps == () and world.puts == [] and world.events == []


def test_flapping_evidence_moves_nothing() -> None:
    world = World()
    for _ in range(30):
        world.evidence = BAD
        world.run(5)
        world.evidence = CLEAR
        world.run(5)
    assert world.puts == [] and world.state.steps == ()
    # Up, then flapping: neither further up nor down.
    world.evidence = BAD
    world.run(12)
    assert world.stages() == {'norebalance': 'held'}
    for _ in range(10):
        world.evidence = CLEAR
        world.run(9)
        world.evidence = BAD
        world.run(5)
    assert world.stages() == {'norebalance': 'held'} and len(world.puts) == 1


def test_recovery_alone_is_slowed_at_once() -> None:
    """norebalance does nothing for PGs that only recover."""
    world = World(evidence=Evidence((Reason(Code.SLOW_OPS, '1 slow operation'),), moving=True))
    world.run(12)
    assert world.stages() == {'slow recovery': 'held'} and not world.flags


@pytest.mark.parametrize('mode', ['observe', 'act'])
def test_recovery_of_degraded_pgs_is_never_slowed(mode: str) -> None:
    world = World(policy=Policy(mode, SECONDS), evidence=DEGRADED)
    world.run(60)
    assert list(world.stages()) == ['norebalance'] and world.config == FOUND


def test_pgs_whose_primary_hangs_stay_unknown_and_hinder_nothing() -> None:
    world = World(evidence=replace(BAD, is_incomplete=True))
    world.climb()
    assert world.config == SLOWED
    world.evidence = replace(DEGRADED, is_incomplete=True)
    world.turn()
    assert world.config == FOUND, 'known to be degraded'


def test_slowed_recovery_is_given_back_at_once_when_pgs_become_degraded() -> None:
    world = World()
    world.climb()
    assert world.config == SLOWED
    world.evidence = DEGRADED
    world.turn()
    assert world.config == FOUND, 'in the same turn'
    world.run(60)
    assert world.stages() == {'norebalance': 'held'} and world.config == FOUND
    assert 'slow recovery: undoing' in world.events
    world.evidence = BAD
    world.run(9)
    assert world.config == FOUND
    world.run(3)
    assert world.stages()['slow recovery'] == 'held' and world.config == SLOWED


def test_pgs_that_are_degraded_now_and_then_do_not_make_options_flap() -> None:
    world = World()
    world.climb()
    puts = len(world.puts)
    for _ in range(10):
        world.evidence = DEGRADED
        world.turn()
        world.evidence = BAD
        world.run(4)
    assert world.stages() == {'norebalance': 'held'} and len(world.puts) == puts + 2


def test_slowing_that_would_be_done_is_not_said_of_degraded_pgs() -> None:
    world = World(policy=Policy('observe', SECONDS))
    world.run(30)
    assert world.stages() == {'norebalance': 'would', 'slow recovery': 'would'}
    world.evidence = DEGRADED
    world.turn()
    assert world.stages() == {'norebalance': 'would'}


@pytest.mark.parametrize('change', [{'flags': {'norebalance'}}, {'taken': {'norebalance'}}])
def test_a_flag_that_is_there_is_not_taken(change: Dict[str, Any]) -> None:
    world = World(**change)
    world.run(30)
    assert world.stages() == {'slow recovery': 'held'}
    world.evidence = CLEAR
    world.run(60)
    assert world.flags == change.get('flags', set()) and world.config == FOUND


def test_what_must_be_asked_for_is_waited_for() -> None:
    world = World(schedulers=None)
    world.run(60)
    assert world.stages() == {'norebalance': 'held'}
    world.schedulers = frozenset({'wpq'})
    world.turn()
    assert world.stages()['slow recovery'] == 'held'


# ---- down

def test_down_one_by_one_after_twice_the_interval() -> None:
    world = World()
    world.climb()
    world.evidence = CLEAR
    begin = world.now
    gone: List[Tuple[float, str]] = []
    while world.state.steps:
        before = set(world.stages())
        world.turn()
        gone += [(world.now - 1.0 - begin, rung) for rung in before - set(world.stages())]
        assert world.now < begin + 100
    # Two turns more: to give back, and to see it.
    assert gone == [(22.0, 'slow recovery'), (32.0, 'norebalance')]
    assert untouched(world)


def test_trouble_in_between_starts_the_count_again() -> None:
    world = World()
    world.climb()
    for _ in range(5):
        world.evidence = CLEAR
        world.run(19)
        world.evidence = BAD
        world.run(1)
    assert set(world.stages().values()) == {'held'}


def test_what_is_not_known_is_neither_trouble_nor_calm() -> None:
    world = World()
    world.climb()
    world.evidence = Evidence(is_incomplete=True)
    world.run(100)
    assert set(world.stages().values()) == {'held'}


def test_movement_that_ends_ends_the_mitigation() -> None:
    world = World()
    world.climb()
    world.evidence = Evidence((LAGGY,))
    world.run(60)
    assert untouched(world)


def test_norebalance_stays_while_the_campaign_wants_it() -> None:
    world = World()
    world.run(12)
    world.campaign_still, world.evidence = True, CLEAR
    world.run(60)
    assert world.stages() == {'norebalance': 'undoing'} and world.flags == {'norebalance'}
    world.campaign_still = False
    world.run(3)
    assert untouched(world)


@pytest.mark.parametrize('undoing', [False, True])
def test_norebalance_that_an_operator_has_set_as_well_stays(undoing: bool) -> None:
    world = World()
    world.run(15)
    assert world.stages() == {'norebalance': 'held'}
    if undoing:
        world.campaign_still, world.evidence = True, CLEAR
        world.run(40)
        assert world.stages() == {'norebalance': 'undoing'}
        world.campaign_still = False
    world.set_by_others.add('norebalance')
    world.evidence = CLEAR
    world.run(60)
    assert world.flags == {'norebalance'} and len(world.puts) == 1
    assert not any(step.stage in (StepStage.HELD, StepStage.UNDOING)
                   for step in world.state.steps)


# ---- in vain

SLOW_OPS = Reason(Code.SLOW_OPS, '7 slow operations')
#: A slow OSD was marked out: nothing is degraded, and its operations are slow until it is empty.
EVACUATED = Evidence((SLOW_OPS,), moving=True, rebalancing=True)
T = IN_VAIN_SECONDS


def in_vain(evidence: Evidence = EVACUATED) -> World:
    """Until all rungs were undone."""
    world = World(evidence=evidence)
    world.run(int(T) + 60)
    assert set(world.stages().values()) == {'in vain'} and untouched(world), world.stages()
    return world


def test_an_evacuation_is_not_stopped_for_ever() -> None:
    """norebalance would keep the OSD full, and its operations slow, for as long as they are."""
    world = World(evidence=EVACUATED, in_flight=frozenset({'1.1', '1.2'}),
                  waiting=frozenset({'1.2'}))
    gone: List[Tuple[float, str]] = []
    while not gone or len(gone) < 3:
        before = {rung for rung, stage in world.stages().items() if stage == 'in vain'}
        world.turn()
        gone += [(world.now - 1e6 - 1.0, rung) for rung, stage in world.stages().items()
                 if stage == 'in vain' and rung not in before]
        assert world.now < 1e6 + T + 60
    # Taken after 10 s, and seen a second later; two turns to give back and to see it.
    assert gone == [(T + 12.0, 'norebalance'), (T + 21.0, 'pin back'),
                    (T + 32.0, 'slow recovery')], gone
    assert untouched(world) and ladder.stops(world.state, EVACUATED) == (SLOW_OPS,)
    puts = len(world.puts)
    for _ in range(1440):
        world.turn(60.0)
    assert len(world.puts) == puts and set(world.stages().values()) == {'in vain'}
    assert [text for text in world.events if 'undoing' in text] == [
        'norebalance: undoing', 'pin back: undoing', 'slow recovery: undoing']
    world.evidence = CLEAR
    world.run(int(IN_VAIN_REST_SECONDS) + 60)
    assert world.state.steps == world.state.troubles == ()
    world.evidence = EVACUATED
    world.run(12)
    assert world.stages() == {'norebalance': 'held'}


def test_another_trouble_is_judged_anew() -> None:
    """One that lasts for days must not keep the others from being mitigated."""
    world = in_vain()
    world.evidence = replace(EVACUATED, trouble=(SLOW_OPS, LAGGY))
    world.run(12)
    assert world.stages() == {'slow recovery': 'in vain', 'norebalance': 'held'}
    assert world.state.steps[-1].why == '3 PGs are laggy'
    world.run(20)
    world.evidence = EVACUATED
    world.run(60)
    assert set(world.stages().values()) <= {'in vain'} and untouched(world)


@pytest.mark.parametrize('number, held', [(7, False), (8, True)])
def test_the_number_of_osds_may_vary(number: int, held: bool) -> None:
    world = in_vain(many(3))
    world.evidence = many(number)
    world.run(30)
    assert world.flags == ({'norebalance'} if held else set())


@pytest.mark.parametrize('seconds', [5, 15])
def test_numbers_that_go_up_and_down_are_judged_in_the_end(seconds: int) -> None:
    """Else movement would be stopped and continued for ever."""
    world = in_vain(many(1))
    puts = len(world.puts)
    for turn in range(100):
        world.evidence = many(1 if turn % 2 else 9)
        world.run(seconds)
    world.run(60)
    assert untouched(world) and len(world.puts) - puts <= 6


def many(number: int) -> Evidence:
    return replace(EVACUATED, trouble=(Reason(Code.SLOW_OPS, 'x', number=number),))


def test_a_rung_that_was_reverted_is_applied_again_although_an_operation_never_ends() -> None:
    """Else one stuck operation keeps the rung from the whole cluster for weeks."""
    world = World(evidence=EVACUATED)
    world.climb()
    slow = next(step for step in world.state.steps if step.rung is Rung.SLOW)
    world.state = ladder.revert(world.state, slow.id)
    world.run(int(T) + 60)
    assert world.stages() == {'norebalance': 'in vain'} and untouched(world)
    world.evidence = replace(EVACUATED, trouble=(SLOW_OPS, LAGGY))
    world.climb()
    assert world.stages() == {'norebalance': 'held', 'slow recovery': 'held'}


@pytest.mark.parametrize('code', [Code.SLOW_OPS, Code.LAGGY])
def test_trouble_of_more_osds_or_pgs_is_judged_anew(code: str) -> None:
    """One operation that never ends, or one PG, must not blind the ladder for the whole cluster."""
    def trouble(number: int) -> Evidence:
        return replace(EVACUATED, trouble=(Reason(code, '%d x' % number, number=number),))
    world = in_vain(trouble(1))
    world.evidence = trouble(300)
    world.run(12)
    assert world.stages()['norebalance'] == 'held' and world.flags == {'norebalance'}
    assert world.state.steps[-1].why == '300 x'
    world.run(int(T) + 60)
    assert set(world.stages().values()) == {'in vain'} and untouched(world)
    puts = len(world.puts)
    for number in (150, 511, 1, 300) * 20:
        world.evidence = trouble(number)
        world.run(30)
    assert len(world.puts) == puts
    # What is left says nothing about later movement.
    world.evidence = trouble(1)
    world.run(int(IN_VAIN_REST_SECONDS) + 10)
    world.evidence = trouble(300)
    world.run(12)
    assert world.stages()['norebalance'] == 'held'


def test_laggy_pgs_are_one_trouble_whatever_they_are_called() -> None:
    world = World(evidence=BAD)
    names = [LAGGY, Reason(Code.LEASES, 'x'), Reason(Code.LAGGY_LATELY, 'y')]
    for second in range(int(T) + 60):
        world.evidence = replace(BAD, trouble=(names[second % 3],))
        world.turn()
    assert set(world.stages().values()) == {'in vain'} and untouched(world)


def test_each_slow_pool_is_a_trouble_of_its_own() -> None:
    def slow(*pools: int) -> Evidence:
        return replace(BAD, trouble=tuple(Reason(Code.SLOW_POOL, 'slow', frozenset({pool}))
                                          for pool in pools))
    world = in_vain(slow(1))
    world.evidence = slow(1, 2)
    world.run(12)
    assert world.stages()['norebalance'] == 'held'


def test_trouble_that_ends_while_nothing_moves_was_not_in_vain() -> None:
    world = World(evidence=EVACUATED)
    for _ in range(ladder.MOST_GIVEN_BACK):
        world.evidence = EVACUATED
        # Set after 10 s, and seen a second later.
        world.run(int(T) + 10)
        assert world.stages()['norebalance'] == 'held'
        world.evidence = CLEAR
        world.run(60)
        assert world.state.steps == ()
        world.run(int(IN_VAIN_REST_SECONDS))
        assert world.state.troubles == ()


def recurring(on: int, off: int) -> Tuple[World, List[float]]:
    """Two hours of trouble that pauses; when norebalance was set or cleared."""
    world, times = World(Policy('act', 30.0)), list[float]()
    for turn in range(7200 // 5):
        world.evidence = EVACUATED if turn * 5 % (on + off) < on else CLEAR
        flags = set(world.flags)
        world.turn(5.0)
        times += [world.now - 1e6] * (flags != world.flags)
    return world, times


@pytest.mark.parametrize('on, off, times', [
    # 65 s with norebalance in each of two periods, and 50 s in the third.
    (100, 100, [35.0, 200.0, 235.0, 400.0, 435.0, 500.0]),
    # 135 s in the first period: it remains set, and 45 s of the second are too long.
    (170, 70, [35.0, 310.0]),
    # Given back three times, after 25 s each.
    (60, 65, [35.0, 130.0, 160.0, 255.0, 285.0, 380.0])])
def test_trouble_that_recurs_is_in_vain(on: int, off: int, times: List[float]) -> None:
    world, changes = recurring(on, off)
    assert changes == times
    assert world.stages()['norebalance'] == 'in vain' and untouched(world)


def test_movement_is_stopped_a_few_times_an_hour() -> None:
    """After ten minutes each trouble is judged anew."""
    world, times = recurring(60, 690)
    assert times == [35.0, 130.0, 785.0, 880.0, 1535.0, 1630.0,
                     # After 2250 s and 3000 s, it has been given back three times within an hour.
                     3785.0, 3880.0, 4535.0, 4630.0, 5285.0, 5380.0]
    assert [text for text in world.events if 'again' in text] == \
        4 * ['norebalance: not applied again']


def test_status_says_why_movement_is_not_stopped_again() -> None:
    world, _ = recurring(60, 65)
    (step,) = [step for step in world.state.steps if step.rung is Rung.NOREBALANCE]
    (reason,) = texts(reasons(world.state))
    assert reason == (
        'mitigation %d: norebalance was in vain (7 slow operations; it was given back 3 times '
        'within an hour, and the trouble has returned)' % step.id)
    # The count begins anew with the mode.
    world.policy = Policy('observe', 30.0)
    world.evidence = EVACUATED
    world.run(2)
    world.policy = Policy('act', 30.0)
    world.run(32)
    assert world.flags == {'norebalance'}


def test_a_rung_that_is_not_applied_again_ends_no_other_one() -> None:
    """Slowed recovery is given back first, and the trouble returns each time."""
    world = World()
    for _ in range(ladder.MOST_GIVEN_BACK):
        world.evidence = BAD
        world.run_to({'norebalance': 'held', 'slow recovery': 'held'})
        world.evidence = CLEAR
        world.run_to({'norebalance': 'held'})
    world.evidence = BAD
    world.run(40)
    assert world.stages() == {'norebalance': 'held', 'slow recovery': 'in vain'}
    assert world.flags == {'norebalance'} and world.config == FOUND
    assert world.events.count('slow recovery: not applied again') == 1
    world.evidence = CLEAR
    world.run(40)
    assert world.state.steps == () and untouched(world)


def test_what_is_given_back_for_degraded_pgs_is_applied_again() -> None:
    """As in a rolling restart: nothing shows that movement is not the cause."""
    world = World()
    for _ in range(2 * ladder.MOST_GIVEN_BACK):
        world.evidence = BAD
        world.run(25)
        assert world.stages() == {'norebalance': 'held', 'slow recovery': 'held'}
        world.evidence = DEGRADED
        world.run(3)


@pytest.mark.parametrize('rung, evidence', [
    (Rung.NOREBALANCE, EVACUATED), (Rung.SLOW, Evidence((SLOW_OPS,), moving=True))])
def test_each_rung_is_taken_a_few_times_an_hour(rung: Rung, evidence: Evidence) -> None:
    world = World()
    for _ in range(10):
        world.evidence = evidence
        world.run(15)
        world.evidence = CLEAR
        world.run(30)
    name = 'norebalance' if rung is Rung.NOREBALANCE else 'osd_max_backfills'
    taken = [put for put in world.puts
             if put.setting.name == name and put.value == put.setting.held.put]
    assert len(taken) == ladder.MOST_GIVEN_BACK and untouched(world)
    assert world.stages()[rung.value] == 'in vain'


def test_trouble_with_short_breaks_lasts() -> None:
    world = World(evidence=EVACUATED)
    for second in range(int(2 * T) + 80):
        world.evidence = EVACUATED if second < 12 or second % 10 < 5 else CLEAR
        world.turn()
    assert not world.flags and 'held' not in world.stages().values()


def test_what_is_in_vain_stays_so_through_longer_breaks() -> None:
    world = in_vain()
    puts = len(world.puts)
    for _ in range(10):
        world.evidence = CLEAR
        world.run(int(IN_VAIN_REST_SECONDS) - 10)
        world.evidence = EVACUATED
        world.run(60)
    assert len(world.puts) == puts


def test_recovery_may_be_why_it_lasts() -> None:
    """norebalance does not stop it, and rebalancing would add to it; but not for ever."""
    world = World(evidence=replace(EVACUATED, degraded=3))
    world.run(int(3 * T))
    assert world.stages() == {'norebalance': 'held'}
    world.run(int(T / RECOVERY_SHARE))
    assert world.stages() == {'norebalance': 'in vain'} and not world.flags


def test_a_rung_that_stops_nothing_proves_nothing() -> None:
    """Slowed recovery may be all that keeps clients going."""
    world = World(evidence=Evidence((SLOW_OPS,), moving=True))
    world.run(int(3 * T))
    assert world.stages() == {'slow recovery': 'held'}


def test_a_flag_of_others_proves_it_as_well() -> None:
    world = World(evidence=EVACUATED, flags={'norebalance'})
    world.run(int(T) + 60)
    assert world.stages() == {'slow recovery': 'in vain'} and world.config == FOUND
    assert world.flags == {'norebalance'}


def note_of_norebalance(state: MitigationState) -> str:
    row, = [row for row in listing(state, 'act', (), 0.0).rungs if row.rung is Rung.NOREBALANCE]
    return row.note


def test_the_flag_stays_while_the_campaign_wants_it_also_in_vain() -> None:
    world = World(evidence=EVACUATED)
    world.run(60)
    world.campaign_still = True
    world.run(int(T))
    assert world.stages()['norebalance'] == 'undoing' and world.flags == {'norebalance'}
    world.campaign_still = False
    world.run(3)
    assert world.stages()['norebalance'] == 'in vain' and not world.flags
    assert note_of_norebalance(world.state) == ''


@pytest.mark.parametrize('mode', ['off', 'observe'])
def test_what_was_in_vain_is_forgotten_with_the_mode(mode: str) -> None:
    world = in_vain()
    world.policy = Policy(mode, SECONDS)
    world.run(30)
    assert world.stages() in ({}, {'norebalance': 'would', 'slow recovery': 'would'})
    world.policy = Policy('act', SECONDS)
    world.run(12)
    assert world.stages()['norebalance'] == 'held' and world.flags == {'norebalance'}


# ---- modes

def test_observe_says_what_it_would_do() -> None:
    world = World(policy=Policy('observe', SECONDS))
    world.run(60)
    assert world.stages() == {'norebalance': 'would', 'slow recovery': 'would'}
    assert world.puts == [] and len(world.events) == 2
    assert all('would be done' in text for text in world.events)
    assert ladder.stops(world.state, CLEAR) == () and not mitigation_rows(world.state)
    world.evidence = CLEAR
    world.run(30)
    assert world.state.steps == ()


@pytest.mark.parametrize('mode', ['off', 'observe'])
def test_any_other_mode_undoes_all(mode: str) -> None:
    world = World()
    world.climb()
    world.policy = Policy(mode, SECONDS)
    world.run(4)
    assert untouched(world) and StepStage.HELD.value not in world.stages().values()
    world.run(60)
    assert untouched(world)


def test_from_observe_to_act_it_climbs_anew() -> None:
    world = World(policy=Policy('observe', SECONDS))
    world.run(60)
    world.policy = Policy('act', SECONDS)
    world.turn()
    assert list(world.stages()) == ['norebalance']
    world.run(5)
    assert list(world.stages()) == ['norebalance']
    world.run(10)
    assert set(world.stages().values()) == {'held'} and len(world.stages()) == 2


# ---- other hands

def test_an_option_that_others_set_is_theirs() -> None:
    world = World()
    world.climb()
    world.config['osd', 'osd_max_backfills'] = '8'
    world.run(3)
    theirs = {('osd', 'osd_max_backfills'): '8'}
    assert world.stages()['slow recovery'] == 'given up' and world.config == theirs
    assert any('given up' in text for text in world.events)
    assert [step.note for step in world.state.steps if step.rung is Rung.SLOW] == [
        'osd_max_backfills of osd is 8']
    world.run(60)
    assert world.config == theirs and world.stages()['slow recovery'] == 'given up'
    world.evidence = CLEAR
    world.run(60)
    assert world.config == theirs and world.state.steps == ()


def test_an_option_that_others_remove_is_theirs() -> None:
    world = World()
    world.climb()
    del world.config['osd', 'osd_max_backfills']
    world.run(60)
    assert world.config == {} and world.stages()['slow recovery'] == 'given up'
    assert [step.note for step in world.state.steps if step.rung is Rung.SLOW] == [
        'osd_max_backfills of osd is not set']


def test_an_option_that_changes_while_it_is_undone_is_theirs() -> None:
    world = World()
    world.climb()
    world.policy = Policy('off', SECONDS)
    world.turn()
    world.config['osd', 'osd_max_backfills'] = '8'
    world.run(3)
    assert world.config == {('osd', 'osd_max_backfills'): '8'}
    assert 'osd_max_backfills of osd remains unchanged' in world.events


def test_a_flag_that_others_clear_is_not_set_again() -> None:
    world = World()
    world.run(12)
    world.flags.clear()
    world.run(40)
    assert world.stages()['norebalance'] == 'given up' and not world.flags
    assert world.stages()['slow recovery'] == 'held'


def test_what_the_cluster_does_not_take_is_given_up() -> None:
    world = World(deaf=True)
    world.run(45)
    assert len(world.puts) > 10
    world.run(60)
    assert set(world.stages().values()) <= {'given up', 'undoing'} and world.config == FOUND


def test_mons_without_quorum_have_refused_nothing() -> None:
    world = World(deaf=True)
    for _ in range(120):
        world.unanswered_at = world.now
        world.turn()
    assert set(world.stages().values()) == {'held'}
    world.deaf = False
    world.run(5)
    assert world.flags == {'norebalance'} and world.config == SLOWED


# ---- revert

def test_revert_and_leave_alone() -> None:
    world = World()
    world.climb()
    number = world.state.steps[0].id
    world.state = ladder.revert(world.state, number)
    world.run(60)
    assert world.stages()['norebalance'] == 'reverted' and not world.flags
    world.evidence = CLEAR
    world.run(60)
    assert untouched(world)
    world.evidence = BAD
    world.run(12)
    assert world.flags == {'norebalance'} and world.state.steps[0].id > number


def test_revert_of_what_is_not_held_changes_nothing() -> None:
    world = World(policy=Policy('observe', SECONDS))
    world.run(30)
    assert ladder.revert(world.state, world.state.steps[0].id) == world.state
    assert ladder.revert(world.state, 99) == world.state


# ---- primary affinity

SLOW = Evidence(slow_osds={3: 'reads 9 ms against 1 ms', 4: 'y', 5: 'z'})


def test_affinity_of_slow_osds_one_by_one() -> None:
    world = World(policy=Policy('act', SECONDS, affinity=True), evidence=SLOW)
    third = world.affinities[3] = 21845 / 65536
    world.turn()
    assert world.affinities[3] == 0.0 and world.affinities[4] == 1.0
    world.run(60)
    # A tenth of twenty OSDs.
    assert [osd for osd, value in world.affinities.items() if value == 0.0] == [3, 4]
    world.evidence = Evidence(slow_osds={4: 'y'})
    world.run(5)
    assert world.affinities[3] == third and world.affinities[4] == 0.0
    assert not any('remains unchanged' in text for text in world.events)
    world.evidence = Evidence()
    world.run(15)
    assert world.affinities[4] == 1.0 and world.state.steps == ()


ACT = Policy('act', SECONDS, affinity=True)


def lowered(world: World) -> List[int]:
    return [osd for osd, value in world.affinities.items() if value == 0.0]


def test_affinity_of_one_host_at_a_time() -> None:
    world = World(policy=ACT, evidence=Evidence(slow_osds={3: 'x', 7: 'y'}))
    world.run(60)
    assert lowered(world) == [3] and world.stages()['primary affinity7'] == 'limited'
    assert [step.id for step in world.state.steps] == [1, 2]
    assert world.events.count('primary affinity of osd.7: not changed') == 1
    world.evidence = Evidence(slow_osds={7: 'y'})
    world.run(30)
    assert lowered(world) == [7] and world.stages() == {'primary affinity7': 'held'}
    world.evidence = Evidence()
    world.run(30)
    assert world.state.steps == () and untouched(world)


def test_no_affinity_is_lowered_where_other_device_classes_would_lead() -> None:
    world = World(policy=ACT, evidence=Evidence(slow_osds={3: 'x', 4: 'y'}), mixed=frozenset({3}))
    world.run(60)
    assert lowered(world) == [4] and world.stages()['primary affinity3'] == 'limited'
    world.mixed = frozenset()
    world.run(30)
    assert lowered(world) == [3, 4]


def test_the_reason_of_an_affinity_that_is_not_lowered_is_the_present_one() -> None:
    world = World(policy=ACT, evidence=Evidence(slow_osds={3: 'x', 7: 'y'}), mixed=frozenset({7}))
    world.run(60)
    assert [step.note for step in world.state.steps if step.subject == '7'] == [
        'clients would read from OSDs of another device class']
    world.mixed = frozenset()
    world.run(2)
    assert [step.note for step in world.state.steps if step.subject == '7'] == [
        'only OSDs of one host at a time, now those of h0']


@pytest.mark.parametrize('by_command', [True, False])
def test_an_affinity_that_is_no_longer_lowered_limits_no_other_host(by_command: bool) -> None:
    world = World(policy=ACT, evidence=Evidence(slow_osds={3: 'x'}))
    world.run(20)
    assert lowered(world) == [3]
    if by_command:
        world.state = ladder.revert(world.state, world.state.steps[0].id)
    else:
        world.affinities[3] = 1.0
    world.run(20)
    world.evidence = Evidence(slow_osds={3: 'x', 7: 'y'})
    world.run(30)
    assert lowered(world) == [7] and world.stages()['primary affinity7'] == 'held'


def test_affinity_is_lowered_again_only_after_a_rest() -> None:
    world = World(policy=ACT, evidence=Evidence(slow_osds={3: 'x'}))
    for _ in range(20):
        world.evidence = Evidence(slow_osds={3: 'x'})
        world.run(15)
        world.evidence = Evidence()
        world.run(15)
    assert [put.value for put in world.puts] == ['0', '1', '0'], '600 s, a rest of 200 s'


def lowered_and_given_back(world: World) -> None:
    before = len(world.puts)
    world.evidence = Evidence(slow_osds={3: 'x'})
    world.run(15)
    world.evidence = Evidence()
    world.run(15)
    assert [put.value for put in world.puts[before:]] == ['0', '1']


def slow_while_it_leads(world: World, seconds: float) -> List[Tuple[int, str]]:
    """Minutes after which the primary affinity of osd.3 was changed, and its values, while a watch
    that finds it slow only as long as it leads PGs, as of a drive that is slow at reads."""
    begin, changes = world.now, []
    while world.now - begin < seconds:
        world.evidence = Evidence(slow_osds={3: 'x'} if world.affinities[3] else {})
        puts = len(world.puts)
        world.turn(30.0)
        changes += [(round((world.now - begin) / 60), put.value or '')
                    for put in world.puts[puts:]]
    return changes


def test_an_osd_that_is_slow_only_while_it_leads_pgs_is_tried_ever_more_rarely() -> None:
    """Once its affinity is lowered, nothing is slow, which does not show that it has recovered."""
    world = World(policy=replace(ACT, seconds=30.0))
    changes = slow_while_it_leads(world, 86000.0)
    assert changes == [(0, '0'), (2, '1'), (12, '0'), (72, '1'), (83, '0'), (324, '1'),
                       (334, '0'), (1294, '1'), (1305, '0')]
    assert world.state.steps[0].note == (
        'it was slow again after it was given back, 4 times within a day')
    # And later: there are a few trials each day, and none of them is the last one.
    later = slow_while_it_leads(world, 4 * 86400.0)
    assert [value for _, value in later] == 12 * ['1', '0']
    lowered_minutes = [back - since for (since, _), (back, _) in zip(later[1::2], later[2::2])]
    assert 230 < min(lowered_minutes) <= max(lowered_minutes) < 1440
    # Once it has recovered, it is given back for good.
    world.evidence = Evidence()
    for _ in range(1440):
        world.turn(60.0)
    assert untouched(world) and world.state.steps == ()


@pytest.mark.parametrize('host, given_back', [('h9', True), ('h3', False)])
def test_an_affinity_on_trial_yields_to_an_osd_of_another_host(host: str, given_back: bool) -> None:
    """OSDs of one host at a time are lowered, and the first may have recovered long ago."""
    world = World(policy=replace(ACT, seconds=30.0))
    slow_while_it_leads(world, 3600.0)
    assert world.affinities[3] == 0.0
    world.hosts = {**world.hosts, 3: 'h3', 7: host}
    world.evidence = Evidence(slow_osds={7: 'y'})
    for _ in range(16):
        world.turn(30.0)
    assert (world.affinities[3] > 0.0) is given_back and world.affinities[7] == 0.0


@pytest.mark.parametrize('change', [
    {'policy': Policy('act', SECONDS)}, {'policy': Policy('observe', SECONDS, affinity=True)},
    {'evidence': Evidence(slow_osds_muted=True)},
    {'hosts': {4: 'h0'}}, {'affinities': {osd: 1.0 for osd in range(20) if osd != 3}}])
def test_an_affinity_that_is_lowered_for_longer_is_given_back_at_once(
        change: Dict[str, Any]) -> None:
    """When the operator no longer allows it, or has muted the check, and when the OSD goes down or
    is removed."""
    world = World(policy=ACT)
    lowered_and_given_back(world)
    world.now += 3600.0
    world.evidence = Evidence(slow_osds={3: 'x'})
    world.run(15)
    world.evidence = Evidence()
    world.run(300)
    assert lowered(world) == [3] and world.stages() == {'primary affinity3': 'held'}
    for name, value in change.items():
        setattr(world, name, value)
    world.run(30)
    assert untouched(world) and world.state.steps == ()


def test_an_operator_who_switches_the_option_off_and_on_has_an_osd_judged_anew() -> None:
    world = World(policy=ACT, evidence=Evidence(slow_osds={3: 'x'}))
    for _ in range(4):
        world.policy = ACT
        world.run(15)
        assert lowered(world) == [3]
        world.policy = Policy('act', SECONDS)
        world.run(15)
        assert untouched(world)
        world.now += 3600.0


def test_no_affinity_is_lowered_before_it_is_known_whether_that_helps() -> None:
    world = World(policy=ACT, evidence=Evidence(slow_osds={3: 'x'}), unread=frozenset({3}))
    world.run(60)
    assert untouched(world) and world.state.steps == ()
    world.unread = frozenset()
    world.run(2)
    assert lowered(world) == [3]


def test_no_affinity_is_lowered_where_that_would_not_help() -> None:
    world = World(policy=ACT, evidence=Evidence(slow_osds={3: 'x', 4: 'y'}), futile={3: 'its load'})
    world.run(60)
    assert lowered(world) == [4] and world.stages()['primary affinity3'] == 'limited'
    assert [step.note for step in world.state.steps if step.subject == '3'] == ['its load']
    world.futile, world.evidence = {4: 'its load'}, Evidence(slow_osds={4: 'y'})
    world.run(30)
    assert lowered(world) == [4], 'its load is lower because of its affinity'


@pytest.mark.parametrize('osds, zero, lowered_now', [
    (3, (), [2]), (2, (), []), (6, (0,), [2]), (6, (0, 1), [])])
def test_enough_osds_remain_primaries(osds: int, zero: Tuple[int, ...],
                                      lowered_now: List[int]) -> None:
    """Also where an administrator has lowered the others."""
    world = World(policy=ACT)
    world.affinities = {osd: 0.0 if osd in zero else 1.0 for osd in range(osds)}
    world.hosts = {osd: 'h%d' % osd for osd in range(osds)}
    world.evidence = Evidence(slow_osds={2 if osds > 2 else 1: 'x'})
    world.run(30)
    assert [osd for osd in lowered(world) if osd not in zero] == lowered_now


def test_osds_that_are_down_lead_nothing() -> None:
    world = World(policy=ACT, evidence=Evidence(slow_osds={3: 'x'}))
    world.hosts = {osd: host for osd, host in world.hosts.items() if osd in (3, 4)}
    world.run(30)
    assert lowered(world) == []


def test_what_is_limited_goes_with_the_option_and_the_evidence() -> None:
    for policy, evidence in ((Policy('act', SECONDS), None), (Policy('off', SECONDS, True), None),
                             (ACT, Evidence())):
        world = World(policy=ACT, evidence=Evidence(slow_osds={3: 'x', 7: 'y'}))
        world.run(15)
        assert world.stages()['primary affinity7'] == 'limited'
        world.policy, world.evidence = policy, evidence or world.evidence
        world.run(60)
        assert world.state.steps == ()


def test_affinity_is_not_touched_by_default_nor_without_need() -> None:
    world = World(evidence=SLOW)
    world.run(30)
    assert untouched(world)
    world = World(policy=Policy('act', SECONDS, affinity=True), evidence=SLOW)
    world.affinities.update({3: 0.0, 4: 0.0, 5: 0.0})
    world.run(30)
    assert world.puts == []


def test_affinity_of_an_osd_that_was_removed() -> None:
    world = World(policy=Policy('act', SECONDS, affinity=True), evidence=SLOW)
    world.run(3)
    del world.affinities[3]
    world.evidence = Evidence()
    world.run(30)
    assert world.state.steps == () and 3 not in world.affinities


@pytest.mark.parametrize('value, seconds, stays', [
    ('0', 1.0, True), ('0.0', 1.0, True), ('1', 1.0, False),
    # Before it was lowered: it had another value then.
    ('0', -60.0, False)])
@pytest.mark.parametrize('by_option', [False, True])
def test_an_affinity_of_0_that_an_operator_has_set_as_well_stays(
        value: str, seconds: float, stays: bool, by_option: bool) -> None:
    """As the manual advises where an OSD is slow."""
    world = World(policy=ACT, evidence=SLOW)
    world.run(3)
    (step,) = [step for step in world.state.steps if step.subject == '3']
    assert lowered(world) == [3] and step.stage is StepStage.HELD
    world.values_set_by_others['primary affinity of osd.3'] = value, step.since + seconds
    if by_option:
        world.policy = replace(world.policy, affinity=False)
    else:
        world.evidence = Evidence()
    world.run(60)
    assert lowered(world) == ([3] if stays else []) and world.state.steps == ()


def test_affinity_is_restored_when_its_option_is_switched_off() -> None:
    world = World(policy=Policy('act', SECONDS, affinity=True), evidence=SLOW)
    world.run(3)
    world.policy = replace(world.policy, affinity=False)
    world.run(3)
    assert untouched(world)


# ---- damage

@pytest.mark.parametrize('change', [
    {'subject': ''}, {'subject': 'osd.3'}, {'settings': [
        {'kind': 'affinity', 'name': 'x', 'who': '', 'found': '1', 'put': '0'}]}])
def test_a_step_about_no_osd_is_reported(change: Mapping[str, Any]) -> None:
    step = LadderStep(1, Rung.AFFINITY, StepStage.HELD, 1.0, 'slow', '3', (
        Setting(SettingKind.AFFINITY, '3', '', Held('1', '0')),))
    document = encode(MitigationState((step,), 1))
    assert decode(MitigationState, document) == MitigationState((step,), 1)
    document['steps'][0].update(change)
    with pytest.raises(Malformed):
        decode(MitigationState, document)


# ---- one turn

NOW = 1e6
FLAG = Setting(SettingKind.FLAG, 'norebalance', '', Held(None, 'set'))
BACKFILLS = Setting(SettingKind.CONFIG, 'osd_max_backfills', 'osd', Held('4', '1'))
AFFINITY = Setting(SettingKind.AFFINITY, '3', '', Held('1', '0'))
#: The cluster before a rung.
CONFIG = (ConfigEntry('osd', '', 'osd_max_backfills', '4'),)
VIEW = LadderView(affinities={osd: 1.0 for osd in range(20)},
                  hosts={osd: 'h%d' % (osd // 5) for osd in range(20)}, config=CONFIG,
                  schedulers=frozenset({'wpq'}))
#: No rung was applied or undone lately, and the evidence has lasted.
LASTING = MitigationState(last_id=7, bad_since=NOW - SECONDS, stepped=NOW - SECONDS)


def step_of(rung: Rung, stage: StepStage = StepStage.HELD, *settings: Setting, **fields: Any
            ) -> LadderStep:
    return LadderStep(5, rung, stage, fields.pop('since', NOW - 5.0), 'why',
                      fields.pop('subject', '3' if rung is Rung.AFFINITY else ''), settings,
                      **fields)


def decided(*steps: LadderStep, evidence: Evidence = CLEAR, view: LadderView = VIEW,
            policy: Policy = ACT, state: MitigationState = LASTING) -> LadderDecision:
    return ladder.decide(replace(state, steps=steps), evidence, view, policy, NOW)


def events_of(decision: LadderDecision) -> List[Tuple[str, str]]:
    return [(event.what, event.why) for event in decision.events]


@pytest.mark.parametrize('setting, shown', [
    (FLAG, (True, 'set')), (replace(FLAG, name='nobackfill'), (True, None)),
    (AFFINITY, (True, '0.3333282470703125')), (replace(AFFINITY, name='4'), (True, None)),
    (BACKFILLS, (True, '4')), (replace(BACKFILLS, who='osd/class:hdd'), (True, '2')),
    (replace(BACKFILLS, who='global'), (True, None)),
    (replace(BACKFILLS, name='osd_recovery_sleep'), (True, None))])
def test_what_the_cluster_shows_of_a_setting(setting: Setting, shown: Any) -> None:
    view = LadderView(frozenset({'norebalance'}), {3: 21845 / 65536}, config=(
        ConfigEntry('osd', 'class:hdd', 'osd_max_backfills', '2'), *CONFIG))
    assert ladder.present_value(setting, view) == shown
    unread = (False, None) if setting.kind is SettingKind.CONFIG else shown
    assert ladder.present_value(setting, replace(view, config=None)) == unread


@pytest.mark.parametrize('step, change, needs', [
    (None, {'config': None}, {Need.CONFIG}), (None, {'schedulers': None}, {Need.SCHEDULERS}),
    (None, {'schedulers': None, 'config': None}, {Need.SCHEDULERS}),
    (None, {'in_flight': frozenset({'1.1'})}, {Need.PG_STATES}), (None, {}, set()),
    (step_of(Rung.SLOW, StepStage.HELD, BACKFILLS), {'config': None}, {Need.CONFIG}),
    (step_of(Rung.SLOW, StepStage.HELD, replace(BACKFILLS, held=Held('4', '1', seen=True))),
     {'config': None}, set()),
    (step_of(Rung.SLOW, StepStage.UNDOING, BACKFILLS), {'config': None}, {Need.CONFIG}),
    (step_of(Rung.SLOW, StepStage.UNDOING, replace(BACKFILLS, done=True)), {'config': None},
     {Need.CONFIG})])
def test_what_a_turn_needs(step: Optional[LadderStep], change: Any, needs: Set[Need]) -> None:
    decision = decided(*([] if step is None else [step]), view=replace(VIEW, **change),
                       evidence=Evidence((LAGGY,), moving=True))
    assert decision.needs == needs
    if step is None and needs:
        assert decision.state.steps == () and decision.actions == ()


@pytest.mark.parametrize('stage, slowed', [
    (StepStage.HELD, False), (StepStage.UNDOING, False), (StepStage.LIMITED, True),
    (StepStage.GIVEN_UP, True)])
def test_recovery_is_not_slowed_while_it_is_accelerated(stage: StepStage, slowed: bool) -> None:
    faster = step_of(Rung.FASTER, stage, replace(BACKFILLS, held=Held('1', '4', seen=True)))
    decision = decided(faster, evidence=Evidence((LAGGY,), moving=True, recovering=True),
                       policy=replace(ACT, backfills=8))
    assert (Rung.SLOW in {step.rung for step in decision.state.steps}) == slowed


@pytest.mark.parametrize('state, evidence, since', [
    (MitigationState(), BAD, (NOW, 0.0)), (MitigationState(bad_since=7.0), BAD, (7.0, 0.0)),
    (MitigationState(clear_since=7.0), BAD, (NOW, 0.0)),
    (MitigationState(), CLEAR, (0.0, NOW)), (MitigationState(bad_since=7.0), CLEAR, (0.0, NOW)),
    (MitigationState(clear_since=7.0), CLEAR, (0.0, 7.0)),
    (MitigationState(bad_since=7.0), replace(CLEAR, is_incomplete=True), (7.0, 0.0)),
    (MitigationState(clear_since=7.0), replace(CLEAR, is_incomplete=True), (0.0, 7.0)),
    (MitigationState(clear_since=7.0), replace(BAD, is_incomplete=True), (NOW, 0.0)),
    # Nothing moves.
    (MitigationState(bad_since=7.0), Evidence((LAGGY,)), (0.0, NOW)),
    # All that is known is in vain.
    (MitigationState(bad_since=7.0, troubles=(Trouble('LAGGY', NOW, 900.0, True),)), BAD,
     (0.0, NOW)),
    (MitigationState(bad_since=7.0, troubles=(Trouble('LAGGY', NOW, 900.0, True),)),
     replace(BAD, is_incomplete=True), (0.0, 0.0)),
    # Of twice as many OSDs it is not known yet, but numbers vary.
    (MitigationState(bad_since=7.0, troubles=(Trouble('LAGGY 2', NOW, 900.0, True),
                                              Trouble('LAGGY 4', NOW, 0.0, False))),
     Evidence((replace(LAGGY, number=5),), moving=True, is_incomplete=True), (0.0, 0.0)),
    # Another one that was in vain has paused, and one that was not.
    (MitigationState(bad_since=7.0, troubles=(
        Trouble('LAGGY', NOW, 900.0, True), Trouble('SLOW_OPS', NOW - 5.0, 900.0, True))),
     replace(BAD, is_incomplete=True), (0.0, 0.0)),
    (MitigationState(clear_since=7.0, troubles=(
        Trouble('LAGGY', NOW, 900.0, True), Trouble('SLOW_OPS', NOW - 5.0, 0.0, False))),
     replace(BAD, is_incomplete=True), (0.0, 7.0))])
def test_since_when_there_is_evidence(state: MitigationState, evidence: Evidence,
                                      since: Tuple[float, float]) -> None:
    decision = ladder.decide(state, evidence, VIEW, ACT, NOW)
    assert (decision.state.bad_since, decision.state.clear_since) == since
    assert decision.state.turned == NOW


@pytest.mark.parametrize('age, stage', [(60.0, StepStage.HELD), (60.5, StepStage.UNDOING)])
@pytest.mark.parametrize('since, unanswered_at', [(0.0, 500.0), (500.0, 0.0)])
def test_a_setting_that_the_cluster_never_shows_is_given_up(
        age: float, stage: StepStage, since: float, unanswered_at: float) -> None:
    step = step_of(Rung.SLOW, StepStage.HELD, BACKFILLS, since=NOW - age - since)
    decision = decided(step, view=replace(VIEW, unanswered_at=NOW - age - unanswered_at),
                       evidence=BAD, state=MitigationState())
    expected = replace(step, settings=(BACKFILLS,))
    if stage is StepStage.HELD:
        assert (decision.state.steps, decision.actions) == ((expected,), (Put(BACKFILLS, '1'),))
        assert events_of(decision) == []
    else:
        assert decision.state.steps == (replace(
            step, stage=stage, then=StepStage.GIVEN_UP, note='the cluster did not accept it'),)
        assert (decision.actions, events_of(decision)) == (
            (), [('slow recovery: given up', 'the cluster does not show it after 60 s')])


def test_settings_that_others_have_changed_are_named() -> None:
    sleep = Setting(SettingKind.CONFIG, 'osd_recovery_sleep', 'osd', Held(None, '0.1', seen=True))
    step = step_of(Rung.SLOW, StepStage.HELD, replace(BACKFILLS, held=Held('4', '1', seen=True)),
                   sleep)
    decision = decided(step, evidence=BAD, state=MitigationState())
    note = 'osd_max_backfills of osd is 4, osd_recovery_sleep of osd is not set'
    given_up, = decision.state.steps
    assert (given_up.stage, given_up.then, given_up.note) == (
        StepStage.UNDOING, StepStage.GIVEN_UP, note)
    assert [setting.done for setting in given_up.settings] == [True, True]
    assert events_of(decision) == [
        ('slow recovery: given up', 'it was changed outside perfguard: %s; perfguard leaves it '
         'alone' % note)]
    assert decision.actions == ()


@pytest.mark.parametrize('then, campaign, blocked, kept', [
    (None, True, False, True), (StepStage.IN_VAIN, True, False, True),
    (StepStage.REVERTED, True, False, False), (None, False, False, False),
    (None, True, True, False)])
def test_norebalance_is_kept_as_long_as_the_campaign_needs_it(
        then: Optional[StepStage], campaign: bool, blocked: bool, kept: bool) -> None:
    flag = replace(FLAG, held=Held(None, 'set', seen=True))
    step = step_of(Rung.NOREBALANCE, StepStage.UNDOING, flag, then=then)
    decision = decided(
        step, evidence=replace(DEGRADED, blocked=blocked),
        view=replace(VIEW, flags=frozenset({'norebalance'}), campaign_still=campaign))
    note = 'kept as long as the campaign also needs it'
    assert note_of_norebalance(decision.state) == (note if kept else '')
    assert any(note in reason.text for reason in reasons(decision.state)) == kept
    assert decision.actions == (() if kept else (Put(flag, None),))


@pytest.mark.parametrize('then, left, why', [
    (None, None, ''), (StepStage.REVERTED, StepStage.REVERTED, 'by command'),
    (StepStage.IN_VAIN, StepStage.IN_VAIN, 'it was in vain'),
    (StepStage.GIVEN_UP, StepStage.GIVEN_UP, None)])
def test_a_step_that_is_undone(then: Optional[StepStage], left: Optional[StepStage],
                               why: Optional[str]) -> None:
    step = step_of(Rung.PIN_BACK, StepStage.UNDOING, then=then, pgs=('1.1',))
    decision = decided(step, evidence=BAD, state=MitigationState(
        troubles=(Trouble('LAGGY', NOW, 900.0, True),)))
    assert [(step.stage, step.pgs) for step in decision.state.steps] == (
        [] if left is None else [(left, ())])
    assert events_of(decision) == ([] if why is None else [
        ('PGs that were pinned back may be released again', why)])


@pytest.mark.parametrize('policy, before, after', [
    (ACT, [(3, NOW - 9.0), (4, NOW - 8.0)], [(3, NOW - 9.0), (4, NOW - 8.0), (3, NOW)]),
    (replace(ACT, affinity=False), [(3, NOW - 9.0), (4, NOW - 8.0)], [(4, NOW - 8.0), (3, NOW)]),
    (replace(ACT, mode='off'), [(3, NOW - 9.0), (4, NOW - 8.0)], [(4, NOW - 8.0), (3, NOW)]),
    (ACT, [(3, NOW - 86400.0), (4, NOW - 86399.5)], [(4, NOW - 86399.5), (3, NOW)]),
    # Twenty intervals of two hours.
    (replace(ACT, seconds=7200.0), [(4, NOW - 144000.0), (5, NOW - 143999.5)],
     [(5, NOW - 143999.5), (3, NOW)])])
def test_when_primary_affinities_were_given_back(policy: Policy, before: Any, after: Any) -> None:
    step = step_of(Rung.AFFINITY, StepStage.UNDOING, replace(AFFINITY, done=True))
    decision = decided(step, policy=policy, state=replace(LASTING, returned=tuple(before)))
    assert list(decision.state.returned) == after and decision.state.steps == ()


#: The last column: the stage afterwards, why the step is undone, or None: it is dropped.
@pytest.mark.parametrize('rung, stage, policy, evidence, after', [
    (Rung.SLOW, 'would', 'observe', BAD, 'would'), (Rung.SLOW, 'would', 'act', BAD, None),
    (Rung.SLOW, 'would', 'off', BAD, None), (Rung.SLOW, 'would', 'observe', DEGRADED, None),
    (Rung.NOREBALANCE, 'would', 'observe', DEGRADED, 'would'),
    (Rung.NOREBALANCE, 'would', 'observe', replace(DEGRADED, blocked=True), None),
    (Rung.SLOW, 'given up', 'act', BAD, 'given up'), (Rung.SLOW, 'given up', 'observe', BAD, None),
    (Rung.SLOW, 'reverted', 'act', BAD, 'reverted'), (Rung.SLOW, 'reverted', 'off', BAD, None),
    (Rung.AFFINITY, 'limited', 'observe affinity', SLOW, 'limited'),
    (Rung.AFFINITY, 'limited', 'observe', SLOW, None),
    (Rung.AFFINITY, 'limited', 'off affinity', SLOW, None),
    (Rung.SLOW, 'held', 'act', BAD, 'held'), (Rung.SLOW, 'held', 'act', DEGRADED, '2 PGs are '
                                              'degraded'),
    (Rung.SLOW, 'held', 'observe', DEGRADED, 'mitigation_mode is observe'),
    (Rung.SLOW, 'held', 'off', BAD, 'mitigation_mode is off'),
    (Rung.NOREBALANCE, 'held', 'act', replace(BAD, evacuating=1),
     '1 PG is leaving OSDs that are to be emptied'),
    (Rung.NOREBALANCE, 'held', 'act', DEGRADED, 'held'),
    (Rung.AFFINITY, 'held', 'act affinity', SLOW, 'held'),
    (Rung.AFFINITY, 'held', 'act', SLOW, 'mitigation_affinity is off')])
def test_what_the_options_exclude(rung: Rung, stage: str, policy: str, evidence: Evidence,
                                  after: Optional[str]) -> None:
    mode, _, affinity = policy.partition(' ')
    step = step_of(rung, StepStage(stage))
    decision = decided(step, evidence=evidence, policy=Policy(mode, SECONDS, bool(affinity)),
                       state=MitigationState(stepped=NOW))
    stages = [step.stage.value for step in decision.state.steps if step.id == 5]
    if after in (None, stage):
        assert stages == [stage] * (after is not None) and events_of(decision) == []
    else:
        # It is undone in the same turn: it has no settings.
        assert stages == [] and events_of(decision)[0] == (
            ladder.step_name(step) + ': undoing', after)


@pytest.mark.parametrize('stage, backfills, bound, after', [
    ('would', 1, 0, 'would'), ('would', 0, 0, None), ('limited', 0, 0, 'limited'),
    ('limited', 8, 8, 'limited'), ('limited', 8, 0, None), ('limited', 0, 8, None),
    ('held', 1, 0, 'held'), ('held', 0, 0, NO_BOUND)])
def test_what_mitigation_backfills_excludes(stage: str, backfills: int, bound: int,
                                            after: Optional[str]) -> None:
    step = step_of(Rung.FASTER, StepStage(stage))
    policy = Policy('observe' if stage == 'would' else 'act', SECONDS, backfills=backfills)
    decision = decided(step, evidence=Evidence(is_incomplete=True), policy=policy,
                       state=MitigationState(recovery=RecoveryPace(1, bound=bound)))
    stages = [step.stage.value for step in decision.state.steps if step.id == 5]
    assert stages == [stage] * (after == stage)
    assert after in (None, stage) or events_of(decision)[0] == (
        'faster recovery: undoing', after)


@pytest.mark.parametrize('degraded, stepped', [(0, NOW - 3.0), (2, NOW)])
def test_what_must_not_wait_counts_as_the_step_of_the_interval(degraded: int,
                                                               stepped: float) -> None:
    decision = decided(step_of(Rung.SLOW), evidence=replace(BAD, degraded=degraded),
                       state=MitigationState(stepped=NOW - 3.0))
    assert decision.state.stepped == stepped


CLEARED = replace(LASTING, bad_since=0.0, clear_since=NOW - 2 * SECONDS)


@pytest.mark.parametrize('state, undone', [
    (CLEARED, True), (replace(CLEARED, clear_since=NOW - 2 * SECONDS + 0.5), False),
    (replace(CLEARED, stepped=NOW - SECONDS + 0.5), False)])
def test_a_rung_is_undone_after_two_intervals(state: MitigationState, undone: bool) -> None:
    decision = decided(step_of(Rung.NOREBALANCE), state=state)
    assert events_of(decision) == [('norebalance: undoing', 'the cause has cleared')] * undone
    assert decision.state.stepped == (NOW if undone else state.stepped)


def test_the_highest_rung_is_undone_first_and_others_only_informed() -> None:
    steps = [replace(step_of(rung, stage, subject=subject), id=number)
             for number, (rung, stage, subject) in enumerate((
                 (Rung.SLOW, StepStage.HELD, ''), (Rung.NOREBALANCE, StepStage.HELD, ''),
                 (Rung.PIN_BACK, StepStage.GIVEN_UP, ''), (Rung.AFFINITY, StepStage.HELD, '4'),
                 (Rung.AFFINITY, StepStage.HELD, '3'), (Rung.AFFINITY, StepStage.HELD, '5'),
                 (Rung.FASTER, StepStage.GIVEN_UP, '')))]
    decision = decided(*steps, state=CLEARED, evidence=Evidence(slow_osds={5: 'x'}, waiting=1))
    assert {step.id: step.stage.value for step in decision.state.steps} == {
        0: 'held', 1: 'held', 3: 'held', 4: 'undoing', 5: 'held'}
    # While the evidence is unknown, no OSD has recovered.
    decision = decided(*steps, state=CLEARED, evidence=Evidence(is_incomplete=True))
    assert {step.id: step.stage.value for step in decision.state.steps} == {
        0: 'undoing', 1: 'held', 3: 'held', 4: 'held', 5: 'held', 6: 'given up'}


def test_the_lowest_rung_in_vain_is_undone_first() -> None:
    steps = [replace(step_of(rung, stage), id=number) for number, (rung, stage) in enumerate((
        (Rung.SLOW, StepStage.HELD), (Rung.NOREBALANCE, StepStage.GIVEN_UP),
        (Rung.PIN_BACK, StepStage.HELD), (Rung.AFFINITY, StepStage.HELD)))]
    decision = decided(*steps, evidence=replace(BAD, slow_osds={3: 'x'}), state=replace(
        LASTING, bad_since=0.0, troubles=(Trouble('LAGGY', NOW, 900.0, True),)))
    assert {step.id: (step.stage.value, step.then) for step in decision.state.steps} == {
        0: ('held', None), 1: ('given up', None), 2: ('undoing', StepStage.IN_VAIN),
        3: ('held', None)}
    assert events_of(decision) == [
        ('pin back: undoing', 'in vain: 3 PGs are laggy, although norebalance has stopped all '
         'movement that it can stop')]
    assert decision.state.stepped == NOW


@pytest.mark.parametrize('troubles, stages', [
    ((), []), ((Trouble('LAGGY', NOW, 0.0, False),), []),
    ((Trouble('LAGGY', NOW, 900.0, True),), ['in vain'])])
def test_a_rung_that_was_in_vain_is_forgotten_with_its_trouble(
        troubles: Tuple[Trouble, ...], stages: List[str]) -> None:
    decision = decided(step_of(Rung.NOREBALANCE, StepStage.IN_VAIN),
                       state=replace(LASTING, bad_since=0.0, troubles=troubles))
    assert [step.stage.value for step in decision.state.steps] == stages


def test_no_pg_waits_for_backfill() -> None:
    decision = decided(evidence=replace(BAD, rebalancing=False), view=replace(
        VIEW, in_flight=frozenset({'1.1'}), pg_states={'1.1': 'active+remapped+backfilling'}))
    assert [step.rung for step in decision.state.steps] == [Rung.SLOW]


def test_a_slow_osd_without_a_primary_affinity() -> None:
    assert decided(evidence=Evidence(slow_osds={99: 'x'})).state.steps == ()


@pytest.mark.parametrize('waiting, note', [
    (1, '1 PG: 1.0'), (8, '8 PGs: 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7'),
    (9, '9 PGs: 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, ...')])
def test_pgs_that_are_pinned_back_are_named(waiting: int, note: str) -> None:
    states = {'1.%x' % number: 'active+remapped+backfill_wait' for number in range(waiting)}
    odd = {'2.0': 'active+remapped+backfilling', '2.2': 'active+remapped+backfill_wait',
           '2.1': 'active+degraded+remapped+backfill_wait',
           '2.3': 'active+undersized+remapped+backfill_wait'}
    decision = decided(evidence=replace(BAD, rebalancing=False), view=replace(
        VIEW, in_flight=frozenset({*states, '2.0', '2.1', '2.3'}), pg_states={**odd, **states}))
    step, = decision.state.steps
    assert (step.id, step.rung, step.pgs, step.note, step.since, step.why) == (
        8, Rung.PIN_BACK, tuple(sorted(states)), note, NOW, '3 PGs are laggy')
    assert events_of(decision) == [
        ('PGs that wait for backfill are pinned back', '3 PGs are laggy')]
    assert (decision.state.last_id, decision.state.stepped) == (8, NOW)


@pytest.mark.parametrize('degraded, slowed', [(NOW - SECONDS, True), (NOW - SECONDS + 0.5, False)])
def test_recovery_is_slowed_an_interval_after_pgs_were_degraded(degraded: float,
                                                                slowed: bool) -> None:
    decision = decided(evidence=Evidence((LAGGY, SLOW_OPS), moving=True),
                       state=replace(LASTING, degraded=degraded))
    assert [(step.rung, step.why, step.note) for step in decision.state.steps] == [
        (Rung.SLOW, '3 PGs are laggy; 7 slow operations', '')] * slowed
    assert {put.setting.name: put.value for put in decision.actions} == (
        {'osd_max_backfills': '1', 'osd_recovery_max_active': '1'} if slowed else {})


def test_recovery_that_is_slow_already() -> None:
    view = replace(VIEW, config=(ConfigEntry('osd', '', 'osd_max_backfills', '1'),
                                 ConfigEntry('osd', '', 'osd_recovery_max_active', '1')))
    decision = decided(evidence=Evidence((LAGGY,), moving=True), view=view)
    step, = decision.state.steps
    assert step.note == 'recovery is already as slow as perfguard makes it'
    assert decision.actions == () and events_of(decision) == [
        ('recovery is slowed', '3 PGs are laggy')]


@pytest.mark.parametrize('returned, limit', [
    ((), ''), (((3, NOW - 200.0),), ''),
    (((3, NOW - 199.5),), 'it was given back less than 200 s ago'),
    (((3, NOW - 900.0), (3, NOW - 199.5)), 'it was given back less than 200 s ago'),
    (((3, NOW - 900.0), (4, NOW - 1.0)), ''),
    (((3, NOW - 900.0), (3, NOW - 800.0), (3, NOW - 300.0)), '')])
def test_the_rest_of_a_primary_affinity(returned: Any, limit: str) -> None:
    decision = decided(evidence=Evidence(slow_osds={3: 'x'}),
                       state=replace(LASTING, returned=returned))
    step, = decision.state.steps
    times = sum(osd == 3 for osd, _ in returned)
    assert (step.id, step.stage, step.note) == (
        8, StepStage.LIMITED if limit else StepStage.HELD, limit or times and 'it was slow again '
        'after it was given back, %s within a day' % plural(times, 'time') or '')
    assert events_of(decision) == [('primary affinity of osd.3: not changed', limit) if limit
                                   else ('primary affinity of osd.3 is lowered', 'x')]
    # A limit is no step of the interval.
    assert decision.state.stepped == (NOW - SECONDS if limit else NOW)
    assert decision.state.last_id == 8


@pytest.mark.parametrize('osds, lowered_osds, limit', [
    (range(19), (4,), 'at most 10 % of all OSDs at a time'), (range(20), (4,), ''),
    (range(29), (2, 4), 'at most 10 % of all OSDs at a time'), (range(30), (2, 4), ''),
    (range(20), (7, 90), 'only OSDs of one host at a time, now those of h1, osd.90')])
def test_how_many_primary_affinities_are_lowered(osds: Any, lowered_osds: Tuple[int, ...],
                                                 limit: str) -> None:
    view = replace(VIEW, affinities={osd: 1.0 for osd in osds},
                   hosts={osd: 'h%d' % (osd // 5) for osd in osds})
    steps = [replace(step_of(Rung.AFFINITY, subject=str(osd)), id=number)
             for number, osd in enumerate(lowered_osds)]
    decision = decided(*steps, view=view, evidence=Evidence(
        slow_osds={3: 'x', **{osd: 'y' for osd in lowered_osds}}))
    assert [step.note for step in decision.state.steps if step.subject == '3'] == [limit]


@pytest.mark.parametrize('up, zero, limit', [
    (3, (), ''), (2, (), 'only 1 OSD would be left with a primary affinity above 0'),
    (6, (0,), ''), (6, (0, 1), 'only 3 OSDs would be left with a primary affinity above 0')])
def test_how_many_primaries_would_be_left(up: int, zero: Tuple[int, ...], limit: str) -> None:
    view = replace(VIEW, affinities={osd: 0.0 if osd in zero else 0.5 for osd in range(30)},
                   hosts={osd: 'h%d' % osd for osd in range(up)})
    decision = decided(view=view, evidence=Evidence(slow_osds={up - 1: 'x'}))
    assert [step.note for step in decision.state.steps] == [limit]


def test_what_keeps_the_campaign_from_releasing() -> None:
    steps = [replace(step_of(rung, stage), id=number) for number, (rung, stage) in enumerate((
        (Rung.NOREBALANCE, StepStage.UNDOING), (Rung.SLOW, StepStage.HELD),
        (Rung.PIN_BACK, StepStage.GIVEN_UP), (Rung.FASTER, StepStage.HELD),
        (Rung.AFFINITY, StepStage.HELD)))]
    assert ladder.stops(MitigationState(tuple(steps)), BAD) == (
        LAGGY, Reason(Code.MITIGATION, 'mitigation 0 is in force: norebalance'),
        Reason(Code.MITIGATION, 'mitigation 1 is in force: slow recovery'))
