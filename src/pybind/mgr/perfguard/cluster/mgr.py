# SPDX-License-Identifier: LGPL-2.1-or-later
"""Reads and changes the cluster through MgrModule; no other file calls the API of the mgr."""
import calendar
import errno
import json
import logging
import math
import threading
import time
from typing import (AbstractSet, Any, Callable, Dict, FrozenSet, Iterable, List, Mapping, Optional,
                    Sequence, Set, Tuple, Union)

from mgr_module import CommandResult, MgrModule

from ..compat import call_module, ceph_options, degraded_sleep
from ..errors import HealthChecks
from . import crush_preview, inventory
from .crush import CrushRules
from .dumps import (KnownItems, PgSummary, config_entries, count_states, health_checks,
                    option_changes, osdmap_from_dump, pool_counts)
from .set_by_others import SetByOthers
from .orchestrator import CEPHADM, CEPHADM_PREFIX, Orchestrating, OrchestratorReader
from .osd_commands import OsdCommands, OsdQuestions
from .ports import Grown, NewHosts, NoFuture, Outlook, View
from .sensors import Sensors
from .types import (OSD_ANSWER_SECONDS, INPUT, Balancing, Command, ConfigEntry, Json,
                    OptionChange, OsdMap, OsdSet, Placement, PoolSetting, PoolSpace, Question,
                    Readings, Reply, Signals, Space, pool_of, seed_of)

log = logging.getLogger(__name__)

#: Maximum time to wait for the configuration database, and for the bytes of an OSDMap.
CONFIG_TIMEOUT = 10.0
MAP_SECONDS = 30
#: Seconds for which a question is not asked again that the mons did not answer in time, as they may
#: be overloaded. They double each time, up to the maximum.
ASK_AGAIN_SECONDS, MOST_ASK_AGAIN_SECONDS = 10.0, 40.0
#: Maximum time to wait for mons that have answered nothing since they were waited for last.
SILENT_TIMEOUT = 5.0
#: Changes of the configuration database that are read; a campaign may make some of them.
CONFIG_CHANGES = 100
#: Maximum time to wait for the state of the orchestrator, without which a turn continues.
ORCHESTRATOR_TIMEOUT = 2.0
#: Maximum number of commands that are sent before the mons answer; a change of CRUSH with the most
#: pins that fit into one epoch has fewer. A mon carries out about 700 pins per second, and the
#: beacons of this mgr wait behind them: after 30 s without one (mon_mgr_beacon_grace) the mons
#: replace the mgr.
MOST_COMMANDS = 5000
NO_ANSWER = 'no answer from the mons'

#: Maximum number of PGs that ceph-mgr maps in one call, which holds the GIL for about 25 ms.
MOST_PGS_MAPPED = 4096
#: The report of a daemon on its slow operations, and the health check that adds them up.
SLOW_OPS = 'SLOW_OPS'
#: Default of upmap_max_deviation of the balancer, and its modes that balance PGs by upmaps (the
#: second one exists since Squid).
BALANCER_DEVIATION = 5.0
UPMAP_MODES = ('upmap', 'upmap-read')
#: Entries of the audit log from before this mgr became active; about 0.3 MB. Seconds until they are
#: asked for again if the mons do not answer.
AUDIT_ENTRIES, AUDIT_SECONDS = 1000, 30.0

#: For how long the versions of OSDs are not read again: metadata of 10,000 OSDs take half a second.
VERSIONS_SECONDS = 60.0
#: TIME_FORMAT of the module devicehealth, in UTC.
SAMPLE_TIME = '%Y%m%d-%H%M%S'


