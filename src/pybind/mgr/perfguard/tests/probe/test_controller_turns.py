# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the controller of the probes answers, reports and publishes, turn by turn."""
import calendar
import errno
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, List

import pytest

from perfguard.cluster.types import OsdPlace
from perfguard.errors import Refused
from perfguard.observation import PoolClients
from perfguard.probe import controller
from perfguard.probe.controller import EFFECT_PERIODS, JOURNAL, LEFT_SECONDS
from perfguard.probe.orders import DroppedSchedule, ImportedRun, NewSchedule, RunId, RunOrder
from perfguard.probe.records import MGR_HOST, POOL_PGS, REDUNDANCY
from perfguard.probe.resources import LEFT_CHECK
from perfguard.probe.schedules import SCHEDULE_AGAIN_SECONDS
from perfguard.store import Store

from ..fakes.probe_cluster import Answer, ProbeDriver, fake_children
from .test_controller import STORE, Benching, IN_POOL, ran, refusal, scheduled
from .test_imported import measured
from .test_run import OWN
from .test_run_turns import CLEANED, END, Scripted, result, step

HOUR = 3600.0
SUNDAY = calendar.timegm((2026, 1, 4, 0, 0, 0))


@pytest.fixture(autouse=True)
def setting(monkeypatch: pytest.MonkeyPatch, utc: None) -> None:
    fake_children(monkeypatch)


def events(driver: ProbeDriver) -> List[Any]:
    return [(event['what'], event['why']) for event in driver.loop.published.events
            if event['kind'] == 'probe']


# ---- how long a probe affects what OSDs report

@pytest.mark.parametrize('state, cleaning, ended, affects', [
    ('running', 1000.0, 1e9, True), ('cleaning', LEFT_SECONDS, 1e9, True),
    ('cleaning', LEFT_SECONDS + 0.5, 1e9, False), ('cleaning', LEFT_SECONDS + 0.5, 5.0, True),
    (None, 0.0, EFFECT_PERIODS * 2.0 - 0.5, True), (None, 0.0, EFFECT_PERIODS * 2.0, False)])
def test_whether_a_probe_affects_reports(state: Any, cleaning: float, ended: float,
                                         affects: bool) -> None:
    probing: Any = ProbeDriver().loop.probing
    assert not probing.affects_latency(1e6, 2.0) and not probing.busy
    probing._run = None if state is None else SimpleNamespace(state=state)
    probing._cleaning_since, probing._last_ended = 1e6 - cleaning, 1e6 - ended
    assert probing.affects_latency(1e6, 2.0) is affects


@pytest.mark.parametrize('seconds, raised', [(LEFT_SECONDS, False), (LEFT_SECONDS + 0.5, True)])
def test_when_a_clean_up_is_a_health_check(seconds: float, raised: bool) -> None:
    driver = ProbeDriver()
    driver.cluster.reply['auth rm'] = Answer(None)
    driver.give(IN_POOL)
    driver.run_until(lambda: driver.state(1) == 'cleaning')
    probing = driver.loop.probing
    # The state changed in the turn in which it was running before.
    since = probing._cleaning_since
    assert driver.cluster.now - 3.0 < since < driver.cluster.now
    driver.run(10)
    assert probing._cleaning_since == since
    checks = probing.checks(since + seconds)
    assert (LEFT_CHECK in checks) is raised
    if raised:
        assert checks[LEFT_CHECK]['detail'][0] == 'cleaning: auth rm: no answer'


# ---- answers and refusals

def test_the_answers_to_orders_about_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Scripted(monkeypatch)
    assert driver.loop.probing.active_id == 1
    for verb, text in (
            ('probe rm', 'probe 1 is active ("probe cancel" stops it)'),
            ('probe cancel --force', 'probe 1 is running ("probe cancel" stops it)')):
        refused = refusal(driver, RunId(verb, 1))
        assert (refused.errno, str(refused)) == (errno.EBUSY, text)
    assert driver.give(RunId('probe cancel', 1)) == {'id': 1, 'message': 'stopping'}
    driver.cluster.reply['auth rm'] = Answer(-1, '', 'no')
    driver.ends(0, step(0), result(driver, 0), CLEANED, END)
    driver.run_until(lambda: driver.state(1) == 'cleaning' and 'auth' in driver.message)
    refused = refusal(driver, RunId('probe cancel', 1))
    assert (refused.errno, str(refused)) == (
        errno.EBUSY, 'probe 1 has ended and is cleaning up (cleaning: auth rm: no): wait, or give '
        'up the clean-up with "probe cancel 1 --force"')
    driver.cluster.reply.clear()
    driver.finish()
    assert driver.loop.probing.active_id is None
    refused = refusal(driver, RunId('probe cancel', 1))
    assert (refused.errno, str(refused)) == (
        errno.EINVAL, 'probe 1 is not active: it is cancelled ("probe show 1" has its results)')
    assert events(driver) == [
        ('probe 1 of pool:rep', 'requested by command'), ('probe 1 is cancelled', 'by command')]


