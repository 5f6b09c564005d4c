# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pools get CRUSH rules under which their data cannot stay where it is: it moves first."""
import base64
import errno
import re
from collections import Counter
from dataclasses import replace
from operator import itemgetter
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import pytest

from qa.cluster import Cluster
from qa.lib.clusters import ClusterFactory
from qa.lib.guard import FAST_CONF, USUAL_CONF, Guard
from qa.lib.joins import order, refused, refused_after_a_change_of_crush, wait_reported
from qa.tests.test_join import crush_text, crush_tool

pytestmark = pytest.mark.releases('pacific', 'reef', 'tentacle', quick='pacific')
nightly = pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())

Json = Dict[str, Any]
#: PGs that may move at a time, of 16 or 32 in a pool.
IN_FLIGHT = 4
OPTIONS = {'max_pgs_in_flight': str(IN_FLIGHT), 'target': 'crush'}


@pytest.fixture(scope='module')
def guard(release: str, cluster_factory: ClusterFactory) -> Iterator[Guard]:
    """12 OSDs, each on its host, in 6 racks: an hdd and an ssd in each rack."""
    # FAST_CONF overrides the interval in which the mons gather a CRUSH map and its pins.
    cluster = cluster_factory(release, osds=12, hosts=12, racks=6, conf=USUAL_CONF)
    for osds in osds_by_rack(cluster).values():
        for osd, kind in zip(sorted(osds), ('hdd', 'ssd')):
            cluster.mon('osd crush rm-device-class', ids=['osd.%d' % osd])
            cluster.mon('osd crush set-device-class', ids=['osd.%d' % osd], **{'class': kind})
    for kind in ('hdd', 'ssd'):
        cluster.mon('osd crush rule create-replicated', name=kind, root='default', type='host',
                    **{'class': kind})
        make_rule(cluster, 'ec-' + kind, 4, 2, 'host', 'crush-device-class=' + kind)
    cluster.mon('osd crush rule create-replicated', name='racks', root='default', type='rack')
    make_rule(cluster, 'ec-racks', 4, 2, 'rack')
    cluster.pool_create('rep', 32, size=3)
    cluster.pool_create('flat', 32, size=3)
    cluster.pool_create('wide', 16, erasure=(4, 2))
    for pool in ('rep', 'flat', 'wide'):
        cluster.fill(pool, 300, 4096)
    cluster.wait_clean(60)
    yield Guard(cluster, OPTIONS)


def make_rule(cluster: Cluster, rule: str, k: int, m: int, domain: str, *more: str) -> None:
    cluster.mon('osd erasure-code-profile set', name=rule, profile=[
        'k=%d' % k, 'm=%d' % m, 'crush-failure-domain=' + domain, *more])
    cluster.mon('osd crush rule create-erasure', name=rule, profile=rule)


def osds_by_rack(cluster: Cluster) -> Dict[str, List[int]]:
    racks = [node['name'] for node in cluster.mon('osd tree')['nodes'] if node['type'] == 'rack']
    return {rack: list(cluster.mon('osd ls-tree', name=rack)) for rack in racks}


def rule_of(dump: Json, pool: str) -> int:
    return next(int(row['crush_rule']) for row in dump['pools'] if row['pool_name'] == pool)


def number_of(cluster: Cluster, pool: str) -> int:
    return next(int(row['pool']) for row in cluster.osd_dump()['pools']
                if row['pool_name'] == pool)


def acting(cluster: Cluster, pool: Optional[str] = None) -> List[List[int]]:
    """Of the PGs of a pool; None: of all."""
    prefix = '' if pool is None else '%d.' % number_of(cluster, pool)
    return [pg['acting'] for pg in sorted(cluster.pgs(), key=itemgetter('pgid'))
            if pg['pgid'].startswith(prefix)]


def remapped_by_epoch(cluster: Cluster, pool: str, first: int) -> List[Tuple[int, Set[str]]]:
    """The rule of the pool, and its remapped PGs, in each epoch since then."""
    prefix = '%d.' % number_of(cluster, pool)
    dumps = (cluster.mon('osd dump', epoch=epoch)
             for epoch in range(first, cluster.epoch() + 1))
    return [(rule_of(dump, pool), {row['pgid'] for row in dump['pg_temp']
                                   if row['pgid'].startswith(prefix)}) for dump in dumps]


