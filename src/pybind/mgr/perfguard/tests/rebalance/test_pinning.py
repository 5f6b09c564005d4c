# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which PGs are pinned in a turn, and what becomes of pins that the OSDMap does not show."""
from dataclasses import replace
from typing import Any, Dict, List, Optional, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.types import (NO_ENTRY, NO_OSD, OsdSet, PgCounts, Placement, Signals,
                                     UpmapEntry)
from perfguard.errors import Code
from perfguard.ledger import Held
from perfguard.rebalance import pinning
from perfguard.rebalance.campaign import TRIAL_KEPT, TRIAL_REFUSED, Campaign
from perfguard.rebalance.change import ChangeStage
from perfguard.rebalance.draft import Draft
from perfguard.rebalance.moves import Move
from perfguard.rebalance.pinning import (DOWN_SECONDS, audit, is_mixture, is_still, kept_on_osds,
                                         outlast_out, pin_decision, pin_remapped,
                                         pinned_after_recovery, unpinnable_excess,
                                         unpinned_warning)
from perfguard.rebalance.types import (NOREBALANCE_KEY, Flight, Holds, Phase, PinRecord, Sent,
                                       SetEntry)
from perfguard.rebalance.weights import WeightChange
from perfguard.text import pgs
from perfguard.upmap.pins import (BEYOND_LIMIT, DEGRADED, DROPPED_BY_MON, INCOMPLETE,
                                  Unpinnable)

from ..fakes.campaigns import campaign_of
from ..fakes.drafts import (CRUSH, HERE, HYBRID, NOW, OPTIONS, OSDS, PIN, PINNED, POOLS, THERE,
                            draft_of, events_of)
from .test_orders import crush as crush_of

PG = '1.0'
OTHERS = UpmapEntry(((3, 5),))
MOVING: Dict[str, Any] = {'up': {PG: THERE}}
IN_PLACE: Dict[str, Any] = {}
STILL: Dict[str, Any] = {'flags': ['norebalance']}
DOWN = {7: replace(OSDS[7], up=False)}
OUT = {0: replace(OSDS[0], reweight=0.0)}
LEGAL = Unpinnable('another reason')


def pinning_of(phase: Phase = Phase.PINNING, **changes: Any) -> Campaign:
    return campaign_of(1, phase, 900.0, **{'refused_crush': 0, **changes})


# ---- pins that lead from OSDs that are down

LONG_AGO = NOW - DOWN_SECONDS
THREE_DOWN = {3: replace(OSDS[3], up=False)}
VECTOR = UpmapEntry(vector=HERE)


def outlasting(pin: PinRecord = PIN, phase: Phase = Phase.PINNED, changed_at: float = LONG_AGO,
               campaign: Dict[str, Any] = {}, **cluster: Any) -> Draft:
    cluster.setdefault('osds', THREE_DOWN)
    cluster.setdefault('entries', {PG: pin.entry})
    return outlast_out(draft_of(
        pinning_of(phase, **campaign), {PG: pin}, osds_or_crush_changed=changed_at,
        moves={PG: Move(PG, (0,), (3,), 0, 1)}, **cluster))


@pytest.mark.parametrize('phase', [Phase.PINNED, Phase.RELEASING, Phase.HOLDING, Phase.ABORTED])
def test_pins_become_vectors_before_osds_are_marked_out(phase: Phase) -> None:
    after = outlasting(replace(PIN, goal=OTHERS), phase)
    pin = PinRecord(NO_ENTRY, VECTOR, raw=THERE, goal=OTHERS, earlier=PINNED)
    assert after.new_pins == {PG: pin} and after.actions == (SetEntry(PG, VECTOR, PINNED),)
    assert after.campaign.pinning.sent == {PG: Sent(NOW)}


@pytest.mark.parametrize('down_since, becomes', [
    ({3: LONG_AGO}, True), ({3: LONG_AGO + 1.0}, False), ({4: LONG_AGO}, False), ({}, False)])
def test_only_osds_that_are_down_for_long_matter_if_others_change(down_since: Dict[int, float],
                                                                  becomes: bool) -> None:
    after = outlasting(changed_at=NOW, down_since=down_since)
    assert bool(after.new_pins) == bool(after.actions) == becomes


@pytest.mark.parametrize('pin, case', [
    (PIN, {'phase': Phase.PINNING}), (PIN, {'phase': Phase.FINISHING}),
    (PIN, {'changed_at': LONG_AGO + 1.0}), (PIN, {'osds': {}}), (PIN, {'osds': DOWN}),
    (PIN, {'osds': {3: replace(OSDS[3], up=False, reweight=0.0)}}),
    (replace(PIN, entry=VECTOR), {}), (replace(PIN, goal=PINNED), {}),
    (PIN, {'campaign': {'in_flight': {PG: Flight(NOW, NO_ENTRY)}}}),
    (PIN, {'campaign': {'sent': {PG: Sent(NOW)}}}), (PIN, {'entries': {PG: OTHERS}}),
    (PIN, {'up': {PG: THERE}}), (PIN, {'temp': [PG]}),
    (PIN, {'up': {PG: (0, 1)}, 'acting': {PG: (0, 1)}}), (PIN, {'without': ['pool 1']}),
    # It breaks the rule of the pool.
    (PIN, {'crush': crush_of(dict.fromkeys(OSDS, 1.0), hosts=2)})])
def test_pins_that_do_not_become_vectors(pin: PinRecord, case: Dict[str, Any]) -> None:
    after = outlasting(pin, **case)
    assert not after.new_pins and not after.actions


def test_pgs_whose_pins_are_vectors_are_not_mapped_each_turn() -> None:
    """It takes 20 us for each of them, for as long as the OSDs are down."""
    def unread(pgid: str) -> Placement:
        raise AssertionError(pgid)

    draft = outlasting(replace(PIN, entry=VECTOR))
    unread_draft = replace(draft, observed=replace(draft.observed, placement=unread))
    assert not outlast_out(unread_draft).actions


def test_pins_become_vectors_in_batches() -> None:
    pgids = ['1.%d' % seed for seed in range(5)]
    after = outlast_out(draft_of(
        pinning_of(Phase.PINNED), dict.fromkeys(pgids, PIN), osds=THREE_DOWN,
        entries=dict.fromkeys(pgids, PINNED), osds_or_crush_changed=LONG_AGO,
        moves={pgid: Move(pgid, (0,), (3,), 0, 1) for pgid in pgids},
        options=replace(OPTIONS, pin_batch=3)))
    assert list(after.new_pins) == pgids[:3]


# ---- pins that were sent

def confirmed(pin: Optional[PinRecord] = PIN, times: int = 1, since: float = 993.5,
              campaign: Dict[str, Any] = {}, **cluster: Any) -> Draft:
    cluster.setdefault('new_map', False)
    before = draft_of(pinning_of(sent={PG: Sent(since, times)}, **campaign),
                      {} if pin is None else {PG: pin}, **cluster)
    return audit(before)


