# SPDX-License-Identifier: LGPL-2.1-or-later
"""A change of CRUSH with its pins in one epoch, and what becomes of it when something fails."""
import errno
import gc
import json
import weakref
from dataclasses import replace
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.orchestrator import Orchestrating
from perfguard.cluster.ports import Future, FuturePg, NoFuture, View
from perfguard.cluster.types import OsdSet, Placement, Space, UpmapEntry
from perfguard.errors import Refused
from perfguard.observation import Observation
from perfguard.rebalance import campaign as campaigns
from perfguard.rebalance.campaign import NO_CAMPAIGN, AnyChange
from perfguard.rebalance.campaign_orders import COMPUTED_SECONDS
from perfguard.rebalance.change import ChangeStage, Planned
from perfguard.rebalance.crush_orders import changed_crush_parts
from perfguard.rebalance.draft import Draft
from perfguard.rebalance.join_plan import PlannedFuture, plan_join, renewed, with_pins
from perfguard.rebalance.orders import Order
from perfguard.rebalance.risks import RISKS
from perfguard.rebalance.turn_inputs import (OUTDATED_TIMES, PREVIEW_SECONDS, PREVIEW_TIMES,
                                             same_placement)
from perfguard.rebalance.weights import WeightChange
from perfguard.rebalance.whole_map import MapChange
from perfguard.request_queue import PendingOrder
from perfguard.store import Store
from perfguard.text import osds_text
from perfguard.upmap.pins import without_targets

from ..cluster.test_crush import DUMP
from ..fakes.cluster import BALANCER, Crash, FakeCluster, FakeReply, FakeView
from ..fakes.drafts import draft_of
from ..fakes.driver import Driver, codes
from ..fakes.instants import instants
from ..fakes.straw_cluster import StrawCluster
from .test_phases import Machine

INTERVAL = 'paxos_propose_interval'


def test_a_release_does_not_lead_onto_what_is_drained() -> None:
    """A balancer's upmap onto a drained OSD stays in force until its PG is released."""
    cluster = FakeCluster()
    first = cluster.pg['1.1'].data[0]
    cluster.add_upmap('1.1', first, 5)
    seen = cluster.map_view()
    future = Future({'1.1': FuturePg(cluster.pg['1.1'].up, tuple(cluster.pg['1.1'].mon.raw))},
                    cluster.crush(0))
    assert not plan_join(seen.osdmap, future).pins
    planned = plan_join(seen.osdmap, future, drained=(5,))
    pin = planned.pins['1.1']
    assert pin.entry == UpmapEntry(((first, 5),)) and pin.before == UpmapEntry()
    assert planned.moves['1.1'].sources == (5,) and planned.moves['1.1'].targets == (first,)


def test_a_pg_that_is_not_led_by_the_first_osd_of_its_upmap_is_not_pinned() -> None:
    """The balancer has moved its first shard to osd.5, whose primary affinity is 0, or a
    pg_upmap_primary entry names osd.1."""
    cluster = FakeCluster()
    raw = cluster.pg['1.1'].data
    cluster.add_upmap('1.1', raw[0], 5)
    osdmap, rules = cluster.map_view().osdmap, cluster.crush(0)
    here = (raw[1], 5, raw[2])

    def planned(up: OsdSet) -> Planned:
        return plan_join(osdmap, Future({'1.1': FuturePg(here, raw, up)}, rules))

    assert not planned(here).pins and not planned(here).unpinnable
    # CRUSH will place it elsewhere.
    assert planned((raw[1], 7, raw[2])).pins


@pytest.mark.parametrize('entry, left', [
    (UpmapEntry(((1, 6), (2, 5))), UpmapEntry(((2, 5),))),
    (UpmapEntry(vector=(1, 6, 2)), UpmapEntry()), (UpmapEntry(((6, 1),)), UpmapEntry(((6, 1),)))])
def test_without(entry: UpmapEntry, left: UpmapEntry) -> None:
    assert without_targets(entry, (6,)) == left


def waiting(**kwargs: Any) -> FakeCluster:
    cluster = FakeCluster(**kwargs)
    cluster.add_waiting()
    cluster.tick()
    return cluster


def placements(cluster: FakeCluster) -> Dict[str, Any]:
    return {pgid: pg.up for pgid, pg in cluster.pg.items()}


def test_nothing_is_remapped_and_order_is_kept() -> None:
    driver = Driver(waiting())
    cluster = driver.cluster
    before, found = placements(cluster), cluster.foreign()
    answer = driver.order('expand', weight='1.0')
    assert answer['pgs'] == 12 and answer['vectors'] > 0 and answer['campaign'] == 1
    assert set(answer['weights']) == {'osd.8', 'osd.9', 'osd.10'}
    driver.run_to('PINNED')
    assert placements(cluster) == before and cluster.most_unclean == 0
    assert driver.status['pinned'] == answer['pgs'] and driver.status['trigger'] == 'expand'
    driver.run_to('DONE')
    assert {pgid: list(up) for pgid, up in placements(cluster).items()} == cluster.coming
    assert cluster.entries() == {} and cluster.foreign() == found and INTERVAL not in \
        cluster.mon_config
    assert sorted(one.pgid for one in cluster.moved) == sorted(
        pgid for pgid, up in before.items() if set(up) != set(cluster.coming[pgid])
        or (pgid.startswith('2.') and list(up) != cluster.coming[pgid]))


def test_weights_and_pins_are_one_burst_with_the_weights_first() -> None:
    driver = Driver(waiting())
    driver.order('expand', weight='1.0')
    driver.run_to('PINNED')
    prefixes = [command['prefix'] for command in driver.cluster.sent]
    begin = prefixes.index('osd crush reweight')
    assert prefixes[begin:begin + 3] == ['osd crush reweight'] * 3
    assert set(prefixes[begin + 3:begin + 15]) == {'osd pg-upmap-items', 'osd pg-upmap'}
    # The mons gather for longer while it is sent, and not a moment longer than that.
    settings = [(c['prefix'], c.get('value')) for c in driver.cluster.sent
                if c.get('name') == INTERVAL]
    assert settings == [('config set', '3'), ('config rm', None)]
    assert prefixes.index('config set') < begin


def test_a_dry_run_shows_and_changes_nothing() -> None:
    driver = Driver(waiting())
    answer = driver.order('expand', weight='1.0', dry_run=True)
    assert answer['pgs'] == 12 and answer['bytes'] > 0 and answer['campaign'] is None
    driver.run(5)
    assert driver.cluster.sent == [] and driver.phase == 'IDLE'


@pytest.mark.parametrize('verb', ['expand', 'drain'])
def test_no_order_is_carried_out_without_a_preview(verb: str) -> None:
    """All PGs that it remaps would peer at once, before they can be pinned."""
    driver = Driver(waiting())
    driver.cluster.no_tools = 'osdmaptool was killed, perhaps because memory ran out'
    order = {'expand': Order('expand', weight='1.0'), 'drain': Order('drain', ('osd.3',))}[verb]
    assert driver.give(replace(order, dry_run=True))['reason'] == driver.cluster.no_tools
    with pytest.raises(Refused) as refused:
        driver.give(order)
    assert refused.value.errno == errno.EIO and driver.cluster.no_tools in str(refused.value)
    driver.run(5)
    assert driver.cluster.sent == [] and driver.phase == 'IDLE'


def test_a_forced_order_goes_the_ordinary_way_without_tools() -> None:
    driver = Driver(waiting())
    driver.cluster.no_tools = 'osdmaptool is not installed'
    answer = driver.order('expand', weight='1.0', accept=RISKS)
    assert not answer['one_epoch'] and answer['reason'] == driver.cluster.no_tools
    driver.run_to('PINNED')
    assert driver.cluster.most_unclean > 0 and not driver.cluster.moved
    driver.run_to('DONE')
    assert driver.cluster.clean() and driver.cluster.entries() == {}


