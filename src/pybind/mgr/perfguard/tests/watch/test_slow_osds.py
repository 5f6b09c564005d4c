# SPDX-License-Identifier: LGPL-2.1-or-later
"""Slow OSDs and hosts: named when it lasts, with the reason, and no others."""
import json
import math
import re
from typing import AbstractSet, Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

import pytest

from perfguard.cluster.types import OsdPlace
from perfguard.codec import Malformed, decode, encode
from perfguard.watch import peers
from perfguard.watch.peers import LoadPoint, PeerComparison, PeerFinding, Peers
from perfguard.watch.slow_osds import SlowOsds, StoredSlow, describe
from perfguard.watch.slowness import FORGET_SECONDS, SlowSettings
from perfguard.watch.types import (NO_FLOW, RESTART, SCRUB, TARGET, Flow, OsdReading, OsdSample,
                                   Sizes)

from ..fakes.functions import whole
from ..test_codec import again

BEAT = 5.0
START = 1e9
SETTINGS = SlowSettings()


def places(hosts: int = 6, per_host: int = 4, model: str = 'm') -> Dict[int, OsdPlace]:
    return {osd: OsdPlace(osd, 'h%d' % (osd // per_host), 'default', 'ssd', model)
            for osd in range(hosts * per_host)}


def sample(osd: int, read: float = 1.0, write: float = 1.0, cpu: float = 1.0,
           load: float = 1.0) -> OsdSample:
    """A healthy one by default; factors on its latencies and its load."""
    own = 1.0 + 0.06 * (osd * 7 % 11 - 5) / 5  # no two are the same
    rate = 200.0 * load * (1.0 + 0.1 * (osd * 5 % 7 - 3) / 3)
    queue, commit = 0.05 * own * cpu, 0.3 * own * write
    return OsdSample(osd, BEAT, read=Flow(rate, queue + 0.3 * own * read),
                     write=Flow(rate, queue + 2 * commit), own_write=Flow(rate, queue),
                     commit=Flow(3 * rate, commit), store_read=Flow(0.7 * rate, 0.3 * own * read))


class Clock:
    """Plays samples to a detector, one beat after another."""

    def __init__(self, where: Optional[Dict[int, OsdPlace]] = None) -> None:
        self.detector = SlowOsds()
        self.places = places() if where is None else where
        self.now = START
        self.busy: Dict[int, str] = {}
        self.learning = True
        self.settled = True
        self.partners: Dict[int, Set[int]] = {}
        self.probed: Set[int] = set()
        self.replicas_only: Set[int] = set()
        self.sizes: Dict[int, Sizes] = {}
        #: Seconds between two readings of the work besides client operations; 0: with each beat.
        self.busy_seconds = 0.0
        self._busy_read, self._busy = -math.inf, self.busy

    def play(self, seconds: float, make: Callable[[int], OsdSample] = sample,
             beat: float = BEAT) -> Set[int]:
        """Who is slow at the end."""
        for _ in range(round(seconds / beat)):
            self.now += beat
            if not 0.0 <= self.now - self._busy_read < self.busy_seconds:
                self._busy_read, self._busy = self.now, dict(self.busy)
            whole(self.detector.round(OsdReading(
                self.now, [make(osd) for osd in self.places], self.places, self._busy,
                self.learning, self.settled, self.replicas_only, self.partners, self.probed,
                busy_read=self._busy_read, sizes=self.sizes), SETTINGS))
        return self.slow()

    def until(self, make: Callable[[int], OsdSample], most: float = 900) -> float:
        """Seconds until an OSD is slow."""
        begin = self.now
        while not self.slow():
            assert self.now - begin < most
            self.play(BEAT, make)
        return self.now - begin

    def slow(self) -> Set[int]:
        return {osd for osd, verdict in self.detector.verdicts.items() if verdict.slow}


@pytest.mark.parametrize('idle', [False, True])
def test_the_time_since_which_an_osd_is_slow_is_never_late(idle: bool) -> None:
    """It may be up to half of slow_osd_seconds early: of an OSD that was idle, the median rises
    with the first operations."""
    clock = Clock()
    clock.play(600)
    clock.play(300, lambda osd: OsdSample(osd, BEAT) if idle and osd == 3 else sample(osd))
    begin = clock.now
    clock.until(slow_ones({3}, read=8.0, write=8.0))
    early = begin - clock.detector.verdicts[3].since
    assert (early >= SETTINGS.seconds / 4) if idle else early == 0.0
    assert 0.0 <= early <= SETTINGS.seconds / 2


def slow_ones(osds: AbstractSet[int], **factors: float) -> Callable[[int], OsdSample]:
    return lambda osd: sample(osd, **factors) if osd in osds else sample(osd)


def test_a_class_in_which_a_few_are_faster_is_not_reported() -> None:
    """They serve small operations of one tenant, and have more of them."""
    fast = set(range(8))
    clock = Clock()
    assert not clock.play(2400, lambda osd: sample(osd, load=1.5) if osd in fast
                          else sample(osd, read=6.0, write=6.0))
    assert not clock.detector.class_parts()


@pytest.mark.parametrize('number', (12, 13))
def test_up_to_half_of_a_class_that_was_never_faster_is_the_slow_part(number: int) -> None:
    clock = Clock()
    clock.play(300, slow_ones(set(range(24 - number, 24)), read=6.0, write=6.0))
    assert [part.what for part in clock.detector.class_parts()] == [
        '12 of 24 ssd OSDs'][:number == 12]


@pytest.mark.parametrize('device_class, tenth', [('ssd', 4.0), ('hdd', 0.3)])
def test_larger_operations_are_no_slowness(device_class: str, tenth: float) -> None:
    """A tenant reads and writes 4 MiB at a time in a pool of 2 PGs; `tenth`: how many times a tenth
    of what that may take."""
    clock = Clock({osd: place._replace(device_class=device_class)
                   for osd, place in places().items()})
    clock.sizes = {osd: Sizes(4096.0, 4096.0) for osd in clock.places}
    clock.play(600)
    tenants = {3, 8, 13, 17, 21}
    transfer_ms = (1 << 22) / (250e3 if device_class == 'ssd' else 60e3)

    def large(osd: int) -> OsdSample:
        factor = 1.0 + tenth * 0.1 * transfer_ms / 0.3
        return sample(osd, read=factor, write=factor) if osd in tenants else sample(osd)

    clock.sizes.update(dict.fromkeys(tenants, Sizes(4.0 * 2 ** 20, 4.0 * 2 ** 20)))
    assert not clock.play(1200, large)
    # A slow drive among them, and one that has small operations.
    assert clock.play(600, lambda osd: sample(osd, read=1000.0, write=1000.0)
                      if osd in (3, 4) else large(osd)) == {3, 4}


@pytest.mark.parametrize('large', [{7}, {6, 7}, {5, 6, 7}])
def test_larger_drives_of_a_small_group_are_not_slow(large: Set[int]) -> None:
    """They have three times the PGs and operations: nothing says how much slower that makes them.
    """
    clock = Clock(places(hosts=4, per_host=2))
    busy = slow_ones(large, read=2.2, write=2.2, load=3.0)
    assert not clock.play(1200, busy) and not clock.detector.class_parts()
    assert clock.play(600, lambda osd: sample(osd, read=5.0, write=5.0) if osd == 1
                      else busy(osd)) == {1}


@pytest.mark.parametrize('factors, words', [
    ({'read': 5.0}, 'reads'), ({'write': 5.0}, 'store commits'), ({'cpu': 30.0}, '(reads|writes)')])
def test_a_slow_osd_is_named_with_the_kind_of_operation(
        factors: Mapping[str, float], words: str) -> None:
    clock = Clock()
    assert not clock.play(300)
    began = clock.now
    assert clock.play(300, slow_ones({7}, **factors)) == {7}
    verdict = clock.detector.verdicts[7]
    assert verdict.score is not None and verdict.score > 3
    assert began <= verdict.since <= began + 60
    assert re.search(words + r' take [\d.]+ ms, [\d.]+ \+- [\d.]+ ms on 23 peers, for .* at the '
                     'same load$', verdict.why)
    others = [v.score for osd, v in clock.detector.verdicts.items() if osd != 7]
    assert all(score is not None and 0.8 < score < 1.3 for score in others)


def test_a_probed_osd_is_not_judged_and_the_others_are() -> None:
    """Operations of 4 MiB at depth 16 look like a slow drive."""
    clock = Clock()
    clock.play(600)
    clock.learning, clock.probed = False, {7, 8}
    assert clock.play(300, slow_ones({7, 12}, read=40.0)) == {12}
    assert clock.detector.verdicts[7].score is None
    clock.learning, clock.probed = True, set()
    assert clock.play(30) == {12} and clock.detector.verdicts[7].score is not None
    assert not clock.play(300)
    assert clock.play(300, slow_ones({7}, read=40.0)) == {7}, 'a drive that is slow without a probe'


def test_an_osd_that_was_slow_before_a_probe_stays_so_until_after_it() -> None:
    clock = Clock()
    clock.play(300)
    clock.play(120, slow_ones({7}, read=5.0))
    before = clock.detector.verdicts[7]
    clock.learning, clock.probed = False, set(clock.places)
    assert clock.play(2 * FORGET_SECONDS) == {7}
    assert clock.detector.verdicts[7].since == before.since
    clock.learning, clock.probed = True, set()
    assert not clock.play(300)


def test_a_slow_replica_makes_no_suspects_of_its_primaries() -> None:
    def make(osd: int) -> OsdSample:
        healthy = sample(osd)
        return healthy._replace(write=Flow(healthy.write[0], 50.0)) if osd < 8 else healthy

    assert not Clock().play(600, make)


def waiting_for(cause: int, waiting: int, seen: bool) -> Callable[[int], OsdSample]:
    """An OSD whose reads wait for a slow replica; `seen`: primaries have reported the replica.

    Its store measures nothing, and it is a replica of too few PGs to be judged by them.
    """
    def make(osd: int) -> OsdSample:
        usual = sample(osd)._replace(commit=NO_FLOW, store_read=NO_FLOW)
        if osd == waiting:
            rate, ms = usual.read
            return usual._replace(read=Flow(rate, 8.0 * ms))
        return usual._replace(replica=Flow(100.0, 9.0 if seen and osd == cause else 0.5))

    return make


def replicating(slow_ms: float, **factors: float) -> Callable[[int], OsdSample]:
    """osd.7 is slow; its replicated writes take `slow_ms`, those of the others 0.5 ms."""
    def make(osd: int) -> OsdSample:
        each = slow_ones({7}, **factors)(osd)
        return each._replace(replica=Flow(100.0, slow_ms if osd == 7 else 0.5))

    return make


def test_replicated_writes_that_are_known_late_do_not_delay_the_end() -> None:
    """Two readings of half a minute each have to be fast."""
    clock = Clock()
    clock.play(300, replicating(0.5))
    assert clock.play(120, replicating(9.0, write=8.0)) == {7}
    clock.play(55, replicating(9.0))
    assert clock.play(55, replicating(0.5)) == set()


def test_an_osd_that_only_its_primaries_find_slow_remains_slow() -> None:
    clock = Clock()
    clock.play(300, replicating(0.5))
    assert clock.play(120, replicating(9.0)) == {7}
    assert clock.play(900, replicating(9.0)) == {7}
    clock.play(30, replicating(0.5))
    assert clock.play(60, replicating(9.0)) == {7}


def test_a_missing_reading_of_replicated_writes_is_not_a_fast_one() -> None:
    """Few clients write to an OSD that is slow, so that too few PGs show how slow it is."""
    clock = Clock()
    clock.play(300, replicating(0.5))
    assert clock.play(120, replicating(9.0, write=8.0)) == {7}
    clock.play(40, replicating(9.0))
    silent = replicating(9.0)
    assert clock.play(45, lambda osd: silent(osd) if osd != 7 else sample(osd)) == {7}
    clock.play(5, replicating(9.0))
    assert clock.play(30, replicating(9.0)) == {7}
    # The next reading is a fast one.
    assert clock.play(55, replicating(0.5)) == set()


def test_an_osd_is_cleared_once_a_slow_replica_explains_it() -> None:
    """The latency by PG that names a replica is known a minute later than the primaries' own."""
    clock = Clock()
    clock.until(waiting_for(2, 7, seen=False), most=150)
    assert clock.slow() == {7}
    assert clock.play(240, waiting_for(2, 7, seen=True)) == {2}
    assert not clock.play(180)


def test_a_slow_disk_hides_no_slow_flash_which_shares_no_pg_with_it() -> None:
    where = {**places(6), **{osd: OsdPlace(osd, 'd%d' % (osd // 4), 'archive', 'hdd')
                             for osd in range(100, 124)}}

    def make(osd: int) -> OsdSample:
        if osd < 100:
            return sample(osd, cpu=600.0 if osd == 7 and starved else 1.0)
        return sample(osd, read=20.0, write=100.0 if osd == 110 else 20.0)

    starved = False
    clock = Clock(where)
    assert clock.play(900, make) == {110}
    starved = True
    assert clock.play(300, make) == {7, 110}


def test_what_an_osd_waits_for_is_shown_with_its_own_score() -> None:
    clock = Clock()
    clock.play(600, waiting_for(2, 7, seen=True))
    verdict = clock.detector.verdicts[7]
    assert (verdict.slow, verdict.waits_for) == (False, 2)
    assert verdict.score is not None and verdict.score > 5
    assert clock.detector.verdicts[2].waits_for is None
    # It has no PG on the slow replica.
    clock.partners = {2: {1, 2, 3}}
    assert clock.play(120, waiting_for(2, 7, seen=True)) == {2, 7}
    assert clock.detector.verdicts[7].waits_for is None


def test_time_before_an_explanation_does_not_count_after_it() -> None:
    clock = Clock()
    assert not clock.play(60, waiting_for(2, 7, seen=False))
    assert clock.play(600, waiting_for(2, 7, seen=True)) == {2}
    for _ in range(18):
        # The replica is well again, and the primary's last operations complete.
        clock.play(BEAT, waiting_for(2, 7, seen=False))
        assert 7 not in clock.slow()
        clock.play(40)
        assert 7 not in clock.slow()


def test_a_fault_that_ends_with_the_load_leaves_no_accusation() -> None:
    """Clients that hang with the OSD send nothing more: old latencies get no older by that."""
    for seconds in range(20, 80, 10):
        clock = Clock()
        clock.play(300)
        assert not clock.play(seconds, slow_ones({3}, read=8.0, write=8.0))
        for _ in range(30):
            assert not clock.play(BEAT, lambda osd: OsdSample(osd, BEAT))
        for _ in range(12):
            assert not clock.play(BEAT)


def test_time_before_a_pause_of_the_load_does_not_count_after_it() -> None:
    clock = Clock()
    make = slow_ones({3}, read=8.0, write=8.0)
    assert not clock.play(60, make)
    for _ in range(240):
        assert not clock.play(BEAT, lambda osd: OsdSample(osd, BEAT) if osd == 3 else sample(osd))
    assert not clock.play(60, make)


def test_the_slower_the_sooner() -> None:
    very, mildly = (Clock().until(slow_ones({3}, read=factor, write=factor))
                    for factor in (12.0, 2.5))
    assert 35 < very <= 60 and 100 < mildly < 300


@pytest.mark.parametrize('factor, settled', [(8.0, True), (20.0, False)])
def test_somewhat_more_than_a_minute_of_slowness_is_no_alarm(factor: float,
                                                             settled: bool) -> None:
    """A compaction; or an OSD that leads PGs that peer one after another."""
    clock = Clock()
    clock.settled = settled
    for _ in range(5):
        assert not clock.play(120)
        assert not clock.play(75, slow_ones({3}, read=factor, write=factor))
        assert not clock.play(30)


@pytest.mark.parametrize('factors', [
    (5.4,) * 8, (5.4,) * 7 + (2.1,), (5.4,) * 6 + (2.1, 2.1)])
def test_slowness_that_has_just_ended_is_no_alarm(factors: Sequence[float]) -> None:
    """It lasted just long enough, but the last reading is normal."""
    clock = Clock()
    clock.play(300)
    for factor in (*factors, 1.0, 1.0, 1.0, 1.0):
        assert not clock.play(15, slow_ones({3}, read=factor, write=factor), beat=15)


@pytest.mark.parametrize('factors', [
    {'read': 20.0, 'write': 20.0}, {'read': 20.0}, {'write': 20.0}, {'read': 50.0, 'cpu': 500.0}])
@pytest.mark.parametrize('phase', [0.0, 25.0])
def test_20_times_as_slow_is_raised_within_a_minute_and_cleared_within_two(
        factors: Mapping[str, float], phase: float) -> None:
    clock = Clock()
    assert not clock.play(300 + phase)
    assert 30 < clock.until(slow_ones({3}, **factors)) <= 50, 'with time for a report'
    assert clock.slow() == {3}
    clock.play(600, slow_ones({3}, **factors))
    begin = clock.now
    while clock.slow():
        assert clock.now - begin < 120
        clock.play(BEAT)
    assert clock.now - begin >= 60, 'not cleared by one good interval'


def test_a_slow_osd_that_serves_few_operations_is_raised_within_a_minute() -> None:
    """It leads few PGs, and serves the fewer the slower it is: five reads in a report. Its store
    measures nothing."""
    def make(osd: int, **factors: float) -> OsdSample:
        return sample(osd, **factors)._replace(commit=NO_FLOW, store_read=NO_FLOW)

    def slow(osd: int) -> OsdSample:
        return make(osd, read=200.0, cpu=200.0, load=0.005) if osd == 3 else make(osd)

    clock = Clock()
    assert not clock.play(300, make)
    for _ in range(10):
        assert not clock.play(30, slow), 'half a minute is no alarm here either'
        assert not clock.play(120, make)
    assert 30 < clock.until(slow) <= 50
    assert clock.slow() == {3}


def test_half_a_minute_at_20_times_is_no_alarm() -> None:
    clock = Clock()
    for _ in range(10):
        assert not clock.play(120)
        assert not clock.play(30, slow_ones({3}, read=20.0, write=20.0))


def test_one_good_interval_breaks_what_is_raised_within_a_minute() -> None:
    clock = Clock()
    assert not clock.play(300)
    for _ in range(2):
        assert not clock.play(25, slow_ones({3}, read=20.0, write=20.0))
        assert not clock.play(BEAT)
    assert not clock.play(60)


def test_what_peering_left_is_not_raised_within_a_minute() -> None:
    clock = Clock()
    clock.play(300)
    clock.settled = False
    clock.play(40, slow_ones({3}, read=20.0, write=20.0))
    clock.settled = True
    assert not clock.play(2 * BEAT, slow_ones({3}, read=20.0, write=20.0))


def test_a_stall_of_2_s_is_no_alarm_however_often() -> None:
    """Two fifths of the operations of a report wait for a second on average."""
    clock = Clock()
    for _ in range(12):
        assert not clock.play(BEAT, slow_ones({3}, read=1300.0, write=1300.0))
        assert not clock.play(295)
    assert not clock.detector.chronic.standing


def test_one_stall_is_no_alarm() -> None:
    clock = Clock()
    for _ in range(10):
        assert not clock.play(BEAT, slow_ones({3}, read=5000.0, write=5000.0))
        assert not clock.play(40)


def test_less_than_the_ratio_is_no_alarm() -> None:
    assert not Clock().play(900, slow_ones({3}, read=1.3, write=1.3))


@pytest.mark.parametrize('device_class, ms, slow', [
    ('ssd', 0.09, False), ('nvme', 0.12, True), ('hdd', 0.12, False), ('', 0.12, False)])
def test_trifles_are_no_alarm_and_flash_has_smaller_ones(
        device_class: str, ms: float, slow: bool) -> None:
    """Against 0.05 ms."""
    def make(osd: int) -> OsdSample:
        factor = ms / 0.3 if osd == 3 else 0.17
        return sample(osd, read=factor, write=factor, cpu=0.1)

    where = {osd: place._replace(device_class=device_class) for osd, place in places().items()}
    assert Clock(where).play(300, make) == ({3} if slow else set())


def test_a_queue_that_is_short_against_the_commit_is_no_alarm() -> None:
    def make(osd: int) -> OsdSample:
        disk = sample(osd, read=10.0, write=10.0)
        return disk._replace(own_write=Flow(disk.own_write[0], 1.0)) if osd == 3 else disk

    assert not Clock().play(900, make)


def test_a_change_is_seen_that_the_differences_between_osds_hide() -> None:
    """Some are twice as fast as others by nature, and one of the fast gets as slow as three of
    them: as 1.5 of the slow."""
    clock = Clock()
    assert not clock.play(900, of_two_kinds(1.0))
    assert clock.play(300, of_two_kinds(3.0)) == {5}


def of_two_kinds(slow: float) -> Callable[[int], OsdSample]:
    natural = {osd: 0.6 if osd % 2 else 1.0 for osd in places()}
    return lambda osd: sample(osd, *(2 * [natural[osd] * (slow if osd == 5 else 1.0)]))


def test_the_baseline_is_not_learned_while_a_probe_runs() -> None:
    clock = Clock()
    clock.learning = False
    clock.play(900, of_two_kinds(1.0))
    assert not clock.play(300, of_two_kinds(3.0)), 'that is seen by what is usual alone'


def test_cleared_with_hysteresis() -> None:
    clock = Clock()
    clock.play(300, slow_ones({3}, read=4.0, write=4.0))
    # Not slow enough to be called slow, but not well.
    assert clock.play(600, slow_ones({3}, read=1.4, write=1.4)) == {3}
    assert clock.play(30) == {3}
    assert not clock.play(120)
    assert clock.detector.verdicts[3].why == ''


@pytest.mark.parametrize('was_slow', [True, False])
def test_a_restart_cures_no_osd_that_was_slow_before(was_slow: bool) -> None:
    """Of an erasure-coded pool, so that only the reads of the store show it."""
    def of_erasure(osd: int) -> OsdSample:
        return sample(osd, read=6.0 if osd == 3 else 1.0)._replace(read=NO_FLOW)

    clock = Clock()
    clock.play(300, lambda osd: sample(osd)._replace(read=NO_FLOW))
    if was_slow:
        assert clock.play(300, of_erasure) == {3}
    clock.busy = {3: RESTART}
    assert clock.play(300, of_erasure) == ({3} if was_slow else set())


def test_an_alarm_does_not_clear_because_others_become_slow() -> None:
    """Nearly all, one after another; also for another mgr."""
    clock = Clock(places(12, 1))
    clock.play(300)
    assert clock.play(120, slow_ones({1}, read=30.0, write=30.0)) == {1}
    slow = {1}
    for osd in range(2, 12):
        slow.add(osd)
        for _ in range(24):
            named = clock.play(BEAT, slow_ones(slow, read=30.0, write=30.0))
            assert 1 in named.union(*(part.osds for part in clock.detector.class_parts()))
        kept = again(Dict[int, StoredSlow], clock.detector.stored())
        clock.detector = SlowOsds()
        clock.detector.load(kept, clock.now)
    clock.play(120, slow_ones(slow, read=30.0, write=30.0))
    part, = clock.detector.class_parts()
    assert part.osds == tuple(range(1, 12)) and part.score > 10
    assert re.search(r'take [\d.]+ ms, [\d.]+ ms on 11 peers before they became slow too', part.why)
    clock.play(180, slow_ones({0, *slow}, read=30.0, write=30.0))
    part, = clock.detector.class_parts()
    assert re.match(r'12 of 12 ssd OSDs are \d+ times as slow as before: osd.0, osd.1', part.why)
    assert not clock.play(240)


@pytest.mark.parametrize('number', [5, 7, 9])
def test_which_part_is_slow_does_not_depend_on_the_order(number: int) -> None:
    """Also if it is most of the class."""
    many = [osd * 5 % 12 for osd in range(number)]
    orders: List[List[List[int]]] = [
        [], [many[:3]], [many[:half] for half in range(1, number)],
        [many[half:] for half in range(number - 1, 0, -2)]]
    for order in orders:
        clock = Clock(places(12, 1))
        clock.play(400)  # their own latency is known then
        for some in order:
            clock.play(90, slow_ones(set(some), read=30.0, write=30.0))
        assert not clock.play(150, slow_ones(set(many), read=30.0, write=30.0))
        part, = clock.detector.class_parts()
        assert part.osds == tuple(sorted(many))


def test_an_osd_that_recovers_while_the_load_grows_is_cleared() -> None:
    def loaded(osd: int, factor: float = 1.0) -> OsdSample:
        return sample(osd, read=1.5 * factor, write=1.5 * factor, load=1.5)

    clock = Clock(places(3))
    clock.play(300)
    assert clock.play(300, slow_ones({1}, read=4.0, write=4.0)) == {1}
    assert not clock.play(240, loaded)


def test_cleared_where_the_peers_differ_as_much() -> None:
    """A machine with other things to do: healthy OSDs are up to twice as slow as others."""
    def noisy(osd: int, factor: float = 1.0) -> OsdSample:
        factor *= 1.4 if osd == 3 else math.exp(0.8 * ((osd * 7 % 24) / 12 - 1.0))
        return sample(osd, read=factor, write=factor)

    clock = Clock()
    clock.play(300, noisy)
    assert clock.play(120, lambda osd: noisy(osd, 30.0 if osd == 3 else 1.0)) == {3}
    assert not clock.play(120, noisy)


def test_an_osd_slower_than_its_own_baseline_remains_slow_among_differing_peers() -> None:
    """It would be raised and cleared in turns: it never stands out of its peers."""
    def mixed(osd: int, factor: float = 1.0) -> OsdSample:
        factor *= 1.0 if osd == 3 else math.exp(1.6 * ((osd * 7 % 24) / 12 - 1.0))
        return sample(osd, read=factor, write=factor)

    def slow(osd: int) -> OsdSample:
        return mixed(osd, 2.2 if osd == 3 else 1.0)

    clock = Clock()
    assert not clock.play(900, mixed)
    clock.until(slow)
    assert all(clock.play(BEAT, slow) == {3} for _ in range(120))
    assert not clock.play(180, mixed)


def test_no_evidence_neither_raises_nor_clears_until_it_is_stale() -> None:
    clock = Clock()
    clock.play(300, slow_ones({3}, read=4.0, write=4.0))

    def idle(osd: int) -> OsdSample:
        return OsdSample(osd, BEAT) if osd == 3 else sample(osd)

    assert clock.play(300, idle) == {3}
    assert clock.detector.verdicts[3].score is None
    assert not clock.play(400, idle)


def without_reads(osd: int) -> OsdSample:
    """osd.7 leads no PGs, so it only commits what it replicates."""
    usual = sample(osd)._replace(replica=Flow(100.0, 0.5))
    return usual if osd != 7 else OsdSample(osd, BEAT, commit=usual.commit, replica=usual.replica)


def test_commits_do_not_show_that_an_osd_has_recovered_whose_reads_are_slow() -> None:
    clock = Clock()
    clock.play(300)
    assert clock.play(180, slow_ones({7}, read=4.0)) == {7}
    before = clock.detector.verdicts[7]
    clock.replicas_only = {7}
    assert clock.play(FORGET_SECONDS, without_reads) == {7}
    after = clock.detector.verdicts[7]
    assert after.since == before.since and 'reads take' in after.why
    # A time without evidence is limited, so that the OSD is judged anew.
    assert not clock.play(60, without_reads)
    clock.replicas_only = set()
    assert clock.play(180, slow_ones({7}, read=4.0)) == {7}


def test_replicated_writes_show_whether_the_process_of_an_osd_has_recovered() -> None:
    """Its commits do not, as its store is as fast as before."""
    clock = Clock()
    clock.play(300, replicating(0.5))
    assert clock.play(120, replicating(0.5, cpu=30.0)) == {7}
    clock.replicas_only = {7}
    # None, and too few for a comparison.
    for rate in (0.0, 0.05):
        assert clock.play(120, lambda osd: without_reads(osd)._replace(
            replica=Flow(rate, 0.5))) == {7}
    assert clock.play(120, lambda osd: without_reads(osd)._replace(
        replica=Flow(100.0, 9.0 if osd == 7 else 0.5))) == {7}
    assert not clock.play(150, without_reads)


def test_an_osd_that_leads_no_pgs_recovers_by_what_was_slow_of_it() -> None:
    clock = Clock()
    clock.play(300)
    assert clock.play(180, slow_ones({7}, read=4.0, write=4.0)) == {7}
    clock.replicas_only = {7}
    assert clock.play(50, without_reads) == {7}
    assert not clock.play(50, without_reads)
    # With reads in spite of that: where all OSDs have an affinity of 0, they lead PGs.
    assert clock.play(180, slow_ones({7}, read=4.0)) == {7}
    assert not clock.play(150)
    # An earlier mgr has not stored in which kinds it was slow.
    clock.detector.load({7: StoredSlow(clock.now - 300.0, 'x')}, clock.now)
    assert not clock.play(120, without_reads)


def test_a_hot_healthy_osd_is_not_slow() -> None:
    assert not Clock().play(600, slow_ones({3}, read=6.0, write=6.0, cpu=6.0, load=3.0))
    assert Clock().play(600, slow_ones({3}, read=20.0, write=20.0, load=3.0)) == {3}


def test_a_different_load_is_reported() -> None:
    clock = Clock()
    clock.play(300, slow_ones({3}, read=20.0, write=20.0, load=2.0))
    assert re.search(r'at [12]\.\d times their load', clock.detector.verdicts[3].why)


def test_a_host_is_named_once_and_its_osds_say_so() -> None:
    clock = Clock()
    slow = clock.play(400, slow_ones({8, 9, 10, 11}, read=4.0, write=4.0))
    assert slow == {8, 9, 10, 11}
    host, = clock.detector.shared()
    assert host.part == ('host', 'h2') and host.osds == (8, 9, 10, 11) and host.score > 3
    assert host.why.startswith('4 of its 4 ssd OSDs are slow')
    assert all('host h2' in clock.detector.verdicts[osd].why for osd in slow)


def test_many_slow_osds_are_named_by_what_they_alone_share() -> None:
    """Hosts with eight OSDs and two DB devices each, in racks of two hosts."""
    where = {osd: place._replace(
        rack='r%d' % (osd // 16), devices=('h%d:sd%d' % (osd // 8, osd % 8), 'h%d:nvme%d' % (
            osd // 8, osd // 4 % 2))) for osd, place in places(8, 8).items()}

    def named(slow: AbstractSet[int]) -> List[Tuple[str, str]]:
        clock = Clock(where)
        assert clock.play(400, slow_ones(set(slow), write=6.0)) == slow
        return [shared.part for shared in clock.detector.shared()]

    assert named({8, 9, 10, 11}) == [('device', 'h1:nvme0')]
    assert named({8, 9, 10}) == [('device', 'h1:nvme0')]
    assert named({8, 9}) == []
    assert named({8, 9, 10, 12, 13, 14}) == [('host', 'h1')]
    assert named(set(range(8, 12)) | set(range(36, 40))) == [
        ('device', 'h1:nvme0'), ('device', 'h4:nvme1')]
    # Too few of another rack's OSDs to name its host.
    assert named(set(range(14)) | {40}) == [('rack', 'r0')]
    assert named(set(range(8)) | {40}) == [('host', 'h0')]


def test_a_device_that_all_osds_of_a_host_share_is_named_with_it() -> None:
    """Whether the device or something else of the host is slow is not known."""
    where = {osd: place._replace(devices=('sda', 'h%d:nvme0' % (osd // 4)))
             for osd, place in places().items()}
    clock = Clock(where)
    clock.play(400, slow_ones({8, 9, 10, 11}, write=6.0))
    host, = clock.detector.shared()
    assert host.part == ('host', 'h2') and host.devices == ('h2:nvme0',)


def test_reasons_do_not_grow() -> None:
    clock = Clock()
    clock.play(400, slow_ones({8, 9, 10, 11}, read=4.0, write=4.0))
    clock.play(60, lambda osd: OsdSample(osd, BEAT))
    assert clock.detector.verdicts[8].why.count('host h2') == 1
    assert 'host' not in json.dumps(encode(clock.detector.stored(), Dict[int, StoredSlow]))


def test_one_slow_osd_is_not_its_host() -> None:
    clock = Clock()
    clock.play(400, slow_ones({8, 13}, read=4.0, write=4.0))
    assert clock.slow() == {8, 13} and not clock.detector.shared()


@pytest.mark.parametrize('many', [set(range(24)), {osd for osd in range(24) if osd % 3 == 0}])
def test_where_many_are_slow_nobody_is_accused(many: Set[int]) -> None:
    assert not Clock().play(900, slow_ones(many, read=4.0, write=4.0))


@pytest.mark.parametrize('order', [(1, 5, 6, 11), (11, 6, 5, 1), ()])
def test_a_large_part_of_a_class_is_reported_as_one_in_any_order(order: Sequence[int]) -> None:
    many = {1, 5, 6, 11}
    clock = Clock(places(3))
    clock.play(300)
    for number in range(3) if order else ():
        some = set(order[:number + 1])
        assert clock.play(180, slow_ones(some, read=30.0, write=30.0)) == some
        assert not clock.detector.class_parts()
    make = slow_ones(many, read=30.0, write=30.0)
    for _ in range(60):
        named = clock.play(BEAT, make)
        assert not order or named or clock.detector.class_parts(), 'it was reported and is slow'
    assert not named
    part, = clock.detector.class_parts()
    assert part.osds == (1, 5, 6, 11)
    assert re.match('4 of 12 ssd OSDs are (29|30) times as slow as the others: osd.1, osd.5, '
                    r'osd.6, osd.11; osd.\d+: store commits take', part.why)
    # Another mgr, and fewer than a quarter.
    kept = again(Dict[int, StoredSlow], clock.detector.stored())
    clock.detector = SlowOsds()
    clock.detector.load(kept, clock.now)
    for _ in range(24):
        assert not clock.play(BEAT, make) and clock.detector.class_parts()
    assert clock.play(300, slow_ones({5, 11}, read=30.0, write=30.0)) == {5, 11}
    assert not clock.detector.class_parts()
    assert not clock.play(240)


#: A third of 24 OSDs.
THIRD = {osd for osd in range(24) if osd % 3 == 0}


def of_third(worst: float) -> Callable[[int], OsdSample]:
    """Twice as slow as the others; osd.3 by another factor."""
    return lambda osd: sample(osd, *2 * [worst if osd == 3 else 2.2]) if osd in THIRD \
        else sample(osd)


def test_a_part_that_differs_as_classes_do_is_not_reported() -> None:
    """Other drives, or less in the cache. That hides no OSD that is far slower."""
    clock = Clock()
    assert not clock.play(900, of_third(2.2)) and not clock.detector.class_parts()
    assert clock.play(120, of_third(30.0)) == {3} and not clock.detector.class_parts()


@pytest.mark.parametrize('first', [{6}, set()])
def test_a_part_that_has_become_somewhat_slower_is_reported_later(first: Set[int]) -> None:
    """Nor is its first one forgotten until then."""
    clock = Clock()
    clock.play(400)
    assert clock.play(300, slow_ones(first, read=2.2, write=2.2)) == first
    assert clock.play(600, of_third(2.2)) == first and not clock.detector.class_parts()
    assert not clock.play(300, of_third(2.2))
    part, = clock.detector.class_parts()
    assert re.match(r'8 of 24 ssd OSDs are 2\.\d times as slow as the others: osd.0', part.why)
    assert clock.play(120, of_third(30.0)) == {3}
    part, = clock.detector.class_parts()
    assert len(part.osds) == 7
    assert not clock.play(300) and not clock.detector.class_parts()


def test_medians_are_taken_once_for_each_kind_of_operation(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for all models together where each has peers of its own."""
    made: List[int] = []

    def counted(points: Sequence[LoadPoint]) -> Peers:
        made.append(len(points))
        return Peers(points)

    clock = Clock({osd: place._replace(model='m%d' % (osd % 2))
                   for osd, place in places(hosts=20).items()})
    clock.play(60)
    monkeypatch.setattr(peers, 'Peers', counted)
    clock.play(BEAT)
    assert made == [40, 40] * 4


def test_models_have_peers_of_their_own() -> None:
    where = {osd: place._replace(model='b' if osd % 3 == 0 else 'a')
             for osd, place in places().items()}
    natural = {osd: 1.0 if osd % 3 else 3.0 for osd in where}
    clock = Clock(where)
    assert not clock.play(600, lambda osd: sample(osd, natural[osd], natural[osd]))
    assert clock.play(300, lambda osd: sample(
        osd, *(2 * [natural[osd] * (3.0 if osd == 5 else 1.0)]))) == {5}


@pytest.mark.parametrize('count, words', [
    (3, r'[\d.]+ ms on the fastest of 2 peers( and usually [\d.]+ ms)?, for .* at the same load$'),
    (2, r'[\d.]+ ms on the fastest of 1 peer( and usually [\d.]+ ms)?, for ')])
def test_in_a_small_group_an_osd_is_compared_with_the_fastest_and_with_itself(
        count: int, words: str) -> None:
    """As on the three or two nodes of Rook and Proxmox."""
    clock = Clock(places(count, 1))
    assert not clock.play(900)
    make = slow_ones({1}, read=8.0, write=8.0)
    assert clock.until(make) <= 200
    assert clock.play(60, make) == {1}
    verdict = clock.detector.verdicts[1]
    assert re.search(words, verdict.why) and verdict.score is not None and verdict.score > 5
    # Others do not hide it.
    named = clock.play(300, slow_ones({0, 1}, read=8.0, write=8.0))
    assert [part.osds for part in clock.detector.class_parts()] == [(0, 1)] * (count == 3)
    assert named == ({1} if count == 2 else set())
    assert not clock.play(300)


def test_two_of_three_that_become_slow_at_once_are_reported() -> None:
    clock = Clock(places(3, 1))
    assert not clock.play(900)
    clock.play(300, slow_ones({0, 2}, read=8.0, write=8.0))
    part, = clock.detector.class_parts()
    assert part.why.startswith('2 of 3 ssd OSDs are ') and 'osd.0, osd.2; ' in part.why
    assert not clock.play(300) and not clock.detector.class_parts()
    # The load.
    assert not clock.play(600, slow_ones({0, 1, 2}, read=8.0, write=8.0))
    assert not clock.detector.class_parts()


def test_in_a_small_group_an_osd_that_always_differs_is_healthy() -> None:
    def make(osd: int) -> OsdSample:
        factor = load * (2.6 * slow if osd == 1 else 1.0)
        return sample(osd, read=factor, write=factor)

    load = slow = 1.0
    clock = Clock(places(3, 1))
    assert not clock.play(3600, make)
    for load in (4.0, 0.5, 1.0):
        assert not clock.play(900, make), 'the load of all'
    slow = 3.0
    assert clock.play(400, make) == {1}
    slow = 1.0
    assert not clock.play(300, make)


def test_in_a_small_group_a_hot_osd_is_healthy() -> None:
    """A disk near saturation, at twice the load of the others: nothing tells how long its queue is
    by right."""
    clock = Clock(places(3, 1))
    clock.play(900)
    assert not clock.play(900, lambda osd: sample(osd, read=20.0, cpu=20.0, load=2.1)
                          if osd == 1 else sample(osd))


def test_in_a_small_group_an_osd_may_be_slow_from_the_beginning() -> None:
    assert Clock(places(3, 1)).play(400, slow_ones({1}, read=30.0, write=30.0)) == {1}
    assert not Clock(places(3, 1)).play(900, slow_ones({1}, read=1.9, write=1.9))
    assert not Clock(places(3, 1)).play(900, slow_ones({0, 1, 2}, read=30.0, write=30.0))


@pytest.mark.parametrize('kind', [SCRUB, TARGET])
def test_in_a_small_group_other_work_is_an_excuse_as_well(kind: str) -> None:
    clock = Clock(places(3, 1))
    clock.play(900)
    clock.busy = {1: kind}
    assert not clock.play(900, slow_ones({1}, read=3.0, write=3.0))


@pytest.mark.parametrize('without', [12, 3])
def test_osds_without_a_db_device_have_peers_of_their_own(without: int) -> None:
    """The same disks, but each commit waits for the disk instead of flash."""
    where = {osd: place._replace(device_class='hdd', store='plain' if osd < without else 'DB')
             for osd, place in places().items()}

    def make(osd: int) -> OsdSample:
        commit = 20.0 if osd < without else 5.0
        return sample(osd, read=20.0, write=4 * commit if osd == slow else commit)

    slow = -1
    clock = Clock(where)
    assert not clock.play(1800, make)
    slow = 20
    assert clock.play(400, make) == {20}


@pytest.mark.parametrize('kind', [SCRUB, TARGET])
def test_other_work_excuses_but_not_everything(kind: str) -> None:
    for factor, accused in ((2.5, set()), (12.0, {5})):
        clock = Clock()
        clock.busy = {5: kind}
        assert clock.play(900, slow_ones({5}, read=factor, write=factor)) == accused


@pytest.mark.parametrize('seconds', [60.0, 160.0])
@pytest.mark.parametrize('factor', [3.0, 4.5])
def test_a_deep_scrub_that_is_seen_late_is_no_alarm(seconds: float, factor: float) -> None:
    """PG states of 33,000 or 100,000 PGs are read every 53 or 160 s."""
    clock = Clock()
    clock.busy_seconds = seconds
    assert not clock.play(900)
    for late in (0, 15, 60, seconds - 5):
        while (clock.now - START) % seconds:
            clock.play(BEAT)
        assert not clock.play(late)
        clock.busy = {7: SCRUB}
        for _ in range(120):
            assert not clock.play(BEAT, slow_ones({7}, read=factor, write=factor))
        clock.busy = {}
        assert not clock.play(240)


def test_an_alarm_waits_for_one_reading_of_the_work() -> None:
    clock = Clock()
    clock.busy_seconds = 160.0
    # The first reading is after 5 s.
    clock.play(200)
    assert clock.until(slow_ones({3}, read=20.0, write=20.0)) == 125
    since = clock.detector.verdicts[3].since
    assert since <= START + 205
    # It began before its work did.
    clock.busy = {3: SCRUB}
    assert clock.play(300, slow_ones({3}, read=20.0, write=20.0)) == {3}
    assert clock.detector.verdicts[3].since == since


def test_an_alarm_does_not_wait_for_ever_for_a_reading_of_the_work() -> None:
    clock = Clock()
    clock.busy_seconds = math.inf
    clock.play(160)
    assert 590 < clock.until(slow_ones({3}, read=20.0, write=20.0)) <= 610


def test_deep_scrub_reads_large() -> None:
    def make(osd: int) -> OsdSample:
        healthy = sample(osd)
        return healthy._replace(store_read=Flow(100.0, 30.0)) if osd == 5 else healthy

    clock = Clock()
    clock.busy = {5: SCRUB}
    assert not clock.play(900, make)


def test_not_all_backfill_as_much_and_more_patience_is_due() -> None:
    for factor, seconds, accused in ((2.5, 900, set()), (20.0, 150, set()), (20.0, 300, {5})):
        clock = Clock()
        clock.busy = {osd: TARGET for osd in range(8)}
        work = {osd: 2.0 for osd in clock.busy}
        work[5] *= factor
        assert clock.play(seconds, lambda osd: sample(
            osd, *(2 * [work.get(osd, 1.0)]))) == accused


def test_the_few_of_another_model_have_an_allowance() -> None:
    where = {osd: place._replace(model='b' if osd < 3 else 'a')
             for osd, place in places().items()}
    assert not Clock(where).play(900, slow_ones({1}, read=2.5, write=2.5))
    assert Clock(where).play(900, slow_ones({4}, read=2.5, write=2.5)) == {4}


def test_the_busy_are_no_measure_for_the_others() -> None:
    """Half of the OSDs are slower for backfilling; another one has no such excuse."""
    clock = Clock()
    clock.busy = {osd: TARGET for osd in range(12)}
    work = {osd: 3.0 for osd in range(12)}
    work[20] = 3.0
    assert clock.play(600, lambda osd: sample(osd, *(2 * [work.get(osd, 1.0)]))) == {20}


def test_flags_survive_a_failover() -> None:
    clock = Clock()
    make = slow_ones({3}, read=4.0, write=4.0)
    clock.play(300, make)
    before = clock.detector.verdicts[3]
    kept = again(Dict[int, StoredSlow], clock.detector.stored())
    clock.detector = SlowOsds()
    clock.detector.load(kept, clock.now)
    assert clock.detector.verdicts[3].slow
    whole(clock.detector.round(OsdReading(clock.now, [], {}, {}), SETTINGS))  # no OSDMap yet
    assert clock.play(2 * BEAT, make) == {3}
    assert clock.detector.verdicts[3].since == before.since
    assert clock.detector.verdicts[3].why == before.why


@pytest.mark.parametrize('wrong', [
    {'kept': 7}, {'kept': {'x': [1.0, 0.0, 0.1]}}, {'kept': {'0': [1.0]}},
    {'kept': {'0': [0.0, 0.0, 0.1]}}, {'kept': {'0': [math.inf, 0.0, 0.1]}}, {'since': math.nan},
    {'why': 3}])
def test_what_is_no_slow_osd_is_refused(wrong: Any) -> None:
    with pytest.raises(Malformed):
        decode(StoredSlow, {'since': START, 'why': 'slow', **wrong})


def test_a_removed_osd_is_no_longer_slow() -> None:
    clock = Clock()
    clock.play(300, slow_ones({3}, read=4.0, write=4.0))
    del clock.places[3]
    clock.play(BEAT)
    assert 3 not in clock.detector.verdicts and not clock.detector.stored()


def test_nonsense_is_no_alarm() -> None:
    numbers = (math.nan, math.inf, -math.inf, -1.0, 0.0, 1e300)
    bad = [Flow(rate, ms) for rate in numbers for ms in numbers]

    def make(osd: int) -> OsdSample:
        return OsdSample(osd, BEAT, *(5 * [bad[osd]])) if osd < len(bad) else sample(osd)

    clock = Clock(places(12, 5))
    assert not clock.play(300, make)
    assert {osd for osd, verdict in clock.detector.verdicts.items()
            if verdict.score is None} == set(range(len(bad)))
    for seconds in numbers:
        clock = Clock()
        assert not clock.play(180, lambda osd: sample(osd)._replace(seconds=seconds))
        assert clock.detector.verdicts[0].score is None


@pytest.mark.parametrize('seconds', [0.0, 40.0, 1e6])
def test_a_gap_is_not_time_that_was_seen(seconds: float) -> None:
    clock = Clock()
    make = slow_ones({3}, read=20.0, write=20.0)
    clock.play(300)
    clock.play(25, make)
    clock.now += seconds
    assert not clock.play(BEAT, make)
    assert clock.play(300, make) == {3}


def test_one_osd_no_osd_and_strangers() -> None:
    clock = Clock(places(1, 1))
    assert not clock.play(300, slow_ones({0}, read=20.0))
    assert clock.detector.verdicts[0].score is None
    whole(clock.detector.round(
        OsdReading(clock.now + 5, [sample(77)], clock.places, {78: SCRUB}), SETTINGS))
    clock.places = {}
    assert not clock.play(900) and clock.detector.shared() == ()


@pytest.mark.parametrize('beat', [1.0, 2.0, 30.0])
def test_other_periods(beat: float) -> None:
    clock = Clock()

    def make(slow: AbstractSet[int]) -> Callable[[int], OsdSample]:
        return lambda osd: slow_ones(slow, read=10.0, write=10.0)(osd)._replace(seconds=beat)

    assert not clock.play(300, make(set()), beat)
    assert clock.play(360, make({3}), beat) == {3}


def test_without_store_counters_reads_and_queue_are_enough() -> None:
    def make(slow: float) -> Callable[[int], OsdSample]:
        return lambda osd: sample(osd, read=slow if osd == 3 else 1.0)._replace(
            commit=NO_FLOW, store_read=NO_FLOW)

    clock = Clock()
    assert not clock.play(300, make(1.0)) and clock.play(300, make(4.0)) == {3}


def test_inputs_are_left_alone() -> None:
    where, samples = places(), [sample(osd) for osd in places()]
    busy = {3: SCRUB}
    before: List[object] = [dict(where), list(samples), dict(busy)]
    whole(SlowOsds().round(OsdReading(START, samples, where, busy), SETTINGS))
    assert [where, samples, busy] == before


@pytest.mark.parametrize('ratio, load', [
    (0.5, 'at 0.5 times their load'), (0.8, 'at 0.8 times their load'), (0.9, 'at the same load'),
    (1.0, 'at the same load'), (1.15, 'at the same load'), (1.3, 'at 1.3 times their load')])
def test_what_is_said_of_a_slow_osd(ratio: float, load: str) -> None:
    found = PeerFinding(0, PeerComparison(3.1, 3.0, 0.4, 0.05, 9.0, 0.1, ratio, 11), 1.0)
    assert describe(found, 90.0) == (
        'reads take 3.1 ms, 0.4 +- 0.05 ms on 11 peers, for 90 s ' + load)
