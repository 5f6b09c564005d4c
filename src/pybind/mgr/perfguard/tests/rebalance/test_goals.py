# SPDX-License-Identifier: LGPL-2.1-or-later
"""target=balanced from PINNED to DONE on the cluster in memory, crashes included."""
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Dict, List, Optional

import pytest

from perfguard import tables
from perfguard.cluster.types import (Balancing, Osd, OsdMap, PgCounts, Pool, Signals, UpmapEntry,
                                     pool_of)
from perfguard.events import Event
from perfguard.observation import Settings
from perfguard.options import Options
from perfguard.rebalance import release_moves
from perfguard.rebalance.campaign import Basis, GoalsMark, Rollback
from perfguard.rebalance.change import ChangeStage
from perfguard.rebalance.goals import (Balanced, Goals, awaits_tranches, basis, event, ground,
                                       needed, settled, pgs_in_transition)
from perfguard.rebalance.pin_index import PinIndex
from perfguard.rebalance.tables import rebalance_status
from perfguard.rebalance.types import Bounds, Flight, Phase, PinRecord, Sent
from perfguard.rebalance.weights import WeightChange
from perfguard.text import pgs
from perfguard.upmap.balance import Balance, BalanceLimit
from perfguard.upmap.pins import INCOMPLETE
from perfguard.upmap.shares import Targets

from ..fakes.campaigns import campaign_of, changed
from ..fakes.cluster import Crash, FakeCluster, FakeView
from ..fakes.driver import OPTIONS, Driver
from ..fakes.instants import instants
from ..loop.test_loop import Story, whats
from .test_auto_expand import seen
from .test_orders import crush

BALANCED = replace(OPTIONS, target='balanced', max_extra_movement=100.0)
ITEMS = UpmapEntry(((1, 2),))


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


# ---- what goals depend on, and when they are computed

OSDS = {osd: Osd(osd, True, 1.0) for osd in range(3)}
POOL = Pool(1, 'p', False, 3, 2, 0, 32, 32, 32)
OSDMAP = OsdMap(1, frozenset(), {1: POOL, 2: replace(POOL, id=2)}, OSDS, {}, {}, {})
CRUSH = crush(dict.fromkeys(range(3), 1.0))


def with_osd(**changes: Any) -> OsdMap:
    return replace(OSDMAP, osds={**OSDS, 2: replace(OSDS[2], **changes)})


def with_pool(**changes: Any) -> OsdMap:
    return replace(OSDMAP, pools={**OSDMAP.pools, 2: replace(OSDMAP.pools[2], **changes)})


@pytest.mark.parametrize('osdmap, change', [
    (replace(OSDMAP, epoch=2), ''), (with_osd(up=False), ''), (with_osd(reweight=0.5), 'common'),
    (with_osd(exists=False), 'common'), (with_pool(name='q'), ''),
    (with_pool(pg_num=64, pg_num_target=64, pg_num_pending=64), 'pool'),
    (with_pool(pg_num_pending=16), 'merging'), (with_pool(pg_num_target=16), 'merging'),
    (with_pool(size=2), 'pool'), (with_pool(crush_rule=1), 'pool')])
def test_the_basis_of_goals(osdmap: OsdMap, change: str) -> None:
    before, now = basis(OSDMAP, CRUSH, [2, 9]), basis(osdmap, CRUSH, [2, 9])
    assert before.pools.keys() == now.pools.keys() == {2}
    assert (now.common != before.common) == (change == 'common')
    assert (now.pools != before.pools) == (change in ('pool', 'merging'))
    assert (now.pools[2] == 'merging') == (change == 'merging')
    assert (len(now.common), len(before.pools[2])) == (16, 8)


def test_the_options_of_the_balance_are_in_the_basis() -> None:
    commons = [basis(OSDMAP, CRUSH, [], balancing, deviation).common
               for balancing, deviation in (
                   (Balancing(), 1.0), (Balancing(upmap=False), 1.0),
                   (Balancing(pools=frozenset({1})), 1.0), (Balancing(), 2.0))]
    assert len(set(commons)) == 4
    assert basis(OSDMAP, crush({0: 2.0}), []).common not in commons
    assert commons[0] == basis(OSDMAP, CRUSH, [], Balancing(deviation=5.0)).common


PIN = PinRecord(UpmapEntry(), ITEMS)
MARK = GoalsMark(1, Basis('x', {1: 'a'}, frozenset({1})))
#: OSD 1, without which some PGs could not be placed, is still down.
ABSENT = replace(OSDMAP, osds={**OSDS, 1: replace(OSDS[1], up=False)})


