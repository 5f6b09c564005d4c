# SPDX-License-Identifier: LGPL-2.1-or-later
"""Single turns of the phases of a campaign: what each waits for, and where it leads."""
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

import pytest

from perfguard.cluster.set_by_others import BALANCER
from perfguard.cluster.types import (NO_ENTRY, NO_OSD, Osd, OsdSet, PgCounts, Signals,
                                     UpmapEntry)
from perfguard.errors import Code, Reason
from perfguard.ledger import Held
from perfguard.observation import Clients, PoolClients
from perfguard.rebalance import phases
from perfguard.rebalance.bill import BillTurn
from perfguard.rebalance.campaign import GoalsMark, Rollback
from perfguard.rebalance.change import ChangeStage, Led
from perfguard.rebalance.draft import Draft
from perfguard.rebalance.holds import flag_is_coming
from perfguard.rebalance.moves import Move
from perfguard.rebalance.pin_index import PinIndex
from perfguard.rebalance.pool_rule import RuleChange
from perfguard.rebalance.progress import Limits
from perfguard.rebalance.types import (NOREBALANCE_KEY, TINY_WEIGHT, Flight, Holds, Pace, Phase,
                                       PinRecord, Sent, SetBalancer, SetFlag, SetOption,
                                       SetPool)
from perfguard.rebalance.weights import WeightChange
from perfguard.upmap.pins import DEGRADED, DROPPED_BY_MON, INCOMPLETE, Unpinnable

from ..fakes.campaigns import campaign_of, changed
from ..fakes.drafts import (CRUSH, HYBRID, NOW, OPTIONS, OSDS, PIN, PINNED, POOLS, THERE,
                            draft_of, events_of)
from .test_orders import crush as crush_of
from .test_phases import out_of_hours

PG = '1.0'
FLIGHT = Flight(990.0, NO_ENTRY, sources=(0,), targets=(3,), primary=0, pin=PIN)
UNPINNED = replace(FLIGHT, pin=None)
WHY = Unpinnable('')
SEEN = Held(None, 'norebalance', seen=True)
BORROWED = Holds({NOREBALANCE_KEY: SEEN, BALANCER: Held('true', 'false', seen=True)}, prepared=True)
LOOSE: Dict[str, Any] = {'up': {PG: THERE}}
DOWN = {7: replace(OSDS[7], up=False)}
#: Without options of the mons.
QUIET = replace(OPTIONS, fast_peering='off')
TWO = WeightChange(weights={3: 1.0}, stage=ChangeStage.LANDED, share=0.5, following=1,
                   step={3: 0.5})
SENT = WeightChange(weights={3: 5.0}, stage=ChangeStage.SENT, since=999.0, times=1)


def counts(**numbers: int) -> Signals:
    """Of the cluster, and of its pools."""
    whole = PgCounts(**{'total': 16, **numbers})
    return Signals(whole, {1: whole, 2: PgCounts()})


def at(phase: Phase, campaign: Dict[str, Any] = {}, pins: Mapping[str, PinRecord] = {},
       active: str = 'false', **cluster: Any) -> Draft:
    """With the settings borrowed and in force, long after the phase began."""
    cluster.setdefault('flags', ['norebalance'])
    cluster.setdefault('options', QUIET)
    fields = {'holds': BORROWED, 'phase_since': 950.0, 'refused_crush': 0, 'own': 0, **campaign}
    entries = {**{pgid: pin.entry for pgid, pin in pins.items()}, **cluster.pop('entries', {})}
    before = draft_of(changed(campaign_of(1, phase, 900.0), **fields), pins, entries=entries,
                      **cluster)
    settings = replace(before.observed.settings, balancer_active=active,
                       stored={'mgr': {BALANCER: 'false'}})
    return replace(before, observed=replace(before.observed, settings=settings))


def step(before: Draft) -> Draft:
    return phases._step(before)


class Untidy(PinIndex):
    @property
    def is_tidy(self) -> bool:
        return False


def codes(draft: Draft) -> List[str]:
    return [reason.code for reason in draft.reasons]


# ---- changes that can no longer be made

class Impossible(RuleChange):
    kind = 'impossible'

    def impossible(self, observation: Any) -> str:
        return '' if self.via == 'possible' else 'the rule is gone'

    @property
    def impossible_for_good(self) -> bool:
        return self.via == 'for good'


GONE = Impossible(moves_first=True)


@pytest.mark.parametrize('phase, change, since, aborts', [
    (Phase.RELEASING, replace(GONE, via='for good'), NOW, True),
    (Phase.HOLDING, GONE, 400.0, True), (Phase.RELEASING, GONE, 400.5, False),
    (Phase.PINNED, GONE, 400.0, True), (Phase.FINISHING, GONE, 400.0, False),
    (Phase.RELEASING, replace(GONE, moves_first=False), 400.0, False),
    (Phase.RELEASING, replace(GONE, via='possible'), 400.0, False)])
def test_a_change_that_others_have_made_impossible(phase: Phase, change: Any, since: float,
                                                   aborts: bool) -> None:
    after = step(at(phase, {'change': change, 'in_flight': {PG: FLIGHT}}, {PG: PIN},
                    osds_or_crush_changed=since, flags=[]))
    assert (after.campaign.phase is Phase.ABORTING) == aborts
    waits = not aborts and change == GONE and phase is not Phase.FINISHING
    assert (Code.OVERTAKEN in codes(after)) == waits


# ---- the account of a turn

@pytest.mark.parametrize('phase, ended, epoch, total', [
    (Phase.RELEASING, None, 10, 8), (Phase.DONE, NOW, 10, 6), (Phase.DONE, 999.0, 4, 6)])
def test_a_turn_is_counted(phase: Phase, ended: Optional[float], epoch: int, total: int) -> None:
    before = at(phase, {'ended': ended, 'last_epoch': 4, 'released': 2, 'kept': 1, 'left': 3,
                        'turned': 995.0, 'limits': Limits({'X': 5.0}),
                        'in_flight': {**dict.fromkeys(('1.1', '1.4'), UNPINNED), PG: FLIGHT}},
                {PG: PIN, '1.2': PIN, '1.3': PIN})
    progress = phases._count_turn(before).campaign.progress
    assert (progress.turned, progress.last_epoch, progress.total) == (NOW, epoch, total)
    charged = phase is Phase.RELEASING
    assert sum(progress.limits.seconds.values()) == (10.0 if charged else 5.0)


def test_the_first_turn_charges_no_time() -> None:
    progress = phases._count_turn(at(Phase.RELEASING)).campaign.progress
    assert sum(progress.limits.seconds.values()) == 0.0


@pytest.mark.parametrize('pins, flights, expected', [
    (2, {'1.0': FLIGHT}, Code.NO_LIMIT), (1, {'1.0': FLIGHT}, Code.IN_FLIGHT),
    (1, {'1.0': replace(FLIGHT, pin=None)}, Code.NO_LIMIT)])
def test_what_limits_a_turn(pins: int, flights: Dict[str, Flight], expected: str) -> None:
    before = at(Phase.RELEASING, {'in_flight': flights, 'pace': Pace(pgs=4.0)},
                {'1.%x' % seed: PIN for seed in range(pins)})
    assert phases._limits_with_this_turn(before).now == expected
    # Only RELEASING is limited by what is in flight.
    held = at(Phase.HOLDING, {'in_flight': {PG: FLIGHT}}).because(Code.PAUSED, '')
    assert phases._limits_with_this_turn(held).now == Code.PAUSED


MAINTAINED = {'osds': DOWN, 'flags': ['noout']}


@pytest.mark.parametrize('progressed, code, cluster, excused', [
    (990.0, Code.DEGRADED, MAINTAINED, NOW), (990.0, Code.PEERING, MAINTAINED, NOW),
    (990.0, Code.PAUSED, MAINTAINED, 0.0), (990.0, Code.DEGRADED, {'osds': DOWN}, 0.0),
    (NOW - 4 * 3600.0, Code.DEGRADED, MAINTAINED, 0.0),
    (NOW - 4 * 3600.0 + 0.5, Code.DEGRADED, MAINTAINED, NOW)])
def test_announced_maintenance_excuses_a_campaign(progressed: float, code: str,
                                                  cluster: Dict[str, Any], excused: float) -> None:
    before = at(Phase.HOLDING, {'progressed': progressed, 'phase_since': -90000.0,
                                'sent_at': -90000.0}, **cluster)
    assert phases._count_turn(before.because(code, '')).campaign.progress.excused == excused


