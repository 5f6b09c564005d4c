# SPDX-License-Identifier: LGPL-2.1-or-later
"""Commands to OSDs. The loop never waits for answers, because an OSD may hang."""
import json
import logging
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Sequence, Set, Tuple

from mgr_module import CommandResult, MgrModule

from .types import Question

log = logging.getLogger(__name__)

#: Time after which an answer is no longer expected.
PATIENCE_SECONDS = 60.0


class OsdAnswer(NamedTuple):
    osd: int
    #: When the command was sent, by the clock of OsdCommands.
    asked: float
    parsed: Any


class OsdCommands:
    """Commands to many OSDs on one topic. Only for the thread of the module.

    At least up to Reef, ceph-mgr keeps the Python state of the thread that sends a command until
    the answer arrives. The state of the thread of a command handler is freed before, which crashes
    the mgr.
    """

    def __init__(self, mgr: MgrModule, clock: Callable[[], float]) -> None:
        self._mgr = mgr
        self._clock = clock
        self._open: Dict[Tuple[str, int], Tuple[float, CommandResult]] = {}

    def ask(self, topic: str, osds: Iterable[int], command: Mapping[str, Any]) -> None:
        """Send a command to each of the OSDs without a pending answer on this topic."""
        for osd in osds:
            if (topic, osd) not in self._open:
                result = CommandResult('')
                self._mgr.send_command(result, 'osd', str(osd),
                                       json.dumps({'format': 'json', **command}), '')
                self._open[topic, osd] = (self._clock(), result)

    def asked(self, topic: str) -> Set[int]:
        """OSDs whose answer is pending."""
        return {osd for open_topic, osd in self._open if open_topic == topic}

    def answers(self, topic: str, parse: Callable[[str], Any]) -> List[OsdAnswer]:
        """Answers since the last call, without refusals and late answers.

        Answers that `parse` cannot read are logged and dropped.
        """
        found: List[OsdAnswer] = []
        now = self._clock()
        for key, (asked, result) in list(self._open.items()):
            if key[0] != topic:
                continue
            if result.ev.is_set():
                del self._open[key]
                if result.r != 0:
                    continue
                try:
                    found.append(OsdAnswer(key[1], asked, parse(result.outb)))
                except (ArithmeticError, AttributeError, LookupError, TypeError,
                        ValueError) as error:
                    log.warning('osd.%d: cannot read %s: %r', key[1], topic,
                                error)
            elif now - asked > PATIENCE_SECONDS:
                del self._open[key]
        return found


# ---- Single questions to OSDs

#: Age of an answer after which it is requested again, and after which it is dropped.
FRESH_SECONDS = 5.0
OLD_SECONDS = 15.0


class OsdQuestions:
    """Single questions to OSDs, whose answers are kept for some seconds."""

    def __init__(self, mgr: MgrModule, clock: Callable[[], float]) -> None:
        self._mgr = mgr
        self._clock = clock
        self._open: Dict[Question, Tuple[float, CommandResult]] = {}
        #: When the question was sent, and the answer.
        self._known: Dict[Question, Tuple[float, str]] = {}

    def answers(self, questions: Sequence[Question]) -> Mapping[Question, str]:
        """Known answers; the others are requested, and known in a later turn."""
        now = self._clock()
        self._collect(now)
        for question in questions:
            asked = self._known.get(question, (float('-inf'), ''))[0]
            if question not in self._open and now - asked > FRESH_SECONDS:
                result = CommandResult('')
                self._mgr.send_command(result, 'osd', str(question.osd),
                                       json.dumps(_command(question)), '')
                self._open[question] = (now, result)
        return {question: self._known[question][1] for question in questions
                if question in self._known}

    def _collect(self, now: float) -> None:
        for question, (asked, result) in list(self._open.items()):
            if result.ev.is_set():
                del self._open[question]
                if result.r == 0:
                    self._note(question, asked, result.outb)
            elif now - asked > PATIENCE_SECONDS:
                del self._open[question]
        self._known = {question: known for question, known in self._known.items()
                       if now - known[0] <= OLD_SECONDS}

    def _note(self, question: Question, asked: float, out: str) -> None:
        try:
            found = json.loads(out)
            self._known[question] = (asked, str(found[question.option or 'state']))
        except (LookupError, TypeError, ValueError) as error:
            log.warning('osd.%d: cannot read its answer: %r', question.osd, error)


def _command(question: Question) -> Mapping[str, Any]:
    if question.pgid:
        # Sent to the primary as an OSD: a command to a PG does not arrive on every release, and an
        # OSD that is not the primary of the PG never answers.
        return {'prefix': 'query', 'pgid': question.pgid, 'format': 'json'}
    return {'prefix': 'config get', 'var': question.option, 'format': 'json'}
