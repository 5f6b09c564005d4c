# SPDX-License-Identifier: LGPL-2.1-or-later
"""The loop with a store and a cluster in memory: campaigns, crashes at any point, damage."""
import errno
import gc
import json
import threading
import time
from concurrent import futures
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Set, Tuple

import pytest

from perfguard.cluster.types import OsdMap, OsdPlace, Signals, UpmapEntry
from perfguard.errors import Code, Reason, Refused
from perfguard.loop import loop
from perfguard.mitigation.controller import Mitigated
from perfguard.observation import Observation
from perfguard.options import Options
from perfguard.rebalance.controller import MEASURED_COMMITS, READBACK_COMMITS
from perfguard.rebalance.orders import Order
from perfguard.rebalance.phases import ANNOUNCED_SECONDS, judge
from perfguard.rebalance.requests import Request
from perfguard.rebalance.draft import Draft
from perfguard.rebalance.risks import RISKS
from perfguard.shutdown import ShutdownOrder
from perfguard.store import Store

from ..fakes.cluster import BALANCER, Crash, FakeCluster
from ..fakes.driver import OPTIONS, Driver, codes
from ..fakes.instants import instants
from ..rebalance.test_joining import waiting
from ..rebalance.test_phases import out_of_hours
from ..test_store import written_by_a_newer_version


def refusal(driver: Driver, verb: str, **kwargs: bool) -> Refused:
    with pytest.raises(Refused) as raised:
        driver.ask(verb, **kwargs)
    return raised.value


def whats(driver: Driver, kind: str) -> List[str]:
    return [event['what'] for event in driver.loop.published.events if event['kind'] == kind]


# ---- one campaign

