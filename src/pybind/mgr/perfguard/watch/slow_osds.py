# SPDX-License-Identifier: LGPL-2.1-or-later
"""Slow OSDs and slow hosts.

An OSD is compared with its peers at the same load (peers.py). This file decides how long it must
be slow until it is reported, and how long it must be healthy until that is cleared.
chronic.py counts OSDs that are slow for a share of the time only.
"""
import math
from dataclasses import dataclass, field, replace
from typing import (AbstractSet, Any, Collection, Dict, List, Mapping, Optional, Sequence, Set,
                    Tuple)

from ..cluster.types import OsdPlace
from ..tables import figure, seconds_text
from .chronic import MEMORY_SECONDS, ChronicOsds
from .osd_window import CHANNELS, REPLICATED, SLOTS, OsdWindow
from .peers import (SAME_LOAD, SURE, Excused, Findings, GroupKey, OsdExpectation, PeerFinding,
                    ScoreBaseline, excuse_waiting, groups_of, judge, worst)
from .series import LARGEST
from .slow_parts import PART_RATIO, SlowOne, SlowParts, hosts_of, unnamed
from .types import OsdReading, OsdVerdict, SlowHost, SlowPart


def describe(finding: PeerFinding, seconds: float) -> str:
    """As in "store commits take 3.1 ms, 0.4 +- 0.05 ms on 11 peers, for 90 s at the same load"."""
    found = finding.comparison
    load = 'at the same load'
    if not 1 / SAME_LOAD < found.load_ratio < SAME_LOAD:
        load = 'at %s times their load' % figure(found.load_ratio)
    return '%s take %s ms, %s, for %s %s' % (
        CHANNELS[finding.channel], figure(found.ms), _expected_text(finding),
        seconds_text(seconds), load)


def _expected_text(finding: PeerFinding) -> str:
    found = finding.comparison
    peers = '%d peer%s' % (found.peers, 's' if found.peers > 1 else '')
    if finding.earlier:
        return '%s ms on %s before they became slow too' % (figure(found.expected_ms), peers)
    if finding.with_own:
        usual = ' and usually %s ms' % figure(found.expected_ms) \
            if found.expected_ms > finding.fastest_ms else ''
        return '%s ms on the fastest of %s%s' % (figure(finding.fastest_ms), peers, usual)
    if finding.fastest_ms:
        return '%s ms on the slowest of %s' % (figure(found.expected_ms), peers)
    return '%s +- %s ms on %s' % (figure(found.expected_ms), figure(found.spread_ms), peers)


#: Seconds without evidence after which a flag is dropped.
FORGET_SECONDS = 600.0
#: How much longer an OSD that backfills or deep scrubs must be slow.
BUSY_PATIENCE = 3.0
#: An OSD is reported after this time if each of its means is SURE times that of its peers. This
#: applies only while all PGs are active and clean: a stall of one operation, or of one PG that
#: peers, is shorter, but PGs may peer one after another. It does not depend on the length of the
#: window, because the length of stalls does not either.
QUICK_SECONDS = 35.0
#: Maximum time for which an alarm waits until the work of its OSD is read. On large clusters that
#: is read every few minutes, and an OSD that has begun to deep scrub is slow.
WORK_SECONDS = 600.0
#: Time that a reading of replicated writes covers: when a reading is fast, they have been fast for
#: that time. If they alone are slow for longer than two readings take to pass, other operations do
#: not show when the OSD has recovered.
REPLICATED_SECONDS = 30.0
LATE_SECONDS = 3 * REPLICATED_SECONDS


@dataclass(frozen=True)
class SlowSettings:
    #: Slowdown from which an OSD is slow.
    ratio: float = 1.5
    #: Slowdown below which it is healthy again.
    clear_ratio: float = 1.25
    #: Length of the window that is judged, whose median takes half of it to rise, and how long the
    #: slowness must last then. A compaction of a minute is not reported.
    seconds: float = 60.0
    #: Time constant of the counts of chronically slow OSDs.
    memory_seconds: float = MEMORY_SECONDS


