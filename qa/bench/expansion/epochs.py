# SPDX-License-Identifier: LGPL-2.1-or-later
"""What each OSDMap epoch of an expansion was for, and how long released PGs waited in it."""

import bisect
from collections import Counter
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Dict, FrozenSet, List, Mapping, Sequence, Set, Tuple

from qa.cluster import Cluster
from qa.cluster.samples import Sample

#: The mons keep all OSDMaps of a run, also those of a clean cluster.
KEEP_MAPS = {'mon_min_osdmap_epochs': '20000'}

#: A CRUSH change with its pins; a pin of a PG that was remapped; a PG whose upmap was changed,
#: with or without its pg_temp in the same epoch.
CRUSH, PIN, PRIMED, RELEASE = 'crush', 'pin', 'release with pg_temp', 'release'
#: OSDs that ask for a pg_temp, or for its end as all data has arrived.
PEERING, ARRIVAL = 'pg_temp set', 'pg_temp cleared'
#: An OSD that has to be alive in an interval before its PGs are active in it. A message about
#: pg_temp says so as well, and does not count.
UP_THRU = 'up_thru'
FLAGS, POOL, OTHER = 'flags', 'pool', 'other'
CAUSES = (CRUSH, PIN, PRIMED, RELEASE, PEERING, ARRIVAL, UP_THRU, FLAGS, POOL, OTHER)

#: Cause -> how many PGs, OSDs or pools it concerned.
Found = Dict[str, int]
Dump = Mapping[str, Any]


@dataclass(frozen=True)
class Epochs:
    """The epochs of one expansion."""
    total: int
    #: PGs whose upmap was changed to let them move.
    released: int
    #: Cause -> times it occurred; epochs that had it; and its share of the epochs, where those
    #: of several causes are split evenly.
    events: Mapping[str, int]
    epochs: Mapping[str, int]
    shares: Mapping[str, float]
    #: Seconds from the epoch of a release with pg_temp to the one in which the PG's primary is
    #: alive: percentile -> seconds. Until then the PG is not active.
    waits: Mapping[str, float]

    @property
    def per_pg(self) -> float:
        return self.total / max(1, self.released)


def measure(cluster: Cluster, first: int, last: int) -> Dict[str, Any]:
    """Epochs from `first` (not included) to `last`, for the raw result."""
    found: List[Found] = []
    times: List[float] = []
    waits = Waits()
    before = cluster.mon('osd dump', epoch=first)
    for epoch in range(first + 1, last + 1):
        after = cluster.mon('osd dump', epoch=epoch)
        found.append(causes(before, after))
        times.append(_time(after))
        waits.look(before, after)
        before = after
    epochs = summary(found, waits.seconds)
    return {**asdict(epochs), 'per_pg': epochs.per_pg, 'times': times}


#: Seconds from the last epoch to the end of an operation, at most.
NEAR_SECONDS = (0.04, 0.16, 0.8, float('inf'))


def slow_by_distance(samples: Sequence[Sample], times: Sequence[float],
                     limit_ms: float) -> List[Dict[str, float]]:
    """Where slow operations wait: their distance from the last of the epochs at `times` (ascending,
    seconds since the epoch), one row for each of NEAR_SECONDS, with the share of all operations and
    of those over `limit_ms`, both of all operations."""
    operations, slow = Counter[float](), Counter[float]()
    for sample in samples:
        end = sample.scheduled + sample.latency_ms / 1e3
        last = bisect.bisect_right(times, end) - 1
        distance = end - times[last] if last >= 0 else float('inf')
        within = next(seconds for seconds in NEAR_SECONDS if distance <= seconds)
        operations[within] += 1
        slow[within] += sample.latency_ms > limit_ms
    number = max(1, len(samples))
    return [{'within': seconds, 'operations': operations[seconds] / number,
             'slow': slow[seconds] / number} for seconds in NEAR_SECONDS]


def slow_share(samples: Sequence[Sample], limit_ms: float) -> float:
    """The share of operations over `limit_ms`."""
    return sum(sample.latency_ms > limit_ms for sample in samples) / max(1, len(samples))


