# SPDX-License-Identifier: LGPL-2.1-or-later
"""Frozen data types for the state of a cluster.

The pure packages (upmap, rebalance, watch) use only these, so the same code runs in ceph-mgr,
offline on JSON dumps and in a simulator.
"""
from dataclasses import dataclass, field
from functools import cached_property
from typing import (AbstractSet, Any, ClassVar, Dict, FrozenSet, Mapping, NamedTuple, Optional,
                    Tuple, Union)

#: A hole in an up or acting set (CRUSH_ITEM_NONE in Ceph's crush.h).
NO_OSD = 0x7FFFFFFF
#: The flag that keeps OSDs from being marked out.
NOOUT = 'noout'
#: The option for the scheduler of an OSD, and its values.
QUEUE, WPQ, MCLOCK = 'osd_op_queue', 'wpq', 'mclock_scheduler'
#: Unless it is true, OSDs with mclock reset the limits of recovery.
MCLOCK_OVERRIDE = 'osd_mclock_override_recovery_settings'
#: Scrubs that an OSD takes part in at the same time; with 0 it starts none.
MAX_SCRUBS = 'osd_max_scrubs'

#: A document of JSON to be read: only where it enters the module.
Json = Dict[str, Any]
#: A document of JSON to be stored or shown: its values are not read again.
Document = Dict[str, object]
#: A command for the mons or for OSDs: "prefix" and its arguments.
Command = Mapping[str, Any]
#: Key of the input data of a command, which is not an argument.
INPUT = 'input'

#: One pg_upmap_items pair: (from, to).
Pair = Tuple[int, int]
Items = Tuple[Pair, ...]
#: CEPH_STR_HASH_RJENKINS
RJENKINS = 2
#: RADOS namespace of all objects that probes write.
PROBE_NAMESPACE = 'perfguard-probe'
#: An ordered set of OSD ids; in an erasure-coded pool, the position is the shard.
OsdSet = Tuple[int, ...]


@dataclass(frozen=True)
class Reply:
    """The reply to a command."""
    #: 0 or a negative errno; None: no answer in time.
    retval: Optional[int]
    out: str = ''
    error: str = ''


@dataclass(frozen=True)
class UpmapEntry:
    """The upmap entries of one PG in the OSDMap.

    ``vector`` is the pg_upmap entry (None: no entry), ``items`` the pg_upmap_items entry
    (empty: no entry). ``UpmapEntry()`` is a PG that CRUSH alone places.
    """
    json_row: ClassVar[bool] = True
    items: Items = ()
    vector: Optional[OsdSet] = None

    def __bool__(self) -> bool:
        return bool(self.items) or self.vector is not None

    @property
    def targets(self) -> OsdSet:
        """OSDs that it may place the PG on."""
        return (*(target for _, target in self.items), *(self.vector or ()))


#: One for all PGs that CRUSH alone places, which are nearly all.
NO_ENTRY = UpmapEntry()


@dataclass(frozen=True)
class Osd:
    id: int
    up: bool
    #: Reweight, 0.0 to 1.0; 0 is "out". Not the CRUSH weight.
    reweight: float
    exists: bool = True
    destroyed: bool = False
    #: "nearfull", "backfillfull", "full" or ''.
    fullness: str = ''
    #: 0.0 to 1.0; with a lower value, it is chosen as a primary less often.
    primary_affinity: float = 1.0
    #: Last interval (epoch) in which it has told the mons that it is about to serve PGs as their
    #: primary; 0: none since it was created. Does not affect placement, so it is not compared.
    up_thru: int = field(default=0, compare=False)
    #: Differs if an OSD is recreated with the same id.
    uuid: str = field(default='', compare=False)

    @property
    def has_led(self) -> bool:
        return self.up_thru > 0

    @property
    def is_up_and_in(self) -> bool:
        return self.up and self.reweight > 0.0

    @property
    def refuses_backfill(self) -> bool:
        return self.fullness in ('backfillfull', 'full')

    @property
    def is_down_but_in(self) -> bool:
        """Its data is about to move to other OSDs. A destroyed OSD is down as well."""
        return self.exists and not self.up and self.reweight > 0.0


