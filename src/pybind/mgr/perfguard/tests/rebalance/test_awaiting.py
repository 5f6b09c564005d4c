# SPDX-License-Identifier: LGPL-2.1-or-later
"""`expand --await`, from the order to the campaign that fills the OSDs."""
import contextlib
import errno
from dataclasses import replace
from typing import Any, Dict, List, Optional, Sequence, Set

import pytest

from perfguard.cluster.orchestrator import Orchestrating
from perfguard.cluster.types import ConfigEntry, Osd, Space
from perfguard.errors import Code, Refused
from perfguard.ledger import Held
from perfguard.rebalance.awaiting import (BOOT_SECONDS, KIND, NewOsds, never_led, option_to_borrow,
                                          new_osds, weight_found)
from perfguard.rebalance.campaign import COUNT_SECONDS
from perfguard.rebalance.holds import INITIAL_WEIGHT
from perfguard.rebalance.orders import AWAIT, UNREPORTED, Order
from perfguard.rebalance.plans import APPROVE, SAVE, PlanOrder
from perfguard.shutdown import ShutdownOrder
from perfguard.store import Store

from ..fakes.cluster import FakeCluster
from ..fakes.driver import OPTIONS, Driver, codes
from .test_orders import facts as order_facts

KEY = 'osd', INITIAL_WEIGHT


def a_driver(who: str = '', value: str = '', settle: float = 20.0) -> Driver:
    """`value`: of the option in the section `who`."""
    driver = Driver(FakeCluster(), replace(OPTIONS, auto_expand_settle=settle))
    if who:
        driver.cluster.osd_config[who, INITIAL_WEIGHT] = value
    return driver


def give(driver: Driver, **more: Any) -> Dict[str, Any]:
    """The answer to the order, once the option is in force."""
    waiting = driver.loop.requests.submit(Order(AWAIT, **more))
    for _ in range(4):
        if waiting.done.is_set():
            break
        driver.turn()
    if waiting.refused is not None:
        raise waiting.refused
    assert waiting.answer is not None
    return waiting.answer


def awaiting(who: str = '', value: str = '') -> Driver:
    driver = a_driver(who, value)
    give(driver)
    return driver


def option(driver: Driver) -> Optional[str]:
    return driver.cluster.osd_config.get(KEY)


def told(driver: Driver) -> str:
    return str(driver.loop.status()['reasons'][0])


def ends(driver: Driver) -> List[str]:
    return [event['why'] for event in driver.loop.published.events
            if event['kind'] == KIND and 'has ended' in event['what']]


def filled_by(driver: Driver) -> Set[int]:
    """The OSDs of the campaign."""
    campaign = driver.loop.rebalance.campaign
    assert campaign.change is not None
    return set(campaign.change.weights)


def weights(driver: Driver) -> Dict[int, float]:
    return {osd: toy.crush_weight for osd, toy in driver.cluster.toys.items()}


def weigh_all(driver: Driver, weight: float) -> None:
    """Give all OSDs this weight, which is not their size in TiB."""
    driver.cluster.toys = {osd: toy._replace(crush_weight=weight)
                           for osd, toy in driver.cluster.toys.items()}


def test_osds_that_boot_later_are_expanded_together() -> None:
    driver = a_driver()
    answer = give(driver)
    assert option(driver) == '0' and answer['put'] == '0' and answer['campaign'] is None
    held, = driver.loop.published.ledger.rows
    assert (held.name, held.owner.value) == (INITIAL_WEIGHT, AWAIT)
    assert held.restore == 'ceph config rm osd osd_crush_initial_weight'
    assert codes(driver.loop.status())[0] == Code.AWAITS_OSDS and 'none so far' in told(driver)
    driver.cluster.add_waiting(3)
    driver.run(11)
    assert '3 so far (osd.8, osd.9, osd.10); expands in' in told(driver)
    assert driver.status['id'] is None
    driver.run_until(lambda: driver.status['trigger'] == 'expand')
    driver.run_to('DONE')
    assert {weights(driver)[osd] for osd in (8, 9, 10)} == {1.0}
    driver.run(3)
    assert ends(driver) == ['campaign 1 has ended']
    assert driver.cluster.clean() and not driver.loop.published.ledger.rows
    assert Store(driver.kv).get('await') is None


