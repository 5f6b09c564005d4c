# SPDX-License-Identifier: LGPL-2.1-or-later
"""The goals of the PGs of single pools, and their end state in a preview."""
from dataclasses import replace
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import pytest

from perfguard.cluster.ports import Future, FuturePg
from perfguard.cluster.types import (NO_ENTRY, NO_OSD, Balancing, OsdSet, PgCounts, PoolRule,
                                     Signals, Space, UpmapEntry, pool_of)
from perfguard.rebalance import goals as goals_file
from perfguard.rebalance.campaign import NO_CAMPAIGN, Basis, GoalsMark
from perfguard.rebalance.change import Led, Planned
from perfguard.rebalance.goals import (NO_TRANCHES, Balanced, Goals, Ground, Tranches,
                                       moves_for_balance, pools_of, preview_balance, without_goals,
                                       work_out)
from perfguard.rebalance.moves import Move
from perfguard.rebalance.pool_rule import RuleChange
from perfguard.rebalance.types import Bounds, Flight, Phase, PinRecord
from perfguard.rebalance.weights import WeightChange
from perfguard.upmap.balance import Balance, PlacedPg
from perfguard.upmap.pins import Unpinnable
from perfguard.upmap.shares import PoolRoom, Targets

from ..fakes.campaigns import campaign_of
from ..fakes.drafts import (CRUSH, HERE, NOW, OSDS, PIN, PINNED, POOLS, THERE, draft_of)
from .test_orders import crush as crush_of

PG = '1.0'
OTHER = UpmapEntry(((3, 5),))
#: A PG that only moves for the balance.
FREE = PinRecord(NO_ENTRY, NO_ENTRY, goal=OTHER)
FLIGHT = Flight(NOW, NO_ENTRY)
BOUNDS = Bounds(1.5, 0.5)


class Asked(NamedTuple):
    """What the balancer was asked."""
    pool: int
    pgs: Dict[str, PlacedPg]
    crush: Any
    budget: Optional[int]
    deviation: float
    room: PoolRoom


class Balancer:
    """In place of the balancer: what it answers, and what it was asked."""

    def __init__(self, finals: Mapping[str, OsdSet] = {}, ideal: Mapping[int, float] = {},
                 before: Mapping[int, int] = {}, after: Mapping[int, int] = {}) -> None:
        self.finals, self.ideal, self.before, self.after = finals, ideal, before, after
        self.asked: List[Asked] = []

    def __call__(self, pool: Any, pgs: Sequence[PlacedPg], crush: Any, osds: Any, budget: Any,
                 deviation: float, room: PoolRoom) -> Balance:
        self.asked.append(Asked(pool.id, {pg.pgid: pg for pg in pgs}, crush, budget, deviation,
                                room))
        return Balance({pgid: final for pgid, final in self.finals.items()
                        if pool_of(pgid) == pool.id}, Targets(self.ideal, {}, {}), self.before,
                       self.after)


@pytest.fixture
def balancer(monkeypatch: pytest.MonkeyPatch) -> Balancer:
    found = Balancer()
    monkeypatch.setattr(goals_file, 'balance', found)
    return found


def goals(pins: Mapping[str, PinRecord], *, target: str = 'balanced',
          campaign: Dict[str, Any] = {}, ups: Mapping[str, OsdSet] = {},
          tranches: Tranches = NO_TRANCHES, space: Mapping[int, Space] = {},
          absent: Sequence[int] = (), **cluster: Any) -> Goals:
    """Of a campaign whose pins are in force. `ups`: PGs that are not on HERE."""
    entries = {pgid: pin.entry for pgid, pin in pins.items()}
    entries.update(cluster.pop('entries', {}))
    up = {**dict.fromkeys(pins, HERE), **ups}
    owner = campaign_of(1, Phase.PINNED, 900.0, target=target, **campaign)
    seen = draft_of(owner, pins, entries=entries, up=up, acting=cluster.pop('acting', up),
                    **cluster).observed
    on = Ground(owner, pins, Basis('x', {1: 'a'}), {}, {})
    return work_out(on, seen, lambda pool: {
        pgid: osds for pgid, osds in up.items() if pool_of(pgid) == pool}, BOUNDS, space, absent,
        tranches)


def goal_of(pins: Mapping[str, PinRecord], pgid: str = PG, **more: Any) -> Optional[UpmapEntry]:
    found = goals(pins, **more).records.get(pgid, pins.get(pgid))
    return None if found is None else found.goal


