# SPDX-License-Identifier: LGPL-2.1-or-later
"""Options of the OSDs that slow the copying: borrowed while PGs are released, and given back."""
from dataclasses import replace
from typing import Any, Dict, Tuple

import pytest

from perfguard.cluster.types import ClientOps, Ops, PgCounts, Readings
from perfguard.ledger import Owner
from perfguard.options import DEFAULTS
from perfguard.rebalance.copying import FASTER_SECONDS, FIRST_STEP, Copying
from perfguard.shutdown import ShutdownOrder

from .fakes.cluster import FakeCluster
from .fakes.driver import Driver, codes

SLEEP = 'osd_recovery_sleep_ssd'
PACED = {('osd', SLEEP): '0.025'}
PROFILE = ('osd', 'osd_mclock_profile')
#: Clients that are not idle, and too few to be judged.
READ = Readings(seconds=2.0, counters={}, places={},
                clients=(ClientOps(1, 0, Ops(8 * 10 ** 6, 4), Ops()),))


def releasing(found: Dict[Tuple[str, str], str] = {}, scheduler: str = 'wpq',
              versions: Dict[int, str] = {}, queues: Dict[int, str] = {},
              device_classes: Dict[int, str] = {}, **options: Any) -> Driver:
    cluster = FakeCluster(osd_config=dict(found), read=READ, backfill_seconds=30.0,
                          versions=dict(versions), queues=dict(queues),
                          device_classes=dict(device_classes))
    cluster.osd_shows = {'osd_op_queue': scheduler}
    driver = Driver(cluster, replace(DEFAULTS, **{'pace_copying': 'auto', **options}))
    driver.to_releasing()
    driver.run(3)
    return driver


def back(driver: Driver, turns: int = 4) -> None:
    driver.run_until(lambda: not driver.cluster.osd_config, turns)


def test_set_while_pgs_are_released_and_given_back_at_the_end() -> None:
    driver = releasing()
    assert driver.cluster.osd_config == PACED
    held = {row.what: row for row in driver.loop.published.ledger.rows}[SLEEP + ' of the OSDs']
    assert (held.found, held.put) == (None, '0.025')
    assert held.restore == 'ceph config rm osd ' + SLEEP
    assert 'PACED' in codes(driver.status)
    reads = driver.cluster.stored_reads
    driver.run(5)
    assert driver.cluster.stored_reads == reads  # not read in every turn
    driver.run_to('DONE', 1000)
    assert driver.cluster.osd_config == {} and driver.cluster.clean()


def test_given_back_when_the_pgs_in_flight_have_arrived() -> None:
    """After the operator has ended the releases; their copying is slowed until then."""
    driver = releasing()
    driver.ask('finish', keep=True)
    driver.run_to('FINISHING')
    driver.run_until(lambda: not driver.cluster.osd_config or not driver.status['in_flight'], 400)
    assert driver.cluster.osd_config == PACED
    back(driver, 10)


@pytest.mark.parametrize('verb', ['pause', 'abort'])
def test_given_back_when_the_operator_stops_the_releases(verb: str) -> None:
    driver = releasing()
    driver.ask(verb)
    back(driver, 10)
    if verb == 'pause':
        driver.ask('resume')
        driver.run_until(lambda: driver.cluster.osd_config == PACED, 30)


def test_given_back_by_a_shutdown() -> None:
    driver = releasing()
    driver.give(ShutdownOrder(True))
    driver.run_until(lambda: driver.loop.shutdown.done)
    assert driver.cluster.osd_config == {}


def test_given_back_as_soon_as_pgs_are_degraded_and_set_again_after_them() -> None:
    driver = releasing()
    driver.cluster.take_down(0)
    back(driver, 12)
    driver.cluster.revive(0)
    driver.run_until(lambda: driver.cluster.osd_config == PACED, 200)


def test_copying_is_not_slowed_for_long_without_evidence_on_latency() -> None:
    """A few clients whose latency cannot be judged would otherwise slow a flash pool of small
    objects to 40 objects per second, for the whole campaign."""
    driver = releasing(max_pgs_in_flight=40)
    campaign = driver.loop.rebalance.campaign
    assert campaign.pace.code == 'NO_BASELINE'
    # As after some stop conditions.
    driver.loop.rebalance.campaign = replace(campaign, pace=replace(campaign.pace, pgs=1.0))
    began = driver.cluster.now
    assert driver.cluster.osd_config == PACED
    driver.run_until(lambda: not driver.cluster.osd_config, 200)
    assert driver.cluster.now - began > (FIRST_STEP - 1) * FASTER_SECONDS
    campaign = driver.loop.rebalance.campaign
    assert campaign.phase == 'RELEASING'


