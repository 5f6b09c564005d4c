# SPDX-License-Identifier: LGPL-2.1-or-later
"""A pool under a hybrid rule, with an SSD and an HDD in each site. The mons cancel all its upmaps,
which one pin shows: PGs move by weights, a few at a time."""
import json
import time
from typing import Any, Dict, List

import pytest

from qa.cluster import Cluster
from qa.lib.clusters import ClusterFactory
from qa.lib.guard import FAST_CONF, Guard
from qa.lib.joins import add_rule, crush_weights, order, wait_reported
from qa.tests.test_two_sites import make_pool

HYBRID = """
rule hybrid {
    id 7
    type replicated
    step take default class ssd
    step choose firstn 2 type rack
    step chooseleaf firstn 1 type host
    step emit
    step take default class hdd
    step choose firstn 2 type rack
    step chooseleaf firstn 1 type host
    step emit
}
"""
#: PGs that may move at a time.
IN_FLIGHT = 4
#: For how long nothing may follow; a step takes a few seconds.
CLOSED_SECONDS = 20.0
nightly = pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())


def set_classes(cluster: Cluster, osds: List[int]) -> None:
    """The first half are SSDs."""
    for number, osd in enumerate(osds):
        cluster.mon('osd crush rm-device-class', ids=['osd.%d' % osd])
        cluster.mon('osd crush set-device-class', ids=['osd.%d' % osd],
                    **{'class': 'ssd' if 2 * number < len(osds) else 'hdd'})


def most_remapped(cluster: Cluster, first: int) -> int:
    """The most PGs that were remapped in an epoch since then, in which none of the pool had an
    upmap."""
    prefix = '%d.' % pool_number(cluster, 'sites')
    dumps = [cluster.mon('osd dump', epoch=epoch) for epoch in range(first, cluster.epoch() + 1)]
    assert not [row for dump in dumps for row in (*dump['pg_upmap_items'], *dump['pg_upmap'])
                if row['pgid'].startswith(prefix)]
    return max(len(dump['pg_temp']) for dump in dumps)


def pool_number(cluster: Cluster, name: str) -> int:
    return next(int(row['pool']) for row in cluster.osd_dump()['pools']
                if row['pool_name'] == name)


def refused_pins(guard: Guard) -> int:
    """How many pins the mons have not kept."""
    return sum(event['kind'] == 'unpinnable' and 'do not keep it' in event['why']
               for event in guard.events())


@pytest.fixture
def guard(release: str, make_cluster: ClusterFactory) -> Guard:
    """8 OSDs with the pool, and 4 new ones without a weight."""
    cluster = make_cluster(release, osds=8, hosts=8, racks=2, conf=FAST_CONF)
    set_classes(cluster, cluster.osds())
    add_rule(cluster, HYBRID)
    # PGs with few objects recover from their logs: they would not be remapped.
    make_pool(cluster, 'sites', 'hybrid', objects=1500)
    guard = Guard(cluster, {'max_pgs_in_flight': str(IN_FLIGHT)})
    set_classes(cluster, cluster.add_osds(
        4, hosts=['host8', 'host9', 'host10', 'host11'], weight=0.0))
    wait_reported(guard)
    return guard


def expansion(cluster: Cluster) -> Dict[str, Any]:
    """The arguments of an order that gives the new OSDs their weight."""
    return {'what': ['osd.%d' % osd for osd in new_osds(cluster)], 'weight': '1.0'}


def new_osds(cluster: Cluster) -> List[int]:
    return cluster.osds()[-4:]


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick='tentacle')
def test_few_pgs_move_at_a_time(release: str, guard: Guard) -> None:
    cluster, what = guard.cluster, expansion(guard.cluster)
    added = new_osds(cluster)
    shown = order(guard, 'expand', dry_run=True, **what)
    number = shown['moved_by_weights']['sites']
    assert shown['risks'] == [] and number > 3 * IN_FLIGHT
    first = cluster.epoch()
    order(guard, 'expand', **what)
    done = guard.wait_phase('DONE', timeout=400)
    cluster.wait_clean(60)
    paced = most_remapped(cluster, first)
    assert {crush_weights(cluster)[osd] for osd in added} == {1.0} and refused_pins(guard) == 1

    first = cluster.epoch()
    cluster.order([{'prefix': 'osd crush reweight', 'name': 'osd.%d' % osd, 'weight': 0.0}
                   for osd in added])
    cluster.wait_clean(120)
    stock = most_remapped(cluster, first)
    print('%s: %d PGs moved in %d tranches, at most %d at a time (limit %d); without perfguard %d '
          'at a time' % (release, number, done['tranches'], paced, IN_FLIGHT, stock))
    assert 0 < paced <= IN_FLIGHT < stock
    assert not guard.tracebacks()


