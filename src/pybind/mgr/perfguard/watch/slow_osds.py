# SPDX-License-Identifier: LGPL-2.1-or-later
"""Slow OSDs, and the hosts and other parts that they share.

An OSD is compared with its peers at the same load (peers.py). This file decides how long it must
be slow until it is reported, and how long it must be healthy until that is cleared. slowness.py
compares this with the other two answers to whether an OSD is slow.
"""
import math
from dataclasses import dataclass, field, replace
from typing import (AbstractSet, Collection, Dict, Iterable, List, Mapping, NamedTuple,
                    Optional, Sequence, Set, Tuple)

from ..cluster.types import OsdPlace
from ..codec import Time
from ..text import figure, seconds_text
from .chronic import ChronicOsds
from .op_sizes import at_same_size
from .osd_window import CHANNELS, REPLICATED, SLOTS, STORE_READS, OsdWindow
from .peers import (SAME_LOAD, SURE_RATIO, Excused, Findings, GroupKey, OsdExpectation, PeerFinding,
                    ScoreBaseline, excuse_waiting, groups_of, judge, worst)
from .rounds import Work, chunks, latest
from .slow_parts import PART_RATIO, SlowOne, SlowParts, shared_parts, unnamed
from .slowness import (BUSY_PATIENCE, FORGET_SECONDS, LATE_SECONDS, QUICK_SECONDS,
                       REPLICATED_SECONDS, WORK_SECONDS, SlowSettings)
from .types import RESTART, OsdReading, OsdVerdict, SlowPart, SlowShared


def describe(finding: PeerFinding, seconds: float) -> str:
    """Why an OSD is slow, as in "store commits take 3.1 ms, 0.4 +- 0.05 ms on 11 peers, for 90 s at
    the same load"."""
    comparison = finding.comparison
    load = 'at the same load'
    if not 1 / SAME_LOAD < comparison.load_ratio < SAME_LOAD:
        load = 'at %s times their load' % figure(comparison.load_ratio)
    return '%s take %s ms, %s, for %s %s' % (
        CHANNELS[finding.channel], figure(comparison.ms), _expected_text(finding),
        seconds_text(seconds), load)


def _expected_text(finding: PeerFinding) -> str:
    """What an OSD is compared with, as text: an earlier expectation; in a group of two or three,
    the fastest peer and its own history, or the slowest peer; otherwise all peers."""
    comparison = finding.comparison
    peers = '%d peer%s' % (comparison.peers, 's' if comparison.peers > 1 else '')
    if finding.earlier:
        return '%s ms on %s before they became slow too' % (figure(comparison.expected_ms), peers)
    if finding.with_own:
        usual = ' and usually %s ms' % figure(comparison.expected_ms) \
            if comparison.expected_ms > finding.fastest_ms else ''
        return '%s ms on the fastest of %s%s' % (figure(finding.fastest_ms), peers, usual)
    if finding.fastest_ms:  # in a small group, as long as its own history is not known
        return '%s ms on the slowest of %s' % (figure(comparison.expected_ms), peers)
    return '%s +- %s ms on %s' % (figure(comparison.expected_ms), figure(comparison.spread_ms),
                                  peers)


#: By channel, what is not known yet.
_NO_BASELINES = (ScoreBaseline(),) * len(CHANNELS)


class _State(NamedTuple):
    """What is known of one OSD, except for its last operations."""
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
    #: Its last comparisons.
    findings: Sequence[PeerFinding] = ()
    #: By channel, the baseline of its slowdown against its peers, without other work.
    baselines: Sequence[ScoreBaseline] = _NO_BASELINES
    #: In a group of two or three OSDs, by channel: the baselines of the logarithm of its latency
    #: relative to the fastest peer, and in ms.
    own_baselines: Mapping[int, Tuple[ScoreBaseline, ScoreBaseline]] = {}
    #: It belongs to a part of its class that is slow.
    of_part: bool = False
    #: If slow: what was expected of it when it last stood out from its peers, by channel.
    last_expected: Mapping[int, OsdExpectation] = {}
    #: If slow: seconds for which replicated writes alone have been slow.
    replicated_seconds: float = 0.0

    def baseline(self, finding: PeerFinding) -> Optional[ScoreBaseline]:
        """The baseline against its peers that applies to a finding: baselines are learned without
        other work, and in small groups an OSD is compared with its own history in any case."""
        return None if self.kind or finding.fastest_ms else self.baselines[finding.channel]


