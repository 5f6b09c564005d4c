# SPDX-License-Identifier: LGPL-2.1-or-later
"""Every verb in every phase."""
import errno
from dataclasses import replace
from typing import Any, List

import pytest

from perfguard.cluster.set_by_others import BALANCER
from perfguard.cluster.types import OsdMap, UpmapEntry
from perfguard.codec import Malformed, decode
from perfguard.errors import Code, Reason, Refused
from perfguard.rebalance.campaign import NO_CAMPAIGN, Campaign
from perfguard.ledger import Owner, Row
from perfguard.options import DEFAULTS
from perfguard.rebalance.moves import Move, movement_of
from perfguard.rebalance.report import CampaignStatus, Rebalanced, ReleasePreview
from perfguard.rebalance.requests import (DryRun, Request, VERBS, apply, check, effects,
                                          refuse_bad_options, refuse_bad_settings, unfit)
from perfguard.rebalance.risks import RISKS
from perfguard.rebalance.types import NOREBALANCE_KEY, Flight, Phase, PinRecord
from perfguard.upmap.pins import DEGRADED as DEGRADED_PG, INCOMPLETE, Unpinnable

from ..fakes.campaigns import campaign_of, changed

#: Verb -> phases in which it is accepted -> the phase it leads to.
TABLE = {
    'pin': {Phase.PREPARED: Phase.PINNING, Phase.PINNED: Phase.PINNING},
    'start': {Phase.PINNED: Phase.RELEASING},
    'pause': {Phase.RELEASING: Phase.RELEASING, Phase.HOLDING: Phase.HOLDING},
    # A paused campaign is PINNED again while too many PGs cannot be pinned.
    'resume': {phase: phase for phase in (Phase.PINNED, Phase.RELEASING, Phase.HOLDING)},
    'abort': {phase: Phase.ABORTING for phase in Phase
              if phase not in (Phase.IDLE, Phase.DONE, Phase.ABORTED)},
    'finish': {phase: Phase.FINISHING for phase in (
        Phase.PREPARED, Phase.PINNED, Phase.RELEASING, Phase.HOLDING)},
}
ENDED = (Phase.IDLE, Phase.DONE, Phase.ABORTED)


DEGRADED = Reason(Code.DEGRADED, '3 PGs are degraded')


def campaign(phase: Phase, **changes: Any) -> Campaign:
    return campaign_of(7, phase, 1.0, **{'prepared': True, **changes})


def refusal(subject: Campaign, request: Request, pins: int = 0,
            unhealthy: tuple = ()) -> Refused:
    with pytest.raises(Refused) as raised:
        check(subject, request, pins, unhealthy)
    return raised.value


def test_the_table_names_every_verb() -> None:
    assert VERBS == set(TABLE) | {'prepare', 'accept', 'set'}


@pytest.mark.parametrize('phase', Phase)
@pytest.mark.parametrize('verb', sorted(TABLE))
def test_verb_in_phase(verb: str, phase: Phase) -> None:
    subject = campaign(phase, paused=verb != 'pause')
    if phase in TABLE[verb]:
        check(subject, Request(verb), 0, ())
        after = apply(subject, Request(verb), 50.0)
        assert after.phase is TABLE[verb][phase]
        if after.phase is not phase:
            assert after.phase_since == 50.0 and not after.orders.paused
    else:
        refused = refusal(subject, Request(verb))
        assert refused.errno == (errno.ENOENT if phase in ENDED else errno.EBUSY)
        assert phase in ENDED or ('campaign 7 is %s' % phase.value) in str(refused)


@pytest.mark.parametrize('phase', Phase)
@pytest.mark.parametrize('verb', sorted(TABLE))
def test_each_refusal_says_what_to_do_instead(verb: str, phase: Phase) -> None:
    if phase not in TABLE[verb] and phase is not Phase.IDLE:
        text = str(refusal(campaign(phase, paused=verb != 'pause'), Request(verb)))
        assert ': ' in text and '\n' not in text, text


