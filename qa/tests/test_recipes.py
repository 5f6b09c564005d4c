# SPDX-License-Identifier: LGPL-2.1-or-later
"""The recipes of the manual, followed to the letter: the commands are those of the document."""
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Set

import pytest

from qa.cluster import Cluster
from qa.lib.auditor import placement
from qa.lib.guard import Guard
from qa.lib.joins import as_script, crush_weights, order, wait_reported
from qa.lib.recipes import follow, safe_to_disable, stop
from qa.lib.writer import Writer

pytestmark = [pytest.mark.releases('pacific', 'reef', 'tentacle', quick='pacific'),
              pytest.mark.shares('join')]
#: For what other tests of the quick tier do as well, if not to the letter.
nightly = pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())

TIB = 1 << 40
#: A client writes to them while OSDs fail and daemons are restarted.
POOLS = ('rep', 'ec')


@pytest.fixture(autouse=True)
def durable(guard: Guard) -> None:
    """OSDs in memory keep their data when they are stopped."""
    guard.cluster.mon('config set', who='osd', name='osd_fast_shutdown', value='false')
    wait_reported(guard)


def add(guard: Guard, count: int, hosts: Optional[Sequence[str]] = None) -> List[int]:
    """OSDs of CRUSH weight 0 and of 1 TiB each, so that they get the weight of the others."""
    cluster = guard.cluster
    first = max(cluster.osds()) + 1
    with open(cluster.conf_path, 'a') as conf:
        conf.writelines('[osd.%d]\nmemstore_device_bytes = %d\n' % (osd, TIB)
                        for osd in range(first, first + count))
    added = cluster.add_osds(count, hosts, weight=0.0)
    cluster.wait_clean(60)
    wait_reported(guard)
    return added


def begun(guard: Guard) -> List[int]:
    """An expansion that has released some PGs and takes a while; returns its OSDs."""
    added = add(guard, 2)
    expand(guard, added)
    return added


def expand(guard: Guard, added: Sequence[int]) -> None:
    guard.option('max_pgs_in_flight', '2')
    order(guard, 'expand', what=['osd.%d' % osd for osd in added])
    guard.wait_moving()


def fail_and_recover(guard: Guard, osd: int) -> None:
    stop(guard.cluster, osd)
    guard.cluster.mon('osd out', ids=[str(osd)])
    guard.cluster.wait_clean(120)


def create_again(guard: Guard, osd: int) -> None:
    """On an empty drive, with the id of a destroyed OSD."""
    host = guard.cluster.osd_hosts()[osd]
    guard.cluster.remove_osds([osd], destroy=True)
    guard.cluster.add_osds(1, hosts=[host], ids=[osd], in_crush=False)
    wait_reported(guard)


def create_and_wait(guard: Guard, osd: int) -> None:
    """Until perfguard fills the new drive."""
    last = max(row['id'] for row in guard.get('campaign ls')['campaigns'] or [{'id': 0}])
    create_again(guard, osd)
    guard.cluster.wait(lambda: guard.status()['id'] not in (None, last), 60, 'a campaign')


def pool_row(cluster: Cluster, pool: str) -> Dict[str, Any]:
    found: Dict[str, Any] = next(row for row in cluster.osd_dump()['pools']
                                 if row['pool_name'] == pool)
    return found


def device_classes(cluster: Cluster) -> Dict[int, str]:
    return {row['id']: row['device_class'] for row in cluster.mon('osd df')['nodes']}


def classify(cluster: Cluster, classes: Mapping[int, str]) -> None:
    for osd, kind in classes.items():
        cluster.mon('osd crush rm-device-class', ids=['osd.%d' % osd])
        cluster.mon('osd crush set-device-class', ids=['osd.%d' % osd], **{'class': kind})


def holders(cluster: Cluster) -> Set[int]:
    return {osd for pg in cluster.pgs() for osd in (*pg['up'], *pg['acting'])}


