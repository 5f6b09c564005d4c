# SPDX-License-Identifier: LGPL-2.1-or-later
"""When nothing is released, and when no campaign begins; what a stop condition concerns."""
from dataclasses import replace
from typing import Any, Dict, FrozenSet, List, Optional, Set, Tuple

import pytest

from perfguard.cluster.types import Osd, OsdMap, PgCounts, Pool, Signals
from perfguard.errors import Reason
from perfguard.text import pgs_are
from perfguard.watch.stop_conditions import (MUTED_BY, STOP_CHECKS, UNHEALTHY_CHECKS, WAIVABLE,
                                             OwnPg, Stop, Touched, is_waived, split_by_scope,
                                             stop_conditions, unhealthy)

FINE = Signals(PgCounts(total=100, active_clean=90, remapped=10, backfilling=5, backfill_wait=5),
               misplaced_ratio=0.2, health={'PG_AVAILABILITY': 'x', 'OSDMAP_FLAGS': 'y'})
POOL = Pool(1, 'p', False, 3, 2, 0, 32, 32, 32)
#: Fullness comes with the OSDMap; quotas and full OSDs are no reason not to begin.
FULL = {'OSD_FULL': '1 full osd(s)', 'POOL_FULL': '1 pool(s) full', 'OSD_NEARFULL': 'x',
        'OSD_BACKFILLFULL': 'x', 'PG_BACKFILL_FULL': 'x'}


def osdmap(*pools: Pool, osds: FrozenSet[int] = frozenset(range(6)),
           down: FrozenSet[int] = frozenset()) -> OsdMap:
    rows = {osd: Osd(osd, osd not in down, 1.0, fullness='full' if osd == 0 else '')
            for osd in osds}
    return OsdMap(7, frozenset(), {pool.id: pool for pool in pools or (POOL,)}, rows, {}, {}, {})


def with_counts(**counts: int) -> Signals:
    return replace(FINE, counts=replace(FINE.counts, **counts))


def reasons(signals: Signals) -> List[Reason]:
    return [stop.reason for stop in stop_conditions(signals)]


def test_a_cluster_that_moves_data_is_fine() -> None:
    assert stop_conditions(FINE) == [] and unhealthy(FINE, osdmap()) == []


@pytest.mark.parametrize('counts, reason', [
    ({'laggy': 2}, Reason('LAGGY', '2 PGs are laggy')),
    ({'wait': 1}, Reason('LEASES', '1 PG is waiting for read leases to expire')),
    ({'inactive': 4}, Reason('INACTIVE', '4 PGs are inactive')),
    ({'degraded': 1}, Reason('DEGRADED', '1 PG is degraded')),
    ({'inactive': 7, 'in_transition': 3}, Reason('INACTIVE', '4 PGs are inactive'))])
def test_what_cannot_be_located_concerns_everything(counts: Dict[str, int],
                                                    reason: Reason) -> None:
    signals = with_counts(**counts)
    assert stop_conditions(signals) == [Stop(reason)]
    assert reason in unhealthy(signals, osdmap())
    assert reason in unhealthy(signals, osdmap(), touched=Touched({5}, {9}))


@pytest.mark.parametrize('code, counts', [
    ('DEGRADED', {'degraded': 1}), ('INACTIVE', {'inactive': 2, 'in_transition': 1})])
def test_conditions_of_pgs_concern_their_osds(code: str, counts: Dict[str, int]) -> None:
    others = PgCounts(total=9, inactive=1, in_transition=1)
    where = {osd: PgCounts(total=9, **counts) if osd in (2, 3) else others for osd in range(6)}
    stop, = stop_conditions(with_counts(**counts), where)
    assert stop.reason.code == code and stop.osds == {2, 3}
    assert stop.reason.text.endswith('on osd.2, osd.3')
    assert stop.concerns((5, 3), (1,)) and not stop.concerns((4, 5), (1,))
    touched = [unhealthy(with_counts(**counts), osdmap(), where, Touched({osd}, {1}))
               for osd in (2, 4)]
    assert stop.reason in touched[0] and stop.reason not in touched[1]


