# SPDX-License-Identifier: LGPL-2.1-or-later
"""Each step of a change of CRUSH with its pins, in a single turn and without a cluster."""
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Tuple

import pytest

from perfguard.cluster.orchestrator import Orchestrating
from perfguard.cluster.ports import Future, FuturePg, NoFuture
from perfguard.cluster.types import (NO_ENTRY, Osd, OsdSet, PgCounts, PoolPgs, PoolRule, Signals,
                                     UpmapEntry)
from perfguard.ledger import Held
from perfguard.observation import BALANCER
from perfguard.rebalance import joining
from perfguard.rebalance.balancing import BalanceChange
from perfguard.rebalance.campaign import Campaign, GoalsMark, Rollback
from perfguard.rebalance.change import Change, ChangeStage, Led, Planned
from perfguard.rebalance.draft import Draft
from perfguard.rebalance.goals import basis
from perfguard.rebalance.join_plan import PlannedFuture
from perfguard.rebalance.joining import (
    CHANGE_SEND_TIMES, bridging_entry, closing_change, keep_part_in_force, entry_for_both_maps,
    change_is_overdue, following_tranche, hides_raw, is_divisible, join, remove_needless_pairs,
    settle_change,
    tiny_osds, wants_outlook)
from perfguard.rebalance.pg_num import PgNumChange
from perfguard.rebalance.pinning import STUCK_PINS_SECONDS
from perfguard.rebalance.pool_rule import RuleChange
from perfguard.rebalance.types import (NOREBALANCE_KEY, TINY_WEIGHT, Holds, Pace, Phase, PinRecord,
                                       Sent, SetEntry, SetWeight)
from perfguard.rebalance.weights import SHARE_MIN, WeightChange
from perfguard.rebalance.whole_map import MapChange

from ..fakes.campaigns import campaign_of
from ..fakes.drafts import (HERE, HYBRID, NOW, OPTIONS, OSDS, PIN, PINNED, POOLS, THERE,
                            draft_of, events_of)
from .test_orders import crush

WEIGHTS = dict.fromkeys(OSDS, 1.0)
#: OSDs 3 and 4 are new.
BEFORE, AFTER = crush({**WEIGHTS, 3: 0.0, 4: 0.0}, hosts=8), crush(WEIGHTS, hosts=8)
WANTED = WeightChange(weights={3: 1.0, 4: 1.0})
READY, SENT, LANDED = (replace(WANTED, **fields) for fields in (  # type: ignore[arg-type]
    {'gathers': True}, {'stage': ChangeStage.SENT, 'times': 1, 'since': 995.0},
    {'stage': ChangeStage.LANDED}))
FUTURE = Future({'1.0': FuturePg(HERE, THERE)}, AFTER)
FAILED = NoFuture('no answer')
OTHER = UpmapEntry(((0, 5),))
VECTOR = UpmapEntry(vector=HERE)
INTERVAL = 'waiting until paxos_propose_interval is raised'


def campaign_with(change: Any, phase: Phase = Phase.PINNING, **fields: Any) -> Campaign:
    return campaign_of(1, phase, 900.0, change=change, **{'own': 5, 'prepared': True, **fields})


FLAG_SET = Holds({NOREBALANCE_KEY: Held(None, 'norebalance', seen=True)})


def turn(change: Any = READY, pins: Mapping[str, PinRecord] = {}, *, in_force: bool = True,
         balancer: Optional[str] = 'false', campaign: Mapping[str, Any] = {},
         phase: Phase = Phase.PINNING, **fields: Any) -> Draft:
    """`campaign`: its fields."""
    fields = {'crush': BEFORE, 'crush_version': 5, 'flags': ['norebalance'], 'outlook': FUTURE,
              'new_map': False, **fields}
    draft = draft_of(campaign_with(change, phase, **{'holds': FLAG_SET, **campaign}), pins,
                     **fields)
    settings = replace(draft.observed.settings, balancer_active=balancer)
    return replace(draft, observed=replace(draft.observed, settings=settings),
                   settings_in_force=in_force)


def because(draft: Draft) -> List[Tuple[str, str]]:
    return [(reason.code, reason.text) for reason in draft.reasons]


def entries_sent(draft: Draft) -> Dict[str, UpmapEntry]:
    return {action.pgid: action.entry for action in draft.actions if isinstance(action, SetEntry)}


def change_in(draft: Draft) -> Any:
    return draft.campaign.change


def whys(draft: Draft) -> List[str]:
    return [event.why for event in draft.events]


LEAVES: Dict[str, Any] = {'evacuation': {'1.7': (0,)}}
#: norebalance was set, and the OSDMap does not show it yet; or cleared, and it still does.
COMING = Holds({NOREBALANCE_KEY: Held(None, 'norebalance')})
LEAVING_FLAG = Holds({NOREBALANCE_KEY: Held(None, 'norebalance', seen=True, returning=True)})


# ---- what the loop computes before

@pytest.mark.parametrize('change, campaign, fields, wants', [
    (WANTED, {}, {}, True), (None, {}, {}, False), (SENT, {}, {}, False), (LANDED, {}, {}, False),
    (PgNumChange(step=PoolPgs(1, 16, 8)), {}, {}, False),
    # Pins that were sent change the mapping, except those of the change.
    (WANTED, {'sent': {'1.0': Sent(990.0)}}, {}, False),
    (replace(WANTED, times=1), {'sent': {'1.0': Sent(990.0)}}, {}, True),
    (WANTED, {}, {'flags': []}, False), (WANTED, {}, {'balancer': 'true'}, False),
    # norebalance may yield to an evacuation, and is set again for the burst.
    (WANTED, {'holds': Holds()}, {'flags': [], **LEAVES}, True),
    (WANTED, {'holds': Holds()}, {'flags': [], 'balancer': 'true', **LEAVES}, False),
    (WANTED, {'holds': COMING}, {'flags': [], **LEAVES}, False),
    (WANTED, {}, {'phase': Phase.PINNED}, False)])
def test_when_the_mapping_after_the_change_is_computed(change: Any, campaign: Dict[str, Any],
                                                       fields: Dict[str, Any],
                                                       wants: bool) -> None:
    draft = turn(change, campaign=campaign, **fields)
    assert wants_outlook(draft.campaign, draft.observed) is wants


# ---- the end of a drain

TINY = crush({**WEIGHTS, 3: TINY_WEIGHT, 5: TINY_WEIGHT, 6: TINY_WEIGHT}, hosts=8)
DRAIN = WeightChange(ChangeStage.LANDED, weights={3: TINY_WEIGHT, 4: TINY_WEIGHT}, drained=(3, 4))


@pytest.mark.parametrize('change, campaign, osds, drained', [
    (DRAIN, {}, [3], (3, 4)), (DRAIN, {'draining': (6, 7)}, [3, 6], (3, 4, 6)),
    (None, {'draining': (5,)}, [5], (5,)), (None, {}, [], None), (LANDED, {}, [], None),
    (replace(DRAIN, closing=True), {}, [3], None)])
def test_the_change_that_ends_a_drain(change: Any, campaign: Dict[str, Any], osds: List[int],
                                      drained: Optional[OsdSet]) -> None:
    draft = turn(change, campaign=campaign, crush=TINY)
    assert tiny_osds(draft) == osds
    assert closing_change(draft) == (None if drained is None else WeightChange(
        weights=dict.fromkeys(osds, 0.0), drained=drained, closing=True,
        start={osd: TINY.weights()[osd] for osd in osds}))


CLOSING = WeightChange(weights={3: 0.0, 5: 0.0}, drained=(3, 5), closing=True, gathers=True)
#: With weight 0, the PG would move from OSD 3.
EMPTY = crush({**WEIGHTS, 3: 0.0, 5: 0.0}, hosts=8)
STAYS = Future({'1.0': FuturePg((3, 1, 2), (0, 1, 2))}, EMPTY)
ON_THREE: Dict[str, Any] = {'crush': TINY, 'up': {'1.0': (3, 1, 2)}, 'acting': {'1.0': (3, 1, 2)}}
WHY = 'with weight 0, 1 PG could not be pinned: PG 1.0 (%s)'
STAY = 'the CRUSH weight of %s stays 0.0001'


@pytest.mark.parametrize('entries, why', [
    ({'1.0': UpmapEntry(((0, 3),))}, 'an upmap keeps it on osd.3'),
    ({}, 'CRUSH still places it on osd.3')])
