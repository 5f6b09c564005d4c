# SPDX-License-Identifier: LGPL-2.1-or-later
"""Rules over pools, PGs, free space, and OSDs with their drives and hosts. Pure."""
import math
import re
import shlex
from collections import Counter
from statistics import mean
from typing import Dict, Iterable, List, Optional, Pattern, Sequence, Tuple

from ..cluster.inventory import OsdFacts, PoolFacts
from ..cluster.types import MAX_SCRUBS, Question
from ..text import bytes_text, listed, osds_text, plural
from .report import Facts, Symptom
from .settings import GIB, correction, entry_of, number, removal, value_of

#: PGs of an OSD, counting each replica and shard: fewer or more cost latency or memory. 100 to 200
#: are recommended; less than half or more than twice that is a finding.
FEWEST_PGS_PER_OSD, MOST_PGS_PER_OSD = 50, 400
#: With less data, the number of PGs does not matter yet.
LEAST_BYTES_PER_OSD = 10 * GIB
#: mon_min_osdmap_epochs: the number of epochs that a clean cluster keeps.
KEPT_EPOCHS = 500
MOST_EPOCHS = 10 * KEPT_EPOCHS
#: Applications whose I/O is small.
SMALL_IO = frozenset({'rbd', 'cephfs'})
COMPRESSED = ('aggressive', 'force')
#: Releases by age; releases that follow in the alphabet are newer.
UPMAPS, UPMAP_PRIMARIES, EC_RELEASE = 'luminous', 'reef', 'tentacle'
#: How many times its share of the reads an OSD serves, from which other primaries are worth it.
MOST_READ_SCORE = 1.3
#: Share of its space from which an OSD has to search for free extents.
NEARLY_FULL = 0.8
#: Share of what a pool stores that clones share, from which its growth matters.
SHARED_SHARE = 0.1
#: Pools that one finding names.
TIGHT_POOLS = 5
#: A cluster with fewer hosts cannot rebuild the data of a lost host.
LEAST_HOSTS = 4


#: Share of the operations that a pool serves, from which it limits the cluster.
USED_CAPACITY = 0.8


def in_campaign(commands: str) -> str:
    """`commands`, which move data at once, as steps of a campaign, which pins the data first."""
    return ('ceph perfguard campaign prepare; ceph perfguard campaign watch --until PREPARED; '
            '%s; ceph perfguard campaign pin; ceph perfguard campaign watch --until PINNED; '
            'ceph perfguard campaign start' % commands)


def old_compat(facts: Facts) -> Optional[Symptom]:
    release = facts.inventory.min_compat_client
    return None if not release or release >= UPMAPS else Symptom(
        'require_min_compat_client is %s' % release,
        'ceph osd set-require-min-compat-client %s' % UPMAPS)


def pgs_per_osd(facts: Facts) -> Optional[Symptom]:
    """A device class whose OSDs have too few or too many PGs on average. Nearly empty clusters are
    left out."""
    osds = [osd for osd in facts.inventory.osds if osd.pgs is not None]
    if not osds or mean(osd.used_bytes for osd in osds) < LEAST_BYTES_PER_OSD:
        return None
    classes: Dict[str, List[int]] = {}
    for osd in osds:
        classes.setdefault(osd.device_class, []).append(osd.pgs or 0)
    for name, counts in sorted(classes.items()):
        average = mean(counts)
        if not FEWEST_PGS_PER_OSD <= average <= MOST_PGS_PER_OSD:
            return Symptom('OSDs of device class %s have %d PGs on average (recommended: 100 to '
                           '200)' % (name or 'none', average), 'ceph osd pool autoscale-status; '
                           'ceph perfguard pg_num <pool> <power of two>')
    return None


def small_io_on_erasure(facts: Facts) -> Optional[Symptom]:
    """Erasure-coded pools with small I/O, in releases without partial reads and writes."""
    if facts.inventory.require_osd_release >= EC_RELEASE:
        return None
    names = [pool.name for pool in facts.inventory.pools
             if pool.erasure and pool.applications & SMALL_IO]
    return Symptom('erasure-coded pools with application rbd or cephfs: %s' % ', '.join(names),
                   'ceph osd pool create <pool> replicated, for data that is written in small '
                   'pieces') if names else None