@dataclass(frozen=True)
class StoredSlow:
    """What survives a failover of a slow OSD."""
    since: Time
    why: str
    #: As of_part and last_expected in _State.
    part: bool = False
    kept: Mapping[int, OsdExpectation] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # `against` divides by it.
        if any(expectation.ms <= 0.0 for expectation in self.kept.values()):
            raise ValueError('an impossible expectation')


class SlowOsds:
    """Finds slow OSDs. Pure: round() is given everything that has an effect."""

    def __init__(self) -> None:
        #: By OSD, of all OSDs that have a place.
        self._states: Dict[int, _State] = {}
        #: The last score of each OSD that has had one. Not in its state, which would have to be
        #: replaced twice per round.
        self._scores: Dict[int, float] = {}
        self._windows: Dict[int, OsdWindow] = {}
        self.verdicts: Mapping[int, OsdVerdict] = {}
        #: Devices, hosts and racks that are slow as a whole, and slow parts of classes.
        self._shared: Tuple[SlowShared, ...] = ()
        self._parts = SlowParts()
        #: When the last interval ended, and when the first one of this mgr did; infinite: none has.
        #: Times are seconds since the epoch.
        self._now = -math.inf
        self._started = math.inf
        #: When the work of the OSDs besides client operations was last read.
        self._busy_read = -math.inf
        #: Since when no PG has peered, moved or recovered; infinite: some do.
        self._settled_since = math.inf
        self.chronic = ChronicOsds()
        #: OSDs whose commits or replicated writes are slow.
        self.slow_replicas: AbstractSet[int] = frozenset()

    def shared(self) -> Tuple[SlowShared, ...]:
        """The devices, hosts and racks that are slow as a whole."""
        return self._shared

    def class_parts(self) -> Tuple[SlowPart, ...]:
        """The slow OSDs of a root and device class that are too many to name."""
        return self._parts.parts

    @property
    def slow_verdicts(self) -> Mapping[int, OsdVerdict]:
        """Of the OSDs that are reported as slow, sorted."""
        return _slow_of(self.verdicts)

    @property
    def any_slow(self) -> bool:
        """Whether an OSD is slow, reported or not."""
        return any(state.slow for state in self._states.values())

    def slowdowns(self, osd: int) -> Dict[str, float]:
        """Kind of operation (CHANNELS) -> slowdown of an OSD, in its last comparisons."""
        return {CHANNELS[finding.channel]: finding.score for finding in self._findings_of(osd)}

    def load_ratio(self, osd: int) -> float:
        """The load of an OSD relative to that of its peers; 1.0: not compared yet."""
        findings = self._findings_of(osd)
        return max([finding.comparison.load_ratio for finding in findings]) if findings else 1.0

    def _findings_of(self, osd: int) -> Sequence[PeerFinding]:
        return self._states[osd].findings if osd in self._states else ()

    def forget(self, replaced: Collection[int]) -> None:
        """Forget OSDs that have another device now."""
        self._drop(replaced)
        self.chronic.forget(replaced)

    def _drop(self, osds: Iterable[int]) -> None:
        for osd in osds:
            self._states.pop(osd, None)
            self._scores.pop(osd, None)
            self._windows.pop(osd, None)
        self.verdicts = {osd: verdict for osd, verdict in self.verdicts.items()
                         if osd in self._states}

    def round(self, reading: OsdReading, settings: SlowSettings) -> Work[None]:
        """Process one interval: judge each OSD against its peers, and decide which are slow.

        OSDs without a place are forgotten, except for the counts of slow time. What others read
        changes only with the last step, so that they may read it between steps. Yields for how many
        OSDs it has made a pass (rounds.py).
        """
        now, places = reading.now, reading.places
        if not self._take_places(now, places):
            return
        # The time of a gap was not observed.
        elapsed = min(now - self._now, max(settings.seconds / 4, reading.observed))
        self._now, self._started = now, min(self._started, now)
        windows, states = yield from self._take_samples(reading, settings)
        judged = yield from self._compare(windows, states, reading)
        yield from self._judge_chronic(judged, windows, states, reading, settings)
        excused = excuse_waiting(judged, settings.ratio, places, reading.partners)
        yield 2 * len(places)
        self._settled_since = min(self._settled_since, now) if reading.settled else math.inf
        interval = _Interval(now, elapsed, settings, reading.learning, busy_read=self._busy_read,
                             quick=now - self._settled_since >= QUICK_SECONDS)
        for osds in chunks(states):
            for osd in osds:
                state, window = states[osd], self._windows[osd]
                if osd in reading.probed:
                    # Nothing is known of it meanwhile, so nothing is forgotten.
                    state = state._replace(evidence=now)
                elif any([window.is_fed(finding.channel) for finding in judged.get(osd, ())]) \
                        and not (osd in reading.replicas_only
                                 and _is_hidden(state, judged[osd], window)):
                    state = _count_time(state, excused.findings[osd], window, interval)
                else:
                    state = _without_evidence(state, interval)
                states[osd] = _raise(state, interval)
            yield 3 * len(osds)
        verdicts = yield from self._verdicts(states, judged, excused, settings)
        # The report of all OSDs follows.
        yield 4 * len(places)
        self.slow_replicas = excused.replicas
        self.chronic.conclude(reading)
        self._conclude(elapsed, states, verdicts, places, settings)

    def _take_samples(self, reading: OsdReading, settings: SlowSettings
                      ) -> Work[Tuple[Dict[int, OsdWindow], Dict[int, _State]]]:
        """Add the operations of the interval. Returns the windows of OSDs with recent operations,
        without those that a probe loads, and the states of all OSDs with their work besides client
        operations. Yields passes over OSDs (rounds.py)."""
        now = reading.now
        for samples in chunks(reading.samples):
            for sample in samples:
                if sample.osd in reading.places and sample.osd not in reading.probed:
                    self._windows[sample.osd].add(now, sample, settings.seconds)
            yield len(samples)
        windows: Dict[int, OsdWindow] = {}
        states: Dict[int, _State] = {}
        for osds in chunks(self._states):
            for osd in osds:
                window = self._windows[osd]
                window.expire(now, settings.seconds)
                if window.is_recent(now, settings.seconds) and osd not in reading.probed:
                    windows[osd] = window
                states[osd] = _with_work(self._states[osd], reading.busy.get(osd, ''), now,
                                         self._busy_read, settings)
            yield len(osds)
        # Only now: _with_work needs the time of the previous reading.
        self._busy_read = reading.busy_read
        return windows, states

    def _compare(self, windows: Mapping[int, OsdWindow], states: Mapping[int, _State],
                 reading: OsdReading) -> Work[Findings]:
        """OSD -> its findings: against its peers; in a group of two or three OSDs against its own
        history; beside a slow part of its class against what was expected of that. In any case as
        if its operations had the size of those of its peers. Yields passes over OSDs (rounds.py).
        """
        judged = yield from judge(windows, reading.places, _kinds_of_work(states))
        # fastest_ms: its group has two or three OSDs.
        judged.update({osd: [finding.with_history(states[osd].own_baselines.get(finding.channel))
                             for finding in findings]
                       for osd, findings in judged.items() if findings[0].fastest_ms})
        judged.update(self._against_parts(states, judged, reading.places))
        return at_same_size(judged, reading.sizes, reading.places)

    def _judge_chronic(self, judged: Findings, windows: Mapping[int, OsdWindow],
                       states: Mapping[int, _State], reading: OsdReading,
                       settings: SlowSettings) -> Work[None]:
        """Pass the interval of the OSDs in `windows` to the judgement of chronic slowness, with
        those that are busy (as long as _with_work() says) and those that are slow by themselves."""
        samples = [sample for sample in reading.samples if sample.osd in windows]
        slow = {osd for osd, state in states.items() if state.slow and not state.of_part}
        yield from self.chronic.take(
            replace(reading, busy=_kinds_of_work(states), samples=samples), judged, windows,
            {osd: states[osd].baselines for osd in windows}, settings.memory_seconds, slow)

    def _against_parts(self, states: Mapping[int, _State], judged: Findings,
                       places: Mapping[int, OsdPlace]) -> Findings:
        """Findings of OSDs that are not slow yet, in classes of which a part is. Each is compared
        with what was expected of the OSDs of the part in the same group, when these last stood out,
        if it is far above that: once nearly all OSDs of the class are slow, no OSD stands out from
        its peers."""
        parts = self._parts.parts
        group_of = groups_of(places)[0] if parts else {}
        findings_by_osd: Findings = {}
        for part in parts:
            expected: Dict[Tuple[GroupKey, int], OsdExpectation] = {}
            for osd in states.keys() & part.osds:
                for channel, expectation in states[osd].last_expected.items():
                    key = group_of[osd], channel
                    # The highest latency, the first field: OSDs of the part had different loads.
                    expected[key] = max(expectation, expected.get(key, expectation))
            for osd, findings in judged.items():
                if places[osd].kind == (part.root, part.device_class) and not states[osd].slow:
                    findings_by_osd[osd] = [
                        _if_worse(finding, expected.get((group_of[osd], finding.channel)))
                        for finding in findings]
        return findings_by_osd

    def _take_places(self, now: float, places: Mapping[int, OsdPlace]) -> bool:
        """Forget OSDs that have no place, and add those that are new. Returns False if no OSD has a
        place, as before the first map; then OSDs are forgotten only after FORGET_SECONDS."""
        if not places:
            if now - self._now > FORGET_SECONDS:
                self._drop(list(self._states))
                self._shared, self._parts = (), SlowParts()
            return False
        removed = self._states.keys() - places.keys()
        if removed:
            self._drop(removed)
        for osd in places:
            if osd not in self._states:
                self._states[osd] = _State()
            if osd not in self._windows:
                self._windows[osd] = OsdWindow()
        return True

    def _verdicts(self, states: Dict[int, _State], judged: Findings, excused: Excused,
                  settings: SlowSettings) -> Work[Dict[int, OsdVerdict]]:
        """OSD -> its score and the replica that it waits for: verdicts as if no OSD were slow.
        Notes in `states` why the slow ones are slow. `judged`: all findings, `excused`: those that
        no other OSD explains. Yields passes over OSDs (rounds.py)."""
        verdicts: Dict[int, OsdVerdict] = {}
        for osds in chunks(states):
            for osd in osds:
                state, score = states[osd], None
                if osd in judged:
                    # It says how slow an OSD is, even if another one is the cause.
                    _, score = worst(_against_earlier(state, judged[osd], settings), settings.ratio)
                verdicts[osd] = OsdVerdict(osd, score, waits_for=excused.waits_for.get(osd))
                if state.slow:
                    finding, _ = worst(
                        _against_earlier(state, excused.findings.get(osd, ()), settings),
                        settings.ratio)
                    # Operations before this interval say nothing of it: the text remains.
                    if finding is not None and state.evidence == self._now:
                        states[osd] = state._replace(
                            why=describe(finding, self._now - state.since))
            yield 2 * len(osds)
        return verdicts

    def _conclude(self, elapsed: float, states: Dict[int, _State], verdicts: Dict[int, OsdVerdict],
                  places: Mapping[int, OsdPlace], settings: SlowSettings) -> None:
        """Decide which slow OSDs are reported, and publish the states, the verdicts, and the hosts,
        devices and racks that are slow as a whole. `elapsed`: seconds since the last time;
        `verdicts`: as if no OSD were slow."""
        self._states = states
        self._scores.update((osd, verdict.score) for osd, verdict in verdicts.items()
                            if verdict.score is not None)
        judged_osds = self._judged_osds(settings)
        slow = {osd: verdicts[osd]._replace(slow=True, since=states[osd].since,
                                            why=states[osd].why)
                for osd in self._reported_osds(elapsed, judged_osds, places, settings)}
        self._shared = shared_parts(slow, judged_osds, places)
        verdicts.update(slow)
        verdicts.update({osd: verdicts[osd]._replace(
            why='%s; so is its %s' % (states[osd].why, shared.subject))
            for shared in self._shared for osd in shared.osds})
        self.verdicts = verdicts

    def _judged_osds(self, settings: SlowSettings) -> Set[int]:
        """The OSDs that may have become slow: those with operations in the last minutes; all, as
        long as this mgr has seen less than a window."""
        just_started = self._now - self._started < settings.seconds
        return {osd for osd, state in self._states.items()
                if just_started or self._now - state.evidence <= FORGET_SECONDS}

    def _reported_osds(self, elapsed: float, judged_osds: AbstractSet[int],
                       places: Mapping[int, OsdPlace], settings: SlowSettings) -> List[int]:
        """The slow OSDs that are reported one by one: not those of a slow part of their class, and
        not those that are becoming slow together with many, unless they are reported already. Notes
        in the states which OSDs belong to a slow part."""
        slow = {osd: SlowOne(self._scores.get(osd, 1.0), state.since, state.why, state.of_part,
                             _has_changed(state, settings))
                for osd, state in self._states.items() if state.slow}
        of_parts = self._parts.update(elapsed, slow, judged_osds, places, settings.seconds)
        # Half of the time that they must be slow has passed. The first ones of many that become
        # slow together wait for the others: a part may be reported instead.
        slow_soon = {osd: self._scores.get(osd, 1.0) for osd, state in self._states.items()
                     if state.slow
                     or state.over_seconds >= 0.5 * _seconds_until_slow(state, settings)}
        waiting = unnamed(slow_soon, judged_osds, places)
        of_parts_before = {osd for osd, state in self._states.items() if state.of_part}
        for osd in of_parts ^ of_parts_before:
            self._states[osd] = self._states[osd]._replace(of_part=osd in of_parts)
        reported_before = self.slow_verdicts.keys()
        return [osd for osd in slow if osd not in of_parts
                and (osd in reported_before or osd not in waiting)]

    def stored(self) -> Dict[int, StoredSlow]:
        """The slow OSDs, reported or not."""
        return {osd: StoredSlow(state.since, state.why, state.of_part, state.last_expected)
                for osd, state in self._states.items() if state.slow}

    def load(self, slow: Mapping[int, StoredSlow], now: float) -> None:
        """Take over the slow OSDs of an earlier mgr."""
        self._now = now
        # The next interval reduces over_seconds to the limit (_with_time).
        self._states.update((osd, _State(
            over_seconds=math.inf, since=stored.since, slow=True, why=stored.why, evidence=now,
            of_part=stored.part, last_expected=stored.kept)) for osd, stored in slow.items())
        self.verdicts = {osd: OsdVerdict(osd) if stored.part
                         else OsdVerdict(osd, None, True, stored.since, stored.why)
                         for osd, stored in slow.items()}


