# SPDX-License-Identifier: LGPL-2.1-or-later
"""Another CRUSH map under which PGs cannot stay: a rule has another failure domain, or hosts are in
another rack."""
import errno
import json
import re
from collections import Counter
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.ports import Future, Outlook
from perfguard.cluster.types import OsdMap, PoolSetting
from perfguard.errors import Refused
from perfguard.rebalance.orders import Order
from perfguard.rebalance.plans import APPROVE, SAVE, PlanOrder
from perfguard.rebalance.tables import order as table

from ..fakes.cluster import FakeReply
from ..fakes.driver import OPTIONS, Driver, codes
from ..fakes.mon_model import ToyOsd
from ..fakes.ruled_cluster import RULES, RuledCluster
from ..fakes.straw_cluster import StrawCluster
from .test_joining import whole_map
from .test_rule_change import number_of, sets

BALANCED = replace(OPTIONS, target='balanced')
Json = Dict[str, Any]


class MappedCluster(RuledCluster):
    """A CRUSH map is what each rule does, the rack of each host, and the weight of each OSD."""

    def __init__(self, rule: str = 'hosts', **kwargs: Any) -> None:
        #: By the id of a rule: its place in RULES.
        self.steps = list(range(len(RULES)))
        super().__init__(rule=number_of(rule), **kwargs)
        #: PGs that were remapped as a map was set.
        self.remapped_by_map: List[str] = []

    def rule_of(self, pool: int, steps: Optional[List[int]] = None) -> Any:
        return RULES[(steps or self.steps)[self.rules[pool]]]

    def raw_under(self, pgid: str, toys: Mapping[int, ToyOsd]) -> List[int]:
        return self._raw(pgid, toys, self.rule_of(int(pgid[0])))

    def crush(self, version: int) -> CrushRules:
        return self._crush_rules(self.steps)

    def map_with(self, steps: Mapping[str, str] = {}, racks: Mapping[int, int] = {},
                 weights: Mapping[int, float] = {}) -> bytes:
        """The present map with other steps for rules, racks for hosts, or weights for OSDs."""
        changed = list(self.steps)
        for rule, name in steps.items():
            changed[number_of(rule)] = number_of(name)
        return json.dumps({'steps': changed, 'racks': {
            **{toy.host: toy.rack for toy in self.toys.values()}, **racks}, 'weights': {
                **self._weights(), **weights}}).encode()

    def _read(self, crush_map: bytes) -> Tuple[List[int], Dict[int, ToyOsd]]:
        given = json.loads(crush_map)
        return given['steps'], {osd: toy._replace(
            rack=given['racks'][str(toy.host)], crush_weight=given['weights'][str(osd)])
                                for osd, toy in self.toys.items()}

    def crush_map(self) -> Tuple[bytes, int]:
        return self.map_with(), self.crush_version_

    def crush_rules(self, crush_map: bytes) -> CrushRules:
        return self._crush_rules(*self._read(crush_map))

    def outlook(self, osdmap: OsdMap, weights: Mapping[int, float], crush_map: Optional[bytes],
                whole: bool = False, setting: Optional[PoolSetting] = None) -> Outlook:
        if crush_map is None or self.no_tools:
            return super().outlook(osdmap, weights, None, whole, setting)
        steps, toys = self._read(crush_map)
        present = super().outlook(osdmap, weights, None, whole)
        assert isinstance(present, Future)
        pgs = {pgid: pg._replace(raw=tuple(self._raw(pgid, toys, self.rule_of(
            int(pgid[0]), steps)))) for pgid, pg in present.pgs.items()}
        return Future(pgs, self._crush_rules(steps, toys), crush_map)

    def _set_crush_map(self, command: Mapping[str, Any]) -> None:
        if command['prior_version'] != self.crush_version_:
            raise Refused(errno.EPERM, 'another version')
        self.steps, toys = self._read(command['input'])
        self.toys.update(toys)
        self.crush_version_ += 1
        self._place()
        for pgid, pg in self.pg.items():
            pg.mon.rule = self.rule_of(int(pgid[0]))  # type: ignore

    def run(self, commands: Sequence[Mapping[str, Any]]) -> List[FakeReply]:
        replies = super().run(commands)
        if any(command['prefix'] == 'osd setcrushmap' for command in commands):
            for pg in self.pg.values():
                pg.mon.next_epoch()
            self.remapped_by_map += [pgid for pgid, pg in self.pg.items()
                                     if tuple(pg.mon.up()) != tuple(pg.data)]
        return replies


