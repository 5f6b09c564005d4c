# SPDX-License-Identifier: LGPL-2.1-or-later
"""What is wrong elsewhere holds no release; what touches a release does."""
from dataclasses import replace
from typing import Dict, FrozenSet, Iterable, List, Mapping, Sequence, Set, Tuple

import pytest

from perfguard.cluster.orchestrator import Orchestrating
from perfguard.cluster.types import (ClientOps, Ops, OsdMap, PgCounts, Readings, Signals,
                                     UpmapEntry, pool_of)
from perfguard.errors import Reason, Refused
from perfguard.observation import Clients
from perfguard.rebalance.change import ChangeStage
from perfguard.rebalance.draft import Draft
from perfguard.rebalance.moves import Move
from perfguard.rebalance.releasing import (all_stops, burdened_osds, concerns, failing_osds,
                                           follow_accepted)
from perfguard.rebalance.types import Flight
from perfguard.rebalance.weights import WeightChange
from perfguard.watch.stop_conditions import ABSENT_SECONDS, LASTING, WAIVABLE, Stop

from ..fakes.campaigns import changed
from ..fakes.cluster import FakeCluster
from ..fakes.driver import OPTIONS, Driver, codes
from ..fakes.mon_model import ToyOsd
from ..fakes.ruled_cluster import RULES, Rule, RuledCluster
from ..fakes.straw_cluster import StrawCluster


def on_osds(driver: Driver, osds: Set[int], **counts: int) -> None:
    """PGs in trouble whose acting sets are these OSDs."""
    cluster = driver.cluster
    cluster.trouble = {name: number for name, number in counts.items()}
    cluster.read = replace(cluster.read, osd_counts={
        osd: PgCounts(total=9, **(counts if osd in osds else {})) for osd in cluster.toys})


def touched(driver: Driver) -> Dict[str, Set[int]]:
    """PG that is pinned -> OSDs that its release burdens."""
    return {pgid: {*move.sources, *move.targets, *move.readers, move.primary}
            for pgid, move in driver.loop.rebalance.release_moves.moves.items()}


def test_an_osd_that_is_full_is_emptied() -> None:
    driver = Driver()
    driver.cluster.fullness = {0: 'full'}
    driver.cluster.health = {'OSD_FULL': '1 full osd(s)', 'POOL_FULL': '2 pool(s) full'}
    driver.to_releasing()
    driver.run_to('DONE')
    assert len(driver.cluster.moved) == 12
    assert any(0 not in moved.up for moved in driver.cluster.moved)


@pytest.mark.parametrize('fullness', ['nearfull', 'backfillfull', 'full'])
def test_nothing_is_released_onto_an_osd_that_is_full(fullness: str) -> None:
    driver = Driver()
    driver.cluster.fullness = {8: fullness}
    driver.to_releasing()
    driver.run_until(lambda: driver.status['in_flight'] == 0)
    assert driver.cluster.moved and all(8 not in moved.up for moved in driver.cluster.moved)
    assert driver.phase == 'RELEASING' and 'TARGET_FULL' in codes(driver.status)
    driver.cluster.fullness = {}
    driver.run_to('DONE')
    assert any(8 in moved.up for moved in driver.cluster.moved)


@pytest.mark.parametrize('bad', [0, 3, 7])
@pytest.mark.parametrize('counts', [{'degraded': 1}, {'inactive': 1}])
def test_only_releases_that_touch_the_osds_wait(counts: Dict[str, int], bad: int) -> None:
    driver = Driver()
    driver.to_pinned()
    ways = touched(driver)
    waiting = {pgid for pgid, osds in ways.items() if bad in osds}
    assert 0 < len(waiting) < len(ways)
    on_osds(driver, {bad}, **counts)
    driver.ask('start')
    driver.run_until(lambda: driver.status['released'] == len(ways) - len(waiting))
    driver.run(3)
    assert {moved.pgid for moved in driver.cluster.moved} == set(ways) - waiting
    assert driver.phase == 'HOLDING' and driver.status['pinned'] == len(waiting)
    on_osds(driver, set())
    driver.run_to('DONE')


def test_slow_operations_elsewhere_hold_nothing() -> None:
    driver = Driver()
    driver.to_pinned()
    spare = max(driver.cluster.toys) + 1
    driver.cluster.slow_ops, driver.cluster.slow_daemons = 3, {'osd.%d' % spare: 3}
    driver.ask('start')
    driver.run_to('DONE')


