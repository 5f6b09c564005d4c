# SPDX-License-Identifier: LGPL-2.1-or-later
"""An open-loop client: operations start on schedule, even if earlier ones are in flight.

A closed loop sends less while the cluster is slow, which hides the slowness (coordinated omission).
Here, latency counts from the scheduled time. Operations beyond --max-outstanding wait for a slot:
they count as missed, and their latency includes the wait. With --max-outstanding 1, the client has
one operation in flight at a time, like most clients, and still does not hide stalls.

Run as ``/usr/bin/python3 -m qa.cluster.load --conf CEPH_CONF POOL``. Prints one line of JSON for
each interval; with --samples it also writes every operation to a file, see samples.py.
"""

import argparse
import collections
import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, Deque, Dict, List, Optional, TextIO, Tuple

from .connection import Connection, Handle
from .errors import ClusterError
from .pools import fill
from .samples import ERROR, OK, READ, UNFINISHED, WRITE, Sample, pack, percentiles_ms

PREFIX = 'load'

# How long completions are waited for at the end; an OSD that hangs never gives one.
DRAIN_SECONDS = 3.0

PENDING_SUFFIX = '.pending'


class Client:
    """The client of one run: `run` schedules operations, threads of librados complete them."""

    def __init__(self, ioctx: Any, args: argparse.Namespace, out: TextIO,
                 samples_path: Optional[Path]) -> None:
        self._ioctx = ioctx
        self._args = args
        self._out = out
        self._samples_path = samples_path
        self._samples_file: Optional[BinaryIO] = \
            open(samples_path, 'wb') if samples_path else None
        self._random = random.Random(args.seed)
        self._data = os.urandom(args.size)
        # Wall time minus monotonic time, so that setting the clock does not affect latencies.
        self._wall_offset = time.time() - time.monotonic()
        self._lock = threading.Lock()
        # Set by a completion while operations wait for a slot.
        self._slot_free = threading.Event()
        self._done: List[Sample] = []
        # Scheduled time and kind of operations in flight, and of those that wait for a slot.
        self._sent: Dict[int, Tuple[float, int]] = {}
        self._waiting: Deque[Tuple[float, int]] = collections.deque()
        self._missed = 0
        self._next_id = 0
        self._stop = False

    def stop(self, number: int, frame: Optional[FrameType]) -> None:
        """Signal handler: end the run early and write all samples."""
        self._stop = True

    def run(self) -> None:
        """Send operations until the runtime is over."""
        start = time.monotonic()
        end = start + self._args.runtime
        next_report = start + self._args.interval
        last_report = start
        scheduled = 0
        while not self._stop:
            now = time.monotonic()
            if now >= end:
                break
            while start + scheduled / self._args.rate <= now:
                self._submit(start + scheduled / self._args.rate)
                scheduled += 1
            self._send_waiting()
            if now >= next_report:
                self._report(now - last_report)
                last_report = now
                next_report += self._args.interval
            next_op = start + scheduled / self._args.rate
            pause = min(next_op, next_report, end) - time.monotonic()
            # Not longer, because a signal handler does not end the wait.
            self._slot_free.wait(min(max(pause, 0.0), 0.05))
            self._slot_free.clear()
        self._drain(last_report)

    def _submit(self, scheduled: float) -> None:
        kind = READ if self._random.random() < self._args.read_fraction else WRITE
        if self._waiting or len(self._sent) >= self._args.max_outstanding:
            self._missed += 1
            self._waiting.append((scheduled, kind))
        else:
            self._send(scheduled, kind)

    def _send_waiting(self) -> None:
        while self._waiting and len(self._sent) < self._args.max_outstanding:
            self._send(*self._waiting.popleft())

    def _send(self, scheduled: float, kind: int) -> None:
        name = f'{PREFIX}{self._random.randrange(self._args.objects)}'
        self._next_id += 1
        op = self._next_id
        with self._lock:
            self._sent[op] = (scheduled, kind)
        if kind == READ:
            self._ioctx.aio_read(name, self._args.size, 0,
                                 lambda completion, data: self._complete(op, completion))
        else:
            self._ioctx.aio_write_full(name, self._data,
                                       lambda completion: self._complete(op, completion))

    def _complete(self, op: int, completion: Any) -> None:
        now = time.monotonic()
        status = ERROR if completion.get_return_value() < 0 else OK
        with self._lock:
            scheduled, kind = self._sent.pop(op)
            self._done.append(self._sample(scheduled, now, kind, status))
        if self._waiting:
            self._slot_free.set()

    def _sample(self, scheduled: float, now: float, kind: int, status: int) -> Sample:
        return Sample(scheduled + self._wall_offset, (now - scheduled) * 1e3, kind, status)

    def _drain(self, last_report: float) -> None:
        deadline = time.monotonic() + DRAIN_SECONDS
        while (self._sent or self._waiting) and time.monotonic() < deadline:
            self._send_waiting()
            time.sleep(0.01)
        self._report(time.monotonic() - last_report, final=True)

    def _report(self, seconds: float, final: bool = False) -> None:
        now = time.monotonic()
        with self._lock:
            done, self._done = self._done, []
            open_ops = [*self._sent.values(), *self._waiting]
        unfinished = [self._sample(scheduled, now, kind, UNFINISHED)
                      for scheduled, kind in open_ops]
        self._write_samples(done, unfinished, final)
        by_kind = {kind: [s.latency_ms for s in done if s.kind == kind and s.status == OK]
                   for kind in (READ, WRITE)}
        line = {
            'time': round(now + self._wall_offset, 3),
            'interval': round(seconds, 3),
            'reads': len(by_kind[READ]),
            'writes': len(by_kind[WRITE]),
            'errors': sum(s.status == ERROR for s in done),
            'outstanding': len(unfinished),
            'missed': self._missed,
            'oldest_ms': round(max((s.latency_ms for s in unfinished), default=0.0), 3),
            'read_ms': _rounded(percentiles_ms(by_kind[READ])),
            'write_ms': _rounded(percentiles_ms(by_kind[WRITE])),
        }
        self._missed = 0
        print(json.dumps(line), file=self._out, flush=True)

    def _write_samples(self, done: List[Sample], unfinished: List[Sample], final: bool) -> None:
        """Append completed operations; those in flight are in a file that is replaced each time."""
        if self._samples_file is None or self._samples_path is None:
            return
        # Removed or replaced before its operations appear among the completed ones.
        pending = Path(f'{self._samples_path}{PENDING_SUFFIX}')
        partial = Path(f'{pending}.partial')
        partial.write_bytes(pack(() if final else unfinished))
        partial.replace(pending)
        self._samples_file.write(pack([*done, *unfinished] if final else done))
        self._samples_file.flush()


