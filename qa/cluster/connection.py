# SPDX-License-Identifier: LGPL-2.1-or-later
"""Commands to a cluster through librados, 200 times as fast as the ceph command.

The librados of the machine also works with newer clusters. No call blocks without a time limit, in
any state of the cluster: commands run in separate threads, and a command without an answer in time
is abandoned with its thread.
"""

import base64
import errno
import itertools
import json
import queue
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, TypeVar

from .errors import ClusterError, CommandError
from .patience import patient
from .releases import Release

try:
    import rados
    # Renamed, because the classes have methods called `rados`.
    from rados import Rados as Handle
    from . import relay
    from .relay import Reply, sender
except ImportError:
    raise ClusterError('python3-rados is missing, or this is not /usr/bin/python3: '
                       'run ./install-deps.sh')

T = TypeVar('T')

DEFAULT_TIMEOUT = patient(30.0)

# Errors of commands during a failover of the mgr, which are resent until the timeout.
_TRANSIENT = (errno.ENOTCONN, errno.EAGAIN, errno.ECONNRESET)


def bounded(call: Callable[[], T], timeout: float, what: str) -> T:
    """Run `call` in a separate thread and stop waiting after `timeout` seconds."""
    return _Call(call, what).result(timeout)


class _Call:
    def __init__(self, call: Callable[[], Any], what: str) -> None:
        self._what = what
        self._value: Any = None
        self._error: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self._value = call()
        except BaseException as e:
            self._error = e

    def result(self, timeout: float) -> Any:
        self._thread.join(max(0.0, timeout))
        if self._thread.is_alive():
            raise CommandError(errno.ETIMEDOUT, f'no answer in {timeout:.0f} s', self._what)
        if self._error is not None:
            raise self._error
        return self._value


class Connection:
    """A librados handle of client.admin, connected at first use and shared by threads."""

    def __init__(self, conf: Path) -> None:
        self._conf = conf
        self._handle: Optional[Handle] = None
        self._lock = threading.Lock()

    def rados(self, timeout: float = DEFAULT_TIMEOUT) -> Handle:
        """The connected handle."""
        with self._lock:
            if self._handle is None:
                self._handle = self._connect(timeout)
            return self._handle

    def _connect(self, timeout: float) -> Handle:
        deadline = time.monotonic() + timeout
        while True:
            handle = rados.Rados(conffile=str(self._conf), name='client.admin')
            # While the mons start, short attempts connect sooner.
            handle.conf_set('client_mount_timeout', '3')
            try:
                bounded(handle.connect, 10.0, 'connecting')
                return handle
            except (rados.Error, CommandError) as e:
                if time.monotonic() > deadline:
                    raise ClusterError(f'cannot connect to the mons: {e}')
                time.sleep(0.1)

    def close(self) -> None:
        """Disconnect; abandoned commands may prevent the handle from closing."""
        with self._lock:
            handle, self._handle = self._handle, None
        if handle is not None:
            try:
                bounded(handle.shutdown, 5.0, 'disconnecting')
            except (rados.Error, CommandError):
                pass

    def command(self, target: str, command: Dict[str, Any], inbuf: bytes = b'',
                timeout: float = DEFAULT_TIMEOUT) -> Reply:
        """Send a command; returns (ret, output, status), ret 0 or a negative errno.

        `target` is ``mon``, ``mgr``, or one daemon, such as ``osd.3``.
        """
        deadline = time.monotonic() + timeout
        while True:
            reply = self._send(target, command, inbuf).result(deadline - time.monotonic())
            if -reply[0] not in _TRANSIENT or target == 'mon':
                return reply
            if time.monotonic() + 0.2 > deadline:
                return reply
            time.sleep(0.2)

    def burst(self, target: str, commands: Iterable[Dict[str, Any]],
              inbufs: Optional[Sequence[bytes]] = None,
              timeout: float = DEFAULT_TIMEOUT) -> List[Reply]:
        """Send many commands at once, so that the mon can apply them in one epoch.

        Returns the replies in order.
        """
        commands = list(commands)
        inbufs = inbufs or [b''] * len(commands)
        deadline = time.monotonic() + timeout
        calls = [self._send(target, command, inbuf)
                 for command, inbuf in zip(commands, inbufs)]
        return [call.result(deadline - time.monotonic()) for call in calls]

    def tell_osds(self, osds: Iterable[int], command: Dict[str, Any],
                  timeout: float) -> Dict[int, Any]:
        """Send a command to many OSDs at once; returns the parsed output of those that answer."""
        deadline = time.monotonic() + timeout
        calls = {osd: self._send(f'osd.{osd}', command, b'') for osd in osds}
        answers = {}
        for osd, call in calls.items():
            try:
                answers[osd] = parse(call.result(deadline - time.monotonic()), f'osd.{osd}')
            except CommandError:
                continue
        return answers

    def _send(self, target: str, command: Dict[str, Any], inbuf: bytes) -> _Call:
        try:
            call = sender(self.rados(), target)
        except ValueError as e:
            raise ClusterError(str(e))
        text = json.dumps(command)
        return _Call(lambda: call(text, inbuf), f'{target}: {command.get("prefix")}')


class Relayed(Connection):
    """Commands through the librados of a release in a chroot.

    Daemons refuse new connections of clients that are older than a feature in use. Connections that
    exist remain, until one is lost.
    """

    def __init__(self, conf: Path, release: Release) -> None:
        super().__init__(conf)
        program = Path(relay.__file__).read_text()
        self._process = subprocess.Popen(
            release.argv(['setpriv', '--pdeathsig', 'KILL', '/usr/bin/python3', '-c', program,
                          str(conf)], conf.parent),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, universal_newlines=True, bufsize=1)
        self._numbers = itertools.count()
        self._asked: Dict[int, 'queue.SimpleQueue[Reply]'] = {}
        threading.Thread(target=self._receive, daemon=True).start()

    def close(self) -> None:
        super().close()
        self._process.kill()
        self._process.wait()

    def _send(self, target: str, command: Dict[str, Any], inbuf: bytes) -> _Call:
        answer: 'queue.SimpleQueue[Reply]' = queue.SimpleQueue()
        with self._lock:
            number = next(self._numbers)
            self._asked[number] = answer
            try:
                print(json.dumps({'id': number, 'target': target, 'command': json.dumps(command),
                                  'inbuf': base64.b64encode(inbuf).decode()}),
                      file=self._process.stdin)
            except OSError as e:
                raise ClusterError(f'the program that sends commands has ended: {e}')
        return _Call(answer.get, f'{target}: {command.get("prefix")}')

    def _receive(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            ret, out, status = answer['reply']
            self._asked.pop(answer['id']).put((ret, out, status))
        with self._lock:
            unanswered = list(self._asked.values())
        for waiting in unanswered:
            waiting.put((-errno.ENOTCONN, '', 'the program that sends commands has ended'))


def parse(reply: Reply, what: str) -> Any:
    """The JSON output of a reply (or None when empty); raises CommandError for a refusal."""
    ret, out, status = reply
    if ret < 0:
        raise CommandError(-ret, status, what)
    if not out.strip():
        return None
    try:
        return json.loads(out)
    except ValueError:
        return out
