# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a probe loads: it is not judged meanwhile, and the clients there end the probe."""
from dataclasses import replace
from typing import Any, FrozenSet, List, Set

import pytest

from perfguard.cluster.types import ClientOps, Ops
from perfguard.errors import Refused
from perfguard.observation import Clients, Minute, PoolClients
from perfguard.probe.controller import EFFECT_PERIODS
from perfguard.probe.limits import (LEAST_PROBE_OPS, LEAST_READINGS, AffectedClients, Loaded,
                                    clients_over_limit)
from perfguard.probe.orders import RunId, RunOrder
from perfguard.watch.stop_conditions import Touched

from ..fakes.driver import OPTIONS
from ..fakes.probe_cluster import ProbeCluster, ProbeDriver, fake_children
from ..watch.test_controller import LATENCY, PERIOD, SLOW, OsdCluster
from .test_controller import STORE, Benching

#: Long enough for the time limit of a worker that hangs.
WORDS = {'rw': 'randread', 'bs': '4k', 'size': '64k', 'nrfiles': '2', 'runtime': '600'}
IN_POOL = RunOrder(words=WORDS, pool='rep')
ON_OSDS = RunOrder(words=WORDS, pool='rep', osd='1,10', repeat='2')
#: osd.1 leads three PGs of the pool, with osd.2 and osd.3.
ON_OSD = replace(ON_OSDS, osd='1')
MS = 1000000


class ProbedOsds(OsdCluster, ProbeCluster):
    """OSDs under an even load of clients, and all that probes need."""


class Probed(ProbeDriver):
    """With baselines, and mitigations that come soon."""
    cluster: ProbedOsds

    def __init__(self) -> None:
        super().__init__(ProbedOsds(hosts=12), replace(
            OPTIONS, baseline_seconds=60.0, mitigation_mode='act', mitigation_affinity=True,
            mitigation_seconds=10.0))
        self.minutes(10)
        self.cluster.behaviour = 'deaf'

    def minutes(self, number: float) -> None:
        for _ in range(int(number * 60 / PERIOD)):
            self.turn(PERIOD)

    def begin(self, order: RunOrder) -> int:
        run = int(self.give(order)['id'])
        self.run_until(lambda: self.state(run) == 'running')
        return run

    def loaded(self) -> Touched:
        """In the last turn."""
        return self.loop.probing.loaded(self.cluster.now - 1.0, 0.1)

    @property
    def lowered(self) -> List[int]:
        return [command['id'] for command in self.cluster.sent
                if command['prefix'] == 'osd primary-affinity']

    @property
    def slow(self) -> Set[int]:
        return {row.osd for row in self.loop.published.watched.osds if row.slow}


@pytest.fixture(autouse=True)
def workers(monkeypatch: Any) -> None:
    fake_children(monkeypatch)


# ---- what is judged

def test_neither_osds_nor_pool_of_a_probe_are_judged() -> None:
    """osd.7 is slow as well, and no probe loads it."""
    driver = Probed()
    driver.cluster.muted = {LATENCY}
    driver.begin(ON_OSD)
    driver.cluster.slow = {1: 40.0, 3: 40.0, 7: 6.0}
    driver.minutes(6)
    assert driver.slow == {7} and driver.lowered == [7]
    assert set(driver.cluster.checks) == {SLOW}
    driver.give(RunId('probe cancel', 1))
    driver.cluster.slow = {}
    driver.minutes(10)
    assert driver.slow == set() and not driver.cluster.checks
    assert driver.told('slow-osd') == ['osd.7 is slow', 'osd.7 is no longer slow']
    assert not driver.told('latency')
    driver.cluster.slow = {1: 40.0}
    driver.minutes(6)
    assert driver.slow == {1}


def test_a_probe_of_a_pool_raises_nothing() -> None:
    driver = Probed()
    driver.cluster.muted = {LATENCY}
    driver.begin(IN_POOL)
    driver.cluster.slow, driver.cluster.factor = {1: 40.0}, 20.0
    driver.minutes(10)
    assert not driver.cluster.checks and not driver.lowered
    assert driver.loop.published.watched.late == ()


# ---- what a probe loads

def loads(order: RunOrder) -> List[Set[int]]:
    """The OSDs that it loads, turn by turn, one step in each."""
    driver = Probed()
    driver.cluster.behaviour = 'good'
    driver.give(order)
    found: List[Set[int]] = []
    while driver.busy:
        osds = set(driver.loaded().osds)
        if osds and found[-1:] != [osds]:
            found.append(osds)
        driver.turn()
    return found


def test_the_first_repetition_writes_what_the_others_read() -> None:
    assert loads(ON_OSDS) == [{1, 2, 3, 10, 0}, {1, 10}, {10}]


