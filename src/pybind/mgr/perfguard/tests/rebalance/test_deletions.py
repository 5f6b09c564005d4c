# SPDX-License-Identifier: LGPL-2.1-or-later
"""OSDs delete what has moved away, which counts against the cap of PGs that leave them."""
from dataclasses import replace
from typing import Mapping

import pytest

from perfguard.cluster.types import OsdCounters, Ops
from perfguard.errors import Code

from ..fakes.driver import OPTIONS, Driver, codes
from ..fakes.straw_cluster import StrawCluster

CAPS = replace(OPTIONS, max_pgs_in_flight=99, max_backfills_source=3, max_backfills_target=99,
               max_backfills_primary=99, max_backfills_host=99, max_backfills_domain=99)


class DeletingCluster(StrawCluster):
    """The OSDs report so many PGs that they are deleting."""

    def reports(self, deleting: Mapping[int, int]) -> None:
        self.read = replace(self.read, counters={
            osd: OsdCounters(self.now, Ops(), Ops(), Ops(), Ops(), deleting=deleting.get(osd, 0))
            for osd in self.toys})

    def leaving(self, osd: int) -> int:
        return sum(osd in transfer.sources for transfer in self.released.values())


@pytest.mark.parametrize('deleted, most', [(0, 3), (1, 2), (7, 1)])
def test_fewer_pgs_leave_an_osd_that_deletes_some(deleted: int, most: int) -> None:
    cluster = DeletingCluster(pgs=24)
    driver = Driver(cluster, CAPS)
    driver.order('drain', 'osd.0')
    seen, limits = 0, set()
    while driver.phase != 'DONE':
        cluster.reports({0: deleted})
        driver.turn()
        seen = max(seen, cluster.leaving(0))
        limits |= {row['text'] for row in driver.status['limits']
                   if row['code'] == Code.CAP_BACKFILLS}
    assert seen == most and cluster.clean() and limits
    assert all(('PGs that 1 OSD is still deleting' in text) == bool(deleted) for text in limits)


def test_it_is_over_with_the_next_report() -> None:
    cluster = DeletingCluster(pgs=24)
    driver = Driver(cluster, CAPS)
    driver.order('drain', 'osd.0')
    cluster.reports({0: 5})
    driver.run_until(lambda: cluster.leaving(0) == 1)
    driver.run(3)
    assert cluster.leaving(0) <= 1 and Code.CAP_BACKFILLS in codes(driver.status)
    cluster.reports({})
    driver.run_until(lambda: cluster.leaving(0) == 3)