# ---- which pools are balanced

@pytest.mark.parametrize('changes, pin, expected', [
    ({}, PIN, NO_ENTRY), ({'campaign': {'in_flight': {PG: FLIGHT}}}, PIN, None),
    ({'temp': [PG]}, PIN, None), ({}, FREE, OTHER), ({}, replace(PIN, before=OTHER), OTHER),
    ({}, replace(PIN, goal=OTHER), NO_ENTRY)])
@pytest.mark.parametrize('unbalanced', [
    {'target': 'crush'}, {'balancing': Balancing(upmap=False)},
    {'pools': {1: replace(POOLS[1], pg_num_target=4)}}])
def test_pgs_end_where_crush_places_them(
        balancer: Balancer, changes: Dict[str, Any], pin: PinRecord,
        expected: Optional[UpmapEntry], unbalanced: Dict[str, Any]) -> None:
    assert goal_of({PG: pin, '2.0': PIN}, **unbalanced, **changes) == expected
    assert 1 not in {asked.pool for asked in balancer.asked}


def test_each_pool_is_balanced_or_not(balancer: Balancer) -> None:
    balancer.finals = {PG: THERE, '2.0': THERE}
    found = goals({PG: PIN, '2.0': PIN}, balancing=Balancing(pools=frozenset({1})))
    assert [asked.pool for asked in balancer.asked] == [1] == list(found.balances)
    assert {pgid: pin.goal for pgid, pin in found.records.items()} == {
        PG: NO_ENTRY, '2.0': NO_ENTRY}
    both = goals({PG: PIN, '2.0': PIN})
    assert list(both.balances) == [1, 2]


def test_new_goals_have_a_mark(balancer: Balancer) -> None:
    pins = {PG: PIN, '1.1': replace(PIN, goal=PINNED)}
    found = goals(pins, campaign={'goals': GoalsMark(4)}, absent=(7, 5))
    assert found.mark == GoalsMark(5, Basis('x', {1: 'a'}, frozenset({5, 7})))
    # The record that has its goal already is not new.
    assert found.records == {PG: replace(PIN, goal=PINNED)}


@pytest.mark.parametrize('pins, changes, dropped', [
    ({PG: FREE}, {}, {PG}), ({PG: FREE}, {'campaign': {'in_flight': {PG: FLIGHT}}}, set()),
    ({PG: PIN}, {'temp': [PG]}, set()), ({PG: PIN, '1.1': FREE}, {}, {'1.1'}),
    ({PG: FREE}, {'target': 'crush'}, {PG})])
def test_pins_for_a_move_that_is_not_needed_are_dropped(
        balancer: Balancer, pins: Dict[str, PinRecord], changes: Dict[str, Any],
        dropped: Any) -> None:
    found = goals(pins, **changes)
    assert found.dropped == dropped and not dropped & found.records.keys()


# ---- what the balancer is asked

@pytest.mark.parametrize('pgid, changes, free', [
    (PG, {}, True), ('1.1', {}, True), ('1.1', {'entries': {'1.1': OTHER}}, False),
    (PG, {'entries': {PG: PINNED}}, True), (PG, {'campaign': {'in_flight': {PG: FLIGHT}}}, False),
    (PG, {'temp': [PG]}, False)])
def test_pgs_that_the_balancer_may_move(balancer: Balancer, pgid: str, changes: Dict[str, Any],
                                        free: bool) -> None:
    goals({PG: PIN}, ups={'1.1': THERE}, **changes)
    asked, = balancer.asked
    assert asked.pgs[pgid].may_move == free and set(asked.pgs) == {PG, '1.1'}
    assert (asked.pgs[PG].here, asked.pgs['1.1'].here) == (HERE, THERE)


VECTOR = replace(PIN, entry=UpmapEntry(vector=HERE), raw=THERE)


@pytest.mark.parametrize('pins, changes, raw', [
    ({PG: PIN}, {}, THERE), ({PG: VECTOR}, {}, THERE),
    ({PG: VECTOR}, {'entries': {PG: UpmapEntry(vector=(0, 2, 1))}}, None),
    ({PG: replace(VECTOR, raw=None)}, {}, None), ({'1.1': PIN}, {'ups': {PG: HERE}}, HERE),
    ({PG: replace(PIN, entry=NO_ENTRY)}, {'ups': {PG: (0, 1)}}, None),
    ({PG: replace(PIN, entry=NO_ENTRY)}, {'ups': {PG: (0, 1, NO_OSD)}}, None),
    ({PG: replace(VECTOR, raw=(3, 1))}, {}, None)])