@pytest.mark.parametrize('signals, campaign, trouble', [
    ({}, {}, False), ({'laggy': 1}, {}, True), ({'wait': 1}, {}, True),
    ({'in_transition': 1, 'inactive': 1}, {}, True),
    ({'in_transition': 1, 'inactive': 1}, {'in_flight': {PG: FLIGHT}}, False),
    ({'in_transition': 1, 'inactive': 2}, {'in_flight': {PG: FLIGHT}}, True),
    ({'laggy': 1}, {'in_flight': {PG: FLIGHT}}, True), ({'degraded': 1}, {}, True),
    ({'degraded': 1}, {'in_flight': {PG: FLIGHT}}, False)])
def test_other_causes_of_slow_operations(signals: Dict[str, int], campaign: Dict[str, Any],
                                         trouble: bool) -> None:
    before = at(Phase.RELEASING, campaign, signals=counts(**signals))
    assert phases._has_other_trouble(before) == trouble


def test_the_bill_ends_with_the_campaign() -> None:
    running = at(Phase.RELEASING, {'turned': 990.0})
    assert not phases._account(running.campaign, running).events
    ended = phases._account(running.campaign, replace(running, campaign=replace(
        running.campaign, phase=Phase.DONE)))
    assert [kind for kind, _ in events_of(ended)] == ['bill']
    again = phases._account(ended.campaign, ended)
    assert again.events == ended.events and again.campaign.bill == ended.campaign.bill


@pytest.mark.parametrize('turned, seconds', [(990.0, 10.0), (0.0, 100.0), (1001.0, 0.0)])
@pytest.mark.parametrize('laggy, troubled', [(0, 7.0), (1, NOW)])
@pytest.mark.parametrize('in_progress, pool, erasure', [
    (1.0, 2, True), (0.0, 2, False), (1.0, 1, False)])
def test_what_a_turn_adds_to_the_bill(
        monkeypatch: pytest.MonkeyPatch, turned: float, seconds: float, laggy: int, troubled: float,
        in_progress: float, pool: int, erasure: bool) -> None:
    turns: List[BillTurn] = []

    def noted(**fields: Any) -> BillTurn:
        turns.append(BillTurn(**fields))
        return turns[-1]

    monkeypatch.setattr(phases, 'BillTurn', noted)
    clients = Clients(pools={pool: PoolClients('p', 8, 0.0, erasure=POOLS[pool].erasure,
                                               in_progress=in_progress)}, covered=60.0)
    before = at(Phase.RELEASING, {'turned': turned}, signals=counts(laggy=laggy), clients=clients,
                osds_or_crush_changed=7.0)
    phases._account(before.campaign, before)
    turn, = turns
    assert (turn.seconds, turn.troubled, turn.erasure) == (seconds, troubled, erasure)


def test_a_whole_turn() -> None:
    before = at(Phase.PINNED, signals=counts(degraded_waiting=1, undersized_empty=1), **EVACUATION)
    after = phases.judge(before.campaign, {}, {}, before.observed, QUIET)
    assert after.campaign.holds.blocked == NOW == after.campaign.progress.turned
    assert codes(after) == [Code.AWAITS_START, Code.EVACUATING]


# ---- norebalance

EVACUATION: Dict[str, Any] = {'up': {PG: THERE}, 'evacuation': {PG: (0,)}}
WAITING = counts(degraded_waiting=3)


@pytest.mark.parametrize('holds, flags, taken, expected', [
    (BORROWED, ['norebalance'], (), True), (Holds(), [], (), True),
    (Holds(), ['norebalance'], (), False), (Holds(), [], ('norebalance',), False),
    (replace(BORROWED, given_up=frozenset({NOREBALANCE_KEY})), [], (), False)])
def test_only_an_own_flag_gives_way(holds: Holds, flags: List[str], taken: Tuple[str, ...],
                                    expected: bool) -> None:
    before = at(Phase.PINNED, {'holds': replace(holds, blocked=985.0)}, flags=flags)
    seen = replace(before.observed, settings=replace(
        before.observed.settings, borrowed_elsewhere=frozenset(taken)))
    assert phases._gives_way(replace(before, observed=seen)) == expected
    early = at(Phase.PINNED, {'holds': replace(holds, blocked=985.5)}, flags=flags)
    assert not phases._gives_way(early)


@pytest.mark.parametrize('number, cluster, loose', [
    (3, {}, 3), (2, {}, 0), (3, {'without': ['1.2']}, 0),
    (4, {'acting': {'1.0': (0, 1)}}, 3), (3, {'acting': {'1.0': (0, 1, NO_OSD)}}, 0),
    # It has nowhere to move.
    (3, {'up': {'1.0': (1, 2), '1.1': THERE, '1.2': THERE}}, 0)])
def test_pgs_that_would_move_while_norebalance_gives_way(number: int, cluster: Dict[str, Any],
                                                         loose: int) -> None:
    fields: Any = {'up': {'1.%x' % seed: THERE for seed in range(number)}, **cluster}
    assert phases._loose_count(at(Phase.PINNED, **fields)) == loose


JOINING = WeightChange(weights={3: 1.0})
LATER = replace(JOINING, weights={3: 1.0, 4: 1.0}, done=(4,))


@pytest.mark.parametrize('change, loose, campaign, cleared', [
    (JOINING, 0, {}, True), (LATER, 0, {}, True),
    # It is about to be sent, was sent, or is sent again.
    (replace(JOINING, gathers=True), 0, {}, False),
    (replace(JOINING, stage=ChangeStage.SENT, times=1, since=NOW), 0, {}, False),
    (replace(JOINING, times=1), 0, {}, False),
    # Others have remapped further PGs; after a burst, PGs may have missed their pins.
    (JOINING, 2, {}, True), (JOINING, 3, {}, False), (LATER, 1, {}, False),
    (LATER, 1, {'unpinnable': {'1.1': WHY}}, True),
    (JOINING, 0, {'paused': True}, False), (JOINING, 0, {'sent': {'1.5': Sent(NOW)}}, False)])
def test_norebalance_yields_while_a_change_waits_to_be_sent(
        change: WeightChange, loose: int, campaign: Dict[str, Any], cleared: bool) -> None:
    fields: Any = {**EVACUATION, 'up': {'1.%x' % seed: THERE for seed in range(1 + loose)}}
    before = at(Phase.PINNING, {'change': change, **campaign}, crush=crush_of(
        {**dict.fromkeys(OSDS, 1.0), 3: 0.0}, hosts=8), **fields)
    after = step(before)
    assert (SetFlag('norebalance', False) in after.actions) == cleared
    # Without an evacuation it stays.
    kept = step(replace(before, observed=replace(before.observed, evacuation={})))
    assert SetFlag('norebalance', False) not in kept.actions


@pytest.mark.parametrize('number, returning, events', [
    (3, False, 0), (2, False, 1), (2, True, 0)])
def test_norebalance_gives_way_unless_many_would_move(number: int, returning: bool,
                                                      events: int) -> None:
    holds = replace(BORROWED, blocked=985.0).put(NOREBALANCE_KEY, replace(
        SEEN, returning=returning))
    before = at(Phase.PINNED, {'holds': holds}, signals=WAITING,
                up={'1.%x' % seed: THERE for seed in range(number)})
    after = phases._borrow_settings(before, norebalance=True)
    assert codes(after) == [Code.GIVES_WAY] and len(after.events) == events
    assert (SetFlag('norebalance', False) in after.actions) == (number == 2)
    assert after.settings_in_force == (number == 3)
    assert '3 PGs are degraded' in after.reasons[0].text
    assert not codes(phases._borrow_settings(before, norebalance=False))


def test_options_of_the_mons_are_borrowed_with_the_balancer() -> None:
    before = at(Phase.PREPARED, options=OPTIONS)
    quiet = phases._borrow_settings(before, norebalance=True)
    assert quiet.actions == (SetOption('mon', 'paxos_propose_interval', '0.1'),)
    loud = phases._borrow_settings(before, norebalance=True, quiet=False)
    assert loud.actions == (SetBalancer(True),)


