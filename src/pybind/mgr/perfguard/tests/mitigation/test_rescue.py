# SPDX-License-Identifier: LGPL-2.1-or-later
"""Degraded PGs that wait for an OSD that is too full, while others have room."""
import types
from dataclasses import replace
from typing import Any, Dict, List, Optional, Tuple

import pytest

from perfguard.cluster.orchestrator import Orchestrating
from perfguard.cluster.types import Placement, Space, UpmapEntry
from perfguard.mitigation.rescue import (AT_ONCE, Rescue, RescueFacts, _is_too_full,
                                         dropped_by_mons, may_return, plan_rescues, stuck,
                                         without_dropped_pairs)
from perfguard.mitigation.rescuing import MOST_REFUSED_SECONDS, REFUSED_SECONDS
from perfguard.shutdown import ShutdownOrder
from perfguard.store import Store
from perfguard.upmap.shares import Room

from ..fakes.cluster import FakeCluster
from ..fakes.driver import OPTIONS, Driver
from ..test_journal import records, two

FULL = 3
ACT = replace(OPTIONS, mitigation_mode='act', mitigation_seconds=5.0)
ROOMY = 1 << 40


class FullCluster(FakeCluster):
    """PGs whose primaries are asked say that their next OSD is too full."""
    used: Dict[int, int]
    #: PGs for which CRUSH finds too few OSDs.
    holes: Tuple[str, ...] = ()

    def tick(self, seconds: float = 1.0) -> None:
        super().tick(seconds)
        for pgid in self.holes:
            self.pg[pgid].temp = self.pg[pgid].data

    def osd_space(self) -> Dict[int, Space]:
        used = getattr(self, 'used', {})
        return {osd: row._replace(used_bytes=used.get(osd, row.used_bytes))
                for osd, row in super().osd_space().items()}

    def inquire(self, questions: Any) -> Any:
        return {question: 'active+undersized+degraded+remapped+backfill_toofull'
                if question.pgid in self.toofull() else 'active+undersized+degraded+remapped'
                for question in questions}

    def toofull(self) -> List[str]:
        return [pgid for pgid in self.remapped()
                if any(self.fullness.get(osd) for osd in set(self.pg[pgid].up)
                       - set(self.pg[pgid].temp or ()))]

    def signals(self, osdmap: Any) -> Any:
        found = super().signals(osdmap)
        number = len(self.toofull())
        return replace(found, counts=replace(found.counts, backfill_toofull=number,
                                             degraded=number, remapped_clean=len(self.holes)))


class Hurt(Driver):
    cluster: FullCluster


def hurt(options: Any = ACT) -> Hurt:
    """osd.3 is too full; PGs of which one copy is lost are to be copied to it."""
    cluster = FullCluster(hosts=9)
    driver = Hurt(cluster, options)
    cluster.fullness[FULL] = 'backfillfull'
    cluster.used = {FULL: int(0.91 * ROOMY)}
    lacking = 0
    for pgid, pg in sorted(cluster.pg.items()):
        if FULL not in pg.data and pgid.startswith('1.') and lacking < 6:
            # Its third copy is lost, and CRUSH chooses the OSD that is too full.
            pg.mon.raw[2] = FULL
            pg.data = pg.data[:2]
            lacking += 1
    setattr(cluster, '_backfills', lambda pgid, pg: not any(
        cluster.fullness.get(osd) for osd in set(pg.up) - set(pg.data)))
    cluster._crush_changed()
    for _ in range(4):
        cluster.tick()
    assert len(cluster.toofull()) == lacking == 6
    return driver


def upmaps(driver: Driver) -> Dict[str, Any]:
    return {pgid: entry for pgid, entry in driver.cluster.entries().items() if entry}


def test_upmaps_lead_to_osds_with_room_a_few_at_a_time() -> None:
    driver = hurt()
    driver.run(4)
    assert not upmaps(driver)
    driver.run(4)
    assert 0 < len(upmaps(driver)) <= AT_ONCE
    driver.run_until(lambda: not driver.cluster.toofull())
    driver.run(20)
    put = upmaps(driver)
    assert len(put) == 6 and driver.cluster.clean()
    assert all(entry.items[0][0] == FULL and entry.vector is None for entry in put.values())
    takers = [entry.items[0][1] for entry in put.values()]
    assert FULL not in takers and len(set(takers)) > 1
    held = [row.what for row in driver.loop.published.ledger.rows]
    assert sorted(held) == sorted('upmap of PG ' + pgid for pgid in put)
    assert any('is mapped to' in event['what'] for event in driver.loop.published.events)


def test_they_are_removed_one_at_a_time_once_there_is_room() -> None:
    driver = hurt()
    driver.run_until(lambda: not driver.cluster.toofull())
    driver.run(20)
    driver.cluster.fullness.clear()
    driver.run(15)
    assert len(upmaps(driver)) == 6, 'it is not nearfull, but has no room'
    driver.cluster.used[FULL] = 1 << 30
    driver.restart()
    most = 0
    for _ in range(250):
        driver.turn()
        most = max(most, len(driver.cluster.remapped()))
    assert upmaps(driver) == {} and driver.cluster.clean() and most == 1
    assert Store(driver.kv).get('rescues') is None and not driver.loop.published.ledger.rows


