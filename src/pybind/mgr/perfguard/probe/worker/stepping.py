# SPDX-License-Identifier: LGPL-2.1-or-later
"""One step: ramp, measured time, and waiting for the last answers."""
import os
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Protocol, Tuple

from ..types import StepResult, StreamResult
from .flow import NAME as PYTHON, Window
from .talk import Ear

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


#: How long answers are waited for after the last operation was sent.
DRAIN_SECONDS = 10.0
#: The same where the step was cancelled.
CANCELLED_DRAIN_SECONDS = 1.0
#: Signals and the end of a step are seen so late at most.
LOOK_SECONDS = 0.05
#: It does not look more often, for its own CPU time would be taken from the probe.
LEAST_SECONDS = 0.0005

#: A second of the measured time, from 0: reads, bytes of them, writes, bytes of them.
Progress = Callable[[int, Tuple[int, int, int, int]], None]


class Streams(Protocol):
    """What an engine makes of a step."""
    engine: str

    def start(self) -> None: ...

    def pace(self) -> Optional[int]: ...

    def stop(self) -> None: ...

    def ended(self) -> bool: ...

    def in_flight(self) -> int: ...

    def hopeless(self) -> str: ...

    def second(self, number: int) -> Tuple[int, int, int, int]: ...

    def results(self) -> List[StreamResult]: ...

    def free(self) -> None: ...


class Stepping:
    """Drives the streams of one step; `stop_at` (time.monotonic) bounds all of it."""

    def __init__(self, streams: Streams, window: Window, stop_at: float, ear: Ear) -> None:
        self._streams, self._window, self._stop_at, self._ear = streams, window, stop_at, ear
        self._cut_short = ''

    def run(self, measured: Callable[[], None], progress: Progress) -> StepResult:
        """`measured` is called when the ramp is over."""
        self._streams.start()
        self._until(self._window.measure_ns)
        before = used()
        measured()
        number = 0
        while self._goes_on():
            second_ns = self._window.measure_ns + (number + 1) * 1_000_000_000
            self._until(min(second_ns, self._window.end_ns))
            if time.monotonic_ns() >= second_ns:
                progress(number, self._streams.second(number))
                number += 1
        self._streams.stop()
        busy = between(before, used(), self._streams.engine == PYTHON)
        self._drain()
        return StepResult(tuple(self._streams.results()), busy.user, busy.system, busy.share,
                          busy.limited, self._streams.engine, self._why())

    def _goes_on(self) -> bool:
        now = time.monotonic()
        if self._ear.cancelled.is_set():
            self._cut_short = self._ear.reason
        elif now >= self._stop_at:
            self._cut_short = 'the time limit of the probe is reached'
        return not (self._cut_short or self._streams.ended()
                    or now * 1e9 >= self._window.end_ns)

    def _until(self, until_ns: int) -> None:
        """Wait, and send meanwhile what a rate has kept back."""
        while self._goes_on() and time.monotonic_ns() < until_ns:
            due_ns = self._streams.pace() or until_ns
            # Where all places are taken, operations stay due.
            pause = max((min(due_ns, until_ns) - time.monotonic_ns()) / 1e9, LEAST_SECONDS)
            self._ear.cancelled.wait(min(pause, LOOK_SECONDS))

    def _drain(self) -> None:
        cancelled = self._ear.cancelled.is_set()
        seconds = CANCELLED_DRAIN_SECONDS if cancelled else DRAIN_SECONDS
        until = min(time.monotonic() + seconds, max(self._stop_at, time.monotonic() + 0.2))
        while self._streams.in_flight() and time.monotonic() < until:
            time.sleep(0.002)
            if self._ear.cancelled.is_set() and not cancelled:
                cancelled = True
                until = min(until, time.monotonic() + CANCELLED_DRAIN_SECONDS)

    def _why(self) -> str:
        open_operations = self._streams.in_flight()
        if not self._cut_short and open_operations:
            return 'operations without an answer: %d' % open_operations
        return self._cut_short or self._streams.hopeless()
