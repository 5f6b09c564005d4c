# SPDX-License-Identifier: LGPL-2.1-or-later
"""Another pg_num for a pool: splits first, merges last, and the moves between them as releases."""
import errno
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Tuple

import pytest

from perfguard.cluster.types import PoolPgs, PoolRule, merging_seeds
from perfguard.errors import Refused
from perfguard.rebalance.pg_num import autoscaler_risk
from perfguard.rebalance.pool_rule import RuleChange
from perfguard.rebalance.requests import Request
from perfguard.rebalance.risks import RISKS

from ..fakes import mon_model
from ..fakes.cluster import FakeView
from ..fakes.driver import Driver
from ..fakes.split_cluster import SplitCluster


class PgpWatcher(SplitCluster):
    """Notes the numbers, and what is remapped by them."""

    def __post_init__(self) -> None:
        self.steps: List[Tuple[int, int]] = []
        self.remapped_by_numbers: List[str] = []
        super().__post_init__()

    def _set(self, numbers: PoolPgs) -> None:
        there = {pgid: pg.data for pgid, pg in self.pg.items() if pgid.startswith('1.')}
        if numbers.pool == 1 and numbers[1:] != self.numbers[1][1:]:
            self.steps.append((numbers.pg_num, numbers.pgp_num))
        super()._set(numbers)
        for pgid, pg in self.pg.items():
            pg.mon.next_epoch()
        self.remapped_by_numbers += [pgid for pgid, data in there.items() if pgid in self.pg
                                     and set(self.pg[pgid].mon.up()) != set(data)]


def driver_of(cluster: Any = None) -> Driver:
    return Driver(cluster or PgpWatcher(pgs=8))


def ended(cluster: PgpWatcher, pg_num: int) -> None:
    """All PGs are where CRUSH places them, and each has moved at most once."""
    assert cluster.numbers[1] == cluster.targets[1] == PoolPgs(1, pg_num, pg_num)
    ours = {pgid: pg for pgid, pg in cluster.pg.items() if pgid.startswith('1.')}
    assert len(ours) == pg_num and cluster.clean() and cluster.entries() == {}
    for pgid, pg in ours.items():
        assert list(pg.up) == cluster._raw(pgid, pg_num, cluster.toys), pgid
    assert cluster.remapped_by_numbers == []


def moved(cluster: PgpWatcher) -> Dict[str, int]:
    found: Dict[str, int] = {}
    for one in cluster.moved:
        found[one.pgid] = found.get(one.pgid, 0) + 1
    return found


def test_pgs_that_are_merged_and_those_they_are_merged_into() -> None:
    assert merging_seeds(8, 8) == frozenset()
    assert merging_seeds(8, 6) == {6, 7, 2, 3}
    assert merging_seeds(8, 2) == set(range(8))


@pytest.mark.parametrize('pg_num', [16, 6])
@pytest.mark.parametrize('fails', [False, True])
def test_pgp_num_is_set_once_pgs_have_left_an_osd_that_fails_at_the_end(
        pg_num: int, fails: bool) -> None:
    driver = driver_of()
    cluster: Any = driver.cluster
    driver.order('pg_num', 'rep', str(pg_num))
    driver.run_until(lambda: driver.status['released'] > 0 and not driver.status['pinned']
                     and not driver.status['in_flight'])
    seeds = range(8, 16) if pg_num == 16 else merging_seeds(8, 6)
    osd = cluster.pg['1.%x' % max(seeds)].data[0]
    cluster.backfill_seconds = 120.0
    if fails:
        cluster.take_down(osd)
    cluster.mark_out(osd)
    while driver.phase != 'DONE':
        driver.turn()
        assert driver.phase not in ('ABORTING', 'ABORTED'), driver.loop.published.events[-3:]
        assert cluster.now < 5000.0
    driver.run(5)
    assert cluster.numbers[1] == PoolPgs(1, pg_num, pg_num) and cluster.clean()
    assert cluster.entries() == {} and cluster.remapped_by_numbers == []
    assert 'norebalance' not in cluster.flags


