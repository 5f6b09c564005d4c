# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pins of what a PG has left, against an independent model of the mon."""
from typing import Any, Tuple

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.types import NO_OSD, Osd, OsdSet, UpmapEntry
from perfguard.upmap.pins import Pin, Unpinnable, plan_partial_pin

from ..fakes.mon_model import Stored, ToyMon, ToyOsd
from .test_pins import MANY, commit, entry_of, osds_of, pool, remapped

OSDS = {osd: Osd(osd, osd != 9, 0.0 if osd == 8 else 1.0) for osd in range(10)}
ITEMS = UpmapEntry(((3, 4),))


def live(mon: Any, osds: Any, erasure: bool) -> OsdSet:
    """As Ceph shows a set: without OSDs that are down, or with holes in their place."""
    found = tuple(osd if mon.osds[osd].up else NO_OSD for osd in osds)
    return found if erasure else tuple(osd for osd in found if osd != NO_OSD)


def in_place(up: OsdSet, acting: OsdSet, erasure: bool) -> int:
    """Copies or shards that do not move."""
    if erasure:
        return sum(old == new != NO_OSD for old, new in zip(up, acting))
    return len(set(up) & set(acting))


@MANY
@given(remapped(), st.booleans(), st.data())
def test_what_is_left_stays_in_place_and_the_mon_keeps_the_pin(
        case: Tuple[Any, OsdSet], erasure: bool, data: Any) -> None:
    mon, acting = case
    down = data.draw(st.lists(st.sampled_from(sorted(mon.osds)), min_size=1, max_size=2,
                              unique=True))
    mon.osds.update({osd: mon.osds[osd]._replace(up=False) for osd in down})
    before = mon.stored
    up, acting = live(mon, mon.up(), erasure), live(mon, acting, erasure)
    assume(len(acting) - acting.count(NO_OSD) > 0 and up != acting)
    pin = plan_partial_pin(pool(mon.size, erasure), up, acting, entry_of(before), osds_of(mon),
                           CrushRules.from_dump(mon.crush_dump()))
    held = in_place(up, acting, erasure)
    if isinstance(pin, Unpinnable) or not pin.changed:
        event('nothing to do')
        return
    event('part' if pin.unpinned_reason else 'all')
    commit(mon, pin.entry)
    after = live(mon, mon.up(), erasure)
    if entry_of(mon.stored) != pin.entry:
        # The raw set is not known: the vector may equal it, and OSDs that are down may be in it
        # whose failure domain has another OSD of the PG.
        wanted = mon.placed(Stored(list(pin.entry.items), pin.entry.vector))  # type: ignore
        assert not mon.legal(wanted) or wanted == mon.raw
        return
    assert in_place(after, acting, erasure) > held or after == acting
    if not pin.unpinned_reason:
        assert set(after) - {NO_OSD} == set(acting) - {NO_OSD}
    # Nothing moves that would not have moved before.
    assert set(after) <= {*up, *acting}


@pytest.mark.parametrize('up, acting, entry, wanted', [
    # A shard is lost and recovers to where it is to be; another one stays.
    ((1, 2, 3), (1, NO_OSD, 4), UpmapEntry(), UpmapEntry(((3, 4),))),
    ((1, 2, 3), (1, 8, 4), UpmapEntry(), UpmapEntry(((3, 4),))),
    # A shard was to move to the other one's OSD.
    ((4, 3, 2), (8, 4, 2), UpmapEntry(), UpmapEntry(vector=(3, 4, 2))),
    ((1, NO_OSD, 3), (1, NO_OSD, 4), UpmapEntry(), UpmapEntry(((3, 4),))),
    # Earlier pairs, also those to the OSD that is down, stay or change.
    ((1, NO_OSD, 3), (1, NO_OSD, 5), UpmapEntry(((2, 9),)), UpmapEntry(((2, 9), (3, 5)))),
    ((1, NO_OSD, 4), (1, NO_OSD, 5), UpmapEntry(((2, 9), (3, 4))), UpmapEntry(((2, 9), (3, 5)))),
    ((1, NO_OSD, 4), (1, NO_OSD, 3), ITEMS, UpmapEntry()),
    ((1, NO_OSD, 3), (1, NO_OSD, 4), UpmapEntry(vector=(1, 9, 3)), UpmapEntry(vector=(1, 9, 4))),
    # Data is there in full, and CRUSH finds no OSD for a position.
    ((1, NO_OSD, 3), (1, 2, 4), UpmapEntry(), UpmapEntry(vector=(1, 2, 4))),
    ((1, NO_OSD, 3), (NO_OSD, 2, 4), UpmapEntry(), UpmapEntry(vector=(1, 2, 4))),
])
def test_what_stays_of_an_erasure_coded_pg(up: OsdSet, acting: OsdSet, entry: UpmapEntry,
                                           wanted: UpmapEntry) -> None:
    pin = plan_partial_pin(pool(3, True), up, acting, entry, OSDS, None)
    assert isinstance(pin, Pin) and pin.entry == wanted and pin.changed
    assert bool(pin.unpinned_reason) == (NO_OSD in acting or 8 in acting)


