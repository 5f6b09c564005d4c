# SPDX-License-Identifier: LGPL-2.1-or-later
"""What operators see of a turn: the data of commands, health checks, the progress event."""
from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .options import Options
from .rebalance import report
from .rebalance.requests import Refused, Request, apply, check
from .rebalance.turn import Observation
from .rebalance.types import Campaign

Json = Dict[str, Any]

#: Ceph keeps so many lines of a health check's detail.
DETAIL_LINES = 50


@dataclass(frozen=True)
class Published:
    """What commands see: the state at the end of one turn."""
    status: Json = field(default_factory=lambda: {
        'phase': 'IDLE', 'mode': 'off', 'health': [], 'signals': {}, 'pools': [],
        'reasons': ['perfguard has just started']})
    rebalance: Json = field(default_factory=dict)
    plan: Json = field(default_factory=dict)
    events: Tuple[Json, ...] = ()
    history: Tuple[Json, ...] = ()
    campaign: Optional[Campaign] = None
    pins: int = 0
    unhealthy: Tuple[str, ...] = ()


def foreseen(published: Published, request: Request, now: float) -> Published:
    """What commands shall see of a request that waits for the next turn.

    Without it, whoever asks to pin and then waits for PINNED could be shown the phase from before.
    """
    if published.campaign is None or request.verb == 'prepare':
        return published
    try:
        check(published.campaign, request, published.pins, published.unhealthy)
    except Refused:
        return published
    campaign = apply(published.campaign, request, now)
    changes = {'phase': campaign.phase.value,
               'reasons': ['"rebalance %s" was asked for' % request.verb]}
    return replace(published, campaign=campaign,
                   rebalance={**published.rebalance, **changes, 'paused': campaign.paused},
                   status={**published.status, **changes})


def idle_reasons(seen: Observation, campaign: Optional[Campaign]) -> List[str]:
    """`campaign`: the last one, if this mgr knows it."""
    remapped = len(seen.osdmap.pg_temp)
    if remapped:
        return ['%d PGs are remapped and no campaign holds them: '
                '"rebalance prepare", then "rebalance pin"' % remapped]
    if campaign is not None:
        return ['campaign %d is %s: %d PGs released, %d left pinned' % (
            campaign.id, campaign.phase.value, campaign.released, campaign.kept)]
    return ['no campaign is under way']


def status(seen: Observation, rebalance: Json, checks: Mapping[str, Any]) -> Json:
    """`perfguard status`; `rebalance` is that of report.status."""
    signals, counts = seen.signals, seen.signals.counts
    return {
        'phase': rebalance['phase'], 'mode': 'off', 'health': sorted(checks),
        'signals': {
            'laggy_pgs': counts.laggy + counts.wait, 'misplaced_ratio': signals.misplaced_ratio,
            'slow_ops': signals.slow_ops, 'pgs': counts.total,
            'active_clean_pgs': counts.active_clean, 'inactive_pgs': counts.inactive,
            'degraded_pgs': counts.degraded, 'remapped_pgs': counts.remapped,
            'backfilling_pgs': counts.backfilling, 'backfill_wait_pgs': counts.backfill_wait,
            'backfill_toofull_pgs': counts.backfill_toofull,
            'recovery_bytes_per_second': signals.recovery_bytes_per_second,
            'osdmap_epoch': seen.osdmap.epoch, 'health_status': signals.health_status},
        'pools': [], 'rebalance': {key: rebalance[key] for key in (
            'id', 'total', 'pinned', 'in_flight', 'released', 'bytes_total', 'bytes_done',
            'eta_seconds')},
        'reasons': rebalance['reasons']}


def health_checks(campaign: Optional[Campaign], now: float, options: Options,
                  reasons: Sequence[str], interrupted: Sequence[str]) -> Dict[str, Any]:
    """As MgrModule.set_health_checks takes them. `interrupted`: what could not be read."""
    checks: Dict[str, Any] = {}
    stall = report.stalled(campaign, now, options)
    if stall is not None:
        checks['PERFGUARD_STALLED'] = _warning(stall, reasons or [stall])
    if interrupted:
        checks['PERFGUARD_INTERRUPTED'] = _warning(
            'perfguard could not read all of its state', interrupted)
    if campaign is not None and campaign.active and campaign.unpinnable:
        checks['PERFGUARD_UNPINNABLE'] = _warning(
            '%d PGs cannot be pinned where their data is' % len(campaign.unpinnable),
            ['PG %s: %s' % item for item in sorted(campaign.unpinnable.items())])
    return checks


def _warning(summary: str, detail: Sequence[str]) -> Json:
    return {'severity': 'warning', 'summary': summary, 'count': len(detail),
            'detail': list(detail[:DETAIL_LINES])}


def progress_id(campaign: Campaign) -> str:
    """The same in every mgr, so that one takes over the event of another."""
    return 'perfguard-rebalance-%d' % campaign.id


def progress_text(campaign: Campaign) -> str:
    return 'perfguard rebalance %d: %s, %d of %d PGs released' % (
        campaign.id, campaign.phase.value, campaign.released, campaign.total)
