# SPDX-License-Identifier: LGPL-2.1-or-later
"""Records what this version leaves in the store, for test_upgrade.py of later versions:

    python3 -m perfguard.tests.fakes.recording > recorded/state-VERSION.json

Run it in a checkout of the version, with src/pybind/mgr as PYTHONPATH. state.json is of the version
that is in development: record it again when the form of a document changes.
"""
import json
import sys
from dataclasses import replace
from typing import Any, Callable, Dict, Optional

import pytest

from perfguard.probe.orders import NewSchedule, RunId, RunOrder
from perfguard.rebalance.orders import AWAIT, Order
from perfguard.rebalance.plans import SAVE, PlanOrder
from perfguard.rebalance.replacing import REPLACE

from .cluster import FakeCluster, FakePg
from .driver import Driver
from .mon_model import Stored, ToyMon, ToyOsd
from .probe_cluster import ProbeCluster, ProbeDriver, fake_children
from ..mitigation.test_controller import Mitigated, climbed, lowered
from ..mitigation.test_rescue import hurt
from ..probe.test_controller import REPEATED, WORDS, ran
from ..watch.test_controller import Watched, chronic

#: Attributes of the cluster that are JSON as they are.
PLAIN = ('now', 'epoch', 'crush_version_', 'config', 'mon_config', 'new', 'base', 'coming',
         'trouble', 'users')
#: Those of which the keys are OSDs.
BY_OSD = ('uuids', 'fullness', 'affinity', 'used')
#: What a campaign waits for after its last release: OSDs are read, and a device has to have served.
SETTLED_TURNS = 45
#: Within which no baseline is complete.
LONG_SECONDS = 600.0


# ---- The cluster as JSON

def cluster_to_json(cluster: FakeCluster) -> Dict[str, Any]:
    return {**{name: getattr(cluster, name) for name in PLAIN + BY_OSD if hasattr(cluster, name)},
            'flags': sorted(cluster.flags), 'modes': cluster.modes,
            'toys': list(cluster.toys.values()), 'led': cluster.led,
            'osd_config': [[*key, value] for key, value in cluster.osd_config.items()],
            'objects': sorted(getattr(cluster, 'objects', ())),
            'made': {name: pool.pg_num for name, pool in getattr(cluster, 'made', {}).items()},
            'pgs': {pgid: _pg_to_json(pg) for pgid, pg in cluster.pg.items()}}


def _pg_to_json(pg: FakePg) -> Dict[str, Any]:
    return {'raw': pg.mon.raw, 'items': pg.mon.stored.items, 'vector': pg.mon.stored.vector,
            'data': pg.data, 'up': pg.up, 'temp': pg.temp, 'peering_until': pg.peering_until}


def cluster_from_json(recorded: Dict[str, Any],
                      cluster: Optional[FakeCluster] = None) -> FakeCluster:
    """`cluster`: one of the kind that was recorded, if that is not the usual one."""
    cluster = cluster or FakeCluster(pgs=4)
    for name in set(PLAIN) & recorded.keys():
        setattr(cluster, name, recorded[name])
    for name in set(BY_OSD) & recorded.keys():
        setattr(cluster, name, {int(osd): value for osd, value in recorded[name].items()})
    cluster.osd_config = {(who, name): value for who, name, value in recorded.get('osd_config', ())}
    if isinstance(cluster, ProbeCluster):
        cluster.objects = {(pool, space, name) for pool, space, name in recorded['objects']}
        for name, pg_num in recorded['made'].items():
            cluster.create({'pool': name, 'pg_num': pg_num})
    cluster.flags = set(recorded['flags'])
    cluster.modes = {int(pool): mode for pool, mode in recorded['modes'].items()}
    cluster.led = {int(osd): epoch for osd, epoch in recorded.get('led', {}).items()}
    cluster.toys.clear()
    cluster.toys.update({osd: ToyOsd(*toy) for osd, toy in enumerate(recorded['toys'])})
    cluster.pg = {pgid: _pg_from_json(cluster, pg) for pgid, pg in recorded['pgs'].items()}
    cluster.report()
    return cluster


