# SPDX-License-Identifier: LGPL-2.1-or-later
"""Rules over the SMART data of drives. Pure."""
import shlex
from typing import Dict, List, Optional, Tuple

from ..cluster.drive_health import WORN_PERCENT
from ..tables import listed, osds_text, plural
from .report import Facts, Seen


def without_smart(facts: Facts) -> Tuple[str, ...]:
    """A remark on OSDs to which the rules over SMART data do not apply."""
    unknown = len(facts.inventory.osds) - len(facts.main_drives())
    return () if facts.drives is None or not unknown else (
        'no SMART data of the drives of %s is stored ("ceph device monitoring on" lets Ceph '
        'collect it each day): their firmware, write caches and wear were not checked'
        % plural(unknown, 'OSD'),)


def firmware_differs(facts: Facts) -> Optional[Seen]:
    """The model with the fewest drives of another firmware than most, which are named."""
    by_model: Dict[str, Dict[str, List[int]]] = {}
    ids: Dict[int, str] = {}
    for osd, drive in facts.main_drives():
        ids[osd.osd] = drive.device_id
        if drive.model:
            by_model.setdefault(drive.model, {}).setdefault(drive.firmware, []).append(osd.osd)
    texts, first = [], -1
    for model, by_firmware in sorted(by_model.items()):
        common = max(by_firmware, key=lambda name: (len(by_firmware[name]), name))
        rare = {name: osds for name, osds in sorted(by_firmware.items()) if name != common}
        for name, osds in rare.items():
            first = osds[0] if first < 0 else first
            texts.append('%s has firmware %s on %s (%s on %d others)' % (
                model, name, osds_text(osds), common, len(by_firmware[common])))
    return Seen('; '.join(texts), 'ceph device get-health-metrics %s; update the firmware with the '
                'tool of the vendor, one host at a time' % shlex.quote(ids[first])) \
        if texts else None


def write_caches(facts: Facts) -> Optional[Seen]:
    cached = [(osd, drive) for osd, drive in facts.main_drives() if drive.write_cache]
    if not cached:
        return None
    osd, drive = cached[0]
    host, _, name = osd.devices[0].rpartition(':')
    return Seen('the volatile write cache of the drive is on: %s' % osds_text(
        osd.osd for osd, _ in cached),
        'ceph device get-health-metrics %s; on host %s: smartctl -s wcache,off /dev/%s; compare '
        'ceph perfguard probe run latency --osd %d before and after' % (
            shlex.quote(drive.device_id), host, name, osd.osd))


def worn(facts: Facts) -> Optional[Seen]:
    wear = sorted((-(drive.wear_percent or 0), device)
                  for device, drive in (facts.drives or {}).items()
                  if (drive.wear_percent or 0) >= WORN_PERCENT)
    if not wear:
        return None
    users = {device: [osd.osd for osd in facts.inventory.osds if device in osd.devices]
             for _, device in wear}
    first = wear[0][1]
    return Seen('drives near the end of their life: %s' % listed(
        ['%s (%s), %d %% used' % (device, osds_text(users[device]), -used)
         for used, device in wear]),
        'ceph device get-health-metrics %s; ceph perfguard replace %s' % (
            shlex.quote((facts.drives or {})[first].device_id),
            ' '.join('osd.%d' % osd for osd in users[first])))
