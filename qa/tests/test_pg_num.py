# SPDX-License-Identifier: LGPL-2.1-or-later
"""A pool gets more PGs and fewer again: what moves is released in batches, and moves once."""
import errno
import json
import time
from collections import Counter
from typing import Any, Callable, Dict, List, Set, Tuple

import pytest

from qa.cluster import Cluster
from qa.lib.clients import check_p99
from qa.lib.clusters import ClusterFactory
from qa.lib.guard import CALM, FAST_CONF, Guard
from qa.lib.joins import order, refused, refused_after_a_change_of_crush, wait_reported

pytestmark = [pytest.mark.shares('campaign'),
              pytest.mark.releases('pacific', 'reef', 'tentacle', quick='pacific')]

Json = Dict[str, Any]
#: Share of the PGs of a pool that may be remapped without having been released.
MOST_UNRELEASED = 0.01
#: Time for which the latency of clients is measured before a change.
QUIET_SECONDS = 20


def pool_row(cluster: Cluster, pool: str) -> Json:
    found: Json = next(row for row in cluster.osd_dump()['pools'] if row['pool_name'] == pool)
    return found


def numbers(cluster: Cluster, pool: str) -> Tuple[int, ...]:
    row = pool_row(cluster, pool)
    return tuple(row[name] for name in ('pg_num', 'pg_placement_num', 'pg_num_target',
                                        'pg_placement_num_target', 'pg_num_pending'))


def upmaps_of(dump: Json, pool: int) -> Dict[str, Any]:
    return {row['pgid']: row for row in (*dump['pg_upmap_items'], *dump['pg_upmap'])
            if row['pgid'].startswith('%d.' % pool)}


def movement(cluster: Cluster, pool: int, first: int) -> Tuple[int, 'Counter[str]']:
    """Most PGs in an epoch that were remapped before they were released; how often each PG was
    remapped."""
    released: Set[str] = set()
    before: List[str] = []
    most, times = 0, Counter[str]()
    at_first = upmaps_of(cluster.mon('osd dump', epoch=first), pool)
    for epoch in range(first + 1, cluster.epoch() + 1):
        dump = cluster.mon('osd dump', epoch=epoch)
        upmaps = upmaps_of(dump, pool)
        released |= {pgid for pgid in {*upmaps, *at_first}
                     if upmaps.get(pgid) != at_first.get(pgid)}
        remapped = [row['pgid'] for row in dump['pg_temp']
                    if row['pgid'].startswith('%d.' % pool)]
        times.update(pgid for pgid in remapped if pgid not in before)
        most = max(most, len(set(remapped) - released))
        before = remapped
    return most, times


def change(guard: Guard, pool: str, pg_num: int) -> None:
    cluster = guard.cluster
    cluster.wait_clean(60)
    wait_reported(guard)
    first, found = cluster.epoch(), guard.foreign()
    number = pool_row(cluster, pool)['pool']
    preview = order(guard, 'preview', change='pg_num', what=[pool, str(pg_num)])
    answer = order(guard, 'pg_num', pool=pool, pg_num=pg_num)
    assert answer['pgs'] == preview['pgs'] > 0 and not answer['unpinnable'], answer
    done = guard.wait_phase('DONE', timeout=600)
    cluster.wait_clean(60)
    unreleased, times = movement(cluster, number, first)
    print('%s: %s to %d PGs: %d predicted, %d released, at most %d remapped before their release, '
          'PGs by number of times remapped %s' % (
              cluster.release.name, pool, pg_num, answer['pgs'], done['released'], unreleased,
              dict(Counter(times.values()))))
    assert numbers(cluster, pool) == (pg_num,) * 5
    assert guard.upmaps() == {} and not done['pinned']
    assert unreleased <= MOST_UNRELEASED * pg_num
    # A PG of which only the order of its OSDs changes is not remapped.
    assert set(times.values()) == {1} and len(times) <= answer['pgs']
    # pg_num is part of what is compared, and was changed by order.
    assert {**vars(guard.foreign()), 'pools': None} == {**vars(found), 'pools': None}


