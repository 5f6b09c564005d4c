# SPDX-License-Identifier: LGPL-2.1-or-later
"""Client latency for the throttle: the last reading, its limit, and the parts that chance or the
load explain; and what single slow OSDs (watch/slow_reads.py) say about movement.

The throttle judges pools (throttle.py), and the mean of a pool hides a few slow OSDs, or is
distorted by one. So a slow OSD does not count in the latency of its pools, and gets no release,
whether PGs move there or not.
"""
from dataclasses import replace
from math import log, sqrt
from typing import (AbstractSet, Callable, Dict, FrozenSet, Iterable, List, Mapping, NamedTuple,
                    Optional, Sequence, Tuple)

from ..cluster.types import NO_OPS, ClientOps, Ops, PlainOps, are_sane
from ..errors import Code, Reason
from ..observation import Clients, Minute
from ..text import listed
from ..watch.peers import MIN_PEERS, weighted_median
from ..watch.slow_reads import (CHANCE_LEVEL, CHANCE_MAX, LEAST_OPS, MEDIAN_SPREAD, SlowReads,
                                judged_osds, stopped_osds)
from ..watch.slowness import OP_SPREAD, RESUME_SECONDS
from ..watch.stop_conditions import Stop

#: Pools with fewer operations in a reading are judged together as well.
SMALL_OPS = 1000
#: Minimum number of reads of the OSDs away from the movement, to measure the effect of the load.
REFERENCE_OPS = 4 * LEAST_OPS


class PoolLatency(NamedTuple):
    """One kind of operation of one pool, compared with its limit. Latencies in ms."""
    #: '': all small pools together.
    pool: str
    kind: str
    ms: float
    target_ms: float
    ops: float = 0.0
    spread: float = OP_SPREAD
    #: Share of the limit by which chance may exceed it.
    chance: float = 0.0
    #: Whether the operator has set the limit.
    named: bool = False

    @property
    def pressure(self) -> float:
        """1.0: latency equals its limit plus the share that chance explains."""
        return self.ms / self.target_ms / (1.0 + self.chance)

    @property
    def who(self) -> str:
        return 'pool %s' % self.pool if self.pool else 'all small pools'


class Path(NamedTuple):
    """Where data moves now; empty if nothing moves."""
    #: OSDs that read or write the moving data, or lead its PGs.
    osds: AbstractSet[int] = frozenset()
    #: `osds`, and all OSDs of hosts with movement now or recently.
    near: AbstractSet[int] = frozenset()
    #: Pools that may have PGs on `osds`.
    pools: AbstractSet[int] = frozenset()


def without_slow(clients: Clients, slow: AbstractSet[int], pools: AbstractSet[int]) -> Clients:
    """The operations that show the effect of movement while `slow` OSDs get no releases.

    These are the operations of the other OSDs. In `pools`, whose CRUSH rules lead to slow OSDs,
    writes and reads of erasure-coded pools wait for the slow OSDs regardless of movement, so they
    do not count either. For a limit set by the operator, all operations count.
    """
    if not slow:
        return clients
    rows: List[ClientOps] = []
    for row in clients.rows:
        pool = clients.pools.get(row.pool)
        if pool is None or pool.named:
            rows.append(row)
        elif row.osd not in slow:
            rows.append(row if row.pool not in pools else row._replace(
                read=NO_OPS if pool.erasure else row.read, write=NO_OPS))
    return replace(clients, rows=tuple(rows), pools={
        number: pool if pool.named else pool._replace(read_minute=Minute(), write_minute=Minute())
        for number, pool in clients.pools.items()})


