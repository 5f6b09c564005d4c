# SPDX-License-Identifier: LGPL-2.1-or-later
"""Client latency for the throttle: the last reading, its limit, and the parts that chance or the
load explain; and single OSDs, hosts and failure domains with slow reads.

The throttle judges pools (throttle.py), and the mean of a pool hides a few slow OSDs, or is
distorted by one. So the reads of each OSD are compared with its own baseline, and with those of the
other OSDs at the same instant: if all are slow, the pool shows it. A slow OSD does not count in the
latency of its pools, and gets no release once two readings in a row have shown it, whether PGs move
there or not: among few reads, one that waits for a peering PG makes any OSD slow for one reading.
Reads of replicated pools depend mostly on the OSD that serves them. Writes, and reads of
erasure-coded pools, also wait for others.

A whole host may be slow, because of its network or its CPU, with few reads on each of its OSDs. So
the OSDs of each host and failure domain are also judged together, by their median: one or two slow
OSDs do not make a host slow.
"""
from dataclasses import replace
from math import log, sqrt
from typing import (AbstractSet, Callable, Dict, FrozenSet, Iterable, List, Mapping, NamedTuple,
                    Optional, Sequence, Tuple)

from ..cluster.crush import CrushRules
from ..cluster.types import ClientOps, Ops
from ..errors import Code, Reason
from ..observation import Clients, Minute
from ..tables import listed
from ..watch.peers import weighted_median
from ..watch.stop_conditions import Stop

#: Minimum number of operations of one reading to judge latency.
LEAST_OPS = 50
#: Standard deviation of the latency of one operation over its mean, until it is measured. 0.6 to
#: 0.9 on idle flash, 2.1 for a lognormal distribution with sigma 1.3.
TYPICAL_SPREAD = 1.5
#: Bound on the probability that chance alone makes a reading of all pools too slow. The means of
#: few operations are skewed, so that it is about 1 %.
CHANCE = 0.001
#: Maximum share that chance explains: a reading of twice its limit is always too slow.
CHANCE_MAX = 1.0
#: Maximum spread: a single stall must not hide later increases.
SPREAD_MAX = 4.0
#: Pools with fewer operations in a reading are judged together as well.
SMALL_OPS = 1000
#: Minimum number of OSDs away from the movement, and of their reads, to measure the effect of the
#: load.
REFERENCE_OSDS = 3
REFERENCE_OPS = 4 * LEAST_OPS


#: Minimum number of hosts with slow OSDs, and the ratio of the shares of slow OSDs with and without
#: movement, from which on movement is the cause.
CAUSED_HOSTS = 3
CAUSED_RATIO = 2


class PoolLatency(NamedTuple):
    """One kind of operation of one pool, compared with its limit. Latencies in ms."""
    #: '': all small pools together.
    pool: str
    kind: str
    ms: float
    target_ms: float
    ops: float = 0.0
    spread: float = TYPICAL_SPREAD
    #: Share of the limit by which chance may exceed it.
    chance: float = 0.0
    #: The limit was set by the operator.
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
    #: These and all OSDs of hosts with movement now or recently.
    near: AbstractSet[int] = frozenset()
    #: Pools that may have PGs on `osds`.
    pools: AbstractSet[int] = frozenset()


def without_slow(clients: Clients, slow: AbstractSet[int], pools: AbstractSet[int]) -> Clients:
    """The operations that show the effect of movement while single OSDs are slow and get no
    releases: reads from the other OSDs. In `pools`, whose CRUSH rules lead to `slow` OSDs, writes
    and reads of erasure-coded pools wait for the slow OSDs regardless of movement. For a limit set
    by the operator, all operations count."""
    rows: List[ClientOps] = []
    for row in clients.rows if slow else ():
        pool = clients.pools.get(row.pool)
        if pool is None or pool.named:
            rows.append(row)
        elif row.osd not in slow:
            rows.append(row if row.pool not in pools else row._replace(
                read=Ops() if pool.erasure else row.read, write=Ops()))
    if not slow:
        return clients
    return replace(clients, rows=tuple(rows), pools={
        number: pool if pool.named else pool._replace(read_minute=Minute(), write_minute=Minute())
        for number, pool in clients.pools.items()})


