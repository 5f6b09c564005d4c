# SPDX-License-Identifier: LGPL-2.1-or-later
"""Where releases lead: the moves of PGs that will be released, or are remapped without a campaign.

They are kept from turn to turn, since each pin costs time.
"""
from typing import AbstractSet, Dict, Iterable, Mapping, Optional, Sequence, Tuple

from ..cluster.types import OsdMap, OsdSet, Pool, pool_of
from ..observation import Observation
from ..options import Options
from ..upmap.pins import DROPPED_BY_MON, Pin, Unpinnable, plan_partial_pin
from .campaign import NO_CAMPAIGN, Campaign
from .moves import Move, MoveIndex, Movement, move_between, movement_of, release_move
from .pin_index import PinIndex
from .throttle import caps
from .types import PinRecord

#: Maximum number of remapped PGs without a campaign that are previewed, as this is costly.
PREVIEW_PGS = 5000
#: Interval of computing the movement with more pins than PREVIEW_PGS.
PLAN_SECONDS = 10.0


class ReleaseMoves:
    """The moves that the releases of pins cause, kept up to date. Times are seconds since the
    epoch."""

    def __init__(self) -> None:
        #: The moves of releases of pins in force.
        self.moves = MoveIndex()
        #: PGs whose moves are to be computed, once their pins are in force.
        self._to_compute: Dict[str, None] = {}
        #: PGs whose pins are newer than the last change of CRUSH.
        self._new_pins: Dict[str, None] = {}
        #: PG -> its up set before the last change of placement, until its move is computed again;
        #: None: not known.
        self._up_before: Dict[str, Optional[OsdSet]] = {}
        #: PG -> its Move.displaced.
        self._displaced: Dict[str, float] = {}
        #: The moves of PGs that are to be released, or are remapped without a campaign.
        self.movement: Movement = movement_of(())
        #: Number of remapped PGs that are neither pinned nor released by the campaign, and have a
        #: place to move to, without those of an evacuation and those that recover.
        self.moving_count = 0
        #: Number of PGs that a campaign would pin: these without `refused` and those that the open
        #: campaign has found to be unpinnable, and PGs of which a copy or shard is lacking and
        #: another one can be kept where it is.
        self.pinnable_count = 0
        #: PG counted in `moving_count` -> why no campaign would pin it: the mons cancel upmaps
        #: under its rule.
        self.refused: Mapping[str, Unpinnable] = {}
        #: What the moves depend on: OSD -> reweight below 1; pool -> _placing.
        self._weights: Optional[Mapping[int, float]] = None
        self._pools: Dict[int, Tuple[int, ...]] = {}
        #: OSDs that are down, which up sets lack, and the epoch of the OSDMap that shows them.
        self._absent: AbstractSet[int] = frozenset()
        self._absent_epoch = -1
        #: CrushRules.identity for which the moves were computed.
        self._crush = 0
        #: OSDMap epoch of the movement, and when it may be computed again with many pins.
        self._epoch = -1
        self._due = 0.0

    def update_moves(self, pins: PinIndex, observation: Observation, pinning: bool = False) -> None:
        """Compute the moves of new pins, those of a pool whose placement has changed, or those of
        all pins if CRUSH or the weights of OSDs have changed; and those that were computed while
        OSDs were down, once others are down or none.

        `pinning`: each PG that a change of CRUSH remaps gets another pin, and the moves of the
        other PGs stay the same. Those of the last pins are computed again: the mons may have
        committed these pins before the change.
        """
        osdmap = observation.osdmap
        weights = {osd.id: osd.reweight for osd in osdmap.osds.values() if osd.reweight < 1.0}
        crush_changed = observation.crush.identity != self._crush
        self._crush = observation.crush.identity
        if weights != self._weights or crush_changed and not pinning:
            # Also in the first turn of an mgr, which does not know the earlier up sets.
            self._note_up_sets(pins)
            self._weights = weights
            self.moves.clear()
            self._to_compute = dict.fromkeys(pins)
        elif crush_changed:
            self.forget(self._new_pins)
        if crush_changed:
            self._new_pins = {}
        self._forget_changed_pools(pins, osdmap)
        self._forget_unsure(osdmap)
        changed_pins = pins.take_changed()
        self._new_pins.update(dict.fromkeys(changed_pins))
        self.forget(changed_pins)
        out = osdmap.out if self._to_compute else frozenset()
        for pgid in list(self._to_compute):
            pin = pins.get(pgid)
            if pin is not None and not pin.stays:
                move = _move_of(pgid, pin, observation, out)
                if move is None:
                    continue  # tried again in the next turn
                displaced = self._displaced_since(move, observation.now)
                self.moves.put(pgid, move._replace(since=observation.now, displaced=displaced))
            elif pin is None:
                self._up_before.pop(pgid, None)
                self._displaced.pop(pgid, None)
            del self._to_compute[pgid]

    def _note_up_sets(self, pgids: Iterable[str]) -> None:
        """Note the up sets of these PGs, which may change now."""
        for pgid in pgids:
            move = self.moves.get(pgid)
            self._up_before[pgid] = self._up_before.get(pgid) if move is None else move.here

    def _displaced_since(self, move: Move, now: float) -> float:
        """Move.displaced of a move that was computed again."""
        if move.pgid in self._up_before and self._up_before.pop(move.pgid) != move.here:
            self._displaced[move.pgid] = now
        return self._displaced.get(move.pgid, 0.0)

    def _forget_changed_pools(self, pins: PinIndex, osdmap: OsdMap) -> None:
        """Forget the moves of pools whose PGs are placed in another way now. Pools without pins do
        not matter: they may be merging PGs all the time."""
        pools = {pool_id: _placing(osdmap.pools[pool_id])
                 for pool_id in pins.pools if pool_id in osdmap.pools}
        for pool_id, placing in pools.items():
            if self._pools.get(pool_id, placing) != placing:
                self._note_up_sets(pins.of_pool(pool_id))
                self.forget(pins.of_pool(pool_id))
        self._pools = pools

    def _forget_unsure(self, osdmap: OsdMap) -> None:
        """Forget the moves of PGs that lack an OSD, once other OSDs are down: where their releases
        lead was not known, or only in part."""
        if osdmap.epoch == self._absent_epoch:
            return
        absent, self._absent_epoch = osdmap.absent, osdmap.epoch
        if absent != self._absent:
            self._absent = absent
            self.forget([pgid for pgid, move in self.moves.items() if not move.targets_known
                         or not _is_complete(osdmap.pools.get(pool_of(pgid)), move.here)])

    def forget(self, pgids: Iterable[str]) -> None:
        """Have the moves of these PGs computed again."""
        for pgid in sorted(pgids):
            self.moves.drop(pgid)
            self._to_compute[pgid] = None

    def outdate_movement(self) -> None:
        """Have `update_movement` compute the movement again, as the pins lead elsewhere."""
        self._epoch, self._due = -1, 0.0

    def update_movement(self, campaign: Campaign, pins: Mapping[str, PinRecord],
                        observation: Observation, options: Options) -> None:
        """Compute the movement if the OSDMap has changed; with many pins only once in
        PLAN_SECONDS, unless the clock was set back."""
        if (observation.osdmap.epoch == self._epoch
                or (len(self.moves) > PREVIEW_PGS
                    and 0.0 < self._due - observation.now <= PLAN_SECONDS)):
            return
        osdmap = observation.osdmap
        self._epoch, self._due = osdmap.epoch, observation.now + PLAN_SECONDS
        remapped = [pgid for pgid in osdmap.pg_temp
                    if pgid not in pins and pgid not in campaign.flights.in_flight]
        unpinned_moves = _moves_of_remapped(remapped, observation) \
            if len(remapped) <= PREVIEW_PGS else {}
        moving = [pgid for pgid in remapped if pgid not in observation.evacuation
                  and _is_complete(osdmap.pools.get(pool_of(pgid)), osdmap.pg_temp[pgid])
                  and (pgid not in unpinned_moves or unpinned_moves[pgid].targets)]
        self.moving_count = len(moving)
        without_upmaps = {pool.id for pool in osdmap.pools.values()
                          if not observation.crush.keeps_upmaps(pool.crush_rule, pool.size)}
        self.refused = {pgid: DROPPED_BY_MON for pgid in moving if pool_of(pgid) in without_upmaps}
        unpinnable = self.refused.keys() | (
            campaign.pinning.unpinnable.keys() if campaign.open else set())
        self.pinnable_count = len(set(moving) - unpinnable) + sum(
            1 for pgid, move in unpinned_moves.items() if pgid not in observation.evacuation
            and not _is_complete(osdmap.pools.get(pool_of(pgid)), osdmap.pg_temp[pgid])
            and _is_pinned_in_part(pgid, move, observation))
        self.movement = preview(campaign, self.moves, unpinned_moves, options) \
            if campaign.active else preview(NO_CAMPAIGN, MoveIndex(), unpinned_moves, options)


