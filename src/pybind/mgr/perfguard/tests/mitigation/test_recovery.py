# SPDX-License-Identifier: LGPL-2.1-or-later
"""Recovery of degraded PGs is accelerated while clients have room, step by step, and given back."""
from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Optional, Tuple

import pytest

from perfguard.errors import Code, Reason
from perfguard.ledger import Ledger
from perfguard.mitigation import controller, ladder, recovery
from perfguard.mitigation.recovery import (FELT_SECONDS, KNOWN_SECONDS, LOWER_SECONDS, MOST_RAISED,
                                           NO_BOUND, RAISE_SECONDS, ROOM_SECONDS, fast_recovery,
                                           next_pace, room)
from perfguard.mitigation.report import mitigation_rows, reasons
from perfguard.mitigation.types import ClientRoom, Evidence, Policy, RecoveryPace
from perfguard.observation import Clients
from perfguard.rebalance.types import Pace

from ..fakes.cluster import Crash
from ..fakes.driver import codes
from .test_controller import FOUND, Mitigated
from .test_ladder import SECONDS, World
from .test_recovery_options import changes, entries, sleeps

WAITING = Evidence(degraded=5, waiting=4, recovering=True)
RECOVERED = Evidence()
WPQ, MCLOCK = frozenset({'wpq'}), frozenset({'mclock_scheduler'})
ACT = Policy('act', SECONDS, backfills=8)
DAY = 86400


@dataclass
class Feelings:
    """Clients as the ladder sees them, second by second."""
    comfortable: bool = True
    felt: bool = False
    known: bool = True
    since: float = 1.0
    last_known: float = 1e6

    def room(self, now: float) -> ClientRoom:
        self.since = (self.since or now) if self.comfortable and not self.felt else 0.0
        self.last_known = now if self.known else self.last_known
        return ClientRoom(self.since, self.felt, self.last_known, 'latency is fine')


@dataclass
class Recovering(World):
    policy: Policy = ACT
    evidence: Evidence = WAITING
    config: Dict[Tuple[str, str], str] = field(default_factory=dict)
    clients: Feelings = field(default_factory=Feelings)

    def seen(self) -> Any:
        return replace(super().seen(), room=self.clients.room(self.now))

    @property
    def level(self) -> int:
        return self.state.recovery.level

    @property
    def backfills(self) -> Optional[str]:
        return self.config.get(('osd', 'osd_max_backfills'))


# ---- up and down

def test_step_by_step_up_to_the_bound_and_back() -> None:
    world = Recovering(policy=replace(ACT, backfills=6))
    levels: List[Tuple[float, Optional[str]]] = []
    for _ in range(400):
        before = world.backfills
        world.turn()
        if world.backfills != before:
            levels.append((world.now - 1.0 - 1e6, world.backfills))
    # After the PGs have waited, then a minute apart; never above the bound.
    assert levels == [(SECONDS, '2'), (SECONDS + RAISE_SECONDS, '4'),
                      (SECONDS + 2 * RAISE_SECONDS, '6')]
    assert world.config['osd', 'osd_recovery_sleep_hdd'] == '0.0125'
    assert {row.name for row in mitigation_rows(world.state)} == {
        'osd_max_backfills', 'osd_recovery_sleep_hdd', 'osd_recovery_sleep_hybrid'}
    world.evidence = RECOVERED
    world.run(3)
    assert world.config == {} and not world.state.steps and world.level == 0


def test_what_clients_feel_is_taken_back_and_not_tried_again_soon() -> None:
    world = Recovering()
    world.run(int(SECONDS + RAISE_SECONDS) + 5)
    assert world.level == 2 and world.backfills == '4'
    world.clients.felt = True
    world.run(8)
    assert world.level == 1 and world.backfills == '2'
    world.clients.felt = False
    world.run(int(FELT_SECONDS) - 20)
    assert world.level == 1
    world.run(60)
    assert world.level == 2
    world.clients.felt = True
    world.run(60)
    assert world.config == {} and world.level == 0


