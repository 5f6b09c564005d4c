# SPDX-License-Identifier: LGPL-2.1-or-later
"""Rules over OSDs, their drives and hosts. Pure.

Firmware, write caches, CPU power states and the IOMMU are not covered: OSDs do not report them.
"""
import re
from collections import Counter
from typing import Dict, Iterable, List, Optional, Pattern, Tuple

from ..cluster.inventory import OsdFacts
from ..cluster.types import Question
from .report import Facts, Seen
from .settings import named, number, value_of

#: Drives with shingled recording (SMR), according to their vendors: Seagate Archive and Barracuda;
#: WD Red and Blue; Toshiba P300, L200 and DT02.
SHINGLED = re.compile(
    r'ST(?:[568]000AS00|2000DM00[58]|3000DM007|4000DM004|5000DM000|6000DM003|8000DM004'
    r'|1000LM048|2000LM015|[34]000LM024|5000LM000)'
    r'|WD(?:[2346]0EFAX|[26]0EZAZ|[12]0SPZX)|HDWD2[46]0|DT02ABA|HDWL1[12]0')
#: Drives for notebooks and desktops, whose write cache has no capacitors.
UNPROTECTED = re.compile(
    r'Samsung_SSD_(?:7|8|9)\d0_(?:EVO|PRO|QVO)|Samsung_SSD_9\d0(?:_EVO|_PRO)?'
    r'|CT\d+(?:MX|BX|P\d)|KINGSTON_S(?:A400|V300|KC)|SanDisk_SD?SSD|WDC?_WDS\d+'
    r'|INTEL_SSDPEKN|SPCC|TOSHIBA-TR\d', re.IGNORECASE)
#: Device classes of drives without moving parts.
FLASH = ('ssd', 'nvme')
#: bluestore_min_alloc_size of rotating drives before Pacific.
OLD_ALLOC_BYTES = 65536
#: Options of an OSD that decide whether it changes its CRUSH location when it starts.
MOVES, PLACE = 'osd_crush_update_on_start', 'crush_location'
#: The option that limits how many PGs an OSD scrubs at a time.
SCRUBS = 'osd_max_scrubs'
#: OSDs that are asked for them.
MOST_ASKED = 16


def _drives(facts: Facts, pattern: Pattern[str], what: str, fix: str) -> Optional[Seen]:
    found = [osd for osd in facts.inventory.osds if pattern.search(osd.model)]
    if not found:
        return None
    models = Counter(osd.model for osd in found)
    listed = ', '.join('%s (%d)' % row for row in models.most_common(3))
    return Seen('%s: %s; OSDs: %d, such as %s' % (
        what, listed, len(found), named(osd.osd for osd in found)), fix % found[0].osd)


def shingled(facts: Facts) -> Optional[Seen]:
    return _drives(facts, SHINGLED, 'drives with shingled recording (SMR)',
                   'ceph perfguard drain osd.%d, and replace the drive')


def unprotected(facts: Facts) -> Optional[Seen]:
    return _drives(facts, UNPROTECTED, 'drives without power-loss protection',
                   'ceph perfguard probe run latency --osd %d, and replace the drive if its '
                   'writes are slow')


def mixed_class(facts: Facts) -> Optional[Seen]:
    found = [osd for osd in facts.inventory.osds
             if osd.device_class in FLASH and osd.rotational]
    if not found:
        return None
    return Seen('device class %s contains rotating drives: %s' % (
        found[0].device_class, named(osd.osd for osd in found)),
        'ceph osd crush rm-device-class osd.%d; ceph osd crush set-device-class hdd osd.%d'
        % (found[0].osd, found[0].osd))


def old_allocation(facts: Facts) -> Optional[Seen]:
    found = [osd.osd for osd in facts.inventory.osds
             if (osd.min_alloc_bytes or 0) >= OLD_ALLOC_BYTES]
    return Seen('bluestore_min_alloc_size is 64 KiB or more: %s' % named(found),
                'ceph perfguard drain osd.%d, then create the OSD again' % found[0]) \
        if found else None


def spillover(facts: Facts) -> Optional[Seen]:
    text = facts.health.get('BLUEFS_SPILLOVER')
    return None if text is None else Seen(text, 'ceph health detail; ceph tell osd.<id> compact')


def fragmentation(facts: Facts) -> Optional[Seen]:
    text = facts.health.get('BLUESTORE_FREE_FRAGMENTATION')
    return None if text is None else Seen(
        'the free space of BlueStore is fragmented: %s' % text,
        'ceph health detail; ceph perfguard drain osd.<id>, then create the OSD again')


def slow_pings(facts: Facts) -> Optional[Seen]:
    found = [facts.health[code] for code in (
        'OSD_SLOW_PING_TIME_BACK', 'OSD_SLOW_PING_TIME_FRONT') if code in facts.health]
    return Seen('; '.join(found), 'ceph health detail; ceph tell osd.<id> dump_osd_network') \
        if found else None


def scrub_behind(facts: Facts) -> Optional[Seen]:
    found = [facts.health[code] for code in ('PG_NOT_DEEP_SCRUBBED', 'PG_NOT_SCRUBBED')
             if code in facts.health]
    if not found:
        return None
    # The default is 1 in Pacific and 3 from Reef on; a single OSD may have another value.
    known = [number(value_of(facts.inventory, osd, SCRUBS)) for osd in facts.inventory.osds]
    more = '%d' % (max(each or 0 for each in known) + 1) if known and None not in known else \
        '<one more than now>'
    return Seen('; '.join(found), 'ceph config set osd %s %s; '
                'ceph config set osd osd_scrub_load_threshold 10' % (SCRUBS, more))


def elsewhere(facts_osds: Iterable[OsdFacts]) -> List[OsdFacts]:
    """OSDs whose host in CRUSH differs from the host that they report."""
    return [osd for osd in facts_osds if osd.host and osd.hostname
            and osd.host != osd.hostname.split('.')[0] and osd.host != osd.hostname]


def questions(osds: Iterable[OsdFacts]) -> Tuple[Question, ...]:
    """The questions whose answers `moves_at_restart` needs."""
    return tuple(Question(osd.osd, option=option) for osd in elsewhere(osds)[:MOST_ASKED]
                 for option in (MOVES, PLACE))


def moves_at_restart(facts: Facts) -> Optional[Seen]:
    found: Dict[int, OsdFacts] = {}
    for osd in elsewhere(facts.inventory.osds)[:MOST_ASKED]:
        shown = facts.shown.get(osd.osd, {})
        # The location may be configured.
        if shown.get(MOVES) == 'true' and not shown.get(PLACE):
            found[osd.osd] = osd
    if not found:
        return None
    first = found[min(found)]
    return Seen('CRUSH places %s under another host than its own, and %s is true: osd.%d is under '
                '%s and runs on %s' % (named(found), MOVES, first.osd, first.host, first.hostname),
                'ceph config set osd.%d crush_location "root=%s host=%s"' % (
                    first.osd, first.root or 'default', first.host))
