# SPDX-License-Identifier: LGPL-2.1-or-later
"""target=balanced: after an expansion the balancer has nothing to do, and no PG moved twice."""
import math
import time
from collections import Counter
from typing import Any, Dict, List, Set, Tuple

import pytest

from qa.cluster import Cluster
from qa.lib.guard import Guard
from qa.lib.joins import crush_weights, order, refused, safe_to_destroy, wait_reported

#: PG -> acting set.
Sets = Dict[str, List[int]]

pytestmark = [pytest.mark.releases('pacific', 'reef', 'tentacle', quick='tentacle'),
              pytest.mark.shares('campaign')]

REPLICATED, ERASURE = 'rep', 'ec'


def test_expansion_ends_in_balance(release: str, guard: Guard) -> None:
    cluster = guard.cluster
    balance_from_now_on(guard)
    found = guard.foreign()
    before = acting_sets(cluster)

    guard.hold(lambda: cluster.add_osds(4))
    cluster.flush_pg_stats()
    pinned = acting_sets(cluster)
    assert [pgid for pgid in before if set(pinned[pgid]) != set(before[pgid])] == []
    plan = guard.get('preview')
    epoch = cluster.epoch()
    begin = time.monotonic()
    guard.do('start')
    done = guard.wait_phase('DONE', timeout=180)
    seconds = time.monotonic() - begin
    cluster.wait_clean(20)
    assert guard.foreign() == found
    assert not guard.tracebacks()

    after = acting_sets(cluster)
    moved = {pgid for pgid in after if set(after[pgid]) != set(before[pgid])}
    assert plan['pgs'] == done['released'] == len(moved)
    assert done['released'] + done['kept'] == done['total']
    assert_balanced(cluster, before, after)
    assert plan['shards'] == sum(
        len(set(after[pgid]) - set(before[pgid])) for pgid in moved)
    assert changed_entries(cluster, epoch) == moved
    print('%s: %d of %d PGs moved in %.0f s, %d kept' % (
        release, len(moved), done['total'], seconds, done['kept']))
    assert_nothing_for_the_balancer(cluster)


@pytest.mark.releases('pacific', quick=())
def test_goals_outlive_the_mgr(guard: Guard) -> None:
    """Another mgr takes over while the pins wait and while PGs are on their way."""
    cluster, last = guard.cluster, guard.last_event()
    balance_from_now_on(guard)
    before = acting_sets(cluster)
    guard.hold(lambda: cluster.add_osds(4))
    epoch = cluster.epoch()
    cluster.mgr_fail()
    guard.wait_ready()
    guard.do('start')
    guard.wait_moving()
    cluster.mgr_fail()
    guard.wait_ready()
    guard.wait_phase('DONE', timeout=180)
    cluster.wait_clean(30)
    assert_balanced(cluster, before, acting_sets(cluster))
    changed_entries(cluster, epoch)
    assert len(guard.event_texts('plan', last)) <= 1
    assert not guard.tracebacks()


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick='reef')
def test_new_osds_for_old_ones(release: str, guard: Guard) -> None:
    """No shard passes through a third OSD, and little more moves than what the old OSDs hold."""
    cluster, old = guard.cluster, [0, 5]
    balance_from_now_on(guard)
    new = cluster.add_osds(2, weight=0.0)
    wait_reported(guard)
    before, crush = all_sets(cluster), cluster.osd_dump()['crush_version']
    names = {'what': ['osd.%d' % osd for osd in new], 'drain': ['osd.%d' % osd for osd in old],
             'weight': '1'}
    refused(guard, 'expand', 'cannot be filled and drained', **{**names, 'drain': names['what']})
    plan = order(guard, 'expand', dry_run=True, **names)
    assert cluster.osd_dump()['crush_version'] == crush and guard.get('held')['held'] == []
    order(guard, 'expand', **names)
    done = guard.wait_phase('DONE', timeout=240)
    cluster.wait_clean(30)
    after = all_sets(cluster)
    shards = sum(shards for shards, _ in (
        moved_shards(before, after, pool['pool'], cluster.osds(), pool['pool_name'] == ERASURE)
        for pool in cluster.osd_dump()['pools']))
    held = sum(osd in old for osds in before.values() for osd in osds)
    print('%s: the old OSDs held %d shards; %d moved with %d PGs' % (
        release, held, shards, done['released']))
    assert plan['balanced']['shards'] == shards and held <= shards
    assert not any(osd in old for osds in after.values() for osd in osds)
    moved = {pgid for pgid in after if after[pgid] != before[pgid]}
    assert done['released'] == len(moved)
    weights = crush_weights(cluster)
    assert [weights[osd] for osd in (*old, *new)] == [0.0, 0.0, 1.0, 1.0]
    for osd in old:
        cluster.wait(lambda: safe_to_destroy(cluster, osd), 60, 'osd.%d safe to destroy' % osd)
    assert guard.get('held')['held'] == [] and not guard.tracebacks()


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick='pacific')
def without_room(balance: Dict[str, Any]) -> Dict[str, Any]:
    """Without the room of pools, which changes with each report of the OSDs' usage: of two that are
    equally full, the one or the other limits it."""
    room = 'max_avail_', 'limited_by_'
    return {**balance, 'pools': [
        {key: value for key, value in row.items() if not key.startswith(room)}
        for row in balance['pools']]}


