# SPDX-License-Identifier: LGPL-2.1-or-later
"""A loop that fails turn after turn says so."""
from typing import Any, Callable, List

import pytest

from perfguard import tables
from perfguard.errors import CHECK, FAILED_TURNS, MOST_PLACES, Tracebacks

from .fakes.driver import Driver


def caught(call: Callable[[], Any]) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError('nothing was raised')


def one(text: str) -> None:
    raise ValueError(text)


def test_an_error_is_new_once_for_each_type_and_place() -> None:
    found = Tracebacks()
    assert found.is_new(caught(lambda: one('epoch 1')))
    assert not found.is_new(caught(lambda: one('epoch 2')))
    assert found.is_new(caught(lambda: int('x'))) and found.is_new(KeyError(3))


def test_very_many_errors_take_no_more_memory() -> None:
    found, kinds = Tracebacks(), [type('Error%d' % number, (Exception,), {})
                                  for number in range(2 * MOST_PLACES)]
    assert all(found.is_new(kind()) for kind in kinds)
    assert len(found._known) <= MOST_PLACES


class Failing(Driver):
    """Serves its loop as the module does."""

    def turn(self, seconds: float = 1.0) -> None:
        try:
            self.loop.turn()
        except ArithmeticError as error:
            self.loop.failed(error)
        self.cluster.tick(seconds)

    def fail(self, failing: bool) -> None:
        def observe(*_: Any) -> Any:
            raise ArithmeticError('of all\nthings')

        observing = self.loop._observing
        usual = type(observing).observe.__get__(observing)
        setattr(observing, 'observe', observe if failing else usual)

    def status_now(self) -> Any:
        return self.loop.status()


def reasons(driver: Failing) -> List[str]:
    return list(driver.status_now()['reasons'])


def test_a_loop_that_fails_every_turn_is_a_health_check_until_one_succeeds() -> None:
    driver = Failing()
    driver.cluster.trouble = {'laggy': 2}
    driver.run(3)
    others = set(driver.cluster.checks)
    driver.fail(True)
    driver.run(FAILED_TURNS - 1)
    assert set(driver.cluster.checks) == others
    driver.run(2)
    check = driver.cluster.checks[CHECK]
    assert set(driver.cluster.checks) == others | {CHECK}
    assert check['detail'][0] == 'last error (4 iterations failed): ArithmeticError: of all things'
    status = driver.status_now()
    assert CHECK in status['health'] and sum(CHECK in text for text in status['reasons']) == 1
    driver.fail(False)
    driver.turn()
    assert CHECK not in driver.cluster.checks and CHECK not in driver.status_now()['health']


def test_a_turn_that_fails_now_and_then_is_none() -> None:
    driver = Failing()
    for _ in range(3):
        driver.fail(True)
        driver.run(FAILED_TURNS - 1)
        driver.fail(False)
        driver.turn()
    assert CHECK not in driver.cluster.checks


def test_the_check_that_cannot_be_set_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Failing()

    def fails(checks: Any) -> None:
        raise ArithmeticError('no health checks')

    monkeypatch.setattr(driver.cluster, 'health_checks', fails)
    driver.run(FAILED_TURNS + 1)
    assert driver.loop.failed_turns.check()
    driver.fail(True)
    driver.turn()
    assert CHECK in driver.status_now()['health']


def test_the_age_of_the_picture() -> None:
    driver = Failing()
    assert driver.status_now()['age_seconds'] == 1.0
    driver.fail(True)
    driver.turn(3600.0)
    assert driver.status_now()['age_seconds'] == 3601.0
    assert reasons(driver)[0].startswith('this status is 60 min old')
    assert '60 min ago' in tables.status(driver.status_now())
