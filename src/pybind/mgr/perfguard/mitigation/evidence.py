# SPDX-License-Identifier: LGPL-2.1-or-later
"""Evidence for and against mitigation, from the signals of the cluster. Pure."""
from typing import List, Mapping, Sequence

from ..cluster.types import Signals
from ..errors import Code, Reason
from ..tables import pgs_are, plural
from .types import Evidence


def evidence(signals: Signals, laggy: bool, late: Sequence[str], slow_osds: Mapping[int, str],
             unknown: bool, wedged: Mapping[str, str]) -> Evidence:
    """`laggy`: PGs are or were laggy, or wait for read leases for too long.

    `late`: operations that are slower than their baseline ("reads of pool rbd"). A slow OSD is
    evidence for its primary affinity only: it may be slow for weeks, and a campaign that drains it
    must not wait for that.
    """
    counts = signals.counts
    trouble: List[Reason] = []
    if counts.laggy:
        trouble.append(Reason(Code.LAGGY, '%s laggy' % pgs_are(counts.laggy)))
    elif laggy and counts.wait:
        trouble.append(Reason(Code.LEASES, '%s waiting for read leases to expire'
                              % pgs_are(counts.wait)))
    elif laggy:
        trouble.append(Reason(Code.LAGGY_LATELY, 'PGs were laggy within the last three reports'))
    slow_ops = sum(number for daemon, number in signals.slow_daemons.items()
                   if daemon.startswith('osd.'))
    if slow_ops:
        trouble.append(Reason(Code.SLOW_OPS, plural(slow_ops, 'slow operation')))
    trouble += [Reason(Code.SLOW_POOL, '%s are slower than their baseline' % text) for text in late]
    rebalancing = counts.remapped + counts.backfilling + counts.backfill_wait > 0
    blocked = counts.undersized_empty > 0 and counts.degraded_waiting > 0
    return Evidence(tuple(trouble), rebalancing or counts.recovering > 0, rebalancing,
                    counts.degraded, blocked, dict(slow_osds), dict(wedged), unknown)
