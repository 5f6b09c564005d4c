# SPDX-License-Identifier: LGPL-2.1-or-later
"""The parts of the loop: waits, what a turn reads, what it publishes, and its end."""
import errno
import threading
from dataclasses import replace
from typing import Any, Callable, List, Optional, Tuple

import pytest

from perfguard.advise.report import ADVICE_FRESH_SECONDS
from perfguard.errors import CHECK, FAILED_TURNS, Refused
from perfguard.loop import loop
from perfguard.mitigation.types import Revert
from perfguard.observation import Observation
from perfguard.rebalance.requests import Request, effects
from perfguard.status import TOO_EARLY

from ..fakes.cluster import BALANCER
from ..fakes.driver import OPTIONS, Driver, codes
from ..fakes.functions import noting


# ---- between two turns

class Recorded(threading.Event):
    """Notes its waits, and does not wait."""

    def __init__(self, name: str, waits: List[Tuple[str, Optional[float]]]) -> None:
        super().__init__()
        self._name, self._waits = name, waits

    def wait(self, timeout: Optional[float] = None) -> bool:
        self._waits.append((self._name, None if timeout is None else round(timeout, 6)))
        return self.is_set()


INTERVALS = replace(OPTIONS, loop_interval=10.0, campaign_interval=3.0)


@pytest.mark.parametrize('busy, waiting, new_map, turn_seconds, waits', [
    (False, False, False, 0.2, [('stopped', 0.4), ('ordered', 1.6), ('wake', 8.0)]),
    (False, False, False, 0.0, [('stopped', 0.2), ('ordered', 0.0), ('wake', 9.8)]),
    (True, False, False, 0.2, [('stopped', 0.4), ('ordered', 1.6), ('wake', 1.0)]),
    (True, False, False, 0.4, [('stopped', 0.8), ('ordered', 3.2), ('wake', 0.0)]),
    (False, True, False, 0.2, [('stopped', 0.4), ('wake', 1.0)]),
    (True, False, True, 0.2, [('stopped', 0.4), ('ordered', 1.6), ('wake', 1.0),
                              ('ordered', loop.MAP_HANDLED_SECONDS)]),
    (True, True, True, 0.2, [('stopped', 0.4), ('wake', 1.0)])])