def test_children_move_before_pgp_num_is_set() -> None:
    driver = driver_of()
    cluster: Any = driver.cluster
    found = cluster.foreign()
    shown = driver.order('pg_num', 'rep', '16', dry_run=True)
    assert shown['pg_num'] == {'pool': 'rep', 'from': 8, 'to': 16, 'splits': 8, 'merges': 0,
                               'moves_first': True}
    answer = driver.order('pg_num', 'rep', '16')
    driver.run_to('DONE')
    assert cluster.steps == [(16, 8), (16, 16)]
    ended(cluster, 16)
    assert cluster.foreign() == found
    assert set(moved(cluster).values()) == {1} and answer['pgs'] == len(moved(cluster)) > 0
    assert all(int(pgid[2:], 16) >= 8 for pgid in moved(cluster))


def test_pgs_are_brought_together_before_they_are_merged() -> None:
    driver = driver_of(PgpWatcher(pgs=16))
    cluster: Any = driver.cluster
    answer = driver.order('pg_num', 'rep', '8')
    driver.run_to('DONE', turns=600)
    assert cluster.steps == [(16, 8), *((number, 8) for number in range(15, 7, -1))]
    ended(cluster, 8)
    assert set(moved(cluster).values()) == {1} and answer['pgs'] == len(moved(cluster)) > 0


@pytest.mark.parametrize('begin, to', [(8, 16), (16, 8)])
def test_the_preview_counts_the_pgs_that_each_osd_has_in_the_end(begin: int, to: int) -> None:
    """With those that splits make, and without those that merges end."""
    driver = driver_of(PgpWatcher(pgs=begin))
    cluster: Any = driver.cluster

    def pgs() -> Dict[int, int]:
        return {osd: sum(osd in pg.data for pg in cluster.pg.values()) for osd in cluster.toys}

    before = pgs()
    rows = {row['osd']: row for row in driver.order('pg_num', 'rep', str(to), dry_run=True)['osds']}
    driver.order('pg_num', 'rep', str(to))
    driver.run_to('DONE', turns=600)
    assert {osd: row['pgs_before'] for osd, row in rows.items()} == before
    assert {osd: row['pgs_after'] for osd, row in rows.items()} == pgs() != before


def test_upmaps_of_others_stay_where_nothing_is_merged() -> None:
    driver = driver_of()
    cluster: Any = driver.cluster
    pgid, pg = '1.3', cluster.pg['1.3']
    spare = next(osd for osd in cluster.toys if osd not in pg.up)
    cluster.add_upmap(pgid, pg.up[0], spare)
    driver.run(5)
    before = cluster.entries()
    driver.order('pg_num', 'rep', '16')
    driver.run_to('DONE')
    assert cluster.entries() == before and cluster.clean()
    assert '1.3' not in moved(cluster) and set(moved(cluster).values()) == {1}


def test_pgs_with_upmaps_are_moved_before_they_are_merged() -> None:
    driver = driver_of(PgpWatcher(pgs=16))
    cluster: Any = driver.cluster
    pg = cluster.pg['1.3']
    cluster.add_upmap('1.3', pg.up[0], next(osd for osd in cluster.toys if osd not in pg.up))
    driver.run(5)
    driver.order('pg_num', 'rep', '8')
    driver.run_to('DONE', turns=600)
    ended(cluster, 8)
    assert '1.3' in moved(cluster) and set(moved(cluster).values()) == {1}


@pytest.mark.parametrize('pgid, to', [('1.1', 12), ('2.3', 8)])
def test_upmaps_that_no_merge_concerns_do_not_delay_merges(pgid: str, to: int) -> None:
    """Of a PG of the pool that stays as it is, and of another pool."""
    driver = driver_of(PgpWatcher(pgs=16))
    cluster: Any = driver.cluster
    pg = cluster.pg[pgid]
    cluster.add_upmap(pgid, pg.up[0], next(osd for osd in cluster.toys if osd not in pg.up))
    driver.run(5)
    driver.order('pg_num', 'rep', str(to))
    driver.run_to('DONE', turns=600)
    assert cluster.numbers[1] == PoolPgs(1, to, to) and pgid in cluster.entries()


def test_a_pool_grows_in_steps_that_ceph_mgr_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('perfguard.rebalance.pg_num.MOST_AHEAD', 8)
    driver = driver_of()
    cluster: Any = driver.cluster
    driver.order('pg_num', 'rep', '32')
    driver.run_to('DONE', turns=900)
    assert cluster.steps == [(16, 8), (16, 16), (24, 16), (24, 24), (32, 24), (32, 32)]
    ended(cluster, 32)
    assert set(moved(cluster).values()) == {1}