@pytest.mark.parametrize('change', [
    {'comfortable': False}, {'felt': True}, {'known': False, 'last_known': 1e6 - KNOWN_SECONDS}])
def test_no_room_no_haste(change: Dict[str, Any]) -> None:
    world = Recovering(clients=Feelings(**change))
    world.run(200)
    assert world.puts == [] and world.state.steps == ()


@pytest.mark.parametrize('evidence', [
    Evidence(degraded=5), replace(WAITING, waiting=0), replace(WAITING, is_incomplete=True),
    Evidence(moving=True, rebalancing=True),
    replace(WAITING, trouble=(Reason(Code.SLOW_OPS, '3 slow operations'),))])
def test_nothing_waits_or_clients_suffer(evidence: Evidence) -> None:
    """Copying of a campaign alone is no reason, nor are PGs that have nowhere to recover."""
    world = Recovering(evidence=evidence)
    world.run(200)
    assert world.puts == [] and world.state.steps == ()


@pytest.mark.parametrize('flag', ['nobackfill', 'norecover', 'pause'])
def test_flags_that_stop_recovery(flag: str) -> None:
    world = Recovering(flags={flag})
    world.run(100)
    assert world.puts == []
    world.flags.clear()
    world.run(100)
    assert world.backfills == '4'
    world.flags.add(flag)
    world.run(3)
    assert world.config == {}


def test_a_failing_reading_and_trouble_end_it() -> None:
    for spoil in ('trouble', 'latency'):
        world = Recovering()
        world.run(30)
        assert world.backfills == '2'
        if spoil == 'trouble':
            world.evidence = replace(WAITING, trouble=(Reason(Code.LAGGY, '1 PG is laggy'),))
            world.run(3)
        else:
            world.clients.known = world.clients.comfortable = False
            world.run(int(KNOWN_SECONDS) + 3)
        assert world.config == {}, spoil


def test_a_failover_changes_nothing() -> None:
    """A new mgr does not know yet which PGs are degraded, nor how clients feel."""
    world = Recovering()
    world.run(30)
    world.evidence = Evidence(is_incomplete=True)
    world.clients.known = world.clients.comfortable = False
    world.run(30)
    assert world.backfills == '2' and len(world.state.steps) == 1


