# SPDX-License-Identifier: LGPL-2.1-or-later
"""The clients of a run, and their latency."""

import time
from typing import Any, Dict, List, Mapping

from qa.cluster import Cluster, Load
from qa.cluster.samples import KINDS, Sample, summarise

from .settings import (CLIENT_OBJECTS, ERASURE, OPERATION_BYTES, READ_FRACTION, REPLICATED,
                       Settings)

MANY, ONE = 'many', 'one'

#: Longer than any run: the run stops the clients.
RUNTIME_SECONDS = 3 * 3600

#: How long operations that began in time may take; librados repeats lost ones after 10 s.
LAST_OPERATIONS_SECONDS = 20.0

#: `<kind of client> <operation>` -> percentiles and counts, see samples.summarise.
Latency = Dict[str, Dict[str, float]]


class Clients:
    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        """Start all clients; they are active when this returns."""
        self._cluster = cluster
        self._settings = settings
        self._loads: Dict[str, List[Load]] = {MANY: [], ONE: []}
        self._burst: List[Load] = []
        for pool in (REPLICATED, ERASURE):
            self._loads[MANY].append(self._start(pool, settings.many_rate, prefill=True))
            for _ in range(settings.ones):
                self._loads[ONE].append(
                    self._start(pool, settings.one_rate, max_outstanding=1))

    def _start(self, pool: str, rate: float, runtime: float = RUNTIME_SECONDS,
               prefill: bool = False, **options: Any) -> Load:
        seed = sum(map(len, self._loads.values())) + len(self._burst)
        return self._cluster.load(pool, rate=rate, read_fraction=READ_FRACTION, seed=seed,
                                  runtime=runtime, objects=CLIENT_OBJECTS, size=OPERATION_BYTES,
                                  prefill=prefill, **options)

    def start_burst(self) -> None:
        """Raise the load of all clients to `burst_factor` times for `burst_seconds`."""
        settings = self._settings
        rate = settings.many_rate + settings.ones * settings.one_rate
        # The caller reads the status of perfguard every second and cannot wait.
        self._burst = [self._start(pool, rate * (settings.burst_factor - 1),
                                   runtime=settings.burst_seconds, wait=False)
                       for pool in (REPLICATED, ERASURE)]

    def in_burst(self) -> bool:
        """Whether clients of a burst are active."""
        return any(load.started() and load.running() for load in self._burst)

    def stop(self) -> None:
        for load in [*self._all(), *self._burst]:
            load.stop()

    def _all(self) -> List[Load]:
        return [load for loads in self._loads.values() for load in loads]

    def problems(self) -> List[str]:
        """Clients that have ended unexpectedly."""
        return [f'{load.name} has ended' for load in self._all() if not load.running()]

    def latency(self, spans: Mapping[str, List[float]]) -> Dict[str, Latency]:
        """Of the operations that were due in each span [begin, end) of seconds since the epoch.

        By kind of client and operation, and of all together ('all'). The clients of a burst are
        the disturbance and do not count.
        """
        by_kind = {kind: [s for load in loads for s in load.samples()]
                   for kind, loads in self._loads.items()}
        return {name: latency(by_kind, begin, end) for name, (begin, end) in spans.items()}

    def samples(self, begin: float, end: float) -> List[Sample]:
        """The operations due in [begin, end), of all clients."""
        return [sample for load in self._all() for sample in load.samples()
                if begin <= sample.scheduled < end]

    def p99_by_second(self, begin: float, end: float) -> List[float]:
        """The p99 (ms) of the operations due in each second of [begin, end)."""
        seconds: List[List[Sample]] = [[] for _ in range(int(end - begin) + 1)]
        for sample in self.samples(begin, end):
            seconds[int(sample.scheduled - begin)].append(sample)
        return [summarise(found, begin, end).get('p99', 0.0) for found in seconds]

    def wait_for_last(self, begin: float, end: float) -> None:
        """Wait until slow operations have ended, so that their whole latency counts."""
        deadline = time.monotonic() + LAST_OPERATIONS_SECONDS
        # The operations in flight are known one report of the clients later.
        time.sleep(2.0)
        while (self.latency({'all': [begin, end]})['all']['all']['unfinished']
               and time.monotonic() < deadline):
            time.sleep(1.0)


def latency(by_kind: Mapping[str, List[Sample]], begin: float, end: float) -> Latency:
    """The samples of each kind of client summarised by operation, and all of them ('all').

    The latter also with counts of slow operations, which a long expansion does not dilute as it
    does percentiles.
    """
    found = {f'{kind} {operation}': summarise(samples, begin, end, operation)
             for kind, samples in by_kind.items() for operation in KINDS}
    everything = [sample for samples in by_kind.values() for sample in samples
                  if begin <= sample.scheduled < end]
    return {**found, 'all': {
        **summarise(everything, begin, end),
        'over_100_ms': sum(sample.latency_ms > 100 for sample in everything),
        'over_1_s': sum(sample.latency_ms > 1000 for sample in everything)}}
