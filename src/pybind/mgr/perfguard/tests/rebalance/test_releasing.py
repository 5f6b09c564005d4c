# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which PGs are released in a turn, and what prevents the release of others."""
from dataclasses import replace
from typing import Any, Collection, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

import pytest

from perfguard.cluster.set_by_others import BALANCER
from perfguard.cluster.types import (NO_ENTRY, NO_OSD, ClientOps, HeldPgs, Ops, OsdSet,
                                     PgCounts, Signals, UpmapEntry)
from perfguard.errors import Code, Reason
from perfguard.observation import Clients
from perfguard.rebalance import releasing
from perfguard.rebalance.balancing import BalanceChange
from perfguard.rebalance.campaign import Basis, Campaign, GoalsMark
from perfguard.rebalance.change import Led
from perfguard.rebalance.draft import Draft
from perfguard.rebalance.goals import basis
from perfguard.rebalance.moves import Move
from perfguard.rebalance.releasing import (BALANCER_ON, EC_OPTIMIZATIONS, _breaks_rule, _chosen,
                                           _is_batch, _peering, _prime, _primed_epoch, _releasable,
                                           _without_displaced, adopt_unpinnable,
                                           balancer_of_others, concerns, drop_goals_planned_once,
                                           foreign_flags, full_osds, ignores_degraded, keep,
                                           keep_stayers, loose_moves, others_degraded, present_load,
                                           recovering_own_pgs, release_more, stopped_moves,
                                           stops_of, waits_for_recovery)
from perfguard.rebalance.stalls import IntervalChange, Stalls
from perfguard.rebalance.throttle import caps
from perfguard.rebalance.types import Flight, Holds, Pace, Phase, PinRecord, Sent, SetEntry
from perfguard.rebalance.weights import WeightChange
from perfguard.upmap.pins import DEGRADED, INCOMPLETE, Unpinnable
from perfguard.watch.slow_reads import SlowReads
from perfguard.watch.stop_conditions import OwnPg, Stop

from ..fakes.campaigns import campaign_of, changed
from ..fakes.drafts import (CRUSH, HERE, NOW, OPTIONS, OSDS, PIN, PINNED, POOLS, THERE, draft_of,
                            events_of)
from .test_orders import crush as crush_of

PG = '1.0'
MOVE = Move(PG, (0,), (3,), 0, 100, since=NOW)
OTHER = UpmapEntry(((3, 5),))
FLIGHT = Flight(990.0, NO_ENTRY, sources=(0,), targets=(3,), primary=0, pin=PIN)
DOWN = {7: replace(OSDS[7], up=False)}
SLOW = Stop(Reason(Code.OSD_LATENCY, 'slow'), frozenset({4}))
GOAL = replace(PIN, goal=OTHER)


def owner(phase: Phase = Phase.RELEASING, **changes: Any) -> Campaign:
    return campaign_of(1, phase, 900.0, **changes)


def draft(pins: Mapping[str, PinRecord] = {}, campaign: Dict[str, Any] = {}, **cluster: Any
          ) -> Draft:
    """Pins are in force."""
    entries = {**{pgid: pin.entry for pgid, pin in pins.items()}, **cluster.pop('entries', {})}
    return draft_of(owner(**campaign), pins, entries=entries, **cluster)


def codes(reasons: Sequence[Reason]) -> List[str]:
    return [reason.code for reason in reasons]


# ---- stop conditions

POOL_1 = Reason(Code.SLOW_POOL, 'pool p is slow', frozenset({1}))
ROWS = (ClientOps(1, 6, Ops(1, 1), Ops()), ClientOps(1, 7, Ops(), Ops()),
        ClientOps(2, 5, Ops(1, 1), Ops()))


@pytest.mark.parametrize('reasons, changes, cluster, expected', [
    ((), {}, {}, []), ((Reason(Code.UPGRADE, ''),), {}, {}, [(Code.UPGRADE, None)]),
    ((Reason(Code.SLOW_OPS, ''),), {}, {}, []),
    ((Reason(Code.SLOW_POOL, ''),), {}, {'muted': frozenset({'PERFGUARD_LATENCY'})}, []),
    ((Reason(Code.UPGRADE, ''),), {'acknowledged': (Code.UPGRADE,)}, {}, []),
    ((Reason(Code.PEERING, ''),), {}, {}, [(Code.PEERING, None)]),
    ((), {}, {'counts': PgCounts(total=16, laggy=1)}, [(Code.LAGGY, None)]),
    ((Reason(Code.LAGGY, 'of the mitigation'),), {}, {'counts': PgCounts(total=16, laggy=1)},
     [(Code.LAGGY, None)])])
def test_stop_conditions(reasons: Tuple[Reason, ...], changes: Dict[str, Any],
                         cluster: Dict[str, Any],
                         expected: List[Tuple[str, Optional[FrozenSet[int]]]]) -> None:
    cluster.setdefault('counts', PgCounts(total=16))
    signals = Signals(**cluster)
    stops = stops_of(draft(campaign=changes, stops=reasons, signals=signals))
    assert [(stop.reason.code, stop.osds) for stop in stops] == expected
    assert not any(stop.reason.text == 'of the mitigation' for stop in stops)


def test_settings_of_others_cannot_be_waived() -> None:
    campaign = {'acknowledged': (Code.FOREIGN_FLAG, Code.BALANCER_ON, Code.SAME_DRIVE),
                'given_up': frozenset({BALANCER})}
    before = draft(campaign=campaign, flags=['norebalance', 'noout'], same_drive=frozenset({3}))
    on = replace(before, observed=replace(before.observed, settings=replace(
        before.observed.settings, balancer_active='true')))
    assert [stop.reason.code for stop in stops_of(on)] == [Code.FOREIGN_FLAG, Code.BALANCER_ON]
    taken = replace(on, observed=replace(on.observed, settings=replace(
        on.observed.settings, borrowed_elsewhere=frozenset({'norebalance'}))))
    assert stops_of(taken) == [Stop(BALANCER_ON)]
    borrowed = replace(on, campaign=changed(on.campaign, balancer_found='true'))
    assert stops_of(borrowed)[1].reason == Reason(
        Code.BALANCER_ON, BALANCER_ON.text + '; perfguard switches it on again at the end of the '
        'campaign')
    assert foreign_flags(Holds(), {'norebalance', 'noout'})[0].text.startswith('norebalance is set')


