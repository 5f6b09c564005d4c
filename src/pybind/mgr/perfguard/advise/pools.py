# SPDX-License-Identifier: LGPL-2.1-or-later
"""Rules over pools, PGs and free space. Pure."""
from statistics import mean
from typing import Dict, List, Optional, Tuple

from ..tables import bytes_text
from .report import Facts, Seen
from .settings import GIB

#: PGs of an OSD, counting each replica and shard: fewer or more cost latency or memory. 100 to 200
#: are recommended; less than half or more than twice that is a finding.
FEWEST_PGS, MOST_PGS = 50, 400
#: With less data, the number of PGs does not matter yet.
LEAST_BYTES_PER_OSD = 10 * GIB
#: mon_min_osdmap_epochs: the number of epochs that a clean cluster keeps.
KEPT_EPOCHS = 500
MOST_EPOCHS = 10 * KEPT_EPOCHS
#: Applications whose I/O is small.
SMALL_IO = frozenset({'rbd', 'cephfs'})
COMPRESSED = ('aggressive', 'force')
#: Releases by age; releases that follow in the alphabet are newer.
UPMAPS, UPMAP_PRIMARIES, EC_OPTIMIZATIONS = 'luminous', 'reef', 'tentacle'
#: Share of its space from which an OSD has to search for free extents.
NEARLY_FULL = 0.8
#: Share of what a pool stores that clones share, from which its growth matters.
SHARED_SHARE = 0.1
#: A cluster with fewer hosts cannot rebuild the data of a lost host.
LEAST_HOSTS = 4


def old_compat(facts: Facts) -> Optional[Seen]:
    release = facts.inventory.min_compat_client
    return None if not release or release >= UPMAPS else Seen(
        'require_min_compat_client is %s' % release,
        'ceph osd set-require-min-compat-client %s' % UPMAPS)


def pgs_per_osd(facts: Facts) -> Optional[Seen]:
    osds = [osd for osd in facts.inventory.osds if osd.pgs is not None]
    if not osds or mean(osd.used_bytes for osd in osds) < LEAST_BYTES_PER_OSD:
        return None
    classes: Dict[str, List[int]] = {}
    for osd in osds:
        classes.setdefault(osd.device_class, []).append(osd.pgs or 0)
    for name, counts in sorted(classes.items()):
        average = mean(counts)
        if not FEWEST_PGS <= average <= MOST_PGS:
            return Seen('OSDs of device class %s have %d PGs on average (recommended: 100 to 200)'
                        % (name or 'none', average), 'ceph osd pool autoscale-status; '
                        'ceph osd pool set <pool> pg_num <power of two>')
    return None


def small_io_on_erasure(facts: Facts) -> Optional[Seen]:
    """Before partial reads and writes; from then on see erasure_reads."""
    if facts.inventory.require_osd_release >= EC_OPTIMIZATIONS:
        return None
    found = [pool.name for pool in facts.inventory.pools
             if pool.erasure and pool.applications & SMALL_IO]
    return Seen('erasure-coded pools with application rbd or cephfs: %s' % ', '.join(found),
                'ceph osd pool create <pool> replicated, for data that is written in small pieces'
                ) if found else None


def erasure_reads(facts: Facts) -> Optional[Seen]:
    if facts.inventory.require_osd_release < EC_OPTIMIZATIONS:
        return None
    found = [pool.name for pool in facts.inventory.pools
             if pool.erasure and pool.applications & SMALL_IO
             and 'ec_optimizations' not in pool.flags]
    return Seen('erasure-coded pools without allow_ec_optimizations: %s' % ', '.join(found),
                'ceph osd pool set %s allow_ec_optimizations true' % found[0]) if found else None


def compression(facts: Facts) -> Optional[Seen]:
    found = [pool for pool in facts.inventory.pools
             if pool.compression in COMPRESSED and pool.applications & SMALL_IO]
    return Seen('; '.join('compression_mode of pool %s is %s' % (pool.name, pool.compression)
                          for pool in found),
                'ceph osd pool set %s compression_mode none' % found[0].name) if found else None


