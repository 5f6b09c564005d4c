# SPDX-License-Identifier: LGPL-2.1-or-later
"""What becomes of PGs in flight in one turn."""
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Tuple

import pytest

from perfguard.cluster.types import NO_ENTRY, NO_OSD, PgCounts, Signals, UpmapEntry
from perfguard.errors import Code
from perfguard.rebalance.campaign import Campaign
from perfguard.rebalance.change import Led
from perfguard.rebalance.draft import Draft
from perfguard.rebalance.flights import (follow_flights, follow_late_releases, note_ahead,
                                         pin_back)
from perfguard.rebalance.progress import Limits
from perfguard.rebalance.stalls import IntervalChange, Stalls
from perfguard.rebalance.types import Flight, Phase, PinRecord, Sent, SetEntry
from perfguard.rebalance.weights import WeightChange
from perfguard.rebalance.whole_map import MapChange
from perfguard.upmap.pins import DEGRADED, INCOMPLETE

from ..fakes.campaigns import campaign_of, changed
from ..fakes.drafts import NOW, OSDS, PIN, PINNED, POOLS, THERE, draft_of, events_of

PG = '1.0'
#: Released, on its way, and seen remapped.
FLYING = Flight(990.0, NO_ENTRY, confirmed=991.0, seen_remapped=True, sources=(0,), targets=(3,),
                primary=0, bytes=100, pin=PIN)
#: Released, and not in the OSDMap yet.
SENT = replace(FLYING, confirmed=None, seen_remapped=False)
MOVING: Dict[str, Any] = {'up': {PG: THERE}}
IN_PLACE: Dict[str, Any] = {'up': {PG: THERE}, 'acting': {PG: THERE}}
STILL_PINNED: Dict[str, Any] = {'entries': {PG: PINNED}}
OTHERS = UpmapEntry(((3, 5),))


def flying(flights: Mapping[str, Flight], **changes: Any) -> Campaign:
    return changed(campaign_of(1, Phase.RELEASING, 900.0, phase_since=950.0, in_flight=flights,
                               turned=999.0), **changes)


def draft(flight: Flight, pins: Optional[Mapping[str, PinRecord]] = None,
          campaign: Dict[str, Any] = {}, **cluster: Any) -> Draft:
    pins = pins if pins is not None else {} if flight.pin is None else {PG: flight.pin}
    return draft_of(flying({PG: flight}, **campaign), pins, **cluster)


def followed(flight: Flight, **cluster: Any) -> Draft:
    return follow_flights(draft(flight, **cluster))


def fate(after: Draft) -> str:
    progress = after.campaign.progress
    if PG in after.campaign.flights.in_flight:
        assert (progress.released, progress.kept, after.unpins) == (0, 0, frozenset())
        return 'flies'
    stays = after.campaign.pinning.unpinnable.get(PG)
    if stays is not None:
        assert progress.kept == 0
        return '%s %d' % (stays.code.value, progress.released)
    if progress.released:
        assert (progress.released, progress.kept) == (1, 0)
        return 'lands'
    return 'is kept' if progress.kept else 'is forgotten'


UNSEEN = replace(FLYING, seen_remapped=False)
PRIMED = replace(UNSEEN, confirmed=999.0, primed=9)
LED = {3: replace(OSDS[3], up_thru=10)}