OWN = (OwnPg(1, frozenset({2, 3, 5})),)


def test_degraded_pgs_of_own_releases_are_disregarded() -> None:
    where = {osd: PgCounts(total=9, degraded=osd in (2, 3, 5)) for osd in range(6)}
    signals = replace(with_counts(degraded=1), pool_counts={1: PgCounts(total=32, degraded=1)})
    assert stop_conditions(signals, where, OWN) == stop_conditions(signals, {}, OWN) == []
    nowhere = replace(signals, pool_counts={})
    assert stop_conditions(nowhere, {}, OWN) == [Stop(Reason('DEGRADED', '1 PG is degraded'))]


@pytest.mark.parametrize('degraded, where, pool, concerned', [
    (1, (2, 3, 4), 1, {2, 3, 4}), (2, (2, 3, 5), 1, None), (1, (2, 3, 5), 2, set())])
def test_and_only_those(degraded: int, where: Tuple[int, ...], pool: int,
                        concerned: Optional[Set[int]]) -> None:
    """On another OSD; more of them; in another pool."""
    counts = {osd: PgCounts(total=9, degraded=osd in where) for osd in range(6)}
    signals = replace(with_counts(degraded=degraded), pool_counts={
        pool: PgCounts(total=32, degraded=1)})
    stop, = stop_conditions(signals, counts, OWN)
    assert stop.osds == concerned and stop.pools == ({2} if pool == 2 else set())


@pytest.mark.parametrize('degraded, stopped', [(3, None), (4, 1)])
def test_degraded_pgs_that_wait_for_room_stop_no_release_but_a_beginning(
        degraded: int, stopped: Optional[int]) -> None:
    """Releases make the room."""
    signals = with_counts(degraded=degraded, backfill_toofull=3, degraded_toofull=3)
    where = {osd: PgCounts(total=9, degraded=osd in (2, 3), degraded_toofull=osd == 2)
             for osd in range(6)}
    assert [reason.text for reason in reasons(signals)] == (
        ['%s degraded' % pgs_are(stopped)] if stopped else [])
    assert [stop.osds for stop in stop_conditions(signals, where)] == (
        [{3}] if stopped else [])
    begins = unhealthy(signals, osdmap(), where)[-1]
    assert begins == Reason('DEGRADED', '3 PGs are degraded and backfill_toofull on osd.2')
    muted = replace(signals, muted=frozenset({'PG_DEGRADED'}))
    assert unhealthy(muted, osdmap(), where) == []


def test_conditions_of_pgs_concern_their_pools_where_no_osd_has_reported_them() -> None:
    signals = replace(with_counts(degraded=1), pool_counts={
        1: PgCounts(total=32), 2: PgCounts(total=32, degraded=1)})
    stop, = stop_conditions(signals, {osd: PgCounts(total=9) for osd in range(6)})
    assert stop.concerns((), (2,)) and not stop.concerns((1, 2, 3), (1,))


def test_slow_operations_concern_the_osds_that_report_them() -> None:
    slow = replace(FINE, slow_ops=4, slow_daemons={'osd.3': 4}, health={'SLOW_OPS': 'x'})
    stop, = stop_conditions(slow)
    assert stop == Stop(Reason('SLOW_OPS', '4 slow operations on osd.3'), frozenset({3}))
    stop, = stop_conditions(replace(slow, slow_ops=5, slow_daemons={'osd.3': 4, 'mon.a': 1}))
    assert stop.osds is None


@pytest.mark.parametrize('slow, in_flight, everything', [
    ({3}, {1, 2}, False), ({3}, {1, 3}, True), ({3}, set(), False),
    # Of 1,000 OSDs in flight one is always slow.
    ({3}, set(range(1000)), False),
    (set(range(250)), set(range(1000)), False), (set(range(251)), set(range(1000)), True),
    # OSDs that no PG in flight burdens do not count.
    (set(range(3, 300)), {1, 2, 3, 4}, True), (set(range(4, 300)), {1, 2, 3, 4}, False)])
