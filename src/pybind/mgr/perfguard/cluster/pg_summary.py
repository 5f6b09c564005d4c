# SPDX-License-Identifier: LGPL-2.1-or-later
"""PGs by the OSDs of their acting sets: one reading for all that ask, paced by what it costs."""
import time
from typing import Any, Callable, Dict, FrozenSet, Mapping, Optional, Protocol, Tuple

from .types import NO_OSD, PgCounts

#: Share of its time that ceph-mgr may spend on it while PGs are in trouble. It goes through all
#: PGs, with the interpreter's lock held: 7 to 9 us for a PG of three copies, so 0.8 s for 100,000
#: PGs, which would be a sixth of the mgr's time with one reading in each report period.
TROUBLE_SHARE = 0.02

#: State -> number of PGs, by OSD.
ByOsd = Mapping[int, Mapping[str, int]]


class Mgr(Protocol):
    """The part of MgrModule that this needs."""

    def get(self, data_name: str) -> Any: ...


class PgSummary:
    def __init__(self, mgr: Mgr, clock: Callable[[], float],
                 cpu: Callable[[], float] = time.thread_time) -> None:
        self._mgr = mgr
        self._clock = clock
        self._cpu = cpu
        self._by_osd: ByOsd = {}
        self._degraded: FrozenSet[int] = frozenset()
        self._read_at: Optional[float] = None
        #: Seconds of CPU that the last reading took.
        self.cost_seconds = 0.0
        self._trouble: Tuple[int, ...] = ()
        #: More PGs are in trouble than at some time since the last reading.
        self._news = False

    def note(self, counts: PgCounts) -> None:
        """What the cheap counts say. Fewer PGs in trouble make the last reading no less safe: it
        names all OSDs that have any, and some that have none any more."""
        trouble = (counts.degraded, counts.inactive, counts.laggy, counts.wait)
        if any(now > before for now, before in zip(trouble, self._trouble)):
            self._news = True
        self._trouble = trouble

    def by_osd(self, period: float) -> ByOsd:
        """Not older than `period`, if there was news since; else than it is worth."""
        worth = period if self._news else max(period, self.cost_seconds / TROUBLE_SHARE)
        age = None if self._read_at is None else self._clock() - self._read_at
        if age is None or not 0.0 <= age < worth:
            self._read()
        return self._by_osd

    def degraded(self, period: float) -> FrozenSet[int]:
        """OSDs that have a degraded PG, or had one when they were read."""
        self.by_osd(period)
        return self._degraded

    def _read(self) -> None:
        begin = self._cpu()
        found: Dict[int, Mapping[str, int]] = {
            int(osd): states
            for osd, states in self._mgr.get('pg_summary').get('by_osd', {}).items()
            # A hole in the acting set of an erasure coded PG is counted like an OSD.
            if int(osd) != NO_OSD}
        self.cost_seconds = self._cpu() - begin
        self._by_osd, self._read_at, self._news = found, self._clock(), False
        self._degraded = frozenset(osd for osd, states in found.items() if any(
            'degraded' in state.split('+') for state in states))
