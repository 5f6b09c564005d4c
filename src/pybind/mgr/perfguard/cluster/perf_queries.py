# SPDX-License-Identifier: LGPL-2.1-or-later
"""OSD performance queries: client operations by pool and OSD, by client, and by PG.

Each reading contains the operations since the last one.
"""
import logging
from typing import Any, Callable, Dict, List, Optional, Tuple

from mgr_module import MgrModule

from .types import ClientLoad, ClientOps, Ops, PgWrites, Placement

log = logging.getLogger(__name__)

#: By pool and primary OSD.
CLIENT_QUERY = {
    'key_descriptor': [{'type': 'pool_id', 'regex': '^(.*)$'},
                       {'type': 'osd_id', 'regex': '^(.*)$'}],
    'performance_counter_descriptors': ['read_latency', 'write_latency']}
#: The busiest clients of each OSD. It costs the OSD some microseconds per operation.
LOAD_QUERY = {
    'key_descriptor': [{'type': kind, 'regex': '^(.*)$'}
                       for kind in ('client_id', 'client_address', 'pool_id', 'osd_id')],
    'performance_counter_descriptors': ['ops'], 'limit': {'order_by': 'ops', 'max_count': 10}}
#: Maximum number of PGs that are read, the busiest ones of each OSD.
MOST_PGS = 3000
#: Minimum and maximum number of PGs per OSD.
PGS_PER_OSD = (4, 64)
#: Stats periods between two readings by PG.
PG_PERIODS = 6


class PerfQueries:
    """The queries, which exist from the first reading until `close`."""

    def __init__(self, mgr: MgrModule) -> None:
        self._mgr = mgr
        self._client_query: Optional[int] = None
        self._pg_query: Optional[int] = None
        self._load_query: Optional[int] = None
        #: Limit of PGs per OSD in the query by PG.
        self._pgs_per_osd = 0
        self._pgs_read_at = 0.0
        self._offset = 0

    def close(self) -> None:
        for query in (self._client_query, self._pg_query, self._load_query):
            if query is not None:
                self._mgr.remove_osd_perf_query(query)
        self._client_query = self._pg_query = self._load_query = None

    def clients(self) -> Tuple[ClientOps, ...]:
        if self._client_query is None:
            self._client_query = self._mgr.add_osd_perf_query(CLIENT_QUERY)
            return ()
        found: List[ClientOps] = []
        for row in self._rows(self._client_query):
            try:
                (pool,), (osd,) = row['k']
                read, write = row['c']
                found.append(ClientOps(int(pool), int(osd), Ops(*read), Ops(*write)))
            except (LookupError, TypeError, ValueError) as error:
                log.debug('cannot read client operations: %r in %r', error, row)
        return tuple(found)

    def client_loads(self, wanted: bool) -> Tuple[ClientLoad, ...]:
        """Operations by client, only while `wanted`."""
        if not wanted:
            if self._load_query is not None:
                self._mgr.remove_osd_perf_query(self._load_query)
                self._load_query = None
            return ()
        if self._load_query is None:
            self._load_query = self._mgr.add_osd_perf_query(LOAD_QUERY)
            return ()
        found: List[ClientLoad] = []
        for row in self._rows(self._load_query):
            try:
                (client,), (address,), (pool,), (osd,) = row['k']
                found.append(ClientLoad(client, address, int(pool), int(osd), int(row['c'][0][0])))
            except (LookupError, TypeError, ValueError) as error:
                log.debug('cannot read operations by client: %r in %r', error, row)
        return tuple(found)

    def pg_writes(self, now: float, osds: int, period: float,
                  placement: Callable[[str], Optional[Placement]]
                  ) -> Tuple[float, Optional[Tuple[PgWrites, ...]]]:
        """(seconds covered, PGs), or (0.0, None) before the next reading is due."""
        wanted = min(PGS_PER_OSD[1], max(PGS_PER_OSD[0], MOST_PGS // max(1, osds)))
        if self._pg_query is not None and not 0.5 <= wanted / self._pgs_per_osd <= 2.0:
            self._mgr.remove_osd_perf_query(self._pg_query)
            self._pg_query = None
        if self._pg_query is None:
            self._pg_query = self._mgr.add_osd_perf_query(_pg_query(wanted))
            self._pgs_per_osd, self._pgs_read_at = wanted, now
            return 0.0, None
        seconds = now - self._pgs_read_at
        if seconds < PG_PERIODS * period:
            return 0.0, None
        self._pgs_read_at = now
        found: List[PgWrites] = []
        rows = self._rows(self._pg_query)
        # On large clusters, a different subset of the PGs each time is sufficient.
        step = 1 + len(rows) // (2 * MOST_PGS)
        self._offset += 1
        for row in rows[self._offset % step::step]:
            try:
                pgid = row['k'][0][0]
                placed = placement(pgid)
                if placed is not None:
                    found.append(PgWrites(pgid, placed.acting, Ops(*row['c'][0])))
            except (LookupError, TypeError, ValueError) as error:
                log.debug('cannot read writes by PG: %r in %r', error, row)
        return seconds, tuple(found)

    def _rows(self, query: int) -> List[Dict[str, Any]]:
        rows: List[Dict[str, Any]] = (self._mgr.get_osd_perf_counters(query) or {}).get(
            'counters', [])
        return rows


def _pg_query(pgs_per_osd: int) -> Dict[str, Any]:
    return {'key_descriptor': [{'type': 'pg_id', 'regex': '^(.*)$'}],
            'performance_counter_descriptors': ['write_latency', 'write_ops'],
            'limit': {'order_by': 'write_ops', 'max_count': pgs_per_osd}}
