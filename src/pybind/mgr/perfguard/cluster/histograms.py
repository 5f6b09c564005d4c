# SPDX-License-Identifier: LGPL-2.1-or-later
"""Latency histograms of OSDs for percentiles, sampled from a few OSDs at a time."""
import json
from typing import Any, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .osd_commands import OsdCommands
from .types import LatencyCounts

#: One of this many OSDs is sampled at the same time, within these bounds. A sample takes two dumps
#: of about 15 KB at this interval.
SAMPLED_SHARE = 8
SAMPLED_LEAST, SAMPLED_MOST = 3, 32
SAMPLE_SECONDS = 30.0
TOPIC = 'latency'
COMMAND = {'prefix': 'perf histogram dump', 'logger': 'osd'}
READ_HISTOGRAM = 'op_r_latency_out_bytes_histogram'
WRITE_HISTOGRAM = 'op_w_latency_in_bytes_histogram'


class Histograms(NamedTuple):
    """Client operations by latency since the OSD started; buckets as in LatencyCounts."""
    bounds: Tuple[int, ...]
    read: Tuple[int, ...]
    write: Tuple[int, ...]

    def since(self, before: 'Histograms') -> Optional[Tuple[Tuple[int, ...], Tuple[int, ...]]]:
        """(read, write) counts since `before`; None if the OSD was restarted."""
        if before.bounds != self.bounds:
            return None
        counts = [tuple([b - a for a, b in zip(old, new)])
                  for old, new in ((before.read, self.read), (before.write, self.write))]
        return (counts[0], counts[1]) if min(min(row) for row in counts) >= 0 else None


def histograms(out: str) -> Histograms:
    """From ``perf histogram dump``; raises KeyError, TypeError or ValueError otherwise.

    The histograms have the axes latency and size; sizes are summed up. The name of the latency axis
    contains usec, but the values are nanoseconds (PerfHistogramCommon.h, OSD.cc).
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
    """Samples all OSDs in turn."""

    def __init__(self, asking: OsdCommands) -> None:
        self._asking = asking
        #: OSD -> (time, histograms) of the first dump of the sample.
        self._first: Dict[int, Tuple[float, Histograms]] = {}
        #: The last OSD whose sample was begun.
        self._last = -1

    def take(self, now: float, alive: Sequence[int]) -> Tuple[LatencyCounts, ...]:
        """Returns completed samples and requests further dumps. `alive`: sorted OSDs."""
        done = self._collect()
        for osd in set(self._first) - set(alive):
            del self._first[osd]
        ended = [osd for osd, (begin, _) in self._first.items() if now - begin >= SAMPLE_SECONDS]
        self._asking.ask(TOPIC, ended + self._next(alive), COMMAND)
        return tuple(done)

    def sampling(self) -> FrozenSet[int]:
        """OSDs whose sample is in progress."""
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