def test_settings_in_force() -> None:
    before = at(Phase.PINNED)
    assert phases._borrow_settings(before, norebalance=True).settings_in_force
    back = phases._borrow_settings(before, norebalance=False, quiet=False)
    assert not back.settings_in_force and SetFlag('norebalance', False) in back.actions
    assert SetBalancer(True) in back.actions
    fresh = at(Phase.PREPARED, {'holds': Holds()}, active='true', flags=[])
    taken = phases._borrow_settings(fresh, norebalance=True)
    assert taken.actions == (SetFlag('norebalance', True), SetBalancer(False))
    # Later, others have switched the balancer on.
    others = phases._borrow_settings(at(Phase.PINNED, {'holds': replace(
        Holds(), prepared=True)}, active='true', flags=[]), norebalance=True)
    assert others.actions == (SetFlag('norebalance', True),)
    assert [kind for kind, _ in events_of(others)] == ['settings']


@pytest.mark.parametrize('campaign, changes, cluster, yields', [
    ({}, {}, EVACUATION, True), ({}, {}, {}, False), ({'paused': True}, {}, EVACUATION, False),
    ({}, {'to_pin': 1}, EVACUATION, False),
    ({'unpinnable': {'1.1': DEGRADED}}, {'to_pin': 1}, EVACUATION, True),
    ({'sent': {'1.1': Sent(NOW)}}, {}, EVACUATION, False),
    ({'holds': BORROWED.put(NOREBALANCE_KEY, Held(None, 'norebalance'))}, {}, EVACUATION, False),
    ({'holds': BORROWED.put(NOREBALANCE_KEY, Held(None, 'norebalance', returning=True))}, {},
     EVACUATION, True), ({'holds': Holds()}, {}, EVACUATION, True),
    ({'given_up': frozenset({NOREBALANCE_KEY})}, {}, EVACUATION, False),
    ({'emptied': (0,)}, {}, EVACUATION, False), ({'emptied': (1,)}, {}, EVACUATION, True),
    ({'unpinnable': {'1.%x' % seed: WHY for seed in range(1, 4)}}, {}, EVACUATION, False),
    ({'unpinnable': {'1.%x' % seed: WHY for seed in range(1, 3)}}, {}, EVACUATION, True),
    ({'in_flight': {'1.1': FLIGHT}}, {}, {**EVACUATION, 'pin_back': frozenset({'1.1'})}, False),
    ({'in_flight': {'1.1': FLIGHT}}, {}, {**EVACUATION, 'pin_back': frozenset({'1.2'})}, True)])
def test_norebalance_yields_to_an_evacuation(campaign: Dict[str, Any], changes: Dict[str, Any],
                                             cluster: Dict[str, Any], yields: bool) -> None:
    before = replace(at(Phase.RELEASING, campaign, **cluster), **changes)
    assert phases._yields_to_evacuation(before) == yields


@pytest.mark.parametrize('phase, campaign, cluster, expected', [
    (Phase.RELEASING, {}, {'pin_back': frozenset({PG, '1.7'})}, {PG}),
    (Phase.PINNED, {}, {'pin_back': frozenset({PG})}, set()), (Phase.HOLDING, {}, {}, set()),
    (Phase.HOLDING, {'pace': Pace(halted=True)}, {}, set()),
    (Phase.HOLDING, {'pace': Pace(halted=True)}, {'evacuation': {'1.1': (0,)}}, {PG}),
    (Phase.HOLDING, {'pace': Pace(halted=False)}, {'evacuation': {'1.1': (0,)}}, set()),
    # A long pause, while the mons keep OSDMaps.
    (Phase.HOLDING, {'paused': True, 'paused_at': 400.0}, {'untrimmed_epochs': 99999}, {PG, '1.1'}),
    (Phase.HOLDING, {'paused': True, 'paused_at': 400.5}, {'untrimmed_epochs': 99999}, set()),
    (Phase.HOLDING, {'paused': True, 'paused_at': 400.0}, {}, set()),
    (Phase.HOLDING, {'paused': True, 'paused_at': 400.0},
     {'untrimmed_epochs': 99999, 'signals': Signals(PgCounts(degraded=1), {
         1: PgCounts(), 2: PgCounts(degraded=1)})}, set()),
    (Phase.HOLDING, {'paused': False, 'paused_at': 400.0}, {'untrimmed_epochs': 99999}, set())])
def test_pgs_that_are_pinned_back(phase: Phase, campaign: Dict[str, Any], cluster: Dict[str, Any],
                                  expected: Any) -> None:
    flights = {PG: FLIGHT, '1.1': FLIGHT, '1.2': replace(FLIGHT, pin=None)}
    assert phases._to_pin_back(at(phase, {'in_flight': flights, **campaign}, **cluster)) == expected


@pytest.mark.parametrize('campaign, cluster, held_since, code', [
    ({}, EVACUATION, NOW, Code.EVACUATION_HELD),
    ({'holds': replace(BORROWED, evacuation_held=7.0)}, EVACUATION, 7.0, Code.EVACUATION_HELD),
    ({'holds': replace(BORROWED, evacuation_held=7.0)}, {}, 0.0, None),
    ({'holds': Holds()}, EVACUATION, 0.0, Code.EVACUATING),
    ({}, {**EVACUATION, 'flags': []}, 0.0, Code.EVACUATING),
    ({'holds': BORROWED.put(NOREBALANCE_KEY, replace(SEEN, returning=True))}, EVACUATION, 0.0,
     Code.EVACUATING)])
def test_an_evacuation_is_reported(campaign: Dict[str, Any], cluster: Dict[str, Any],
                                   held_since: float, code: Optional[str]) -> None:
    after = phases._report_evacuation(at(Phase.PINNED, campaign, **cluster))
    assert after.campaign.holds.evacuation_held == held_since
    assert codes(after) == ([] if code is None else [code])
    if code:
        assert 'osd.0' in after.reasons[0].text and '1 PG' in after.reasons[0].text


# ---- PREPARED

@pytest.mark.parametrize('campaign, version, own', [
    ({'own': 0}, 5, 5), ({'own': 5}, 5, 5), ({'own': 0, 'change': TWO}, 5, 0)])
def test_changes_of_crush_before_the_pins_are_the_operators(campaign: Dict[str, Any], version: int,
                                                            own: int) -> None:
    before = at(Phase.PREPARED, campaign, crush_version=version)
    after = phases._accept_own_crush(before)
    assert after.campaign.crush.own == own and (after is before) == (own == campaign['own'])


@pytest.mark.parametrize('version, change, emptied, expected', [
    (5, None, (), (0, 2)), (0, None, (), ()), (5, TWO, (), ()), (5, None, (7,), (0, 2, 7)),
    (5, None, (0, 2, 7), (0, 2, 7))])
def test_osds_that_the_operators_change_empties(version: int, change: Any, emptied: OsdSet,
                                                expected: OsdSet) -> None:
    crush = crush_of({**dict.fromkeys(OSDS, 1.0), 0: 0.0, 2: 0.0, 4: 0.0}, hosts=8)
    before = at(Phase.PREPARED, {'change': change, 'emptied': emptied}, crush=crush,
                crush_version=version, up={PG: THERE, '2.0': THERE},
                acting={'2.0': (NO_OSD, 1, 2)})
    assert phases._accept_own_crush(before).campaign.crush.emptied == expected


@pytest.mark.parametrize('campaign, cluster, expected', [
    ({}, {}, Code.AWAITS_CHANGE), ({}, LOOSE, Code.AWAITS_PIN),
    ({}, EVACUATION, Code.AWAITS_CHANGE),
    ({}, {'up': {PG: (1, 2)}}, Code.AWAITS_CHANGE), ({'automatic': True}, {}, Code.AWAITS_CHANGE),
    ({'automatic': True}, LOOSE, Phase.PINNING), ({'automatic': True, 'change': TWO}, {},
                                                  Phase.PINNING),
    ({'automatic': True}, {'crush_version': 5}, Phase.PINNING),
    ({'automatic': True, 'version': 5}, {'crush_version': 5}, Code.AWAITS_CHANGE),
    ({'automatic': True, 'given_up': frozenset({BALANCER})}, {**LOOSE, 'active': 'true'},
     Code.BALANCER_ON), ({'holds': Holds()}, {'flags': []}, Code.SETTINGS),
    ({'holds': replace(BORROWED, prepared=False)}, {}, Code.AWAITS_CHANGE)])
def test_prepared(campaign: Dict[str, Any], cluster: Dict[str, Any], expected: Any) -> None:
    after = step(at(Phase.PREPARED, campaign, **cluster))
    if isinstance(expected, Phase):
        assert after.campaign.phase is expected and not after.reasons
    else:
        assert codes(after) == [expected] and after.campaign.phase is Phase.PREPARED
    assert after.campaign.holds.prepared == (expected != Code.SETTINGS)
    if expected == Code.AWAITS_CHANGE:
        assert ('automatically' in after.reasons[0].text) == bool(campaign.get('automatic'))


