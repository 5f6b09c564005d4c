# SPDX-License-Identifier: LGPL-2.1-or-later
"""OSDs that are slow for a share of the time, in repeated episodes, or all the time.

The median of a minute (slow_osds.py) ignores spikes of seconds and has no memory. This file counts
the seconds in which an OSD was several times as slow as its peers at its load, or was slow by that
median, as a share of the seconds with enough operations for a comparison. Time without operations
does not count, so that a night without load neither hides nor clears a slow drive. The counts decay
with a time constant (the option chronic_period_seconds), and those of the recent past with a
shorter one. slowness.py has the constants, for the default of this option.
"""
import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import Collection, Dict, List, Mapping, Optional, Sequence, Tuple

from ..cluster.types import OsdPlace
from ..codec import Time
from ..text import plural, time_text
from .osd_window import BLOCK_OPS, CHANNELS, OsdWindow, flows_of
from .peers import (BEYOND_SLOPE, MIN_PEERS, Findings, PeerFinding, ScoreBaseline,
                    excuse_waiting, median)
from .rounds import Work, chunks
from .series import Amount
from .slow_parts import crowded
from .slowness import (CHRONIC_OWN_RATIO, CHRONIC_RATIO, CLEAR_EVIDENCE_SECONDS, CLEAR_SECONDS,
                       EPISODE_SECONDS, FORGET_CHRONIC_SECONDS, GAP_SECONDS, JUDGE_SECONDS,
                       LASTING_SECONDS, LEAST_EPISODES, LEAST_LASTING_SECONDS, LEAST_SHARE,
                       LEAST_SLOW_SECONDS, LONG_EPISODE_SECONDS, LONGEST_SECONDS, MEMORY_SECONDS,
                       MOST_BASELINE, NOISE_DEVIATIONS, OP_SPREAD, PEERS_SECONDS, PEERS_SHARES,
                       RECENT_MEMORY, RECENT_SLOW_SECONDS, REPORTED_RATIO)
from .types import Chronic, OsdReading, PlainFlow

#: Maximum number of OSDs that are stored.
MOST_STORED_OSDS = 160