def moved_before_the_switch(cluster: Cluster, pool: str, first: int) -> int:
    """Most PGs that were remapped at a time before the pool got its present rule.

    None is remapped, so no object is misplaced, in the epoch of the switch or later."""
    epochs = remapped_by_epoch(cluster, pool, first)
    rule = epochs[-1][0]
    assert {pgid for found, pgids in epochs if found == rule for pgid in pgids} == set()
    most = max(len(pgids) for found, pgids in epochs if found != rule)
    assert 0 < most <= IN_FLIGHT
    return most


def change(guard: Guard, pool: str, rule: str, via: bool) -> Json:
    """Order the change, and wait for its end: PGs move a few at a time, and then it is made."""
    cluster = guard.cluster
    wait_reported(guard)
    first, before = cluster.epoch(), guard.foreign()
    preview = order(guard, 'preview', change='rule', what=[pool, rule])
    assert preview['rule']['moves_first'] and bool(preview['rule']['via']) == via, preview
    answer = order(guard, 'rule', pool=pool, rule=rule)
    assert answer['pgs'] == preview['pgs'] > 0, answer
    done = guard.wait_phase('DONE', timeout=300)
    cluster.wait_clean(60)
    most = moved_before_the_switch(cluster, pool, first)
    print('%s: %s to %s: %d PGs moved, at most %d at a time (limit %d), none remapped after the '
          'switch, %d upmaps left' % (cluster.release.name, pool, rule, done['released'], most,
                                      IN_FLIGHT, len(guard.upmaps())))
    assert guard.upmaps() == {}
    assert replace(guard.foreign(), pools=before.pools) == before
    assert done['released'] >= answer['pgs'] and not done['pinned']
    return answer


@pytest.mark.parametrize('pool, rule', [pytest.param('rep', 'racks', marks=nightly),
                                        ('wide', 'ec-racks')])
def test_failure_domain(guard: Guard, pool: str, rule: str) -> None:
    change(guard, pool, rule, via=False)
    rack_of = racks_of_osds(guard.cluster)
    for osds in acting(guard.cluster, pool):
        assert len({rack_of[osd] for osd in osds}) == len(osds), osds
    assert not guard.tracebacks()


@pytest.mark.parametrize('pool, first, rule', [
    ('flat', 'hdd', 'ssd'), pytest.param('wide', 'ec-hdd', 'ec-ssd', marks=nightly)])
def test_device_class(guard: Guard, pool: str, first: str, rule: str) -> None:
    change(guard, pool, first, via=False)
    change(guard, pool, rule, via=True)
    retval, _, error = guard.ask('rule', pool=pool, rule=rule)
    assert retval == -errno.EALREADY, error
    assert not guard.tracebacks()


@pytest.fixture
def planned(guard: Guard) -> Iterator[str]:
    """A pool that no other test has changed."""
    cluster, pool = guard.cluster, 'planned'
    cluster.pool_create(pool, 32, size=3)
    cluster.fill(pool, 300, 4096)
    cluster.wait_clean(60)
    try:
        yield pool
    finally:
        cluster.mon('osd pool delete', pool=pool, pool2=pool, yes_i_really_really_mean_it=True)


@pytest.mark.releases('pacific', quick=())
def test_a_plan_of_another_rule_is_carried_out(guard: Guard, planned: str) -> None:
    cluster = guard.cluster
    wait_reported(guard)
    found = rule_of(cluster.osd_dump(), planned)
    what = {'plan': 'racks', 'change': 'rule', 'what': [planned, 'racks']}
    refused_after_a_change_of_crush(guard, **what)
    saved = order(guard, 'plan save', **what)
    assert saved['preview']['rule']['to'] == 'racks' and saved['preview']['pgs'] > 0
    assert rule_of(cluster.osd_dump(), planned) == found
    first = cluster.epoch()
    answer = order(guard, 'plan approve', plan='racks', token=saved['token'])
    assert guard.wait_phase('DONE', timeout=300)['id'] == answer['campaign']
    cluster.wait_clean(60)
    moved_before_the_switch(cluster, planned, first)
    assert rule_of(cluster.osd_dump(), planned) != found and guard.upmaps() == {}
    assert guard.get('plan ls')['plans'] == [] and not guard.tracebacks()


