# SPDX-License-Identifier: LGPL-2.1-or-later
"""The observation that all jobs share in one turn of the loop, as frozen data."""
from dataclasses import dataclass, field
from typing import (AbstractSet, Callable, Dict, FrozenSet, Iterable, Mapping, NamedTuple,
                    Optional, Sequence, Tuple)

from .cluster.crush import CrushRules
from .cluster.evacuation import Evacuation
from .cluster.set_by_others import BALANCER
from .cluster.orchestrator import Orchestrating
from .cluster.ports import Outlook
from .cluster.types import (NOOUT, Balancing, ClientOps, HeldPgs, LatencyCounts, Osd, OsdMap,
                            PgCounts, Placement, Pool, Signals, shard_bytes)
from .errors import Reason

#: Sections of the configuration database: those of the mons and of the OSDs, and the prefix of
#: options of OSDs where both are listed.
MON = 'mon'
OSD = 'osd'
OSD_OPTION = 'osd/'
#: A pool with fewer operations a second over the last minute is idle, if readings cover at least
#: this time: right after a failover nothing is known.
IDLE_RATE = 0.5
IDLE_SECONDS = 30.0
#: An idle pool also has fewer operations in progress: a client that waits for its only operation
#: has 1, however long that takes.
IDLE_OPS = 0.5


@dataclass(frozen=True)
class Settings:
    """The present values of the settings that a campaign may borrow."""
    osdmap: OsdMap
    #: Value in force, None when not set anywhere.
    balancer_active: Optional[str]
    #: The configuration database by section and option, without entries with a mask; None: not read
    #: in this turn, or the mons did not answer.
    stored: Optional[Mapping[str, Mapping[str, str]]] = None
    #: The balancer was switched off, but a plan of its own may still change upmaps.
    balancer_busy: bool = False
    #: Flags that others have set, perhaps while perfguard had them set.
    flags_set_by_others: AbstractSet[str] = frozenset()
    #: Setting -> the value that others have set last, perhaps while perfguard had put it, and when,
    #: in seconds since the epoch; see cluster/set_by_others.py.
    values_set_by_others: Mapping[str, Tuple[str, float]] = field(default_factory=dict)
    #: Flags and options that other parts of perfguard have borrowed: the cluster may not show them
    #: yet.
    borrowed_elsewhere: FrozenSet[str] = frozenset()

    @property
    def balancer_stored(self) -> Optional[str]:
        return self.section('mgr').get(BALANCER)

    def section(self, who: str) -> Mapping[str, str]:
        return (self.stored or {}).get(who, {})

    @property
    def mon(self) -> Optional[Mapping[str, str]]:
        """The options of the section mon by name, those of the section osd as "osd/<name>"."""
        if self.stored is None:
            return None
        return {**self.section(MON), **{OSD_OPTION + name: value
                                        for name, value in self.section(OSD).items()}}


class Minute(NamedTuple):
    """The operations of one kind in the last minute."""
    ops: float = 0.0
    #: Median of the mean latencies of its readings, weighted by operations: a single stall has no
    #: effect.
    median_ms: float = 0.0


class PoolClients(NamedTuple):
    """The clients of one pool."""
    name: str
    #: PGs of the pool.
    pg_num: int
    #: Operations per second over the last minute.
    rate: float
    #: Limit of the mean latency, in ms; None: not known yet.
    read_target_ms: Optional[float] = None
    write_target_ms: Optional[float] = None
    #: Mean latency while nothing moves, in ms; None: not learned yet.
    read_baseline_ms: Optional[float] = None
    write_baseline_ms: Optional[float] = None
    #: Standard deviation of one operation's latency over its mean; None: not measured yet.
    read_spread: Optional[float] = None
    write_spread: Optional[float] = None
    erasure: bool = False
    #: The operator has set the limit, so the load does not raise it.
    named: bool = False
    read_minute: Minute = Minute()
    write_minute: Minute = Minute()
    #: Mean number of operations in progress in the last minute.
    in_progress: float = 0.0
    #: Operations per second of other pools on its OSDs.
    others_rate: float = 0.0