Sets = Dict[str, Tuple[int, ...]]


def all_sets(cluster: MappedCluster) -> Sets:
    return {**sets(cluster), **sets(cluster, '2.')}


def broken(cluster: MappedCluster, pgs: Sets) -> int:
    """Shards that the rules of the pools do not allow to be there."""
    return sum(len(osds) - len({cluster.rule_of(int(pgid[0])).domain_of(osd, cluster.toys[osd])
                                for osd in osds}) for pgid, osds in pgs.items())


def shards_moved(before: Sets, after: Sets) -> int:
    """Those of the erasure-coded pool by position."""
    return sum(len(set(after[pgid]) - set(osds)) if pgid.startswith('1.') else
               sum(old != new for old, new in zip(osds, after[pgid]))
               for pgid, osds in before.items())


def most(shown: Json) -> int:
    """Shards that move, by the preview: before the map is set, and afterwards."""
    fewest, balanced = shown['crushmap']['least_moves'], shown['balanced']
    return int(fewest['shards_required'] + fewest['shards_extra'] + balanced['shards'])


def with_map(rule: str, given: bytes) -> MappedCluster:
    cluster = MappedCluster(rule)
    cluster._set_crush_map({'input': given, 'prior_version': cluster.crush_version_})
    return cluster


def maps_set(cluster: MappedCluster) -> int:
    return [command['prefix'] for command in cluster.sent].count('osd setcrushmap')


CHANGES: List[Tuple[str, Json]] = [
    ('hosts', {'steps': {'hosts': 'racks'}}), ('racks', {'racks': {1: 1, 4: 3}}),
    ('racks', {'racks': {1: 1, 2: 0}})]
RACKS = CHANGES[0][1]


@pytest.mark.parametrize('rule, change', CHANGES)
def test_what_must_not_stay_moves_before_the_map_is_set(rule: str, change: Json) -> None:
    cluster = MappedCluster(rule)
    driver, before = Driver(cluster, BALANCED), all_sets(cluster)
    given = cluster.map_with(**change)
    shown = driver.order('crushmap', crush_map=given, dry_run=True)
    assert not shown['unpinnable_pgs'] and not shown['risks']
    fewest = shown['crushmap']['least_moves']
    assert fewest['shards_required'] == broken(with_map(rule, given), before) > 0
    assert re.search('does not allow to stay *%d\n' % fewest['shards_required'], table(shown))
    driver.order('crushmap', crush_map=given)
    driver.run_until(lambda: bool(cluster.moved))
    assert not maps_set(cluster)
    driver.run_to('DONE')
    assert cluster.remapped_by_map == [] and cluster.clean() and maps_set(cluster) == 1
    assert cluster.most_unclean <= BALANCED.max_pgs_in_flight
    assert broken(cluster, all_sets(cluster)) == 0
    assert fewest['shards_required'] <= shards_moved(before, all_sets(cluster)) <= most(shown)


@pytest.mark.parametrize('turns', range(1, 40, 8))
def test_a_failover_repeats_nothing(turns: int) -> None:
    cluster = MappedCluster()
    driver, before = Driver(cluster, BALANCED), all_sets(cluster)
    shown = driver.order('crushmap', crush_map=cluster.map_with(**RACKS))
    driver.run(turns)
    driver.restart()
    driver.run_to('DONE')
    assert maps_set(cluster) == 1 and cluster.clean() and not cluster.remapped_by_map
    assert shards_moved(before, all_sets(cluster)) <= most(shown)


def test_after_an_abort_the_same_order_continues() -> None:
    cluster = MappedCluster()
    driver, given = Driver(cluster, BALANCED), cluster.map_with(**RACKS)
    shown = driver.order('crushmap', crush_map=given)
    driver.run_until(lambda: len(cluster.moved) >= 2)
    driver.ask('abort')
    driver.run_to('ABORTED')
    assert not maps_set(cluster) and cluster.clean()
    before = all_sets(cluster)
    again = driver.order('crushmap', crush_map=given)
    assert again['crushmap']['pgs'] < shown['crushmap']['pgs']
    driver.run_to('DONE')
    assert broken(cluster, all_sets(cluster)) == 0 and maps_set(cluster) == 1
    assert shards_moved(before, all_sets(cluster)) <= most(again)


