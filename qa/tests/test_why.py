# SPDX-License-Identifier: LGPL-2.1-or-later
"""`perfguard why`: causes are provoked on a real cluster, and have to be named."""
import contextlib
import json
import time
from typing import Any, Callable, Dict, Iterator, List

import pytest

from qa.cluster import Cluster
from qa.lib.guard import Guard

# Where the scheduler is mclock, it ignores the sleeps that make the PGs slow enough to be caught.
pytestmark = [pytest.mark.releases('pacific'), pytest.mark.shares('campaign')]

#: One PG of an OSD at a time, each of which takes many seconds.
OPTIONS = {'max_backfills_source': '2', 'max_backfills_primary': '2', 'max_backfills_target': '1',
           'max_backfills_host': '2', 'max_pgs_in_flight': '100'}
#: Of the OSDs: half a second for each object, and the least number of objects at a time.
SLOW = {'osd_recovery_sleep': '0.5', 'osd_recovery_sleep_hdd': '0.5',
        'osd_recovery_max_active': '1', 'osd_recovery_max_active_hdd': '1',
        'osd_max_backfills': '1'}

#: A scrub that takes many seconds, also while PGs move.
SLOW_SCRUB = {'osd_scrub_sleep': '1', 'osd_scrub_chunk_min': '1', 'osd_scrub_chunk_max': '1',
              'osd_scrub_during_recovery': 'true'}
#: Of the mclock scheduler: its profile for clients, and a disk that is slow enough for a PG to take
#: many seconds.
SLOW_MCLOCK = {'osd_mclock_profile': 'high_client_ops', 'osd_mclock_max_capacity_iops_hdd': '20',
               'osd_mclock_max_sequential_bandwidth_hdd': '100000'}


class Asker:
    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.found: Dict[str, Any] = {}

    def causes(self, what: str) -> List[Dict[str, Any]]:
        retval, out, error = self.guard.ask('why', what=what)
        assert retval == 0, (what, retval, error)
        answer = json.loads(out)
        assert answer['subject'] == what and answer['causes']
        found: List[Dict[str, Any]] = answer['causes']
        return found

    def wait(self, code: str, candidates: Callable[[], List[str]], first: bool = True,
             timeout: float = 60) -> Dict[str, Any]:
        """Until the first cause (else any) of one of the PGs has this code."""
        seen: List[Any] = []

        def named() -> bool:
            for what in candidates()[:12]:
                causes = self.causes(what)
                seen[:] = [what, [cause['code'] for cause in causes]]
                for cause in causes[:1] if first else causes:
                    if cause['code'] == code:
                        self.found[code] = {'of': what, **cause}
                        return True
            return False

        try:
            self.guard.cluster.wait(named, timeout, code)
        except Exception as error:
            raise AssertionError('%s; last seen %s; status %s' % (
                error, seen, self.guard.status()['limits'])) from error
        found: Dict[str, Any] = self.found[code]
        return found


def remapped(guard: Guard) -> List[str]:
    return sorted(row['pgid'] for row in guard.cluster.osd_dump()['pg_temp'])


def pinned(guard: Guard) -> List[str]:
    """PGs with an upmap that are not on their way."""
    dump = guard.cluster.osd_dump()
    return sorted({row['pgid'] for row in dump['pg_upmap_items'] + dump['pg_upmap']}
                  - set(remapped(guard)))


def set_pace(cluster: Cluster, values: Dict[str, str]) -> None:
    """By the OSDs themselves: what their ceph.conf says wins over the configuration database."""
    for osd in cluster.osds():
        for name, value in values.items():
            cluster.tell('osd.%d' % osd, 'config set', var=name, val=[value])


@contextlib.contextmanager
def pace(cluster: Cluster, values: Dict[str, str]) -> Iterator[None]:
    try:
        set_pace(cluster, values)
        yield
    finally:
        for osd in cluster.osds():
            for name in values:
                cluster.tell('osd.%d' % osd, 'config unset', var=name)


def hhmm(seconds: float) -> str:
    return time.strftime('%H%M', time.localtime(time.time() + seconds))


@pytest.mark.timeout(1200)
def test_provoked_causes_are_named(release: str, guard: Guard) -> None:
    cluster = guard.cluster
    guard.configure(OPTIONS)
    asker = Asker(guard)
    every = sorted(pg['pgid'] for pg in cluster.pgs())
    asker.wait('IN_PLACE', lambda: every[:1])
    asker.wait('NOT_SLOW', lambda: ['osd.0'])
    guard.prepare()
    new = cluster.add_osds(2)
    with pace(cluster, SLOW):
        provoke(asker, new)
    guard.wait_phase('DONE', timeout=240)
    assert abs(sum(cause['share'] or 0.0 for cause in asker.causes('campaign')) - 1.0) < 0.02
    print('%s: %s' % (release, json.dumps({code: cause['text'] for code, cause in
                                           asker.found.items()}, indent=1)))
    assert len(asker.found) >= 16 and not guard.tracebacks()


