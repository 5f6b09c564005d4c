# SPDX-License-Identifier: LGPL-2.1-or-later
"""The pins that a change of CRUSH requires, PG by PG."""
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional

import pytest

from perfguard.cluster.ports import Future, FuturePg, NoFuture
from perfguard.cluster.types import (NO_ENTRY, NO_OSD, Osd, OsdMap, OsdSet, PgCounts, Placement,
                                     Signals, UpmapEntry)
from perfguard.observation import Observation
from perfguard.rebalance.campaign import NO_CAMPAIGN
from perfguard.rebalance.change import Planned
from perfguard.rebalance.join_plan import (PlannedFuture, bases_of, becomes_incomplete,
                                           entries_needed, keeps, mean_bytes, moved_by_weights,
                                           plan_join, renewed, survives, undersized, with_pins)
from perfguard.rebalance.moves import Move
from perfguard.rebalance.types import PinRecord
from perfguard.rebalance.weights import WeightChange
from perfguard.upmap.pins import INCOMPLETE, Unpinnable
from perfguard.upmap.semantics import apply_entry

from ..fakes.drafts import CRUSH, HERE, HYBRID, OSDS, PIN, PINNED, POOLS, THERE, draft_of
from .test_orders import crush as crush_of

PG = '1.0'
LEFT = FuturePg(HERE, THERE)
OTHER = UpmapEntry(((3, 5),))
WHY = Unpinnable('another reason')


def observed(**cluster: Any) -> Observation:
    return draft_of(NO_CAMPAIGN, **cluster).observed


def map_of(**cluster: Any) -> OsdMap:
    return observed(**cluster).osdmap


def planned(pg: FuturePg, present: UpmapEntry = NO_ENTRY, pgid: str = PG,
            plan: Dict[str, Any] = {}, crush: Any = CRUSH, **cluster: Any) -> Planned:
    osdmap = map_of(entries={pgid: present}, **cluster)
    return plan_join(osdmap, Future({pgid: pg}, crush), **plan)


# ---- one PG

@pytest.mark.parametrize('pg, present, pin', [
    (LEFT, NO_ENTRY, PIN), (FuturePg(HERE, HERE), NO_ENTRY, None),
    # The same OSDs, in another order: they are kept in order.
    (FuturePg(HERE, (1, 0, 2)), NO_ENTRY, PinRecord(NO_ENTRY, UpmapEntry(vector=HERE), (1, 0, 2))),
    # The mons keep the upmap, and it is enough.
    (FuturePg((5, 1, 2), THERE), OTHER, None),
    (LEFT, OTHER, PinRecord(OTHER, PINNED)),
    # They drop the upmap with the change: a rollback restores it.
    (LEFT, UpmapEntry(((6, 5),)), PinRecord(NO_ENTRY, PINNED, was=UpmapEntry(((6, 5),)))),
    # The pair of the upmap serves the pin.
    (FuturePg((0, 5, 2), (3, 4, 2)), UpmapEntry(((4, 5),)),
     PinRecord(UpmapEntry(((4, 5),)), UpmapEntry(((4, 5), (3, 0)))))])
def test_the_pin_of_a_pg(pg: FuturePg, present: UpmapEntry, pin: Optional[PinRecord]) -> None:
    plan = planned(pg, present)
    assert plan.pins == ({} if pin is None else {PG: pin})
    assert not plan.unpinnable and not plan.removed and plan.moves.keys() == plan.pins.keys()


@pytest.mark.parametrize('pg, pgid, cluster, why', [
    (LEFT, PG, {'without': ['pool 1']}, None), (LEFT, '1.8', {}, None), (LEFT, '1.7', {}, PIN),
    (LEFT, PG, {'pools': {1: replace(POOLS[1], pg_num_pending=0)}}, Unpinnable('')),
    (FuturePg(HERE, HERE), PG, {'pools': {1: replace(POOLS[1], pg_num_pending=0)}}, None),
    (FuturePg(HERE, (0, 1)), PG, {}, INCOMPLETE), (FuturePg((0, 1), THERE), PG, {}, Unpinnable('')),
    (FuturePg(HERE, (0, 3)), PG, {}, PinRecord(NO_ENTRY, UpmapEntry(vector=HERE), (0, 3)))])