@pytest.mark.parametrize('flight, cluster, expected', [
    (FLYING, MOVING, 'flies'), (FLYING, IN_PLACE, 'lands'),
    (FLYING, {**IN_PLACE, 'temp': [PG]}, 'flies'), (FLYING, {**MOVING, 'temp': []}, 'flies'),
    (FLYING, {**IN_PLACE, 'without': [PG]}, 'flies'),
    (FLYING, {**IN_PLACE, 'without': ['pool 1']}, 'is forgotten'),
    # The mons do not show it yet.
    (SENT, {**IN_PLACE, **STILL_PINNED}, 'flies'),
    # It was never seen remapped: two reports without peering PGs, or six.
    (replace(UNSEEN, confirmed=990.0), IN_PLACE, 'flies'),
    (replace(UNSEEN, confirmed=989.5), IN_PLACE, 'lands'),
    # The pg_temp came with the release, and up_thru of its primary shows that it has peered.
    (PRIMED, {**IN_PLACE, 'osds': LED}, 'lands'), (PRIMED, IN_PLACE, 'flies'),
    (PRIMED, {**IN_PLACE, 'osds': {3: replace(OSDS[3], up_thru=9)}}, 'flies'),
    (replace(PRIMED, confirmed=999.5), {**IN_PLACE, 'osds': LED}, 'flies'),
    (replace(PRIMED, primed=0), {**IN_PLACE, 'osds': LED}, 'flies'),
    (PRIMED, {**IN_PLACE, 'osds': LED, 'unanswered_at': 990.0}, 'lands'),
    (PRIMED, {**IN_PLACE, 'osds': LED, 'unanswered_at': 990.5}, 'flies'),
    (PRIMED, {**IN_PLACE, 'without': [3]}, 'flies'),
    # Without a pin, it was remapped when the campaign found it.
    (replace(FLYING, pin=None), MOVING, 'flies'), (replace(FLYING, pin=None), IN_PLACE, 'lands'),
    (replace(FLYING, pin=None), {**IN_PLACE, 'pins': {PG: PIN}}, 'is forgotten'),
    # Others have led it elsewhere than to its new OSDs.
    (FLYING, {'up': {PG: (5, 1, 2)}, 'acting': {PG: (5, 1, 2)}, 'entries': {PG: OTHERS}},
     'is kept'),
    (FLYING, {'up': {PG: (5, 1, 2)}, 'acting': {PG: (5, 1, 2)}}, 'lands'),
    (FLYING, {**IN_PLACE, 'entries': {PG: OTHERS}}, 'lands'),
    (replace(FLYING, targets=()), {'entries': {PG: OTHERS}}, 'lands'),
    # CRUSH finds too few OSDs, all of which have the data.
    (FLYING, {'up': {PG: (1, 2)}}, 'INCOMPLETE 1'), (FLYING, {'up': {PG: (3, 1)}}, 'flies'),
    (FLYING, {'up': {PG: (1, 2)}, 'temp': []}, 'flies'),
    (FLYING, {'up': {PG: (1, 2)}, 'osds': {3: replace(OSDS[3], up=False)}}, 'flies'),
    (FLYING, {'up': {PG: (1, 2)}, 'without': [3]}, 'INCOMPLETE 1'),
    (FLYING, {'up': {PG: (1, 2)}, 'osds': {7: replace(OSDS[7], up=False)}}, 'DEGRADED 1'),
    (replace(FLYING, pin=None), {'up': {PG: (1, 2)}}, 'INCOMPLETE 1'),
    (replace(FLYING, pin=None, targets=()), {'up': {PG: (1, 2)}}, 'INCOMPLETE 0'),
    (SENT, {'up': {PG: (1, 2)}, **STILL_PINNED}, 'flies')])
def test_what_becomes_of_a_flight(flight: Flight, cluster: Dict[str, Any], expected: str) -> None:
    assert fate(followed(flight, **cluster)) == expected


@pytest.mark.parametrize('confirmed, in_transition, expected', [
    (970.0, 1, 'flies'), (969.5, 1, 'lands'), (989.5, 1, 'flies'), (989.5, 0, 'lands')])
def test_a_pg_that_was_never_seen_remapped_has_peered(confirmed: float, in_transition: int,
                                                      expected: str) -> None:
    signals = Signals(PgCounts(total=16, in_transition=in_transition))
    assert fate(followed(replace(UNSEEN, confirmed=confirmed), signals=signals,
                         **IN_PLACE)) == expected


@pytest.mark.parametrize('changes, cluster, expected', [
    ({}, STILL_PINNED, 'is kept'), ({'sent': 3}, STILL_PINNED, 'flies'),
    ({'sent': 5}, STILL_PINNED, 'is kept'), ({'since': 994.0}, STILL_PINNED, 'flies'),
    ({'since': 993.5}, STILL_PINNED, 'is kept'), ({}, {'entries': {PG: OTHERS}}, 'flies'),
    ({'confirmed': 999.0}, STILL_PINNED, 'flies')])
