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
from functools import reduce
from operator import itemgetter
from typing import (AbstractSet, Collection, Dict, List, Mapping, NamedTuple, Optional, Sequence,
                    Tuple)

from ..cluster.crush import CrushRules
from ..cluster.ports import Future, FuturePg, NoFuture, Outlook
from ..cluster.types import Balancing, Json, OsdSet, Pool
from ..observation import Observation
from ..upmap.balance import (Balance, PlacedPg, balance, finds_lawful_sets, is_balanced, is_merging,
                             why_unbalanced)
from ..upmap.pins import broken_rule, merge_reason
from ..upmap.shares import ROUNDING
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
    deviation: float = 0.0
    #: Fewer upmaps than without a limit, and as few as possible.
    trades: Tuple[Trade, ...] = ()
    #: Their IDs, and those of the ones that are balanced then.
    pools: Tuple[int, ...] = ()
    balanced: Tuple[int, ...] = ()

    @property
    def required_share(self) -> float:
        """Share (0 to 1) of the moved shards that the rule does not allow to stay."""
        moved = self.required + self.extra
        return self.required / moved if moved else 1.0

    def plus(self, other: 'LeastMoves') -> 'LeastMoves':
        """Of several pools."""
        return LeastMoves({**self.finals, **other.finals}, self.by_crush + other.by_crush,
                          self.required + other.required, self.extra + other.extra,
                          self.upmaps + other.upmaps, max(self.deviation, other.deviation),
                          pools=self.pools + other.pools, balanced=self.balanced + other.balanced)

    def as_json(self) -> Json:
        return {'shards_by_crush': self.by_crush, 'shards_required': self.required,
                'shards_extra': self.extra, 'upmaps': self.upmaps, 'deviation': self.deviation,
                'trades': [trade._asdict() for trade in self.trades]}


def least_moves(future: Future, pool: Pool, observation: Observation,
                bounds: Bounds, upmaps_max: Optional[int] = None) -> Optional[LeastMoves]:
    """The fewest moves of a pool that gets another rule; None: no upmaps can keep its PGs in place,
    so all must end where the rule places them.

    `future`: the mapping of all PGs of the pool under the new rule. `upmaps_max`: limit of the
    upmaps that keep PGs in place; None: unlimited. Takes about 0.3 ms a PG, and twice as long with
    a limit.
    """
    if why_all_follow(pool, future.crush, Balancing()):  # whether or not the balancer covers it
        return None
    return _limited([_PoolMoves(future, pool, observation, bounds)], upmaps_max)


def why_all_follow(pool: Pool, crush: CrushRules, balancing: Balancing) -> str:
    """Why no upmaps can, or may, keep the PGs of a pool in place under its rule in `crush`; '' if
    they may."""
    if not balancing.covers(pool.id):
        return 'the balancer does not cover the pool (balancer mode, or pool list)'
    if is_merging(pool):
        return 'its PGs are being merged'
    unbalanced = why_unbalanced(pool, crush)
    if unbalanced:
        return unbalanced
    # With several takes, positions have a meaning, such as the device class of the primary.
    return '' if finds_lawful_sets(pool, crush) else \
        'that rule has several takes, or places unequal numbers of shards in its buckets'


def moves_for_map(future: Future, observation: Observation, bounds: Bounds,
                  upmaps_max: Optional[int] = None, pools: Collection[int] = ()) -> LeastMoves:
    """The fewest moves of `pools`, and of the pools with PGs that a new CRUSH map does not allow to
    stay where they are.

    These PGs can move before the map is set, as the present one allows the new sets as well.
    `future`: the mapping of all PGs under the new map. `upmaps_max`: limit of the upmaps that keep
    PGs of all these pools in place; None: unlimited.
    """
    osdmap, out, pgs_by_pool = observation.osdmap, observation.osdmap.out, future.by_pool()
    moves = []
    for number in sorted(pgs_by_pool.keys() & osdmap.pools.keys()):
        pool, pgs = osdmap.pools[number], pgs_by_pool[number]
        concerned = observation.balancing.covers(number) and (number in pools or any(
            _may_move(pgid, pg, pool, observation)
            and broken_rule(pool, pg.acting, future.crush, out) for pgid, pg in pgs.items()))
        if concerned and all(
                finds_lawful_sets(pool, crush) and is_balanced(pool, crush, Balancing())
                for crush in (future.crush, observation.crush)):
            moves.append(_PoolMoves(replace(future, pgs=pgs, others={}), pool, observation, bounds,
                                    observation.crush))
    return _limited(moves, upmaps_max)