def test_pgs_without_a_pin(pg: FuturePg, pgid: str, cluster: Dict[str, Any], why: Any) -> None:
    plan = planned(pg, pgid=pgid, **cluster)
    assert plan.pins == ({pgid: why} if isinstance(why, PinRecord) else {})
    assert plan.unpinnable == ({pgid: why} if isinstance(why, Unpinnable) else {})


@pytest.mark.parametrize('acting', [(6, 1, 2), (1, 2), (NO_OSD, 1, 2)])
def test_a_pg_that_the_change_does_not_concern_is_not_in_the_plan(acting: OsdSet) -> None:
    """It has an upmap, and leaves an OSD that is out, or recovers."""
    pg = FuturePg(acting, THERE, (5, 1, 2), present=THERE)
    assert planned(pg, OTHER) == Planned()
    # Its upmap leads to an OSD that is drained, or keeps it in place in another way than before.
    assert planned(pg, OTHER, plan={'drained': (5,)}) != Planned()
    assert planned(pg, OTHER, plan={'bases': {PG: NO_ENTRY}}) != Planned()
    # The mons drop the upmap, or CRUSH chooses other OSDs.
    assert planned(pg, UpmapEntry(((6, 5),))) != Planned()
    assert planned(pg._replace(present=HERE), OTHER) != Planned()


def test_a_pg_that_its_upmap_keeps_from_being_incomplete() -> None:
    """CRUSH finds two OSDs, one of which has the data after the upmap alone."""
    assert planned(FuturePg(HERE, (3, 1)), UpmapEntry(((3, 0),))).unpinnable == {PG: INCOMPLETE}
    assert planned(FuturePg(HERE, (3, 1))).pins[PG].entry == UpmapEntry(vector=HERE)


@pytest.mark.parametrize('drained, before', [((), OTHER), ((5,), NO_ENTRY)])
def test_no_release_leads_onto_a_drained_osd(drained: OsdSet, before: UpmapEntry) -> None:
    plan = planned(LEFT, OTHER, plan={'drained': drained})
    was = None if before == OTHER else OTHER
    assert plan.pins == {PG: PinRecord(before, PINNED, was=was)}
    # Of a PG that the upmap keeps in place, a pin with the same entry does that until its release.
    plan = planned(FuturePg((5, 1, 2), THERE), OTHER, plan={'drained': drained})
    assert plan.pins == ({} if before == OTHER else {PG: PinRecord(NO_ENTRY, OTHER, was=OTHER)})


def test_no_release_leads_to_a_set_against_the_rule() -> None:
    """Its upmap takes it to the host of another of its OSDs, which no mon checks."""
    plan = planned(LEFT, OTHER, crush=crush_of(dict.fromkeys(OSDS, 1.0), hosts=4))
    assert plan.pins[PG].before == NO_ENTRY


BASES = {PG: OTHER}


@pytest.mark.parametrize('pg, present, bases, pins, removed', [
    # Pinned, and the entry from before the campaign keeps it in place.
    (FuturePg((5, 1, 2), THERE), PINNED, BASES, {}, {PG: OTHER}),
    (FuturePg((5, 1, 2), THERE), OTHER, BASES, {}, {}),
    (FuturePg((5, 1, 2), THERE), OTHER, {}, {}, {}),
    (LEFT, PINNED, BASES, {PG: PinRecord(OTHER, PINNED, was=PINNED)}, {}),
    (FuturePg(HERE, HERE), PINNED, {PG: NO_ENTRY}, {}, {PG: NO_ENTRY}),
    (FuturePg(HERE, HERE), UpmapEntry(((6, 5),)), {}, {}, {})])
def test_the_entry_from_before_the_campaign_is_restored(
        pg: FuturePg, present: UpmapEntry, bases: Mapping[str, UpmapEntry],
        pins: Mapping[str, PinRecord], removed: Mapping[str, UpmapEntry]) -> None:
    plan = planned(pg, present, plan={'bases': bases})
    assert (plan.pins, plan.removed) == (pins, removed)


