# SPDX-License-Identifier: LGPL-2.1-or-later
"""Keeps the records of runs in the module's database, if the release provides one that works,
otherwise in the key/value store.

A call of the database waits while PGs of its pool are inactive, so a separate thread makes it. What
the database does not have yet stays in the key/value store: nothing is lost with this mgr.
"""
import json
import logging
import threading
from typing import Any, Dict, List, Optional, Protocol, Sequence, Set, Tuple, Union

from ..store import Store
from .records import Retention, RunRecord, record_from_json, record_to_json, slimmed

log = logging.getLogger(__name__)

#: Documents of records, one per run, such as 'probe/7'; and the last id that was assigned.
DOCUMENTS = 'probe/'
IDS = 'probe-ids'
#: The state of the database before the first attempt to open it.
NOT_OPENED = 'not opened yet'
#: Replaces a removed record until the database has removed it as well.
REMOVED = {'removed': True}
#: Steps of all runs that the database and the key/value store hold: a step takes about 1.2 kB, and
#: the key/value store keeps everything twice, in the mons' memory.
DATABASE_STEPS = 20000
STORE_STEPS = 3000
#: Maximum number of changes that wait for the database; the next mgr writes the others.
MAX_PENDING = 200
#: Seconds after a failure before the next attempt.
RETRY_SECONDS = 30.0

#: MgrModule's SCHEMA.
SCHEMA = ['CREATE TABLE IF NOT EXISTS ProbeRun (id INTEGER PRIMARY KEY, record TEXT NOT NULL)']
_LOAD = 'SELECT id, record FROM ProbeRun ORDER BY id'
_PUT = 'INSERT OR REPLACE INTO ProbeRun (id, record) VALUES (?, ?)'
_REMOVE = 'DELETE FROM ProbeRun WHERE id = ?'


class Database(Protocol):
    def run(self, statements: Sequence[Tuple[str, Sequence[Any]]]) -> List[Any]: ...

    def close(self) -> None: ...


#: A record to be written, or None: to be removed.
_Change = Optional[RunRecord]
_ERRORS = (AttributeError, LookupError, TypeError, ValueError)


class Archive:
    """Called by one thread, which never waits for the database."""

    def __init__(self, store: Store, database: Optional[Database]) -> None:
        self._store = store
        self._writer = None if database is None else _Writer(database)
        self._last_id = 0
        #: `collect` has returned the records of the database.
        self._collected = False
        #: Records that could not be read, and why.
        self.lost: List[str] = []

    def load(self) -> List[RunRecord]:
        """Records in the key/value store; `collect` returns those of the database."""
        ids = self._store.get(IDS)
        if isinstance(ids, dict) and isinstance(ids.get('last'), int):
            self._last_id = ids['last']
        found: List[RunRecord] = []
        for name in self._store.names(DOCUMENTS):
            change = self._read(name)
            if isinstance(change, RunRecord):
                found.append(change)
        self._seen(found)
        if self._writer is not None:
            self._writer.start()
        return found

    def _read(self, name: str) -> _Change:
        document = self._store.get(name)
        number = name[len(DOCUMENTS):]
        if document is None or not number.isdigit():
            return None
        change: _Change = None
        if document != REMOVED:
            try:
                change = record_from_json(document)
            except _ERRORS as error:
                self.lost.append('%s (%s)' % (name, error))
                return None
        if self._writer is not None:
            # An earlier mgr did not write it to the database.
            self._writer.put(int(number), change)
        return change

    def _seen(self, records: Sequence[RunRecord]) -> None:
        self._last_id = max([self._last_id, *(record.id for record in records)])

    def new_id(self) -> int:
        """An id that no mgr has assigned before: objects and cephx users are named after it."""
        self._last_id += 1
        self._store.put(IDS, {'last': self._last_id})
        return self._last_id

    def put(self, record: RunRecord) -> None:
        """Store a record; it replaces the one with the same id."""
        record = slimmed(record)
        # The document of the last id may be lost, as that of a run that another mgr has begun.
        self._seen([record])
        self._store.put('%s%d' % (DOCUMENTS, record.id), record_to_json(record))
        if self._writer is not None:
            self._writer.put(record.id, record)

    def remove(self, run_id: int) -> None:
        name = '%s%d' % (DOCUMENTS, run_id)
        if self._writer is None:
            self._store.remove(name)
        else:
            self._store.put(name, REMOVED)
            self._writer.put(run_id, None)

    def collect(self) -> List[RunRecord]:
        """Records that the database has returned since the last call; once a turn.

        Removes from the key/value store what the database has stored.
        """
        if self._writer is None:
            return []
        loaded = self._writer.loaded
        found, written, lost = self._writer.collect()
        self._collected = self._collected or loaded
        self.lost.extend(lost)
        self._seen(found)
        for run_id in written:
            self._store.remove('%s%d' % (DOCUMENTS, run_id))
        return found

    def retention(self, runs: int, days: float) -> Retention:
        """The limits of the operator, and of the storage. A database that has worked once is
        expected to return: its records are not removed meanwhile."""
        serving = self._writer is not None and self._writer.loaded
        return Retention(runs, days, DATABASE_STEPS if serving else STORE_STEPS)

    @property
    def place(self) -> str:
        """Where records are kept, as a text."""
        if self._writer is None:
            return "the mgr's key/value store"
        if self._writer.problem:
            return "the mgr's key/value store (no database: %s)" % self._writer.problem
        return "the module's database"

    @property
    def unread(self) -> str:
        """Why `collect` has not brought the records of the database yet; '': it has."""
        if self._writer is None or self._collected:
            return ''
        if self._writer.problem in ('', NOT_OPENED):
            return 'perfguard is still reading the history of probes'
        return 'cannot read the history of probes (%s)' % self._writer.problem

    def close(self, seconds: float) -> None:
        """Give the database this time to write what is pending."""
        if self._writer is not None:
            self._writer.close(seconds)


