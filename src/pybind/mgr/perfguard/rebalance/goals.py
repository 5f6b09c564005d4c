# SPDX-License-Identifier: LGPL-2.1-or-later
"""The final OSDs and upmap entry of each PG of a campaign with target=balanced.

Computed once all PGs are pinned, and again only when CRUSH, the pools or the OSDs' weights have
changed or further PGs were pinned. The goals are in the pin records, and so survive a restart.
They do not depend on which OSDs are up; goals that do for lack of data are computed again once such
an OSD is back. The preview shows the same for a change of CRUSH before it is made.
"""
import hashlib
from dataclasses import dataclass, field, replace
from typing import (AbstractSet, Collection, Dict, FrozenSet, Iterable, List, Mapping, NamedTuple,
                    Optional, Tuple)

from ..cluster.crush import CrushRules
from ..cluster.ports import Future, FuturePg
from ..cluster.types import (Balancing, Json, OsdMap, OsdSet, Pool, Space, UpmapEntry, pool_of)
from ..events import Event
from ..observation import Observation
from ..text import pgs, plural
from ..upmap.balance import Balance, BalanceLimit, PlacedPg, balance, is_balanced, is_merging
from ..upmap.pins import Unpinnable, after_commit, merge_reason, plan_pin, without_vector
from ..upmap.semantics import PoolUp, apply_entry, raw_from_up
from ..upmap.shares import PoolRoom, Room
from .campaign import Basis, Campaign, Flights, GoalsMark, Pinning
from .change import ChangeStage, Planned
from .moves import Move, move_between, movement_of
from .pin_index import PinIndex
from .types import Bounds, Phase, PinRecord

#: Phases in which goals are needed: for the preview, and for releases.
_PHASES = frozenset({Phase.PINNING, Phase.PINNED, Phase.RELEASING, Phase.HOLDING})


#: Seconds without a change after which PGs between two intervals count as stuck.
STUCK_GOALS_SECONDS = 60.0
#: Number of PGs that may be stuck even on a small cluster.
FEW_STUCK = 8


@dataclass(frozen=True)
class Goals:
    #: Records that are new or have another goal.
    records: Mapping[str, PinRecord] = field(default_factory=dict)
    #: Records of PGs that were never pinned and no longer need to move.
    dropped: FrozenSet[str] = frozenset()
    mark: GoalsMark = GoalsMark()
    #: Future state of pools by id.
    balances: Mapping[int, Balance] = field(default_factory=dict)

    def changed(self, pins: Mapping[str, PinRecord]) -> Dict[str, PinRecord]:
        """All records that have to be stored, also of the PGs whose pins are dropped then: after a
        restart, these must not return with earlier goals."""
        return {**self.records, **{pgid: replace(pins[pgid], goal=None) for pgid in self.dropped}}


def basis(osdmap: OsdMap, crush: CrushRules, pools: Iterable[int],
          balancing: Balancing = Balancing(), deviation: float = 1.0) -> Basis:
    """What the goals of the PGs of these pools (IDs) depend on. `deviation`: target_deviation."""
    common = (crush.identity, deviation, balancing.upmap, sorted(balancing.pools),
              sorted((osd.id, osd.reweight) for osd in osdmap.osds.values() if osd.exists))
    # 'merging': otherwise each PG that a pool merges, for hours, would make the goals outdated.
    return Basis(_digest(common, 16), {
        pool.id: 'merging' if is_merging(pool) else _digest(
            (pool.pg_num, pool.pg_num_pending, pool.size, pool.crush_rule), 8)
        for pool in (osdmap.pools[number] for number in sorted(set(pools) & set(osdmap.pools)))})


def _digest(values: Tuple[object, ...], digits: int) -> str:
    return hashlib.sha256(repr(values).encode()).hexdigest()[:digits]


