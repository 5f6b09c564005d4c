# SPDX-License-Identifier: LGPL-2.1-or-later
"""The moves of releases, and the choice of the next ones: as many as fit under every cap, least
loaded paths first."""
from collections import defaultdict
from dataclasses import dataclass, field
from typing import (AbstractSet, Callable, DefaultDict, Dict, FrozenSet, Iterable, Iterator, List,
                    Mapping, NamedTuple, Optional, Sequence, Tuple, Union, ValuesView)

from ..cluster.crush import CrushRules
from ..cluster.types import NO_OSD, Json, OsdMap, OsdSet, Pool, pg_shard_bytes, pool_of
from ..errors import Code
from ..upmap.pins import released_up
from ..upmap.semantics import led_by
from .types import Flight, PinRecord

#: Assumed speed of one backfill until this cluster's own is measured: that of a disk which also
#: serves some client load.
ASSUMED_BACKFILL_BYTES_PER_SECOND = 50e6
#: Seconds from a release to the start of its backfill: two interval changes, each of which
#: waits for a proposal of the mon (median 2.2 s measured on Pacific, default proposal interval).
RELEASE_OVERHEAD_SECONDS = 3.0


class Move(NamedTuple):
    """The move of one PG from its present to its future OSDs; the sets are empty if unknown.

    A tuple, because there may be 100,000: its creation takes a third of the time.
    """
    pgid: str
    sources: OsdSet
    targets: OsdSet
    #: The OSD that leads the PG while its data is copied, and holds the local reservation of its
    #: backfill.
    primary: int
    bytes: int
    moves_primary: bool = False
    #: Further OSDs that are read to rebuild a missing shard of an erasure code. A shard that its
    #: old OSD still serves is only read from there.
    readers: OsdSet = ()
    #: False: the targets are unknown until the PG is released.
    targets_known: bool = True
    #: When the move was first known, to find those that have waited too long, in seconds since the
    #: epoch.
    since: float = 0.0
    #: Whether a source is nearly full.
    relieves: bool = False
    #: OSDs that have the PG's data before and after, so that they only take part in its peering.
    staying: OsdSet = ()
    #: The OSDs that serve the PG now: the set that it leaves.
    here: OsdSet = ()
    #: Since when `here` is another set than before, or may be, in seconds since the epoch: until
    #: the PG has peered, its data may be elsewhere, although the OSDMap shows it in place. 0.0: it
    #: is the same set.
    displaced: float = 0.0
    #: OSDs that lead the PG now, while its data is copied, and then.
    leaders: OsdSet = ()


def move_between(pgid: str, pool: Pool, old_osds: OsdSet, new_osds: Optional[OsdSet],
                 pool_bytes: int) -> Move:
    """The move of a PG that is served by `old_osds` to `new_osds` (None: not known; then the move
    has no sources and targets, and `targets_known` is False).

    `pool_bytes`: what the pool stores, to estimate the size of the PG.
    """
    leader = old_osds[0] if old_osds and old_osds[0] != NO_OSD else next(
        (osd for osd in old_osds if osd != NO_OSD), -1)
    if new_osds is None:
        return Move(pgid, (), (), leader, 0, targets_known=False, here=old_osds)
    # A new primary that has the data of a replicated PG leads it at once (serving_until_moved).
    new_leads_already = bool(new_osds) and not pool.erasure and new_osds[0] in old_osds
    primary = new_osds[0] if new_leads_already else leader
    readers: OsdSet = ()
    # Tuples from lists, since this is called for each PG: from generators they take twice as long.
    if pool.erasure:
        pairs = [(old, new) for old, new in zip(old_osds, new_osds) if old != new]
        sources = tuple([old for old, _ in pairs if old != NO_OSD])
        targets = tuple([new for _, new in pairs if new != NO_OSD])
        if len(sources) < len(targets):
            readers = tuple([osd for osd in old_osds if osd != NO_OSD and osd not in sources])
    else:
        sources = tuple([osd for osd in old_osds if osd not in new_osds and osd != NO_OSD])
        targets = tuple([osd for osd in new_osds if osd not in old_osds and osd != NO_OSD])
    return Move(
        pgid, sources, targets, primary,
        bytes=len(targets) * pg_shard_bytes(pool, pool_bytes, pgid),
        moves_primary=bool(new_osds) and new_osds[0] != leader, readers=readers,
        staying=tuple([osd for osd in old_osds if osd != NO_OSD and osd not in sources]),
        here=old_osds, leaders=(leader, primary, *new_osds[:1]))


