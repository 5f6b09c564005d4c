# SPDX-License-Identifier: LGPL-2.1-or-later
"""Readings of OSDs for the watch, each at an interval that suits its cost."""
import contextlib
import json
import logging
import math
import re
import zlib
from typing import (AbstractSet, Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional,
                    Sequence, Set, Tuple, TypeVar)

from mgr_module import MgrModule

from ..compat import COMMIT_COUNTERS, latest_counter
from .crush import CrushRules
from .dumps import ByOsd, PgSummary, count_states
from .inventory import devices_of, drive_model, store_layout
from .osd_commands import (HistogramSampler, OsdCommands, PingTimes, PressureSampler,
                           median_ping_ms)
from .ports import View
from .types import (LONGEST_OP_SECONDS, MOST_READ_OSDS, NO_OPS, PROBE_NAMESPACE, ClientLoad,
                    ClientOps, KvBytes, ObjectLoad, Ops, OsdCounters, OsdPlace, PgCounts, PgReads,
                    PgWrites, Placement, PlainOps, Readings, Signals, UnreadablePg)

log = logging.getLogger(__name__)

Parsed = TypeVar('Parsed')

#: Intervals of readings without a problem; drives are rarely replaced.
PLACES_SECONDS = 600.0
COUNTS_SECONDS = 15.0
EPOCHS_SECONDS = 60.0
#: Maximum share of CPU time of a costly reading.
COSTLY_SHARE = 0.005
#: Maximum number of OSDs that are asked for waiting operations at the same time, and the interval
#: for each of them: the answer is long while clients are blocked.
ASKED_FOR_OPS = 4
OPS_SECONDS = 10.0
#: Report periods without a report after which an OSD is considered dead or hanging, and share of
#: the OSDs above which this mgr is considered to be the reason instead: it is cut off or too busy.
SILENT_PERIODS = 3.0
MOST_SILENT_SHARE = 1 / 2
#: An OSD reports it even if mgr_stats_threshold leaves out the latency counters.
OP_COUNTER = 'osd.op'
#: Why it is not known which OSDs hang.
NO_COUNTERS = ('no OSD reports latency counters (op_r_latency) to this mgr, so perfguard cannot '
               'judge OSDs: mgr_stats_threshold must be at most 5, and OSDs must reach this mgr')
MGR_CUT_OFF = ('%d of %d OSDs have not reported to this mgr for %.0f s or more: the likely reason '
               'is this mgr or its network, not the OSDs, or an mgr_stats_threshold above 5')
#: Health checks whose texts contain the load by client and by object.
CHECKS_WITH_LOADS = frozenset({'PERFGUARD_LATENCY', 'PERFGUARD_SLOW_OSD'})
#: These checks may stand for weeks, and counting costs each OSD some microseconds per operation: it
#: lasts so long at first, then 60 s of each half hour.
LOADS_FIRST_SECONDS, LOADS_LEAST_SECONDS, LOADS_SHARE = 600.0, 60.0, 1 / 30
#: Counters of the files of RocksDB; of the store's counters these alone show compactions and reach
#: the mgr in all releases (those of the section rocksdb have priority 0).
KV_COUNTERS = ('bluefs.bytes_written_sst', 'bluefs.bytes_written_wal')
#: Topics of commands to OSDs.
OPS_TOPIC = 'ops in flight'
STATUS = 'status'