@pytest.mark.parametrize('code, counts', [
    ('DEGRADED', {'degraded': 3}), ('LAGGY', {'laggy': 2}), ('INACTIVE', {'inactive': 1})])
def test_what_is_acknowledged_stops_nothing_until_the_campaign_ends(
        code: str, counts: Dict[str, int]) -> None:
    driver = Driver()
    driver.to_pinned()
    driver.cluster.trouble = counts
    driver.ask('start')
    driver.run_until(lambda: code in codes(driver.status))
    assert driver.phase == 'HOLDING' and driver.status['acknowledged'] == []
    driver.ask('accept', code=code)
    driver.turn()
    assert any(event['what'] == 'campaign accept ' + code
               for event in driver.loop.published.events)
    driver.restart()
    driver.turn()
    driver.run_until(lambda: driver.status['in_flight'] > 0)
    assert driver.status['acknowledged'] == [code]
    driver.run_to('DONE')
    assert driver.status['acknowledged'] == []


def test_what_is_muted_stops_nothing() -> None:
    driver = Driver()
    driver.to_pinned()
    driver.cluster.trouble = {'degraded': 3}
    driver.ask('start')
    driver.run_to('HOLDING')
    driver.cluster.muted = {'PG_DEGRADED'}
    driver.run_to('DONE')


@pytest.mark.parametrize('muted', [False, True])
def test_no_waiver_releases_a_pg_that_is_degraded(muted: bool) -> None:
    driver = Driver()
    driver.to_pinned()
    cluster = driver.cluster
    degraded = set(sorted(driver.loop.rebalance.pins)[:3])
    cluster.degraded = set(degraded)
    cluster.report()
    driver.ask('start')
    driver.run_to('HOLDING')
    if muted:
        cluster.muted = {'PG_DEGRADED'}
    else:
        driver.ask('accept', code='DEGRADED')
    driver.run_until(lambda: driver.status['released'] > 0 and not driver.status['in_flight'])
    driver.run(20)
    moved = {one.pgid for one in cluster.moved}
    assert moved and moved.isdisjoint(degraded)
    assert driver.phase == 'RELEASING' and 'DEGRADED' in codes(driver.status)
    cluster.degraded = set()
    driver.run_to('DONE')


#: The rules of two pools: on the same hosts, and on others.
CLASSES, ROOTS = ('hosts-ssd', 'hosts-hdd'), ('east', 'west')


class TwoRules(RuledCluster):
    """Two pools on different OSDs, the first of which has clients."""
    factor = 1.0

    def __init__(self, names: Sequence[str]) -> None:
        self.period = 5.0
        numbers = [[rule.name for rule in RULES].index(name) for name in names]
        super().__init__(rule=numbers[0])
        self.set_rule(2, numbers[1])
        self._crush_changed()

    def osds_of(self, pool: int) -> Set[int]:
        rule = RULES[self.rules[pool]]
        return {osd for osd, toy in self.toys.items() if rule.takes(osd, toy)}

    def _raw(self, pgid: str, toys: Mapping[int, ToyOsd], rule: Rule) -> List[int]:
        """A drained OSD is chosen no more, although it is the only one of its class in its host."""
        return super()._raw(pgid, {osd: toy for osd, toy in toys.items()
                                   if toy.crush_weight > 0.001}, rule)

    def signals(self, osdmap: OsdMap) -> Signals:
        return replace(super().signals(osdmap), pool_counts={
            pool: self._counted(pgid for pgid in self.pg if pool_of(pgid) == pool)
            for pool in (1, 2)})

    def _counted(self, pgids: Iterable[str]) -> PgCounts:
        found = [self.pg[pgid].temp is not None for pgid in pgids]
        return PgCounts(total=len(found), remapped=sum(found))

    def readings(self, view: object, signals: Signals) -> Readings:
        counts = {osd: self._counted(pgid for pgid, pg in self.pg.items() if osd in (
            pg.up if pg.temp is None else pg.temp)) for osd in self.toys}
        ops = Ops(int(1000 * self.factor * 1e6), 1000)
        return Readings(seconds=5.0, counters={}, places={}, osd_counts=counts, clients=tuple(
            ClientOps(1, osd, ops, ops) for osd in self.osds_of(1)))


class SlowPool(Driver):
    cluster: TwoRules


