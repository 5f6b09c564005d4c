# SPDX-License-Identifier: LGPL-2.1-or-later
"""Every verb in every phase."""
import errno
from typing import Any

import pytest

from perfguard.codec import Malformed, decode
from perfguard.errors import Code, Reason, Refused
from perfguard.rebalance.campaign import NO_CAMPAIGN, Campaign
from perfguard.rebalance.requests import Request, VERBS, apply, check
from perfguard.rebalance.risks import RISKS
from perfguard.rebalance.types import Phase
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
