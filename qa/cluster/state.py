# SPDX-License-Identifier: LGPL-2.1-or-later
"""The state of a cluster in its directory, and the locations of these directories."""

import contextlib
import errno
import json
import os
import stat
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Tuple

from .errors import ClusterError

STATE_FILE = 'cluster.json'

# sockaddr_un has room for 108 bytes with the terminating zero.
SOCKET_PATH_MAX = 107


@dataclass
class State:
    """The data to handle a running cluster from another process."""

    release: str
    store: str
    fsid: str
    tied: bool
    # Pid and start time of the process whose end also ends a tied cluster.
    owner: Tuple[int, int]
    ports: Tuple[int, int]
    mons: List[str]
    mgrs: List[str]
    racks: int = 0
    # CRUSH host of each OSD.
    osds: Dict[int, str] = field(default_factory=dict)
    keep_logs: bool = False

    def save(self, directory: Path) -> None:
        """Write the state atomically."""
        partial = directory / f'{STATE_FILE}.partial'
        partial.write_text(json.dumps(asdict(self), indent=1))
        partial.rename(directory / STATE_FILE)

    @classmethod
    def load(cls, directory: Path) -> 'State':
        """Read the state; raises OSError or ValueError without one."""
        fields = json.loads((directory / STATE_FILE).read_text())
        fields['owner'] = tuple(fields['owner'])
        fields['ports'] = tuple(fields['ports'])
        fields['osds'] = {int(osd): host for osd, host in fields['osds'].items()}
        return cls(**fields)

    def abandoned(self) -> bool:
        """Whether the process that this cluster is tied to has ended."""
        return self.tied and process_identity(self.owner[0]) != self.owner


def base_dir() -> Path:
    """The directory of all clusters of this user; short because of the limit of socket paths."""
    run = os.environ.get('PERFGUARD_RUN')
    return Path(run).resolve() if run else \
        Path(tempfile.gettempdir()).resolve() / f'perfguard-{os.getuid()}'


def check_base() -> None:
    """Raises ClusterError unless only this user can write the base: in /tmp, other users may have
    created a directory or a link of this name."""
    base = base_dir()
    found = os.lstat(base)
    if 'PERFGUARD_RUN' not in os.environ and not (
            stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
            and not found.st_mode & 0o077):
        raise ClusterError(f'{base} must be a directory of this user with mode 0700: remove it, '
                           'or set PERFGUARD_RUN')


def new_directory(release: str, directory: Optional[Path] = None) -> Path:
    """Create a directory for a cluster: `directory`, or one with a name of its own."""
    directory = _named(Path(directory).resolve()) if directory is not None else _unnamed(release)
    longest = directory / 'run' / 'osd.9999.asok'
    if len(str(longest)) > SOCKET_PATH_MAX:
        directory.rmdir()
        raise ClusterError(f'{directory} is too long for a socket path: set PERFGUARD_RUN')
    return directory


def _named(directory: Path) -> Path:
    try:
        if directory.parent == base_dir():
            _make_base()
        directory.mkdir(parents=True)
    except OSError as e:
        if e.errno != errno.EEXIST or any(directory.iterdir()):
            raise ClusterError(f'{directory}: {e.strerror}')
    return directory


def _unnamed(release: str) -> Path:
    for _ in range(3):
        with contextlib.suppress(FileNotFoundError):
            _make_base()
            return Path(tempfile.mkdtemp(prefix=f'{release}-', dir=base_dir()))
        # Another process has just removed its last cluster, and the base.
    raise ClusterError(f'cannot make a directory in {base_dir()}')


def _make_base() -> None:
    base_dir().mkdir(mode=0o700, parents=True, exist_ok=True)
    check_base()


def remove_empty_base() -> None:
    """Remove the base directory after the last cluster, unless the user has set it."""
    if 'PERFGUARD_RUN' not in os.environ:
        with contextlib.suppress(OSError):
            base_dir().rmdir()


def directories() -> Iterator[Path]:
    """The directories of all clusters, including those that are no longer running."""
    if base_dir().is_dir():
        check_base()
        for path in sorted(base_dir().iterdir()):
            if (path / STATE_FILE).exists():
                yield path


def process_identity(pid: int) -> Optional[Tuple[int, int]]:
    """Pid and start time of a process, which differ for a reused pid; None if it has ended."""
    fields = _process_stat(pid)
    return None if not fields or fields[0] in 'ZX' else (pid, int(fields[19]))


def is_stopped(pid: int) -> bool:
    """Whether SIGSTOP has taken effect, which is not immediate."""
    return _process_stat(pid)[:1] == ['T']


def threads(pid: int) -> List[str]:
    """What the threads of a process do, as in "3 msgr-worker-0: S ep_poll, 12 s": the number of
    such threads, their name, state, kernel function, and CPU time together. Empty if the process
    has ended."""
    seconds: Dict[Tuple[str, str, str], List[float]] = {}
    for task in Path(f'/proc/{pid}/task').glob('*'):
        try:
            name = (task / 'comm').read_text().strip()
            place = (task / 'wchan').read_text() or '?'
            fields = _fields_of(task / 'stat')
        except OSError:
            continue  # just gone
        used = sum(map(int, fields[11:13])) / os.sysconf('SC_CLK_TCK')
        seconds.setdefault((name, fields[0], place), []).append(used)
    return ['%d %s: %s %s, %.0f s' % (len(used), *key, sum(used))
            for key, used in sorted(seconds.items())]


def _process_stat(pid: int) -> List[str]:
    """The fields of /proc/PID/stat from the state on; empty if the process has ended."""
    try:
        return _fields_of(Path(f'/proc/{pid}/stat'))
    except OSError:
        return []


def _fields_of(path: Path) -> List[str]:
    """The fields of a stat file of /proc from the state on."""
    stat = path.read_text()
    return stat[stat.rindex(')') + 2:].split()