def test_old_osds_are_drained_with_the_campaign_that_fills_the_new_ones() -> None:
    driver = a_driver()
    with pytest.raises(Refused, match='no OSD, host or rack'):
        give(driver, drain=('h99',))
    assert option(driver) is None
    assert 'are expanded, and osd.0 drained, once' in give(driver, drain=('osd.0',))['message']
    driver.cluster.add_waiting(3)
    driver.restart()
    driver.turn()
    driver.run_until(lambda: driver.status['trigger'] == 'expand')
    assert filled_by(driver) == {0, 8, 9, 10}
    driver.run_to('DONE')
    assert weights(driver)[0] == 0.0 and weights(driver)[8] == 1.0
    driver.run(3)
    assert ends(driver) == ['campaign 1 has ended'] and option(driver) is None


def test_nothing_begins_before_the_osds_stand_still() -> None:
    driver = awaiting()
    driver.cluster.add_waiting(1)
    driver.run(20)
    driver.cluster.add_waiting(2)
    driver.run(18)
    assert driver.status['id'] is None and 'osd.10' in told(driver)
    driver.run_until(lambda: driver.status['id'] == 1, turns=30)
    assert filled_by(driver) == {8, 9, 10}


def test_osds_that_were_empty_before_stay_empty() -> None:
    driver = a_driver()
    driver.cluster.add_waiting(1)
    driver.run(2)
    assert give(driver)['left_out'] == [{'osd': 8, 'reason': 'has CRUSH weight 0 already'}]
    driver.run(60)
    assert driver.status['id'] is None and 'none so far' in told(driver)
    driver.cluster.add_waiting(2)
    driver.run_to('DONE')
    assert weights(driver)[8] == 0.0 and weights(driver)[9] == 1.0


def test_an_osd_that_others_empty_stays_empty() -> None:
    """It was never a primary, so only the record of the order shows that it is not new."""
    facts = order_facts({3: 1.0, 4: 1.0}, osds={
        3: Osd(3, True, 1.0, uuid='hdd'), 4: Osd(4, True, 1.0, up_thru=9, uuid='led')})
    others = never_led(facts)
    assert others[3] == 'hdd' and 4 not in others
    emptied = order_facts({3: 0.0}, osds={3: Osd(3, True, 1.0, uuid='hdd')})
    assert new_osds({}, emptied).osds == (3, 8, 9)
    assert new_osds(others, emptied) == NewOsds()


def test_an_abort_ends_the_wait() -> None:
    driver = awaiting()
    driver.cluster.add_waiting(1)
    driver.run(12)
    driver.ask('abort')
    driver.run(60)
    assert option(driver) is None and driver.status['id'] is None
    assert weights(driver)[8] == 0.0 and ends(driver) == ['"campaign abort" was ordered']
    with pytest.raises(Refused, match='no campaign is active'):
        driver.ask('abort')


def test_an_abort_of_a_campaign_does_not_end_the_wait() -> None:
    driver = awaiting()
    driver.order('drain', 'osd.3')
    driver.run_to('RELEASING')
    assert any('once campaign 1 has ended, "campaign abort" ends the wait' in reason
               for reason in driver.loop.status()['reasons'])
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.run(5)
    assert driver.loop.rebalance.awaiting.waits and option(driver) == '0'
    driver.ask('abort')
    driver.run(3)
    assert not driver.loop.rebalance.awaiting.unfinished and option(driver) is None
    assert driver.phase == 'ABORTED'


def test_nor_does_it_if_a_plan_is_withdrawn_with_the_campaign() -> None:
    driver = awaiting()
    driver.order('drain', 'osd.3')
    driver.run_to('RELEASING')
    driver.give(PlanOrder(SAVE, 'next', Order('drain', ('osd.4',))))
    driver.give(PlanOrder(APPROVE, 'next'))
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.run(5)
    plan, = driver.loop.rebalance.plans.saved.all()
    assert plan.refused == 'campaign 1 is ABORTED'
    assert driver.loop.rebalance.awaiting.waits and option(driver) == '0'


def test_osds_that_boot_during_the_campaign_stay_empty() -> None:
    driver = awaiting()
    driver.cluster.add_waiting(2)
    driver.run_to('RELEASING')
    assert option(driver) == '0'
    driver.restart()
    late, = driver.cluster._new_osds(1, 0.0)
    driver.run(12)
    keeps = 'osd.%d keeps CRUSH weight 0 ("ceph perfguard expand" fills it)' % late
    assert keeps in driver.loop.status()['reasons']
    with pytest.raises(Refused, match='campaign 1 fills the OSDs of the previous order'):
        give(driver)
    driver.run_to('DONE')
    driver.run(5)
    assert option(driver) is None and ends(driver) == ['campaign 1 has ended; ' + keeps]
    assert weights(driver)[late] == 0.0 and driver.status['id'] == 1


