# SPDX-License-Identifier: LGPL-2.1-or-later
"""Compares each OSD with its peers at this moment.

slow_osds.py and chronic.py decide how long a finding must last.
"""
import math
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from .osd_window import (CHANNELS, COMMITS, READS, REPLICATED, STORE_READS, WRITES, OsdWindow,
                         rates)
from .peers import (BEYOND_SLOPE, CAPACITY, MIN_PEERS, MIN_SPREAD, SLOPE_MEMBERS, GroupKey,
                    LoadPoint, PeerComparison, Peers, compare, groups_of, loads_of,
                    queue_allowance)
from .types import OsdPlace

#: Time constant of a baseline, and time until it is known.
USUAL_SECONDS = 3600.0
LEARN_SECONDS = 300.0
#: Standard deviations at which values that a baseline learns are clipped.
CLIP = 2.0


class ScoreBaseline:
    """Exponentially weighted mean and variance of the logarithm of a score."""
    __slots__ = ('mean', 'variance', 'seconds')

    def __init__(self) -> None:
        self.mean = 0.0
        self.variance = MIN_SPREAD ** 2
        self.seconds = 0.0

    @property
    def known(self) -> bool:
        return self.seconds >= LEARN_SECONDS

    def sigma(self) -> float:
        return math.sqrt(max(self.variance, MIN_SPREAD ** 2))

    def learn(self, value: float, passed: float) -> None:
        self.seconds += passed
        # Until then, the arithmetic mean.
        rate = passed / min(self.seconds, USUAL_SECONDS) if passed else 0.0
        off = value - self.mean
        if self.known:
            bound = CLIP * self.sigma()
            off = min(max(off, -bound), bound)
        self.mean += rate * off
        self.variance += rate * (off * off - self.variance)


#: Minimum excess of a slow OSD over the expected latency.
MIN_EXCESS_MS = 0.2
#: The same for flash. With 0.2 ms, a slow drive among peers of 0.065 ms would have to be four
#: times as slow; 0.05 ms finds nearly all slow drives of labelled recordings, and no healthy one.
FLASH_EXCESS_MS = 0.05
FLASH_CLASSES = frozenset({'ssd', 'nvme'})
#: Standard deviations of a finding; a day of 60 OSDs has about 350,000 independent samples.
MIN_DEVIATIONS = 5.0
#: Standard deviations below which slowness has ended.
CLEAR_DEVIATIONS = 2.0
#: How much slower an OSD that backfills or deep scrubs may be than others that do the same; and
#: the load that this work adds if it is compared with OSDs without it.
ALIKE_ALLOWANCE = 2.0
BUSY_LOAD = 1.75
BUSY_ALLOWANCE = BUSY_LOAD ** BEYOND_SLOPE
#: How much slower an OSD of a minority model may be than its group.
MINORITY_ALLOWANCE = 2.0
#: The whole group, instead of a kind of work.
EVERYONE = '*'
#: An OSD with a score up to this is not slow, whatever the allowance.
LEAST_SCORE = 1.1
#: Slowdown from which a finding needs no more time than the window. Smaller slowdowns need more:
#: evidence adds up by its logarithm (Page's CUSUM, 1954).
SURE = 10.0