def out_osds(cluster: Cluster) -> Set[int]:
    return {row['osd'] for row in cluster.osd_dump()['osds'] if not row['in']}


def assert_over(guard: Guard) -> None:
    guard.cluster.wait_clean(60)
    # "expand --await" gives its option back after the end of its campaign.
    guard.cluster.wait(lambda: guard.get('held')['held'] == [], 20, 'nothing to be borrowed')
    assert not guard.tracebacks()


@contextmanager
def weighing(cluster: Cluster) -> Iterator[None]:
    """New OSDs have the weight of the others, which is not their size: operators say so once."""
    option = {'who': 'osd', 'name': 'osd_crush_initial_weight'}
    cluster.mon('config set', value='1', **option)
    try:
        yield
        # It is given back in a turn after the end of the campaign.
        cluster.wait(lambda: [float(row['value']) for row in cluster.mon('config dump')
                              if row['name'] == option['name']] == [1.0],
                     30, 'the weight as before the expansion')
    finally:
        cluster.mon('config rm', **option)


def test_first_expansion(guard: Guard) -> None:
    added: List[int] = []
    with weighing(guard.cluster):
        follow(guard, 'first expansion', {
            'Create the OSDs': lambda: added.extend(add(guard, 4))})
    assert holders(guard.cluster) >= set(added) and guard.status()['released'] > 0
    assert_over(guard)


@nightly
def test_drain_a_host(guard: Guard) -> None:
    follow(guard, 'drain a host', {'Remove the OSDs': lambda: guard.cluster.remove_osds([3, 7])})
    assert not {3, 7} & holders(guard.cluster)
    assert_over(guard)


def test_replace_a_drive_that_still_works(guard: Guard) -> None:
    follow(guard, 'replace a drive that still works', {
        'Replace the drive': lambda: create_and_wait(guard, 7)})
    assert 7 in holders(guard.cluster) and crush_weights(guard.cluster)[7] == 1.0
    guard.cluster.wait(lambda: guard.get('osds', drained=True)['drains'] == [], 60, 'no drains')
    assert_over(guard)


@nightly
def test_replace_a_drive_that_has_failed(guard: Guard) -> None:
    with Writer(guard.cluster, *POOLS):
        follow(guard, 'replace a drive that has failed', {
            'Let Ceph recover': lambda: fail_and_recover(guard, 7),
            'Replace the drive': lambda: create_and_wait(guard, 7)})
    guard.cluster.wait_clean(120)
    assert 7 in holders(guard.cluster)
    guard.cluster.wait(lambda: guard.get('osds', drained=True)['drains'] == [], 60, 'no drains')
    assert_over(guard)


@nightly
def test_expand_with_osds_that_have_db_devices(guard: Guard) -> None:
    added: List[int] = []
    with weighing(guard.cluster):
        follow(guard, 'expand with OSDs that have DB devices', {
            'Create the OSDs': lambda: added.extend(add(guard, 4))})
    assert holders(guard.cluster) >= set(added) and guard.status()['released'] > 0
    assert_over(guard)


@nightly
def test_a_disk_that_devicehealth_has_marked_out(guard: Guard) -> None:
    """In the middle of a campaign; then it is replaced like one that has failed."""
    cluster = guard.cluster

    def emptied() -> None:
        cluster.wait(lambda: 7 not in holders(cluster), 120, 'no PG on osd.7')

    with Writer(cluster, *POOLS):
        begun(guard)
        # devicehealth gives this command.
        cluster.mon('osd out', ids=['7'])
        follow(guard, 'a disk that devicehealth has marked out', {
            'Wait': emptied,
            'Confirm': lambda: guard.wait_phase('DONE', timeout=300),
            'Replace the drive': lambda: create_and_wait(guard, 7)})
    cluster.wait_clean(120)
    assert 7 in holders(cluster)
    assert_over(guard)


@nightly
def test_a_change_step_by_step(guard: Guard) -> None:
    follow(guard, 'any change, step by step', {})
    assert crush_weights(guard.cluster)[3] == 1.5 and guard.status()['released'] > 0
    assert_over(guard)


