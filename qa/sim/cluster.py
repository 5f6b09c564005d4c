# SPDX-License-Identifier: LGPL-2.1-or-later
"""The model cluster: PGs that peer, wait for reservations and are copied, in discrete events.

Only PGs that are not where their data is have a record; all others are rows of arrays. So a model
of a million PGs costs what moves in it.
"""

import functools
import heapq
from dataclasses import dataclass, field
from typing import Callable, Dict, FrozenSet, Iterable, List, Optional, Sequence, Set, Tuple

import numpy as np

from perfguard.cluster.types import UpmapEntry

from .caps import InFlight
from .crush import Tree
from .physics import Hardware, Stall, Usage

SIZE = 3
#: Seconds for which an OSD that is back brings its PGs up to date from their logs.
RECOVERY_SECONDS = 20.0
#: Seconds until an OSD that hangs counts as down: its PGs serve nothing (osd_heartbeat_grace).
GRACE_SECONDS = 20.0
#: paxos_min_wait
MIN_WAIT = 0.05


@dataclass
class Moving:
    """A PG whose data is not on its up set, or that peers."""
    #: Where the data is.
    data: Tuple[int, ...]
    #: The OSDMap shows it remapped (pg_temp).
    temp: bool = False
    #: peering, waiting, copying or copied.
    state: str = 'peering'
    #: Bytes to be copied; 0: it only peers.
    left: float = 0.0
    rate: float = 0.0
    #: Share of the time in which it is copied.
    busy: float = 0.0
    #: Events of an earlier interval, or speed, are void.
    version: int = 0
    since: float = 0.0
    #: OSDs that read and write it, while it is copied.
    osds: Tuple[int, ...] = ()
    #: Reservations that it holds.
    slots: Tuple[Tuple[str, int], ...] = ()


