# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the rules over drives report, at their limits and with all that they name."""
from dataclasses import replace
from typing import Callable, Dict, Optional, Tuple

import pytest

from perfguard.advise import drives as rules
from perfguard.advise.report import Facts, Measurements, Symptom
from perfguard.cluster.drive_health import DriveHealth
from perfguard.cluster.inventory import OsdFacts

from .test_rules import GIB, facts, osds, smart

Look = Callable[[Facts], Optional[Symptom]]


def sharing(devices: Dict[int, Tuple[str, ...]], rotational: bool = True) -> Facts:
    """OSD -> its devices, the main one first."""
    return facts(osds=tuple(OsdFacts(osd, devices=names, rotational=rotational)
                            for osd, names in devices.items()))


def dbs_on(device: str, number: int) -> Facts:
    return sharing({osd: ('h0:sd%d' % osd, device) for osd in range(number)})


def drives(*rows: Tuple[str, str]) -> Facts:
    """The id and the firmware of the drive of each OSD from osd.0 on."""
    named = facts(osds=tuple(OsdFacts(osd, devices=('h0:sd%d' % osd, 'h0:nvme0n1'))
                             for osd in range(len(rows))))
    return replace(named, measured=Measurements(drives={
        'h0:sd%d' % osd: DriveHealth(*row) for osd, row in enumerate(rows)}))


@pytest.mark.parametrize('look, given, seen, fix', [
    (rules.firmware_differs, smart({0: {'firmware': 'OLD'}, 7: {'firmware': 'OLD'}}),
     'INTEL_SSDSC2KB960G8 has firmware OLD on osd.0, osd.7 (NEW on 10 others)',
     'ceph device get-health-metrics INTEL_SSDSC2KB960G8_S0; if osd.0 has the older firmware: ceph '
     'perfguard probe run latency --osd 0; update this drive alone, with the tool of the vendor, '
     'and probe again; ceph perfguard probe compare <before> <after>; unless it is slower, update '
     'the other drives, one host at a time'),
    # Of two as frequent ones, the one with the higher name is common.
    (rules.firmware_differs, drives(*(('A_B_S%d' % osd, 'A1' if osd < 6 else 'A2')
                                      for osd in range(12))),
     'A_B has firmware A1 on osd.0, osd.1, osd.2, osd.3, osd.4 and 1 more (A2 on 6 others)',
     'ceph device get-health-metrics A_B_S0; if osd.0 has the older firmware: ceph perfguard probe '
     'run latency --osd 0; update this drive alone, with the tool of the vendor, and probe again; '
     'ceph perfguard probe compare <before> <after>; unless it is slower, update the other drives, '
     'one host at a time'),
    (rules.write_caches, smart({5: {'write_cache': True}, 6: {'write_cache': True}}),
     'the volatile write cache of the drive is on: osd.5, osd.6',
     'ceph device get-health-metrics INTEL_SSDSC2KB960G8_S5; on host h2: smartctl -s wcache,off '
     '/dev/sd5; compare ceph perfguard probe run latency --osd 5 before and after'),
    (rules.worn, smart({5: {'wear_percent': 90}, 6: {'wear_percent': 99},
                        7: {'wear_percent': 89}}),
     'drives near the end of their life: h3:sd6 (osd.6), 99 % used, h2:sd5 (osd.5), 90 % used',
     'ceph device get-health-metrics INTEL_SSDSC2KB960G8_S6; ceph perfguard replace osd.6'),
    (rules.shared_drives, sharing({
        1: ('h0:sda',), 2: ('h0:sda', 'h0:sdb'), 3: ('h0:sdb',), 4: ('h0:sdc',), 5: ('h0:sdc',),
        6: ('h0:sdc',)}),
     'rotating drives with several OSDs: h0:sda has osd.1, osd.2, h0:sdc has osd.4, osd.5, osd.6',
     'ceph perfguard drain osd.2, for all but one of them'),
    (rules.shared_dbs, dbs_on('h0:sdz', 6),
     'devices with the DBs of many OSDs: h0:sdz has osd.0, osd.1, osd.2, osd.3, osd.4 and 1 more',
     'add a device for DBs; ceph perfguard replace osd.0, with its DB there'),
    (rules.small_dbs, facts(**osds(4, 6, main_bytes=1000 * GIB, db_bytes=10 * GIB - 1)),
     'the DB has less than 1 % of the size of the drive: osd.4, osd.6; osd.4: 10.0 GiB of 1000.0 '
     'GiB', 'ceph tell osd.4 bluefs stats; ceph perfguard replace osd.4, with a larger DB'),
    (rules.slow_rocksdb, facts(**osds(4, 6, distro='debian', version='18.2.2')),
     'version 18.2.2 on debian: osd.4, osd.6', 'upgrade Ceph; ceph versions')])
