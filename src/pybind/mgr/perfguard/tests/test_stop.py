# SPDX-License-Identifier: LGPL-2.1-or-later
"""When nothing is released, and when no campaign begins."""
from dataclasses import replace
from typing import Dict

import pytest

from perfguard.cluster.types import PgCounts, Pool, Signals
from perfguard.reasons import Reason
from perfguard.rebalance.stop import (STOP_CHECKS, UNHEALTHY_CHECKS, stop_conditions, unhealthy)

FINE = Signals(PgCounts(total=100, active_clean=90, remapped=10, backfilling=5, backfill_wait=5),
               misplaced_ratio=0.2, health={'PG_AVAILABILITY': 'x', 'OSDMAP_FLAGS': 'y'})
POOL = Pool(1, 'p', False, 3, 2, 0, 32, 32, 32)


def test_a_cluster_that_moves_data_is_fine() -> None:
    assert stop_conditions(FINE) == [] and unhealthy(FINE, (POOL,)) == []


@pytest.mark.parametrize('counts, reason', [
    ({'laggy': 2}, Reason('LAGGY', '2 PGs are laggy')),
    ({'wait': 1}, Reason('LEASES', '1 PG is waiting for read leases to end')),
    ({'inactive': 4}, Reason('INACTIVE', '4 PGs are inactive')),
    ({'degraded': 1}, Reason('DEGRADED', '1 PG is degraded')),
    ({'inactive': 7, 'in_transition': 3}, Reason('INACTIVE', '4 PGs are inactive'))])
def test_conditions_of_pgs(counts: Dict[str, int], reason: Reason) -> None:
    signals = replace(FINE, counts=replace(FINE.counts, **counts))
    assert stop_conditions(signals) == [reason] and reason in unhealthy(signals, ())


def test_pgs_that_are_too_full_stop_no_release_but_a_beginning() -> None:
    signals = replace(FINE, counts=replace(FINE.counts, backfill_toofull=6))
    assert stop_conditions(signals) == []
    assert unhealthy(signals, ()) == [
        Reason('BACKFILL_TOOFULL', '6 PGs are too full to be backfilled')]


def test_peering_stops_no_release_but_a_beginning() -> None:
    signals = replace(FINE, counts=replace(FINE.counts, inactive=3, in_transition=3))
    assert stop_conditions(signals) == []
    assert unhealthy(signals, ()) == [Reason('PEERING', '3 PGs are peering or activating')]


@pytest.mark.parametrize('check', sorted(STOP_CHECKS))
def test_health_checks_that_stop(check: str) -> None:
    signals = replace(FINE, health={check: 'the summary'})
    told = STOP_CHECKS[check]
    assert stop_conditions(signals) == [Reason(told.code, told.text + ': the summary')]


@pytest.mark.parametrize('check', sorted(UNHEALTHY_CHECKS))
def test_health_checks_under_which_nothing_begins(check: str) -> None:
    signals = replace(FINE, health={check: 'the summary'})
    assert stop_conditions(signals) == []
    told = UNHEALTHY_CHECKS[check]
    assert unhealthy(signals, ()) == [Reason(told.code, told.text + ': the summary')]


def test_slow_operations_are_said_once() -> None:
    assert stop_conditions(replace(FINE, slow_ops=4)) == [Reason('SLOW_OPS', '4 slow operations')]
    both = replace(FINE, slow_ops=4, health={'SLOW_OPS': '4 slow ops, oldest 30 s'})
    assert stop_conditions(both) == [
        Reason('SLOW_OPS', 'slow operations: 4 slow ops, oldest 30 s')]


@pytest.mark.parametrize('changes', [{'pg_num_target': 64}, {'pg_num_pending': 31}])
def test_a_pool_that_splits_or_merges(changes: Dict[str, int]) -> None:
    reasons = unhealthy(FINE, (POOL, replace(POOL, **changes)))
    assert len(reasons) == 1 and reasons[0].code == 'PG_NUM_CHANGING'
