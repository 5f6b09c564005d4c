# SPDX-License-Identifier: LGPL-2.1-or-later
"""The interface to the cluster. cluster.mgr implements it for ceph-mgr, tests for fakes."""
from dataclasses import dataclass, field
from itertools import chain
from typing import (AbstractSet, Any, Dict, FrozenSet, Iterable, Iterator, Mapping, NamedTuple,
                    Optional, Protocol, Sequence, Tuple, Union)

from ..errors import HealthChecks, PerfguardError
from .crush import CrushRules
from .inventory import Inventory
from .orchestrator import Orchestrating
from .types import (OSD_ANSWER_SECONDS, Balancing, Command, ConfigEntry, Json, OptionChange,
                    OsdMap, OsdSet, Placement, PoolSetting, PoolSpace, Question, Readings, Reply,
                    Signals, Space, pool_of)


class ToolFailed(PerfguardError):
    """A tool of Ceph is missing, failed, took too long or printed something unexpected."""


class FuturePg(NamedTuple):
    """A PG that a change may affect."""
    #: Its current OSDs, with those that are down and in.
    acting: OsdSet
    #: The OSDs that CRUSH will choose.
    raw: OsdSet
    #: Its future up set with its present upmap entry; (): not known. Primary affinities and
    #: pg_upmap_primary entries give it another order than upmaps do.
    up: OsdSet = ()
    #: The OSDs that CRUSH chooses now; (): not known.
    present: OsdSet = ()


@dataclass(frozen=True)
class Future:
    """The mapping after a change: all PGs that CRUSH will move or that have an upmap entry."""
    pgs: Mapping[str, FuturePg]
    #: With another rule for a pool, that rule has the id of the present one, and the reverse.
    crush: CrushRules
    #: The new CRUSH map, if the change is a whole map.
    crush_map: Optional[bytes] = None
    #: The other PGs of the affected pools, if requested.
    others: Mapping[str, FuturePg] = field(default_factory=dict)
    #: The new sets of the PGs that move, if the change chooses them itself; None: CRUSH does.
    finals: Optional[Mapping[str, OsdSet]] = None

    def all(self) -> Iterator[Tuple[str, FuturePg]]:
        return chain(self.pgs.items(), self.others.items())

    def by_pool(self) -> Dict[int, Dict[str, FuturePg]]:
        """Pool id -> its PGs."""
        pgs_by_pool: Dict[int, Dict[str, FuturePg]] = {}
        for pgid, pg in self.all():
            pgs_by_pool.setdefault(pool_of(pgid), {})[pgid] = pg
        return pgs_by_pool

    def of(self, pgid: str) -> FuturePg:
        return self.pgs[pgid] if pgid in self.pgs else self.others[pgid]

    def raws(self, pgids: Iterable[str]) -> Dict[str, OsdSet]:
        """The OSDs that CRUSH will choose for some PGs, as far as they are known."""
        return {pgid: pgs[pgid].raw for pgid in pgids for pgs in (self.pgs, self.others)
                if pgid in pgs}


@dataclass(frozen=True)
class NoFuture:
    """The preview failed; the change is made without it."""
    reason: str


Outlook = Union[Future, NoFuture]


class NewHost(NamedTuple):
    """A host that is not there."""
    name: str
    #: Type and name of the bucket that it is added to.
    parent: Tuple[str, str]
    osds: Tuple[int, ...]


class NewHosts(NamedTuple):
    hosts: Tuple[NewHost, ...]
    #: CRUSH weight of each OSD.
    weight: float
    #: '': none.
    device_class: str

    @property
    def osds(self) -> Tuple[int, ...]:
        return tuple(osd for host in self.hosts for osd in host.osds)


class Grown(NamedTuple):
    """The mapping of all PGs with hosts that are not there."""
    future: Future
    #: CRUSH with these hosts, before their OSDs get a weight.
    crush: CrushRules


class View(Protocol):
    @property
    def osdmap(self) -> OsdMap: ...

    @property
    def crush_version(self) -> int: ...

    def placement(self, pgid: str) -> Optional[Placement]: ...

    def pool_up(self, pool_id: int) -> Mapping[str, OsdSet]: ...

    def primaries(self, pool_id: int) -> Mapping[str, int]: ...


