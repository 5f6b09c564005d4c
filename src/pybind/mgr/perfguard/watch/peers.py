# SPDX-License-Identifier: LGPL-2.1-or-later
"""What latency to expect of an OSD, judged by its peers at their load.

Everything is in logarithms: slowness is a factor. Medians throughout, so that the slow ones among
the peers do not move what is expected.
"""
import math
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .osd_window import (CHANNELS, COMMITS, READS, REPLICATED, STORE_READS, WRITES, OsdWindow,
                         Reading, rates)
from .types import OsdPlace

#: Others with evidence that an OSD needs to be judged.
MIN_PEERS = 3
#: Members with which a model is a group of its own, else it is judged among its device class.
MODEL_MEMBERS = 5
#: From this many members on, latency is regressed on load; a third of fewer is no crowd.
SLOPE_MEMBERS = 9
#: Up to this many, one vote counts in a median.
FEW_MEMBERS = 30
#: Spread of the loads between the lower and the upper third that a slope can be seen in.
SLOPE_SPREAD = math.log(1.15)
#: Greatest slope that is believed; a queue has it at a utilisation of nine tenths.
MAX_SLOPE = 9.0
#: Beyond this utilisation any latency is possible.
SATURATION = 0.95
#: No two OSDs of a group can do the same: by so much a healthy one may be nearer to saturation
#: than its load tells. Near to it this is all the difference.
CAPACITY = 1.2
#: Beyond the peers' loads nothing is known, and the latency may grow with at least the square.
BEYOND_SLOPE = 2.0
#: Least spread of healthy OSDs (PGs differ in what is asked of them), as a standard deviation.
MIN_SPREAD = 0.08
#: Variance of an operation's latency, relative to the mean's square, in a window's mean: an
#: exponential has 1, disks and compactions more.
OP_VARIANCE = 2.0
#: The median absolute deviation of a normal distribution in standard deviations.
MAD_SIGMA = 1.4826

#: Logarithms of the load: reads + writes, reads + 4 writes, 4 reads + writes. What a write costs
#: against a read is not known, but within these bounds.
Loads = Tuple[float, float, float]
#: Root, device class, model ('*': all models).
GroupKey = Tuple[str, str, str]


class LoadPoint(NamedTuple):
    """One OSD in one kind of operation."""
    osd: int
    reading: Reading
    loads: Loads


class PeerComparison(NamedTuple):
    """An OSD against its peers."""
    ms: float
    #: That of the window's end.
    recent_ms: float
    #: What the peers would have at this OSD's load, and its standard deviation.
    expected_ms: float
    spread_ms: float
    #: Logarithm of ms / expected_ms in standard deviations.
    deviations: float
    #: Standard deviation of the logarithm of ms, for the number of operations.
    op_sigma: float
    #: This OSD's load / the peers' median.
    load_ratio: float
    peers: int

    @property
    def score(self) -> float:
        return self.ms / self.expected_ms