def test_a_release_that_the_mons_do_not_accept(changes: Dict[str, Any], cluster: Dict[str, Any],
                                               expected: str) -> None:
    after = followed(replace(SENT, **{'sent': 4, **changes}), **cluster)
    assert fate(after) == expected
    if expected == 'is kept':
        assert after.unpins == {PG} and not after.actions
        event, = after.events
        assert (event.kind, event.what, event.why) == (
            'keep', 'PG 1.0 is not released', 'the mons did not accept its release, sent %d times'
            % 4)


def test_a_pg_that_is_removed_is_forgotten() -> None:
    clusters: List[Dict[str, Any]] = [{'without': ['pool 1']},
                                      {'pools': {1: replace(POOLS[1], pg_num=0)}}]
    for cluster in clusters:
        after = followed(FLYING, **cluster)
        assert fate(after) == 'is forgotten' and after.unpins == {PG}
        assert events_of(after) == [('release', 'PG 1.0 no longer exists')]


def test_one_that_is_kept_or_removed_leaves_the_others_in_flight() -> None:
    flights = {PG: replace(SENT, sent=4), '3.0': FLYING, '1.1': FLYING, '1.2': FLYING}
    after = follow_flights(draft_of(
        flying(flights), dict.fromkeys(flights, PIN), entries={PG: PINNED},
        up={'1.1': THERE, '1.2': THERE}, acting={'1.2': THERE}))
    assert list(after.campaign.flights.in_flight) == ['1.1'] and after.unpins == {
        PG, '3.0', '1.2'}
    assert (after.campaign.progress.released, after.campaign.progress.kept) == (1, 1)
    stays = {PG: replace(FLYING, pin=None), '1.1': FLYING}
    after = follow_flights(draft_of(flying(stays), {PG: PIN}, up={'1.1': THERE}))
    assert list(after.campaign.flights.in_flight) == ['1.1'] and not after.unpins


# ---- arrivals

def test_an_arrival_counts_its_bytes_and_its_interval() -> None:
    old, late = IntervalChange(900.0, 1, (7,)), IntervalChange(995.0, 1, (7,))
    after = followed(FLYING, campaign={'stalls': Stalls((old, late)), 'released': 3,
                                       'bytes_done': 7, 'progressed': 960.0}, **IN_PLACE)
    progress = after.campaign.progress
    assert (progress.released, progress.bytes_done, progress.progressed) == (4, 107, NOW)
    assert after.campaign.stalls.changes == (late, IntervalChange(NOW, 1, (0, 3), PG))
    assert after.unpins == {PG} and not after.events
    # One without a copy that serves it.
    after = followed(FLYING, up={PG: ()}, acting={PG: ()})
    assert after.campaign.stalls.changes[-1].primaries == (0,)
    assert followed(FLYING, **MOVING, campaign={
        'progressed': 960.0}).campaign.progress.progressed == 960.0


CHANGE = WeightChange(weights={3: 1.0})
AHEAD = UpmapEntry(((4, 3),))


@pytest.mark.parametrize('flight, expected', [
    (replace(FLYING, entry=AHEAD), {PG: Led(NO_ENTRY, AHEAD)}), (FLYING, {}),
    (replace(FLYING, entry=AHEAD, pin=None), {}),
    (replace(FLYING, entry=AHEAD, pin=replace(PIN, was=AHEAD)), {}),
    (replace(FLYING, pin=replace(PIN, was=AHEAD)), {PG: Led(AHEAD, NO_ENTRY)})])
def test_a_rollback_leads_back_what_another_upmap_has_led(flight: Flight,
                                                          expected: Dict[str, Led]) -> None:
    after = followed(flight, campaign={'change': CHANGE}, **IN_PLACE, entries={PG: flight.entry})
    assert fate(after) == 'lands' and after.campaign.ahead == expected


def test_a_rollback_undoes_all_upmaps_of_a_pg() -> None:
    first, other = Led(PINNED, AHEAD), Led(NO_ENTRY, OTHERS)
    change = replace(CHANGE, ahead={PG: first, '1.1': first})
    after = note_ahead(draft(FLYING, campaign={'change': change}), {PG: other, '1.2': other})
    assert after.campaign.ahead == {PG: Led(PINNED, OTHERS), '1.1': first, '1.2': other}
    assert note_ahead(draft(FLYING), {PG: other}).campaign.change is None
    first_moved = MapChange()
    assert note_ahead(draft(FLYING, campaign={'change': first_moved}),
                      {PG: other}).campaign.ahead == {PG: other}