@pytest.mark.parametrize('cluster, expected, text', [
    ({}, [Code.FLAG_CLEARED], 'do not change CRUSH before'),
    (LOOSE, [Code.AWAITS_PIN, Code.FLAG_CLEARED], 'pins those that have not moved yet')])
@pytest.mark.parametrize('holds', [BORROWED, Holds(prepared=True).give_up(NOREBALANCE_KEY)])
def test_prepared_without_the_flag(holds: Holds, cluster: Dict[str, Any], expected: List[str],
                                   text: str) -> None:
    """Scripts wait for AWAITS_CHANGE: they must not change CRUSH now."""
    after = phases._report_cleared_flag(step(
        at(Phase.PREPARED, {'holds': holds}, flags=[], **cluster)))
    assert codes(after) == expected and text in after.reasons[0].text
    assert not any('in place' in reason.text for reason in after.reasons)
    assert after.campaign.phase is Phase.PREPARED and after.campaign.holds.gave_up_flag
    assert 'ceph osd set norebalance' in after.reasons[-1].text


@pytest.mark.parametrize('phase, campaign, flags, command', [
    (Phase.HOLDING, {'paused': True}, [], 'campaign pause'),
    (Phase.HOLDING, {'pace': Pace(halted=True)}, [], 'campaign pause'),
    (Phase.PINNED, {}, [], 'ceph osd set norebalance'),
    (Phase.PINNING, {}, [], 'ceph osd set norebalance'),
    (Phase.ABORTING, {'sent': {PG: Sent(NOW)}}, [], 'ceph osd set norebalance'),
    # It is set again by others; or is not needed; or the campaign has not set it yet.
    (Phase.HOLDING, {'paused': True}, ['norebalance'], ''), (Phase.RELEASING, {}, [], ''),
    (Phase.HOLDING, {'paused': True, 'holds': Holds(prepared=True)}, [], '')])
def test_a_flag_that_others_have_cleared_is_reported_while_it_is_needed(
        phase: Phase, campaign: Dict[str, Any], flags: List[str], command: str) -> None:
    holds = Holds(BORROWED.held, prepared=True).put(NOREBALANCE_KEY, None) \
        .give_up(NOREBALANCE_KEY)
    after = phases._report_cleared_flag(step(at(phase, {'holds': holds, **campaign}, flags=flags)))
    texts = [reason.text for reason in after.reasons if reason.code == Code.FLAG_CLEARED]
    assert len(texts) == bool(command) and all('"%s"' % command in text for text in texts)


@pytest.mark.parametrize('flag, given_up, flags, claims', [
    (SEEN, False, ['norebalance'], True), (SEEN, False, [], False),
    (Held(None, 'norebalance'), False, [], True), (replace(SEEN, returning=True), False, [], True),
    (None, True, [], False), (None, True, ['norebalance'], True), (None, False, [], True)])
def test_all_movement_is_not_called_halted_once_others_have_cleared_the_flag(
        flag: Optional[Held], given_up: bool, flags: List[str], claims: bool) -> None:
    holds = Holds({} if flag is None else {NOREBALANCE_KEY: flag}, prepared=True)
    before = at(Phase.HOLDING, {'holds': holds.give_up(*[NOREBALANCE_KEY] * given_up),
                                'pace': Pace(halted=True, why='slow')}, flags=flags)
    reason, = [reason for reason in step(before).reasons if reason.code == Code.HALTED]
    assert reason.text == '%s until client latency is back within its limit: slow' % (
        'all movement is halted' if claims else 'no PG is released')


def test_prepared_forgets_pgs_that_have_found_a_place() -> None:
    known = {'1.0': INCOMPLETE, '1.1': INCOMPLETE, '1.2': INCOMPLETE, '1.3': WHY}
    after = step(at(Phase.PREPARED, {'unpinnable': known}, osds=DOWN, up={
        '1.0': (1, 2), '1.1': THERE, '1.3': (1, 2)}))
    assert after.campaign.pinning.unpinnable == {'1.0': INCOMPLETE}
    none = at(Phase.PREPARED, {'unpinnable': {'1.0': INCOMPLETE}}, up={'1.0': (1, 2)}, osds=DOWN)
    assert step(none).campaign.pinning == none.campaign.pinning


@pytest.mark.parametrize('cluster, expected', [
    (LOOSE, True), ({'up': {PG: (1, 2)}}, False), ({'without': ['pool 1']}, False),
    ({'without': [PG]}, False), ({'up': {PG: (1, 2)}, 'osds': DOWN}, True)])
def test_a_pg_may_move(cluster: Dict[str, Any], expected: bool) -> None:
    assert phases._may_move(at(Phase.PREPARED, **cluster), PG) == expected


# ---- PINNING and PINNED

@pytest.mark.parametrize('campaign, changes, cluster, text', [
    ({}, {}, {}, None), ({}, {'to_pin': 2}, {}, '2 PGs are still to be pinned'),
    ({'unpinnable': {PG: DEGRADED}}, {'to_pin': 2}, {},
     '2 PGs are still to be pinned (1 of them must recover first)'),
    ({'sent': {PG: Sent(NOW)}}, {}, {}, 'waiting for 1 pin to show in the OSDMap'),
    ({}, {}, {'signals': counts(in_transition=9)}, '9 PGs are peering'),
    ({'phase_since': 994.0}, {}, {}, 'waiting for the PGs to report'),
    ({'phase_since': 993.5}, {}, {}, None),
    ({'sent_at': 994.0}, {}, {}, 'waiting for the PGs to report'),
    ({'sent_at': 993.5}, {}, {}, None),
    ({}, {}, {'goals_fit': False}, 'computing the targets of the pinned PGs')])
def test_what_pinning_waits_for(campaign: Dict[str, Any], changes: Dict[str, Any],
                                cluster: Dict[str, Any], text: Optional[str]) -> None:
    before = replace(at(Phase.PINNING, campaign, {'1.5': PIN}, **cluster), **changes)
    reason = phases._awaited_by_pins(before)
    assert (reason is None) == (text is None)
    assert reason is None or reason.text.startswith(text or '')


def test_pinning_leads_to_pinned() -> None:
    after = step(at(Phase.PINNING, {'unpinnable': {'1.1': DROPPED_BY_MON}}, {'1.5': PIN},
                    up={'1.1': THERE}))
    assert after.campaign.phase is Phase.PINNED and codes(after) == [Code.PINNED]
    assert after.reasons[0].text == '1 PG is pinned, 1 cannot be pinned'
    assert step(at(Phase.PINNING, {}, {'1.5': PIN})).reasons[0].text == '1 PG is pinned'


@pytest.mark.parametrize('trigger, own', [('operator', 5), ('auto', 0)])
def test_the_change_of_an_automatic_campaign_is_not_its_own(trigger: str, own: int) -> None:
    after = step(at(Phase.PINNING, {'trigger': trigger}, crush_version=5))
    assert after.campaign.crush.own == own


@pytest.mark.parametrize('change, pins', [(None, True), (TWO, True), (SENT, False)])
def test_nothing_is_pinned_beside_a_change_on_its_way(change: Any, pins: bool) -> None:
    after = step(at(Phase.PINNING, {'change': change}, **LOOSE))
    assert (PG in after.new_pins) == pins
    assert after.campaign.phase is Phase.PINNING and after.campaign.holds.flag == SEEN


def test_pinning_reports_the_balancer_and_that_it_is_prepared() -> None:
    holds = replace(BORROWED, prepared=False)
    assert step(at(Phase.PINNING, {'holds': holds})).campaign.holds.prepared
    late = step(at(Phase.PINNING, {'holds': Holds()}, flags=[]))
    assert not late.campaign.holds.prepared
    on = step(at(Phase.PINNING, {'given_up': frozenset({BALANCER})}, active='true'))
    assert Code.BALANCER_ON in codes(on)
    assert Code.BALANCER_ON not in codes(step(at(Phase.PINNING)))


MANY = {'1.%x' % seed: DROPPED_BY_MON for seed in range(3)}
REMAPPED = {'up': dict.fromkeys(MANY, THERE)}


