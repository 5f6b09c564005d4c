# SPDX-License-Identifier: LGPL-2.1-or-later
"""What is borrowed is listed, and a shutdown gives all of it back."""
import errno
from dataclasses import replace
from typing import Any, Dict, Optional, Tuple

import pytest

from perfguard.cluster.types import UpmapEntry
from perfguard.codec import encode
from perfguard.errors import Refused
from perfguard.ledger import Held, shell
from perfguard.mitigation.report import mitigation_rows
from perfguard.mitigation.types import (LadderStep, MitigationState, Rung, Setting, SettingKind,
                                        StepStage)
from perfguard.probe.orders import RunOrder
from perfguard.probe.resources import RunResources, probe_rows
from perfguard.rebalance.requests import Request
from perfguard.rebalance.types import Flight, Pace, Phase
from perfguard.shutdown import ShutdownOrder, next_request
from perfguard.store import Store

from .fakes.campaigns import campaign_of
from .fakes.cluster import FakeCluster
from .fakes.driver import OPTIONS, Driver
from .rebalance.test_joining import waiting


def held(driver: Driver) -> Dict[str, Any]:
    return {row.what: row for row in driver.loop.published.ledger.rows}


def shut_down(driver: Driver, sure: bool = False) -> Any:
    return driver.give(ShutdownOrder(sure))


def refusal(driver: Driver) -> Refused:
    with pytest.raises(Refused) as refused:
        shut_down(driver)
    return refused.value


def to_safety(driver: Driver) -> None:
    driver.run_until(lambda: driver.loop.shutdown.done)


def test_nothing_is_borrowed_while_idle() -> None:
    driver = Driver()
    assert held(driver) == {} and shut_down(driver)['held'] == []


def test_a_campaign_lists_all_that_it_borrows_with_plain_commands() -> None:
    driver = Driver()
    driver.to_pinned()
    # Shortened until the PGs are pinned, and given back by the next turn.
    driver.run_until(lambda: 'paxos_propose_interval of the mons' not in held(driver))
    rows = held(driver)
    assert {what: (row.found, row.put, row.restore) for what, row in rows.items()
            if 'upmaps' not in what} == {
        'flag norebalance': (None, 'set', 'ceph osd unset norebalance'),
        'mgr/balancer/active': ('true', 'false', 'ceph balancer on'),
        'pg_autoscale_mode of pool rep': ('on', 'off',
                                          'ceph osd pool set rep pg_autoscale_mode on')}
    assert rows['upmaps of pinned PGs'].put == '12 pins'
    assert all(row.since == driver.status['started'] for row in rows.values())
    driver.ask('start')
    driver.run_until(lambda: 'paxos_propose_interval of the mons' in held(driver))
    assert held(driver)['paxos_propose_interval of the mons'].restore == \
        'ceph config rm mon paxos_propose_interval'
    driver.run_to('DONE')
    assert held(driver) == {}


def test_an_aborted_campaign_still_lists_what_its_pins_need() -> None:
    driver = Driver()
    driver.to_pinned()
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.restart()
    driver.turn()
    assert set(held(driver)) == {'mgr/balancer/active', 'pg_autoscale_mode of pool rep',
                                 'upmaps of pinned PGs'}


def test_mitigation_and_probes_list_theirs() -> None:
    settings = (Setting(SettingKind.CONFIG, 'osd_max_backfills', 'osd/class:hdd', Held('3', '1')),
                Setting(SettingKind.CONFIG, 'osd_recovery_sleep', 'osd', Held(None, '0.1')),
                Setting(SettingKind.AFFINITY, '7', '', Held('1', '0')),
                replace(Setting(SettingKind.FLAG, 'norebalance', '', Held(None, 'set')), done=True))
    steps = (LadderStep(1, Rung.SLOW, StepStage.HELD, 5.0, 'why', settings=settings),
             LadderStep(2, Rung.NOREBALANCE, StepStage.WOULD, 5.0, 'why', settings=settings))
    assert [row.restore for row in mitigation_rows(MitigationState(steps))] == [
        'ceph config set osd/class:hdd osd_max_backfills 3',
        'ceph config rm osd osd_recovery_sleep',
        'ceph osd primary-affinity 7 1.0']
    resources = RunResources(4, 'perfguard-probe-4', True, user=True,
                             allowed={'mon_allow_pool_delete': None})
    commands = [row.restore for row in probe_rows(resources, 5.0)]
    assert commands[0] == 'ceph config rm mon mon_allow_pool_delete'
    assert commands[1].startswith('ceph auth rm client.')
    assert commands[2].endswith('perfguard-probe-4 perfguard-probe-4 '
                                '--yes-i-really-really-mean-it')


