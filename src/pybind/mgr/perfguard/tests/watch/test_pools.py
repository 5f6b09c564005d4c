# SPDX-License-Identifier: LGPL-2.1-or-later
"""What clients of each pool feel, against what they usually feel."""
import itertools
import json
import random
from dataclasses import replace
from typing import Any, List, Optional, Sequence, Tuple

import pytest

from perfguard.cluster.types import ClientOps, Ops
from perfguard.codec import encode
from perfguard.observation import Minute
from perfguard.options import DEFAULTS
from perfguard.watch.load import Rates
from perfguard.watch.pools import (BASELINE_POINTS, OpSpread, PoolPerformance, PoolSettings,
                                   PoolWatch, RaisedAlarm, STORED_POINTS, StoredPool, ops_by_pool,
                                   target_ms)
from perfguard.watch.series import HistoryPoint, mean_flow
from perfguard.watch.types import Flow

from ..test_codec import again

MS = 1000000
SETTINGS = PoolSettings(alarm_factor=3.0, baseline_seconds=60.0)
POOL = 7
NAN = float('nan')


def ops(number: int, ms: float) -> Ops:
    return Ops(int(number * ms * MS), number)


class Clients:
    """Feeds one pool every five seconds."""

    def __init__(self, settings: PoolSettings = SETTINGS) -> None:
        self.watch = PoolWatch()
        self.settings = settings
        self.now = 1e9
        self.pools: Sequence[int] = (POOL,)
        self.probed: Sequence[int] = ()

    def rows(self, seconds: float, rows: Sequence[ClientOps], quiet: bool = True) -> None:
        for _ in range(int(seconds / 5)):
            self.now += 5.0
            self.watch.update(self.now, 5.0, ops_by_pool(rows),
                              {pool: None for pool in self.pools}, quiet, self.settings,
                              self.probed)

    def feel(self, seconds: float, read_ms: Optional[float] = None,
             write_ms: Optional[float] = None, quiet: bool = True, number: int = 100) -> None:
        """`number` operations of each kind that has a latency, in each reading."""
        read = Ops() if read_ms is None else ops(number, read_ms)
        write = Ops() if write_ms is None else ops(number, write_ms)
        self.rows(seconds, [ClientOps(POOL, 1, read, write)], quiet)

    @property
    def slow(self) -> List[str]:
        return [kind for pool, kind, _ in self.watch.slow()]

    @property
    def latency(self) -> PoolPerformance:
        return self.watch.latency(POOL)


# ---- present latency

def test_latency_is_the_mean_of_the_last_minute() -> None:
    clients = Clients()
    clients.feel(60, read_ms=9.0)
    clients.feel(30, read_ms=1.0)
    clients.feel(30, read_ms=3.0, write_ms=5.0)
    assert clients.latency.read == Flow(20.0, 2.0)
    assert clients.latency.write == Flow(10.0, 5.0)


def test_several_parts_of_a_turn_share_one_computation() -> None:
    """There may be 1,000 pools, and four parts ask for each."""
    clients = Clients()
    clients.feel(60, read_ms=9.0)
    first = clients.latency
    assert clients.latency is first
    clients.feel(60, read_ms=1.0)
    assert clients.latency.read.ms == 1.0
    clients.watch.load_provisional({POOL: {'writes': 3.0}}, SETTINGS)
    assert clients.latency.write_baseline_ms == 3.0
    clients.pools = ()
    clients.rows(5, [])
    assert clients.latency.read_baseline_ms is None


def test_osds_of_a_pool_are_summed_up() -> None:
    clients = Clients()
    clients.rows(5, [ClientOps(POOL, 1, ops(10, 1.0), Ops()),
                     ClientOps(POOL, 2, ops(30, 2.0), Ops()),
                     ClientOps(8, 2, ops(50, 100.0), Ops())])
    assert clients.latency.read == Flow(8.0, 1.75)


def test_an_unknown_pool_has_neither_latency_nor_history() -> None:
    assert PoolWatch().latency(3) == PoolPerformance(3, Flow(), Flow(), None, None)
    assert PoolWatch().history(3) is None


