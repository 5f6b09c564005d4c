# SPDX-License-Identifier: LGPL-2.1-or-later
"""Another CRUSH rule for a pool with target=balanced: only what it does not allow to stay moves."""
import itertools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

import pytest

from perfguard.cluster.ports import Future, FuturePg
from perfguard.cluster.types import Balancing, Osd, OsdMap, Pool
from perfguard.errors import Refused
from perfguard.rebalance.least_moves import least_moves, moves_for_map, why_all_follow
from perfguard.rebalance.tables import order as order_text
from perfguard.rebalance.types import Bounds
from perfguard.rebalance.whole_map import MapChange

from ..fakes.crushmaps import Map, place
from ..fakes.driver import OPTIONS, Driver
from ..fakes.ruled_cluster import RULES, RuledCluster
from ..upmap.test_balance import hosts
from ..upmap.test_grouped_sets import FOUR_RACKS, TWO_OF_TWO
from ..upmap.test_lawful_sets import FIRSTN_HOST, INDEP_HOST, SHAPES, Shape, may_stay
from .test_rule_change import Watcher, number_of, sets, switches, wanted

BALANCED = replace(OPTIONS, target='balanced')
Sets = Dict[str, Tuple[int, ...]]


def shards_moved(before: Sets, after: Sets) -> int:
    return sum(len(set(after[pgid]) - set(osds)) for pgid, osds in before.items())


def broken(cluster: RuledCluster, name: str, pgs: Sets) -> int:
    """Shards that the rule does not allow to stay."""
    rule = RULES[number_of(name)]
    return sum(len(osds) - len({rule.domain_of(osd, cluster.toys[osd]) for osd in osds
                                if rule.takes(osd, cluster.toys[osd])})
               for osds in pgs.values())


@pytest.mark.parametrize('start, name, via', [
    ('hosts', 'racks', None), ('hosts', 'hosts-ssd', None), ('hosts-hdd', 'hosts-ssd', 'hosts'),
    ('east', 'west', 'hosts')])
def test_little_moves(start: str, name: str, via: str) -> None:
    cluster = Watcher(rule=number_of(start))
    driver = Driver(cluster, BALANCED)
    before, others = sets(cluster), sets(cluster, '2.')
    shown = driver.order('rule', 'rep', name, dry_run=True)['rule']['least_moves']
    assert shown['shards_required'] == broken(cluster, name, before)
    driver.order('rule', 'rep', name)
    driver.run_to('DONE')
    after = sets(cluster)
    assert switches(cluster) == ([via] if via else []) + [name]
    assert cluster.clean() and cluster.most_unclean <= BALANCED.max_pgs_in_flight
    assert broken(cluster, name, after) == 0 and sets(cluster, '2.') == others
    assert shards_moved(before, after) == shown['shards_required'] + shown['shards_extra']
    assert len(cluster.entries()) == shown['upmaps']
    assert shown['shards_by_crush'] == shards_moved(before, wanted(cluster, name))


def test_nothing_moves_back() -> None:
    cluster = Watcher()
    driver = Driver(cluster, BALANCED)
    driver.order('rule', 'rep', 'racks')
    driver.run_to('DONE')
    there = sets(cluster)
    driver.order('rule', 'rep', 'hosts')
    driver.run_to('DONE')
    assert sets(cluster) == there and switches(cluster) == ['racks', 'hosts'] and cluster.clean()


@pytest.mark.parametrize('turns', range(1, 40, 8))
def test_a_failover_repeats_nothing(turns: int) -> None:
    cluster = Watcher()
    driver = Driver(cluster, BALANCED)
    before = sets(cluster)
    shown = driver.order('rule', 'rep', 'racks')['rule']['least_moves']
    driver.run(turns)
    driver.restart()
    driver.run_to('DONE')
    assert shards_moved(before, sets(cluster)) \
        == shown['shards_required'] + shown['shards_extra']
    assert switches(cluster) == ['racks'] and cluster.clean()


