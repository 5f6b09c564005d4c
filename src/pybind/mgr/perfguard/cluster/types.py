# SPDX-License-Identifier: LGPL-2.1-or-later
"""What perfguard knows of a cluster, as plain frozen data.

The pure packages (upmap, rebalance, watch) take these and nothing else, so the same code runs in
ceph-mgr, offline on JSON dumps and in a simulator.
"""
from dataclasses import dataclass, field
from typing import AbstractSet, FrozenSet, Mapping, NamedTuple, Optional, Tuple

#: A hole in an up or acting set (CRUSH_ITEM_NONE in Ceph's crush.h).
NO_OSD = 0x7FFFFFFF

#: Where a command carries bytes that are not an argument but its input.
INPUT = 'input'

#: One pg_upmap_items pair: (from, to).
Pair = Tuple[int, int]
Items = Tuple[Pair, ...]
#: CEPH_STR_HASH_RJENKINS
RJENKINS = 2
#: An ordered set of OSD ids; in an erasure coded pool the position is the shard.
OsdSet = Tuple[int, ...]


@dataclass(frozen=True)
class UpmapEntry:
    """All that the OSDMap says about the placement of one PG, on top of CRUSH.

    ``vector`` is the pg_upmap entry (None: no entry), ``items`` the pg_upmap_items entry
    (empty: no entry). ``UpmapEntry()`` is a PG that CRUSH alone places.
    """
    items: Items = ()
    vector: Optional[OsdSet] = None

    def __bool__(self) -> bool:
        return bool(self.items) or self.vector is not None


@dataclass(frozen=True)
class Osd:
    id: int
    up: bool
    #: Reweight, 0.0 to 1.0; 0 is "out". Not the CRUSH weight.
    reweight: float
    exists: bool = True
    destroyed: bool = False
    #: "nearfull", "backfillfull", "full" or nothing.
    fullness: str = ''
    #: 0.0 to 1.0; the less, the less it is chosen as a primary.
    primary_affinity: float = 1.0
    #: It has led a PG (its up_thru is not 0). Kept until it is purged. Not part of what the OSDMap
    #: says of placement, and so not compared.
    has_led: bool = field(default=False, compare=False)
    #: Another one when an OSD is made anew with the same id.
    uuid: str = field(default='', compare=False)


@dataclass(frozen=True)
class Pool:
    id: int
    name: str
    erasure: bool
    size: int
    min_size: int
    crush_rule: int
    pg_num: int
    #: pg_num that the pool is on its way to; differs while it splits or merges.
    pg_num_target: int
    #: Below pg_num while PGs with higher ids are about to merge.
    pg_num_pending: int
    autoscale_mode: str = 'off'
    #: Data shards: k of an erasure code, 1 for replicated pools.
    data_shards: int = 1
    #: Such as "full_quota" and "ec_overwrites".
    flags: FrozenSet[str] = frozenset()
    #: Quotas; 0: none.
    quota_bytes: int = 0
    quota_objects: int = 0
    #: How names are hashed: 2 is rjenkins, which all pools have but those of long ago.
    object_hash: int = RJENKINS


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
    #: Share of an OSD's space from which on it counts as nearly full.
    nearfull_ratio: float = 0.85

    @property
    def pg_count(self) -> int:
        """PGs of all pools."""
        return sum(pool.pg_num for pool in self.pools.values())

    def entry(self, pgid: str) -> UpmapEntry:
        return UpmapEntry(self.upmap_items.get(pgid, ()), self.upmap_vectors.get(pgid))


def pool_of(pgid: str) -> int:
    """Pool id of a PG id: "12.1f" -> 12."""
    return int(pgid[:pgid.index('.')])


def seed_of(pgid: str) -> int:
    """Placement seed of a PG id: "12.1f" -> 31."""
    return int(pgid[pgid.index('.') + 1:], 16)


@dataclass(frozen=True)
class PgCounts:
    """How many PGs are in which condition; a PG counts in each condition that its state names."""
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
    #: Deleted snapshots are being removed from them.
    snaptrim: int = 0
    #: Of the PGs in transition those that no OSD has reported to this mgr.
    unreported: int = 0


@dataclass(frozen=True)
class Signals:
    """The cheap signals of one loop turn."""
    counts: PgCounts
    #: The same by pool id, of the pools whose PGs are reported.
    pool_counts: Mapping[int, PgCounts] = field(default_factory=dict)
    #: Misplaced object copies / all object copies, 0 to 1.
    misplaced_ratio: float = 0.0
    slow_ops: int = 0
    #: Daemon ("osd.3") -> its slow operations, of those that have any.
    slow_daemons: Mapping[str, int] = field(default_factory=dict)
    #: Health check code -> summary, muted checks left out.
    health: Mapping[str, str] = field(default_factory=dict)
    #: Codes of the muted ones.
    muted: FrozenSet[str] = frozenset()
    health_status: str = 'HEALTH_OK'
    recovery_bytes_per_second: float = 0.0
    #: Logical bytes by pool id: bytes of one copy (of all k data shards together).
    pool_bytes: Mapping[int, int] = field(default_factory=dict)


#: No operation takes more than a week, whatever an OSD says.
LONGEST_OP_SECONDS = 7 * 86400


class Ops(NamedTuple):
    """Operations counted, and the sum of their latencies."""
    sum_ns: int = 0
    number: int = 0

    @property
    def sane(self) -> bool:
        return self.number >= 0 and 0 <= self.sum_ns <= self.number * LONGEST_OP_SECONDS * 10 ** 9