@pytest.mark.parametrize('campaign, cluster, expected', [
    ({}, {}, Code.AWAITS_START), ({'automatic': True}, {}, Phase.RELEASING),
    ({'automatic': True}, {**LOOSE, 'flags': []}, Code.UNPINNED),
    ({'automatic': True, 'unpinnable': MANY}, REMAPPED, Code.UNPINNABLE),
    ({'automatic': True, 'trigger': 'auto'}, {'osds_or_crush_changed': 940.5}, Code.OSDS_ARRIVING),
    ({'automatic': True, 'trigger': 'auto'}, {'osds_or_crush_changed': 940.0}, Phase.RELEASING),
    ({'automatic': True}, {'osds_or_crush_changed': 999.0}, Phase.RELEASING)])
def test_pinned(campaign: Dict[str, Any], cluster: Dict[str, Any], expected: Any) -> None:
    after = step(at(Phase.PINNED, campaign, **cluster))
    if isinstance(expected, Phase):
        assert after.campaign.phase is expected and not after.reasons
    else:
        assert codes(after) == [expected] and after.campaign.phase is Phase.PINNED


@pytest.mark.parametrize('phase', [Phase.PINNING, Phase.PINNED])
def test_pins_keep_norebalance_unless_an_evacuation_needs_it_cleared(phase: Phase) -> None:
    cleared = SetFlag('norebalance', False)
    assert cleared in step(at(phase, **EVACUATION)).actions
    assert step(at(phase)).actions == ()


# ---- RELEASING and HOLDING

@pytest.mark.parametrize('campaign, cluster, phase, code', [
    ({'paused': True}, {}, Phase.HOLDING, Code.PAUSED),
    ({}, {'stops': (Reason(Code.UPGRADE, ''),)}, Phase.HOLDING, Code.UPGRADE),
    ({'pace': Pace(halted=True, pgs=2.0)}, {}, Phase.HOLDING, Code.HALTED),
    ({'stopped': 995.5}, {}, Phase.HOLDING, Code.CONFIRMING),
    ({'stopped': 995.0}, {}, Phase.RELEASING, None),
    ({'unpinnable': MANY}, REMAPPED, Phase.PINNED, Code.UNPINNABLE),
    ({}, {'goals_fit': False}, Phase.RELEASING, Code.NO_GOALS)])
def test_holding(campaign: Dict[str, Any], cluster: Dict[str, Any], phase: Phase,
                 code: Optional[str]) -> None:
    after = step(at(Phase.HOLDING, {'holds': BORROWED.put(NOREBALANCE_KEY, None), **campaign},
                    {'1.5': PIN}, flags=[], **cluster))
    assert after.campaign.phase is phase
    assert code is None or code in codes(after)


@pytest.mark.parametrize('phase, pace', [(Phase.RELEASING, 2.0), (Phase.HOLDING, 4.0)])
def test_a_stop_condition_halves_the_pace_once(phase: Phase, pace: float) -> None:
    obstacles = phases._Obstacles({}, (), (Reason(Code.UPGRADE, 'x'),), ())
    after = phases._held_back(at(phase, {'pace': Pace(pgs=4.0)}), obstacles)
    assert after is not None and after.campaign.phase is Phase.HOLDING
    assert after.campaign.pace.pgs == pace and after.campaign.progress.stopped == NOW
    assert codes(after) == [Code.UPGRADE]


@pytest.mark.parametrize('pins, flights, loose, holds', [
    ({PG: PIN}, {}, {}, True), ({}, {}, {}, False), ({PG: PIN}, {PG: FLIGHT}, {}, False),
    ({}, {}, {PG: Move(PG, (0,), (3,), 0, 1)}, True)])
def test_releases_that_may_not_begin(pins: Dict[str, PinRecord], flights: Dict[str, Flight],
                                     loose: Dict[str, Move], holds: bool) -> None:
    before = at(Phase.RELEASING, {'in_flight': flights}, pins)
    closed = phases._Obstacles(loose, (), (), (Reason(Code.WINDOW_CLOSED, 'closed'),))
    after = phases._held_back(before, closed)
    assert (after is not None) == holds
    if after is not None:
        assert codes(after) == [Code.WINDOW_CLOSED] and after.campaign.phase is Phase.HOLDING
    assert phases._held_back(before, closed._replace(may_not_begin=())) is None
    assert phases._held_back(before, closed._replace(relieved=frozenset({0}))) is None


@pytest.mark.parametrize('paused, text', [
    ({}, 'paused by the operator;'), ({'paused_seconds': 90.0, 'paused_counted': 1000.0},
                                      'for another 2 minutes;'),
    ({'paused_seconds': 10.0, 'paused_counted': 1000.0}, 'for another 1 minute;'),
    ({'paused_seconds': 10.5, 'paused_counted': 990.0}, 'for another 1 minute;'),
    ({'paused_seconds': 3540.0, 'paused_counted': 1000.0}, 'for another 59 minutes;'),
    ({'paused_seconds': 10.0, 'paused_counted': 990.0}, 'paused by the operator;')])
def test_how_much_of_a_pause_is_left(paused: Dict[str, Any], text: str) -> None:
    stops = phases._Obstacles({}, (), (Reason(Code.UPGRADE, 'x'),), ())
    after = phases._held_back(at(Phase.HOLDING, {'paused': True, **paused}), stops)
    assert after is not None and text in after.reasons[0].text
    assert codes(after) == [Code.PAUSED, Code.UPGRADE]


@pytest.mark.parametrize('orders, paused, events', [
    ({'paused': True, 'paused_seconds': 10.0, 'paused_counted': 990.0}, False, 1),
    ({'paused': True, 'paused_seconds': 10.5, 'paused_counted': 990.0}, True, 0),
    ({'paused': True}, True, 0), ({'paused_seconds': 5.0, 'paused_counted': 990.0}, False, 0)])
def test_a_pause_expires(orders: Dict[str, Any], paused: bool, events: int) -> None:
    after = phases._end_pause(at(Phase.HOLDING, orders))
    assert after.campaign.orders.paused == paused and len(after.events) == events


def test_what_is_left_of_a_pause_is_noted() -> None:
    orders = {'paused': True, 'paused_seconds': 600.0, 'paused_counted': 940.0}
    after = phases._end_pause(at(Phase.HOLDING, orders)).campaign.orders
    assert (after.paused_seconds, after.paused_counted) == (540.0, NOW)


@pytest.mark.parametrize('campaign, cluster, stops, may_not', [
    ({}, {}, [], []), ({}, {'untrimmed_epochs': 99999}, [], [Code.UNTRIMMED_CEILING]),
    ({'unpinnable': {PG: WHY}}, {**LOOSE, 'untrimmed_epochs': 99999}, [], []),
    ({'pace': Pace(halted=True)}, {}, [Code.HALTED], []),
    ({'trigger': 'auto'}, {'osds_or_crush_changed': NOW}, [Code.OSDS_ARRIVING], []),
    ({}, {'stops': (Reason(Code.MON_DISK, ''),)}, [], [Code.MON_DISK]),
    ({'unpinnable': {PG: WHY}}, {**LOOSE, 'stops': (Reason(Code.MON_DISK, ''),)}, [], [])])
def test_obstacles(campaign: Dict[str, Any], cluster: Dict[str, Any], stops: List[str],
                   may_not: List[str]) -> None:
    found = phases._obstacles(at(Phase.RELEASING, campaign, **cluster), False)
    assert [reason.code for reason in found.stops] == stops
    assert [reason.code for reason in found.may_not_begin] == may_not
    assert set(found.loose) == ({PG} if 'unpinnable' in campaign else set())
    assert not found.partial_stops


@pytest.mark.parametrize('full, moves, campaign, cluster, relieved', [
    ({0: 'full'}, True, {}, {}, {0}), ({0: 'backfillfull'}, True, {}, {}, {0}),
    ({0: 'nearfull'}, True, {}, {}, set()), ({5: 'full'}, True, {}, {}, set()),
    ({0: 'full'}, False, {}, {}, set()),
    # Most OSDs: the window would mean nothing to an expansion of a full cluster.
    (dict.fromkeys(range(7), 'backfillfull'), True, {}, {}, set()),
    ({0: 'full'}, True, {}, {'untrimmed_epochs': 99999}, set()),
    # It releases no PG before its last tranche, and the next one moves PGs without pins.
    ({0: 'full'}, True, {'change': TWO, 'rollback': Rollback(begun=True)}, {}, set()),
    ({0: 'full'}, True, {'unpinnable': {PG: WHY}}, LOOSE, set())])
