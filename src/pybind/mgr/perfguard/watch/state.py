# SPDX-License-Identifier: LGPL-2.1-or-later
"""State of the watch: processes readings, draws conclusions, keeps histories."""
import contextlib
import math
from bisect import bisect_left
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from operator import add
from typing import (AbstractSet, Callable, ContextManager, Deque, Dict, FrozenSet, Iterable, List,
                    Mapping, NamedTuple, Optional, Sequence, Set, Tuple, TypeVar)

from ..cluster.crush import LIGHT
from ..cluster.drive_health import DriveHealth
from ..cluster.inventory import shared_devices
from ..cluster.types import (NO_OPS, ClientLoad, Document, KvBytes, ObjectLoad, OsdCounters,
                             OsdMap, OsdPlace, PgCounts, Placement, Pool, Pressure, Readings,
                             Signals)
from ..codec import Time
from ..errors import Code
from ..options import Options
from ..text import osds_text
from .causes import (CAUSE_OPS, HOT_LOAD, WORK, WORK_RATIO, ClientShare, ExtraWork, KvWrites,
                     LikelyCause, OsdEvidence, causes, heavy_clients, higher_load, switch_side)
from .chronic import StoredCounts
from .drives import Firmwares, drive_evidence, firmwares
from .laggy import LaggyEpisode, LaggyPgs, LaggySignals, Suspect, episode_after, suspects
from .op_counts import QuietOps
from .op_sizes import OpSizes
from .osds import (RESTART_REPORT_SECONDS, Deletions, OsdNorms, OsdWatch, PgPartners, Restarts,
                   SlowOsdReads, add_reads, busy, faster_of_two, replica_flows, without_erasure)
from .peers import GroupKey, all_models, groups_of
from .pools import PoolOps, PoolSettings, PoolWatch, RaisedAlarm, ops_by_pool
from .rounds import Rounds, Work, chunks, latest
from .series import ChartRows, Charts, History, HistoryPoint, LatencyPercentiles, newer
from .slow_osds import SlowOsds, StoredSlow
from .slowness import SlowSettings
from .steps import Changes, ClusterChange, OsdRelease, Step, changes_around, facts_of
from .stop_conditions import MUTED_BY, NOTHING, Touched, osds_with_slow_ops
from .types import Alarm, Flow, OsdReading, OsdSample, Sizes

Load = TypeVar('Load', ClientLoad, ObjectLoad)

#: Further columns of the history of the cluster; states are in PG-seconds.
(LAGGY_SECONDS, DEGRADED_SECONDS, BACKFILL_SECONDS, SLOW_OP_SECONDS, MISPLACED_SECONDS,
 RECOVERED_BYTES) = range(4, 10)
#: Time for which PGs may wait for read leases of their last interval to expire: it takes up to
#: osd_heartbeat_grace x osd_pool_default_read_lease_ratio (16 s), and is part of peering.
WAIT_SECONDS = 30.0
#: Report periods without a laggy PG after which the alarm is cleared.
CLEAR_PERIODS = 3.0
#: Time for which unreported PGs clear nothing. After a failover, PGs are unreported for some
#: seconds; those whose OSDs are all dead remain unreported.
UNKNOWN_SECONDS = 300.0
#: Time after which a slow OSD is no longer a reason to learn no baselines.
ACCEPT_SECONDS = 86400.0
#: Share of the OSDs that may have become slow meanwhile: among 1,000, some always have, and they
#: hardly change the latency of a pool.
FEW_SLOW_SHARE = 0.01
#: Maximum age of what is known of the threads of an OSD.
PRESSURE_AGE_SECONDS = 60.0
#: Time after which a pool is no longer on OSDs of a root and class, if others serve it; and how
#: often it is noted in this time which do.
SERVED_SECONDS, SERVED_NOTES = 3600.0, 60
#: Number of readings that show the current load by client.
LOAD_READINGS = 6
#: Maximum time between two readings that form an interval.
LONGEST_SECONDS = 120.0


@dataclass(frozen=True)
class WatchContext:
    """Input of an update besides the readings."""
    now: float
    signals: Signals
    osdmap: OsdMap
    placement: Callable[[str], Optional[Placement]]
    #: Seconds between two reports of an OSD (mgr_stats_period).
    period: float
    #: No campaign moves PGs, and no probe is active.
    idle: bool = True
    probing: bool = False
    #: PGs of a campaign that are in flight.
    in_flight: int = 0
    #: OSDs and pools whose reports may contain operations of a probe. They are not judged.
    probed: Touched = NOTHING
    #: Device, as in "h1:nvme0n1" -> its SMART data; None: not read yet.
    drives: Optional[Mapping[str, DriveHealth]] = None
    #: Turns of the loop since the reading before; for a reading.
    turns_per_reading: int = 1
    #: OSD -> CRUSH weight, of all OSDs in CRUSH; empty: not known.
    weights: Mapping[int, float] = field(default_factory=dict)


@dataclass
class LaggyState:
    #: Raised while PGs are laggy, and while PGs wait for read leases for long.
    alarm: Alarm = field(default_factory=Alarm)
    waiting: Alarm = field(default_factory=Alarm)
    pgs: LaggyPgs = field(default_factory=LaggyPgs)
    suspects: Tuple[Suspect, ...] = ()
    #: OSD -> how busy it was, and when that was read.
    pressures: Dict[int, Tuple[float, Pressure]] = field(default_factory=dict)
    #: The last time for which the alarm was raised.
    last_episode: Optional[LaggyEpisode] = None

    @property
    def raised(self) -> bool:
        return self.alarm.raised or self.waiting.raised

    @property
    def since(self) -> float:
        raised = [alarm.since for alarm in (self.alarm, self.waiting) if alarm.raised]
        return min(raised, default=0.0)


