# SPDX-License-Identifier: LGPL-2.1-or-later
"""Devices, pools and options of the cluster, as far as the mgr knows them.

They rarely change and cost more to read than the signals of a turn, so they are read every few
minutes.
"""
import json
import os
import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from typing import (Any, Callable, Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional,
                    Sequence, Tuple)

from .crush import CrushRules
from .types import MAX_SCRUBS, MCLOCK_OVERRIDE, QUEUE, ConfigEntry, Json, OsdMap, Pool

#: The option of the module whose default is the version on the host of an mgr.
VERSION_OPTION = 'installed_version'
VERSION_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'version.py')
#: Options whose default in this release is read from the mgr.
DEFAULTS_READ = ('ms_async_op_threads', MAX_SCRUBS, MCLOCK_OVERRIDE, 'osd_memory_target', QUEUE,
                 'osd_op_queue_cut_off')


# ---- To which OSDs the entries of the configuration database apply

class ConfigTarget(NamedTuple):
    """An OSD, as sections and masks refer to it."""
    osd: int
    device_class: str = ''
    #: Type and name of each bucket above it in CRUSH, from the lowest.
    location: Tuple[Tuple[str, str], ...] = ()

    @property
    def sections(self) -> Tuple[str, ...]:
        """From the least specific one on."""
        return 'global', 'osd', 'osd.%d' % self.osd


def precedence(entry: ConfigEntry, target: ConfigTarget) -> Optional[Tuple[int, int]]:
    """How specific an entry of the configuration is for an OSD. Of the entries of an option, the
    one with the highest value is in force; None: the entry does not apply to the OSD.

    The most specific section precedes, and within a section the most specific mask: a bucket the
    lower it is, then a device class (ConfigMap::generate_entity_map, OptionMask::get_precision).
    """
    if entry.section not in target.sections:
        return None
    levels = {bucket: level for level, bucket in enumerate(reversed(target.location), 2)}
    levels['class', target.device_class] = 1
    precision = 0
    for part in filter(None, entry.mask.split('/')):
        kind, _, name = part.partition(':')
        if (kind, name) not in levels:
            return None
        precision = max(precision, levels[kind, name])
    return target.sections.index(entry.section), precision


def in_force(entries: Iterable[ConfigEntry], target: ConfigTarget) -> Optional[ConfigEntry]:
    """The one of an option's entries that precedes on an OSD, if any applies to it. Of equal ones,
    that is the last in the order of the keys in which the mons store them."""
    ranked = [(rank, entry) for entry in entries
              for rank in [precedence(entry, target)] if rank is not None]
    return max(ranked, key=lambda row: (row[0], '%s/%s' % (
        row[1].who, row[1].name)))[1] if ranked else None


# ---- What is read

@dataclass(frozen=True)
class OsdFacts:
    """An OSD that is up and in, and its host."""
    osd: int
    #: Its host in CRUSH, and the host on which it runs.
    host: str = ''
    hostname: str = ''
    root: str = ''
    device_class: str = ''
    #: Vendor and model of its main drive; '' if unknown.
    model: str = ''
    #: None: the OSD does not report it.
    rotational: Optional[bool] = None
    store: str = 'bluestore'
    #: bluestore_min_alloc_size with which the OSD was created.
    min_alloc_bytes: Optional[int] = None
    #: Memory of its host.
    memory_bytes: Optional[int] = None
    total_bytes: int = 0
    used_bytes: int = 0
    pgs: Optional[int] = None
    #: As devices_of.
    devices: Tuple[str, ...] = ()
    #: Bytes of its main device, and of that of its DB; None: unknown, or it has none.
    main_bytes: Optional[int] = None
    db_bytes: Optional[int] = None
    #: Distribution of its host or container, as in "ubuntu", and its version, as in "17.2.7".
    distro: str = ''
    version: str = ''
    #: Type and name of each bucket above it in CRUSH, from the lowest.
    location: Tuple[Tuple[str, str], ...] = ()

    @property
    def config_target(self) -> ConfigTarget:
        return ConfigTarget(self.osd, self.device_class, self.location)


#: The type of failure domains, how many a PG needs, and how many there are.
Domains = Tuple[str, int, int]