def test_which_osds_pgs_may_leave_outside_the_time_window(
        full: Dict[int, str], moves: bool, campaign: Dict[str, Any], cluster: Dict[str, Any],
        relieved: Set[int]) -> None:
    draft = at(Phase.RELEASING, campaign, **cluster, osds={
        osd: Osd(osd, True, 1.0, fullness=text) for osd, text in full.items()},
        moves={'1.6': Move('1.6', (0,), (3,), 0, 1)} if moves else {})
    closed = replace(draft, options=out_of_hours(draft.options, draft.observed.wall))
    assert phases._obstacles(closed, False).relieved == relieved
    assert not phases._obstacles(draft, False).relieved
    invalid = replace(draft, options=replace(draft.options, begin_time='x'))
    assert not phases._obstacles(invalid, False).relieved


def test_conditions_of_some_osds_are_partial_obstacles() -> None:
    found = phases._obstacles(at(Phase.RELEASING, same_drive=frozenset({3}), moves={
        '1.5': Move('1.5', (0,), (4,), 0, 1)}), False)
    assert [stop.osds for stop in found.partial_stops] == [{3}] and not found.stops
    all_stopped = phases._obstacles(at(Phase.RELEASING, same_drive=frozenset({3}), moves={
        '1.5': Move('1.5', (0,), (3,), 0, 1)}), False)
    assert [reason.code for reason in all_stopped.stops] == [Code.SAME_DRIVE]


@pytest.mark.parametrize('campaign, cluster, keeps', [
    ({}, {}, False), ({'stopped': 999.0}, {}, True),
    ({}, {'stops': (Reason(Code.UPGRADE, ''),)}, True),
    ({'paused': True}, {}, True), ({'pace': Pace(halted=True)}, {}, True),
    ({'sent': {'1.7': Sent(NOW)}}, {}, True)])
def test_norebalance_stays_while_loose_pgs_must_not_move(campaign: Dict[str, Any],
                                                         cluster: Dict[str, Any],
                                                         keeps: bool) -> None:
    after = step(at(Phase.RELEASING, {'unpinnable': {PG: DROPPED_BY_MON}, **campaign}, {'1.5': PIN},
                    **LOOSE, **cluster))
    assert (SetFlag('norebalance', False) not in after.actions) == keeps
    assert (PG in after.campaign.flights.in_flight) == (not keeps)


def test_pgs_that_others_remap_are_pinned_before_releases_go_on() -> None:
    after = step(at(Phase.RELEASING, {}, {'1.5': PIN}, **LOOSE))
    assert PG in after.new_pins and codes(after)[-1] == Code.SETTINGS
    left = step(at(Phase.RELEASING, {'holds': Holds()}, {'1.5': PIN}, **LOOSE, flags=[]))
    assert Code.UNPINNED in codes(left) and SetFlag('norebalance', True) in left.actions


@pytest.mark.parametrize('cluster, holds, pinned', [
    ({}, BORROWED, True), ({'flags': []}, Holds(), False)])
def test_pgs_are_pinned_back_once_norebalance_is_in_force(cluster: Dict[str, Any], holds: Holds,
                                                          pinned: bool) -> None:
    after = step(at(Phase.HOLDING, {'in_flight': {PG: replace(FLIGHT, confirmed=991.0)},
                                    'paused': True, 'paused_at': 400.0, 'holds': holds}, {PG: PIN},
                    entries={PG: NO_ENTRY}, **LOOSE, untrimmed_epochs=99999, **cluster))
    assert (PG in after.new_pins) == pinned == (PG not in after.campaign.flights.in_flight)


@pytest.mark.parametrize('campaign, releases', [
    ({}, True), ({'change': TWO}, True),
    ({'change': TWO, 'rollback': Rollback(begun=True)}, False)])
def test_pins_are_released(campaign: Dict[str, Any], releases: bool) -> None:
    """Except those of a rollback of which further tranches follow."""
    after = step(at(Phase.RELEASING, {'holds': BORROWED.put(NOREBALANCE_KEY, None), **campaign},
                    {PG: PIN}, flags=[], moves={PG: Move(PG, (0,), (3,), 0, 1)}))
    assert (PG in after.campaign.flights.in_flight) == releases


# ---- the end of releases

@pytest.mark.parametrize('signals, campaign, cluster, is_over, code', [
    ({}, {}, {}, True, None), ({}, {'progressed': 994.0}, {}, False, Code.REPORTS),
    ({}, {'progressed': 993.5}, {}, True, None), ({}, {'sent_at': 994.0}, {}, False, Code.REPORTS),
    ({'in_transition': 1}, {}, {}, False, Code.UNCLEAN),
    ({'in_transition': 1}, {'phase_since': 939.5}, {}, True, Code.UNCLEAN),
    ({'in_transition': 1}, {'phase_since': 940.0}, {}, False, Code.UNCLEAN),
    ({'in_transition': 1}, {'phase_since': 900.0, 'progressed': 940.0}, {}, False, Code.UNCLEAN),
    ({'remapped': 1}, {}, {}, False, Code.UNCLEAN),
    ({'remapped': 1}, {'unpinnable': {PG: INCOMPLETE}}, {}, True, None),
    ({'remapped': 2}, {'unpinnable': {PG: INCOMPLETE}}, {}, False, Code.UNCLEAN),
    ({'remapped': 1}, {'unpinnable': {PG: WHY}}, {}, False, Code.UNCLEAN),
    ({'remapped': 1}, {}, EVACUATION, True, None),
    ({'remapped': 0, 'in_transition': 1}, {}, EVACUATION, False, Code.UNCLEAN)])
def test_the_end_waits_for_clean_pgs(signals: Dict[str, int], campaign: Dict[str, Any],
                                     cluster: Dict[str, Any], is_over: bool,
                                     code: Optional[str]) -> None:
    found = phases._unclean(at(Phase.FINISHING, campaign, signals=counts(**signals), **cluster))
    assert found.wait_is_over == is_over
    assert [reason.code for reason in found.reasons] == ([] if code is None else [code])


DRAIN = WeightChange(weights={3: TINY_WEIGHT}, stage=ChangeStage.LANDED, drained=(3,))


@pytest.mark.parametrize('campaign, pins, cluster, phase', [
    ({}, {}, {}, Phase.FINISHING), ({'in_flight': {PG: FLIGHT}}, {}, {}, Phase.RELEASING),
    ({}, {PG: PIN}, {}, Phase.RELEASING), ({'progressed': 999.0}, {}, {}, Phase.RELEASING),
    ({'change': RuleChange(moves_first=True)}, {}, {}, Phase.PINNING),
    ({'change': TWO}, {}, {'crush': crush_of({**dict.fromkeys(OSDS, 1.0), 3: 0.5}, hosts=8)},
     Phase.PINNING),
    ({'change': DRAIN}, {}, {'crush': crush_of({**dict.fromkeys(OSDS, 1.0), 3: TINY_WEIGHT},
                                               hosts=8)}, Phase.PINNING),
    ({'change': DRAIN}, {}, {}, Phase.FINISHING)])
def test_what_follows_the_last_release(campaign: Dict[str, Any], pins: Dict[str, PinRecord],
                                       cluster: Dict[str, Any], phase: Phase) -> None:
    before = at(Phase.RELEASING, {'released': 2, **campaign}, pins, **cluster)
    after = phases._complete(before)
    assert after.campaign.phase is phase
    if phase is Phase.FINISHING:
        refilled = '; not drained, because others gave them a CRUSH weight: osd.3'
        assert after.events[-1].why == '2 PGs released' + (refilled if campaign else '')
    if phase is Phase.PINNING and not campaign['change'].moves_first:
        assert after.campaign.automatic
        assert after.events[-1].why == (
            'tranche 2 of 2 of the CRUSH change follows' if campaign['change'] is TWO
            else 'CRUSH weight 0 follows for osd.3')


def test_upmaps_that_are_not_needed_are_removed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    action = SetFlag('noout', True)
    monkeypatch.setattr(phases, 'remove_needless_pairs', lambda draft: draft.send(action))
    after = phases._complete(at(Phase.RELEASING))
    assert codes(after) == [Code.UNCLEAN] and after.actions == (action,)
    assert after.campaign.phase is Phase.RELEASING


def test_a_drained_osd_that_is_not_in_crush_is_drained() -> None:
    change = replace(DRAIN, drained=(99,))
    after = phases._complete(at(Phase.RELEASING, {'change': change}))
    assert after.events[-1].why == '0 PGs released'


def test_the_pins_of_a_rollback_wait_for_its_last_tranche() -> None:
    rollback = {'change': TWO, 'rollback': Rollback(begun=True)}
    after = phases._complete(at(Phase.RELEASING, rollback, {PG: PIN}))
    assert after.campaign.phase is Phase.RELEASING
    assert after.campaign.change == replace(TWO, share=1.0)
    # All weights are set: its pins are released.
    assert not after.events