def _pg_from_json(cluster: FakeCluster, recorded: Dict[str, Any]) -> FakePg:
    mon = ToyMon(cluster.toys, 3, recorded['raw'])
    mon.stored = Stored([(old, new) for old, new in recorded['items']], recorded['vector'])
    temp = recorded['temp']
    return FakePg(mon, tuple(recorded['data']), tuple(recorded['up']),
                  None if temp is None else tuple(temp), recorded.get('peering_until'))


# ---- The stories, up to the instant at which the mgr is upgraded

def _driver(waiting: int = 0) -> Driver:
    cluster = FakeCluster(pgs=4)
    if waiting:
        cluster.add_waiting(waiting)
    cluster.tick(5.0)
    return Driver(cluster)


def pinned() -> Driver:
    driver = _driver()
    driver.to_pinned()
    return driver


def releasing() -> Driver:
    driver = _driver()
    driver.to_releasing()
    return driver


def aborted() -> Driver:
    driver = releasing()
    driver.ask('abort')
    driver.run_to('ABORTED')
    return driver


def expanding() -> Driver:
    driver = _driver(2)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status['in_flight'] > 0)
    return driver


def drained() -> Driver:
    driver = _driver()
    driver.order('drain', 'osd.3')
    driver.run_to('DONE')
    return driver


def rolled_back() -> Driver:
    driver = expanding()
    driver.order('rollback')
    return driver


def replaced() -> Driver:
    driver = _driver(1)
    driver.order('expand', weight='1.0')
    driver.run_to('DONE')
    driver.order(REPLACE, 'osd.8')
    driver.run_to('DONE')
    driver.run(SETTLED_TURNS)
    return driver


def planned() -> Driver:
    driver = _driver(2)
    driver.give(PlanOrder(SAVE, 'next', Order('expand', weight='1.0')))
    return driver


def awaiting() -> Driver:
    driver = _driver()
    driver.loop.requests.submit(Order(AWAIT, weight='1.0'))
    driver.run(4)
    driver.cluster.add_waiting(2)
    driver.run(12)
    return driver


def rescued() -> Driver:
    driver = hurt()
    driver.run_until(lambda: not driver.cluster.toofull())
    driver.run(20)
    return driver


def learning() -> Driver:
    """A pool has a provisional baseline."""
    return Watched(baseline_seconds=LONG_SECONDS)


def probing() -> Driver:
    """In a pool of its own."""
    driver = ProbeDriver()
    driver.cluster.behaviour = 'deaf'
    driver.give(RunOrder(words=WORDS))
    driver.run_until(lambda: driver.state(1) == 'running')
    driver.run(2)
    return driver


def probed() -> Driver:
    driver = ProbeDriver()
    driver.give(RunId('probe baseline', ran(driver, REPEATED)))
    driver.give(NewSchedule('nightly', RunOrder(profile='quick', pool='rep', trigger='nightly'),
                            {'begin_time': '0200', 'end_time': '0400'}))
    return driver


STORIES: Dict[str, Callable[[], Driver]] = {
    'PINNED': pinned, 'RELEASING': releasing, 'ABORTED': aborted, 'expand': expanding,
    'drained': drained, 'rollback': rolled_back, 'replace': replaced, 'plan': planned,
    'await': awaiting,
    'mitigation': climbed, 'affinity': lowered, 'rescue': rescued, 'chronic': chronic,
    'provisional': learning, 'probing': probing, 'probed': probed}


def _relieving() -> Driver:
    driver = Watched()
    driver.options = replace(driver.options, mitigation_mode='act', mitigation_affinity=True)
    return driver


#: Makes the mgr and the cluster that a story is about, if they are not the usual ones.
DRIVERS: Dict[str, Callable[[], Driver]] = {
    'mitigation': Mitigated, 'affinity': _relieving,
    'rescue': hurt, 'chronic': Watched,
    'provisional': learning, 'probing': ProbeDriver, 'probed': ProbeDriver}


def record(driver: Driver) -> Dict[str, Any]:
    return {'cluster': cluster_to_json(driver.cluster), 'store': driver.kv.data}


def main() -> None:
    with pytest.MonkeyPatch.context() as patch:
        fake_children(patch)
        lines = ['"%s": %s' % (name, json.dumps(record(story())))
                 for name, story in STORIES.items()]
    sys.stdout.write('{%s}\n' % ',\n'.join(lines))


if __name__ == '__main__':
    main()
