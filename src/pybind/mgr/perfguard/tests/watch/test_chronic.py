# SPDX-License-Identifier: LGPL-2.1-or-later
"""OSDs that are slow for a share of the time: one standing finding for each, no others."""
import json
import math
import re
from dataclasses import replace
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Set
from uuid import uuid4

import pytest

from perfguard.cluster.types import OsdPlace
from perfguard.codec import Malformed, decode, encode
from perfguard.watch.chronic import MOST_STORED_OSDS, ChronicOsds, StoredCounts, _Count, percent
from perfguard.watch.peers import PeerComparison, PeerFinding, ScoreBaseline
from perfguard.watch.slow_osds import SlowOsds
from perfguard.watch.slowness import (LASTING_SECONDS, LEAST_SLOW_SECONDS, RECENT_SLOW_SECONDS,
                                      SlowSettings)
from perfguard.watch.types import SCRUB, Chronic, Flow, OsdReading, OsdSample

from ..fakes.functions import whole
from ..fakes.zones import in_zone
from ..test_codec import again

HOUR, DAY = 3600.0, 86400.0
#: Longer than mgr_stats_period (5 s): days are played here. The shorter one is that of the longest
#: interval that counts in full for the median of a minute.
BEAT, SHORT_BEAT = 60.0, 15.0
START = 1e9
#: OSD -> multiple of its normal latency, in the beat of that number.
Pattern = Callable[[int, int], float]


def healthy(osd: int, beat: int) -> float:
    return 1.0


def of_ten(*osds: int, factor: float = 8.0) -> Pattern:
    """Slow in every tenth beat."""
    return lambda osd, beat: factor if osd in osds and beat % 10 == 0 else 1.0