class Reader(Protocol):
    """What the mgr, the mons and the OSDs know of the cluster."""

    def map_view(self) -> View: ...

    def crush(self, version: int) -> CrushRules: ...

    def signals(self, osdmap: OsdMap) -> Signals: ...

    def readings(self, view: View, signals: Signals) -> Readings: ...

    def degraded_osds(self) -> FrozenSet[int]: ...

    def stats_period(self) -> float: ...

    def release(self) -> str: ...

    def mgr_host(self) -> str: ...

    def page(self) -> str: ...

    def balancer_active(self) -> Optional[str]: ...

    def balancer_busy(self) -> bool: ...

    def balancing(self) -> Balancing: ...

    def stored_options(self) -> Optional[Mapping[str, Mapping[str, str]]]: ...

    def config_entries(self) -> Optional[Tuple[ConfigEntry, ...]]: ...

    def option_changes(self) -> Optional[Sequence[OptionChange]]: ...

    def flags_set_by_others(self) -> AbstractSet[str]:
        """Flags that others have set, even if they were set already; see set_by_others.py."""
        ...

    def values_set_by_others(self, balancer_seconds: float) -> Mapping[str, Tuple[str, float]]:
        """Setting -> the value that others have set last, and when; see set_by_others.py.
        `balancer_seconds`: maximum age of the balancer's value; inf: it does not matter."""
        ...

    def degraded_sleep(self, osd_versions: AbstractSet[str]) -> str:
        """The option for the sleep of OSDs after each object of degraded PGs. If it is 0, those for
        types of drives (..._hdd) apply. During an upgrade, it is one that all mons and OSDs have.

        `osd_versions`: the versions of all OSDs, as in "18.2.7"; '' among them: some are unknown.
        """
        ...

    def inquire(self, questions: Sequence[Question]) -> Mapping[Question, str]: ...

    def osd_space(self) -> Mapping[int, Space]: ...

    def pool_shared(self) -> Mapping[int, float]:
        """Pool -> the share of its bytes that OSDs store only once, because clones of snapshots
        share it; without pools of which nothing is shared."""
        ...

    def pgs_per_osd_limit(self) -> int: ...

    def hard_pg_limit(self) -> int: ...

    def mon_pg_limits(self) -> Tuple[int, int]: ...

    def split_limit(self) -> int: ...

    def default_crush_rule(self) -> int: ...

    def recommended_pg_nums(self) -> Mapping[str, int]: ...

    def inventory(self, view: View) -> Inventory: ...

    def osd_versions(self, osds: Iterable[int]) -> Mapping[int, str]: ...

    def drives(self, osds: Iterable[int]) -> Mapping[int, str]: ...

    def drive_ids(self, osds: Iterable[int]) -> Mapping[int, str]: ...

    def device_ids(self) -> Mapping[str, str]: ...

    def drive_samples(self, device_id: str, seconds: float) -> Mapping[float, Json]: ...

    def pool_space(self, pool_id: int) -> Optional[PoolSpace]: ...

    def free_bytes(self) -> int: ...

    def connection(self) -> Tuple[str, str]: ...

    def outlook(self, osdmap: OsdMap, weights: Mapping[int, float],
                crush_map: Optional[bytes], whole: bool = False,
                setting: Optional[PoolSetting] = None) -> Outlook: ...

    def grown(self, osdmap: OsdMap, new: NewHosts) -> Union[Grown, NoFuture]: ...

    def shrunk(self, osdmap: OsdMap, lost: AbstractSet[int]) -> Outlook:
        """The mapping of all PGs while some OSDs are out."""
        ...

    def crush_map(self) -> Tuple[bytes, int]: ...

    def compiled_crush_map(self, source: bytes, ids: int) -> bytes: ...

    def crush_rules(self, crush_map: bytes) -> CrushRules: ...

    def stored(self, keys: Sequence[str]) -> Mapping[str, Optional[str]]: ...

    def orchestrating(self) -> Orchestrating: ...

    def active_gid(self) -> int: ...


class Commander(Protocol):
    """Commands to the mons and the OSDs, and their answers."""

    def run(self, commands: Sequence[Command]) -> Sequence[Reply]: ...

    def unanswered(self) -> bool: ...

    def mons_alike(self) -> bool: ...

    def switch_balancer(self, active: bool) -> Reply: ...

    def remove_osd(self, osd: int) -> Reply: ...

    def ask(self, topic: str, osds: Iterable[int], command: Mapping[str, Any],
            patience_seconds: float = OSD_ANSWER_SECONDS) -> None: ...

    def asked(self, topic: str) -> AbstractSet[int]: ...

    def answers(self, topic: str) -> Mapping[int, Any]: ...

    def read_loads(self, seconds: float) -> None: ...

    def read_without_probes(self, seconds: float) -> None: ...

    def read_by_pg(self, osds: AbstractSet[int]) -> None: ...

    def count_clients(self, counting: bool) -> None: ...

    def close(self) -> None: ...


class Publisher(Protocol):
    """What the mgr shows of perfguard."""

    def health_checks(self, checks: HealthChecks) -> None: ...

    def progress(self, event_id: str, message: str, share: float) -> None: ...

    def progress_done(self, event_id: str) -> None: ...

    def cluster_log(self, text: str) -> None: ...


class Cluster(Reader, Commander, Publisher, Protocol):
    """One class implements all of it; callers ask for the part that they need."""
