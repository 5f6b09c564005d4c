# SPDX-License-Identifier: LGPL-2.1-or-later
"""balance: the campaign that moves PGs by upmaps alone."""
import errno
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.set_by_others import BALANCER
from perfguard.cluster.types import Balancing, OsdMap, Signals, Space, pg_shard_bytes, pool_of
from perfguard.errors import Refused
from perfguard.rebalance.balancing import check_balance
from perfguard.rebalance.orders import Order
from perfguard.rebalance.plans import APPROVE, SAVE, PlanOrder
from perfguard.rebalance.tables import order as order_text

from ..fakes.driver import OPTIONS, Driver
from ..fakes.ruled_cluster import RuledCluster
from .test_rule_change import Watcher, number_of, sets

Sets = Dict[str, Tuple[int, ...]]
ALL = '100%'


def counts(cluster: RuledCluster, pool: Optional[int] = None) -> 'Counter[int]':
    found = Counter(dict.fromkeys(cluster.toys, 0))
    found.update(osd for pgid, pg in cluster.pg.items() for osd in pg.data
                 if pool in (None, pool_of(pgid)))
    return found


def spread(cluster: RuledCluster, pool: Optional[int] = None) -> int:
    found = counts(cluster, pool).values()
    return max(found) - min(found)


def give(driver: Driver, *names: str, **options: Any) -> Any:
    return driver.give(replace(Order('balance', names, max_movement=ALL), **options))


def shards_moved(before: Sets, after: Sets) -> int:
    return sum(len(set(after[pgid]) - set(osds)) for pgid, osds in before.items())


def test_a_balance_by_pgs() -> None:
    cluster = Watcher(pgs=48)
    driver = Driver(cluster)
    before, crush = sets(cluster, ''), cluster.crush_version_
    shown = give(driver, dry_run=True)
    assert driver.phase == 'IDLE' and cluster.entries() == {}
    found = shown['balance']
    assert 0 < found['shards'] == found['wanted_shards'] == shown['shards']
    give(driver)
    driver.run_to('DONE')
    assert cluster.clean() and cluster.crush_version_ == crush
    assert cluster.most_unclean <= OPTIONS.max_pgs_in_flight
    # Each pool is within one of its share of 9 PGs, all of them within the rounding of 18.
    assert max(abs(count - 9) for pool in (1, 2) for count in counts(cluster, pool).values()) <= 1
    assert spread(cluster) == 0
    assert shards_moved(before, sets(cluster, '')) == found['shards']
    assert len(cluster.entries()) == found['upmaps_after']
    with pytest.raises(Refused, match='already balanced') as refused:
        give(driver)
    assert refused.value.errno == errno.EALREADY
    text = order_text(shown)
    assert 'PGs to move' in text and 'pool rep' in text and 'CRUSH moves' not in text


def test_upmaps_of_others_are_worked_on_and_no_more_than_needed() -> None:
    """After a balance, another four upmaps take PGs away from where they belong."""
    cluster = Watcher(pgs=48)
    driver = Driver(cluster)
    give(driver)
    driver.run_to('DONE')
    own = len(cluster.entries())
    away = [pgid for pgid, pg in cluster.pg.items() if 3 in pg.data
            and pgid not in cluster.entries()][:4]
    for pgid in away:
        here = cluster.pg[pgid].data
        there = next(osd for osd in cluster.toys if cluster.toys[osd].host not in {
            cluster.toys[other].host for other in here})
        cluster.add_upmap(pgid, 3, there)
    driver.run(5)
    assert cluster.clean() and counts(cluster)[3] == 14
    give(driver)
    driver.run_to('DONE')
    assert cluster.clean() and spread(cluster) == 0
    # Most of them are gone instead of being joined by others.
    assert len(cluster.entries()) <= own + 1


@pytest.mark.parametrize('percent', [2, 5])
def test_no_more_moves_than_allowed(percent: int) -> None:
    cluster = Watcher(pgs=48)
    driver = Driver(cluster)
    before = sets(cluster, '')
    shown = give(driver, max_movement='%d%%' % percent, dry_run=True)['balance']
    assert shown['limit_shards'] == 288 * percent // 100 < shown['wanted_shards']
    give(driver, max_movement='%d%%' % percent)
    driver.run_to('DONE')
    assert shards_moved(before, sets(cluster, '')) == shown['shards'] <= shown['limit_shards']
    with pytest.raises(Refused, match=r'0\.1% allows no move; \d+ shards would') as refused:
        give(driver, max_movement='0.1%')
    assert refused.value.errno == errno.EPERM


