# SPDX-License-Identifier: LGPL-2.1-or-later
"""What is built once, and the names that it contains."""
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from qa.cluster import releases
from qa.cluster.errors import ClusterError

#: Increase it when a recipe changes, so that everything is built again.
RECIPE_VERSION = '4'

#: Exists only in namespaces of the keeper, without a route to the machine's network.
NETWORK = '10.77.1'
SWITCH = f'{NETWORK}.1'
HOSTS = ('h1', 'h2', 'h3')
#: Boots where a test adds it to the cluster, with more devices than the others.
SPARE_HOST = 'h4'
#: The command ceph and the orchestrator's administrator are here.
ADMIN_HOST = HOSTS[0]
#: In the namespace of the switch. Without a registry, images have no digest, and "ceph orch
#: upgrade" pulls the image again and again.
REGISTRY = f'{SWITCH}:60500'
#: With the tags of TAGS: the cluster's own image, and the same with another digest.
IMAGE = f'{REGISTRY}/ceph'
TAGS = ('a', 'b')
DASHBOARD_PASSWORD = 'rig-password-1'

_PROGRAMS = ('debootstrap', 'unshare', 'nsenter', 'ip', 'losetup', 'dpkg', 'ssh-keygen')


def address(host: str) -> str:
    return f'{NETWORK}.1{host[1:]}'


@dataclass(frozen=True)
class Cache:
    """The directory of all that is built."""
    path: Path

    @classmethod
    def default(cls) -> 'Cache':
        return cls(releases.cache_dir() / 'cephadm')

    @property
    def host_root(self) -> Path:
        """The system of the hosts; read-only after the build."""
        return self.path / 'host-trixie'

    @property
    def image_root(self) -> Path:
        """The system in the image, of which "ceph" runs too."""
        return self.path / 'img-forky'

    @property
    def store(self) -> Path:
        """The images, for podman on all hosts."""
        return self.path / 'store'

    @property
    def registry(self) -> Path:
        return self.path / 'registry'

    @property
    def fresh(self) -> Path:
        """A rig with a cluster that has just been bootstrapped, to be copied."""
        return self.path / 'fresh'

    @property
    def nspawn(self) -> Path:
        return self.path / 'nspawn' / 'usr/bin/systemd-nspawn'

    @property
    def log(self) -> Path:
        return self.path / 'log'

    def is_built(self) -> bool:
        try:
            return (self.fresh / 'recipe').read_text() == RECIPE_VERSION
        except OSError:
            return False

    def why_not(self) -> Optional[str]:
        """Why this machine has no rig; None if it has."""
        unable = why_unable()
        if unable is None and not self.is_built():
            return 'not built: python3 -m qa.cephadm build'
        return unable


def why_unable() -> Optional[str]:
    """Why this machine cannot have a rig; None if it can."""
    if os.getuid() != 0:
        return 'a rig needs root'
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        return f'not installed: {", ".join(missing)}'
    if not Path('/dev/loop-control').exists():
        return 'this machine has no loop devices'
    if 'overlay' not in Path('/proc/filesystems').read_text():
        return 'this machine has no overlay file system'
    return None


def check_able() -> None:
    unable = why_unable()
    if unable:
        raise ClusterError(unable)