@dataclass(frozen=True)
class Pool:
    id: int
    name: str
    erasure: bool
    size: int
    min_size: int
    crush_rule: int
    pg_num: int
    #: Target of pg_num; differs while PGs split or merge.
    pg_num_target: int
    #: Below pg_num while PGs with higher ids are about to merge.
    pg_num_pending: int
    autoscale_mode: str = 'off'
    #: Data shards: k of an erasure code, 1 for replicated pools.
    data_shards: int = 1
    #: For example "full_quota" and "ec_overwrites".
    flags: FrozenSet[str] = frozenset()
    #: Quotas; 0: none.
    quota_bytes: int = 0
    quota_objects: int = 0
    #: Hash of object names; 2 is rjenkins, which only very old pools do not use.
    object_hash: int = RJENKINS
    #: Number of PGs that CRUSH places separately, and its target; 0: equal to pg_num.
    pgp_num: int = 0
    pgp_num_target: int = 0
    #: Limits of pg_num that the pool's options set; 0: none.
    pg_num_min: int = 0
    pg_num_max: int = 0
    #: Clients access it through a cache tier; it is such a tier of another pool.
    cached: bool = False
    caches: bool = False
    #: Positions of a PG form local groups, as of an LRC.
    local_groups: bool = False

    def is_complete(self, osds: OsdSet) -> bool:
        """Whether a set has an OSD for each copy or shard of a PG."""
        return NO_OSD not in osds and len(osds) == self.size


class PoolRule(NamedTuple):
    """A CRUSH rule for a pool, by their ids."""
    pool: int
    rule: int


class PoolPgs(NamedTuple):
    """Numbers of PGs for a pool, by its id."""
    pool: int
    pg_num: int
    pgp_num: int


#: What a pool gets.
PoolSetting = Union[PoolRule, PoolPgs]


@dataclass(frozen=True)
class OsdMap:
    """The parts of an OSDMap that placement depends on. Mappings are keyed by PG id ("1.2f")."""
    epoch: int
    flags: FrozenSet[str]
    pools: Mapping[int, Pool]
    osds: Mapping[int, Osd]
    upmap_items: Mapping[str, Items]
    upmap_vectors: Mapping[str, OsdSet]
    #: Acting sets of the PGs that are remapped (up differs from acting).
    pg_temp: Mapping[str, OsdSet]
    fsid: str = ''
    #: Oldest client release that may connect; upmaps need luminous.
    min_compat_client: str = ''
    #: Oldest release that OSDs may run; no mon is older.
    require_osd_release: str = ''
    #: Used share from which an OSD is nearfull.
    nearfull_ratio: float = 0.85
    #: Used share from which it takes no more writes.
    full_ratio: float = 0.95
    #: Version of its CRUSH map.
    crush_version: int = 0
    #: PG -> the OSD that leads it (pg_upmap_primary, from Reef on).
    upmap_primaries: Mapping[str, int] = field(default_factory=dict)
    #: OSDs and buckets of CRUSH for which noout is set ("ceph osd set-group noout").
    noout: FrozenSet[str] = frozenset()
    #: Device classes for which it is set by the same command.
    noout_classes: FrozenSet[str] = frozenset()

    @cached_property
    def out(self) -> FrozenSet[int]:
        return out_osds(self.osds)

    @cached_property
    def absent(self) -> FrozenSet[int]:
        """OSDs that are down and keep their place in CRUSH, and their data. Ceph leaves them out of
        up and acting sets. Nothing returns on a destroyed OSD."""
        return frozenset(osd.id for osd in self.osds.values()
                         if osd.is_down_but_in and not osd.destroyed)

    @cached_property
    def lost(self) -> bool:
        """Whether an OSD is down and not out yet, or destroyed."""
        return any(osd.is_down_but_in for osd in self.osds.values())

    @property
    def pg_count(self) -> int:
        """PGs of all pools."""
        return sum(pool.pg_num for pool in self.pools.values())

    def entry(self, pgid: str) -> UpmapEntry:
        """The upmap entries of a PG; NO_ENTRY if it has none."""
        items, vector = self.upmap_items.get(pgid), self.upmap_vectors.get(pgid)
        return NO_ENTRY if items is vector is None else UpmapEntry(items or (), vector)