def test_few_changes_a_day() -> None:
    """PGs become degraded again and again, and clients feel each acceleration."""
    world = Recovering()
    for second in range(DAY // 5):
        world.evidence = WAITING if second % 60 < 50 else RECOVERED
        world.clients.felt = world.level == 3
        world.turn(5.0)
    assert 0 < len(world.puts) <= 3 * 2 * MOST_RAISED
    assert len(world.state.recovery.raised) == MOST_RAISED
    world.clients.felt = True
    world.run(60)
    assert world.config == {}


# ---- who may

def test_by_default_it_is_only_said() -> None:
    world = Recovering(policy=Policy('observe', SECONDS))
    world.run(50)
    assert world.puts == [] and world.stages() == {'faster recovery': 'limited'}
    (reason,) = reasons(world.state)
    assert reason.code == Code.RECOVERY_WAITS
    assert reason.text == 'recovery could be faster (4 PGs are degraded and waiting; latency is ' \
        'fine): ' + NO_BOUND
    world.policy = replace(ACT, mode='observe')
    world.run(50)
    assert world.puts == [] and world.stages() == {'faster recovery': 'would'}
    world.policy = ACT
    world.run(2)
    assert world.stages() == {'faster recovery': 'held'} and world.backfills == '2'
    world.policy = replace(ACT, backfills=0)
    world.run(80)
    assert world.config == {} and world.stages() == {'faster recovery': 'limited'}
    world.policy = replace(ACT, mode='off')
    world.run(2)
    assert world.stages() == {}


@pytest.mark.parametrize('backfills, stage', [(8, 'would'), (0, 'limited')])
@pytest.mark.parametrize('unknown, felt', [(True, False), (False, True)])
def test_in_mode_off_nothing_is_said_or_stored(backfills: int, stage: str, unknown: bool,
                                               felt: bool) -> None:
    """Also while the evidence is unknown, and while clients feel a level that is not kept."""
    world = Recovering(policy=replace(ACT, mode='observe', backfills=backfills))
    world.run(int(SECONDS) + 2)
    assert world.stages() == {'faster recovery': stage} and world.level == 1
    world.policy = replace(world.policy, mode='off')
    world.evidence, world.clients.felt = replace(WAITING, is_incomplete=unknown), felt
    number_of_events, last_id = len(world.events), world.state.last_id
    world.run(30)
    assert (world.stages(), world.level) == ({}, 0)
    assert (len(world.events), world.state.last_id) == (number_of_events, last_id)


def test_a_reason_is_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Recovering(policy=replace(ACT, backfills=0))
    world.run(50)
    limited = world.state.steps
    monkeypatch.setattr(recovery, 'NO_BOUND', 'another text')
    world.run(5)
    assert limited and world.state.steps == limited


def test_a_higher_bound_is_considered_anew() -> None:
    world = Recovering(policy=replace(ACT, backfills=2), config={
        ('osd', 'osd_max_backfills'): '2', ('osd', 'osd_recovery_sleep'): '0.1'})
    world.run(50)
    assert world.stages() == {'faster recovery': 'limited'}
    world.policy = replace(ACT, backfills=8)
    world.run(2)
    assert world.stages() == {'faster recovery': 'held'} and world.backfills == '4'


def test_reverted_by_command_until_all_pgs_have_recovered() -> None:
    world = Recovering()
    world.run(30)
    world.state = ladder.revert(world.state, world.state.steps[0].id)
    world.run(300)
    assert world.config == {} and world.stages() == {'faster recovery': 'reverted'}
    world.evidence = RECOVERED
    world.run(3)
    world.evidence = WAITING
    world.run(80)
    assert world.backfills is not None


def test_what_an_operator_changes_is_left_alone() -> None:
    world = Recovering()
    world.run(30)
    world.config['osd', 'osd_max_backfills'] = '5'
    world.run(300)
    assert world.config == {('osd', 'osd_max_backfills'): '5'}
    assert world.stages() == {'faster recovery': 'given up'}


def test_values_of_the_operator_come_back() -> None:
    world = Recovering(config={('osd', 'osd_max_backfills'): '2',
                               ('osd/class:ssd', 'osd_max_backfills'): '1',
                               ('osd', 'osd_recovery_sleep_hdd'): '0.200000'})
    before = dict(world.config)
    world.run(100)
    assert world.backfills == '8' and world.config['osd', 'osd_recovery_sleep_hdd'] == '0.05'
    assert world.config['osd/class:ssd', 'osd_max_backfills'] == '1'
    world.evidence = RECOVERED
    world.run(3)
    assert world.config == before


def test_it_never_meets_slow_recovery() -> None:
    """Both borrow the same options."""
    world = Recovering(evidence=Evidence((Reason(Code.LAGGY, 'x'),), moving=True, rebalancing=True),
                       policy=ACT)
    world.climb()
    world.evidence = WAITING
    for _ in range(200):
        world.turn()
        held = [row.name for row in mitigation_rows(world.state)]
        assert len(held) == len(set(held))
    assert world.level == 3
    world.deaf, world.evidence = True, Evidence(
        (Reason(Code.LAGGY, 'x'),), moving=True, rebalancing=True)
    for _ in range(100):
        world.turn()
        held = [row.name for row in mitigation_rows(world.state)]
        assert len(held) == len(set(held))


# ---- options

def test_options_of_wpq() -> None:
    assert changes(fast_recovery((), WPQ, 1, 8)) == {
        ('osd', 'osd_max_backfills'): (None, '2'),
        ('osd', 'osd_recovery_sleep_hdd'): (None, '0.05'),
        ('osd', 'osd_recovery_sleep_hybrid'): (None, '0.0125')}
    found = entries(global__osd_max_backfills='3', osd__osd_recovery_sleep_hdd='0',
                    osd__osd_recovery_sleep_hybrid='0', osd__osd_recovery_sleep_ssd='0.01')
    assert changes(fast_recovery(found, WPQ, 2, 8)) == {
        ('osd', 'osd_max_backfills'): (None, '8'),
        ('osd', 'osd_recovery_sleep_ssd'): ('0.01', '0.0025')}
    # One sleep for all drives: the others have no effect.
    found = entries(osd__osd_recovery_sleep='0.1', osd__osd_max_backfills='8')
    assert fast_recovery(found, WPQ, 1, 8).settings == ()


def test_degraded_pgs_have_a_sleep_of_their_own_since_tentacle() -> None:
    own = 'osd_recovery_sleep_degraded'
    found = entries(osd__osd_recovery_sleep='0.1', osd__osd_recovery_sleep_degraded_hdd='0.2')
    assert sleeps(fast_recovery(found, WPQ, 1, 8, degraded_sleep=own)) == {
        ('osd', own + '_hdd'): ('0.2', '0.1'), ('osd', own + '_hybrid'): (None, '0.0125')}
    found = entries(osd__osd_recovery_sleep_degraded='0.1')
    assert sleeps(fast_recovery(found, WPQ, 1, 8, degraded_sleep=own)) == {}


def test_no_backfill_that_an_operator_has_stopped() -> None:
    for value in ('0', 'none', '16'):
        found = entries(osd__osd_max_backfills=value)
        assert ('osd', 'osd_max_backfills') not in changes(fast_recovery(found, WPQ, 1, 8))


def test_nothing_with_mclock() -> None:
    """OSDs with mclock would revert the limit, and report that in the cluster log."""
    for schedulers in (MCLOCK, WPQ | MCLOCK, frozenset({'debug_random'})):
        options = fast_recovery((), schedulers, 1, 8)
        assert options.settings == () and 'wpq only' in options.remarks[0]
    world = Recovering(schedulers=MCLOCK)
    world.run(100)
    assert world.puts == [] and world.stages() == {'faster recovery': 'limited'}
    (reason,) = reasons(world.state)
    assert reason.text.endswith('with the scheduler wpq only')


def test_masks_and_what_the_campaign_has_borrowed_are_named() -> None:
    found = entries(osd_class_hdd__osd_max_backfills='3', osd__osd_recovery_sleep_hybrid='0.05',
                    global__osd_max_backfills='2', osd_3__osd_recovery_priority='9')
    options = fast_recovery(found, WPQ, 1, 8, frozenset({'osd_recovery_sleep_hdd'}))
    assert set(changes(options)) == {('osd', 'osd_max_backfills'),
                                     ('osd', 'osd_recovery_sleep_hybrid')}
    assert options.remarks == ('osd_max_backfills of osd/class:hdd remains unchanged',
                               'osd_recovery_sleep_hdd is set by the campaign and remains '
                               'unchanged')


def test_a_level_is_a_multiple_of_what_was_found() -> None:
    found = entries(osd__osd_max_backfills='2')
    first = fast_recovery(found, WPQ, 1, 32)
    put = entries(osd__osd_max_backfills='4', osd__osd_recovery_sleep_hdd='0.05',
                  osd__osd_recovery_sleep_hybrid='0.0125')
    second = fast_recovery(put, WPQ, 2, 32, held=first.settings)
    assert changes(second)['osd', 'osd_max_backfills'] == ('2', '8')
    assert changes(second)['osd', 'osd_recovery_sleep_hdd'] == (None, '0.025')


# ---- how clients feel

def test_the_judgement_of_the_throttle() -> None:
    clients = Clients(time=100.0)
    before = ClientRoom(room_since=50.0, known_at=60.0)
    fine = Pace(code=Code.LATENCY_OK, under=1, why='fine')
    assert room(before, fine, clients, 101.0) == ClientRoom(50.0, False, 100.0, 'fine')
    assert room(ClientRoom(known_at=60.0), fine, clients, 101.0).room_since == 101.0
    # Close to the limit: neither.
    assert room(before, replace(fine, under=0), clients, 101.0)[:2] == (0.0, False)
    assert room(before, Pace(code=Code.LATENCY, why='slow'), clients, 101.0)[:2] == (0.0, True)
    assert room(before, Pace(code=Code.NO_CLIENTS), clients, 101.0).room_since == 50.0
    # `under` counts readings without evidence, too.
    assert room(before, Pace(code=Code.FEW_OPS, under=9), clients, 101.0)[:3] == (0.0, False, 60.0)
    assert room(ClientRoom(), Pace(code=Code.NO_READINGS), Clients(), 101.0).known_at == 101.0


NOW = 1e6
#: Everything is as it must be for exactly long enough to raise the level.
PACE = RecoveryPace(level=1, changed=NOW - RAISE_SECONDS, waiting=NOW - SECONDS)
ROOM = ClientRoom(room_since=NOW - ROOM_SECONDS, known_at=NOW, why='latency is fine')
FELT_ROOM = ClientRoom(over_limit=True, known_at=NOW, why='latency is high')
RAISED = '4 PGs are degraded and waiting; latency is fine'
TROUBLE = replace(WAITING, trouble=(Reason(Code.LAGGY, '1 PG is laggy'),))
RAISES = tuple(NOW - 60.0 * number for number in range(1, MOST_RAISED))


def after(pace: RecoveryPace, evidence: Evidence = WAITING, clients: ClientRoom = ROOM,
          level_limit: int = 3) -> Tuple[RecoveryPace, str]:
    return next_pace(pace, evidence, clients, frozenset(), level_limit, SECONDS, NOW)


@pytest.mark.parametrize('pace, clients', [
    (PACE, ROOM),
    # The oldest raise is a day ago.
    (replace(PACE, raised=(NOW - DAY, *RAISES)), ROOM),
    (replace(PACE, felt_level=3, felt=NOW - 1.0), ROOM),
    (replace(PACE, felt_level=2, felt=NOW - FELT_SECONDS), ROOM),
    (PACE, ROOM._replace(known_at=NOW - KNOWN_SECONDS + 1.0))])
def test_a_level_is_raised(pace: RecoveryPace, clients: ClientRoom) -> None:
    raises = tuple(time for time in pace.raised if time != NOW - DAY)
    assert after(pace, clients=clients) == (
        replace(pace, level=2, changed=NOW, raised=(*raises, NOW)), RAISED)


@pytest.mark.parametrize('pace, clients, level_limit', [
    (replace(PACE, level=3), ROOM, 3), (PACE, ROOM, 1),
    (replace(PACE, changed=PACE.changed + 1.0), ROOM, 3),
    (replace(PACE, waiting=PACE.waiting + 1.0), ROOM, 3),
    (replace(PACE, raised=(NOW - DAY + 1.0, *RAISES)), ROOM, 3),
    (replace(PACE, felt_level=2, felt=NOW - FELT_SECONDS + 1.0), ROOM, 3),
    (replace(PACE, felt_level=1, felt=NOW - 1.0), ROOM, 3),
    (PACE, ROOM._replace(room_since=ROOM.room_since + 1.0), 3),
    (PACE, ROOM._replace(room_since=0.0), 3),
    # OSDs and clients do not show the effect of the lower level yet.
    (replace(PACE, changed=NOW - LOWER_SECONDS + 1.0), FELT_ROOM, 3)])
def test_a_level_is_kept(pace: RecoveryPace, clients: ClientRoom, level_limit: int) -> None:
    assert after(pace, clients=clients, level_limit=level_limit) == (pace, '')


def test_a_level_is_lowered() -> None:
    pace = replace(PACE, level=3, changed=NOW - LOWER_SECONDS)
    assert after(pace, clients=FELT_ROOM) == (
        replace(pace, level=2, changed=NOW, felt_level=3, felt=NOW), 'latency is high')
    # No level is tried again for a while.
    assert after(pace, TROUBLE) == (
        replace(pace, level=0, changed=NOW, felt_level=1, felt=NOW), '1 PG is laggy')
    at_rest = replace(pace, level=0)
    assert after(at_rest, TROUBLE) == (at_rest, '1 PG is laggy')
    assert after(pace, clients=ROOM._replace(known_at=NOW - KNOWN_SECONDS)) == (
        replace(pace, level=0, changed=NOW), 'client latency is not known')
    assert after(pace, level_limit=1) == (replace(pace, level=1, changed=NOW), '')


# ---- in the loop

LOSS = {'degraded': 5, 'degraded_waiting': 4, 'degraded_recovering': 1}


class Lossy(Mitigated):
    def __init__(self) -> None:
        super().__init__(mitigation_backfills=32)

    def lose(self, on: bool = True) -> None:
        self.cluster.trouble = dict(LOSS) if on else {}


def test_in_the_loop() -> None:
    driver = Lossy()
    driver.lose()
    driver.wait('faster recovery', 'held')
    driver.run(3)
    assert driver.cluster.osd_config['osd', 'osd_max_backfills'] == '8'
    assert driver.cluster.osd_config['osd/class:hdd', 'osd_max_backfills'] == '8'
    row = driver.rungs['faster recovery']
    assert '4 PGs are degraded and waiting; clients are idle' == row['why']
    assert 'osd/class:hdd remains unchanged' in row['note']
    assert 'RECOVERY_WAITS' in codes(driver.loop.status())
    ledger: Ledger = driver.loop.published.ledger
    assert {(held.name, held.found) for held in ledger.rows} >= {('osd_max_backfills', '4')}
    driver.run(70)
    assert driver.cluster.osd_config['osd', 'osd_max_backfills'] == '16'
    driver.lose(False)
    driver.run(10)
    assert driver.cluster.osd_config == FOUND and not driver.loop.published.ledger.rows


@pytest.mark.parametrize('old', ['18.2.7', '20.2.4'])
def test_the_sleep_is_one_that_the_osds_have(old: str) -> None:
    """An upgrade restarts OSDs one after another, and each restart leaves degraded PGs."""
    driver = Lossy()
    driver.cluster.read = replace(driver.cluster.read, software={
        0: ('20.2.4', '6.1'), 1: (old, '6.1')})
    driver.cluster.degraded_sleeps = {frozenset({'20.2.4'}): 'osd_recovery_sleep_degraded'}
    driver.lose()
    driver.wait('faster recovery', 'held')
    name = 'osd_recovery_sleep_degraded_hdd' if old == '20.2.4' else 'osd_recovery_sleep_hdd'
    assert {name for who, name in driver.cluster.osd_config if name.endswith('_hdd')} == {name}


def story(at: Optional[int] = None) -> Lossy:
    driver = Lossy()
    driver.cluster.fault.count, driver.cluster.fault.at = 0, at
    for number in range(110):
        driver.lose(number < 90)
        try:
            driver.turn()
        except Crash:
            driver.restart()
            driver.cluster.tick()
    return driver


@pytest.mark.parametrize('part', range(1, 5))
def test_an_mgr_that_dies_while_recovery_is_accelerated(part: int) -> None:
    """Every fourth step from number `part` on."""
    steps = story().cluster.fault.count
    assert steps > 12
    for at in range(part, steps + 1, 4):
        driver = story(at)
        assert driver.states()['faster recovery'] == 'idle', at
        assert driver.cluster.osd_config == FOUND, at
        assert not driver.loop.published.ledger.rows, at


def test_clients_are_judged_only_while_degraded_pgs_recover(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes a tenth of a second with 10,000 OSDs and four pools."""
    judged: List[float] = []
    decide = controller.judge

    def counted(*args: Any) -> Pace:
        judged.append(args[1].time)
        return decide(*args)

    monkeypatch.setattr(controller, 'judge', counted)
    driver = Lossy()
    for lost in (False, True, False):
        driver.lose(lost)
        driver.turn()
        judged.clear()
        for _ in range(5):
            driver.turn()
        assert bool(judged) == lost
