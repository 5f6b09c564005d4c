# SPDX-License-Identifier: LGPL-2.1-or-later
"""Documents that survive damage and a crash between any two writes."""
import json
from typing import Any, Dict, List, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfguard.codec import encode
from perfguard.mitigation.types import MitigationState
from perfguard.store import PART_BYTES, STORE_VERSION, Store

from .fakes.cluster import Crash, MemoryKv
from .fakes.driver import Driver

DOCUMENTS = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=20),
                         lambda inner: st.lists(inner, max_size=4)
                         | st.dictionaries(st.text(max_size=5), inner, max_size=4))


def long(letter: str, parts: int) -> List[str]:
    return [letter * 1000] * (60 * (parts - 1) + 5)


@given(DOCUMENTS)
def test_round_trip(document: Any) -> None:
    kv = MemoryKv()
    Store(kv).put('x', document)
    fresh = Store(kv)
    assert fresh.get('x') == document and fresh.damaged == []


def test_long_documents_are_split_and_shrink_again() -> None:
    kv = MemoryKv()  # refuses values over 64 KiB
    store = Store(kv)
    store.put('x', long('a', 3))
    assert sorted(kv.data) == ['x/a/0000', 'x/a/0001', 'x/a/0002', 'x/head']
    store.put('x', long('b', 2))
    assert sorted(kv.data) == ['x/b/0000', 'x/b/0001', 'x/head']
    store.put('x', 'short')
    assert sorted(kv.data) == ['x/head']
    assert Store(kv).get('x') == 'short'


def test_what_is_removed_is_read_back() -> None:
    kv = MemoryKv()
    store = Store(kv)
    store.remove('pins/0')
    assert not store.unverified() and not store.removing
    store.put('pins/0', long('a', 2))
    store.put('history', 1)
    store.expect_nothing()
    kept = dict(kv.data)
    store.remove('history')
    store.remove('pins/0')
    assert store.unverified() == {'pins/0/head': None}
    assert store.removing and not store.is_verified('pins/0')
    kv.data.update({key: value for key, value in kept.items() if key.startswith('pins')})
    store.put_again()
    assert not kv.data and store.unverified() == {'pins/0/head': None}
    store.expect_nothing()
    assert not store.unverified() and not store.removing and store.is_verified('pins/0')
    # Written anew before that.
    store.put('pins/0', 1)
    store.remove('pins/0')
    store.put('pins/0', 2)
    store.put_again()
    assert list(store.unverified().values()) == [kv.data['pins/0/head']] and not store.removing


def test_what_is_not_there() -> None:
    store = Store(MemoryKv())
    assert store.get('x') is None and store.damaged == []


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 25))
def test_a_crash_between_any_two_writes(old_parts: int, new_parts: int, at: int) -> None:
    """What is read afterwards is one of the two documents, and the next put counts."""
    kv = MemoryKv()
    old, new = long('a', old_parts), long('b', new_parts)
    Store(kv).put('x', 'even older')
    Store(kv).put('x', old)
    survivor = Store(kv)
    assert survivor.get('x') == old
    kv.fault.count, kv.fault.at = 0, at
    try:
        survivor.put('x', new)
    except Crash:
        pass
    kv.fault.at = None
    fresh = Store(kv)
    assert fresh.get('x') in (old, new)
    fresh.put('x', 'newest')
    last = Store(kv)
    assert last.get('x') == 'newest' and last.damaged == []


def test_a_short_document_is_one_write() -> None:
    kv = MemoryKv()
    store = Store(kv)
    for document in ('short', 'x' * (PART_BYTES - 2)):
        kv.fault.count = 0
        store.put('x', document)
        assert kv.fault.count == 1
    kv.fault.count = 0
    store.put('x', 'x' * (PART_BYTES - 1))
    assert kv.fault.count == 2 + 1


SHORT, LONG = [1], long('a', 3)


@pytest.mark.parametrize('document, damage', [
    (SHORT, {'head': 'no json'}), (SHORT, {'head': '{"version": 1, "document": [1'}),
    (SHORT, {'head': '[]'}), (SHORT, {'head': '{"version": 1}'}), (SHORT, {'head': '{}'}),
    (SHORT, {'head': '{"version": "x", "document": 1}'}), (LONG, {'a/0001': None}),
    (LONG, {'a/0002': '"x'}), (LONG, {'head': '{"version": 1, "slot": "b", "parts": 3}'}),
    (LONG, {'head': '{"version": 1, "slot": "a", "parts": "x"}'})])