class _Writer:
    """The thread that uses the database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._thread = threading.Thread(target=self._serve, name='perfguard-archive', daemon=True)
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        #: By run; a change stays here until it is written.
        self._pending: Dict[int, _Change] = {}
        #: Runs that were changed by this mgr: their records in the database are outdated.
        self._changed: Set[int] = set()
        #: The database has been read once.
        self.loaded = False
        self._found: List[RunRecord] = []
        self._written: Set[int] = set()
        self._lost: List[str] = []
        #: Why the database cannot be used; '' if it can.
        self.problem = NOT_OPENED

    # ---- the loop's thread

    def start(self) -> None:
        self._thread.start()

    def put(self, run_id: int, change: _Change) -> None:
        with self._lock:
            self._changed.add(run_id)
            if run_id in self._pending or len(self._pending) < MAX_PENDING:
                self._pending[run_id] = change
        self._wake.set()

    def collect(self) -> Tuple[List[RunRecord], List[int], List[str]]:
        """Loaded records that the caller does not know, ids of runs whose changes are all written,
        unreadable records."""
        with self._lock:
            found = [record for record in self._found if record.id not in self._changed]
            written = sorted(self._written - set(self._pending))
            lost = self._lost
            self._found, self._lost = [], []
            self._written.clear()
        return found, written, lost

    def close(self, seconds: float) -> None:
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    # ---- the database's thread

    def _serve(self) -> None:
        while True:
            stopping = self._stop.is_set()
            try:
                # First, so that a removed record is not loaded again.
                self._write_pending()
                self._load()
                self.problem = ''
            except Exception as error:
                # Any error: the key/value store has the records, and "probe ls" shows the reason.
                self._failed(error)
            if stopping:
                return
            self._rest()

    def _rest(self) -> None:
        if self.problem:
            self._stop.wait(RETRY_SECONDS)
        else:
            self._wake.wait()
        self._wake.clear()

    def _failed(self, error: Exception) -> None:
        problem = str(error) or type(error).__name__
        if problem != self.problem:
            log.warning('cannot use the module database: %s', problem)
        self.problem = problem
        try:
            self._database.close()
        except Exception as why:
            log.debug('cannot close the module database: %s', why)

    def _load(self) -> None:
        if self.loaded:
            return
        found: List[RunRecord] = []
        lost: List[str] = []
        for run_id, text in self._database.run([(_LOAD, ())]):
            try:
                found.append(record_from_json(json.loads(text)))
            except _ERRORS as error:
                lost.append('probe %d in the database (%s)' % (run_id, error))
        with self._lock:
            self._found, self._lost, self.loaded = found, lost, True

    def _write_pending(self) -> None:
        while True:
            with self._lock:
                if not self._pending:
                    return
                run_id, change = next(iter(self._pending.items()))
            self._database.run([_statement(run_id, change)])
            with self._lock:
                # A change that was made meanwhile is written separately.
                if self._pending.get(run_id) is change:
                    del self._pending[run_id]
                self._written.add(run_id)


def _statement(run_id: int, change: _Change) -> Tuple[str, Sequence[Union[int, str]]]:
    if change is None:
        return _REMOVE, (run_id,)
    return _PUT, (run_id, json.dumps(record_to_json(change), separators=(',', ':')))
