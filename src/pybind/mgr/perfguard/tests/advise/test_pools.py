# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the rules over pools and OSDs report, at their limits and with all that they name."""
from dataclasses import replace
from typing import Callable, Dict, Optional, Tuple

import pytest

from perfguard.advise import pools as rules
from perfguard.advise.report import Facts, Measurements, Symptom, UsedCapacity
from perfguard.cluster.inventory import OsdFacts, PoolFacts

from .test_rules import DISKS, FILES, GIB, GOOD, OSDS, SSDS, config, facts, osds, pools

Look = Callable[[Facts], Optional[Symptom]]
RBD = frozenset({'rbd'})
#: Size of an OSD.
OSD_BYTES = 1000 * GIB


def erasure(*names: str, **change: object) -> Facts:
    """With erasure-coded pools for images, in tentacle."""
    made = [PoolFacts(number, name, erasure=True, applications=RBD)
            for number, name in enumerate(names)]
    return facts(require_osd_release='tentacle', pools=tuple(
        replace(pool, **change) for pool in made))


def hosts(number: int, **change: object) -> Facts:
    """One OSD on each host."""
    return facts(osds=tuple(OsdFacts(
        osd, 'h%d' % osd, root='default', device_class='hdd', total_bytes=OSD_BYTES, pgs=100)
        for osd in range(number)), **change)


def filled(given: Facts, *used_percent: float) -> Facts:
    inventory = given.inventory
    return replace(given, inventory=replace(inventory, osds=tuple(
        replace(osd, used_bytes=round(percent * OSD_BYTES / 100))
        for osd, percent in zip(inventory.osds, used_percent))))


def capacities(*rows: Tuple[str, float], **change: object) -> Facts:
    given = facts(**change)
    return replace(given, measured=Measurements(capacities=tuple(
        UsedCapacity(pool, busiest, 2.5, 7) for pool, busiest in rows)))


DF = 'add OSDs (ceph perfguard expand) or delete data; ceph osd df tree'


