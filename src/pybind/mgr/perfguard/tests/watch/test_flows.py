# SPDX-License-Identifier: LGPL-2.1-or-later
"""Rates and latencies from counters, percentiles from histograms, histories, hysteresis."""
import random
from typing import List, Optional, Sequence

import pytest

from perfguard.cluster.types import LatencyCounts, Ops, OsdCounters
from perfguard.watch.hysteresis import Alarm
from perfguard.watch.osds import LONGEST_SECONDS, flow, sample
from perfguard.watch.percentiles import merged, percentile_ms
from perfguard.watch.series import History, Point, Series
from perfguard.watch.types import Flow, NO_FLOW

MS = 1000000
NAN = float('nan')


def counters(time: float, read: Ops = Ops(), write: Ops = Ops(), process: Ops = Ops(),
             prepare: Ops = Ops(), commit: Ops = Ops(), store_read: Ops = Ops()) -> OsdCounters:
    return OsdCounters(time, read, write, process, prepare, commit, store_read)


# ---- flows

def test_a_sample_is_the_difference_of_two_reports() -> None:
    before = counters(10.0, Ops(5 * MS, 1), Ops(100 * MS, 10), Ops(60 * MS, 10), Ops(10 * MS, 10),
                      Ops(7 * MS, 7), Ops(1 * MS, 1))
    after = counters(15.0, Ops(15 * MS, 6), Ops(200 * MS, 60), Ops(110 * MS, 60), Ops(20 * MS, 60),
                     Ops(57 * MS, 107), Ops(1 * MS, 1))
    found = sample(3, before, after)
    assert found is not None and (found.osd, found.seconds) == (3, 5.0)
    assert found.read == Flow(1.0, 2.0)
    assert found.write == Flow(10.0, 2.0)
    # 100 ms in all, of which 50 after dequeuing, 10 of these before the store had them: 60 of 50.
    assert found.own_write == Flow(10.0, 1.2)
    assert found.commit == Flow(20.0, 0.5)
    assert found.store_read == NO_FLOW


def test_no_sample_where_nothing_can_be_told() -> None:
    before = counters(100.0, Ops(10 * MS, 10))
    more = Ops(20 * MS, 20)
    assert sample(0, before, counters(105.0, more)) is not None
    for time in (100.0, 95.0, 100.0 + LONGEST_SECONDS + 1, NAN, float('inf'), -1e300):
        assert sample(0, before, counters(time, more)) is None, time
    # It started anew: fewer operations, or less time spent on them.
    assert sample(0, before, counters(105.0, Ops(5 * MS, 5))) is None
    assert sample(0, before, counters(105.0, Ops(5 * MS, 50))) is None
    assert sample(0, before, counters(105.0, more)._replace(commit=Ops(-1, 0))) is None


@pytest.mark.parametrize('read', [Ops(2 ** 63, 5), Ops(10 ** 18, 1), Ops(1, 0)])
def test_no_sample_of_operations_that_cannot_be(read: Ops) -> None:
    assert sample(0, counters(100.0), counters(105.0, read)) is None


def test_the_number_of_pgs_may_go_down() -> None:
    before = counters(100.0)._replace(pgs=9)
    assert sample(0, before, counters(105.0)._replace(pgs=3)) is not None


def test_flow() -> None:
    assert flow(Ops(6 * MS, 3), 2.0) == Flow(1.5, 2.0)
    for ops, seconds in ((Ops(), 1.0), (Ops(5, 0), 1.0), (Ops(-5, 2), 1.0), (Ops(5, -2), 1.0),
                         (Ops(5, 5), 0.0)):
        assert flow(ops, seconds) == NO_FLOW