def test_an_osd_with_pgs_keeps_the_tiny_weight(entries: Dict[str, UpmapEntry], why: str) -> None:
    draft = join(turn(CLOSING, outlook=STAYS, entries=entries, **ON_THREE))
    assert events_of(draft) == [('join', STAY % 'osd.3')] and whys(draft) == [WHY % why]
    assert change_in(draft) == replace(CLOSING, weights={5: 0.0}, gathers=False)
    assert draft.actions == () and draft.reasons == ()


def test_a_pg_that_is_no_longer_on_a_drained_osd_says_why_itself() -> None:
    draft = join(turn(CLOSING, outlook=STAYS, crush=TINY))
    assert 'osd.3 has CRUSH weight 0' in whys(draft)[0]


def test_a_pg_for_which_crush_would_find_too_few_osds_stays() -> None:
    future = replace(STAYS, pgs={'1.0': FuturePg((3, 1, 2), (1, 2), present=(3, 1, 2))})
    draft = join(turn(CLOSING, outlook=future, **ON_THREE))
    assert whys(draft) == [WHY % 'CRUSH would find too few OSDs']


def test_pgs_that_need_no_pin_keep_no_weight() -> None:
    """CRUSH finds only OSDs with the data, or the PG lacks an OSD and is
    awaited."""
    pgs = {'1.0': FuturePg((3, 1, 2), (1, 2)), '1.1': FuturePg((3, 1), (0, 1, 2))}
    for outlook in (replace(STAYS, pgs={}), replace(STAYS, pgs={'1.0': pgs['1.0']})):
        draft = join(turn(replace(CLOSING, gathers=False), outlook=outlook, **ON_THREE))
        assert change_in(draft) == CLOSING and because(draft) == [('SETTINGS', INTERVAL)]
    draft = join(turn(replace(CLOSING, gathers=False), outlook=replace(STAYS, pgs=pgs),
                      **ON_THREE))
    assert [code for code, _ in because(draft)] == ['DEGRADED'] and draft.events == ()


ALL_STAY = Future({'1.0': FuturePg((3, 1, 2), (0, 1, 2)), '1.1': FuturePg((5, 1, 2), (0, 1, 2))},
                  EMPTY)


ONE_DONE: Dict[str, Any] = {'done': (6,), 'weights': {**CLOSING.weights, 6: 0.0}}


@pytest.mark.parametrize('fields, outlook, why', [
    (ONE_DONE, FAILED, 'cannot preview weight 0: no answer'),
    ({}, ALL_STAY, 'with weight 0, 2 PGs could'),
    ({**ONE_DONE, 'times': 1}, STAYS, 'with weight 0, 1 PG could'),
    # None of them has the PG.
    ({}, replace(STAYS, pgs={'1.0': FuturePg((4, 1, 2), (0, 1))}), '')])
def test_all_keep_the_tiny_weight(fields: Dict[str, Any], outlook: Any, why: str) -> None:
    draft = join(turn(replace(CLOSING, **fields), outlook=outlook, **ON_THREE))
    if not why:
        assert change_in(draft).stage is ChangeStage.SENT
        return
    assert events_of(draft)[-1] == ('join', STAY % 'osd.3, osd.5')
    assert whys(draft)[-1].startswith(why)
    found = change_in(draft)
    weights = {6: 0.0} if fields else {}
    assert found == replace(CLOSING, weights=weights, done=tuple(weights), gathers=False,
                            stage=ChangeStage.LANDED)
    assert draft.campaign.phase_since == NOW and draft.actions == ()


@pytest.mark.parametrize('times', [0, 1])
def test_the_pins_of_a_burst_of_weight_0_are_forgotten_with_it(times: int) -> None:
    draft = join(turn(replace(CLOSING, times=times), {'1.4': PIN}, outlook=ALL_STAY, campaign={
        'sent': {'1.4': Sent(NOW)}}, **ON_THREE))
    assert draft.unpins == ({'1.4'} if times else set())
    assert change_in(draft).stage is ChangeStage.LANDED


# ---- the stages

def test_a_change_that_is_in_force() -> None:
    draft = join(turn(SENT, {'1.0': PIN}, crush=AFTER, entries={'1.0': PINNED},
                      acting={'1.5': (4, 1, 2)}, crush_version=6,
                      campaign={'undersized_pgs': ('1.3',)}))
    assert change_in(draft) == replace(SENT, stage=ChangeStage.LANDED)
    assert events_of(draft) == [('join', 'CRUSH is changed, 1 PG is pinned, 1 remapped')]
    assert whys(draft) == ['read back from the OSDMap']
    assert draft.campaign.phase_since == NOW and draft.campaign.pinning.undersized_pgs == ()


@pytest.mark.parametrize('own, ours, claimed', [(5, True, 6), (5, False, -1), (-1, True, -1)])
def test_a_change_in_force_is_the_campaigns(own: int, ours: bool, claimed: int) -> None:
    rest = crush(WEIGHTS if ours else {**WEIGHTS, 7: 0.5}, hosts=8)
    sent = replace(SENT, fingerprint=SENT.rest_of_crush(turn(crush=AFTER).observed))
    draft = join(turn(sent, crush=rest, crush_version=6, campaign={'own': own}))
    assert draft.campaign.crush.own == claimed
    # The same version needs no second look.
    same = join(turn(sent, crush=rest, crush_version=6, campaign={'own': 6}))
    assert same.campaign.crush.own == 6


def test_the_next_burst_follows() -> None:
    sent = replace(SENT, burst=1)
    draft = join(turn(sent, {'1.0': PIN}, entries={'1.0': PINNED}, crush=crush(
        {**WEIGHTS, 4: 0.0}, hosts=8)))
    assert change_in(draft) == replace(sent, stage=ChangeStage.WANTED, done=(3,), times=0,
                                       since=NOW)
    assert events_of(draft) == [('join', 'CRUSH weights of 1 of 2 OSDs are in force')]
    assert whys(draft) == ['read back from the OSDMap'] and draft.campaign.phase_since == NOW


@pytest.mark.parametrize('fields, text', [
    ({'tranche': 1, 'following': 2}, 'tranche 2 of 4'),
    ({'tranche': 0, 'following': 1}, 'tranche 1 of 2')])
def test_a_tranche_that_is_in_force(fields: Dict[str, Any], text: str) -> None:
    draft = join(turn(replace(SENT, share=0.5, **fields), crush=AFTER))
    assert events_of(draft) == [('join', text + ' of the CRUSH change is in force, 0 PGs are '
                                 'pinned, 0 remapped')]


@pytest.mark.parametrize('now, reasons', [
    (NOW, [('CRUSH_SENT', 'waiting for the CRUSH change to show in the OSDMap')]),
    (1001.0, [('CRUSH_SENT', 'waiting for the CRUSH change to show in the OSDMap')]), (1001.5, [])])
def test_a_change_that_was_sent(now: float, reasons: List[Tuple[str, str]]) -> None:
    draft = join(turn(SENT, now=now))
    assert because(draft) == reasons
    assert change_in(draft) == (SENT if reasons else replace(SENT, stage=ChangeStage.WANTED))
    assert events_of(draft) == ([] if reasons else [('join', 'the CRUSH change is sent again')])
    assert whys(draft) == ([] if reasons else ['the OSDMap does not show it'])


@pytest.mark.parametrize('times, given_up', [(CHANGE_SEND_TIMES - 1, False),
                                             (CHANGE_SEND_TIMES, True)])
def test_a_change_that_the_mons_do_not_accept(times: int, given_up: bool) -> None:
    sent = replace(SENT, times=times, since=900.0)
    draft = join(turn(sent, {'1.0': PIN}, campaign={'sent': {'1.0': Sent(900.0)}},
                      crush_version=6))
    assert change_in(draft).stage is ChangeStage.WANTED
    assert draft.campaign.phase is (Phase.ABORTING if given_up else Phase.PINNING)
    assert change_in(draft).times == (0 if given_up else times)
    assert draft.unpins == ({'1.0'} if given_up else set())
    # Others have changed CRUSH.
    assert draft.campaign.crush.own == -1
    if given_up:
        assert events_of(draft) == [('join', 'the CRUSH change is given up'),
                                    ('phase', 'campaign 1: ABORTING')]
        assert whys(draft) == ['the mons did not accept it',
                               'the mons did not accept the CRUSH change']
    closing = replace(CLOSING, stage=ChangeStage.SENT, times=times, since=900.0, gathers=False)
    draft = join(turn(closing, crush=TINY))
    assert draft.campaign.phase is Phase.PINNING
    if given_up:
        assert change_in(draft) == replace(closing, weights={}, times=0, stage=ChangeStage.LANDED)
        assert whys(draft) == ['the mons did not accept weight 0']


