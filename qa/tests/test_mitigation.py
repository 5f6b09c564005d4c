# SPDX-License-Identifier: LGPL-2.1-or-later
"""The mitigation ladder on a real cluster, up and down, with laggy PGs while data moves.

The tests of a release share one cluster. Movement is frozen, by nobackfill or by an
osd_max_backfills of 0, so that it lasts for as long as it is needed.
"""
import contextlib
import json
import time
from dataclasses import replace
from typing import Any, Callable, Dict, Iterator, List, Optional

import pytest

from qa.cluster import Cluster
from qa.lib.clusters import Failed, Lender
from qa.lib.faults import LAGGY_CONF, dispatch_delay, laggy
from qa.lib.guard import Guard, Json

ClusterFactory = Callable[..., Cluster]

#: Pacific's scheduler is wpq, that of later releases mclock.
pytestmark = pytest.mark.releases('pacific', 'reef', 'tentacle', quick='pacific')

HANGS = 3
FAILS = 6
SECONDS = 3
#: Seconds until PGs are laggy, and until a rung is taken after that.
TAKEN_SECONDS = 60
#: The alarm is kept for 15 s after the last laggy PG; then two intervals, and one for each rung.
GONE_SECONDS = 90
MOVEMENT = ('norebalance', 'slow recovery')
#: Seconds of delay of each message to a slow OSD, from which its operations are slow, and until it
#: is empty.
DELAY, COMPLAINT, EMPTY_SECONDS = 0.03, 0.05, 120


def booted(make: ClusterFactory, release: str) -> Guard:
    # The check for slow heartbeats outlives an OSD that hung by many minutes, and stops releases.
    conf = {**LAGGY_CONF, 'global': {**LAGGY_CONF['global'],
                                     'mon_warn_on_slow_ping_time': '1000000'}}
    cluster = make(release, osds=8, hosts=4, mgrs=2, conf=conf)
    cluster.pool_create('p', 64)
    cluster.fill('p', 2000, 4096)
    cluster.wait_clean(30)
    # Caps that allow many PGs in flight, some of them without the OSD that will hang.
    return Guard(cluster, {'mitigation_seconds': str(SECONDS), 'max_backfills_source': '32',
                           'max_backfills_primary': '32', 'max_backfills_target': '32',
                           'max_pgs_in_flight': '128'})


@pytest.fixture(scope='module')
def lender(release: str, cluster_factory: ClusterFactory) -> Iterator[Lender[Guard]]:
    with Lender(lambda: booted(cluster_factory, release)) as lender:
        yield lender


@pytest.fixture
def guard(lender: Lender[Guard], failed: Failed) -> Iterator[Guard]:
    """Without movement and with nothing held, before the test and after it."""
    with lender.lend(failed) as guard:
        guard.option('mitigation_mode', 'act')
        # What makes recovery fast, as an operator may have set it.
        knob, fast, _ = knob_of(guard)
        guard.cluster.mon('config set', who='osd', name=knob, value=fast)
        load = guard.cluster.load('p', rate=200, read_fraction=0.8, runtime=300)
        before = guard.foreign()
        yield guard
        load.stop()
        tidy(guard)
        if knob == 'osd_max_backfills':
            guard.cluster.mon('config rm', who='osd', name='osd_recovery_max_active')
        guard.cluster.wait_clean(60)
        wait_idle(guard)
        assert guard.foreign() == before
        assert not guard.tracebacks()


def tidy(guard: Guard) -> None:
    """After a test that has failed in the middle as well."""
    if guard.status()['phase'] not in ('IDLE', 'DONE', 'ABORTED'):
        guard.do('abort')
        guard.wait_phase('ABORTED')
        guard.remove_upmaps()
        # The settings of the aborted campaign go back with its last pin.
        guard.wait_check('PERFGUARD_HELD_PINS', False, 30)
    reweight(guard.cluster, 1.0)
    guard.cluster.mon('osd unset', key='nobackfill')
    no_backfill(guard, False)


