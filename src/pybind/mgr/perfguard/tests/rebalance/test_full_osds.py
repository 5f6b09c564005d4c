# SPDX-License-Identifier: LGPL-2.1-or-later
"""OSDs that are too full: releases make room, and nothing of perfguard keeps data there."""
from dataclasses import replace

import pytest

from perfguard.cluster.types import PgCounts

from ..fakes.driver import OPTIONS, Driver, codes
from ..fakes.straw_cluster import StrawCluster


def expanding(pgs: int = 24) -> Driver:
    """Six old OSDs, and two new ones to which PGs are being released."""
    cluster = StrawCluster(hosts=6, pgs=pgs)
    driver = Driver(cluster, replace(OPTIONS, target='balanced', max_pgs_in_flight=8))
    driver.run(1)
    cluster.add_osds(2, 0.0)
    driver.run(5)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status['released'] >= 1, 400)
    return driver


@pytest.mark.parametrize('toofull, stopped', [(30, False), (29, True)])
@pytest.mark.parametrize('accepted', [False, True])
def test_degraded_pgs_that_lack_room_do_not_stop_what_makes_it(
        toofull: int, stopped: bool, accepted: bool) -> None:
    """Old OSDs are too full for the copies of a host that is lost; the new OSDs have room."""
    driver = expanding()
    cluster = driver.cluster
    if accepted:
        driver.ask('accept', code='DEGRADED')
    old = range(6)
    cluster.fullness = {osd: 'backfillfull' for osd in old}
    cluster.trouble = {'degraded': 30, 'backfill_toofull': toofull, 'degraded_toofull': toofull}
    cluster.read = replace(cluster.read, osd_counts={
        osd: PgCounts(total=9, degraded=6, degraded_toofull=6 if toofull == 30 else 5)
        for osd in old})
    setattr(cluster, 'degraded_osds', lambda: frozenset(old))
    driver.run(10)
    released = driver.status['released'] + driver.status['in_flight']
    driver.run(20)
    more = driver.status['released'] + driver.status['in_flight'] - released
    texts = [row['text'] for row in driver.status['limits'] if row['code'] == 'BACKFILL_TOOFULL']
    if stopped:
        assert not more and 'DEGRADED' in codes(driver.status)
    else:
        assert more > 2 and [text[:51] for text in texts] == [
            '30 PGs are degraded, with targets that are too full']
        assert 'DEGRADED' not in codes(driver.status)
