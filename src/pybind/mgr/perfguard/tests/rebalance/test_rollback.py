# SPDX-License-Identifier: LGPL-2.1-or-later
"""Rollback: CRUSH as it was before, in one epoch with the removal of pins it makes unnecessary."""
import errno
from dataclasses import replace
from typing import Any, Dict, List, Mapping

import pytest

from perfguard.cluster.ports import Future, FuturePg, NoFuture
from perfguard.cluster.types import UpmapEntry
from perfguard.errors import Refused
from perfguard.rebalance.campaign import Rollback
from perfguard.rebalance.change import ChangeStage
from perfguard.rebalance.crush_orders import CRUSH_BEFORE
from perfguard.rebalance.join_plan import entries_needed, plan_join
from perfguard.rebalance.orders import Order
from perfguard.rebalance.risks import RISKS
from perfguard.rebalance.weights import WeightChange
from perfguard.request_queue import PendingOrder
from perfguard.store import Store
from perfguard.upmap.pins import Unpinnable, plan_partial_pin

from ..fakes.cluster import BALANCER, Crash, FakeCluster
from ..fakes.driver import OPTIONS, Driver
from ..fakes.instants import instants
from ..fakes.mon_model import Refused as MonRefused, ToyOsd
from .test_joining import placements, replaceable, waiting, whole_map
from .test_unpinned import unlawful


def expanding(**kwargs: Any) -> Driver:
    driver = Driver(waiting(**kwargs))
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status['released'] > 0)
    return driver


def refusal(driver: Driver) -> Refused:
    with pytest.raises(Refused) as refused:
        driver.order('rollback')
    return refused.value


def change_tunables(driver: Driver) -> None:
    driver.cluster.tunables = {'choose_total_tries': 100}
    driver.cluster._crush_changed()


def burst(driver: Driver, begin: int) -> List[Dict[str, Any]]:
    """The commands that change CRUSH or pins, from a place on."""
    return [command for command in driver.cluster.sent[begin:]
            if 'upmap' in command['prefix'] or 'crush' in command['prefix']]


def test_before_a_release_nothing_moves_and_no_pin_is_left() -> None:
    driver = Driver(waiting())
    cluster = driver.cluster
    before, found = placements(cluster), cluster.foreign()
    driver.order('expand', weight='1.0')
    driver.run_to('PINNED')
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.run(3)
    begin, cluster.most_unclean = len(cluster.sent), 0
    answer = driver.order('rollback')
    assert answer['pins_removed'] == 12 and answer['pgs'] == 0 and answer['one_epoch']
    assert answer['weights'] == {'osd.8': 0.0, 'osd.9': 0.0, 'osd.10': 0.0}
    driver.run_to('DONE')
    assert cluster.entries() == {} and cluster.foreign() == found and cluster.checks == {}
    assert placements(cluster) == before and cluster.moved == [] and cluster.most_unclean == 0
    assert [cluster.toys[osd].crush_weight for osd in cluster.new] == [0.0] * 3
    sent = [command['prefix'] for command in burst(driver, begin)]
    # The mon drops the pins that have become pointless, and nothing is to be removed before that.
    assert sent == ['osd crush reweight'] * 3
    assert driver.history[-1]['rolled_back']


@pytest.mark.parametrize('whole, prefix', [
    (True, 'osd setcrushmap'), (False, 'osd crush reweight')])
def test_a_refused_change_of_crush_keeps_every_pin(whole: bool, prefix: str) -> None:
    driver = Driver() if whole else Driver(waiting())
    cluster = driver.cluster
    if whole:
        driver.to_pinned()
    else:
        driver.order('expand', weight='1.0')
        driver.run_to('PINNED')
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.run(3)
    before, pins = cluster.entries(), dict(driver.loop.rebalance.pins)
    cluster.most_unclean, cluster.refuse[prefix] = 0, 'EINVAL'
    computed: List[bool] = []
    outlook = cluster.outlook

    def noting(osdmap: Any, weights: Any, crush_map: Any, *more: Any) -> Any:
        computed.append(crush_map is not None)
        return outlook(osdmap, weights, crush_map, *more)

    setattr(cluster, 'outlook', noting)
    assert driver.order('rollback')['pins_removed'] == len(pins) == len(before)
    assert computed == [whole] * 2
    driver.run_until(lambda: driver.phase == 'PINNING')
    driver.run_to('ABORTED')
    driver.run(3)
    assert cluster.most_unclean == 0 and cluster.moved == []
    assert cluster.entries() == before and driver.loop.rebalance.pins == pins


@pytest.mark.parametrize('refused', [False, True])
def test_an_upmap_that_the_pin_has_replaced_is_restored_with_crush_or_not_at_all(
        refused: bool) -> None:
    """Its PG needs another entry in the epoch in which CRUSH changes."""
    driver, pgid, mine = replaced_upmap()
    cluster = driver.cluster
    before, pins, places = cluster.entries(), dict(driver.loop.rebalance.pins), placements(cluster)
    cluster.most_unclean = 0
    if refused:
        cluster.refuse['osd crush reweight'] = 'EINVAL'
    driver.order('rollback')
    driver.run_until(lambda: driver.phase == 'PINNING')
    driver.run_to('ABORTED' if refused else 'DONE')
    driver.run(3)
    assert cluster.most_unclean == 0 and placements(cluster) == places
    assert cluster.entries() == (before if refused else mine)
    assert dict(driver.loop.rebalance.pins) == (pins if refused else {})


