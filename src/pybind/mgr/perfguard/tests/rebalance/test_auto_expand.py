# SPDX-License-Identifier: LGPL-2.1-or-later
"""auto_expand: which remapped PGs are an expansion's, and that they are caught in time."""
from dataclasses import replace
from typing import List

import pytest

from perfguard.cluster.types import (NO_OSD, Document, Osd, OsdMap, OsdSet, PgCounts, Pool,
                                     Signals)
from perfguard.errors import Refused
from perfguard.observation import Observation, Settings
from perfguard.rebalance.auto_expand import AutoExpand, LastClean, StoredClean, compared
from perfguard.rebalance.campaign import NO_CAMPAIGN
from perfguard.rebalance.crush_orders import CRUSH_BEFORE
from perfguard.rebalance.risks import RISKS
from perfguard.rebalance.types import Phase
from perfguard.store import Store

from ..fakes.campaigns import campaign_of
from ..fakes.cluster import FakeCluster
from ..fakes.driver import OPTIONS, Driver, codes
from ..test_codec import again
from .test_orders import crush

AUTO = replace(OPTIONS, auto_expand=True, auto_expand_settle=2.0)


def test_an_expansion_is_caught_within_two_turns_and_runs_to_its_end() -> None:
    driver = Driver(FakeCluster(peer_seconds=0.5), AUTO)
    found = driver.cluster.foreign()
    driver.run(3)
    driver.cluster.expand()
    driver.cluster.tick()
    driver.run(2)
    assert 'norebalance' in driver.cluster.flags and driver.status['trigger'] == 'auto'
    driver.run_to('PINNED')
    assert not driver.cluster.moved
    driver.run_to('DONE')
    assert driver.cluster.clean() and driver.cluster.foreign() == found
    assert len(driver.cluster.moved) == 12
    driver.run(5)
    assert len(driver.history) == 1


def test_nothing_begins_automatically_over_state_that_could_not_be_read() -> None:
    """The record of what was lost, with the commands that give borrowed settings back, would be
    deleted and the health check cleared, although no operator has seen them."""
    driver = Driver(options=AUTO)
    driver.run(3)
    driver.ask('prepare')
    driver.run_to('PREPARED')
    driver.run(3)
    for key in [key for key in driver.kv.data if key.startswith('campaign/')]:
        driver.kv.data[key] = 'x'
    driver.restart()
    driver.run(2)
    lost = [key for key in driver.kv.data if key.startswith('damaged/')]
    driver.cluster.expand()
    driver.run(10)
    assert driver.phase == 'IDLE' and 'PERFGUARD_INTERRUPTED' in driver.cluster.checks
    assert lost and set(lost) <= driver.kv.data.keys()
    refused = [event for event in driver.loop.published.events if event['kind'] == 'refused']
    assert [event['what'] for event in refused] == ['auto_expand']
    assert 'could not read all of its state' in refused[0]['why']
    # An operator has seen it.
    driver.ask('prepare', accept=RISKS)
    driver.turn()
    assert 'PERFGUARD_INTERRUPTED' not in driver.cluster.checks


def test_unreadable_events_do_not_stop_auto_expand() -> None:
    """They leave nothing behind on the cluster, but the health check reports them."""
    driver = Driver(options=AUTO)
    Store(driver.kv).put('events_recent', [])
    for key in driver.kv.data:
        if key.startswith('events_recent/'):
            driver.kv.data[key] = 'x'
    driver.restart()
    driver.run(3)
    assert 'PERFGUARD_INTERRUPTED' in driver.cluster.checks
    driver.cluster.expand()
    driver.run(3)
    assert driver.status['trigger'] == 'auto'


def test_only_where_it_is_asked_for() -> None:
    driver = Driver()
    driver.cluster.expand()
    driver.run(10)
    assert driver.phase == 'IDLE' and driver.cluster.sent == []


