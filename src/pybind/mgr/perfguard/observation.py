# SPDX-License-Identifier: LGPL-2.1-or-later
"""What all jobs see in one turn of the loop, as plain frozen data."""
from dataclasses import dataclass, field
from typing import Callable, FrozenSet, Mapping, NamedTuple, Optional, Tuple

from .cluster.crush import CrushRules
from .cluster.ports import Outlook
from .cluster.types import (Balancing, ClientOps, OsdMap, PgCounts, Placement, Pool, Signals,
                            shard_bytes)
from .errors import Reason

#: Options in the configuration database: whether the balancer is active; the sections of the mons
#: and of the OSDs, and what an option of the latter begins with where both are listed.
BALANCER = 'mgr/balancer/active'
MON = 'mon'
OSD = 'osd'
OSD_OPTION = 'osd/'
#: A pool with fewer operations a second over the last minute is idle, if so much
#: of the minute was seen: right after a failover nothing is known.
IDLE_RATE = 0.5
IDLE_SECONDS = 30.0


@dataclass(frozen=True)
class Settings:
    """What the cluster shows now of the settings that a campaign may hold."""
    osdmap: OsdMap
    #: Value in force, None when not set anywhere.
    balancer_active: Optional[str]
    #: The configuration database by section and option, entries with a mask left out; None: it
    #: was not read this time.
    stored: Optional[Mapping[str, Mapping[str, str]]] = None
    #: The balancer was switched off, but a plan of its own may still change upmaps.
    balancer_busy: bool = False

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
    #: A target that the operator has set: the load is no excuse.
    named: bool = False


@dataclass(frozen=True)
class Clients:
    """The last reading of the OSDs' counters of client operations."""
    #: When it was taken (0: there is none yet), and the seconds that it covers.
    time: float = 0.0
    seconds: float = 0.0
    #: By pool and by the OSD that leads the PGs.
    rows: Tuple[ClientOps, ...] = ()
    pools: Mapping[int, PoolClients] = field(default_factory=dict)
    #: Seconds that all readings of this mgr cover.
    covered: float = 0.0
    #: OSD -> latency of its reads while nothing moves, against those of the median OSD.
    norms: Mapping[int, float] = field(default_factory=dict)

    def idle(self, pool: PoolClients) -> bool:
        """The pool has no client operations, and that is known."""
        return pool.rate < IDLE_RATE and self.covered >= IDLE_SECONDS

    @property
    def all_idle(self) -> bool:
        return self.covered >= IDLE_SECONDS and all(map(self.idle, self.pools.values()))


@dataclass(frozen=True)
class Observation:
    """What one turn of the loop saw."""
    now: float
    signals: Signals
    settings: Settings
    #: Up and acting sets of a PG in the observed OSDMap; None: no such PG.
    placement: Callable[[str], Optional[Placement]]
    crush: CrushRules
    #: Seconds between two reports of an OSD's PG states (mgr_stats_period).
    stats_period: float = 5.0
    #: OSDs that have a degraded PG.
    degraded_osds: FrozenSet[int] = frozenset()
    #: PGs by the OSDs of their acting sets, of the last reading; empty: not known.
    osd_counts: Mapping[int, PgCounts] = field(default_factory=dict)
    #: OSD -> PGs that it is deleting, mostly since they have moved away.
    removing: Mapping[int, int] = field(default_factory=dict)
    #: All pins have the goals that this OSDMap asks for, if the campaign wants any.
    goals_fit: bool = True
    #: The pins have not been compared with this OSDMap yet.
    new_map: bool = True
    #: The latest latency of clients.
    clients: Clients = Clients()
    #: From the mitigation: why nothing may be released, PGs in flight to be pinned back, and
    #: flags that are its own.
    stops: Tuple[Reason, ...] = ()
    pin_back: FrozenSet[str] = frozenset()
    own_flags: FrozenSet[str] = frozenset()
    #: Those of them that are on their way into the OSDMap, and listed there all the same.
    coming_flags: FrozenSet[str] = frozenset()
    #: Options of the OSDs that the mitigation has set.
    own_options: FrozenSet[str] = frozenset()
    #: Schedulers of the OSDs (osd_op_queue); empty: not known.
    schedulers: FrozenSet[str] = frozenset()
    crush_version: int = 0
    #: OSDMap epochs that are not trimmed yet; None: not known.
    untrimmed_epochs: Optional[int] = None
    #: mon_max_pg_per_osd; 0: none.
    pg_limit: int = 0
    #: When CRUSH or the set of OSDs that are up and in last changed; 0: not known.
    osds_changed: float = 0.0
    #: How the balancer is configured, which goes for balance that perfguard makes as well.
    balancing: Balancing = Balancing()
    #: Where CRUSH will place the PGs after the campaign's change; None: not worked out now.
    outlook: Optional[Outlook] = None
    #: Until when commands of this mgr had no answer of the mons, or its OSDMap was known to be
    #: old; or when it became active.
    answered: float = 0.0
    #: What has changed in CRUSH since a whole new map for it was ordered, in words; '' for nothing.
    overtaken: str = ''

    @property
    def osdmap(self) -> OsdMap:
        return self.settings.osdmap

    def shard_bytes(self, pool: Pool) -> int:
        """As cluster.types.shard_bytes, with what the pool holds now."""
        return shard_bytes(pool, self.signals.pool_bytes.get(pool.id, 0))
