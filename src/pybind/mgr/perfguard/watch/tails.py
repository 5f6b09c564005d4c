# SPDX-License-Identifier: LGPL-2.1-or-later
"""Tail latency, from the samples of a few OSDs at a time."""
from typing import Dict, NamedTuple, Optional, Sequence, Tuple

from ..cluster.types import LatencyCounts
from .histogram import merged, percentile_ms

#: A sample older than this tells nothing of now.
RECENT_SECONDS = 120.0
TAIL = 0.99


class Tail(NamedTuple):
    """p99 in ms; None without operations."""
    read_ms: Optional[float] = None
    write_ms: Optional[float] = None


class Tails:
    def __init__(self) -> None:
        self._samples: Dict[int, Tuple[float, LatencyCounts]] = {}

    def update(self, now: float, samples: Sequence[LatencyCounts], osds: Sequence[int]) -> None:
        for sample in samples:
            self._samples[sample.osd] = (now, sample)
        for osd in set(self._samples) - set(osds):
            del self._samples[osd]

    def of_osd(self, osd: int) -> Tail:
        """As of the OSD's last sample."""
        found = self._samples.get(osd)
        return _tail(found[1]) if found else Tail()

    def of_cluster(self, now: float) -> Tail:
        """Of the OSDs that were sampled in the last minutes, taken together."""
        both = merged([sample for at, sample in self._samples.values()
                       if 0.0 <= now - at <= RECENT_SECONDS])
        return _tail(both) if both else Tail()


def _tail(counts: LatencyCounts) -> Tail:
    return Tail(percentile_ms(counts.bounds, counts.read, TAIL),
                percentile_ms(counts.bounds, counts.write, TAIL))
