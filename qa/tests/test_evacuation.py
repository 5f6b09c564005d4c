# SPDX-License-Identifier: LGPL-2.1-or-later
"""OSDs that are to be emptied in mid-campaign become empty, whatever stops the releases."""
import time
from typing import Dict, List, Set

import pytest

from qa.lib.guard import Guard
from qa.lib.joins import order, wait_reported

pytestmark = [pytest.mark.releases('pacific', 'reef', 'tentacle', quick='pacific'),
              pytest.mark.shares('campaign')]


def pgs_on(guard: Guard, osd: int) -> Set[str]:
    return {pg['pgid'] for pg in guard.cluster.pgs() if osd in pg['acting']}


def without(guard: Guard, osds: Set[int]) -> Dict[str, List[int]]:
    """The PGs that these OSDs do not serve, with their acting sets."""
    return {pg['pgid']: pg['acting'] for pg in guard.cluster.pgs()
            if osds.isdisjoint(pg['acting'])}


def flag_set(guard: Guard) -> bool:
    return 'norebalance' in guard.cluster.osd_dump()['flags_set']


def hold(guard: Guard) -> None:
    """A campaign with PGs left to release, none in flight, outside its time window."""
    guard.hold(lambda: guard.cluster.add_osds(4))
    guard.do('start')
    guard.wait_moving()
    guard.close_window()
    guard.cluster.wait(lambda: guard.phase() == 'HOLDING' and not guard.status()['in_flight'], 60,
                       'the closed window')
    guard.cluster.wait_clean(30)
    assert guard.status()['pinned']


def test_osds_become_empty_outside_the_time_window(release: str, guard: Guard) -> None:
    cluster = guard.cluster
    hold(guard)
    before = {osd: pgs_on(guard, osd) for osd in (0, 2, 5)}
    others, pins = without(guard, {0, 5}), guard.upmaps()
    try:
        cluster.mon('osd out', ids=['0'])
        cluster.mon('osd reweight', id=5, weight=0.3)
        begin = time.monotonic()
        guard.wait_code('EVACUATING')
        cluster.wait(lambda: not pgs_on(guard, 0), 60, 'an empty OSD')
        cluster.wait_clean(60)
        # How many of its PGs CRUSH rejects differs from pool to pool, and those that a pin has led
        # there stay.
        assert len(before[5] - pgs_on(guard, 5)) > len(before[5]) / 6
        # Nothing else has moved, and the pins of other PGs are as before. The mons drop pairs that
        # replace OSDs which CRUSH no longer chooses; the rest of these PGs is pinned again.
        left, now = guard.upmaps(), without(guard, {0})
        assert not {pgid: (acting, now.get(pgid), pins.get(pgid), left.get(pgid))
                    for pgid, acting in others.items()
                    if not {0, 5} & {source for source, _ in pins.get(pgid, ())}
                    and (acting != now.get(pgid) or pins.get(pgid) != left.get(pgid))}
        # As "ceph orch osd rm" begins.
        cluster.mon('osd crush reweight', name='osd.2', weight=0.0)
        cluster.wait(lambda: not pgs_on(guard, 2), 60, 'an empty OSD')
        cluster.wait_clean(60)
        status = guard.status()
        print('%s: osd.0 (out), osd.2 (CRUSH weight 0) and osd.5 (reweight 0.3) had %s PGs, and '
              '0, 0 and %d %.0f s later; %s, %d pinned' % (
                  release, [len(pgids) for pgids in before.values()], len(pgs_on(guard, 5)),
                  time.monotonic() - begin, status['phase'], status['pinned']))
        assert status['phase'] == 'HOLDING' and not status['unpinnable'] and not flag_set(guard)
        assert status['pinned'] > len(pins) / 3
    finally:
        cluster.mon('osd crush reweight', name='osd.2', weight=1.0)
        cluster.mon('osd reweight', id=5, weight=1.0)
        cluster.mon('osd in', ids=['0'])
    assert not guard.tracebacks()


def leaving(guard: Guard, osd: int) -> Set[str]:
    """The PGs that leave an OSD for other ones."""
    return {pg['pgid'] for pg in guard.cluster.pgs() if osd in pg['acting']
            and osd not in pg['up'] and not set(pg['up']) <= set(pg['acting'])}


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
def test_an_expansion_keeps_no_pg_on_an_osd_that_it_leaves(release: str, guard: Guard) -> None:
    """Some of these PGs are to move to the new OSDs as well: none is pinned to the OSD."""
    cluster = guard.cluster
    added = set(cluster.add_osds(4, weight=0.0))
    cluster.wait_clean(60)
    wait_reported(guard)
    # Nothing arrives, and no PG is released.
    cluster.mon('osd set', key='nobackfill')
    try:
        cluster.mon('osd reweight', id=5, weight=0.3)
        cluster.wait(lambda: leaving(guard, 5), 30, 'PGs that leave an OSD')
        time.sleep(5)
        before = leaving(guard, 5)
        order(guard, 'expand', weight='1.0', accept=['UNPINNABLE'])
        guard.wait_phase('RELEASING', 'HOLDING')
        time.sleep(3)
        kept = {pg['pgid'] for pg in cluster.pgs() if pg['pgid'] in before and 5 in pg['up']}
        moved_on = {pg['pgid'] for pg in cluster.pgs()
                    if pg['pgid'] in before and not added.isdisjoint(pg['up'])}
        print('%s: %d PGs were leaving osd.5, %d of them go to new OSDs, %d are kept' % (
            release, len(before), len(moved_on), len(kept)))
        assert len(before) > 3 and not kept
    finally:
        cluster.mon('osd unset', key='nobackfill')
    guard.wait_phase('DONE', timeout=240)
    cluster.mon('osd reweight', id=5, weight=1.0)
    assert not guard.tracebacks()


def test_a_pause_keeps_an_osd_in_service_and_says_so(release: str, guard: Guard) -> None:
    cluster = guard.cluster
    hold(guard)
    guard.do('pause')
    cluster.wait(lambda: flag_set(guard), 30, 'norebalance')
    before = pgs_on(guard, 0)
    cluster.mon('osd out', ids=['0'])
    try:
        guard.wait_code('EVACUATION_HELD')
        guard.wait_check('PERFGUARD_EVACUATION', True, 90)
        detail = ' '.join(line['message'] for line in
                          guard.checks()['PERFGUARD_EVACUATION']['detail'])
        assert 'osd.0' in detail and 'campaign resume' in detail
        # PGs with few objects recover from their logs, without a backfill.
        assert len(pgs_on(guard, 0)) > 0.8 * len(before)
        guard.do('resume')
        cluster.wait(lambda: not pgs_on(guard, 0), 60, 'an empty OSD')
        guard.wait_check('PERFGUARD_EVACUATION', False, 30)
        assert not flag_set(guard) and guard.phase() == 'HOLDING'
    finally:
        cluster.mon('osd in', ids=['0'])
    assert not guard.tracebacks()
