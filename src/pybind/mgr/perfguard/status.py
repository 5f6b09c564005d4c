# SPDX-License-Identifier: LGPL-2.1-or-later
"""The state at the end of a turn: typed, and as the JSON of commands; health checks; progress."""
from dataclasses import dataclass, field, replace
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from .cluster.evacuation import Evacuation, by_osd
from .cluster.types import Json, OsdMap, Signals
from .errors import Code, HealthChecks, HealthWarning, Reason, Refused, texts, warning
from .ledger import Ledger
from .mitigation.controller import Mitigated
from .mitigation.report import listing_json
from .observation import Observation
from .options import Options
from .probe.report import ActiveProbe, Probed
from .rebalance import report
from .rebalance.campaign import Campaign
from .rebalance.pinning import (kept_on_osds, lastingly_unpinnable, recovering_count,
                                immovable_count, unpinnable_excess, unpinned_count)
from .rebalance.report import CampaignStatus, Rebalanced, ReleasePreview, possible_leftovers
from .rebalance.requests import Request, apply, check
from .rebalance.types import ENDED, Phase
from .store import PINS_REMAIN_TEXT
from .text import interval_text, listed, pgs, pgs_are, seconds_text
from .watch.controller import Watched
from .watch.next_steps import detailed, limits_json
from .watch.report import OsdRow, laggy_json, osd_json, pool_json, signals_json

HELD_PINS = 'PERFGUARD_HELD_PINS'
EVACUATION = 'PERFGUARD_EVACUATION'
#: Seconds for which norebalance may keep PGs on OSDs that are to be emptied: pinning others back
#: takes a few.
EVACUATION_SECONDS = 60.0
STARTED = 'perfguard has just started'
#: The refusal of a command before the first turn.
TOO_EARLY = STARTED + ': try again in a few seconds'


@dataclass(frozen=True)
class Status:
    """The state of a turn in `perfguard status`, in addition to those of the jobs."""
    phase: Phase = Phase.IDLE
    #: Codes of the health checks that are raised.
    health: Tuple[str, ...] = ()
    reasons: Tuple[Reason, ...] = (Reason(
        Code.STARTING, STARTED + ' and is reading the cluster'),)
    #: None before the first turn, as is the campaign.
    signals: Optional[Signals] = None
    campaign: Optional[CampaignStatus] = None
    osdmap_epoch: int = 0
    probe: Optional[ActiveProbe] = None
    #: CPU time of the turn before this one.
    turn_cpu_ms: float = 0.0


@dataclass(frozen=True)
class Published:
    """The state at the end of one turn, for commands, metrics and the page."""
    status: Status = Status()
    rebalanced: Rebalanced = Rebalanced()
    watched: Watched = field(default_factory=Watched)
    mitigated: Mitigated = field(default_factory=Mitigated)
    #: Events as they are in the store.
    events: Tuple[Json, ...] = ()
    #: Borrowed settings.
    ledger: Ledger = Ledger()
    #: When the turn observed the cluster, in seconds since the epoch (0.0: none yet), and seconds
    #: after which the next one is late.
    turned: float = 0.0
    stale_after: float = 0.0
    #: By how many seconds the wall clock was set (Observation.clock_set).
    clock_set: float = 0.0


def foreseen(published: Published, request: Request, now: float) -> Published:
    """The published state with the effect of a request that waits for the next turn; as it is
    before the first turn, and if the request would be refused.

    Without it, a script that requests pins and then waits for PINNED could see the previous phase.
    """
    rebalanced = published.rebalanced
    if not published.turned:
        return published
    try:
        check(rebalanced.campaign, request, rebalanced.pins, rebalanced.unhealthy,
              loose=rebalanced.loose, left_rule=rebalanced.left_rule)
    except Refused:
        return published
    requested = (Reason(Code.REQUESTED, '"campaign %s" is requested' % request.verb),)
    if request.verb == 'prepare':
        # A script that follows the new campaign must not see the end of the last one.
        return replace(published, rebalanced=replace(rebalanced, status=replace(
            rebalanced.status, id=0, phase=Phase.IDLE, reasons=requested)))
    campaign = apply(rebalanced.campaign, request, now)
    return replace(
        published, status=replace(published.status, phase=campaign.phase, reasons=requested),
        rebalanced=replace(rebalanced, campaign=campaign, status=replace(
            rebalanced.status, phase=campaign.phase, reasons=requested,
            paused=campaign.orders.paused,
            paused_until=campaign.orders.paused_until if campaign.orders.paused else 0.0,
            settings=campaign.orders.settings)))