def test_the_answers_to_orders_about_baselines_and_schedules() -> None:
    driver = ProbeDriver()
    run = ran(driver)
    assert driver.give(RunId('probe baseline', run)) == {
        'id': 1, 'message': 'later probes with the same jobs and OSDs or pool are compared with '
        'it'}
    assert str(refusal(driver, RunId('probe rm', run))) == (
        'probe 1 is a baseline (run "probe baseline 1 --rm" first)')
    assert driver.give(RunId('probe baseline --rm', run)) == {
        'id': 1, 'message': 'baseline removed'}
    added = driver.give(NewSchedule('nightly', IN_POOL, {'begin_time': '0200'}))
    assert (added['name'], added['message']) == ('nightly', 'scheduled')
    assert driver.give(DroppedSchedule('nightly')) == {'name': 'nightly', 'message': 'dropped'}
    refused = refusal(driver, NewSchedule('ls', IN_POOL, {}))
    assert (refused.errno, str(refused)) == (
        errno.EINVAL, 'invalid schedule name \'ls\': "probe ls" lists schedules, "probe schedule '
        '<name> --rm" removes one')


def test_the_answer_to_an_import() -> None:
    driver = ProbeDriver()
    text = json.dumps(measured())
    assert driver.give(ImportedRun(text)) == {'id': 1, 'message': 'imported as probe 1'}
    assert str(refusal(driver, ImportedRun(text))) == 'already imported as probe 1'
    driver.turn()
    assert events(driver) == [('probe 1 of pool:rep imported', 'measured on kvm7')]
    # A probe of the mgr at the same time is another one.
    other = {**measured(), 'created': driver.loop.probing._history.all()[0].created}
    probing: Any = driver.loop.probing
    probing._history.put(replace(probing._history.get(1), trigger='command'))
    assert driver.give(ImportedRun(json.dumps(other)))['id'] == 2


def test_a_probe_is_refused_while_too_many_previews_are_computed(
        monkeypatch: pytest.MonkeyPatch) -> None:
    driver = ProbeDriver()
    monkeypatch.setattr(driver.tools, 'submit', lambda task, first=False: None)
    refused = refusal(driver, replace(IN_POOL, osd='1'))
    assert (refused.errno, str(refused)) == (
        errno.EAGAIN, 'too many previews are being computed: try again in a moment')
    assert not driver.busy


@pytest.mark.parametrize('order', [
    replace(IN_POOL, osd='1'), NewSchedule('nightly', replace(IN_POOL, osd='1'), {})])