AGAIN = (SetEntry(PG, PINNED, NO_ENTRY),)
TWO = replace(PIN, entry=UpmapEntry(((3, 0), (4, 1))))
PART = UpmapEntry(((4, 1),))


@pytest.mark.parametrize('since, cluster, expected', [
    (990.0, {'entries': {PG: PINNED}}, 'shown'), (994.0, MOVING, 'awaited'),
    (993.5, MOVING, 'again'), (993.5, IN_PLACE, 'forgotten'), (994.0, IN_PLACE, 'awaited'),
    (993.5, {'temp': [PG]}, 'nothing'), (993.5, {'up': {PG: THERE}, 'temp': []}, 'again'),
    (993.5, {'without': [PG]}, 'nothing'), (993.5, {'without': ['pool 1']}, 'gone'),
    (993.5, {**MOVING, 'osds': OUT}, 'forgotten'),
    (993.5, {**MOVING, 'entries': {PG: OTHERS}}, 'others'),
    (993.5, {'entries': {PG: OTHERS}}, 'forgotten'), (994.0, {'entries': {PG: OTHERS}}, 'awaited')])
def test_what_becomes_of_a_pin_that_was_sent(since: float, cluster: Dict[str, Any],
                                             expected: str) -> None:
    after = confirmed(since=since, **cluster)
    assert after.campaign.pinning.sent == {
        'awaited': {PG: Sent(since)}, 'again': {PG: Sent(NOW, 2)},
        'nothing': {PG: Sent(NOW, 2)}}.get(expected, {})
    assert after.unpins == ({PG} if expected in ('forgotten', 'others') else frozenset())
    assert after.actions == (AGAIN if expected == 'again' else ())
    assert events_of(after) == ([('pins', 'the pin of PG 1.0 was replaced outside perfguard')]
                                if expected == 'others' else [])
    assert not after.campaign.pinning.unpinnable


def test_a_pin_without_a_record_is_not_awaited() -> None:
    after = confirmed(pin=None, since=999.0)
    assert not after.campaign.pinning.sent and not after.actions


def test_a_pin_in_force_needs_no_earlier_entry() -> None:
    earlier = replace(PIN, earlier=OTHERS)
    assert confirmed(earlier, entries={PG: PINNED}).new_pins == {PG: PIN}
    assert not confirmed(PIN, entries={PG: PINNED}).new_pins
    # The earlier one is ours as well.
    assert confirmed(earlier, up={PG: (5, 1, 2)}, entries={PG: OTHERS}).actions == (
        SetEntry(PG, PINNED, OTHERS),)


@pytest.mark.parametrize('entry, expected', [
    (PART, PART), (NO_ENTRY, None), (OTHERS, None), (PINNED, PINNED)])
def test_of_a_needless_pin_the_rest_is_noted(entry: UpmapEntry,
                                             expected: Optional[UpmapEntry]) -> None:
    after = confirmed(replace(TWO, raw=THERE), entries={PG: entry})
    assert after.unpins == (frozenset() if expected else {PG})
    assert after.new_pins == ({PG: replace(TWO, entry=expected, earlier=None)} if expected else {})
    # What a release sets needs no record.
    for pin in (replace(TWO, before=PART), replace(TWO, goal=PART)):
        assert confirmed(pin, entries={PG: PART}).unpins == {PG}


def test_a_vector_that_arrives_late_is_no_upmap_of_others() -> None:
    """It was awaited in vain, so the pin that it was to replace counts again."""
    pin = PinRecord(NO_ENTRY, VECTOR, raw=THERE, earlier=PINNED)
    given_up = PinRecord(NO_ENTRY, PINNED, earlier=VECTOR)
    after = confirmed(pin, entries={PG: PINNED})
    assert after.new_pins == {PG: given_up} and not after.campaign.pinning.sent
    # Other changes of the record do not forget it.
    other_goal = replace(given_up, goal=OTHERS)
    assert draft_of(pinning_of(), {PG: given_up}, entries={PG: PINNED}).note_pins(
        {PG: other_goal}).new_pins == {PG: other_goal}
    # The vector arrives, with the pairs or without them.
    for entry in (VECTOR, UpmapEntry(PINNED.items, HERE)):
        late = audit(draft_of(pinning_of(), {PG: given_up}, entries={PG: entry}))
        assert late.new_pins[PG].entry == entry and not late.unpins and not late.events
    again = outlasting(given_up)
    assert again.new_pins == {PG: pin} and again.actions == (SetEntry(PG, VECTOR, PINNED),)


@pytest.mark.parametrize('unanswered_at, awaited', [(994.0, True), (993.5, False)])
def test_pins_are_awaited_from_when_the_mons_last_answered(unanswered_at: float,
                                                           awaited: bool) -> None:
    after = confirmed(since=900.0, unanswered_at=unanswered_at, **IN_PLACE)
    assert after.campaign.pinning.sent == ({PG: Sent(900.0)} if awaited else {})
    assert after.unpins == (frozenset() if awaited else {PG})


@pytest.mark.parametrize('times, cluster, expected', [
    (1, MOVING, ''), (2, MOVING, 'unpinnable'), (3, MOVING, 'unpinnable'),
    (2, {**MOVING, 'evacuation': {PG: (1,)}}, 'let_go')])
def test_a_pin_that_the_mons_do_not_keep(times: int, cluster: Dict[str, Any],
                                         expected: str) -> None:
    after = confirmed(replace(PIN, goal=OTHERS), times, campaign={'let_go': frozenset({'1.7'})},
                      **cluster)
    state = after.campaign.pinning
    assert state.unpinnable == ({PG: DROPPED_BY_MON} if expected == 'unpinnable' else {})
    assert state.let_go == ({PG, '1.7'} if expected == 'let_go' else {'1.7'})
    assert after.actions == ((SetEntry(PG, OTHERS, NO_ENTRY),) if expected else AGAIN)
    assert after.unpins == ({PG} if expected else frozenset())
    assert state.sent == ({} if expected else {PG: Sent(NOW, 2)})
    assert [(event.kind, event.what, event.why) for event in after.events] == (
        [('unpinnable', 'PG %s cannot be pinned' % PG, DROPPED_BY_MON.reason)] if expected else [])