@dataclass(frozen=True)
class PoolFacts:
    id: int
    name: str
    erasure: bool = False
    size: int = 3
    pg_num: int = 128
    #: "rbd", "cephfs", "rgw", ...
    applications: FrozenSet[str] = frozenset()
    flags: FrozenSet[str] = frozenset()
    #: compression_mode of the pool; '' if it is not set.
    compression: str = ''
    #: The CRUSH roots and device classes of its OSDs.
    places: FrozenSet[Tuple[str, str]] = frozenset()
    #: It holds the metadata of a file system.
    fs_metadata: bool = False
    #: Bytes on all its OSDs if nothing were shared, and what is shared by clones of snapshots.
    stored_bytes: int = 0
    shared_bytes: int = 0
    #: Shards of a PG that may be lost without losing data.
    redundancy: int = 2
    #: Its failure domains (scarcest_domains); ('', 0, 0): the rule takes several trees.
    domains: Domains = ('', 0, 0)
    #: How many times its share of the reads the busiest OSD serves if all PGs are read alike; None:
    #: erasure coded, or a release before Reef.
    read_score: Optional[float] = None


@dataclass(frozen=True)
class StandbyMgr:
    """The report of a standby mgr to the mons about this module when it started."""
    name: str
    #: None: it does not have the module; '': the version is unknown.
    version: Optional[str]
    #: Why it cannot run the module; '' if it can.
    error: str = ''


@dataclass(frozen=True)
class Inventory:
    osds: Tuple[OsdFacts, ...] = ()
    pools: Tuple[PoolFacts, ...] = ()
    #: The configuration database; None: the mons did not answer.
    config: Optional[Tuple[ConfigEntry, ...]] = ()
    #: Defaults of the options in DEFAULTS_READ, of those that this release knows.
    defaults: Mapping[str, str] = field(default_factory=dict)
    #: Option of the balancer -> value in force; unknown ones are left out.
    balancer: Mapping[str, str] = field(default_factory=dict)
    min_compat_client: str = ''
    require_osd_release: str = ''
    nearfull_ratio: float = 0.85
    #: pg_upmap_primary entries.
    upmap_primaries: Tuple[str, ...] = ()
    #: Feature release of clients -> connections; read only if there are such entries.
    clients: Mapping[str, int] = field(default_factory=dict)
    standbys: Tuple[StandbyMgr, ...] = ()
    #: Version of the module in the active mgr, and of its files now; '': they are missing.
    version: str = ''
    installed: str = ''


#: What the advice needs of the dump of a pool, besides its read balance.
_POOL_KEYS = ('pool', 'pool_name', 'crush_rule', 'size', 'pg_num', 'flags_names', 'options',
              'application_metadata')


def read(mgr: Any, osdmap: OsdMap, pool_rows: Sequence[Json], crush: CrushRules,
         config: Optional[Tuple[ConfigEntry, ...]], defaults: Mapping[str, str],
         ask: Callable[[Mapping[str, str]], str]) -> Inventory:
    """Read the inventory. `pool_rows` (see `pool_row`): of the dump of `osdmap`; `config`: the
    configuration database, None: the mons did not answer; `ask`: sends a mon command and returns
    its output, '' without an answer; `defaults`: those of the mgr, whose options are those of the
    OSDs' release."""
    mgr_map = mgr.get('mgr_map')
    primaries = tuple(osdmap.upmap_primaries)
    osds = tuple(_osds(osdmap, crush, mgr.get('osd_metadata'), mgr.get('osd_stats')))
    places = {rule: frozenset((osd.root, osd.device_class) for osd in osds
                              if crush.weight_of(rule, osd.osd) > 0)
              for rule in {dumped['crush_rule'] for dumped in pool_rows}}
    domains = {(rule, size): scarcest_domains(rule, size, crush) for rule, size in {
        (pool.crush_rule, pool.size) for pool in osdmap.pools.values()}}
    spaces = pool_spaces(mgr)
    shared = shared_bytes(mgr, spaces)
    return Inventory(
        osds=osds,
        pools=tuple(_pool(dumped, osdmap.pools[dumped['pool']], domains,
                          places[dumped['crush_rule']], spaces.get(dumped['pool'], {}),
                          shared.get(dumped['pool'], 0)) for dumped in pool_rows),
        config=config, defaults=defaults, balancer=balancer_options(mgr),
        min_compat_client=osdmap.min_compat_client,
        require_osd_release=osdmap.require_osd_release,
        nearfull_ratio=osdmap.nearfull_ratio, upmap_primaries=primaries,
        clients=client_releases(ask({'prefix': 'features', 'format': 'json'}))
        if primaries else {},
        standbys=standbys(mgr_map, mgr.module_name),
        version=_mgr_with_module(mgr_map, mgr.module_name).version or '',
        installed=installed_version())