def test_an_abort_keeps_what_has_moved_and_resume_continues() -> None:
    cluster = Watcher()
    driver = Driver(cluster, BALANCED)
    before = sets(cluster)
    shown = driver.order('rule', 'rep', 'racks')['rule']['least_moves']
    driver.run_until(lambda: bool(cluster.moved))
    driver.ask('abort')
    driver.run_to('ABORTED')
    assert switches(cluster) == [] and cluster.clean()
    driver.ask('resume')
    driver.run_to('DONE')
    assert switches(cluster) == ['racks'] and broken(cluster, 'racks', sets(cluster)) == 0
    # What is left is balanced again.
    assert shown['shards_required'] <= shards_moved(before, sets(cluster)) \
        <= shown['shards_required'] + shown['shards_extra'] + 1


@pytest.mark.parametrize('start, name, via', [
    ('hosts', 'racks', None), ('hosts-hdd', 'hosts-ssd', 'hosts')])
@pytest.mark.parametrize('share', [0.0, 0.5])
def test_fewer_upmaps_cost_movement(start: str, name: str, via: str, share: float) -> None:
    cluster = Watcher(rule=number_of(start))
    driver = Driver(cluster, BALANCED)
    before = sets(cluster)
    free = driver.order('rule', 'rep', name, dry_run=True)['rule']['least_moves']
    most = int(share * free['upmaps'])
    shown = driver.order('rule', 'rep', name, upmaps_max=most)['rule']['least_moves']
    assert shown['upmaps'] <= most < free['upmaps'] and shown['trades'] == free['trades']
    assert shown['shards_required'] == free['shards_required']
    assert shown['shards_extra'] >= free['shards_extra']
    driver.run_to('DONE')
    assert switches(cluster) == ([via] if via else []) + [name] and cluster.clean()
    assert broken(cluster, name, sets(cluster)) == 0
    assert len(cluster.entries()) == shown['upmaps']
    moved = shards_moved(before, sets(cluster))
    assert moved == shown['shards_required'] + shown['shards_extra']
    if not most:
        assert moved == shown['shards_by_crush'] == free['trades'][-1]['shards']


def test_the_limit_of_upmaps_survives_a_failover_and_an_abort() -> None:
    cluster = Watcher()
    driver = Driver(cluster, BALANCED)
    shown = driver.order('rule', 'rep', 'racks', upmaps_max=4)['rule']['least_moves']
    driver.run_until(lambda: bool(cluster.moved))
    driver.restart()
    driver.run(2)
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.ask('resume')
    driver.run_to('DONE')
    assert len(cluster.entries()) <= 4 == shown['upmaps'] and cluster.clean()


def test_a_limit_without_effect_is_refused() -> None:
    for options, start, name, why in (
            (BALANCED, 'racks', 'hosts', 'allows every PG to stay where it is'),
            (OPTIONS, 'hosts', 'racks', 'all PGs move to where the new rule places them')):
        driver = Driver(Watcher(rule=number_of(start)), options)
        with pytest.raises(Refused, match=why):
            driver.order('rule', 'rep', name, upmaps_max=4)


PGS = 11


def shape_future(shape: Shape, directory: Path) -> Tuple[Pool, Future, Any]:
    outcome = shape.change(directory, PGS)
    pgs = {pg.pgid: FuturePg(pg.here, pg.raw or ()) for pg in outcome.pgs}
    osdmap = OsdMap(7, frozenset(), {}, outcome.osds, {}, {}, {})
    return outcome.pool, Future(pgs, outcome.crush), SimpleNamespace(osdmap=osdmap)


def floor(pool: Pool, future: Future, upmaps: Optional[int]) -> int:
    """The fewest shards that move if so many PGs have an upmap, by trying each choice of PGs that
    follow CRUSH."""
    def whole(pg: FuturePg) -> int:
        return sum(a != b for a, b in zip(pg.acting, pg.raw)) if pool.erasure \
            else len(set(pg.raw) - set(pg.acting))

    costs = [(pool.size - may_stay(pool, pg.acting, future.crush), whole(pg))
             for pg in future.pgs.values()]
    return min(sum(pair[follows] for pair, follows in zip(costs, choice))
               for choice in itertools.product((False, True), repeat=len(costs))
               if upmaps is None or choice.count(False) <= upmaps)