class Waits:
    """How long primaries of released PGs wait until the mons show them alive."""

    def __init__(self) -> None:
        self.seconds: List[float] = []
        #: Primary, epoch and time of each release that waits.
        self._waiting: List[Tuple[int, int, float]] = []

    def look(self, before: Dump, after: Dump) -> None:
        up_thru, now = _up_thrus(after), _time(after)
        self.seconds += [now - then for osd, epoch, then in self._waiting if up_thru[osd] >= epoch]
        self._waiting = [wait for wait in self._waiting if up_thru[wait[0]] < wait[1]]
        temps = _temps(after)
        self._waiting += [(temps[pgid][0], after['epoch'], now)
                          for pgid in _released(before, after) & set(temps)]


def causes(before: Dump, after: Dump) -> Found:
    """What has changed from one OSDMap to the next."""
    old, new = _temps(before), _temps(after)
    upmaps, released = _changed_upmaps(before, after), _released(before, after)
    crush = before['crush_version'] != after['crush_version']
    arrived = set(old) - set(new) - upmaps
    asked = {pgid for pgid, osds in new.items() if old.get(pgid) != osds} - upmaps
    found = {
        CRUSH: int(crush), PIN: 0 if crush else len(upmaps - released),
        PRIMED: len(released & set(new)), RELEASE: len(released - set(new)),
        PEERING: len(asked), ARRIVAL: len(arrived),
        UP_THRU: max(0, len(_newly_alive(before, after)) - len(asked) - len(arrived)),
        FLAGS: int(before['flags'] != after['flags']), POOL: _changed_pools(before, after)}
    return {cause: count for cause, count in found.items() if count} or {OTHER: 1}


def summary(found: Sequence[Found], waits: Sequence[float]) -> Epochs:
    """`found`: the causes of each epoch."""
    events = {cause: sum(each.get(cause, 0) for each in found) for cause in CAUSES}
    epochs = {cause: sum(cause in each for each in found) for cause in CAUSES}
    shares = {cause: sum(1 / len(each) for each in found if cause in each) for cause in CAUSES}
    ordered = sorted(waits) or [0.0]
    percentiles = {'p%d' % share: ordered[int(share / 100 * (len(ordered) - 1))]
                   for share in (50, 90, 99)}
    return Epochs(len(found), events[PRIMED] + events[RELEASE],
                  _present(events), _present(epochs), _present(shares), percentiles)


def _present(counts: Mapping[str, Any]) -> Dict[str, Any]:
    return {cause: count for cause, count in counts.items() if count}


def _changed_upmaps(before: Dump, after: Dump) -> Set[str]:
    return {pgid for pgid, _ in _upmaps(before) ^ _upmaps(after)}


def _released(before: Dump, after: Dump) -> Set[str]:
    """PGs that were in place, and get another upmap with no change of CRUSH."""
    if before['crush_version'] != after['crush_version']:
        return set()
    return _changed_upmaps(before, after) - set(_temps(before))


def _temps(dump: Dump) -> Dict[str, Tuple[int, ...]]:
    return {row['pgid']: tuple(row['osds']) for row in dump['pg_temp']}


def _upmaps(dump: Dump) -> FrozenSet[Tuple[str, Tuple[int, ...]]]:
    vectors = {(row['pgid'], tuple(row['osds'])) for row in dump['pg_upmap']}
    items = {(row['pgid'], tuple(osd for pair in row['mappings']
                                 for osd in (-1, pair['from'], pair['to'])))
             for row in dump['pg_upmap_items']}
    return frozenset(vectors | items)


def _up_thrus(dump: Dump) -> Dict[int, int]:
    return {osd['osd']: osd['up_thru'] for osd in dump['osds']}


def _newly_alive(before: Dump, after: Dump) -> Set[int]:
    old = _up_thrus(before)
    return {osd for osd, epoch in _up_thrus(after).items() if old.get(osd, epoch) != epoch}


def _changed_pools(before: Dump, after: Dump) -> int:
    return sum(was != now for was, now in zip(before['pools'], after['pools']))


def _time(dump: Dump) -> float:
    """When the mon made the map."""
    return datetime.strptime(dump['modified'], '%Y-%m-%dT%H:%M:%S.%f%z').timestamp()
