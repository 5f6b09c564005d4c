# SPDX-License-Identifier: LGPL-2.1-or-later
"""Previews of hosts that are not there and of lost OSDs, against what then happens. The mapping
itself: tests/cluster/test_hypothetical_hosts.py."""
import errno
from collections import Counter
from dataclasses import replace
from typing import Any, Dict, List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.ports import Future, FuturePg
from perfguard.cluster.types import NO_OSD, Osd, OsdMap, OsdSet, Pool, Space
from perfguard.errors import Refused
from perfguard.rebalance import tables
from perfguard.rebalance.orders import Order, OrderFacts
from perfguard.rebalance.what_if import MOST_NEW_OSDS, OsdLoss, loss_of, pg_loss, shape
from perfguard.tests.fakes.cluster import FakeCluster
from perfguard.tests.fakes.driver import OPTIONS, Driver
from perfguard.tests.fakes.mon_model import HOLE, Stored, ToyMon, ToyOsd
from perfguard.tests.fakes.straw_cluster import StrawCluster

from .test_phases import Machine

BALANCED = replace(OPTIONS, target='balanced', max_extra_movement=100.0)
TIB = 1 << 40


def driven(cluster: FakeCluster) -> Driver:
    driver = Driver(cluster, BALANCED)
    driver.run(3)
    return driver


def refusal(driver: Driver, verb: str, *names: str, **kwargs: Any) -> Refused:
    with pytest.raises(Refused) as refused:
        driver.order(verb, *names, dry_run=True, **kwargs)
    return refused.value


# ---- hosts that are not there

def test_it_is_the_preview_of_the_hosts_once_they_are_there() -> None:
    cluster = StrawCluster(hosts=6, pgs=64)
    driver = driven(cluster)
    supposed = driver.order('expand', what_if='2x1x1TiB', dry_run=True)
    assert not cluster.sent and supposed['what_if'] == {
        'hosts': 2, 'osds': 2, 'size_bytes': TIB, 'under': ['default'], 'device_class': '',
        'weight': 1.0}
    cluster.add_osds(2, 0.0)
    cluster.sizes = {6: TIB, 7: TIB}
    driver.run(3)
    real = driver.order('expand', dry_run=True)
    # The OSDs of the model are never empty.
    for name in ('balanced', 'pgs', 'shards', 'bytes', 'weights', 'unpinnable'):
        assert supposed[name] == real[name], name
    (before, after), = ((row['before'], row['after'])
                        for row in supposed['capacity']['classes'])
    assert before['osds'] == 6 and after['osds'] == 8
    assert [row['pgs_after'] for row in supposed['osds']] == [
        row['pgs_after'] for row in real['osds']]
    assert after['pgs_max'] - after['pgs_min'] <= 2
    assert after['total_bytes'] - before['total_bytes'] == 2 * TIB
    assert supposed['capacity']['pools'][0]['max_avail_after'] \
        > supposed['capacity']['pools'][0]['max_avail_before']


def test_a_time_is_shown_once_a_campaign_was_measured() -> None:
    cluster = StrawCluster(hosts=6, pgs=64)
    driver = driven(cluster)
    previews = [lambda: driver.order('expand', what_if='2x1x1TiB', dry_run=True),
                lambda: driver.order('lose', 'h3', dry_run=True)]
    for preview, text in zip(previews, (tables.growth, tables.loss)):
        found = preview()
        assert found['eta_seconds'] is found['eta_low_seconds'] is found['eta_high_seconds'] is None
        assert 'no campaign of this cluster has moved data yet' in text(found)
    cluster.add_osds(1, 0.0)
    driver.run(3)
    driver.order('expand', weight='1.0')
    driver.run_to('DONE')
    for preview, text in zip(previews, (tables.growth, tables.loss)):
        found = preview()
        assert 0 < found['eta_low_seconds'] < found['eta_seconds'] < found['eta_high_seconds']
        assert 'speed: earlier campaigns' in text(found)


@pytest.mark.parametrize('text, expected', [
    ('4x12x16T', (4, 12, 16 * 10 ** 12)), ('1x1x1TiB', (1, 1, TIB)),
    ('2x3x1.5TB', (2, 3, 15 * 10 ** 11)), ('10x50x800G', (10, 50, 8 * 10 ** 11)),
    ('1x1x1P', (1, 1, 10 ** 15)), ('1x2x3Gi', (1, 2, 3 << 30))])
def test_shapes(text: str, expected: Tuple[int, int, int]) -> None:
    assert shape(text) == expected