def standbys(mgr_map: Json, module: str) -> Tuple[StandbyMgr, ...]:
    """From the MgrMap, which contains the modules of each mgr since its start."""
    return tuple(_mgr_with_module(standby, module) for standby in mgr_map.get('standbys', []))


def _mgr_with_module(mgr: Json, module: str) -> StandbyMgr:
    """The module as one mgr has it; `mgr`: its entry, or the MgrMap itself for the active one."""
    entry: Json = next((candidate for candidate in mgr.get('available_modules', [])
                        if candidate['name'] == module), {})
    version = entry.get('module_options', {}).get(VERSION_OPTION, {}).get('default_value', '')
    return StandbyMgr(
        str(mgr.get('name', '')), str(version) if entry else None,
        '' if entry.get('can_run', True) else str(entry.get('error_string', '')))


def balancer_options(mgr: Any) -> Dict[str, str]:
    """`Inventory.balancer`."""
    names = ('active', 'mode', 'upmap_max_deviation')
    options = {name: balancer_option(mgr, name) for name in names}
    return {name: value.lower() for name, value in options.items() if value is not None}


def balancer_option(mgr: Any, name: str) -> Optional[str]:
    """The value of an option of the balancer; None: it is not set, or invalid.

    ceph-mgr raises ValueError for a number that it cannot read. Up to Nautilus, upmap_max_deviation
    was a share such as 0.01, and what was set then is still stored.
    """
    try:
        value = mgr.get_module_option_ex('balancer', name)
    except ValueError:
        return None
    return None if value is None else str(value)


def _osds(osdmap: OsdMap, crush: CrushRules, metadata: Json, stats: Json) -> List[OsdFacts]:
    """The OSDs that are up and in, by id. `metadata` and `stats`: those of all OSDs."""
    rows = {row['osd']: row for row in stats.get('osd_stats', [])}
    return [_osd(osd.id, crush, metadata.get(str(osd.id)) or {}, rows.get(osd.id, {}))
            for osd in sorted(osdmap.osds.values(), key=lambda osd: osd.id)
            if osd.is_up_and_in]


def _osd(osd: int, crush: CrushRules, metadata: Json, row: Json) -> OsdFacts:
    """An OSD by its metadata and its row of "osd df"."""
    memory = _number(metadata.get('mem_total_kb'))
    rotational = _number(metadata.get('rotational'))
    return OsdFacts(
        osd, crush.host_of(osd) or '', str(metadata.get('hostname', '')), crush.root_of(osd),
        crush.class_of(osd), drive_model(metadata),
        rotational=None if rotational is None else bool(rotational),
        store=str(metadata.get('osd_objectstore', '')),
        min_alloc_bytes=_number(metadata.get('bluestore_min_alloc_size')),
        memory_bytes=None if memory is None else memory << 10,
        total_bytes=int(row.get('kb', 0)) << 10, used_bytes=int(row.get('kb_used', 0)) << 10,
        pgs=row.get('num_pgs'), devices=devices_of(metadata),
        main_bytes=_number(metadata.get('bluestore_bdev_size')), db_bytes=_number(
            metadata.get('bluefs_db_size')) if metadata.get('bluefs_dedicated_db') == '1' else None,
        distro=str(metadata.get('distro', '')), version=str(metadata.get('ceph_version_short', '')),
        location=crush.location_of(osd))


def pool_row(dumped: Json) -> Json:
    """What `read` needs of the dump of a pool: views of OSDMaps are kept for longer than dumps."""
    row = {key: dumped[key] for key in _POOL_KEYS if key in dumped}
    return {**row, 'read_balance': {
        'score_acting': (dumped.get('read_balance') or {}).get('score_acting')}}