@latest
def _slow_of(verdicts: Mapping[int, OsdVerdict]) -> Dict[int, OsdVerdict]:
    return {osd: verdict for osd, verdict in sorted(verdicts.items()) if verdict.slow}


def _if_worse(finding: PeerFinding, expected: Optional[OsdExpectation]) -> PeerFinding:
    """The finding against an earlier expectation (None: there is none), if its score is at least
    PART_RATIO then, and no lower than against its peers; else as it is."""
    if expected is None:
        return finding
    earlier = finding.against(expected)
    return earlier if earlier.score >= max(PART_RATIO, finding.score) else finding


class _Interval(NamedTuple):
    """One interval, and what applies to all OSDs in it."""
    now: float
    #: Seconds that were observed.
    elapsed: float
    settings: SlowSettings
    #: Baselines may learn from it.
    learning: bool
    #: All PGs have been active and clean for QUICK_SECONDS.
    quick: bool
    #: When the work of the OSDs besides client operations was read.
    busy_read: float


def _kinds_of_work(states: Mapping[int, _State]) -> Dict[int, str]:
    """OSD -> its work besides client operations, of OSDs with such work."""
    return {osd: state.kind for osd, state in states.items() if state.kind}


def _with_work(state: _State, kind: str, now: float, busy_read: float,
               settings: SlowSettings) -> _State:
    """The state with the work of the OSD besides client operations. Work that has ended remains
    until the window has none of its operations. `kind`: its work now, '' for none; `busy_read`:
    when the work of OSDs was read before."""
    if kind == RESTART and state.slow and not state.kind:
        kind = ''  # it was slow before, so a cold cache is not the reason
    if kind:
        # If the OSD became slow after the previous reading, the work that this one shows may be the
        # reason: the time until now does not count.
        may_be_effect = not state.kind and _began_after(state, busy_read, settings)
        return state._replace(kind=kind, kind_at=now,
                              over_seconds=0.0 if may_be_effect else state.over_seconds)
    ended = state.kind and now - state.kind_at > settings.seconds
    return state._replace(kind='') if ended else state


