# SPDX-License-Identifier: LGPL-2.1-or-later
"""Asynchronous questions to OSDs, with a stub in place of ceph-mgr."""
import json
import types
from array import array
from typing import Any, Dict, List, Optional, Sequence, Tuple

import pytest

from perfguard.cluster.types import LatencyCounts, Pressure, Question

from ..fakes.mgr_module import CommandResult

QUEUE = Question(3, option='osd_op_queue')
PG = Question(4, pgid='1.2f')


class Mgr:
    def __init__(self) -> None:
        self.sent: List[Tuple[str, str, Dict[str, Any], CommandResult]] = []

    def send_command(self, result: CommandResult, service: str, target: str, command: str,
                     tag: str) -> None:
        self.sent.append((service, target, json.loads(command), result))

    def answer(self, out: str, retval: int = 0) -> None:
        for _, _, _, result in self.sent:
            if not result.ev.is_set():
                result.r, result.outb = retval, out
                result.ev.set()


class Asker:
    def __init__(self) -> None:
        from perfguard.cluster.osd_commands import OsdCommands, OsdQuestions
        self.mgr, self.now = Mgr(), 500.0
        mgr: Any = self.mgr
        self.questions = OsdQuestions(OsdCommands(mgr, lambda: self.now), lambda: self.now)

    def ask(self, *questions: Question) -> Dict[Question, str]:
        return dict(self.questions.answers(questions))


@pytest.fixture
def asker(mgr_stub: types.ModuleType) -> Asker:
    return Asker()


def test_who_is_asked_what(asker: Asker) -> None:
    assert asker.ask(QUEUE, PG) == {}
    assert [(service, target, command) for service, target, command, _ in asker.mgr.sent] == [
        ('osd', '3', {'prefix': 'config get', 'var': 'osd_op_queue', 'format': 'json'}),
        ('osd', '4', {'prefix': 'query', 'pgid': '1.2f', 'format': 'json'})]


def test_answers_come_later_and_serve_for_a_while(asker: Asker) -> None:
    asker.ask(QUEUE)
    asker.mgr.answer('{"osd_op_queue": "wpq"}')
    assert asker.ask(QUEUE) == {QUEUE: 'wpq'}
    asker.now += 4
    assert asker.ask(QUEUE) == {QUEUE: 'wpq'} and len(asker.mgr.sent) == 1
    asker.now += 4
    assert asker.ask(QUEUE) == {QUEUE: 'wpq'} and len(asker.mgr.sent) == 2
    asker.mgr.answer('{"osd_op_queue": "mclock_scheduler"}')
    assert asker.ask(QUEUE) == {QUEUE: 'mclock_scheduler'}
    asker.now += 20
    assert asker.ask(QUEUE) == {}


def test_two_osds_are_asked_for_the_same_option(asker: Asker) -> None:
    other = Question(4, option='osd_op_queue')
    asker.ask(QUEUE, other)
    asker.mgr.answer('{"osd_op_queue": "wpq"}')
    assert asker.ask(QUEUE, other) == {QUEUE: 'wpq', other: 'wpq'} and len(asker.mgr.sent) == 2


def test_an_osd_is_asked_several_questions_at_the_same_time(asker: Asker) -> None:
    asker.now = 0.0
    questions = [Question(4, option='osd_op_queue'), Question(4, option='osd_max_backfills'), PG,
                 Question(4, pgid='1.30')]
    asker.ask(*questions)
    assert len(asker.mgr.sent) == 4
    asker.mgr.answer('{"osd_op_queue": "wpq", "osd_max_backfills": 1, "state": "x"}')
    assert asker.ask(*questions) == dict(zip(questions, ('wpq', '1', 'x', 'x')))


def test_the_state_of_a_pg(asker: Asker) -> None:
    asker.ask(PG)
    asker.mgr.answer('{"state": "active+remapped+backfill_wait", "info": {}}')
    assert asker.ask(PG) == {PG: 'active+remapped+backfill_wait'}


@pytest.mark.parametrize('out,retval', [
    ('', 0), ('no json', 0), ('[]', 0), ('{}', 0), ('5', 0), ('{"state": "x"}', -2)])