def test_where_crush_places_a_pg(balancer: Balancer, pins: Dict[str, PinRecord],
                                 changes: Dict[str, Any], raw: Optional[OsdSet]) -> None:
    goals(pins, **changes)
    assert balancer.asked[0].pgs[PG].raw == raw


@pytest.mark.parametrize('pins, changes, budget', [
    # One shard and a half of it; two, and three.
    ({PG: PIN}, {}, 2), ({PG: PIN, '1.1': PIN}, {}, 3), ({PG: PIN, '1.1': FREE}, {}, 2),
    ({PG: PIN}, {'ups': {'1.1': THERE}}, 2), ({PG: VECTOR}, {}, 2),
    ({PG: replace(VECTOR, raw=None)}, {}, 0), ({PG: PIN, '1.1': PIN}, {'temp': ['1.1']}, 2),
    ({PG: replace(PIN, before=UpmapEntry(((3, 4), (1, 5))))}, {}, 3),
    ({PG: replace(PIN, before=UpmapEntry(((3, 2),)))}, {}, 2)])
def test_the_budget_of_the_balancer(balancer: Balancer, pins: Dict[str, PinRecord],
                                    changes: Dict[str, Any], budget: int) -> None:
    goals(pins, **changes)
    asked, = balancer.asked
    assert (asked.budget, asked.deviation, asked.crush) == (budget, 1.5, CRUSH)


def test_shards_of_an_erasure_code_count_by_position(balancer: Balancer) -> None:
    pin = PinRecord(NO_ENTRY, UpmapEntry(vector=HERE), (1, 0, 2))
    goals({'2.0': pin})
    assert balancer.asked[0].budget == 3
    goals({PG: pin})
    assert balancer.asked[1].budget == 0


def test_pools_share_the_space_of_osds(balancer: Balancer) -> None:
    """What remapped PGs still copy counts, and what the pools before it give to each OSD."""
    balancer.before, balancer.after = {0: 3, 1: 5, 4: 1}, {0: 5, 1: 2, 5: 1}
    sizes = Signals(PgCounts(), pool_bytes={1: 800, 2: 1600})
    goals({PG: PIN, '2.0': PIN}, signals=sizes, space={
        osd: Space(10000, 5000) for osd in OSDS}, ups={'1.1': (7, 1, 2)},
        acting={PG: HERE, '2.0': HERE, '1.1': HERE})
    first, second = balancer.asked
    assert first.room.more_shards == {**dict.fromkeys(OSDS, 35), 7: 34}
    assert second.room.fill == {0: 0.52, 1: 0.47, 2: 0.5, 3: 0.5, 4: 0.49, 5: 0.51, 6: 0.5, 7: 0.51}


# ---- the goal of a PG

@pytest.mark.parametrize('pin, finals, expected', [
    # It stays; to where CRUSH places it; elsewhere.
    (PIN, {}, PINNED), (PIN, {PG: THERE}, NO_ENTRY), (PIN, {PG: (4, 1, 2)}, UpmapEntry(((3, 4),))),
    # A vector that pairs can replace, and one that CRUSH makes needless.
    (VECTOR, {}, PINNED), (replace(VECTOR, raw=HERE), {}, NO_ENTRY),
    (replace(VECTOR, raw=None), {}, NO_ENTRY), (replace(VECTOR, raw=None, before=OTHER), {}, OTHER),
    # Two of its OSDs would be on one host.
    (PIN, {PG: (5, 1, 2)}, PINNED)])
def test_the_goal_of_a_pg(balancer: Balancer, pin: PinRecord, finals: Dict[str, OsdSet],
                          expected: UpmapEntry) -> None:
    balancer.finals = finals
    crush = crush_of(dict.fromkeys(OSDS, 1.0), hosts=4)
    assert goal_of({PG: pin}, crush=crush) == expected