def failing(cluster: FakeCluster, calls: List[int], fails: Callable[[int], bool]) -> None:
    """The previews for which `fails` is true fail; the first one is that of the order."""
    real = cluster.outlook

    def outlook(*args: Any) -> Any:
        calls.append(len(calls) + 1)
        return NoFuture('no answer from the mons') if fails(len(calls)) else real(*args)

    setattr(cluster, 'outlook', outlook)


@pytest.mark.parametrize('failed', [{2}, {2, 3}, {1}, {1, 2}])
def test_a_preview_that_fails_for_a_moment_is_computed_again(failed: Set[int]) -> None:
    """The mons elect a leader, or a tool is killed for lack of memory."""
    driver = Driver(waiting())
    cluster, calls = driver.cluster, []  # type: FakeCluster, List[int]
    failing(cluster, calls, lambda number: number in failed)
    assert driver.order('expand', weight='1.0', accept=RISKS)['one_epoch'] == (1 not in failed)
    driver.run_until(lambda: len(calls) >= 2)
    began = cluster.now
    if 2 in failed:
        driver.turn()
        assert 'no answer from the mons' in str(driver.status['reasons'])
    driver.run_to('PINNED')
    assert cluster.most_unclean == 0 and driver.status['pinned'] == 12
    retries = len(failed - {1})
    assert retries * PREVIEW_SECONDS <= cluster.now - began < (retries + 1) * PREVIEW_SECONDS


@pytest.mark.parametrize('verb', ['expand', 'drain', 'crushmap'])
def test_no_pg_is_remapped_because_a_later_preview_fails(verb: str) -> None:
    driver = Driver(waiting())
    cluster, calls = driver.cluster, []  # type: FakeCluster, List[int]
    before, found = placements(cluster), cluster.foreign()
    failing(cluster, calls, lambda number: number > 1)
    driver.give({'expand': Order('expand', weight='1.0'), 'drain': Order('drain', ('osd.3',)),
                 'crushmap': Order('crushmap', crush_map=whole_map(cluster))}[verb])
    driver.run_to('ABORTED')
    assert len(calls) == 1 + PREVIEW_TIMES
    why = [event['why'] for event in driver.loop.published.events if 'ABORTING' in event['what']]
    assert why == ['cannot preview the CRUSH change: no answer from the mons']
    driver.run(3)
    assert cluster.most_unclean == 0 and placements(cluster) == before
    assert cluster.foreign() == found and cluster.entries() == {}
    assert not {command['prefix'] for command in cluster.sent} & {
        'osd crush reweight', 'osd setcrushmap'}


def test_a_resumed_campaign_computes_the_preview_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An abort in the middle of the change leaves pins, so the campaign can be resumed."""
    monkeypatch.setattr('perfguard.rebalance.joining.MAX_BURST_PINS', 8)
    cluster, calls = StrawCluster(), []  # type: FakeCluster, List[int]
    cluster.add_osds(6, 0.0)  # type: ignore[attr-defined]
    cluster.tick(5.0)
    driver = Driver(cluster)
    broken: Set[str] = set()
    failing(cluster, calls, lambda number: bool(broken))
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: change_of(driver).follows_parts)
    broken.add('tools')
    driver.run_to('ABORTED')
    assert driver.status['pinned'] and not cluster.moved
    broken.clear()
    driver.ask('resume')
    driver.run_to('DONE', 900)
    assert {toy.crush_weight for toy in cluster.toys.values()} == {1.0} and cluster.clean()


def test_a_preview_names_the_interval_of_the_mons_and_what_an_epoch_costs() -> None:
    driver = Driver(waiting())
    assert driver.order('expand', dry_run=True)['fast_peering']['seconds'] == 0.02
    driver.options = replace(driver.options, fast_peering='off')
    preview = driver.order('expand', dry_run=True)['fast_peering']
    assert preview['seconds'] is None and 'fast_peering is off' in preview['text']


def test_a_map_that_changes_meanwhile_is_looked_at_again() -> None:
    driver = Driver(waiting())
    cluster, real, calls = driver.cluster, driver.cluster.outlook, []

    def outlook(*args: Any) -> Any:
        calls.append(cluster.epoch)
        found = real(*args)
        if len(calls) == 2:  # the first was for the answer to the command
            cluster.add_upmap('1.1', cluster.pg['1.1'].data[0], 6)
        return found

    setattr(cluster, 'outlook', outlook)
    driver.order('expand', weight='1.0')
    driver.run_to('PINNED')
    # The last one is for the raw sets behind vectors.
    assert len(calls) == 4 and cluster.most_unclean == 0


def test_a_map_that_changes_all_the_time_ends_the_campaign(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """The tools of all other orders would wait for ever."""
    monkeypatch.setattr('perfguard.rebalance.turn_inputs.OUTDATED_SECONDS', 5.0)
    driver = Driver(waiting())
    cluster, real, calls = driver.cluster, driver.cluster.outlook, []

    def outlook(*args: Any) -> Any:
        calls.append(cluster.epoch)
        found = real(*args)
        pgid = sorted(cluster.pg)[len(calls)]
        if len(calls) > 1:
            cluster.add_upmap(pgid, cluster.pg[pgid].data[0], 6)
        return found

    setattr(cluster, 'outlook', outlook)
    driver.order('expand', weight='1.0')
    driver.run_to('ABORTED')
    assert len(calls) == 1 + OUTDATED_TIMES and not cluster.moved
    assert 'have changed during each' in str(driver.loop.published.events)


def test_an_accepted_change_is_made_although_the_map_changes_all_the_time(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator has accepted that its effects are not known."""
    monkeypatch.setattr('perfguard.rebalance.turn_inputs.OUTDATED_SECONDS', 5.0)
    driver = Driver(waiting())
    cluster, real, calls = driver.cluster, driver.cluster.outlook, []

    def outlook(*args: Any) -> Any:
        calls.append(cluster.epoch)
        if len(calls) == 1:
            return NoFuture('no answer from the mons')
        found = real(*args)
        if not cluster.toys[8].crush_weight and len(calls) <= 2 * OUTDATED_TIMES:
            pgid = sorted(cluster.pg)[len(calls)]
            cluster.add_upmap(pgid, cluster.pg[pgid].data[0], 6)
        return found

    setattr(cluster, 'outlook', outlook)
    assert not driver.order('expand', weight='1.0', accept=RISKS)['one_epoch']
    driver.run_until(lambda: cluster.toys[8].crush_weight == 1.0)
    assert len(calls) == 1 + OUTDATED_TIMES and not cluster.moved
    driver.run_to('PINNED')
    assert 'have changed during each' in str(driver.loop.published.events)


def test_accepting_a_risk_computes_nothing_again() -> None:
    driver = Driver(waiting())
    driver.options = replace(driver.options, max_unpinnable_ratio=0.0)
    driver.order('expand', weight='1.0', dry_run=True)
    driver.order('expand', weight='1.0', dry_run=True)
    computed = driver.tools.submitted
    assert computed == 2, 'a second preview is to show what is so then'
    driver.run(20)
    driver.order('expand', weight='1.0', accept=RISKS)
    assert driver.tools.submitted == computed
    driver.run_to('DONE')
    assert driver.cluster.clean()


@pytest.mark.parametrize('change', ['osd', 'upmap', 'option', 'weight', 'time', 'crush', 'pool'])
def test_what_the_effects_depend_on_computes_them_again(change: str) -> None:
    driver = Driver(waiting())
    cluster = driver.cluster
    driver.order('expand', weight='1.0', dry_run=True)
    computed, weight = driver.tools.submitted, '1.0'
    if change == 'osd':
        cluster.take_down(1)
    elif change == 'upmap':
        cluster.add_upmap('1.1', cluster.pg['1.1'].data[0], 6)
    elif change == 'option':
        driver.options = replace(driver.options, target='balanced')
    elif change == 'weight':
        weight = '0.5'
    elif change == 'crush':
        cluster.crush_version_ += 1
    elif change == 'pool':
        cluster.modes[1] = 'off'
    else:
        cluster.tick(COMPUTED_SECONDS + 1.0)
    driver.run(2)
    driver.order('expand', weight=weight, accept=RISKS)
    assert driver.tools.submitted > computed