def test_balance_by_pgs(guard: Guard) -> None:
    """CRUSH has not placed the PGs evenly, and others have set upmaps that make it worse."""
    cluster = guard.cluster
    found, crush = guard.foreign(), cluster.osd_dump()['crush_version']
    set_upmaps_to(cluster, 0, 5)
    wait_reported(guard)
    before, epoch = acting_sets(cluster), cluster.epoch()
    plan = order(guard, 'balance', max_movement='100%', dry_run=True)
    assert cluster.epoch() == epoch and guard.get('held')['held'] == []
    limited = order(guard, 'balance', max_movement='2%', dry_run=True)['balance']
    assert 0 < limited['shards'] <= limited['limit_shards'] < plan['balance']['shards']
    # With read access.
    preview = guard.get('preview', change='balance', max_movement='100%')
    assert without_room(preview['balance']) == without_room(plan['balance'])

    order(guard, 'balance', max_movement='100%')
    done = guard.wait_phase('DONE', timeout=180)
    cluster.wait_clean(20)
    assert cluster.osd_dump()['crush_version'] == crush
    after = acting_sets(cluster)
    moved = {pgid for pgid in after if set(after[pgid]) != set(before[pgid])}
    assert plan['pgs'] == done['released'] == len(moved) and done['kept'] == 0
    assert plan['shards'] == sum(shards for shards, _ in (
        moved_shards(before, after, pool, cluster.osds(), name == ERASURE)
        for pool, name in pools(cluster).items()))
    assert changed_entries(cluster, epoch) == moved
    assert len(guard.upmaps()) == plan['balance']['upmaps_after']
    for pool in pools(cluster):
        assert max(distances(after, pool, cluster.osds())) <= 1
    total = Counter(osd for osds in after.values() for osd in osds)
    assert max(total.values()) - min(total.values()) <= 1
    with pytest.raises(AssertionError, match='already balanced'):
        order(guard, 'balance', max_movement='100%')
    guard.remove_upmaps()
    cluster.wait_clean(60)
    assert guard.foreign() == found and not guard.tracebacks()
    print('%d of %d PGs moved, %d upmaps' % (
        len(moved), len(after), plan['balance']['upmaps_after']))


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick='tentacle')
def test_a_balance_is_aborted(guard: Guard) -> None:
    cluster = guard.cluster
    guard.option('max_pgs_in_flight', '2')
    order(guard, 'balance', max_movement='100%')
    guard.wait_moving()
    guard.do('abort')
    guard.wait_phase('ABORTED', timeout=60)
    cluster.wait_clean(20)
    assert guard.get('held')['held'] == []
    sets = acting_sets(cluster)
    cluster.mgr_fail()
    guard.wait_ready()
    wait_reported(guard)
    assert acting_sets(cluster) == sets
    order(guard, 'balance', max_movement='100%')
    guard.wait_phase('DONE', timeout=180)
    cluster.wait_clean(20)
    for pool in pools(cluster):
        assert max(distances(acting_sets(cluster), pool, cluster.osds())) <= 1
    assert not guard.tracebacks()


def set_upmaps_to(cluster: Cluster, osd: int, count: int) -> None:
    """Others give the OSD so many more PGs."""
    hosts = cluster.osd_hosts()
    commands: List[Dict[str, Any]] = []
    for pgid, osds in sorted(acting_sets(cluster).items()):
        if hosts[osd] not in {hosts[other] for other in osds} and len(commands) < count:
            commands.append({'prefix': 'osd pg-upmap-items', 'pgid': pgid, 'id': [osds[-1], osd]})
    assert len(commands) == count
    cluster.order(commands)
    cluster.wait_clean(60)


