# SPDX-License-Identifier: LGPL-2.1-or-later
"""A run that measures the object stores of OSDs by their command `bench`, one OSD at a time.

It needs no pool, user or worker and leaves nothing: an OSD removes what it wrote.
"""
import logging
from statistics import median
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from ..cluster.ports import Commander, View
from ..cluster.types import Signals
from .limits import Budget, disturbances
from .records import ABORTED, FAILED, RUNNING, RunRecord
from .stats import measured
from .types import Counted, Direction, Job, JobStep, StepResult, Stream, StreamResult

log = logging.getLogger(__name__)

BENCH = 'probe bench'
RANDWRITE = 'randwrite'
#: Seconds to wait for one bench: the least plausible capacity of an OSD (advise.settings) is 50
#: IOPS, with which 3,000 writes take 60, after 400 MiB of objects. OSDs limit the bytes, not the
#: time (osd_bench_duration).
BENCH_SECONDS = 150.0
#: Seconds for which an OSD that has not answered gets no other bench.
STILL_SECONDS = 2 * BENCH_SECONDS


class Bench(NamedTuple):
    """Arguments of `bench`: bytes in all, and of one operation.

    With objects, they are written first and then overwritten at random places; otherwise each
    operation writes a new object.
    """
    total_bytes: int
    block_bytes: int
    object_bytes: int = 0
    objects: int = 0

    @property
    def prefill_bytes(self) -> int:
        return self.object_bytes * self.objects

    @property
    def stored_bytes(self) -> int:
        """Space that it takes until the OSD removes the objects."""
        return self.prefill_bytes or self.total_bytes


#: At 4 KiB an OSD allows 30 s x 100 operations/s = 12,288,000 bytes (osd_bench_small_size_max_iops
#: and osd_bench_duration); with 4 MiB up to 100 MiB/s (osd_bench_large_size_max_throughput). The
#: first one is how OSDs measure their capacity for mclock (Ceph documentation, mClock
#: configuration).
BENCHES = (Bench(12288000, 4096, 4 << 20, 100), Bench(128 << 20, 4 << 20))
#: Expected duration of one bench.
USUAL_BENCH_SECONDS = 10.0


def store_budget(osds: int, repeat: int) -> Budget:
    """The budget of a bench of this number of OSDs; each removes what it wrote."""
    runs = osds * repeat
    return Budget(seconds=USUAL_BENCH_SECONDS * len(BENCHES) * runs,
                  prefill_bytes=runs * sum(bench.prefill_bytes for bench in BENCHES),
                  stored_bytes=max(bench.stored_bytes for bench in BENCHES),
                  transfer_bytes=runs * sum(bench.total_bytes for bench in BENCHES), objects=0)


def capacities(records: Sequence[RunRecord]) -> Dict[int, Tuple[int, float]]:
    """OSD -> the id of the newest run that measured its store, and the 4 KiB writes per second
    (median of the repetitions). `records`: oldest first."""
    last: Dict[int, Tuple[int, float]] = {}
    for record in records:
        if record.target.kind == 'store' and record.ended_well:
            for key, repetitions in measured(record.done).items():
                shape = key.job.rw, key.job.bs
                if key.osd is not None and shape == (RANDWRITE, BENCHES[0].block_bytes):
                    last[key.osd] = record.id, median(repetition.iops for repetition in repetitions)
    return last


