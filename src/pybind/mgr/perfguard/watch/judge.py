# SPDX-License-Identifier: LGPL-2.1-or-later
"""How each OSD compares with its peers now, before any question of how long."""
import math
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from .peers import BEYOND_SLOPE, MIN_PEERS, Comparison, GroupKey, Peers, Point, compare, groups_of, loads_of
from .types import OsdPlace
from .window import CHANNELS, STORE_READS, Window

#: Milliseconds by which a slow OSD must exceed what is expected: 0.12 against 0.05 is nobody's
#: trouble, though more than twice as slow.
MIN_EXCESS_MS = 0.2
#: Standard deviations, of which a day of 60 OSDs has some 350,000 independent ones.
MIN_DEVIATIONS = 5.0
#: How much slower an OSD may be that backfills or deep scrubs than others that do the same, not
#: all as much; and the load that this adds where it must be compared with others.
ALIKE_ALLOWANCE = 2.0
BUSY_LOAD = 1.75
BUSY_ALLOWANCE = BUSY_LOAD ** BEYOND_SLOPE
#: No two OSDs of a group can do the same: by so much a healthy one may be nearer to saturation than
#: its load tells. Near to it this is all the difference.
CAPACITY = 1.15
#: How much slower an OSD may be of a model that its group are not.
STRANGER_ALLOWANCE = 2.0


#: Times as slow as expected from which no more time is needed than the window's. Half as slow takes
#: twice as long: log-likelihoods add up like this (Page's CUSUM, 1954).
SURE = 10.0


class Finding(NamedTuple):
    """One kind of operation of one OSD against its peers."""
    channel: int
    comparison: Comparison
    #: Factor on the ratio from which this OSD is slow.
    allowance: float

    @property
    def score(self) -> float:
        return self.comparison.score

    def over(self, ratio: float) -> bool:
        """Whether it is slow, if it lasts."""
        return (self.score >= ratio * self.allowance and self.matters()
                and self.comparison.deviations >= MIN_DEVIATIONS
                and self.now() >= ratio * self.allowance)

    def above(self, ratio: float) -> bool:
        """Whether what is slow still is."""
        return self.score >= ratio and self.now() >= ratio and self.matters(0.5)

    def now(self) -> float:
        """The score of the window's end; of what is over it falls at once."""
        return self.comparison.recent_ms / self.comparison.expected_ms

    def weight(self) -> float:
        """What a second of it tells: 1 from SURE on, less the less slow it is."""
        return min(1.0, math.log(self.score / self.allowance) / math.log(SURE))

    def matters(self, factor: float = 1.0) -> bool:
        found = self.comparison
        return found.ms - found.expected_ms >= factor * MIN_EXCESS_MS


Findings = Dict[int, List[Finding]]


def judge(windows: Mapping[int, Window], places: Mapping[int, OsdPlace],
          busy: Mapping[int, str]) -> Findings:
    """The findings of every OSD that has any; `busy` names the kind of an OSD's other work."""
    groups, strangers = groups_of(places)
    loads = {osd: loads_of(*windows[osd].rates()) for osd in windows if osd in places}
    findings: Findings = {}
    for channel in range(len(CHANNELS)):
        members: Dict[GroupKey, List[Point]] = {}
        for osd, load in loads.items():
            reading = windows[osd].reading(channel)
            if reading is not None:
                point = Point(osd, reading, load)
                root, device_class, model = groups[osd]
                members.setdefault((root, device_class, '*'), []).append(point)
                if model != '*':
                    members.setdefault(groups[osd], []).append(point)
        for key, points in members.items():
            judged = [point for point in points if groups[point.osd] == key]
            if judged:
                _judge_group(channel, points, judged, busy, strangers, findings)
    return findings


def _judge_group(channel: int, points: List[Point], judged: List[Point], busy: Mapping[int, str],
                 strangers: Mapping[int, bool], findings: Findings) -> None:
    """Compare some of a group's members with those of it that do the same work."""
    alike = _by_kind(points, busy)
    for point in judged:
        kind = busy.get(point.osd)
        if kind and channel == STORE_READS:
            # Deep scrub and backfill read more at once than clients do.
            continue
        peers, allowance = alike.get(kind), STRANGER_ALLOWANCE if strangers[point.osd] else 1.0
        factor = CAPACITY
        if peers is not None and peers.count > MIN_PEERS:
            allowance *= ALIKE_ALLOWANCE if kind else 1.0
        else:
            # The quiet are quicker, the busy slower than all: an allowance for these alone.
            quiet = alike.get(None) if kind else None
            peers = quiet if quiet and quiet.count >= MIN_PEERS else alike.get('all')
            if peers is None:
                peers = alike['all'] = Peers(points)
            if kind:
                factor, allowance = BUSY_LOAD, BUSY_ALLOWANCE * allowance
        allowance = max(allowance, peers.allowance(point.loads, factor))
        found = compare(point, peers, peers is not alike.get(None) or not kind)
        if found is not None:
            findings.setdefault(point.osd, []).append(Finding(channel, found, allowance))


def _by_kind(points: Iterable[Point], busy: Mapping[int, str]) -> Dict[Optional[str], Peers]:
    """The members by their work, None: client operations only."""
    kinds: Dict[Optional[str], List[Point]] = {}
    for point in points:
        kinds.setdefault(busy.get(point.osd), []).append(point)
    return {kind: Peers(members) for kind, members in kinds.items()}


def worst(findings: Iterable[Finding], ratio: float) -> Tuple[Optional[Finding], float]:
    """The finding that says most, and its score, in which trifles count for little."""
    best: Optional[Finding] = None
    order: Tuple[bool, float] = (False, -1.0)
    for each in findings:
        found = (each.over(ratio), score_of(each, ratio))
        if found > order:
            best, order = each, found
    return best, order[1]


def score_of(finding: Finding, ratio: float) -> float:
    """Times as slow as expected; below `ratio` as far as the excess does not matter."""
    found = finding.comparison
    excess = max(0.0, found.ms - found.expected_ms) / MIN_EXCESS_MS
    return finding.score if excess >= 1.0 else min(finding.score, 1.0 + (ratio - 1.0) * excess)