def test_a_turn_leaves_the_garbage_collector_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Tentacle all modules of ceph-mgr share it."""
    driver = Driver()
    enabled: List[bool] = []
    monkeypatch.setattr(driver.loop, '_turn', lambda: enabled.append(gc.isenabled()))
    driver.loop.turn()
    assert enabled == [True]


def test_a_refused_order_keeps_no_state_of_its_turn() -> None:
    driver = Driver()
    driver.ask('prepare')
    driver.run_to('PREPARED')

    def refused() -> None:
        with futures.ThreadPoolExecutor(1) as pool:
            command = pool.submit(driver.loop.ask, ShutdownOrder(False))
            while not command.done():
                driver.turn()
            with pytest.raises(Refused):
                command.result()

    def alive() -> int:
        return sum(isinstance(each, Observation) for each in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = alive()
        for _ in range(3):
            refused()
        assert alive() == before
    finally:
        gc.enable()


def test_idle() -> None:
    driver = Driver()
    status = driver.loop.status()
    assert driver.phase == 'IDLE' and driver.status['id'] is None
    assert status['phase'] == 'IDLE' and status['health'] == []
    assert status['signals']['pgs'] == 24
    assert driver.cluster.sent == [] and driver.cluster.fault.count <= 4


def test_a_campaign_from_idle_to_done() -> None:
    driver = Driver()
    cluster = driver.cluster
    found = cluster.foreign()
    driver.ask('prepare')
    driver.run_to('PREPARED')
    assert 'norebalance' in cluster.flags and cluster.config == {BALANCER: 'false'}
    cluster.expand()
    driver.run_until(lambda: len(cluster.remapped()) == 12)
    driver.turn()
    assert driver.preview['remapped'] == 12
    driver.ask('pin')
    driver.run_to('PINNED')
    driver.turn()
    assert driver.status['pinned'] == 12 and driver.preview['remapped'] == 0
    assert driver.preview['pgs'] == 12
    driver.ask('start')
    driver.run_to('DONE')
    assert cluster.foreign() == found and cluster.clean() and cluster.entries() == {}
    assert driver.status['released'] == driver.status['total'] == 12
    assert driver.status['bytes_done'] == driver.status['bytes_total'] > 0
    (row,) = driver.history
    assert (row['id'], row['phase'], row['released']) == (1, 'DONE', 12)
    assert not [key for key in driver.kv.data if key.startswith(('campaign', 'pins', 'requests'))]
    assert cluster.progress_events == {} and cluster.checks == {}
    assert [text.split(' (')[0] for text in cluster.logged] == [
        'campaign 1: %s' % phase for phase in ('PINNED', 'FINISHING', 'DONE')]
    assert 1 <= cluster.most_moving <= OPTIONS.max_pgs_in_flight


def test_the_watch_continues_while_mons_do_not_answer_config_dump() -> None:
    driver = Driver()
    cluster = driver.cluster
    found = cluster.foreign()
    cluster.config_unread = True
    driver.ask('prepare')
    looked = driver.loop.jobs.watching.clients.time
    driver.run(20)
    assert driver.loop.jobs.watching.clients.time > looked + 10.0
    # What is borrowed must be known first.
    assert driver.phase != 'PREPARED' and cluster.config == {BALANCER: 'true'}
    cluster.config_unread = False
    driver.run_to('PREPARED')
    cluster.expand()
    driver.run_until(lambda: bool(cluster.remapped()))
    driver.ask('pin')
    driver.run_to('PINNED')
    driver.ask('start')
    driver.run_until(lambda: driver.status['in_flight'] > 0)
    cluster.config_unread = True
    driver.run(100)
    assert driver.phase == 'FINISHING' and cluster.config == {BALANCER: 'false'}
    cluster.config_unread = False
    driver.run_to('DONE')
    assert cluster.foreign() == found and cluster.clean()


def test_progress_grows_to_its_end() -> None:
    driver = Driver()
    driver.to_releasing()
    shares = []
    while driver.phase == 'RELEASING':
        shares += list(driver.cluster.progress_events.values())
        driver.turn()
    assert shares == sorted(shares) and 0 <= shares[0] < 0.5 <= shares[-1] <= 1


def test_pause_and_resume() -> None:
    driver = Driver()
    driver.to_releasing()
    driver.ask('pause')
    driver.run(15)
    assert driver.phase == 'HOLDING' and driver.status['paused']
    assert driver.status['eta_seconds'] is None and driver.cluster.moved == []
    driver.ask('resume')
    driver.run_to('DONE')
    assert len(driver.cluster.moved) == 12


def test_abort_then_a_second_campaign_releases_what_is_left() -> None:
    driver = Driver()
    found = driver.cluster.foreign()
    driver.to_releasing()
    driver.ask('abort')
    driver.run_to('ABORTED')
    assert driver.cluster.foreign() == driver.cluster.quiet_for(driver.loop.rebalance.pins)
    assert driver.cluster.clean()
    assert driver.history[-1]['kept'] == 12
    driver.restart()
    driver.turn()
    driver.ask('prepare')
    driver.run_to('PREPARED')
    assert driver.status['id'] == 2 and driver.status['pinned'] == 12
    driver.ask('pin')
    driver.run_to('PINNED')
    driver.ask('start')
    driver.run_to('DONE')
    assert driver.cluster.entries() == {} and driver.status['released'] == 12
    assert driver.cluster.foreign() == found


def test_history_is_limited() -> None:
    driver = Driver(options=replace(OPTIONS, campaign_history=2))
    for _ in range(3):
        driver.ask('prepare')
        driver.run_to('PREPARED')
        driver.ask('abort')
        driver.run_to('ABORTED')
    assert [row['id'] for row in driver.history] == [2, 3]
    driver.restart()
    driver.turn()
    driver.ask('prepare')
    driver.turn()
    assert driver.status['id'] == 4


def test_stalled_is_raised_and_cleared() -> None:
    driver = Driver(options=replace(OPTIONS, stalled_after=30.0))
    driver.to_releasing()
    driver.cluster.flags.add('nobackfill')
    driver.run(25)
    assert 'PERFGUARD_STALLED' not in driver.cluster.checks
    driver.run(15)
    check = driver.cluster.checks['PERFGUARD_STALLED']
    assert 'nobackfill' in ' '.join(check['detail'])
    assert driver.loop.status()['health'] == ['PERFGUARD_STALLED']
    driver.cluster.flags.discard('nobackfill')
    driver.run(15)
    assert driver.cluster.checks == {}


@pytest.mark.parametrize('flags, names, classes', [
    ({'noout'}, set(), set()), (set(), {'h0'}, set()), (set(), {'osd.0'}, set()),
    (set(), set(), {'hdd'})])
def test_what_waits_for_announced_maintenance_is_not_stalled(
        flags: Set[str], names: Set[str], classes: Set[str]) -> None:
    driver = Driver(options=replace(OPTIONS, stalled_after=30.0))
    driver.cluster.device_classes = {0: 'hdd', 1: 'ssd'}
    driver.to_releasing()
    driver.cluster.flags |= {'nobackfill', *flags}
    driver.cluster.noout |= names
    driver.cluster.noout_classes |= classes
    driver.cluster.take_down(0)
    driver.run(60)
    assert 'PERFGUARD_STALLED' not in driver.cluster.checks
    # The maintenance of another host and class is announced, not that of this OSD.
    driver.cluster.flags.discard('noout')
    driver.cluster.noout, driver.cluster.noout_classes = {'h3'}, {'ssd'}
    driver.run(40)
    assert 'PERFGUARD_STALLED' in driver.cluster.checks


def test_osds_that_share_a_device_are_capped_together() -> None:
    driver = Driver(options=replace(OPTIONS, max_backfills_device=1))
    cluster, most = driver.cluster, 0
    cluster.read = replace(cluster.read, places={
        osd: OsdPlace(osd, 'h', 'default', 'hdd', devices=('h:nvme0n1',)) for osd in range(16)})
    driver.to_releasing()
    while driver.phase != 'DONE':
        driver.turn()
        most = max(most, len(cluster.released))
    assert most == 1


def in_maintenance() -> Driver:
    """An OSD is down for longer than stalled_after, with noout."""
    driver = Driver(options=replace(OPTIONS, stalled_after=30.0))
    driver.to_releasing()
    driver.cluster.flags |= {'nobackfill', 'noout'}
    driver.cluster.take_down(0)
    driver.run(60)
    return driver


def test_recovery_after_announced_maintenance_is_not_stalled() -> None:
    driver = in_maintenance()
    driver.cluster.recovery_seconds = 20.0
    driver.cluster.revive(0)
    driver.cluster.flags.discard('noout')
    driver.run(15)
    assert driver.phase == 'HOLDING' and 'PERFGUARD_STALLED' not in driver.cluster.checks


def test_a_forgotten_noout_and_a_dead_osd_do_not_hide_a_stall() -> None:
    driver = in_maintenance()
    assert 'PERFGUARD_STALLED' not in driver.cluster.checks
    driver.cluster.now += ANNOUNCED_SECONDS
    driver.run(5)
    assert 'PERFGUARD_STALLED' in driver.cluster.checks


def test_maintenance_does_not_hide_a_stall_with_another_cause() -> None:
    driver = Driver(options=replace(OPTIONS, stalled_after=30.0))
    driver.to_releasing()
    driver.cluster.flags.add('noout')
    driver.cluster.take_down(7)
    driver.ask('accept', code='DEGRADED')
    driver.cluster.trouble = {'inactive': 2}
    driver.run(60)
    assert driver.phase == 'HOLDING'
    assert 'inactive' in ' '.join(driver.cluster.checks['PERFGUARD_STALLED']['detail'])


def test_a_large_pg_that_is_copied_for_long_does_not_stall() -> None:
    driver = Driver(FakeCluster(backfill_seconds=500.0), replace(OPTIONS, stalled_after=30.0))
    driver.to_releasing()
    driver.run(100)
    in_flight = driver.status['in_flight']
    assert in_flight and not driver.status['released'] and driver.cluster.checks == {}
    driver.restart()
    driver.run(5)
    assert driver.cluster.checks == {}
    driver.cluster.flags.add('nobackfill')
    driver.run(40)
    assert driver.status['in_flight'] == in_flight
    assert 'PERFGUARD_STALLED' in driver.cluster.checks


def test_nothing_stalls_while_releases_wait_for_the_time_window() -> None:
    driver = Driver(options=replace(OPTIONS, stalled_after=30.0))
    driver.to_pinned()
    driver.options = out_of_hours(driver.options, driver.cluster.now)
    driver.ask('start')
    driver.run_to('HOLDING')
    driver.run(40)
    assert driver.phase == 'HOLDING' and driver.cluster.checks == {}


def test_pgs_in_flight_stall_whatever_the_time() -> None:
    driver = Driver(options=replace(OPTIONS, stalled_after=30.0))
    driver.to_releasing()
    driver.cluster.flags.add('nobackfill')
    driver.options = out_of_hours(driver.options, driver.cluster.now)
    driver.run(40)
    assert driver.status['in_flight'] and driver.status['waits_for_window']
    assert 'PERFGUARD_STALLED' in driver.cluster.checks


def test_unpinnable_pgs_are_a_health_check() -> None:
    driver = Driver()
    driver.cluster.refuse['osd pg-upmap-items'] = 'EINVAL'
    driver.to_pinned()
    check = driver.cluster.checks['PERFGUARD_UNPINNABLE']
    assert check['count'] == 12 and len(check['detail']) == 13
    assert check['detail'][-1].startswith('"ceph perfguard campaign status" ')
    assert len(driver.status['unpinnable']) == 12


def test_failed_commands_are_reported() -> None:
    driver = Driver()
    driver.cluster.refuse['osd set'] = 'EPERM: not now'
    driver.ask('prepare')
    driver.run(3)
    assert any('osd set norebalance: EPERM: not now' in reason
               for reason in driver.status['reasons'])
    assert 'osd set norebalance: EPERM: not now' in whats(driver, 'failed')
    driver.cluster.refuse.clear()
    driver.run_to('PREPARED')


def test_pgs_that_recover_are_pinned_with_the_others() -> None:
    driver = Driver()
    cluster = driver.cluster
    driver.ask('prepare')
    driver.run_to('PREPARED')
    cluster.recovery_seconds = 400.0
    cluster.take_down(0)
    driver.run(5)
    cluster.revive(0)
    driver.run(5)
    cluster.expand(share=1)
    driver.run_until(lambda: len(cluster.remapped()) == 24)
    assert any(cluster.degraded_osds().issuperset(pg.data) for pg in cluster.pg.values())
    driver.ask('pin')
    driver.run_until(lambda: driver.status['pinned'] == 24, 20)
    assert cluster.degraded_osds() and not driver.status['unpinnable']
    driver.run_to('PINNED')


@pytest.mark.parametrize('campaign, down, trouble', [
    (False, True, {}), (True, False, {}), (True, True, {}),
    # A PG whose primary is down may be degraded.
    (True, False, {'inactive': 1})])
def test_degraded_pgs_are_looked_for_only_in_a_campaign_and_while_there_are_some(
        campaign: bool, down: bool, trouble: Dict[str, int],
        monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of all PGs is expensive."""
    driver = Driver()
    cluster, made = driver.cluster, 0
    if campaign:
        driver.ask('prepare')
        driver.run_to('PREPARED')

    def degraded_osds() -> FrozenSet[int]:
        nonlocal made
        made += 1
        return frozenset()

    monkeypatch.setattr(cluster, 'degraded_osds', degraded_osds)
    if down:
        cluster.take_down(0)
    cluster.trouble = trouble
    driver.run(5)
    assert bool(made) == (campaign and bool(down or trouble))