def test_refusals_and_nonsense_are_no_answers(asker: Asker, out: str, retval: int) -> None:
    asker.ask(PG)
    asker.mgr.answer(out, retval)
    assert asker.ask(PG) == {}
    # And asked again.
    assert len(asker.mgr.sent) == 2


def test_one_that_hangs_is_asked_again_once_it_has_answered(asker: Asker) -> None:
    """Its late answer is not used."""
    for _ in range(3600):
        assert asker.ask(PG) == {}
        asker.now += 1
    assert len(asker.mgr.sent) == 1
    asker.mgr.answer('{"state": "late"}')
    assert asker.ask(PG) == {} and len(asker.mgr.sent) == 2
    asker.mgr.answer('{"state": "x"}')
    assert asker.ask(PG) == {PG: 'x'}


# ---- commands

class Osds:
    """OSDs that are sent commands, at a time that tests set."""

    def __init__(self) -> None:
        from perfguard.cluster.osd_commands import OsdCommands
        self.mgr, self.now = Mgr(), 500.0
        mgr: Any = self.mgr
        self.asking = OsdCommands(mgr, lambda: self.now)

    def asked(self) -> List[int]:
        """The OSDs that were sent a command since the last call."""
        osds = [int(target) for _, target, _, result in self.mgr.sent if result.outs != 'seen']
        for _, _, _, result in self.mgr.sent:
            result.outs = 'seen'
        return osds

    def answer(self, out: Any, osd: Optional[int] = None) -> None:
        """Pending commands are answered, those to `osd` only if it is given."""
        for _, target, _, result in self.mgr.sent:
            if not result.ev.is_set() and osd in (None, int(target)):
                result.outb = json.dumps(out)
                result.ev.set()


@pytest.fixture
def osds(mgr_stub: types.ModuleType) -> Osds:
    return Osds()


@pytest.mark.parametrize('late, pending', [(10.0, {3}), (10.5, set())])
def test_an_answer_is_pending_as_long_as_asked(osds: Osds, late: float, pending: Any) -> None:
    osds.asking.ask('x', [3], {'prefix': 'a'}, 10.0)
    osds.asking.ask('x', [3], {'prefix': 'a'}, 99.0)
    osds.asking.ask('y', [3, 4], {'prefix': 'b'}, 99.0)
    assert osds.asked() == [3, 3, 4]
    osds.now += late
    assert osds.asking.answers('x', json.loads) == [] and osds.asking.asked('x') == pending
    osds.answer(7)
    assert [tuple(answer) for answer in osds.asking.answers('x', json.loads)] == [
        (osd, 500.0, 7) for osd in pending]
    assert osds.asking.asked('x') == set() and osds.asking.asked('y') == {3, 4}
    assert [tuple(answer) for answer in osds.asking.answers('y', json.loads)] == [
        (3, 500.0, 7), (4, 500.0, 7)]


def test_commands_of_one_topic_do_not_pile_up_on_an_osd_that_hangs(osds: Osds) -> None:
    """Other OSDs and other topics are asked meanwhile."""
    for _ in range(9):
        osds.asking.ask('x', [3, 4], {'prefix': 'a'}, 10.0)
        osds.asking.ask('y', [3], {'prefix': 'b'}, 99.0)
        osds.answer(7, osd=4)
        osds.now += 11.0
        assert [answer.osd for answer in osds.asking.answers('x', json.loads)] == [4]
        assert osds.asking.asked('x') == set()
    assert osds.asked() == [3, 4, 3] + [4] * 8
    osds.answer(7, osd=3)
    assert osds.asking.answers('x', json.loads) == []
    osds.asking.ask('x', [3], {'prefix': 'a'}, 10.0)
    assert osds.asked() == [3]


@pytest.mark.parametrize('later, repeated', [(5.0, False), (5.5, True)])
def test_a_question_is_repeated_after_five_seconds(asker: Asker, later: float,
                                                   repeated: bool) -> None:
    asker.ask(PG)
    asker.now += 1.0
    asker.mgr.answer('{"state": "x"}')
    assert asker.ask(PG) == {PG: 'x'}
    asker.now = 500.0 + later
    assert asker.ask(PG) == {PG: 'x'} and len(asker.mgr.sent) == (2 if repeated else 1)
    # While it is pending, it is not sent again.
    assert asker.ask(PG) == {PG: 'x'} and len(asker.mgr.sent) == (2 if repeated else 1)


