# SPDX-License-Identifier: LGPL-2.1-or-later
"""Operations of each OSD between its reports, and their history."""
from bisect import bisect_left, insort
from collections import deque
from math import inf
from operator import add, attrgetter
from statistics import median
from typing import (AbstractSet, Callable, Collection, Deque, Dict, Iterable, Iterator, List,
                    Mapping, NamedTuple, Optional, Sequence, Set, Tuple)

from ..cluster.types import (MOST_READ_OSDS, NO_OSD, ClientOps, OsdCounters, OsdMap, OsdPlace,
                             PgCounts, PgReads, PgWrites, Placement, PlainOps, are_sane, pool_of)
from .pools import DECAY_PER_READING
from .series import (CONDENSED_POINTS, DETAILED_POINTS, READ_NS, READS, WRITE_NS, WRITES, History,
                     Amount, flow_of, recent_total)
from .types import DELETION, NO_FLOW, RESTART, SCRUB, SOURCE, TARGET, Flow, OsdSample

#: Maximum time between two reports that form an interval.
LONGEST_SECONDS = 120.0


_ops_of: Callable[[OsdCounters], Tuple[PlainOps, ...]] = attrgetter(
    'read', 'write', 'write_process', 'write_prepare', 'commit', 'store_read')
_NO_COUNTS = PgCounts()


def sample(osd: int, before: OsdCounters, after: OsdCounters) -> Optional[OsdSample]:
    """The operations of an OSD between two reports.

    None if they are unknown: the OSD was restarted, reports invalid values, a clock jumped, or the
    reports are the same.
    """
    seconds = after.time - before.time
    if not 0.0 < seconds <= LONGEST_SECONDS:
        return None
    differences: List[Tuple[int, int]] = []
    for (ns_before, number_before), (ns_after, number_after) in zip(
            _ops_of(before), _ops_of(after)):
        sum_ns, number = ns_after - ns_before, number_after - number_before
        if not are_sane(sum_ns, number):
            return None
        differences.append((sum_ns, number))
    read, write, process, prepare, commit, store_read = differences
    # From arrival to dequeuing, and from dequeuing until they are sent to store and replicas.
    own_write = write[0] - process[0] + prepare[0], write[1]
    return OsdSample(osd, seconds, *[
        NO_FLOW if number <= 0 or sum_ns < 0 else (number / seconds, sum_ns / number / 1e6)
        for sum_ns, number in (read, write, own_write, commit, store_read)])


#: Further columns of an OSD's history.
STORE_COMMITS, COMMIT_NS = range(4, 6)
#: Maximum number of points of all OSDs: with more than 1,000 OSDs, each keeps less than an hour.
ALL_POINTS = 1000 * DETAILED_POINTS
#: Maximum share of reads of erasure-coded pools, which wait for other OSDs. Above it, reads are no
#: evidence against the primary. Pools with the flag split_reads are no exception: the mons of
#: releases after Tentacle set it where the erasure code allows clients to read from the OSDs that
#: have the data, but clients do not by default (src/osdc/SplitOp.cc, validate_flags). A primary
#: counts both kinds of reads alike.
ERASURE_SHARE = 0.1


class OsdFlows(NamedTuple):
    """Operations of one OSD in the last minute."""
    read: Flow = NO_FLOW
    write: Flow = NO_FLOW
    commit: Flow = NO_FLOW


NO_FLOWS = OsdFlows()


