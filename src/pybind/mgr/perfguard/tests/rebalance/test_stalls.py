# SPDX-License-Identifier: LGPL-2.1-or-later
"""Interval stalls: measured on a model of clients, budgeted by pool."""
import random
from dataclasses import replace
from typing import Any, Dict, List, Optional, Tuple

import pytest

from perfguard.cluster.types import ClientOps, Ops
from perfguard.observation import Clients, PoolClients
from perfguard.rebalance.stalls import (BATCH_SECONDS, DEFAULT_SECONDS, FAST_SECONDS, SAVED_BATCHES,
                                        IntervalChange, Stalls, affords, batch_pgs, batch_seconds,
                                        credit, mean_stall_ms, measure, note_changes, release_rate,
                                        spend, unsteady)

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
        self.osds_or_crush_changed = self.silent = -60.0

    def hang(self, osd: int, seconds: float) -> None:
        """An OSD hangs, and all its operations with it, while one of its PGs peers."""
        self.stalls = note_changes(self.stalls, [IntervalChange(self.now, 1, (osd,))], self.now,
                                   PERIOD)
        self.late += [(self.now, osd, seconds / 2) for _ in range(int(seconds * self.rate / OSDS))]

    def reading(self, changes: int) -> Clients:
        """One period, with so many PGs that go into another interval."""
        begin, self.now = self.now, self.now + PERIOD
        fresh = [(begin + self.random.random() * PERIOD, self.random.randrange(PG_NUM))
                 for _ in range(changes)]
        self.stalling = [each for each in self.stalling + fresh if each[0] > begin - 10.0]
        self.stalls = note_changes(self.stalls, [
            IntervalChange(at, 1, (pg % OSDS,)) for at, pg in fresh], self.now, PERIOD)
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
        self.stalls = measure(self.stalls, clients, self.osds_or_crush_changed)
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


@pytest.mark.parametrize('notice', ['osds_or_crush_changed', 'silent'])
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
    model.stalls = note_changes(model.stalls, [IntervalChange(model.now, 1, (3,))], model.now,
                                PERIOD)
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
    model.stalls = note_changes(model.stalls, everywhere, 1.0, PERIOD)
    model.reading(0)
    assert model.stalls.rates == 0.0 and model.stalls.excess == 0.0


def test_with_all_osds_shaky_the_baseline_tells_what_is_usual() -> None:
    model = Model(800.0, 1.0)
    model.usual_ms = 1.0
    for _ in range(30):
        everywhere = [IntervalChange(model.now, 9, tuple(range(OSDS)))]
        model.stalls = note_changes(model.stalls, everywhere, model.now, PERIOD)
        model.reading(2)
    assert model.stalls.seconds == pytest.approx(1.0, rel=0.25)


def test_osds_are_unsteady_for_a_while() -> None:
    stalls = note_changes(Stalls(), [IntervalChange(10.0, 1, (3, 4))], 10.0, PERIOD)
    pools = {1: PoolClients('rbd', 8, 1.0)}
    assert unsteady(stalls, Clients(12.0, 5.0, (), pools)) == {3, 4}
    assert unsteady(stalls, Clients(20.0, 5.0, (), pools)) == {3, 4}
    assert unsteady(stalls, Clients(21.0, 5.0, (), pools)) == frozenset()
    assert note_changes(stalls, [], 40.0, PERIOD).changes == ()


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


# ---- The measurement, to the digit

#: One PG of osd.0 went into another interval.
CHANGED = Stalls(changes=(IntervalChange(97.0, 1, (0,)),))


def ops(number: int, ms: float) -> Ops:
    return Ops(int(number * ms * 1e6), number)


#: 50 reads of osd.0 took 3 ms each, and 50 of osd.1 took 1 ms: 20 reads/s, and 0.1 s too much.
READS = (ClientOps(1, 0, ops(50, 3.0), Ops()), ClientOps(1, 1, ops(50, 1.0), Ops()))


def read(rows: Tuple[ClientOps, ...] = READS, pg_num: int = 1, **pool: Any) -> Clients:
    """A reading of the seconds 95 to 100."""
    return Clients(100.0, 5.0, rows, {1: PoolClients('rbd', pg_num, 20.0, **pool)})


def sums(stalls: Stalls) -> Any:
    return pytest.approx((stalls.excess, stalls.rates, stalls.seconds), rel=1e-9)