def pool_latencies(clients: Clients, unsteady: AbstractSet[int], stall_ms: float,
                   path: Path = Path(), most_baselines: float = 1.0) -> List[PoolLatency]:
    """The latency of all kinds of operation of all pools; `unsteady`: OSDs whose operations wait
    for peering PGs.

    Such operations are left out: the stalls of released PGs have a budget of their own (stalls.py),
    and one operation that waits a second would outweigh a thousand others. If too few others are
    left to judge, as when PGs of all OSDs are peering, all count, and the limit is raised by the
    effect of the stall budget on the mean, `stall_ms`. Pools without operations near the path of
    what moves, and whose CRUSH rules do not lead there, do not count. The limit is also raised by
    the effect of the load, up to `most_baselines`.
    """
    steady, everything = _sums(clients, unsteady, path)
    loads = load_factors(clients, path.near | unsteady)
    # Operations of steady OSDs wait for no peering PG, so stalls do not raise the limit.
    rows = _against_limits(clients, steady, 0.0, loads, most_baselines)
    if judged(rows):
        return rows
    return _against_limits(clients, everything, stall_ms, loads, most_baselines)


def minute_latencies(clients: Clients, path: Path) -> List[PoolLatency]:
    """The median latencies of the last minute, of pools that the movement on `path` may slow down.

    Clients that wait send fewer operations: if data moves too fast for a few clients, a single
    reading has too few to be judged.
    """
    pools_near = {row.pool for row in clients.rows if row.osd in path.near}
    return [PoolLatency(pool.name, kind, minute.median_ms, target, minute.ops,
                        spread or OP_SPREAD, named=pool.named)
            for number, pool in clients.pools.items()
            if not path.osds or number in path.pools or number in pools_near
            for kind, minute, target, spread in (
                ('reads', pool.read_minute, pool.read_target_ms, pool.read_spread),
                ('writes', pool.write_minute, pool.write_target_ms, pool.write_spread))
            if target is not None and minute.ops]


def judged(rows: Sequence[PoolLatency]) -> List[PoolLatency]:
    """Rows with enough operations to be judged, and one more for all small pools together, with the
    share of the limit by which chance may exceed it. [] if there are too few operations."""
    judged_rows = [row for row in rows if row.ops >= LEAST_OPS]
    for kind in ('reads', 'writes'):
        small = [row for row in rows if row.kind == kind and row.ops < SMALL_OPS]
        if len(small) > 1 and sum(row.ops for row in small) >= LEAST_OPS:
            judged_rows.append(_together(small))
    return [row._replace(chance=0.0 if row.named else _chance(row, len(judged_rows)))
            for row in judged_rows]


def strain(rows: Sequence[PoolLatency]) -> float:
    """The highest ratio of latency to its limit, without the margin for chance. `rows`: as from
    `judged`; single small pools, where chance matters, do not count beside the row for all of
    them."""
    kinds_of_all_small = {row.kind for row in rows if not row.pool}
    return max((row.ms / row.target_ms for row in rows
                if not row.pool or row.ops >= SMALL_OPS or row.kind not in kinds_of_all_small),
               default=0.0)


def _together(small_pools: Sequence[PoolLatency]) -> PoolLatency:
    """One row for all small pools: the means of latency and limit over their operations."""
    ops = sum(row.ops for row in small_pools)

    def mean(values: Iterable[float]) -> float:
        return sum(row.ops * value for row, value in zip(small_pools, values)) / ops

    return PoolLatency('', small_pools[0].kind, mean(row.ms for row in small_pools),
                       mean(row.target_ms for row in small_pools), ops,
                       sqrt(mean(row.spread ** 2 for row in small_pools)))


def _chance(row: PoolLatency, judged_at_once: int) -> float:
    """Share of the limit by which chance may exceed it: the mean of n operations has the relative
    deviation spread / sqrt(n). The factor bounds a normal variable's upper tail by CHANCE_LEVEL /
    judged_at_once: P(z > t) <= exp(-t^2 / 2)."""
    deviations = sqrt(2.0 * log(judged_at_once / CHANCE_LEVEL))
    return min(CHANCE_MAX, deviations * row.spread / sqrt(row.ops))