def test_an_abort_of_the_campaign_keeps_osds_empty_until_it_is_decided() -> None:
    driver = awaiting()
    driver.cluster.add_waiting(2)
    driver.run_to('RELEASING')
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.run(60)
    assert option(driver) == '0' and driver.status['id'] == 1
    driver.ask('resume')
    driver.run_to('DONE')
    driver.run(5)
    assert option(driver) is None and driver.status['id'] == 1


@pytest.mark.parametrize('at', (1, 12, 25))
def test_the_next_mgr_goes_on(at: int) -> None:
    driver = awaiting()
    driver.cluster.add_waiting(2)
    driver.run(at)
    driver.restart()
    driver.run_to('DONE')
    driver.run(3)
    assert option(driver) is None and driver.status['id'] == 1 and driver.cluster.clean()


def test_a_wait_expires() -> None:
    driver = a_driver(settle=3600.0)
    give(driver, within=60.0)
    driver.cluster.add_waiting(1)
    driver.run(70)
    assert option(driver) is None and driver.status['id'] is None
    assert 'within 60 s; osd.8 keeps CRUSH weight 0 ("ceph perfguard expand" fills it)' \
        in ends(driver)[0]
    driver.restart()
    driver.run(3)
    assert 'osd.8 keeps CRUSH weight 0' in told(driver)
    assert not driver.loop.rebalance.awaiting.unfinished
    assert not driver.loop.rebalance.busy
    driver.order('expand', weight='1')
    driver.run_until(lambda: weights(driver)[8] > 0.0)
    driver.run(2)
    assert 'osd.8 keeps' not in str(driver.loop.status()) and Store(driver.kv).get('await') is None


def test_osds_of_an_expired_wait_are_named_although_the_mons_refused_the_value_before() -> None:
    driver = a_driver('osd', '1.5', settle=3600.0)
    give(driver, within=60.0)
    driver.cluster.add_waiting(1)
    driver.cluster.refuse['config set osd_crush_initial_weight'] = 'read-only'
    driver.run(70)
    assert option(driver) == '0' and len(ends(driver)) == 1
    driver.cluster.sent.clear()
    driver.run(300)
    # The mons log each command.
    assert 5 < len([command for command in driver.cluster.sent
                    if command['prefix'] == 'config set']) <= 10
    driver.cluster.refuse.clear()
    driver.run(32)
    assert option(driver) == '1.5'
    assert told(driver) == 'osd.8 keeps CRUSH weight 0 ("ceph perfguard expand" fills it)'


def test_time_in_which_another_campaign_keeps_new_osds_empty_does_not_count() -> None:
    driver = a_driver()
    give(driver, within=200.0)
    driver.to_releasing()
    driver.ask('pause')
    driver.cluster.add_waiting(1)
    driver.run(150)
    assert option(driver) == '0' and 'expands once campaign 1 has ended' in str(
        driver.loop.status()['reasons'])
    driver.ask('resume')
    driver.run_to('DONE')
    driver.run_until(lambda: driver.status['id'] == 2)
    assert filled_by(driver) == {11}


@pytest.mark.parametrize('found', [None, '1.5'])
def test_a_campaign_that_delays_the_expansion_keeps_no_later_osd_empty(
        found: Optional[str]) -> None:
    """It may last for weeks, in which OSDs of other orders boot."""
    driver = a_driver() if found is None else a_driver('osd', found)
    give(driver, within=240.0)
    driver.to_releasing()
    driver.ask('pause')
    driver.cluster.add_waiting(1)
    driver.run(200)
    assert option(driver) == '0'
    driver.run(50)
    driver.restart()
    driver.run(80)
    assert option(driver) == found and driver.loop.rebalance.awaiting.waits
    assert not driver.loop.rebalance.awaiting.busy and not driver.loop.rebalance.awaiting.held
    assert '; OSDs that boot now are not awaited' in str(driver.loop.status()['reasons'])
    assert [event['what'] for event in driver.loop.published.events
            if event['what'].startswith('OSDs that boot')] == [
                'OSDs that boot from now on are not awaited']
    # Those of before are filled nevertheless.
    driver.ask('resume')
    driver.run_to('DONE')
    driver.run_until(lambda: driver.status['id'] == 2)
    assert filled_by(driver) == {11}
    driver.run_to('DONE')
    driver.run(3)
    assert option(driver) == found and not driver.loop.rebalance.awaiting.unfinished