def test_a_change_that_others_have_made_impossible() -> None:
    draft = join(turn(MapChange(crush_version=5), overtaken='osd.7'))
    assert draft.campaign.phase is Phase.ABORTING
    assert whys(draft) == ['CRUSH has changed since "crushmap": osd.7. Get the current CRUSH map, '
                           'change it, and apply it again']


def test_osds_whose_weight_others_have_changed_are_left_out() -> None:
    tranche = replace(WANTED, weights={**WANTED.weights, 9: 1.0}, tranche=1,
                      reached={3: 0.5, 4: 0.5, 9: 0.5}, share=0.5)
    draft = join(turn(tranche, crush=crush({**WEIGHTS, 3: 0.5, 4: 0.75}, hosts=8)))
    assert change_in(draft).weights == {3: 1.0} and draft.reasons == ()
    # OSD 9 was purged.
    assert events_of(draft) == [('join', 'the CRUSH weight of osd.4 stays as it is')]
    assert whys(draft) == ['it was changed outside perfguard']
    purged = join(turn(replace(WANTED, weights={3: 1.0, 4: 1.0, 9: 1.0}, done=(3,))))
    assert change_in(purged).weights == {3: 1.0, 4: 1.0} and purged.events == ()
    nothing = joining.report_left_out(turn(), None, WANTED)
    assert nothing.events == ()


def test_osds_on_another_device_get_no_less_weight() -> None:
    change = WeightChange(weights={1: 0.0, 2: 0.0, 3: 1.0}, drained=(1, 2))
    draft = join(turn(change, other_device=frozenset({1, 3, 7})))
    assert change_in(draft).weights == {2: 0.0, 3: 1.0} and change_in(draft).drained == (2,)
    assert whys(draft) == ['the OSD is on another device than the one whose drain was ordered']
    # These have begun, and "undrain" restores the weight.
    for begun in (replace(change, tranche=1, reached={1: 0.5, 2: 0.5, 3: 0.5}),
                  replace(change, weights={1: 0.0}, closing=True)):
        draft = join(turn(begun, other_device=frozenset({1}), crush=crush(
            dict.fromkeys(OSDS, 0.5), hosts=8)))
        assert 1 in change_in(draft).weights and not whys(draft)


@pytest.mark.parametrize('wanted, conditions', [
    # It is being filled; and it is being emptied, by the orchestrator as well.
    (1.0, {'other_device': frozenset({3})}),
    (0.0, {'orchestrating': Orchestrating(removing=frozenset({3}))})])
def test_a_weight_that_others_have_changed_is_the_reason_though_something_else_is_known(
        wanted: float, conditions: Dict[str, Any]) -> None:
    change = WeightChange(weights={3: wanted, 4: 1.0}, start={3: 0.5, 4: 0.0})
    draft = join(turn(change, crush=crush({**WEIGHTS, 3: 0.25}, hosts=8), **conditions))
    assert change_in(draft).weights == {4: 1.0}
    assert whys(draft) == ['it was changed outside perfguard']


@pytest.mark.parametrize('change, left', [
    (WANTED, {4: 1.0}), (replace(WANTED, done=(3,)), {3: 1.0, 4: 1.0}),
    # The orchestrator empties it as well.
    (WeightChange(weights={3: 0.0, 4: 1.0}), {3: 0.0, 4: 1.0})])
def test_osds_that_the_orchestrator_removes_get_no_more_weight(change: WeightChange,
                                                               left: Dict[int, float]) -> None:
    draft = join(turn(change, orchestrating=Orchestrating(removing=frozenset({3, 7}))))
    assert change_in(draft).weights == left
    assert whys(draft) == ([] if 3 in left else ['the orchestrator is removing the OSD'])


@pytest.mark.parametrize('new_map, remaining', [(True, ('1.0', '1.3')), (False, (
    '1.0', '1.1', '1.3', '9.0', '1.9'))])
def test_accepted_undersized_pgs_that_have_recovered_are_forgotten(
        new_map: bool, remaining: Tuple[str, ...]) -> None:
    draft = join(turn(campaign={'undersized_pgs': ('1.0', '1.1', '1.3', '9.0', '1.9')},
                      outlook=None, new_map=new_map, acting={'1.0': (0, 1)}, without=['1.3']))
    assert draft.campaign.pinning.undersized_pgs == remaining


# ---- what it waits for

PARTLY = replace(READY, done=(3,), since=NOW - STUCK_PINS_SECONDS)
PEERING = Signals(PgCounts(total=16, in_transition=1), {1: PgCounts(in_transition=1)})
AWAITED = 'waiting for the pins of 1 of 2 OSDs'


@pytest.mark.parametrize('change, campaign, fields, waits', [
    (PARTLY, {}, {}, False), (PARTLY, {'sent': {'1.0': Sent(NOW)}}, {}, True),
    (PARTLY, {}, {'signals': PEERING}, True),
    # For long: they are stuck.
    (replace(PARTLY, since=PARTLY.since - 1.0), {}, {'signals': PEERING}, False),
    (READY, {}, {'signals': PEERING}, False),
    (replace(PARTLY, times=1), {'sent': {'1.0': Sent(NOW)}}, {}, False)])
def test_it_waits_for_the_pins_of_earlier_bursts(change: Any, campaign: Dict[str, Any],
                                                 fields: Dict[str, Any], waits: bool) -> None:
    draft = join(turn(change, campaign=campaign, outlook=None, **fields))
    assert change_in(draft) == replace(change, gathers=False)
    assert because(draft) == [('PINS_SENT', AWAITED) if waits else (
        'OUTLOOK', 'computing where CRUSH will place the PGs')]


def test_pgs_that_the_pins_of_an_earlier_burst_have_missed_are_pinned() -> None:
    draft = join(turn(PARTLY, outlook=None, up={'1.5': THERE}, acting={'1.5': HERE}))
    assert entries_sent(draft) == {'1.5': PINNED} and [code for code, _ in because(draft)] == [
        'PINS_SENT']
    # None is, before the first burst.
    assert join(turn(READY, outlook=None, up={'1.5': THERE}, acting={'1.5': HERE})).actions == ()


@pytest.mark.parametrize('seconds, waits', [(6.0, True), (6.5, False)])
def test_pgs_that_were_split_report_first(seconds: float, waits: bool) -> None:
    change = PgNumChange(step=PoolPgs(1, 16, 8), pg_num=16, since=NOW - seconds)
    draft = join(turn(change))
    assert because(draft) == [('PINS_SENT', Change.awaited_pins.fget(change))  # type: ignore
                              if waits else ('SETTINGS', INTERVAL)]
    # Pins have no such time.
    assert because(join(turn(replace(PARTLY, since=NOW), outlook=None))) == [
        ('OUTLOOK', 'computing where CRUSH will place the PGs')]


UNTIL = 'waiting until norebalance is %s, the balancer is off, and paxos_propose_interval is %s'


@pytest.mark.parametrize('change, fields, gathers', [
    # The interval alone is missing.
    (READY, {}, True), (WANTED, {}, False),
    (READY, {'flags': []}, False), (READY, {'balancer': 'true'}, False),
    # norebalance is set for the burst, as it had yielded to an evacuation.
    (READY, {'flags': [], 'campaign': {'holds': COMING}}, True),
    (READY, {'flags': [], 'balancer': 'true', 'campaign': {'holds': COMING}}, False),
    (READY, {'balancer': 'true', 'in_force': True,
             'campaign': {'given_up': frozenset({BALANCER})}}, False)])
def test_it_waits_for_its_settings(change: Any, fields: Dict[str, Any], gathers: bool) -> None:
    fields = {'in_force': False, **fields}
    draft = join(turn(change, **fields))
    assert change_in(draft) == replace(change, gathers=gathers)
    assert because(draft) == [('SETTINGS', UNTIL % (
        'set', 'raised' if change.gathers else 'not raised'))]


def test_it_waits_until_norebalance_is_cleared_for_an_evacuation() -> None:
    draft = join(turn(WANTED, in_force=False, campaign={'holds': LEAVING_FLAG}))
    assert because(draft) == [('SETTINGS', UNTIL % ('cleared', 'not raised'))]


@pytest.mark.parametrize('failure, text', [('', ''), ('no answer', ' again: no answer')])
def test_it_waits_for_its_preview(failure: str, text: str) -> None:
    draft = join(turn(outlook=None, outlook_failure=failure))
    assert change_in(draft) == WANTED
    assert because(draft) == [('OUTLOOK', 'computing where CRUSH will place the PGs' + text)]


