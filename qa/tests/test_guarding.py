# SPDX-License-Identifier: LGPL-2.1-or-later
"""A host fails between a change of CRUSH and its pins: norebalance outlasts the recovery."""
import time

import pytest

from qa.lib.guard import Guard

pytestmark = [pytest.mark.releases('pacific'), pytest.mark.shares('campaign')]

#: Seconds in which pinning must not go on without the PGs that are degraded.
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
        assert status['phase'] == 'PINNING' and status['unpinnable']
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
