# SPDX-License-Identifier: LGPL-2.1-or-later
"""A host fails between a change of CRUSH and its pins: norebalance outlasts the recovery."""
import time

import pytest

from qa.lib.guard import Guard

pytestmark = [pytest.mark.releases('pacific'), pytest.mark.shares('campaign')]

#: Seconds in which norebalance must stay set although the host is down.
WATCH_SECONDS = 12.0


def test_a_host_fails_after_the_change(release: str, guard: Guard) -> None:
    cluster = guard.cluster
    before = guard.foreign()
    guard.prepare()
    cluster.add_osds(4)
    guard.wait_remapped()
    host = cluster.osd_hosts()[0]
    failed = [osd for osd, at in cluster.osd_hosts().items() if at == host]
    cluster.mon('osd set', key='noout')
    try:
        for osd in failed:
            cluster.kill('osd.%d' % osd)
        cluster.wait(lambda: guard.get('status')['signals']['degraded_pgs'] > 0, 60, 'degraded PGs')
        # New data that the failed OSDs lack.
        cluster.fill('rep', 500, 4096, prefix='late')
        guard.do('pin')
        deadline = time.monotonic() + WATCH_SECONDS
        while time.monotonic() < deadline:
            assert 'norebalance' in cluster.osd_dump()['flags_set']
            time.sleep(0.5)
        status = guard.status()
        print('%s: %s after %d s, %d pinned, %d not, %s' % (
            release, status['phase'], WATCH_SECONDS, status['pinned'],
            len(status['unpinnable']), status['reasons']))
        # They are pinned beside the others; what they lack recovers once the host is back.
        assert status['phase'] in ('PINNING', 'PINNED') and status['pinned']
    finally:
        for osd in failed:
            cluster.start('osd.%d' % osd)
        cluster.mon('osd unset', key='noout')
    pinned = guard.wait_phase('PINNED', timeout=90)
    assert pinned['pinned'] > len(pinned['unpinnable'])
    guard.do('start')
    guard.wait_phase('DONE', timeout=240)
    cluster.wait_clean(60)
    assert guard.upmaps() == {} and guard.foreign() == before and not guard.tracebacks()


def _make_empty_pool(guard: Guard, pg_num: int) -> None:
    """PGs without objects whose log is trimmed: a new OSD of theirs needs a backfill."""
    cluster = guard.cluster
    cluster.pool_create('empty', pg_num, size=3)
    cluster.fill('empty', 16 * pg_num, 64)
    with cluster.rados().open_ioctx('empty') as ioctx:
        for entry in list(ioctx.list_objects()):
            ioctx.remove_object(entry.key)
    cluster.wait_clean(60)


@pytest.mark.releases('pacific', quick=())
def test_recovery_behind_pgs_without_objects(release: str, guard: Guard) -> None:
    """norebalance defers the backfill of undersized PGs without objects, which keep their
    reservations, so that degraded PGs would never recover."""
    cluster = guard.cluster
    _make_empty_pool(guard, 128)
    cluster.mon('config set', who='osd', name='osd_max_backfills', value='1')
    guard.prepare()
    cluster.kill('osd.0')
    try:
        cluster.mon('osd down', ids=['0'])
        cluster.mon('osd out', ids=['0'])
        begin = time.monotonic()
        guard.wait_code('GIVES_WAY', timeout=60)
        waited = time.monotonic() - begin
        cluster.wait(lambda: not guard.get('status')['signals']['degraded_pgs'], 60,
                     'the recovery of all PGs')
        print('%s: norebalance gave way after %.0f s, PGs have recovered after %.0f s' % (
            release, waited, time.monotonic() - begin))
        cluster.wait(lambda: 'norebalance' in cluster.osd_dump()['flags_set'], 30, 'norebalance')
        assert guard.phase() == 'PREPARED'
    finally:
        cluster.start('osd.0')
        cluster.mon('osd in', ids=['0'])
    guard.do('abort')
    guard.wait_phase('ABORTED')
    assert not guard.tracebacks()