@dataclass
class _Count:
    """Counts of one OSD; points in time are seconds since the epoch."""
    #: Seconds with operations, and slow seconds; both decay.
    evidence: Amount = 0.0
    slow: Amount = 0.0
    #: The same in the recent past.
    recent_evidence: Amount = 0.0
    recent_slow: Amount = 0.0
    #: Seconds with operations since the last episode.
    quiet: Amount = 0.0
    #: Slow seconds of the episode, 0 between episodes, and seconds since the last of them.
    episode: Amount = 0.0
    gap: Amount = 0.0
    #: Begin of the first episode, end of the last episode, and last time with operations.
    since: Time = 0.0
    last: Time = 0.0
    seen: Time = 0.0
    #: Since the first episode, without decay: episodes, seconds with operations, slow seconds, and
    #: the integral of the logarithm of the slowdown over the latter.
    episodes: int = 0
    seconds: Amount = 0.0
    slow_seconds: Amount = 0.0
    logs: Amount = 0.0
    #: Kind of operation of the last slow interval.
    channel: int = 0
    #: When it was raised; 0.0: it is not.
    raised: Time = 0.0
    #: Of its device, in what is stored.
    uuid: Optional[str] = None

    def __post_init__(self) -> None:
        # A stored value must not fail verdict().
        if not 0 <= self.channel < len(CHANNELS) or self.logs > 700.0 * self.slow_seconds:
            raise ValueError('an impossible count')

    def share(self, recent: bool = False) -> float:
        """Share (0 to 1) of the time with operations in which it was slow."""
        slow, evidence = (self.recent_slow, self.recent_evidence) if recent \
            else (self.slow, self.evidence)
        return slow / evidence if evidence else 0.0

    def count_interval(self, now: float, seconds: float, finding: Optional[PeerFinding],
                       scale: float) -> None:
        """Count an interval of `seconds` with operations. `finding`: the slowest of them, if they
        were slow; None: they were not. `scale`: the memory as a multiple of MEMORY_SECONDS."""
        decay = math.exp(-seconds / (scale * MEMORY_SECONDS))
        recent_decay = math.exp(-seconds / (scale * RECENT_MEMORY * MEMORY_SECONDS))
        self.evidence = self.evidence * decay + seconds
        self.recent_evidence = self.recent_evidence * recent_decay + seconds
        self.slow *= decay
        self.recent_slow *= recent_decay
        self.seconds += seconds
        self.seen = now
        if finding is not None:
            self._count_slow(now, seconds, finding)
        elif self.episode:
            self.gap += seconds
            # Shorter with a shorter memory, but not longer with a longer one.
            if self.gap >= max(EPISODE_SECONDS, min(1.0, scale) * GAP_SECONDS):
                self._end_episode()
        else:
            self.quiet += seconds

    def _count_slow(self, now: float, seconds: float, finding: PeerFinding) -> None:
        """Count a slow interval, which begins an episode or prolongs it. One that is long enough
        counts as such at once."""
        if not self.episodes and not self.episode:
            # The first episode begins: forget what was counted since an earlier one was cleared.
            self.since, self.seconds, self.slow_seconds, self.logs = now - seconds, seconds, 0., 0.
        self.slow += seconds
        self.recent_slow += seconds
        self.episode += seconds
        self.gap = 0.0
        self.slow_seconds += seconds
        # For the geometric mean of the slowdown.
        self.logs += seconds * math.log(max(1.0, finding.score))
        self.channel = finding.channel
        if self.episode >= EPISODE_SECONDS:
            self.last, self.quiet = now, 0.0

    def _end_episode(self) -> None:
        self.episodes += self.episode >= EPISODE_SECONDS
        self.quiet += self.gap
        self.episode = self.gap = 0.0

    def clear_if_over(self, now: float, scale: float, replicas_only: bool) -> bool:
        """Drop the finding on an OSD that is healthy again or has had no operations for long, and
        its episodes, with or without a finding. Returns whether a finding was dropped for the
        latter reason. `scale`: the memory as a multiple of MEMORY_SECONDS; `replicas_only`: its
        primary affinity is 0, so it may show no operations, and is cleared sooner to be judged
        anew."""
        # A finding from few minutes in all, as of a compaction by hand, is cleared sooner. Without
        # a finding, episodes are remembered as long as a pattern.
        is_pattern = (not self.raised or self.all_episodes >= LEAST_EPISODES
                      or self.slow_seconds >= scale * LONG_EPISODE_SECONDS)
        healthy_after = CLEAR_SECONDS if is_pattern else CLEAR_EVIDENCE_SECONDS
        is_healthy = (self.episodes and now - self.last >= scale * healthy_after
                      and self.quiet >= scale * CLEAR_EVIDENCE_SECONDS)
        forget_after = CLEAR_SECONDS if replicas_only and self.raised else FORGET_CHRONIC_SECONDS
        no_evidence = now - self.seen >= scale * forget_after
        was_raised = bool(self.raised)
        if is_healthy or no_evidence:
            self.episodes, self.episode, self.raised = 0, 0.0, 0.0
        return was_raised and no_evidence

    @property
    def all_episodes(self) -> int:
        """Number of episodes, with the one that has not ended."""
        return self.episodes + (self.episode >= EPISODE_SECONDS)

    def is_chronic(self, scale: float, recent: bool) -> bool:
        """Whether the OSD was slow for enough of the time; `recent`: of the recent past alone.
        `scale`: the memory as a multiple of MEMORY_SECONDS. Whether its peers were slow for less is
        judged later."""
        if recent:
            return (self.all_episodes >= LEAST_EPISODES
                    and self.recent_slow >= scale * RECENT_SLOW_SECONDS)
        # Slow all the time, in any number of episodes.
        if self.all_episodes and self.slow >= max(scale * LASTING_SECONDS, LEAST_LASTING_SECONDS):
            return True
        return (self.all_episodes >= LEAST_EPISODES
                and self.slow >= scale * LEAST_SLOW_SECONDS and self.share() >= LEAST_SHARE)

    def may_be_chronic(self, scale: float) -> bool:
        """Whether it is raised, or may soon be. `scale`: as for `is_chronic`."""
        return bool(self.raised) or self.slow >= scale * LEAST_SLOW_SECONDS / 4 \
            or self.recent_slow >= scale * RECENT_SLOW_SECONDS / 4

    def verdict(self, osd: int) -> Chronic:
        """The finding on an OSD that is chronically slow."""
        share = self.slow_seconds / max(self.seconds, self.slow_seconds, 1.0)
        slowdown = math.exp(self.logs / max(self.slow_seconds, 1.0))
        return Chronic(osd, self.since, self.raised, self.last, share, self.all_episodes, slowdown,
                       'slow %s of the time since %s, %s, slowdown %.1f while slow, last in %s' % (
                           percent(share), time_text(self.since),
                           plural(self.all_episodes, 'episode'), slowdown,
                           CHANNELS[self.channel]))


