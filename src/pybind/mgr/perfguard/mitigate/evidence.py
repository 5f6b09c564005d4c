# SPDX-License-Identifier: LGPL-2.1-or-later
"""What speaks for mitigation: what clients suffer from, while data moves."""
from typing import List, Mapping, Sequence

from ..cluster.types import Signals
from .types import Evidence


def evidence(signals: Signals, laggy: bool, late: Sequence[str], slow_osds: Mapping[int, str],
             unknown: bool) -> Evidence:
    """`laggy`: PGs are laggy, or have waited for read leases for long, or did a moment ago.

    `late`: what takes longer than usual, as in "reads of pool rbd". A slow OSD is evidence against
    itself alone: it may stay slow for weeks, and a campaign that drains it must not wait for that.
    """
    counts = signals.counts
    trouble: List[str] = []
    if counts.laggy:
        trouble.append('%d PGs are laggy' % counts.laggy)
    elif laggy:
        trouble.append('%d PGs are waiting for read leases to end' % counts.wait if counts.wait
                       else 'PGs were laggy a moment ago')
    slow_ops = sum(number for daemon, number in signals.slow_daemons.items()
                   if daemon.startswith('osd.'))
    if slow_ops:
        trouble.append('%d slow operations' % slow_ops)
    trouble += ['%s are slower than usual' % text for text in late]
    rebalancing = counts.remapped + counts.backfilling + counts.backfill_wait > 0
    return Evidence(tuple(trouble), rebalancing or counts.recovering > 0, rebalancing,
                    counts.degraded, dict(slow_osds), unknown)