def test_no_goal_is_an_upmap_that_the_mons_drop(balancer: Balancer) -> None:
    """osd.4 is out: they remove a pair to it, and refuse a plan to it."""
    out = {4: replace(OSDS[4], reweight=0.0)}
    balancer.finals = {PG: (4, 1, 2)}
    assert goal_of({PG: PIN}, osds=out) == PINNED
    # A pair of the present entry has no effect anymore.
    pin = replace(PIN, entry=UpmapEntry(((3, 0), (7, 6))))
    balancer.finals = {}
    assert goal_of({PG: pin}) == pin.entry


@pytest.mark.parametrize('finals, entry, expected', [
    ({'1.1': (4, 1, 2)}, NO_ENTRY, PinRecord(NO_ENTRY, NO_ENTRY, None, UpmapEntry(((0, 4),)))),
    ({}, NO_ENTRY, None), ({'1.1': HERE}, NO_ENTRY, None),
    ({'1.1': (4, 1, 2)}, UpmapEntry(((3, 0),)),
     PinRecord(PINNED, PINNED, None, UpmapEntry(((3, 4),))))])
def test_pgs_without_a_pin_that_move_for_the_balance(
        balancer: Balancer, finals: Dict[str, OsdSet], entry: UpmapEntry,
        expected: Optional[PinRecord]) -> None:
    balancer.finals = finals
    found = goals({PG: PIN}, ups={'1.1': HERE}, entries={'1.1': entry})
    assert found.records.get('1.1') == expected


def test_behind_a_vector_the_record_of_a_move_has_the_raw_set(balancer: Balancer) -> None:
    """A vector without effect, since one of its OSDs is out."""
    void = UpmapEntry(vector=(0, 1, 7))
    balancer.finals = {'1.1': (4, 1, 2)}
    found = goals({PG: PIN}, ups={'1.1': HERE}, entries={'1.1': void},
                  osds={7: replace(OSDS[7], reweight=0.0)})
    assert found.records['1.1'] == PinRecord(void, void, HERE, UpmapEntry(((0, 4),)))


@pytest.mark.parametrize('pin, ideal, expected', [
    (PIN, {0: 0.0}, NO_ENTRY), (PIN, {0: 1.0}, PINNED), (PIN, {3: 0.0}, PINNED),
    (replace(PIN, before=OTHER), {0: 0.0, 1: 2.0}, OTHER)])
def test_pgs_leave_osds_that_are_emptied(balancer: Balancer, pin: PinRecord,
                                         ideal: Dict[int, float], expected: UpmapEntry) -> None:
    balancer.ideal = ideal
    assert goal_of({PG: pin}) == expected
    # One that moves elsewhere has its goal.
    balancer.finals = {PG: (4, 1, 2)}
    assert goal_of({PG: pin}) == UpmapEntry(((3, 4),))


def test_pgs_that_no_view_shows_have_no_goal(balancer: Balancer) -> None:
    balancer.finals = {'1.5': THERE}
    found = goals({PG: PIN}, without=())
    assert '1.5' not in found.records


# ---- a pool that gets a rule under which its PGs are already in place

RULED = RuleChange(moves_first=True, least=Bounds(1.0, 0.0), rule=PoolRule(1, 0))


@pytest.mark.parametrize('changes, expected', [
    ({}, PINNED), ({'crush': crush_of({**dict.fromkeys(OSDS, 1.0), 0: 0.0}, hosts=8)}, NO_ENTRY),
    ({'crush': crush_of({**dict.fromkeys(OSDS, 1.0), 4: 0.0}, hosts=8)}, PINNED),
    ({'campaign': {'change': replace(RULED, least=None)}}, NO_ENTRY),
    ({'campaign': {'change': replace(RULED, rule=PoolRule(2, 0))}}, NO_ENTRY)])
@pytest.mark.parametrize('target', ['crush', 'balanced'])
def test_pins_of_a_settled_pool_become_upmaps(
        balancer: Balancer, changes: Dict[str, Any], expected: UpmapEntry, target: str) -> None:
    balancer.finals = {PG: THERE}
    asks = target == 'balanced' and 'campaign' in changes
    changes = {'campaign': {'change': RULED}, **changes}
    assert goal_of({PG: PIN}, target=target, **changes) == expected
    assert bool(balancer.asked) == asks


# ---- several tranches

def ahead_of(raws: Mapping[str, OsdSet], crush: Any = CRUSH) -> Future:
    return Future({pgid: FuturePg(HERE, raw) for pgid, raw in raws.items()}, crush)