def _raise(state: _State, interval: _Interval) -> _State:
    """The state, which becomes slow once the OSD has been over the ratio long enough. It waits
    while work besides client operations that began at the same time may still be unknown, for at
    most WORK_SECONDS."""
    if state.slow or state.over_seconds < _seconds_until_slow(state, interval.settings):
        return state
    work_known = state.kind or interval.now - state.since >= WORK_SECONDS \
        or not _began_after(state, interval.busy_read, interval.settings)
    if not work_known:
        return state
    expected = _expected_above(state, state.findings, interval.settings)
    return state._replace(
        slow=True, evidence=interval.now, over_seconds=interval.settings.seconds,
        last_expected={**state.last_expected, **expected})


def _stands_out(state: _State, finding: PeerFinding, settings: SlowSettings) -> bool:
    """Whether a slow OSD is still slow against its peers, or its own baseline against them."""
    return finding.is_still_slow(settings.clear_ratio, state.baseline(finding))


def _expected_above(state: _State, findings: Sequence[PeerFinding],
                    settings: SlowSettings) -> Dict[int, OsdExpectation]:
    """Channel -> what is expected of a slow OSD, of the channels in which it stands out from its
    peers now."""
    return {finding.channel: finding.expected() for finding in findings
            if _stands_out(state, finding, settings)}


