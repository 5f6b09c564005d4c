# SPDX-License-Identifier: LGPL-2.1-or-later
"""Answers of `perfguard why`: causes for one OSD or the campaign, each with a code. Pure."""
import errno
import re
from dataclasses import dataclass, field, replace
from typing import ClassVar, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from ..cluster.types import Json, Osd, PgCounts, Signals, pool_of
from ..errors import Code, Reason, Refused
from ..rebalance.campaign import NO_CAMPAIGN, Campaign
from ..rebalance.draft import Draft
from ..rebalance.moves import Move, Obstacle
from ..rebalance.pg_limit import receives
from ..rebalance.progress import shares
from ..rebalance.releasing import (all_stops, concerns, failing_osds, full_osds, ignores_degraded,
                                   present_load, waits_for_recovery)
from ..rebalance.stalls import affords
from ..rebalance.throttle import caps, limit
from ..rebalance.types import Flight
from ..text import pgs, plural
from ..watch.laggy import Suspect
from ..watch.next_steps import next_step
from ..watch.report import OsdRow, chronic

CAMPAIGN = 'campaign'
_PGID = re.compile(r'[0-9]{1,10}\.[0-9a-f]{1,8}')
_OSD = re.compile(r'osd\.[0-9]{1,9}')


@dataclass(frozen=True)
class Why:
    """The order of `perfguard why`; the command waits for its answer."""
    #: A PG id, "osd.<id>" or CAMPAIGN.
    subject: str
    verb: ClassVar[str] = 'why'
    addressee: ClassVar[str] = 'why'
    #: It changes nothing.
    dry_run: ClassVar[bool] = True

    @property
    def osd(self) -> Optional[int]:
        return int(self.subject[4:]) if self.subject.startswith('osd.') else None

    @property
    def pgid(self) -> Optional[str]:
        return self.subject if self.subject[0].isdigit() else None


def parsed(text: str) -> Why:
    """The order about a subject; raises Refused if it is no PG id, osd.<id> or CAMPAIGN."""
    if text == CAMPAIGN or _PGID.fullmatch(text) or _OSD.fullmatch(text):
        return Why(text)
    raise Refused(errno.EINVAL, '%.60r is neither a PG id (such as 1.2f) nor osd.<id> nor "%s"'
                  % (text, CAMPAIGN))


@dataclass(frozen=True)
class Cause:
    #: One of errors.Code, or the code of a health check.
    code: str
    text: str
    #: The numbers and names in the text.
    evidence: Mapping[str, object] = field(default_factory=dict)
    #: Share of the campaign's time; None: not measured for this cause.
    share: Optional[float] = None
    #: What to do instead of what the code says (next_steps.py); '': nothing else.
    instead: str = ''


def passed_on(reason: Reason, **evidence: object) -> Cause:
    """A reason of the campaign or of a health check."""
    return Cause(reason.code, reason.text, evidence)


def as_json(order: Why, causes: Sequence[Cause]) -> Json:
    """The JSON of `perfguard why`. `causes`: the most decisive one first."""
    return {'subject': order.subject, 'causes': [
        {'code': cause.code, 'text': cause.text,
         # What limited the campaign earlier needs no command.
         'next': '' if cause.evidence.get('now') is False
         else cause.instead or next_step(cause.code, cause.text, of_campaign=order.osd is None),
         'share': cause.share, 'evidence': dict(cause.evidence)} for cause in causes]}


# ---- The limits of the campaign: now, by share of its time, and for one PG

#: Minimum share, except for the current limit.
LEAST_CAUSE_SHARE = 0.001


