# SPDX-License-Identifier: LGPL-2.1-or-later
"""For how long an OSD must be slow or healthy, to the second, with comparisons that the tests make;
for what real operations show, see test_slow_osds."""
import math
from dataclasses import replace
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

import pytest

from perfguard.cluster.types import OsdPlace
from perfguard.watch import slow_osds
from perfguard.watch.chronic import _Count
from perfguard.watch.osd_window import COMMITS, READS, REPLICATED, STORE_READS, OsdWindow
from perfguard.watch.peers import Findings, OsdExpectation, PeerComparison, PeerFinding
from perfguard.watch.rounds import Work
from perfguard.watch.slow_osds import SlowOsds, StoredSlow, describe
from perfguard.watch.slow_parts import SlowOne, SlowParts
from perfguard.watch.slowness import FORGET_SECONDS, WORK_SECONDS, SlowSettings
from perfguard.watch.types import SCRUB, Flow, OsdReading, OsdSample

from ..fakes.functions import whole

BEAT = 5.0
START = 1e9
SETTINGS = SlowSettings()


def finding(score: float, channel: int = READS, ms: float = 0.0, deviations: float = 9.0,
            load_ratio: float = 1.0, peers: int = 11, **fields: Any) -> PeerFinding:
    """`ms`: its latency, if 1 ms is not what is expected."""
    ms = ms or score
    return PeerFinding(channel, PeerComparison(
        ms, ms, ms / score, 0.05, deviations, 0.1, load_ratio, peers), 1.0, **fields)


