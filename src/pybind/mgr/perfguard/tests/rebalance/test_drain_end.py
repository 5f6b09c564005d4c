# SPDX-License-Identifier: LGPL-2.1-or-later
"""Drained OSDs that are empty get CRUSH weight 0, and no PG is remapped for that without a pin."""
from dataclasses import replace
from typing import Any, Callable, List, Mapping, Optional, Sequence

import pytest

from perfguard.cluster.ports import NoFuture, Outlook
from perfguard.cluster.types import OsdMap, PoolPgs, PoolRule
from perfguard.errors import Refused
from perfguard.rebalance.change import Change, ChangeStage
from perfguard.rebalance.pg_num import PgNumChange
from perfguard.rebalance.pool_rule import RuleChange
from perfguard.rebalance.weights import WeightChange
from perfguard.store import Store
from perfguard.upmap.pins import Unpinnable

from ..fakes.cluster import FakeReply
from ..fakes.driver import OPTIONS, Driver, codes
from ..fakes.ruled_cluster import RuledCluster
from ..fakes.straw_cluster import AuditedCluster, StrawCluster
from .test_joining import lose, restore

#: In CRUSH's units; so small that 0.0001 and 0 make a difference to PGs.
WEIGHT = 131 / 0x10000
#: Of their weight of 0.0001 depends where 1.3 and 2.7 are, and those of 2.13.
EMPTY, NOT_EMPTY = 0, 3


def small_weights() -> Driver:
    """Two OSDs in each host."""
    cluster = AuditedCluster(pgs=24, hosts=5, osds_per_host=2)
    cluster.toys.update({osd: toy._replace(crush_weight=WEIGHT)
                         for osd, toy in cluster.toys.items()})
    cluster.place()
    for pg in cluster.pg.values():
        pg.data = pg.up
    cluster.tick()
    return Driver(cluster)


def drained(driver: Driver, *osds: int) -> None:
    driver.order('drain', *('osd.%d' % osd for osd in osds))
    driver.run_to('DONE', 600)
    assert driver.cluster.clean() and not driver.cluster.wrong  # type: ignore[attr-defined]


def joins(driver: Driver) -> List[str]:
    return [event['what'] for event in driver.loop.published.events if event['kind'] == 'join']


def weight(driver: Driver, osd: int) -> float:
    return driver.cluster.toys[osd].crush_weight


def weigh(driver: Driver, osd: int, to: float) -> None:
    """By another admin."""
    assert isinstance(driver.cluster, StrawCluster)
    driver.cluster.weigh(osd, to)


def next_steps(driver: Driver) -> Mapping[int, str]:
    return {row['osd']: row['next'] for row in driver.order('osds --drained')['drains']}


def closing(driver: Driver) -> bool:
    campaign = driver.loop.rebalance.campaign
    return campaign.change is not None and campaign.change.closing


def sent(driver: Driver) -> bool:
    campaign = driver.loop.rebalance.campaign
    return closing(driver) and campaign.change is not None \
        and campaign.change.stage is ChangeStage.SENT


def test_pgs_that_weight_0_would_move_are_pinned_and_released() -> None:
    driver = small_weights()
    cluster = driver.cluster
    driver.order('drain', 'osd.%d' % EMPTY)
    driver.run_until(lambda: closing(driver), 600)
    assert not any(EMPTY in pg.up for pg in cluster.pg.values()) and cluster.clean()
    cluster.most_unclean, before = 0, {pgid: pg.up for pgid, pg in cluster.pg.items()}
    driver.run_until(lambda: weight(driver, EMPTY) == 0.0)
    assert {pgid: pg.up for pgid, pg in cluster.pg.items()} == before
    driver.run_to('DONE')
    assert {pgid for pgid, pg in cluster.pg.items() if pg.up != before[pgid]} == {'1.3', '2.7'}
    assert cluster.clean() and not cluster.entries()
    assert 'changing CRUSH and pinning 2 PGs in one OSDMap epoch' in joins(driver)
    assert next_steps(driver)[EMPTY].startswith('"undrain"')
    driver.order('undrain', 'osd.%d' % EMPTY)
    driver.run_to('DONE', 600)
    assert weight(driver, EMPTY) == WEIGHT and cluster.clean()