@pytest.mark.parametrize('names, touched', [
    (('rep',), '1'), (('ec',), '2'), (('ssd',), '1'), (('east',), '1')])
def test_the_chosen_pools(names: Tuple[str, ...], touched: str) -> None:
    rule = {'ssd': 'hosts-ssd', 'east': 'east'}.get(names[0], 'hosts')
    cluster = Watcher(pgs=48, rule=number_of(rule))
    driver = Driver(cluster)
    give(driver, *names)
    driver.run_to('DONE')
    assert {pgid.partition('.')[0] for pgid in cluster.entries()} == {touched}
    osds = [osd for osd, number in counts(cluster, 1).items() if number] if touched == '1' \
        else list(cluster.toys)
    found = [counts(cluster, int(touched))[osd] for osd in osds]
    assert max(found) - min(found) <= 1


@pytest.mark.parametrize('options, text, number', [
    ({'by': 'size'}, "--by must be pgs or bytes, not 'size'", errno.EINVAL),
    ({'deviation': '0.5'}, 'must be a number of PGs from 1', errno.EINVAL),
    ({'deviation': 'nan'}, 'must be a number of PGs from 1', errno.EINVAL),
    ({'max_movement': '5'}, 'such as 5%', errno.EINVAL),
    ({'max_movement': '0%'}, 'above 0%', errno.EINVAL),
    ({'max_movement': '101%'}, 'at most 100%', errno.EINVAL)])
def test_bad_options(options: Any, text: str, number: int) -> None:
    driver = Driver(RuledCluster(pgs=8))
    with pytest.raises(Refused, match=text) as refused:
        give(driver, **options)
    assert refused.value.errno == number and driver.phase == 'IDLE'
    assert driver.cluster.sent == []


@pytest.mark.parametrize('names, text, number', [
    (('no-such',), 'no pool, nor device class or CRUSH root with pools, is called', errno.ENOENT),
    (('hosts',), 'no pool, nor device class', errno.ENOENT)])
def test_unknown_names(names: Tuple[str, ...], text: str, number: int) -> None:
    driver = Driver(RuledCluster(pgs=8))
    with pytest.raises(Refused, match=text) as refused:
        give(driver, *names)
    assert refused.value.errno == number and driver.cluster.sent == []


def test_arguments_are_checked_by_rule_and_not_by_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """In each turn, while an order waits."""
    cluster = RuledCluster(pgs=8)
    view = cluster.map_view()
    crush, pool = cluster.crush(view.crush_version), view.osdmap.pools[1]
    many = replace(view.osdmap, pools={
        number: replace(pool, id=number, name='p%d' % number, crush_rule=number_of('hosts-ssd'))
        for number in range(1, 101)})
    seen: Any = SimpleNamespace(osdmap=many, crush=crush, balancing=cluster.balancing())
    looked_up: List[int] = []
    class_of = CrushRules.class_of

    def counted(self: CrushRules, osd: int) -> str:
        looked_up.append(osd)
        return class_of(self, osd)

    monkeypatch.setattr(CrushRules, 'class_of', counted)
    check_balance(Order('balance', names=('ssd', 'p7')), seen)
    # All OSDs of the class, and one to know that p7 is another name.
    assert len(looked_up) == len(crush.spread(number_of('hosts-ssd'), pool.size).domain) + 1


def test_pools_that_the_balancer_must_not_touch_have_to_be_named() -> None:
    cluster = Watcher(pgs=48)
    cluster.balancer = Balancing(pools=frozenset({1}))
    driver = Driver(cluster)
    left = give(driver, dry_run=True)['balance']['left_out']
    assert [row['pool'] for row in left] == ['ec'] and 'name it' in left[0]['reason']
    assert give(driver, 'ec', dry_run=True)['balance']['left_out'] == []
    cluster.balancer = Balancing(upmap=False)
    with pytest.raises(Refused, match='no pool can be balanced'):
        give(driver)


