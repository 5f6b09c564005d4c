# SPDX-License-Identifier: LGPL-2.1-or-later
"""OSD performance queries: client operations by pool and OSD, by client, by object
and by PG.

Each reading contains the operations since the last one.
"""
import logging
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from mgr_module import MgrModule

from .types import ClientLoad, ClientOps, ObjectLoad, Ops, PgWrites, Placement

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
#: The busiest objects of each OSD. Only names in ASCII: ceph-mgr cannot hand out any others.
OBJECT_QUERY = {
    'key_descriptor': [{'type': 'object_name', 'regex': '^([ -~]+)$'},
                       {'type': 'pool_id', 'regex': '^(.*)$'},
                       {'type': 'osd_id', 'regex': '^(.*)$'}],
    'performance_counter_descriptors': ['ops'], 'limit': {'order_by': 'ops', 'max_count': 3}}
#: Maximum number of PGs that are read, the busiest ones of each OSD.
MOST_PGS = 3000
#: Minimum and maximum number of PGs per OSD.
PGS_PER_OSD = (4, 64)
#: Stats periods between two readings by PG.
PG_PERIODS = 6


class Loads(NamedTuple):
    """Who sends operations, and to which objects; the busiest only."""
    clients: Tuple[ClientLoad, ...] = ()
    objects: Tuple[ObjectLoad, ...] = ()


class PerfQueries:
    """The queries, which exist from the first reading until `close`."""

    def __init__(self, mgr: MgrModule) -> None:
        self._mgr = mgr
        self._client_query: Optional[int] = None
        self._pg_query: Optional[int] = None
        #: By client and by object.
        self._load_queries: Optional[Tuple[int, int]] = None
        #: Limit of PGs per OSD in the query by PG.
        self._pgs_per_osd = 0
        self._pgs_read_at = 0.0
        self._offset = 0

    def close(self) -> None:
        self.loads(False)
        for query in (self._client_query, self._pg_query):
            if query is not None:
                self._mgr.remove_osd_perf_query(query)
        self._client_query = self._pg_query = None

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

    def loads(self, wanted: bool) -> Loads:
        """Operations by client and by object, only while `wanted`."""
        if not wanted:
            for query in self._load_queries or ():
                self._mgr.remove_osd_perf_query(query)
            self._load_queries = None
            return Loads()
        if self._load_queries is None:
            self._load_queries = (self._mgr.add_osd_perf_query(LOAD_QUERY),
                                  self._mgr.add_osd_perf_query(OBJECT_QUERY))
            return Loads()
        clients, objects = self._load_queries
        by_client, by_object = self._keyed_ops(clients, 4), self._keyed_ops(objects, 3)
        return Loads(
            tuple(ClientLoad(client, address, int(pool), int(osd), ops)
                  for (client, address, pool, osd), ops in by_client),
            tuple(ObjectLoad(name, int(pool), int(osd), ops)
                  for (name, pool, osd), ops in by_object))

    def _keyed_ops(self, query: int, parts: int) -> List[Tuple[List[str], int]]:
        """(key, operations); the last two of the parts of a key are a pool and an OSD."""
        found: List[Tuple[List[str], int]] = []
        for row in self._rows(query):
            try:
                key = [part for part, in row['k']]
                if len(key) != parts or not (key[-2] + key[-1]).isdecimal():
                    raise ValueError('not a key of %d parts' % parts)
                found.append((key, int(row['c'][0][0])))
            except (LookupError, TypeError, ValueError) as error:
                log.debug('cannot read operations by client or object: %r in %r', error, row)
        return found

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