@pytest.mark.parametrize('later, answers', [(15.0, {PG: 'x'}), (15.5, {})])
def test_an_answer_serves_for_fifteen_seconds_after_its_question(
        asker: Asker, later: float, answers: Dict[Question, str]) -> None:
    asker.ask(PG)
    asker.now += 1.0
    asker.mgr.answer('{"state": "x"}')
    asker.ask(PG)
    asker.now = 500.0 + later
    assert asker.ask(PG) == answers


# ---- samples of histograms

def test_osds_are_chosen_in_turn(mgr_stub: types.ModuleType) -> None:
    from perfguard.cluster.osd_commands import InTurn
    turn = InTurn()
    assert [turn.choose(*given) for given in (
        ((5, 0, 3), 1), ((5, 1, 3), 2), ((5, 1, 3), 0), ((), 2), ((5, 1, 3), -1),
        ((5, 1, 3), 2), ((1, 3, 5, 7), 9))] == [
            [0], [1, 3], [], [], [], [5, 1], [3, 5, 7, 1]]


def dump(read: Sequence[int], write: Sequence[int], bounds: Sequence[int] = (99,),
         write_bounds: Optional[Sequence[int]] = None) -> Any:
    def one(rows: Sequence[int], uppers: Sequence[int]) -> Any:
        return {'axes': [{'ranges': [*({'max': bound} for bound in uppers), {}]},
                         {'ranges': [{'max': 7}, {}]}],
                'values': [[row, 10 * row] for row in rows]}
    return {'osd': {
        'op_r_latency_out_bytes_histogram': one(read, bounds),
        'op_w_latency_in_bytes_histogram': one(
            write, bounds if write_bounds is None else write_bounds)}}


def test_a_dump_of_histograms(mgr_stub: types.ModuleType) -> None:
    from perfguard.cluster.osd_commands import histograms
    assert histograms(json.dumps(dump((1, 2), (0, 3)))) == (
        array('q', (100,)), array('q', (11, 22)), array('q', (0, 33)))
    for odd in (dump((1,), (1,), ()), dump((1, 2, 3), (1, 2, 3)), dump((1,), (1,)),
                dump((1, 2), (1, 2), (99,), (98,))):
        with pytest.raises(ValueError):
            histograms(json.dumps(odd))


@pytest.mark.parametrize('later, counts', [
    (((1, 2), (3, 4)), ((0, 0), (0, 0))), (((1, 3), (5, 4)), ((0, 1), (2, 0))),
    (((0, 9), (9, 9)), None), (((9, 9), (9, 3)), None)])
def test_counts_that_decrease_are_those_of_a_restarted_osd(
        mgr_stub: types.ModuleType, later: Any, counts: Any) -> None:
    from perfguard.cluster.osd_commands import Histograms
    bounds = array('q', (100,))
    before = Histograms(bounds, array('q', (1, 2)), array('q', (3, 4)))
    read, write = later
    assert Histograms(bounds, array('q', read), array('q', write)).since(before) == counts


class Sampled:
    """A sampler of OSDs that answer at once, in the next call."""

    def __init__(self, osds: Osds) -> None:
        from perfguard.cluster.osd_commands import HistogramSampler
        self.osds, self.sampler = osds, HistogramSampler(osds.asking)

    def take(self, seconds: float, alive: Sequence[int] = (3,)) -> Tuple[LatencyCounts, ...]:
        self.osds.now += seconds
        return self.sampler.take(self.osds.now, alive)


def test_a_sample_is_what_two_dumps_differ_by(osds: Osds) -> None:
    sampled = Sampled(osds)
    assert sampled.take(0.0) == () and osds.asked() == [3] and not sampled.sampler.sampling()
    osds.answer(dump((1, 0), (0, 0)))
    assert sampled.take(2.0) == () and sampled.sampler.sampling() == {3} and not osds.asked()
    assert sampled.take(27.5) == () and not osds.asked(), 'after 29.5 s'
    assert sampled.take(0.5) == () and osds.asked() == [3]
    osds.answer(dump((3, 0), (0, 5)))
    sample = LatencyCounts(3, 30.0, (100,), (22, 0), (0, 55))
    assert sampled.take(1.5) == (sample,) and not sampled.sampler.sampling()
    assert sampled.sampler.counted == (sample._replace(age=1.5),)
    # The next sample begins, and what came in between is counted.
    assert osds.asked() == [3]
    osds.answer(dump((3, 0), (0, 6)))
    assert sampled.take(1.0) == () and sampled.sampler.sampling() == {3}
    assert sampled.sampler.counted == (LatencyCounts(3, 1.5, (100,), (0, 0), (0, 11), 1.0),)


