# SPDX-License-Identifier: LGPL-2.1-or-later
"""OSDs that are too full: releases make room, and nothing of perfguard keeps data there."""
import time
from dataclasses import replace
from typing import Dict, List

import pytest

from perfguard.cluster.types import OsdSet, PgCounts
from perfguard.rebalance.risks import RISKS
from perfguard.status import EVACUATION, EVACUATION_SECONDS

from ..fakes.driver import OPTIONS, Driver, codes
from ..fakes.straw_cluster import StrawCluster


class Expanding(Driver):
    cluster: StrawCluster


def expanding(pgs: int = 24) -> Expanding:
    """Six old OSDs, and two new ones to which PGs are being released."""
    cluster = StrawCluster(hosts=6, pgs=pgs)
    driver = Expanding(cluster, replace(OPTIONS, target='balanced', max_pgs_in_flight=8))
    driver.run(1)
    cluster.add_osds(2, 0.0)
    driver.run(5)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status['released'] >= 1, 400)
    return driver


@pytest.mark.parametrize('toofull, stopped', [(30, False), (29, True)])
@pytest.mark.parametrize('accepted', [False, True])
def test_degraded_pgs_that_lack_room_do_not_stop_what_makes_it(
        toofull: int, stopped: bool, accepted: bool) -> None:
    """Old OSDs are too full for the copies of a host that is lost; the new OSDs have room."""
    driver = expanding()
    cluster = driver.cluster
    if accepted:
        driver.ask('accept', code='DEGRADED')
    old = range(6)
    cluster.fullness = {osd: 'backfillfull' for osd in old}
    cluster.trouble = {'degraded': 30, 'backfill_toofull': toofull, 'degraded_toofull': toofull}
    cluster.read = replace(cluster.read, osd_counts={
        osd: PgCounts(total=9, degraded=6, degraded_toofull=6 if toofull == 30 else 5)
        for osd in old})
    setattr(cluster, 'degraded_osds', lambda: frozenset(old))
    driver.run(10)
    released = driver.status['released'] + driver.status['in_flight']
    driver.run(20)
    more = driver.status['released'] + driver.status['in_flight'] - released
    texts = [row['text'] for row in driver.status['limits'] if row['code'] == 'BACKFILL_TOOFULL']
    if stopped:
        assert not more and 'DEGRADED' in codes(driver.status)
    else:
        assert more > 2 and [text[:51] for text in texts] == [
            '30 PGs are degraded, with targets that are too full']
        assert 'DEGRADED' not in codes(driver.status)


def hold(driver: Driver, how: str) -> None:
    if how == 'window':
        hour = time.localtime(driver.cluster.now).tm_hour
        driver.options = replace(driver.options, begin_time='%02d00' % ((hour + 12) % 24),
                                 end_time='%02d00' % ((hour + 13) % 24))
    elif how == 'pause':
        driver.ask('pause')
    else:
        driver.cluster.trouble = {'degraded': 1}


def on_osd(driver: Driver, osd: int) -> int:
    return sum(osd in pg.data for pg in driver.cluster.pg.values())


@pytest.mark.parametrize('how', ['window', 'degraded', 'pause'])
@pytest.mark.parametrize('fullness', ['full', 'nearfull'])
def test_an_osd_that_is_too_full_is_left_when_its_weight_is_lowered(
        how: str, fullness: str) -> None:
    """As "ceph osd crush reweight osd.0 0.25", while no PG is released."""
    driver = expanding()
    cluster = driver.cluster
    hold(driver, how)
    driver.run(20)
    assert driver.phase == 'HOLDING' and bool(driver.status['in_flight']) == (how == 'pause')
    pins, before = set(driver.loop.rebalance.pins), on_osd(driver, 0)
    cluster.fullness = {0: fullness}
    cluster.weigh(0, 0.25)
    driver.run(25)
    pinned = [pgid for pgid in driver.loop.rebalance.pins if pgid not in pins]
    if fullness == 'full' and how != 'pause':
        assert on_osd(driver, 0) < before - 2 and not cluster.remapped()
        assert not any(0 in cluster.pg[pgid].up for pgid in pinned)
        assert 'norebalance' not in cluster.flags
        return
    assert on_osd(driver, 0) == before
    assert any(0 in cluster.pg[pgid].up for pgid in pinned) == (fullness == 'nearfull')
    if fullness == 'full':
        # The pause keeps them, and reports what it keeps.
        assert 'EVACUATION_HELD' in codes(driver.status) and 'norebalance' in cluster.flags
        for _ in range(int(EVACUATION_SECONDS / 10)):
            driver.turn(10.0)
        summary, osd = cluster.checks[EVACUATION]['detail']
        assert 'campaign resume' in summary and '(reweight 1, CRUSH weight 0.25, full)' in osd
        driver.ask('resume')
        driver.run(15)
        assert on_osd(driver, 0) < before - 2


