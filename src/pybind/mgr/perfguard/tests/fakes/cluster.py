# SPDX-License-Identifier: LGPL-2.1-or-later
"""A small cluster in memory: mon, PGs that peer and backfill, settings, and the mgr's store.

It knows time only through `tick`, and can fail before any write or command (`Fault`), which is how
the tests let an mgr crash between any two steps.
"""
import json
import math
from dataclasses import dataclass, field, replace
from typing import (AbstractSet, Any, Dict, FrozenSet, Iterable, List, Mapping, NamedTuple,
                    Optional, Sequence, Set, Tuple, Union)

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.inventory import Inventory
from perfguard.cluster.orchestrator import Orchestrating
from perfguard.cluster.ports import (Future, FuturePg, Grown, NewHosts, NoFuture, Outlook,
                                     ToolFailed)
from perfguard.cluster.types import (OSD_ANSWER_SECONDS, Balancing, ConfigEntry, OptionChange, Osd,
                                     OsdMap, OsdSet, PgCounts, Placement, Pool, PoolSetting,
                                     PoolSpace, Question, Readings, Reply, Signals, Space,
                                     UpmapEntry, pool_of)

from .mon_model import HOLE, Refused, ToyMon, ToyOsd

BALANCER = 'mgr/balancer/active'
STOPS_BACKFILL = frozenset({'norebalance', 'nobackfill'})


class Crash(BaseException):
    """The mgr is gone. No `except Exception` may stop it."""


class Fault:
    """Counts side effects, and crashes before number `at`."""

    def __init__(self) -> None:
        self.count = 0
        self.at: Optional[int] = None
        self.error: BaseException = Crash()

    def step(self) -> None:
        self.count += 1
        if self.at is not None and self.count >= self.at:
            self.at = None
            raise self.error


class MemoryKv:
    """MgrModule's key/value store, with the mon's limit on values."""

    def __init__(self, fault: Optional[Fault] = None) -> None:
        self.data: Dict[str, str] = {}
        self.fault = fault or Fault()
        #: Writes get lost, and keys of which they were, with the values that the mons have: Ceph
        #: logs that and answers from its cache.
        self.losing = False
        self.lost: Dict[str, Optional[str]] = {}

    def get_store(self, key: str) -> Optional[str]:
        return self.data.get(key)

    def set_store(self, key: str, val: Optional[str]) -> None:
        self.fault.step()
        if self.losing:
            self.lost.setdefault(key, self.data.get(key))
        else:
            self.lost.pop(key, None)
        if val is None:
            self.data.pop(key, None)
        else:
            assert len(val.encode()) <= 65536
            self.data[key] = val

    def get_store_prefix(self, key_prefix: str) -> Dict[str, str]:
        return {k: v for k, v in self.data.items() if k.startswith(key_prefix)}


class FakeReply(Reply):
    def __init__(self, retval: Optional[int], error: str = '') -> None:
        super().__init__(retval, error=error)


def weights_of(crush_map: bytes) -> Dict[int, float]:
    """What a whole CRUSH map is here: the weight of every OSD, in JSON."""
    return {int(osd): weight for osd, weight in json.loads(crush_map).items()}


@dataclass
class FakePg:
    mon: ToyMon
    #: Where the data is.
    data: OsdSet
    up: OsdSet
    temp: Optional[OsdSet] = None
    peering_until: Optional[float] = None
    copied_seconds: float = 0.0
    #: What was written while one of its OSDs was down is copied until then.
    recovering_until: float = 0.0

    def live(self, osds: Sequence[int], by_position: bool) -> OsdSet:
        """Those that are up; a hole for each other one where the position is the shard."""
        alive = [osd if osd in self.mon.osds and self.mon.osds[osd].up else HOLE for osd in osds]
        return tuple(osd for osd in alive if by_position or osd != HOLE)


@dataclass(frozen=True)
class FakeView:
    osdmap: OsdMap
    crush_version: int
    placements: Mapping[str, Placement]

    def placement(self, pgid: str) -> Optional[Placement]:
        return self.placements.get(pgid)

    def pool_up(self, pool_id: int) -> Mapping[str, OsdSet]:
        return {pgid: place.up for pgid, place in self.placements.items()
                if pool_of(pgid) == pool_id}

    def primaries(self, pool_id: int) -> Mapping[str, int]:
        return {pgid: next(osd for osd in place.acting if osd != HOLE)
                for pgid, place in self.placements.items()
                if pool_of(pgid) == pool_id and set(place.acting) - {HOLE}}


@dataclass
class Moved:
    """One backfill that ended."""
    time: float
    pgid: str
    up: OsdSet


class Transfer(NamedTuple):
    """The move of a PG that perfguard has released: OSDs read, OSDs written, and its primary."""
    readers: FrozenSet[int]
    sources: FrozenSet[int]
    targets: FrozenSet[int]
    primary: int


