# SPDX-License-Identifier: LGPL-2.1-or-later
"""What operators see of a turn: the data of commands, health checks, the progress event."""
from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .errors import Code, Reason, Refused, as_json, texts, warning
from .holds import Row
from .mitigation.controller import Mitigated
from .observation import Observation
from .options import Options
from .probe.report import Probed
from .rebalance import report
from .rebalance.pinning import unpinnable_excess, waiting
from .rebalance.report import to_check
from .rebalance.requests import Request, apply, check
from .rebalance.types import ENDED, Campaign, Phase
from .store import ADVICE
from .tables import eta_text, pgs, pgs_are, seconds_text
from .watch.controller import Watched

Json = Dict[str, Any]

HELD_PINS = 'PERFGUARD_HELD_PINS'


@dataclass(frozen=True)
class Published:
    """What commands see: the state at the end of one turn."""
    status: Json = field(default_factory=lambda: {
        'phase': 'IDLE', 'mode': 'off', 'health': [], 'signals': {}, 'pools': [],
        'probe': None, **told([Reason(
            Code.STARTING, 'perfguard has just started and is reading the cluster')])})
    rebalance: Json = field(default_factory=dict)
    plan: Json = field(default_factory=dict)
    watched: Watched = field(default_factory=Watched)
    mitigated: Mitigated = field(default_factory=Mitigated)
    events: Tuple[Json, ...] = ()
    history: Tuple[Json, ...] = ()
    campaign: Optional[Campaign] = None
    pins: int = 0
    unhealthy: Tuple[Reason, ...] = ()
    #: What is borrowed from the cluster.
    held: Tuple[Row, ...] = ()
    #: Why no campaign can begin, whatever is forced; '' for nothing.
    unfit: str = ''
    #: Why norebalance must not be given back; '' for nothing.
    loose: str = ''
    #: When the turn was, in seconds since the epoch (0.0: there was none yet), and after how many
    #: more the next one is late.
    turned: float = 0.0
    stale_after: float = 0.0


def foreseen(published: Published, request: Request, now: float) -> Published:
    """What commands shall see of a request that waits for the next turn.

    Without it, whoever asks to pin and then waits for PINNED could be shown the phase from before.
    """
    if not published.rebalance:
        return published  # before the first turn there is nothing to change
    if published.campaign is not None:
        try:
            check(published.campaign, request, published.pins, published.unhealthy,
                  loose=published.loose)
        except Refused:
            return published
    requested = told([Reason(Code.REQUESTED, '"rebalance %s" is requested' % request.verb)])
    if request.verb == 'prepare':
        # Whoever follows the new campaign must not be shown the end of the one before.
        return replace(published, rebalance={
            **published.rebalance, **requested, 'id': None, 'phase': Phase.IDLE.value})
    if published.campaign is None:
        return published
    campaign = apply(published.campaign, request, now)
    changes = {'phase': campaign.phase.value, **requested}
    return replace(published, campaign=campaign, status={**published.status, **changes}, rebalance={
        **published.rebalance, **changes, **report.paused(campaign),
        'settings': dict(campaign.settings)})


def aged(published: Published, now: float) -> Json:
    """`perfguard status` with its age, which is None before the first turn."""
    if not published.turned:
        return {**published.status, 'age_seconds': None}
    age = max(0.0, now - published.turned)
    stale = [Reason(Code.STALE, 'this status is %s old: the loop has completed '
                    'no iteration since then'
                    % seconds_text(age))] if age > published.stale_after else []
    return {**_with_reasons(published.status, stale), 'age_seconds': round(age, 1)}


def _with_reasons(status: Json, first: Sequence[Reason]) -> Json:
    found = told(first)
    return {**status, **{key: found[key] + status.get(key, []) for key in found}}


def failing(published: Published, check: Mapping[str, Any]) -> Published:
    """With a health check that no turn could publish."""
    status = published.status
    known = set(status['health'])
    first = [Reason(code, '%s (%s)' % (each['summary'], code)) for code, each in check.items()
             if code not in known]
    return replace(published, status={
        **_with_reasons(status, first), 'health': sorted({*known, *check})})


def with_pins(osds: Sequence[Json], plan: Json) -> List[Json]:
    """The rows of `perfguard osds`, with the PGs that are still to come and to go."""
    loads = {load['osd']: load for load in plan.get('osds', ())}
    nothing = {'pgs_in': 0, 'pgs_out': 0}
    return [{**row, **{key: loads.get(row['osd'], nothing)[key] for key in nothing}}
            for row in osds]


def status(seen: Observation, rebalance: Json, reasons: Sequence[Reason],
           checks: Mapping[str, Any], watched: Watched, mitigated: Mitigated,
           probe: Optional[Json], turn_seconds: float, remarks: Sequence[str]) -> Json:
    """`perfguard status`; `rebalance` and `reasons` are those of report.status, `probe` the active
    one, `turn_seconds` the CPU time of the last turn of the loop, `remarks` what else there is."""
    signals, counts = seen.signals, seen.signals.counts
    return {
        'phase': rebalance['phase'], 'mode': mitigated.listing['mode'],
        'health': sorted(checks),
        'signals': {
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
            'osdmap_epoch': seen.osdmap.epoch, 'health_status': signals.health_status,
            **watched.signals},
        'pools': list(watched.pools), 'rebalance': {key: rebalance[key] for key in (
            'id', 'total', 'pinned', 'in_flight', 'released', 'bytes_total', 'bytes_done',
            'eta_seconds')},
        'probe': probe, 'turn_cpu_ms': round(1000 * turn_seconds, 2),
        **told([*reasons, *probe_reasons(probe), *mitigated.reasons, *watch_reasons(
            signals.misplaced_ratio, rebalance, checks, watched.failure),
            *(Reason(Code.REMARK, text) for text in remarks)])}


