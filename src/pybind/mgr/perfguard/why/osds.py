# SPDX-License-Identifier: LGPL-2.1-or-later
"""Why an OSD is slow. Pure: from the findings of the watch and the moves of the campaign."""
from dataclasses import dataclass
from typing import Dict, List, Optional

from ..cluster.types import Osd, PgCounts, Signals
from ..errors import Code
from ..rebalance.types import Campaign, Flight
from ..tables import pgs, plural
from ..watch.laggy import Suspect
from ..watch.report import OsdRow, chronic
from .answer import Cause

#: Heartbeat time in ms from which the network is named; Ceph itself warns from 1,000
#: (mon_warn_on_slow_ping_time).
SLOW_PING_MS = 100.0
#: Maximum number of PGs that the evidence lists.
NAMED = 10


@dataclass(frozen=True)
class OsdCase:
    osd: Osd
    #: Its row of `perfguard osds`; None: it has not reported yet.
    row: Optional[OsdRow] = None
    #: Its suspicion as the cause of laggy PGs, as in `perfguard laggy`.
    suspect: Optional[Suspect] = None
    counts: PgCounts = PgCounts()
    signals: Signals = Signals(PgCounts())
    campaign: Optional[Campaign] = None


def causes(case: OsdCase) -> List[Cause]:
    """The most decisive first; never empty."""
    found = [*_state(case), *_watched(case), *_busy(case)]
    if found:
        return found
    return [Cause(Code.NOT_SLOW, 'osd.%d is not slower than its peers' % case.osd.id,
                  _figures(case.row)), *_loaded(case.row)]


def _state(case: OsdCase) -> List[Cause]:
    osd = case.osd
    if osd.destroyed or not osd.up:
        return [Cause(Code.OSD_DOWN, 'osd.%d is %s' % (
            osd.id, 'destroyed' if osd.destroyed else 'down'), {'in': osd.reweight > 0})]
    if case.row is None:
        return [Cause(Code.NO_READINGS, 'osd.%d has not reported yet' % osd.id)]
    silent = case.row.silent_seconds
    if silent:
        return [Cause(Code.NO_ANSWER, 'osd.%d has not reported for %d s' % (osd.id, silent),
                      {'silent_seconds': silent})]
    return []


def _watched(case: OsdCase) -> List[Cause]:
    found: List[Cause] = [] if case.row is None else _of_row(case.row)
    if case.suspect is not None:
        found.append(Cause('PERFGUARD_LAGGY_PGS', case.suspect.why, {
            'score': case.suspect.score, 'advice': case.suspect.advice}))
    ping = None if case.row is None else case.row.ping_ms
    if ping is not None and ping >= SLOW_PING_MS:
        found.append(Cause(Code.SLOW_PING, 'its heartbeats take %.0f ms' % ping,
                           {'ping_ms': ping}))
    slow_ops = case.signals.slow_daemons.get('osd.%d' % case.osd.id, 0)
    if slow_ops:
        found.append(Cause(Code.SLOW_OPS, 'it reports %s' % plural(slow_ops, 'slow operation'),
                           {'slow_ops': slow_ops}))
    return found


def _of_row(row: OsdRow) -> List[Cause]:
    found = []
    if row.slow:
        # The likely causes first; the slowdown follows them.
        found += [Cause(cause.code, cause.text, cause.evidence) for cause in row.causes]
        found.append(Cause('PERFGUARD_SLOW_OSD', row.why, _figures(row)))
    if row.chronic is not None:
        found.append(Cause(Code.SLOW_AGAIN, row.chronic.why, chronic(row.chronic)))
    return found


def _loaded(row: Optional[OsdRow]) -> List[Cause]:
    """The load of an OSD that is not slow."""
    return [] if row is None else [Cause(cause.code, cause.text, cause.evidence)
                                   for cause in row.load]


def _busy(case: OsdCase) -> List[Cause]:
    """Its work in addition to client operations."""
    counts, found = case.counts, []
    moving = _moving(case)
    if any(moving.values()):
        text = ', '.join('%d as %s' % (len(pgids), role) for role, pgids in moving.items()
                         if pgids)
        found.append(Cause(Code.IN_FLIGHT, 'PGs in flight: %s' % text, {
            role: pgids[:NAMED] for role, pgids in moving.items() if pgids}))
    for code, number, text in (
            (Code.DEGRADED, counts.recovering, 'recovers'),
            (Code.BACKFILLING, counts.backfilling, 'backfills'),
            (Code.SCRUB, counts.deep_scrubbing, 'deep-scrubs'),
            (Code.SNAPTRIM, counts.snaptrim, 'removes deleted snapshots from')):
        if number:
            found.append(Cause(code, 'it %s %s' % (text, pgs(number)), {'pgs': number}))
    if case.osd.fullness:
        found.append(Cause(Code.TARGET_FULL, 'it is %s' % case.osd.fullness,
                           {'fullness': case.osd.fullness}))
    return found


def _moving(case: OsdCase) -> Dict[str, List[str]]:
    """PGs in flight by the role of the OSD."""
    found: Dict[str, List[str]] = {'source': [], 'target': [], 'primary': []}
    if case.campaign is None or not case.campaign.active:
        return found
    for pgid, flight in sorted(case.campaign.in_flight.items()):
        for role in _roles(case.osd.id, flight):
            found[role].append(pgid)
    return found


def _roles(osd: int, flight: Flight) -> List[str]:
    roles = [('source', (*flight.sources, *flight.readers)), ('target', flight.targets),
             ('primary', (flight.primary,))]
    return [role for role, osds in roles if osd in osds]


def _figures(row: Optional[OsdRow]) -> Dict[str, object]:
    return {key: getattr(row, key, None) for key in (
        'score', 'read_ms', 'write_ms', 'store_ms', 'ping_ms', 'since')}