def test_slow_operations_of_a_crowd_of_the_osds_in_flight_concern_everything(
        slow: Set[int], in_flight: Set[int], everything: bool) -> None:
    """PGs in flight may be the cause."""
    stop = Stop(Reason('SLOW_OPS', 'x'), frozenset(slow))
    assert split_by_scope([stop], in_flight) == (([stop], []) if everything else ([], [stop]))


def test_slow_operations_are_said_once() -> None:
    assert reasons(replace(FINE, slow_ops=1)) == [Reason('SLOW_OPS', '1 slow operation')]
    late = replace(FINE, health={'SLOW_OPS': '4 slow ops, oldest 30 s'})
    assert reasons(late) == [Reason('SLOW_OPS', 'slow operations: 4 slow ops, oldest 30 s')]


def test_slow_operations_of_other_daemons_concern_everything() -> None:
    for name in ('mon.3', 'osd.x', 'mds.7'):
        stop, = stop_conditions(replace(FINE, slow_ops=2, slow_daemons={name: 2}))
        assert stop == Stop(Reason('SLOW_OPS', '2 slow operations'))


def test_conditions_of_pgs_are_counted_by_pool() -> None:
    signals = replace(with_counts(degraded=3), pool_counts={
        pool: PgCounts(total=32, degraded=pool % 3) for pool in range(1, 4)})
    assert stop_conditions(signals) == [Stop(
        Reason('DEGRADED', '3 PGs are degraded in 2 pools'), frozenset(), frozenset({1, 2}))]
    assert reasons(replace(signals, pool_counts={2: PgCounts(degraded=1)})) == [
        Reason('DEGRADED', '3 PGs are degraded in 1 pool')]


@pytest.mark.parametrize('total, own, pool_counts, stops', [
    # As many as were released; but not where nothing is known of the OSDs and the pools.
    (2, 2, {1: PgCounts(degraded=2)}, False), (2, 2, {}, True),
    (2, 1, {1: PgCounts(degraded=1)}, True), (1, 2, {1: PgCounts(degraded=0)}, False)])
def test_a_total_of_released_pgs(
        total: int, own: int, pool_counts: Dict[int, PgCounts], stops: bool) -> None:
    signals = replace(with_counts(degraded=total), pool_counts=pool_counts)
    found = stop_conditions(signals, {}, [OwnPg(1, frozenset({2, pg + 3})) for pg in range(own)])
    assert found == ([Stop(Reason('DEGRADED', '%s degraded' % pgs_are(total)))] if stops else [])


@pytest.mark.parametrize('counts', [
    {'inactive': 3, 'in_transition': 3}, {'inactive': 2, 'in_transition': 3}])
def test_pgs_that_peer_are_not_stuck(counts: Dict[str, int]) -> None:
    assert stop_conditions(with_counts(**counts)) == []


def test_the_texts_of_what_keeps_a_campaign_from_beginning() -> None:
    other: Any = replace(POOL, id=2, name='q', pg_num_target=64)
    signals = replace(with_counts(in_transition=2), health={'PG_DAMAGED': 'x'})
    assert unhealthy(signals, osdmap(POOL, other, down=frozenset({3, 4}))) == [
        Reason('OSD_DOWN', 'OSDs down but in: osd.3, osd.4'),
        Reason('PEERING', '2 PGs are peering or activating'),
        Reason('PG_DAMAGED', 'damaged PGs: x'),
        Reason('PG_NUM_CHANGING', 'pg_num of pool q is changing from 32 PGs to 64')]


@pytest.mark.parametrize('code, waived, is_so', [
    ('LAGGY', ('LAGGY',), True), ('LAGGY_LATELY', ('LAGGY',), True),
    ('LAGGY_LATELY', ('LEASES',), False), ('LEASES', ('LAGGY',), False), ('LEASES', (), False)])
def test_what_the_operator_has_waived(code: str, waived: Tuple[str, ...], is_so: bool) -> None:
    assert is_waived(Reason(code, 'x'), waived) is is_so


def test_many_osds_are_not_all_named() -> None:
    where = {osd: PgCounts(total=9, degraded=1) for osd in range(8)}
    stop, = stop_conditions(with_counts(degraded=4), where)
    assert stop.reason.text == \
        '4 PGs are degraded on osd.0, osd.1, osd.2, osd.3, osd.4 and 3 more'