@dataclass
class FakeCluster:
    """`hosts` hosts; pool 1 is replicated (3), pool 2 erasure coded (2+1).

    Without racks a host is the failure domain, and a rack with them.
    """
    hosts: int = 8
    osds_per_host: int = 1
    racks: int = 0
    pgs: int = 12
    peer_seconds: float = 2.0
    backfill_seconds: float = 4.0
    recovery_seconds: float = 3.0
    #: What a released PG lacks on its new OSD is in its log: it is degraded, never remapped.
    nearly_empty: bool = False
    #: OSDs for which the same is true of PGs that were not released.
    filled_by_log: Set[int] = field(default_factory=set)
    period: float = 2.0
    #: How many ticks the mgr's OSDMap is behind the mon's.
    lag: int = 0
    fault: Fault = field(default_factory=Fault)

    now: float = 1000.0
    #: How far the wall clock of the active mgr is ahead of time.
    ahead: float = 0.0
    epoch: int = 100
    crush_version_: int = 1
    flags: Set[str] = field(default_factory=lambda: {'noscrub'})
    #: Flags that others have set.
    flags_set_by_others_: Set[str] = field(default_factory=set)
    #: Setting -> the value that others have set last, and when.
    values_set_by_others_: Dict[str, Tuple[str, float]] = field(default_factory=dict)
    ec_flags: FrozenSet[str] = frozenset()
    config: Dict[str, str] = field(default_factory=lambda: {BALANCER: 'true'})
    mon_config: Dict[str, str] = field(default_factory=lambda: {'mon_op': '1'})
    modes: Dict[int, str] = field(default_factory=lambda: {1: 'on', 2: 'warn'})
    health: Dict[str, str] = field(default_factory=dict)
    muted: Set[str] = field(default_factory=set)
    trouble: Dict[str, int] = field(default_factory=dict)
    fullness: Dict[int, str] = field(default_factory=dict)
    #: PGs that lack copies of some objects.
    degraded: Set[str] = field(default_factory=set)
    #: PGs without objects: never degraded, so that norebalance defers their backfill always.
    empty: Set[str] = field(default_factory=set)
    tunables: Optional[Dict[str, int]] = None
    #: As in "osd crush dump".
    choose_args: Dict[str, Any] = field(default_factory=dict)
    slow_ops: int = 0
    slow_daemons: Dict[str, int] = field(default_factory=dict)
    #: What the OSDs report.
    #: PGs whose acting set was sent with their release.
    primed: Set[str] = field(default_factory=set)
    #: The mons commit acting sets an epoch after the releases; or they never receive them.
    late_primes: bool = False
    drops_primes: bool = False
    _late: Sequence[str] = ()
    #: Those of the present commands.
    _primes: Set[str] = field(default_factory=set)
    #: No client is active, and one reading proves it.
    read: Readings = Readings(seconds=60.0, counters={}, clients=(), places={})
    #: The module has given up what it had in the OSDs.
    closed: bool = False
    #: The configuration database but for the mgr's section, by (who, option).
    osd_config: Dict[Tuple[str, str], str] = field(default_factory=dict)
    #: Changes of the configuration database.
    option_log: List[OptionChange] = field(default_factory=list)
    #: What OSDs show of their own options, regardless of the configuration database.
    #: Version and osd_op_queue of single OSDs.
    versions: Dict[int, str] = field(default_factory=dict)
    queues: Dict[int, str] = field(default_factory=dict)
    osd_shows: Dict[str, str] = field(default_factory=lambda: {'osd_op_queue': 'wpq'})
    affinity: Dict[int, float] = field(default_factory=dict)
    #: PGs in flight that wait for their backfill to begin.
    backfill_wait: Set[str] = field(default_factory=set)
    #: OSDs and PGs answer no question.
    mute: bool = False
    #: OSDs count the operations of clients.
    counts_clients: bool = True
    #: The mons have not answered what they were sent.
    mons_silent: bool = False
    #: They run different versions of Ceph.
    mons_differ: bool = False
    #: Versions of OSDs -> their option for the sleep between degraded objects.
    degraded_sleeps: Dict[AbstractSet[str], str] = field(default_factory=dict)
    #: Commands of this prefix, or of prefix and option, are answered with this error and do
    #: nothing.
    refuse: Dict[str, str] = field(default_factory=dict)
    #: The raw sets once all OSDs have a CRUSH weight.
    coming: Dict[str, List[int]] = field(default_factory=dict)
    no_crush_map: bool = False
    #: The mgr's store, as the mons have it, and how often it was read back.
    kv: Optional[MemoryKv] = None
    read_back: int = 0
    #: The mgr that is active by the MgrMap, and how often that was looked up.
    gid: int = 4100
    mgr_maps_read: int = 0
    #: up_thru of OSDs that ever led a PG, and the uuids of those that were made anew.
    led: Dict[int, int] = field(default_factory=dict)
    uuids: Dict[int, str] = field(default_factory=dict)
    destroyed: Set[int] = field(default_factory=set)
    not_in_crush: Set[int] = field(default_factory=set)
    #: The raw sets before, and the OSDs whose weights make the difference.
    base: Dict[str, List[int]] = field(default_factory=dict)
    new: List[int] = field(default_factory=list)
    #: Why Ceph's tools are of no use.
    no_tools: str = ''
    #: The balancer, where it is on, takes the pins of a PG away in every tick.
    balances: bool = False
    #: It is off, but still carries out its last plan.
    balancer_finishing: bool = False
    #: How it is configured.
    balancer: Balancing = Balancing()
    inventory_: Inventory = Inventory()
    #: mon_max_pg_per_osd; 0: none.
    pg_limit: int = 250
    #: What the autoscaler recommends; None: it is not there.
    recommended: Optional[Dict[str, int]] = None
    #: mon_max_pool_pg_num.
    pool_pg_limit: int = 65536
    #: mgr_max_pg_num_change.
    max_pg_num_change: int = 128
    #: Bytes of an OSD that is not 1 TiB.
    sizes: Dict[int, int] = field(default_factory=dict)
    #: OSDs and hosts for which noout is set.
    noout: Set[str] = field(default_factory=set)
    noout_classes: Set[str] = field(default_factory=set)
    device_classes: Dict[int, str] = field(default_factory=dict)
    #: What the orchestrator does.
    orchestrator: Orchestrating = Orchestrating()
    #: OSDs that it was ordered to remove, and its answer.
    removals: List[int] = field(default_factory=list)
    removal_retval: int = 0
    #: OSD -> vendor, model and serial number of its drive.
    drive_ids_: Dict[int, str] = field(default_factory=dict)
    #: What `pool_shared` returns.
    shared: Dict[int, float] = field(default_factory=dict)
    #: Most PGs that were remapped or peering at a time.
    most_unclean: int = 0

    def __post_init__(self) -> None:
        self.toys: Dict[int, ToyOsd] = {
            osd: ToyOsd(host, rack=host % self.racks if self.racks else None)
            for osd, host in enumerate(sorted(list(range(self.hosts)) * self.osds_per_host))}
        #: CRUSH version -> OSDs, of the OSDMaps that the mgr may still see.
        self._crush_of: Dict[int, Dict[int, ToyOsd]] = {}
        self.pg: Dict[str, FakePg] = {}
        for pool in (1, 2):
            for seed in range(self.pgs):
                raw = self._first_raw(pool, seed)
                self.pg['%d.%x' % (pool, seed)] = FakePg(ToyMon(self.toys, 3, raw), raw, raw)
        #: For how long the load by client and by object was asked for, each time.
        self.loads_wanted: List[float] = []
        self.without_probes_until = 0.0
        #: Of which client reads were last to be read by PG.
        self.read_osds: FrozenSet[int] = frozenset()
        #: PGs that perfguard has released and that have not arrived yet.
        self.released: Dict[str, Transfer] = {}
        #: PGs with a pg_upmap vector since CRUSH last changed: where it places them now is hidden
        #: until the vector is gone.
        self.hidden: Set[str] = set()
        #: Where CRUSH placed PGs before one of their OSDs was marked out.
        self._before_out: Dict[int, Dict[str, List[int]]] = {}
        self.moved: List[Moved] = []
        self.sent: List[Dict[str, Any]] = []
        self.logged: List[str] = []
        self.checks: Dict[str, Any] = {}
        self.progress_events: Dict[str, float] = {}
        self.most_moving = 0
        self.stored_reads = 0
        #: The mons do not answer "config dump".
        self.config_unread = False
        self._stats = self.report_now()
        self._stats_at = self.now
        self._views: List[FakeView] = [self._view()]

    def _first_raw(self, pool: int, seed: int) -> OsdSet:
        domains: Dict[int, List[int]] = {}
        for osd, toy in self.toys.items():
            domains.setdefault(toy.domain, []).append(osd)
        step = 1 + seed % 2 if len(domains) > 4 else 1
        chosen = [domains[(seed * 3 + pool + i * step) % len(domains)] for i in range(3)]
        return tuple(osds[(seed + i) % len(osds)] for i, osds in enumerate(chosen))

    # ---- what the operator and time do

    def add_upmap(self, pgid: str, source: int, target: int) -> None:
        """An upmap of others, its data in place."""
        pg = self.pg[pgid]
        pg.mon.put_items([(source, target)])
        pg.mon.next_epoch()
        assert pg.mon.stored.items
        pg.data = pg.up = tuple(pg.mon.up())
        self.epoch += 1

    def restart_osd(self) -> None:
        """An OSD that starts names its device class: the same CRUSH map, a new version."""
        self.crush_version_ += 1
        self.epoch += 1

    def expand(self, count: int = 3, share: int = 2) -> List[int]:
        """New hosts take a place in every `share`-th PG: the CRUSH change of the tests."""
        new = self._new_osds(count, 1.0)
        for number, (pgid, pg) in enumerate(sorted(self.pg.items())):
            if number % share == 0:
                pg.mon.raw[number % 3] = new[number % count]
        self.coming = {pgid: list(pg.mon.raw) for pgid, pg in self.pg.items()}
        self._crush_changed()
        return new

    def _new_osds(self, count: int, weight: float) -> List[int]:
        """Each in a new host, in a new rack if there are racks."""
        new = list(range(len(self.toys), len(self.toys) + count))
        self.base = {pgid: list(pg.mon.raw) for pgid, pg in self.pg.items()}
        self.toys.update({osd: ToyOsd(osd, weight, rack=osd if self.racks else None)
                          for osd in new})
        self.new = new
        return new

    def _weights(self) -> Dict[int, float]:
        return {osd: toy.crush_weight for osd, toy in self.toys.items()}

    def add_waiting(self, count: int = 3, share: int = 2) -> List[int]:
        """New hosts with OSDs of CRUSH weight 0; with their weights they take the places that
        `expand` gives them."""
        new = self._new_osds(count, 0.0)
        for number, (pgid, pg) in enumerate(sorted(self.pg.items())):
            raw = list(pg.mon.raw)
            if number % share == 0:
                raw[number % 3] = new[number % count]
                if number % 4 == 0:  # its first two OSDs change places: pairs cannot express it
                    first = (number + 1) % 3
                    second = (number + 2) % 3
                    raw[first], raw[second] = raw[second], raw[first]
            self.coming[pgid] = raw
        self.crush_version_ += 1
        self.epoch += 1
        return new

    def _weigh(self, osd: int, weight: float) -> None:
        before = self._filled(self.toys)
        self.toys[osd] = self.toys[osd]._replace(crush_weight=weight)
        self.crush_version_ += 1
        if self._filled(self.toys) != before:
            for pgid, pg in self.pg.items():
                pg.mon.raw = list((self.base if before else self.coming)[pgid])

    def _filled(self, toys: Mapping[int, ToyOsd]) -> bool:
        """All of the new OSDs have a weight, and so get their places."""
        return all(osd in toys and toys[osd].crush_weight > 0.001 for osd in self.new)

    def raw_under(self, pgid: str, toys: Mapping[int, ToyOsd]) -> Sequence[int]:
        """Where CRUSH places a PG with these weights."""
        if not self.new or self._filled(toys) == self._filled(self.toys):
            return self.pg[pgid].mon.raw
        return (self.coming if self._filled(toys) else self.base)[pgid]

    def set_raw(self, pgid: str, raw: Sequence[int]) -> None:
        self.pg[pgid].mon.raw = list(raw)
        self.change_tunables()

    def change_tunables(self) -> None:
        """They place PGs elsewhere, and are no weights."""
        self.tunables = {'choose_total_tries': self.epoch}
        self._crush_changed()

    def _crush_changed(self) -> None:
        self.crush_version_ += 1
        self.hidden |= {pgid for pgid, pg in self.pg.items() if pg.mon.stored.vector}
        self._map_changed()

    def _map_changed(self) -> None:
        """By other hands than perfguard's."""
        self.epoch += 1
        for pg in self.pg.values():
            pg.mon.next_epoch()
        self._interval_changes()

    def take_down(self, osd: int) -> None:
        """The OSD goes down."""
        self.toys[osd] = self.toys[osd]._replace(up=False)
        self._map_changed()

    def revive(self, osd: int) -> None:
        """The OSD is up and in again; PGs recover from their logs."""
        self.toys[osd] = self.toys[osd]._replace(up=True, reweight=1.0)
        for pg in self.pg.values():
            if osd in pg.data:
                pg.recovering_until = self.now + self.peer_seconds + self.recovery_seconds
        for pgid, raw in self._before_out.pop(osd, {}).items():
            self.pg[pgid].mon.raw = raw
        self._map_changed()

    def mark_out(self, osd: int) -> None:
        """Other OSDs take its places."""
        self.toys[osd] = self.toys[osd]._replace(reweight=0.0)
        for pgid, pg in self.pg.items():
            if osd in pg.mon.raw:
                self._before_out.setdefault(osd, {})[pgid] = list(pg.mon.raw)
                pg.mon.raw[pg.mon.raw.index(osd)] = self._spare(pg.mon.raw, osd)
        self._map_changed()

    def _spare(self, raw: Sequence[int], gone: int) -> int:
        taken = {self.toys[osd].domain for osd in raw if osd in self.toys and osd != gone}
        return next((osd for osd, toy in self.toys.items()
                     if toy.up and toy.reweight and toy.crush_weight and toy.domain not in taken),
                    HOLE)

    def set_upmap(self, pgid: str, items: Sequence[Tuple[int, int]]) -> None:
        """An upmap of others; it replaces any that the PG had."""
        self.pg[pgid].mon.put_items(items)
        self._map_changed()

    def tick(self, seconds: float = 1.0) -> None:
        self.now += seconds
        changed = self._balance() or bool(self._late)
        for pgid in self._late:
            self.pg[pgid].temp = self._have(pgid, self.pg[pgid])
        self._late = ()
        for pgid, pg in self.pg.items():
            if pg.peering_until is not None:
                if self.now >= pg.peering_until:
                    pg.peering_until = None
                    changed |= self._peered(pgid, pg)
            elif pg.temp is not None and self._backfills(pgid, pg):
                pg.copied_seconds += seconds
                if pg.copied_seconds >= self.backfill_seconds:
                    pg.data, pg.temp, changed = self._held(pgid, pg), None, True
                    self.released.pop(pgid, None)
                    self.moved.append(Moved(self.now, pgid, pg.up))
                    self._leads(pg.up)
        self.epoch += changed
        moving = sum(1 for pg in self.pg.values() if pg.temp is not None)
        self.most_unclean = max(self.most_unclean, len(self.pg) - self.report_now().active_clean)
        if not self.flags & STOPS_BACKFILL:
            self.most_moving = max(self.most_moving, moving)
        if self.now - self._stats_at >= self.period:
            self.report()
        self._views = [*self._views, self._view()][-10:]

    def _backfills(self, pgid: str, pg: FakePg) -> bool:
        """After recovery, and if it has min_size; norebalance does not stop what lacks copies."""
        copies = self._copies(pgid, pg)
        lacking = copies < 3 and pgid not in self.empty
        stopped = self.flags & ({'nobackfill'} if lacking else STOPS_BACKFILL)
        return (not stopped and copies >= 2 and self.now >= pg.recovering_until
                and not (lacking and self._waits_for_empty(pg)))

    def _waits_for_empty(self, pg: FakePg) -> bool:
        """A deferred PG of the same priority has the only reservation of one of its OSDs."""
        return bool(self.flags & STOPS_BACKFILL) and any(
            set(self.pg[pgid].up) & set(pg.up) for pgid in self._deferred())

    def _deferred(self) -> List[str]:
        """Undersized PGs without objects that backfill."""
        return [pgid for pgid in self.empty if self.pg[pgid].temp is not None
                and self._copies(pgid, self.pg[pgid]) == 2]

    def _balance(self) -> bool:
        if not self.balances or self.balancer_active() != 'true':
            return False
        for pg in self.pg.values():
            if pg.mon.stored.items and pg.temp is None:
                pg.mon.put_items([])
                self._interval_changes()
                return True
        return False

    def _leads(self, osds: OsdSet) -> None:
        """The first of them tells the mons that it is about to serve a PG, before it does."""
        for osd in [osd for osd in osds if osd != HOLE][:1]:
            self.led[osd] = self.epoch

    def _peered(self, pgid: str, pg: FakePg) -> bool:
        self._leads(pg.up if pg.temp is None else pg.temp)
        same = self._in_place(pgid, pg)
        if not same and (self.nearly_empty and pgid in self.released
                         or self.filled_by_log.intersection(pg.up)):
            same, pg.recovering_until = True, self.now + self.recovery_seconds
            self.moved.append(Moved(self.now, pgid, pg.up))
        if same:
            pg.data = self._held(pgid, pg)
            self.released.pop(pgid, None)
        wanted = None if same else self._have(pgid, pg)
        changed = pg.temp != wanted
        pg.temp = wanted
        return changed

    def _in_place(self, pgid: str, pg: FakePg) -> bool:
        have = self._have(pgid, pg)
        return pg.up == have or (pool_of(pgid) == 1 and set(pg.up) == set(have))

    def _have(self, pgid: str, pg: FakePg) -> OsdSet:
        """OSDs that are up and have the PG's data."""
        return pg.live(pg.data, pool_of(pgid) == 2)

    def _held(self, pgid: str, pg: FakePg) -> OsdSet:
        """Where the data is once it is on the up set: also on OSDs that are down and had it."""
        placed = [osd if osd in pg.up or osd in pg.data else HOLE for osd in pg.mon.up()]
        return tuple(osd for osd in placed if osd != HOLE or pool_of(pgid) == 2)

    def _copies(self, pgid: str, pg: FakePg) -> int:
        return len(set(self._have(pgid, pg)) - {HOLE})

    def _degraded(self, pgid: str, pg: FakePg) -> bool:
        if pgid in self.empty:
            return False
        return (pgid in self.degraded or self._copies(pgid, pg) < 3
                or self.now < pg.recovering_until)

    def _interval_changes(self, released: Mapping[str, Placement] = {}) -> None:
        """`released`: by commands of perfguard, which sees the PGs there."""
        for pgid, pg in self.pg.items():
            up = pg.live(pg.mon.up(), pool_of(pgid) == 2)
            if up == pg.up:
                continue
            stayed = self._in_place(pgid, pg) and pg.temp is None
            known = released.get(pgid) == Placement(pg.up, pg.up) and pgid not in self.hidden
            self.hidden.discard(pgid)
            pg.up, pg.copied_seconds = up, 0.0
            pg.peering_until = self.now + self.peer_seconds
            # The mons drop a pg_temp that does not differ from the up set.
            if pgid in self._primes and not self._in_place(pgid, pg):
                pg.temp = self._have(pgid, pg)
            if self._in_place(pgid, pg):
                self.released.pop(pgid, None)
            elif stayed and known and 'norebalance' not in self.flags:
                self.released[pgid] = self._transfer(pgid, pg)

    def _transfer(self, pgid: str, pg: FakePg) -> Transfer:
        have = self._have(pgid, pg)
        if pool_of(pgid) == 2:
            pairs = [(old, new) for old, new in zip(have, pg.up) if old != new]
            sources = {old for old, _ in pairs} - {HOLE}
            targets = {new for _, new in pairs} - {HOLE}
        else:
            sources, targets = set(have) - set(pg.up), set(pg.up) - set(have)
        # A shard that is nowhere is rebuilt from all others.
        rebuilt = pool_of(pgid) == 2 and len(sources) < len(targets)
        # An OSD that is to lead the PG and has its data does so at once.
        leading = pg.up[0] if pool_of(pgid) == 1 and pg.up[0] in have else next(
            (osd for osd in have if osd != HOLE), -1)
        return Transfer(frozenset(have if rebuilt else sources) - {HOLE}, frozenset(sources),
                        frozenset(targets), leading)

    def report(self) -> None:
        """The OSDs' reports reach the mgr."""
        self._stats, self._stats_at = self.report_now(), self.now

    def report_now(self) -> PgCounts:
        peering = remapped = degraded = inactive = clean = 0
        for pgid, pg in self.pg.items():
            still, lacking = pg.peering_until is None, self._degraded(pgid, pg)
            peering += not still
            remapped += pg.temp is not None
            degraded += lacking
            inactive += not still or self._copies(pgid, pg) < 2
            clean += still and pg.temp is None and not lacking
        return PgCounts(total=len(self.pg), active_clean=clean, inactive=inactive,
                        in_transition=peering, degraded=degraded, remapped=remapped,
                        backfilling=remapped, undersized_empty=len(self._deferred()),
                        degraded_waiting=sum(
                            pg.temp is not None and self._degraded(pgid, pg)
                            and self._waits_for_empty(pg) for pgid, pg in self.pg.items()))

    # ---- what tests look at

    def entries(self) -> Dict[str, UpmapEntry]:
        found = {}
        for pgid, pg in self.pg.items():
            entry = UpmapEntry(tuple(pg.mon.stored.items), None if pg.mon.stored.vector is None
                               else tuple(pg.mon.stored.vector))
            if entry:
                found[pgid] = entry
        return found

    def foreign(self) -> Tuple[FrozenSet[str], Dict[str, str], Dict[int, str]]:
        """Everything outside the upmaps that a campaign has to give back."""
        return frozenset(self.flags), dict(self.config), dict(self.modes)

    def quiet_for(self, pins: Iterable[str]) -> Tuple[FrozenSet[str], Dict[str, str],
                                                      Dict[int, str]]:
        """`foreign` as an aborted campaign leaves it that found the defaults."""
        flags, config, modes = FakeCluster().foreign()
        pools = {pool_of(pgid) for pgid in pins}
        return (flags, {**config, **({BALANCER: 'false'} if pools else {})},
                {pool: 'off' if pool in pools and mode == 'on' else mode
                 for pool, mode in modes.items()})

    def purge(self, osd: int) -> None:
        """The OSD is gone from the OSDMap and from CRUSH."""
        del self.toys[osd]
        self.led.pop(osd, None)
        self.uuids[osd] = 'another'
        self.crush_version_ += 1
        self.epoch += 1

    def destroy(self, osd: int) -> None:
        """The OSD is stopped and destroyed; its id and its place in CRUSH stay."""
        self.destroyed.add(osd)
        self.uuids[osd] = '00000000-0000-0000-0000-000000000000'
        self.take_down(osd)
        self.mark_out(osd)

    def create_again(self, osd: int) -> None:
        """With the id of a destroyed OSD, on another device."""
        self.destroyed.discard(osd)
        self.uuids[osd] = 'second'
        self.revive(osd)

    def clean(self) -> bool:
        return self.report_now().active_clean == len(self.pg) and all(
            pg.up == pg.data for pg in self.pg.values())

    def remapped(self) -> List[str]:
        return sorted(pgid for pgid, pg in self.pg.items() if pg.temp is not None)

    # ---- cluster.ports.Cluster

    def map_view(self) -> FakeView:
        return self._view() if not self.lag else self._views[max(-self.lag, -len(self._views))]

    def _view(self) -> FakeView:
        self._crush_of[self.crush_version_] = dict(self.toys)
        for pg in self.pg.values():
            if pg.data:
                self.led.setdefault(pg.data[0], 1)
        entries = self.entries()
        pools = {1: Pool(1, 'rep', False, 3, 2, 0, self.pgs, self.pgs, self.pgs, self.modes[1]),
                 2: Pool(2, 'ec', True, 3, 2, 0, self.pgs, self.pgs, self.pgs, self.modes[2],
                         data_shards=2, flags=self.ec_flags)}
        osdmap = OsdMap(
            epoch=self.epoch, flags=frozenset(self.flags), pools=pools,
            osds={i: Osd(i, toy.up, toy.reweight, fullness=self.fullness.get(i, ''),
                         up_thru=self.led.get(i, 0), uuid=self.uuids.get(i, 'first'),
                         destroyed=i in self.destroyed,
                         primary_affinity=self.affinity.get(i, 1.0))
                  for i, toy in self.toys.items()},
            upmap_items={pgid: e.items for pgid, e in entries.items() if e.items},
            upmap_vectors={pgid: e.vector for pgid, e in entries.items()
                           if e.vector is not None},
            pg_temp={pgid: pg.temp for pgid, pg in self.pg.items() if pg.temp is not None},
            min_compat_client='luminous', noout=frozenset(self.noout),
            noout_classes=frozenset(self.noout_classes))
        return FakeView(osdmap, self.crush_version_, {
            pgid: Placement(pg.up, pg.up if pg.temp is None else pg.temp)
            for pgid, pg in self.pg.items()})

    def crush(self, version: int) -> CrushRules:
        known = self.toys if version == self.crush_version_ else self._crush_of.get(
            version, self.toys)
        toys = {osd: toy for osd, toy in known.items() if osd not in self.not_in_crush}
        return CrushRules.from_dump({**ToyMon(toys, 3, ()).crush_dump(),
                                     'tunables': self.tunables,
                                     'devices': [{'id': osd, 'class': name} for osd, name
                                                 in self.device_classes.items()],
                                     'choose_args': self.choose_args or None})

    def pool_space(self, pool_id: int) -> Optional[PoolSpace]:
        return PoolSpace(1 << 40, 0, 0)

    def release(self) -> str:
        return '18.2.7'

    def mgr_host(self) -> str:
        return 'h0'

    def free_bytes(self) -> int:
        return 1 << 40

    def connection(self) -> Tuple[str, str]:
        return '', '127.0.0.1'

    def ask(self, topic: str, osds: Iterable[int], command: Mapping[str, Any],
            patience_seconds: float = OSD_ANSWER_SECONDS) -> None:
        """No OSD answers."""

    def asked(self, topic: str) -> Set[int]:
        return set()

    def answers(self, topic: str) -> Dict[int, Any]:
        return {}

    def pool_shared(self) -> Dict[int, float]:
        return dict(self.shared)

    def osd_space(self) -> Dict[int, Space]:
        return {osd: Space(self.sizes.get(osd, 1 << 40), 1 << 35,
                           sum(osd in pg.data or osd in pg.up for pg in self.pg.values()))
                for osd in self.toys}

    def pgs_per_osd_limit(self) -> int:
        return self.pg_limit

    def hard_pg_limit(self) -> int:
        return 3 * self.pg_limit

    def mon_pg_limits(self) -> Tuple[int, int]:
        return self.pg_limit, self.pool_pg_limit

    def split_limit(self) -> int:
        return self.max_pg_num_change

    def default_crush_rule(self) -> int:
        return -1

    def recommended_pg_nums(self) -> Dict[str, int]:
        if self.recommended is None:
            raise OSError('pg_autoscaler: no such module')
        return self.recommended

    def balancing(self) -> Balancing:
        return self.balancer

    def inventory(self, view: object) -> Inventory:
        return self.inventory_

    def osd_versions(self, osds: Iterable[int]) -> Dict[int, str]:
        return {osd: self.versions.get(osd, '') for osd in osds}

    def drives(self, osds: Iterable[int]) -> Dict[int, str]:
        return {osd: 'memstore' for osd in osds}

    def orchestrating(self) -> Orchestrating:
        return self.orchestrator

    def drive_ids(self, osds: Iterable[int]) -> Dict[int, str]:
        return {osd: self.drive_ids_.get(osd, '') for osd in osds}

    def device_ids(self) -> Dict[str, str]:
        return {}

    def drive_samples(self, device_id: str, seconds: float) -> Dict[float, Any]:
        return {}

    def outlook(self, osdmap: OsdMap, weights: Mapping[int, float],
                crush_map: Optional[bytes], whole: bool = False,
                setting: Optional[PoolSetting] = None) -> Outlook:
        assert setting is None, 'it has one rule only'
        if self.no_tools:
            return NoFuture(self.no_tools)
        weights = weights if crush_map is None else weights_of(crush_map)
        kept = self.toys if crush_map is None else {}
        toys = {**kept, **{osd: self.toys[osd]._replace(crush_weight=weight)
                           for osd, weight in weights.items()}}
        pgs = self._with(toys)
        if crush_map is not None:
            # The fake knows only its weights: other changes may move any PG.
            pgs = {pgid: pg._replace(present=()) if pg.raw == pg.present else pg
                   for pgid, pg in pgs.items()}
        return Future(pgs, CrushRules.from_dump(ToyMon(toys, 3, ()).crush_dump()), crush_map)

    def grown(self, osdmap: OsdMap, new: NewHosts) -> Union[Grown, NoFuture]:
        """Hosts get the number of their first OSD, as in `_new_osds`."""
        if self.no_tools:
            return NoFuture(self.no_tools)
        added = {osd: ToyOsd(host.osds[0], new.weight) for host in new.hosts for osd in host.osds}
        crushes = [CrushRules.from_dump(ToyMon({**self.toys, **{
            osd: toy._replace(crush_weight=weight) for osd, toy in added.items()}}, 3, ()
        ).crush_dump()) for weight in (0.0, new.weight)]
        return Grown(Future(self._with({**self.toys, **added}), crushes[1]), crushes[0])

    def shrunk(self, osdmap: OsdMap, lost: AbstractSet[int]) -> Outlook:
        if self.no_tools:
            return NoFuture(self.no_tools)
        toys = {osd: toy._replace(reweight=0.0) if osd in lost else toy
                for osd, toy in self.toys.items()}
        return Future(self._with(toys), CrushRules.from_dump(ToyMon(toys, 3, ()).crush_dump()))

    def _with(self, toys: Mapping[int, ToyOsd]) -> Dict[str, FuturePg]:
        return {pgid: FuturePg(self._whole(pgid, pg), tuple(self.raw_under(pgid, toys)),
                               present=self._present(pgid, toys)) for pgid, pg in self.pg.items()}

    def _present(self, pgid: str, toys: Mapping[int, ToyOsd]) -> OsdSet:
        """Where CRUSH places a PG now; () if the fake does not know whether that will differ: many
        of its changes place no PG elsewhere."""
        is_known = self.raw_under(pgid, toys) is not self.pg[pgid].mon.raw
        return tuple(self.raw_under(pgid, self.toys)) if is_known else ()

    def _whole(self, pgid: str, pg: FakePg) -> OsdSet:
        """Its OSDs, with those that are down and in."""
        if pg.temp is not None:
            return pg.temp
        gone = {osd for osd in pg.mon.up() if osd not in self.toys or osd in self.destroyed
                or not self.toys[osd].up and not self.toys[osd].reweight}
        return tuple(HOLE if osd in gone else osd for osd in pg.mon.up()
                     if osd not in gone or pool_of(pgid) == 2)

    def crush_map(self) -> Tuple[bytes, int]:
        if self.no_crush_map:
            raise OSError('the mons do not give the CRUSH map: no answer')
        weights = {osd: weight for osd, weight in self._weights().items()
                   if osd not in self.not_in_crush}
        return json.dumps(weights).encode(), self.crush_version_

    def compiled_crush_map(self, given: bytes, ids: int) -> bytes:
        if not given.startswith(b'{'):
            raise ToolFailed('crushtool failed: syntax error')
        return given

    def crush_rules(self, crush_map: bytes) -> CrushRules:
        toys = {osd: self.toys[osd]._replace(crush_weight=weight)
                for osd, weight in weights_of(crush_map).items()}
        return CrushRules.from_dump(ToyMon(toys, 3, ()).crush_dump())

    def signals(self, osdmap: OsdMap) -> Signals:
        counts = replace(self._stats, **self.trouble)
        if 'inactive' in self.trouble and 'in_transition' not in self.trouble:
            # ceph-mgr counts PGs that peer as inactive, too.
            counts = replace(counts, inactive=counts.inactive + counts.in_transition)
        down = sum(not toy.up for toy in self.toys.values())
        health = {**({'OSD_DOWN': '%d osds down' % down} if down else {}), **self.health}
        moving = {pgid: pg for pgid, pg in self.pg.items() if pg.temp is not None}
        copying = sum(self._backfills(pgid, pg) for pgid, pg in moving.items())
        return Signals(counts, slow_ops=self.slow_ops, slow_daemons=dict(self.slow_daemons),
                       health=health, muted=frozenset(self.muted),
                       misplaced_objects=sum(1000 - int(pg.copied_seconds)
                                             for pg in moving.values()),
                       recovered_objects=copying,
                       pool_bytes={1: self.pgs << 30, 2: self.pgs << 31})

    def read_loads(self, seconds: float) -> None:
        self.loads_wanted.append(seconds)

    def read_without_probes(self, seconds: float) -> None:
        self.without_probes_until = self.now + seconds

    def read_by_pg(self, osds: AbstractSet[int]) -> None:
        self.read_osds = frozenset(osds)

    def count_clients(self, counting: bool) -> None:
        self.counts_clients = counting

    def readings(self, view: object, signals: Signals) -> Readings:
        if not (self.nearly_empty or self.filled_by_log) or self.read.osd_counts is not None:
            return self.read
        return replace(self.read, osd_counts={osd: PgCounts(total=9, degraded=sum(
            1 for pgid, pg in self.pg.items() if osd in pg.up and self._degraded(pgid, pg)))
            for osd in self.toys})

    def close(self) -> None:
        self.closed = True

    def degraded_osds(self) -> FrozenSet[int]:
        return frozenset(osd for pgid, pg in self.pg.items() if self._degraded(pgid, pg)
                         for osd in (pg.up if pg.temp is None else pg.temp) if osd != HOLE)

    def stats_period(self) -> float:
        return self.period

    def balancer_active(self) -> Optional[str]:
        return self.config.get(BALANCER, 'true')

    def balancer_busy(self) -> bool:
        return self.balancer_finishing

    def stored_options(self) -> Optional[Dict[str, Dict[str, str]]]:
        self.stored_reads += 1
        if self.config_unread:
            return None
        stored = {'mgr': dict(self.config), 'mon': dict(self.mon_config)}
        for (who, name), value in self.osd_config.items():
            if '/' not in who:
                stored.setdefault(who, {})[name] = value
        return stored

    def stored(self, keys: Sequence[str]) -> Mapping[str, Optional[str]]:
        self.read_back += 1
        if self.kv is None:
            return {}
        return {key: self.kv.lost[key] if key in self.kv.lost else self.kv.data.get(key)
                for key in keys}

    def unanswered(self) -> bool:
        return self.mons_silent

    def mons_alike(self) -> bool:
        return not self.mons_differ

    def active_gid(self) -> int:
        self.mgr_maps_read += 1
        return self.gid

    def page(self) -> str:
        return 'http://a:7000/perfguard'

    def remove_osd(self, osd: int) -> FakeReply:
        self.fault.step()
        self.removals.append(osd)
        return FakeReply(self.removal_retval, error='' if self.removal_retval == 0 else 'no host')

    def switch_balancer(self, active: bool) -> FakeReply:
        self.fault.step()
        self.config[BALANCER] = 'true' if active else 'false'
        return FakeReply(0)

    def run(self, commands: Sequence[Mapping[str, Any]]) -> List[FakeReply]:
        """All in one proposal; a crash in between leaves those before it."""
        replies = []
        view = self.map_view()
        seen = {pgid: place for pgid, place in view.placements.items()
                if view.crush_version == self.crush_version_}
        try:
            for command in commands:
                self.fault.step()
                self.sent.append(dict(command))
                replies.append(self._apply(command))
        finally:
            for pg in self.pg.values():
                pg.mon.next_epoch()
            self.epoch += 1
            self._interval_changes(seen)
            self._primes.clear()
            self._late = [command['pgid'] for command in commands
                          if command['prefix'] == 'osd pg-temp'] if self.late_primes else []
        return replies

    def _apply(self, command: Mapping[str, Any]) -> FakeReply:
        prefix = command['prefix']
        error = self.refuse.get(prefix) or self.refuse.get(
            '%s %s' % (prefix, command.get('name')))
        if error:
            return FakeReply(-22, error)
        try:
            {'osd set': lambda c: self.flags.add(c['key']),
             'osd unset': lambda c: self._unset(c['key']),
             'config set': self._config_set,
             'config rm': self._config_rm,
             'osd primary-affinity': lambda c: self.affinity.update({c['id']: c['weight']}),
             'osd pool set': self._pool_set,
             'osd pg-temp': self._prime,
             'osd setcrushmap': self._set_crush_map,
             'osd crush reweight': lambda c: self._weigh(int(c['name'][4:]), c['weight']),
             'osd pg-upmap-items': lambda c: self.pg[c['pgid']].mon.put_items(
                 list(zip(c['id'][::2], c['id'][1::2]))),
             'osd rm-pg-upmap-items': lambda c: self.pg[c['pgid']].mon.put_items([]),
             'osd pg-upmap': lambda c: self.pg[c['pgid']].mon.put_vector(c['id']),
             'osd rm-pg-upmap': lambda c: self.pg[c['pgid']].mon.put_vector(None),
             }[prefix](command)
        except Refused:
            return FakeReply(-22, 'refused')
        return FakeReply(0)

    def _prime(self, command: Mapping[str, Any]) -> None:
        self.primed.add(command['pgid'])
        if not (self.drops_primes or self.late_primes):
            self._primes.add(command['pgid'])

    def _unset(self, flag: str) -> None:
        self.flags.discard(flag)
        self.flags_set_by_others_.discard(flag)

    def order_flag(self, flag: str, is_set: bool = True) -> None:
        """By an operator."""
        if is_set:
            self.flags.add(flag)
            self.flags_set_by_others_.add(flag)
        else:
            self._unset(flag)
        self.epoch += 1

    def flags_set_by_others(self) -> FrozenSet[str]:
        return frozenset(self.flags_set_by_others_)

    def set_value_again(self, setting: str, value: str) -> None:
        """By an operator, of a setting that has this value already."""
        self.values_set_by_others_[setting] = value, self.now

    def values_set_by_others(self, balancer_seconds: float) -> Mapping[str, Tuple[str, float]]:
        return {setting: value for setting, value in self.values_set_by_others_.items()
                if balancer_seconds < math.inf or setting != BALANCER}

    def _config_set(self, command: Mapping[str, Any]) -> None:
        if command['who'] in ('mgr', 'mon'):
            self._section(command['who'])[command['name']] = command['value']
        else:
            self.osd_config[command['who'], command['name']] = command['value']

    def _config_rm(self, command: Mapping[str, Any]) -> None:
        if command['who'] in ('mgr', 'mon'):
            self._section(command['who']).pop(command['name'], None)
        else:
            self.osd_config.pop((command['who'], command['name']), None)

    def _set_crush_map(self, command: Mapping[str, Any]) -> None:
        if command['prior_version'] != self.crush_version_:
            raise Refused()
        given = weights_of(command['input'])
        for osd in self.toys:
            self._weigh(osd, given.get(osd, 0.0))
        self.not_in_crush = set(self.toys) - set(given)

    def _section(self, who: str) -> Dict[str, str]:
        return {'mgr': self.config, 'mon': self.mon_config}[who]

    def config_entries(self) -> Optional[Tuple[ConfigEntry, ...]]:
        return tuple(ConfigEntry(who.partition('/')[0], who.partition('/')[2], name, value)
                     for (who, name), value in self.osd_config.items())

    def option_changes(self) -> Optional[Tuple[OptionChange, ...]]:
        return None if self.mute else tuple(self.option_log)

    def degraded_sleep(self, osd_versions: AbstractSet[str]) -> str:
        return self.degraded_sleeps.get(osd_versions, 'osd_recovery_sleep')

    def inquire(self, questions: Sequence[Question]) -> Mapping[Question, str]:
        return {} if self.mute else {question: self._answer(question) for question in questions}

    def _answer(self, question: Question) -> str:
        if question.pgid:
            waits = question.pgid in self.backfill_wait
            return 'active+remapped+' + ('backfill_wait' if waits else 'backfilling')
        if question.option == 'osd_op_queue' and question.osd in self.queues:
            return self.queues[question.osd]
        values = (self.osd_config.get((who, question.option))
                  for who in ('osd.%d' % question.osd, 'osd'))
        return self.osd_shows.get(question.option, next(filter(None, values), ''))

    def _pool_set(self, command: Mapping[str, Any]) -> None:
        assert command['var'] == 'pg_autoscale_mode'
        self.modes[{'rep': 1, 'ec': 2}[command['pool']]] = command['val']

    def health_checks(self, checks: Mapping[str, Any]) -> None:
        self.checks = dict(checks)

    def progress(self, event_id: str, message: str, share: float) -> None:
        self.progress_events[event_id] = share

    def progress_done(self, event_id: str) -> None:
        self.progress_events.pop(event_id, None)

    def cluster_log(self, text: str) -> None:
        self.logged.append(text)