@pytest.mark.parametrize('number, evacuated', [(8, 0), (8, 3), (8, 8), (2, 0), (3, 0)])
def test_pins_that_the_mons_do_not_keep_are_reported_together(
        monkeypatch: pytest.MonkeyPatch, number: int, evacuated: int) -> None:
    """The log of events has room for some hundred."""
    monkeypatch.setattr(pinning, 'REPORTED_UNPINNABLE', 2)
    pgids = ['1.%d' % seed for seed in range(number)]
    after = audit(draft_of(
        pinning_of(sent={pgid: Sent(980.0, 2) for pgid in pgids}), dict.fromkeys(pgids, PIN),
        up=dict.fromkeys(pgids, THERE), evacuation=dict.fromkeys(pgids[:evacuated], (1,)),
        new_map=False))
    events = [('unpinnable', 'PG %s cannot be pinned' % pgid) for pgid in pgids[:2]]
    if number > 2:
        events.append(('unpinnable', '%s more cannot be pinned' % pgs(number - 2)))
    assert events_of(after) == events and after.events[0].why == DROPPED_BY_MON.reason
    state = after.campaign.pinning
    assert state.let_go == set(pgids[:evacuated]) and not state.sent
    assert state.unpinnable == dict.fromkeys(pgids[evacuated:], DROPPED_BY_MON)
    assert after.unpins == set(pgids) and len(after.actions) == number


def test_a_pin_is_sent_again_where_the_pg_is_now() -> None:
    assert confirmed(up={PG: (3, 4, 2)}).new_pins[PG].entry.items == ((3, 0), (4, 1))
    # No pin can be planned by now.
    after = confirmed(**MOVING, acting={PG: (0, 1, 1)})
    assert after.actions == AGAIN and not after.new_pins


@pytest.mark.parametrize('change, phase, looks', [
    (None, Phase.PINNING, True), (WeightChange(), Phase.PINNING, True),
    (WeightChange(stage=ChangeStage.SENT), Phase.PINNING, False),
    (WeightChange(stage=ChangeStage.SENT), Phase.ABORTED, True)])
def test_pins_are_not_compared_while_the_change_is_on_its_way(
        change: Optional[WeightChange], phase: Phase, looks: bool) -> None:
    before = draft_of(replace(pinning_of(phase), change=change), {PG: PIN}, entries={PG: OTHERS})
    after = audit(before)
    assert (after is not before) == looks == (after.unpins == {PG})


# ---- pins that the OSDMap does not show any more

@pytest.mark.parametrize('pin, cluster, expected', [
    (PIN, {'entries': {PG: PINNED}}, ''), (PIN, {}, 'forgotten'),
    (replace(PIN, goal=OTHERS), {'entries': {PG: OTHERS}}, 'forgotten'),
    (replace(PIN, goal=OTHERS), {}, 'forgotten'),
    (PIN, {'entries': {PG: PINNED}, 'without': ['pool 1']}, 'without PG'),
    (PIN, {'entries': {PG: PINNED}, 'pools': {1: replace(POOLS[1], pg_num=0)}}, 'without PG'),
    (replace(PIN, before=OTHERS), {}, 'removed'), (PIN, {'entries': {PG: OTHERS}}, 'replaced'),
    (TWO, {'entries': {PG: PART}}, 'remains'), (PIN, {'new_map': False}, '')])
def test_pins_that_the_osdmap_does_not_show(pin: PinRecord, cluster: Dict[str, Any],
                                            expected: str) -> None:
    after = audit(draft_of(pinning_of(), {PG: pin}, **cluster))
    assert after.unpins == (frozenset() if expected in ('', 'remains') else {PG})
    assert [what for _, what in events_of(after)] == {
        'without PG': ['1 pin no longer needed'],
        'removed': ['1 pin removed outside perfguard'],
        'replaced': ['1 pin replaced outside perfguard']}.get(expected, [])
    assert after.new_pins == ({PG: replace(TWO, entry=PART)} if expected == 'remains' else {})


def test_pins_on_their_way_are_not_looked_for() -> None:
    known: List[Dict[str, Any]] = [{'in_flight': {PG: Flight(NOW, NO_ENTRY)}},
                                   {'sent': {PG: Sent(NOW)}}]
    for changes in known:
        before = draft_of(pinning_of(**changes), {PG: PIN, '1.1': PIN, '1.2': PIN},
                          entries={'1.1': PINNED, '1.2': OTHERS})
        assert audit(before).unpins == {'1.2'}
    forgotten = draft_of(pinning_of(), {PG: PIN}, entries={PG: OTHERS}).forget_pins([PG])
    assert audit(forgotten) == forgotten


def test_lost_pins_are_reported_together() -> None:
    pins = {**dict.fromkeys(('1.1', '1.0'), replace(PIN, before=PINNED, entry=OTHERS)),
            **dict.fromkeys(('1.3', '1.2'), PIN)}
    after = audit(draft_of(pinning_of(), pins, entries={'1.2': OTHERS, '1.3': OTHERS}))
    assert [(event.what, event.why) for event in after.events] == [
        ('2 pins removed outside perfguard', 'by a command, or by the mons after a change of '
         'CRUSH: 1.0, 1.1'),
        ('2 pins replaced outside perfguard', 'perfguard leaves them alone: 1.2, 1.3')]


OUT = {osd: replace(OSDS[osd], reweight=0.0) for osd in (0, 3)}


@pytest.mark.parametrize('entry, out, by_mons', [
    (PINNED, (3,), True), (PINNED, (0,), True), (PINNED, (), False),
    (UpmapEntry(((4, 5),)), (0,), False),
    # The mons keep a vector.
    (UpmapEntry(vector=HERE), (0,), False)])
def test_pins_that_the_mons_drop_when_an_osd_is_out(entry: UpmapEntry, out: Tuple[int, ...],
                                                    by_mons: bool) -> None:
    pin = PinRecord(OTHERS, entry)
    after = audit(draft_of(pinning_of(), {PG: pin}, osds={osd: OUT[osd] for osd in out}))
    event, = after.events
    assert event.what == ('1 pin removed by the mons' if by_mons
                          else '1 pin removed outside perfguard')
    assert not by_mons or event.why == (
        'they keep no upmap item of an OSD that is out (osd.%d): 1.0' % out[0])


def test_why_pins_are_gone_is_reported_for_each_reason() -> None:
    pins = {'1.0': PinRecord(OTHERS, PINNED), '1.1': PinRecord(OTHERS, UpmapEntry(((4, 0),))),
            '1.2': PinRecord(OTHERS, UpmapEntry(((6, 5),))), '1.9': PinRecord(OTHERS, PINNED)}
    after = audit(draft_of(pinning_of(), pins, osds=OUT))
    assert [(event.what, event.why) for event in after.events] == [
        ('1 pin no longer needed', 'pools were removed, or PGs were merged: 1.9'),
        ('2 pins removed by the mons',
         'they keep no upmap item of an OSD that is out (osd.0, osd.3): 1.0, 1.1'),
        ('1 pin removed outside perfguard',
         'by a command, or by the mons after a change of CRUSH: 1.2')]


