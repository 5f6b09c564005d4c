# SPDX-License-Identifier: LGPL-2.1-or-later
"""Nothing is sent that the mons have not journalled, and one mgr alone acts."""
import errno
from dataclasses import replace
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import pytest

from ..mitigation.types import Revert
from perfguard.errors import CHECK, Refused
from perfguard.rebalance.orders import Order
from perfguard.rebalance.plans import APPROVE, SAVE, PlanOrder
from perfguard.shutdown import ShutdownOrder
from perfguard.store import OWNER

from .fakes.cluster import FakeCluster, MemoryKv
from .fakes.driver import OPTIONS, Driver
from .rebalance.test_joining import waiting
from .test_crash_matrix import EXPAND, mappings, small


def act(driver: Driver, way: str) -> Any:
    """Something that writes before it sends."""
    if way == 'prepare':
        return driver.ask('prepare')
    if way == 'expand':
        return driver.order('expand', weight='1.0')
    return driver.ask(way)


@pytest.mark.parametrize('way', ['prepare', 'expand', 'pin', 'start'])
def test_nothing_is_sent_while_writes_are_lost(way: str) -> None:
    driver = Driver(waiting() if way == 'expand' else FakeCluster())
    cluster = driver.cluster
    if way == 'start':
        driver.to_pinned()
    if way == 'pin':
        driver.ask('prepare')
        driver.run_to('PREPARED')
        cluster.expand()
        driver.run_until(lambda: len(cluster.remapped()) == 12)
    driver.kv.losing = True
    sent = len(cluster.sent)
    act(driver, way)
    driver.run(10)
    assert len(cluster.sent) == sent and cluster.moved == []
    limits = driver.status['limits']
    assert [limit['code'] for limit in limits] == ['NOT_STORED'], limits
    driver.kv.losing = False
    if way in ('prepare', 'pin'):
        driver.run_to({'prepare': 'PREPARED', 'pin': 'PINNED'}[way])
    else:
        driver.run_to('DONE')
    assert cluster.most_moving <= driver.options.max_pgs_in_flight
    assert not driver.kv.lost.keys() & {key for key in driver.kv.data if key.startswith('campaign')}


def aborted(driver: Driver) -> None:
    driver.order('expand', weight='1.0')
    driver.run_to('RELEASING')
    driver.ask('abort')
    driver.run_to('ABORTED')


def with_a_plan(driver: Driver) -> None:
    driver.give(PlanOrder(SAVE, 'p', EXPAND))


#: Orders that begin a campaign, or roll one back, and what comes before them.
BEGINNING: Dict[str, Tuple[Callable[[Driver], Any], Callable[[Driver], Any]]] = {
    'expand': (str, lambda driver: EXPAND),
    'drain': (str, lambda driver: Order('drain', ('osd.3',))),
    'replace': (str, lambda driver: Order('replace', ('osd.3',))),
    'import': (str, lambda driver: mappings(driver.cluster)),
    'plan approve': (with_a_plan, lambda driver: PlanOrder(APPROVE, 'p')),
    'rollback': (aborted, lambda driver: Order('rollback'))}


def doubts(answer: Dict[str, Any]) -> List[str]:
    """What the answer says about the journal."""
    return [text for text in answer.get('warnings', ()) if 'journal' in text]


@pytest.mark.parametrize('name', BEGINNING)
def test_an_answer_says_that_the_mons_have_not_stored_the_campaign(name: str) -> None:
    """If this mgr fails now, the order has no effect."""
    before, order = BEGINNING[name]
    driver = small(waiting=2)
    before(driver)
    driver.kv.losing = True
    sent = len(driver.cluster.sent)
    answer = driver.give(order(driver))
    text, = doubts(answer)
    assert answer['campaign'] == 1 and 'do not store' in text
    driver.run(3)
    assert len(driver.cluster.sent) == sent
    driver.kv.losing = False
    driver.run_to('DONE')


@pytest.mark.parametrize('name', BEGINNING)
def test_an_answer_does_not_mention_a_journal_that_is_stored(name: str) -> None:
    before, order = BEGINNING[name]
    driver = small(waiting=2)
    before(driver)
    assert doubts(driver.give(order(driver))) == []