def test_the_waits_between_two_turns(
        busy: bool, waiting: bool, new_map: bool, turn_seconds: float, waits: List[Any],
        monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(options=INTERVALS)
    turns = driver.loop
    noted: List[Tuple[str, Optional[float]]] = []
    turns._stopped, turns._ordered, turns._wake = (
        Recorded(name, noted) for name in ('stopped', 'ordered', 'wake'))
    monkeypatch.setattr(type(turns.jobs), 'busy', busy)
    monkeypatch.setattr(type(turns.requests), 'waiting', waiting)
    turns._turn_seconds = turn_seconds
    turns._ordered.set()
    turns._wake.set()
    if new_map:
        turns._new_map.set()
    turns.wait()
    assert noted == waits
    assert not any(event.is_set() for event in (turns._ordered, turns._wake, turns._new_map))


@pytest.mark.parametrize('auto_expand, phase, woken, new_map', [
    (False, 'IDLE', False, False), (True, 'IDLE', True, False), (True, 'PINNED', False, False),
    (False, 'RELEASING', True, True)])
def test_who_is_woken_by_an_osdmap(auto_expand: bool, phase: str, woken: bool,
                                   new_map: bool) -> None:
    driver = Driver()
    if phase == 'PINNED':
        driver.to_pinned()
    elif phase == 'RELEASING':
        driver.to_releasing()
    driver.options = replace(OPTIONS, auto_expand=auto_expand)
    driver.loop._wake.clear()
    driver.loop.wake_for_map()
    assert (driver.loop._wake.is_set(), driver.loop._new_map.is_set()) == (woken, new_map)


def give(driver: Driver) -> None:
    driver.ask('prepare')


@pytest.mark.parametrize('call, ordered, stopped', [
    (lambda driver: driver.loop.wake(), False, False), (give, True, False),
    (lambda driver: driver.loop.stop(), True, True)])
def test_what_ends_the_wait(call: Callable[[Driver], None], ordered: bool, stopped: bool) -> None:
    driver = Driver()
    assert not driver.loop._wake.is_set()
    call(driver)
    assert driver.loop._wake.is_set() and driver.loop._stopped.is_set() == stopped
    assert driver.loop._ordered.is_set() == ordered


def test_the_rest_after_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a new mgr is the shortest one. Answers to orders of the turn before do not count."""
    driver, clock = Driver(), [0.0]
    driver.restart()
    turns = driver.loop
    assert turns._rest_seconds() == loop.REST_SECONDS
    monkeypatch.setattr('perfguard.loop.loop.time.thread_time', lambda: clock[0])
    turn = turns._turn

    def slow(answer_seconds: float) -> Callable[[], None]:
        def taken() -> None:
            turn()
            clock[0] += 4.0
            turns._answer_seconds += answer_seconds
        return taken

    for answer_seconds, rest in ((1.0, 30.0), (0.0, 40.0)):
        monkeypatch.setattr(turns, '_turn', slow(answer_seconds))
        turns.turn()
        assert turns._rest_seconds() == rest
        assert turns._rest_seconds(loop.ORDERED_SHARE) == rest / 5.0


def test_a_turn_that_may_not_act_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, clock = Driver(), [0.0]
    turns = driver.loop

    def fenced() -> bool:
        clock[0] += 3.0
        return False

    monkeypatch.setattr('perfguard.loop.loop.time.thread_time', lambda: clock[0])
    monkeypatch.setattr(turns._ownership, 'may_act', fenced)
    monkeypatch.setattr(turns, '_turn', lambda: pytest.fail('acts'))
    turns.turn()
    assert turns._turn_seconds == 3.0


# ---- for commands

def test_a_dry_run_is_refused_as_the_request_is(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setattr(driver.loop, 'ask', lambda *order: pytest.fail('asked'))
    with pytest.raises(Refused) as refused:
        driver.loop.dry_run(Request('start'))
    assert refused.value.errno == errno.ENOENT
    driver.restart()
    for promise in (Request('prepare'), Revert(1)):
        with pytest.raises(Refused, match=TOO_EARLY) as refused:
            driver.loop.dry_run(promise)
        assert refused.value.errno == errno.EAGAIN


def test_what_an_abort_would_do(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    driver.to_releasing()
    asked: List[Any] = []

    def ask(order: Any, again: bool) -> Any:
        asked.append((order.request, again))
        return {'arriving': 3, 'forgotten': 2}

    monkeypatch.setattr(driver.loop, 'ask', ask)
    promise, published = Request('abort'), driver.loop.published
    texts = driver.loop.dry_run(promise, refused_before=True)
    assert asked == [(promise, True)] and texts == effects(
        promise, published.rebalanced, published.ledger.rows, driver.options, 3, 2)


@pytest.mark.parametrize('age, asks', [(ADVICE_FRESH_SECONDS - 1.0, 0), (ADVICE_FRESH_SECONDS, 1)])
def test_advice_is_computed_again_when_it_is_old(age: float, asks: int,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    orders: List[Any] = []
    monkeypatch.setattr(driver.loop, 'ask', noting(orders, {}))
    advising = driver.loop.jobs.advising
    advising.advice = replace(advising.advice, time=driver.loop.clock() - age)
    assert ('findings' in driver.loop.advise()) != bool(asks)
    assert [order.verb for order, in orders] == ['advise'] * asks


def test_reports_are_read_in_the_turn_after_their_period() -> None:
    driver = Driver()
    assert driver.loop.report_seconds() == driver.cluster.period + loop.REST_SECONDS
    assert driver.loop.status()['page'] == driver.cluster.page()


def test_nothing_is_asked_of_an_mgr_before_its_first_turn() -> None:
    driver = Driver()
    driver.restart()
    for promise in (Request('prepare'), Revert(1)):
        with pytest.raises(Refused, match=TOO_EARLY) as refused:
            driver.loop.request(promise)  # type: ignore[arg-type]
        assert refused.value.errno == errno.EAGAIN


# ---- what a turn reads

def observed(driver: Driver) -> Observation:
    observation, view = driver.loop._observing.observe()
    assert view.osdmap is observation.osdmap
    return observation


@pytest.mark.parametrize('active', [False, True])
def test_the_balancer_is_asked_during_a_campaign(active: bool,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    if active:
        driver.to_pinned()
    driver.cluster.balancer_finishing = True
    assert observed(driver).settings.balancer_busy is active
    driver.cluster.balancer_finishing = False
    assert observed(driver).settings.balancer_busy is False


@pytest.mark.parametrize('flag', [False, True])
def test_the_audit_log_is_read_while_norebalance_is_set(flag: bool) -> None:
    driver = Driver()
    driver.cluster.flags_set_by_others_.add('nodown')
    (driver.cluster.flags.add if flag else driver.cluster.flags.discard)('norebalance')
    driver.cluster.epoch += 1
    assert observed(driver).settings.flags_set_by_others == ({'nodown'} if flag else frozenset())


def test_orders_of_others_count_while_something_is_borrowed() -> None:
    driver = Driver()
    driver.cluster.set_value_again(BALANCER, 'true')
    assert observed(driver).settings.values_set_by_others == {}
    driver.to_pinned()
    driver.cluster.set_value_again(BALANCER, 'true')
    assert BALANCER in observed(driver).settings.values_set_by_others


def test_when_the_mons_have_not_answered() -> None:
    driver = Driver()
    before = observed(driver).unanswered_at
    driver.cluster.mons_silent = True
    assert observed(driver).unanswered_at == driver.loop.clock() != before
    driver.cluster.mons_silent = False
    driver.cluster.tick()
    assert observed(driver).unanswered_at == driver.loop.clock() - 1.0


@pytest.mark.parametrize('phase, differ, alike', [
    ('IDLE', False, False), ('PINNED', False, True), ('PINNED', True, False)])
def test_mons_are_compared_during_a_campaign(phase: str, differ: bool, alike: bool) -> None:
    driver = Driver()
    if phase != 'IDLE':
        driver.to_pinned()
    driver.cluster.mons_differ = differ
    assert observed(driver).mons_alike is alike


def test_a_new_osdmap_is_one_that_was_not_audited() -> None:
    driver = Driver()
    driver.run(2)
    driver.loop.rebalance.audited_epoch = driver.cluster.map_view().osdmap.epoch
    assert observed(driver).new_map is False
    driver.cluster.epoch += 1
    assert observed(driver).new_map is True


def test_the_evacuation_is_computed_once_per_osdmap(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    driver.run(2)
    given: List[Any] = []

    def evacuated(*arguments: Any) -> Any:
        given.append(arguments)
        return {'1.0': {1: 2}}

    monkeypatch.setattr(loop, 'evacuated', evacuated)
    driver.cluster.epoch += 1
    for _ in range(3):
        assert observed(driver).evacuation == {'1.0': {1: 2}}
    assert len(given) == 1 and given[0][3:] == ((), frozenset(), None, set(), {})
    driver.cluster.epoch += 1
    observed(driver)
    assert len(given) == 2 and given[1][6] == {1}


def test_a_campaign_decides_on_the_pgs_that_it_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    given: List[Any] = []
    monkeypatch.setattr(loop, 'evacuated', noting(given, {}))
    driver.to_pinned()
    driver.cluster.epoch += 1
    observed(driver)
    assert given[-1][3:6] == ((), frozenset(), set())
    driver.ask('start')
    driver.run_until(lambda: driver.status['in_flight'] > 0)
    del given[:]
    driver.cluster.epoch += 1
    observed(driver)
    in_flight = driver.loop.rebalance.campaign.flights.in_flight.keys()
    assert in_flight and [(set(row[4]), set(row[5])) for row in given] == [
        (set(in_flight), set(in_flight))]
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.cluster.epoch += 1
    observed(driver)
    assert given[-1][5] is None


@pytest.mark.parametrize('inactive, available', [(0, True), (1, False)])
def test_drives_are_asked_while_all_pgs_are_active(inactive: int, available: bool,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    given: List[Any] = []
    monkeypatch.setattr(driver.loop.jobs.drives, 'turn', lambda now, available: given.append(
        (now, available)))
    driver.cluster.trouble = {'inactive': inactive} if inactive else {}
    driver.run(6)
    assert given[-1] == (driver.loop.published.turned, available)


def test_rescues_know_what_the_active_campaign_has_drained(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """After it, the CRUSH weights show this."""
    driver = Driver()
    given: List[Any] = []
    monkeypatch.setattr(driver.loop.jobs.rescuing, 'turn', lambda *_, **named: given.append(
        (named['campaign'], tuple(named['drained']))))
    driver.order('drain', 'h3')
    driver.run_to('DONE')
    driver.run(2)
    assert (True, (3,)) in given and given[-1] == (False, ())


# ---- what a turn publishes

def test_a_check_outside_a_turn_keeps_those_of_the_last_one() -> None:
    driver = Driver()
    driver.cluster.trouble = {'laggy': 2}
    driver.run(6)
    before = dict(driver.cluster.checks)
    assert before and CHECK not in before
    for number in range(FAILED_TURNS):
        assert (CHECK in driver.cluster.checks) == (CHECK in driver.loop.status()['health']) == (
            number >= FAILED_TURNS)
        driver.loop.failed(ValueError('odd'))
    assert driver.cluster.checks.keys() == {*before, CHECK}
    assert CHECK in driver.loop.status()['health']
    driver.turn()
    assert driver.cluster.checks == before and not driver.loop.failed_turns.check()
    # Only consecutive turns count.
    driver.loop.failed(ValueError('odd'))
    driver.turn()
    assert CHECK not in driver.cluster.checks


def test_clients_are_counted_until_a_shutdown_is_complete() -> None:
    driver = Driver()
    assert driver.cluster.counts_clients is True
    driver.loop.shutdown.begin(driver.cluster.now)
    driver.loop.shutdown.finish(driver.cluster.now)
    driver.turn()
    assert driver.cluster.counts_clients is False


@pytest.mark.parametrize('ordered, mode, auto_expand', [
    (False, 'act', True), (True, 'off', False)])
def test_a_shutdown_borrows_nothing(ordered: bool, mode: str, auto_expand: bool) -> None:
    driver = Driver(options=replace(OPTIONS, mitigation_mode='act', auto_expand=True))
    if ordered:
        driver.loop.shutdown.begin(driver.cluster.now)
    options = driver.loop._limited_by_shutdown(driver.options)
    assert (options.mitigation_mode, options.auto_expand) == (mode, auto_expand)
    assert options == replace(driver.options, mitigation_mode=mode, auto_expand=auto_expand)


def test_further_reasons_are_shown() -> None:
    driver = Driver()
    driver.loop._remarks = lambda: ['a remark', '']
    driver.turn()
    status = driver.loop.status()
    assert 'a remark' in status['reasons'] and '' not in status['reasons']
    assert codes(status).count('REMARK') == 1


def test_the_time_after_which_a_turn_is_late() -> None:
    driver = Driver(options=INTERVALS)
    driver.loop._turn_seconds = 0.0
    driver.turn()
    assert driver.loop.published.stale_after == pytest.approx(40.2, abs=5.0)
    driver.options = replace(INTERVALS, campaign_interval=20.0)
    driver.turn()
    assert driver.loop.published.stale_after >= 80.0


# ---- the end

@pytest.mark.parametrize('may_record', [True, False])
@pytest.mark.parametrize('fails', [False, True])
def test_the_end_of_the_loop(may_record: bool, fails: bool,
                             monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    turns, jobs = driver.loop, driver.loop.jobs
    calls: List[str] = []

    def close_probing() -> None:
        calls.append('probing')
        if fails:
            raise RuntimeError('odd')

    for owner, method, name in (
            (turns.requests, 'close', 'requests'), (turns._tools, 'close', 'tools'),
            (jobs.drives, 'close', 'drives'), (jobs, 'begin_turn', 'begin'),
            (turns._publishing.events, 'save', 'save'), (driver.cluster, 'close', 'cluster')):
        monkeypatch.setattr(owner, method, lambda name=name: calls.append(name))
    monkeypatch.setattr(jobs.probing, 'close', close_probing)
    monkeypatch.setattr(jobs, 'may_record', lambda: may_record)
    if fails:
        with pytest.raises(RuntimeError):
            turns.close()
        assert calls == ['requests', 'tools', 'drives', 'probing', 'cluster']
        return
    turns.close()
    assert calls == ['requests', 'tools', 'drives', 'probing', 'begin',
                     *(['save'] if may_record else []), 'cluster']


@pytest.mark.parametrize('kind, saved, logged', [
    ('mitigation', True, True), ('slow-osd', True, True), ('phase', False, True),
    ('probe', False, False)])
def test_important_events_are_saved_soon_and_logged(
        kind: str, saved: bool, logged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    publishing = driver.loop._publishing
    saves: List[int] = []
    monkeypatch.setattr(publishing.events, 'save_soon', lambda: saves.append(1))
    before = len(driver.cluster.logged)
    publishing.note(loop.Event(kind, 'what', 'why'))
    assert publishing.events.all()[-1]['what'] == 'what'
    assert (bool(saves), len(driver.cluster.logged) > before) == (saved, logged)


def test_an_mgr_that_acts_again_reports_what_it_cannot_read(
        monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    calls: List[Any] = []
    ownership, jobs, store = driver.loop._ownership, driver.loop.jobs, driver.loop._store
    monkeypatch.setattr(jobs, 'load_shared', lambda now: ['the pins'])
    for name in ('expect_nothing', 'recheck_newer'):
        monkeypatch.setattr(store, name, lambda name=name: calls.append(name))
    claims: List[Any] = []
    monkeypatch.setattr(jobs.journal, 'claim', noting(claims, False))
    assert ownership._claim_again() is False and calls == []
    monkeypatch.setattr(jobs.journal, 'claim', noting(claims, True))
    assert ownership._claim_again() is True and calls == ['expect_nothing', 'recheck_newer']
    assert claims == [(driver.loop.clock(),)] * 2
    assert [event['what'] for event in driver.loop._publishing.events.all()][-2:] == [
        'cannot read the pins', 'this mgr acts again']