# ---- requests

def test_nothing_is_promised_before_the_first_turn() -> None:
    driver = Driver()
    driver.restart()
    assert refusal(driver, 'prepare').errno == errno.EAGAIN
    driver.turn()
    driver.ask('prepare')


def test_a_refused_request_leaves_nothing() -> None:
    driver = Driver()
    before = dict(driver.kv.data)
    assert refusal(driver, 'start').errno == errno.ENOENT
    assert driver.kv.data == before


def test_unhealthy_cluster_needs_force() -> None:
    driver = Driver()
    driver.cluster.trouble = {'degraded': 3}
    driver.run(2)
    assert refusal(driver, 'prepare').errno == errno.EPERM
    driver.ask('prepare', accept=RISKS)
    driver.run_to('PREPARED')


def test_an_order_that_the_cluster_is_not_fit_for_costs_little() -> None:
    """It is repeated: Ceph's tools are run once for it, to report all risks, and one event says it
    all."""
    driver = Driver()
    cluster = driver.cluster
    cluster.add_waiting()
    cluster.trouble = {'laggy': 3}
    driver.run(2)
    runs: List[Any] = []

    def outlook(*args: Any) -> Any:
        runs.append(args)
        return type(cluster).outlook(cluster, *args)

    setattr(cluster, 'outlook', outlook)
    for again in (False, True, True):
        waiting = driver.loop.requests.submit(Order('expand', weight='1.0'), again)
        driver.turn()
        assert waiting.refused is not None and waiting.refused.not_fit and len(runs) == 1
    kinds = [event['kind'] for event in driver.loop.published.events]
    assert kinds.count('refused') == 1


