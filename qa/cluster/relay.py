# SPDX-License-Identifier: LGPL-2.1-or-later
"""Sends commands to a cluster with the librados of the Python that runs this file as a program.

Requests and answers are lines of JSON on standard input and output; answers come in any order.
`connection.Relayed` runs it in the chroot of a release, where the rest of qa is missing.
"""

import base64
import errno
import json
import sys
import threading
from typing import Any, Callable, Dict, Tuple

import rados

Reply = Tuple[int, str, str]


def sender(handle: rados.Rados, target: str) -> Callable[[str, bytes], Reply]:
    """What sends a command, as JSON, to ``mon``, ``mgr`` or one daemon such as ``osd.3``; raises
    ValueError if nothing of that kind takes commands."""
    send = _method(handle, target)

    def call(text: str, inbuf: bytes) -> Reply:
        try:
            ret, out, status = send(text, inbuf)
        except rados.Error as e:
            return -abs(e.errno or errno.EIO), '', str(e)
        return ret, bytes(out).decode(errors='replace'), _as_text(status)
    return call


def _method(handle: rados.Rados, target: str) -> Callable[[str, bytes], Tuple[int, bytes, Any]]:
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
    raise ValueError(f'{target!r} takes no commands: mon, mgr, or one daemon such as osd.3')


def _as_text(status: Any) -> str:
    return status.decode(errors='replace') if isinstance(status, bytes) else str(status or '')


def _serve(conf: str) -> None:
    """Answer requests until standard input ends."""
    handle = rados.Rados(conffile=conf, name='client.admin')
    handle.connect()
    lock = threading.Lock()

    def answer(request: Dict[str, Any]) -> None:
        try:
            call = sender(handle, request['target'])
            reply = call(request['command'], base64.b64decode(request['inbuf']))
        except ValueError as e:
            reply = -errno.EINVAL, '', str(e)
        with lock:
            print(json.dumps({'id': request['id'], 'reply': reply}), flush=True)

    for line in sys.stdin:
        # A command that is never answered must not keep the process.
        threading.Thread(target=answer, args=(json.loads(line),), daemon=True).start()


if __name__ == '__main__':
    _serve(sys.argv[1])