def test_it_ends_without_a_preview_unless_that_was_accepted() -> None:
    draft = join(turn(outlook=FAILED))
    assert draft.campaign.phase is Phase.ABORTING and draft.actions == ()
    assert whys(draft) == ['cannot preview the CRUSH change: no answer']
    draft = join(turn(replace(READY, ordinary=True, drained=(5,)), {'1.2': PIN}, outlook=FAILED,
                      entries={'1.0': OTHER, '1.1': PINNED, '1.2': OTHER}))
    assert draft.actions == (SetWeight(3, 1.0), SetWeight(4, 1.0))
    # Upmaps to drained OSDs stay in force, so they have to be released.
    assert draft.new_pins == {'1.0': PinRecord(NO_ENTRY, OTHER)}
    assert [subject for _, subject in events_of(draft)] == [
        'the change remaps PGs first and perfguard pins them afterwards',
        'changing CRUSH and pinning 0 PGs in one OSDMap epoch']
    assert whys(draft)[0] == 'no answer'


def test_the_interval_is_raised_last() -> None:
    draft = join(turn(WANTED))
    assert because(draft) == [('SETTINGS', INTERVAL)] and draft.actions == ()
    assert change_in(draft) == READY


# ---- PGs that move first

RULE = RuleChange(rule=PoolRule(1, 0), moves_first=True)
MOVING = Future({'1.0': FuturePg(HERE, THERE), '1.1': FuturePg(HERE, HERE)}, AFTER,
                finals={'1.0': (5, 1, 2)})


def test_pgs_move_before_the_rule_is_changed() -> None:
    draft = join(turn(RULE, {'1.1': PIN, '1.2': PIN}, outlook=MOVING,
                      entries={'1.1': PINNED, '1.2': PINNED}))
    assert draft.new_pins == {'1.0': PinRecord(NO_ENTRY, NO_ENTRY, goal=OTHER)}
    # Those that the change leaves where they are have upmaps, and no pins.
    assert draft.unpins == {'1.1'} and draft.campaign.phase is Phase.PINNED
    assert change_in(draft) == replace(RULE, passes=1) and draft.actions == ()
    assert draft.campaign.pinning.goals == GoalsMark()
    assert [(event.what, event.why) for event in draft.events] == [
        ('1 PG of pool p will move before its CRUSH rule is changed',
         'the current rule allows their new places'),
        ('campaign 1: PINNED', 'the PGs move before the pool is changed')]
    # They are where they end.
    there = join(turn(RULE, outlook=replace(MOVING, finals={})))
    assert because(there) == [('SETTINGS', INTERVAL)] and there.campaign.phase is Phase.PINNING
    # It is on its way.
    pending = join(turn(replace(RULE, rule=PoolRule(1, 1), times=1), outlook=MOVING))
    assert because(pending) == [('SETTINGS', INTERVAL)]


def test_the_goals_of_a_balance_have_a_basis() -> None:
    balance = BalanceChange(pools=(1,), shards=1)
    draft = join(turn(balance, outlook=MOVING))
    assert draft.campaign.phase is Phase.PINNED
    seen = draft.observed
    assert draft.campaign.pinning.goals == GoalsMark(1, basis(seen.osdmap, seen.crush, {1}))


# ---- OSDs that PGs lack

LACKING = Future({pgid: FuturePg((0, 1), THERE) for pgid in ('1.0', '1.1')}, AFTER)


@pytest.mark.parametrize('campaign, fields, waits', [
    ({}, {}, 2), ({'undersized': 1}, {}, 2), ({'undersized': 2}, {}, 0),
    ({'undersized_pgs': ('1.0',)}, {}, 1), ({'undersized_pgs': ('1.0', '1.1')}, {}, 0),
    ({'undersized_pgs': ('1.0',), 'undersized': 1}, {}, 0),
    ({'acknowledged': ('DEGRADED',)}, {}, 0),
    ({}, {'signals': Signals(PgCounts(total=16), muted=frozenset({'PG_DEGRADED'}))}, 0)])
def test_it_waits_for_osds_that_pgs_lack(campaign: Dict[str, Any], fields: Dict[str, Any],
                                         waits: int) -> None:
    draft = join(turn(WANTED, campaign=campaign, outlook=LACKING, acting={
        '1.0': (0, 1), '1.1': (0, 1)}, **fields))
    if not waits:
        assert because(draft) == [('SETTINGS', INTERVAL)]
        return
    assert because(draft) == [('DEGRADED', (
        '1 PG is' if waits == 1 else '2 PGs are') + ' undersized and would be remapped by the '
        'change; waiting until the OSDs are back or the PGs have recovered ("campaign accept '
        'DEGRADED" changes CRUSH anyway)')]
    # Once the interval is raised, it is sent.
    sent = join(turn(READY, campaign=campaign, outlook=LACKING))
    assert change_in(sent).stage is ChangeStage.SENT


# ---- parts

TWO = Future({'1.0': FuturePg(HERE, THERE), '1.1': FuturePg(HERE, (4, 1, 2))}, AFTER)
ONE_PIN = replace(OPTIONS, max_pins=1)
MANY = 'the change requires 2 pins (limit 1, max_pins); computing it with a smaller part of the ' \
    'weights'


@pytest.mark.parametrize('change, campaign, options, pins, share', [
    (WANTED, {}, ONE_PIN, {}, 0.5), (WANTED, {}, replace(OPTIONS, max_pins=2), {}, None),
    (WANTED, {}, replace(OPTIONS, max_pins=2), {'1.5': PIN}, 0.5),
    # The pins that the change has anyway count once.
    (WANTED, {}, replace(OPTIONS, max_pins=2), {'1.0': PIN}, None),
    (WANTED, {}, ONE_PIN, {'1.5': PIN}, 0.5),
    (WANTED, {'acknowledged': ('PIN_LIMIT',)}, ONE_PIN, {}, None),
    (WANTED, {'acknowledged': ('PIN_LIMIT',)}, ONE_PIN, {'1.5': PIN}, None),
    (replace(WANTED, done=(7,), weights={**WANTED.weights, 7: 1.0}), {}, ONE_PIN, {}, None),
    (replace(WANTED, burst=2), {}, ONE_PIN, {}, None),
    (replace(WANTED, share=SHARE_MIN), {}, ONE_PIN, {}, None),
    (replace(WANTED, share=2 * SHARE_MIN), {}, ONE_PIN, {}, 0.001)])
def test_a_change_with_too_many_pins_is_divided(
        change: WeightChange, campaign: Dict[str, Any], options: Any, pins: Any,
        share: Optional[float]) -> None:
    draft = join(turn(change, pins, campaign=campaign, options=options, outlook=TWO,
                      entries={pgid: pin.entry for pgid, pin in pins.items()}))
    if share is None:
        assert because(draft) == [('SETTINGS', INTERVAL)]
        assert change_in(draft) == replace(change, gathers=True)
    else:
        limit = MANY.replace('limit 1', 'limit %d' % options.max_pins)
        assert because(draft) == [('OUTLOOK', limit)]
        assert change_in(draft).share == pytest.approx(share) and draft.actions == ()


def test_a_rollback_is_not_divided_for_its_pins() -> None:
    draft = join(turn(WANTED, campaign={'rollback': Rollback(begun=True)}, options=ONE_PIN,
                      outlook=TWO))
    assert because(draft) == [('SETTINGS', INTERVAL)]


#: The mons keep no upmaps: PG 1.0 moves.
UNPINNED = Future({'1.0': FuturePg((0, 1, 4), (0, 1, 5)), '1.1': FuturePg((0, 1, 4), (0, 1, 6))},
                  HYBRID)


@pytest.mark.parametrize('most, divided', [(1, True), (2, False)])
def test_a_change_that_moves_many_pgs_without_pins_is_divided(most: int, divided: bool) -> None:
    draft = join(turn(WANTED, campaign={'pace': Pace(pgs=most)}, outlook=UNPINNED))
    assert because(draft) == [('OUTLOOK', '2 PGs that the change moves cannot be pinned (limit 1, '
                               'as for PGs in flight); computing it with a smaller part of the '
                               'weights') if divided else ('SETTINGS', INTERVAL)]
    assert change_in(draft).share == (0.5 if divided else 1.0)


#: With another rule, under which pool 2 can be pinned.
MIXED = replace(HYBRID, _dumped_rules={**HYBRID._dumped_rules, 1: {
    'rule_id': 1, 'rule_name': 'r1', 'steps': [{'op': 'take', 'item': -1}, {
        'op': 'chooseleaf_indep', 'num': 0, 'type': 'host'}, {'op': 'emit'}]}})


