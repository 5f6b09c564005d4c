# SPDX-License-Identifier: LGPL-2.1-or-later
"""Rules over drives: their SMART data, OSDs that share them, and their DBs. Pure."""
import re
import shlex
from statistics import median
from typing import Dict, Iterable, List, Optional, Tuple

from ..cluster.drive_health import WORN_PERCENT
from ..text import bytes_text, listed, osds_text, plural
from .report import Facts, Symptom


def without_smart(facts: Facts) -> Tuple[str, ...]:
    """A remark on OSDs to which the rules over SMART data do not apply; (): there are none, or the
    data were not read yet."""
    unknown = len(facts.inventory.osds) - len(facts.main_drives())
    return () if facts.measured.drives is None or not unknown else (
        'no SMART data of the drives of %s is stored ("ceph device monitoring on" lets Ceph '
        'collect it each day): their firmware, write caches and wear were not checked'
        % plural(unknown, 'OSD'),)


def firmware_differs(facts: Facts) -> Optional[Symptom]:
    """Main drives of OSDs with another firmware than most of their model."""
    by_model: Dict[str, Dict[str, List[int]]] = {}
    ids: Dict[int, str] = {}
    for osd, drive in facts.main_drives():
        ids[osd.osd] = drive.device_id
        if drive.model:
            by_model.setdefault(drive.model, {}).setdefault(drive.firmware, []).append(osd.osd)
    texts: List[str] = []
    different: List[int] = []
    for model, by_firmware in sorted(by_model.items()):
        common = max(by_firmware, key=lambda name: (len(by_firmware[name]), name))
        for name, osds in sorted(by_firmware.items()):
            if name != common:
                different.extend(osds)
                texts.append('%s has firmware %s on %s%s (%s on %d others%s)' % (
                    model, name, osds_text(osds), _slowdown(facts, osds), common,
                    len(by_firmware[common]), _slowdown(facts, by_firmware[common])))
    if not different:
        return None
    first = different[0]
    return Symptom('; '.join(texts), 'ceph device get-health-metrics %s; if osd.%d has the older '
                   'firmware: ceph perfguard probe run latency --osd %d; update this drive alone, '
                   'with the tool of the vendor, and probe again; ceph perfguard probe compare '
                   '<before> <after>; unless it is slower, update the other drives, one host at a '
                   'time' % (shlex.quote(ids[first]), first, first))


def _slowdown(facts: Facts, osds: Iterable[int]) -> str:
    """Text on the median slowdown of OSDs against their peers; '' if it is not known."""
    known = facts.measured.slowdowns
    slowdowns = [known[osd] for osd in osds if osd in known]
    return ', median slowdown %.1f' % median(slowdowns) if slowdowns else ''


def write_caches(facts: Facts) -> Optional[Symptom]:
    """Drives under OSDs whose volatile write cache is on."""
    cached = [(osd, drive) for osd, drive in facts.main_drives() if drive.write_cache]
    if not cached:
        return None
    osd, drive = cached[0]
    host, _, name = osd.devices[0].rpartition(':')
    return Symptom('the volatile write cache of the drive is on: %s' % osds_text(
        osd.osd for osd, _ in cached),
        'ceph device get-health-metrics %s; on host %s: smartctl -s wcache,off /dev/%s; compare '
        'ceph perfguard probe run latency --osd %d before and after' % (
            shlex.quote(drive.device_id), host, name, osd.osd))


def worn(facts: Facts) -> Optional[Symptom]:
    """Drives of data and DBs of which at least WORN_PERCENT of the life is used."""
    # Only OSDs that are up and in: those that are out were drained already.
    osds_by_device = _osds_by_device(facts, slice(None))
    drives = facts.measured.drives or {}
    wear = sorted((-drive.wear_percent, device) for device, drive in drives.items()
                  if drive.wear_percent is not None and drive.wear_percent >= WORN_PERCENT
                  and device in osds_by_device)
    if not wear:
        return None
    first = wear[0][1]
    return Symptom('drives near the end of their life: %s' % listed(
        ['%s (%s), %d %% used' % (device, osds_text(osds_by_device[device]), -negative_wear)
         for negative_wear, device in wear]),
        'ceph device get-health-metrics %s; ceph perfguard replace %s' % (
            shlex.quote(drives[first].device_id),
            ' '.join('osd.%d' % osd for osd in osds_by_device[first])))