def release_move(pgid: str, osdmap: OsdMap, up: OsdSet, pin: PinRecord, out: AbstractSet[int],
                 pool_bytes: int) -> Move:
    """The move that the release of a pinned PG causes. `up`: its up set, which has its data."""
    pool = osdmap.pools[pool_of(pgid)]
    new_osds = released_up(pool, up, pin.entry, pin.leads_to, out, raw=pin.raw)
    if new_osds and up and not pool.erasure:
        new_osds = _primary_first(osdmap, new_osds, up[0], osdmap.upmap_primaries.get(pgid), out)
    return move_between(pgid, pool, up, new_osds, pool_bytes)


def _primary_first(osdmap: OsdMap, new_osds: OsdSet, primary: int, named: Optional[int],
                   out: AbstractSet[int]) -> OsdSet:
    """`new_osds` in an order that begins with the OSD that will lead the PG, as far as it is known.
    `primary`: leads it now; `named`: is to lead it by a pg_upmap_primary entry.

    OSDs of a primary affinity below 1 accept some PGs, always the same ones, and those of 0 none.
    """
    new_osds = led_by(new_osds, named, out)
    for osd in new_osds:
        row = osdmap.osds.get(osd)
        if row is None or row.primary_affinity >= 1.0 or (
                row.primary_affinity > 0.0 and osd == primary):
            followers = [follower for follower in new_osds if follower != osd]
            return new_osds if osd == new_osds[0] else (osd, *followers)
    return new_osds


def serving_until_moved(pool: Pool, old_osds: OsdSet, new_osds: OsdSet) -> OsdSet:
    """The acting set that a PG, all of whose data is on `old_osds`, has on its way to `new_osds`.

    In the order of PeeringState::calc_replicated_acting: the new primary if it has the data, else
    the present one; then the others of the new set, then the rest. OSDs would ask for this order,
    in another interval. The shards of an erasure code keep their positions.
    """
    if pool.erasure or not old_osds:
        return old_osds
    staying = [osd for osd in new_osds if osd in old_osds]
    primary = new_osds[0] if new_osds[0] in old_osds else old_osds[0]
    return tuple(dict.fromkeys((primary, *staying, *old_osds)))


@dataclass(frozen=True)
class OsdLoad:
    """What an OSD receives and gives away by moves."""
    osd: int
    pgs_in: int
    pgs_out: int
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True)
class Movement:
    """What moves amount to, and how long they take."""
    #: PGs that move, their shards that are copied, and the bytes of these.
    pgs: int
    shards: int
    bytes: int
    #: PGs that get another primary.
    primaries_moving: int
    osds: Tuple[OsdLoad, ...]
    estimated_seconds: float
    #: Where the estimate's speed comes from: "measured" or "assumed".
    basis: str

    def as_json(self) -> Json:
        return {
            'pgs': self.pgs, 'shards': self.shards, 'bytes': self.bytes,
            'primaries_moving': self.primaries_moving,
            'estimated_seconds': round(self.estimated_seconds, 1), 'estimate_basis': self.basis,
            'osds': [dict(vars(load)) for load in self.osds]}


def movement_of(moves: Iterable[Move], parallel: int = 1, per_target: int = 1) -> Movement:
    """The preview of a release of all `moves`, with parameters as those of MoveSums.movement: they
    only matter for its estimated time."""
    sums = MoveSums()
    for move in moves:
        sums.count(move)
    return sums.movement(parallel, per_target)


