# SPDX-License-Identifier: LGPL-2.1-or-later
"""Where records are kept: none is lost, and no id is given twice."""
from typing import Any, Dict

import pytest

from perfguard.codec import encode
from perfguard.probe.records import Archive, RunRecord
from perfguard.store import Store

from ..fakes.cluster import Crash, MemoryKv
from ..fakes.probe_records import LATENCY, run, step


def record(run_id: int, state: str = 'done') -> RunRecord:
    return run(run_id, [step(LATENCY, [float(run_id)])], state=state)


@pytest.fixture
def kv() -> MemoryKv:
    return MemoryKv()


def opened(kv: MemoryKv) -> Archive:
    """An archive as the next mgr has it."""
    return Archive(Store(kv))


def test_the_next_mgr_has_what_was_put(kv: MemoryKv) -> None:
    archive = opened(kv)
    assert archive.load() == []
    archive.put(record(1))
    archive.put(record(2, 'running'))
    archive.put(record(2))
    archive.put(record(3))
    archive.remove(3)
    archive.remove(4)
    assert [(each.id, each.state) for each in opened(kv).load()] == [(1, 'done'), (2, 'done')]
    assert Store(kv).names('probe/') == ['probe/1', 'probe/2']


def test_no_id_is_given_again_whose_assignment_was_lost(kv: MemoryKv) -> None:
    """This mgr cleans up after a run of the mgr that had assigned it."""
    archive = opened(kv)
    archive.load()
    archive.put(record(7))
    assert archive.new_id() == 8


def test_a_crash_at_any_write() -> None:
    for at in range(1, 6):
        kv = MemoryKv()
        archive = opened(kv)
        archive.load()
        archive.put(record(1))
        kv.fault.count, kv.fault.at = 0, at
        done = []
        try:
            done.append(archive.new_id())
            archive.put(record(2))
            done.append(2)
            archive.remove(1)
        except Crash:
            pass
        kv.fault.at = None
        again = opened(kv)
        found = [each.id for each in again.load()]
        assert found[-1:] == [2] if len(done) == 2 else 1 in found
        assert again.new_id() not in (*found, *done[:1])


def test_ids_are_never_given_twice(kv: MemoryKv) -> None:
    archive = opened(kv)
    archive.load()
    assert [archive.new_id(), archive.new_id()] == [1, 2]
    archive.put(record(7))
    archive.remove(7)
    again = opened(kv)
    again.load()
    assert again.new_id() == 3
    # If the count is lost, a record shows it.
    Store(kv).remove('probe-ids')
    again.put(record(9))
    other = opened(kv)
    other.load()
    assert other.new_id() == 10


def test_damage_is_set_aside_and_the_rest_is_read(kv: MemoryKv) -> None:
    broken: Dict[str, Any] = {**encode(record(1)), 'steps': [{}]}
    store = Store(kv)
    store.put('probe/1', broken)
    store.put('probe/2', encode(record(2)))
    store.put('probe/x', {})
    assert [each.id for each in Archive(store).load()] == [2]
    assert [name for name, _ in store.damaged] == ['probe/1', 'probe/x']
    assert 'damaged/probe/1/head' in kv.data and store.names('probe/') == ['probe/2']