def test_words_are_quoted_for_the_shell() -> None:
    assert shell({'prefix': 'osd pool set', 'pool': 'a b', 'var': 'x'}) == \
        "ceph osd pool set 'a b' x"


@pytest.mark.parametrize('state', ['PREPARED', 'PINNED', 'RELEASING', 'ABORTED'])
def test_a_shutdown_in_mid_campaign_is_refused_until_it_is_meant(state: str) -> None:
    driver = Driver()
    found = driver.cluster.foreign()
    if state == 'PREPARED':
        driver.ask('prepare')
        driver.run_to('PREPARED')
    else:
        driver.to_releasing() if state == 'RELEASING' else driver.to_pinned()
    if state == 'ABORTED':
        driver.ask('abort')
        driver.run_to('ABORTED')
    refused = refusal(driver)
    assert refused.errno == errno.EPERM and '--yes-i-really-mean-it' in str(refused)
    assert driver.phase == state and driver.cluster.foreign() != found
    answer = shut_down(driver, sure=True)
    assert not answer['safe'] and answer['held']
    to_safety(driver)
    driver.run(2)
    answer = shut_down(driver)
    assert answer['safe'] and answer['held'] == []
    assert driver.cluster.foreign() == found and driver.cluster.clean()
    assert driver.cluster.mon_config == FakeCluster().mon_config
    assert driver.cluster.checks == {} and not driver.loop.rebalance.pins
    assert any('disable perfguard" is safe' in reason
               for reason in driver.loop.status()['reasons'])


def test_osds_count_no_client_operations_after_a_shutdown() -> None:
    """Ceph would leave them the last queries of a module that is disabled."""
    driver = Driver()
    driver.run(2)
    assert driver.cluster.counts_clients
    # Before the answer that the module may be disabled.
    assert shut_down(driver)['safe'] and not driver.cluster.counts_clients
    driver.to_pinned()
    assert driver.cluster.counts_clients


def test_a_shutdown_continues_after_a_failover_in_every_turn() -> None:
    driver = Driver()
    found = driver.cluster.foreign()
    driver.to_releasing()
    shut_down(driver, sure=True)
    for _ in range(100):
        driver.restart()
        driver.turn()
        if driver.loop.shutdown.done:
            break
    assert driver.loop.shutdown.done and driver.cluster.foreign() == found
    driver.restart()
    driver.run(2)
    driver.ask('prepare')
    driver.run_to('PREPARED')
    assert Store(driver.kv).get('shutdown') is None


def test_a_standby_mgr_knows_that_a_shutdown_is_complete() -> None:
    driver = Driver(options=replace(OPTIONS, auto_expand=True))
    driver.run(3)
    assert shut_down(driver)['safe']
    driver.restart()
    driver.turn()
    assert shut_down(driver)['safe'] and not driver.cluster.counts_clients
    driver.cluster.expand()
    driver.run(10)
    assert driver.phase == 'IDLE' and held(driver) == {}
    assert any('disable perfguard" is safe' in reason
               for reason in driver.loop.status()['reasons'])


def test_a_shutdown_ends_when_the_module_is_enabled_again() -> None:
    """All processes of mgrs begin anew then."""
    driver = Driver(options=replace(OPTIONS, auto_expand=True))
    driver.run(3)
    assert shut_down(driver)['safe']
    driver.turn()
    standby = driver.process_began
    driver.process_began = driver.cluster.now
    driver.restart()
    driver.run(3)
    assert driver.cluster.counts_clients and Store(driver.kv).get('shutdown') is None
    driver.process_began = standby
    driver.restart()
    driver.cluster.expand()
    driver.run(10)
    assert driver.status['trigger'] == 'auto'


def test_a_shutdown_that_is_not_complete_goes_on_in_a_new_process() -> None:
    driver = Driver()
    driver.to_releasing()
    shut_down(driver, sure=True)
    driver.process_began = driver.cluster.now + 1.0
    driver.restart()
    to_safety(driver)


@pytest.mark.parametrize('document', [[], {'since': 'x'}])
def test_a_malformed_shutdown_is_set_aside_and_reported(document: Any) -> None:
    driver = Driver()
    driver.loop._store.put('shutdown', document)
    driver.restart()
    driver.turn()
    assert not driver.loop.shutdown.ordered
    assert 'the shutdown' in str(driver.cluster.checks['PERFGUARD_INTERRUPTED'])


def test_a_rollback_in_progress_ends_as_well() -> None:
    driver = Driver(waiting())
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status['released'] > 0)
    driver.order('rollback')
    shut_down(driver, sure=True)
    to_safety(driver)
    assert driver.cluster.foreign() == FakeCluster().foreign()


