# SPDX-License-Identifier: LGPL-2.1-or-later
"""The module's options: one frozen object for the code, and the table for Ceph made of it."""
from dataclasses import dataclass, field, fields
from functools import partial
from typing import AbstractSet, Any, Callable, Dict, Iterable, List, Optional, Tuple

from .cluster.inventory import VERSION_OPTION
from .cluster.types import ConfigEntry

#: An option in the form of Ceph's MODULE_OPTIONS.
OptionSpec = Dict[str, Any]

#: Levels of options, as in mgr_module.OptionLevel.
BASIC, ADVANCED, DEV = LEVELS = range(3)


def _option(level: int, default: Any, desc: str, long_desc: str = '', **limits: Any) -> Any:
    description = {'long_desc': long_desc} if long_desc else {}
    return field(default=default, metadata={'level': level, 'desc': desc, **description, **limits})


_basic, _advanced, _dev = (partial(_option, level) for level in LEVELS)


@dataclass(frozen=True)
class Options:
    """The options' values."""
    # ---- what operators set

    target: str = _basic(
        'balanced', 'end state of a campaign',
        'balanced: each OSD holds its share, by weight, of the PGs of each pool that the campaign '
        'touched, to within target_deviation, and as little data as possible moves; upmaps remain '
        'where the balance needs them. crush: every pin is released, and PGs end where CRUSH and '
        'the upmaps from before the campaign place them.',
        enum_allowed=['balanced', 'crush'])
    max_pgs_in_flight: int = _basic(
        0, 'maximum number of PGs in flight; 0: as many as the max_backfills options allow',
        '0: as many as the caps by OSD, host and failure domain let move on the whole cluster, at '
        'least 32.', min=0, max=100000)
    latency_factor: float = _basic(
        1.5, "maximum client latency, as a multiple of the pool's baseline", min=1.0, max=100.0)
    latency_limits_ms: str = _basic(
        '', 'maximum client latency of single pools in ms: <pool>=<ms>[,<pool>=<ms>...]',
        'Replaces latency_factor x baseline for these pools.')
    latency_alarm_factor: float = _basic(
        3.0,
        "client latency from which PERFGUARD_LATENCY is raised, as a multiple of the pool's "
        'baseline', 'At hours at which high latency recurs, it is a multiple of that latency '
        'after three days or two weeks.', min=1.1, max=1000.0)
    begin_time: str = _basic(
        '0000', 'time of day from which PGs may be released, HHMM',
        'Local time of the mgr. PGs in flight at end_time continue to move.')
    end_time: str = _basic('2400', 'time of day from which no PG is released, HHMM')
    begin_weekday: int = _basic(
        0, 'weekday from which PGs may be released; 0 is Sunday', min=0, max=6)
    end_weekday: int = _basic(
        0,
        'weekday from which no PG is released; if equal to begin_weekday: PGs may be released '
        'every day', min=0, max=6)
    pace_copying: str = _basic(
        'auto', 'slow the copying of released PGs on the OSDs themselves',
        'With the scheduler wpq, OSDs sleep between two objects (osd_recovery_sleep_ssd, _hybrid, '
        '_hdd) for 0.01 to 0.1 s while PGs are released: longer while releases slow clients down, '
        'shorter while they do not. With mclock, osd_mclock_profile is high_client_ops. auto: '
        'unless the option is set in the section osd or global of the configuration database. on: '
        'also where it is set, if that copies faster. off: unchanged.',
        enum_allowed=['auto', 'on', 'off'])
    hold_scrubs: bool = _basic(
        False, 'start no scrubs while PGs are released',
        'Sets osd_max_scrubs of the OSDs to 0 while PGs are released. Scrubs in progress end as '
        'usual. Outside the release window, during a pause and after the campaign, the option is '
        'given back and the OSDs catch up.')
    auto_expand: bool = _basic(
        False, 'automatically pin and release the PGs that an unannounced CRUSH change remaps',
        'Such changes are new hosts, new weights, moved buckets and edited rules. PGs that are '
        'remapped because OSDs are down or out are left to recovery, and another crush_rule or '
        'pgp_num of a pool is not noticed: use "rule" and "pg_num".')
    mitigation_mode: str = _basic(
        'observe', 'what perfguard changes in the cluster while data movement slows clients down',
        'off: nothing. observe: report what mode act would do. act: set norebalance, then pin '
        'back PGs that wait for backfill, then slow recovery; undo all of it when the cause has '
        'cleared. act also maps degraded PGs away from full OSDs, by upmaps. Releases stop in '
        'every mode.', enum_allowed=['off', 'observe', 'act'])
    mitigation_affinity: bool = _basic(
        False, 'set the primary affinity of a slow OSD to 0 until it is normal again',
        'Also applies to chronically slow OSDs. Requires mitigation_mode act.')
    metrics_port: int = _basic(
        0, 'port on which perfguard serves metrics to Prometheus; 0: none',
        'Every mgr, active or standby, serves metrics. If two mgrs share a host, set '
        'mgr/perfguard/<id>/metrics_port.', min=0, max=65535)

    # ---- what operators usually leave alone

    capacity_p99_ms: float = _advanced(
        0.0, 'p99 in ms up to which "pools --capacity" counts what a pool serves',
        '0: 5 ms, and 50 ms for pools with OSDs of the class hdd.', min=0.0, max=60000.0)
    target_deviation: float = _advanced(
        1.0, 'PGs of a pool by which an OSD may differ from its share at the end of a campaign',
        'Takes effect with target=balanced. Shards that CRUSH moves are balanced to within one PG '
        'in any case; other shards move only between OSDs that differ by more. With the '
        "upmap_max_deviation of Ceph's balancer (5 by default) less data moves, new OSDs remain "
        'several PGs below their share, and the balancer still finds nothing to do. '
        'max_extra_movement limits the movement.', min=1.0, max=1000.0)
    max_pins: int = _advanced(
        0, 'maximum number of PGs that a campaign keeps pinned at a time; 0: as many as the mons '
        'can check quickly',
        'The leading mon checks all upmaps for each OSDMap epoch. 0: as many pins as take its '
        'threads about 0.3 s with all other upmaps, and at least 0.05 s: 31,000 with 1,000 OSDs, '
        '6,800 with 5,000, without other upmaps and with pools of size 3. Changes of weights with '
        'more pins come in tranches; other changes need "--accept PIN_LIMIT", or "campaign accept '
        'PIN_LIMIT" where a campaign has begun.', min=0, max=10000000)
    max_bytes_in_flight: int = _advanced(
        0, 'maximum number of bytes in flight; 0: 128 GiB for each PG',
        '0: 128 GiB for each PG that may be in flight, at least 4 TiB. One PG may always move, '
        'regardless of its size.', min=0, max=1 << 60)
    max_backfills_source: int = _advanced(
        2, 'maximum number of PGs in flight that move away from one OSD', min=1, max=1000)
    max_backfills_primary: int = _advanced(
        2, 'maximum number of PGs in flight whose primary is the same OSD', min=1, max=1000)
    max_backfills_target: int = _advanced(
        2, 'maximum number of PGs in flight that move to one OSD', min=1, max=1000)
    max_backfills_host: int = _advanced(
        8, 'maximum number of PGs in flight that move to or away from one host', min=1, max=10000)
    max_backfills_device: int = _advanced(
        4, 'maximum number of PGs in flight of OSDs that share a drive or DB device',
        min=1, max=10000)
    max_backfills_domain: int = _advanced(
        16, 'maximum number of PGs in flight that move to or away from one failure domain',
        "The failure domain of the pool's CRUSH rule, such as a rack.", min=1, max=100000)
    max_extra_movement: float = _advanced(
        1.0,
        'maximum number of shards that move only for the balance, as a ratio to the shards that '
        'CRUSH moves',
        'Takes effect with target=balanced on a cluster that was not balanced before: the balance '
        'then improves where it is worst, but is not complete. --dry-run shows the result.',
        min=0.0, max=1000.0)
    max_unpinnable_ratio: float = _advanced(
        0.05, "maximum share of a campaign's PGs that may be unpinnable when releases begin",
        'Unpinnable PGs move all at once, regardless of every cap, as soon as norebalance is '
        'cleared. Above this share, norebalance stays set until "campaign start" accepts that, '
        'and changes of CRUSH need "--accept UNPINNABLE". Up to max_backfills_target unpinnable '
        'PGs are always accepted.', min=0.0, max=1.0)
    auto_expand_settle: float = _advanced(
        60.0,
        'seconds without a change of CRUSH or of the OSDs that are up and in, after which '
        'auto_expand releases PGs, and "expand --await" and "replace" fill new OSDs',
        'The OSDs of a new host come up one by one; otherwise the first one would receive the PGs '
        'of all of them.', min=0.0, max=3600.0)
    auto_expand_ratio: float = _advanced(
        0.01,
        'minimum share of PGs that an unannounced CRUSH change must remap for auto_expand to act',
        min=0.0, max=1.0)
    stalled_after: float = _advanced(
        1800.0,
        'seconds without a release, an arrived PG or data that is copied after which '
        'PERFGUARD_STALLED is raised', min=10.0, max=7 * 86400.0)
    slow_osd_factor: float = _advanced(
        1.5, 'slowdown from which an OSD counts as slow, as a multiple of the latency of its peers',
        'Peers are OSDs of the same CRUSH root, device class and store, with or without a DB '
        'device (and of the same drive model, if enough OSDs have it), at the same load.', min=1.2,
        max=100.0)
    slow_osd_seconds: float = _advanced(
        60.0, 'seconds for which an OSD must be slow to be reported, or normal to be cleared',
        'Small slowdowns take longer to report.', min=5.0, max=3600.0)
    chronic_period_seconds: float = _advanced(
        43200.0, 'period in seconds over which slow time of an OSD is counted',
        'PERFGUARD_OSD_CHRONIC is raised when an OSD was slow for 2.5 % of this time in at least '
        'three episodes, or for 3 % of it, and cleared after twice this time without an episode.',
        min=60.0, max=7 * 86400.0)
    latency_floor_ms: float = _advanced(
        0.0, 'minimum difference of the latency limit from the baseline in ms; 0: by device class',
        'Smaller differences are noise. 0: 2 ms for pools on hdd whose baseline is 2 ms or more, '
        '0.5 ms for all others, but at most the baseline itself.', min=0.0, max=1000.0)
    stall_ratio: float = _advanced(
        0.003, "maximum share of a pool's client operations that wait for released PGs to peer",
        min=0.00001, max=1.0)
    max_untrimmed_osdmaps: int = _advanced(
        2000,
        'OSDMap epochs that the mons may keep; above this, releases wait until they have trimmed '
        'them; 0: no limit',
        'Mons trim OSDMaps only while all PGs are clean, so no PG is released until those in '
        'flight have arrived. Releases do not wait while PGs are degraded, inactive or too full '
        'for backfill, or while no PG is in flight and the last arrival was more than 2.5 minutes '
        'ago; untrimmed_ceiling still applies. After 10 minutes of a pause, PGs in flight are '
        "pinned back. Must exceed the mons' mon_min_osdmap_epochs (500).",
        min=0, max=1000000)
    untrimmed_ceiling: int = _advanced(
        0, 'OSDMap epochs that the mons may keep until no PG is released, even if PGs outside the '
        'campaign keep the mons from trimming; 0: as many as take about 10 GiB',
        '0: as many as take about 10 GiB on each mon and each OSD, at least 1,500 and at most '
        '50,000. An epoch takes about 450 bytes per OSD, 400 per pool and 30 per upmap or remapped '
        'PG: 0.5 MB with 1,000 OSDs, so 20,000 epochs; 2.5 MB with 5,000 OSDs and 10,000 upmaps, '
        'so 4,300. "campaign accept UNTRIMMED_CEILING" waives it for one campaign.',
        min=0, max=1000000)
    fast_peering: str = _advanced(
        'auto', "shorten the mons' paxos_propose_interval while PGs are released",
        'A released PG waits for this interval several times while it peers, and so do its '
        'clients. auto: between 0.02 s (up to 1,000 PGs and 4 MiB that all OSDs together store '
        'per OSDMap epoch) and 0.25 s (up to 25,000 PGs and 512 MiB), unchanged on larger '
        'clusters. on: 0.25 s on larger clusters as well. off: unchanged.',
        enum_allowed=['auto', 'on', 'off'])
    mitigation_seconds: float = _advanced(
        30.0, 'seconds for which the cause must last before the next mitigation is taken',
        'When the cause has been absent for twice as long, the mitigations are undone one at a '
        'time.', min=1.0, max=3600.0)
    mitigation_backfills: int = _advanced(
        0, 'maximum osd_max_backfills for degraded PGs while clients have room; 0: unchanged',
        'Requires mitigation_mode act and the scheduler wpq. While degraded PGs wait and client '
        'latency is well within its limit, osd_max_backfills is doubled and recovery sleeps are '
        'halved, up to three times, a minute apart. When latency exceeds its limit, the last step '
        'is taken back.', min=0, max=32)
    probe_max_bytes: int = _advanced(
        64 << 30,
        'maximum number of bytes that a probe writes before it measures, counting all replicas',
        'Measured writes are not included: they overwrite these bytes and are limited by the '
        'runtime.', min=1 << 20, max=1 << 50)
    probe_max_seconds: int = _advanced(
        3600, 'maximum duration of a probe in seconds', min=10, max=86400)
    probe_history: int = _advanced(
        200, 'number of probes to keep; baselines are kept in addition', min=1, max=10000)
    metrics_addr: str = _advanced(
        '::', 'address on which perfguard serves metrics to Prometheus',
        'An IP address; :: stands for all addresses, even without IPv6.')
    campaign_history: int = _advanced(20, 'number of ended campaigns to keep', min=1, max=200)

    # ---- what developers set

    loop_interval: float = _dev(
        5.0, 'loop interval in seconds while no campaign is active', min=1.0, max=60.0)
    campaign_interval: float = _dev(
        1.0, 'loop interval in seconds while a campaign is active', min=0.2, max=60.0)
    pin_batch: int = _dev(
        512, 'number of PGs that are pinned in one batch of commands',
        'The next batch waits until the PGs of the previous batch have peered.', min=1, max=10000)
    max_transition_ratio: float = _dev(
        0.05,
        'share of PGs that may be peering or activating before perfguard delays further pins and '
        'releases', min=0.0, max=1.0)
    readback_timeout: float = _dev(
        20.0,
        'seconds after which an upmap that the OSDMap does not show counts as refused by the mons',
        min=2.0, max=600.0)
    baseline_seconds: float = _dev(
        600.0, "seconds of quiet per point of a pool's baseline",
        'The baseline is the latency that is not exceeded in a quarter of the points of a week. '
        'Quiet means that all PGs are active+clean and no operation is slow. Before its first '
        'point a pool has a provisional baseline, from 20 s of quiet with operations on: '
        'campaigns use it; alarms do not.', min=5.0, max=86400.0)