def test_expected_latency_of_the_mix_that_there_is_now() -> None:
    def expected(read: float, write: float, read_ms: Optional[float],
                 write_ms: Optional[float]) -> Optional[float]:
        return PoolPerformance(1, Flow(read, 9.0), Flow(write, 9.0), read_ms, write_ms).baseline_ms
    assert expected(30.0, 10.0, 1.0, 5.0) == 2.0
    assert expected(30.0, 10.0, None, 5.0) == 5.0
    assert expected(0.0, 0.0, 1.0, 5.0) == 5.0
    assert expected(30.0, 10.0, None, None) is None
    assert expected(0.0, 10.0, 1.0, None) == 1.0


# ---- baseline

def test_the_baseline_is_learned_while_it_is_quiet() -> None:
    clients = Clients()
    clients.feel(15, read_ms=1.0)
    assert clients.latency.read_baseline_ms is None
    clients.feel(300, read_ms=50.0, quiet=False)
    assert clients.latency.read_baseline_ms is None
    clients.feel(45, read_ms=1.0)
    assert clients.latency.read_baseline_ms == 1.0
    assert clients.latency.write_baseline_ms is None


def test_some_seconds_of_quiet_give_a_provisional_baseline() -> None:
    clients = Clients(PoolSettings(alarm_factor=3.0, baseline_seconds=600.0))
    clients.feel(15, read_ms=1.0)
    clients.feel(300)
    assert clients.latency.read_baseline_ms is None, 'the pool was idle'
    clients.feel(10, read_ms=7.0)
    assert clients.latency.read_baseline_ms == 1.0, 'a median: a stall counts little'
    clients.feel(1800, read_ms=2.0)
    assert clients.latency.read_baseline_ms == 2.0
    assert clients.latency.write_baseline_ms is None


@pytest.mark.parametrize('quiet_ms, ms, number, baseline', [
    (50.0, 1.0, 100, 1.0),
    (1.0, 50.0, 100, 1.0),      # the movement, or the load
    (50.0, 1.0, 5, 50.0)])      # too few operations
def test_lower_latency_while_data_moves_lowers_a_provisional_baseline(
        quiet_ms: float, ms: float, number: int, baseline: float) -> None:
    clients = Clients(PoolSettings(alarm_factor=3.0, baseline_seconds=600.0))
    clients.feel(20, read_ms=quiet_ms)
    clients.feel(590, read_ms=ms, quiet=False, number=number)
    assert clients.latency.read_baseline_ms == quiet_ms
    clients.feel(10, read_ms=ms, quiet=False, number=number)
    assert clients.latency.read_baseline_ms == baseline
    clients.feel(600, read_ms=2 * ms, quiet=False, number=number)
    assert clients.latency.read_baseline_ms == baseline
    clients.feel(1800, read_ms=3.0)
    assert clients.latency.read_baseline_ms == pytest.approx(3.0, rel=0.05)


def test_readings_are_not_kept_once_they_are_part_of_a_baseline() -> None:
    clients = Clients()
    clients.feel(50, write_ms=1.0)
    pool = clients.watch._pools[POOL]
    assert len(pool._first_readings) == 10
    clients.feel(65, write_ms=1.0)
    assert not pool._first_readings and clients.latency.write_baseline_ms == 1.0


def test_a_provisional_baseline_raises_no_alarm() -> None:
    clients = Clients(PoolSettings(alarm_factor=3.0, baseline_seconds=600.0))
    clients.feel(60, read_ms=1.0)
    clients.feel(300, read_ms=50.0, quiet=False)
    assert clients.latency.read_baseline_ms == 1.0 and clients.slow == []
    assert not clients.watch.read_baselines()


def test_a_few_operations_make_no_baseline() -> None:
    clients = Clients()
    clients.feel(60, read_ms=1.0, number=8)
    assert clients.latency.read_baseline_ms is None


@pytest.mark.parametrize('number', [10, 100, 5000])
def test_the_baseline_is_a_low_quantile_of_the_time(number: int) -> None:
    """However many operations the slower times have."""
    clients = Clients()
    for ms in (1.0, 2.9, 2.0, 1.5, 1.8):
        clients.feel(60, read_ms=ms, number=number if ms > 1.9 else 100)
    assert clients.latency.read_baseline_ms == 1.5


