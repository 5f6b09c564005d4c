# SPDX-License-Identifier: LGPL-2.1-or-later
"""Rules over the configuration database. Pure.

Options in the ceph.conf of an OSD's host are not known here.
"""
from statistics import median
from typing import AbstractSet, Dict, Iterable, List, Optional, Sequence, Tuple

from ..cluster.inventory import OsdFacts, in_force, precedence
from ..cluster.types import MCLOCK, MCLOCK_OVERRIDE, QUEUE, WPQ, ConfigEntry
from ..text import bytes_text, listed, osds_text, pgs, plural
from .report import Facts, Symptom

GIB = 1 << 30
#: Debug options of level 6 and above log single operations.
MOST_DEBUG = 5
#: From the hardware recommendations of Ceph's documentation.
LEAST_MEMORY_TARGET = 4 * GIB
#: Maximum share of a host's memory for the memory targets of its OSDs; the rest is for peaks and
#: the kernel.
MEMORY_SHARE = 0.9
#: Sets the share of a host's memory that cephadm divides among its daemons, and its default.
AUTOTUNE_RATIO = 'ceph config set mgr mgr/cephadm/autotune_memory_target_ratio'
DEFAULT_AUTOTUNE_RATIO = 0.7
_AUTOTUNED = ('move other daemons away from host %s, or raise the share of its memory that cephadm '
              'divides among its daemons (osd_memory_target_autotune): ' + AUTOTUNE_RATIO
              + ' <more than now; default {:g}>'.format(DEFAULT_AUTOTUNE_RATIO))
#: Rotational or not -> minimum and maximum of plausible 4 KiB IOPS: Ceph's
#: osd_mclock_iops_capacity_low_threshold_* and osd_mclock_iops_capacity_threshold_*.
CAPACITIES = {True: (50.0, 500.0), False: (1000.0, 80000.0)}
#: Maximum ratio between OSDs of the same kind.
CAPACITY_SPREAD = 3.0
#: Minimum number of OSDs of a kind for a comparison with their median.
LEAST_PEERS = 5
LIMITS = ('osd_max_backfills', 'osd_recovery_max_active', 'osd_recovery_max_active_hdd',
          'osd_recovery_max_active_ssd')
SLEEPS = ('osd_recovery_sleep', 'osd_recovery_sleep_hdd', 'osd_recovery_sleep_ssd',
          'osd_recovery_sleep_hybrid', 'osd_recovery_sleep_degraded',
          'osd_recovery_sleep_degraded_hdd', 'osd_recovery_sleep_degraded_ssd',
          'osd_recovery_sleep_degraded_hybrid', 'osd_scrub_sleep', 'osd_snap_trim_sleep',
          'osd_snap_trim_sleep_hdd', 'osd_snap_trim_sleep_ssd', 'osd_snap_trim_sleep_hybrid',
          'osd_delete_sleep', 'osd_delete_sleep_hdd', 'osd_delete_sleep_ssd',
          'osd_delete_sleep_hybrid')
#: Suffixes of sizes as `config set` takes them; the mons store the text unchanged.
UNITS = {'k': 10, 'm': 20, 'g': 30, 't': 40}
#: Maximum number of settings that a finding names.
NAMED_VALUES = 4
#: Precedes settings with which the balancer has PGs to move: it begins at once, and does not
#: consider the latency of clients.
BALANCE_FIRST = ('ceph perfguard balance --dry-run (shows what moves, and which pools to name); '
                 'ceph perfguard balance [<pool>...]; ceph perfguard campaign watch --until DONE; ')


def entries(facts: Facts, *names: str) -> List[ConfigEntry]:
    """The entries of these options in the configuration database that concern OSDs."""
    return [entry for entry in facts.inventory.config or () if entry.name in names
            and (entry.section in ('global', 'osd') or entry.section.startswith('osd.'))]


def entry_of(facts: Facts, osd: OsdFacts, name: str) -> Optional[ConfigEntry]:
    """The entry of the configuration database that is in force on an OSD."""
    target = osd.config_target
    return in_force((entry for section in target.sections
                     for entry in facts.options.get((section, name), ())), target)


def value_of(facts: Facts, osd: OsdFacts, name: str) -> Optional[str]:
    """The value of an option for an OSD in the configuration database, or else the release's
    default. None: neither is known; defaults are only known of some options (DEFAULTS_READ)."""
    entry = entry_of(facts, osd, name)
    return facts.inventory.defaults.get(name) if entry is None else entry.value


