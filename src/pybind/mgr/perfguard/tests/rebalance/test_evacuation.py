# SPDX-License-Identifier: LGPL-2.1-or-later
"""OSDs that are to be emptied, mostly because they fail: no flag of perfguard keeps data there."""
from dataclasses import replace
from typing import Callable, FrozenSet, List, Tuple

import pytest

from perfguard.rebalance import throttle
from perfguard.rebalance.epochs import PROPOSE_INTERVAL
from perfguard.rebalance.risks import RISKS
from perfguard.rebalance.types import Phase
from perfguard.status import EVACUATION, EVACUATION_SECONDS
from perfguard.upmap.pins import Unpinnable

from ..fakes.cluster import BALANCER, FakeCluster, FakePg
from ..fakes.driver import OPTIONS, Driver, codes
from ..fakes.ruled_cluster import RULES, RuledCluster
from ..fakes.straw_cluster import RetryingCluster, StrawCluster

WIDE = replace(OPTIONS, max_pgs_in_flight=8, max_unpinnable_ratio=0.5)


def big(**options: float) -> Driver:
    return Driver(FakeCluster(pgs=48, hosts=12, backfill_seconds=3.0), replace(WIDE, **options))


def releasing(**options: float) -> Driver:
    driver = big(**options)
    driver.to_releasing()
    driver.run(5)
    return driver


def mark_out(cluster: FakeCluster, osd: int = 0) -> None:
    """The OSD is up and serves its PGs until they have moved."""
    cluster.mark_out(osd)


def remove(cluster: FakeCluster, osd: int = 0) -> None:
    """As "ceph orch osd rm" begins."""
    cluster.toys[osd] = cluster.toys[osd]._replace(crush_weight=0.0)
    for pg in cluster.pg.values():
        if osd in pg.mon.raw:
            pg.mon.raw[pg.mon.raw.index(osd)] = cluster._spare(pg.mon.raw, osd)
    cluster._crush_changed()


def test_a_change_that_empties_osds_and_its_pin_do_not_clear_norebalance() -> None:
    """Both in one script: the same turn sees the weight of 0 for the first time, and the order."""
    cluster = StrawCluster(hosts=12, pgs=64, osds_per_host=2)
    driver = Driver(cluster, replace(OPTIONS, max_pgs_in_flight=8))
    driver.run(3)
    driver.ask('prepare')
    driver.run_to('PREPARED')
    driver.run(5)
    before = len(cluster.sent)
    for osd in (4, 5):
        cluster.toys[osd] = cluster.toys[osd]._replace(crush_weight=0.0)
    cluster.place()
    for pgid, pg in cluster.pg.items():
        if pg.peering_until is not None:
            # As mons that prime pg_temp: the PG is remapped in the same epoch.
            pg.peering_until = None
            cluster._peered(pgid, pg)
    cluster.epoch += 1
    driver.ask('pin')
    driver.run(14)
    assert not [command for command in cluster.sent[before:] if command['prefix'] == 'osd unset']
    assert not cluster.moved


EMPTYING: List[Callable[..., None]] = [mark_out, remove]


def left_on(cluster: FakeCluster, osd: int = 0) -> int:
    return sum(osd in pg.data for pg in cluster.pg.values())


def slow_ops(driver: Driver) -> None:
    """On each OSD: those of a single one stop the releases that concern it."""
    driver.cluster.slow_ops = 30
    driver.cluster.slow_daemons = {'osd.%d' % osd: 2 for osd in driver.cluster.toys}


def laggy(driver: Driver) -> None:
    driver.cluster.trouble = {'laggy': 1}


def mon_down(driver: Driver) -> None:
    driver.cluster.health['MON_DOWN'] = '1/3 mons down'


def slow_pings(driver: Driver) -> None:
    driver.cluster.health['OSD_SLOW_PING_TIME_BACK'] = 'slow heartbeats'


def closed(driver: Driver) -> None:
    driver.options = replace(driver.options, begin_time='0300', end_time='0301')