def no_backfill(guard: Guard, on: bool) -> None:
    """Every PG that has to be backfilled waits until it may begin; or no longer."""
    knob, fast, _ = knob_of(guard)
    usual: Dict[str, Optional[str]] = {
        'osd_max_backfills': fast if knob == 'osd_max_backfills' else None}
    wanted: Dict[str, Optional[str]] = {}
    if knob == 'osd_mclock_profile':
        # First, since until an OSD knows it, it puts the other one back.
        usual['osd_mclock_override_recovery_settings'] = None
        wanted['osd_mclock_override_recovery_settings'] = 'true'
    wanted['osd_max_backfills'] = '0'
    for name, value in (wanted if on else usual).items():
        if value is None:
            guard.cluster.mon('config rm', who='osd', name=name)
        else:
            guard.cluster.mon('config set', who='osd', name=name, value=value)


def knob_of(guard: Guard) -> List[str]:
    """The option that slows recovery: its name, a fast value, and what perfguard puts."""
    queue = guard.cluster.tell('osd.0', 'config get', var='osd_op_queue')['osd_op_queue']
    if queue == 'wpq':
        return ['osd_max_backfills', '2', '1']
    return ['osd_mclock_profile', 'high_recovery_ops', 'high_client_ops']


@contextlib.contextmanager
def remapped(guard: Guard) -> Iterator[None]:
    """PGs are on their way, without a campaign, and make no headway."""
    cluster = guard.cluster
    cluster.mon('osd set', key='nobackfill')
    try:
        reweight(cluster, 2.5)
        guard.wait_remapped()
        yield
    finally:
        reweight(cluster, 1.0)
        cluster.mon('osd unset', key='nobackfill')


def reweight(cluster: Cluster, weight: float) -> None:
    cluster.burst([{'prefix': 'osd crush reweight', 'name': 'osd.%d' % osd, 'weight': weight}
                   for osd in (0, 5)])


@contextlib.contextmanager
def slow_and_out(cluster: Cluster, osd: int) -> Iterator[None]:
    """Its PGs do not move while nobackfill is set."""
    cluster.mon('config set', who='osd', name='osd_op_complaint_time', value=str(COMPLAINT))
    cluster.mon('osd set', key='nobackfill')
    try:
        with dispatch_delay(cluster, osd, DELAY):
            cluster.mon('osd out', ids=[str(osd)])
            yield
    finally:
        cluster.mon('osd in', ids=[str(osd)])
        cluster.mon('osd unset', key='nobackfill')
        cluster.mon('config rm', who='osd', name='osd_op_complaint_time')


def rows(guard: Guard) -> Dict[str, Json]:
    return {row['rung']: row for row in guard.get('mitigation ls')['rungs']}


def wait_rung(guard: Guard, rung: str, state: str, timeout: float = TAKEN_SECONDS) -> Json:
    seen: List[Dict[str, Json]] = []

    def there() -> bool:
        retval, out, _ = guard.ask('mitigation ls')
        if retval == 0:
            seen.append({row['rung']: row for row in json.loads(out)['rungs']})
        return bool(seen) and seen[-1][rung]['state'] == state

    try:
        guard.cluster.wait(there, timeout, '%s %s' % (rung, state))
    except Exception as error:
        raise AssertionError('%s; %s' % (error, seen[-1:])) from error
    return seen[-1][rung]


def wait_idle(guard: Guard) -> None:
    """Until every rung is given back, the first one as well."""
    guard.cluster.wait(lambda: {row['state'] for row in rows(guard).values()} == {'idle'},
                       GONE_SECONDS, 'all rungs to be idle')


def flags(guard: Guard) -> Any:
    return guard.cluster.osd_dump()['flags_set']


def configured(guard: Guard, option: str) -> List[str]:
    """What the configuration database has of an option for OSDs, without masks."""
    return [entry['value'] for entry in guard.cluster.mon('config dump')
            if (entry['section'], entry['name'], entry['mask']) == ('osd', option, '')]


def fail_mgr(guard: Guard) -> None:
    guard.cluster.mgr_fail()
    guard.wait_ready()