def _pool(dumped: Json, pool: Pool, domains: Mapping[Tuple[int, int], Domains],
          places: FrozenSet[Tuple[str, str]], space: Json, shared: int) -> PoolFacts:
    """A pool as the advice sees it. `dumped`: see `pool_row`; `domains`: by rule and size."""
    options, applications = dumped.get('options') or {}, dumped.get('application_metadata') or {}
    return PoolFacts(
        dumped['pool'], dumped['pool_name'], pool.erasure,
        dumped['size'], dumped['pg_num'], frozenset(applications),
        frozenset(filter(None, dumped.get('flags_names', '').split(','))),
        str(options.get('compression_mode', '')), places,
        'metadata' in applications.get('cephfs', ()), int(space.get('stored_raw', 0)), shared,
        redundancy=dumped['size'] - pool.data_shards,
        domains=domains[pool.crush_rule, pool.size],
        read_score=dumped['read_balance']['score_acting'])


def scarcest_domains(rule: int, size: int, crush: CrushRules) -> Domains:
    """(type, how many a PG needs, how many exist) of the kind of bucket of which a rule has the
    fewest to spare: its failure domains, or what it chooses above them. ('', 0, 0): the rule does
    not exist, or takes several trees."""
    if len(crush.spread(rule, size).takes) != 1:
        return '', 0, 0
    osds = [osd for osd in crush.weights() if crush.weight_of(rule, osd) > 0]
    choices = [*crush.buckets_needed(rule, size),
               (crush.failure_domain(rule) or 'osd', crush.domains_needed(rule, size))]
    # The last number less the one before: how many there are to spare.
    return min(((kind, needed, len(crush.domains_of(osds, kind))) for kind, needed in choices),
               key=lambda row: row[2] - row[1])


def pool_spaces(mgr: Any) -> Dict[int, Json]:
    """Pool -> its `stats` of ``ceph df``."""
    return {pool['id']: pool['stats'] for pool in mgr.get('df').get('pools', [])}


def pool_space(pool: Pool, space: Json) -> int:
    """Bytes that one copy of a pool's data (all k data shards together) takes on its OSDs, as
    `Signals.pool_space`: what clones of snapshots share counts for each of them. 0: not known.
    `space`: its row of pool_spaces."""
    used = int(space.get('bytes_used', 0))
    return (used + _unused_bytes(space)) * pool.data_shards // max(1, pool.size) if used else 0


def shared_bytes(mgr: Any, spaces: Mapping[int, Json]) -> Dict[int, int]:
    """Pool -> bytes that clones of snapshots share, as far as is known, without pools of which
    nothing is shared: what takes no space, but at most the share of clones among the objects.

    `spaces`: as pool_spaces.
    """
    unused = {pool: _unused_bytes(space) for pool, space in spaces.items()}
    if not any(unused.values()):
        return {}
    clone_ratios = {row['poolid']: row['stat_sum']['num_object_clones'] /
                    max(row['stat_sum']['num_objects'], 1)
                    for row in mgr.get('pool_stats').get('pool_stats', [])}
    shared = {pool: min(number, round(int(spaces[pool]['stored_raw']) * clone_ratios.get(pool, 0)))
              for pool, number in unused.items()}
    return {pool: number for pool, number in shared.items() if number > 0}


def _unused_bytes(space: Json) -> int:
    """Bytes of a pool that are stored and take no space, not counting the savings of compression.

    Clones share them; but objects may also be sparse, and the space is reported later than what is
    stored.
    """
    saved = int(space.get('compress_under_bytes', 0)) - int(space.get('compress_bytes_used', 0))
    return max(0, int(space.get('stored_raw', 0)) - int(space.get('bytes_used', 0)) - max(0, saved))


def shared_ratios(mgr: Any) -> Dict[int, float]:
    """Pool -> the bytes that clones share, as a share of what is stored."""
    spaces = pool_spaces(mgr)
    return {pool: number / int(spaces[pool]['stored_raw'])
            for pool, number in shared_bytes(mgr, spaces).items()}


def _number(value: Any) -> Optional[int]:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() else None


def client_releases(out: str) -> Dict[str, int]:
    """Feature release -> number of connected clients, from ``ceph features``."""
    numbers: Dict[str, int] = {}
    if out:
        groups: Sequence[Json] = json.loads(out).get('client', [])
        for group in groups:
            release = str(group['release'])
            numbers[release] = numbers.get(release, 0) + int(group['num'])
    return numbers