def test_pools_with_upmaps_have_to_be_named_while_the_balancer_is_off() -> None:
    """Their upmaps may have been set by hand."""
    cluster = Watcher(pgs=48)
    driver = Driver(cluster)
    assert give(driver, dry_run=True)['balance']['upmaps_changed'] == 0
    host_of = {osd: toy.host for osd, toy in cluster.toys.items()}
    for pgid in ('1.5', '1.6'):
        here = cluster.pg[pgid].data
        cluster.add_upmap(pgid, here[0], next(
            osd for osd in host_of if host_of[osd] not in {host_of[other] for other in here}))
    driver.run_until(cluster.clean)
    assert give(driver, dry_run=True)['balance']['left_out'] == []
    cluster.config[BALANCER] = 'false'
    (left,) = give(driver, dry_run=True)['balance']['left_out']
    assert left['pool'] == 'rep' and 'name it' in left['reason']
    shown = give(driver, 'rep', dry_run=True)
    assert shown['balance']['left_out'] == [] and shown['balance']['upmaps_changed'] > 0
    assert '(before 2, of which %d change' % shown['balance']['upmaps_changed'] \
        in order_text(shown)
    # A balance by perfguard is not distinguished from that.
    give(driver, 'rep')
    driver.run_to('DONE')
    give(driver, 'ec')
    driver.run_to('DONE')
    with pytest.raises(Refused, match='no pool can be balanced; ec: it has upmaps'):
        give(driver)


def test_a_plan_is_carried_out() -> None:
    cluster = Watcher(pgs=48)
    driver = Driver(cluster)
    order = Order('balance', ('rep',), max_movement='20%')
    saved = driver.give(PlanOrder(SAVE, 'even', order))
    assert saved['change'] == 'balance rep --max-movement 20%' and saved['preview']['osds']
    before = sets(cluster, '')
    driver.give(PlanOrder(APPROVE, 'even'))
    driver.run_to('DONE')
    assert shards_moved(before, sets(cluster, '')) == saved['preview']['balance']['shards']
    rows = {row['osd']: row['pgs_after'] for row in saved['preview']['osds']}
    assert rows == {osd: counts(cluster)[osd] for osd in rows}
    assert driver.status['trigger'] == 'balance'


@pytest.mark.parametrize('turns', range(1, 40, 6))
def test_a_failover_repeats_nothing(turns: int) -> None:
    cluster = Watcher(pgs=48)
    driver = Driver(cluster)
    before = sets(cluster, '')
    shown = give(driver)['balance']
    driver.run(turns)
    driver.restart()
    driver.run_to('DONE')
    assert shards_moved(before, sets(cluster, '')) == shown['shards'] and cluster.clean()


def test_an_abort_leaves_what_has_moved_and_keeps_no_pins() -> None:
    cluster = Watcher(pgs=48)
    driver = Driver(cluster)
    give(driver)
    driver.run_until(lambda: len(cluster.moved) > 4)
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.run(3)
    assert cluster.clean() and driver.status['pinned'] == 0
    assert not driver.loop.rebalance.open
    give(driver)
    driver.run_to('DONE')
    assert spread(cluster) == 0


def test_a_rollback_moves_the_pgs_back() -> None:
    cluster = Watcher(pgs=48)
    cluster.add_upmap('1.5', cluster.pg['1.5'].data[0], next(
        osd for osd in cluster.toys if cluster.toys[osd].host not in {
            cluster.toys[other].host for other in cluster.pg['1.5'].data}))
    driver = Driver(cluster)
    before, entries = sets(cluster, ''), cluster.entries()
    give(driver)
    with pytest.raises(Refused, match='has not changed CRUSH: end it with "campaign abort"'):
        driver.give(Order('rollback'))
    driver.run_until(lambda: len(cluster.moved) > 8)
    shown = driver.give(Order('rollback', dry_run=True))
    assert 8 <= shown['pgs'] <= shown['shards'] and shown['bursts'] == 1
    driver.give(Order('rollback'))
    driver.run_to('DONE')
    driver.run(3)
    assert sets(cluster, '') == before and cluster.entries() == entries and cluster.clean()
    assert driver.status['rolled_back']