def needed(campaign: Campaign, pins: PinIndex, now: Basis, osdmap: OsdMap) -> bool:
    """Whether goals must be computed: the campaign has pins whose PGs do not simply go where CRUSH
    places them, and some have no goal, or one that is outdated. `now`: the basis of this OSDMap.
    PGs that move before a change have the goals of its plan."""
    if campaign.phase not in _PHASES or not pins or campaign.moving_first or (
            campaign.target != 'balanced' and not awaits_tranches(campaign)):
        return False
    computed_for = campaign.pinning.goals.basis
    if computed_for is None or not computed_for.covers(now):
        return True
    osds_up = (osd.id for osd in osdmap.osds.values() if osd.up)
    # Goals that were computed without OSDs that were down are outdated once one of these is up.
    return (not computed_for.absent.isdisjoint(osds_up)
            # The others have yet to peer, or to recover.
            or any(pgid not in campaign.flights.in_flight and pgid not in osdmap.pg_temp
                   for pgid in pins.without_goal))


def awaits_tranches(campaign: Campaign) -> bool:
    """Whether the goals of the pins are those with all weights, although only a part of the change
    is in force: PGs whose shards move in several tranches move once. The pins of a rollback wait
    for its last tranche."""
    change = campaign.change
    return change is not None and change.stage is ChangeStage.LANDED and not change.is_last \
        and not campaign.keeps_pins


def pgs_in_transition(campaign: Campaign, pins: Mapping[str, PinRecord],
                      observation: Observation, max_transition_ratio: float) -> int:
    """How many PGs are between two intervals, and may still become remapped.

    PGs of pools without pins do not count. A few (at most `max_transition_ratio` of all) without a
    change for long count as stuck and are ignored, for example PGs whose OSDs are lost.
    """
    counts, whole = observation.signals.pool_counts, observation.signals.counts
    pools = pools_of((*pins, *observation.osdmap.pg_temp), observation.osdmap)
    all_counted = all(pool in counts for pool in pools) and bool(pools)
    number = whole.in_transition
    if all_counted:
        number = sum(counts[pool].in_transition for pool in pools)
    idle_seconds = campaign.idle_seconds(observation.now)
    few = number <= max(FEW_STUCK, max_transition_ratio * whole.total)
    return 0 if few and idle_seconds > STUCK_GOALS_SECONDS else number


def settled(campaign: Campaign, pins: Mapping[str, PinRecord], observation: Observation,
            max_transition_ratio: float) -> bool:
    """Whether all PGs stay in place until they are released, so that goals can be computed: no pin
    is on its way, no PG is peering, and no remapped PG is yet to be pinned."""
    return not (campaign.pinning.sent
                or pgs_in_transition(campaign, pins, observation, max_transition_ratio)
                or any(pgid not in campaign.flights.in_flight
                       and pgid not in campaign.pinning.unpinnable
                       and pgid not in observation.evacuation
                       for pgid in observation.osdmap.pg_temp))


class Tranches(NamedTuple):
    """What came before the present tranche of a change, and what follows it."""
    #: OSDs whose weights change.
    osds: AbstractSet[int]
    #: The mapping of all PGs with the weights from before the change, for a balance; None: this is
    #: the first tranche, or it is not known.
    before: Optional[Future]
    #: The mapping with all weights, of all PGs for a balance, else of those that move or have an
    #: upmap; None: this is the last tranche.
    ahead: Optional[Future]
    #: PGs that may have an upmap to where a later tranche places them.
    upmaps: int = 0


NO_TRANCHES = Tranches(frozenset(), None, None)


@dataclass(frozen=True)
class Ground:
    """The basis of goals: if it has changed, they are discarded."""
    campaign: Campaign
    pins: Mapping[str, PinRecord]
    basis: Basis
    #: Upmaps, and acting sets of remapped PGs, of the pools with pins. PGs of an evacuation arrive
    #: all the time, where they count already.
    entries: Mapping[str, UpmapEntry]
    remapped: Mapping[str, OsdSet]


def ground(campaign: Campaign, pins: Mapping[str, PinRecord], observation: Observation,
           now: Basis) -> Ground:
    """What goals that are computed now are based on."""
    osdmap = observation.osdmap
    pools = set(pools_of(pins, osdmap))
    entries = {pgid: osdmap.entry(pgid) for pgid in (*osdmap.upmap_items, *osdmap.upmap_vectors)
               if pool_of(pgid) in pools}
    remapped = {pgid: acting for pgid, acting in osdmap.pg_temp.items()
                if pool_of(pgid) in pools and pgid not in observation.evacuation}
    # Only the parts of the campaign that `work_out` reads: its times change in every turn.
    return Ground(Campaign(campaign.id, campaign.origin, campaign.phase, target=campaign.target,
                           change=campaign.change, flights=Flights(campaign.flights.in_flight),
                           pinning=Pinning(goals=campaign.pinning.goals)),
                  dict(pins), now, entries, remapped)