def _is_as_slow(state: _State, finding: PeerFinding, settings: SlowSettings) -> bool:
    """Whether an OSD is slow against what was expected when it last stood out, though its peers may
    be slow as well now."""
    expected = state.last_expected.get(finding.channel)
    return expected is not None and _stands_out(state, finding.against(expected), settings)


def _against_earlier(state: _State, findings: Sequence[PeerFinding],
                     settings: SlowSettings) -> Sequence[PeerFinding]:
    """The findings of an OSD. If it is slow, but does not stand out from its peers anymore because
    they are slow too: against what was expected of it when it last did."""
    if not state.last_expected:
        return findings
    return [finding.against(state.last_expected[finding.channel])
            if _is_as_slow(state, finding, settings) and not _stands_out(state, finding, settings)
            else finding for finding in findings]


class _Baselines(NamedTuple):
    """As in _State."""
    baselines: Sequence[ScoreBaseline]
    own_baselines: Mapping[int, Tuple[ScoreBaseline, ScoreBaseline]]


def _learned(state: _State, findings: Sequence[PeerFinding], seconds: float) -> _Baselines:
    """The baselines of an OSD without other work, with these findings of an interval of
    `seconds`."""
    baselines, own_baselines = list(state.baselines), state.own_baselines
    for finding in findings:
        channel, ms = finding.channel, finding.comparison.ms
        if not finding.fastest_ms:  # its group has more than three OSDs
            baselines[channel] = baselines[channel].learned(math.log(finding.score), seconds)
            continue
        relative, latency = own_baselines.get(channel, (ScoreBaseline(), ScoreBaseline()))
        own_baselines = {**own_baselines, channel: (
            relative.learned(math.log(ms / finding.fastest_ms), seconds),
            latency.learned(math.log(ms), seconds))}
    return _Baselines(baselines, own_baselines)