def test_a_rollback_restores_the_map() -> None:
    cluster = MappedCluster()
    driver, present = Driver(cluster, BALANCED), cluster.map_with()
    driver.order('crushmap', crush_map=cluster.map_with(**RACKS))
    driver.run_until(lambda: maps_set(cluster) == 1)
    driver.run_to('RELEASING')
    driver.order('rollback')
    driver.run_to('DONE')
    assert cluster.map_with() == present and maps_set(cluster) == 2 and cluster.clean()
    assert not cluster.remapped_by_map


def test_another_change_of_crush_ends_it() -> None:
    cluster = MappedCluster()
    driver = Driver(cluster, BALANCED)
    driver.order('crushmap', crush_map=cluster.map_with(**RACKS))
    driver.run_until(lambda: bool(cluster.moved))
    moved = len(cluster.moved)
    cluster.weigh(3, 0.9)
    driver.run_to('HOLDING', 20)
    assert 'OVERTAKEN' in codes(driver.status)
    driver.run_to('ABORTED', 800)
    # No further PG was released for a map that cannot be set.
    assert not maps_set(cluster) and len(cluster.moved) == moved


def test_a_change_of_crush_that_is_undone_delays_it() -> None:
    cluster = MappedCluster()
    driver = Driver(cluster, BALANCED)
    driver.order('crushmap', crush_map=cluster.map_with(**RACKS))
    driver.run_until(lambda: bool(cluster.moved))
    weight = cluster.toys[3].crush_weight
    cluster.weigh(3, 0.9)
    driver.run_to('HOLDING', 20)
    driver.run(120)
    cluster.weigh(3, weight)
    driver.run_to('DONE', 900)
    assert maps_set(cluster) == 1


def test_with_target_crush_they_are_listed() -> None:
    cluster = MappedCluster()
    driver = Driver(cluster, OPTIONS)
    with pytest.raises(Refused, match='cannot be pinned'):
        driver.order('crushmap', crush_map=cluster.map_with(**RACKS))


@pytest.mark.parametrize('rule, change', CHANGES[:1])
@pytest.mark.parametrize('share', [0.0, 0.5])
def test_fewer_upmaps_cost_movement(rule: str, change: Json, share: float) -> None:
    cluster = MappedCluster(rule)
    driver, before, given = Driver(cluster, BALANCED), all_sets(cluster), cluster.map_with(**change)
    free = driver.order('crushmap', crush_map=given, dry_run=True)['crushmap']['least_moves']
    allowed = int(share * free['upmaps'])
    shown = driver.order('crushmap', crush_map=given, upmaps_max=allowed)
    fewest = shown['crushmap']['least_moves']
    assert fewest['upmaps'] <= allowed < free['upmaps'] and fewest['trades'] == free['trades']
    assert re.search('with --upmaps-max 0 *about %d' % fewest['trades'][-1]['shards'], table(shown))
    driver.run_to('DONE')
    assert cluster.remapped_by_map == [] and cluster.clean() and maps_set(cluster) == 1
    assert cluster.most_unclean <= BALANCED.max_pgs_in_flight
    assert broken(cluster, all_sets(cluster)) == 0
    assert len(cluster.entries()) == fewest['upmaps'] == shown['balanced']['kept']
    shards = shards_moved(before, all_sets(cluster))
    assert shards == most(shown) == fewest['shards_required'] + fewest['shards_extra']
    assert shards > free['shards_required'] + free['shards_extra']
    if not allowed:
        assert shards == fewest['shards_by_crush'] == free['trades'][-1]['shards']


@pytest.mark.parametrize('turns', range(1, 60, 8))
def test_the_limit_of_upmaps_survives_a_failover(turns: int) -> None:
    cluster = MappedCluster()
    driver, before = Driver(cluster, BALANCED), all_sets(cluster)
    shown = driver.order('crushmap', crush_map=cluster.map_with(**RACKS), upmaps_max=3)
    driver.run(turns)
    driver.restart()
    driver.run_to('DONE')
    assert shards_moved(before, all_sets(cluster)) == most(shown)
    assert len(cluster.entries()) == shown['crushmap']['least_moves']['upmaps'] <= 3


def test_a_limit_that_cannot_be_kept_is_refused() -> None:
    """A PG cannot be where the new map places it if the present one forbids that."""
    for options, rule, change, why in (
            (BALANCED, *CHANGES[1], 'must be at least [1-9].*: the current CRUSH map'),
            (BALANCED, 'racks', {'steps': {'racks': 'hosts'}}, 'no PGs move before'),
            (OPTIONS, *CHANGES[0], 'no PGs move before')):
        cluster = MappedCluster(rule)
        driver = Driver(cluster, options)
        with pytest.raises(Refused, match=why):
            driver.order('crushmap', crush_map=cluster.map_with(**change), upmaps_max=0)
        assert driver.phase == 'IDLE'