@pytest.mark.releases('pacific', quick=())
def test_a_plan_is_carried_out_or_refused_with_what_has_changed(guard: Guard) -> None:
    cluster = guard.cluster
    cluster.wait_clean(60)
    wait_reported(guard)

    def plan(name: str, pg_num: int) -> Json:
        return {'plan': name, 'change': 'pg_num', 'what': ['rep', str(pg_num)]}

    try:
        refused_after_a_change_of_crush(guard, **plan('more', 72))
        # A plan counts from what OSDs report, and that includes copies that are yet to be deleted.
        wait_pgs(cluster, lambda: held(cluster))
        order(guard, 'plan save', **plan('other', 80))
        saved = order(guard, 'plan save', **plan('more', 72))
        assert saved['preview']['eta_high_seconds'] > 0 and guard.phase() == 'IDLE'
        refused(guard, 'plan approve', 'saved again', plan='more', token='another')
        answer = order(guard, 'plan approve', plan='more', token=saved['token'])
        done = guard.wait_phase('DONE', timeout=300)
        assert answer['campaign'] == done['id'] and numbers(cluster, 'rep') == (72,) * 5
        refused(guard, 'plan approve', 'pool rep: pg_num 64, now 72', plan='other')
        cluster.wait_clean(60)
        wait_reported(guard)
        wait_pgs(cluster, lambda: {row['osd']: row['pgs_after']
                                   for row in saved['preview']['osds']})
    finally:
        for row in guard.get('plan ls')['plans']:
            guard.get('plan rm', plan=row['plan'])
        if numbers(cluster, 'rep')[0] != 64:
            change(guard, 'rep', 64)
    assert not guard.tracebacks()


def wait_pgs(cluster: Cluster, wanted: Callable[[], Dict[int, int]]) -> None:
    """Until the OSDs report so many PGs."""
    numbers: List[Dict[int, int]] = []

    def reported() -> bool:
        rows = cluster.mon('pg dump', dumpcontents=['osds'])['osd_stats']
        found, expected = {row['osd']: row['num_pgs'] for row in rows}, wanted()
        numbers[:] = [expected, {osd: found[osd] for osd in expected}]
        return bool(expected) and numbers[0] == numbers[1]

    try:
        cluster.wait(reported, 30, 'the PGs of each OSD')
    except Exception as problem:
        raise AssertionError('%s; expected and found %s' % (problem, numbers)) from problem


def held(cluster: Cluster) -> Dict[int, int]:
    """The number of PGs that each OSD serves."""
    return dict(Counter(osd for pg in cluster.pgs() for osd in pg['acting']))


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
def test_the_number_that_the_autoscaler_recommends(guard: Guard) -> None:
    """A pool of its own, so that nothing has to be merged afterwards."""
    cluster = guard.cluster
    cluster.pool_create('few', 8)
    cluster.fill('few', 200, 4096)
    cluster.mon('osd pool set', pool='few', var='pg_autoscale_mode', val='warn')
    try:
        for pool, share in ('few', '1'), ('rep', '7'):
            cluster.mon('osd pool set', pool=pool, var='target_size_ratio', val=share)
        cluster.wait(lambda: recommended(cluster, 'few') > 8, 30, 'a recommendation')
        number = recommended(cluster, 'few')
        shown = order(guard, 'preview', change='pg_num', what=['few'])
        assert shown['pg_num']['to'] == number
        retval, _, error = guard.ask('pg_num', pool='few')
        assert retval == -errno.EINVAL and 'recommends %d for pool few' % number in error, error
        change(guard, 'few', number)
        assert pool_row(cluster, 'few')['pg_autoscale_mode'] == 'warn'
    finally:
        for pool in 'few', 'rep':
            cluster.mon('osd pool set', pool=pool, var='target_size_ratio', val='0')
    assert not guard.tracebacks()


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick='reef')
def test_the_mons_have_the_same_limit_of_pgs_per_osd(make_cluster: ClusterFactory,
                                                     release: str) -> None:
    """Of all OSDs before Reef, since then of those of the device class of the CRUSH rule, one of
    which is out."""
    cluster = make_cluster(release, osds=7, hosts=3, conf={
        **FAST_CONF, 'global': CALM, 'mon_max_pg_per_osd': '40'})
    cluster.mon('osd crush rm-device-class', ids=['all'])
    cluster.mon('osd crush set-device-class', ids=['0', '1', '2', '3'], **{'class': 'few'})
    cluster.mon('osd crush rule create-replicated', name='few', root='default', type='osd',
                **{'class': 'few'})
    cluster.pool_create('many', 32)
    cluster.pool_create('few', 8)
    for name, value in ('pg_autoscale_mode', 'off'), ('crush_rule', 'few'), ('size', '2'):
        cluster.mon('osd pool set', pool='few', var=name, val=value)
    cluster.mon('osd out', ids=['0'])
    cluster.wait_clean(60)
    guard = Guard(cluster)
    lowest, refused_at = 8, 1024
    while refused_at - lowest > 1:
        middle = (lowest + refused_at) // 2
        retval, _, error = guard.ask('preview', change='pg_num', what=['few', str(middle)])
        assert retval == 0 or 'limit 40, mon_max_pg_per_osd' in error, error
        lowest, refused_at = (middle, refused_at) if retval == 0 else (lowest, middle)
    answers = [cluster.command('mon', {'prefix': 'osd pool set', 'pool': 'few', 'var': 'pg_num',
                                       'val': str(pg_num)}) for pg_num in (refused_at, lowest)]
    print('%s: at most %d PGs' % (release, lowest))
    assert [answer[0] for answer in answers] == [-errno.ERANGE, 0], answers
    assert not guard.tracebacks()