@pytest.mark.parametrize('phase', Phase)
def test_prepare_in_phase(phase: Phase) -> None:
    if phase in ENDED:
        check(campaign(phase), Request('prepare'), 3, ())
    else:
        assert refusal(campaign(phase), Request('prepare', accept=RISKS)).errno == errno.EBUSY


@pytest.mark.parametrize('phase', Phase)
def test_acknowledge_in_phase(phase: Phase) -> None:
    request = Request('accept', code='DEGRADED')
    if phase in ENDED:
        assert refusal(campaign(phase), request).errno == errno.ENOENT
        return
    check(campaign(phase), request, 3, ())
    once = apply(campaign(phase), request, 50.0)
    assert once == campaign(phase, acknowledged=('DEGRADED',))
    assert apply(once, request, 51.0) == once
    assert apply(once, Request('accept', code='SLOW_OPS'), 51.0).orders.acknowledged == (
        'DEGRADED', 'SLOW_OPS')


@pytest.mark.parametrize('code', ['', 'degraded', 'FOREIGN_FLAG', 'HALTED'])
def test_what_cannot_be_acknowledged(code: str) -> None:
    refused = refusal(campaign(Phase.HOLDING), Request('accept', code=code))
    assert refused.errno == errno.EINVAL and 'DEGRADED' in str(refused)


def test_without_any_campaign() -> None:
    check(NO_CAMPAIGN, Request('prepare'), 0, ())
    for verb in TABLE:
        assert refusal(NO_CAMPAIGN, Request(verb)).errno == errno.ENOENT


def test_prepare_on_an_unhealthy_cluster_needs_force() -> None:
    refused = refusal(NO_CAMPAIGN, Request('prepare'), 0,
                      (DEGRADED, Reason(Code.OSD_DOWN, 'OSDs down')))
    assert refused.errno == errno.EPERM
    assert '3 PGs are degraded (DEGRADED); OSDs down (OSD_DOWN)' in str(refused)
    check(NO_CAMPAIGN, Request('prepare', accept=RISKS), 0, (DEGRADED,))


def test_pin_waits_until_the_settings_are_in_force() -> None:
    refused = refusal(campaign(Phase.PREPARED, prepared=False), Request('pin'))
    assert refused.errno == errno.EBUSY and 'not PREPARED yet: wait until' in str(refused)
    for verb in ('abort', 'finish'):
        check(campaign(Phase.PREPARED, prepared=False), Request(verb), 0, ())


@pytest.mark.parametrize('phase, advice', [
    (Phase.HOLDING, 'not paused'), (Phase.RELEASING, 'not paused'),
    (Phase.PINNED, 'run "campaign start"')])
def test_resume_needs_a_pause(phase: Phase, advice: str) -> None:
    refused = refusal(campaign(phase), Request('resume'))
    assert refused.errno == errno.EBUSY and advice in str(refused)


def test_finish_with_pins_needs_keep() -> None:
    subject = campaign(Phase.PINNED)
    refused = refusal(subject, Request('finish'), pins=5)
    assert refused.errno == errno.EBUSY and '5 PGs' in str(refused) and '--keep' in str(refused)
    check(subject, Request('finish', keep=True), 5, ())
    assert apply(subject, Request('finish', keep=True), 9.0).orders.keep
    assert not apply(subject, Request('finish'), 9.0).orders.keep


def test_pause_and_resume() -> None:
    paused = apply(campaign(Phase.RELEASING), Request('pause'), 9.0)
    assert paused.orders.paused
    assert not apply(paused, Request('resume'), 9.0).orders.paused


@pytest.mark.parametrize('verb', ['pause', 'abort'])
def test_an_order_to_stop_borrows_norebalance_again_though_others_have_cleared_it(
        verb: str) -> None:
    given_up = frozenset({NOREBALANCE_KEY, BALANCER})
    subject = campaign(Phase.HOLDING, given_up=given_up)
    assert apply(subject, Request(verb), 9.0).holds.given_up == {BALANCER}
    assert apply(subject, Request('resume'), 9.0).holds.given_up == given_up


def test_abort_twice_keeps_its_clock() -> None:
    aborting = campaign(Phase.ABORTING, phase_since=5.0)
    assert apply(aborting, Request('abort'), 9.0) == aborting


