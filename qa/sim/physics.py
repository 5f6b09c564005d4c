# SPDX-License-Identifier: LGPL-2.1-or-later
"""What hardware takes for an operation, a copy, an epoch and an interval change.

An OSD is an M/G/1 queue: clients and copying share its time, and a client's operation waits
rho / (1 - rho) residual services on average (Pollaczek and Khinchine). An OSDMap epoch stops an
OSD for a moment, and a PG that changes its interval serves no operation until it has peered.
"""

from dataclasses import dataclass
from typing import Dict, List, NamedTuple

import numpy as np

from perfguard.cluster.types import ClientOps

#: Utilisation above which the queue is as long as clients let it grow.
MOST_BUSY = 0.95
#: Operations drawn for each OSD and reading, which stand for all of it in the percentiles.
DRAWS = 8
#: Buckets of the histogram: from 10 us, 5 % apart.
LEAST_MS, STEP, BUCKETS = 0.01, 1.05, 400


@dataclass(frozen=True)
class Hardware:
    """One kind of cluster. Sources of the numbers are in doc/dev/perfguard-model.rst."""
    name: str
    #: Mean time that an OSD works on an operation, and sigma of its lognormal distribution.
    read_ms: float
    write_ms: float
    sigma: float
    #: Client operations per second and OSD; share of reads.
    rate: float
    reads: float
    #: Bytes per second that an OSD copies at most, and the share of its time that this takes.
    copy_bytes: float
    copy_share: float
    object_bytes: int = 4 << 20
    #: Share of each OSD's time that one PG copied at full speed takes where all OSDs share a CPU.
    shared_cpu: float = 0.0
    #: An epoch stops an OSD for so long.
    epoch_ms: float = 1.0
    #: Stall of an interval change: a part of its own, and proposals of the mon.
    peering_seconds: float = 0.1
    proposals: float = 1.5
    #: What each PG that peers at the same time adds to it.
    crowd_seconds: float = 0.0002
    #: Device class.
    kind: str = 'ssd'


#: 12 memstore OSDs, a mon, a mgr and clients on two cores.
BENCH = Hardware('bench', read_ms=1.0, write_ms=1.6, sigma=0.45, rate=18.0, reads=0.5,
                 copy_bytes=55e6, copy_share=0.3, object_bytes=16 << 10, shared_cpu=0.05,
                 epoch_ms=18.0, crowd_seconds=0.014)
HDD = Hardware('hdd', read_ms=8.0, write_ms=6.0, sigma=0.6, rate=25.0, reads=0.6,
               copy_bytes=60e6, copy_share=0.6, kind='hdd')
SSD = Hardware('ssd', read_ms=0.5, write_ms=0.9, sigma=0.5, rate=250.0, reads=0.6,
               copy_bytes=300e6, copy_share=0.5)
HARDWARE: Dict[str, Hardware] = {each.name: each for each in (BENCH, HDD, SSD)}


class Usage(NamedTuple):
    """What the OSDs did in a time, by OSD."""
    seconds: float
    #: Client operations per second that it serves as a primary, and writes as a replica.
    led: np.ndarray
    replicated: np.ndarray
    #: Bytes copied, and PGs copied by all OSDs together (mean; without the sleeps in between).
    copied: np.ndarray
    copies: float
    epochs: int
    #: Factor on the time of an operation: slow OSDs, neighbours.
    slowness: np.ndarray


class Stall(NamedTuple):
    """Operations that waited for a PG to peer."""
    pool: int
    osd: int
    ops: float
    seconds: float


