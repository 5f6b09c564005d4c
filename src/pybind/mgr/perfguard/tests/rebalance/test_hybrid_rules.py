# SPDX-License-Identifier: LGPL-2.1-or-later
"""A pool under a rule for which the mons cancel every upmap: it moves by weights in small steps.
Mons that keep upmaps under it are found out with one pin."""
from dataclasses import replace
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple, Type

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.orchestrator import Orchestrating
from perfguard.cluster.ports import Future, Outlook
from perfguard.cluster.types import OsdMap, PgCounts, PoolSetting, Signals, pool_of
from perfguard.errors import Refused
from perfguard.observation import Observation, Settings
from perfguard.rebalance import tables
from perfguard.rebalance.campaign import TRIAL_KEPT, TRIAL_REFUSED
from perfguard.rebalance.moves import Caps
from perfguard.rebalance.requests import Request
from perfguard.rebalance.types import TINY_WEIGHT
from perfguard.rebalance.weights import WeightChange, same_weight
from perfguard.text import pgs

from ..fakes.cluster import FakeView, weights_of
from ..fakes.driver import OPTIONS, Driver, codes
from ..fakes.mon_model import ToyMon, ToyOsd
from ..fakes.straw_cluster import AuditedCluster

#: As with an SSD and an HDD in each site: the mons count three hosts where a step chooses two.
STEPS = [{'op': 'take', 'item': -1, 'item_name': 'default'},
         {'op': 'choose_firstn', 'num': 2, 'type': 'host'},
         {'op': 'choose_firstn', 'num': 1, 'type': 'osd'}, {'op': 'emit'},
         {'op': 'take', 'item': -1, 'item_name': 'default'},
         {'op': 'choose_firstn', 'num': -2, 'type': 'host'},
         {'op': 'choose_firstn', 'num': 1, 'type': 'osd'}, {'op': 'emit'}]
IN_FLIGHT = OPTIONS.max_pgs_in_flight


class CancellingMon(ToyMon):
    def legal(self, osds: Sequence[int]) -> bool:
        return False


class HybridCluster(AuditedCluster):
    """Pool 1 is under such a rule."""
    mons = CancellingMon

    def __post_init__(self) -> None:
        super().__post_init__()
        for pgid, pg in self.pg.items():
            if pool_of(pgid) == 1:
                self.pg[pgid] = replace(pg, mon=self.mons(self.toys, 3, pg.mon.raw))
        self._views = [self._view()]
        #: The most PGs of pool 1 that were remapped at a time, and the times each of them was.
        self.most, self.moves = 0, dict.fromkeys(self.pg, 0)
        self.alarmed = False

    def tick(self, seconds: float = 1.0) -> None:
        before = set(self.remapped())
        super().tick(seconds)
        now = set(self.remapped())
        self.alarmed = self.alarmed or 'PERFGUARD_UNPINNABLE' in self.checks
        self.most = max(self.most, sum(pool_of(pgid) == 1 for pgid in now))
        for pgid in now - before:
            self.moves[pgid] += 1

    def _view(self) -> FakeView:
        view = super()._view()
        pools = {**view.osdmap.pools, 1: replace(view.osdmap.pools[1], crush_rule=1)}
        return replace(view, osdmap=replace(view.osdmap, pools=pools))

    def crush(self, version: int) -> CrushRules:
        return self._rules(self._crush_of.get(version, self.toys))

    def crush_rules(self, crush_map: bytes) -> CrushRules:
        return self._rules({osd: self.toys[osd]._replace(crush_weight=weight)
                            for osd, weight in weights_of(crush_map).items()})

    def _rules(self, toys: Mapping[int, ToyOsd]) -> CrushRules:
        dump = ToyMon(dict(toys), 3, ()).crush_dump()
        return CrushRules.from_dump({**dump, 'rules': [*dump['rules'], {
            'rule_id': 1, 'rule_name': 'hybrid', 'type': 1, 'steps': STEPS}]})

    def outlook(self, osdmap: OsdMap, weights: Mapping[int, float], crush_map: Optional[bytes],
                whole: bool = False, setting: Optional[PoolSetting] = None) -> Outlook:
        future = super().outlook(osdmap, weights, crush_map, whole, setting)
        assert isinstance(future, Future)
        return replace(future, crush=self._rules({
            osd: toy._replace(crush_weight=weights.get(osd, toy.crush_weight))
            for osd, toy in self.toys.items()}))