def load_factors(clients: Clients, disturbed: AbstractSet[int]) -> Dict[int, float]:
    """Pool -> by which factor its reads away from `disturbed` OSDs exceed the baseline, as far as
    that is certain; at least 1.0, also with fewer than MIN_PEERS OSDs or REFERENCE_OPS reads. Pools
    without such reads are missing. `disturbed`: OSDs near movement, or with peering PGs.

    Only replicated pools with a baseline: their reads mostly depend on the OSD that serves them.
    Each OSD is compared with its own baseline, and the median by operations counts, so that a few
    failing OSDs are not mistaken for a load.
    """
    ratios: Dict[int, List[Tuple[float, int]]] = {}
    for row in clients.rows:
        pool = clients.pools.get(row.pool)
        sum_ns, number = row.read
        if row.osd in disturbed or pool is None or pool.erasure or not pool.read_baseline_ms \
                or not are_sane(sum_ns, number) or not number:
            continue
        baseline_ns = number * 1e6 * pool.read_baseline_ms * clients.norms.get(row.osd, 1.0)
        ratios.setdefault(row.pool, []).append((sum_ns / baseline_ns, number))
    return {pool: _certain_median(pool_ratios, clients.pools[pool].read_spread)
            for pool, pool_ratios in ratios.items()}


def _certain_median(ratios: List[Tuple[float, int]], spread: Optional[float]) -> float:
    """The median ratio to the baseline, less what chance explains; at least 1.0. `ratios`: (ratio,
    number of reads) of each OSD."""
    ops = sum(number for _, number in ratios)
    if len(ratios) < MIN_PEERS or ops < REFERENCE_OPS:
        return 1.0
    chance = MEDIAN_SPREAD * sqrt(2.0 * log(1.0 / CHANCE_LEVEL)) * (spread or OP_SPREAD) / sqrt(ops)
    return max(1.0, weighted_median(ratios) / (1.0 + chance))


def _against_limits(clients: Clients, sums: Mapping[int, Tuple[Ops, Ops]], stall_ms: float,
                    loads: Mapping[int, float], most_baselines: float) -> List[PoolLatency]:
    """The latency of reads and writes of each pool, with its limit.

    `sums`: pool -> its reads and writes; `stall_ms`: what stalls may add to the limit; `loads`:
    pool -> factor by which a higher load raises it, up to `most_baselines` baselines.
    """
    rows: List[PoolLatency] = []
    for pool_id, (read, write) in sums.items():
        pool = clients.pools[pool_id]
        for kind, ops, target, baseline, spread in (
                ('reads', read, pool.read_target_ms, pool.read_baseline_ms, pool.read_spread),
                ('writes', write, pool.write_target_ms, pool.write_baseline_ms,
                 pool.write_spread)):
            if target is None or not ops.number:
                continue
            if not pool.named and baseline is not None:
                target = max(target, min(loads.get(pool_id, 1.0) * target,
                                         most_baselines * baseline))
            rows.append(PoolLatency(
                pool.name, kind, ops.sum_ns / ops.number / 1e6, target + stall_ms, ops.number,
                spread or OP_SPREAD, named=pool.named))
    return rows


def _sums(clients: Clients, unsteady: AbstractSet[int], path: Path
          ) -> Tuple[Dict[int, Tuple[Ops, Ops]], Dict[int, Tuple[Ops, Ops]]]:
    """Pool -> its reads and writes, first without those of `unsteady` OSDs, then with them. If data
    moves, only pools that the movement may slow down."""
    steady_sums: Dict[int, List[int]] = {}
    all_sums: Dict[int, List[int]] = {}
    concerned = set(path.pools)
    for row in clients.rows:
        if row.pool not in clients.pools or not row.sane:
            continue
        read, write = row.read, row.write
        if row.osd in path.near:
            concerned.add(row.pool)
        _add(all_sums.setdefault(row.pool, [0, 0, 0, 0]), read, write)
        if row.osd not in unsteady:
            _add(steady_sums.setdefault(row.pool, [0, 0, 0, 0]), read, write)
    steady, everything = ({pool: (Ops(*sums[:2]), Ops(*sums[2:])) for pool, sums in by_pool.items()}
                          for by_pool in (steady_sums, all_sums))
    if not path.osds:
        return steady, everything
    return ({pool: ops for pool, ops in steady.items() if pool in concerned},
            {pool: ops for pool, ops in everything.items() if pool in concerned})