def test_a_preview_that_is_refused_is_no_event() -> None:
    """Users with read access can request many."""
    driver = Driver()
    for dry_run, events in ((True, []), (False, ['drain'])):
        with pytest.raises(Refused, match='h99'):
            driver.order('drain', 'h99', dry_run=dry_run)
        assert whats(driver, 'refused') == events


def test_requests_noted_before_the_answer_survive() -> None:
    driver = Driver()
    driver.to_pinned()
    driver.ask('start')
    driver.restart()
    driver.turn()
    assert driver.phase == 'RELEASING'
    assert not [key for key in driver.kv.data if key.startswith('requests')]


@pytest.mark.parametrize('seconds, executed', [(590.0, True), (610.0, False),
                                               (30 * 86400.0, False)])
def test_a_request_that_no_mgr_has_taken_for_ten_minutes_expires(
        seconds: float, executed: bool) -> None:
    """The mgr hung, the operator gave up and disabled the module, and enables it again."""
    driver = Driver()
    found = driver.cluster.foreign()
    driver.ask('prepare')
    driver.cluster.now += seconds
    driver.restart()
    driver.run(6)
    assert driver.phase == ('PREPARED' if executed else 'IDLE')
    assert not [key for key in driver.kv.data if key.startswith('requests')]
    if executed:
        return
    text = 'campaign prepare has expired'
    assert driver.cluster.foreign() == found
    assert whats(driver, 'refused') == [text] and text in ' '.join(driver.loop.status()['reasons'])
    driver.ask('prepare')
    driver.run_to('PREPARED')
    assert text not in ' '.join(driver.loop.status()['reasons'])


def test_an_old_request_to_start_moves_nothing() -> None:
    driver = Driver()
    driver.to_pinned()
    driver.ask('start')
    driver.cluster.now += 7200.0
    driver.restart()
    driver.run(30)
    assert driver.phase == 'PINNED' and driver.cluster.moved == []


def test_an_old_request_to_abort_is_executed() -> None:
    driver = Driver()
    driver.to_releasing()
    driver.ask('abort')
    driver.cluster.now += 86400.0
    driver.restart()
    driver.run_to('ABORTED')


def test_a_request_expires_only_once_its_note_can_be_removed() -> None:
    """Otherwise the next mgr would load it again, and report it again."""
    driver = Driver()
    driver.ask('prepare')
    driver.cluster.now += 7200.0
    driver.restart()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver.loop.jobs, 'may_write', lambda: False)
        driver.run(3)
        assert driver.phase == 'IDLE'
        assert [key for key in driver.kv.data if key.startswith('requests')]
        assert whats(driver, 'refused') == []
    driver.run(3)
    assert driver.phase == 'IDLE' and len(whats(driver, 'refused')) == 1
    assert not [key for key in driver.kv.data if key.startswith('requests')]


def test_a_request_that_no_longer_fits_is_noted() -> None:
    """It was answered by what the last turn had shown."""
    driver = Driver()
    driver.ask('prepare')
    driver.ask('prepare')
    driver.turn()
    assert whats(driver, 'request') == ['campaign prepare']
    assert whats(driver, 'refused') == ['campaign prepare']
    driver.run_to('PREPARED')
    assert driver.status['id'] == 1


