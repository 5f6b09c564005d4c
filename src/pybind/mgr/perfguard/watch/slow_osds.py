# SPDX-License-Identifier: LGPL-2.1-or-later
"""Slow OSDs and slow hosts, named when it lasts.

An OSD is compared with its peers at the same load (peers.py, findings.py). This is what time
adds: how long until it is called slow, and until it is well again. What is slow for a share of the
time only is counted beside it (chronic.py).
"""
import math
from dataclasses import dataclass
from typing import AbstractSet, Any, Collection, Dict, Iterable, List, Mapping, Sequence, Set, Tuple

from .chronic import MEMORY_SECONDS, ChronicOsds
from .findings import (SURE, PeerFinding, ScoreBaseline, judge, without_waiting_primaries,
                       worst)
from .osd_window import CHANNELS, REPLICATED, OsdWindow
from .peers import median
from .types import OsdPlace, OsdSample, SlowHost, OsdVerdict

#: Loads within this factor are the same to a reader.
SAME_LOAD = 1.2


def describe(finding: PeerFinding, seconds: float) -> str:
    """As in "store commits take 3.1 ms, 0.4 +- 0.05 ms on 11 peers, for 90 s at the same load"."""
    found = finding.comparison
    load = 'at the same load'
    if not 1 / SAME_LOAD < found.load_ratio < SAME_LOAD:
        load = 'at %s times their load' % figure(found.load_ratio)
    return '%s take %s ms, %s +- %s ms on %d peers, for %s %s' % (
        CHANNELS[finding.channel], figure(found.ms), figure(found.expected_ms),
        figure(found.spread_ms), found.peers, duration(seconds), load)


def figure(value: float) -> str:
    """Two significant digits, or all before the point."""
    return '%.0f' % value if value >= 10 else '%.2g' % value


def duration(seconds: float) -> str:
    if seconds < 120:
        return '%d s' % seconds
    return '%d min' % (seconds / 60) if seconds < 7200 else '%.1f h' % (seconds / 3600)


# ---- Slow OSDs together: whole hosts, and crowds that are no fault of single OSDs

#: Part of a host's OSDs in one root and class that is slow where the host is.
HOST_PART = 2 / 3
#: Part of a group's OSDs that may be slow one by one; where more are it is the load, or a kind of
#: device, and naming OSDs would mislead.
CROWD_PART = 1 / 4

#: Root, device class.
Class = Tuple[str, str]


def by_host(osds: Iterable[int],
            places: Mapping[int, OsdPlace]) -> Dict[Class, Dict[str, Set[int]]]:
    found: Dict[Class, Dict[str, Set[int]]] = {}
    for osd in osds:
        place = places[osd]
        hosts = found.setdefault((place.root, place.device_class), {})
        hosts.setdefault(place.host, set()).add(osd)
    return found


def whole_hosts(slow: Collection[int], judged: Iterable[int],
                places: Mapping[int, OsdPlace]) -> Dict[Tuple[Class, str], Set[int]]:
    """The slow OSDs of those hosts that are slow as a whole in a class, other hosts not being."""
    found: Dict[Tuple[Class, str], Set[int]] = {}
    every, known = by_host(places, places), by_host({*judged, *slow}, places)
    for key, hosts in by_host(slow, places).items():
        whole = {host: osds for host, osds in hosts.items()
                 if len(osds) >= 2 and len(osds) >= HOST_PART * len(known[key][host])}
        if 2 * len(whole) < len(every[key]):
            found.update({(key, host): osds for host, osds in whole.items()})
    return found


def too_many(slow: AbstractSet[int], judged: Iterable[int],
             places: Mapping[int, OsdPlace]) -> Set[int]:
    """Those of the slow that are so many that none of them should be named."""
    crowd: Set[int] = set()
    hosts = whole_hosts(slow, judged, places)
    single = slow - {osd for osds in hosts.values() for osd in osds}
    everyone = by_host(judged, places)
    for key, found in by_host(single, places).items():
        osds = {osd for each in found.values() for osd in each}
        count = sum(len(each) for each in everyone.get(key, {}).values())
        if len(osds) > max(1.0, CROWD_PART * count):
            crowd |= osds
    return crowd