def test_dumps_of_one_moment_count_nothing(osds: Osds) -> None:
    sampled = Sampled(osds)
    for seconds, counted in ((0.0, []), (0.0, []), (30.0, []), (0.0, [30.0]), (0.0, [])):
        sampled.take(seconds)
        assert [counts.seconds for counts in sampled.sampler.counted] == counted
        osds.answer(dump((1, 0), (0, 0)))


@pytest.mark.parametrize('seconds, is_counted', [(4 * 3600.0, True), (4 * 3600.0 + 1.0, False)])
def test_operations_are_counted_over_four_hours(osds: Osds, seconds: float,
                                                is_counted: bool) -> None:
    sampled = Sampled(osds)
    sampled.take(0.0)
    osds.answer(dump((1, 0), (0, 0)))
    sampled.take(0.0)
    sampled.take(seconds, ())
    # It is alive again, and asked at once, since no sample of it is in progress.
    sampled.take(0.0)
    osds.answer(dump((2, 0), (0, 0)))
    sampled.take(0.0)
    assert [counts.seconds for counts in sampled.sampler.counted] == [seconds] * is_counted


@pytest.mark.parametrize('alive, number', [
    (15, 15), (17, 16), (128, 16), (135, 16), (136, 17), (256, 32), (300, 32)])
def test_how_many_samples_begin_at_the_same_time(osds: Osds, alive: int, number: int) -> None:
    sampled = Sampled(osds)
    sampled.take(0.0, range(alive))
    assert osds.asked() == list(range(number))
    # Those that have not answered yet count.
    sampled.take(1.0, range(alive))
    assert osds.asked() == []


# ---- ping times

def test_osds_are_asked_for_ping_times_each_minute(osds: Osds) -> None:
    from perfguard.cluster.osd_commands import PingTimes
    pings = PingTimes(osds.asking)

    def take(now: float, laggy: Sequence[int] = ()) -> Any:
        osds.now = now
        return pings.take(now, range(6), laggy)

    def answer(ms: float, osd: Optional[int] = None) -> None:
        osds.answer({'entries': [{'to osd': 9, 'average': {'1min': ms}}]}, osd)

    assert take(500.0) is None and osds.asked() == [0, 1, 2, 3]
    answer(1.5, 2)
    assert take(559.0) == {9: {2: 1.5}} and osds.asked() == []
    # Three have not answered.
    assert take(560.0) is None and osds.asked() == [4]
    assert take(569.0, [5, 1]) is None and osds.asked() == []
    answer(2.5, 4)
    assert take(570.0, [5]) == {9: {2: 1.5, 4: 2.5}} and osds.asked() == [5]
    answer(3.5, 5)
    answer(9.5)  # of the three, too late
    assert take(1100.0) == {9: {2: 1.5, 4: 2.5, 5: 3.5}}, 'those of 600 s'
    osds.asked()
    answer(4.5)
    assert take(1161.0) == {9: {5: 3.5, 0: 4.5, 1: 4.5, 2: 4.5, 3: 4.5}}
    osds.answer({'entries': []})
    assert take(1801.0) == {}


def test_no_new_answer_is_no_reading(osds: Osds) -> None:
    from perfguard.cluster.osd_commands import PingTimes
    pings = PingTimes(osds.asking)
    assert pings.take(500.0, [1], []) is None
    osds.answer({'entries': []})
    assert pings.take(501.0, [1], []) == {} and pings.take(502.0, [1], []) is None


def test_the_median_of_ping_times(mgr_stub: types.ModuleType) -> None:
    from perfguard.cluster.osd_commands import median_ping_ms
    assert median_ping_ms({1: {2: 7.0}, 3: {4: 9.0, 5: 1.0}, 6: {1: 9.0, 2: 1.0, 3: 5.0}}) == {
        1: 7.0, 3: 9.0, 6: 5.0}