@pytest.mark.parametrize('fenced', [False, True])
def test_a_request_that_was_refused_is_not_kept_later(fenced: bool) -> None:
    """Its command has returned an error, also if the rest of the turn fails."""
    driver = Driver()
    driver.turn()
    refused = driver.loop.request(Request('prepare'))
    driver.cluster.trouble = {'degraded': 3}
    driver.cluster.tick(driver.cluster.period)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver.loop.rebalance, 'turn', lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            driver.turn()
    assert refused.refused is not None and refused.done.is_set()
    driver.cluster.trouble = {}
    if fenced:
        driver.loop.requests.load()
    else:
        driver.restart()
    driver.run(5)
    assert driver.phase == 'IDLE'


def test_a_request_that_fails_is_not_confirmed() -> None:
    driver = Driver()
    setattr(driver.loop.rebalance, 'apply_request', lambda request, seen, refused_before: 1 / 0)
    promised = driver.loop.request(Request('prepare'))
    with pytest.raises(ZeroDivisionError):
        driver.turn()
    with pytest.raises(Refused) as refused:
        driver.loop.requests.confirm(promised)
    assert refused.value.errno == errno.EIO


def test_a_request_that_is_given_again_is_noted_once_when_refused() -> None:
    driver = Driver()
    driver.ask('prepare')
    for again in (False, True, True):
        driver.loop.request(Request('prepare'), again)
    driver.turn()
    assert whats(driver, 'refused') == ['campaign prepare']


def test_an_unreadable_request_is_reported_and_dropped() -> None:
    driver = Driver()
    driver.kv.data['requests/1'] = '{"verb": "dance"}'
    driver.kv.data['requests/2'] = 'nonsense'
    driver.restart()
    driver.turn()
    detail = ' '.join(driver.cluster.checks['PERFGUARD_INTERRUPTED']['detail'])
    assert 'requests/1' in detail and 'requests/2' in detail
    assert 'norebalance' not in detail, 'nothing of a campaign is lost'
    assert not [key for key in driver.kv.data if key.startswith('requests')]


def test_a_request_that_comes_while_the_turn_looks_is_not_taken_blindly() -> None:
    """The balancer's stored value is what the campaign has to give back."""
    driver = Driver()
    cluster = driver.cluster
    look = cluster.signals

    def look_and_be_asked(osdmap: OsdMap) -> Signals:
        setattr(cluster, 'signals', look)
        driver.ask('prepare')
        return look(osdmap)

    setattr(cluster, 'signals', look_and_be_asked)
    driver.turn()
    driver.run_to('PREPARED')
    driver.ask('abort')
    driver.run_to('ABORTED')
    assert cluster.config == {BALANCER: 'true'}


# ---- crashes: an mgr may fail between any two writes or commands

@dataclass
class Story:
    """An operator's whole rebalance, with one fault somewhere in it."""
    fault_at: Optional[int] = None
    error: BaseException = field(default_factory=Crash)
    abort_in: str = ''
    options: Options = OPTIONS

    def play(self) -> 'Story':
        cluster = FakeCluster(pgs=6)
        cluster.add_upmap('1.1', cluster.pg['1.1'].data[0], 6)
        cluster.add_upmap('1.2', cluster.pg['1.2'].data[0], 5)
        self.cluster, self.driver = cluster, Driver(cluster, self.options)
        self.upmaps = cluster.entries()
        self.faults = 0
        cluster.fault.count, cluster.fault.at = 0, self.fault_at
        cluster.fault.error = self.error
        self.expanded = self.over = False
        for _ in range(400):
            try:
                self._step()
            except (Crash, RuntimeError) as error:
                self._failed(error)
            if self.over:
                break
        else:
            raise AssertionError('never over: %s %s' % (
                self.driver.phase, self.driver.status.get('reasons')))
        self.count, cluster.fault.at = cluster.fault.count, None
        self.driver.run(8)
        return self

    def _failed(self, error: BaseException) -> None:
        self.faults += 1
        if isinstance(error, Crash):
            self.driver.restart()
        self.cluster.tick()

    def _step(self) -> None:
        driver, cluster = self.driver, self.cluster
        driver.turn()
        phase = driver.phase
        # After a crash at the very end only the history shows it.
        self.over = phase in ('DONE', 'ABORTED') or bool(driver.history)
        if self.over:
            return
        if phase == self.abort_in:
            driver.ask('abort')
        elif phase == 'IDLE' and not driver.status['id']:
            driver.ask('prepare')
        elif phase == 'PREPARED' and not self.expanded:
            cluster.expand()
            # A swap: pinned by a vector.
            for pgid in ('2.1', '2.3'):
                raw = cluster.pg[pgid].mon.raw
                cluster.set_raw(pgid, (raw[1], raw[0], raw[2]))
            self.expanded = True
        elif phase == 'PREPARED' and len(cluster.remapped()) == 8:
            driver.ask('pin')
        elif phase == 'PINNED':
            driver.ask('start')

    def check(self) -> None:
        cluster, driver = self.cluster, self.driver
        left = driver.loop.rebalance.pins if self.abort_in else ()
        assert cluster.foreign() == cluster.quiet_for(left)
        assert cluster.clean()
        rows = [(row['id'], row['phase']) for row in driver.history]
        assert rows == [(1, 'ABORTED' if self.abort_in else 'DONE')]
        moved = [one.pgid for one in cluster.moved]
        assert len(moved) == len(set(moved)), 'a PG has moved twice'
        assert cluster.most_moving <= OPTIONS.max_pgs_in_flight
        assert cluster.progress_events == {}
        assert list(cluster.checks) == (['PERFGUARD_HELD_PINS'] if left else [])
        self.check_upmaps(moved)

    def check_upmaps(self, moved: List[str]) -> None:
        cluster, driver = self.cluster, self.driver
        left = {key.split('/')[0] for key in driver.kv.data
                if key.endswith('/head') or key.startswith('requests')}
        if self.abort_in:
            assert cluster.entries() == {**self.upmaps, **{
                pgid: pin.entry for pgid, pin in driver.loop.rebalance.pins.items()}}
            assert left <= {'history', 'events_recent', 'baseline', 'pins', 'campaign',
                            'crushbefore'}
        else:
            assert cluster.entries() == self.upmaps and len(moved) == 8
            assert left <= {'history', 'events_recent', 'baseline'}