class MoveSums:
    """Sums of moves."""

    def __init__(self) -> None:
        self.pgs = self.shards = self.bytes = self.primaries = 0
        #: OSD -> PGs and bytes in and out, in the order of OsdLoad.
        self.loads: 'DefaultDict[int, List[int]]' = defaultdict(lambda: [0, 0, 0, 0])

    def copy(self) -> 'MoveSums':
        sums = MoveSums()
        sums.pgs, sums.shards, sums.bytes, sums.primaries = (
            self.pgs, self.shards, self.bytes, self.primaries)
        sums.loads.update((osd, load[:]) for osd, load in self.loads.items())
        return sums

    def count(self, move: Move, sign: int = 1) -> None:
        """Add a move to the sums. `sign`: -1 subtracts it."""
        self.pgs += sign
        self.shards += sign * len(move.targets)
        self.bytes += sign * move.bytes
        self.primaries += sign * move.moves_primary
        share = sign * (move.bytes // max(1, len(move.targets)))
        # The columns of OsdLoad: PGs in and out, then bytes in and out.
        for pgs_column, osds in ((0, move.targets), (1, move.sources)):
            for osd in osds:
                load = self.loads[osd]
                load[pgs_column] += sign
                load[pgs_column + 2] += share

    def movement(self, parallel: int, per_target: int,
                 measured_bytes_per_second: Optional[float] = None) -> Movement:
        """The preview of a release of these moves.

        `parallel`: PGs in flight at most; `per_target`: PGs onto one OSD at a time. Without a
        measured rate, the time is that of the busiest target or, if longer, that of all PGs at
        `parallel` at a time, each PG taking its bytes at the assumed speed plus the overhead of a
        release.
        """
        osds = tuple(OsdLoad(osd, *load) for osd, load in sorted(self.loads.items()) if any(load))
        rate, basis = measured_bytes_per_second, 'measured' if measured_bytes_per_second \
            else 'assumed'
        seconds = self.bytes / rate if rate else _assumed_seconds(
            self.pgs, self.bytes, osds, parallel, per_target)
        return Movement(self.pgs, self.shards, self.bytes, self.primaries, osds, seconds, basis)


class MoveIndex(Mapping[str, Move]):
    """Moves by PG, with their sums, which each `put` and `drop` updates: there may be 100,000
    moves, and turns are a second apart."""

    def __init__(self, moves: Mapping[str, Move] = {}) -> None:
        self._moves: Dict[str, Move] = {}
        self._sums = MoveSums()
        for pgid, move in moves.items():
            self.put(pgid, move)

    @classmethod
    def of(cls, moves: Mapping[str, Move]) -> 'MoveIndex':
        return moves if isinstance(moves, MoveIndex) else cls(moves)

    def __getitem__(self, pgid: str) -> Move:
        return self._moves[pgid]

    def __iter__(self) -> Iterator[str]:
        return iter(self._moves)

    def __len__(self) -> int:
        return len(self._moves)

    def values(self) -> ValuesView[Move]:
        return self._moves.values()

    def put(self, pgid: str, move: Move) -> None:
        self.drop(pgid)
        self._moves[pgid] = move
        self._sums.count(move)

    def drop(self, pgid: str) -> None:
        if pgid in self._moves:
            self._sums.count(self._moves.pop(pgid), -1)

    def clear(self) -> None:
        self._moves, self._sums = {}, MoveSums()

    def targets(self) -> FrozenSet[int]:
        """OSDs that any of them leads to."""
        return frozenset(osd for osd, load in self._sums.loads.items() if load[0])

    def sources(self) -> FrozenSet[int]:
        """OSDs that any of them leaves."""
        return frozenset(osd for osd, load in self._sums.loads.items() if load[1])

    def sums(self, without: Iterable[str]) -> MoveSums:
        """The sums of all moves but those of some PGs."""
        sums = self._sums.copy()
        for pgid in without:
            if pgid in self._moves:
                sums.count(self._moves[pgid], -1)
        return sums


def _assumed_seconds(pgs: int, total_bytes: int, osds: Tuple[OsdLoad, ...], parallel: int,
                     per_target: int) -> float:
    """The longer of two times at the assumed speed: of the busiest target, and of all PGs."""
    def seconds(count: int, size: int, at_a_time: int) -> float:
        return (count * RELEASE_OVERHEAD_SECONDS / at_a_time
                + size / (ASSUMED_BACKFILL_BYTES_PER_SECOND * at_a_time))

    busiest = max((seconds(load.pgs_in, load.bytes_in, per_target) for load in osds), default=0.0)
    return max(busiest, seconds(pgs, total_bytes, parallel))


#: Maximum number of candidates that one turn considers, so that its cost does not grow with the
#: campaign.
MAX_SCANNED = 1024
#: Seconds after which the route of a PG that never fitted is kept free for it.
MOVE_PATIENCE_SECONDS = 600.0

#: A PG in flight, or one that may be released.
Route = Union[Move, Flight]


@dataclass(frozen=True)
class Caps:
    """Upper bounds on simultaneous movement."""
    pgs: int
    bytes: int
    source: int
    primary: int
    target: int
    host: int
    #: Device that several OSDs share.
    device: int = 1 << 30
    #: Failure domain of the pool's rule, such as a rack.
    domain: int = 1 << 30
    #: OSD -> PGs that it may receive, those in flight included; one that is not listed: any number.
    receives: Mapping[int, int] = field(default_factory=dict)


class Obstacle(NamedTuple):
    """A cap that one more move would exceed."""
    code: str
    #: The option that sets it.
    option: str
    #: As in "osd.3" or "host h1"; '' for the whole cluster.
    place: str
    used: int
    limit: int


#: An OSD, or the name of a host, a device or a failure domain.
Place = Union[int, str]


def _no_domain(pgid: str, osd: int) -> Optional[str]:
    return None


def domains_of(crush: CrushRules,
               pools: Mapping[int, Pool]) -> Callable[[str, int], Optional[str]]:
    """PG, OSD -> the failure domain of the PG's rule that the OSD is in; None where that is the
    OSD itself, whose own caps are stricter."""
    kinds = {pool.id: crush.failure_domain(pool.crush_rule) for pool in pools.values()}
    names: Dict[Tuple[str, int], Optional[str]] = {}

    def domain_of(pgid: str, osd: int) -> Optional[str]:
        kind = kinds.get(pool_of(pgid))
        if kind is None or kind == 'osd':
            return None
        if (kind, osd) not in names:
            name = crush.domain_of(osd, kind)
            names[kind, osd] = None if name is None else '%s %s' % (kind, name)
        return names[kind, osd]

    return domain_of


class Load:
    """Counts of PGs in flight: of each OSD by role (source, primary, target), host, shared device
    and failure domain. They are compared with `Caps`."""

    def __init__(self, host_of: Callable[[int], Optional[str]],
                 domain_of: Callable[[str, int], Optional[str]] = _no_domain,
                 devices: Mapping[int, Sequence[str]] = {}) -> None:
        """`devices`: OSD -> the devices that it shares with others."""
        self._host_of = host_of
        self._domain_of = domain_of
        self._devices_of = devices
        self.pgs = 0
        self.bytes = 0
        #: OSD in this role, host, shared device or failure domain -> its moving PGs.
        self.source: Dict[int, int] = {}
        self.primary: Dict[int, int] = {}
        self.target: Dict[int, int] = {}
        self.host: Dict[str, int] = {}
        self.device: Dict[str, int] = {}
        self.domain: Dict[str, int] = {}

    def add(self, pgid: str, route: Route) -> None:
        """Count a PG that moves on this route."""
        self.pgs += 1
        self.bytes += route.bytes
        for keys, counts in ((_osds_read(route), self.source), (route.targets, self.target),
                             ((route.primary,), self.primary)):
            for osd in keys:
                counts[osd] = counts.get(osd, 0) + 1
        for host in self._hosts(route):
            self.host[host] = self.host.get(host, 0) + 1
        for device in self._devices(route):
            self.device[device] = self.device.get(device, 0) + 1
        for domain in self._domains(pgid, route):
            self.domain[domain] = self.domain.get(domain, 0) + 1

    def add_deletions(self, deleting: Mapping[int, int], limit: int) -> None:
        """Count PGs that OSDs are deleting like PGs that leave them, of which `limit` may.

        One more may always leave: a slow disk takes hours to delete a PG (osd_delete_sleep_hdd).
        """
        for osd, number in deleting.items():
            self.source[osd] = self.source.get(osd, 0) + min(number, limit - 1)

    def fits(self, move: Move, caps: Caps) -> bool:
        """Whether one more move stays under all caps; the first PG may have any size."""
        if self.pgs >= caps.pgs or (self.pgs and self.bytes + move.bytes > caps.bytes) \
                or self.primary.get(move.primary, 0) >= caps.primary:
            return False
        # The same caps as in `obstacles`, but faster: a turn asks this a thousand times.
        # `receives`: up to mon_max_pg_per_osd.
        for osd in move.targets:
            used = self.target.get(osd, 0)
            if used >= caps.target or used >= caps.receives.get(osd, caps.target):
                return False
        for osd in (*move.sources, *move.readers):
            if self.source.get(osd, 0) >= caps.source:
                return False
        osds = (*move.sources, *move.targets)
        for osd in osds:
            host = self._host_of(osd)
            if host is not None and self.host.get(host, 0) >= caps.host:
                return False
            for device in self._devices_of.get(osd, ()):
                if self.device.get(device, 0) >= caps.device:
                    return False
        for osd in osds:
            domain = self._domain_of(move.pgid, osd)
            if domain is not None and self.domain.get(domain, 0) >= caps.domain:
                return False
        return True

    def has_room(self, move: Move, caps: Caps) -> bool:
        """Whether its targets may receive one more PG (Caps.receives)."""
        return all(self.target.get(osd, 0) < caps.receives[osd] for osd in move.targets
                   if osd in caps.receives)

    def obstacles(self, move: Move, caps: Caps) -> List[Obstacle]:
        """The caps that one more move would exceed; empty exactly if it fits."""
        obstacles = []
        if self.pgs >= caps.pgs:
            obstacles.append(Obstacle(Code.CAP_PGS, 'max_pgs_in_flight', '', self.pgs, caps.pgs))
        if self.pgs and self.bytes + move.bytes > caps.bytes:
            obstacles.append(Obstacle(Code.CAP_BYTES, 'max_bytes_in_flight', '',
                                      self.bytes + move.bytes, caps.bytes))
        for role, osds, counts, cap in (('source', _osds_read(move), self.source, caps.source),
                                        ('target', move.targets, self.target, caps.target),
                                        ('primary', (move.primary,), self.primary, caps.primary)):
            obstacles += [_capped('max_backfills_' + role, 'osd.%d' % osd, counts.get(osd, 0), cap)
                          for osd in osds if counts.get(osd, 0) >= cap]
        obstacles += [Obstacle(Code.PG_LIMIT, 'mon_max_pg_per_osd', 'osd.%d' % osd,
                               self.target.get(osd, 0), caps.receives[osd]) for osd in move.targets
                      if self.target.get(osd, 0) >= caps.receives.get(osd, 1 << 30)]
        obstacles += [_capped('max_backfills_host', 'host ' + host, self.host[host], caps.host)
                      for host in sorted(self._hosts(move)) if self.host.get(host, 0) >= caps.host]
        obstacles += [_capped('max_backfills_device', 'device ' + device, self.device[device],
                              caps.device) for device in sorted(self._devices(move))
                      if self.device.get(device, 0) >= caps.device]
        obstacles += [_capped('max_backfills_domain', domain, self.domain[domain], caps.domain)
                      for domain in sorted(self._domains(move.pgid, move))
                      if self.domain.get(domain, 0) >= caps.domain]
        return obstacles

    def of_path(self, move: Move) -> int:
        """How busy the route of a move is: the sum over its OSDs in all their roles."""
        return (sum(self.source.get(osd, 0) for osd in _osds_read(move))
                + sum(self.target.get(osd, 0) for osd in move.targets)
                + self.primary.get(move.primary, 0))

    def of_hosts(self, move: Move) -> int:
        """How busy the hosts of a move are: the sum of the PGs that move between hosts there."""
        return sum(self.host.get(host, 0) for host in self._hosts(move))

    def places_to_keep_free(self, move: Move, caps: Caps) -> FrozenSet[Place]:
        """What other moves must not use until this one fits: its OSDs, whose caps are small, and
        those of its hosts, devices and domains that have room for at most one move."""
        return frozenset([
            *route_osds(move),
            *(host for host in self._hosts(move) if self.host.get(host, 0) >= caps.host - 1),
            *(device for device in self._devices(move)
              if self.device.get(device, 0) >= caps.device - 1),
            *(domain for domain in self._domains(move.pgid, move)
              if self.domain.get(domain, 0) >= caps.domain - 1)])

    def touches(self, move: Move, places: FrozenSet[Place]) -> bool:
        """Whether a move uses one of these places."""
        return not places.isdisjoint([*route_osds(move), *self._hosts(move), *self._devices(move),
                                      *self._domains(move.pgid, move)])

    def _hosts(self, route: Route) -> AbstractSet[str]:
        hosts = {self._host_of(osd) for osd in (*route.sources, *route.targets)}
        return {host for host in hosts if host is not None}

    def _devices(self, route: Route) -> AbstractSet[str]:
        return {device for osd in (*route.sources, *route.targets)
                for device in self._devices_of.get(osd, ())}

    def _domains(self, pgid: str, route: Route) -> AbstractSet[str]:
        domains = {self._domain_of(pgid, osd) for osd in (*route.sources, *route.targets)}
        return {domain for domain in domains if domain is not None}


def _capped(option: str, where: str, used: int, limit: int) -> Obstacle:
    """A max_backfills_* option as the obstacle of a move."""
    return Obstacle(Code.CAP_BACKFILLS, option, where, used, limit)


def _osds_read(route: Route) -> Iterable[int]:
    """OSDs that are read: the sources, and all that help to rebuild a lost shard."""
    return {*route.sources, *route.readers}


def route_osds(move: Route) -> Iterable[int]:
    """OSDs that take part in a move, in any role."""
    return (*move.sources, *move.readers, *move.targets, move.primary)


def load_of(flights: Mapping[str, Flight], host_of: Callable[[int], Optional[str]],
            domain_of: Callable[[str, int], Optional[str]] = _no_domain,
            devices: Mapping[int, Sequence[str]] = {}) -> Load:
    """The load of the PGs in flight. `devices`: OSD -> the devices that it shares with others."""
    load = Load(host_of, domain_of, devices)
    for pgid, flight in flights.items():
        load.add(pgid, flight)
    return load


def window(candidates: Sequence[Move], start: int) -> List[Move]:
    """At most MAX_SCANNED candidates from `start` on, wrapping around: a long list is considered in
    slices, so that no PG starves."""
    count = len(candidates)
    return [candidates[(start + i) % count] for i in range(min(count, MAX_SCANNED))]


def choose(candidates: Sequence[Move], load: Load, caps: Caps, now: float = 0.0) -> List[Move]:
    """The moves to release next, least loaded paths first; `load` is updated with them.

    Among equals, the order is: moves that relieve an OSD that is nearly full; moves that leave the
    OSD with the most PGs to give or enter the OSD with the most to receive, the fullest and the
    emptiest one (otherwise the last PGs would be left on a few OSDs and move one by one); moves
    that keep their primary.

    A PG that never fits, for example because it needs many OSDs at once, would wait until all
    others have moved. After MOVE_PATIENCE_SECONDS the route of one such PG at a time is kept free;
    not if its target holds as many PGs as it may, since only PGs that leave the target make room
    there.
    """
    moves_by_osd: Dict[int, int] = {}
    for move in candidates:
        for osd in (*move.sources, *move.targets):
            moves_by_osd[osd] = moves_by_osd.get(osd, 0) + 1

    def order(move: Move) -> Tuple[int, int, bool, int, bool, str]:
        most_moves = max((moves_by_osd[osd] for osd in (*move.sources, *move.targets)), default=0)
        return (load.of_path(move), load.of_hosts(move), not move.relieves, -most_moves,
                move.moves_primary, move.pgid)

    oldest = _waiting_longest(candidates, load, caps, now)
    # The load only grows, so moves that do not fit now are removed from the order.
    ordered = sorted((move for move in candidates
                      if move is not oldest and load.fits(move, caps)), key=order)
    reserved: FrozenSet[Place] = frozenset()
    if oldest is not None:
        ordered.insert(0, oldest)
        if not load.fits(oldest, caps):
            reserved = load.places_to_keep_free(oldest, caps)
    chosen: List[Move] = []
    for move in ordered:
        if load.pgs >= caps.pgs:
            break
        if load.fits(move, caps) and not (reserved and load.touches(move, reserved)):
            load.add(move.pgid, move)
            chosen.append(move)
    return chosen


def _waiting_longest(candidates: Sequence[Move], load: Load, caps: Caps,
                     now: float) -> Optional[Move]:
    """The move that has waited longest, if for more than MOVE_PATIENCE_SECONDS; of those that have
    waited equally long, the one that needs the most OSDs. Its targets must have room for it. None:
    there is none."""
    def order(move: Move) -> Tuple[float, int, str]:
        return move.since, -len(set(route_osds(move))), move.pgid

    waiting = [move for move in candidates
               if now - move.since > MOVE_PATIENCE_SECONDS and load.has_room(move, caps)]
    return min(waiting, key=order) if waiting else None