@nightly
def test_change_the_crush_map(guard: Guard) -> None:
    path = guard.cluster.directory / 'map.txt'

    def edit() -> None:
        text = path.read_text()
        assert 'item osd.0 weight 1.0' in text
        path.write_text(text.replace('item osd.0 weight 1.0', 'item osd.0 weight 2.0'))

    follow(guard, 'change the CRUSH map', {'Edit': edit})
    assert crush_weights(guard.cluster)[0] == 2.0
    assert_over(guard)


@nightly
def test_move_a_pool_to_another_device_class(guard: Guard) -> None:
    cluster = guard.cluster
    found = device_classes(cluster)
    pool = pool_row(cluster, 'rep')
    former = next(row['rule_name'] for row in cluster.mon('osd crush rule dump')
                  if row['rule_id'] == pool['crush_rule'])
    try:
        classify(cluster, {osd: 'ssd' if osd < 4 else 'hdd' for osd in found})
        wait_reported(guard)
        follow(guard, 'move a pool to another device class', {})
        assert {osd for pg in cluster.pgs() if pg['pgid'].startswith('%d.' % pool['pool'])
                for osd in pg['acting']} == {0, 1, 2, 3}
        assert guard.upmaps() == {}
        assert_over(guard)
    finally:
        cluster.mon('osd pool set', pool='rep', var='crush_rule', val=former)
        cluster.wait_clean(120)
        cluster.mon('osd crush rule rm', name='fast')
        classify(cluster, found)


@nightly
def test_change_the_number_of_pgs(guard: Guard) -> None:
    cluster = guard.cluster
    try:
        follow(guard, 'change the number of PGs', {})
        assert pool_row(cluster, 'rep')['pg_num'] == 128
        assert pool_row(cluster, 'rep')['pg_placement_num'] == 128
        assert_over(guard)
    finally:
        if pool_row(cluster, 'rep')['pg_num'] != 64:
            wait_reported(guard)
            order(guard, 'pg_num', pool='rep', pg_num=64)
            guard.wait_phase('DONE', timeout=600)


@nightly
def test_balance(guard: Guard) -> None:
    """CRUSH has not placed the PGs evenly."""
    follow(guard, 'balance', {})
    assert guard.status()['phase'] == 'DONE' and guard.status()['released'] > 0
    assert_over(guard)