def test_a_pg_that_others_have_led_elsewhere_is_left_to_them() -> None:
    after = followed(FLYING, up={PG: (5, 1, 2)}, acting={PG: (5, 1, 2)}, entries={PG: OTHERS})
    assert after.unpins == {PG} and events_of(after) == [
        ('keep', 'PG 1.0 does not move to where it was released')]


@pytest.mark.parametrize('lost, why', [(False, INCOMPLETE), (True, DEGRADED)])
def test_a_pg_that_has_nowhere_to_move_stops(lost: bool, why: Any) -> None:
    osds = {7: replace(OSDS[7], up=not lost)}
    after = followed(FLYING, up={PG: (1, 2)}, osds=osds)
    assert after.campaign.pinning.unpinnable == {PG: why} and after.unpins == {PG}
    assert [(event.kind, event.what, event.why) for event in after.events] == [
        ('release', 'PG 1.0 has stopped moving', why.reason)]
    assert after.campaign.progress.bytes_done == 0
    # Another pin of it is none of this flight.
    assert not followed(replace(FLYING, pin=None), pins={PG: PIN}, up={PG: (1, 2)}).unpins


# ---- what the OSDMap shows of a release

@pytest.mark.parametrize('flight, cluster, seen_remapped', [
    (UNSEEN, MOVING, True), (UNSEEN, {}, False), (SENT, {**MOVING, **STILL_PINNED}, False),
    # With the acting set sent along, the OSDMap shows it at once.
    (PRIMED, MOVING, False), (PRIMED, {**MOVING, 'osds': LED}, False),
    (PRIMED, {**MOVING, 'osds': {0: replace(OSDS[0], up_thru=9)}}, False),
    (PRIMED, {**MOVING, 'osds': {0: replace(OSDS[0], up_thru=10)}}, True),
    (replace(PRIMED, seen_remapped=True), MOVING, True)])
def test_a_flight_is_seen_remapped(flight: Flight, cluster: Dict[str, Any],
                                   seen_remapped: bool) -> None:
    after = followed(replace(flight, since=999.0), **cluster).campaign.flights.in_flight[PG]
    assert after.seen_remapped == seen_remapped


def test_what_a_flight_moves_is_known_once_it_is_remapped() -> None:
    unknown = replace(FLYING, sources=(), targets=(), bytes=0)
    signals = Signals(PgCounts(), pool_bytes={1: 8 << 20, 2: 16 << 20})

    def known(flight: Flight, **cluster: Any) -> Tuple[Any, ...]:
        after = followed(flight, signals=signals, **cluster).campaign.flights.in_flight[PG]
        return after.sources, after.targets, after.bytes, after.readers

    assert known(unknown, **MOVING) == ((0,), (3,), 1 << 20, ())
    assert known(unknown, up={PG: (3, 4, 2)}) == ((0, 1), (3, 4), 2 << 20, ())
    assert known(unknown, **MOVING, without=[PG]) == ((), (), 0, ())
    assert known(FLYING, up={PG: (3, 4, 2)}) == ((0,), (3,), 100, ())
    assert known(unknown, **MOVING, temp=[]) == ((), (), 0, ())
    # A target is out: CRUSH leads the PG to another OSD.
    assert known(FLYING, up={PG: (4, 1, 2)}, osds={3: replace(OSDS[3], reweight=0.0)}) == (
        (0,), (4,), 1 << 20, ())
    # The pool has not reported its size.
    after = followed(unknown, **MOVING, pools={1: replace(POOLS[1], pg_num=1)})
    assert after.campaign.flights.in_flight[PG].bytes == 0
    # Of an erasure code, the other shards are read for one that is lost.
    flight = replace(unknown, pin=None)
    moved = follow_flights(draft_of(
        flying({'2.1': flight}), up={'2.1': THERE}, acting={'2.1': (NO_OSD, 1, 2)},
        signals=signals)).campaign.flights.in_flight['2.1']
    assert (moved.sources, moved.targets, moved.readers) == ((), (3,), (1, 2))