def test_the_move_of_a_release() -> None:
    sizes = {'pool_bytes': {1: 8 << 20}}
    assert planned(LEFT, plan=sizes).moves == {PG: Move(
        PG, (0,), (3,), 0, 1 << 20, True, staying=(1, 2), here=(0, 1, 2), leaders=(0, 0, 3))}
    assert planned(LEFT).moves[PG].bytes == 0
    assert planned(LEFT, pools={1: replace(POOLS[1], pg_num=1)}).moves[PG].bytes == 0
    assert planned(LEFT, OTHER, plan=sizes).moves[PG].targets == (5,)


@pytest.mark.parametrize('acting, up, entry, present, expected', [
    (HERE, (), PINNED, PINNED, True), (HERE, (), NO_ENTRY, PINNED, False),
    # An affinity gives the up set another order: it is the same as with the present entry.
    ((1, 0, 2), (1, 0, 2), PINNED, PINNED, True), ((1, 0, 2), (1, 0, 2), OTHER, PINNED, False),
    ((1, 0, 2), (0, 1, 2), PINNED, PINNED, False)])
def test_a_pg_stays_in_place_with_an_entry(acting: OsdSet, up: OsdSet, entry: UpmapEntry,
                                           present: UpmapEntry, expected: bool) -> None:
    assert keeps(FuturePg(acting, THERE, up), entry, present, ()) == expected


# ---- all PGs

def test_upmaps_of_the_epoch_of_the_change() -> None:
    """Pins that are not in force yet, and entries that the mons drop although they are needed."""
    dropped = UpmapEntry(((6, 5),))
    osdmap = map_of(entries={'1.0': PINNED, '1.2': PINNED, '1.3': dropped, '1.5': dropped})
    future = Future(dict.fromkeys(('1.0', '1.1', '1.2', '1.3', '1.4', '1.5'), LEFT), CRUSH)
    plan = Planned({'1.0': PIN, '1.1': PIN, '1.4': PIN},
                   removed={'1.2': PINNED, '1.3': PINNED, '1.5': PINNED})
    assert survives('1.2', future, osdmap, POOLS[1], osdmap.out)
    assert not survives('1.3', future, osdmap, POOLS[1], osdmap.out)
    assert entries_needed(plan, future, osdmap) == 4
    assert entries_needed(Planned(), future, osdmap) == 0


@pytest.mark.parametrize('pg, lacks', [
    (LEFT, False), (FuturePg((0, 1, NO_OSD), THERE), True), (FuturePg((0, 1), THERE), True),
    (FuturePg((0, 1), (0, 3)), False), (FuturePg((0, 1, 2, 4), THERE), False)])
def test_pgs_that_lack_an_osd(pg: FuturePg, lacks: bool) -> None:
    future = Future({PG: pg, '1.1': FuturePg((0, 1), THERE)}, CRUSH)
    assert undersized(Planned(unpinnable={PG: WHY}), future) == ([PG] if lacks else [])


def test_pgs_that_move_since_the_mons_keep_no_upmaps() -> None:
    future = Future({'1.0': LEFT, '1.1': LEFT, '1.2': FuturePg((0, 1), THERE), '2.0': LEFT,
                     '1.3': LEFT}, HYBRID)
    plan = Planned(unpinnable={'1.0': WHY, '1.1': INCOMPLETE, '1.2': WHY, '2.0': WHY})
    osdmap = map_of(pools={2: replace(POOLS[2], crush_rule=9)})
    assert moved_by_weights(plan, future, osdmap) == ['1.0']
    assert moved_by_weights(plan, replace(future, crush=CRUSH), map_of()) == []


def test_the_mean_size_of_moves() -> None:
    seen = replace(draft_of(NO_CAMPAIGN).observed, signals=Signals(
        PgCounts(), pool_bytes={1: 8 << 20}))
    future = Future({'1.0': LEFT, '1.1': FuturePg(HERE, (3, 4, 2)), '1.2': LEFT, '2.0': LEFT},
                    CRUSH)
    assert mean_bytes(['1.0'], future, seen) == 1 << 20
    assert mean_bytes(['1.0', '1.1'], future, seen) == 3 << 19
    assert mean_bytes(['1.0', '1.1', '1.2'], future, seen) == (4 << 20) // 3
    assert mean_bytes(['1.0', '2.0'], future, seen) == 1 << 19
    assert mean_bytes([], future, seen) == 0
    one = replace(seen, settings=replace(seen.settings, osdmap=map_of(
        pools={2: replace(POOLS[2], pg_num=1, data_shards=1)})))
    assert mean_bytes(['2.0'], future, one) == 0


