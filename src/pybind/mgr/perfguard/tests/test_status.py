# SPDX-License-Identifier: LGPL-2.1-or-later
"""The texts and the health checks of `perfguard status`."""
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Dict, List, Optional

import pytest

from perfguard import status as module
from perfguard.cluster.types import PgCounts, Signals
from perfguard.errors import Code, Reason, warning
from perfguard.probe.report import ActiveProbe
from perfguard.rebalance.report import CampaignStatus
from perfguard.rebalance.requests import Request
from perfguard.rebalance.types import Phase
from perfguard.status import (EVACUATION, EVACUATION_SECONDS, HELD_PINS, MOST_SHOWN_POOLS,
                              Published, Status, cluster_reasons, foreseen, health_checks,
                              held_detail, osds_json, overview, probe_reasons, rebalance_json,
                              status_json, with_health_check)
from perfguard.store import PINS_REMAIN_TEXT
from perfguard.upmap.pins import Unpinnable

from .fakes.campaigns import campaign_of
from .fakes.driver import OPTIONS, Driver

NONE = campaign_of(0, Phase.IDLE, 0.0)
SUMMARY: Any = warning('2 PGs are laggy', ['x'])


# ---- reasons

@pytest.mark.parametrize('campaign, text', [
    (CampaignStatus(id=3, phase=Phase.RELEASING, in_flight=2), ': campaign 3 moves 2 PGs'),
    (CampaignStatus(id=3, phase=Phase.PINNED), ', and campaign 3 moves none now'),
    (CampaignStatus(id=3, phase=Phase.DONE), ', and no campaign moves them'),
    (CampaignStatus(), ', and no campaign moves them')])
def test_who_moves_misplaced_objects(campaign: CampaignStatus, text: str) -> None:
    assert [reason.text for reason in cluster_reasons(0.125, campaign, {}, '')] == [
        '12.50 % of the objects are misplaced' + text]
    assert cluster_reasons(0.0, campaign, {}, '') == []


def test_the_findings_of_the_watch() -> None:
    assert cluster_reasons(0.0, CampaignStatus(), {'B': SUMMARY, 'A': SUMMARY}, 'odd') == [
        Reason('A', '2 PGs are laggy (A)'), Reason('B', '2 PGs are laggy (B)'),
        Reason(Code.WATCH_FAILED, 'the watch could not process readings, or judge OSDs (see the '
               'mgr log): odd')]


def test_the_active_probe_is_a_reason() -> None:
    assert probe_reasons(None) == []
    assert probe_reasons(ActiveProbe(3, 'running', 'pool:rep', 0.5, 'half')) == [
        Reason(Code.PROBE, 'probe 3 of pool:rep is active: half')]


def test_a_check_that_no_turn_could_publish_is_shown_first() -> None:
    before = Published(Status(health=('B',), reasons=(Reason(Code.REMARK, 'x'),)))
    after = with_health_check(before, {'A': SUMMARY, 'B': SUMMARY}).status
    assert after.health == ('A', 'B') and after.reasons == (
        Reason('A', '2 PGs are laggy (A)'), Reason(Code.REMARK, 'x'))


@pytest.mark.parametrize('age, stale', [(20.0, False), (20.5, True), (300.0, True)])
def test_an_old_status_says_so(age: float, stale: bool) -> None:
    published = Published(turned=100.0, stale_after=20.0)
    shown = status_json(published, 100.0 + age)
    assert shown['age_seconds'] == age
    assert (shown['limits'][0]['code'] == 'STALE') is stale
    assert len(shown['reasons']) == 1 + stale
    assert status_json(Published(), 500.0)['age_seconds'] is None
    assert status_json(replace(published, stale_after=0.0), 100.0)['age_seconds'] == 0.0


def test_the_age_is_rounded() -> None:
    assert status_json(Published(turned=100.0, stale_after=20.0), 101.26)['age_seconds'] == 1.3