class _PoolMoves:
    """The moves of a pool, first without a limit of upmaps."""

    def __init__(self, future: Future, pool: Pool, observation: Observation, bounds: Bounds,
                 earlier: Optional[CrushRules] = None) -> None:
        """`earlier`: CRUSH in which the rule allows the new sets as well; None: it need not."""
        self._future, self._pool, self._bounds, self._earlier = future, pool, bounds, earlier
        self._osds, self._out = observation.osdmap.osds, observation.osdmap.out
        self._pgs = dict(future.all())
        self._movable = {pgid for pgid, pg in self._pgs.items()
                         if _may_move(pgid, pg, pool, observation)}
        #: Shards that move if all PGs follow CRUSH.
        self._by_crush = sum(_shards_moved(pool, pg.acting, pg.raw) for pg in self._pgs.values())
        self._unlimited = self._balanced(frozenset())
        #: PG -> its set at the end, for all PGs.
        self._ends = _final_sets(self._pgs, self._unlimited, frozenset())
        #: Without a limit of upmaps.
        self.moves = self._moves(self._unlimited, self._ends)
        #: PGs that can give up their upmap and follow CRUSH -> what that costs, as `_costs`.
        self.costs = {pgid: cost for pgid, cost in _costs(
            pool, self._pgs, self._ends, self._movable).items()
                      if self._is_allowed(self._pgs[pgid].raw)}

    def with_fewer_upmaps(self, followers: AbstractSet[str]) -> LeastMoves:
        """The moves if some PGs end where CRUSH places them. `followers`: PGs, of all pools, that
        give up their upmap."""
        if not followers & self.costs.keys():
            return self.moves
        # Also PGs that need no upmap: otherwise they could get one for the balance.
        following = {*(followers & self.costs.keys()), *(
            pgid for pgid in self._movable
            if not _shards_moved(self._pool, self._pgs[pgid].raw, self._ends[pgid]))}
        result = self._balanced(following)
        return self._moves(result, _final_sets(self._pgs, result, following))

    def _balanced(self, followers: AbstractSet[str]) -> Balance:
        """The balanced end state of the pool. Besides the shards that the rule does not allow to
        stay, at most `extra` times as many move as CRUSH would move. `followers`: PGs that end
        where CRUSH places them, as does a PG for which no set obeys both the rule and `earlier`."""
        return balance(self._pool, [PlacedPg(
            pgid, pg.raw if pgid in followers else pg.acting, pg.raw,
            pgid in self._movable and pgid not in followers) for pgid, pg in self._pgs.items()],
            self._future.crush, self._osds, math.ceil(self._bounds.extra * self._by_crush),
            self._bounds.deviation, new_rule=True, earlier=self._earlier)

    def _moves(self, result: Balance, ends: Mapping[str, OsdSet]) -> LeastMoves:
        """The moves to an end state. `ends`: the final sets of all PGs."""
        pool, pgs = self._pool, self._pgs
        moved = sum(_shards_moved(pool, pg.acting, ends[pgid]) for pgid, pg in pgs.items())
        # To a set that the earlier rule does not allow, a PG cannot move before the change.
        finals = {pgid: final for pgid, final in ends.items()
                  if final != pgs[pgid].acting and self._is_allowed(final)}
        required = self._unlimited.required
        all_allowed = all(
            finals.get(pgid, pgs[pgid].acting) == final for pgid, final in ends.items())
        return LeastMoves(
            finals, by_crush=self._by_crush, required=required, extra=moved - required,
            upmaps=sum(_shards_moved(pool, pg.raw, ends[pgid]) > 0 for pgid, pg in pgs.items()),
            deviation=result.deviation, pools=(pool.id,), balanced=(pool.id,) if all_allowed
            and result.deviation <= self._bounds.deviation + ROUNDING else ())

    def _is_allowed(self, osds: OsdSet) -> bool:
        """Whether `earlier` allows a set."""
        return self._earlier is None or not broken_rule(self._pool, osds, self._earlier, self._out)