def hosts_of(slow: Mapping[int, OsdVerdict], judged: Iterable[int],
             places: Mapping[int, OsdPlace]) -> Tuple[SlowHost, ...]:
    """The slow hosts, in order of their names."""
    known = by_host({*judged, *slow}, places)
    found = []
    for (key, host), osds in sorted(whole_hosts(slow, judged, places).items()):
        scores = sorted(score for score in (slow[osd].score for osd in osds) if score is not None)
        since = median(sorted(slow[osd].since for osd in osds))
        score = median(scores) if scores else 1.0
        worst = max(osds, key=lambda osd: (slow[osd].score or 0.0, -osd))
        why = '%d of its %d %s OSDs are slow, osd.%d: %s' % (
            len(osds), len(known[key][host]), key[1] or 'classless', worst, slow[worst].why)
        found.append(SlowHost(host, tuple(sorted(osds)), score, since, why))
    return tuple(found)


#: Seconds without evidence after which a flag is dropped.
FORGET_SECONDS = 600.0
#: How much longer an OSD must be slow that backfills or deep scrubs.
BUSY_PATIENCE = 3.0
#: An OSD is slow without further ado if each of its means of so many seconds is SURE times that of
#: its peers. A stall of an operation or a PG that peers is over sooner, but PGs may peer one after
#: another: so this counts only while all PGs are active and clean. It is seconds and no share of
#: the window, since stalls do not get shorter with the window.
QUICK_SECONDS = 35.0


@dataclass(frozen=True)
class SlowSettings:
    #: Times as slow as its peers from which an OSD is slow.
    ratio: float = 1.5
    #: Times as slow under which it is well again.
    clear_ratio: float = 1.25
    #: Length of the window that is judged, whose median takes half of it to rise; and how long it
    #: must then stay high. A compaction of a minute is so passed over.
    seconds: float = 60.0
    #: Time constant of what is counted of OSDs that are slow again and again.
    memory_seconds: float = MEMORY_SECONDS


@dataclass
class _State:
    """What is remembered of one OSD."""
    window: OsdWindow
    #: Seconds that it has been over the ratio, less those that it has not.
    over_seconds: float = 0.0
    #: When the over_seconds began to rise, or the trouble where slow.
    since: float = 0.0
    slow: bool = False
    #: In what it was slow when there was evidence last.
    why: str = ''
    #: Last time that there was evidence.
    evidence: float = 0.0
    #: Its work beside the clients', and when it was last seen.
    kind: str = ''
    kind_at: float = 0.0
    verdict: OsdVerdict = OsdVerdict(-1)
    #: Its last comparisons.
    findings: Sequence[PeerFinding] = ()
    #: By channel, what is usual for it without other work.
    usual: Tuple[ScoreBaseline, ...] = ()