def told(reasons: Sequence[Reason]) -> Json:
    return {'reasons': texts(reasons), 'limits': as_json(reasons)}


def probe_reasons(probe: Optional[Json]) -> List[Reason]:
    if probe is None:
        return []
    return [Reason(Code.PROBE, 'probe %(id)d of %(target)s is active: %(text)s' % probe)]


def watch_reasons(misplaced_ratio: float, rebalance: Json,
                  checks: Mapping[str, Any], failure: str) -> List[Reason]:
    """What the watch has found, and whose doing it is that objects are misplaced."""
    found = [Reason(code, '%s (%s)' % (check['summary'], code))
             for code, check in sorted(checks.items())]
    if failure:
        found.append(Reason(Code.WATCH_FAILED, 'the readings of the OSDs could not be processed '
                            '(see the mgr log): ' + failure))
    if misplaced_ratio > 0.0:
        found.append(Reason(Code.MISPLACED, '%.2f %% of the objects are misplaced%s' % (
            100 * misplaced_ratio, _mover(rebalance))))
    return found


def _mover(rebalance: Json) -> str:
    if rebalance['in_flight']:
        return ': campaign %d moves %s' % (rebalance['id'], pgs(rebalance['in_flight']))
    if Phase(rebalance['phase']) not in ENDED:
        return ', and campaign %d moves none at present' % rebalance['id']
    return ', and no campaign moves them'


def progress_message(campaign: Campaign, rebalance: Json) -> str:
    """Of the progress event; `rebalance` as `rebalance status`."""
    text = report.progress_text(campaign)
    return text if rebalance['eta_seconds'] is None else '%s, %s left' % (
        text, eta_text(rebalance))


def health_checks(campaign: Optional[Campaign], seen: Observation, options: Options,
                  reasons: Sequence[str], interrupted: Sequence[str]) -> Dict[str, Any]:
    """As MgrModule.set_health_checks takes them. `interrupted`: what could not be read."""
    checks: Dict[str, Any] = {}
    stall = report.stalled(campaign, seen.now, options)
    if stall is not None:
        checks['PERFGUARD_STALLED'] = warning(stall, reasons or [stall])
    if interrupted:
        checks['PERFGUARD_INTERRUPTED'] = warning(
            'perfguard could not read all of its state',
            [*interrupted, *(to_check(seen) if ADVICE in interrupted else ())])
    if campaign is not None and campaign.active and campaign.unpinnable:
        excess = unpinnable_excess(campaign, campaign.total, options)
        checks['PERFGUARD_UNPINNABLE'] = warning(
            '%s cannot be pinned%s' % (
                pgs(len(campaign.unpinnable)),
                '; releases wait for "rebalance start" or "rebalance abort"' if excess else ''),
            ['PG %s: %s' % item for item in sorted(campaign.unpinnable.items())])
    if campaign is not None and campaign.held:
        count = campaign.left + len(campaign.unpinnable)
        checks[HELD_PINS] = {**warning(
            'campaign %d is aborted and holds %s in place' % (campaign.id, pgs(count)),
            held_detail(campaign, seen)), 'count': count}
    return checks


def held_detail(campaign: Campaign, seen: Observation) -> List[str]:
    """What stays as it is until the operator decides, and the ways out."""
    detail = ['%s pinned where the data is' % (
        pgs_are(campaign.left))]
    if campaign.unpinnable:
        detail.append('%s cannot be pinned and would move without norebalance, '
                      'so norebalance stays set'
                      % pgs(len(campaign.unpinnable)))
    if waiting(campaign):
        detail.append('%s of these must recover before it can be pinned'
                      % pgs(waiting(campaign)))
    if seen.settings.balancer_active == 'false':
        detail.append('the balancer is off because it would move pinned PGs')
    else:
        detail.append('the balancer is on and may move pinned PGs: "ceph balancer off" stops it')
    pools = sorted(seen.osdmap.pools[pool].name for pool in campaign.holds.autoscale
                   if pool in seen.osdmap.pools)
    if pools:
        detail.append('pg_autoscale_mode is off for %s because a change of pg_num would remove pins'
                      % ', '.join(pools))
    return detail + [
        '"ceph perfguard rebalance resume" continues to release the PGs',
        '"ceph perfguard rebalance rollback" restores the CRUSH weights or map from before the '
        'campaign, if they are known',
        '"ceph perfguard rebalance finish --keep" turns the pins into ordinary upmaps and gives '
        'back the balancer, which may move them']


# ---- What the page of the dashboard is shown in one answer

#: In one answer, which is asked for again and again.
MOST_EVENTS = 100
MOST_PROBES = 20
MOST_PGS = 50


def overview(published: Published, probed: Probed, drawn: Json, since: float, now: float) -> Json:
    """`drawn`: Watch.drawn; `since` and `now`: seconds since the epoch, of the mgr's clock."""
    return {
        'now': round(now, 3), 'turned': round(published.turned, 3),
        'stale_after': round(published.stale_after, 3), 'status': aged(published, now),
        'rebalance': _bounded(published.rebalance, 'unpinnable'),
        'mitigation': published.mitigated.listing,
        'laggy': _bounded(published.watched.laggy, 'pgs'),
        'events': _newer(published.events, since),
        'probe': probed.listing(MOST_PROBES),
        'schedules': probed.schedules_json()['schedules'], 'series': drawn}


def _bounded(document: Json, key: str) -> Json:
    """With the first PGs of a list, and how many there are."""
    pgs = document.get(key, [])
    return {**document, key: pgs[:MOST_PGS], key + '_count': len(pgs)}


def _newer(events: Sequence[Json], since: float) -> List[Json]:
    return [event for event in events[-MOST_EVENTS:] if event['time'] > since]