def work_out(on: Ground, observation: Observation, pool_up: PoolUp, bounds: Bounds,
             space: Mapping[int, Space] = {}, absent: Iterable[int] = (),
             tranches: Tranches = NO_TRANCHES) -> Goals:
    """The goals of all PGs of the pools with pins. Pure, for any thread.

    `pool_up`: the up sets of a pool's PGs, with OSDs that are down; `bounds`: of the balance;
    `space`: by OSD, no goal takes one over nearfull; `absent`: OSDs that are down and missing from
    some up sets, which makes the goals outdated once one is up.
    """
    campaign, pins = on.campaign, on.pins
    records: Dict[str, PinRecord] = {}
    balances: Dict[int, Balance] = {}
    early_pgids: List[str] = []
    led_pgs = 0
    room = Room(space, observation.osdmap.nearfull_ratio)
    room.add_arrivals(observation.osdmap, observation.placement, observation.shard_bytes)
    # A pool may have 1,000,000 PGs: tranches consider only these.
    moving_by_pool = _by_pool((*pins, *campaign.ahead))
    for pool_id in pools_of(pins, observation.osdmap):
        ups, pool = pool_up(pool_id), observation.osdmap.pools[pool_id]
        is_settled = campaign.change is not None and pool_id in campaign.change.settled_pools
        balanced = campaign.target == 'balanced' and is_balanced(
            pool, observation.crush, observation.balancing)
        if not (is_settled or balanced or tranches.ahead is not None):
            records.update(_crush_goals(campaign, pins, observation, pool))
            continue
        if not (is_settled or balanced):
            ups = {pgid: ups[pgid] for pgid in moving_by_pool[pool_id] if pgid in ups}
        pool_goals = _PoolGoals(campaign, pins, observation, pool, ups, tranches)
        if is_settled:
            pool_goals.stay()  # its PGs are in place once the change is in force
            records.update(pool_goals.records())
            continue
        if balanced:
            shard_bytes = observation.shard_bytes(pool)
            balances[pool_id] = pool_goals.balanced(bounds, room.of_pool(shard_bytes))
            _use_room(room, balances[pool_id], shard_bytes)
        else:
            pool_goals.follow_crush()
        records.update(pool_goals.records())
        early_pgids += pool_goals.early(records)
        led_pgs += pool_goals.led_ahead()
    # At most `tranches.upmaps` PGs may be led early by an upmap. The others move to where CRUSH
    # places them now, and again with a later tranche.
    for pgid in early_pgids[max(0, tranches.upmaps - led_pgs):]:
        records[pgid] = replace(records[pgid], goal=records[pgid].before)
    dropped = frozenset(pgid for pgid, pin in pins.items()
                        if moves_for_balance(pin) and pgid not in campaign.flights.in_flight
                        and pgid not in records)
    mark = GoalsMark(campaign.pinning.goals.number + 1,
                     replace(on.basis, absent=frozenset(absent)))
    return Goals({pgid: pin for pgid, pin in records.items() if pins.get(pgid) != pin}, dropped,
                 mark, balances)


def _use_room(room: Room, planned: Balance, shard_bytes: int) -> None:
    """Take what the balance of one pool adds to OSDs from the `room` of the next pools."""
    for osd in planned.before.keys() | planned.after.keys():
        room.add(osd, shard_bytes * (planned.after.get(osd, 0) - planned.before.get(osd, 0)))


def _crush_goals(campaign: Campaign, pins: Mapping[str, PinRecord], observation: Observation,
                 pool: Pool) -> Dict[str, PinRecord]:
    """The pins of a pool that is not balanced, with goals: a release restores the entry from before
    the campaign, so PGs end where CRUSH places them. PGs that move already are not among them, nor
    are those that were to move for a balance alone."""
    return {pgid: replace(pin, goal=pin.before) for pgid, pin in pins.items()
            if pool_of(pgid) == pool.id and not moves_for_balance(pin)
            and pgid not in campaign.flights.in_flight and pgid not in observation.osdmap.pg_temp}