@pytest.mark.parametrize('given_up, active, busy, expected', [
    (True, 'true', False, True), (True, 'false', False, False), (True, 'false', True, True),
    (True, None, False, True), (False, 'true', True, False)])
def test_the_balancer_of_others(given_up: bool, active: Optional[str], busy: bool,
                                expected: bool) -> None:
    before = draft(campaign={'given_up': frozenset({BALANCER} if given_up else ())})
    settings = replace(before.observed.settings, balancer_active=active, balancer_busy=busy)
    after = replace(before, observed=replace(before.observed, settings=settings))
    assert balancer_of_others(after) == expected


def test_new_osds_on_the_drives_that_are_replaced_stop_releases_to_them() -> None:
    stop, = stops_of(draft(same_drive=frozenset({3, 4})))
    assert (stop.reason.code, stop.osds) == (Code.SAME_DRIVE, {3, 4})
    assert 'osd.3, osd.4' in stop.reason.text
    assert not stops_of(draft(same_drive=frozenset({3}),
                              campaign={'acknowledged': (Code.SAME_DRIVE,)}))


SMALL = crush_of({**dict.fromkeys(range(4), 1.0), 6: 0.0}, hosts=8)


@pytest.mark.parametrize('reason, crush, osds', [
    # Of the OSDs of the pool's rule and those that serve its clients; everywhere if these are all.
    (POOL_1, SMALL, None), (POOL_1, CRUSH, None), (replace(POOL_1, pools=frozenset()), SMALL, None),
    (replace(POOL_1, pools=frozenset({9})), SMALL, None)])
def test_a_slow_pool_of_all_osds_stops_everything(reason: Reason, crush: Any, osds: Any) -> None:
    stop, = stops_of(draft(stops=(reason,), crush=crush))
    assert (stop.reason, stop.osds, stop.pools) == (
        reason, osds, reason.pools if osds or reason.pools else frozenset())


def test_a_slow_pool_stops_releases_on_its_osds() -> None:
    """Those that serve its clients as well: its rule does not exist."""
    pools = {1: replace(POOLS[1], crush_rule=9)}
    stop, = stops_of(draft(stops=(POOL_1,), pools=pools, clients=Clients(rows=ROWS)))
    assert (stop.osds, stop.pools) == ({6}, {1})
    both = replace(POOL_1, pools=frozenset({1, 2}))
    pools[2] = replace(POOLS[2], crush_rule=9)
    stop, = stops_of(draft(stops=(both,), pools=pools, clients=Clients(rows=ROWS)))
    assert (stop.osds, stop.pools) == ({5, 6}, {1, 2})
    # All OSDs that have a weight are everything.
    crush = crush_of({6: 1.0, 5: 0.0}, hosts=8)
    stop, = stops_of(draft(stops=(POOL_1,), pools=pools, clients=Clients(rows=ROWS), crush=crush))
    assert stop.osds is None


@pytest.mark.parametrize('code, pace_code, slow, osds', [
    (Code.SLOW_POOL, Code.LATENCY_OK, True, {4}), (Code.SLOW_POOL, Code.LATENCY_OK, False, None),
    (Code.SLOW_POOL, Code.FIRST_PACE, True, None), (Code.UPGRADE, Code.LATENCY_OK, True, None)])
def test_single_slow_osds_of_a_pool_stop_their_own_releases(
        monkeypatch: pytest.MonkeyPatch, code: str, pace_code: str, slow: bool, osds: Any) -> None:
    asked: List[Tuple[Any, ...]] = []

    def explains(*args: Any) -> bool:
        asked.append(args)
        return slow

    monkeypatch.setattr(releasing, 'explains_alarm', explains)
    monkeypatch.setattr(releasing, 'stopped_osds', lambda states, now: frozenset({4}))
    stop, = stops_of(draft(stops=(Reason(code, '', frozenset({1})),),
                           campaign={'pace': Pace(code=pace_code)}))
    assert stop.osds == osds and asked in ([], [({}, NOW, 8)])


@pytest.mark.parametrize('slow, pools, osds', [
    # osd.5 serves pool 2 alone, and osd.6 pool 1 alone.
    ({5}, {1}, {6}), ({6}, {1}, set()), ({5}, {2}, set()), ({5}, {1, 2}, set()),
    # A pool that was deleted: it is not known which OSDs serve it.
    ({5}, {9}, None)])
def test_only_slow_osds_that_serve_a_pool_explain_its_alarm(
        slow: Collection[int], pools: Collection[int], osds: Any) -> None:
    """They are exempt, and so stop nothing themselves."""
    states = {osd: SlowReads(over=NOW - 5.0, touched=NOW - 5.0, exempt_until=NOW + 1.0)
              for osd in slow}
    alarm = replace(POOL_1, pools=frozenset(pools))
    stop, = stops_of(draft(
        stops=(alarm,), pools={pool: replace(POOLS[pool], crush_rule=9) for pool in POOLS},
        clients=Clients(rows=ROWS),
        campaign={'pace': Pace(code=Code.LATENCY_OK, slow_reads=states)}))
    assert stop.osds == osds


COUNTED = PgCounts(total=16, degraded=1)


