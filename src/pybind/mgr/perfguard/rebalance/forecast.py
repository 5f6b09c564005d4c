# SPDX-License-Identifier: LGPL-2.1-or-later
"""Where releases lead, kept from turn to turn, since working it out costs time by the pin."""
from dataclasses import replace
from typing import AbstractSet, Any, Dict, Iterable, Mapping, Optional, Sequence, Tuple

from ..cluster.types import pool_of
from ..observation import Observation
from ..options import Options
from ..upmap.semantics import out_osds
from . import report
from .moves import Move, Plan, move_between, plan, release_move
from .types import Campaign, PinRecord

#: More remapped PGs than this that nobody holds are not previewed: it costs too much.
PREVIEW_PGS = 5000
#: With more pins than PREVIEW_PGS the plan is worked out anew this often.
PLAN_SECONDS = 10.0


class Forecast:
    def __init__(self) -> None:
        #: What the release of each pin in force would move.
        self.moves: Dict[str, Move] = {}
        #: All that is still to be released, or is remapped and held by nobody.
        self.plan: Plan = plan((), 1, 1, None)
        #: Remapped PGs that are neither pinned nor released by the campaign.
        self.unheld = 0
        self._key: Optional[Tuple[Any, ...]] = None
        self._epoch = -1
        self._due = 0.0

    def update_moves(self, pins: Mapping[str, PinRecord], seen: Observation,
                     crush_version: int) -> None:
        """Work out the moves of new pins; those of all pins where CRUSH or the pools changed."""
        osdmap = seen.osdmap
        out = out_osds(osdmap.osds)
        key = (crush_version, out, tuple((pool.id, pool.pg_num, pool.pg_num_pending)
                                         for pool in osdmap.pools.values()))
        if key != self._key:
            self.moves = {}
            self._key = key
        self.forget([pgid for pgid in self.moves if pgid not in pins])
        for pgid, pin in pins.items():
            if pgid not in self.moves and osdmap.entry(pgid) == pin.entry and not pin.stays:
                move = _move_of(pgid, pin, seen, out)
                if move is not None:
                    move = replace(move, since=seen.now)
                    self.moves[pgid] = move

    def forget(self, pgids: Iterable[str]) -> None:
        for pgid in pgids:
            self.moves.pop(pgid, None)

    def rework(self, pgids: Iterable[str]) -> None:
        """Releases of these PGs lead elsewhere now, and with them the plan."""
        self.forget(pgids)
        self._epoch, self._due = -1, 0.0

    def update_plan(self, campaign: Optional[Campaign], pins: Mapping[str, PinRecord],
                    seen: Observation, options: Options) -> None:
        """What is left to move; only where the OSDMap has changed."""
        if (seen.osdmap.epoch == self._epoch
                or (len(self.moves) > PREVIEW_PGS and seen.now < self._due)):
            return
        self._epoch, self._due = seen.osdmap.epoch, seen.now + PLAN_SECONDS
        active = campaign is not None and campaign.active
        waiting: Mapping[str, Move] = self.moves if active else {}
        remapped = [pgid for pgid in seen.osdmap.pg_temp if pgid not in pins
                    and (campaign is None or pgid not in campaign.in_flight)]
        self.unheld = len(remapped)
        if len(remapped) <= PREVIEW_PGS:
            waiting = {**waiting, **_moves_of_remapped(remapped, seen)}
        self.plan = report.preview(campaign if active else None, waiting, options)


def _move_of(pgid: str, pin: PinRecord, seen: Observation,
             out: AbstractSet[int]) -> Optional[Move]:
    place = seen.placement(pgid)
    if place is None:
        return None
    pool = seen.osdmap.pools[pool_of(pgid)]
    return release_move(pgid, pool, place.up, pin, out,
                        seen.signals.pool_bytes.get(pool.id, 0))


def _moves_of_remapped(pgids: Sequence[str], seen: Observation) -> Dict[str, Move]:
    """The moves that PGs without a pin are making or will make."""
    found: Dict[str, Move] = {}
    for pgid in pgids:
        place = seen.placement(pgid)
        if place is not None:
            pool = seen.osdmap.pools[pool_of(pgid)]
            found[pgid] = move_between(pgid, pool, place.acting, place.up,
                                       seen.signals.pool_bytes.get(pool.id, 0))
    return found