def test_an_answer_asks_mons_that_do_not_answer_only_once() -> None:
    """Each question takes ten seconds, in which nothing is watched."""
    driver = small(waiting=2)
    asked: List[Any] = []
    stored = driver.cluster.stored

    def answers_once(keys: Sequence[str]) -> Any:
        asked.append(keys)
        return stored(keys) if len(asked) == 1 else {}

    setattr(driver.cluster, 'stored', answers_once)
    text, = doubts(driver.give(EXPAND))
    assert 'cannot read the journal' in text and len(asked) == 2


def test_a_command_is_woken_although_reading_the_journal_back_fails() -> None:
    """Else it waits until its time is over."""
    driver = small(waiting=2)
    stored = driver.cluster.stored

    def broken(keys: Sequence[str]) -> Any:
        if any(driver.kv.get_store(key) for key in keys if key.startswith('campaign/')):
            raise OSError('a bug')
        return stored(keys)

    setattr(driver.cluster, 'stored', broken)
    waiting_order = driver.loop.requests.submit(EXPAND)
    with pytest.raises(OSError):
        driver.turn()
    assert waiting_order.done.is_set() and waiting_order.answer is not None


def test_a_preview_says_nothing_of_the_journal() -> None:
    driver = small(waiting=2)
    driver.kv.losing = True
    assert doubts(driver.give(replace(EXPAND, dry_run=True))) == []


def test_an_order_of_an_mgr_that_another_one_replaces_is_refused() -> None:
    """At that moment: it has no effect."""
    driver = small(waiting=2)
    write = driver.kv.set_store

    def replaced(key: str, value: Optional[str]) -> None:
        write(key, value)
        if key.startswith('campaign/'):
            driver.kv.data[OWNER] = '4101 1.0'

    setattr(driver.kv, 'set_store', replaced)
    with pytest.raises(Refused) as refused:
        driver.give(EXPAND)
    assert refused.value.errno == errno.EAGAIN and '4101' in str(refused.value)
    assert driver.cluster.sent == []


def test_a_lost_pin_record_is_written_again() -> None:
    driver = Driver()
    driver.ask('prepare')
    driver.run_to('PREPARED')
    driver.cluster.expand()
    driver.run_until(lambda: len(driver.cluster.remapped()) == 12)
    driver.ask('pin')
    driver.kv.losing = True
    driver.turn()
    driver.kv.losing = False
    driver.run_to('PINNED')
    assert not [key for key in driver.kv.lost if key in driver.kv.data]
    driver.restart()
    driver.ask('start') if driver.status else driver.turn()
    driver.run(2)
    assert len(driver.loop.rebalance.pins) == 12


def test_reading_back_costs_nothing_in_turns_that_write_nothing() -> None:
    driver = Driver()
    driver.to_pinned()
    driver.run(5)
    before = driver.cluster.read_back
    driver.run(10)
    assert driver.cluster.read_back == before
    driver.ask('start')
    driver.turn()
    # Whether another mgr owns the journal, and what was written.
    assert driver.cluster.read_back == before + 2


def two(driver: Driver) -> Driver:
    """Another mgr becomes active; the first one does not know."""
    other = Driver.__new__(Driver)
    other.cluster, other.kv, other.options = driver.cluster, driver.kv, driver.options
    other.cluster.now += 0.5
    other.cluster.gid += 1
    other.loop = other._new_loop()
    other.turn()
    return other


def test_the_mgr_that_is_not_active_any_more_stops() -> None:
    driver = Driver()
    driver.to_pinned()
    other = two(driver)
    driver.ask('start')
    sent = len(driver.cluster.sent)
    driver.loop.turn()
    assert driver.loop.journal.fenced and len(driver.cluster.sent) == sent
    for _ in range(3):
        driver.loop.turn()
    assert len(driver.cluster.sent) == sent
    with pytest.raises(Refused):
        driver.give(Order('drain', ('h3',)))
    other.ask('start')
    other.run_to('DONE')
    assert driver.cluster.clean() and driver.cluster.entries() == {}