def points(**kwargs: Any) -> int:
    """How many writes and commands a story without a fault has."""
    story = Story(**kwargs).play()
    story.check()
    return story.count


def faults(error: BaseException, **kwargs: Any) -> Dict[int, str]:
    """Point -> what was wrong in the end, for a fault at each single point of a story."""
    wrong: Dict[int, str] = {}
    for fault_at in instants(points(**kwargs), (error, kwargs)):
        story = Story(fault_at, error, **kwargs)
        try:
            story.play().check()
            assert story.faults == 1
        except AssertionError as assertion:
            wrong[fault_at] = repr(assertion)
    return wrong


@pytest.mark.parametrize('name', ['campaign', 'pins/', 'drained'])
def test_nothing_is_done_with_the_state_of_a_newer_version(name: str) -> None:
    driver = Driver()
    driver.to_pinned()
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.loop._store.put('drained', {})
    names = [each for each in driver.loop._store.names(name) if each.startswith(name)]
    for each in names:
        written_by_a_newer_version(driver.kv, each)
    before, sent = dict(driver.kv.data), len(driver.cluster.sent)
    driver.restart()
    driver.run(3)
    with pytest.raises(Refused, match='newer perfguard'):
        driver.ask('prepare')
    waiting_for = driver.loop.requests.submit(Order('expand'))
    driver.turn()
    assert waiting_for.refused is not None and 'newer perfguard' in str(waiting_for.refused)
    assert 'newer' in driver.cluster.checks['PERFGUARD_LOOP_FAILED']['summary']
    after = {key: value for key, value in driver.kv.data.items() if key != 'owner'}
    assert names and len(driver.cluster.sent) == sent
    assert after == {key: value for key, value in before.items() if key != 'owner'}


def test_a_turn_that_computes_goals_sees_stops_and_client_latency(
        monkeypatch: pytest.MonkeyPatch) -> None:
    driver, stops = Driver(waiting()), (Reason(Code.LATENCY, 'late'),)
    seen: List[Observation] = []
    driver.loop.jobs.mitigating.mitigated = Mitigated(stops=stops)
    monkeypatch.setattr(driver.loop.jobs.mitigating, 'turn', lambda *_, **__: None)

    def note(*args: Any) -> Draft:
        seen.append(args[3])
        return judge(*args)

    monkeypatch.setattr('perfguard.rebalance.controller.judge', note)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: bool(seen and seen[-1].outlook))
    assert seen[-1].stops == stops
    assert seen[-1].clients is driver.loop.jobs.watching.clients and seen[-1].clients.time > 0


def test_a_crash_at_any_point_changes_nothing_in_the_end() -> None:
    assert faults(Crash()) == {}


def test_an_error_at_any_point_changes_nothing_in_the_end() -> None:
    """The same mgr goes on: a turn that raises does not lose state."""
    assert faults(RuntimeError('the mgr API failed')) == {}


@pytest.mark.parametrize('phase', ['PREPARED', 'PINNING', 'PINNED', 'RELEASING'])
def test_a_crash_at_any_point_of_an_aborted_campaign(phase: str) -> None:
    assert faults(Crash(), abort_in=phase) == {}


def test_a_failover_in_every_other_turn() -> None:
    """An mgr releases nothing until PGs must have peered that were remapped before it was
    active."""
    driver = Driver()
    driver.ask('prepare')
    for number in range(200):
        driver.restart()
        driver.turn(12.0)
        driver.turn()
        if driver.phase == 'PREPARED' and number == 5:
            driver.cluster.expand()
        if driver.phase == 'PREPARED' and len(driver.cluster.remapped()) == 12:
            driver.ask('pin')
        if driver.phase == 'PINNED':
            driver.ask('start')
        if driver.phase == 'DONE':
            break
    assert [row['released'] for row in driver.history] == [12]
    assert driver.cluster.foreign() == FakeCluster().foreign() and driver.cluster.clean()


def test_a_restart_reports_that_the_campaign_continues() -> None:
    driver = Driver()
    driver.to_pinned()
    driver.restart()
    driver.turn()
    assert whats(driver, 'start') == ['campaign 1 continues: PINNED']
    assert driver.phase == 'PINNED' and driver.status['pinned'] == 12