class LaterCluster(HybridCluster):
    """Its mons keep upmaps under this rule."""
    mons = ToyMon  # type: ignore[assignment]


def expanding(osds: int = 4, kind: Type[HybridCluster] = HybridCluster,
              **options: Any) -> Tuple[Driver, Dict[str, Any]]:
    cluster = kind(pgs=32)
    cluster.add_osds(osds, 0.0)
    cluster.tick(5.0)
    driver = Driver(cluster, replace(OPTIONS, **options))
    return driver, driver.order('expand', weight='1.0', dry_run=True)


def cluster_of(driver: Driver) -> HybridCluster:
    assert isinstance(driver.cluster, HybridCluster)
    return driver.cluster


def test_the_preview_names_the_pool_and_asks_for_no_risk() -> None:
    _, shown = expanding()
    assert list(shown['moved_by_weights']) == ['rep'] and shown['risks'] == []
    number = shown['moved_by_weights']['rep']
    assert number == shown['unpinnable_pgs'] > 3 * IN_FLIGHT
    assert shown['tranches'] == -(-number // IN_FLIGHT)
    assert 'PGs of pool rep' in tables.order(shown)


@pytest.mark.parametrize('target', ['crush', 'balanced'])
def test_few_pgs_move_at_a_time(target: str) -> None:
    driver, shown = expanding(target=target)
    cluster = cluster_of(driver)
    before = {pgid: set(pg.up) for pgid, pg in cluster.pg.items()}
    driver.order('expand', weight='1.0')
    driver.run_to('DONE', 3000)
    assert 0 < cluster.most <= IN_FLIGHT and cluster.clean() and not cluster.wrong
    assert not cluster.alarmed
    assert {toy.crush_weight for toy in cluster.toys.values()} == {1.0}
    moves = [number for pgid, number in cluster.moves.items() if pool_of(pgid) == 1 and number]
    # PGs of which several shards move may do so in several tranches, and hardly any shard does.
    assert len(moves) == shown['moved_by_weights']['rep']
    assert sum(moves) <= 1.2 * sum(len(set(pg.up) - before[pgid])
                                   for pgid, pg in cluster.pg.items() if pool_of(pgid) == 1)
    assert all(list(pg.up) == cluster.raw_under(pgid, cluster.toys)
               for pgid, pg in cluster.pg.items() if pool_of(pgid) == 1)


def test_no_more_bytes_move_at_a_time_than_may_be_in_flight() -> None:
    _, shown = expanding()
    per_pg = shown['moved_by_weights']['rep'] // shown['tranches']
    assert per_pg > 1
    driver, shown = expanding(max_bytes_in_flight=1)
    cluster = cluster_of(driver)
    # One PG may have any size.
    assert shown['tranches'] == shown['moved_by_weights']['rep']
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status.get('tranche') == 4, 600)
    # Weights do not choose PGs one by one.
    assert 0 < cluster.most <= 2 < per_pg


@pytest.mark.parametrize('drained', [False, True])
def test_a_single_osd_takes_and_gives_few_pgs_at_a_time(drained: bool) -> None:
    cluster = HybridCluster(pgs=64, hosts=10)
    if not drained:
        cluster.add_osds(1, 0.0)
        cluster.tick(5.0)
    driver = Driver(cluster, replace(OPTIONS, max_pgs_in_flight=32, max_backfills_target=2,
                                     max_backfills_source=2))
    given: Any = ('drain', 'osd.3') if drained else ('expand',)
    weight = {} if drained else {'weight': '1.0'}
    shown = driver.order(*given, dry_run=True, **weight)
    assert shown['moved_by_weights']['rep'] >= 8 and shown['tranches'] >= 4
    driver.order(*given, **weight)
    driver.run_to('DONE', 3000)
    # Weights do not choose PGs one by one.
    assert 0 < cluster.most <= 4 and cluster.clean()