def test_it_writes_no_pin_records_any_more() -> None:
    driver = Driver()
    driver.ask('prepare')
    driver.run_to('PREPARED')
    driver.cluster.expand()
    driver.run_until(lambda: len(driver.cluster.remapped()) == 12)
    two(driver)
    driver.ask('pin')
    driver.loop.turn()
    assert driver.loop.journal.fenced
    assert not [key for key in driver.kv.data if key.startswith('pins/')]


def records(driver: Driver, *names: str) -> Any:
    """What is stored under names that begin so; by default, that of campaigns."""
    begin = names or ('campaign', 'pins', 'crushbefore', 'history')
    return {key: value for key, value in driver.kv.data.items() if key.startswith(begin)}


@pytest.mark.parametrize('what', ['pause', 'abort', 'rollback', 'shutdown', 'goes on'])
def test_it_writes_no_campaign_and_no_pins_any_more(what: str) -> None:
    driver = Driver(options=replace(OPTIONS, target='balanced'))
    driver.to_pinned()
    driver.ask('start')
    driver.run_until(lambda: driver.status['released'] > 0)
    other = two(driver)
    other.run(3)
    before = records(driver)
    if what == 'rollback':
        waits = driver.loop.requests.submit(Order('rollback'))
    elif what == 'shutdown':
        waits = driver.loop.requests.submit(ShutdownOrder(True))
    elif what != 'goes on':
        driver.ask(what)
    driver.loop.turn()
    assert driver.loop.journal.fenced and records(driver) == before
    if what in ('rollback', 'shutdown'):
        assert waits.refused is not None and waits.refused.errno == errno.EAGAIN
        assert 'shutdown/head' not in driver.kv.data


def test_it_forgets_no_drains_any_more() -> None:
    driver = Driver()
    driver.give(Order('drain', ('osd.7',)))
    driver.run_to('DONE')
    driver.run(3)
    other = two(driver)
    other.give(Order('undrain', ('osd.7',)))
    other.run_to('DONE')
    other.give(Order('drain', ('osd.6',)))
    other.run_to('DONE')
    driver.loop.turn()
    other.restart()
    other.turn()
    other.give(Order('undrain', ('osd.6',)))


def test_auto_expand_of_a_deposed_mgr_writes_nothing() -> None:
    driver = Driver(options=replace(OPTIONS, auto_expand=True))
    driver.to_pinned()
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.ask('finish', keep=True)
    driver.run_to('DONE')
    other = two(driver)
    other.run(2)
    before = records(driver)
    driver.run(2)
    driver.cluster.set_raw('1.1', [0, 3, 6])
    for _ in range(5):
        driver.cluster.tick()
        driver.loop.turn()
    assert driver.loop.journal.fenced and records(driver) == before


def test_a_mark_that_got_lost_is_no_other_mgr() -> None:
    driver = Driver()
    driver.kv.losing = True
    driver.restart()
    driver.turn()
    driver.ask('prepare')
    driver.run(3)
    assert not driver.loop.journal.fenced and driver.cluster.sent == []
    driver.kv.losing = False
    driver.run_to('PREPARED')


def test_mons_that_do_not_answer_fence_no_mgr() -> None:
    driver = Driver()
    driver.to_pinned()
    kv, driver.cluster.kv = driver.cluster.kv, None
    driver.ask('start')
    driver.run(3)
    assert not driver.loop.journal.fenced and driver.status['in_flight'] == 0
    driver.cluster.kv = kv
    driver.run_to('DONE')


def test_without_an_answer_the_mark_of_another_mgr_is_not_overwritten() -> None:
    driver = Driver()
    driver.to_pinned()
    other = two(driver)
    mark = driver.kv.data[OWNER]
    kv, driver.cluster.kv = driver.cluster.kv, None
    driver.ask('start')
    driver.run(3)
    driver.cluster.kv = kv
    assert driver.kv.data[OWNER] == mark
    other.ask('start')
    other.run_to('DONE')


def test_a_mark_that_was_removed_is_written_again() -> None:
    driver = Driver()
    driver.to_pinned()
    mark = driver.kv.data.pop(OWNER)
    driver.ask('start')
    driver.run_to('DONE')
    assert driver.kv.data[OWNER] == mark


