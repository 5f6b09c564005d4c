# SPDX-License-Identifier: LGPL-2.1-or-later
"""perfguard's pins across a restart."""
from dataclasses import replace
from typing import Dict, List, Tuple

from hypothesis import given, settings
from hypothesis import strategies as st

from perfguard.cluster.types import UpmapEntry
from perfguard.rebalance.campaign_store import UNPINNABLE, PinStore
from perfguard.rebalance.types import PinRecord
from perfguard.store import Store

from ..fakes.cluster import MemoryKv
from ..fakes.driver import Driver

PINS = [PinRecord(UpmapEntry(), UpmapEntry(((1, 2), (3, 4)))),
        PinRecord(UpmapEntry(((1, 5),)), UpmapEntry(vector=(4, 5, 6)), raw=(1, 5, 6)),
        PinRecord(UpmapEntry(vector=(1, 2)), UpmapEntry(((0, 1),))),
        PinRecord(UpmapEntry(), UpmapEntry(((0, 1),)), was=UpmapEntry(((0, 2),))),
        PinRecord(UpmapEntry(), UpmapEntry(((0, 1),)), earlier=UpmapEntry(((0, 2),)))]
#: Others of the first pin that differ in their goals: only these are stored.
GOALS = [replace(PINS[0], goal=goal) for goal in (UpmapEntry(), UpmapEntry(((1, 2),)),
                                                  UpmapEntry(vector=(4, 5)))]
PGIDS = st.sampled_from(['1.%d' % i for i in range(6)])
STEPS = st.lists(st.one_of(
    st.tuples(st.just('note'), st.dictionaries(PGIDS, st.sampled_from([*PINS, *GOALS]),
                                               max_size=4)),
    st.tuples(st.just('note'), st.dictionaries(PGIDS, st.sampled_from([PINS[0], *GOALS]),
                                               max_size=4)),
    st.tuples(st.just('forget'), st.sets(PGIDS, max_size=4)),
    st.tuples(st.just('tidy'), st.none()),
    st.tuples(st.just('restart'), st.none())), max_size=16)


def reopened(kv: MemoryKv) -> PinStore:
    book = PinStore(Store(kv))
    assert book.load() == []
    return book


def tidy(book: PinStore) -> None:
    while not book.is_tidy:
        book.tidy()


def test_round_trip() -> None:
    kv = MemoryKv()
    pins = {'1.%d' % i: pin for i, pin in enumerate(PINS)}
    PinStore(Store(kv)).note(pins)
    assert dict(reopened(kv)) == pins


@settings(max_examples=250, deadline=None)
@given(STEPS)
def test_no_pin_is_lost_and_the_newest_counts(steps: List[Tuple[str, object]]) -> None:
    kv = MemoryKv()
    book = PinStore(Store(kv))
    wanted: Dict[str, PinRecord] = {}
    newest: Dict[str, PinRecord] = {}
    for verb, argument in steps:
        if verb == 'note':
            assert isinstance(argument, dict)
            book.note(argument)
            wanted.update(argument)
            newest.update(argument)
        elif verb == 'forget':
            assert isinstance(argument, set)
            book.forget(argument)
            for pgid in argument:
                wanted.pop(pgid, None)
            assert not set(book) & argument
        elif verb == 'tidy':
            book.tidy()
        else:
            book = reopened(kv)
            # A document that is not empty yet may bring back what was released.
            assert {pgid: book[pgid] for pgid in wanted} == wanted
            assert dict(book) == {pgid: newest[pgid] for pgid in book}
            wanted = dict(book)
        assert kv.data or not wanted
    assert {pgid: book[pgid] for pgid in wanted} == wanted and len(book) == len(wanted)
    book.forget(set(wanted))
    tidy(book)
    assert not kv.data