@pytest.mark.parametrize('check', sorted(FULL))
def test_fullness_stops_nothing(check: str) -> None:
    signals = replace(with_counts(backfill_toofull=6), health={check: FULL[check]})
    pool = replace(POOL, flags=frozenset({'full_quota', 'full'}))
    assert stop_conditions(signals) == [] and unhealthy(signals, osdmap(pool)) == []


def test_peering_stops_no_release_but_a_beginning() -> None:
    signals = with_counts(inactive=1, in_transition=1)
    assert stop_conditions(signals) == []
    assert unhealthy(signals, osdmap()) == [Reason('PEERING', '1 PG is peering or activating')]


@pytest.mark.parametrize('check', sorted(STOP_CHECKS))
def test_health_checks_that_stop(check: str) -> None:
    signals = replace(FINE, health={check: 'the summary'})
    told = STOP_CHECKS[check]
    assert stop_conditions(signals) == [Stop(Reason(told.code, told.text + ': the summary'))]


@pytest.mark.parametrize('check', sorted(UNHEALTHY_CHECKS))
def test_health_checks_under_which_nothing_begins(check: str) -> None:
    signals = replace(FINE, health={check: 'the summary'})
    assert stop_conditions(signals) == []
    told = UNHEALTHY_CHECKS[check]
    assert unhealthy(signals, osdmap()) == [Reason(told.code, told.text + ': the summary')]


@pytest.mark.parametrize('touched, codes', [
    (None, ['OSD_DOWN']), (Touched({3}, {1}), ['OSD_DOWN']), (Touched({1, 2}, {1}), [])])
def test_osds_that_are_down(touched: Optional[Touched], codes: List[str]) -> None:
    seen = osdmap(down=frozenset({3}))
    assert [reason.code for reason in unhealthy(FINE, seen, {}, touched)] == codes
    assert unhealthy(replace(FINE, muted=frozenset({'OSD_DOWN'})), seen, {}, touched) == []


@pytest.mark.parametrize('changes', [{'pg_num_target': 64}, {'pg_num_pending': 31}])
def test_a_pool_that_splits_or_merges(changes: Dict[str, int]) -> None:
    other: Any = replace(POOL, id=2, **changes)
    reason, = unhealthy(FINE, osdmap(POOL, other))
    assert reason.code == 'PG_NUM_CHANGING'
    assert unhealthy(FINE, osdmap(POOL, other), {}, Touched({1}, {1})) == []
    assert unhealthy(FINE, osdmap(POOL, other), {}, Touched({1}, {2})) == [reason]


@pytest.mark.parametrize('counts, check', [
    ({'laggy': 2}, 'PERFGUARD_LAGGY_PGS'), ({'wait': 2}, 'PERFGUARD_LAGGY_PGS'),
    ({'inactive': 2}, 'PG_AVAILABILITY'), ({'degraded': 2}, 'PG_DEGRADED')])
def test_what_is_muted_stops_nothing(counts: Dict[str, int], check: str) -> None:
    assert stop_conditions(with_counts(**counts))
    assert stop_conditions(replace(with_counts(**counts), muted=frozenset({check}))) == []


def test_codes_that_can_be_waived_or_muted_are_those_that_stop() -> None:
    stopping = {'LAGGY', 'LEASES', 'INACTIVE', 'DEGRADED', 'SLOW_POOL', 'LAGGY_LATELY',
                *(reason.code for reason in STOP_CHECKS.values())}
    # PG_LIMIT and SAME_DRIVE hold the releases to the OSDs that they name.
    assert set(WAIVABLE) == stopping - {'LAGGY_LATELY'} | {
        'PG_LIMIT', 'PIN_LIMIT', 'SAME_DRIVE', 'UNTRIMMED_CEILING', 'UPGRADE'}
    assert set(MUTED_BY) == stopping - {'MON_DISK', 'MON_DOWN', 'SLOW_PING'} | {'OSD_DOWN'}