@pytest.mark.parametrize('removes, goal', [(False, None), (True, OTHERS)])
def test_the_goal_of_a_part_of_a_pin(removes: bool, goal: Optional[UpmapEntry]) -> None:
    """A rollback sends it together with the rest."""
    campaign = pinning_of(begun=removes)
    pin = replace(TWO, goal=OTHERS, raw=THERE)
    after = audit(draft_of(campaign, {PG: pin}, entries={PG: PART}))
    assert after.new_pins == {PG: replace(pin, entry=PART, raw=None, goal=goal)}


@pytest.mark.parametrize('entry, is_part', [
    (PART, True), (UpmapEntry(((4, 1), (3, 5))), True),
    (UpmapEntry(((3, 0), (4, 1), (3, 5))), True), (UpmapEntry(((4, 1), (3, 6))), False),
    (UpmapEntry(PART.items, HERE), False), (UpmapEntry(((6, 2),)), True)])
def test_what_is_a_part_of_a_pin(entry: UpmapEntry, is_part: bool) -> None:
    """With pairs of what its release sets, or of the entry that it has replaced."""
    pin = replace(TWO, before=OTHERS, earlier=UpmapEntry(((6, 2),)))
    after = audit(draft_of(pinning_of(), {PG: pin}, entries={PG: entry}))
    assert (PG in after.new_pins) == is_part == (PG not in after.unpins)


@pytest.mark.parametrize('present, ours, expected', [
    (NO_ENTRY, (PINNED,), True), (UpmapEntry(vector=HERE), (PINNED,), False),
    (UpmapEntry(vector=HERE), (PINNED, UpmapEntry(vector=HERE)), True),
    (UpmapEntry(((3, 0), (4, 1))), (PINNED,), False),
    (UpmapEntry(((3, 0), (4, 1))), (PINNED, PART), True),
    (PINNED, (UpmapEntry(vector=HERE),), False),
    (PINNED, (UpmapEntry(PINNED.items, HERE),), True)])
def test_mixtures_of_entries(present: UpmapEntry, ours: Tuple[UpmapEntry, ...],
                             expected: bool) -> None:
    assert is_mixture(present, *ours) == expected


@pytest.mark.parametrize('pin, expected', [
    (replace(PIN, before=UpmapEntry(((3, 9), (4, 5)))), {'before': UpmapEntry(((4, 5),))}),
    (replace(PIN, goal=UpmapEntry(((3, 9),))), {'goal': NO_ENTRY}),
    (replace(PIN, was=UpmapEntry(((3, 9),)), goal=OTHERS), {'was': NO_ENTRY}),
    (replace(PIN, before=OTHERS, goal=OTHERS, was=OTHERS), {})])
def test_no_release_leads_to_a_purged_osd(pin: PinRecord, expected: Dict[str, UpmapEntry]) -> None:
    after = audit(draft_of(pinning_of(), {PG: pin}, entries={PG: PINNED}))
    assert after.new_pins == ({PG: replace(pin, **expected)} if expected else {})
    assert events_of(after) == ([(
        'pins', '1 PG will be released without an upmap to an OSD that was purged')]
        if expected else [])


def test_a_forgotten_pin_to_a_purged_osd_is_not_noted_again() -> None:
    pin = replace(PIN, goal=UpmapEntry(((3, 9),)))
    assert not audit(draft_of(pinning_of(), {PG: pin}, entries={PG: OTHERS})).new_pins


# ---- the pins of a turn

def remapped(campaign: Campaign, number: int = 3, **cluster: Any) -> Draft:
    """So many PGs of the replicated pool move."""
    up = {'1.%x' % seed: THERE for seed in range(number)}
    cluster.setdefault('flags', ['norebalance'])
    return pin_remapped(draft_of(campaign, up=up, **cluster))


def with_options(**changes: Any) -> Dict[str, Any]:
    return {'options': replace(OPTIONS, **changes)}


PEERING: Dict[str, Any] = {'signals': Signals(PgCounts(total=16, in_transition=2),
                                              {1: PgCounts(), 2: PgCounts()})}


@pytest.mark.parametrize('changes, cluster, pinned, left', [
    ({}, {}, 3, 0), ({}, with_options(pin_batch=2), 2, 1), ({}, with_options(pin_batch=3), 3, 0),
    ({'sent': {'1.7': Sent(NOW)}}, with_options(pin_batch=2), 1, 2),
    ({'sent': {'1.7': Sent(NOW)}}, {**PEERING, **with_options(pin_batch=3)}, 1, 2),
    ({'sent_at': 970.0}, {**PEERING, **with_options(pin_batch=2)}, 0, 3),
    ({'sent_at': 969.5}, {**PEERING, **with_options(pin_batch=2)}, 2, 1),
    ({'sent_at': 969.5}, {**PEERING, **with_options(pin_batch=3)}, 1, 2),
    ({'sent_at': 969.5, 'sent': {'1.7': Sent(NOW)}},
     {**PEERING, **with_options(pin_batch=2)}, 0, 3),
    ({'in_flight': {'1.0': Flight(NOW, NO_ENTRY)}}, {}, 2, 0),
    ({'sent': {'1.0': Sent(NOW)}}, {}, 2, 0),
    ({}, {'flags': []}, 0, 3), ({'given_up': frozenset({NOREBALANCE_KEY})}, {'flags': []}, 3, 0),
    ({'blocked': 985.0}, {'flags': []}, 3, 0), ({'blocked': 986.0}, {'flags': []}, 0, 3),
    ({}, with_options(max_pins=1), 2, 1), ({}, with_options(max_pins=2), 3, 0),
    ({'acknowledged': (Code.PIN_LIMIT,)}, with_options(max_pins=1), 3, 0)])
def test_how_many_pgs_are_pinned(changes: Dict[str, Any], cluster: Dict[str, Any], pinned: int,
                                 left: int) -> None:
    changes = dict(changes)
    after = remapped(pinning_of(changes.pop('phase', Phase.PINNING), **changes), **cluster)
    assert (len(after.new_pins), len(after.actions), after.to_pin) == (pinned, pinned, left)
    sent = {pgid for pgid, sent in after.campaign.pinning.sent.items()}
    assert sent == set(after.new_pins) | set(changes.get('sent', ()))
    assert events_of(after) == ([] if not pinned else [
        ('pin', 'pinning %d PG%s' % (pinned, 's' if pinned > 1 else ''))])
    limited = [reason.code for reason in after.reasons] == [Code.PIN_LIMIT]
    assert limited == bool(after.reasons) == (cluster == with_options(max_pins=1) and left == 1)
    if pinned:
        assert after.campaign.pinning.sent_at == NOW
        assert after.new_pins[max(after.new_pins)] == PIN