def test_an_osd_on_which_a_pg_remains_keeps_its_weight() -> None:
    driver = small_weights()
    drained(driver, EMPTY, NOT_EMPTY)
    assert (weight(driver, EMPTY), weight(driver, NOT_EMPTY)) == (0.0, 0.0001)
    assert NOT_EMPTY in driver.cluster.pg['2.13'].up and driver.history[0]['phase'] == 'DONE'
    events = {event['what']: event['why'] for event in driver.loop.published.events}
    assert events['the CRUSH weight of osd.3 stays 0.0001'].endswith(
        '1 PG could not be pinned: PG 2.13 (CRUSH still places it on osd.3)')
    assert 'CRUSH weight 0.0001 remains for osd.3' in events['campaign 1: DONE']


def test_an_upmap_of_others_that_leads_to_a_drained_osd_meanwhile_is_named() -> None:
    cluster = StrawCluster(pgs=12)
    driver = Driver(cluster)
    driver.order('drain', 'osd.3')
    driver.run_until(lambda: not any(3 in pg.up for pg in cluster.pg.values()), 600)
    cluster.add_upmap('1.1', cluster.pg['1.1'].up[0], 3)
    driver.run_to('DONE', 600)
    [why] = [event['why'] for event in driver.loop.published.events
             if event['what'] == 'the CRUSH weight of osd.3 stays 0.0001']
    assert 'PG 1.1 (an upmap keeps it on osd.3)' in why and weight(driver, 3) == 0.0001


