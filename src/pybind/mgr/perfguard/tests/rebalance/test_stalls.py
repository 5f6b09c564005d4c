# SPDX-License-Identifier: LGPL-2.1-or-later
"""Interval stalls: measured on a model of clients, budgeted by pool."""
import random
from typing import Dict, List, Optional, Tuple

import pytest

from perfguard.cluster.types import ClientOps, Ops
from perfguard.observation import Clients, PoolClients
from perfguard.rebalance.stalls import (BATCH_SECONDS, DEFAULT_SECONDS, FAST_SECONDS, SAVED_BATCHES,
                                        IntervalChange, Stalls, credit, measure, note,
                                        release_rate, spend,
                                        unsteady)

PG_NUM, OSDS, PERIOD = 64, 16, 5.0


class Model:
    """An open loop of clients on PGs, some of which stall for a while when they are released."""

    def __init__(self, rate: float, stall: float, seed: int = 1) -> None:
        self.rate, self.stall = rate, stall
        self.random = random.Random(seed)
        self.now = 0.0
        self.usual_ms: Optional[float] = None
        self.stalls = Stalls()
        #: (begin of the stall, PG)
        self.stalling: List[Tuple[float, int]] = []
        self.late: List[Tuple[float, int, float]] = []
        self.osds_changed = self.silent = -60.0

    def hang(self, osd: int, seconds: float) -> None:
        """An OSD hangs, and all its operations with it, while one of its PGs peers."""
        self.stalls = note(self.stalls, [IntervalChange(self.now, 1, (osd,))], self.now, PERIOD)
        self.late += [(self.now, osd, seconds / 2) for _ in range(int(seconds * self.rate / OSDS))]

    def reading(self, changes: int) -> Clients:
        """One period, with so many PGs that go into another interval."""
        begin, self.now = self.now, self.now + PERIOD
        fresh = [(begin + self.random.random() * PERIOD, self.random.randrange(PG_NUM))
                 for _ in range(changes)]
        self.stalling = [each for each in self.stalling + fresh if each[0] > begin - 10.0]
        self.stalls = note(self.stalls, [IntervalChange(at, 1, (pg % OSDS,)) for at, pg in fresh],
                           self.now, PERIOD)
        sums: Dict[int, List[int]] = {osd: [0, 0] for osd in range(OSDS)}
        for end, osd, seconds in self._operations(begin):
            self.late.append((end, osd, seconds))
        done = [each for each in self.late if each[0] < self.now]
        self.late = [each for each in self.late if each[0] >= self.now]
        for _, osd, seconds in done:
            sums[osd][0] += int(seconds * 1e9)
            sums[osd][1] += 1
        rows = tuple(ClientOps(1, osd, Ops(*pair), Ops()) for osd, pair in sums.items())
        clients = Clients(self.now, PERIOD, rows, {
            1: PoolClients('rbd', PG_NUM, self.rate, read_baseline_ms=self.usual_ms)},
            silent=self.silent)
        self.stalls = measure(self.stalls, clients, self.osds_changed)
        return clients

    def _operations(self, begin: float) -> List[Tuple[float, int, float]]:
        found = []
        for _ in range(int(self.rate * PERIOD)):
            at, pg = begin + self.random.random() * PERIOD, self.random.randrange(PG_NUM)
            seconds = self.random.expovariate(1000.0)
            for start, stalled in self.stalling:
                if stalled == pg and start <= at < start + self.stall:
                    seconds += start + self.stall - at
            found.append((at + seconds, pg % OSDS, seconds))
        return found


@pytest.mark.parametrize('stall', [0.3, 1.0, 3.0])
def test_the_stall_is_measured(stall: float) -> None:
    model = Model(800.0, stall)
    for _ in range(24):
        model.reading(changes=2)
    assert model.stalls.seconds == pytest.approx(stall, rel=0.25)


def test_releases_that_no_client_feels_measure_as_next_to_nothing() -> None:
    model = Model(800.0, 0.0)
    for _ in range(40):
        model.reading(changes=2)
    assert model.stalls.seconds is not None and model.stalls.seconds < 0.1