def test_times_with_few_operations_are_taken_together() -> None:
    clients = Clients()
    for ms in (1.0, 3.0) * 12:
        clients.feel(60, read_ms=ms, number=4)
    assert clients.latency.read_baseline_ms == pytest.approx(1.8, rel=0.15)


def test_another_length_of_the_points_holds_at_once() -> None:
    clients = Clients()
    clients.feel(30, read_ms=1.0)
    clients.settings = PoolSettings(3.0, baseline_seconds=10.0)
    clients.feel(5, read_ms=1.0)
    assert clients.latency.read_baseline_ms == 1.0


def test_the_last_minute_is_a_median() -> None:
    clients = Clients()
    clients.feel(60, read_ms=9.0, number=3)
    clients.feel(40, read_ms=1.0, number=3)
    clients.feel(5)
    clients.feel(15, read_ms=900.0, number=3)
    assert clients.latency.read_minute == Minute(33, 1.0)
    assert clients.latency.write_minute == Minute()


BATCH = PoolSettings(3.0, baseline_seconds=600.0)


def played(*days: Sequence[Tuple[float, int, float]], quiet: bool = True) -> Tuple[Clients, int]:
    """(hours, operations per second, ms) of each day; with the number of alarms. `quiet`: after the
    first one."""
    clients, raised, was = Clients(BATCH), 0, False
    for hours, rate, ms in itertools.chain(*days):
        for _ in range(int(hours * 60)):
            clients.now += 60.0
            clients.watch.update(
                clients.now, 60.0, ops_by_pool([ClientOps(POOL, 1, ops(60 * rate, ms), Ops())]),
                {POOL: None}, quiet or clients.now < 1e9 + 86400.0, BATCH)
            raised += bool(clients.slow) and not was
            was = bool(clients.slow)
    return clients, raised


#: Interactive clients by day, a batch with most of the operations by night.
DAY, NIGHT = (20.0, 200, 1.0), (4.0, 5000, 20.0)


@pytest.mark.parametrize('first', [(), (NIGHT,)])
def test_what_is_usual_does_not_depend_on_the_hour_of_activation(
        first: Sequence[Tuple[float, int, float]]) -> None:
    clients, raised = played(first, *[(DAY, NIGHT)] * 10)
    assert raised == 3, 'of the first nights'
    seen = clients.latency
    assert seen.read_baseline_ms == pytest.approx(1.0, rel=0.01)
    assert seen.read_alarm_ms == pytest.approx(60.0), 'the batch has just ended'
    clients.feel(6 * 3600, read_ms=1.0)
    assert clients.latency.read_alarm_ms == pytest.approx(3.0)
    clients.feel(300, read_ms=3.5)
    assert clients.slow == ['reads']


def test_what_is_accepted_is_no_alarm_but_known() -> None:
    clients, _ = played(*[(DAY, NIGHT)] * 4, (DAY, (1.0, 5000, 20.0)))
    assert clients.slow == [] and clients.watch.accepted() == [(POOL, 'reads', 60.0)]
    clients.feel(300, read_ms=1.0)
    assert clients.watch.accepted() == []


def test_what_moving_data_costs_is_not_accepted() -> None:
    clients, raised = played([(24.0, 100, 1.0)], *[[(24.0, 100, 20.0)]] * 5, quiet=False)
    assert clients.slow == ['reads'] and raised == 1


# ---- alarms

def learned(read_ms: float = 1.0, write_ms: float = 1.0) -> Clients:
    clients = Clients()
    clients.feel(600, read_ms, write_ms)
    assert clients.slow == []
    return clients


def test_reads_and_writes_are_judged_apart() -> None:
    clients = learned()
    clients.feel(180, read_ms=1.0, write_ms=20.0, quiet=False)
    assert clients.slow == ['writes']
    clients.feel(180, read_ms=20.0, write_ms=1.0, quiet=False)
    assert clients.slow == ['reads']


