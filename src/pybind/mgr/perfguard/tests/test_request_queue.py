# SPDX-License-Identifier: LGPL-2.1-or-later
"""Where commands wait for the loop's answer: also when it is late, or comes no more."""
import errno
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, List, Optional

import pytest

from perfguard import request_queue as module
from perfguard.clock import Clock
from perfguard.cluster.tool_thread import ToolJob
from perfguard.codec import encode
from perfguard.errors import Refused
from perfguard.mitigation.types import Revert
from perfguard.rebalance.orders import Order
from perfguard.rebalance.requests import Request
from perfguard.request_queue import Requests
from perfguard.store import Store

from .fakes.cluster import FakeCluster, MemoryKv
from .fakes.driver import Driver


REQUEST = Request('prepare')


def queue(clock: Callable[[], float] = Clock()) -> Requests:
    return Requests(Store(MemoryKv()), clock)


def served(requests: Requests, answer: Any) -> None:
    pending, = requests.take_orders()
    if isinstance(answer, Refused):
        pending.refused = answer
    else:
        pending.answer = answer
    pending.done.set()


def test_answers_are_returned_to_their_caller() -> None:
    requests, wake = queue(), threading.Event()
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(requests.ask, Order('x'), wake.set)
        assert wake.wait(10)
        served(requests, {'a': 1})
        assert asked.result(10) == {'a': 1} and requests.take_orders() == []


def test_refusals_are_returned() -> None:
    requests, wake = queue(), threading.Event()
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(requests.ask, Order('x'), wake.set)
        assert wake.wait(10)
        served(requests, Refused(errno.EBUSY, 'no'))
        with pytest.raises(Refused, match='no'):
            asked.result(10)


def test_in_the_order_of_asking() -> None:
    requests = queue()
    for verb in 'abc':
        requests.submit(Order(verb))
    first = requests.take_orders()
    requests.defer(first[1])
    requests.submit(Order('d'))
    assert [[each.order.verb for each in found] for found in (first, requests.take_orders())] == [
        ['a', 'b', 'c'], ['b', 'd']]


def test_nobody_waits_for_ever(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, 'REQUEST_PATIENCE_SECONDS', 0.01)
    requests = queue()
    with pytest.raises(Refused) as refused:
        requests.ask(Order('x'), lambda: None)
    assert refused.value.errno == errno.ETIMEDOUT
    # The command has returned that there is no answer: the request is no longer carried out.
    assert requests.take_orders() == []
    with pytest.raises(Refused, match='"campaign abort" first'):
        requests.ask(Order('rollback'), lambda: None)


def test_a_late_answer_does_no_harm(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, 'REQUEST_PATIENCE_SECONDS', 0.01)
    requests = queue()
    taken: List[Any] = []
    with pytest.raises(Refused):
        requests.ask(Order('x'), lambda: taken.extend(requests.take_orders()))
    taken[0].answer = {}
    taken[0].done.set()


def test_an_order_that_is_being_carried_out_is_answered(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, 'REQUEST_PATIENCE_SECONDS', 0.01)
    requests, claimed, taken = queue(), threading.Event(), []

    def claim() -> None:
        taken.extend(requests.take_orders())
        taken[0].claim.acquire()
        claimed.set()

    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(requests.ask, Order('x'), claim)
        assert claimed.wait(10) and not taken[0].done.wait(0.1)
        taken[0].answer = {'a': 1}
        taken[0].claim.release()
        assert asked.result(10) == {'a': 1}


def test_a_command_that_cannot_wait_says_that_its_order_is_being_carried_out(
        monkeypatch: Any) -> None:
    monkeypatch.setattr(module, 'REQUEST_PATIENCE_SECONDS', 0.01)
    monkeypatch.setattr(module, 'LAST_PATIENCE_SECONDS', 0.01)
    requests = queue()
    with pytest.raises(Refused, match='is being carried out'):
        requests.ask(Order('x'), lambda: requests.take_orders()[0].claim.acquire())