def test_mons_that_refuse_to_restore_the_option_end_no_expansion() -> None:
    driver = a_driver('osd', '1.5')
    give(driver, within=240.0)
    driver.to_releasing()
    driver.ask('pause')
    driver.cluster.add_waiting(1)
    driver.cluster.refuse['config set osd_crush_initial_weight'] = 'read-only'
    driver.run(250)
    assert option(driver) == '0' and driver.loop.rebalance.awaiting.waits and not ends(driver)
    driver.cluster.refuse.clear()
    driver.run(80)
    assert option(driver) == '1.5' and driver.loop.rebalance.awaiting.waits


def test_a_wait_without_new_osds_expires_during_another_campaign() -> None:
    driver = a_driver()
    give(driver, within=200.0)
    driver.to_releasing()
    driver.ask('pause')
    driver.run(300)
    assert option(driver) is None and 'within 3 min' in ends(driver)[0]


def test_a_wait_begins_after_one_that_has_expired() -> None:
    driver = a_driver(settle=3600.0)
    give(driver, within=60.0)
    driver.cluster.add_waiting(1)
    driver.run(70)
    assert give(driver)['left_out'] == [{'osd': 8, 'reason': 'has CRUSH weight 0 already'}]
    assert 'none so far' in told(driver)


def test_a_shutdown_forgets_the_osds_of_a_wait_that_has_expired() -> None:
    driver = a_driver(settle=3600.0)
    give(driver, within=60.0)
    driver.cluster.add_waiting(1)
    driver.run(70)
    driver.give(ShutdownOrder())
    driver.run(3)
    assert driver.loop.shutdown.done and Store(driver.kv).get('await') is None


def test_the_value_of_operators_is_restored() -> None:
    driver = a_driver('osd', '1.5')
    answer = give(driver)
    assert answer['found'] == '1.5' and '1.5 before' in answer['message']
    assert option(driver) == '0'
    driver.ask('abort')
    driver.run(5)
    assert option(driver) == '1.5'


@pytest.mark.parametrize('where', ('osd', 'global'))
def test_osds_get_the_weight_that_operators_have_set(where: str) -> None:
    driver = a_driver(where, '0.25')
    weigh_all(driver, 0.25)
    assert 'their CRUSH weight is then 0.25' in give(driver)['message']
    driver.cluster.add_waiting(2)
    driver.run_until(lambda: weights(driver)[8] > 0.0)
    assert weights(driver)[8] == weights(driver)[9] == 0.25


def test_a_weight_that_others_do_not_have_is_left_to_the_operator() -> None:
    driver = awaiting()
    weigh_all(driver, 0.25)
    driver.cluster.add_waiting(2)
    driver.run(60)
    assert driver.status['id'] is None and option(driver) == '0'
    assert '"--weight 0.25" gives osd.8 as much data per TiB' in told(driver)
    driver.order('expand', weight='0.25')
    driver.run_until(lambda: weights(driver)[8] > 0.0)
    assert weights(driver)[8] == weights(driver)[9] == 0.25


@pytest.mark.parametrize('where', ('osd', 'global'))
def test_a_weight_of_0_that_others_have_set_is_not_borrowed(where: str) -> None:
    driver = awaiting(where, '0.000000')
    found = dict(driver.cluster.osd_config)
    assert not driver.loop.published.ledger.rows
    driver.cluster.add_waiting(1)
    driver.run_to('DONE')
    assert driver.cluster.osd_config == found


ORDERED = ('OSDs that boot start with CRUSH weight 0, and are expanded%s once no other one has '
           'appeared for 20 s. This ends with their campaign, or after %s without one; '
           'osd_crush_initial_weight %s. "campaign abort" ends the wait%s')