GOAL = UpmapEntry(((3, 4),))
GOAL_PIN = replace(PIN, goal=GOAL)
TO_GOAL = replace(SENT, entry=GOAL, pin=GOAL_PIN)
PART = UpmapEntry(((3, 4), (1, 5)))
IN_PARTS = replace(SENT, entry=PART, pin=replace(PIN, before=PART))
AGAIN, EARLIER = 'released again', 'from before the campaign'


@pytest.mark.parametrize('flight, entry, since, expected', [
    (SENT, NO_ENTRY, 999.0, 'confirmed'), (replace(SENT, pin=None), OTHERS, 999.0, 'confirmed'),
    (SENT, OTHERS, 999.0, 'others'), (TO_GOAL, GOAL, 999.0, 'confirmed'),
    # Still pinned: after the option; a part of it is there: after 3 s.
    (SENT, PINNED, 994.0, ''), (SENT, PINNED, 993.5, AGAIN),
    (IN_PARTS, UpmapEntry(((3, 4),)), 997.0, ''), (IN_PARTS, UpmapEntry(((3, 4),)), 996.5, AGAIN),
    (replace(IN_PARTS, sent=2), UpmapEntry(((3, 4),)), 996.5, 'confirmed'),
    (replace(IN_PARTS, sent=2), UpmapEntry(((3, 4),)), 997.0, ''),
    (replace(SENT, sent=3), PINNED, 993.5, AGAIN),
    # Sent twice in vain: the goal is given up.
    (TO_GOAL, PINNED, 993.5, AGAIN), (replace(TO_GOAL, sent=2), PINNED, 994.0, ''),
    (replace(TO_GOAL, sent=2), PINNED, 993.5, EARLIER),
    (replace(TO_GOAL, sent=2), NO_ENTRY, 996.5, EARLIER)])
def test_a_release_is_looked_for_in_the_osdmap(flight: Flight, entry: UpmapEntry, since: float,
                                               expected: str) -> None:
    flight = replace(flight, since=since, primed=9)
    after = followed(flight, entries={PG: entry}, **MOVING)
    found = after.campaign.flights.in_flight[PG]
    assert (found.confirmed == NOW) == (expected in ('confirmed', 'others'))
    if expected == AGAIN:
        assert after.actions == (SetEntry(PG, flight.entry, entry),)
        assert found == replace(flight, since=NOW, sent=flight.sent + 1, primed=0)
        assert events_of(after) == [('release', 'PG 1.0 is released again')]
    elif expected == EARLIER:
        assert after.actions == (SetEntry(PG, NO_ENTRY, entry),)
        assert found == replace(flight, entry=NO_ENTRY, since=NOW, primed=0, pin=PIN)
        assert events_of(after) == [
            ('release', 'PG 1.0 is released to its upmap from before the campaign')]
    else:
        assert not after.actions and (found.since, found.sent) == (since, flight.sent)
        assert events_of(after) == ([('release', 'the upmap of PG 1.0 was changed outside '
                                      'perfguard')] if expected == 'others' else [])


UNSENT = replace(SENT, since=900.0, sent=0)


@pytest.mark.parametrize('flight, phase, keep, cluster, expected', [
    (UNSENT, 'RELEASING', False, STILL_PINNED, 'taken back'),
    (UNSENT, 'HOLDING', False, STILL_PINNED, 'taken back'),
    (UNSENT, 'ABORTING', False, STILL_PINNED, 'taken back'),
    (UNSENT, 'FINISHING', True, STILL_PINNED, 'taken back'),
    # The operator expects no pins in the end.
    (UNSENT, 'FINISHING', False, STILL_PINNED, 'sent'),
    (replace(UNSENT, sent=1), 'HOLDING', False, STILL_PINNED, 'sent'),
    # What the mons have of it shows up to `readback_timeout` after this mgr became active.
    (UNSENT, 'RELEASING', False, {**STILL_PINNED, 'unanswered_at': 993.5}, 'taken back'),
    (UNSENT, 'RELEASING', False, {**STILL_PINNED, 'unanswered_at': 994.0}, 'awaited'),
    (replace(UNSENT, since=994.0), 'RELEASING', False, STILL_PINNED, 'awaited'),
    (UNSENT, 'RELEASING', False, MOVING, 'confirmed'),
    # Half of it, which may be due to the mons, must not stay alone.
    (replace(UNSENT, entry=PART, pin=replace(PIN, before=PART)), 'RELEASING', False,
     {'entries': {PG: UpmapEntry(((3, 4),))}}, 'sent'),
    (UNSENT, 'RELEASING', False, {**STILL_PINNED, 'pins': {}}, 'sent')])
