# SPDX-License-Identifier: LGPL-2.1-or-later
"""OSDs, hosts and failure domains whose client reads are slow at present, for the throttle.

The reads of each OSD are compared with its own baseline, and with those of the other OSDs at the
same instant: if all are slow, the pool shows it. An OSD is slow once two readings in a row have
shown it: among few reads, one that waits for a peering PG makes any OSD slow for one reading.
Reads of replicated pools depend mostly on the OSD that serves them. Writes, and reads of
erasure-coded pools, also wait for others.

A whole host may be slow, because of its network or its CPU, with few reads on each of its OSDs. So
the OSDs of each host and failure domain are also judged together, by their median: it is slow if at
least half of its OSDs are.
"""
from bisect import bisect_left
from itertools import accumulate
from math import log, sqrt
from typing import (AbstractSet, Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional,
                    Sequence)

from ..cluster.crush import CrushRules
from ..cluster.types import are_sane
from ..observation import Clients
from .peers import MIN_PEERS, weighted_median
from .rounds import latest
from .slowness import (ALARM_SECONDS, EXEMPT_SECONDS, LEAST_READS, OP_SPREAD, RESUME_SECONDS,
                       UNTOUCHED_SECONDS)

#: Minimum number of operations of one reading to judge latency.
LEAST_OPS = 50
#: Bound on the probability that chance alone makes a reading of all pools too slow. The means of
#: few operations are skewed, so that it is about 1 %.
CHANCE_LEVEL = 0.001
#: By how many deviations a mean exceeds its expectation with this probability at most.
CHANCE_DEVIATIONS = sqrt(2.0 * log(1.0 / CHANCE_LEVEL))
#: Maximum share that chance explains: a reading of twice its limit is always too slow.
CHANCE_MAX = 1.0
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

    def would_continue(self, now: float) -> bool:
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
        chance = CHANCE_DEVIATIONS * self.spread / sqrt(self.ops)
        return self.ratio / (1.0 + (min(CHANCE_MAX, chance) if self.ops >= LEAST_OPS else chance))


def slow_reads_after(states: Mapping[int, SlowReads], clients: Clients,
                     unsteady: AbstractSet[int], in_flight: AbstractSet[int], now: float,
                     places: Places = {}) -> Dict[int, SlowReads]:
    """The states of OSDs with slow reads after the reading `clients`, which was taken at `now`.

    `states`: those after the reading before; `in_flight`: OSDs that moves burden now; `unsteady`:
    OSDs whose operations wait for peering PGs, which have a budget of their own (stalls.py);
    `places`: OSDs that are also judged together.
    """
    all_reads = _reads(clients)
    # OSDs with reads enough to judge them, and those of them that do not wait for peering PGs.
    enough = {osd: reads for osd, reads in all_reads.items() if reads.ops >= LEAST_READS}
    steady = {osd: reads for osd, reads in enough.items() if osd not in unsteady}
    slow_by_place = _judged_places(all_reads, unsteady, enough, places)
    # OSD over its limit -> the place that is slow as a whole; '': the OSD alone.
    others = _Others(steady, enough)
    over = {osd: '' for osd, reads in steady.items() if _is_over(reads, {osd}, others)}
    over.update((osd, place)
                for place, slow in slow_by_place.items() if slow for osd in places[place])

    def is_judged(osd: int, state: SlowReads) -> bool:
        """Whether this reading shows if the OSD, or its place, is slow."""
        return osd in steady or state.place in slow_by_place

    def is_kept(osd: int, state: SlowReads) -> bool:
        """Whether the OSD was slow lately, is exempt, or may be the cause of an alarm that is still
        raised; not if its state is based on one reading that this one refutes."""
        refuted = state.single and is_judged(osd, state) and osd not in over
        return (state.would_continue(now) or state.has_been(now)) and not refuted

    states_after = {osd: state._replace(touched=now) if osd in in_flight else state
                    for osd, state in states.items() if is_kept(osd, state)}
    # Prolong states that this reading does not judge, but not forever.
    for osd, state in states_after.items():
        # Peering only adds latency, so a fast reading of an unsteady OSD counts.
        contradicted = is_judged(osd, state) or (
            osd in enough and enough[osd].ratio <= enough[osd].limit)
        # An OSD without any reads is not prolonged: it may have been switched off.
        lasts = state.recent(now) and now - state.over <= UNTOUCHED_SECONDS
        if lasts and not state.single and not contradicted and osd in all_reads:
            states_after[osd] = state._replace(assumed=now)
    # Begin the states of OSDs that are over their limit, or confirm them.
    for osd, place in over.items():
        state_before = states_after.get(osd)
        states_after[osd] = SlowReads(now, now, single=True, place=place) \
            if state_before is None or not state_before.would_continue(now) \
            else _exempt(state_before._replace(over=now, single=False, place=place), now)
    return states_after


def _exempt(state: SlowReads, now: float) -> SlowReads:
    """The state of an OSD with slow reads, exempt for EXEMPT_SECONDS from now on if it took part in
    no move for UNTOUCHED_SECONDS: then movement is not the reason."""
    if now - state.touched > UNTOUCHED_SECONDS and now >= state.exempt_until:
        return state._replace(exempt_until=now + EXEMPT_SECONDS)
    return state


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


def judged_osds(clients: Clients) -> FrozenSet[int]:
    """OSDs whose reads can be found slow."""
    return frozenset(_reads(clients))


def _is_over(reads: _Reads, osds: AbstractSet[int], others: '_Others') -> bool:
    """Whether the reads of `osds` together are over their limit, also relative to `others`."""
    # The median of others is at least 1: the first condition only saves computing it.
    return reads.certain > reads.limit and (
        reads.certain > reads.limit * others.median_without(osds))