def test_a_stop_condition_stops_the_next_step() -> None:
    driver, _ = expanding()
    cluster = cluster_of(driver)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status.get('tranche') == 2 and not cluster.remapped(), 600)
    cluster.slow_ops = 5
    driver.run_until(lambda: driver.phase == 'HOLDING' or bool(cluster.remapped()), 60)
    weights = {osd: toy.crush_weight for osd, toy in cluster.toys.items()}
    driver.run(60)
    assert {osd: toy.crush_weight for osd, toy in cluster.toys.items()} == weights


def test_a_failover_and_an_abort_between_steps_move_nothing_more() -> None:
    driver, _ = expanding()
    cluster = cluster_of(driver)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status.get('tranche') == 3, 600)
    driver.restart()
    driver.run(3)
    driver.ask('abort')
    driver.run_to('ABORTED')
    assert cluster.most <= IN_FLIGHT
    driver.ask('resume')
    driver.run_to('DONE', 3000)
    assert cluster.most <= IN_FLIGHT and cluster.clean()


@pytest.mark.parametrize('phase, last', [('PINNING', False), ('RELEASING', False),
                                         ('RELEASING', True)])
def test_the_last_pgs_of_an_aborted_step_arrive(phase: str, last: bool) -> None:
    """They cannot be pinned back, and norebalance would keep the cluster unclean for good."""
    driver, shown = expanding()
    cluster = cluster_of(driver)
    driver.order('expand', weight='1.0')
    tranche = shown['tranches'] if last else 3
    driver.run_until(lambda: driver.status.get('tranche') == tranche and driver.phase == phase
                     and len(cluster.remapped()) > 1, 1500)
    moving = set(cluster.remapped())
    cluster.backfill_seconds = 60.0
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.run(3)
    assert 'norebalance' not in cluster.flags and set(cluster.remapped()) <= moving
    assert '%d PGs that cannot be pinned still move' % len(cluster.remapped()) in str(
        driver.status['reasons'])
    assert not driver.status['unpinnable']
    driver.run_until(lambda: cluster.clean(), 300)
    driver.run(3)
    assert driver.phase == 'ABORTED' and 'still move' not in str(driver.status['reasons'])
    assert not cluster.alarmed and cluster.most <= IN_FLIGHT
    cluster.backfill_seconds = 1.0
    driver.ask('resume')
    driver.run_to('DONE', 3000)
    assert cluster.most <= IN_FLIGHT and cluster.clean() and 'norebalance' not in cluster.flags


@pytest.mark.parametrize('others', [False, True])
def test_pgs_of_a_step_arrive_after_an_abort_though_fewer_may_be_in_flight_now(
        others: bool) -> None:
    driver, _ = expanding(max_pgs_in_flight=16)
    cluster = cluster_of(driver)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status.get('tranche') == 2 and driver.phase == 'RELEASING'
                     and len(cluster.remapped()) == 7, 1500)
    cluster.backfill_seconds = 60.0
    driver.options = replace(driver.options, max_pgs_in_flight=2)
    driver.run(3)
    if others:
        # More PGs than the step has moved: these would all move at once.
        for osd in sorted(cluster.toys)[-4:]:
            cluster.weigh(osd, 1.0)
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.run(3)
    assert ('norebalance' in cluster.flags) == others == bool(driver.status['unpinnable'])
    assert others or not cluster.alarmed
    assert others or '7 PGs that cannot be pinned still move' in str(driver.status['reasons'])