def test_a_release_that_an_earlier_mgr_may_not_have_sent(
        flight: Flight, phase: str, keep: bool, cluster: Dict[str, Any], expected: str) -> None:
    after = followed(flight, campaign={'phase': Phase(phase), 'keep': keep, 'recalled': ('1.7',)},
                     **cluster)
    flights = after.campaign.flights
    assert (PG in flights.in_flight) == (expected != 'taken back')
    assert bool(after.actions) == (expected == 'sent') and not after.unpins
    assert flights.recalled == (('1.0', '1.7') if expected == 'taken back' else ('1.7',))
    if expected == 'taken back':
        assert events_of(after) == [('release', '1 PG is still pinned: 1.0')]
    elif expected == 'confirmed':
        assert flights.in_flight[PG].confirmed == NOW
    else:
        assert flights.in_flight[PG].sent == flight.sent + (expected == 'sent')


# ---- times

@pytest.mark.parametrize('changes, moving, counted', [
    ({}, 10.0, 10.0), ({'turned': 0.0}, 0.0, 0.0), ({'turned': 970.0}, 30.0, 30.0),
    ({'turned': 969.0}, 30.0, 30.0), ({'paused': True}, 0.0, 0.0),
    ({'in_flight': {}}, 10.0, 10.0), ({'in_flight': {}, 'phase': Phase.HOLDING}, 0.0, 10.0),
    ({'phase': Phase.HOLDING, 'limits': Limits(now=Code.WINDOW_CLOSED)}, 10.0, 10.0),
    ({'in_flight': {}, 'phase': Phase.HOLDING, 'limits': Limits(now=Code.WINDOW_CLOSED)}, 0.0, 0.0),
    ({'in_flight': {}, 'phase': Phase.PINNED}, 0.0, 0.0), ({'phase': Phase.ABORTING}, 10.0, 10.0)])
def test_the_time_that_counts_for_the_speed(changes: Dict[str, Any], moving: float,
                                            counted: float) -> None:
    campaign = flying({PG: FLYING}, **{'turned': 990.0, 'moving_seconds': 5.0, **changes})
    progress = follow_flights(draft_of(campaign, {PG: PIN}, **MOVING)).campaign.progress
    assert progress.moving_seconds == 5.0 + moving
    arrivals = progress.arrivals
    assert arrivals.whole_seconds == counted
    flown = counted if campaign.flights.in_flight else 0.0
    assert (arrivals.flown, arrivals.busy) == (flown, flown)


def test_arrived_bytes_are_counted_with_the_turn() -> None:
    progress = followed(FLYING, campaign={'bytes_done': 50}, **IN_PLACE).campaign.progress
    assert (progress.arrivals.bytes, progress.arrivals.seconds, progress.arrivals.flown) == (
        100.0, 1.0, 1.0)


@pytest.mark.parametrize('flights, recovered, misplaced, copied', [
    ({PG: FLYING}, 1, 49, NOW), ({PG: FLYING}, 0, 49, 7.0), ({PG: FLYING}, 1, 50, 7.0),
    ({}, 1, 49, 7.0)])
def test_data_is_copied_while_fewer_objects_are_misplaced(
        flights: Dict[str, Flight], recovered: int, misplaced: int, copied: float) -> None:
    signals = Signals(PgCounts(), misplaced_objects=misplaced, recovered_objects=recovered)
    campaign = flying(flights, copied=7.0, misplaced=50)
    after = follow_flights(draft_of(campaign, {PG: PIN}, **MOVING, signals=signals)).campaign
    assert (after.flights.copied, after.flights.misplaced) == (copied, misplaced)