#: OSD -> its counts.
StoredCounts = Mapping[int, _Count]


def percent(share: float) -> str:
    return '%.0f %%' % (100 * share) if share >= 0.0995 else '%.1f %%' % (100 * share)


class ChronicOsds:
    """Counts slow time by OSD. Pure: take() is given everything that has an effect."""

    def __init__(self) -> None:
        #: By OSD.
        self._counts: Dict[int, _Count] = {}
        #: When the work of the OSDs besides client operations was last read, and the counts of the
        #: OSDs that have been slow since, from before they became slow.
        self._busy_read = -math.inf
        self._before: Dict[int, _Count] = {}
        #: When the counts were last judged.
        self._judged = -math.inf
        #: The memory as a multiple of MEMORY_SECONDS.
        self._scale = 1.0
        #: OSD -> the finding on it, of all OSDs that are chronically slow.
        self._standing: Dict[int, Chronic] = {}
        #: OSDs that are down and out, or drained, whose findings are not reported.
        self.away: Collection[int] = ()
        #: OSD whose last finding was cleared without evidence of health -> why.
        self.unjudged: Dict[int, str] = {}

    @property
    def standing(self) -> Mapping[int, Chronic]:
        """The OSDs that are chronically slow."""
        return {osd: chronic for osd, chronic in self._standing.items() if osd not in self.away}

    def shares(self) -> Dict[int, float]:
        """Share of the time (0 to 1) in which each OSD was slow, within the memory."""
        return {osd: count.share() for osd, count in self._counts.items()
                if count.evidence >= self._scale * PEERS_SECONDS}

    def take(self, reading: OsdReading, findings: Findings, windows: Mapping[int, OsdWindow],
             baselines: Mapping[int, Sequence[ScoreBaseline]],
             memory_seconds: float = MEMORY_SECONDS,
             reported: Collection[int] = ()) -> Work[None]:
        """Count an interval. `findings`: comparisons of each OSD with its peers, by the median of a
        minute; `baselines`: of its slowdown, by channel; `reported`: OSDs that are slow by that
        median.

        OSDs with work besides client operations are not counted. If such work becomes known late,
        what was counted since it was last read is taken back. Yields passes over OSDs (rounds.py).
        """
        now = reading.now
        self._scale = memory_seconds / MEMORY_SECONDS
        self._take_back(reading.busy_read, reading.busy)
        intervals, slow_ops = yield from _intervals(reading, findings, windows, baselines)
        slow = {**_still_slow(reading, findings, intervals.keys() & reported),
                **_worst(slow_ops, reading)}
        # If many are slow at once, the cause is not the OSDs: the interval says nothing of them.
        crowd = crowded(slow, findings, reading.places) if len(slow) > 1 else set()
        for chunk in chunks(intervals.items()):
            for osd, seconds in chunk:
                if osd in crowd:
                    continue
                count = self._counts.get(osd)
                if count is None:
                    count = self._counts[osd] = _Count()
                if osd in slow:
                    self._before.setdefault(osd, replace(count))
                count.count_interval(now, min(seconds, LONGEST_SECONDS), slow.get(osd), self._scale)
            yield 2 * len(chunk)

    def conclude(self, reading: OsdReading) -> None:
        """Judge the counts, once per JUDGE_SECONDS (more often with a shorter memory)."""
        if reading.now - self._judged >= min(1.0, self._scale) * JUDGE_SECONDS:
            self._judged = reading.now
            self._judge(reading.now, reading.places, reading.replicas_only)

    def _take_back(self, busy_read: float, busy: Mapping[int, str]) -> None:
        """Restore the counts of OSDs that became slow since work besides client operations was last
        read, and turn out to have such work: it may have begun before it was read, and made them
        slow. `busy_read`: when such work was read, as in the last call if it was not read since;
        `busy`: OSDs with such work."""
        if busy_read > self._busy_read:
            self._counts.update({osd: count for osd, count in self._before.items()
                                 if osd in busy and osd in self._counts})
            self._before.clear()
            self._busy_read = busy_read

    def keep(self, osds: Collection[int], away: Collection[int] = ()) -> None:
        """Forget all but these OSDs, which include those that are down, and have no place. `away`:
        OSDs that are down and out, or drained: their findings are not reported until they return.
        """
        self.away = away
        for osd in self._counts.keys() - osds:
            del self._counts[osd]
            self._standing.pop(osd, None)

    def forget(self, replaced: Collection[int]) -> None:
        """Forget OSDs that have another device now, and note why findings on them ended."""
        for osd in replaced:
            self._before.pop(osd, None)
            self._counts.pop(osd, None)
            if self._standing.pop(osd, None) is not None:
                self.unjudged[osd] = 'osd.%d was replaced' % osd

    def _judge(self, now: float, places: Mapping[int, OsdPlace],
               replicas_only: Collection[int]) -> None:
        """Decide which OSDs are chronically slow, by the whole memory or by the recent past, and
        which cannot be judged. If many of a class are, the cause is not the OSDs.
        `replicas_only`: OSDs with a primary affinity of 0."""
        for osd, count in self._counts.items():
            # OSDs in `replicas_only` have no reads, and some stores show no other evidence.
            if count.clear_if_over(now, self._scale, osd in replicas_only):
                self.unjudged[osd] = 'no operation was compared with its peers for %.0f h%s' % (
                    (now - count.seen) / 3600,
                    ': its primary affinity is 0' if osd in replicas_only else '')
        for recent in (False, True):
            candidates = {osd for osd, count in self._counts.items()
                          if osd in places and count.is_chronic(self._scale, recent)}
            if any(not self._counts[osd].raised for osd in candidates):
                shares = self._shares_by_class(places, recent)
                for osd in candidates - crowded(candidates, self._counts.keys() & places.keys(),
                                                places):
                    count = self._counts[osd]
                    if not count.raised and self._stands_out(
                            osd, shares.get(places[osd].kind, []), recent):
                        count.raised = now
        self._standing = {osd: count.verdict(osd) for osd, count in sorted(self._counts.items())
                          if count.raised}
        self.unjudged = {osd: why for osd, why in self.unjudged.items()
                         if osd in places and osd not in self._standing}

    def _shares_by_class(self, places: Mapping[int, OsdPlace],
                         recent: bool) -> Dict[Tuple[str, str], List[float]]:
        """Root and device class -> shares of the time in which its OSDs were slow, ascending, of
        OSDs with enough operations. `recent`: of the recent past alone."""
        shares: Dict[Tuple[str, str], List[float]] = {}
        for osd, count in self._counts.items():
            if osd in places and count.evidence >= self._scale * PEERS_SECONDS:
                shares.setdefault(places[osd].kind, []).append(count.share(recent))
        for of_class in shares.values():
            of_class.sort()
        return shares

    def _stands_out(self, osd: int, of_class: Sequence[float], recent: bool) -> bool:
        """Whether its peers are slow for a much smaller share of the time: most of them, or all of
        few. `of_class`: sorted shares of the OSDs of its class with enough operations."""
        count, peers = self._counts[osd], list(of_class)
        if count.evidence >= self._scale * PEERS_SECONDS:
            # Its own share is among them.
            del peers[bisect_left(peers, count.share(recent))]
        usual = median(peers) if len(peers) >= MIN_PEERS else max(peers, default=math.inf)
        return count.share(recent) >= PEERS_SHARES * usual

    @property
    def has_candidates(self) -> bool:
        """Whether an OSD may soon be raised."""
        return any(not count.raised and count.may_be_chronic(self._scale)
                   for count in self._counts.values())

    def stored(self, uuids: Mapping[int, str]) -> StoredCounts:
        """OSD -> its counts, of at most MOST_STORED_OSDS OSDs that are raised, or may soon be:
        raised ones first, then those with the most slow seconds. `uuids`: of the device of each
        OSD."""
        candidates = [(bool(count.raised), count.slow, osd) for osd, count in self._counts.items()
                      if count.may_be_chronic(self._scale)]
        return {osd: replace(self._counts[osd], uuid=uuids.get(osd))
                for _, _, osd in sorted(candidates, reverse=True)[:MOST_STORED_OSDS]}

    def load(self, counts: StoredCounts) -> Dict[int, str]:
        """Take over the counts of an earlier mgr. Returns the uuids of devices in them, by OSD."""
        self._counts.update(counts)
        self._standing = {osd: count.verdict(osd) for osd, count in sorted(self._counts.items())
                          if count.raised}
        return {osd: count.uuid for osd, count in counts.items() if count.uuid is not None}


