# SPDX-License-Identifier: LGPL-2.1-or-later
"""A pool under a hybrid rule, with an SSD and an HDD in each site. The mons cancel all its upmaps:
PGs move by weights, a few at a time."""
from typing import List

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


def set_classes(cluster: Cluster, osds: List[int]) -> None:
    """The first half are SSDs."""
    for number, osd in enumerate(osds):
        cluster.mon('osd crush rm-device-class', ids=['osd.%d' % osd])
        cluster.mon('osd crush set-device-class', ids=['osd.%d' % osd],
                    **{'class': 'ssd' if 2 * number < len(osds) else 'hdd'})


def most_remapped(cluster: Cluster, first: int) -> int:
    """The most PGs that were remapped in an epoch since then."""
    return max(len(cluster.mon('osd dump', epoch=epoch)['pg_temp'])
               for epoch in range(first, cluster.epoch() + 1))


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick='tentacle')
def test_few_pgs_move_at_a_time(release: str, make_cluster: ClusterFactory) -> None:
    cluster = make_cluster(release, osds=8, hosts=8, racks=2, conf=FAST_CONF)
    set_classes(cluster, cluster.osds())
    add_rule(cluster, HYBRID)
    # PGs with few objects recover from their logs: they would not be remapped.
    make_pool(cluster, 'sites', 'hybrid', objects=1500)
    guard = Guard(cluster, {'max_pgs_in_flight': str(IN_FLIGHT)})
    added = cluster.add_osds(4, hosts=['host8', 'host9', 'host10', 'host11'], weight=0.0)
    set_classes(cluster, added)
    wait_reported(guard)

    what = {'what': ['osd.%d' % osd for osd in added], 'weight': '1.0'}
    shown = order(guard, 'expand', dry_run=True, **what)
    number = shown['moved_by_weights']['sites']
    assert shown['risks'] == [] and number > 3 * IN_FLIGHT
    first = cluster.epoch()
    order(guard, 'expand', **what)
    done = guard.wait_phase('DONE', timeout=400)
    cluster.wait_clean(60)
    paced = most_remapped(cluster, first)
    assert {crush_weights(cluster)[osd] for osd in added} == {1.0} and guard.upmaps() == {}

    first = cluster.epoch()
    cluster.order([{'prefix': 'osd crush reweight', 'name': 'osd.%d' % osd, 'weight': 0.0}
                   for osd in added])
    cluster.wait_clean(120)
    stock = most_remapped(cluster, first)
    print('%s: %d PGs moved in %d tranches, at most %d at a time (limit %d); without perfguard %d '
          'at a time' % (release, number, done['tranches'], paced, IN_FLIGHT, stock))
    assert 0 < paced <= IN_FLIGHT < stock
    assert not guard.tracebacks()