def test_there_is_no_campaign_before_the_first_turn() -> None:
    assert rebalance_json(Published()) == {} and rebalance_json(Published(turned=1.0))
    shown = status_json(Published(), 1.0)
    assert shown['signals'] == {} and 'rebalance' not in shown and shown['probe'] is None
    driver = Driver()
    driver.turn()
    assert driver.loop.status()['rebalance']['pinned'] == 0


@pytest.mark.parametrize('turn_seconds, shown', [(0.0123456, 12.35), (0.0, 0.0)])
def test_the_time_of_a_turn(turn_seconds: float, shown: float) -> None:
    driver = Driver()
    observation, _ = driver.loop._observing.observe()
    made = module.status(observation, CampaignStatus(), {'B': SUMMARY, 'A': SUMMARY},
                         driver.loop.published.watched, driver.loop.published.mitigated, None,
                         turn_seconds, ['a remark'])
    assert made.turn_cpu_ms == shown and made.health == ('A', 'B')
    assert [reason.code for reason in made.reasons] == ['A', 'B', Code.REMARK]
    assert made.osdmap_epoch == observation.osdmap.epoch


# ---- requests that wait for the next turn

def test_a_requested_campaign_is_not_the_end_of_the_last_one() -> None:
    driver = Driver()
    driver.ask('prepare')
    driver.run_to('PREPARED')
    driver.ask('abort')
    driver.run_to('ABORTED')
    seen = driver.loop.published
    shown = foreseen(seen, Request('prepare'), 5.0)
    status = shown.rebalanced.status
    assert (status.id, status.phase) == (0, Phase.IDLE)
    assert status.reasons == (Reason(Code.REQUESTED, '"campaign prepare" is requested'),)
    assert shown.status == seen.status
    # One that will be refused changes nothing.
    assert foreseen(seen, Request('start'), 5.0) is seen


def test_a_requested_pause_is_shown() -> None:
    driver = Driver()
    driver.to_releasing()
    seen = driver.loop.published
    for seconds, until in ((0.0, 0.0), (60.0, 65.0)):
        status = foreseen(seen, Request('pause', seconds=seconds), 5.0).rebalanced.status
        assert status.paused and status.paused_until == until
    status = foreseen(seen, Request('abort'), 5.0).rebalanced.status
    assert status.phase is not Phase.RELEASING
    assert not status.paused and status.paused_until == 0.0


# ---- health checks

def observed(driver: Driver) -> Any:
    return driver.loop._observing.observe()[0]


def checks_of(campaign: Any, driver: Driver, interrupted: Any = ()) -> Any:
    return health_checks(campaign, observed(driver), OPTIONS, (), interrupted)


@pytest.mark.parametrize('interrupted, to_check', [
    (['the request x'], False), (['campaign', PINS_REMAIN_TEXT], True)])
def test_what_a_lost_campaign_may_have_left_is_named(interrupted: List[str],
                                                     to_check: bool) -> None:
    driver = Driver()
    driver.cluster.flags.add('norebalance')
    check = checks_of(NONE, driver, interrupted)['PERFGUARD_INTERRUPTED']
    assert check['detail'][:len(interrupted)] == interrupted
    assert any('norebalance is set' in line for line in check['detail']) is to_check
    assert 'PERFGUARD_INTERRUPTED' not in checks_of(NONE, driver)


@pytest.mark.parametrize('active, in_flight, accepted, excess, text', [
    (True, (), 0, 0, '2 PGs cannot be pinned'), (True, (), 1, 0, '2 PGs cannot be pinned'),
    (True, (), 0, 3, '2 PGs cannot be pinned; releases wait for "campaign start" or '
     '"campaign abort"'),
    (True, (), 2, 0, None), (True, ('1.1',), 0, 0, '2 PGs cannot be pinned'),
    (True, ('1.1', '1.2'), 0, 0, None), (False, (), 0, 0, None)])