LATER = crush_of({**dict.fromkeys(OSDS, 1.0), 6: 2.0}, hosts=8)
#: OSD 6 gets its weight in two tranches, and PG 1.0 moves there with the second one.
TWO = Tranches(frozenset({6}), None, ahead_of({PG: (6, 1, 2)}, LATER), 9)
LEAD = UpmapEntry(((3, 6),))


@pytest.mark.parametrize('upmaps, led, goals_found', [
    (9, (), [LEAD, LEAD, LEAD]), (2, (), [LEAD, LEAD, NO_ENTRY]), (0, (), [NO_ENTRY] * 3),
    (2, ('1.5',), [LEAD, NO_ENTRY, NO_ENTRY]), (1, ('1.5', '1.6'), [NO_ENTRY] * 3),
    (3, ('1.5',), [LEAD, LEAD, NO_ENTRY])])
def test_upmaps_lead_pgs_early_to_where_a_later_tranche_places_them(
        upmaps: int, led: Tuple[str, ...], goals_found: List[UpmapEntry]) -> None:
    pins = dict.fromkeys(('1.0', '1.1', '1.2'), PIN)
    change = WeightChange(weights={6: 2.0}, ahead={pgid: Led(NO_ENTRY, LEAD) for pgid in led})
    raws = dict.fromkeys([*pins, *led], (6, 1, 2))
    before = ahead_of(dict.fromkeys([*pins, *led], HERE))
    found = goals(pins, target='crush', campaign={'change': change}, tranches=TWO._replace(
        ahead=ahead_of(raws), upmaps=upmaps, before=before), ups=dict.fromkeys(led, (6, 1, 2)),
        entries=dict.fromkeys(led, LEAD))
    assert [found.records[pgid].goal for pgid in sorted(pins)] == goals_found


@pytest.mark.parametrize('pin, changes, limit, expected', [
    # PGs that are not led early do not count: they end there, or their upmap stays.
    (PIN, {'ahead': {PG: THERE}}, 0, NO_ENTRY), (PIN, {'ahead': {}}, 0, NO_ENTRY),
    (replace(PIN, before=UpmapEntry(((6, 4),))), {'ahead': {PG: (6, 1, 2)}}, 0,
     UpmapEntry(((3, 4),))), (PIN, {'ahead': {PG: HERE}}, 1, PINNED),
    (PIN, {'ahead': {PG: HERE}}, 0, NO_ENTRY),
    (PIN, {'ahead': {PG: (6, 2, 1)}}, 1, LEAD), (PIN, {'ahead': {PG: (6, 2, 1)}}, 0, NO_ENTRY)])
def test_goals_with_all_tranches(pin: PinRecord, changes: Dict[str, Any], limit: int,
                                 expected: UpmapEntry) -> None:
    tranches = TWO._replace(ahead=ahead_of(changes['ahead']), upmaps=limit)
    assert goal_of({PG: pin}, target='crush', tranches=tranches) == expected


def test_a_pg_without_a_pin_waits_for_its_tranche(balancer: Balancer) -> None:
    balancer.finals = {'1.1': (4, 1, 2), PG: THERE}
    found = goals({PG: PIN}, ups={'1.1': HERE}, tranches=TWO)
    assert set(found.records) == {PG}


LED = WeightChange(weights={6: 2.0}, ahead={'1.1': Led(NO_ENTRY, LEAD)})


@pytest.mark.parametrize('entry, up, pinned, counts', [
    (LEAD, (6, 1, 2), False, True), (NO_ENTRY, (6, 1, 2), False, False),
    (LEAD, HERE, False, False), (LEAD, (6, 1, 2), True, False)])
def test_upmaps_of_this_and_earlier_tranches_count_for_their_limit(
        entry: UpmapEntry, up: OsdSet, pinned: bool, counts: bool) -> None:
    pins = {PG: PIN, **({'1.1': replace(PIN, before=LEAD)} if pinned else {})}
    raws = {PG: (6, 1, 2), '1.1': (6, 1, 2)}
    tranches = TWO._replace(ahead=ahead_of(raws), upmaps=1)
    assert goal_of(pins, target='crush', campaign={'change': LED}, tranches=tranches,
                   ups={'1.1': up}, entries={'1.1': entry} if not pinned else {}) == (
        NO_ENTRY if counts else LEAD)