def test_writes_load_all_osds_of_a_pg() -> None:
    words = {**WORDS, 'rw': 'randwrite'}
    assert loads(replace(ON_OSDS, words=words)) == [{1, 2, 3, 10, 0}, {0, 2, 10}]


def test_reads_of_an_erasure_coded_pool_do_so_as_well() -> None:
    found = loads(replace(ON_OSDS, pool='ec', osd='2'))
    assert found == [{2, 3, 4}]


@pytest.mark.parametrize('order', [
    IN_POOL, RunOrder(words=WORDS), replace(ON_OSDS, osd='all', scale=True, repeat='1')])
def test_a_probe_of_many_osds_loads_all_of_the_pool(order: RunOrder) -> None:
    order = order if order.osd is None else replace(order, osd='1,4,7,10')
    assert loads(order)[-1] == set(range(12))


def test_the_pgs_of_three_osds_are_looked_up() -> None:
    found = loads(replace(ON_OSDS, osd='1,4,7', scale=True, repeat='1'))[-1]
    assert {1, 4, 7} < found < set(range(12))


def test_the_pools_of_a_probe() -> None:
    driver = Probed()
    driver.begin(IN_POOL)
    assert driver.loaded().pools == {1}
    # So that the latency of clients is not that of the probe.
    assert driver.cluster.without_probes_until > driver.cluster.now
    driver.give(RunId('probe cancel', 1))
    driver.finish()
    ended = driver.cluster.now
    before = driver.cluster.without_probes_until
    driver.run_until(lambda: not driver.loop.probing.loaded(driver.cluster.now, PERIOD).osds)
    assert driver.cluster.now - ended <= EFFECT_PERIODS * PERIOD
    driver.begin(RunOrder(words=WORDS))
    assert driver.loaded().pools == {driver.cluster.made['perfguard-probe-2'].id}
    assert driver.cluster.without_probes_until == before


def test_a_bench_loads_its_osd_also_after_the_end_of_the_probe() -> None:
    cluster = Benching()
    cluster.silent[1] = True
    driver = ProbeDriver(cluster)
    driver.give(replace(STORE, osd='1,2'))
    driver.finish(200)
    driver.run(20)
    assert driver.loop.probing.loaded(cluster.now, cluster.period) == Touched({1}, set())


def test_a_bench_goes_on_when_its_mgr_is_gone() -> None:
    driver = ProbeDriver(Benching())
    driver.give(STORE)
    driver.restart()
    driver.turn()
    assert driver.loop.probing.loaded(driver.cluster.now, driver.cluster.period).osds == {
        0, 1, 2, 3, 4, 5}


# ---- clients

def message(driver: Probed, run: int) -> str:
    return str(driver.listed[run]['message'])


def ends(driver: Probed, run: int) -> bool:
    """Whether the worker was told to end, which a deaf one ignores for a while."""
    return message(driver, run).startswith('stopping: ')


@pytest.mark.parametrize('order', [IN_POOL, ON_OSD, RunOrder(words=WORDS)])
def test_clients_over_their_limit_end_a_probe_within_half_a_minute(order: RunOrder) -> None:
    driver = Probed()
    run = driver.begin(order)
    driver.cluster.factor = 1.4
    driver.minutes(2)
    assert driver.state(run) == 'running' and not ends(driver, run)
    driver.cluster.factor = 2.5
    driver.minutes(0.5)
    assert ends(driver, run)
    driver.finish()
    assert driver.state(run) == 'aborted'
    assert 'read latency of clients of pool rep is 2.50 ms (limit 1.50 ms)' in message(driver, run)
    assert not driver.cluster.checks


def test_clients_elsewhere_do_not_end_it() -> None:
    driver = Probed()
    run = driver.begin(replace(ON_OSD, pool='ec', osd='2'))
    driver.cluster.slow = dict.fromkeys(set(range(12)) - {2, 3, 4}, 3.0)
    driver.minutes(2)
    assert driver.state(run) == 'running' and not ends(driver, run)
    driver.cluster.slow[3] = 9.0
    driver.finish()
    assert driver.state(run) == 'aborted' and 'limit' in message(driver, run)


def test_nor_do_those_of_an_osd_that_was_slow_before_it() -> None:
    """It is probed for that reason."""
    driver = Probed()
    driver.cluster.slow = {1: 8.0}
    driver.minutes(6)
    assert driver.slow == {1}
    run = driver.begin(ON_OSD)
    driver.minutes(2)
    assert driver.state(run) == 'running' and not ends(driver, run)


def test_a_muted_alarm_lets_a_probe_go_on() -> None:
    driver = Probed()
    driver.cluster.factor = 2.5
    driver.minutes(2)
    with pytest.raises(Refused, match='limit 1.50 ms'):
        driver.give(IN_POOL)
    driver.cluster.muted = {LATENCY}
    run = driver.begin(IN_POOL)
    driver.minutes(2)
    assert driver.state(run) == 'running' and not ends(driver, run)
    driver.cluster.muted = set()
    driver.finish()
    assert driver.state(run) == 'aborted' and 'limit' in message(driver, run)