def recommended(cluster: Cluster, pool: str) -> int:
    retval, out, error = cluster.mgr('osd pool autoscale-status', format='json')
    assert retval == 0, error
    return int(next(row['pg_num_final'] for row in json.loads(out)
                    if row['pool_name'] == pool))


def test_a_pool_is_split_and_merged_again(guard: Guard, tier: str) -> None:
    # ceph-mgr merges one PG every three seconds.
    more = 128 if tier == 'nightly' else 72
    change(guard, 'rep', more)
    refused(guard, 'pg_num', 'already has %d PGs' % more, pool='rep', pg_num=more)
    change(guard, 'rep', 64)
    assert not guard.tracebacks()


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
def test_an_abort_ends_though_the_mons_refuse_to_stop_merges(guard: Guard) -> None:
    """As they do if the OSDs have too many PGs."""
    cluster = guard.cluster
    cluster.wait_clean(60)
    wait_reported(guard)
    order(guard, 'pg_num', pool='rep', pg_num=16)
    cluster.wait(lambda: pool_row(cluster, 'rep')['pg_num_target'] == 16, 300, 'merges')
    before = cluster.tell('mon.a', 'config get', var='mon_max_pg_per_osd')
    cluster.tell('mon.a', 'config set', var='mon_max_pg_per_osd', val=['1'])
    try:
        guard.do('abort')
        guard.wait_phase('ABORTED', timeout=90)
        assert numbers(cluster, 'rep')[2] == 16 and 'norebalance' not in guard.foreign().flags
    finally:
        cluster.tell('mon.a', 'config set', var='mon_max_pg_per_osd',
                     val=[before['mon_max_pg_per_osd']])
    guard.do('resume')
    guard.wait_phase('DONE', timeout=600)
    change(guard, 'rep', 64)
    assert not guard.tracebacks()


@pytest.mark.alone
@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
def test_an_erasure_coded_pool_under_load(guard: Guard) -> None:
    for name in ('stall_ratio', 'max_transition_ratio', 'max_backfills_source',
                 'max_backfills_primary', 'max_backfills_target', 'max_backfills_host'):
        guard.unset(name)
    load = guard.cluster.load('ec', rate=100, read_fraction=0.5, runtime=1200)
    try:
        begin = time.time()
        time.sleep(QUIET_SECONDS)
        phases = [('quiet', begin, time.time())]
        for pg_num in (64, 32):
            begin = time.time()
            change(guard, 'ec', pg_num)
            phases.append(('to %d PGs' % pg_num, begin, time.time()))
    finally:
        load.stop()
    check_p99(load, phases)
    assert not guard.tracebacks()