def _judged_places(all_reads: Mapping[int, _Reads], unsteady: AbstractSet[int],
                   enough: Mapping[int, _Reads], places: Places) -> Dict[str, bool]:
    """Host or failure domain -> whether its reads are over their limit while those of others are
    not; without places with fewer than MIN_PEERS OSDs that show it. Together, OSDs with few reads
    count as well (`all_reads`), but not OSDs whose operations wait for peering PGs (`unsteady`)."""
    steady = {osd: reads for osd, reads in all_reads.items() if osd not in unsteady}
    others = _Others(steady, enough)
    is_over: Dict[str, bool] = {}
    for place, osds in places.items():
        reads_there = [steady[osd] for osd in osds if osd in steady]
        if len(reads_there) >= MIN_PEERS:
            is_over[place] = _is_over(_median(reads_there), osds, others) \
                and _are_mostly_over(reads_there)
    return is_over


def _are_mostly_over(osds: Sequence[_Reads]) -> bool:
    """Whether at least half of several OSDs are over their limit, by chance or not. With most of
    the reads, one OSD is the median of all, which is weighted by reads."""
    return 2 * sum(reads.ratio > reads.limit for reads in osds) >= len(osds)


def _median(osds: Sequence[_Reads]) -> _Reads:
    """The reads of the median of several OSDs, weighted by operations, with the number of all their
    reads, and so with the certainty of these."""
    ops = sum(reads.ops for reads in osds)
    return _Reads(weighted_median((reads.ratio, reads.ops) for reads in osds),
                  sum(reads.ops * reads.limit for reads in osds) / ops, ops,
                  MEDIAN_SPREAD * sqrt(sum(reads.ops * reads.spread ** 2 for reads in osds) / ops))


class _Ranking:
    """OSDs by the latency of their reads, for medians without some of them. The reads of 10,000
    OSDs are sorted once: by chance alone, a few of so many are over their limit in each reading."""

    def __init__(self, reads_by_osd: Mapping[int, _Reads]) -> None:
        self._reads = reads_by_osd
        ordered = sorted((reads.ratio, osd) for osd, reads in reads_by_osd.items())
        self._ratios = [ratio for ratio, _ in ordered]
        self._rank = {osd: rank for rank, (_, osd) in enumerate(ordered)}
        #: Number of the reads of each OSD and of all before it.
        self._ops = list(accumulate(reads_by_osd[osd].ops for _, osd in ordered))

    def median_without(self, osds: AbstractSet[int]) -> Optional[float]:
        """The median ratio without `osds`, weighted by operations; None: too few OSDs or reads."""
        left_out = [(self._rank[osd], self._reads[osd].ops) for osd in osds if osd in self._rank]
        if len(self._ratios) - len(left_out) < MIN_PEERS:
            return None
        ops = self._ops[-1] - sum(number for _, number in left_out)
        if ops < LEAST_OPS:
            return None
        skipped = 0
        while True:
            rank = bisect_left(self._ops, 0.5 * ops + skipped)
            ops_before = sum(number for place, number in left_out if place <= rank)
            if ops_before == skipped:
                return self._ratios[rank]
            skipped = ops_before


class _Others:
    """The reads of all OSDs, with which those of some are compared."""

    def __init__(self, steady: Mapping[int, _Reads], enough: Mapping[int, _Reads]) -> None:
        """`steady`: the reads of OSDs that do not wait for peering PGs; `enough`: of all OSDs with
        enough reads, for a comparison if these are too few."""
        self._groups = steady, enough
        #: Rankings of `steady` and, if it was needed, of `enough`.
        self._rankings: List[_Ranking] = []

    def median_without(self, osds: AbstractSet[int]) -> float:
        """The median latency without `osds`, in baselines; at least 1. Infinite if too few OSDs are
        left."""
        for number, group in enumerate(self._groups):
            if number == len(self._rankings):
                self._rankings.append(_Ranking(group))
            median = self._rankings[number].median_without(osds)
            if median is not None:
                return max(1.0, median)
        return float('inf')


@latest
def _reads(clients: Clients) -> Dict[int, _Reads]:
    """OSD -> its reads against its own baseline: that of each pool times the norm of the OSD.
    Reads without such a baseline do not count, nor do those of erasure-coded pools, and of pools
    whose limit the operator has set (`named`)."""
    # Sums over the pools of an OSD, each read against the baseline and the limit of its own pool:
    # latency, number, baseline and limit of the reads, and squares of their spreads.
    sums_by_osd: Dict[int, List[float]] = {}
    for row in clients.rows:
        pool, norm = clients.pools.get(row.pool), clients.norms.get(row.osd)
        if norm is None or pool is None or pool.erasure or pool.named \
                or not pool.read_baseline_ms or pool.read_target_ms is None \
                or not are_sane(*row.read):
            continue
        sum_ns, number = row.read
        if not number:
            continue
        baseline_ns = 1e6 * pool.read_baseline_ms * norm
        # A fast OSD (norm below 1) may exceed its baseline by as many ms as the pool: the limit has
        # a floor in ms.
        limit_ns = baseline_ns + 1e6 * (
            pool.read_target_ms - pool.read_baseline_ms) * max(1.0, norm)
        sums = sums_by_osd.setdefault(row.osd, [0, 0, 0.0, 0.0, 0.0])
        sums[0] += sum_ns
        sums[1] += number
        sums[2] += number * baseline_ns
        sums[3] += number * limit_ns
        sums[4] += number * (pool.read_spread or OP_SPREAD) ** 2
    return {osd: _Reads(sum_ns / baseline_ns, limit_ns / baseline_ns, int(ops), sqrt(squares / ops))
            for osd, (sum_ns, ops, baseline_ns, limit_ns, squares) in sums_by_osd.items()}
