# SPDX-License-Identifier: LGPL-2.1-or-later
"""The Ceph releases that a cluster can run: the packages of the machine, or those in a chroot.

Each Debian release contains one Ceph release. That of the machine is used directly; the others are
installed into chroots in a cache directory once. Programs enter a chroot in a private mount
namespace, so its mounts vanish with the last process in it.
"""

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Tuple

from .errors import ClusterError

# Increase it when a recipe changes, so that existing chroots are rebuilt.
RECIPE_VERSION = '1'

PYLIB = '/opt/perfguard-pylib'

_PACKAGES = ('ceph-mon', 'ceph-mgr', 'ceph-osd', 'ceph-common', 'ceph-mgr-modules-core',
             'ceph-mgr-dashboard', 'python3-rados', 'python3-prettytable')

_MAJORS = {'pacific': 16, 'quincy': 17, 'reef': 18, 'squid': 19, 'tentacle': 20}

_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

# $1: the chroot, $2: a directory of the host that is mounted at the same path, then a command. OSDs
# find their drives in /sys, and the models of these in udev's data.
_ENTER = '''
set -e
root=$1 dir=$2; shift 2
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
if [ -d /run/udev ]; then mkdir -p "$root/run/udev"; mount --bind /run/udev "$root/run/udev"; fi
if [ -n "$dir" ]; then mkdir -p "$root$dir"; mount --bind "$dir" "$root$dir"; fi
exec chroot "$root" "$@"
'''


@dataclass(frozen=True)
class Recipe:
    """How to build the chroot of a release."""

    suite: str
    # Prefix of the version of Ceph in the suite. A suite that is not released yet changes, so other
    # versions are refused instead of being tested under a wrong name.
    version: str
    # debootstrap of an older Debian does not know the newest suites.
    script: Optional[str] = None
    packages: Tuple[str, ...] = ()
    # Wheels for this version of Python, unpacked to PYLIB and preferred to the packaged modules.
    wheels: Tuple[str, ...] = ()
    wheels_python: str = ''


_RECIPES: Dict[str, Recipe] = {
    'reef': Recipe(
        suite='trixie',
        version='18.2.',
        packages=('python3-cffi-backend', 'python3-six'),
        # The packaged bcrypt is a PyO3 extension, which does not load in sub-interpreters of the
        # mgr: thirteen mgr modules would fail. This is the last version without PyO3.
        wheels=('bcrypt==3.2.2',),
        wheels_python='3.13'),
    'tentacle': Recipe(
        suite='forky',
        version='20.2.',
        script='/usr/share/debootstrap/scripts/sid'),
}

NAMES = ('pacific', *_RECIPES)


@dataclass(frozen=True)
class Release:
    """An installed release; ``root`` is None for the packages of the machine."""

    name: str
    root: Optional[Path] = None
    mgr_env: Dict[str, str] = field(default_factory=dict)

    def argv(self, command: List[str], directory: Path, mgr: bool = False) -> List[str]:
        """The command line that runs `command` in this release.

        Each program executes the next one in the same process, so the pid remains, and signals,
        including the parent-death signal, work as without a chroot.
        """
        env, options = ['LC_ALL=C.UTF-8'], []
        if mgr:
            # Once its modules are compiled, they load in 0.7 s instead of 1.9 (Tentacle).
            options = ['-u', 'PYTHONDONTWRITEBYTECODE']
            env.extend(f'{key}={value}' for key, value in self.mgr_env.items())
        if self.root is None:
            return ['env', *options, *env, *command]
        return ['unshare', '--mount', '--propagation', 'private', 'sh', '-c', _ENTER, 'enter',
                str(self.root), str(directory), 'env', *options, f'PATH={_PATH}', *env, *command]

    def path(self, inside: str) -> Path:
        """The path on the host of a file of this release."""
        return Path(inside) if self.root is None else self.root / inside.lstrip('/')


def get(name: str) -> Release:
    """The release of that name. Builds the chroot if necessary, which takes minutes."""
    if name in ('pacific', 'native'):
        return _native(name)
    if name not in _RECIPES:
        raise ClusterError(f'unknown release {name!r}: one of {", ".join(NAMES)}, native')
    if os.getuid() != 0:
        raise ClusterError(f'{name} runs in a chroot, which takes root; pacific does not')
    root = cache_dir() / name
    if not _is_current(root):
        with _build_lock():
            if not _is_current(root):
                _build(name, root)
    env = {'PYTHONPATH': PYLIB} if _RECIPES[name].wheels else {}
    return Release(name, root, env)


def forget(directory: Path) -> None:
    """Remove empty mount points of cluster directories from the chroots."""
    for name in _RECIPES:
        with contextlib.suppress(OSError):
            os.rmdir(f'{cache_dir() / name}{directory}')


def cache_dir() -> Path:
    """The directory of the chroots."""
    return Path(os.environ.get('PERFGUARD_CACHE', '/var/cache/perfguard'))


def _native(name: str) -> Release:
    missing = [program for program in ('ceph-mon', 'ceph-mgr', 'ceph-osd', 'ceph')
               if shutil.which(program, path=_PATH) is None]
    if missing:
        raise ClusterError(f'{", ".join(missing)} not found: run ./install-deps.sh')
    text = subprocess.run(['ceph-mon', '--version'], stdout=subprocess.PIPE, check=True,
                          universal_newlines=True).stdout
    match = re.search(r'ceph version (\d+)', text)
    major = int(match.group(1)) if match else 0
    if name == 'pacific' and major != _MAJORS['pacific']:
        raise ClusterError(f'the installed Ceph is {major}, not pacific ({_MAJORS["pacific"]}): '
                           'use release "native" to run it all the same')
    names = {number: known for known, number in _MAJORS.items()}
    return Release(names.get(major, f'ceph{major}'))