def test_an_abort_before_the_moves_are_planned() -> None:
    cluster = Watcher(pgs=48)
    driver = Driver(cluster)
    found = cluster.foreign()
    give(driver)
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.run(3)
    assert cluster.entries() == {} and not driver.loop.rebalance.open
    assert cluster.clean() and cluster.foreign() == found


def test_osds_that_are_to_be_emptied_keep_their_pgs() -> None:
    cluster = Watcher(pgs=48)
    driver = Driver(cluster, replace(OPTIONS, target='balanced'))
    driver.order('drain', 'osd.3')
    driver.run_to('DONE')
    assert counts(cluster)[3] == 0
    give(driver)
    driver.run_to('DONE')
    assert counts(cluster)[3] == 0 and cluster.clean()


class Filled(Watcher):
    """Its OSDs are as full as their PGs make them."""
    #: Space by what is stored.
    allocated = 1

    def signals(self, osdmap: OsdMap) -> Signals:
        found = super().signals(osdmap)
        return replace(found, pool_space={
            pool: self.allocated * size for pool, size in found.pool_bytes.items()})

    def osd_space(self) -> Dict[int, Space]:
        osdmap = self.map_view().osdmap
        totals = self.signals(osdmap).pool_bytes
        sizes = {pgid: self.allocated * pg_shard_bytes(
            osdmap.pools[pool_of(pgid)], totals[pool_of(pgid)], pgid) for pgid in self.pg}
        return {osd: row._replace(used_bytes=sum(
            sizes[pgid] for pgid, pg in self.pg.items() if osd in pg.data))
            for osd, row in super().osd_space().items()}


@pytest.mark.parametrize('allocated', [1, 3])
def test_a_balance_by_bytes(allocated: int) -> None:
    """Every second OSD has twice the size, and the same CRUSH weight; some PGs are not split."""
    cluster = Filled(pgs=48)
    cluster.allocated = allocated
    cluster.sizes = {osd: allocated << (36 + osd % 2) for osd in cluster.toys}
    driver = Driver(cluster)
    preview = give(driver, by='bytes', deviation='20', accept=('BALANCER_UNDOES',))
    shown = preview['balance']
    driver.run_to('DONE')
    for row in preview['osds']:
        after = cluster.osd_space()[row['osd']]
        assert row['fill_after'] == pytest.approx(after.used_bytes / after.total_bytes, abs=0.001)
    fills = [row.used_bytes / row.total_bytes for row in cluster.osd_space().values()]
    assert [min(fills), max(fills)] == pytest.approx(shown['load_after'])
    assert max(fills) - min(fills) < 0.02
    assert shown['load_before'][1] - shown['load_before'][0] > 0.1
    for row in shown['pools']:
        assert row['max_avail_after'] > row['max_avail_before']


def test_osds_that_have_not_reported_are_neither_full_nor_empty() -> None:
    """The OSDs report to a new mgr one after the other."""
    cluster = Filled(pgs=48)
    reports = cluster.osd_space()
    setattr(cluster, 'osd_space', lambda: {osd: reports[osd] for osd in range(14)})
    driver = Driver(cluster)
    with pytest.raises(Refused, match='size of osd.14, osd.15 ') as refused:
        give(driver, by='bytes', deviation='20', accept=('BALANCER_UNDOES',))
    assert refused.value.errno == errno.EAGAIN
    cluster.toys[14] = cluster.toys[14]._replace(up=False)
    with pytest.raises(Refused, match='size of osd.15 '):
        give(driver, by='bytes', deviation='20', dry_run=True)


def test_numbers_of_pgs_do_not_make_the_fill_less_even() -> None:
    """The OSDs with too many PGs are no fuller: here, what others store differs."""
    cluster = Watcher(pgs=48)
    with pytest.raises(Refused, match='3.1 to 3.1 % full now: raise --deviation') as refused:
        give(Driver(cluster), 'rep', by='bytes')
    assert refused.value.errno == errno.EPERM and cluster.sent == []


