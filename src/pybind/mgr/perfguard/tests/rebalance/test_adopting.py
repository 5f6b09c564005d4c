# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which upmaps of others are pins of an unfinished expansion, and which keep the balance."""
import contextlib
import errno
import re
from collections import Counter
from dataclasses import replace
from typing import Any, Dict, FrozenSet, List, Tuple

import pytest

from perfguard.cluster.types import Balancing, UpmapEntry
from perfguard.errors import Code, Refused
from perfguard.options import Options
from perfguard.rebalance.adopting import NOT_COVERED, VECTOR, Adoption, plan_adoption
from perfguard.rebalance.orders import Order
from perfguard.rebalance.tables import adoption
from perfguard.rebalance.types import PinRecord
from perfguard.upmap.balance import PlacedPg, balance

from ..fakes.cluster import Crash
from ..fakes.driver import OPTIONS, Driver
from ..fakes.straw_cluster import StrawCluster

STRICT = Balancing(deviation=1.0)


def found(cluster: StrawCluster, balancing: Balancing = STRICT,
          known: FrozenSet[str] = frozenset(), uncovered: bool = False) -> Adoption:
    view = cluster.map_view()
    return plan_adoption(view.osdmap, cluster.crush(view.crush_version), view.pool_up, balancing,
                         known, uncovered)


def put_balance(cluster: StrawCluster) -> Dict[str, UpmapEntry]:
    """What the balancer would do with a cluster without upmaps."""
    view = cluster.map_view()
    for pool in view.osdmap.pools.values():
        pgs = [PlacedPg(pgid, up, up) for pgid, up in view.pool_up(pool.id).items()]
        finals = balance(pool, pgs, cluster.crush(view.crush_version), view.osdmap.osds).finals
        for pgid, final in finals.items():
            up = cluster.pg[pgid].up
            cluster.set_upmap(pgid, [(old, new) for old, new in zip(up, final) if old != new])
            cluster.pg[pgid].data = cluster.pg[pgid].up
    settle(cluster)
    return cluster.entries()


def settle(cluster: StrawCluster) -> None:
    for _ in range(100):
        cluster.tick()
        if cluster.clean():
            return
    raise AssertionError('not clean')


def pin_by_script(cluster: StrawCluster) -> List[str]:
    """As upmap-remapped.py does, keeping what was there before."""
    pinned = []
    for pgid, pg in cluster.pg.items():
        new = [osd for osd in pg.up if osd not in pg.data]
        old = [osd for osd in pg.data if osd not in pg.up]
        if new:
            cluster.set_upmap(pgid, [*pg.mon.stored.items, *zip(new, old)])
            assert set(pg.up) == set(pg.data)
            pinned.append(pgid)
        # Shards that have only changed places have been moved.
        pg.data = pg.up
    settle(cluster)
    return sorted(pinned)


def expanded(balanced_before: bool = False) -> Tuple[StrawCluster, List[str],
                                                     Dict[str, UpmapEntry]]:
    cluster = StrawCluster(hosts=8, pgs=64)
    before = put_balance(cluster) if balanced_before else {}
    cluster.flags.add('norebalance')
    cluster.add_osds(4, 1.0)
    return cluster, pin_by_script(cluster), before


def test_what_a_script_has_pinned_is_taken_over() -> None:
    cluster, pinned, _ = expanded()
    adoption = found(cluster)
    assert len(pinned) > 40 and sorted(adoption.pins) == pinned
    assert not adoption.left_out and not adoption.balancing
    for pgid, pin in adoption.pins.items():
        assert pin.before == UpmapEntry() and pin.entry == cluster.entries()[pgid]