def slow_pool(names: Sequence[str] = CLASSES, mode: str = 'act') -> SlowPool:
    """Pool 1 is slow, for its own reasons, and no data moves."""
    cluster = TwoRules(names)
    driver = SlowPool(cluster, replace(OPTIONS, mitigation_mode=mode, mitigation_seconds=5.0,
                                       baseline_seconds=30.0))
    for factor, turns in ((1.0, 40), (20.0, 30)):
        cluster.factor = factor
        for _ in range(turns):
            driver.turn(5.0)
    assert driver.loop.status()['health'] == ['PERFGUARD_LATENCY']
    cluster.moved.clear()
    return driver


def drain(driver: SlowPool, pool: int) -> None:
    """By another hand: an OSD of the pool."""
    cluster = driver.cluster
    cluster.weigh(next(osd for osd in cluster.osds_of(pool) if any(
        osd in pg.up for pgid, pg in cluster.pg.items() if pool_of(pgid) == pool)), 0.0001)
    driver.run_until(lambda: bool(cluster.remapped()))


def drained(driver: SlowPool, pool: int) -> None:
    """In a campaign."""
    driver.ask('prepare')
    driver.run_to('PREPARED')
    drain(driver, pool)
    driver.ask('pin')
    driver.run_to('PINNED')
    driver.ask('start')


def mitigations(driver: Driver) -> Dict[str, str]:
    listing = driver.loop.published.mitigated.listing
    return {row.rung.value: row.state for row in listing.rungs}


@pytest.mark.parametrize('names, mode', [(CLASSES, 'observe'), (ROOTS, 'act')])
def test_a_pool_that_is_slow_elsewhere_holds_nothing(names: Sequence[str], mode: str) -> None:
    """Its clients may do larger operations than before: the alarm lasts for days. The throttle
    judges what movement on the same hosts does to it."""
    driver = slow_pool(names, mode)
    drained(driver, 2)
    phases: Set[str] = set()
    for _ in range(2000):
        driver.turn()
        phases.add(driver.phase)
        assert mitigations(driver)['norebalance'] == 'idle' or mode == 'observe'
        if driver.phase == 'DONE':
            break
        assert driver.phase != 'HOLDING' or codes(driver.status)[0] != 'SLOW_POOL'
    assert driver.phase == 'DONE' and driver.cluster.moved, phases
    assert driver.loop.status()['health'] == ['PERFGUARD_LATENCY']


def test_a_pool_that_is_slow_where_data_moves_holds_it() -> None:
    driver = slow_pool()
    drained(driver, 1)
    driver.run(100)
    assert driver.phase == 'HOLDING' and 'SLOW_POOL' in codes(driver.status)
    assert not driver.cluster.moved


@pytest.mark.parametrize('names, pool, stopped', [
    (ROOTS, 1, True), (ROOTS, 2, False), (CLASSES, 1, True), (CLASSES, 2, True)])
@pytest.mark.parametrize('mode', ['act', 'observe'])
def test_movement_on_other_hosts_is_not_stopped_for_a_slow_pool(
        mode: str, names: Sequence[str], pool: int, stopped: bool) -> None:
    """OSDs of one host may share more than its network."""
    driver = slow_pool(names, mode)
    driver.cluster.backfill_seconds = 1e6
    drain(driver, pool)
    driver.run(30)
    taken = {'act': 'held', 'observe': 'would'}[mode]
    states = {rung: state for rung, state in mitigations(driver).items() if state != 'idle'}
    assert states == ({'norebalance': taken, 'slow recovery': taken} if stopped else {})
    assert ('norebalance' in driver.cluster.flags) == (mode == 'act' and stopped)


def test_a_pool_has_data_where_its_rule_leads_and_where_its_clients_are_served() -> None:
    driver = slow_pool()
    seen, _ = driver.loop._observing.observe()
    row = ClientOps(2, 3, Ops(1, 1), Ops())
    seen = replace(seen, clients=Clients(1.0, rows=(row, row._replace(osd=5, read=Ops()))))
    assert seen.osds_of({2, 9}) == {2: driver.cluster.osds_of(2) | {3}, 9: set()}
    assert seen.osds_of(()) == {}


@pytest.mark.parametrize('code', sorted(set(WAIVABLE) - set(LASTING)))
def test_an_accepted_condition_that_was_absent_for_ten_minutes_stops_releases_again(
        code: str) -> None:
    driver = Driver()
    driver.to_pinned()
    driver.ask('accept', code=code)
    driver.turn()
    driver.cluster.now += ABSENT_SECONDS - 10.0
    driver.turn()
    assert driver.status['acknowledged'] == [code]
    driver.restart()
    driver.turn()
    driver.cluster.now += 10.0
    driver.run(2)
    assert driver.status['acknowledged'] == []
    assert [event['what'] for event in driver.loop.published.events
            if event['kind'] == 'accept'] == [
                'campaign 1: %s stops releases again if it recurs' % code]