def test_pin_again_gives_another_chance() -> None:
    subject = campaign(Phase.PINNED, unpinnable={'1.0': Unpinnable('why')})
    assert apply(subject, Request('pin'), 9.0).pinning.unpinnable == {}
    assert apply(subject, Request('start'), 9.0).pinning.unpinnable == {'1.0': Unpinnable('why')}
    assert subject.pinning.unpinnable == {'1.0': Unpinnable('why')}


@pytest.mark.parametrize('raw', [None, 3, 'pin', [], {}, {'verb': 'dance'},
                                 {'verb': 'pin', 'more': 1}, {'verb': ['pin']}])
def test_foreign_json_is_refused(raw: Any) -> None:
    with pytest.raises(Malformed):
        decode(Request, raw)


def test_start_accepts_only_what_it_asks_about() -> None:
    """PGs that have nowhere to move, or wait for recovery, do not raise the limit."""
    unpinnable = {**{'1.%x' % seed: INCOMPLETE for seed in range(300)},
                  **{'2.%x' % seed: DEGRADED_PG for seed in range(300)},
                  '3.0': Unpinnable('why')}
    subject = changed(campaign(Phase.PINNED), unpinnable=unpinnable)
    assert apply(subject, Request('start'), 9.0).orders.accepted_unpinnable == 1


# ---- Refusals, to the letter

@pytest.mark.parametrize('verb, phase, changes, code, text', [
    ('pin', Phase.PINNING, {}, errno.EBUSY, 'campaign 7 is PINNING: it is already pinning'),
    ('pause', Phase.ABORTING, {}, errno.EBUSY, 'campaign 7 is ABORTING: wait until it has ended'),
    ('start', Phase.FINISHING, {}, errno.EBUSY, 'campaign 7 is FINISHING: wait until it has ended'),
    ('finish', Phase.FINISHING, {}, errno.EBUSY,
     'campaign 7 is FINISHING: it is already finishing'),
    ('prepare', Phase.PINNED, {}, errno.EBUSY,
     'campaign 7 is PINNED: "campaign finish" or "campaign abort" first'),
    ('prepare', Phase.HOLDING, {}, errno.EBUSY, 'campaign 7 is HOLDING: wait until it has ended '
     '(a saved plan that is approved begins then), or abort it first'),
    ('pause', Phase.DONE, {}, errno.ENOENT, 'campaign 7 is DONE and has ended: "expand", "drain" '
     'and other changes begin one, "campaign prepare" one for a change by hand'),
    ('pause', Phase.IDLE, {}, errno.ENOENT, 'no campaign is active: "expand", "drain" and other '
     'changes begin one, "campaign prepare" one for a change by hand'),
    # An aborted campaign that keeps PGs pinned.
    ('start', Phase.ABORTED, {'held': True}, errno.ENOENT, 'campaign 7 is ABORTED and keeps PGs '
     'pinned: run "campaign resume", "campaign rollback" or "campaign finish --keep"')])
def test_what_a_refusal_says(verb: str, phase: Phase, changes: Any, code: int, text: str) -> None:
    refused = refusal(campaign(phase, **changes), Request(verb))
    assert (refused.errno, str(refused)) == (code, text)


@pytest.mark.parametrize('verb, request_changes, pins, loose, text', [
    ('finish', {}, 1, '', '1 PG is still pinned: release them, or run "campaign finish --keep" to '
     'turn the pins into ordinary upmaps, or "campaign abort"'),
    ('finish', {'keep': True}, 1, '', None), ('finish', {}, 0, '', None),
    ('finish', {}, 0, '3 PGs would move', '3 PGs would move: "campaign start" first, or '
     '--yes-i-really-mean-it finishes anyway'),
    ('finish', {'sure': True}, 0, '3 PGs would move', None),
    ('start', {}, 9, '3 PGs would move', None)])