@dataclass
class _State:
    """State of one OSD."""
    window: OsdWindow
    #: Seconds over the ratio minus seconds below it.
    over_seconds: float = 0.0
    #: When over_seconds began to rise, or, if slow, when the slowness began.
    since: float = 0.0
    slow: bool = False
    #: The last description of the slowness.
    why: str = ''
    #: Time of the last evidence.
    evidence: float = 0.0
    #: Its work besides client operations, and when that was last seen.
    kind: str = ''
    kind_at: float = 0.0
    verdict: OsdVerdict = OsdVerdict(-1)
    #: Its last comparisons.
    findings: Sequence[PeerFinding] = ()
    #: By channel, its baseline without other work.
    usual: Tuple[ScoreBaseline, ...] = ()
    #: In a group of two or three OSDs, by channel: the baselines of the logarithm of its latency
    #: relative to the fastest peer, and in ms.
    own: Dict[int, Tuple[ScoreBaseline, ScoreBaseline]] = field(default_factory=dict)
    #: Its last score, and whether it belongs to a part of its class that is slow.
    score: float = 1.0
    of_part: bool = False
    #: If slow: what was expected of it when it last stood out, by channel.
    kept: Dict[int, OsdExpectation] = field(default_factory=dict)
    #: If slow: seconds for which replicated writes alone have been slow.
    late_seconds: float = 0.0