def erasure_reads(facts: Facts) -> Optional[Symptom]:
    """Erasure-coded pools with small I/O that lack allow_ec_optimizations."""
    if facts.inventory.require_osd_release < EC_RELEASE:
        return None
    names = [pool.name for pool in facts.inventory.pools
             if pool.erasure and pool.applications & SMALL_IO
             and 'ec_optimizations' not in pool.flags]
    return Symptom('erasure-coded pools without allow_ec_optimizations: %s' % ', '.join(names),
                   'ceph osd pool set %s allow_ec_optimizations true' % shlex.quote(names[0])) \
        if names else None


def single_parity(facts: Facts) -> Optional[Symptom]:
    names = [pool.name for pool in facts.inventory.pools if pool.erasure and pool.redundancy == 1]
    return Symptom('erasure-coded pools with m = 1: %s' % ', '.join(names),
                   'ceph osd erasure-code-profile set <profile> k=<k> m=2; ceph osd pool create '
                   '<pool> erasure <profile>, and move the data') if names else None


def no_spare_domain(facts: Facts) -> Optional[Symptom]:
    """Pools with just enough failure domains: after the loss of one, their PGs stay degraded."""
    tight = [pool for pool in facts.inventory.pools
             for _, needed, number in [pool.domains] if 0 < number == needed]
    return Symptom(_domains_text(tight), _add_domain(tight[0])) if tight else None


def too_few_domains(facts: Facts) -> Optional[Symptom]:
    """Pools with fewer failure domains than their PGs need: copies or shards have no place."""
    short = [pool for pool in facts.inventory.pools
             for _, needed, number in [pool.domains] if number < needed]
    return Symptom(_domains_text(short), '%s, or let the pool use a rule with another failure '
                   'domain (ceph perfguard rule %s <rule>)' % (
                       _add_domain(short[0]), shlex.quote(short[0].name))) if short else None


def _domains_text(pools: Sequence[PoolFacts]) -> str:
    texts = ['pool %s needs %d failure domains of type %s and has %d' % (
        pool.name, needed, domain, number) for pool in pools[:TIGHT_POOLS]
        for domain, needed, number in [pool.domains]]
    more = ', and %d more' % (len(pools) - TIGHT_POOLS) if len(pools) > TIGHT_POOLS else ''
    return '; '.join(texts) + more


def _add_domain(pool: PoolFacts) -> str:
    return 'add a %s with OSDs (ceph perfguard expand)' % pool.domains[0]


def uneven_reads(facts: Facts) -> Optional[Symptom]:
    """A replicated pool of which an OSD serves many times its share of the reads. Only where no
    client is older than pg_upmap_primary: kernel clients do not know it."""
    if facts.inventory.min_compat_client < UPMAP_PRIMARIES:
        return None
    scores = [(pool.read_score, pool.name) for pool in facts.inventory.pools
              if not pool.erasure and pool.read_score is not None
              and pool.read_score >= MOST_READ_SCORE]
    if not scores:
        return None
    score, name = max(scores)
    return Symptom('an OSD serves %.1f times its share of the reads of pool %s' % (score, name),
                   'ceph osd getmap -o osdmap; osdmaptool osdmap --read commands --read-pool %s; '
                   'sh commands' % shlex.quote(name))


def busiest_pool(facts: Facts) -> Optional[Symptom]:
    """The pool that limits the cluster, among those that a probe has measured."""
    used = sorted(facts.measured.capacities, key=lambda row: -row.busiest)
    if not used or used[0].busiest < USED_CAPACITY:
        return None
    first, measured_pools = used[0], {row.pool for row in used}
    places = {place for pool in facts.inventory.pools if pool.name == first.pool
              for place in pool.places}
    classes = ', '.join(sorted({device_class or 'none' for _, device_class in places}))
    sharing = [pool.name for pool in facts.inventory.pools
               if pool.name != first.pool and pool.places & places]
    unmeasured = sum(pool.name not in measured_pools for pool in facts.inventory.pools)
    texts = ['pool %s used %.0f %% of the operations that it serves at p99 %g ms, in the busiest '
             'hour of seven days (probe %d)' % (
                 first.pool, 100 * first.busiest, first.p99_ms, first.probe),
             *(['its OSDs have device class %s%s' % (
                 classes, ' and serve %s as well' % listed(sharing, TIGHT_POOLS)
                 if sharing else '')] if classes else []),
             *('next is pool %s, %.0f %%' % (row.pool, 100 * row.busiest) for row in used[1:2]),
             *(['not measured: %s' % plural(unmeasured, 'pool')] if unmeasured else [])]
    return Symptom('; '.join(texts), 'ceph perfguard pools --capacity; %sadd OSDs of its device '
                   'class (ceph perfguard expand)' % (
                       'ceph perfguard rule %s <rule of other OSDs>, or ' % shlex.quote(sharing[0])
                       if sharing else ''))