class PeerFinding(NamedTuple):
    """Comparison of one kind of operation of one OSD with its peers."""
    channel: int
    comparison: PeerComparison
    #: Factor on the ratio from which this OSD counts as slow.
    allowance: float
    #: Excess over the expected latency that matters.
    least_ms: float = MIN_EXCESS_MS

    @property
    def score(self) -> float:
        return self.comparison.score

    def over(self, ratio: float, usual: Optional[ScoreBaseline] = None) -> bool:
        """Whether the OSD is slow, provided that it lasts: it deviates from its peers, or from its
        own baseline against them."""
        least = ratio * self.allowance
        if self.score < least or not self.matters() or self.now() < least:
            return False
        found = self.comparison
        if found.deviations >= MIN_DEVIATIONS:
            return True
        if usual is None or not usual.known:
            return False
        change = math.log(self.score) - usual.mean
        sigma = max(usual.sigma(), found.op_sigma)
        return change >= math.log(least) and change >= MIN_DEVIATIONS * sigma

    def above(self, ratio: float, usual: Optional[ScoreBaseline] = None) -> bool:
        """Whether a slow OSD is still slow against its peers or its own baseline."""
        if self.score < ratio or self.now() < ratio or not self.matters(0.5):
            return False
        found = self.comparison
        if found.deviations >= CLEAR_DEVIATIONS:
            return True
        return usual is not None and usual.known and math.log(self.score) - usual.mean \
            >= max(math.log(ratio), CLEAR_DEVIATIONS * max(usual.sigma(), found.op_sigma))

    def now(self) -> float:
        """The score at the end of the window, which falls as soon as the slowness ends."""
        return self.comparison.recent_ms / self.comparison.expected_ms

    def weight(self) -> float:
        """Evidence per second: 1 from SURE on, less for smaller slowdowns."""
        return min(1.0, math.log(self.score / self.allowance) / math.log(SURE))

    def matters(self, factor: float = 1.0) -> bool:
        found = self.comparison
        return found.ms - found.expected_ms >= factor * self.least_ms


Findings = Dict[int, List[PeerFinding]]


def judge(windows: Mapping[int, OsdWindow], places: Mapping[int, OsdPlace],
          busy: Mapping[int, str]) -> Findings:
    """Findings by OSD. `busy`: OSD -> its work besides client operations."""
    groups, minorities = groups_of(places)
    totals = {osd: window.totals() for osd, window in windows.items() if osd in places}
    loads = {osd: loads_of(*rates(each, osd in busy)) for osd, each in totals.items()}
    findings: Findings = {}
    groups_peers: Dict[Tuple[GroupKey, int], Dict[str, Peers]] = {}
    points_of: Dict[Tuple[GroupKey, int], List[LoadPoint]] = {}
    for channel in range(len(CHANNELS)):
        members: Dict[GroupKey, List[LoadPoint]] = {}
        for osd, load in loads.items():
            reading = windows[osd].reading(channel, totals[osd])
            if reading is not None:
                point = LoadPoint(osd, reading, load)
                root, device_class, model = groups[osd]
                members.setdefault((root, device_class, '*'), []).append(point)
                if model != '*':
                    members.setdefault(groups[osd], []).append(point)
        for key, points in members.items():
            groups_peers[key, channel] = _by_kind(points, busy)
            points_of[key, channel] = points
    utilisation = _utilisations(groups_peers)
    for (key, channel), kinds in groups_peers.items():
        points = points_of[key, channel]
        judged = [point for point in points if groups[point.osd] == key]
        _judge_group(channel, key[1], points, judged, kinds, utilisation[key], busy, minorities,
                     findings)
    return findings


def _utilisations(peers: Mapping[Tuple[GroupKey, int], Mapping[str, Peers]]
                  ) -> Dict[GroupKey, float]:
    """Utilisation of each group: the maximum over the kinds of operation, which share queues,
    of its OSDs without other work."""
    found: Dict[GroupKey, float] = {}
    for (key, _), kinds in peers.items():
        found[key] = max(found.get(key, 0.0), kinds[''].utilisation if '' in kinds else 0.0)
    return found