@pytest.fixture
def two_roots(release: str, make_cluster: ClusterFactory) -> Guard:
    """12 hosts with an OSD each: those of the pools below "default", and six below "other"."""
    cluster = make_cluster(release, osds=12, hosts=12, conf=FAST_CONF)
    cluster.mon('osd crush add-bucket', name='other', type='root')
    for host in sorted(set(cluster.osd_hosts().values()))[6:]:
        cluster.mon('osd crush move', name=host, args=['root=other'])
    cluster.mon('osd crush rule create-replicated', name='other', root='other', type='host')
    make_rule(cluster, 'ec-other', 4, 2, 'host', 'crush-root=other')
    cluster.pool_create('rep', 32, size=3)
    cluster.pool_create('wide', 32, erasure=(4, 2))
    for pool in ('rep', 'wide'):
        cluster.fill(pool, 300, 4096)
    cluster.wait_clean(60)
    return Guard(cluster, OPTIONS)


def buckets(cluster: Cluster) -> Dict[str, Any]:
    return {bucket['name']: [(item['id'], item['weight']) for item in bucket['items']]
            for bucket in cluster.mon('osd crush dump')['buckets']}


@nightly
def test_another_root(two_roots: Guard) -> None:
    """The commands of the manual create the intermediate rules, and remove them again."""
    guard, cluster = two_roots, two_roots.cluster
    found, there = buckets(cluster), set(cluster.mon('osd ls-tree', name='other'))
    wait_reported(guard)
    refused(guard, 'rule', 'osd crush link', pool='rep', rule='other')
    for root in ('default', 'other'):
        cluster.mon('osd crush link', name=root, args=['root=both'])
    cluster.mon('osd crush rule create-replicated', name='both', root='both', type='host')
    make_rule(cluster, 'ec-both', 4, 2, 'host', 'crush-root=both')
    for pool, rule in (('rep', 'other'), ('wide', 'ec-other')):
        change(guard, pool, rule, via=True)
    for rule in ('both', 'ec-both'):
        cluster.mon('osd crush rule rm', name=rule)
    for root in ('default', 'other'):
        cluster.mon('osd crush unlink', name=root, ancestor='both')
    cluster.mon('osd crush rm', name='both')
    cluster.wait_clean(60)
    for pool in ('rep', 'wide'):
        assert {osd for osds in acting(cluster, pool) for osd in osds} == there
    assert buckets(cluster) == found and not guard.tracebacks()


def moved(before: Sequence[List[int]], after: Sequence[List[int]]) -> int:
    """Shards; the order of replicas, of which PGs have three here, does not matter."""
    return sum(len(set(new) - set(old)) if len(new) == 3 else
               sum(a != b for a, b in zip(old, new)) for old, new in zip(before, after))


@pytest.fixture
def least(guard: Guard) -> Iterator[str]:
    """A pool for target=balanced, and its CRUSH rule."""
    cluster = guard.cluster
    # Tentacle removes a rule with its last pool.
    make_rule(cluster, 'ec-racks', 4, 2, 'rack')
    cluster.pool_create('least', 32, erasure=(4, 2))
    cluster.fill('least', 300, 4096)
    cluster.wait_clean(60)
    guard.configure({'target': 'balanced'})
    try:
        yield cluster.mon('osd pool get', pool='least', var='crush_rule')['crush_rule']
    finally:
        guard.configure({'target': 'crush'})
        cluster.mon('osd pool delete', pool='least', pool2='least',
                    yes_i_really_really_mean_it=True)
        # A map concerns the other pools as well.
        guard.remove_upmaps()
        cluster.wait_clean(60)