def test_the_text_of_a_finding(look: Look, given: Facts, seen: str, fix: str) -> None:
    assert look(given) == Symptom(seen, fix)


def test_a_drive_of_several_osds_is_replaced_with_all_of_them() -> None:
    worn = smart({5: {'wear_percent': 96}})
    first, = [osd for osd in worn.inventory.osds if osd.osd == 5]
    given = replace(worn, inventory=replace(
        worn.inventory, osds=(*worn.inventory.osds, replace(first, osd=12))))
    found = rules.worn(given)
    assert found == Symptom(
        'drives near the end of their life: h2:sd5 (osd.5, osd.12), 96 % used',
        'ceph device get-health-metrics INTEL_SSDSC2KB960G8_S5; ceph perfguard replace osd.5 '
        'osd.12')


def test_the_write_cache_of_the_main_device_is_named() -> None:
    given = drives(('A_B_S0', ''))
    cached = {'h0:sd0': DriveHealth('A_B_S0', write_cache=True)}
    found = rules.write_caches(replace(given, measured=Measurements(drives=cached)))
    assert found is not None and 'on host h0: smartctl -s wcache,off /dev/sd0;' in found.fix


def test_drives_of_an_unknown_model_are_not_compared() -> None:
    assert rules.firmware_differs(drives(('', 'OLD'), ('', 'NEW'))) is None


@pytest.mark.parametrize('number, device, is_reported', [
    (5, 'h0:sdz', False), (18, 'h0:nvme0n1', False), (19, 'h0:nvme0n1', True)])
def test_how_many_dbs_a_device_may_have(number: int, device: str, is_reported: bool) -> None:
    assert (rules.shared_dbs(dbs_on(device, number)) is not None) is is_reported


def test_the_first_of_several_versions_is_named() -> None:
    versions = {4: '18.2.2', 6: '17.2.6'}
    found = rules.slow_rocksdb(facts(osds=tuple(
        OsdFacts(osd, distro='debian', version=version) for osd, version in versions.items())))
    assert found is not None and found.text == 'version 18.2.2 on debian: osd.4, osd.6'


@pytest.mark.parametrize('distro, version, is_reported', [
    ('ubuntu', '15.2.17', True), ('ubuntu', '16.2.14', True), ('ubuntu', '16.2.15', False),
    ('debian', '17.2.7', True), ('debian', '17.2.8', False), ('ubuntu', '18.1.9', True),
    ('ubuntu', '18.2.3', True), ('ubuntu', '18.2.4', False), ('ubuntu', '19.0.0', False),
    ('ubuntu', '', False), ('centos', '16.2.14', False)])
def test_which_packages_have_a_rocksdb_without_optimization(
        distro: str, version: str, is_reported: bool) -> None:
    found = rules.slow_rocksdb(facts(**osds(4, distro=distro, version=version)))
    assert (found is not None) is is_reported


def test_flash_drives_may_have_several_osds() -> None:
    assert rules.shared_drives(sharing({1: ('h0:sda',), 2: ('h0:sda',)}, rotational=False)) is None


@pytest.mark.parametrize('known, remark', [
    (12, ()),
    (11, ('no SMART data of the drives of 1 OSD is stored ("ceph device monitoring on" lets Ceph '
          'collect it each day): their firmware, write caches and wear were not checked',))])
def test_the_remark_on_drives_without_smart_data(known: int, remark: Tuple[str, ...]) -> None:
    data = smart({})
    drives = dict(list((data.measured.drives or {}).items())[:known])
    assert rules.without_smart(replace(data, measured=Measurements(drives=drives))) == remark