def test_what_is_not_readable_is_set_aside_and_reported(
        document: Any, damage: Dict[str, Optional[str]]) -> None:
    kv = MemoryKv()
    Store(kv).put('x', document)
    for key, value in damage.items():
        kv.set_store('x/' + key, value)
    before = {'damaged/' + key: value for key, value in kv.data.items()}
    store = Store(kv)
    assert store.get('x') is None
    assert [name for name, _ in store.damaged] == ['x'] and store.unreadable == {'x'}
    assert before.items() <= kv.data.items()
    # Set aside once: nothing is reported again, and writing goes on.
    again = Store(kv)
    assert again.get('x') is None and again.damaged == [] and again.lost_earlier() == ['x']
    again.acknowledge_losses()
    assert again.lost_earlier() == [] and not kv.data
    again.put('x', [3])
    assert Store(kv).get('x') == [3]


def written_by_a_newer_version(kv: MemoryKv, name: str) -> Dict[str, str]:
    """The document as its mgr left it in the store."""
    kv.data[name + '/head'] = json.dumps({**json.loads(kv.data[name + '/head']),
                                          'version': STORE_VERSION + 1})
    return {key: value for key, value in kv.data.items() if key.startswith(name + '/')}


def test_a_document_of_a_newer_version_stays_as_it_is() -> None:
    kv = MemoryKv()
    Store(kv).put('x', [1])
    before = written_by_a_newer_version(kv, 'x')
    store = Store(kv)
    assert store.get('x') is None and store.written_by_newer == {'x'}
    assert store.damaged == [] and not store.unreadable
    store.put('x', [2])
    store.remove('x')
    assert kv.data == before
    store.set_aside('x')
    store.put('x', [3])
    assert Store(kv).get('x') == [3]


def test_a_document_with_fields_of_a_newer_version_stays_as_it_is() -> None:
    kv = MemoryKv()
    Store(kv).put('mitigation', {**encode(MitigationState(last_id=7)), 'more': 1})
    before, store = dict(kv.data), Store(kv)
    assert store.load('mitigation', MitigationState, None) == (None, [])
    assert store.is_newer('mitigation') and store.withheld() == ['mitigation']
    assert store.damaged == [] and not store.unreadable
    store.put('mitigation', {})
    store.remove('mitigation')
    assert kv.data == before
    # Another mgr of this version has written it meanwhile.
    Store(kv).put('mitigation', encode(MitigationState(last_id=8)))
    store.recheck_newer()
    assert store.load('mitigation', MitigationState, None) == (MitigationState(last_id=8), [])
    assert not store.withheld()


@pytest.mark.parametrize('name', ['campaign', 'mitigation', 'pins/000001', 'rescues',
                                  'replacements'])
def test_changes_of_the_cluster_are_read_back_and_left_to_a_newer_version(name: str) -> None:
    kv = MemoryKv()
    store = Store(kv)
    store.put(name, [1])
    assert not store.is_verified(name) and not store.withheld()
    written_by_a_newer_version(kv, name)
    assert Store(kv).withheld() == [name]


def test_remove_and_names() -> None:
    kv = MemoryKv()
    store = Store(kv)
    for name in ('pins/2', 'pins/1', 'pinsandmore', 'x'):
        store.put(name, name)
    assert store.names('pins/') == ['pins/1', 'pins/2']
    store.remove('pins/1')
    assert store.names('pins/') == ['pins/2']
    assert store.get('pins/1') is None and store.get('pinsandmore') == 'pinsandmore'


class CountingKv(MemoryKv):
    """Counts how often keys are listed. While they are, `meanwhile` is called."""
    listed = 0

    def get_store_prefix(self, key_prefix: str) -> Dict[str, str]:
        self.listed += 1
        found = super().get_store_prefix(key_prefix)
        self.meanwhile()
        return found

    def meanwhile(self) -> None:
        pass