def test_pgs_that_have_nowhere_to_move_keep_no_upmap() -> None:
    """CRUSH finds too few OSDs for them, and they stay remapped for good."""
    driver = hurt()
    driver.run_until(lambda: not driver.cluster.toofull())
    driver.run(20)
    driver.cluster.holes = ('2.0',)
    driver.cluster.fullness.clear()
    driver.cluster.used[FULL] = 1 << 30
    driver.run(250)
    assert upmaps(driver) == {} and driver.cluster.remapped() == ['2.0']


@pytest.mark.parametrize('mode', ['off', 'observe'])
def test_other_modes_change_nothing(mode: str) -> None:
    driver = hurt(replace(ACT, mitigation_mode=mode))
    driver.run(20)
    assert upmaps(driver) == {} and Store(driver.kv).get('rescues') is None
    remarks = [text for text in driver.loop.status()['reasons'] if 'too full' in text]
    assert bool(remarks) == (mode == 'observe')


def test_no_upmap_makes_an_osd_nearfull() -> None:
    driver = hurt()
    # A PG of pool 1 takes 1 GiB; only two OSDs have room for twice as much.
    driver.cluster.used = {osd: int(0.85 * ROOMY) - (5 << 29 if osd in (4, 5) else 3 << 29)
                           for osd in driver.cluster.toys}
    driver.cluster.used[FULL] = ROOMY
    driver.run(20)
    taken_by = {osd for entry in upmaps(driver).values() for _, osd in entry.items}
    assert taken_by and taken_by <= {4, 5}


@pytest.mark.parametrize('fullest', ['nearfull', 'backfillfull', 'full'])
def test_no_osd_that_is_full_itself_is_chosen(fullest: str) -> None:
    driver = hurt()
    for osd in range(9):
        driver.cluster.fullness[osd] = driver.cluster.fullness.get(osd, fullest)
    driver.run(20)
    assert upmaps(driver) == {}
    assert any('no other OSD' in text for text in driver.loop.status()['reasons'])


def test_an_upmap_that_others_change_is_given_up() -> None:
    driver = hurt()
    driver.run_until(lambda: bool(upmaps(driver)))
    driver.run(2)
    pgid = sorted(upmaps(driver))[0]
    driver.cluster.set_upmap(pgid, [(FULL, 8)] if upmaps(driver)[pgid].items != ((FULL, 8),)
                             else [(FULL, 7)])
    theirs = upmaps(driver)[pgid]
    driver.run(20)
    assert upmaps(driver)[pgid] == theirs
    assert any('given up' in event['what'] and pgid in event['what']
               for event in driver.loop.published.events)


def refilled() -> Tuple[Hurt, Dict[str, Any]]:
    """Four PGs are rescued, and clients fill their new OSDs before the copies are complete."""
    driver = hurt()
    setattr(driver.cluster, '_backfills', lambda pgid, pg: False)
    driver.run_until(lambda: len(upmaps(driver)) == AT_ONCE)
    driver.run(5)
    put = upmaps(driver)
    for entry in put.values():
        ((_, taker),) = entry.items
        driver.cluster.fullness[taker] = 'backfillfull'
        driver.cluster.used[taker] = int(0.92 * ROOMY)
    return driver, put


def waiting(driver: Hurt) -> List[str]:
    return [text for text in driver.loop.status()['reasons'] if 'too full' in text]


def test_rescues_whose_new_osds_become_full_are_mapped_to_others() -> None:
    driver, put = refilled()
    assert waiting(driver) == [
        '2 PGs are degraded and wait for OSDs that are too full: perfguard maps a few at a time to '
        'OSDs with room']
    driver.run(5)
    again = upmaps(driver)
    assert again.keys() == put.keys()
    takers = {entry.items for entry in put.values()}
    assert all(entry.items[0][0] == FULL and len(entry.items) == 1 and entry.items not in takers
               for entry in again.values())
    driver.restart()
    driver.run(10)
    assert upmaps(driver) == again
    setattr(driver.cluster, '_backfills', lambda pgid, pg: True)
    driver.cluster.fullness.clear()
    driver.cluster.used = {FULL: 1 << 30}
    driver.run(250)
    assert upmaps(driver) == {} and driver.cluster.clean()


def test_rescues_without_another_osd_keep_no_others_waiting() -> None:
    driver, put = refilled()
    free = set(range(9)) - {FULL} - {entry.items[0][1] for entry in put.values()}
    for osd in free:
        driver.cluster.fullness[osd] = 'nearfull'
    driver.run(10)
    assert upmaps(driver) == put
    assert waiting(driver) == ['6 PGs are degraded and wait for OSDs that are too full: no other '
                               'OSD that their CRUSH rule allows has room']
    others = set(driver.cluster.toofull()) - put.keys()
    driver.cluster.fullness = {osd: 'backfillfull' for osd in range(9) if osd not in free}
    # The first four have to remain as they are.
    for pgid in put:
        driver.loop.jobs.rescuing._overruled[pgid] = driver.cluster.now, (FULL,)
    driver.run(10)
    assert upmaps(driver).keys() == put.keys() | others


