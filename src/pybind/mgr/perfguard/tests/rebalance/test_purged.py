# SPDX-License-Identifier: LGPL-2.1-or-later
"""An OSD that is purged while pins lead to it by upmaps from before the campaign."""
from dataclasses import replace

import pytest

from perfguard.cluster.types import Balancing, UpmapEntry
from perfguard.rebalance.types import Phase, PinRecord

from ..fakes.cluster import FakeCluster
from ..fakes.driver import OPTIONS, Driver
from .test_phases import pinned

#: A PG with an upmap, which CRUSH remaps in `expand`.
PGID = '1.2'


def mapped(cluster: FakeCluster) -> int:
    """Give the PG an upmap; returns the OSD that it leads to."""
    raw = cluster.pg[PGID].mon.raw
    osd = max(set(cluster.toys) - set(raw))
    cluster.add_upmap(PGID, raw[1], osd)
    return osd


@pytest.mark.parametrize('target, covered', [('crush', True), ('balanced', True),
                                             ('balanced', False)])
def test_a_campaign_ends_although_an_osd_of_earlier_upmaps_is_purged(target: str,
                                                                     covered: bool) -> None:
    cluster = FakeCluster(hosts=10)
    if not covered:
        cluster.balancer = Balancing(pools=frozenset({2}))
    osd = mapped(cluster)
    driver = Driver(cluster, replace(OPTIONS, target=target))
    driver.to_pinned()
    assert driver.loop.rebalance.pins[PGID].before.items[0][1] == osd
    cluster.take_down(osd)
    cluster.mark_out(osd)
    driver.run(60)
    cluster.purge(osd)
    for pg in cluster.pg.values():
        pg.mon.next_epoch()
    driver.run(3)
    driver.restart()
    driver.run(2)
    driver.ask('start')
    driver.run_to('DONE', 600)
    assert cluster.clean() and driver.status['released']


@pytest.mark.parametrize('entry, left', [
    (UpmapEntry(((1, 5), (2, 9))), UpmapEntry(((1, 5),))),
    (UpmapEntry(((2, 9),)), UpmapEntry()),
    (UpmapEntry(((1, 5),), (9, 3, 4)), UpmapEntry()),
    (UpmapEntry(vector=(5, 3, 4)), UpmapEntry(vector=(5, 3, 4)))])
def test_pins_do_not_lead_to_osds_that_are_gone(entry: UpmapEntry, left: UpmapEntry) -> None:
    """Releases, goals and rollbacks; osd.9 is the one that is gone."""
    cluster = FakeCluster()
    machine = pinned(cluster)
    pin = machine.pins['2.0']
    machine.pins['2.0'] = replace(pin, before=entry, goal=entry, was=entry)
    machine.pins['2.2'] = replace(machine.pins['2.2'], before=entry)
    machine.turn()
    assert machine.pins['2.0'].before == entry, 'osd.9 exists'
    del cluster.toys[9]
    for pg in cluster.pg.values():
        pg.mon.raw = [0 if osd == 9 else osd for osd in pg.mon.raw]
    cluster.epoch += 1
    machine.turn()
    assert machine.pins['2.0'] == PinRecord(left, pin.entry, pin.raw, left, left)
    assert (machine.pins['2.2'].before, machine.pins['2.2'].goal) == (left, None)
    assert machine.campaign.phase is Phase.PINNED