class Reported(NamedTuple):
    """A problem whose begin was reported and that has not ended."""
    #: Health check.
    check: str
    #: For example "osd.3".
    subject: str
    since: float


@dataclass(frozen=True)
class StoredWatch:
    """What survives a failover of the problems."""
    slow: Mapping[int, StoredSlow] = field(default_factory=dict)
    #: None: no PGs are laggy.
    laggy_since: Optional[Time] = None
    laggy_last: Optional[LaggyEpisode] = None
    latency: Tuple[RaisedAlarm, ...] = ()
    told: Tuple[Reported, ...] = ()
    release: OsdRelease = OsdRelease()


class WatchState:
    """Only the loop updates it; any thread may call `history_of` and `drawn`."""

    def __init__(self, lock: ContextManager[object] = contextlib.nullcontext()) -> None:
        """`lock`: held while the history changes or is read."""
        #: Latency, baselines and alarms of pools.
        self.pools = PoolWatch()
        #: Operations of OSDs, their read latency while nothing moves, and which of them are slow.
        self.osds = OsdWatch()
        self.norms = OsdNorms()
        self.slow = SlowOsds()
        #: From samples of latencies on OSDs, and from counts by latency while nothing moves.
        self.percentiles = LatencyPercentiles()
        self.quiet_ops = QuietOps()
        self.laggy = LaggyState()
        #: What may have made a pool slower, and the release of the OSDs.
        self.changes = Changes()
        self.release = OsdRelease()
        #: How clients read from slow OSDs.
        self.reads = SlowOsdReads()
        #: The history of the whole cluster (_columns()), and what charts of the page add to it.
        self.cluster = History(10)
        self.charts = Charts()
        #: OSD -> PGs with it in their acting set.
        self.osd_counts: Mapping[int, PgCounts] = {}
        #: When the oldest of these counts may have been made: OSDs report their PGs once per
        #: period.
        self._counts_read = math.inf
        #: Work besides client operations, from these counts.
        self._work = ExtraWorks()
        self._deletions, self._restarts = Deletions(), Restarts()
        #: As in Readings, from the last one that had them.
        self.ping_ms: Mapping[int, float] = {}
        self._peer_ping_ms: Mapping[int, Mapping[int, float]] = {}
        self.places: Mapping[int, OsdPlace] = {}
        #: Pool -> roots and classes of the OSDs that serve its operations, and when they last did.
        self._served: Dict[int, Dict[Tuple[str, str], float]] = {}
        #: Pool -> operations per second of other pools on its OSDs.
        self.others_rates: Mapping[int, float] = {}
        #: OSD -> seconds since its last report, of OSDs whose report is late.
        self.silent: Mapping[int, float] = {}
        #: As in Readings.
        self.unreported = ''
        self.untrimmed_epochs: Optional[int] = None
        #: As in Clients, as of the last interval.
        self.why_not_quiet = ''
        #: OSD -> PGs that it is deleting.
        self.deleting: Mapping[int, int] = {}
        #: OSD -> the devices that it shares with others.
        self.devices: Mapping[int, Sequence[str]] = {}
        #: OSD -> the last known uuid, which differs once its device was replaced.
        self._uuids: Dict[int, str] = {}
        #: OSD -> writes that it replicates: the faster of the last two readings, and the last one.
        self._replicas: Dict[int, Flow] = {}
        self._last_replicas: Dict[int, Flow] = {}
        #: The OSDs with which slow replicas share PGs.
        self._partners_of_slow = PgPartners()
        #: Mean sizes of the operations of each OSD.
        self._sizes = OpSizes()
        #: The judgement of the OSDs, and what has been seen since the last one began.
        self.rounds = Rounds()
        self._since_round = _SinceRound()
        #: OSDs that a probe has loaded since the last reading of writes by PG.
        self._probed: Set[int] = set()
        #: OSD -> its operations by client and by object, in the last readings.
        self._loads: Deque[Dict[int, List[ClientLoad]]] = deque(maxlen=LOAD_READINGS)
        self._objects: Deque[Dict[int, List[ObjectLoad]]] = deque(maxlen=LOAD_READINGS)
        #: OSD -> what its RocksDB has written, with the time of the reading, in the last readings.
        self._kv_bytes: Deque[Tuple[float, Mapping[int, KvBytes]]] = deque(maxlen=LOAD_READINGS)
        #: What the causes of all slow OSDs share; None: not computed since the last reading.
        self._cause_inputs: Optional[_CauseInputs] = None
        #: Pool -> its operations by client; None: not computed since the last reading. An outage
        #: makes all pools slow.
        self._pool_loads: Optional[Dict[int, List[ClientLoad]]] = None
        #: The option slow_osd_factor at the last reading.
        self._slow_ratio = 1.5
        #: The client operations of each OSD and the medians of its peers; None: not computed since
        #: the last reading.
        self._client_ops: Optional[PeerMedians] = None
        #: Group -> the CRUSH weights of its OSDs; None: as above.
        self._group_weights: Optional[Mapping[GroupKey, Sequence[float]]] = None
        #: Seconds for which this mgr has not had reports of all PGs until now; 0.0: it has them.
        self._unknown_seconds = 0.0
        self._lock = lock

    def update(self, context: WatchContext, readings: Readings, options: Options) -> None:
        """Take in the readings of one turn, and judge pools and laggy PGs by them. OSDs are judged
        in rounds, each of which may take several turns."""
        self._forget_replaced(context.osdmap, _serving_nothing(context, readings.counters))
        # 0.0: the readings cover no interval, or one with a gap.
        seconds = readings.seconds if 0.0 < readings.seconds <= LONGEST_SECONDS else 0.0
        self._unknown_seconds = \
            self._unknown_seconds + seconds if context.signals.counts.unreported else 0.0
        self.deleting = {osd: read.deleting for osd, read in readings.counters.items()
                         if read.deleting}
        if readings.osd_counts is not None:
            # OSDs report their PGs once per period, so the counts may be that old.
            self.osd_counts, self._counts_read = readings.osd_counts, context.now - context.period
        self._deletions.update(context.now, self.osd_counts, self.deleting)
        self._restarts.update(context.now, readings.counters, readings.places.keys())
        if readings.osd_counts is not None:
            # While PGs are unreported, it is not known when their work began.
            if self._is_reported:
                self._work.update(context.now, self._counts_read, self.osd_counts, readings.places,
                                  options.slow_osd_seconds, self._deletions.pgs)
        if readings.ping_ms is not None:
            self.ping_ms, self._peer_ping_ms = readings.ping_ms, readings.peer_ping_ms
        if readings.untrimmed_epochs is not None:
            self.untrimmed_epochs = readings.untrimmed_epochs
        self.places, self.silent = readings.places, readings.silent
        self.unreported = readings.unreported
        self.devices = _shared_devices(readings.places)
        ops = ops_by_pool(readings.clients)
        self._note_serving_osds(context, readings, ops)
        self.percentiles.update(context.now, readings.latencies, list(readings.counters),
                                readings.clients, readings.sampling)
        if seconds:
            with self._lock:
                self._update_latencies(context, readings, ops, seconds, options)
        self.others_rates = self._rates_of_other_pools()
        self.changes.note(context.now, facts_of(context.osdmap, readings.software.values()),
                          context.drives)
        self.release = self.release.noted(
            context.now, {release for release, _ in readings.software.values()})
        self._judge_osds(context, readings, ops, options)
        # Reads by PG are expensive: only the mitigation that lowers affinities needs them.
        lowers_affinity = options.mitigation_affinity and options.mitigation_mode != 'off'
        self.reads.update(self.slow_osds() if lowers_affinity else (), readings.pg_reads,
                          _erasure(context.osdmap))
        self._add_loads(readings)
        self._kv_bytes.append((context.now, readings.kv_bytes))
        self._cause_inputs = self._pool_loads = self._client_ops = None
        self._group_weights = None
        self._judge_laggy(context, readings, seconds)

    @property
    def _is_reported(self) -> bool:
        """Whether no report of a PG to this mgr is awaited."""
        return not 0.0 < self._unknown_seconds < UNKNOWN_SECONDS

    def _update_latencies(self, context: WatchContext, readings: Readings,
                          ops: Mapping[int, PoolOps], seconds: float, options: Options) -> None:
        """Add `seconds` of client operations to the latencies, alarms and baselines of pools, to
        the norms of OSDs, and to the history and the charts. `ops`: by pool."""
        self.why_not_quiet = self._why_not_quiet(context)
        quiet = not self.why_not_quiet
        self.quiet_ops.update(context.now, quiet, readings.counted)
        self.pools.update(context.now, seconds, ops, context.osdmap.pools, quiet,
                          pool_settings(options), context.probed.pools,
                          context.idle and self._settled(context))
        self.norms.forget_others(context.osdmap.osds)
        self.norms.places = readings.places
        if quiet:
            slow = self._newly_slow(context.now)
            self.norms.update([row for row in readings.clients if row.osd not in slow],
                              self.pools.read_baselines())
        self.cluster.add(context.now, seconds, _columns(context, ops, seconds))
        self.charts.update(context.now, seconds, self.percentiles, self.pools.busiest(),
                           context.osdmap.pools, context.in_flight)

    def _note_serving_osds(self, context: WatchContext, readings: Readings,
                           ops: Mapping[int, PoolOps]) -> None:
        """Note which kinds of OSDs (CRUSH root and device class) serve each pool, and forget kinds
        that have not served it for SERVED_SECONDS while others have: another rule may have moved
        the pool. `ops`: by pool."""
        places = readings.places
        for pool_id, pool_ops in ops.items():
            served_at = self._served.setdefault(pool_id, {})
            age = context.now - max(served_at.values(), default=-math.inf)
            if 0.0 <= age < SERVED_SECONDS / SERVED_NOTES:
                continue  # noted lately
            serving = {places[row.osd].kind for row in pool_ops.rows
                       if row.osd in places and (row.read != NO_OPS or row.write != NO_OPS)}
            served_at.update(dict.fromkeys(serving, context.now))
        self._served = {pool_id: {kind: at for kind, at in served.items()
                                  if max(served.values()) - at <= SERVED_SECONDS}
                        for pool_id, served in self._served.items()
                        if served and pool_id in context.osdmap.pools}

    def is_on_disks(self, pool_id: int) -> bool:
        """Whether OSDs of the class hdd serve the pool."""
        return any(device_class == 'hdd' for _, device_class in self._served.get(pool_id, ()))

    def _rates_of_other_pools(self) -> Dict[int, float]:
        """Pool -> operations per second of the other pools that OSDs of its kinds serve."""
        latencies = {pool_id: self.pools.latency(pool_id) for pool_id in self._served}
        rates = {pool_id: latency.read.rate + latency.write.rate
                 for pool_id, latency in latencies.items()}
        # There are few combinations of kinds of OSDs, and may be many pools.
        kinds_of = {pool_id: frozenset(served) for pool_id, served in self._served.items()}
        rates_by_kinds: Dict[FrozenSet[Tuple[str, str]], float] = {}
        for pool_id, kinds in kinds_of.items():
            rates_by_kinds[kinds] = rates_by_kinds.get(kinds, 0.0) + rates[pool_id]
        return {pool_id: max(0.0, sum(rate for kinds, rate in rates_by_kinds.items()
                                      if pool_kinds & kinds) - rates[pool_id])
                for pool_id, pool_kinds in kinds_of.items()}

    def _add_loads(self, readings: Readings) -> None:
        """Keep the loads by client and by object of the last LOAD_READINGS readings. While
        something is slow, they are read for a part of the time only, and those before remain known
        in between."""
        is_read = bool(readings.client_loads or readings.object_loads)
        if is_read or not (self.pools.slow() or self.slow.any_slow):
            self._loads.append(_by_osd(readings.client_loads))
            self._objects.append(_by_osd(readings.object_loads))

    def _forget_replaced(self, osdmap: OsdMap, away: AbstractSet[int]) -> None:
        """Forget what is known of OSDs with another device, which may have the id and the place in
        CRUSH of the old one. In between, the id may be in no OSDMap. Also forget the counts of
        chronic slowness of OSDs that are removed or destroyed. `away`: OSDs that serve nothing:
        their chronic slowness is not reported until they return."""
        uuids = {osd.id: osd.uuid for osd in osdmap.osds.values()}
        replaced = {osd for osd, uuid in uuids.items() if self._uuids.get(osd, uuid) != uuid}
        self._uuids.update(uuids)
        if replaced:
            # A round that has begun still judges the old devices.
            self.rounds.finish()
            self.slow.forget(replaced)
            self.norms.forget_others(uuids.keys() - replaced)
        if osdmap.osds:  # else it is the initial one
            self.slow.chronic.keep(
                {osd.id for osd in osdmap.osds.values() if not osd.destroyed}, away=away)

    def _judge_osds(self, context: WatchContext, readings: Readings,
                    ops: Mapping[int, PoolOps], options: Options) -> None:
        """Add the readings of a turn to those since the last round began, and continue the present
        round or begin the next one. `ops`: by pool."""
        self._probed |= context.probed.osds
        self._update_replicas(readings)
        self._since_round.add(
            context, readings, busy(self.osd_counts, readings.counters, self._deletions.pgs,
                                    self._restarts.at), self._settled(context), options)
        self._sizes.update(ops, readings.pg_writes, context.osdmap.pools, readings.places)
        self.rounds.note_reading(context.turns_per_reading)
        if self.rounds.idle:
            since_round, self._since_round = self._since_round, _SinceRound(context.now)
            work = self._round(context, readings.counters, readings.places, options, since_round,
                               self._sizes.by_osd())
            self.rounds.begin(context.now, work, len(readings.places), context.turns_per_reading)
        self.rounds.advance(context.now)
        self._partners_of_slow.update(self.slow.slow_replicas, context.osdmap, context.placement)
        self._slow_ratio = options.slow_osd_factor

    def continue_round(self, now: float) -> bool:
        """Between two readings, judge further OSDs. Returns whether this has ended a round without
        a failure."""
        if self.rounds.idle:
            return False
        self.rounds.advance(now)
        self._cause_inputs = None  # they depend on which OSDs are slow
        return self.rounds.idle and self.rounds.failure is None

    def _update_replicas(self, readings: Readings) -> None:
        """Update the latency of replicated writes by OSD, if writes by PG were read this time:
        without PGs that a probe has loaded since they were last read. It is that of the faster of
        two consecutive readings, so that one stall is no slowness; OSDs that are in only one of
        them have none."""
        if readings.pg_writes is None:
            return
        flows = replica_flows([row for row in readings.pg_writes
                               if self._probed.isdisjoint(row.acting)], readings.pg_seconds,
                              groups_of(readings.places)[0])
        self._replicas = faster_of_two(self._last_replicas, flows)
        self._last_replicas, self._probed = flows, set()

    def _round(self, context: WatchContext, counters: Mapping[int, OsdCounters],
               places: Mapping[int, OsdPlace], options: Options, since_round: '_SinceRound',
               sizes: Mapping[int, Sizes]) -> Work[None]:
        """Judge all OSDs, in this turn and the next ones. `counters`, `places`, `sizes`: of this
        turn; `since_round`: what was read in the turns since the last round began. Yields passes
        over OSDs (rounds.py)."""
        samples: List[OsdSample] = []
        # As of the turn in which the round begins: later turns replace them.
        replicas, counts_read = self._replicas, self._counts_read
        partners = self._partners_of_slow.by_osd
        with self._lock:
            self.osds.forget_others(counters)
        for osds in chunks(counters):
            with self._lock:
                samples += self.osds.update(context.now, counters, osds)
            yield 3 * len(osds)
        samples = [reading._replace(replica=replicas[reading.osd])
                   if reading.osd in replicas else reading
                   for reading in without_erasure(samples, since_round.reads,
                                                  _erasure(context.osdmap))]
        yield from self.slow.round(
            OsdReading(
                context.now, samples, places, since_round.busy, since_round.learning,
                since_round.settled, replicas_only={
                    osd.id for osd in context.osdmap.osds.values() if not osd.primary_affinity},
                partners=partners, probed=since_round.probed, busy_read=counts_read, sizes=sizes,
                observed=since_round.seconds),
            SlowSettings(options.slow_osd_factor, seconds=options.slow_osd_seconds,
                         memory_seconds=options.chronic_period_seconds))

    def slow_osds(self) -> Dict[int, str]:
        """OSD -> why it is slow, of slow and of chronically slow OSDs. The latter are always
        included: their episodes are short, and each change of a primary affinity makes PGs peer."""
        slow = {osd: verdict.why for osd, verdict in self.slow.slow_verdicts.items()}
        return {**{osd: standing.why for osd, standing in self.slow.chronic.standing.items()},
                **slow}

    def changes_around(self, step: Step) -> List[ClusterChange]:
        """The changes that may be the cause of a step: those noted, and OSDs that became slow. The
        changes of options are read elsewhere."""
        slow = [ClusterChange(verdict.since, 'osd.%d' % osd, 'as fast as its peers', 'slow')
                for osd, verdict in self.slow.slow_verdicts.items()]
        return self.changes.around(step) + changes_around(slow, step)

    def _judge_laggy(self, context: WatchContext, readings: Readings, seconds: float) -> None:
        """Update the alarms on laggy PGs, the PGs that clients wait for, and the suspected OSDs."""
        counts = context.signals.counts
        self.laggy.alarm.update(context.now, seconds, _holds(counts.laggy, self._is_reported),
                                raise_after=0.0, clear_after=CLEAR_PERIODS * context.period)
        self.laggy.waiting.update(context.now, seconds, _holds(counts.wait, self._is_reported),
                                  raise_after=WAIT_SECONDS, clear_after=0.0)
        last = self.laggy.last_episode
        if last is not None and not last.until and not self.laggy.raised:
            self.laggy.last_episode = last._replace(until=context.now)
        if not counts.laggy + counts.wait:
            self.laggy.pgs.clear()
            self.laggy.suspects = ()
            return

        def acting_of(pgid: str) -> Optional[Tuple[int, ...]]:
            placement = context.placement(pgid)
            return placement.acting if placement is not None else None

        self.laggy.pgs.update(context.now, readings.unreadable, acting_of, self.osd_counts)
        self.laggy.pressures.update({osd: (context.now, pressure)
                                     for osd, pressure in readings.pressures.items()})
        self.laggy.suspects = suspects(LaggySignals(
            counts.laggy + counts.wait, self.osd_counts, self.laggy.pgs.all(), self.silent,
            self.ping_ms, {osd: pressure for osd, (read, pressure) in self.laggy.pressures.items()
                           if context.now - read <= PRESSURE_AGE_SECONDS}))
        if self.laggy.raised:
            self.laggy.last_episode = episode_after(
                last, self.laggy.since, context.now, next(iter(self.laggy.suspects), None))

    @staticmethod
    def _settled(context: WatchContext) -> bool:
        """Whether no operation waits for a PG that peers, moves or recovers. PGs for which CRUSH
        finds too few OSDs, or whose OSDs are lost, do none of this until an operator acts; PGs that
        are not reported yet count as peering."""
        counts = context.signals.counts
        all_clean = counts.active_clean == counts.total
        moving = counts.in_transition + counts.recovering + counts.backfilling \
            + counts.backfill_wait
        # With an OSD that is down and in, PGs that are not clean are about to recover.
        return not context.in_flight and (all_clean or not (moving or context.osdmap.absent))

    def _why_not_quiet(self, context: WatchContext) -> str:
        """What moves, or which problem exists, as in "PGs are laggy"; '': nothing, apart from few
        slow OSDs, and from OSDs that have been slow for ACCEPT_SECONDS."""
        signals, few = context.signals, FEW_SLOW_SHARE * len(self.places)
        if not context.idle:
            return 'a campaign moves PGs, or a probe is active'
        if not self._settled(context):
            return 'PGs peer, move or recover'
        if signals.counts.laggy + signals.counts.wait or self.laggy.raised:
            return 'PGs are laggy'
        if signals.slow_ops and MUTED_BY[Code.SLOW_OPS] not in signals.muted:
            # As for the mitigation, operations that are slow in a mon alone do not count.
            osds = osds_with_slow_ops(signals)
            if len(osds) > few or not signals.slow_daemons:
                return 'operations%s are slow' % (' on ' + osds_text(osds) if osds else '')
        if signals.recovery_bytes_per_second:
            return 'objects are recovered'
        newly_slow = len(self._newly_slow(context.now))
        if newly_slow > few:
            return '%s become slow within a day' % (
                '1 OSD has' if newly_slow == 1 else '%d OSDs have' % newly_slow)
        is_part_slow = any(context.now - part.since < ACCEPT_SECONDS
                           for part in self.slow.class_parts())
        return 'a part of the OSDs of a class is slow' if is_part_slow else ''

    def _newly_slow(self, now: float) -> Set[int]:
        return {osd for osd, verdict in self.slow.slow_verdicts.items()
                if now - verdict.since < ACCEPT_SECONDS}

    def causes_of(self, osd: int, context: WatchContext) -> Tuple[LikelyCause, ...]:
        """The likely causes of a slow OSD."""
        if self._cause_inputs is None:
            self._cause_inputs = _CauseInputs(
                kv_writes(self._kv_bytes, self.places), _by_host(self.places),
                firmwares(self.places, self.slow_osds(), context.drives or {}))
        place, osd_row = self.places.get(osd), context.osdmap.osds.get(osd)
        shared = next((part for part in self.slow.shared() if osd in part.osds), None)
        verdict = self.slow.verdicts.get(osd)
        slow_since = verdict.since if verdict else 0.0
        return causes(replace(
            self._load_evidence(osd, context), slowdowns=self.slow.slowdowns(osd),
            ratio=self._slow_ratio, host=place.host if place else '',
            host_osds=self._cause_inputs.host_osds[place.host] if place else (),
            shared=shared, work=self._work.of(osd, slow_since),
            work_known=self._work.known,
            fullness=osd_row.fullness if osd_row else '', ping_ms=self.ping_ms,
            side=switch_side(osd, self._peer_ping_ms, self.ping_ms, self.places),
            kv_writes=self._cause_inputs.kv_writes.get(osd),
            restarted_seconds=self._restarted_seconds(osd, slow_since, context.now),
            drive=drive_evidence(place, shared, context.drives, self._cause_inputs.firmwares)))

    def _restarted_seconds(self, osd: int, slow_since: float, now: float) -> Optional[float]:
        """Seconds since an OSD was restarted lately; None: it was not, or was slow before."""
        at = self._restarts.at.get(osd)
        return None if at is None or slow_since < at - RESTART_REPORT_SECONDS else now - at

    def load_of(self, osd: int, context: WatchContext) -> Tuple[LikelyCause, ...]:
        """Why an OSD serves more operations than its peers; empty: it does not."""
        if self.slow.load_ratio(osd) < HOT_LOAD:
            return ()
        return tuple(higher_load(self._load_evidence(osd, context)))

    def _load_evidence(self, osd: int, context: WatchContext) -> OsdEvidence:
        return OsdEvidence(
            osd, load_ratio=self.slow.load_ratio(osd),
            weight_ratio=self._weight_ratio(osd, context),
            clients=[row for rows in self._loads for row in rows.get(osd, ())],
            objects=[row for rows in self._objects for row in rows.get(osd, ())],
            client_ratio=self._client_ratio(osd),
            pool_names=_pool_names(context.osdmap.pools))

    def _weight_ratio(self, osd: int, context: WatchContext) -> float:
        """The weight in force of an OSD, as a multiple of the median of its peers: how many times
        their operations it should serve. At least 1.0: a small drive has no excess of operations
        only because it serves as many as larger ones."""
        if self._group_weights is None:
            self._group_weights = _group_weights(
                {osd_id: _weight_in_force(osd_id, context) for osd_id in self.places}, self.places)
        group, weight = groups_of(self.places)[0].get(osd), _weight_in_force(osd, context)
        if group is None or not weight or group not in self._group_weights:
            return 1.0
        of_peers = _median_of_others(self._group_weights[group], weight)
        return max(1.0, weight / of_peers) if of_peers else 1.0

    def _client_ratio(self, osd: int) -> Optional[float]:
        """The client operations on an OSD as a primary, as a multiple of the median of its peers.
        None: too few operations of these are known."""
        if self._client_ops is None:
            ops: Counter[int] = Counter()
            for rows in (rows for loads in self._loads for rows in loads.values()):
                for row in rows:
                    ops[row.osd] += row.ops
            self._client_ops = PeerMedians(ops, self.places)
        of_peers = self._client_ops.of_peers(osd)
        return self._client_ops.numbers[osd] / of_peers if of_peers >= CAUSE_OPS else None

    def heavy_clients(self, pool: int) -> Tuple[ClientShare, ...]:
        """The client that sends most of the operations of a pool, alone in a tuple; () if there is
        none."""
        if self._pool_loads is None:
            self._pool_loads = {}
            for row in (row for loads in self._loads for rows in loads.values() for row in rows):
                self._pool_loads.setdefault(row.pool, []).append(row)
        return heavy_clients(self._pool_loads.get(pool, ()))

    def history_of(self, subject: str, pools: Mapping[str, int],
                   condensed: bool) -> Optional[List[HistoryPoint]]:
        """The points of "cluster", "osd.N" or a pool by name; None: unknown. `pools`: name -> id;
        `condensed`: of a week instead of an hour."""
        with self._lock:
            history: Optional[History] = None
            if subject == 'cluster':
                history = self.cluster
            # Before a pool of that name. A command may name anything: at most nine digits, so that
            # any OSD is included.
            elif subject.startswith('osd.') and subject[4:].isascii() \
                    and subject[4:].isdigit() and len(subject) < 14:
                history = self.osds.history(int(subject[4:]))
            elif subject in pools:
                history = self.pools.history(pools[subject])
            if history is None:
                return None
            return (history.condensed if condensed else history.detailed).points()

    def drawn(self, since: float, pools: Sequence[int], names: Mapping[int, str],
              limit: int) -> Document:
        """The charts of the last hour after `since` of the cluster and of `pools` (empty: the
        busiest).

        At most `limit` pools; pools that are not in `names` (id -> name) are left out.
        """
        # Times are rounded to milliseconds, and the caller has the row of `since`.
        after = since + 0.001
        with self._lock:
            pool_ids = [pool for pool in pools or self.pools.busiest() if pool in names]
            charts: Dict[str, ChartRows] = {}
            for pool in pool_ids[:limit]:
                history = self.pools.history(pool)
                charts[str(pool)] = self.charts.pool(
                    pool, names[pool],
                    newer(history.detailed, after) if history is not None else [])
            return {'cluster': self.charts.cluster(newer(self.cluster.detailed, after)),
                    'pools': charts}

    # ---- State that survives a failover

    def stored(self, reported: Tuple[Reported, ...]) -> StoredWatch:
        return StoredWatch(self.slow.stored(), self.laggy.since if self.laggy.raised else None,
                           self.laggy.last_episode, tuple(self.pools.slow()), reported,
                           self.release)

    def load(self, stored: StoredWatch, now: float) -> None:
        """Take over the state of an earlier mgr."""
        self.slow.load(stored.slow, now)
        if stored.laggy_since is not None:
            self.laggy.alarm = Alarm(True, stored.laggy_since)
        self.laggy.last_episode = stored.laggy_last
        self.release = stored.release
        self.pools.load_alarms(stored.latency)

    def stored_chronic(self) -> StoredCounts:
        return self.slow.chronic.stored(self._uuids)

    def load_chronic(self, counts: StoredCounts) -> None:
        """Take over the counts of chronically slow OSDs of an earlier mgr."""
        self._uuids.update(self.slow.chronic.load(counts))


