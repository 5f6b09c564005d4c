# SPDX-License-Identifier: LGPL-2.1-or-later
"""Campaigns that an earlier version has begun are finished by this one.

recorded/state-0.1.0.json has, for each story, the documents in the mons' key/value store and the
cluster to which they belong, as an earlier state of the module left them.
"""
import json
from pathlib import Path
from typing import Any, Dict

import pytest

from .fakes.cluster import FakeCluster, FakePg
from .fakes.driver import Driver
from .fakes.mon_model import Stored, ToyMon, ToyOsd

RECORDED: Dict[str, Any] = json.loads(
    (Path(__file__).parent / 'recorded' / 'state-0.1.0.json').read_text())
LATER_SECONDS = 30.0


def cluster_of(recorded: Dict[str, Any]) -> FakeCluster:
    cluster = FakeCluster(pgs=4)
    for name in ('now', 'epoch', 'crush_version_', 'config', 'mon_config', 'new', 'base',
                 'coming'):
        setattr(cluster, name, recorded[name])
    cluster.flags = set(recorded['flags'])
    cluster.modes = {int(pool): mode for pool, mode in recorded['modes'].items()}
    cluster.toys.clear()
    cluster.toys.update({osd: ToyOsd(*toy) for osd, toy in enumerate(recorded['toys'])})
    cluster.pg = {pgid: pg_of(cluster, pg) for pgid, pg in recorded['pgs'].items()}
    cluster.report()
    return cluster


def pg_of(cluster: FakeCluster, recorded: Dict[str, Any]) -> FakePg:
    mon = ToyMon(cluster.toys, 3, recorded['raw'])
    mon.stored = Stored([(old, new) for old, new in recorded['items']], recorded['vector'])
    temp = recorded['temp']
    return FakePg(mon, tuple(recorded['data']), tuple(recorded['up']),
                  None if temp is None else tuple(temp))


def upgraded(name: str) -> Driver:
    """The mgr of this version becomes active on what the earlier one left."""
    recorded = RECORDED[name]
    driver = Driver(cluster_of(recorded['cluster']))
    driver.kv.data = dict(recorded['store'])
    driver.cluster.now += LATER_SECONDS
    driver.restart()
    driver.turn()
    assert driver.loop._store.damaged == [] and driver.loop._store.losses == []
    return driver


@pytest.mark.parametrize('name, phases, verb', [
    ('PINNED', ('PINNED',), 'start'), ('RELEASING', ('RELEASING', 'FINISHING'), ''),
    ('ABORTED', ('ABORTED',), 'resume'), ('expand', ('RELEASING', 'FINISHING'), '')])
def test_a_campaign_is_finished(name: str, phases: Any, verb: str) -> None:
    driver = upgraded(name)
    cluster = driver.cluster
    assert driver.phase in phases and driver.loop.rebalance.pins
    if verb:
        driver.ask(verb)
    driver.run_to('DONE')
    driver.run(5)
    assert cluster.clean() and cluster.entries() == {}
    assert cluster.foreign() == FakeCluster().foreign()
    assert cluster.mon_config == FakeCluster().mon_config and cluster.checks == {}
    assert [(row['id'], row['phase']) for row in driver.history] == [(1, 'DONE')]


def test_what_was_drained_is_known() -> None:
    driver = upgraded('drained')
    assert [row['trigger'] for row in driver.history] == ['drain']
    assert driver.order('undrain', 'osd.3')['weights'] == {'osd.3': 1.0}
    driver.run_to('DONE')
    assert driver.cluster.toys[3].crush_weight == 1.0
