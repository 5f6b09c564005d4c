# SPDX-License-Identifier: LGPL-2.1-or-later
"""Starts and observes a load client (load.py)."""

import json
import signal
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional

from .daemons import Daemons
from .errors import ClusterError
from .load import PENDING_SUFFIX
from .samples import Sample, read_file, summarise

# Connecting, prefilling and draining come on top of the runtime.
START_SECONDS = 150
TOP_DIR = Path(__file__).resolve().parents[2]


def client_argv(conf: Path, pool: str, options: Mapping[str, Any]) -> List[str]:
    """The command line of a client with two watchdogs.

    `timeout` ends a client that hangs; the parent-death signal ends it if `timeout` was killed.
    """
    limit = int(options['runtime']) + START_SECONDS
    return ['env', f'PYTHONPATH={TOP_DIR}', 'timeout', '--foreground', '--kill-after=2',
            str(limit), 'setpriv', '--pdeathsig', 'KILL', '/usr/bin/python3', '-m',
            'qa.cluster.load', pool, f'--conf={conf}',
            *(f'--{name.replace("_", "-")}={value}' for name, value in options.items())]


class Load:
    """A client, running or ended; its samples can be read at any time."""

    def __init__(self, name: str, daemons: Daemons, directory: Path) -> None:
        """Use Cluster.load."""
        self.name = name
        self._daemons = daemons
        self._output = directory / 'log' / f'{name}.out'
        self._samples = directory / 'log' / f'{name}.samples'
        self._lines = directory / 'log' / f'{name}.jsonl'

    @classmethod
    def start(cls, conf: Path, directory: Path, daemons: Daemons, pool: str, rate: float,
              read_fraction: float, runtime: float, objects: int = 512, size: int = 4096,
              max_outstanding: int = 4096, interval: float = 1.0, seed: int = 0,
              prefill: bool = True, wait: bool = True) -> 'Load':
        """Start a client and wait until it has prefilled the pool and begins to measure.

        Without `wait` return at once: `started` is true once operations run.
        """
        number = sum(1 for _ in (directory / 'log').glob('load-*.out'))
        load = cls(f'load-{number}', daemons, directory)
        options: Dict[str, Any] = {
            'out': load._lines, 'samples': load._samples, 'rate': rate,
            'read_fraction': read_fraction, 'objects': objects, 'size': size,
            'max_outstanding': max_outstanding, 'runtime': runtime, 'interval': interval,
            'seed': seed, 'prefill': int(prefill)}
        daemons.spawn(load.name, client_argv(conf, pool, options))
        if wait:
            load._wait_started()
        return load

    def started(self) -> bool:
        """Whether the client has begun to measure."""
        return self._samples.exists()

    def _wait_started(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self.started():
            if not self.running():
                text = self._output.read_text(errors='replace').strip().rpartition('\n')[2]
                raise ClusterError(f'{self.name} has ended: {text or "no output"}')
            if time.monotonic() > deadline:
                self.stop()
                raise ClusterError(f'{self.name} did not start in {START_SECONDS} s')
            time.sleep(0.05)

    def running(self) -> bool:
        """Whether the client is running."""
        return self._daemons.pid(self.name) is not None

    def stop(self) -> None:
        """End the client, which writes its samples first. Does nothing if it has ended."""
        self._daemons.end([self.name], signal.SIGTERM, grace_seconds=10.0)

    def wait(self, timeout: float) -> None:
        """Wait until the runtime of the client is over."""
        deadline = time.monotonic() + timeout
        while self.running():
            if time.monotonic() > deadline:
                raise ClusterError(f'{self.name} still runs after {timeout:g} s')
            time.sleep(0.1)

    def samples(self) -> Iterator[Sample]:
        """All operations up to the last interval, including those in flight."""
        # In this order, an operation that completes meanwhile is seen twice, not never, until the
        # next interval.
        yield from read_file(Path(f'{self._samples}{PENDING_SUFFIX}'))
        yield from read_file(self._samples)

    def percentiles(self, t0: float, t1: float, kind: Optional[str] = None) -> Dict[str, float]:
        """``count``, ``p50``, ``p95``, ``p99``, ``p999``, ``max`` (ms), ``errors``, ``unfinished``.

        Of the operations scheduled in [t0, t1), in seconds since the epoch; `kind` is ``read``,
        ``write`` or both. While the client runs the last interval is still missing.
        """
        return summarise(self.samples(), t0, t1, kind)

    def described(self, t0: float, t1: float) -> str:
        """The number and the latency of the operations scheduled in [t0, t1)."""
        found = self.percentiles(t0, t1)
        return ('{count} operations in {0:.0f} s, p50 {p50:.1f} ms, p99 {p99:.1f} ms, max '
                '{max:.0f} ms, {errors} errors').format(t1 - t0, **found)

    def intervals(self) -> List[Dict[str, Any]]:
        """The reports of all intervals so far."""
        try:
            lines = self._lines.read_text().splitlines(keepends=True)
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines if line.endswith('\n')]
