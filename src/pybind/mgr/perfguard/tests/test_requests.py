# SPDX-License-Identifier: LGPL-2.1-or-later
"""Where commands wait for the loop's answer: also when it is late, or comes no more."""
import errno
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, List

import pytest

from perfguard import requests as desks
from perfguard.errors import Refused
from perfguard.requests import Desk


def served(desk: Desk, answer: Any) -> None:
    consultation, = desk.take()
    if isinstance(answer, Refused):
        consultation.refused = answer
    else:
        consultation.answer = answer
    consultation.done.set()


def test_answers_come_back_to_who_asked() -> None:
    desk, wake = Desk(), threading.Event()
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(desk.ask, 'x', wake.set)
        assert wake.wait(10)
        served(desk, {'a': 1})
        assert asked.result(10) == {'a': 1} and desk.take() == []


def test_refusals_come_back() -> None:
    desk, wake = Desk(), threading.Event()
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(desk.ask, 'x', wake.set)
        assert wake.wait(10)
        served(desk, Refused(errno.EBUSY, 'no'))
        with pytest.raises(Refused, match='no'):
            asked.result(10)


def test_in_the_order_of_asking() -> None:
    desk = Desk()
    for order in 'abc':
        desk.put(order)
    first = desk.take()
    desk.hold(first[1])
    desk.put('d')
    assert [[each.order for each in found] for found in (first, desk.take())] == [
        ['a', 'b', 'c'], ['b', 'd']]


def test_nobody_waits_for_ever(monkeypatch: Any) -> None:
    monkeypatch.setattr(desks, 'PATIENCE_SECONDS', 0.01)
    desk = Desk()
    with pytest.raises(Refused) as refused:
        desk.ask('x', lambda: None)
    assert refused.value.errno == errno.ETIMEDOUT
    # Whoever asked was told that there is no answer: it is not carried out any more.
    assert desk.take() == []


def test_an_answer_that_comes_too_late_harms_nobody(monkeypatch: Any) -> None:
    monkeypatch.setattr(desks, 'PATIENCE_SECONDS', 0.01)
    desk = Desk()
    taken: List[Any] = []
    with pytest.raises(Refused):
        desk.ask('x', lambda: taken.extend(desk.take()))
    taken[0].answer = {}
    taken[0].done.set()


@pytest.mark.parametrize('closed_first', [False, True])
def test_nobody_waits_for_a_loop_that_has_ended(closed_first: bool) -> None:
    desk = Desk()
    if closed_first:
        desk.close()
    consultation = desk.put('x')
    desk.close()
    assert consultation.done.is_set() and consultation.refused is not None
    assert consultation.refused.errno == errno.EAGAIN