def _limited(pools: Sequence[_PoolMoves], upmaps_max: Optional[int]) -> LeastMoves:
    """The moves of all pools with at most `upmaps_max` upmaps, or as few as possible: the PGs for
    which that costs the fewest shards follow CRUSH instead."""
    unlimited = reduce(LeastMoves.plus, [pool.moves for pool in pools], LeastMoves({}, 0, 0, 0, 0))
    costs = sorted((row for pool in pools for row in pool.costs.items()), key=itemgetter(1))
    moves = unlimited
    if upmaps_max is not None and unlimited.upmaps > upmaps_max:
        followers = {pgid for pgid, _ in costs[:unlimited.upmaps - upmaps_max]}
        moves = reduce(LeastMoves.plus, [pool.with_fewer_upmaps(followers) for pool in pools],
                       LeastMoves({}, 0, 0, 0, 0))
    return replace(moves, trades=_trades([cost for _, cost in costs], unlimited.upmaps,
                                         unlimited.required + unlimited.extra))


def _final_sets(pgs: Mapping[str, FuturePg], result: Balance,
                followers: AbstractSet[str]) -> Dict[str, OsdSet]:
    """The sets of all PGs at the end: of `followers` where CRUSH places them, of the others by
    `result`, or where they are now."""
    return {pgid: pg.raw if pgid in followers else result.finals.get(pgid, pg.acting)
            for pgid, pg in pgs.items()}


def _costs(pool: Pool, pgs: Mapping[str, FuturePg], ends: Mapping[str, OsdSet],
           movable: AbstractSet[str]) -> Dict[str, int]:
    """PGs with an upmap -> further shards that move if they have none, the fewest first."""
    costs = {pgid: _shards_moved(pool, pgs[pgid].acting, pgs[pgid].raw)
             - _shards_moved(pool, pgs[pgid].acting, ends[pgid])
             for pgid in sorted(movable) if _shards_moved(pool, pgs[pgid].raw, ends[pgid])}
    return dict(sorted(costs.items(), key=lambda row: row[1]))


def _trades(costs: List[int], upmaps: int, moved: int) -> Tuple[Trade, ...]:
    """What fewer upmaps cost, for each share of _TRADES that is kept; () if no PG can give up its
    upmap. `costs`: further shards that move without the upmap of a PG, the fewest first; `upmaps`,
    `moved`: number of upmaps and of moved shards without a limit."""
    trades = []
    for share in _TRADES if costs else ():
        given_up = len(costs) - math.floor(share * len(costs))
        trades.append(Trade(upmaps - given_up, moved + sum(costs[:given_up])))
    return tuple(trades)


def with_least_moves(outlook: Outlook, pool: Optional[Pool], observation: Observation,
                     bounds: Bounds, upmaps_max: Optional[int]) -> Outlook:
    """The outlook with the final sets of the fewest moves; a NoFuture if upmaps cannot keep PGs in
    place. Takes seconds for a large pool."""
    if isinstance(outlook, NoFuture) or pool is None:
        return outlook
    fewest_moves = least_moves(outlook, pool, observation, bounds, upmaps_max)
    if fewest_moves is None:
        # More than was ordered must not move.
        return NoFuture('upmaps can no longer keep the PGs of pool %s in place under the new rule'
                        % pool.name)
    return replace(outlook, finals=fewest_moves.finals)


def _may_move(pgid: str, pg: FuturePg, pool: Pool, observation: Observation) -> bool:
    """Whether an upmap may move the PG: it is complete, and neither remapped nor merging."""
    return pgid not in observation.osdmap.pg_temp and pool.is_complete(pg.acting) \
        and merge_reason(pool, pgid) is None


def _shards_moved(pool: Pool, old_osds: OsdSet, new_osds: OsdSet) -> int:
    """Number of shards, or copies, that move."""
    return sum(old != new for old, new in zip(old_osds, new_osds)) if pool.erasure \
        else len(set(new_osds) - set(old_osds))
