# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which reads of slow OSDs depend on the primary of a PG."""
from typing import Dict, FrozenSet, Set

import pytest

from perfguard.cluster.types import MOST_READ_OSDS, PgReads
from perfguard.watch.osds import (LEAST_READINGS, MOST_TURNS, REPEAT_TURNS, SUMMED_READINGS,
                                  OsdReads, SlowOsdReads)

LED, REPLICA = PgReads('1.a', (3, 1, 2), 10), PgReads('1.b', (1, 3, 2), 20)
CODED, CODED_ELSEWHERE = PgReads('2.a', (3, 1, 2), 40), PgReads('2.b', (1, 3, 2), 80)
ROWS = (LED, REPLICA, CODED, CODED_ELSEWHERE)
SUM = OsdReads(10, 20, 120)


def times(number: int) -> OsdReads:
    return OsdReads(*(number * value for value in SUM))


def test_reads_by_kind() -> None:
    reads = SlowOsdReads()
    for number in range(1, 10):
        reads.update([3], {3: ROWS}, {2})
        expected = {} if number < LEAST_READINGS else {3: times(min(number, SUMMED_READINGS))}
        assert reads.sums_by_osd() == expected and reads.osds_to_read == {3}


def test_an_osd_that_is_no_longer_slow_is_forgotten() -> None:
    reads = SlowOsdReads()
    for _ in range(LEAST_READINGS):
        reads.update([3, 4], {3: ROWS, 4: ()}, {2})
    assert reads.sums_by_osd() == {3: times(LEAST_READINGS), 4: OsdReads()}
    reads.update([4], {3: ROWS, 4: (), 5: ROWS}, {2})
    assert reads.sums_by_osd() == {4: OsdReads()} and reads.osds_to_read == {4}
    reads.update([3, 4], {3: ROWS, 4: ()}, {2})
    assert reads.sums_by_osd().keys() == {4}


def test_an_osd_without_an_acting_set_leads_nothing() -> None:
    reads = SlowOsdReads()
    for _ in range(LEAST_READINGS):
        reads.update([3], {3: (PgReads('1.a', (), 5),)}, set())
    assert reads.sums_by_osd() == {3: OsdReads(0, 5 * LEAST_READINGS, 0)}


def test_reads_that_cannot_be_read_are_not_waited_for() -> None:
    reads = SlowOsdReads()
    for turn in range(1, MOST_TURNS + 1):
        reads.update([3], None, set())
        assert reads.sums_by_osd() == ({} if turn < MOST_TURNS else {3: OsdReads()})


@pytest.mark.parametrize('number', [MOST_READ_OSDS + 8, 10 * MOST_READ_OSDS])
def test_many_slow_osds_are_read_in_turn(number: int) -> None:
    """Readings begin one turn after a change of the OSDs to read."""
    reads, slow = SlowOsdReads(), range(100, 100 + number)
    asked: Set[int] = set()
    asked_before: FrozenSet[int] = frozenset()
    for turn in range(REPEAT_TURNS):
        to_read = reads.osds_to_read
        assert len(to_read) <= MOST_READ_OSDS
        asked |= to_read
        answers = {osd: (PgReads('2.1', (osd, 1), 500),) for osd in to_read} \
            if to_read == asked_before else None
        # One of the others recovers, and is slow again.
        reads.update([osd for osd in slow if turn != 5 or osd != 101], answers, {2})
        known, asked_before = reads.sums_by_osd(), frozenset(to_read)
        assert known.keys() <= asked and all(row.erasure > 0 for row in known.values())
    assert reads.sums_by_osd().keys() == set(slow)


def test_reads_of_many_slow_osds_are_repeated() -> None:
    """Those that were never read precede."""
    reads, slow = SlowOsdReads(), range(1500)
    turns: Dict[int, int] = dict.fromkeys(slow, 0)
    for _ in range(2 * REPEAT_TURNS):
        reads.update(slow, None, set())
        for osd in reads.osds_to_read:
            turns[osd] += 1
    assert min(turns.values()) >= MOST_TURNS - 1


def test_an_osd_that_stays_slow_is_rarely_read() -> None:
    reads, wanted = SlowOsdReads(), 0
    for turn in range(3 * REPEAT_TURNS):
        reads.update([3], {3: ROWS} if reads.osds_to_read else None, {2})
        wanted += bool(reads.osds_to_read)
        assert turn < LEAST_READINGS or reads.sums_by_osd() != {}
    assert wanted == 3 * MOST_TURNS
