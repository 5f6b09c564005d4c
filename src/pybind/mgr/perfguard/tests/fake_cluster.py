# SPDX-License-Identifier: LGPL-2.1-or-later
"""A small cluster in memory: mon, PGs that peer and backfill, settings, and the mgr's store.

It knows time only through `tick`, and can fail before any write or command (`Fault`), which is how
the tests let an mgr crash between any two steps.
"""
import json
from dataclasses import dataclass, field, replace
from typing import (Any, Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Sequence,
                    Set, Tuple)

from perfguard.cluster.types import (ConfigEntry, Osd, OsdMap, OsdSet, PgCounts, Placement, Pool,
                                     PoolSpace, Question, Readings, Signals, Space, UpmapEntry,
                                     pool_of)
from perfguard.upmap.crush import CrushRules
from perfguard.upmap.future import Future, FuturePg, NoFuture, Outlook, ToolFailed

from .mon_model import Refused, ToyMon, ToyOsd

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

    def get_store(self, key: str) -> Optional[str]:
        return self.data.get(key)

    def set_store(self, key: str, val: Optional[str]) -> None:
        self.fault.step()
        if val is None:
            self.data.pop(key, None)
        else:
            assert len(val.encode()) <= 65536
            self.data[key] = val

    def get_store_prefix(self, key_prefix: str) -> Dict[str, str]:
        return {k: v for k, v in self.data.items() if k.startswith(key_prefix)}


class FakeReply(NamedTuple):
    retval: Optional[int]
    error: str = ''


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

    def leads(self, pool_id: int) -> Mapping[str, int]:
        return {pgid: place.acting[0] for pgid, place in self.placements.items()
                if pool_of(pgid) == pool_id}


@dataclass
class Moved:
    """One backfill that ended."""
    time: float
    pgid: str
    up: OsdSet


