# SPDX-License-Identifier: LGPL-2.1-or-later
"""Client latency as the throttle takes it: the last reading, what is usual, and what chance or
the load explain."""
from dataclasses import dataclass, field
from math import log, sqrt
from typing import AbstractSet, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..cluster.types import ClientOps, Ops

#: Fewer operations than this in one reading say nothing about latency.
LEAST_OPS = 50
#: A pool with fewer operations a second over the last minute has no clients at work, if so much
#: of the minute was seen: right after a failover nothing is known.
IDLE_RATE = 0.5
IDLE_SECONDS = 30.0
#: Standard deviation of the latency of one operation over its mean, until it is measured. 0.6 to
#: 0.9 on idle flash, 2.1 for a lognormal distribution with sigma 1.3.
USUAL_SPREAD = 1.5
#: How often chance alone may call a reading of all pools too slow, by the bound below. The means
#: of few operations are skewed: it is about once in a hundred.
CHANCE = 0.001
#: The most that chance explains: a reading of twice its limit is over it.
CHANCE_MAX = 1.0
#: Pools with fewer operations in a reading are judged together as well.
SMALL_OPS = 1000
#: Reads of so many OSDs away from what moves, and so many of them, show what the load does.
REFERENCE_OSDS = 3
REFERENCE_OPS = 4 * LEAST_OPS


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
    #: OSD -> latency of its reads while nothing moves, in baselines of their pools.
    norms: Mapping[int, float] = field(default_factory=dict)

    def idle(self, pool: PoolClients) -> bool:
        """Nobody is at work on the pool, and that is known."""
        return pool.rate < IDLE_RATE and self.covered >= IDLE_SECONDS

    @property
    def all_idle(self) -> bool:
        return self.covered >= IDLE_SECONDS and all(map(self.idle, self.pools.values()))


class Felt(NamedTuple):
    """One kind of operation of one pool, against what is allowed. Latencies in ms."""
    #: '': of all small pools together.
    pool: str
    kind: str
    ms: float
    target_ms: float
    ops: float = 0.0
    spread: float = USUAL_SPREAD
    #: Share of the limit by which chance may exceed it.
    chance: float = 0.0

    @property
    def pressure(self) -> float:
        """1.0 is what is allowed and what chance explains."""
        return self.ms / self.target_ms / (1.0 + self.chance)

    @property
    def who(self) -> str:
        return 'pool %s' % self.pool if self.pool else 'all small pools'


class Path(NamedTuple):
    """Where data moves now. Nowhere: nothing moves."""
    #: OSDs that read, write or lead what moves.
    osds: AbstractSet[int] = frozenset()
    #: All OSDs of their hosts.
    near: AbstractSet[int] = frozenset()


def felt(clients: Clients, unsteady: AbstractSet[int], stall_ms: float, path: Path = Path(),
         most: float = 1.0) -> List[Felt]:
    """What there are operations of; `unsteady`: OSDs whose operations wait for peering PGs.

    Those are left out: the stalls of released PGs have a budget of their own (stalls.py), and one
    operation that waits a second would outweigh a thousand that do not. Where PGs of all OSDs are
    peering, all count, and what the budget of stalls adds to the mean, `stall_ms`, is allowed.
    Pools without an operation on the path of what moves do not count. What the load adds is
    allowed, up to `most` times the target.
    """
    load = min(most, load_factor(clients, path.near | unsteady))
    steady = _against_targets(clients, unsteady, 0.0, path, load)
    if sum(each.ops for each in steady) >= LEAST_OPS:
        return steady
    return _against_targets(clients, frozenset(), stall_ms, path, load)