@pytest.mark.parametrize('pins, moving, limit, most, text', [
    (1, 2, 5, 1, '2 PGs that the change moves cannot be pinned (limit 1, '),
    (2, 3, 1, 2, 'the change requires 2 pins (limit 1, max_pins); '),
    (3, 2, 2, 1, '2 PGs that the change moves cannot be pinned (limit 1, ')])
def test_the_limit_that_is_exceeded_most_counts(pins: int, moving: int, limit: int, most: int,
                                                text: str) -> None:
    future = Future({**{'1.%d' % seed: FuturePg((0, 1, 4), (0, 1, 5)) for seed in range(moving)},
                     **{'2.%d' % seed: FuturePg(HERE, THERE) for seed in range(pins)}}, MIXED)
    draft = join(turn(WANTED, campaign={'pace': Pace(pgs=most)}, outlook=future,
                      options=replace(OPTIONS, max_pins=limit),
                      pools={2: replace(POOLS[2], crush_rule=1)}))
    (code, found), = because(draft)
    assert code == 'OUTLOOK' and found.startswith(text)


def test_whether_a_change_can_be_divided() -> None:
    uneven = replace(WANTED, closing=True)
    for change, divisible in ((WANTED, True), (uneven, False), (None, False), (MapChange(), False)):
        assert is_divisible(campaign_with(change), BEFORE) is divisible


@pytest.mark.parametrize('limit, pins, burst', [(1, {}, 1), (2, {}, 0), (1, {'1.0': PIN}, 0)])
def test_a_change_with_more_pins_than_an_epoch_takes_comes_in_bursts(
        monkeypatch: pytest.MonkeyPatch, limit: int, pins: Any, burst: int) -> None:
    monkeypatch.setattr(joining, 'MAX_BURST_PINS', limit)
    draft = join(turn(WANTED, pins, outlook=TWO, entries={pgid: PINNED for pgid in pins}))
    assert change_in(draft) == replace(WANTED, burst=burst, gathers=not burst)
    assert because(draft) == [('OUTLOOK', 'the change requires 2 pins, too many for one epoch; '
                               'changing fewer OSDs at a time') if burst else (
                                   'SETTINGS', INTERVAL)]


def test_upmaps_that_a_rollback_restores_count_for_an_epoch(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, 'MAX_BURST_PINS', 1)
    pins = {pgid: replace(PIN, before=OTHER) for pgid in ('1.0', '1.1')}
    future = Future({pgid: FuturePg((5, 1, 2), HERE) for pgid in pins}, AFTER)
    draft = join(turn(WANTED, pins, outlook=future, entries=dict.fromkeys(pins, PINNED),
                      campaign={'rollback': Rollback(begun=True)}))
    assert change_in(draft).burst == 1


HALF = replace(LANDED, share=0.5, step={3: 0.5, 4: 0.5}, following=1)


@pytest.mark.parametrize('change, weights, following', [
    (HALF, {3: 0.5, 4: 0.5}, {3: 1.0, 4: 1.0}), (HALF, {3: 0.5, 4: 0.75}, {3: 1.0}),
    (HALF, {3: 0.25, 4: 0.75}, None), (LANDED, {3: 1.0, 4: 1.0}, None),
    (MapChange(), {3: 0.5, 4: 0.5}, None), (None, {}, None)])
def test_the_next_tranche(change: Any, weights: Dict[int, float], following: Any) -> None:
    found = following_tranche(turn(change, crush=crush({**WEIGHTS, **weights}, hosts=8)))
    assert (None if found is None else found.weights) == following
    if found is not None:
        assert (found.tranche, found.reached) == (1, HALF.step)


# ---- sending

def test_weights_and_pins_are_sent_together() -> None:
    draft = join(turn(outlook=TWO))
    assert draft.actions == (SetWeight(3, 1.0), SetWeight(4, 1.0), SetEntry(
        '1.0', PINNED, NO_ENTRY), SetEntry('1.1', UpmapEntry(((4, 0),)), NO_ENTRY))
    assert draft.new_pins == {'1.0': PIN, '1.1': PinRecord(NO_ENTRY, UpmapEntry(((4, 0),)))}
    fingerprint, tunables = WANTED.expected(draft.observed)
    assert change_in(draft) == replace(WANTED, stage=ChangeStage.SENT, since=NOW, times=1,
                                       fingerprint=fingerprint, tunables=tunables)
    assert draft.campaign.pinning.sent == {'1.0': Sent(NOW), '1.1': Sent(NOW)}
    assert draft.campaign.pinning.sent_at == NOW and draft.reasons == ()
    assert draft.campaign.crush.own == 5 and draft.campaign.orders.accepted_unpinnable == 0
    assert [(event.kind, event.what, event.why) for event in draft.events] == [(
        'join', 'changing CRUSH and pinning 2 PGs in one OSDMap epoch',
        '0 of them with pg_upmap')]
    again = join(turn(replace(READY, times=2), outlook=TWO))
    assert change_in(again).times == 3


def test_crush_that_others_have_changed_before_is_not_the_campaigns() -> None:
    assert join(turn(crush_version=6)).campaign.crush.own == -1


def test_pins_that_are_there_already() -> None:
    """What a release leads to stays, and no command is sent for an entry that
    is in force."""
    old = PinRecord(OTHER, PINNED, was=VECTOR)
    moved = Future({'1.0': FuturePg(HERE, (4, 1, 2))}, AFTER)
    draft = join(turn(pins={'1.0': old}, entries={'1.0': PINNED}, outlook=moved))
    assert entries_sent(draft) == {'1.0': UpmapEntry(((3, 0), (4, 0)))}
    assert draft.new_pins['1.0'] == PinRecord(OTHER, UpmapEntry(((4, 0),)), was=VECTOR,
                                              earlier=PINNED)
    # An upmap to a drained OSD.
    drained = Future({'1.0': FuturePg((5, 1, 2), HERE)}, AFTER)
    draft = join(turn(replace(READY, drained=(5,)), entries={'1.0': OTHER}, outlook=drained))
    assert entries_sent(draft) == {} and draft.campaign.pinning.sent == {}
    assert draft.new_pins == {'1.0': PinRecord(NO_ENTRY, OTHER, was=OTHER)}
    assert draft.campaign.pinning.sent_at == NOW


def test_pins_are_not_released_to_osds_that_are_drained_now() -> None:
    pins = {'1.0': replace(PIN, before=OTHER), '1.2': replace(PIN, before=OTHER), '1.3': PIN}
    draft = join(turn(replace(READY, drained=(5,)), pins, outlook=replace(FUTURE, pgs={}),
                      entries=dict.fromkeys(pins, PINNED)))
    assert draft.new_pins == {'1.0': PIN, '1.2': PIN}
    assert join(turn(pins=pins, outlook=replace(FUTURE, pgs={}), entries=dict.fromkeys(
        pins, PINNED))).new_pins == {}


@pytest.mark.parametrize('most, closing, before, unpinned, accepted', [
    (2, False, 0, 2, 2), (1, False, 0, 0, 0), (2, False, 5, 2, 5), (2, True, 0, 0, 0)])
def test_pgs_that_a_tranche_moves_without_pins_are_accepted(
        most: int, closing: bool, before: int, unpinned: int, accepted: int) -> None:
    change = replace(READY, closing=closing)
    draft = turn(change, campaign={'accepted_unpinnable': before}, outlook=UNPINNED,
                 options=replace(OPTIONS, max_pgs_in_flight=most))
    found = joining._send(draft, change)
    assert change_in(found).unpinned == unpinned
    assert found.campaign.orders.accepted_unpinnable == accepted


def test_a_change_that_would_do_harm_ends() -> None:
    """Too many PGs of the pool would be remapped."""
    rule = replace(RULE, gathers=True, passes=9)
    draft = join(turn(rule, outlook=replace(UNPINNED, finals={})))
    assert draft.campaign.phase is Phase.ABORTING and draft.actions == ()
    assert '2 PGs of pool p would be remapped by the new CRUSH rule' in whys(draft)[0]


#: PG 1.0 leaves OSD 0, which is out, and 1.1 lacks an OSD: neither can be pinned.
IN_PLACE = replace(RULE, passes=1)
RECOVERING = Future({'1.0': FuturePg(HERE, THERE), '1.1': FuturePg((1, 2), THERE)}, AFTER,
                    finals={'1.2': (5, 1, 2)})