class SlowOsds:
    """Finds slow OSDs. Pure: update() is given everything that has an effect."""

    def __init__(self) -> None:
        self._states: Dict[int, _State] = {}
        self._hosts: Tuple[SlowHost, ...] = ()
        self._parts = SlowParts()
        self._now = -math.inf
        #: Since when readings are known.
        self._started = math.inf
        #: When the work of the OSDs besides client operations was last read.
        self._busy_read = -math.inf
        #: Since when all PGs have been active and clean.
        self._settled_since = math.inf
        self.chronic = ChronicOsds()
        #: OSDs whose commits or replicated writes are slow.
        self.slow_replicas: AbstractSet[int] = frozenset()

    @property
    def verdicts(self) -> Dict[int, OsdVerdict]:
        """By OSD, of all OSDs that have a place."""
        return {osd: state.verdict for osd, state in self._states.items()}

    def hosts(self) -> Tuple[SlowHost, ...]:
        return self._hosts

    def parts(self) -> Tuple[SlowPart, ...]:
        return self._parts.parts

    @property
    def any_slow(self) -> bool:
        """Whether an OSD is slow, reported or not."""
        return any(state.slow for state in self._states.values())

    def slowdowns(self, osd: int) -> Dict[str, float]:
        """By kind of operation."""
        return {CHANNELS[each.channel]: each.score for each in self._findings_of(osd)}

    def load_ratio(self, osd: int) -> float:
        """Its load relative to that of its peers."""
        return max([each.comparison.load_ratio for each in self._findings_of(osd)], default=1.0)

    def _findings_of(self, osd: int) -> Sequence[PeerFinding]:
        return self._states[osd].findings if osd in self._states else ()

    def forget(self, replaced: Collection[int]) -> None:
        """Forget OSDs that have another device now."""
        for osd in replaced:
            self._states.pop(osd, None)
        self.chronic.forget(replaced)

    def update(self, reading: OsdReading, settings: SlowSettings) -> None:
        """Process one interval. OSDs without a place are forgotten, except for the counts of
        slow time."""
        now, places = reading.now, reading.places
        if not self._take_places(now, places):
            return
        # The time of a gap was not observed.
        passed = min(now - self._now, settings.seconds / 4)
        self._now, self._started = now, min(self._started, now)
        for sample in reading.samples:
            if sample.osd in places and sample.osd not in reading.probed:
                self._states[sample.osd].window.add(now, sample, settings.seconds)
        windows = {osd: state.window for osd, state in self._states.items()
                   if state.window.expire(now, settings.seconds) and osd not in reading.probed}
        kinds = self._kinds(reading, settings)
        judged = judge(windows, places, kinds)
        judged.update({osd: [each.with_history(self._states[osd].own.get(each.channel))
                             for each in found]
                       for osd, found in judged.items() if found[0].fastest_ms})
        judged.update(self._against_parts(judged, places))
        self.chronic.update(replace(reading, busy=kinds, samples=[
            each for each in reading.samples if each.osd in windows]),
            judged, windows, {osd: self._states[osd].usual for osd in windows},
            settings.memory_seconds)
        excused = excuse_waiting(judged, settings.ratio, places, reading.partners)
        self.slow_replicas = excused.replicas
        self._settled_since = (min(self._settled_since, now) if reading.settled
                               else math.inf)
        quick = now - self._settled_since >= QUICK_SECONDS
        for osd, state in self._states.items():
            if osd in reading.probed:
                # Nothing is known of it meanwhile, so nothing is forgotten.
                state.evidence = now
            elif any(state.window.is_fed(each.channel) for each in judged.get(osd, ())):
                _count_time(state, excused.findings[osd], now, passed, settings,
                            reading.learning, quick)
            else:
                _forget(state, now, settings)
        self._raise(settings)
        self._conclude(passed, judged, excused, places, settings)

    def _against_parts(self, judged: Findings, places: Mapping[int, OsdPlace]) -> Findings:
        """Findings of the OSDs of a class of which a part is slow, without those that are raised.
        They are judged by what was expected of the part when it stood out, if they are far above
        that: once nearly all OSDs of the class are slow, no OSD stands out from its peers."""
        parts = self._parts.parts
        group_of = groups_of(places)[0] if parts else {}
        found: Findings = {}
        for part in parts:
            expected: Dict[Tuple[GroupKey, int], OsdExpectation] = {}
            for osd in self._states.keys() & part.osds:
                for channel, kept in self._states[osd].kept.items():
                    key = group_of[osd], channel
                    expected[key] = max(kept, expected.get(key, kept))
            for osd, findings in judged.items():
                if places[osd].kind == (part.root, part.device_class) \
                        and not self._states[osd].slow:
                    found[osd] = [_if_worse(each, expected.get((group_of[osd], each.channel)))
                                  for each in findings]
        return found

    def _take_places(self, now: float, places: Mapping[int, OsdPlace]) -> bool:
        """Forget removed OSDs. Returns False if no OSD is known, as before the first map."""
        if not places:
            if now - self._now > FORGET_SECONDS:
                self._states, self._hosts, self._parts = {}, (), SlowParts()
            return False
        for osd in [osd for osd in self._states if osd not in places]:
            del self._states[osd]
        for osd in places:
            if osd not in self._states:
                self._states[osd] = _State(OsdWindow(), verdict=OsdVerdict(osd),
                                           usual=_usual_scores())
        return True

    def _kinds(self, reading: OsdReading, settings: SlowSettings) -> Dict[int, str]:
        """OSDs that are busy, or were within the window."""
        kinds: Dict[int, str] = {}
        for osd, state in self._states.items():
            if osd in reading.busy:
                if not state.kind and _began_after(state, self._busy_read, settings):
                    # It was not known to be busy yet.
                    state.over_seconds = 0.0
                state.kind, state.kind_at = reading.busy[osd], reading.now
            elif reading.now - state.kind_at > settings.seconds:
                state.kind = ''
            if state.kind:
                kinds[osd] = state.kind
        self._busy_read = reading.busy_read
        return kinds

    def _raise(self, settings: SlowSettings) -> None:
        """Raise OSDs that have been over the ratio long enough."""
        for state in self._states.values():
            known = state.kind or self._now - state.since >= WORK_SECONDS \
                or not _began_after(state, self._busy_read, settings)
            if not state.slow and known and state.over_seconds >= _hold(state, settings):
                state.slow = True
                _keep_expected(state, state.findings, settings)
                state.evidence = self._now
                state.over_seconds = settings.seconds

    def _conclude(self, passed: float, judged: Findings, excused: Excused,
                  places: Mapping[int, OsdPlace], settings: SlowSettings) -> None:
        """Update the verdicts."""
        verdicts: Dict[int, OsdVerdict] = {}
        for osd, state in self._states.items():
            # The score says how slow an OSD is, also if another one is the cause.
            score = worst(_at_worst(state, judged.get(osd, ()), settings), settings.ratio)[1]
            verdicts[osd] = OsdVerdict(osd, score if osd in judged else None,
                                       waits_for=excused.waits_for.get(osd))
            state.score = score if osd in judged else state.score
            if state.slow:
                best = worst(_at_worst(state, excused.findings.get(osd, ()), settings),
                             settings.ratio)[0]
                if best is not None:
                    state.why = describe(best, self._now - state.since)
        known = self._known(settings)
        named = self._named(passed, known, places, settings)
        slow = {osd: verdicts[osd]._replace(slow=True, since=self._states[osd].since,
                                            why=self._states[osd].why) for osd in named}
        self._hosts = hosts_of(slow, known, places)
        of_host = {osd: host.host for host in self._hosts for osd in host.osds}
        for osd, state in self._states.items():
            state.verdict = slow.get(osd, verdicts[osd])
            if osd in of_host:
                state.verdict = state.verdict._replace(
                    why='%s; so is its host %s' % (state.why, of_host[osd]))

    def _known(self, settings: SlowSettings) -> Set[int]:
        """The OSDs that may have become slow: those with operations in the last minutes."""
        begins = self._now - self._started < settings.seconds
        return {osd for osd, state in self._states.items()
                if begins or self._now - state.evidence <= FORGET_SECONDS}

    def _named(self, passed: float, known: AbstractSet[int], places: Mapping[int, OsdPlace],
               settings: SlowSettings) -> List[int]:
        """The slow OSDs that are reported one by one."""
        slow = {osd: SlowOne(state.score, state.since, state.why, state.of_part,
                             _has_changed(state, settings))
                for osd, state in self._states.items() if state.slow}
        of_parts = self._parts.update(passed, slow, known, places, settings.seconds)
        # Not the first ones of many that become slow together.
        soon = {osd: state.score for osd, state in self._states.items()
                if state.slow or state.over_seconds >= 0.5 * _hold(state, settings)}
        waiting = unnamed(soon, known, places)
        for osd, state in self._states.items():
            state.of_part = osd in of_parts
        return [osd for osd in slow if osd not in of_parts
                and (self._states[osd].verdict.slow or osd not in waiting)]

    def to_json(self) -> Dict[str, Any]:
        """The state that survives a failover: slow OSDs."""
        return {str(osd): {'since': state.since, 'why': state.why, 'part': state.of_part,
                           'kept': {str(channel): [round(value, 4) for value in each]
                                    for channel, each in state.kept.items()}}
                for osd, state in self._states.items() if state.slow}

    def from_json(self, value: Any, now: float) -> None:
        """Load the output of to_json(); invalid entries are skipped."""
        if not isinstance(value, dict):
            return
        self._now = now
        for key, flag in value.items():
            if not (isinstance(key, str) and key.isdecimal() and len(key) < 10
                    and isinstance(flag, dict)):
                continue
            since, why = flag.get('since'), flag.get('why')
            if isinstance(since, (int, float)) and math.isfinite(since) and isinstance(why, str):
                osd, begun, part = int(key), min(float(since), now), flag.get('part') is True
                self._states[osd] = _State(
                    OsdWindow(), math.inf, begun, True, why, now, usual=_usual_scores(),
                    verdict=OsdVerdict(osd) if part else OsdVerdict(osd, None, True, begun, why),
                    of_part=part, kept=_kept_from_json(flag.get('kept')))


