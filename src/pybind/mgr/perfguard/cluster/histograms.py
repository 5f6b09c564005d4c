# SPDX-License-Identifier: LGPL-2.1-or-later
"""Latency histograms of a few OSDs at a time, all in turn: the mean of all hides the tail."""
import json
from typing import Any, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .osd_commands import OsdCommands
from .types import LatencyCounts

#: OSDs that are sampled at the same time: an eighth, within these bounds; and over how many
#: seconds: a dump of some 15 KB at the beginning, one at the end.
SAMPLED_SHARE = 8
SAMPLED_LEAST, SAMPLED_MOST = 3, 32
SAMPLE_SECONDS = 30.0
TOPIC = 'latency'
COMMAND = {'prefix': 'perf histogram dump', 'logger': 'osd'}
READ_HISTOGRAM = 'op_r_latency_out_bytes_histogram'
WRITE_HISTOGRAM = 'op_w_latency_in_bytes_histogram'


class Histograms(NamedTuple):
    """Client operations since the OSD started, by latency. Buckets as in LatencyCounts."""
    bounds: Tuple[int, ...]
    read: Tuple[int, ...]
    write: Tuple[int, ...]

    def since(self, before: 'Histograms') -> Optional[Tuple[Tuple[int, ...], Tuple[int, ...]]]:
        """(read, write) counts that came after `before`; None if the OSD started anew."""
        if before.bounds != self.bounds:
            return None
        counts = [tuple([b - a for a, b in zip(old, new)])
                  for old, new in ((before.read, self.read), (before.write, self.write))]
        return (counts[0], counts[1]) if min(min(row) for row in counts) >= 0 else None


def histograms(out: str) -> Histograms:
    """From ``perf histogram dump``; KeyError, TypeError or ValueError if it is not that.

    The histograms have two axes, latency and size; the sizes are summed up. The latency's name
    says usec, but its numbers are nanoseconds (PerfHistogramCommon.h, OSD.cc).
    """
    osd = json.loads(out)['osd']
    bounds, read = _by_latency(osd[READ_HISTOGRAM])
    other, write = _by_latency(osd[WRITE_HISTOGRAM])
    if other != bounds:
        raise ValueError('reads and writes are counted in different buckets')
    return Histograms(bounds, read, write)


def _by_latency(histogram: Mapping[str, Any]) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    ranges = histogram['axes'][0]['ranges']
    rows = histogram['values']
    if len(rows) != len(ranges) or len(ranges) < 2:
        raise ValueError('%d buckets, %d rows' % (len(ranges), len(rows)))
    bounds = [int(bucket['max']) + 1 for bucket in ranges[:-1]]
    return tuple(bounds), tuple([sum(row) for row in rows])


class HistogramSampler:
    def __init__(self, asking: OsdCommands) -> None:
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