@pytest.mark.parametrize('up, acting, entry, wanted', [
    ((1, 2, 3), (1, 4), UpmapEntry(), (1, 4)), ((1, 3), (1, 4), UpmapEntry(), (1, 4)),
    ((1, 2, 3), (1, 8, 4), UpmapEntry(), (1, 4)), ((1, 3), (1, 2, 4), UpmapEntry(), (1, 2, 4)),
    ((1, 4), (1, 5), ITEMS, (1, 5)), ((1,), (2, 3), UpmapEntry(), (2,))])
def test_what_stays_of_a_replicated_pg(up: OsdSet, acting: OsdSet, entry: UpmapEntry,
                                       wanted: OsdSet) -> None:
    pin = plan_partial_pin(pool(3, False), up, acting, entry, OSDS, None)
    assert isinstance(pin, Pin) and set(wanted) <= {1, *pin.entry.targets}


@pytest.mark.parametrize('erasure', [True, False])
def test_no_shard_stays_on_an_osd_that_it_must_leave(erasure: bool) -> None:
    """CRUSH may reject an OSD for its reweight, which a pin would overrule."""
    def pin(*leaving: int) -> Any:
        return plan_partial_pin(pool(3, erasure), (1, 2, 3), (5, 2, 4), UpmapEntry(), OSDS, None,
                                leaving=leaving)
    assert set(pin().entry.items) == {(1, 5), (3, 4)} and not pin().unpinned_reason
    assert pin(5).entry.targets == (4,) and pin(5).unpinned_reason
    assert isinstance(pin(4, 5), Unpinnable)


@pytest.mark.parametrize('erasure, up, acting', [
    (True, (1, 2, 3), (1, NO_OSD, 3)),  # it only recovers
    (True, (1, NO_OSD, NO_OSD), (1, NO_OSD, 3)),  # no pair fills a hole, a vector has none
    (True, (1, 4, 3), (1, NO_OSD, 4)),  # the shard that is lost recovers to the other one's OSD
    (False, (1, 2, 3), (1, 2))])
def test_where_nothing_can_stay_the_reason_is_that_of_the_whole(
        erasure: bool, up: OsdSet, acting: OsdSet) -> None:
    found = plan_partial_pin(pool(3, erasure), up, acting, UpmapEntry(), OSDS, None)
    assert isinstance(found, Unpinnable) and 'acting set' in found.reason


def test_no_shard_is_held_where_a_rule_has_chosen_an_osd_twice() -> None:
    pin = plan_partial_pin(pool(3, False), (1, 1, 2), (2, 3, 5), UpmapEntry(), OSDS, None,
                           leaving=(5,))
    assert isinstance(pin, Unpinnable)


def test_of_shards_that_cannot_stay_together_some_stay() -> None:
    """The lost shard recovers to osd.4, whose host has another shard."""
    hosts = {osd: ToyOsd(host) for osd, host in enumerate((0, 0, 1, 1, 2, 2, 3, 3))}
    crush = CrushRules.from_dump(ToyMon(hosts, 3, ()).crush_dump())
    pin = plan_partial_pin(pool(3, True), (0, 4, 6), (1, NO_OSD, 5), UpmapEntry(),
                           {osd: Osd(osd, True, 1.0) for osd in hosts}, crush)
    assert isinstance(pin, Pin) and pin.entry == UpmapEntry(((0, 1),))


def test_no_pair_is_planned_where_crush_leaves_a_hole() -> None:
    """The mons cancel all pairs of a PG whose set has one, unless its OSD is only down."""
    osds = {osd: Osd(osd, True, 1.0) for osd in range(10)}
    for known, kind in ((osds, Unpinnable), (OSDS, Pin)):
        assert isinstance(plan_partial_pin(pool(3, True), (1, NO_OSD, 3), (1, NO_OSD, 4),
                                           UpmapEntry(), known, None), kind)


@pytest.mark.parametrize('up, acting, entry, erasure', [
    # The second pair leads to osd.9, which is down; the first has no effect.
    ((0, 1, NO_OSD, 4), (0, 4, NO_OSD, 1), UpmapEntry(((2, 1), (2, 9))), True),
    # The first pair has replaced osd.4, so the second has no effect.
    ((0, 3, 2), (2, 4), UpmapEntry(((4, 2), (4, 0))), False)])
def test_two_pairs_of_one_osd_are_left_alone(up: OsdSet, acting: OsdSet, entry: UpmapEntry,
                                             erasure: bool) -> None:
    """One of them has an effect, and the set shows only sometimes which."""
    assert isinstance(plan_partial_pin(pool(len(up), erasure), up, acting, entry, OSDS, None),
                      Unpinnable)