def _has_changed(state: _State, settings: SlowSettings) -> bool:
    """Whether a slow OSD is slower against its peers than it was before; as long as that is not
    known, whether the last mgr has reported it as a part of its class."""
    # A comparison with its own history shows nothing but changes.
    if any(finding.with_own for finding in state.findings):
        return True
    with_baselines = [(finding, state.baselines[finding.channel]) for finding in state.findings
                      if state.baselines[finding.channel].known]
    if not with_baselines:
        return state.of_part
    return any(math.log(finding.score) - baseline.mean >= math.log(settings.ratio)
               for finding, baseline in with_baselines)


def _seconds_until_slow(state: _State, settings: SlowSettings) -> float:
    """Seconds over the ratio after which an OSD is slow; more if it has other work."""
    return settings.seconds * (BUSY_PATIENCE if state.kind else 1.0)


def _began_after(state: _State, when: float, settings: SlowSettings) -> bool:
    """Whether an OSD that is not slow yet went over the ratio after a point in time, or at it."""
    return not state.slow and state.since > when - settings.seconds / SLOTS


def _is_hidden(state: _State, findings: Sequence[PeerFinding], window: OsdWindow) -> bool:
    """Whether a slow OSD with a primary affinity of 0 has no comparable operations of the kinds in
    which it was slow: a drive that is slow only at reads commits as fast as others. Where not the
    reads of the store were slow, but the process or the network, replicated writes show that as
    well."""
    kinds = set(state.last_expected)
    if STORE_READS not in kinds:
        kinds.add(REPLICATED)
    return state.slow and bool(state.last_expected) and not any(
        finding.channel in kinds and window.is_fed(finding.channel) for finding in findings)