class StoreRun:
    """A run of the OSDs' own bench, with the interface of ProbeRun."""

    def __init__(self, cluster: Commander, osds: Sequence[int], repeat: int, now: float,
                 is_active: Callable[[], bool] = lambda: True) -> None:
        """`is_active`: whether this mgr still is the active one."""
        self._cluster = cluster
        self._is_active = is_active
        #: The benches without a result, the present one first: repetition, OSD, bench.
        self._todo: List[Tuple[int, int, Bench]] = [
            (number, osd, bench) for number in range(repeat) for osd in osds for bench in BENCHES]
        self._total = len(self._todo)
        #: When the last bench was sent, in seconds since `started` (0.0: none was), and whether its
        #: answer is expected.
        self._asked_at = 0.0
        self._waiting = False
        self.started = now
        self._done: List[Tuple[JobStep, StepResult]] = []
        self.outcome = ''
        self.message = ''
        self.disturbed_by: Dict[str, None] = {}
        self.finished = False

    def end(self, outcome: str, message: str) -> None:
        """End the run with this final state, for the reason `message`; those of the first call
        count. A bench cannot be stopped: the run waits for its answer and begins no other."""
        if not self.outcome:
            self.outcome, self.message = outcome, message
        self.finished = not self._waiting

    def turn(self, now: float, view: View, signals: Signals, reasons: Sequence[str],
             interval: float) -> None:
        """Run one turn: take in an answer, and start the next bench if none is running. `reasons`:
        why no probe may continue. `view` and `interval` are those of ProbeRun."""
        seconds = now - self.started
        if reasons:
            self.end(ABORTED, reasons[0])
        for text in disturbances(signals):
            self.disturbed_by[text] = None
        if self.finished:
            return
        answers = self._cluster.answers(BENCH)
        if self._waiting:
            self._take(answers, seconds)
        if self.outcome:
            self.finished = not self._waiting
        elif not self._waiting:
            self._next(seconds)

    def close(self) -> None:
        """Nothing to undo."""

    def _take(self, answers: Mapping[int, Any], seconds: float) -> None:
        """Take in the answer to the present bench. The run fails if there is none in time, the OSD
        has refused, or the answer is no measurement. `seconds`: since the run began."""
        number, osd, bench = self._todo[0]
        if osd not in answers and osd in self._cluster.asked(BENCH) \
                and seconds - self._asked_at < BENCH_SECONDS:
            return
        self._waiting = False
        if osd not in answers:
            self.end(FAILED, 'osd.%d refused or did not answer the command "bench"' % osd)
            return
        self._todo.pop(0)
        try:
            self._done.append(_measured(osd, bench, answers[osd], number))
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            log.warning('osd.%d: cannot read the answer to "bench": %r', osd, error)
            self.end(FAILED, 'osd.%d did not answer the command "bench" with a measurement' % osd)

    def _next(self, seconds: float) -> None:
        """Start the next bench, once no earlier one runs on its OSD; without a next one, the run is
        finished. `seconds`: since the run began."""
        if not self._todo:
            self.finished = True
            return
        _, osd, bench = self._todo[0]
        if osd in self._cluster.asked(BENCH):
            # One of an earlier run: its answer would be mistaken for that of this one.
            if seconds - self._asked_at > STILL_SECONDS:
                self.end(FAILED, 'osd.%d is still running an earlier bench' % osd)
            return
        if not self._is_active():
            return  # the mgr that has replaced this one has ended the run
        self._asked_at, self._waiting = seconds, True
        self._cluster.ask(BENCH, [osd], {
            'prefix': 'bench', 'count': bench.total_bytes, 'size': bench.block_bytes,
            **({'object_size': bench.object_bytes, 'object_num': bench.objects}
               if bench.objects else {})}, STILL_SECONDS)

    # ---- results

    state = RUNNING

    @property
    def share(self) -> float:
        return len(self._done) / self._total

    @property
    def text(self) -> str:
        """The progress, as a text."""
        return 'bench %d of %d' % (len(self._done) + 1, self._total)

    @property
    def steps(self) -> Tuple[JobStep, ...]:
        return tuple(step for step, _ in self._done)

    def in_order(self) -> Tuple[StepResult, ...]:
        return tuple(result for _, result in self._done)

    def counted(self) -> Tuple[Counted, ...]:
        """A bench does not pass through the counters of client operations."""
        return ()


def _measured(osd: int, bench: Bench, answer: Mapping[str, Any],
              repetition: int) -> Tuple[JobStep, StepResult]:
    """The answer of an OSD to "bench" as a job and its result, without latencies, which OSDs do not
    report. Raises ArithmeticError, LookupError, TypeError or ValueError if it is no measurement."""
    name = 'osd.%d' % osd
    runtime_ns = int(float(answer['elapsed_sec']) * 1e9)
    if not 0 < runtime_ns < 1 << 63:
        raise ValueError('%d ns' % runtime_ns)
    total, block = bench.total_bytes, bench.block_bytes
    # At iodepth 1, without a runtime, so that the job does not depend on how long it took.
    job = Job('bench-%d' % block, RANDWRITE, block, 1, bench.prefill_bytes, bench.objects, 0.0) \
        if bench.objects else Job('bench-%d' % block, 'write', block, 1, total, 1, 0.0)
    done = Direction(total // block, total, runtime_ns)
    return (JobStep(job, (Stream(name, (), osd),), repetition),
            StepResult((StreamResult(name, write=done),), engine='osd bench'))