@pytest.mark.parametrize('empty', EMPTYING)
@pytest.mark.parametrize('trouble', [slow_ops, laggy, mon_down, slow_pings, closed])
def test_an_osd_becomes_empty_although_no_pg_is_released(
        trouble: Callable[[Driver], None], empty: Callable[..., None]) -> None:
    driver = releasing()
    cluster = driver.cluster
    trouble(driver)
    driver.run(20)
    pins = set(driver.loop.rebalance.pins)
    others = {pgid for pgid in pins if 0 not in cluster.pg[pgid].data}
    assert left_on(cluster) and others
    empty(cluster)
    cluster.backfill_seconds = 20.0
    driver.run(6)
    assert 'EVACUATING' in codes(driver.status) and 'norebalance' not in cluster.flags
    driver.run_until(lambda: not left_on(cluster), 60)
    driver.run(3)
    assert 'norebalance' not in cluster.flags and driver.phase == 'HOLDING'
    assert not driver.status['unpinnable'] and 'EVACUATING' not in codes(driver.status)
    assert others <= set(driver.loop.rebalance.pins), 'other PGs stay where they are'


@pytest.mark.parametrize('empty', EMPTYING)
def test_a_full_host_of_pgs_that_cannot_be_pinned_is_no_excess(
        empty: Callable[..., None]) -> None:
    driver = releasing(max_unpinnable_ratio=0.02)
    empty(driver.cluster)
    for _ in range(200):
        driver.turn()
        assert driver.phase != 'PINNED' and 'PERFGUARD_UNPINNABLE' not in driver.cluster.checks
    assert driver.phase == 'DONE' and not left_on(driver.cluster)


def test_pgs_in_flight_are_pinned_back_where_latency_halts_all_movement(
        monkeypatch: pytest.MonkeyPatch) -> None:
    driver = releasing()
    cluster, rebalance = driver.cluster, driver.loop.rebalance
    cluster.backfill_seconds = 1e6
    driver.run_until(lambda: driver.status['in_flight'] > 3)
    monkeypatch.setattr(throttle, 'decide', lambda pace, *_: replace(pace, halted=True))
    driver.run(5)
    assert 'norebalance' in cluster.flags and driver.status['in_flight'] > 3
    cluster.mark_out(0)
    driver.run_until(lambda: 'norebalance' not in cluster.flags, 30)
    assert all(0 in cluster.pg[pgid].data for pgid in rebalance.campaign.flights.in_flight)
    cluster.backfill_seconds = 3.0
    driver.run_until(lambda: not left_on(cluster), 60)
    assert 'HALTED' in codes(driver.status) and not cluster.remapped()


SWAPPED = '2.1'


def pinned_by_a_vector() -> Driver:
    """The change of CRUSH swaps two OSDs of a PG; no PG is released."""
    driver = big()
    cluster = driver.cluster
    closed(driver)
    driver.ask('prepare')
    driver.run_to('PREPARED')
    cluster.expand()
    first, second, third = cluster.pg[SWAPPED].mon.raw
    cluster.set_raw(SWAPPED, (second, first, third))
    driver.run_until(lambda: SWAPPED in cluster.remapped())
    driver.ask('pin')
    driver.run_to('PINNED')
    driver.ask('start')
    driver.run_to('HOLDING')
    assert cluster.entries()[SWAPPED].vector == cluster.pg[SWAPPED].data
    return driver


@pytest.mark.parametrize('empty', EMPTYING)
@pytest.mark.parametrize('position', range(3))
def test_the_other_shards_of_a_pg_that_leaves_an_osd_stay_in_place(
        position: int, empty: Callable[..., None]) -> None:
    """The mons ignore a pg_upmap vector with an OSD that is out: the whole PG is remapped."""
    driver = pinned_by_a_vector()
    cluster = driver.cluster
    before = cluster.pg[SWAPPED].data
    empty(cluster, before[position])
    driver.run_until(lambda: not left_on(cluster, before[position]), 60)
    driver.run(10)
    after = cluster.pg[SWAPPED].data
    assert [number for number in range(3) if before[number] != after[number]] == [position]
    assert not driver.status['unpinnable'] and 'norebalance' not in cluster.flags
    driver.options = WIDE
    driver.run_to('DONE')