def balance_from_now_on(guard: Guard) -> None:
    """By perfguard; the balancer has not balanced beforehand."""
    guard.cluster.mgr('balancer off')
    guard.option('target', 'balanced')
    guard.cluster.wait_clean(60)


def assert_balanced(cluster: Cluster, before: Sets, after: Sets) -> None:
    """Each OSD has its share of each pool, and hardly more has moved than had to."""
    for pool, name in pools(cluster).items():
        shards, least = moved_shards(before, after, pool, cluster.osds(), name == ERASURE)
        print('pool %s: %d shards moved, %d at least' % (name, shards, least))
        assert shards <= 1.05 * least
        assert max(distances(after, pool, cluster.osds())) < 1


def acting_sets(cluster: Cluster) -> Sets:
    """Of the two pools: Ceph's own may be empty, and such PGs go where they like."""
    ids = pools(cluster)
    return {pg['pgid']: pg['acting'] for pg in cluster.pgs()
            if int(pg['pgid'].split('.')[0]) in ids}


def all_sets(cluster: Cluster) -> Sets:
    """Also of the pool of the mgr."""
    return {pg['pgid']: pg['acting'] for pg in cluster.pgs()}


def pools(cluster: Cluster) -> Dict[int, str]:
    """Pool id -> name."""
    return {pool['pool']: pool['pool_name'] for pool in cluster.osd_dump()['pools']
            if pool['pool_name'] in (REPLICATED, ERASURE)}


def counts(sets: Sets, pool: int) -> 'Counter[int]':
    return Counter(osd for pgid, osds in sets.items() if pgid.startswith('%d.' % pool)
                   for osd in osds)


def distances(sets: Sets, pool: int, osds: List[int]) -> List[float]:
    """Of each OSD from its ideal; all OSDs here weigh the same, hosts have two each."""
    found = counts(sets, pool)
    ideal = sum(found.values()) / len(osds)
    return [abs(found[osd] - ideal) for osd in osds]


def moved_shards(before: Sets, after: Sets, pool: int, osds: List[int],
                 by_position: bool) -> Tuple[int, int]:
    """Shards that changed their OSD, and how many any balanced end state needs."""
    moved = 0
    for pgid, here in before.items():
        if pgid.startswith('%d.' % pool):
            there = after[pgid]
            moved += (sum(a != b for a, b in zip(here, there)) if by_position
                      else len(set(there) - set(here)))
    found = counts(before, pool)
    ideal = sum(found.values()) / len(osds)
    given = sum(max(0, found[osd] - math.ceil(ideal)) for osd in osds)
    taken = sum(max(0, math.floor(ideal) - found[osd]) for osd in osds)
    return moved, max(given, taken)


def changed_entries(cluster: Cluster, since: int) -> Set[str]:
    """PGs whose upmap changed after an epoch; none of them may have changed twice."""
    changes: 'Counter[str]' = Counter()
    last = entries(cluster, since)
    for epoch in range(since + 1, cluster.epoch() + 1):
        now = entries(cluster, epoch)
        changes.update(pgid for pgid in {*last, *now} if last.get(pgid) != now.get(pgid))
        last = now
    assert set(changes.values()) <= {1}, changes.most_common(5)
    return set(changes)


def entries(cluster: Cluster, epoch: int) -> Dict[str, str]:
    dump = cluster.mon('osd dump', epoch=epoch)
    found = {row['pgid']: str(row['mappings']) for row in dump['pg_upmap_items']}
    found.update({row['pgid']: str(row['osds']) for row in dump['pg_upmap']})
    return found


def assert_nothing_for_the_balancer(cluster: Cluster, deviation: int = 1) -> None:
    cluster.mon('config set', who='mgr', name='mgr/balancer/upmap_max_deviation',
                value=str(deviation))
    cluster.mgr('balancer off')
    retval, _, error = cluster.mgr('balancer mode', mode='upmap')
    assert retval == 0, error

    time.sleep(2)  # until the option has reached the balancer
    reply = cluster.mgr('balancer optimize', plan='more')
    assert 'Unable to find further optimization' in reply[2], (
        reply, cluster.mgr('balancer show', plan='more'))
