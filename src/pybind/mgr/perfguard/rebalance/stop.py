# SPDX-License-Identifier: LGPL-2.1-or-later
"""Stop conditions: while one holds, nothing is released."""
from typing import List, Mapping, Tuple

from ..cluster.types import Pool, Signals
from ..reasons import Code, Reason
from ..words import pgs, pgs_are, plural

#: Health checks that stop releases, with what to say (the check's own summary follows).
STOP_CHECKS = {
    'MON_DOWN': Reason(Code.MON_DOWN, 'mons out of quorum'),
    'OSD_FULL': Reason(Code.OSD_FULL, 'full OSDs'),
    'POOL_FULL': Reason(Code.POOL_FULL, 'full pools'),
    'SLOW_OPS': Reason(Code.SLOW_OPS, 'slow operations'),
    'OSD_SLOW_PING_TIME_BACK': Reason(Code.SLOW_PING, 'slow heartbeats'),
    'OSD_SLOW_PING_TIME_FRONT': Reason(Code.SLOW_PING, 'slow heartbeats'),
}
#: Further checks under which a campaign is not begun. Once it has begun, full OSDs are what it
#: relieves: nothing is released onto them, and what leaves them goes first.
UNHEALTHY_CHECKS = {
    'OSD_BACKFILLFULL': Reason(Code.OSD_BACKFILLFULL, 'OSDs too full to be backfilled'),
    'PG_BACKFILL_FULL': Reason(Code.BACKFILL_TOOFULL, 'PGs too full to be backfilled'),
    'OSD_DOWN': Reason(Code.OSD_DOWN, 'OSDs down'),
    'OSD_HOST_DOWN': Reason(Code.OSD_HOST_DOWN, 'hosts down'),
    'OSD_NEARFULL': Reason(Code.OSD_NEARFULL, 'nearly full OSDs'),
    'OSD_SCRUB_ERRORS': Reason(Code.OSD_SCRUB_ERRORS, 'scrub errors'),
    'PG_DAMAGED': Reason(Code.PG_DAMAGED, 'damaged PGs'),
}


def stop_conditions(signals: Signals) -> List[Reason]:
    """Reasons not to release anything now."""
    counts = signals.counts
    reasons: List[Reason] = []
    stuck = counts.inactive - counts.in_transition
    for number, code, text in (
            (counts.laggy, Code.LAGGY, 'laggy'),
            (counts.wait, Code.LEASES, 'waiting for read leases to end'),
            (stuck, Code.INACTIVE, 'inactive'), (counts.degraded, Code.DEGRADED, 'degraded')):
        if number > 0:
            reasons.append(Reason(code, '%s %s' % (pgs_are(number), text)))
    reasons += _checks(STOP_CHECKS, signals)
    if signals.slow_ops and 'SLOW_OPS' not in signals.health:
        reasons.append(Reason(Code.SLOW_OPS, plural(signals.slow_ops, 'slow operation')))
    return reasons


def _checks(checks: Mapping[str, Reason], signals: Signals) -> List[Reason]:
    return [Reason(reason.code, '%s: %s' % (reason.text, signals.health[check]))
            for check, reason in checks.items() if check in signals.health]


def unhealthy(signals: Signals, pools: Tuple[Pool, ...]) -> List[Reason]:
    """Reasons not to begin a campaign without --force."""
    reasons = stop_conditions(signals)
    if signals.counts.backfill_toofull:
        reasons.append(Reason(Code.BACKFILL_TOOFULL, '%s too full to be backfilled'
                              % pgs_are(signals.counts.backfill_toofull)))
    if signals.counts.in_transition:
        reasons.append(Reason(Code.PEERING, '%s peering or activating'
                              % pgs_are(signals.counts.in_transition)))
    reasons += _checks(UNHEALTHY_CHECKS, signals)
    for pool in pools:
        if pool.pg_num != pool.pg_num_target or pool.pg_num_pending != pool.pg_num:
            reasons.append(Reason(Code.PG_NUM_CHANGING, 'pool %s is changing from %s to %d'
                                  % (pool.name, pgs(pool.pg_num), pool.pg_num_target)))
    return reasons
