# SPDX-License-Identifier: LGPL-2.1-or-later
"""An aborted campaign stays still, and what becomes of the pins that it leaves."""
import errno
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import pytest

from perfguard.advise.controller import EVERY_SECONDS
from perfguard.advise.report import AdviseOrder
from perfguard.cluster.inventory import Inventory
from perfguard.cluster.ports import View
from perfguard.cluster.types import Reply
from perfguard.errors import Refused
from perfguard.upmap.pins import DEGRADED
from perfguard.rebalance.types import Flight
from perfguard.shutdown import ShutdownOrder
from perfguard.store import Store
from perfguard.text import pgs

from .fakes.cluster import BALANCER, Crash, FakeCluster
from .fakes.driver import Driver, codes
from .rebalance.test_joining import waiting

HELD = 'PERFGUARD_HELD_PINS'


def aborted(cluster: Any = None) -> Driver:
    """Some PGs are released, some are on their way, the rest is pinned."""
    driver = Driver(cluster or FakeCluster(balances=True))
    driver.to_releasing()
    driver.run_until(lambda: driver.status['released'] > 0)
    driver.ask('abort')
    driver.run_to('ABORTED')
    return driver


def still(driver: Driver, turns: int = 30) -> bool:
    """Nothing moves, peers or is sent for a while."""
    cluster = driver.cluster
    driver.run(3)  # the pins are confirmed and the PGs have peered
    moved, sent, entries = len(cluster.moved), len(cluster.sent), cluster.entries()
    cluster.most_unclean = 0
    driver.run(turns)
    return (len(cluster.moved), len(cluster.sent), cluster.entries(), cluster.most_unclean) == (
        moved, sent, entries, 0)


def test_nothing_moves_after_an_abort_whatever_the_balancer_did_before() -> None:
    driver = aborted()
    assert still(driver)
    assert driver.cluster.config == {BALANCER: 'false'} and driver.cluster.modes[1] == 'off'
    assert 'norebalance' not in driver.cluster.flags
    assert driver.status['kept'] == len(driver.cluster.entries()) > 0


def test_no_advice_to_switch_on_the_balancer_that_would_move_the_pins() -> None:
    driver = aborted()
    driver.cluster.inventory_ = Inventory(balancer={'active': 'false'})
    assert driver.give(AdviseOrder('advise'))['findings'] == []
    asked = driver.loop.advice().time
    driver.turn(EVERY_SECONDS)
    driver.turn()
    assert driver.loop.advice().time > asked
    assert driver.loop.advice().findings == ()


def pinned_with_older_map() -> Tuple[Driver, View]:
    """All PGs are pinned; the OSDMap from before is to be that of the next mgr."""
    driver = Driver()
    driver.ask('prepare')
    driver.run_to('PREPARED')
    driver.cluster.expand()
    driver.run_until(lambda: bool(driver.cluster.remapped()))
    older = driver.cluster.map_view()
    driver.ask('pin')
    driver.run_to('PINNED')
    return driver, older


@pytest.mark.parametrize('is_aborted', [False, True])
@pytest.mark.parametrize('rebuilt', [False, True])
def test_no_pin_is_forgotten_by_an_older_osdmap(is_aborted: bool, rebuilt: bool) -> None:
    """That of the next mgr may be older than the one in which the pins were read back."""
    driver, older = pinned_with_older_map()
    cluster = driver.cluster
    if is_aborted:
        driver.ask('abort')
        driver.run_to('ABORTED')
    driver.run(2)
    pins, sent = dict(driver.loop.rebalance.pins), len(cluster.sent)
    assert len(pins) == 12
    driver.restart()
    setattr(cluster, 'map_view', lambda: older)
    driver.run(5)
    assert driver.loop.rebalance.pins == pins and len(cluster.sent) == sent
    assert 'STARTING' in codes(driver.status)
    if rebuilt:
        # The epochs of a cluster that was rebuilt may stay lower.
        driver.run(5)
        assert 'STARTING' not in codes(driver.status)
    else:
        delattr(cluster, 'map_view')
        driver.ask('resume' if is_aborted else 'start')
        driver.run_to('DONE')
        assert len(cluster.moved) == 12


@pytest.mark.parametrize('verb, paused, phase', [
    ('pause', True, 'HOLDING'), ('abort', False, 'ABORTED')])
def test_a_request_during_the_wait_for_an_osdmap_survives_another_failover(
        verb: str, paused: bool, phase: str) -> None:
    driver, older = pinned_with_older_map()
    cluster = driver.cluster
    driver.ask('start')
    driver.run_until(lambda: driver.status['in_flight'] > 0)
    driver.restart()
    setattr(cluster, 'map_view', lambda: older)
    driver.turn()
    assert 'STARTING' in codes(driver.status)
    driver.ask(verb)
    driver.run(2)
    driver.restart()
    delattr(cluster, 'map_view')
    driver.run_until(lambda: driver.phase == phase)
    assert driver.loop.rebalance.campaign.orders.paused == paused