@pytest.mark.parametrize('lag', [0, 1])
def test_nothing_of_the_other_shards_is_copied_before_they_are_pinned(lag: int) -> None:
    """norebalance is set for the two turns until the pins are in force."""
    driver = pinned_by_a_vector()
    cluster, pg = driver.cluster, driver.cluster.pg[SWAPPED]
    before, leaving = pg.data, pg.data[1]
    cluster.lag = lag
    mark_out(cluster, leaving)
    remapped = 0
    while left_on(cluster, leaving):
        driver.turn()
        if pg.temp is not None and (pg.up[0], pg.up[2]) != (before[0], before[2]):
            remapped += 1
            assert pg.copied_seconds == 0.0
        assert remapped <= 2
    assert remapped and (pg.data[0], pg.data[2]) == (before[0], before[2])


def test_a_pin_of_the_other_shards_that_the_mons_refuse_does_not_keep_norebalance() -> None:
    driver = pinned_by_a_vector()
    cluster = driver.cluster
    leaving = cluster.pg[SWAPPED].data[2]
    cluster.refuse = {'osd pg-upmap-items': 'EINVAL', 'osd pg-upmap': 'EINVAL'}
    cluster.backfill_seconds = 60.0
    mark_out(cluster, leaving)
    driver.run_until(lambda: 'norebalance' in cluster.flags, 10)
    driver.run_until(lambda: 'norebalance' not in cluster.flags, 40)
    for _ in range(100):
        driver.turn()
        assert 'norebalance' not in cluster.flags and not driver.status['unpinnable']
    assert not left_on(cluster, leaving)