def test_fewer_upmaps_cost_movement(guard: Guard, least: str) -> None:
    cluster = guard.cluster
    before, first = acting(cluster, 'least'), cluster.epoch()
    free = order(guard, 'preview', change='rule', what=['least', 'ec-racks'])['rule']['least_moves']
    most = free['upmaps'] // 2
    wait_reported(guard)
    shown = order(guard, 'rule', pool='least', rule='ec-racks', upmaps_max=most)[
        'rule']['least_moves']
    guard.wait_phase('DONE', timeout=300)
    cluster.wait_clean(60)
    shards = moved(before, acting(cluster, 'least'))
    print('%s: %d upmaps instead of %d, %d shards moved instead of %d (by CRUSH alone %d)' % (
        cluster.release.name, len(guard.upmaps()), free['upmaps'], shards,
        free['shards_required'] + free['shards_extra'], shown['shards_by_crush']))
    assert len(guard.upmaps()) == shown['upmaps'] <= most
    assert shards == shown['shards_required'] + shown['shards_extra']
    moved_before_the_switch(cluster, 'least', first)
    assert not guard.tracebacks()


def test_only_what_a_map_does_not_allow_to_stay_moves(guard: Guard, least: str) -> None:
    """Another failure domain in the rule itself, then two hosts that change their racks."""
    cluster, text = guard.cluster, crush_text(guard.cluster)
    set_map(guard, with_racks(text, least), per_rack=1)
    first, second, *_ = re.findall(r'rack \S+ \{.*?item (\S+) ', text, re.DOTALL)
    set_map(guard, swapped(crush_text(cluster), first, second), per_rack=1)
    set_map(guard, text, at_most=None)


def text_of_rule(text: str, name: str) -> str:
    rule = re.search(r'rule %s \{.*?\}' % re.escape(name), text, re.DOTALL)
    assert rule is not None
    return rule[0]


def with_racks(text: str, name: str) -> str:
    """The map with another failure domain in a rule."""
    rule = text_of_rule(text, name)
    return text.replace(rule, rule.replace('type host', 'type rack'))


GROUPS = 'step choose indep 3 type rack\n\tstep chooseleaf indep 2 type host'


@pytest.fixture
def groups(guard: Guard, least: str) -> Iterator[str]:
    """A rule that chooses two hosts in each of three racks."""
    cluster, name = guard.cluster, 'groups'
    text = crush_text(cluster)
    rule = text_of_rule(text, least).replace('rule ' + least, 'rule ' + name)
    rule = re.sub(r'id \d+', 'id 77', re.sub(r'step choose.*', GROUPS, rule))
    (cluster.directory / 'text').write_text('%s\n%s\n' % (text, rule))
    crush_tool(cluster, '-c', 'text', '-o', 'crush')
    cluster.ceph('osd', 'setcrushmap', '-i', str(cluster.directory / 'crush'))
    wait_reported(guard)
    try:
        yield name
    finally:
        cluster.mon('osd pool set', pool='least', var='crush_rule', val=least)
        cluster.mon('osd crush rule rm', name=name)


def check_that_the_former_rule_moves_nothing(guard: Guard, least: str) -> None:
    cluster = guard.cluster
    there = acting(cluster, 'least')
    wait_reported(guard)
    order(guard, 'rule', pool='least', rule=least)
    guard.wait_phase('DONE', timeout=300)
    cluster.wait_clean(60)
    assert acting(cluster, 'least') == there
    assert not guard.tracebacks()


def test_only_what_groups_do_not_allow_to_stay_moves(guard: Guard, least: str,
                                                     groups: str) -> None:
    cluster = guard.cluster
    before, first = acting(cluster, 'least'), cluster.epoch()
    shown = order(guard, 'rule', pool='least', rule=groups)['rule']['least_moves']
    guard.wait_phase('DONE', timeout=300)
    cluster.wait_clean(60)
    there = acting(cluster, 'least')
    print('%s: %d of %d shards moved to groups (required %d, by CRUSH alone %d), %d upmaps' % (
        cluster.release.name, moved(before, there), 6 * len(before), shown['shards_required'],
        shown['shards_by_crush'], len(guard.upmaps())))
    assert fewest(cluster, there, 2) == 0
    required = fewest(cluster, before, 2)
    assert 0 < required <= moved(before, there) == shown['shards_required'] + shown[
        'shards_extra'] <= 1.1 * required < shown['shards_by_crush']
    assert len(guard.upmaps()) == shown['upmaps']
    moved_before_the_switch(cluster, 'least', first)
    check_that_the_former_rule_moves_nothing(guard, least)


