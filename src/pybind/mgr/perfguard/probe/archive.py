# SPDX-License-Identifier: LGPL-2.1-or-later
"""Keeps the records of runs in the key/value store, which all releases have."""
from typing import List

from ..store import Store
from .records import RunRecord, record_from_json, record_to_json, slimmed

#: Documents of records, one per run, such as 'probe/7'; and the last id that was assigned.
DOCUMENTS = 'probe/'
IDS = 'probe-ids'


class Archive:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._last_id = 0

    def load(self) -> List[RunRecord]:
        """All records, but for those that cannot be read: the store reports them."""
        ids = self._store.get(IDS)
        if isinstance(ids, dict) and isinstance(ids.get('last'), int):
            self._last_id = ids['last']
        records: List[RunRecord] = []
        for name in self._store.names(DOCUMENTS):
            document = self._store.get(name)
            try:
                if document is not None:
                    records.append(record_from_json(document))
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                self._store.refuse(name, str(error))
        self._last_id = max([self._last_id, *(record.id for record in records)])
        return records

    def new_id(self) -> int:
        """An id that no mgr has assigned before: objects and cephx users are named after it."""
        self._last_id += 1
        self._store.put(IDS, {'last': self._last_id})
        return self._last_id

    def put(self, record: RunRecord) -> None:
        """Store a record; it replaces the one with the same id."""
        # The document of the last id may be lost, as that of a run that another mgr has begun.
        self._last_id = max(self._last_id, record.id)
        self._store.put('%s%d' % (DOCUMENTS, record.id), record_to_json(slimmed(record)))

    def remove(self, run_id: int) -> None:
        self._store.remove('%s%d' % (DOCUMENTS, run_id))
