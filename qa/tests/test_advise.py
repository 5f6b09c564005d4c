# SPDX-License-Identifier: LGPL-2.1-or-later
"""`perfguard advise` on a real cluster: a good one has no finding, and each cause has its own."""
import contextlib
import os
import shutil
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, NamedTuple, Set, Tuple

import pytest
import rados

from perfguard import VERSION
from qa.cluster import Cluster
from qa.lib.clusters import ClusterFactory
from qa.lib.faults import drive_of_model, missing_controllers, throttled_writes
from qa.lib.guard import Guard
from qa.lib.probes import Probes


#: Raised where a standby mgr could not take over.
STANDBY = 'PERFGUARD_STANDBY_MGR'


class Cause(NamedTuple):
    """What provokes a finding, and what takes it back: arguments of the ceph command."""
    code: str
    provoke: Tuple[str, ...]
    undo: Tuple[str, ...]


def option(code: str, who: str, name: str, value: str) -> Cause:
    return Cause(code, ('config set %s %s %s' % (who, name, value),),
                 ('config rm %s %s' % (who, name),))


CAUSES = (
    Cause('BALANCER_OFF', ('balancer off',), ('balancer on',)),
    Cause('BALANCER_DEVIATION', ('config set mgr mgr/balancer/upmap_max_deviation 5',),
          ('config set mgr mgr/balancer/upmap_max_deviation 1',)),
    Cause('CAPACITY_AFTER_HOST_LOSS', ('osd set-nearfull-ratio 0.0000001',),
          ('osd set-nearfull-ratio 0.85',)),
    Cause('COMPRESSION', ('osd pool set rep compression_mode aggressive',),
          ('osd pool set rep compression_mode none',)),
    Cause('CRUSH_LOCATION', ('tell osd.0 config set osd_crush_update_on_start true',),
          ('tell osd.0 config set osd_crush_update_on_start false',)),
    option('DEBUG_LEVEL', 'osd', 'debug_rgw', '20/20'),
    Cause('DEVICE_CLASS_MIXED', ('osd crush rm-device-class osd.7',
                                 'osd crush set-device-class ssd osd.7'),
          ('osd crush rm-device-class osd.7', 'osd crush set-device-class hdd osd.7')),
    # All of its hosts.
    Cause('NO_SPARE_DOMAIN', ('osd pool set rep size 4',), ('osd pool set rep size 3',)),
    option('MESSENGER_THREADS', 'osd', 'ms_async_op_threads', '1'),
    option('ROCKSDB_OPTIONS', 'osd', 'bluestore_rocksdb_options', 'compression=kNoCompression'),
    Cause('SCRUBS_BEHIND', ('osd set nodeep-scrub', 'config set global osd_deep_scrub_interval 1',
                            'config set global mon_warn_pg_not_deep_scrubbed_ratio 0.01'),
          ('config rm global mon_warn_pg_not_deep_scrubbed_ratio',
           'config rm global osd_deep_scrub_interval', 'osd unset nodeep-scrub')),
    option('SECURE_MODE', 'client.nonesuch', 'ms_client_mode', 'secure'),
    Cause('SHARED_OSDS', ('osd pool application enable ec cephfs --yes-i-really-mean-it',),
          ('osd pool application disable ec cephfs --yes-i-really-mean-it',)),
    # One more than there are hosts.
    Cause('TOO_FEW_DOMAINS', ('osd pool create wide 1', 'osd pool set wide size 5'),
          ('osd pool delete wide wide --yes-i-really-really-mean-it',)))

#: Small operations on an erasure-coded pool.
SMALL_IO = {release: (Cause(code, ('osd pool application enable ec rbd --yes-i-really-mean-it',),
                            ('osd pool application disable ec rbd --yes-i-really-mean-it',)),)
            for release, code in (('pacific', 'EC_SMALL_IO'), ('reef', 'EC_SMALL_IO'),
                                  ('tentacle', 'EC_OPTIMIZATIONS_OFF'))}
