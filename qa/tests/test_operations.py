# SPDX-License-Identifier: LGPL-2.1-or-later
"""What operators do to a cluster with racks: fill, drain, replace, at night, and unannounced.

All tests of a release share one cluster, which is put back in order before each of them.
"""
import errno
import time
from typing import Any, Dict, Iterator, List, Sequence, Set

import pytest

from qa.cluster import Cluster
from qa.lib.joins import (crush_weights, join, landing, let_go, order, safe_to_destroy,
                          wait_reported)
from qa.lib.clusters import ClusterFactory
from qa.lib.guard import USUAL_CONF, Guard, Json

#: Campaigns on a cluster of its own; tests of the quick tier show the same elsewhere.
pytestmark = pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())

TIB = 1 << 40
CONF: Dict[str, Dict[str, str]] = {
    **USUAL_CONF,
    # The drives of new OSDs differ in size: 1, 2, 1 and 2 TiB.
    **{'osd.%d' % osd: {'memstore_device_bytes': str((1 + osd % 2) * TIB)}
       for osd in range(12, 16)}}
#: Two OSDs in each of six hosts, two hosts in each of three racks.
OSDS, HOSTS, RACKS = 12, 6, 3
#: Options of the module that tests change, and what they are set back to.
OPTIONS = {'begin_time': '0000', 'end_time': '2400', 'begin_weekday': '0', 'end_weekday': '0',
           'auto_expand': 'false', 'auto_expand_ratio': '0.01'}


@pytest.fixture(scope='module')
def shared(release: str, cluster_factory: ClusterFactory) -> Guard:
    cluster = cluster_factory(release, osds=OSDS, hosts=HOSTS, racks=RACKS, conf=CONF)
    cluster.pool_create('rep', 32, size=3)
    cluster.pool_create('ec', 16, erasure=(2, 1))
    cluster.pool_create('racks', 16, size=2, failure_domain='rack')
    for pool in ('rep', 'ec', 'racks'):
        cluster.fill(pool, 200, 4096)
    return Guard(cluster, OPTIONS)


@pytest.fixture
def guard(shared: Guard) -> Iterator[Guard]:
    """The shared cluster, with nothing but its first OSDs, before the test and after it."""
    tidy(shared)
    before = shared.foreign()
    yield shared
    try:
        assert shared.foreign() == before and not shared.tracebacks()
    finally:
        tidy(shared)


def tidy(guard: Guard) -> None:
    cluster = guard.cluster
    guard.configure(OPTIONS)
    for flag in {'norebalance', 'nobackfill'} & set(cluster.osd_dump()['flags_set']):
        cluster.mon('osd unset', key=flag)
    if guard.status()['phase'] not in ('IDLE', 'DONE', 'ABORTED'):
        guard.do('abort')
        guard.wait_phase('ABORTED')
    guard.remove_upmaps()
    put_back_osds(cluster)
    cluster.wait_clean(120)
    wait_reported(guard)


def put_back_osds(cluster: Cluster) -> None:
    """The first OSDs up, with weight 1; no others."""
    for osd in set(range(OSDS)) - set(cluster.osds()):
        cluster.add_osds(1, hosts=['host%d' % (osd % HOSTS)], ids=[osd])
    reweight(cluster, {osd: 1.0 if osd < OSDS else 0.0 for osd in cluster.osds()})
    added = [osd for osd in cluster.osds() if osd >= OSDS]
    if added:
        cluster.wait_clean(120)
        cluster.remove_osds(added)


def reweight(cluster: Cluster, weights: Dict[int, float]) -> None:
    """Set CRUSH weights by hand, in one burst."""
    present = crush_weights(cluster)
    cluster.burst([{'prefix': 'osd crush reweight', 'name': 'osd.%d' % osd, 'weight': weight}
                   for osd, weight in weights.items() if present[osd] != weight])


def weights_of(cluster: Cluster, osds: Sequence[int]) -> Dict[int, float]:
    present = crush_weights(cluster)
    return {osd: round(present[osd], 3) for osd in osds}


def holders(cluster: Cluster) -> Set[int]:
    """OSDs that have PGs."""
    return {osd for pg in cluster.pgs() for osd in (*pg['up'], *pg['acting'])}


def at(cluster: Cluster, *hosts: str) -> List[int]:
    return [osd for osd, host in cluster.osd_hosts().items() if host in hosts]


