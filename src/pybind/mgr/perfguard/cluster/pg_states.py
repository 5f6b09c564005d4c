# SPDX-License-Identifier: LGPL-2.1-or-later
"""Counts of PG states, as ceph-mgr's get() returns them, summed up by condition."""
from typing import Any, Dict, Iterable, Mapping, Tuple

from .types import PgCounts, Pool

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
                        'backfill_toofull', 'laggy', 'wait', 'recovering')})


def pool_counts(status: Mapping[str, Any], pools: Mapping[int, Pool]) -> Dict[int, PgCounts]:
    """From MgrModule.get('pg_status'): the counts of each pool."""
    return {row['pool_id']: count_states(
                ((state['state_name'], state['count']) for state in row['pg_state_counts']),
                pools[row['pool_id']].pg_num)
            for row in status.get('pgs_by_pool_state', []) if row['pool_id'] in pools}