def _without_evidence(state: _State, interval: _Interval) -> _State:
    """The state of an OSD without comparable operations in an interval. Once that has lasted for a
    window, or, if it is slow, for FORGET_SECONDS, it is healthy, and its time over the ratio is
    forgotten."""
    forget_after = FORGET_SECONDS if state.slow else interval.settings.seconds
    if interval.now - state.evidence <= forget_after:
        return state
    return state._replace(slow=False, last_expected={}, over_seconds=0.0)


def _count_time(state: _State, findings: Sequence[PeerFinding], window: OsdWindow,
                interval: _Interval) -> _State:
    """The state after an interval with operations. `findings`: those that no other OSD explains,
    which may be none.

    Only kinds with operations in the last slot of the window count: with the others, the fault may
    have ended.
    """
    recent = [finding for finding in findings if window.is_fed(finding.channel)]
    if state.slow:
        state = state._replace(evidence=interval.now, findings=findings)
        return _count_slow(state, recent, interval)
    over = [finding for finding in recent
            if finding.is_slow(interval.settings.ratio, state.baseline(finding))]
    learned = _Baselines(state.baselines, state.own_baselines)
    if interval.learning and interval.elapsed > 0.0 and not state.kind:
        within = [finding for finding in recent if finding not in over] if over else recent
        learned = _learned(state, within, interval.elapsed)
    # At once, as this is done for nearly all OSDs.
    state = state._replace(evidence=interval.now, findings=findings,
                           baselines=learned.baselines, own_baselines=learned.own_baselines)
    return _count_healthy(state, over, window, interval)


