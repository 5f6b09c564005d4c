# SPDX-License-Identifier: LGPL-2.1-or-later
"""OSDs whose own clients wait: no release touches them for a while.

The throttle judges pools (throttle.py), and the mean of a pool hides a few OSDs, or is spoilt by
one. So the reads of each OSD are compared with its own baseline, and with what the other OSDs need
at the same instant: where all are slow, the pool shows it. Such an OSD does not count in the
latency of its pools, and gets no release once two readings in a row have shown it, whether PGs move
there or not: of few reads, one that waits for a peering PG makes any OSD slow for one reading.
Reads of replicated pools wait mostly for the OSD that serves them. Writes, and reads of
erasure-coded pools, wait for others too.
"""
from math import log, sqrt
from typing import (AbstractSet, Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional,
                    Tuple)

from ..observation import Clients
from ..errors import Code, Reason
from ..tables import plural
from ..watch.peers import weighted_median
from ..watch.stop_conditions import Stop
from .clients import (CHANCE, CHANCE_MAX, LEAST_OPS, REFERENCE_OSDS, SPREAD_MAX,
                      USUAL_SPREAD)

#: An OSD gets releases again so long after its last reading over the limit.
HOLD_SECONDS = 30.0
#: Reads that are slow for so long after the last PG moved there are not slow because of that.
UNTOUCHED_SECONDS = 180.0
#: Then the OSD gets releases for so long, whatever its latency is.
EXEMPT_SECONDS = 3600.0
#: Fewer reads of an OSD in one reading say nothing. An OSD that hardly answers has few; from so few
#: only what is many times its limit is no chance.
LEAST_READS = 5
#: A smaller share of the OSDs does not explain why all operations of a pool are slow.
EXPLAINING_SHARE = 0.01
#: OSDs that the reason names.
NAMED_OSDS = 5


class OsdHold(NamedTuple):
    """An OSD whose reads were over their limit."""
    #: Its last reading over the limit, and when a PG in flight last burdened it, or it began.
    over: float
    touched: float
    #: Until then its latency holds nothing.
    exempt_until: float = 0.0
    #: One reading only, which others may contradict.
    single: bool = False

    def holds(self, now: float) -> bool:
        return now >= self.exempt_until and self.recent(now) and not self.single

    def is_slow(self, now: float) -> bool:
        """Exempt or not."""
        return self.recent(now) and (not self.single or self.over == now)

    def recent(self, now: float) -> bool:
        return 0.0 <= now - self.over < HOLD_SECONDS


class _Reads(NamedTuple):
    """The reads of one OSD against its own baseline."""
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


def update(holds: Mapping[int, OsdHold], clients: Clients, unsteady: AbstractSet[int],
           in_flight: AbstractSet[int], now: float) -> Dict[int, OsdHold]:
    """The holds after a new reading. `in_flight`: OSDs that moves burden now; `unsteady`: OSDs
    whose operations wait for peering PGs, which have a budget of their own (stalls.py)."""
    every = _reads(clients)
    steady = {osd: each for osd, each in every.items() if osd not in unsteady}
    over = _over(steady, every)
    kept = {osd: hold._replace(touched=now) if osd in in_flight else hold
            for osd, hold in holds.items()
            if (now < hold.exempt_until or hold.recent(now))
            and not (hold.single and osd in steady and osd not in over)}
    for osd in over:
        kept[osd] = kept[osd]._replace(over=now, single=False) if osd in kept else OsdHold(
            now, now, single=True)
    for osd, hold in kept.items():
        # What no reading denies is still so. Peering only adds to the time that reads take.
        denied = osd in steady or osd in every and every[osd].ratio <= every[osd].limit
        if osd in over or hold.recent(now) and not (hold.single or denied):
            kept[osd] = _exempt(hold._replace(over=now), now)
    return kept


def _exempt(hold: OsdHold, now: float) -> OsdHold:
    """It is slow, or was: not because of the movement, if there was none for long enough."""
    if now - hold.touched > UNTOUCHED_SECONDS and now >= hold.exempt_until:
        return hold._replace(exempt_until=now + EXEMPT_SECONDS)
    return hold


