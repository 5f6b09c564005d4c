# SPDX-License-Identifier: LGPL-2.1-or-later
"""The release of pins that the OSDMap alone shows, batch by batch."""
from collections import Counter
from dataclasses import replace
from typing import Any, Iterable, List, Mapping, Sequence, Set, Tuple

import pytest

from perfguard.cluster.types import (NO_OSD, OsdSet, PgCounts, PgSets, Signals, UpmapEntry,
                                     pool_of)
from perfguard.offline.plans import HeldBack, batches, held_back, plan_pins, stops
from perfguard.offline.sources import Maps
from perfguard.rebalance.holds import MOVEMENT_FLAGS
from perfguard.rebalance.moves import Caps, Move
from perfguard.rebalance.types import TINY_WEIGHT
from perfguard.upmap.pins import INCOMPLETE
from perfguard.upmap.semantics import NO_RAWS, Raws
from perfguard.watch.stop_conditions import STOP_CHECKS

from ..fakes.mon_model import Stored
from ..fakes.straw_cluster import StrawCluster
from ..rebalance.test_adopting import expanded, pin_by_script, settle

CAPS = Caps(pgs=8, bytes=1 << 60, source=2, primary=2, target=1, host=4)


def maps_of(cluster: StrawCluster) -> Maps:
    return Maps(cluster.map_view().osdmap, cluster.crush(cluster.map_view().crush_version),
                Signals(PgCounts(), pool_bytes={1: 1 << 30, 2: 1 << 30}))


def rows_of(cluster: StrawCluster) -> List[PgSets]:
    return [PgSets(pgid, tuple(pg.up), tuple(pg.data),
                   'active+clean' if tuple(pg.up) == tuple(pg.data) else 'active+remapped')
            for pgid, pg in cluster.pg.items()]


def found(cluster: StrawCluster, rows: Iterable[PgSets] = (), raws: Raws = NO_RAWS) -> HeldBack:
    maps = maps_of(cluster)
    assert maps.crush is not None
    return held_back(maps, maps.crush, list(rows) or rows_of(cluster), raws, 250)


def planned(cluster: StrawCluster, plan: HeldBack) -> List[List[Move]]:
    maps = maps_of(cluster)
    assert maps.crush is not None
    return list(batches(plan, maps, maps.crush, CAPS))


def devices_used(move: Move, devices: Mapping[int, Sequence[str]]) -> Set[str]:
    return {device for osd in (*move.sources, *move.targets) for device in devices.get(osd, ())}


def release(cluster: StrawCluster, plan: HeldBack, batch: Iterable[Move]) -> None:
    for pgid, entry in plan.entries(move.pgid for move in batch).items():
        cluster.set_upmap(pgid, list(entry.items))


def drained() -> StrawCluster:
    cluster = StrawCluster(hosts=8, pgs=64)
    cluster.flags.add('norebalance')
    cluster.weigh(0, TINY_WEIGHT)
    assert pin_by_script(cluster)
    cluster.flags.discard('norebalance')
    return cluster


def test_the_batches_of_an_expansion_release_each_pin_once_and_keep_to_the_limits() -> None:
    cluster, pinned, _ = expanded()
    cluster.flags.discard('norebalance')
    plan = found(cluster)
    assert sorted(plan.pins) == pinned and not plan.left_out and not plan.in_flight
    whole = planned(cluster, plan)
    for batch in whole:
        assert 0 < len(batch) <= CAPS.pgs
        assert max(Counter(osd for move in batch for osd in move.targets).values()) == 1
        assert max(Counter(osd for move in batch for osd in move.sources).values()) <= 2
        release(cluster, plan, batch)
        settle(cluster)
    assert sorted(move.pgid for batch in whole for move in batch) == pinned
    assert not cluster.entries()
    assert set(Counter(one.pgid for one in cluster.moved).values()) == {1}