def overwritten() -> Driver:
    """A late write of an mgr that is active no more has fenced the active one."""
    driver = Driver()
    driver.to_releasing()
    driver.kv.data[OWNER] = '4099 1.0'
    driver.run_until(lambda: driver.loop.journal.fenced)
    driver.turn()
    return driver


def test_a_fenced_mgr_says_so_and_refuses_what_it_is_asked() -> None:
    driver = overwritten()
    assert CHECK in driver.cluster.checks and CHECK in driver.loop.status()['health']
    assert '4099' in ' '.join(driver.cluster.checks[CHECK]['detail'])
    for ask in (lambda: driver.ask('abort'), lambda: driver.loop.request(Revert(1)),
                lambda: driver.give(Order('drain', ('h3',)))):
        with pytest.raises(Refused) as refused:
            ask()
        assert refused.value.errno == errno.EAGAIN and '4099' in str(refused.value)


def test_the_active_mgr_owns_its_journal_again() -> None:
    driver = overwritten()
    read, sent = driver.cluster.mgr_maps_read, len(driver.cluster.sent)
    driver.run(20)
    assert driver.loop.journal.fenced and len(driver.cluster.sent) == sent
    assert driver.cluster.mgr_maps_read == read
    driver.run_to('DONE')
    assert driver.kv.data[OWNER].startswith('4100 ') and CHECK not in driver.cluster.checks
    assert driver.cluster.clean() and driver.cluster.entries() == {}
    assert driver.status['released'] == 12


def test_it_continues_from_the_stored_state() -> None:
    """It may have been deposed meanwhile, and have become active again."""
    driver = overwritten()
    other = two(driver)
    other.run_to('DONE')
    driver.cluster.gid = 4100
    sent = len(driver.cluster.sent)
    driver.run_until(lambda: not driver.loop.journal.fenced)
    driver.run(3)
    assert driver.phase == 'IDLE' and not driver.loop.rebalance.pins
    assert len(driver.cluster.sent) == sent


def test_an_mgr_that_is_active_no_more_stays_fenced() -> None:
    driver = overwritten()
    driver.cluster.gid = 4101
    read = driver.cluster.mgr_maps_read
    driver.run(100)
    assert driver.loop.journal.fenced and driver.cluster.mgr_maps_read - read <= 4
    assert driver.kv.data[OWNER] == '4099 1.0'


def test_the_owner_is_named_by_its_gid() -> None:
    driver = Driver()
    keys: List[str] = [key for key in driver.kv.data if key == OWNER]
    assert keys and driver.kv.data[OWNER].split()[0] == '4100'


# ---- how much is written

def size(kv: MemoryKv, name: str) -> int:
    return sum(len(value) for key, value in kv.data.items() if key.startswith(name + '/'))


def test_the_unpinnable_document_ends_with_the_campaign() -> None:
    driver = Driver()
    driver.cluster.refuse['osd pg-upmap-items'] = 'EINVAL'
    driver.to_pinned()
    assert size(driver.kv, 'unpinnable')
    driver.restart()
    driver.turn()
    assert len(driver.status['unpinnable']) == 12
    driver.ask('start')
    driver.run_to('DONE')
    assert not size(driver.kv, 'unpinnable') and not size(driver.kv, 'campaign')


# ---- what is removed

def fail_over(driver: Driver) -> None:
    """The next mgr has what the mons have."""
    for key, value in driver.kv.lost.items():
        driver.kv.data.pop(key, None) if value is None else driver.kv.data.update({key: value})
    driver.kv.lost.clear()
    driver.restart()


def test_a_shutdown_whose_removal_was_lost_ends_no_later_campaign() -> None:
    driver = Driver()
    driver.run(2)
    driver.give(ShutdownOrder(True))
    driver.run_until(lambda: driver.loop.shutdown.done)
    driver.ask('prepare')
    driver.kv.losing = True
    driver.turn()
    driver.kv.losing = False
    assert driver.kv.lost['shutdown/head']
    driver.run_to('PREPARED')
    fail_over(driver)
    driver.run(3)
    assert driver.phase == 'PREPARED' and not driver.loop.shutdown.ordered


