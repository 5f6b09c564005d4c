# SPDX-License-Identifier: LGPL-2.1-or-later
"""A real Ceph cluster on the loopback address, for tests and benches.

    with Cluster.up(osds=6) as c:
        c.pool_create('p', 64)
        c.wait_clean(30)
        print(c.mon('osd df'))
"""

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
import uuid
from pathlib import Path
from types import FrameType, TracebackType
from typing import (Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple,
                    Type, cast)

from . import config, modules, pools, ports, releases
from .boot import OSD_BYTES, Boot, check_room
from .connection import (DEFAULT_TIMEOUT, Connection, Handle, Relayed, Reply, bounded,
                         parse)
from .daemons import Daemons
from .dashboard import Dashboard
from .errors import ClusterError, CommandError, WaitTimeout
from .load_control import Load
from .patience import patient
from .placement import host_of_added, host_of_first, location
from .pgstats import PgStats
from .state import (State, directories, is_stopped, new_directory, process_identity,
                    remove_empty_base)

#: Deadlines for a machine that runs other clusters as well.
BOOT_TIMEOUT = 120.0
MGR_TIMEOUT = 90.0
POLL_SECONDS = 0.1

LOOPBACK = '127.0.0.1'


class Cluster:
    """One cluster. All its files are in one directory."""

    def __init__(self, directory: Path, state: State, release: releases.Release,
                 port_block: Optional[ports.PortBlock] = None,
                 namespaces: Optional[Mapping[str, str]] = None) -> None:
        """Use `up` or `attach`."""
        self.directory = directory
        self.release = release
        self._state = state
        self._ports = port_block
        self._daemons = Daemons(directory, state.tied)
        self._namespaces = namespaces or {}
        self._boot = self._new_boot()
        self._connection = Connection(self.conf_path)
        self._pg_stats = PgStats(self._connection)
        self._loads: List[Load] = []
        self._is_down = False

    # -- Life cycle

    @classmethod
    def up(cls, release: str = 'pacific', osds: int = 6, hosts: int = 3, racks: int = 0,
           mons: int = 1, mgrs: int = 1, store: str = 'memstore',
           conf: Optional[Mapping[str, Any]] = None, directory: Optional[Path] = None,
           module_dir: Optional[Path] = None, tied: bool = True, keep_logs: bool = False,
           address: str = LOOPBACK, namespaces: Optional[Mapping[str, str]] = None) -> 'Cluster':
        """Boot a cluster; returns when all its OSDs are up and its mgr is available.

        `conf` overrides the default settings, see config.merge. A `tied` cluster ends with this
        process, however that ends; other clusters run until `down`. A cluster that does not boot
        is removed. Daemons such as ``osd.3`` run in their network namespace of `namespaces`; they
        need a ``public addr`` in `conf`, from which `address`, that of all others, can be reached.
        """
        if store not in OSD_BYTES:
            raise ClusterError(f'unknown store {store!r}: memstore or bluestore')
        if min(osds, racks) < 0 or min(hosts, mons, mgrs) < 1 or max(mons, mgrs) > 9:
            raise ClusterError('at least one host, and one to nine mons and mgrs')
        remove_abandoned()
        ready = releases.get(release)
        directory = new_directory(ready.name, directory)
        cluster = None
        try:
            check_room(directory, store, osds, mons, mgrs)
            block = ports.claim(20 + ports.PORTS_PER_OSD * max(60, 2 * osds))
            state = State(
                release=release, store=store, fsid=str(uuid.uuid4()), tied=tied,
                owner=cast(Tuple[int, int], process_identity(os.getpid())),
                ports=(block.first, block.last), racks=racks,
                mons=list('abcdefghi'[:mons]), mgrs=list('xyzuvwrst'[:mgrs]),
                osds=host_of_first(osds, hosts), keep_logs=keep_logs)
            state.save(directory)
            cluster = cls(directory, state, ready, block, namespaces)
            if tied:
                _end_with_this_process(cluster)
            cluster._boot_all(conf, hosts, module_dir, address)
            return cluster
        except BaseException:
            if cluster is not None:
                cluster.down()
            else:
                shutil.rmtree(directory, ignore_errors=True)
            raise

    @classmethod
    def attach(cls, directory: Path) -> 'Cluster':
        """Handle a cluster that another process has started."""
        try:
            state = State.load(directory)
        except (OSError, ValueError) as e:
            raise ClusterError(f'no cluster in {directory}: {e}')
        return cls(directory, state, releases.get(state.release))

    def down(self, keep_logs: bool = False) -> None:
        """End all processes and remove the directory (except logs, if they are kept)."""
        if self._is_down:
            return
        self._is_down = True
        with _undisturbed():
            self._end(keep_logs)

    def _end(self, keep_logs: bool) -> None:
        _tied_clusters.discard(self)
        try:
            self._connection.close()
        finally:
            # A clean shutdown is useless here, and an OSD would wait five seconds for a mon that
            # has ended.
            self._daemons.end(self._daemons.names(), signal.SIGKILL)
        if self._ports is not None:
            self._ports.close()
        _remove_directory(self.directory, keep_logs or self._state.keep_logs)

    def __enter__(self) -> 'Cluster':
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.down()

    def _new_boot(self) -> Boot:
        return Boot(self.directory, self.release, self._daemons,
                    self._ports.fds() if self._ports else (), self._namespaces)

    def _boot_all(self, conf: Optional[Mapping[str, Any]], hosts: int,
                  module_dir: Optional[Path], address: str) -> None:
        assert self._ports is not None
        for name in ('data', 'run', 'log', 'crash'):
            (self.directory / name).mkdir(exist_ok=True)
        addresses = {mon: f'[v2:{address}:{port},v1:{address}:{port + 1}]'
                     for mon, port in zip(self._state.mons, range(self._ports.first, 1 << 16, 2))}
        # Mons use the first ports of the block, dashboards the last ones.
        daemon_ports = (self._ports.first + 2 * len(addresses),
                        self._ports.last - len(self._state.mgrs))
        pool_size = min(3, hosts if hosts > 1 else max(1, len(self._state.osds)))
        sections = config.default_conf(self.directory, self._state.fsid,
                                       ' '.join(addresses.values()), address, daemon_ports,
                                       self._state.store, hosts, pool_size)
        config.merge(sections, conf)
        self.conf_path.write_text(config.render(sections))
        self.install_module(module_dir)
        self._boot.make_mons(self._state.fsid, addresses, self._state.mgrs)
        for mon in self._state.mons:
            self._boot.start(f'mon.{mon}')
        for mgr in self._state.mgrs:
            self._boot.start(f'mgr.{mgr}')
        self._make_osds(list(self._state.osds))
        self.place(list(self._state.osds))
        self._start_osds(list(self._state.osds))
        self._mute_insecure_keys()
        self._wait_mgr_available()
        self._wait_standbys()
        self._configure_dashboard()

    def _mute_insecure_keys(self) -> None:
        """Mute the warning of Tentacle and later about the keys that librados here understands."""
        raised = [name for name in self.mon('health').get('checks', {})
                  if name.startswith('AUTH_INSECURE_')]
        self.order([{'prefix': 'health mute', 'code': code, 'sticky': True} for code in raised])

    # -- Files

    @property
    def conf_path(self) -> Path:
        """The ceph.conf of the cluster, which names the keyring of client.admin."""
        return self.directory / 'ceph.conf'

    def log_path(self, daemon: str) -> Path:
        """The log of a daemon such as ``mgr.x``."""
        return self.directory / 'log' / f'{daemon}.log'

    def install_module(self, module_dir: Optional[Path] = None) -> None:
        """Copy perfguard to the module path of the mgrs; a restarted mgr loads the new copy."""
        modules.install(self.directory / 'mgr-modules', self.release, module_dir)

    def become(self, release: str) -> None:
        """Daemons that start from now on, and the modules of mgrs, are those of another release."""
        self.release = releases.get(release)
        self._state.release = self.release.name
        self._state.save(self.directory)
        self._boot = self._new_boot()
        shutil.rmtree(self.directory / 'mgr-modules')
        self.install_module()

    # -- Commands

    def connect_as_release(self) -> None:
        """From now on send commands with the librados of the release instead of the machine's.

        A cluster with newer features in use lets no client in that lacks them. `rados` and loads
        still use the machine's.
        """
        self._connection.close()
        self._connection = Relayed(self.conf_path, self.release)
        self._pg_stats = PgStats(self._connection)

    def mon(self, prefix: str, **args: Any) -> Any:
        """The parsed JSON output of a command to the mons; raises CommandError if refused."""
        command = {'prefix': prefix, 'format': 'json', **args}
        return parse(self._connection.command('mon', command), prefix)

    def mgr(self, prefix: str, **args: Any) -> Reply:
        """Send a command to the active mgr, also during a failover: (ret, out, status)."""
        return self.command('mgr', {'prefix': prefix, **args})

    def tell(self, daemon: str, prefix: str, **args: Any) -> Any:
        """The parsed JSON output of a command to one daemon, such as ``osd.3``."""
        command = {'prefix': prefix, 'format': 'json', **args}
        return parse(self._connection.command(daemon, command), f'{daemon}: {prefix}')

    def command(self, target: str, command: Dict[str, Any], inbuf: bytes = b'',
                timeout: float = DEFAULT_TIMEOUT) -> Reply:
        """Send a command to ``mon``, ``mgr`` or a daemon: (ret, output, status)."""
        return self._connection.command(target, command, inbuf, timeout)

    def burst(self, commands: Sequence[Dict[str, Any]],
              inbufs: Optional[Sequence[bytes]] = None) -> List[Reply]:
        """Send commands to the mons at once, so that they take few epochs."""
        return self._connection.burst('mon', commands, inbufs)

    def order(self, commands: Sequence[Dict[str, Any]]) -> None:
        """Send commands to the mons all at once; raises CommandError if one is refused."""
        for command, reply in zip(commands, self.burst(commands)):
            parse(reply, command['prefix'])

    def rados(self) -> Handle:
        """The connected librados handle of client.admin."""
        return self._connection.rados()

    def ceph(self, *argv: str, check: bool = True,
             timeout: float = 60) -> 'subprocess.CompletedProcess[str]':
        """Run the ceph command of the release."""
        command = self.release.argv(['ceph', '-c', str(self.conf_path), *argv], self.directory)
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True, check=check,
                              timeout=timeout)

    def run_tool(self, command: List[str], timeout: float = 60.0) -> str:
        """Run a tool of the release, such as osdmaptool; returns its output."""
        return self._boot.run(command, timeout)

    # -- State

    def osd_dump(self) -> Dict[str, Any]:
        """The OSDMap as JSON."""
        return cast(Dict[str, Any], self.mon('osd dump'))

    def kept_epochs(self) -> Tuple[int, int]:
        """The first and the last OSDMap epoch that the mons keep. OSDs keep more, for long after a
        trim."""
        report = self.mon('report')
        return report['osdmap_first_committed'], report['osdmap_last_committed']

    def epoch(self) -> int:
        """The epoch of the OSDMap."""
        return cast(int, self.mon('osd stat')['epoch'])

    def health(self) -> str:
        """Health status and checks in one line."""
        health = self.mon('health')
        checks = [f'{name}: {check["summary"]["message"]}'
                  for name, check in health.get('checks', {}).items()
                  if not check.get('muted')]
        return '; '.join([health['status'], *checks])

    def pgs(self) -> List[Dict[str, Any]]:
        """``pgid``, ``state``, ``up``, ``acting`` and primaries of all PGs, from the mgr."""
        return self._pg_stats.brief()

    def flush_pg_stats(self, timeout: float = 20.0) -> None:
        """Wait until the mgr has PG stats that are newer than this call."""
        self._pg_stats.flush(patient(timeout))

    def osds(self) -> List[int]:
        """The ids of all OSDs."""
        return sorted(self._state.osds)

    def osd_hosts(self) -> Dict[int, str]:
        """The CRUSH host that each OSD belongs (or is meant) to."""
        return dict(self._state.osds)

    # -- Waiting

    def wait(self, predicate: Callable[[], Any], timeout: float, what: str) -> Any:
        """Poll until `predicate` returns a true value, which is returned.

        A refused or unanswered command counts as false. The timeout is multiplied by PATIENCE.
        """
        timeout = patient(timeout)
        deadline = time.monotonic() + timeout
        problem = ''
        while True:
            try:
                value = predicate()
                if value:
                    return value
                problem = ''
            except CommandError as e:
                problem = f'; {e}'
            if time.monotonic() > deadline:
                raise WaitTimeout(f'not in {timeout:g} s: {what}{problem}; {self._last_health()}')
            time.sleep(POLL_SECONDS)

    def wait_clean(self, timeout: float) -> None:
        """Wait until all PGs of all pools are active+clean in the newest OSDMap."""
        self._wait_pgs(timeout, 'all PGs active+clean', lambda state: state in (
            'active+clean', 'active+clean+scrubbing', 'active+clean+scrubbing+deep'))

    def wait_active(self, timeout: float) -> None:
        """Wait until all PGs of all pools are active; they may be remapped or degraded."""
        self._wait_pgs(timeout, 'all PGs active', lambda state: 'active' in state.split('+'))

    def wait_health_ok(self, timeout: float) -> None:
        """Wait for HEALTH_OK, which is some seconds late."""
        self.wait(lambda: self.mon('health')['status'] == 'HEALTH_OK', timeout, 'HEALTH_OK')

    def _wait_pgs(self, timeout: float, what: str, good: Callable[[str], bool]) -> None:
        def flushed() -> bool:
            self.flush_pg_stats(timeout)
            return True

        # Without an answer, as during a failover of the mgr, the condition counts as not met.
        self.wait(flushed, timeout, 'PG stats')

        def all_good() -> bool:
            states = self._pg_stats.states()
            wanted = sum(pool['pg_num'] for pool in self.osd_dump()['pools'])
            if sum(states.values()) == wanted and all(good(state) for state in states):
                return True
            self._pg_stats.request()
            return False

        self.wait(all_good, timeout, what)

    def _last_health(self) -> str:
        try:
            return self.health()
        except ClusterError as e:
            return f'no health: {e}'

    # -- Pools and objects

    def pool_create(self, name: str, pg_num: int, size: int = 3,
                    erasure: Optional[Tuple[int, int]] = None, failure_domain: str = 'host',
                    timeout: float = 60.0) -> int:
        """Create a pool and wait until its PGs are active; returns its id.

        `erasure` is (k, m) and replaces `size`.
        """
        pool_id = pools.create(self.mon, name, pg_num, size, erasure, failure_domain)
        # librados may still know a removed pool of this name, whose objects do not exist.
        bounded(self.rados().wait_for_latest_osdmap, timeout, 'the latest OSDMap')
        self.wait_active(timeout)
        return pool_id

    def fill(self, pool: str, objects: int, size_bytes: int, prefix: str = 'obj',
             timeout: float = 120.0) -> None:
        """Write objects PREFIX0, PREFIX1, ... of `size_bytes` each."""
        self.write(pool, [f'{prefix}{number}' for number in range(objects)], size_bytes, timeout)

    def write(self, pool: str, names: Sequence[str], size_bytes: int,
              timeout: float = 120.0) -> None:
        """Write objects of `size_bytes` each."""
        pools.fill(self.rados(), pool, names, size_bytes, timeout)

    def load(self, pool: str, rate: float = 200, read_fraction: float = 0.7,
             runtime: float = 600, **options: Any) -> Load:
        """Start an open-loop client in its own process; returns after the prefill.

        `options` are those of load_control.Load.start.
        """
        load = Load.start(self.conf_path, self.directory, self._daemons, pool, rate=rate,
                          read_fraction=read_fraction, runtime=runtime, **options)
        self._loads.append(load)
        return load

    # -- OSDs

    def add_osds(self, count: int, hosts: Optional[Sequence[str]] = None, weight: float = 1.0,
                 in_crush: bool = True, timeout: float = BOOT_TIMEOUT,
                 ids: Optional[Sequence[int]] = None) -> List[int]:
        """Boot more OSDs, then add all of them to CRUSH at once; returns their ids.

        Without `hosts` they are in new hosts, and without `ids` they have new ids. Without
        `in_crush` they are up but not in CRUSH (replaced OSDs have the place of the destroyed ones)
        until `place` is called.
        """
        check_room(self.directory, self._state.store, count)
        added = host_of_added(self._state.osds, count, hosts)
        if ids is not None:
            added = dict(zip(ids, added.values()))
        self._state.osds.update(added)
        self._state.save(self.directory)
        self._make_osds(list(added))
        self._start_osds(list(added), timeout)
        if in_crush:
            self.place(list(added), weight)
        return list(added)

    def place(self, osds: Sequence[int], weight: float = 1.0) -> None:
        """Add OSDs to CRUSH in their hosts, in one burst."""
        self.order([{'prefix': 'osd crush add', 'id': osd, 'weight': weight,
                     'args': location(self._state.osds[osd], self._state.racks)}
                    for osd in osds])

    def remove_osds(self, osds: Sequence[int], destroy: bool = False) -> None:
        """Stop OSDs in order and purge them, with their stores.

        With `destroy`, their ids and places in CRUSH remain; `add_osds` can replace them.
        """
        verb = 'osd destroy' if destroy else 'osd purge'
        for osd in osds:
            if self.pid(f'osd.{osd}') is not None:
                self.kill(f'osd.{osd}', signal.SIGTERM)
        for osd in osds:
            # Refused until the OSD is down for the mons.
            self.wait(lambda: self._order_mgr(verb, id=osd, yes_i_really_mean_it=True),
                      BOOT_TIMEOUT, f'{verb} {osd}')
            shutil.rmtree(self.directory / 'data' / f'osd.{osd}')
            del self._state.osds[osd]
        self._state.save(self.directory)

    def _order_mgr(self, prefix: str, **args: Any) -> bool:
        """Send a command to the active mgr; raises CommandError if it is refused."""
        parse(self.mgr(prefix, **args), prefix)
        return True

    def _make_osds(self, osds: Sequence[int]) -> None:
        identities = self._boot.make_osds(osds)
        commands = [{'prefix': 'osd new', 'uuid': identity['uuid'], 'id': osd}
                    for osd, identity in identities.items()]
        inbufs = [f'{{"cephx_secret": "{identity["key"]}"}}'.encode()
                  for identity in identities.values()]
        for reply in self.burst(commands, inbufs):
            parse(reply, 'osd new')

    def _start_osds(self, osds: Sequence[int], timeout: float = BOOT_TIMEOUT) -> None:
        for osd in osds:
            self._boot.start(f'osd.{osd}')
        self.wait_up(osds, timeout)

    def wait_up(self, osds: Sequence[int], timeout: float) -> None:
        """Wait until these OSDs are up and in; raises at once if one has died."""
        def all_up() -> bool:
            up = {osd['osd'] for osd in self.osd_dump()['osds'] if osd['up'] and osd['in']}
            for osd in set(osds) - up:
                if self._daemons.pid(f'osd.{osd}') is None:
                    raise ClusterError(f'osd.{osd} has ended: {self._last_words(f"osd.{osd}")}')
            return up.issuperset(osds)

        self.wait(all_up, timeout, f'{len(osds)} OSDs up')

    def _last_words(self, daemon: str) -> str:
        with contextlib.suppress(OSError):
            text = (self.directory / 'log' / f'{daemon}.out').read_text(errors='replace')
            return text.strip().rpartition('\n')[2]
        return 'no output'

    # -- Daemons

    def kill(self, daemon: str, sig: int = signal.SIGKILL) -> None:
        """Kill a daemon and wait for its end. A killed memstore OSD restarts empty."""
        self._daemons.kill(daemon, sig)

    def stop(self, daemon: str) -> None:
        """Stop a daemon (SIGSTOP): it hangs, and its connections remain."""
        self._daemons.signal(daemon, signal.SIGSTOP)
        self.wait(lambda: is_stopped(self.pid(daemon) or 0), 5, f'{daemon} stopped')

    def cont(self, daemon: str) -> None:
        """Continue a stopped daemon."""
        self._daemons.signal(daemon, signal.SIGCONT)

    def start(self, daemon: str, timeout: float = BOOT_TIMEOUT) -> None:
        """Start a killed daemon; for an OSD, returns when it is up again."""
        kind, _, ident = daemon.partition('.')
        if kind != 'osd':
            self._boot.start(daemon)
            return
        before = self._up_from(int(ident))
        self._boot.start(daemon)
        # The mons may not have noticed its death, so `up` alone is no evidence.
        self.wait(lambda: self._up_from(int(ident)) > before, timeout, f'{daemon} up again')

    def launch(self, daemon: str) -> None:
        """Start a killed daemon without waiting for anything: the mons may be down, too."""
        self._boot.start(daemon)

    def _up_from(self, osd: int) -> int:
        """The epoch in which an OSD last came up."""
        return next(int(row['up_from']) for row in self.osd_dump()['osds'] if row['osd'] == osd)

    def pid(self, daemon: str) -> Optional[int]:
        """The pid of a running daemon."""
        return self._daemons.pid(daemon)

    def pids(self) -> Dict[str, int]:
        """The pids of all running processes of the cluster."""
        found = {name: self._daemons.pid(name) for name in self._daemons.names()}
        return {name: pid for name, pid in found.items() if pid is not None}

    # -- Mgrs

    def active_mgr(self) -> str:
        """The id of the active and available mgr; '' if there is none."""
        stat = self.mon('mgr stat')
        return str(stat['active_name']) if stat['available'] else ''

    def mgr_fail(self, timeout: float = MGR_TIMEOUT) -> str:
        """Fail the active mgr; returns the id of the new one when it is available."""
        before = self.mon('mgr dump')
        self.mon('mgr fail', who=before['active_name'])
        return self._wait_other_mgr(before['active_gid'], timeout)

    def restart_mgr(self, timeout: float = MGR_TIMEOUT) -> str:
        """Kill and restart the active mgr; returns the id of the active mgr after that."""
        before = self.mon('mgr dump')
        name = f'mgr.{before["active_name"]}'
        self.kill(name)
        with contextlib.suppress(CommandError):
            # The mons would notice its death only after the grace of the beacon.
            self.mon('mgr fail', who=before['active_name'])
        self.start(name)
        return self._wait_other_mgr(before['active_gid'], timeout)

    def _wait_other_mgr(self, gid: int, timeout: float) -> str:
        def other() -> str:
            dump = self.mon('mgr dump')
            if dump['available'] and dump['active_gid'] != gid:
                return str(dump['active_name'])
            return ''

        return str(self.wait(other, timeout, 'another active mgr'))

    def _wait_mgr_available(self) -> None:
        def available() -> bool:
            for mgr in self._state.mgrs:
                if self._daemons.pid(f'mgr.{mgr}') is None:
                    raise ClusterError(f'mgr.{mgr} has ended: {self._last_words(f"mgr.{mgr}")}')
            return bool(self.active_mgr())

        self.wait(available, BOOT_TIMEOUT, 'an available mgr')

    def _wait_standbys(self) -> None:
        wanted = len(self._state.mgrs) - 1
        self.wait(lambda: len(self.mon('mgr dump')['standbys']) >= wanted, BOOT_TIMEOUT,
                  f'{wanted} standby mgrs')

    def dashboard_port(self, mgr: str) -> int:
        """The port of the dashboard of an mgr (plain HTTP), once it is enabled."""
        return self._state.ports[1] - self._state.mgrs.index(mgr)

    def dashboard(self, prefix: str = '') -> Dashboard:
        """Enable the dashboard below a path such as ``/ceph``, and create its users."""
        dashboard = Dashboard(self, prefix)
        dashboard.enable()
        return dashboard

    def _configure_dashboard(self) -> None:
        """Set the ports of the dashboards, one for each mgr, without enabling the module."""
        settings = {'mgr/dashboard/ssl': 'false', 'mgr/dashboard/server_addr': LOOPBACK}
        settings.update({f'mgr/dashboard/{mgr}/server_port': str(self.dashboard_port(mgr))
                         for mgr in self._state.mgrs})
        self.burst([{'prefix': 'config set', 'who': 'mgr', 'name': name, 'value': value,
                     'force': True} for name, value in settings.items()])