def test_mons_that_are_downgraded_are_found_out_without_a_failover() -> None:
    driver, _ = expanding(kind=LaterCluster)
    cluster = cluster_of(driver)
    driver.order('expand', weight='1.0')
    driver.run_to('DONE', 3000)
    assert driver.loop.rebalance.campaign.pinning.kept_rules
    for pgid, pg in cluster.pg.items():
        if pool_of(pgid) == 1:
            cluster.pg[pgid] = replace(pg, mon=CancellingMon(cluster.toys, 3, pg.mon.raw))
    cluster.add_osds(4, 0.0)
    cluster.tick(5.0)
    driver.run(3)
    assert not driver.order('expand', weight='1.0', dry_run=True)['moved_by_weights']
    moved = list(cluster.moved)
    driver.order('expand', weight='1.0')
    driver.run_to('PINNED')
    assert driver.status['unpinnable'] and cluster.moved == moved
    assert not driver.loop.rebalance.campaign.pinning.kept_rules
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.order('rollback')
    driver.run_to('DONE', 3000)
    assert driver.order('expand', weight='1.0', dry_run=True)['moved_by_weights']


@pytest.mark.parametrize('mixed', [False, True])
def test_pins_that_downgraded_mons_cancel_while_pgs_are_released_move_nothing(mixed: bool) -> None:
    """`mixed`: the new leader is the first of them."""
    driver, _ = expanding(kind=LaterCluster)
    cluster = cluster_of(driver)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.phase == 'RELEASING' and sum(
        pool_of(pgid) == 1 for pgid in driver.loop.rebalance.pins) > 3 * IN_FLIGHT, 600)
    cluster.mons_differ = mixed
    driver.run(3)
    for pgid, pg in cluster.pg.items():
        if pool_of(pgid) == 1:
            cluster.pg[pgid] = replace(pg, mon=CancellingMon(cluster.toys, 3, pg.mon.raw))
    cluster._map_changed()
    moved = len(cluster.moved)
    driver.run(3)
    assert 'norebalance' in cluster.flags
    driver.run(40)
    assert driver.phase == 'PINNED' and codes(driver.status) == ['UNPINNABLE']
    assert len(cluster.moved) <= moved + IN_FLIGHT
    driver.ask('start')
    driver.run_to('DONE', 3000)
    assert cluster.clean() and not any(cluster.entries().values())


def test_a_dry_run_of_pin_counts_the_pgs_of_which_the_mons_cancel_upmaps_as_unpinnable() -> None:
    cluster = HybridCluster(pgs=32)
    cluster.add_osds(4, 0.0)
    cluster.tick(5.0)
    driver = Driver(cluster)
    setattr(driver.loop, 'ask', lambda order, again=False: driver.give(order))
    driver.ask('prepare')
    driver.run_to('PREPARED')
    for osd in sorted(cluster.toys)[-4:]:
        cluster.weigh(osd, 1.0)
    driver.run(3)
    remapped = cluster.remapped()
    unpinnable = [pgid for pgid in remapped if pool_of(pgid) == 1]
    assert 0 < len(unpinnable) < len(remapped)
    assert driver.loop.dry_run(Request('pin'))[1:] == [
        '%s would be pinned where the data is' % pgs(len(remapped) - len(unpinnable)),
        '%s cannot be pinned and would move at once' % pgs(len(unpinnable))]
    assert sorted(row['pgid'] for row in driver.preview['unpinnable']) == sorted(unpinnable)
    shown = tables.release_preview(driver.preview).split('\n')
    assert 'cannot be pinned' in str(shown) and str(len(unpinnable)) in str(shown)
    driver.ask('pin')
    driver.run_to('PINNED')
    assert driver.status['pinned'] == len(remapped) - len(unpinnable)
    assert len(driver.status['unpinnable']) == len(unpinnable)


