# SPDX-License-Identifier: LGPL-2.1-or-later
"""Commands for the mons: sent together, but not more than they can answer in time."""
import json
import math
import threading
import time
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Optional

import pytest

from perfguard.clock import Clock
from perfguard.cluster.crush import CrushRules
from perfguard.rebalance.joining import MAX_BURST_PINS

from .test_crush import DUMP
from .test_set_by_others import entry

pytestmark = pytest.mark.usefixtures('mgr_stub')


class Mons:
    """The mgr's API; the mons answer all commands that they have with each proposal.

    They propose a while after the first command, or once so many wait.
    """

    def __init__(self, answers: int = 1 << 30, wait_for: int = 0) -> None:
        self._lock = threading.Lock()
        self._waiting: List[Any] = []
        #: After this number, they are silent.
        self._answers, self._wait_for = answers, wait_for
        self.sent: List[Dict[str, Any]] = []
        #: Their output, by command.
        self.outputs: Dict[str, str] = {}
        self.most = 0
        self.module_name = 'perfguard'

    def get_latest_counter(self, kind: str, daemon: str, counter: str) -> Any:
        return {counter: []}

    def send_command(self, result: Any, service: str, target: str, command: str,
                     *rest: str) -> None:
        with self._lock:
            self.sent.append(json.loads(command))
            result.outb = self.outputs.get(self.sent[-1]['prefix'], '')
            if len(self.sent) <= self._answers:
                self._waiting.append(result)
            self.most = max(self.most, len(self._waiting))
            if len(self._waiting) == 1 and not self._wait_for:
                threading.Timer(0.3, self._propose).start()
            if len(self._waiting) == self._wait_for:
                threading.Thread(target=self._propose).start()

    def _propose(self) -> None:
        with self._lock:
            for result in self._waiting:
                result.ev.set()
            self._waiting.clear()


def mgr_cluster(mons: Mons, stopping: bool = False, clock: Optional[Any] = None) -> Any:
    from perfguard.cluster.mgr import MgrCluster
    cluster: Any = MgrCluster
    return cluster(mons, lambda: stopping, clock or Clock())


def commands(number: int) -> List[Dict[str, Any]]:
    return [{'prefix': 'osd rm-pg-upmap-items', 'pgid': '1.%x' % seed} for seed in range(number)]


def test_no_more_commands_wait_for_the_mons_than_they_answer_in_a_few_seconds() -> None:
    """The CRUSH map of a large cluster is restored, with a pin for each PG that has moved. The
    beacons of the mgr wait behind all of them, and without beacons the mons replace it."""
    mons, wanted = Mons(), commands(15000)
    replies = mgr_cluster(mons).run(wanted)
    assert [reply.retval for reply in replies] == [0] * len(wanted) and mons.sent == wanted
    assert mons.most <= 5000


def test_a_burst_that_fits_into_one_epoch_is_sent_at_once() -> None:
    """Each pin takes up to two commands, and the OSDs get their weights."""
    number = 2 * MAX_BURST_PINS + 500
    mons = Mons(wait_for=number)
    replies = mgr_cluster(mons).run(commands(number), timeout=60.0)
    assert mons.most == number and [reply.retval for reply in replies] == [0] * number


def test_without_an_answer_the_rest_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    from perfguard.cluster import mgr
    monkeypatch.setattr(mgr, 'MOST_COMMANDS', 3)
    mons = Mons(answers=4)
    cluster = mgr_cluster(mons)
    replies = cluster.run(commands(9), timeout=1.0)
    assert [reply.retval for reply in replies] == [0] * 4 + [None] * 5
    assert len(mons.sent) == 6 and cluster.unanswered()


@pytest.mark.parametrize('stopping, timeout', [(False, 1.0), (True, 60.0)])
def test_mons_without_quorum_are_waited_for_once(stopping: bool, timeout: float) -> None:
    """Not for each of 2,000 pins: the loop would stand still for a quarter of an hour."""
    begin = time.monotonic()
    replies = mgr_cluster(Mons(answers=0), stopping).run(commands(200), timeout=timeout)
    assert [reply.retval for reply in replies] == [None] * 200
    assert time.monotonic() - begin < 30.0


def test_flags_that_others_have_set_are_known_from_the_log_and_its_new_entries() -> None:
    mons = Mons()
    cluster = mgr_cluster(mons)
    assert not cluster.flags_set_by_others() and not cluster.flags_set_by_others()
    assert [command['prefix'] for command in mons.sent] == ['log last'], 'it is read once'
    cluster.hear(entry(1, 'set'))
    assert cluster.flags_set_by_others() == {'norebalance'}


