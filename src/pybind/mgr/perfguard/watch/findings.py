# SPDX-License-Identifier: LGPL-2.1-or-later
"""How each OSD compares with its peers now; slow_osds.py and chronic.py add the time."""
import math
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from .osd_window import (CHANNELS, COMMITS, READS, REPLICATED, STORE_READS, WRITES, OsdWindow,
                         rates)
from .peers import (BEYOND_SLOPE, CAPACITY, MIN_PEERS, MIN_SPREAD, SLOPE_MEMBERS, GroupKey,
                    LoadPoint, PeerComparison, Peers, compare, groups_of, loads_of,
                    queue_allowance)
from .types import OsdPlace

#: Time constant of what is usual, and time until something is.
USUAL_SECONDS = 3600.0
LEARN_SECONDS = 300.0
#: Deviations beyond which a value teaches no more than at them.
CLIP = 2.0


class ScoreBaseline:
    """Mean and variance of the logarithm of a score, exponentially weighted."""
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
        # The plain average until there is enough to forget.
        rate = passed / min(self.seconds, USUAL_SECONDS) if passed else 0.0
        off = value - self.mean
        if self.known:
            bound = CLIP * self.sigma()
            off = min(max(off, -bound), bound)
        self.mean += rate * off
        self.variance += rate * (off * off - self.variance)


#: Milliseconds by which a slow OSD must exceed what is expected.
MIN_EXCESS_MS = 0.2
#: The same of flash, by device class. Slow drives of 0.065 ms peers would otherwise have to be four
#: times as slow; 0.05 ms found nearly all of those in labelled recordings, and no healthy drive.
FLASH_EXCESS_MS = 0.05
FLASH_CLASSES = frozenset({'ssd', 'nvme'})
#: Standard deviations, of which a day of 60 OSDs has some 350,000 independent ones.
MIN_DEVIATIONS = 5.0
#: And fewer of these are no slowness that has not ended: its peers differ as much.
CLEAR_DEVIATIONS = 2.0
#: How much slower an OSD may be that backfills or deep scrubs than others that do the same, not
#: all as much; and the load that this adds where it must be compared with others.
ALIKE_ALLOWANCE = 2.0
BUSY_LOAD = 1.75
BUSY_ALLOWANCE = BUSY_LOAD ** BEYOND_SLOPE
#: How much slower an OSD may be of a model that its group are not.
MINORITY_ALLOWANCE = 2.0
#: In place of a kind of work: the whole group.
EVERYONE = '*'
#: An OSD with a score up to this is not slow, whatever the allowance.
LEAST_SCORE = 1.1
#: Times as slow as expected from which no more time is needed than the window's. The less slow, the
#: longer: evidence adds up by its logarithm (Page's CUSUM, 1954).
SURE = 10.0


class PeerFinding(NamedTuple):
    """One kind of operation of one OSD against its peers."""
    channel: int
    comparison: PeerComparison
    #: Factor on the ratio from which this OSD is slow.
    allowance: float
    #: Milliseconds over the expected ones that matter.
    least_ms: float = MIN_EXCESS_MS

    @property
    def score(self) -> float:
        return self.comparison.score

    def over(self, ratio: float, usual: Optional[ScoreBaseline] = None) -> bool:
        """Whether it is slow, if it lasts: it stands out of its peers, or of what is usual for it
        among them."""
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
        """Whether what is slow still is, against its peers or what is usual for it."""
        if self.score < ratio or self.now() < ratio or not self.matters(0.5):
            return False
        found = self.comparison
        if found.deviations >= CLEAR_DEVIATIONS:
            return True
        return usual is not None and usual.known and math.log(self.score) - usual.mean \
            >= max(math.log(ratio), CLEAR_DEVIATIONS * max(usual.sigma(), found.op_sigma))

    def now(self) -> float:
        """The score of the window's end; of what is over it falls at once."""
        return self.comparison.recent_ms / self.comparison.expected_ms

    def weight(self) -> float:
        """What a second of it tells: 1 from SURE on, less the less slow it is."""
        return min(1.0, math.log(self.score / self.allowance) / math.log(SURE))

    def matters(self, factor: float = 1.0) -> bool:
        found = self.comparison
        return found.ms - found.expected_ms >= factor * self.least_ms