def test_a_rescue_whose_new_osd_becomes_full_ends_if_the_first_has_room() -> None:
    driver, put = refilled()
    for osd in range(9):
        driver.cluster.fullness[osd] = '' if osd == FULL else 'backfillfull'
    driver.cluster.used[FULL] = 1 << 30
    driver.run(30)
    assert upmaps(driver) == {} and Store(driver.kv).get('rescues') is None
    removed = [event for event in driver.loop.published.events
               if event['what'].endswith(' is being removed')]
    assert len(removed) == len(put) and removed[0]['why'] == 'osd.3 has room again'


def test_an_upmap_remains_if_the_mons_do_not_accept_the_one_that_replaces_it() -> None:
    driver, put = refilled()

    def takers() -> Dict[str, Tuple[int, ...]]:
        return {pgid: driver.loop.jobs.rescuing._rescues[pgid].taken_by for pgid in put}

    taken_by = takers()
    driver.cluster.refuse['osd pg-upmap-items'] = 'EAGAIN'
    driver.run(120)
    assert upmaps(driver) == put and takers() == taken_by
    assert {row.what for row in driver.loop.published.ledger.rows} >= {
        'upmap of PG ' + pgid for pgid in put}
    assert driver.loop.jobs.rescuing._refused.keys() >= put.keys()
    driver.cluster.refuse.clear()
    driver.run(int(REFUSED_SECONDS))
    # Two OSDs have room; the others have received the PGs that waited.
    again = upmaps(driver)
    assert len(again) == 6 and sum(again[pgid] != entry for pgid, entry in put.items()) == 2


def test_a_rescue_by_a_clock_that_was_ahead_is_not_of_the_future() -> None:
    """Its readback would never be over."""
    driver, put = refilled()
    rescuing = driver.loop.jobs.rescuing
    now = max(rescue.since for rescue in rescuing._rescues.values()) - 3600.0
    assert rescuing.load(now) == [] and rescuing._rescues.keys() == put.keys()
    assert {rescue.since for rescue in rescuing._rescues.values()} == {now}


def removed_by_others(driver: Hurt) -> str:
    """A PG whose data is still being copied, and of which the upmap was removed."""
    driver.run_until(lambda: bool(upmaps(driver)))
    pgid = sorted(upmaps(driver))[0]
    backfills = driver.cluster._backfills
    setattr(driver.cluster, '_backfills',
            lambda other, pg: other != pgid and backfills(other, pg))
    driver.run(2)
    driver.cluster.set_upmap(pgid, [])
    driver.run(60)
    return pgid


def test_an_upmap_that_an_operator_removes_is_not_put_again_for_a_day() -> None:
    driver = hurt()
    pgid = removed_by_others(driver)
    assert pgid not in upmaps(driver) and len(upmaps(driver)) == 5, 'the others are rescued'
    assert [text for text in driver.loop.status()['reasons'] if 'too full' in text] == [
        '1 PG is degraded and waits for OSDs that are too full: its upmap was changed outside '
        'perfguard']
    (event,) = [event for event in driver.loop.published.events
                if event['what'] == 'the upmap of PG %s is given up' % pgid]
    assert event['why'] == ('it was changed outside perfguard, which leaves the PG alone for a '
                            'day, or until osd.3 has room')
    driver.turn(MOST_REFUSED_SECONDS - 80.0)
    driver.run(10)
    assert pgid not in upmaps(driver)
    driver.turn(20.0)
    driver.run(10)
    assert pgid in upmaps(driver)


def test_a_pg_whose_upmap_an_operator_removes_is_rescued_when_its_osd_is_full_again() -> None:
    driver = hurt()
    pgid = removed_by_others(driver)
    used, driver.cluster.used[FULL] = driver.cluster.used[FULL], 1 << 30
    driver.run(15)
    assert pgid not in upmaps(driver), 'backfillfull'
    driver.cluster.fullness.clear()
    driver.run(15)
    driver.cluster.used[FULL], driver.cluster.fullness[FULL] = used, 'backfillfull'
    driver.run(20)
    assert pgid in upmaps(driver)


def test_an_upmap_that_the_mons_drop_is_put_anew() -> None:
    """Its new OSD was marked out."""
    driver = hurt()
    driver.run_until(lambda: bool(upmaps(driver)))
    driver.run(2)
    pgid = sorted(upmaps(driver))[0]
    ((_, taker),) = upmaps(driver)[pgid].items
    driver.cluster.toys[taker] = driver.cluster.toys[taker]._replace(reweight=0.0)
    driver.cluster.set_upmap(pgid, [])
    driver.run(20)
    assert upmaps(driver)[pgid].items[0][1] not in (FULL, taker)