def test_it_stays_still_through_a_failover() -> None:
    driver = aborted()
    driver.restart()
    driver.turn()
    assert driver.phase == 'ABORTED' and still(driver) and HELD in driver.cluster.checks


def test_the_health_check_names_what_is_held_and_the_ways_out() -> None:
    driver = aborted()
    check = driver.cluster.checks[HELD]
    detail = ' '.join(check['detail'])
    assert check['count'] == len(driver.loop.rebalance.pins)
    for word in ('balancer is off', 'pg_autoscale_mode is off for rep', 'campaign resume',
                 'campaign rollback', 'campaign finish --keep'):
        assert word in detail
    assert driver.loop.status()['health'] == [HELD]


def test_resume_continues_the_campaign_to_its_end() -> None:
    driver = aborted()
    found = FakeCluster().foreign()
    driver.ask('resume')
    driver.run_to('DONE')
    assert driver.cluster.entries() == {} and driver.cluster.foreign() == found
    assert driver.status['released'] == driver.status['total'] == 12
    assert driver.status['kept'] == 0 and driver.cluster.checks == {}
    assert [row['phase'] for row in driver.history] == ['DONE']
    assert not [key for key in driver.kv.data if key.startswith(('campaign', 'pins'))]


def test_finish_keep_hands_the_pins_to_the_balancer() -> None:
    driver = aborted(FakeCluster())
    entries = driver.cluster.entries()
    with pytest.raises(Refused, match='still pinned'):
        driver.ask('finish')
    driver.ask('finish', keep=True)
    driver.run_to('DONE')
    assert driver.cluster.entries() == entries and not driver.loop.rebalance.pins
    assert driver.cluster.foreign() == FakeCluster().foreign() and driver.cluster.checks == {}
    assert driver.status['kept'] == len(entries)


def test_other_verbs_name_no_campaign() -> None:
    driver = aborted()
    for verb in ('start', 'pause', 'pin', 'abort'):
        with pytest.raises(Refused) as refused:
            driver.ask(verb)
        assert refused.value.errno == errno.ENOENT


def test_the_balancer_is_given_back_once_others_have_removed_the_pins() -> None:
    driver = aborted(FakeCluster())
    driver.cluster.run([{'prefix': 'osd rm-pg-upmap-items', 'pgid': pgid}
                        for pgid in driver.cluster.entries()])
    driver.run(5)
    assert driver.cluster.foreign() == FakeCluster().foreign() and driver.cluster.checks == {}
    assert not [key for key in driver.kv.data if key.startswith(('campaign', 'pins'))]


def test_a_balancer_that_others_switch_on_stays_theirs() -> None:
    driver = aborted(FakeCluster())
    driver.cluster.config[BALANCER] = 'true'
    driver.run(3)
    assert driver.cluster.config == {BALANCER: 'true'}
    assert 'the balancer is on' in ' '.join(driver.cluster.checks[HELD]['detail'])


def test_norebalance_stays_for_pgs_that_cannot_be_pinned() -> None:
    driver = Driver()
    driver.cluster.refuse['osd pg-upmap-items'] = 'EINVAL'
    driver.to_pinned()
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.run(30)
    assert driver.cluster.moved == [] and 'norebalance' in driver.cluster.flags
    assert 'cannot be pinned' in ' '.join(driver.cluster.checks[HELD]['detail'])
    driver.restart()
    driver.run(3)
    assert 'norebalance' in driver.cluster.flags and HELD in driver.cluster.checks
    driver.ask('finish', keep=True, sure=True)
    driver.run_to('DONE')
    assert 'norebalance' not in driver.cluster.flags and driver.cluster.checks == {}


def test_an_abort_that_leaves_no_pin_gives_everything_back() -> None:
    driver = Driver()
    driver.ask('prepare')
    driver.run_to('PREPARED')
    driver.ask('abort')
    driver.run_to('ABORTED')
    assert driver.cluster.foreign() == FakeCluster().foreign() and driver.cluster.checks == {}
    with pytest.raises(Refused, match='campaign 1 is ABORTED and has ended'):
        driver.ask('resume')