def refused(guard: Guard, command: str, **args: Any) -> int:
    """The errno of an order that must not be let in."""
    retval, out, error = guard.ask(command, **args)
    assert retval < 0 and not out and error and '\n' not in error, (command, args, retval, error)
    return -retval


def wait_let_in(guard: Guard, command: str, **args: Any) -> Json:
    """Give an order, again and again while the cluster settles."""
    def let_in() -> bool:
        retval, _, error = guard.ask(command, **args)
        errors.append(error)
        return retval == 0

    errors: List[str] = []
    guard.cluster.wait(let_in, 60, command)
    return guard.status()


# ---- filling

def test_expand_takes_the_osds_that_are_named(guard: Guard) -> None:
    cluster = guard.cluster
    cluster.add_osds(4, hosts=['host6', 'host7'], weight=0.0)
    wait_reported(guard)
    preview = order(guard, 'expand', dry_run=True)
    # By size: what each would give itself if it came up with a weight.
    assert preview['weights'] == {'osd.12': 1.0, 'osd.13': 2.0, 'osd.14': 1.0, 'osd.15': 2.0}
    assert order(guard, 'expand', what=['host6', 'host7'], weight='0.5', dry_run=True)['weights'] \
        == dict.fromkeys(preview['weights'], 0.5)
    assert order(guard, 'expand', what=['osd.13,osd.14'], dry_run=True)['weights'] \
        == {'osd.13': 2.0, 'osd.14': 1.0}

    assert order_and_finish(guard, what=['host6'], weight='0.5') == {'osd.12': 0.5, 'osd.14': 0.5}
    assert weights_of(cluster, range(12, 16)) == {12: 0.5, 13: 0.0, 14: 0.5, 15: 0.0}
    assert order_and_finish(guard, what=['osd.13']) == {'osd.13': 2.0}
    assert order_and_finish(guard) == {'osd.15': 2.0}
    assert weights_of(cluster, range(12, 16)) == {12: 0.5, 13: 2.0, 14: 0.5, 15: 2.0}
    assert holders(cluster) >= {13, 15} and guard.upmaps() == {}
    assert refused(guard, 'expand', what=['osd.13']) == errno.EINVAL
    assert refused(guard, 'expand', what=['host6']) == errno.ENOENT


def order_and_finish(guard: Guard, **args: Any) -> Json:
    """Expand, in one epoch and to the end; returns the weights that were given."""
    answer = join(guard, 'expand', **args)
    let_go(guard)
    found: Json = answer['weights']
    return found


# ---- emptying and replacing

def test_drain_a_rack(guard: Guard) -> None:
    cluster = guard.cluster
    drained = at(cluster, 'host0', 'host3')
    # Too few racks and hosts would be left for the pools.
    assert refused(guard, 'drain', what=['rack0', 'rack1']) == errno.ENOSPC
    answer = join(guard, 'drain', what=['rack0'])
    assert set(answer['weights']) == {'osd.%d' % osd for osd in drained}
    let_go(guard)
    cluster.wait(lambda: all(safe_to_destroy(cluster, osd) for osd in drained), 30,
                 'OSDs that are safe to destroy')
    assert not holders(cluster) & set(drained)
    assert refused(guard, 'drain', what=['rack1']) == errno.ENOSPC
    assert refused(guard, 'drain', what=['rack0']) == errno.EALREADY
    join(guard, 'undrain', what=['rack0'])
    let_go(guard)
    assert weights_of(cluster, range(OSDS)) == dict.fromkeys(range(OSDS), 1.0)
    assert holders(cluster) == set(range(OSDS)) and guard.upmaps() == {}


def test_replace_a_host_with_the_same_ids(guard: Guard) -> None:
    """As the documentation says: drain, destroy, install anew, undrain."""
    cluster = guard.cluster
    osds = at(cluster, 'host1')
    drain(guard, 'host1')
    cluster.remove_osds(osds, destroy=True)
    assert set(crush_weights(cluster)) >= set(osds)
    cluster.add_osds(2, hosts=['host1'], ids=osds, in_crush=False)
    wait_let_in(guard, 'undrain', what=['host1'], dry_run=True)
    join(guard, 'undrain', what=['host1'])
    let_go(guard)
    assert weights_of(cluster, osds) == dict.fromkeys(osds, 1.0)
    assert holders(cluster) >= set(osds) and guard.upmaps() == {}