def _by_pool(pgids: Iterable[str]) -> Dict[int, List[str]]:
    pgids_by_pool: Dict[int, List[str]] = {}
    for pgid in pgids:
        pgids_by_pool.setdefault(pool_of(pgid), []).append(pgid)
    return pgids_by_pool


def pools_of(pins: Iterable[str], osdmap: OsdMap) -> List[int]:
    """Pools that exist and have pins."""
    return sorted({pool_of(pgid) for pgid in pins} & set(osdmap.pools))


def moves_for_balance(pin: PinRecord) -> bool:
    """Whether CRUSH did not remap the PG, which only moves for the balance."""
    return pin.before == pin.entry


def without_goals(pins: Mapping[str, PinRecord]) -> Dict[str, PinRecord]:
    """The records that have a goal, with the goal removed."""
    return {pgid: replace(pin, goal=None) for pgid, pin in pins.items() if pin.goal is not None}


def event(goals: Goals, pins: Mapping[str, PinRecord]) -> Event:
    """The event on new goals. `pins`: all, with these goals."""
    moving = sum(1 for pin in pins.values() if pin.goal is not None and not pin.stays)
    worst = max((result.deviation for result in goals.balances.values()), default=0.0)
    limits = {result.limit for result in goals.balances.values()}
    # Without one, all pools are where the change has led them.
    balance = 'then every OSD has its share of %s to within %.2f PGs%s' % (
        plural(len(goals.balances), 'pool'), worst, ''.join(
            ', limited by ' + limit.text for limit in BalanceLimit if limit in limits)) \
        if goals.balances else ''
    return Event('plan', '%s will move, %s will stay as upmaps' % (
        pgs(moving), plural(sum(pin.stays for pin in pins.values()), 'pin')), balance)


