# SPDX-License-Identifier: LGPL-2.1-or-later
"""No campaign takes an OSD over mon_max_pg_per_osd, unless the operator says so."""
import errno
from collections import Counter
from dataclasses import dataclass, replace
from typing import Counter as CounterType

import pytest

from perfguard.cluster.types import PgCounts, Readings
from perfguard.errors import Refused
from perfguard.rebalance.moves import MOVE_PATIENCE_SECONDS, Caps, Load, Move, choose
from perfguard.rebalance.risks import RISKS

from ..fakes.cluster import FakeCluster
from ..fakes.driver import Driver, codes

WIDE = Caps(pgs=100, bytes=1 << 50, source=100, primary=100, target=100, host=100)


def no_host(_: int) -> None:
    return None


def test_an_osd_receives_no_more_than_fits() -> None:
    moves = [Move('1.%d' % number, (number,), (9,), number, 1) for number in range(5)]
    load = Load(no_host)
    chosen = choose(moves, load, replace(WIDE, receives={9: 2}))
    assert len(chosen) == 2
    [obstacle] = load.obstacles(moves[4], replace(WIDE, receives={9: 2}))
    assert (obstacle.code, obstacle.place, obstacle.used, obstacle.limit) == (
        'PG_LIMIT', 'osd.9', 2, 2)
    assert choose(moves, Load(no_host), replace(WIDE, receives={9: -3})) == []
    assert len(choose(moves, Load(no_host), WIDE)) == 5


@pytest.mark.parametrize('now', [0.0, MOVE_PATIENCE_SECONDS + 1.0, 1e6])
def test_a_pg_whose_target_has_no_room_keeps_no_path_free(now: float) -> None:
    """It may wait for PGs that leave its target."""
    stuck = Move('1.0', (1,), (9,), 50, 1)
    leaving = [Move('1.%x' % i, (9,), (13 + i,), 20 + i, 1) for i in range(1, 3)]
    others = [Move('2.%x' % i, (1,), (30 + i,), 40 + i, 1) for i in range(2)]
    chosen = choose([stuck, *leaving, *others], Load(no_host),
                    replace(WIDE, source=2, receives={9: 0}), now)
    assert set(chosen) == {*leaving, *others}


def test_the_oldest_pg_that_has_room_keeps_its_path_free() -> None:
    crowded = Move('1.0', (1,), (9,), 50, 1)
    waiting = Move('1.1', (2,), (8,), 51, 1, since=1.0)
    other = Move('1.2', (2,), (7,), 52, 1, since=2.0)
    caps = replace(WIDE, target=1, receives={9: 0})
    load = Load(no_host)
    load.add('3.0', Move('3.0', (5,), (8,), 53, 1))
    assert choose([crowded, waiting, other], load, caps, 2 * MOVE_PATIENCE_SECONDS) == []


@dataclass
class Counting(FakeCluster):
    """The OSDs report their PGs, five seconds late."""
    pg_limit: int = 3

    def readings(self, view: object, signals: object) -> Readings:
        counts: CounterType[int] = Counter(osd for pg in self.pg.values() for osd in set(pg.data))
        return replace(self.read, osd_counts={osd: PgCounts(total=counts[osd])
                                              for osd in self.toys})

    @property
    def most_on_new(self) -> int:
        return max(sum(osd in pg.up for pg in self.pg.values()) for osd in self.new)


def test_releases_stop_at_the_limit_and_go_on_once_it_is_waived() -> None:
    driver = Driver(Counting())
    driver.to_releasing()
    driver.run(120)
    cluster = driver.cluster
    assert isinstance(cluster, Counting) and cluster.most_on_new == 3
    assert driver.phase == 'RELEASING' and driver.status['released'] == 9
    assert 'PG_LIMIT' in codes(driver.status) and 'CAP_BACKFILLS' not in codes(driver.status)
    driver.ask('accept', code='PG_LIMIT')
    driver.run_to('DONE')
    assert cluster.most_on_new == 4 and cluster.clean()


def test_a_change_over_the_limit_is_refused_unless_it_is_forced() -> None:
    cluster = Counting()
    cluster.add_waiting()
    cluster.tick()
    driver = Driver(cluster)
    assert driver.order('expand', weight='1.0', dry_run=True)['pg_limit'] == 3
    with pytest.raises(Refused, match='3 OSDs would hold more PGs') as refused:
        driver.order('expand', weight='1.0')
    assert refused.value.errno == errno.E2BIG and driver.phase == 'IDLE'
    driver.order('expand', weight='1.0', accept=RISKS)
    driver.run_to('DONE')
    assert cluster.most_on_new == 4


def test_all_risks_are_reported_at_once_with_the_command_that_accepts_them() -> None:
    cluster = Counting()
    cluster.add_waiting()
    cluster.health['MON_DOWN'] = '1/3 mons down'
    cluster.tick()
    driver = Driver(cluster)
    for accept in ((), ('PG_LIMIT',), ('MON_DOWN',)):
        with pytest.raises(Refused) as refused:
            driver.order('expand', weight='1.0', accept=accept)
        assert refused.value.not_fit == ('MON_DOWN' not in accept) and driver.phase == 'IDLE'
        for code in ('MON_DOWN', 'PG_LIMIT'):
            assert ('(%s)' % code in str(refused.value)) == (code not in accept)
            assert str(refused.value).count('--accept ' + code) == 1
    driver.order('expand', weight='1.0', accept=('MON_DOWN', 'PG_LIMIT'))


def test_without_a_limit_nothing_is_refused() -> None:
    cluster = Counting(pg_limit=0)
    cluster.add_waiting()
    cluster.tick()
    driver = Driver(cluster)
    driver.order('expand', weight='1.0')
    driver.run_to('DONE')