def check_in_force(guard: Guard, option: str, value: str) -> None:
    """What OSDs report to the mgr.

    They are not asked: an OSD with so many operations blocked that it takes no message more from
    clients does not answer.
    """
    for osd in (0, 6):
        guard.cluster.wait(
            lambda: guard.cluster.mgr('config show', who='osd.%d' % osd,
                                      key=option)[1].strip() == value,
            30, '%s %s on osd.%d' % (option, value, osd))


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=('pacific', 'tentacle'))
def test_every_rung_up_and_down_with_a_campaign(guard: Guard) -> None:
    """The mgr fails on each rung."""
    cluster = guard.cluster
    knob, fast, slow = knob_of(guard)
    if knob == 'osd_max_backfills':
        # Here it is what keeps PGs waiting.
        knob, fast, slow = 'osd_recovery_max_active', '6', '1'
        cluster.mon('config set', who='osd', name=knob, value=fast)
    no_backfill(guard, True)
    guard.hold(lambda: reweight(cluster, 2.5))
    guard.do('start')
    cluster.wait(lambda: guard.status()['in_flight'] >= 8, 40, 'PGs in flight')
    # From before they were pinned, PGs are known to wait as well.
    cluster.flush_pg_stats()
    cluster.wait(lambda: sum('backfill_wait' in pg['state'] and HANGS not in pg['acting']
                             for pg in cluster.pgs()) >= 3, 40, 'PGs that wait')
    cluster.mon('osd set', key='nobackfill')
    with laggy(cluster, HANGS):
        first = wait_rung(guard, 'norebalance', 'held')
        assert 'norebalance' in flags(guard) and 'laggy' in first['why']
        fail_mgr(guard)
        back = wait_rung(guard, 'pin back', 'held')
        cluster.wait(lambda: any(text.endswith(' back') for text in guard.event_texts('pin')), 20,
                     'PGs pinned back')
        print('pinned back: %s' % back['note'])
        fail_mgr(guard)
        third = wait_rung(guard, 'slow recovery', 'held')
        cluster.wait(lambda: configured(guard, knob) == [slow], 10, 'the option')
        check_in_force(guard, knob, slow)
        expected = {'what': knob, 'who': 'osd', 'found': fast, 'put': slow, 'in_force': True}
        cluster.wait(lambda: expected in rows(guard)['slow recovery']['settings'], 10, 'it seen')
        status = guard.get('status')
        assert status['mode'] == 'act' and 'HOLDING' == status['phase']
        assert 'MITIGATION' in [reason['code'] for reason in status['limits']]
        fail_mgr(guard)
        held = rows(guard)
        assert held['norebalance']['id'] == first['id'] and held['norebalance']['state'] == 'held'
        assert held['slow recovery']['id'] == third['id']
        assert third['since'] - first['since'] >= SECONDS
    wait_rung(guard, 'slow recovery', 'idle', GONE_SECONDS)
    assert configured(guard, knob) == [fast]
    assert 'norebalance' in flags(guard)
    fail_mgr(guard)
    wait_rung(guard, 'norebalance', 'idle', GONE_SECONDS)
    assert 'norebalance' not in flags(guard)
    cluster.mon('osd unset', key='nobackfill')
    no_backfill(guard, False)
    guard.wait_phase('DONE', timeout=90)


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
def test_observe_changes_nothing(guard: Guard) -> None:
    guard.option('mitigation_mode', 'observe')
    with remapped(guard):
        before = guard.foreign()
        with laggy(guard.cluster, HANGS):
            for rung in MOVEMENT:
                wait_rung(guard, rung, 'would')
            assert guard.foreign() == replace(before, flags=before.flags | {'nodown'})
            assert guard.get('status')['mode'] == 'observe'
            number = rows(guard)['norebalance']['id']
            assert guard.ask('mitigation revert', mitigation=number)[0] < 0
        wait_idle(guard)


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick='tentacle')
def test_an_osd_fails_while_recovery_is_slowed(guard: Guard) -> None:
    """PGs that lack copies must not wait; what holds back the others stays."""
    cluster = guard.cluster
    knob, fast, slow = knob_of(guard)
    with remapped(guard):
        with laggy(cluster, HANGS):
            wait_rung(guard, 'slow recovery', 'held')
            cluster.wait(lambda: configured(guard, knob) == [slow], 20, 'recovery to be slowed')
            cluster.kill('osd.%d' % FAILS)
            try:
                # nodown, set for the OSD that hangs, also keeps this one from being marked down.
                cluster.mon('osd down', ids=[str(FAILS)])
                cluster.wait(lambda: configured(guard, knob) == [fast], 30, 'the option back')
                wait_rung(guard, 'slow recovery', 'idle')
                assert 'norebalance' in flags(guard)
            finally:
                cluster.start('osd.%d' % FAILS)
    cluster.wait_clean(60)
    wait_idle(guard)


