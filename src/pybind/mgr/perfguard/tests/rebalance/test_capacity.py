# SPDX-License-Identifier: LGPL-2.1-or-later
"""Fill, PGs per OSD and MAX AVAIL, before a change and after it."""
from collections import Counter
from dataclasses import replace
from typing import Any, Dict, Optional, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.types import OsdMap, Pool, Space
from perfguard.rebalance import tables
from perfguard.rebalance.capacity import (CrushAndSpace, Fill, PoolAvail, capacity_change,
                                          pool_avail, rule_room)
from perfguard.rebalance.orders import DRAINED_WEIGHT
from perfguard.tests.fakes.driver import OPTIONS, Driver
from perfguard.tests.fakes.mon_model import ToyMon, ToyOsd
from perfguard.tests.fakes.straw_cluster import StrawCluster

REP = Pool(1, 'rep', False, 3, 2, 0, 8, 8, 8)


@pytest.mark.parametrize('verb, names', [('drain', ('h3',)), ('expand', ())])
def test_previews_of_weights_show_how_osds_end(verb: str, names: Any) -> None:
    cluster = StrawCluster(hosts=6, pgs=64)
    if verb == 'expand':
        cluster.add_osds(2, 0.0)
    driver = Driver(cluster, replace(OPTIONS, target='balanced', max_extra_movement=100.0))
    driver.run(3)
    preview = driver.order(verb, *names, dry_run=True)
    shown = tables.order(preview)
    (row,) = preview['capacity']['classes']
    before = Counter(osd for pg in cluster.pg.values() for osd in pg.data)
    driver.order(verb, *names)
    driver.run_to('DONE')
    after = Counter(osd for pg in cluster.pg.values() for osd in pg.data)
    for counts, fill in ((before, row['before']), (after, row['after'])):
        kept = [count for osd, count in counts.items() if count]
        assert [fill['pgs_min'], fill['pgs_max']] == [min(kept), max(kept)]
        assert fill['osds'] == len(kept)
        assert fill['pgs_mean'] == pytest.approx(sum(kept) / len(kept), abs=0.06)
    assert '%(osds)d -> ' % row['before'] in shown and 'MAX AVAIL' in shown


@pytest.mark.parametrize('number, text', [(20, ''), (21, '... and 1 more pool'),
                                          (23, '... and 3 more pools')])
def test_previews_show_the_first_pools(number: int, text: str) -> None:
    pools = [{'pool': 'pool%d' % row, 'max_avail_before': None, 'max_avail_after': 1 << 30,
              'limited_by_before': None, 'limited_by_after': 3} for row in range(number)]
    shown = tables.capacity({'capacity': {'classes': [], 'pools': pools}})
    assert 'pool19' in ' '.join(shown) and 'pool20' not in ' '.join(shown)
    assert (shown[-1] if 'more' in shown[-1] else '') == text


@pytest.mark.parametrize('verb, names', [('drain', ('h3',)), ('lose', ('h3',))])
def test_previews_name_osds_that_have_not_reported(verb: str, names: Any) -> None:
    """The OSDs report to a new mgr one after the other."""
    cluster = StrawCluster(hosts=6, pgs=64)
    driver = Driver(cluster)
    driver.run(3)
    assert driver.order(verb, *names, dry_run=True)['warnings'] == []
    reports = cluster.osd_space()
    setattr(cluster, 'osd_space', lambda: {osd: reports[osd] for osd in (0, 1, 2, 3)})
    cluster.toys[5] = cluster.toys[5]._replace(up=False)
    assert 'not known yet: the size of osd.4 (try again in a few seconds)' in driver.order(
        verb, *names, dry_run=True)['warnings']


def crush_of(weights: Dict[int, float]) -> CrushRules:
    return CrushRules.from_dump(ToyMon({osd: ToyOsd(osd, weight)
                                        for osd, weight in weights.items()}, 3, ()).crush_dump())


