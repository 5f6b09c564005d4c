# SPDX-License-Identifier: LGPL-2.1-or-later
"""When nothing is released, and when no campaign begins."""
from dataclasses import replace
from typing import Dict

import pytest

from perfguard.cluster.types import PgCounts, Pool, Signals
from perfguard.rebalance.stop import (STOP_CHECKS, UNHEALTHY_CHECKS, stop_conditions, unhealthy)

FINE = Signals(PgCounts(total=100, active_clean=90, remapped=10, backfilling=5, backfill_wait=5),
               misplaced_ratio=0.2, health={'PG_AVAILABILITY': 'x', 'OSDMAP_FLAGS': 'y'})
POOL = Pool(1, 'p', False, 3, 2, 0, 32, 32, 32)


def test_a_cluster_that_moves_data_is_fine() -> None:
    assert stop_conditions(FINE) == [] and unhealthy(FINE, (POOL,)) == []


@pytest.mark.parametrize('counts, words', [
    ({'laggy': 2}, '2 PGs are laggy'), ({'wait': 3}, '3 PGs are waiting for read leases'),
    ({'inactive': 4}, '4 PGs are inactive'), ({'degraded': 5}, '5 PGs are degraded'),
    ({'inactive': 7, 'in_transition': 3}, '4 PGs are inactive')])
def test_conditions_of_pgs(counts: Dict[str, int], words: str) -> None:
    signals = replace(FINE, counts=replace(FINE.counts, **counts))
    reasons = stop_conditions(signals)
    assert len(reasons) == 1 and reasons[0].startswith(words)
    assert reasons[0] in unhealthy(signals, ())


def test_pgs_that_are_too_full_stop_no_release_but_a_beginning() -> None:
    signals = replace(FINE, counts=replace(FINE.counts, backfill_toofull=6))
    assert stop_conditions(signals) == []
    assert unhealthy(signals, ()) == ['6 PGs are too full to be backfilled']


def test_peering_stops_no_release_but_a_beginning() -> None:
    signals = replace(FINE, counts=replace(FINE.counts, inactive=3, in_transition=3))
    assert stop_conditions(signals) == []
    assert unhealthy(signals, ()) == ['3 PGs are peering or activating']


@pytest.mark.parametrize('check', sorted(STOP_CHECKS))
def test_health_checks_that_stop(check: str) -> None:
    signals = replace(FINE, health={check: 'the summary'})
    assert stop_conditions(signals) == ['%s: the summary' % STOP_CHECKS[check]]


@pytest.mark.parametrize('check', sorted(UNHEALTHY_CHECKS))
def test_health_checks_under_which_nothing_begins(check: str) -> None:
    signals = replace(FINE, health={check: 'the summary'})
    assert stop_conditions(signals) == []
    assert unhealthy(signals, ()) == ['%s: the summary' % UNHEALTHY_CHECKS[check]]


def test_slow_operations_are_said_once() -> None:
    assert stop_conditions(replace(FINE, slow_ops=4)) == ['4 slow operations']
    both = replace(FINE, slow_ops=4, health={'SLOW_OPS': '4 slow ops, oldest 30 s'})
    assert stop_conditions(both) == ['slow operations: 4 slow ops, oldest 30 s']


@pytest.mark.parametrize('changes', [{'pg_num_target': 64}, {'pg_num_pending': 31}])
def test_a_pool_that_splits_or_merges(changes: Dict[str, int]) -> None:
    reasons = unhealthy(FINE, (POOL, replace(POOL, **changes)))
    assert len(reasons) == 1 and 'pg_num of pool p' in reasons[0]