@dataclass(frozen=True)
class Clients:
    """The last reading of the OSDs' counters of client operations."""
    #: When it was taken (0: there is none yet), and the seconds that it covers.
    time: float = 0.0
    seconds: float = 0.0
    #: By pool and primary OSD.
    rows: Tuple[ClientOps, ...] = ()
    pools: Mapping[int, PoolClients] = field(default_factory=dict)
    #: Seconds that all readings of this mgr cover.
    covered: float = 0.0
    #: OSD -> read latency while nothing moves, as a multiple of the median OSD's.
    norms: Mapping[int, float] = field(default_factory=dict)
    #: When the report of an OSD was last late (0: not yet): it hangs, and operations wait for it.
    silent: float = 0.0
    #: Operations by latency that the OSDs have counted until this reading, without those of probes.
    counted: Tuple[LatencyCounts, ...] = ()
    #: Operations of all OSDs together by latency, counted while nothing moved and no problem
    #: existed, mostly in the last hour; None: not known.
    quiet: Optional[LatencyCounts] = None
    #: Why no baselines are learned at present, as in "PGs are laggy"; '': they are.
    why_not_quiet: str = ''

    def idle(self, pool: PoolClients) -> bool:
        """Whether the pool is known to have no client operations."""
        return pool.rate < IDLE_RATE and pool.in_progress < IDLE_OPS \
            and self.covered >= IDLE_SECONDS

    @property
    def all_idle(self) -> bool:
        return self.covered >= IDLE_SECONDS and all(map(self.idle, self.pools.values()))


