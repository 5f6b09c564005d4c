# SPDX-License-Identifier: LGPL-2.1-or-later
"""The judgement of many OSDs over several turns: as much per turn, and the same in the end."""
from typing import Any, Dict, List, Set

import pytest

from perfguard.cluster.types import OsdPlace
from perfguard.watch import rounds
from perfguard.watch.rounds import PASSES_PER_ROUND, ROUND_SECONDS, Rounds, Work, latest
from perfguard.watch.slow_osds import SlowOsds
from perfguard.watch.stop_conditions import NOTHING, Touched
from perfguard.watch.types import OsdReading

from ..fakes.functions import whole
from .test_report import NO_COUNTERS, Osds
from .test_slow_osds import BEAT, SETTINGS, START, places, sample

OSDS, CHUNK, TURN = 48, 8, 12
#: Turns of a round.
TURNS = OSDS // TURN


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """48 OSDs are as many as 8,000."""
    monkeypatch.setattr(rounds, 'CHUNK_OSDS', CHUNK)
    monkeypatch.setattr(rounds, 'READING_OSDS', TURN)


def test_what_is_derived_from_an_object_is_computed_once() -> None:
    computed: List[int] = []

    @latest
    def total(numbers: List[int]) -> int:
        computed.append(len(numbers))
        return sum(numbers)

    first, second = [1, 2], [1, 2]
    assert total(first) == total(first) == 3 and computed == [2]
    second.append(4)
    assert total(second) == 7 and total(first) == 3 and computed == [2, 3, 2]


def reading(turn: int, where: Dict[int, OsdPlace], slow: Set[int]) -> OsdReading:
    return OsdReading(START + turn * BEAT, [
        sample(osd, read=5.0, write=5.0) if osd in slow and turn > 20 else sample(osd)
        for osd in where], where, {0: 'backfill'} if turn % 30 > 20 else {})


def published(detector: SlowOsds) -> Any:
    """What others read of it."""
    return (dict(detector.verdicts), detector.shared(), detector.class_parts(), detector.any_slow,
            detector.slow_replicas, dict(detector.chronic.standing), detector.stored(),
            [(detector.slowdowns(osd), detector.load_ratio(osd)) for osd in range(OSDS)])


@pytest.mark.usefixtures('large')
@pytest.mark.parametrize('slow', [{7}, {4, 5, 6, 7}, set(range(20))])
def test_a_round_in_steps_concludes_at_its_end_what_one_turn_does(slow: Set[int]) -> None:
    where = places(hosts=12)
    at_once, in_steps = SlowOsds(), SlowOsds()
    steps = 0
    for turn in range(80):
        whole(at_once.round(reading(turn, where, slow), SETTINGS))
        before = published(in_steps)
        for _ in in_steps.round(reading(turn, where, slow), SETTINGS):
            steps += 1
            assert published(in_steps) == before or not turn
        assert published(in_steps) == published(at_once)
    assert at_once.any_slow and steps > 80 * OSDS / CHUNK


def test_a_round_makes_no_more_passes_than_its_turns_are_planned_for() -> None:
    where = places(hosts=12)
    detector = SlowOsds()
    for turn in range(30):
        passes = sum(detector.round(reading(turn, where, {7}), SETTINGS)) / OSDS
    # Three are those of WatchState, and replicated writes make another one of each kind.
    assert PASSES_PER_ROUND / 2 < passes + 3 + 3 <= PASSES_PER_ROUND


