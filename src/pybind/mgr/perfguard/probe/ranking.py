# SPDX-License-Identifier: LGPL-2.1-or-later
"""Compares OSDs that were probed one by one, and shows interference between OSDs of one host.

The peers of an OSD have the same CRUSH root and device class, and the same drive model if enough
OSDs have it, as in the watch.
"""
import math
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..cluster.types import OsdPlace
from ..watch.peers import MAD_SIGMA, MIN_PEERS, groups_of, median
from .records import RunRecord
from .stats import Key, Measured, Repetition, rate_text, measured
from .types import AGAIN, ALONE, TOGETHER

#: Minimum spread of healthy OSDs, as a standard deviation of the logarithm.
MIN_SPREAD = 0.1
#: Weight of the minimum spread, as a number of peers.
SPREAD_WEIGHT = 4
#: Deviations and slowdown from which an OSD is an outlier. Both are required, so that neither very
#: uniform nor very mixed groups cause false alarms. 3.5 is recommended by Iglewicz and Hoaglin (How
#: to Detect and Handle Outliers, 1993).
OUTLIER_DEVIATIONS = 3.5
OUTLIER_FACTOR = 1.6
#: Ratios (together / alone, and alone again / alone) below which interference is reported, if they
#: are also more than three standard deviations below 1.
INTERFERENCE = 0.8
INTERFERENCE_DEVIATIONS = 3.0


class Rank(NamedTuple):
    """One OSD in one job and direction; values are medians of the repetitions."""
    job: str
    direction: str
    osd: int
    host: str
    device_class: str
    iops: float
    bytes_per_second: float
    latency_ns: float
    p99_ns: float
    #: IOPS / median of the peers; with a fixed rate, latency of the peers / latency. None: no
    #: peers.
    ratio: Optional[float]
    #: Robust standard deviations below the peers; negative if the OSD is faster.
    deviations: float
    peers: int
    outlier: bool


class Interference(NamedTuple):
    """IOPS of an OSD (None: the sum) alone, together with its host, and alone again."""
    job: str
    direction: str
    osd: Optional[int]
    alone: float
    together: float
    again: float
    #: Standard deviation of the logarithm of a ratio of two of these.
    spread: float

    @property
    def together_ratio(self) -> float:
        return self.together / self.alone

    @property
    def again_ratio(self) -> float:
        return self.again / self.alone


class _Median(NamedTuple):
    name: str
    iops: float
    bytes_per_second: float
    latency_ns: float
    p99_ns: float


def rank(record: RunRecord, places: Mapping[int, OsdPlace]) -> Tuple[Rank, ...]:
    """Ranks by job and direction in the order of the run, the slowest OSD first."""
    by_job: Dict[Key, Dict[int, _Median]] = {}
    for key, repetitions in measured(record.done).items():
        if key.osd is not None and not key.part:
            by_job.setdefault(key._replace(osd=None), {})[key.osd] = _median(repetitions)
    ranks: List[Rank] = []
    for key, osds in by_job.items():
        groups, _ = groups_of({osd: places[osd] for osd in osds if osd in places})
        found = [_rank(key, osd, osds, [peer for peer in osds if peer != osd
                                        and groups.get(peer) == groups.get(osd)],
                       places.get(osd)) for osd in osds]
        ranks.extend(sorted(found, key=lambda each: (-each.deviations, each.osd)))
    return tuple(ranks)


def _median(repetitions: Sequence[Repetition]) -> _Median:
    return _Median(repetitions[-1].name, *(
        median(sorted(getattr(each, name) for each in repetitions))
        for name in _Median._fields[1:]))