def _serving_nothing(context: WatchContext, counters: Mapping[int, OsdCounters]) -> Set[int]:
    """OSDs that are down and out, or drained: they get no PGs, and report that they have none."""
    serving_nothing: Set[int] = set()
    for osd in context.osdmap.osds.values():
        is_out = not osd.reweight
        gets_none = is_out or bool(context.weights) and context.weights.get(osd.id, 0.0) < LIGHT
        has_none = osd.id in counters and not counters[osd.id].pgs if osd.up else is_out
        if gets_none and has_none:
            serving_nothing.add(osd.id)
    return serving_nothing


def pool_settings(options: Options) -> PoolSettings:
    return PoolSettings(options.latency_alarm_factor, options.baseline_seconds)


def _by_osd(rows: Iterable[Load]) -> Dict[int, List[Load]]:
    rows_by_osd: Dict[int, List[Load]] = {}
    for row in rows:
        rows_by_osd.setdefault(row.osd, []).append(row)
    return rows_by_osd


def _erasure(osdmap: OsdMap) -> Set[int]:
    """The erasure-coded pools."""
    return {pool.id for pool in osdmap.pools.values() if pool.erasure}


@dataclass
class _SinceRound:
    """What was read in the turns since the last round began, to judge them as one interval."""
    #: When the last turn was, and how long they were together.
    now: float = math.inf
    seconds: float = 0.0
    learning: bool = True
    settled: bool = True
    probed: Set[int] = field(default_factory=set)
    #: As in OsdReading.
    busy: Dict[int, str] = field(default_factory=dict)
    #: OSD -> client reads of replicated and of erasure-coded pools.
    reads: Dict[int, List[int]] = field(default_factory=dict)

    def add(self, context: WatchContext, readings: Readings, busy_osds: Mapping[int, str],
            settled: bool, options: Options) -> None:
        """Add the reading of one turn. `busy_osds`: as OsdReading.busy; `settled`: no operation
        waits for a PG that moves."""
        # The time of a gap was not observed.
        self.seconds += min(max(0.0, context.now - self.now), options.slow_osd_seconds / 4)
        self.now = context.now
        self.learning = self.learning and not context.probing
        self.settled = self.settled and settled
        self.probed |= context.probed.osds
        self.busy.update(busy_osds)
        add_reads(self.reads, readings.clients, _erasure(context.osdmap))


