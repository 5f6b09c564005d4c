# SPDX-License-Identifier: LGPL-2.1-or-later
"""Commands to OSDs that nobody waits for: an OSD that hangs must not stop the loop."""
import json
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Set, Tuple

from mgr_module import CommandResult, MgrModule

#: Seconds until an answer is not expected any more.
PATIENCE_SECONDS = 60.0


class Answer(NamedTuple):
    osd: int
    #: When it was asked, by the clock of Asking.
    asked: float
    out: str


class Asking:
    def __init__(self, mgr: MgrModule, clock: Callable[[], float]) -> None:
        self._mgr = mgr
        self._clock = clock
        self._open: Dict[Tuple[str, int], Tuple[float, CommandResult]] = {}

    def ask(self, topic: str, osds: Iterable[int], command: Mapping[str, Any]) -> None:
        """Send a command to each of the OSDs that owes no answer on the same topic."""
        for osd in osds:
            if (topic, osd) not in self._open:
                result = CommandResult('')
                self._mgr.send_command(result, 'osd', str(osd),
                                       json.dumps({'format': 'json', **command}), '')
                self._open[topic, osd] = (self._clock(), result)

    def asked(self, topic: str) -> Set[int]:
        """OSDs that owe an answer."""
        return {osd for open_topic, osd in self._open if open_topic == topic}

    def answers(self, topic: str) -> List[Answer]:
        """What has come in since the last call; refusals and late answers are dropped."""
        found: List[Answer] = []
        now = self._clock()
        for key, (asked, result) in list(self._open.items()):
            if key[0] != topic:
                continue
            if result.ev.is_set():
                if result.r == 0:
                    found.append(Answer(key[1], asked, result.outb))
                del self._open[key]
            elif now - asked > PATIENCE_SECONDS:
                del self._open[key]
        return found