@pytest.mark.parametrize('phase', ['PINNED', 'PINNING'])
def test_a_campaign_that_was_not_started_yields_once_all_others_are_pinned(
        phase: str, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = big()
    cluster = driver.cluster
    driver.to_pinned()
    pins = set(driver.loop.rebalance.pins)
    if phase == 'PINNING':
        # Degraded PGs that cannot be pinned now are pinned after their recovery.
        monkeypatch.setattr('perfguard.rebalance.pinning.plan_partial_pin',
                            lambda *_, **__: Unpinnable(''))
        cluster.degraded = set(cluster.pg)
        cluster.expand(share=1)
        cluster.report()
        driver.ask('pin')
        driver.run(8)
        assert driver.phase == 'PINNING'
    cluster.mark_out(0)
    driver.run_until(lambda: 'norebalance' not in cluster.flags, 15)
    if phase == 'PINNED':
        driver.run_until(lambda: not left_on(cluster), 60)
        driver.run(5)
        assert driver.phase == 'PINNED' and 'norebalance' in cluster.flags
        assert all(pgid in driver.loop.rebalance.pins for pgid in pins
                   if not any(moved.pgid == pgid for moved in cluster.moved))


def held(driver: Driver) -> None:
    """norebalance keeps an OSD in service, which status and health report."""
    cluster = driver.cluster
    before = left_on(cluster)
    cluster.mark_out(0)
    driver.run(10)
    assert 'EVACUATION_HELD' in codes(driver.status) and EVACUATION not in cluster.checks
    driver.run(int(EVACUATION_SECONDS))
    check = cluster.checks[EVACUATION]
    assert left_on(cluster) == before == check['count'] and 'norebalance' in cluster.flags
    assert sum('osd.0' in line for line in check['detail']) == 1


def let_go(driver: Driver) -> None:
    driver.run_until(lambda: not left_on(driver.cluster), 60)
    driver.run(1)
    assert EVACUATION not in driver.cluster.checks
    assert 'EVACUATION_HELD' not in codes(driver.status)


def test_an_osd_that_others_empty_before_the_change_is_named() -> None:
    """As "ceph osd crush reweight osd.0 0" for a disk that fails: it counts as the change."""
    driver = big()
    driver.ask('prepare')
    driver.run_to('PREPARED')
    remove(driver.cluster)
    driver.run(int(EVACUATION_SECONDS) + 20)
    assert driver.phase == 'PREPARED' and 'EVACUATION_HELD' in codes(driver.status)
    check = driver.cluster.checks[EVACUATION]
    assert check['count'] == left_on(driver.cluster) > 0 and 'osd.0' in check['detail'][1]
    assert 'campaign pin' in check['detail'][0]
    driver.ask('pin')
    driver.run(30)
    assert EVACUATION not in driver.cluster.checks


def test_a_pause_of_the_operator_keeps_them_and_says_so() -> None:
    driver = releasing()
    driver.ask('pause')
    driver.run(5)
    held(driver)
    assert 'campaign resume' in driver.cluster.checks[EVACUATION]['detail'][0]
    driver.restart()
    driver.run(2)
    assert EVACUATION in driver.cluster.checks, 'a failover does not silence it'
    driver.ask('resume')
    let_go(driver)


def test_a_prepared_campaign_keeps_them_and_says_so() -> None:
    driver = big()
    driver.ask('prepare')
    driver.run_to('PREPARED')
    held(driver)
    assert 'AWAITS_CHANGE' in codes(driver.status), 'there is nothing to pin'
    driver.ask('pin')
    let_go(driver)
    driver.run_to('PINNED')


def test_a_planned_weight_of_zero_is_a_change_of_the_campaign() -> None:
    """The operator has emptied an OSD in the way that cannot be pinned, and is asked about it."""
    driver = big(max_unpinnable_ratio=0.02)
    cluster = driver.cluster
    driver.ask('prepare')
    driver.run_to('PREPARED')
    remove(cluster)
    driver.run(5)
    driver.ask('pin')
    driver.run(200)
    assert driver.phase == 'PINNED' and 'UNPINNABLE' in codes(driver.status)
    assert 'norebalance' in cluster.flags and left_on(cluster) == 12
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.run(50)
    driver.restart()
    driver.run(50)
    assert 'norebalance' in cluster.flags and left_on(cluster) == 12
    driver.ask('resume')
    driver.run_to('PINNED')
    driver.ask('start')
    driver.run_until(lambda: not left_on(cluster))


def test_too_many_other_pgs_without_pins_keep_norebalance() -> None:
    """They would all move at once, which the operator has not accepted."""
    driver = big(max_unpinnable_ratio=0.02)
    cluster = driver.cluster
    cluster.refuse = {'osd pg-upmap-items': 'EINVAL', 'osd pg-upmap': 'EINVAL'}
    driver.to_pinned()
    moved = len(cluster.moved)
    held(driver)
    assert 'campaign start' in cluster.checks[EVACUATION]['detail'][0]
    assert len(cluster.moved) == moved
    driver.ask('start')
    let_go(driver)


def test_an_aborted_campaign_lets_them_go() -> None:
    driver = releasing()
    cluster = driver.cluster
    driver.ask('abort')
    driver.run_to('ABORTED')
    cluster.mark_out(0)
    driver.run_until(lambda: not left_on(cluster), 60)
    driver.run(5)
    assert driver.phase == 'ABORTED' and 'norebalance' not in cluster.flags


class Weighed(StrawCluster):
    """Notes the flags and the interval of the mons with which perfguard sets the first weight,
    how long norebalance was set, and which PGs were remapped without leaving an OSD."""
    burst: Tuple[FrozenSet[str], str] = (frozenset(), '')
    held_seconds = 0.0
    #: OSDs that are to be emptied, and PGs that recover for ever.
    emptied: FrozenSet[int] = frozenset()
    slow: FrozenSet[str] = frozenset()

    def _weigh(self, osd: int, weight: float) -> None:
        if not self.burst[0]:
            self.burst = frozenset(self.flags), self.mon_config.get(PROPOSE_INTERVAL, '')
        super()._weigh(osd, weight)

    def _backfills(self, pgid: str, pg: FakePg) -> bool:
        return pgid not in self.slow and super()._backfills(pgid, pg)

    def tick(self, seconds: float = 1.0) -> None:
        super().tick(seconds)
        if self.emptied and 'norebalance' in self.flags:
            self.held_seconds += seconds

    def start_emptying(self, osd: int, seconds: float = 300.0) -> None:
        self.emptied, self.backfill_seconds, self.held_seconds = frozenset({osd}), seconds, 0.0
        self.mark_out(osd)


def waiting_expansion(why: str = '') -> Tuple[Driver, Weighed]:
    """An expansion whose change of CRUSH waits, unless `why` is ''."""
    cluster = Weighed(hosts=12, pgs=24)
    cluster.add_osds(6, 0.0)
    cluster.tick(5.0)
    driver = Driver(cluster)
    driver.order('expand', weight='1.0')
    driver.run_to('PINNING')
    if why == 'balancer':
        cluster.config[BALANCER] = 'true'
    elif why == 'undersized':
        cluster.slow = frozenset(pgid for pgid, pg in cluster.pg.items() if 2 in pg.data)
        cluster.take_down(2)
        cluster.mark_out(2)
        cluster.tick(3.0)  # they peer
    if why:
        driver.run(15)
        assert 'norebalance' in cluster.flags and driver.phase == 'PINNING'
    return driver, cluster


def go_on(driver: Driver, cluster: Weighed) -> None:
    """What the change waits for ends."""
    cluster.config[BALANCER] = 'false'
    cluster.slow, cluster.backfill_seconds = frozenset(), 4.0


@pytest.mark.parametrize('failover', [False, True])
@pytest.mark.parametrize('why, code', [('undersized', 'DEGRADED'), ('balancer', 'BALANCER_ON')])
def test_a_change_that_waits_lets_them_go(why: str, code: str, failover: bool) -> None:
    """They may leave for hours, and it may wait for as long. It is sent under norebalance."""
    driver, cluster = waiting_expansion(why)
    cluster.start_emptying(9, 20.0)
    if failover:
        driver.restart()
    driver.run_until(lambda: cluster.slow.issuperset(
        pgid for pgid, pg in cluster.pg.items() if 9 in pg.data), 60)
    assert cluster.held_seconds <= 4.0 and driver.phase == 'PINNING'
    assert code in codes(driver.status) and not cluster.burst[0]
    if not cluster.slow:
        driver.run_until(lambda: 'norebalance' in cluster.flags, 5)
    go_on(driver, cluster)
    driver.run_to('PINNED')
    assert 'norebalance' in cluster.burst[0] and cluster.burst[1] == '3'
    driver.run_to('DONE', 900)
    assert cluster.clean() and 'norebalance' not in cluster.flags


@pytest.mark.parametrize('when', ['before', 'waiting'])
def test_norebalance_is_set_for_the_burst_alone_while_they_leave(when: str) -> None:
    driver, cluster = waiting_expansion('balancer' if when == 'waiting' else '')
    cluster.start_emptying(9)
    driver.run(20 if when == 'waiting' else 0)
    cluster.config[BALANCER] = 'false'
    before = left_on(cluster, 9)
    driver.run_to('PINNED')
    assert 'norebalance' in cluster.burst[0] and cluster.burst[1] == '3'
    # The PGs that the change moves are pinned.
    assert all(9 in cluster.pg[pgid].data for pgid in cluster.remapped())
    driver.run(20)
    assert left_on(cluster, 9) == before > 0 and 'norebalance' not in cluster.flags
    assert cluster.held_seconds <= 15.0
    cluster.backfill_seconds = 4.0
    driver.run_to('DONE', 900)
    assert not left_on(cluster, 9) and cluster.clean()


def test_a_change_that_waits_keeps_many_other_pgs_that_would_move_at_once() -> None:
    """They are pinned only after the change."""
    driver, cluster = waiting_expansion('balancer')
    cluster.weigh(5, 3.0)
    driver.run(5)
    assert len(cluster.remapped()) > 3
    cluster.start_emptying(9)
    driver.run(int(EVACUATION_SECONDS) + 10)
    assert 'norebalance' in cluster.flags and EVACUATION in cluster.checks
    assert not cluster.moved
    cluster.weigh(5, 1.0)
    driver.run_until(lambda: 'norebalance' not in cluster.flags, 15)


def test_a_change_that_waits_does_not_set_a_flag_that_others_have_cleared() -> None:
    driver, cluster = waiting_expansion('balancer')
    cluster.flags.discard('norebalance')
    driver.run(3)
    cluster.start_emptying(9, 4.0)
    driver.run_until(lambda: not left_on(cluster, 9), 60)
    cluster.config[BALANCER] = 'false'
    driver.run_to('PINNED')
    assert 'norebalance' not in cluster.burst[0] | cluster.flags


def test_a_flag_that_the_operator_has_cleared_stays_cleared_afterwards() -> None:
    driver = big()
    cluster = driver.cluster
    driver.to_pinned()
    cluster.flags.discard('norebalance')
    driver.run(3)
    cluster.mark_out(0)
    driver.run_until(lambda: not left_on(cluster), 60)
    driver.run(10)
    assert driver.phase == 'PINNED' and 'norebalance' not in cluster.flags


def test_nothing_is_written_again_and_again() -> None:
    driver = releasing()
    cluster = driver.cluster
    closed(driver)
    driver.run(20)
    cluster.backfill_seconds = 1e6
    cluster.mark_out(0)
    driver.run(20)
    writes = cluster.fault.count
    driver.run(60)
    assert cluster.fault.count - writes < 6


@pytest.mark.parametrize('failed', [False, True])
def test_without_a_campaign_no_pin_is_recommended(failed: bool) -> None:
    driver = big()
    driver.cluster.backfill_seconds = 1e6
    if failed:
        driver.cluster.take_down(0)
    driver.cluster.mark_out(0)
    driver.run(10)
    assert driver.cluster.remapped() and codes(driver.status) == ['NO_CAMPAIGN']
    driver.ask('prepare', accept=RISKS)
    driver.run_to('PREPARED')
    # What the dry run of "campaign pin" says.
    assert driver.cluster.remapped() and driver.preview['remapped'] == 0


def test_a_campaign_may_be_finished_meanwhile() -> None:
    driver = big(max_unpinnable_ratio=0.02)
    driver.to_pinned()
    driver.cluster.backfill_seconds = 1e6
    driver.cluster.mark_out(0)
    driver.run(10)
    driver.ask('finish', keep=True)
    driver.run_to('DONE')


def test_a_change_of_a_pool_pins_what_others_remap_and_so_lets_an_osd_be_emptied() -> None:
    """norebalance would keep them there, and the change waits until they have left."""
    names = [rule.name for rule in RULES]
    cluster = RuledCluster(rule=names.index('racks'), pgs=24)
    driver = Driver(cluster)
    driver.order('rule', 'rep', 'hosts')
    driver.run_until(lambda: driver.loop.rebalance.campaign.holds.prepared, 20)
    cluster.config[BALANCER] = 'true'
    driver.run(8)
    assert driver.phase == 'PINNING' and 'BALANCER_ON' in codes(driver.status)
    for osd in (1, 3, 9):
        cluster._weigh(osd, 30.0)
    cluster.place()
    driver.run(4)
    cluster.mark_out(4)
    driver.run(5)
    cluster.config[BALANCER] = 'false'
    driver.run_to('DONE', 600)
    assert not any(4 in pg.data for pg in cluster.pg.values())


# ---- reweights between 0 and 1

def reweighted(*osds: int, accept: Tuple[str, ...] = ()) -> Tuple[Driver, RetryingCluster]:
    """Upmaps lead to OSDs which CRUSH rejects for their PGs, since they were reweighted long ago.
    Then `osds` are as well, whose PGs leave them, and a campaign is prepared."""
    cluster = RetryingCluster(hosts=12, pgs=64, backfill_seconds=20.0)
    old = range(0, 12, 2)
    for osd in old:
        cluster.reweigh(osd, 0.85)
    driver = Driver(cluster, replace(OPTIONS, max_pgs_in_flight=2))
    driver.run_until(cluster.clean)
    for pgid, pg in cluster.pg.items():
        for osd in old:
            if osd not in (*pg.mon.raw, *pg.up) and cluster.rejects(osd, pgid):
                cluster.add_upmap(pgid, pg.mon.raw[1], osd)
                break
    driver.run_until(cluster.clean)
    for osd in osds:
        cluster.reweigh(osd, 0.4)
    driver.run(3)
    driver.ask('prepare', accept=accept)
    driver.run_to('PREPARED')
    return driver, cluster


@pytest.mark.parametrize('failover', [False, True])
def test_reweights_from_before_the_campaign_empty_no_osds(failover: bool) -> None:
    """The mons drop many of the upmaps as CRUSH changes, and the PGs would all move at once."""
    driver, cluster = reweighted()
    before = len(cluster.moved)
    cluster.add_osds(4, 1.0)
    driver.run(3)
    if failover:
        driver.restart()
        driver.turn()
    assert any(cluster.rejects(osd, pgid) for pgid in cluster.remapped()
               for osd in {*cluster.pg[pgid].data} - {*cluster.pg[pgid].up})
    driver.ask('pin')
    driver.run_to('PINNED')
    driver.run(40)
    assert 'norebalance' in cluster.flags and len(cluster.moved) == before
    cluster.most_moving, cluster.backfill_seconds = 0, 4.0
    driver.ask('start')
    driver.run_to('DONE', 1500)
    assert cluster.most_moving <= 2


def leaving(cluster: RetryingCluster, osd: int) -> FrozenSet[str]:
    """Remapped PGs that leave the OSD."""
    return frozenset(pgid for pgid in cluster.remapped()
                     if osd in cluster.pg[pgid].data and osd not in cluster.pg[pgid].up)


@pytest.mark.parametrize('osd', [2, 3])
def test_a_reweight_that_is_lowered_in_mid_campaign_counts(osd: int) -> None:
    """Also of an OSD that had a reweight below 1 before."""
    driver, cluster = reweighted()
    cluster.add_osds(4, 1.0)
    driver.run(3)
    driver.ask('pin')
    driver.run_to('PINNED')
    cluster.reweigh(osd, 0.4)
    driver.run_until(lambda: 'norebalance' not in cluster.flags, 15)
    pgs = leaving(cluster, osd)
    assert pgs and 'EVACUATING' in codes(driver.status)
    driver.run_until(lambda: not leaving(cluster, osd), 60)
    assert pgs <= {moved.pgid for moved in cluster.moved}


@pytest.mark.parametrize('failover', [False, True])
def test_an_old_reweight_that_was_raised_and_lowered_again_counts(failover: bool) -> None:
    """Meanwhile the OSD got PGs that CRUSH rejects by the old reweight."""
    cluster = RetryingCluster(hosts=12, pgs=64, backfill_seconds=4.0)
    cluster.reweigh(2, 0.5)
    driver = Driver(cluster, replace(OPTIONS, max_pgs_in_flight=2))
    driver.run_until(cluster.clean)
    driver.ask('prepare')
    driver.run_to('PREPARED')
    cluster.add_osds(4, 1.0)
    driver.run(3)
    driver.ask('pin')
    driver.run_to('PINNED')
    cluster.reweigh(2, 1.0)
    driver.run(3)
    driver.ask('start')
    driver.run_until(lambda: sum(2 in pg.data and cluster.rejects(2, pgid, 0.5)
                                 for pgid, pg in cluster.pg.items()) > 4, 1000)
    cluster.backfill_seconds = 200.0
    if failover:
        driver.restart()
        driver.turn()
    cluster.reweigh(2, 0.5)
    driver.run(10)
    pgs = leaving(cluster, 2)
    assert driver.phase == 'RELEASING' and len(pgs) > 2
    assert pgs.isdisjoint(driver.loop.rebalance.pins) and 'EVACUATING' in codes(driver.status)


@pytest.mark.parametrize('osd', [2, 3])
def test_pgs_that_leave_as_a_campaign_begins_are_not_kept(osd: int) -> None:
    driver, cluster = reweighted(osd, accept=RISKS)
    pgs = leaving(cluster, osd)
    cluster.backfill_seconds = 200.0
    driver.ask('pin')
    driver.run_to('PINNED')
    driver.run(10)
    assert pgs and leaving(cluster, osd) == pgs and 'norebalance' not in cluster.flags


@pytest.mark.parametrize('osd', [2, 3])
def test_a_reweight_that_is_lowered_just_before_a_campaign_counts(osd: int) -> None:
    """Its PGs are yet to peer, and the OSDMap does not show that they leave. Also if the OSD had a
    reweight below 1 before."""
    cluster = RetryingCluster(hosts=12, pgs=64, backfill_seconds=200.0, lag=1)
    cluster.reweigh(2, 0.8)
    driver = Driver(cluster, replace(OPTIONS, max_pgs_in_flight=2))
    driver.run_until(cluster.clean)
    driver.run(130)
    cluster.reweigh(osd, 0.4)
    driver.turn()
    assert not driver.loop._observing.observe()[0].osdmap.pg_temp
    driver.ask('prepare', accept=RISKS)
    driver.run_to('PREPARED')
    driver.run(5)
    pgs = leaving(cluster, osd)
    driver.ask('pin')
    driver.run_to('PINNED')
    driver.run(5)
    assert len(pgs) > 4 and leaving(cluster, osd) == pgs and 'norebalance' not in cluster.flags


def emptying(reweight: float) -> Tuple[Driver, RetryingCluster, FrozenSet[str]]:
    """PGs leave osd.2 slowly, and four OSDs are new."""
    cluster = RetryingCluster(hosts=12, pgs=64, backfill_seconds=4.0)
    cluster.add_osds(4, 0.0)
    driver = Driver(cluster, replace(OPTIONS, max_pgs_in_flight=2))
    driver.run_until(cluster.clean)
    cluster.backfill_seconds = 200.0
    cluster.reweigh(2, reweight)
    driver.run(5)
    return driver, cluster, leaving(cluster, 2)


@pytest.mark.parametrize('reweight', [0.4, 0.0])
@pytest.mark.parametrize('verb', ['expand', 'drain'])
def test_a_change_keeps_no_pg_on_an_osd_that_it_leaves(verb: str, reweight: float) -> None:
    """Of PGs that leave an OSD, the change moves some as well, or empties the OSD that they were
    moving to: the copies on the first OSD go where CRUSH will place them, and the others stay."""
    driver, cluster, pgs = emptying(reweight)
    before = len(cluster.moved)
    drained = max(cluster.toys, key=lambda osd: sum(
        osd in cluster.pg[pgid].up and osd not in cluster.pg[pgid].data for pgid in pgs))
    arriving = {pgid for pgid in pgs
                if drained in cluster.pg[pgid].up and drained not in cluster.pg[pgid].data}
    if verb == 'expand':
        driver.order('expand', weight='1.0', accept=RISKS)
    else:
        driver.order('drain', 'osd.%d' % drained, accept=RISKS)
    driver.run_to('PINNED')
    driver.run(10)
    assert leaving(cluster, 2) == pgs and not cluster.moved[before:]
    assert all({*cluster.pg[pgid].up}.issuperset({*cluster.pg[pgid].data} - {2}) for pgid in pgs)
    if verb == 'expand':
        raws = {pgid: cluster.raw_under(pgid, cluster.toys) for pgid in pgs}
        assert sum(not {12, 13, 14, 15}.isdisjoint(raw) for raw in raws.values()) > 4
    else:
        assert len(arriving) > 2 and not any(drained in cluster.pg[pgid].up for pgid in arriving)
    cluster.backfill_seconds = 4.0
    driver.run_to('DONE', 900)
    assert cluster.clean()


@pytest.mark.parametrize('seconds', [3, 57, 100])
def test_the_osds_are_known_as_they_were_a_minute_ago(seconds: int) -> None:
    cluster = RetryingCluster(hosts=4, pgs=4)
    driver = Driver(cluster)
    driver.run(seconds)
    cluster.reweigh(2, 0.5)
    reweights = []
    for _ in range(130):
        reweights.append(driver.loop._observing.observe()[0].osds_before[2].reweight)
        driver.turn()
    assert set(reweights[:60]) == {1.0} and set(reweights[120:]) == {0.5}


def test_a_campaign_that_takes_over_pins_knows_which_reweights_were_lowered() -> None:
    driver, cluster = reweighted()
    cluster.add_osds(4, 1.0)
    driver.run(3)
    driver.ask('pin')
    driver.run_to('PINNED')
    cluster.backfill_seconds = 200.0
    for osd in (2, 3):
        cluster.reweigh(osd, 0.4)
    driver.run_until(lambda: bool(leaving(cluster, 2) and leaving(cluster, 3)))
    driver.ask('abort')
    driver.run_to('ABORTED')
    campaign = driver.loop.rebalance.campaigns.begin(driver.loop._observing.observe()[0])
    assert campaign.crush.reweights == dict.fromkeys(range(0, 12, 2), 0.85)


def test_reweights_from_before_an_ended_campaign_do_not_count() -> None:
    """Also in the same OSDMap: the next campaign may begin with it."""
    driver, cluster = reweighted()
    cluster.add_osds(4, 1.0)
    driver.run(3)
    observing, campaigns = driver.loop._observing, driver.loop.rebalance.campaigns
    assert not observing.observe()[0].evacuation
    campaigns.current = replace(campaigns.current, phase=Phase.DONE)
    assert observing.observe()[0].evacuation