@pytest.mark.parametrize('text, code', [
    ('', errno.EINVAL), ('4x12', errno.EINVAL), ('4x12x16', errno.EINVAL),
    ('4x12x16X', errno.EINVAL), ('-1x12x16T', errno.EINVAL), ('0x12x16T', errno.EINVAL),
    ('4x12x0T', errno.EINVAL), ('4x12x16T ', errno.EINVAL), ('9x99x1T', errno.E2BIG),
    ('\u0664x12x16T', errno.EINVAL)])
def test_what_is_no_shape(text: str, code: int) -> None:
    refused = refusal(driven(FakeCluster()), 'expand', what_if=text)
    assert refused.errno == code and '\n' not in str(refused)


@pytest.mark.parametrize('size', ['99999P', '32Pi'])
def test_a_size_without_a_crush_weight_is_refused_before_the_tools_fail(size: str) -> None:
    cluster = FakeCluster()
    cluster.no_tools = 'Value too large for defined data type'
    refused = refusal(driven(cluster), 'expand', what_if='1x1x' + size)
    assert refused.errno == errno.EINVAL and 'must be between 0.0001 and 32767' in str(refused)


def test_hosts_are_added_where_hosts_are() -> None:
    driver = driven(FakeCluster(hosts=6, racks=3))
    refused = refusal(driver, 'expand', what_if='3x1x1T')
    assert refused.errno == errno.EINVAL and 'hosts are in r0, r1, r2: name' in str(refused)
    refused = refusal(driver, 'expand', what_if='3x1x1T', under=('r9',))
    assert refused.errno == errno.ENOENT
    refused = refusal(driver, 'expand', what_if='3x1x1T', under=('default',))
    assert 'default is a root, but hosts are in buckets of type rack, such as r0' in str(refused)
    refused = refusal(driver, 'expand', what_if='3x1x1T', under=('r0',), device_class='nvme')
    assert refused.errno == errno.ENOENT and "device class 'nvme'" in str(refused)


class Recorder(StrawCluster):
    """Notes which hosts are supposed; its OSDs have classes by number."""
    supposed: Any = None

    def grown(self, osdmap: Any, new: Any) -> Any:
        self.supposed = new
        return super().grown(osdmap, new)


def test_hosts_go_to_the_named_buckets_in_turn_and_get_free_ids() -> None:
    cluster = Recorder(hosts=6, pgs=8)
    driver = driven(cluster)
    driver.order('expand', what_if='2x2x1T', under=('default',), dry_run=True)
    hosts = cluster.supposed.hosts
    assert [host.name for host in hosts] == ['what-if-1', 'what-if-2']
    assert [host.osds for host in hosts] == [(6, 7), (8, 9)]
    assert {host.parent for host in hosts} == {('root', 'default')}
    assert cluster.supposed.weight == round(10 ** 12 / TIB, 4)


def test_new_osds_have_the_class_of_those_below_the_named_buckets() -> None:
    cluster = FakeCluster(hosts=6, racks=3)
    cluster.device_classes = {osd: 'ssd' if osd % 3 == 1 else 'hdd' for osd in range(6)}
    driver = driven(cluster)
    for rack, name in (('r0', 'hdd'), ('r1', 'ssd'), ('r2', 'hdd')):
        row = driver.order('expand', what_if='1x1x1T', under=(rack,), dry_run=True)
        assert row['what_if']['device_class'] == name
    refused = refusal(driver, 'expand', what_if='2x1x1T', under=('r1', 'r2'))
    assert refused.errno == errno.EINVAL and str(refused).endswith(
        'below r1, r2 have the device classes hdd, ssd: name one with --class')


def test_the_tools_may_fail() -> None:
    cluster = FakeCluster()
    cluster.no_tools = 'crushtool is not installed'
    for refused in (refusal(driven(cluster), 'expand', what_if='1x1x1T', under=('default',)),
                    refusal(driven(cluster), 'lose', 'h3')):
        assert refused.errno == errno.EIO and 'crushtool is not installed' in str(refused)


# ---- a loss