@pytest.mark.parametrize('batch, pinned, beyond, left', [(3, 2, 1, 0), (1, 1, 0, 2)])
def test_an_abort_waits_for_no_operator_to_accept_more_pins(batch: int, pinned: int, beyond: int,
                                                            left: int) -> None:
    after = remapped(pinning_of(Phase.ABORTING), **with_options(max_pins=1, pin_batch=batch))
    assert (len(after.new_pins), after.to_pin, after.reasons) == (pinned, left, ())
    assert list(after.campaign.pinning.unpinnable.values()) == [BEYOND_LIMIT] * beyond


def test_pins_of_others_count_for_the_limit() -> None:
    pins = {'1.6': PIN, '1.7': PIN}
    after = pin_remapped(draft_of(pinning_of(), pins, up={PG: THERE, '1.1': THERE, '1.2': THERE},
                                  **STILL, **with_options(max_pins=2)))
    assert len(after.new_pins) == 2 and after.to_pin == 1
    assert '2 PGs are pinned, and 1 PG is not: ' in after.reasons[0].text
    assert '5 pins and 0 other upmaps' in after.reasons[0].text
    over = pin_remapped(draft_of(pinning_of(), {**pins, '1.5': PIN}, up={PG: THERE}, **STILL,
                                 **with_options(max_pins=1)))
    assert not over.new_pins and over.to_pin == 1


@pytest.mark.parametrize('phase, pinned', [
    (Phase.PINNING, 0), (Phase.PINNED, 2), (Phase.RELEASING, 2), (Phase.HOLDING, 2),
    (Phase.ABORTING, 0)])
def test_a_lower_limit_freezes_no_releases(phase: Phase, pinned: int) -> None:
    """After one of 3 PGs was released, others remap 3: the limit of 1 pin is for the next
    tranche."""
    after = pin_remapped(draft_of(
        pinning_of(phase, begun_with=2), {'1.6': PIN, '1.7': PIN},
        up={PG: THERE, '1.1': THERE, '1.2': THERE}, **STILL, **with_options(max_pins=1)))
    assert len(after.new_pins) == pinned
    assert after.to_pin == (0 if phase is Phase.ABORTING else 3 - pinned)


@pytest.mark.parametrize('why, changes, cluster, expected', [
    (None, {}, {}, 'pinned'), (DEGRADED, {}, {}, 'pinned'), (LEGAL, {}, {}, 'pinned'),
    (LEGAL, {}, {'new_map': False}, 'stays'), (DEGRADED, {}, {'new_map': False}, 'pinned'),
    (DROPPED_BY_MON, {}, {}, 'stays'), (DROPPED_BY_MON, {}, {'crush_version': 1}, 'pinned'),
    (LEGAL, {}, {'new_map': False, 'crush_version': 1}, 'pinned'),
    (INCOMPLETE, {}, {}, 'pinned')])
def test_a_pg_that_could_not_be_pinned_is_tried_again(
        why: Optional[Unpinnable], changes: Dict[str, Any], cluster: Dict[str, Any],
        expected: str) -> None:
    unpinnable = {} if why is None else {PG: why}
    after = remapped(pinning_of(unpinnable=unpinnable), 1, **cluster)
    assert (PG in after.new_pins) == (expected == 'pinned')
    assert after.campaign.pinning.unpinnable == ({} if expected == 'pinned' else unpinnable)
    assert after.campaign.pinning.refused_crush == cluster.get('crush_version', 0)


@pytest.mark.parametrize('why, others, expected', [
    (LEGAL, 2, 'pinned'), (LEGAL, 3, 'stays'), (INCOMPLETE, 3, 'pinned')])
def test_not_all_of_very_many_are_planned_again(monkeypatch: pytest.MonkeyPatch, why: Unpinnable,
                                                others: int, expected: str) -> None:
    monkeypatch.setattr(pinning, 'PLANNED_AGAIN', 3)
    known = {PG: why, **{'2.%x' % seed: LEGAL for seed in range(others)}}
    after = remapped(pinning_of(unpinnable=known), 1)
    assert (PG in after.new_pins) == (expected == 'pinned')


def test_new_unpinnable_pgs_are_reported() -> None:
    acting = {'1.%x' % seed: (0, 1, 1) for seed in range(8)}
    acting.update({'2.%x' % seed: (0, 1, 1) for seed in range(4)})
    known = {'1.7': DEGRADED}
    after = pin_remapped(draft_of(pinning_of(unpinnable=known), up=dict.fromkeys(acting, THERE),
                                  acting=acting, **STILL))
    assert set(after.campaign.pinning.unpinnable) == set(acting)
    events = events_of(after)
    assert events == [('unpinnable', 'PG %s cannot be pinned' % pgid)
                      for pgid in sorted(set(acting) - {'1.7'})[:10]] + [
        ('unpinnable', '1 PG more cannot be pinned')]
    assert after.events[0].why == DEGRADED.reason
    del acting['2.3']
    after = pin_remapped(draft_of(pinning_of(unpinnable=known), up=dict.fromkeys(acting, THERE),
                                  acting=acting, **STILL))
    assert len(after.events) == 10


# ---- PGs of an evacuation

LEAVING: Dict[str, Any] = {'up': {PG: (3, 4, 2)}, 'evacuation': {PG: (0,)}}


@pytest.mark.parametrize('changes, cluster, expected', [
    ({}, LEAVING, 'pinned'), ({}, {**LEAVING, 'up': {PG: THERE}}, ''),
    ({}, {**LEAVING, 'evacuation': {PG: HERE}}, ''), ({}, {**LEAVING, 'without': [PG]}, ''),
    ({}, {**LEAVING, 'without': ['pool 1'], 'temp': [PG]}, ''),
    ({'let_go': frozenset({PG})}, LEAVING, 'let_go'),
    ({'let_go': frozenset({PG})}, {**LEAVING, 'crush_version': 1}, 'pinned'),
    ({}, {**LEAVING, 'acting': {PG: (0, 1, 1)}}, 'let_go'),
    ({}, {**LEAVING, **with_options(pin_batch=1), 'signals': PEERING['signals']}, 'later'),
    ({}, {**LEAVING, 'acting': {PG: (0, 1, NO_OSD)}, 'up': {PG: (3, 1, 2)}}, '')])
def test_the_other_shards_of_a_pg_that_leaves_an_osd(
        changes: Dict[str, Any], cluster: Dict[str, Any], expected: str) -> None:
    after = pin_remapped(draft_of(pinning_of(**changes, sent_at=NOW), **STILL, **cluster))
    assert bool(after.new_pins) == bool(after.actions) == (expected == 'pinned')
    assert after.campaign.pinning.let_go == ({PG} if expected == 'let_go' else frozenset())
    assert after.to_pin == (expected == 'later') and not after.campaign.pinning.unpinnable
    if expected == 'pinned':
        assert after.new_pins[PG].entry == UpmapEntry(((3, 1),))


