# SPDX-License-Identifier: LGPL-2.1-or-later
"""A run turn by turn: the lines and the end of its workers, and when each step is due."""
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

import pytest

from perfguard.codec import encode
from perfguard.probe import run as proberun
from perfguard.probe.orders import CheckedRun, RunId, RunOrder
from perfguard.probe.run import (AFTER, BEFORE, COUNTED_AT_ONCE, PROBE_PATIENCE_SECONDS, TOPIC,
                                 OpCounters)
from perfguard.probe.types import BadJob, Counted
from perfguard.probe.worker.protocol import ALIVE, RUN, SWEEP

from ..fakes import probe_runs
from ..fakes.driver import OPTIONS
from ..fakes.probe_cluster import Answer, ProbeDriver, fake_children
from .test_run import IN_POOL, OWN, QUIET, SIZE_ONE, WORDS
from .test_waits import Peering

ON_OSDS = RunOrder(words=WORDS, pool='rep', osd='1,4', repeat='2')
WHY = 'the worker was killed by SIGKILL'
CLEANED = {'type': 'cleaned', 'removed': 2, 'left': 0}
END = {'type': 'end', 'state': 'done'}


class Worker:
    """Says what a test gives it, and ends when a test says so."""

    def __init__(self) -> None:
        self.sent: List[Mapping[str, Any]] = []
        #: The lines of each turn.
        self.queued: List[List[Any]] = []
        self.status: Optional[int] = None
        self.calls: List[Any] = []

    def send(self, document: Mapping[str, Any]) -> None:
        self.sent.append(document)

    def ended(self, now: float) -> Optional[int]:
        return self.status

    def lines(self) -> List[Any]:
        return self.queued.pop(0) if self.queued else []

    def why(self) -> str:
        return WHY

    def hang_up(self) -> None:
        self.calls.append('hang up')

    def kill(self) -> None:
        self.calls.append('kill')

    def wait(self, seconds: float) -> bool:
        self.calls.append(('wait', seconds))
        return True

    def close(self) -> None:
        self.calls.append('close')


class Scripted(ProbeDriver):
    """The first worker of an order has begun."""

    def __init__(self, patch: pytest.MonkeyPatch, order: RunOrder = IN_POOL,
                 **options: Any) -> None:
        super().__init__(options=replace(OPTIONS, **options))
        self.given: List[Worker] = []
        patch.setattr(proberun, 'Child', self._child)
        self.give(order)
        self.run_until(lambda: bool(self.given))
        self.started = self.cluster.now - 1.0

    def _child(self, argv: Any) -> Any:
        self.given.append(Worker())
        return self.given[-1]

    @property
    def worker(self) -> Worker:
        return self.given[-1]

    @property
    def probe(self) -> Any:
        return self.loop.probing._run

    @property
    def steps(self) -> Any:
        return self.probe.steps

    @property
    def message(self) -> str:
        return str(self.listed[1]['message'])

    def says(self, *lines: Any) -> None:
        self.worker.queued.append([*lines])
        self.turn()

    def ends(self, status: int, *lines: Any) -> None:
        self.worker.status = status
        self.says(*lines)

    def at(self, seconds: float) -> None:
        """One turn so long after the worker has begun."""
        self.cluster.now = self.started + seconds
        self.turn(0.0)


def step(index: int) -> Dict[str, Any]:
    return {'type': 'step', 'index': index, 'state': 'run'}


def result(driver: Scripted, index: int, streams: int = 1) -> Dict[str, Any]:
    return {'type': 'result', 'index': index, 'result': encode(
        probe_runs.result(driver.steps[index].job, [100] * streams))}


# ---- what is shown

def test_the_text_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Scripted(monkeypatch, ON_OSDS)
    names = [(one.job.name, one.streams[0].name) for one in driver.steps]
    assert len(names) == 4 and driver.message == 'measurement 1 of 4 (%s %s), ' % names[0]
    driver.says(step(1), result(driver, 0))
    assert driver.message == 'measurement 2 of 4 (%s %s), run' % names[1]
    assert driver.cluster.progress_events == {'perfguard-probe-1': 0.25}
    driver.give(RunId('probe cancel', 1))
    assert driver.message == 'stopping: by command'
    pool = Scripted(monkeypatch)
    assert pool.message == 'measurement 1 of 1 (%s), ' % pool.steps[0].job.name