def test_effects_are_not_kept_for_ever() -> None:
    """They have a row for each PG."""
    driver = Driver(waiting())
    kept: List[Any] = []
    real = driver.tools.submit

    def submit(*args: Any, **kwargs: Any) -> Any:
        job = real(*args, **kwargs)
        kept.append(weakref.ref(job))
        return job

    driver.tools.submit = submit
    driver.order('expand', weight='1.0', dry_run=True)
    assert len(kept) == 1
    driver.cluster.tick(COMPUTED_SECONDS + 1.0)
    driver.run(2)
    gc.collect()
    assert kept[0]() is None


def test_effects_that_could_not_be_computed_are_tried_again() -> None:
    driver = Driver(waiting())
    calls: List[int] = []
    failing(driver.cluster, calls, lambda number: number == 1)
    assert not driver.order('expand', weight='1.0', dry_run=True)['one_epoch']
    assert driver.order('expand', weight='1.0', dry_run=True)['one_epoch']


def test_a_change_that_the_mons_refuse_ends_the_campaign() -> None:
    driver = Driver(waiting())
    found = driver.cluster.foreign()
    driver.cluster.refuse['osd crush reweight'] = 'EPERM'
    driver.order('expand', weight='1.0')
    driver.run_to('ABORTED')
    assert driver.cluster.clean() and driver.cluster.foreign() == found
    assert not driver.cluster.moved and INTERVAL not in driver.cluster.mon_config


@pytest.mark.parametrize('prefix', ['osd crush reweight', 'osd rm-pg-upmap'])
def test_what_mgrs_did_not_send_before_they_died_was_not_refused(prefix: str) -> None:
    """A change of CRUSH, and releases: they were journalled only."""
    driver = Driver(waiting())
    run = driver.cluster.run

    def die(commands: Any) -> List[FakeReply]:
        if any(command['prefix'].startswith(prefix) for command in commands):
            raise Crash
        return run(commands)

    driver.order('expand', weight='1.0')
    setattr(driver.cluster, 'run', die)
    for _ in range(6):
        with pytest.raises(Crash):
            driver.run(100)
        driver.restart()
    delattr(driver.cluster, 'run')
    driver.run_to('DONE', 400)
    assert driver.cluster.moved and driver.status['released'] == 12 and not driver.status['kept']


def test_nothing_is_begun_under_options_that_make_no_sense() -> None:
    driver = Driver(waiting())
    driver.options = replace(driver.options, end_time='0000')
    with pytest.raises(Refused, match='the time window never opens'):
        driver.order('expand', weight='1.0')
    assert driver.phase == 'IDLE' and driver.order('expand', weight='1.0', dry_run=True)


def whole_map(cluster: FakeCluster, **changed: float) -> bytes:
    weights = {str(osd): toy.crush_weight or 1.0 for osd, toy in cluster.toys.items()}
    return json.dumps({**weights, **changed}).encode()


def test_a_whole_crush_map() -> None:
    driver = Driver(waiting())
    cluster, before = driver.cluster, placements(driver.cluster)
    answer = driver.order('crushmap', crush_map=whole_map(cluster))
    assert answer['pgs'] == 12 and answer['weights'] == {}
    driver.run_until(lambda: driver.phase == 'PINNING')
    driver.restart()  # the map is in the store
    driver.run_to('PINNED')
    assert placements(cluster) == before and cluster.most_unclean == 0
    assert [c['prefix'] for c in cluster.sent].count('osd setcrushmap') == 1
    driver.run_to('DONE')
    assert {pgid: list(up) for pgid, up in placements(cluster).items()} == cluster.coming
    assert not [key for key in driver.kv.data if key.startswith('crushmap')]


@pytest.mark.parametrize('stored', [5, 'x', {}])
def test_a_whole_crush_map_that_cannot_be_read_again_ends_the_campaign(stored: Any) -> None:
    """Each turn of the loop has failed on it."""
    driver = Driver(waiting())
    driver.order('crushmap', crush_map=whole_map(driver.cluster))
    driver.run_until(lambda: driver.phase == 'PINNING')
    Store(driver.kv).put('crushmap', stored)
    driver.restart()
    driver.turn()
    assert 'the new CRUSH map of the campaign (' in str(
        driver.cluster.checks['PERFGUARD_INTERRUPTED']['detail'])
    driver.run_to('ABORTED')
    assert 'the new CRUSH map is no longer in the store' in str(driver.loop.published.events)
    assert driver.cluster.most_unclean == 0 and not [
        key for key in driver.kv.data if key.startswith('crushmap')]


def test_a_crush_map_with_the_same_trees_is_waited_for() -> None:
    """What it changes in the tunables alone does not show in trees and rules."""
    driver = Driver(FakeCluster())
    cluster = driver.cluster
    sent: List[str] = []

    def lost(commands: Any) -> Any:
        sent.extend(c['prefix'] for c in commands)
        return run([c for c in commands if c['prefix'] != 'osd setcrushmap'])

    run = cluster.run
    setattr(cluster, 'run', lost)
    driver.order('crushmap', crush_map=whole_map(cluster))
    driver.run_to('ABORTED')
    assert sent.count('osd setcrushmap') == 3 and cluster.clean()


def test_ids_of_drained_osds_that_are_purged_are_free_again() -> None:
    driver = Driver()
    driver.order('drain', 'h3')
    driver.run_to('DONE')
    replaced(driver, turn_between=True)
    assert driver.order('expand', weight='1.0', dry_run=True)['weights'] == {'osd.3': 1.0}


def replaced(driver: Driver, turn_between: bool) -> None:
    """osd.3, which is empty in fact, is purged and made anew."""
    cluster = driver.cluster
    for pg in cluster.pg.values():
        swap = [osd if osd != 3 else next(other for other in range(8) if other not in
                                          (*pg.data, *pg.mon.raw)) for osd in pg.data]
        pg.mon.raw, pg.data, pg.up = list(swap), tuple(swap), tuple(swap)
    toy = cluster.toys[3]
    cluster.purge(3)
    if turn_between:
        driver.turn()
    cluster.toys[3] = toy._replace(crush_weight=0.0)
    cluster.crush_version_ += 1
    cluster.epoch += 1
    driver.turn()


def test_an_id_that_was_purged_while_no_mgr_looked_is_free_by_its_uuid() -> None:
    driver = Driver()
    driver.order('drain', 'h3')
    driver.run_to('DONE')
    replaced(driver, turn_between=False)
    driver.restart()
    driver.turn()
    assert driver.order('expand', weight='1.0', dry_run=True)['weights'] == {'osd.3': 1.0}


@pytest.mark.parametrize('how', ['reweight 0', 'drained by others'])
def test_expand_does_not_fill_drained_disks_again(how: str) -> None:
    driver = Driver(waiting())
    cluster = driver.cluster
    if how != 'drained by others':
        driver.order('drain', 'h3')
        driver.run_to('DONE')
    for pg in cluster.pg.values():
        spare = next(osd for osd in range(8) if osd not in (*pg.data, *pg.mon.raw))
        moved = tuple(spare if osd == 3 else osd for osd in pg.data)
        pg.mon.raw, pg.data, pg.up = list(moved), moved, moved
    cluster.toys[3] = cluster.toys[3]._replace(crush_weight=0.0)
    cluster.crush_version_ += 1
    cluster.epoch += 1
    driver.turn()
    answer = driver.order('expand', weight='1.0', dry_run=True)
    assert set(answer['weights']) == {'osd.8', 'osd.9', 'osd.10'}
    why = 'held PGs before' if how == 'drained by others' else 'was drained'
    assert answer['left_out'] == [{'osd': 3, 'reason': why}]
    named = driver.give(Order('expand', ('3',), weight='1.0', dry_run=True))
    assert set(named['weights']) == {'osd.3'} and named['left_out'] == []


