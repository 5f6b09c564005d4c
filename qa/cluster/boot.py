# SPDX-License-Identifier: LGPL-2.1-or-later
"""Makes and starts the daemons of a cluster, if the machine has room for them."""

import base64
import os
import shutil
import struct
import subprocess
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Dict, Iterable, List, Mapping, Optional

from .daemons import Daemons
from .errors import ClusterError
from .patience import patient
from .releases import Release

# A small machine has two cores, on which more processes at once are not faster.
PARALLEL_MKFS = 2


class Boot:
    """Command lines of one release in the directory of one cluster."""

    def __init__(self, directory: Path, release: Release, daemons: Daemons,
                 inherit: Iterable[int], namespaces: Mapping[str, str]) -> None:
        self._directory = directory
        self._release = release
        self._daemons = daemons
        self._inherit = list(inherit)
        self._namespaces = namespaces

    def make_mons(self, fsid: str, addresses: Mapping[str, str], mgrs: Iterable[str]) -> None:
        """Create the stores of the mons, with a keyring of all daemons except OSDs."""
        admin_key = new_key()
        mgr_keys = {mgr: new_key() for mgr in mgrs}
        (self._directory / 'keyring').write_text(keyring_section('client.admin', admin_key))
        (self._directory / 'keyring').chmod(0o600)
        initial = self._directory / 'data' / 'initial.keyring'
        initial.write_text(mon_keyring(mgr_keys, admin_key, new_key()))
        for mgr, key in mgr_keys.items():
            self._write_keyring(f'mgr.{mgr}', key)
        monmap = self._directory / 'data' / 'monmap'
        added = [word for mon, address in addresses.items() for word in ('--addv', mon, address)]
        self.run(['monmaptool', '--create', '--fsid', fsid, *added, *self._ciphers(),
                  str(monmap)])
        for mon in addresses:
            self._data(f'mon.{mon}').mkdir()
            self.run([*self._daemon('ceph-mon', mon), '--mkfs', '--monmap', str(monmap),
                      '--keyring', str(initial)])

    def make_osds(self, osds: Iterable[int]) -> Dict[int, Dict[str, str]]:
        """Create the stores of OSDs; returns the uuid and the key of each for the mons."""
        identities = {osd: {'uuid': str(uuid.uuid4()), 'key': new_key()} for osd in osds}

        def mkfs(osd: int) -> None:
            self._write_keyring(f'osd.{osd}', identities[osd]['key'])
            # The mons may not run yet, and are not needed.
            self.run([*self._daemon('ceph-osd', str(osd)), '--mkfs', '--no-mon-config',
                      '--osd-uuid', identities[osd]['uuid']])

        with ThreadPoolExecutor(PARALLEL_MKFS) as pool:
            list(pool.map(mkfs, identities))
        return identities

    def start(self, name: str) -> None:
        """Start a daemon such as ``osd.3``, whose store exists."""
        kind, _, ident = name.partition('.')
        command = [*self._daemon(f'ceph-{kind}', ident), '-f']
        argv = self._release.argv(command, self._directory, mgr=kind == 'mgr')
        if name in self._namespaces:
            argv = ['nsenter', f'--net=/run/netns/{self._namespaces[name]}', *argv]
        self._daemons.spawn(name, argv, self._inherit)

    def _ciphers(self) -> List[str]:
        """Options for newer mons, whose default is AES-256 keys, unknown to older librados."""
        if '--auth-allowed-ciphers' not in self.run(['monmaptool', '--help'], check=False):
            return []
        return ['--auth-allowed-ciphers', 'aes,aes256k', '--auth-service-cipher', 'aes',
                '--auth-preferred-cipher', 'aes']

    def run(self, command: List[str], timeout: float = 60.0, check: bool = True) -> str:
        """Run a tool of the release and return its output.

        Raises ClusterError with the last line of the output if it fails.
        """
        argv = self._release.argv(command, self._directory)
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=patient(timeout),
                              cwd=self._directory)
        output = done.stdout.decode(errors='replace')
        if check and done.returncode != 0:
            raise ClusterError(f'{command[0]} failed: {output.strip().rpartition(chr(10))[2]}')
        return output

    def _daemon(self, program: str, ident: str) -> List[str]:
        return [program, '-i', ident, '-c', str(self._directory / 'ceph.conf')]

    def _data(self, name: str) -> Path:
        return self._directory / 'data' / name

    def _write_keyring(self, name: str, key: str) -> None:
        self._data(name).mkdir()
        path = self._data(name) / 'keyring'
        path.write_text(keyring_section(name, key))
        path.chmod(0o600)


# ---- cephx keys, made here: a fork of ceph-authtool for each of 60 OSDs takes seconds

ADMIN_CAPS = {'mon': 'allow *', 'mgr': 'allow *', 'osd': 'allow *', 'mds': 'allow *'}
MON_CAPS = {'mon': 'allow *'}
MGR_CAPS = {'mon': 'allow profile mgr', 'osd': 'allow *', 'mds': 'allow *'}

_AES = 1


def new_key() -> str:
    """A new secret in the encoding of CryptoKey: type, creation time, length, 16 random bytes."""
    secret = os.urandom(16)
    header = struct.pack('<HIIH', _AES, int(time.time()), 0, len(secret))
    return base64.b64encode(header + secret).decode()


def keyring_section(entity: str, key: str, caps: Optional[Mapping[str, str]] = None) -> str:
    """One section of a keyring file."""
    lines = [f'[{entity}]', f'\tkey = {key}']
    lines.extend(f'\tcaps {service} = "{cap}"' for service, cap in (caps or {}).items())
    return '\n'.join(lines) + '\n'


def mon_keyring(mgrs: Mapping[str, str], admin_key: str, mon_key: str) -> str:
    """The initial keyring of the mons; `mgrs` maps the id of an mgr to its key."""
    entries = [keyring_section('mon.', mon_key, MON_CAPS),
               keyring_section('client.admin', admin_key, ADMIN_CAPS)]
    entries.extend(keyring_section(f'mgr.{mgr_id}', key, MGR_CAPS) for mgr_id, key in mgrs.items())
    return ''.join(entries)


# ---- Room on the machine

MiB = 1 << 20

# Resident memory, measured on idle clusters and rounded up.
OSD_BYTES = {'memstore': 60 * MiB, 'bluestore': 400 * MiB}
MON_BYTES = 150 * MiB
MGR_BYTES = 500 * MiB

OSD_DISK_BYTES = {'memstore': 5 * MiB, 'bluestore': 300 * MiB}
MON_DISK_BYTES = 300 * MiB


def check_room(directory: Path, store: str, osds: int, mons: int = 0, mgrs: int = 0) -> None:
    """Raises ClusterError if memory or disk space is insufficient."""
    memory = osds * OSD_BYTES[store] + mons * MON_BYTES + mgrs * MGR_BYTES
    available = _available_memory()
    if memory > available:
        raise ClusterError(f'{osds} more OSDs ({store}), {mons} mons and {mgrs} mgrs need '
                           f'{memory // MiB} MiB of memory, {available // MiB} MiB are available')
    disk = osds * OSD_DISK_BYTES[store] + mons * MON_DISK_BYTES
    free = shutil.disk_usage(directory).free
    if disk > free:
        raise ClusterError(f'{directory} has {free // MiB} MiB free, {disk // MiB} MiB are needed')


def _available_memory() -> int:
    with open('/proc/meminfo') as f:
        for line in f:
            if line.startswith('MemAvailable:'):
                return int(line.split()[1]) * 1024
    raise ClusterError('/proc/meminfo has no MemAvailable')