def provoke(asker: Asker, new: List[int]) -> None:
    guard, cluster = asker.guard, asker.guard.cluster
    guard.wait_remapped()
    asker.wait('UNPINNED', lambda: remapped(guard), first=False)
    guard.do('pin')
    guard.wait_phase('PINNED')
    asker.wait('AWAITS_START', lambda: pinned(guard))
    with pace(cluster, SLOW_SCRUB):
        for pgid in pinned(guard)[:12]:
            cluster.mon('pg deep-scrub', pgid=pgid)
        asker.wait('SCRUB', lambda: pinned(guard), first=False)
    guard.do('start')
    guard.wait_moving(at_least=0)

    cap = asker.wait('CAP_BACKFILLS', lambda: pinned(guard))
    assert cap['evidence']['where'] and cap['evidence']['used'] >= cap['evidence']['limit']
    asker.wait('BACKFILLING', lambda: remapped(guard), first=False)
    target = asker.wait('IN_FLIGHT', lambda: ['osd.%d' % osd for osd in new])
    assert 'target' in target['evidence']

    # More at a time than the OSDs let through: reservations of primaries and of targets.
    for option in ('target', 'source', 'primary'):
        guard.do('set', setting='max_backfills_%s=8' % option)
    guard.do('set', setting='max_backfills_host=32')
    assert guard.status()['settings']['max_backfills_host'] == '32'
    local = asker.wait('LOCAL_RESERVATION', lambda: remapped(guard))
    remote = asker.wait('REMOTE_RESERVATION', lambda: remapped(guard))
    assert remote['evidence']['osd'] in new and remote['evidence']['limit'] == 1
    assert local['evidence']['granted'] and local['evidence']['osd'] is not None

    guard.do('pause')
    guard.wait_phase('HOLDING')
    asker.wait('PAUSED', lambda: pinned(guard))
    asker.wait('PAUSED', lambda: remapped(guard))  # norebalance is perfguard's own
    guard.do('resume')

    guard.do('set', setting='begin_time=' + hhmm(2 * 3600))
    guard.do('set', setting='end_time=' + hhmm(4 * 3600))
    asker.wait('WINDOW_CLOSED', lambda: pinned(guard))
    for name in ('begin_time', 'end_time'):
        guard.do('set', setting=name + '=')

    cluster.mon('osd set', key='nobackfill')
    try:
        asker.wait('FOREIGN_FLAG', lambda: pinned(guard))
        asker.wait('FOREIGN_FLAG', lambda: remapped(guard))
    finally:
        cluster.mon('osd unset', key='nobackfill')
    guard.wait_phase('RELEASING')

    load = cluster.load('rep', rate=100, runtime=300, objects=200)
    try:
        guard.do('set', setting='latency_limits_ms=rep=0.001')
        asker.wait('HALTED', lambda: pinned(guard))
        guard.do('set', setting='latency_limits_ms=')
    finally:
        load.stop()
    guard.wait_phase('RELEASING')

    ratios = {ratio: cluster.osd_dump()[ratio + '_ratio'] for ratio in ('nearfull', 'backfillfull')}
    try:
        for ratio in ratios:
            cluster.mon('osd set-%s-ratio' % ratio, ratio=0.0001)
        asker.wait('TARGET_FULL', lambda: pinned(guard), first=False)
        asker.wait('BACKFILL_TOOFULL', lambda: remapped(guard))
    finally:
        for ratio in reversed(list(ratios)):
            cluster.mon('osd set-%s-ratio' % ratio, ratio=ratios[ratio])

    found = asker.causes('campaign')
    shares = {cause['code']: cause['share'] for cause in found if cause['share'] is not None}
    assert {'PAUSED', 'WINDOW_CLOSED', 'FOREIGN_FLAG', 'HALTED'} <= set(shares), found
    assert sum(cause['evidence'].get('now', False) for cause in found) >= 1


@pytest.mark.releases('pacific', quick=())
def test_a_pg_that_is_copied_for_long_does_not_stall(guard: Guard) -> None:
    cluster = guard.cluster
    guard.configure({'max_pgs_in_flight': '1', 'stalled_after': '10'})
    guard.hold(lambda: cluster.add_osds(2))
    with pace(cluster, {**SLOW, 'osd_recovery_sleep': '2'}):
        guard.do('start')
        begun = guard.wait_moving(at_least=0)['released']
        deadline = time.monotonic() + 25
        while time.monotonic() < deadline:
            assert 'PERFGUARD_STALLED' not in guard.checks()
            time.sleep(0.5)
        assert guard.status()['released'] == begun, 'it was to be one PG all the time'
        cluster.mon('osd set', key='nobackfill')
        try:
            guard.wait_check('PERFGUARD_STALLED', True, 40)
        finally:
            cluster.mon('osd unset', key='nobackfill')
    guard.option('max_pgs_in_flight', '100')
    guard.wait_phase('DONE', timeout=240)


@pytest.mark.releases('reef', 'tentacle', quick=())
def test_a_profile_of_mclock_for_clients_is_named(release: str, guard: Guard) -> None:
    cluster = guard.cluster
    guard.configure(OPTIONS)
    asker = Asker(guard)
    guard.hold(lambda: cluster.add_osds(2))
    with pace(cluster, SLOW_MCLOCK):
        guard.do('start')
        cause = asker.wait('MCLOCK', lambda: remapped(guard), first=False, timeout=120)
    assert cause['evidence']['osd_mclock_profile'] == 'high_client_ops'
    guard.wait_phase('DONE', timeout=240)
    print('%s: %s' % (release, cause['text']))
    assert not guard.tracebacks()