def test_a_pool_grows_in_steps_that_the_option_of_ceph_mgr_allows() -> None:
    driver = driver_of()
    cluster: Any = driver.cluster
    cluster.max_pg_num_change = 3
    driver.order('pg_num', 'rep', '16')
    driver.run_to('DONE', turns=900)
    assert cluster.steps == [(11, 8), (11, 11), (14, 11), (14, 14), (16, 14), (16, 16)]
    ended(cluster, 16)
    assert set(moved(cluster).values()) == {1}


def test_a_split_continues_if_the_option_of_ceph_mgr_is_lowered() -> None:
    """In the middle of a step: ceph-mgr splits no further before pgp_num follows."""
    driver = driver_of()
    cluster: Any = driver.cluster
    cluster.splits_at_a_time = 1
    driver.order('pg_num', 'rep', '16')
    driver.run_until(lambda: cluster.numbers[1].pg_num == 12)
    cluster.max_pg_num_change = 3
    driver.run_to('DONE', turns=900)
    assert cluster.steps[3:] == [(12, 8), (12, 12), (13, 12), (14, 12), (15, 12), (15, 15),
                                 (16, 15), (16, 16)]
    ended(cluster, 16)
    assert set(moved(cluster).values()) == {1}


def test_a_split_says_what_it_waits_for_if_ceph_mgr_may_split_nothing() -> None:
    driver = driver_of()
    cluster: Any = driver.cluster
    cluster.max_pg_num_change = 0
    driver.order('pg_num', 'rep', '16')
    driver.run(60)
    assert driver.phase == 'PINNING' and cluster.steps == []
    assert 'mgr_max_pg_num_change is 0' in str(driver.status['reasons'])
    cluster.max_pg_num_change = 128
    driver.run_to('DONE', turns=900)
    assert cluster.steps[-1] == (16, 16)


def test_merges_of_many_pgs_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('perfguard.rebalance.pg_num.MOST_MERGED', 4)
    driver = driver_of(PgpWatcher(pgs=16))
    cluster: Any = driver.cluster
    driver.order('pg_num', 'rep', '8')
    driver.run_to('DONE', turns=900)
    assert cluster.steps == [(16, 12), *((number, 12) for number in range(15, 11, -1)),
                             (12, 8), *((number, 8) for number in range(11, 7, -1))]
    ended(cluster, 8)
    assert set(moved(cluster).values()) == {1}


def test_a_number_between_those_of_an_aborted_split() -> None:
    driver = driver_of()
    cluster: Any = driver.cluster
    driver.order('pg_num', 'rep', '16')
    driver.run_until(lambda: driver.status['released'] >= 2)
    driver.ask('abort')
    driver.run_to('ABORTED')
    assert cluster.numbers[1] == PoolPgs(1, 16, 8)
    driver.order('pg_num', 'rep', '12')
    driver.run_to('DONE', turns=600)
    assert cluster.steps[1:] == [(16, 12), *((number, 12) for number in range(15, 11, -1))]
    ended(cluster, 12)


@pytest.mark.parametrize('names, text', [
    (('rep', '8'), 'already has 8 PGs'), (('none', '16'), 'does not exist'),
    (('rep', '0'), 'from 1 to'), (('rep', 'x'), 'from 1 to'), (('rep', '1024'), 'limit 250')])
def test_refused(names: Tuple[str, str], text: str) -> None:
    driver = driver_of()
    with pytest.raises(Refused, match=text):
        driver.order('pg_num', *names)
    assert driver.phase == 'IDLE'


@pytest.mark.parametrize('number', ['\u00b2', '9' * 5000, '-1', '1.5', ''],
                         ids=['superscript', 'long', 'negative', 'fraction', 'empty'])
def test_a_plan_takes_integers_only(number: str) -> None:
    with pytest.raises(Refused, match='pg_num must be an integer'):
        driver_of().order('pg_num', 'rep', number)


@pytest.mark.parametrize('limit, number, refused', [
    ('pg_num_min', 8, '4'), ('pg_num_max', 12, '16')])
def test_a_number_beyond_the_limits_of_the_pool_is_refused(limit: str, number: int,
                                                           refused: str) -> None:
    driver = driver_of()
    cluster: Any = driver.cluster
    cluster.pg_num_limits = {limit: number}
    driver.run(3)
    with pytest.raises(Refused, match='%s of pool rep .%d' % (limit, number)):
        driver.order('pg_num', 'rep', refused)
    assert driver.phase == 'IDLE'