#: OSDs whose DBs one NVMe drive, or another flash drive, may have.
DBS_PER_NVME, DBS_PER_SSD = 18, 5
#: Share of the main device that its DB should have at least.
LEAST_DB_SHARE = 0.01
#: Series -> the first release whose packages for Debian and Ubuntu have a RocksDB that was compiled
#: with optimization. Ceph pull requests 55500 to 55502.
ROCKSDB_FIXED = {16: (2, 15), 17: (2, 8), 18: (2, 4)}


def _osds_by_device(facts: Facts, places: slice) -> Dict[str, List[int]]:
    """Device -> OSDs that use it. `places`: which devices of each OSD to consider; the first is the
    main one."""
    osds_by_device: Dict[str, List[int]] = {}
    for osd in facts.inventory.osds:
        for device in osd.devices[places]:
            osds_by_device.setdefault(device, []).append(osd.osd)
    return osds_by_device


def _shared(shared: Dict[str, List[int]]) -> str:
    return listed(['%s has %s' % (device, osds_text(osds)) for device, osds in shared.items()])


def shared_drives(facts: Facts) -> Optional[Symptom]:
    """Rotating drives that are the main device of several OSDs."""
    rotational = {osd.osd for osd in facts.inventory.osds if osd.rotational}
    shared = {device: osds for device, osds in _osds_by_device(facts, slice(1)).items()
              if len(rotational.intersection(osds)) > 1}
    return Symptom('rotating drives with several OSDs: ' + _shared(shared),
                   'ceph perfguard drain osd.%d, for all but one of them'
                   % next(iter(shared.values()))[1]) if shared else None


def shared_dbs(facts: Facts) -> Optional[Symptom]:
    """Devices with the DBs of too many OSDs: all devices of an OSD but the main one."""
    shared = {device: osds for device, osds in _osds_by_device(facts, slice(1, None)).items()
              if len(osds) > (DBS_PER_NVME if ':nvme' in device else DBS_PER_SSD)}
    return Symptom('devices with the DBs of many OSDs: ' + _shared(shared),
                   'add a device for DBs; ceph perfguard replace osd.%d, with its DB there'
                   % next(iter(shared.values()))[0]) if shared else None


def small_dbs(facts: Facts) -> Optional[Symptom]:
    """OSDs whose DB device is small for the size of their drive."""
    small = [(osd.osd, osd.db_bytes, osd.main_bytes) for osd in facts.inventory.osds
             if osd.db_bytes and osd.main_bytes
             and osd.db_bytes < LEAST_DB_SHARE * osd.main_bytes]
    if not small:
        return None
    first, db_bytes, main_bytes = small[0]
    return Symptom('the DB has less than %.0f %% of the size of the drive: %s; osd.%d: %s of %s' % (
        100 * LEAST_DB_SHARE, osds_text(osd for osd, _, _ in small), first,
        bytes_text(db_bytes), bytes_text(main_bytes)),
        'ceph tell osd.%d bluefs stats; ceph perfguard replace osd.%d, with a larger DB'
        % (first, first))


def slow_rocksdb(facts: Facts) -> Optional[Symptom]:
    """OSDs of releases whose packages for Debian and Ubuntu have a slow RocksDB."""
    old = [osd for osd in facts.inventory.osds
           if osd.distro in ('debian', 'ubuntu') and _is_unoptimized(osd.version)]
    return Symptom('version %s on %s: %s' % (
        old[0].version, old[0].distro, osds_text(osd.osd for osd in old)),
        'upgrade Ceph; ceph versions') if old else None


def _is_unoptimized(version: str) -> bool:
    """Whether packages of a Ceph version such as "17.2.7" have a RocksDB without optimization."""
    numbers = re.match(r'(\d+)\.(\d+)\.(\d+)', version)
    if numbers is None:
        return False
    # All later series are optimized, and no earlier one is.
    series, *point = (int(number) for number in numbers.groups())
    return tuple(point) < ROCKSDB_FIXED.get(series, (0, 0) if series > 18 else (999, 0))