class SlowOsds:
    """Finds slow OSDs in what update() is given; nothing else has an effect."""

    def __init__(self) -> None:
        self._states: Dict[int, _State] = {}
        self._hosts: Tuple[SlowHost, ...] = ()
        self._now = -math.inf
        #: Since when all PGs have been active and clean.
        self._settled_since = math.inf
        self.chronic = ChronicOsds()

    @property
    def verdicts(self) -> Dict[int, OsdVerdict]:
        """By OSD, of all that have a place."""
        return {osd: state.verdict for osd, state in self._states.items()}

    def hosts(self) -> Tuple[SlowHost, ...]:
        return self._hosts

    def comparisons(self, osd: int) -> Tuple[Dict[str, float], float]:
        """Kind of operation -> times as slow as its peers; and times their load."""
        findings = self._states[osd].findings if osd in self._states else ()
        return ({CHANNELS[each.channel]: each.score for each in findings},
                max((each.comparison.load_ratio for each in findings), default=1.0))

    def update(self, now: float, samples: Sequence[OsdSample], places: Mapping[int, OsdPlace],
               busy: Mapping[int, str], settings: SlowSettings, learning: bool = True,
               settled: bool = True) -> None:
        """Take in one interval's samples. OSDs without a place are forgotten.

        `now` are seconds of a clock that outlives the mgr. `busy` gives types.TARGET, SOURCE or
        SCRUB of those OSDs that have work beside the clients'. Without `learning` what is seen
        now is not what is usual. `settled`: all PGs are active and clean, and none is moved.
        """
        if not math.isfinite(now) or not self._take_places(now, places):
            return
        # A gap, or a clock set forwards, is not time that anybody has seen.
        passed = min(max(now - self._now, 0.0), settings.seconds / 4)
        if now < self._now:
            self._turn_back(now)
        self._now = now
        for sample in samples:
            if sample.osd in places:
                self._states[sample.osd].window.add(now, sample, settings.seconds)
        windows = {osd: state.window for osd, state in self._states.items()
                   if state.window.expire(now, settings.seconds)}
        kinds = self._kinds(now, busy, settings)
        judged = judge(windows, places, kinds)
        if learning:
            self.chronic.update(now, [each for each in samples if each.osd in windows], judged,
                                windows, places, kinds, settings.memory_seconds)
        findings = without_waiting_primaries(judged, settings.ratio)
        self._settled_since = min(self._settled_since, now) if settled else math.inf
        quick = now - self._settled_since >= QUICK_SECONDS
        chosen: Dict[int, PeerFinding] = {}
        for osd, state in self._states.items():
            if any(state.window.is_fed(each.channel) for each in judged.get(osd, ())):
                _count_time(state, findings[osd], now, passed, settings, learning, quick)
            else:
                _forget(state, now, settings)
            best, score = worst(findings.get(osd, ()), settings.ratio)
            state.verdict = state.verdict._replace(score=score if best else None)
            if best is not None:
                chosen[osd] = best
        self._raise(findings.keys(), places, settings)
        self._conclude(now, chosen, places)

    def _take_places(self, now: float, places: Mapping[int, OsdPlace]) -> bool:
        """Forget the OSDs that are gone; False: no OSD is known, as before the first map."""
        if not places:
            if now - self._now > FORGET_SECONDS:
                self._states, self._hosts = {}, ()
            return False
        for osd in [osd for osd in self._states if osd not in places]:
            del self._states[osd]
        for osd in places:
            if osd not in self._states:
                self._states[osd] = _State(OsdWindow(), verdict=OsdVerdict(osd),
                                           usual=_usual_scores())
        return True

    def _turn_back(self, now: float) -> None:
        """The clock was set back."""
        for state in self._states.values():
            state.since = min(state.since, now)
            state.evidence = min(state.evidence, now)
            state.kind_at = min(state.kind_at, now)

    def _kinds(self, now: float, busy: Mapping[int, str],
               settings: SlowSettings) -> Dict[int, str]:
        """Who is busy, or was within the window."""
        kinds: Dict[int, str] = {}
        for osd, state in self._states.items():
            if osd in busy:
                state.kind, state.kind_at = busy[osd], now
            elif now - state.kind_at > settings.seconds:
                state.kind = ''
            if state.kind:
                kinds[osd] = state.kind
        return kinds

    def _raise(self, judged: AbstractSet[int], places: Mapping[int, OsdPlace],
               settings: SlowSettings) -> None:
        """Call those slow that have been over the ratio for long, unless they are a crowd."""
        candidates = {osd for osd, state in self._states.items()
                      if state.slow or state.over_seconds >= 0.5 * _hold(state, settings)}
        for osd in candidates - too_many(candidates, judged, places):
            state = self._states[osd]
            if not state.slow and state.over_seconds >= _hold(state, settings):
                state.slow = True
                state.evidence = self._now
                state.over_seconds = settings.seconds

    def _conclude(self, now: float, chosen: Mapping[int, PeerFinding],
                  places: Mapping[int, OsdPlace]) -> None:
        """Write the verdicts."""
        slow: Dict[int, OsdVerdict] = {}
        for osd, state in self._states.items():
            if not state.slow:
                state.verdict = OsdVerdict(osd, state.verdict.score)
                continue
            if osd in chosen:
                state.why = describe(chosen[osd], now - state.since)
            slow[osd] = OsdVerdict(osd, state.verdict.score, True, state.since, state.why)
        self._hosts = hosts_of(slow, chosen.keys(), places)
        of_host = {osd: host for host in self._hosts for osd in host.osds}
        for osd, verdict in slow.items():
            if osd in of_host:
                host = of_host[osd]
                verdict = verdict._replace(why='%s; so is its host %s' % (verdict.why, host.host))
            self._states[osd].verdict = verdict

    def to_json(self) -> Dict[str, Any]:
        """What a new mgr must know: the flags."""
        return {str(osd): {'since': state.since, 'why': state.why}
                for osd, state in self._states.items() if state.slow}

    def from_json(self, value: Any, now: float) -> None:
        """Take up the flags of to_json(); what is nonsense there is passed over."""
        if not isinstance(value, dict):
            return
        self._now = now
        for key, flag in value.items():
            if not (isinstance(key, str) and key.isdecimal() and len(key) < 10
                    and isinstance(flag, dict)):
                continue
            since, why = flag.get('since'), flag.get('why')
            if isinstance(since, (int, float)) and math.isfinite(since) and isinstance(why, str):
                osd, begun = int(key), min(float(since), now)
                self._states[osd] = _State(OsdWindow(), math.inf, begun, True, why, now,
                                           verdict=OsdVerdict(osd, None, True, begun, why),
                                           usual=_usual_scores())