@pytest.mark.releases('pacific', quick=())
def test_a_slow_osd_that_is_marked_out_becomes_empty(guard: Guard) -> None:
    """Its operations are slow until then, and norebalance would keep its data there."""
    cluster = guard.cluster

    def is_empty() -> bool:
        kept = 'norebalance' in flags(guard)
        held = sum(FAILS in pg['acting'] for pg in cluster.pgs())
        assert not (kept and held), held
        return not held

    with slow_and_out(cluster, FAILS):
        cluster.wait(lambda: guard.get('status')['signals']['slow_ops'] > 0, TAKEN_SECONDS,
                     'slow operations')
        assert not is_empty()
        fail_mgr(guard)
        cluster.mon('osd unset', key='nobackfill')
        cluster.wait(is_empty, EMPTY_SECONDS, 'the OSD to be empty')
    # In the next test, such trouble is judged anew.
    guard.option('mitigation_mode', 'observe')


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
def test_changes_by_the_operator_are_kept(guard: Guard) -> None:
    cluster = guard.cluster
    knob, fast, _ = knob_of(guard)
    theirs = '3' if knob == 'osd_max_backfills' else 'balanced'
    with remapped(guard):
        with laggy(cluster, HANGS):
            wait_rung(guard, 'slow recovery', 'held')
            cluster.wait(lambda: all(each['in_force'] for each in
                                     rows(guard)['slow recovery']['settings']), 20, 'in force')
            after = guard.last_event()
            cluster.mon('config set', who='osd', name=knob, value=theirs)
            wait_rung(guard, 'slow recovery', 'given up')
            assert any('given up' in text for text in guard.event_texts('mitigation', after))
            cluster.mon('osd unset', key='norebalance')
            wait_rung(guard, 'norebalance', 'given up')
            fail_mgr(guard)
            time.sleep(3 * SECONDS)
            assert configured(guard, knob) == [theirs] and 'norebalance' not in flags(guard)
            assert configured(guard, 'osd_recovery_sleep') == []
    wait_idle(guard)
    assert configured(guard, knob) == [theirs]
    cluster.mon('config set', who='osd', name=knob, value=fast)


def test_revert_and_mode_off(guard: Guard) -> None:
    cluster = guard.cluster
    knob, fast, _ = knob_of(guard)
    with remapped(guard):
        with laggy(cluster, HANGS):
            number = wait_rung(guard, 'norebalance', 'held')['id']
            assert guard.ask('mitigation revert', mitigation=number)[0] == 0
            wait_rung(guard, 'norebalance', 'reverted')
            assert 'norebalance' not in flags(guard)
            wait_rung(guard, 'slow recovery', 'held')
            guard.option('mitigation_mode', 'off')
            wait_rung(guard, 'slow recovery', 'idle', 15)
            assert configured(guard, knob) == [fast]
            retval, _, error = guard.ask('mitigation revert', mitigation=number)
            assert retval < 0 and 'does not exist' in error
            time.sleep(3 * SECONDS)
            assert {row['state'] for row in rows(guard).values()} == {'idle'}
            assert 'norebalance' not in flags(guard)
