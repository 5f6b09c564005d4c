# SPDX-License-Identifier: LGPL-2.1-or-later
"""target=balanced from PINNED to DONE on the cluster in memory, crashes included."""
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Dict, List, Optional

import pytest

from perfguard import tables
from perfguard.cluster.types import UpmapEntry, pool_of
from perfguard.options import Options
from perfguard.rebalance.campaign import GoalsMark
from perfguard.rebalance import release_moves
from perfguard.rebalance.tables import rebalance_status
from perfguard.text import pgs

from ..fakes.cluster import Crash, FakeCluster, FakeView
from ..fakes.driver import OPTIONS, Driver
from ..fakes.instants import instants
from ..loop.test_loop import Story, whats

BALANCED = replace(OPTIONS, target='balanced', max_extra_movement=100.0)
ITEMS = UpmapEntry(((1, 2),))
VECTOR = UpmapEntry(vector=(3, 2, 1))


def spread(cluster: FakeCluster, pool: int) -> float:
    """Greatest distance of an OSD from its ideal number of PGs; all OSDs weigh the same."""
    found = Counter(osd for pgid, pg in cluster.pg.items() if pgid.startswith('%d.' % pool)
                    for osd in pg.data)
    ideal = 3 * cluster.pgs / len(cluster.toys)
    return max(abs(found[osd] - ideal) for osd in cluster.toys)


def balanced(cluster: Optional[FakeCluster] = None) -> Driver:
    driver = Driver(cluster or FakeCluster(), BALANCED)
    driver.to_pinned()
    return driver


def test_every_osd_has_its_share_and_no_pg_moves_twice() -> None:
    driver = balanced()
    cluster = driver.cluster
    assert max(spread(cluster, pool) for pool in (1, 2)) > 1
    plan = driver.preview
    assert plan['pgs'] and cluster.moved == []
    driver.ask('start')
    driver.run_to('DONE')
    moved = Counter(one.pgid for one in cluster.moved)
    assert set(moved.values()) == {1} and len(moved) == plan['pgs']
    assert spread(cluster, 1) < 1 and spread(cluster, 2) < 1
    [row] = driver.history
    assert (row['released'], row['total']) == (plan['pgs'], plan['pgs'] + row['kept'])
    assert cluster.clean() and cluster.entries()


def test_a_restart_of_an_osd_leaves_the_goals_as_they_are() -> None:
    """It gives the same CRUSH map a new version. Working the goals out holds all releases."""
    driver = balanced()
    campaign = driver.loop.jobs.rebalance.campaign
    driver.cluster.restart_osd()
    driver.run(20)
    after = driver.loop.jobs.rebalance.campaign
    assert campaign.pinning.goals.basis and after.pinning.goals == campaign.pinning.goals


@dataclass
class Merging(FakeCluster):
    """One of its pools merges a PG every three seconds, for hours."""
    merging: int = 0

    def _view(self) -> FakeView:
        view = super()._view()
        if not self.merging:
            return view
        number = 4096 - int(self.now) // 3
        pool = replace(view.osdmap.pools.get(self.merging, view.osdmap.pools[1]),
                       id=self.merging, pg_num=number, pg_num_target=64, pg_num_pending=number)
        pools = {**view.osdmap.pools, self.merging: pool}
        return replace(view, osdmap=replace(view.osdmap, pools=pools))

    def tick(self, seconds: float = 1.0) -> None:
        self.epoch += bool(self.merging) and int(self.now) % 3 == 0
        super().tick(seconds)


def goals_of(driver: Driver) -> GoalsMark:
    campaign = driver.loop.rebalance.campaign
    assert campaign.pinning.goals.number
    return campaign.pinning.goals