def test_pgs_whose_goals_cannot_be_written_leave_a_drained_osd(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """They end where CRUSH places them, instead of staying for the balance."""
    monkeypatch.setattr('perfguard.rebalance.goals.plan_pin', lambda *_, **__: Unpinnable(''))
    cluster = StrawCluster(pgs=24)
    driver = Driver(cluster, replace(OPTIONS, target='balanced'))
    driver.order('drain', 'osd.3')
    driver.run_to('DONE', 900)
    assert not any(3 in pg.data for pg in cluster.pg.values()) and weight(driver, 3) == 0.0


def test_weight_0_waits_for_pgs_that_it_would_move_and_that_have_lost_an_osd() -> None:
    driver = small_weights()
    cluster = driver.cluster
    driver.order('drain', 'osd.%d' % EMPTY)
    driver.run_until(lambda: closing(driver), 600)
    lost = cluster.pg['1.3'].data[1]
    lose(driver, lost)
    driver.run(20)
    assert weight(driver, EMPTY) == 0.0001 and codes(driver.status) == ['DEGRADED']
    restore(driver, lost)
    driver.run_to('DONE', 600)
    assert weight(driver, EMPTY) == 0.0 and cluster.clean()


def test_a_drain_that_empties_nothing_ends() -> None:
    driver = small_weights()
    drained(driver, NOT_EMPTY)
    assert weight(driver, NOT_EMPTY) == 0.0001
    assert 'the CRUSH weight of osd.3 stays 0.0001' in joins(driver)


def test_without_a_preview_the_weight_stays() -> None:
    driver = small_weights()
    driver.order('drain', 'osd.%d' % EMPTY)
    driver.run_until(lambda: closing(driver), 600)
    driver.cluster.no_tools = 'no crushtool'
    driver.run_to('DONE', 600)
    assert weight(driver, EMPTY) == 0.0001 and driver.cluster.clean()
    assert 'keeps the balancer' in next_steps(driver)[EMPTY]


def test_the_mons_refuse_weight_0() -> None:
    driver = small_weights()
    driver.order('drain', 'osd.%d' % EMPTY)
    driver.run_until(lambda: closing(driver), 600)
    driver.cluster.refuse['osd crush reweight'] = 'not now'
    driver.run_to('DONE', 600)
    assert weight(driver, EMPTY) == 0.0001 and driver.cluster.clean()
    assert not driver.cluster.entries()
    assert 'the CRUSH weight of osd.0 stays 0.0001' in joins(driver)


@pytest.mark.parametrize('when', [closing, sent])
@pytest.mark.parametrize('lost', [False, True])
def test_an_abort_meanwhile(when: Any, lost: bool) -> None:
    driver = small_weights()
    cluster, run = driver.cluster, driver.cluster.run

    def without_weights(commands: Sequence[Mapping[str, Any]]) -> List[FakeReply]:
        left = [c for c in commands if not lost or c['prefix'] != 'osd crush reweight'
                or c['weight']]
        return run(left) + [FakeReply(0)] * (len(commands) - len(left))

    setattr(cluster, 'run', without_weights)
    driver.order('drain', 'osd.%d' % EMPTY)
    driver.run_until(lambda: when(driver), 600)
    driver.ask('abort')
    driver.run_to('ABORTED')
    assert cluster.clean() and weight(driver, EMPTY) == (0.0 if when is sent and not lost
                                                         else 0.0001)
    if driver.status['pinned']:
        driver.ask('resume')
        driver.run_to('DONE')
    assert cluster.clean() and not cluster.entries()
    driver.order('undrain', 'osd.%d' % EMPTY)
    driver.run_to('DONE', 600)
    assert weight(driver, EMPTY) == WEIGHT and cluster.clean()


@pytest.mark.parametrize('zero', [False, True])
def test_a_rollback_meanwhile(zero: bool) -> None:
    driver = small_weights()
    cluster = driver.cluster
    places = {pgid: pg.up for pgid, pg in cluster.pg.items()}
    driver.order('drain', 'osd.%d' % EMPTY)
    driver.run_until(lambda: closing(driver) and (weight(driver, EMPTY) == 0.0) is zero, 600)
    while True:
        try:
            driver.order('rollback')
            break
        except Refused as refused:  # until the change is read back
            assert 'is changing CRUSH' in str(refused)
    driver.run_to('DONE', 600)
    assert weight(driver, EMPTY) == WEIGHT and cluster.clean() and not cluster.entries()
    assert places == {pgid: pg.up for pgid, pg in cluster.pg.items()}
    driver.turn()
    assert not next_steps(driver)


def expanded_and_rolled_back(osd: int = EMPTY) -> Driver:
    """PGs have moved to an OSD of weight 0, and back."""
    driver = small_weights()
    weigh(driver, osd, 0.0)
    driver.run_until(driver.cluster.clean)
    driver.order('expand', '%d' % osd, weight=repr(WEIGHT))
    driver.run_until(lambda: driver.status['released'] > 1)
    driver.order('rollback')
    return driver


def test_pgs_that_weight_0_would_move_at_the_end_of_a_rollback_are_pinned_and_released() -> None:
    driver = expanded_and_rolled_back()
    cluster = driver.cluster
    driver.run_until(lambda: closing(driver), 600)
    assert not any(EMPTY in pg.up for pg in cluster.pg.values()) and cluster.clean()
    before = {pgid: pg.up for pgid, pg in cluster.pg.items()}
    driver.run_until(lambda: weight(driver, EMPTY) == 0.0)
    assert {pgid: pg.up for pgid, pg in cluster.pg.items()} == before
    driver.run_to('DONE')
    assert {pgid for pgid, pg in cluster.pg.items() if pg.up != before[pgid]} == {'1.3', '2.7'}
    assert cluster.clean() and not cluster.entries() and driver.history[0]['rolled_back']
    assert not cluster.wrong  # type: ignore[attr-defined]
    driver.order('undrain', 'osd.%d' % EMPTY)
    driver.run_to('DONE', 600)
    assert weight(driver, EMPTY) == WEIGHT and cluster.clean()


@pytest.mark.parametrize('trouble', ['no preview', 'refused', 'abort'])
def test_a_rollback_that_cannot_set_weight_0_ends(trouble: str) -> None:
    driver = expanded_and_rolled_back()
    driver.run_until(lambda: closing(driver), 600)
    if trouble == 'no preview':
        driver.cluster.no_tools = 'no crushtool'
    elif trouble == 'refused':
        driver.cluster.refuse['osd crush reweight'] = 'not now'
    else:
        driver.ask('abort')
    driver.run_to('ABORTED' if trouble == 'abort' else 'DONE', 600)
    assert weight(driver, EMPTY) == 0.0001 and driver.cluster.clean()
    assert not driver.cluster.entries() and driver.history[0]['rolled_back']
    assert 'the CRUSH weight of osd.0 stays 0.0001' in joins(driver)


@pytest.mark.parametrize('moved', [False, True])
@pytest.mark.parametrize('own', [False, True])
def test_the_tiny_weight_of_others_is_restored_and_that_of_an_earlier_drain_is_not(
        own: bool, moved: bool) -> None:
    driver = small_weights()
    cluster = driver.cluster
    if own:
        drained(driver, EMPTY)
    weigh(driver, EMPTY, 0.0001)
    driver.run_until(cluster.clean)
    if own:
        driver.order('undrain', 'osd.%d' % EMPTY)
    else:
        driver.ask('prepare')
        driver.run_to('PREPARED')
        weigh(driver, EMPTY, WEIGHT)
        driver.turn()
        driver.ask('pin')
        driver.run_to('PINNED')
        driver.ask('start')
    driver.run_until(lambda: driver.status['released'] > 1 if moved
                     else driver.phase in ('PINNED', 'RELEASING'))
    driver.order('rollback')
    driver.run_to('DONE', 600)
    assert weight(driver, EMPTY) == (0.0 if own else pytest.approx(0.0001, abs=1 / 0x10000))
    assert cluster.clean() and not cluster.entries()


def test_a_device_of_the_same_id_is_no_new_osd() -> None:
    """`destroy` keeps up_thru, and purge does not."""
    driver = small_weights()
    drained(driver, EMPTY)
    driver.cluster.destroy(EMPTY)
    driver.turn()
    driver.cluster.create_again(EMPTY)
    driver.turn()
    with pytest.raises(Refused, match='was drained'):
        driver.order('expand', weight='1')
    assert driver.order('undrain', 'osd.%d' % EMPTY)['weights'] == {'osd.0': WEIGHT}


def test_a_drain_that_others_have_undone_is_not_taken_for_one_that_succeeded() -> None:
    """As an old CRUSH map does that is set in the middle of it."""
    cluster = StrawCluster(pgs=12)
    driver = Driver(cluster, replace(OPTIONS, max_pgs_in_flight=1))
    driver.order('drain', 'osd.3')
    driver.run_until(lambda: bool(driver.status.get('released')))
    cluster.weigh(3, 1.0)
    driver.run_to('DONE', 600)
    assert any('not drained, because others gave them a CRUSH weight: osd.3' in event['why']
               for event in driver.loop.published.events if event['kind'] == 'phase')


def test_a_drain_that_is_finished_early_keeps_the_weight_under_its_upmaps() -> None:
    """The mons drop upmaps onto OSDs of weight 0, and all their PGs would move at once."""
    cluster = StrawCluster(pgs=12)
    driver = Driver(cluster, replace(OPTIONS, max_pgs_in_flight=1))
    driver.order('drain', 'osd.3')
    driver.run_until(lambda: bool(driver.status.get('released')))
    driver.ask('finish', keep=True)
    driver.run_to('DONE', 600)
    assert any(3 in pg.up for pg in cluster.pg.values()) and cluster.entries() and cluster.clean()
    assert weight(driver, 3) == 0.0001
    assert [event['why'] for event in driver.loop.published.events
            if event['what'] == 'campaign 1: DONE'][0].endswith(
                '; CRUSH weight 0.0001 remains for osd.3: see "osds --drained"')
    driver.order('adopt')
    driver.run_to('DONE', 600)
    assert not any(3 in pg.up for pg in cluster.pg.values()) and cluster.clean()
    assert 'keeps the balancer' in next_steps(driver)[3]


def change_of(driver: Driver) -> WeightChange:
    change = driver.loop.rebalance.campaign.change
    assert isinstance(change, WeightChange)
    return change


class WithTools(StrawCluster):
    def outlook(self, osdmap: OsdMap, weights: Mapping[int, float], *more: Any) -> Outlook:
        """crushtool knows no weight of an OSD that is gone."""
        return super().outlook(osdmap, weights, *more) if weights.keys() <= self.toys.keys() \
            else NoFuture('unable to adjust weight of an item that does not exist')


@pytest.mark.parametrize('osds', [(3, 5, 7, 9), (3, 9)])
def test_an_osd_that_is_purged_between_the_bursts(
        monkeypatch: pytest.MonkeyPatch, osds: Sequence[int]) -> None:
    monkeypatch.setattr('perfguard.rebalance.joining.MAX_BURST_PINS', 8)
    cluster = WithTools(pgs=24, hosts=12)
    driver = Driver(cluster)
    driver.order('drain', *('osd.%d' % osd for osd in osds))
    driver.run_until(lambda: change_of(driver).stage is ChangeStage.WANTED
                     and change_of(driver).done == (3,))
    cluster.purge(9)
    cluster.place()
    driver.run_to('DONE', 900)
    assert cluster.clean() and {weight(driver, osd) for osd in osds[:-1]} == {0.0}
    assert not any(set(osds) & set(pg.up) for pg in cluster.pg.values())


@pytest.mark.parametrize('aborted', [False, True])
def test_a_weight_that_others_set_between_the_bursts_stays(
        monkeypatch: pytest.MonkeyPatch, aborted: bool) -> None:
    """For example with a new device that has the id of a drained one."""
    monkeypatch.setattr('perfguard.rebalance.joining.MAX_BURST_PINS', 8)
    cluster = StrawCluster(pgs=24, hosts=12)
    driver = Driver(cluster)
    driver.order('drain', 'osd.3', 'osd.5', 'osd.9')
    driver.run_until(lambda: change_of(driver).stage is ChangeStage.WANTED
                     and change_of(driver).done == (3,))
    if aborted:
        driver.ask('abort')
        driver.run_to('ABORTED')
    cluster.weigh(9, 2.0)
    driver.run(3)
    if aborted:
        driver.ask('resume')
    driver.run_to('DONE', 900)
    assert [weight(driver, osd) for osd in (3, 5, 9)] == [0.0, 0.0, 2.0]
    assert cluster.clean() and not any({3, 5} & set(pg.up) for pg in cluster.pg.values())


def test_a_weight_that_others_set_before_weight_0_is_sent_stays() -> None:
    cluster = StrawCluster(pgs=24, hosts=12)
    driver = Driver(cluster)
    driver.order('drain', 'osd.3', 'osd.5')
    driver.run_until(lambda: change_of(driver).closing, 900)
    cluster.weigh(5, 1.0)
    driver.run_to('DONE', 900)
    assert [weight(driver, osd) for osd in (3, 5)] == [0.0, 1.0]


def aborted_drain(*osds: int, cluster: Optional[StrawCluster] = None) -> Driver:
    """A part of the PGs has moved, the others are pinned; osd.6 and osd.7 are new."""
    if cluster is None:
        cluster = AuditedCluster(pgs=24, hosts=6)
        cluster.add_osds(2, 0.0)
    driver = Driver(cluster, replace(OPTIONS, max_pgs_in_flight=1))
    driver.run(3)
    driver.order('drain', *('osd.%d' % osd for osd in osds))
    driver.run_until(lambda: bool(driver.status.get('released')))
    driver.ask('abort')
    driver.run_to('ABORTED')
    return driver


def next_campaign(driver: Driver, verb: str) -> None:
    """It takes over the pins of the drain."""
    if verb == 'expand':
        driver.order('expand', weight='1.0')
    elif verb == 'drain':
        driver.order('drain', 'osd.5')
    else:
        driver.ask('prepare')
        driver.run_to('PREPARED')
        weigh(driver, 0, 0.9)
        driver.turn()
        driver.ask('pin')
        driver.run_to('PINNED')
        driver.ask('start')


def aborted_expansion() -> Driver:
    cluster = AuditedCluster(pgs=24, hosts=6)
    cluster.add_osds(2, 0.0)
    driver = Driver(cluster, replace(OPTIONS, max_pgs_in_flight=1))
    driver.run(3)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: bool(driver.status.get('released')))
    driver.ask('abort')
    driver.run_to('ABORTED')
    return driver