def test_a_dry_run_of_an_abort_names_the_pgs_that_arrive() -> None:
    driver, _ = expanding()
    cluster = cluster_of(driver)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status.get('tranche') == 3 and driver.status['in_flight'] > 1,
                     1500)
    cluster.backfill_seconds = 60.0
    setattr(driver.loop, 'ask', lambda order, again=False: driver.give(order))
    moving, pinned = len(cluster.remapped()), driver.status['pinned']
    assert driver.loop.dry_run(Request('abort'))[1:] == [
        '%d PGs that cannot be pinned would still move to where CRUSH places them' % moving,
        '%s would stay pinned until "campaign resume", "campaign rollback" or "campaign finish '
        '--keep"' % pgs(pinned)]
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.run(3)
    assert '%d PGs that cannot be pinned still move' % moving in str(driver.status['reasons'])
    assert driver.status['pinned'] == pinned


@pytest.mark.parametrize('in_flight', [False, True])
def test_an_aborted_and_resumed_step_raises_no_alarm(in_flight: bool) -> None:
    """PGs of a step are expected to move without pins, in flight or not yet."""
    driver, _ = expanding()
    cluster = cluster_of(driver)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status.get('tranche') == 3 and len(cluster.remapped()) > 1, 600)
    cluster.backfill_seconds = 90.0
    driver.run_until(lambda: not in_flight or driver.status['in_flight'] > 1, 60)
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.ask('resume')
    driver.run(30)
    assert cluster.remapped() and driver.phase == 'RELEASING' and not cluster.alarmed
    cluster.backfill_seconds = 1.0
    driver.run_to('DONE', 3000)
    assert cluster.most <= IN_FLIGHT and not cluster.alarmed


def test_many_pgs_that_others_remap_stay_when_the_campaign_is_aborted() -> None:
    """More than may be in flight would all move at once."""
    driver, _ = expanding()
    cluster = cluster_of(driver)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status.get('tranche') == 3 and driver.phase == 'RELEASING',
                     1500)
    cluster.backfill_seconds = 60.0
    for osd in sorted(cluster.toys)[-4:]:
        cluster.weigh(osd, 1.0)
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.run(3)
    assert 'norebalance' in cluster.flags and len(cluster.remapped()) > IN_FLIGHT


def serving(cluster: HybridCluster) -> Dict[str, FrozenSet[int]]:
    """The OSDs that have the data of each PG."""
    view = cluster.map_view()
    places = {pgid: view.placement(pgid) for pgid in cluster.pg}
    return {pgid: frozenset(place.acting) for pgid, place in places.items() if place is not None}


@pytest.mark.parametrize('tranche, caps, trouble', [
    (3, 4, ''), (6, 4, ''), (6, 4, 'failover'), (6, 4, 'abort'), (2, 16, '')])
def test_a_rollback_moves_in_small_steps_as_well(tranche: int, caps: int, trouble: str) -> None:
    driver, _ = expanding(max_pgs_in_flight=caps)
    cluster = cluster_of(driver)
    before = serving(cluster)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status.get('tranche') == tranche
                     and driver.phase == 'RELEASING', 1500)
    if caps > IN_FLIGHT:
        # The PGs without pins arrive, and most pins stay: the steps back are smaller.
        driver.options = replace(driver.options, max_pgs_in_flight=1)
        driver.run_until(lambda: bool(cluster.remapped()))
        driver.run_until(lambda: all(pool_of(pgid) == 2 for pgid in cluster.remapped()))
        driver.options = replace(driver.options, max_pgs_in_flight=IN_FLIGHT)
    assert driver.order('rollback', dry_run=True)['risks'] == []
    driver.order('rollback')
    driver.run_until(lambda: driver.phase == 'PINNING')
    cluster.alarmed = False
    there, moves = serving(cluster), dict.fromkeys(cluster.pg, 0)
    last, steps = there, 0
    while driver.phase != 'DONE':
        driver.turn()
        steps = max(steps, driver.status.get('tranche', 0))
        if trouble and steps == 3:
            if trouble == 'failover':
                driver.restart()
            else:
                driver.ask('abort')
                driver.run_to('ABORTED')
                driver.ask('resume')
            trouble = ''
        now = serving(cluster)
        for pgid in now:
            moves[pgid] += now[pgid] != last[pgid]
        last = now
    assert last == before and cluster.clean() and not cluster.wrong and not cluster.alarmed
    assert cluster.most <= caps and (steps > 2 or tranche == 3)
    assert {cluster.toys[osd].crush_weight for osd in sorted(cluster.toys)[-4:]} == {0.0}
    assert not any(cluster.entries().values())
    # Pinned PGs move once, with their release, and others where the weights require it: each shard
    # peers in its new place, goes back until it is copied, and arrives.
    assert all(moves[pgid] == (there[pgid] != before[pgid]) for pgid in moves if pool_of(pgid) == 2)
    assert sum(moves[pgid] for pgid in moves if pool_of(pgid) == 1) / 3 <= 1.2 * sum(
        len(there[pgid] - before[pgid]) for pgid in moves if pool_of(pgid) == 1)