def test_osds_that_share_a_drive_have_one_cap_for_all_of_them() -> None:
    cluster, pinned, _ = expanded()
    cluster.flags.discard('norebalance')
    maps = maps_of(cluster)
    assert maps.crush is not None
    # The new OSDs are on one drive; the others have their own, and four of them share a DB device.
    devices = {osd: ('h:nvme0',) if osd >= 8 else ('h:sd%d' % osd, 'h:db%d' % (osd // 4))
               for osd in maps.osdmap.osds}
    caps = replace(CAPS, pgs=100, source=100, primary=100, target=100, host=100, device=3)
    whole = list(batches(found(cluster), replace(maps, devices=devices), maps.crush, caps))
    assert sorted(move.pgid for batch in whole for move in batch) == pinned
    used = [Counter(device for move in batch for device in devices_used(move, devices))
            for batch in whole]
    # The drives of single OSDs are limited by the caps of their OSDs.
    assert {device: max(batch[device] for batch in used)
            for device in ('h:nvme0', 'h:db0', 'h:db1')} == {
                'h:nvme0': 3, 'h:db0': 3, 'h:db1': 3}


def test_a_batch_leaves_room_for_what_is_in_flight() -> None:
    cluster, pinned, _ = expanded()
    cluster.flags.discard('norebalance')
    plan = found(cluster)
    first, second = planned(cluster, plan)[:2]
    release(cluster, plan, first)
    later = found(cluster)
    assert sorted(move.pgid for move in later.in_flight) == sorted(move.pgid for move in first)
    # Each target receives as many PGs as it may.
    assert planned(cluster, later)[0] == []
    assert len(planned(cluster, later)[1]) == len(second)


def test_batches_planned_one_by_one_empty_a_drained_osd() -> None:
    """Also the last PGs, when no other OSD lacks one of its share any more."""
    cluster = drained()
    for _ in range(200):
        if not any(0 in pg.data for pg in cluster.pg.values()):
            break
        plan = found(cluster)
        release(cluster, plan, planned(cluster, plan)[0])
        settle(cluster)
    assert not any(0 in pg.data for pg in cluster.pg.values())


def test_a_vector_is_released_where_the_placement_by_crush_is_known() -> None:
    cluster = drained()
    pgid = next(pgid for pgid, pg in cluster.pg.items() if 0 in pg.data and pool_of(pgid) == 1)
    raw: OsdSet = tuple(cluster.pg[pgid].mon.raw)
    cluster.pg[pgid].mon.stored = Stored([], list(cluster.pg[pgid].data))
    cluster.epoch += 1
    assert 'pg_upmap entry' in found(cluster).left_out[pgid]
    plan = found(cluster, raws={pgid: raw})
    assert plan.entries([pgid]) == {pgid: UpmapEntry()}
    move, = (move for move in plan.moves if move.pgid == pgid)
    assert move.sources == (0,) and set(move.targets) == set(raw) - set(cluster.pg[pgid].data)


@pytest.mark.parametrize('state', [
    'peering', 'active+clean+laggy', 'stale+active+clean', 'active+remapped+backfill_toofull',
    'active+clean+wait', 'active+recovery_unfound+degraded', 'active+recovery_toofull+degraded'])
def test_nothing_is_released_while_a_pg_is_in_trouble(state: str) -> None:
    cluster, rows = at_rest()
    assert stops(maps_of(cluster), rows) == []
    assert '1 PG' in stops(maps_of(cluster), [*rows[1:], rows[0]._replace(state=state)])[0].text


def at_rest() -> Tuple[StrawCluster, List[PgSets]]:
    cluster, _, _ = expanded()
    cluster.flags.discard('norebalance')
    return cluster, [row._replace(state='active+clean') for row in rows_of(cluster)]


def test_nothing_is_released_while_pgs_are_not_reported() -> None:
    """After a failover, an mgr does not list PGs until their OSDs have reported."""
    cluster, rows = at_rest()
    assert '1 PG' in stops(maps_of(cluster), rows[1:])[0].text
    # With sets of OSDs alone, nothing is known.
    assert stops(maps_of(cluster), [row._replace(state='') for row in rows[1:]]) == []


@pytest.mark.parametrize('name', STOP_CHECKS)
def test_nothing_is_released_while_a_health_check_stops_the_module(name: str) -> None:
    maps = maps_of(StrawCluster())
    checks = replace(maps.signals, health={name: 'the summary'})
    assert 'the summary' in stops(replace(maps, signals=checks), [])[0].text
    assert stops(replace(maps, signals=replace(maps.signals, muted=frozenset({name}))), []) == []


@pytest.mark.parametrize('flag', MOVEMENT_FLAGS)
def test_nothing_is_released_while_no_data_may_move(flag: str) -> None:
    cluster = StrawCluster()
    cluster.flags.add(flag)
    assert 'ceph osd unset ' + flag in stops(maps_of(cluster), [])[0].text


def test_pgs_that_have_nowhere_to_move_delay_no_release() -> None:
    """CRUSH finds too few OSDs for them, so they are clean and remapped for ever."""
    cluster, pinned, _ = expanded()
    cluster.flags.discard('norebalance')
    rows = [row if row.pgid in pinned else row._replace(
        up=row.up[:2] if pool_of(row.pgid) == 1 else (*row.up[:2], NO_OSD),
        state='active+clean+remapped') for row in rows_of(cluster)]
    plan = found(cluster, rows)
    assert sorted(plan.pins) == pinned and not plan.in_flight
    assert len(planned(cluster, plan)[0]) == len(planned(cluster, found(cluster))[0])
    assert not stops(maps_of(cluster), rows)
    maps = maps_of(cluster)
    pins = plan_pins(maps.osdmap, rows, maps.crush)
    assert not pins.entries and set(pins.unpinnable.values()) == {INCOMPLETE}


def test_no_osd_gets_more_pgs_than_the_mons_allow() -> None:
    cluster, pinned, _ = expanded()
    maps = maps_of(cluster)
    assert maps.crush is not None
    plan = held_back(maps, maps.crush, rows_of(cluster), NO_RAWS, 3)
    arriving = Counter(osd for move in plan.moves for osd in move.targets)
    assert set(arriving.values()) == {3} and len(plan.moves) < len(pinned)
    assert 'mon_max_pg_per_osd (3)' in ' '.join(plan.left_out.values())


def test_a_pg_that_is_degraded_or_whose_target_is_full_or_down_waits() -> None:
    cluster, pinned, _ = expanded()
    rows = [row._replace(state='active+undersized+degraded') if row.pgid == pinned[0] else row
            for row in rows_of(cluster)]
    plan = found(cluster, rows)
    assert 'degraded' in plan.left_out[pinned[0]]
    assert pinned[0] not in {move.pgid for move in plan.moves}
    maps = maps_of(cluster)
    target = plan.moves[0].targets[0]

    def with_target(**changes: Any) -> HeldBack:
        osds = {**maps.osdmap.osds, target: replace(maps.osdmap.osds[target], **changes)}
        assert maps.crush is not None
        return held_back(replace(maps, osdmap=replace(maps.osdmap, osds=osds)), maps.crush,
                         rows_of(cluster), NO_RAWS, 250)

    for other in (with_target(fullness='nearfull'), with_target(up=False)):
        assert not any(target in move.targets for move in other.moves) and other.moves
        assert 'osd.%d lacks PGs, but is' % target in ' '.join(other.left_out.values())
