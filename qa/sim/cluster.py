# SPDX-License-Identifier: LGPL-2.1-or-later
"""The model cluster: PGs that peer, wait for reservations and are copied, in discrete events.

Only PGs that are not where their data is have a record; all others are rows of arrays. So a model
of a million PGs costs what moves in it.
"""

import functools
import heapq
from dataclasses import dataclass, field
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

import numpy as np

from perfguard.cluster.types import UpmapEntry

from .crush import Tree
from .physics import Hardware, Stall, Usage

SIZE = 3
STOPS_BACKFILL = frozenset({'norebalance', 'nobackfill'})
#: Seconds for which an OSD that is back brings its PGs up to date from their logs.
RECOVERY_SECONDS = 20.0
#: Seconds until an OSD that hangs counts as down: its PGs serve nothing (osd_heartbeat_grace).
GRACE_SECONDS = 20.0


class Wrong(AssertionError):
    """A rule that holds at every instant was broken."""


@dataclass
class Moving:
    """A PG whose data is not on its up set, or that peers."""
    #: Where the data is.
    data: Tuple[int, ...]
    #: The OSDMap shows it remapped (pg_temp).
    temp: bool = False
    #: peering, waiting, copying or copied.
    state: str = 'peering'
    left: float = 0.0
    rate: float = 0.0
    #: Events of an earlier interval, or speed, are void.
    version: int = 0
    since: float = 0.0
    #: OSDs that read and write it, while it is copied.
    osds: Tuple[int, ...] = ()


class Caps(NamedTuple):
    """What may move at a time, as the operator has set it; 0: any number."""
    source: int = 0
    target: int = 0
    primary: int = 0
    host: int = 0