def campaign_causes(campaign: Campaign, reasons: Sequence[Reason]) -> List[Cause]:
    """What limits the present or the last campaign: the current limit first, then earlier ones by
    share of its time, then `reasons`, those of its last turn, that have not limited it. Never
    empty. Without any campaign, the reasons alone: they may prevent one."""
    if not campaign.id:
        return [passed_on(reason) for reason in reasons] or [
            Cause(Code.NO_CAMPAIGN, 'no campaign is active')]
    share_of, seconds_of = shares(campaign.progress.limits), campaign.progress.limits.seconds
    current_code = campaign.progress.limits.now if campaign.active else ''
    ordered = sorted(share_of, key=lambda code: (code != current_code, -share_of[code], code))
    texts = {**_CODE_TEXTS, **_texts(reasons)}
    causes = [Cause(code, texts.get(code, 'it was limited by %s' % code), {
        'now': code == current_code, 'seconds': round(seconds_of[code], 1)},
        round(share_of[code], 4))
        for code in ordered if code == current_code or share_of[code] >= LEAST_CAUSE_SHARE]
    causes += [passed_on(reason, now=True) for reason in reasons if reason.code not in share_of]
    return causes or [Cause(Code.NO_CAMPAIGN, 'nothing has limited campaign %d yet' % campaign.id)]


def _texts(reasons: Sequence[Reason]) -> Dict[str, str]:
    """Texts by code; of several with the same code, the first."""
    by_code: Dict[str, str] = {}
    for reason in reasons:
        by_code.setdefault(reason.code, reason.text)
    return by_code


#: Texts on codes that are not among the reasons of this turn.
_CODE_TEXTS = {
    Code.REQUESTED: 'it waited for its first loop iteration',
    Code.AWAITS_CHANGE: 'it waited for the CRUSH change',
    Code.AWAITS_PIN: 'it waited for "campaign pin"',
    Code.AWAITS_START: 'it waited for "campaign start"',
    Code.UNPINNABLE: 'PGs could not be pinned',
    Code.SETTINGS: 'it waited for borrowed settings to take effect',
    Code.GIVES_WAY: 'it cleared norebalance so that undersized PGs could recover',
    Code.FLAG_CLEARED: 'others had cleared norebalance, which it needed',
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
    Code.UPGRADE: 'an upgrade of Ceph restarted OSDs',
    Code.MON_DISK: 'mons had little disk space left, or a large store',
    Code.SLOW_POOL: 'a pool was slower than its baseline',
    Code.MITIGATION: 'a mitigation was in force',
    Code.FOREIGN_FLAG: 'a flag that perfguard did not set stopped backfill',
    Code.BALANCER_ON: 'the balancer was on',
    Code.BAD_OPTIONS: 'module options were invalid',
    Code.CONFIRMING: 'it waited for a report to confirm that a stop condition had cleared',
    Code.OVERTAKEN: 'others had changed what it would change',
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
    Code.PIN_LIMIT: 'as many PGs as max_pins were pinned',
    Code.SAME_DRIVE: 'target OSDs were created again on the drives that are being replaced',
    Code.PG_LIMIT: 'target OSDs were at their limit of PGs (mon_max_pg_per_osd)',
    Code.OTHER: 'other reasons',
    Code.NO_LIMIT: 'nothing limited the releases',
    Code.IN_FLIGHT: 'it waited for the last PGs in flight',
    Code.CAP_PGS: 'as many PGs as max_pgs_in_flight were in flight',
    Code.CAP_BACKFILLS: 'OSDs, hosts or failure domains were at their limits (max_backfills_*)',
    Code.PAUSED: 'it was paused by the operator',
    Code.WINDOW_CLOSED: 'the time window (begin_time to end_time) was closed',
    Code.UNTRIMMED_MAPS: 'it waited for the mons to trim OSDMaps (max_untrimmed_osdmaps)',
    Code.UNTRIMMED_CEILING: 'the mons kept too many OSDMaps (untrimmed_ceiling)',
    Code.LATENCY: 'client latency was above its limit',
    Code.HALTED: 'all movement was halted because of client latency',
    Code.STALL_RATIO: 'it waited between releases (stall_ratio)',
    Code.PEERING: 'it waited for PGs to peer',
    Code.BATCH: 'it waited for more PGs to release in the same OSDMap epochs',
}


# ---- What keeps one PG from being released

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
    #: Whether stall_ratio allows a release of the pool.
    affordable: bool = True
    #: Whether it waits for recovery, though no stop condition concerns it.
    degraded: bool = False
    #: Why no more PGs may be in flight than now, if the throttle says so.
    pace: Optional[Reason] = None