def with_health_check(published: Published, check: HealthChecks) -> Published:
    """The state with health checks that no turn could publish, in `health` and as the first
    reasons."""
    status = published.status
    first = [Reason(code, '%s (%s)' % (row['summary'], code))
             for code, row in check.items()
             if code not in status.health]
    return replace(published, status=replace(
        status, reasons=(*first, *status.reasons),
        health=tuple(sorted({*status.health, *check}))))


def status(observation: Observation, campaign: CampaignStatus, checks: HealthChecks,
           watched: Watched, mitigated: Mitigated, probe: Optional[ActiveProbe],
           turn_seconds: float, remarks: Sequence[str]) -> Status:
    """The status that `perfguard status` shows. `checks`: all that are raised; `probe`: the active
    one, None: there is none; `turn_seconds`: the CPU time of the turn before this one; `remarks`:
    texts of further reasons."""
    reasons = (*campaign.reasons, *probe_reasons(probe), *mitigated.reasons, *cluster_reasons(
        observation.signals.misplaced_ratio, campaign, checks, watched.failure),
        *(Reason(Code.REMARK, text) for text in remarks))
    return Status(campaign.phase, tuple(sorted(checks)), reasons, observation.signals, campaign,
                  observation.osdmap.epoch, probe, round(1000 * turn_seconds, 2))


def probe_reasons(probe: Optional[ActiveProbe]) -> List[Reason]:
    if probe is None:
        return []
    return [Reason(Code.PROBE, 'probe %d of %s is active: %s' % (
        probe.id, probe.target, probe.text))]


def cluster_reasons(misplaced_ratio: float, campaign: CampaignStatus, checks: HealthChecks,
                    failure: str) -> List[Reason]:
    """Reasons for the health checks `checks`, for the `failure` of the watch ('': it works), and
    for misplaced objects, with the campaign that moves them."""
    reasons = [Reason(code, '%s (%s)' % (check['summary'], code))
               for code, check in sorted(checks.items())]
    if failure:
        reasons.append(Reason(Code.WATCH_FAILED, 'the watch could not process readings, or judge '
                              'OSDs (see the mgr log): ' + failure))
    if misplaced_ratio > 0.0:
        reasons.append(Reason(Code.MISPLACED, '%.2f %% of the objects are misplaced%s' % (
            100 * misplaced_ratio, _mover(campaign))))
    return reasons


def _mover(campaign: CampaignStatus) -> str:
    if campaign.in_flight:
        return ': campaign %d moves %s' % (campaign.id, pgs(campaign.in_flight))
    if campaign.phase not in ENDED:
        return ', and campaign %d moves none now' % campaign.id
    return ', and no campaign moves them'


def progress_message(campaign: Campaign, shown: CampaignStatus) -> str:
    """The text of the progress event."""
    text = report.progress_text(campaign)
    return text if shown.eta is None else '%s, %s left' % (text, interval_text(*shown.eta))


def health_checks(campaign: Campaign, observation: Observation, options: Options,
                  reasons: Sequence[Reason], interrupted: Sequence[str]) -> HealthChecks:
    """The health checks of the campaign, as MgrModule.set_health_checks takes them. `reasons`: of
    its status, which explain a stall. `interrupted`: what could not be read of the stored state;
    the possible leftovers of a lost campaign are added."""
    checks: Dict[str, HealthWarning] = {}
    stall = report.stalled(campaign, observation, options)
    if stall is not None:
        checks['PERFGUARD_STALLED'] = warning(stall, detailed(reasons) or [stall])
    if interrupted:
        checks['PERFGUARD_INTERRUPTED'] = warning(
            'perfguard could not read all of its state',
            [*interrupted, *(possible_leftovers(observation)
                             if PINS_REMAIN_TEXT in interrupted else ())])
    # PGs that only wait for their recovery are pinned after it. Those in flight move on purpose, in
    # small steps, because the mons cancel upmaps under their rule.
    lasting = lastingly_unpinnable(campaign) if campaign.active else {}
    if len(lasting.keys() - campaign.flights.in_flight.keys()) \
            > campaign.orders.accepted_unpinnable:
        excess = unpinnable_excess(campaign, campaign.progress.total, options)
        checks['PERFGUARD_UNPINNABLE'] = warning(
            '%s cannot be pinned%s%s' % (
                pgs(len(lasting)), _in_place(campaign),
                '; releases wait for "campaign start" or "campaign abort"' if excess else ''),
            ['PG %s: %s' % (pgid, lasting[pgid].reason) for pgid in sorted(lasting)])
    if campaign.held:
        count = campaign.left + unpinned_count(campaign)
        checks[HELD_PINS] = warning(
            'campaign %d is aborted and keeps %s pinned' % (campaign.id, pgs(count)),
            held_detail(campaign, observation), count)
    # Since when norebalance has kept such PGs; 0.0: it does not.
    held_since = campaign.holds.evacuation_held
    if held_since and observation.now - held_since >= EVACUATION_SECONDS:
        kept_pgs = kept_on_osds(campaign, observation)
        checks[EVACUATION] = warning(
            'norebalance keeps %s on OSDs that are to be emptied' % pgs(len(kept_pgs)),
            [*_evacuation_detail(campaign, observation, kept_pgs)], len(kept_pgs))
    return checks