def drive_id(metadata: Mapping[str, str]) -> str:
    """Vendor, model and serial number of the main drive of an OSD, never those of the drive of its
    DB; '' if unknown.

    From ``device_ids``, "sda=VENDOR_MODEL_SERIAL,nvme0n1=...".
    """
    ids = _ids(metadata)
    main = metadata.get('bluestore_bdev_devices', '').split(',')[0]
    other_devices = db_drives(metadata)
    candidates = [drive for name, drive in ids.items() if name not in other_devices]
    # If the main device has no id, the only one that is not of the DB is taken for it.
    return str(ids.get(main) or (candidates[0] if len(candidates) == 1 else ''))


def _ids(metadata: Mapping[str, str]) -> Dict[str, str]:
    return dict(pair.split('=', 1) for pair in metadata.get('device_ids', '').split(',')
                if '=' in pair)


def db_drives(metadata: Mapping[str, str]) -> FrozenSet[str]:
    """Names of the drives of the DB and of the WAL of an OSD, if they are not its main one."""
    return frozenset(name for key in ('db', 'wal')
                     if metadata.get('bluefs_dedicated_' + key) == '1'
                     for name in metadata.get('bluefs_%s_devices' % key, '').split(',') if name)


def devices_of(metadata: Mapping[str, str]) -> Tuple[str, ...]:
    """Names of the devices of an OSD with its host, as in "h1:nvme0n1": the main one first, then
    those of its DB and of its WAL."""
    names = [*metadata.get('bluestore_bdev_devices', '').split(','), *sorted(db_drives(metadata))]
    return tuple('%s:%s' % (metadata.get('hostname', ''), name)
                 for name in dict.fromkeys(names) if name)


def shared_devices(devices: Mapping[int, Sequence[str]]) -> Dict[int, List[str]]:
    """OSD -> the devices that it shares with others. `devices`: OSD -> as devices_of."""
    users = Counter(chain.from_iterable(devices.values()))
    shared = {name for name, number in users.items() if number > 1}
    return {osd: [name for name in names if name in shared]
            for osd, names in devices.items() if not shared.isdisjoint(names)}


def device_ids(metadata: Mapping[str, str]) -> Dict[str, str]:
    """Device of an OSD, as in devices_of -> vendor, model and serial number, if they are known."""
    devices, ids = devices_of(metadata), _ids(metadata)
    named = {device: ids.get(device.rpartition(':')[2], '') for device in devices}
    if devices:
        named[devices[0]] = drive_id(metadata)
    return {device: device_id for device, device_id in named.items() if device_id}


def drive_model(metadata: Mapping[str, str]) -> str:
    """Model of the main drive of an OSD; '' if unknown, as for virtual disks."""
    return drive_id(metadata).rpartition('_')[0]


def store_layout(metadata: Mapping[str, str]) -> str:
    """Kind of store of an OSD, with the devices of its DB and WAL if they are not the main one.

    For example "bluestore, DB on flash"; '' if unknown. A commit waits for the device of the WAL,
    which is that of the DB unless it has its own.
    """
    parts = [metadata.get('osd_objectstore', '')]
    for key, name in (('db', 'DB'), ('wal', 'WAL')):
        if metadata.get('bluefs_dedicated_' + key) == '1':
            rotational = metadata.get('bluefs_%s_rotational' % key) == '1'
            parts.append('%s on %s' % (name, 'disk' if rotational else 'flash'))
    return ', '.join(filter(None, parts))


def store_and_drive(metadata: Json) -> str:
    """For example "bluestore on INTEL_SSDSC2KB96"; without the model if it is unknown."""
    store, model = str(metadata.get('osd_objectstore', '')), drive_model(metadata)
    return ' on '.join(filter(None, (store, model)))


def installed_version(path: str = VERSION_FILE) -> str:
    """The version of the files as they are now, which an upgrade replaces before the mgr is
    restarted; '' if they are missing or damaged."""
    try:
        with open(path, encoding='utf-8') as file:
            version = re.search(r"^VERSION = '([^']*)'", file.read(), re.MULTILINE)
    except (OSError, ValueError):
        return ''
    return version[1] if version else ''
