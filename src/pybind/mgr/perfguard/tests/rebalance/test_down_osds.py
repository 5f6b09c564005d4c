# SPDX-License-Identifier: LGPL-2.1-or-later
"""Goals that are computed while OSDs are down are those of the cluster with all its OSDs."""
from collections import Counter
from dataclasses import replace
from typing import Any, List, Mapping, Sequence, Set

import pytest

from perfguard.cluster.ports import Future
from perfguard.cluster.types import OsdMap
from perfguard.rebalance.adopting import LACKING
from perfguard.rebalance.pinning import DOWN_SECONDS
from perfguard.rebalance.risks import RISKS

from ..fakes.driver import OPTIONS, Driver, codes
from ..fakes.straw_cluster import RetryingCluster, StrawCluster
from ..loop.test_loop import whats
from .test_adopting import expanded, found
from .test_balance_preview import waiting
from .test_mappings import a_pair, text
from .test_phases import out_of_hours

BALANCED = replace(OPTIONS, target='balanced', max_pgs_in_flight=16, max_backfills_target=8,
                   max_backfills_source=8, max_backfills_primary=8, max_backfills_host=16)
#: Why Ceph's tools, which show where CRUSH places a PG whose OSD is down, are of no use.
NO_TOOLS = 'osdmaptool is not installed'


def expanding() -> Driver:
    """Two of eight hosts are new, and wait for their weight."""
    cluster = StrawCluster(hosts=6, pgs=64)
    cluster.add_osds(2, 0.0)
    driver = Driver(cluster, BALANCED)
    driver.run(3)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: cluster.toys[cluster.new[0]].crush_weight > 0)
    return driver


def held(driver: Driver) -> List[int]:
    """PGs of each OSD."""
    found = Counter(osd for pg in driver.cluster.pg.values() for osd in pg.data)
    return [found[osd] for osd in driver.cluster.toys]


def for_a_minute(driver: Driver, osd: int) -> None:
    driver.cluster.take_down(osd)
    driver.run(60)
    driver.cluster.revive(osd)


def ends_balanced(driver: Driver) -> None:
    driver.run_to('DONE', 600)
    assert driver.cluster.clean()
    assert set(held(driver)) == {3 * len(driver.cluster.pg) // len(driver.cluster.toys)}


@pytest.mark.parametrize('tools', ['', NO_TOOLS])
def test_a_new_host_that_reboots_ends_with_its_share(tools: str) -> None:
    driver = expanding()
    driver.cluster.no_tools = tools
    for_a_minute(driver, driver.cluster.new[0])
    ends_balanced(driver)


@pytest.mark.parametrize('tools', ['', NO_TOOLS])
def test_goals_that_are_computed_again_while_a_new_host_reboots(tools: str) -> None:
    driver = expanding()
    cluster = driver.cluster
    assert isinstance(cluster, StrawCluster)
    driver.run_until(lambda: driver.status['released'] >= 8)
    cluster.no_tools = tools
    cluster.take_down(cluster.new[0])
    driver.run(10)
    cluster.toys[1] = cluster.toys[1]._replace(reweight=0.999)
    cluster.place()
    driver.run(60)
    assert len(whats(driver, 'plan')) == 2
    cluster.toys[1] = cluster.toys[1]._replace(reweight=1.0)
    cluster.revive(cluster.new[0])
    ends_balanced(driver)


@pytest.mark.parametrize('tools', ['', NO_TOOLS])
def test_a_drain_while_another_host_is_down_leaves_no_pg(tools: str) -> None:
    driver = Driver(StrawCluster(hosts=7, pgs=64), BALANCED)
    cluster = driver.cluster
    driver.run(3)
    driver.order('drain', 'osd.3')
    driver.run_until(lambda: cluster.toys[3].crush_weight < 0.1)
    cluster.no_tools = tools
    for_a_minute(driver, 0)
    assert len(whats(driver, 'plan')) == 1
    cluster.no_tools = ''
    driver.run_to('DONE', 600)
    assert len(whats(driver, 'plan')) == (2 if tools else 1)
    assert held(driver) == [64, 64, 64, 0, 64, 64, 64] and cluster.clean()
    assert cluster.toys[3].crush_weight == 0.0


def test_goals_are_the_same_whichever_osds_are_down() -> None:
    driver = expanding()
    driver.run_until(lambda: bool(whats(driver, 'plan')))
    goals = {pgid: pin.goal for pgid, pin in driver.loop.rebalance.pins.items()}
    for lost in ((0,), (6,), (1, 7)):
        driver = expanding()
        for osd in lost:
            driver.cluster.take_down(osd)
        driver.run_until(lambda: bool(whats(driver, 'plan')))
        assert {pgid: pin.goal for pgid, pin in driver.loop.rebalance.pins.items()} == goals


def test_no_release_leads_to_an_osd_that_is_down() -> None:
    driver = expanding()
    cluster, new = driver.cluster, driver.cluster.new[0]
    cluster.take_down(new)
    driver.run(60)
    assert driver.status['released'] and 'TARGET_DOWN' in codes(driver.status)
    assert not any(new in pg.mon.up() for pg in cluster.pg.values())


def test_recovery_beside_an_osd_in_maintenance_does_not_stop_releases() -> None:
    """PGs that lack a copy and have no other one elsewhere have nothing to pin."""
    cluster = StrawCluster(hosts=14, pgs=64, osds_per_host=2)
    cluster.add_osds(4, 0.0)
    driver = Driver(cluster, replace(OPTIONS, max_pgs_in_flight=8))
    driver.run(3)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status.get('released', 0) >= 8, 400)
    cluster.take_down(27)  # in, since noout is set
    driver.run(20)
    driver.ask('accept', code='DEGRADED')
    driver.run(5)
    cluster.take_down(2)
    driver.run(5)
    cluster.mark_out(2)
    driver.run(4)
    recovering = [pgid for pgid, pg in cluster.pg.items() if pg.temp is not None
                  and cluster._copies(pgid, pg) < 3 and 27 not in pg.mon.up()]
    released = driver.status['released']
    for _ in range(60):
        for pgid in recovering:
            cluster.pg[pgid].copied_seconds = 0.0
        driver.turn()
    assert recovering and driver.status['released'] > released + 3