class Clock:
    def __init__(self, osds: int = 8, ms: float = 1.0) -> None:
        self.detector = SlowOsds()
        self.places = {osd: OsdPlace(osd, 'h%d' % (osd // 2), 'default', 'ssd')
                       for osd in range(osds)}
        self.now, self.beat, self.ms, self.rate = START, 0, ms, 100.0
        self.busy: Dict[int, str] = {}
        self.settings = SlowSettings()
        self.acute: Set[int] = set()
        self.learning = True
        self.beat_seconds = BEAT
        self.probed: Set[int] = set()
        #: OSDs with a primary affinity of 0; and those without operations, as on memstore.
        self.replicas_only: Set[int] = set()
        self.idle: Set[int] = set()
        #: When `busy` was read; None: with each beat.
        self.busy_read: Optional[float] = None

    def sample(self, osd: int, factor: float) -> OsdSample:
        if osd in self.idle:
            return OsdSample(osd, self.beat_seconds)
        ms = self.ms * (1.0 + 0.01 * osd) * factor
        flow = Flow(self.rate, ms)
        return OsdSample(osd, self.beat_seconds, read=flow, commit=flow)

    def play(self, seconds: float, pattern: Pattern = healthy) -> List[int]:
        """Who is chronically slow at the end."""
        for _ in range(round(seconds / self.beat_seconds)):
            self.now += self.beat_seconds
            self.beat += 1
            samples = [self.sample(osd, pattern(osd, self.beat)) for osd in self.places]
            whole(self.detector.round(OsdReading(
                self.now, samples, self.places, self.busy, self.learning,
                replicas_only=self.replicas_only, probed=self.probed,
                busy_read=self.now if self.busy_read is None else self.busy_read), self.settings))
            self.acute |= {osd for osd, verdict in self.detector.verdicts.items() if verdict.slow}
        return self.slow()

    def until(self, pattern: Pattern, most: float = 5 * HOUR) -> float:
        begin = self.now
        while not self.slow():
            assert self.now - begin < most
            self.play(60, pattern)
        return self.now - begin

    def slow(self) -> List[int]:
        return list(self.detector.chronic.standing)

    def restarted(self) -> 'Clock':
        """Another mgr takes over."""
        after = Clock(len(self.places), self.ms)
        after.now, after.beat = self.now, self.beat
        after.detector.chronic.load(again(StoredCounts, self.detector.chronic.stored({})))
        return after


def test_an_intermittent_osd_is_one_standing_finding() -> None:
    clock = Clock()
    clock.play(HOUR)
    assert HOUR < clock.until(of_ten(3)) < 4 * HOUR
    first = clock.detector.chronic.standing[3]
    assert not clock.acute, 'the median of a minute does not see it'
    with in_zone('CET-1'):
        assert clock.play(HOUR, of_ten(3)) == [3]
    found = clock.detector.chronic.standing[3]
    assert (found.since, found.raised) == (first.since, first.raised), 'raised once'
    assert START + HOUR <= found.since <= START + HOUR + 600
    assert found.share == pytest.approx(0.1, abs=0.01)
    assert found.slowdown == pytest.approx(8.0, rel=0.1)
    assert found.episodes == pytest.approx((clock.now - found.since) / 600, abs=1)
    assert found.why.startswith('slow 10 % of the time since 2001-09-09 03:55:')
    assert re.search(':.. CET, .* episodes, slowdown 8.0 while slow, last in ', found.why)


@pytest.mark.parametrize('osds', [2, 3])
def test_an_intermittent_osd_of_two_or_three_is_found(osds: int) -> None:
    clock = Clock(osds)
    assert clock.play(4 * HOUR, of_ten(*range(osds), factor=8.0)) == [], 'all of them'
    clock = Clock(osds)
    clock.play(HOUR)
    assert clock.play(4 * HOUR, of_ten(1)) == [1]


def test_a_probe_of_other_osds_delays_no_finding() -> None:
    clock = Clock()
    clock.play(HOUR)
    clock.learning, clock.probed = False, {5}
    assert clock.play(5 * HOUR, of_ten(3, 5)) == [3]


def test_deep_scrubs_that_are_seen_late_do_not_count() -> None:
    def slow(osd: int, beat: int) -> float:
        return 4.0 if osd == 3 else 1.0

    clock = Clock()
    clock.play(HOUR)
    for _ in range(40):
        clock.busy_read, clock.busy = clock.now, {}
        assert not clock.play(180, slow)
        clock.busy_read, clock.busy = None, {3: SCRUB}
        assert not clock.play(300, slow)
        clock.busy = {}
        assert not clock.play(420)
    assert clock.detector.chronic.shares()[3] < 0.01
    # The same time is slow without other work.
    for _ in range(12):
        clock.play(180, slow)
        clock.play(720)
    assert clock.slow() == [3]


def test_a_shorter_memory_finds_and_clears_sooner() -> None:
    clock = Clock()
    clock.settings = SlowSettings(memory_seconds=2 * HOUR)
    assert clock.until(of_ten(3)) <= HOUR
    assert clock.play(3 * HOUR) == [3], 'twice the memory has not passed'
    assert clock.play(1.5 * HOUR) == []


@pytest.mark.parametrize('duty, hours', [(20, 10.0), (5, 0.6)])
def test_the_more_often_the_sooner(duty: int, hours: float) -> None:
    """A twentieth of the time takes a night, a fifth half an hour."""
    def pattern(osd: int, beat: int) -> float:
        return 8.0 if osd == 3 and beat % duty == 0 else 1.0

    assert hours / 2 < Clock(5).until(pattern, 13 * HOUR) / HOUR < hours


def test_flash_of_65_us_that_is_2_to_5_times_as_slow() -> None:
    clock = Clock(ms=0.065)
    assert clock.play(4 * HOUR, of_ten(3, factor=3.0)) == [3]


def always(factor: float) -> Pattern:
    return lambda osd, beat: factor if osd == 3 else 1.0


def test_a_short_incident_is_no_standing_finding() -> None:
    clock = Clock()
    clock.play(HOUR)
    assert not clock.play(1200, always(8.0)) and clock.acute == {3}
    assert not clock.play(2 * HOUR)


@pytest.mark.parametrize('factor', [1.7, 2.2, 8.0])
@pytest.mark.parametrize('hours', [0, 14])
def test_slow_all_the_time_stands_within_half_an_hour(hours: int, factor: float) -> None:
    """From the begin, or after half a day in which it was healthy."""
    clock = Clock()
    clock.play(hours * HOUR)
    clock.beat_seconds = SHORT_BEAT
    assert LASTING_SECONDS - 60 <= clock.until(always(factor)) <= 1800
    clock.beat_seconds = BEAT
    assert clock.detector.chronic.standing[3].episodes == 1
    raised_at = clock.detector.chronic.standing[3].raised
    for _ in range(14):
        clock.now += 21 * HOUR
        assert clock.play(3 * HOUR, always(factor)) == [3]
    assert clock.detector.chronic.standing[3].raised == raised_at


def test_half_of_the_time_after_a_healthy_week() -> None:
    clock = Clock()
    clock.play(14 * HOUR)
    assert clock.until(lambda osd, beat: 8.0 if osd == 3 and beat % 4 < 2 else 1.0) <= 1800


def test_a_whole_class_that_is_slow_is_no_standing_finding() -> None:
    """Half of it, all the time."""
    clock = Clock()
    assert not clock.play(2 * HOUR, lambda osd, beat: 8.0 if osd < 4 else 1.0)


def test_the_lasting_time_survives_a_failover() -> None:
    clock = Clock(5)
    assert not clock.play(1200, always(4.0))
    assert clock.restarted().until(always(4.0)) <= 600


def test_single_outliers_are_no_episodes() -> None:
    counted = ChronicOsds()
    detector = SlowOsds()
    detector.chronic = counted
    clock = Clock(5)
    for beat in range(2000):
        now = START + 5.0 * beat
        samples = [clock.sample(osd, 8.0 if osd == 3 and beat % 20 == 0 else 1.0)
                   ._replace(seconds=5.0) for osd in clock.places]
        whole(detector.round(OsdReading(now, samples, clock.places, {}), SlowSettings()))
    assert counted.shares()[3] == pytest.approx(0.05, abs=0.01) and not counted.standing


def test_slowness_of_all_osds_is_no_fault_of_one() -> None:
    """Compactions, each OSD at its own time; then stalls of the whole cluster."""
    clock = Clock()
    assert not clock.play(4 * HOUR, lambda osd, beat: 8.0 if beat % 20 == 2 * osd else 1.0)
    assert min(clock.detector.chronic.shares().values()) > 0.04
    clock = Clock()
    assert not clock.play(2 * HOUR, lambda osd, beat: 8.0 if beat % 10 == 0 else 1.0)
    assert not any(clock.detector.chronic.shares().values())


def test_neither_bursts_of_load_nor_other_work_count() -> None:
    clock = Clock()

    def pattern(osd: int, beat: int) -> float:
        clock.rate = 400.0 if osd == 3 and beat % 10 == 0 else 100.0
        return 4.0 if clock.rate == 400.0 else 1.0

    assert not clock.play(4 * HOUR, pattern)
    assert clock.detector.chronic.shares()[3] == 0.0
    clock = Clock()
    clock.busy = {3: SCRUB}
    assert not clock.play(4 * HOUR, of_ten(3))
    assert 3 not in clock.detector.chronic.shares()


def test_victims_of_a_slow_replica_are_not_called_slow() -> None:
    def make(osd: int, beat: int) -> OsdSample:
        factor = 20.0 if osd == 3 and beat % 10 == 0 else 1.0
        ms = 1.0 + 0.01 * osd
        reads = 8.0 if osd == 4 and beat % 10 == 0 else 1.0
        return OsdSample(osd, BEAT, read=Flow(100.0, ms * reads),
                         commit=Flow(100.0, ms * factor))

    clock = Clock()
    for beat in range(800):
        clock.now += BEAT
        samples = [make(osd, beat) for osd in clock.places]
        whole(clock.detector.round(OsdReading(clock.now, samples, clock.places, {}),
                                   SlowSettings()))
    assert clock.slow() == [3]


def among(peers: Sequence[float], always: float, spikes: float) -> Pattern:
    """Peers that differ by nature; osd.3 is slower `always`, and more so in every tenth beat."""
    def pattern(osd: int, beat: int) -> float:
        if osd == 3:
            return spikes if beat % 10 == 0 else always
        return peers[osd % len(peers)]

    return pattern


@pytest.mark.parametrize('always, spikes, slow', [
    (1.0, 2.8, [3]), (1.45, 2.8, []), (1.45, 3.2, [3])])
def test_a_drive_that_is_slower_by_nature_has_larger_spikes(
        always: float, spikes: float, slow: List[int]) -> None:
    clock = Clock()
    assert clock.play(6 * HOUR, among((0.9, 1.0, 1.1, 1.0, 0.95), always, spikes)) == slow
    assert not clock.acute


def test_four_times_as_slow_counts_for_any_drive() -> None:
    clock = Clock()
    assert clock.play(6 * HOUR, among((0.6, 0.8, 1.0, 0.9, 1.3), 2.1, 3.9)) == [3]
    assert not clock.acute


# ---- how it ends

def raised() -> Clock:
    clock = Clock(5)
    clock.until(of_ten(3))
    return clock


def test_a_night_without_load_changes_nothing() -> None:
    clock = raised()
    clock.now += 2 * DAY
    assert clock.play(HOUR) == [3], 'what was not seen is not well'
    assert clock.play(HOUR, of_ten(3)) == [3]


def test_cleared_after_a_day_without_episodes() -> None:
    clock = raised()
    assert clock.play(23 * HOUR) == [3]
    assert not clock.play(HOUR + 60)
    assert not clock.play(300, of_ten(3)), 'not raised again by the next spike'


def test_one_long_incident_does_not_stand_for_a_day() -> None:
    clock = Clock()
    clock.play(14 * HOUR)
    assert clock.play(25 * 60.0, always(3.0)) == [3]
    assert clock.play(5 * HOUR) == [3]
    assert not clock.play(2 * HOUR)


def test_slow_for_hours_each_day_is_raised_once() -> None:
    """In working hours; at night its operations are fast."""
    clock = Clock(4)
    clock.play(HOUR)
    assert clock.play(2 * HOUR, always(3.0)) == [3]
    first = clock.detector.chronic.standing[3]
    assert first.episodes == 1
    assert clock.play(16 * HOUR) == [3]
    clock = clock.restarted()
    clock.play(6 * HOUR)
    assert clock.play(HOUR, always(3.0)) == [3]
    assert clock.detector.chronic.standing[3].raised == first.raised
    assert not clock.play(25 * HOUR)


def test_nothing_of_a_cleared_finding_is_left() -> None:
    count = _Count(quiet=DAY, episode=1.0, episodes=5, last=1.0, seen=DAY, raised=1.0)
    assert not count.clear_if_over(DAY + 2.0, 1.0, False)
    assert (count.episodes, count.episode, count.raised) == (0, 0.0, 0.0)


def test_an_episode_within_the_day_keeps_it() -> None:
    clock = raised()
    first = clock.detector.chronic.standing[3].raised
    clock.play(20 * HOUR)
    clock.play(600, of_ten(3))
    assert clock.play(10 * HOUR) == [3]
    assert clock.detector.chronic.standing[3].raised == first


def test_without_primaries_and_operations_it_is_judged_anew_after_a_day() -> None:
    clock = raised()
    clock.idle = clock.replicas_only = {3}
    assert clock.play(DAY - HOUR) == [3]
    assert clock.play(2 * HOUR) == []
    assert 'primary affinity is 0' in clock.detector.chronic.unjudged[3]
    # Once it leads PGs again, and is as slow as before.
    clock.idle = clock.replicas_only = set()
    assert clock.play(HOUR, of_ten(3)) == [3]
    assert clock.detector.chronic.unjudged == {}


def test_without_operations_only_an_osd_without_primaries_is_judged_anew() -> None:
    clock = raised()
    clock.idle = {3}
    assert clock.play(2 * DAY) == [3]
    clock = raised()
    clock.replicas_only = {3}
    assert clock.play(2 * DAY, of_ten(3)) == [3]


def test_without_operations_it_is_forgotten_after_two_weeks() -> None:
    clock = raised()
    clock.now += 10 * DAY
    assert clock.play(300) == [3]
    clock.now += 14 * DAY
    assert not clock.play(300)


def test_a_removed_osd_is_forgotten() -> None:
    clock = raised()
    del clock.places[3]
    assert clock.play(120) == [3], 'it is down'
    clock.detector.chronic.keep(clock.places)
    assert not clock.play(120)
    assert 3 not in clock.detector.chronic.stored({})


def test_the_finding_and_the_counts_survive_a_failover() -> None:
    before = raised()
    after = before.restarted()
    assert after.slow() == [3]
    assert after.detector.chronic.standing[3].why == before.detector.chronic.standing[3].why
    before = Clock(5)
    before.play(2 * HOUR, of_ten(3))
    assert not before.slow()
    after = before.restarted()
    assert after.until(of_ten(3)) < 2 * HOUR, 'not from the start'


def test_what_is_kept_is_bounded_and_small() -> None:
    counted = ChronicOsds()
    count = raised().detector.chronic.stored({3: str(uuid4())})[3]
    uuids = counted.load({osd: replace(count) for osd in range(10000)})
    kept = encode(counted.stored(uuids), StoredCounts)
    assert len(kept) == MOST_STORED_OSDS and len(json.dumps(kept, separators=(',', ':'))) < 60000


@pytest.mark.parametrize('field, least', [
    ('slow', LEAST_SLOW_SECONDS), ('recent_slow', RECENT_SLOW_SECONDS)])
@pytest.mark.parametrize('share, kept', [(0.24, False), (0.25, True), (0.26, True)])
def test_a_quarter_of_the_way_is_kept(field: str, least: float, share: float, kept: bool) -> None:
    counted = ChronicOsds()
    counted.load(decode(StoredCounts, {'3': {field: share * least}}))
    assert (3 in counted.stored({})) is kept


def slow_reads(score: float, channel: int = 0) -> PeerFinding:
    return PeerFinding(channel, PeerComparison(score, score, 1.0, 0.1, 9.0, 0.1, 1.0, 9), 1.0)


def counted(*intervals: float, seconds: float = 5.0, scale: float = 1.0) -> _Count:
    """By the score of each interval; 1.0: it is not slow."""
    count = _Count()
    for number, score in enumerate(intervals, 1):
        count.count_interval(1000.0 + seconds * number, seconds,
                             slow_reads(score, 2) if score > 1.0 else None, scale)
    return count


def test_what_is_counted_of_an_interval() -> None:
    count = counted(1.0, 4.0, 4.0, 9.0, 1.0)
    decay, recent = math.exp(-5.0 / 43200.0), math.exp(-5.0 / 1800.0)
    assert count.evidence == pytest.approx(5.0 * sum(decay ** back for back in range(5)))
    assert count.slow == pytest.approx(5.0 * (decay + decay ** 2 + decay ** 3))
    assert count.recent_evidence == pytest.approx(5.0 * sum(recent ** back for back in range(5)))
    assert count.recent_slow == pytest.approx(5.0 * (recent + recent ** 2 + recent ** 3))
    assert count.share() == pytest.approx(0.6, abs=1e-3)
    assert count.share(True) == pytest.approx(0.6, abs=1e-2)
    assert (count.quiet, count.episode, count.gap, count.since, count.last, count.seen) == (
        0.0, 15.0, 5.0, 1005.0, 1020.0, 1025.0)
    assert (count.seconds, count.slow_seconds, count.channel, count.all_episodes) == (
        20.0, 15.0, 2, 1)
    assert math.exp(count.logs / 15.0) == pytest.approx((4.0 * 4.0 * 9.0) ** (1 / 3))
    # A shorter memory.
    assert counted(4.0, 1.0, scale=0.01).slow == pytest.approx(5.0 * math.exp(-5.0 / 432.0))


def test_a_second_episode_belongs_to_the_same_finding() -> None:
    count = counted(4.0, 4.0, *[1.0] * 12, 4.0, 4.0)
    assert (count.since, count.seconds, count.slow_seconds) == (1000.0, 80.0, 20.0)
    # After it was cleared, everything begins anew.
    count.episodes, count.episode = 0, 0.0
    count.count_interval(2000.0, 5.0, slow_reads(4.0), 1.0)
    assert (count.since, count.seconds, count.slow_seconds) == (1995.0, 5.0, 5.0)
    assert count.logs == pytest.approx(5.0 * math.log(4.0))


@pytest.mark.parametrize('score', [0.5, 1.0, 1.3, 8.0])
def test_the_slowdown_of_an_interval_is_at_least_one(score: float) -> None:
    count = _Count()
    count.count_interval(1000.0, 5.0, slow_reads(score), 1.0)
    assert count.logs == pytest.approx(5.0 * math.log(max(score, 1.0)))


@pytest.mark.parametrize('scores, episodes, quiet', [
    ([4.0] * 2 + [1.0] * 11, 1, 0.0), ([4.0] * 2 + [1.0] * 12, 1, 60.0),
    # An episode has ten seconds; one spike is none.
    ([4.0] + [1.0] * 12, 0, 60.0), ([1.0] * 3 + [4.0] + [1.0] * 12, 0, 75.0),
    # A gap of less than a minute is part of it.
    ([4.0] * 2 + [1.0] * 11 + [4.0] * 2 + [1.0] * 12, 1, 60.0),
    ([4.0] * 2 + [1.0] * 12 + [4.0] * 2 + [1.0] * 12, 2, 60.0),
    ([4.0] + [1.0] * 11 + [4.0], 1, 0.0), ([4.0] + [1.0] * 12 + [4.0], 0, 60.0)])
def test_the_episodes_of_slow_operations(
        scores: Sequence[float], episodes: int, quiet: float) -> None:
    count = counted(*scores)
    assert (count.all_episodes, count.quiet) == (episodes, quiet)


@pytest.mark.parametrize('scale, gap', [(0.5, 30.0), (0.1, 10.0), (3.0, 60.0)])
def test_the_gap_after_which_an_episode_ends(scale: float, gap: float) -> None:
    count = counted(4.0, 4.0, scale=scale)
    for number in range(1, 13):
        count.count_interval(2000.0 + 5.0 * number, 5.0, None, scale)
        if not count.episode:
            break
    assert 5.0 * number == gap


@pytest.mark.parametrize('count, scale, recent, is_chronic', [
    (_Count(evidence=43200.0, slow=1080.0, episodes=3), 1.0, False, True),
    (_Count(evidence=43200.0, slow=1079.9, episodes=3), 1.0, False, False),
    (_Count(evidence=43200.0, slow=1080.0, episodes=2), 1.0, False, False),
    (_Count(evidence=43200.0, slow=1080.0, episodes=2, episode=10.0), 1.0, False, True),
    (_Count(evidence=43200.0, slow=1080.0, episodes=2, episode=9.9), 1.0, False, False),
    (_Count(evidence=43201.0, slow=1080.0, episodes=3), 1.0, False, False),
    (_Count(evidence=4320.0, slow=540.0, episodes=3), 0.5, False, True),
    # Slow for so long that its episodes do not matter.
    (_Count(evidence=1e6, slow=1260.0, episodes=1), 1.0, False, True),
    (_Count(evidence=1e6, slow=1259.9, episodes=1), 1.0, False, False),
    (_Count(evidence=1e6, slow=1260.0), 1.0, False, False),
    (_Count(evidence=1e6, slow=240.0, episodes=1), 0.1, False, True),
    (_Count(evidence=1e6, slow=239.9, episodes=1), 0.1, False, False),
    # The recent past.
    (_Count(recent_slow=240.0, episodes=3), 1.0, True, True),
    (_Count(recent_slow=239.9, episodes=3), 1.0, True, False),
    (_Count(recent_slow=240.0, episodes=2), 1.0, True, False),
    (_Count(recent_slow=120.0, episodes=3), 0.5, True, True)])
def test_how_much_slow_time_is_chronic(
        count: _Count, scale: float, recent: bool, is_chronic: bool) -> None:
    assert count.is_chronic(scale, recent) is is_chronic


#: Raised after three episodes, healthy for a day.
HEALTHY = _Count(quiet=21600.0, episodes=3, last=START - DAY, seen=START, raised=1.0)


@pytest.mark.parametrize('count, scale, replicas_only, is_cleared, without_evidence', [
    (HEALTHY, 1.0, False, True, False),
    (replace(HEALTHY, last=START - DAY + 1.0), 1.0, False, False, False),
    (replace(HEALTHY, quiet=21599.0), 1.0, False, False, False),
    (replace(HEALTHY, last=START - DAY / 2, quiet=10800.0), 0.5, False, True, False),
    # After fewer episodes, of less than an hour, six hours are enough.
    (replace(HEALTHY, episodes=2, last=START - 21600.0), 1.0, False, True, False),
    (replace(HEALTHY, episodes=2, last=START - 21599.0), 1.0, False, False, False),
    (replace(HEALTHY, episodes=2, last=START - 21600.0, slow_seconds=3600.0), 1.0, False, False,
     False),
    (replace(HEALTHY, episodes=2, last=START - 21600.0, slow_seconds=3599.0), 1.0, False, True,
     False),
    (replace(HEALTHY, episodes=2, last=START - 21600.0, raised=0.0), 1.0, False, False, False),
    # Without operations for two weeks; for a day where it leads no PGs.
    (replace(HEALTHY, quiet=0.0, seen=START - 14 * DAY), 1.0, False, True, True),
    (replace(HEALTHY, quiet=0.0, seen=START - 14 * DAY + 1.0), 1.0, False, False, False),
    (replace(HEALTHY, quiet=0.0, seen=START - DAY), 1.0, True, True, True),
    (replace(HEALTHY, quiet=0.0, seen=START - DAY + 1.0), 1.0, True, False, False),
    (replace(HEALTHY, quiet=0.0, seen=START - DAY, raised=0.0), 1.0, True, False, False),
    (replace(HEALTHY, quiet=0.0, seen=START - 14 * DAY, raised=0.0), 1.0, False, True, False)])
def test_when_a_finding_is_cleared(count: _Count, scale: float, replicas_only: bool,
                                   is_cleared: bool, without_evidence: bool) -> None:
    settled = replace(count)
    assert settled.clear_if_over(START, scale, replicas_only) is without_evidence
    assert (settled.episodes == 0 and not settled.raised) is is_cleared
    assert is_cleared or settled == count


def test_the_text_of_a_standing_finding() -> None:
    count = _Count(since=1e9, raised=1e9 + 60.0, last=1e9 + 90.0, episodes=1, seconds=1000.0,
                   slow_seconds=99.4, logs=99.4 * math.log(3.04), channel=2)
    with in_zone('CET-1'):
        assert count.verdict(3) == pytest.approx(Chronic(
            3, 1e9, 1e9 + 60.0, 1e9 + 90.0, 0.0994, 1, 3.04,
            'slow 9.9 % of the time since 2001-09-09 02:46:40 CET, 1 episode, slowdown 3.0 while '
            'slow, last in store commits'))
    # Nothing is divided by zero.
    assert _Count(slow_seconds=0.5).verdict(3)[4:7] == (0.5, 0, 1.0)
    assert _Count(slow_seconds=0.5, logs=math.log(3.0)).verdict(3).slowdown == pytest.approx(3.0)
    assert _Count().share() == _Count().share(True) == 0.0


def test_stored_logarithms_are_possible_ones() -> None:
    assert _Count(slow_seconds=2.0, logs=1400.0, channel=4).logs == 1400.0
    with pytest.raises(ValueError):
        _Count(slow_seconds=2.0, logs=1401.0)


@pytest.mark.parametrize('share, text', [
    (0.0994, '9.9 %'), (0.0995, '10 %'), (0.5, '50 %'), (0.004, '0.4 %'), (1.0, '100 %')])
def test_shares_as_text(share: float, text: str) -> None:
    assert percent(share) == text


def test_the_osds_of_which_most_is_known_are_stored() -> None:
    chronic = ChronicOsds()
    uuids = chronic.load({1: _Count(slow=900.0, uuid='a'), 2: _Count(slow=1.0),
                          3: _Count(slow=300.0, raised=5.0, uuid='b'), 4: _Count(slow=600.0)})
    assert uuids == {1: 'a', 3: 'b'} and list(chronic.standing) == [3]
    assert list(chronic.stored({})) == [3, 1, 4] and chronic.has_candidates
    assert chronic.stored({4: 'd'})[4].uuid == 'd'
    chronic.forget({3, 4})
    assert chronic.unjudged == {3: 'osd.3 was replaced'} and not chronic.standing
    assert list(chronic.stored({})) == [1]


@pytest.mark.parametrize('counts, is_so', [
    ({}, False), ({3: _Count(slow=900.0)}, True), ({3: _Count(slow=900.0, raised=1.0)}, False),
    ({3: _Count(slow=1.0)}, False)])
def test_whether_an_osd_may_soon_be_raised(counts: Dict[int, _Count], is_so: bool) -> None:
    chronic = ChronicOsds()
    chronic.load(counts)
    assert chronic.has_candidates is is_so


@pytest.mark.parametrize('wrong', [
    {'slow': 'x'}, {'slow': -1}, {'slow': 1e300}, {'evidence': math.nan}, {'logs': 1e11},
    {'channel': 5}, {'channel': -1}, {'uuid': 5}])
def test_what_is_no_count_is_refused(wrong: Any) -> None:
    with pytest.raises(Malformed):
        decode(StoredCounts, {'3': wrong})


# ---- one interval

#: Short, so that ten seconds of evidence are enough for a share.
SHORT_MEMORY = 432.0


class Window:
    """An OsdWindow with a mean rate."""

    def __init__(self, rate: float) -> None:
        self._rate = rate

    def rate(self, channel: int) -> float:
        return self._rate


def take(chronic: ChronicOsds, now: float, ms: float, ops: float = 1000.0, seconds: float = 10.0,
         allowance: float = 1.0, baseline: ScoreBaseline = ScoreBaseline(), rate: float = 1e9,
         busy: Dict[int, str] = {}, busy_read: float = math.inf, osds: Sequence[int] = (3,),
         reported: Sequence[int] = ()) -> Sequence[int]:
    """Store reads of these OSDs, and of a normal one, where 1 ms is expected. Returns what it
    yields."""
    finding = PeerFinding(3, PeerComparison(1.0, 1.0, 1.0, 0.1, 0.0, 0.1, 1.0, 9), allowance)
    flows = {**dict.fromkeys(osds, Flow(ops / seconds, ms)), 9: Flow(100.0, 1.0)}
    samples = [OsdSample(osd, seconds, store_read=flow) for osd, flow in flows.items()]
    where = {osd: OsdPlace(osd, 'h', 'default', 'hdd') for osd in range(10)}
    windows: Any = dict.fromkeys(flows, Window(rate))
    return list(chronic.take(
        OsdReading(now, samples, where, busy, busy_read=busy_read), dict.fromkeys(flows, [finding]),
        windows, dict.fromkeys(flows, (baseline,) * 5), SHORT_MEMORY, reported))


def is_slow(ms: float, **interval: Any) -> Optional[bool]:
    """Of the OSD with the id 3; None: nothing was counted."""
    chronic = ChronicOsds()
    take(chronic, START, ms, **interval)
    share = chronic.shares().get(3)
    return None if share is None else share == 1.0


def known(mean: float) -> ScoreBaseline:
    return ScoreBaseline(mean, 0.01, 300.0)


@pytest.mark.parametrize('interval, least', [
    # Above 2.5; with eight operations, noise explains up to 4.48 (three deviations of a half).
    ({}, 2.5), ({'ops': 8.0}, 4.481), ({'allowance': 2.0}, 5.0),
    ({'ops': 8.0, 'allowance': 2.0}, 5.0),
    # Of an OSD that is slower at all times, twice its baseline of up to 2.
    ({'baseline': known(0.0)}, 2.5), ({'baseline': known(math.log(1.5))}, 3.0),
    ({'baseline': known(math.log(4.0))}, 4.0), ({'ops': 8.0, 'baseline': known(0.0)}, 4.481),
    ({'baseline': known(math.log(4.0))._replace(seconds=299.0)}, 2.5),
    # More load than usual.
    ({'rate': 100.0}, 2.5), ({'rate': 50.0}, 10.0), ({'rate': 80.0}, 3.90625),
    ({'rate': 0.5, 'ops': 10.0}, 10.0)])
def test_how_slow_an_interval_must_be(interval: Dict[str, Any], least: float) -> None:
    assert is_slow(least - 0.001, **interval) is False
    assert is_slow(least + 0.001, **interval) is True


def test_an_interval_at_the_ratio_is_not_slow_yet() -> None:
    assert is_slow(2.5) is False


def test_few_operations_are_no_evidence() -> None:
    assert is_slow(9.0, ops=7.9) is None and is_slow(9.0, ops=8.0) is True
    assert is_slow(9.0, busy={3: SCRUB}) is None


@pytest.mark.parametrize('ms, ops, counts', [
    (1.249, 1000.0, False), (1.25, 1000.0, True), (1.25, 7.9, None), (1.25, 8.0, True)])
def test_less_slowness_counts_of_an_osd_that_is_reported(ms: float, ops: float,
                                                         counts: Optional[bool]) -> None:
    assert is_slow(ms, ops=ops, reported=[3]) is counts
    assert is_slow(ms, ops=ops, reported=[9]) is (None if counts is None else False)


@pytest.mark.parametrize('osds, share', [((3,), 1.0), ((3, 4), 0.0), ((3, 4, 5), 0.0)])
def test_an_interval_in_which_many_are_slow_does_not_count(osds: Sequence[int],
                                                           share: float) -> None:
    """Of three or four."""
    chronic = ChronicOsds()
    take(chronic, START, 1.0, osds=osds)
    take(chronic, START + 10.0, 9.0, osds=osds)
    assert chronic.shares()[3] == pytest.approx(0.5 * share, abs=0.01)


def test_long_intervals_count_in_part() -> None:
    chronic = ChronicOsds()
    take(chronic, START, 9.0, seconds=600.0, ops=60000.0)
    assert chronic.stored({})[3].evidence == 120.0


def test_how_many_passes_over_osds_an_interval_takes() -> None:
    assert take(ChronicOsds(), START, 9.0, osds=(3, 4)) == [9, 6]


#: A normal interval of ten seconds, then one slow one: decayed as in SHORT_MEMORY.
HALF = 10.0 / (10.0 + 10.0 * math.exp(-10.0 / SHORT_MEMORY))


def slow_twice() -> ChronicOsds:
    """Its work was read before each of two slow intervals, and there was none."""
    chronic = ChronicOsds()
    take(chronic, START + 10.0, 1.0, busy_read=START + 5.0)
    take(chronic, START + 20.0, 9.0, busy_read=START + 15.0)
    take(chronic, START + 30.0, 9.0, busy_read=START + 25.0)
    return chronic


def test_only_what_was_counted_since_the_last_reading_of_the_work_is_taken_back() -> None:
    chronic = slow_twice()
    assert chronic.shares()[3] > 0.66
    take(chronic, START + 40.0, 9.0, busy_read=START + 35.0, busy={9: SCRUB})
    assert chronic.shares()[3] > 0.74, 'of another OSD'
    chronic = slow_twice()
    take(chronic, START + 40.0, 9.0, busy_read=START + 35.0, busy={3: SCRUB})
    assert chronic.shares()[3] == pytest.approx(HALF)
    # The same reading of the work.
    chronic = slow_twice()
    take(chronic, START + 40.0, 9.0, busy_read=START + 25.0, busy={3: SCRUB})
    assert chronic.shares()[3] > 0.66


def test_nothing_is_taken_back_of_an_osd_that_was_replaced() -> None:
    chronic = ChronicOsds()
    take(chronic, START + 10.0, 9.0, busy_read=START + 5.0)
    chronic.forget({3})
    assert 3 not in chronic.shares()
    take(chronic, START + 20.0, 1.0, busy_read=START + 5.0)
    take(chronic, START + 30.0, 1.0, busy_read=START + 25.0, busy={3: SCRUB})
    assert chronic.shares()[3] == 0.0


# ---- judgements

def of_share(share: float, evidence: float = 2000.0, **fields: Any) -> _Count:
    """Three episodes."""
    return _Count(evidence=evidence, slow=share * evidence, episodes=3, since=START, last=START,
                  seen=START, **fields)


def judged(counts: StoredCounts, other_class: Sequence[int] = (), now: float = START + 60.0,
           gone: Sequence[int] = (), replicas_only: Sequence[int] = ()) -> ChronicOsds:
    chronic = ChronicOsds()
    chronic.load({osd: replace(count) for osd, count in counts.items()})
    chronic.conclude(reading_of(now, [osd for osd in counts if osd not in gone], other_class,
                                replicas_only))
    return chronic


def reading_of(now: float, osds: Iterable[int], other_class: Sequence[int] = (),
               replicas_only: Sequence[int] = ()) -> OsdReading:
    return OsdReading(now, [], {
        osd: OsdPlace(osd, 'h', 'default', 'ssd' if osd in other_class else 'hdd')
        for osd in osds}, {}, replicas_only=replicas_only)


@pytest.mark.parametrize('own, peers, stands_out', [
    # Three times the share of most of them.
    (of_share(0.75), [of_share(0.25, 1000.0)] * 3, True),
    (of_share(0.75), [of_share(0.2501, 1000.0)] * 3, False),
    (of_share(0.75), [of_share(share, 1000.0) for share in (0.9, 0.1, 0.25)], True),
    # Of all of few, and of at least one.
    (of_share(0.75), [of_share(share, 1000.0) for share in (0.25, 0.1)], True),
    (of_share(0.75), [of_share(share, 1000.0) for share in (0.3, 0.1)], False),
    (of_share(0.75), [of_share(0.25, 1000.0)], True), (of_share(0.75), [], False),
    (of_share(0.75), [of_share(0.25, 300.0)], True),
    (of_share(0.75), [of_share(0.25, 299.9)], False),
    # In the recent past, with less evidence than counts for others.
    (of_share(0.0, 299.0, recent_evidence=290.0, recent_slow=250.0),
     [of_share(0.1, 1000.0)] * 3, True),
    (of_share(0.0, 299.0, recent_evidence=290.0, recent_slow=250.0), [], False),
    (of_share(0.0, 300.0, recent_evidence=290.0, recent_slow=250.0),
     [of_share(0.0, 1000.0, recent_evidence=10.0, recent_slow=1.0)], True),
    (of_share(0.0, 300.0, recent_evidence=290.0, recent_slow=250.0),
     [of_share(0.0, 1000.0, recent_evidence=10.0, recent_slow=3.0)], False)])
def test_an_osd_is_slow_for_more_of_the_time_than_its_peers(
        own: _Count, peers: Sequence[_Count], stands_out: bool) -> None:
    counts = {3: own, **dict(enumerate(peers, 10))}
    chronic = judged(counts)
    assert list(chronic.standing) == ([3] if stands_out else [])
    assert not stands_out or chronic.standing[3].raised == START + 60.0
    # Those of another class, and those that have no place, are no peers.
    others = {**counts, 20: of_share(0.74, 1000.0), 21: of_share(0.0, 1000.0)}
    assert list(judged(others, (20, 21)).standing) == list(chronic.standing)
    assert list(judged(others, gone=(20, 21)).standing) == list(chronic.standing)
    assert not judged(counts, gone=(3,)).standing


def test_osds_of_which_many_are_chronically_slow_are_not_reported() -> None:
    counts = {osd: of_share(0.7 if osd < 3 else 0.0) for osd in range(12)}
    assert list(judged(counts).standing) == [0, 1, 2]
    assert list(judged({osd: counts[osd] for osd in range(11)}).standing) == []


@pytest.mark.parametrize('memory, seconds, is_judged', [
    (43200.0, 59.9, False), (43200.0, 60.0, True), (21600.0, 29.9, False), (21600.0, 30.0, True),
    (86400.0, 59.9, False), (86400.0, 60.0, True)])
def test_how_often_the_counts_are_judged(memory: float, seconds: float, is_judged: bool) -> None:
    chronic = judged({osd: of_share(0.0) for osd in range(4)})
    whole(chronic.take(reading_of(START + 60.0, range(4)), {}, {}, {}, memory))
    chronic.load({3: of_share(1.0, 2.0 * memory)})
    chronic.conclude(reading_of(START + 60.0 + seconds, range(4)))
    assert bool(chronic.standing) is is_judged


def test_osds_that_serve_nothing_are_not_reported_meanwhile() -> None:
    chronic = judged({osd: of_share(0.75 if osd == 3 else 0.0) for osd in range(8)})
    for away in ({3}, {4}):
        chronic.keep(range(8), away)
        assert list(chronic.standing) == ([] if away == {3} else [3])
    chronic.keep(set(range(8)) - {3})
    assert not chronic.standing and 3 not in chronic.shares()


@pytest.mark.parametrize('seconds, replicas_only, hours', [
    (88199.0, True, 24), (88201.0, True, 25), (1209600.0, False, 336)])
def test_why_a_finding_cannot_be_judged_any_more(seconds: float, replicas_only: bool,
                                                 hours: int) -> None:
    counts = {osd: of_share(0.75 if osd == 3 else 0.0) for osd in range(8)}
    counts[3].raised = START
    chronic = judged(counts, now=START + seconds, replicas_only=[3] * replicas_only)
    assert chronic.unjudged == {
        3: 'no operation was compared with its peers for %d h%s' % (
            hours, ': its primary affinity is 0' if replicas_only else '')}
    # That is forgotten with the place of the OSD.
    chronic.conclude(reading_of(START + seconds + 60.0, range(8)))
    assert list(chronic.unjudged) == [3]
    chronic.conclude(reading_of(START + seconds + 120.0, range(3)))
    assert chronic.unjudged == {}


@pytest.mark.parametrize('evidence, is_known', [(299.9, False), (300.0, True)])
def test_of_which_osds_the_share_is_known(evidence: float, is_known: bool) -> None:
    chronic = ChronicOsds()
    chronic.load({3: of_share(0.5, evidence)})
    assert chronic.shares() == ({3: 0.5} if is_known else {})


def test_many_osds_that_do_not_stand_out_are_judged_in_one_pass(monkeypatch: Any) -> None:
    """Comparing each of them with all others anew took half a second for 700 of 3,000."""
    number = 1000
    share, asked = _Count.share, [0]

    def counted(self: _Count, recent: bool = False) -> float:
        asked[0] += 1
        return share(self, recent)

    monkeypatch.setattr(_Count, 'share', counted)
    chronic = ChronicOsds()
    for osd in range(number):
        chronic._counts[osd] = _Count(
            evidence=40000.0, slow=3000.0 if osd < 200 else 1500.0, recent_evidence=1800.0,
            recent_slow=300.0 if osd < 200 else 150.0, episodes=5, since=START, last=START,
            seen=START)
    chronic._judge(START + 1.0, {osd: OsdPlace(osd, 'h%d' % (osd // 20), 'default', 'hdd')
                                 for osd in range(number)}, ())
    assert not chronic.standing and number < asked[0] < 5 * number
