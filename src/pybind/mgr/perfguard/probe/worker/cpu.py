# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the worker itself uses of the CPU."""
import os
import time
from typing import Dict, NamedTuple

#: From this share of a core on the numbers may be the worker's own.
LIMITED_SHARE = 0.9


class Used(NamedTuple):
    at: float
    user: float
    system: float
    #: Seconds of each thread.
    threads: Dict[str, float]


class Cpu(NamedTuple):
    """CPU seconds between two readings, and the share of one core that was the bound, 0 to 1."""
    user: float
    system: float
    share: float

    @property
    def limited(self) -> bool:
        return self.share >= LIMITED_SHARE


def used() -> Used:
    times = os.times()
    return Used(time.monotonic(), times.user, times.system, _threads())


def between(before: Used, after: Used, one_lock: bool) -> Cpu:
    """`one_lock`: only one thread runs at a time, so that all of them together are the bound."""
    seconds = max(after.at - before.at, 1e-9)
    user, system = after.user - before.user, after.system - before.system
    busiest = max((spent - before.threads.get(thread, 0.0)
                   for thread, spent in after.threads.items()), default=0.0)
    spent = user + system if one_lock else busiest
    return Cpu(user, system, min(1.0, spent / seconds))


def _threads() -> Dict[str, float]:
    return {thread: _seconds(thread) for thread in os.listdir('/proc/self/task')}


def _seconds(thread: str) -> float:
    try:
        with open('/proc/self/task/%s/stat' % thread) as stat:
            fields = stat.read().rpartition(')')[2].split()
    except OSError:
        return 0.0  # it has just ended
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')