def pool_latencies(clients: Clients, unsteady: AbstractSet[int], stall_ms: float,
                   path: Path = Path(), most: float = 1.0) -> List[PoolLatency]:
    """The latency of all kinds of operation of all pools; `unsteady`: OSDs whose operations wait
    for peering PGs.

    Those are left out: the stalls of released PGs have a budget of their own (stalls.py), and one
    operation that waits a second would outweigh a thousand others. If PGs of all OSDs are
    peering, all count, and the limit is raised by the effect of the stall budget on the mean,
    `stall_ms`. Pools without operations near the path of what moves, and whose CRUSH rules do not
    lead there, do not count. The limit is also raised by the effect of the load, up to `most`
    baselines.
    """
    steady, everything = _sums(clients, unsteady, path)
    loads = load_factors(clients, path.near | unsteady)
    found = _against_targets(clients, steady, 0.0, loads, most)
    if judged(found):
        return found
    return _against_targets(clients, everything, stall_ms, loads, most)


def minute_latencies(clients: Clients, path: Path) -> List[PoolLatency]:
    """The latency in the last minute, of the pools that count in pool_latencies.

    Clients that wait send fewer operations: if data moves too fast for a few clients, a single
    reading has too few to be judged.
    """
    near = {row.pool for row in clients.rows if row.osd in path.near}
    return [PoolLatency(pool.name, kind, minute.median_ms, target, minute.ops,
                        spread or TYPICAL_SPREAD, named=pool.named)
            for number, pool in clients.pools.items()
            if not path.osds or number in path.pools or number in near
            for kind, minute, target, spread in (
                ('reads', pool.read_minute, pool.read_target_ms, pool.read_spread),
                ('writes', pool.write_minute, pool.write_target_ms, pool.write_spread))
            if target is not None and minute.ops]


def judged(seen: Sequence[PoolLatency]) -> List[PoolLatency]:
    """Rows with enough operations to be judged, small pools also together, with the share of the
    limit that chance explains. [] if there are too few operations."""
    found = [each for each in seen if each.ops >= LEAST_OPS]
    for kind in ('reads', 'writes'):
        small = [each for each in seen if each.kind == kind and each.ops < SMALL_OPS]
        if len(small) > 1 and sum(each.ops for each in small) >= LEAST_OPS:
            found.append(_together(small))
    return [each._replace(chance=0.0 if each.named else _chance(each, len(found)))
            for each in found]


def strain(seen: Sequence[PoolLatency]) -> float:
    """The highest ratio to the limit among rows with so many operations, or all of them, that
    chance is negligible."""
    small = [each for each in seen if each.pool and each.ops < SMALL_OPS]
    joined = {each.kind for each in seen if not each.pool}
    return max((each.ms / each.target_ms for each in seen
                if each not in small or each.kind not in joined), default=0.0)


def _together(parts: Sequence[PoolLatency]) -> PoolLatency:
    """The mean of all operations of one kind, each relative to its own limit."""
    ops = sum(each.ops for each in parts)

    def mean(values: Iterable[float]) -> float:
        return sum(each.ops * value for each, value in zip(parts, values)) / ops

    return PoolLatency('', parts[0].kind, mean(each.ms for each in parts),
                       mean(each.target_ms for each in parts), ops,
                       sqrt(mean(each.spread ** 2 for each in parts)))


def _chance(each: PoolLatency, judged_at_once: int) -> float:
    """The mean of n operations has the relative deviation spread / sqrt(n). The factor bounds a
    normal variable's upper tail by CHANCE / judged_at_once: P(z > t) <= exp(-t^2 / 2)."""
    deviations = sqrt(2.0 * log(judged_at_once / CHANCE))
    return min(CHANCE_MAX, deviations * min(SPREAD_MAX, each.spread) / sqrt(each.ops))