class _CauseInputs(NamedTuple):
    """What the causes of all slow OSDs share: by OSD, OSDs by host, and by drive model."""
    kv_writes: Mapping[int, KvWrites]
    host_osds: Mapping[str, Tuple[int, ...]]
    firmwares: Mapping[str, Firmwares]


@latest
def _pool_names(pools: Mapping[int, Pool]) -> Dict[int, str]:
    return {pool_id: pool.name for pool_id, pool in pools.items()}


@latest
def _shared_devices(places: Mapping[int, OsdPlace]) -> Dict[int, List[str]]:
    """OSD -> the devices that it shares with others."""
    return shared_devices({osd: place.devices for osd, place in places.items()})


@latest
def _by_host(places: Mapping[int, OsdPlace]) -> Dict[str, Tuple[int, ...]]:
    osds_by_host: Dict[str, List[int]] = {}
    for osd, place in sorted(places.items()):
        osds_by_host.setdefault(place.host, []).append(osd)
    return {host: tuple(osds) for host, osds in osds_by_host.items()}


def kv_writes(readings: Sequence[Tuple[float, Mapping[int, KvBytes]]],
              places: Mapping[int, OsdPlace]) -> Dict[int, KvWrites]:
    """OSD -> what its RocksDB writes. `readings`: (seconds since the epoch, OSD -> bytes since its
    start), oldest first. Without OSDs that are not in two of them, or were restarted in between.
    Peers are the other OSDs of the root and device class.
    """
    rates: Dict[int, Tuple[float, float]] = {}
    for osd in places:
        rate = _kv_rate([(when, bytes_of[osd]) for when, bytes_of in readings if osd in bytes_of])
        if rate is not None:
            rates[osd] = rate
    sst_medians = PeerMedians({osd: sst for osd, (sst, _) in rates.items()},
                              {osd: places[osd] for osd in rates})
    return {osd: KvWrites(sst, wal, sst_medians.of_peers(osd)) for osd, (sst, wal) in rates.items()}