def test_replace_a_host_with_new_osds(guard: Guard) -> None:
    """As the documentation says: drain, purge, install, expand. Ceph uses purged ids again."""
    cluster = guard.cluster
    osds = at(cluster, 'host2')
    drain(guard, 'host2')
    cluster.remove_osds(osds)
    assert not set(crush_weights(cluster)) & set(osds)
    cluster.add_osds(2, hosts=['host2'], ids=osds, weight=0.0)
    # Neither their drain nor their weight from before counts any more.
    assert refused(guard, 'undrain', what=['host2']) == errno.ENOENT
    wait_let_in(guard, 'expand', dry_run=True)
    answer = join(guard, 'expand', weight='1.0')
    assert answer['weights'] == {'osd.%d' % osd: 1.0 for osd in osds}
    let_go(guard)
    assert holders(cluster) >= set(osds) and guard.upmaps() == {}


def drain(guard: Guard, host: str) -> None:
    """Until Ceph says that the OSDs of a host may go."""
    cluster = guard.cluster
    order(guard, 'drain', what=[host])
    guard.wait_phase('DONE', timeout=180)
    cluster.wait(lambda: all(safe_to_destroy(cluster, osd) for osd in at(cluster, host)), 30,
                 'OSDs that are safe to destroy')
    cluster.wait_clean(60)


# ---- at certain times only

def test_weekdays(guard: Guard) -> None:
    cluster = guard.cluster
    # Two days from now at least, wherever the mgr's midnight is.
    today = (time.localtime().tm_wday + 1) % 7
    set_weekdays(guard, today + 2, today + 4)
    change = {osd: 2.0 if osd in at(cluster, 'host0', 'host4') else 1.0 for osd in range(OSDS)}
    guard.hold(lambda: reweight(cluster, change))
    guard.do('start')
    guard.wait_phase('HOLDING')
    assert_shut(guard)
    # Open from yesterday to tomorrow, but not at this time of the day; never open in between.
    hour = time.localtime().tm_hour
    guard.option('begin_time', '%02d00' % ((hour + 11) % 24))
    guard.option('end_time', '%02d00' % ((hour + 13) % 24))
    time.sleep(3)
    set_weekdays(guard, today - 2, today + 3)
    assert_shut(guard)
    guard.option('begin_time', '0000')
    guard.option('end_time', '2400')
    done = guard.wait_phase('DONE', timeout=180)
    assert done['released'] == done['total'] and not done['waits_for_window']
    cluster.wait_clean(60)


def assert_shut(guard: Guard) -> None:
    """The window is why nothing is released, and nothing is."""
    time.sleep(5)
    held = guard.wait_code('WINDOW_CLOSED')
    assert held['waits_for_window'] and held['phase'] == 'HOLDING'
    assert held['released'] == held['in_flight'] == 0 and held['pinned'] == held['total'] > 0


def set_weekdays(guard: Guard, begin: int, end: int) -> None:
    guard.option('begin_weekday', str(begin % 7))
    guard.option('end_weekday', str(end % 7))


# ---- unannounced

def test_auto_expand_ratio(guard: Guard) -> None:
    """A change that remaps few PGs is left alone; one that remaps more is caught."""
    cluster = guard.cluster
    most = 0.4 * sum(pool['pg_num'] for pool in cluster.osd_dump()['pools'])
    last = guard.status()['id']
    guard.option('auto_expand_ratio', '0.4')
    guard.option('auto_expand', 'true')
    time.sleep(3)
    assert 0 < remapped_by(guard, {0: 1.8}) <= most
    cluster.wait_clean(120)
    time.sleep(3)
    assert guard.status()['id'] == last

    change = {osd: 4.0 for osd in at(cluster, 'host1', 'host5')}
    assert remapped_by(guard, change) > most
    cluster.wait(lambda: guard.status()['id'] != last, 30, 'a campaign')
    done = guard.wait_phase('DONE', timeout=240)
    assert done['trigger'] == 'auto' and done['released'] == done['total']
    cluster.wait_clean(60)
    assert guard.upmaps() == {}


def remapped_by(guard: Guard, weights: Dict[int, float]) -> int:
    """How many PGs are remapped at once when these weights come by surprise."""
    cluster = guard.cluster
    epoch = cluster.epoch()
    reweight(cluster, weights)
    cluster.wait(lambda: landing(cluster, epoch)[2], 30, 'remapped PGs')
    time.sleep(3)  # until all have peered
    remapped = landing(cluster, epoch)[2]
    print('%s: %d PGs remapped by %s' % (cluster.release.name, remapped, weights))
    return remapped
