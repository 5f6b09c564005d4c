# SPDX-License-Identifier: LGPL-2.1-or-later
"""Flags with which operators stop a campaign without perfguard's help, and other orders that change
nothing at first."""
import time

import pytest

from qa.lib.guard import Guard

pytestmark = [pytest.mark.releases('pacific', 'reef', 'tentacle', quick='tentacle'),
              pytest.mark.shares('campaign')]


def release_slowly(guard: Guard) -> None:
    guard.configure({'max_pgs_in_flight': '1'})
    guard.hold(lambda: guard.cluster.add_osds(4))
    guard.do('start')
    guard.wait_moving()


def assert_stopped(guard: Guard, flag: str) -> None:
    """Nothing is released, and the flag stays, until the operator clears it."""
    guard.wait_code('FOREIGN_FLAG')
    before = guard.status()
    time.sleep(8)
    after = guard.status()
    assert after['phase'] == 'HOLDING' and flag in guard.cluster.osd_dump()['flags_set']
    assert after['released'] + after['in_flight'] == before['released'] + before['in_flight']
    guard.cluster.mon('osd unset', key=flag)
    guard.configure({'max_pgs_in_flight': '32'})
    guard.wait_phase('DONE', timeout=120)
    assert not guard.tracebacks()


def test_nobackfill_stops_releases_also_after_a_failover(release: str, guard: Guard) -> None:
    release_slowly(guard)
    guard.cluster.mon('osd set', key='nobackfill')
    guard.cluster.mgr_fail()
    guard.wait_ready()
    assert_stopped(guard, 'nobackfill')


@pytest.mark.parametrize('failover', [False, True])
def test_norebalance_that_perfguard_has_set_already(release: str, guard: Guard,
                                                    failover: bool) -> None:
    cluster = guard.cluster
    release_slowly(guard)
    guard.do('pause')
    cluster.wait(lambda: 'norebalance' in cluster.osd_dump()['flags_set'], 30, 'norebalance')
    guard.wait_code('PAUSED')
    cluster.mon('osd set', key='norebalance')
    if failover:
        cluster.mgr_fail()
        guard.wait_ready()
    else:
        cluster.wait(lambda: 'flag norebalance' not in [
            row['what'] for row in guard.get('held')['held']], 20, 'the operator to have the flag')
    guard.do('resume')
    assert_stopped(guard, 'norebalance')


def test_what_is_switched_off_a_second_time_stays_off(release: str, guard: Guard) -> None:
    """perfguard has switched both off already, and does not switch them on again at the end."""
    cluster = guard.cluster
    mode = dict(guard.foreign().autoscale)['rep']
    cluster.mon('osd pool set', pool='rep', var='pg_num_min', val='64')
    cluster.mon('osd pool set', pool='rep', var='pg_autoscale_mode', val='on')
    assert guard.balancer()['active']
    release_slowly(guard)
    assert not guard.balancer()['active'] and dict(guard.foreign().autoscale)['rep'] == 'off'
    cluster.mon('osd pool set', pool='rep', var='pg_autoscale_mode', val='off')
    # Pacific's mons report the last 50 entries of the log, and the commands of this test are more.
    if release != 'pacific':
        assert cluster.mgr('balancer off')[0] == 0
    guard.configure({'max_pgs_in_flight': '32'})
    guard.wait_phase('DONE', timeout=120)
    assert dict(guard.foreign().autoscale)['rep'] == 'off'
    assert guard.balancer()['active'] == (release == 'pacific') and not guard.tracebacks()
    cluster.mgr('balancer on')
    cluster.mon('osd pool set', pool='rep', var='pg_autoscale_mode', val=mode)