def test_no_goal_returns_that_was_replaced() -> None:
    """1.0 was to leave osd.2, and is to stay there since OSDs were reweighted: its pin was kept."""
    kv, pinned = MemoryKv(), PinRecord(UpmapEntry(), UpmapEntry(((1, 2),)))
    away, stays = replace(pinned, goal=UpmapEntry()), replace(pinned, goal=pinned.entry)
    book = PinStore(Store(kv))
    book.note({'1.0': away, '1.1': away})
    book.note({'1.0': stays})
    book.forget({'1.0'})
    assert reopened(kv).get('1.0') in (None, stays)
    book.forget({'1.1'})
    tidy(book)
    assert not kv.data


def test_a_document_does_not_keep_those_that_were_replaced() -> None:
    """The goals of all pins may be computed many times while one PG moves."""
    kv = MemoryKv()
    book = PinStore(Store(kv))
    book.note({'1.0': PINS[0], '1.1': PINS[0]})
    for number in range(4):
        book.note({'1.0': PINS[number], '1.2': PINS[number]})
    tidy(book)
    assert Store(kv).names('pins/') == ['pins/000001', 'pins/000006']
    book.forget({'1.0', '1.2'})
    assert reopened(kv)['1.0'] == PINS[3]
    book.forget({'1.1'})
    tidy(book)
    assert not kv.data


def test_a_document_is_removed_with_its_last_pin() -> None:
    kv = MemoryKv()
    book = PinStore(Store(kv))
    book.note({'1.0': PINS[0], '1.1': PINS[1]})
    book.forget({'1.0'})
    tidy(book)
    assert kv.data
    book.forget({'1.1', '1.5'})
    tidy(book)
    assert not kv.data and len(book) == 0


def test_a_changed_pin_moves_to_its_new_document() -> None:
    kv = MemoryKv()
    book = PinStore(Store(kv))
    book.note({'1.0': PINS[0]})
    book.note({'1.0': PINS[1]})
    tidy(book)
    assert Store(kv).names('pins/') == ['pins/000002']
    assert reopened(kv)['1.0'] == PINS[1]


def test_numbers_go_on_after_a_restart() -> None:
    kv = MemoryKv()
    PinStore(Store(kv)).note({'1.0': PINS[0]})
    reopened(kv).note({'1.1': PINS[1]})
    assert set(reopened(kv)) == {'1.0', '1.1'}


def test_an_empty_note_writes_nothing() -> None:
    kv = MemoryKv()
    PinStore(Store(kv)).note({})
    assert not kv.data


def test_what_is_no_pin_is_reported_and_the_rest_is_read() -> None:
    kv = MemoryKv()
    store = Store(kv)
    PinStore(store).note({'1.0': PINS[0]})
    store.put('pins/000002', {'1.1': ['nonsense']})
    store.put('pins/000003', [1, 2])
    book = PinStore(Store(kv))
    assert book.load() == ['pins/000002', 'pins/000003']
    assert dict(book) == {'1.0': PINS[0]}


def test_clear_leaves_nothing() -> None:
    kv = MemoryKv()
    store = Store(kv)
    book = PinStore(store)
    book.note({'1.0': PINS[0]})
    store.put('pins/000009', {})
    book.clear()
    assert not kv.data and len(book) == 0


def test_pins_that_return_together_with_others_of_an_old_batch() -> None:
    """Two of the documents that are no longer needed name the same one."""
    kv = MemoryKv()
    book = PinStore(Store(kv))
    book.note({'1.a': PINS[0], '1.e': PINS[0]})
    book.note({'1.e': PINS[1], '1.f': PINS[0]})
    book.forget({'1.e'})
    book.forget({'1.f'})
    book.note({'1.f': PINS[1], '1.a': PINS[1]})
    tidy(book)
    assert dict(reopened(kv)) == {'1.f': PINS[1], '1.a': PINS[1]}


def test_unpinnable_pgs_that_cannot_be_read_do_not_lose_the_campaign() -> None:
    driver = Driver()
    driver.ask('prepare')
    driver.run_to('PREPARED')
    Store(driver.kv).put(UNPINNABLE, {'1.1': {'code': 'OF_A_LATER_BUILD'}})
    driver.restart()
    driver.turn()
    assert driver.phase == 'PREPARED'
    assert any('cannot read the unpinnable PGs' in event['what']
               for event in driver.loop.published.events)
