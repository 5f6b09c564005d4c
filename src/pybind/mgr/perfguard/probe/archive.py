# SPDX-License-Identifier: LGPL-2.1-or-later
"""Where records of runs are kept: the module's database, where the release has one that works,
and otherwise the key/value store.

A call of the database waits while PGs of its pool are inactive, so it is made in a thread of its
own. What it has not yet taken stays in the key/value store: nothing is lost with this mgr.
"""
import json
import logging
import threading
from typing import Any, Dict, List, Optional, Protocol, Sequence, Set, Tuple, Union

from ..store import Store
from .records import Retention, RunRecord, record_from_json, record_to_json, slimmed

log = logging.getLogger(__name__)

#: Documents of records, one a run: 'probe/7'; and the id that was given out last.
DOCUMENTS = 'probe/'
IDS = 'probe-ids'
#: Why the database does not serve before it was tried.
NOT_OPENED = 'not opened yet'
#: What stands for a record that was removed, until the database has removed it as well.
REMOVED = {'removed': True}
#: Steps of all runs together that each of the two is to hold: about 1.2 kB a step, and the
#: key/value store keeps everything twice and in the mons' memory.
DATABASE_STEPS = 20000
STORE_STEPS = 3000
#: Changes that wait for the database; those beyond are brought to it by the next mgr.
MAX_PENDING = 200
#: After a failure the database is left alone for so long.
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
        #: The records of the database were brought.
        self._collected = False
        #: Records that could not be read, in words.
        self.lost: List[str] = []

    def load(self) -> List[RunRecord]:
        """Records in the key/value store; those of the database come with `collect`."""
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
            # An earlier mgr did not get it into the database.
            self._writer.put(int(number), change)
        return change

    def _seen(self, records: Sequence[RunRecord]) -> None:
        self._last_id = max([self._last_id, *(record.id for record in records)])

    def new_id(self) -> int:
        """Never given out before, by no mgr: objects and cephx users are named after it."""
        self._last_id += 1
        self._store.put(IDS, {'last': self._last_id})
        return self._last_id

    def put(self, record: RunRecord) -> None:
        """Keep a record, in place of the one with its id."""
        record = slimmed(record)
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
        """What the database has brought since the last call; once a turn.

        Takes out of the key/value store what the database has by now.
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
        """The operator's, within what can be held. A database that was there once comes back:
        what it holds is not given up meanwhile."""
        serving = self._writer is not None and self._writer.loaded
        return Retention(runs, days, DATABASE_STEPS if serving else STORE_STEPS)

    @property
    def place(self) -> str:
        """Where records are kept, in words."""
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
        """Give the database so long to take what waits."""
        if self._writer is not None:
            self._writer.close(seconds)


class _Writer:
    """The thread that speaks with the database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._thread = threading.Thread(target=self._serve, name='perfguard-archive', daemon=True)
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        #: By run; a change stays here until it is written.
        self._pending: Dict[int, _Change] = {}
        #: Runs that were ever put: what the database has of them is no news.
        self._changed: Set[int] = set()
        #: The database has served once.
        self.loaded = False
        self._found: List[RunRecord] = []
        self._written: Set[int] = set()
        self._lost: List[str] = []
        #: Why the database does not serve; '' if it does.
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
        """Loaded records that the caller does not know, ids that are written and wait for
        nothing more, unreadable records."""
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
                # What was removed is not to be found again.
                self._write_pending()
                self._load()
                self.problem = ''
            except Exception as error:
                # Whatever it is, the key/value store has what matters; a command tells why.
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
                # What was put meanwhile has its own turn.
                if self._pending.get(run_id) is change:
                    del self._pending[run_id]
                self._written.add(run_id)


def _statement(run_id: int, change: _Change) -> Tuple[str, Sequence[Union[int, str]]]:
    if change is None:
        return _REMOVE, (run_id,)
    return _PUT, (run_id, json.dumps(record_to_json(change), separators=(',', ':')))
