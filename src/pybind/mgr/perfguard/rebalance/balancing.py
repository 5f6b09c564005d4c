# SPDX-License-Identifier: LGPL-2.1-or-later
"""`balance`: PGs move, by upmaps alone, until the OSDs have their share of the PGs, or are equally
full. Pure.

The campaign changes nothing else. Its moves are planned when it begins, on the mapping of that
time, and released like pins: the entry of a PG is its present one until its release. PGs move from
where their upmaps have led them.

The built-in balancer works on the numbers of PGs of one pool at a time, and leaves a pool alone of
which no OSD differs from its share by more than its upmap_max_deviation. A balance by bytes keeps
within that, so that nothing is undone.
"""
import errno
import math
import re
from dataclasses import dataclass, replace
from typing import (AbstractSet, ClassVar, Dict, Iterable, List, Mapping, NamedTuple, Optional,
                    Sequence, Set, Tuple)

from ..cluster.ports import Future, FuturePg, NoFuture, Outlook
from ..cluster.types import Document, OsdMap, OsdSet, Pool, Space, pg_shard_bytes, pool_of
from ..errors import Code, Refused
from ..observation import Observation
from ..text import decimal_number, listed, plural
from ..upmap.balance import PlacedPg, is_merging, why_unbalanced
from ..upmap.evening import Evened, EvenPool, EvenGround, even_out
from ..upmap.pins import merge_reason
from ..upmap.shares import backfill_bytes, weights_of
from .capacity import CrushAndSpace, pool_avail, rule_room, unreported
from .change import Change, Details, Planned
from .moves import Move, release_move
from .orders import Order
from .pool_change import first_moves
from .risks import Risk
from .types import PinRecord

PGS, BYTES = 'pgs', 'bytes'
#: Share of the shards of the chosen pools that may move, by default.
DEFAULT_MOVEMENT = 0.05
#: PGs by which an OSD may differ from its share of a pool, by default; by bytes: as many as the
#: built-in balancer allows.
DEFAULT_DEVIATION = 1.0
MOST_DEVIATION = 1000.0
_PERCENT = re.compile(r'(\d{1,3}(?:\.\d{1,6})?)%')
#: Number of pools that a text names.
NAMED_POOLS = 10


