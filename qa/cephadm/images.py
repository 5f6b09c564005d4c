# SPDX-License-Identifier: LGPL-2.1-or-later
"""Makes images of the installed packages, and stores them for podman and for the registry.

    python3 -m qa.cephadm.images CACHE_DIRECTORY

To be run in namespaces of mounts, processes and the network of its own (`make_images`).
"""
import subprocess
import sys
from pathlib import Path
from typing import List

from qa.cluster.daemons import tied_argv
from qa.cluster.errors import ClusterError
from qa.cluster.load_control import TOP_DIR

from .cache import IMAGE, SWITCH, TAGS, Cache
from .registry import start_registry

#: The configuration of podman on the shared store, without systemd.
_STORAGE = '[storage]\ndriver="overlay"\ngraphroot="/srv/store"\nrunroot="/run/containers"\n'
_ENGINE = '[engine]\ncgroup_manager="cgroupfs"\nevents_logger="file"\n'
_ENVIRONMENT = ('PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
                'LC_ALL=C.UTF-8')
_LEFT_OUT = ('./usr/share/doc/*', './var/cache/*', './usr/share/locale/*')


def make_images(cache: Cache) -> None:
    """Raises ClusterError, which names the log."""
    log = cache.log / 'images.log'
    with open(log, 'w') as output:
        done = subprocess.run(
            tied_argv(['unshare', '--mount', '--pid', '--net', '--fork', '--kill-child',
                       '--mount-proc', sys.executable, '-m', 'qa.cephadm.images',
                       str(cache.path)]),
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=TOP_DIR)
    if done.returncode != 0:
        raise ClusterError(f'the images could not be made, see {log}')


def _run(*argv: object) -> None:
    subprocess.run([str(word) for word in argv], check=True)


class _Podman:
    """podman of the hosts on the shared store."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        # Overlay on tmpfs: nothing of it remains.
        self._root = Path('/run/podman/root')
        _run('mount', '-t', 'tmpfs', 'tmpfs', '/run')
        for name in ('root', 'up', 'work'):
            (self._root.parent / name).mkdir(parents=True)
        _run('mount', '-t', 'overlay', 'overlay', '-o', f'lowerdir={cache.host_root},'
             f'upperdir={self._root.parent / "up"},workdir={self._root.parent / "work"}',
             self._root)
        cache.store.mkdir(exist_ok=True)
        _run('mount', '--bind', cache.store, self._root / 'srv/store')
        for path in ('proc', 'sys', 'dev'):
            _run('mount', '--rbind', f'/{path}', self._root / path)
        for path in ('run', 'tmp'):
            _run('mount', '-t', 'tmpfs', 'tmpfs', self._root / path)
        (self._root / 'etc/containers/storage.conf').write_text(_STORAGE)
        (self._root / 'etc/containers/containers.conf').write_text(_ENGINE)

    def __call__(self, *words: str) -> None:
        _run(*self._argv(*words))

    def _argv(self, *words: str) -> List[str]:
        return ['chroot', str(self._root), 'podman', *words]

    def import_root(self, image: str, *changes: str) -> None:
        """Make an image of the installed packages."""
        tar = subprocess.Popen(
            ['tar', '-C', str(self._cache.image_root), *(f'--exclude={path}' for path in _LEFT_OUT),
             '-cf', '-', '.'], stdout=subprocess.PIPE)
        options = [word for change in changes for word in ('--change', change)]
        subprocess.run(self._argv('import', '-q', *options, '-', image), stdin=tar.stdout,
                       check=True)
        assert tar.stdout is not None
        tar.stdout.close()
        if tar.wait() != 0:
            raise subprocess.CalledProcessError(tar.returncode, 'tar')

    def build(self, image: str, base: str) -> None:
        """Make an image that differs in one file."""
        folder = self._root / 'tmp/context'
        folder.mkdir()
        (folder / 'mark').write_text('next\n')
        (folder / 'Containerfile').write_text(f'FROM {base}\nCOPY mark /etc/image-mark\n')
        self('build', '-q', '--isolation=chroot', '-t', image, '/tmp/context')


def main(cache: Cache) -> None:
    _run('ip', 'link', 'set', 'lo', 'up')
    _run('ip', 'addr', 'add', f'{SWITCH}/24', 'dev', 'lo')
    podman = _Podman(cache)
    cache.registry.mkdir(exist_ok=True)
    start_registry(cache, cache.log)
    base, following = (f'{IMAGE}:{tag}' for tag in TAGS)
    podman('rmi', '--all', '--force')
    podman.import_root(base, *(f'ENV {pair}' for pair in _ENVIRONMENT), 'LABEL ceph=True')
    podman.build(following, base)
    for image in (base, following):
        podman('push', '-q', '--compression-format', 'gzip', '--compression-level', '1', image)
    # Away and back: otherwise the store also knows the digest before compression, cephadm takes
    # that one, and no registry has it.
    podman('rmi', '--force', following, base)
    for image in (base, following):
        podman('pull', '-q', image)


if __name__ == '__main__':
    main(Cache(Path(sys.argv[1])))