@pytest.mark.parametrize('up, entry, dropped', [
    # CRUSH no longer chooses the OSD that was too full, which is a source.
    ((0, 1, 5), UpmapEntry(), True), ((0, 1, 5), UpmapEntry(((1, 8),)), True),
    # Others have removed the pair, or replaced it.
    ((0, 1, 3), UpmapEntry(), False), ((0, 1, 5), UpmapEntry(((3, 5),)), False),
    ((0, 1, 5), UpmapEntry((), (0, 1, 5)), False)])
def test_who_has_changed_an_upmap(up: Tuple[int, ...], entry: UpmapEntry, dropped: bool) -> None:
    driver = Driver(FakeCluster(hosts=9))
    seen, _ = driver.loop._observing.observe()
    osdmap = seen.osdmap
    rescue = Rescue(UpmapEntry(), UpmapEntry(((FULL, 4),)), (FULL,), (4,), 1.0, True)

    def dropped_with(osds: Any) -> bool:
        return dropped_by_mons('1.0', rescue, replace(
            seen, settings=replace(seen.settings, osdmap=replace(
                osdmap, osds=osds, upmap_items={'1.0': entry.items},
                upmap_vectors={'1.0': entry.vector} if entry.vector else {})),
            placement=lambda pgid: Placement(up, up)))

    assert dropped_with(osdmap.osds) == dropped
    for lost in ({**osdmap.osds, 4: replace(osdmap.osds[4], reweight=0.0)},
                 {osd: row for osd, row in osdmap.osds.items() if osd != 4}):
        assert dropped_with(lost)


@pytest.mark.parametrize('removing', [False, True])
def test_an_upmap_that_a_campaign_restores_is_removed_after_it(removing: bool) -> None:
    driver = hurt()
    cluster = driver.cluster
    driver.run_until(lambda: not cluster.toofull())
    driver.run(20)
    put, refused = upmaps(driver), 'osd rm-pg-upmap-items'
    if removing:
        cluster.fullness.clear()
        cluster.used[FULL] = 1 << 30
        cluster.refuse[refused] = 'EAGAIN'
        driver.run_until(lambda: any(refused in str(command) for command in cluster.sent))
    driver.to_pinned()
    cluster.refuse.clear()
    pins = driver.loop.rebalance.pins
    ours = {'upmap of PG ' + pgid for pgid in put if pgid in pins and pins[pgid].before}
    assert ours

    def held() -> Any:
        return {row.what for row in driver.loop.published.ledger.rows}

    assert not ours & held(), 'the campaign holds them'
    driver.ask('start')
    driver.run_to('DONE')
    driver.run(2)
    assert ours <= held()
    cluster.fullness.clear()
    cluster.used[FULL] = 1 << 30
    driver.run(250)
    assert upmaps(driver) == {} and cluster.clean() and Store(driver.kv).get('rescues') is None


@pytest.mark.parametrize('reason, why', [
    ('full', 'osd.3 cannot take the PG now'),
    ('inactive', 'a campaign is active, or PGs are degraded or move')])
def test_a_removal_that_has_no_reason_any_more_is_called_off(reason: str, why: str) -> None:
    """The mons have not accepted it yet."""
    driver = hurt()
    cluster, refused = driver.cluster, 'osd rm-pg-upmap-items'
    driver.run_until(lambda: not cluster.toofull())
    driver.run(20)
    put = upmaps(driver)
    cluster.fullness.clear()
    cluster.used[FULL] = 1 << 30
    cluster.refuse[refused] = 'EAGAIN'
    driver.run_until(lambda: any(refused in str(command) for command in cluster.sent))
    if reason == 'full':
        cluster.used[FULL] = int(0.91 * ROOMY)
    else:
        cluster.trouble = {'inactive': 1}
    driver.run(20)
    cluster.refuse.clear()
    driver.run(20)
    assert upmaps(driver) == put
    texts = {event['what']: event['why'] for event in driver.loop.published.events}
    assert [why_kept for what, why_kept in texts.items() if what.endswith(' remains')] == [why]
    cluster.trouble = {}
    cluster.used[FULL] = 1 << 30
    driver.run(250)
    assert upmaps(driver) == {} and Store(driver.kv).get('rescues') is None


def test_an_upmap_that_is_not_in_force_is_sent_no_more_once_the_mitigation_is_off() -> None:
    driver = hurt()
    driver.cluster.refuse['osd pg-upmap-items'] = 'EAGAIN'
    driver.run(8)
    assert Store(driver.kv).get('rescues')
    driver.options = replace(ACT, mitigation_mode='off')
    driver.cluster.refuse.clear()
    driver.run(70)
    assert upmaps(driver) == {} and Store(driver.kv).get('rescues') is None
    assert 'mitigation_mode is not act' in [
        event['why'] for event in driver.loop.published.events]
    driver.options = ACT
    driver.run_until(lambda: bool(upmaps(driver)), 20)