@pytest.mark.parametrize('clients, excess, seconds', [
    (read(), 0.1, 0.1),
    # The baseline if that is lower: a slow OSD among the others must not hide a stall.
    (read(read_baseline_ms=0.5), 0.125, 0.0125 ** 0.5),
    (read(read_baseline_ms=2.0), 0.1, 0.1),
    # Too few operations of other OSDs: only the baseline.
    (read((READS[0], ClientOps(1, 1, ops(49, 1.0), Ops()), ClientOps(1, 0, ops(1, 3.0), Ops())),
          read_baseline_ms=2.0), 0.051, 0.0051 ** 0.5),
    # Reads and writes are compared with their like.
    (read((ClientOps(1, 0, ops(50, 3.0), ops(50, 9.0)), ClientOps(1, 1, ops(50, 1.0), ops(50, 5.0)))
          ), 0.3, 0.015 ** 0.5),
    (read((ClientOps(1, 0, ops(1, 3.0), ops(99, 9.0)),), read_baseline_ms=1.0,
          write_baseline_ms=5.0), 0.398, 0.0398 ** 0.5),
    # No stall makes operations faster.
    (read((READS[1]._replace(osd=0), READS[0]._replace(osd=1))), -0.1, 0.0),
    # Counters that make no sense, and those of other pools, do not count.
    (read((*READS, ClientOps(1, 2, Ops(-5, 9), Ops()), ClientOps(1, 3, Ops(), Ops(5, 0)),
           ClientOps(2, 0, ops(999, 9.0), Ops()))), 0.1, 0.1)])
def test_operations_of_changed_pgs_are_compared_with_others(clients: Clients, excess: float,
                                                            seconds: float) -> None:
    measured = measure(CHANGED, clients, 0.0)
    assert measured.measured == 100.0
    number = sum(row.read[1] + row.write[1] for row in clients.rows if row.pool == 1 and row.sane)
    assert (excess, number / 5.0, seconds) == sums(measured)


@pytest.mark.parametrize('rows, pool', [
    (READS[:1], {}),
    ((ClientOps(1, 0, ops(50, 3.0), ops(1, 9.0)), READS[1]), {'read_baseline_ms': 1.0}),
    ((READS[0], ClientOps(1, 1, ops(49, 1.0), Ops())), {'write_baseline_ms': 1.0})])
def test_without_operations_to_compare_with_nothing_is_measured(rows: Any, pool: Any) -> None:
    clients = read(rows, **pool)
    assert measure(CHANGED, clients, 0.0) == replace(CHANGED, measured=100.0)
    # Other pools are measured all the same.
    other = tuple(row._replace(pool=2) for row in READS)
    both = replace(clients, rows=(*clients.rows, *other), pools={
        **clients.pools, 2: PoolClients('other', 1, 20.0)})
    stalls = replace(CHANGED, changes=(*CHANGED.changes, IntervalChange(97.0, 2, (0,))))
    assert (0.1, 20.0, 0.1) == sums(measure(stalls, both, 0.0))


@pytest.mark.parametrize('time, excess, rates', [
    (89.9, 0.9, 18.0), (90.0, 1.0, 18.0), (94.9, 1.0, 18.0), (95.0, 1.0, 38.0),
    (99.9, 1.0, 38.0)])
def test_a_change_counts_in_its_reading_and_its_aftermath(time: float, excess: float,
                                                          rates: float) -> None:
    """Earlier readings lose a tenth of their weight."""
    before = Stalls(changes=(IntervalChange(time, 1, (0,)),), excess=1.0, rates=20.0, seconds=9.0)
    measured = measure(before, read(), 0.0)
    assert (excess, rates, (2.0 * excess / rates) ** 0.5) == sums(measured)


@pytest.mark.parametrize('change', [
    IntervalChange(97.0, 2, (0,)), IntervalChange(100.0, 1, (0,))])
def test_changes_of_other_pools_and_after_the_reading_do_not_count(change: IntervalChange) -> None:
    stalls = Stalls(changes=(change,), excess=1.0, rates=20.0)
    assert measure(stalls, read(), 0.0) == replace(stalls, measured=100.0)


@pytest.mark.parametrize('changed, silent, counts', [
    (89.9, 0.0, True), (90.0, 0.0, False), (0.0, 89.9, True), (0.0, 90.0, False)])
def test_a_reading_soon_after_a_failure_does_not_count(changed: float, silent: float,
                                                       counts: bool) -> None:
    measured = measure(CHANGED, replace(read(), silent=silent), changed)
    assert measured.measured == 100.0 and (measured.rates == 20.0) == counts


@pytest.mark.parametrize('ms, rates', [(21.0, 0.02), (21.1, 0.0)])
def test_no_operation_waits_longer_than_its_pg_peers(ms: float, rates: float) -> None:
    """If one of 1000 PGs stalls all the 10 s, 0.02 operations/s wait 5 s each."""
    rows = (ClientOps(1, 0, ops(50, ms), Ops()), READS[1])
    measured = measure(CHANGED, read(rows, pg_num=1000), 0.0)
    assert measured.measured == 100.0 and measured.rates == pytest.approx(rates)