def test_events_of_a_campaign_are_known_to_the_next_mgr() -> None:
    driver = Driver()
    driver.to_pinned()
    before = whats(driver, 'phase')
    driver.restart()
    driver.turn()
    assert before and whats(driver, 'phase')[:len(before)] == before


def test_the_wait_for_the_balancer_names_the_way_out_and_abort_ends_it() -> None:
    """The thread of a balancer that has failed leaves it marked as busy for ever."""
    driver = Driver()
    driver.cluster.balancer_finishing = True
    driver.ask('prepare')
    driver.run(30)
    assert any('ceph mgr fail' in reason for reason in driver.status['reasons'])
    driver.ask('abort')
    driver.run_to('ABORTED')
    assert driver.cluster.config['mgr/balancer/active'] == 'true'


# ---- damage

def damage(driver: Driver, name: str) -> None:
    for key in driver.kv.data:
        if key.startswith(name + '/'):
            driver.kv.data[key] = '{}'


@pytest.mark.parametrize('name', ['campaign', 'pins/000001', 'history', 'events_recent'])
def test_a_damaged_document_is_reported_and_stops_nothing(name: str) -> None:
    driver = Driver()
    driver.to_pinned()
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.ask('prepare')
    driver.run_to('PREPARED')
    driver.loop.close()
    upmaps = driver.cluster.entries()
    damage(driver, name)
    driver.restart()
    driver.run(3)
    check = driver.cluster.checks['PERFGUARD_INTERRUPTED']
    assert any(name in line for line in check['detail'])
    assert driver.cluster.entries() == upmaps, 'no pin is lost'
    assert [key for key in driver.kv.data if key.startswith('damaged/' + name)]
    driver.restart()
    driver.run(3)
    told = driver.cluster.checks.get('PERFGUARD_INTERRUPTED', {}).get('detail', [])
    # The next mgr reports it too, if something may be left behind.
    assert any(name in line for line in told) == (name in ('campaign', 'pins/000001'))
    if driver.phase == 'PREPARED':
        driver.ask('abort')
        driver.run_to('ABORTED')
    # The next campaign clears the report.
    driver.ask('prepare', accept=RISKS)
    driver.run(3)
    assert driver.cluster.checks == {}
    assert not [key for key in driver.kv.data if key.startswith('damaged/')]


@pytest.mark.parametrize('change', [
    {'orders': {'accepted_unpinnable': None}}, {'progress': {'total': 'x'}},
    {'progress': {'turned': []}}, {'id': None}, {'held': {}}, {'orders': {'acknowledged': [1]}},
    {'pinning': [[['x', 1], '1.0']]}, {'progress': {'kept': float('nan')}},
    {'orders': {'settings': {'max_pgs': 3}}}, {'progress': {'arrivals': [[], None, 0.0, 0]}}])
def test_a_campaign_with_a_wrong_type_is_kept_and_reported(change: Dict[str, Any]) -> None:
    driver = Driver()
    driver.to_pinned()
    driver.loop.close()
    upmaps = driver.cluster.entries()
    store = Store(driver.kv)
    store.put('campaign', {**(store.get('campaign') or {}), **change})
    for _ in range(2):  # this mgr, and the next one
        driver.restart()
        driver.run(3)
        detail = driver.cluster.checks['PERFGUARD_INTERRUPTED']['detail']
        assert any('campaign' in line for line in detail), detail
        assert not whats(driver, 'error') and driver.phase == 'ABORTED'
    assert [key for key in driver.kv.data if key == 'damaged/campaign/head']
    assert driver.cluster.entries() == upmaps, 'no pin is lost'


@pytest.mark.parametrize('document', [[], 3, 'x', {'id': 1}, {'holds': []}])
def test_a_campaign_that_is_none_is_reported(document: Any) -> None:
    driver = Driver()
    Store(driver.kv).put('campaign', document)
    driver.restart()
    driver.turn()
    assert driver.phase == 'IDLE'
    assert 'campaign' in driver.cluster.checks['PERFGUARD_INTERRUPTED']['detail'][0]


# ---- cost

def test_a_quiet_turn_writes_and_sends_nothing() -> None:
    driver = Driver()
    driver.to_pinned()
    driver.run(15)  # events are on their way into the store
    driver.cluster.fault.count = 0
    asked: Dict[str, int] = {}
    view = driver.cluster.map_view()

    @dataclass
    class Counting:
        osdmap: OsdMap = view.osdmap
        crush_version: int = view.crush_version

        def placement(self, pgid: str) -> Any:
            asked[pgid] = asked.get(pgid, 0) + 1
            return view.placement(pgid)

    setattr(driver.cluster, 'map_view', Counting)
    driver.run(5)
    assert driver.cluster.fault.count == 0 and asked == {}


def test_what_is_published_can_be_shown_as_json() -> None:
    driver = Driver()
    driver.to_releasing()
    published = driver.loop.published
    for data in (driver.loop.status(), driver.status, driver.preview, published.events,
                 published.rebalanced.history):
        json.dumps(data)