def _judge_group(channel: int, device_class: str, points: List[LoadPoint], judged: List[LoadPoint],
                 kinds: Dict[str, Peers], utilisation: float, busy: Mapping[int, str],
                 minorities: Mapping[int, bool], findings: Findings) -> None:
    """Compare the `judged` members of a group with the members that do the same work."""
    least_ms = FLASH_EXCESS_MS if device_class in FLASH_CLASSES else MIN_EXCESS_MS
    for point in judged:
        kind = busy.get(point.osd, '')
        if kind and channel == STORE_READS:
            # Deep scrub and backfill read more per operation than clients do.
            continue
        chosen = _choose(kind, kinds)
        if chosen not in kinds:
            kinds[chosen] = Peers(points)
        peers = kinds[chosen]
        found = compare(point, peers, chosen in (kind, EVERYONE))
        if found is None:
            continue
        allowance = MINORITY_ALLOWANCE if minorities[point.osd] else 1.0
        if kind:
            allowance *= ALIKE_ALLOWANCE if chosen == kind else BUSY_ALLOWANCE
        if found.score > LEAST_SCORE:
            # The queues of few busy OSDs are unknown.
            unseen = kind and (chosen != kind or peers.count < SLOPE_MEMBERS)
            factor = BUSY_LOAD if unseen else CAPACITY
            allowance = max(allowance, queue_allowance(
                max(utilisation, peers.utilisation), found.load_ratio, factor))
        findings.setdefault(point.osd, []).append(PeerFinding(channel, found, allowance, least_ms))


def _by_kind(points: Iterable[LoadPoint], busy: Mapping[int, str]) -> Dict[str, Peers]:
    """The members by their work; '': client operations only."""
    kinds: Dict[str, List[LoadPoint]] = {}
    for point in points:
        kinds.setdefault(busy.get(point.osd, ''), []).append(point)
    return {kind: Peers(members) for kind, members in kinds.items()}


def _choose(kind: str, kinds: Mapping[str, Peers]) -> str:
    """The OSDs to compare with: those with the same work, else those without, else all."""
    if kind in kinds and kinds[kind].count > MIN_PEERS:
        return kind
    return '' if kind and '' in kinds and kinds[''].count >= MIN_PEERS else EVERYONE


def worst(findings: Iterable[PeerFinding], ratio: float) -> Tuple[Optional[PeerFinding], float]:
    """The most significant finding, and its score (see score_of)."""
    best: Optional[PeerFinding] = None
    most = (False, -1.0)
    for each in findings:
        # A significant deviation precedes a mean of few operations that is high by chance.
        found = (each.comparison.deviations >= MIN_DEVIATIONS, score_of(each, ratio))
        if found > most:
            best, most = each, found
    return best, most[1]


def score_of(finding: PeerFinding, ratio: float) -> float:
    """Slowdown; below `ratio` as long as the excess does not matter."""
    found = finding.comparison
    excess = max(0.0, found.ms - found.expected_ms) / finding.least_ms
    return finding.score if excess >= 1.0 else min(finding.score, 1.0 + (ratio - 1.0) * excess)


# ---- OSDs that are slow only because of another OSD

#: Operations that are slow if a replica is. The store and replicated writes depend on the OSD.
_WAITING = frozenset({READS, WRITES})
#: Operations that wait for a slow write exceed it by less than this factor.
FACTOR = 2.0


def without_waiting_primaries(findings: Findings, ratio: float) -> Findings:
    """The findings without those of primaries that only wait for a slow replica."""
    causes: Dict[int, float] = {}
    for osd, found in findings.items():
        for each in found:
            if each.channel in (COMMITS, REPLICATED) and each.over(ratio):
                causes[osd] = max(causes.get(osd, 0.0), _excess_ms(each))
    if not causes:
        return findings
    kept: Dict[int, List[PeerFinding]] = {}
    for osd, found in findings.items():
        most = max((excess for cause, excess in causes.items() if cause != osd), default=0.0)
        own = any(each.channel not in _WAITING and each.over(ratio) for each in found)
        kept[osd] = [each for each in found if own or each.channel not in _WAITING
                     or _excess_ms(each) > FACTOR * most]
    return kept


def _excess_ms(finding: PeerFinding) -> float:
    return finding.comparison.ms - finding.comparison.expected_ms