def correction(facts: Facts, osd: OsdFacts, name: str, value: str) -> str:
    """The command that sets an option of an OSD to a value, where the entry is that applies to it
    now: an entry of a less specific section would have no effect. Without one, for all OSDs."""
    entry = entry_of(facts, osd, name)
    return 'ceph config set %s %s %s' % ('osd' if entry is None else entry.who, name, value)


def number(value: Optional[str]) -> Optional[float]:
    """A number or a size, such as "4G"; None if it is neither."""
    text = (value or '').strip().lower()
    for tail in ('ib', 'i', 'b'):
        text = text[:-len(tail)] if text.endswith(tail) and len(text) > len(tail) else text
    shift = UNITS.get(text[-1:], 0)
    try:
        return float(text[:-1] if shift else text) * (1 << shift)
    except ValueError:
        return None


def removal(config_entries: Iterable[ConfigEntry]) -> str:
    return '; '.join('ceph config rm %s %s' % (entry.who, entry.name) for entry in config_entries)


def _entries(config_entries: List[ConfigEntry]) -> str:
    return listed(['%s is %s for %s' % (entry.name, entry.value, entry.who)
                   for entry in config_entries], NAMED_VALUES)


def _cleared(config_entries: List[ConfigEntry]) -> Optional[Symptom]:
    """The finding that these entries should be removed."""
    return Symptom(_entries(config_entries), removal(config_entries[:NAMED_VALUES])) \
        if config_entries else None


# ---- the rules

def debug_levels(facts: Facts) -> Optional[Symptom]:
    return _cleared([entry for entry in facts.inventory.config or ()
                     if entry.name.startswith('debug_')
                     and (number(entry.value.split('/')[0]) or 0) > MOST_DEBUG])


def memory_target(facts: Facts) -> Optional[Symptom]:
    """BlueStore OSDs whose osd_memory_target is below LEAST_MEMORY_TARGET."""
    small: List[Tuple[float, OsdFacts]] = []
    for osd in facts.inventory.osds:
        target = number(value_of(facts, osd, 'osd_memory_target'))
        if osd.store == 'bluestore' and target is not None and target < LEAST_MEMORY_TARGET:
            small.append((target, osd))
    if not small:
        return None
    lowest, least_osd = min(small, key=lambda row: (row[0], row[1].osd))
    return Symptom('osd_memory_target of %s is below %s; the lowest is %s (osd.%d)' % (
        osds_text(osd.osd for _, osd in small), bytes_text(LEAST_MEMORY_TARGET),
        bytes_text(lowest), least_osd.osd), _without_room(facts, {osd.hostname for _, osd in small})
        or (_AUTOTUNED % least_osd.hostname if _is_autotuned(facts, least_osd) else
            correction(facts, least_osd, 'osd_memory_target', str(LEAST_MEMORY_TARGET))))


def _is_autotuned(facts: Facts, osd: OsdFacts) -> bool:
    """Whether cephadm sets the memory target of an OSD, and replaces other values within minutes.
    No other orchestrator sets this option."""
    return value_of(facts, osd, 'osd_memory_target_autotune') == 'true'


def _without_room(facts: Facts, hosts: AbstractSet[str]) -> str:
    """What to do if one of the `hosts` has too little memory for LEAST_MEMORY_TARGET of each of its
    OSDs; '': each has enough, as far as its memory is known."""
    for host, (memory, osds) in sorted(_by_host(facts).items()):
        if host in hosts and len(osds) * LEAST_MEMORY_TARGET > MEMORY_SHARE * memory:
            return 'add memory to host %s, or move OSDs away from it: %d GiB for each of its %s ' \
                'exceed %.0f %% of its %s' % (
                    host, LEAST_MEMORY_TARGET / GIB, plural(len(osds), 'OSD'),
                    100 * MEMORY_SHARE, bytes_text(memory))
    return ''


def _by_host(facts: Facts) -> Dict[str, Tuple[int, List[OsdFacts]]]:
    """By host: its memory in bytes, and its OSDs with BlueStore; of hosts whose memory is known."""
    hosts: Dict[str, Tuple[int, List[OsdFacts]]] = {}
    for osd in facts.inventory.osds:
        if osd.hostname and osd.memory_bytes and osd.store == 'bluestore':
            hosts.setdefault(osd.hostname, (osd.memory_bytes, []))[1].append(osd)
    return hosts