@pytest.mark.parametrize('dry_run', [True, False])
@pytest.mark.parametrize('aborted, verb, names, drained', [
    (lambda: aborted_drain(3), 'expand', (), ' (to drain osd.3)'),
    (lambda: aborted_drain(3), 'drain', ('osd.5',), ' (to drain osd.3)'),
    (lambda: aborted_drain(3, 5), 'undrain', ('osd.5',), ' (to drain osd.3, osd.5)'),
    (aborted_expansion, 'drain', ('osd.3',), ''),
    # The operator decides on the same OSDs again.
    (lambda: aborted_drain(3), 'undrain', ('osd.3',), None),
    (aborted_expansion, 'drain', ('osd.6', 'osd.7'), None)])
def test_an_order_says_that_it_also_releases_the_pins_of_an_aborted_campaign(
        aborted: Callable[[], Driver], verb: str, names: Sequence[str], drained: Optional[str],
        dry_run: bool) -> None:
    driver = aborted()
    pinned = driver.status['pinned']
    answer = driver.order(verb, *names, dry_run=dry_run, **(
        {'weight': '1.0'} if verb == 'expand' else {}))
    assert pinned > 1 and answer['warnings'] == ([] if drained is None else [
        'campaign 1 is aborted and keeps %d PGs pinned: this change releases these as well%s, and '
        'the figures here are without them; "campaign finish --keep" first leaves them where they '
        'are' % (pinned, drained)])