def compression(facts: Facts) -> Optional[Symptom]:
    pools = [pool for pool in facts.inventory.pools
             if pool.compression in COMPRESSED and pool.applications & SMALL_IO]
    return Symptom('; '.join('compression_mode of pool %s is %s' % (pool.name, pool.compression)
                             for pool in pools),
                   'ceph osd pool set %s compression_mode none' % shlex.quote(pools[0].name)) \
        if pools else None


def shared_clones(facts: Facts) -> Optional[Symptom]:
    """Pools whose PGs may take much more space once they move, since clones of objects share space
    now. Bytes are on all OSDs; `stored_bytes` counts what is shared for each clone."""
    pools = [pool for pool in facts.inventory.pools if pool.stored_bytes
             and pool.shared_bytes >= SHARED_SHARE * pool.stored_bytes]
    return Symptom('; '.join('pool %s may take up to %s more, %.0f %%' % (
        pool.name, bytes_text(pool.shared_bytes),
        100 * pool.shared_bytes / max(pool.stored_bytes - pool.shared_bytes, 1)) for pool in pools),
        'rbd snap ls <image> and rbd snap rm <image>@<snapshot>, for snapshots that are no longer '
        'needed; otherwise leave room before PGs move') if pools else None


def shared_osds(facts: Facts) -> Optional[Symptom]:
    """A pool of block devices and one of files on the same OSDs."""
    images = [pool for pool in facts.inventory.pools if 'rbd' in pool.applications]
    files = [pool for pool in facts.inventory.pools
             if 'cephfs' in pool.applications and not pool.fs_metadata]
    for image_pool in images:
        for file_pool in files:
            if image_pool.id != file_pool.id and image_pool.places & file_pool.places:
                root, device_class = min(image_pool.places & file_pool.places)
                return Symptom(
                    'pools %s (rbd) and %s (cephfs) share the OSDs of device class %s below %s' % (
                        image_pool.name, file_pool.name, device_class or 'none', root),
                    'ceph perfguard rule %s <rule of other OSDs>'
                    % shlex.quote(file_pool.name))
    return None


def upmap_primaries(facts: Facts) -> Optional[Symptom]:
    """pg_upmap_primary entries while clients are connected that do not know them."""
    entries = facts.inventory.upmap_primaries
    old = {release: number for release, number in facts.inventory.clients.items()
           if release < UPMAP_PRIMARIES}
    if not entries or not old:
        return None
    return Symptom('pg_upmap_primary entries: %d; connections of clients older than %s: %s' % (
        len(entries), UPMAP_PRIMARIES, ', '.join(
            '%d %s' % (number, release) for release, number in sorted(old.items()))),
        'ceph osd rm-pg-upmap-primary %s, and so on for each PG' % entries[0])


def untrimmed_maps(facts: Facts) -> Optional[Symptom]:
    """The mons keep more OSDMap epochs than MOST_EPOCHS."""
    epochs = facts.untrimmed_epochs
    if epochs is None or epochs <= MOST_EPOCHS:
        return None
    # Also during a campaign, whose releases wait for the mons (max_untrimmed_osdmaps). A pause is
    # no fix: it sets norebalance, which keeps the PGs in flight unclean for a while.
    return Symptom('the mons keep %d OSDMap epochs (a clean cluster: about %d)' % (
        epochs, KEPT_EPOCHS), 'ceph pg dump_stuck unclean')