def gate(draft: Draft, move: Move) -> Gate:
    """Which checks of a release (releasing.release_more) a move would fail now. The move is that of
    a PG that is pinned and not released yet."""
    osds, campaign = draft.observed.osdmap.osds, draft.campaign
    down = frozenset(osd for osd in move.targets if osd not in osds or not osds[osd].up)
    allowed, option_caps = limit(campaign.pace, draft.options), caps(draft.options)
    load = present_load(draft, allowed.caps)
    # As many PGs as the throttle allows are in flight, which are fewer than the options allow.
    throttled = load.pgs >= allowed.caps.pgs < option_caps.pgs
    # `pgs` from the options, as `pace` reports the limit of the throttle. `receives`: PGs that each
    # OSD may receive until it has as many as mon_max_pg_per_osd allows.
    bounds = replace(allowed.caps, pgs=option_caps.pgs, receives=receives(draft))
    return Gate(
        stops=tuple(stop.reason for stop in all_stops(draft, failing_osds(draft))
                    if concerns(stop, move)),
        obstacles=tuple(load.obstacles(move, bounds)),
        full=frozenset(move.targets) & full_osds(draft).osds - down, down=down,
        affordable=affords(campaign.stalls, pool_of(move.pgid)),
        degraded=waits_for_recovery(draft, move.pgid, ignores_degraded(draft)),
        pace=allowed.reason if throttled else None)


# ---- Why an OSD is slow: from the findings of the watch and the moves of the campaign

#: Heartbeat time in ms from which the network is named; Ceph itself warns from 1,000
#: (mon_warn_on_slow_ping_time).
NOTABLE_PING_MS = 100.0
#: Maximum number of PGs that the evidence lists.
NAMED_FEW_PGS = 10


@dataclass(frozen=True)
class OsdCase:
    """What is known of an OSD that may be slow."""
    osd: Osd
    #: Its row of `perfguard osds`; None: it has not reported yet.
    row: Optional[OsdRow] = None
    #: Its suspicion as the cause of laggy PGs, as in `perfguard laggy`.
    suspect: Optional[Suspect] = None
    #: What to check of its host or rack if that is chronically slow as a whole; '': it is not.
    chronic_part: str = ''
    counts: PgCounts = PgCounts()
    signals: Signals = Signals(PgCounts())
    campaign: Campaign = NO_CAMPAIGN


def osd_causes(case: OsdCase) -> List[Cause]:
    """Why an OSD is slow, the most decisive cause first; never empty. If it is not slow, that, and
    why it serves more operations than its peers, if it does."""
    causes = [*_unread(case), *_watched(case), *_busy(case)]
    if causes:
        return causes
    load = () if case.row is None else case.row.load
    return [Cause(Code.NOT_SLOW, 'osd.%d is not slower than its peers' % case.osd.id,
                  _figures(case.row)),
            *(Cause(cause.code, cause.text, cause.evidence) for cause in load)]


def _unread(case: OsdCase) -> List[Cause]:
    """Why an OSD has no current readings: it is down, or does not report. [] if it has."""
    osd = case.osd
    if osd.destroyed or not osd.up:
        return [Cause(Code.OSD_DOWN, 'osd.%d is %s' % (
            osd.id, 'destroyed' if osd.destroyed else 'down'), {'in': osd.reweight > 0})]
    if case.row is None:
        return [Cause(Code.NO_READINGS, 'osd.%d has not reported yet, or OSDs are not judged (see '
                      '"ceph perfguard status")' % osd.id)]
    silent = case.row.silent_seconds
    if silent:
        return [Cause(Code.NO_ANSWER, 'osd.%d has not reported for %d s' % (osd.id, silent),
                      {'silent_seconds': silent})]
    return []


