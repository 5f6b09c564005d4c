# SPDX-License-Identifier: LGPL-2.1-or-later
"""Where the PGs of a pool move for another CRUSH rule if as few shards as possible move. Pure.

A rule places most shards elsewhere, although it would allow most of them to stay. Those it does not
allow to stay move to OSDs that lack PGs, further ones move only for the balance, and upmaps keep
the others in place once the rule is changed.
"""
import math
from dataclasses import dataclass, field
from typing import Mapping, Optional

from ..cluster.ports import Future, FuturePg, NoFuture, Outlook
from ..cluster.types import Balancing, Json, OsdSet, Pool
from ..observation import Observation
from ..upmap.balance import PlacedPg, balance, is_balanced
from ..upmap.pins import skip_reason
from .types import Bounds


@dataclass(frozen=True)
class LeastMoves:
    #: The new sets of the PGs that move.
    finals: Mapping[str, OsdSet]
    #: Shards that move if all PGs follow CRUSH, that the rule does not allow to stay, and that move
    #: for the balance alone.
    by_crush: int
    required: int
    extra: int
    #: PGs that an upmap keeps in place under the new rule.
    upmaps: int
    #: Greatest distance of an OSD from its share of the pool at the end, in PGs.
    deviation: float

    @property
    def required_share(self) -> float:
        """Share (0 to 1) of the moved shards that the rule does not allow to stay."""
        moved = self.required + self.extra
        return self.required / moved if moved else 1.0

    def as_json(self) -> Json:
        return {'shards_by_crush': self.by_crush, 'shards_required': self.required,
                'shards_extra': self.extra, 'upmaps': self.upmaps, 'deviation': self.deviation}


def least_moves(future: Future, pool: Pool, observation: Observation,
                bounds: Bounds) -> Optional[LeastMoves]:
    """`future`: the mapping of all PGs of the pool under the new rule. Takes about 0.3 ms a PG.

    None: the mons keep no upmaps under that rule, PGs are being merged, or the rule has several
    takes or several OSDs in a bucket. There, positions have a meaning (the local groups of an LRC,
    the device class of the primary) that the sets would not keep.
    """
    takes = future.crush.spread(pool.crush_rule, pool.size).takes
    if len(takes) != 1 or takes[0].groups or not is_balanced(pool, future.crush, Balancing()):
        return None
    pgs = {**future.pgs, **future.others}
    by_crush = sum(_shards(pool, pg.acting, pg.raw) for pg in pgs.values())
    result = balance(pool, [PlacedPg(pgid, pg.acting, pg.raw,
                                     _may_move(pgid, pg, pool, observation))
                            for pgid, pg in pgs.items()],
                     future.crush, observation.osdmap.osds, math.ceil(bounds.extra * by_crush),
                     bounds.deviation, new_rule=True)
    moved = sum(_shards(pool, pgs[pgid].acting, final) for pgid, final in result.finals.items())
    return LeastMoves(result.finals, by_crush, result.required, moved - result.required, sum(
        _shards(pool, pg.raw, result.finals.get(pgid, pg.acting)) > 0
        for pgid, pg in pgs.items()), result.deviation)


@dataclass(frozen=True)
class LeastFuture(Future):
    """A mapping under a new rule, with the sets of the PGs that move: computed by the tool thread,
    since it takes seconds for a large pool."""
    finals: Mapping[str, OsdSet] = field(default_factory=dict)


def with_least_moves(outlook: Outlook, pool: Optional[Pool], observation: Observation,
                     bounds: Bounds) -> Outlook:
    """The outlook with these sets."""
    if isinstance(outlook, NoFuture) or pool is None:
        return outlook
    fewest_moves = least_moves(outlook, pool, observation, bounds)
    # More than was ordered must not move.
    return NoFuture('upmaps can no longer keep the PGs of pool %s in place under the new rule'
                    % pool.name) if fewest_moves is None else LeastFuture(
        **vars(outlook), finals=fewest_moves.finals)


def _may_move(pgid: str, pg: FuturePg, pool: Pool, observation: Observation) -> bool:
    return pgid not in observation.osdmap.pg_temp and pool.is_complete(pg.acting) \
        and skip_reason(pool, pgid) is None


def _shards(pool: Pool, old_osds: OsdSet, new_osds: OsdSet) -> int:
    """How many shards are elsewhere."""
    return sum(old != new for old, new in zip(old_osds, new_osds)) if pool.erasure \
        else len(set(new_osds) - set(old_osds))