@pytest.mark.parametrize('value, waiting, order, message', [
    ('', 0, {}, ORDERED % ('', '24.0 h', 'of the OSDs is 0 until then (not set before)', '')),
    ('', 1, {'drain': ('osd.0', 'osd.1')}, ORDERED % (
        ', and osd.0, osd.1 drained,', '24.0 h', 'of the OSDs is 0 until then (not set before)',
        '; 1 earlier OSD of weight 0 is left out')),
    ('1.5', 2, {'within': 600.0}, ORDERED % (
        '', '10 min', 'of the OSDs is 0 until then (1.5 before, which is restored); their CRUSH '
        'weight is then 1.5', '; 2 earlier OSDs of weight 0 are left out')),
    ('0', 0, {'weight': '2'}, ORDERED % (
        '', '24.0 h', 'is 0 already, and stays 0; their CRUSH weight is then 2', ''))])
def test_the_answer_to_the_order(value: str, waiting: int, order: Dict[str, Any],
                                 message: str) -> None:
    driver = a_driver('osd' if value else '', value)
    if waiting:
        driver.cluster.add_waiting(waiting)
    driver.run(2)
    ordered_at = driver.cluster.now
    assert give(driver, dry_run=True, **order) == {
        'verb': AWAIT, 'dry_run': True, 'campaign': None, 'option': INITIAL_WEIGHT,
        'found': value if value == '1.5' else None, 'put': None if value == '0' else '0',
        'expires': ordered_at + order.get('within', 86400.0), 'settle_seconds': 20.0,
        'left_out': [{'osd': osd, 'reason': 'has CRUSH weight 0 already'}
                     for osd in range(8, 8 + waiting)],
        'message': message}


def entries_of(*values: str) -> List[ConfigEntry]:
    """From "section=value", or "section/mask=value"."""
    rows = [(*value.partition('=')[0].partition('/'), value.partition('=')[2]) for value in values]
    return [ConfigEntry(section, mask, INITIAL_WEIGHT, value) for section, _, mask, value in rows]


@pytest.mark.parametrize('values, weight, option', [
    ((), None, Held(None, '0')), (('osd=-1',), None, Held('-1', '0')),
    (('osd= -1.000000',), None, Held(' -1.000000', '0')), (('osd=0.000000',), None, None),
    (('osd=0.5',), '0.5', Held('0.5', '0')), (('global=0.5',), '0.5', Held(None, '0')),
    (('global=0',), None, None), (('global=0', 'osd=2'), '2', Held('2', '0')),
    (('global=2', 'osd=0'), None, None), (('mon=2', 'osd/class:hdd=0'), None, Held(None, '0'))])
def test_what_is_borrowed_and_the_weight_that_osds_get(
        values: Sequence[str], weight: Optional[str], option: Optional[Held]) -> None:
    assert weight_found(entries_of(*values)) == weight
    assert option_to_borrow(entries_of(*values)) == option


def test_a_refusal_names_each_option_for_some_osds() -> None:
    with pytest.raises(Refused) as refused:
        option_to_borrow(entries_of('osd=1', 'osd/host:a=2', 'osd.9=0', 'osd.10=3',
                                    'global/class:x=4'))
    assert str(refused.value) == (
        'osd_crush_initial_weight is 2 for osd/host:a, 3 for osd.10, 4 for global/class:x: such '
        'OSDs would boot with that CRUSH weight; remove it first '
        '("ceph config rm osd/host:a osd_crush_initial_weight", '
        '"ceph config rm osd.10 osd_crush_initial_weight", '
        '"ceph config rm global/class:x osd_crush_initial_weight")')


@pytest.mark.parametrize('who', ('osd/class:hdd', 'osd.9'))
def test_an_option_for_some_osds_is_a_refusal(who: str) -> None:
    driver = a_driver(who, '1')
    with pytest.raises(Refused, match='"ceph config rm %s osd_crush_init' % who) as refused:
        give(driver)
    assert refused.value.errno == errno.EPERM and option(driver) is None


def test_an_option_for_some_osds_may_be_0() -> None:
    assert option_to_borrow([ConfigEntry('osd', 'class:hdd', INITIAL_WEIGHT, '0')]) \
        == Held(None, '0')


@pytest.mark.parametrize('value, text', [('', 'it is not set'), ('0.5', 'it is 0.5')])
def test_what_is_given_back_is_reported_as_others_may_have_set_0_too(
        value: str, text: str) -> None:
    """The cluster does not show an order that changes nothing."""
    driver = awaiting('osd' if value else '', value)
    driver.cluster.osd_config[KEY] = '0'
    driver.ask('abort')
    driver.run(10)
    assert (option(driver) or '') == value
    assert [event['why'] for event in driver.loop.published.events
            if event['what'] == 'osd_crush_initial_weight was given back'] == [text]