def _evacuation_detail(campaign: Campaign, observation: Observation,
                       kept_pgs: Evacuation) -> Iterator[str]:
    """The detail of the health check on PGs that norebalance keeps on OSDs which are to be
    emptied."""
    command = _ENDING_COMMANDS.get(campaign.phase, 'abort')
    yield 'campaign %d is %s and keeps norebalance set; "ceph perfguard campaign %s" clears it' % (
        campaign.id, campaign.phase.value, 'resume' if campaign.orders.paused else command)
    for osd, pgids in by_osd(kept_pgs).items():
        row = observation.osdmap.osds[osd]
        yield 'osd.%d (reweight %g, CRUSH weight %g%s) serves %s: %s' % (
            osd, row.reweight, observation.crush.weights().get(osd, 0.0),
            row.fullness and ', ' + row.fullness, pgs(len(pgids)), listed(pgids))


#: The command that ends the wait with norebalance set.
_ENDING_COMMANDS = {Phase.PREPARED: 'pin', Phase.PINNED: 'start', Phase.ABORTED: 'resume'}


def _in_place(campaign: Campaign) -> str:
    number = immovable_count(campaign)
    return ' (staying in place: %d)' % number if number else ''


def held_detail(campaign: Campaign, observation: Observation) -> List[str]:
    """The detail of the health check on an aborted campaign: what it keeps until the operator
    decides, and the commands to choose from."""
    detail = ['%s pinned where the data is' % pgs_are(campaign.left)]
    if unpinned_count(campaign):
        detail.append('%s cannot be pinned and would move without norebalance, '
                      'so norebalance stays set' % pgs(unpinned_count(campaign)))
    if recovering_count(campaign):
        count = recovering_count(campaign)
        detail.append('%s of these must recover before %s can be pinned'
                      % (pgs(count), 'it' if count == 1 else 'they'))
    if observation.settings.balancer_active == 'false':
        detail.append('the balancer is off because it would move pinned PGs')
    else:
        detail.append('the balancer is on and may move pinned PGs: "ceph balancer off" stops it')
    pools = sorted(observation.osdmap.pools[pool].name for pool in campaign.holds.autoscale
                   if pool in observation.osdmap.pools)
    if pools:
        detail.append('pg_autoscale_mode is off for %s because a change of pg_num would remove pins'
                      % ', '.join(pools))
    rule_text = '' if campaign.change is None else campaign.change.left_intermediate(
        observation.osdmap, verb='has')
    return [*detail, *([rule_text] if rule_text else []),
            *_ways_out(campaign, observation.osdmap, intermediate=bool(rule_text))]


def _ways_out(campaign: Campaign, osdmap: OsdMap, intermediate: bool) -> List[str]:
    """Texts on the commands that end an aborted campaign. `intermediate`: a pool has an
    intermediate rule."""
    lines = ['"ceph perfguard campaign resume" continues to release the PGs']
    back_command, change = campaign.way_back(osdmap), campaign.change
    if back_command:
        changed_no_weights = change is not None and (change.moves_only or change.pool is not None)
        lines.append('"ceph perfguard %s" %s' % (
            back_command, 'moves the PGs back, in batches' if changed_no_weights else
            'restores the CRUSH weights or map from before the campaign, if they are known'))
    sure, rule_text = (' --yes-i-really-mean-it', '; the pool keeps the intermediate CRUSH rule') \
        if intermediate else ('', '')
    lines.append('"ceph perfguard campaign finish --keep%s" turns the pins into ordinary upmaps '
                 'and gives back the balancer, which may move them%s' % (sure, rule_text))
    return lines


# ---- JSON, for commands and the page