@pytest.mark.parametrize('returning', [False, True])
def test_an_upmap_of_which_the_mons_drop_another_pair_is_removed_later(returning: bool) -> None:
    """As they do when CRUSH no longer chooses the OSD of that pair."""
    driver = hurt()
    cluster = driver.cluster
    pgid = cluster.toofull()[0]
    pg = cluster.pg[pgid]
    first, other, third = pg.mon.raw[0], *[osd for osd in range(9) if osd not in pg.mon.raw][:2]
    pg.mon.put_items([(first, other)])
    pg.data = (other, *pg.data[1:])
    cluster._map_changed()
    driver.run_until(lambda: not cluster.toofull())
    driver.run(20)
    theirs, ours = upmaps(driver)[pgid].items
    assert theirs == (first, other) and ours[0] == FULL
    if returning:
        cluster.fullness.clear()
        cluster.used[FULL] = 1 << 30
        cluster.refuse['osd pg-upmap-items'] = 'EAGAIN'
        driver.run_until(lambda: any('PG %s is being removed' % pgid in event['what']
                                     for event in driver.loop.published.events), 400)
    cluster.set_raw(pgid, [third, *pg.mon.raw[1:]])
    driver.run(0 if returning else 20)
    assert upmaps(driver)[pgid].items == (ours,)
    cluster.refuse.clear()
    cluster.fullness.clear()
    cluster.used[FULL] = 1 << 30
    driver.run(250)
    assert upmaps(driver) == {} and cluster.clean() and Store(driver.kv).get('rescues') is None


def test_a_shutdown_leaves_them_as_ordinary_upmaps() -> None:
    driver = hurt()
    driver.run_until(lambda: not driver.cluster.toofull())
    before = upmaps(driver)
    driver.give(ShutdownOrder(True))
    driver.run(10)
    assert upmaps(driver) == before and not driver.loop.published.ledger.rows
    assert any('remain' in event['what'] for event in driver.loop.published.events)


def test_what_is_journalled_survives_a_crash_before_the_command() -> None:
    driver = hurt()
    driver.run(4)
    driver.loop.jobs.rescuing._journal_is_stored = lambda: False
    driver.run(6)
    assert upmaps(driver) == {} and Store(driver.kv).get('rescues')
    driver.restart()
    driver.run_until(lambda: not driver.cluster.toofull())
    assert len(upmaps(driver)) == 6


def test_no_upmap_is_sent_that_the_mons_have_not_journalled() -> None:
    """Ceph only logs a write that fails: without the record, the next mgr would never remove the
    upmap, or take it for one of the operator."""
    driver = hurt()
    driver.run(3)
    driver.kv.losing = True
    driver.run(10)
    assert upmaps(driver) == {} and Store(driver.kv).get('rescues')
    driver.kv.losing = False
    driver.run_until(lambda: not driver.cluster.toofull())
    assert not [key for key in driver.kv.lost if key.startswith('rescues')]


def test_an_upmap_that_the_mons_refuse_is_given_up() -> None:
    driver = hurt()
    driver.cluster.refuse['osd pg-upmap-items'] = 'no'
    driver.run(170)
    assert upmaps(driver) == {} and Store(driver.kv).get('rescues') is None


def test_an_upmap_that_the_mons_have_not_accepted_is_tried_again_later() -> None:
    """They may have had no quorum for a minute."""
    driver = hurt()
    driver.cluster.refuse['osd pg-upmap-items'] = 'EAGAIN'
    driver.run(120)
    assert upmaps(driver) == {}
    driver.cluster.refuse.clear()
    driver.run(60)
    assert len(upmaps(driver)) == 2, 'the others wait'
    driver.run(int(REFUSED_SECONDS))
    assert len(upmaps(driver)) == 6 and driver.cluster.clean()
    assert driver.loop.jobs.rescuing._refused == {}, 'the next pause is short again'


def test_mons_without_quorum_have_refused_no_upmap() -> None:
    driver = hurt()
    driver.cluster.refuse['osd pg-upmap-items'] = 'no answer'
    driver.cluster.mons_silent = True
    driver.run(200)
    assert upmaps(driver) == {} and driver.loop.jobs.rescuing._refused == {}
    driver.cluster.mons_silent = False
    driver.cluster.refuse.clear()
    driver.run_until(lambda: not driver.cluster.toofull(), 60)
    assert len(upmaps(driver)) == 6


def test_what_is_taken_back_is_an_event() -> None:
    driver = hurt()
    driver.run_until(lambda: not driver.cluster.toofull())
    lent = set(upmaps(driver))
    driver.cluster.fullness.clear()
    driver.cluster.used[FULL] = 1 << 30
    driver.run_until(lambda: not upmaps(driver), 300)
    events = {event['what']: event['why'] for event in driver.loop.published.events}
    for pgid in lent:
        assert events['the upmap of PG %s is being removed' % pgid] == 'osd.3 has room again'