@pytest.mark.parametrize('flag, coming', [
    (SEEN, False), (replace(SEEN, seen=False), True),
    (replace(SEEN, seen=False, returning=True), False), (None, False)])
def test_a_flag_that_no_osdmap_has_shown(flag: Optional[Held], coming: bool) -> None:
    before = at(Phase.RELEASING, {'holds': BORROWED.put(NOREBALANCE_KEY, flag)})
    assert flag_is_coming(before.campaign.holds) == coming


@pytest.mark.parametrize('campaign, pins, cluster, phase, code', [
    ({}, {}, {}, Phase.DONE, None), ({'in_flight': {PG: FLIGHT}}, {}, {}, None, Code.IN_FLIGHT),
    ({'progressed': 999.0}, {}, {}, None, Code.REPORTS),
    ({'keep': True}, {'1.5': PIN}, {}, None, Code.SETTINGS)])
def test_finishing(campaign: Dict[str, Any], pins: Dict[str, PinRecord], cluster: Dict[str, Any],
                   phase: Optional[Phase], code: Optional[str]) -> None:
    before = at(Phase.FINISHING, {'holds': Holds(), 'paused': True, **campaign}, pins, flags=[],
                active='true', **cluster)
    after = step(before)
    assert after.campaign.phase is (phase or Phase.FINISHING)
    assert codes(after) == ([] if code is None else [code])
    if phase:
        assert after.campaign.ended == NOW and not after.campaign.orders.paused


def test_finishing_gives_everything_back_first() -> None:
    after = step(at(Phase.FINISHING))
    assert codes(after) == [Code.SETTINGS] and SetBalancer(True) in after.actions
    flying = step(at(Phase.FINISHING, {'in_flight': {PG: FLIGHT}}))
    assert SetBalancer(True) not in flying.actions
    assert SetFlag('norebalance', False) in flying.actions


@pytest.mark.parametrize('halted', [True, False])
def test_pgs_in_flight_keep_the_pace_of_clients_while_finishing(halted: bool) -> None:
    flying: Dict[str, Any] = {'in_flight': {PG: FLIGHT}, 'pace': Pace(pgs=1.0, halted=halted)}
    after = step(at(Phase.FINISHING, flying))
    assert codes(after) == [Code.IN_FLIGHT, *([Code.HALTED] if halted else [])]
    assert (SetFlag('norebalance', False) in after.actions) == (not halted)
    # The last reading is judged, as in RELEASING.
    assert after.campaign.pace.used == 1
    # None is in flight.
    assert SetFlag('norebalance', False) in step(at(
        Phase.FINISHING, {**flying, 'in_flight': {}})).actions


def test_pins_are_handed_over() -> None:
    free = PinRecord(NO_ENTRY, NO_ENTRY, goal=PINNED)
    pins = {'1.0': PIN, '1.1': PIN, '1.2': free, '1.3': free, '1.4': PIN}
    before = at(Phase.FINISHING, {'in_flight': {'1.1': FLIGHT, '1.3': FLIGHT}, 'kept': 1,
                                  'sent': {'1.0': Sent(NOW)}}, pins).forget_pins(['1.4'])
    after = phases._hand_over(before)
    assert after.unpins == {'1.0', '1.2', '1.4'} and after.campaign.progress.kept == 2
    assert not after.campaign.pinning.sent and after.campaign.pinning.kept_mark is None


# ---- ABORTING and ABORTED

@pytest.mark.parametrize('campaign, changes, cluster, text', [
    ({}, {}, {}, None), ({}, {'to_pin': 1}, {}, '1 PG is being pinned back'),
    ({'unpinnable': {PG: DEGRADED}}, {'to_pin': 1}, {}, None),
    ({'sent': {PG: Sent(NOW)}, 'in_flight': {'1.1': FLIGHT}}, {'to_pin': 1}, {},
     '3 PGs are being pinned back'),
    ({'sent': {PG: Sent(NOW)}}, {}, {}, '1 PG is being pinned back'),
    ({'in_flight': {PG: FLIGHT}}, {}, {}, '1 PG is being pinned back'),
    ({'phase_since': 994.0}, {}, {}, 'waiting for the PGs to report'),
    ({}, {}, {'signals': counts(in_transition=9)}, '9 PGs are peering'),
    ({'phase_since': 940.0}, {}, {'signals': counts(in_transition=9)}, '9 PGs are peering'),
    ({'phase_since': 939.5}, {}, {'signals': counts(in_transition=9)}, None)])
def test_what_an_abort_waits_for(campaign: Dict[str, Any], changes: Dict[str, Any],
                                 cluster: Dict[str, Any], text: Optional[str]) -> None:
    fields = {'sent_at': 990.0 if 'phase_since' in campaign else 0.0, 'progressed': NOW, **campaign}
    reason = phases._awaited_by_abort(replace(at(Phase.ABORTING, fields, {'1.5': PIN}, **cluster),
                                              **changes))
    assert (reason and reason.text) == text


@pytest.mark.parametrize('campaign, pins, cluster, phase, code', [
    ({'change': SENT}, {}, {}, None, Code.CRUSH_SENT),
    ({'in_flight': {'1.5': FLIGHT}, 'phase_since': 994.0}, {'1.5': PIN}, {'flags': []}, None,
     Code.SETTINGS),
    ({'in_flight': {'1.5': FLIGHT}, 'phase_since': 993.5}, {'1.5': PIN}, {'flags': []}, None,
     Code.PINS_SENT),
    ({}, {'1.5': PIN}, {}, None, Code.SETTINGS),
    ({'holds': Holds(prepared=True)}, {'1.5': PIN}, {'flags': []}, Phase.ABORTED, None),
    ({'wanted': DRAIN}, {}, {}, Phase.PINNING, None)])
def test_aborting(campaign: Dict[str, Any], pins: Dict[str, PinRecord], cluster: Dict[str, Any],
                  phase: Optional[Phase], code: Optional[str]) -> None:
    after = step(at(Phase.ABORTING, campaign, pins, **cluster))
    assert after.campaign.phase is (phase or Phase.ABORTING)
    assert codes(after) == ([] if code is None else [code])
    if phase is Phase.ABORTED:
        assert after.campaign.held and after.campaign.left == 1 and after.campaign.ended == NOW


def test_an_abort_without_pins_ends_the_campaign() -> None:
    ended = step(at(Phase.ABORTING, {'holds': Holds(prepared=True, given_up=frozenset({'x'}))},
                    flags=[])).campaign
    assert (ended.phase, ended.held, ended.holds.given_up) == (Phase.ABORTED, False, frozenset())


@pytest.mark.parametrize('present, pin, led, expected', [
    # Without a pin, from where it was led; not if others have led it elsewhere.
    (PINNED, None, Led(NO_ENTRY, PINNED), PinRecord(NO_ENTRY, PINNED)),
    (NO_ENTRY, None, Led(NO_ENTRY, PINNED), None),
    (UpmapEntry(((3, 5),)), None, Led(NO_ENTRY, PINNED), None),
    (PINNED, replace(PIN, before=UpmapEntry(((3, 6),)), goal=NO_ENTRY),
     Led(NO_ENTRY, UpmapEntry(((3, 6),))), PIN),
    (PINNED, replace(PIN, before=UpmapEntry(((3, 5),))),
     Led(NO_ENTRY, UpmapEntry(((3, 6),))), None),
    (PINNED, replace(PIN, before=UpmapEntry(((3, 5),)), goal=NO_ENTRY),
     Led(NO_ENTRY, UpmapEntry(((3, 6),))), replace(PIN, before=UpmapEntry(((3, 5),))))])
def test_a_rollback_leads_pgs_back(present: UpmapEntry, pin: Optional[PinRecord], led: Led,
                                   expected: Optional[PinRecord]) -> None:
    change = replace(DRAIN, ahead={PG: led})
    before = at(Phase.ABORTING, {'change': change, 'target': 'balanced', 'goals': GoalsMark(3),
                                 'unpinnable': {'1.1': INCOMPLETE, '1.2': WHY}},
                {} if pin is None else {PG: pin}, entries={PG: present})
    after = phases._roll_back(before, TWO)
    assert after.new_pins == ({} if expected is None else {PG: expected})
    campaign = after.campaign
    assert (campaign.change, campaign.target, campaign.pinning.goals) == (TWO, 'crush', GoalsMark())
    assert campaign.rollback == Rollback(begun=True, undone=change)
    assert set(campaign.pinning.unpinnable) == {'1.1'}