def test_it_is_switched_off_before_a_change_of_the_same_turn(
        monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(FakeCluster(peer_seconds=0.5), AUTO)
    driver.run(3)
    signals = driver.cluster.signals

    def changing(osdmap: OsdMap) -> Signals:
        driver.options = replace(AUTO, auto_expand=False)
        return signals(osdmap)

    driver.cluster.expand()
    driver.cluster.tick()
    monkeypatch.setattr(driver.cluster, 'signals', changing)
    driver.run(10)
    assert driver.phase == 'IDLE' and driver.cluster.sent == []


def test_a_change_that_is_too_small() -> None:
    driver = Driver(options=replace(AUTO, auto_expand_ratio=0.1))
    driver.cluster.set_raw('1.1', (1, 2, 3))
    driver.run(10)
    assert driver.phase == 'IDLE' and driver.cluster.moved


def test_an_osd_that_goes_out_is_left_to_recovery() -> None:
    driver = Driver(options=AUTO)
    cluster = driver.cluster
    cluster.toys[7] = cluster.toys[7]._replace(reweight=0.0)
    # Its PGs are remapped, and CRUSH has a new version as well.
    for pgid, pg in cluster.pg.items():
        if 7 in pg.up:
            cluster.set_raw(pgid, [next(osd for osd in range(7) if osd not in pg.up)
                                   if osd == 7 else osd for osd in pg.up])
    driver.run(10)
    assert driver.phase == 'IDLE' and cluster.moved


@pytest.mark.parametrize('failover', [False, True])
def test_an_osd_that_returns_is_left_to_recovery(failover: bool) -> None:
    """It gives CRUSH a new version, and its PGs are remapped while they backfill."""
    driver = Driver(options=AUTO)
    driver.run(3)
    driver.cluster.restart_osd()
    if failover:
        driver.restart()
    driver.turn()
    remap(driver.cluster)
    driver.run(10)
    assert driver.phase == 'IDLE'


@pytest.mark.parametrize('failover', [False, True])
def test_an_expansion_is_caught_while_recovery_from_a_failure_goes_on(failover: bool) -> None:
    driver = Driver(FakeCluster(peer_seconds=0.5, backfill_seconds=300.0), AUTO)
    driver.run(3)
    driver.cluster.take_down(7)
    driver.cluster.mark_out(7)
    driver.run(40)
    if failover:
        # The store has the OSDs that served when CRUSH was changed last.
        driver.restart()
        driver.run(40)
    assert driver.cluster.remapped() and driver.phase == 'IDLE'
    driver.cluster.expand()
    driver.cluster.tick()
    driver.run(2)
    assert 'norebalance' in driver.cluster.flags and driver.status['trigger'] == 'auto'
    assert not driver.cluster.moved


@pytest.mark.parametrize('when', ['purged at once', 'lost before', 'lost after it', 'failover'])
def test_an_expansion_is_caught_although_an_osd_is_lost_for_good(when: str) -> None:
    """Its PGs are recovery, but no others."""
    driver = Driver(FakeCluster(peer_seconds=0.5, backfill_seconds=300.0), AUTO)
    cluster = driver.cluster
    driver.run(40)
    if when == 'lost after it':
        cluster.expand()
        cluster.take_down(7)
    else:
        cluster.take_down(7)
        cluster.mark_out(7)
        if when == 'purged at once':
            cluster.purge(7)
            cluster.change_tunables()
        driver.run(100)
        assert driver.phase == 'IDLE' and cluster.remapped()
    if when == 'failover':
        # The store has the OSDs that served when CRUSH was changed last.
        cluster.backfill_seconds = 4.0
        driver.run_until(cluster.clean)
        driver.run(40)
        driver.restart()
    if when != 'lost after it':
        cluster.expand()
    cluster.tick()
    driver.run(2)
    assert 'norebalance' in cluster.flags and driver.status['trigger'] == 'auto'


def test_pgs_that_were_remapped_before_a_change_are_not_its_effect() -> None:
    driver = Driver(FakeCluster(backfill_seconds=300.0), replace(AUTO, auto_expand_ratio=0.08))
    driver.run(3)
    remap(driver.cluster)
    driver.run(5)
    driver.cluster.set_raw('1.7', (1, 2, 3))
    driver.run(10)
    assert driver.phase == 'IDLE' and len(driver.cluster.remapped()) > 1


def test_a_document_has_no_identity_of_another_version() -> None:
    """Else the next mgr takes the change that this one has seen for the map of before."""
    clean = LastClean(10, frozenset({1}), 10, identity=111)
    assert again(StoredClean, clean.stored).last_clean == clean
    changed = replace(clean, last_version=11, identity=222)
    assert again(StoredClean, changed.stored).last_clean == replace(clean, identity=0)


def test_remapped_without_a_change_of_crush() -> None:
    driver = Driver(options=AUTO)
    remap(driver.cluster)
    driver.run(10)
    assert driver.phase == 'IDLE'


def remap(cluster: FakeCluster) -> None:
    for pgid in ('1.1', '1.3', '1.5'):
        cluster.pg[pgid].mon.raw.reverse()
    cluster.pg['1.1'].mon.raw[0] = 5
    cluster._interval_changes()


def test_an_aborted_campaign_is_not_begun_again() -> None:
    driver = Driver(options=AUTO)
    driver.cluster.expand()
    driver.run_until(lambda: driver.phase == 'RELEASING')
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.run(40)
    assert driver.status['id'] == 1 and driver.phase == 'ABORTED'


def test_an_abort_offers_no_rollback_to_a_map_that_is_not_known() -> None:
    driver = Driver(options=AUTO)
    driver.cluster.no_crush_map = True  # it is not needed
    driver.run(3)
    driver.cluster.expand()
    driver.run_to('RELEASING')
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.turn()
    with pytest.raises(Refused, match='is not known'):
        driver.order('rollback')
    with pytest.raises(Refused, match='run "campaign resume" or') as refused:
        driver.ask('pause')
    texts = [*driver.cluster.checks['PERFGUARD_HELD_PINS']['detail'], str(refused.value),
             *driver.status['reasons']]
    assert 'campaign resume' in ' '.join(texts) and 'rollback' not in ' '.join(texts)
    # The next campaign has a map to return to.
    driver.cluster.no_crush_map = False
    driver.ask('prepare')
    driver.run_to('PREPARED')
    assert Store(driver.kv).get(CRUSH_BEFORE) is not None


def aborted() -> Driver:
    """An aborted campaign that keeps 12 PGs pinned."""
    driver = Driver(options=AUTO)
    driver.to_pinned()
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.run(5)
    return driver


def test_what_an_aborted_campaign_holds_is_not_released() -> None:
    """PGs that others remap are pinned like its own, until an operator decides."""
    driver = aborted()
    cluster = driver.cluster
    pins, before = dict(driver.loop.rebalance.pins), Store(driver.kv).get(CRUSH_BEFORE)
    raw = cluster.pg['1.1'].mon.raw
    cluster.tunables = {'choose_total_tries': 100}
    cluster.set_raw('1.1', [*raw[:2], next(osd for osd in range(8) if osd not in raw)])
    driver.run_until(lambda: driver.phase == 'ABORTING', 5)
    driver.run_to('ABORTED')
    driver.run(40)
    pinned = dict(driver.loop.rebalance.pins)
    assert driver.phase == 'ABORTED' and not cluster.moved
    assert {pgid: pin for pgid, pin in pinned.items() if pgid != '1.1'} == pins
    assert '1.1' in pinned and '1.1' not in pins and 'norebalance' not in cluster.flags
    assert before is not None and Store(driver.kv).get(CRUSH_BEFORE) == before
    assert len(driver.history) == 1 and driver.status['id'] == 1
    assert [event['why'] for event in driver.loop.published.events
            if (event['kind'], event['what']) == ('request', 'auto_expand')] == [
        'CRUSH changed and remapped 1 of 24 PGs: campaign 1, which is aborted, pins these as well']
    driver.ask('resume')
    driver.run_to('DONE')
    assert cluster.clean() and not cluster.entries()


@pytest.mark.parametrize('failover', [False, True])
def test_an_aborted_campaign_pins_no_more_pgs_of_others_than_the_limit_allows(
        failover: bool) -> None:
    """norebalance keeps the rest in place until the operator decides."""
    driver = aborted()
    cluster = driver.cluster
    assert driver.status['pinned'] == 12
    driver.options = replace(AUTO, max_pins=7)
    cluster.expand(share=1)
    driver.run_until(lambda: driver.phase == 'ABORTING', 5)
    if failover:
        driver.restart()
    driver.run_to('ABORTED')
    driver.run(40)
    assert driver.status['pinned'] == 14 and not cluster.moved and 'norebalance' in cluster.flags
    unpinnable = driver.status['unpinnable']
    assert len(unpinnable) == len(cluster.remapped()) > 0
    assert {row['code'] for row in unpinnable} == {'PIN_LIMIT'}
    detail = ' '.join(cluster.checks['PERFGUARD_HELD_PINS']['detail'])
    assert '%d PGs cannot be pinned' % len(unpinnable) in detail
    driver.ask('resume')
    driver.run_until(lambda: 'PIN_LIMIT' in codes(driver.status))
    driver.ask('accept', code='PIN_LIMIT')
    driver.run_to('DONE')
    assert cluster.clean() and not cluster.entries()


def test_new_osds_stay_empty_while_an_aborted_campaign_keeps_pins() -> None:
    """They boot with their full weight."""
    driver = Driver(FakeCluster(peer_seconds=0.5), AUTO)
    cluster = driver.cluster
    driver.to_releasing()
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.run(40)
    moved = len(cluster.moved)
    new = cluster.expand()
    driver.run(60)
    assert driver.phase == 'ABORTED' and len(cluster.moved) == moved
    assert not any(osd in pg.data for pg in cluster.pg.values() for osd in new)
    driver.ask('resume')
    driver.run_to('DONE', 400)
    assert cluster.clean() and any(osd in pg.data for pg in cluster.pg.values() for osd in new)


def test_nothing_is_released_while_the_osds_of_a_host_come_up() -> None:
    driver = Driver(FakeCluster(peer_seconds=0.5), replace(AUTO, auto_expand_settle=30.0))
    cluster = driver.cluster
    driver.run(3)
    cluster.expand()
    driver.run_to('PINNED')
    for _ in range(3):
        driver.run(20)
        assert driver.phase == 'PINNED' and 'OSDS_ARRIVING' in codes(driver.status)
        cluster.add_waiting(1)
    begin = cluster.now
    driver.run_to('RELEASING')
    assert cluster.now - begin >= 29 and not cluster.moved
    cluster.add_waiting(1)
    driver.run_to('HOLDING')
    driver.restart()
    driver.run_to('DONE')
    assert cluster.clean()


def test_operators_who_begin_a_campaign_themselves_do_not_wait() -> None:
    driver = Driver(options=replace(OPTIONS, auto_expand_settle=600.0))
    driver.to_pinned()
    driver.ask('start')
    driver.run_to('DONE')


# ---- one turn after the other

def seen(version: int, now: float, remapped: int = 0, serving: int = 6,
         identity: int = 0) -> Observation:
    """Up to 32 PGs are remapped; the CRUSH map of each version differs (`identity`: as in that
    version). Of OSDs 0 to 5, the first `serving` are up."""
    osdmap = OsdMap(1, frozenset(), {1: Pool(1, 'p', False, 3, 2, 0, 32, 32, 32)},
                    {osd: Osd(osd, osd < serving, 1.0) for osd in range(6)}, {}, {},
                    {'1.%x' % pg: (0, 1, 2) for pg in range(remapped)})
    return Observation(now, Signals(PgCounts()), Settings(osdmap, None), lambda pgid: None,
                       crush({osd: float(identity or version) for osd in range(6)}),
                       crush_version=version)


def first(now: float = 1000.0, remapped: int = 0) -> LastClean:
    clean, why = compared(None, seen(1, now), NO_CAMPAIGN, 0.125)
    assert not why and clean.changed == now
    if remapped:
        clean, why = compared(clean, seen(1, now, remapped), NO_CAMPAIGN, 0.125)
        assert not why
    return clean


@pytest.mark.parametrize('before, remapped, why', [
    (0, 4, ''), (0, 5, 'CRUSH changed and remapped 5 of 32 PGs'), (3, 7, ''),
    (3, 8, 'CRUSH changed and remapped 5 of 32 PGs')])
def test_a_change_that_remaps_more_than_the_ratio(before: int, remapped: int, why: str) -> None:
    clean = first(remapped=before)
    after, cause = compared(clean, seen(2, 2000.0, remapped), NO_CAMPAIGN, 0.125)
    assert cause == why
    assert (after.crush_version, after.last_version, after.changed) == (1, 2, 2000.0)


@pytest.mark.parametrize('seconds, remapped, version', [
    (30.0, 2, 1), (30.5, 2, 2), (30.5, 3, 1), (30.0, 0, 1), (30.5, 0, 2)])
def test_a_change_that_remaps_nothing_for_half_a_minute_is_over(seconds: float, remapped: int,
                                                                version: int) -> None:
    clean, _ = compared(first(remapped=2), seen(2, 2000.0, 2), NO_CAMPAIGN, 0.125)
    after, why = compared(clean, seen(2, 2000.0 + seconds, remapped), NO_CAMPAIGN, 0.125)
    assert (after.crush_version, after.changed, why) == (version, 2000.0, '')


@pytest.mark.parametrize('acting, counts', [
    ((0, 1, 2), True), ((0, 1, 5), False), ((0, 1), False), ((0, 1, NO_OSD), False)])
def test_pgs_that_lack_an_osd_are_left_to_recovery(acting: OsdSet, counts: bool) -> None:
    observation = seen(2, 2000.0, serving=5)
    osdmap = replace(observation.osdmap, pg_temp={'1.%x' % pg: acting for pg in range(9)})
    _, why = compared(first(), replace(observation, settings=Settings(osdmap, None)), NO_CAMPAIGN,
                      0.125)
    assert bool(why) == counts


@pytest.mark.parametrize('version, serving, changed', [(1, 6, 1000.0), (2, 6, 2000.0),
                                                       (1, 5, 2000.0)])
def test_a_campaign_accounts_for_every_change(version: int, serving: int, changed: float) -> None:
    clean, why = compared(first(), seen(version, 2000.0, 9, serving),
                          campaign_of(1, Phase.PINNING, 0.0), 0.125)
    assert (clean.crush_version, clean.last_version, clean.changed, clean.serving, why) == (
        version, version, changed, frozenset(range(serving)), '')


def test_the_same_map_with_another_version_is_no_change() -> None:
    clean, why = compared(first(), seen(2, 2000.0, 9, identity=1), NO_CAMPAIGN, 0.125)
    assert (clean.crush_version, clean.last_version, clean.changed, why) == (2, 2, 1000.0, '')
    # A later change is compared with it.
    assert compared(clean, seen(3, 2001.0, 14), NO_CAMPAIGN, 0.125)[1] \
        == 'CRUSH changed and remapped 5 of 32 PGs'


@pytest.mark.parametrize('gap, changed', [(60.0, 2000.0), (60.5, 2060.5)])
def test_osds_that_go_down_without_a_campaign_are_a_change(gap: float, changed: float) -> None:
    auto_expand = AutoExpand(lambda document: None, lambda: True)
    for now, remapped, serving in (
            (1000.0, 0, 6), (1001.0, 9, 6), (1999.0, 9, 6), (2000.0, 9, 5), (2000.0 + gap, 9, 5)):
        assert auto_expand.look(seen(1, now, remapped, serving), NO_CAMPAIGN, 0.125,
                                is_enabled=False) == ''
    assert auto_expand.osds_or_crush_changed == changed


@pytest.mark.parametrize('serving, changed', [(6, 0.0), (5, 1000.0)])
def test_osds_that_went_down_with_the_mgr_before_are_a_change(serving: int,
                                                              changed: float) -> None:
    auto_expand = AutoExpand(lambda document: None, lambda: True)
    auto_expand.load(StoredClean(1, frozenset(range(6))))
    auto_expand.look(seen(1, 1000.0, 0, serving), NO_CAMPAIGN, 0.125, is_enabled=True)
    assert auto_expand.osds_or_crush_changed == changed


@pytest.mark.parametrize('gap, changed', [(60.0, 1000.0), (60.5, 1060.5)])
def test_time_in_which_the_mgr_hung_does_not_count(gap: float, changed: float) -> None:
    documents: List[Document] = []
    auto_expand = AutoExpand(documents.append, lambda: True)
    assert auto_expand.osds_or_crush_changed == 0.0
    for now in (1000.0, 1000.0 + gap):
        assert auto_expand.look(seen(1, now), NO_CAMPAIGN, 0.125, is_enabled=True) == ''
    assert auto_expand.osds_or_crush_changed == changed and len(documents) == 1
    auto_expand.look(seen(2, 1001.0 + gap), campaign_of(1, Phase.PINNING, 0.0), 0.125,
                     is_enabled=False)
    assert len(documents) == 1
    auto_expand.look(seen(2, 1002.0 + gap), campaign_of(1, Phase.PINNING, 0.0), 0.125,
                     is_enabled=True)
    assert len(documents) == 2