def test_failures_of_pgs_that_are_not_tried_again_are_forgotten() -> None:
    driver = hurt()
    driver.cluster.refuse['osd pg-upmap-items'] = 'EINVAL'
    rescuing = driver.loop.jobs.rescuing
    driver.run_until(lambda: bool(rescuing._failures))
    driver.run(30)
    driver.cluster.fullness.clear()
    driver.run(90)
    assert rescuing._failures
    driver.turn(3 * MOST_REFUSED_SECONDS)
    driver.turn()
    assert not rescuing._failures and not rescuing._refused


def test_an_upmap_that_is_refused_again_and_again_does_not_fill_the_event_log() -> None:
    driver = hurt()
    driver.cluster.refuse['osd pg-upmap-items'] = 'EINVAL'
    events: List[Any] = []
    driver.loop.jobs.rescuing._note = events.append
    for _ in range(int(REFUSED_SECONDS)):
        driver.turn(10.0)
    failed = [event for event in events if event.kind == 'failed']
    given_up = [event for event in events if 'given up' in event.what]
    # Of six PGs after 0, 10, 30 and 70 minutes.
    assert 6 * 3 <= len(given_up) <= 6 * 4 and len(failed) <= len(given_up), (
        len(given_up), len(failed))


def test_each_failure_is_reported_once_if_upmaps_are_sent_at_different_times() -> None:
    driver = hurt()
    driver.cluster.refuse['osd pg-upmap-items'] = 'EINVAL'
    rescuing = driver.loop.jobs.rescuing
    events: List[Any] = []
    rescuing._note = events.append
    driver.run_until(lambda: len(rescuing._sent_at) > 1)
    rescuing._sent_at[min(rescuing._sent_at)] -= 2.0
    driver.run(30)
    failed = [event.what for event in events if event.kind == 'failed']
    assert failed and len(failed) == len(set(failed))


@pytest.mark.parametrize('fullness, used, full', [
    ('', 79, False), ('', 80, False), ('', 81, True), ('nearfull', 1, True), ('', None, False)])
def test_an_osd_that_a_pg_would_make_nearfull_is_too_full(fullness: str, used: Optional[int],
                                                          full: bool) -> None:
    """A PG of 5 bytes on a device of 100, with a nearfull ratio of 0.85."""
    osdmap: Any = types.SimpleNamespace(
        osds={3: types.SimpleNamespace(fullness=fullness)}, nearfull_ratio=0.85)
    space = {} if used is None else {3: Space(100, used)}
    assert _is_too_full(3, osdmap, space, 5) == full


@pytest.mark.parametrize('present, vector, is_left', [
    (((1, 2), (3, 4)), None, False),
    # The mons have dropped the pair of an OSD that CRUSH no longer chooses.
    (((3, 4),), None, True),
    # Nothing of ours is left.
    (((1, 2),), None, False), ((), None, False),
    # Others have changed it.
    (((3, 4), (5, 6)), None, False), (((1, 2), (3, 5)), None, False), (((3, 4),), (4, 7), False)])
def test_what_is_left_of_an_upmap(present: Tuple[Tuple[int, int], ...],
                                  vector: Optional[Tuple[int, int]], is_left: bool) -> None:
    rescue = Rescue(UpmapEntry(((1, 2),)), UpmapEntry(((1, 2), (3, 4))), (3,), (4,), 1.0, True)
    entry = UpmapEntry(present, vector)
    assert without_dropped_pairs(rescue, entry) == (
        replace(rescue, entry=entry, before=UpmapEntry()) if is_left else rescue)


def test_pinned_pgs_are_left_to_the_campaign() -> None:
    driver = hurt()
    seen, _ = driver.loop._observing.observe()
    space = driver.cluster.osd_space()
    found, _ = stuck(RescueFacts(seen, space))
    assert len(found) == 6 and all(each.full == (FULL,) for each in found)
    pinned = frozenset(each.pgid for each in found[:5])
    assert [each.pgid for each in stuck(RescueFacts(seen, space, pinned))[0]] == [found[5].pgid]
    planned = plan_rescues(found, RescueFacts(seen, space), 2)
    assert len(planned) == 2


def test_every_degraded_pg_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = hurt()
    seen, _ = driver.loop._observing.observe()
    facts = RescueFacts(seen, driver.cluster.osd_space())
    every = [each.pgid for each in stuck(facts)[0]]
    monkeypatch.setattr('perfguard.mitigation.rescue.QUERIED_PGS', 4)
    first, last = stuck(facts)
    then, _ = stuck(facts, last)
    assert [each.pgid for each in first] == every[:4]
    assert [each.pgid for each in then] == every[4:] + every[:2]


def test_pgs_that_answer_a_turn_later_are_rescued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('perfguard.mitigation.rescue.QUERIED_PGS', 2)
    driver = hurt()
    answer, asked = driver.cluster.inquire, dict[Any, str]()

    def late(questions: Any) -> Any:
        known = {question: asked[question] for question in questions if question in asked}
        asked.clear()
        asked.update(answer(questions))
        return known

    setattr(driver.cluster, 'inquire', late)
    driver.run_until(lambda: len(upmaps(driver)) == 6)