@pytest.mark.parametrize('signals, cluster, expected', [
    (Signals(PgCounts()), {}, False), (Signals(COUNTED), {}, True),
    (Signals(COUNTED, muted=frozenset({'PG_DEGRADED'})), {}, True),
    (Signals(PgCounts(laggy=1)), {}, False)])
def test_pgs_that_others_have_degraded(signals: Signals, cluster: Dict[str, Any],
                                       expected: bool) -> None:
    assert others_degraded(draft(signals=signals, **cluster)) == expected


def test_released_pgs_may_be_degraded_for_a_moment() -> None:
    flights = {PG: FLIGHT, '1.1': FLIGHT, '1.2': FLIGHT}
    changes = (IntervalChange(990.0, 2, (0,), '2.3'), IntervalChange(990.0, 1, (0,)))
    before = draft(campaign={'in_flight': flights, 'stalls': Stalls(changes)},
                   up={'1.1': THERE}, acting={'2.3': (0, NO_OSD, 2)}, temp=['1.1'], without=['1.2'])
    assert sorted(recovering_own_pgs(before)) == [
        OwnPg(1, frozenset(HERE)), OwnPg(2, frozenset({0, 2}))]


@pytest.mark.parametrize('code, osds, move, expected', [
    (Code.SLOW_OPS, {0}, MOVE, True), (Code.SLOW_OPS, {3}, MOVE, True),
    (Code.SLOW_OPS, {4}, MOVE, False), (Code.SLOW_OPS, {1}, MOVE._replace(primary=1), True),
    (Code.SLOW_OPS, {4}, MOVE._replace(readers=(4,)), True),
    (Code.SLOW_OPS, {4}, MOVE._replace(staying=(4,)), False),
    (Code.OSD_LATENCY, {4}, MOVE._replace(staying=(4,)), True),
    (Code.OSD_LATENCY, {5}, MOVE._replace(staying=(4,)), False),
    # PGs may leave an OSD on the same drive.
    (Code.SAME_DRIVE, {0}, MOVE, False), (Code.SAME_DRIVE, {3}, MOVE, True),
    (Code.SAME_DRIVE, {4}, MOVE._replace(targets_known=False), True)])
def test_a_stop_condition_concerns_a_move(code: str, osds: Any, move: Move, expected: bool) -> None:
    stop = Stop(Reason(code, ''), frozenset(osds))
    assert concerns(stop, move) == expected
    assert releasing.is_stopped([stop], move) == expected and not releasing.is_stopped([], move)


def test_a_stop_condition_of_a_pool_or_of_everything_concerns_a_move() -> None:
    assert concerns(Stop(Reason(Code.SLOW_OPS, '')), MOVE)
    assert releasing.is_stopped([SLOW, Stop(Reason(Code.UPGRADE, ''))], MOVE)
    of_pool = Stop(Reason(Code.SLOW_POOL, ''), frozenset(), frozenset({1}))
    assert concerns(of_pool, MOVE) and not concerns(replace(of_pool, pools=frozenset({2})), MOVE)


def test_conditions_of_all_releases_stop_all_movement() -> None:
    stops = [SLOW, Stop(Reason(Code.SLOW_OPS, ''), frozenset({3}))]
    free = Move('1.1', (1,), (5,), 1, 1)
    assert codes(stopped_moves(draft(moves={PG: MOVE}), {}, stops)) == [
        Code.OSD_LATENCY, Code.SLOW_OPS]
    both = draft(moves={PG: MOVE, '1.1': free})
    assert stopped_moves(both, {}, stops) == [] == stopped_moves(draft(), {}, stops)
    assert stopped_moves(draft(moves={PG: MOVE}), {}, []) == []
    # A PG that only norebalance stops.
    assert codes(stopped_moves(both, {'1.2': MOVE}, stops)) == [Code.SLOW_OPS]
    assert stopped_moves(both, {'1.2': free}, stops) == []


# ---- PGs that cannot be pinned

WHY = Unpinnable('')


@pytest.mark.parametrize('why, changes, cluster, loose', [
    (WHY, {}, {}, True), (DEGRADED, {}, {}, False), (WHY, {}, {'temp': []}, False),
    (WHY, {'in_flight': {PG: FLIGHT}}, {}, False), (WHY, {}, {'without': [PG]}, False),
    (WHY, {}, {'without': ['pool 1'], 'temp': [PG]}, False), (WHY, {}, {'up': {PG: (1, 2)}}, False),
    (INCOMPLETE, {}, {'up': {PG: (1, 0, 2)}}, False)])
def test_pgs_that_only_norebalance_stops(why: Unpinnable, changes: Dict[str, Any],
                                         cluster: Dict[str, Any], loose: bool) -> None:
    signals = Signals(PgCounts(), pool_bytes={1: 800})
    cluster = {'up': {PG: THERE}, 'signals': signals, **cluster}
    before = draft(campaign={'unpinnable': {PG: why}, **changes}, **cluster)
    moves = loose_moves(before)
    assert moves == ({PG: Move(PG, (0,), (3,), 0, 100, True, staying=(1, 2), here=HERE,
                               leaders=(0, 0, 3))} if loose else {})


def test_loose_moves_of_a_pool_whose_size_is_not_known() -> None:
    before = draft(campaign={'unpinnable': {PG: WHY}}, up={PG: THERE}, pools={
        1: replace(POOLS[1], pg_num=1)})
    assert loose_moves(before)[PG].bytes == 0


def test_loose_pgs_count_as_in_flight_once_they_may_move() -> None:
    before = draft(campaign={'in_flight': {'1.1': FLIGHT}, 'accepted_unpinnable': 2},
                   entries={PG: OTHER})
    after = adopt_unpinnable(before, {PG: MOVE}).campaign
    assert after.flights.in_flight == {'1.1': FLIGHT, PG: Flight(
        NOW, OTHER, confirmed=NOW, seen_remapped=True, sources=(0,), targets=(3,), primary=0,
        bytes=100)}
    assert after.orders.accepted_unpinnable == 0 and adopt_unpinnable(before, {}) is before