def test_a_change_by_others_ends_the_wait() -> None:
    driver = awaiting()
    driver.cluster.osd_config[KEY] = '2'
    driver.run(40)
    assert option(driver) == '2' and 'changed outside perfguard' in ends(driver)[0]


def test_a_zero_of_others_that_disappears_ends_the_wait() -> None:
    driver = awaiting('osd', '0')
    driver.run(40)
    assert driver.loop.rebalance.awaiting.waits
    del driver.cluster.osd_config[KEY]
    driver.run(32)
    assert not driver.loop.rebalance.awaiting.unfinished and option(driver) is None
    assert 'osd_crush_initial_weight is no longer 0' in ends(driver)[0]


@pytest.mark.parametrize('who', ('osd/host:new9', 'osd.9'))
def test_another_value_for_some_osds_ends_the_wait(who: str) -> None:
    driver = awaiting()
    driver.cluster.osd_config[who, INITIAL_WEIGHT] = '9'
    driver.run(35)
    assert option(driver) is None and driver.cluster.osd_config[who, INITIAL_WEIGHT] == '9'
    assert 'osd_crush_initial_weight is 9 for %s' % who in ends(driver)[0]


def test_an_option_that_the_mons_refuse_ends_the_wait() -> None:
    driver = a_driver()
    driver.cluster.refuse['config set osd_crush_initial_weight'] = 'no such option'
    with pytest.raises(Refused, match='the mons did not accept osd_crush_initial_weight 0'):
        give(driver)
    driver.run(5)
    assert not driver.loop.rebalance.awaiting.unfinished


@pytest.mark.parametrize('dry_run', (False, True))
def test_one_wait_at_a_time(dry_run: bool) -> None:
    driver = awaiting()
    with pytest.raises(Refused, match='awaited already: "campaign abort" ends'):
        give(driver, dry_run=dry_run)


def test_osds_that_others_weigh_do_not_end_the_wait() -> None:
    driver = awaiting()
    driver.cluster.add_waiting(1)
    driver.run(15)
    driver.cluster.toys[8] = driver.cluster.toys[8]._replace(crush_weight=0.5)
    driver.cluster.crush_version_ += 1
    driver.run(15)
    assert option(driver) == '0' and 'none so far' in str(driver.loop.status()['reasons'])
    driver.cluster.add_waiting(1)
    driver.run_until(lambda: driver.phase == 'RELEASING')
    driver.run_to('DONE')
    driver.run(5)
    assert option(driver) is None and driver.cluster.toys[8].crush_weight == 0.5
    assert driver.cluster.toys[9].crush_weight > 0.5


def test_a_preview_changes_nothing() -> None:
    driver = a_driver('osd', '1.5')
    sent = len(driver.cluster.sent)
    answer = give(driver, dry_run=True, within=7200.0)
    assert answer['found'] == '1.5' and 'after 2.0 h without one' in answer['message']
    assert len(driver.cluster.sent) == sent and not driver.loop.rebalance.awaiting.unfinished


def test_a_shutdown_gives_the_option_back() -> None:
    driver = awaiting()
    with pytest.raises(Refused, match='"expand --await" will end'):
        driver.give(ShutdownOrder())
    driver.give(ShutdownOrder(True))
    driver.run(4)
    assert driver.loop.shutdown.done and option(driver) is None


@pytest.mark.parametrize('refused', ({'weight': 'x'}, {'dry_run': True}))
def test_a_shutdown_stays_complete_without_an_accepted_order(refused: Dict[str, Any]) -> None:
    driver = a_driver()
    driver.give(ShutdownOrder(True))
    driver.run(3)
    with contextlib.suppress(Refused):
        give(driver, **refused)
    assert driver.loop.shutdown.done
    give(driver)
    assert not driver.loop.shutdown.done


def test_osds_that_do_not_serve_yet_are_awaited() -> None:
    driver = awaiting()
    driver.cluster.add_waiting(2)
    driver.cluster.take_down(9)
    driver.run(40)
    assert 'expands when osd.9, which is not up yet, is ready' in told(driver)
    driver.cluster.toys[9] = driver.cluster.toys[9]._replace(up=True, reweight=0.0)
    driver.cluster.epoch += 1
    driver.run(11)
    assert '"ceph osd in 9"' in told(driver)
    driver.cluster.revive(9)
    driver.run_until(lambda: driver.status['id'] == 1)
    assert filled_by(driver) == {8, 9}


