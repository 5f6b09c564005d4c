# SPDX-License-Identifier: LGPL-2.1-or-later
"""What clients feel, as the throttle takes it: the last reading, and what is usual."""
from dataclasses import dataclass, field
from typing import AbstractSet, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ..cluster.types import ClientOps, Ops

#: Fewer operations than this in one reading say nothing about latency.
LEAST_OPS = 50
#: A pool with fewer operations a second over the last minute has no clients at work, if so much
#: of the minute was seen: right after a failover nothing is known.
IDLE_RATE = 0.5
IDLE_SECONDS = 30.0


class PoolClients(NamedTuple):
    """The clients of one pool."""
    name: str
    #: PGs of the pool.
    pg_num: int
    #: Operations per second over the last minute.
    rate: float
    #: Mean latency that clients may feel, in ms; None: not known yet.
    read_target_ms: Optional[float] = None
    write_target_ms: Optional[float] = None
    #: Mean latency while nothing moves, in ms; None: not learned yet.
    read_baseline_ms: Optional[float] = None
    write_baseline_ms: Optional[float] = None


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

    def idle(self, pool: PoolClients) -> bool:
        """Nobody is at work on the pool, and that is known."""
        return pool.rate < IDLE_RATE and self.covered >= IDLE_SECONDS

    @property
    def all_idle(self) -> bool:
        return self.covered >= IDLE_SECONDS and all(map(self.idle, self.pools.values()))


class Felt(NamedTuple):
    """One kind of operation of one pool, against what is allowed. Latencies in ms."""
    pool: str
    kind: str
    ms: float
    target_ms: float

    @property
    def pressure(self) -> float:
        """1.0 is what is allowed."""
        return self.ms / self.target_ms


def felt(clients: Clients, unsteady: AbstractSet[int], stall_ms: float) -> List[Felt]:
    """What there is evidence of; `unsteady`: OSDs whose operations wait for peering PGs.

    Those are left out: the stalls of released PGs have a budget of their own (stalls.py), and one
    operation that waits a second would outweigh a thousand that do not. Where PGs of all OSDs are
    peering, all count, and what the budget of stalls adds to the mean, `stall_ms`, is allowed.
    """
    steady = _against_targets(clients, unsteady, 0.0)
    return steady or _against_targets(clients, frozenset(), stall_ms)


def _against_targets(clients: Clients, unsteady: AbstractSet[int], more_ms: float) -> List[Felt]:
    found: List[Felt] = []
    for pool_id, (read, write) in _sums(clients, unsteady).items():
        pool = clients.pools[pool_id]
        for kind, ops, target in (('reads', read, pool.read_target_ms),
                                  ('writes', write, pool.write_target_ms)):
            if target is not None and ops.number >= LEAST_OPS:
                found.append(Felt(pool.name, kind, ops.sum_ns / ops.number / 1e6,
                                  target + more_ms))
    return found


def _sums(clients: Clients, unsteady: AbstractSet[int]) -> Dict[int, Tuple[Ops, Ops]]:
    sums: Dict[int, Tuple[Ops, Ops]] = {}
    for row in clients.rows:
        if row.pool in clients.pools and row.osd not in unsteady \
                and row.read.sane and row.write.sane:
            read, write = sums.get(row.pool, (Ops(), Ops()))
            sums[row.pool] = (_add(read, row.read), _add(write, row.write))
    return sums


def _add(one: Ops, other: Ops) -> Ops:
    return Ops(one.sum_ns + other.sum_ns, one.number + other.number)