@pytest.mark.parametrize('limit, number, begin, end', [
    ('pg_num_min', 32, 8, 16), ('pg_num_max', 8, 16, 12)])
def test_a_number_closer_to_the_limits_of_the_pool_is_not_refused(
        limit: str, number: int, begin: int, end: int) -> None:
    driver = driver_of(PgpWatcher(pgs=begin))
    cluster: Any = driver.cluster
    cluster.pg_num_limits = {limit: number}
    driver.run(3)
    driver.order('pg_num', 'rep', str(end))


def test_a_number_beyond_the_limit_of_the_mons_is_refused() -> None:
    driver = driver_of()
    driver.cluster.pool_pg_limit = 12
    with pytest.raises(Refused, match=r'mon_max_pool_pg_num \(12\)'):
        driver.order('pg_num', 'rep', '16')
    driver.cluster.pool_pg_limit = 4
    driver.order('pg_num', 'rep', '6', dry_run=True)


def test_a_number_is_required_and_the_refusal_names_that_of_the_autoscaler() -> None:
    driver = driver_of()
    driver.cluster.recommended = {'rep': 16, 'ec': 4}
    driver.run(3)
    assert driver.order('pg_num', 'rep', dry_run=True)['pg_num']['to'] == 16
    with pytest.raises(Refused, match='recommends 16 .*pg_num rep 16 --dry-run') as refused:
        driver.order('pg_num', 'rep')
    assert refused.value.errno == errno.EINVAL and driver.phase == 'IDLE'


def test_pools_that_exchange_their_names_after_the_preview() -> None:
    """As at the end of a migration of their data."""
    driver = driver_of()
    cluster: Any = driver.cluster
    driver.order('pg_num', 'rep', '16', dry_run=True)
    real = cluster._view

    def renamed() -> Any:
        view = real()
        pools = {pool.id: replace(pool, name={'rep': 'ec', 'ec': 'rep'}[pool.name])
                 for pool in view.osdmap.pools.values()}
        return replace(view, osdmap=replace(view.osdmap, pools=pools))

    cluster._view = renamed
    driver.run(3)
    driver.order('pg_num', 'rep', '16', accept=RISKS)
    campaign: Any = driver.loop.rebalance.campaign
    assert campaign.change.step.pool == 2


@pytest.mark.parametrize('recommended, text', [
    (None, 'pg_autoscaler: no such module'), ({}, "no pg_num for pool 'rep'"),
    ({'rep': 8}, 'already has 8 PGs'), ({'rep': 1024}, 'limit 250')])
def test_recommendations_that_are_refused(recommended: Any, text: str) -> None:
    driver = driver_of()
    driver.cluster.recommended = recommended
    with pytest.raises(Refused, match=text):
        driver.order('pg_num', 'rep')
    assert driver.phase == 'IDLE'


def test_an_osd_that_would_be_too_full_is_named_once() -> None:
    driver = driver_of()
    rows = driver.order('pg_num', 'rep', '16', dry_run=True)['osds']
    osd = max(rows, key=lambda row: row['fill_after'] - row['fill_before'])['osd']
    driver.cluster.sizes[osd] = round((1 << 35) / 0.849)
    risks = driver.order('pg_num', 'rep', '16', dry_run=True)['risks']
    assert [row['code'] for row in risks] == ['TARGET_FULL']


def test_with_an_autoscaler_it_is_refused_unless_forced() -> None:
    driver = driver_of()
    driver.cluster.modes[1] = 'on'
    driver.run(3)
    with pytest.raises(Refused, match='autoscaler of pool rep is on'):
        driver.order('pg_num', 'rep', '16')
    driver.order('pg_num', 'rep', '16', accept=RISKS)
    driver.run_to('DONE')
    assert driver.cluster.modes[1] == 'on'


def test_a_pool_whose_pg_num_is_changing_is_refused() -> None:
    driver = driver_of()
    cluster: Any = driver.cluster
    cluster.splitting = False
    cluster.targets[1] = PoolPgs(1, 16, 16)
    driver.run(3)
    with pytest.raises(Refused, match='is changing'):
        driver.order('pg_num', 'rep', '16')