def test_pgs_that_never_answer_keep_no_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('perfguard.mitigation.rescue.QUERIED_PGS', 2)
    driver = hurt()
    answer, silent = driver.cluster.inquire, sorted(driver.cluster.toofull())[:2]
    setattr(driver.cluster, 'inquire', lambda questions: {
        question: state for question, state in answer(questions).items()
        if question.pgid not in silent})
    driver.run_until(lambda: len(upmaps(driver)) == 4)


def test_only_some_degraded_pgs_are_looked_up_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = hurt()
    driver.cluster.fullness.clear()
    seen, view = driver.loop._observing.observe()
    looked: List[str] = []

    def placement(pgid: str) -> Any:
        looked.append(pgid)
        return view.placement(pgid)

    facts = RescueFacts(replace(seen, placement=placement), {})
    monkeypatch.setattr('perfguard.mitigation.rescue.LOOKED_UP', 2)
    found, last = stuck(facts)
    assert found == [] and len(looked) == 2 and last == looked[-1]
    stuck(facts, last)
    assert len(set(looked)) == 4


@pytest.mark.parametrize('stored', [[1], {'1.0': {}}, {'1.0': 3}])
def test_records_that_cannot_be_read_are_reported(stored: Any) -> None:
    driver = Driver()
    Store(driver.kv).put('rescues', stored)
    driver.restart()
    assert 'upmaps of rescued PGs' in str(driver.loop._store.losses)
    driver.turn()


def test_no_upmap_leads_to_a_drained_osd() -> None:
    """It is the emptiest of all, and about to be replaced or removed."""
    driver = hurt()
    for osd in (4, 5):
        driver.cluster.toys[osd] = driver.cluster.toys[osd]._replace(crush_weight=0.0001)
    driver.cluster.used = {osd: 1 << 30 if osd in (4, 5) else 2 << 30
                           for osd in driver.cluster.toys}
    driver.cluster.used[FULL] = int(0.91 * ROOMY)
    driver.run_until(lambda: not driver.cluster.toofull())
    taken_by = {osd for entry in upmaps(driver).values() for _, osd in entry.items}
    assert taken_by and not taken_by & {4, 5}


def not_chosen(driver: Hurt, osds: Tuple[int, ...]) -> None:
    """These OSDs are the emptiest, and no upmap leads to them."""
    driver.cluster.used = {osd: 1 << 30 if osd in osds else ROOMY // 2
                           for osd in driver.cluster.toys}
    driver.cluster.used[FULL] = int(0.91 * ROOMY)
    driver.run_until(lambda: not driver.cluster.toofull())
    taken_by = {osd for entry in upmaps(driver).values() for _, osd in entry.items}
    assert taken_by and not taken_by.intersection(osds), taken_by


def test_no_upmap_leads_to_an_osd_that_is_being_emptied_by_reweight() -> None:
    driver = hurt()
    for osd, reweight in ((4, 0.05), (5, 0.999)):
        driver.cluster.toys[osd] = driver.cluster.toys[osd]._replace(reweight=reweight)
    not_chosen(driver, (4, 5))


def test_no_upmap_leads_to_an_osd_that_the_orchestrator_removes() -> None:
    driver = hurt()
    driver.cluster.orchestrator = Orchestrating(removing=frozenset({4, 5}))
    not_chosen(driver, (4, 5))


def test_no_upmap_leads_to_an_osd_that_a_campaign_is_about_to_drain() -> None:
    """Its CRUSH weight is still that from before."""
    driver = hurt()
    seen, _ = driver.loop._observing.observe()
    facts = RescueFacts(seen, driver.cluster.osd_space())
    found, _ = stuck(facts)
    taken_by = plan_rescues(found, facts, 1)[found[0].pgid].taken_by
    others = plan_rescues(found, facts._replace(leaving=frozenset(taken_by)), 1)
    assert others[found[0].pgid].taken_by != taken_by


def test_an_osd_gets_one_pg_although_the_osdmap_does_not_show_the_upmap_yet() -> None:
    """The mons may be late, and the room on the OSD is still that from before."""
    driver = hurt()
    seen, _ = driver.loop._observing.observe()
    facts = RescueFacts(seen, driver.cluster.osd_space())
    (first, second, *_), _ = stuck(facts)
    put = plan_rescues([first], facts, 1)
    other = plan_rescues([second], facts._replace(rescued=put), 1)
    assert set(put[first.pgid].taken_by).isdisjoint(other[second.pgid].taken_by)


def test_what_a_campaign_drains_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(FakeCluster(hosts=9))
    rescuing, drained = driver.loop.jobs.rescuing, set[Tuple[str, Any]]()
    turn = rescuing.turn

    def noted(*args: Any, **keywords: Any) -> None:
        drained.add((driver.phase, keywords['drained']))
        turn(*args, **keywords)

    monkeypatch.setattr(rescuing, 'turn', noted)
    driver.order('drain', 'osd.4')
    driver.run_to('DONE')
    driver.run(2)
    assert {('PINNING', (4,)), ('DONE', ())} <= drained and ('PINNING', ()) not in drained


