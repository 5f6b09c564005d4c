# SPDX-License-Identifier: LGPL-2.1-or-later
"""The process that holds a rig: hosts, network, registry and devices.

    python3 -m qa.cephadm.keeper RIG_DIRECTORY/ CACHE_DIRECTORY HOST...

It runs as the first process of its own namespaces of processes and mounts (see `rig.py`), so all
of them end with it. SIGTERM shuts the hosts down; after a second one they are killed.
"""
import json
import os
import signal
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Sequence

from .cache import ADMIN_HOST, HOSTS, SPARE_HOST, SWITCH, Cache, address
from .loops import LoopDevice
from .registry import start_registry
from .sweeper import cgroup, hierarchies

#: Sparse.
DEVICE_BYTES = 6 << 30
#: Of each host: of the OSD that is there from the start, and two more; of the spare host: of four
#: OSDs, to replace two of them, and for two more.
DEVICES, SPARE_DEVICES = 3, 8
#: The exit status of systemd-nspawn after a reboot with --keep-unit.
REBOOT = 133


def run(*argv: object) -> None:
    subprocess.run([str(word) for word in argv], check=True)


def make_network(hosts: Sequence[str]) -> None:
    """Both ends of each cable are in namespaces: the machine's own network sees nothing."""
    run('ip', 'netns', 'add', 'switch')
    _in('switch', 'link', 'set', 'lo', 'up')
    _in('switch', 'link', 'add', 'br0', 'type', 'bridge')
    _in('switch', 'addr', 'add', f'{SWITCH}/24', 'dev', 'br0')
    _in('switch', 'link', 'set', 'br0', 'up')
    for host in hosts:
        run('ip', 'netns', 'add', host)
        _in(host, 'link', 'set', 'lo', 'up')
        _in('switch', 'link', 'add', host, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', host)
        _in('switch', 'link', 'set', host, 'master', 'br0', 'up')
        _in(host, 'addr', 'add', f'{address(host)}/24', 'dev', 'eth0')
        _in(host, 'link', 'set', 'eth0', 'up')
        _in(host, 'route', 'add', 'default', 'via', SWITCH)


def _in(namespace: str, *words: str) -> None:
    run('ip', '-n', namespace, *words)


@dataclass
class Host:
    """One host; its data are in `home`."""
    name: str
    home: Path
    cache: Cache
    rig: str

    @property
    def root(self) -> Path:
        return self.home / 'root'

    def prepare(self) -> None:
        for name in ('up', 'work', 'root', 'containers', 'ceph', 'log'):
            (self.home / name).mkdir(parents=True, exist_ok=True)
        run('mount', '-t', 'overlay', 'overlay', '-o', f'lowerdir={self.cache.host_root},'
            f'upperdir={self.home / "up"},workdir={self.home / "work"}', self.root)
        if not (self.root / 'etc/rig').exists():
            self._name()
        self.devices = [LoopDevice(self.home / f'device-{number}', DEVICE_BYTES)
                        for number in range(
                            SPARE_DEVICES if self.name == SPARE_HOST else DEVICES)]
        # Their numbers may differ from one boot to the next; OSDs are found by their UUIDs.
        (self.home / 'devices').write_text(json.dumps([each.path for each in self.devices]))

    def _name(self) -> None:
        etc = self.root / 'etc'
        (etc / 'hostname').write_text(f'{self.name}\n')
        (etc / 'hosts').write_text('127.0.0.1 localhost\n' + ''.join(
            f'{address(host)} {host}\n' for host in (*HOSTS, SPARE_HOST)))
        (etc / 'machine-id').write_text(f'{uuid.uuid4().hex}\n')
        for path in (etc / 'ssh').glob('ssh_host_*'):
            path.unlink()
        run('ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', etc / 'ssh/ssh_host_ed25519_key')
        (etc / 'rig').touch()

    def boot(self) -> 'subprocess.Popen[bytes]':
        """Start systemd-nspawn in the cgroup of the rig."""
        group = hierarchies()[0] / cgroup(self.rig) / self.name
        group.mkdir(parents=True, exist_ok=True)

        def enter() -> None:
            (group / 'cgroup.procs').write_text('0')

        with open(self.home / 'console.log', 'wb') as console:
            child = subprocess.Popen(
                self._argv(), stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT,
                preexec_fn=enter,
                start_new_session=True, env={
                    'PATH': os.environ['PATH'], 'LC_ALL': 'C.UTF-8',
                    # podman lacks system calls otherwise.
                    'SYSTEMD_SECCOMP': '0',
                    # systemd 257 refuses cgroup v1, and cgroup2 without controllers is enough.
                    'SYSTEMD_NSPAWN_UNIFIED_HIERARCHY': '1'})
        (self.home / 'nspawn.pid').write_text(f'{child.pid}\n')
        return child

    def _argv(self) -> List[str]:
        binds = {self.home / 'containers': '/var/lib/containers', self.home / 'ceph':
                 '/var/lib/ceph', self.home / 'log': '/var/log/ceph'}
        return [str(self.cache.nspawn), '-D', str(self.root), '--boot', '--register=no',
                '--keep-unit', f'--machine={self.name}', f'--hostname={self.name}',
                # The clock and the modules are those of the machine.
                '--capability=all', '--drop-capability=CAP_SYS_TIME,CAP_SYS_MODULE',
                f'--network-namespace-path=/run/netns/{self.name}', '--resolv-conf=off',
                '--timezone=off', '--link-journal=no', '--console=pipe', '--bind=/dev/fuse',
                # An overlay cannot have another one as its upper directory.
                *(f'--bind={source}:{target}' for source, target in binds.items()),
                f'--bind-ro={self.cache.store}:/srv/store',
                *(f'--bind={device.path}' for device in self.devices)]


class Keeper:
    def __init__(self, directory: Path, cache: Cache, hosts: Sequence[str]) -> None:
        self.hosts = {name: Host(name, directory / 'hosts' / name, cache, directory.name)
                      for name in hosts}
        self._running: Dict[int, str] = {}
        self._stopping = False
        signal.signal(signal.SIGTERM, self._stop)
        # What systemd-nspawn leaves in these vanishes with this process.
        for path in ('/run', '/tmp'):
            # The rig itself may be in /tmp.
            if Path(path) not in directory.parents:
                run('mount', '-t', 'tmpfs', 'tmpfs', path)
        make_network(hosts)
        self._registry = start_registry(cache, directory, 'ip', 'netns', 'exec', 'switch')
        for host in self.hosts.values():
            host.prepare()
        self._mount_client(directory / 'client', cache)

    def _mount_client(self, client: Path, cache: Cache) -> None:
        """The system of the image with the administrator's keyring, for the command ceph."""
        client.mkdir(exist_ok=True)
        run('mount', '--bind', '-o', 'ro', cache.image_root, client)
        for path in ('proc', 'dev', 'sys'):
            run('mount', '--rbind', f'/{path}', client / path)
        keyring = self.hosts[ADMIN_HOST].root / 'etc/ceph'
        keyring.mkdir(exist_ok=True)
        run('mount', '--bind', keyring, client / 'etc/ceph')

    def run(self) -> None:
        """Boot the hosts; returns after all of them have shut down."""
        for name in self.hosts:
            self._boot(name)
        while self._running:
            # Also adopts and reaps orphans, as the first process of its namespace.
            pid, status = os.wait()
            name = self._running.pop(pid, '')
            if name and not self._stopping and os.waitstatus_to_exitcode(status) == REBOOT:
                self._boot(name)

    def _boot(self, name: str) -> None:
        self._running[self.hosts[name].boot().pid] = name

    def _stop(self, *_: Any) -> None:
        """The second signal makes systemd-nspawn kill what is left."""
        self._stopping = True
        for pid in list(self._running):
            os.kill(pid, signal.SIGTERM)


if __name__ == '__main__':
    Keeper(Path(sys.argv[1]), Cache(Path(sys.argv[2])), sys.argv[3:]).run()