def out_osds(osds: Mapping[int, Osd]) -> FrozenSet[int]:
    """IDs of the OSDs that are out: reweight 0 voids every upmap onto them."""
    return frozenset(osd.id for osd in osds.values() if osd.reweight == 0)


def pool_of(pgid: str) -> int:
    """Pool id of a PG id: "12.1f" -> 12."""
    return int(pgid[:pgid.index('.')])


def seed_of(pgid: str) -> int:
    """Placement seed of a PG id: "12.1f" -> 31."""
    return int(pgid[pgid.index('.') + 1:], 16)


def stable_mod(x: int, b: int, bmask: int) -> int:
    """x modulo b, such that an increment of b splits a single value; `bmask`: see `mask_of`."""
    return x & bmask if (x & bmask) < b else x & (bmask >> 1)


def mask_of(pg_num: int) -> int:
    """The smallest 2^n - 1 that is at least pg_num - 1."""
    return (1 << (pg_num - 1).bit_length()) - 1


def merging_seeds(pg_num: int, to: int) -> FrozenSet[int]:
    """Seeds of the PGs that are merged when a pool gets `to` PGs instead of `pg_num`, and of those
    that they are merged into (pg_t::get_parent in osd_types.cc: without the highest bit). Empty if
    it gets no fewer."""
    merged = range(max(1, to), pg_num)
    return frozenset(merged) | {seed ^ (1 << (seed.bit_length() - 1)) for seed in merged}


@dataclass(frozen=True)
class PgCounts:
    """Numbers of PGs by condition; a PG counts in each condition of its state."""
    total: int = 0
    active_clean: int = 0
    inactive: int = 0
    #: Peering, activating, creating or not reported yet: between two intervals.
    in_transition: int = 0
    degraded: int = 0
    remapped: int = 0
    backfilling: int = 0
    backfill_wait: int = 0
    backfill_toofull: int = 0
    laggy: int = 0
    wait: int = 0
    recovering: int = 0
    deep_scrubbing: int = 0
    #: PGs from which deleted snapshots are being removed.
    snaptrim: int = 0
    #: PGs in transition that no OSD has reported to this mgr.
    unreported: int = 0
    #: Backfilling and undersized, but not degraded: they have no objects, or all have arrived.
    undersized_empty: int = 0
    #: Of these, those that are inactive.
    inactive_empty: int = 0
    #: Degraded, and waiting for a backfill reservation.
    degraded_waiting: int = 0
    #: Degraded, and waiting for room, as targets are too full for backfill.
    degraded_toofull: int = 0
    #: Degraded, and backfilling or recovering.
    degraded_recovering: int = 0
    #: Waiting for a reservation to recover, with the log of the PG.
    recovery_wait: int = 0
    #: Remapped and clean: CRUSH finds too few OSDs for them, so they have nowhere to move.
    remapped_clean: int = 0

    @property
    def only_empty_unclean(self) -> bool:
        """Whether all PGs that are not clean are undersized ones without objects."""
        return 0 < self.undersized_empty == self.total - self.active_clean

    @property
    def stuck(self) -> int:
        """Inactive, but not between two intervals; also those whose primary is down (stale)."""
        return self.inactive - self.in_transition

    @property
    def rebalancing(self) -> bool:
        """Whether PGs move to other OSDs, or are to."""
        return self.remapped - self.remapped_clean + self.backfilling + self.backfill_wait > 0


@dataclass(frozen=True)
class Signals:
    """The cheap signals of one turn of the loop."""
    counts: PgCounts
    #: PGs by pool id, of pools whose PGs are reported.
    pool_counts: Mapping[int, PgCounts] = field(default_factory=dict)
    #: Misplaced object copies / all object copies, 0 to 1, and their number.
    misplaced_ratio: float = 0.0
    misplaced_objects: int = 0
    #: Number of slow operations, the sum of `slow_daemons` if these are known.
    slow_ops: int = 0
    #: Daemon ("osd.3") -> number of slow operations, if any.
    slow_daemons: Mapping[str, int] = field(default_factory=dict)
    #: Health check code -> summary, muted checks left out.
    health: Mapping[str, str] = field(default_factory=dict)
    #: Codes of muted health checks.
    muted: FrozenSet[str] = frozenset()
    health_status: str = 'HEALTH_OK'
    recovery_bytes_per_second: float = 0.0
    #: Objects that were recovered or backfilled within the last reports.
    recovered_objects: int = 0
    #: Logical bytes by pool id: bytes of one copy (of all k data shards together).
    pool_bytes: Mapping[int, int] = field(default_factory=dict)
    #: Space for these on the OSDs, by pool id: allocation units and omap take more, compression
    #: less. Clones count as if they shared nothing. Missing: not known.
    pool_space: Mapping[int, int] = field(default_factory=dict)

    def space_of(self, pool: int) -> int:
        """Bytes of space for one copy (of all k data shards together)."""
        return self.pool_space.get(pool, 0) or self.pool_bytes.get(pool, 0)

    @property
    def spaces(self) -> Dict[int, int]:
        """`space_of` each pool."""
        return {pool: self.space_of(pool) for pool in self.pool_space.keys() | self.pool_bytes}