def test_raised_within_two_minutes_and_not_within_one() -> None:
    clients = learned()
    begin = clients.now
    clients.feel(60, read_ms=20.0, quiet=False)
    assert clients.slow == []
    clients.feel(60, read_ms=20.0, quiet=False)
    ((pool, kind, since),) = clients.watch.slow()
    assert (pool, kind) == (POOL, 'reads') and begin < since <= begin + 60
    clients.feel(180, read_ms=1.0, quiet=False)
    assert clients.slow == []


@pytest.mark.parametrize('usual, now, slow', [
    (0.4, 2.3, False),      # six times as slow, but by less than 2 ms
    (0.4, 2.5, True),
    (10.0, 29.0, False),    # not three times as slow
    (10.0, 31.0, True)])
def test_limits_on_flash_and_on_disks(usual: float, now: float, slow: bool) -> None:
    clients = learned(read_ms=usual)
    clients.feel(180, read_ms=now, quiet=False)
    assert bool(clients.slow) == slow


def test_a_stall_of_some_seconds_is_no_alarm() -> None:
    clients = learned()
    for _ in range(10):
        clients.feel(15, read_ms=3000.0, quiet=False)
        clients.feel(45, read_ms=1.0, quiet=False)
        assert clients.slow == []


def test_a_few_operations_are_no_workload() -> None:
    clients = learned()
    clients.feel(300, read_ms=500.0, quiet=False, number=2)
    assert clients.slow == []


def test_without_a_baseline_nothing_is_slow() -> None:
    clients = Clients()
    clients.feel(600, read_ms=500.0, quiet=False)
    assert clients.slow == [] and clients.latency.read.ms == pytest.approx(500.0)


@pytest.mark.parametrize('usual_ms, limit_ms', [(0.5, 2.5), (1.0, 3.0), (1.1, 3.3)])
def test_the_limit_of_an_alarm(usual_ms: float, limit_ms: float) -> None:
    """Three times the baseline, and 2 ms more than it."""
    assert SETTINGS.alarm_ms(usual_ms) == pytest.approx(limit_ms)


@pytest.mark.parametrize('number, reads', [(3, ['reads']), (2, [])])
def test_the_last_minute_needs_thirty_operations(number: int, reads: List[str]) -> None:
    """Of twelve readings."""
    clients = Clients()
    clients.feel(300, read_ms=1.0)
    clients.feel(180, read_ms=9.0, number=number)
    assert clients.slow == reads


def test_baselines_of_reads_are_those_of_pools_that_are_not_slow() -> None:
    clients = Clients()
    clients.feel(300, read_ms=2.0, write_ms=1.0)
    assert clients.watch.read_baselines() == {POOL: 2.0}
    clients.feel(100, read_ms=2.0, write_ms=9.0)
    assert clients.watch.read_baselines() == {POOL: 2.0}
    clients.feel(60, read_ms=9.0)
    assert clients.watch.read_baselines() == {}
    clients.pools = (POOL, 8)
    clients.rows(300, [ClientOps(8, 1, Ops(), ops(100, 1.0))])
    assert 8 not in clients.watch.read_baselines()


def test_the_busiest_pool_comes_first() -> None:
    clients = Clients()
    clients.pools = (9, 1, POOL, 3)
    clients.rows(60, [ClientOps(POOL, 1, ops(30, 1.0), Ops()),
                      ClientOps(3, 1, ops(5, 1.0), ops(30, 1.0))])
    assert clients.watch.busiest() == [3, POOL, 1, 9]


# ---- the variation of latency

@pytest.mark.parametrize('pairs, value', [(11, None), (12, 2.0), (200, 2.0)])
def test_the_spread_of_single_operations(pairs: int, value: Optional[float]) -> None:
    """The means of 50 operations are 0.8 and 1.2 ms in turn: 0.4 ** 2 / (2 / 50) = 2 ** 2."""
    spread = OpSpread()
    for number in range(pairs + 1):
        spread.add(50.0, 50.0 * (0.8 + 0.4 * (number % 2)) * MS)
    assert spread.value == (None if value is None else pytest.approx(value))
    # Each pair counts a little less with each one after it.
    assert spread.pairs == pytest.approx((1.0 - 0.98 ** pairs) / 0.02)


