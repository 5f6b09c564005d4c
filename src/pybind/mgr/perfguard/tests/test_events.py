# SPDX-License-Identifier: LGPL-2.1-or-later
from typing import List

import pytest

from perfguard import events as events_module
from perfguard.events import MOST_RECENT, Event, EventLog
from perfguard.store import Store

from .fakes.cluster import Crash, Fault, MemoryKv

MANY = 3 * MOST_RECENT + 5


def noted(events: EventLog, first: int, last: int) -> None:
    """Note events one at a time, each with a write."""
    for number in range(first, last):
        events.note(Event('test', 'event %d' % number), float(number))
        events.save()


def loaded(kv: MemoryKv) -> EventLog:
    events = EventLog(Store(kv))
    events.load()
    return events


def ids(events: EventLog) -> List[int]:
    return [event['id'] for event in events.all()]


def test_all_events_are_loaded_again() -> None:
    kv = MemoryKv()
    for number in range(MANY):
        noted(loaded(kv), number, number + 1)
        assert ids(loaded(kv)) == list(range(1, number + 2))


def test_only_the_last_ones_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, 'MOST_EVENTS', 10)
    kv = MemoryKv()
    noted(EventLog(Store(kv)), 0, MANY)
    assert ids(loaded(kv)) == list(range(MANY - 9, MANY + 1))


def test_events_of_one_kind_take_half_of_the_log_if_there_are_others(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """A campaign may hold and continue every 15 s for days."""
    monkeypatch.setattr(events_module, 'MOST_EVENTS', 10)
    kv = MemoryKv()
    events = EventLog(Store(kv))
    for number in range(4):
        events.note(Event('request', 'order %d' % number), float(number))
    noted(events, 4, MANY)
    assert ids(loaded(kv)) == [1, 2, 3, 4, *range(MANY - 5, MANY + 1)]
    for number in range(MANY, MANY + 4):
        events.note(Event('request', 'order %d' % number), float(number))
    assert ids(events) == [4, *range(MANY - 4, MANY + 5)]


def test_a_write_is_short_however_long_the_log_is() -> None:
    kv, sizes = MemoryKv(), []
    events = EventLog(Store(kv))
    for number in range(MANY):
        before = dict(kv.data)
        noted(events, number, number + 1)
        sizes.append(sum(len(value) for key, value in kv.data.items()
                         if before.get(key) != value))
    longest = len(kv.data['events/head'])
    assert sorted(sizes)[int(0.95 * MANY)] < longest < sum(sizes)
    # Writes of all events would take half of this on average.
    assert sum(sizes) < 0.3 * longest * MANY


@pytest.mark.parametrize('write', range(1, 9))
def test_no_event_is_lost_or_twice_there_after_a_crash(write: int) -> None:
    fault = Fault()
    kv = MemoryKv(fault)
    events = EventLog(Store(kv))
    noted(events, 0, MOST_RECENT)
    fault.at = fault.count + write
    with pytest.raises(Crash):
        noted(events, MOST_RECENT, MANY)
    # The last event may be lost: its write has failed.
    assert ids(loaded(kv)) in (ids(events), ids(events)[:-1])


def test_the_log_of_an_earlier_version_is_continued() -> None:
    kv = MemoryKv()
    store = Store(kv)
    store.put('events', [{'id': 7, 'time': 1.0, 'kind': 'test', 'what': 'old', 'why': ''}])
    noted(loaded(kv), 0, 2)
    assert ids(loaded(kv)) == [7, 8, 9]