#: With wpq, Pacific's default scheduler.
WPQ = (option('OP_QUEUE_CUT_OFF', 'osd', 'osd_op_queue_cut_off', 'low'),)
#: With mclock, the default of later releases. Backfill limits have no effect either, but OSDs of
#: Tentacle remove them from the configuration database.
MCLOCK = (
    option('MCLOCK_CAPACITY', 'osd.1', 'osd_mclock_max_capacity_iops_hdd', '9000'),
    option('MCLOCK_IGNORES', 'osd', 'osd_recovery_sleep_hdd', '0.5'))
#: Reads can be balanced since Reef. The primaries of 32 PGs are uneven on 8 OSDs.
READS = (Cause('READ_BALANCE',
               ('osd set-require-min-compat-client reef --yes-i-really-mean-it',),
               ('osd set-require-min-compat-client luminous --yes-i-really-mean-it',)),)
#: For OSDs with bluestore, whose host has less memory than that.
BLUESTORE = (
    option('MEMORY_OVERCOMMITTED', 'osd.0', 'osd_memory_target', '90T'),
    option('MEMORY_TARGET', 'osd', 'osd_memory_target', '3G'),
    Cause('MIN_COMPAT_CLIENT', ('osd set-require-min-compat-client jewel --yes-i-really-mean-it',),
          ('osd set-require-min-compat-client luminous --yes-i-really-mean-it',)),
    option('NETWORK_PINGS', 'global', 'mon_warn_on_slow_ping_time', '0.001'))
#: Not provoked on a real cluster: pg_upmap_primary with kernel clients (Tentacle counts the
#: librados of Pacific as one of Reef), packages with a slow RocksDB, and more than five DBs on a
#: device.

#: OSD -> the model of its drive: shingled, and without capacitors.
MODELS = {0: 'ST8000DM004-2CX188', 1: 'Samsung_SSD_870_EVO_1TB'}

#: The capacity of an OSD with a rotational disk, and the writes per second of a slow one.
CAPACITY, DISK_IOPS = 'osd_mclock_max_capacity_iops_hdd', 200
#: More OSDMap epochs than mons should keep.
EPOCHS = 5200
#: How full all OSDs are, and their usual size.
FILL, MEMSTORE_BYTES = 0.82, 8 << 30

#: Findings on the cluster of `guard`, whose erasure-coded pool has m = 1, and on three hosts.
USUAL, THREE_HOSTS = {'EC_SINGLE_PARITY'}, {'NO_SPARE_DOMAIN'}

pytestmark = pytest.mark.releases('pacific', 'reef', 'tentacle')


@pytest.fixture(scope='module')
def guard(release: str, cluster_factory: ClusterFactory) -> Iterator[Guard]:
    with cluster_factory(release, osds=8, hosts=4, mgrs=2) as cluster:
        cluster.pool_create('rep', 32, size=3)
        cluster.pool_create('ec', 16, erasure=(2, 1))
        cluster.ceph('osd', 'pool', 'application', 'enable', 'rep', 'rbd',
                     '--yes-i-really-mean-it')
        guard = Guard(cluster)
        cluster.ceph('config', 'set', 'mgr', 'mgr/balancer/upmap_max_deviation', '1')
        cluster.ceph('balancer', 'mode', 'upmap')
        cluster.ceph('balancer', 'on')
        yield guard


def run(guard: Guard, commands: Tuple[str, ...], check: bool = True) -> None:
    for command in commands:
        guard.cluster.ceph(*command.split(), check=check)


def codes(guard: Guard) -> Set[str]:
    return {found['code'] for found in guard.get('advise', refresh=True)['findings']}


def wait_codes(guard: Guard, wanted: Set[str], timeout: float = 90) -> None:
    seen: Set[str] = set()

    def there() -> bool:
        seen.clear()
        seen.update(codes(guard))
        return seen == wanted

    try:
        guard.cluster.wait(there, timeout, 'the findings')
    except Exception as error:
        raise AssertionError('missing %s, unexpected %s' % (
            sorted(wanted - seen), sorted(seen - wanted))) from error


def check(guard: Guard, causes: Tuple[Cause, ...], usual: Set[str], timeout: float = 90) -> None:
    """Each cause has its finding; before and after it there are those of a healthy cluster."""
    wait_codes(guard, usual)
    try:
        for cause in causes:
            run(guard, cause.provoke)
        wait_codes(guard, usual | {cause.code for cause in causes}, timeout)
    finally:
        for cause in causes:
            run(guard, cause.undo, check=False)
    wait_codes(guard, usual)
    assert not guard.tracebacks()