def test_flags_that_others_have_set_before_are_read_from_the_log() -> None:
    mons = Mons()
    mons.outputs['log last'] = json.dumps([entry(1, 'set')])
    cluster = mgr_cluster(mons)
    assert cluster.flags_set_by_others() == cluster.flags_set_by_others() == {'norebalance'}
    cluster.hear(entry(2, 'unset'))
    assert not cluster.flags_set_by_others()


def test_switches_of_the_balancer_are_read_from_the_log_at_intervals() -> None:
    """They are debug messages, which the mgr does not receive."""
    mons, now = Mons(), [1e12]
    cluster = mgr_cluster(mons, clock=lambda: now[0])
    assert cluster.values_set_by_others(math.inf) == {}
    off = {**entry(1, 'set'), 'message': "entity='client.admin' cmd=[{\"prefix\": "
           "\"balancer off\"}]: dispatch"}
    mons.outputs['log last'] = json.dumps([off])
    assert cluster.values_set_by_others(math.inf) == {}
    assert cluster.values_set_by_others(300.0)['mgr/balancer/active'][0] == 'false'
    for seconds, age, number in (
            (29.0, 0.0, 1), (1.0, 300.0, 1), (0.0, 0.0, 2), (299.0, 300.0, 2), (1.0, 300.0, 3)):
        now[0] += seconds
        cluster.values_set_by_others(age)
        assert [command['level'] for command in mons.sent] == ['info'] + ['debug'] * number


def test_the_log_is_asked_for_again_if_the_mons_do_not_answer(monkeypatch: pytest.MonkeyPatch
                                                              ) -> None:
    from perfguard.cluster import mgr
    monkeypatch.setattr(mgr, 'CONFIG_TIMEOUT', 0.1)
    monkeypatch.setattr(mgr, 'AUDIT_SECONDS', 0.5)
    monkeypatch.setattr(mgr, 'ASK_AGAIN_SECONDS', 0.0)
    mons = Mons(wait_for=2)
    cluster = mgr_cluster(mons)
    assert not cluster.flags_set_by_others()
    # The second command lets them answer.
    cluster.run(commands(1))
    assert not cluster.flags_set_by_others() and len(mons.sent) == 2, 'not in every iteration'
    time.sleep(0.6)
    cluster.flags_set_by_others()
    assert len(mons.sent) == 3


QUESTIONS: Dict[str, Callable[[Any], Any]] = {
    'config dump': lambda cluster: cluster.config_entries(),
    'config log': lambda cluster: cluster.option_changes(),
    'log last': lambda cluster: cluster.flags_set_by_others() or None,
    'config-key get': lambda cluster: cluster.stored(['owner']) or None,
    'versions': lambda cluster: cluster.release() or None}