@pytest.mark.parametrize('shape', SHAPES)
def test_each_limit_of_upmaps_moves_the_fewest_shards(shape: Shape, tmp_path: Path) -> None:
    pool, future, observation = shape_future(shape, tmp_path)
    moved: List[int] = []
    for upmaps in (None, *range(PGS, -1, -1)):
        result = least_moves(future, pool, observation, Bounds(1000.0, 0.0), upmaps)
        assert result is not None and result.upmaps <= (PGS if upmaps is None else upmaps)
        moved.append(result.required + result.extra)
        assert moved[-1] == floor(pool, future, upmaps), upmaps
        for trade in result.trades:
            assert trade.shards == floor(pool, future, trade.upmaps)
    # With the first shape, what moves ends where CRUSH places it.
    assert moved == sorted(moved) and (moved[-1] > moved[0] or shape is SHAPES[0])


def test_pgs_that_are_remapped_are_left_alone(tmp_path: Path) -> None:
    pool, future, observation = shape_future(SHAPES[0], tmp_path)
    remapped = {pgid: future.pgs[pgid].acting for pgid in ('1.1', '1.2')}
    moved: List[Set[str]] = []
    for pg_temp in ({}, remapped):
        seen: Any = SimpleNamespace(osdmap=replace(observation.osdmap, pg_temp=pg_temp))
        result = least_moves(future, pool, seen, Bounds(1000.0, 0.0))
        assert result is not None
        moved.append(set(result.finals))
    assert moved[0] >= set(remapped) and moved[1] and moved[1] <= moved[0] - set(remapped)