@pytest.mark.parametrize('tools', ['', NO_TOOLS])
def test_upmaps_are_adopted_while_an_osd_is_down(tools: str) -> None:
    """A PG that lacks an OSD is taken over as well, or named."""
    cluster, pinned, _ = expanded()
    driver = Driver(cluster, BALANCED)
    driver.run(3)
    cluster.take_down(0)
    cluster.no_tools = tools
    driver.run(3)
    lacking = {pgid for pgid in pinned if 0 in cluster.pg[pgid].data}
    answer = driver.order('adopt', accept=RISKS)
    assert lacking and answer['balancing_pgs'] == 0
    assert {(row['pgid'], row['reason']) for row in answer['left_out']} == (
        {(pgid, LACKING) for pgid in lacking} if tools else set())
    assert answer['pgs'] == len(pinned) - len(lacking) * bool(tools)
    cluster.no_tools = ''
    cluster.flags.discard('norebalance')
    cluster.revive(0)
    ends_balanced(driver)


def test_a_pg_whose_upmap_leads_to_a_drained_osd_that_is_down_is_named() -> None:
    cluster, pinned, _ = expanded()
    cluster.toys[0] = cluster.toys[0]._replace(crush_weight=0.0001)
    cluster.take_down(0)
    there = {pgid for pgid in pinned if any(target == 0 for _, target in
                                            cluster.entries()[pgid].items)}
    left = found(cluster).left_out
    assert there and {left.get(pgid) for pgid in there} == {LACKING}


def test_an_import_onto_an_osd_that_is_down_is_refused() -> None:
    driver = Driver(StrawCluster())
    cluster: Any = driver.cluster
    pair = a_pair(cluster, '1.1')
    cluster.take_down(pair[2])
    driver.run(3)
    answer = driver.order('import', mappings=text([pair]), dry_run=True)
    assert answer['left_out'] == [{'pgid': '1.1', 'reason': 'osd.%d is down' % pair[2]}]


def test_a_preview_is_the_same_while_an_osd_is_down() -> None:
    driver = waiting()
    balanced = driver.order('expand', weight='1.0', dry_run=True)['balanced']
    driver.cluster.take_down(0)
    driver.run(5)
    assert driver.order('expand', weight='1.0', dry_run=True)['balanced'] == balanced


def unknown(driver: Driver) -> List[str]:
    """PGs of which it is not known where their release leads."""
    return [pgid for pgid, move in driver.loop.rebalance.release_moves.moves.items()
            if not move.targets_known]