def test_evacuated_pgs_count_for_the_limits_as_well() -> None:
    both = {PG: (3, 4, 2), '1.1': (3, 4, 2)}
    for options, left in ((with_options(pin_batch=1), 1), (with_options(max_pins=1), 0)):
        after = pin_remapped(draft_of(pinning_of(), {'1.7': PIN}, up=both, evacuation=dict.fromkeys(
            both, (0,)), **STILL, **options))
        assert (len(after.new_pins), after.to_pin) == (1, left)


@pytest.mark.parametrize('up, acting, moves', [
    ((3, 1, 2), (0, 1, 2), False), ((3, 4, 2), (0, 1, 2), True),
    ((3, 4, 2), (0, NO_OSD, 2), False), ((3, 2, 1), (0, 1, 2), True)])
def test_shards_of_an_erasure_code_that_move_with_those_that_must(up: OsdSet, acting: OsdSet,
                                                                  moves: bool) -> None:
    after = pin_remapped(draft_of(pinning_of(), up={'2.0': up}, acting={'2.0': acting},
                                  evacuation={'2.0': (0,)}, **STILL))
    assert bool(after.new_pins or after.campaign.pinning.let_go) == moves


# ---- how a PG is pinned

@pytest.mark.parametrize('phase, cluster, reason', [
    (Phase.PINNING, MOVING, None), (Phase.PINNING, {'temp': [PG]}, None),
    (Phase.PINNING, {'up': {PG: (1, 0, 2)}}, None),
    (Phase.PINNING, {**MOVING, 'without': [PG]}, None),
    (Phase.PINNING, {**MOVING, 'without': ['pool 1'], 'temp': []}, None),
    (Phase.PINNING, {**MOVING, 'pools': {1: replace(POOLS[1], pg_num_pending=0)}},
     Unpinnable('')),
    (Phase.PINNING, {'up': {PG: (1, 2)}}, INCOMPLETE),
    (Phase.RELEASING, {'up': {PG: (1, 2)}, 'osds': DOWN}, DEGRADED),
    (Phase.HOLDING, {'up': {PG: (1, 2)}, 'osds': DOWN}, DEGRADED),
    (Phase.PINNING, {'up': {PG: (1, 2)}, 'osds': DOWN}, None),
    (Phase.RELEASING, {**MOVING, 'osds': DOWN}, None),
    # Not as many OSDs as the pool's size serve it, or each of them has a degraded PG.
    (Phase.PINNING, {'up': {PG: THERE}, 'acting': {PG: (0, 1, 1)}}, DEGRADED),
    (Phase.PINNING, {'up': {PG: THERE}, 'acting': {PG: (0, 0, NO_OSD)}}, DEGRADED),
    (Phase.PINNING, {**MOVING, 'osds': OUT}, Unpinnable('')),
    (Phase.PINNING, {**MOVING, 'osds': OUT, 'degraded_osds': frozenset({0, 1, 2})}, DEGRADED),
    (Phase.PINNING, {**MOVING, 'osds': OUT, 'degraded_osds': frozenset({0, 1})}, Unpinnable(''))])
def test_why_a_pg_cannot_be_pinned(phase: Phase, cluster: Dict[str, Any],
                                   reason: Optional[Unpinnable]) -> None:
    decision = pin_decision(draft_of(pinning_of(phase), **cluster), PG)
    assert decision.reason == reason and decision.pgid == PG
    nothing = reason is not None or 'without' in cluster or cluster in (
        {'temp': [PG]}, {'up': {PG: (1, 0, 2)}})
    assert (decision.action is None) == (decision.pin is None) == nothing


OLD = replace(PIN, goal=OTHERS, raw=(7, 6, 5), was=OTHERS)
VECTOR = UpmapEntry(vector=(0, 1, 2))


@pytest.mark.parametrize('pin, cluster, expected', [
    (None, MOVING, PIN), (None, {**MOVING, 'osds': DOWN}, PIN),
    # Its entry from before: of drained OSDs, or against the rule, nothing is restored.
    (None, {**MOVING, 'entries': {PG: UpmapEntry(((4, 3),))}},
     PinRecord(UpmapEntry(((4, 3),)), UpmapEntry(((4, 0),)))),
    # Its record stays, with the goal while the entry is the same.
    (OLD, MOVING, replace(OLD, raw=None)),
    (OLD, {'up': {PG: (3, 4, 2)}}, PinRecord(NO_ENTRY, UpmapEntry(((3, 0), (4, 1))), was=OTHERS))])
def test_the_record_of_a_pin(pin: Optional[PinRecord], cluster: Dict[str, Any],
                             expected: PinRecord) -> None:
    decision = pin_decision(draft_of(pinning_of(), {} if pin is None else {PG: pin}, **cluster), PG)
    assert decision.pin == expected and decision.action is not None
    assert decision.action.entry == expected.entry and not decision.forgets


def test_the_raw_set_is_noted_behind_a_vector() -> None:
    erasure: Dict[str, Any] = {'up': {'2.0': (1, 0, 2)}, 'acting': {'2.0': HERE}}
    pin = pin_decision(draft_of(pinning_of(), **erasure), '2.0').pin
    assert pin == PinRecord(NO_ENTRY, VECTOR, raw=(1, 0, 2))
    # While an OSD may be missing from it, it is not known.
    lacking: Dict[str, Any] = {'up': {'2.0': (1, 0, NO_OSD)}, 'acting': {'2.0': HERE}}
    pin = pin_decision(draft_of(pinning_of(), **lacking, osds=DOWN), '2.0').pin
    assert pin == PinRecord(NO_ENTRY, VECTOR)
    pin = pin_decision(draft_of(pinning_of(), **lacking), '2.0').pin
    assert pin == PinRecord(NO_ENTRY, VECTOR, raw=(1, 0, NO_OSD))


def test_a_pin_that_equals_the_entry_from_before_is_none() -> None:
    present = UpmapEntry(((3, 5),))
    pin = PinRecord(PINNED, present)
    decision = pin_decision(draft_of(pinning_of(), {PG: pin}, up={PG: (5, 1, 2)},
                                     entries={PG: present}), PG)
    assert decision.forgets and decision.pin is None
    assert decision.action == SetEntry(PG, PINNED, present)


@pytest.mark.parametrize('drained, crush, before', [
    ((), CRUSH, OTHERS), ((5,), CRUSH, NO_ENTRY),
    ((), crush_of(dict.fromkeys(OSDS, 1.0), hosts=4), NO_ENTRY)])
def test_what_a_release_restores(drained: OsdSet, crush: CrushRules, before: UpmapEntry) -> None:
    """The present upmap, unless it leads to a drained OSD or to one on the host of another."""
    campaign = pinning_of(change=WeightChange(drained=drained))
    decision = pin_decision(draft_of(campaign, up={PG: (5, 1, 2)}, entries={PG: OTHERS},
                                     crush=crush), PG)
    assert decision.pin == PinRecord(before, PINNED)