@pytest.mark.parametrize('lost', [(3,), (1, 4), (0, 1, 2, 3)])
def test_a_loss_is_what_then_happens(lost: Tuple[int, ...]) -> None:
    cluster = StrawCluster(hosts=7, pgs=48)
    driver = driven(cluster)
    names = ['h%d' % osd for osd in lost]
    found = driver.order('lose', *names, dry_run=True)
    assert not cluster.sent and found['osds'] == list(lost)
    affected = {pgid: sum(osd in lost for osd in pg.data) for pgid, pg in cluster.pg.items()}
    rows = {row['pool']: row for row in found['pools']}
    for name, prefix, fewest in (('rep', '1.', 1), ('ec', '2.', 2)):
        counts = [number for pgid, number in affected.items() if pgid.startswith(prefix)]
        assert rows[name]['degraded_pgs'] == sum(number > 0 for number in counts)
        assert rows[name]['inactive_pgs'] == sum(number > 1 for number in counts)
        assert rows[name]['unreadable_pgs'] == sum(3 - number < fewest for number in counts)
    before = {pgid: set(pg.data) for pgid, pg in cluster.pg.items()}
    for osd in lost:
        cluster.mark_out(osd)
    ups = {pgid: [osd for osd in pg.mon.up() if osd != HOLE] for pgid, pg in cluster.pg.items()}
    pgs = Counter(osd for up in ups.values() for osd in up)
    counted = [pgs[osd] for osd in cluster.toys if osd not in lost]
    (row,) = found['capacity']['classes']
    assert (row['after']['pgs_min'], row['after']['pgs_max']) == (min(counted), max(counted))
    assert row['after']['osds'] == 7 - len(lost)
    for name, prefix in (('rep', '1.'), ('ec', '2.')):
        assert rows[name]['unplaced_pgs'] == sum(
            len(up) < 3 for pgid, up in ups.items() if pgid.startswith(prefix))
    # Each PG of the model has a GiB in each shard. Of replicated ones, no copy has a place.
    copied = sum(len(set(up) - before[pgid]) for pgid, up in ups.items() if pgid.startswith('1.'))
    assert found['bytes'] + found['moved_bytes'] >= copied << 30
    assert found['shards'] <= sum(affected.values())


def test_an_osd_that_is_out_may_still_hold_data() -> None:
    cluster = StrawCluster(hosts=6, osds_per_host=2, pgs=64)
    cluster.flags.add('nobackfill')
    driver = driven(cluster)
    cluster.mark_out(0)
    driver.run(3)
    found = driver.order('lose', 'h0', dry_run=True)
    held = [pgid for pgid, pg in cluster.pg.items() if {0, 1} & set(pg.data)]
    assert found['osds'] == [0, 1] and any(0 in pg.data for pg in cluster.pg.values())
    assert sum(row['degraded_pgs'] for row in found['pools']) == len(held)


def test_nothing_is_left_to_lose() -> None:
    cluster = StrawCluster(hosts=6, pgs=8)
    driver = driven(cluster)
    assert refusal(driver, 'lose', 'h9').errno == errno.ENOENT
    everything = refusal(driver, 'lose', 'default')
    assert everything.errno == errno.EINVAL and 'no OSD would be left' in str(everything)
    cluster.mark_out(2)
    driver.run(3)
    refused = refusal(driver, 'lose', 'osd.2')
    assert refused.errno == errno.ENOENT and 'no OSD of osd.2 is in' in str(refused)


def test_what_keeps_the_mons_from_marking_osds_out() -> None:
    cluster = FakeCluster(hosts=6, racks=3)
    driver = driven(cluster)
    warnings = ' '.join(driver.order('lose', 'r0', dry_run=True)['warnings'])
    assert 'a whole rack (r0; mon_osd_down_out_subtree_limit)' in warnings
    assert 'mon_osd_min_in_ratio' in warnings
    assert driver.order('lose', 'osd.0', dry_run=True)['warnings'] == []
    cluster.flags.add('noout')
    driver.run(2)
    assert driver.order('lose', 'osd.0', dry_run=True)['warnings'] == [
        'noout is set: recovery begins once it is unset']


def test_what_prevents_recovery() -> None:
    cluster = FakeCluster(hosts=6)
    driver = driven(cluster)
    cluster.noout |= {'h0', 'osd.4'}
    cluster.flags |= {'norecover', 'nobackfill'}
    driver.run(2)

    def warnings(*names: str) -> List[str]:
        found = driver.order('lose', *names, dry_run=True)['warnings']
        return [text.partition(':')[0] for text in found]

    flags = ['nobackfill is set', 'norecover is set']
    assert warnings('h0') == ['noout is set for osd.0 ("ceph osd unset-group")', *flags]
    assert warnings('h4') == ['noout is set for osd.4 ("ceph osd unset-group")', *flags]
    assert warnings('h3') == flags


def test_hosts_that_are_a_whole_rack_are_not_marked_out_either() -> None:
    cluster = FakeCluster(hosts=6, racks=3)
    driver = driven(cluster)

    def racks(*names: str) -> List[str]:
        return [word.strip('(;') for text in driver.order('lose', *names, dry_run=True)['warnings']
                if 'subtree_limit' in text for word in text.split() if word.startswith('(r')]

    assert racks('h0', 'h3') == racks('r0') == racks('h0', 'h3', 'h1') == ['r0']
    assert racks('h0') == racks('h0', 'h1') == []
    cluster.take_down(3)
    driver.run(2)
    assert racks('h0') == ['r0'] and racks('h1') == []