# ---- after an abort

@pytest.mark.parametrize('phase, recalled, pin, entry, is_late', [
    (Phase.ABORTED, (PG,), PIN, NO_ENTRY, True), (Phase.ABORTED, (PG,), PIN, PINNED, False),
    (Phase.ABORTED, (), PIN, NO_ENTRY, False), (Phase.ABORTING, (PG,), PIN, NO_ENTRY, False),
    (Phase.ABORTED, (PG,), PIN, OTHERS, False), (Phase.ABORTED, (PG,), GOAL_PIN, GOAL, True),
    (Phase.ABORTED, (PG,), GOAL_PIN, NO_ENTRY, True), (Phase.ABORTED, (PG,), None, NO_ENTRY, False),
    (Phase.ABORTED, (PG,), replace(PIN, before=PINNED), PINNED, False)])
def test_a_release_that_takes_effect_after_the_abort(
        phase: Phase, recalled: Tuple[str, ...], pin: Optional[PinRecord], entry: UpmapEntry,
        is_late: bool) -> None:
    campaign = campaign_of(1, phase, 900.0, recalled=recalled, held=True, ended=960.0)
    before = draft_of(campaign, {} if pin is None else {PG: pin}, entries={PG: entry})
    after = follow_late_releases(before)
    if not is_late:
        assert after is before
        return
    aborting = after.campaign
    assert (aborting.phase, aborting.held, aborting.ended) == (Phase.ABORTING, False, None)
    assert aborting.flights.recalled == ()
    assert aborting.flights.in_flight == {PG: Flight(NOW, entry, confirmed=NOW, pin=pin)}
    assert [kind for kind, _ in events_of(after)] == ['release', 'phase']


def test_a_late_release_is_handled_once() -> None:
    campaign = campaign_of(1, Phase.ABORTED, 900.0, recalled=('1.2', PG, '1.1'), held=True)
    pins = dict.fromkeys(campaign.flights.recalled, PIN)
    after = follow_late_releases(draft_of(campaign, pins, entries={'1.1': PINNED}))
    assert after.campaign.flights.recalled == ('1.1',)
    assert set(after.campaign.flights.in_flight) == {PG, '1.2'}
    assert events_of(after)[0] == ('release', '2 PGs are released after the abort: 1.0, 1.2')


# ---- pinning back

def back(flight: Flight = FLYING, **cluster: Any) -> Draft:
    return pin_back(draft(flight, **cluster))


@pytest.mark.parametrize('flight, cluster, expected', [
    (FLYING, MOVING, 'pinned'), (FLYING, {}, 'flies'), (FLYING, {**MOVING, 'temp': []}, 'flies'),
    (SENT, STILL_PINNED, 'pinned'), (replace(FLYING, pin=None), MOVING, 'left'),
    (replace(FLYING, pin=None), {}, 'left'),
    (FLYING, {**MOVING, 'entries': {PG: OTHERS}}, 'others'),
    (SENT, {'entries': {PG: OTHERS}}, 'pinned'), (FLYING, {**MOVING, 'without': [PG]}, 'stuck'),
    (FLYING, {**MOVING, 'temp': [PG], 'without': ['pool 1']}, 'stuck'),
    (FLYING, {**MOVING, 'osds': {0: replace(OSDS[0], reweight=0.0)}, 'evacuation': {PG: (0, 1, 2)}},
     'stuck'),
    # It has just arrived.
    (replace(FLYING, entry=PINNED), {'temp': [PG], 'entries': {PG: PINNED}}, 'arrived')])
def test_a_pg_in_flight_is_pinned_back(flight: Flight, cluster: Dict[str, Any],
                                       expected: str) -> None:
    before = draft(flight, campaign={'released': 2}, **cluster)
    after = pin_back(before)
    campaign = after.campaign
    assert (after is before) == (PG in campaign.flights.in_flight) == (expected == 'flies')
    assert (after.new_pins.keys() == {PG}) == (expected == 'pinned')
    assert bool(after.actions) == (expected == 'pinned')
    assert (campaign.pinning.sent == {PG: Sent(NOW)}) == (expected == 'pinned')
    assert (after.unpins == {PG}) == (expected in ('others', 'stuck', 'arrived'))
    assert campaign.progress.released == (3 if expected == 'arrived' else 2)
    assert events_of(after) == {
        'pinned': [('pin', 'pinning 1 PG back')],
        'others': [('pin', 'pinning 1 PG with the present upmap as the one from before the '
                    'campaign: 1.0')],
        'stuck': [('unpinnable', '1 PG is still moving: 1.0')]}.get(expected, [])