def test_pins_are_released_if_others_end_a_rollback() -> None:
    """Another admin sets the weights while the pins of the plain pool wait for the last tranche."""
    driver, _ = expanding()
    cluster = cluster_of(driver)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status.get('tranche') == 6 and driver.phase == 'RELEASING',
                     1500)
    driver.order('rollback')
    driver.run_until(lambda: driver.status.get('tranche') == 2 and driver.phase == 'RELEASING'
                     and bool(driver.status['pinned']), 600)
    for osd in sorted(cluster.toys)[-4:]:
        # Far less than moves a PG.
        cluster.weigh(osd, cluster.toys[osd].crush_weight + 0.002)
    driver.run_to('DONE', 3000)
    assert not any(entry for pgid, entry in cluster.entries().items() if pool_of(pgid) == 2)
    assert cluster.clean()


def test_a_rollback_of_too_many_steps_is_a_risk(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, _ = expanding()
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status.get('tranche') == 6, 1500)
    monkeypatch.setattr('perfguard.rebalance.preview.STEPS_MAX', 1)
    with pytest.raises(Refused, match='cannot be pinned'):
        driver.order('rollback')


def test_a_drain_moves_in_small_steps_as_well() -> None:
    cluster = HybridCluster(pgs=32, hosts=10)
    driver = Driver(cluster)
    shown = driver.order('drain', 'osd.3', dry_run=True)
    assert shown['moved_by_weights']['rep'] > IN_FLIGHT and shown['risks'] == []
    driver.order('drain', 'osd.3')
    driver.run_to('DONE', 3000)
    assert 0 < cluster.most <= IN_FLIGHT and cluster.clean()
    assert not any(3 in pg.up for pg in cluster.pg.values())


def test_the_first_of_many_small_steps_moves_few_pgs() -> None:
    cluster = HybridCluster(pgs=256)
    cluster.add_osds(4, 0.0)
    cluster.tick(5.0)
    driver = Driver(cluster)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status.get('tranche') == 3, 300)
    assert 0 < cluster.most <= IN_FLIGHT and not cluster.alarmed


CAPS = Caps(pgs=100, bytes=1 << 60, source=2, primary=2, target=2, host=8, device=5, domain=16)