class OsdCounters(NamedTuple):
    """Counters of one OSD since it started, as of its last report to the mgr."""
    #: When the report came, by the mgr's clock; one comes every mgr_stats_period (5 s).
    time: float
    #: Client operations by arrival (op_r_latency, op_w_latency), and writes by dequeuing
    #: (op_w_process_latency) and until they go to store and replicas (op_w_prepare_latency).
    read: Ops
    write: Ops
    write_process: Ops
    write_prepare: Ops
    #: Of the store; zero where it does not measure them.
    commit: Ops = Ops()
    store_read: Ops = Ops()
    #: PGs of which the OSD holds anything.
    pgs: int = 0


class ClientOps(NamedTuple):
    """What clients did on the PGs of one pool that one OSD leads, since the last reading."""
    pool: int
    osd: int
    read: Ops
    write: Ops


class ClientLoad(NamedTuple):
    """Operations that one client sent to one OSD for one pool, since the last reading."""
    #: As in "client.4123", and "10.0.0.5:0/1234".
    client: str
    address: str
    pool: int
    osd: int
    ops: int


class PgWrites(NamedTuple):
    """What clients wrote to one PG since the last reading."""
    pgid: str
    #: The primary first.
    acting: OsdSet
    write: Ops


@dataclass(frozen=True)
class Balancing:
    """How the balancer is configured."""
    #: PGs of a pool that an OSD may be away from its ideal (upmap_max_deviation).
    deviation: float = 1.0
    #: Its mode balances PGs by upmaps.
    upmap: bool = True
    #: Pools that it balances, by id (pool_ids); empty: all.
    pools: FrozenSet[int] = frozenset()

    def covers(self, pool_id: int) -> bool:
        return self.upmap and (not self.pools or pool_id in self.pools)


class ConfigEntry(NamedTuple):
    """One value of the configuration database."""
    #: "global", "osd", "osd.3", ...
    section: str
    #: As in "class:hdd"; '' for none.
    mask: str
    name: str
    value: str

    @property
    def who(self) -> str:
        """As `config set` takes it."""
        return self.section + ('/' + self.mask if self.mask else '')


class Question(NamedTuple):
    """What an OSD is asked, without waiting for it: one of option and pgid."""
    osd: int
    #: The option whose value in force it shall tell.
    option: str = ''
    #: The PG that it leads, and of which it shall tell the state.
    pgid: str = ''


class Space(NamedTuple):
    """The space of one OSD's store."""
    total_bytes: int
    used_bytes: int
    #: PGs that it reports to hold; None: not known.
    pgs: Optional[int] = None


class PoolSpace(NamedTuple):
    """What a pool holds, and how many bytes of data still fit (replicas taken off)."""
    free_bytes: int
    stored_bytes: int
    objects: int


class OsdPlace(NamedTuple):
    """Where an OSD stands in CRUSH, and with it who its peers are."""
    osd: int
    host: str
    root: str
    device_class: str
    #: Model of its drive; '' where not known.
    model: str = ''


class UnreadablePg(NamedTuple):
    """A PG with client operations that wait until it is readable: its read lease has run out."""
    pgid: str
    #: Age of the oldest of them, in seconds.
    age: float
    ops: int


class LatencyCounts(NamedTuple):
    """Client operations of one OSD by latency, over some seconds."""
    osd: int
    seconds: float
    #: Upper bounds in ns of the buckets, the last one open.
    bounds: Tuple[int, ...]
    read: Tuple[int, ...]
    write: Tuple[int, ...]


@dataclass(frozen=True)
class Readings:
    """What the watch sees of the OSDs. None: not read this time, the last reading stands."""
    #: Seconds that `clients` cover.
    seconds: float
    counters: Mapping[int, OsdCounters]
    clients: Tuple[ClientOps, ...]
    places: Mapping[int, OsdPlace]
    #: Seconds that `pg_writes` cover, and the PGs with the most writes of each OSD.
    pg_seconds: float = 0.0
    pg_writes: Optional[Tuple[PgWrites, ...]] = None
    #: By client, while a slow OSD or pool is reported.
    client_loads: Tuple[ClientLoad, ...] = ()
    #: OSD -> its PGs by acting set.
    osd_counts: Optional[Mapping[int, PgCounts]] = None
    #: OSD -> time to answer a heartbeat, median of what some of its peers tell, in ms.
    ping_ms: Optional[Mapping[int, float]] = None
    #: OSD that was asked -> the PGs it leads that are not readable.
    unreadable: Mapping[int, Tuple[UnreadablePg, ...]] = field(default_factory=dict)
    latencies: Tuple[LatencyCounts, ...] = ()
    #: OSDs of which a sample of latencies is being taken.
    sampling: AbstractSet[int] = frozenset()
    #: OSD that is up -> seconds since its last report, of those that owe one.
    silent: Mapping[int, float] = field(default_factory=dict)
    #: OSDMap epochs that are not trimmed yet.
    untrimmed_epochs: Optional[int] = None


@dataclass(frozen=True)
class Placement:
    """Where the data of a PG shall be (up) and where it is served from now (acting)."""
    up: OsdSet
    acting: OsdSet


class PgSets(NamedTuple):
    """One PG as a PG dump shows it. A tuple, since a large cluster has many of them."""
    pgid: str
    up: OsdSet
    acting: OsdSet
    #: Words joined by "+".
    state: str = ''


def shard_bytes(pool: Pool, pool_bytes: int) -> int:
    """Mean bytes that one OSD stores of one PG of the pool.

    From the pool's totals, since the statistics of each single PG cost the mgr too much to read:
    the PGs of a pool differ little when they hold many objects.
    """
    return pool_bytes // max(1, pool.pg_num) // max(1, pool.data_shards)