def load_factors(clients: Clients, near: AbstractSet[int]) -> Dict[int, float]:
    """Pool -> by which factor its reads away from the movement exceed the baseline, as far as that
    is certain; at least 1.0.

    Only replicated pools: their reads mostly depend on the OSD that serves them. Each OSD is
    compared with its own baseline, and the median by operations counts, so that a few failing OSDs
    are not mistaken for a load.
    """
    ratios: Dict[int, List[Tuple[float, int]]] = {}
    for row in clients.rows:
        pool = clients.pools.get(row.pool)
        if row.osd in near or pool is None or pool.erasure or not pool.read_baseline_ms \
                or not row.read.sane or not row.read.number:
            continue
        baseline_ns = row.read.number * 1e6 * pool.read_baseline_ms \
            * clients.norms.get(row.osd, 1.0)
        ratios.setdefault(row.pool, []).append((row.read.sum_ns / baseline_ns, row.read.number))
    return {pool: _certain_median(found, clients.pools[pool].read_spread)
            for pool, found in ratios.items()}


def _certain_median(ratios: List[Tuple[float, int]], spread: Optional[float]) -> float:
    ops = sum(number for _, number in ratios)
    if len(ratios) < REFERENCE_OSDS or ops < REFERENCE_OPS:
        return 1.0
    # The deviation of a median is sqrt(pi / 2) times that of a mean.
    chance = 1.25 * sqrt(2.0 * log(1.0 / CHANCE)) \
        * min(SPREAD_MAX, spread or TYPICAL_SPREAD) / sqrt(ops)
    return max(1.0, weighted_median(ratios) / (1.0 + chance))


def _against_targets(clients: Clients, sums: Mapping[int, Tuple[Ops, Ops]], more_ms: float,
                     loads: Mapping[int, float], most: float) -> List[PoolLatency]:
    found: List[PoolLatency] = []
    for pool_id, (read, write) in sums.items():
        pool = clients.pools[pool_id]
        for kind, ops, target, baseline, spread in (
                ('reads', read, pool.read_target_ms, pool.read_baseline_ms, pool.read_spread),
                ('writes', write, pool.write_target_ms, pool.write_baseline_ms,
                 pool.write_spread)):
            if target is None or not ops.number:
                continue
            if not pool.named and baseline is not None:
                target = max(target, min(loads.get(pool_id, 1.0) * target, most * baseline))
            found.append(PoolLatency(
                pool.name, kind, ops.sum_ns / ops.number / 1e6, target + more_ms, ops.number,
                spread or TYPICAL_SPREAD, named=pool.named))
    return found


def _sums(clients: Clients, unsteady: AbstractSet[int], path: Path
          ) -> Tuple[Dict[int, Tuple[Ops, Ops]], Dict[int, Tuple[Ops, Ops]]]:
    """Pool -> its operations, without and with those of unsteady OSDs; only pools on the path."""
    steady: Dict[int, Tuple[Ops, Ops]] = {}
    everything: Dict[int, Tuple[Ops, Ops]] = {}
    concerned = set(path.pools)
    nothing = (Ops(), Ops())
    for row in clients.rows:
        if row.pool not in clients.pools or not row.read.sane or not row.write.sane:
            continue
        if row.osd in path.near:
            concerned.add(row.pool)
        read, write = everything.get(row.pool, nothing)
        everything[row.pool] = (_add(read, row.read), _add(write, row.write))
        if row.osd not in unsteady:
            read, write = steady.get(row.pool, nothing)
            steady[row.pool] = (_add(read, row.read), _add(write, row.write))
    if not path.osds:
        return steady, everything
    return ({pool: ops for pool, ops in steady.items() if pool in concerned},
            {pool: ops for pool, ops in everything.items() if pool in concerned})


def _add(one: Ops, other: Ops) -> Ops:
    return Ops(one.sum_ns + other.sum_ns, one.number + other.number)


# ---- OSDs, hosts and failure domains with slow reads: they receive no release for a while