@pytest.mark.parametrize('changes, pin, now, osdmap, expected', [
    ({}, replace(PIN, goal=ITEMS), 'x', ABSENT, False), ({}, PIN, 'x', ABSENT, True),
    ({}, replace(PIN, goal=ITEMS), 'y', ABSENT, True),
    ({}, replace(PIN, goal=ITEMS), 'x', OSDMAP, True),
    ({}, PIN, 'x', replace(ABSENT, pg_temp={'1.0': (0, 1, 2)}), False),
    ({'in_flight': {'1.0': Flight(0.0, ITEMS)}}, PIN, 'x', ABSENT, False),
    ({'goals': GoalsMark()}, replace(PIN, goal=ITEMS), 'x', ABSENT, True),
    ({'target': 'crush'}, PIN, 'x', ABSENT, False),
    ({'phase': Phase.FINISHING}, PIN, 'x', ABSENT, False),
    ({'phase': Phase.HOLDING}, PIN, 'x', ABSENT, True)])
def test_goals_are_computed_for_pins_without_a_valid_one(
        changes: Dict[str, Any], pin: PinRecord, now: str, osdmap: OsdMap,
        expected: bool) -> None:
    campaign = changed(campaign_of(1, Phase.PINNED, 0.0, target='balanced', goals=MARK), **changes)
    assert needed(campaign, PinIndex({'1.0': pin}), Basis(now, {1: 'a'}), osdmap) == expected
    assert not needed(campaign, PinIndex(), Basis(now, {1: 'a'}), osdmap)


FIRST_OF_TWO = WeightChange(weights={1: 0.0}, stage=ChangeStage.LANDED, share=0.5)


@pytest.mark.parametrize('change, rollback, expected', [
    (None, Rollback(), False), (FIRST_OF_TWO, Rollback(), True),
    (replace(FIRST_OF_TWO, share=1.0), Rollback(), False),
    (replace(FIRST_OF_TWO, stage=ChangeStage.SENT), Rollback(), False),
    (FIRST_OF_TWO, Rollback(begun=True), False)])
def test_goals_are_those_of_the_last_tranche(change: Optional[WeightChange], rollback: Rollback,
                                             expected: bool) -> None:
    campaign = replace(campaign_of(1, Phase.PINNED, 0.0), change=change, rollback=rollback)
    assert awaits_tranches(campaign) == expected
    assert needed(campaign, PinIndex({'1.0': PIN}), Basis('x', {}), OSDMAP) == expected


def test_goals_are_based_on_the_pools_with_pins() -> None:
    osdmap = replace(
        OSDMAP, upmap_items={'1.3': ((0, 1),), '2.3': ((0, 1),)},
        upmap_vectors={'1.4': (2, 1, 0), '2.4': (2, 1, 0)},
        pg_temp={'1.0': (0, 1, 2), '1.1': (1, 0, 2), '2.0': (0, 1, 2)})
    observation = replace(seen(1, 1000.0), settings=Settings(osdmap, None),
                          evacuation={'1.1': (1,)})
    based_on = ground(campaign_of(1, Phase.PINNED, 0.0, turned=5.0), {'1.0': PIN}, observation,
                      Basis('x', {}))
    assert based_on.entries == {'1.3': UpmapEntry(((0, 1),)), '1.4': UpmapEntry(vector=(2, 1, 0))}
    assert based_on.remapped == {'1.0': (0, 1, 2)}
    # The times of a campaign change in every turn.
    later = campaign_of(1, Phase.PINNED, 0.0, turned=6.0)
    assert ground(later, {'1.0': PIN}, observation, Basis('x', {})) == based_on


@pytest.mark.parametrize('in_transition, ratio, quiet, number', [
    (5, 0.0, 60.0, 5), (5, 0.0, 60.5, 0), (8, 0.0, 60.5, 0), (9, 0.0, 60.5, 9),
    (10, 0.01, 60.5, 0), (11, 0.01, 60.5, 11)])
def test_a_few_pgs_without_a_change_for_long_are_stuck(in_transition: int, ratio: float,
                                                       quiet: float, number: int) -> None:
    campaign = campaign_of(1, Phase.PINNED, 0.0, progressed=1000.0 - quiet)
    counts = {1: PgCounts(in_transition=in_transition), 2: PgCounts(in_transition=7)}
    signals = Signals(PgCounts(total=1000, in_transition=99), counts)
    observation = replace(seen(1, 1000.0), signals=signals)
    assert pgs_in_transition(campaign, {'1.0': PIN}, observation, ratio) == number
    assert settled(campaign, {'1.0': PIN}, observation, ratio) == (number == 0)


