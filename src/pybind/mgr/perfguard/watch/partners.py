# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which OSDs share PGs with a slow replica: these may wait for it, others may not."""
from typing import AbstractSet, Callable, Dict, Iterator, Mapping, Optional, Set

from ..cluster.types import OsdMap, Placement

#: Number of PGs that are mapped per turn; one takes 20 us.
PGS_PER_TURN = 1000


class PgPartners:
    """Maps PGs, a part of them per turn, as long as there are slow replicas."""

    def __init__(self) -> None:
        #: OSD -> the OSDs with which it shares a PG, from the last complete pass.
        self.known: Mapping[int, AbstractSet[int]] = {}
        self._epoch = 0
        #: PGs that are left in this pass.
        self._rest: Iterator[str] = iter(())
        self._partners: Dict[int, Set[int]] = {}

    def update(self, replicas: AbstractSet[int], osdmap: OsdMap,
               placement: Callable[[str], Optional[Placement]]) -> None:
        """`replicas`: the OSDs that are slow now."""
        if not self._partners and replicas and not (
                self._epoch == osdmap.epoch and replicas <= self.known.keys()):
            self._epoch = osdmap.epoch
            self._partners = {osd: set() for osd in replicas}
            self._rest = ('%d.%x' % (pool.id, seed) for pool in osdmap.pools.values()
                          for seed in range(pool.pg_num))
        for _ in range(PGS_PER_TURN if self._partners else 0):
            pgid = next(self._rest, None)
            if pgid is None:
                self.known, self._partners = self._partners, {}
                break
            placed = placement(pgid)
            if placed is not None:
                for osd in self._partners.keys() & placed.acting:
                    self._partners[osd].update(placed.acting)
        if not replicas:
            self.known, self._partners = {}, {}