def test_osds_that_lead_too_few_pgs_are_refused(order: Any,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(self: Any, view: Any) -> Any:
        def check() -> None:
            raise Refused(errno.EINVAL, 'osd.1 leads too few PGs')
        return check

    monkeypatch.setattr(controller.CheckedRun, 'placement_check', failing)
    driver = ProbeDriver()
    assert 'osd.1 leads too few PGs' in str(refusal(driver, order))
    assert not driver.busy and not driver.loop.probed().schedules


def test_a_journal_that_was_set_aside() -> None:
    driver = ProbeDriver()
    Store(driver.kv).put(JOURNAL, {'record': {}, 'site': None})
    driver.restart()
    driver.turn()
    why = driver.loop.probing._journal_error
    assert why and driver.loop.probing.checks(0.0).keys() == {LEFT_CHECK}
    refused = refusal(driver, IN_POOL)
    assert (refused.errno, str(refused)) == (
        errno.EBUSY, 'the journal of an earlier probe is unreadable (%s): upgrade this mgr, or '
        'give up the clean-up of that probe with "probe cancel 0 --force"' % why)
    # Not for other orders.
    assert refusal(driver, RunId('probe cancel', 0)).errno == errno.ENOENT
    assert refusal(driver, RunId('probe baseline --rm', 0)).errno == errno.ENOENT
    text = ('journal set aside; the probe may have left users client.perfguard-probe-*, pools '
            'perfguard-probe-*, and objects perfguard-probe-* in namespace perfguard-probe')
    assert driver.give(RunId('probe cancel --force', 7)) == {'id': 7, 'message': text}
    driver.turn()
    assert events(driver) == [('the clean-up of an earlier probe was abandoned', text)]
    assert not driver.loop.probing.checks(0.0)


def test_a_probe_of_an_earlier_mgr_is_taken_over() -> None:
    driver = ProbeDriver()
    driver.cluster.behaviour = 'deaf'
    driver.give(OWN)
    driver.run_until(lambda: driver.state(1) == 'running')
    driver.cluster.kill_workers()
    driver.restart()
    assert driver.loop.probing._cleaning_since == driver.cluster.now
    assert driver.loop.probing.active_id == 1
    driver.turn()
    assert driver.state(1) == 'cleaning'
    driver.finish()
    message = 'the mgr that began the probe failed or stopped'
    assert (driver.state(1), driver.listed[1]['message']) == ('failed', message)
    assert events(driver)[-2:] == [('cleaning up after probe 1', 'this mgr became active'),
                                   ('probe 1 is failed', message)]


def test_a_bench_of_an_earlier_mgr_has_failed() -> None:
    driver = ProbeDriver(Benching())
    driver.give(STORE)
    driver.restart()
    driver.turn()
    assert driver.listed[1]['message'] == 'the mgr that began the probe failed or stopped'
    assert driver.loop._store.get(JOURNAL) is None
    assert driver.affects_latency


# ---- what is kept of a run

def test_the_record_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Scripted(monkeypatch, replace(IN_POOL, repeat='3'))
    created = driver.loop.probed().record_of(1).created
    assert driver.loop.probed().record_of(1).started == driver.started > created
    driver.says(step(1), result(driver, 0))
    status: Any = driver.loop.probing.status()
    assert (status.id, status.state, status.target, status.share) == (
        1, 'running', 'pool:rep', 0.333)
    assert status.text == driver.message
    # The third measurement without the second is not counted.
    driver.ends(0, result(driver, 2), CLEANED, END)
    driver.finish(10)
    record = driver.loop.probed().record_of(1)
    assert (record.state, len(record.results), len(record.steps)) == ('failed', 1, 3)
    assert record.created == created and record.started == driver.started < record.ended
    assert record.messages == ('the worker ended before all jobs were measured',)
    assert driver.loop.probing.status() is None and not driver.cluster.progress_events
    assert record.osds == 8 and record.beside == 0.0


def test_a_run_that_has_not_measured_has_not_started() -> None:
    driver = ProbeDriver()
    driver.cluster.reply['osd pool create'] = Answer(-1, '', 'no')
    driver.give(OWN)
    driver.finish()
    record = driver.loop.probed().record_of(1)
    assert record.started == 0.0 < record.ended and record.osds == 0


def test_the_load_beside_a_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    observation: Any = SimpleNamespace(clients=SimpleNamespace(pools={
        1: PoolClients('rep', 8, 100.06, others_rate=50.0)}))
    for pool, osds, found in (
            (SimpleNamespace(id=1), {1, 2}, {'osds': 2, 'beside': 150.1}),
            (SimpleNamespace(id=2), {1}, {'osds': 1, 'beside': 0.0}), (None, {1}, {})):
        checked: Any = SimpleNamespace(pool=pool, osds_at_work=osds)
        assert controller._pool_conditions(checked, observation) == found


def test_what_a_bench_depends_on() -> None:
    """Neither on the number of PGs nor on the host of the mgr."""
    bench = ProbeDriver(Benching())
    bench.give(replace(STORE, osd='0', repeat='1'))
    probe = ProbeDriver()
    probe.give(IN_POOL)
    ours, theirs = (driver.loop.probed().record_of(1).setting for driver in (bench, probe))
    assert set(theirs) - set(ours) == {MGR_HOST, POOL_PGS, REDUNDANCY}
    assert set(ours) <= set(theirs) and theirs[POOL_PGS] == '12'
    assert bench.loop._store.get(JOURNAL) is not None


def test_what_is_borrowed_by_a_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Scripted(monkeypatch)
    row, = driver.loop.probing.held
    assert row.what == 'user client.perfguard-probe-1'
    assert row.since == driver.loop.probed().record_of(1).created
    bench = ProbeDriver(Benching())
    bench.give(STORE)
    assert bench.busy and bench.loop.probing.held == []
    assert ProbeDriver().loop.probing.held == []


def test_a_probe_is_stopped_once(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Scripted(monkeypatch)
    for why in ('shutting down', 'again'):
        driver.loop.probing.stop(why)
    assert driver.worker.sent[1:] == [{'cancel': 'shutting down'}]
    driver.ends(0, CLEANED, END)
    driver.loop.probing.stop('cleaning')
    driver.finish(10)
    assert (driver.state(1), driver.message) == ('cancelled', 'shutting down')
    ProbeDriver().loop.probing.stop('nothing')


@pytest.mark.parametrize('own, during_campaign, own_pool', [
    (True, False, 7), (True, True, 7), (False, False, -1)])
def test_the_pgs_of_which_pool_may_move(own: bool, during_campaign: bool, own_pool: int,
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    order = replace(OWN if own else IN_POOL, during_campaign=during_campaign)
    driver = Scripted(monkeypatch, order)
    given: List[Any] = []

    def stop_reasons(observation: Any, moving_allowed: bool, pool: int) -> List[str]:
        given.append((moving_allowed, pool))
        return []

    monkeypatch.setattr(controller, 'stop_reasons', stop_reasons)
    driver.turn()
    assert given == [(during_campaign, own_pool)]


# ---- schedules

def test_a_shutdown_begins_no_scheduled_probe() -> None:
    driver = scheduled()
    driver.loop.shutdown.begin(driver.cluster.now)
    driver.cluster.now = SUNDAY + 2 * HOUR
    driver.run(3)
    assert not driver.listed


def test_the_installed_version_is_read_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = ProbeDriver()
    times: List[float] = []

    def installed() -> str:
        times.append(driver.cluster.now)
        return controller.VERSION

    monkeypatch.setattr(controller, 'installed_version', installed)
    driver.run(int(2.5 * SCHEDULE_AGAIN_SECONDS))
    first, second = times
    assert second - first == SCHEDULE_AGAIN_SECONDS


def test_one_scheduled_probe_begins_in_a_turn() -> None:
    driver = scheduled()
    driver.give(NewSchedule('other', RunOrder(profile='quick', pool='rep', trigger='other'),
                            {'begin_time': '0200', 'end_time': '0400'}))
    driver.cluster.now = SUNDAY + 2 * HOUR
    driver.turn()
    assert [row['trigger'] for row in driver.listed.values()] == ['nightly']
    assert not driver.told('refused')
    driver.finish()
    driver.run(int(SCHEDULE_AGAIN_SECONDS))
    driver.finish()
    assert [row['trigger'] for row in driver.listed.values()] == ['nightly', 'other']


def test_an_internal_error_of_a_schedule_is_logged(monkeypatch: pytest.MonkeyPatch,
                                                   caplog: pytest.LogCaptureFixture) -> None:
    driver = scheduled()
    monkeypatch.setattr(controller, 'check_run', lambda *given: 1 / 0)
    driver.cluster.now = SUNDAY + 2 * HOUR
    driver.run(2)
    reasons = driver.loop.probed().refused
    assert reasons == {'nightly': "internal error: ZeroDivisionError('division by zero')"}
    assert 'scheduled probe nightly' in caplog.text
    assert driver.told('refused') == ['scheduled probe nightly']


# ---- places of OSDs

def test_places_are_computed_again_with_a_new_map(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = ProbeDriver()
    places = driver.loop.probed().places
    assert places[1] == OsdPlace(1, 'h1', 'default', '') and len(places) == 8
    calls: List[Any] = []

    def layouts_of(observation: Any) -> Any:
        calls.append(observation)
        return {}

    monkeypatch.setattr(controller, 'layouts_of', layouts_of)
    driver.run(2)
    assert not calls
    driver.cluster.take_down(3)
    driver.cluster.epoch += 1
    driver.run(2)
    assert len(calls) == 1 and set(driver.loop.probed().places) == set(range(8)) - {3}


def test_an_internal_error_ends_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Scripted(monkeypatch)
    monkeypatch.setattr(driver.probe, 'displaced', lambda view: 1 / 0)
    driver.turn()
    assert driver.worker.sent[1:] == [
        {'cancel': "internal error: ZeroDivisionError('division by zero')"}]
