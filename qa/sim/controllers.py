# SPDX-License-Identifier: LGPL-2.1-or-later
"""What else operators use to release pinned PGs, for comparison with perfguard."""

from typing import Dict, List, Optional, Type

import numpy as np

from perfguard.cluster.types import ClientOps, UpmapEntry

from .caps import Wrong
from .cluster import SIZE
from .port import STATS_SECONDS, SimCluster

#: Of mean latency, against what it was before, for the plain controller.
FACTOR = 1.5


class Plain:
    """Releases PGs in an order of chance. All are pinned in the epoch of the CRUSH change, as
    perfguard's are."""
    pins = True

    def __init__(self, cluster: SimCluster, usual_ms: float) -> None:
        self.cluster, self.model = cluster, cluster.model
        self._usual_ms = usual_ms
        self._left: List[int] = []

    def join(self, weights: np.ndarray) -> None:
        model, raw = self.model, self.cluster.raw_under(weights)
        changed = np.nonzero((raw != model.raw).any(axis=1))[0]
        if self.pins:
            for pg in changed.tolist():
                model.entries[pg] = UpmapEntry((), tuple(model.up[pg].tolist()))
            self._left = self.model.random.permutation(changed).tolist()
        model.changed_entries.update(model.entries)
        model.epoch += 1
        model.weights = weights
        model.set_raw(raw)

    def run(self, seconds: float) -> None:
        until, due = self.model.now + seconds, self.model.now
        while self._left or self.model.moving:
            if self.model.now > until:
                raise Wrong('%d PGs are left' % len(self._left))
            if self.model.now >= due:
                due += STATS_SECONDS
                self.judge(_mean_ms(self.cluster) / max(self._usual_ms, 1e-9))
            self._release(self.number(len(self.model.moving)))
            self.model.advance(self.model.now + 1.0)

    def _release(self, number: int) -> None:
        pgs = [self._left.pop() for _ in range(min(number, len(self._left)))]
        for pg in pgs:
            del self.model.entries[pg]
        self.model.changed_entries.update(pgs)
        self.model.epoch += bool(pgs)
        self.model.place(pgs)
        for pg in pgs:
            self.model.prime(pg)

    def judge(self, ratio: float) -> None:
        """Mean latency of clients, against what it was before."""

    def number(self, in_flight: int) -> int:
        """Of PGs to release now."""
        raise NotImplementedError


class Stock(Plain):
    """Ceph alone: everything is remapped at once, osd_max_backfills is the only limit."""
    pins = False

    def number(self, in_flight: int) -> int:
        return 0


class Fixed8(Plain):
    most = 8

    def number(self, in_flight: int) -> int:
        return self.most - in_flight


class Fixed32(Fixed8):
    most = 32


class Aimd(Plain):
    """One more PG while the mean latency of all clients is below its limit, else half as many."""
    most = 8.0

    def judge(self, ratio: float) -> None:
        self.most = max(1.0, self.most / 2 if ratio > FACTOR else self.most + 1.0)

    def number(self, in_flight: int) -> int:
        return int(self.most) - in_flight


class Balancer(Plain):
    """Ten upmaps a minute while less than 5 % of the shards are misplaced."""
    due = 0.0

    def number(self, in_flight: int) -> int:
        misplaced = in_flight / SIZE / self.model.pgs
        if self.model.now < self.due or misplaced >= 0.05:
            return 0
        self.due = self.model.now + 60.0
        return 10


CONTROLLERS: Dict[str, Optional[Type[Plain]]] = {
    'perfguard': None, 'aimd': Aimd, 'fixed8': Fixed8, 'fixed32': Fixed32, 'balancer': Balancer,
    'stock': Stock}


def _mean_ms(cluster: SimCluster) -> float:
    found = cluster.readings(None, cluster.signals(cluster.map_view().osdmap)).clients
    return mean_ms(found)


def mean_ms(rows: 'tuple[ClientOps, ...]') -> float:
    number = sum(row.read[1] + row.write[1] for row in rows)
    return sum(row.read[0] + row.write[0] for row in rows) / max(1, number) / 1e6