@pytest.mark.parametrize('begin, end', [(8, 16), (16, 8)])
def test_an_abort_leaves_a_pool_that_stays_still_and_resume_goes_on(begin: int, end: int) -> None:
    driver = driver_of(PgpWatcher(pgs=begin))
    cluster: Any = driver.cluster
    driver.order('pg_num', 'rep', str(end))
    driver.run_until(lambda: driver.status['released'] >= 2)
    with pytest.raises(Refused, match='pg_num <pool> %d' % begin):
        driver.order('rollback')
    driver.ask('abort')
    driver.run_to('ABORTED')
    stays = {pgid: pg.up for pgid, pg in cluster.pg.items()}
    driver.run(30)
    assert {pgid: pg.up for pgid, pg in cluster.pg.items()} == stays and cluster.clean()
    rows = driver.loop.rebalance.held(cluster.map_view().osdmap)
    assert [row.found for row in rows if row.what == 'pg_num of pool rep'] == [str(begin)]
    driver.ask('resume')
    driver.run_to('DONE', turns=600)
    ended(cluster, end)
    assert set(moved(cluster).values()) == {1}


def test_a_dry_run_of_an_abort_counts_no_pgs_that_were_never_pinned() -> None:
    driver = driver_of()
    cluster: Any = driver.cluster
    cluster.backfill_seconds = 60.0
    driver.order('pg_num', 'rep', '16')
    driver.run_until(lambda: driver.status['in_flight'] == 4)
    setattr(driver.loop, 'ask', lambda order, again=False: driver.give(order))
    assert driver.loop.dry_run(Request('abort'))[1:] == [
        '4 PGs in flight would be pinned back, and what was copied of them is lost']
    driver.ask('abort')
    driver.run_to('ABORTED')
    assert driver.status['pinned'] == 0


@pytest.mark.parametrize('begin, end, at', [(8, 16, 16), (16, 8, 12)])
def test_an_aborted_change_is_reverted_by_another_one(begin: int, end: int, at: int) -> None:
    driver = driver_of(PgpWatcher(pgs=begin))
    cluster: Any = driver.cluster
    driver.order('pg_num', 'rep', str(end))
    driver.run_until(lambda: driver.status['released'] >= 2 and cluster.numbers[1].pg_num == at)
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.order('pg_num', 'rep', str(begin))
    driver.run_to('DONE', turns=600)
    ended(cluster, begin)


def test_the_health_detail_of_an_abort_names_the_way_back() -> None:
    driver = driver_of()
    driver.order('pg_num', 'rep', '16')
    driver.run_until(lambda: driver.status['released'] >= 2)
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.turn()
    detail = '\n'.join(driver.cluster.checks['PERFGUARD_HELD_PINS']['detail'])
    assert 'ceph perfguard pg_num rep 8"' in detail and 'rollback' not in detail


def test_commands_quote_the_name_of_a_pool() -> None:
    driver = driver_of()
    driver.order('pg_num', 'rep', '16')
    driver.run_until(lambda: driver.status['released'] >= 2)
    osdmap = driver.cluster.map_view().osdmap
    pool = replace(osdmap.pools[1], name='a; $(b)', autoscale_mode='on')
    osdmap = replace(osdmap, pools={1: pool})
    change = driver.loop.rebalance.campaign.change
    assert change is not None and change.way_back(osdmap) == "pg_num 'a; $(b)' 8"
    assert RuleChange(rule=PoolRule(1, 0), via='both', moves_first=True, found_rule='hdd') \
        .way_back(osdmap) == "rule 'a; $(b)' hdd"
    restore = [row.restore for row in driver.loop.rebalance.held(osdmap) if 'pg_num' in row.what]
    assert restore[0].startswith("ceph osd pool set 'a; $(b)' pg_num 8:")
    assert "ceph osd pool set 'a; $(b)' pg_autoscale_mode warn" in autoscaler_risk(pool)[0].text


def test_an_abort_stops_merges() -> None:
    driver = driver_of(PgpWatcher(pgs=16))
    cluster: Any = driver.cluster
    driver.order('pg_num', 'rep', '8')
    driver.run_until(lambda: cluster.numbers[1].pg_num <= 12)
    driver.ask('abort')
    driver.run_to('ABORTED')
    left = cluster.numbers[1]
    assert 8 < left.pg_num <= 12 and cluster.targets[1] == left
    driver.run(30)
    assert cluster.numbers[1] == left
    driver.ask('resume')
    driver.run_to('DONE', turns=600)
    ended(cluster, 8)


