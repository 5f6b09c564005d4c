# SPDX-License-Identifier: LGPL-2.1-or-later
"""Where commands wait for the loop's answer: also when it is late, or comes no more."""
import errno
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, List

import pytest

from perfguard import requests as module
from perfguard.errors import Refused
from perfguard.rebalance.orders import Order
from perfguard.requests import Requests
from perfguard.store import Store

from .fakes.cluster import MemoryKv


def queue() -> Requests:
    return Requests(Store(MemoryKv()))


def served(requests: Requests, answer: Any) -> None:
    pending, = requests.next()
    if isinstance(answer, Refused):
        pending.refused = answer
    else:
        pending.answer = answer
    pending.done.set()


def test_answers_come_back_to_who_asked() -> None:
    requests, wake = queue(), threading.Event()
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(requests.ask, Order('x'), wake.set)
        assert wake.wait(10)
        served(requests, {'a': 1})
        assert asked.result(10) == {'a': 1} and requests.next() == []


def test_refusals_come_back() -> None:
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
    first = requests.next()
    requests.hold(first[1])
    requests.submit(Order('d'))
    assert [[each.order.verb for each in found] for found in (first, requests.next())] == [
        ['a', 'b', 'c'], ['b', 'd']]


def test_nobody_waits_for_ever(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, 'PATIENCE_SECONDS', 0.01)
    requests = queue()
    with pytest.raises(Refused) as refused:
        requests.ask(Order('x'), lambda: None)
    assert refused.value.errno == errno.ETIMEDOUT
    # Whoever asked was told that there is no answer: it is not carried out any more.
    assert requests.next() == []


def test_an_answer_that_comes_too_late_harms_nobody(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, 'PATIENCE_SECONDS', 0.01)
    requests = queue()
    taken: List[Any] = []
    with pytest.raises(Refused):
        requests.ask(Order('x'), lambda: taken.extend(requests.next()))
    taken[0].answer = {}
    taken[0].done.set()


@pytest.mark.parametrize('closed_first', [False, True])
def test_nobody_waits_for_a_loop_that_has_ended(closed_first: bool) -> None:
    requests = queue()
    if closed_first:
        requests.close()
    pending = requests.submit(Order('x'))
    requests.close()
    assert pending.done.is_set() and pending.refused is not None
    assert pending.refused.errno == errno.EAGAIN
