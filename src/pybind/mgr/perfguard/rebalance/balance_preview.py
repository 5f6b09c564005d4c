# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a change of CRUSH will move with target=balanced: as goals.py, before it is made."""
import math
from dataclasses import dataclass
from typing import Any, Dict, List, Tuple

from ..cluster.ports import Future, FuturePg
from ..cluster.types import Pool, pool_of
from ..observation import Observation
from ..upmap.balance import PlacedPg, balance
from ..upmap.pins import skip_reason
from .joining import Join
from .moves import Move, move_between, plan


@dataclass(frozen=True)
class Balanced:
    """Sums over pools."""
    moves: Tuple[Move, ...] = ()
    #: Shards that go where CRUSH does not place them, for the balance alone.
    extra: int = 0
    #: Shards that may move in all (max_extra_movement), beside those that leave drained OSDs.
    limit: int = 0
    #: Pins that stay as upmaps.
    kept: int = 0

    def plus(self, other: 'Balanced') -> 'Balanced':
        return Balanced((*self.moves, *other.moves), self.extra + other.extra,
                        self.limit + other.limit, self.kept + other.kept)

    def as_json(self) -> Dict[str, Any]:
        found = plan(self.moves, 1, 1, None)
        return {'pgs': found.pgs, 'shards': found.shards, 'bytes': found.bytes,
                'primaries_moving': found.primaries_moving, 'extra_shards': self.extra,
                'limit_shards': self.limit, 'kept': self.kept}


def preview_balance(planned: Join, future: Future, seen: Observation,
                    max_extra: float) -> Balanced:
    """`future`: with all PGs of the pools that have pins; `max_extra`: max_extra_movement."""
    pgs: Dict[int, List[Tuple[str, FuturePg]]] = {
        pool_of(pgid): [] for pgid in planned.pins if pool_of(pgid) in seen.osdmap.pools}
    for row in (*future.pgs.items(), *future.others.items()):
        if pool_of(row[0]) in pgs:
            pgs[pool_of(row[0])].append(row)
    found = Balanced()
    for pool_id, rows in sorted(pgs.items()):
        pool = seen.osdmap.pools[pool_id]
        moves = tuple(move for pgid, move in planned.moves.items() if pool_of(pgid) == pool_id)
        limit = math.ceil((1.0 + max_extra) * sum(len(move.targets) for move in moves))
        if future.crush.balances(pool.crush_rule) and seen.balancing.covers(pool_id):
            found = found.plus(_balanced(pool, rows, planned, future, seen, limit))
        else:
            found = found.plus(Balanced(moves, limit=limit))
    return found


def _balanced(pool: Pool, rows: List[Tuple[str, FuturePg]], planned: Join, future: Future,
              seen: Observation, limit: int) -> Balanced:
    pgs = dict(rows)
    finals = balance(pool, [_placed(pool, pgid, pg, planned, seen) for pgid, pg in rows],
                     future.crush, seen.osdmap.osds, limit, seen.balancing.deviation).finals
    size = seen.signals.pool_bytes.get(pool.id, 0)
    moves = tuple(move_between(pgid, pool, pgs[pgid].acting, final, size)
                  for pgid, final in finals.items())
    extra = sum(osd not in pgs[move.pgid].raw for move in moves for osd in move.targets)
    kept = sum(1 for pgid in planned.pins if pool_of(pgid) == pool.id and pgid not in finals)
    return Balanced(moves, extra, limit, kept)


def _placed(pool: Pool, pgid: str, pg: FuturePg, planned: Join, seen: Observation) -> PlacedPg:
    """Upmaps of others on PGs that the change does not touch are left alone."""
    if pgid in planned.unpinnable:
        return PlacedPg(pgid, pg.raw, pg.raw, False)
    free = (pgid not in seen.osdmap.pg_temp and skip_reason(pool, pgid) is None
            and (pgid in planned.pins or not seen.osdmap.entry(pgid)))
    return PlacedPg(pgid, pg.acting, pg.raw, free)