@pytest.mark.parametrize('look, given, seen, fix', [
    (rules.old_compat, facts(min_compat_client='kraken'), 'require_min_compat_client is kraken',
     'ceph osd set-require-min-compat-client luminous'),
    (rules.small_io_on_erasure, facts(pools=(
        PoolFacts(1, 'a', erasure=True, applications=RBD),
        PoolFacts(2, 'b', erasure=True, applications=FILES),
        PoolFacts(3, 'c', applications=FILES))),
     'erasure-coded pools with application rbd or cephfs: a, b',
     'ceph osd pool create <pool> replicated, for data that is written in small pieces'),
    (rules.erasure_reads, erasure('x', 'y'), 'erasure-coded pools without '
     'allow_ec_optimizations: x, y', 'ceph osd pool set x allow_ec_optimizations true'),
    (rules.single_parity, erasure('x', 'y', redundancy=1), 'erasure-coded pools with m = 1: x, y',
     'ceph osd erasure-code-profile set <profile> k=<k> m=2; ceph osd pool create <pool> erasure '
     '<profile>, and move the data'),
    (rules.uneven_reads, facts(min_compat_client='squid', pools=(
        PoolFacts(1, 'a b', read_score=1.84), PoolFacts(2, 'c', read_score=1.3),
        PoolFacts(3, 'd'))),
     'an OSD serves 1.8 times its share of the reads of pool a b',
     "ceph osd getmap -o osdmap; osdmaptool osdmap --read commands --read-pool 'a b'; "
     'sh commands'),
    (rules.compression, facts(pools=(
        PoolFacts(1, 'a', applications=RBD, compression='force'),
        PoolFacts(2, 'b', applications=FILES, compression='aggressive'),
        PoolFacts(3, 'c', applications=RBD, compression='passive'))),
     'compression_mode of pool a is force; compression_mode of pool b is aggressive',
     'ceph osd pool set a compression_mode none'),
    (rules.shared_clones, facts(pools=(
        PoolFacts(1, 'a', stored_bytes=300 * GIB, shared_bytes=200 * GIB),
        PoolFacts(2, 'b', stored_bytes=30 * GIB, shared_bytes=3 * GIB), PoolFacts(3, 'c'))),
     'pool a may take up to 200.0 GiB more, 200 %; pool b may take up to 3.0 GiB more, 11 %',
     'rbd snap ls <image> and rbd snap rm <image>@<snapshot>, for snapshots that are no longer '
     'needed; otherwise leave room before PGs move'),
    (rules.shared_osds, facts(pools=(
        PoolFacts(1, 'a', applications=RBD, places=DISKS),
        PoolFacts(2, 'b', applications=RBD, places=frozenset({('default', '')})),
        PoolFacts(3, 'c d', applications=FILES, places=frozenset({('default', '')})))),
     'pools b (rbd) and c d (cephfs) share the OSDs of device class none below default',
     "ceph perfguard rule 'c d' <rule of other OSDs>"),
    (rules.upmap_primaries, facts(upmap_primaries=('2.1f', '3.4'), clients={
        'luminous': 3, 'jewel': 2, 'reef': 9, 'quincy': 1}),
     'pg_upmap_primary entries: 2; connections of clients older than reef: 2 jewel, 3 luminous, '
     '1 quincy', 'ceph osd rm-pg-upmap-primary 2.1f, and so on for each PG'),
    (rules.untrimmed_maps, replace(GOOD, untrimmed_epochs=5001),
     'the mons keep 5001 OSDMap epochs (a clean cluster: about 500)', 'ceph pg dump_stuck unclean'),
    (rules.nearly_full, filled(hosts(3), 85.0, 90.0, 65.9), 'device class hdd below default is 80 '
     '% full', DF),
    (rules.fill_after_host_loss, filled(hosts(4, nearfull_ratio=0.83), 60.0, 70.0, 70.0, 55.0),
     'without its largest host, device class hdd below default would be 85 % full (nearfull: 83 '
     '%)', DF),
    (rules.shingled, facts(**osds(2, 3, 5, model='ST8000AS0002-1NA17Z')),
     'drives with shingled recording (SMR): ST8000AS0002-1NA17Z (3); OSDs: 3, such as osd.2, '
     'osd.3, osd.5', 'ceph perfguard drain osd.2, and replace the drive'),
    (rules.unprotected, facts(**osds(7, model='CT1000MX500SSD1')),
     'drives without power-loss protection: CT1000MX500SSD1 (1); OSDs: 1, such as osd.7',
     'ceph perfguard probe run latency --osd 7, and replace the drive if its writes are slow'),
    (rules.old_allocation, facts(**osds(6, 9, min_alloc_bytes=65536)),
     'bluestore_min_alloc_size is 64 KiB or more: osd.6, osd.9',
     'ceph perfguard drain osd.6, then create the OSD again'),
    (rules.spillover, replace(GOOD, health={'BLUEFS_SPILLOVER': '1 OSD(s) spill over'}),
     '1 OSD(s) spill over', 'ceph health detail; ceph tell osd.<id> compact'),
    (rules.fragmentation, replace(GOOD, health={'BLUESTORE_FREE_FRAGMENTATION': '3 OSD(s)'}),
     'the free space of BlueStore is fragmented: 3 OSD(s)',
     'ceph health detail; ceph perfguard drain osd.<id>, then create the OSD again'),
    (rules.slow_pings, replace(GOOD, health={
        'OSD_SLOW_PING_TIME_FRONT': 'front', 'OSD_SLOW_PING_TIME_BACK': 'back'}),
     'back; front', 'ceph health detail; ceph tell osd.<id> dump_osd_network'),
    (rules.scrub_behind, replace(facts(defaults={'osd_max_scrubs': '1'}), health={
        'PG_NOT_SCRUBBED': 'late', 'PG_NOT_DEEP_SCRUBBED': 'deep late'}), 'deep late; late',
     'ceph config set osd osd_max_scrubs 2; ceph config set osd osd_scrub_load_threshold 10'),
    (rules.scrub_behind, replace(facts(
        config('osd_max_scrubs', '1', 'osd', 'class:disk'), defaults={'osd_max_scrubs': '3'},
        **osds(4, 5, device_class='disk')), health={'PG_NOT_SCRUBBED': 'late'}), 'late',
     'ceph config set osd/class:disk osd_max_scrubs 2; ceph config set osd '
     'osd_scrub_load_threshold 10'),
    (rules.scrub_behind, replace(facts(
        config('osd_max_scrubs', '0', 'osd.3'), config('osd_max_scrubs', '0', 'osd.5')),
        health={'PG_NOT_SCRUBBED': 'late'}), 'late; osd_max_scrubs is 0 for osd.3',
     'ceph perfguard held, which shows whether a campaign holds scrubs (hold_scrubs); otherwise '
     'ceph config rm osd.3 osd_max_scrubs'),
    (rules.moves_at_restart, replace(facts(**osds(3, 4, hostname='other', root='')), in_force={
        osd: {'osd_crush_update_on_start': 'true'} for osd in (3, 4)}),
     'CRUSH places osd.3, osd.4 under a host other than its own, and osd_crush_update_on_start is '
     'true: osd.3 is under h1 and runs on other',
     'ceph config set osd.3 crush_location "root=default host=h1"')])