@pytest.mark.parametrize('raw, present, cluster, given_up', [
    ((0, 1), HERE, {}, True), ((0, 1, NO_OSD), HERE, {}, True), (THERE, HERE, {}, False),
    ((0, 1), (0, 1), {}, False), ((0, 1), (), {}, False),
    ((0, 1), HERE, {'without': ['pool 1']}, False)])
def test_pgs_for_which_crush_finds_too_few_osds(raw: OsdSet, present: OsdSet,
                                                cluster: Dict[str, Any], given_up: bool) -> None:
    future = Future({PG: FuturePg(HERE, raw, present=present)}, CRUSH)
    assert becomes_incomplete(PG, future, map_of(**cluster)) == given_up


def test_the_outlook_has_the_pins_of_a_change_of_weights() -> None:
    future, change = Future({PG: LEFT}, CRUSH), WeightChange(weights={3: 1.0})
    found = with_pins(future, observed(entries={PG: OTHER}), replace(change, drained=(5,)))
    assert isinstance(found, PlannedFuture) and found.pgs == future.pgs
    assert found.planned.pins == {PG: PinRecord(NO_ENTRY, PINNED, was=OTHER)}
    assert with_pins(future, observed(), WeightChange()) is future
    failed = NoFuture('no answer')
    assert with_pins(failed, observed(), change) is failed


def test_bases_are_what_a_rollback_restores() -> None:
    assert bases_of({PG: PIN, '1.1': replace(PIN, was=OTHER)}) == {PG: NO_ENTRY, '1.1': OTHER}


# ---- an outlook that is updated

ALL: List[str] = ['1.0', '1.1', '1.2', '1.3']
CHANGE = WeightChange(weights={3: 1.0})


def seen(temps: Mapping[str, OsdSet], gone: Optional[str] = None, up: OsdSet = HERE,
         **fields: Any) -> Observation:
    """Remapped PGs; those of an evacuation with `evacuation`."""
    def placement(pgid: str) -> Optional[Placement]:
        return None if pgid == gone else Placement(up, temps.get(pgid, up))

    observation = observed()
    osdmap = replace(observation.osdmap, pg_temp=temps)
    return replace(observation, settings=replace(observation.settings, osdmap=osdmap),
                   placement=placement, **fields)


def updated(future: Future, before: Mapping[str, OsdSet], now: Mapping[str, OsdSet],
            gone: Optional[str] = None) -> Future:
    return renewed(future, seen(before), seen(now, gone), CHANGE)


def test_a_preview_follows_pgs_that_are_remapped_meanwhile() -> None:
    future = Future(dict.fromkeys(ALL, LEFT), CRUSH)
    there = {'1.0': (4, 1, 2), '1.1': (5, 1, 2)}
    after = updated(future, {'1.0': (4, 1, 2), '1.2': (6, 1, 2)}, there)
    # The first one is remapped as before; the third one is not remapped any more.
    assert after.pgs == {'1.0': LEFT, '1.1': LEFT._replace(acting=(5, 1, 2)), '1.2': LEFT,
                         '1.3': LEFT}
    assert updated(future, there, there) is future
    assert updated(future, {}, {'2.0': HERE}) is future
    assert updated(future, {}, {'1.1': THERE}, gone='1.1') is future
    partly = updated(future, {}, {'1.0': THERE, '1.1': THERE}, gone='1.1')
    assert partly.pgs == {**future.pgs, '1.0': LEFT._replace(acting=THERE)}
    assert not isinstance(after, PlannedFuture)


def test_the_pins_of_a_preview_are_planned_again_for_pgs_that_are_remapped() -> None:
    future = with_pins(Future(dict.fromkeys(ALL, LEFT), CRUSH), observed(), CHANGE)
    assert isinstance(future, PlannedFuture) and future.planned.pins == dict.fromkeys(ALL, PIN)
    marked = replace(future, planned=replace(future.planned, pins=dict.fromkeys(
        ALL, replace(PIN, goal=OTHER))))
    after = updated(marked, {}, {'1.1': THERE, '1.2': (5, 1, 2), '1.3': (5, 1)})
    assert isinstance(after, PlannedFuture)
    assert after.planned.pins == {'1.0': replace(PIN, goal=OTHER),
                                  '1.2': PinRecord(NO_ENTRY, OTHER)}
    assert set(after.planned.moves) == {'1.0', '1.2'} and set(after.planned.unpinnable) == {'1.3'}