def test_pgs_that_cannot_be_pinned(active: bool, in_flight: Any, accepted: int, excess: int,
                                   text: Optional[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, 'lastingly_unpinnable', lambda campaign: {
        '1.2': Unpinnable('b'), '1.1': Unpinnable('a')})
    monkeypatch.setattr(module, 'unpinnable_excess', lambda campaign, total, options: excess)
    monkeypatch.setattr(module, 'immovable_count', lambda campaign: 0)
    monkeypatch.setattr(module.report, 'stalled', lambda *given: None)
    campaign: Any = SimpleNamespace(
        active=active, held=False, flights=SimpleNamespace(in_flight=dict.fromkeys(in_flight)),
        orders=SimpleNamespace(accepted_unpinnable=accepted),
        progress=SimpleNamespace(total=9), holds=SimpleNamespace(evacuation_held=0.0))
    checks = checks_of(campaign, Driver())
    assert set(checks) == ({'PERFGUARD_UNPINNABLE'} if text else set())
    if text:
        assert checks['PERFGUARD_UNPINNABLE'] == warning(text, ['PG 1.1: a', 'PG 1.2: b'])
        monkeypatch.setattr(module, 'immovable_count', lambda campaign: 4)
        assert '2 PGs cannot be pinned (staying in place: 4)' in checks_of(
            campaign, Driver())['PERFGUARD_UNPINNABLE']['summary']


def test_what_stalls_a_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    assert 'PERFGUARD_STALLED' not in checks_of(NONE, driver)
    monkeypatch.setattr(module.report, 'stalled', lambda *given: 'no progress')
    assert checks_of(NONE, driver)['PERFGUARD_STALLED'] == warning(
        'no progress', ['no progress'])
    reasons = [Reason(Code.REMARK, 'why')]
    check = health_checks(NONE, observed(driver), OPTIONS, reasons, ())['PERFGUARD_STALLED']
    assert any('why' in line for line in check['detail']) and 'no progress' not in check['detail']


@pytest.mark.parametrize('held_for, raised', [
    (None, False), (EVACUATION_SECONDS - 0.5, False), (EVACUATION_SECONDS, True)])
def test_norebalance_that_keeps_pgs_on_an_osd(held_for: Optional[float], raised: bool,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    driver.to_pinned()
    campaign, now = driver.loop.rebalance.campaign, observed(driver).now
    driver.cluster.fullness[1] = 'nearfull'
    driver.cluster.epoch += 1
    monkeypatch.setattr(module, 'kept_on_osds', lambda *given: {'1.0': {1: 2}, '1.3': {1: 2}})
    held_since = 0.0 if held_for is None else now - held_for
    checks = checks_of(replace(campaign, holds=replace(
        campaign.holds, evacuation_held=held_since)), driver)
    assert (EVACUATION in checks) is raised
    if raised:
        check = checks[EVACUATION]
        assert check['summary'] == 'norebalance keeps 2 PGs on OSDs that are to be emptied'
        assert check['count'] == 2 and check['detail'][0] == (
            'campaign 1 is PINNED and keeps norebalance set; "ceph perfguard campaign start" '
            'clears it')
        assert check['detail'][1].startswith(
            'osd.1 (reweight 1, CRUSH weight 1, nearfull) serves 2 PGs: ')


@pytest.mark.parametrize('phase, paused, command', [
    (Phase.PREPARED, False, 'pin'), (Phase.PINNED, False, 'start'),
    (Phase.ABORTED, False, 'resume'),
    (Phase.RELEASING, False, 'abort'), (Phase.PINNED, True, 'resume')])
def test_the_command_that_clears_norebalance(phase: Phase, paused: bool, command: str) -> None:
    campaign: Any = SimpleNamespace(id=1, phase=phase, orders=SimpleNamespace(paused=paused))
    lines = list(module._evacuation_detail(campaign, observed(Driver()), {}))
    assert lines == ['campaign 1 is %s and keeps norebalance set; "ceph perfguard campaign %s" '
                     'clears it' % (phase.value, command)]


def test_an_osd_that_is_not_in_crush_has_no_weight() -> None:
    campaign: Any = SimpleNamespace(id=1, phase=Phase.PINNED,
                                    orders=SimpleNamespace(paused=False))
    observation: Any = SimpleNamespace(osdmap=observed(Driver()).osdmap,
                                       crush=SimpleNamespace(weights=dict))
    _, line = module._evacuation_detail(campaign, observation, {'1.0': (1,)})
    assert line == 'osd.1 (reweight 1, CRUSH weight 0) serves 1 PG: 1.0'


def aborted(**changes: Any) -> Any:
    made: Dict[str, Any] = dict(
        id=1, left=2, active=False, held=True, change=None, way_back=lambda osdmap: '',
        holds=SimpleNamespace(autoscale={}, evacuation_held=0.0))
    return SimpleNamespace(**{**made, **changes})


KEPT = '2 PGs are pinned where the data is'
OFF = 'the balancer is off because it would move pinned PGs'
ON = 'the balancer is on and may move pinned PGs: "ceph balancer off" stops it'
RESUME = '"ceph perfguard campaign resume" continues to release the PGs'
FINISH = ('"ceph perfguard campaign finish --keep" turns the pins into ordinary upmaps and gives '
          'back the balancer, which may move them')
SURE = FINISH.replace('--keep', '--keep --yes-i-really-mean-it') \
    + '; the pool keeps the intermediate CRUSH rule'


def changed(**values: Any) -> Any:
    return SimpleNamespace(**{'moves_only': False, 'pool': None, 'left_intermediate':
                              lambda osdmap, verb: '', **values})


@pytest.mark.parametrize('campaign, unpinned, waiting, balancer, detail', [
    (aborted(), 0, 0, 'false', [KEPT, OFF, RESUME, FINISH]),
    (aborted(left=1), 0, 0, 'true', ['1 PG is pinned where the data is', ON, RESUME, FINISH]),
    (aborted(), 3, 1, 'false', [
        KEPT, '3 PGs cannot be pinned and would move without norebalance, so norebalance stays '
        'set', '1 PG of these must recover before it can be pinned', OFF, RESUME, FINISH]),
    (aborted(), 0, 2, 'false', [
        KEPT, '2 PGs of these must recover before they can be pinned', OFF, RESUME, FINISH]),
    (aborted(holds=SimpleNamespace(autoscale={2: 'on', 1: 'on', 99: 'on'})), 0, 0, 'false', [
        KEPT, OFF, 'pg_autoscale_mode is off for ec, rep because a change of pg_num would remove '
        'pins', RESUME, FINISH]),
    (aborted(change=changed(), way_back=lambda osdmap: 'campaign rollback'), 0, 0, 'false', [
        KEPT, OFF, RESUME, '"ceph perfguard campaign rollback" restores the CRUSH weights or map '
        'from before the campaign, if they are known', FINISH]),
    (aborted(change=None, way_back=lambda osdmap: 'x'), 0, 0, 'false', [
        KEPT, OFF, RESUME, '"ceph perfguard x" restores the CRUSH weights or map from before the '
        'campaign, if they are known', FINISH]),
    (aborted(change=changed(moves_only=True), way_back=lambda osdmap: 'x'), 0, 0, 'false', [
        KEPT, OFF, RESUME, '"ceph perfguard x" moves the PGs back, in batches', FINISH]),
    (aborted(change=changed(pool='rep'), way_back=lambda osdmap: 'x'), 0, 0, 'false', [
        KEPT, OFF, RESUME, '"ceph perfguard x" moves the PGs back, in batches', FINISH]),
    (aborted(change=changed(left_intermediate=lambda osdmap, verb: 'rep %s a rule' % verb)), 0, 0,
     'false', [KEPT, OFF, 'rep has a rule', RESUME, SURE])])
def test_what_an_aborted_campaign_keeps(
        campaign: Any, unpinned: int, waiting: int, balancer: str, detail: List[str],
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, 'unpinned_count', lambda campaign: unpinned)
    monkeypatch.setattr(module, 'recovering_count', lambda campaign: waiting)
    observation: Any = observed(Driver())
    settings = replace(observation.settings, balancer_active=balancer)
    assert held_detail(campaign, replace(observation, settings=settings)) == detail


@pytest.mark.parametrize('held', [True, False])
def test_pins_of_an_aborted_campaign_are_a_health_check(held: bool,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, 'unpinned_count', lambda campaign: 3)
    monkeypatch.setattr(module, 'recovering_count', lambda campaign: 0)
    monkeypatch.setattr(module.report, 'stalled', lambda *given: None)
    campaign = aborted(held=held, flights=SimpleNamespace(in_flight={}),
                       orders=SimpleNamespace(accepted_unpinnable=0))
    checks = checks_of(campaign, Driver())
    assert set(checks) == ({HELD_PINS} if held else set())
    if held:
        assert checks[HELD_PINS]['summary'] == 'campaign 1 is aborted and keeps 5 PGs pinned'
        assert checks[HELD_PINS]['count'] == 5


# ---- JSON

def test_the_signals_of_a_turn() -> None:
    driver = Driver()
    counts = PgCounts(total=99, active_clean=1, laggy=2, wait=3, inactive=4, degraded=5,
                      remapped=6, backfilling=7, backfill_wait=8, recovering=9, deep_scrubbing=10)
    signals = Signals(counts, misplaced_ratio=0.25, slow_ops=12, health_status='HEALTH_WARN')
    shown = status_json(replace(driver.loop.published, status=replace(
        driver.loop.published.status, signals=signals, osdmap_epoch=77)), 1.0)['signals']
    assert [shown[name] for name in (
        'pgs', 'active_clean_pgs', 'laggy_pgs', 'wait_pgs', 'inactive_pgs', 'degraded_pgs',
        'remapped_pgs', 'backfilling_pgs', 'backfill_wait_pgs', 'recovering_pgs',
        'deep_scrubbing_pgs', 'slow_ops', 'osdmap_epoch')] == [
            99, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 77]
    assert (shown['misplaced_ratio'], shown['health_status']) == (0.25, 'HEALTH_WARN')


def test_the_fullest_pools_are_on_the_page() -> None:
    rows = [{'pool': str(number), 'used': None if number == 3 else {'median': number % 7}}
            for number in range(20)]
    probed: Any = SimpleNamespace(
        capacity_json=lambda uses, now: {'pools': rows}, listing=lambda most: most,
        schedules_json=lambda: {'schedules': []})
    shown = overview(Published(turned=1.23456, stale_after=2.34567), probed, {}, 0.0, 3.45678)
    assert len(shown['capacity']) == MOST_SHOWN_POOLS
    assert [row['used']['median'] for row in shown['capacity']] == [
        6, 6, 5, 5, 5, 4, 4, 4, 3, 3]
    assert (shown['now'], shown['turned'], shown['stale_after']) == (3.457, 1.235, 2.346)


def test_an_event_of_the_last_answer_is_not_sent_again() -> None:
    probed: Any = SimpleNamespace(
        capacity_json=lambda uses, now: {'pools': []}, listing=lambda most: most,
        schedules_json=lambda: {'schedules': []})
    events = tuple({'time': time} for time in (1.0, 2.0, 3.0))
    assert overview(Published(events=events), probed, {}, 2.0, 9.0)['events'] == [{'time': 3.0}]


def test_osds_without_moves() -> None:
    preview: Any = SimpleNamespace(moves=SimpleNamespace(osds=()))
    assert osds_json([], preview) == []