_TYPES = {bool: 'bool', int: 'uint', float: 'float', str: 'str'}

OPTIONS: List[OptionSpec] = [
    {'name': option.name, 'type': _TYPES[type(option.default)], 'default': option.default,
     'runtime': True, **option.metadata} for option in fields(Options)]
DEFAULTS = Options()


SPECS: Dict[str, OptionSpec] = {spec['name']: spec for spec in OPTIONS}


def why_invalid(name: str, value: Any, shown: object) -> str:
    """Why an option cannot have a value; '' if it can. The text quotes `shown`: the value as the
    operator has written it."""
    spec = SPECS[name]
    allowed = spec.get('enum_allowed')
    if allowed and value not in allowed:
        return '%s must be one of %s, not %.60r' % (name, ', '.join(allowed), shown)
    if not spec.get('min', value) <= value <= spec.get('max', value):
        return '%s must be between %s and %s, not %.60s' % (name, spec['min'], spec['max'], shown)
    return ''


def read_options(get: Callable[[str], Any]) -> Options:
    """Options from a getter such as MgrModule.get_module_option; None stands for the default."""
    values: Dict[str, Any] = {}
    for spec in OPTIONS:
        value = get(spec['name'])
        values[spec['name']] = spec['default'] if value is None else value
    return Options(**values)


