# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which replica the primaries wait for, from the latency of writes by PG.

An OSD that hangs for moments, or whose network drops packets, does not see it: by its own clock
each operation is quick. Its primaries see it: nearly all PGs that replicate to it are slow,
whoever leads them, and the other PGs of the same primaries are not.
"""
from typing import Dict, List, Mapping, Sequence, Tuple

from ..cluster.types import NO_OSD, PgWrites, pool_of
from .types import Flow

#: The share of an OSD's PGs that may be quick although it is slow, and of a primary's PGs that
#: must not touch the slow one: with two OSDs a host and a host a replica, half of them do.
QUANTILE = 0.3
#: A PG with fewer writes, or an OSD with fewer PGs, is no evidence.
LEAST_WRITES = 3
LEAST_PGS = 4
#: Replicas that may be slow at the same time; with more it is not one OSD's fault.
MOST_SLOW = 8
#: What a replica adds is noise up to this share of the usual latency.
NOISE_SHARE = 0.2


class _Pg:
    """One PG: what it takes, and what of it nothing has explained yet."""
    __slots__ = ('group', 'replicas', 'ops', 'ms', 'base')

    def __init__(self, row: PgWrites) -> None:
        self.group = (pool_of(row.pgid), row.acting[0])
        self.replicas = row.acting[1:]
        self.ops = row.write.number
        self.ms = row.write.sum_ns / row.write.number / 1e6
        self.base = 0.0


def replica_flows(rows: Sequence[PgWrites], seconds: float) -> Dict[int, Flow]:
    """OSD -> the writes that it replicates, with the latency they have because of it.

    That is the usual latency of its PGs' primaries and pools, and what this replica adds to it.
    """
    pgs = [_Pg(row) for row in rows if row.write.sane and row.write.number >= LEAST_WRITES
           and row.acting and row.acting[0] != NO_OSD]
    of_replica: Dict[int, List[_Pg]] = {}
    for pg in pgs:
        for osd in pg.replicas:
            if osd != NO_OSD:
                of_replica.setdefault(osd, []).append(pg)
    of_replica = {osd: found for osd, found in of_replica.items() if len(found) >= LEAST_PGS}
    added = _peel(pgs, of_replica)
    flows: Dict[int, Flow] = {}
    for osd, found in of_replica.items():
        usual = quantile([pg.base for pg in found], 0.5)
        flows[osd] = Flow(sum(pg.ops for pg in found) / max(seconds, 1e-9),
                          usual + added.get(osd, 0.0))
    return flows


def steady(before: Mapping[int, Flow], after: Mapping[int, Flow]) -> Dict[int, Flow]:
    """The quicker of two readings in a row, by OSD.

    A reading is a mean over half a minute and stands for as long: one stall of 2 s would look like
    slowness of 30 s.
    """
    return {osd: min(flow, before[osd], key=lambda each: each.ms)
            for osd, flow in after.items() if osd in before}


def _peel(pgs: Sequence[_Pg], of_replica: Mapping[int, Sequence[_Pg]]) -> Dict[int, float]:
    """What each slow replica adds, in ms: the slowest first, and the next of what is left."""
    added: Dict[int, float] = {}
    while len(added) < MOST_SLOW:
        _set_bases(pgs)
        worst, least = -1, 0.0
        for osd, found in of_replica.items():
            if osd in added:
                continue
            low = quantile([pg.ms - pg.base for pg in found], QUANTILE)
            if low > max(least, NOISE_SHARE * quantile([pg.base for pg in found], 0.5)):
                worst, least = osd, low
        if worst < 0:
            break
        added[worst] = quantile([pg.ms - pg.base for pg in of_replica[worst]], 0.5)
        for pg in of_replica[worst]:
            pg.ms = max(0.0, pg.ms - added[worst])
    return added


def _set_bases(pgs: Sequence[_Pg]) -> None:
    """The usual latency of each PG's primary in its pool, or of the pool where that has too few."""
    groups: Dict[Tuple[int, int], List[float]] = {}
    pools: Dict[int, List[float]] = {}
    for pg in pgs:
        groups.setdefault(pg.group, []).append(pg.ms)
        pools.setdefault(pg.group[0], []).append(pg.ms)
    of_pool = {pool: quantile(values, QUANTILE) for pool, values in pools.items()}
    of_group = {group: quantile(values, QUANTILE) for group, values in groups.items()
                if len(values) >= LEAST_PGS}
    for pg in pgs:
        pg.base = of_group.get(pg.group, of_pool[pg.group[0]])


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[int(share * (len(ordered) - 1))]