def test_nonsense_makes_no_sample_or_a_number() -> None:
    rnd = random.Random(7)
    values = (0, 1, -1, 2 ** 63, 2 ** 64 - 1, -2 ** 63, 10 ** 30)
    for _ in range(2000):
        before, after = (
            counters(rnd.choice((0.0, 5.0, 1e18, NAN)), *[
                Ops(rnd.choice(values), rnd.choice(values)) for _ in range(6)])
            for _ in range(2))
        found = sample(1, before, after)
        if found is not None:
            for each in (found.read, found.write, found.own_write, found.commit,
                         found.store_read):
                assert each.rate >= 0.0 and each.ms >= 0.0


# ---- histograms

BOUNDS = tuple(1000 * 2 ** n for n in range(20))


def counted(values_ns: Sequence[float]) -> List[int]:
    counts = [0] * (len(BOUNDS) + 1)
    for value in values_ns:
        counts[sum(1 for bound in BOUNDS if value >= bound)] += 1
    return counts


def test_percentile_within_its_bucket() -> None:
    assert percentile_ms((MS, 2 * MS), (0, 4, 0), 0.5) == 1.5
    assert percentile_ms((MS, 2 * MS), (0, 4, 0), 1.0) == 2.0
    assert percentile_ms((MS, 2 * MS), (2, 2, 0), 0.5) == 1.0
    # The last bucket has no end: as wide as Ceph would make it.
    assert percentile_ms((MS, 2 * MS), (0, 0, 1), 0.5) == 3.0


@pytest.mark.parametrize('counts', [(), (0, 0, 0)])
def test_no_percentile_without_operations(counts: Sequence[int]) -> None:
    assert percentile_ms((MS, 2 * MS), counts, 0.99) is None


def test_percentiles_are_off_by_a_factor_of_two_at_most() -> None:
    rnd = random.Random(3)
    for _ in range(50):
        values = [rnd.lognormvariate(13.0, 1.0) for _ in range(rnd.randint(1, 500))]
        for share in (0.01, 0.5, 0.99, 1.0):
            true = sorted(values)[max(0, int(share * len(values) + 0.999999) - 1)] / 1e6
            found = percentile_ms(BOUNDS, counted(values), share)
            assert found is not None and true / 2 <= found <= 2 * true


def latencies(osd: int, read: Sequence[int], write: Sequence[int],
              bounds: Sequence[int] = (MS, 2 * MS)) -> LatencyCounts:
    return LatencyCounts(osd, 30.0, tuple(bounds), tuple(read), tuple(write))


def test_merged_adds_up_those_with_the_same_buckets() -> None:
    assert merged([]) is None
    both = merged([latencies(1, (1, 2, 3), (0, 0, 0)), latencies(2, (10, 0, 0), (0, 5, 0)),
                   latencies(3, (100, 100), (100, 100), bounds=(MS,))])
    assert both is not None
    assert (both.bounds, both.read, both.write) == ((MS, 2 * MS), (11, 2, 3), (0, 5, 0))


# ---- series

def test_a_series_keeps_the_newest() -> None:
    rnd = random.Random(5)
    for length in (1, 2, 7):
        series = Series(2, length)
        expected: List[Point] = []
        for number in range(30):
            values = (rnd.random(), rnd.random())
            series.add(float(number), 1.0, values)
            expected = [*expected, Point(float(number), 1.0, values)][-length:]
            assert series.points() == expected and len(series) == len(expected)
            for last in range(1, length + 2):
                assert series.points(last) == expected[-last:]


def test_an_empty_series() -> None:
    assert Series(3, 5).points() == Series(3, 5).points(2) == [] and len(Series(3, 5)) == 0


def test_readings_are_summed_up_to_points() -> None:
    series = Series(1, 10, seconds=10.0)
    for number in range(1, 8):
        series.add(100.0 + 4 * number, 4.0, (1.0,))
    assert series.points() == [(112.0, 12.0, (3.0,)), (124.0, 12.0, (3.0,))]