def test_each_cause_has_its_finding_and_a_good_cluster_none(guard: Guard, release: str) -> None:
    check(guard, CAUSES + SMALL_IO[release] + (
        WPQ if release == 'pacific' else MCLOCK + READS), USUAL)


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
def test_each_cause_on_bluestore_has_its_finding(
        release: str, make_cluster: ClusterFactory) -> None:
    guard = Guard(make_cluster(release, osds=3, hosts=3, store='bluestore',
                               conf={'osd': {'bluestore_min_alloc_size': '65536'}}))
    guard.cluster.pool_create('rep', 8)
    run(guard, ('config set mgr mgr/balancer/upmap_max_deviation 1',))
    # Their files are on one disk. OSDs report pings of the last minute.
    check(guard, BLUESTORE, THREE_HOSTS | {'MIN_ALLOC_SIZE', 'DRIVE_SHARED'}, 180)


@pytest.mark.skipif('blkio' in missing_controllers(), reason='no cgroup (v1) blkio to write to')
@pytest.mark.releases('reef', 'tentacle', quick=())
def test_the_capacity_that_a_probe_has_measured_is_proposed(
        release: str, make_cluster: ClusterFactory) -> None:
    """Of an OSD with a slow disk."""
    cluster = make_cluster(release, osds=3, hosts=3, store='bluestore')
    guard = Guard(cluster)

    def fix() -> str:
        return ''.join(found['fix'] for found in guard.get('advise', refresh=True)['findings']
                       if found['code'] == 'MCLOCK_CAPACITY')

    run(guard, ('config set osd.1 %s 9000' % CAPACITY,))
    cluster.wait(lambda: fix() == 'ceph perfguard probe run --store --osd 1', 60, 'the finding')
    with throttled_writes(cluster, 1, DISK_IOPS):
        begin = time.monotonic()
        found = Probes(guard).measure(store=True, osd='1')
    print('%s: %.0f s for' % (release, time.monotonic() - begin), [
        (job['jobname'], job['write']['iops']) for job in found['jobs']], flush=True)
    cluster.wait(lambda: 'config set' in fix(), 60, 'a proposal')
    proposal = fix().split()
    assert proposal[:-1] == ['ceph', 'config', 'set', 'osd.1', CAPACITY]
    assert 50 <= int(proposal[-1]) == int(found['jobs'][0]['write']['iops']) <= 500
    run(guard, (' '.join(proposal[1:]),))
    cluster.wait(lambda: not fix(), 60, 'no such finding')
    assert not guard.tracebacks()


def test_osds_that_are_nearly_full_are_found(guard: Guard) -> None:
    cluster, names = guard.cluster, ['obj%d' % number for number in range(400)]

    def resize(osd: int, size: int) -> None:
        cluster.tell('osd.%d' % osd, 'config set', var='memstore_device_bytes', val=[str(size)])

    def used() -> Dict[int, int]:
        return {row['id']: row['kb_used'] for row in cluster.mon('osd df')['nodes']}

    def crowded() -> bool:
        """What an OSD uses varies by a third for a while."""
        for osd, kb in used().items():
            resize(osd, round(kb * 1024 / FILL))
        return codes(guard) == USUAL | {'NEARLY_FULL', 'CAPACITY_AFTER_HOST_LOSS'}

    wait_codes(guard, USUAL)
    cluster.fill('rep', len(names), 65536)
    try:
        cluster.wait(lambda: min(used().values()) > 1000, 60, 'statistics')
        cluster.wait(crowded, 90, 'the findings')
    finally:
        for osd in cluster.osds():
            resize(osd, MEMSTORE_BYTES)
        with cluster.rados().open_ioctx('rep') as ioctx:
            for name in names:
                ioctx.remove_object(name)
    wait_codes(guard, USUAL)
    assert not guard.tracebacks()


@pytest.fixture
def drives(tmp_path: Path) -> Iterator[Dict[int, str]]:
    """OSD -> its device."""
    with contextlib.ExitStack() as stack:
        try:
            yield {osd: stack.enter_context(drive_of_model(
                tmp_path / ('drive%d' % osd), 4 << 30, model)) for osd, model in MODELS.items()}
        except OSError as error:
            pytest.skip('no such drives: %s' % error)