@pytest.mark.parametrize('option', [SLEEP, 'paxos_propose_interval'])
def test_a_campaign_continues_without_an_option_that_the_mons_refuse(option: str) -> None:
    cluster = FakeCluster(read=READ, refuse={'config set ' + option: 'unrecognized config option'})
    driver = Driver(cluster, replace(DEFAULTS, pace_copying='auto'))
    driver.to_releasing()
    assert 'COMMAND_FAILED' in codes(driver.status)
    events = [event for event in driver.loop.published.events if 'without' in event['what']]
    assert len(events) == 1 and option in events[0]['what']
    driver.restart()
    driver.run_to('DONE', 1000)
    assert cluster.clean() and not cluster.osd_config and cluster.mon_config == {'mon_op': '1'}
    tried = [each for each in cluster.sent
             if each['prefix'] == 'config set' and each['name'] == option]
    assert len(tried) == 1


def test_an_option_whose_next_value_is_refused_is_given_back() -> None:
    driver = releasing()
    cluster = driver.cluster
    cluster.refuse['config set ' + SLEEP] = 'EINVAL'
    campaign = driver.loop.rebalance.campaign
    driver.loop.rebalance.campaign = replace(
        campaign, copying=replace(campaign.copying, step=campaign.copying.step + 1))
    driver.run_until(lambda: ('osd', SLEEP) not in cluster.osd_config, 6)
    driver.run_to('DONE', 600)
    assert not cluster.osd_config


def test_an_option_that_cannot_be_given_back_is_tried_again() -> None:
    driver = releasing({('osd', SLEEP): '0.001'}, pace_copying='on')
    cluster = driver.cluster
    cluster.refuse['config set ' + SLEEP] = 'EAGAIN'
    driver.ask('pause')
    driver.run(20)
    campaign = driver.loop.rebalance.campaign
    assert not campaign.holds.given_up
    del cluster.refuse['config set ' + SLEEP]
    driver.run_until(lambda: cluster.osd_config == {('osd', SLEEP): '0.001'}, 6)


def test_it_continues_after_a_failover_in_every_turn() -> None:
    driver = releasing()
    for _ in range(5):
        driver.restart()
        driver.turn()
        assert driver.cluster.osd_config == PACED
    driver.ask('abort')
    for _ in range(40):
        driver.restart()
        driver.turn()
    assert driver.cluster.osd_config == {}


def test_what_others_change_is_left_to_them() -> None:
    driver = releasing()
    driver.cluster.osd_config['osd', SLEEP] = '0.3'
    driver.ask('abort')
    driver.run_to('ABORTED')
    assert driver.cluster.osd_config == {('osd', SLEEP): '0.3'}


@pytest.mark.parametrize('found', [
    {('osd', SLEEP): '0'}, {('global', SLEEP): '0'}, {('osd', SLEEP): '0.5'},
    {('osd', 'osd_recovery_sleep'): '0.2'}])
def test_what_others_have_set_wins(found: Dict[Tuple[str, str], str]) -> None:
    driver = releasing(found)
    assert driver.cluster.osd_config == found
    driver.run_to('DONE', 1000)
    assert driver.cluster.osd_config == found


def test_with_on_a_faster_value_is_replaced_and_restored() -> None:
    driver = releasing({('osd', SLEEP): '0'}, pace_copying='on')
    assert driver.cluster.osd_config == PACED
    driver.run_to('DONE', 1000)
    assert driver.cluster.osd_config == {('osd', SLEEP): '0'}


def test_with_mclock_the_profile_is_borrowed() -> None:
    driver = releasing(scheduler='mclock_scheduler')
    assert driver.cluster.osd_config == {PROFILE: 'high_client_ops'}
    driver.run_to('DONE', 1000)
    assert driver.cluster.osd_config == {}


def test_off_leaves_everything_alone() -> None:
    driver = releasing(pace_copying='off')
    assert driver.cluster.osd_config == {} and 'PACED' not in codes(driver.status)