class Unstoppable(PgpWatcher):
    """Its mons refuse to raise a target: the OSDs have too many PGs. Another admin may set
    nopgchange."""
    merging = True

    def _pool_set(self, command: Mapping[str, Any]) -> None:
        if command['var'] == 'pg_num' and (
                not self.merging or int(command['val']) > self.targets[1].pg_num):
            raise mon_model.Refused()
        super()._pool_set(command)

    def _merge(self, now: PoolPgs) -> None:
        if self.merging and int(self.now) % 20 == 0:
            super()._merge(now)


@pytest.mark.parametrize('merging', [True, False])
def test_an_abort_ends_though_the_mons_refuse_to_stop_merges(merging: bool) -> None:
    driver = driver_of(Unstoppable(pgs=16))
    cluster: Any = driver.cluster
    driver.order('pg_num', 'rep', '8')
    driver.run_until(lambda: cluster.numbers[1].pg_num == 14, 600)
    cluster.merging = merging
    driver.ask('abort')
    before = len(cluster.sent)
    driver.run_to('ABORTED', turns=40)
    assert len([command for command in cluster.sent[before:] if 'osd pool set' in command['prefix']
                ]) < 80 and 'norebalance' not in cluster.flags
    assert cluster.numbers[1].pg_num > 8 == cluster.targets[1].pg_num
    cluster.merging = True
    driver.ask('resume')
    driver.run_to('DONE', turns=900)
    ended(cluster, 8)


class SlowPairs(PgpWatcher):
    """ceph-mgr sets pg_num_pending first; the merge of the pair takes `slow` seconds more."""
    slow = 1.0
    pending: Optional[Tuple[int, float]] = None

    def _merge(self, now: PoolPgs) -> None:
        if self.pending is None:
            self.pending = now.pg_num - 1, self.now
            self.epoch += 1
        elif self.now - self.pending[1] >= self.slow:
            super()._merge(now)
            if self.numbers[1].pg_num < now.pg_num:
                self.pending = None

    def _step(self, pool: int, target: PoolPgs) -> None:
        if pool == 1 and self.pending is not None:
            self._merge(self.numbers[pool])
        else:
            super()._step(pool, target)

    def _view(self) -> FakeView:
        view = super()._view()
        if self.pending is None:
            return view
        pools = {**view.osdmap.pools, 1: replace(
            view.osdmap.pools[1], pg_num_pending=self.pending[0])}
        return replace(view, osdmap=replace(view.osdmap, pools=pools))


def test_a_last_pair_that_takes_its_time_after_an_abort_is_no_change_of_others() -> None:
    driver = driver_of(SlowPairs(pgs=16))
    cluster: Any = driver.cluster
    driver.order('pg_num', 'rep', '8')
    driver.run_until(lambda: cluster.numbers[1].pg_num == 13, 600)
    cluster.slow = 60.0
    driver.run(2)
    driver.ask('abort')
    driver.run_to('ABORTED', 80)
    assert cluster.pending is not None and cluster.targets[1].pg_num == 12
    driver.ask('resume')
    driver.run(6)
    assert driver.phase == 'PINNING'
    cluster.slow = 1.0
    driver.run_to('DONE', 600)
    ended(cluster, 8)


def test_an_osd_is_emptied_while_pgs_are_merged() -> None:
    """ceph-mgr merges no PG that is remapped, so norebalance would keep both waiting for ever."""
    driver = driver_of(PgpWatcher(pgs=16))
    cluster: Any = driver.cluster
    driver.order('pg_num', 'rep', '8')
    driver.run_until(lambda: cluster.numbers[1].pg_num <= 14)
    osd = cluster.pg['1.%x' % (cluster.numbers[1].pg_num - 1)].data[0]
    cluster.mark_out(osd)
    driver.run_until(lambda: not any(osd in pg.data for pg in cluster.pg.values()))
    driver.run_to('DONE', turns=600)
    assert cluster.numbers[1].pg_num == 8 and cluster.clean()


@pytest.mark.parametrize('osd, weight', [(0, 0.5), (3, 2.0)])
@pytest.mark.parametrize('failovers', [False, True])
def test_crush_changes_of_others_while_pgs_are_merged_wait_for_the_end(
        osd: int, weight: float, failovers: bool) -> None:
    """ceph-mgr merges no PG that is remapped: the others are pinned, and the next two may move."""
    driver = driver_of(PgpWatcher(pgs=16))
    cluster: Any = driver.cluster
    driver.order('pg_num', 'rep', '8')
    driver.run_until(lambda: cluster.numbers[1].pg_num <= 14)
    moved_before, cluster.most_moving = len(cluster.moved), 0
    cluster.weigh(osd, weight)
    while driver.phase == 'PINNING':
        driver.run(5)
        if failovers:
            driver.restart()
            driver.turn()
    assert cluster.numbers[1].pg_num == 8 and cluster.most_moving == 2
    assert {move.pgid[0] for move in cluster.moved[moved_before:]} == {'1'}
    driver.run_to('DONE', turns=600)
    assert cluster.clean() and not cluster.entries()
    assert any(move.pgid[0] == '2' for move in cluster.moved[moved_before:])