def test_what_must_not_be_left(verb: str, request_changes: Any, pins: int, loose: str,
                               text: Any) -> None:
    def asked() -> None:
        check(campaign(Phase.PINNED), Request(verb, **request_changes), pins, (), loose=loose)
    if text is None:
        asked()
        return
    with pytest.raises(Refused) as raised:
        asked()
    assert str(raised.value) == text
    assert raised.value.errno == (errno.EBUSY if pins else errno.EPERM)


def test_an_aborted_campaign_is_not_finished_with_pins_by_another_abort() -> None:
    refused = refusal(campaign(Phase.ABORTED, held=True), Request('finish'), pins=2)
    assert str(refused) == '2 PGs are still pinned: release them ("campaign resume"), or run ' \
        '"campaign finish --keep" to turn the pins into ordinary upmaps'


@pytest.mark.parametrize('phase, verb', [(Phase.PREPARED, 'pin'), (Phase.ABORTED, 'resume'),
                                         (Phase.RELEASING, 'start')])
def test_what_pins_or_releases_pgs_that_would_move(phase: Phase, verb: str) -> None:
    with pytest.raises(Refused) as raised:
        check(campaign(phase, held=phase is Phase.ABORTED), Request('finish'), 0, (), loose='why')
    assert str(raised.value).startswith('why: "campaign %s" first' % verb)


def test_an_aborted_campaign_with_pins_may_be_resumed_or_finished() -> None:
    held = campaign(Phase.ABORTED, held=True)
    check(held, Request('resume'), 3, ())
    check(held, Request('finish', keep=True), 3, ())
    check(held, Request('prepare'), 3, ())


def test_osds_are_no_longer_awaited_after_an_abort() -> None:
    check(NO_CAMPAIGN, Request('abort'), 0, (), awaiting=True)
    with pytest.raises(Refused):
        check(NO_CAMPAIGN, Request('pause'), 0, (), awaiting=True)


def test_mons_that_refuse_upmaps_let_no_campaign_begin() -> None:
    osdmap = OsdMap(1, frozenset(), {}, {}, {}, {}, {})
    why = unfit(replace(osdmap, min_compat_client='jewel'))
    assert why == ('require_min_compat_client is jewel, but upmaps require luminous ("ceph osd '
                   'set-require-min-compat-client luminous")')
    assert unfit(replace(osdmap, min_compat_client='luminous')) == ''
    with pytest.raises(Refused) as raised:
        check(NO_CAMPAIGN, Request('prepare'), 0, (), unfit=why)
    assert raised.value.errno == errno.EPERM
    assert str(raised.value) == 'cannot begin a campaign: ' + why


def test_a_risk_of_beginning_is_no_stop_condition() -> None:
    code = next(code for code in RISKS if code == 'TARGET_FULL')
    refused = refusal(campaign(Phase.HOLDING), Request('accept', code=code))
    assert str(refused) == ('TARGET_FULL stops no release: it is a risk of beginning a change, '
                            'which takes it as "--accept TARGET_FULL"')


@pytest.mark.parametrize('verb, pools, refused', [
    ('prepare', {'rbd'}, True), ('start', {'rbd'}, True), ('prepare', {'gone'}, False),
    ('prepare', None, False), ('pin', {'rbd'}, False), ('pause', {'rbd'}, False)])
def test_limits_of_pools_that_do_not_exist(verb: str, pools: Any, refused: bool) -> None:
    options = replace(DEFAULTS, latency_limits_ms='gone=3')
    if not refused:
        refuse_bad_options(Request(verb), options, pools)
        return
    with pytest.raises(Refused) as raised:
        refuse_bad_options(Request(verb), options, pools)
    assert str(raised.value) == (
        "invalid module options; fix first: latency_limits_ms: pool 'gone' does not exist "
        '("ceph config set mgr mgr/perfguard/<option> <value>")')


@pytest.mark.parametrize('verb, refused', [
    ('prepare', True), ('pin', True), ('start', True), ('resume', True), ('pause', False),
    ('abort', False), ('finish', False), ('accept', False), ('set', False)])
def test_invalid_options_do_not_prevent_the_end_of_a_campaign(verb: str, refused: bool) -> None:
    options = replace(DEFAULTS, begin_time='never')
    if refused:
        with pytest.raises(Refused):
            refuse_bad_options(Request(verb), options, None)
    else:
        refuse_bad_options(Request(verb), options, None)