def test_an_order_is_not_carried_out_after_its_command_gave_up(monkeypatch: Any) -> None:
    driver = Driver(FakeCluster())
    driver.cluster.add_waiting(1)
    requests = driver.loop.requests
    waiting = requests.take_orders

    def given_up() -> List[Any]:
        orders = waiting()
        for order in orders:
            order.refused = Refused(errno.ETIMEDOUT, 'no answer')
            order.done.set()
        return orders

    monkeypatch.setattr(requests, 'take_orders', given_up)
    driver.turn()
    requests.submit(Order('expand'))
    driver.run(10)
    assert driver.status['id'] is None


@pytest.mark.parametrize('closed_first', [False, True])
def test_no_command_waits_for_a_loop_that_has_ended(closed_first: bool) -> None:
    requests = queue()
    if closed_first:
        requests.close()
    pending = requests.submit(Order('x'))
    requests.close()
    assert pending.done.is_set() and pending.refused is not None
    assert pending.refused.errno == errno.EAGAIN


@pytest.mark.parametrize('seconds, version, phase, used', [
    (0.0, 7, 5.0, True), (0.9 * module.RESULT_LATE_SECONDS, 7, 5.0, True),
    (1.1 * module.RESULT_LATE_SECONDS, 7, 5.0, False), (0.0, 8, 5.0, False), (0.0, 7, 6.0, False)])
def test_what_was_worked_out_too_late_serves_the_same_order_for_a_while(
        seconds: float, version: int, phase: float, used: bool) -> None:
    now = [1000.0]
    requests = queue(lambda: now[0])
    first = requests.submit(Order('x'))
    requests.defer(requests.take_orders()[0])
    first.job, first.crush_version, first.phase_since = ToolJob(lambda: 5), 7, 5.0
    first.done.set()
    assert requests.take_orders() == []
    now[0] += seconds
    assert requests.job_left_behind(Order('y'), 7, 5.0) is None
    assert requests.job_left_behind(Order('x'), version, phase) is (first.job if used else None)
    # It serves once: the next order is checked against what is so then.
    assert not used or requests.job_left_behind(Order('x'), version, phase) is None


def test_what_is_taken_up_from_the_store_again_answers_the_commands_that_wait() -> None:
    requests = queue()
    promised = requests.put(Request('prepare'))
    assert requests.load() == []
    [found] = requests.promised(Request.document)
    assert found is promised


@pytest.mark.parametrize('first', ['put', 'load'])
def test_a_promise_is_kept_once_though_the_notes_are_loaded_as_it_is_put(
        first: str, monkeypatch: Any) -> None:
    """A mgr that acts again loads them, and commands are served at the same time."""
    kv = MemoryKv()
    requests, write, read = Requests(Store(kv), Clock()), kv.set_store, kv.get_store_prefix
    kept: List[Any] = []
    begin = {'put': lambda: kept.append(requests.put(REQUEST)), 'load': requests.load}
    threads: List[threading.Thread] = []

    def meanwhile() -> None:
        if not threads:
            threads.append(threading.Thread(target=begin['load' if first == 'put' else 'put']))
            threads[0].start()
            # It waits until the first one has ended, and would be through long before this.
            threads[0].join(0.2)

    def set_store(*args: Any) -> None:
        write(*args)
        meanwhile()

    def get_store_prefix(prefix: str) -> Any:
        meanwhile()
        return read(prefix)

    monkeypatch.setattr(kv, 'set_store', set_store)
    monkeypatch.setattr(kv, 'get_store_prefix', get_store_prefix)
    begin[first]()
    threads[0].join(10)
    [found] = requests.promised(Request.document)
    assert found is kept[0]  # the one for whose end the command waits


class StuckKv(MemoryKv):
    """Without a quorum of the mons, writes of requests return when there is one again."""

    def __init__(self) -> None:
        super().__init__()
        self.quorum = threading.Event()

    def set_store(self, key: str, val: Optional[str]) -> None:
        if key.startswith(Request.document + '/'):
            assert self.quorum.wait(60)
        super().set_store(key, val)


def test_a_promise_that_the_mons_do_not_store_in_time_is_refused_and_never_executed() -> None:
    driver = Driver()
    requests, kv = driver.loop.requests, StuckKv()
    kv.data, driver.loop._store._kv = driver.kv.data, kv
    requests.store_seconds = 0.05
    # The second one waits for the write of the first one.
    for verb in ('prepare', 'pause'):
        with pytest.raises(Refused, match='have not stored the request') as refused:
            requests.put(Request(verb))
        assert refused.value.errno == errno.ETIMEDOUT
    driver.run(3)
    kv.quorum.set()
    with requests._putting:
        assert not requests.promised(Request.document)
        assert [key for key in kv.data if key.startswith('requests/')]
    driver.run(3)
    assert driver.status['id'] is None
    assert not [key for key in kv.data if key.startswith('requests/')]
    # No event reports it again: its command has.
    assert 'expired' not in str(driver.loop.published.events)
    driver.ask('prepare')
    driver.run_to('PREPARED')