def test_a_condition_that_lasts_or_recurs_stays_accepted() -> None:
    driver = Driver()
    driver.to_pinned()
    driver.ask('accept', code='DEGRADED')
    for degraded in (1, 0, 1, 0, 0):
        driver.cluster.trouble = {'degraded': degraded}
        driver.turn()
        reasons = [text for text in driver.status['reasons'] if 'was accepted' in text]
        assert reasons == (['1 PG is degraded; DEGRADED was accepted, and stops no release until '
                            'it has been absent for 10 minutes'] if degraded else [])
        driver.cluster.now += ABSENT_SECONDS - 10.0
        assert driver.status['acknowledged'] == ['DEGRADED']
    driver.run(2)
    assert driver.status['acknowledged'] == []
    # An incident that has nothing to do with the one that was accepted.
    driver.cluster.trouble = {'degraded': 5000}
    driver.ask('start')
    driver.run(10)
    assert driver.phase == 'HOLDING' and codes(driver.status)[0] == 'DEGRADED'


@pytest.mark.parametrize('image, kept', [('ceph:20', True), ('', False)])
def test_an_accepted_upgrade_lasts_until_it_has_ended(image: str, kept: bool) -> None:
    """The condition is present only while OSDs are down for it."""
    driver = Driver()
    driver.to_releasing()
    campaign = changed(driver.loop.rebalance.campaign, acknowledged=('UPGRADE',),
                       absent={'UPGRADE': 1.0})
    seen = replace(driver.loop._observing.observe()[0], orchestrating=Orchestrating(image=image))
    draft = follow_accepted(Draft.of(campaign, {}, {}, seen, driver.options))
    assert draft.campaign.orders.acknowledged == (('UPGRADE',) if kept else ())


@pytest.mark.parametrize('reporting, stopped', [
    ((1,), {1, 8}), ((3,), {3, 8}), ((8,), {8}), ((5,), {5})])
def test_the_target_that_others_wait_for_receives_no_pg(reporting: Tuple[int, ...],
                                                        stopped: Set[int]) -> None:
    """Only primaries report slow operations, and a new OSD leads no PG."""
    driver = Driver()
    driver.to_releasing()
    flight = Flight(0.0, UpmapEntry(), sources=(3,), targets=(8,), primary=1)
    campaign = changed(driver.loop.rebalance.campaign, in_flight={'1.0': flight})
    report_slow_ops(driver, reporting)
    seen = driver.loop._observing.observe()[0]
    stop, = all_stops(Draft.of(campaign, {}, {}, seen, driver.options), frozenset())
    assert (stop.reason.code, stop.osds) == ('SLOW_OPS', stopped)


def test_limits_stay_accepted_until_the_campaign_ends() -> None:
    driver = Driver()
    driver.to_pinned()
    for code in LASTING:
        driver.ask('accept', code=code)
        driver.turn()
    driver.cluster.now += 7 * 86400.0
    driver.run(3)
    assert driver.status['acknowledged'] == list(LASTING)


@pytest.mark.parametrize('muted', [False, True])
def test_a_condition_of_the_mitigation_is_present_although_it_is_accepted(muted: bool) -> None:
    """It is no evidence for the mitigation any longer."""
    driver = Driver()
    driver.to_releasing()
    campaign = changed(driver.loop.rebalance.campaign, acknowledged=('SLOW_POOL',),
                       absent={'SLOW_POOL': 1.0})
    seen = driver.loop._observing.observe()[0]
    seen = replace(seen, accepted=(Reason('SLOW_POOL', 'writes of pool rbd are slow'),))
    if muted:
        seen = replace(seen, signals=replace(seen.signals, muted=frozenset({'PERFGUARD_LATENCY'})))
    draft = follow_accepted(Draft.of(campaign, {}, {}, seen, driver.options))
    assert draft.campaign.orders.acknowledged == ('SLOW_POOL',)
    assert not draft.campaign.orders.absent
    assert [reason.code for reason in draft.reasons] == ['ACCEPTED']


