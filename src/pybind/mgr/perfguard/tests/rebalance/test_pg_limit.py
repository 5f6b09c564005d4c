# SPDX-License-Identifier: LGPL-2.1-or-later
"""No campaign takes an OSD over mon_max_pg_per_osd, unless the operator says so."""
import errno
from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Optional, Tuple

import pytest

from perfguard.cluster.types import (NO_ENTRY, HeldPgs, OsdSet, PgCounts, Signals, Space,
                                     UpmapEntry)
from perfguard.errors import Code, Refused
from perfguard.loop import loop
from perfguard.rebalance.campaign import Flights
from perfguard.rebalance.moves import MOVE_PATIENCE_SECONDS, Caps, Load, Move, choose
from perfguard.rebalance.pg_limit import awaits_reading, receives, still_uncounted
from perfguard.rebalance.releasing import release_more
from perfguard.rebalance.risks import RISKS
from perfguard.rebalance.types import Flight, Landed, Phase, PinRecord

from ..fakes.campaigns import campaign_of
from ..fakes.cluster import FakeCluster
from ..fakes.drafts import NOW, draft_of
from ..fakes.driver import Driver, codes

#: The last time at which releases were in the OSDMap whose PGs the reading of READ_AT counts.
READ_AT, COUNTED = NOW - 10.0, NOW - 30.0
HELD = HeldPgs(READ_AT, dict.fromkeys(range(7), 10))
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


def flight(targets: OsdSet, confirmed: Optional[float]) -> Flight:
    return Flight(900.0, NO_ENTRY, sources=(0,), targets=targets, confirmed=confirmed)


@pytest.mark.parametrize('flights, cluster, expected', [
    ({}, {}, {}), ({}, {'pg_limit': 0}, None), ({}, {'held_pgs': None}, None),
    # Those in flight count against these numbers anyway.
    ({'in_flight': {'1.0': flight((3,), COUNTED), '1.1': flight((3, 4), COUNTED - 100.0),
                    '1.2': flight((7,), COUNTED)}}, {}, {3: 4, 4: 3, 7: 13}),
    ({'in_flight': {'1.0': flight((3,), COUNTED + 0.1), '1.1': flight((3,), None)}}, {}, {}),
    ({'landed': (Landed(COUNTED, (3,)), Landed(COUNTED + 0.1, (4,)), Landed(NOW, (4, 7)))}, {},
     {4: 0, 7: 11}),
    ({'landed': (Landed(NOW, (3,)),) * 4}, {}, {3: -2}),
    ({'landed': (Landed(NOW - 20.0, (3,)),)}, {'stats_period': 1.0}, {3: 1}),
    ({'landed': (Landed(NOW - 20.0, (3,)),)}, {'held_pgs': HELD._replace(time=NOW)}, {})])
def test_pgs_that_osds_may_receive(flights: Dict[str, Any], cluster: Dict[str, Any],
                                   expected: Optional[Dict[int, int]]) -> None:
    """osd.7 has not reported its PGs."""
    cluster = {'pg_limit': 12, 'held_pgs': HELD, **cluster}
    draft = draft_of(campaign_of(1, Phase.RELEASING, 900.0, flights=Flights(**flights)), **cluster)
    assert receives(draft) == ({} if expected is None else {
        **dict.fromkeys(range(7), 2), 7: 12, **expected})
    orders = replace(draft.campaign.orders, acknowledged=(Code.PG_LIMIT,))
    assert receives(draft.set(orders=orders)) == {}


@pytest.mark.parametrize('cluster, acknowledged, expected', [
    ({'pg_limit': 12}, (), True), ({'pg_limit': 0}, (), False),
    ({'pg_limit': 12, 'held_pgs': HELD}, (), False), ({'pg_limit': 12}, (Code.PG_LIMIT,), False)])
def test_nothing_is_released_until_it_is_known_what_osds_hold(
        cluster: Dict[str, Any], acknowledged: Tuple[str, ...], expected: bool) -> None:
    pin = PinRecord(NO_ENTRY, UpmapEntry(((3, 0),)))
    draft = draft_of(campaign_of(1, Phase.RELEASING, 900.0, acknowledged=acknowledged),
                     {'1.0': pin}, entries={'1.0': pin.entry},
                     moves={'1.0': Move('1.0', (0,), (3,), 0, 100)}, **cluster)
    assert awaits_reading(draft) == expected
    assert bool(release_more(draft).campaign.flights.in_flight) == (not expected)