def test_pins_of_an_earlier_version_are_held_too() -> None:
    """It gave the balancer back at once and forgot the campaign, but not the pins."""
    driver = aborted(FakeCluster())
    Store(driver.kv).remove('campaign')
    driver.cluster.config[BALANCER] = 'true'
    driver.restart()
    driver.run(2)
    assert driver.phase == 'ABORTED' and HELD in driver.cluster.checks
    assert driver.cluster.config == {BALANCER: 'true'}, 'it is the operator who decides'
    driver.ask('resume')
    driver.run_to('DONE')
    assert driver.cluster.entries() == {} and driver.cluster.config == {BALANCER: 'true'}


@pytest.mark.parametrize('way', ['resume', 'finish'])
def test_a_failover_in_every_other_turn_of_a_way_out(way: str) -> None:
    """An mgr releases nothing until PGs must have peered that were remapped before it was
    active."""
    driver = aborted(FakeCluster())
    driver.ask(way, **({'keep': True} if way == 'finish' else {}))
    for _ in range(200):
        driver.restart()
        driver.turn(12.0)
        driver.turn()
        if driver.phase in ('DONE', 'IDLE'):
            break
    assert driver.history[-1]['phase'] == 'DONE'
    assert driver.cluster.foreign() == FakeCluster().foreign()


# ---- while PGs wait for recovery

def degraded() -> Driver:
    """An OSD dies and is marked out in mid-campaign; its recovery takes for ever."""
    driver = Driver()
    driver.to_releasing()
    lose_an_osd(driver)
    return driver


def lose_an_osd(driver: Driver) -> None:
    cluster = driver.cluster
    cluster.recovery_seconds = cluster.backfill_seconds = 1e9
    cluster.take_down(3)
    driver.run(3)
    cluster.mark_out(3)
    driver.run(5)
    assert cluster.report_now().degraded and cluster.remapped()


def test_an_abort_does_not_wait_for_the_recovery_of_degraded_pgs() -> None:
    driver = degraded()
    driver.ask('abort')
    driver.run_to('ABORTED', 30)
    driver.run(10)
    assert driver.phase == 'ABORTED' and 'norebalance' in driver.cluster.flags
    campaign = driver.loop.rebalance.campaign
    waiting = sum(1 for why in campaign.pinning.unpinnable.values() if why == DEGRADED)
    assert waiting and '%d of them must recover first' % waiting in driver.status['reasons'][0]
    detail = driver.cluster.checks[HELD]['detail']
    assert waiting > 1 and '%s of these must recover before they can be pinned' % pgs(
        waiting) in detail
    assert driver.cluster.checks[HELD]['summary'].endswith('is aborted and keeps %s pinned' % pgs(
        driver.cluster.checks[HELD]['count']))


def test_norebalance_is_given_back_once_they_have_recovered() -> None:
    driver = degraded()
    driver.ask('abort')
    driver.run_to('ABORTED', 30)
    driver.cluster.backfill_seconds = 4.0
    for pg in driver.cluster.pg.values():
        pg.recovering_until = 0.0
    driver.run_until(lambda: 'norebalance' not in driver.cluster.flags)
    assert driver.phase == 'ABORTED' and driver.loop.rebalance.pins


def test_a_shutdown_does_not_wait_for_recovery() -> None:
    driver = degraded()
    driver.give(ShutdownOrder(True))
    driver.run_until(lambda: driver.loop.shutdown.done, 150)
    assert 'norebalance' not in driver.cluster.flags


def test_a_rollback_does_not_wait_for_recovery() -> None:
    driver = Driver(waiting())
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status['released'] > 0)
    lose_an_osd(driver)
    driver.order('rollback')
    driver.run_until(lambda: driver.phase != 'ABORTING', 30)
    assert driver.phase == 'PINNING'


@pytest.mark.parametrize('given_up', [False, True])
def test_a_pg_that_has_just_arrived_stays_there(given_up: bool) -> None:
    """The mgr's OSDMap is some seconds old and shows it on its way."""
    driver = Driver()
    cluster = driver.cluster
    driver.to_releasing()
    if given_up:
        driver.ask('pause')
        driver.run_until(lambda: 'norebalance' in cluster.flags)
        driver.run(2)
        cluster.flags.discard('norebalance')
        driver.run(2)
    driver.run_until(lambda: any(flight.seen_remapped for flight in flights(driver).values()))
    cluster.lag = 4
    driver.run_until(lambda: bool(just_arrived(driver)))
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.run(20)
    assert cluster.moved and len({one.pgid for one in cluster.moved}) == len(cluster.moved)


def flights(driver: Driver) -> Mapping[str, Flight]:
    campaign = driver.loop.published.rebalanced.campaign
    return campaign.flights.in_flight


def just_arrived(driver: Driver) -> List[str]:
    """PGs that the cluster has where they go, and the mgr still sees on their way."""
    return [pgid for pgid, flight in flights(driver).items() if flight.seen_remapped
            and driver.cluster.pg[pgid].temp is None
            and driver.cluster.pg[pgid].up == driver.cluster.pg[pgid].data]