def moved_since(driver: Driver, before: Dict[str, OsdSet]) -> List[str]:
    return [pgid for pgid, pg in driver.cluster.pg.items() if pg.data != before[pgid]]


@pytest.mark.parametrize('fullness', ['full', 'backfillfull'])
def test_an_osd_that_is_too_full_is_left_outside_the_time_window(fullness: str) -> None:
    driver = expanding()
    cluster = driver.cluster
    hold(driver, 'window')
    driver.run(20)
    assert driver.phase == 'HOLDING' and not driver.status['in_flight']
    before = {pgid: pg.data for pgid, pg in cluster.pg.items()}
    cluster.fullness = {0: fullness}
    driver.run(5)
    texts = [row['text'] for row in driver.status['limits'] if row['code'] == 'WINDOW_CLOSED']
    assert len(texts) == 1 and texts[0].endswith('too full are released: osd.0')
    driver.run_to('HOLDING')
    driver.run(5)
    moved = moved_since(driver, before)
    assert moved and all(0 in before[pgid] and 0 not in cluster.pg[pgid].data for pgid in moved)
    moves = driver.loop.rebalance.release_moves.moves
    assert moves and not any(0 in move.sources for move in moves.values())


@pytest.mark.parametrize('fullness', [{0: 'nearfull'}, dict.fromkeys(range(6), 'backfillfull')])
def test_other_osds_are_not_left_outside_the_time_window(fullness: Dict[int, str]) -> None:
    """The balance, or the room of a whole cluster, may wait for the window."""
    driver = expanding()
    cluster = driver.cluster
    hold(driver, 'window')
    driver.run(20)
    before = {pgid: pg.data for pgid, pg in cluster.pg.items()}
    cluster.fullness = fullness
    driver.run(20)
    assert driver.phase == 'HOLDING' and not moved_since(driver, before)


def test_the_window_holds_again_once_an_osd_has_room() -> None:
    driver = expanding()
    cluster = driver.cluster
    hold(driver, 'window')
    driver.run(20)
    cluster.fullness, before = {0: 'full'}, driver.status['released']
    driver.run_until(lambda: driver.status['in_flight'] > 0, 20)
    cluster.fullness = {0: 'nearfull'}
    driver.run_until(lambda: driver.phase == 'HOLDING' and not driver.status['in_flight'], 40)
    driver.run(20)
    assert before < driver.status['released'] < driver.status['total']
    assert driver.phase == 'HOLDING'


def test_the_pgs_of_the_change_itself_are_pinned_though_they_leave_a_full_osd() -> None:
    """They would all move at once."""
    cluster = StrawCluster(hosts=6, pgs=24)
    driver = Driver(cluster)
    cluster.fullness = dict.fromkeys(range(6), 'full')
    driver.run(1)
    driver.ask('prepare', accept=RISKS)
    driver.run_to('PREPARED')
    cluster.add_osds(2, 1.0)
    driver.run(4)
    driver.ask('pin')
    driver.run_to('PINNED')
    driver.run(3)
    assert len(driver.loop.rebalance.pins) > 8 and not cluster.moved
    assert 'norebalance' in cluster.flags and 'EVACUATING' not in codes(driver.status)