def test_landed_pgs_are_kept_until_a_reading_counts_them() -> None:
    pgs = [Landed(time, (3,)) for time in (COUNTED, COUNTED + 0.1, COUNTED + 10.1)]
    seen = draft_of(campaign_of(1, Phase.RELEASING, 900.0), held_pgs=HELD).observed
    assert still_uncounted(pgs, seen) == tuple(pgs[1:])
    # The next reading is not earlier than now.
    assert still_uncounted(pgs, replace(seen, held_pgs=None)) == tuple(pgs[2:])


@dataclass
class Counting(FakeCluster):
    """The mgr knows the PGs that OSDs hold some seconds later."""
    pg_limit: int = 3
    late_seconds: float = 12.0
    #: PGs that each OSD is deleting.
    deleting: int = 0
    reports: List[Tuple[float, Dict[int, Space]]] = field(default_factory=list)

    def tick(self, seconds: float = 1.0) -> None:
        super().tick(seconds)
        self.reports.append((self.now, {osd: space._replace(pgs=self.deleting + sum(
            osd in pg.data or osd in pg.up and pg.peering_until is None for pg in self.pg.values()))
            for osd, space in super().osd_space().items()}))

    def osd_space(self) -> Dict[int, Space]:
        return next((space for time, space in reversed(self.reports)
                     if time <= self.now - self.late_seconds),
                    self.reports[0][1] if self.reports else super().osd_space())

    @property
    def most_on_new(self) -> int:
        return max(sum(osd in pg.up for pg in self.pg.values()) for osd in self.new)


@pytest.mark.parametrize('late_seconds, backfill_seconds, pause_seconds', [
    (0.0, 4.0, 0.0), (12.0, 1.0, 0.0), (12.0, 4.0, 10.0), (12.0, 60.0, 10.0), (12.0, 4.0, 160.0)])
def test_releases_stop_at_the_limit_and_go_on_once_it_is_waived(
        late_seconds: float, backfill_seconds: float, pause_seconds: float,
        monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if no PG is in flight, and all are active+clean. `pause_seconds`: between readings."""
    monkeypatch.setattr(loop, 'HELD_SECONDS', pause_seconds)
    cluster = Counting(late_seconds=late_seconds, backfill_seconds=backfill_seconds)
    driver = Driver(cluster)
    driver.to_releasing()
    driver.run(120 + 4 * int(backfill_seconds))
    assert cluster.most_on_new == 3
    assert driver.phase == 'RELEASING' and driver.status['released'] == 9
    assert 'PG_LIMIT' in codes(driver.status) and 'CAP_BACKFILLS' not in codes(driver.status)
    driver.ask('accept', code='PG_LIMIT')
    driver.run_to('DONE')
    assert cluster.most_on_new == 4 and cluster.clean()


def test_releases_go_on_once_osds_have_deleted_other_pgs() -> None:
    cluster = Counting(pg_limit=5, late_seconds=0.0, deleting=3)
    driver = Driver(cluster)
    driver.to_releasing()
    driver.run(120)
    assert cluster.most_on_new == 2 and 'PG_LIMIT' in codes(driver.status)
    cluster.deleting = 0
    driver.run_to('DONE')
    assert cluster.most_on_new == 4


def test_osds_that_have_not_reported_to_a_new_mgr_are_read_again() -> None:
    cluster = Counting(pg_limit=5, late_seconds=0.0)
    driver = Driver(cluster)
    driver.to_releasing()
    observing, view = driver.loop._observing, cluster.map_view()

    def read(now: float, unreported: int) -> float:
        held = observing._recent_held_pgs(now, view.osdmap, Signals(PgCounts(
            unreported=unreported)))
        assert held is not None
        return held.time

    begin = cluster.now + 100.0
    assert [read(begin + seconds, unreported) for seconds, unreported in (
        (0.0, 0), (9.9, 0), (9.9, 1), (10.0, 0), (19.8, 0), (20.0, 0), (-1.0, 0))] == [
            begin + seconds for seconds in (0.0, 0.0, 9.9, 9.9, 9.9, 20.0, -1.0)]


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