def preview(campaign: Campaign, moves: MoveIndex, unpinned_moves: Mapping[str, Move],
            options: Options) -> Movement:
    """The movement of the remaining `moves`, without PGs in flight, and of `unpinned_moves`."""
    all_caps = caps(options)
    flights = campaign.flights.in_flight
    sums = moves.sums(without={*flights, *unpinned_moves})
    for pgid, move in unpinned_moves.items():
        if pgid not in flights:
            sums.count(move)
    return sums.movement(all_caps.pgs, all_caps.target, campaign.progress.rate)


def _placing(pool: Pool) -> Tuple[int, ...]:
    """What the placement of its PGs depends on, besides CRUSH and the OSDs."""
    return pool.pg_num, pool.pg_num_pending, pool.pgp_num, pool.size, pool.crush_rule


def _is_complete(pool: Optional[Pool], osds: OsdSet) -> bool:
    return pool is not None and pool.is_complete(osds)


def _is_pinned_in_part(pgid: str, move: Move, observation: Observation) -> bool:
    """Whether a pin keeps a copy or shard of a PG that lacks another one where it is."""
    if not move.sources:
        return False  # none is misplaced, as of nearly all PGs that recover
    osdmap, place = observation.osdmap, observation.placement(pgid)
    if place is None:
        return False
    pin = plan_partial_pin(osdmap.pools[pool_of(pgid)], place.up, place.acting, osdmap.entry(pgid),
                           osdmap.osds, observation.crush, osdmap.out)
    return isinstance(pin, Pin) and pin.changed


def _move_of(pgid: str, pin: PinRecord, observation: Observation,
             out: AbstractSet[int]) -> Optional[Move]:
    """The move of a release; None: the pin is not in force, or the PG does not exist."""
    if observation.osdmap.entry(pgid) != pin.entry:
        return None
    place = observation.placement(pgid)
    if place is None:
        return None
    return release_move(pgid, observation.osdmap, place.up, pin, out,
                        observation.signals.pool_bytes.get(pool_of(pgid), 0))


def _moves_of_remapped(pgids: Sequence[str], observation: Observation) -> Dict[str, Move]:
    """The moves that PGs without a pin are making or will make."""
    moves: Dict[str, Move] = {}
    for pgid in pgids:
        place = observation.placement(pgid)
        if place is not None:
            pool = observation.osdmap.pools[pool_of(pgid)]
            moves[pgid] = move_between(pgid, pool, place.acting, place.up,
                                       observation.signals.pool_bytes.get(pool.id, 0))
    return moves