def test_switched_off_in_between_it_is_given_back() -> None:
    driver = releasing()
    driver.options = replace(driver.options, pace_copying='off')
    back(driver)


@pytest.mark.parametrize('theirs', ['0.5', '0'])
def test_what_others_set_while_a_pause_lasts_wins_after_it(theirs: str) -> None:
    driver = releasing()
    driver.ask('pause')
    back(driver, 10)
    driver.cluster.osd_config['osd', SLEEP] = theirs
    driver.ask('resume')
    driver.run_to('RELEASING')
    driver.run(10)
    assert driver.cluster.osd_config == {('osd', SLEEP): theirs}
    assert 'PACED' not in codes(driver.status)


@pytest.mark.parametrize('mode, theirs', [('auto', '0.3'), ('on', '0')])
def test_what_others_change_is_theirs_after_a_pause_as_well(mode: str, theirs: str) -> None:
    driver = releasing(pace_copying=mode)
    driver.cluster.osd_config['osd', SLEEP] = theirs
    driver.ask('pause')
    driver.run(5)
    driver.ask('resume')
    driver.run_to('RELEASING')
    driver.run(10)
    assert driver.cluster.osd_config == {('osd', SLEEP): theirs}
    assert 'PACED' not in codes(driver.status)


def test_the_database_is_not_read_in_every_turn_where_nothing_is_released() -> None:
    """Releases ended in the turn in which new options were due."""
    driver = Driver(FakeCluster())
    driver.to_pinned()
    driver.run(2)
    rebalance = driver.loop.rebalance
    rebalance.campaign = replace(rebalance.campaign, copying=Copying(basis='auto wpq 0.025',
                                                                     due=True))
    reads = driver.cluster.stored_reads
    driver.run(5)
    assert driver.cluster.stored_reads == reads


def test_osds_with_the_other_scheduler_are_found_while_a_cluster_is_upgraded() -> None:
    driver = releasing(versions={7: '18.2.7'}, queues={7: 'mclock_scheduler'})
    assert driver.cluster.osd_config == {**PACED, PROFILE: 'high_client_ops'}


@pytest.mark.parametrize('who', ['osd.7', 'osd/class:ssd', 'osd/host:h7'])
@pytest.mark.parametrize('scheduler, other', [
    ('wpq', 'mclock_scheduler'), ('mclock_scheduler', 'wpq')])
def test_an_osd_that_is_configured_for_the_other_scheduler_is_found(
        who: str, scheduler: str, other: str) -> None:
    """The others have the same version."""
    entry = {(who, 'osd_op_queue'): other}
    driver = releasing(entry, scheduler, queues={7: other}, device_classes={7: 'ssd'})
    assert driver.cluster.osd_config == {**entry, **PACED, PROFILE: 'high_client_ops'}


def test_osds_are_asked_for_their_scheduler_in_each_campaign() -> None:
    driver = releasing()
    driver.run_to('DONE', 1000)
    driver.cluster.osd_shows = {'osd_op_queue': 'mclock_scheduler'}
    driver.cluster.now += 1000.0
    driver.to_releasing()
    driver.run(3)
    assert driver.cluster.osd_config == {PROFILE: 'high_client_ops'}


def test_an_option_that_the_campaign_has_borrowed_is_left_to_it() -> None:
    """The mitigation would take its value for the operator's, and give that back after it."""
    found = {('osd', 'osd_recovery_sleep_hdd'): '0.01'}
    driver = releasing(found, pace_copying='on', mitigation_mode='act', mitigation_seconds=5.0)
    driver.cluster.read = replace(READ, osd_counts={50: PgCounts(total=6, laggy=3)})
    driver.cluster.trouble = {'laggy': 3}
    driver.run_until(lambda: ('osd', 'osd_max_backfills') in driver.cluster.osd_config, 60)
    owners = {row.name: row.owner for row in driver.loop.published.ledger.rows if row.name}
    assert owners['osd_recovery_sleep_hdd'] is Owner.CAMPAIGN
    assert owners['osd_max_backfills'] is owners['norebalance'] is Owner.MITIGATION
    assert len(owners) == len([row for row in driver.loop.published.ledger.rows if row.name])
    driver.cluster.trouble = {}
    driver.run_to('DONE', 1000)
    driver.run_until(lambda: driver.cluster.osd_config == found)
    assert 'norebalance' not in driver.cluster.flags
