# SPDX-License-Identifier: LGPL-2.1-or-later
"""PGs: by the OSDs of their acting sets, counts of their states, and rows of a PG dump."""
import time
from typing import (Any, Callable, Dict, FrozenSet, Iterable, Mapping, Optional, Protocol, Tuple,
                    Union)

from .osdmap import WrongDump
from .types import NO_OSD, PgCounts, PgSets, Pool

#: Share of its time that ceph-mgr may spend on it while PGs are in trouble. It goes through all
#: PGs, with the interpreter's lock held: 7 to 9 us for a PG of three copies, so 0.8 s for 100,000
#: PGs, which would be a sixth of the mgr's time with one reading in each report period.
TROUBLE_SHARE = 0.02

#: Changes that nothing cheap shows, such as one PG that recovers while another one of its pool
#: finds an unreadable object, are known after so long, as long as that is no larger a share.
STALE_SECONDS = 20.0
STALE_SHARE = 0.05

#: In place of a pool id: all pools. No PG in trouble.
WHOLE = -1
NONE = (0, 0, 0, 0)
#: State -> number of PGs, by OSD.
ByOsd = Mapping[int, Mapping[str, int]]


class Mgr(Protocol):
    """The part of MgrModule that this needs."""

    def get(self, data_name: str) -> Any: ...


class PgSummary:
    """PGs by the OSDs of their acting sets: one reading for all that ask, paced by its cost."""
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
        #: PGs in trouble of each pool; those of all under WHOLE.
        self._trouble: Dict[int, Tuple[int, ...]] = {}
        self._serving: FrozenSet[int] = frozenset()
        #: More PGs are in trouble than at some time since the last reading, or other ones may be.
        self._news = False

    def note(self, counts: PgCounts, pools: Mapping[int, PgCounts],
             serving: FrozenSet[int]) -> None:
        """What the cheap counts say, and the OSDs that are up and in: without a change of these
        few PGs get degraded. Fewer PGs in trouble make the last reading no less safe: it names all
        OSDs that have any, and some that have none any more."""
        trouble = {pool: _trouble(each) for pool, each in pools.items()}
        trouble[WHOLE] = _trouble(counts)
        if serving != self._serving or any(
                now > before for pool, each in trouble.items()
                for now, before in zip(each, self._trouble.get(pool, NONE))):
            self._news = True
        self._trouble, self._serving = trouble, serving

    def by_osd(self, period: float) -> ByOsd:
        """Not older than `period`, if there was news since; else than it is worth."""
        seldom = max(STALE_SECONDS, self.cost_seconds / STALE_SHARE)
        worth = period if self._news else max(
            period, min(self.cost_seconds / TROUBLE_SHARE, seldom))
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


# ---- Counts of PG states, as ceph-mgr's get() returns them, summed up by condition

#: Words in a PG's state that say that it is between two intervals. "unknown": no OSD reported yet.
_TRANSITION = frozenset({'peering', 'activating', 'creating', 'unknown'})


def count_states(rows: Iterable[Tuple[str, int]], expected: int = 0) -> PgCounts:
    """From (state, number of PGs) pairs, such as ("active+clean", 128).

    Of `expected` PGs those that no OSD has reported yet, as after an mgr failover, count as in
    transition: what is not known is not fit to be built on. A new mgr lists PGs as "unknown" until
    their OSDs report, or does not list them at all.
    """
    sums: Dict[str, int] = {}
    inactive = transition = clean = deep = total = 0
    for state, count in rows:
        words = set(state.split('+'))
        total += count
        if 'active' not in words or 'stale' in words:
            inactive += count
        if words & _TRANSITION:
            transition += count
        if {'active', 'clean'} <= words:
            clean += count
        if {'scrubbing', 'deep'} <= words:
            deep += count
        for word in words:
            sums[word] = sums.get(word, 0) + count
    missing = max(0, expected - total)
    return PgCounts(total=total + missing, active_clean=clean, inactive=inactive + missing,
                    in_transition=transition + missing, deep_scrubbing=deep,
                    unreported=missing + sums.get('unknown', 0),
                    **{word: sums.get(word, 0) for word in (
                        'degraded', 'remapped', 'backfilling', 'backfill_wait',
                        'backfill_toofull', 'laggy', 'wait', 'recovering', 'snaptrim')})


def pool_counts(status: Mapping[str, Any], pools: Mapping[int, Pool]) -> Dict[int, PgCounts]:
    """From MgrModule.get('pg_status'): the counts of each pool."""
    return {row['pool_id']: count_states(
                ((state['state_name'], state['count']) for state in row['pg_state_counts']),
                pools[row['pool_id']].pg_num)
            for row in status.get('pgs_by_pool_state', []) if row['pool_id'] in pools}


# ---- Rows of a PG dump

def pg_rows(dump: Any) -> Any:
    """The list of PGs in a PG dump; releases differ in what is around it. WrongDump if none."""
    if isinstance(dump, dict):
        dump = dump.get('pg_map', dump)
    if isinstance(dump, dict):
        dump = dump.get('pg_stats')
    if not isinstance(dump, list):
        raise wrong_pg_dump()
    return dump


def wrong_pg_dump() -> WrongDump:
    return WrongDump('not the output of "ceph pg dump pgs_brief -f json"')


#: What keep_remapped makes of a PG whose up set is its acting set.
CLEAN = None


def keep_remapped(row: Dict[str, Any]) -> Union[Dict[str, Any], PgSets, None]:
    """An object_hook for json.load of a PG dump: only remapped PGs are ever kept.

    A large cluster has hundreds of thousands of PGs, and what a few of them need must not cost
    the memory of all.
    """
    up, acting = row.get('up'), row.get('acting')
    if not isinstance(up, list) or not isinstance(acting, list) or 'pgid' not in row:
        return row
    if up == acting:
        return CLEAN
    return PgSets(row['pgid'], tuple(up), tuple(acting), row.get('state', ''))


def _trouble(counts: PgCounts) -> Tuple[int, ...]:
    return counts.degraded, counts.inactive, counts.laggy, counts.wait
