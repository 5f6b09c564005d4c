# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the release of one PG would meet now: for answers, not for decisions."""
from dataclasses import dataclass, replace
from typing import FrozenSet, Optional, Tuple

from ..cluster.types import pool_of
from ..errors import Reason
from . import osd_limits
from .moves import Move, Obstacle, load_of
from .phases import stops_of
from .releasing import concerns, domains, full_osds
from .stalls import affords
from .throttle import caps, limit
from .turn import Turn


@dataclass(frozen=True)
class Gate:
    #: Stop conditions that concern the PG's OSDs or its pool.
    stops: Tuple[Reason, ...] = ()
    #: Caps that it would exceed.
    obstacles: Tuple[Obstacle, ...] = ()
    #: Targets that are too full or down.
    full: FrozenSet[int] = frozenset()
    down: FrozenSet[int] = frozenset()
    #: The pool has a release left in its budget of interval stalls.
    affordable: bool = True
    #: Why no more PGs may be in flight than now, if the throttle says so.
    pace: Optional[Reason] = None


def gate(turn: Turn, move: Move) -> Gate:
    """As releasing.release_more would find it in this turn; nothing is decided."""
    osds, campaign = turn.seen.osdmap.osds, turn.campaign
    down = frozenset(osd for osd in move.targets if osd not in osds or not osds[osd].up)
    load = load_of(campaign.in_flight, turn.seen.crush.host_of, domains(turn))
    allowed, most = limit(campaign.pace, turn.options), caps(turn.options)
    throttled = load.pgs >= allowed.caps.pgs < most.pgs
    return Gate(
        stops=tuple(stop.reason for stop in (
            *stops_of(turn), *osd_limits.stops(campaign.pace.osd_holds, turn.now))
            if concerns(stop, move)),
        obstacles=tuple(load.obstacles(move, replace(allowed.caps, pgs=most.pgs))),
        full=frozenset(move.targets) & full_osds(turn) - down, down=down,
        affordable=affords(campaign.stalls, pool_of(move.pgid)),
        pace=allowed.reason if throttled else None)