def replaced_upmap() -> Any:
    """A pinned driver, the PG, and the operator's upmaps, of which the pin keeps nothing."""
    cluster = waiting()
    pgid, leaving, spare = replaceable(cluster)
    cluster.add_upmap(pgid, leaving, spare)
    mine, driver = cluster.entries(), Driver(cluster)
    driver.order('expand', weight='1.0')
    driver.run_to('PINNED')
    assert not set(cluster.entries()[pgid].items) & set(mine[pgid].items)
    return driver, pgid, mine


def test_what_has_moved_is_pinned_and_goes_back_under_the_caps() -> None:
    driver = expanding()
    cluster = driver.cluster
    answer = driver.order('rollback')
    assert answer['pgs'] > 0 and set(answer['weights'].values()) <= {0.0, 0.0001}
    cluster.most_unclean, moving = 0, []
    while driver.phase != 'DONE':
        driver.turn()
        moving.append(len(cluster.remapped()))
        assert len(moving) < 300
    assert max(moving) <= driver.options.max_pgs_in_flight
    assert cluster.entries() == {} and cluster.clean() and new_weights(driver) == [0.0] * 3
    assert {pgid: list(up) for pgid, up in placements(cluster).items()} == cluster.base
    assert cluster.config == {BALANCER: 'true'}


@pytest.mark.parametrize('valid', [False, True])
def test_an_upmap_that_others_set_on_a_pg_in_flight_stays_if_it_fits_the_earlier_crush(
        valid: bool) -> None:
    """It leads away from an OSD that the PG has before and after, or from its new OSD."""
    driver = Driver(waiting())
    cluster, rebalance = driver.cluster, driver.loop.rebalance
    driver.order('expand', weight='1.0')
    flying: List[str] = []
    while not flying:
        driver.turn()
        flying = sorted(set(cluster.remapped()) & set(rebalance.campaign.flights.in_flight))
    pg = cluster.pg[flying[0]]
    data, raw = pg.data, pg.mon.raw
    bad = next(osd for osd in raw if (osd in data) is valid)
    other = next(osd for osd in range(8) if osd not in raw and osd not in data)
    cluster.flags.add('norebalance')
    cluster.set_upmap(flying[0], [(bad, other)])
    driver.turn()
    driver.ask('abort')
    driver.run_to('ABORTED')
    assert pg.up == pg.data == data
    cluster.flags.discard('norebalance')
    driver.run(3)
    driver.order('rollback')
    driver.run_to('DONE')
    assert cluster.entries() == ({flying[0]: UpmapEntry(((bad, other),))} if valid else {})
    assert (other in pg.data and bad not in pg.data) if valid else pg.data == data


def new_weights(driver: Driver) -> List[float]:
    return [driver.cluster.toys[osd].crush_weight for osd in driver.cluster.new]


def test_a_dry_run_changes_nothing() -> None:
    driver = expanding()
    driver.ask('pause')
    driver.run(3)
    sent = len(driver.cluster.sent)
    answer = driver.order('rollback', dry_run=True)
    assert answer['campaign'] is None and answer['pins_removed'] > 0
    driver.run(3)
    assert len(driver.cluster.sent) == sent and driver.phase == 'HOLDING'


def test_a_dry_run_shows_how_long_it_takes_at_the_pace_so_far_and_what_it_fills() -> None:
    driver = expanding()
    driver.ask('abort')
    driver.run_to('ABORTED')
    answer = driver.order('rollback', dry_run=True)
    assert answer['eta_basis'] == 'earlier campaigns'
    assert 0.0 < answer['eta_low_seconds'] <= answer['eta_seconds'] <= answer['eta_high_seconds']
    emptied = {row['osd']: row for row in answer['osds']}
    assert set(driver.cluster.new) & set(emptied)
    assert all(emptied[osd]['pgs_after'] < emptied[osd]['pgs_before']
               for osd in set(driver.cluster.new) & set(emptied))


def half_way(used: float = 0.03125, pg_limit: int = 250) -> Driver:
    """An expansion that was aborted. `used`: share of the space of the other OSDs, of which a PG
    takes 1 / 32."""
    driver = expanding()
    driver.run_until(lambda: driver.status['released'] > 6)
    driver.ask('abort')
    driver.run_to('ABORTED')
    cluster = driver.cluster
    cluster.sizes = {osd: round((1 << 35) / used) for osd in cluster.toys
                     if osd not in cluster.new}
    cluster.pg_limit = pg_limit
    return driver


@pytest.mark.parametrize('limits, code', [({'used': 0.84}, 'TARGET_FULL'),
                                          ({'pg_limit': 9}, 'PG_LIMIT')])
def test_a_rollback_that_takes_an_osd_beyond_its_limits_has_to_be_accepted(
        limits: Dict[str, Any], code: str) -> None:
    driver = half_way(**limits)
    sent = len(driver.cluster.sent)
    risk, = driver.order('rollback', dry_run=True)['risks']
    assert risk['code'] == code
    why = str(refusal(driver))
    assert '(%s)' % code in why
    assert why.endswith('"ceph perfguard campaign rollback --accept %s"' % code)
    assert driver.phase == 'ABORTED' and len(driver.cluster.sent) == sent
    driver.order('rollback', accept=(code,))
    driver.run_to('DONE')
    assert new_weights(driver) == [0.0] * 3 and driver.cluster.clean()