def _add(sums: List[int], read: PlainOps, write: PlainOps) -> None:
    """Add the operations of a row to those of its pool: lists, since there may be 10,000 rows."""
    sums[0] += read[0]
    sums[1] += read[1]
    sums[2] += write[0]
    sums[3] += write[1]


# ---- single OSDs with slow reads (watch/slow_reads.py), and movement

#: Minimum number of hosts with slow OSDs, and the ratio of the shares of slow OSDs with and without
#: movement, from which on movement is the cause.
CAUSED_HOSTS = 3
CAUSED_RATIO = 2
#: Minimum share of slow OSDs that explains why all operations of a pool are slow.
EXPLAINING_SHARE = 0.01


def slow_read_stops(states: Mapping[int, SlowReads], now: float) -> List[Stop]:
    """The stop conditions of the releases that touch these OSDs."""
    osds = sorted(stopped_osds(states, now))
    if not osds:
        return []
    # The host or failure domain, if it is slow as a whole.
    places = list(dict.fromkeys(states[osd].place or 'osd.%d' % osd for osd in osds))
    return [Stop(Reason(Code.OSD_LATENCY, 'read latency of %s is above its limit, unlike that of '
                        'other OSDs; releases there resume %d s after it is within its limit'
                        % (listed(places), RESUME_SECONDS)), frozenset(osds))]


def slowed_by_movement(slow: AbstractSet[int], moving: AbstractSet[int],
                       comparable: AbstractSet[int], host_of: Callable[[int], str]) -> bool:
    """Whether movement is the cause of the slow OSDs of one reading; `moving`: OSDs that movement
    burdens, `comparable`: OSDs that might have been found slow.

    A drive or a host may become slow by chance while data moves there. If several hosts do so at
    once, movement is the cause, unless OSDs without movement are slow as often.
    """
    slow_moving, slow_others = slow & comparable & moving, (slow & comparable) - moving
    all_moving, all_others = comparable & moving, comparable - moving
    # The shares of slow OSDs are compared, without a division by 0.
    return len(set(map(host_of, slow_moving))) >= CAUSED_HOSTS and (
        len(slow_moving) * len(all_others) >= CAUSED_RATIO * len(slow_others) * len(all_moving))


def comparable_osds(clients: Clients, moving: AbstractSet[int]) -> FrozenSet[int]:
    """OSDs whose reads can be found slow and that serve a pool together with `moving` ones. Others,
    for example of another device class, cannot be compared with these."""
    pools = {row.pool for row in clients.rows if row.osd in moving}
    return judged_osds(replace(clients, rows=tuple(
        row for row in clients.rows if row.pool in pools)))


def explains_pool(slow: AbstractSet[int], osd_count: int) -> bool:
    """Whether OSDs that are slow on their own may explain a slow pool; `osd_count`: of all OSDs.
    A few of very many take part in few operations: then other moves are the cause."""
    return len(slow) > EXPLAINING_SHARE * osd_count


def explains_alarm(states: Mapping[int, SlowReads], now: float, osd_count: int) -> bool:
    """Whether OSDs that are or were slow on their own may explain the alarm of a pool, which may
    outlast them. `osd_count`: of all OSDs."""
    slow = [state for state in states.values() if state.is_slow(now) or state.has_been(now)]
    return len(slow) > EXPLAINING_SHARE * osd_count