class MapView:
    """One OSDMap: its relevant parts, and the placement of any PG."""

    def __init__(self, handle: Any, known_items: Optional[KnownItems] = None) -> None:
        """`known_items`: the upmap items of earlier OSDMaps."""
        self._handle = handle
        dump = handle.dump()
        self.osdmap: OsdMap = osdmap_from_dump(dump, known_items)
        #: What the inventory needs besides. Since Reef, a dump takes seconds with 100,000 PGs: it
        #: has the read balance of each pool, for which CRUSH places all PGs.
        self.pool_rows: Sequence[Json] = [
            inventory.pool_row(row) for row in dump.get('pools', [])]
        self.crush_version: int = handle.get_crush_version()

    def crush(self) -> CrushRules:
        """That of this OSDMap: MgrModule.get('osd_map_crush') may be of a later one."""
        return CrushRules.from_dump(self._handle.get_crush().dump())

    def placement(self, pgid: str) -> Optional[Placement]:
        """The up and acting sets of a PG; None: there is no such PG."""
        pool = self.osdmap.pools.get(pool_of(pgid))
        seed = seed_of(pgid)
        if pool is None or seed >= pool.pg_num:
            return None
        sets = self._handle.pg_to_up_acting_osds(pool.id, seed)
        return Placement(tuple(sets['up']), tuple(sets['acting']), sets['acting_primary'])

    def pool_up(self, pool_id: int) -> Mapping[str, OsdSet]:
        """Up sets of all PGs of a pool; takes 6 us per PG, in large pools 20 us: there PG by PG,
        since one call for all would hold the GIL too long."""
        pg_num = self.osdmap.pools[pool_id].pg_num
        if pg_num <= MOST_PGS_MAPPED:
            return {pgid: tuple(up)
                    for pgid, up in self._handle.map_pool_pgs_up(pool_id).items()}
        return {'%d.%x' % (pool_id, seed):
                tuple(self._handle.pg_to_up_acting_osds(pool_id, seed)['up'])
                for seed in range(pg_num)}

    def primaries(self, pool_id: int) -> Mapping[str, int]:
        """Primaries of all PGs of a pool that have one; takes 20 us per PG; thread-safe."""
        primary_by_pgid: Dict[str, int] = {}
        for seed in range(self.osdmap.pools[pool_id].pg_num):
            primary = self._handle.pg_to_up_acting_osds(pool_id, seed)['acting_primary']
            if primary >= 0:
                primary_by_pgid['%d.%x' % (pool_id, seed)] = primary
        return primary_by_pgid