# ---- goals that are outdated

MOVES = BalanceChange()


def stale(pins: Mapping[str, PinRecord], **changes: Any) -> Draft:
    mark = GoalsMark(1, Basis('x', {1: 'a'}))
    return draft(pins, {'change': MOVES, 'goals': mark, 'trigger': 'balance', **changes})


def test_outdated_goals_are_dropped() -> None:
    free = PinRecord(NO_ENTRY, NO_ENTRY, goal=OTHER)
    pins = {'1.0': GOAL, '1.1': free, '1.2': PIN, '1.3': GOAL, '1.4': free}
    after = drop_goals_planned_once(stale(pins, in_flight={'1.3': FLIGHT, '1.4': FLIGHT}))
    assert after.new_pins == {'1.0': PIN} and after.unpins == {'1.1'}
    event, = after.events
    assert (event.what.split(':')[0], event.why) == ('2 PGs are not moved', 'run "balance" again')


@pytest.mark.parametrize('pins, changes', [
    ({PG: GOAL}, {'change': None}), ({PG: GOAL}, {'change': WeightChange()}),
    ({PG: GOAL}, {'goals': GoalsMark(1)}), ({PG: PIN}, {}), ({}, {}),
    ({PG: GOAL}, {'in_flight': {PG: FLIGHT}}),
    ({PG: GOAL}, {'goals': GoalsMark(1, basis(draft().observed.osdmap, CRUSH, [1]))})])
def test_goals_that_are_valid_or_of_others_are_kept(pins: Dict[str, PinRecord],
                                                    changes: Dict[str, Any]) -> None:
    before = stale(pins, **changes)
    assert drop_goals_planned_once(before) is before


def test_outdated_goals_of_new_pins_are_dropped_as_well() -> None:
    before = stale({'1.1': GOAL}).note_pins({PG: GOAL}).forget_pins(['1.1'])
    after = drop_goals_planned_once(before)
    assert after.new_pins == {PG: PIN} and after.unpins == {'1.1'}


# ---- pins that stay as upmaps

STAYER = replace(PIN, goal=PINNED)
MARK = GoalsMark(2)


@pytest.mark.parametrize('pins, changes, cluster, kept', [
    ({PG: STAYER, '1.1': STAYER, '1.2': PIN}, {}, {}, 2), ({PG: PIN}, {}, {}, 0),
    ({PG: STAYER}, {'in_flight': {PG: FLIGHT}}, {}, 0),
    ({PG: STAYER}, {'kept_mark': MARK}, {'new_map': False}, 0)])
def test_pins_at_their_goal_become_upmaps(pins: Dict[str, PinRecord], changes: Dict[str, Any],
                                          cluster: Dict[str, Any], kept: int) -> None:
    before = draft(pins, {'goals': MARK, 'kept': 3, **changes}, **cluster)
    after = keep_stayers(before)
    assert after.campaign.progress.kept == 3 + kept
    assert len(after.unpins) == kept and (after is before) == (not kept)
    if kept:
        assert after.campaign.pinning.kept_mark == MARK
        assert [event.what for event in after.events] == ['2 pins kept as ordinary upmaps']


@pytest.mark.parametrize('target, why', [
    ('balanced', 'the balance requires them'), ('crush', 'a later tranche')])
def test_why_pins_stay(target: str, why: str) -> None:
    event, = keep_stayers(draft({PG: STAYER}, {'goals': MARK, 'target': target})).events
    assert why in event.why


def test_pins_are_kept_once() -> None:
    # A crash has restored their records.
    before = draft({PG: STAYER}, {'goals': MARK, 'kept_mark': MARK, 'kept': 3})
    after = keep_stayers(before)
    assert after.unpins == {PG} and after.campaign.progress.kept == 3
    assert keep_stayers(before.forget_pins([PG])) == before.forget_pins([PG])
    # All of them: there is no mark.
    ended = keep(draft({PG: PIN, '1.1': PIN}), [PG], None).campaign
    assert (ended.progress.kept, ended.pinning.kept_mark) == (1, None)


def test_a_rollback_restores_the_upmaps_of_pgs_that_stay() -> None:
    pins = {PG: STAYER, '1.1': replace(STAYER, was=PINNED)}
    after = keep_stayers(draft(pins, {'goals': MARK, 'change': WeightChange()}))
    assert after.campaign.ahead == {PG: Led(NO_ENTRY, PINNED)}


# ---- which PGs are released

PINS = {'1.%x' % seed: PIN for seed in range(6)}
MOVES_OF = {pgid: MOVE._replace(pgid=pgid) for pgid in PINS}
RELAXED = replace(OPTIONS, max_pgs_in_flight=4, max_backfills_target=10, max_backfills_source=10,
                  max_backfills_primary=10, max_backfills_host=10)


def released(campaign: Dict[str, Any] = {}, pins: Mapping[str, PinRecord] = PINS,
             moves: Mapping[str, Move] = MOVES_OF, stops: Tuple[Stop, ...] = (),
             options: Any = RELAXED, **cluster: Any) -> Draft:
    campaign = {'pace': Pace(pgs=4.0, code=Code.LATENCY_OK), 'refused_crush': 0, **campaign}
    before = replace(draft(pins, campaign, moves=moves, options=options, **cluster), stops=stops)
    return release_more(before)


def new_flights(after: Draft) -> Dict[str, Flight]:
    return {pgid: flight for pgid, flight in after.campaign.flights.in_flight.items()
            if flight.since == NOW}