def test_an_order_is_judged_by_what_it_touches() -> None:
    driver = Driver()
    driver.cluster.add_waiting()
    driver.run(2)
    spare = max(driver.cluster.toys) + 1
    for osds, begins in (({0, 1, 2}, False), ({spare}, True)):
        on_osds(driver, osds, degraded=1)
        driver.cluster.read = replace(driver.cluster.read, osd_counts={
            osd: PgCounts(total=9, degraded=1) for osd in osds})
        driver.run(3)
        if begins:
            assert driver.order('expand')['campaign'] == 1
        else:
            with pytest.raises(Refused, match='degraded on osd.0'):
                driver.order('expand')


# ---- a drained OSD that fails

def drain_of_one() -> Driver:
    """A drain of osd.3, with PGs in flight."""
    driver = Driver(StrawCluster(hosts=10, pgs=24), replace(OPTIONS, max_pgs_in_flight=8))
    driver.run(3)
    driver.order('drain', 'osd.3')
    driver.run_until(lambda: driver.status['in_flight'] > 0)
    return driver


def report_slow_ops(driver: Driver, osds: Iterable[int]) -> None:
    driver.cluster.slow_daemons = {'osd.%d' % osd: 4 for osd in osds}
    driver.cluster.slow_ops = sum(driver.cluster.slow_daemons.values())


def test_slow_operations_of_a_failing_osd_do_not_stop_its_drain() -> None:
    """Those of the OSDs that lead its PGs are reported as well: they wait for it."""
    driver = drain_of_one()
    leaders = {pg.data[0] for pg in driver.cluster.pg.values() if 3 in pg.data}
    assert len(leaders - {3}) > 1
    report_slow_ops(driver, {3} | leaders)
    driver.run_to('DONE')
    assert not any(3 in pg.data for pg in driver.cluster.pg.values())


def test_slow_operations_of_others_stop_a_drain() -> None:
    """The drained OSD is as fast as its peers, so movement may be the cause."""
    driver = drain_of_one()
    report_slow_ops(driver, driver.cluster.toys.keys() - {3})
    driver.run_until(lambda: driver.status['in_flight'] == 0)
    driver.run(30)
    assert driver.phase == 'HOLDING' and driver.status['pinned'] > 0
    assert codes(driver.status) == ['SLOW_OPS']


@pytest.mark.parametrize('accept', [('SLOW_OPS',), ('DEGRADED', 'SLOW_OPS')])
def test_a_state_that_is_accepted_to_begin_still_stops_releases(accept: Tuple[str, ...]) -> None:
    driver = Driver(StrawCluster(hosts=10, pgs=24), OPTIONS)
    driver.run(3)
    report_slow_ops(driver, {3})
    driver.run(1)
    answer = driver.order('drain', 'osd.3', accept=accept)
    assert answer['campaign'] == 1 and answer['warnings'] == [
        'SLOW_OPS is accepted for the beginning of the campaign, and still stops releases: '
        '"campaign accept SLOW_OPS" ignores it']


def test_an_order_that_accepts_no_present_state_has_no_such_warning() -> None:
    driver = Driver(StrawCluster(hosts=10, pgs=24), OPTIONS)
    driver.run(3)
    assert driver.order('drain', 'osd.3', accept=('SLOW_OPS',))['warnings'] == []


FAILING = frozenset({3})


@pytest.mark.parametrize('code', ['SLOW_OPS', 'SLOW_POOL', 'OSD_LATENCY'])
@pytest.mark.parametrize('move, osds, failing, stopped', [
    # From osd.3 to osd.8, led by osd.1.
    (Move('1.0', (3,), (8,), 1, 1), {3}, FAILING, False),
    (Move('1.0', (3,), (8,), 1, 1), {1}, FAILING, False),
    (Move('1.0', (3,), (8,), 1, 1), {3}, frozenset(), True),
    (Move('1.0', (2,), (3,), 1, 1), {3}, FAILING, True),
    (Move('1.0', (2,), (8,), 1, 1), {1}, FAILING, True)])
def test_pgs_may_leave_a_failing_osd(code: str, move: Move, osds: Set[int], failing: FrozenSet[int],
                                     stopped: bool) -> None:
    assert concerns(Stop(Reason(code, 'x'), frozenset(osds), failing=failing), move) == stopped


@pytest.mark.parametrize('code, stopped', [
    ('SLOW_OPS', False), ('SLOW_POOL', True), ('OSD_LATENCY', True)])
def test_what_stops_a_pg_whose_target_is_slow_as_well(code: str, stopped: bool) -> None:
    """The target leads other PGs of the failing OSD, so its operations wait as well."""
    move = Move('1.0', (3,), (8,), 1, 1)
    assert concerns(Stop(Reason(code, 'x'), frozenset({8}), failing=FAILING), move) == stopped


