# SPDX-License-Identifier: LGPL-2.1-or-later
"""Rates and latencies from counters that only grow."""
from typing import Optional

from ..cluster.types import Ops, OsdCounters
from .types import Flow, NO_FLOW, OsdSample

#: An OSD's report that comes later than this after the one before is not one interval any more.
LONGEST_SECONDS = 120.0


def sample(osd: int, before: OsdCounters, after: OsdCounters) -> Optional[OsdSample]:
    """What an OSD did between two reports.

    None where that cannot be told: it started anew in between, reports nonsense, a clock jumped,
    or the reports are one and the same.
    """
    seconds = after.time - before.time
    if not 0.0 < seconds <= LONGEST_SECONDS:
        return None
    pairs = [(a, b) for a, b in zip(before, after) if isinstance(a, Ops) and isinstance(b, Ops)]
    if not all(difference(a, b).sane for a, b in pairs):
        return None
    write = difference(before.write, after.write)
    # From arrival to dequeuing, and from there until it is sent to the store and the replicas.
    own = Ops(write.sum_ns - difference(before.write_process, after.write_process).sum_ns
              + difference(before.write_prepare, after.write_prepare).sum_ns, write.number)
    return OsdSample(
        osd, seconds, flow(difference(before.read, after.read), seconds), flow(write, seconds),
        flow(own, seconds), flow(difference(before.commit, after.commit), seconds),
        flow(difference(before.store_read, after.store_read), seconds))


def difference(before: Ops, after: Ops) -> Ops:
    return Ops(after.sum_ns - before.sum_ns, after.number - before.number)


def flow(ops: Ops, seconds: float) -> Flow:
    """Operations of `seconds` seconds."""
    if ops.number <= 0 or seconds <= 0.0 or ops.sum_ns < 0:
        return NO_FLOW
    return Flow(ops.number / seconds, ops.sum_ns / ops.number / 1e6)