@pytest.mark.parametrize('trigger', ['failover', 'reweight'])
def test_moves_computed_while_osds_are_down_are_known_once_these_are_back(trigger: str) -> None:
    """Releases whose targets are not known would not be held back from those that are full."""
    driver = Driver(StrawCluster(hosts=8, pgs=64), replace(BALANCED, target='crush'))
    cluster = driver.cluster
    assert isinstance(cluster, StrawCluster)
    driver.run(3)
    cluster.add_osds(4, 0.0)
    driver.run(3)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status['released'] >= 8)
    for osd in (0, 1):
        cluster.take_down(osd)
    driver.run(5)
    if trigger == 'failover':
        driver.restart()
    else:
        cluster.toys[3] = cluster.toys[3]._replace(reweight=0.999)
        cluster.place()
    driver.run(10)
    assert unknown(driver)
    cluster.revive(0)
    driver.run(5)
    assert unknown(driver)
    cluster.revive(1)
    driver.run(5)
    assert not unknown(driver)
    cluster.fullness = {osd: 'nearfull' for osd in cluster.new}
    driver.run(40)
    released = driver.status['released']
    assert driver.status['pinned']
    driver.run(60)
    assert driver.status['released'] == released


def with_new_hosts(phase: str) -> Driver:
    """Most PGs wait for two new hosts, and none moves."""
    cluster = RetryingCluster(hosts=8, pgs=64)
    driver = Driver(cluster, replace(BALANCED, target='crush', max_pgs_in_flight=4))
    driver.run(3)
    if phase == 'PINNED':
        driver.ask('prepare')
        driver.run_to('PREPARED')
        cluster.add_osds(2, 1.0)
        driver.run_until(lambda: bool(cluster.remapped()))
        driver.ask('pin')
    else:
        cluster.add_osds(2, 0.0)
        driver.run(3)
        driver.order('expand', weight='1.0')
        driver.run_until(lambda: driver.status['released'] >= 8)
        if phase == 'ABORTED':
            driver.ask('abort')
        else:
            driver.options = out_of_hours(driver.options, cluster.now)
    driver.run_to(phase)
    driver.run(20)
    return driver


@pytest.mark.parametrize('phase', ['PINNED', 'HOLDING', 'ABORTED'])
def test_pins_outlast_that_new_hosts_are_marked_out_and_come_back(phase: str) -> None:
    """Otherwise all PGs that wait for these would be remapped, each time."""
    driver = with_new_hosts(phase)
    cluster, new = driver.cluster, driver.cluster.new
    waiting = [pgid for pgid in driver.loop.rebalance.pins
               if not set(cluster.pg[pgid].mon.raw).isdisjoint(new)]
    before = {pgid: cluster.pg[pgid].up for pgid in waiting}

    def remapped() -> int:
        return sum(cluster.pg[pgid].up != up for pgid, up in before.items())

    for osd in new:
        cluster.take_down(osd)
    driver.run(int(DOWN_SECONDS) - 5)
    assert len(waiting) > 20 and not any(cluster.entries()[pgid].vector for pgid in waiting)
    driver.run(15)
    assert all(cluster.entries()[pgid].vector == before[pgid] for pgid in waiting)
    for osd in new:
        cluster.mark_out(osd)
    assert not remapped()
    driver.run(30)
    for osd in new:
        cluster.revive(osd)
    # Of 8 hosts, CRUSH chose some meanwhile to which PGs are pinned: the mons keep no upmap then.
    assert 0 < remapped() < len(waiting) / 3
    driver.run(30)
    # An operator decides on the PGs of an aborted campaign.
    assert driver.phase == phase and (not remapped() or phase == 'ABORTED')
    driver.options = replace(driver.options, begin_time='0000', end_time='2400')
    if phase != 'HOLDING':
        driver.ask('start' if phase == 'PINNED' else 'resume')
    driver.run_to('DONE', 600)
    assert cluster.clean() and not cluster.entries()


def test_pins_outlast_new_hosts_although_another_osd_restarts_meanwhile() -> None:
    driver = with_new_hosts('PINNED')
    cluster = driver.cluster
    for osd in cluster.new:
        cluster.take_down(osd)
    driver.run(int(DOWN_SECONDS) - 10)
    cluster.take_down(0)
    driver.run(20)

    def vectors(with_osd: bool) -> Set[bool]:
        return {cluster.entries()[pgid].vector is not None for pgid in driver.loop.rebalance.pins
                if (0 in cluster.pg[pgid].data) == with_osd}

    assert vectors(with_osd=False) == {True} and vectors(with_osd=True) == {False}
    cluster.revive(0)
    driver.run(20)
    assert vectors(with_osd=False) == vectors(with_osd=True) == {True}