class Paced:
    """Paces a costly reading."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next = 0.0

    def is_due(self, now: float, urgent: bool = False) -> bool:
        """Whether it is time to read; an `urgent` reading always is."""
        return now >= self._next or urgent

    def done(self, now: float, cost_seconds: float = 0.0) -> None:
        self._next = now + max(self._seconds, cost_seconds / COSTLY_SHARE)


class LoadSampling:
    """Decides when operations are counted by client and by object while a check stands.

    The time that it may take is saved up, so that checks which come and go do not extend it.
    """

    def __init__(self) -> None:
        self._saved_seconds = LOADS_FIRST_SECONDS
        self._decided_at = -math.inf
        self._counting = False

    def decide(self, now: float, check_stands: bool) -> bool:
        """Whether operations are counted until the next call, which is costly: only while a check
        stands, for LOADS_SHARE of the time in the long run."""
        elapsed_seconds = now - self._decided_at
        spent = elapsed_seconds if self._counting else 0.0
        self._decided_at = now
        self._saved_seconds = min(self._saved_seconds + LOADS_SHARE * elapsed_seconds - spent,
                                  LOADS_FIRST_SECONDS)
        # Once begun, it lasts until the saved time is spent.
        threshold = 0.0 if self._counting else LOADS_LEAST_SECONDS
        self._counting = check_stands and self._saved_seconds > threshold
        return self._counting


class Sensors:
    """What the watch and the throttle read: counters from ceph-mgr, and answers of OSDs (`asking`),
    each at an interval of its own."""

    def __init__(self, mgr: MgrModule, clock: Callable[[], float], summary: PgSummary,
                 asking: OsdCommands) -> None:
        self._mgr = mgr
        self._clock = clock
        self._summary = summary
        #: The summary that the last counts were made of, unless there is nothing to count now.
        self._counted_summary: Optional[ByOsd] = None
        self._latest = latest_counter(mgr)
        self._queries = PerfQueries(mgr)
        self._read_at: Optional[float] = None
        self._asking = asking
        self._sampler = HistogramSampler(asking)
        self._pings = PingTimes(asking)
        self._pressures = PressureSampler(asking)
        self._places: Dict[int, OsdPlace] = {}
        self._software: Dict[int, Tuple[str, str]] = {}
        self._places_crush_version = -1
        self._places_pace = Paced(PLACES_SECONDS)
        self._counts_pace = Paced(COUNTS_SECONDS)
        self._epochs_pace = Paced(EPOCHS_SECONDS)
        #: OSD -> (stamp of its last report, when that was first seen).
        self._reported: Dict[int, Tuple[float, float]] = {}
        #: OSDs that report invalid values, so that each is logged once.
        self._logged_as_invalid: Set[int] = set()
        #: OSD -> when it was last asked for waiting operations.
        self._ops_asked: Dict[int, float] = {}
        #: Until when loads are read without a health check.
        self._loads_until = -math.inf
        self._load_sampling = LoadSampling()
        #: Until when client operations are read without those of probes.
        self._without_probes_until = -math.inf
        #: OSDs of which client reads are read by PG, until `read_by_pg` is called again.
        self._read_by_pg: Tuple[int, ...] = ()

    def read_loads(self, seconds: float) -> None:
        """For so long, readings contain the load by client and by object."""
        self._loads_until = self._clock() + seconds

    def read_without_probes(self, seconds: float) -> None:
        """For so long, the client operations in readings contain none of probes."""
        self._without_probes_until = self._clock() + seconds

    def read_by_pg(self, osds: AbstractSet[int]) -> None:
        """Until it is called again, readings contain the client reads of these OSDs by PG."""
        self._read_by_pg = tuple(sorted(osds)[:MOST_READ_OSDS])

    def count_clients(self, counting: bool) -> None:
        """Whether readings contain client operations."""
        self._queries.set_resting(not counting)

    def close(self) -> None:
        self._queries.close()

    def read(self, view: View, signals: Signals, crush: CrushRules, period: float) -> Readings:
        """Read what the watch judges; the costly parts only at intervals, or when something is
        slow. `period`: seconds between two reports of an OSD (mgr_stats_period)."""
        now = self._clock()
        seconds = 0.0 if self._read_at is None else now - self._read_at
        self._read_at = now
        up = [osd.id for osd in view.osdmap.osds.values() if osd.up]
        counters = self._counters(up)
        late = self._late(now, up, counters, period)
        silent, unreported = self._silent(late)
        alive = sorted(set(counters) - set(late))
        counts = self._osd_counts(now, signals, period)
        laggy_osds = _with_waiting(counts or {}, alive)
        if counts is not None and not laggy_osds:
            # The next ones are asked at once.
            self._ops_asked.clear()
        loads_requested = now < self._loads_until
        check_stands = bool(CHECKS_WITH_LOADS & signals.health.keys())
        loads = self._queries.loads(
            self._load_sampling.decide(now, check_stands) or loads_requested)
        pings = self._pings.take(now, alive, laggy_osds)
        pg_seconds, pg_writes = self._queries.pg_writes(now, len(up), period, view.placement)
        return Readings(
            seconds=seconds, counters=counters,
            clients=self._queries.clients(now < self._without_probes_until),
            pg_seconds=pg_seconds, pg_writes=pg_writes,
            pg_reads=self._queries.pg_reads(self._read_by_pg, view.placement),
            client_loads=loads.clients, object_loads=loads.objects,
            kv_bytes=self._kv_bytes(alive) if loads_requested or check_stands else {},
            places=self._osd_places(now, up, view, crush), osd_counts=counts,
            ping_ms=None if pings is None else median_ping_ms(pings), peer_ping_ms=pings or {},
            pressures=self._pressures.take(now, laggy_osds),
            unreadable=self._unreadable(now, laggy_osds),
            latencies=self._sampler.take(now, alive), sampling=self._sampler.sampling(),
            counted=self._sampler.counted,
            silent=silent, unreported=unreported,
            untrimmed_epochs=self._epochs(now, alive), software=self._software)

    # ---- Counters

    def _counters(self, up: List[int]) -> Dict[int, OsdCounters]:
        """The counters of the OSDs that are up. An OSD with invalid ones is left out, and logged
        once."""
        counters_by_osd: Dict[int, OsdCounters] = {}
        for osd in up:
            try:
                counters = self._counters_of(str(osd))
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                if osd not in self._logged_as_invalid:
                    self._logged_as_invalid.add(osd)
                    log.warning('osd.%d: cannot read counters: %r', osd, error)
                continue
            if counters is not None:
                counters_by_osd[osd] = counters
        return counters_by_osd

    def _counters_of(self, name: str) -> Optional[OsdCounters]:
        """The counters of one OSD; None: it has not reported yet."""
        read = self._ops(name, 'osd.op_r_latency')
        if read is None:
            return None
        reported_at, reads = read
        return OsdCounters(
            reported_at, reads, self._sum(name, 'osd.op_w_latency'),
            self._sum(name, 'osd.op_w_process_latency'),
            self._sum(name, 'osd.op_w_prepare_latency'), self._commit(name),
            self._sum(name, 'bluestore.read_lat'), self._gauge(name, 'osd.numpg'),
            self._gauge(name, 'osd.numpg_removing'))

    def _gauge(self, name: str, counter: str) -> int:
        point = self._latest('osd', name, counter).get(counter)
        return int(point[1]) if point else 0

    def _kv_bytes(self, osds: Sequence[int]) -> Dict[int, KvBytes]:
        """OSD -> bytes that its RocksDB has written."""
        bytes_by_osd: Dict[int, KvBytes] = {}
        for osd in osds:
            # An OSD that reports no numbers has no entry, as one without RocksDB.
            with contextlib.suppress(ArithmeticError, LookupError, TypeError, ValueError):
                sst, wal = (int(self._latest('osd', str(osd), counter)[counter][1])
                            for counter in KV_COUNTERS)
                bytes_by_osd[osd] = KvBytes(sst, wal)
        return bytes_by_osd

    def _late(self, now: float, up: Sequence[int], counters: Mapping[int, OsdCounters],
              period: float) -> Dict[int, float]:
        """OSD -> seconds since its last report, or since it is up without any, of the OSDs for
        which these are more than SILENT_PERIODS times the `period` of reports.

        Measured since the stamp of its report last changed, because neither clock need be right.
        """
        self._reported = {osd: self._reported.get(osd, (0.0, now)) for osd in up}
        for osd, read in counters.items():
            if self._reported[osd][0] != read.time:
                self._reported[osd] = (read.time, now)
        return {osd: now - when for osd, (_, when) in self._reported.items()
                if now - when > SILENT_PERIODS * period}

    def _silent(self, late: Mapping[int, float]) -> Tuple[Dict[int, float], str]:
        """The OSDs among those with a late report that may hang, with its age, and why it is not
        known which ones hang; '': it is known.

        An OSD that reports, but has never reported latency counters to this mgr, does not hang. If
        many are late at once, OSDs that hang are not the likely reason.
        """
        reporting = [osd for osd, (stamp, _) in self._reported.items() if stamp]
        silent = {osd: seconds for osd, seconds in late.items() if self._reported[osd][0]
                  or not self._latest('osd', str(osd), OP_COUNTER).get(OP_COUNTER)}
        if late and not reporting:
            return {}, NO_COUNTERS
        judged = silent.keys() | set(reporting)
        if len(silent) > MOST_SILENT_SHARE * len(judged):
            return {}, MGR_CUT_OFF % (len(silent), len(judged), min(silent.values()))
        return silent, ''

    def _ops(self, osd: str, counter: str) -> Optional[Tuple[float, PlainOps]]:
        """When a counter of an OSD was reported last, and its operations with their total time.
        None: the OSD has not reported such a counter.

        Sums may be impossibly large and overflow: one operation during which the clock of the OSD
        was set back adds 136 years. Their differences are checked.
        """
        point = self._latest('osd', osd, counter).get(counter)
        if not point:
            return None
        sum_ns, number = int(point[1]), int(point[2])
        if sum_ns < 0 or number < 0:
            raise ValueError('%s: %d operations took %d ns' % (counter, number, sum_ns))
        return float(point[0]), (sum_ns, number)

    def _sum(self, osd: str, counter: str) -> PlainOps:
        point = self._ops(osd, counter)
        return point[1] if point else NO_OPS

    def _commit(self, osd: str) -> PlainOps:
        """Commits of the store: by the counter that this kind of store has; zero if none."""
        for counter in COMMIT_COUNTERS:
            point = self._ops(osd, counter)
            if point:
                return point[1]
        return NO_OPS

    # ---- Readings at longer intervals

    def _osd_places(self, now: float, up: List[int], view: View,
                    crush: CrushRules) -> Mapping[int, OsdPlace]:
        """The places of OSDs that are up, and of OSDs that were up and are still in: the watch
        forgets OSDs without a place, and what it knows must survive their restart."""
        before: Mapping[int, OsdPlace] = {}
        if view.crush_version != self._places_crush_version or self._places_pace.is_due(now):
            # All places are read again.
            before, self._places, self._software = self._places, {}, {}
            self._places_crush_version = view.crush_version
            self._places_pace.done(now)
        down = [osd.id for osd in view.osdmap.osds.values()
                if osd.id in before and osd.is_down_but_in and not osd.destroyed]
        new: Dict[int, OsdPlace] = {}
        for osd in up + down:
            if osd not in self._places:
                metadata = self._mgr.get_metadata('osd', str(osd)) or {}
                earlier = before.get(osd)
                self._software[osd] = (str(metadata.get('ceph_version_short', '')),
                                       str(metadata.get('kernel_version', '')))
                host = crush.host_of(osd) or str(metadata.get('hostname', ''))
                new[osd] = OsdPlace(
                    osd, host, crush.root_of(osd), crush.class_of(osd),
                    drive_model(metadata) or (earlier.model if earlier else ''),
                    crush.domain_of(osd, 'rack') or '',
                    store_layout(metadata) or (earlier.store if earlier else ''),
                    devices_of(metadata) or (earlier.devices if earlier else ()))
        if new:
            # Another object: what is derived from the places is kept for the present one.
            self._places = {**self._places, **new}
        return self._places

    def _osd_counts(self, now: float, signals: Signals,
                    period: float) -> Optional[Mapping[int, PgCounts]]:
        """PG counts by OSD; {}: all PGs are active+clean, and none is deep-scrubbed, trimmed or in
        trouble; None: there is no newer reading, since ceph-mgr iterates over all PGs for one."""
        whole, urgent = signals.counts, _in_trouble(signals.counts)
        if whole.active_clean == whole.total and not (
                whole.deep_scrubbing or whole.snaptrim or urgent):
            self._counted_summary = None
            return {}
        if not self._counts_pace.is_due(now, urgent):
            return None
        summary = self._summary.by_osd(period)
        if summary is self._counted_summary:
            return None
        self._counted_summary = summary
        counts = {osd: count_states(states.items()) for osd, states in summary.items()}
        self._counts_pace.done(now, self._summary.cost_seconds)
        return counts

    # ---- Commands to OSDs

    def _unreadable(self, now: float,
                    laggy_osds: Sequence[int]) -> Mapping[int, Tuple[UnreadablePg, ...]]:
        """Primary -> its PGs that are not readable, from the answers that have arrived. No cheap
        call names these PGs, so some more of the OSDs with laggy PGs are asked for operations that
        wait for them."""
        pending = self._asking.asked(OPS_TOPIC)
        # OSDs that were never asked, or longest ago, first.
        osds_to_ask = sorted((osd for osd in laggy_osds if osd not in pending
                              and now - self._ops_asked.get(osd, -math.inf) >= OPS_SECONDS),
                             key=lambda osd: self._ops_asked.get(osd, -math.inf))
        chosen = osds_to_ask[:max(0, ASKED_FOR_OPS - len(pending))]
        self._asking.ask(OPS_TOPIC, chosen, {'prefix': 'dump_ops_in_flight'})
        self._ops_asked.update({osd: now for osd in chosen})
        return {answer.osd: tuple(answer.parsed)
                for answer in self._asking.answers(OPS_TOPIC, unreadable_pgs)}

    def _epochs(self, now: float, alive: Sequence[int]) -> Optional[int]:
        """The number of OSDMap epochs that the mons keep; None: no answer has arrived now. Any OSD
        knows it, so the first one is asked."""
        if alive and self._epochs_pace.is_due(now):
            self._asking.ask(STATUS, alive[:1], {'prefix': 'status'})
            self._epochs_pace.done(now)
        numbers = [answer.parsed for answer in self._asking.answers(STATUS, untrimmed_epochs)]
        return numbers[-1] if numbers else None


def _in_trouble(counts: PgCounts) -> bool:
    """Whether their OSDs must be known: releases that touch them are stopped."""
    return counts.laggy + counts.wait + counts.degraded > 0 or counts.stuck > 0


def _with_waiting(counts: Mapping[int, PgCounts], alive: Sequence[int]) -> List[int]:
    """OSDs with laggy or waiting PGs, the most first."""
    number = {osd: counts[osd].laggy + counts[osd].wait for osd in alive if osd in counts}
    return sorted((osd for osd in number if number[osd]), key=lambda osd: -number[osd])


# ---- Answers of OSDs

#: Description of a tracked operation: "osd_op(client.4123.0:55 2.1fs0 2:f8a1...".
_CLIENT_OP = re.compile(r'osd_op\(\S+ (\d+\.[0-9a-f]+)(?:s\d+)? ')
#: Maximum length that is parsed. An operation has about 800 characters; parsing 1,000 of them
#: takes about 5 ms.
MOST_CHARS = 1 << 20
#: Last event of operations of a PG in the state laggy or wait.
_WAITING_EVENT = 'waiting for readable'


def unreadable_pgs(out: str) -> List[UnreadablePg]:
    """PGs of an OSD with operations that wait for a read lease, from ``dump_ops_in_flight``.

    Only the beginning of a long answer is parsed, which has the oldest operations.
    """
    if len(out) > MOST_CHARS:
        out = out[:out.rindex('{"description"', 0, MOST_CHARS)].rstrip(', ') + ']}'
    ages_by_pgid: Dict[str, List[float]] = {}
    for op in json.loads(out)['ops']:
        match = _CLIENT_OP.match(op['description'])
        events = op['type_data'].get('events', [])
        if match and events and events[-1]['event'] == _WAITING_EVENT:
            age = float(op['age'])
            if 0.0 <= age <= LONGEST_OP_SECONDS:
                ages_by_pgid.setdefault(match.group(1), []).append(age)
    return [UnreadablePg(pgid, max(ages), len(ages)) for pgid, ages in ages_by_pgid.items()]


def untrimmed_epochs(out: str) -> Optional[int]:
    """From ``status`` of an OSD: number of OSDMap epochs that the mons keep; None: not known.

    An OSD learns from each new map which ones the mons have trimmed, and then removes at most
    osd_target_transaction_size (30) of its own, so it may keep thousands more for a long time.
    """
    status = json.loads(out)
    first = max(int(status['oldest_map']), int(status.get('cluster_osdmap_trim_lower_bound', 0)))
    epochs = int(status['newest_map']) - first + 1
    return epochs if epochs >= 0 else None


# ---- OSD performance queries: client operations by pool and OSD, by client, by object and by PG.
# Each reading contains the operations since the last one.

_BY_POOL_AND_OSD = ({'type': 'pool_id', 'regex': '^(.*)$'}, {'type': 'osd_id', 'regex': '^(.*)$'})
#: By pool and primary OSD.
CLIENT_QUERY: Dict[str, Any] = {
    'key_descriptor': [*_BY_POOL_AND_OSD],
    'performance_counter_descriptors': ['read_latency', 'write_latency', 'read_bytes',
                                        'write_bytes']}
#: By pool and primary OSD, without operations in the namespace of probes. It costs OSDs another
#: 0.8 us of CPU time for each operation (measured with GCC 12), so it replaces the other query only
#: while it is needed.
CLIENT_QUERY_WITHOUT_PROBES = {
    **CLIENT_QUERY, 'key_descriptor': [
        *_BY_POOL_AND_OSD, {'type': 'namespace', 'regex': '^(?!%s$)()' % PROBE_NAMESPACE}]}
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
#: No OSD has this id. An OSD ignores an empty list of queries (MgrClient::handle_mgr_configure),
#: and evaluates the last list until it restarts: this query replaces it when all others end.
IDLE_QUERY: Dict[str, Any] = {'key_descriptor': [{'type': 'osd_id', 'regex': '^(none)$'}],
                              'performance_counter_descriptors': ['ops']}
#: Number of PGs that are read if there are enough of each OSD, the busiest ones of each.
MOST_READ_PGS = 3000
#: Maximum number of PGs in one reading; of more, each reading takes another part.
MOST_PGS_PER_READING = 2 * MOST_READ_PGS
#: Minimum and maximum number of PGs per OSD.
PGS_PER_OSD = (4, 64)
#: Stats periods between two readings by PG.
PG_PERIODS = 6


class Loads(NamedTuple):
    """Who sends operations, and to which objects; the busiest only."""
    clients: Tuple[ClientLoad, ...] = ()
    objects: Tuple[ObjectLoad, ...] = ()


class _Query:
    """A performance query of the mgr. It is registered as long as it has a description."""

    def __init__(self, mgr: MgrModule) -> None:
        self._mgr = mgr
        self._description: Optional[Dict[str, Any]] = None
        self._id: Optional[int] = None

    def rows(self, description: Optional[Dict[str, Any]]) -> Optional[List[Dict[str, Any]]]:
        """The rows of the query with this description, with the operations since the last call.
        `description`: None ends the query.

        None: there is no query, or it begins with this call, perhaps in place of another one, whose
        last reading has other operations.
        """
        if description != self._description:
            replaced = self._id
            self._id = None if description is None else self._mgr.add_osd_perf_query(description)
            self._description = description
            if replaced is not None:
                self._mgr.remove_osd_perf_query(replaced)
            return None
        if self._id is None:
            return None
        rows: List[Dict[str, Any]] = (self._mgr.get_osd_perf_counters(self._id) or {}).get(
            'counters', [])
        return rows


def _parsed(rows: Optional[Sequence[Mapping[str, Any]]],
            parse: Callable[[Mapping[str, Any]], Optional[Parsed]]) -> Iterator[Parsed]:
    """The values of rows, without those that `parse` cannot read or returns None for."""
    for row in rows or ():
        try:
            value = parse(row)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            log.debug('cannot read a row of a performance query: %r in %r', error, row)
        else:
            if value is not None:
                yield value


class PerfQueries:
    """The queries, which exist from the first reading until `close`."""

    def __init__(self, mgr: MgrModule) -> None:
        self._clients, self._writes, self._reads = _Query(mgr), _Query(mgr), _Query(mgr)
        self._by_client, self._by_object = _Query(mgr), _Query(mgr)
        self._idle = _Query(mgr)
        self._resting = False
        #: Limit of PGs per OSD in the query of writes by PG, and when it was last read.
        self._pgs_per_osd = 0
        self._pgs_read_at = 0.0
        self._parts = _Parts()

    def set_resting(self, resting: bool) -> None:
        """Replace all queries by one that matches nothing, until this is called with False."""
        if resting == self._resting:
            return
        self._resting = resting
        # Before the others are removed: the list of queries must not be empty.
        self._idle.rows(IDLE_QUERY if resting else None)
        if resting:
            self._end_all()

    def close(self) -> None:
        self._end_all()
        self._idle.rows(None)

    def _end_all(self) -> None:
        for query in (self._clients, self._writes, self._reads, self._by_client, self._by_object):
            query.rows(None)

    def clients(self, without_probes: bool = False) -> Tuple[ClientOps, ...]:
        if self._resting:
            return ()
        rows = self._clients.rows(CLIENT_QUERY_WITHOUT_PROBES if without_probes else CLIENT_QUERY)
        return tuple(_parsed(rows, _client_ops))

    def loads(self, counting: bool) -> Loads:
        """Operations by client and by object, only while `counting`."""
        counting = counting and not self._resting
        clients = self._by_client.rows(LOAD_QUERY if counting else None)
        objects = self._by_object.rows(OBJECT_QUERY if counting else None)
        return Loads(tuple(_parsed(clients, _client_load)), tuple(_parsed(objects, _object_load)))

    def pg_writes(self, now: float, osds: int, period: float,
                  placement: Callable[[str], Optional[Placement]]
                  ) -> Tuple[float, Optional[Tuple[PgWrites, ...]]]:
        """(seconds that the writes of each PG cover, PGs), or (0.0, None) while they are not
        complete.

        With more than 1,500 OSDs (four PGs of each), each reading takes one of several parts of the
        PGs, which are handed out together: a slow replica is found by means of several PGs that it
        replicates, and a part has too few of them. At 100 PGs per OSD and three replicas, the share
        of OSDs with evidence in two consecutive results (a part alone; all parts; seconds from one
        result to the next):

            1,000 OSDs  91 %  91 %   30 s
            1,500 OSDs  33 %  91 %   30 s
            3,000 OSDs   8 %  91 %   60 s
            5,000 OSDs   2 %  91 %  120 s
        """
        pgs_per_osd = min(PGS_PER_OSD[1], max(PGS_PER_OSD[0], MOST_READ_PGS // max(1, osds)))
        if not pgs_per_osd / 2 <= self._pgs_per_osd <= 2 * pgs_per_osd:
            # A query with another limit, which has no reading of all PGs yet.
            self._pgs_per_osd, self._parts = pgs_per_osd, _Parts()
        elif now - self._pgs_read_at < PG_PERIODS * period:
            return 0.0, None
        if self._resting:
            return 0.0, None
        seconds, self._pgs_read_at = now - self._pgs_read_at, now
        rows = self._writes.rows(_pg_query(self._pgs_per_osd))
        if rows is not None:
            self._parts.add(seconds, rows, placement)
        if not self._parts.complete:
            return 0.0, None
        parts, self._parts = self._parts, _Parts()
        return parts.seconds / parts.readings, tuple(parts.writes)

    def pg_reads(self, osds: Tuple[int, ...], placement: Callable[[str], Optional[Placement]]
                 ) -> Optional[Mapping[int, Tuple[PgReads, ...]]]:
        """OSD -> the PGs that clients read from it since the last call, for each of `osds`; None:
        `osds` is empty or has just changed, or the queries rest."""
        rows = self._reads.rows(_read_query(osds) if osds and not self._resting else None)
        if rows is None:
            return None

        def read(row: Mapping[str, Any]) -> Optional[Tuple[int, PgReads]]:
            (osd,), (pgid,) = row['k']
            placed, reads = placement(pgid), int(row['c'][0][0])
            return None if placed is None or reads <= 0 or int(osd) not in osds else (
                int(osd), PgReads(pgid, placed.acting, reads))

        by_osd: Dict[int, List[PgReads]] = {osd: [] for osd in osds}
        for osd, reads in _parsed(rows, read):
            by_osd[osd].append(reads)
        return {osd: tuple(of_osd) for osd, of_osd in by_osd.items()}


def _client_ops(row: Mapping[str, Any]) -> ClientOps:
    (pool,), (osd,) = row['k'][:2]
    read, write, *sizes = row['c']
    sum_ns, reads = read
    write_ns, writes = write
    return ClientOps(int(pool), int(osd), (sum_ns, reads), (write_ns, writes),
                     *(max(0, int(number)) for number, _ in sizes))


def _client_load(row: Mapping[str, Any]) -> ClientLoad:
    (client,), (address,), (pool,), (osd,) = row['k']
    return ClientLoad(client, address, int(pool), int(osd), int(row['c'][0][0]))


def _object_load(row: Mapping[str, Any]) -> ObjectLoad:
    (name,), (pool,), (osd,) = row['k']
    return ObjectLoad(name, int(pool), int(osd), int(row['c'][0][0]))


class _Parts:
    """The writes by PG from as many readings as there are parts."""

    def __init__(self) -> None:
        self.writes: List[PgWrites] = []
        #: Seconds that all readings together cover.
        self.seconds = 0.0
        #: Number of readings taken in, and of the next part.
        self.readings = 0
        self._part_count = 1

    @property
    def complete(self) -> bool:
        return self.readings >= self._part_count

    def add(self, seconds: float, rows: Sequence[Mapping[str, Any]],
            placement: Callable[[str], Optional[Placement]]) -> None:
        """Take the next part of the PGs from a reading of all, which covers so many seconds.

        The first reading decides how many parts there are; a PG is always in the same one.
        """
        if not self.readings:
            self._part_count = -(-len(rows) // MOST_PGS_PER_READING) or 1

        def parsed(row: Mapping[str, Any]) -> Optional[PgWrites]:
            # The name of a PG of an erasure-coded pool ends in the shard of its primary.
            pgid = row['k'][0][0].partition('s')[0]
            # `readings` is also the number of the part that this one takes.
            if zlib.crc32(pgid.encode()) % self._part_count != self.readings:
                return None
            placed = placement(pgid)
            if placed is None or placed.primary < 0:
                return None
            primary = placed.primary
            return PgWrites(pgid, (primary, *(osd for osd in placed.acting if osd != primary)),
                            Ops(*row['c'][0]))

        self.writes += _parsed(rows, parsed)
        # Each part has its own seconds; pg_writes takes their mean.
        self.seconds += seconds
        self.readings += 1


def _pg_query(pgs_per_osd: int) -> Dict[str, Any]:
    return {'key_descriptor': [{'type': 'pg_id', 'regex': '^(.*)$'}],
            'performance_counter_descriptors': ['write_latency', 'write_ops'],
            'limit': {'order_by': 'write_ops', 'max_count': pgs_per_osd}}


def _read_query(osds: Sequence[int]) -> Dict[str, Any]:
    """Of all PGs of some OSDs; other OSDs compare their id and count nothing. The name of a PG of
    an erasure-coded pool ends in that of a shard."""
    return {'key_descriptor': [
                {'type': 'osd_id', 'regex': '^(%s)$' % '|'.join(map(str, osds))},
                {'type': 'pg_id', 'regex': '^([0-9]+[.][0-9a-f]+)'}],
            'performance_counter_descriptors': ['read_ops']}