@pytest.mark.parametrize('seconds', [0, 3])
def test_pins_whose_removal_was_lost_are_no_aborted_campaign(seconds: int) -> None:
    """No command follows that would be read back before, and the mgr fails."""
    driver = Driver()
    driver.to_pinned()
    driver.ask('finish', keep=True)
    driver.kv.losing = True
    driver.run(seconds)
    driver.kv.losing = False
    driver.run_until(lambda: not driver.loop.rebalance.pins)
    driver.run(2)
    assert not [key for key in driver.kv.lost if key.startswith(('pins', 'campaign'))]
    fail_over(driver)
    driver.run(5)
    assert driver.phase == 'IDLE' and 'PERFGUARD_HELD_PINS' not in driver.cluster.checks


def test_a_request_whose_removal_was_lost_is_not_done_again() -> None:
    driver = Driver()
    driver.to_pinned()
    driver.ask('start')
    note, = requested(driver)
    value = driver.kv.data[note]
    driver.run_until(lambda: not requested(driver))
    driver.kv.lost[note] = value
    driver.run(2)
    assert not driver.kv.lost


def test_mons_that_do_not_answer_are_not_asked_for_it_in_each_turn() -> None:
    """Each question takes ten seconds, in which nothing is watched."""
    driver = Driver()
    driver.run(2)
    store = driver.loop._store
    store.put('crushbefore', {})
    store.expect_nothing()
    store.remove('crushbefore')
    kv, driver.cluster.kv = driver.cluster.kv, None
    before = driver.cluster.read_back
    driver.run(60)
    assert driver.cluster.read_back - before == 2 and driver.loop.jobs.journal.failure
    driver.cluster.kv = kv
    driver.run(31)
    assert not driver.loop.jobs.journal.failure


def requested(driver: Driver) -> List[str]:
    return [key for key in driver.kv.data if key.startswith('requests/')]


def test_a_request_is_noted_until_what_follows_from_it_is_stored() -> None:
    driver = Driver()
    driver.ask('prepare')
    driver.kv.losing = True
    driver.run(2)
    assert requested(driver) and driver.cluster.sent == []
    driver.kv.losing = False
    driver.run_to('PREPARED')
    assert not requested(driver)


def test_a_request_that_the_mons_do_not_have_is_written_again_before_anything_is_sent() -> None:
    driver = Driver()
    driver.kv.losing = True
    driver.ask('prepare')
    driver.kv.losing = False
    key, = requested(driver)
    sent = len(driver.cluster.sent)
    driver.turn()
    assert len(driver.cluster.sent) == sent and key not in driver.kv.lost
    assert driver.kv.data[key]
    driver.run_to('PREPARED')
    assert not requested(driver)


@pytest.mark.parametrize('busy', [False, True])
def test_an_error_for_one_removed_key_is_reported_once(busy: bool) -> None:
    """The mons answer for the owner and for all other keys, also in turns that write records."""
    driver = Driver()
    driver.to_pinned()
    store, stored = driver.loop._store, driver.cluster.stored
    store.put('crushbefore', {})
    store.expect_nothing()
    keys = [key for key in driver.kv.data if key.startswith('crushbefore/')]
    setattr(driver.cluster, 'stored', lambda names: {
        key: value for key, value in stored(names).items() if key not in keys})
    store.remove('crushbefore')
    for number in range(60):
        if busy and number % 2:
            driver.ask('set', option='max_pgs_in_flight', value=str(number))
        driver.turn()
    assert len(failures(driver)) == 1
    setattr(driver.cluster, 'stored', stored)
    driver.run(31)
    assert not driver.loop.jobs.journal.failure and not store.removing
    driver.ask('start')
    driver.run_to('DONE')
    assert len(failures(driver)) == 1


def test_a_write_that_was_lost_is_read_back_although_no_command_follows() -> None:
    driver = Driver()
    driver.run(2)
    driver.kv.losing = True
    driver.loop._store.put('mitigation', {})
    assert not driver.loop.jobs.journal_is_stored()
    driver.kv.losing = False
    driver.loop.jobs.may_write()
    assert driver.loop.jobs.journal.failure
    driver.run(62)
    assert not driver.loop.jobs.journal.failure and not driver.kv.lost


def failures(driver: Driver) -> List[Any]:
    return [event for event in driver.loop.published.events if event['kind'] == 'failed']
