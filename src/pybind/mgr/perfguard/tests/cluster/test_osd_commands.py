# SPDX-License-Identifier: LGPL-2.1-or-later
"""Asynchronous questions to OSDs, with a stub in place of ceph-mgr."""
import json
import types
from typing import Any, Dict, List, Tuple

import pytest

from perfguard.cluster.types import Question

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


def test_one_that_hangs_is_asked_again_after_a_minute(asker: Asker) -> None:
    for _ in range(59):
        assert asker.ask(PG) == {}
        asker.now += 1
    assert len(asker.mgr.sent) == 1
    asker.now += 3
    asker.ask(PG)
    assert len(asker.mgr.sent) == 2