class _PoolGoals:
    """The goals of the PGs of one pool: `stay`, `follow_crush` or `balanced` decides on them, and
    `records` returns the pins with them."""

    def __init__(self, campaign: Campaign, pins: Mapping[str, PinRecord], observation: Observation,
                 pool: Pool, ups: Mapping[str, OsdSet], tranches: Tranches) -> None:
        self._pins, self._osdmap, self._crush = pins, observation.osdmap, observation.crush
        self._pool, self._ups, self._tranches = pool, ups, tranches
        ahead, before = tranches.ahead, tranches.before
        self._out = observation.osdmap.out
        #: PGs in flight, or moving without perfguard. They count on their future OSDs.
        self._moving = {*campaign.flights.in_flight, *observation.osdmap.pg_temp}
        self._raw = {pgid: self._raw_of(pgid, up) for pgid, up in ups.items()}
        #: Where CRUSH places PGs at the end of the change.
        self._raw_at_end = self._raw if ahead is None else {**self._raw, **ahead.raws(ups)}
        #: Where it placed them before the change; None: this is its first tranche, or not known.
        self._raw_before = None if before is None else before.raws(ups)
        #: PGs that an earlier tranche has led, by an upmap, to where CRUSH places them at the end.
        self._led = campaign.ahead
        #: The new sets of the PGs that move, and OSDs that are being emptied.
        self._finals: Dict[str, OsdSet] = {}
        self._emptied: FrozenSet[int] = frozenset()

    def stay(self) -> None:
        """Leave the PGs where they are, except those on OSDs that others empty meanwhile."""
        self._emptied = self._crush.light_osds

    def follow_crush(self) -> None:
        """Place PGs where CRUSH leads them once all tranches are in force."""
        for pgid, pin in self._pins.items():
            raw_at_end = self._raw_at_end.get(pgid)
            if raw_at_end is not None:
                self._finals[pgid] = apply_entry(raw_at_end, pin.before, self._out)

    def balanced(self, bounds: Bounds, room: PoolRoom) -> Balance:
        """Place PGs so that each OSD has its share, instead of what CRUSH gives it. Returns the
        result for the pool."""
        ahead = self._tranches.ahead
        crush = self._crush if ahead is None else ahead.crush
        result = balance(self._pool, [
            PlacedPg(pgid, up, self._raw_at_end[pgid], self._may_move(pgid))
            for pgid, up in self._ups.items()], crush, self._osdmap.osds,
             bounds.limit(self._crush_shards()), bounds.deviation, room)
        self._finals = dict(result.finals)
        self._emptied = frozenset(
            osd for osd, ideal in result.targets.ideal.items() if ideal == 0.0)
        return result

    def _may_move(self, pgid: str) -> bool:
        """Whether the balance may move the PG: not if it moves already, is about to be merged, or
        has moved to its goal with an earlier tranche, nor if it has an upmap of others and the
        change does not touch it."""
        return (pgid not in self._moving and merge_reason(self._pool, pgid) is None
                and (pgid in self._pins or not self._osdmap.entry(pgid))
                and not self._has_moved(pgid))

    def _has_moved(self, pgid: str) -> bool:
        """Whether the PG has moved with an earlier tranche: it has an upmap for that, or is not
        where CRUSH placed it without any."""
        if self._raw_before is None or pgid in self._led:
            return pgid in self._led
        pin, up, raw_before = self._pins.get(pgid), self._ups[pgid], self._raw_before.get(pgid)
        # The pin itself shows nothing: the upmaps from before it do.
        entries = (self._osdmap.entry(pgid), None) if pin is None else (pin.before, pin.was)
        upmaps = [entry for entry in entries if entry]
        if upmaps:
            return any(map(self._touches, upmaps))
        return raw_before is not None and not self._is_same(up, raw_before)

    def _crush_shards(self) -> int:
        """How many shards move if every pin is released to its earlier entry, with all tranches:
        CRUSH moves these anyway, and max_extra_movement is a share of them."""
        shards = 0
        for pgid, up in self._ups.items():
            entry, raw_at_end = self._entry_before(pgid), self._raw_at_end[pgid]
            if entry is None or raw_at_end is None or pgid in self._moving:
                continue
            final = apply_entry(raw_at_end, entry, self._out)
            shards += sum(old != new for old, new in zip(up, final)) if self._pool.erasure \
                else len(set(final) - set(up))
        return shards

    def _entry_before(self, pgid: str) -> Optional[UpmapEntry]:
        """The entry that a release restores; None: CRUSH does not move the PG."""
        pin = self._pins.get(pgid)
        if pin is None:
            return None if self._tranches.ahead is None else self._osdmap.entry(pgid)
        return None if moves_for_balance(pin) else pin.before

    def _raw_of(self, pgid: str, up: OsdSet) -> Optional[OsdSet]:
        """Where CRUSH places the PG now; None: not known, or too few OSDs."""
        entry = self._osdmap.entry(pgid)
        raw = raw_from_up(up, entry, self._out)
        if raw is None and pgid in self._pins and self._pins[pgid].entry == entry:
            raw = self._pins[pgid].raw
        # No pair can fill a hole, and the place of an OSD that is down is not empty.
        return raw if raw is not None and self._pool.is_complete(raw) else None

    def records(self) -> Dict[str, PinRecord]:
        """The pins of the pool with their goals, and new ones, for a release, of other PGs that the
        balance moves. PGs that move already are not among them."""
        records: Dict[str, PinRecord] = {}
        for pgid in (*self._finals, *(set(self._pins) - set(self._finals))):
            if pgid not in self._ups or pgid in self._moving:
                continue
            pin = self._pins.get(pgid)
            if pin is None and self._tranches.ahead is not None:
                continue  # without a pin, it moves with a later tranche
            goal = self._goal(pgid)
            if pin is not None and goal == pin.entry and self._must_leave(pgid):
                goal = pin.before
            # Pins for the balance alone are dropped if the PG is to stay.
            if pin is not None and not (moves_for_balance(pin) and goal == pin.entry):
                records[pgid] = replace(pin, goal=goal)
            elif pin is None and goal != self._osdmap.entry(pgid):
                entry = self._osdmap.entry(pgid)
                raw = None if entry.vector is None else self._raw[pgid]
                records[pgid] = PinRecord(entry, entry, raw, goal)
        return records

    def early(self, records: Mapping[str, PinRecord]) -> List[str]:
        """PGs whose goal requires an upmap only until a later tranche is in force, which places
        them there. `records`: those of this pool, and perhaps of others."""
        if self._tranches.ahead is None:
            return []
        return [pgid for pgid, pin in records.items() if pgid in self._ups
                and pin.goal not in (None, pin.before)
                and self._is_same(self._finals.get(pgid, self._ups[pgid]), self._raw_at_end[pgid])]

    def led_ahead(self) -> int:
        """How many PGs were led by an upmap, with this or an earlier tranche, to where CRUSH places
        them only at the end of the change."""
        if self._tranches.ahead is None:
            return 0
        return sum(1 for pgid, up in self._ups.items()
                   if pgid in self._led and pgid not in self._pins
                   and self._osdmap.entry(pgid) and self._is_same(up, self._raw_at_end[pgid]))

    def _touches(self, entry: UpmapEntry) -> bool:
        """Whether an upmap is about OSDs of the change."""
        return not self._tranches.osds.isdisjoint(
            (*entry.targets, *(source for source, _ in entry.items)))

    def _is_same(self, a: OsdSet, b: Optional[OsdSet]) -> bool:
        return b is not None and (
            a == b if self._pool.erasure else set(a) == set(b))

    def _must_leave(self, pgid: str) -> bool:
        """Whether the PG is on an OSD that is being emptied."""
        return not self._emptied.isdisjoint(self._ups[pgid])

    def _goal(self, pgid: str) -> UpmapEntry:
        """The entry for the PG's final set; the present one if the mons would not keep that. If it
        is not known where CRUSH places the PG: the one from before the campaign, or the present one
        of a PG without a pin."""
        pool, up, raw = self._pool, self._ups[pgid], self._raw[pgid]
        present = self._osdmap.entry(pgid)
        if raw is None:
            # It may be on a drained OSD, so its pin is removed.
            return self._pins[pgid].before if pgid in self._pins else present
        final = self._finals.get(pgid, up)
        if final == up:
            entry = without_vector(pool, raw, up, present, self._out)
        else:
            pin = plan_pin(pool, up, final, present, self._osdmap.osds, self._crush, raw=raw,
                           out=self._out)
            entry = present if isinstance(pin, Unpinnable) else pin.entry
        # The final set is legal: the planner of the pin, or the mon that keeps it, has checked it.
        committed = after_commit(raw, entry, pool, self._osdmap.osds, None, pgid, self._out)
        return entry if committed == entry else present