@dataclass
class Model:
    tree: Tree
    #: PGs of each pool.
    pools: Sequence[int]
    hardware: Hardware
    weights: np.ndarray
    pg_bytes: float
    random: np.random.Generator
    #: osd_max_backfills
    backfills: int = 1
    caps: Caps = Caps()

    now: float = 1000.0
    epoch: int = 100
    flags: Set[str] = field(default_factory=set)
    propose_seconds: float = 1.0
    #: osd_recovery_sleep
    sleep: float = 0.0
    entries: Dict[int, UpmapEntry] = field(default_factory=dict)
    moving: Dict[int, Moving] = field(default_factory=dict)
    down: Set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.pgs = sum(self.pools)
        self.pool_of = np.repeat(np.arange(1, len(self.pools) + 1), self.pools)
        self.raw = self.tree.place(0, self.pgs, SIZE, self.weights)
        self.up = self.raw.copy()
        osds = self.tree.osds
        #: PGs that an OSD leads, by pool, and that it holds.
        self.led = np.zeros((len(self.pools), osds), dtype=np.int64)
        np.add.at(self.led, (self.pool_of - 1, self.up[:, 0]), 1)
        self.holds = np.bincount(self.up.ravel(), minlength=osds)
        #: Factors that scenarios set: time for an operation, by OSD; load of all clients.
        self.slowness = np.ones(osds)
        self.load = 1.0
        self.recovering: Dict[int, float] = {}
        #: What has moved how often; shards copied in all.
        self.moved: Dict[int, int] = {}
        self.shards = 0
        self._queue: List[Tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._pending: Optional[List[Callable[[], None]]] = None
        self._used: Dict[Tuple[str, int], int] = {}
        self._waiting: Dict[int, Dict[int, None]] = {}
        self._copying: Dict[int, Set[int]] = {}
        self._busy: Dict[Tuple[str, int], int] = {}
        self._stalls: List[Stall] = []
        self._bytes = np.zeros(osds)
        self._begun = self._counted = self.now
        self._streams = self._stream_seconds = 0.0
        self._first_epoch = self.epoch
        self.peering = 0

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

    def propose(self, change: Callable[[], None]) -> None:
        """In the next OSDMap: the mons gather what arrives within their interval."""
        if self._pending is None:
            self._pending = []
            self.at(self.now + self.propose_seconds, self._commit)
        self._pending.append(change)

    def _commit(self) -> None:
        pending, self._pending = self._pending or [], None
        self.epoch += 1
        for change in pending:
            change()

    # ---- what operators and hardware do

    def set_raw(self, raw: np.ndarray) -> None:
        """CRUSH has changed; entries that come along are in `entries` already."""
        changed = np.nonzero((raw != self.raw).any(axis=1))[0]
        self.raw = raw
        self.place({*changed.tolist(), *self.entries})

    def place(self, pgs: Iterable[int]) -> None:
        """New up sets, after upmaps or CRUSH have changed."""
        for pg in pgs:
            up = self._placed(pg)
            if up != tuple(self.up[pg].tolist()):
                self._change_up(pg, up)

    def _placed(self, pg: int) -> Tuple[int, ...]:
        raw = self.raw[pg].tolist()
        entry = self.entries.get(pg)
        if entry is None:
            return tuple(raw)
        placed = list(raw if entry.vector is None else entry.vector)
        for old, new in entry.items:
            if new not in placed and old in placed:
                placed[placed.index(old)] = new
        if len({self.tree.host(osd) for osd in placed}) < SIZE:
            del self.entries[pg]  # the mons keep no upmap that breaks the rule
            return tuple(raw)
        return tuple(placed)

    def fail(self, osd: int) -> None:
        """An OSD hangs and is marked down."""
        self.down.add(osd)
        self.epoch += 1
        self._stop_all_on(osd)
        self._stall_led(osd, GRACE_SECONDS)

    def revive(self, osd: int) -> None:
        self.down.discard(osd)
        self.epoch += 1
        self.recovering[osd] = self.now + RECOVERY_SECONDS
        self._stall_led(osd, self.stall_seconds())
        self._start_waiting((osd,))

    def _stall_led(self, osd: int, seconds: float) -> None:
        for pool, pgs in enumerate(self.led[:, osd].tolist()):
            if pgs:
                rate = pgs * self._pg_rate()
                self._stalls.append(Stall(pool + 1, osd, rate * seconds, seconds))

    def degraded(self) -> int:
        """PGs with an OSD that is down, or that is being brought up to date."""
        self.recovering = {osd: until for osd, until in self.recovering.items()
                           if until > self.now}
        return int(sum(self.holds[osd] for osd in {*self.down, *self.recovering}))

    # ---- intervals

    def acting(self, pg: int) -> Tuple[int, ...]:
        moving = self.moving.get(pg)
        return moving.data if moving is not None and moving.temp else tuple(self.up[pg].tolist())

    def _change_up(self, pg: int, up: Tuple[int, ...]) -> None:
        moving = self.moving.get(pg)
        if moving is None:
            moving = self.moving[pg] = Moving(self.acting(pg))
        else:
            self._leave(pg, moving)
            self._uncount(pg, moving)
        self.up[pg] = up
        moving.left = self.pg_bytes * len(set(up) - set(moving.data))
        self._count(pg, moving)
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
        self.propose(lambda: None)  # up_thru
        self.at(self.now + seconds, lambda: self._peered(pg, version))

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
            self._uncount(pg, moving)
            self._lead(pg, moving.data[0], int(self.up[pg, 0]))
            del self.moving[pg]
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
        """After flags were cleared or set."""
        for pg, moving in list(self.moving.items()):
            if self.flags & STOPS_BACKFILL:
                if moving.state == 'copying':
                    self._stop(pg, moving)
            elif moving.state == 'waiting':
                self._start(pg, moving)

    def _slots(self, pg: int, moving: Moving) -> List[Tuple[str, int]]:
        targets = set(self.up[pg].tolist()) - set(moving.data)
        return [('local', moving.data[0]), *(('remote', osd) for osd in sorted(targets))]

    def _start(self, pg: int, moving: Moving) -> None:
        """Copy, once the primary and all targets have a reservation free."""
        slots = self._slots(pg, moving)
        full = [osd for role, osd in slots if self._used.get((role, osd), 0) >= self.backfills
                or osd in self.down]
        if full or self.flags & STOPS_BACKFILL:
            for osd in full:
                self._waiting.setdefault(osd, {})[pg] = None
            return
        for slot in slots:
            self._used[slot] = self._used.get(slot, 0) + 1
        moving.state, moving.since = 'copying', self.now
        moving.osds = tuple(osd for _, osd in slots)
        self._count_streams(1)
        for osd in moving.osds:
            self._copying.setdefault(osd, set()).add(pg)
        self._respeed(moving.osds)

    def _stop(self, pg: int, moving: Moving) -> None:
        """Give the reservations back."""
        self._progress(moving)
        moving.state, moving.rate, moving.version = 'waiting', 0.0, moving.version + 1
        for slot in self._slots(pg, moving):
            self._used[slot] -= 1
        osds, moving.osds = moving.osds, ()
        self._count_streams(-1)
        for osd in osds:
            self._copying[osd].discard(pg)
        self._respeed(osds)
        self._start_waiting(osds)

    def _start_waiting(self, osds: Iterable[int]) -> None:
        for osd in osds:
            for pg in list(self._waiting.pop(osd, ())):
                moving = self.moving.get(pg)
                if moving is not None and moving.state == 'waiting':
                    self._start(pg, moving)

    def _stop_all_on(self, osd: int) -> None:
        for pg in list(self._copying.get(osd, ())):
            moving = self.moving[pg]
            self._stop(pg, moving)
            self._start(pg, moving)

    def _respeed(self, osds: Iterable[int]) -> None:
        for pg in {pg for osd in osds for pg in self._copying.get(osd, ())}:
            moving = self.moving[pg]
            self._progress(moving)
            moving.rate = self._rate(moving)
            moving.version += 1
            self.at(self.now + moving.left / moving.rate,
                    functools.partial(self._copied, pg, moving.version))

    def _rate(self, moving: Moving) -> float:
        """Bytes a second: an OSD divides its speed among the PGs that it copies."""
        size, hardware = self.hardware.object_bytes, self.hardware
        share = min(hardware.copy_bytes / self.slowness[osd] / len(self._copying[osd])
                    for osd in moving.osds)
        return float(size / (size / share + self.sleep))

    def _progress(self, moving: Moving) -> None:
        copied = min(moving.left, moving.rate * (self.now - moving.since))
        moving.left -= copied
        moving.since = self.now
        if copied:
            self._bytes[list(moving.osds)] += copied

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
        self._lead(pg, moving.data[0], up[0])
        self._uncount(pg, moving)
        self.holds[list(set(moving.data) - set(up))] -= 1
        self.holds[list(set(up) - set(moving.data))] += 1
        self.moved[pg] = self.moved.get(pg, 0) + 1
        self.shards += len(set(up) - set(moving.data))
        moving.data, moving.temp = up, False
        self._peer(pg, moving)

    def _lead(self, pg: int, before: int, after: int) -> None:
        pool = int(self.pool_of[pg]) - 1
        self.led[pool, before] -= 1
        self.led[pool, after] += 1

    def _leave(self, pg: int, moving: Moving) -> None:
        """The end of an interval by a new up set."""
        if moving.state == 'copying':
            self._stop(pg, moving)

    # ---- what is counted: caps at each event

    def _places(self, pg: int, moving: Moving) -> List[Tuple[str, int]]:
        up, data = set(self.up[pg].tolist()), set(moving.data)
        if up == data:
            return []
        hosts = {self.tree.host(osd) for osd in up ^ data}
        return [*(('source', osd) for osd in data - up), *(('target', osd) for osd in up - data),
                ('primary', moving.data[0]), *(('host', host) for host in hosts)]

    def _count(self, pg: int, moving: Moving) -> None:
        for kind, number in self._places(pg, moving):
            count = self._busy[kind, number] = self._busy.get((kind, number), 0) + 1
            cap = getattr(self.caps, kind)
            if cap and count > cap and not self.flags & STOPS_BACKFILL:
                raise Wrong('%d PGs move at %s %d (limit %d)' % (count, kind, number, cap))

    def _uncount(self, pg: int, moving: Moving) -> None:
        for place in self._places(pg, moving):
            self._busy[place] -= 1

    @property
    def remapped(self) -> int:
        return sum(moving.left > 0.0 for moving in self.moving.values())

    def _count_streams(self, more: int) -> None:
        self._stream_seconds += self._streams * (self.now - self._counted)
        self._counted = self.now
        self._streams += more

    # ---- what the OSDs report

    def _pg_rate(self) -> float:
        return self.hardware.rate * self.load * self.tree.osds / self.pgs

    def usage(self) -> Usage:
        """Since the last call."""
        for moving in self.moving.values():
            if moving.state == 'copying':
                self._progress(moving)
        self._count_streams(0)
        seconds = max(self.now - self._begun, 1e-6)
        led, rate = self.led.sum(axis=0), self._pg_rate()
        found = Usage(seconds, led * rate, (self.holds - led) * rate
                      * (1.0 - self.hardware.reads), self._bytes, self._stream_seconds / seconds,
                      self.epoch - self._first_epoch, self.slowness.copy())
        self._bytes, self._begun = np.zeros(self.tree.osds), self.now
        self._stream_seconds, self._first_epoch = 0.0, self.epoch
        return found

    def take_stalls(self) -> List[Stall]:
        found, self._stalls = self._stalls, []
        return found
