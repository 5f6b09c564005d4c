# SPDX-License-Identifier: LGPL-2.1-or-later
"""What each OSD does: its flows from report to report, and their history."""
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Set

from ..cluster.types import ClientOps, Ops, OsdCounters, PgCounts
from .pools import mean_flow, recent
from .series import CONDENSED_POINTS, DETAILED_POINTS, READS, READ_NS, WRITES, WRITE_NS, History
from .types import NO_FLOW, SCRUB, SOURCE, TARGET, Flow, OsdSample

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


#: Further columns of an OSD's history.
COMMITS, COMMIT_NS = range(4, 6)
#: All OSDs together keep so many points: beyond 1,000 OSDs, each keeps less than an hour.
ALL_POINTS = 1000 * DETAILED_POINTS
#: Reads of erasure coded pools wait for other OSDs; above this share they would accuse the wrong
#: one.
ERASURE_SHARE = 0.1


class OsdFlows(NamedTuple):
    """One OSD in the last minute."""
    read: Flow = NO_FLOW
    write: Flow = NO_FLOW
    commit: Flow = NO_FLOW


NO_FLOWS = OsdFlows()


class OsdWatch:
    def __init__(self) -> None:
        self._last: Dict[int, OsdCounters] = {}
        self._histories: Dict[int, History] = {}

    def update(self, now: float, counters: Mapping[int, OsdCounters]) -> List[OsdSample]:
        """The samples of those OSDs that have reported since the last time."""
        samples: List[OsdSample] = []
        for osd, after in counters.items():
            before = self._last.get(osd)
            found = sample(osd, before, after) if before is not None else None
            self._last[osd] = after
            if found is not None:
                samples.append(found)
                self._remember(now, found, len(counters))
        for osd in set(self._last) - set(counters):
            del self._last[osd]
            self._histories.pop(osd, None)
        return samples

    def _remember(self, now: float, found: OsdSample, osds: int) -> None:
        history = self._histories.get(found.osd)
        if history is None:
            points = max(12, min(DETAILED_POINTS, ALL_POINTS // max(1, osds)))
            history = self._histories[found.osd] = History(
                6, points, max(12, CONDENSED_POINTS * points // DETAILED_POINTS))
        sums: List[float] = []
        for flow in (found.read, found.write, found.commit):
            number = flow.rate * found.seconds
            sums += [number, number * flow.ms * 1e6]
        history.add(now, found.seconds, sums)

    def flows(self, osd: int, now: float, period: float) -> Optional[OsdFlows]:
        """None: it has not reported twice yet."""
        history = self._histories.get(osd)
        if history is None:
            return None
        points = recent(history.detailed, now, period)
        return OsdFlows(mean_flow(points, READS, READ_NS), mean_flow(points, WRITES, WRITE_NS),
                        mean_flow(points, COMMITS, COMMIT_NS))

    def history(self, osd: int) -> Optional[History]:
        return self._histories.get(osd)


def without_erasure(samples: Sequence[OsdSample], clients: Sequence[ClientOps],
                    erasure: Set[int]) -> List[OsdSample]:
    """The samples without client reads where many of these went to erasure coded pools."""
    if not erasure:
        return list(samples)
    reads: Dict[int, List[int]] = {}
    for row in clients:
        sums = reads.setdefault(row.osd, [0, 0])
        sums[row.pool in erasure] += row.read.number
    found = []
    for each in samples:
        # Where nothing is known of an OSD's reads, they are not held against it.
        replicated, coded = reads.get(each.osd, (0, 1))
        accuses = coded <= ERASURE_SHARE * (replicated + coded)
        found.append(each if accuses else each._replace(read=NO_FLOW))
    return found


def busy(counts: Mapping[int, PgCounts], counters: Mapping[int, OsdCounters]) -> Dict[int, str]:
    """OSDs that have other work than clients', and which.

    An OSD that holds PGs without being in their acting set is being filled, or about to be
    emptied of what others have taken over.
    """
    moving = any(count.backfilling or count.backfill_wait for count in counts.values())
    found: Dict[int, str] = {}
    for osd, read in counters.items():
        count = counts.get(osd, PgCounts())
        if moving and read.pgs > count.total:
            found[osd] = TARGET
        elif count.backfilling or count.recovering:
            found[osd] = SOURCE
        elif count.deep_scrubbing:
            found[osd] = SCRUB
    return found