@dataclass(frozen=True)
class Balanced:
    """Sums over pools."""
    moves: Tuple[Move, ...] = ()
    #: Shards that move although CRUSH leaves them where they are, for the balance alone.
    extra: int = 0
    #: Shards that may move in total (max_extra_movement), besides those that leave drained OSDs.
    limit: int = 0
    #: Pins that stay as upmaps.
    kept: int = 0
    #: PGs of a pool by which an OSD differs from its share at the end, at most; None: no pool is
    #: balanced.
    deviation: Optional[float] = None
    #: What keeps OSDs further from their share than target_deviation, in the order of BalanceLimit.
    limits: Tuple[BalanceLimit, ...] = ()
    bounds: Bounds = Bounds(1.0, 0.0)

    def plus(self, other: 'Balanced') -> 'Balanced':
        deviations = [part.deviation for part in (self, other) if part.deviation is not None]
        return Balanced((*self.moves, *other.moves), self.extra + other.extra,
                        self.limit + other.limit, self.kept + other.kept,
                        max(deviations, default=None),
                        tuple(limit for limit in BalanceLimit
                              if limit in (*self.limits, *other.limits)), self.bounds)

    def as_json(self) -> Json:
        moves = movement_of(self.moves)
        return {'pgs': moves.pgs, 'shards': moves.shards, 'bytes': moves.bytes,
                'primaries_moving': moves.primaries_moving, 'extra_shards': self.extra,
                'limit_shards': self.limit, 'kept': self.kept,
                'deviation': self.deviation, 'target_deviation': self.bounds.deviation,
                'max_extra_movement': self.bounds.extra,
                'limited': BalanceLimit.MOVEMENT in self.limits,
                'limits': [limit.value for limit in self.limits]}