def test_releases_fill_the_limit_of_pgs_in_flight() -> None:
    after = released()
    flights = new_flights(after)
    assert len(flights) == 4 == len(after.actions)
    flight = flights[sorted(flights)[0]]
    assert flight == Flight(NOW, NO_ENTRY, sources=(0,), targets=(3,), primary=0, bytes=100,
                            pin=PIN, primed=10)
    assert set(after.actions) == {SetEntry(pgid, NO_ENTRY, PINNED, prime=HERE)
                                  for pgid in flights}
    assert after.campaign.progress.progressed == NOW == after.campaign.stalls.released
    assert [(change.time, change.pool, change.primaries, change.pgid)
            for change in after.campaign.stalls.changes] == [
        (NOW, 1, (0,), pgid) for pgid in flights]
    assert events_of(after) == [('release', 'releasing 4 PGs')]
    assert 'at most 4 of 4 PGs may be in flight' in after.events[0].why
    assert codes(after.reasons) == [Code.LATENCY_OK, Code.FAST_PEERING]


OLD = {'2.%x' % seed: replace(FLIGHT, confirmed=900.0, seen_remapped=True) for seed in range(8)}


@pytest.mark.parametrize('number, expected', [(3, 1), (4, 0), (5, 0)])
def test_pgs_in_flight_count_for_the_limit(number: int, expected: int) -> None:
    flights = dict(list(OLD.items())[:number])
    after = released({'in_flight': flights})
    assert len(new_flights(after)) == expected
    assert codes(after.reasons) == [Code.LATENCY_OK, Code.FAST_PEERING]


def test_nothing_is_left_to_be_released() -> None:
    after = released(moves={})
    assert not after.actions and codes(after.reasons) == [Code.LATENCY_OK, Code.FAST_PEERING]


@pytest.mark.parametrize('in_transition, expected', [(0, 4), (6, 2), (7, 1), (8, 0), (9, 0)])
def test_no_more_pgs_are_released_than_may_peer(in_transition: int, expected: int) -> None:
    signals = Signals(PgCounts(total=16, in_transition=in_transition), {1: PgCounts()})
    after = released({'stalls': Stalls(released=900.0)}, signals=signals)
    assert len(new_flights(after)) == expected
    if not expected:
        assert after.reasons[-1].text.startswith('%d PGs are peering' % in_transition)
        assert 'fewer than 8 are' in after.reasons[-1].text
    assert (Code.PEERING in codes(after.reasons)) == (not expected)


@pytest.mark.parametrize('credits, expected, reached', [
    ({}, 4, False), ({1: 2.5}, 2, True), ({1: 1.0}, 1, True), ({1: 0.9}, 0, True),
    ({1: 9.0}, 4, False)])
def test_the_budget_of_stalls(credits: Dict[int, float], expected: int, reached: bool) -> None:
    after = released({'stalls': Stalls(credits=credits, released=900.0)})
    assert len(new_flights(after)) == expected
    assert (Code.STALL_RATIO in codes(after.reasons)) == (reached and not expected)
    if 1 in credits and expected:
        assert after.campaign.stalls.credits[1] == pytest.approx(credits[1] - expected)


def test_pools_without_budget_wait_for_theirs() -> None:
    pins = {PG: PIN, '2.0': PIN}
    moves = {pgid: MOVE._replace(pgid=pgid) for pgid in pins}
    stalls = Stalls(credits={1: 0.5}, released=900.0)
    assert set(new_flights(released({'stalls': stalls}, pins, moves))) == {'2.0'}
    # It waits for more PGs, which the budget prevents.
    soon = replace(stalls, released=999.0)
    pins.update({'2.%x' % seed: PIN for seed in range(1, 4)})
    after = released({'stalls': soon}, pins, moves)
    assert not new_flights(after) and codes(after.reasons)[-1] == Code.STALL_RATIO


def test_pgs_beyond_the_budget_make_a_batch_wait() -> None:
    after = released({'stalls': Stalls(credits={1: 1.5}, released=999.0)})
    assert not new_flights(after)
    assert after.reasons[-1].code == Code.STALL_RATIO
    assert 'at most %g %% of' % (100 * OPTIONS.stall_ratio) in after.reasons[-1].text


def test_a_batch_waits_for_further_pgs() -> None:
    one = {PG: MOVE}
    flights = {'2.0': OLD['2.0']}
    soon = {'in_flight': flights, 'stalls': Stalls(released=999.0)}
    after = released(soon, moves=one)
    assert not new_flights(after) and codes(after.reasons)[-1] == Code.BATCH
    assert 'waiting up to 5 s' in after.reasons[-1].text
    assert new_flights(released({**soon, 'in_flight': {}}, moves=one))


@pytest.mark.parametrize('entry, broken', [
    (UpmapEntry(((3, 5),)), True), (UpmapEntry(((3, 4),)), False), (NO_ENTRY, False)])
def test_no_release_leads_against_the_rule(entry: UpmapEntry, broken: bool) -> None:
    """osd.5 is on the host of osd.1 now."""
    crush = crush_of(dict.fromkeys(OSDS, 1.0), hosts=4)
    pins = {PG: replace(PIN, goal=entry)}
    after = released({'change': MOVES}, pins, {PG: MOVE}, crush=crush)
    assert bool(new_flights(after)) == (not broken) == (not after.unpins)
    if broken:
        assert events_of(after) == [('plan', '1 PG is not moved: 1.0')]
    assert new_flights(released({'change': WeightChange()}, pins, {PG: MOVE}, crush=crush))