@pytest.mark.releases('pacific', quick=())
def test_drives_that_are_slow_by_design_are_named(
        release: str, drives: Dict[int, str], make_cluster: ClusterFactory) -> None:
    cluster = make_cluster(release, osds=3, hosts=3, store='bluestore', conf={
        'osd.%d' % osd: {'bluestore_block_path': device} for osd, device in drives.items()})
    cluster.pool_create('rep', 8)
    guard = Guard(cluster)
    cluster.wait(lambda: {'DRIVE_SHINGLED', 'DRIVE_UNPROTECTED'} <= codes(guard), 90,
                 'the findings')
    seen = {found['code']: found['seen'] for found in guard.get('advise')['findings']}
    for code, osd in (('DRIVE_SHINGLED', 0), ('DRIVE_UNPROTECTED', 1)):
        assert '%s (1); OSDs: 1, such as osd.%d' % (MODELS[osd], osd) in seen[code]
    assert not guard.tracebacks()


#: Bytes of an object, below osd_max_object_size, and more of these objects than the data from which
#: the number of PGs matters.
LARGE_BYTES, LARGE_OBJECTS = 120 << 20, 96


@pytest.mark.releases('pacific', 'tentacle', quick=())
def test_too_few_and_too_many_pgs_for_the_data_of_an_osd_are_found(
        release: str, make_cluster: ClusterFactory) -> None:
    """memstore with pages stores nothing of an object that is only made longer."""
    cluster = make_cluster(release, osds=3, hosts=3, conf={'osd': {
        'memstore_page_set': 'true', 'memstore_device_bytes': str(64 << 30)}})
    cluster.pool_create('rep', 8)
    guard = Guard(cluster)
    run(guard, ('config set mgr mgr/balancer/upmap_max_deviation 1',
                'osd pool set rep pg_autoscale_mode off'))
    wait_codes(guard, THREE_HOSTS)
    with cluster.rados().open_ioctx('rep') as ioctx:
        for number in range(LARGE_OBJECTS):
            ioctx.write_full('o%d' % number, b'1')
            ioctx.trunc('o%d' % number, LARGE_BYTES)
    wait_codes(guard, THREE_HOSTS | {'PGS_PER_OSD'})
    run(guard, ('osd pool set rep pg_num 64',))
    wait_codes(guard, THREE_HOSTS, 240)
    run(guard, ('osd pool set rep pg_num 512',))
    wait_codes(guard, THREE_HOSTS | {'PGS_PER_OSD'}, 240)
    assert not guard.tracebacks()


CLONED, OBJECTS, OBJECT_BYTES, WRITE_BYTES = 'cloned', 32, 4 << 20, 4096
WRITES, WRITE_EVERY = 20, 200 << 10


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
def test_snapshots_share_what_a_copy_stores_again(
        release: str, make_cluster: ClusterFactory) -> None:
    """The space that the finding foretells is an upper bound of what moving PGs takes."""
    cluster = make_cluster(release, osds=6, hosts=6, store='bluestore')
    cluster.pool_create(CLONED, 16, size=2)
    cluster.wait_clean(60)
    guard = Guard(cluster)
    with cluster.rados().open_ioctx(CLONED) as ioctx:
        for number in range(OBJECTS):
            ioctx.write_full('o%d' % number, os.urandom(OBJECT_BYTES))
        cluster.wait(lambda: pool_space(cluster)['objects'] == OBJECTS, 60, 'statistics')
        assert 'CLONES_SHARED' not in codes(guard)
        for snapshot in range(2):
            ioctx.create_snap('s%d' % snapshot)
            for number in range(OBJECTS):
                for place in range(WRITES):
                    ioctx.write('o%d' % number, os.urandom(WRITE_BYTES), place * WRITE_EVERY)
    cluster.wait(lambda: pool_space(cluster)['objects'] == 3 * OBJECTS, 60, 'statistics')
    cluster.wait(lambda: 'CLONES_SHARED' in codes(guard), 90, 'the finding')
    before = pool_space(cluster)
    preview = guard.get('preview', change='drain', what=['osd.0', 'osd.1'])
    assert 0 < preview['clone_bytes'] < preview['bytes']
    cluster.mon('osd out', ids=['0', '1'])
    cluster.wait(lambda: not {0, 1} & {osd for pg in cluster.pgs() for osd in pg['acting']}, 120,
                 'PGs to leave two OSDs')
    cluster.wait_clean(120)
    # The old copies are deleted after that.
    cluster.wait(lambda: 1.2 * before['bytes_used'] < pool_space(cluster)['bytes_used']
                 <= 1.05 * before['stored_raw'], 120, 'growth within the bound')
    after = pool_space(cluster)
    print('%s: %.0f MiB, %.0f after moving (preview: up to %.0f more), %.0f if nothing were shared'
          % (release, *(number / 2 ** 20 for number in (
              before['bytes_used'], after['bytes_used'], preview['clone_bytes'],
              before['stored_raw']))))
    assert not guard.tracebacks()


