# SPDX-License-Identifier: LGPL-2.1-or-later
"""The operations of an OSD in the last minute: which count, and the median of their means."""
import math
from typing import Optional, Sequence, Tuple

import pytest

from perfguard.watch.osd_window import (COMMITS, READS, REPLICATED, STORE_READS, WRITES, OsdWindow,
                                        WindowLatency, WindowSummary, flows_of, rates)
from perfguard.watch.types import NO_FLOW, Flow, OsdSample

MINUTE = 60.0


def window(*reads: Tuple[float, float], seconds: float = 5.0, begin: float = 100.0) -> OsdWindow:
    """With slots of so many reads of so many ms, 5 s each."""
    filled = OsdWindow()
    for number, (ops, ms) in enumerate(reads):
        filled.add(begin + seconds * number, OsdSample(1, seconds, Flow(ops / seconds, ms)), MINUTE)
    return filled


def reading(filled: OsdWindow, channel: int = READS) -> Optional[WindowLatency]:
    return filled.summary().latencies[channel]


@pytest.mark.parametrize('ms, median, recent', [
    ([1.0, 5.0, 2.0], 2.0, 2.0), ([1.0, 5.0, 2.0, 4.0], 3.0, 4.0),
    ([9.0, 8.0, 7.0, 1.0, 2.0], 7.0, 2.0), ([1.0] * 9 + [6.0, 7.0, 9.0], 1.0, 7.0)])
def test_the_median_of_means(ms: Sequence[float], median: float, recent: float) -> None:
    """Of all slots, and of the last three of them."""
    found = reading(window(*((10.0, each) for each in ms)))
    assert found == pytest.approx((median, recent, math.log(median), 10.0 * len(ms)))


@pytest.mark.parametrize('ops, means', [
    ([8.0, 8.0, 8.0], 3), ([8.0, 8.0, 7.0], 0), ([24.0], 0), ([30.0, 30.0], 0),
    ([4.0] * 6, 3), ([4.0] * 5, 0), ([3.0] * 9, 3), ([20.0, 4.0, 4.0, 20.0, 4.0], 3)])
def test_means_are_of_eight_operations_at_least(ops: Sequence[float], means: int) -> None:
    """Slots with fewer are merged; three means are evidence."""
    found = reading(window(*((number, 2.0) for number in ops)))
    assert (found is not None) is (means >= 3)
    if found is not None:
        assert (found.ms, found.ops) == (pytest.approx(2.0), pytest.approx(sum(ops)))


def test_slots_with_few_operations_are_merged_with_the_next() -> None:
    found = reading(window((4.0, 1.0), (4.0, 3.0), (8.0, 5.0), (2.0, 9.0), (6.0, 1.0), (7.0, 99.0)))
    # Means of 2, 5 and 3 ms; the last seven operations are left out.
    assert found == pytest.approx((3.0, 3.0, math.log(3.0), 31.0))


@pytest.mark.parametrize('seconds, has_three', [(4.5, False), (4.51, True)])
def test_samples_are_added_to_a_slot_until_it_is_long_enough(
        seconds: float, has_three: bool) -> None:
    """0.9 of a twelfth of the window. Three slots are evidence, two are none."""
    filled = window(*[(8.0, 1.0)] * 3, seconds=seconds)
    assert (reading(filled) is not None) is has_three
    assert filled.summary().seconds == pytest.approx(3 * seconds)


@pytest.mark.parametrize('seconds, flow, counts', [
    (5.0, Flow(1.0, 1.0), True), (3600.0, Flow(1.0, 1.0), True), (3600.1, Flow(1.0, 1.0), False),
    (0.0, Flow(1.0, 1.0), False), (5.0, Flow(math.nan, 1.0), False),
    (5.0, Flow(1.0, math.nan), False), (5.0, Flow(-1.0, 1.0), False), (5.0, Flow(1.0, 0.0), False),
    (5.0, Flow(1e8, 1.0), False), (5.0, Flow(1.0, 1e7), False), (5.0, Flow(9e7, 9e6), True)])
def test_which_operations_count(seconds: float, flow: Flow, counts: bool) -> None:
    filled = OsdWindow()
    filled.add(100.0, OsdSample(1, seconds, flow), MINUTE)
    assert filled.rate(READS) == (flow.rate if counts else 0.0)
    assert filled.is_fed(READS) is counts and not filled.is_fed(COMMITS)


@pytest.mark.parametrize('now, slots', [
    (160.5, 12), (160.6, 11), (165.5, 11), (165.6, 10), (215.5, 1), (215.6, 0)])