@dataclass(frozen=True)
class Observation:
    """The observation of one turn of the loop."""
    #: Of the clock of this mgr (clock.py), in seconds since the epoch.
    now: float
    signals: Signals
    settings: Settings
    #: Up and acting sets of a PG in the observed OSDMap; None: no such PG.
    placement: Callable[[str], Optional[Placement]]
    crush: CrushRules
    #: Seconds by which the wall clock was set since this mgr became active.
    clock_set: float = 0.0
    #: Seconds between two reports of an OSD's PG states (mgr_stats_period).
    stats_period: float = 5.0
    #: PGs that leave OSDs which are to be emptied; see cluster/evacuation.py.
    evacuation: Evacuation = field(default_factory=dict)
    #: The OSDs one to two minutes ago, or when this mgr became active.
    osds_before: Mapping[int, Osd] = field(default_factory=dict)
    #: OSDs that have a degraded PG, for the releases of single PGs; stop conditions use osd_counts.
    degraded_osds: FrozenSet[int] = frozenset()
    #: PGs by the OSDs of their acting sets, from the last reading, which may be minutes old. {}:
    #: all PGs are active+clean and none is deep-scrubbed, trimmed or laggy, or there is no reading
    #: yet.
    osd_counts: Mapping[int, PgCounts] = field(default_factory=dict)
    #: OSD -> PGs that it is deleting, usually because they have moved away.
    deleting: Mapping[int, int] = field(default_factory=dict)
    #: OSD -> the devices that it shares with others, as in "h1:nvme0n1".
    devices: Mapping[int, Sequence[str]] = field(default_factory=dict)
    #: All pins have goals for this OSDMap, if the campaign uses goals.
    goals_fit: bool = True
    #: The pins have not been compared with this OSDMap yet.
    new_map: bool = True
    #: The latest latency of clients.
    clients: Clients = Clients()
    #: OSDs that the watch reports as slow.
    slow_osds: FrozenSet[int] = frozenset()
    #: Why nothing may be released, and PGs in flight to pin back: from the mitigation; for its
    #: turn, RebalanceController adds upgrades and what it could not compute.
    stops: Tuple[Reason, ...] = ()
    #: Conditions that the mitigation knows and the operator has accepted.
    accepted: Tuple[Reason, ...] = ()
    pin_back: FrozenSet[str] = frozenset()
    #: OSDs that were created again on the drives that are being replaced.
    same_drive: FrozenSet[int] = frozenset()
    #: OSDs on another device than the ones of these ids whose drain was ordered.
    other_device: FrozenSet[int] = frozenset()
    #: Schedulers of the OSDs (osd_op_queue); empty: not known.
    schedulers: FrozenSet[str] = frozenset()
    crush_version: int = 0
    #: Seconds until the mons answered upmaps: median of the last bursts; 0: none was sent yet.
    commit_seconds: float = 0.0
    #: OSDMap epochs that are not trimmed yet; None: not known.
    untrimmed_epochs: Optional[int] = None
    #: mon_max_pg_per_osd; 0: none.
    pg_limit: int = 0
    #: The PGs that OSDs hold, for that limit; None: there is none, or the campaign was in another
    #: phase than RELEASING and HOLDING when the turn began.
    held_pgs: Optional[HeldPgs] = None
    #: mgr_max_pg_num_change: ceph-mgr splits no PG of a pool whose pg_num is so much above pgp_num.
    #: Below 0: no limit.
    split_limit: int = -1
    #: When CRUSH or the set of OSDs that are up and in last changed; 0: not known.
    osds_or_crush_changed: float = 0.0
    #: OSD that is down and in -> when this mgr has first seen that.
    down_since: Mapping[int, float] = field(default_factory=dict)
    #: Configuration of the balancer. perfguard balances only pools that the balancer would balance.
    balancing: Balancing = Balancing()
    #: Where CRUSH will place the PGs after the campaign's change; None: not computed now.
    outlook: Optional[Outlook] = None
    #: Why that failed; it is computed again in a moment. '': it did not.
    outlook_failure: str = ''
    #: The last time at which commands were unanswered or the OSDMap was known to be old; or when
    #: this mgr became active.
    unanswered_at: float = 0.0
    #: All mons run the same version of Ceph; only known while a campaign is open.
    mons_alike: bool = True
    #: What the orchestrator does meanwhile.
    orchestrating: Orchestrating = Orchestrating()
    #: Text on changes of CRUSH since an operator ordered a new CRUSH map; '' for none.
    overtaken: str = ''

    @property
    def osdmap(self) -> OsdMap:
        return self.settings.osdmap

    @property
    def wall(self) -> float:
        """The present wall clock, for time windows."""
        return self.now + self.clock_set

    @property
    def announced(self) -> FrozenSet[int]:
        """OSDs that are down for maintenance: an operator has set noout for them, their hosts or
        device class, or all OSDs."""
        return self.osdmap.absent if NOOUT in self.osdmap.flags \
            else self.osdmap.absent & self.noout_by_name

    @property
    def noout_by_name(self) -> FrozenSet[int]:
        """OSDs for which, or for their device class or a bucket above which, noout is set."""
        names = self.osdmap.noout
        below = {osd for name in names for osd in self.crush.osds_below(name) or ()}
        return frozenset(osd for osd in self.osdmap.osds
                         if osd in below or 'osd.%d' % osd in names
                         or self.crush.class_of(osd) in self.osdmap.noout_classes)

    def host_of(self, osd: int) -> str:
        """The host of an OSD; without one in CRUSH, its own name."""
        return self.crush.host_of(osd) or 'osd.%d' % osd

    def osds_of(self, pools: Iterable[int]) -> Dict[int, FrozenSet[int]]:
        """Pool -> the OSDs that have its data: those of its CRUSH rule, and those that have served
        its clients in the last reading, as pins, or another rule that it had, may keep data
        elsewhere. Empty for a pool that does not exist."""
        osds_by_pool: Dict[int, FrozenSet[int]] = {}
        # Hundreds of pools have few rules.
        osds_by_rule: Dict[int, FrozenSet[int]] = {}
        for pool_id in pools:
            pool = self.osdmap.pools.get(pool_id)
            rule = None if pool is None else pool.crush_rule
            if rule is not None and rule not in osds_by_rule:
                osds_by_rule[rule] = frozenset(
                    osd for osd in self.osdmap.osds if self.crush.weight_of(rule, osd) > 0.0)
            osds_by_pool[pool_id] = frozenset() if rule is None else osds_by_rule[rule]
        for row in self.clients.rows if osds_by_pool else ():
            pool_osds = osds_by_pool.get(row.pool)
            (_, reads), (_, writes) = row.read, row.write
            if pool_osds is not None and row.osd not in pool_osds and (reads or writes):
                osds_by_pool[row.pool] = pool_osds | {row.osd}
        return osds_by_pool

    def shard_bytes(self, pool: Pool) -> int:
        """Space for one PG of the pool on one OSD, as cluster.types.shard_bytes."""
        return shard_bytes(pool, self.signals.space_of(pool.id))