@dataclass
class FakeCluster:
    """`hosts` hosts with one OSD each; pool 1 is replicated (3), pool 2 erasure coded (2+1)."""
    hosts: int = 8
    pgs: int = 12
    peer_seconds: float = 2.0
    backfill_seconds: float = 4.0
    period: float = 2.0
    #: How many ticks the mgr's OSDMap is behind the mon's.
    lag: int = 0
    fault: Fault = field(default_factory=Fault)

    now: float = 1000.0
    epoch: int = 100
    crush_version_: int = 1
    flags: Set[str] = field(default_factory=lambda: {'noscrub'})
    config: Dict[str, str] = field(default_factory=lambda: {BALANCER: 'true'})
    mon_config: Dict[str, str] = field(default_factory=lambda: {'mon_op': '1'})
    modes: Dict[int, str] = field(default_factory=lambda: {1: 'on', 2: 'warn'})
    health: Dict[str, str] = field(default_factory=dict)
    trouble: Dict[str, int] = field(default_factory=dict)
    fullness: Dict[int, str] = field(default_factory=dict)
    slow_ops: int = 0
    #: What the OSDs report.
    #: PGs whose acting set was sent with their release.
    primed: Set[str] = field(default_factory=set)
    #: Nobody is at work, and one reading is enough to know.
    read: Readings = Readings(seconds=60.0, counters={}, clients=(), places={})
    #: The module has given up what it had in the OSDs.
    closed: bool = False
    #: The configuration database but for the mgr's section, by (who, option).
    osd_config: Dict[Tuple[str, str], str] = field(default_factory=dict)
    #: What OSDs show of their own options, whatever the configuration database has.
    osd_shows: Dict[str, str] = field(default_factory=lambda: {'osd_op_queue': 'wpq'})
    affinity: Dict[int, float] = field(default_factory=dict)
    #: PGs under way that wait for their backfill to begin.
    backfill_wait: Set[str] = field(default_factory=set)
    #: OSDs and PGs answer no question.
    mute: bool = False
    #: Commands of this prefix are answered with this error and do nothing.
    refuse: Dict[str, str] = field(default_factory=dict)
    #: The raw sets once all OSDs have a CRUSH weight.
    coming: Dict[str, List[int]] = field(default_factory=dict)
    #: Why Ceph's tools are of no use.
    no_tools: str = ''
    #: Most PGs that were remapped or peering at a time.
    most_unclean: int = 0

    def __post_init__(self) -> None:
        self.toys: Dict[int, ToyOsd] = {i: ToyOsd(i) for i in range(self.hosts)}
        self.pg: Dict[str, FakePg] = {}
        for pool in (1, 2):
            for seed in range(self.pgs):
                raw = tuple((seed * 3 + pool + i * (1 + seed % 2)) % self.hosts for i in range(3))
                self.pg['%d.%x' % (pool, seed)] = FakePg(ToyMon(self.toys, 3, raw), raw, raw)
        self.moved: List[Moved] = []
        self.sent: List[Dict[str, Any]] = []
        self.logged: List[str] = []
        self.checks: Dict[str, Any] = {}
        self.progress_events: Dict[str, float] = {}
        self.most_moving = 0
        self.stored_reads = 0
        self._stats = self._count()
        self._stats_at = self.now
        self._views: List[FakeView] = [self._view()]

    # ---- what the operator and time do

    def add_upmap(self, pgid: str, source: int, target: int) -> None:
        """An upmap of somebody else's, its data in place."""
        pg = self.pg[pgid]
        pg.mon.put_items([(source, target)])
        pg.mon.next_epoch()
        assert pg.mon.stored.items
        pg.data = pg.up = tuple(pg.mon.up())
        self.epoch += 1

    def expand(self, count: int = 3, share: int = 2) -> List[int]:
        """New hosts take a place in every `share`-th PG: the CRUSH change of the tests."""
        new = list(range(len(self.toys), len(self.toys) + count))
        self.toys.update({osd: ToyOsd(osd) for osd in new})
        for number, (pgid, pg) in enumerate(sorted(self.pg.items())):
            if number % share == 0:
                pg.mon.raw[number % 3] = new[number % count]
        self._crush_changed()
        return new

    def add_waiting(self, count: int = 3, share: int = 2) -> List[int]:
        """New hosts with OSDs of CRUSH weight 0; with their weights they take the places that
        `expand` gives them."""
        new = list(range(len(self.toys), len(self.toys) + count))
        self.toys.update({osd: ToyOsd(osd, crush_weight=0.0) for osd in new})
        for number, (pgid, pg) in enumerate(sorted(self.pg.items())):
            raw = list(pg.mon.raw)
            if number % share == 0:
                raw[number % 3] = new[number % count]
                if number % 4 == 0:  # its first two OSDs change places, too: no pairs can tell that
                    first = (number + 1) % 3
                    second = (number + 2) % 3
                    raw[first], raw[second] = raw[second], raw[first]
            self.coming[pgid] = raw
        self.crush_version_ += 1
        self.epoch += 1
        return new

    def _weigh(self, osd: int, weight: float) -> None:
        self.toys[osd] = self.toys[osd]._replace(crush_weight=weight)
        self.crush_version_ += 1
        if self.coming and all(toy.crush_weight for toy in self.toys.values()):
            for pgid, raw in self.coming.items():
                self.pg[pgid].mon.raw = list(raw)

    def set_raw(self, pgid: str, raw: Sequence[int]) -> None:
        self.pg[pgid].mon.raw = list(raw)
        self._crush_changed()

    def _crush_changed(self) -> None:
        self.crush_version_ += 1
        self.epoch += 1
        for pg in self.pg.values():
            pg.mon.next_epoch()
        self._interval_changes()

    def tick(self, seconds: float = 1.0) -> None:
        self.now += seconds
        changed = False
        for pgid, pg in self.pg.items():
            if pg.peering_until is not None:
                if self.now >= pg.peering_until:
                    pg.peering_until = None
                    changed |= self._peered(pgid, pg)
            elif pg.temp is not None and not self.flags & STOPS_BACKFILL:
                pg.copied_seconds += seconds
                if pg.copied_seconds >= self.backfill_seconds:
                    pg.data, pg.temp, changed = pg.up, None, True
                    self.moved.append(Moved(self.now, pgid, pg.up))
        self.epoch += changed
        moving = sum(1 for pg in self.pg.values() if pg.temp is not None)
        self.most_unclean = max(self.most_unclean, len(self.pg) - self._count().active_clean)
        if not self.flags & STOPS_BACKFILL:
            self.most_moving = max(self.most_moving, moving)
        if self.now - self._stats_at >= self.period:
            self.report()
        self._views = [*self._views, self._view()][-10:]

    def _peered(self, pgid: str, pg: FakePg) -> bool:
        same = pg.up == pg.data or (pool_of(pgid) == 1 and set(pg.up) == set(pg.data))
        if same:
            pg.data = pg.up
        wanted = None if same else pg.data
        changed = pg.temp != wanted
        pg.temp = wanted
        return changed

    def _interval_changes(self) -> None:
        for pg in self.pg.values():
            up = tuple(pg.mon.up())
            if up != pg.up:
                pg.up, pg.copied_seconds = up, 0.0
                pg.peering_until = self.now + self.peer_seconds

    def report(self) -> None:
        """The OSDs' reports reach the mgr."""
        self._stats, self._stats_at = self._count(), self.now

    def _count(self) -> PgCounts:
        peering = sum(1 for pg in self.pg.values() if pg.peering_until is not None)
        remapped = sum(1 for pg in self.pg.values() if pg.temp is not None)
        total = len(self.pg)
        return PgCounts(total=total, active_clean=total - peering - remapped, inactive=peering,
                        in_transition=peering, remapped=remapped, backfilling=remapped)

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

    def clean(self) -> bool:
        return all(pg.temp is None and pg.peering_until is None and pg.up == pg.data
                   for pg in self.pg.values())

    def remapped(self) -> List[str]:
        return sorted(pgid for pgid, pg in self.pg.items() if pg.temp is not None)

    # ---- perfguard.loop.Cluster

    def map_view(self) -> FakeView:
        return self._view() if not self.lag else self._views[max(-self.lag, -len(self._views))]

    def _view(self) -> FakeView:
        entries = self.entries()
        pools = {1: Pool(1, 'rep', False, 3, 2, 0, self.pgs, self.pgs, self.pgs, self.modes[1]),
                 2: Pool(2, 'ec', True, 3, 2, 0, self.pgs, self.pgs, self.pgs, self.modes[2],
                         data_shards=2)}
        osdmap = OsdMap(
            epoch=self.epoch, flags=frozenset(self.flags), pools=pools,
            osds={i: Osd(i, toy.up, toy.reweight, fullness=self.fullness.get(i, ''),
                         primary_affinity=self.affinity.get(i, 1.0))
                  for i, toy in self.toys.items()},
            upmap_items={pgid: e.items for pgid, e in entries.items() if e.items},
            upmap_vectors={pgid: e.vector for pgid, e in entries.items()
                           if e.vector is not None},
            pg_temp={pgid: pg.temp for pgid, pg in self.pg.items() if pg.temp is not None},
            min_compat_client='luminous')
        return FakeView(osdmap, self.crush_version_, {
            pgid: Placement(pg.up, pg.temp or pg.up) for pgid, pg in self.pg.items()})

    def crush(self, version: int) -> CrushRules:
        return CrushRules.from_dump(next(iter(self.pg.values())).mon.crush_dump())

    def pool_space(self, pool_id: int) -> Optional[PoolSpace]:
        return PoolSpace(1 << 40, 0, 0)

    def free_bytes(self) -> int:
        return 1 << 40

    def connection(self) -> Tuple[str, str]:
        return '', '127.0.0.1'

    def ask(self, topic: str, osds: Iterable[int], command: Mapping[str, Any]) -> None:
        """Nobody answers."""

    def asked(self, topic: str) -> Set[int]:
        return set()

    def answers(self, topic: str) -> Dict[int, Any]:
        return {}

    def osd_space(self) -> Dict[int, Space]:
        return {osd: Space(1 << 40, 1 << 35) for osd in self.toys}

    def outlook(self, osdmap: OsdMap, weights: Mapping[int, float],
                crush_map: Optional[bytes]) -> Outlook:
        if self.no_tools:
            return NoFuture(self.no_tools)
        weights = weights if crush_map is None else weights_of(crush_map)
        toys = {**self.toys, **{osd: self.toys[osd]._replace(crush_weight=weight)
                                for osd, weight in weights.items()}}
        whole = self.coming and all(toy.crush_weight for toy in toys.values())
        pgs = {pgid: FuturePg(pg.temp or pg.up,
                              tuple(self.coming[pgid] if whole else pg.mon.raw))
               for pgid, pg in self.pg.items()}
        return Future(pgs, CrushRules.from_dump(ToyMon(toys, 3, ()).crush_dump()), crush_map)

    def compiled_crush_map(self, given: bytes) -> bytes:
        if not given.startswith(b'{'):
            raise ToolFailed('crushtool failed: syntax error')
        return given

    def crush_rules(self, crush_map: bytes) -> CrushRules:
        toys = {osd: self.toys[osd]._replace(crush_weight=weight)
                for osd, weight in weights_of(crush_map).items()}
        return CrushRules.from_dump(ToyMon(toys, 3, ()).crush_dump())

    def signals(self, osdmap: OsdMap) -> Signals:
        counts = replace(self._stats, **self.trouble)
        return Signals(counts, slow_ops=self.slow_ops, health=dict(self.health),
                       pool_bytes={1: self.pgs << 30, 2: self.pgs << 31})

    def readings(self, view: object, signals: Signals) -> Readings:
        return self.read

    def close(self) -> None:
        self.closed = True

    def degraded_osds(self) -> FrozenSet[int]:
        return frozenset()

    def stats_period(self) -> float:
        return self.period

    def balancer_active(self) -> Optional[str]:
        return self.config.get(BALANCER, 'true')

    def stored_options(self) -> Dict[str, Dict[str, str]]:
        self.stored_reads += 1
        return {'mgr': dict(self.config), 'mon': dict(self.mon_config)}

    def switch_balancer(self, active: bool) -> FakeReply:
        self.fault.step()
        self.config[BALANCER] = 'true' if active else 'false'
        return FakeReply(0)

    def run(self, commands: Sequence[Mapping[str, Any]]) -> List[FakeReply]:
        """All in one proposal; a crash in between leaves those before it."""
        replies = []
        try:
            for command in commands:
                self.fault.step()
                self.sent.append(dict(command))
                replies.append(self._apply(command))
        finally:
            for pg in self.pg.values():
                pg.mon.next_epoch()
            self.epoch += 1
            self._interval_changes()
        return replies

    def _apply(self, command: Mapping[str, Any]) -> FakeReply:
        prefix = command['prefix']
        if prefix in self.refuse:
            return FakeReply(-22, self.refuse[prefix])
        try:
            {'osd set': lambda c: self.flags.add(c['key']),
             'osd unset': lambda c: self.flags.discard(c['key']),
             'config set': self._config_set,
             'config rm': self._config_rm,
             'osd primary-affinity': lambda c: self.affinity.update({c['id']: c['weight']}),
             'osd pool set': self._pool_set,
             # The primary would ask for the same.
             'osd pg-temp': lambda c: self.primed.add(c['pgid']),
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
        for osd, weight in weights_of(command['input']).items():
            self._weigh(osd, weight)

    def _section(self, who: str) -> Dict[str, str]:
        return {'mgr': self.config, 'mon': self.mon_config}[who]

    def config_entries(self) -> Optional[Tuple[ConfigEntry, ...]]:
        return tuple(ConfigEntry(who.partition('/')[0], who.partition('/')[2], name, value)
                     for (who, name), value in self.osd_config.items())

    def inquire(self, questions: Sequence[Question]) -> Mapping[Question, str]:
        return {} if self.mute else {question: self._answer(question) for question in questions}

    def _answer(self, question: Question) -> str:
        if question.pgid:
            waits = question.pgid in self.backfill_wait
            return 'active+remapped+' + ('backfill_wait' if waits else 'backfilling')
        return self.osd_shows.get(question.option,
                                  self.osd_config.get(('osd', question.option), ''))

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