def clients(time: float, ms: float, minute_ms: float = 9.0, number: int = LEAST_PROBE_OPS,
            osd: int = 1) -> Clients:
    pools = {1: PoolClients('p', 8, 9.0, 2.0, 2.0, write_minute=Minute(900, minute_ms))}
    return Clients(time, 5.0, (ClientOps(1, osd, Ops(), Ops(int(number * ms * MS), number)),),
                   pools)


ALL: FrozenSet[int] = frozenset({1})


@pytest.mark.parametrize('found, over', [
    (clients(5.0, 3.0), True), (clients(5.0, 1.9), False), (clients(5.0, 3.0, 1.9), False),
    (clients(5.0, 3.0, number=LEAST_PROBE_OPS - 1), False), (clients(5.0, 3.0, osd=2), False)])
def test_before_a_probe_both_the_last_reading_and_the_last_minute_count(
        found: Clients, over: bool) -> None:
    assert bool(clients_over_limit(found, Touched(ALL, frozenset()), frozenset())) == over
    assert not clients_over_limit(found, Touched(ALL, frozenset()), frozenset({1}))
    in_pool = bool(clients_over_limit(found, Touched(frozenset(), ALL), frozenset({1})))
    assert in_pool == (found.rows[0].osd == 2), 'all of its OSDs'


@pytest.mark.parametrize('read_ms, write_ms, texts', [
    (2.0, 3.0, []), (2.01, 3.0, ['read latency of clients of pool p is 2.01 ms (limit 2.00 ms)']),
    (2.0, 3.01, ['write latency of clients of pool p is 3.01 ms (limit 3.00 ms)']),
    (4.0, 4.0, ['read latency of clients of pool p is 4.00 ms (limit 2.00 ms)',
                'write latency of clients of pool p is 4.00 ms (limit 3.00 ms)'])])
def test_reads_and_writes_have_limits_of_their_own(
        read_ms: float, write_ms: float, texts: List[str]) -> None:
    pools = {1: PoolClients('p', 8, 9.0, 2.0, 3.0, read_minute=Minute(900, 9.0),
                            write_minute=Minute(900, 9.0))}
    # Of two OSDs, all operations together count.
    loaded = Touched(frozenset(), ALL)
    reads, writes = (Ops(int(50 * ms * MS), 50) for ms in (read_ms, write_ms))
    rows = tuple(ClientOps(1, osd, reads, writes) for osd in (1, 2))
    assert clients_over_limit(Clients(5.0, 5.0, rows, pools), loaded, frozenset()) == texts
    affected = AffectedClients()
    for time in range(1, LEAST_READINGS + 1):
        affected.take_reading(Clients(float(time), 5.0, rows, pools), loaded, frozenset())
        assert affected.over_limit(Clients(9.0, 5.0, (), pools)) == (
            texts if time == LEAST_READINGS else [])


def test_what_was_loaded_lately() -> None:
    loaded = Loaded()
    loaded.note(100.0, Touched(frozenset({1, 2}), frozenset({7})))
    loaded.note(110.0, Touched(frozenset({2}), frozenset()))
    assert loaded.lately(129.9, 30.0) == Touched({1, 2}, {7})
    assert loaded.lately(130.0, 30.0) == Touched({2}, set())
    assert loaded.lately(140.0, 30.0) == Touched(set(), set())
    # A bench that goes on without its mgr loads an OSD for longer than a probe that has begun.
    loaded.note(200.0, Touched(frozenset({1}), frozenset()))
    loaded.note(150.0, Touched(frozenset({1}), frozenset()))
    assert loaded.lately(229.9, 30.0) == Touched({1}, set())


def test_a_reading_is_taken_once_and_one_that_is_slow_is_no_reason() -> None:
    affected, loaded = AffectedClients(), Touched(ALL, ALL)
    for _ in range(9):
        affected.take_reading(clients(5.0, 3.0), loaded, frozenset())
    assert not affected.over_limit(clients(5.0, 3.0))
    for time in (10.0, 15.0):
        affected.take_reading(clients(time, 3.0), loaded, frozenset())
    assert affected.over_limit(clients(15.0, 3.0)) == [
        'write latency of clients of pool p is 3.00 ms (limit 2.00 ms)']
    affected = AffectedClients()
    for number in range(LEAST_READINGS + 1):
        affected.take_reading(clients(number + 1.0, 99.0 if number == 1 else 1.0), loaded,
                              frozenset())
    assert not affected.over_limit(clients(9.0, 3.0))
    assert not affected.over_limit(Clients(9.0)), 'the pool is gone'