@pytest.mark.parametrize('osds, devices, caps, moving', [
    (range(4), {}, CAPS, 8), (range(4), {}, replace(CAPS, pgs=3), 3),
    (range(4), {}, replace(CAPS, bytes=7 << 30), 7), (range(4), {}, replace(CAPS, source=1), 4),
    # Four OSDs on one drive, three of four, and one of two drives.
    (range(4), dict.fromkeys(range(4), ['h:nvme0']), CAPS, 5),
    (range(4), dict.fromkeys(range(3), ['h:nvme0']), CAPS, 7),
    (range(4), {osd: ['h:nvme%d' % (osd // 2)] for osd in range(4)}, CAPS, 8),
    # Hosts of one OSD each.
    (range(4), {}, replace(CAPS, host=1), 4), (range(4), {}, replace(CAPS, domain=1), 4)])
def test_a_step_moves_as_many_pgs_as_all_caps_allow(
        osds: Sequence[int], devices: Mapping[int, Sequence[str]], caps: Caps,
        moving: int) -> None:
    cluster = HybridCluster(hosts=6)
    osdmap = cluster.map_view().osdmap
    observation = Observation(
        0.0, Signals(PgCounts()), Settings(osdmap, None), lambda pgid: None,
        cluster.crush(osdmap.crush_version), devices=devices)
    change = WeightChange(weights=dict.fromkeys(osds, TINY_WEIGHT), drained=tuple(osds))
    assert change.moving_at_once(caps, observation, ['1.0', '1.1'], pg_bytes=1 << 30) == moving


def test_a_step_changes_even_a_small_weight() -> None:
    step = WeightChange(weights={1: 0.005}).divided(1000, 1, {1: 0.004}).step
    assert not same_weight(step[1], 0.004) and step[1] < 0.0045


@pytest.mark.parametrize('ordered, stored, same', [
    # From 2,048 on, a 32-bit float has fewer digits than CRUSH keeps.
    (3725.29, 3725.2900390625, True), (3725.29, 3725.289794921875, False),
    (2047.99, 2047.989990234375, True), (30000.001, 30000.001953125, True),
    (1.81918, 1.8191680908203125, True), (1.81918, 1.8191375732421875, False),
    (0.0001, 6 / 65536, True), (0.0, 0.0, True), (0.0, 6 / 65536, False), (0.5, -1.0, False)])
def test_a_weight_is_in_force_once_crush_has_what_the_mons_make_of_it(
        ordered: float, stored: float, same: bool) -> None:
    assert same_weight(stored, ordered) == same_weight(ordered, stored) == same


def test_a_change_of_too_many_steps_is_a_risk(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, shown = expanding(max_pgs_in_flight=1)
    assert shown['risks'] == [] and shown['tranches'] == shown['moved_by_weights']['rep']
    monkeypatch.setattr('perfguard.rebalance.preview.STEPS_MAX', 5)
    with pytest.raises(Refused, match='cannot be pinned'):
        driver.order('expand', weight='1.0')
    assert driver.phase == 'IDLE'


def tried(driver: Driver) -> List[str]:
    """PGs of pool 1 that were pinned."""
    return sorted({command['pgid'] for command in cluster_of(driver).sent
                   if command['prefix'].startswith('osd pg-upmap')
                   and pool_of(command['pgid']) == 1})


@pytest.mark.parametrize('failover', [False, True])
def test_one_pin_shows_that_the_mons_cancel_upmaps(failover: bool) -> None:
    driver, _ = expanding()
    cluster = cluster_of(driver)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: bool(tried(driver)))
    if failover:
        driver.restart()
    driver.run_to('DONE', 3000)
    assert len(tried(driver)) == 1 and not any(cluster.entries().values())
    assert cluster.clean() and not cluster.alarmed and not cluster.wrong


@pytest.mark.parametrize('failover', [False, True])
@pytest.mark.parametrize('target', ['crush', 'balanced'])
def test_pgs_are_pinned_once_the_mons_have_kept_one_pin(target: str, failover: bool) -> None:
    driver, shown = expanding(kind=LaterCluster, target=target)
    cluster = cluster_of(driver)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: bool(tried(driver)))
    tranche = driver.status['tranche']
    if failover:
        driver.restart()
        driver.turn()
    driver.run_until(lambda: driver.status['tranche'] > tranche and driver.phase == 'PINNED', 600)
    # All PGs that are left come with this tranche.
    assert {toy.crush_weight for toy in cluster.toys.values()} == {1.0}
    assert driver.status['tranches'] < shown['tranches'] and not cluster.remapped()
    assert sum(pool_of(pgid) == 1 for pgid in driver.loop.rebalance.pins) > 3 * IN_FLIGHT
    driver.run_to('DONE', 3000)
    assert 0 < cluster.most <= IN_FLIGHT and cluster.clean() and not cluster.wrong
    assert not cluster.alarmed and (target == 'balanced' or not any(cluster.entries().values()))


def test_an_upmap_of_another_admin_shows_nothing() -> None:
    driver, _ = expanding(kind=LaterCluster)
    cluster = cluster_of(driver)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: bool(tried(driver)))
    pgid = tried(driver)[0]
    raw, pin = cluster.pg[pgid].mon.raw, cluster.entries()[pgid]
    domains = {cluster.toys[osd].domain for osd in raw[1:]}
    cluster.set_upmap(pgid, [(raw[0], next(
        osd for osd, toy in cluster.toys.items() if toy.crush_weight == 1.0
        and toy.domain not in domains and osd not in {*raw, *pin.targets}))])
    theirs = cluster.entries()[pgid]
    driver.run_to('DONE', 3000)
    assert tried(driver) == [pgid] and cluster.most <= IN_FLIGHT + 1
    assert cluster.entries()[pgid] == theirs


def test_a_pin_that_was_refused_is_tried_no_more() -> None:
    """A later pin of this PG says nothing of the rule: the pool may have another one by then."""
    driver, _ = expanding()
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: bool(tried(driver)))
    driver.run_until(lambda: driver.status.get('tranche') == 3, 600)
    (checksum, result), = driver.loop.rebalance.campaign.pinning.trials.items()
    assert result == TRIAL_REFUSED
    pinning = replace(driver.loop.rebalance.campaign.pinning, trials={checksum: tried(driver)[0]})
    assert not pinning.tried(tried(driver)[0], TRIAL_REFUSED).kept_rules
    assert pinning.tried(tried(driver)[0], TRIAL_KEPT).kept_rules == {checksum}


def test_an_abort_tries_nothing() -> None:
    driver, _ = expanding()
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.phase == 'PINNING')
    assert not tried(driver)
    driver.ask('abort')
    driver.run_to('ABORTED')
    assert not tried(driver)