#: Seconds after the last reading over the limit until an OSD gets releases again.
RESUME_SECONDS = 30.0
#: Reads that are slow for this time after the last PG moved there are slow for another reason. An
#: OSD gets no release for at most this time while readings are inconclusive.
UNTOUCHED_SECONDS = 180.0
#: Time in which the OSD then gets releases regardless of its latency, and in which the throttle
#: takes no other latency of a pool for its new baseline.
EXEMPT_SECONDS = 3600.0
#: Minimum number of reads of an OSD in one reading. An OSD that hardly answers has few; of so few,
#: only a latency of many times the limit is significant.
LEAST_READS = 5
#: Minimum share of slow OSDs that explains why all operations of a pool are slow.
EXPLAINING_SHARE = 0.01
#: The alarm of a pool outlasts the slow OSDs that have caused it: it judges the last minute, and is
#: cleared after another minute (watch/pools.py).
ALARM_SECONDS = 150.0
#: The deviation of a median is so many times that of a mean: sqrt(pi / 2).
MEDIAN_SPREAD = 1.25

#: "host h1" -> its OSDs.
Places = Mapping[str, AbstractSet[int]]


class SlowReads(NamedTuple):
    """An OSD whose reads were over their limit, or those of its host or failure domain."""
    #: Time of its last reading over the limit, and when it last took part in a move (or this
    #: began).
    over: float
    touched: float
    #: Until then its latency stops no release.
    exempt_until: float = 0.0
    #: Based on one reading only, which later ones may contradict.
    single: bool = False
    #: The host or failure domain that is slow; '': the OSD alone.
    place: str = ''
    #: The last later reading that did not contradict it.
    assumed: float = 0.0

    def stops(self, now: float) -> bool:
        return now >= self.exempt_until and self.recent(now) and not self.single

    def is_slow(self, now: float) -> bool:
        """Whether it is slow now, exempt or not."""
        return self.recent(now) and (not self.single or self.over == now)

    def recent(self, now: float) -> bool:
        return now - max(self.over, self.assumed) < RESUME_SECONDS

    def has_been(self, now: float) -> bool:
        """Whether it was slow within the time that an alarm outlasts its cause."""
        return not self.single and now - max(self.over, self.assumed) < ALARM_SECONDS

    def counts(self, now: float) -> bool:
        """Whether a reading over the limit continues the present state."""
        return self.recent(now) or now < self.exempt_until


class _Reads(NamedTuple):
    """The reads of one OSD against its own baseline, or of the median OSD of several."""
    #: Their latency, and its limit, in baselines.
    ratio: float
    limit: float
    ops: int
    spread: float

    @property
    def certain(self) -> float:
        """The ratio without what chance explains."""
        chance = sqrt(2.0 * log(1.0 / CHANCE)) * min(SPREAD_MAX, self.spread) / sqrt(self.ops)
        return self.ratio / (1.0 + (min(CHANCE_MAX, chance) if self.ops >= LEAST_OPS else chance))


def slow_reads_after(states: Mapping[int, SlowReads], clients: Clients,
                     unsteady: AbstractSet[int], in_flight: AbstractSet[int], now: float,
                     places: Places = {}) -> Dict[int, SlowReads]:
    """The states after a new reading. `in_flight`: OSDs that moves burden now; `unsteady`: OSDs
    whose operations wait for peering PGs, which have a budget of their own (stalls.py)."""
    everything = _reads(clients)
    every = {osd: each for osd, each in everything.items() if each.ops >= LEAST_READS}
    steady = {osd: each for osd, each in every.items() if osd not in unsteady}
    judged = _judged_places(everything, unsteady, every, places)
    over = dict.fromkeys(_over(steady, every), '')
    over.update((osd, place) for place, slow in judged.items() if slow for osd in places[place])
    kept = {osd: state._replace(touched=now) if osd in in_flight else state
            for osd, state in states.items()
            if (state.counts(now) or state.has_been(now))
            and not (state.single and (osd in steady or state.place in judged) and osd not in over)}
    for osd, state in kept.items():
        # A state lasts until a reading contradicts it, but not forever. Peering only adds latency.
        denied = osd in steady or state.place in judged \
            or osd in every and every[osd].ratio <= every[osd].limit
        if state.recent(now) and not (state.single or denied) and osd in everything \
                and now - state.over <= UNTOUCHED_SECONDS:
            kept[osd] = state._replace(assumed=now)
    for osd, place in over.items():
        known = kept.get(osd)
        kept[osd] = SlowReads(now, now, single=True, place=place) \
            if known is None or not known.counts(now) \
            else _exempt(known._replace(over=now, single=False, place=place), now)
    return kept