@pytest.mark.parametrize('pgid, changes, free', [
    # Not led; led by an upmap; where CRUSH placed it before, or not.
    ('1.1', {}, True), ('1.1', {'campaign': {'change': LED}}, False),
    ('1.1', {'before': {'1.1': THERE}}, False), ('1.1', {'before': {'1.1': (2, 1, 0)}}, True),
    ('2.1', {'before': {'2.1': (2, 1, 0)}}, False), ('2.1', {'before': {'2.1': HERE}}, True),
    (PG, {'before': {PG: THERE}}, False), (PG, {'before': {PG: HERE}}, True),
    (PG, {'before': None}, True), (PG, {'before': {}}, True),
    # An upmap from before the pin shows whether it has moved with the tranches.
    (PG, {'before': {PG: THERE}, 'pin': {'before': OTHER}}, True),
    (PG, {'before': {PG: HERE}, 'pin': {'before': UpmapEntry(((3, 6),))}}, False),
    (PG, {'before': {PG: HERE}, 'pin': {'before': UpmapEntry(((6, 3),))}}, False),
    (PG, {'before': {PG: HERE}, 'pin': {'was': UpmapEntry(((3, 6),))}}, False),
    (PG, {'before': {PG: HERE}, 'pin': {'before': OTHER, 'was': LEAD}}, False),
    (PG, {'before': {PG: HERE}, 'pin': {'before': UpmapEntry(vector=(6, 1, 2))}}, False)])
def test_pgs_that_have_moved_with_an_earlier_tranche_stay(
        balancer: Balancer, pgid: str, changes: Dict[str, Any], free: bool) -> None:
    before = changes.get('before', {})
    pin = replace(PIN, **changes.get('pin', {}))
    goals({PG: pin, '2.0': PIN}, ups={'1.1': HERE, '2.1': HERE}, tranches=TWO._replace(
        before=None if before is None else ahead_of(before)), campaign=changes.get('campaign', {}))
    placed = {name: pg for asked in balancer.asked for name, pg in asked.pgs.items()}
    assert placed[pgid].may_move == free


def test_the_balance_is_that_of_all_tranches(balancer: Balancer) -> None:
    """Of CRUSH with all weights, from where that places PGs. Their upmaps count as well."""
    goals({PG: PIN}, ups={'1.1': (5, 1, 2), '1.2': HERE}, entries={'1.1': OTHER}, tranches=TWO)
    asked, = balancer.asked
    assert asked.crush is LATER and asked.pgs[PG].raw == (6, 1, 2)
    assert asked.pgs['1.1'].raw == THERE and asked.budget == 2
    goals({PG: PIN}, ups={'1.1': (3, 1, 2)}, tranches=TWO._replace(
        ahead=ahead_of({PG: (6, 1, 2), '1.1': (6, 1, 2)})))
    assert balancer.asked[1].budget == 3


# ---- small ones

def test_pools_with_pins() -> None:
    osdmap = draft_of(NO_CAMPAIGN).observed.osdmap
    assert pools_of(['2.0', '1.1', '2.1', '3.0'], osdmap) == [1, 2]
    assert moves_for_balance(FREE) and not moves_for_balance(PIN)
    assert without_goals({PG: replace(PIN, goal=NO_ENTRY), '1.1': PIN}) == {PG: PIN}


# ---- previews

LEFT = FuturePg(HERE, THERE)
MOVE = Move(PG, (0,), (3,), 0, 100)


def preview(pgs: Mapping[str, FuturePg], plan: Planned, space: Mapping[int, Space] = {},
            settled: Sequence[int] = (), **cluster: Any) -> Balanced:
    seen = draft_of(NO_CAMPAIGN, **cluster).observed
    return preview_balance(plan, Future(pgs, LATER), seen, BOUNDS, space, settled)


def test_the_preview_of_pools_that_crush_places(balancer: Balancer) -> None:
    plan = Planned({PG: PIN, '1.1': PIN, '2.0': PIN, '9.0': PIN}, moves={
        PG: MOVE, '1.1': MOVE._replace(targets=(3, 4)), '2.0': MOVE, '9.0': MOVE})
    off = Balancing(upmap=False)
    found = preview({PG: LEFT}, plan, balancing=off)
    assert (found.moves, found.limit, found.bounds) == (
        (MOVE, plan.moves['1.1'], MOVE), 5 + 2, BOUNDS)
    assert (found.kept, found.deviation, found.extra) == (0, None, 0) and not balancer.asked
    plan = replace(plan, pins={**plan.pins, '1.2': PIN})
    settled = preview({PG: LEFT}, plan, settled=(1,), balancing=off)
    assert (settled.kept, settled.limit, settled.moves) == (3, 2, (MOVE,))


