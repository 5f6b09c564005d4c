# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which OSDs share PGs with a slow replica: found a part of the PGs at a time."""
from typing import Dict, Optional

from perfguard.cluster.types import OsdMap, OsdSet, Placement, Pool
from perfguard.watch.osds import PGS_PER_TURN, PgPartners


class Pgs:
    """PG n of pool 1 is on the OSDs n % 50, n % 50 + 1 and 99."""

    def __init__(self, pg_num: int) -> None:
        self.epoch, self.mapped = 5, 0
        self.pools = {1: Pool(1, 'rbd', False, 3, 2, 0, pg_num, pg_num, pg_num)}
        self.partners = PgPartners()
        self.moved: Dict[str, OsdSet] = {}

    def update(self, *replicas: int) -> Dict[int, set]:
        osdmap = OsdMap(self.epoch, frozenset(), self.pools, {}, {}, {}, {})
        self.partners.update(set(replicas), osdmap, self.placement)
        return {osd: set(osds) for osd, osds in self.partners.by_osd.items()}

    def placement(self, pgid: str) -> Optional[Placement]:
        self.mapped += 1
        seed = int(pgid[2:], 16)
        acting = self.moved.get(pgid, (seed % 50, seed % 50 + 1, 99))
        return Placement(acting, acting) if seed != 7 else None


def test_pgs_are_mapped_only_while_an_osd_is_slow_and_a_part_of_them_per_turn() -> None:
    pgs = Pgs(2 * PGS_PER_TURN + 10)
    assert pgs.update() == {} and pgs.mapped == 0
    for turn in range(2):
        assert pgs.update(3) == {} and pgs.mapped == (turn + 1) * PGS_PER_TURN
    assert pgs.update(3) == {3: {2, 3, 4, 99}}
    for _ in range(9):
        pgs.update(3)
    assert pgs.mapped == 2 * PGS_PER_TURN + 10, 'nothing has changed'
    assert pgs.update() == {}


def test_a_new_slow_osd_or_osdmap_needs_another_pass() -> None:
    pgs = Pgs(100)
    assert pgs.update(3) == {3: {2, 3, 4, 99}}
    assert pgs.update(3, 20) == {3: {2, 3, 4, 99}, 20: {19, 20, 21, 99}}
    pgs.moved, pgs.epoch = {'1.3': (3, 60, 99)}, 6
    assert pgs.update(3, 20)[3] == {2, 3, 4, 60, 99}