def _kept_from_json(value: Any) -> Dict[int, OsdExpectation]:
    return {int(channel): OsdExpectation(*map(float, row)) for channel, row in value.items()
            if channel in map(str, range(len(CHANNELS))) and isinstance(row, list)
            and len(row) == 3 and all(isinstance(each, (int, float)) for each in row)
            and 0.0 < row[0] < LARGEST and abs(row[1]) < LARGEST and 0.0 <= row[2] < LARGEST} \
        if isinstance(value, dict) else {}


def _if_worse(finding: PeerFinding, expected: Optional[OsdExpectation]) -> PeerFinding:
    """The finding against an earlier expectation, if it is far above that."""
    if expected is None:
        return finding
    earlier = finding.against(expected)
    return earlier if earlier.score >= max(PART_RATIO, finding.score) else finding


def _stands_out(state: _State, finding: PeerFinding, settings: SlowSettings) -> bool:
    """Whether a slow OSD still is slow."""
    # Baselines are learned without other work, so they do not apply to an OSD that has some.
    usual = None if state.kind or finding.fastest_ms else state.usual[finding.channel]
    return finding.above(settings.clear_ratio, usual)


def _keep_expected(state: _State, findings: Sequence[PeerFinding],
                   settings: SlowSettings) -> Set[int]:
    """Keep what is expected of a slow OSD in the operations in which it stands out from its peers.
    Returns their channels."""
    above = set()
    for each in findings:
        if _stands_out(state, each, settings):
            state.kept[each.channel] = each.expected()
            above.add(each.channel)
    return above


def _is_left(state: _State, finding: PeerFinding, settings: SlowSettings) -> bool:
    """Whether an OSD is as slow as it was when it stood out, though its peers are slow as well."""
    kept = state.kept.get(finding.channel)
    return kept is not None and _stands_out(state, finding.against(kept), settings)


def _at_worst(state: _State, findings: Sequence[PeerFinding],
              settings: SlowSettings) -> List[PeerFinding]:
    """The findings, against what was expected of a slow OSD earlier where its peers are slow."""
    if not state.kept:
        return list(findings)
    return [each.against(state.kept[each.channel])
            if _is_left(state, each, settings) and not _stands_out(state, each, settings) else each
            for each in findings]