@pytest.mark.parametrize('line', [
    step(-1), step(4), {'type': 'step'}, {'type': 'step', 'index': 1}, {'type': 'result'}, 7,
    {'type': 'result', 'index': 1}])
def test_lines_that_make_no_sense_change_nothing(line: Any,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Scripted(monkeypatch, ON_OSDS)
    before = driver.message
    driver.says(line, {**result(driver, 0, streams=2)}, {**result(driver, 0), 'index': 4})
    assert driver.message.split(',')[0] == before.split(',')[0]
    assert driver.probe.share == 0.0
    driver.says(step(3))
    assert driver.message.startswith('measurement 4 of 4 ')


# ---- the end of a worker

@pytest.mark.parametrize('status, lines, state, message', [
    (0, ['result', CLEANED, END], 'done', ''), (1, ['result', CLEANED], 'failed', WHY),
    (0, [CLEANED, END], 'failed', 'the worker ended before all jobs were measured'),
    (1, [CLEANED], 'failed', WHY),
    (1, [{'type': 'error', 'message': 'no'}, {'type': 'error', 'message': 'yes'}, CLEANED],
     'failed', 'no')])
def test_the_end_of_a_worker(status: int, lines: List[Any], state: str, message: str,
                             monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Scripted(monkeypatch)
    driver.says(step(0))
    driver.ends(status, *(result(driver, 0) if line == 'result' else line for line in lines))
    assert driver.worker.calls == ['close']
    driver.finish(10)
    assert (driver.state(1), driver.message) == (state, message) and len(driver.given) == 1


@pytest.mark.parametrize('lines, sweeps', [
    ([END], False), ([], True), ([step(0), END], True), ([step(0), CLEANED, END], False),
    ([step(0), {**CLEANED, 'left': 2}], True)])
def test_whether_a_worker_may_have_left_objects(lines: List[Any], sweeps: bool,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Scripted(monkeypatch)
    driver.ends(1, *lines)
    driver.run(2)
    assert [worker.sent[0].get('mode', RUN) for worker in driver.given] == (
        [RUN, SWEEP] if sweeps else [RUN])
    assert driver.busy == sweeps
    if lines and lines[-1].get('left'):
        assert driver.message == 'cleaning: objects not removed yet: 2'


# ---- times

def test_a_worker_is_killed_after_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has 2 s to end, and 2 s more."""
    driver = Scripted(monkeypatch)
    limit = driver.worker.sent[0]['limit_seconds']
    driver.at(limit + 3.99)
    assert driver.worker.calls == []
    driver.at(limit + 4.01)
    assert driver.worker.calls == ['kill']
    driver.ends(-9)
    assert driver.given[0].calls == ['kill', 'close']
    assert driver.probe.message == 'the worker did not end in time and was killed'


@pytest.mark.parametrize('late, killed', [(22.0, False), (22.5, True)])
def test_a_cancelled_worker_is_killed_sooner(late: float, killed: bool,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Scripted(monkeypatch, replace(IN_POOL, words={**WORDS, 'runtime': '900'}))
    driver.loop.requests.submit(RunId('probe cancel', 1))
    for seconds in (64.0, 70.0, 80.0):
        driver.at(seconds)
    assert driver.worker.sent.count({'cancel': 'by command'}) == 1
    driver.at(64.0 + late)
    assert driver.worker.calls == (['kill'] if killed else [])
    driver.ends(-9)
    driver.run_until(lambda: len(driver.given) == 2)
    assert driver.probe.outcome == 'cancelled'


def test_when_a_worker_hears_of_its_mgr(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Scripted(monkeypatch, replace(IN_POOL, words={**WORDS, 'runtime': '200'}))
    heard = []
    for seconds in (29.0, 30.0, 31.0, 59.0, 60.0, 61.0):
        driver.at(seconds)
        heard.append(driver.worker.sent.count(ALIVE))
    assert heard == [0, 1, 1, 1, 2, 2]


@pytest.mark.parametrize('interval, silence', [(1.0, 120.0), (30.0, 120.0), (60.0, 240.0)])
def test_the_silence_after_which_a_worker_ends(interval: float, silence: float,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Scripted(monkeypatch, campaign_interval=interval)
    assert driver.worker.sent[0]['silence_seconds'] == silence


def test_a_sweep_that_does_not_end_is_killed_and_repeated(
        monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Scripted(monkeypatch)
    users = [command for command in driver.cluster.sent
             if command['prefix'] == 'auth get-or-create']
    driver.ends(-9, step(0))
    driver.run_until(lambda: len(driver.given) == 2)
    began, limit = driver.cluster.now - 1.0, driver.worker.sent[0]['limit_seconds']
    assert limit >= 20.0
    for late, calls in ((3.99, []), (4.01, ['kill'])):
        driver.cluster.now = began + limit + late
        driver.turn(0.0)
        assert driver.worker.calls == calls
    driver.ends(-9, {'type': 'error', 'message': 'no connection'})
    assert driver.given[1].calls == ['kill', 'close']
    assert driver.message == 'cleaning: no connection'
    driver.run(4)
    assert len(driver.given) == 2
    driver.run_until(lambda: len(driver.given) == 3)
    assert [command for command in driver.cluster.sent
            if command['prefix'] == 'auth get-or-create'] == 2 * users
    part = {'type': 'cleaned', 'removed': 3, 'left': 0, 'cursor': 1, 'total': 2}
    driver.ends(0, part, END)
    driver.turn()
    # It has removed objects, and not tried all names.
    assert len(driver.given) == 4 and driver.worker.sent[0]['cursor'] == 1
    driver.ends(0, {**part, 'cursor': 2, 'removed': 0}, END)
    driver.run_until(lambda: len(driver.given) == 5)
    driver.ends(0, {**part, 'cursor': 2, 'removed': 0}, END)
    driver.finish(10)
    assert driver.state(1) == 'failed' and driver.message == WHY


def test_no_sweep_begins_without_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mons refuse a user whose capabilities have changed, which is created anew."""
    driver = Scripted(monkeypatch)
    driver.ends(-9, step(0))
    driver.run_until(lambda: len(driver.given) == 2)
    driver.cluster.reply['auth get-or-create'] = Answer(-22, '', 'EINVAL')
    driver.ends(-9)
    driver.run(12)
    assert len(driver.given) == 2 and driver.cluster.sent[-1]['prefix'] == 'auth rm'
    assert driver.message == 'cleaning: auth get-or-create: EINVAL'
    driver.cluster.reply.clear()
    driver.run_until(lambda: len(driver.given) == 3, 10)


def test_attempts_to_clean_up_become_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_children(monkeypatch)
    driver = ProbeDriver()
    times: List[float] = []
    driver.give(OWN)
    driver.cluster.reply['auth rm'] = Answer(-1, '', 'no')
    driver.cluster.before_command['auth rm'] = lambda: times.append(driver.cluster.now)
    driver.run_until(lambda: len(times) == 9)
    assert [later - earlier for earlier, later in zip(times, times[1:])] == [
        1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    driver.cluster.reply.clear()
    driver.finish(70)
    assert driver.state(1) == 'done' and driver.cluster.is_untouched()


def test_each_obstacle_is_tried_often_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Scripted(monkeypatch, QUIET)
    times: List[float] = []
    commands = driver.cluster.before_command
    commands['osd unset'] = lambda: times.append(driver.cluster.now)
    driver.cluster.reply['osd unset'] = Answer(-1, '', 'no')
    driver.ends(-9, step(0))
    driver.run(4)
    tried = sorted(set(times))
    assert [later - earlier for earlier, later in zip(tried, tried[1:])] == [1.0, 2.0]
    driver.cluster.reply.clear()
    driver.run_until(lambda: len(driver.given) == 2)
    # The sweep is no obstacle, and the next one is another.
    del times[:]
    commands['auth rm'] = commands.pop('osd unset')
    driver.cluster.reply['auth rm'] = Answer(-1, '', 'no')
    driver.run(8)
    driver.ends(0, {**CLEANED, 'removed': 0, 'cursor': 1, 'total': 1}, END)
    driver.run(4)
    assert [later - earlier for earlier, later in zip(times, times[1:])] == [1.0, 2.0]


@pytest.mark.parametrize('seconds, state', [(60.0, 'preparing'), (60.5, 'failed')])
def test_the_wait_for_an_own_pool_has_an_end(seconds: float, state: str,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    fake_children(monkeypatch)
    driver = ProbeDriver(Peering())
    driver.give(OWN)
    driver.cluster.now += seconds - 1.0
    driver.turn()
    driver.run(1 if state == 'failed' else 0)
    assert driver.state(1).replace('cleaning', 'failed') == state


# ---- why it ends

def test_a_stop_condition_is_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Scripted(monkeypatch)
    monkeypatch.setattr(driver.loop.probing, '_stop_reasons', lambda *given: ['first', 'second'])
    driver.run(3)
    assert driver.worker.sent[1:] == [{'cancel': 'first'}]
    monkeypatch.setattr(driver.loop.probing, '_stop_reasons', lambda *given: [])
    driver.ends(0, CLEANED, END)
    driver.finish(10)
    assert (driver.state(1), driver.message) == ('aborted', 'first')


@pytest.mark.parametrize('order', [OWN, IN_POOL])
def test_a_run_that_is_cancelled_before_its_worker_begins_none(
        order: RunOrder, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_children(monkeypatch)
    driver = ProbeDriver()
    driver.tools.late = True
    driver.give(order)
    driver.run_until(lambda: bool(driver.tools.jobs))
    driver.give(RunId('probe cancel', 1))
    driver.tools.late = False
    driver.tools.work()
    driver.finish()
    assert driver.state(1) == 'cancelled' and not driver.cluster.workers
    assert driver.cluster.is_untouched()


def test_stop_conditions_end_a_run_that_prepares(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_children(monkeypatch)
    driver = ProbeDriver()
    monkeypatch.setattr(driver.loop.probing, '_stop_reasons', lambda *given: ['first', 'second'])
    driver.give(IN_POOL)
    driver.finish(20)
    assert (driver.state(1), driver.listed[1]['message']) == ('aborted', 'first')
    assert not driver.cluster.workers and driver.cluster.is_untouched()


def test_osds_for_which_no_names_are_found_fail_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def naming(*given: Any) -> Any:
        raise BadJob('osd.1 leads too few PGs')

    fake_children(monkeypatch)
    monkeypatch.setattr(CheckedRun, 'naming', naming)
    driver = ProbeDriver()
    driver.give(IN_POOL)
    driver.finish(20)
    assert (driver.state(1), driver.listed[1]['message']) == ('failed', 'osd.1 leads too few PGs')
    assert not driver.cluster.workers and driver.cluster.is_untouched()


def test_an_override_shows_at_once_that_a_probed_osd_leads_a_pg_no_more(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """The primaries of all PGs are read outside the loop."""
    driver = Scripted(monkeypatch, SIZE_ONE)
    pool, = driver.cluster.made.values()
    driver.tools.late = True
    driver.cluster.moving, driver.cluster.balanced = 1, {'%d.1' % pool.id: 5}
    driver.run(2)
    assert driver.message == 'stopping: PG %d.1 of the pool is no longer led by osd.1' % pool.id


def test_another_replica_of_a_pg_may_move(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Scripted(monkeypatch, replace(ON_OSDS, during_campaign=True))
    pgid = next(pgid for pgid, pg in driver.cluster.pg.items()
                if pgid.startswith('1.') and pg.up[0] == 1)
    last = driver.cluster.pg[pgid].up[-1]
    driver.cluster.add_upmap(pgid, last, (last + 2) % 8)
    driver.run(3)
    place = driver.cluster.map_view().placement(pgid)
    assert place is not None and place.acting[0] == 1
    assert driver.message.startswith('measurement 1 of 4')


def test_a_pool_that_has_gone_is_no_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Scripted(monkeypatch, SIZE_ONE)
    driver.cluster.made.clear()
    driver.cluster.epoch += 1
    driver.run(2)
    assert driver.message.startswith('measurement 1 of ')


# ---- what it loads

def test_all_steps_that_have_begun_since_the_last_turn_load_osds(
        monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Scripted(monkeypatch, ON_OSDS)

    def led_by(osd: int) -> Set[int]:
        return {other for pgid, pg in driver.cluster.pg.items()
                if pgid.startswith('1.') and pg.up[0] == osd for other in pg.up}

    def loaded() -> Set[int]:
        return set(driver.loop.probing.loaded(driver.cluster.now - 1.0, 0.1).osds)

    # The first repetition writes, in this step and in the next one.
    assert loaded() == led_by(1) | led_by(4)
    driver.says(step(1), step(2), step(3))
    assert loaded() == led_by(1) | led_by(4)
    driver.turn()
    assert loaded() == {4}


# ---- the module stops, or the operator gives up

def test_a_worker_has_time_to_clean_up_when_the_module_stops(
        monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Scripted(monkeypatch)
    driver.loop.close()
    assert driver.worker.calls == ['hang up', ('wait', 2.0), 'close']
    assert 'auth rm' in [command['prefix'] for command in driver.cluster.sent]


def test_a_clean_up_that_is_given_up_ends_its_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Scripted(monkeypatch)
    driver.ends(-9, step(0))
    driver.run_until(lambda: len(driver.given) == 2)
    answer = driver.give(RunId('probe cancel --force', 1))
    assert answer['message'] == (
        'clean-up abandoned; remaining: objects perfguard-probe-1-* of namespace perfguard-probe '
        'in pool rep')
    assert driver.worker.calls == ['kill', ('wait', 2.0), 'close'] and not driver.busy
    assert driver.message == '%s; %s' % (WHY, answer['message'])


def test_a_clean_up_that_is_given_up_removes_what_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Scripted(monkeypatch, OWN)
    driver.cluster.reply['auth rm'] = Answer(-1, '', 'no')
    driver.ends(1, CLEANED, END)
    driver.run_until(lambda: not driver.cluster.made)
    assert driver.state(1) == 'cleaning'
    answer = driver.give(RunId('probe cancel --force', 1))
    assert answer['message'] == 'clean-up abandoned; remaining: client.perfguard-probe-1'
    assert not driver.busy and driver.state(1) == 'failed'


def test_a_pool_that_is_deleted_ends_its_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Scripted(monkeypatch)
    driver.ends(-9, step(0))
    driver.run_until(lambda: len(driver.given) == 2)
    monkeypatch.setattr(proberun, 'pool_named', lambda view, name: None)
    driver.run(2)
    assert driver.worker.calls == ['kill', ('wait', 2.0), 'close'] and not driver.busy


# ---- counters of OSDs

class Osds:
    """OSDs that answer when a test says so; `pending`: those with an earlier request."""

    def __init__(self, *pending: int) -> None:
        self.pending = set(pending)
        self.requests: List[Tuple[Any, ...]] = []
        self.ready: Dict[int, Any] = {}

    def asked(self, topic: str) -> Set[int]:
        assert topic == TOPIC
        return self.pending

    def ask(self, topic: str, osds: Any, command: Any) -> None:
        self.requests.append((topic, osds, command))

    def answers(self, topic: str) -> Dict[int, Any]:
        assert topic == TOPIC
        ready, self.ready = self.ready, {}
        return ready


def counters(reads: Any, writes: int = 1) -> Dict[str, Any]:
    return {'osd': {'op_r': reads, 'op_w': writes, 'op_r_latency': {'sum': reads * 0.003},
                    'op_w_latency': {'sum': writes * 0.5}}}


def counting(*osds: int, pending: Tuple[int, ...] = ()) -> Tuple[OpCounters, Osds]:
    cluster: Any = Osds(*pending)
    return OpCounters(cluster, osds), cluster


def test_counters_are_read_once_before_and_once_after_a_run() -> None:
    run, osds = counting(3, 1, 2, pending=(2,))
    # An answer to an earlier request is dropped.
    osds.ready = {1: counters(5)}
    assert not run.collect(BEFORE, 10.0)
    assert osds.requests == [(TOPIC, [1, 3], {'prefix': 'perf dump', 'logger': 'osd'})]
    osds.ready = {1: counters(100), 2: counters(7)}
    assert not run.collect(BEFORE, 11.0)
    osds.ready = {3: counters(100)}
    assert run.collect(BEFORE, 12.0) and run.collect(BEFORE, 99.0) and len(osds.requests) == 1
    assert run.counted() == ()
    osds.pending = set()
    assert not run.collect(AFTER, 100.0) and len(osds.requests) == 2
    osds.ready = {1: counters(300, 1), 2: counters(9), 3: counters(99)}
    assert run.collect(AFTER, 101.0)
    # osd.2 did not answer before, and osd.3 was restarted.
    assert run.counted() == (Counted(1, 200, 0, 600_000_000, 0),)


@pytest.mark.parametrize('before, after, found', [
    (100, 100, (Counted(1, 0, 0),)), (100, 99, ()), (0, 1, (Counted(1, 1, 0),))])
def test_an_osd_that_counts_anew_is_left_out(before: int, after: int,
                                             found: Tuple[Counted, ...]) -> None:
    run, osds = counting(1)
    for when, reads in ((BEFORE, before), (AFTER, after)):
        assert not run.collect(when, 10.0)
        osds.ready = {1: {'osd': {'op_r': reads}}}
        assert run.collect(when, 11.0)
    assert run.counted() == found


def test_osds_that_do_not_answer_are_waited_for_for_a_moment() -> None:
    run, _ = counting(1)
    assert not run.collect(BEFORE, 10.0)
    assert not run.collect(BEFORE, 10.0 + PROBE_PATIENCE_SECONDS)
    assert run.collect(BEFORE, 10.1 + PROBE_PATIENCE_SECONDS)
    none, osds = counting()
    assert none.collect(BEFORE, 10.0) and none.counted() == ()


def test_many_osds_are_asked_for_their_counters_a_few_at_a_time() -> None:
    number = 3 * COUNTED_AT_ONCE
    run, osds = counting(*range(number))
    answered: Set[int] = set()
    now, hanging = 10.0, 1
    while not run.collect(BEFORE, now):
        asked = {osd for _, batch, _ in osds.requests for osd in batch}
        assert len(asked - answered) <= COUNTED_AT_ONCE
        assert run.progress == ('' if len(asked) == number else 'counters of %d of %d OSDs' % (
            len(answered), number))
        osds.ready = dict.fromkeys(asked - answered - {hanging}, counters(5))
        answered |= osds.ready.keys()
        now += 1.0
    assert len(answered) == number - 1 and not run.progress
    # One that does not answer delays the others only by its own place.
    assert now == 10.0 + PROBE_PATIENCE_SECONDS + 1.0


@pytest.mark.parametrize('answer', [
    None, [], {'osd': []}, {'osd': {'op_r': 'x'}}, {'osd': {'op_r': {}}}])
def test_counters_that_cannot_be_read_are_left_out(answer: Any,
                                                   caplog: pytest.LogCaptureFixture) -> None:
    run, osds = counting(1)
    assert not run.collect(BEFORE, 10.0)
    osds.ready = {1: answer}
    assert run.collect(BEFORE, 11.0) and run.counted() == ()
    assert 'osd.1: cannot read its counters' in caplog.text