def test_the_text_of_a_finding(look: Look, given: Facts, seen: str, fix: str) -> None:
    assert look(given) == Symptom(seen, fix)


def test_the_drives_of_three_models_are_named() -> None:
    """Those of which the most are in use come first."""
    models = {0: 'A', 1: 'B', 2: 'B', 3: 'C', 4: 'C', 5: 'C', 6: 'D', 7: 'D', 8: 'D', 9: 'D'}
    given = facts(osds=tuple(replace(osd, model='DT02ABA' + models[osd.osd])
                             for osd in OSDS if osd.osd in models))
    found = rules.shingled(given)
    assert found is not None and found.text == (
        'drives with shingled recording (SMR): DT02ABAD (4), DT02ABAC (3), DT02ABAB (2); OSDs: '
        '10, such as osd.0, osd.1, osd.2, osd.3, osd.4 and 5 more')


@pytest.mark.parametrize('pgs, average', [
    (50, None), (49, 49), (400, None), (401, 401), (0, 0)])
def test_the_pgs_of_an_osd_at_their_limits(pgs: int, average: Optional[int]) -> None:
    found = rules.pgs_per_osd(facts(**osds(*range(12), pgs=pgs)))
    assert found == (None if average is None else Symptom(
        'OSDs of device class ssd have %d PGs on average (recommended: 100 to 200)' % average,
        'ceph osd pool autoscale-status; ceph perfguard pg_num <pool> <power of two>'))


@pytest.mark.parametrize('used, is_reported', [(10 * GIB, True), (10 * GIB - 1, False)])
def test_pgs_do_not_matter_on_an_empty_cluster(used: int, is_reported: bool) -> None:
    found = rules.pgs_per_osd(facts(**osds(*range(12), pgs=3, used_bytes=used)))
    assert (found is not None) is is_reported


def test_pgs_are_averaged_over_the_osds_of_a_device_class_that_report_them() -> None:
    classes = {0: ('', 20), 1: ('', 30), 2: ('', None), 3: ('ssd', 100), 4: ('ssd', 110)}
    given = facts(osds=tuple(replace(osd, device_class=name, pgs=pgs)
                             for osd in OSDS if osd.osd in classes
                             for name, pgs in [classes[osd.osd]]))
    found = rules.pgs_per_osd(given)
    assert found is not None
    assert found.text == \
        'OSDs of device class none have 25 PGs on average (recommended: 100 to 200)'
    assert rules.pgs_per_osd(facts(**osds(*range(12), pgs=None))) is None