def test_an_osd_that_never_boots_does_not_keep_the_others_empty() -> None:
    driver = awaiting()
    driver.cluster.add_waiting(2)
    driver.cluster.take_down(9)
    driver.run(int(BOOT_SECONDS))
    assert driver.status['id'] is None
    driver.run_until(lambda: driver.status['id'] == 1, turns=40)
    assert filled_by(driver) == {8}


def test_an_osd_that_flaps_does_not_keep_the_others_empty() -> None:
    driver = awaiting()
    driver.cluster.add_waiting(3)
    for turn in range(int(BOOT_SECONDS) + 40):
        if turn % 22 == 0:
            driver.cluster.take_down(10)
        elif turn % 22 == 11:
            driver.cluster.revive(10)
        driver.turn()
    assert driver.status['id'] == 1 and filled_by(driver) >= {8, 9}


def with_hosts(driver: Driver, *hosts: str) -> None:
    """The orchestrator manages these."""
    driver.cluster.orchestrator = Orchestrating(present=True, hosts=frozenset(hosts))


def test_the_osds_of_all_hosts_that_the_orchestrator_has_added_are_expanded_together() -> None:
    """It creates those of the second host minutes after those of the first."""
    driver = a_driver()
    with_hosts(driver, 'h0', 'monitor')
    give(driver)
    first, = driver.cluster.add_waiting(1)
    with_hosts(driver, 'h0', 'monitor', 'h%d.example.com' % first, 'h%d' % (first + 1))
    driver.run(60)
    assert driver.status['id'] is None
    assert 'expands when h%d, which the orchestrator has added, has OSDs, or in 9 min' % (
        first + 1) in told(driver)
    driver.restart()
    driver.run(60)
    assert driver.status['id'] is None
    second, = driver.cluster.add_waiting(1)
    driver.run_until(lambda: driver.status['id'] == 1, turns=60)
    assert filled_by(driver) == {first, second}


def test_several_hosts_that_the_orchestrator_has_added_are_named() -> None:
    driver = a_driver()
    with_hosts(driver, 'h0')
    give(driver)
    driver.cluster.add_waiting(1)
    with_hosts(driver, 'h0', 'h8', 'h9', 'h10')
    driver.run(30)
    assert 'expands when h10, h9, which the orchestrator has added, have OSDs' in told(driver)


def test_a_host_without_osds_does_not_keep_osds_empty_for_good() -> None:
    driver = a_driver()
    with_hosts(driver, 'h0')
    give(driver)
    driver.cluster.add_waiting(1)
    with_hosts(driver, 'h0', 'monitor')
    driver.run(int(BOOT_SECONDS))
    assert driver.status['id'] is None
    driver.run_until(lambda: driver.status['id'] == 1, turns=40)


def test_an_orchestrator_that_appears_later_delays_nothing() -> None:
    """Which of its hosts were there before is not known."""
    driver = awaiting()
    driver.cluster.add_waiting(1)
    with_hosts(driver, 'h0', 'monitor')
    driver.run_until(lambda: driver.status['id'] == 1, turns=60)


def test_an_expansion_that_is_refused_is_tried_again() -> None:
    driver = awaiting()
    driver.cluster.add_waiting(2)
    driver.cluster.take_down(3)
    driver.run(40)
    assert driver.status['id'] is None and 'it begins when this has cleared' in told(driver)
    assert '"campaign abort" ends the wait' in told(driver)
    refused, = [event for event in driver.loop.published.events if event['kind'] == 'refused']
    assert refused['what'] == 'expand osd.8, osd.9' and 'perfguard will retry' in refused['why']
    driver.cluster.revive(3)
    driver.run_to('DONE')


def test_an_expansion_begins_soon_after_its_reason_to_wait_has_cleared() -> None:
    driver = awaiting()
    driver.cluster.add_waiting(2)
    driver.cluster.take_down(3)
    driver.run(40)
    submitted = driver.tools.submitted
    driver.run(65)
    assert driver.status['id'] is None and driver.tools.submitted == submitted
    driver.cluster.revive(3)
    driver.run_until(lambda: driver.status['id'] == 1, turns=15)