def _is_current(root: Path) -> bool:
    try:
        return _stamp(root).read_text().strip() == RECIPE_VERSION
    except OSError:
        return False


def _stamp(root: Path) -> Path:
    return root / 'etc' / 'perfguard-recipe'


@contextlib.contextmanager
def _build_lock() -> Iterator[None]:
    """One process builds the chroot, the others wait for it."""
    try:
        cache_dir().mkdir(parents=True, exist_ok=True)
        lock = open(cache_dir() / '.lock', 'w')
    except OSError as e:
        raise ClusterError(f'cannot write to the cache directory {cache_dir()}: {e.strerror}')
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(name: str, root: Path) -> None:
    recipe = _RECIPES[name]
    partial = root.with_name(f'{name}.partial')
    _remove_tree(partial)
    log_path = root.with_name(f'{name}.log')
    with open(log_path, 'w') as log:
        build = _Build(name, recipe, partial, log_path, log.fileno())
        build.bootstrap()
        build.check_version()
        build.install_packages()
        build.install_wheels()
    _stamp(partial).write_text(f'{RECIPE_VERSION}\n')
    old = root.with_name(f'{name}.old')
    _remove_tree(old)
    if root.exists():
        root.rename(old)
    partial.rename(root)
    _remove_tree(old)
    log_path.unlink()
    _say(f'{name}: ready in {root}')


def _remove_tree(path: Path) -> None:
    # Never into a directory that is still mounted there.
    subprocess.run(['rm', '-rf', '--one-file-system', str(path)], check=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class _Build:
    """The steps to build a chroot; the output of programs goes to a log file."""

    name: str
    recipe: Recipe
    root: Path
    log_path: Path
    log_fd: int

    def bootstrap(self) -> None:
        if shutil.which('debootstrap', path=_PATH) is None:
            raise ClusterError('debootstrap not found: run ./install-deps.sh')
        command = ['debootstrap', '--variant=minbase', self.recipe.suite, str(self.root),
                   mirror()]
        if self.recipe.script:
            command.append(self.recipe.script)
        self._run(f'installing a minimal Debian {self.recipe.suite}', command)
        # Post-install scripts must not start services.
        self._write_script('usr/sbin/policy-rc.d', 'exit 101')
        self._write_script('usr/local/sbin/systemctl', 'exit 0')
        shutil.copy('/etc/resolv.conf', self.root / 'etc' / 'resolv.conf')

    def check_version(self) -> None:
        """Refuse a suite with another version of Ceph than that of the recipe."""
        self._run('reading the package lists', self._inside(
            'apt-get -o Acquire::Check-Valid-Until=false update -q'))
        policy = subprocess.run(self._inside('apt-cache policy ceph-mon'), check=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                universal_newlines=True).stdout
        check_candidate(self.name, self.recipe, policy)

    def install_packages(self) -> None:
        packages = ' '.join((*_PACKAGES, *self.recipe.packages))
        self._run('installing Ceph', self._inside(
            f'apt-get install -y -q --no-install-recommends {packages} && apt-get clean'))

    def _inside(self, script: str) -> List[str]:
        """The command line that runs a shell script in the chroot."""
        return ['unshare', '--mount', '--propagation', 'private', 'sh', '-c', _ENTER, 'enter',
                str(self.root), '', 'env', f'PATH={_PATH}', 'DEBIAN_FRONTEND=noninteractive',
                'LC_ALL=C.UTF-8', 'sh', '-c', script]

    def install_wheels(self) -> None:
        if self.recipe.wheels:
            self._run('installing Python wheels', [
                '/usr/bin/python3', '-m', 'pip', 'install', '--no-deps', '--only-binary=:all:',
                '--python-version', self.recipe.wheels_python, '--platform',
                'manylinux_2_17_x86_64', '--target', f'{self.root}{PYLIB}', *self.recipe.wheels])

    def _run(self, what: str, command: List[str]) -> None:
        _say(f'{self.name}: {what}')
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=self.log_fd,
                              stderr=subprocess.STDOUT)
        if done.returncode != 0:
            raise ClusterError(f'{self.name}: {what} failed, see {self.log_path}')

    def _write_script(self, path: str, body: str) -> None:
        script = self.root / path
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(f'#!/bin/sh\n{body}\n')
        script.chmod(0o755)


def check_candidate(name: str, recipe: Recipe, policy: str) -> None:
    """Check the output of "apt-cache policy": raises ClusterError for another version."""
    match = re.search(r'Candidate: (\S+)', policy)
    found = match.group(1) if match else 'none'
    # The epoch of Debian is not part of the version of Ceph.
    if not found.rpartition(':')[2].startswith(recipe.version):
        raise ClusterError(f'{name}: Debian {recipe.suite} has Ceph {found}, expected '
                           f'{recipe.version}*: adapt the recipe in qa/cluster/releases.py, or '
                           'use a mirror that still has it')


def mirror() -> str:
    """The package mirror of this machine."""
    command = ['apt-get', 'indextargets', '--format', '$(REPO_URI)', 'Created-By: Packages',
               'Component: main', 'Origin: Debian']
    try:
        text = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              universal_newlines=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        text = ''
    if not text.strip():
        raise ClusterError('no Debian mirror found in apt\'s sources: other releases than the '
                           'installed one need Debian, after "apt-get update"')
    return text.split()[0]