@pytest.mark.parametrize('verb, words', [
    ('resume', 'becomes active within 10 minutes, that one carries it out'),
    ('abort', 'becomes active, that one carries it out')])
def test_the_refusal_says_that_another_mgr_may_carry_it_out(verb: str, words: str) -> None:
    requests = Requests(Store(StuckKv()), Clock())
    requests.store_seconds = 0.01
    with pytest.raises(Refused) as refused:
        requests.put(Request(verb))
    assert str(refused.value).endswith('another mgr ' + words)


def test_a_stop_that_was_stored_late_does_not_stop_a_later_campaign() -> None:
    driver = Driver()
    note = driver.loop._store.note(
        Request.document, encode(Request('abort')), driver.cluster.now)
    late = driver.kv.data.pop(note)
    driver.turn(2 * module.PROMISE_SECONDS)
    driver.to_pinned()
    driver.kv.data[note] = late
    driver.restart()
    driver.run(3)
    assert driver.phase == 'PINNED' and note not in driver.kv.data


@pytest.mark.parametrize('verb', ['abort', 'pause'])
def test_a_stop_that_was_stored_late_does_not_stop_a_resumed_campaign(verb: str) -> None:
    driver = Driver()
    driver.to_pinned()
    note = driver.loop._store.note(Request.document, encode(Request(verb)), driver.cluster.now)
    late = driver.kv.data.pop(note)
    driver.turn()
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.turn(2 * module.PROMISE_SECONDS)
    driver.ask('resume')
    driver.run_to('RELEASING')
    driver.kv.data[note] = late
    driver.restart()
    driver.run(3)
    assert driver.phase == 'RELEASING' and note not in driver.kv.data


def test_an_error_of_the_store_is_raised_in_the_command() -> None:
    kv = MemoryKv()
    requests = Requests(Store(kv), Clock())
    kv.fault.at = 1
    kv.fault.error = ValueError('x')
    with pytest.raises(ValueError):
        requests.put(REQUEST)
    assert requests.put(REQUEST) in requests.promised(Request.document)


def test_a_request_without_a_thread_to_store_it_does_not_keep_out_others(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """For example at the limit of processes of a container."""
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    requests = queue()
    with monkeypatch.context() as patches:
        patches.setattr(threading.Thread, 'start', start)
        with pytest.raises(RuntimeError):
            requests.put(REQUEST)
    requests.store_seconds = 0.05
    assert requests.put(REQUEST) in requests.promised(Request.document)


def test_what_was_taken_and_not_settled_is_taken_up_again() -> None:
    """Its note stays until it was taken anew."""
    requests = queue()
    requests.take(requests.put(REQUEST))
    requests.load()
    requests.settle(lambda document: True)
    assert requests.load() == [] and len(requests.promised(Request.document)) == 1


@pytest.mark.parametrize('promise, expires', [
    (Request('prepare'), True), (Request('resume'), True), (Request('finish', keep=True), True),
    (Request('pause'), False), (Request('abort'), False), (Revert(1), True)])
def test_a_promise_expires_unless_it_only_stops_movement(promise: Any, expires: bool) -> None:
    requests = queue(lambda: 1000.0)
    promised = requests.put(promise)
    assert requests.stale(1000.0 + module.PROMISE_SECONDS, 1001.0) == []
    later = 1001.0 + module.PROMISE_SECONDS
    assert requests.stale(later, 1000.0) == ([promised] if expires else [])
    assert requests.stale(later, 1001.0) == [promised]  # it concerns an earlier campaign


def test_notes_of_the_same_instant_have_different_keys() -> None:
    store = Store(MemoryKv())
    keys = [store.note('requests', {}, 1000.0) for _ in range(3)]
    assert len(set(keys)) == 3 and keys == sorted(keys)