def test_the_spread_of_readings_of_different_size() -> None:
    spread = OpSpread()
    spread.add(20.0, 20.0 * MS)
    spread.add(80.0, 160.0 * MS)
    # A difference of 1 ms, and a mean of 1.8 ms.
    assert spread.squares == pytest.approx(1.0 / (1 / 20 + 1 / 80) / 1.8 ** 2)
    assert spread.pairs == 1.0


@pytest.mark.parametrize('ops_now, total_ns', [(19.0, 19.0 * MS), (50.0, 0.0), (50.0, -1.0)])
def test_readings_that_say_nothing_of_the_spread(ops_now: float, total_ns: float) -> None:
    spread = OpSpread()
    for number, sums in ((50.0, 50.0 * MS), (ops_now, total_ns), (50.0, 60.0 * MS)):
        spread.add(number, sums)
    assert spread == OpSpread()
    spread.add(50.0, 70.0 * MS)
    spread.skip()
    spread.add(50.0, 90.0 * MS)
    assert spread.pairs == 1.0


def test_one_stall_does_not_hide_later_increases() -> None:
    """Of its square, nine times the mean counts."""
    spread, mean = OpSpread(20.0, 40.0, (1.0 * MS, 50.0)), 2.0
    spread.add(50.0, 50.0 * 100.0 * MS)
    assert spread.squares == pytest.approx(0.98 * 40.0 + 9.0 * mean)
    early = OpSpread(9.9, 19.8, (1.0 * MS, 50.0))
    early.add(50.0, 50.0 * 100.0 * MS)
    assert early.squares == pytest.approx(0.98 * 19.8 + 25.0 * 99.0 ** 2 / 50.5 ** 2)


# ---- limits

@pytest.mark.parametrize('baseline_ms, named, floor_ms, disk, limit_ms', [
    (None, None, 0.0, False, None), (None, 7.0, 0.0, False, 7.0), (1.0, 7.0, 0.0, False, 7.0),
    # 1.5 times the baseline, and 0.5 ms more or as much again, on flash.
    (4.0, None, 0.0, False, 6.0), (0.8, None, 0.0, False, 1.3), (0.3, None, 0.0, False, 0.6),
    # 2 ms more on disks, unless they are as fast as flash.
    (2.0, None, 0.0, True, 4.0), (3.0, None, 0.0, True, 5.0), (1.9, None, 0.0, True, 2.85),
    (8.0, None, 0.0, True, 12.0),
    (0.3, None, 1.0, False, 1.3), (3.0, None, 1.0, True, 4.5)])
def test_the_limit_of_latency(baseline_ms: Optional[float], named: Optional[float],
                              floor_ms: float, disk: bool, limit_ms: Optional[float]) -> None:
    options = replace(DEFAULTS, latency_factor=1.5, latency_floor_ms=floor_ms)
    limit = target_ms(baseline_ms, named, options, disk)
    assert limit == (None if limit_ms is None else pytest.approx(limit_ms))


def test_noise_raises_nothing() -> None:
    rnd = random.Random(2)
    clients = learned(2.0, 4.0)
    for _ in range(1000):
        clients.feel(5, 2.0 * rnd.lognormvariate(0, 0.5), 4.0 * rnd.lognormvariate(0, 0.5),
                     number=rnd.choice((0, 1, 10, 1000)))
        assert clients.slow == []


def test_a_removed_pool_is_forgotten() -> None:
    clients = learned()
    clients.feel(180, read_ms=20.0, quiet=False)
    clients.pools = ()
    clients.rows(5, [ClientOps(POOL, 1, ops(100, 20.0), Ops())])
    assert clients.slow == [] and clients.watch.history(POOL) is None


def test_a_disturbance_does_not_become_the_baseline() -> None:
    clients = Clients()
    clients.feel(600, read_ms=1.0)
    clients.feel(4 * 3600, read_ms=20.0)
    assert clients.slow == ['reads'] and clients.latency.read_baseline_ms == 1.0


def test_what_lasts_for_days_is_how_the_pool_is_used_now() -> None:
    clients, raised = played([(2.0, 100, 1.0)], *[[(24.0, 100, 20.0)]] * 4)
    assert clients.slow == [] and raised == 1
    assert clients.latency.read_baseline_ms == pytest.approx(20.0)
    clients, raised = played([(2.0, 100, 1.0)], *[[(23.0, 100, 20.0)]] * 3)
    assert clients.slow == ['reads']