OUT: Dict[str, Any] = {'osds': {0: Osd(0, True, 0.0)}, 'evacuation': {'1.0': (0,)},
                       'pools': {1: replace(POOLS[1], pg_num=200, pg_num_target=200,
                                            pg_num_pending=200)},
                       'acting': {'1.0': HERE, '1.1': (1, 2)}, 'up': dict.fromkeys(
                           ('1.0', '1.1'), THERE)}
UNDERSIZED = ('DEGRADED', '1 PG is undersized and would be remapped by the change; waiting until '
              'the OSDs are back or the PGs have recovered ("campaign accept DEGRADED" changes '
              'CRUSH anyway)')
LEAVING = ('UNCLEAN', '1 PG is leaving OSDs that are to be emptied (osd.0) and would be remapped '
           'by the change; waiting until no such PG is left')


def recovering(*pgids: str) -> Future:
    return replace(RECOVERING, finals={}, pgs={pgid: RECOVERING.pgs[pgid] for pgid in pgids})


@pytest.mark.parametrize('outlook, fields, reasons', [
    (recovering('1.0', '1.1'), {}, [UNDERSIZED, LEAVING]),
    # One of 200 PGs may be remapped.
    (recovering('1.0'), {}, []), (recovering('1.1'), {}, []),
    (recovering('1.0'), {'pools': {}}, [LEAVING]), (recovering('1.1'), {'pools': {}}, [UNDERSIZED]),
    # The operator has accepted that PGs lack an OSD, or PG 1.1 by its name.
    (recovering('1.1'), {'pools': {}, 'campaign': {'acknowledged': ('DEGRADED',)}}, []),
    (recovering('1.1'), {'pools': {}, 'campaign': {'undersized_pgs': ('1.1',)}}, []),
    (recovering('1.0', '1.1'), {'campaign': {'acknowledged': ('DEGRADED',)}}, []),
    (recovering('1.0', '1.1'), {'pools': {}, 'campaign': {'acknowledged': ('DEGRADED',)}},
     [LEAVING])])
@pytest.mark.parametrize('gathers, passes', [(False, 0), (False, 1), (True, 1)])
def test_a_change_whose_pgs_have_moved_waits_for_pgs_that_cannot_be_pinned_yet(
        outlook: Future, fields: Dict[str, Any], reasons: List[Tuple[str, str]],
        gathers: bool, passes: int) -> None:
    change = replace(IN_PLACE, gathers=gathers, passes=passes)
    every: Any = {**OUT, 'outlook': outlook, **fields}
    draft = join(turn(change, **every))
    assert draft.campaign.phase is Phase.PINNING
    if reasons:
        assert because(draft) == reasons and change_in(draft) == replace(change, gathers=False)
    elif gathers:
        # What it awaits does not count as harm, however many they are.
        assert change_in(draft).stage is ChangeStage.SENT
    else:
        assert because(draft) == [('SETTINGS', INTERVAL)]


def test_pgs_that_recovery_does_not_help_end_the_change_nevertheless() -> None:
    """PG 1.3 is complete, and its OSD is out, but it does not leave that."""
    future = replace(recovering('1.1'), pgs={
        '1.1': RECOVERING.pgs['1.1'], '1.3': FuturePg((1, 2, 0), THERE)})
    fields: Any = {**OUT, 'pools': {}, 'campaign': {'acknowledged': ('DEGRADED',)}}
    draft = join(turn(replace(IN_PLACE, gathers=True), outlook=future, **fields))
    assert draft.campaign.phase is Phase.ABORTING
    assert '1 PG of pool p would be remapped by the new CRUSH rule, such as PG 1.3' \
        in whys(draft)[-1]


@pytest.mark.parametrize('passes, waits', [(0, False), (1, True)])
def test_a_further_pass_moves_all_of_them_at_once(passes: int, waits: bool) -> None:
    """They recover one after the other, and each would take a pass. The first one waits for
    none: most PGs have not moved yet."""
    outlook = replace(RECOVERING, pgs={**RECOVERING.pgs, '1.2': FuturePg((4, 1, 2), THERE)})
    draft = join(turn(replace(RULE, passes=passes), outlook=outlook, **OUT))
    assert draft.campaign.phase is (Phase.PINNING if waits else Phase.PINNED)
    assert because(draft) == ([UNDERSIZED, LEAVING] if waits else [])


def test_a_flag_of_others_that_keeps_what_a_change_waits_for_is_named() -> None:
    fields: Any = {**OUT, 'pools': {}, 'outlook': recovering('1.0')}
    draft = join(turn(IN_PLACE, campaign={'holds': Holds()}, **fields))
    assert because(draft)[0] == LEAVING and because(draft)[1][0] == 'FOREIGN_FLAG'


def test_a_change_on_its_way_is_sent_again_whatever_recovers() -> None:
    """The first one may still arrive, and norebalance, which is set for it, keeps PGs on the
    OSD."""
    change = replace(IN_PLACE, rule=PoolRule(1, 1), times=1, gathers=True)
    fields: Any = {**OUT, 'pools': {}, 'outlook': recovering('1.0', '1.1')}
    draft = join(turn(change, **fields))
    assert change_in(draft).stage is ChangeStage.SENT and change_in(draft).times == 2


def test_upmaps_that_a_change_makes_unnecessary_become_pins() -> None:
    """They are removed once it is read back."""
    rule = replace(RULE, gathers=True, passes=9)
    future = replace(MOVING, finals={}, pgs={pgid: FuturePg((5, 1, 2), (5, 1, 2))
                                             for pgid in ('1.0', '1.1')})
    entries = dict.fromkeys(('1.0', '1.1', '1.2'), OTHER)
    known = PinRecord(NO_ENTRY, OTHER)
    draft = join(turn(rule, {'1.1': known}, outlook=future, entries=entries,
                      up={'1.0': (5, 1, 2)}, acting={'1.0': (5, 1, 2)}))
    assert draft.new_pins == {'1.0': known} and change_in(draft).stage is ChangeStage.SENT
    back = join(turn(rule, outlook=future, entries=entries, campaign={
        'rollback': Rollback(begun=True)}))
    assert back.new_pins == {}
    # One that CRUSH places elsewhere is pinned by the same upmap.
    needed = join(turn(rule, outlook=replace(future, pgs={'1.0': FuturePg((5, 1, 2), HERE)}),
                       entries=entries))
    assert needed.new_pins == {'1.0': known} and needed.actions[1:] == ()
    assert events_of(needed)[0][1] == 'changing CRUSH and pinning 1 PG in one OSDMap epoch'


def test_the_pins_that_the_tool_thread_has_planned_are_sent() -> None:
    planned = Planned({'1.4': PIN})
    draft = join(turn(outlook=PlannedFuture({'1.4': FuturePg(HERE, HERE)}, AFTER,
                                            planned=planned)))
    assert entries_sent(draft) == {'1.4': PINNED} and draft.new_pins == {'1.4': PIN}


# ---- a rollback

def test_a_rollback_restores_entries() -> None:
    """The pin is not needed with CRUSH as it was. Until that is read back, its
    record stays, and the entry serves both maps."""
    pin = PinRecord(OTHER, PINNED)
    future = Future({'1.0': FuturePg((5, 1, 2), HERE)}, BEFORE)
    draft = join(turn(pins={'1.0': pin}, outlook=future, crush=AFTER, entries={'1.0': PINNED},
                      acting={'1.0': (5, 1, 2)}, up={'1.0': (0, 1, 2)},
                      campaign={'rollback': Rollback(begun=True)}))
    assert entries_sent(draft) == {'1.0': OTHER} and draft.unpins == set()
    # The weight 0 that ends it restores nothing.
    closing = replace(CLOSING, weights={3: 0.0}, drained=(3,))
    for change, noted in ((READY, ['1.0']), (closing, [])):
        draft = join(turn(change, {'1.0': pin}, crush=TINY, entries={'1.0': PINNED}, campaign={
            'rollback': Rollback(begun=True)}))
        assert list(draft.new_pins) == noted and change_in(draft).stage is ChangeStage.SENT


def test_a_vector_stays_for_the_epoch_of_a_rollback() -> None:
    """It hides then where CRUSH places the PG, so the goal shows what follows."""
    vector = UpmapEntry(vector=(5, 1, 2))
    future = Future({'1.0': FuturePg((5, 1, 2), HERE)}, BEFORE)
    draft = join(turn(pins={'1.0': PinRecord(OTHER, vector)}, outlook=future, crush=AFTER,
                      entries={'1.0': vector}, campaign={'rollback': Rollback(begun=True)}))
    assert entries_sent(draft) == {}
    assert draft.new_pins == {'1.0': PinRecord(OTHER, vector, goal=OTHER)}


