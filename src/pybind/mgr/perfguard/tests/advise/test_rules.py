# SPDX-License-Identifier: LGPL-2.1-or-later
"""Each rule of the advice has an input that provokes it; a good cluster provokes none."""
import re
import shlex
from dataclasses import replace
from typing import Any, Dict, List, Optional, Tuple

import pytest

from perfguard.advise.drives import without_smart
from perfguard.advise.report import Facts, Measurements, Severity, SlowAlone, UsedCapacity
from perfguard.advise.rules import CODES, RULES, findings
from perfguard.cluster.drive_health import DriveHealth
from perfguard.cluster.inventory import Inventory, OsdFacts, PoolFacts
from perfguard.cluster.types import ConfigEntry

GIB = 1 << 30
FILES = frozenset({'cephfs'})
DEFAULTS = {'ms_async_op_threads': '3', 'osd_mclock_override_recovery_settings': 'false',
            'osd_memory_target': '4294967296',
            'osd_op_queue': 'mclock_scheduler', 'osd_op_queue_cut_off': 'high'}
#: Six hosts with two SSDs each, 256 GiB of memory, 40 % full.
OSDS = tuple(OsdFacts(
    osd, 'h%d' % (osd // 2), 'h%d.example.com' % (osd // 2), 'default', 'ssd',
    'INTEL_SSDSC2KB960G8', False, 'bluestore', 4096, 256 * GIB, 1000 * GIB, 400 * GIB, 120,
    location=(('host', 'h%d' % (osd // 2)), ('rack', 'r%d' % (osd // 4)), ('root', 'default')))
    for osd in range(12))
SSDS, DISKS = frozenset({('default', 'ssd')}), frozenset({('default', 'hdd')})
POOLS = (PoolFacts(1, 'rbd', applications=frozenset({'rbd'}), places=SSDS),
         PoolFacts(2, 'logs', erasure=True, size=6, applications=frozenset({'rgw'})))
GOOD = Facts(Inventory(
    OSDS, POOLS, (ConfigEntry('mgr', '', 'mgr/balancer/upmap_max_deviation', '1'),
                  ConfigEntry('osd', 'host:h1', 'osd_memory_target', '8G'),
                  ConfigEntry('osd', '', 'debug_osd', '1/5')),
    DEFAULTS, {'active': 'true', 'mode': 'upmap', 'upmap_max_deviation': '1'},
    min_compat_client='luminous', require_osd_release='reef'), untrimmed_epochs=520)


def config(name: str, value: str, who: str = 'osd', mask: str = '') -> ConfigEntry:
    return ConfigEntry(who, mask, name, value)


def facts(*entries: ConfigEntry, **inventory: Any) -> Facts:
    """A good cluster, but for what is given."""
    base = GOOD.inventory
    return replace(GOOD, inventory=replace(base, config=(*(base.config or ()), *entries),
                                           **inventory))


def osds(*numbers: int, **change: Any) -> Dict[str, Tuple[OsdFacts, ...]]:
    return {'osds': tuple(replace(osd, **change) if osd.osd in numbers else osd for osd in OSDS)}


def pools(number: int, **change: Any) -> Dict[str, Tuple[PoolFacts, ...]]:
    return {'pools': tuple(replace(pool, **change) if pool.id == number else pool
                           for pool in POOLS)}


def balancer(**change: str) -> Dict[str, Dict[str, str]]:
    return {'balancer': {**GOOD.inventory.balancer, **change}}


def smart(changes: Dict[int, Dict[str, Any]]) -> Facts:
    """With SMART data, in which some drives are conspicuous."""
    named = tuple(replace(osd, devices=('%s:sd%d' % (osd.host, osd.osd),)) for osd in OSDS)
    good = DriveHealth('', 'NEW', False, 10, 0)
    return replace(facts(osds=named), measured=Measurements(drives={osd.devices[0]: replace(
        good, device_id='%s_S%d' % (osd.model, osd.osd), **changes.get(osd.osd, {}))
        for osd in named}))


WPQ = config('osd_op_queue', 'wpq')
SSD = 'osd_mclock_max_capacity_iops_ssd'
SANE = tuple(config(SSD, '20000.0', 'osd.%d' % osd) for osd in range(6))

#: Code, facts, and a part of the command that changes it.
PROVOKED = [
    ('BALANCER_OFF', facts(**balancer(active='false')),
     '; ceph perfguard campaign watch --until DONE; ceph balancer on'),
    ('BALANCER_OFF', facts(**balancer(mode='crush-compat')),
     'ceph balancer off; ceph balancer mode upmap; ceph perfguard balance --dry-run'),
    ('BALANCER_OFF', facts(**balancer(active='false', mode='crush-compat')),
     'ceph balancer off; ceph balancer mode upmap; ceph perfguard balance --dry-run'),
    ('BALANCER_DEVIATION', facts(**balancer(upmap_max_deviation='5')), 'upmap_max_deviation 1'),
    ('CAPACITY_AFTER_HOST_LOSS', facts(**osds(*range(12), used_bytes=750 * GIB)), 'expand'),
    ('CLONES_SHARED', facts(**pools(1, stored_bytes=300 * GIB, shared_bytes=200 * GIB)),
     'rbd snap rm'),
    ('COMPRESSION', facts(**pools(1, compression='aggressive')), 'set rbd compression_mode none'),
    ('CRUSH_LOCATION', replace(facts(**osds(3, hostname='other')), in_force={
        3: {'osd_crush_update_on_start': 'true', 'crush_location': ''}}),
     'config set osd.3 crush_location "root=default host=h1"'),
    ('DEBUG_LEVEL', facts(config('debug_ms', '20/20', 'global')), 'config rm global debug_ms'),
    ('DEBUG_LEVEL', facts(config('debug_bluestore', '10', 'osd', 'host:h1')),
     'config rm osd/host:h1 debug_bluestore'),
    # Another device class moves the data of the OSD at once, unless a campaign is prepared.
    ('DEVICE_CLASS_MIXED', facts(**osds(4, rotational=True)),
     'ceph perfguard probe run latency --osd 4; only if it is as slow as a disk, since RAID '
     'controllers report flash as rotating: '
     'ceph perfguard campaign prepare; ceph perfguard campaign watch --until PREPARED; '
     'ceph osd crush rm-device-class osd.4; ceph osd crush set-device-class hdd osd.4; '
     'ceph perfguard campaign pin; ceph perfguard campaign watch --until PINNED; '
     'ceph perfguard campaign start'),
    ('DRIVE_FIRMWARE_DIFFERS', smart({3: {'firmware': 'OLD'}, 7: {'firmware': 'OLD'}}),
     'ceph device get-health-metrics INTEL_SSDSC2KB960G8_S3; '),
    ('DRIVE_WEAR', smart({5: {'wear_percent': 96}}), 'ceph perfguard replace osd.5'),
    ('DRIVE_WRITE_CACHE', smart({5: {'write_cache': True}}),
     'on host h2: smartctl -s wcache,off /dev/sd5'),
    ('DB_DEVICE_SHARED', facts(**osds(*range(6), devices=('h0:sdz', 'h0:sda'))),
     'osd.0, with its DB'),
    ('DB_SMALL', facts(**osds(4, main_bytes=1000 * GIB, db_bytes=9 * GIB)), 'replace osd.4'),
    ('DRIVE_SHARED', facts(**osds(4, 5, device_class='hdd', rotational=True, devices=('h2:sda',))),
     'ceph perfguard drain osd.5'),
    ('ROCKSDB_BUILD', facts(**osds(4, distro='ubuntu', version='17.2.7')), 'upgrade'),
    ('ROCKSDB_BUILD', facts(**osds(4, distro='debian', version='15.2.17')), 'upgrade'),
    ('DRIVE_SHINGLED', facts(**osds(4, model='WDC_WD40EFAX-68JH4N0')), 'drain osd.4'),
    ('DRIVE_SHINGLED', facts(**osds(4, model='ST8000AS0002-1NA17Z')), 'drain osd.4'),
    ('DRIVE_UNPROTECTED', facts(**osds(5, model='Samsung_SSD_870_EVO_1TB')), '--osd 5'),
    ('DRIVE_UNPROTECTED', facts(**osds(5, model='CT1000MX500SSD1')), '--osd 5'),
    ('EC_OPTIMIZATIONS_OFF', facts(require_osd_release='tentacle', **pools(
        2, applications=frozenset({'cephfs'}))), 'set logs allow_ec_optimizations true'),
    ('EC_SMALL_IO', facts(**pools(2, applications=frozenset({'rbd'}))), 'replicated'),
    ('EC_SINGLE_PARITY', facts(**pools(2, redundancy=1)), 'm=2'),
    ('FRAGMENTATION', replace(GOOD, health={'BLUESTORE_FREE_FRAGMENTATION': '3 OSD(s)'}),
     'drain'),
    ('MCLOCK_CAPACITY', facts(config(SSD, '250000', 'osd.3')), 'probe run --store --osd 3'),
    ('MCLOCK_CAPACITY', facts(*SANE, config(SSD, '300', 'osd.7')), 'osd.7 %s 20000' % SSD),
    ('MCLOCK_CAPACITY', facts(*SANE, config(SSD, '4000', 'osd.7')), 'osd.7 %s 20000' % SSD),
    ('MCLOCK_IGNORES', facts(config('osd_max_backfills', '8')), 'config rm osd osd_max_backfills'),
    ('MCLOCK_IGNORES', facts(config('osd_recovery_sleep_hdd', '0', 'osd.3'), config(
        'osd_mclock_override_recovery_settings', 'true')), 'rm osd.3 osd_recovery_sleep_hdd'),
    ('MCLOCK_IGNORES', facts(config('osd_recovery_sleep_degraded_hdd', '0')),
     'rm osd osd_recovery_sleep_degraded_hdd'),
    ('MEMORY_OVERCOMMITTED', facts(config('osd_memory_target', '120Gi', 'osd', 'host:h2')),
     'config set osd/host:h2 osd_memory_target'),
    ('MEMORY_OVERCOMMITTED', facts(config('osd_memory_target', '250Gi', 'osd.4')),
     'ceph config rm osd.4 osd_memory_target; ceph config set osd/host:h2 osd_memory_target'),
    ('MEMORY_TARGET', facts(config('osd_memory_target', '2147483648', 'osd.3')),
     'ceph config set osd.3 osd_memory_target 4294967296'),
    ('MEMORY_TARGET', facts(config('osd_memory_target', '2G', 'osd', 'rack:r1')),
     'ceph config set osd/rack:r1 osd_memory_target 4294967296'),
    ('MEMORY_TARGET', facts(config('osd_memory_target', '2G', 'osd', 'rack:r1'),
                            config('osd_memory_target', '6G', 'osd', 'root:default'),
                            config('osd_memory_target', '6G', 'osd', 'host:h2')),
     'ceph config set osd/rack:r1 osd_memory_target 4294967296'),
    ('MESSENGER_THREADS', facts(config('ms_async_op_threads', '1', 'global')),
     'config rm global ms_async_op_threads'),
    ('MIN_ALLOC_SIZE', facts(**osds(6, min_alloc_bytes=65536)), 'drain osd.6'),
    ('MIN_COMPAT_CLIENT', facts(min_compat_client='jewel'), 'set-require-min-compat-client'),
    ('NEARLY_FULL', facts(osds=tuple(replace(osd, used_bytes=820 * GIB) for osd in OSDS[:6])),
     'expand'),
    ('NETWORK_PINGS', replace(GOOD, health={'OSD_SLOW_PING_TIME_BACK': 'slow heartbeats'}),
     'dump_osd_network'),
    ('NO_SPARE_DOMAIN', facts(**pools(1, domains=('rack', 3, 3))), 'add a rack'),
    ('OP_QUEUE_CUT_OFF', facts(WPQ, config('osd_op_queue_cut_off', 'low', 'osd', 'class:ssd')),
     'ceph config set osd/class:ssd osd_op_queue_cut_off high'),
    ('PGS_PER_OSD', facts(**osds(*range(12), pgs=20)),
     'ceph perfguard pg_num <pool> <power of two>'),
    ('PGS_PER_OSD', facts(**osds(*range(12), pgs=900)),
     'ceph perfguard pg_num <pool> <power of two>'),
    ('POOL_CAPACITY', replace(GOOD, measured=Measurements(capacities=(
        UsedCapacity('rbd', 0.81, 5.0, 7),))), 'ceph perfguard pools --capacity; add OSDs'),
    ('POWER_SAVING', replace(GOOD, measured=Measurements(slow_alone=SlowAlone(
        7, 0.91, 0.52, 3))), 'cpupower idle-info'),
    ('READ_BALANCE', facts(min_compat_client='reef', **pools(1, read_score=1.8)),
     '--read-pool rbd'),
    ('ROCKSDB_OPTIONS', facts(config('bluestore_rocksdb_options', 'compression=kNoCompression')),
     'config rm osd bluestore_rocksdb_options'),
    ('SCRUBS_BEHIND', replace(GOOD, health={'PG_NOT_DEEP_SCRUBBED': '9 pgs not deep-scrubbed'}),
     'osd_max_scrubs'),
    ('SECURE_MODE', facts(config('ms_cluster_mode', 'secure crc', 'global')),
     'config rm global ms_cluster_mode'),
    ('SHARED_OSDS', facts(pools=(*POOLS, PoolFacts(3, 'fs', applications=FILES,
                                                   places=SSDS | DISKS))), 'rule fs'),
    ('SIGNATURES_OFF', facts(config('cephx_sign_messages', 'false', 'global')),
     'without nocephx_sign_messages first; ceph config rm global cephx_sign_messages'),
    ('SPILLOVER', replace(GOOD, health={'BLUEFS_SPILLOVER': '1 OSD(s) experiencing BlueFS '
                                                            'spillover'}), 'compact'),
    ('TOO_FEW_DOMAINS', facts(**pools(1, domains=('rack', 4, 3))), 'add a rack'),
    ('TOO_FEW_DOMAINS', facts(**pools(1, domains=('host', 3, 0))), 'add a host'),
    ('UNTRIMMED_MAPS', replace(GOOD, untrimmed_epochs=60000), 'dump_stuck'),
    # A pause keeps the PGs in flight unclean, and an aborted campaign cannot be paused.
    ('UNTRIMMED_MAPS', replace(GOOD, untrimmed_epochs=60000, campaign=True), 'dump_stuck'),
    ('UPMAP_PRIMARY', facts(upmap_primaries=('2.1f',), clients={'luminous': 3, 'reef': 9}),
     'rm-pg-upmap-primary 2.1f')]


@pytest.mark.parametrize('code, given, fix', PROVOKED)
def test_a_rule_is_provoked_and_no_other(code: str, given: Facts, fix: str) -> None:
    found, = findings(given)
    assert found.rule.code == code and fix in found.fix
    assert found.text and not found.muted


#: Commands after which data moves at once, each with what has to come before it in an advice.
MOVES_DATA = {r'ceph balancer on': 'ceph perfguard balance',
              r'mgr/balancer/upmap_max_deviation': 'ceph perfguard balance',
              r'(?<!ceph balancer off; )ceph balancer mode': None,
              r'ceph osd crush (?!weight-set)': 'ceph perfguard campaign prepare; ',
              r'ceph osd reweight': 'ceph perfguard campaign prepare; ',
              r'ceph osd out': None,
              r'ceph osd pool set \S+ (pg_num|pgp_num|crush_rule|size)': None}


@pytest.mark.parametrize('fix', sorted({findings(given)[0].fix for _, given, _ in PROVOKED}))
def test_no_advice_moves_data_outside_a_campaign(fix: str) -> None:
    for command, first in MOVES_DATA.items():
        found = re.search(command, fix)
        assert not found or first is not None and first in fix[:found.start()]


@pytest.mark.parametrize('entries, probed, fix', [
    ((), {}, 'ceph perfguard probe run --store --osd 3'),
    ((), {3: (7, 9000.4)}, 'ceph config set osd.3 %s 9000' % SSD),
    # It is the capacity of this OSD.
    (SANE, {3: (7, 9000.4)}, 'ceph config set osd.3 %s 9000' % SSD),
    # Of another OSD, and of a cache.
    (SANE, {4: (7, 9000.4)}, 'ceph config set osd.3 %s 20000' % SSD),
    (SANE, {3: (7, 300000.0)}, 'ceph config set osd.3 %s 20000' % SSD),
    ((), {3: (7, 300000.0)}, 'ceph config rm osd.3 %s' % SSD)])
def test_the_capacity_for_mclock_is_what_a_probe_of_the_store_measured(
        entries: Tuple[ConfigEntry, ...], probed: Dict[int, Tuple[int, float]], fix: str) -> None:
    others = [entry for entry in entries if entry.section != 'osd.3']
    found, = findings(replace(facts(*others, config(SSD, '250000', 'osd.3')),
                              measured=Measurements(store_iops=probed)))
    assert found.fix == fix
    assert ('probe 7 measured' in found.text) == (3 in probed)


@pytest.mark.parametrize('used, seen', [
    (700, []), (840, ['without its largest host, device class ssd below default would be 100 % '
                      'full (nearfull: 85 %)'])])
def test_the_fill_after_the_loss_of_the_largest_host(used: int, seen: List[str]) -> None:
    found = findings(facts(**osds(*range(12), used_bytes=used * GIB)))
    assert [each.text for each in found if each.rule.code == 'CAPACITY_AFTER_HOST_LOSS'] == seen


@pytest.mark.parametrize('limit, other', [(1000, 4000), (80000, 20000)])
def test_capacities_at_the_limits_are_plausible(limit: int, other: int) -> None:
    same = [config(SSD, str(limit), 'osd.%d' % osd) for osd in range(6)]
    assert findings(facts(*same)) == ()
    found, = findings(facts(*same, config(SSD, str(other), 'osd.7')))
    assert found.fix == 'ceph config set osd.7 %s %d' % (SSD, limit)


def test_a_well_configured_cluster_has_no_finding() -> None:
    assert findings(GOOD) == ()


@pytest.mark.parametrize('given', [
    facts(**pools(1, name='a b; x', compression='force')),
    facts(require_osd_release='tentacle', **pools(2, name='a b; x',
                                                  applications=frozenset({'rbd'}))),
    facts(pools=(*POOLS, PoolFacts(3, 'a b; x', applications=FILES, places=SSDS)))])
def test_the_name_of_a_pool_is_one_word_of_the_command(given: Facts) -> None:
    found, = findings(given)
    assert 'a b; x' in shlex.split(found.fix)


def test_every_rule_is_provoked_by_some_input() -> None:
    assert {code for code, _, _ in PROVOKED} == CODES and len(CODES) == len(RULES)
    assert [rule.code for rule in RULES] == sorted(CODES)  # so that a new one has a place


#: What looks like a finding and is none.
HARMLESS = [
    facts(WPQ, config('osd_max_backfills', '3')),
    facts(config('osd_max_backfills', '3'),
          config('osd_mclock_override_recovery_settings', 'true')),
    facts(config('osd_memory_target', '1G'), **osds(*range(12), store='memstore')),
    # The most specific entry wins.
    facts(config('osd_memory_target', '1G'), config('osd_memory_target', '6G', 'osd', 'class:ssd')),
    facts(config('osd_memory_target', '1G', 'osd', 'class:hdd')),
    # A location is more specific than a device class, and a host more than a root.
    facts(config('osd_memory_target', '6G', 'osd', 'host:h2'),
          config('osd_memory_target', '5G', 'osd', 'root:default'),
          config('osd_memory_target', '900M', 'osd', 'class:ssd')),
    facts(config('osd_memory_target', '1G', 'osd', 'host:h2/class:hdd')),
    # A rack is more specific than a root, and less than a host.
    facts(config('osd_memory_target', '6G', 'osd', 'rack:r1'),
          config('osd_memory_target', '900M', 'osd', 'rack:r7'),
          config('osd_memory_target', '5G', 'osd', 'host:h3')),
    # It has an effect on the OSDs that schedule with wpq.
    facts(config('osd_op_queue', 'wpq', 'osd', 'host:h2'), config('osd_recovery_sleep', '0.1')),
    facts(config(SSD, '300', 'osd.7'), WPQ),
    facts(*SANE, config(SSD, '12000', 'osd.7')),
    facts(config('ms_cluster_mode', 'crc secure', 'global')),
    facts(config('ms_async_op_threads', '5', 'global')),
    facts(config('cephx_sign_messages', 'true', 'global')),
    facts(upmap_primaries=('2.1f',), clients={'reef': 9, 'tentacle': 1}),
    facts(clients={'luminous': 3}),
    replace(facts(**balancer(active='false')), campaign=True),
    replace(facts(**osds(3, hostname='other')), in_force={
        3: {'osd_crush_update_on_start': 'false', 'crush_location': ''}}),
    replace(facts(**osds(3, hostname='other')), in_force={
        3: {'osd_crush_update_on_start': 'true', 'crush_location': 'root=default host=h1'}}),
    facts(pools=(*POOLS, PoolFacts(3, 'fs', applications=FILES, places=DISKS), PoolFacts(
        4, 'meta', applications=FILES, places=SSDS, fs_metadata=True))),
    # The OSD has not answered.
    facts(**osds(3, hostname='other')),
    # Nothing to spread yet.
    facts(**osds(*range(12), pgs=3, used_bytes=GIB)),
    # Three hosts cannot rebuild what one of them held.
    facts(osds=tuple(replace(osd, host='h%d' % (osd.osd % 3), hostname='', used_bytes=800 * GIB)
                     for osd in OSDS)),
    facts(require_osd_release='tentacle', **pools(1, flags=frozenset({'ec_optimizations'}))),
    facts(**pools(2, compression='aggressive')),
    facts(**pools(1, domains=('rack', 3, 4), redundancy=1)),
    # Kernel clients may connect.
    facts(**pools(1, read_score=1.8)),
    facts(min_compat_client='reef', **pools(1, read_score=1.2)),
    facts(min_compat_client='reef', **pools(2, read_score=1.8)),
    facts(**pools(1, stored_bytes=300 * GIB, shared_bytes=29 * GIB)),
    facts(**osds(4, rotational=True, device_class='hdd')),
    facts(**osds(4, model='ST4000NM0035', rotational=None)),
    facts(**osds(4, model='Samsung_MZ7LH960HAJR')),
    replace(GOOD, inventory=Inventory(config=None)),
    # Each OSD has its main device, of which two are flash; ten DBs on an NVMe drive.
    facts(**osds(4, 5, devices=('h2:sda', 'h2:sdb'))),
    facts(osds=tuple(replace(osd, devices=('h0:sd%d' % osd.osd, 'h0:nvme0n1')) for osd in OSDS)),
    facts(**osds(4, main_bytes=1000 * GIB, db_bytes=10 * GIB)),
    facts(**osds(4, main_bytes=1000 * GIB)),
    facts(**osds(4, distro='ubuntu', version='17.2.8')),
    facts(**osds(4, distro='ubuntu', version='19.2.0')),
    facts(**osds(4, distro='centos', version='17.2.7')), facts(**osds(4, distro='ubuntu')),
    replace(GOOD, measured=Measurements(capacities=(UsedCapacity('rbd', 0.79, 5.0, 7),))),
    smart({}), smart({3: {'wear_percent': 89, 'write_cache': None}}),
    Facts(Inventory())]


@pytest.mark.parametrize('given', HARMLESS)
def test_what_is_no_finding(given: Facts) -> None:
    assert [found.rule.code for found in findings(given)] == []


def fix_of(code: str, given: Facts) -> str:
    return next(found.fix for found in findings(given) if found.rule.code == code)


def test_no_memory_target_is_raised_beyond_the_memory_of_a_host() -> None:
    """OSDs of a host that runs out of memory are killed."""
    small = facts(config('osd_memory_target', '2G'), **osds(6, 7, memory_bytes=8 * GIB))
    assert fix_of('MEMORY_TARGET', small) == \
        'add memory to host h3.example.com, or move OSDs away from it: 4 GiB for each of its 2 ' \
        'OSDs exceed 90 % of its 8.0 GiB'
    enough = facts(config('osd_memory_target', '2G'), **osds(6, 7, memory_bytes=9 * GIB))
    assert fix_of('MEMORY_TARGET', enough) == 'ceph config set osd osd_memory_target 4294967296'


def test_all_entries_that_precede_a_memory_target_are_removed() -> None:
    """With one that is left the host still has too little memory."""
    entries = [config('osd_memory_target', '60G', 'osd.%d' % osd) for osd in range(6)]
    moved = osds(*range(12), host='h0', hostname='h0')
    fix = fix_of('MEMORY_OVERCOMMITTED', facts(*entries, **moved))
    assert all('config rm osd.%d osd_memory_target' % osd in fix for osd in range(6))


AUTOTUNED = config('osd_memory_target_autotune', 'true')
BY_HAND = config('osd_memory_target_autotune', 'false', 'osd.4')


@pytest.mark.parametrize('code, given, begin', [
    ('MEMORY_TARGET', facts(AUTOTUNED, config('osd_memory_target', '2G', 'osd', 'host:h2')),
     'move other daemons away from host h2.example.com'),
    ('MEMORY_TARGET', facts(AUTOTUNED, BY_HAND, config('osd_memory_target', '2G', 'osd.4')),
     'ceph config set osd.4 osd_memory_target 4294967296'),
    ('MEMORY_TARGET', facts(AUTOTUNED, config('osd_memory_target', '2G'),
                            **osds(*range(12), memory_bytes=8 * GIB)), 'add memory to host h0'),
    ('MEMORY_OVERCOMMITTED', facts(AUTOTUNED, config('osd_memory_target', '120G', 'osd',
                                                     'host:h2')),
     'ceph config set mgr mgr/cephadm/autotune_memory_target_ratio 0.7'),
    ('MEMORY_OVERCOMMITTED', facts(AUTOTUNED, BY_HAND, config('osd_memory_target', '240G',
                                                              'osd.4')),
     'ceph config rm osd.4 osd_memory_target; ceph config set mgr mgr/cephadm/autotune')])
def test_memory_targets_that_cephadm_sets_are_changed_by_its_options(
        code: str, given: Facts, begin: str) -> None:
    """It would soon replace a value that was set by hand."""
    fix = fix_of(code, given)
    assert fix.startswith(begin)
    assert 'cephadm' not in begin or 'config set osd' not in fix


def test_which_part_of_the_osds_a_command_for_masks_addresses() -> None:
    given = facts(config('osd_memory_target', '1G', 'osd', 'host:h2/class:ssd'),
                  config('osd_memory_target', '6G', 'osd', 'class:ssd'))
    assert fix_of('MEMORY_TARGET', given) == \
        'ceph config set osd/host:h2/class:ssd osd_memory_target 4294967296'


def test_scrubs_that_are_held_are_not_limited_to_one() -> None:
    """A campaign that has borrowed the option would find it changed, and leave it so."""
    late = replace(facts(config('osd_max_scrubs', '0')), health={'PG_NOT_SCRUBBED': '9 pgs'})
    fix = fix_of('SCRUBS_BEHIND', late)
    assert 'config set osd osd_max_scrubs' not in fix and fix.startswith('ceph perfguard held')


@pytest.mark.parametrize('given, fix', [
    (facts(defaults={'osd_max_scrubs': '3'}), 'osd_max_scrubs 4;'),
    # The entry of osd.3 precedes that of all OSDs.
    (facts(config('osd_max_scrubs', '5', 'osd.3'), defaults={'osd_max_scrubs': '1'}),
     'config set osd osd_max_scrubs 2;'),
    (facts(defaults={}), 'osd_max_scrubs <one more than now>;')])
def test_the_advice_never_lowers_the_number_of_scrubs(given: Facts, fix: str) -> None:
    late = replace(given, health={'PG_NOT_SCRUBBED': '9 pgs not scrubbed in time'})
    assert fix in next(each.fix for each in findings(late) if each.rule.code == 'SCRUBS_BEHIND')


def test_which_drives_have_another_firmware() -> None:
    found, = findings(smart({3: {'firmware': 'OLD'}, 7: {'firmware': 'OLD'}, 9: {'firmware': 'X'}}))
    assert found.text == ('INTEL_SSDSC2KB960G8 has firmware OLD on osd.3, osd.7 (NEW on 9 others); '
                          'INTEL_SSDSC2KB960G8 has firmware X on osd.9 (NEW on 9 others)')


def test_firmware_is_updated_on_one_drive_first_and_compared() -> None:
    """The slowdown is that of the OSDs which are compared, of each firmware."""
    given = smart({3: {'firmware': 'OLD'}, 7: {'firmware': 'OLD'}})
    slowdowns = {0: 1.0, 1: 1.1, 2: 0.9, 3: 2.2, 7: 1.8}
    found, = findings(replace(given, measured=replace(given.measured, slowdowns=slowdowns)))
    assert found.text == ('INTEL_SSDSC2KB960G8 has firmware OLD on osd.3, osd.7, median slowdown '
                          '2.0 (NEW on 10 others, median slowdown 1.0)')
    first, last = (found.fix.index(text) for text in (
        'ceph perfguard probe run latency --osd 3; update this drive alone', 'one host at a time'))
    assert first < found.fix.index('ceph perfguard probe compare <before> <after>') < last


def test_the_pool_and_the_device_class_that_limit_the_cluster() -> None:
    """Another pool on the same OSDs may be what uses them."""
    given = facts(pools=(*POOLS, PoolFacts(3, 'a b', places=SSDS), PoolFacts(4, 'cold')))
    found, = findings(replace(given, measured=Measurements(capacities=(
        UsedCapacity('logs', 0.31, 50.0, 6), UsedCapacity('rbd', 0.92, 5.0, 7)))))
    assert found.text == (
        'pool rbd used 92 % of the operations that it serves at p99 5 ms, in the busiest hour of '
        'seven days (probe 7); its OSDs have device class ssd and serve a b as well; next is pool '
        'logs, 31 %; not measured: 2 pools')
    assert "ceph perfguard rule 'a b' <rule of other OSDs>" in found.fix


def test_a_worn_drive_of_an_osd_that_is_out_is_no_finding() -> None:
    """It is being replaced, and there would be no OSD to name."""
    worn = smart({5: {'wear_percent': 96}})
    assert [found.rule.code for found in findings(worn)] == ['DRIVE_WEAR']
    remaining = tuple(osd for osd in worn.inventory.osds if osd.osd != 5)
    assert not [found for found in findings(replace(
        worn, inventory=replace(worn.inventory, osds=remaining)))
        if found.rule.code == 'DRIVE_WEAR']


def test_absent_smart_data_is_said_to_be_absent() -> None:
    assert without_smart(GOOD) == () == without_smart(smart({}))
    data = smart({})
    some = dict(list((data.measured.drives or {}).items())[:9])
    remark, = without_smart(replace(data, measured=Measurements(drives=some)))
    assert remark.startswith('no SMART data of the drives of 3 OSDs is stored')


def test_many_osds_are_named_in_one_finding() -> None:
    found, = findings(facts(config('osd_memory_target', '2G')))
    # h1 has an entry of its own.
    assert 'osd.0, osd.1, osd.4, osd.5, osd.6 and 5 more' in found.text


def test_warnings_are_listed_first() -> None:
    found = findings(replace(facts(config('debug_ms', '20', 'osd'), **balancer(
        upmap_max_deviation='5'))), {'DEBUG_LEVEL'})
    assert [(each.rule.severity, each.muted) for each in found] == [
        (Severity.WARNING, True), (Severity.INFO, False)]


@pytest.mark.parametrize('text, value', [
    ('4G', 4 * GIB), ('4Gi', 4 * GIB), ('1.5gib', 1.5 * GIB), ('4096', 4096), ('0', 0),
    ('', None), ('auto', None), ('b', None)])
def test_sizes(text: str, value: Optional[float]) -> None:
    from perfguard.advise.settings import number
    assert number(text) == value