def test_a_standstill_is_no_recovery() -> None:
    clients = learned()
    clients.feel(180, read_ms=20.0, quiet=False)
    clients.rows(300, [])
    assert clients.slow == ['reads']
    clients.rows(600, [])
    assert clients.slow == []


# ---- nonsense

@pytest.mark.parametrize('read', [
    Ops(-5, 3), Ops(5, -3), Ops(5, 0), Ops(2 ** 64 - 1, 1), Ops((2 ** 32 - 1) * 10 ** 9, 50000),
    Ops(NAN, 5), Ops(5, NAN)])  # type: ignore[arg-type]
def test_what_cannot_be_is_left_out(read: Ops) -> None:
    assert not read.sane
    clients = learned()
    clients.rows(300, [ClientOps(POOL, 1, read, Ops()), ClientOps(POOL, 2, ops(100, 1.0), Ops()),
                       ClientOps(POOL, 3, Ops(), read)])
    assert clients.slow == [] and clients.latency.read == Flow(20.0, 1.0)
    assert clients.latency.read_baseline_ms == 1.0


def test_an_operation_of_days_can_be() -> None:
    assert Ops(2 * 86400 * 10 ** 9, 1).sane and Ops().sane


def test_mean_flow() -> None:
    points = [HistoryPoint(1.0, 5.0, (10.0, 20.0 * MS)), HistoryPoint(2.0, 5.0, (0.0, 0.0))]
    assert mean_flow(points, 0, 1) == Flow(1.0, 2.0)
    assert mean_flow(points[1:], 0, 1) == mean_flow([], 0, 1) == Flow()


# ---- what survives the mgr

def stored(clients: Clients) -> Any:
    found = None
    while True:
        taken = clients.watch.take_unsaved()
        if taken is None:
            return found
        found = taken


def test_a_grown_baseline_is_to_be_stored() -> None:
    clients = Clients()
    clients.feel(55, read_ms=1.0)
    assert clients.watch.take_unsaved() is None
    clients.feel(5, read_ms=1.0)
    pool, document = stored(clients)
    assert (pool, len(document.points)) == (POOL, 1)
    assert clients.watch.take_unsaved() is None
    clients.feel(60 * (STORED_POINTS + 10), read_ms=1.0)
    pool, document = stored(clients)
    rows = document.points
    assert len(rows) == STORED_POINTS and rows[-1][0] == clients.now
    assert len(json.dumps(encode(document))) < 20000


def test_a_pool_waits_once_to_be_stored() -> None:
    clients = Clients(PoolSettings(3.0, baseline_seconds=5.0))
    clients.pools = range(20)
    clients.rows(500, [ClientOps(pool, 1, ops(9, 1.0), Ops()) for pool in clients.pools])
    assert sorted(pool for pool, _ in iter(clients.watch.take_unsaved, None)) == list(range(20))


def test_idle_days_do_not_displace_the_baseline() -> None:
    """Neither in this mgr nor in the next one, which loads fewer points."""
    clients = learned(2.0, 3.0)
    clients.feel(60 * (BASELINE_POINTS + 10))
    assert clients.latency.read_baseline_ms == 2.0
    later = Clients()
    later.watch.load(POOL, again(StoredPool, stored(clients)[1]), SETTINGS)
    assert later.latency.read_baseline_ms == 2.0 and later.latency.write_baseline_ms == 3.0


def test_baselines_and_alarms_survive() -> None:
    clients = learned(2.0, 3.0)
    clients.feel(180, read_ms=40.0, write_ms=3.0, quiet=False)
    rows = again(StoredPool, stored(clients)[1])
    alarms = again(List[RaisedAlarm], clients.watch.slow())
    later = Clients()
    later.now = clients.now + 20
    later.watch.load(POOL, rows, SETTINGS)
    later.watch.load_alarms(alarms)
    assert later.latency.read_baseline_ms == 2.0 and later.latency.write_baseline_ms == 3.0
    assert later.watch.slow() == clients.watch.slow() != []
    later.feel(30, read_ms=40.0, quiet=False)
    assert later.slow == ['reads']
    later.feel(180, read_ms=2.0, quiet=False)
    assert later.slow == []