def _exempt(state: SlowReads, now: float) -> SlowReads:
    """Its reads are slow, but not because of movement if there was none for long enough."""
    if now - state.touched > UNTOUCHED_SECONDS and now >= state.exempt_until:
        return state._replace(exempt_until=now + EXEMPT_SECONDS)
    return state


def slow_read_stops(states: Mapping[int, SlowReads], now: float) -> List[Stop]:
    """The stop conditions of the releases that touch these OSDs."""
    osds = sorted(stopped_osds(states, now))
    if not osds:
        return []
    slow = list(dict.fromkeys(states[osd].place or 'osd.%d' % osd for osd in osds))
    return [Stop(Reason(Code.OSD_LATENCY, 'read latency of %s is above its limit, unlike that of '
                        'other OSDs; releases there resume %d s after it is within its limit'
                        % (listed(slow), RESUME_SECONDS)), frozenset(osds))]


def places_of(crush: CrushRules, rules: Iterable[int]) -> Places:
    """The hosts, and the failure domains of the rules."""
    kinds = {'host', *(crush.failure_domain(rule) or 'host' for rule in rules)} - {'osd'}
    return {'%s %s' % (kind, name): osds for kind in sorted(kinds)
            for name, osds in crush.osds_by(kind).items()}


def stopped_osds(states: Mapping[int, SlowReads], now: float) -> FrozenSet[int]:
    """OSDs that are slow now and not exempt."""
    return frozenset(osd for osd, state in states.items() if state.stops(now))


def slow_osds(states: Mapping[int, SlowReads], now: float) -> FrozenSet[int]:
    """OSDs that are slow now, exempt or not."""
    return frozenset(osd for osd, state in states.items() if state.is_slow(now))


def slowed_by_movement(slow: AbstractSet[int], moving: AbstractSet[int],
                       comparable: AbstractSet[int], host_of: Callable[[int], str]) -> bool:
    """Whether movement is the cause of the slow OSDs of one reading; `moving`: OSDs that it
    burdens, `comparable`: OSDs that might have been found slow.

    A drive or a host may become slow while data moves there; several hosts at once do not, unless
    OSDs without movement are slow as often.
    """
    caused, others = slow & comparable & moving, len((slow & comparable) - moving)
    burdened, elsewhere = len(comparable & moving), len(comparable - moving)
    return len(set(map(host_of, caused))) >= CAUSED_HOSTS and (
        len(caused) * elsewhere >= CAUSED_RATIO * others * burdened)


def comparable_osds(clients: Clients, moving: AbstractSet[int]) -> FrozenSet[int]:
    """OSDs whose reads can be found slow and that serve a pool together with `moving` ones: others
    say nothing about these, such as those of another device class."""
    pools = {row.pool for row in clients.rows if row.osd in moving}
    return judged_osds(replace(clients, rows=tuple(
        row for row in clients.rows if row.pool in pools)))


def judged_osds(clients: Clients) -> FrozenSet[int]:
    """OSDs whose reads can be found slow."""
    return frozenset(_reads(clients))


def explains_pool(slow: AbstractSet[int], osds: int) -> bool:
    """Whether OSDs that are slow on their own may explain a slow pool; `osds`: number of all OSDs.
    A few of very many take part in few operations: then other moves are the cause."""
    return len(slow) > EXPLAINING_SHARE * osds