# -- clusters that end with this process

_tied_clusters: Set[Cluster] = set()
_hooks_installed = False


def _end_with_this_process(cluster: Cluster) -> None:
    """Take the cluster down at exit; after a kill, the parent-death signal does."""
    global _hooks_installed
    _tied_clusters.add(cluster)
    if _hooks_installed:
        return
    _hooks_installed = True
    atexit.register(_down_all_tied)
    exit_on_signals()


def exit_on_signals(*numbers: signal.Signals) -> None:
    """Make signals (SIGTERM) run all `finally` blocks and atexit hooks, unlike the default."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in numbers or (signal.SIGTERM,):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _exit_on_signal)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignore a second ctrl-C, which would stop the cleanup after the first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _exit_on_signal(number: int, frame: Optional[FrameType]) -> None:
    raise SystemExit(128 + number)


def _down_all_tied() -> None:
    for cluster in list(_tied_clusters):
        with contextlib.suppress(ClusterError):
            cluster.down()


def remove_abandoned() -> List[Path]:
    """Remove tied clusters whose process was killed."""
    removed = []
    for directory in directories():
        try:
            state = State.load(directory)
        except (OSError, ValueError):
            continue
        if state.abandoned():
            end_cluster(directory)
            removed.append(directory)
    return removed


def end_cluster(directory: Path, keep_logs: bool = False) -> None:
    """Take down a cluster whose release may no longer be installed."""
    daemons = Daemons(directory, tied=False)
    daemons.end(daemons.names(), signal.SIGKILL)
    _remove_directory(directory, keep_logs)


def _remove_directory(directory: Path, keep_logs: bool) -> None:
    for path in directory.iterdir():
        if path.name == 'log' and keep_logs:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            # Another process may remove it as well.
            path.unlink(missing_ok=True)
    releases.forget(directory)
    with contextlib.suppress(OSError):
        directory.rmdir()
    remove_empty_base()