# ---- PGs that leave OSDs which are to be emptied

#: Such an OSD, and what CRUSH chooses instead for now.
LEAVING, INSTEAD = 0, 6


@pytest.mark.parametrize('raw, present, entry', [
    # The copy goes straight to one of the OSDs that CRUSH will choose; the others stay.
    ((3, 5, 2), NO_ENTRY, UpmapEntry(((3, 1),))),
    # No other copy moves: no pin is needed.
    ((3, 1, 2), NO_ENTRY, None),
    # The upmap from before keeps the other copy in place.
    ((3, 5, 2), UpmapEntry(((5, 1),)), None),
    # It would keep the copy on the OSD.
    ((3, 5, 2), UpmapEntry(((3, 0),)), UpmapEntry(((3, 1),)))])
def test_a_pg_stays_in_place_but_for_what_must_leave_an_osd(
        raw: OsdSet, present: UpmapEntry, entry: Optional[UpmapEntry]) -> None:
    pg = FuturePg(HERE, raw, present=(INSTEAD, 1, 2))
    plan = planned(pg, present, plan={'evacuation': {PG: (LEAVING,)}})
    assert {pgid: pin.entry for pgid, pin in plan.pins.items()} == (
        {} if entry is None else {PG: entry})
    assert not plan.unpinnable
    stays = planned(pg, present)
    assert all(apply_entry(raw, pin.entry, ()) == HERE for pin in stays.pins.values())


def test_a_pg_of_which_no_other_copy_can_stay_is_unpinnable() -> None:
    # All copies must leave: there is nothing to pin.
    plan = planned(FuturePg(HERE, (3, 4, 5)), plan={'evacuation': {PG: HERE}})
    assert plan == Planned()
    lost = planned(FuturePg(HERE, (3, 4, 5)), plan={'evacuation': {PG: (0,)}},
                   osds={1: Osd(1, True, 0.0), 2: Osd(2, True, 0.0)})
    assert not lost.pins and PG in lost.unpinnable


@pytest.mark.parametrize('acting', [(0, 1), (0, 1, NO_OSD)])
def test_a_pg_that_lacks_an_osd_is_awaited_though_it_leaves_another_one(acting: OsdSet) -> None:
    """Otherwise the copy on the OSD that is missing would be made anew elsewhere."""
    pg = FuturePg(acting, (3, 1, 5))
    plan, future = planned(pg, plan={'evacuation': {PG: (LEAVING,)}}), Future({PG: pg}, CRUSH)
    assert list(plan.unpinnable) == [PG] == undersized(plan, future)


def test_a_pg_of_which_others_move_as_well_counts_as_unpinnable() -> None:
    """The change empties the OSD of another copy."""
    weights = {osd: float(osd != 1) for osd in OSDS}
    plan = planned(FuturePg(HERE, (3, 4, 5)), plan={'evacuation': {PG: (LEAVING,)}},
                   crush=crush_of(weights, hosts=8))
    assert not plan.pins and list(plan.unpinnable) == [PG]


def test_a_preview_follows_pgs_that_begin_or_cease_to_leave_an_osd() -> None:
    temps = {'1.1': HERE, '1.3': HERE}
    future = with_pins(Future({pgid: FuturePg(HERE, (3, 5, 2)) for pgid in temps}, CRUSH),
                       seen(temps), CHANGE)
    assert isinstance(future, PlannedFuture)
    evacuated = seen(temps, up=(INSTEAD, 1, 2), evacuation={'1.1': (LEAVING,)})
    leaving = renewed(future, seen(temps), evacuated, CHANGE)
    assert isinstance(leaving, PlannedFuture) and leaving.pgs == future.pgs
    assert leaving.planned.pins == {**future.planned.pins, '1.1': PinRecord(
        NO_ENTRY, UpmapEntry(((3, 1),)))}
    assert renewed(leaving, evacuated, seen(temps), CHANGE) == future
    assert renewed(leaving, evacuated, evacuated, CHANGE) is leaving