def test_osds_that_would_be_too_full() -> None:
    cluster = StrawCluster(hosts=6, pgs=64)
    cluster.sizes = {osd: (1 << 35) + (6 << 30) for osd in cluster.toys}
    found = driven(cluster).order('lose', 'h3', dry_run=True)
    full = found['full_osds']
    assert full and set(full) <= set(found['nearfull_osds']) and 3 not in full
    assert '%d OSDs would be above full, such as osd.%d' % (len(full), full[0]) \
        in tables.loss(found)


REP = Pool(1, 'rep', False, 3, 2, 0, 8, 8, 8)
EC = Pool(2, 'ec', True, 3, 2, 0, 8, 8, 8, data_shards=2)
TOYS = {osd: ToyOsd(osd // 2) for osd in range(12)}


def model(toys: Dict[int, ToyOsd]) -> Tuple[CrushRules, OsdMap]:
    return CrushRules.from_dump(ToyMon(toys, 3, ()).crush_dump()), OsdMap(
        1, frozenset(), {1: REP, 2: EC},
        {osd: Osd(osd, True, toy.reweight) for osd, toy in toys.items()}, {}, {}, {})


@given(st.data())
def test_upmaps_are_left_as_the_mons_leave_them(data: Any) -> None:
    """The second model of the mon cleans until nothing changes."""
    def osds(number: int) -> List[int]:
        hosts = data.draw(st.lists(st.integers(0, 5), min_size=number, max_size=number,
                                   unique=True))
        return [2 * host + data.draw(st.integers(0, 1)) for host in hosts]

    raw, later = osds(3), osds(3)
    pairs = tuple(zip(raw, osds(3)))[:data.draw(st.integers(0, 3))]
    lost = frozenset(data.draw(st.sets(st.integers(0, 11), max_size=3))) - set(later)
    crush, osdmap = model(TOYS)
    mon = ToyMon({osd: toy._replace(reweight=0.0) if osd in lost else toy
                  for osd, toy in TOYS.items()}, 3, later)
    mon.stored = Stored(list(pairs), None)
    for _ in range(4):
        mon.next_epoch()
    osdmap = replace(osdmap, upmap_items={'1.0': pairs} if pairs else {})
    found = pg_loss('1.0', FuturePg(tuple(raw), tuple(later)), REP, lost, lost, crush, osdmap)
    assert list(found.final) == mon.up()


def loss(pool: Pool, acting: OsdSet, raw: OsdSet, *lost: int) -> Any:
    crush, osdmap = model(TOYS)
    return pg_loss('%d.0' % pool.id, FuturePg(acting, raw), pool, frozenset(lost),
                   frozenset(lost), crush, osdmap)


def test_shards_of_a_pg() -> None:
    # Copies have no place, shards of an erasure code have.
    found = loss(REP, (0, 2, 4), (2, 4, 6), 0)
    assert found[:5] == (1, 2, (6,), (), True)
    found = loss(EC, (0, 2, 4), (2, 4, 6), 0)
    assert found[:5] == (1, 2, (2, 4, 6), (2, 4), True)
    # What CRUSH moves besides, and leaves.
    assert loss(REP, (0, 2, 4), (2, 8, 6), 0)[:5] == (1, 2, (8, 6), (4,), True)
    # No place is found: what is there stays.
    assert loss(EC, (0, 2, 4), (NO_OSD, 2, 8), 0)[:5] == (1, 2, (8,), (), False)
    assert loss(REP, (0, 2, 4), (2, 8), 0, 4)[:5] == (2, 1, (8,), (), False)
    # Untouched.
    assert loss(REP, (0, 2, 4), (0, 2, 4), 9)[:5] == (0, 3, (), (), True)


def test_an_osd_that_is_down_does_not_serve() -> None:
    crush, osdmap = model(TOYS)
    osdmap = replace(osdmap, osds={**osdmap.osds, 2: Osd(2, False, 1.0)})
    found = pg_loss('1.0', FuturePg((0, 2, 4), (6, 2, 4)), REP, frozenset({0}), frozenset({0}),
                    crush, osdmap)
    assert found.serving == 1 and found.placed


# ---- The sums of a loss, to the digit

#: Two new places are needed for 1.1, and one copy moves besides; 2.0 finds too few OSDs.
PGS = {'1.0': FuturePg((0, 2, 4), (2, 4, 6)), '1.1': FuturePg((0, 2, 4), (2, 8, 6)),
       '1.2': FuturePg((2, 4, 6), (2, 4, 6)), '1.3': FuturePg((0, 2), (2, 4, 6)),
       '1.4': FuturePg((0,), (2, 4, 6)), '2.0': FuturePg((0, 2, 4), (NO_OSD, 2, 8))}


def loss_sums(*lost: int, used: Dict[int, int] = {}, rates: Any = (), flags: Any = frozenset(),
              **changes: Any) -> OsdLoss:
    """A shard has 100 bytes, an OSD 1000, of which 500 are used; `used`: by those that differ."""
    crush, osdmap = model(TOYS)
    osdmap = replace(osdmap, flags=flags, **changes)
    seen = Machine().observe()
    seen = replace(seen, crush=crush, settings=replace(seen.settings, osdmap=osdmap),
                   signals=replace(seen.signals, pool_bytes={1: 800, 2: 1600}))
    space = {osd: Space(1000, used.get(osd, 500)) for osd in TOYS}
    facts = OrderFacts(osdmap, crush, space, rates=rates)
    return loss_of(Order('lose', names=('osd.0',)), frozenset(lost), Future(PGS, crush), seen,
                   facts)


def test_what_the_loss_of_an_osd_costs() -> None:
    found = loss_sums(0, rates=(10.0,))
    assert (found.osds, found.names, found.space) == ((0,), ('osd.0',), Space(1000, 500))
    # A copy of 1.0 to 1.4 that are on osd.0, and a shard of 2.0; the rest only moves.
    assert (found.shards, found.bytes, found.moved_bytes) == (5, 500, 400)
    assert found.eta is not None and found.eta.seconds == 50.0
    assert [tuple(row) for row in found.pools] == [('rep', 2, 4, 2, 1, 0), ('ec', 2, 1, 0, 0, 1)]
    before, after = found.capacity.classes['']
    assert (before.osds, before.used_bytes, before.pgs_max) == (12, 6000, 5)
    # osd.6 gets four copies, and osd.2 stays in each PG.
    assert (after.osds, after.used_bytes, after.pgs_max) == (11, 6300, 6)
    assert (after.fullest, after.fullest_fill) == (6, 0.9)
    assert loss_sums(0).eta is None


@pytest.mark.parametrize('used, nearfull, full', [
    ({6: 450}, (), ()), ({6: 451}, (6,), ()), ({6: 550}, (6,), ()), ({6: 551}, (6,), (6,)),
    # The fullest first; those that are as full by id.
    ({6: 500, 7: 960, 8: 700, 9: 960}, (7, 9, 6, 8), (7, 9))])
def test_osds_that_end_nearfull_or_full(used: Dict[int, int], nearfull: Tuple[int, ...],
                                        full: Tuple[int, ...]) -> None:
    found = loss_sums(0, used=used)
    assert (found.nearfull, found.full) == (nearfull, full)


@pytest.mark.parametrize('lost, reweights, warns', [
    ((0, 2, 4), {}, False), ((0, 2, 4, 6), {}, True), ((0, 2, 4), {6: 0.0}, True),
    ((0, 2, 4), {0: 0.0}, False)])
def test_the_mons_keep_three_quarters_of_the_osds_in(lost: Tuple[int, ...],
                                                     reweights: Dict[int, float],
                                                     warns: bool) -> None:
    """Of twelve, nine."""
    osds = {osd: Osd(osd, True, reweights.get(osd, 1.0)) for osd in TOYS}
    assert ('by default the mons mark no further OSD out once fewer than 75 % are in '
            '(mon_osd_min_in_ratio)' in loss_sums(*lost, osds=osds).warnings) == warns


@pytest.mark.parametrize('down, text', [
    ((0,), None), ((0, 3), 'osd.3 is down: its PGs count as if it returned with its data'),
    ((3, 5), 'osd.3, osd.5 are down: its PGs count as if it returned with its data')])
def test_other_osds_that_are_down(down: Tuple[int, ...], text: Any) -> None:
    osds = {osd: Osd(osd, osd not in down, 1.0) for osd in TOYS}
    assert loss_sums(0, osds=osds).warnings == (() if text is None else (text,))


@pytest.mark.parametrize('text, osds', [('1x500x1T', MOST_NEW_OSDS), ('500x1x1T', MOST_NEW_OSDS)])
def test_as_many_osds_as_may_be_supposed(text: str, osds: int) -> None:
    hosts, per_host, _ = shape(text)
    assert hosts * per_host == osds
    with pytest.raises(Refused) as refused:
        shape('3x167x1T')
    assert str(refused.value) == '--what-if 3x167x1T adds 501 OSDs (at most 500)'