def explains_alarm(states: Mapping[int, SlowReads], now: float, osds: int) -> bool:
    """As `explains_pool`, for an alarm, which OSDs may have raised that are no longer slow."""
    slow = [state for state in states.values() if state.is_slow(now) or state.has_been(now)]
    return len(slow) > EXPLAINING_SHARE * osds


def _over(steady: Mapping[int, _Reads], every: Mapping[int, _Reads]) -> List[int]:
    """OSDs whose reads are over their limit while those of others are not."""
    return [osd for osd, reads in steady.items() if _is_over(reads, {osd}, steady, every)]


def _is_over(reads: _Reads, osds: AbstractSet[int], steady: Mapping[int, _Reads],
             every: Mapping[int, _Reads]) -> bool:
    # Computed for few OSDs only: the others need at least 1.
    return reads.certain > reads.limit and (
        reads.certain > reads.limit * _of_others(osds, steady, every))


def _judged_places(everything: Mapping[int, _Reads], unsteady: AbstractSet[int],
                   every: Mapping[int, _Reads], places: Places) -> Dict[str, bool]:
    """Whether the reads of each host or failure domain with enough OSDs are over their limit while
    those of others are not."""
    steady = {osd: each for osd, each in everything.items() if osd not in unsteady}
    found: Dict[str, bool] = {}
    for place, osds in places.items():
        parts = [steady[osd] for osd in osds if osd in steady]
        if len(parts) >= REFERENCE_OSDS:
            found[place] = _is_over(_median(parts), osds, steady, every)
    return found


def _median(parts: Sequence[_Reads]) -> _Reads:
    """The median OSD by operations, with the certainty of all their reads."""
    ops = sum(each.ops for each in parts)
    return _Reads(weighted_median((each.ratio, each.ops) for each in parts),
                  sum(each.ops * each.limit for each in parts) / ops, ops,
                  MEDIAN_SPREAD * sqrt(sum(each.ops * each.spread ** 2 for each in parts) / ops))


def _of_others(osds: AbstractSet[int], steady: Mapping[int, _Reads],
               every: Mapping[int, _Reads]) -> float:
    """The median latency of the other OSDs, in baselines; at least 1. Includes OSDs whose
    operations wait for peering PGs if there are too few others."""
    for reads in (steady, every):
        others = [(each.ratio, each.ops) for other, each in reads.items() if other not in osds]
        if len(others) >= REFERENCE_OSDS and sum(ops for _, ops in others) >= LEAST_OPS:
            return max(1.0, weighted_median(others))
    return float('inf')


def _reads(clients: Clients) -> Dict[int, _Reads]:
    """The reads of OSDs that have a baseline."""
    rows: Dict[int, List[Tuple[int, int, float, float, float]]] = {}
    for row in clients.rows:
        pool, norm = clients.pools.get(row.pool), clients.norms.get(row.osd)
        if norm is None or pool is None or pool.erasure or pool.named \
                or not pool.read_baseline_ms or pool.read_target_ms is None \
                or not row.read.sane or not row.read.number:
            continue
        baseline_ns = 1e6 * pool.read_baseline_ms * norm
        rows.setdefault(row.osd, []).append((
            row.read.sum_ns, row.read.number, baseline_ns,
            # The floor of the limit in ms is the same for a fast OSD.
            baseline_ns + 1e6 * (pool.read_target_ms - pool.read_baseline_ms) * max(1.0, norm),
            pool.read_spread or TYPICAL_SPREAD))
    return {osd: _reads_of_osd(parts) for osd, parts in rows.items()}


def _reads_of_osd(parts: Sequence[Tuple[int, int, float, float, float]]) -> _Reads:
    """The pools of one OSD, each read against its own pool."""
    ops = sum(number for _, number, _, _, _ in parts)
    baseline = sum(number * baseline_ns for _, number, baseline_ns, _, _ in parts)
    return _Reads(sum(sum_ns for sum_ns, _, _, _, _ in parts) / baseline,
                  sum(number * limit_ns for _, number, _, limit_ns, _ in parts) / baseline, ops,
                  sqrt(sum(number * spread ** 2 for _, number, _, _, spread in parts) / ops))