def test_max_avail_is_what_fills_the_first_osd() -> None:
    """Data is added by weight until an OSD is full: found by trying."""
    stand = CrushAndSpace(crush_of({0: 1.0, 1: 2.0, 2: 1.0}), {
        0: Space(1000, 500), 1: Space(2000, 400), 2: Space(0, 0)})

    def avail(pool: Pool, cluster: CrushAndSpace) -> Tuple[Optional[int], Optional[int]]:
        row = pool_avail(pool, rule_room(pool.crush_rule, cluster, 0.95), None)
        return row.max_avail_before, row.limited_by_before

    room, fullest = avail(replace(REP, size=2), stand)
    assert room is not None and fullest == 0

    def full(stored: int) -> bool:
        raw = 2 * stored
        return any(row.used_bytes + raw * weight / 4.0 > 0.95 * row.total_bytes
                   for row, weight in ((stand.space[0], 1.0), (stand.space[1], 2.0)))

    assert next(stored for stored in range(2000) if full(stored)) == room + 1
    assert avail(REP, stand._replace(space={})) == (None, None)
    over = stand._replace(space={**stand.space, 0: Space(1000, 990)})
    assert avail(REP, over) == (0, 0)


def test_osds_without_weight_or_size_do_not_count() -> None:
    """Drained OSDs before a change of weights are new ones after it."""
    osdmap = OsdMap(1, frozenset(), {1: REP}, {}, {}, {}, {})
    space = {0: Space(1000, 500, 9), 1: Space(1000, 100, 3), 2: Space(0, 0, None)}
    found = capacity_change(osdmap, CrushAndSpace(crush_of({0: 1.0, 1: 0.0001, 2: 1.0}), space),
                            CrushAndSpace(crush_of({0: 1.0, 1: 1.0, 2: 1.0}), space))
    before, after = found.classes['']
    assert (before.osds, before.fill, before.fullest, before.pgs_mean) == (1, 0.5, 0, 9.0)
    assert (after.osds, after.fill, after.fullest, after.fullest_fill) == (2, 0.3, 0, 0.5)
    assert (after.pgs_min, after.pgs_mean, after.pgs_max) == (3, 6.0, 9)


def test_each_device_class_and_pool_is_compared() -> None:
    """OSD 2 of class hdd and the only one of class ssd are drained."""
    def stand(*weights: float) -> CrushAndSpace:
        dump = ToyMon({osd: ToyOsd(osd, weight) for osd, weight in enumerate(weights)},
                      3, ()).crush_dump()
        dump['devices'] = [{'id': osd, 'name': 'osd.%d' % osd, 'class': 'ssd' if osd == 3 else
                            'hdd'} for osd in range(4)]
        return CrushAndSpace(CrushRules.from_dump(dump), {
            0: Space(3000, 900, 7), 1: Space(3000, 1000, 4), 2: Space(3000, 1000, 5),
            3: Space(7000, 1000)})

    pools = {2: replace(REP, id=2, name='ec', erasure=True, size=6, data_shards=4), 1: REP}
    change = capacity_change(OsdMap(1, frozenset(), pools, {}, {}, {}, {}),
                             stand(0.5, 0.5, 0.5, 0.5), stand(0.5, 0.5, DRAINED_WEIGHT, 0.0))
    assert change.classes == {
        'hdd': (Fill(3, 9000, 2900, 0.3222, 1, 0.3333, 4, 5.3, 7),
                Fill(2, 6000, 1900, 0.3167, 1, 0.3333, 4, 5.5, 7)),
        'ssd': (Fill(1, 7000, 1000, 0.1429, 3, 0.1429, None, None, None),
                Fill(0, 0, 0, None, None, None, None, None, None))}
    # Until an OSD of 3000 bytes with 1000 in use has 2850: 4, and then just over 2 times 1850.
    assert change.pools == (PoolAvail('rep', 7400 // 3, 3700 // 3, 1, 1),
                            PoolAvail('ec', 7400 * 4 // 6, 3701 * 4 // 6, 1, 1))


def test_nothing_is_known_of_osds_that_have_not_reported() -> None:
    osdmap = OsdMap(1, frozenset(), {1: REP}, {}, {}, {}, {})
    stand = CrushAndSpace(crush_of({0: 1.0}), {})
    after_report = CrushAndSpace(crush_of({0: 1.0}), {0: Space(1000, 0, None)})
    found = capacity_change(osdmap, stand, after_report)
    before, after = found.classes['']
    assert before.osds == 0 and before.fill is before.fullest is before.pgs_mean is None
    assert after.osds == 1 and after.fill == 0.0 and after.pgs_max is None
    text = '\n'.join(tables.capacity({'capacity': found.as_json()}))
    assert '0 -> 1' in text and '- -> 0.0 %' in text