def _hosts_by_place(facts: Facts) -> List[Tuple[str, str, Dict[str, Tuple[int, int]]]]:
    """One row for each CRUSH root and device class: (root, class, {host: (bytes in all, bytes in
    use) of its OSDs})."""
    groups: Dict[Tuple[str, str], Dict[str, Tuple[int, int]]] = {}
    for osd in facts.inventory.osds:
        hosts = groups.setdefault((osd.root, osd.device_class), {})
        total, used = hosts.get(osd.host, (0, 0))
        hosts[osd.host] = (total + osd.total_bytes, used + osd.used_bytes)
    return [(*place, hosts) for place, hosts in sorted(groups.items())]


def nearly_full(facts: Facts) -> Optional[Symptom]:
    """A device class below a root that is fuller than NEARLY_FULL."""
    for root, device_class, hosts in _hosts_by_place(facts):
        total_bytes = sum(total for total, _ in hosts.values())
        used_bytes = sum(used for _, used in hosts.values())
        if used_bytes > NEARLY_FULL * total_bytes > 0:
            return Symptom('device class %s below %s is %d %% full' % (
                device_class or 'none', root, 100 * used_bytes / total_bytes),
                'add OSDs (ceph perfguard expand) or delete data; ceph osd df tree')
    return None


def fill_after_host_loss(facts: Facts) -> Optional[Symptom]:
    """A device class below a root with data that would not fit after the loss of its largest
    host."""
    limit = facts.inventory.nearfull_ratio
    for root, device_class, hosts in _hosts_by_place(facts):
        largest = max(total for total, _ in hosts.values())
        remaining = sum(total for total, _ in hosts.values()) - largest
        used = sum(used for _, used in hosts.values())
        if len(hosts) >= LEAST_HOSTS and remaining > 0 and used > limit * remaining:
            return Symptom(
                'without its largest host, device class %s below %s would be %d %% full '
                '(nearfull: %d %%)' % (device_class or 'none', root, 100 * used / remaining,
                                       100 * limit),
                'add OSDs (ceph perfguard expand) or delete data; ceph osd df tree')
    return None


# ---- Rules over OSDs, their drives and hosts. CPU power states and the IOMMU are not covered: OSDs
# do not report them.

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
#: OSDs that are asked for them.
MOST_ASKED = 16


def _drives(facts: Facts, pattern: Pattern[str], subject: str, fix: str) -> Optional[Symptom]:
    """The finding on main drives whose model matches a pattern: `subject`, then the models and
    OSDs. The id of the first of these is inserted into `fix`."""
    drives = [osd for osd in facts.inventory.osds if pattern.search(osd.model)]
    if not drives:
        return None
    models = Counter(osd.model for osd in drives)
    names = ', '.join('%s (%d)' % row for row in models.most_common(3))
    return Symptom('%s: %s; OSDs: %d, such as %s' % (
        subject, names, len(drives), osds_text(osd.osd for osd in drives)), fix % drives[0].osd)


def shingled(facts: Facts) -> Optional[Symptom]:
    return _drives(facts, SHINGLED, 'drives with shingled recording (SMR)',
                   'ceph perfguard drain osd.%d, and replace the drive')


def unprotected(facts: Facts) -> Optional[Symptom]:
    return _drives(facts, UNPROTECTED, 'drives without power-loss protection',
                   'ceph perfguard probe run latency --osd %d, and replace the drive if its '
                   'writes are slow')


def mixed_class(facts: Facts) -> Optional[Symptom]:
    """OSDs with rotating drives in a device class of flash drives."""
    mixed = [osd for osd in facts.inventory.osds
             if osd.device_class in FLASH and osd.rotational]
    if not mixed:
        return None
    return Symptom('device class %s contains rotating drives: %s' % (
        mixed[0].device_class, osds_text(osd.osd for osd in mixed)),
        'ceph perfguard probe run latency --osd %d; only if it is as slow as a disk, since RAID '
        'controllers report flash as rotating: ' % mixed[0].osd
        + in_campaign('ceph osd crush rm-device-class osd.%d; '
                      'ceph osd crush set-device-class hdd osd.%d' % (mixed[0].osd, mixed[0].osd)))


def old_allocation(facts: Facts) -> Optional[Symptom]:
    osds = [osd.osd for osd in facts.inventory.osds
            if (osd.min_alloc_bytes or 0) >= OLD_ALLOC_BYTES]
    return Symptom('bluestore_min_alloc_size is 64 KiB or more: %s' % osds_text(osds),
                   'ceph perfguard drain osd.%d, then create the OSD again' % osds[0]) \
        if osds else None