@pytest.mark.parametrize('flight, cluster, action, recalled', [
    (FLYING, MOVING, SetEntry(PG, PINNED, NO_ENTRY), ()),
    (replace(FLYING, sent=2), MOVING, SetEntry(PG, PINNED, NO_ENTRY), (PG,)),
    # The release may take effect a moment later.
    (SENT, STILL_PINNED, SetEntry(PG, PINNED, NO_ENTRY), (PG,)),
    (replace(SENT, entry=GOAL, pin=GOAL_PIN), STILL_PINNED, SetEntry(PG, PINNED, GOAL), (PG,)),
    (replace(FLYING, entry=GOAL, pin=GOAL_PIN), {'up': {PG: (4, 1, 2)}, 'entries': {PG: GOAL}},
     SetEntry(PG, PINNED, GOAL), ())])
def test_the_pin_back_follows_a_release_that_may_be_on_its_way(
        flight: Flight, cluster: Dict[str, Any], action: SetEntry,
        recalled: Tuple[str, ...]) -> None:
    after = back(flight, **cluster)
    assert after.actions == (action,) and after.campaign.flights.recalled == recalled
    assert after.new_pins[PG].entry == PINNED and after.new_pins[PG].goal == (
        flight.pin.goal if flight.pin else None)


def test_a_pg_is_pinned_back_to_where_its_data_is_now() -> None:
    """An OSD was marked out meanwhile, and its copies have moved to osd.4."""
    after = back(up={PG: (3, 1, 2)}, acting={PG: (0, 1, 4)})
    assert set(after.new_pins[PG].entry.items) == {(3, 0), (2, 4)}
    assert after.new_pins[PG].before == NO_ENTRY


def test_only_some_pgs_are_pinned_back() -> None:
    flights = {PG: FLYING, '1.1': FLYING, '1.2': FLYING}
    before = draft_of(
        flying(flights, recalled=('1.3', '1.4'), sent={'1.5': Sent(7.0)}), dict.fromkeys(
            [*flights, '1.3'], PIN), up=dict.fromkeys(flights, THERE))
    after = pin_back(before, {PG, '1.2'})
    assert list(after.campaign.flights.in_flight) == ['1.1']
    assert after.campaign.flights.recalled == ('1.3',)
    assert set(after.campaign.pinning.sent) == {PG, '1.2', '1.5'}
    assert events_of(after) == [('pin', 'pinning 2 PGs back')]
    assert pin_back(before, frozenset()) is before
    assert not pin_back(before).campaign.flights.in_flight
    # Those that are on their way already are no news.
    known = draft_of(flying(flights, sent={PG: Sent(7.0), '1.1': Sent(7.0)}),
                     dict.fromkeys(flights, PIN), up=dict.fromkeys(flights, THERE))
    assert events_of(pin_back(known)) == [('pin', 'pinning 1 PG back')]


def test_each_kind_of_flight_is_handled_beside_the_others() -> None:
    flights = {'1.0': replace(FLYING, pin=None), '1.1': FLYING,
               '1.2': replace(FLYING, entry=PINNED), '1.3': FLYING, '1.4': FLYING}
    after = pin_back(draft_of(
        flying(flights), {pgid: PIN for pgid in flights if pgid != '1.0'},
        up={'1.0': THERE, '1.1': THERE, '1.3': THERE, '1.4': THERE}, temp=flights,
        entries={'1.1': OTHERS, '1.2': PINNED}, without=['1.3']))
    assert not after.campaign.flights.in_flight and set(after.new_pins) == {'1.4'}
    assert after.unpins == {'1.1', '1.2', '1.3'} and after.campaign.progress.released == 1
    kinds: List[str] = [kind for kind, _ in events_of(after)]
    assert kinds == ['pin', 'pin', 'unpinnable']