def memory_overcommitted(facts: Facts) -> Optional[Symptom]:
    """A host whose OSDs may use more memory in total than MEMORY_SHARE of what it has."""
    for host, (memory, osds) in sorted(_by_host(facts).items()):
        targets = sum(number(value_of(facts, osd, 'osd_memory_target')) or 0 for osd in osds)
        if targets > MEMORY_SHARE * memory:
            autotuned = [osd for osd in osds if _is_autotuned(facts, osd)]
            applied = [entry_of(facts, osd, 'osd_memory_target') for osd in osds
                       if osd not in autotuned]
            # Entries of single OSDs precede that of their host.
            of_single_osds = [entry for entry in applied if entry is not None
                              and entry.section.startswith('osd.')]
            fix = '%s %g' % (AUTOTUNE_RATIO, DEFAULT_AUTOTUNE_RATIO) if autotuned else \
                'ceph config set osd/host:%s osd_memory_target %d' % (
                    osds[0].host, MEMORY_SHARE * memory / len(osds))
            return Symptom(
                'the memory targets of the %s of host %s add up to %s (memory %s)' % (
                    plural(len(osds), 'OSD'), host, bytes_text(targets), bytes_text(memory)),
                '; '.join(filter(None, (removal(of_single_osds), fix))))
    return None


def cut_off(facts: Facts) -> Optional[Symptom]:
    low = [osd for osd in facts.inventory.osds
           if value_of(facts, osd, QUEUE) == WPQ
           and value_of(facts, osd, 'osd_op_queue_cut_off') == 'low']
    return Symptom('osd_op_queue_cut_off is low for %s, which %s with wpq' % (
        osds_text(osd.osd for osd in low), 'schedules' if len(low) == 1 else 'schedule'),
        correction(facts, low[0], 'osd_op_queue_cut_off', 'high')) if low else None


def _mclock_osds(facts: Facts) -> List[OsdFacts]:
    return [osd for osd in facts.inventory.osds
            if value_of(facts, osd, QUEUE) == MCLOCK]


def power_saving(facts: Facts) -> Optional[Symptom]:
    """The newest probe of queue depths was slower with one operation at a time than with several.
    Whether CPUs save power is not known: the mgr cannot read the settings of other hosts."""
    slow = facts.measured.slow_alone
    return None if slow is None else Symptom(
        'in all repetitions of probe %d, one operation at a time was slower than several: it took '
        '%.2f ms, each of %d at a time %.2f ms; power saving of CPUs may be the reason' % (
            slow.probe, slow.alone_ms, slow.depth, slow.together_ms),
        'on the hosts of OSDs and on that of the probe, look at "cpupower idle-info" and "cpupower '
        'frequency-info"; compare a probe after "cpupower frequency-set -g performance; cpupower '
        'idle-set -D 10"')


def mclock_capacity(facts: Facts) -> Optional[Symptom]:
    """An OSD whose capacity for mclock is implausible: outside the range of its kind of drive
    (rotational or not), or far from the median of that kind. OSDs without an entry in the
    configuration database are left out."""
    for rotational, (lowest, highest) in CAPACITIES.items():
        option = 'osd_mclock_max_capacity_iops_' + ('hdd' if rotational else 'ssd')
        # Without an entry, an OSD has the default of the release.
        entries = {osd.osd: entry for osd in _mclock_osds(facts) if osd.rotational is rotational
                   for entry in [entry_of(facts, osd, option)] if entry is not None}
        capacities = {osd: number(entry.value) for osd, entry in entries.items()}
        measured = {osd: iops for osd, iops in capacities.items() if iops is not None}
        sane = [iops for iops in measured.values() if lowest <= iops <= highest]
        middle = median(sane) if len(sane) >= LEAST_PEERS else None
        for osd, iops in sorted(measured.items()):
            if not lowest <= iops <= highest or middle is not None and not (
                    middle / CAPACITY_SPREAD <= iops <= middle * CAPACITY_SPREAD):
                return _wrong_capacity(osd, option, iops, (lowest, highest), middle,
                                       facts.measured.store_iops.get(osd), entries[osd])
    return None