#: Maximum valid duration of an operation: one week.
LONGEST_OP_SECONDS = 7 * 86400
LONGEST_OP_NS = LONGEST_OP_SECONDS * 10 ** 9
#: Maximum valid sum of the operations of a reading, such as 27,000 that waited for an hour each. An
#: OSD whose clock is set back adds 136 years for each operation in flight: among 7,100 others, such
#: an operation has a mean of less than a week.
LONGEST_SUM_NS = 10 ** 8 * 10 ** 9


#: Time after which the answer of an OSD is no longer expected, unless the caller says otherwise.
OSD_ANSWER_SECONDS = 60.0


class Ops(NamedTuple):
    """Number of operations, and the sum of their latencies."""
    sum_ns: int = 0
    number: int = 0

    @property
    def sane(self) -> bool:
        return are_sane(self.sum_ns, self.number)


def are_sane(sum_ns: int, number: int) -> bool:
    """Whether so many operations may take so long."""
    return 0 <= sum_ns <= LONGEST_SUM_NS and sum_ns <= number * LONGEST_OP_NS


#: Sum in ns and number, as in Ops. Python's garbage collector examines all named tuples, but no
#: plain ones of numbers, and each reading has about ten for each of up to 10,000 OSDs.
PlainOps = Tuple[int, int]
NO_OPS: PlainOps = (0, 0)


class OsdCounters(NamedTuple):
    """Counters of one OSD since its start, from its last report to the mgr."""
    #: When the report arrived, by the clock of the mgr; OSDs report every mgr_stats_period (5 s).
    time: float
    #: Client operations by arrival (op_r_latency, op_w_latency), and writes by dequeuing
    #: (op_w_process_latency) and until they go to store and replicas (op_w_prepare_latency).
    read: PlainOps
    write: PlainOps
    write_process: PlainOps
    write_prepare: PlainOps
    #: Operations of the store; zero if it does not measure them.
    commit: PlainOps = NO_OPS
    store_read: PlainOps = NO_OPS
    #: Number of PGs of which the OSD stores data, and of those that it is deleting.
    pgs: int = 0
    deleting: int = 0


class KvBytes(NamedTuple):
    """Bytes that the RocksDB of one OSD has written since its start."""
    #: By flushes of memtables and by compactions, and to its write-ahead log.
    sst: int
    wal: int


class ClientOps(NamedTuple):
    """Client operations on PGs of one pool with one primary since the last reading."""
    pool: int
    osd: int
    read: PlainOps
    write: PlainOps
    read_bytes: int = 0
    write_bytes: int = 0

    @property
    def sane(self) -> bool:
        return are_sane(*self.read) and are_sane(*self.write)


class ClientLoad(NamedTuple):
    """Operations of one client on one pool and OSD since the last reading."""
    #: For example "client.4123", and "10.0.0.5:0/1234".
    client: str
    address: str
    pool: int
    osd: int
    ops: int


class ObjectLoad(NamedTuple):
    """Operations of clients on one object since the last reading."""
    name: str
    pool: int
    #: The primary of its PG.
    osd: int
    ops: int


class PgWrites(NamedTuple):
    """Client writes to one PG since the last reading."""
    pgid: str
    #: The primary first.
    acting: OsdSet
    write: Ops


#: Maximum number of OSDs of which client reads are read by PG at the same time.
MOST_READ_OSDS = 32