def test_slots_expire_after_the_window(now: float, slots: int) -> None:
    filled = window(*[(9.0, 1.0)] * 12)
    filled.expire(now, MINUTE)
    assert filled.summary().ops[READS] == 9.0 * slots


def test_no_more_than_twelve_slots_are_kept() -> None:
    filled = window(*[(9.0, 1.0)] * 15)
    filled.expire(160.0, 1e9)
    assert filled.summary().ops[READS] == 9.0 * 12
    empty = OsdWindow()
    empty.expire(1e9, MINUTE)
    assert not empty.is_recent(0.0, MINUTE) and empty.rate(READS) == 0.0


def test_six_slots_are_kept_where_they_are_longer_than_the_window() -> None:
    filled = window(*[(9.0, 1.0)] * 9, seconds=20.0)
    filled.expire(260.0, MINUTE)
    # The last ended at 260 s; six slots take 120 s.
    assert filled.summary().ops[READS] == 9.0 * 7


@pytest.mark.parametrize('seconds, now, is_recent', [
    (5.0, 115.0, True), (5.0, 115.1, False), (20.0, 140.0, True), (20.0, 140.1, False)])
def test_a_window_is_recent_for_a_quarter_of_it_or_two_slots(
        seconds: float, now: float, is_recent: bool) -> None:
    assert window((9.0, 1.0), seconds=seconds).is_recent(now, MINUTE) is is_recent


@pytest.mark.parametrize('slots, seconds, lowest_ms', [
    ([(9.0, 1.0), (9.0, 4.0), (9.0, 3.0)], 10.0, 3.0), ([(9.0, 1.0), (9.0, 4.0)], 10.0, 1.0),
    ([(9.0, 1.0), (9.0, 4.0)], 10.1, None), ([(9.0, 1.0), (2.9, 4.0), (9.0, 3.0)], 10.0, None),
    ([(9.0, 1.0), (3.0, 4.0), (3.0, 3.0)], 10.0, 3.0), ([], 1.0, None),
    ([(2.9, 1.0), (9.0, 4.0)], 5.0, 4.0)])
def test_the_fastest_of_the_last_slots(
        slots: Sequence[Tuple[float, float]], seconds: float, lowest_ms: Optional[float]) -> None:
    found = window(*slots).least_ms(READS, seconds)
    assert found == (None if lowest_ms is None else pytest.approx(lowest_ms))


def test_a_write_ends_with_its_commit() -> None:
    """As far as both are known."""
    sample = OsdSample(1, 5.0, read=Flow(1.0, 1.0), own_write=Flow(2.0, 0.1), commit=Flow(9.0, 3.0),
                       store_read=Flow(4.0, 4.0), replica=Flow(5.0, 5.0))
    assert flows_of(sample) == (Flow(1.0, 1.0), Flow(2.0, 3.1), Flow(9.0, 3.0), Flow(4.0, 4.0),
                                Flow(5.0, 5.0))
    assert flows_of(sample._replace(commit=NO_FLOW))[WRITES] == Flow(2.0, 0.1)
    assert flows_of(sample._replace(own_write=NO_FLOW))[WRITES] == NO_FLOW


def test_each_channel_has_its_operations() -> None:
    filled = OsdWindow()
    filled.add(100.0, OsdSample(1, 10.0, read=Flow(1.0, 1.0), write=Flow(7.0, 9.0),
                                own_write=Flow(2.0, 2.0), commit=Flow(3.0, 3.0),
                                store_read=Flow(4.0, 4.0), replica=Flow(5.0, 5.0)), MINUTE)
    assert [filled.rate(channel) for channel in (
        READS, WRITES, COMMITS, STORE_READS, REPLICATED)] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert filled.summary() == WindowSummary(
        10.0, 70.0, (10.0, 20.0, 30.0, 40.0, 50.0), latencies=(None,) * 5)


def totals(reads: float, own_writes: float, commits: float, store_reads: float,
           writes: float) -> WindowSummary:
    return WindowSummary(10.0, writes, (reads, own_writes, commits, store_reads, 9.0), ())


@pytest.mark.parametrize('counted, busy, read, written', [
    (totals(10.0, 5.0, 20.0, 40.0, 7.0), False, 4.0, 2.0),
    (totals(50.0, 5.0, 20.0, 40.0, 30.0), False, 5.0, 3.0),
    (totals(10.0, 25.0, 20.0, 40.0, 7.0), True, 1.0, 2.5),
    # A busy OSD without reads of clients.
    (totals(0.0, 5.0, 20.0, 40.0, 7.0), True, 4.0, 2.0)])
def test_the_operations_per_second(
        counted: WindowSummary, busy: bool, read: float, written: float) -> None:
    assert rates(counted, busy) == (read, written)