def test_only_what_groups_in_a_map_do_not_allow_to_stay_moves(guard: Guard, least: str) -> None:
    """The rule itself gets groups, then two hosts change their racks."""
    cluster, text = guard.cluster, crush_text(guard.cluster)
    rule = text_of_rule(text, least)
    set_map(guard, text.replace(rule, re.sub(r'step choose.*', GROUPS, rule)), per_rack=2)
    first, second, *_ = re.findall(r'rack \S+ \{.*?item (\S+) ', text, re.DOTALL)
    # No set that both maps allow has two shards in a rack that gets another host: they leave these
    # racks first, and others come for the balance.
    set_map(guard, swapped(crush_text(cluster), first, second), per_rack=2, at_most=None)
    set_map(guard, text, at_most=None)


def fewest(cluster: Cluster, sets: Sequence[List[int]], per_rack: int) -> int:
    """Shards that must move, of PGs with six, for each rack to have so many of a PG or none; 0:
    all may stay."""
    if not per_rack:
        return 0
    rack_of = racks_of_osds(cluster)
    counts = (Counter(rack_of[osd] for osd in osds).values() for osds in sets)
    return sum(6 - sum(sorted(min(count, per_rack) for count in by_rack)[-6 // per_rack:])
               for by_rack in counts)


def test_fewer_upmaps_under_a_map_cost_movement(guard: Guard, least: str) -> None:
    cluster, text = guard.cluster, crush_text(guard.cluster)
    before, given = acting(cluster, 'least'), with_racks(text, least)
    free = order(guard, 'preview', change='crushmap', given=given)['crushmap']['least_moves']
    most = free['upmaps'] // 2
    wait_reported(guard)
    shown = order(guard, 'crushmap', given=given, upmaps_max=most)['crushmap']['least_moves']
    guard.wait_phase('DONE', timeout=300)
    cluster.wait_clean(60)
    shards = moved(before, acting(cluster, 'least'))
    print('%s: %d upmaps under another map instead of %d, %d shards moved instead of %d '
          '(by CRUSH alone %d)' % (
              cluster.release.name, len(guard.upmaps()), free['upmaps'], shards,
              free['shards_required'] + free['shards_extra'], shown['shards_by_crush']))
    assert fewest(cluster, acting(cluster, 'least'), 1) == 0
    assert len(guard.upmaps()) == shown['upmaps'] <= most
    assert shards == shown['shards_required'] + shown['shards_extra']
    set_map(guard, text, at_most=None)


def swapped(text: str, first: str, second: str) -> str:
    return re.sub(r'(item )(%s|%s)( )' % (first, second), lambda item: '%s%s%s' % (
        item[1], second if item[2] == first else first, item[3]), text)


def set_map(guard: Guard, text: str, per_rack: int = 0,
            at_most: Optional[float] = 1.1) -> None:
    """`per_rack`: as of fewest, for the pool "least"; `at_most`: how many of its shards may move,
    as a multiple of those that must; None: as many as the preview says."""
    cluster = guard.cluster
    before, first = acting(cluster), cluster.epoch()
    least = acting(cluster, 'least')
    wait_reported(guard)
    answer = order(guard, 'crushmap', given=text)
    guard.wait_phase('DONE', timeout=300)
    cluster.wait_clean(60)
    planned = (answer['crushmap'] or {}).get('least_moves') or {
        'shards_required': 0, 'shards_extra': 0, 'shards_by_crush': answer['shards']}
    there, required = acting(cluster, 'least'), fewest(cluster, least, per_rack)
    shards = moved(before, acting(cluster))
    epochs = [cluster.mon('osd dump', epoch=epoch)
              for epoch in range(first, cluster.epoch() + 1)]
    most = max(len(dump['pg_temp']) for dump in epochs)
    print('%s: %d shards moved (required %d, planned %d), and %d of other pools; by CRUSH alone '
          '%d, at most %d PGs remapped at a time, %d upmaps' % (
              cluster.release.name, moved(least, there), required,
              planned['shards_required'] + planned['shards_extra'],
              shards - moved(least, there), planned['shards_by_crush'], most, len(guard.upmaps())))
    assert required <= moved(least, there)
    assert at_most is None or moved(least, there) <= at_most * required
    assert fewest(cluster, there, per_rack) == 0
    # Earlier tests have left the other pools unbalanced. A shard that moves for the balance may be
    # one that would have to move.
    assert planned['shards_required'] <= shards <= 1.1 * (
        planned['shards_required'] + planned['shards_extra'] + answer['balanced']['shards'])
    assert most <= IN_FLIGHT
    assert not guard.tracebacks()


def racks_of_osds(cluster: Cluster) -> Dict[int, str]:
    return {osd: rack for rack, osds in osds_by_rack(cluster).items() for osd in osds}


def test_only_what_the_rule_does_not_allow_to_stay_moves(guard: Guard, least: str) -> None:
    """From host to rack and back, with target=balanced."""
    cluster = guard.cluster
    before, first = acting(cluster, 'least'), cluster.epoch()
    required = fewest(cluster, before, 1)
    shown = order(guard, 'preview', change='rule', what=['least', 'ec-racks'])[
        'rule']['least_moves']
    assert shown['shards_required'] == required > 0, shown
    wait_reported(guard)
    order(guard, 'rule', pool='least', rule='ec-racks')
    guard.wait_phase('DONE', timeout=300)
    cluster.wait_clean(60)
    there = acting(cluster, 'least')
    print('%s: %d of %d shards moved from host to rack (required %d, by CRUSH alone %d), '
          '%d upmaps' % (cluster.release.name, moved(before, there), 6 * len(before), required,
                         shown['shards_by_crush'], len(guard.upmaps())))
    assert fewest(cluster, there, 1) == 0
    assert required <= moved(before, there) <= 1.1 * required
    assert len(guard.upmaps()) == shown['upmaps']
    moved_before_the_switch(cluster, 'least', first)
    check_that_the_former_rule_moves_nothing(guard, least)


@nightly
def test_a_map_drains_a_host_to_chosen_ones(release: str, make_cluster: ClusterFactory) -> None:
    """They get its weight, and with target=balanced its data moves there directly."""
    cluster = make_cluster(release, osds=8, hosts=8, conf=FAST_CONF)
    cluster.pool_create('rep', 64, size=3)
    cluster.fill('rep', 300, 4096)
    cluster.wait_clean(60)
    guard = Guard(cluster, {**OPTIONS, 'target': 'balanced'})
    wait_reported(guard)
    order(guard, 'balance')
    guard.wait_phase('DONE', timeout=300)
    cluster.wait_clean(60)
    before = acting(cluster, 'rep')
    crush_text(cluster)
    for osd, weight in ((0, '0.0001'), (1, '1.5'), (2, '1.5')):
        given = crush_tool(cluster, '-i', 'crush', '--reweight-item', 'osd.%d' % osd, weight,
                           '-o', 'crush')
    wait_reported(guard)
    order(guard, 'crushmap', given=base64.b64encode(given).decode())
    guard.wait_phase('DONE', timeout=300)
    cluster.wait_clean(60)
    there = acting(cluster, 'rep')
    drained = sum(0 in osds for osds in before)
    arrived = Counter(osd for old, new in zip(before, there) for osd in set(new) - set(old))
    print('%s: %d shards left the drained host; %d moved in all, %d of them to the chosen hosts' % (
        release, drained, sum(arrived.values()), arrived[1] + arrived[2]))
    assert drained > 0 and not any(0 in osds for osds in there)
    assert arrived[1] + arrived[2] >= 0.9 * drained and sum(arrived.values()) <= 1.5 * drained
    assert not guard.tracebacks()