@pytest.mark.parametrize('mixed', [False, True])
def test_nothing_is_tried_in_an_upgrade(mixed: bool) -> None:
    """`mixed`: of packages, or a paused one, of which the orchestrator reports nothing."""
    driver, _ = expanding(kind=LaterCluster)
    cluster = cluster_of(driver)
    cluster.mons_differ = mixed
    if not mixed:
        cluster.orchestrator = Orchestrating(image='quay.io/ceph/ceph:v21')
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status.get('tranche') == 4, 600)
    assert not tried(driver)


@pytest.mark.parametrize('end', ['', 'abort', 'mons differ'])
def test_a_preview_knows_that_the_mons_keep_upmaps(end: str) -> None:
    """Also after the campaign that has found it out, as the next one does."""
    driver, _ = expanding(kind=LaterCluster)
    cluster = cluster_of(driver)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: bool(driver.loop.rebalance.campaign.pinning.kept_rules), 600)
    if end == 'abort':
        driver.ask('abort')
        driver.run_to('ABORTED')
    else:
        driver.run_to('DONE', 3000)
    cluster.mons_differ = end == 'mons differ'
    cluster.add_osds(1, 0.0)
    cluster.tick(5.0)
    driver.run(3)
    shown = driver.order('expand', weight='1.0', dry_run=True)
    kept = end != 'mons differ'
    assert shown['tranches'] == 1 or not kept
    assert (shown['moved_by_weights'] == {}, shown['unpinnable_pgs'] == 0) == (kept, kept)
    if not end:
        cluster.sent.clear()
        driver.order('expand', weight='1.0')
        driver.run_until(lambda: driver.phase == 'PINNED', 60)
        # None of them is a trial.
        assert len(tried(driver)) > 1 and not driver.status['unpinnable']
