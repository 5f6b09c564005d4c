# SPDX-License-Identifier: LGPL-2.1-or-later
"""The limits of the campaign: now, by share of its time, and for one PG. Pure."""
from dataclasses import dataclass, replace
from typing import Dict, FrozenSet, List, Optional, Sequence, Tuple

from ..cluster.types import pool_of
from ..errors import Code, Reason
from ..rebalance import osd_limits
from ..rebalance.moves import Move, Obstacle
from ..rebalance.progress import shares
from ..rebalance.releasing import concerns, full_osds, present_load, receives, stops_of
from ..rebalance.stalls import affords
from ..rebalance.throttle import caps, limit
from ..rebalance.turn import Turn
from ..rebalance.types import Campaign
from .answer import Cause, passed_on

#: Minimum share, except for the current limit.
LEAST_SHARE = 0.001


def causes(campaign: Optional[Campaign], reasons: Sequence[Reason]) -> List[Cause]:
    """The current limit first, then earlier ones by share of time; never empty."""
    if campaign is None:
        return [passed_on(reason) for reason in reasons] or [
            Cause(Code.NO_CAMPAIGN, 'no campaign is active')]
    share, seconds = shares(campaign.limits), campaign.limits.seconds
    texts = _texts(reasons)
    now = campaign.limits.now if campaign.active else ''
    ordered = sorted(share, key=lambda code: (code != now, -share[code], code))
    found = [Cause(code, texts.get(code, _past(code)), {
        'now': code == now, 'seconds': round(seconds[code], 1)}, round(share[code], 4))
        for code in ordered if code == now or share[code] >= LEAST_SHARE]
    rest = [passed_on(reason, now=True) for reason in reasons if reason.code not in share]
    return found + rest or [Cause(Code.NO_CAMPAIGN, 'nothing has limited campaign %d yet'
                                  % campaign.id)]


def _texts(reasons: Sequence[Reason]) -> Dict[str, str]:
    """Texts by code; of several with the same code, the first."""
    found: Dict[str, str] = {}
    for reason in reasons:
        found.setdefault(reason.code, reason.text)
    return found


def _past(code: str) -> str:
    return _WORDS.get(code, 'it was limited by %s' % code)