class PgReads(NamedTuple):
    """Client reads of one PG that one OSD has served since the last reading."""
    pgid: str
    #: The primary first.
    acting: OsdSet
    reads: int


@dataclass(frozen=True)
class Balancing:
    """Configuration of the balancer."""
    #: Allowed difference of the PGs of an OSD from the ideal (upmap_max_deviation).
    deviation: float = 1.0
    #: Its mode balances PGs by upmaps.
    upmap: bool = True
    #: Pools that it balances, by id (pool_ids); empty: all.
    pools: FrozenSet[int] = frozenset()
    #: Its mode balances PGs by weight-sets (crush-compat). The other modes move none.
    weight_sets: bool = False

    def covers(self, pool_id: int) -> bool:
        return self.upmap and (not self.pools or pool_id in self.pools)


class OptionChange(NamedTuple):
    """One change of the configuration database."""
    #: Seconds since the epoch, by the clock of the mons.
    at: float
    #: "global", "osd", "osd.3", ..., with its mask.
    who: str
    name: str
    #: '': not set.
    before: str
    after: str


class ConfigEntry(NamedTuple):
    """One value of the configuration database."""
    #: "global", "osd", "osd.3", ...
    section: str
    #: For example "class:hdd"; '' for none.
    mask: str
    name: str
    value: str

    @property
    def who(self) -> str:
        """Argument of `config set`."""
        return self.section + ('/' + self.mask if self.mask else '')


class Question(NamedTuple):
    """A question to an OSD about either an option or a PG."""
    osd: int
    #: Ask for the value in force of this option.
    option: str = ''
    #: Ask for the state of this PG, whose primary is the OSD.
    pgid: str = ''


class Space(NamedTuple):
    """Space of the store of one OSD."""
    total_bytes: int
    used_bytes: int
    #: Number of PGs that it stores; None: not known.
    pgs: Optional[int] = None


class HeldPgs(NamedTuple):
    """The PGs that OSDs hold, as they have last reported to the mgr (num_pgs of osd_stats)."""
    #: When the reports were read.
    time: float
    #: OSD -> number of PGs, those that move to it and those that it is deleting included. Without
    #: OSDs that have not reported it.
    by_osd: Mapping[int, int]


class PoolSpace(NamedTuple):
    """Data of a pool, and free space for data (before replication)."""
    free_bytes: int
    stored_bytes: int
    objects: int


class OsdPlace(NamedTuple):
    """Location of an OSD in CRUSH, its drive model and its store, which determine its peers."""
    osd: int
    host: str
    root: str
    device_class: str
    #: Drive model; '' if unknown.
    model: str = ''
    #: Rack, which does not determine peers; '' if it is in none.
    rack: str = ''
    #: Kind of store, with the devices of its DB and WAL; '' if unknown.
    store: str = ''
    #: Names of its devices in its host, which do not determine peers.
    devices: Tuple[str, ...] = ()

    @property
    def kind(self) -> Tuple[str, str]:
        return self.root, self.device_class


class Pressure(NamedTuple):
    """How busy the threads of an OSD are."""
    #: Share of the time for which its busiest messenger thread works, 0 to 1.
    messenger_share: float
    #: Mean time from the arrival of client operations until they begin, in ms, which counts again
    #: once they have waited for a read lease; None: there were none.
    queue_ms: Optional[float] = None


class UnreadablePg(NamedTuple):
    """A PG with client operations that wait because its read lease has expired."""
    pgid: str
    #: Age of the oldest operation in seconds.
    age: float
    ops: int


class LatencyCounts(NamedTuple):
    """Client operations of one OSD by latency in an interval."""
    osd: int
    seconds: float
    #: Upper bounds in ns of all buckets except the last.
    bounds: Tuple[int, ...]
    read: Tuple[int, ...]
    write: Tuple[int, ...]
    #: Seconds from the end of the interval to the reading.
    age: float = 0.0