class PeerMedians:
    """Numbers by OSD, 0 by default, and their medians over the other OSDs of its root and class."""

    def __init__(self, numbers: Mapping[int, float], places: Mapping[int, OsdPlace]) -> None:
        self.numbers = {osd: numbers.get(osd, 0) for osd in places}
        self._places = places
        #: Root and class -> the numbers of its OSDs, ascending.
        self._ordered: Dict[Tuple[str, str], List[float]] = {}
        for osd, place in places.items():
            self._ordered.setdefault(place.kind, []).append(self.numbers[osd])
        for ordered in self._ordered.values():
            ordered.sort()

    def of_peers(self, osd: int) -> float:
        """The median of the peers of an OSD; 0.0: it has none, or its place is not known."""
        place = self._places.get(osd)
        return _median_of_others(self._ordered[place.kind], self.numbers[osd]) if place else 0.0


def _weight_in_force(osd: int, context: WatchContext) -> float:
    """The CRUSH weight of an OSD times its reweight, by which it gets PGs; 0.0: not known."""
    row = context.osdmap.osds.get(osd)
    return context.weights.get(osd, 0.0) * (row.reweight if row is not None else 1.0)


def _group_weights(weights: Mapping[int, float],
                   places: Mapping[int, OsdPlace]) -> Dict[GroupKey, List[float]]:
    """Group of peers -> the CRUSH weights of its OSDs that have one, ascending. OSDs of a model
    with a group of its own are also in that of all models, as their latencies are (peers.judge)."""
    ordered: Dict[GroupKey, List[float]] = {}
    for osd, group in groups_of(places)[0].items():
        weight = weights.get(osd, 0.0)
        for key in {group, all_models(group)} if weight > 0.0 else ():
            ordered.setdefault(key, []).append(weight)
    for of_group in ordered.values():
        of_group.sort()
    return ordered