# ---- aborts

@pytest.mark.parametrize('change, fields, late', [
    (SENT, {'now': 1001.5}, True), (SENT, {'now': 1001.0}, False), (None, {'now': 1e6}, False),
    (WANTED, {'now': 1e6}, False), (LANDED, {'now': 1e6}, False),
    (replace(WANTED, times=1), {'now': 1e6}, False),
    (replace(WANTED, times=1), {'now': 1e6, 'phase': Phase.ABORTING}, True),
    (SENT, {'now': 1001.5, 'campaign': {'phase_since': 996.0}}, False),
    (SENT, {'now': 1001.5, 'unanswered_at': 996.0}, False),
    (replace(SENT, since=900.0), {'now': 1001.5, 'unanswered_at': 995.0}, True)])
def test_when_a_change_is_overdue(change: Any, fields: Dict[str, Any], late: bool) -> None:
    draft = turn(change, **fields)
    assert change_is_overdue(draft.campaign, draft.observed, OPTIONS) is late


def test_a_change_that_the_mons_have_accepted_is_never_overdue() -> None:
    split = PgNumChange(step=PoolPgs(1, 16, 8), stage=ChangeStage.SENT, since=900.0, times=1)
    target = {'pools': {1: replace(POOLS[1], pg_num_target=16, pgp_num_target=8)}}
    for fields, late in ((target, False), ({}, True)):
        draft = turn(split, **fields)  # type: ignore[arg-type]
        assert change_is_overdue(draft.campaign, draft.observed, OPTIONS) is late


@pytest.mark.parametrize('change', [None, WANTED, LANDED])
def test_an_abort_leaves_a_change_that_is_not_on_its_way(change: Any) -> None:
    draft = turn(change, phase=Phase.ABORTING, now=1e6)
    assert settle_change(draft) is draft


def test_an_abort_reads_a_change_back() -> None:
    sent = replace(SENT, since=900.0)
    landed = settle_change(turn(sent, phase=Phase.ABORTING, crush=AFTER))
    assert change_in(landed).stage is ChangeStage.LANDED
    waiting = turn(SENT, phase=Phase.ABORTING)
    assert settle_change(waiting) is waiting
    back = settle_change(turn(sent, {'1.0': PIN}, phase=Phase.ABORTING, campaign={
        'sent': {'1.0': Sent(900.0)}}))
    assert change_in(back) == replace(sent, stage=ChangeStage.WANTED, times=0)
    assert back.unpins == {'1.0'}
    merge = PgNumChange(step=PoolPgs(1, 6, 6), stage=ChangeStage.SENT, times=1, since=NOW)
    merging: Any = {'pools': {1: replace(POOLS[1], pg_num_target=6, pg_num_pending=7)}}
    stopped = settle_change(turn(merge, phase=Phase.ABORTING, **merging,
                                 campaign={'phase_since': NOW - OPTIONS.readback_timeout}))
    assert stopped.actions and change_in(stopped) != merge
    # They take their time for the last pair, or the mons refuse to stop it.
    merging_last: Any = {'pools': {1: replace(
        POOLS[1], pg_num_target=7, pgp_num=7, pgp_num_target=7, pg_num_pending=7)}}
    last = settle_change(turn(merge, phase=Phase.ABORTING, **merging_last, campaign={
        'phase_since': NOW - OPTIONS.readback_timeout - 0.1}))
    assert not change_in(last).pending and 'two PGs are still being merged' in whys(last)
    given_up = settle_change(turn(merge, phase=Phase.ABORTING, **merging,
                                  campaign={'phase_since': NOW - OPTIONS.readback_timeout - 0.1}))
    assert given_up.actions == () and not change_in(given_up).pending
    assert 'the mons refused to stop it' in whys(given_up)


@pytest.mark.parametrize('pin, present, forgotten, noted', [
    # Planned for the mapping that is not in force.
    (PIN, NO_ENTRY, True, {}), (replace(PIN, before=OTHER), OTHER, True, {}),
    (replace(PIN, was=OTHER), OTHER, True, {}),
    # It is in force, or an earlier pin still is.
    (PIN, PINNED, False, {}), (PIN, OTHER, False, {'1.0': OTHER}), (None, OTHER, False, {})])
def test_a_burst_that_is_taken_back(pin: Optional[PinRecord], present: UpmapEntry, forgotten: bool,
                                    noted: Dict[str, UpmapEntry]) -> None:
    sent = replace(SENT, since=900.0, times=9)
    draft = join(turn(sent, {} if pin is None else {'1.0': pin}, entries={'1.0': present},
                      campaign={'sent': {'1.0': Sent(900.0)}}))
    assert draft.unpins == ({'1.0'} if forgotten else set())
    assert {pgid: record.entry for pgid, record in draft.new_pins.items()} == noted
    assert change_in(draft).times == 0 and draft.actions == ()
    assert draft.campaign.pinning.sent == {}


def test_pins_that_were_removed_with_a_rollback_return() -> None:
    pins = {'1.0': PIN, '1.1': replace(PIN, goal=OTHER), '1.2': PIN}
    draft = join(turn(replace(SENT, since=900.0, times=9), pins, entries={
        '1.1': OTHER, '1.2': PINNED}, campaign={
            'rollback': Rollback(begun=True), 'sent': {'1.5': Sent(900.0)}}))
    assert entries_sent(draft) == {'1.0': PINNED, '1.1': PINNED}
    assert draft.new_pins['1.1'].goal is None and set(draft.new_pins) == {'1.1'}
    assert draft.campaign.pinning.sent == {'1.0': Sent(NOW), '1.1': Sent(NOW)}


@pytest.mark.parametrize('change, fields, after', [
    (None, {}, None), (LANDED, {}, LANDED),
    (WANTED, {}, WeightChange(stage=ChangeStage.LANDED)),
    # A part of it is in force.
    (replace(WANTED, done=(7,)), {}, replace(WANTED, done=(7,))),
    (WANTED, {'crush': crush({**WEIGHTS, 4: 0.0}, hosts=8)}, replace(WANTED, done=(3,))),
    (CLOSING, {'crush': crush({**WEIGHTS, 3: 0.0, 5: TINY_WEIGHT}, hosts=8)}, replace(
        CLOSING, weights={3: 0.0}, done=(3,), gathers=False, stage=ChangeStage.LANDED))])
def test_what_an_abort_leaves_of_a_change(change: Any, fields: Dict[str, Any], after: Any) -> None:
    draft = keep_part_in_force(turn(change, phase=Phase.ABORTING, **fields))
    assert change_in(draft) == after
    assert whys(draft) == (['the campaign was aborted'] if change is CLOSING else [])
    assert events_of(draft) == ([('join', STAY % 'osd.5')] if change is CLOSING else [])


# ---- pins that are unnecessary

BACK: Dict[str, Any] = {'rollback': Rollback(begun=True)}


def landed(pins: Mapping[str, PinRecord], change: Any = SENT, **fields: Any) -> Draft:
    fields = {'crush': AFTER, 'campaign': BACK, **fields}
    return join(turn(change, pins, **fields))


@pytest.mark.parametrize('pin, fields, sent, unpinned', [
    # CRUSH places the PG there without its pin, or with the entry from before.
    (PIN, {'entries': {'1.0': UpmapEntry(((7, 6),))}}, NO_ENTRY, True),
    (replace(PIN, before=OTHER), {
        'up': {'1.0': (5, 1, 2)}, 'acting': {'1.0': (5, 1, 2)},
        'entries': {'1.0': UpmapEntry(((0, 5), (7, 6)))}}, OTHER, True),
    (PIN, {}, None, True),
    # It needs the pin, is remapped, or is gone.
    (PIN, {'entries': {'1.0': PINNED}}, None, False), (PIN, {'temp': ['1.0']}, None, False),
    (PIN, {'acting': {'1.0': (4, 1, 2)}, 'temp': []}, None, False),
    (PIN, {'without': ['1.0']}, None, False), (PIN, {'without': ['pool 1']}, None, False),
    # Its pin is on its way.
    (PIN, {'campaign': {**BACK, 'sent': {'1.0': Sent(NOW)}}}, None, False)])