def test_few_operations_measure_nothing() -> None:
    model = Model(4.0, 1.0)
    for _ in range(20):
        model.reading(changes=1)
    assert model.stalls.seconds is None


def test_what_was_measured_stays_known_when_releases_rest() -> None:
    model = Model(800.0, 1.0)
    for _ in range(24):
        model.reading(changes=2)
    for _ in range(100):
        model.reading(changes=0)
    assert model.stalls.seconds == pytest.approx(1.0, rel=0.4)


@pytest.mark.parametrize('notice', ['osds_changed', 'silent'])
def test_operations_that_wait_for_an_osd_that_fails_are_no_stall_of_a_release(notice: str) -> None:
    """It goes down, or it hangs and stays up: then its reports stop before its operations end."""
    model = Model(800.0, 0.3)
    for _ in range(24):
        model.reading(changes=2)
    before = model.stalls.seconds
    setattr(model, notice, model.now)
    model.hang(3, 20.0)
    for _ in range(2):
        model.reading(changes=0)
    assert model.stalls.seconds == before
    for _ in range(10):
        model.reading(changes=2)
    assert model.stalls.seconds == pytest.approx(0.3, rel=0.25)


@pytest.mark.parametrize('rate', [100.0, 800.0])
@pytest.mark.parametrize('seconds', [3.0, 4.0, 6.0, 9.0])
def test_an_osd_that_hangs_for_less_time_than_its_reports_take_hardly_counts(
        rate: float, seconds: float) -> None:
    """Nothing shows that it hung: releases may be slower for a while, but not by much."""
    model = Model(rate, 0.3)
    for _ in range(24):
        model.reading(changes=2)
    before = model.stalls.seconds
    assert before is not None
    model.hang(3, seconds)
    for number in range(42):
        model.reading(changes=2 if number > 1 else 0)
        assert model.stalls.seconds is not None and model.stalls.seconds < 1.6 * before
    assert model.stalls.seconds == pytest.approx(0.3, rel=0.35)


@pytest.mark.parametrize('rate', [100.0, 800.0])
@pytest.mark.parametrize('before', [0.05, 0.3])
def test_stalls_that_become_longer_are_measured_within_a_minute(rate: float,
                                                                before: float) -> None:
    """The mons become slow, or shortened intervals of theirs end."""
    model = Model(rate, before)
    for _ in range(24):
        model.reading(changes=2)
    model.stall = 1.6
    for _ in range(int(60.0 / PERIOD)):
        model.reading(changes=2)
    assert model.stalls.seconds is not None and model.stalls.seconds > 0.65 * model.stall


def test_a_stall_that_becomes_longer_while_clients_are_quiet_is_measured() -> None:
    """Few operations are enough evidence of a long stall."""
    model = Model(800.0, 0.05)
    for _ in range(24):
        model.reading(changes=2)
    model.rate, model.stall = 45.0, 1.6
    for _ in range(60):
        model.reading(changes=0)
    for _ in range(60):
        model.reading(changes=2)
    assert model.stalls.seconds is not None and model.stalls.seconds > 0.65 * model.stall


@pytest.mark.parametrize('rate', [100.0, 800.0])
def test_operations_under_which_a_clock_was_set_ahead_are_no_stall_of_a_release(
        rate: float) -> None:
    model = Model(rate, 0.3)
    for _ in range(24):
        model.reading(changes=2)
    before = model.stalls.seconds
    model.stalls = note(model.stalls, [IntervalChange(model.now, 1, (3,))], model.now, PERIOD)
    model.late += [(model.now, 3, 3600.0)] * 3
    model.reading(changes=2)
    assert model.stalls.seconds == before
    for _ in range(10):
        model.reading(changes=2)
    assert model.stalls.seconds == pytest.approx(0.3, rel=0.35)


def test_a_reading_counts_once_and_none_does_not() -> None:
    model = Model(800.0, 1.0)
    clients = model.reading(2)
    assert measure(model.stalls, clients, -60.0) == model.stalls
    assert measure(Stalls(), Clients(), -60.0) == Stalls()


