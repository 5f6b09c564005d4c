# SPDX-License-Identifier: LGPL-2.1-or-later
"""What holds releases: all of them, or those to some OSDs and pools."""
from dataclasses import replace
from typing import FrozenSet, List, Mapping, Optional

from ..cluster.types import NO_OSD, pool_of
from ..errors import Code, Reason
from ..observation import BALANCER
from ..watch.stop_conditions import OwnPg, Stop, is_muted, is_waived, stop_conditions
from . import osd_limits
from .holds import foreign_movement_flags
from .moves import Move, path_osds
from .turn import Turn

BALANCER_ON = Reason(Code.BALANCER_ON, 'the balancer is on and would change the pins; '
                     '"ceph balancer off" continues')


def stops_of(turn: Turn) -> List[Stop]:
    """What holds releases, but for what the operator has waived or muted."""
    seen = turn.seen
    stops = stop_conditions(seen.signals, seen.osd_counts, recovering(turn))
    known = {stop.reason.code for stop in stops} | {Code.SLOW_OPS}
    stops += [Stop(reason, _slow_osds(turn, reason)) for reason in seen.stops
              if reason.code not in known and not is_muted(reason, seen.signals)]
    stops = [stop for stop in stops if not is_waived(stop.reason, turn.campaign.acknowledged)]
    return stops + [Stop(reason) for reason in _against_us(turn)]


def _slow_osds(turn: Turn, reason: Reason) -> Optional[FrozenSet[int]]:
    """The single OSDs that make a pool slow, where clients of the other OSDs are within their
    limits; None: not known. An OSD that was slow while nothing moved there holds nothing."""
    pace, now = turn.campaign.pace, turn.now
    if reason.code == Code.SLOW_POOL and pace.code == Code.LATENCY_OK \
            and osd_limits.explains(pace.osd_holds, now, len(turn.seen.osdmap.osds)):
        return osd_limits.held_osds(pace.osd_holds, now)
    return None


def others_degraded(turn: Turn) -> bool:
    """Whether PGs are degraded that the campaign has not released, muted or not."""
    seen = turn.seen
    return any(stop.reason.code == Code.DEGRADED for stop in stop_conditions(
        replace(seen.signals, muted=frozenset()), seen.osd_counts, recovering(turn)))


def _against_us(turn: Turn) -> List[Reason]:
    """Settings of others under which no PG can be released; they cannot be waived."""
    stops: List[Reason] = []
    foreign = turn.seen.osdmap.flags - turn.seen.own_flags
    for flag in foreign_movement_flags(turn.campaign.holds, foreign):
        stops.append(Reason(Code.FOREIGN_FLAG, '%s is set, but not by perfguard; no data can move '
                            'until "ceph osd unset %s"' % (flag, flag)))
    if balancer_of_others(turn):
        stops.append(BALANCER_ON)
    return stops


def balancer_of_others(turn: Turn) -> bool:
    """Others have switched the balancer on during the campaign, and it is on, or not done yet."""
    settings = turn.seen.settings
    return BALANCER in turn.campaign.holds.given_up and (
        settings.balancer_active != 'false' or settings.balancer_busy)


def recovering(turn: Turn) -> List[OwnPg]:
    """PGs that may be degraded because they were released.

    The new OSD of a PG that holds little is brought up to date from the PG's log: the PG is never
    remapped, and degraded for a moment, which the reports show until after it has arrived.
    """
    seen, campaign = turn.seen, turn.campaign
    pgids = {*campaign.in_flight, *(change.pgid for change in campaign.stalls.changes)}
    own: List[OwnPg] = []
    for pgid in pgids - set(seen.osdmap.pg_temp) - {''}:
        place = seen.placement(pgid)
        if place is not None:
            own.append(OwnPg(pool_of(pgid), frozenset(place.acting) - {NO_OSD}))
    return own


def is_held(turn: Turn, move: Move) -> bool:
    """A stop condition concerns an OSD or the pool of the move."""
    return any(concerns(stop, move) for stop in turn.stops)


def concerns(stop: Stop, move: Move) -> bool:
    osds = (*path_osds(move),)
    if stop.reason.code == Code.OSD_LATENCY:
        # A PG that peers with it stalls its clients for longer, also where no data moves there.
        osds += move.staying
    return stop.concerns(osds, (pool_of(move.pgid),))


def held_moves(turn: Turn, loose: Mapping[str, Move]) -> List[Reason]:
    """The stop conditions of some OSDs and pools that hold every release between them, or one of
    the `loose` PGs: only norebalance holds those, and it holds everything."""
    if turn.moves and turn.stops and all(is_held(turn, move) for move in turn.moves.values()):
        return [stop.reason for stop in turn.stops]
    return [stop.reason for stop in turn.stops
            if any(concerns(stop, move) for move in loose.values())]