def test_upmaps_of_others_are_not_touched() -> None:
    cluster = FakeCluster()
    cluster.add_upmap('1.3', cluster.pg['1.3'].data[0], 4)
    mine: Tuple[str, UpmapEntry] = ('1.3', cluster.entries()['1.3'])
    driver = Driver(cluster)
    driver.to_pinned()
    driver.ask('start')
    driver.run_to('DONE')
    assert not [command for command in cluster.sent if command.get('pgid') == '1.3']
    assert cluster.entries() == dict([mine])


def test_no_rest_is_taken_for_answering_an_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rest of ten times what the answer took would leave the cluster unwatched."""
    driver, clock = Driver(), [0.0]
    monkeypatch.setattr('perfguard.loop.loop.time.thread_time', lambda: clock[0])
    carried_out = driver.loop.rebalance.carry_out

    def slow(*args: Any) -> Any:
        clock[0] += 24.0
        return carried_out(*args)

    monkeypatch.setattr(driver.loop.rebalance, 'carry_out', slow)
    driver.order('drain', 'h3', dry_run=True)
    assert clock[0] == 24.0 and driver.loop._rest_seconds() == loop.REST_SECONDS


@pytest.mark.parametrize('ordered, least, most', [
    (False, 2.0, 60.0), (True, 0.4, 1.5)])
def test_an_order_shortens_a_long_rest(ordered: bool, least: float, most: float) -> None:
    """With 10,000 OSDs a rest was longer than the patience of a command."""
    driver = Driver(options=replace(OPTIONS, loop_interval=2.0))
    driver.loop._turn_seconds = 0.2
    with futures.ThreadPoolExecutor() as pool:
        begin = time.monotonic()
        if ordered:
            answer = pool.submit(driver.loop.ask, Order('export', dry_run=True))
        driver.loop.wait()
        assert least <= time.monotonic() - begin < most
        driver.turn()
        if ordered:
            assert answer.result(10.0)


@pytest.mark.parametrize('woken, releasing, settles', [
    (loop.Loop.wake_for_map, True, True), (loop.Loop.wake, True, False),
    (loop.Loop.wake_for_map, False, False)])
def test_a_turn_waits_until_the_osds_have_handled_the_osdmap(
        woken: Callable[[loop.Loop], None], releasing: bool, settles: bool) -> None:
    """All of them do at once, and clients wait for them. A change of CRUSH that must be pinned is
    read at once."""
    driver = Driver(options=replace(OPTIONS, auto_expand=not releasing))
    waits: List[Optional[float]] = []
    if releasing:
        driver.to_releasing()
        campaign = driver.loop.published.rebalanced.campaign
        assert campaign.flights.in_flight

    class Recorded(threading.Event):
        def wait(self, timeout: Optional[float] = None) -> bool:
            waits.append(timeout)
            return self.is_set()

    driver.loop._ordered = Recorded()
    for _ in range(2):
        woken(driver.loop)
        del waits[:]
        driver.loop.wait()
        assert (loop.MAP_HANDLED_SECONDS in waits) == settles
    driver.loop.wake()
    del waits[:]
    driver.loop.wait()
    assert loop.MAP_HANDLED_SECONDS not in waits


@pytest.mark.parametrize('called', [loop.Loop._wake_for_order, loop.Loop.stop])
def test_an_order_does_not_wait_until_the_osds_have_handled_an_osdmap(
        called: Callable[[loop.Loop], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have arrived since the last turn."""
    driver = Driver()
    driver.to_releasing()
    monkeypatch.setattr('perfguard.loop.loop.MAP_HANDLED_SECONDS', 20.0)
    driver.loop.wake_for_map()
    called(driver.loop)
    begin = time.monotonic()
    driver.loop.wait()
    assert time.monotonic() - begin < 10.0 and not driver.loop._ordered.is_set()


def test_releases_wait_for_the_osdmaps_that_the_watch_has_counted() -> None:
    driver = Driver()
    driver.to_releasing()
    driver.cluster.read = replace(driver.cluster.read, untrimmed_epochs=10000)
    driver.run_until(lambda: 'UNTRIMMED_MAPS' in codes(driver.status))
    assert driver.phase == 'HOLDING'


# ---- slow mons

def test_upmaps_that_slow_mons_still_commit_are_not_sent_again() -> None:
    """Each burst is answered after 12 s, and the OSDMap of this mgr is older than that."""
    driver = Driver(options=replace(OPTIONS, readback_timeout=20.0))
    cluster = driver.cluster
    run = cluster.run

    def slowly(commands: Any) -> Any:
        if any('upmap' in command['prefix'] for command in commands):
            cluster.now += 12.0
        return run(commands)

    setattr(cluster, 'run', slowly)
    driver.to_releasing()
    controller = driver.loop.rebalance
    assert 0 < len(controller._commit_seconds) <= MEASURED_COMMITS
    assert all(seconds >= 12.0 for seconds in controller._commit_seconds)
    seen: List[Tuple[float, float]] = []

    def judged(campaign: Any, pins: Any, moves: Any, observed: Observation,
               options: Options) -> Draft:
        seen.append((observed.commit_seconds, options.readback_timeout))
        return judge(campaign, pins, moves, observed, options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr('perfguard.rebalance.controller.judge', judged)
        driver.turn()
    [(commit_seconds, patience)] = seen
    assert commit_seconds >= 12.0 and patience >= READBACK_COMMITS * 12.0