def test_a_rule_is_broken_by_upmaps_alone() -> None:
    crush = crush_of(dict.fromkeys(OSDS, 1.0), hosts=4)
    campaign = {'change': MOVES}

    def breaks(pin: PinRecord, **more: Any) -> bool:
        return _breaks_rule(draft({PG: pin}, campaign, crush=crush, **more), PG)

    assert breaks(GOAL) and not breaks(GOAL, without=[PG])
    assert not breaks(GOAL, without=['pool 1'])
    # What CRUSH chooses is lawful; the new set is not known.
    assert not breaks(replace(PIN, goal=NO_ENTRY), up={PG: (0, 1, 5)})
    assert not breaks(replace(GOAL, entry=UpmapEntry(vector=HERE)))
    assert breaks(replace(GOAL, entry=UpmapEntry(vector=HERE), raw=THERE))
    assert not _breaks_rule(draft({}, campaign, crush=crush), PG)


# ---- candidates

@pytest.mark.parametrize('changes, cluster, move, expected', [
    ({}, {}, MOVE, True), ({'in_flight': {PG: FLIGHT}}, {}, MOVE, False),
    ({'sent': {PG: Sent(NOW)}}, {}, MOVE, False), ({}, {'temp': [PG]}, MOVE, False),
    ({}, {'pins': {}}, MOVE, False), ({}, {'without': [3]}, MOVE, False),
    ({}, {'osds': {3: replace(OSDS[3], up=False)}}, MOVE, False),
    ({}, {'osds': {0: replace(OSDS[0], up=False)}}, MOVE, True),
    ({}, {}, MOVE._replace(targets=(5,)), False), ({}, {}, MOVE._replace(targets=(4, 5)), False),
    ({}, {}, MOVE._replace(targets_known=False, targets=()), True),
    ({'in_flight': {'1.1': FLIGHT}}, {}, MOVE._replace(targets_known=False, targets=()), False),
    ({'in_flight': {'1.1': FLIGHT}}, {}, MOVE, True)])
def test_a_pin_that_can_be_released(changes: Dict[str, Any], cluster: Dict[str, Any], move: Move,
                                    expected: bool) -> None:
    cluster = {'pins': {PG: PIN}, **cluster}
    before = draft(campaign=changes, **cluster)
    assert _releasable(before, move, frozenset({5})) == expected


@pytest.mark.parametrize('displaced, in_transition, expected', [
    (0.0, 0, True), (1000.5, 1, True), (990.0, 0, False), (989.5, 0, True), (989.5, 1, False),
    (1000.0, 0, False)])
def test_pgs_whose_osds_may_have_changed_wait_until_they_have_peered(
        displaced: float, in_transition: int, expected: bool) -> None:
    before = draft(signals=Signals(PgCounts(total=16, in_transition=in_transition)))
    moves = [MOVE, MOVE._replace(pgid='1.1', displaced=displaced)]
    found = _without_displaced(before, moves)
    assert found.moves == (moves if expected else moves[:1])
    assert found.reasons == (() if expected else (Reason(
        Code.PEERING, 'waiting for 1 PG, whose OSDs may have changed, to peer'),))


def test_stop_conditions_of_some_osds_leave_the_others() -> None:
    moves = {**MOVES_OF, '1.0': MOVE._replace(targets=(4,)),
             '1.1': MOVES_OF['1.1']._replace(staying=(4,))}
    after = released(moves=moves, stops=(SLOW,), options=replace(RELAXED, max_pgs_in_flight=8),
                     campaign={'pace': Pace(pgs=8.0, code=Code.LATENCY_OK)})
    assert set(new_flights(after)) == set(PINS) - {'1.0', '1.1'}
    assert after.reasons[1] == Reason(
        Code.OSD_LATENCY, 'slow; releases that do not affect these continue')


def test_what_relieves_a_nearly_full_osd_is_released_first() -> None:
    moves = {**MOVES_OF, '1.5': MOVES_OF['1.5']._replace(sources=(6,), moves_primary=True)}
    osds = {6: replace(OSDS[6], fullness='nearfull')}
    options = replace(RELAXED, max_pgs_in_flight=1)
    pace = {'pace': Pace(pgs=1.0)}
    assert set(new_flights(released(pace, moves=moves, osds=osds, options=options))) == {'1.5'}
    assert set(new_flights(released(pace, moves=moves, options=options))) != {'1.5'}


LACKING: Dict[str, Any] = {'degraded_osds': frozenset(HERE)}
TOOFULL = PgCounts(total=9, degraded=1, degraded_toofull=1)


@pytest.mark.parametrize('cluster, waived, waits', [
    ({}, False, False), ({}, True, False), (LACKING, True, True),
    (LACKING, False, False),
    ({'degraded_osds': frozenset({0, 1})}, True, False),
    ({**LACKING, 'osd_counts': {1: TOOFULL}}, True, False),
    # The PG that is inactive may lack copies: the state of a PG whose primary is down is unknown.
    ({**LACKING, 'osd_counts': {1: replace(TOOFULL, inactive=1)}}, True, True),
    ({'osds': DOWN, 'acting': {PG: (0, 1)}}, False, True),
    ({'osds': DOWN, 'acting': {PG: (0, 1, NO_OSD)}}, False, True),
    ({'acting': {PG: (0, 1)}}, False, False), ({'osds': DOWN}, False, False),
    ({'osds': DOWN, 'acting': {PG: (0, 1)}, 'without': [PG]}, False, False),
    ({'osds': DOWN, 'acting': {PG: (0, 1)}, 'without': ['pool 1']}, False, False)])
def test_pgs_that_wait_for_recovery(cluster: Dict[str, Any], waived: bool, waits: bool) -> None:
    assert waits_for_recovery(draft(**cluster), PG, waived) == waits


@pytest.mark.parametrize('acknowledged, muted, expected', [
    ((), (), False), ((Code.DEGRADED,), (), True), ((), ('PG_DEGRADED',), True),
    ((Code.LAGGY,), ('OSD_DOWN',), False)])