@pytest.mark.parametrize('limits', [{'used': 0.86}, {'pg_limit': 5}, {'used': 0.7}])
def test_a_rollback_is_not_refused_for_limits_that_are_exceeded_already(
        limits: Dict[str, Any]) -> None:
    driver = half_way(**limits)
    assert driver.order('rollback', dry_run=True)['risks'] == []
    driver.order('rollback')
    driver.run_to('DONE')
    assert driver.cluster.clean()


def gives_up(driver: Driver) -> PendingOrder:
    """A command that does not wait until the rollback is computed."""
    driver.tools.late = True
    pending = driver.loop.requests.submit(Order('rollback'))
    driver.turn()
    driver.tools.late = False
    if not pending.done.is_set():
        pending.done.set()
        driver.turn()
        driver.tools.work()
    return pending


def test_a_rollback_that_takes_longer_than_commands_wait_is_possible_after_an_abort() -> None:
    driver = expanding()
    assert [gives_up(driver).answer for _ in range(3)] == [None] * 3
    driver.ask('abort')
    driver.run_to('ABORTED')
    assert gives_up(driver).answer is None
    assert gives_up(driver).answer is not None
    driver.run_to('DONE')
    assert new_weights(driver) == [0.0] * 3 and driver.cluster.clean()


def test_a_rollback_computed_before_an_abort_is_computed_anew() -> None:
    """OSDs that have received PGs since would get weight 0, at which no pin lasts."""
    driver = Driver(waiting(), replace(OPTIONS, max_pgs_in_flight=1))
    driver.order('expand', weight='1.0')
    driver.run_to('RELEASING')
    assert gives_up(driver).answer is None
    driver.run_until(lambda: driver.status['released'] > 9)
    driver.ask('abort')
    driver.run_to('ABORTED')
    weights = driver.order('rollback')['weights']
    serving = {osd for pg in driver.cluster.pg.values() for osd in pg.up}
    assert serving.issuperset(driver.cluster.new) and 0.0 not in weights.values()
    driver.run_to('DONE')
    assert driver.cluster.clean()


def test_a_rollback_that_relieves_full_osds_is_not_refused() -> None:
    driver = half_way()
    cluster = driver.cluster
    cluster.sizes = {osd: round((1 << 35) / 0.97) for osd in cluster.new}
    assert driver.order('rollback')['pgs'] > 0


def test_upmaps_from_before_are_restored() -> None:
    cluster = waiting()
    cluster.add_upmap('1.2', cluster.pg['1.2'].data[0], 5)
    mine = cluster.entries()
    driver = Driver(cluster)
    driver.order('expand', weight='1.0')
    driver.run_to('PINNED')
    driver.order('rollback')
    driver.run_to('DONE')
    assert cluster.entries() == mine and cluster.moved == []


def test_upmaps_that_the_mon_dropped_with_the_change_are_restored() -> None:
    cluster = waiting()
    pgid = next(pgid for pgid in sorted(cluster.pg) if pgid.startswith('1.')
                and set(cluster.base[pgid]) != set(cluster.coming[pgid]))
    leaving = (set(cluster.base[pgid]) - set(cluster.coming[pgid])).pop()
    cluster.add_upmap(pgid, leaving, next(
        osd for osd in range(8) if osd not in cluster.base[pgid] + cluster.coming[pgid]))
    mine, before = cluster.entries(), placements(cluster)
    driver = Driver(cluster)
    driver.order('expand', weight='1.0')
    driver.run_to('PINNED')
    driver.order('rollback')
    driver.run_to('DONE')
    assert cluster.entries() == mine and cluster.moved == [] and placements(cluster) == before


@pytest.mark.parametrize('peers', [False, True])
def test_an_upmap_is_restored_although_its_source_is_that_of_a_pair_of_the_pin(
        peers: bool) -> None:
    """Two pairs with one source hide from the module where CRUSH places the PG."""
    cluster = waiting()
    first, second, third = cluster.base['2.0']
    spare = next(osd for osd in range(8) if osd not in cluster.base['2.0'])
    cluster.coming['2.0'] = [second, cluster.new[0], third]
    cluster.add_upmap('2.0', second, spare)
    mine, before, driver = cluster.entries(), placements(cluster), Driver(cluster)
    driver.order('expand', weight='1.0')
    driver.run_to('PINNED')
    assert cluster.entries()['2.0'].items == ((second, first), (cluster.new[0], spare))
    driver.order('rollback')
    if peers:
        # Not in place when CRUSH is read back, it stays pinned then.
        driver.run_until(lambda: stage(driver) is ChangeStage.SENT)
        cluster.pg['2.0'].temp = (third, spare, first)
    driver.run_to('DONE')
    assert cluster.entries() == mine and cluster.moved == [] and placements(cluster) == before


