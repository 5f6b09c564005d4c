# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which client reads of slow OSDs depend on the primary of a PG. Pure.

Clients read from the primary of a PG, with two exceptions: from replicated pools with balanced or
localized reads, and from erasure-coded pools, of which each read needs data of several OSDs (and
later releases read from these OSDs directly). Such reads stay where they are if the primary
affinity of an OSD is lowered.
"""
from collections import deque
from typing import AbstractSet, Deque, Dict, Iterable, Mapping, NamedTuple, Optional, Sequence

from ..cluster.types import PgReads, pool_of

#: Readings that are added up.
READINGS = 6
#: Readings after which the reads of an OSD are known, and turns after which they are considered
#: known in any case.
LEAST_READINGS = 3
MOST_TURNS = 12
#: An OSD may be slow for weeks, and the query costs all OSDs: after MOST_TURNS it is read for as
#: long again once in so many turns (half an hour).
REPEAT_TURNS = 360


class OsdReads(NamedTuple):
    """Client reads that one OSD has served."""
    #: Of replicated pools, as the primary.
    led: int = 0
    #: Of replicated pools, as a replica.
    replica: int = 0
    #: Of erasure-coded pools.
    erasure: int = 0


class SlowOsdReads:
    """The reads of slow OSDs in the last readings."""

    def __init__(self) -> None:
        self._readings: Dict[int, Deque[OsdReads]] = {}
        self._turns: Dict[int, int] = {}

    @property
    def wanted(self) -> AbstractSet[int]:
        """The OSDs of which reads are to be read."""
        return {osd for osd, turns in self._turns.items()
                if turns % REPEAT_TURNS < MOST_TURNS}

    def update(self, slow: Iterable[int], readings: Optional[Mapping[int, Sequence[PgReads]]],
               erasure: AbstractSet[int]) -> None:
        """`slow`: OSDs; `readings`: by OSD, None: nothing was read; `erasure`: pools."""
        self._turns = {osd: self._turns.get(osd, 0) + 1 for osd in slow}
        self._readings = {osd: self._readings.get(osd, deque(maxlen=READINGS))
                          for osd in self._turns}
        for osd, rows in (readings or {}).items():
            if osd in self._readings:
                self._readings[osd].append(_reads_of(osd, rows, erasure))

    def known(self) -> Dict[int, OsdReads]:
        """The sums, of OSDs that were read often enough or cannot be read."""
        return {osd: OsdReads(*map(sum, zip(*self._readings[osd] or [OsdReads()])))
                for osd, turns in self._turns.items()
                if len(self._readings[osd]) >= LEAST_READINGS or turns >= MOST_TURNS}


def _reads_of(osd: int, rows: Sequence[PgReads], erasure: AbstractSet[int]) -> OsdReads:
    coded = sum(row.reads for row in rows if pool_of(row.pgid) in erasure)
    led = sum(row.reads for row in rows
              if pool_of(row.pgid) not in erasure and row.acting[:1] == (osd,))
    return OsdReads(led, sum(row.reads for row in rows) - led - coded, coded)