def stops(holds: Mapping[int, OsdHold], now: float) -> List[Stop]:
    """What holds the releases that touch these OSDs."""
    osds = sorted(held_osds(holds, now))
    if not osds:
        return []
    names = ', '.join('osd.%d' % osd for osd in osds[:NAMED_OSDS])
    if len(osds) > NAMED_OSDS:
        names += ' and %s' % plural(len(osds) - NAMED_OSDS, 'other')
    return [Stop(Reason(Code.OSD_LATENCY, 'read latency of %s is above its limit, and that of the '
                        'other OSDs is not; releases there continue %d s after it is back'
                        % (names, HOLD_SECONDS)), frozenset(osds))]


def held_osds(holds: Mapping[int, OsdHold], now: float) -> FrozenSet[int]:
    """OSDs that are slow now and not exempt."""
    return frozenset(osd for osd, hold in holds.items() if hold.holds(now))


def slow_osds(holds: Mapping[int, OsdHold], now: float) -> FrozenSet[int]:
    """OSDs that are slow now, exempt or not. One that is exempt is remembered after it is back."""
    return frozenset(osd for osd, hold in holds.items() if hold.is_slow(now))


def explains(holds: Mapping[int, OsdHold], now: float, osds: int) -> bool:
    """Whether the slow ones of so many OSDs may be why a whole pool is slow. Few of very many have
    a part in few operations: then it is the moves elsewhere that clients wait for."""
    return len(slow_osds(holds, now)) > EXPLAINING_SHARE * osds


def _over(steady: Mapping[int, _Reads], every: Mapping[int, _Reads]) -> List[int]:
    """OSDs whose reads are over their limit, and those of others are not."""
    # The others, which need at least 1, are looked at for few OSDs only.
    return [osd for osd, reads in steady.items() if reads.certain > reads.limit
            and reads.certain > reads.limit * _of_others(osd, steady, every)]


def _of_others(osd: int, steady: Mapping[int, _Reads], every: Mapping[int, _Reads]) -> float:
    """What the median of the other OSDs takes, in baselines; at least 1. Of those whose operations
    wait for peering PGs as well, where there are too few others."""
    for reads in (steady, every):
        others = [(each.ratio, each.ops) for other, each in reads.items() if other != osd]
        if len(others) >= REFERENCE_OSDS and sum(ops for _, ops in others) >= LEAST_OPS:
            return max(1.0, weighted_median(others))
    return float('inf')


def _reads(clients: Clients) -> Dict[int, _Reads]:
    """By OSD, of those that have a baseline and operations enough."""
    rows: Dict[int, List[Tuple[int, int, float, float, float]]] = {}
    for row in clients.rows:
        pool, norm = clients.pools.get(row.pool), clients.norms.get(row.osd)
        if norm is None or pool is None or pool.erasure or pool.named \
                or not pool.read_baseline_ms or pool.read_target_ms is None \
                or not row.read.sane or not row.read.number:
            continue
        usual_ns = 1e6 * pool.read_baseline_ms * norm
        rows.setdefault(row.osd, []).append((
            row.read.sum_ns, row.read.number, usual_ns,
            # What the floor of the limit allows in ms does not shrink with a fast OSD.
            usual_ns + 1e6 * (pool.read_target_ms - pool.read_baseline_ms) * max(1.0, norm),
            pool.read_spread or USUAL_SPREAD))
    found = {osd: _together(parts) for osd, parts in rows.items()}
    return {osd: reads for osd, reads in found.items() if reads is not None}


def _together(parts: Iterable[Tuple[int, int, float, float, float]]) -> Optional[_Reads]:
    """The pools of one OSD, each read against its own pool; None: too few reads."""
    parts = list(parts)
    ops = sum(number for _, number, _, _, _ in parts)
    if ops < LEAST_READS:
        return None
    usual = sum(number * usual_ns for _, number, usual_ns, _, _ in parts)
    return _Reads(sum(sum_ns for sum_ns, _, _, _, _ in parts) / usual,
                  sum(number * limit_ns for _, number, _, limit_ns, _ in parts) / usual, ops,
                  sqrt(sum(number * spread ** 2 for _, number, _, _, spread in parts) / ops))
