# SPDX-License-Identifier: LGPL-2.1-or-later
"""Starts processes so that none is left behind, and ends only processes of the cluster."""

import os
import queue
import signal
import subprocess
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, TypeVar

from .errors import ClusterError
from .state import process_identity

T = TypeVar('T')

# An exec leaves the command line empty for microseconds.
EXEC_SECONDS = 1.0

# The parent can die before its child has asked for the signal.
_TIED = '[ "$PPID" = "$1" ] || exit 1; shift; exec "$@"'


def tied_argv(command: Sequence[str]) -> List[str]:
    """A command line whose process is killed when this process ends for any reason."""
    return ['setpriv', '--pdeathsig', 'KILL', 'sh', '-c', _TIED, 'tied', str(os.getpid()),
            *command]


def heed_interrupts() -> None:
    """Make ctrl-C (SIGINT) work in processes that a shell has started in the background.

    The shell makes them, and their children, ignore it. In Python every `finally` runs; for other
    programs, this is the preexec_fn of Popen.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class _Spawner:
    """The thread that starts all children.

    A parent-death signal is sent when the THREAD that started the child ends, so this thread must
    live as long as the process. Threads of a pool end before the atexit hooks.
    """

    def __init__(self) -> None:
        self._queue: 'queue.Queue[Tuple[Callable[[], Any], Future[Any]]]' = queue.Queue()
        self._thread: Optional[threading.Thread] = None

    def run(self, call: Callable[[], T]) -> T:
        """Run `call` in the thread and return what it returns."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._serve, name='spawner', daemon=True)
            self._thread.start()
        future: 'Future[T]' = Future()
        self._queue.put((call, future))
        return future.result()

    def _serve(self) -> None:
        while True:
            call, future = self._queue.get()
            try:
                future.set_result(call())
            except BaseException as e:
                future.set_exception(e)


_spawner = _Spawner()


class Daemons:
    """The processes of one cluster, from the pid files in its directory.

    Later processes use the pid files to handle a persistent cluster.
    """

    def __init__(self, directory: Path, tied: bool) -> None:
        self._directory = directory
        self._tied = tied
        self._children: Dict[str, 'subprocess.Popen[bytes]'] = {}

    def spawn(self, name: str, command: Sequence[str], inherit: Iterable[int] = ()) -> int:
        """Start a process in its own session, with output in log/NAME.out; returns its pid."""
        if self.pid(name) is not None:
            raise ClusterError(f'{name} is already running')
        argv = tied_argv(command) if self._tied else list(command)

        def start() -> int:
            with open(self._directory / 'log' / f'{name}.out', 'ab') as output:
                child = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                    start_new_session=True, pass_fds=tuple(inherit), cwd=self._directory)
            self._children[name] = child
            self._pid_file(name).write_text(f'{child.pid}\n')
            return child.pid

        # In the spawner, where KeyboardInterrupt cannot occur between child and pid file.
        return _spawner.run(start)

    def names(self) -> List[str]:
        """Names of all processes that were started and not forgotten, dead or alive."""
        # An interrupted spawn may not have ended yet.
        _spawner.run(lambda: None)
        return sorted(path.name[:-len('.pid')]
                      for path in (self._directory / 'run').glob('*.pid'))

    def pid(self, name: str) -> Optional[int]:
        """The pid of a process if it is alive and belongs to this cluster."""
        child = self._children.get(name)
        if child is not None:
            child.poll()
        try:
            pid = int(self._pid_file(name).read_text())
        except (OSError, ValueError):
            return None
        return pid if self._is_ours(pid) else None

    def signal(self, name: str, number: int) -> None:
        """Send a signal; raises ClusterError if the process is not running."""
        pid = self.pid(name)
        if pid is None:
            raise ClusterError(f'{name} is not running')
        os.kill(pid, number)

    def end(self, names: Iterable[str], number: int, grace_seconds: float = 3.0) -> None:
        """Send a signal to end processes, and kill those that do not end in time."""
        names = list(names)
        self._signal_group(names, number)
        # A stopped process does not handle SIGTERM.
        self._signal_group(names, signal.SIGCONT)
        if not self._wait_gone(names, grace_seconds):
            self._signal_group(names, signal.SIGKILL)
            if not self._wait_gone(names, 10.0):
                alive = [name for name in names if self.pid(name) is not None]
                raise ClusterError(f'{", ".join(alive)} cannot be killed')
        for name in names:
            self.forget(name)

    def kill(self, name: str, number: int) -> None:
        """Send a signal that ends the process, and wait for its end."""
        self.signal(name, number)
        if not self._wait_gone([name], 10.0):
            raise ClusterError(f'{name} did not end on signal {number}')
        self._reap(name)

    def forget(self, name: str) -> None:
        """Remove the traces of an ended process."""
        self._reap(name)
        try:
            self._pid_file(name).unlink()
        except FileNotFoundError:
            pass

    def _reap(self, name: str) -> None:
        """Wait for an ended child, which would otherwise remain a zombie."""
        child = self._children.pop(name, None)
        if child is not None:
            child.wait(10.0)

    def _pid_file(self, name: str) -> Path:
        return self._directory / 'run' / f'{name}.pid'

    def _is_ours(self, pid: int) -> bool:
        """Whether the command line of a process names our directory: pids are reused."""
        deadline = time.monotonic() + EXEC_SECONDS
        while True:
            try:
                cmdline = Path(f'/proc/{pid}/cmdline').read_bytes()
            except OSError:
                return False
            # It remains empty in a zombie, which has ended, and in a kernel thread.
            if cmdline or process_identity(pid) is None or time.monotonic() > deadline:
                return os.fsencode(f'{self._directory}/') in cmdline
            time.sleep(0.001)

    def _signal_group(self, names: Iterable[str], number: int) -> None:
        for name in names:
            pid = self.pid(name)
            if pid is not None:
                _ignore_gone(os.killpg, pid, number)

    def _wait_gone(self, names: Iterable[str], timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while any(self.pid(name) is not None for name in names):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True


def _ignore_gone(call: Callable[[int, int], None], pid: int, number: int) -> None:
    try:
        call(pid, number)
    except ProcessLookupError:
        pass
