# SPDX-License-Identifier: LGPL-2.1-or-later
"""Commands to a cluster through librados, 200 times as fast as the ceph command.

The librados of the machine also works with newer clusters. No call blocks without a time limit, in
any state of the cluster: commands run in separate threads, and a command without an answer in time
is abandoned with its thread.
"""

import errno
import json
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, TypeVar

from .errors import ClusterError, CommandError
from .patience import patient

try:
    import rados
    # Renamed, because the classes have methods called `rados`.
    from rados import Rados as Handle
except ImportError:
    raise ClusterError('python3-rados is missing, or this is not /usr/bin/python3: '
                       'run ./install-deps.sh')

Reply = Tuple[int, str, str]
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
        handle = self.rados()
        text = json.dumps(command)
        send = _sender(handle, target)

        def call() -> Reply:
            try:
                ret, out, status = send(text, inbuf)
            except rados.Error as e:
                return -abs(e.errno or errno.EIO), '', str(e)
            return ret, bytes(out).decode(errors='replace'), _as_text(status)
        return _Call(call, f'{target}: {command.get("prefix")}')


def _sender(handle: Handle, target: str) -> Callable[[str, bytes], Tuple[int, bytes, Any]]:
    if target == 'mon':
        return handle.mon_command
    if target == 'mgr':
        return handle.mgr_command
    kind, _, ident = target.partition('.')
    if kind == 'osd':
        return lambda text, inbuf: handle.osd_command(int(ident), text, inbuf)
    if kind == 'mgr':
        return lambda text, inbuf: handle.mgr_command(text, inbuf, target=ident)
    if kind == 'mon':
        return lambda text, inbuf: handle.mon_command(text, inbuf, target=ident)
    raise ClusterError(f'{target!r} takes no commands: mon, mgr, or one daemon such as osd.3')


def _as_text(status: Any) -> str:
    return status.decode(errors='replace') if isinstance(status, bytes) else str(status or '')


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
