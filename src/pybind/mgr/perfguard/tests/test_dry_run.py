# SPDX-License-Identifier: LGPL-2.1-or-later
"""--dry-run of what is no change of CRUSH: says what would happen, and changes nothing."""
import errno
import types
from dataclasses import replace
from typing import Any, Callable, Dict, Tuple

import pytest

from perfguard.errors import Refused
from perfguard.ledger import Held
from perfguard.mitigation.report import listing, reverted_texts
from perfguard.mitigation.types import (LadderStep, MitigationState, Revert, Rung, Setting,
                                        SettingKind, StepStage)
from perfguard.rebalance import tables
from perfguard.rebalance.plans import PlanOrder
from perfguard.rebalance.requests import Request, effects
from perfguard.shutdown import ShutdownOrder

from .fakes.driver import Driver
from .rebalance.test_adopting import expanded
from .rebalance.test_mappings import a_pair, text
from .rebalance.test_plans import approve, plans, save, waiting
from .test_cli import Shell


@pytest.fixture()
def shell(mgr_stub: types.ModuleType) -> Shell:
    return shell_of(Driver())


def shell_of(driver: Driver) -> Shell:
    shell = Shell(driver)

    def ask(order: Any, again: bool = False) -> Any:
        return shell.driver.give(order)

    setattr(shell.driver.loop, 'ask', ask)
    return shell


def to_aborted(driver: Driver) -> None:
    driver.to_releasing()
    driver.ask('abort')
    driver.run_to('ABORTED')


def to_paused(driver: Driver) -> None:
    driver.to_releasing()
    driver.ask('pause')
    driver.run_to('HOLDING')
    driver.run(10)


def to_prepared(driver: Driver) -> None:
    driver.ask('prepare')
    driver.run_to('PREPARED')


#: All commands of a campaign that are promises.
COMMANDS: Tuple[Tuple[str, Dict[str, Any]], ...] = (
    ('prepare', {}), ('pin', {}), ('start', {}), ('pause', {}), ('pause', {'duration': '2h'}),
    ('resume', {}), ('abort', {}), ('finish', {}), ('finish', {'keep': True}),
    ('accept', {'code': 'LAGGY'}), ('accept', {'code': 'PG_LIMIT'}),
    ('set', {'setting': 'max_pgs_in_flight=7'}), ('set', {'setting': 'max_pgs_in_flight=x'}))


@pytest.mark.parametrize('reach', [lambda driver: None, to_prepared, Driver.to_pinned, to_paused,
                                   to_aborted])
def test_a_dry_run_is_refused_as_the_command_is_and_changes_nothing(
        shell: Shell, reach: Callable[[Driver], None]) -> None:
    driver = shell.driver
    reach(driver)
    driver.run(3)
    campaign, sent, events = (driver.loop.rebalance.campaign, list(driver.cluster.sent),
                              driver.loop.published.events)
    orders = campaign and campaign.orders
    accepted = 0
    for verb, arguments in COMMANDS:
        retval, out, error = shell('campaign ' + verb, dry_run=True, **arguments)
        if retval:
            assert (retval, out, error) == shell('campaign ' + verb, **arguments)
        else:
            assert 'would' in out and not error
            accepted += 1
        now = driver.loop.rebalance.campaign
        assert (now and (now.phase, now.orders)) == (campaign and (campaign.phase, orders))
    assert accepted
    assert driver.cluster.sent == sent
    assert [event for event in driver.loop.published.events[len(events):]
            if event['kind'] == 'request'] == []


def test_what_a_dry_run_says_is_what_happens(shell: Shell) -> None:
    driver = shell.driver
    to_paused(driver)
    pinned, in_flight = driver.status['pinned'], driver.status['in_flight']
    assert pinned and in_flight
    answer = shell.json('campaign abort', dry_run=True)
    assert (answer['verb'], answer['dry_run']) == ('abort', True)
    assert answer['effects'] == [
        'campaign 1 is HOLDING and would become ABORTING, which borrows: norebalance; balancer and '
        'autoscaler off',
        '%d PGs in flight would be pinned back, and what was copied of them is lost' % in_flight,
        '%d PGs would stay pinned until "campaign resume", "campaign rollback" or "campaign finish '
        '--keep"' % (pinned + in_flight)]
    assert shell('campaign abort', dry_run=True)[1] == '\n'.join(answer['effects'])
    assert shell.json('campaign abort')['dry_run'] is False
    driver.run_to('ABORTED')
    assert driver.status['pinned'] == pinned + in_flight
    assert shell.json('campaign finish', keep=True, dry_run=True)['effects'][1:] == [
        'the pins of %d PGs would become ordinary upmaps, which the balancer may change' % (
            pinned + in_flight),
        'given back: mgr/balancer/active, pg_autoscale_mode of pool rep']


def test_an_abort_pins_what_is_remapped(shell: Shell) -> None:
    driver = shell.driver
    to_prepared(driver)
    driver.run(3)
    assert len(shell.json('campaign abort', dry_run=True)['effects']) == 1
    driver.cluster.expand()
    driver.run_until(lambda: len(driver.cluster.remapped()) == 12)
    driver.run(3)
    assert shell.json('campaign abort', dry_run=True)['effects'][1:] == [
        '12 remapped PGs would be pinned where the data is',
        '12 PGs would stay pinned until "campaign resume", "campaign rollback" or "campaign finish '
        '--keep"']
    shell('campaign abort')
    driver.run_to('ABORTED')
    assert driver.status['pinned'] == 12


