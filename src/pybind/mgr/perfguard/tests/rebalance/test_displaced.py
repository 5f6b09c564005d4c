# SPDX-License-Identifier: LGPL-2.1-or-later
"""PGs whose pins no longer keep them where their data is, until the OSDMap shows it."""
from dataclasses import replace
from typing import Any, Callable, List

import pytest

from perfguard.cluster.types import OsdSet, Placement
from perfguard.errors import Code
from perfguard.observation import Observation

from ..fakes.cluster import FakeCluster
from ..fakes.driver import OPTIONS, Driver, codes
from .test_pin_index import Big

WIDE = replace(OPTIONS, max_pgs_in_flight=64, max_backfills_target=64, max_backfills_source=64,
               max_backfills_primary=64, max_backfills_host=64, max_backfills_domain=64)


def releasing() -> Driver:
    """A campaign with a few PGs in flight and the others pinned."""
    driver = Driver(FakeCluster(pgs=32, backfill_seconds=3.0))
    driver.to_releasing()
    return driver


def out(driver: Driver) -> None:
    driver.cluster.mark_out(0)


def reweighted(driver: Driver) -> None:
    """CRUSH rejects osd.0 for its PGs, which is not out."""
    driver.cluster.mark_out(0)
    driver.cluster.toys[0] = driver.cluster.toys[0]._replace(reweight=0.5)


def watched(driver: Driver) -> List[str]:
    """Commands that release a PG whose data is not on its up set, or name OSDs without its data."""
    cluster, wrong = driver.cluster, []
    run = cluster.run

    def looking(commands: Any) -> Any:
        for command in commands:
            pg = cluster.pg.get(command.get('pgid', ''))
            if pg is None or pg.temp is not None or set(pg.up) == set(pg.data):
                continue
            if command['prefix'] in ('osd rm-pg-upmap-items', 'osd pg-temp'):
                wrong.append('%s %s: up %s, data %s' % (
                    command['prefix'], command['pgid'], pg.up, pg.data))
        return run(commands)

    setattr(cluster, 'run', looking)
    return wrong


@pytest.mark.parametrize('failover', [False, True])
@pytest.mark.parametrize('change', [out, reweighted])
def test_no_pg_is_released_before_the_osdmap_shows_where_its_data_is(
        change: Callable[[Driver], None], failover: bool) -> None:
    """The mons do not always prime pg_temp: in the first OSDMap after an OSD was marked out, its
    PGs show other up sets, and the same acting sets, although their data is elsewhere."""
    driver = releasing()
    driver.options = WIDE
    wrong = watched(driver)
    change(driver)
    if failover:
        driver.restart()
    driver.run(60)
    assert not wrong and driver.status['released'] > 4


def test_pgs_whose_osds_are_the_same_are_released_meanwhile() -> None:
    driver = releasing()
    cluster, before = driver.cluster, {*driver.loop.rebalance.pins}
    driver.options = WIDE
    cluster.mark_out(0)
    moved = {pgid for pgid, pg in cluster.pg.items() if set(pg.up) != set(pg.data)}
    driver.turn()
    campaign = driver.loop.rebalance.campaign
    released = {*campaign.flights.in_flight} & before
    assert released - moved and moved & before - released
    assert Code.PEERING in codes(driver.status)
    driver.run_until(lambda: Code.PEERING not in codes(driver.status))


def test_a_change_of_weights_displaces_only_pgs_with_another_up_set() -> None:
    big = Big(3)
    seen = big.observe(7)
    big.release_moves.update_moves(big.pins, seen)
    # They may have been displaced before this mgr became active.
    assert {move.displaced for move in big.release_moves.moves.values()} == {seen.now}

    def look(epoch: int, reweight: float, up: OsdSet) -> Observation:
        now = seen.now + epoch
        found = big.observe(epoch)
        osds = {**found.osdmap.osds, 5: replace(found.osdmap.osds[5], reweight=reweight)}
        places = {'7.1': up}

        def placement(pgid: str) -> Placement:
            return Placement(places.get(pgid, (3, 1, 2)), places.get(pgid, (3, 1, 2)))

        osdmap = replace(found.osdmap, osds=osds)
        found = replace(found, now=now, placement=placement,
                        settings=replace(found.settings, osdmap=osdmap))
        big.release_moves.update_moves(big.pins, found)
        return found

    look(8, 0.5, (3, 1, 4))
    look(9, 0.4, (3, 1, 4))
    moves = big.release_moves.moves
    assert [moves['7.%d' % number].displaced for number in range(3)] == [
        seen.now, seen.now + 8, seen.now]
    # Another goal, noted meanwhile, leaves the PG where it is.
    big.pins.note({'7.1': replace(big.pins['7.1'], goal=None)})
    look(10, 0.4, (3, 1, 4))
    assert moves['7.1'].displaced == seen.now + 8
