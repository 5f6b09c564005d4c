# SPDX-License-Identifier: LGPL-2.1-or-later
"""The throttle's part of a turn: judge the last reading, before anything is released."""
from dataclasses import replace
from typing import List

from ..reasons import Code, Reason
from ..window import BadWindow, opens_in
from ..words import plural
from .clients import Path
from .holds import NOREBALANCE, PROPOSE_INTERVAL
from .types import Pace
from .releasing import flight_osds
from .requests import problems, window_of
from .stalls import credit, mean_stall_ms, measure, unsteady
from .throttle import decide
from .turn import Turn

#: For so long after a move its hosts are not what the load is judged by.
AFTERWARDS_SECONDS = 600.0


def set_pace(turn: Turn) -> None:
    """What may be in flight, and how many releases clients can bear."""
    campaign, clients, options = turn.campaign, turn.seen.clients, turn.options
    stalls = measure(campaign.stalls, clients)
    held = campaign.holds.mon.get(PROPOSE_INTERVAL)
    fast = held is not None and held.seen
    pace = replace(campaign.pace, used=max(campaign.pace.used, len(campaign.in_flight)))
    if pace.halted or NOREBALANCE not in turn.seen.osdmap.flags:
        # Otherwise nothing moves, and whatever clients feel is not its doing.
        pace = _burdened(turn, pace)
        path = _path(turn, pace) if clients.time != pace.decided else Path()
        pace = decide(pace, clients, unsteady(stalls, clients),
                      mean_stall_ms(stalls, options.stall_share, fast),
                      pace.used, options, _nothing_moves(turn), path)
        if pace.decided != campaign.pace.decided:
            pace = replace(pace, used=len(campaign.in_flight))
    stalls = credit(stalls, clients, turn.now, options.stall_share, fast)
    if pace.halted != campaign.pace.halted:
        turn.event('throttle', 'all movement is halted' if pace.halted
                   else 'movement continues', pace.why)
    turn.set(pace=pace, stalls=stalls)


def _burdened(turn: Turn, pace: Pace) -> Pace:
    """With the hosts that moves burden now: they delete PGs, and catch up, for a while after."""
    now = turn.now
    hosts = {host: since for host, since in pace.burdened.items()
             if 0.0 <= now - since < AFTERWARDS_SECONDS}
    hosts.update(dict.fromkeys((_host(turn, osd) for osd in flight_osds(turn)), now))
    return replace(pace, burdened=hosts, seen_since=pace.seen_since or now)


def _host(turn: Turn, osd: int) -> str:
    """The host of an OSD; where CRUSH has none for it, its own name."""
    return turn.seen.crush.host_of(osd) or 'osd.%d' % osd


def _path(turn: Turn, pace: Pace) -> Path:
    """The OSDs that PGs in flight burden, those of all hosts that moves burden or have burdened,
    and pools whose rules lead there. A new mgr does not know what moved before: all are near."""
    seen, osds = turn.seen, flight_osds(turn)
    if turn.now - pace.seen_since < AFTERWARDS_SECONDS:
        near = frozenset(seen.osdmap.osds)
    else:
        near = frozenset(osd for osd in seen.osdmap.osds if _host(turn, osd) in pace.burdened)
    rules = {pool.crush_rule for pool in seen.osdmap.pools.values()}
    leading = {rule for rule in rules
               if any(seen.crush.weight_of(rule, osd) > 0.0 for osd in osds)}
    return Path(osds, near | osds, frozenset(
        pool.id for pool in seen.osdmap.pools.values() if pool.crush_rule in leading))


def _nothing_moves(turn: Turn) -> bool:
    """The flag holds everything, or there is nothing to hold where others have cleared it."""
    osdmap = turn.seen.osdmap
    return NOREBALANCE in osdmap.flags or not (turn.campaign.in_flight or osdmap.pg_temp)


def too_much(turn: Turn) -> List[Reason]:
    """Why nothing may move at all, if clients feel even the last PG in flight."""
    pace = turn.campaign.pace
    return [Reason(Code.HALTED, 'all movement is halted until client latency is '
                   'back within its limit: %s' % pace.why)] if pace.halted else []


def out_of_hours(turn: Turn) -> List[Reason]:
    """Why nothing is released now, if the operator wants it so by the clock."""
    pools = {pool.name for pool in turn.seen.osdmap.pools.values()}
    found = [Reason(Code.BAD_OPTIONS, text) for text in problems(turn.options, pools)]
    try:
        seconds = opens_in(window_of(turn.options), turn.now)
    except BadWindow:
        return found
    if seconds is None:
        when = 'it does not open within the next week (clock change)'
    else:
        when = 'it opens in %s' % plural(max(1, round(seconds / 60)), 'minute')
    if seconds != 0.0:
        found.append(Reason(Code.WINDOW_CLOSED,
                            'outside the time window (begin_time to end_time): ' + when))
    return found