def _intervals(reading: OsdReading, findings: Findings, windows: Mapping[int, OsdWindow],
               baselines: Mapping[int, Sequence[ScoreBaseline]]
               ) -> Work[Tuple[Dict[int, float], Findings]]:
    """OSD -> length of the interval in seconds, of OSDs with enough operations of a kind and
    without other work; and the findings of the kinds of operation that were slow in it, of OSDs
    with such kinds. Yields passes over OSDs (rounds.py)."""
    intervals: Dict[int, float] = {}
    slow_ops: Findings = {}
    for samples in chunks(reading.samples):
        for sample in samples:
            osd, flows = sample.osd, flows_of(sample)
            if osd in reading.busy:
                continue
            for finding in findings.get(osd, ()):
                rate, ms = flow = flows[finding.channel]
                if rate * sample.seconds < BLOCK_OPS:
                    continue
                intervals.setdefault(osd, sample.seconds)
                if ms > CHRONIC_RATIO * finding.comparison.expected_ms:
                    allowance = _own_allowance(baselines[osd][finding.channel])
                    slow = _if_slow(finding, allowance, flow, sample.seconds, windows[osd])
                    if slow is not None:
                        slow_ops.setdefault(osd, []).append(slow)
        yield 3 * len(samples)
    return intervals, slow_ops


