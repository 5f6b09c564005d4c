# SPDX-License-Identifier: LGPL-2.1-or-later
"""Where records are kept: none is lost, also if the database fails, and nothing waits for it."""
import json
import sqlite3
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import pytest

from perfguard.probe import archive as module
from perfguard.probe.archive import DATABASE_STEPS, SCHEMA, STORE_STEPS, Archive
from perfguard.probe.records import RunRecord, record_to_json
from perfguard.store import Store

from ..fakes.cluster import Crash, MemoryKv
from ..fakes.probe_records import LATENCY, run, step


def record(run_id: int, state: str = 'done') -> RunRecord:
    return run(run_id, [step(LATENCY, [float(run_id)])], state=state)


class FakeDatabase:
    """sqlite in memory, as the module database has it; it may hang or fail."""

    def __init__(self) -> None:
        self._sqlite = sqlite3.connect(':memory:', check_same_thread=False, isolation_level=None)
        for sql in SCHEMA:
            self._sqlite.execute(sql)
        self.error: Optional[Exception] = None
        self.closed = 0
        self.flowing = threading.Event()
        self.flowing.set()
        self.hanging = threading.Event()

    def run(self, statements: Sequence[Tuple[str, Sequence[Any]]]) -> List[Any]:
        if not self.flowing.is_set():
            self.hanging.set()
            assert self.flowing.wait(20.0)
        if self.error is not None:
            raise self.error
        rows: List[Any] = []
        with self._sqlite:
            for sql, values in statements:
                rows = self._sqlite.execute(sql, values).fetchall()
        return rows

    def close(self) -> None:
        self.closed += 1

    def ids(self) -> List[int]:
        return [row[0] for row in self._sqlite.execute('SELECT id FROM ProbeRun ORDER BY id')]


Open = Callable[..., Archive]


@pytest.fixture
def kv() -> MemoryKv:
    return MemoryKv()


@pytest.fixture
def database() -> Iterator[FakeDatabase]:
    found = FakeDatabase()
    yield found
    found.flowing.set()


@pytest.fixture
def opened(kv: MemoryKv, database: FakeDatabase) -> Iterator[Open]:
    """An archive as the next mgr has it."""
    archives: List[Archive] = []

    def open_one(base: Optional[FakeDatabase] = database) -> Archive:
        archives.append(Archive(Store(kv), base))
        return archives[-1]

    yield open_one
    database.flowing.set()
    for each in archives:
        each.close(5.0)


def wait_for(check: Callable[[], bool]) -> None:
    end = time.monotonic() + 10.0
    while not check():
        assert time.monotonic() < end, 'it did not happen'
        time.sleep(0.005)


def collected(archive: Archive, *wanted: int) -> None:
    """Until these came from the database."""
    found: List[int] = []

    def check() -> bool:
        found.extend(each.id for each in archive.collect())
        return set(found) >= set(wanted)

    wait_for(check)
    assert found == list(wanted)


def names(kv: MemoryKv) -> List[str]:
    return Store(kv).names('probe/')


def settled(archive: Archive, kv: MemoryKv) -> None:
    """Until the database has all that the key/value store had."""
    wait_for(lambda: archive.collect() == [] and names(kv) == [])


def test_without_a_database(opened: Open, kv: MemoryKv) -> None:
    archive = opened(None)
    assert archive.load() == []
    archive.put(record(1))
    archive.put(record(2, 'running'))
    archive.put(record(2))
    archive.put(record(3))
    archive.remove(3)
    archive.remove(4)
    again = opened(None)
    assert [(each.id, each.state) for each in again.load()] == [(1, 'done'), (2, 'done')]
    assert again.collect() == [] and again.place == "the mgr's key/value store"
    assert again.retention(9, 3.0) == (9, 3.0, STORE_STEPS)
    assert names(kv) == ['probe/1', 'probe/2']


def test_with_a_database(opened: Open, kv: MemoryKv, database: FakeDatabase) -> None:
    archive = opened()
    assert archive.load() == []
    archive.put(record(1))
    archive.put(record(2))
    settled(archive, kv)
    assert database.ids() == [1, 2] and archive.place == "the module's database"
    assert archive.retention(9, 3.0).steps == DATABASE_STEPS
    again = opened()
    assert again.load() == []
    collected(again, 1, 2)
    again.remove(1)
    settled(again, kv)
    assert database.ids() == [2]


def test_what_is_not_read_yet(opened: Open, database: FakeDatabase) -> None:
    assert opened(None).unread == ''
    database.flowing.clear()
    archive = opened()
    archive.load()
    assert 'still reading' in archive.unread
    database.error = ValueError('no such pool')
    database.flowing.set()
    wait_for(lambda: 'no such pool' in archive.unread)


def test_what_was_read_is_known_with_the_next_turn(opened: Open, database: FakeDatabase) -> None:
    archive = opened()
    archive.load()
    wait_for(lambda: archive._writer is not None and archive._writer.loaded)
    assert archive.unread
    archive.collect()
    assert archive.unread == ''


def test_the_caller_never_waits(opened: Open, kv: MemoryKv, database: FakeDatabase) -> None:
    database.flowing.clear()
    archive = opened()
    begin = time.monotonic()
    archive.load()
    assert database.hanging.wait(5.0)
    archive.put(record(1))
    archive.remove(2)
    assert archive.collect() == []
    archive.close(0.05)
    assert time.monotonic() - begin < 20.0
    assert names(kv) == ['probe/1', 'probe/2']