class Empty(Filled):
    """Nothing is stored yet."""

    def signals(self, osdmap: OsdMap) -> Signals:
        found = super().signals(osdmap)
        return replace(found, pool_space={}, pool_bytes=dict.fromkeys(found.pool_bytes, 0))


def test_pools_without_data_are_not_balanced_by_bytes() -> None:
    cluster = Empty(pgs=48)
    with pytest.raises(Refused, match='store no data.*--by pgs') as refused:
        give(Driver(cluster), by='bytes')
    assert refused.value.errno == errno.EPERM and cluster.sent == []


def test_a_class_is_balanced_although_osds_of_another_one_are_emptier_and_fuller(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('perfguard.upmap.evening.MOST_PARTNERS', 2)
    cluster = Watcher(pgs=48, rule=number_of('hosts-hdd'), ec_rule=number_of('hosts-ssd'))
    # HDDs have even numbers, and one has half the size of the others.
    cluster.sizes = {osd: 1 << 42 if osd % 2 else 1 << (36 if osd == 4 else 37)
                     for osd in cluster.toys}
    cluster.sizes.update({1: 40 << 30, 3: 40 << 30})
    driver = Driver(cluster)
    before = counts(cluster, 1)[4]
    give(driver, by='bytes', deviation='9', accept=('BALANCER_UNDOES',))
    driver.run_to('DONE')
    assert counts(cluster, 1)[4] < before - 2


@pytest.mark.parametrize('by', ['pgs', 'bytes'])
@pytest.mark.parametrize('deviation, balancer, text', [
    ('5', Balancing(upmap=False), ''),
    ('5', Balancing(upmap=False, weight_sets=True), 'balances by weight-sets'),
    (None, Balancing(deviation=5.0), ''), ('3', Balancing(deviation=5.0), ''),
    ('3', Balancing(deviation=1.0), 'upmap_max_deviation is 1'),
    ('3', Balancing(deviation=1.0, pools=frozenset({9})), '')])
def test_the_balancer_would_undo(by: str, deviation: Optional[str], balancer: Balancing,
                                 text: str) -> None:
    cluster = Filled(pgs=48)
    cluster.balancer = balancer
    cluster.sizes = {osd: 1 << (36 + osd % 2) for osd in cluster.toys}
    driver = Driver(cluster)
    shown = give(driver, 'rep', by=by, deviation=deviation, dry_run=True)
    risks = {row['code']: row['text'] for row in shown['risks']}
    assert ('BALANCER_UNDOES' in risks) == bool(text)
    assert text in risks.get('BALANCER_UNDOES', '')
    if text:
        with pytest.raises(Refused, match='BALANCER_UNDOES'):
            give(driver, 'rep', by=by, deviation=deviation)
    give(driver, 'rep', by=by, deviation=deviation, accept=('BALANCER_UNDOES',))
    driver.run_to('DONE')
    assert cluster.clean()


@pytest.mark.parametrize('by', ['pgs', 'bytes'])
def test_pgs_in_backfill_count_where_they_go(by: str) -> None:
    """The disk of osd.3 was replaced: most of its PGs are still on their way."""
    cluster = Filled(pgs=48)
    cluster.sizes = dict.fromkeys(cluster.toys, 1 << 36)
    driver = Driver(cluster)
    give(driver)
    driver.run_to('DONE')
    cluster.mark_out(3)
    driver.run_until(lambda: cluster.clean() and not counts(cluster)[3])
    cluster.backfill_seconds = 1e6
    cluster.toys[3] = cluster.toys[3]._replace(reweight=1.0)
    cluster.place()
    driver.run(3)
    assert len(cluster.remapped()) > 15 and counts(cluster)[3] == 0
    shown = give(driver, by=by, deviation='4', accept=('BALANCER_UNDOES',), dry_run=True)
    assert shown['balance']['load_before'][0] > 0.7 * shown['balance']['load_before'][1]
    give(driver, by=by, deviation='4', accept=('BALANCER_UNDOES',))
    driver.run(3)
    cluster.backfill_seconds = 4.0
    driver.run_to('DONE')
    driver.run_until(cluster.clean)
    # The share of an OSD is 18; PGs that are remapped do not take part.
    assert max(counts(cluster).values()) <= 22
