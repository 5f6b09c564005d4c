# SPDX-License-Identifier: LGPL-2.1-or-later
"""Where the PGs of a pool move for another CRUSH rule if as few shards as possible move. Pure.

A rule places most shards elsewhere, although it would allow most of them to stay. Those it does not
allow to stay move to OSDs that lack PGs, further ones move only for the balance, and upmaps keep
the others in place once the rule is changed. With a limit of upmaps, the PGs move to where the rule
places them for which that costs the fewest shards. A new CRUSH map that changes the failure domain
of a rule, or moves buckets, is treated alike.
"""
import math
from dataclasses import dataclass, replace
from typing import AbstractSet, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ..cluster.crush import CrushRules
from ..cluster.ports import Future, FuturePg, NoFuture, Outlook
from ..cluster.types import Balancing, Json, OsdSet, Pool, pool_of
from ..observation import Observation
from ..upmap.balance import Balance, PlacedPg, balance, is_balanced, is_plain
from ..upmap.pins import broken_rule, skip_reason
from .types import Bounds


#: Shares of the upmaps for which a preview shows how many shards move.
_TRADES = (0.75, 0.5, 0.25, 0.0)


class Trade(NamedTuple):
    """What fewer upmaps cost."""
    upmaps: int
    #: Shards that move, without those that the balance then requires.
    shards: int


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
    #: Fewer upmaps than without a limit, and none.
    trades: Tuple[Trade, ...] = ()

    @property
    def required_share(self) -> float:
        """Share (0 to 1) of the moved shards that the rule does not allow to stay."""
        moved = self.required + self.extra
        return self.required / moved if moved else 1.0

    def plus(self, other: 'LeastMoves') -> 'LeastMoves':
        """Of several pools."""
        return LeastMoves({**self.finals, **other.finals}, self.by_crush + other.by_crush,
                          self.required + other.required, self.extra + other.extra,
                          self.upmaps + other.upmaps, max(self.deviation, other.deviation))

    def as_json(self) -> Json:
        return {'shards_by_crush': self.by_crush, 'shards_required': self.required,
                'shards_extra': self.extra, 'upmaps': self.upmaps, 'deviation': self.deviation,
                'trades': [trade._asdict() for trade in self.trades]}


def least_moves(future: Future, pool: Pool, observation: Observation,
                bounds: Bounds, upmaps_max: Optional[int] = None,
                former: Optional[CrushRules] = None) -> Optional[LeastMoves]:
    """`future`: the mapping of all PGs of the pool under the new rule. Takes about 0.3 ms a PG, and
    twice as long with a limit of upmaps (None: unlimited). `former`: CRUSH in which the rule allows
    the new sets as well; None: it need not.

    None: the mons keep no upmaps under that rule, PGs are being merged, or the rule has several
    takes or several OSDs in a bucket. There, positions have a meaning (the local groups of an LRC,
    the device class of the primary) that the sets would not keep.
    """
    crushes = (future.crush,) if former is None else (future.crush, former)
    if not all(is_plain(pool, crush) and is_balanced(pool, crush, Balancing())
               for crush in crushes):
        return None
    pgs = {**future.pgs, **future.others}
    movable = {pgid for pgid, pg in pgs.items() if _may_move(pgid, pg, pool, observation)}
    by_crush = sum(_shards(pool, pg.acting, pg.raw) for pg in pgs.values())

    def balanced(followers: AbstractSet[str]) -> Balance:
        """`followers`: PGs that end where the rule places them."""
        return balance(pool, [PlacedPg(
            pgid, pg.raw if pgid in followers else pg.acting, pg.raw,
            pgid in movable and pgid not in followers) for pgid, pg in pgs.items()],
            future.crush, observation.osdmap.osds, math.ceil(bounds.extra * by_crush),
            bounds.deviation, new_rule=True, former=former)

    def totals(ends: Mapping[str, OsdSet]) -> Tuple[int, int]:
        """PGs with an upmap, and shards that move."""
        return (sum(_shards(pool, pg.raw, ends[pgid]) > 0 for pgid, pg in pgs.items()),
                sum(_shards(pool, pg.acting, ends[pgid]) for pgid, pg in pgs.items()))

    unlimited = result = balanced(frozenset())
    ends = _ends(pgs, unlimited, frozenset())
    costs = _costs(pool, pgs, ends, movable)
    led, moved = totals(ends)
    trades = _trades(list(costs.values()), led, moved)
    if upmaps_max is not None and led > upmaps_max:
        # The others have no upmap yet, and get none for the balance.
        followers = {*list(costs)[:led - upmaps_max], *(
            pgid for pgid in movable if not _shards(pool, pgs[pgid].raw, ends[pgid]))}
        result = balanced(followers)
        ends = _ends(pgs, result, followers)
        led, moved = totals(ends)
    out = observation.osdmap.out
    finals = {pgid: final for pgid, final in ends.items() if final != pgs[pgid].acting
              and (former is None or not broken_rule(pool, final, former, out))}
    return LeastMoves(finals, by_crush, unlimited.required, moved - unlimited.required, led,
                      result.deviation, trades)


