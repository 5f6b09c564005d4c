# SPDX-License-Identifier: LGPL-2.1-or-later
"""Latency histograms of a few OSDs at a time, all in turn: the mean of all hides the tail."""
from typing import Dict, FrozenSet, List, Sequence, Tuple

from .osd_commands import Asking
from .osd_replies import Histograms, histograms
from .types import LatencyCounts

#: OSDs that are sampled at the same time: an eighth, within these bounds; and over how many
#: seconds: a dump of some 15 KB at the beginning, one at the end.
SAMPLED_SHARE = 8
SAMPLED_LEAST, SAMPLED_MOST = 3, 32
SAMPLE_SECONDS = 30.0
TOPIC = 'latency'
COMMAND = {'prefix': 'perf histogram dump', 'logger': 'osd'}


class Sampler:
    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        #: First dump of the OSDs that are sampled now: OSD -> (when, histograms).
        self._first: Dict[int, Tuple[float, Histograms]] = {}
        #: The OSD after which the next ones come.
        self._last = -1

    def take(self, now: float, alive: Sequence[int]) -> Tuple[LatencyCounts, ...]:
        """Samples that are complete; asks for what the next ones need. `alive`: sorted."""
        done = self._collect()
        for osd in set(self._first) - set(alive):
            del self._first[osd]
        ended = [osd for osd, (begin, _) in self._first.items() if now - begin >= SAMPLE_SECONDS]
        self._asking.ask(TOPIC, ended + self._next(alive), COMMAND)
        return tuple(done)

    def sampling(self) -> FrozenSet[int]:
        """OSDs between their first dump and their second."""
        return frozenset(self._first)

    def _collect(self) -> List[LatencyCounts]:
        done: List[LatencyCounts] = []
        for answer in self._asking.answers(TOPIC, histograms):
            found: Histograms = answer.parsed
            begin = self._first.pop(answer.osd, None)
            if begin is None:
                self._first[answer.osd] = (answer.asked, found)
            elif answer.asked > begin[0]:
                counts = found.since(begin[1])
                if counts is not None:
                    done.append(LatencyCounts(answer.osd, answer.asked - begin[0], found.bounds,
                                              *counts))
        return done

    def _next(self, alive: Sequence[int]) -> List[int]:
        busy = set(self._first) | self._asking.asked(TOPIC)
        wanted = min(SAMPLED_MOST, max(SAMPLED_LEAST, len(alive) // SAMPLED_SHARE))
        room = wanted - len(busy)
        waiting = [osd for osd in alive if osd > self._last] + \
            [osd for osd in alive if osd <= self._last]
        chosen = [osd for osd in waiting if osd not in busy][:max(0, room)]
        if chosen:
            self._last = chosen[-1]
        return chosen