class OsdWatch:
    """The reports of OSDs, and the history of their operations."""

    def __init__(self) -> None:
        #: OSD -> its last report.
        self._last: Dict[int, OsdCounters] = {}
        self._histories: Dict[int, History] = {}

    def update(self, now: float, counters: Mapping[int, OsdCounters],
               osds: Iterable[int]) -> List[OsdSample]:
        """The operations of those of `osds` that have a new report, between the one before and this
        one. Adds them to the histories. `counters`: the last reports of all OSDs."""
        samples: List[OsdSample] = []
        for osd in osds:
            after, before = counters[osd], self._last.get(osd)
            operations = sample(osd, before, after) if before is not None else None
            self._last[osd] = after
            if operations is not None:
                samples.append(operations)
                self._remember(now, operations, len(counters))
        return samples

    def forget_others(self, osds: Collection[int]) -> None:
        """Forget all OSDs but these."""
        for osd in [osd for osd in self._last if osd not in osds]:
            del self._last[osd]
            self._histories.pop(osd, None)

    def _remember(self, now: float, reading: OsdSample, osd_count: int) -> None:
        """Add a reading to the history of its OSD. If there are many OSDs (`osd_count`), each has a
        shorter history."""
        history = self._histories.get(reading.osd)
        if history is None:
            # At least a minute of reports, and two hours of condensed points.
            points = max(12, min(DETAILED_POINTS, ALL_POINTS // osd_count))
            history = self._histories[reading.osd] = History(
                6, points, max(12, CONDENSED_POINTS * points // DETAILED_POINTS))
        seconds = reading.seconds
        sums: List[float] = []
        for rate, ms in (reading.read, reading.write, reading.commit):
            number = rate * seconds
            sums += (number, number * ms * 1e6)
        history.add(now, seconds, sums)

    def flows(self, osd: int, now: float, period: float) -> OsdFlows:
        """The operations of an OSD in the last minute; none of one that has not reported twice yet.
        `period`: seconds between two reports."""
        history = self._histories.get(osd)
        total = None if history is None else recent_total(history.detailed, now, period)
        if total is None:
            return NO_FLOWS
        _, seconds, sums = total
        return OsdFlows(flow_of(seconds, sums[READS], sums[READ_NS]),
                        flow_of(seconds, sums[WRITES], sums[WRITE_NS]),
                        flow_of(seconds, sums[STORE_COMMITS], sums[COMMIT_NS]))

    def history(self, osd: int) -> Optional[History]:
        """The history of an OSD; None: it has not reported twice yet."""
        return self._histories.get(osd)


def add_reads(reads: Dict[int, List[int]], clients: Iterable[ClientOps],
              erasure: AbstractSet[int]) -> None:
    """Add the numbers of client reads to `reads`: OSD -> reads of replicated and of erasure-coded
    pools. `erasure`: the latter pools; none: nothing is added."""
    for row in clients if erasure else ():
        sums = reads.setdefault(row.osd, [0, 0])
        _, reads_of_row = row.read
        sums[row.pool in erasure] += reads_of_row


def without_erasure(samples: Sequence[OsdSample], reads: Mapping[int, Sequence[int]],
                    erasure: AbstractSet[int]) -> List[OsdSample]:
    """The samples, without the client reads of OSDs of which more than ERASURE_SHARE went to
    erasure-coded pools, or of which that is not known. `reads`: OSD -> number of reads of
    replicated and of erasure-coded pools; `erasure`: the latter pools; none: nothing changes."""
    if not erasure:
        return list(samples)
    checked = []
    for reading in samples:
        # Unknown reads are no evidence.
        replicated, coded = reads.get(reading.osd, (0, 1))
        conclusive = coded <= ERASURE_SHARE * (replicated + coded)
        checked.append(reading if conclusive else reading._replace(read=NO_FLOW))
    return checked


#: For how long the deletion of PGs may be why an OSD is slow, after the last backfill. A slow disk
#: takes hours for one (osd_delete_sleep_hdd), and the last ones of an expansion are many. A failing
#: drive must not delete for ever without being found: so long is the memory for chronic slowness.
DELETION_SECONDS = 12 * 3600.0


class Deletions:
    """The PGs that OSDs delete, as long as that may be why they are slow."""

    def __init__(self) -> None:
        #: OSD that deletes PGs -> since when it has done so without backfill in the cluster.
        self._since: Dict[int, float] = {}
        #: OSD -> number of PGs, for at most DELETION_SECONDS after the last backfill.
        self.pgs: Mapping[int, int] = {}

    def update(self, now: float, counts: Mapping[int, PgCounts],
               deleting: Mapping[int, int]) -> None:
        """Add a reading. `counts`: OSD -> PGs with it in their acting set; `deleting`: OSD -> PGs
        that it deletes."""
        moving = _moves(counts)
        self._since = {osd: now if moving else self._since.get(osd, now) for osd in deleting}
        self.pgs = {osd: number for osd, number in deleting.items()
                    if now - self._since[osd] <= DELETION_SECONDS}


def _moves(counts: Mapping[int, PgCounts]) -> bool:
    """Whether PGs backfill, or wait for that. `counts`: by OSD."""
    return any(count.backfilling or count.backfill_wait for count in counts.values())


#: For how long reads may be slow because the cache of a restarted OSD is cold. Where it warms by a
#: factor of e in 15 minutes of reads, reads that were 5 times as slow are 1.5 times as slow then.
RESTART_SECONDS = 1800.0
#: Minimum time between two restarts that count: an OSD that crashes again and again is no excuse.
RESTART_REST_SECONDS = 6 * 3600.0
#: By how long the time since which an OSD is slow may precede the time when its restart was seen:
#: it counts as slow from half of a window (slow_osd_seconds) before the median rises.
RESTART_REPORT_SECONDS = 60.0


class Restarts:
    """The OSDs that were restarted lately. Those before the first reading are not known."""

    def __init__(self) -> None:
        self._last: Dict[int, OsdCounters] = {}
        #: OSD -> when its last restart was seen that counts.
        self._at: Dict[int, float] = {}
        #: The part of them that is at most RESTART_SECONDS ago.
        self.at: Mapping[int, float] = {}

    def update(self, now: float, counters: Mapping[int, OsdCounters],
               osds: Collection[int]) -> None:
        """Add a reading. `counters`: of OSDs that are up; `osds`: forget all but these."""
        for osd, after in counters.items():
            before = self._last.get(osd)
            if before is not None and _began_anew(before, after) \
                    and now - self._at.get(osd, -inf) > RESTART_REST_SECONDS:
                self._at[osd] = now
        last = {**self._last, **counters}
        self._last = {osd: last[osd] for osd in osds if osd in last}
        self._at = {osd: at for osd, at in self._at.items()
                    if osd in self._last and now - at <= RESTART_REST_SECONDS}
        self.at = {osd: at for osd, at in self._at.items() if now - at <= RESTART_SECONDS}


def _began_anew(before: OsdCounters, after: OsdCounters) -> bool:
    """Whether an OSD has begun to count anew: the numbers of its operations only grow."""
    return after.read[1] < before.read[1] or after.commit[1] < before.commit[1]


def busy(counts: Mapping[int, PgCounts], counters: Mapping[int, OsdCounters],
         deleting: Collection[int] = (), restarted: Collection[int] = ()) -> Dict[int, str]:
    """OSD -> the kind of its work besides client operations (TARGET, SOURCE, DELETION, SCRUB or
    RESTART; of several, the first), of OSDs with such work. `counts`: OSD -> PGs with it in their
    acting set; `deleting`: OSDs that delete PGs (Deletions.pgs); `restarted`: OSDs that were
    restarted lately (Restarts.at).

    While PGs backfill, an OSD that holds PGs without being in their acting set is a target, or will
    delete PGs that have moved to others.
    """
    moving = _moves(counts)
    reasons: Dict[int, str] = {}
    for osd, counter in counters.items():
        count = counts.get(osd, _NO_COUNTS)
        if moving and counter.pgs > count.total:
            reasons[osd] = TARGET
        elif count.backfilling or count.recovering:
            reasons[osd] = SOURCE
        elif osd in deleting:
            reasons[osd] = DELETION
        elif count.deep_scrubbing:
            reasons[osd] = SCRUB
        elif osd in restarted:
            reasons[osd] = RESTART
    return reasons


# ---- Norm of the reads of each OSD

#: Minimum number of reads for the norm of an OSD.
LEAST_PEER_READS = 500.0


class StoredNorm(NamedTuple):
    """What survives a failover of the norm of an OSD."""
    norm: Amount
    #: What the reads of the OSD would usually take together, and their number.
    usual_ms: int
    reads: int


class OsdNorms:
    """Read latency of each OSD relative to the median OSD, while nothing moves. OSDs that serve
    few reads have the norm of all OSDs of their device class in their host together."""

    def __init__(self) -> None:
        #: OSD -> ns that its reads took, ns that they would take on the median OSD, and their
        #: number. All decay.
        self._sums: Dict[int, List[float]] = {}
        #: Where the OSDs are now; the owner sets it with each reading.
        self.places: Mapping[int, OsdPlace] = {}
        #: The places of the last computation of norms, and OSD -> its norm; None: the sums have
        #: changed since.
        self._norms: Optional[Tuple[Mapping[int, OsdPlace], Dict[int, float]]] = None

    def update(self, rows: Sequence[ClientOps], baselines: Mapping[int, float]) -> None:
        """Add the reads of a reading in which nothing moved. `baselines`: pool -> baseline of reads
        in ms; reads of other pools do not count."""
        read: Dict[int, List[float]] = {}
        for row in rows:
            usual_ms = baselines.get(row.pool)
            sum_ns, reads = row.read
            if usual_ms and reads and are_sane(sum_ns, reads):
                sums = read.setdefault(row.osd, [0.0, 0.0, 0.0])
                sums[0] += sum_ns
                sums[1] += reads * 1e6 * usual_ms
                sums[2] += reads
        if not read:
            return
        # What slows all OSDs down, as the current load, is not a property of one of them.
        common_slowdown = median(actual / usual for actual, usual, _ in read.values()) or 1.0
        for osd, (actual, usual, number) in read.items():
            sums = self._sums.setdefault(osd, [0.0, 0.0, 0.0])
            sums[0] += actual
            sums[1] += usual * common_slowdown
            sums[2] += number
        for sums in self._sums.values():
            sums[:] = [DECAY_PER_READING * value for value in sums]
        self._norms = None

    def forget_others(self, osds: Collection[int]) -> None:
        """Forget all OSDs but these."""
        for osd in [osd for osd in self._sums if osd not in osds]:
            del self._sums[osd]
            self._norms = None

    def stored(self) -> Dict[int, StoredNorm]:
        """OSD -> what to store of it, of OSDs with a norm."""
        return {osd: StoredNorm(norm, round(self._sums[osd][1] / 1e6), round(self._sums[osd][2]))
                for osd, norm in self.norms().items()}

    def load(self, norms: Mapping[int, StoredNorm]) -> None:
        """Take over what an earlier mgr has stored."""
        self._sums.update((osd, [norm * usual_ms * 1e6, usual_ms * 1e6, reads])
                          for osd, (norm, usual_ms, reads) in norms.items())
        self._norms = None

    def norms(self) -> Mapping[int, float]:
        """OSD -> its norm, of OSDs with enough reads, of their own or together with their peers."""
        if self._norms is None or self._norms[0] is not self.places:
            self._norms = self.places, self._compute_norms()
        return self._norms[1]

    def _compute_norms(self) -> Dict[int, float]:
        """OSD -> its norm: its read latency over what its reads would take on the median OSD, by
        the baselines of their pools. An OSD with few reads has the norm of all OSDs of its host and
        device class together; it is missing if these are few as well."""
        group_of = {osd: (self.places[osd].host, self.places[osd].device_class)
                    for osd in self._sums if osd in self.places}
        group_sums: Dict[Tuple[str, str], List[float]] = {}
        for osd, group in group_of.items():
            sums = group_sums.setdefault(group, [0.0, 0.0, 0.0])
            sums[:] = map(add, sums, self._sums[osd])
        # The third sum is the number of reads.
        sums_of = {osd: sums if sums[2] >= LEAST_PEER_READS or osd not in group_of
                   else group_sums[group_of[osd]] for osd, sums in self._sums.items()}
        return {osd: actual / usual for osd, (actual, usual, reads) in sums_of.items()
                if reads >= LEAST_PEER_READS and actual > 0.0}


# ---- Slow replicas, from the latency of writes by PG
#
# An OSD that hangs briefly, or whose network drops packets, does not measure that: by its own
# clock, each operation is fast. Its primaries measure it: nearly all PGs that replicate to it are
# slow with any primary, and other PGs of the same primaries are not.

#: Share of the PGs of a slow OSD that may be fast, and minimum share of the PGs of a primary that
#: do not use the slow OSD: with two OSDs per host and one replica per host, half of them do.
FAST_PGS_SHARE = 0.3
#: Minimum number of writes of a PG, and of PGs of an OSD, that are evidence.
LEAST_WRITES = 3
LEAST_REPLICA_PGS = 4
#: So many slow replicas are named although noise may explain some of them: it hardly picks the same
#: ones twice (faster_of_two). It does so among the many OSDs of a slow host, and further replicas
#: must stand out from it.
FEW_SLOW = 8
#: Maximum share of the replicas that are slow at the same time. Of three hosts, one may be.
SLOW_PART = 1 / 3
#: A replica stands out if what it adds to the base latency of its PGs is so many times what the
#: others differ by. Simulated quiet readings of 1,000 OSDs with four PGs each had one such replica
#: at 10 writes per PG and 0.1 at 60. With a host whose OSDs added three times the latency, 93 % of
#: these stood out at 10 writes and 98 % (all with enough PGs) at 60.
STANDS_OUT = 8.0
#: Factor by which slow replicas must at least exceed what most of the others add, and factor by
#: which one is slower than these if they are too many to name (as slow_parts.PART_RATIO).
UNCOMMON = 3.0
#: Share of the base latency up to which the latency added by a replica is noise.
NOISE_SHARE = 0.2
#: Maximum base latency of the primaries of an OSD, relative to their pool: primaries differ, and
#: what slower ones take is not its latency.
MOST_PRIMARY = 1.25


class PgLatency:
    """Writes of one PG, with the part of the latency that is not explained yet."""
    __slots__ = ('pool', 'group', 'replicas', 'ops', 'ms', 'base')

    def __init__(self, row: PgWrites) -> None:
        self.pool = pool_of(row.pgid)
        #: Pool and primary.
        self.group = (self.pool, row.acting[0])
        self.replicas = row.acting[1:]
        self.ops = row.write.number
        #: Mean latency of its writes, without what replicas add that were peeled off (Unexplained).
        self.ms = row.write.sum_ns / row.write.number / 1e6
        #: Latency in ms of the fast PGs of its group, which no slow replica explains.
        self.base = 0.0


def replica_flows(rows: Sequence[PgWrites], seconds: float,
                  kinds: Mapping[int, object]) -> Dict[int, Flow]:
    """OSD -> the writes that it replicates: operations per second, and the latency in ms that they
    have because of it.

    This latency is that of a typical OSD of its kind, times how slow the primaries of its PGs are
    for their pools (at most MOST_PRIMARY), plus what the replica itself adds. So an OSD with many
    PGs of a slow pool does not look slow.

    `rows`: the writes of the PGs with the most of them on each OSD; `seconds`: for which they were
    counted, above 0; `kinds`: OSD -> its kind.
    """
    pgs = [PgLatency(row) for row in rows if row.write.sane and row.write.number >= LEAST_WRITES
           and row.acting and row.acting[0] != NO_OSD]
    pgs_by_replica: Dict[int, List[PgLatency]] = {}
    for pg in pgs:
        for osd in pg.replicas:
            if osd != NO_OSD:
                pgs_by_replica.setdefault(osd, []).append(pg)
    pgs_by_replica = {osd: replicated for osd, replicated in pgs_by_replica.items()
                      if len(replicated) >= LEAST_REPLICA_PGS}
    added_ms = _peel(pgs, pgs_by_replica, kinds)
    pool_ms = {pool: quantile(bases, 0.5)
               for pool, bases in _by_pool(pgs, lambda pg: pg.base).items()}
    pool_ms_by_kind: Dict[object, List[float]] = {}
    for osd, replicated in pgs_by_replica.items():
        pool_ms_by_kind.setdefault(kinds.get(osd), []).extend(
            [pool_ms[pg.pool] for pg in replicated])
    typical_ms = {kind: quantile(values, 0.5) for kind, values in pool_ms_by_kind.items()}
    flows: Dict[int, Flow] = {}
    for osd, replicated in pgs_by_replica.items():
        slowdowns = [pg.base / pool_ms[pg.pool] for pg in replicated if pool_ms[pg.pool]]
        if slowdowns:
            base_ms = typical_ms[kinds.get(osd)] * min(quantile(slowdowns, 0.5), MOST_PRIMARY)
            flows[osd] = Flow(sum(pg.ops for pg in replicated) / seconds,
                              base_ms + added_ms.get(osd, 0.0))
    return flows


def _by_pool(pgs: Iterable[PgLatency],
             value: Callable[[PgLatency], float]) -> Dict[int, List[float]]:
    values: Dict[int, List[float]] = {}
    for pg in pgs:
        values.setdefault(pg.pool, []).append(value(pg))
    return values


def faster_of_two(before: Mapping[int, Flow], after: Mapping[int, Flow]) -> Dict[int, Flow]:
    """The faster of two consecutive readings, by OSD.

    A reading is a mean over half a minute: one stall of 2 s would look like 30 s of slowness.
    """
    return {osd: min(flow, before[osd], key=lambda reading: reading.ms)
            for osd, flow in after.items() if osd in before}


class Unexplained:
    """PGs with the part of their latency that is not explained yet, and how much of it each replica
    may add. A replica that is peeled off changes few of them."""

    def __init__(self, pgs: Sequence[PgLatency],
                 of_replica: Mapping[int, Sequence[PgLatency]]) -> None:
        #: OSD -> the PGs that it replicates.
        self._of_replica = of_replica
        #: Pool and primary -> its PGs.
        self._groups: Dict[Tuple[int, int], List[PgLatency]] = {}
        for pg in pgs:
            self._groups.setdefault(pg.group, []).append(pg)
        #: Pool -> the latencies of its PGs in ascending order.
        self._sorted = {pool: sorted(values)
                        for pool, values in _by_pool(pgs, lambda pg: pg.ms).items()}
        #: Pool -> its groups with too few PGs for a base latency of their own.
        self._small_groups: Dict[int, List[Tuple[int, int]]] = {}
        for group, of_group in self._groups.items():
            if len(of_group) < LEAST_REPLICA_PGS:
                self._small_groups.setdefault(group[0], []).append(group)
        self._set_bases(self._groups)
        #: Replica -> ms that it adds to nearly all of its PGs; 0.0: nothing but noise.
        self.excess = {osd: self._excess_of(osd) for osd in of_replica}

    def peel(self, osd: int) -> float:
        """Take what a replica adds away from the latency of its PGs, and return that (ms). The
        replica itself has no excess anymore; that of the others is computed anew."""
        affected = self._of_replica[osd]
        ms = quantile([pg.ms - pg.base for pg in affected], 0.5)
        changed_groups = {pg.group for pg in affected}
        for pool in {pg.pool for pg in affected}:
            with_osd = [pg for pg in affected if pg.pool == pool]
            before = self._sorted[pool]
            others = _without(before, with_osd)
            # Latencies of PGs without the OSD, as a replica or as the primary.
            independent = _without(others, self._groups.get((pool, osd), ()))
            # What it adds varies. A PG keeps at least the latency that PGs of its pool have without
            # this OSD. Where there are none, the part of the OSD is not known: latency remains.
            least_ms = _at(independent, FAST_PGS_SHARE) if independent else inf
            for pg in with_osd:
                pg.ms = max(min(pg.ms, least_ms), pg.ms - ms)
                insort(others, pg.ms)
            self._sorted[pool] = others
            # Groups with few PGs have this quantile as their base.
            if _at(others, FAST_PGS_SHARE) != _at(before, FAST_PGS_SHARE):
                changed_groups.update(self._small_groups.get(pool, ()))
        self._set_bases(changed_groups)
        for replica in {replica for group in changed_groups for pg in self._groups[group]
                        for replica in pg.replicas}:
            if replica in self.excess:
                self.excess[replica] = self._excess_of(replica)
        del self.excess[osd]
        return ms

    def common_share(self) -> float:
        """What a replica adds to the latency of its PGs, as a share of their base latency, that is
        not exceeded in either direction by all but SLOW_PART of the replicas: noise, or what many
        have in common. Those that were peeled off count as slower."""
        shares = []
        for osd in self.excess:
            low_ms, base_ms = self._low_and_base(osd)
            shares.append(abs(low_ms) / base_ms if base_ms else 0.0)
        shares += [inf] * (len(self._of_replica) - len(shares))
        return quantile(shares, 1 - SLOW_PART)

    def excess_share(self, osd: int) -> float:
        """Its excess as a share of the base latency of its PGs."""
        return self.excess[osd] / (self._low_and_base(osd)[1] or inf)

    def _set_bases(self, groups: Iterable[Tuple[int, int]]) -> None:
        """Set the base latency of the PGs of these groups: that of the group (pool and primary), or
        of the pool if the group has too few PGs."""
        of_pool = {pool: _at(values, FAST_PGS_SHARE) for pool, values in self._sorted.items()}
        for group in groups:
            of_group = self._groups[group]
            base = quantile([pg.ms for pg in of_group], FAST_PGS_SHARE) \
                if len(of_group) >= LEAST_REPLICA_PGS else of_pool[group[0]]
            for pg in of_group:
                pg.base = base

    def _excess_of(self, osd: int) -> float:
        """Milliseconds that a replica adds to nearly all of its PGs; 0.0 if that is noise."""
        low_ms, base_ms = self._low_and_base(osd)
        return low_ms if low_ms > NOISE_SHARE * base_ms else 0.0

    def _low_and_base(self, osd: int) -> Tuple[float, float]:
        """By how many ms nearly all PGs of a replica are above the base latency of their groups,
        and the median of that."""
        of_osd = self._of_replica[osd]
        return (quantile([pg.ms - pg.base for pg in of_osd], FAST_PGS_SHARE),
                quantile([pg.base for pg in of_osd], 0.5))


def _without(latencies: Sequence[float], pgs: Iterable[PgLatency]) -> List[float]:
    """Ascending latencies, without those of these PGs, which are among them."""
    remaining = list(latencies)
    for pg in pgs:
        del remaining[bisect_left(remaining, pg.ms)]
    return remaining


def _peel(pgs: Sequence[PgLatency], of_replica: Mapping[int, Sequence[PgLatency]],
          kinds: Mapping[int, object]) -> Dict[int, float]:
    """OSD -> the latency in ms that it adds as a replica, of slow ones. The one that adds most is
    taken first, and those after it are judged without what it adds.

    More than FEW_SLOW only as far as they stand out (STANDS_OUT), as the OSDs of a host with a slow
    network. If more than SLOW_PART are about as slow, the cause is not the replicas: only those
    that are far slower than the rest of their kind (`kinds`).
    """
    unexplained = Unexplained(pgs, of_replica)
    added: Dict[int, float] = {}
    common_share = 0.0
    while unexplained.excess:
        worst = max(unexplained.excess, key=unexplained.excess.__getitem__)
        if unexplained.excess[worst] <= 0.0:
            break
        if len(added) == FEW_SLOW:
            common_share = unexplained.common_share()
            if unexplained.excess_share(worst) < UNCOMMON * common_share:
                crowd_ms: Dict[object, float] = {}
                for osd, ms in unexplained.excess.items():
                    crowd_ms[kinds.get(osd)] = max(crowd_ms.get(kinds.get(osd), 0.0), ms)
                return {osd: ms for osd, ms in added.items()
                        if ms > UNCOMMON * crowd_ms.get(kinds.get(osd), 0.0)}
        if len(added) >= FEW_SLOW \
                and unexplained.excess_share(worst) <= STANDS_OUT * common_share:
            break
        added[worst] = unexplained.peel(worst)
    return added


def quantile(values: Sequence[float], share: float) -> float:
    return _at(sorted(values), share)


def _at(ordered: Sequence[float], share: float) -> float:
    """A quantile of ascending values."""
    return ordered[int(share * (len(ordered) - 1))]


# ---- OSDs that share PGs with a slow replica: these may wait for it, others may not

#: Number of PGs that are mapped per turn; one takes 20 us.
PGS_PER_TURN = 1000


class PgPartners:
    """Maps PGs, a part of them per turn, as long as there are slow replicas."""

    def __init__(self) -> None:
        #: OSD -> the OSDs with which it shares a PG, from the last complete pass.
        self.by_osd: Mapping[int, AbstractSet[int]] = {}
        self._epoch = 0
        #: PGs that this pass has still to map, and the partners that it has found so far.
        self._unmapped: Iterator[str] = iter(())
        self._partners: Dict[int, Set[int]] = {}

    def update(self, replicas: AbstractSet[int], osdmap: OsdMap,
               placement: Callable[[str], Optional[Placement]]) -> None:
        """Note with which OSDs the slow ones share PGs, by the next PGS_PER_TURN PGs. `replicas`:
        the replicas that are slow now; without any, nothing is known or mapped. A pass begins with
        a new OSDMap or slow replica, and ends before the next one begins."""
        up_to_date = self._epoch == osdmap.epoch and replicas <= self.by_osd.keys()
        if replicas and not self._partners and not up_to_date:  # begin a pass
            self._epoch = osdmap.epoch
            self._partners = {osd: set() for osd in replicas}
            self._unmapped = ('%d.%x' % (pool.id, seed) for pool in osdmap.pools.values()
                              for seed in range(pool.pg_num))
        for _ in range(PGS_PER_TURN if self._partners else 0):
            pgid = next(self._unmapped, None)
            if pgid is None:  # end of the pass
                self.by_osd, self._partners = self._partners, {}
                break
            placed = placement(pgid)
            if placed is not None:
                for osd in self._partners.keys() & placed.acting:
                    self._partners[osd].update(placed.acting)
        if not replicas:
            self.by_osd, self._partners = {}, {}


# ---- Client reads of slow OSDs that depend on the primary of a PG
#
# Clients read from the primary of a PG, with two exceptions: from replicated pools with balanced or
# localized reads, and from erasure-coded pools, of which each read needs data of several OSDs (and
# later releases read from these OSDs directly). Such reads stay where they are if the primary
# affinity of an OSD is lowered.

#: Readings that are added up.
SUMMED_READINGS = 6
#: Readings after which the reads of an OSD are known, and turns of asking for them after which they
#: are considered known in any case.
LEAST_READINGS = 3
MOST_TURNS = 12
#: An OSD may be slow for weeks, and the query costs all OSDs: after MOST_TURNS it is read for as
#: long again once in so many turns (half an hour).
REPEAT_TURNS = 360


class OsdReads(NamedTuple):
    """Client reads that one OSD has served."""
    #: Of replicated pools, as the primary.
    led: int = 0
    #: Of replicated pools, as a replica.
    replica: int = 0
    #: Of erasure-coded pools.
    erasure: int = 0


class SlowOsdReads:
    """The reads of slow OSDs in the last readings."""

    def __init__(self) -> None:
        #: Slow OSD -> its last readings, and the number of turns for which it has been slow,
        #: without those in which it waited to be among the OSDs to read.
        self._readings: Dict[int, Deque[OsdReads]] = {}
        self._turns: Dict[int, int] = {}
        #: The slow OSDs of which the next readings are to contain the reads by PG: for MOST_TURNS
        #: turns, and again every REPEAT_TURNS.
        self.osds_to_read: AbstractSet[int] = frozenset()

    def update(self, slow: Iterable[int], readings: Optional[Mapping[int, Sequence[PgReads]]],
               erasure: AbstractSet[int]) -> None:
        """Note how clients read from slow OSDs in one turn. `slow`: all OSDs that are slow now;
        `readings`: OSD -> its reads by PG; None: nothing was read; `erasure`: the erasure-coded
        pools."""
        before = self._turns
        waiting = {osd for osd in before if self._is_due(osd)} - self.osds_to_read
        self._turns = {osd: before.get(osd, 0) + (osd not in waiting) for osd in slow}
        self._choose()
        self._readings = {osd: self._readings.get(osd, deque(maxlen=SUMMED_READINGS))
                          for osd in self._turns}
        for osd, rows in (readings or {}).items():
            if osd in self._readings:
                self._readings[osd].append(_reads_of(osd, rows, erasure))

    def _is_due(self, osd: int) -> bool:
        return self._turns[osd] % REPEAT_TURNS < MOST_TURNS

    def _choose(self) -> None:
        """Choose the OSDs to read. Each change of them costs a reading: if they are too many, some
        are read until all of these are done, and then the next ones; first those that were never
        read."""
        due = [osd for osd in self._turns if self._is_due(osd)]
        if len(due) <= MOST_READ_OSDS:
            self.osds_to_read = frozenset(due)
        elif self.osds_to_read.isdisjoint(due):
            due.sort(key=lambda osd: (self._turns[osd], osd))
            self.osds_to_read = frozenset(due[:MOST_READ_OSDS])

    def sums_by_osd(self) -> Dict[int, OsdReads]:
        """Slow OSD -> the sums of its last SUMMED_READINGS readings, once there are LEAST_READINGS
        of them, or after MOST_TURNS turns in which it was to be read: its reads may be few, or not
        readable."""
        return {osd: OsdReads(*map(sum, zip(*self._readings[osd] or [OsdReads()])))
                for osd, turns in self._turns.items()
                if len(self._readings[osd]) >= LEAST_READINGS or turns >= MOST_TURNS}


def _reads_of(osd: int, rows: Sequence[PgReads], erasure: AbstractSet[int]) -> OsdReads:
    """The reads of one reading that an OSD served. `erasure`: the erasure-coded pools."""
    coded = sum(row.reads for row in rows if pool_of(row.pgid) in erasure)
    led = sum(row.reads for row in rows
              if pool_of(row.pgid) not in erasure and row.acting[:1] == (osd,))
    return OsdReads(led, sum(row.reads for row in rows) - led - coded, coded)