def _wrong_capacity(osd: int, option: str, iops: float, limits: Tuple[float, float],
                    middle: Optional[float], probed: Optional[Tuple[int, float]],
                    entry: ConfigEntry) -> Symptom:
    """The finding that the capacity of an OSD for mclock is wrong. `limits`: of plausible ones;
    `middle`: median of the plausible ones; `probed`: the last probe of its store, which measures as
    OSDs do when they start, and its result; `entry`: sets the capacity. The fix sets a plausible
    value. If none is known, it is a probe; or the default, if the probe was implausible, as with a
    cache."""
    notes = '' if middle is None else ', median of such OSDs %d' % middle
    plausible = middle
    if probed is not None:
        notes += ', probe %d measured %d' % probed
        if limits[0] <= probed[1] <= limits[1]:
            plausible = probed[1]
    fix = 'ceph config set osd.%d %s %d' % (osd, option, plausible) if plausible is not None else \
        'ceph perfguard probe run --store --osd %d' % osd if probed is None else \
        removal([entry])
    return Symptom('%s of osd.%d is %d (plausible: %d to %d%s)' % (
        option, osd, iops, *limits, notes), fix)


def mclock_ignores(facts: Facts) -> Optional[Symptom]:
    """Options that have no effect: they only apply to OSDs with mclock, which reset them or force
    them to 0."""
    mclock_osds = _mclock_osds(facts)
    if not mclock_osds:
        return None
    # OSDs of releases without MCLOCK_OVERRIDE set other limits in any case, even if the mons were
    # forced to store it.
    overriding = [osd for osd in mclock_osds if MCLOCK_OVERRIDE in facts.inventory.defaults
                  and value_of(facts, osd, MCLOCK_OVERRIDE) == 'true']
    with_mclock = {osd.osd for osd in mclock_osds}
    other_osds = [osd for osd in facts.inventory.osds if osd.osd not in with_mclock]

    def applies_to_one_of(osds: Sequence[OsdFacts], entry: ConfigEntry) -> bool:
        return any(precedence(entry, osd.config_target) is not None for osd in osds)

    return _cleared([entry for entry in entries(facts, *SLEEPS, *LIMITS)
                     if not applies_to_one_of(other_osds, entry)
                     and not (entry.name in LIMITS and applies_to_one_of(overriding, entry))])


def secure_mode(facts: Facts) -> Optional[Symptom]:
    modes = ('ms_cluster_mode', 'ms_service_mode', 'ms_client_mode')
    entries = [entry for entry in facts.inventory.config or () if entry.name in modes
               and entry.value.replace(',', ' ').split()[:1] == ['secure']]
    return _cleared(entries)


def signatures(facts: Facts) -> Optional[Symptom]:
    off = [entry for entry in facts.inventory.config or ()
           if entry.name == 'cephx_sign_messages' and entry.value.lower() in ('false', '0', 'no')]
    # Kernel clients that do not sign would be refused.
    return Symptom(_entries(off), 'mount kernel clients without nocephx_sign_messages first; '
                   + removal(off[:NAMED_VALUES])) if off else None


def messenger_threads(facts: Facts) -> Optional[Symptom]:
    default = number(facts.inventory.defaults.get('ms_async_op_threads')) or 3
    return _cleared([entry for entry in entries(facts, 'ms_async_op_threads')
                     if (number(entry.value) or default) < default])


def rocksdb_options(facts: Facts) -> Optional[Symptom]:
    return _cleared(entries(facts, 'bluestore_rocksdb_options'))


def balancer_off(facts: Facts) -> Optional[Symptom]:
    """The finding that the balancer is off, or in another mode than upmap, while no campaign has
    stopped it."""
    options = facts.inventory.balancer
    if facts.campaign or not options:
        return None
    off, mode = options.get('active', 'true') == 'false', options.get('mode', 'upmap')
    fix = BALANCE_FIRST + 'ceph balancer on'
    if not mode.startswith('upmap'):
        return Symptom('the mode of the balancer is %s%s'
                       % (mode, ', and it is off' if off else ''),
                       'ceph balancer off; ceph balancer mode upmap; ' + fix)
    return Symptom('the balancer is off', fix) if off else None


def balancer_deviation(facts: Facts) -> Optional[Symptom]:
    deviation = number(facts.inventory.balancer.get('upmap_max_deviation'))
    return None if deviation is None or deviation <= 1 else Symptom(
        'upmap_max_deviation of the balancer is %s' % pgs(int(deviation)),
        BALANCE_FIRST + 'ceph config set mgr mgr/balancer/upmap_max_deviation 1')