def status_json(published: Published, now: float) -> Json:
    """The JSON of `perfguard status` with its age, which is None before the first turn."""
    shown, watched = published.status, published.watched
    age = now - published.turned if published.turned else None
    stale = [Reason(Code.STALE, 'this status is %s old: the loop has completed no iteration since '
                    'then' % seconds_text(age))] if age and age > published.stale_after else []
    reasons = (*stale, *shown.reasons)
    return {
        'phase': shown.phase.value, 'mode': published.mitigated.listing.mode,
        'health': list(shown.health), 'signals': _signals_json(shown, watched),
        'pools': [pool_json(row) for row in watched.pools],
        'probe': shown.probe and shown.probe._asdict(),
        **_campaign_json(shown), 'reasons': texts(reasons), 'limits': limits_json(reasons),
        'age_seconds': age if age is None else round(age, 1)}


def _signals_json(shown: Status, watched: Watched) -> Json:
    """The signals of `status`; empty before the first turn."""
    signals = shown.signals
    if signals is None:
        return {}
    counts = signals.counts
    return {
        'laggy_pgs': counts.laggy, 'wait_pgs': counts.wait,
        'misplaced_ratio': signals.misplaced_ratio,
        'slow_ops': signals.slow_ops, 'slow_ops_by_daemon': dict(signals.slow_daemons),
        'pgs': counts.total,
        'active_clean_pgs': counts.active_clean, 'inactive_pgs': counts.inactive,
        'degraded_pgs': counts.degraded, 'remapped_pgs': counts.remapped,
        'backfilling_pgs': counts.backfilling, 'backfill_wait_pgs': counts.backfill_wait,
        'backfill_toofull_pgs': counts.backfill_toofull,
        'recovering_pgs': counts.recovering, 'deep_scrubbing_pgs': counts.deep_scrubbing,
        'recovery_bytes_per_second': signals.recovery_bytes_per_second,
        'osdmap_epoch': shown.osdmap_epoch, 'health_status': signals.health_status,
        **signals_json(watched.signals)}


def _campaign_json(shown: Status) -> Json:
    if shown.campaign is None:
        return {}
    campaign = report.status_json(shown.campaign)
    return {'turn_cpu_ms': shown.turn_cpu_ms, 'rebalance': {key: campaign[key] for key in (
        'id', 'total', 'moving', 'pinned', 'in_flight', 'released', 'bytes_total', 'bytes_done',
        'eta_seconds')}}


def rebalance_json(published: Published) -> Json:
    """`campaign status`; {} before the first turn."""
    return report.status_json(published.rebalanced.status) if published.turned else {}


def osds_json(osds: Sequence[OsdRow], preview: ReleasePreview) -> List[Json]:
    """The rows of `perfguard osds`, with the numbers of PGs that the campaign still moves to and
    from each OSD."""
    loads = {load.osd: (load.pgs_in, load.pgs_out) for load in preview.moves.osds}
    return [{**osd_json(row), **dict(zip(('pgs_in', 'pgs_out'), loads.get(row.osd, (0, 0))))}
            for row in osds]


# ---- The answer to the page's periodic request

#: Limits of one answer.
MOST_SHOWN_EVENTS = 100
MOST_PROBES = 20
MOST_SHOWN_PGS = 50
MOST_SHOWN_POOLS = 10


def overview(published: Published, probed: Probed, drawn: Json, since: float, now: float) -> Json:
    """The answer to the page's periodic request: `status` and the rest of what the page shows, with
    lists of limited length. `drawn`: the points of its charts. `since`: when the page got its last
    answer, so that only newer events follow, 0.0: none yet; `now`: both in seconds since the epoch,
    by the mgr's clock."""
    return {
        'now': round(now, 3), 'turned': round(published.turned, 3),
        'stale_after': round(published.stale_after, 3), 'status': status_json(published, now),
        'rebalance': _bounded(rebalance_json(published), 'unpinnable'),
        'mitigation': listing_json(published.mitigated.listing),
        'laggy': _bounded(laggy_json(published.watched.laggy), 'pgs'),
        'events': _newer(published.events, since),
        'capacity': _fullest(probed.capacity_json(published.watched.uses, now)['pools']),
        'probe': probed.listing(MOST_PROBES),
        'schedules': probed.schedules_json()['schedules'], 'series': drawn}


def _bounded(document: Json, key: str) -> Json:
    """The document with a truncated list and its full length."""
    pgs = document.get(key, [])
    return {**document, key: pgs[:MOST_SHOWN_PGS], key + '_count': len(pgs)}


def _fullest(pools: Sequence[Json]) -> List[Json]:
    """The rows of pools of which a known share is used, the highest first."""
    known = [row for row in pools if row['used'] is not None]
    return sorted(known, key=lambda row: -row['used']['median'])[:MOST_SHOWN_POOLS]


def _newer(events: Sequence[Json], since: float) -> List[Json]:
    return [event for event in events[-MOST_SHOWN_EVENTS:] if event['time'] > since]