@pytest.mark.parametrize('ms, times', [
    (0.0, {9: 0.0}), (6.048e8, {9: 6.048e8}), (6.049e8, {}), (-0.1, {})])
def test_a_ping_time_is_one_of_at_most_a_week(mgr_stub: types.ModuleType, ms: float,
                                              times: Dict[int, float]) -> None:
    from perfguard.cluster.osd_commands import ping_times
    assert ping_times(json.dumps(
        {'entries': [{'to osd': '9', 'average': {'1min': ms}}]})) == times


# ---- pressure

@pytest.mark.parametrize('later, pressure', [
    (({'a': 3.0, 'b': 4.5}, 14.0, 7.0), Pressure(0.5, 250.0)),
    (({'a': 9.0, 'b': 2.0}, 10.0, 6.0), Pressure(1.0, None)),
    (({'a': 1.0, 'b': 2.0, 'c': 1.0}, 10.0, 6.0), Pressure(0.2, None)),
    (({'a': 1.0, 'b': 2.0}, 12.0, 6.0), Pressure(0.0, 0.0)), (({}, 14.0, 7.0), None),
    (({'a': 0.9, 'b': 4.5}, 14.0, 7.0), None), (({'a': 3.0}, 9.0, 7.0), None),
    (({'a': 3.0}, 14.0, 5.0), None)])
def test_how_busy_an_osd_has_been_in_five_seconds(mgr_stub: types.ModuleType, later: Any,
                                                  pressure: Optional[Pressure]) -> None:
    from perfguard.cluster.osd_commands import WorkTimes
    before = WorkTimes({'a': 1.0, 'b': 2.0}, 10.0, 6.0)
    assert WorkTimes(*later).since(before, 5.0) == pressure


def test_the_times_of_messenger_threads(mgr_stub: types.ModuleType) -> None:
    from perfguard.cluster.osd_commands import work_times
    assert work_times(json.dumps({
        'osd': {'op_before_dequeue_op_lat': {'avgcount': 3, 'sum': 1.5}},
        'AsyncMessenger::Worker-0': {'msgr_running_total_time': 7},
        'AsyncMessenger::Worker-1': {}, 'other': {'msgr_running_total_time': 9}})) == (
            {'AsyncMessenger::Worker-0': 7.0}, 3.0, 1.5)


@pytest.mark.parametrize('seconds, asked', [(4.5, []), (5.0, [3]), (60.0, [3])])
def test_the_pressure_of_osds_is_read_every_five_seconds(osds: Osds, seconds: float,
                                                         asked: List[int]) -> None:
    from perfguard.cluster.osd_commands import PressureSampler
    sampler = PressureSampler(osds.asking)

    def answer(worked: float) -> None:
        osds.answer({'osd': {'op_before_dequeue_op_lat': {'avgcount': 0, 'sum': 0}},
                     'AsyncMessenger::Worker-0': {'msgr_running_total_time': worked}})

    assert sampler.take(500.0, [9, 8, 7, 6, 5]) == {} and osds.asked() == [9, 8, 7, 6]
    osds.asking.ask('pressure', [3], {'prefix': 'perf dump'})
    osds.asked()
    answer(1.0)
    assert sampler.take(500.0, []) == {} and osds.asked() == []
    osds.now += seconds
    assert sampler.take(osds.now, [3]) == {} and osds.asked() == asked
    answer(1.0 + seconds / 2)
    assert sampler.take(osds.now, []) == {osd: Pressure(0.5) for osd in asked}


def test_a_dump_of_more_than_a_minute_ago_is_compared_with_none(osds: Osds) -> None:
    from perfguard.cluster.osd_commands import PressureSampler
    sampler = PressureSampler(osds.asking)
    out = {'osd': {'op_before_dequeue_op_lat': {'avgcount': 0, 'sum': 0}},
           'AsyncMessenger::Worker-0': {'msgr_running_total_time': 1.0}}
    for now in (500.0, 500.0, 561.0, 561.0):
        osds.now = now
        assert sampler.take(now, [3]) == {}
        osds.answer(out)