def test_the_preview_of_a_balanced_pool(balancer: Balancer) -> None:
    """Its PGs are given with where CRUSH places them, and those that move are counted."""
    plan = Planned({PG: PIN, '1.1': PIN, '2.0': PIN}, moves={PG: MOVE, '1.1': MOVE})
    balancer.finals, balancer.ideal = {PG: (4, 1, 2), '1.2': (0, 5, 2)}, {0: 2.5}
    balancer.before, balancer.after = {0: 3, 4: 0}, {0: 1, 4: 2}
    pgs = {PG: LEFT, '1.1': LEFT, '1.2': FuturePg(HERE, HERE), '2.0': LEFT}
    found = preview(pgs, plan, space={0: Space(1000, 500), 4: Space(1000, 500)},
                    signals=Signals(PgCounts(), pool_bytes={1: 800}))
    first, second = balancer.asked
    assert (first.budget, second.budget, first.deviation) == (3, 0, 1.5)
    assert first.crush is LATER and first.room.more_shards == {0: 3, 4: 3}
    assert second.room.fill == {0: 0.3, 4: 0.7}
    assert first.pgs == {PG: PlacedPg(PG, HERE, THERE, True),
                         '1.1': PlacedPg('1.1', HERE, THERE, True),
                         '1.2': PlacedPg('1.2', HERE, HERE, True)}
    assert [(move.pgid, move.targets, move.bytes) for move in found.moves] == [
        (PG, (4,), 100), ('1.2', (5,), 100)]
    # Osd.1 of PG 1.2 moves although CRUSH leaves it there.
    assert (found.extra, found.limit, found.kept, found.deviation) == (1, 3, 2, 1.5)
    balancer.finals = {}
    assert preview({}, Planned({PG: PIN})).moves == ()


def test_the_preview_of_a_pool_whose_size_is_not_known(balancer: Balancer) -> None:
    balancer.finals = {PG: THERE}
    found = preview({PG: LEFT}, Planned({PG: PIN}), pools={1: replace(POOLS[1], pg_num=1)})
    assert [move.bytes for move in found.moves] == [0]


@pytest.mark.parametrize('pg, final, extra', [
    (FuturePg(HERE, THERE), THERE, 0), (FuturePg(HERE, HERE), THERE, 1),
    (FuturePg(HERE, (3, 4, 2)), (3, 1, 5), 1), (FuturePg(HERE, THERE), (0, 4, 2), 1),
    (FuturePg(HERE, (2, 1, 0)), (3, 1, 0), 1)])
def test_shards_that_move_for_the_balance_alone(balancer: Balancer, pg: FuturePg, final: OsdSet,
                                                extra: int) -> None:
    balancer.finals = {PG: final, '2.0': final}
    assert preview({PG: pg}, Planned({PG: PIN})).extra == extra
    shards = preview({'2.0': pg}, Planned({'2.0': PIN})).extra
    assert shards == (0 if pg.raw == (2, 1, 0) else extra)


@pytest.mark.parametrize('changes, expected', [
    ({}, PlacedPg(PG, HERE, THERE, True)), ({'temp': [PG]}, PlacedPg(PG, HERE, THERE, False)),
    ({'entries': {PG: OTHER}}, PlacedPg(PG, HERE, THERE, False)),
    ({'entries': {PG: OTHER}, 'pins': (PG,)}, PlacedPg(PG, HERE, THERE, True)),
    ({'unpinnable': True}, PlacedPg(PG, THERE, THERE, False))])
def test_a_pg_as_the_balancer_of_a_preview_takes_it(
        balancer: Balancer, changes: Dict[str, Any], expected: PlacedPg) -> None:
    changes = dict(changes)
    plan = Planned(dict.fromkeys(('1.1', *changes.pop('pins', ())), PIN),
                   {PG: Unpinnable('')} if changes.pop('unpinnable', False) else {})
    preview({PG: LEFT, '1.1': LEFT}, plan, **changes)
    assert balancer.asked[0].pgs[PG] == expected