def _rank(key: Key, osd: int, osds: Mapping[int, _Median], peers: Sequence[int],
          place: Optional[OsdPlace]) -> Rank:
    own = osds[osd]
    ratio, deviations, outlier = None, 0.0, False
    if len(peers) >= MIN_PEERS:
        speeds = sorted(_log_speed(key, osds[peer]) for peer in peers)
        below = median(speeds) - _log_speed(key, own)
        ratio, deviations = math.exp(-below), below / _spread(speeds)
        outlier = deviations >= OUTLIER_DEVIATIONS and below >= math.log(OUTLIER_FACTOR)
    return Rank(own.name, key.direction, osd, place.host if place else '',
                place.device_class if place else '', own.iops, own.bytes_per_second,
                own.latency_ns, own.p99_ns, ratio, deviations, len(peers), outlier)


def _log_speed(key: Key, one: _Median) -> float:
    """Logarithm of IOPS, or, for jobs with a fixed rate, of the inverse latency."""
    return -math.log(one.latency_ns) if key.job.rate_iops else math.log(one.iops)


def _spread(ordered: Sequence[float]) -> float:
    """Robust standard deviation, at least MIN_SPREAD, which is also mixed in for few peers."""
    center = median(list(ordered))
    seen = MAD_SIGMA * median(sorted(abs(each - center) for each in ordered))
    count = len(ordered)
    held = (count * seen ** 2 + SPREAD_WEIGHT * MIN_SPREAD ** 2) / (count + SPREAD_WEIGHT)
    return max(MIN_SPREAD, math.sqrt(held))


def outlier_text(one: Rank) -> str:
    """"osd.3: latency read 490 IOPS, 0.51 times the median of 11 peers (6.7 deviations)"."""
    assert one.ratio is not None
    return 'osd.%d: %s %s %s IOPS, %.2f times the median of %d peers (%.1f deviations)' % (
        one.osd, one.job, one.direction, rate_text(one.iops), one.ratio, one.peers,
        one.deviations)


def interference(record: RunRecord) -> Tuple[Interference, ...]:
    """Interference by OSD and in total, by job and direction, if all three parts were measured."""
    found = measured(record.done)
    rows: List[Interference] = []
    for key in found:
        if key.part == ALONE:
            row = _interference(key, found)
            if row is not None:
                rows.append(row)
    return (*rows, *_sums(rows))


def _interference(key: Key, found: Measured) -> Optional[Interference]:
    parts = [found.get(key._replace(part=part)) for part in (ALONE, TOGETHER, AGAIN)]
    medians = [_median(part) for part in parts if part]
    if len(medians) < 3:
        return None
    fewest = min(len(part) for part in parts if part)
    alone, together, again = (each.iops for each in medians)
    return Interference(medians[0].name, key.direction, key.osd, alone, together, again,
                        MIN_SPREAD * math.sqrt(2.0 / fewest))


def _sums(rows: Sequence[Interference]) -> List[Interference]:
    groups: Dict[Tuple[str, str], List[Interference]] = {}
    for row in rows:
        groups.setdefault((row.job, row.direction), []).append(row)
    return [Interference(job, direction, None, sum(row.alone for row in group),
                         sum(row.together for row in group), sum(row.again for row in group),
                         max(row.spread for row in group) / math.sqrt(len(group)))
            for (job, direction), group in groups.items() if len(group) > 1]


def interference_findings(rows: Sequence[Interference]) -> Tuple[str, ...]:
    """Texts on ratios below the limits. Together: the OSDs share a resource that is too small.
    Alone again: something has not recovered (for example the locks of an IOMMU, for 30 min)."""
    findings: List[str] = []
    for row in rows:
        least = min(INTERFERENCE, math.exp(-INTERFERENCE_DEVIATIONS * row.spread))
        who = 'all OSDs' if row.osd is None else 'osd.%d' % row.osd
        what = '%s: %s %s' % (who, row.job, row.direction)
        if row.together_ratio < least:
            findings.append('%s: together %.2f times as fast as alone (%s, %s IOPS)' % (
                what, row.together_ratio, rate_text(row.together), rate_text(row.alone)))
        if row.again_ratio < least:
            findings.append('%s: alone again %.2f times as fast as alone before (%s, %s IOPS)' % (
                what, row.again_ratio, rate_text(row.again), rate_text(row.alone)))
    return tuple(findings)