@pytest.mark.parametrize('change, aborted, succeeds', [
    (RuleChange(rule=PoolRule(1, 3)), RuleChange(rule=PoolRule(1, 2)), True),
    (RuleChange(rule=PoolRule(1, 3)), RuleChange(rule=PoolRule(2, 3)), False),
    (PgNumChange(step=PoolPgs(1, 8, 8)), PgNumChange(step=PoolPgs(1, 16, 8)), True),
    (PgNumChange(step=PoolPgs(1, 8, 8)), PgNumChange(step=PoolPgs(2, 16, 8)), False),
    (PgNumChange(step=PoolPgs(1, 8, 8)), RuleChange(rule=PoolRule(1, 2)), False),
    (WeightChange(weights={3: 1.0}), WeightChange(weights={3: 0.5}), True),
    (WeightChange(weights={3: 1.0}), WeightChange(weights={3: 0.5, 4: 0.5}), False),
    (WeightChange(weights={3: 1.0}), RuleChange(rule=PoolRule(1, 2)), False)])
def test_a_change_that_decides_on_all_that_an_aborted_one_was_about(
        change: Change, aborted: Change, succeeds: bool) -> None:
    assert change.succeeds(aborted) == succeeds


def test_an_order_also_names_the_drain_before_the_aborted_one() -> None:
    driver = aborted_drain(3)
    driver.order('drain', 'osd.5')
    driver.run(8)
    driver.ask('abort')
    driver.run_to('ABORTED')
    [warning] = driver.order('undrain', 'osd.5', dry_run=True)['warnings']
    assert '(to drain osd.3, osd.5)' in warning
    assert not driver.order('undrain', 'osd.3', 'osd.5', dry_run=True)['warnings']