def test_the_values_that_a_setting_has_and_would_have(shell: Shell) -> None:
    to_paused(shell.driver)
    assert shell.json('campaign set', setting='max_pgs_in_flight=7', dry_run=True)['effects'] == [
        'campaign 1 would stay HOLDING', 'max_pgs_in_flight is 4 now and would be 7']
    assert shell.json('campaign accept', code='LAGGY', dry_run=True)['effects'][1:] == [
        'LAGGY would not stop releases until it has been absent for 10 minutes; now: it stops none']
    shell.driver.cluster.trouble = {'laggy': 1}
    shell.driver.run(3)
    text = shell.json('campaign accept', code='LAGGY', dry_run=True)['effects'][1]
    assert text.endswith('now: 1 PG is laggy')


def test_more_pins_than_are_accepted(shell: Shell) -> None:
    """Only the loop knows how many PGs are remapped."""
    driver = shell.driver
    driver.options = replace(driver.options, max_pins=5)
    to_prepared(driver)
    driver.cluster.expand()
    driver.run_until(lambda: len(driver.cluster.remapped()) == 12)
    retval, _, error = shell('campaign pin', dry_run=True)
    assert retval == -errno.E2BIG and '(limit 5 pins, max_pins)' in error
    assert shell('campaign pin', dry_run=True, accept=['PIN_LIMIT'])[0] == 0
    assert driver.phase == 'PREPARED'


def test_reverting_a_mitigation() -> None:
    settings = (Setting(SettingKind.CONFIG, 'osd_max_backfills', 'osd', Held(None, '1')),
                Setting(SettingKind.AFFINITY, '7', '', Held('1', '0'), done=True))
    state = MitigationState((LadderStep(3, Rung.SLOW, StepStage.HELD, 5.0, 'why',
                                        settings=settings),))
    assert reverted_texts(listing(state, 'act', (), 0.0), Revert(3)) == [
        'osd_max_backfills of osd would become unset again (now 1), for slow recovery']


def test_approving_a_plan(mgr_stub: types.ModuleType) -> None:
    driver = waiting()
    saved = save(driver)
    shown = driver.give(PlanOrder('plan approve', 'autumn', previews=True))
    assert (shown['dry_run'], shown['campaign'], shown['queued_behind']) == (True, None, None)
    assert {key: shown[key] for key in ('pgs', 'bytes')} == {
        key: saved['preview'][key] for key in ('pgs', 'bytes')}
    assert len(plans(driver)) == 1 and driver.cluster.sent == [] and driver.phase == 'IDLE'
    assert approve(driver)['dry_run'] is False


def test_approving_a_plan_that_would_be_queued() -> None:
    driver = waiting()
    save(driver)
    driver.ask('prepare')
    driver.turn()
    shown = driver.give(PlanOrder('plan approve', 'autumn', previews=True))
    assert (shown['dry_run'], shown['queued_behind']) == (True, 1)
    assert [row['state'] for row in plans(driver)] == ['ready']
    assert approve(driver)['dry_run'] is False
    assert [row['state'] for row in plans(driver)] == ['queued']


@pytest.mark.parametrize('verb, names', [('drain', ('osd.7',)), ('expand', ())])
def test_a_change_that_would_be_refused_now(verb: str, names: Tuple[str, ...]) -> None:
    warns_of_its_refusal(waiting(), tables.order, verb, *names)


def test_upmaps_that_would_not_be_taken_over_now() -> None:
    cluster, _, _ = expanded()
    warns_of_its_refusal(Driver(cluster), tables.adoption, 'adopt')
    mappings = text([a_pair(cluster, '1.2')])
    warns_of_its_refusal(Driver(cluster), tables.importing, 'import', mappings=mappings)


def warns_of_its_refusal(driver: Driver, table: Callable[[Any], str], verb: str, *names: str,
                         **given: Any) -> None:
    assert driver.order(verb, *names, dry_run=True, **given)['warnings'] == []
    driver.ask('prepare')
    driver.turn()
    shown = driver.order(verb, *names, dry_run=True, **given)
    with pytest.raises(Refused) as refused:
        driver.order(verb, *names, **given)
    (warning,) = shown['warnings']
    assert warning == 'the order would be refused now: %s' % refused.value
    assert 'campaign 1 is ' in warning and warning in table(shown)


def test_what_is_withdrawn(mgr_stub: types.ModuleType) -> None:
    shell = shell_of(waiting())
    driver = shell.driver
    driver.order('replace', 'osd.7')
    driver.run_until(lambda: driver.phase == 'RELEASING')
    save(driver)
    assert approve(driver)['queued_behind'] == 1
    driver.turn()
    plan = 'the approval of plan autumn will be withdrawn'
    ends = [plan, 'the replacement of osd.7 will end: the new devices are not filled at the pace '
            'of clients']
    assert driver.give(ShutdownOrder(dry_run=True))['effects'][-2:] == ends
    assert plan == shell.json('campaign abort', dry_run=True)['effects'][-1]
    assert effects(Request('finish', keep=True), driver.loop.published.rebalanced, (),
                   driver.options, arriving=0)[-2:] == ends
    with pytest.raises(Refused, match='the replacement of osd.7 will end'):
        driver.give(ShutdownOrder())
    shell.json('campaign abort')
    driver.run_to('ABORTED')
    driver.turn()
    assert [row['state'] for row in plans(driver)] != ['queued']


def test_a_shutdown() -> None:
    driver = Driver()
    driver.to_pinned()
    answer = driver.give(ShutdownOrder(dry_run=True))
    assert answer['message'].startswith('campaign 1 is PINNED and will be aborted\n')
    assert not answer['safe'] and answer['held']
    driver.run(5)
    assert driver.phase == 'PINNED' and not driver.loop.jobs.shutdown.ordered