#: Texts on codes that are not among the reasons of this turn.
_WORDS = {
    Code.REQUESTED: 'it waited for its first loop iteration',
    Code.AWAITS_CHANGE: 'it waited for the CRUSH change',
    Code.AWAITS_PIN: 'it waited for "rebalance pin"',
    Code.AWAITS_START: 'it waited for "rebalance start"',
    Code.UNPINNABLE: 'PGs could not be pinned',
    Code.SETTINGS: 'it waited for borrowed settings to take effect',
    Code.GIVES_WAY: 'it cleared norebalance so that degraded PGs could recover',
    Code.OUTLOOK: 'it computed where CRUSH would place the PGs',
    Code.CRUSH_SENT: 'it waited for the CRUSH change to show in the OSDMap',
    Code.UNPINNED: 'PGs were still to be pinned',
    Code.PINS_SENT: 'it waited for pins to show in the OSDMap',
    Code.PINNED: 'all PGs were pinned',
    Code.REPORTS: 'it waited for PGs to report',
    Code.NO_GOALS: 'the targets of pinned PGs were not computed yet',
    Code.UNCLEAN: 'it waited for PGs to become clean',
    Code.LAGGY: 'PGs were laggy',
    Code.LAGGY_LATELY: 'PGs had been laggy within the last three reports',
    Code.LEASES: 'PGs waited for read leases to expire',
    Code.INACTIVE: 'PGs were inactive',
    Code.DEGRADED: 'PGs were degraded',
    Code.SLOW_OPS: 'operations were slow',
    Code.SLOW_PING: 'heartbeats were slow',
    Code.MON_DOWN: 'mons were out of quorum',
    Code.SLOW_POOL: 'a pool was slower than its baseline',
    Code.MITIGATION: 'a mitigation was in force',
    Code.FOREIGN_FLAG: 'a flag that perfguard did not set stopped backfill',
    Code.BALANCER_ON: 'the balancer was on',
    Code.BAD_OPTIONS: 'module options were invalid',
    Code.CONFIRMING: 'it waited for a report to confirm that a stop condition had cleared',
    Code.OSDS_ARRIVING: 'it waited for further changes of CRUSH (auto_expand_settle)',
    Code.BACKFILL_TOOFULL: 'OSDs were too full for backfill',
    Code.FIRST_PACE: 'it had just begun to release',
    Code.NO_CLIENTS: 'clients were idle',
    Code.LATENCY_OK: 'client latency was below its limit',
    Code.OSD_LATENCY: 'read latency of single OSDs was above its limit',
    Code.NEW_BASELINE: 'a new baseline was learned',
    Code.NO_READINGS: 'there were no readings of client latency',
    Code.NO_BASELINE: 'there was no baseline yet',
    Code.FEW_OPS: 'there were too few client operations to judge latency',
    Code.TARGET_FULL: 'target OSDs were too full',
    Code.TARGET_DOWN: 'target OSDs were down',
    Code.CAP_BYTES: 'as many bytes as max_bytes_in_flight were in flight',
    Code.PG_LIMIT: 'target OSDs were at their limit of PGs (mon_max_pg_per_osd)',
    Code.OTHER: 'other reasons',
    Code.NO_LIMIT: 'nothing limited the releases',
    Code.IN_FLIGHT: 'it waited for the last PGs in flight',
    Code.CAP_PGS: 'as many PGs as max_pgs_in_flight were in flight',
    Code.CAP_BACKFILLS: 'OSDs, hosts or failure domains were at their limits (max_backfills_*)',
    Code.PAUSED: 'it was paused by the operator',
    Code.WINDOW_CLOSED: 'the time window (begin_time to end_time) was closed',
    Code.UNTRIMMED_MAPS: 'it waited for the mons to trim OSDMaps (max_untrimmed_osdmaps)',
    Code.LATENCY: 'client latency was above its limit',
    Code.HALTED: 'all movement was halted because of client latency',
    Code.STALL_SHARE: 'it waited between releases (stall_share)',
    Code.PEERING: 'it waited for PGs to peer',
    Code.BATCH: 'it waited for more PGs to release in the same OSDMap epochs',
}


# ---- one PG

@dataclass(frozen=True)
class Gate:
    """The obstacles to the release of one PG now: for answers, not for decisions."""
    #: Stop conditions that concern the PG's OSDs or its pool.
    stops: Tuple[Reason, ...] = ()
    #: Caps that it would exceed.
    obstacles: Tuple[Obstacle, ...] = ()
    #: Targets that are too full or down.
    full: FrozenSet[int] = frozenset()
    down: FrozenSet[int] = frozenset()
    #: Whether stall_share allows a release of the pool.
    affordable: bool = True
    #: Why no more PGs may be in flight than now, if the throttle says so.
    pace: Optional[Reason] = None


def gate(turn: Turn, move: Move) -> Gate:
    """The same checks as in releasing.release_more, without a decision."""
    osds, campaign = turn.seen.osdmap.osds, turn.campaign
    down = frozenset(osd for osd in move.targets if osd not in osds or not osds[osd].up)
    allowed, most = limit(campaign.pace, turn.options), caps(turn.options)
    load = present_load(turn, allowed.caps)
    throttled = load.pgs >= allowed.caps.pgs < most.pgs
    return Gate(
        stops=tuple(stop.reason for stop in (
            *stops_of(turn), *osd_limits.stops(campaign.pace.osd_holds, turn.now))
            if concerns(stop, move)),
        obstacles=tuple(load.obstacles(move, replace(
            allowed.caps, pgs=most.pgs, receives=receives(turn)))),
        full=frozenset(move.targets) & full_osds(turn) - down, down=down,
        affordable=affords(campaign.stalls, pool_of(move.pgid)),
        pace=allowed.reason if throttled else None)