def _count_slow(state: _State, findings: Sequence[PeerFinding], interval: _Interval) -> _State:
    """The state after an interval of an OSD that is slow."""
    expected = _expected_above(state, findings, interval.settings)
    state = state._replace(last_expected={**state.last_expected, **expected})
    # If its peers have become slow as well, that does not mean that it has recovered.
    slow_channels = expected.keys() | {finding.channel for finding in findings
                                       if _is_as_slow(state, finding, interval.settings)}
    alone_seconds, elapsed = state.replicated_seconds, interval.elapsed
    if slow_channels == {REPLICATED}:
        return _with_time(state._replace(replicated_seconds=alone_seconds + elapsed), elapsed,
                          interval)
    if slow_channels:
        return _with_time(state._replace(replicated_seconds=0.0), elapsed, interval)
    if any(finding.channel == REPLICATED for finding in findings):
        # They are fast in a new reading, which covers up to REPLICATED_SECONDS of that time. If
        # they alone were slow for longer than two readings take, other operations do not show when
        # the OSD recovered.
        elapsed += min(alone_seconds, REPLICATED_SECONDS) if alone_seconds <= LATE_SECONDS else 0.0
        state = state._replace(replicated_seconds=0.0)
    return _with_time(state, -elapsed, interval)


def _count_healthy(state: _State, over: Sequence[PeerFinding], window: OsdWindow,
                   interval: _Interval) -> _State:
    """The state after an interval of an OSD that is not slow. `over`: the findings over the
    ratio."""
    if _has_ended(window, over):  # or nothing is over the ratio
        return _with_time(state, -interval.elapsed, interval)
    # All PGs have been clean for long enough: such an OSD is slow at once.
    if interval.quick and not state.kind and _is_sure(window, over):
        return _with_time(state, _seconds_until_slow(state, interval.settings), interval)
    return _with_time(state, interval.elapsed * max(finding.weight() for finding in over), interval)


def _with_time(state: _State, seconds: float, interval: _Interval) -> _State:
    """The state with `seconds` more over the ratio, or, if negative, below it. The sum is at most
    the time after which an OSD is reported; at 0, a slow OSD is healthy again."""
    if seconds <= 0.0 and not (state.over_seconds or state.slow):
        return state  # healthy as before, as nearly all are
    since, settings = state.since, interval.settings
    if seconds > 0.0 and state.over_seconds <= 0.0:
        # The median has risen when half of the window is slow.
        since = interval.now - settings.seconds / 2
    over_seconds = min(max(state.over_seconds + seconds, 0.0), _seconds_until_slow(state, settings))
    slow = state.slow and over_seconds > 0.0
    return state._replace(over_seconds=over_seconds, since=since, slow=slow,
                          last_expected=state.last_expected if slow else {})


def _has_ended(window: OsdWindow, over: Sequence[PeerFinding]) -> bool:
    """Whether the last slot shows, in each kind of operation that is over the ratio (`over`; []:
    none is), less than half of the excess of the window. The medians of a window fall later."""
    for finding in over:
        comparison, last_ms = finding.comparison, window.least_ms(finding.channel, seconds=0.0)
        if last_ms is None or last_ms >= 0.5 * (comparison.ms + comparison.expected_ms):
            return False
    return True


def _is_sure(window: OsdWindow, over: Sequence[PeerFinding]) -> bool:
    """Whether each slot of the last QUICK_SECONDS is far above the expected latency, in one of the
    kinds of operation. Not in replicated writes: one reading of them covers half a minute."""
    for finding in over:
        lowest_ms = window.least_ms(finding.channel, QUICK_SECONDS)
        if finding.channel != REPLICATED and lowest_ms is not None \
                and lowest_ms >= SURE_RATIO * finding.allowance * finding.comparison.expected_ms:
            return True
    return False