def test_a_plan_keeps_the_limit_of_upmaps() -> None:
    cluster = MappedCluster()
    driver, given = Driver(cluster, BALANCED), cluster.map_with(**RACKS)
    ordered = Order('crushmap', crush_map=given, upmaps_max=2)
    saved = driver.give(PlanOrder(SAVE, 'map', ordered))
    assert saved['preview']['crushmap']['least_moves']['upmaps'] <= 2
    driver.give(PlanOrder(APPROVE, 'map', token=saved['token']))
    driver.run_to('DONE')
    assert len(cluster.entries()) <= 2


def test_a_map_drains_a_host_to_others_that_get_its_weight() -> None:
    cluster = StrawCluster(pgs=48, hosts=12)
    driver = Driver(cluster, BALANCED)
    driver.order('balance')
    driver.run_to('DONE', 1000)
    before = {pgid: set(pg.up) for pgid, pg in cluster.pg.items()}
    driver.order('crushmap', crush_map=whole_map(cluster, **{'3': 0.0001, '6': 1.5, '7': 1.5}))
    driver.run_to('DONE', 3000)
    drained = sum(3 in osds for osds in before.values())
    arrived = Counter(osd for pgid, pg in cluster.pg.items() for osd in set(pg.up) - before[pgid])
    assert not any(3 in pg.up for pg in cluster.pg.values())
    assert arrived[6] + arrived[7] >= 0.9 * drained and sum(arrived.values()) <= 1.5 * drained


@pytest.mark.parametrize('target', ['crush', 'balanced'])
def test_upmaps_to_the_osds_that_a_map_empties_are_released(target: str) -> None:
    """The mons keep them, as the tiny weight is not 0."""
    cluster = StrawCluster(pgs=48, hosts=12)
    driver = Driver(cluster, replace(OPTIONS, target=target))
    pgid, pg = next((pgid, pg) for pgid, pg in cluster.pg.items() if 3 not in pg.up)
    cluster.add_upmap(pgid, pg.up[1], 3)
    driver.run(3)
    assert 3 in pg.up and cluster.clean()
    given = whole_map(cluster, **{'3': 0.0001})
    driver.order('crushmap', crush_map=given)
    driver.run_to('DONE', 3000)
    assert [pgid for pgid, pg in cluster.pg.items() if 3 in pg.up] == [] and cluster.clean()
    assert cluster.toys[3].crush_weight == 0.0001


def test_pins_of_an_aborted_campaign_lead_to_no_osd_that_a_map_empties() -> None:
    """Without them, their PGs would be on it by the upmaps from before that campaign."""
    cluster = StrawCluster(pgs=48, hosts=12)
    driver = Driver(cluster)
    pgid, pg = next((pgid, pg) for pgid, pg in cluster.pg.items() if 5 in pg.up and 3 not in pg.up)
    cluster.add_upmap(pgid, next(osd for osd in pg.up if osd != 5), 3)
    driver.order('drain', 'osd.5')
    driver.run_to('PINNED')
    driver.ask('abort')
    driver.run_to('ABORTED')
    assert {3, 5} <= {*pg.up} and driver.status['pinned']
    driver.order('crushmap', crush_map=whole_map(cluster, **{'3': 0.0001}))
    driver.run_to('DONE', 3000)
    assert [pgid for pgid, pg in cluster.pg.items() if {3, 5} & {*pg.up}] == []


def test_a_preview_counts_upmaps_to_the_osds_that_a_map_empties() -> None:
    """In a pool that it allows to stay, beside one that moves before it is set."""
    cluster = MappedCluster('racks')
    cluster.add_upmap('2.2', cluster.pg['2.2'].up[1], 3)
    driver, before = Driver(cluster, BALANCED), all_sets(cluster)
    shown = driver.order('crushmap', crush_map=cluster.map_with(
        racks={1: 1, 4: 3}, weights={3: 0.0001}))
    driver.run_to('DONE', 600)
    assert shown['crushmap']['pgs'] and not any(3 in pg.up for pg in cluster.pg.values())
    assert shards_moved(before, all_sets(cluster)) == most(shown)