@pytest.mark.parametrize('drained, reporting, slow, failing', [
    ((3, 4), (), frozenset(), set()), ((3, 4), (4, 5), frozenset(), {4}),
    ((3, 4), (3, 5), frozenset(), set()), ((3, 4), (), frozenset({3, 5}), {3}),
    ((), (3,), frozenset({4}), set())])
def test_drained_osds_fail_if_they_are_slow_on_their_own(
        drained: Tuple[int, ...], reporting: Sequence[int], slow: FrozenSet[int],
        failing: Set[int]) -> None:
    """Others, as osd.3 that a PG leaves, may be slow because they are drained, and stop releases as
    any OSD."""
    driver = Driver()
    driver.to_releasing()
    campaign = replace(driver.loop.rebalance.campaign,
                       change=WeightChange(ChangeStage.LANDED, drained=drained))
    flight = Flight(0.0, UpmapEntry(), sources=(3,), targets=(8,), primary=1)
    campaign = changed(campaign, in_flight={'1.0': flight})
    report_slow_ops(driver, reporting)
    seen = replace(driver.loop._observing.observe()[0], slow_osds=slow)
    draft = Draft.of(campaign, {}, {}, seen, driver.options)
    assert failing_osds(draft) == failing
    assert burdened_osds(draft, frozenset(failing)) == ({8} if 3 in failing else {1, 3, 8})
    left = {stop.reason.code: stop.failing for stop in all_stops(draft, frozenset(failing))}
    assert left == ({'SLOW_OPS': failing} if reporting else {})


# ---- what the campaign's own releases do

def test_pgs_that_recover_from_their_log_after_their_release_hold_nothing() -> None:
    """Nearly empty, they are degraded for a moment, and never remapped."""
    driver = Driver(FakeCluster(nearly_empty=True))
    driver.to_releasing()
    phases = set()
    while driver.phase != 'DONE':
        phases.add(driver.phase)
        driver.turn()
        assert driver.cluster.now < 3000
    assert 'HOLDING' not in phases


def test_a_pg_of_others_that_is_degraded_holds_what_it_touches_meanwhile() -> None:
    driver = Driver(FakeCluster(nearly_empty=True))
    driver.to_releasing()
    spare = max(driver.cluster.toys) + 1
    on_osds(driver, {0, 1, 2, spare}, degraded=9)
    driver.run(3)
    assert 'DEGRADED' in codes(driver.status)


def test_a_release_that_the_mons_refuse_for_good_is_given_up() -> None:
    driver = Driver()
    driver.to_pinned()
    driver.cluster.refuse = {prefix: 'EINVAL: osd.8 does not exist' for prefix in (
        'osd rm-pg-upmap-items', 'osd pg-upmap-items', 'osd rm-pg-upmap', 'osd pg-upmap')}
    driver.ask('start')
    driver.run_to('DONE', 1000)
    assert driver.status['released'] == 0 and driver.status['kept'] == 12
    assert len(driver.cluster.entries()) == 12 and driver.cluster.moved == []
    assert any('did not accept its release' in event['why']
               for event in driver.loop.published.events)


@pytest.mark.parametrize('target', ['crush', 'balanced'])
def test_a_pg_that_stays_unknown_freezes_nothing(target: str) -> None:
    driver = Driver(options=replace(OPTIONS, target=target))
    driver.ask('prepare')
    driver.run_to('PREPARED')
    driver.cluster.expand()
    driver.run_until(lambda: len(driver.cluster.remapped()) > 0)
    driver.cluster.trouble = {'inactive': 1, 'in_transition': 1, 'unreported': 1}
    driver.ask('pin')
    driver.run_to('PINNED')
    driver.ask('start')
    driver.run_to('DONE', 500)


def test_what_freezes_pinning_is_told() -> None:
    driver = Driver(options=replace(OPTIONS, stalled_after=60.0))
    driver.ask('prepare')
    driver.run_to('PREPARED')
    driver.cluster.expand()
    driver.run_until(lambda: len(driver.cluster.remapped()) > 0)
    driver.cluster.trouble = {'inactive': 20, 'in_transition': 20}
    driver.ask('pin')
    driver.run_until(lambda: 'PERFGUARD_STALLED' in driver.cluster.checks)
    assert driver.phase == 'PINNING' and 'PEERING' in codes(driver.status)