def test_with_all_osds_shaky_nothing_is_learned() -> None:
    model = Model(800.0, 1.0)
    everywhere = [IntervalChange(1.0, 1, tuple(range(OSDS)))]
    model.stalls = note(model.stalls, everywhere, 1.0, PERIOD)
    model.reading(0)
    assert model.stalls.rates == 0.0 and model.stalls.excess == 0.0


def test_with_all_osds_shaky_the_baseline_tells_what_is_usual() -> None:
    model = Model(800.0, 1.0)
    model.usual_ms = 1.0
    for _ in range(30):
        everywhere = [IntervalChange(model.now, 9, tuple(range(OSDS)))]
        model.stalls = note(model.stalls, everywhere, model.now, PERIOD)
        model.reading(2)
    assert model.stalls.seconds == pytest.approx(1.0, rel=0.25)


def test_osds_are_unsteady_for_a_while() -> None:
    stalls = note(Stalls(), [IntervalChange(10.0, 1, (3, 4))], 10.0, PERIOD)
    pools = {1: PoolClients('rbd', 8, 1.0)}
    assert unsteady(stalls, Clients(12.0, 5.0, (), pools)) == {3, 4}
    assert unsteady(stalls, Clients(20.0, 5.0, (), pools)) == {3, 4}
    assert unsteady(stalls, Clients(21.0, 5.0, (), pools)) == frozenset()
    assert note(stalls, [], 40.0, PERIOD).changes == ()


def test_the_rate_keeps_to_the_share() -> None:
    share = 0.003
    for fast, seconds in ((True, FAST_SECONDS), (False, DEFAULT_SECONDS)):
        rate = release_rate(Stalls(), 128, share, fast)
        assert rate * 2 * seconds / 128 == pytest.approx(share)
    assert release_rate(Stalls(seconds=1.0), 128, share, True) == pytest.approx(share * 128 / 2.0)


def spent(rate: float, seconds: float, step: float, pg_num: int = 128,
          primed: bool = True) -> int:
    """Releases that the budget of a pool allows in so many seconds."""
    clients = Clients(1.0, 5.0, (), {1: PoolClients('rbd', pg_num, rate)}, 60.0)
    stalls, now, count = Stalls(credited=0.0), 0.0, 0
    while now < seconds:
        now += step
        stalls = credit(stalls, clients, now, 0.003, True)
        while stalls.credits.get(1, 1.0) >= 1.0:
            count += 1
            stalls = spend(stalls, 1, primed)
            if not stalls.credits:
                return 10 ** 9
    return count


@pytest.mark.parametrize('step', [0.2, 1.0, 10.0])
def test_credit_gives_the_rate_and_no_large_bursts(step: float) -> None:
    rate = release_rate(Stalls(), 128, 0.003, True)
    assert spent(100.0, 200.0, step) == pytest.approx(200.0 * rate, abs=8)


def test_a_release_without_a_primed_pg_temp_takes_its_pg_through_one_interval_more() -> None:
    rate = release_rate(Stalls(), 128, 0.003, True)
    assert spent(100.0, 200.0, 1.0, primed=False) == pytest.approx(200.0 * rate * 2 / 3, abs=8)


def test_rest_saves_up_no_more_than_a_moment() -> None:
    clients = Clients(1.0, 5.0, (), {1: PoolClients('rbd', 128, 9.0)}, 60.0)
    stalls = credit(Stalls(), clients, 1e6, 0.003, True)
    rate = release_rate(Stalls(), 128, 0.003, True)
    assert stalls.credits[1] <= 1.0 + SAVED_BATCHES * BATCH_SECONDS * rate


def test_pools_without_clients_have_no_budget_to_keep() -> None:
    assert spent(0.1, 1.0, 1.0) == 10 ** 9
    unseen = Clients(1.0, 5.0, (), {1: PoolClients('rbd', 128, 0.0)})
    assert 1 in credit(Stalls(), unseen, 1.0, 0.003, True).credits, 'silent, or not seen yet'
