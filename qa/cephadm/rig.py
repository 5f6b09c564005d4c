# SPDX-License-Identifier: LGPL-2.1-or-later
"""A rig: the hosts with their cluster, in a directory."""
import contextlib
import ctypes
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, List, Optional

from qa.cluster.daemons import Daemons, tied_argv
from qa.cluster.errors import ClusterError, WaitTimeout
from qa.cluster.load_control import TOP_DIR
from qa.cluster.patience import patient

from .cache import ADMIN_HOST, HOSTS, RECIPE_VERSION, SPARE_HOST, Cache
from .sweeper import sweep

_KEEPER = 'keeper'
_SHUTDOWN_SECONDS = 60.0
_BOOT_SECONDS = 90.0
_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
_ENVIRONMENT = (f'PATH={_PATH}', 'HOME=/root', 'LC_ALL=C.UTF-8')
#: $1: the file with the pid of systemd-nspawn, then a command for the host, whose first process is
#: the child of it.
_ON_HOST = '''
leader=$(pgrep -P "$(cat "$1")" -x systemd | head -n 1)
test -n "$leader" || { echo "the host is down" >&2; exit 125; }
shift
exec nsenter -t "$leader" -a env -i "$@"
'''
_CLONE_NEWNET = 0x40000000


class Rig:
    """Hosts that run, or could be booted. `tied`: they end with this process. `spare`: with a host
    that is no part of the cluster yet."""

    def __init__(self, directory: Path, cache: Optional[Cache] = None, tied: bool = False,
                 spare: bool = False) -> None:
        self.directory = directory.resolve()
        self.cache = cache or Cache.default()
        self._hosts = (*HOSTS, SPARE_HOST) if spare else HOSTS
        self._daemons = Daemons(self.directory, tied)

    # ---- Up and down

    def up(self) -> None:
        """Boot the hosts, from a copy of the fresh cluster if there is none yet; returns once all
        OSDs are up. Raises ClusterError."""
        if not (self.directory / 'recipe').exists():
            self._copy_fresh()
        self.boot()
        self.wait_ready()

    def _copy_fresh(self) -> None:
        if not self.cache.is_built():
            raise ClusterError('not built: python3 -m qa.cephadm build')
        # A copy that was interrupted is made again.
        partial = self.directory.with_name(f'{self.directory.name}.partial')
        for path in (self.directory, partial):
            subprocess.run(['rm', '-rf', '--one-file-system', str(path)], check=True)
        partial.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(['cp', '-a', '--sparse=always', str(self.cache.fresh), str(partial)],
                       check=True)
        partial.rename(self.directory)

    def boot(self) -> None:
        """Start the keeper, unless it runs, and wait for systemd on all hosts."""
        for name in ('run', 'log'):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        with self._lock():
            if not self.is_up():
                # What a kill has left.
                sweep(self.directory.name)
                self._start_keeper()
        for host in self._hosts:
            self.wait_booted(host)

    def _start_keeper(self) -> None:
        read_end, write_end = os.pipe()
        try:
            # Not tied: it removes the cgroups after the end of this process too.
            subprocess.Popen(
                [sys.executable, '-m', 'qa.cephadm.sweeper', str(read_end), self.directory.name],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                pass_fds=(read_end,), start_new_session=True, cwd=TOP_DIR)
            self._daemons.spawn(_KEEPER, [
                'env', f'PYTHONPATH={TOP_DIR}', 'unshare', '--mount', '--pid',
                '--fork', '--kill-child', '--mount-proc', sys.executable, '-m',
                'qa.cephadm.keeper', f'{self.directory}/', str(self.cache.path), *self._hosts],
                inherit=(write_end,))
        finally:
            os.close(read_end)
            os.close(write_end)

    def is_up(self) -> bool:
        return self._daemons.pid(_KEEPER) is not None

    def down(self) -> None:
        """Shut the hosts down; the cluster's data remain for the next `up`."""
        with self._lock():
            if self.is_up():
                self._signal_keeper(signal.SIGTERM)
                if not self._ended(patient(_SHUTDOWN_SECONDS)):
                    self._signal_keeper(signal.SIGTERM)
                    self._ended(10.0)
                with contextlib.suppress(ClusterError):
                    self._daemons.kill(_KEEPER, signal.SIGKILL)
            self._daemons.forget(_KEEPER)
            sweep(self.directory.name)

    def purge(self) -> None:
        """End the hosts at once and remove the directory."""
        if self.directory.exists():
            with contextlib.suppress(ClusterError):
                self._daemons.kill(_KEEPER, signal.SIGKILL)
            self._daemons.forget(_KEEPER)
            sweep(self.directory.name)
            subprocess.run(['rm', '-rf', '--one-file-system', str(self.directory)], check=True)

    def _signal_keeper(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._keeper(), number)

    def _ended(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.is_up() and time.monotonic() < deadline:
            time.sleep(0.1)
        return not self.is_up()

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """One process starts or ends the rig at a time."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with open(self.directory / 'lock', 'w') as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _keeper(self) -> int:
        """The pid of the keeper: the child of "unshare --fork"."""
        pid = self._daemons.pid(_KEEPER)
        try:
            return int(Path(f'/proc/{pid}/task/{pid}/children').read_text().split()[0])
        except (OSError, IndexError):
            raise ClusterError('the rig is down') from None

    # ---- Commands

    def _inside(self) -> List[str]:
        """The beginning of a command line in the namespaces of the keeper."""
        return ['nsenter', '-t', str(self._keeper()), '-m', '-p']

    def host_argv(self, host: str, *command: str) -> List[str]:
        """The command line that runs a command on a host."""
        return [*self._inside(), 'sh', '-c', _ON_HOST, 'on',
                str(self.directory / 'hosts' / host / 'nspawn.pid'), *_ENVIRONMENT, *command]

    def client_argv(self, *command: str) -> List[str]:
        """The command line that runs a program of Ceph as the administrator."""
        return [*self._inside(), 'nsenter', '--net=/run/netns/switch', 'chroot',
                str(self.directory / 'client'), 'env', '-i', *_ENVIRONMENT, *command]

    def on(self, host: str, *command: str, given: str = '', check: bool = True) -> str:
        """The output of a command on a host. Raises ClusterError if it fails."""
        return self._output(self.host_argv(host, *command), f'{host}: {" ".join(command)}', given,
                            check)

    def client(self, *command: str, given: str = '', check: bool = True) -> str:
        """The output of a program of Ceph. Raises ClusterError if it fails."""
        return self._output(self.client_argv(*command), ' '.join(command), given, check)

    def ceph(self, *words: str, given: str = '', check: bool = True) -> str:
        return self.client('ceph', *words, given=given, check=check)

    def give(self, commands: Iterable[str]) -> None:
        """Give commands in one process of the program ceph, which takes a second to start. Raises
        ClusterError if one of them fails."""
        done = subprocess.run(tied_argv(self.client_argv('ceph')), input='\n'.join(commands) + '\n',
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=patient(200))
        if done.returncode != 0 or re.search('^(Error|Invalid)', done.stderr, re.M):
            raise ClusterError(f'status {done.returncode}: {done.stderr.strip()[-2000:]}')

    def json(self, *words: str) -> Any:
        """The parsed answer to a command of Ceph."""
        return json.loads(self.ceph(*words, '--format', 'json'))

    @staticmethod
    def _output(argv: List[str], what: str, given: str, check: bool) -> str:
        done = subprocess.run(tied_argv(argv), input=given, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=patient(200))
        if check and done.returncode != 0:
            raise ClusterError(f'{what}: status {done.returncode}: '
                               f'{(done.stderr or done.stdout).strip()[-2000:]}')
        return done.stdout

    @contextlib.contextmanager
    def network(self) -> Iterator[None]:
        """This thread is in the rig's network meanwhile."""
        setns = ctypes.CDLL(None, use_errno=True).setns

        def enter(path: str) -> None:
            with open(path) as namespace:
                if setns(namespace.fileno(), _CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), f'cannot enter {path}')

        with open('/proc/thread-self/ns/net') as own:
            enter(f'/proc/{self._keeper()}/root/run/netns/switch')
            try:
                yield
            finally:
                enter(f'/proc/self/fd/{own.fileno()}')

    # ---- What is there

    def devices(self, host: str) -> List[str]:
        """The block devices of a host; OSDs of the fresh cluster use the first."""
        found: List[str] = json.loads((self.directory / 'hosts' / host / 'devices').read_text())
        return found

    def reboot(self, host: str) -> None:
        before = (self.directory / 'hosts' / host / 'nspawn.pid').read_text()
        self.on(host, 'systemctl', 'reboot', check=False)
        self.wait(lambda: (self.directory / 'hosts' / host / 'nspawn.pid').read_text() != before,
                  _SHUTDOWN_SECONDS, f'{host} to go down')
        self.wait_booted(host)

    def wait_booted(self, host: str) -> None:
        self.wait(lambda: self._systemd(host) in ('running', 'degraded'), _BOOT_SECONDS,
                  f'{host} to boot')

    def _systemd(self, host: str) -> str:
        try:
            return self.on(host, 'systemctl', 'is-system-running', check=False).strip()
        except ClusterError:
            if not self.is_up():
                raise
            return ''

    def wait_ready(self) -> None:
        """Wait until a mgr is active, all OSDs are up, and the PGs active+clean."""
        self.wait(self._is_ready, _BOOT_SECONDS, 'the cluster')

    def _is_ready(self) -> bool:
        status = json.loads(self.ceph('--connect-timeout', '5', '-s', '--format', 'json',
                                      check=False) or '{}')
        if not status.get('mgrmap', {}).get('available'):
            return False
        osds, pgs = status['osdmap'], status['pgmap']
        clean = sum(row['count'] for row in pgs['pgs_by_state']
                    if row['state_name'].startswith('active+clean'))
        return bool(osds['num_osds'] == osds['num_up_osds'] and clean == pgs['num_pgs'])

    @staticmethod
    def wait(condition: Callable[[], Any], seconds: float, what: str) -> Any:
        """The first true value of the condition; raises WaitTimeout."""
        deadline = time.monotonic() + patient(seconds)
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > deadline:
                raise WaitTimeout(f'waiting for {what}: not after {patient(seconds):g} s')
            time.sleep(0.3)

    def mark_current(self) -> None:
        (self.directory / 'recipe').write_text(RECIPE_VERSION)

    def admin(self, *command: str, given: str = '', check: bool = True) -> str:
        """The output of a command on the administrator's host."""
        return self.on(ADMIN_HOST, *command, given=given, check=check)