def test_the_operators_own_change_is_rolled_back_as_a_whole_map() -> None:
    driver = Driver()
    cluster = driver.cluster
    driver.to_pinned()
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.restart()
    driver.run(3)
    cluster.most_unclean = 0
    driver.order('rollback')
    driver.run_to('DONE')
    assert [c['prefix'] for c in cluster.sent].count('osd setcrushmap') == 1
    assert cluster.not_in_crush == {8, 9, 10} and cluster.moved == []
    assert cluster.entries() == {} and cluster.most_unclean == 0
    assert not [key for key in driver.kv.data if key.startswith(('crush', 'campaign', 'pins'))]


@pytest.mark.parametrize('failover', [False, True])
def test_a_whole_map_is_restored_though_an_osd_starts_meanwhile(failover: bool) -> None:
    driver = Driver()
    cluster = driver.cluster
    driver.to_pinned()
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.order('rollback')
    cluster.restart_osd()
    if failover:
        driver.restart()
    driver.run_to('DONE')
    assert cluster.not_in_crush == {8, 9, 10} and cluster.moved == []
    assert driver.history[-1]['rolled_back']


def test_a_new_version_of_crush_is_nothing_to_restore() -> None:
    driver = Driver(waiting())
    driver.ask('prepare')
    driver.run_to('PREPARED')
    driver.cluster.restart_osd()
    driver.turn()
    assert 'CRUSH has not changed' in str(refusal(driver))


def test_a_hole_in_an_acting_set_is_no_osd_that_needs_a_place() -> None:
    driver = Driver()
    driver.to_pinned()
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.cluster.take_down(0)
    driver.run(3)
    assert driver.order('rollback', dry_run=True)['one_epoch']


def test_a_whole_map_is_not_restored_from_under_data() -> None:
    driver = Driver()
    driver.to_releasing()
    driver.run_until(lambda: driver.status['released'] > 0)
    assert 'does not contain osd.' in str(refusal(driver)) and driver.phase != 'ABORTING'


def test_a_campaign_that_continues_an_aborted_one_restores_the_state_before_both() -> None:
    driver = Driver(waiting())
    driver.order('expand', weight='1.0')
    driver.run_to('PINNED')
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.ask('prepare')
    driver.run_to('PREPARED')
    driver.ask('pin')
    driver.run_to('PINNED')
    driver.order('rollback')
    driver.run_to('DONE')
    assert driver.cluster.entries() == {} and driver.cluster.moved == []
    assert new_weights(driver) == [0.0] * 3


def test_an_abort_waits_for_a_change_that_is_on_its_way() -> None:
    driver = Driver(waiting())
    cluster = driver.cluster
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: stage(driver) is ChangeStage.SENT)
    driver.ask('abort')
    driver.run_to('ABORTED')
    assert stage(driver) is ChangeStage.LANDED and len(driver.loop.rebalance.pins) == 12
    driver.order('rollback')
    driver.run_to('DONE')
    assert cluster.entries() == {} and cluster.moved == [] and cluster.most_unclean == 0


def test_a_refused_rollback_may_be_asked_for_again_and_resume_does_not_repeat_it() -> None:
    driver = Driver(waiting())
    cluster = driver.cluster
    driver.order('expand', weight='1.0')
    driver.run_to('PINNED')
    cluster.refuse['osd crush reweight'] = 'EINVAL'
    driver.order('rollback')
    driver.run_to('ABORTED')
    campaign = driver.loop.rebalance.campaign
    assert not campaign.rollback.begun
    assert stage(driver) is ChangeStage.LANDED and set(change(driver).weights) == set(cluster.new)
    cluster.refuse.clear()
    assert driver.order('rollback', dry_run=True)['pins_removed'] == 12
    driver.ask('resume')
    driver.run_to('DONE')
    assert [cluster.toys[osd].crush_weight for osd in cluster.new] == [1.0] * 3
    assert cluster.entries() == {} and cluster.moved


