# SPDX-License-Identifier: LGPL-2.1-or-later
"""Upmaps that are exported, and imported as the goals of a campaign."""
import contextlib
import json
from dataclasses import replace
from typing import Any, Callable, List, Tuple

import pytest

from perfguard.cluster.types import OsdSet
from perfguard.errors import Refused
from perfguard.rebalance import adopting
from perfguard.rebalance.adopting import exported
from perfguard.rebalance.risks import RISKS
from perfguard.rebalance.tables import importing

from ..fakes.cluster import Crash
from ..fakes.driver import OPTIONS, Driver
from ..fakes.straw_cluster import StrawCluster

Pairs = List[Tuple[str, int, int]]


def text(pairs: Pairs) -> bytes:
    return json.dumps([{'pgid': pgid, 'mapping': {'from': source, 'to': target}}
                       for pgid, source, target in pairs]).encode()


def a_pair(cluster: StrawCluster, pgid: str, position: int = 0) -> Tuple[str, int, int]:
    """One that takes a PG to an OSD in a host without one of its OSDs."""
    up = cluster.pg[pgid].up
    hosts = {cluster.toys[osd].domain for osd in up}
    spare = next(osd for osd, toy in cluster.toys.items() if toy.domain not in hosts)
    return pgid, up[position], spare


def sets(cluster: StrawCluster) -> Any:
    return {pgid: pg.up for pgid, pg in cluster.pg.items()}


def test_what_was_exported_is_imported_again() -> None:
    driver = Driver(StrawCluster())
    cluster: Any = driver.cluster
    pairs = [a_pair(cluster, '1.1'), a_pair(cluster, '1.4'), a_pair(cluster, '2.3')]
    for pgid, source, target in pairs:
        cluster.add_upmap(pgid, source, target)
    there, entries, found = sets(cluster), cluster.entries(), cluster.foreign()
    driver.run(3)
    saved = driver.order('export', dry_run=True)
    assert saved == {'mappings': json.loads(text(pairs)), 'vectors': 0}
    for pgid, _, _ in pairs:
        cluster.set_upmap(pgid, [])
    driver.run_until(cluster.clean)
    driver.run(5)
    before = len(cluster.moved)
    shown = driver.order('import', mappings=text(pairs), dry_run=True)
    assert shown['pgs'] == 3 and shown['campaign'] is None and sets(cluster) != there
    assert driver.order('import', mappings=text(pairs))['pgs'] == 3
    driver.run_to('DONE')
    assert sets(cluster) == there and cluster.entries() == entries and cluster.clean()
    assert sorted(one.pgid for one in cluster.moved[before:]) == ['1.1', '1.4', '2.3']
    assert cluster.foreign() == found
    with pytest.raises(Refused, match='nothing to import: the mappings of 3 PGs are in force'):
        driver.order('import', mappings=text(pairs))


def test_a_preview_shows_what_the_import_is_refused_for() -> None:
    driver = Driver(StrawCluster())
    cluster: Any = driver.cluster
    pairs = [a_pair(cluster, '1.1'), ('9.1', 0, 1)]
    cluster.health['MON_DOWN'] = '1/3 mons down'
    shown = driver.order('import', mappings=text(pairs), dry_run=True, accept=('LEFT_OUT',))
    assert [risk['code'] for risk in shown['risks']] == ['MON_DOWN']
    shown = driver.order('import', mappings=text(pairs), dry_run=True)
    assert [risk['code'] for risk in shown['risks']] == ['MON_DOWN', 'LEFT_OUT']
    assert 'refused without --accept LEFT_OUT: ' in importing(shown)
    with pytest.raises(Refused, match='--accept MON_DOWN --accept LEFT_OUT'):
        driver.order('import', mappings=text(pairs))


@pytest.mark.parametrize('at', range(1, 30))
def test_none_is_lost_if_the_mgr_fails_while_they_are_imported(at: int) -> None:
    """Either no campaign has begun and the order may be given again, or it moves the PGs."""
    driver = Driver(StrawCluster())
    cluster: Any = driver.cluster
    pgid, source, target = a_pair(cluster, '1.1')
    driver.run(3)
    cluster.fault.at = cluster.fault.count + at
    with contextlib.suppress(Crash):
        driver.order('import', mappings=text([(pgid, source, target)]))
        driver.run(5)
    cluster.fault.at = None
    driver.restart()
    driver.run(3)
    if driver.status['id'] is None:
        driver.order('import', mappings=text([(pgid, source, target)]))
    driver.run_to('DONE')
    assert target in cluster.pg[pgid].up and cluster.clean()