def test_a_turn_that_fails_does_not_keep_the_answer() -> None:
    driver = Driver(waiting())
    setattr(driver.loop._publishing, 'publish', lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        driver.loop._answering.answer = lambda *_: [done]  # type: ignore
        done = PendingOrder(Order('expand'))
        driver.loop.turn()
    assert done.done.is_set()


def test_an_order_that_fails_is_answered() -> None:
    driver = Driver(waiting())
    setattr(driver.cluster, 'osd_space', lambda: driver.cluster.toys[99])
    with pytest.raises(Refused, match='expand failed: KeyError'):
        driver.order('expand')
    driver.loop.close()
    with pytest.raises(Refused, match='shutting down'):
        driver.loop.ask(Order('expand'))


def overtake(cluster: FakeCluster) -> None:
    """Another administrator gives osd.3 another weight."""
    cluster._weigh(3, 2.0)


@pytest.mark.parametrize('when', ['before', 'with the burst', 'after a failover'])
def test_a_crush_map_never_replaces_what_others_changed_meanwhile(when: str) -> None:
    driver = Driver(waiting())
    cluster, run, before = driver.cluster, driver.cluster.run, placements(driver.cluster)
    overtaken: List[bool] = []

    def race(commands: Any) -> Any:
        if not overtaken and any(c['prefix'] == 'osd setcrushmap' for c in commands):
            overtaken.append(True)
            overtake(cluster)
        return run(commands)

    driver.order('crushmap', crush_map=whole_map(cluster))
    if when == 'with the burst':
        setattr(cluster, 'run', race)
    else:
        overtake(cluster)
    if when == 'after a failover':
        driver.restart()
    driver.run_to('ABORTED')
    assert cluster.toys[3].crush_weight == 2.0 and cluster.toys[8].crush_weight == 0.0
    sent = [c['prior_version'] for c in cluster.sent if c['prefix'] == 'osd setcrushmap']
    assert len(sent) == (when == 'with the burst')
    told = [event['why'] for event in driver.loop.published.events if 'ABORTING' in event['what']]
    assert 'osd.3.' in told[0] and 'osd.2' not in told[0]
    assert placements(cluster) == before and not cluster.moved
    assert not [key for key in driver.kv.data if key.startswith('crush')]


@pytest.mark.parametrize('failover', [False, True])
@pytest.mark.parametrize('when', ['before', 'with the burst'])
def test_a_crush_map_replaces_a_new_version_of_the_same_map(when: str, failover: bool) -> None:
    """Each OSD that starts gives the same CRUSH map a new version."""
    driver = Driver(waiting())
    cluster, run = driver.cluster, driver.cluster.run
    restarted: List[bool] = []

    def race(commands: Any) -> Any:
        if not restarted and any(c['prefix'] == 'osd setcrushmap' for c in commands):
            restarted.append(True)
            cluster.restart_osd()
        return run(commands)

    driver.order('crushmap', crush_map=whole_map(cluster))
    if when == 'before':
        cluster.restart_osd()
    else:
        setattr(cluster, 'run', race)
    if failover:
        driver.run(1)
        driver.restart()
    driver.run_to('PINNED')
    assert cluster.toys[8].crush_weight == 1.0 and cluster.clean()
    sent = [c['prior_version'] for c in cluster.sent if c['prefix'] == 'osd setcrushmap']
    assert len(sent) == 1 + (when == 'with the burst')


def test_a_crush_map_does_not_bring_back_the_old_name_of_a_rule() -> None:
    driver = Driver(waiting())
    cluster, crush = driver.cluster, driver.cluster.crush
    driver.order('crushmap', crush_map=whole_map(cluster))

    def renamed(version: int) -> CrushRules:
        dump = {**crush(version).__dict__}
        rules: Any = {number: {**rule, 'rule_name': 'new'}
                      for number, rule in dump['_dumped_rules'].items()}
        return CrushRules(dump['_buckets'], dump['_type_ids'], rules, dump['_classes'],
                          dump['_other_parameters'], dump['tunables'], dump['_hashing'])

    setattr(cluster, 'crush', renamed)
    cluster.restart_osd()
    driver.run_to('ABORTED')
    assert not [c for c in cluster.sent if c['prefix'] == 'osd setcrushmap']
    told = [event['why'] for event in driver.loop.published.events if 'ABORTING' in event['what']]
    assert 'rule new' in told[0]


def test_a_new_version_of_the_same_map_is_not_a_crush_map_with_other_tunables() -> None:
    driver = Driver(waiting())
    seen = driver.cluster.crush(driver.cluster.crush_version_)
    change = MapChange(stage=ChangeStage.SENT, fingerprint=seen.fingerprint(),
                       tunables=seen.tunables + 1, crush_version=driver.cluster.crush_version_,
                       crush_identity=seen.identity)
    machine = Machine(driver.cluster)
    driver.cluster.restart_osd()
    draft = Draft.of(machine.campaign, {}, {}, machine.observe(), machine.options)
    assert not change.landed(draft.observed)
    # The new map is identical to the one that it replaces.
    assert replace(change, crush_identity=0).landed(draft.observed)


def test_a_refused_map_with_other_device_classes_does_not_pass_for_landed() -> None:
    """Its trees and tunables are those of before, and an OSD that starts makes the version new."""
    cluster = FakeCluster()
    run, driver = cluster.run, Driver(cluster)
    other = replace(cluster.crush(cluster.crush_version_), _classes={0: 'ssd'})

    def restart(commands: Any) -> Any:
        if any(c['prefix'] == 'osd setcrushmap' for c in commands):
            cluster.restart_osd()
        return run(commands)

    setattr(cluster, 'crush_rules', lambda given: other)
    setattr(cluster, 'run', restart)
    cluster.refuse['osd setcrushmap'] = 'EINVAL'
    driver.order('crushmap', crush_map=whole_map(cluster))
    driver.run_to('ABORTED')
    assert [c['prefix'] for c in cluster.sent].count('osd setcrushmap') == 3


def test_a_crush_map_of_an_older_version_is_refused() -> None:
    driver = Driver(waiting())
    version = driver.cluster.crush_version_
    given = whole_map(driver.cluster)
    with pytest.raises(Refused, match='has version %d, not %d' % (version, version - 1)):
        driver.order('crushmap', crush_map=given, prior_version=version - 1)
    assert driver.order('crushmap', crush_map=given, prior_version=version)['pgs'] == 12


def test_a_digest_names_what_differs() -> None:
    one = CrushRules.from_dump(DUMP)
    other = json.loads(json.dumps(DUMP))
    moved = other['buckets'][1]['items'].pop()
    other['buckets'][2]['items'].append(moved)
    other['buckets'][3]['items'][0]['weight'] = 7
    other['rules'][0]['steps'][1]['num'] = 2
    two = CrushRules.from_dump(other)
    assert changed_crush_parts(one.digest, one.digest) == 'tunables or weight sets'
    assert changed_crush_parts(one.digest, two.digest) == 'osd.0, bucket h1, rule rule0'
    many = {'osd.%d' % osd: 1 for osd in range(30)}
    assert changed_crush_parts({}, many).endswith('osd.8, osd.9 and 20 more')


def test_a_crush_map_in_the_way_of_which_something_stands() -> None:
    driver = Driver(waiting())
    for given, text in ((b'nonsense', 'not a CRUSH map: crushtool failed: syntax error'),
                        (whole_map(driver.cluster, **{'3': 0.0}), 'gives weight 0 to osd.3')):
        with pytest.raises(Refused, match=text):
            driver.order('crushmap', crush_map=given)
    driver.cluster.no_tools = 'osdmaptool is not installed'
    with pytest.raises(Refused, match='cannot preview the CRUSH map: osdmaptool is not installed'):
        driver.order('crushmap', crush_map=whole_map(driver.cluster))
    driver.run(3)
    assert driver.phase == 'IDLE' and driver.cluster.sent == []


def test_orders_wait_for_a_campaign_and_a_healthy_cluster() -> None:
    driver = Driver(waiting())
    driver.cluster.take_down(0)
    driver.run(3)
    with pytest.raises(Refused, match='OSDs down but in: osd.0'):
        driver.order('expand', weight='1')
    driver.cluster.revive(0)
    driver.run(3)
    driver.cluster.trouble = {'degraded': 1}
    assert driver.order('expand', weight='1', dry_run=True)['pgs'] == 12
    driver.order('expand', weight='1', accept=RISKS)
    with pytest.raises(Refused, match='campaign 1 is'):
        driver.order('drain', 'h0')


def test_drain_remembers_the_weights_for_undrain_also_in_the_next_mgr() -> None:
    driver = Driver()
    weights = driver.order('drain', 'h3')['weights']
    assert weights == {'osd.3': 0.0001}
    driver.run_to('DONE')
    assert driver.cluster.toys[3].crush_weight == 0.0
    driver.restart()
    driver.turn()
    assert driver.order('undrain', 'osd.3')['weights'] == {'osd.3': 1.0}
    driver.run_to('DONE')
    assert driver.cluster.toys[3].crush_weight == 1.0
    with pytest.raises(Refused, match='not drained by perfguard: osd.3'):
        driver.order('undrain', 'osd.3')


@pytest.mark.parametrize('weight', [None, '1.0'])
def test_new_osds_that_have_not_reported_yet_begin_no_campaign(
        monkeypatch: pytest.MonkeyPatch, weight: Optional[str]) -> None:
    driver = Driver(waiting())
    cluster = driver.cluster
    spaces = cluster.osd_space()
    monkeypatch.setattr(cluster, 'osd_space', lambda: {
        osd: Space(space.total_bytes, space.used_bytes, None) for osd, space in spaces.items()})
    with pytest.raises(Refused) as refused:
        driver.order('expand', weight=weight)
    assert refused.value.errno == errno.EAGAIN and 'osd.8' in str(refused.value)
    driver.run(3)
    assert driver.phase == 'IDLE' and cluster.sent == []
    monkeypatch.undo()
    assert len(driver.order('expand', weight=weight)['weights']) == 3


def test_osds_of_weight_0_that_are_all_left_out_begin_no_campaign() -> None:
    driver = Driver()
    driver.order('drain', 'h3')
    driver.run_to('DONE')
    cluster = driver.cluster
    cluster.toys[3] = cluster.toys[3]._replace(crush_weight=0.0)
    cluster.crush_version_ += 1
    cluster.epoch += 1
    driver.turn()
    with pytest.raises(Refused) as refused:
        driver.order('expand')
    assert refused.value.errno == errno.EINVAL and 'osd.3 was drained' in str(refused.value)
    assert driver.phase != 'PREPARED'


@pytest.mark.parametrize('weight', [None, '1'])
def test_an_expansion_without_new_osds_changes_nothing(weight: Optional[str]) -> None:
    driver = Driver()
    for dry_run in (True, False):
        with pytest.raises(Refused, match='"expand --await" takes those') as refused:
            driver.order('expand', weight=weight, dry_run=dry_run)
        assert refused.value.errno == errno.ENOENT
    driver.run(5)
    assert driver.status['id'] is None and 'norebalance' not in driver.cluster.flags


def test_no_command_waits_for_a_loop_that_has_ended() -> None:
    driver = Driver()
    waits = driver.loop.requests.submit(Order('expand'))
    driver.loop.close()
    assert waits.done.is_set() and 'shutting down' in str(waits.refused)


def test_fingerprints_differ_by_weights_and_rules() -> None:
    cluster = waiting()
    one = cluster.crush(0)
    assert one.fingerprint() == cluster.crush(0).fingerprint()
    assert one.fingerprint() != cluster.crush_rules(whole_map(cluster)).fingerprint()


@pytest.mark.parametrize('error', [Crash(), RuntimeError('the mgr API failed')])
def test_a_fault_at_any_point_of_the_join(error: BaseException) -> None:
    total, wrong = play(None, error), []
    for fault_at in instants(total, error):
        try:
            play(fault_at, error)
        except AssertionError as assertion:
            wrong.append((fault_at, repr(assertion)[:300]))
    assert total > 40 and wrong == []


def play(fault_at: Optional[int], error: BaseException) -> int:
    """An expansion with one fault in it; returns how many writes and commands it takes."""
    cluster = waiting(pgs=4)
    driver, found = Driver(cluster), cluster.foreign()
    cluster.fault.count, cluster.fault.error = 0, error
    cluster.fault.at = fault_at
    asked = False
    for _ in range(300):
        try:
            if not asked:
                order = driver.loop.requests.submit(Order('expand', weight='1.0'))
                asked = True
            driver.turn()
            # An order that fails is answered, and the operator gives it again.
            asked = order.refused is None or bool(driver.loop.rebalance.campaign.id)
        except (Crash, RuntimeError):
            if isinstance(error, Crash):
                driver.restart()
            asked = bool(driver.loop.rebalance.campaign.id)
            cluster.tick()
        if asked and driver.phase in ('DONE', 'ABORTED') or driver.history:
            break
    count, cluster.fault.at = cluster.fault.count, None
    driver.run(3)
    assert [row['phase'] for row in driver.history] == ['DONE']
    assert cluster.clean() and cluster.foreign() == found and cluster.entries() == {}
    assert INTERVAL not in cluster.mon_config
    assert {pgid: list(up) for pgid, up in placements(cluster).items()} == cluster.coming
    moved = [one.pgid for one in cluster.moved]
    assert len(moved) == len(set(moved)), 'a PG has moved twice'
    return count


@pytest.mark.parametrize('verb, prefix', [
    ('expand', 'osd crush reweight'), ('crushmap', 'osd setcrushmap')])
def test_a_refused_change_does_not_take_the_upmap_of_a_pg_along(verb: str, prefix: str) -> None:
    """The mons carry out the pins that are sent with it."""
    cluster = waiting()
    pgid, leaving, spare = replaceable(cluster)
    cluster.add_upmap(pgid, leaving, spare)
    mine, before = cluster.entries(), placements(cluster)
    driver = Driver(cluster)
    cluster.most_unclean, cluster.refuse[prefix] = 0, 'EPERM'
    given: Dict[str, Any] = ({'weight': '1.0'} if verb == 'expand'
                             else {'crush_map': whole_map(cluster)})
    driver.order(verb, **given)
    driver.run_to('ABORTED')
    driver.run(3)
    assert cluster.most_unclean == 0 and placements(cluster) == before
    assert cluster.entries() == mine and not driver.status['pinned']


def replaceable(cluster: FakeCluster) -> Tuple[str, int, int]:
    """A PG of which the change replaces one OSD, that OSD, and one that may replace it before."""
    pgid = next(pgid for pgid in sorted(cluster.pg) if pgid.startswith('2.')
                and sum(a != b for a, b in zip(cluster.base[pgid], cluster.coming[pgid])) == 1)
    leaving = (set(cluster.base[pgid]) - set(cluster.coming[pgid])).pop()
    return pgid, leaving, next(osd for osd in range(8)
                               if osd not in cluster.base[pgid] + cluster.coming[pgid])


# ---- a burst that the mons commit long after it was sent

class Late:
    """Keeps the first burst back until `commit`."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._run = cluster.run
        self._burst: Optional[List[Any]] = None
        setattr(cluster, 'run', self.run)

    def run(self, commands: Any) -> List[FakeReply]:
        if self._burst is None and {command['prefix'] for command in commands} & {
                'osd crush reweight', 'osd setcrushmap'}:
            self._burst = list(commands)
            return [FakeReply(None, 'no answer')] * len(commands)
        return self._run(commands)

    def commit(self) -> None:
        assert self._burst
        self._run(self._burst)


def late(verb: str) -> Tuple[Driver, Late]:
    """The burst is sent and not read back in time: it is to be sent again."""
    driver = Driver(waiting())
    burst = Late(driver.cluster)
    if verb == 'expand':
        driver.order('expand', weight='1.0')
    else:
        driver.order('crushmap', crush_map=whole_map(driver.cluster))
    driver.run_until(lambda: change_of(driver).stage is ChangeStage.SENT)
    driver.run_until(lambda: change_of(driver).stage is ChangeStage.WANTED)
    return driver, burst


def change_of(driver: Driver) -> AnyChange:
    campaign = driver.loop.published.rebalanced.campaign
    assert campaign.change is not None
    return campaign.change


@pytest.mark.parametrize('restart', [False, True])
@pytest.mark.parametrize('verb', ['expand', 'crushmap'])
def test_a_burst_that_lands_late_is_the_campaigns(verb: str, restart: bool) -> None:
    driver, burst = late(verb)
    burst.commit()
    if restart:
        driver.restart()
    driver.run_to('DONE', 400)
    assert driver.cluster.moved and driver.status['released'] == 12
    assert driver.cluster.entries() == {} and driver.cluster.clean()


@pytest.mark.parametrize('end', ['DONE', 'ABORTED'])
def test_a_burst_is_not_given_up_before_the_mons_have_answered_it(end: str) -> None:
    """They answer nothing without a quorum, and carry out later what they were sent."""
    driver = Driver(waiting())
    burst = Late(driver.cluster)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: change_of(driver).stage is ChangeStage.SENT)
    driver.cluster.mons_silent = True
    driver.run(20)
    if end == 'ABORTED':
        driver.ask('abort')
    driver.run(60)
    assert change_of(driver).pending and len(driver.loop.rebalance.pins) == 12
    driver.cluster.mons_silent = False
    driver.run(2)
    burst.commit()
    driver.run_to(end, 400)
    released = driver.status['released']
    assert (released, len(driver.cluster.entries())) == ((12, 0) if end == 'DONE' else (0, 12))
    assert driver.status['pinned'] == len(driver.loop.rebalance.pins) == 12 - released


@pytest.mark.parametrize('end', ['DONE', 'ABORTED'])
def test_a_burst_is_not_given_up_while_the_osdmap_of_the_mgr_is_old(end: str) -> None:
    cluster = waiting()
    driver, run = Driver(cluster), cluster.run

    def run_and_lag(commands: Any) -> List[FakeReply]:
        if 'osd crush reweight' in {command['prefix'] for command in commands}:
            view, crush = cluster.map_view(), cluster.crush(0)
            setattr(cluster, 'map_view', lambda: view)
            setattr(cluster, 'crush', lambda version: crush)
        return run(commands)

    setattr(cluster, 'run', run_and_lag)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: change_of(driver).stage is ChangeStage.SENT)
    if end == 'ABORTED':
        driver.ask('abort')
    driver.run(60)
    assert change_of(driver).pending and change_of(driver).times == 1
    for name in ('run', 'map_view', 'crush'):
        delattr(cluster, name)
    driver.run_to(end, 400)
    released = 12 if end == 'DONE' else 0
    assert driver.status['released'] == released
    assert driver.status['pinned'] == len(driver.loop.rebalance.pins) == 12 - released


def test_an_mgr_that_becomes_active_looks_for_the_burst_of_the_one_before_it() -> None:
    driver = Driver(waiting())
    burst = Late(driver.cluster)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: change_of(driver).stage is ChangeStage.SENT)
    driver.ask('abort')
    driver.turn()
    driver.cluster.now += 1000.0
    driver.restart()
    driver.run(2)
    burst.commit()
    driver.run_to('ABORTED')
    assert driver.status['pinned'] == len(driver.cluster.entries()) == 12


def test_the_burst_waits_for_the_last_plan_of_the_balancer() -> None:
    """Switched off, the balancer still sends the upmaps that it is computing."""
    driver = Driver(waiting())
    driver.cluster.balancer_finishing = True
    driver.order('expand', weight='1.0')
    driver.run(20)
    assert change_of(driver).stage is ChangeStage.WANTED and not driver.cluster.entries()
    pgid = next(iter(driver.cluster.pg))
    driver.cluster.set_upmap(pgid, [(driver.cluster.pg[pgid].up[0], 5)])
    driver.cluster.balancer_finishing = False
    driver.run_until(lambda: change_of(driver).stage is ChangeStage.SENT)
    assert driver.cluster.config['mgr/balancer/active'] == 'false'
    driver.run_to('DONE')


def test_a_burst_that_lands_late_in_an_abort_leaves_pins_that_are_held() -> None:
    driver, burst = late('expand')
    driver.ask('abort')
    driver.turn()
    burst.commit()
    driver.run_to('ABORTED')
    driver.run(20)
    assert driver.status['pinned'] == len(driver.cluster.entries()) == 12
    assert not driver.cluster.moved and driver.cluster.config['mgr/balancer/active'] == 'false'


@pytest.mark.parametrize('flag, same', [('full_quota', True), ('hashpspool', False)])
def test_a_pool_flag_that_places_pgs_makes_another_mapping(flag: str, same: bool) -> None:
    machine = Machine(FakeCluster())
    before = machine.observe()
    machine.cluster.epoch += 1
    machine.cluster.ec_flags = frozenset({flag})
    assert same_placement(before, machine.observe()) == same


def test_the_pins_of_a_change_are_planned_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 80,000 upmaps a plan takes a second of the interpreter's lock."""
    driver = Driver(waiting())
    driver.tools.late = True
    planned: List[str] = []

    def plan(*args: Any, **kwargs: Any) -> Any:
        planned.append(where)
        return plan_join(*args, **kwargs)

    for module in ('join_plan', 'joining'):
        monkeypatch.setattr('perfguard.rebalance.%s.plan_join' % module, plan)
    driver.loop.requests.submit(Order('expand', weight='1.0'))
    for _ in range(60):
        where = 'tools'
        driver.tools.work()
        where = 'loop'
        driver.turn()
    assert driver.cluster.crush_version_ > 2 and set(planned) == {'tools'}


def test_a_mapping_holds_while_others_change_what_places_no_pg() -> None:
    """A tenant's pool gets full by quota, or an OSD nearly full, while the tools run."""
    driver = Driver(waiting())
    cluster = driver.cluster
    driver.tools.late = True
    waits = driver.loop.requests.submit(Order('expand', weight='1.0'))
    driver.turn()
    driver.tools.work()
    driver.turn()
    assert waits.answer is not None
    driver.run_until(lambda: bool(driver.tools.jobs))
    for number in range(40):
        driver.tools.work()
        cluster.fullness = {} if number % 2 else {3: 'nearfull'}
        cluster.ec_flags = frozenset(() if number % 2 else {'full_quota'})
        cluster.epoch += 1
        driver.turn()
        if cluster.entries():
            break
    assert cluster.entries() and change_of(driver).stage is not ChangeStage.WANTED


class Restless(FakeCluster):
    """What the mgr sees: in every second OSDMap a PG is remapped, and a PG always has another
    upmap."""
    remapped_now: Dict[str, OsdSet] = {}
    upmaps_change = False

    def _view(self) -> FakeView:
        view = super()._view()
        osdmap, placements = view.osdmap, view.placements
        if self.upmaps_change:
            osdmap = replace(osdmap, upmap_items={'2.b': ((0, 1000 + self.epoch),)})
        if self.epoch % 2 == 0:
            osdmap = replace(osdmap, pg_temp=self.remapped_now)
            placements = {**placements, **{pgid: Placement(placements[pgid].up, acting)
                                           for pgid, acting in self.remapped_now.items()}}
        return replace(view, osdmap=osdmap, placements=placements)


def restless() -> Tuple[Driver, Restless]:
    """An expansion is ordered; its previews take from one turn to the next."""
    cluster = Restless()
    cluster.add_waiting()
    cluster.tick()
    driver = Driver(cluster)
    driver.tools.late = True
    waits = driver.loop.requests.submit(Order('expand', weight='1.0'))
    driver.turn()
    driver.tools.work()
    driver.turn()
    assert waits.answer is not None
    return driver, cluster


def work(driver: Driver, turns: int) -> bool:
    """Whether the change was sent within so many turns, each with a new OSDMap."""
    for _ in range(turns):
        driver.cluster.epoch += 1
        driver.turn()
        driver.tools.work()
        if change_of(driver).stage is not ChangeStage.WANTED:
            return True
    return False


@pytest.mark.parametrize('pgid, acting', [('2.b', (3, 4)), ('2.0', (1, 2, 4)), ('1.2', (9, 0, 7))])
def test_a_change_is_sent_while_pgs_recover(pgid: str, acting: OsdSet) -> None:
    """Each change of pg_temp takes a PG that the change concerns, or another one, elsewhere."""
    driver, cluster = restless()
    cluster.remapped_now = {pgid: acting}
    assert work(driver, 20) and driver.tools.submitted < 4


def test_the_mons_do_not_gather_while_no_preview_fits() -> None:
    driver, cluster = restless()
    cluster.upmaps_change = True
    assert not work(driver, 100)
    assert not [command for command in cluster.sent if command.get('name') == INTERVAL]
    cluster.upmaps_change = False
    assert work(driver, 20) and cluster.mon_config[INTERVAL] == '3'
    driver.tools.late = False
    driver.run_to('DONE')
    assert INTERVAL not in cluster.mon_config


def test_the_mons_gather_no_longer_once_the_preview_does_not_fit() -> None:
    driver, cluster = restless()
    driver.run_until(lambda: not driver.tools.work() and INTERVAL in cluster.mon_config)
    cluster.upmaps_change = True
    assert not work(driver, 30) and INTERVAL not in cluster.mon_config
    driver.restart()
    driver.tools.late = True
    assert not work(driver, 30) and INTERVAL not in cluster.mon_config
    cluster.upmaps_change = False
    assert work(driver, 20)


def straw_expansion(**kwargs: Any) -> Driver:
    cluster = StrawCluster()
    cluster.add_osds(6, 0.0)
    cluster.tick(5.0)
    driver = Driver(cluster)
    driver.order('expand', weight='1.0', **kwargs)
    return driver


@pytest.mark.parametrize('failover', [False, True])
def test_the_mons_gather_no_longer_while_the_balancer_of_others_is_on(failover: bool) -> None:
    """Clients would wait for each proposal of the mons until the balancer is off again."""
    driver = straw_expansion()
    cluster = driver.cluster
    driver.run_until(lambda: change_of(driver).gathers)
    cluster.config[BALANCER] = 'true'
    if failover:
        driver.restart()
    driver.run(15)
    assert INTERVAL not in cluster.mon_config and change_of(driver).stage is ChangeStage.WANTED
    cluster.config[BALANCER] = 'false'
    driver.run_to('PINNED')


def lose(driver: Driver, osd: int) -> None:
    """The OSD is down and out, and its PGs recover slowly to others."""
    driver.cluster.backfill_seconds = 1e6
    driver.cluster.take_down(osd)
    driver.cluster.mark_out(osd)
    driver.cluster.tick(3.0)  # they peer


def restore(driver: Driver, osd: int) -> None:
    driver.cluster.backfill_seconds = 4.0
    driver.cluster.revive(osd)


@pytest.mark.parametrize('failover', [False, True])
def test_a_change_waits_while_pgs_that_it_would_remap_have_lost_an_osd(failover: bool) -> None:
    """They cannot be pinned, and would all be copied to the new OSDs at once, past all caps."""
    driver = straw_expansion()
    cluster = driver.cluster
    before = placements(cluster)
    driver.run_until(lambda: driver.phase == 'PINNING')
    lose(driver, 0)
    driver.run(40)
    if failover:
        driver.restart()
        driver.run(10)
    assert codes(driver.status) == ['DEGRADED'] and INTERVAL not in cluster.mon_config
    assert not cluster.entries() and cluster.toys[8].crush_weight == 0.0
    restore(driver, 0)
    driver.run_to('PINNED')
    assert placements(cluster) == before and not cluster.moved
    driver.run_to('DONE', 900)
    assert cluster.clean()


@pytest.mark.parametrize('failover', [False, True])
def test_a_weight_that_others_set_while_the_change_waits_stays(failover: bool) -> None:
    driver = straw_expansion()
    cluster: Any = driver.cluster
    driver.run_until(lambda: change_of(driver).gathers)
    cluster.config[BALANCER] = 'true'
    driver.run(5)
    if failover:
        driver.restart()
    cluster.weigh(8, 0.5)
    driver.run(3)
    cluster.config[BALANCER] = 'false'
    driver.run_to('DONE', 900)
    assert [cluster.toys[osd].crush_weight for osd in (8, 9, 13)] == [0.5, 1.0, 1.0]
    assert cluster.clean()
    assert [event['why'] for event in driver.loop.published.events
            if event['what'] == 'the CRUSH weight of osd.8 stays as it is'] == [
                'it was changed outside perfguard']


@pytest.mark.parametrize('osds', [{8}, {8, 9, 10, 11, 12, 13}])
def test_an_osd_that_the_orchestrator_removes_while_the_change_waits_stays_empty(
        osds: Set[int]) -> None:
    """"ceph orch osd rm" gives it weight 0, which it has already."""
    driver = straw_expansion()
    cluster: Any = driver.cluster
    new = {osd for osd, toy in cluster.toys.items() if toy.crush_weight == 0.0}
    driver.run_until(lambda: change_of(driver).gathers)
    cluster.config[BALANCER] = 'true'
    driver.run(5)
    cluster.orchestrator = Orchestrating(present=True, removing=frozenset(osds & new))
    driver.run(3)
    cluster.config[BALANCER] = 'false'
    driver.run_to('DONE', 900)
    assert {osd for osd in new if cluster.toys[osd].crush_weight == 0.0} == osds & new
    assert cluster.clean()
    assert [event['why'] for event in driver.loop.published.events
            if event['what'] == 'the CRUSH weight of %s stays as it is' % osds_text(
                osds & new)] == ['the orchestrator is removing the OSD']


@pytest.mark.parametrize('failover', [False, True])
@pytest.mark.parametrize('created', [False, True])
def test_an_osd_on_another_device_is_not_drained(created: bool, failover: bool) -> None:
    """It has the weight of the one whose drain was ordered, and was created while that waited."""
    driver = Driver(StrawCluster())
    cluster: Any = driver.cluster
    driver.run(3)
    driver.order('drain', 'osd.3', 'osd.4')
    driver.run_until(lambda: change_of(driver).gathers)
    cluster.config[BALANCER] = 'true'
    driver.run(5)
    cluster.destroy(3)
    driver.run(3)
    if created:
        cluster.create_again(3)
    if failover:
        driver.restart()
    driver.run(20)
    cluster.config[BALANCER] = 'false'
    driver.run_to('DONE', 900)
    assert [cluster.toys[osd].crush_weight for osd in (3, 4)] == [1.0 if created else 0.0, 0.0]
    assert [event['why'] for event in driver.loop.published.events
            if event['what'] == 'the CRUSH weight of osd.3 stays as it is'] == [
                'the OSD is on another device than the one whose drain was ordered'] * created


def test_a_rollback_restores_the_weight_of_an_osd_on_another_device() -> None:
    """The weight of the device whose drain was recorded."""
    driver = Driver(StrawCluster())
    cluster: Any = driver.cluster
    driver.run(3)
    driver.order('drain', 'osd.3', 'osd.4')
    driver.run_to('DONE', 900)
    cluster.destroy(3)
    driver.run(3)
    cluster.create_again(3)
    driver.run(3)
    driver.order('undrain', 'osd.3', 'osd.4')
    driver.run_to('PINNED')
    before = len(cluster.moved)
    driver.order('rollback')
    driver.run_to('DONE', 900)
    assert [cluster.toys[osd].crush_weight for osd in (3, 4)] == [0.0, 0.0]
    assert len(cluster.moved) == before


def test_a_change_pins_pgs_whose_osds_are_down_and_in() -> None:
    """Their pins lead to OSDs that are about to return, and hold all their other copies as well."""
    driver = straw_expansion()
    cluster = driver.cluster
    before = placements(cluster)
    driver.run_until(lambda: driver.phase == 'PINNING')
    cluster.take_down(0)
    driver.run_until(lambda: change_of(driver).stage is ChangeStage.LANDED)
    driver.run(20)
    assert not cluster.remapped() and not cluster.moved and not driver.status['unpinnable']
    assert any(0 in [target for _, target in entry.items] for entry in cluster.entries().values())
    cluster.revive(0)
    driver.run(5)
    assert placements(cluster) == before or driver.status['released']
    driver.run_to('DONE', 900)
    assert cluster.clean()


@pytest.mark.parametrize('how', ['acknowledged', 'muted', 'recovered', 'aborted'])
def test_what_ends_the_wait_for_an_osd(how: str) -> None:
    driver = straw_expansion()
    cluster = driver.cluster
    driver.run_until(lambda: driver.phase == 'PINNING')
    lose(driver, 0)
    driver.run(20)
    assert change_of(driver).stage is ChangeStage.WANTED
    if how == 'acknowledged':
        driver.ask('accept', code='DEGRADED')
    elif how == 'muted':
        cluster.muted.add('PG_DEGRADED')
    elif how == 'recovered':
        cluster.backfill_seconds = 4.0
    else:
        driver.ask('abort')
        driver.run_to('ABORTED')
        assert not cluster.entries() and cluster.toys[8].crush_weight == 0.0
        return
    driver.run_until(lambda: change_of(driver).stage is ChangeStage.LANDED)
    assert not cluster.toys[0].up and cluster.toys[8].crush_weight == 1.0


def test_an_order_that_is_forced_on_undersized_pgs_does_not_wait_for_them() -> None:
    driver = Driver(StrawCluster())
    cluster = driver.cluster
    cluster.add_osds(6, 0.0)  # type: ignore[attr-defined]
    lose(driver, 0)
    driver.run(5)
    answer = driver.order('expand', weight='1.0', accept=RISKS)
    assert answer['unpinnable_pgs'] > 1
    lose(driver, 5)
    driver.run(20)
    assert codes(driver.status) == ['DEGRADED']
    cluster.revive(5)
    driver.run_until(lambda: change_of(driver).stage is ChangeStage.LANDED)
    assert not cluster.toys[0].up


@pytest.mark.parametrize('listed', [0, 1, 99])
def test_undersized_pgs_that_were_forced_and_have_recovered_leave_no_room_for_others(
        monkeypatch: pytest.MonkeyPatch, listed: int) -> None:
    """More of them than are listed count by their number, as in earlier documents."""
    monkeypatch.setattr(campaigns, 'LISTED_UNDERSIZED', listed)
    driver = Driver(StrawCluster())
    cluster = driver.cluster
    cluster.add_osds(6, 0.0)  # type: ignore[attr-defined]
    lose(driver, 0)
    driver.run(5)
    driver.order('expand', weight='1.0', accept=RISKS)
    campaign = driver.loop.rebalance.campaign
    forced = len(campaign.pinning.undersized_pgs) + campaign.pinning.undersized
    assert forced > 2 and len(campaign.pinning.undersized_pgs) == min(listed, forced)
    driver.tools.late = True
    driver.run(3)
    driver.restart()
    restore(driver, 0)
    driver.run(30)
    assert cluster.clean()
    lose(driver, 5)
    driver.tools.late = False
    driver.tools.work()
    driver.run(40)
    campaign = driver.loop.rebalance.campaign
    assert campaign.pinning.undersized_pgs == ()
    if listed:
        assert codes(driver.status) == ['DEGRADED']
        restore(driver, 5)
    driver.run_until(lambda: change_of(driver).stage is ChangeStage.LANDED)


def seen_of(view: View) -> Observation:
    basis = draft_of(NO_CAMPAIGN).observed
    return replace(basis, settings=replace(basis.settings, osdmap=view.osdmap),
                   placement=view.placement)


@pytest.mark.parametrize('drained', [(), (3,)])
def test_a_mapping_takes_up_where_pgs_are_now(drained: OsdSet) -> None:
    """It is what the tools would find in the OSDMap of now."""
    cluster = waiting()
    change = WeightChange(weights={8: 1.0, 9: 1.0, 10: 1.0}, drained=drained)
    earlier = seen_of(cluster.map_view())
    plain = cluster.outlook(earlier.osdmap, change.weights, None)
    one = with_pins(plain, earlier, change)
    for pgid in ('1.0', '1.1', '1.2', '2.0'):
        pg = cluster.pg[pgid]
        pg.temp = (*pg.up[1:], pg.up[0]) if pgid != '1.2' else pg.up[:2]
    cluster.epoch += 1
    now = seen_of(cluster.map_view())
    assert isinstance(one, PlannedFuture)
    found = renewed(one, earlier, now, change)
    assert found == with_pins(cluster.outlook(now.osdmap, change.weights, None), now,
                              change) != one
    assert renewed(found, now, now, change) is found
    assert isinstance(plain, Future)
    assert renewed(plain, earlier, now, change).pgs == found.pgs


def test_nothing_is_pinned_while_others_have_switched_the_balancer_on() -> None:
    driver = Driver(waiting())
    cluster = driver.cluster
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: cluster.config[BALANCER] == 'false')
    driver.turn()
    assert not cluster.entries(), 'the balancer rests first'
    cluster.config[BALANCER] = 'true'
    driver.run(30)
    assert driver.phase == 'PREPARED' and 'BALANCER_ON' in codes(driver.status)
    assert not cluster.entries() and cluster.config[BALANCER] == 'true'
    cluster.config[BALANCER] = 'false'
    driver.run_to('DONE')
    assert cluster.config[BALANCER] == 'true', 'as before the campaign'


def test_the_balancer_may_begin_a_plan_a_moment_after_it_was_switched_off() -> None:
    """It had decided to, and says only then that it is busy."""
    driver = Driver(waiting())
    cluster = driver.cluster
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: cluster.config[BALANCER] == 'false')
    driver.turn(0.5)
    driver.turn(0.5)
    assert not cluster.entries()
    cluster.balancer_finishing = True
    driver.run(20)
    assert not cluster.entries()
    cluster.balancer_finishing = False
    driver.run_to('DONE')


def test_the_balancer_of_an_earlier_campaign_is_not_known_to_rest() -> None:
    driver = Driver(waiting())
    cluster = driver.cluster
    cluster.config[BALANCER] = 'false'
    driver.ask('prepare')
    driver.run_to('PREPARED')
    driver.run(5)
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.run(5)
    driver.order('expand', weight='1.0')
    driver.turn(0.5)
    driver.turn(0.5)
    assert not cluster.entries()
    driver.run_to('DONE')