def judged(seen: Sequence[Felt]) -> List[Felt]:
    """What has operations enough to be judged, small pools also together, with the share of its
    limit that chance explains. [] where there are too few operations."""
    found = [each for each in seen if each.ops >= LEAST_OPS]
    for kind in ('reads', 'writes'):
        small = [each for each in seen if each.kind == kind and each.ops < SMALL_OPS]
        ops = sum(each.ops for each in small)
        if len(small) > 1 and ops >= LEAST_OPS:
            found.append(_together(kind, small, ops))
    return [each._replace(chance=_chance(each, len(found))) for each in found]


def _together(kind: str, small: Sequence[Felt], ops: float) -> Felt:
    return Felt('', kind, sum(each.ops * each.ms for each in small) / ops,
                sum(each.ops * each.target_ms for each in small) / ops, ops,
                max(each.spread for each in small))


def _chance(each: Felt, judged_at_once: int) -> float:
    """The mean of n operations has the relative deviation spread / sqrt(n). The factor bounds a
    normal variable's upper tail by CHANCE / judged_at_once: P(z > t) <= exp(-t^2 / 2)."""
    deviations = sqrt(2.0 * log(judged_at_once / CHANCE))
    return min(CHANCE_MAX, deviations * each.spread / sqrt(each.ops))


def load_factor(clients: Clients, near: AbstractSet[int]) -> float:
    """How many times slower than usual reads are where nothing moves, as far as that is certain;
    at least 1.0.

    Reads of replicated pools wait for the OSD that serves them, and for no other. Each OSD is
    compared with itself, so that slower ones among them do not count.
    """
    total_ns = usual_ns = ops = 0.0
    osds, spread = set(), 0.0
    for row in clients.rows:
        pool, norm = clients.pools.get(row.pool), clients.norms.get(row.osd)
        if row.osd in near or not norm or pool is None or pool.erasure \
                or not pool.read_baseline_ms or not row.read.sane or not row.read.number:
            continue
        total_ns += row.read.sum_ns
        usual_ns += row.read.number * 1e6 * pool.read_baseline_ms * norm
        ops += row.read.number
        osds.add(row.osd)
        spread = max(spread, pool.read_spread or USUAL_SPREAD)
    if len(osds) < REFERENCE_OSDS or ops < REFERENCE_OPS:
        return 1.0
    chance = sqrt(2.0 * log(1.0 / CHANCE)) * spread / sqrt(ops)
    return max(1.0, total_ns / usual_ns / (1.0 + chance))


def _against_targets(clients: Clients, unsteady: AbstractSet[int], more_ms: float, path: Path,
                     load: float) -> List[Felt]:
    found: List[Felt] = []
    for pool_id, (read, write) in _sums(clients, unsteady, path.osds).items():
        pool = clients.pools[pool_id]
        for kind, ops, target, spread in (
                ('reads', read, pool.read_target_ms, pool.read_spread),
                ('writes', write, pool.write_target_ms, pool.write_spread)):
            if target is not None and ops.number:
                found.append(Felt(pool.name, kind, ops.sum_ns / ops.number / 1e6,
                                  target * (1.0 if pool.named else load) + more_ms,
                                  ops.number, spread or USUAL_SPREAD))
    return found


def _sums(clients: Clients, unsteady: AbstractSet[int], path: AbstractSet[int]
          ) -> Dict[int, Tuple[Ops, Ops]]:
    sums: Dict[int, Tuple[Ops, Ops]] = {}
    for row in _sane(clients):
        if row.osd not in unsteady:
            read, write = sums.get(row.pool, (Ops(), Ops()))
            sums[row.pool] = (_add(read, row.read), _add(write, row.write))
    if not path:
        return sums
    concerned = {row.pool for row in _sane(clients) if row.osd in path}
    return {pool: ops for pool, ops in sums.items() if pool in concerned}


def _sane(clients: Clients) -> Iterable[ClientOps]:
    return (row for row in clients.rows
            if row.pool in clients.pools and row.read.sane and row.write.sane)


def _add(one: Ops, other: Ops) -> Ops:
    return Ops(one.sum_ns + other.sum_ns, one.number + other.number)