Findings = Dict[int, List[PeerFinding]]


def judge(windows: Mapping[int, OsdWindow], places: Mapping[int, OsdPlace],
          busy: Mapping[int, str]) -> Findings:
    """The findings of every OSD that has any; `busy` names the kind of an OSD's other work."""
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
    """Of each group's OSDs without other work, as the kind of operation shows it that shows most:
    all wait in the same queues."""
    found: Dict[GroupKey, float] = {}
    for (key, _), kinds in peers.items():
        found[key] = max(found.get(key, 0.0), kinds[''].utilisation if '' in kinds else 0.0)
    return found


def _judge_group(channel: int, device_class: str, points: List[LoadPoint], judged: List[LoadPoint],
                 kinds: Dict[str, Peers], utilisation: float, busy: Mapping[int, str],
                 minorities: Mapping[int, bool], findings: Findings) -> None:
    """Compare some of a group's members with those of it that do the same work."""
    least_ms = FLASH_EXCESS_MS if device_class in FLASH_CLASSES else MIN_EXCESS_MS
    for point in judged:
        kind = busy.get(point.osd, '')
        if kind and channel == STORE_READS:
            # Deep scrub and backfill read more at once than clients do.
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
            # The queues of few busy ones do not show how long they are.
            unseen = kind and (chosen != kind or peers.count < SLOPE_MEMBERS)
            factor = BUSY_LOAD if unseen else CAPACITY
            allowance = max(allowance, queue_allowance(
                max(utilisation, peers.utilisation), found.load_ratio, factor))
        findings.setdefault(point.osd, []).append(PeerFinding(channel, found, allowance, least_ms))


def _by_kind(points: Iterable[LoadPoint], busy: Mapping[int, str]) -> Dict[str, Peers]:
    """The members by their work, '': client operations only."""
    kinds: Dict[str, List[LoadPoint]] = {}
    for point in points:
        kinds.setdefault(busy.get(point.osd, ''), []).append(point)
    return {kind: Peers(members) for kind, members in kinds.items()}


def _choose(kind: str, kinds: Mapping[str, Peers]) -> str:
    """Whom to compare with: those with the same work, else the quiet (who are quicker), else
    all."""
    if kind in kinds and kinds[kind].count > MIN_PEERS:
        return kind
    return '' if kind and '' in kinds and kinds[''].count >= MIN_PEERS else EVERYONE


def worst(findings: Iterable[PeerFinding], ratio: float) -> Tuple[Optional[PeerFinding], float]:
    """The finding that says most, and its score, in which trifles count for little."""
    best: Optional[PeerFinding] = None
    most = (False, -1.0)
    for each in findings:
        # What stands out goes before a mean of few operations that is higher by chance.
        found = (each.comparison.deviations >= MIN_DEVIATIONS, score_of(each, ratio))
        if found > most:
            best, most = each, found
    return best, most[1]


def score_of(finding: PeerFinding, ratio: float) -> float:
    """Times as slow as expected; below `ratio` as far as the excess does not matter."""
    found = finding.comparison
    excess = max(0.0, found.ms - found.expected_ms) / finding.least_ms
    return finding.score if excess >= 1.0 else min(finding.score, 1.0 + (ratio - 1.0) * excess)


# ---- Who is slow only because another OSD is

#: What victims suffer from; the store and the writes that it replicates speak for themselves.
_WAITING = frozenset({READS, WRITES})
#: What waits for a write waits as long as that does, not twice as long.
FACTOR = 2.0


def without_waiting_primaries(findings: Findings, ratio: float) -> Findings:
    """The findings, but not those that a replica explains which the primaries wait for."""
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