def shared_clones(facts: Facts) -> Optional[Seen]:
    found = [pool for pool in facts.inventory.pools if pool.stored_bytes
             and pool.shared_bytes >= SHARED_SHARE * pool.stored_bytes]
    return Seen('; '.join('pool %s may take up to %s more, %.0f %%' % (
        pool.name, bytes_text(pool.shared_bytes),
        100 * pool.shared_bytes / max(pool.stored_bytes - pool.shared_bytes, 1)) for pool in found),
        'rbd snap ls <image> and rbd snap rm <image>@<snapshot>, for snapshots that are no longer '
        'needed; otherwise leave room before PGs move') if found else None


def shared_osds(facts: Facts) -> Optional[Seen]:
    """Block devices and files on the same OSDs."""
    images = [pool for pool in facts.inventory.pools if 'rbd' in pool.applications]
    files = [pool for pool in facts.inventory.pools
             if 'cephfs' in pool.applications and not pool.fs_metadata]
    for pool in images:
        for other in files:
            if pool.places & other.places:
                root, device_class = min(pool.places & other.places)
                return Seen(
                    'pools %s (rbd) and %s (cephfs) share the OSDs of device class %s below %s' % (
                        pool.name, other.name, device_class or 'none', root),
                    'ceph perfguard rebalance rule %s <rule of other OSDs>' % other.name)
    return None


def upmap_primaries(facts: Facts) -> Optional[Seen]:
    entries = facts.inventory.upmap_primaries
    old = {release: number for release, number in facts.inventory.clients.items()
           if release < UPMAP_PRIMARIES}
    if not entries or not old:
        return None
    return Seen('pg_upmap_primary entries: %d; connections of clients older than %s: %s' % (
        len(entries), UPMAP_PRIMARIES, ', '.join(
            '%d %s' % (number, release) for release, number in sorted(old.items()))),
        'ceph osd rm-pg-upmap-primary %s, and so on for each PG' % entries[0])


def untrimmed_maps(facts: Facts) -> Optional[Seen]:
    epochs = facts.untrimmed_epochs
    if epochs is None or epochs <= MOST_EPOCHS:
        return None
    return Seen('the mons keep %d OSDMap epochs (a clean cluster: about %d)' % (
        epochs, KEPT_EPOCHS), 'ceph perfguard rebalance pause, until the mons have trimmed them'
        if facts.campaign else 'ceph pg dump_stuck unclean')


def _hosts_by_place(facts: Facts) -> List[Tuple[str, str, Dict[str, Tuple[int, int]]]]:
    """CRUSH root, device class, and the bytes in all and in use of each host there."""
    groups: Dict[Tuple[str, str], Dict[str, Tuple[int, int]]] = {}
    for osd in facts.inventory.osds:
        hosts = groups.setdefault((osd.root, osd.device_class), {})
        total, used = hosts.get(osd.host, (0, 0))
        hosts[osd.host] = (total + osd.total_bytes, used + osd.used_bytes)
    return [(*place, hosts) for place, hosts in sorted(groups.items())]


def nearly_full(facts: Facts) -> Optional[Seen]:
    for root, device_class, hosts in _hosts_by_place(facts):
        total = sum(each for each, _ in hosts.values())
        used = sum(each for _, each in hosts.values())
        if used > NEARLY_FULL * total > 0:
            return Seen('device class %s below %s is %d %% full' % (
                device_class or 'none', root, 100 * used / total),
                'add OSDs (ceph perfguard expand) or delete data; ceph osd df tree')
    return None


def fill_after_host_loss(facts: Facts) -> Optional[Seen]:
    """By CRUSH root and device class: data that would not fit after the loss of the largest
    host."""
    limit = facts.inventory.nearfull_ratio
    for root, device_class, hosts in _hosts_by_place(facts):
        largest = max(total for total, _ in hosts.values())
        left = sum(total for total, _ in hosts.values()) - largest
        used = sum(used for _, used in hosts.values())
        if len(hosts) >= LEAST_HOSTS and left > 0 and used > limit * left:
            return Seen(
                'without its largest host, device class %s below %s would be %d %% full '
                '(nearfull: %d %%)' % (device_class or 'none', root, 100 * used / left,
                                       100 * limit),
                'add OSDs (ceph perfguard expand) or delete data; ceph osd df tree')
    return None