def test_the_baseline_of_a_rare_kind_of_operation_survives() -> None:
    clients = learned(2.0, 3.0)
    clients.feel(60 * (STORED_POINTS + 10), read_ms=2.0)
    later = Clients()
    later.watch.load(POOL, again(StoredPool, stored(clients)[1]), SETTINGS)
    assert later.latency.read_baseline_ms == 2.0 and later.latency.write_baseline_ms == 3.0


def test_an_alarm_without_a_baseline_ends_so_that_a_baseline_can_be_learned() -> None:
    later = Clients()
    later.watch.load(POOL, StoredPool(), SETTINGS)
    later.watch.load_alarms([RaisedAlarm(POOL, 'writes', later.now)])
    assert later.slow == ['writes']
    later.feel(60, write_ms=3.0)
    assert later.slow == []
    later.feel(120, write_ms=3.0)
    assert later.latency.write_alarm_ms is not None


def test_an_alarm_without_a_baseline_stays_while_a_probe_loads_the_pool() -> None:
    later = Clients()
    later.watch.load(POOL, StoredPool(), SETTINGS)
    later.watch.load_alarms([RaisedAlarm(POOL, 'writes', later.now)])
    later.probed = (POOL,)
    later.feel(600, write_ms=3.0)
    assert later.slow == ['writes']


@pytest.mark.parametrize('alarm', [
    RaisedAlarm(POOL, 'scrubs', 1.0), RaisedAlarm(99, 'reads', 1.0)])
def test_alarms_that_are_none_are_passed_over(alarm: RaisedAlarm) -> None:
    clients = learned()
    clients.watch.load_alarms([alarm])
    assert clients.slow == []


def test_the_load_has_what_was_read_and_what_was_written() -> None:
    """Of both OSDs; rows with invalid values do not count."""
    clients = Clients()
    clients.rows(60.0, [ClientOps(POOL, 1, ops(10, 1.0), ops(5, 1.0), 40960, 1000),
                        ClientOps(POOL, 2, ops(10, 1.0), Ops(), 10240, 0),
                        ClientOps(POOL, 3, Ops(-1, 1), Ops(), 1 << 40, 1 << 40),
                        ClientOps(8, 1, ops(10, 1.0), Ops(), 4096, 0)])
    assert clients.watch.load_of(POOL).lately() == Rates(4.0, 1.0, 10240.0, 200.0)


# ---- probes

def test_a_pool_is_not_judged_while_a_probe_affects_its_clients() -> None:
    clients = Clients()
    clients.feel(300, read_ms=1.0)
    clients.probed = (POOL,)
    clients.feel(600, read_ms=30.0, quiet=False)
    assert not clients.slow and clients.latency.read.ms == 30.0
    clients.probed = ()
    clients.feel(600, read_ms=1.0)
    assert not clients.slow
    clients.feel(300, read_ms=30.0)
    assert clients.slow == ['reads']


def test_nor_is_the_minute_after_a_probe() -> None:
    """It still contains what the probe did; another pool is judged all the time."""
    clients = Clients()
    clients.pools = POOL, 8
    slow, well = ([ClientOps(POOL, 1, ops(100, ms), Ops()), ClientOps(8, 1, ops(100, ms), Ops())]
                  for ms in (30.0, 1.0))
    clients.rows(300, well)
    clients.probed = (POOL,)
    clients.rows(50, slow, quiet=False)
    clients.probed = ()
    clients.rows(50, slow, quiet=False)
    assert [pool for pool, _, _ in clients.watch.slow()] == [8]
    clients.rows(600, well)
    assert not clients.slow


def test_an_alarm_outlasts_a_probe() -> None:
    clients = Clients()
    clients.feel(300, read_ms=1.0)
    clients.feel(180, read_ms=30.0)
    assert clients.slow == ['reads']
    clients.probed = (POOL,)
    clients.feel(900, quiet=False)
    assert clients.slow == ['reads']
    clients.probed = ()
    clients.feel(300, read_ms=1.0)
    assert not clients.slow