def test_a_rollback_that_was_carried_out_in_part_remains_one(
        monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(waiting())
    cluster, weigh = driver.cluster, driver.cluster._weigh
    driver.order('expand', weight='1.0')
    driver.run_to('PINNED')

    def refuse_one(osd: int, weight: float) -> None:
        if osd == 10:
            raise MonRefused()
        weigh(osd, weight)

    monkeypatch.setattr(cluster, '_weigh', refuse_one)
    driver.order('rollback')
    driver.run_to('ABORTED')
    assert change(driver).done == (8, 9) and cluster.moved == []
    campaign = driver.loop.rebalance.campaign
    assert campaign.rollback.begun


def test_a_rollback_that_continues_one_empties_its_osds_under_the_caps(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one has left a tiny weight to OSDs that hold PGs."""
    driver = Driver(waiting())
    cluster, weigh, refuses = driver.cluster, driver.cluster._weigh, [True]
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status['released'] >= 8)

    def refuse_one(osd: int, weight: float) -> None:
        if osd == 10 and refuses:
            raise MonRefused()
        weigh(osd, weight)

    monkeypatch.setattr(cluster, '_weigh', refuse_one)
    driver.order('rollback')
    driver.run_to('ABORTED')
    held = [osd for osd in change(driver).done if any(osd in pg.up for pg in cluster.pg.values())]
    assert held and {cluster.toys[osd].crush_weight for osd in held} == {0.0001}
    refuses.clear()
    cluster.most_unclean = 0
    driver.order('rollback')
    driver.run_to('DONE')
    assert 0 < cluster.most_unclean <= driver.options.max_pgs_in_flight
    assert new_weights(driver) == [0.0] * 3 and cluster.clean() and cluster.entries() == {}
    weights = driver.order('undrain', *('osd.%d' % osd for osd in held), dry_run=True)['weights']
    assert set(weights.values()) == {1.0}


def rolled_back() -> Driver:
    """PGs have moved to the new OSDs, and back."""
    driver = expanding()
    driver.cluster.led.update(dict.fromkeys(driver.cluster.new, 1))
    driver.order('rollback')
    driver.run_to('DONE')
    driver.run(3)
    assert new_weights(driver) == [0.0] * 3
    return driver


def expands(driver: Driver) -> None:
    """The OSDs are new: an expansion takes all of them."""
    answer = driver.order('expand', weight='1.0')
    assert set(answer['weights']) == {'osd.8', 'osd.9', 'osd.10'} and answer['left_out'] == []
    driver.run_to('DONE')
    driver.run(3)
    assert new_weights(driver) == [1.0] * 3
    assert not [key for key in driver.kv.data if key.startswith('added')]


def test_an_expansion_that_was_rolled_back_may_be_tried_again() -> None:
    """The rollback has restored the state before, in which the OSDs were new."""
    driver = rolled_back()
    driver.restart()
    driver.run(3)
    expands(driver)


@pytest.mark.parametrize('refused', [False, True])
def test_an_expansion_that_was_aborted_before_its_weights_may_be_tried_again(
        refused: bool) -> None:
    driver = rolled_back()
    if refused:
        driver.cluster.refuse['osd crush reweight'] = 'not now'
    driver.order('expand', weight='1.0')
    if not refused:
        driver.ask('abort')
    driver.run_to('ABORTED')
    assert new_weights(driver) == [0.0] * 3
    driver.cluster.refuse.clear()
    driver.restart()
    driver.run(3)
    expands(driver)


def test_osds_of_a_second_expansion_that_others_empty_are_not_new() -> None:
    """Their weights were in force, so the rollback of the first one no longer counts."""
    driver = rolled_back()
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status.get('released', 0) > 0)
    driver.ask('abort')
    driver.run_to('ABORTED')
    for osd in driver.cluster.new:
        driver.cluster._weigh(osd, 0.0)
    driver.cluster._crush_changed()
    driver.run_until(lambda: not driver.loop.rebalance.open)
    driver.run(3)
    with pytest.raises(Refused, match='osd.8 (was drained|held)'):
        driver.order('expand', weight='1.0', dry_run=True)


@pytest.mark.parametrize('since', ['another device', 'is being replaced', 'drained'])
def test_what_has_happened_to_an_osd_since_the_rollback_counts(since: str) -> None:
    driver = rolled_back()
    if since == 'another device':
        driver.cluster.uuids[8] = 'second'
    elif since == 'is being replaced':
        driver.order('replace', 'osd.8')
    else:
        driver.order('expand', '8', weight='1.0')
        driver.run_to('DONE')
        driver.order('drain', 'osd.8')
        driver.run_to('DONE')
    driver.run(3)
    answer = driver.order('expand', weight='1.0', dry_run=True)
    assert set(answer['weights']) == {'osd.9', 'osd.10'}
    assert [row['osd'] for row in answer['left_out']] == [8]


@pytest.mark.parametrize('before', ['was drained', 'held PGs before'])
def test_an_osd_that_was_not_new_before_an_expansion_is_not_after_its_rollback(
        before: str) -> None:
    cluster = waiting()
    driver = Driver(cluster)
    if before == 'was drained':
        driver.order('expand', '8', weight='1.0')
        driver.run_to('DONE')
        driver.order('drain', 'osd.8')
        driver.run_to('DONE')
    cluster.led[8] = 1
    driver.run(3)
    driver.order('expand', '8', '9', '10', weight='1.0')
    driver.run_until(lambda: driver.status['released'] > 0)
    cluster.led.update(dict.fromkeys(cluster.new, 1))
    driver.order('rollback')
    driver.run_to('DONE')
    driver.run(3)
    answer = driver.order('expand', weight='1.0', dry_run=True)
    assert set(answer['weights']) == {'osd.9', 'osd.10'}
    assert [row['osd'] for row in answer['left_out']] == [8]


def test_a_refused_map_is_not_applied_by_resume() -> None:
    driver = Driver()
    cluster = driver.cluster
    driver.to_pinned()
    driver.ask('abort')
    driver.run_to('ABORTED')
    cluster.refuse['osd setcrushmap'] = 'EINVAL'
    driver.order('crushmap', crush_map=whole_map(cluster))
    driver.run_until(lambda: driver.phase == 'PINNING')
    driver.run_to('ABORTED')
    sent = len(cluster.sent)
    driver.ask('resume')
    driver.run_to('DONE')
    assert 'osd setcrushmap' not in [command['prefix'] for command in cluster.sent[sent:]]
    assert cluster.entries() == {} and cluster.clean()


def test_an_expansion_aborted_between_its_bursts_is_rolled_back(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('perfguard.rebalance.joining.MAX_BURST_PINS', 4)
    driver = Driver(waiting())
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: bool(driver.loop.rebalance.campaign.change and change(driver).done))
    driver.ask('abort')
    driver.run_until(lambda: driver.phase == 'ABORTING')
    driver.order('rollback')
    driver.run_to('DONE')
    assert new_weights(driver) == [0.0] * 3


def test_a_change_by_others_along_with_the_campaigns_own_is_not_reverted() -> None:
    driver = Driver(waiting())
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: stage(driver) is ChangeStage.SENT)
    driver.cluster._weigh(0, 0.5)
    driver.run_to('PINNED')
    assert 'is not known' in str(refusal(driver)) and driver.cluster.toys[0].crush_weight == 0.5


def test_a_rollback_that_is_taken_back_keeps_the_target() -> None:
    driver = Driver(waiting(), options=replace(OPTIONS, target='balanced'))
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status['released'] > 0)
    driver.order('rollback')
    driver.ask('abort')
    driver.run_to('ABORTED')
    campaign = driver.loop.rebalance.campaign
    assert campaign.target == 'balanced'


def change(driver: Driver) -> WeightChange:
    campaign = driver.loop.rebalance.campaign
    assert isinstance(campaign.change, WeightChange)
    return campaign.change


def stage(driver: Driver) -> ChangeStage:
    campaign = driver.loop.rebalance.campaign
    assert campaign.change is not None
    return campaign.change.stage


def test_an_abort_takes_a_rollback_back_while_it_pins() -> None:
    driver = expanding()
    driver.order('rollback')
    assert driver.phase == 'ABORTING'
    driver.ask('abort')
    driver.run_to('ABORTED')
    campaign = driver.loop.rebalance.campaign
    assert not campaign.rollback.begun
    assert [driver.cluster.toys[osd].crush_weight for osd in driver.cluster.new] == [1.0] * 3


@pytest.mark.parametrize('failover', [False, True])
@pytest.mark.parametrize('aborted', [False, True])
def test_a_new_version_of_the_same_map_is_no_change(aborted: bool, failover: bool) -> None:
    """Each OSD that starts names its device class, and the mons count that as a change."""
    driver = expanding()
    if aborted:
        driver.ask('abort')
        driver.run_to('ABORTED')
    driver.cluster.restart_osd()
    if failover:
        driver.restart()
    driver.turn()
    assert set(driver.order('rollback')['weights']) == {'osd.8', 'osd.9', 'osd.10'}
    driver.run_to('DONE')
    assert driver.history[-1]['rolled_back']


def test_refused_when_others_have_changed_crush_since() -> None:
    driver = expanding()
    driver.ask('abort')
    driver.run_to('ABORTED')
    change_tunables(driver)
    refused = refusal(driver)
    assert refused.errno == errno.EPERM and 'was changed after campaign 1' in str(refused)


def test_refused_when_others_changed_crush_between_the_order_and_the_change() -> None:
    driver = Driver(waiting())
    driver.loop.requests.submit(Order('expand', weight='1.0'))
    driver.turn()
    change_tunables(driver)
    driver.run_to('PINNED')
    assert 'is not known' in str(refusal(driver))


@pytest.mark.parametrize('verb', ['expand', 'prepare'])
@pytest.mark.parametrize('race', [False, True])
def test_no_campaign_begins_without_a_way_back(verb: str, race: bool) -> None:
    driver = Driver(waiting())
    cluster, given = driver.cluster, driver.cluster.crush_map

    def begin() -> None:
        if verb == 'prepare':
            driver.ask('prepare')
            driver.turn()
        else:
            driver.order('expand', weight='1.0')

    cluster.no_crush_map = not race
    if race:
        setattr(cluster, 'crush_map', lambda: (b'{}', 99))
    if verb == 'expand':
        with pytest.raises(Refused, match='no rollback would be possible: ') as refused:
            begin()
        assert refused.value.errno == errno.EAGAIN and refused.value.not_fit
    else:
        begin()
    refusals = [event for event in driver.loop.published.events if event['kind'] == 'refused']
    assert len(refusals) == 1 and 'no rollback would be possible: ' in refusals[0]['why']
    assert driver.phase == 'IDLE' and not Store(driver.kv).names('campaign')
    cluster.no_crush_map = False
    setattr(cluster, 'crush_map', given)
    begin()
    assert driver.status['id'] == 1 and Store(driver.kv).get(CRUSH_BEFORE) is not None


@pytest.mark.parametrize('what', ['no tools', 'auto'])
def test_refused_when_what_was_before_is_not_known(what: str) -> None:
    cluster = waiting()
    driver = Driver(cluster)
    driver.order('expand', weight='1.0')
    driver.run_to('PINNED')
    if what == 'no tools':
        cluster.no_tools = 'osdmaptool is not installed'
    if what == 'auto':
        driver.loop.rebalance._crush_orders.forget_before()
    refused = refusal(driver)
    assert ('cannot preview' if what == 'no tools' else 'is not known') in str(refused)
    assert driver.phase != 'ABORTING'


@pytest.mark.parametrize('stored', [
    5, [], {}, {'version': 2}, {'version': 'x', 'map': ''}, {'version': 2, 'map': '?'}])
def test_a_map_from_before_that_cannot_be_read_raises_a_health_check(stored: Any) -> None:
    driver = Driver(waiting())
    driver.order('expand', weight='1.0')
    driver.run_to('PINNED')
    Store(driver.kv).put(CRUSH_BEFORE, stored)
    driver.restart()
    driver.turn()
    detail = driver.cluster.checks['PERFGUARD_INTERRUPTED']['detail'][0]
    assert 'the CRUSH map from before the campaign (' in detail
    assert 'is not known' in str(refusal(driver))


def test_refused_without_a_campaign_and_before_a_change() -> None:
    driver = Driver(waiting())
    assert refusal(driver).errno == errno.ENOENT
    driver.ask('prepare')
    driver.run_to('PREPARED')
    assert 'has not changed' in str(refusal(driver))


@pytest.mark.parametrize('fails', [1, 2])
def test_refused_where_its_effects_cannot_be_worked_out(fails: int) -> None:
    driver = expanding()
    cluster, real, calls = driver.cluster, driver.cluster.outlook, []

    def outlook(*args: Any) -> Any:
        calls.append(args)
        return NoFuture('no answer') if len(calls) == fails else real(*args)

    setattr(cluster, 'outlook', outlook)
    assert 'cannot preview the rollback: no answer' in str(refusal(driver))
    assert driver.status['phase'] == 'RELEASING' and len(calls) == fails


def test_twice_is_refused() -> None:
    driver = expanding()
    driver.order('rollback')
    assert refusal(driver).errno == errno.EALREADY


def test_a_map_that_perfguard_applied_is_taken_back() -> None:
    driver = Driver(waiting())
    driver.order('crushmap', crush_map=whole_map(driver.cluster))
    driver.run_to('PINNED')
    driver.order('rollback')
    driver.run_to('DONE')
    assert driver.cluster.entries() == {} and driver.cluster.moved == []
    assert new_weights(driver) == [0.0] * 3


class RetunedCluster(FakeCluster):
    """The operator's tunables place every second PG elsewhere, on OSDs that the CRUSH map from
    before contains."""

    def retune(self) -> None:
        self.base = {pgid: list(pg.mon.raw) for pgid, pg in self.pg.items()}
        for pgid, pg in sorted(self.pg.items())[::2]:
            pg.mon.raw[1] = next(osd for osd in self.toys
                                 if osd not in pg.mon.raw and osd not in pg.data)
        self.coming = {pgid: list(pg.mon.raw) for pgid, pg in self.pg.items()}
        self.change_tunables()

    def raw_under(self, pgid: str, toys: Mapping[int, ToyOsd]) -> List[int]:
        return self.base[pgid]  # only a rollback asks

    def _set_crush_map(self, command: Mapping[str, Any]) -> None:
        super()._set_crush_map(command)
        self.tunables = None
        for pgid, pg in self.pg.items():
            pg.mon.raw = list(self.base[pgid])


def retuned(cluster: RetunedCluster) -> Driver:
    """All PGs that the operator's change remaps are pinned."""
    driver = Driver(cluster)
    driver.ask('prepare')
    driver.run_to('PREPARED')
    cluster.retune()
    driver.run_until(lambda: bool(cluster.remapped()))
    driver.ask('pin')
    driver.run_to('PINNED')
    assert len(driver.loop.rebalance.pins) == 12
    return driver


def arrived(driver: Driver, number: int) -> None:
    """So many PGs have moved to their new places."""
    driver.ask('start')
    driver.run_until(lambda: driver.status['released'] >= number)
    driver.ask('pause')
    driver.run(8)


def most_pins(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr('perfguard.rebalance.preview.MAX_BURST_PINS', number)


def test_a_whole_map_that_requires_more_pins_than_an_epoch_takes_is_refused(
        monkeypatch: pytest.MonkeyPatch) -> None:
    most_pins(monkeypatch, 2)
    cluster = RetunedCluster()
    driver = retuned(cluster)
    arrived(driver, 6)
    found, sent = len(cluster.moved), len(cluster.sent)
    assert found >= 6
    refused = refusal(driver)
    assert refused.errno == errno.EFBIG and 'run "campaign abort"' in str(refused)
    assert 'the rollback requires %d pins, but the mons accept at most 2' % found in str(refused)
    assert '%d PGs are pinned one epoch later' % (found - 2) in str(refused)
    driver.run(3)
    assert driver.phase == 'HOLDING' and len(cluster.sent) == sent
    preview = driver.order('rollback', dry_run=True)
    assert [risk['code'] for risk in preview['risks']] == ['ONE_EPOCH'] and preview['bursts'] > 1
    assert driver.order('rollback', dry_run=True, accept=RISKS)['risks'] == []
    driver.order('rollback', accept=RISKS)
    driver.run_to('DONE')
    assert cluster.entries() == {} and cluster.clean()
    assert {pgid: list(up) for pgid, up in placements(cluster).items()} == cluster.base


def test_pins_that_only_become_unnecessary_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    most_pins(monkeypatch, 2)
    cluster = RetunedCluster()
    before = placements(cluster)
    driver = retuned(cluster)
    cluster.most_unclean = 0
    answer = driver.order('rollback')
    assert answer['pins_removed'] == 12 and answer['bursts'] == 1
    driver.run_to('DONE')
    assert cluster.entries() == {} and cluster.moved == [] and cluster.most_unclean == 0
    assert placements(cluster) == before


@pytest.mark.parametrize('upmap, entries', [(False, 0), (True, 1)])
def test_an_upmap_that_must_return_with_the_map_counts(upmap: bool, entries: int) -> None:
    """The pin has replaced it, so the PG peers if the entry follows one epoch later."""
    cluster = FakeCluster()
    first, second, third = cluster.pg['1.1'].data
    spare, other = [osd for osd in cluster.toys if osd not in cluster.pg['1.1'].data][:2]
    here = (first, spare if upmap else second, third)
    base = UpmapEntry(((second, spare),)) if upmap else UpmapEntry()
    # CRUSH places the PG on `other` now.
    osdmap = replace(cluster.map_view().osdmap, upmap_items={'1.1': ((other, here[1]),)})
    future = Future({'1.1': FuturePg(here, (first, second, third))}, cluster.crush(0))
    planned = plan_join(osdmap, future, bases={'1.1': base})
    assert planned.removed == {'1.1': base} and not planned.pins
    assert entries_needed(planned, future, osdmap) == entries


def test_a_whole_map_under_which_pgs_cannot_be_pinned_is_refused() -> None:
    cluster = RetunedCluster()
    driver = retuned(cluster)
    arrived(driver, 6)
    unlawful(driver)
    refused = refusal(driver)
    assert refused.errno == errno.EPERM and 'cannot be pinned' in str(refused)
    risk, = driver.order('rollback', dry_run=True)['risks']
    assert risk['code'] == 'UNPINNABLE' and risk['text'] in str(refused)
    assert driver.order('rollback', accept=RISKS)['unpinnable_pgs'] >= 6


@pytest.mark.parametrize('pins', [1, 2000])
def test_weights_are_restored_whatever_that_requires(
        monkeypatch: pytest.MonkeyPatch, pins: int) -> None:
    most_pins(monkeypatch, pins)
    driver = expanding()
    if pins > 1:
        unlawful(driver)
    answer = driver.order('rollback')
    assert answer['warnings'] == [] and (answer['bursts'] > 1 or answer['unpinnable_pgs'] > 1)


def play(fault_at: Any, error: BaseException) -> int:
    """A rollback with one fault in it; returns how many writes and commands it takes."""
    driver = Driver(waiting(pgs=4))
    cluster = driver.cluster
    found = cluster.foreign()
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status['released'] > 0)
    cluster.fault.count, cluster.fault.error, cluster.fault.at = 0, error, fault_at
    asked: List[PendingOrder] = []
    for _ in range(300):
        try:
            campaign = driver.loop.rebalance.campaign
            wanted = campaign.id and campaign.rollback == Rollback()
            if wanted and driver.phase not in ('FINISHING', 'DONE'):
                asked.append(driver.loop.requests.submit(Order('rollback')))
            driver.turn()
        except (Crash, RuntimeError):
            if isinstance(error, Crash):
                driver.restart()
            cluster.tick()
        if driver.history:
            break
    count, cluster.fault.at = cluster.fault.count, None
    driver.run(3)
    assert [(row['phase'], row['rolled_back']) for row in driver.history] == [
        ('DONE', True)]
    assert cluster.clean() and cluster.foreign() == found and cluster.entries() == {}
    assert {pgid: list(up) for pgid, up in placements(cluster).items()} == cluster.base
    assert new_weights(driver) == [0.0] * 3
    return count


@pytest.mark.timeout(600)
@pytest.mark.parametrize('error', [Crash(), RuntimeError('the mgr API failed')])
def test_a_fault_at_any_point_of_the_rollback(error: BaseException) -> None:
    total, wrong = play(None, error), []
    for fault_at in instants(total, error):
        try:
            play(fault_at, error)
        except AssertionError as assertion:
            wrong.append((fault_at, repr(assertion)[:300]))
    assert total > 40 and wrong == []


def test_the_mons_gather_no_longer_while_a_divided_expansion_waits_for_recovery(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """A PG that others remap between two bursts, and that cannot be pinned until it has
    recovered."""
    monkeypatch.setattr('perfguard.rebalance.joining.MAX_BURST_PINS', 4)
    driver = Driver(waiting())
    cluster = driver.cluster
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: bool(driver.loop.rebalance.campaign.change and change(driver).done))
    data = cluster.pg['1.3'].data
    cluster.degraded.add('1.3')
    monkeypatch.setattr('perfguard.rebalance.pinning.plan_partial_pin',
                        lambda *args, **names: Unpinnable('') if cluster.degraded
                        else plan_partial_pin(*args, **names))
    cluster.set_upmap('1.3', [(data[0], next(osd for osd in range(8) if osd not in data))])
    driver.run(5)
    for turn in range(70):
        if turn == 10:
            driver.restart()
        driver.turn()
        assert 'paxos_propose_interval' not in cluster.mon_config
    assert driver.phase == 'PINNING' and stage(driver) is ChangeStage.WANTED
    raised: List[str] = []
    run = cluster.run

    def note(commands: Any) -> Any:
        if any(command['prefix'] == 'osd crush reweight' for command in commands):
            raised.append(cluster.mon_config.get('paxos_propose_interval', ''))
        return run(commands)

    setattr(cluster, 'run', note)
    cluster.degraded.clear()
    driver.run_to('PINNED')
    assert set(raised) == {'3'} and stage(driver) is ChangeStage.LANDED


def test_tunables_that_others_change_along_with_the_campaign_are_not_reverted() -> None:
    driver = Driver(waiting())
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: stage(driver) is ChangeStage.SENT)
    change_tunables(driver)
    driver.run_to('PINNED')
    assert 'is not known' in str(refusal(driver))