@nightly
@pytest.mark.parametrize('verb', ['rollback', 'drain'])
def test_an_expansion_goes_back(release: str, guard: Guard, verb: str) -> None:
    cluster = guard.cluster
    before, first = acting_sets(cluster), cluster.epoch()
    order(guard, 'expand', **expansion(cluster))
    cluster.wait(lambda: guard.status()['released'] > 4 * IN_FLIGHT, 200, 'many released PGs')
    if verb == 'rollback':
        guard.do('rollback')
    else:
        guard.do('abort')
        guard.wait_phase('ABORTED', timeout=60)
        cluster.wait_clean(60)
        order(guard, 'drain', what=['osd.%d' % osd for osd in new_osds(cluster)])
    guard.wait_phase('DONE', timeout=400)
    cluster.wait_clean(60)
    paced = most_remapped(cluster, first)
    print('%s: at most %d PGs moved at a time there and back (limit %d)' % (
        release, paced, IN_FLIGHT))
    assert acting_sets(cluster) == before and 0 < paced <= IN_FLIGHT
    assert {crush_weights(cluster)[osd] for osd in new_osds(cluster)} == {0.0}
    assert not guard.tracebacks()


@nightly
def test_no_step_follows_outside_the_time_window(release: str, guard: Guard) -> None:
    """Its PGs have no pins, so the window must hold the step back, and not only releases."""
    cluster = guard.cluster
    order(guard, 'expand', **expansion(cluster))
    cluster.wait(lambda: guard.status().get('tranche', 0) >= 3, 200, 'the third step')
    guard.close_window()
    guard.wait_code('WINDOW_CLOSED', timeout=60)
    cluster.wait(lambda: not cluster.osd_dump()['pg_temp'] or guard.phase() == 'HOLDING', 60,
                 'the end of the step')
    step, weights = guard.status()['tranche'], crush_weights(cluster)
    time.sleep(CLOSED_SECONDS)
    print('%s: step %d of %d outside the window' % (release, step, guard.status()['tranches']))
    assert guard.phase() == 'HOLDING' and crush_weights(cluster) == weights
    assert guard.status()['tranche'] == step < guard.status()['tranches']
    guard.unset('begin_time')
    guard.unset('end_time')
    guard.wait_phase('DONE', timeout=400)
    cluster.wait_clean(60)
    assert {crush_weights(cluster)[osd] for osd in new_osds(cluster)} == {1.0}
    assert not guard.tracebacks()


def acting_sets(cluster: Cluster) -> Dict[str, List[int]]:
    return {pg['pgid']: sorted(pg['acting']) for pg in cluster.pgs()}


@nightly
def test_mons_cancel_upmaps_that_change_nothing(guard: Guard) -> None:
    """A pair of OSDs that are both in CRUSH's set of a PG has no effect. A release whose mons keep
    it under this rule could be told from others without disturbing a PG."""
    cluster = guard.cluster
    cluster.pool_create('flat', 8, size=4)
    cluster.wait_clean(60)
    assert keeps_a_pair(cluster, 'flat') and not keeps_a_pair(cluster, 'sites')
    guard.configure({'target': 'balanced'})
    wait_reported(guard)
    shown = order(guard, 'rule', pool='flat', rule='hybrid', dry_run=True)
    assert shown['pgs'] > 0 and 'the mons keep no upmaps under' in str(shown['warnings'])


def keeps_a_pair(cluster: Cluster, pool: str) -> bool:
    """Whether the mons keep an upmap without effect."""
    prefix = '%d.' % pool_number(cluster, pool)
    pg = next(pg for pg in cluster.pgs() if pg['pgid'].startswith(prefix))
    pgid, pair = pg['pgid'], pg['up'][:2]
    interval = interval_of(cluster, pgid)
    cluster.mon('osd pg-upmap-items', pgid=pgid, id=pair)
    kept = any(row['pgid'] == pgid for row in cluster.osd_dump()['pg_upmap_items'])
    cluster.mon('osd rm-pg-upmap-items', pgid=pgid)
    assert interval_of(cluster, pgid) == interval
    return kept


def interval_of(cluster: Cluster, pgid: str) -> int:
    """The epoch in which its present interval began."""
    query = json.loads(cluster.ceph('pg', pgid, 'query', '-f', 'json').stdout)
    return int(query['info']['history']['same_interval_since'])