def test_a_mgr_that_fails_while_the_database_hangs_loses_nothing(
        opened: Open, kv: MemoryKv, database: FakeDatabase) -> None:
    archive = opened()
    archive.load()
    archive.put(record(1))
    archive.put(record(2))
    settled(archive, kv)
    hanging = FakeDatabase()
    hanging.flowing.clear()
    lost = opened(hanging)
    lost.load()
    lost.put(record(3))
    lost.remove(1)
    following = opened()
    assert [each.id for each in following.load()] == [3]
    collected(following, 2)
    settled(following, kv)
    assert database.ids() == [2, 3]
    hanging.flowing.set()


def test_no_id_is_given_again_whose_assignment_was_lost() -> None:
    """This mgr cleans up after a run of the mgr that had assigned it."""
    archive = Archive(Store(MemoryKv()), None)
    archive.load()
    archive.put(record(7))
    assert archive.new_id() == 8


def test_a_crash_at_any_write(database: FakeDatabase) -> None:
    for at in range(1, 12):
        kv = MemoryKv()
        archive = Archive(Store(kv), None)
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
        again = Archive(Store(kv), None)
        found = [each.id for each in again.load()]
        assert found[-1:] == [2] if len(done) == 2 else 1 in found
        assert again.lost == [] and again.new_id() not in (*found, *done[:1])


def test_a_database_that_cannot_be_used(opened: Open, kv: MemoryKv, database: FakeDatabase,
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, 'RETRY_SECONDS', 0.02)
    database.error = RuntimeError('no such vfs: ceph')
    archive = opened()
    archive.load()
    archive.put(record(1))
    wait_for(lambda: 'no such vfs' in archive.place)
    assert archive.place == "the mgr's key/value store (no database: no such vfs: ceph)"
    assert names(kv) == ['probe/1'] and archive.retention(9, 3.0).steps == STORE_STEPS
    wait_for(lambda: database.closed > 1)
    # The database is opened again, and receives the records that it lacks.
    database.error = None
    settled(archive, kv)
    assert database.ids() == [1]
    # What it holds is not given up when it fails again.
    database.error = sqlite3.DatabaseError('')
    archive.put(record(2))
    wait_for(lambda: 'DatabaseError' in archive.place)
    assert archive.retention(9, 3.0).steps == DATABASE_STEPS and names(kv) == ['probe/2']


def test_a_record_that_changes_while_it_is_written(opened: Open, kv: MemoryKv,
                                                   database: FakeDatabase) -> None:
    archive = opened()
    archive.load()
    wait_for(lambda: archive.place == "the module's database")
    database.flowing.clear()
    archive.put(record(1, 'running'))
    assert database.hanging.wait(5.0)
    archive.put(record(1, 'failed'))
    assert archive.collect() == [] and names(kv) == ['probe/1']
    database.flowing.set()
    settled(archive, kv)
    again = opened()
    again.load()
    found: List[RunRecord] = []

    def came() -> bool:
        found.extend(again.collect())
        return bool(found)

    wait_for(came)
    assert [each.state for each in found] == ['failed']


def test_more_changes_than_can_wait(opened: Open, kv: MemoryKv, database: FakeDatabase,
                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, 'MAX_PENDING', 3)
    database.flowing.clear()
    archive = opened()
    archive.load()
    for number in range(1, 8):
        archive.put(record(number))
    archive.close(0.0)
    database.flowing.set()
    wait_for(lambda: len(database.ids()) >= 3)
    again = opened()
    assert len(again.load()) == 7
    monkeypatch.setattr(module, 'MAX_PENDING', 100)
    last = opened()
    last.load()
    settled(last, kv)
    assert database.ids() == [1, 2, 3, 4, 5, 6, 7]


def test_ids_are_never_given_twice(opened: Open, kv: MemoryKv, database: FakeDatabase) -> None:
    archive = opened()
    archive.load()
    assert [archive.new_id(), archive.new_id()] == [1, 2]
    archive.put(record(7))
    settled(archive, kv)
    archive.remove(7)
    settled(archive, kv)
    again = opened()
    again.load()
    assert again.new_id() == 3
    # If the count is lost, a record in the store or in the database shows it.
    Store(kv).remove('probe-ids')
    again.put(record(9))
    other = opened()
    other.load()
    assert other.new_id() == 10
    settled(other, kv)
    Store(kv).remove('probe-ids')
    last = opened()
    last.load()
    collected(last, 9)
    assert last.new_id() == 10


def test_damage_is_reported_and_the_rest_is_read(opened: Open, kv: MemoryKv,
                                                 database: FakeDatabase) -> None:
    store = Store(kv)
    broken: Dict[str, Any] = {**record_to_json(record(1)), 'steps': [{}]}
    store.put('probe/1', broken)
    store.put('probe/2', record_to_json(record(2)))
    store.put('probe/x', {})
    for number, raw in ((5, broken), (6, record_to_json(record(6)))):
        database.run([('INSERT INTO ProbeRun VALUES (?, ?)', (number, json.dumps(raw)))])
    archive = opened()
    assert [each.id for each in archive.load()] == [2]
    collected(archive, 6)
    assert [text.split(' (')[0] for text in archive.lost] == ['probe/1', 'probe 5 in the database']