def test_keys_are_listed_once() -> None:
    """Each time, the mgr may stop for ever (qa/tests/test_mgr_locks.py)."""
    kv = CountingKv()
    kv.data = {'x/head': '{"version": 1, "document": 1}', 'notes/1': '2', 'damaged/y/lost': ''}
    store = Store(kv)
    assert store.names('') == ['x'] and store.notes('notes') == [('notes/1', 2)]
    assert store.lost_earlier() == ['y']
    for document in (long('a', 2), 'short', long('b', 3)):
        store.put('pins/0', document)
        assert set(store.unverified()) == {key for key in kv.data if key.startswith('pins/')}
    key = store.note('notes', 3, now=5.0)
    assert store.notes('notes') == [(key, 3), ('notes/1', 2)] and store.names('') == ['pins/0', 'x']
    store.drop_note(key)
    store.remove('pins/0')
    store.set_aside('x')
    assert sorted(kv.data) == ['damaged/x/head', 'damaged/y/lost', 'notes/1']
    store.acknowledge_losses()
    assert kv.data == {'notes/1': '2'} and store.names('') == [] and kv.listed == 1
    # Another mgr may have been active meanwhile.
    kv.data['z/head'] = '{"version": 1, "document": 1}'
    store.recheck_newer()
    assert store.names('') == ['z'] and kv.listed == 2


def test_what_an_earlier_mgr_writes_late_is_found_and_removed() -> None:
    kv = MemoryKv()
    store = Store(kv)
    assert store.names('pins/') == []
    kv.data['pins/1/head'] = kv.data['pins/2/head'] = '{"version": 1, "document": 1}'
    store.remove('pins/1')
    assert store.unverified() == {'pins/1/head': None}
    assert store.names('pins/') == []
    store.list_again()
    assert store.names('pins/') == ['pins/2']


def test_keys_that_cannot_be_listed_are_listed_next_time() -> None:
    kv = CountingKv()
    kv.data['x/head'] = '{"version": 1, "document": 1}'
    store = Store(kv)

    def fail() -> None:
        raise OSError

    setattr(kv, 'meanwhile', fail)
    with pytest.raises(OSError):
        store.names('')
    setattr(kv, 'meanwhile', lambda: None)
    assert store.names('') == ['x']


def test_what_a_thread_writes_while_keys_are_listed_is_known() -> None:
    kv = CountingKv()
    store = Store(kv)
    setattr(kv, 'meanwhile', lambda: store.note('notes', 1, now=5.0))
    assert store.names('') == []
    assert [document for _, document in store.notes('notes')] == [1]


def test_a_campaign_lists_keys_once_when_it_ends() -> None:
    driver, kv = Driver(), CountingKv()
    driver.kv = driver.cluster.kv = kv
    driver.restart()
    driver.turn()
    assert kv.listed == 1
    driver.to_releasing()
    assert kv.listed == 1
    # As a command of an mgr that failed.
    kv.data['pins/000099/head'] = '{"version": 1, "document": {}}'
    driver.run_to('DONE')
    driver.run(5)
    assert kv.listed == 2 and not [key for key in kv.data if key.startswith('pins/')]


def test_notes_come_back_in_order() -> None:
    kv = MemoryKv()
    store = Store(kv)
    keys = [store.note('requests', {'n': n}, 9.0 + n) for n in range(3)]
    store.drop_note(keys[1])
    assert Store(kv).notes('requests') == [(keys[0], {'n': 0}), (keys[2], {'n': 2})]
    assert Store(kv).notes('other') == []


def test_an_unreadable_note_is_dropped_and_reported() -> None:
    kv = MemoryKv()
    kv.data['requests/00001'] = 'no json'
    store = Store(kv)
    good = store.note('requests', 1, 1000.0)
    assert store.notes('requests') == [(good, 1)]
    assert [key for key, _ in store.damaged] == ['requests/00001']
    assert 'requests/00001' not in kv.data


def test_what_an_earlier_mgr_has_lost() -> None:
    kv = MemoryKv()
    store = Store(kv)
    for name in ('whole', 'lost', 'pins/000001'):
        store.put(name, {'of': name})
    assert store.lost_earlier() == []
    for key in ('lost/head', 'pins/000001/head'):
        kv.data[key] = 'x'
    kv.data['requests/00001'] = 'x'
    store = Store(kv)
    for name in ('whole', 'lost', 'pins/000001'):
        store.get(name)
    store.notes('requests')
    assert store.lost_earlier() == [], 'that is its own'
    assert Store(kv).lost_earlier() == ['lost', 'pins/000001', 'requests/00001']