def test_a_rollback_notes_no_forgotten_pin() -> None:
    before = at(Phase.ABORTING, {}, {PG: replace(PIN, goal=NO_ENTRY)}).forget_pins([PG])
    assert not phases._roll_back(before, TWO).new_pins


@pytest.mark.parametrize('campaign, pins, unpinned, decides', [
    ({}, {}, [], False), ({}, {PG: PIN}, [], True), ({}, {}, [PG], True),
    ({'change': TWO}, {}, [], True), ({'change': replace(TWO, share=1.0)}, {}, [], False)])
def test_the_operator_decides_on_what_is_left(campaign: Dict[str, Any], pins: Dict[str, PinRecord],
                                              unpinned: List[str], decides: bool) -> None:
    assert phases._awaits_decision(at(Phase.ABORTED, campaign, pins), unpinned) == decides


@pytest.mark.parametrize('why, cluster, unpinned', [
    (WHY, LOOSE, True), (INCOMPLETE, LOOSE, False), (WHY, {}, False), (WHY, EVACUATION, False),
    (WHY, {'up': {PG: (1, 2)}}, False)])
def test_pgs_that_only_norebalance_keeps(why: Unpinnable, cluster: Dict[str, Any],
                                         unpinned: bool) -> None:
    before = at(Phase.ABORTED, {'unpinnable': {PG: why}}, **cluster)
    assert phases._unpinned(before) == ([PG] if unpinned else [])


@pytest.mark.parametrize('change, number, cluster, expected', [
    (DRAIN, 2, {}, 2), (None, 2, {}, 0), (replace(DRAIN, closing=True), 2, {}, 0),
    (DRAIN, 2, {'crush': CRUSH}, 0), (DRAIN, 4, {}, 4), (DRAIN, 5, {}, 0),
    (DRAIN, 2, {'evacuation': {PG: (0,)}}, 1), (DRAIN, 2, {'without': [PG]}, 1),
    (DRAIN, 2, {'without': ['pool 1']}, 0)])
def test_pgs_of_the_last_step_of_a_change(change: Any, number: int, cluster: Dict[str, Any],
                                          expected: int) -> None:
    cluster = {'crush': HYBRID, 'options': replace(QUIET, max_pgs_in_flight=4), **cluster}
    up = {'1.%x' % seed: (3, 1, 4) for seed in range(number)}
    before = at(Phase.ABORTING, {'change': change, 'accepted_unpinnable': 1}, up=up,
                acting=dict.fromkeys(up, (0, 1, 4)), **cluster)
    assert len(phases.moved_by_last_tranche(before)) == expected
    accepting = phases._accept_last_tranche(before)
    assert accepting.campaign.orders.accepted_unpinnable == max(1, expected)
    text = phases._last_tranche_text(before)
    assert text == ('' if not expected else '; %d PG%s that cannot be pinned still %s to where '
                    'CRUSH places %s' % ((1, '', 'moves', 'it') if expected == 1 else
                                         (expected, 's', 'move', 'them')))
    known = at(Phase.ABORTED, {'change': change, 'unpinnable': dict.fromkeys(up, WHY)}, up=up,
               acting=dict.fromkeys(up, (0, 1, 4)), **cluster)
    assert expected == 0 or set(phases._unpinned(known)).isdisjoint(
        phases.moved_by_last_tranche(known))


@pytest.mark.parametrize('campaign, pins, cluster, code', [
    ({}, {PG: PIN}, {}, Code.HELD_PINS), ({'holds': Holds()}, {}, {'flags': []}, None),
    ({}, {}, {}, Code.SETTINGS), ({'unpinnable': {PG: WHY}}, {}, LOOSE, Code.HELD_PINS)])
def test_aborted(campaign: Dict[str, Any], pins: Dict[str, PinRecord], cluster: Dict[str, Any],
                 code: Optional[str]) -> None:
    after = step(at(Phase.ABORTED, {'held': True, **campaign}, pins, **cluster))
    assert codes(after) == ([] if code is None else [code])
    assert after.campaign.held == (code is not None)
    if code == Code.HELD_PINS:
        assert 'keeps 1 PG pinned' in after.reasons[0].text
        assert 'resume" (releases them), "campaign rollback" or' in after.reasons[0].text
        # norebalance stays only for PGs without a pin.
        assert (SetFlag('norebalance', False) in after.actions) == bool(pins)


def test_aborted_gives_back_what_no_pin_needs() -> None:
    modes = {'pg_autoscale_mode/%d' % pool: Held('on', 'off', seen=True) for pool in (1, 2)}
    holds = replace(BORROWED, held={**BORROWED.held, **modes})
    after = step(at(Phase.ABORTED, {'held': True, 'holds': holds}, {PG: PIN, '2.0': PIN}))
    assert not [action for action in after.actions if isinstance(action, SetPool)]
    before = at(Phase.ABORTED, {'held': True, 'holds': holds}, {PG: PIN, '2.0': PIN})
    after = step(before.forget_pins(['2.0']))
    assert [action for action in after.actions if isinstance(action, SetPool)] == [
        SetPool('e', 'pg_autoscale_mode', 'on')]


@pytest.mark.parametrize('holds, flags, text', [
    (BORROWED, ['norebalance'], 'waiting until flags, balancer and autoscaler are given back'),
    (Holds(), [], 'removing pins that are no longer needed from the store')])
def test_an_aborted_campaign_without_pins_ends_once_nothing_is_left(
        holds: Holds, flags: List[str], text: str) -> None:
    before = at(Phase.ABORTED, {'held': True, 'holds': holds}, flags=flags)
    after = step(replace(before, pins=Untidy()))
    assert [reason.text for reason in after.reasons] == [text] and after.campaign.held


@pytest.mark.parametrize('change, begun, text', [
    (None, False, 'releases them'), (TWO, False, 'continues the change of CRUSH'),
    (TWO, True, 'continues the rollback'), (replace(TWO, share=1.0), True, 'releases them'),
    (WeightChange(weights={3: 1.0}), False, 'continues the change of CRUSH')])
def test_what_resume_does(change: Any, begun: bool, text: str) -> None:
    before = at(Phase.ABORTED, {'change': change, 'rollback': Rollback(begun=begun)})
    assert phases._resume_does(before) == text


def test_the_end_names_what_is_left() -> None:
    crush = crush_of({**dict.fromkeys(OSDS, 1.0), 3: TINY_WEIGHT}, hosts=8)
    before = at(Phase.FINISHING, {'change': DRAIN, 'released': 2, 'kept': 1, 'held': True},
                crush=crush)
    after = phases._end(before, Phase.DONE)
    assert after.events[-1].why == '2 PGs released, 1 kept as upmaps; CRUSH weight 0.0001 ' \
        'remains for osd.3: see "osds --drained"'
    assert after.campaign.holds == before.campaign.holds
    plain = phases._end(at(Phase.FINISHING, {'given_up': frozenset({'x'})}), Phase.DONE)
    assert plain.events[-1].why == '0 PGs released, 0 kept as upmaps'
    assert not plain.campaign.holds.given_up


@pytest.mark.parametrize('pins, phase, expected', [
    ({}, Phase.ABORTING, [Code.SETTINGS]), ({PG: PIN}, Phase.ABORTED, [])])
def test_an_abort_waits_until_the_store_is_tidy_unless_pins_are_left(
        pins: Dict[str, PinRecord], phase: Phase, expected: List[str]) -> None:
    before = at(Phase.ABORTING, {'holds': Holds(prepared=True)}, pins, flags=[])
    after = step(replace(before, pins=Untidy(pins)))
    assert after.campaign.phase is phase and codes(after) == expected
    if expected:
        assert after.reasons[0].text.startswith('removing pins that are no longer needed')


@pytest.mark.parametrize('forgotten, tidy, waits', [
    (False, True, False), (True, True, True), (False, False, True)])
def test_the_end_waits_until_the_store_is_tidy(forgotten: bool, tidy: bool, waits: bool) -> None:
    before = at(Phase.FINISHING, {'holds': Holds()}, {PG: PIN} if forgotten else {}, flags=[],
                active='true')
    if forgotten:
        before = before.forget_pins([PG])
    if not tidy:
        before = replace(before, pins=Untidy())
    assert phases._must_tidy(before) == waits
    assert (step(before).campaign.phase is Phase.DONE) == (not waits)