@pytest.mark.parametrize('present, sent, expected', [
    (NO_ENTRY, NO_ENTRY, NO_ENTRY), (NO_ENTRY, OTHERS, NO_ENTRY),
    (NO_ENTRY, UpmapEntry(vector=HERE), UpmapEntry(vector=HERE)),
    (UpmapEntry(vector=THERE), UpmapEntry(vector=HERE), UpmapEntry(vector=THERE)),
    (OTHERS, PINNED, OTHERS)])
def test_what_may_stay_beside_a_pin(present: UpmapEntry, sent: UpmapEntry,
                                    expected: UpmapEntry) -> None:
    """An earlier pin, which the mons may still have in their queue."""
    assert pinning._with_late(present, sent, PINNED) == expected
    late = pinning._with_late(NO_ENTRY, OTHERS, UpmapEntry(vector=HERE))
    assert late == OTHERS
    assert pinning._with_late(NO_ENTRY, UpmapEntry(vector=THERE), UpmapEntry(vector=HERE)) \
        == NO_ENTRY


# ---- rules under which the mons are expected to cancel upmaps

RULE = HYBRID.checksum(0)
TWO_MOVE: Dict[str, Any] = {'up': {pgid: (3, 1, 4) for pgid in (PG, '1.1')},
                            'acting': {pgid: (0, 1, 4) for pgid in (PG, '1.1')}, 'crush': HYBRID}


@pytest.mark.parametrize('changes, cluster, tried', [
    ({}, {}, True), ({'phase': Phase.ABORTING}, {}, False), ({}, {'mons_alike': False}, False),
    ({'trials': {RULE: TRIAL_REFUSED}}, {}, False), ({'trials': {7: TRIAL_REFUSED}}, {}, True)])
def test_one_pg_tries_a_rule(changes: Dict[str, Any], cluster: Dict[str, Any],
                             tried: bool) -> None:
    changes = dict(changes)
    campaign = pinning_of(changes.pop('phase', Phase.PINNING), **changes)
    after = pin_remapped(draft_of(campaign, **STILL, **TWO_MOVE, **cluster))
    trials = changes.get('trials', {})
    assert after.campaign.pinning.trials == ({**trials, RULE: PG} if tried else trials)
    assert set(after.new_pins) == ({PG} if tried else set())
    assert set(after.campaign.pinning.unpinnable) == ({'1.1'} if tried else {PG, '1.1'})


def test_a_pg_that_cannot_be_pinned_anyway_tries_no_rule() -> None:
    for acting in ((0, 1, 2), (0, 0, 4)):
        after = pin_remapped(draft_of(pinning_of(), up={PG: (3, 1, 4)}, acting={PG: acting},
                                      crush=HYBRID, **STILL))
        assert not after.campaign.pinning.trials and not after.new_pins


KEEPS = ('pins', 'the mons keep upmaps under the CRUSH rule of PG 1.0')


@pytest.mark.parametrize('since, cluster, result', [
    (990.0, {'entries': {PG: PINNED}}, TRIAL_KEPT),
    (990.0, {'entries': {PG: PINNED}, 'crush': CRUSH}, TRIAL_REFUSED),
    (999.0, MOVING, PG), (993.0, IN_PLACE, TRIAL_REFUSED), (993.0, MOVING, TRIAL_REFUSED),
    (993.0, {'without': ['pool 1']}, TRIAL_REFUSED)])
def test_the_result_of_a_trial(since: float, cluster: Dict[str, Any], result: str) -> None:
    campaign = pinning_of(sent={PG: Sent(since, 2)}, trials={RULE: PG, 5: 'kept'},
                          refused_crush=7)
    crush = cluster.get('crush', HYBRID)
    after = audit(draft_of(campaign, {PG: PIN}, **dict(cluster, crush=crush)))
    state = after.campaign.pinning
    assert state.trials == {RULE: result, 5: 'kept'}
    assert state.refused_crush == (-1 if result == TRIAL_KEPT else 7)
    assert (KEEPS in events_of(after)) == (result == TRIAL_KEPT)
    assert after.observed.crush.keeps_upmaps(0, 3) == (
        result == TRIAL_KEPT or cluster.get('crush') is CRUSH)


def test_a_pin_under_another_rule_says_nothing_about_the_one_that_was_tried() -> None:
    campaign = pinning_of(sent={PG: Sent(990.0)}, trials={5: PG})
    after = audit(draft_of(campaign, {PG: PIN}, crush=HYBRID, entries={PG: PINNED}))
    assert after.campaign.pinning.trials == {5: TRIAL_REFUSED}
    # A PG that tries nothing leaves the trials as they are.
    campaign = pinning_of(sent={PG: Sent(990.0)}, trials={RULE: '1.5'})
    after = audit(draft_of(campaign, {PG: PIN}, crush=HYBRID, entries={PG: PINNED}))
    assert after.campaign.pinning.trials == {RULE: '1.5'}


@pytest.mark.parametrize('evacuated', [False, True])
def test_a_pin_that_is_cancelled_under_a_kept_rule_ends_that(evacuated: bool) -> None:
    campaign = pinning_of(sent={PG: Sent(993.0, 2)}, trials={RULE: TRIAL_KEPT, 5: TRIAL_KEPT})
    proven = HYBRID.with_upmaps_kept_under(frozenset({RULE}))
    moving: Dict[str, Any] = {**MOVING, 'crush': proven}
    draft = draft_of(campaign, {PG: PIN}, **moving)
    if evacuated:
        draft = replace(draft, observed=replace(draft.observed, evacuation={PG: (0,)}))
    state = audit(draft).campaign.pinning
    assert state.trials == {RULE: TRIAL_REFUSED, 5: TRIAL_KEPT} and state.kept_rules == {5}
    assert (PG in state.let_go) is evacuated is (PG not in state.unpinnable)


def test_a_trial_ends_with_the_entry_that_it_was_about() -> None:
    """CRUSH places the PG elsewhere by now, and it gets another pin."""
    campaign = pinning_of(sent={PG: Sent(993.0)}, trials={RULE: PG})
    same, other = ((3, 1, 4), PG), ((3, 2, 4), TRIAL_REFUSED)
    for up, result in (same, other):
        after = audit(draft_of(campaign, {PG: PIN}, up={PG: up}, acting={PG: (0, 1, 4)},
                               crush=HYBRID.with_upmaps_kept_under(frozenset({RULE}))))
        assert after.campaign.pinning.sent == {PG: Sent(NOW, 2)}
        assert after.campaign.pinning.trials == {RULE: result}


# ---- numbers of PGs