class Latencies:
    """All operations of clients, by latency, since `clear`."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._counts = np.zeros(BUCKETS)
        self.most_ms = 0.0

    def add(self, ms: np.ndarray, weights: np.ndarray) -> None:
        index = np.log(np.maximum(ms, LEAST_MS) / LEAST_MS) / np.log(STEP)
        np.add.at(self._counts, np.minimum(index.astype(int), BUCKETS - 1), weights)
        self.most_ms = max(self.most_ms, float(ms.max(initial=0.0)))

    def percentile(self, share: float) -> float:
        """In ms."""
        total = self._counts.cumsum()
        if not total[-1]:
            return 0.0
        bucket = int(np.searchsorted(total, share * total[-1]))
        return float(LEAST_MS * STEP ** (bucket + 0.5))


def reading(hardware: Hardware, usage: Usage, shares: np.ndarray, stalls: List[Stall],
            random: np.random.Generator, latencies: Latencies) -> List[ClientOps]:
    """What the OSDs report of a time, by pool and OSD. `shares`: pool x OSD -> share of the OSD's
    operations."""
    hw, waits, busy = hardware, *_waits(hardware, usage)
    pause = min(0.9, usage.epochs * hw.epoch_ms / 1000.0 / max(usage.seconds, 0.001))
    paused_ms = pause * hw.epoch_ms / 2.0
    numbers = {}
    means = {}
    for kind, share, service in (('read', hw.reads, hw.read_ms),
                                 ('write', 1.0 - hw.reads, hw.write_ms)):
        # A write waits for the slowest of its OSDs.
        wait = waits if kind == 'read' else np.maximum(waits, waits.mean() * 1.2)
        base = service * usage.slowness
        numbers[kind] = random.poisson(share * usage.led * usage.seconds * shares)
        means[kind] = base + wait + paused_ms
        _draw(hw, base, wait, busy, pause, numbers[kind].sum(axis=0), random, latencies)
    return _rows(hw, numbers, means, _stalled(stalls, random, latencies), random)


def _waits(hw: Hardware, usage: Usage) -> List[np.ndarray]:
    """Mean wait in ms, and utilisation."""
    work = (usage.led * (hw.reads * hw.read_ms + (1.0 - hw.reads) * hw.write_ms)
            + usage.replicated * hw.write_ms) / 1000.0
    copying = hw.copy_share * usage.copied / max(usage.seconds, 0.001) / hw.copy_bytes
    busy = np.minimum(MOST_BUSY, work * usage.slowness + copying + hw.shared_cpu * usage.copies)
    residual = hw.write_ms * np.exp(hw.sigma ** 2) / 2.0 * usage.slowness
    return [busy / (1.0 - busy) * residual, busy]


def _draw(hw: Hardware, base: np.ndarray, wait: np.ndarray, busy: np.ndarray, pause: float,
          ops: np.ndarray, random: np.random.Generator, latencies: Latencies) -> None:
    size = (len(base), DRAWS)
    ms = base[:, None] * random.lognormal(-hw.sigma ** 2 / 2, hw.sigma, size)
    queued = random.random(size) < busy[:, None]
    ms += queued * random.exponential(1.0, size) * (wait / np.maximum(busy, 1e-9))[:, None]
    ms += (random.random(size) < pause) * random.random(size) * hw.epoch_ms
    latencies.add(ms.ravel(), np.repeat(ops / DRAWS, DRAWS))


def _stalled(stalls: List[Stall], random: np.random.Generator,
             latencies: Latencies) -> Dict[tuple, float]:
    """(pool, OSD) -> ms that operations waited in all."""
    found: Dict[tuple, float] = {}
    if stalls:
        seconds = np.array([stall.seconds for stall in stalls])
        ops = np.array([stall.ops for stall in stalls])
        waits = 1000.0 * seconds[:, None] * random.random((len(stalls), DRAWS))
        latencies.add(waits.ravel(), np.repeat(ops / DRAWS, DRAWS))
        for stall, ms in zip(stalls, waits.mean(axis=1) * ops):
            found[stall.pool, stall.osd] = found.get((stall.pool, stall.osd), 0.0) + float(ms)
    return found


def _rows(hw: Hardware, numbers: Dict[str, np.ndarray], means: Dict[str, np.ndarray],
          stalled: Dict[tuple, float], random: np.random.Generator) -> List[ClientOps]:
    rows = []
    sums = {}
    for kind, number in numbers.items():
        noise = random.standard_normal(number.shape) * hw.sigma / np.sqrt(np.maximum(number, 1))
        sums[kind] = np.maximum(0.2, 1.0 + noise) * means[kind] * number
    pools, osds = np.nonzero(numbers['read'] + numbers['write'])
    served = [(numbers[kind][pools, osds].tolist(), sums[kind][pools, osds].tolist(), share)
              for kind, share in (('read', hw.reads), ('write', 1.0 - hw.reads))]
    for row, (pool, osd) in enumerate(zip(pools.tolist(), osds.tolist())):
        more = stalled.get((pool + 1, osd), 0.0)
        parts = [(int(1e6 * (ms[row] + share * more)) if ops[row] else 0, ops[row])
                 for ops, ms, share in served]
        rows.append(ClientOps(pool + 1, osd, parts[0], parts[1]))
    return rows
