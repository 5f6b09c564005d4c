# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the release of each pinned PG would move, and what all of them together would."""
from dataclasses import dataclass, field
from typing import AbstractSet, Dict, Iterable, List, Optional, Tuple

from ..cluster.types import NO_OSD, OsdSet, Pool, shard_bytes
from ..upmap.pins import released_up
from .types import PinRecord

#: Assumed speed of one backfill until this cluster's own is measured: what a disk with some
#: client load left to serve reaches.
ASSUMED_BACKFILL_BYTES_PER_SECOND = 50e6
#: Seconds from a release to the start of its backfill: two interval changes, each of which
#: waits for a proposal of the mon (median 2.2 s measured on Pacific, default proposal interval).
RELEASE_OVERHEAD_SECONDS = 3.0


@dataclass(frozen=True)
class Move:
    """One PG's way from where it is to where it goes; empty sets where that is not known."""
    pgid: str
    sources: OsdSet
    targets: OsdSet
    primary: int
    bytes: int
    moves_primary: bool = False
    #: Further OSDs that are read, to rebuild a shard of an erasure code that is nowhere. One whose
    #: old OSD still serves it is read from there alone.
    readers: OsdSet = ()
    #: False: where the PG goes shows only once it is released.
    known: bool = field(default=True, compare=False)
    #: When the move was first known, to tell which has waited for long.
    since: float = field(default=0.0, compare=False)
    #: A source is nearly full.
    relieves: bool = field(default=False, compare=False)


def move_between(pgid: str, pool: Pool, here: OsdSet, there: Optional[OsdSet],
                 pool_bytes: int) -> Move:
    """The move of a PG that is served by `here` to `there` (None: not known)."""
    primary = next((osd for osd in here if osd != NO_OSD), -1)
    if there is None:
        return Move(pgid, (), (), primary, 0, known=False)
    readers: OsdSet = ()
    if pool.erasure:
        pairs = [(old, new) for old, new in zip(here, there) if old != new]
        sources = tuple(old for old, _ in pairs if old != NO_OSD)
        targets = tuple(new for _, new in pairs if new != NO_OSD)
        if len(sources) < len(targets):
            readers = tuple(osd for osd in here if osd != NO_OSD and osd not in sources)
    else:
        sources = tuple(osd for osd in here if osd not in there and osd != NO_OSD)
        targets = tuple(osd for osd in there if osd not in here and osd != NO_OSD)
    return Move(pgid, sources, targets, primary, len(targets) * shard_bytes(pool, pool_bytes),
                bool(there) and there[0] != primary, readers)


def release_move(pgid: str, pool: Pool, up: OsdSet, pin: PinRecord, out: AbstractSet[int],
                 pool_bytes: int) -> Move:
    """What the release of a pinned PG, whose data is on its up set, would move."""
    there = released_up(pool, up, pin.entry, pin.leads_to, out, raw=pin.raw)
    return move_between(pgid, pool, up, there, pool_bytes)


@dataclass(frozen=True)
class OsdLoad:
    osd: int
    pgs_in: int
    pgs_out: int
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True)
class Plan:
    pgs: int
    shards: int
    bytes: int
    primaries_moving: int
    osds: Tuple[OsdLoad, ...]
    estimated_seconds: float
    #: Where the estimate's speed comes from: "measured" or "assumed".
    basis: str


def plan(moves: Iterable[Move], parallel: int, per_target: int,
         measured_bytes_per_second: Optional[float]) -> Plan:
    """Preview of releasing all `moves`.

    `parallel`: PGs in flight at most; `per_target`: PGs onto one OSD at a time. Without a measured
    rate, the time is that of the busiest target or, if longer, that of all PGs at `parallel` at a
    time, each PG taking its bytes at the assumed speed plus the overhead of a release.
    """
    loads: Dict[int, List[int]] = {}
    pgs = shards = total = primaries = 0
    for move in moves:
        pgs += 1
        shards += len(move.targets)
        total += move.bytes
        primaries += move.moves_primary
        share = move.bytes // max(1, len(move.targets))
        for osd in move.targets:
            load = loads.setdefault(osd, [0, 0, 0, 0])
            load[0] += 1
            load[2] += share
        for osd in move.sources:
            load = loads.setdefault(osd, [0, 0, 0, 0])
            load[1] += 1
            load[3] += share
    osds = tuple(OsdLoad(osd, *loads[osd]) for osd in sorted(loads))
    if measured_bytes_per_second:
        return Plan(pgs, shards, total, primaries, osds, total / measured_bytes_per_second,
                    'measured')
    return Plan(pgs, shards, total, primaries, osds,
                _assumed_seconds(pgs, total, osds, parallel, per_target), 'assumed')


def _assumed_seconds(pgs: int, total: int, osds: Tuple[OsdLoad, ...], parallel: int,
                     per_target: int) -> float:
    def seconds(count: int, size: int, at_a_time: int) -> float:
        return (count * RELEASE_OVERHEAD_SECONDS / at_a_time
                + size / (ASSUMED_BACKFILL_BYTES_PER_SECOND * at_a_time))

    busiest = max((seconds(load.pgs_in, load.bytes_in, per_target) for load in osds), default=0.0)
    return max(busiest, seconds(pgs, total, parallel))


def remaining_seconds(bytes_left: int, bytes_done: int, moving_seconds: float) -> Optional[float]:
    """ETA from the rate measured so far; None until anything has arrived."""
    if bytes_left == 0:
        return 0.0
    if bytes_done <= 0 or moving_seconds <= 0:
        return None
    return bytes_left * moving_seconds / bytes_done