def test_pgs_stay_if_the_mons_commit_only_a_part_of_the_commands_of_vectors() -> None:
    driver = with_new_hosts('PINNED')
    cluster = driver.cluster
    run, ups = cluster.run, {pgid: pg.up for pgid, pg in cluster.pg.items()}
    remapped: Set[str] = set()

    def run_one_by_one(commands: Sequence[Mapping[str, Any]]) -> List[Any]:
        replies = []
        for command in commands:
            replies += run([command])
            remapped.update(pgid for pgid, pg in cluster.pg.items() if pg.up != ups[pgid])
        return replies

    for osd in cluster.new:
        cluster.take_down(osd)
    setattr(cluster, 'run', run_one_by_one)
    driver.run(int(DOWN_SECONDS) + 10)
    assert any(entry.vector for entry in cluster.entries().values()) and not remapped


def test_vectors_that_the_mons_commit_late_are_pins() -> None:
    """The commands take longer than readback_timeout, and no OSDMap shows them at once."""
    driver = with_new_hosts('HOLDING')
    driver.options = replace(driver.options, readback_timeout=20.0)
    cluster, pins, run = driver.cluster, set(driver.loop.rebalance.pins), driver.cluster.run

    vectors: List[str] = []

    def run_late(commands: Sequence[Mapping[str, Any]]) -> List[Any]:
        pgids = [command['pgid'] for command in commands if command['prefix'] == 'osd pg-upmap']
        cluster.now += 25.0 if pgids else 0.0
        vectors.extend(pgids)
        return run(commands)

    cluster.lag = 2
    for osd in cluster.new:
        cluster.take_down(osd)
    setattr(cluster, 'run', run_late)
    driver.run_until(lambda: bool(vectors), int(DOWN_SECONDS) + 20)
    records = driver.loop.rebalance.pins
    driver.run(1)
    assert all(records[pgid].entry.vector for pgid in vectors)  # they are awaited
    driver.run(20)
    assert set(records) == pins
    assert sorted(vectors) == sorted(pgid for pgid, entry in cluster.entries().items()
                                     if entry.vector)  # each of them was sent once


@pytest.mark.parametrize('outdated, absent', [(False, set()), (True, {0})])
def test_goals_whose_sets_lack_an_osd_that_is_down_depend_on_it(
        outdated: bool, absent: Set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ceph's tools may place a PG on other OSDs than those that serve it, as with a newer map."""
    driver = expanding()
    cluster = driver.cluster
    present = cluster.outlook

    def outlook(osdmap: OsdMap, *args: Any) -> Any:
        future = present(osdmap, *args)
        lacking = min(pgid for pgid, pg in cluster.pg.items() if 0 in pg.data)
        assert isinstance(future, Future)
        if not outdated or not args[-1]:
            return future
        raw = tuple(osd for osd in cluster.toys if osd not in cluster.pg[lacking].data)[:3]
        return replace(future, pgs={**future.pgs, lacking: future.pgs[lacking]._replace(raw=raw)})

    monkeypatch.setattr(cluster, 'outlook', outlook)
    cluster.take_down(0)
    driver.run_until(lambda: bool(whats(driver, 'plan')))
    basis = driver.loop.rebalance.campaign.pinning.goals.basis
    assert basis is not None and basis.absent == absent


@pytest.mark.parametrize('lost', [0, 1])
def test_a_dry_run_counts_the_pgs_that_are_pinned_though_they_lack_a_copy(lost: int) -> None:
    cluster = StrawCluster(hosts=8, pgs=64)
    driver = Driver(cluster)
    driver.ask('prepare')
    driver.run_to('PREPARED')
    cluster.add_osds(2, 1.0)
    cluster.take_down(lost)
    driver.run(5)
    shown, remapped = driver.preview['remapped'], cluster.remapped()
    driver.ask('pin')
    driver.run_to('PINNED')
    pinned = driver.loop.rebalance.pins
    # The others lack a copy, and none of theirs is misplaced.
    assert shown == len(pinned) < len(remapped)
    assert any(lost in cluster.pg[pgid].data for pgid in pinned)