def tight(number: int, lacking: int) -> Facts:
    return facts(pools=tuple(PoolFacts(pool, 'p%d' % pool, domains=(
        'rack' if pool else 'host', 3 + pool, 3 + pool - lacking)) for pool in range(number)))


@pytest.mark.parametrize('number, end', [(5, 'type rack and has 7'), (7, 'has 7, and 2 more')])
def test_five_pools_without_a_spare_failure_domain_are_named(number: int, end: str) -> None:
    found = rules.no_spare_domain(tight(number, 0))
    assert found is not None
    assert found.text.startswith(
        'pool p0 needs 3 failure domains of type host and has 3; '
        'pool p1 needs 4 failure domains of type rack and has 4; ') and found.text.endswith(end)
    assert found.text.count('needs') == 5
    assert found.fix == 'add a host with OSDs (ceph perfguard expand)'


def test_pools_with_too_few_failure_domains_are_named() -> None:
    """Their PGs lack copies already."""
    found = rules.too_few_domains(tight(7, 1))
    assert found is not None
    assert found.text.startswith(
        'pool p0 needs 3 failure domains of type host and has 2; '
        'pool p1 needs 4 failure domains of type rack and has 3; ')
    assert found.text.endswith('and has 6, and 2 more')
    assert found.fix == ('add a host with OSDs (ceph perfguard expand), or let the pool use a rule '
                         'with another failure domain (ceph perfguard rule p0 <rule>)')


@pytest.mark.parametrize('domains, has_no_spare, has_too_few', [
    (('host', 3, 4), False, False), (('host', 3, 3), True, False), (('host', 3, 1), False, True),
    (('host', 3, 0), False, True), (('', 0, 0), False, False), (('host', 1, 1), True, False)])
def test_which_pools_have_no_spare_failure_domain(
        domains: Tuple[str, int, int], has_no_spare: bool, has_too_few: bool) -> None:
    given = facts(**pools(1, domains=domains))
    assert (rules.no_spare_domain(given) is not None) is has_no_spare
    assert (rules.too_few_domains(given) is not None) is has_too_few


def test_the_pool_that_limits_the_cluster_at_its_limit() -> None:
    assert rules.busiest_pool(capacities(('rbd', 0.79999))) is None
    found = rules.busiest_pool(capacities(
        ('rbd', 0.8), ('logs', 0.4), ('old', 0.75), pools=(
            PoolFacts(1, 'rbd', places=frozenset({('default', ''), ('flash', 'nvme')})),
            PoolFacts(2, 'logs', places=DISKS))))
    assert found == Symptom(
        'pool rbd used 80 % of the operations that it serves at p99 2.5 ms, in the busiest hour of '
        'seven days (probe 7); its OSDs have device class none, nvme; next is pool old, 75 %',
        'ceph perfguard pools --capacity; add OSDs of its device class (ceph perfguard expand)')


def test_pools_that_share_the_osds_of_the_busiest_are_named() -> None:
    others = tuple(PoolFacts(number, 'p%d' % number, places=SSDS) for number in range(10, 16))
    found = rules.busiest_pool(capacities(('rbd', 0.9), pools=(
        PoolFacts(1, 'rbd', places=SSDS), PoolFacts(2, 'cold', places=DISKS), *others)))
    assert found == Symptom(
        'pool rbd used 90 % of the operations that it serves at p99 2.5 ms, in the busiest hour of '
        'seven days (probe 7); its OSDs have device class ssd and serve p10, p11, p12, p13, p14 '
        'and 1 more as well; not measured: 7 pools',
        'ceph perfguard pools --capacity; ceph perfguard rule p10 <rule of other OSDs>, or add '
        'OSDs of its device class (ceph perfguard expand)')


def test_a_pool_that_was_deleted_has_no_device_class() -> None:
    found = rules.busiest_pool(capacities(('gone', 0.9), pools=()))
    assert found is not None and found.text.endswith('seven days (probe 7)')