def test_a_vector_is_counted_only() -> None:
    cluster = StrawCluster()
    cluster.pg['1.2'].mon.put_vector([6, 4, 2])
    assert exported(cluster._view().osdmap) == {'mappings': [], 'vectors': 1}


def placed_by_vector(osds: Callable[[OsdSet], List[int]]) -> Driver:
    """PG 2.2 is placed by a vector of others; `osds`: from where CRUSH places it."""
    driver = Driver(StrawCluster())
    cluster = driver.cluster
    pg = cluster.pg['2.2']
    pg.mon.put_vector(osds(pg.up))
    cluster._map_changed()
    driver.run_until(cluster.clean)
    driver.run(5)
    cluster.moved.clear()
    return driver


@pytest.mark.parametrize('tools', [True, False])
def test_a_pg_that_is_placed_by_a_vector_is_imported_as_well(tools: bool) -> None:
    """Where CRUSH places it is not known at first if the tools fail."""
    driver = placed_by_vector(lambda raw: [raw[1], raw[0], raw[2]])
    cluster: Any = driver.cluster
    _, second, third = cluster.pg['2.2'].up
    pair = a_pair(cluster, '2.2')
    cluster.no_tools = '' if tools else 'osdmaptool is not installed'
    assert driver.order('import', mappings=text([pair]))['pgs'] == 1
    cluster.no_tools = ''
    driver.restart()
    driver.run(2)
    driver.run_to('DONE')
    assert cluster.pg['2.2'].up == (pair[2], second, third)
    assert [one.pgid for one in cluster.moved] == ['2.2'] and driver.status['released'] == 1


def test_an_import_back_to_where_crush_places_a_pg_removes_its_vector() -> None:
    """The mons keep no vector that equals the set of CRUSH."""
    driver = placed_by_vector(lambda raw: [next(osd for osd in range(8) if osd not in raw),
                                           *raw[1:]])
    cluster: Any = driver.cluster
    raw = tuple(cluster.pg['2.2'].mon.raw)
    assert cluster.entries()['2.2'].vector == cluster.pg['2.2'].up != raw
    pair = ('2.2', cluster.pg['2.2'].up[0], raw[0])
    assert driver.order('import', mappings=text([pair]))['pgs'] == 1
    driver.run_to('DONE')
    assert cluster.pg['2.2'].up == raw and cluster.entries() == {}
    assert len(cluster.moved) == 1


def test_the_caps_hold_for_what_is_imported() -> None:
    driver = Driver(StrawCluster(), replace(OPTIONS, max_pgs_in_flight=1))
    cluster: Any = driver.cluster
    driver.order('import', mappings=text([a_pair(cluster, pgid) for pgid in
                                          ('1.1', '1.2', '1.4', '2.3')]))
    driver.run_to('DONE')
    assert cluster.most_moving == 1 and len(cluster.moved) == 4


@pytest.mark.parametrize('given, reason', [
    (lambda cluster: ('9.1', 0, 1), 'does not exist'),
    (lambda cluster: ('1.ff', 0, 1), 'does not exist'),
    (lambda cluster: ('1.1', 99, a_pair(cluster, '1.1')[2]), 'osd.99 is not in its up set'),
    (lambda cluster: ('1.1', *cluster.pg['1.1'].up[:2]), 'is already'),
    (lambda cluster: ('1.1', cluster.pg['1.1'].up[0], 77), 'osd.77')])
def test_what_cannot_be_carried_out_is_refused_unless_the_rest_is_forced(
        given: Any, reason: str) -> None:
    driver = Driver(StrawCluster())
    cluster: Any = driver.cluster
    pairs = [a_pair(cluster, '1.4'), given(cluster)]
    with pytest.raises(Refused, match=reason):
        driver.order('import', mappings=text(pairs))
    assert driver.phase == 'IDLE'
    assert driver.order('import', mappings=text(pairs), accept=RISKS)['left_out_pgs'] == 1
    driver.run_to('DONE')
    assert [one.pgid for one in cluster.moved] == ['1.4']


def test_mappings_from_before_a_drain_do_not_fill_its_osds_again() -> None:
    """Their weight may be above 0, with which the mons accept these upmaps."""
    driver = Driver(StrawCluster())
    cluster: Any = driver.cluster
    pair = a_pair(cluster, '1.1')
    driver.order('drain', 'osd.%d' % pair[2])
    driver.run_to('DONE')
    cluster._weigh(pair[2], 0.0001)
    pgid = next(pgid for pgid, pg in cluster.pg.items() if {
        cluster.toys[osd].domain for osd in pg.up}.isdisjoint({cluster.toys[pair[2]].domain}))
    with pytest.raises(Refused, match='osd.%d is drained' % pair[2]):
        driver.order('import', mappings=text([(pgid, cluster.pg[pgid].up[0], pair[2])]))