def pool_space(cluster: Cluster) -> Dict[str, Any]:
    found: Dict[str, Any] = next(pool['stats'] for pool in cluster.mon('df', detail='detail')[
        'pools'] if pool['name'] == CLONED)
    return found


DB_BYTES, KEYS, VALUE_BYTES = 32 << 20, 256, 4096


@pytest.mark.releases('pacific', 'tentacle', quick=())
def test_what_the_osds_warn_of_is_found(release: str, make_cluster: ClusterFactory) -> None:
    """Metadata on the slow device, and free space in pieces, of which OSDs warn since Tentacle."""
    cluster = make_cluster(release, osds=3, hosts=3, store='bluestore', conf={'osd': {
        'bluestore_block_db_create': 'true', 'bluestore_block_db_size': str(DB_BYTES),
        'bluestore_warn_on_free_fragmentation': '0.000001',
        'bluestore_fragmentation_check_period': '5'}})
    cluster.pool_create('rep', 8)
    cluster.wait_clean(60)
    guard = Guard(cluster)
    run(guard, ('config set mgr mgr/balancer/upmap_max_deviation 1',))
    wanted = {'DB_SMALL', 'SPILLOVER', *({'FRAGMENTATION'} if release == 'tentacle' else ())}
    keys = tuple('key%d' % number for number in range(KEYS))
    with cluster.rados().open_ioctx('rep') as ioctx:
        # On each OSD twice what fits on the fast device.
        for number in range(2 * DB_BYTES // (KEYS * VALUE_BYTES)):
            with rados.WriteOpCtx() as op:
                ioctx.set_omap(op, keys, tuple(os.urandom(VALUE_BYTES) for _ in keys))
                ioctx.operate_write_op(op, 'o%d' % number)
    cluster.wait(lambda: wanted <= codes(guard), 120, 'the findings')
    assert not guard.tracebacks()


@pytest.mark.releases('pacific', quick=())
@pytest.mark.timeout(1500)
def test_thousands_of_osdmaps_are_found(release: str, make_cluster: ClusterFactory) -> None:
    """While a PG is undersized the mons trim no OSDMap."""
    cluster = make_cluster(release, osds=3, hosts=3, conf={
        'osd': {'osd_beacon_report_interval': '10'},
        'mon': {'paxos_propose_interval': '0.01', 'paxos_min_wait': '0.001',
                'mon_osd_down_out_interval': '0'}})
    cluster.pool_create('rep', 8, size=3)
    cluster.wait_clean(60)
    guard = Guard(cluster)
    run(guard, ('config set mgr mgr/balancer/upmap_max_deviation 1',))
    wait_codes(guard, THREE_HOSTS)
    cluster.kill('osd.2')
    cluster.wait(lambda: guard.get('status')['signals']['active_clean_pgs'] == 0, 90,
                 'undersized PGs')
    deadline = time.monotonic() + 900
    while cluster.mon('osd dump')['epoch'] <= EPOCHS:
        assert time.monotonic() < deadline, 'the mons commit too slowly'
        for prefix in ('osd set', 'osd unset') * 50:
            cluster.mon(prefix, key='nodeep-scrub')
    wait_codes(guard, THREE_HOSTS | {'UNTRIMMED_MAPS'})
    cluster.start('osd.2')
    cluster.wait_clean(240)
    cluster.wait(lambda: EPOCHS - 1000 < cluster.kept_epochs()[0], 120, 'the mons to trim')
    # OSDs learn that from the next map, and remove 30 of theirs with each.
    cluster.mon('osd set', key='nodeep-scrub')
    wait_codes(guard, THREE_HOSTS, 120)
    assert cluster.tell('osd.0', 'status')['oldest_map'] < EPOCHS // 2
    assert not guard.tracebacks()


def test_a_muted_code_stays_muted_after_a_failover(guard: Guard) -> None:
    try:
        run(guard, ('balancer off',))
        wait_codes(guard, USUAL | {'BALANCER_OFF'})
        run(guard, ('perfguard advise mute BALANCER_OFF',))
        assert codes(guard) == USUAL
        guard.cluster.mgr_fail()
        guard.wait_ready()
        answer = guard.get('advise', refresh=True)
        assert answer['muted'] == ['BALANCER_OFF']
        # The OSDs are asked first.
        guard.cluster.wait(lambda: guard.get('advise')['time'], 60, 'advice')
        assert {row['code'] for row in guard.get('advise')['findings']} == USUAL
        run(guard, ('perfguard advise unmute BALANCER_OFF',))
        wait_codes(guard, USUAL | {'BALANCER_OFF'})
    finally:
        run(guard, ('balancer on',))


def test_the_plain_text_and_errors(guard: Guard) -> None:
    out = guard.cluster.ceph('perfguard', 'advise').stdout
    assert out.strip() and not out.startswith('{')
    done = guard.cluster.ceph('perfguard', 'advise', 'mute', 'NONESUCH', check=False)
    assert done.returncode == 2 and 'unknown code' in done.stderr


def test_standbys_that_can_take_over_raise_nothing(guard: Guard) -> None:
    guard.cluster.wait(lambda: guard.cluster.mon('mgr dump')['standbys'], 60, 'a standby mgr')
    guard.get('advise', refresh=True)
    assert STANDBY not in guard.get('status')['health']


def without_the_module(cluster: Cluster, modules: Path) -> str:
    """As after an upgrade to an image without it."""
    (modules / 'perfguard').unlink()
    return 'does not have the module'


def of_another_version(cluster: Cluster, modules: Path) -> str:
    """As in the middle of an upgrade of the module."""
    (modules / 'perfguard').unlink()
    copy = shutil.copytree(cluster.directory / 'mgr-modules' / 'perfguard', modules / 'perfguard')
    source = (copy / 'version.py').read_text()
    assert "\nVERSION = '%s'\n" % VERSION in source
    (copy / 'version.py').write_text(source.replace(VERSION, '9.9.9'))
    return 'has version 9.9.9 (active mgr: %s)' % VERSION


@pytest.mark.parametrize('change', [without_the_module, of_another_version])
def test_a_standby_that_cannot_take_over_is_named(
        change: Callable[[Cluster, Path], str], guard: Guard) -> None:
    cluster = guard.cluster
    standby = 'mgr.%s' % ({'x', 'y'} - {cluster.mon('mgr dump')['active_name']}).pop()
    usual = cluster.conf_path.read_text()
    modules = cluster.directory / 'modules-of-the-standby'
    modules.mkdir()
    for entry in (cluster.directory / 'mgr-modules').iterdir():
        (modules / entry.name).symlink_to(entry)
    text = '%s %s' % (standby, change(cluster, modules))

    def restart(conf: str) -> None:
        cluster.kill(standby)
        cluster.conf_path.write_text(conf)
        cluster.start(standby)

    def named() -> bool:
        guard.get('advise', refresh=True)
        check = guard.checks().get(STANDBY)
        return check is not None and check['detail'][0]['message'] == text

    def no_more() -> bool:
        guard.get('advise', refresh=True)
        return STANDBY not in guard.checks()

    try:
        restart(usual + '[%s]\nmgr module path = %s\n' % (standby, modules))
        cluster.wait(named, 60, text)
        assert cluster.mon('mgr dump')['available'] and not guard.tracebacks()
    finally:
        restart(usual)
        shutil.rmtree(modules)
    cluster.wait(no_more, 60, 'the end of ' + STANDBY)