class MgrCluster:
    def __init__(self, mgr: MgrModule, stopping: Callable[[], bool],
                 clock: Callable[[], float]) -> None:
        """`clock`: seconds since the epoch; it never jumps."""
        self._mgr = mgr
        self._stopping = stopping
        self._clock = clock
        self._view: Optional[MapView] = None
        self._known_items = KnownItems()
        self._crush: Optional[CrushRules] = None
        self._crush_version = -1
        self._connecting = threading.Lock()
        self._summary = PgSummary(mgr, time.monotonic)
        self._asking = OsdCommands(mgr, time.monotonic)
        self._questions = OsdQuestions(self._asking, time.monotonic)
        self._sensors = Sensors(mgr, time.monotonic, self._summary, self._asking)
        self._set_by_others = SetByOthers()
        #: OSD -> its version, and when these were read.
        self._osd_versions: Dict[int, str] = {}
        self._versions_read_at = -math.inf
        #: When the audit log is read (inf: it was), and when it was last read for "balancer on" and
        #: "off".
        self._audit_due = self._debug_read_at = -math.inf
        self._orchestrator = OrchestratorReader(
            self._has_cephadm,
            lambda keys: self._values(CEPHADM_PREFIX, keys, ORCHESTRATOR_TIMEOUT),
            time.monotonic)
        #: Commands that were not answered in time.
        self._unanswered: List[Tuple[Command, CommandResult]] = []
        #: The last commands had no answer at all in time.
        self._are_silent = False
        #: Question, as JSON -> when it may be asked again, and the seconds until then.
        self._pauses: Dict[str, Tuple[float, float]] = {}

    # ---- Reading

    def map_view(self) -> MapView:
        """The newest OSDMap of this mgr; parsed once per epoch."""
        handle = self._mgr.get_osdmap()
        if self._view is None or self._view.osdmap.epoch != handle.get_epoch():
            self._view = MapView(handle, self._known_items)
        self._set_by_others.see(self._view.osdmap.flags, self._clock())
        return self._view

    def crush(self, version: int) -> CrushRules:
        """The CRUSH map of the last `map_view`; `version`: its version."""
        if self._crush is None or self._crush_version != version:
            assert self._view is not None and self._view.crush_version == version
            self._crush = self._view.crush()
            self._crush_version = version
        return self._crush

    def signals(self, osdmap: OsdMap) -> Signals:
        """The cheap signals of one turn: PG states, health, slow operations and space."""
        status = self._mgr.get('pg_status')
        health = json.loads(self._mgr.get('health').get('json') or '{}')
        checks, muted = health_checks(health)
        spaces = inventory.pool_spaces(self._mgr)
        # Of an OSD that has failed, ceph-mgr keeps the last report, in some releases until it
        # restarts. A health check that rests on such reports alone is out of date.
        reported = self._slow_daemons()
        down = {'osd.%d' % osd.id for osd in osdmap.osds.values() if not osd.up}
        slow = {daemon: number for daemon, number in reported.items() if daemon not in down}
        if reported and not slow:
            checks.pop(SLOW_OPS, None)
        counts = count_states(((row['state_name'], row['count'])
                               for row in status.get('pgs_by_state', [])), osdmap.pg_count)
        pools = pool_counts(status, osdmap.pools)
        # The summary by OSD is costly: these show when it may be outdated.
        self._summary.note(counts, pools, frozenset(
            osd.id for osd in osdmap.osds.values() if osd.is_up_and_in))
        return Signals(
            counts=counts, pool_counts=pools,
            misplaced_ratio=float(status.get('misplaced_ratio', 0.0)),
            misplaced_objects=int(status.get('misplaced_objects', 0)),
            slow_ops=sum(slow.values()), slow_daemons=slow, health=checks,
            muted=muted, health_status=health.get('status', ''),
            recovery_bytes_per_second=float(status.get('recovering_bytes_per_sec', 0.0)),
            recovered_objects=int(status.get('num_objects_recovered', 0)),
            pool_bytes={pool: int(space.get('stored', 0)) for pool, space in spaces.items()},
            pool_space={pool: inventory.pool_space(osdmap.pools[pool], space)
                        for pool, space in spaces.items() if pool in osdmap.pools})

    def _slow_daemons(self) -> Dict[str, int]:
        """Operations in flight for too long, by the OSD or mon that reports them."""
        slow: Dict[str, int] = {}
        for daemon, metrics in self._mgr.get_daemon_health_metrics().items():
            count = sum(int(metric.get('value', 0)) for metric in metrics
                        if metric.get('type') == SLOW_OPS)
            if count:
                slow[daemon] = count
        return slow

    def readings(self, view: View, signals: Signals) -> Readings:
        """Readings for the watch; call it once per stats_period."""
        return self._sensors.read(view, signals, self.crush(view.crush_version),
                                  self.stats_period())

    def read_loads(self, seconds: float) -> None:
        self._sensors.read_loads(seconds)

    def read_without_probes(self, seconds: float) -> None:
        self._sensors.read_without_probes(seconds)

    def read_by_pg(self, osds: AbstractSet[int]) -> None:
        self._sensors.read_by_pg(osds)

    def count_clients(self, counting: bool) -> None:
        self._sensors.count_clients(counting)

    def close(self) -> None:
        """Remove the performance queries of the OSDs."""
        self._sensors.close()

    def degraded_osds(self) -> FrozenSet[int]:
        """OSDs with a degraded PG. Which PGs these are would cost a dump of all PGs."""
        return self._summary.degraded(self.stats_period())

    def fsid(self) -> str:
        return str(self._mgr.get('mon_map')['fsid'])

    def stats_period(self) -> float:
        return float(self._mgr.get_ceph_option('mgr_stats_period'))

    def balancer_active(self) -> Optional[str]:
        """"true", "false", or None if it is not set."""
        value = inventory.balancer_option(self._mgr, 'active')
        return None if value is None else value.lower()

    def balancer_busy(self) -> bool:
        """Whether the balancer is off but still computes or executes an earlier plan.

        Meanwhile it refuses to execute another one with EINVAL. The plan with the name '' never
        exists: a balancer that is free answers ENOENT.
        """
        retval, _, error = self._balancer({'prefix': 'balancer execute', 'plan': ''})
        # Also EINVAL, "Balancer enabled": if its option says otherwise, it will notice that when it
        # wakes up, and may be carrying out a plan.
        return retval == -errno.EINVAL and (
            'enabled' not in error or self.balancer_active() == 'false')

    def balancing(self) -> Balancing:
        """The options of the balancer; defaults for options that are not set or invalid."""
        def option(name: str, default: str) -> str:
            value = inventory.balancer_option(self._mgr, name)
            return default if value is None else value

        deviation, pools = option('upmap_max_deviation', ''), option('pool_ids', '')
        mode = option('mode', 'upmap')
        return Balancing(
            float(deviation) if deviation.isdigit() else BALANCER_DEVIATION, mode in UPMAP_MODES,
            frozenset(int(pool) for pool in pools.replace(',', ' ').split() if pool.isdigit()),
            weight_sets=mode == 'crush-compat')

    def stored_options(self) -> Optional[Dict[str, Dict[str, str]]]:
        """The configuration database: section -> option -> value, without masked entries; None: the
        mons did not answer."""
        entries = self.config_entries()
        if entries is None:
            return None
        stored: Dict[str, Dict[str, str]] = {}
        for entry in entries:
            if not entry.mask:
                stored.setdefault(entry.section, {})[entry.name] = entry.value
        return stored

    def config_entries(self) -> Optional[Tuple[ConfigEntry, ...]]:
        """All of the configuration database; None: the mons did not answer."""
        reply = self._ask([{'prefix': 'config dump', 'format': 'json'}])[0]
        if reply.retval != 0:
            log.warning('config dump: %s', reply.error or 'no answer')
            return None
        return config_entries(json.loads(reply.out))

    def option_changes(self) -> Optional[Tuple[OptionChange, ...]]:
        """The last changes of the configuration database; None: the mons did not answer."""
        reply = self._ask([{'prefix': 'config log', 'num': CONFIG_CHANGES, 'format': 'json'}])[0]
        return option_changes(json.loads(reply.out)) if reply.retval == 0 else None

    def hear(self, entry: Mapping[str, Any]) -> None:
        """For the mgr's thread: a new entry of the cluster log or the audit log."""
        self._set_by_others.hear(entry, self._clock())

    def flags_set_by_others(self) -> FrozenSet[str]:
        """Flags that others have set, even if perfguard had set them already. The audit
        log is read once, and its new entries arrive by `hear`."""
        self._read_audit_log()
        return self._set_by_others.flags()

    def values_set_by_others(self, balancer_seconds: float) -> Mapping[str, Tuple[str, float]]:
        """Setting -> the value that others have set last, and when, even if it was the present
        one; see set_by_others.py. `balancer_seconds`: maximum age of a reading of the log for
        "balancer off", which does not arrive otherwise; it is AUDIT_SECONDS at least."""
        self._read_audit_log()
        now = self._clock()
        if balancer_seconds < math.inf \
                and now - self._debug_read_at >= max(AUDIT_SECONDS, balancer_seconds):
            self._debug_read_at = now
            self._read_log('debug')
        return self._set_by_others.values()

    def _read_audit_log(self) -> None:
        """Read the audit log unless it was read before. If the mons do not answer, a later call
        tries again."""
        if self._clock() >= self._audit_due:
            self._audit_due = math.inf if self._read_log('info') else \
                self._clock() + AUDIT_SECONDS

    def _read_log(self, level: str) -> bool:
        """Read the last entries of the audit log; False: the mons did not answer."""
        reply = self._ask([{'prefix': 'log last', 'num': AUDIT_ENTRIES, 'level': level,
                            'channel': 'audit', 'format': 'json'}])[0]
        if reply.retval == 0:
            self._set_by_others.read(json.loads(reply.out or '[]'), self._clock())
        return reply.retval == 0

    def inventory(self, view: View) -> inventory.Inventory:
        """Devices, pools and options; takes 0.1 s on a large cluster."""
        assert isinstance(view, MapView)
        return inventory.read(self._mgr, view.osdmap, view.pool_rows,
                              self.crush(view.crush_version), self.config_entries(),
                              ceph_options(self._mgr, inventory.DEFAULTS_READ), self._output)

    def _output(self, command: Command) -> str:
        """Output of a mon command; '' without an answer."""
        reply = self._ask([command])[0]
        return reply.out if reply.retval == 0 else ''

    def degraded_sleep(self, osd_versions: AbstractSet[str]) -> str:
        """The option for the sleep of OSDs after each object of degraded PGs: a newer one is used
        only if all mons and OSDs run the version of this mgr; see ports.Reader."""
        own_version = self._metadata('mgr', self._mgr.get_mgr_id(), 'ceph_version_short')
        mon_versions = self._metadata_of_mons('ceph_version_short')
        return degraded_sleep(
            self._mgr, bool(own_version) and mon_versions == osd_versions == {own_version})

    def _metadata(self, service: str, name: str, key: str) -> str:
        """One value of the metadata of a daemon; '' if unknown."""
        return str((self._mgr.get_metadata(service, name) or {}).get(key, ''))

    def _metadata_of_mons(self, key: str) -> Set[str]:
        """As `_metadata`, of all mons."""
        return {self._metadata('mon', str(mon['name']), key)
                for mon in self._mgr.get('mon_map')['mons']}

    def inquire(self, questions: Sequence[Question]) -> Mapping[Question, str]:
        """Known answers of OSDs; the others are requested without waiting."""
        return self._questions.answers(questions)

    def osd_space(self) -> Dict[int, Space]:
        return {row['osd']: Space(row['kb'] << 10, row['kb_used'] << 10, row.get('num_pgs'))
                for row in self._mgr.get('osd_stats').get('osd_stats', [])}

    def pool_shared(self) -> Dict[int, float]:
        return inventory.shared_ratios(self._mgr)

    def pgs_per_osd_limit(self) -> int:
        """mon_max_pg_per_osd, as the mgr has it, which raises TOO_MANY_PGS by that; 0: none."""
        return int(self._mgr.get_ceph_option('mon_max_pg_per_osd') or 0)

    def hard_pg_limit(self) -> int:
        """Number of PGs from which on an OSD accepts no other one (OSD::maybe_wait_for_max_pg), as
        the mgr has the options; 0: none."""
        ratio = float(self._mgr.get_ceph_option('osd_max_pg_per_osd_hard_ratio') or 0.0)
        return math.ceil(self.pgs_per_osd_limit() * ratio)

    def mon_pg_limits(self) -> Tuple[int, int]:
        """mon_max_pg_per_osd and mon_max_pool_pg_num by which the mons accept a pg_num; 0: none.
        Those that the configuration database has for the mons, else for all daemons, else those of
        the mgr. What a ceph.conf sets for the mons alone is not known."""
        stored = self.stored_options() or {}
        of_mons = {name: int(value) for section in ('global', 'mon')
                   for name, value in stored.get(section, {}).items() if value.isdigit()}
        return (of_mons.get('mon_max_pg_per_osd', self.pgs_per_osd_limit()),
                of_mons.get('mon_max_pool_pg_num',
                            int(self._mgr.get_ceph_option('mon_max_pool_pg_num') or 0)))

    def split_limit(self) -> int:
        """mgr_max_pg_num_change, as the mgr has it: ceph-mgr splits no PG of a pool whose pg_num is
        so much above its pgp_num (DaemonServer::adjust_pgs). Below 0: no limit."""
        name = 'mgr_max_pg_num_change'
        return int(ceph_options(self._mgr, [name]).get(name, -1))

    def default_crush_rule(self) -> int:
        """osd_pool_default_crush_rule, as the mgr has it; -1: the first rule."""
        return int(self._mgr.get_ceph_option('osd_pool_default_crush_rule'))

    def recommended_pg_nums(self) -> Dict[str, int]:
        """Pool -> pg_num_final of the pg_autoscaler, which may be close to the current pg_num: its
        advice on pg_num (would_adjust) concerns only pools in mode on. Raises OSError.

        It calls the module, because the key of an mgr may not send commands to mgrs.
        """
        try:
            retval, out, error = call_module(
                self._mgr, 'pg_autoscaler', '_command_autoscale_status', 'json')
            if retval != 0:
                raise OSError('pg_autoscaler: %s' % error)
            return {str(row['pool_name']): int(row['pg_num_final']) for row in json.loads(out)}
        except (LookupError, TypeError, ValueError) as failure:
            raise OSError('pg_autoscaler: %s' % failure) from failure

    def osd_versions(self, osds: Iterable[int]) -> Dict[int, str]:
        """The version of each OSD, as in "18.2.7"; '' if unknown. Read once a minute at most, and
        of new OSDs at once."""
        now = self._clock()
        if now - self._versions_read_at >= VERSIONS_SECONDS:
            self._osd_versions, self._versions_read_at = {}, now
        for osd in osds:
            if osd not in self._osd_versions:
                self._osd_versions[osd] = self._metadata('osd', str(osd), 'ceph_version_short')
        return {osd: self._osd_versions[osd] for osd in osds}

    def drives(self, osds: Iterable[int]) -> Dict[int, str]:
        """Object store and drive model of each OSD, as in "bluestore on INTEL_SSDSC2KB96"; '' if
        unknown."""
        return {osd: inventory.store_and_drive(self._mgr.get_metadata('osd', str(osd)) or {})
                for osd in osds}

    def drive_ids(self, osds: Iterable[int]) -> Dict[int, str]:
        """Vendor, model and serial number of the main drive of each OSD; '' if unknown."""
        return {osd: inventory.drive_id(self._mgr.get_metadata('osd', str(osd)) or {})
                for osd in osds}

    def device_ids(self) -> Dict[str, str]:
        """Device of an OSD, as in "h1:nvme0n1" -> vendor, model and serial number."""
        device_ids: Dict[str, str] = {}
        for metadata in self._mgr.get('osd_metadata').values():
            device_ids.update(inventory.device_ids(metadata))
        return device_ids

    def drive_samples(self, device_id: str, seconds: float) -> Dict[float, Json]:
        """Output of smartctl that the module devicehealth has stored in the last `seconds`, by the
        time at which it was stored. Raises RuntimeError. It blocks while the pool of that module
        does, so the loop must not call it."""
        since = time.strftime(SAMPLE_TIME, time.gmtime(time.time() - seconds))
        samples = self._mgr.remote('devicehealth', 'get_recent_device_metrics', device_id, since)
        return {float(calendar.timegm(time.strptime(taken, SAMPLE_TIME))): sample
                for taken, sample in samples.items()}

    def pool_space(self, pool_id: int) -> Optional[PoolSpace]:
        """None: no PG of the pool has been reported yet."""
        for pool in self._mgr.get('df').get('pools', []):
            if pool['id'] == pool_id:
                stats = pool['stats']
                return PoolSpace(int(stats['max_avail']), int(stats['stored']),
                                 int(stats['objects']))
        return None

    def release(self) -> str:
        """Version of the OSDs, as in "16.2.15"; several during an upgrade, '' if unknown."""
        reply = self._ask([{'prefix': 'versions', 'format': 'json'}])[0]
        if reply.retval != 0:
            return ''
        return ', '.join(sorted(map(_short, json.loads(reply.out).get('osd', {}))))

    def mgr_host(self) -> str:
        """The host of this mgr, with Kubernetes the node and not the pod; '' if unknown."""
        metadata = self._mgr.get_metadata('mgr', self._mgr.get_mgr_id()) or {}
        return str(metadata.get('hostname', ''))

    def free_bytes(self) -> int:
        """Free space of all OSDs, before replication."""
        return int(self._mgr.get('df')['stats']['total_avail_bytes'])

    def connection(self) -> Tuple[str, str]:
        """What a separate client needs to find the mons: path of ceph.conf, mon_host."""
        mons = self._mgr.get('mon_map')['mons']
        hosts = ','.join('[%s]' % ','.join(
            '%(type)s:%(addr)s' % address for address in mon['public_addrs']['addrvec'])
            for mon in mons)
        return str(self._mgr.get_ceph_conf_path()), hosts

    def ask(self, topic: str, osds: Iterable[int], command: Mapping[str, Any],
            patience_seconds: float = OSD_ANSWER_SECONDS) -> None:
        """Send OSDs a command without waiting for the answers; see OsdCommands."""
        self._asking.ask(topic, osds, command, patience_seconds)

    def asked(self, topic: str) -> Set[int]:
        """OSDs whose answer is expected."""
        return self._asking.asked(topic)

    def answers(self, topic: str) -> Dict[int, Any]:
        """Parsed answers since the last call, by OSD."""
        return {answer.osd: answer.parsed for answer in self._asking.answers(topic, json.loads)}

    # ---- Previews of CRUSH changes; only crush_map may be called in the thread of the loop

    def outlook(self, osdmap: OsdMap, weights: Mapping[int, float],
                crush_map: Optional[bytes], whole: bool = False,
                setting: Optional[PoolSetting] = None) -> Outlook:
        return crush_preview.outlook(osdmap, self._osdmap_bytes, weights, crush_map,
                                     self._stopping, whole, setting)

    def grown(self, osdmap: OsdMap, new: NewHosts) -> Union[Grown, NoFuture]:
        return crush_preview.grown(osdmap, self._osdmap_bytes, new, self._stopping)

    def shrunk(self, osdmap: OsdMap, lost: AbstractSet[int]) -> Outlook:
        return crush_preview.shrunk(osdmap, self._osdmap_bytes, lost, self._stopping)

    def crush_map(self) -> Tuple[bytes, int]:
        """The compiled CRUSH map of the mons and its version; raises OSError."""
        data, version = self._bytes_of({'prefix': 'osd getcrushmap'}, 'the CRUSH map')
        return data, int(version) if version.isdigit() else -1

    def compiled_crush_map(self, source: bytes, ids: int) -> bytes:
        return crush_preview.compiled(source, ids, self._stopping)

    def crush_rules(self, crush_map: bytes) -> CrushRules:
        return crush_preview.rules_of(crush_map, self._stopping)

    def _osdmap_bytes(self, epoch: int) -> bytes:
        return self._bytes_of({'prefix': 'osd getmap', 'epoch': epoch}, 'OSDMap %d' % epoch)[0]

    def _bytes_of(self, command: Command, subject: str) -> Tuple[bytes, str]:
        """Binary and text output of a mon command; raises OSError."""
        try:
            # send_command converts the output to text, which damages a map.
            with self._connecting:
                rados = self._mgr.rados  # connects when it is used first
            retval, data, error = rados.mon_command(json.dumps(command), b'',
                                                    timeout=MAP_SECONDS)
        except Exception as failure:  # the exceptions of rados have no common base class
            raise OSError('could not get %s from the mons: %s' % (subject, failure)) from failure
        if retval != 0 or not data:
            raise OSError('could not get %s from the mons: %s' % (subject, error or retval))
        # Of a command that succeeded, the third value is its text output.
        return bytes(data), str(error).strip()

    # ---- Acting

    def run(self, commands: Sequence[Command], timeout: float = 60.0) -> List[Reply]:
        """Send all mon commands, then wait: the mon batches them into few proposals.

        Above MOST_COMMANDS they are sent in parts, each after the answers to the one before.
        Without these, the rest is not sent and counts as unanswered. Mons that remain silent are
        not waited for as long as before: orders of operators wait meanwhile.
        """
        if self._are_silent and self.unanswered():
            timeout = min(timeout, SILENT_TIMEOUT)
        deadline = time.monotonic() + timeout
        replies: List[Reply] = []
        while len(replies) < len(commands) and not any(reply.retval is None for reply in replies):
            sent = commands[len(replies):len(replies) + MOST_COMMANDS]
            results = [self._send(command) for command in sent]
            replies += self._wait(results, deadline)
            self._unanswered += [row for row in zip(sent, results) if not row[1].ev.is_set()]
        if replies:
            self._are_silent = all(reply.retval is None for reply in replies)
        return replies + [Reply(None, error=NO_ANSWER)] * (len(commands) - len(replies))

    def _ask(self, questions: Sequence[Command], timeout: Optional[float] = None) -> List[Reply]:
        """Send mon commands that only read, and wait as `run` does.

        If one of them was sent before and has no answer yet, none is sent, and all count as
        unanswered at once. Mons that have a quorum again answer all late commands together, 0.3 MB
        each for the configuration database of 1,000 OSDs; and the loop must not wait for the same
        mons again and again. A late answer is out of date, and not used; after one, the question
        is not asked for a while.
        """
        now, keys = self._clock(), [json.dumps(row, sort_keys=True) for row in questions]
        # Pauses are kept for a while after their end, so that the next one is longer.
        self._pauses = {key: (until, pause) for key, (until, pause) in self._pauses.items()
                        if now < until + MOST_ASK_AGAIN_SECONDS}
        late = [command for command, _ in self._unanswered] if self.unanswered() else []
        is_pending = any(question in late for question in questions)
        is_paused = any(key in self._pauses and now < self._pauses[key][0] for key in keys)
        if is_pending or is_paused:
            return [Reply(None, error=NO_ANSWER)] * len(questions)
        replies = self.run(questions, CONFIG_TIMEOUT if timeout is None else timeout)
        for key, reply in zip(keys, replies):
            _, pause = self._pauses.pop(key, (0.0, ASK_AGAIN_SECONDS / 2))
            if reply.retval is None:
                pause = min(2 * pause, MOST_ASK_AGAIN_SECONDS)
                self._pauses[key] = self._clock() + pause, pause
        return replies

    def _send(self, command: Command) -> CommandResult:
        result = CommandResult('')
        arguments = {key: value for key, value in command.items() if key != INPUT}
        input_data = (command[INPUT],) if INPUT in command else ()
        self._mgr.send_command(result, 'mon', '', json.dumps(arguments), '', *input_data)
        return result

    def unanswered(self) -> bool:
        """Whether the mons may still execute a command that they have not answered.

        The mgr resends it when it connects to a mon (MonClient::_resend_mon_commands).
        """
        self._unanswered = [row for row in self._unanswered if not row[1].ev.is_set()]
        return bool(self._unanswered)

    def mons_alike(self) -> bool:
        """Whether all mons are known to run the same version of Ceph."""
        versions = self._metadata_of_mons('ceph_version')
        return len(versions) == 1 and '' not in versions

    def orchestrating(self) -> Orchestrating:
        return self._orchestrator()

    def _has_cephadm(self) -> bool:
        return bool(self._mgr.get_module_option_ex('orchestrator', 'orchestrator') == CEPHADM)

    def stored(self, keys: Sequence[str]) -> Dict[str, Optional[str]]:
        """Values of keys of this module that the mons have stored; None: no such key.

        Keys without an answer are left out.
        """
        return self._values('mgr/%s/' % self._mgr.module_name, keys)

    def _values(self, prefix: str, keys: Sequence[str],
                timeout: Optional[float] = None) -> Dict[str, Optional[str]]:
        """As `stored`, of keys with any prefix; `timeout`: in seconds; None: CONFIG_TIMEOUT."""
        replies = self._ask([{'prefix': 'config-key get', 'key': prefix + key} for key in keys],
                            timeout)
        return {key: reply.out if reply.retval == 0 else None
                for key, reply in zip(keys, replies) if reply.retval in (0, -errno.ENOENT)}

    def active_gid(self) -> int:
        """The gid of the active mgr, from the MgrMap."""
        return int(self._mgr.get('mgr_map').get('active_gid', 0))

    def page(self) -> str:
        """Address of the page in the dashboard; '' while no dashboard serves."""
        services = self._mgr.get('mgr_map').get('services') or {}
        address = str(services.get('dashboard', ''))
        return address and address.rstrip('/') + '/perfguard'

    def switch_balancer(self, active: bool) -> Reply:
        """Run `balancer on` or `off`.

        It calls the module, because the key of an mgr may not send commands to mgrs.
        """
        retval, out, error = self._balancer({'prefix': 'balancer on' if active else 'balancer off'})
        return Reply(retval, out, error)

    def remove_osd(self, osd: int) -> Reply:
        """Run `orch osd rm --replace`, without waiting: cephadm drains the OSD and removes it once
        that is safe."""
        try:
            # The second argument keeps the id.
            result = call_module(self._mgr, CEPHADM, 'remove_osds', [str(osd)], True)
        except OSError as failure:
            return Reply(-errno.ENOENT, '', str(failure))
        # orchestrator.OrchResult
        error = str(result.exception_str or '')
        return Reply(-errno.EIO if error else 0, str(result.result or ''), error)

    def _balancer(self, command: Mapping[str, str]) -> Tuple[int, str, str]:
        """(0 or a negative errno, output, error) of a command of the balancer; -ENOENT if the
        module does not run."""
        try:
            retval, out, error = call_module(self._mgr, 'balancer', '_handle_command', '', command)
        except OSError as failure:
            return -errno.ENOENT, '', str(failure)
        return int(retval), str(out), str(error)

    def _wait(self, results: Sequence[CommandResult], deadline: float) -> List[Reply]:
        """The replies of the mons, in order; NO_ANSWER for those missing at the deadline (by
        time.monotonic), or when the module stops."""
        replies = []
        for result in results:
            # Short steps: a module that is being disabled must not wait for mons without quorum.
            while not result.ev.wait(max(0.0, min(0.5, deadline - time.monotonic()))):
                if self._stopping():
                    deadline = min(deadline, time.monotonic())
                if time.monotonic() >= deadline:
                    break
            replies.append(Reply(result.r, result.outb, result.outs) if result.ev.is_set()
                           else Reply(None, error=NO_ANSWER))
        return replies

    # ---- Publishing

    def health_checks(self, checks: HealthChecks) -> None:
        self._mgr.set_health_checks(dict(checks))

    def progress(self, event_id: str, message: str, share: float) -> None:
        self._progress('update', event_id, message, share, [], True)

    def progress_done(self, event_id: str) -> None:
        self._progress('complete', event_id)

    def _progress(self, method: str, *args: Any) -> None:
        try:
            call_module(self._mgr, 'progress', method, *args)
        except OSError as error:
            # The progress module is optional.
            log.debug('progress %s: %s', method, error)

    def cluster_log(self, text: str) -> None:
        self._mgr.cluster_log('cluster', self._mgr.ClusterLogPrio.INFO, 'perfguard: ' + text)


def _short(version: str) -> str:
    """"16.2.15" from "ceph version 16.2.15 (...) pacific (stable)"."""
    words = version.split()
    return words[2] if len(words) > 2 else version