def _over(state: _State, findings: Sequence[PeerFinding], learned: float,
          settings: SlowSettings) -> List[PeerFinding]:
    """The findings in which an OSD is slow; the others update its baselines.

    `learned`: seconds that count for the baselines.
    """
    if state.kind:
        return [each for each in findings if each.over(settings.ratio)]
    over = []
    for each in findings:
        usual = None if each.fastest_ms else state.usual[each.channel]
        if each.over(settings.ratio, usual):
            over.append(each)
        elif usual is not None:
            usual.learn(math.log(each.score), learned)
        else:
            relative, latency = state.own.setdefault(
                each.channel, (ScoreBaseline(), ScoreBaseline()))
            relative.learn(math.log(each.comparison.ms / each.fastest_ms), learned)
            latency.learn(math.log(each.comparison.ms), learned)
    return over


def _has_changed(state: _State, settings: SlowSettings) -> bool:
    """Whether an OSD is slower than it was against its peers; as long as that is not known, whether
    the last mgr has reported it as a part of its class."""
    scores = [(each, state.usual[each.channel]) for each in state.findings]
    if not any(each.with_own or usual.known for each, usual in scores):
        return state.of_part
    return any(each.with_own or usual.known
               and math.log(each.score) - usual.mean >= math.log(settings.ratio)
               for each, usual in scores)


def _usual_scores() -> Tuple[ScoreBaseline, ...]:
    return tuple(ScoreBaseline() for _ in CHANNELS)


def _hold(state: _State, settings: SlowSettings) -> float:
    """Seconds over the ratio after which an OSD is reported."""
    return settings.seconds * (BUSY_PATIENCE if state.kind else 1.0)


def _began_after(state: _State, when: float, settings: SlowSettings) -> bool:
    """Whether an OSD that is not reported yet became slow after a point in time, or at it."""
    return not state.slow and state.since > when - settings.seconds / SLOTS


def _forget(state: _State, now: float, settings: SlowSettings) -> None:
    """Drop the counted time, and later the flag, of an OSD without evidence."""
    if now - state.evidence > (FORGET_SECONDS if state.slow else settings.seconds):
        state.slow, state.kept, state.over_seconds = False, {}, 0.0


def _count_time(state: _State, findings: Sequence[PeerFinding], now: float, passed: float,
                settings: SlowSettings, learning: bool, quick: bool) -> None:
    """Count the time as slow or as healthy. No findings: another OSD explains all of them.

    The latency of old operations is no evidence: the fault may have ended with them.
    """
    state.evidence = now
    state.findings = findings
    findings = [each for each in findings if state.window.is_fed(each.channel)]
    if state.slow:
        # It has not recovered because its peers have become slow as well.
        above = _keep_expected(state, findings, settings) | {
            each.channel for each in findings if _is_left(state, each, settings)}
        bad = bool(above)
        if above == {REPLICATED}:
            state.late_seconds += passed
        elif bad or any(each.channel == REPLICATED for each in findings):
            # Without a new reading of them, it is not known whether they are fast.
            if not bad and state.late_seconds <= LATE_SECONDS:
                passed += min(state.late_seconds, REPLICATED_SECONDS)
            state.late_seconds = 0.0
    else:
        over = _over(state, findings, passed if learning else 0.0, settings)
        bad = not _has_ended(state.window, over)
        if bad:
            passed *= max(each.weight() for each in over)
            if quick and not state.kind and _is_sure(state.window, over):
                passed = _hold(state, settings)
    if bad and state.over_seconds <= 0.0:
        # The median has risen when half of the window is slow.
        state.since = now - settings.seconds / 2
    state.over_seconds += passed if bad else -passed
    state.over_seconds = min(max(state.over_seconds, 0.0), _hold(state, settings))
    if state.slow and state.over_seconds <= 0.0:
        state.slow, state.kept = False, {}


def _has_ended(window: OsdWindow, over: Sequence[PeerFinding]) -> bool:
    """Whether the last mean of each slow kind of operation has less than half of the excess. The
    medians of a window fall later."""
    for each in over:
        found, last_ms = each.comparison, window.least_ms(each.channel, 0.0)
        if last_ms is None or last_ms >= 0.5 * (found.ms + found.expected_ms):
            return False
    return True


def _is_sure(window: OsdWindow, over: Sequence[PeerFinding]) -> bool:
    """Whether each of the last means is far above the expected latency.

    Replicated writes do not count: one reading of them covers half a minute.
    """
    for each in over:
        least = window.least_ms(each.channel, QUICK_SECONDS)
        if each.channel != REPLICATED and least is not None \
                and least >= SURE * each.allowance * each.comparison.expected_ms:
            return True
    return False
