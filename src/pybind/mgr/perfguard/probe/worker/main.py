# SPDX-License-Identifier: LGPL-2.1-or-later
"""A worker's life: a request on standard input, lines of JSON on standard output."""
import errno
import signal
import threading
import time
import traceback
from types import FrameType
from typing import Optional

from ..types import BadJob
from ..wire import request_from_json
from .protocol import Cancelled, Failed, Input, Output, finish
from .work import Work

#: Seconds after its limit at which the process ends itself, and at which the kernel kills it.
LATE_SECONDS = 1.2
KILL_SECONDS = 1.8
#: From -1000 (never) to 1000 (first); raising it requires no privilege.
OOM_SCORE = '900'


def main() -> None:
    began = time.monotonic()
    _be_killed_first()
    output, commands = Output(), Input()
    _signals(commands)
    state = 'failed'
    try:
        request = request_from_json(commands.request())
        _bound(output, request.limit_seconds)
        state = Work(request, output, commands, began).run()
    except Cancelled:
        state = 'cancelled'
    except BadJob as e:
        output.error(errno.EINVAL, e)
    except Failed as e:
        output.error(e.errno, e)
    except ValueError as e:
        output.error(errno.EINVAL, 'bad request: %s' % e)
    except Exception as e:
        traceback.print_exc()
        output.error(errno.EIO, '%s: %s' % (type(e).__name__, e))
    finish(output, state)


def _be_killed_first() -> None:
    """If memory runs out, the probe is killed before mgr and OSDs on the same host."""
    try:
        with open('/proc/self/oom_score_adj', 'w') as file:
            file.write(OOM_SCORE)
    except OSError:
        pass  # not supported; nothing else depends on it


def _signals(commands: Input) -> None:
    """SIGTERM cancels; signals from a terminal are ignored."""
    def terminated(number: int, frame: Optional[FrameType]) -> None:
        # In a thread, because this one may hold the lock that cancelling requires.
        threading.Thread(target=commands.cancel, args=('terminated',), daemon=True).start()

    signal.signal(signal.SIGTERM, terminated)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _bound(output: Output, limit_seconds: float) -> None:
    """The process ends in time, by a thread and, if that hangs, by the kernel."""
    def late() -> None:
        output.error(errno.ETIMEDOUT, 'not completed within %g s' % limit_seconds)
        finish(output, 'failed')

    timer = threading.Timer(limit_seconds + LATE_SECONDS, late)
    timer.daemon = True
    timer.start()
    signal.setitimer(signal.ITIMER_REAL, limit_seconds + KILL_SECONDS)