@pytest.mark.parametrize('option, value, refused', [
    ('latency_limits_ms', 'gone=3', True), ('latency_limits_ms', 'rbd=3', False),
    ('latency_limits_ms', '', False), ('latency_factor', '99', True),
    # Other problems of the module's own options.
    ('max_pins', '7', False), ('begin_time', 'never', True)])
def test_a_setting_of_a_campaign(option: str, value: str, refused: bool) -> None:
    options = replace(DEFAULTS, end_weekday=9)
    request = Request('set', option=option, value=value)
    if not refused:
        refuse_bad_settings(campaign(Phase.PINNED), request, options, {'rbd'})
        return
    with pytest.raises(Refused) as raised:
        refuse_bad_settings(campaign(Phase.PINNED), request, options, {'rbd'})
    assert raised.value.errno == errno.EINVAL and option in str(raised.value)


# ---- What a request would do, to the letter

GIB = 1 << 30


def would(phase: Phase, request: Request, arriving: int = 0, changes: Any = {},
          **more: Any) -> List[str]:
    """The effects with two pins, and another PG in flight."""
    flights = {'1.0': Flight(0.0, UpmapEntry(), pin=PinRecord(UpmapEntry(), UpmapEntry()))}
    subject = campaign(phase, in_flight=flights, **changes)
    rows = [Row(Owner.CAMPAIGN, 'flag %d' % number, None, 'set', 0.0, '') for number in range(6)]
    rows += [Row(Owner.CAMPAIGN, 'pins', None, 'set', 0.0, '', can_stay=True),
             Row(Owner.PROBE, 'probe', None, 'set', 0.0, '')]
    reason = Reason(Code.LAGGY, '1 PG is laggy')
    return effects(request, Rebalanced(
        subject, CampaignStatus(in_flight=1, reasons=(reason, DEGRADED),
                                unpinnable={'1.a': Unpinnable('why')}),
        ReleasePreview(movement_of([Move('1.1', (0,), (1,), 0, GIB)], 1, 1), remapped=3,
                       unpinnable={'1.b': Unpinnable('why'), '1.c': Unpinnable('why')}),
        pins=2, **more), rows, DEFAULTS, arriving)[1:]


ARRIVES = '1 PG in flight would first arrive, at the pace that client latency allows'
KEPT = '%d PGs would stay pinned until "campaign resume", "campaign rollback" or "campaign finish' \
    ' --keep"'
BACK = '1 PG in flight would be pinned back, and what was copied of them is lost'
REMAPPED = '3 remapped PGs would be pinned where the data is'
GIVEN = 'given back: flag 0, flag 1, flag 2, flag 3, flag 4 and 1 more'