@pytest.mark.parametrize('failover', [False, True])
@pytest.mark.parametrize('verb', ['expand', 'drain', 'prepare'])
def test_the_campaign_after_an_aborted_drain_ends_the_drain(verb: str, failover: bool) -> None:
    driver = aborted_drain(3)
    next_campaign(driver, verb)
    driver.run_until(lambda: driver.status['released'] > 1)
    if failover:
        driver.restart()
    driver.run_to('DONE', 900)
    cluster = driver.cluster
    assert weight(driver, 3) == 0.0 and not any(3 in pg.up for pg in cluster.pg.values())
    assert cluster.clean() and not cluster.entries()
    assert not cluster.wrong  # type: ignore[attr-defined]
    driver.turn()
    assert next_steps(driver)[3].startswith('"undrain"')
    assert driver.order('undrain', 'osd.3', dry_run=True)['weights'] == {'osd.3': 1.0}


def test_a_third_campaign_ends_an_aborted_drain_as_well() -> None:
    driver = aborted_drain(3)
    next_campaign(driver, 'expand')
    driver.run_until(lambda: bool(driver.status.get('released')))
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.restart()
    next_campaign(driver, 'drain')
    driver.run_to('DONE', 900)
    assert (weight(driver, 3), weight(driver, 5)) == (0.0, 0.0) and driver.cluster.clean()