class Exact:
    """The detector, given comparisons and the operations of the last interval. Twelve OSDs on six
    hosts; PGs move unless `settled`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, hosts: int = 6, per_host: int = 2) -> None:
        self.detector = SlowOsds()
        self.places = {osd: OsdPlace(osd, 'h%d' % (osd // per_host), 'default', 'hdd')
                       for osd in range(hosts * per_host)}
        self.now = START
        #: OSD -> its comparisons; those without are as fast as their peers.
        self.findings: Dict[int, List[PeerFinding]] = {}
        #: OSD -> latency of its reads in the interval, if it is not that of its first comparison;
        #: and reads per second.
        self.last_ms: Dict[int, float] = {}
        self.rate: Dict[int, float] = {}
        #: OSDs without operations, and those that do not report.
        self.idle: Set[int] = set()
        self.silent: Set[int] = set()
        self.settings = SETTINGS
        self.busy: Dict[int, str] = {}
        self.busy_read = math.inf
        #: Further fields of the readings.
        self.reading: Dict[str, Any] = {'settled': False}
        #: OSDs that were compared, the work of OSDs, and the slow OSDs, in the last interval.
        self.compared: Set[int] = set()
        self.windows: Mapping[int, OsdWindow] = {}
        self.kinds: Dict[int, str] = {}
        self.slow_ones: Mapping[int, SlowOne] = {}
        update = SlowParts.update

        def judge(windows: Mapping[int, OsdWindow], places: Mapping[int, OsdPlace],
                  busy: Mapping[int, str]) -> Work[Findings]:
            self.compared, self.kinds, self.windows = set(windows), dict(busy), windows
            return {osd: self.findings.get(osd, [finding(1.0)]) for osd in windows
                    if osd not in self.idle}
            yield 0

        def noted(parts: SlowParts, passed: float, slow: Mapping[int, SlowOne],
                  *args: Any) -> Set[int]:
            self.slow_ones = slow
            return update(parts, passed, slow, *args)

        monkeypatch.setattr(slow_osds, 'judge', judge)
        monkeypatch.setattr(SlowParts, 'update', noted)

    def _sample(self, osd: int, seconds: float) -> OsdSample:
        if osd in self.idle:
            return OsdSample(osd, seconds)
        flows = {row.channel: Flow(self.rate.get(osd, 100.0), self.last_ms.get(
            osd, row.comparison.ms)) for row in self.findings.get(osd, [finding(1.0)])}
        return OsdSample(osd, seconds, flows.get(READS, Flow()), commit=flows.get(COMMITS, Flow()),
                         store_read=flows.get(STORE_READS, Flow()),
                         replica=flows.get(REPLICATED, Flow()))

    def next_reading(self, after: float = BEAT) -> OsdReading:
        self.now += after
        seconds = after if 0.0 < after < 3600.0 else BEAT
        samples = [self._sample(osd, seconds) for osd in self.places if osd not in self.silent]
        return replace(OsdReading(self.now, samples, self.places, self.busy,
                                  busy_read=self.busy_read), **self.reading)

    def update(self, after: float = BEAT) -> Set[int]:
        """Who is slow after an interval."""
        whole(self.detector.round(self.next_reading(after), self.settings))
        return set(self.detector.slow_verdicts)

    def healthy(self, number: int = 1) -> None:
        """Intervals in which no OSD is slow."""
        findings, self.findings = self.findings, {}
        for _ in range(number):
            assert self.update() == set()
        self.findings = findings

    def raised_after(self, most: int = 200) -> int:
        """Number of intervals until an OSD is slow."""
        for number in range(1, most):
            if self.update():
                return number
        return 0

    def cleared_after(self, most: int = 200) -> int:
        for number in range(1, most):
            if not self.update():
                return number
        return 0

    def raise_it(self, *findings: PeerFinding) -> None:
        """osd.3 is slow, as long as it can be remembered."""
        self.findings = {3: list(findings or (finding(10.0),))}
        assert self.raised_after()
        for _ in range(12):
            assert self.update() == {3}


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> Exact:
    return Exact(monkeypatch)


# ---- up

@pytest.mark.parametrize('score, number', [(10.0, 12), (20.0, 12), (9.9, 13), (1.5, 69)])
def test_the_slower_the_sooner(exact: Exact, score: float, number: int) -> None:
    """Sixty seconds at ten times the latency, which weigh less if it is less slow."""
    exact.healthy(3)
    exact.findings = {3: [finding(score)]}
    begin = exact.now
    assert exact.raised_after() == number
    assert number == math.ceil(12 / min(1.0, math.log10(score)))
    # The median rises when half of the window is slow.
    assert exact.detector.verdicts[3].since == begin + BEAT - 30.0
    assert exact.detector.any_slow


@pytest.mark.parametrize('score, deviations', [(1.499, 9.0), (10.0, 4.9)])
def test_what_is_not_slow(exact: Exact, score: float, deviations: float) -> None:
    exact.healthy()
    exact.findings = {3: [finding(score, deviations=deviations)]}
    assert exact.raised_after() == 0 and not exact.detector.any_slow


@pytest.mark.parametrize('observed, number', [(0.0, 10), (20.0, 9), (40.0, 5), (10.0, 10)])
def test_of_a_long_interval_a_quarter_of_the_window_counts_or_what_was_observed(
        exact: Exact, observed: float, number: int) -> None:
    """The first interval has no begin."""
    exact.findings, exact.reading['observed'] = {3: [finding(10.0)]}, observed
    exact.update()
    exact.reading['observed'] = 0.0
    assert 1 + exact.raised_after() == number


def test_an_interval_counts_at_most_as_long_as_it_was(exact: Exact) -> None:
    exact.healthy()
    exact.findings, exact.reading['observed'] = {3: [finding(10.0)]}, 40.0
    assert exact.raised_after() == 12


def test_seconds_below_the_ratio_are_subtracted(exact: Exact) -> None:
    exact.healthy(2)
    slow, begin = {3: [finding(10.0)]}, exact.now
    for is_slow, number in ((True, 8), (False, 3), (True, 6)):
        exact.findings = slow if is_slow else {}
        assert not any(exact.update() for _ in range(number))
    assert exact.update() == {3}
    assert exact.detector.verdicts[3].since == begin + BEAT - 30.0
    # Nothing is left to subtract from.
    exact.detector = SlowOsds()
    exact.healthy(2)
    exact.findings = slow
    exact.update(0.5)
    since = exact.now - 30.0
    assert exact.raised_after() == 12 and exact.detector.verdicts[3].since == since


def test_each_channel_may_show_it(exact: Exact) -> None:
    exact.healthy()
    exact.findings = {3: [finding(1.0), finding(10.0, STORE_READS), finding(2.0, COMMITS)]}
    exact.last_ms[3] = 10.0
    assert exact.raised_after() == 12
    assert exact.detector.slowdowns(3) == {'reads': 1.0, 'store reads': 10.0, 'store commits': 2.0}
    assert exact.detector.slowdowns(77) == {}


@pytest.mark.parametrize('last_ms, rate, number', [
    (5.5, 100.0, 12), (5.49, 100.0, 0), (1.0, 100.0, 0),
    # Too few operations for a mean.
    (1.0, 0.4, 12), (1.0, 0.6, 0)])
def test_a_last_mean_with_less_than_half_of_the_excess_does_not_count(
        exact: Exact, last_ms: float, rate: float, number: int) -> None:
    exact.healthy()
    exact.findings, exact.last_ms[3] = {3: [finding(10.0)]}, last_ms
    exact.rate[3] = rate
    assert exact.raised_after() == number


def test_only_the_last_mean_says_whether_it_has_ended(exact: Exact) -> None:
    """However short its slot is."""
    exact.healthy()
    exact.findings, exact.last_ms[3] = {3: [finding(10.0)]}, 1.0
    exact.update()
    exact.last_ms[3] = 10.0
    for _ in range(20):
        exact.update(0.25)
    # Not the slot before, which was fast.
    assert [exact.update() for _ in range(11)] == [set()] * 10 + [{3}]


def test_all_kinds_must_have_ended(exact: Exact) -> None:
    exact.healthy()
    exact.findings = {3: [finding(10.0), finding(10.0, STORE_READS, ms=1.0)]}
    # Store reads take 10 ms, where 0.1 ms is expected.
    exact.last_ms[3] = 5.0
    assert exact.raised_after() == 12


@pytest.mark.parametrize('channel, ms, number', [
    (READS, 10.0, 7), (READS, 9.99, 12), (REPLICATED, 10.0, 12), (STORE_READS, 12.0, 7)])
def test_an_osd_that_is_certainly_slow_is_reported_after_35_seconds(
        exact: Exact, channel: int, ms: float, number: int) -> None:
    exact.reading = {'settled': True}
    exact.findings = {3: [finding(1.0, channel)]}
    for _ in range(10):
        exact.update()
    exact.findings, exact.last_ms[3] = {3: [finding(10.0, channel)]}, ms
    assert exact.raised_after() == number


def test_not_before_all_pgs_have_been_clean_for_so_long(exact: Exact) -> None:
    exact.findings = {3: [finding(10.0)]}
    exact.reading = {'settled': True}
    # The first one counts as 15 s.
    assert exact.raised_after() == 8
    exact.detector, exact.reading = SlowOsds(), {'settled': False}
    exact.update()
    exact.reading = {'settled': True}
    assert exact.raised_after() == 8
    exact.detector, exact.reading = SlowOsds(), {'settled': True}
    exact.update()
    exact.reading = {'settled': False}
    exact.update()
    exact.reading = {'settled': True}
    assert exact.raised_after() == 8


def test_an_osd_with_other_work_is_never_certainly_slow(exact: Exact) -> None:
    exact.reading, exact.busy = {'settled': True}, {3: SCRUB}
    exact.healthy()
    exact.findings = {3: [finding(20.0)]}
    assert exact.raised_after() == 36
    assert exact.detector.verdicts[3].since == START + 2 * BEAT - 30.0


# ---- its own baseline

@pytest.mark.parametrize('seconds, learning, kind, is_raised', [
    (300, True, '', True), (295, True, '', False), (300, False, '', False),
    (300, True, SCRUB, False)])
def test_an_osd_is_also_compared_with_its_own_baseline(
        exact: Exact, seconds: int, learning: bool, kind: str, is_raised: bool) -> None:
    """It deviates too little from its peers."""
    exact.detector.load({}, START)
    exact.reading['learning'] = learning
    exact.busy = {3: kind} if kind else {}
    exact.healthy(seconds // 5)
    exact.busy, exact.reading['learning'] = {}, False
    exact.findings = {3: [finding(10.0, deviations=4.0)]}
    for _ in range(13):
        exact.update()
    assert bool(exact.raised_after()) is is_raised


def test_its_own_baseline_does_not_apply_while_it_has_other_work(exact: Exact) -> None:
    exact.healthy(70)
    exact.busy = {3: SCRUB}
    exact.findings = {3: [finding(10.0, deviations=4.0)]}
    assert exact.raised_after() == 0


def test_a_baseline_learns_nothing_from_slowness_and_from_intervals_of_any_length(
        monkeypatch: pytest.MonkeyPatch) -> None:
    exact = Exact(monkeypatch, hosts=2)
    exact.detector.load({}, START)
    # An interval without a length teaches nothing.
    assert exact.update(0.0) == set()
    for _ in range(300):
        exact.update(1.0)
    exact.findings = {3: [finding(10.0)]}
    for _ in range(30):
        exact.update()
    exact.findings = {}
    assert exact.cleared_after()
    exact.findings = {3: [finding(3.0, deviations=4.0)]}
    assert exact.raised_after() == 26


@pytest.mark.parametrize('score, known, of_part, changed', [
    (1.5, True, False, True), (1.49, True, False, False), (1.49, True, True, False),
    (9.0, False, False, False), (9.0, False, True, True)])
def test_whether_a_slow_osd_was_faster_before(exact: Exact, score: float, known: bool,
                                              of_part: bool, changed: bool) -> None:
    """As long as that is not known, whether the last mgr had reported it in a part of its class."""
    exact.detector.load({}, START)
    exact.healthy(60 if known else 59)
    exact.detector.load({3: StoredSlow(START, 'slow', of_part)}, exact.now)
    if known:
        # Its baseline, which another mgr would not know.
        exact.detector._states[3] = exact.detector._states[3]._replace(
            baselines=exact.detector._states[4].baselines)
    exact.findings = {3: [finding(score), finding(1.0, STORE_READS)]}
    exact.update()
    assert exact.slow_ones[3].slower_than_before is changed
    assert exact.slow_ones[3].of_part is of_part
    exact.findings = {3: [finding(1.0), finding(1.0, STORE_READS, with_own=True)]}
    exact.update()
    assert exact.slow_ones[3].slower_than_before


@pytest.mark.parametrize('score, is_raised', [(2.99, False), (3.0, True)])
def test_in_a_small_group_the_slowest_peer_is_exceeded_by_twice_as_much(
        exact: Exact, score: float, is_raised: bool) -> None:
    exact.healthy()
    exact.findings = {3: [finding(score, fastest_ms=0.5)]}
    assert bool(exact.raised_after()) is is_raised


@pytest.mark.parametrize('seconds, number', [(300, 12), (295, 0)])
def test_in_a_small_group_an_osd_is_compared_with_its_history(exact: Exact, seconds: int,
                                                              number: int) -> None:
    """Its peers have become as slow."""
    exact.detector.load({}, START)
    exact.findings = {3: [finding(1.0, fastest_ms=1.0), finding(1.0, COMMITS, fastest_ms=0.5)]}
    for _ in range(seconds // 5):
        assert exact.update() == set()
    exact.reading['learning'] = False
    exact.findings = {3: [finding(1.0, ms=10.0, fastest_ms=1.0), finding(1.0, COMMITS)]}
    assert exact.raised_after() == number
    if number:
        assert '1 ms on the fastest of 11 peers, ' in exact.detector.verdicts[3].why


# ---- down

@pytest.mark.parametrize('score, is_cleared', [(1.249, True), (1.25, False)])
def test_an_osd_is_healthy_after_a_minute_below_the_lower_ratio(exact: Exact, score: float,
                                                                is_cleared: bool) -> None:
    exact.raise_it()
    exact.findings = {3: [finding(score)]}
    assert exact.cleared_after() == 12 * is_cleared
    assert bool(exact.detector.stored()) is not is_cleared
    if is_cleared:
        # What was expected of it is forgotten: its peers are as slow now.
        assert exact.detector.verdicts[3].why == '' and not exact.detector.any_slow


def test_it_is_remembered_for_a_minute_however_long_it_was_slow(exact: Exact) -> None:
    exact.raise_it()
    exact.findings = {}
    assert [exact.update() for _ in range(11)] == [{3}] * 11
    # Half a second is left.
    assert exact.update(4.5) == {3} and exact.update(0.5) == set()


def test_an_osd_remains_slow_against_what_was_expected_while_its_peers_are_slow_too(
        exact: Exact) -> None:
    exact.raise_it()
    exact.findings = {3: [finding(1.0, ms=10.0)]}
    for _ in range(30):
        assert exact.update() == {3}
    verdict = exact.detector.verdicts[3]
    assert verdict.score == 10.0 and 'before they became slow too' in verdict.why
    # Its load explains so much: twice the load, four times the latency.
    row = finding(1.0, ms=4.9)
    exact.findings = {3: [row._replace(comparison=row.comparison._replace(load=math.log(2.0)))]}
    assert exact.cleared_after() == 12
    exact.findings = {3: [finding(1.0, ms=10.0)]}
    assert exact.raised_after() == 0


def test_what_was_expected_is_what_it_stood_out_from_last(exact: Exact) -> None:
    exact.raise_it()
    exact.findings = {3: [finding(5.0, ms=10.0)]}
    exact.update()
    assert exact.detector.stored()[3].kept == {READS: OsdExpectation(2.0, 0.0, 0.08)}
    exact.findings = {3: [finding(1.0, ms=10.0), finding(9.0, STORE_READS)]}
    exact.update()
    assert exact.detector.stored()[3].kept == {
        READS: OsdExpectation(2.0, 0.0, 0.08), STORE_READS: OsdExpectation(1.0, 0.0, 0.08)}
    exact.findings = {3: [finding(1.0, ms=10.0), finding(1.0, STORE_READS)]}
    exact.update()
    assert exact.detector.verdicts[3].score == 5.0
    assert exact.detector.verdicts[3].why.startswith('reads take 10 ms, 2 ms on 11 peers before')


#: Slow and fast replicated writes.
SLOW_REPLICA, FAST_REPLICA = finding(10.0, REPLICATED), finding(1.0, REPLICATED)


def alone(exact: Exact, seconds: float) -> None:
    """Slow, and then for so long in replicated writes only."""
    exact.raise_it(finding(10.0), SLOW_REPLICA)
    exact.findings = {3: [finding(1.0), SLOW_REPLICA]}
    for _ in range(round(seconds / BEAT)):
        assert exact.update() == {3}


@pytest.mark.parametrize('seconds, number', [
    # The first fast reading covers up to half a minute.
    (0.0, 12), (20.0, 8), (30.0, 6), (60.0, 6), (90.0, 6),
    # They alone have shown it for longer than two readings take.
    (95.0, 12), (300.0, 12)])
def test_replicated_writes_that_are_fast_have_been_fast_for_half_a_minute(
        exact: Exact, seconds: float, number: int) -> None:
    alone(exact, seconds)
    exact.findings = {3: [finding(1.0), FAST_REPLICA]}
    assert exact.cleared_after() == number


@pytest.mark.parametrize('seconds, intervals', [(20.0, 7), (95.0, 11)])
def test_how_much_time_a_fast_reading_covers(exact: Exact, seconds: float, intervals: int) -> None:
    alone(exact, seconds)
    exact.findings = {3: [finding(1.0), FAST_REPLICA]}
    for _ in range(intervals):
        assert exact.update() == {3}
    assert exact.update(4.5) == {3} and exact.update(0.5) == set()


def test_only_the_last_time_that_they_alone_were_slow_counts(exact: Exact) -> None:
    alone(exact, 60.0)
    exact.findings = {3: [finding(10.0), SLOW_REPLICA]}
    exact.update()
    exact.findings = {3: [finding(1.0), SLOW_REPLICA]}
    exact.update()
    exact.findings = {3: [finding(1.0), FAST_REPLICA]}
    assert [exact.update() for _ in range(10)] == [{3}] * 10
    assert exact.update(4.5) == {3} and exact.update(0.5) == set()


def test_without_a_reading_of_replicated_writes_only_the_time_that_passes_counts(
        exact: Exact) -> None:
    alone(exact, 30.0)
    exact.findings = {3: [finding(1.0)]}
    assert [exact.update() for _ in range(9)] == [{3}] * 9
    exact.findings = {3: [finding(1.0), FAST_REPLICA]}
    assert exact.cleared_after() == 1


# ---- without evidence

@pytest.mark.parametrize('idle, number', [(20.0, 3), (20.125, 12)])
def test_after_a_window_without_evidence_an_osd_counts_as_healthy(exact: Exact, idle: float,
                                                                  number: int) -> None:
    exact.healthy(2)
    begin = exact.now
    exact.findings = {3: [finding(10.0)]}
    for _ in range(9):
        exact.update()
    exact.idle = {3}
    for seconds in (20.0, 20.0, idle):
        exact.update(seconds)
    exact.idle = set()
    if number == 12:
        begin = exact.now
    assert exact.raised_after() == number
    assert exact.detector.verdicts[3].since == begin + BEAT - 30.0


def test_a_slow_osd_is_healthy_after_ten_minutes_without_evidence(exact: Exact) -> None:
    exact.raise_it()
    exact.idle = {3}
    assert exact.update(FORGET_SECONDS) == {3} and exact.detector.verdicts[3].score is None
    assert exact.update(0.125) == set() and exact.detector.stored() == {}
    exact.idle = set()
    exact.findings = {3: [finding(1.0, ms=10.0)]}
    exact.update()
    assert exact.detector.verdicts[3].score == 1.0


def test_a_probe_delays_that(exact: Exact) -> None:
    exact.raise_it()
    exact.reading['probed'] = {3}
    assert exact.update(2 * FORGET_SECONDS) == {3} and 3 not in exact.compared
    exact.reading['probed'], exact.idle = (), {3}
    assert exact.update(FORGET_SECONDS) == {3} and exact.update(1.0) == set()


def test_kinds_without_operations_in_the_last_slot_do_not_count(exact: Exact) -> None:
    exact.healthy()
    rows = [finding(1.0), finding(10.0, STORE_READS)]
    exact.findings = {3: rows}
    exact.last_ms[3] = 10.0
    for _ in range(6):
        exact.update()
    reading = exact.next_reading
    setattr(exact, 'next_reading', lambda after: replace(reading(after), samples=[
        OsdSample(osd, after, Flow(100.0, 1.0)) for osd in exact.places]))
    assert exact.raised_after() == 0


# ---- work besides client operations

def test_other_work_is_remembered_for_a_window(exact: Exact) -> None:
    exact.busy = {3: SCRUB}
    exact.update()
    exact.busy = {}
    exact.update(60.0)
    assert exact.kinds == {3: SCRUB}
    exact.update(0.125)
    assert exact.kinds == {}


def test_work_that_is_seen_late_may_be_the_reason(exact: Exact) -> None:
    exact.busy_read = START - 40.0
    exact.healthy()
    exact.findings = {3: [finding(10.0)]}
    for _ in range(6):
        exact.update()
    begin = exact.now
    exact.busy, exact.busy_read = {3: SCRUB}, exact.now + BEAT
    assert exact.raised_after() == 36
    assert exact.detector.verdicts[3].since == begin + BEAT - 30.0


@pytest.mark.parametrize('late', [0.0, 0.125])
def test_an_alarm_waits_for_a_reading_of_the_work(exact: Exact, late: float) -> None:
    """Unless the work was read when the OSD became slow, within a slot."""
    exact.healthy(10)
    exact.busy_read = exact.now + BEAT - 30.0 + 5.0 - late
    exact.findings = {3: [finding(10.0)]}
    assert [exact.update() for _ in range(11)] == [set()] * 11
    if late:
        assert exact.update() == set()
        exact.busy_read = exact.now
    assert exact.update() == {3}


def test_an_alarm_waits_for_ten_minutes_at_most(exact: Exact) -> None:
    exact.healthy(10)
    exact.busy_read = START - 1000.0
    exact.findings = {3: [finding(10.0)]}
    since = exact.now + BEAT - 30.0
    while exact.now + BEAT < since + WORK_SECONDS:
        assert exact.update() == set()
    assert exact.update() == {3}


def test_work_that_begins_later_is_no_reason(exact: Exact) -> None:
    exact.busy_read = START + BEAT
    exact.healthy(10)
    exact.findings = {3: [finding(10.0)]}
    for _ in range(6):
        exact.update()
    exact.busy_read = exact.now
    exact.update()
    exact.busy, exact.busy_read = {3: SCRUB}, exact.now
    # 35 s have counted.
    assert exact.raised_after() == 29


# ---- which OSDs are reported

def test_the_first_of_many_that_become_slow_waits(exact: Exact) -> None:
    """Four of twelve: a part may be reported instead."""
    for intervals, is_reported in ((6, False), (5, True)):
        exact.detector, exact.findings = SlowOsds(), {}
        exact.healthy()
        exact.findings = {3: [finding(10.0)]}
        for _ in range(12 - intervals):
            exact.update()
        exact.findings.update({osd: [finding(10.0)] for osd in (4, 6, 8)})
        for _ in range(intervals):
            exact.update()
        assert exact.detector.any_slow
        assert set(exact.detector.slow_verdicts) == ({3} if is_reported else set())


def test_an_osd_that_was_reported_remains_so_until_a_part_is(exact: Exact) -> None:
    exact.raise_it()
    assert set(exact.slow_ones) == {3}
    exact.findings.update({osd: [finding(10.0)] for osd in (4, 6, 8)})
    for _ in range(14):
        assert exact.update() == {3}
    named = exact.update()
    while not exact.detector.class_parts():
        assert named == {3}
        named = exact.update()
    assert named == set()
    assert [row.part for row in exact.detector.stored().values()] == [True] * 4
    assert exact.detector.verdicts[3].slow is False
    # The part ends.
    exact.findings = {3: [finding(10.0)]}
    assert exact.raised_after()
    while len(exact.detector.stored()) > 1:
        assert exact.update() == {3}
    assert exact.detector.class_parts() == ()
    assert {osd: row.part for osd, row in exact.detector.stored().items()} == {3: False}


def stored(osds: Iterable[int], **fields: Any) -> Dict[int, StoredSlow]:
    return {osd: StoredSlow(START - 100.0, 'slow', **fields) for osd in osds}


@pytest.mark.parametrize('seconds, parts', [(55.0, []), (60.0, [('host', 'h0')])])
def test_at_first_osds_without_operations_may_be_healthy(
        monkeypatch: pytest.MonkeyPatch, seconds: float, parts: List[Tuple[str, str]]) -> None:
    """Two of four OSDs of a host are slow, and of the others nothing is known."""
    exact = Exact(monkeypatch, hosts=3, per_host=4)
    exact.detector.load({**stored((0, 1)), **stored((9,), part=True)}, START)
    assert list(exact.detector.slow_verdicts) == [0, 1] and 9 in exact.detector.verdicts
    exact.findings = {osd: [finding(10.0)] for osd in (0, 1)}
    exact.idle = {2, 3}
    exact.update()
    for _ in range(round(seconds / BEAT)):
        exact.update()
    assert [shared.part for shared in exact.detector.shared()] == parts
    if parts:
        assert exact.detector.verdicts[0].why.endswith('; so is its host h0')
        assert 'so is its' not in exact.detector.stored()[0].why


def test_osds_without_operations_may_be_healthy_for_ten_minutes(
        monkeypatch: pytest.MonkeyPatch) -> None:
    exact = Exact(monkeypatch, hosts=3, per_host=4)
    exact.detector.load(stored((0, 1)), START)
    exact.findings = {osd: [finding(10.0)] for osd in (0, 1)}
    exact.update()
    exact.idle = {2, 3}
    exact.update(FORGET_SECONDS)
    assert exact.detector.shared() == ()
    exact.update(0.125)
    assert [shared.part for shared in exact.detector.shared()] == [('host', 'h0')]


# ---- slow parts of a class

def of_part(exact: Exact, osds: Sequence[int]) -> None:
    """A part of the class is slow, by an earlier mgr; 1 ms was expected of its reads."""
    exact.detector.load(stored(osds, part=True, kept={READS: OsdExpectation(1.0, 0.0, 0.08)}),
                        START)
    exact.findings = {osd: [finding(10.0)] for osd in osds}
    exact.update()
    assert [part.osds for part in exact.detector.class_parts()] == [tuple(osds)]


@pytest.mark.parametrize('ms, slowdown', [(3.0, 3.0), (2.99, 1.0), (9.0, 9.0)])
def test_other_osds_are_compared_with_what_was_expected_of_a_slow_part(
        exact: Exact, ms: float, slowdown: float) -> None:
    """Once nearly all are slow, none stands out."""
    of_part(exact, (0, 2, 4, 6))
    exact.findings[7] = [finding(1.0, ms=ms), finding(1.0, STORE_READS, ms=50.0)]
    exact.findings[8] = [finding(8.0, ms=4.0)]
    exact.update()
    assert exact.detector.slowdowns(7) == {'reads': slowdown, 'store reads': 1.0}
    # A comparison with its peers shows more.
    assert exact.detector.slowdowns(8) == {'reads': 8.0}
    # Those that are slow already are compared with their peers.
    exact.findings[0] = [finding(1.0, ms=30.0)]
    exact.update()
    assert exact.detector.slowdowns(0) == {'reads': 1.0}


def test_a_slow_part_says_nothing_of_other_models_and_classes(
        monkeypatch: pytest.MonkeyPatch) -> None:
    exact = Exact(monkeypatch, hosts=12)
    for osd, place in exact.places.items():
        exact.places[osd] = place._replace(model='b' if osd >= 14 else 'a')
    of_part(exact, (0, 2, 4, 6, 8, 10, 12))
    exact.findings.update({osd: [finding(1.0, ms=10.0)] for osd in (1, 20)})
    exact.update()
    assert exact.detector.slowdowns(1) == {'reads': 10.0}
    assert exact.detector.slowdowns(20) == {'reads': 1.0}


def test_the_highest_expectation_of_a_slow_part_counts(exact: Exact) -> None:
    exact.detector.load({osd: StoredSlow(START, 'slow', True, {READS: OsdExpectation(
        float(osd + 1), 0.0, 0.08)}) for osd in (0, 2, 4, 6)}, START)
    exact.findings = {osd: [finding(10.0, ms=10.0 * (osd + 1))] for osd in (0, 2, 4, 6)}
    exact.findings[7] = [finding(1.0, ms=35.0)]
    exact.update()
    assert exact.detector.slowdowns(7) == {'reads': 1.0}, 'the part is not known yet'
    exact.update()
    assert exact.detector.slowdowns(7) == {'reads': 5.0}


# ---- OSDs that come and go

def test_without_an_osdmap_everything_is_forgotten_after_ten_minutes(exact: Exact) -> None:
    exact.raise_it()
    exact.places = {}
    exact.update(FORGET_SECONDS)
    assert exact.detector.stored()
    exact.update(0.125)
    assert exact.detector.stored() == {} and exact.detector.verdicts == {}


def test_a_removed_osd_is_forgotten(exact: Exact) -> None:
    exact.raise_it()
    place = exact.places.pop(3)
    assert exact.update() == set() and exact.detector.stored() == {}
    exact.places[3] = place
    assert exact.update() == set()


def test_of_a_replaced_osd_nothing_is_known(exact: Exact) -> None:
    exact.raise_it()
    exact.silent = {3, 4}
    exact.detector.forget({3})
    assert 3 not in exact.detector.verdicts and exact.detector.load_ratio(3) == 1.0
    exact.update()
    assert 4 in exact.compared and 3 not in exact.compared


def test_the_counts_of_slow_time_are_judged_and_forgotten_as_well(exact: Exact) -> None:
    exact.detector.chronic.load({osd: _Count(
        evidence=1e4, slow=1e4 if osd == 3 else 0.0, episodes=3, since=START, last=START,
        seen=START) for osd in exact.places})
    exact.update()
    assert list(exact.detector.chronic.standing) == [3]
    exact.detector.forget({3})
    assert not exact.detector.chronic.standing


def test_operations_count_for_a_minute(exact: Exact) -> None:
    for rate, number in ((100.0, 12), (10.0, 12)):
        exact.rate = dict.fromkeys(exact.places, rate)
        for _ in range(number):
            exact.update()
    assert exact.windows[3].rate(READS) == pytest.approx(10.0)


def test_operations_of_unknown_osds_do_not_count(exact: Exact) -> None:
    samples = [OsdSample(77, BEAT, Flow(100.0, 1.0))]
    exact.reading['samples'] = samples
    assert exact.update() == set() and exact.compared == set()


def test_the_load_relative_to_that_of_the_peers(exact: Exact) -> None:
    exact.findings = {3: [finding(1.0, load_ratio=0.5), finding(1.0, COMMITS, load_ratio=2.5)]}
    exact.update()
    assert exact.detector.load_ratio(3) == 2.5 and exact.detector.load_ratio(77) == 1.0


def test_slow_replicas_are_known(exact: Exact) -> None:
    exact.findings = {3: [finding(10.0, COMMITS)], 4: [finding(10.0)],
                      5: [finding(10.0, REPLICATED)]}
    exact.update()
    assert exact.detector.slow_replicas == {3, 5}


def test_what_counts_of_slow_time_are_made_of(exact: Exact,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    exact.raise_it()
    calls: List[Any] = []

    def take(*args: Any) -> Any:
        calls.append(args)
        return iter(())

    monkeypatch.setattr(exact.detector.chronic, 'take', take)
    exact.reading['probed'], exact.busy = {4}, {5: SCRUB}
    exact.settings = replace(SETTINGS, memory_seconds=99.0)
    exact.update()
    reading, findings, windows, baselines, memory_seconds, reported = calls[-1]
    judged_osds = set(range(12)) - {4}
    assert {sample.osd for sample in reading.samples} == set(windows) == judged_osds
    assert set(findings) == set(baselines) == judged_osds
    assert (reading.busy, memory_seconds, reported) == ({5: SCRUB}, 99.0, {3})
    exact.detector.load(stored((0, 2, 4, 6), part=True), exact.now)
    exact.update()
    assert calls[-1][-1] == {3}, 'those of a part are not reported'


def test_how_many_passes_over_osds_a_round_takes(exact: Exact) -> None:
    """Samples, windows, chronic slowness (twice), excuses, states, verdicts, and the report."""
    assert list(exact.detector.round(exact.next_reading(), SETTINGS)) == [
        12, 12, 36, 24, 24, 36, 24, 48]


# ---- texts

@pytest.mark.parametrize('fields, text', [
    ({'load_ratio': 1.2}, '1 +- 0.05 ms on 11 peers, for 90 s at 1.2 times their load'),
    ({'load_ratio': 1.0 / 1.2}, '1 +- 0.05 ms on 11 peers, for 90 s at 0.83 times their load'),
    ({'peers': 1}, '1 +- 0.05 ms on 1 peer, for 90 s at the same load'),
    ({'peers': 2}, '1 +- 0.05 ms on 2 peers, for 90 s at the same load'),
    ({'earlier': True}, '1 ms on 11 peers before they became slow too, for 90 s at the same load'),
    ({'fastest_ms': 0.5, 'peers': 2},
     '1 ms on the slowest of 2 peers, for 90 s at the same load'),
    ({'fastest_ms': 0.5, 'with_own': True, 'peers': 1},
     '0.5 ms on the fastest of 1 peer and usually 1 ms, for 90 s at the same load'),
    ({'fastest_ms': 1.0, 'with_own': True, 'peers': 2},
     '1 ms on the fastest of 2 peers, for 90 s at the same load')])
def test_what_an_osd_is_compared_with(fields: Dict[str, Any], text: str) -> None:
    assert describe(finding(3.0, **fields), 90.0) == 'reads take 3 ms, ' + text


@pytest.mark.parametrize('ms, is_possible', [(0.5, True), (0.0, False), (-0.5, False)])
def test_stored_expectations_are_possible_ones(ms: float, is_possible: Optional[bool]) -> None:
    kept = {READS: OsdExpectation(ms, 0.0, 0.1)}
    if is_possible:
        assert StoredSlow(START, 'slow', kept=kept).kept == kept
    else:
        with pytest.raises(ValueError):
            StoredSlow(START, 'slow', kept=kept)
