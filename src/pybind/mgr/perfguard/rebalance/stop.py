# SPDX-License-Identifier: LGPL-2.1-or-later
"""Stop conditions: while one holds, nothing is released."""
from typing import List, Tuple

from ..cluster.types import Pool, Signals

#: Health checks that stop releases, with what to say (the check's own summary follows).
STOP_CHECKS = {
    'MON_DOWN': 'mons out of quorum',
    'OSD_FULL': 'full OSDs',
    'POOL_FULL': 'full pools',
    'SLOW_OPS': 'slow operations',
    'OSD_SLOW_PING_TIME_BACK': 'slow heartbeats',
    'OSD_SLOW_PING_TIME_FRONT': 'slow heartbeats',
}
#: Further checks under which a campaign is not begun. Once it has begun, full OSDs are what it
#: relieves: nothing is released onto them, and what leaves them goes first.
UNHEALTHY_CHECKS = {
    'OSD_BACKFILLFULL': 'OSDs too full to be backfilled',
    'PG_BACKFILL_FULL': 'PGs too full to be backfilled',
    'OSD_DOWN': 'OSDs are down',
    'OSD_HOST_DOWN': 'hosts are down',
    'OSD_NEARFULL': 'OSDs are nearly full',
    'OSD_SCRUB_ERRORS': 'scrub errors',
    'PG_DAMAGED': 'damaged PGs',
}


def stop_conditions(signals: Signals) -> List[str]:
    """Reasons, in words, not to release anything now."""
    counts = signals.counts
    reasons: List[str] = []
    stuck = counts.inactive - counts.in_transition
    for number, text in ((counts.laggy, 'laggy'), (counts.wait, 'waiting for read leases to end'),
                         (stuck, 'inactive'), (counts.degraded, 'degraded')):
        if number > 0:
            reasons.append('%d PGs are %s' % (number, text))
    for check, text in STOP_CHECKS.items():
        if check in signals.health:
            reasons.append('%s: %s' % (text, signals.health[check]))
    if signals.slow_ops and 'SLOW_OPS' not in signals.health:
        reasons.append('%d slow operations' % signals.slow_ops)
    return reasons


def unhealthy(signals: Signals, pools: Tuple[Pool, ...]) -> List[str]:
    """Reasons, in words, not to begin a campaign without --force."""
    reasons = stop_conditions(signals)
    if signals.counts.backfill_toofull:
        reasons.append('%d PGs are too full to be backfilled' % signals.counts.backfill_toofull)
    if signals.counts.in_transition:
        reasons.append('%d PGs are peering or activating' % signals.counts.in_transition)
    for check, text in UNHEALTHY_CHECKS.items():
        if check in signals.health:
            reasons.append('%s: %s' % (text, signals.health[check]))
    for pool in pools:
        if pool.pg_num != pool.pg_num_target or pool.pg_num_pending != pool.pg_num:
            reasons.append('pg_num of pool %s is on its way from %d to %d'
                           % (pool.name, pool.pg_num, pool.pg_num_target))
    return reasons