@dataclass(frozen=True)
class BalanceChange(Change):
    """The change of a campaign that balances pools by upmaps alone."""
    kind: ClassVar[str] = 'balance'
    fewer_pins: ClassVar[str] = 'lower --max-movement, or choose fewer pools'
    subject: ClassVar[str] = 'upmaps'
    moves_only: ClassVar[bool] = True
    why_first: ClassVar[str] = 'PGs move, and nothing else is changed'

    #: IDs of the pools.
    pools: Tuple[int, ...] = ()
    #: Whether OSDs become equally full; otherwise, they get their share of the PGs.
    by_bytes: bool = False
    #: PGs by which an OSD may differ from its share of a pool.
    deviation: float = DEFAULT_DEVIATION
    #: Share of the shards of the pools that may move.
    max_movement: float = DEFAULT_MOVEMENT
    #: Shards that move by its preview, and at most; 0: not known yet.
    shards: int = 0

    @property
    def whole(self) -> bool:
        return True

    def foreseen(self, outlook: Outlook, observation: Observation,
                 space: Mapping[int, Space]) -> Outlook:
        """`outlook`, the present mapping, with the new sets of the PGs that the balance moves."""
        return outlook if isinstance(outlook, NoFuture) else replace(
            outlook, finals=self.evened(outlook, observation, space).finals)

    def evened(self, future: Future, observation: Observation,
               space: Mapping[int, Space]) -> Evened:
        """The end state of the balance. `future`: the mapping of all PGs, which is the present one;
        `space`: by OSD. Remapped PGs stay, and count where they go. At most as many shards move as
        in the preview, if there was one."""
        pools = _even_pools(self.pools, future, observation)
        budget = math.floor(self.max_movement * sum(pool.shards for pool in pools))
        arriving, leaving = backfill_bytes(observation.osdmap, observation.placement,
                                           observation.shard_bytes)
        ground = EvenGround(
            future.crush, observation.osdmap.osds, {
                osd: row._replace(used_bytes=row.used_bytes + arriving.get(osd, 0))
                for osd, row in space.items()},
            full=observation.osdmap.nearfull_ratio, deviation=self.deviation,
            by_bytes=self.by_bytes, leaving=leaving)
        # The preview had this budget; another one from the start might lead to other moves.
        evened = even_out(pools, ground, budget)
        if self.shards and evened.moved > self.shards:
            return even_out(pools, ground, self.shards)
        return evened

    def same_as(self, other: Change) -> bool:
        """Whether both balance the same, also if this one moves fewer shards than `other`: others
        may have moved PGs since that was computed."""
        return isinstance(other, BalanceChange) and self.shards <= other.shards \
            and replace(self, shards=other.shards) == other

    def first_moves(self, observation: Observation, outlook: Future,
                    pins: Mapping[str, PinRecord]) -> Optional[Planned]:
        """All moves of the balance: nothing follows them."""
        return first_moves(observation, outlook, outlook.finals or {}, upmaps_only=True)

    def moves_noted(self) -> Change:
        return self.settled()

    def first_moves_text(self, osdmap: OsdMap) -> str:
        return 'of %s will move for the balance' % plural(len(self.pools), 'pool')

    def impossible(self, observation: Observation) -> str:
        return '' if set(self.pools) & observation.osdmap.pools.keys() else \
            'none of its pools exists any longer'

    def moves_back(self, observation: Observation) -> Optional[Planned]:
        """The moves that undo those of `ahead`, which the balance has made already; never None."""
        osdmap, out = observation.osdmap, observation.osdmap.out
        pins: Dict[str, PinRecord] = {}
        moves: Dict[str, Move] = {}
        for pgid, led in self.ahead.items():
            place = observation.placement(pgid)
            # Others may have changed the upmap since: then the PG stays.
            if place is not None and osdmap.entry(pgid) == led.entry:
                pin = pins[pgid] = PinRecord(before=led.before, entry=led.entry)
                moves[pgid] = release_move(pgid, osdmap, place.up, pin, out,
                                           observation.signals.pool_bytes.get(pool_of(pgid), 0))
        return Planned(pins, {}, moves)

    @property
    def features(self) -> Mapping[str, str]:
        return {'pools (IDs):': ', '.join(map(str, self.pools)),
                'deviation:': '%g' % self.deviation,
                'movement:': '%g %%' % (100 * self.max_movement), 'shards:': str(self.shards)}


def _even_pools(pools: Iterable[int], future: Future, observation: Observation) -> List[EvenPool]:
    """Those of these pools (IDs) that exist, with their PGs, as `even_out` takes them. `future`:
    the present mapping."""
    osdmap, pgs_by_pool = observation.osdmap, future.by_pool()
    even_pools = []
    for pool_id in sorted(set(pools) & osdmap.pools.keys()):
        pool, pgs = osdmap.pools[pool_id], pgs_by_pool.get(pool_id, {})
        weights = weights_of(pool, future.crush, osdmap.osds,
                             future.crush.spread(pool.crush_rule, pool.size))
        pool_bytes = observation.signals.space_of(pool_id)
        even_pools.append(EvenPool(
            pool, [PlacedPg(pgid, _destination(pgid, pg, observation), pg.raw,
                            _may_move(pgid, pg, pool, osdmap, weights))
                   for pgid, pg in pgs.items()],
            {pgid: pg_shard_bytes(pool, pool_bytes, pgid) for pgid in pgs}))
    return even_pools


def _destination(pgid: str, pg: FuturePg, observation: Observation) -> OsdSet:
    """Where the PG is after its backfill, if it is remapped, so that the targets of the backfill
    get no other PGs instead; else where it is now."""
    place = observation.placement(pgid) if pgid in observation.osdmap.pg_temp else None
    return pg.acting if place is None else place.up


def _may_move(pgid: str, pg: FuturePg, pool: Pool, osdmap: OsdMap,
              weights: Mapping[int, float]) -> bool:
    """Whether a balance may move the PG: not if it is remapped, incomplete or about to be merged,
    nor if it is on an OSD that is to be emptied ("drain" and "adopt" move it), or has a vector,
    which was set by hand. `weights`: CRUSH weights of the OSDs of its rule; 0: to be emptied."""
    return (pgid not in osdmap.pg_temp and merge_reason(pool, pgid) is None
            and pool.is_complete(pg.acting) and osdmap.entry(pgid).vector is None
            and all([weights.get(osd) for osd in pg.acting]))