def test_how_many_pgs_are_not_pinned() -> None:
    campaign = pinning_of(unpinnable={
        '1.0': DEGRADED, '1.1': DEGRADED, '1.2': INCOMPLETE, '1.3': LEGAL, '1.4': LEGAL,
        '1.5': DROPPED_BY_MON})
    assert (pinning.recovering_count(campaign), pinning.immovable_count(campaign)) == (2, 1)
    assert (pinning.unpinned_count(campaign), pinning.lastingly_unpinned(campaign)) == (5, 3)
    assert set(pinning.lastingly_unpinnable(campaign)) == {'1.2', '1.3', '1.4', '1.5'}
    assert pinning.pinned_once_recovered(campaign, '1.0')
    assert not pinning.pinned_once_recovered(campaign, '1.3')
    assert not pinning.pinned_once_recovered(campaign, '1.7')


@pytest.mark.parametrize('number, others, ratio, many', [
    (2, 0, 0.0, False), (3, 0, 0.0, True), (3, 57, 0.05, False), (3, 9, 0.25, False),
    (4, 8, 0.25, True), (3, 8, 0.25, True)])
def test_many_unpinned_pgs(number: int, others: int, ratio: float, many: bool) -> None:
    options = replace(OPTIONS, max_backfills_target=2, max_unpinnable_ratio=ratio)
    assert pinning.are_many(number, others, options) == many


@pytest.mark.parametrize('accepted, number', [(0, 3), (0, 2), (1, 3), (1, 4)])
def test_too_many_to_begin_releases(accepted: int, number: int) -> None:
    campaign = pinning_of(accepted_unpinnable=accepted, unpinnable={
        '1.%x' % seed: LEGAL for seed in range(number)})
    why = unpinnable_excess(campaign, 7, replace(OPTIONS, max_backfills_target=2))
    assert (why == '') == (number - accepted <= 2)
    if why:
        assert why.startswith('%d PGs of %d cannot be pinned (limit 5 %%, ' % (number, number + 7))


@pytest.mark.parametrize('changes, pins, warns', [
    ({}, 0, True), ({'holds': Holds()}, 0, False), ({}, 56, True), ({}, 57, False),
    ({'released': 50, 'kept': 6}, 0, True), ({'released': 50, 'kept': 7}, 0, False),
    ({'in_flight': {'1.2': Flight(NOW, NO_ENTRY)}}, 0, False),
    ({'unpinnable': {'1.2': DEGRADED}}, 0, False), ({'unpinnable': {'1.2': INCOMPLETE}}, 0, False),
    ({'unpinnable': {'1.2': LEGAL}}, 0, True)])
def test_norebalance_is_not_given_back_while_many_would_move(
        changes: Dict[str, Any], pins: int, warns: bool) -> None:
    holds = Holds({NOREBALANCE_KEY: Held(None, 'norebalance')})
    options = replace(OPTIONS, max_backfills_target=2, max_unpinnable_ratio=0.05)
    up = {'1.0': THERE, '1.1': THERE, '1.2': THERE}
    campaign = campaign_of(1, Phase.PINNED, 900.0, **{'holds': holds, **changes})
    seen = draft_of(campaign, up=up).observed
    assert (unpinned_warning(campaign, pins, seen, options) != '') == warns
    assert unpinned_warning(campaign, pins, replace(seen, evacuation={PG: (0,)}), options) == ''
    if warns:
        assert unpinned_warning(campaign, pins, seen, options).startswith('3 PGs are remapped ')


@pytest.mark.parametrize('flags, given_up, still', [
    (['norebalance'], False, True), ([], False, False), ([], True, True),
    (['noout'], False, False)])
def test_nothing_moves_while_norebalance_is_set(flags: Any, given_up: bool, still: bool) -> None:
    campaign = pinning_of(given_up=frozenset({NOREBALANCE_KEY} if given_up else ()))
    assert is_still(draft_of(campaign, flags=flags)) == still


@pytest.mark.parametrize('pgid, cluster, expected', [
    (PG, MOVING, 1), (PG, {**MOVING, 'without': [PG]}, 1), (PG, {'without': ['pool 1']}, 1),
    # Nowhere to move.
    (PG, {'up': {PG: (1, 2)}}, 0), (PG, {'up': {PG: (1, 2)}, 'osds': DOWN}, 0),
    # It lacks an OSD: it recovers, unless one that is down may come back to misplaced copies.
    (PG, {**MOVING, 'acting': {PG: (0, 1)}}, 0),
    (PG, {**MOVING, 'acting': {PG: (0, 1)}, 'osds': DOWN}, 1),
    (PG, {**MOVING, 'acting': {PG: (1, 2)}, 'osds': DOWN}, 0),
    ('2.0', {'up': {'2.0': THERE}, 'acting': {'2.0': (NO_OSD, 1, 2)}, 'osds': DOWN}, 0),
    ('2.0', {'up': {'2.0': THERE}, 'acting': {'2.0': (NO_OSD, 2, 1)}, 'osds': DOWN}, 1),
    ('2.0', {'up': {'2.0': (3, 1)}, 'acting': {'2.0': (NO_OSD, 1, 2)}, 'osds': DOWN}, 1),
    ('2.0', {'up': {'2.0': THERE}, 'acting': {'2.0': (0, 1, NO_OSD)}, 'osds': DOWN}, 1)])
def test_which_pgs_are_awaited(pgid: str, cluster: Dict[str, Any], expected: int) -> None:
    assert pinned_after_recovery(
        draft_of(pinning_of(unpinnable={pgid: DEGRADED}), **cluster)) == expected
    assert pinned_after_recovery(draft_of(pinning_of(unpinnable={pgid: LEGAL}), **cluster)) == 0


@pytest.mark.parametrize('phase, emptied, expected', [
    (Phase.PREPARED, (0, 5), {PG: (0,), '1.1': (4,)}), (Phase.PINNED, (0,), {'1.1': (4,)}),
    (Phase.PREPARED, (), {'1.1': (4,)}), (Phase.PREPARED, (2,), {'1.1': (4,)}),
    (Phase.PREPARED, (0, 9, 1), {PG: (0, 1), '1.1': (4,)})])
def test_pgs_that_norebalance_keeps_on_osds_to_be_emptied(
        phase: Phase, emptied: OsdSet, expected: Dict[str, OsdSet]) -> None:
    campaign = campaign_of(1, phase, 900.0, emptied=emptied)
    crush = crush_of({**dict.fromkeys(OSDS, 1.0), 0: 0.0, 1: 0.0}, hosts=8)
    seen = draft_of(campaign, up={PG: (3, 4, 2), '1.2': (2, 3, 5)}, acting={'1.2': (2, 3, 4)},
                    crush=crush, evacuation={'1.1': (4,)}).observed
    assert kept_on_osds(campaign, seen) == expected