@pytest.mark.usefixtures('large')
@pytest.mark.parametrize('turns_per_reading, osds_per_turn', [(1, TURN), (2, CHUNK), (9, CHUNK)])
def test_each_turn_does_its_share(turns_per_reading: int, osds_per_turn: int) -> None:
    done: List[int] = []

    def work() -> Work[None]:
        for _ in range((PASSES_PER_ROUND - 1) * OSDS // CHUNK):
            yield CHUNK
            done.append(CHUNK)

    driver = Rounds()
    for number in range(3):
        assert driver.idle and driver.ended == number
        driver.begin(START, work(), OSDS, turns_per_reading)
        for turn in range(OSDS // osds_per_turn):
            assert not driver.idle
            done.clear()
            driver.advance(START + turn)
            assert sum(done) <= PASSES_PER_ROUND * osds_per_turn + CHUNK


def test_a_round_of_few_osds_ends_in_its_turn() -> None:
    def work() -> Work[None]:
        for _ in range(1000):
            yield rounds.READING_OSDS

    driver = Rounds()
    driver.begin(START, work(), rounds.READING_OSDS)
    driver.advance(START)
    assert driver.idle and driver.ended == 1
    driver.begin(START, work(), rounds.READING_OSDS + 1)
    driver.advance(START)
    assert not driver.idle
    driver.advance(START + ROUND_SECONDS)
    assert driver.idle, 'the loop turns rarely'


@pytest.mark.usefixtures('large')
def test_a_round_ends_with_its_last_reading_though_there_are_fewer_turns_than_expected() -> None:
    steps: List[int] = []

    def work() -> Work[None]:
        for step in range(PASSES_PER_ROUND * OSDS // CHUNK):
            yield CHUNK
            steps.append(step)

    driver = Rounds()
    driver.begin(START, work(), OSDS, turns_per_reading=5)
    driver.advance(START)
    # Each reading is one turn now: as much is done in each.
    done = [len(steps)]
    for reading in range(1, TURNS):
        assert not driver.idle
        driver.note_reading(turns_per_reading=1)
        driver.advance(START + BEAT * reading)
        done.append(len(steps) - sum(done))
    assert done == [CHUNK * PASSES_PER_ROUND // CHUNK - 1, *[
        TURN * PASSES_PER_ROUND // CHUNK] * (TURNS - 1)]
    assert not driver.idle and not driver.ended
    driver.note_reading(turns_per_reading=1)
    assert driver.idle and driver.ended == 1


def test_a_round_that_fails_ends() -> None:
    def work() -> Work[None]:
        yield 1
        raise ValueError('invalid counters')

    driver = Rounds()
    driver.begin(START, work(), OSDS)
    driver.advance(START)
    assert driver.idle and not driver.ended and repr(driver.failure) == repr(
        ValueError('invalid counters'))
    driver.finish()
    driver.begin(START, iter(()), OSDS)  # type: ignore
    assert driver.failure is not None
    driver.advance(START)
    assert driver.ended and driver.failure is None


@pytest.mark.usefixtures('large')
def test_osds_of_a_large_cluster_are_found_a_round_later_at_most() -> None:
    osds = Osds(OSDS)
    osds.run(300)
    before = osds.watch.rounds.ended
    osds.run(200)
    assert osds.watch.rounds.ended - before == 200 / 5 / TURNS
    osds.slow = {9: 6.0}
    osds.run(360)
    assert set(osds.watch.slow_osds()) == {9}
    osds.slow = {}
    osds.run(600)
    assert not osds.watch.slow_osds()


@pytest.mark.usefixtures('large')
def test_operations_of_a_probe_between_two_rounds_do_not_count() -> None:
    osds = Osds(OSDS)
    osds.run(300)
    for turn in range(40):
        probes = turn % TURNS == 1
        osds.probed = Touched({9}, set()) if probes else NOTHING
        osds.slow = {9: 60.0} if probes else {}
        osds.turn()
        assert not osds.watch.slow_osds() and not osds.watch.slow.any_slow
        verdict = osds.watch.slow.verdicts[9]
        assert turn < 2 * TURNS or verdict.score is None


@pytest.mark.usefixtures('large')
def test_an_osd_that_is_replaced_during_a_round_is_forgotten() -> None:
    osds = Osds(OSDS)
    osds.run(300)
    osds.slow = {9: 6.0}
    osds.run(400 + 5)
    assert set(osds.watch.slow_osds()) == {9} and not osds.watch.rounds.idle
    osds.uuids = {9: 'new'}
    osds.counters[9], osds.slow = NO_COUNTERS, {}
    osds.run(60)
    assert not osds.watch.slow_osds() and not osds.watch.slow.any_slow