def map_future(shape: Shape, directory: Path) -> Tuple[Future, Any]:
    """Two pools under a new CRUSH map that has the new rule."""
    (former, here), (crush, raw) = (
        place(Map(shape.racks, steps, 'default'), shape.size, PGS, directory)
        for steps in (shape.old, shape.new))
    pools = {number: Pool(number, 'p%d' % number, shape.erasure, shape.size, shape.size - 1, 0,
                          PGS, PGS, PGS) for number in (1, 2)}
    pgs = {'%d.%x' % (1 + number % 2, number // 2): FuturePg(*sets)
           for number, sets in enumerate(zip(here, raw))}
    osds = {osd: Osd(osd, True, 1.0) for rack in shape.racks for host in rack for osd in host}
    return Future(pgs, crush), SimpleNamespace(
        osdmap=OsdMap(7, frozenset(), pools, osds, {}, {}, {}), crush=former,
        balancing=Balancing())


@pytest.mark.parametrize('shape', [
    *SHAPES[:2], Shape(INDEP_HOST, FOUR_RACKS, 8, hosts(24, 2, racks=6)),
    Shape(FIRSTN_HOST, TWO_OF_TWO, 4, hosts(24, 2, racks=6))])
def test_a_limit_of_upmaps_for_a_crush_map_is_spent_where_it_saves_most(shape: Shape,
                                                                        tmp_path: Path) -> None:
    """Two pools, with the same rule."""
    future, observation = map_future(shape, tmp_path)
    pool = observation.osdmap.pools[1]
    for upmaps in (None, *range(PGS, -1, -1)):
        moves = moves_for_map(future, observation, Bounds(1000.0, 0.0), upmaps)
        assert moves.upmaps <= (PGS if upmaps is None else upmaps) and moves.pools == (1, 2)
        assert moves.required + moves.extra == floor(pool, future, upmaps), upmaps
        assert all(trade.shards == floor(pool, future, trade.upmaps) for trade in moves.trades)


def test_pgs_follow_a_crush_map_although_no_other_has_to_move_any_longer(tmp_path: Path) -> None:
    future, observation = map_future(SHAPES[1], tmp_path)
    bounds = Bounds(1000.0, 0.0)
    obeyed = replace(future, pgs={pgid: pg._replace(acting=moves_for_map(
        future, observation, bounds).finals.get(pgid, pg.acting))
                                  for pgid, pg in future.pgs.items()})
    assert not moves_for_map(obeyed, observation, bounds).finals
    change = MapChange(least=bounds, upmaps_max=0, limited=(1, 2))
    outlook = change.foreseen(obeyed, observation, {})
    assert isinstance(outlook, Future) and outlook.finals == {
        pgid: pg.raw for pgid, pg in obeyed.pgs.items() if pg.acting != pg.raw} != {}


def test_pools_that_are_balanced_then_move_no_further(tmp_path: Path) -> None:
    """Within the buckets of their groups, OSDs may come closer to their share than they have to."""
    future, observation = map_future(
        Shape(INDEP_HOST, FOUR_RACKS, 8, hosts(24, 2, racks=6)), tmp_path)
    moves = moves_for_map(future, observation, Bounds(1.5, 1000.0))
    assert moves.balanced == moves.pools == (1, 2) and moves.deviation <= 1.5
    unbalanced = moves_for_map(future, observation, Bounds(1.0, 0.0))
    assert unbalanced.balanced == (1,) and unbalanced.deviation > 1.1
    change = MapChange(least=Bounds(1.0, 1.0), balanced=(2,))
    assert change.settled_pools == {2} and not change.removes_upmaps


def test_too_many_upmaps_are_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('perfguard.rebalance.preview.MAX_BURST_PINS', 5)
    driver = Driver(RuledCluster(), BALANCED)
    with pytest.raises(Refused, match='requires 12 pins.*--upmaps-max 5'):
        driver.order('rule', 'rep', 'racks')
    assert driver.phase == 'IDLE'


def test_a_pool_that_the_balancer_must_not_touch_meanwhile_moves_no_more_than_ordered(
        monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Watcher()
    driver = Driver(cluster, BALANCED)
    before = sets(cluster)
    shown = driver.order('rule', 'rep', 'racks')['rule']['least_moves']
    driver.run_until(lambda: bool(cluster.moved))
    monkeypatch.setattr(cluster, 'balancing', lambda: Balancing(pools=frozenset({2})))
    driver.run_to('DONE')
    assert shards_moved(before, sets(cluster)) \
        == shown['shards_required'] + shown['shards_extra']


def test_nothing_moves_for_the_balance_if_that_is_not_allowed() -> None:
    cluster = Watcher()
    driver = Driver(cluster, replace(BALANCED, max_extra_movement=0.0))
    before = sets(cluster)
    shown = driver.order('rule', 'rep', 'racks')['rule']['least_moves']
    driver.run_to('DONE')
    assert shown['shards_extra'] == 0
    assert shards_moved(before, sets(cluster)) == shown['shards_required']


@pytest.mark.parametrize('steps, size, why', [
    (('chooseleaf firstn 1 type host', 'emit', 'take r1', 'chooseleaf firstn -1 type host'), 3,
     'several takes'),
    (('choose firstn 2 type rack', 'chooseleaf firstn 2 type host'), 3, 'unequal numbers'),
    (('choose indep 2 type rack', 'choose indep 2 type host', 'choose indep 2 type osd'), 8,
     'the mons keep no upmaps'),
    (('chooseleaf firstn 2 type host', 'emit', 'take osd.0'), 3, 'or takes an OSD')])
def test_rules_that_place_all_pgs(steps: Sequence[str], size: int, why: str,
                                  tmp_path: Path) -> None:
    """Positions have a meaning, for example, if there are several takes."""
    take = 'r0' if 'emit' in steps else 'default'
    crush, raw = place(Map(hosts(24, 2, racks=6), steps, take), size, 8, tmp_path)
    pool = Pool(1, 'p', 'indep' in steps[0], size, size - 1, 0, 8, 8, 8)
    future = Future({'1.%d' % number: FuturePg(osds, osds) for number, osds in enumerate(raw)},
                    crush)
    observation: Any = None  # nothing is asked of the cluster for such a rule
    assert least_moves(future, pool, observation, Bounds(1.0, 1.0)) is None
    assert why in why_all_follow(pool, crush, Balancing())


def test_a_preview_says_why_all_pgs_move(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Watcher()
    driver = Driver(cluster, BALANCED)
    monkeypatch.setattr(cluster, 'balancing', lambda: Balancing(pools=frozenset({2})))
    driver.run(1)
    shown = driver.order('rule', 'rep', 'racks', dry_run=True)
    why = 'all PGs move to where the new rule places them: the balancer does not cover the pool'
    assert shown['rule']['least_moves'] is None and shown['warnings'][0].startswith(why)
    assert why in order_text(shown)
    with pytest.raises(Refused, match='does not apply: ' + why):
        driver.order('rule', 'rep', 'racks', upmaps_max=4)