class Peers:
    """The common behaviour of a group."""

    def __init__(self, points: Sequence[LoadPoint]) -> None:
        self._points = points
        self.count = len(points)
        loads = [sorted(point.loads[i] for point in points) for i in range(3)]
        self._middle = median(loads[0])
        # The largest but a tenth, so that a hot OSD in a large group does not vouch for itself.
        last = self.count - 1 - self.count // 10
        self._top = [column[last] for column in loads]
        self.slope = self._slope()
        #: Utilisation at the median load: M/M/1's latency, 1 / (1 - utilisation), there has the
        #: slope utilisation / (1 - utilisation).
        self.utilisation = self.slope / (1.0 + self.slope)
        residuals = sorted(point.reading.log_ms - self._growth(point.loads[0] - self._middle)
                           for point in points)
        self._center = median(residuals)
        self.spread = MAD_SIGMA * median(sorted(abs(each - self._center) for each in residuals))

    def _slope(self) -> float:
        """Of latency on load, between the medians of the lower and the upper third by load."""
        third = self.count // 3
        if self.count < SLOPE_MEMBERS:
            return 0.0
        ordered = sorted((point.loads[0], point.reading.log_ms) for point in self._points)
        low, high = ordered[:third], ordered[-third:]
        run = high[third // 2][0] - low[third // 2][0]
        if run < SLOPE_SPREAD:
            return 0.0
        rise = median(sorted(y for _, y in high)) - median(sorted(y for _, y in low))
        return min(max(rise / run, 0.0), MAX_SLOPE)

    def _growth(self, load: float) -> float:
        return growth(self.utilisation, load)

    def expected(self, loads: Loads) -> float:
        """Logarithm of the milliseconds; a low load does not lower it."""
        within = max(0.0, min(loads[0], self._top[0]) - self._middle)
        top = self._top
        beyond = max(0.0, loads[0] - top[0], loads[1] - top[1], loads[2] - top[2])
        return self._center + max(self._growth(within + beyond),
                                  self._growth(within) + BEYOND_SLOPE * beyond)

    def compare(self, point: LoadPoint, others: int) -> PeerComparison:
        """A point against this group, in which it has `others` beside it."""
        expected = self.expected(point.loads)
        # Of few peers the median deviation is a guess; of few operations so is the mean.
        spread = max(MIN_SPREAD, self.spread) * (1.0 + 2.0 / self.count)
        op_sigma = math.sqrt(OP_VARIANCE / point.reading.ops)
        expected_ms = math.exp(expected)
        reading = point.reading
        return PeerComparison(reading.ms, reading.recent_ms, expected_ms,
                              expected_ms * math.expm1(self.spread),
                              (reading.log_ms - expected) / max(spread, op_sigma), op_sigma,
                              math.exp(point.loads[0] - self._middle), others)

    def without(self, osd: int) -> 'Peers':
        return Peers([point for point in self._points if point.osd != osd])


def compare(point: LoadPoint, peers: Peers, member: bool) -> Optional[PeerComparison]:
    """A point against its peers; `member`: it is one of those given. None: too few of them."""
    others = peers.count - member
    if others < MIN_PEERS:
        return None
    found = peers.compare(point, others)
    if member and peers.count <= FEW_MEMBERS and found.score > 1.15:
        # Only where it matters, since it costs: without its own vote.
        found = peers.without(point.osd).compare(point, others)
    return found


def growth(utilisation: float, load: float) -> float:
    """Logarithm of a queue's latency by that of its load, both relative to those at a
    utilisation."""
    if not utilisation:
        return 0.0
    grown = min(utilisation * math.exp(min(load, 10.0)), SATURATION)
    return math.log((1.0 - utilisation) / (1.0 - grown))


def queue_allowance(utilisation: float, load_ratio: float, factor: float) -> float:
    """How much slower an OSD may be with `factor` times its load; where it may be saturated no
    latency is too much. It has `load_ratio` times the load that makes its peers' utilisation."""
    if utilisation * load_ratio * factor * CAPACITY >= SATURATION:
        return math.inf
    load = math.log(load_ratio)
    return math.exp(growth(utilisation, load + math.log(factor)) - growth(utilisation, load))


def loads_of(reads: float, writes: float) -> Loads:
    """Of operations per second; idle counts as one in a thousand seconds."""
    return (math.log(max(reads + writes, 1e-3)), math.log(max(reads + 4.0 * writes, 1e-3)),
            math.log(max(4.0 * reads + writes, 1e-3)))


def groups_of(places: Mapping[int, OsdPlace]) -> Tuple[Dict[int, GroupKey], Dict[int, bool]]:
    """The group of each OSD, and whether it is a stranger there: of a model that most of its
    group are not."""
    models: Dict[GroupKey, int] = {}
    classes: Dict[Tuple[str, str], int] = {}
    for place in places.values():
        model = (place.root, place.device_class, place.model)
        models[model] = models.get(model, 0) + 1
        classes[model[:2]] = classes.get(model[:2], 0) + 1
    groups: Dict[int, GroupKey] = {}
    minorities: Dict[int, bool] = {}
    for osd, place in places.items():
        model = (place.root, place.device_class, place.model)
        own = models[model] >= MODEL_MEMBERS
        groups[osd] = model if own else (place.root, place.device_class, '*')
        minorities[osd] = not own and 2 * models[model] <= classes[model[:2]]
    return groups, minorities


def median(ordered: List[float]) -> float:
    """Of a sorted list that is not empty."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else 0.5 * (ordered[half - 1] + ordered[half])


def weighted_median(values: Iterable[Tuple[float, float]]) -> float:
    """Of (value, weight above 0): the least value up to which half of all weight lies."""
    ordered = sorted(values)
    total, below = sum(weight for _, weight in ordered), 0.0
    for value, weight in ordered:
        below += weight
        if below >= total / 2:
            return value
    raise ValueError('no values')


# ---- How each OSD compares with its peers now, before any question of how long

#: Time constant of what is usual, and time until something is.
USUAL_SECONDS = 3600.0
LEARN_SECONDS = 300.0
#: Deviations beyond which a value teaches no more than at them.
CLIP = 2.0


class UsualScore:
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


class Finding(NamedTuple):
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

    def over(self, ratio: float, usual: Optional[UsualScore] = None) -> bool:
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

    def above(self, ratio: float, usual: Optional[UsualScore] = None) -> bool:
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


Findings = Dict[int, List[Finding]]


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
        findings.setdefault(point.osd, []).append(Finding(channel, found, allowance, least_ms))


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


def worst(findings: Iterable[Finding], ratio: float) -> Tuple[Optional[Finding], float]:
    """The finding that says most, and its score, in which trifles count for little."""
    best: Optional[Finding] = None
    most = (False, -1.0)
    for each in findings:
        # What stands out goes before a mean of few operations that is higher by chance.
        found = (each.comparison.deviations >= MIN_DEVIATIONS, score_of(each, ratio))
        if found > most:
            best, most = each, found
    return best, most[1]


def score_of(finding: Finding, ratio: float) -> float:
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
    kept: Dict[int, List[Finding]] = {}
    for osd, found in findings.items():
        most = max((excess for cause, excess in causes.items() if cause != osd), default=0.0)
        own = any(each.channel not in _WAITING and each.over(ratio) for each in found)
        kept[osd] = [each for each in found if own or each.channel not in _WAITING
                     or _excess_ms(each) > FACTOR * most]
    return kept


def _excess_ms(finding: Finding) -> float:
    return finding.comparison.ms - finding.comparison.expected_ms
