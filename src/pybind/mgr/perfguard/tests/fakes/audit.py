# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the cluster in memory knows of the PGs that were released, counted against the caps.

Counted from what the mon was sent and what the PGs did, with nothing of the module's own count.
"""
from collections import Counter
from typing import Counter as CounterType, Dict, List

from perfguard.options import Options

from .cluster import FakeCluster


def load(cluster: FakeCluster) -> Dict[str, CounterType[int]]:
    """Role -> OSD, host or failure domain -> PGs that use it."""
    found: Dict[str, CounterType[int]] = {
        role: Counter() for role in ('source', 'target', 'primary', 'host', 'domain')}
    for transfer in cluster.released.values():
        found['source'].update(transfer.readers)
        found['target'].update(transfer.targets)
        found['primary'][transfer.primary] += 1
        used = transfer.sources | transfer.targets
        found['host'].update({cluster.toys[osd].host for osd in used})
        found['domain'].update({cluster.toys[osd].domain for osd in used})
    return found


def over_caps(cluster: FakeCluster, options: Options) -> List[str]:
    """The caps that PGs in flight exceed."""
    wrong = ['%d PGs in flight' % len(cluster.released)] \
        if len(cluster.released) > options.max_pgs_in_flight else []
    for role, counts in load(cluster).items():
        cap = getattr(options, 'max_backfills_%s' % role)
        wrong += ['%s %d: %d PGs' % (role, place, number)
                  for place, number in counts.items() if number > cap]
    return wrong