# ---- releases that take effect after the abort

def cut_off(driver: Driver) -> List[Dict[str, Any]]:
    """Run until an mgr releases PGs whose network is cut; returns the commands, which no mon has
    received yet."""
    cluster, run = driver.cluster, driver.cluster.run
    lost: List[Dict[str, Any]] = []

    def cut(commands: Sequence[Mapping[str, Any]]) -> List[Any]:
        if not any('upmap' in command['prefix'] for command in commands):
            return run(commands)
        lost.extend(dict(command) for command in commands)
        return [Reply(None, error='no answer') for _ in commands]

    setattr(cluster, 'run', cut)
    driver.run_until(lambda: bool(lost))
    setattr(cluster, 'run', run)
    return lost


def lately_aborted(again: bool = False) -> Tuple[Driver, List[Dict[str, Any]]]:
    """Another mgr takes over and aborts; with `again`, once it has repeated the releases."""
    driver = Driver(FakeCluster(pgs=48, hosts=12, backfill_seconds=30.0))
    driver.to_pinned()
    driver.ask('start')
    lost = cut_off(driver)
    driver.restart()
    driver.run(2)
    if again:
        driver.run_until(lambda: any(flight.seen_remapped for flight in flights(driver).values()))
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.run(60)
    assert driver.cluster.moved == [] and 'norebalance' not in driver.cluster.flags
    return driver, lost


def late_events(driver: Driver) -> List[str]:
    return [event['what'] for event in driver.loop.published.events
            if 'after the abort' in event['what']]


@pytest.mark.parametrize('again', [False, True])
def test_late_releases_of_a_replaced_mgr_move_nothing(again: bool) -> None:
    """Its unanswered commands are repeated when it connects to a mon again."""
    driver, lost = lately_aborted(again)
    cluster, entries = driver.cluster, driver.cluster.entries()
    cluster.run(lost)
    assert cluster.entries() != entries
    driver.run_until(lambda: driver.phase == 'ABORTING')
    assert driver.status['in_flight'] > 0
    driver.run_to('ABORTED')
    driver.run(60)
    assert cluster.moved == [] and cluster.entries() == entries and cluster.clean()
    assert 'norebalance' not in cluster.flags and HELD in cluster.checks
    assert driver.loop.rebalance.pins.keys() == entries.keys()
    [text] = late_events(driver)
    assert '%s released after the abort' % pgs(len(released(lost))) in text.replace(' are', '')
    assert [row['phase'] for row in driver.history] == ['ABORTED']
    driver.ask('resume')
    driver.run_to('DONE', 3000)
    assert cluster.entries() == {} and driver.status['released'] == driver.status['total']


def released(lost: Sequence[Mapping[str, Any]]) -> List[str]:
    return sorted({command['pgid'] for command in lost if 'upmap' in command['prefix']})


def test_late_releases_are_pinned_back_through_failovers() -> None:
    driver, lost = lately_aborted()
    cluster, entries = driver.cluster, driver.cluster.entries()
    half = len(lost) // 2
    driver.restart()
    for part in (lost[:half], lost[half:]):
        cluster.run(part)
        for _ in range(8):
            driver.restart()
            driver.turn()
            driver.turn()
        driver.run_to('ABORTED')
    driver.run(60)
    assert cluster.moved == [] and cluster.entries() == entries
    assert len(late_events(driver)) == 2


def test_a_pin_that_operators_remove_is_set_again_once_at_most() -> None:
    driver, lost = lately_aborted()
    cluster = driver.cluster
    [pgid, *_] = released(lost)
    other = next(pgid for pgid in cluster.entries() if pgid not in released(lost))
    for removed, again in ((other, False), (pgid, True), (pgid, False)):
        cluster.run([{'prefix': 'osd rm-pg-upmap-items', 'pgid': removed}])
        driver.run(60)
        assert (removed in cluster.entries()) == again


@pytest.mark.parametrize('at', [1, 2, 4, 7, 10, 13])
def test_late_releases_are_pinned_back_by_the_next_mgr_if_one_dies(at: int) -> None:
    """Before each write and command."""
    driver, lost = lately_aborted()
    cluster, entries, fault = driver.cluster, driver.cluster.entries(), driver.cluster.fault
    cluster.run(lost)
    fault.count, fault.at = 0, at
    with pytest.raises(Crash):
        driver.run(30)
    fault.at = None
    cluster.tick()
    driver.restart()
    driver.run(60)
    assert driver.phase == 'ABORTED' and cluster.moved == [] and cluster.entries() == entries
    assert 'norebalance' not in cluster.flags and HELD in cluster.checks