def preview_balance(planned: Planned, future: Future, observation: Observation, bounds: Bounds,
                    space: Mapping[int, Space], settled_pools: Collection[int]) -> Balanced:
    """The end state of the pools with pins, as a preview shows it before a change is made.
    `planned`: the pins; `future`: the mapping of all PGs of these pools with the change; `bounds`:
    of the balance; `space`: by OSD; `settled_pools`: those whose pins become upmaps, since their
    PGs are in place once the change is in force."""
    pgs_by_pool = future.by_pool()
    balanced = Balanced(bounds=bounds)
    room = Room(space, observation.osdmap.nearfull_ratio)
    for pool_id in pools_of(planned.pins, observation.osdmap):
        pool, pgs = observation.osdmap.pools[pool_id], pgs_by_pool.get(pool_id, {})
        moves = tuple(move for pgid, move in planned.moves.items() if pool_of(pgid) == pool_id)
        limit = bounds.limit(sum(len(move.targets) for move in moves))
        if pool_id in settled_pools:
            balanced = balanced.plus(Balanced(
                kept=sum(pool_of(pgid) == pool_id for pgid in planned.pins)))
        elif is_balanced(pool, future.crush, observation.balancing):
            balanced = balanced.plus(_balanced(pool, pgs, planned, future, observation, bounds,
                                               limit, room))
        else:
            balanced = balanced.plus(Balanced(moves, limit=limit))
    return balanced


def _balanced(pool: Pool, pgs: Mapping[str, FuturePg], planned: Planned, future: Future,
              observation: Observation, bounds: Bounds, limit: int, room: Room) -> Balanced:
    """The balanced end state of one pool. `pgs`: its PGs; `limit`: how many shards may move; `room`
    has less afterwards, for the next pools."""
    shard_bytes = observation.shard_bytes(pool)
    result = balance(pool, [_placed(pool, pgid, pg, planned, observation)
                            for pgid, pg in pgs.items()], future.crush, observation.osdmap.osds,
                     limit, bounds.deviation, room.of_pool(shard_bytes))
    _use_room(room, result, shard_bytes)
    finals = result.finals
    pool_bytes = observation.signals.pool_bytes.get(pool.id, 0)
    moves = tuple(move_between(pgid, pool, pgs[pgid].acting, final, pool_bytes)
                  for pgid, final in finals.items())
    extra = sum(_extra(pool, pgs[pgid], final) for pgid, final in finals.items())
    staying = sum(1 for pgid in planned.pins if pool_of(pgid) == pool.id and pgid not in finals)
    return Balanced(moves, extra, limit, staying, result.deviation,
                    () if result.limit is None else (result.limit,))


def _extra(pool: Pool, pg: FuturePg, final: OsdSet) -> int:
    """How many shards of a PG leave OSDs on which CRUSH would leave them. `final`: the PG's new
    set."""
    if pool.erasure:
        return sum(new != old == by_crush for old, by_crush, new in zip(pg.acting, pg.raw, final))
    return sum(osd in pg.raw and osd not in final for osd in pg.acting)


def _placed(pool: Pool, pgid: str, pg: FuturePg, planned: Planned,
            observation: Observation) -> PlacedPg:
    """A PG as `balance` takes it: where its data is, where CRUSH places it, and whether `balance`
    may move it."""
    if pgid in planned.unpinnable:
        # The change remaps it at once, so it counts where CRUSH places it.
        return PlacedPg(pgid, here=pg.raw, raw=pg.raw, may_move=False)
    is_moving = pgid in observation.osdmap.pg_temp
    mons_drop_upmaps = merge_reason(pool, pgid) is not None
    # An upmap on a PG that the change does not touch is not perfguard's.
    has_foreign_upmap = pgid not in planned.pins and bool(observation.osdmap.entry(pgid))
    return PlacedPg(pgid, here=pg.acting, raw=pg.raw,
                    may_move=not (is_moving or mons_drop_upmaps or has_foreign_upmap))