def test_degraded_pgs_are_no_stop_condition(acknowledged: Tuple[str, ...], muted: Tuple[str, ...],
                                            expected: bool) -> None:
    before = draft(campaign={'acknowledged': acknowledged},
                   signals=Signals(PgCounts(), muted=frozenset(muted)))
    assert ignores_degraded(before) == expected


def test_degraded_pgs_are_not_released() -> None:
    after = released({'acknowledged': (Code.DEGRADED,)}, degraded_osds=frozenset(HERE),
                     acting={'1.3': (5, 1, 2)}, up={'1.3': (5, 1, 2)})
    assert set(new_flights(after)) == {'1.3'} and Code.DEGRADED in codes(after.reasons)
    assert Code.DEGRADED not in codes(released().reasons)


def test_reasons_for_the_speed() -> None:
    campaign = {'holds': Holds(refused=frozenset({'osd/b', 'a'}))}
    assert codes(released(campaign).reasons)[2:] == [Code.COMMAND_FAILED] * 2
    assert Code.PACED not in codes(released().reasons)


# ---- full OSDs, and OSDs with too many PGs

@pytest.mark.parametrize('cluster, osds, reasons', [
    ({}, set(), []), ({'osds': {4: replace(OSDS[4], fullness='full')}}, {4}, []),
    ({'osds': {3: replace(OSDS[3], fullness='full')}}, {3}, [Code.TARGET_FULL]),
    ({'osds': {3: replace(OSDS[3], up=False)}}, set(), [Code.TARGET_DOWN]),
    ({'without': [3]}, set(), [Code.TARGET_DOWN]),
    ({'signals': Signals(PgCounts(backfill_toofull=1))}, {6}, [Code.BACKFILL_TOOFULL])])
def test_osds_that_receive_no_data(cluster: Dict[str, Any], osds: Collection[int],
                                   reasons: List[str]) -> None:
    campaign = {'in_flight': {'2.0': replace(FLIGHT, targets=(6,))}}
    found = full_osds(draft({PG: PIN}, campaign, moves={PG: MOVE}, **cluster))
    assert found.osds == osds and codes(found.reasons) == reasons


@pytest.mark.parametrize('pg_counts, expected', [(10, 2), (11, 1), (12, 0), (13, 0)])
def test_no_osd_gets_more_pgs_than_allowed(pg_counts: int, expected: int) -> None:
    after = released(pg_limit=12, held_pgs=HeldPgs(NOW, dict.fromkeys(OSDS, pg_counts)),
                     campaign={'stalls': Stalls(released=900.0)})
    assert len(new_flights(after)) == expected
    # Also after the releases of this turn, no further one fits.
    assert Code.PG_LIMIT in codes(after.reasons)
    assert 'osd.3;' in str([reason.text for reason in after.reasons])


LIMITS = replace(caps(RELAXED), pgs=4)


def test_moves_with_unknown_targets_go_alone() -> None:
    before = draft(PINS)
    unknown = [move._replace(targets_known=False, targets=()) for move in MOVES_OF.values()]
    found = _chosen(before, unknown, present_load(before, LIMITS), LIMITS)
    assert len(found.moves) == 1 and not found.reasons
    both = [unknown[0], *list(MOVES_OF.values())[1:3]]
    found = _chosen(before, both, present_load(before, LIMITS), LIMITS)
    assert {move.pgid for move in found.moves} == {'1.1', '1.2'}


def test_osds_that_are_not_reached_are_not_crowded() -> None:
    before = draft(PINS)
    limits = replace(LIMITS, pgs=1, receives={3: 9, 4: 1})
    moves = [MOVE, MOVES_OF['1.1']._replace(targets=(4,))]
    assert not _chosen(before, moves, present_load(before, limits), limits).reasons
    limits = replace(limits, receives={3: 1, 4: 1})
    assert codes(_chosen(before, moves, present_load(before, limits), limits).reasons) == [
        Code.PG_LIMIT]


def test_pgs_that_an_osd_deletes_are_part_of_the_load() -> None:
    assert present_load(draft(PINS), LIMITS).source.get(5, 0) == 0
    assert present_load(draft(PINS, deleting={5: 3}), LIMITS).source[5] == 3


@pytest.mark.parametrize('deleting, text', [({}, '*)'), ({0: 1}, '; PGs that 1 OSD is still')])
def test_releases_wait_while_all_paths_are_at_their_caps(deleting: Dict[int, int],
                                                         text: str) -> None:
    options = replace(RELAXED, max_backfills_target=1)
    after = released({'in_flight': {'2.0': OLD['2.0']}}, options=options, deleting=deleting)
    assert not new_flights(after)
    reason = after.reasons[-1]
    assert reason.code == Code.CAP_BACKFILLS and text in reason.text


# ---- batches