def test_weights_that_were_given_to_osds_since_their_drain_stay() -> None:
    """osd.1 is undrained, osd.3 got a weight from others, and osd.4 was purged."""
    driver = aborted_drain(1, 3, 4)
    weigh(driver, 3, 0.5)
    driver.cluster.purge(4)
    driver.cluster.place()  # type: ignore[attr-defined]
    driver.run_until(lambda: not driver.loop.published.rebalanced.unhealthy)
    driver.order('undrain', 'osd.1')
    driver.run_to('DONE', 900)
    assert (weight(driver, 1), weight(driver, 3)) == (1.0, 0.5) and driver.cluster.clean()
    driver.turn()
    assert not next_steps(driver)
    assert not [event for event in driver.loop.published.events if 'not drained' in event['why']]


@pytest.mark.parametrize('ended', [False, True])
def test_a_rollback_of_the_campaign_after_an_aborted_drain_restores_the_first_weights(
        ended: bool) -> None:
    driver = aborted_drain(3)
    next_campaign(driver, 'expand')
    driver.run_until(lambda: closing(driver) and weight(driver, 3) == 0.0 if ended
                     else driver.status['released'] > 1, 900)
    driver.run(3)
    driver.order('rollback')
    driver.run_to('DONE', 900)
    assert [weight(driver, osd) for osd in (3, 6, 7)] == [1.0, 0.0, 0.0]
    assert driver.cluster.clean() and not driver.cluster.entries()
    driver.turn()
    assert set(driver.order('expand', weight='1.0', dry_run=True)['weights']) == {'osd.6', 'osd.7'}


def test_a_new_rule_is_not_rolled_back_without_the_rule() -> None:
    driver = aborted_drain(3, cluster=RuledCluster())
    driver.order('rule', 'rep', 'racks')
    driver.run_until(lambda: closing(driver), 900)
    with pytest.raises(Refused, match='has changed the CRUSH rule .* "rule"'):
        driver.order('rollback')
    driver.run_to('DONE', 900)
    assert weight(driver, 3) == 0.0 and driver.cluster.clean()


def test_a_rollback_after_which_an_aborted_drain_is_still_one_ends_the_drain() -> None:
    """Others have changed CRUSH between the two campaigns."""
    driver = aborted_drain(3)
    weigh(driver, 0, 0.9)
    driver.run(3)
    next_campaign(driver, 'expand')
    driver.run_until(lambda: driver.status['released'] > 1)
    driver.order('rollback')
    driver.run_to('DONE', 900)
    assert [weight(driver, osd) for osd in (0, 3, 6, 7)] == [0.9, 0.0, 0.0, 0.0]
    assert driver.cluster.clean() and not driver.cluster.entries()


@pytest.mark.parametrize('next_is_kept', [False, True])
def test_a_drain_that_was_ended_early_is_not_ended_by_another_campaign(next_is_kept: bool) -> None:
    driver = aborted_drain(3)
    if next_is_kept:
        next_campaign(driver, 'expand')
        driver.run_until(lambda: bool(driver.status.get('released')))
    driver.ask('finish', keep=True)
    driver.run_to('DONE', 600)
    if next_is_kept:
        assert any('CRUSH weight 0.0001 remains for osd.3' in event['why']
                   for event in driver.loop.published.events
                   if event['what'] == 'campaign 2: DONE')
    else:
        next_campaign(driver, 'expand')
        driver.run_to('DONE', 900)
    assert weight(driver, 3) == 0.0001 and 3 in next_steps(driver)


def test_no_record_of_drains_is_left_once_all_have_a_weight_again() -> None:
    driver = small_weights()
    drained(driver, EMPTY)
    drained(driver, NOT_EMPTY)
    store = Store(driver.kv)
    driver.order('undrain', 'osd.%d' % EMPTY)
    driver.run_until(lambda: set(store.get('drained') or ()) == {str(NOT_EMPTY)}, 600)
    driver.run_to('DONE', 600)
    driver.order('undrain', 'osd.%d' % NOT_EMPTY)
    driver.run_to('DONE', 600)
    driver.turn()
    assert store.get('drained') is None