def _over(state: _State, findings: Sequence[PeerFinding], learned: float,
          settings: SlowSettings) -> List[PeerFinding]:
    """The findings that accuse an OSD; from the others is learnt what is usual.

    `learned`: seconds that count for that.
    """
    if state.kind:
        return [each for each in findings if each.over(settings.ratio)]
    over = []
    for each in findings:
        usual = state.usual[each.channel]
        if each.over(settings.ratio, usual):
            over.append(each)
        else:
            usual.learn(math.log(each.score), learned)
    return over


def _usual_scores() -> Tuple[ScoreBaseline, ...]:
    return tuple(ScoreBaseline() for _ in CHANNELS)


def _hold(state: _State, settings: SlowSettings) -> float:
    """Seconds over the ratio after which an OSD is slow."""
    return settings.seconds * (BUSY_PATIENCE if state.kind else 1.0)


def _forget(state: _State, now: float, settings: SlowSettings) -> None:
    """Without evidence nothing is counted; what was counted before is of no use any more."""
    if now - state.evidence > (FORGET_SECONDS if state.slow else settings.seconds):
        state.slow, state.over_seconds = False, 0.0


def _count_time(state: _State, findings: Sequence[PeerFinding], now: float, passed: float,
                settings: SlowSettings, learning: bool, quick: bool) -> None:
    """Count the time for or against an OSD. No findings: another OSD explains all of them.

    Without new operations the latency of the last ones is no evidence: they may have ended with
    the fault.
    """
    state.evidence = now
    state.findings = findings
    findings = [each for each in findings if state.window.is_fed(each.channel)]
    if state.slow:
        # What is usual is learnt without other work: it says nothing of an OSD that has some.
        bad = any(each.above(settings.clear_ratio, None if state.kind
                             else state.usual[each.channel]) for each in findings)
    else:
        over = _over(state, findings, passed if learning else 0.0, settings)
        bad = bool(over)
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
        state.slow = False


def _is_sure(window: OsdWindow, over: Sequence[PeerFinding]) -> bool:
    """Whether not one of the last means is near to what is expected.

    What primaries say of a replica counts for half a minute each time, so it is left out.
    """
    for each in over:
        least = window.least_ms(each.channel, QUICK_SECONDS)
        if each.channel != REPLICATED and least is not None \
                and least >= SURE * each.allowance * each.comparison.expected_ms:
            return True
    return False