def moves_for_map(future: Future, observation: Observation, bounds: Bounds) -> LeastMoves:
    """Of the pools with PGs that a new CRUSH map does not allow to stay where they are.

    They can move before the map is set, as the present one allows the new sets as well. `future`:
    the mapping of all PGs under the new map.
    """
    pgs_by_pool: Dict[int, Dict[str, FuturePg]] = {}
    for pgid, pg in (*future.pgs.items(), *future.others.items()):
        pgs_by_pool.setdefault(pool_of(pgid), {})[pgid] = pg
    osdmap, total = observation.osdmap, LeastMoves({}, 0, 0, 0, 0, 0.0)
    out = osdmap.out
    for number in sorted(pgs_by_pool.keys() & osdmap.pools.keys()):
        pool, pgs = osdmap.pools[number], pgs_by_pool[number]
        if observation.balancing.covers(number) and any(
                _may_move(pgid, pg, pool, observation)
                and broken_rule(pool, pg.acting, future.crush, out) for pgid, pg in pgs.items()):
            fewest = least_moves(replace(future, pgs=pgs, others={}), pool, observation, bounds,
                                 former=observation.crush)
            total = total if fewest is None else total.plus(fewest)
    return total


def _ends(pgs: Mapping[str, FuturePg], result: Balance,
          followers: AbstractSet[str]) -> Dict[str, OsdSet]:
    """The sets of all PGs at the end."""
    return {pgid: pg.raw if pgid in followers else result.finals.get(pgid, pg.acting)
            for pgid, pg in pgs.items()}


def _costs(pool: Pool, pgs: Mapping[str, FuturePg], ends: Mapping[str, OsdSet],
           movable: AbstractSet[str]) -> Dict[str, int]:
    """PGs with an upmap -> further shards that move if they have none, the fewest first."""
    costs = {pgid: _shards(pool, pgs[pgid].acting, pgs[pgid].raw)
             - _shards(pool, pgs[pgid].acting, ends[pgid])
             for pgid in sorted(movable) if _shards(pool, pgs[pgid].raw, ends[pgid])}
    return dict(sorted(costs.items(), key=lambda row: row[1]))


def _trades(costs: List[int], upmaps: int, moved: int) -> Tuple[Trade, ...]:
    """`costs`: as `_costs`; `upmaps`, `moved`: without a limit."""
    return tuple(Trade(upmaps - number, moved + sum(costs[:number]))
                 for share in _TRADES for number in [len(costs) - math.floor(share * len(costs))]
                 if costs)


def with_least_moves(outlook: Outlook, pool: Optional[Pool], observation: Observation,
                     bounds: Bounds, upmaps_max: Optional[int]) -> Outlook:
    """The outlook with these sets, which takes seconds for a large pool."""
    if isinstance(outlook, NoFuture) or pool is None:
        return outlook
    fewest_moves = least_moves(outlook, pool, observation, bounds, upmaps_max)
    if fewest_moves is None:
        # More than was ordered must not move.
        return NoFuture('upmaps can no longer keep the PGs of pool %s in place under the new rule'
                        % pool.name)
    return replace(outlook, finals=fewest_moves.finals)


def _may_move(pgid: str, pg: FuturePg, pool: Pool, observation: Observation) -> bool:
    return pgid not in observation.osdmap.pg_temp and pool.is_complete(pg.acting) \
        and skip_reason(pool, pgid) is None


def _shards(pool: Pool, old_osds: OsdSet, new_osds: OsdSet) -> int:
    """How many shards are elsewhere."""
    return sum(old != new for old, new in zip(old_osds, new_osds)) if pool.erasure \
        else len(set(new_osds) - set(old_osds))