def test_nothing_begins_meanwhile() -> None:
    driver = Driver()
    driver.to_releasing()
    shut_down(driver, sure=True)
    for ask in (lambda: driver.ask('prepare'), lambda: driver.order('expand')):
        with pytest.raises(Refused, match='shutting down'):
            ask()
    driver.options = replace(driver.options, auto_expand=True)
    to_safety(driver)
    driver.cluster.expand()
    driver.run(10)
    assert driver.phase in ('DONE', 'IDLE') and held(driver) == {}


def test_no_change_is_caught_in_the_turn_of_a_shutdown() -> None:
    for turns in range(4):
        driver = Driver(FakeCluster(peer_seconds=0.5))
        driver.options = replace(driver.options, auto_expand=True)
        driver.run(3)
        found = driver.cluster.foreign()
        driver.cluster.expand()
        driver.cluster.tick()
        driver.run(turns)
        caught = driver.loop.rebalance.active
        assert shut_down(driver, sure=True)['safe'] != caught
        to_safety(driver)
        driver.run(5)
        assert held(driver) == {} and driver.cluster.foreign() == found
        assert not driver.loop.rebalance.active


def test_an_order_after_a_shutdown_is_taken() -> None:
    driver = Driver()
    assert shut_down(driver)['safe'] in (True, False)
    to_safety(driver)
    driver.ask('prepare')
    driver.run_to('PREPARED')
    assert not driver.loop.shutdown.ordered


@pytest.mark.parametrize('verb, names', [
    ('drain', ('osd.99',)), ('drain', ('osd.3',)), ('replace', ('osd.99',)), ('adopt', ())])
def test_a_refused_order_leaves_a_shutdown_complete(verb: str, names: Tuple[str, ...]) -> None:
    driver = Driver()
    shut_down(driver)
    to_safety(driver)
    driver.cluster.trouble['degraded'] = 1
    with pytest.raises(Refused):
        driver.order(verb, *names)
    driver.run(3)
    assert driver.loop.shutdown.done and driver.phase == 'IDLE'


def test_a_refused_probe_leaves_a_shutdown_complete() -> None:
    driver = Driver()
    shut_down(driver)
    to_safety(driver)
    with pytest.raises(Refused):
        driver.give(RunOrder(profile='quick', pool='nosuch'))
    driver.run(3)
    assert driver.loop.shutdown.done


def test_lost_state_names_what_may_be_left_with_its_command() -> None:
    driver = Driver()
    driver.to_pinned()
    for key in driver.kv.data:
        if key.startswith('campaign/'):
            driver.kv.data[key] = '{}'
    driver.restart()
    driver.turn()
    detail = ' '.join(driver.cluster.checks['PERFGUARD_INTERRUPTED']['detail'])
    for command in ('ceph osd unset norebalance', 'ceph balancer on',
                    'ceph osd pool set rep pg_autoscale_mode on',
                    'ceph config rm mon paxos_propose_interval'):
        assert command in detail


def test_a_prepare_that_was_noted_before_the_shutdown_is_refused() -> None:
    driver = Driver()
    driver.loop._store.put('shutdown', {'since': 1.0})
    driver.loop._store.note(
        Request.document, encode(Request('prepare')), driver.cluster.now)
    driver.restart()
    driver.turn()
    assert driver.phase == 'IDLE' and driver.cluster.sent == []
    assert [event['what'] for event in driver.loop.published.events
            if event['kind'] == 'refused'] == ['campaign prepare']
    to_safety(driver)


def test_a_campaign_may_be_aborted_while_perfguard_shuts_down() -> None:
    """An abort is the way out where what is finished cannot end."""
    driver = Driver()
    driver.to_releasing()
    shut_down(driver, sure=True)
    assert not driver.loop.shutdown.done
    with pytest.raises(Refused) as refused:
        driver.ask('prepare')
    assert refused.value.errno == errno.EBUSY
    driver.ask('abort')
    driver.run_until(lambda: driver.phase in ('ABORTING', 'ABORTED'))


@pytest.mark.parametrize('phase, halted, flying, verb', [
    (Phase.RELEASING, False, True, 'abort'), (Phase.FINISHING, False, True, None),
    (Phase.FINISHING, True, True, 'abort'), (Phase.FINISHING, True, False, None),
    (Phase.ABORTING, True, True, None)])
def test_a_shutdown_waits_for_no_halt_to_end(phase: Phase, halted: bool, flying: bool,
                                             verb: Optional[str]) -> None:
    """A limit of latency_limits_ms may halt a campaign that is finishing forever."""
    flights = {'1.0': Flight(0.0, UpmapEntry())} if flying else {}
    request = next_request(campaign_of(1, phase, 0.0, in_flight=flights, pace=Pace(halted=halted)))
    assert (request and request.verb) == verb