# ---- The order

class Chosen(NamedTuple):
    """The pools that an order to balance is about."""
    #: By ID.
    pools: Tuple[Pool, ...]
    #: Pool name -> why it is left out, of pools that the order does not name.
    left_out: Mapping[str, str]


def chosen(names: Sequence[str], observation: Observation) -> Chosen:
    """The pools that an order balances, and those that it leaves out. `names`: of pools, of device
    classes on whose OSDs pools are, or of CRUSH roots below which they are; (): all pools. Raises
    Refused if a pool that is named cannot be balanced, or none is left."""
    osdmap = observation.osdmap
    by_name = {pool.name: pool for pool in osdmap.pools.values()}
    by_hand = _with_upmaps_by_hand(observation)
    if not names:
        reasons = {name: _why_not(pool, observation, by_hand)
                   for name, pool in sorted(by_name.items())}
        pools = [pool for name, pool in by_name.items() if not reasons[name]]
        if not pools:
            raise Refused(errno.ENOENT, 'no pool can be balanced%s' % ''.join(
                '; %s: %s' % row for row in list(reasons.items())[:NAMED_POOLS]))
        return Chosen(_by_id(pools), {name: why for name, why in reasons.items() if why})
    pools_by_id: Dict[int, Pool] = {}
    left_out: Dict[str, str] = {}
    for name in names:
        is_pool = name in by_name
        for pool in _named(name, observation):
            why = _why_not(pool, observation, by_hand, is_pool)
            if why and is_pool:
                raise Refused(errno.EINVAL, 'pool %s cannot be balanced: %s' % (name, why))
            if why:
                left_out[pool.name] = why
            else:
                pools_by_id[pool.id] = pool
    if not pools_by_id:
        raise Refused(errno.ENOENT, 'no pool can be balanced: %s' % '; '.join(
            '%s: %s' % row for row in list(left_out.items())[:NAMED_POOLS]))
    return Chosen(_by_id(pools_by_id.values()), left_out)


def _named(name: str, observation: Observation) -> List[Pool]:
    """The pool of this name, or those of a device class or below a root. Raises Refused."""
    pools = [pool for pool in observation.osdmap.pools.values() if pool.name == name]
    group = _group(name, observation)
    if pools and group and group != pools:
        raise Refused(errno.EINVAL, '%.64r is a pool, and a device class or CRUSH root of %s: '
                      'name the pools' % (name, plural(len(group), 'pool')))
    if not pools and not group:
        raise Refused(errno.ENOENT, 'no pool, nor device class or CRUSH root with pools, is '
                      'called %.64r' % name)
    return pools or group


def check_balance(order: Order, observation: Observation) -> None:
    """Raise Refused for names that are of no pool, device class or CRUSH root, and for invalid
    options."""
    for name in order.names:
        _named(name, observation)
    change_ordered(order, (), observation)


def _by_id(pools: Iterable[Pool]) -> Tuple[Pool, ...]:
    """The pools in the order of their IDs."""
    return tuple(sorted(pools, key=lambda pool: pool.id))


def _group(name: str, observation: Observation) -> List[Pool]:
    """The pools whose rules take only OSDs of the device class, or from below the root, `name`."""
    crush = observation.crush
    below = crush.osds_below(name) or frozenset()
    # Many pools share few rules.
    takes: Dict[Tuple[int, int], bool] = {}
    for pool in observation.osdmap.pools.values():
        key = pool.crush_rule, pool.size
        if key not in takes:
            osds = crush.spread(*key).domain.keys()
            takes[key] = bool(osds) and (
                osds <= below or all(crush.class_of(osd) == name for osd in osds))
    return [pool for pool in observation.osdmap.pools.values()
            if takes[pool.crush_rule, pool.size]]


def _with_upmaps_by_hand(observation: Observation) -> Set[int]:
    """IDs of the pools whose upmaps may have been set by hand: those with upmaps while the balancer
    is off, else none."""
    osdmap = observation.osdmap
    return set() if observation.settings.balancer_active != 'false' else {
        pool_of(pgid) for pgid in (*osdmap.upmap_items, *osdmap.upmap_vectors)}