def test_all_pgs_count_while_those_of_a_pool_are_not_known() -> None:
    campaign = campaign_of(1, Phase.PINNED, 0.0)
    unknown = replace(seen(1, 1000.0), signals=Signals(PgCounts(total=1000, in_transition=99)))
    assert pgs_in_transition(campaign, {'1.0': PIN}, unknown, 0.0) == 99
    known = replace(unknown, signals=replace(unknown.signals, pool_counts={1: PgCounts()}))
    assert pgs_in_transition(campaign, {'1.0': PIN}, known, 0.0) == 0
    assert pgs_in_transition(campaign, {}, known, 0.0) == 99


@pytest.mark.parametrize('changes, expected', [
    ({}, False), ({'in_flight': {'1.0': Flight(0.0, ITEMS)}}, True),
    ({'unpinnable': {'1.0': INCOMPLETE}}, True),
    ({'in_flight': {'1.0': Flight(0.0, ITEMS)}, 'sent': {'1.1': Sent(0.0)}}, False)])
def test_a_remapped_pg_that_is_not_released_may_still_move(changes: Dict[str, Any],
                                                           expected: bool) -> None:
    remapped = replace(seen(1, 1000.0, remapped=1), signals=Signals(PgCounts(), {1: PgCounts()}))
    campaign = campaign_of(1, Phase.PINNED, 0.0, **changes)
    assert settled(campaign, {'1.0': PIN}, remapped, 0.0) == expected
    leaving = replace(remapped, evacuation={'1.0': (1,)})
    assert settled(campaign, {}, leaving, 0.0) == ('sent' not in changes)


# ---- texts and sums

def test_the_event_on_new_goals() -> None:
    def balance_of(after: int, limit: Optional[BalanceLimit] = None) -> Balance:
        return Balance({}, Targets({0: 2.5}, {0: 3}, {0: 2}), {0: 2}, {0: after}, limit)

    moving = replace(PIN, goal=UpmapEntry())
    pins = {'1.0': replace(PIN, goal=ITEMS), '1.1': moving, '1.2': PIN, '1.3': moving}
    several = event(Goals(balances={1: balance_of(4), 2: balance_of(3)}), pins)
    assert several == Event('plan', '2 PGs will move, 1 pin will stay as upmaps',
                            'then every OSD has its share of 2 pools to within 1.50 PGs')
    limited = Goals(balances={
        1: balance_of(3), 2: balance_of(4, BalanceLimit.GROUPS), 3: balance_of(
            4, BalanceLimit.ROOM), 4: balance_of(4, BalanceLimit.GROUPS)})
    assert event(limited, {}).why == (
        'then every OSD has its share of 4 pools to within 1.50 PGs, limited by OSDs that would '
        'be nearfull, limited by a CRUSH rule that places several shards in each bucket')
    assert event(Goals(), {}).why == ''


LIMITS = (BalanceLimit.MOVEMENT, BalanceLimit.GROUPS)


def test_the_sums_of_several_pools() -> None:
    first = Balanced(extra=1, limit=10, kept=2, deviation=0.5, bounds=Bounds(1.0, 0.2))
    both = first.plus(Balanced(extra=2, limit=20, kept=3, deviation=1.5, limits=LIMITS))
    assert both == Balanced((), 3, 30, 5, 1.5, LIMITS, Bounds(1.0, 0.2))
    assert both.plus(Balanced()) == both == Balanced(bounds=Bounds(1.0, 0.2)).plus(both)
    assert Balanced(limits=LIMITS[1:]).plus(Balanced(limits=LIMITS)).limits == LIMITS
    assert both.as_json() == {
        'pgs': 0, 'shards': 0, 'bytes': 0, 'primaries_moving': 0, 'extra_shards': 3,
        'limit_shards': 30, 'kept': 5, 'deviation': 1.5, 'target_deviation': 1.0,
        'max_extra_movement': 0.2, 'limited': True, 'limits': ['MOVEMENT', 'GROUPS']}
    full = Balanced(limits=(BalanceLimit.ROOM,)).as_json()
    assert (full['limited'], full['limits']) == (False, ['ROOM'])
