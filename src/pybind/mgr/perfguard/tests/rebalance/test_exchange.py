# SPDX-License-Identifier: LGPL-2.1-or-later
"""New OSDs for old ones in one campaign: `expand --drain`."""
import errno
from collections import Counter
from dataclasses import replace
from typing import Dict, List, Mapping, Set, Tuple, Type

import pytest

from perfguard.cluster.types import Space
from perfguard.errors import Refused
from perfguard.rebalance.types import Phase

from ..fakes.driver import OPTIONS, Driver
from ..fakes.mon_model import ToyOsd
from ..fakes.straw_cluster import AuditedCluster

OLD, NEW = ('osd.0', 'osd.5'), (10, 11)
#: What an exchange moves, as a share of what an expansion and a drain move, at most.
LESS = 0.8


class Moves:
    """Counts how often each shard leaves an OSD."""

    def __init__(self, driver: Driver) -> None:
        self._pgs = driver.cluster.pg
        self._data = {pgid: tuple(pg.data) for pgid, pg in self._pgs.items()}
        self.before = dict(self._data)
        self.shards: 'Counter[str]' = Counter()

    def note(self) -> bool:
        for pgid, pg in self._pgs.items():
            moved = set(pg.data) - set(self._data[pgid])
            self.shards[pgid] += len(moved)
            self._data[pgid] = tuple(pg.data)
        return False


def cluster_with_new_osds(kind: Type[AuditedCluster] = AuditedCluster) -> AuditedCluster:
    """Five hosts with two OSDs each; two further OSDs without weight."""
    cluster = kind(pgs=48, hosts=5, osds_per_host=2)
    cluster.add_osds(len(NEW), 0.0)
    for pg in cluster.pg.values():
        pg.data = pg.up
    cluster.tick()
    return cluster


def weights(driver: Driver) -> Dict[int, float]:
    return {osd: toy.crush_weight for osd, toy in driver.cluster.toys.items()}


def finish(driver: Driver, moves: Moves) -> None:
    driver.run_until(lambda: moves.note() or driver.phase == Phase.DONE.value, 900)
    moves.note()


def one_after_the_other(target: str) -> int:
    """Shards that an expansion and a drain move."""
    driver = Driver(cluster_with_new_osds(), replace(OPTIONS, target=target))
    moves = Moves(driver)
    for verb, osds in (('expand', ('osd.10', 'osd.11')), ('drain', OLD)):
        driver.order(verb, *osds, weight='1' if verb == 'expand' else None)
        finish(driver, moves)
    return sum(moves.shards.values())


@pytest.mark.parametrize('target', ['balanced', 'crush'])
def test_each_shard_moves_once_from_an_old_osd_to_where_it_ends(target: str) -> None:
    driver = Driver(cluster_with_new_osds(), replace(OPTIONS, target=target))
    moves = Moves(driver)
    held = sum(osd in (0, 5) for data in moves.before.values() for osd in data)
    answer = driver.order('expand', 'osd.10', 'osd.11', drain=OLD, weight='1')
    assert answer['weights'] == {'osd.10': 1.0, 'osd.11': 1.0, 'osd.0': 0.0001, 'osd.5': 0.0001}
    finish(driver, moves)
    after = weights(driver)
    assert (after[0], after[5], after[10], after[11]) == (0.0, 0.0, 1.0, 1.0)
    ends = {pgid: tuple(pg.data) for pgid, pg in driver.cluster.pg.items()}
    assert not any(osd in (0, 5) for data in ends.values() for osd in data)
    # As many as differ at the end: none has passed through a third OSD.
    assert sum(moves.shards.values()) == sum(
        len(set(ends[pgid]) - set(moves.before[pgid])) for pgid in ends)
    if target == 'balanced':
        assert held <= sum(moves.shards.values()) < LESS * one_after_the_other(target)
    bill = driver.status['bill']
    assert 0 < bill['bytes_required'] <= bill['bytes_moved']
    assert driver.cluster.clean() and not driver.cluster.wrong  # type: ignore[attr-defined]


def test_a_rollback_fills_the_old_osds_and_empties_the_new_ones() -> None:
    driver = Driver(cluster_with_new_osds(), replace(OPTIONS, target='balanced'))
    before = {pgid: tuple(pg.data) for pgid, pg in driver.cluster.pg.items()}
    driver.order('expand', 'osd.10', 'osd.11', drain=OLD, weight='1')
    driver.run_until(lambda: driver.status['released'] > 6, 600)
    driver.order('rollback')
    driver.run_to('DONE', 900)
    after = weights(driver)
    assert (after[0], after[5], after[10], after[11]) == (1.0, 1.0, 0.0, 0.0)
    ends: Dict[str, List[int]] = {pgid: list(pg.data) for pgid, pg in driver.cluster.pg.items()}
    assert {pgid: set(data) for pgid, data in ends.items()} == {
        pgid: set(data) for pgid, data in before.items()}
    assert driver.cluster.clean() and not driver.cluster.wrong  # type: ignore[attr-defined]


class AlmostFull(AuditedCluster):
    def osd_space(self) -> Dict[int, Space]:
        """The old OSDs have room for what one other OSD loses, but not for the data of two."""
        return {osd: Space(100 << 30, (70 << 30) if toy.crush_weight else 0)
                for osd, toy in self.toys.items()}


@pytest.mark.parametrize('weight, fits', [('20', True), ('0.1', False)])
def test_without_a_preview_the_new_osds_count_as_room(weight: str, fits: bool) -> None:
    cluster = cluster_with_new_osds(AlmostFull)
    driver = Driver(cluster)
    cluster.no_tools = 'no crushtool'
    with pytest.raises(Refused) as refused:
        driver.order('expand', 'osd.10', 'osd.11', drain=OLD, weight=weight)
    assert refused.value.errno == (errno.EIO if fits else errno.ENOSPC), refused.value


class FewHosts(AuditedCluster):
    """As CRUSH does, it gives up before it finds a host whose OSDs are all drained."""

    def raw_under(self, pgid: str, toys: Mapping[int, ToyOsd]) -> List[int]:
        weights: Dict[int, float] = {}
        for toy in toys.values():
            weights[toy.domain] = weights.get(toy.domain, 0.0) + toy.crush_weight
        return super().raw_under(pgid, {
            osd: toy for osd, toy in toys.items() if weights[toy.domain] > 0.001})


@pytest.mark.parametrize('target', ['balanced', 'crush'])
def test_no_pg_lacks_a_host_between_the_bursts(
        target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three copies on three hosts, of which one is replaced."""
    monkeypatch.setattr('perfguard.rebalance.joining.MAX_BURST_PINS', 8)
    cluster = FewHosts(pgs=48, hosts=3, osds_per_host=2)
    cluster.add_osds(2, 0.0)
    for pg in cluster.pg.values():
        pg.data = pg.up
    cluster.tick()
    driver = Driver(cluster, replace(OPTIONS, target=target))
    driver.order('expand', 'osd.6', 'osd.7', drain=('osd.0', 'osd.1'), weight='1')
    epochs: Set[Tuple[Tuple[int, float], ...]] = set()

    def joined() -> bool:
        assert not [pgid for pgid, pg in cluster.pg.items()
                    if len(set(pg.up) & cluster.toys.keys()) < 3]
        epochs.add(tuple(sorted(weights(driver).items())))
        return driver.phase == Phase.RELEASING.value

    driver.run_until(joined, 100)
    assert len(epochs) > 3 and not cluster.moved
    finish(driver, Moves(driver))
    assert [osd for osd, weight in weights(driver).items() if weight] == [2, 3, 4, 5, 6, 7]