def _why_not(pool: Pool, observation: Observation, by_hand: AbstractSet[int],
             named: bool = False) -> str:
    """Why a pool is left out of a balance; '': it can be balanced. Pools that the balancer does not
    cover, and those of `by_hand` (_with_upmaps_by_hand), are balanced only if the order names the
    pool (`named`), not its device class or root."""
    unbalanced = why_unbalanced(pool, observation.crush)
    if unbalanced:
        return unbalanced
    if is_merging(pool):
        return 'its PGs are being merged'
    if not named and not observation.balancing.covers(pool.id):
        return 'the balancer does not cover it (balancer mode, or pool list); name it to balance it'
    if not named and pool.id in by_hand:
        return 'it has upmaps, which may have been set by hand since the balancer is off; ' \
            'name it to balance it'
    return ''


def change_ordered(order: Order, pools: Sequence[Pool], observation: Observation) -> BalanceChange:
    """The change that an order to balance these pools describes, before its moves are planned.
    Raises Refused for invalid options."""
    by = order.by or PGS
    if by not in (PGS, BYTES):
        raise Refused(errno.EINVAL, '--by must be %s or %s, not %.40r' % (PGS, BYTES, by))
    deviation = DEFAULT_DEVIATION if by == PGS else observation.balancing.deviation
    if order.deviation is not None:
        try:
            deviation = decimal_number(order.deviation)
        except ValueError:
            deviation = math.nan
        if not 1.0 <= deviation <= MOST_DEVIATION:
            raise Refused(errno.EINVAL, '--deviation must be a number of PGs from 1 to %g, not '
                          '%.40r' % (MOST_DEVIATION, order.deviation))
    movement = DEFAULT_MOVEMENT
    if order.max_movement is not None:
        percent = _PERCENT.fullmatch(order.max_movement)
        movement = float(percent.group(1)) / 100 if percent else 0.0
        if not 0.0 < movement <= 1.0:
            raise Refused(errno.EINVAL, '--max-movement must be above 0%% and at most 100%%, such '
                          'as 5%%, not %.40r' % order.max_movement)
    return BalanceChange(pools=tuple(pool.id for pool in pools), by_bytes=by == BYTES,
                         deviation=deviation, max_movement=movement)


def balance_ordered(order: Order, observation: Observation, space: Mapping[int, Space],
                    mapping: Future) -> Tuple[BalanceChange, Details, Planned]:
    """The change that balances the pools of an order, what a preview shows of it, and its moves.
    `space`: by OSD; `mapping`: the present one of all PGs. Raises Refused for an invalid order, if
    there is nothing to do, and if a balance by bytes would do harm or lacks the size of an OSD."""
    pools, left_out = chosen(order.names, observation)
    change = change_ordered(order, pools, observation)
    missing = unreported(observation.osdmap, space, {
        osd for pool in pools
        for osd in observation.crush.spread(pool.crush_rule, pool.size).domain})
    if change.by_bytes and missing:
        raise Refused(errno.EAGAIN, missing, not_fit=True)
    evened = change.evened(mapping, observation, space)
    if not evened.moved:
        _refuse_nothing(change, evened, pools)
    if change.by_bytes:
        _refuse_harm(change, evened)
    moves = first_moves(observation, mapping, evened.finals, upmaps_only=True)
    upmaps = {pgid for pgid in (*observation.osdmap.upmap_items, *observation.osdmap.upmap_vectors)
              if pool_of(pgid) in change.pools}
    upmaps_after = upmaps - moves.pins.keys() | {
        pgid for pgid, pin in moves.pins.items() if pin.leads_to}
    why_undone = _why_undone(change, pools, observation)
    shown: Document = {
        'by': BYTES if change.by_bytes else PGS, 'deviation': change.deviation,
        'max_movement': change.max_movement,
        # Shards that may move, that move, and that would move without the limit.
        'limit_shards': math.floor(change.max_movement * sum(
            len(pg.acting) for pgid, pg in mapping.all() if pool_of(pgid) in change.pools)),
        'shards': evened.moved, 'wanted_shards': evened.moved_without_limit,
        # PGs of the pools with an upmap, and those of them whose upmap is changed or removed.
        'upmaps_before': len(upmaps), 'upmaps_changed': len(upmaps & moves.pins.keys()),
        'upmaps_after': len(upmaps_after),
        # Of the emptiest and the fullest OSD: PGs relative to its share, or used relative to total.
        'load_before': _load_range(evened, _BEFORE), 'load_after': _load_range(evened, _AFTER),
        'undone': why_undone, 'moves_first': True,
        'pools': [_shown_of(pool, evened, observation, space) for pool in pools],
        'left_out': [{'pool': pool, 'reason': why} for pool, why in left_out.items()]}
    return replace(change, shards=evened.moved), Details(
        'balance', shown, moves_first=True, follows_change=True, upmaps=len(upmaps_after),
        risks=(Risk(Code.BALANCER_UNDOES, why_undone),) if why_undone else ()), moves