@pytest.mark.parametrize('phase, request_, given, lines', [
    (Phase.PREPARED, Request('pin'), {}, [
        '3 PGs would be pinned where the data is',
        '2 PGs cannot be pinned and would move at once']),
    (Phase.PINNED, Request('start'), {}, [
        '2 PGs would be released in batches, 1.0 GiB to copy',
        '1 PG cannot be pinned and would move at once']),
    (Phase.RELEASING, Request('pause'), {}, [
        '1 PG in flight would stop and 2 PGs stay pinned, until "campaign resume"; what was copied '
        'is kept']),
    (Phase.HOLDING, Request('pause'), {'changes': {'given_up': frozenset({NOREBALANCE_KEY})}}, [
        '1 PG in flight would stop and 2 PGs stay pinned, until "campaign resume"; what was copied '
        'is kept', 'norebalance, which was cleared outside perfguard, would be set again']),
    (Phase.RELEASING, Request('pause', seconds=600.0), {}, [
        '1 PG in flight would stop and 2 PGs stay pinned, for 10 min; what was copied is kept']),
    (Phase.HOLDING, Request('resume'), {}, [
        '2 PGs would be released, and 1 PG in flight continue']),
    (Phase.ABORTED, Request('resume'), {'changes': {'held': True}}, [
        '3 PGs that became remapped meanwhile would be pinned',
        '2 PGs would be released, and 1 PG in flight continue']),
    (Phase.RELEASING, Request('abort'), {'withdrawn_plans': ('plan p1 is withdrawn',)}, [
        BACK, REMAPPED, KEPT % 6, 'plan p1 is withdrawn']),
    (Phase.RELEASING, Request('abort'), {'arriving': 1}, [
        BACK, REMAPPED, '1 PG that cannot be pinned would still move to where CRUSH places it',
        KEPT % 6]),
    (Phase.RELEASING, Request('abort'), {'arriving': 2}, [
        BACK, REMAPPED, '2 PGs that cannot be pinned would still move to where CRUSH places them',
        KEPT % 6]),
    (Phase.HOLDING, Request('finish', keep=True), {'loose': 'a', 'withdrawn': ('b',)}, [
        'the pins of 2 PGs would become ordinary upmaps, which the balancer may change', ARRIVES,
        'a', 'b', GIVEN]),
    (Phase.HOLDING, Request('finish'), {'withdrawn': ('b',)}, [
        'the pins of 2 PGs would become ordinary upmaps, which the balancer may change', ARRIVES,
        GIVEN]),
    (Phase.HOLDING, Request('accept', code='LAGGY'), {}, [
        'LAGGY would not stop releases until it has been absent for 10 minutes; now: 1 PG is '
        'laggy']),
    (Phase.HOLDING, Request('accept', code='SLOW_OPS'), {}, [
        'SLOW_OPS would not stop releases until it has been absent for 10 minutes; now: it stops '
        'none']),
    (Phase.HOLDING, Request('accept', code='PG_LIMIT'), {}, [
        'PG_LIMIT would not stop releases of this campaign any longer; now: it stops none']),
    (Phase.HOLDING, Request('set', option='max_pins', value='7'), {}, [
        'max_pins is 0 now and would be 7']),
    (Phase.HOLDING, Request('set', option='latency_limits_ms'), {}, [
        'latency_limits_ms is empty now and would be the value of the module option']),
    (Phase.DONE, Request('prepare'), {}, ['no PG would move'])])
def test_what_a_request_would_do(phase: Phase, request_: Request, given: Any,
                                 lines: List[str]) -> None:
    assert would(phase, request_, **given) == lines


@pytest.mark.parametrize('pins, remapped, arriving, forgotten, lines', [
    (0, 0, 0, 0, []), (4, 0, 0, 2, [KEPT % 2]), (4, 0, 0, 4, []), (4, 0, 0, 5, []),
    (0, 1, 0, 0, ['1 remapped PG would be pinned where the data is',
                  KEPT.replace('PGs', 'PG') % 1]),
    (0, 0, 1, 0, ['1 PG that cannot be pinned would still move to where CRUSH places it'])])
def test_an_abort_without_pgs_in_flight(pins: int, remapped: int, arriving: int, forgotten: int,
                                        lines: List[str]) -> None:
    assert effects(Request('abort'), Rebalanced(
        campaign(Phase.PREPARED), preview=ReleasePreview(remapped=remapped), pins=pins), (),
                   DEFAULTS, arriving, forgotten)[1:] == lines


@pytest.mark.parametrize('request_, text, only_stops', [
    (Request('pause'), 'campaign pause', True), (Request('abort'), 'campaign abort', True),
    (Request('resume'), 'campaign resume', False),
    (Request('accept', code='LAGGY'), 'campaign accept LAGGY', False)])
def test_the_text_of_a_request(request_: Request, text: str, only_stops: bool) -> None:
    assert (request_.text, request_.only_stops) == (text, only_stops)
    assert DryRun(request_).verb == request_.verb


@pytest.mark.parametrize('option, value', [('target', 'crush'), ('max_pins', 'many')])
def test_what_cannot_be_set_for_a_campaign(option: str, value: str) -> None:
    with pytest.raises(Refused) as raised:
        refuse_bad_settings(campaign(Phase.PINNED), Request('set', option=option, value=value),
                            DEFAULTS, None)
    assert raised.value.errno == errno.EINVAL and option in str(raised.value)