def _watched(case: OsdCase) -> List[Cause]:
    """What the watch has found of an OSD: it is slow, is suspected to make PGs laggy, has slow
    heartbeats, or reports slow operations. [] if nothing."""
    causes: List[Cause] = [] if case.row is None else _of_row(case.row, case.chronic_part)
    if case.suspect is not None:
        causes.append(Cause('PERFGUARD_LAGGY_PGS', case.suspect.why, {
            'score': case.suspect.score, 'advice': case.suspect.advice}))
    ping = None if case.row is None else case.row.ping_ms
    if ping is not None and ping >= NOTABLE_PING_MS:
        causes.append(Cause(Code.SLOW_PING, 'its heartbeats take %.0f ms' % ping,
                            {'ping_ms': ping}))
    slow_ops = case.signals.slow_daemons.get('osd.%d' % case.osd.id, 0)
    if slow_ops:
        causes.append(Cause(Code.SLOW_OPS, 'it reports %s' % plural(slow_ops, 'slow operation'),
                            {'slow_ops': slow_ops}))
    return causes


def _of_row(row: OsdRow, chronic_part: str) -> List[Cause]:
    """The causes that the row of "perfguard osds" names: why the OSD is slow, or for which slow
    replica it waits, and that it is chronically slow. [] if it is none of these. `chronic_part`: as
    in OsdCase."""
    causes = []
    if row.slow:
        # The likely causes first; the slowdown follows them.
        causes += [Cause(cause.code, cause.text, cause.evidence) for cause in row.causes]
        causes.append(Cause('PERFGUARD_SLOW_OSD', row.why, _figures(row)))
    elif row.waits_for is not None:
        causes.append(Cause(
            Code.WAITS_FOR_OSD, 'osd.%d waits for osd.%d, a slow replica of its PGs' % (
                row.osd, row.waits_for), {**_figures(row), 'waits_for': row.waits_for}))
    if row.chronic is not None:
        causes.append(Cause(Code.SLOW_AGAIN, row.chronic.why, chronic(row.chronic),
                            instead=chronic_part))
    return causes


def _busy(case: OsdCase) -> List[Cause]:
    """The work of an OSD in addition to client operations, and that it is nearly full. [] if none
    of this holds."""
    counts, causes = case.counts, []
    moving = _moving(case)
    if any(moving.values()):
        text = ', '.join('%d as %s' % (len(pgids), role) for role, pgids in moving.items() if pgids)
        causes.append(Cause(Code.IN_FLIGHT, 'PGs in flight: %s' % text, {
            role: pgids[:NAMED_FEW_PGS] for role, pgids in moving.items() if pgids}))
    for code, number, text in (
            (Code.DEGRADED, counts.recovering, 'recovers'),
            (Code.BACKFILLING, counts.backfilling, 'backfills'),
            (Code.SCRUB, counts.deep_scrubbing, 'deep-scrubs'),
            (Code.SNAPTRIM, counts.snaptrim, 'removes deleted snapshots from')):
        if number:
            causes.append(Cause(code, 'it %s %s' % (text, pgs(number)), {'pgs': number}))
    if case.osd.fullness:
        causes.append(Cause(Code.TARGET_FULL, 'it is %s' % case.osd.fullness,
                            {'fullness': case.osd.fullness}))
    return causes


def _moving(case: OsdCase) -> Dict[str, List[str]]:
    """Role of the OSD (source, target, primary) -> PGs that a campaign has in flight."""
    pgids: Dict[str, List[str]] = {'source': [], 'target': [], 'primary': []}
    if not case.campaign.active:
        return pgids
    for pgid, flight in sorted(case.campaign.flights.in_flight.items()):
        for role in _roles(case.osd.id, flight):
            pgids[role].append(pgid)
    return pgids


def _roles(osd: int, flight: Flight) -> List[str]:
    """The roles of an OSD in the move of one PG, as in _moving()."""
    osds_by_role = {'source': (*flight.sources, *flight.readers), 'target': flight.targets,
                    'primary': (flight.primary,)}
    return [role for role, osds in osds_by_role.items() if osd in osds]


def _figures(row: Optional[OsdRow]) -> Dict[str, object]:
    """Numbers of the row of an OSD as evidence; None: not known."""
    return {key: getattr(row, key, None) for key in (
        'score', 'read_ms', 'write_ms', 'store_ms', 'ping_ms', 'since')}