def version_option(version: str) -> OptionSpec:
    """The option whose default is the installed version: the MgrMap has the default of each option
    for each mgr, standbys included. It is not one of OPTIONS and has no effect."""
    return {'name': VERSION_OPTION, 'type': 'str', 'default': version, 'runtime': True,
            'level': DEV, 'desc': 'version of perfguard on the host of the mgr; cannot be set'}


#: Seconds between two comparisons with the configuration database; at least, if a comparison is
#: due because Ceph reported a change.
COMPARE_SECONDS = 30.0
COMPARE_SECONDS_MIN = 1.0
#: Where the configuration database keeps this module's options.
STORED_PREFIX = 'mgr/perfguard/'


class LiveOptions:
    """The options of a running mgr, without values that are invalid, and without those of options
    that were removed meanwhile.

    The mons do not check values that are set with ``--force``, and let nan pass without it. For a
    number that is none, the getters of ceph-mgr raise ValueError (get_python_typed_option_value).

    ceph-mgr applies set options but not removed ones: after ``config rm`` its getters return the
    removed value until the mgr restarts (PyModuleRegistry::handle_config is called for keys that
    are set, never for keys that are not; Pacific to Tentacle). So the options are periodically
    compared with the configuration database.
    """

    def __init__(self, get: Callable[[str], Any], get_localized: Callable[[str], Any],
                 mgr_id: Callable[[], str]) -> None:
        """`get`, `get_localized`: getters as MgrModule has them."""
        self._get = get
        self._get_localized = get_localized
        self._mgr_id = mgr_id
        #: Key -> the value that was in force when the configuration database did not have the key.
        #: A getter that returns another one has received a new value. Replaced as a whole, because
        #: commands read it in other threads.
        self._removed: Dict[str, Any] = {}
        self._notified = False
        self._compared_at: Optional[float] = None

    def read(self) -> Options:
        return read_options(self.get)

    def get(self, name: str) -> Any:
        """The option for all mgrs; the default if it is not set, invalid or removed."""
        value, _ = _checked(self._get, name)
        is_set = value is not None and not self._is_removed(name, value)
        return value if is_set else getattr(DEFAULTS, name)

    def localized(self, name: str) -> Any:
        """The option of this mgr alone (``mgr/perfguard/<id>/<name>``), or else of all."""
        value, _ = _checked(self._get_localized, name)
        is_set = value is not None and not self._is_removed(self._own_key(name), value)
        return value if is_set else self.get(name)

    def remarks(self) -> List[str]:
        """Texts on invalid values, which do not count."""
        texts: List[str] = []
        for name in SPECS:
            value, why = _checked(self._get, name)
            if why and not self._is_removed(name, value):
                texts.append('module option %s; the default %s applies'
                             % (why, getattr(DEFAULTS, name)))
        return texts

    def notify(self) -> None:
        """Some option of the mgr has changed. Called by any thread."""
        self._notified = True

    def note_removed(self, entries: Callable[[], Optional[Iterable[ConfigEntry]]],
                     now: float) -> None:
        """Note which options the configuration database does not have, if that is due: a getter
        returns the last value of a removed option, which does not count until another one is set.

        It is due every COMPARE_SECONDS, or COMPARE_SECONDS_MIN once an option has changed.
        `entries` reads the database and returns None if the mons do not answer, after which nothing
        changes. `now`: of any steady clock.
        """
        elapsed = None if self._compared_at is None else now - self._compared_at
        if elapsed is not None and elapsed < (
                COMPARE_SECONDS_MIN if self._notified else COMPARE_SECONDS):
            return
        self._compared_at, self._notified = now, False
        # Before the database is read: an option that is set in between must not count as removed.
        in_force = {name: _checked(self._get, name)[0] for name in SPECS}
        in_force.update({self._own_key(name): _checked(self._get_localized, name)[0]
                         for name in SPECS})
        config_entries = entries()
        if config_entries is not None:
            stored = self._stored(config_entries)
            self._removed = {key: value for key, value in in_force.items() if key not in stored}

    def _stored(self, entries: Iterable[ConfigEntry]) -> AbstractSet[str]:
        """Keys that the database has for this mgr; an entry with a mask may be for another one."""
        sections = ('global', 'mgr', 'mgr.' + self._mgr_id())
        return {entry.name[len(STORED_PREFIX):] for entry in entries
                if entry.section in sections and entry.name.startswith(STORED_PREFIX)}

    def _own_key(self, name: str) -> str:
        """The key of an option of this mgr alone; that of an option of all mgrs is its name."""
        return '%s/%s' % (self._mgr_id(), name)

    def _is_removed(self, key: str, value: Any) -> bool:
        """Whether `value`, which a getter returns, is only the last one of a removed option."""
        removed = self._removed
        return key in removed and bool(removed[key] == value)


def _checked(get: Callable[[str], Any], name: str) -> Tuple[Any, str]:
    """(the value of an option, or None if it is not set or invalid; why it is invalid, or '')."""
    try:
        value = get(name)
    except ValueError as error:
        return None, '%s is invalid (%s)' % (name, error)
    why = '' if value is None else why_invalid(name, value, value)
    return (None, why) if why else (value, '')