def test_norebalance_that_others_have_cleared_stays_so_while_pgs_are_merged() -> None:
    driver = driver_of(PgpWatcher(pgs=32))
    cluster: Any = driver.cluster
    driver.order('pg_num', 'rep', '16')
    driver.run_until(lambda: cluster.numbers[1].pg_num <= 30)
    cluster.flags.discard('norebalance')
    driver.run(2)
    assert driver.loop.rebalance.campaign.holds.gave_up_flag
    cluster.weigh(0, 0.5)
    while driver.phase == 'PINNING':
        driver.run(1)
        assert 'norebalance' not in cluster.flags


@pytest.mark.parametrize('begin, end', [(8, 16), (16, 8)])
@pytest.mark.parametrize('turns', range(1, 42, 4))
def test_a_failover_repeats_nothing(begin: int, end: int, turns: int) -> None:
    driver = driver_of(PgpWatcher(pgs=begin))
    cluster: Any = driver.cluster
    driver.order('pg_num', 'rep', str(end))
    driver.run(turns)
    driver.restart()
    driver.run_to('DONE', turns=600)
    ended(cluster, end)
    assert set(moved(cluster).values()) == {1}


def test_mons_that_refuse_a_split() -> None:
    driver = driver_of()
    cluster: Any = driver.cluster
    cluster.refuse['osd pool set'] = 'not now'
    driver.order('pg_num', 'rep', '16')
    driver.run_to('ABORTED')
    campaign = driver.loop.rebalance.campaign
    assert not campaign.held
    assert cluster.numbers[1] == PoolPgs(1, 8, 8) and cluster.clean()


def test_numbers_that_others_order_end_the_campaign() -> None:
    driver = driver_of()
    cluster: Any = driver.cluster
    driver.order('pg_num', 'rep', '16')
    driver.run_until(lambda: driver.status['released'] >= 2)
    cluster.splitting = False
    cluster.targets[1] = PoolPgs(1, 20, 8)
    driver.run_to('ABORTED')
    assert cluster.targets[1] == PoolPgs(1, 20, 8)


@pytest.mark.parametrize('theirs, begin, end', [
    (PoolPgs(1, 20, 8), 8, 16), (PoolPgs(1, 8, 8), 8, 16), (PoolPgs(1, 14, 8), 16, 8)],
    ids=['another number', 'the number from before', 'merges stopped'])
@pytest.mark.parametrize('aborted', [False, True])
def test_numbers_that_others_order_during_a_step_stay(
        theirs: PoolPgs, begin: int, end: int, aborted: bool) -> None:
    driver = driver_of(PgpWatcher(pgs=begin))
    cluster: Any = driver.cluster
    cluster.splitting = False
    driver.order('pg_num', 'rep', str(end))
    driver.run_until(lambda: cluster.targets[1].pg_num == end
                     and cluster.numbers[1].pg_num in (8, 15), turns=600)
    driver.run(2)
    if aborted:
        driver.ask('abort')
        driver.loop.turn()
        driver.loop.turn()
    cluster.targets[1] = theirs
    driver.run(60)
    assert driver.phase == 'ABORTED' and cluster.targets[1] == theirs
    whys = [event['why'] for event in driver.loop.published.events]
    assert aborted or any('outside perfguard' in why for why in whys)


def test_a_step_that_got_lost_is_sent_again() -> None:
    driver = driver_of()
    cluster: Any = driver.cluster
    cluster.splitting = False
    driver.order('pg_num', 'rep', '16')
    driver.run_until(lambda: cluster.targets[1].pg_num == 16)
    cluster.targets[1] = PoolPgs(1, 16, 16)  # the mgr fails before it has sent pgp_num
    driver.restart()
    driver.run(12)
    cluster.splitting = True
    driver.run_to('DONE', turns=600)
    assert cluster.numbers[1] == PoolPgs(1, 16, 16)