class _WorkSpan(NamedTuple):
    """A time in which an OSD has had more of some work than its peers."""
    #: When it may have begun; -math.inf: before the first reading.
    since: float
    #: When it was read last.
    last_read: float
    pgs: int
    peers_pgs: float


class ExtraWorks:
    """Work besides client operations of which OSDs have more than their peers, and since when."""

    def __init__(self) -> None:
        #: By OSD and code of work (WORK).
        self._spans: Dict[Tuple[int, str], _WorkSpan] = {}
        #: The times of the first and the last reading, and since when what the last one shows may
        #: have been so (`begin` in update()).
        self._first = math.inf
        self._last = self._last_begin = -math.inf
        #: By how many seconds the time since which an OSD is slow may be early. It is half of a
        #: window before the median rises; that of an OSD that was idle rises earlier.
        self._early_seconds = 0.0

    def update(self, now: float, begin: float, counts: Mapping[int, PgCounts],
               places: Mapping[int, OsdPlace], slow_osd_seconds: float,
               deleting: Mapping[int, int] = {}) -> None:
        """Add a reading of what OSDs worked on at some time between `begin` and `now`. Work
        continues if it is in two readings in a row, however far apart, or pauses for at most
        `slow_osd_seconds`. `counts`: OSD -> PGs with it in their acting set; `deleting`: OSD -> PGs
        that it deletes."""
        self._first = min(self._first, now)
        # An OSD counts as slow from half of a window before its median rises (slow_osds.py).
        self._early_seconds = slow_osd_seconds / 2
        lasting = {key: span for key, span in self._spans.items()
                   if span.last_read == self._last or now - span.last_read <= slow_osd_seconds}
        for code, (count, _) in WORK.items():
            numbers = {osd: int(getattr(row, count)) for osd, row in counts.items()} if count \
                else deleting
            if not any(numbers.values()):
                continue
            medians = PeerMedians(numbers, places)
            for osd, number in numbers.items():
                if not number:
                    continue
                of_peers = medians.of_peers(osd)
                if number >= WORK_RATIO * of_peers:
                    before = lasting.get((osd, code))
                    # New work may have begun at any time since the last reading.
                    lasting[osd, code] = _WorkSpan(before.since if before else self._last_begin,
                                                   now, number, of_peers)
        self._spans, self._last, self._last_begin = lasting, now, begin

    @property
    def known(self) -> bool:
        """Whether there was a reading."""
        return self._first < math.inf

    def of(self, osd: int, slow_since: float) -> Tuple[ExtraWork, ...]:
        """The work at present of which an OSD has more than its peers. `slow_since`: when the OSD
        became slow, to say which was first."""
        spans = [(code, self._spans.get((osd, code))) for code in WORK]
        return tuple(ExtraWork(code, span.pgs, span.peers_pgs, self._was_first(span, slow_since))
                     for code, span in spans if span and span.last_read == self._last)

    def _was_first(self, span: _WorkSpan, slow_since: float) -> Optional[bool]:
        """Whether the work began before the OSD became slow. None: it is not known, so neither this
        work nor the drive is named."""
        if span.since == -math.inf and slow_since < self._first:
            return None  # both began before the first reading
        if span.since <= slow_since:
            return True
        # Both began at about the same time.
        return None if span.since <= slow_since + self._early_seconds else False