@pytest.mark.parametrize('at', range(1, 16))
def test_none_is_lost_if_the_mgr_fails_while_they_are_taken_over(
        monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Either no campaign has begun and the order may be given again, or it has all pins. These are
    several documents."""
    monkeypatch.setattr('perfguard.rebalance.campaign_store.PART_BYTES', 1500)
    cluster, pinned, _ = expanded()
    driver = Driver(cluster, OPTIONS)
    cluster.fault.at = cluster.fault.count + at
    with contextlib.suppress(Crash):
        driver.order('adopt')
    cluster.fault.at = None
    driver.restart()
    driver.run(3)
    if driver.status['id'] is None:
        driver.order('adopt')
    assert sorted(driver.loop.rebalance.pins) == pinned


def test_pairs_that_pass_shards_on_count_as_one() -> None:
    """As a pin that keeps the order of the set, and so the primary, has to be written."""
    cluster, pinned, _ = expanded()
    pgid = next(pgid for pgid in pinned if len(cluster.entries()[pgid].items) == 1)
    (new, old), = cluster.entries()[pgid].items
    first, second = (osd for osd in cluster.pg[pgid].up if osd != old)
    up = set(cluster.pg[pgid].up)
    chain = [(first, old), (second, first), (new, second)]
    cluster.set_upmap(pgid, chain)
    assert set(cluster.pg[pgid].up) == up and len(cluster.entries()[pgid].items) == 3
    assert found(cluster).pins[pgid].before == UpmapEntry()


def test_upmaps_of_the_balancer_are_no_pins() -> None:
    cluster, pinned, before = expanded(balanced_before=True)
    assert before
    adoption = found(cluster)
    alone = set(before) - set(pinned)
    assert alone and not alone & set(adoption.pins)
    assert set(adoption.pins) <= set(pinned) and adoption.pins
    # Of an entry with both, the balancer's pairs are what a release leaves.
    mixed = [pgid for pgid, pin in adoption.pins.items() if pin.before.items]
    for pgid in mixed:
        assert set(adoption.pins[pgid].before.items) < set(adoption.pins[pgid].entry.items)
    assert adoption.balancing + len(adoption.left_out) \
        == len(cluster.entries()) - len(adoption.pins)


def test_a_balanced_cluster_has_nothing_to_adopt() -> None:
    cluster = StrawCluster(hosts=8, pgs=64)
    entries = put_balance(cluster)
    assert entries
    assert found(cluster) == Adoption({}, {}, len(entries))


def test_a_cluster_within_the_balancers_deviation_has_nothing_to_adopt() -> None:
    cluster, pinned, _ = expanded()
    assert found(cluster, Balancing(deviation=100.0)) == Adoption({}, {}, len(pinned))
    # Where the balancer does not balance, its deviation says nothing.
    assert sorted(found(cluster, Balancing(100.0, upmap=False), uncovered=True).pins) == pinned


@pytest.mark.parametrize('balancing', [
    Balancing(1.0, upmap=False), Balancing(1.0, pools=frozenset({7}))])
def test_upmaps_of_pools_that_the_balancer_does_not_cover_may_be_by_hand(
        balancing: Balancing) -> None:
    cluster, pinned, _ = expanded()
    adoption = found(cluster, balancing)
    assert not adoption.pins and adoption.left_out == dict.fromkeys(pinned, NOT_COVERED)
    assert sorted(found(cluster, balancing, uncovered=True).pins) == pinned
    cluster.balancer = balancing
    driver = Driver(cluster, OPTIONS)
    with pytest.raises(Refused) as refused:
        driver.order('adopt')
    assert refused.value.errno == errno.ENOENT and '--accept NOT_BALANCED' in str(refused.value)
    preview = driver.order('adopt', dry_run=True, accept=(Code.NOT_BALANCED,))
    assert preview['pgs'] == len(pinned) and preview['taken']
    assert driver.order('adopt', accept=(Code.NOT_BALANCED,))['campaign'] == 1


def test_the_preview_names_an_osd_that_was_emptied_by_hand_among_new_ones() -> None:
    """It looks like a new OSD, so the operator must see that it would be filled."""
    cluster, _, _ = expanded()
    drained = 3
    emptied = [pgid for pgid, pg in cluster.pg.items() if drained in pg.up]
    for pgid in emptied:
        items = cluster.entries().get(pgid, UpmapEntry()).items
        free = next(osd for osd in (0, 1, 2, 4, 5, 6, 7) if osd not in cluster.pg[pgid].up
                    and osd not in {each for pair in items for each in pair})
        cluster.set_upmap(pgid, [*items, (drained, free)])
    cluster.flags.discard('norebalance')
    settle(cluster)
    preview = Driver(cluster, OPTIONS).order('adopt', dry_run=True)
    listed = {row['pgid'] for row in preview['taken']}
    assert not listed.issuperset(emptied)
    filled = {row['osd']: row['pgs_in'] for row in preview['osds'] if row['pgs_in']}
    assert filled[drained] > 20 and set(filled) > {8, 9, 10, 11}
    assert re.search(r'^ *%d +%d ' % (drained, filled[drained]), adoption(preview), re.MULTILINE)


def test_a_vector_that_keeps_data_on_a_drained_osd_is_taken_over() -> None:
    """As "finish --keep" leaves it; the tools show where CRUSH places the PG."""
    driver = Driver(StrawCluster(hosts=10))
    cluster: Any = driver.cluster
    pgid, pg = next(each for each in cluster.pg.items() if 3 in each[1].up)
    up = list(pg.up)
    driver.order('drain', 'osd.3')
    driver.run_to('DONE')
    cluster._weigh(3, 0.0001)
    pg.mon.put_vector(up)
    pg.data = pg.up = tuple(up)
    cluster._crush_changed()
    driver.run(5)
    with pytest.raises(Refused, match='already drained: osd.3 .*"adopt"'):
        driver.order('drain', 'osd.3')
    cluster.no_tools = 'osdmaptool is not installed'
    with pytest.raises(Refused, match='hides where CRUSH places'):
        driver.order('adopt', dry_run=True)
    cluster.no_tools = ''
    assert driver.order('adopt')['pgs'] == 1
    driver.run_to('DONE')
    assert cluster.clean() and not any(3 in each.up for each in cluster.pg.values())


def test_own_pins_and_vectors_are_left() -> None:
    cluster, pinned, _ = expanded()
    own, hidden = pinned[0], pinned[1]
    cluster.pg[hidden].mon.put_items([])
    cluster.pg[hidden].mon.put_vector(list(cluster.pg[hidden].data))
    cluster.pg[hidden].mon.next_epoch()
    adoption = found(cluster, known=frozenset({own}))
    assert own not in adoption.pins and own not in adoption.left_out
    assert adoption.left_out == {hidden: VECTOR}
    assert sorted(adoption.pins) == pinned[2:]


def test_a_vector_is_a_pin_where_the_tools_show_what_it_hides() -> None:
    cluster, pinned, _ = expanded()
    pg = cluster.pg[pinned[0]]
    raw, vector = cluster.raw_under(pinned[0], cluster.toys), list(pg.data)
    pg.mon.put_items([])
    pg.mon.put_vector(vector)
    pg.mon.next_epoch()
    view = cluster.map_view()
    adoption = plan_adoption(view.osdmap, cluster.crush(view.crush_version), view.pool_up, STRICT,
                             raws={pinned[0]: tuple(raw)})
    assert sorted(adoption.pins) == pinned and not adoption.left_out
    assert adoption.pins[pinned[0]] == PinRecord(
        UpmapEntry(), UpmapEntry(vector=tuple(vector)), tuple(raw))


@pytest.mark.parametrize('change, word', [
    ({'up': False}, 'down'), ({'reweight': 0.5}, 'reweighted')])
def test_an_osd_that_cannot_take_its_share_is_no_reason_to_adopt(change: Dict[str, float],
                                                                 word: str) -> None:
    cluster, pinned, _ = expanded()
    view = cluster.map_view()
    osds = dict(view.osdmap.osds)
    osds[8] = replace(osds[8], **change)
    adoption = plan_adoption(replace(view.osdmap, osds=osds), cluster.crush(view.crush_version),
                             view.pool_up, STRICT)
    assert adoption.left_out and all(word in why for why in adoption.left_out.values())
    assert all('osd.8' in why for why in adoption.left_out.values())
    assert set(adoption.left_out) | set(adoption.pins) == set(pinned)


# ---- as a campaign

BALANCING = replace(OPTIONS, target='balanced', max_extra_movement=100.0)


def deviation(cluster: StrawCluster) -> float:
    """Greatest distance of an OSD from its share, of both pools; all OSDs weigh the same."""
    ideal = 3 * cluster.pgs / len(cluster.toys)
    counts = [Counter(osd for pgid, pg in cluster.pg.items() if pgid.startswith('%d.' % pool)
                      for osd in pg.data) for pool in (1, 2)]
    return max(abs(found[osd] - ideal) for found in counts for osd in cluster.toys)


@pytest.mark.parametrize('options', [BALANCING, OPTIONS])
def test_an_adopted_expansion_ends(options: Options) -> None:
    cluster, pinned, _ = expanded()
    cluster.flags.discard('norebalance')
    driver = Driver(cluster, replace(options, max_pgs_in_flight=16))
    before = cluster.foreign()
    preview = driver.order('adopt', dry_run=True)
    assert preview['campaign'] is None and preview['pgs'] == len(pinned)
    assert [row['pgid'] for row in preview['taken']] == pinned[:50]
    assert all(list(pair) in [list(one) for one in cluster.entries()[row['pgid']].items]
               for row in preview['taken'] for pair in row['pairs'])
    assert preview['shards'] > 0 and not cluster.moved and driver.phase == 'IDLE'
    assert driver.order('adopt')['campaign'] == 1
    driver.run_to('DONE', 2000)
    moved = Counter(one.pgid for one in cluster.moved)
    assert set(moved.values()) == {1} and cluster.clean()
    assert cluster.foreign() == before
    if options is BALANCING:
        assert deviation(cluster) < 1
    else:
        assert set(moved) == set(pinned) and not cluster.entries()


def test_a_failover_right_after_the_order() -> None:
    cluster, pinned, _ = expanded()
    cluster.flags.discard('norebalance')
    driver = Driver(cluster, replace(OPTIONS, max_pgs_in_flight=16))
    driver.order('adopt')
    driver.restart()
    driver.turn()
    assert driver.status['trigger'] == 'adopt' and driver.status['pinned'] == len(pinned)
    driver.run_to('DONE', 2000)
    assert not cluster.entries()


def test_what_others_change_meanwhile_is_not_taken_over() -> None:
    cluster, pinned, _ = expanded()
    view = cluster.map_view()
    adoption = found(cluster)
    cluster.set_upmap(pinned[0], [])
    osdmap = cluster.map_view().osdmap
    assert view.osdmap.entry(pinned[0]) != osdmap.entry(pinned[0])
    left = adoption.still_valid(osdmap)
    assert set(left.pins) == set(pinned[1:])


def test_nothing_to_adopt_is_refused_with_the_reason() -> None:
    cluster = StrawCluster(hosts=8, pgs=64)
    with pytest.raises(Refused, match='no upmap keeps data away') as refused:
        Driver(cluster, BALANCING).order('adopt')
    assert refused.value.errno == errno.ENOENT
    number = len(put_balance(cluster))
    with pytest.raises(Refused, match='%d upmaps are part of a balanced state' % number):
        Driver(cluster, BALANCING).order('adopt', dry_run=True)


def test_no_second_campaign() -> None:
    cluster, _, _ = expanded()
    driver = Driver(cluster, OPTIONS)
    driver.ask('prepare')
    driver.run_to('PREPARED')
    with pytest.raises(Refused) as refused:
        driver.order('adopt')
    assert refused.value.errno == errno.EBUSY


def test_pins_of_an_aborted_campaign_are_not_released_with_those_of_others() -> None:
    cluster, _, _ = expanded()
    cluster.flags.discard('norebalance')
    driver = Driver(cluster, OPTIONS)
    driver.order('adopt')
    driver.run_to('RELEASING')
    driver.ask('abort')
    driver.run_to('ABORTED', 500)
    cluster.add_osds(2, 1.0)
    driver.run(3)
    pin_by_script(cluster)
    kept = cluster.entries()
    for dry_run in (True, False):
        with pytest.raises(Refused, match='campaign 1 is aborted and keeps') as refused:
            driver.order('adopt', dry_run=dry_run)
        assert refused.value.errno == errno.EBUSY
    driver.run(20)
    assert driver.phase == 'ABORTED' and driver.status['id'] == 1
    assert cluster.entries() == kept


def test_no_campaign_begins_where_others_removed_all_upmaps_meanwhile() -> None:
    cluster, _, _ = expanded()
    driver = Driver(cluster, OPTIONS)
    driver.tools.late = True
    waiting = driver.loop.requests.submit(Order('adopt'))
    driver.turn()
    for pgid in cluster.entries():
        cluster.set_upmap(pgid, [])
    driver.tools.work()
    driver.turn()
    assert waiting.answer is None
    assert waiting.refused is not None and waiting.refused.errno == errno.EAGAIN
    assert driver.phase == 'IDLE'


def test_the_answer_counts_what_is_taken_over() -> None:
    cluster, pinned, _ = expanded()
    driver = Driver(cluster, OPTIONS)
    driver.tools.late = True
    waiting = driver.loop.requests.submit(Order('adopt'))
    driver.turn()
    gone = pinned[:10]
    for pgid in gone:
        cluster.set_upmap(pgid, [])
    driver.tools.work()
    driver.turn()
    assert waiting.answer is not None
    assert waiting.answer['pgs'] == len(pinned) - len(gone)