@dataclass
class Model:
    tree: Tree
    #: PGs of each pool.
    pools: Sequence[int]
    hardware: Hardware
    weights: np.ndarray
    #: Of one PG on one OSD.
    pg_bytes: float
    random: np.random.Generator
    #: osd_max_backfills
    backfills: int = 1

    now: float = 1000.0
    epoch: int = 100
    flags: Set[str] = field(default_factory=set)
    propose_seconds: float = 1.0
    min_wait: float = MIN_WAIT
    #: osd_recovery_sleep
    sleep: float = 0.0
    entries: Dict[int, UpmapEntry] = field(default_factory=dict)
    moving: Dict[int, Moving] = field(default_factory=dict)
    down: Set[int] = field(default_factory=set)
    out: Set[int] = field(default_factory=set)
    #: OSD that serves nothing, but is not marked down -> when that began.
    hanging: Dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pgs = sum(self.pools)
        self.pool_of = np.repeat(np.arange(1, len(self.pools) + 1), self.pools)
        self.raw = self.tree.place(np.arange(self.pgs), SIZE, self.weights)
        self.up = self.raw.copy()
        #: Where the data of each PG is.
        self.data = self.raw.copy()
        osds = self.tree.osds
        #: PGs that an OSD leads, by pool, and that it holds.
        self.led = np.zeros((len(self.pools), osds), dtype=np.int64)
        np.add.at(self.led, (self.pool_of - 1, self.up[:, 0]), 1)
        self.holds = np.bincount(self.up.ravel(), minlength=osds)
        #: By OSD: the last epoch in which it was about to serve a PG as its primary.
        self.up_thru = np.where(self.led.any(axis=0), 1, 0)
        #: Factors that scenarios set: time for an operation, by OSD; load of all clients.
        self.slowness = np.ones(osds)
        self.load = 1.0
        self.recovering: Dict[int, float] = {}
        self.in_flight = InFlight(self.tree)
        #: What has moved how often; shards copied in all; PGs that had to move because an OSD was
        #: out; PGs that a change of CRUSH has remapped.
        self.moved: Dict[int, int] = {}
        self.shards = 0
        self.forced: Set[int] = set()
        self.remapped_by_crush = 0
        #: PGs whose entries have changed since the last OSDMap was read.
        self.changed_entries: Set[int] = set()
        self.peering = 0
        self._queue: List[Tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._pending: Optional[List[Callable[[], None]]] = None
        self._committed = self.now
        self._used: Dict[Tuple[str, int], int] = {}
        self._waiting: Dict[int, Dict[int, None]] = {}
        self._copying: Dict[int, Set[int]] = {}
        self._stalls: List[Stall] = []
        self._bytes = np.zeros(osds)
        self._begun, self._copy_seconds = self.now, 0.0
        self._first_epoch = self.epoch

    # ---- time

    def at(self, time: float, what: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._queue, (time, self._number, what))

    def advance(self, until: float, epoch: Optional[int] = None) -> None:
        """Let things happen; `epoch`: no further than to a later OSDMap."""
        while self._queue and self._queue[0][0] <= until:
            self.now, _, what = heapq.heappop(self._queue)
            what()
            if epoch is not None and self.epoch > epoch:
                return
        self.now = until

    def propose(self, change: Callable[[], None]) -> float:
        """In the next OSDMap: the mons gather what arrives within their interval. Returns when."""
        if self._pending is None:
            self._pending = []
            # PaxosService::should_propose
            self._due = max(self.now + self.min_wait, self._committed + self.propose_seconds)
            self.at(self._due, self._commit)
        self._pending.append(change)
        return self._due

    def _commit(self) -> None:
        pending, self._pending = self._pending or [], None
        self.epoch += 1
        self._committed = self.now
        for change in pending:
            change()

    # ---- what operators and hardware do

    def raw_under(self, raw: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """`raw`, in which the OSDs that are out get no PGs."""
        if not self.out:
            return raw
        out = sorted(self.out)
        pgs = np.nonzero(np.isin(raw, out).any(axis=1))[0]
        without = weights.copy()
        without[out] = 0.0
        found = raw.copy()
        found[pgs] = self.tree.place(pgs, SIZE, without)
        return found

    def set_raw(self, raw: np.ndarray, forced: bool = False) -> None:
        """CRUSH has changed; entries that come along are in `entries` already. `forced`: because
        of an OSD that is out, or no longer."""
        changed = np.nonzero((raw != self.raw).any(axis=1))[0].tolist()
        self.raw = raw
        self.place(changed, released=False)
        if forced:
            self.forced.update(changed)

    def place(self, pgs: Iterable[int], released: bool = True) -> None:
        """New up sets, after upmaps or CRUSH have changed. `released`: by a command."""
        for pg in pgs:
            up = self._placed(pg)
            if up != tuple(self.up[pg].tolist()):
                self._change_up(pg, up, released)

    def _placed(self, pg: int) -> Tuple[int, ...]:
        """The up set, with the part of the entry that the mons keep (OSDMap::check_pg_upmaps)."""
        raw = self.raw[pg].tolist()
        entry = self.entries.get(pg)
        if entry is None:
            return tuple(raw)
        vector = entry.vector
        placed = list(raw if vector is None or self.out.intersection(vector) else vector)
        for old, new in entry.items:
            if new not in placed and old in placed and new not in self.out:
                placed[placed.index(old)] = new
        if len(set(map(self.tree.domain_of, placed))) < SIZE \
                or any(not self.weights[osd] for osd in placed):
            return self._keep(pg, UpmapEntry(), raw)
        kept = tuple([(old, new) for old, new in entry.items
                      if old in raw and new not in self.out])
        if entry.items and not kept or vector is not None and (
                list(vector) == raw or self.out.intersection(vector)):
            return self._keep(pg, UpmapEntry(), raw)
        if kept != entry.items:
            self._keep(pg, UpmapEntry(kept, vector), raw)
        return tuple(placed)

    def _keep(self, pg: int, entry: UpmapEntry, raw: List[int]) -> Tuple[int, ...]:
        """The mons keep only this of the PG's entry."""
        self.changed_entries.add(pg)
        if entry:
            self.entries[pg] = entry
        else:
            del self.entries[pg]
        return tuple(raw)

    def fail(self, osd: int) -> None:
        """An OSD hangs and is marked down."""
        self.down.add(osd)
        self.epoch += 1
        self._stop_all_on(osd)
        self._stall_led(osd, GRACE_SECONDS)
        self.kick()

    def hang(self, osd: int) -> None:
        """It answers heartbeats and nothing else, so it stays up."""
        self.hanging[osd] = self.now

    def blocked(self) -> np.ndarray:
        """Numbers of PGs with data on an OSD that hangs."""
        if not self.hanging:
            return np.zeros(0, dtype=np.int64)
        return np.nonzero(np.isin(self.data, sorted(self.hanging)).any(axis=1))[0]

    def revive(self, osd: int) -> None:
        self.down.discard(osd)
        self.epoch += 1
        self.recovering[osd] = self.now + RECOVERY_SECONDS
        self._stall_led(osd, self.stall_seconds())
        self.kick()
        self._start_waiting((osd,))

    def set_flag(self, flag: str, on: bool) -> None:
        (self.flags.add if on else self.flags.discard)(flag)
        self.kick()

    def _stall_led(self, osd: int, seconds: float) -> None:
        for pool, pgs in enumerate(self.led[:, osd].tolist()):
            if pgs:
                rate = pgs * self._pg_rate()
                self._stalls.append(Stall(pool + 1, osd, rate * seconds, seconds))

    def degraded_osds(self) -> FrozenSet[int]:
        """OSDs that are down, or that are being brought up to date."""
        self.recovering = {osd: until for osd, until in self.recovering.items()
                           if until > self.now}
        return frozenset({*self.down, *self.recovering})

    def degraded(self) -> np.ndarray:
        """Numbers of PGs with data on such an OSD."""
        osds = sorted(self.degraded_osds())
        if not osds:
            return np.zeros(0, dtype=np.int64)
        return np.nonzero(np.isin(self.data, osds).any(axis=1))[0]

    # ---- intervals

    def acting(self, pg: int) -> Tuple[int, ...]:
        moving = self.moving.get(pg)
        return moving.data if moving is not None and moving.temp else tuple(self.up[pg].tolist())

    def _change_up(self, pg: int, up: Tuple[int, ...], released: bool) -> None:
        moving = self.moving.get(pg)
        if moving is None:
            moving = self.moving[pg] = Moving(tuple(self.data[pg].tolist()))
        elif moving.state == 'copying':
            self._stop(pg, moving)
        self.in_flight.drop(pg)
        self.up[pg] = up
        moving.left = self.pg_bytes * len(set(up) - set(moving.data))
        if moving.left and released:
            self.in_flight.add(pg, moving.data, up, moving.left)
        elif moving.left:
            self.remapped_by_crush += 1
        self._peer(pg, moving)

    def _peer(self, pg: int, moving: Moving) -> None:
        """Begin an interval."""
        if moving.state != 'peering' or not moving.version:
            self.peering += 1
        moving.state, moving.version, moving.since = 'peering', moving.version + 1, self.now
        seconds = self.stall_seconds()
        self._stalls.append(Stall(int(self.pool_of[pg]), moving.data[0],
                                  self._pg_rate() * seconds, seconds))
        version = moving.version
        primary = (moving.data if moving.temp else tuple(self.up[pg].tolist()))[0]
        self.propose(lambda: self._set_up_thru(primary))
        self.at(self.now + seconds, lambda: self._peered(pg, version))

    def _set_up_thru(self, osd: int) -> None:
        self.up_thru[osd] = self.epoch

    def stall_seconds(self) -> float:
        hardware = self.hardware
        crowd = hardware.crowd_seconds * self.peering
        return float(self.random.lognormal(0.0, 0.3)) * (
            hardware.peering_seconds + hardware.proposals * self.propose_seconds + crowd)

    def _peered(self, pg: int, version: int) -> None:
        moving = self.moving.get(pg)
        if moving is None or moving.version != version:
            return
        self.peering -= 1
        if not moving.left:
            self._settle(pg, moving.data, tuple(self.up[pg].tolist()))
            del self.moving[pg]
            if moving.temp:
                self.propose(lambda: None)  # the mons remove it
            return
        moving.state = 'waiting'
        if not moving.temp:
            self.propose(functools.partial(self._set_temp, moving))
        self._start(pg, moving)

    def _set_temp(self, moving: Moving) -> None:
        moving.temp = bool(moving.left)

    def prime(self, pg: int) -> None:
        """`osd pg-temp`, sent along with the release."""
        if pg in self.moving and self.moving[pg].left:
            self.moving[pg].temp = True

    # ---- copying

    def kick(self) -> None:
        """After flags were cleared or set, or an OSD has gone down."""
        for pg, moving in list(self.moving.items()):
            if moving.state == 'copying' and self._is_stopped(moving):
                self._stop(pg, moving)
            elif moving.state == 'waiting':
                self._start(pg, moving)

    def _is_stopped(self, moving: Moving) -> bool:
        """norebalance stops no PG that is degraded."""
        return 'nobackfill' in self.flags or (
            'norebalance' in self.flags and self.down.isdisjoint(moving.data))

    def _slots(self, pg: int, moving: Moving) -> Tuple[Tuple[str, int], ...]:
        up = self.up[pg].tolist()
        # An OSD that is to lead the PG and has its data does so at once.
        first = up[:1] if up[0] in moving.data else []
        primary = next((osd for osd in (*first, *moving.data) if osd not in self.down),
                       moving.data[0])
        targets = set(up) - set(moving.data)
        return (('local', primary), *(('remote', osd) for osd in sorted(targets)))

    def _start(self, pg: int, moving: Moving) -> None:
        """Copy, once the primary and all targets have a reservation free."""
        slots = self._slots(pg, moving)
        full = [osd for role, osd in slots if self._used.get((role, osd), 0) >= self.backfills
                or osd in self.down]
        if full or self._is_stopped(moving):
            for osd in full:
                self._waiting.setdefault(osd, {})[pg] = None
            return
        for slot in slots:
            self._used[slot] = self._used.get(slot, 0) + 1
        moving.state, moving.since, moving.slots = 'copying', self.now, slots
        moving.osds = tuple(osd for _, osd in slots)
        for osd in moving.osds:
            self._copying.setdefault(osd, set()).add(pg)
        self._respeed(moving.osds)

    def _stop(self, pg: int, moving: Moving) -> None:
        """Give the reservations back."""
        self._progress(moving)
        moving.state, moving.rate, moving.version = 'waiting', 0.0, moving.version + 1
        for slot in moving.slots:
            self._used[slot] -= 1
        osds, moving.osds, moving.slots = moving.osds, (), ()
        for osd in osds:
            self._copying[osd].discard(pg)
        self._respeed(osds)
        self._start_waiting(osds)

    def _start_waiting(self, osds: Iterable[int]) -> None:
        """The first ones that wait for these OSDs, until these have no reservation left."""
        for osd in osds:
            queue = list(self._waiting.pop(osd, ()))
            for place, pg in enumerate(queue):
                if min(self._used.get((role, osd), 0) for role in ('local', 'remote')) \
                        >= self.backfills:
                    self._waiting[osd] = {**dict.fromkeys(queue[place:]),
                                          **self._waiting.get(osd, {})}
                    break
                moving = self.moving.get(pg)
                if moving is not None and moving.state == 'waiting':
                    self._start(pg, moving)

    def _stop_all_on(self, osd: int) -> None:
        for pg in sorted(self._copying.get(osd, ())):
            moving = self.moving[pg]
            if moving.state == 'copying':
                self._stop(pg, moving)
                self._start(pg, moving)

    def _respeed(self, osds: Iterable[int]) -> None:
        for pg in sorted({pg for osd in osds for pg in self._copying.get(osd, ())}):
            moving = self.moving[pg]
            self._progress(moving)
            moving.rate, moving.busy = self._rate(moving)
            moving.version += 1
            self.at(self.now + moving.left / moving.rate,
                    functools.partial(self._copied, pg, moving.version))

    def _rate(self, moving: Moving) -> Tuple[float, float]:
        """Bytes a second: an OSD divides its speed among the PGs that it copies. And the share of
        the time in which it copies: it sleeps after each object."""
        size, hardware = self.hardware.object_bytes, self.hardware
        share = min(hardware.copy_bytes / self.slowness[osd] / len(self._copying[osd])
                    for osd in moving.osds)
        rate = size / (size / share + self.sleep)
        return float(rate), float(rate / share)

    def _progress(self, moving: Moving) -> None:
        copied = min(moving.left, moving.rate * (self.now - moving.since))
        moving.left -= copied
        self._copy_seconds += moving.busy * (self.now - moving.since)
        moving.since = self.now
        if copied:
            for osd in moving.osds:
                self._bytes[osd] += copied

    def _copied(self, pg: int, version: int) -> None:
        moving = self.moving.get(pg)
        if moving is None or moving.version != version:
            return
        self._stop(pg, moving)
        moving.state, moving.left = 'copied', 0.0
        version = moving.version
        self.propose(lambda: self._arrive(pg, version))

    def _arrive(self, pg: int, version: int) -> None:
        """pg_temp is gone: the up set serves the PG."""
        moving = self.moving.get(pg)
        if moving is None or moving.version != version:
            return
        up = tuple(self.up[pg].tolist())
        self.in_flight.drop(pg)
        self.moved[pg] = self.moved.get(pg, 0) + 1
        self.shards += len(set(up) - set(moving.data))
        self._settle(pg, moving.data, up)
        moving.data, moving.temp = up, False
        self._peer(pg, moving)

    def _settle(self, pg: int, data: Tuple[int, ...], up: Tuple[int, ...]) -> None:
        """The data of a PG is on its up set, in this order."""
        pool = int(self.pool_of[pg]) - 1
        self.led[pool, data[0]] -= 1
        self.led[pool, up[0]] += 1
        for osd in set(data) - set(up):
            self.holds[osd] -= 1
        for osd in set(up) - set(data):
            self.holds[osd] += 1
        self.data[pg] = up

    @property
    def remapped(self) -> int:
        return sum(moving.left > 0.0 for moving in self.moving.values())

    # ---- what the OSDs report

    def _pg_rate(self) -> float:
        return self.hardware.rate * self.load * self.tree.osds / self.pgs

    @property
    def copying_bytes(self) -> float:
        """Bytes per second."""
        return sum(moving.rate for moving in self.moving.values() if moving.state == 'copying')

    def usage(self) -> Usage:
        """Since the last call."""
        for moving in self.moving.values():
            if moving.state == 'copying':
                self._progress(moving)
        seconds = max(self.now - self._begun, 1e-6)
        led, rate = self.led.sum(axis=0), self._pg_rate()
        # Operations on PGs of an OSD that hangs do not end.
        np.subtract.at(led, self.data[self.blocked(), 0], 1)
        found = Usage(seconds, led * rate, (self.holds - led) * rate
                      * (1.0 - self.hardware.reads), self._bytes, self._copy_seconds / seconds,
                      self.epoch - self._first_epoch, self.slowness.copy())
        self._bytes, self._begun = np.zeros(self.tree.osds), self.now
        self._copy_seconds, self._first_epoch = 0.0, self.epoch
        return found

    def take_stalls(self) -> List[Stall]:
        found, self._stalls = self._stalls, []
        return found