def test_a_pool_of_others_that_merges_pgs_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor are the moves of all pins worked out with each PG that it merges."""
    cluster = Merging()
    driver = balanced(cluster)
    cluster.merging, before = 9, goals_of(driver)
    moves: List[str] = []
    release_move = release_moves.release_move

    def counted(pgid: str, *args: Any) -> Any:
        moves.append(pgid)
        return release_move(pgid, *args)

    monkeypatch.setattr(release_moves, 'release_move', counted)
    driver.run(30)
    assert not moves and goals_of(driver) == before
    driver.ask('start')
    driver.run_to('DONE')
    assert max(spread(cluster, pool) for pool in (1, 2)) < 1


def test_a_pool_with_pins_that_merges_pgs_ends_where_crush_places_it() -> None:
    """As with the balancer. Its goals would be worked out again with each PG that is merged."""
    cluster = Merging()
    driver = balanced(cluster)
    cluster.merging = 2
    pins = driver.loop.rebalance.pins
    assert any(pin.before != pin.goal for pgid, pin in pins.items() if pool_of(pgid) == 2)
    driver.run(20)
    left = {pgid: pin for pgid, pin in pins.items() if pool_of(pgid) == 2}
    assert left and all(pin.before == pin.goal != pin.entry for pin in left.values())
    before = goals_of(driver)
    driver.ask('start')
    driver.run_to('DONE')
    assert goals_of(driver) == before and spread(cluster, 1) < 1
    assert all(tuple(pg.mon.raw) == pg.data for pgid, pg in cluster.pg.items() if pgid in left)


def test_a_pool_is_balanced_once_it_has_merged_its_pgs() -> None:
    cluster = Merging()
    driver = balanced(cluster)
    cluster.merging = 2
    driver.run(20)
    cluster.merging = 0
    cluster.epoch += 1
    driver.run(20)
    driver.ask('start')
    driver.run_to('DONE')
    assert max(spread(cluster, pool) for pool in (1, 2)) < 1


def test_the_goals_of_a_pool_hold_when_another_has_no_pins_left() -> None:
    """Working them out again would hold all releases."""
    driver = Driver(FakeCluster(pgs=24), replace(BALANCED, max_pgs_in_flight=1))
    driver.to_pinned()
    before, pins = goals_of(driver), driver.loop.rebalance.pins
    driver.ask('start')
    alone = 0
    while driver.phase != 'DONE':
        driver.turn()
        assert goals_of(driver) == before
        alone += len(pins) > 1 and len(set(map(pool_of, pins))) == 1
    assert alone > 5


def test_extra_movement_is_bounded_and_upmaps_of_others_are_left_alone() -> None:
    cluster = FakeCluster()
    for pgid in ('1.1', '1.3', '2.1'):
        first = cluster.pg[pgid].data[0]
        cluster.add_upmap(pgid, first, next(
            osd for osd in range(8) if osd not in cluster.pg[pgid].data))
    theirs = cluster.entries()
    driver = Driver(cluster, replace(BALANCED, max_extra_movement=0.0))
    driver.to_pinned()
    pins = dict(driver.loop.rebalance.pins)
    plan = driver.preview
    assert not set(theirs) & set(pins)
    # CRUSH moves one shard of each of the 12 PGs that were remapped.
    assert sum(pin.before != pin.entry for pin in pins.values()) == 12
    assert 0 < plan['shards'] <= 12
    driver.ask('start')
    driver.run_to('DONE')
    assert theirs.items() <= cluster.entries().items()


def test_a_pg_that_stays_keeps_its_upmap_and_is_not_a_pin() -> None:
    driver = balanced()
    stayers = {pgid: pin.entry for pgid, pin in driver.loop.rebalance.pins.items() if pin.stays}
    assert stayers
    driver.ask('start')
    driver.run_until(lambda: driver.status['kept'] > 0)
    assert not set(stayers) & set(driver.loop.rebalance.pins)
    assert driver.status['kept'] == len(stayers)
    driver.run_to('DONE')
    assert stayers.items() <= driver.cluster.entries().items()
    assert '%d pins kept as ordinary upmaps' % len(stayers) in whats(driver, 'keep')


def test_progress_counts_pgs_that_move() -> None:
    driver = balanced()
    driver.ask('start')
    driver.run_until(lambda: driver.status['kept'] > 0)
    first = driver.status
    assert first['kept'] > first['released'] and first['moving'] == first['total'] - first['kept']
    assert first['done_ratio'] == pytest.approx(first['released'] / first['moving'], abs=1e-4)
    assert list(driver.cluster.progress_events.values()) == [
        pytest.approx(first['done_ratio'], abs=1e-4)]
    assert '%d of %d released' % (first['released'], first['moving']) in rebalance_status(first)
    assert '%d of %s released' % (first['released'], pgs(first['moving'])) \
        in tables.status(driver.loop.status())


def test_what_an_abort_has_left_counts_as_not_done() -> None:
    driver = balanced()
    driver.ask('start')
    driver.run_until(lambda: driver.status['kept'] > 0)
    driver.ask('abort')
    driver.run_to('ABORTED')
    ended = driver.status
    assert ended['kept'] >= ended['moving'] > 0 and ended['done_ratio'] < 0.5


def test_the_progress_event_ends_at_the_whole() -> None:
    driver = balanced()
    driver.ask('start')
    shares: List[float] = []

    def note() -> bool:
        shares.extend(driver.cluster.progress_events.values())
        return driver.phase == 'DONE'

    driver.run_until(note)
    assert shares == sorted(shares) and shares[-1] == 1.0


def test_abort_forgets_pgs_that_never_were_pinned() -> None:
    driver = balanced()
    entries = driver.cluster.entries()
    assert any(pin.before == pin.entry for pin in driver.loop.rebalance.pins.values())
    driver.ask('abort')
    driver.run_to('ABORTED')
    assert driver.cluster.entries() == entries
    assert set(driver.loop.rebalance.pins) == set(entries) and driver.status['kept'] == len(entries)


def test_the_next_campaign_has_goals_of_its_own() -> None:
    driver = balanced()
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.options = OPTIONS
    driver.ask('prepare')
    driver.run_to('PREPARED')
    assert all(pin.goal is None for pin in driver.loop.rebalance.pins.values())
    driver.ask('pin')
    driver.run_to('PINNED')
    driver.ask('start')
    driver.run_to('DONE')
    assert driver.cluster.entries() == {} and driver.cluster.clean()


def test_a_goal_that_the_mon_does_not_keep_falls_back_once(
        monkeypatch: pytest.MonkeyPatch) -> None:
    driver = balanced()
    cluster = driver.cluster
    pgid, pin = next((pgid, pin) for pgid, pin in driver.loop.rebalance.pins.items()
                     if pin.goal and not pin.stays and pin.goal != pin.before)
    mon = cluster.pg[pgid].mon
    keeps = mon.next_epoch

    def drops() -> None:
        keeps()
        if tuple(mon.stored.items) == pin.leads_to.items:
            mon.put_items([])

    monkeypatch.setattr(mon, 'next_epoch', drops)
    driver.ask('start')
    driver.run_to('DONE')
    told = [what for what in whats(driver, 'release') if 'released to its upmap from' in what]
    assert told == ['PG %s is released to its upmap from before the campaign' % pgid]
    assert cluster.entries().get(pgid, UpmapEntry()) == pin.before and cluster.clean()


def test_a_crush_change_while_releasing_leads_to_new_goals() -> None:
    driver = balanced()
    cluster = driver.cluster
    driver.ask('start')
    driver.run_until(lambda: driver.status['released'] > 0)
    cluster.set_raw('1.1', (9, 8, 10))
    driver.run_to('DONE')
    assert cluster.clean() and spread(cluster, 1) < 1 and spread(cluster, 2) < 1
    assert len(whats(driver, 'plan')) >= 2


def test_an_osd_going_out_while_pinned_gets_nothing() -> None:
    driver = balanced()
    cluster = driver.cluster
    cluster.toys[10] = cluster.toys[10]._replace(reweight=0.0)
    cluster._crush_changed()
    driver.run(20)
    driver.ask('start')
    driver.run_to('DONE')
    assert not any(10 in entry_targets(entry) for entry in cluster.entries().values())


def entry_targets(entry: UpmapEntry) -> List[int]:
    return [target for _, target in entry.items] + list(entry.vector or ())


# ---- crashes

@dataclass
class BalancedStory(Story):
    options: Options = BALANCED

    def check_upmaps(self, moved: List[str]) -> None:
        cluster = self.cluster
        assert self.upmaps.keys() <= cluster.entries().keys() | set(moved)
        if not self.abort_in:
            assert spread(cluster, 1) < 1 and spread(cluster, 2) < 1
            [row] = self.driver.history
            assert row['released'] == len(moved)
            assert (row['released'], row['kept']) == self.expected or not self.expected

    expected: Any = None


def faults(**kwargs: Any) -> Dict[int, str]:
    """Point -> what was wrong in the end, for a crash at each single point of a story."""
    quiet = BalancedStory(**kwargs).play()
    quiet.check()
    row = quiet.driver.history[0]
    wrong: Dict[int, str] = {}
    for fault_at in instants(quiet.count, kwargs):
        story = BalancedStory(fault_at, Crash(), expected=(row['released'], row['kept']), **kwargs)
        try:
            story.play().check()
            assert story.faults == 1
        except AssertionError as assertion:
            wrong[fault_at] = repr(assertion)
    return wrong


def test_a_crash_at_any_point_changes_nothing_in_the_end() -> None:
    assert faults() == {}


@pytest.mark.parametrize('phase', ['PINNED', 'RELEASING'])
def test_a_crash_at_any_point_of_an_aborted_campaign(phase: str) -> None:
    assert faults(abort_in=phase) == {}