@pytest.mark.parametrize('ms, before, excess, seconds', [
    (1801.0, None, 57.6, 2.4), (1801.0, 0.2, 0.9, 0.3), (1801.0, 0.1, 0.625, 0.25),
    (1801.0, 2.0, 90.0, 3.0)])
def test_one_reading_raises_a_stall_by_half(ms: float, before: Optional[float], excess: float,
                                            seconds: float) -> None:
    """Operations that wait 1.8 s on average are 3 s of stall."""
    rows = (ClientOps(1, 0, ops(50, ms), Ops()), READS[1])
    measured = measure(replace(CHANGED, seconds=before), read(rows), 0.0)
    assert (excess, 20.0, seconds) == sums(measured)


@pytest.mark.parametrize('slow, ms, seconds', [
    # 20 operations/s for at least 0.25 s are five.
    (50, 1.0, 0.0), (49, 1.0, None),
    # 2.2 operations/s are as many if they stall for 2.3 s.
    (5, 1101.0, None), (5, 1151.0, (11.5 / 2.2) ** 0.5)])
def test_five_stalled_operations_are_evidence(slow: int, ms: float,
                                              seconds: Optional[float]) -> None:
    steady = ClientOps(1, 1, ops(50, 1.0), Ops())
    pg_num = 1 if ms == 1.0 else 5
    clients = read((ClientOps(1, 0, ops(slow, ms), Ops()), steady), pg_num)
    assert measure(CHANGED, clients, 0.0).seconds == pytest.approx(seconds)


@pytest.mark.parametrize('now, kept', [(25.0, True), (25.1, False)])
def test_changes_are_kept_for_two_readings_and_their_aftermath(now: float, kept: bool) -> None:
    stalls = note_changes(Stalls(), [IntervalChange(10.0, 1, (3, 4))], 10.0, PERIOD)
    assert bool(note_changes(stalls, [], now, PERIOD).changes) == kept


# ---- The budget, to the digit

@pytest.mark.parametrize('seconds, fast, rate, stall_ms', [
    (None, False, 0.12, 2.4), (None, True, 0.768, 0.375), (1.0, True, 0.192, 1.5),
    # No interval change is shorter than the shortest proposal interval.
    (0.0, False, 9.6, 0.03)])
def test_what_the_share_allows(seconds: Optional[float], fast: bool, rate: float,
                               stall_ms: float) -> None:
    stalls = Stalls(seconds=seconds)
    assert release_rate(stalls, 128, 0.003, fast) == pytest.approx(rate)
    assert mean_stall_ms(stalls, 0.003, fast) == pytest.approx(stall_ms)


@pytest.mark.parametrize('commit_seconds, seconds, pgs', [
    (0.0, 5.0, 8), (1.0, 5.0, 8), (2.0, 10.0, 16), (12.0, 60.0, 96), (13.0, 60.0, 96)])
def test_slow_mons_get_larger_batches_less_often(commit_seconds: float, seconds: float,
                                                 pgs: int) -> None:
    assert batch_seconds(commit_seconds) == pytest.approx(seconds)
    assert batch_pgs(commit_seconds) == pgs


@pytest.mark.parametrize('credits, now, commit_seconds, expected', [
    ({1: 0.5}, 104.0, 0.0, 4.5), ({}, 104.0, 0.0, 5.0),
    # At most what 8 s give, more for slow mons, and the fraction of a release.
    ({1: 5.0}, 108.0, 0.0, 9.0), ({1: 5.0}, 108.0, 2.0, 13.0),
    # A long turn counts in full, a rest like a pause between batches.
    ({1: 0.5}, 160.0, 0.0, 60.5), ({1: 0.5}, 160.5, 0.0, 8.5)])
def test_the_budget_grows_with_time(credits: Dict[int, float], now: float, commit_seconds: float,
                                    expected: float) -> None:
    """128 PGs, of whose time a 64th may be spent in two stalls of 1 s for each release: 1/s."""
    clients = Clients(1.0, 5.0, (), {1: PoolClients('rbd', 128, 9.0)}, 60.0)
    stalls = Stalls(seconds=1.0, credited=100.0, credits=credits)
    credited = credit(stalls, clients, now, 1 / 64, False, commit_seconds)
    assert credited.credits == pytest.approx({1: expected}) and credited.credited == now


def test_a_release_costs_one_and_more_if_it_is_not_primed() -> None:
    stalls = Stalls(credits={1: 2.5, 2: 7.0})
    assert spend(stalls, 1).credits == {1: 1.5, 2: 7.0}
    assert spend(stalls, 1, primed=False).credits == {1: 1.0, 2: 7.0}
    assert spend(stalls, 3) == stalls
    assert [affords(Stalls(credits={1: credit_left}), 1) for credit_left in (1.0, 0.99)] == [
        True, False]
    assert affords(stalls, 3), 'nothing limits releases in a pool without clients'