def test_pins_that_a_change_in_force_makes_unnecessary(
        pin: PinRecord, fields: Dict[str, Any], sent: Optional[UpmapEntry],
        unpinned: bool) -> None:
    draft = landed({'1.0': pin}, **fields)
    assert entries_sent(draft) == ({} if sent is None else {'1.0': sent})
    assert ('1.0' in draft.unpins) is unpinned
    if unpinned:
        assert ('join', '1 pin removed') == events_of(draft)[0]
        assert whys(draft)[0] == 'CRUSH places the PGs there without them'
        assert draft.campaign.pinning.sent_at == NOW
    # Only a change that removes upmaps does.
    assert '1.0' not in landed({'1.0': pin}, **{**fields, 'campaign': {}}).unpins


def test_no_upmap_to_a_drained_osd_remains() -> None:
    pins = {'1.0': replace(PIN, before=OTHER)}
    fields: Dict[str, Any] = {'up': {'1.0': (5, 1, 2)}, 'acting': {'1.0': (5, 1, 2)},
                              'entries': {'1.0': OTHER}}
    assert landed(pins, replace(SENT, drained=(5,)), **fields).unpins == set()
    assert landed(pins, replace(SENT, drained=(6,)), **fields).unpins == {'1.0'}


def test_pins_that_are_awaited_remain_so() -> None:
    pins = {'1.0': PIN, '1.1': PIN, '1.2': PIN}
    draft = landed(pins, campaign={**BACK, 'sent': {
        '1.1': Sent(990.0), '1.2': Sent(990.0), '1.5': Sent(990.0)}}, entries={'1.2': PINNED},
        new_map=False, now=994.0)
    assert draft.unpins == {'1.0'}
    assert draft.campaign.pinning.sent == {'1.1': Sent(990.0)}


def test_a_vector_that_hides_where_crush_places_a_pg_leaves_its_goal() -> None:
    pin = PinRecord(NO_ENTRY, VECTOR, goal=OTHER)
    fields: Dict[str, Any] = {'entries': {'1.0': VECTOR}}
    assert entries_sent(landed({'1.0': pin}, **fields)) == {'1.0': OTHER}
    assert landed({'1.0': replace(pin, goal=None)}, **fields).unpins == set()


# ---- pairs of earlier tranches

THIRD = replace(LANDED, tranche=1, ahead={'1.0': Led(NO_ENTRY, PINNED)})


def needless(change: Any = THIRD, pins: Mapping[str, PinRecord] = {}, **fields: Any) -> Draft:
    """The first pair of PG 1.0 has no effect any longer: CRUSH places it on 3,
    0 and 1."""
    fields = {'crush': AFTER, 'phase': Phase.RELEASING, 'entries': {'1.0': UpmapEntry(
        ((3, 0), (1, 6)))}, 'up': {'1.0': (3, 0, 6)}, 'acting': {'1.0': (3, 0, 6)}, **fields}
    return remove_needless_pairs(turn(change, pins, **fields))


def test_pairs_without_effect_are_removed() -> None:
    draft = needless()
    assert entries_sent(draft) == {'1.0': UpmapEntry(((1, 6),))}
    assert change_in(draft) == replace(THIRD, removing=NOW)
    # Others remain: of the campaign if they have an effect, of others in any case.
    ours = replace(THIRD, ahead={'1.0': Led(NO_ENTRY, UpmapEntry(((3, 0), (1, 6))))})
    pairs = {'1.0': UpmapEntry(((3, 0), (1, 6), (7, 4)))}
    assert entries_sent(needless(ours, entries=pairs)) == {'1.0': UpmapEntry(((1, 6), (7, 4)))}
    again = needless(replace(THIRD, removing=990.0), now=990.0 + 18.0)
    assert entries_sent(again) and change_in(again).removing == 990.0
    # What the mons do not remove for long is left.
    late = needless(replace(THIRD, removing=990.0), now=990.5 + 18.0)
    assert late.actions == () and change_in(late).removing == 990.0


@pytest.mark.parametrize('change, pins, fields', [
    (replace(THIRD, tranche=0), {}, {}), (replace(THIRD, stage=ChangeStage.SENT), {}, {}),
    (MapChange(stage=ChangeStage.LANDED, ahead=THIRD.ahead), {}, {}), (None, {}, {}),
    # Not its own pair, or one from before.
    (replace(THIRD, ahead={'1.0': Led(NO_ENTRY, OTHER)}), {}, {}),
    (replace(THIRD, ahead={'1.0': Led(PINNED, PINNED)}), {}, {}),
    (THIRD, {'1.0': PIN}, {}), (THIRD, {}, {'without': ['1.0']}), (THIRD, {}, {'temp': ['1.0']}),
    (THIRD, {}, {'acting': {'1.0': (3, 0, 7)}, 'temp': []}),
    # It takes effect, or a vector hides whether it does.
    (THIRD, {}, {'entries': {'1.0': PINNED}, 'up': {}, 'acting': {}}),
    (THIRD, {}, {'entries': {'1.0': UpmapEntry(((3, 0),), vector=(3, 0, 6))}})])
def test_pairs_that_remain(change: Any, pins: Any, fields: Dict[str, Any]) -> None:
    draft = needless(change, pins, **fields)
    assert draft.actions == () and draft.new_pins == {}


@pytest.mark.parametrize('change, target, present, pins', [
    ({}, 'crush', VECTOR, {'1.1': PinRecord(OTHER, VECTOR)}), ({}, 'balanced', VECTOR, {}),
    ({'share': 0.5}, 'crush', VECTOR, {}), ({}, 'crush', PINNED, {})])
def test_pgs_that_were_led_by_vectors_are_released_like_pins(
        change: Dict[str, Any], target: str, present: UpmapEntry, pins: Any) -> None:
    """After the last tranche, and unless they end there."""
    ahead = {'1.1': Led(OTHER, VECTOR), '1.2': Led(NO_ENTRY, PINNED)}
    draft = needless(replace(THIRD, ahead=ahead, **change), campaign={'target': target},
                     entries={'1.1': present, '1.2': PINNED}, up={}, acting={})
    assert draft.new_pins == pins and draft.actions == ()


# ---- entries for both maps

def entries(present: UpmapEntry = NO_ENTRY, **fields: Any) -> Draft:
    fields = {'entries': {'1.0': present}, 'up': {'1.0': HERE}, 'acting': {'1.0': HERE}, **fields}
    return turn(**fields)


#: CRUSH places the PG on 6, 1, 2 now, and on 3, 1, 2 then.
PRESENT, BOTH = UpmapEntry(((6, 0),)), UpmapEntry(((6, 0), (3, 0)))


def test_an_entry_that_keeps_a_pg_in_place_under_both_maps() -> None:
    assert entry_for_both_maps(entries(PRESENT), '1.0', PINNED, FUTURE) == BOTH
    assert bridging_entry(entries(PRESENT), '1.0', PINNED, FUTURE) == BOTH
    assert entry_for_both_maps(entries(PINNED), '1.0', PINNED, FUTURE) == PINNED
    # Nothing to keep; the mons would keep another entry; or the order is another.
    assert entry_for_both_maps(entries(), '1.0', PINNED, FUTURE) == PINNED
    assert entry_for_both_maps(entries(PRESENT), '1.0', VECTOR, FUTURE) == VECTOR
    stays = Future({'1.0': FuturePg(HERE, (6, 1, 3))}, AFTER)
    assert entry_for_both_maps(entries(PRESENT), '1.0', UpmapEntry(((3, 2),)), stays) == UpmapEntry(
        ((3, 2),))
    gone = entries(PRESENT, without=['1.0'])
    assert entry_for_both_maps(gone, '1.0', PINNED, FUTURE) == PINNED
    # The mons refuse more pairs than the PG has OSDs.
    small = entries(PRESENT, pools={1: replace(POOLS[1], size=1)})
    assert bridging_entry(small, '1.0', PINNED, FUTURE) == PINNED
    two = entries(PRESENT, pools={1: replace(POOLS[1], size=2)}, up={'1.0': (0, 1)},
                  acting={'1.0': (0, 1)})
    assert bridging_entry(two, '1.0', PINNED, Future(
        {'1.0': FuturePg((0, 1), (3, 1))}, AFTER)) == BOTH
    hidden = entries(UpmapEntry(((6, 0),), vector=HERE))
    assert bridging_entry(hidden, '1.0', PINNED, FUTURE) == PINNED


def test_the_present_entry_bridges_if_it_survives() -> None:
    assert bridging_entry(entries(PINNED), '1.0', OTHER, FUTURE) == PINNED


@pytest.mark.parametrize('sent, hides', [(PINNED, False), (VECTOR, True), (NO_ENTRY, True)])
def test_whether_an_entry_hides_where_crush_places_a_pg(sent: UpmapEntry, hides: bool) -> None:
    assert hides_raw(entries(), '1.0', sent, FUTURE) is hides