@pytest.mark.parametrize('pgs, limit, chosen', [
    (749, 750, True), (750, 750, False), (750, 0, True), (None, 750, True)])
def test_no_upmap_leads_to_an_osd_that_accepts_no_more_pgs(pgs: Optional[int], limit: int,
                                                           chosen: bool) -> None:
    driver = hurt()
    seen, _ = driver.loop._observing.observe()
    space = {osd: row._replace(used_bytes=1 << 30 if osd in (6, 7, 8) else ROOMY // 2,
                               pgs=pgs if osd in (6, 7, 8) else 100)
             for osd, row in driver.cluster.osd_space().items()}
    facts = RescueFacts(seen, space, hard_pg_limit=limit)
    found, _ = stuck(facts._replace(space=driver.cluster.osd_space()))
    taken_by = {osd for rescue in plan_rescues(found, facts, 3).values()
                for osd in rescue.taken_by}
    assert len(taken_by) == 3 and (taken_by == {6, 7, 8}) == chosen


def test_the_limit_of_the_cluster_counts() -> None:
    driver = hurt()
    # All OSDs hold at least 3 times as many PGs.
    driver.cluster.pg_limit = 1
    driver.run(20)
    assert upmaps(driver) == {}
    assert any('no other OSD' in text for text in driver.loop.status()['reasons'])


def test_no_upmap_from_before_leads_back_to_a_drained_osd() -> None:
    """The OSD that was too full held the PG by an upmap, and is drained meanwhile."""
    driver = Driver(FakeCluster(hosts=9))
    raw = driver.cluster.pg['1.0'].mon.raw
    full, other = [osd for osd in range(9) if osd not in raw][:2]
    driver.cluster.set_upmap('1.0', [(raw[2], other)])
    driver.run_until(lambda: driver.cluster.clean())
    before, entry = UpmapEntry(((raw[2], full),)), UpmapEntry(((raw[2], other),))
    rescue = Rescue(before, entry, (full,), (other,), 0.0, seen=True)
    for weight in (1.0, 0.0001):
        driver.cluster.toys[full] = driver.cluster.toys[full]._replace(crush_weight=weight)
        seen, _ = driver.loop._observing.observe()
        room = Room(driver.cluster.osd_space(), seen.osdmap.nearfull_ratio)
        assert may_return('1.0', rescue, seen, room) == (weight == 1.0)


def test_an_upmap_stays_until_the_osd_has_room_for_a_few_such_pgs() -> None:
    driver = Driver(FakeCluster(hosts=9))
    raw = driver.cluster.pg['1.0'].mon.raw
    full, other = [osd for osd in range(9) if osd not in raw][:2]
    driver.cluster.set_upmap('1.0', [(raw[2], other)])
    driver.run_until(lambda: driver.cluster.clean())
    seen, _ = driver.loop._observing.observe()
    rescue = Rescue(UpmapEntry(((raw[2], full),)), UpmapEntry(((raw[2], other),)), (full,),
                    (other,), 0.0, seen=True)
    size = seen.shard_bytes(seen.osdmap.pools[1])
    space = driver.cluster.osd_space()
    limit = int(seen.osdmap.nearfull_ratio * space[full].total_bytes)
    assert size > 0
    for left, returns in ((4 * size, True), (4 * size - 1, False)):
        space[full] = space[full]._replace(used_bytes=limit - left)
        room = Room(space, seen.osdmap.nearfull_ratio)
        assert may_return('1.0', rescue, seen, room) == returns


def test_no_upmap_is_sent_that_the_mons_would_refuse() -> None:
    """require_min_compat_client is older than upmaps."""
    driver = hurt()
    observed = driver.cluster.map_view

    def old() -> Any:
        view = observed()
        return replace(view, osdmap=replace(view.osdmap, min_compat_client='jewel'))

    setattr(driver.cluster, 'map_view', old)
    driver.run(20)
    assert not any('upmap' in str(command) for command in driver.cluster.sent)
    assert any('require_min_compat_client' in text for text in driver.loop.status()['reasons'])


def test_a_clock_that_is_behind_that_of_the_mgr_before_delays_no_removal_of_upmaps() -> None:
    driver = hurt()
    driver.cluster.ahead = 3600.0
    driver.restart()
    driver.run(10)
    assert upmaps(driver)
    driver.run_until(lambda: not driver.cluster.toofull())
    driver.run(20)
    driver.cluster.fullness.clear()
    driver.cluster.used[FULL] = 1 << 30
    driver.cluster.ahead = 0.0
    driver.restart()
    driver.run(250)
    assert upmaps(driver) == {}


def test_an_mgr_that_is_not_active_any_more_writes_no_rescues() -> None:
    driver = hurt()
    driver.run_until(lambda: bool(upmaps(driver)))
    other = two(driver)
    other.run_until(lambda: len(upmaps(driver)) == 6)
    other.run(2)
    stored = records(driver, 'rescues')
    driver.loop.turn()
    assert records(driver, 'rescues') == stored and driver.loop.journal.fenced
