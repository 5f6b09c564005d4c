# SPDX-License-Identifier: LGPL-2.1-or-later
"""What counts as trouble, and what as movement."""
from typing import Mapping, Tuple

import pytest

from perfguard.cluster.types import PgCounts, Signals
from perfguard.errors import Reason
from perfguard.mitigation.evidence import evidence
from perfguard.mitigation.types import Evidence


def found(counts: PgCounts = PgCounts(), laggy: bool = False,
          late: Tuple[Tuple[str, int], ...] = (), slow: Mapping[str, int] = {}) -> Evidence:
    signals = Signals(counts, slow_daemons=slow, slow_ops=sum(slow.values()))
    return evidence(signals, laggy, late, {}, False, {})


@pytest.mark.parametrize('seen,code,text', [
    (found(PgCounts(laggy=1)), 'LAGGY', '1 PG is laggy'),
    (found(laggy=True), 'LAGGY_LATELY', 'PGs were laggy within the last three reports'),
    (found(PgCounts(wait=4), laggy=True), 'LEASES', '4 PGs are waiting for read leases to expire'),
    (found(slow={'osd.3': 2, 'osd.4': 1, 'mon.a': 7}), 'SLOW_OPS', '3 slow operations'),
    (found(late=(('reads of pool rbd', 7),)), 'SLOW_POOL', 'reads of pool rbd are '
     'slower than their baseline')])
def test_trouble(seen: Evidence, code: str, text: str) -> None:
    pools = frozenset({7} if code == 'SLOW_POOL' else ())
    number = {'LEASES': 4, 'SLOW_OPS': 2}.get(code, 1)
    assert seen.trouble == seen.of_movement == (Reason(code, text, pools, number),)


@pytest.mark.parametrize('seen', [
    found(), found(PgCounts(wait=4)), found(slow={'mon.a': 3}),
    found(PgCounts(degraded=3, remapped=2))])
def test_no_trouble(seen: Evidence) -> None:
    """Leases that end after peering, mons, and movement as such."""
    assert seen.trouble == ()


@pytest.mark.parametrize('counts,moving,rebalancing', [
    (PgCounts(remapped=1), True, True), (PgCounts(backfilling=1), True, True),
    (PgCounts(backfill_wait=1), True, True), (PgCounts(recovering=1), True, False),
    # CRUSH finds too few OSDs.
    (PgCounts(remapped=3, remapped_clean=3), False, False),
    (PgCounts(remapped=4, remapped_clean=3), True, True),
    (PgCounts(degraded=1), False, False), (PgCounts(active_clean=1), False, False)])
def test_movement(counts: PgCounts, moving: bool, rebalancing: bool) -> None:
    seen = found(counts)
    assert (seen.moving, seen.rebalancing) == (moving, rebalancing)
    assert seen.degraded == counts.degraded