def test_the_expansion_by_an_operator_ends_the_wait() -> None:
    driver = awaiting()
    driver.cluster.add_waiting(2)
    driver.run(12)
    driver.order('expand')
    driver.run_to('DONE')
    driver.run(3)
    assert ends(driver) == ['campaign 1 has ended'] and option(driver) is None


def test_osds_wait_for_the_end_of_another_campaign() -> None:
    driver = a_driver()
    driver.cluster.add_waiting(1)
    driver.turn()
    driver.order('expand')
    give(driver)
    driver.run_to('RELEASING')
    driver.ask('pause')
    driver.cluster.add_waiting(1)
    driver.run_until(lambda: any('expands once campaign 1 has ended' in reason
                                 for reason in driver.loop.status()['reasons']))
    for _ in range(100):
        driver.turn(60.0)
    driver.ask('resume')
    driver.run_to('DONE')
    driver.run(10)
    assert driver.status['id'] == 2


def test_the_pins_of_an_aborted_campaign_are_left_to_the_operator() -> None:
    driver = a_driver()
    driver.to_releasing()
    driver.ask('abort')
    driver.run_to('ABORTED')
    give(driver)
    driver.cluster.add_waiting(1)
    driver.run(60)
    assert driver.phase == 'ABORTED' and '"campaign resume"' in told(driver)


def test_no_wait_without_a_campaign_that_may_begin() -> None:
    driver = a_driver()
    driver.options = replace(driver.options, begin_time='25:00')
    with pytest.raises(Refused, match='invalid module options'):
        give(driver)
    with pytest.raises(Refused, match='weight'):
        give(a_driver(), weight='x')


@pytest.mark.parametrize('ahead', (3600.0, -3600.0))
def test_the_wait_is_as_long_if_the_clock_of_the_next_mgr_differs(ahead: float) -> None:
    """Seconds since the last count do not count."""
    driver = a_driver()
    driver.cluster.now += 10000.0  # no time is before the epoch
    give(driver, within=300.0)
    begun = driver.cluster.now
    driver.run(130)
    driver.cluster.ahead += ahead
    driver.restart()
    driver.turn()
    driver.run_until(lambda: not driver.loop.rebalance.awaiting.unfinished, 400)
    assert option(driver) is None and 'within 5 min' in ends(driver)[0]
    assert 300.0 <= driver.cluster.now - begun <= 300.0 + COUNT_SECONDS + 10.0


@pytest.mark.parametrize('ahead', (3600.0, -3600.0))
def test_osds_stand_still_as_long_if_the_clock_of_the_next_mgr_differs(ahead: float) -> None:
    driver = a_driver(settle=100.0)
    driver.cluster.now += 10000.0
    give(driver)
    driver.cluster.add_waiting(1)
    created = driver.cluster.now
    driver.run(30)
    driver.cluster.ahead += ahead
    driver.restart()
    driver.turn()
    driver.run_until(lambda: driver.status['id'] == 1, 300)
    assert 100.0 <= driver.cluster.now - created <= 100.0 + COUNT_SECONDS + 20.0


def test_only_new_osds_are_taken() -> None:
    facts = order_facts({10: 0.0, 11: 0.0, 12: 0.0}, drained={8: 1.0}, osds={
        9: Osd(9, True, 1.0, up_thru=1), 10: Osd(10, True, 1.0, uuid='new'),
        11: Osd(11, True, 1.0, destroyed=True), 13: Osd(13, True, 1.0)})
    late = {12: UNREPORTED, 13: 'is not in CRUSH ("ceph osd crush add osd.13 0 host=...")'}
    facts = replace(facts, space={**facts.space, 12: Space(1, 0, None)})
    assert new_osds({}, facts) == NewOsds((10,), late)
    assert new_osds({10: 'new'}, facts) == NewOsds((), late)
    assert new_osds({10: 'old'}, facts).osds == (10,)


def test_a_stored_wait_that_cannot_be_read_is_reported() -> None:
    driver = awaiting()
    Store(driver.kv).put('await', {'since': 'x'})
    driver.restart()
    driver.turn()
    assert 'expand --await' in str(driver.loop._store.losses)


def test_the_journal_is_with_the_mons_before_the_option_is_set() -> None:
    driver = a_driver()
    driver.kv.losing = True
    waiting = driver.loop.requests.submit(Order(AWAIT))
    driver.run(3)
    assert option(driver) is None and not waiting.done.is_set()
    driver.kv.losing = False
    driver.run(5)
    assert option(driver) == '0' and waiting.answer is not None