@pytest.mark.parametrize('look, given, is_reported', [
    (rules.old_compat, facts(min_compat_client=''), False),
    (rules.old_compat, facts(min_compat_client='luminous'), False),
    (rules.uneven_reads, facts(min_compat_client='reef', **pools(1, read_score=1.3)), True),
    (rules.uneven_reads, facts(min_compat_client='reef', **pools(1, read_score=1.29)), False),
    (rules.erasure_reads, erasure('x', flags=frozenset({'ec_optimizations'})), False),
    (rules.erasure_reads, erasure('x', applications=frozenset({'rgw'})), False),
    (rules.small_io_on_erasure, erasure('x'), False),
    (rules.shared_clones, facts(**pools(1, stored_bytes=100, shared_bytes=10)), True),
    (rules.shared_clones, facts(**pools(1, stored_bytes=100, shared_bytes=9)), False),
    (rules.untrimmed_maps, replace(GOOD, untrimmed_epochs=5000), False),
    (rules.untrimmed_maps, replace(GOOD, untrimmed_epochs=None), False),
    (rules.nearly_full, filled(hosts(2), 80.0, 80.0), False),
    (rules.nearly_full, filled(hosts(2), 80.0, 80.1), True),
    (rules.fill_after_host_loss, filled(hosts(3), 80.0, 80.0, 80.0), False),
    (rules.fill_after_host_loss, filled(hosts(4), 63.75, 63.75, 63.75, 63.75), False),
    (rules.fill_after_host_loss, filled(hosts(4), 63.75, 63.75, 63.75, 64.0), True),
    # OSDs that have reported what they use, and not their size.
    (rules.nearly_full, facts(**osds(*range(12), total_bytes=0)), False),
    (rules.fill_after_host_loss, facts(**osds(*range(12), total_bytes=0)), False),
    (rules.old_allocation, facts(**osds(6, min_alloc_bytes=65535)), False),
    (rules.mixed_class, facts(**osds(6, device_class='nvme', rotational=True)), True)])
def test_the_limits_of_the_rules(look: Look, given: Facts, is_reported: bool) -> None:
    assert (look(given) is not None) is is_reported


def test_a_large_host_counts_with_all_its_osds() -> None:
    """The three small hosts hold what two OSDs of the large one do not: 150 % of them."""
    given = hosts(8)
    inventory = replace(given.inventory, osds=tuple(
        replace(osd, host='large' if osd.osd < 5 else osd.host) for osd in given.inventory.osds))
    found = rules.fill_after_host_loss(filled(replace(given, inventory=inventory), *[56.25] * 8))
    assert found is not None and 'would be 150 % full (nearfull: 85 %)' in found.text


@pytest.mark.parametrize('hostname, is_elsewhere', [
    ('', False), ('h1', False), ('h1.example.com', False), ('h2', True), ('h2.example.com', True)])
def test_an_osd_under_another_host_is_asked_for_its_location(
        hostname: str, is_elsewhere: bool) -> None:
    asked = rules.questions([OsdFacts(3, 'h1', hostname), OsdFacts(4, '', 'h7')])
    assert [(question.osd, question.option) for question in asked] == ([
        (3, 'osd_crush_update_on_start'), (3, 'crush_location')] if is_elsewhere else [])


def test_a_host_with_a_domain_in_its_crush_name_is_its_own() -> None:
    assert rules.questions([OsdFacts(3, 'h1.example.com', 'h1.example.com')]) == ()


def test_no_more_than_sixteen_osds_are_asked() -> None:
    moved = [OsdFacts(osd, 'h1', 'h2') for osd in range(17)]
    assert [question.osd for question in rules.questions(moved)] == [
        osd for osd in range(16) for _ in range(2)]
    in_force: Dict[int, Dict[str, str]] = {
        osd: {'osd_crush_update_on_start': 'true'} for osd in range(17)}
    found = rules.moves_at_restart(replace(facts(osds=tuple(moved)), in_force=in_force))
    assert found is not None and 'osd.4 and 11 more' in found.text