def _rounded(values: Dict[str, float]) -> Dict[str, float]:
    return {name: round(value, 3) for name, value in values.items()}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(prog='python3 -m qa.cluster.load', description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('pool')
    p.add_argument('--conf', type=Path, required=True, help='ceph.conf of the cluster')
    add_options(p)
    p.add_argument('--out', type=Path, help='file for the JSON lines (default: stdout)')
    p.add_argument('--samples', type=Path, help='file for every single operation')
    return p


def add_options(p: argparse.ArgumentParser) -> None:
    """The options of the load."""
    p.add_argument('--rate', type=float, default=200, help='operations per second')
    p.add_argument('--read-fraction', type=float, default=0.7)
    p.add_argument('--objects', type=int, default=512)
    p.add_argument('--size', type=int, default=4096, help='bytes of an object and an operation')
    p.add_argument('--max-outstanding', type=int, default=4096)
    p.add_argument('--runtime', type=float, default=600, help='seconds')
    p.add_argument('--interval', type=float, default=1.0, help='seconds between reports')
    p.add_argument('--seed', type=int, default=0)
    p.add_argument('--prefill', type=int, default=1, choices=(0, 1),
                   help='0: the objects are there already')


def _connect(conf: Path, max_outstanding: int) -> Handle:
    handle = Connection(conf).rados()
    # The limits of librados block the caller, which would close the loop.
    handle.conf_set('objecter_inflight_ops', str(2 * max_outstanding))
    handle.conf_set('objecter_inflight_op_bytes', str(1 << 34))
    return handle


def main() -> None:
    """Prefill, run, and exit without waiting for operations that never complete."""
    args = parser().parse_args()
    if args.rate <= 0 or args.runtime <= 0 or min(args.objects, args.size) < 1:
        sys.exit('rate, runtime, objects and size must be positive')
    status = 0
    try:
        handle = _connect(args.conf, args.max_outstanding)
        if args.prefill:
            names = [PREFIX + str(number) for number in range(args.objects)]
            fill(handle, args.pool, names, args.size, timeout=120)
        out = open(args.out, 'a') if args.out else sys.stdout
        client = Client(handle.open_ioctx(args.pool), args, out, args.samples)
        signal.signal(signal.SIGTERM, client.stop)
        signal.signal(signal.SIGINT, client.stop)
        client.run()
    except ClusterError as e:
        print(e, file=sys.stderr)
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Closing librados waits for all operations, including those on an OSD that hangs.
    os._exit(status)


if __name__ == '__main__':
    main()