def test_condensed_history_loses_nothing_but_detail() -> None:
    rnd = random.Random(11)
    history = History(1, detailed=10, condensed=1000)
    total = seconds = 0.0
    for number in range(5000):
        value, length = float(rnd.randint(0, 100)), rnd.choice((4.5, 5.0, 60.0))
        total, seconds = total + value, seconds + length
        history.add(float(number), length, (value,))
    points = history.condensed.points()
    missing = total - sum(point.sums[0] for point in points)
    assert 0 <= seconds - sum(point.seconds for point in points) < 600 and 0 <= missing < 13400
    assert all(600 <= point.seconds < 660 for point in points)
    assert len(history.detailed) == 10


def test_a_series_survives_as_json() -> None:
    series, other = Series(2, 5), Series(2, 5)
    for number in range(8):
        series.add(1000.0 + number, 1.0, (number, 2.5))
    other.load(series.to_json())
    assert other.points() == series.points()


@pytest.mark.parametrize('rows', [
    None, 5, 'abc', {'a': 1}, [None], [[1.0, 2.0]], [[1.0, 2.0, 3.0, 4.0, 5.0]],
    [['a', 1.0, 2.0, 3.0]], [[[1], 1.0, 2.0, 3.0]], [{'end': 1}]])
def test_what_is_no_point_is_not_loaded(rows: object) -> None:
    series = Series(2, 5)
    series.load(rows)
    assert series.points() == []
    series.load([[9.0, 1.0, 2.0, 3.0], *(rows if isinstance(rows, list) else [])])
    assert series.points() == [(9.0, 1.0, (2.0, 3.0))]


# ---- alarm

def fed(readings: Sequence[Optional[bool]], raise_after: float = 15.0, clear_after: float = 10.0,
        alarm: Optional[Alarm] = None) -> List[bool]:
    alarm = alarm or Alarm()
    states = []
    for number, holds in enumerate(readings):
        alarm.update(1000.0 + 5 * number, 5.0, holds, raise_after, clear_after)
        states.append(alarm.raised)
    return states


YES, NO, UNKNOWN = True, False, None


def test_raised_after_a_while_and_cleared_after_a_while() -> None:
    assert fed([YES, YES, YES, NO, NO, NO]) == [False, False, True, True, False, False]


def test_one_other_reading_starts_the_while_again() -> None:
    assert not any(fed([YES, YES, NO] * 10))
    assert all(fed([NO, YES] * 10, alarm=Alarm(True, 500.0)))


def test_no_evidence_changes_nothing() -> None:
    assert fed([YES, YES, UNKNOWN, YES]) == [False, False, False, True]
    assert all(fed([UNKNOWN] * 50, alarm=Alarm(True, 500.0)))
    assert fed([NO, UNKNOWN, UNKNOWN, NO], alarm=Alarm(True, 500.0)) == [True, True, True, False]


def test_without_a_while_it_follows_at_once() -> None:
    assert fed([YES, NO, YES], 0.0, 0.0) == [True, False, True]


def test_since_is_when_the_trouble_began() -> None:
    alarm = Alarm()
    for now, holds in ((1000.0, YES), (1005.0, NO), (1010.0, YES), (1015.0, YES), (1020.0, YES)):
        alarm.update(now, 5.0, holds, 15.0, 10.0)
    assert alarm.raised and alarm.since == 1005.0
    alarm.update(1025.0, 5.0, NO, 15.0, 10.0)
    assert alarm.since == 1005.0
    alarm.update(1030.0, 5.0, NO, 15.0, 10.0)
    assert not alarm.raised and alarm.since == 0.0


def test_a_clock_that_jumps_neither_raises_nor_clears() -> None:
    for jump in (1e6, -1e6):
        alarm = Alarm()
        alarm.update(1e7, 5.0, YES, 15.0, 10.0)
        alarm.update(1e7 + jump, 5.0, YES, 15.0, 10.0)
        assert not alarm.raised
        alarm.update(1e7 + jump + 5, 5.0, YES, 15.0, 10.0)
        assert alarm.raised
        alarm.update(1e7, 5.0, NO, 15.0, 10.0)
        assert alarm.raised