@nightly
def test_expand_an_erasure_coded_pool(guard: Guard) -> None:
    """On as many hosts as a PG has shards."""
    cluster = guard.cluster
    wide = cluster.pool_create('wide', 32, erasure=(3, 1))
    cluster.fill('wide', 500, 4096)
    cluster.wait_clean(60)
    wait_reported(guard)
    added: List[int] = []
    follow(guard, 'first expansion', {
        'Create the OSDs': lambda: added.extend(
            add(guard, 8, ['new%d' % (number // 2) for number in range(8)]))})
    host_of = cluster.osd_hosts()
    rows = [pg['acting'] for pg in cluster.pgs() if pg['pgid'].startswith('%d.' % wide)]
    assert rows and all(len({host_of[osd] for osd in osds}) == 4 for osds in rows)
    assert {osd for osds in rows for osd in osds} & set(added)
    assert guard.status()['released'] > 0 and not guard.status()['unpinnable']
    assert_over(guard)


@nightly
def test_take_over_from_upmap_remapped(guard: Guard) -> None:
    cluster = guard.cluster
    guard.configure({'target': 'balanced', 'max_extra_movement': '10'})
    cluster.mon('config set', who='mgr', name='mgr/balancer/upmap_max_deviation', value='1')

    def expand_and_pin() -> None:
        cluster.add_osds(4)
        guard.wait_remapped()
        assert len(as_script(cluster)) > 20
        cluster.wait_active(60)

    follow(guard, 'take over from upmap-remapped', {'Add the OSDs': expand_and_pin})
    assert guard.status()['phase'] == 'DONE' and guard.status()['released'] > 0
    assert_over(guard)


@nightly
def test_an_osd_fails(guard: Guard) -> None:
    with Writer(guard.cluster, *POOLS):
        begun(guard)
        stop(guard.cluster, 0)
        guard.wait_code('DEGRADED', 'OSD_DOWN', 'PEERING', 'INACTIVE')
        follow(guard, 'an OSD fails in the middle of a campaign', {})
    assert_over(guard)


def restart(guard: Guard, host: str) -> None:
    """With all its OSDs, which are down together for a while."""
    cluster = guard.cluster
    osds = [osd for osd, where in cluster.osd_hosts().items() if where == host]
    for osd in osds:
        stop(cluster, osd)
    cluster.wait(lambda: any('undersized' in pg['state'] for pg in cluster.pgs()), 60,
                 'undersized PGs')
    for osd in osds:
        cluster.start('osd.%d' % osd)
    cluster.wait(lambda: not any('undersized' in pg['state'] or 'degraded' in pg['state']
                                 for pg in cluster.pgs()), 120, 'recovered')


@nightly
def test_reboot_a_host(guard: Guard) -> None:
    with Writer(guard.cluster, *POOLS):
        begun(guard)
        follow(guard, 'reboot a host in the middle of a campaign', {
            'Confirm that its OSDs may stop': lambda: restart(guard, 'host3')})
    assert guard.status()['phase'] == 'DONE' and not out_osds(guard.cluster)
    assert_over(guard)


@nightly
def test_reboot_several_hosts(guard: Guard) -> None:
    def reboot() -> None:
        for host in ('host0', 'host1'):
            restart(guard, host)

    with Writer(guard.cluster, *POOLS):
        begun(guard)
        follow(guard, 'reboot several hosts in the middle of a campaign', {'Reboot': reboot})
    assert guard.status()['phase'] == 'DONE' and not out_osds(guard.cluster)
    assert_over(guard)


@nightly
def test_an_upgrade(guard: Guard) -> None:
    cluster = guard.cluster

    def restart_mgrs() -> None:
        for _ in range(2):
            cluster.restart_mgr()
        guard.wait_ready()

    def restart_osds() -> None:
        for osd in cluster.osds():
            stop(cluster, osd)
            cluster.start('osd.%d' % osd)

    with Writer(cluster, *POOLS):
        begun(guard)
        follow(guard, 'upgrade Ceph in the middle of a campaign', {
            'Upgrade mons and mgrs': restart_mgrs,
            'Upgrade the OSDs': restart_osds})
    assert_over(guard)


@nightly
def test_roll_back_and_leave(guard: Guard) -> None:
    cluster = guard.cluster
    added = add(guard, 2)
    before, upmaps, weights = guard.foreign(), placement(cluster).upmaps, crush_weights(cluster)
    expand(guard, added)
    guard.configure({'latency_factor': '2'})
    follow(guard, 'roll back and remove perfguard', {
        'Give back': lambda: cluster.wait(
            lambda: safe_to_disable(guard), 60, 'a safe shutdown'),
        'Remove the files': cluster.restart_mgr})
    cluster.wait_clean(60)
    assert not holders(cluster) & set(added)
    assert guard.foreign() == before and placement(cluster).upmaps == upmaps
    assert crush_weights(cluster) == weights
    assert not guard.tracebacks()
    assert not [key for key in cluster.mon('config-key ls')
                if 'perfguard' in key and not key.startswith('config-history/')]
    assert not [row for row in cluster.mon('config dump') if 'perfguard' in row['name']]
    assert not [row for row in cluster.mon('auth ls')['auth_dump'] if 'perfguard' in row['entity']]
    if any(row['pool_name'] == '.mgr' for row in cluster.osd_dump()['pools']):
        assert not cluster.run_tool(['rados', '-c', str(cluster.conf_path), '-p', '.mgr', '-N',
                                     'perfguard', 'ls']).strip()