def _worst(slow_ops: Findings, reading: OsdReading) -> Dict[int, PeerFinding]:
    """The finding on the slowest operations of each OSD that does not only wait for a slow
    replica. `slow_ops`: the findings of one interval, of operations that were slow."""
    excused = excuse_waiting(slow_ops, CHRONIC_RATIO, reading.places, reading.partners)
    return {osd: max(findings, key=lambda finding: finding.score)
            for osd, findings in excused.findings.items() if findings}


def _still_slow(reading: OsdReading, findings: Findings,
                reported: Collection[int]) -> Dict[int, PeerFinding]:
    """The finding, with the figures of the minute, on the slowest operations of each of the
    `reported` OSDs that were slow in this interval as well (REPORTED_RATIO)."""
    slow: Dict[int, PeerFinding] = {}
    for sample in reading.samples if reported else ():
        if sample.osd not in reported:
            continue
        flows = flows_of(sample)
        above = [finding for finding in findings[sample.osd]
                 for rate, ms in [flows[finding.channel]] if rate * sample.seconds >= BLOCK_OPS
                 and ms >= REPORTED_RATIO * finding.comparison.expected_ms]
        if above:
            slow[sample.osd] = max(above, key=lambda finding: finding.score)
    return slow


def _own_allowance(baseline: ScoreBaseline) -> float:
    """Factor on CHRONIC_RATIO for an OSD that is slower than its peers at all times."""
    if not baseline.known:
        return 1.0
    return max(1.0, CHRONIC_OWN_RATIO / CHRONIC_RATIO * min(math.exp(baseline.mean), MOST_BASELINE))


def _if_slow(finding: PeerFinding, own_allowance: float, flow: PlainFlow, seconds: float,
             window: OsdWindow) -> Optional[PeerFinding]:
    """The finding for the operations of one interval alone (`flow`); None: they are not slow.
    Allows for more load than in the window, for the noise of few operations, and for an OSD that is
    slower than its peers at all times (`own_allowance`)."""
    rate, ms = flow
    more_load = max(1.0, rate / max(window.rate(finding.channel), 1e-9)) ** BEYOND_SLOPE
    sigma = OP_SPREAD / math.sqrt(rate * seconds)
    # The slowdown that noise alone explains; like the allowance, a factor on CHRONIC_RATIO.
    noise = math.exp(NOISE_DEVIATIONS * sigma) / CHRONIC_RATIO
    # The allowance contains the noise, so the deviations need no test of their own.
    comparison = finding.comparison._replace(ms=ms, recent_ms=ms, deviations=math.inf)
    current = finding._replace(comparison=comparison,
                               allowance=own_allowance * max(finding.allowance * more_load, noise))
    return current if current.is_slow(CHRONIC_RATIO) else None
