# SPDX-License-Identifier: LGPL-2.1-or-later
"""What speaks for mitigation: what clients suffer from, while data moves."""
from typing import List, Mapping, Sequence

from ..cluster.types import Signals
from ..reasons import Code, Reason
from ..words import pgs_are, plural
from .types import Evidence


def evidence(signals: Signals, laggy: bool, late: Sequence[str], slow_osds: Mapping[int, str],
             unknown: bool) -> Evidence:
    """`laggy`: PGs are laggy, or have waited for read leases for long, or did a moment ago.

    `late`: what takes longer than usual, as in "reads of pool rbd". A slow OSD is evidence against
    itself alone: it may stay slow for weeks, and a campaign that drains it must not wait for that.
    """
    counts = signals.counts
    trouble: List[Reason] = []
    if counts.laggy:
        trouble.append(Reason(Code.LAGGY, '%s laggy' % pgs_are(counts.laggy)))
    elif laggy and counts.wait:
        trouble.append(Reason(Code.LEASES, '%s waiting for read leases to end'
                              % pgs_are(counts.wait)))
    elif laggy:
        trouble.append(Reason(Code.LAGGY_LATELY, 'PGs were laggy within the last three reports'))
    slow_ops = sum(number for daemon, number in signals.slow_daemons.items()
                   if daemon.startswith('osd.'))
    if slow_ops:
        trouble.append(Reason(Code.SLOW_OPS, plural(slow_ops, 'slow operation')))
    trouble += [Reason(Code.SLOW_POOL, '%s are slower than usual' % text) for text in late]
    rebalancing = counts.remapped + counts.backfilling + counts.backfill_wait > 0
    return Evidence(tuple(trouble), rebalancing or counts.recovering > 0, rebalancing,
                    counts.degraded, dict(slow_osds), unknown)