@dataclass(frozen=True)
class Readings:
    """Input of the watch. None: not read this time; the last reading remains valid."""
    #: Seconds that `clients` cover.
    seconds: float
    counters: Mapping[int, OsdCounters]
    clients: Tuple[ClientOps, ...]
    places: Mapping[int, OsdPlace]
    #: Seconds that `pg_writes` cover, and the PGs with the most writes of each OSD.
    pg_seconds: float = 0.0
    pg_writes: Optional[Tuple[PgWrites, ...]] = None
    #: By OSD, of those that `read_by_pg` has named.
    pg_reads: Optional[Mapping[int, Tuple[PgReads, ...]]] = None
    #: By client and by object, while a slow OSD or pool is reported, or explained.
    client_loads: Tuple[ClientLoad, ...] = ()
    object_loads: Tuple[ObjectLoad, ...] = ()
    #: By OSD, in the same cases; without OSDs whose store does not count it.
    kv_bytes: Mapping[int, KvBytes] = field(default_factory=dict)
    #: OSD -> PGs with it in their acting set. {}: all PGs are active+clean, and none is
    #: deep-scrubbed, trimmed or laggy. None: there is no newer reading, since ceph-mgr iterates
    #: over all PGs for one.
    osd_counts: Optional[Mapping[int, PgCounts]] = None
    #: OSD -> heartbeat ping time in ms, median of some of its peers.
    ping_ms: Optional[Mapping[int, float]] = None
    #: OSD -> peer -> heartbeat ping time in ms that the peer has measured, with `ping_ms`.
    peer_ping_ms: Mapping[int, Mapping[int, float]] = field(default_factory=dict)
    #: OSD that was asked while PGs are laggy -> how busy it was since it was asked before.
    pressures: Mapping[int, Pressure] = field(default_factory=dict)
    #: OSD that was asked -> PGs that are not readable, with it as the primary.
    unreadable: Mapping[int, Tuple[UnreadablePg, ...]] = field(default_factory=dict)
    latencies: Tuple[LatencyCounts, ...] = ()
    #: OSDs whose sample of latencies is in progress.
    sampling: AbstractSet[int] = frozenset()
    #: The operations of each OSD that has been asked, since it was asked before: without the
    #: pauses between samples, but for longer.
    counted: Tuple[LatencyCounts, ...] = ()
    #: OSD that is up and may hang -> seconds since its last report, if the report is late.
    silent: Mapping[int, float] = field(default_factory=dict)
    #: Why it is not known which OSDs hang, although reports are late; '': it is known.
    unreported: str = ''
    #: OSDMap epochs that are not trimmed yet.
    untrimmed_epochs: Optional[int] = None
    #: OSD -> its release and its kernel; '' if unknown.
    software: Mapping[int, Tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Placement:
    """Where CRUSH and upmaps place a PG (up), and which OSDs serve it now (acting)."""
    up: OsdSet
    acting: OsdSet
    #: Of the acting set, -1 without any; None: its first OSD. Affinities and pg_upmap_primary may
    #: choose another one, and an erasure-coded PG keeps the order of its shards.
    acting_primary: Optional[int] = None

    @property
    def primary(self) -> int:
        if self.acting_primary is not None:
            return self.acting_primary
        return next((osd for osd in self.acting if osd != NO_OSD), -1)


class PgSets(NamedTuple):
    """A row of a PG dump. A tuple, because there may be many."""
    pgid: str
    up: OsdSet
    acting: OsdSet
    #: For example "active+clean".
    state: str = ''


def shard_bytes(pool: Pool, pool_bytes: int) -> int:
    """Mean bytes of one PG of the pool on one OSD.

    Computed from the totals of the pool, because statistics by PG are too costly to read. PGs of a
    pool with many objects differ little if pg_num is a power of two; see pg_shard_bytes.
    """
    return pool_bytes // max(1, pool.pg_num) // max(1, pool.data_shards)


def pg_shard_bytes(pool: Pool, pool_bytes: int, pgid: str) -> int:
    """Bytes of this PG on one OSD, if all hashes of object names are equally frequent.

    If pg_num is between two powers of two, the PGs that are not split yet have twice as many hashes
    as the others (ceph_stable_mod in include/rados.h).
    """
    hashes = 1 << (max(1, pool.pg_num) - 1).bit_length()
    share = 1
    if pool.pg_num < hashes:
        seed, half = seed_of(pgid), hashes // 2
        share = 2 if seed < half and seed + half >= pool.pg_num else 1
    return share * pool_bytes // hashes // max(1, pool.data_shards)
