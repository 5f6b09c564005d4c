# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pins, against an independent model of the mon."""
import copy
from typing import Dict, List

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.types import NO_OSD, Osd, Pool, UpmapEntry, out_osds
from perfguard.upmap.pins import (Pin, Unpinnable, after_commit, has_no_target, merge_reason,
                                  pin_from_raw, plan_pin, released_up, without_vector)
from perfguard.upmap.semantics import apply_entry, raw_from_up

from ..fakes.mon_model import HOLE, Stored, ToyMon, ToyOsd

MANY = settings(max_examples=250, deadline=None,
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


def pool(size, erasure):
    return Pool(1, 'p', erasure, size, 2, 0, 32, 32, 32, data_shards=size - 2 if erasure else 1)


def osds_of(mon):
    return {i: Osd(i, o.up, o.reweight) for i, o in mon.osds.items()}


def entry_of(stored: Stored) -> UpmapEntry:
    return UpmapEntry(tuple(stored.items), None if stored.vector is None else tuple(stored.vector))


def commit(mon, entry):
    mon.commit(entry.items, entry.vector)


@st.composite
def mons(draw, healthy=True):
    """A toy cluster with a legal raw set and a random entry as the mon has cleaned it up."""
    hosts = draw(st.integers(3, 8))
    good = ToyOsd(0)
    kinds = st.sampled_from([good] if healthy else [
        good, good, good, good._replace(crush_weight=0.0), good._replace(reweight=0.0),
        good._replace(up=False), good._replace(reweight=0.5)])
    osds: Dict[int, ToyOsd] = {}
    for host in range(hosts):
        for _ in range(draw(st.integers(1, 2))):
            osds[len(osds)] = draw(kinds)._replace(host=host)
    usable: Dict[int, List[int]] = {}
    for osd, toy in osds.items():
        if toy.crush_weight and toy.reweight:
            usable.setdefault(toy.host, []).append(osd)
    assume(len(usable) >= 2)
    size = draw(st.integers(2, min(6, len(usable))))
    mon = ToyMon(osds, size, draw(legal_sets(usable, size)))
    mon.usable = usable
    commit(mon, draw(entries(mon)))
    mon.next_epoch()
    return mon


@st.composite
def legal_sets(draw, usable, size):
    hosts = draw(st.permutations(sorted(usable)))[:size]
    return [draw(st.sampled_from(usable[host])) for host in hosts]


@st.composite
def entries(draw, mon):
    """Any entry that the mon does not refuse outright, legal or not."""
    ids = st.sampled_from(sorted(mon.osds))
    # Mostly from the raw set, as tools set items.
    source = st.one_of(st.sampled_from(mon.raw), st.sampled_from(mon.raw), ids)
    pairs = draw(st.lists(st.tuples(source, ids).filter(lambda p: p[0] != p[1]),
                          max_size=mon.size, unique=True))
    vector = draw(st.one_of(
        st.none(), st.none(), st.none(), legal_sets(mon.usable, mon.size),
        st.permutations(mon.raw), st.lists(ids, min_size=1, max_size=mon.size, unique=True)))
    return UpmapEntry(tuple(pairs), None if vector is None else tuple(vector))


@st.composite
def remapped(draw, healthy=True):
    """A mon, and a legal acting set which shares much with the up set."""
    mon = draw(mons(healthy))
    up = mon.up()
    kept = draw(st.lists(st.sampled_from(up), unique=True))
    taken = {mon.osds[osd].host for osd in kept}
    free = {host: osds for host, osds in mon.usable.items() if host not in taken}
    assume(len(free) >= mon.size - len(kept))
    acting = kept + draw(legal_sets(free, mon.size - len(kept)))
    if draw(st.booleans()):
        acting = draw(st.permutations(acting))
    return mon, tuple(acting)


def plan(mon, acting, erasure, **kwargs):
    return plan_pin(pool(mon.size, erasure), tuple(mon.up()), acting, entry_of(mon.stored),
                    osds_of(mon), CrushRules.from_dump(mon.crush_dump()), **kwargs)


@MANY
@given(remapped(), st.booleans(), st.booleans())
def test_every_legal_acting_set_is_pinned_and_the_mon_keeps_the_pin(case, erasure, exact):
    mon, acting = case
    before, up_before = mon.stored, mon.up()
    pin = plan(mon, acting, erasure, exact=exact)
    assert isinstance(pin, Pin), pin
    assert pin.changed == (pin.entry != entry_of(before))
    commit(mon, pin.entry)
    event('vector' if pin.entry.vector else 'items' if pin.entry.items else 'removed')
    if erasure or exact:
        assert tuple(mon.up()) == acting
    else:
        assert set(mon.up()) == set(acting)
    unknown = raw_from_up(tuple(up_before), entry_of(before), ()) is None
    if unknown and acting == tuple(mon.raw):
        return      # the vector equals the raw set, unknown to perfguard; the mon drops it
    assert entry_of(mon.stored) == pin.entry
    if pin.changed:
        assert len({source for source, _ in pin.entry.items}) == len(pin.entry.items) <= mon.size
    if set(mon.raw) != set(acting) and set(up_before) != set(acting):
        assert mon.up()[0] == acting[0], 'the primary moved'


@MANY
@given(remapped(healthy=False), st.booleans())
def test_what_is_legal_is_pinned_even_to_osds_that_are_down(case, erasure):
    mon, acting = case
    pin = plan(mon, acting, erasure)
    assert isinstance(pin, Pin), pin
    commit(mon, pin.entry)
    assert set(mon.up()) == set(acting)


@MANY
@given(mons(healthy=False), st.data())
def test_illegal_acting_sets_are_refused_with_a_reason(mon, data):
    acting = tuple(data.draw(st.lists(st.sampled_from(sorted(mon.osds)), min_size=mon.size,
                                      max_size=mon.size, unique=True)))
    assume(not mon.legal(acting) and set(acting) != set(mon.up()))
    pin = plan(mon, acting, data.draw(st.booleans()))
    assert isinstance(pin, Unpinnable)
    assert 'osd.' in pin.reason


@MANY
@given(mons(healthy=False), st.booleans(), st.data())
def test_nonsense_never_raises_and_never_mutates(mon, erasure, data):
    ids = st.sampled_from(sorted(mon.osds) + [NO_OSD, -1, 4711])
    sets = st.lists(ids, max_size=8).map(tuple)
    crush_dump, osds = mon.crush_dump(), osds_of(mon)
    copies = copy.deepcopy((crush_dump, osds))
    crush = data.draw(st.sampled_from([None, CrushRules.from_dump(crush_dump)]))
    up = data.draw(st.one_of(sets, st.just(tuple(mon.up()))))
    pairs = tuple(data.draw(st.lists(st.tuples(ids, ids), max_size=5)))
    entry = UpmapEntry(pairs, data.draw(st.one_of(st.none(), sets)))
    acting = data.draw(sets)
    result = plan_pin(pool(mon.size, erasure), up, acting, entry, osds, crush)
    if isinstance(result, Unpinnable):
        assert result.reason
    elif result.changed:
        assert NO_OSD not in acting and len(set(acting)) == mon.size
    released_up(pool(mon.size, erasure), up, entry, entry, out_osds(osds))
    assert (crush_dump, osds) == copies


@MANY
@given(mons(healthy=False), st.booleans(), st.data())
def test_after_commit_agrees_with_the_mon(mon, merging, data):
    entry = data.draw(entries(mon))
    mon.merging = merging
    commit(mon, entry)
    merging_pool = Pool(1, 'p', False, mon.size, 2, 0, 32, 31, 31 if merging else 32)
    left = after_commit(tuple(mon.raw), entry, merging_pool, osds_of(mon),
                        CrushRules.from_dump(mon.crush_dump()), '1.1f')
    event('kept' if left == entry else 'simplified' if left else 'cancelled')
    assert left == entry_of(mon.stored)
    assert list(apply_entry(tuple(mon.raw), left, out_osds(osds_of(mon)))) == mon.up()


@MANY
@given(mons(healthy=False))
def test_raw_set_is_found_or_admitted_unknown(mon):
    entry, out = entry_of(mon.stored), out_osds(osds_of(mon))
    raw = raw_from_up(tuple(mon.up()), entry, out)
    sources = [source for source, _ in entry.items]
    if entry.vector is None and len(set(sources)) == len(sources):
        assert raw is not None
    event('known' if raw else 'unknown')
    assert raw is None or list(raw) == mon.raw


@MANY
@given(remapped(), st.booleans())
def test_release_leads_back_to_where_the_pg_was_going(case, erasure):
    mon, acting = case
    before, target = entry_of(mon.stored), tuple(mon.up())
    raw = raw_from_up(target, before, ())
    pin = plan(mon, acting, erasure)
    assert isinstance(pin, Pin)
    commit(mon, pin.entry)
    assert released_up(pool(mon.size, erasure), tuple(mon.up()), entry_of(mon.stored), before, (),
                       raw) in ((target, None) if raw is None else (target,))


OSDS = {i: Osd(i, True, 1.0) for i in range(12)}


def pin_of(up, acting, entry=UpmapEntry(), erasure=False, **kwargs):
    return plan_pin(pool(len(up), erasure), up, acting, entry, OSDS, None, **kwargs)


@pytest.mark.parametrize('up, acting, entry, expected', [
    ((1, 2, 3), (1, 2, 4), (), ((3, 4),)),
    ((1, 2, 3), (1, 3, 2), (), ()),
    # the order of the acting set, so that no primary moves
    ((1, 2, 3), (3, 4, 5), (), ((2, 4), (3, 5), (1, 3))),
    # an existing pair that still serves stays, also if its position does not fit
    ((7, 2, 3), (7, 2, 4), ((1, 7),), ((1, 7), (3, 4))),
    ((1, 2, 3, 7, 5), (1, 3, 2, 8, 7), ((4, 7),), ((4, 7), (5, 8))),
    # a stale pair goes
    ((1, 2, 3), (1, 2, 4), ((1, 2),), ((3, 4),)),
    # undone altogether
    ((7, 2, 3), (1, 2, 3), ((1, 7),), ()),
    # a swap beside a new OSD: the set and the primary fit, the rest of the order cannot
    ((1, 2, 3), (2, 1, 4), (), ((2, 4), (1, 2), (3, 1))),
])
def test_replicated_pairs(up, acting, entry, expected):
    pin = pin_of(up, acting, UpmapEntry(entry))
    assert pin == Pin(UpmapEntry(expected), expected != entry)


@pytest.mark.parametrize('up, acting, entry, expected', [
    ((0, 1, 2, 3), (1, 9, 2, 3), (), UpmapEntry(((1, 9), (0, 1)))),
    ((0, 1, 2, 3), (1, 0, 2, 3), (), UpmapEntry(vector=(1, 0, 2, 3))),
    ((0, 1, 2, 3), (1, 2, 0, 8), (), UpmapEntry(vector=(1, 2, 0, 8))),
    ((0, 1, 8, 3), (0, 1, 2, 3), ((2, 8),), UpmapEntry()),
    ((0, 1, 8, 3), (0, 1, 9, 3), ((2, 8),), UpmapEntry(((2, 9),))),
])
def test_erasure_coded_pairs_or_vector(up, acting, entry, expected):
    assert pin_of(up, acting, UpmapEntry(entry), True) == Pin(expected, True)


def test_exact_order_takes_a_vector_where_pairs_cannot():
    assert pin_of((1, 2, 3), (2, 1, 3), exact=True) == Pin(UpmapEntry(vector=(2, 1, 3)), True)


def test_vector_hides_the_raw_set_unless_told():
    vector = UpmapEntry(vector=(1, 2, 3))
    assert pin_of((1, 2, 3), (1, 2, 4), vector) == Pin(UpmapEntry(vector=(1, 2, 4)), True)
    assert pin_of((1, 2, 3), (1, 2, 4), vector, raw=(1, 2, 5)) == Pin(UpmapEntry(((5, 4),)), True)
    # an outdated raw set does no harm where the up set is known
    assert pin_of((1, 2, 3), (1, 2, 4), raw=(1, 2, 5)) == Pin(UpmapEntry(((3, 4),)), True)


@pytest.mark.parametrize('up, acting, words', [
    ((1, 2, 3), (1, NO_OSD, 4), 'acting set has a hole'),
    ((1, 2, 3), (1, 4), 'acting set has 2 OSDs'),
    ((1, 2, 3), (1, 4, 4), 'twice'),
    ((1, 2, 3), (1, 2, 99), 'osd.99 does not exist'),
])
def test_sets_that_cannot_be_pinned(up, acting, words):
    for erasure in (False, True):
        result = plan_pin(pool(3, erasure), up, acting, UpmapEntry(), OSDS, None)
        assert isinstance(result, Unpinnable) and words in result.reason


@pytest.mark.parametrize('up, acting, replicated, erasure', [
    ((1, 2, 3), (1, 2, 4), False, False),
    ((1, 2, NO_OSD), (1, 2, 4), True, True),
    ((1, 2), (1, 2, 4), True, True),
    ((2, 1, NO_OSD), (1, 2, 4), True, False),
    ((1, 5, NO_OSD), (1, 2, 4), False, False),
    ((NO_OSD, 2, 4), (1, NO_OSD, 4), False, False),
    ((NO_OSD, NO_OSD, 4), (1, NO_OSD, 4), True, True),
    ((), (1, 2, 4), True, True)])
def test_a_pg_stays_if_its_set_lacks_osds_and_the_others_have_its_data(
        up, acting, replicated, erasure):
    assert has_no_target(pool(3, False), up, acting) == replicated
    assert has_no_target(pool(3, True), up, acting) == erasure


@pytest.mark.parametrize('osd, words', [
    (Osd(4, True, 0.0), 'osd.4 is out'),
    (Osd(4, True, 1.0, destroyed=True), 'osd.4 is destroyed'),
    (Osd(4, True, 1.0, exists=False), 'osd.4 does not exist'),
])
def test_osds_that_cannot_be_pinned_to(osd, words):
    result = plan_pin(pool(3, False), (1, 2, 3), (1, 2, 4), UpmapEntry(), {**OSDS, 4: osd}, None)
    assert isinstance(result, Unpinnable) and result.reason == words


def test_pairs_that_are_legal_only_together_stay_together():
    """Each of the two pairs alone would put two OSDs on one host."""
    mon = ToyMon({0: ToyOsd(0), 1: ToyOsd(1), 2: ToyOsd(1), 3: ToyOsd(0)}, 2, [0, 1])
    pin = plan(mon, (2, 3), False)
    assert isinstance(pin, Pin) and len(pin.entry.items) == 2
    for pair in pin.entry.items:
        commit(mon, UpmapEntry((pair,)))
        assert mon.stored == Stored([], None)
    commit(mon, pin.entry)
    assert mon.up() == [2, 3]


def test_merge_reason():
    assert merge_reason(pool(3, False), '1.1') is None
    assert merge_reason(Pool(1, 'p', False, 3, 2, 0, 32, 16, 31), '1.f') is not None


def test_the_models_hole_is_ceph_s():
    assert HOLE == NO_OSD


# ---- a PG that stays where its pin has it

@pytest.mark.parametrize('erasure, raw, up, wanted', [
    (False, (1, 2, 3), (3, 1, 2), UpmapEntry()),             # order alone needs no upmap
    (False, (1, 2, 3), (1, 4, 3), UpmapEntry(((2, 4),))),
    (True, (1, 2, 3), (1, 4, 3), UpmapEntry(((2, 4),))),
    (True, (1, 2, 3), (2, 1, 3), UpmapEntry(vector=(2, 1, 3)))])  # a swap, which pairs cannot say
def test_a_vector_that_stays_is_said_by_items_where_they_can(erasure, raw, up, wanted) -> None:
    assert without_vector(pool(3, erasure), raw, up, UpmapEntry(vector=up), ()) == wanted


def test_items_that_stay_are_left_as_they_are() -> None:
    entry = UpmapEntry(((2, 4), (9, 1)))
    assert without_vector(pool(3, False), (1, 2, 3), (1, 4, 3), entry, ()) == entry


@MANY
@given(mons(), st.booleans(), st.data())
def test_what_is_restated_leads_to_the_same_place(mon, erasure, data) -> None:
    up = data.draw(legal_sets(mon.usable, mon.size))
    entry = without_vector(pool(mon.size, erasure), tuple(mon.raw), tuple(up),
                           UpmapEntry(vector=tuple(up)), ())
    commit(mon, entry)
    got = mon.up()
    assert got == list(up) if erasure else set(got) == set(up)


# ---- the smallest change of an entry

def pinned_entry(pool, up, acting, entry, osds=20):
    known = {i: Osd(i, True, 1.0) for i in range(osds)}
    pin = plan_pin(pool, up, acting, entry, known, None)
    assert isinstance(pin, Pin), pin
    return pin.entry


@pytest.mark.parametrize('erasure', [False, True])
def test_pairs_that_still_serve_keep_their_order_and_others_are_added(erasure):
    pool = Pool(1, 'p', erasure, 4, 2, 0, 8, 8, 8)
    raw, existing = (1, 2, 3, 4), ((3, 7), (1, 5))
    up = apply_entry(raw, UpmapEntry(existing), ())
    assert up == (5, 2, 7, 4)
    # CRUSH now wants 6 in place of 2, whose data stays where it is.
    new = (1, 6, 3, 4)
    entry = pinned_entry(pool, apply_entry(new, UpmapEntry(existing), ()), up,
                         UpmapEntry(existing))
    assert entry.items == ((3, 7), (1, 5), (6, 2))
    assert apply_entry(new, entry, ()) == up


def test_a_pair_stays_although_others_would_restore_the_very_order():
    """The primary is the same, and the order of the others does not matter."""
    pool = Pool(1, 'p', False, 4, 2, 0, 8, 8, 8)
    existing = ((2, 5),)
    raw, acting = (1, 2, 3, 9), (1, 3, 5, 4)
    entry = pinned_entry(pool, apply_entry(raw, UpmapEntry(existing), ()), acting,
                         UpmapEntry(existing))
    assert entry.items == ((2, 5), (9, 4))


def test_a_pair_gives_way_where_it_would_move_the_primary():
    pool = Pool(1, 'p', False, 3, 2, 0, 8, 8, 8)
    existing = ((1, 4),)
    raw, acting = (1, 2, 3), (2, 4, 5)
    entry = pinned_entry(pool, apply_entry(raw, UpmapEntry(existing), ()), acting,
                         UpmapEntry(existing))
    assert apply_entry(raw, entry, ())[0] == 2 and set(apply_entry(raw, entry, ())) == {2, 4, 5}


@pytest.mark.parametrize('entry, existing', [
    (UpmapEntry(((3, 7), (5, 6))), ()), (UpmapEntry(), ((3, 7), (5, 6)))])
def test_pairs_of_callers_stay_in_a_cycle_of_positions_too(entry, existing):
    """1 and 2 change places, which pairs cannot write position by position."""
    raw, acting = (1, 2, 3, 5), (2, 1, 6, 7)
    pin = pin_from_raw(raw, acting, entry, False, frozenset(), existing)
    assert isinstance(pin, Pin)
    assert (5, 6) in pin.entry.items
    reached = apply_entry(raw, pin.entry, ())
    assert set(reached) == set(acting) and reached[0] == acting[0]


@pytest.mark.parametrize('erasure', [False, True])
def test_a_pair_without_its_source_in_the_raw_set_is_dropped_as_the_mon_drops_it(erasure):
    pool = Pool(1, 'p', erasure, 3, 2, 0, 8, 8, 8)
    stale = UpmapEntry(((9, 8), (1, 5)))
    raw, acting = (1, 2, 3), (5, 2, 7)
    up = apply_entry(raw, stale, ())
    assert raw_from_up(up, stale, ()) == raw
    assert pinned_entry(pool, up, acting, stale) == UpmapEntry(((1, 5), (3, 7)))
