# SPDX-License-Identifier: LGPL-2.1-or-later
"""Installs Debian's packages for the hosts and for the image."""
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Tuple

from qa.cluster import releases
from qa.cluster.errors import ClusterError

from .cache import REGISTRY, Cache

#: Files of the hosts; each says why it is there.
HOST_FILES = Path(__file__).parent / 'host'

#: Without documentation; and nothing is synced to the disk, as the result is made again if lost.
_DPKG = '''force-unsafe-io
path-exclude=/usr/share/doc/*
path-exclude=/usr/share/man/*
path-exclude=/usr/share/locale/*
'''
_APT = 'APT::Install-Recommends "false";\nAcquire::Check-Valid-Until "false";\n'
#: Without /proc the cryptsetup-bin of forky, and with it ceph-osd, is not configured.
_INSTALL = ('unshare', '--mount', '--pid', '--fork', '--kill-child', 'sh', '-euc', '''
root=$1; shift
mount -t proc proc "$root/proc"
exec chroot "$root" env DEBIAN_FRONTEND=noninteractive sh -euc '
    apt-get update -q
    apt-get install -y -q "$@"
    apt-get clean' sh "$@"
''', 'install')

#: Units that have nothing to do here, or would use another container store.
_MASKED = ('docker-registry.service', 'netavark-dhcp-proxy.socket',
           'netavark-dhcp-proxy.service', 'podman-auto-update.timer', 'podman-restart.service',
           'podman-clean-transient.service', 'apt-daily.timer', 'apt-daily-upgrade.timer',
           'fstrim.timer')

#: Python 3.14's multiprocessing starts a helper with sys.executable, which is not Python in
#: ceph-mgr: ThreadPool() of the cephadm module fails with BrokenPipeError. "fork" has no helper.
_FORK = 'import multiprocessing\nmultiprocessing.set_start_method("fork", force=True)\n'


@dataclass(frozen=True)
class Root:
    """The system of a suite of Debian in a directory."""
    path: Path
    suite: str
    packages: Tuple[str, ...]
    #: debootstrap of an older Debian does not know the newest suites.
    script: Optional[str] = None

    def install(self, log: Path) -> None:
        """From nothing; raises ClusterError, which names the log."""
        subprocess.run(['rm', '-rf', '--one-file-system', str(self.path)], check=True)
        with open(log, 'w') as output:
            self._run(output.fileno(), log, 'debootstrap', '--variant=minbase',
                      '--include=ca-certificates', self.suite, str(self.path), releases.mirror(),
                      *((self.script,) if self.script else ()))
            self._write('etc/dpkg/dpkg.cfg.d/rig', _DPKG)
            self._write('etc/apt/apt.conf.d/99rig', _APT)
            policy = self._write('usr/sbin/policy-rc.d', '#!/bin/sh\nexit 101\n')
            policy.chmod(0o755)
            shutil.copy('/etc/resolv.conf', self.path / 'etc/resolv.conf')
            self._run(output.fileno(), log, *_INSTALL, str(self.path), *self.packages)
            policy.unlink()
        shutil.rmtree(self.path / 'var/lib/apt/lists')

    def _write(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    @staticmethod
    def _run(output: int, log: Path, *argv: str) -> None:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=output,
                              stderr=subprocess.STDOUT)
        if done.returncode != 0:
            raise ClusterError(f'{argv[0]} failed, see {log}')


def install_nspawn(cache: Cache) -> None:
    """Only unpacked: the machine itself stays as it is."""
    folder = cache.path / 'download'
    folder.mkdir(exist_ok=True)
    done = subprocess.run(['apt-get', 'download', '-q', 'systemd-container'], cwd=folder,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    packages = list(folder.glob('*.deb'))
    if done.returncode != 0 or not packages:
        raise ClusterError(f'no package systemd-container: {done.stderr.strip()}')
    subprocess.run(['dpkg', '-x', str(packages[0]), str(cache.path / 'nspawn')], check=True)
    shutil.rmtree(folder)


def install_host(cache: Cache) -> None:
    """The system of the hosts, with what makes cephadm run in them."""
    root = cache.host_root
    Root(root, 'trixie', (
        'systemd', 'systemd-sysv', 'dbus', 'openssh-server', 'podman', 'crun', 'conmon',
        # For "podman run --init".
        'catatonit', 'netavark', 'docker-registry', 'lvm2', 'chrony', 'python3',
        # Debian's cephadm does not contain them.
        'python3-yaml', 'python3-jinja2', 'sudo', 'iproute2', 'procps', 'udev', 'curl',
        'jq')).install(cache.log / 'host.log')
    copy_host_files(root)


def copy_host_files(root: Path) -> None:
    # Some replace what a package has installed, which may be a link.
    subprocess.run(['cp', '-r', '--remove-destination', '--preserve=mode', f'{HOST_FILES}/.',
                    str(root)], check=True)
    units = root / 'etc/systemd/system'
    for name in _MASKED:
        _link('/dev/null', units / name)
    _link('../rig-udev.service', units / 'multi-user.target.wants/rig-udev.service')
    (root / 'etc/containers/registries.conf.d/rig.conf').write_text(
        f'[[registry]]\nlocation = "{REGISTRY}"\ninsecure = true\n')
    for path in ('root/.ssh', 'srv/store'):
        (root / path).mkdir(exist_ok=True)
    (root / 'root/.ssh').chmod(0o700)


def _link(target: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.symlink(target, path)


def install_image(cache: Cache) -> None:
    """The system in the image: what Ceph's own image has, without iSCSI, NFS and gateways."""
    root = cache.image_root
    Root(root, 'forky', (
        'ceph-mon', 'ceph-mgr', 'ceph-osd', 'ceph-common', 'ceph-volume', 'cephadm',
        'ceph-mgr-cephadm', 'ceph-mgr-modules-core', 'ceph-mgr-dashboard', 'python3-yaml',
        'python3-jinja2', 'lvm2', 'sudo', 'procps', 'hostname', 'e2fsprogs'),
        script='/usr/share/debootstrap/scripts/sid').install(cache.log / 'image.log')
    module = root / 'usr/share/ceph/mgr/cephadm/__init__.py'
    module.write_text(_FORK + module.read_text())
    # 20.2 reports a crash of each module without this attribute whenever a mgr starts, of 21 of
    # them, and ceph-crash starts a process to post each report.
    with open(root / 'usr/share/ceph/mgr/mgr_module.py', 'a') as base:
        base.write('\nMgrModule.NOTIFY_TYPES = []\n')
    # 20.2 gives "raw prepare" an option of "lvm batch" where an OSD keeps its id.
    # It also forgets what it has read of an OSD's data once it reads of the OSD's DB.
    libraries = root / 'usr/lib/python3/dist-packages'
    for name, wrong, right in (
            ('ceph/deployment/translate.py', '--osd-ids', '--osd-id'),
            ('ceph_volume/devices/raw/list.py',
             'result[osd_uuid] = disk.bluestore_info(device, oj)',
             'result.setdefault(osd_uuid, {}).update(disk.bluestore_info(device, oj))')):
        source = libraries / name
        source.write_text(source.read_text().replace(wrong, right))
    # A zip archive for another Python than that of the hosts. Offsets in it must not change.
    program = cache.host_root / 'usr/sbin/cephadm'
    interpreter, _, archive = (root / 'usr/sbin/cephadm').read_bytes().partition(b'\n')
    program.write_bytes(b'#!/usr/bin/python3'.ljust(len(interpreter)) + b'\n' + archive)
    program.chmod(0o755)