def _median_of_others(ordered: Sequence[float], member: float) -> float:
    """The median of a sorted list without `member` of its members; 0.0: there are no others."""
    position, number = bisect_left(ordered, member), len(ordered) - 1
    # Positions in the list, passing over that of `member`.
    middle = [at + (at >= position) for at in (max(0, number - 1) // 2, number // 2)]
    return 0.5 * (ordered[middle[0]] + ordered[middle[1]]) if number else 0.0


def _kv_rate(points: Sequence[Tuple[float, KvBytes]]) -> Optional[Tuple[float, float]]:
    """Bytes per second that the RocksDB of an OSD writes to SST files and to its WAL, from (seconds
    since the epoch, bytes since its start); None: there are fewer than two readings, or the OSD was
    restarted."""
    if len(points) < 2:
        return None
    (begin, before), (end, after) = points[0], points[-1]
    grown = after.sst - before.sst, after.wal - before.wal
    if min(grown) < 0:
        return None
    return grown[0] / (end - begin), grown[1] / (end - begin)


def _holds(number: int, is_known: bool) -> Optional[bool]:
    """Whether at least one PG is laggy (or waits); None: unreported PGs may be."""
    return True if number else (False if is_known else None)


def _columns(context: WatchContext, ops: Mapping[int, PoolOps], seconds: float) -> List[float]:
    """The sums of one reading of the cluster, in the order of the columns of its history."""
    sums = [0.0] * 10
    for pool_ops in ops.values():
        sums[:4] = map(add, sums, pool_ops.columns)
    counts = context.signals.counts
    sums[LAGGY_SECONDS] = counts.laggy * seconds
    sums[DEGRADED_SECONDS] = counts.degraded * seconds
    sums[BACKFILL_SECONDS] = (counts.backfilling + counts.backfill_wait) * seconds
    sums[SLOW_OP_SECONDS] = context.signals.slow_ops * seconds
    sums[MISPLACED_SECONDS] = context.signals.misplaced_ratio * seconds
    sums[RECOVERED_BYTES] = context.signals.recovery_bytes_per_second * seconds
    return sums