def test_a_mapping_that_breaks_the_rule_is_refused() -> None:
    driver = Driver(StrawCluster(osds_per_host=2))
    cluster: Any = driver.cluster
    up = cluster.pg['1.1'].up
    beside = next(osd for osd, toy in cluster.toys.items()
                  if osd not in up and toy.domain == cluster.toys[up[1]].domain)
    with pytest.raises(Refused, match='1.1'):
        driver.order('import', mappings=text([('1.1', up[0], beside)]))


@pytest.mark.parametrize('given', [b'', b'{', b'[]', b'{}', b'[1]', b'[{"pgid": "x"}]',
                                   b'[{"pgid": "1.1", "mapping": {"from": 1}}]',
                                   b'[{"pgid": "1.1", "mapping": {"from": 1, "to": 2.5}}]',
                                   b'[{"pgid": "1.1", "mapping": {"from": true, "to": 2}}]',
                                   b'[{"pgid": "one", "mapping": {"from": 1, "to": 2}}]'])
def test_what_is_no_list_of_mappings_is_refused(given: bytes) -> None:
    driver = Driver(StrawCluster())
    with pytest.raises(Refused):
        driver.order('import', mappings=given)
    assert driver.phase == 'IDLE'


def test_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(StrawCluster())
    pairs = [a_pair(driver.cluster, '1.1'), a_pair(driver.cluster, '1.4')]  # type: ignore
    monkeypatch.setattr(adopting, 'MOST_PAIRS', 1)
    with pytest.raises(Refused, match='has 2 mappings'):
        driver.order('import', mappings=text(pairs))
    monkeypatch.setattr(adopting, 'MOST_BYTES', 10)
    with pytest.raises(Refused, match='limit 10'):
        driver.order('import', mappings=text(pairs))


def test_an_osd_that_would_be_too_full_is_refused() -> None:
    driver = Driver(StrawCluster())
    cluster: Any = driver.cluster
    pair = a_pair(cluster, '1.1')
    cluster.sizes[pair[2]] = 38 << 30
    with pytest.raises(Refused, match='not enough space: osd.%d' % pair[2]):
        driver.order('import', mappings=text([pair]))


def test_an_osd_that_pgs_of_two_pools_would_fill_is_refused() -> None:
    driver = Driver(StrawCluster())
    cluster: Any = driver.cluster
    pairs = [a_pair(cluster, pgid) for pgid in ('1.%x' % seed for seed in range(8))]
    pair = pairs[0]
    other = next(each for each in (a_pair(cluster, '2.%x' % seed) for seed in range(8))
                 if each[2] == pair[2])
    # 32 GiB are used, and each PG has 1 GiB there.
    cluster.sizes[pair[2]] = int(33.5 / 0.85 * (1 << 30))
    for fits in (pair, other):
        driver.order('import', mappings=text([fits]), dry_run=True)
    with pytest.raises(Refused, match='not enough space: osd.%d' % pair[2]):
        driver.order('import', mappings=text([pair, other]))


@pytest.mark.parametrize('turns', range(1, 30, 4))
def test_a_failover_moves_nothing_twice(turns: int) -> None:
    driver = Driver(StrawCluster())
    cluster: Any = driver.cluster
    pairs = [a_pair(cluster, pgid) for pgid in ('1.1', '1.2', '1.4', '2.3')]
    driver.order('import', mappings=text(pairs))
    driver.run(turns)
    driver.restart()
    driver.run_until(lambda: driver.phase in ('DONE', 'IDLE'))
    assert sorted(one.pgid for one in cluster.moved) == ['1.1', '1.2', '1.4', '2.3']
    assert all(pair[2] in cluster.pg[pair[0]].up for pair in pairs) and cluster.clean()


def test_an_abort_leaves_no_pin() -> None:
    driver = Driver(StrawCluster())
    cluster: Any = driver.cluster
    driver.order('import', mappings=text([a_pair(cluster, pgid) for pgid in
                                          ('1.1', '1.2', '1.4', '2.3')]))
    driver.run_until(lambda: driver.status['in_flight'] > 0)
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.run(20)
    assert cluster.clean() and not driver.loop.rebalance.pins