@pytest.mark.parametrize('prefix', QUESTIONS)
def test_mons_without_quorum_are_asked_once_and_waited_for_once(
        monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    """A night without a quorum would end with thousands of answers at once, and the loop would
    wait for mons all night, the watch included."""
    from perfguard.cluster import mgr
    monkeypatch.setattr(mgr, 'CONFIG_TIMEOUT', 0.5)
    monkeypatch.setattr(mgr, 'AUDIT_SECONDS', 0.0)
    monkeypatch.setattr(mgr, 'ASK_AGAIN_SECONDS', 0.0)
    mons = Mons(wait_for=2)
    cluster, begin = mgr_cluster(mons), time.monotonic()
    assert [QUESTIONS[prefix](cluster) for _ in range(5)] == [None] * 5
    assert time.monotonic() - begin < 1.0
    assert [command['prefix'] for command in mons.sent] == [prefix] and cluster.unanswered()
    # The second command lets them answer.
    cluster.run(commands(1))
    assert not cluster.unanswered()
    assert QUESTIONS[prefix](cluster) is None and len(mons.sent) == 3, 'the late answer is old'


def test_an_unanswered_question_keeps_no_other_from_being_asked(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one of the same kind, and commands that change the cluster and are sent again."""
    from perfguard.cluster import mgr
    monkeypatch.setattr(mgr, 'CONFIG_TIMEOUT', 0.02)
    mons = Mons(answers=0)
    cluster = mgr_cluster(mons)
    assert cluster.stored(['a']) == cluster.stored(['b']) == cluster.stored(['a', 'c']) == {}
    assert [command['key'][-1] for command in mons.sent] == ['a', 'b']
    for _ in range(2):
        cluster.run(commands(1), 0.02)
    assert mons.sent[2:] == commands(1) * 2


def test_mons_that_answer_late_are_asked_at_growing_intervals(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop would wait in each turn."""
    from perfguard.cluster import mgr
    monkeypatch.setattr(mgr, 'CONFIG_TIMEOUT', 0.02)
    mons, now = Mons(wait_for=2), [1000.0]
    cluster = mgr_cluster(mons, clock=lambda: now[0])

    def asked(at: float) -> bool:
        """Whether the mons are asked at a time; they answer after the wait."""
        now[0], number = at, len(mons.sent)
        assert cluster.config_entries() is None
        if len(mons.sent) == number:
            return False
        cluster.run(commands(1))
        assert not cluster.unanswered()
        return True

    assert asked(1000.0)
    for begin, seconds in ((1000.0, 10.0), (1010.0, 20.0), (1030.0, 40.0), (1070.0, 40.0)):
        assert not asked(begin + seconds - 0.1) and asked(begin + seconds)
    assert cluster.option_changes() is None and mons.sent[-1]['prefix'] == 'config log'
    cluster.run(commands(1))
    # An answer in time resets the interval.
    mons.outputs['config dump'] = '[]'
    mons._wait_for, now[0] = 1, 1150.0
    monkeypatch.setattr(mgr, 'CONFIG_TIMEOUT', 5.0)
    assert cluster.config_entries() == cluster.config_entries() == ()
    monkeypatch.setattr(mgr, 'CONFIG_TIMEOUT', 0.02)
    mons._wait_for = 2
    assert asked(1150.0) and not asked(1159.9) and asked(1160.0)
    # So does a time in which it is not asked.
    assert asked(1220.0) and not asked(1229.9) and asked(1230.0)


def test_mons_that_remain_silent_are_not_waited_for_as_long_again(
        monkeypatch: pytest.MonkeyPatch) -> None:
    from perfguard.cluster import mgr
    monkeypatch.setattr(mgr, 'SILENT_TIMEOUT', 0.02)
    mons, waits = Mons(wait_for=3), []
    cluster = mgr_cluster(mons)
    wait = cluster._wait

    def noted(results: Any, deadline: float) -> Any:
        waits.append(round(deadline - time.monotonic(), 1))
        return wait(results, min(deadline, time.monotonic() + 0.05))

    monkeypatch.setattr(cluster, '_wait', noted)
    for _ in range(2):
        cluster.run(commands(1))
    # The third command lets them answer all.
    cluster.run(commands(1))
    mons._wait_for = 1
    cluster.run(commands(1))
    assert waits == [60.0, 0.0, 0.0, 60.0]
    cluster.run([])
    assert not cluster._are_silent, 'nothing was sent'


def test_a_flag_is_cleared_although_the_clock_of_the_host_was_ahead(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """It is set an hour ahead while an operator sets the flag, and right again afterwards."""
    cluster = mgr_cluster(Mons())
    ordered, now = entry(1, 'set'), time.time
    monkeypatch.setattr('time.time', lambda: now() + 3600.0)
    cluster.hear(ordered)
    assert cluster.flags_set_by_others() == {'norebalance'}
    monkeypatch.undo()
    cluster.hear(entry(2, 'unset'))
    assert cluster.flags_set_by_others() == frozenset()


def test_an_order_ends_with_an_osdmap_without_its_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log lacks the order that has cleared it. Otherwise perfguard would take its own flag for
    that of an operator, and leave it set for good."""
    from perfguard.cluster import mgr
    monkeypatch.setattr(mgr, 'MapView', lambda handle, known_items: SimpleNamespace(osdmap=handle))
    osdmaps = iter(SimpleNamespace(epoch=epoch, get_epoch=lambda: epoch, flags=frozenset(flags))
                   for epoch, flags in enumerate((('norebalance',), (), ('norebalance',))))
    mons: Any = SimpleNamespace(get_osdmap=lambda: next(osdmaps), get_latest_counter=Mons(
        ).get_latest_counter, send_command=Mons().send_command)
    cluster = mgr_cluster(mons, clock=iter(range(1 << 40, 1 << 41, 3600)).__next__)
    cluster.hear(entry(1, 'set'))
    standing = []
    for _ in range(3):
        cluster.map_view()
        standing.append(bool(cluster.flags_set_by_others()))
    assert standing == [True, True, False]


def test_crush_is_that_of_the_osdmap_of_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """ceph-mgr has received the next OSDMap in between, in which an OSD has no weight anymore."""
    from perfguard.cluster import mgr
    monkeypatch.setattr(mgr, 'osdmap_from_dump', lambda dump, known_items: SimpleNamespace(
        epoch=7, flags=frozenset()))
    later: Any = {**DUMP, 'buckets': [{**row, 'items': []} for row in DUMP['buckets']]}
    handle = SimpleNamespace(dump=dict, get_epoch=lambda: 7, get_crush_version=lambda: 3,
                             get_crush=lambda: SimpleNamespace(dump=lambda: DUMP))
    mons: Any = SimpleNamespace(get_latest_counter=Mons().get_latest_counter,
                                get_osdmap=lambda: handle, get=lambda name: later)
    cluster = mgr_cluster(mons)
    crush = cluster.crush(cluster.map_view().crush_version)
    assert crush.weights() == CrushRules.from_dump(DUMP).weights()