def _refuse_nothing(change: BalanceChange, evened: Evened, pools: Sequence[Pool]) -> None:
    """Raise Refused for a balance that moves nothing, with the reason: --max-movement allows no
    move, or the pools are balanced already."""
    if evened.moved_without_limit:
        raise Refused(errno.EPERM, '--max-movement %g%% allows no move; %s would move without a '
                      'limit' % (100 * change.max_movement,
                                 plural(evened.moved_without_limit, 'shard')))
    names = listed([pool.name for pool in pools], NAMED_POOLS)
    worst = max(after for _, after in evened.deviations.values())
    lowest, highest = _load_range(evened, _AFTER)
    loads = 'OSDs are %.1f to %.1f %% full' if change.by_bytes else \
        'OSDs have %.1f to %.1f %% of their share of all these pools'
    raise Refused(errno.EALREADY, 'already balanced: every OSD has its share of each pool to '
                  'within %.2f PGs (%s); %s' % (worst, names,
                                                loads % (100 * lowest, 100 * highest)))


def _refuse_harm(change: BalanceChange, evened: Evened) -> None:
    """Raise Refused if a balance by bytes would not fill the OSDs more evenly: OSDs with many small
    PGs have to give away those beyond `deviation` PGs above their share."""
    lowest, highest = _load_range(evened, _BEFORE)
    lowest_after, highest_after = _load_range(evened, _AFTER)
    if not highest:
        raise Refused(errno.EPERM, 'the pools store no data: balance them with "--by pgs"')
    if highest_after - lowest_after >= highest - lowest:
        raise Refused(errno.EPERM, 'with numbers of PGs within %g of the shares, OSDs would be '
                      '%.1f to %.1f %% full, and are %.1f to %.1f %% full now: raise --deviation'
                      % (change.deviation, *(100 * share for share in (
                          lowest_after, highest_after, lowest, highest))))


#: Indexes of Evened.loads.
_BEFORE, _AFTER = 0, 1


def _load_range(evened: Evened, index: int) -> Tuple[float, float]:
    """The loads of the emptiest and the fullest OSD, as in Evened.loads. `index`: _BEFORE or
    _AFTER."""
    loads = [row[index] for row in evened.loads.values()]
    return min(loads, default=0.0), max(loads, default=0.0)


def _why_undone(change: BalanceChange, pools: Sequence[Pool], observation: Observation) -> str:
    """Why the built-in balancer would undo a balance of these pools; '': it would not."""
    if observation.settings.balancer_active != 'true':
        return ''
    if observation.balancing.weight_sets:
        return 'the built-in balancer balances by weight-sets: it would move PGs again ' \
            '("ceph balancer off", or "ceph balancer mode upmap")'
    if change.deviation > observation.balancing.deviation and any(
            observation.balancing.covers(pool.id) for pool in pools):
        return 'the built-in balancer would move PGs back: its upmap_max_deviation is %g (use at ' \
            'most "--deviation %g", raise it, or "ceph balancer off")' % (
                observation.balancing.deviation, observation.balancing.deviation)
    return ''


def _shown_of(pool: Pool, evened: Evened, observation: Observation,
              space: Mapping[int, Space]) -> Document:
    """What a preview shows of one pool, before and after the balance: the greatest distance of an
    OSD from its share, in PGs; and MAX AVAIL in bytes, as Ceph computes it, with the OSD that
    limits it (None: OSDs have not reported)."""
    before, after = evened.deviations[pool.id]
    later = {osd: row._replace(used_bytes=row.used_bytes + evened.gained.get(osd, 0))
             for osd, row in space.items()}
    rooms = (rule_room(pool.crush_rule, CrushAndSpace(observation.crush, rows),
                       observation.osdmap.full_ratio) for rows in (space, later))
    return {'pool': pool.name, 'deviation_before': before, 'deviation_after': after,
            **vars(pool_avail(pool, *rooms))}