@pytest.mark.parametrize('number, changes, cluster, limit, stalled, expected', [
    # Half of what may be in flight, or what is left, or what a batch has.
    (4, {}, {}, 8, True, True), (3, {}, {}, 8, True, False), (4, {}, {}, 7, True, True),
    (3, {}, {}, 7, True, False), (2, {}, {'pins': 2}, 8, True, True),
    (1, {}, {'pins': 2}, 8, True, False), (8, {}, {'pins': 99}, 99, True, True),
    (7, {}, {'pins': 99}, 99, True, False),
    # PGs in flight with a pin are released already; those of others are not.
    (2, {'in_flight': {'1.0': FLIGHT}}, {'pins': 3}, 8, True, True),
    (1, {'in_flight': {'1.0': FLIGHT}}, {'pins': 3}, 8, True, False),
    (2, {'in_flight': {'1.0': replace(FLIGHT, pin=None)}}, {'pins': 3}, 8, True, False),
    # Those with a stop condition may arrive late.
    (3, {'in_flight': {'1.9': replace(FLIGHT, targets=(4,), pin=None)}}, {}, 7, True, True),
    (3, {'in_flight': {'1.9': replace(FLIGHT, targets=(4,), pin=None)}}, {}, 8, True, False),
    (3, {'in_flight': {'1.9': replace(FLIGHT, pin=None)}}, {}, 7, True, False),
    # Long enough since the last one.
    (1, {'stalls': Stalls(released=995.0)}, {}, 8, True, True),
    (1, {'stalls': Stalls(released=995.5)}, {}, 8, True, False),
    # There is nothing to wait for.
    (1, {}, {}, 8, False, True), (1, {'in_flight': {'1.0': FLIGHT}}, {}, 8, False, False),
    (1, {'pace': Pace(code=Code.NO_CLIENTS)}, {}, 8, True, True),
    (1, {'pace': Pace(code=Code.NO_CLIENTS)}, {'commit_seconds': 2.0}, 8, True, False),
    (1, {}, {'commit_seconds': 2.0}, 8, False, False),
    # Slow mons need the largest batches.
    (7, {}, {'commit_seconds': 2.0}, 8, True, False), (8, {}, {'commit_seconds': 2.0}, 8, True,
                                                       True),
    (4, {}, {'commit_seconds': 1.0}, 8, True, True),
    (1, {'stalls': Stalls(released=990.0)}, {'commit_seconds': 2.0}, 8, True, True),
    (1, {'stalls': Stalls(released=990.5)}, {'commit_seconds': 2.0}, 8, True, False)])
def test_a_batch_is_large_enough(number: int, changes: Dict[str, Any], cluster: Dict[str, Any],
                                 limit: int, stalled: bool, expected: bool) -> None:
    cluster = dict(cluster)
    pins = {'1.%x' % seed: PIN for seed in range(cluster.pop('pins', 20))}
    changes = {'stalls': Stalls(released=999.5), **changes}
    before = replace(draft(pins, changes, **cluster), stops=(SLOW,))
    assert _is_batch(before, number, limit, stalled) == expected


# ---- pg_temp

OPTIMIZED = {2: replace(POOLS[2], flags=frozenset({EC_OPTIMIZATIONS}))}
LAZY = {3: replace(OSDS[3], primary_affinity=0.5)}


@pytest.mark.parametrize('pgid, changes, pin, cluster, expected', [
    (PG, {}, PIN, {}, HERE), ('2.0', {}, PIN, {}, HERE),
    ('2.0', {}, PIN, {'pools': OPTIMIZED}, ()),
    (PG, {'targets': ()}, PIN, {}, ()), (PG, {}, PIN, {'without': [PG]}, ()),
    (PG, {}, PIN, {'without': ['pool 1']}, ()), (PG, {}, PIN, {'up': {PG: THERE}}, ()),
    (PG, {}, PIN, {'osds': LAZY}, HERE),
    # The new set is not known.
    (PG, {}, replace(PIN, entry=UpmapEntry(vector=HERE)), {}, HERE),
    # The new primary has the data already.
    (PG, {}, replace(PIN, goal=UpmapEntry(((1, 4), (3, 1)))), {}, (1, 2, 0)),
    (PG, {}, replace(PIN, entry=UpmapEntry(((3, 2),)), before=UpmapEntry(((3, 4),))),
     {'up': {PG: (1, 0, 2)}, 'acting': {PG: (1, 0, 2)}}, (1, 0, 2))])
def test_the_acting_set_that_goes_with_a_release(
        pgid: str, changes: Dict[str, Any], pin: PinRecord, cluster: Dict[str, Any],
        expected: OsdSet) -> None:
    move = MOVE._replace(pgid=pgid, **changes)
    assert _prime(draft({pgid: pin}, **cluster), move, pin) == expected


def test_a_named_primary_leads_the_acting_set() -> None:
    before = draft({PG: PIN})
    osdmap = replace(before.observed.osdmap, upmap_primaries={PG: 2})
    named = replace(before, observed=replace(before.observed, settings=replace(
        before.observed.settings, osdmap=osdmap)))
    assert _prime(named, MOVE, PIN) == (2, 1, 0)
    assert _primed_epoch(named, PG, HERE) == 0


@pytest.mark.parametrize('prime, cluster, epoch', [
    (HERE, {}, 10), ((), {}, 0), ((0, NO_OSD, 2), {}, 0),
    (HERE, {'osds': {2: replace(OSDS[2], primary_affinity=0.5)}}, 0), (HERE, {'osds': LAZY}, 10),
    (HERE, {'without': [2]}, 10)])
def test_the_epoch_of_a_release_with_its_acting_set(prime: OsdSet, cluster: Dict[str, Any],
                                                    epoch: int) -> None:
    assert _primed_epoch(draft(**cluster), PG, prime) == epoch


def test_a_release_without_its_acting_set_has_two_intervals() -> None:
    pins = {'2.0': PIN}
    moves = {'2.0': MOVE._replace(pgid='2.0')}
    stalls = Stalls(credits={2: 3.0})
    after = released({'stalls': stalls}, pins, moves, pools=OPTIMIZED)
    assert len(after.campaign.stalls.changes) == 2
    assert after.campaign.stalls.credits == {2: 1.5}
    assert after.campaign.flights.in_flight['2.0'].primed == 0
    primed = released({'stalls': stalls}, pins, moves)
    assert len(primed.campaign.stalls.changes) == 1
    assert primed.campaign.stalls.credits == {2: 2.0}


@pytest.mark.parametrize('changes, expected', [
    ({'leaders': (1, 2)}, (0,)), ({'leaders': (1, 2, 3), 'moves_primary': True}, (1, 2, 3)),
    ({'leaders': (1,), 'moves_primary': True}, (1, 3))])
def test_osds_that_may_lead_a_pg_while_it_peers(changes: Dict[str, Any], expected: OsdSet) -> None:
    assert _peering(MOVE._replace(**changes)) == expected