def spillover(facts: Facts) -> Optional[Symptom]:
    text = facts.health.get('BLUEFS_SPILLOVER')
    return None if text is None else Symptom(text, 'ceph health detail; ceph tell osd.<id> compact')


def fragmentation(facts: Facts) -> Optional[Symptom]:
    text = facts.health.get('BLUESTORE_FREE_FRAGMENTATION')
    return None if text is None else Symptom(
        'the free space of BlueStore is fragmented: %s' % text,
        'ceph health detail; ceph perfguard drain osd.<id>, then create the OSD again')


def slow_pings(facts: Facts) -> Optional[Symptom]:
    summaries = [facts.health[code] for code in (
        'OSD_SLOW_PING_TIME_BACK', 'OSD_SLOW_PING_TIME_FRONT') if code in facts.health]
    return Symptom('; '.join(summaries),
                   'ceph health detail; ceph tell osd.<id> dump_osd_network') if summaries else None


def scrub_behind(facts: Facts) -> Optional[Symptom]:
    """PGs that were not scrubbed in time: scrubs are off on some OSDs, or too few may run."""
    summaries = [facts.health[code] for code in ('PG_NOT_DEEP_SCRUBBED', 'PG_NOT_SCRUBBED')
                 if code in facts.health]
    if not summaries:
        return None
    # The default is 1 in Pacific and 3 from Reef on; a single OSD may have another value.
    scrub_limits = [number(value_of(facts, osd, MAX_SCRUBS)) for osd in facts.inventory.osds]
    stopped = [entry for osd, limit in zip(facts.inventory.osds, scrub_limits) if limit == 0.0
               for entry in [entry_of(facts, osd, MAX_SCRUBS)] if entry is not None]
    if stopped:
        return Symptom('%s; %s is 0 for %s' % ('; '.join(summaries), MAX_SCRUBS, stopped[0].who),
                       'ceph perfguard held, which shows whether a campaign holds scrubs '
                       '(hold_scrubs); otherwise ' + removal(stopped[:1]))
    # Of the OSDs with the lowest limit: their entry may not apply to others.
    lowest = min(zip(facts.inventory.osds, scrub_limits), key=lambda row: row[1] or math.inf,
                 default=None)
    higher_limit = '<one more than now>' if lowest is None or None in scrub_limits \
        else '%d' % ((lowest[1] or 0) + 1)
    more_scrubs = 'ceph config set osd %s %s' % (MAX_SCRUBS, higher_limit) if lowest is None \
        else correction(facts, lowest[0], MAX_SCRUBS, higher_limit)
    return Symptom('; '.join(summaries),
                   more_scrubs + '; ceph config set osd osd_scrub_load_threshold 10')


def elsewhere(facts_osds: Iterable[OsdFacts]) -> List[OsdFacts]:
    """OSDs whose host in CRUSH differs from the host that they report."""
    return [osd for osd in facts_osds if osd.host and osd.hostname
            and osd.host != osd.hostname.split('.')[0] and osd.host != osd.hostname]


def questions(osds: Iterable[OsdFacts]) -> Tuple[Question, ...]:
    """The questions whose answers `moves_at_restart` needs."""
    return tuple(Question(osd.osd, option=option) for osd in elsewhere(osds)[:MOST_ASKED]
                 for option in (MOVES, PLACE))


def moves_at_restart(facts: Facts) -> Optional[Symptom]:
    """OSDs that CRUSH places under another host, and that would move under their own when they
    restart."""
    moving: Dict[int, OsdFacts] = {}
    for osd in elsewhere(facts.inventory.osds)[:MOST_ASKED]:
        in_force = facts.in_force.get(osd.osd, {})
        # An OSD with a configured location stays there.
        if in_force.get(MOVES) == 'true' and not in_force.get(PLACE):
            moving[osd.osd] = osd
    if not moving:
        return None
    first = moving[min(moving)]
    return Symptom('CRUSH places %s under a host other than its own, and %s is true: osd.%d is '
                   'under %s and runs on %s' % (
                       osds_text(moving), MOVES, first.osd, first.host, first.hostname),
                   'ceph config set osd.%d crush_location "root=%s host=%s"' % (
                       first.osd, first.root or 'default', first.host))
