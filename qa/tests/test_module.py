# SPDX-License-Identifier: LGPL-2.1-or-later
"""The module as Ceph and an operator meet it, through the ceph command of each release."""
import re
import subprocess
from typing import Any, Tuple

import pytest

from qa.lib.guard import Guard

pytestmark = [pytest.mark.releases('pacific', 'reef', 'tentacle', quick='reef'),
              pytest.mark.shares('campaign')]


def ceph(guard: Guard, *argv: str) -> Tuple[int, str, str]:
    done: 'subprocess.CompletedProcess[str]' = guard.cluster.ceph(*argv, check=False)
    return done.returncode, done.stdout, done.stderr


def test_options_are_documented_and_bounded(guard: Guard) -> None:
    for option, level in (('max_pgs_in_flight', 'basic'), ('max_pins', 'advanced'),
                          ('pin_batch', 'dev')):
        retval, out, _ = ceph(guard, 'config', 'help', 'mgr/perfguard/' + option)
        # ceph-mgr of Pacific does not read the level.
        known = guard.cluster.release.name != 'pacific'
        assert retval == 0 and '(uint, %s)' % (level if known else 'advanced') in out, out
    assert 'Minimum: 1' in out and 'pinned in one batch' in out
    for option, value in (('pin_batch', '0'), ('pin_batch', 'abc'), ('target', 'nonsense'),
                          ('campaign_interval', '0.001'), ('max_backfills_host', '0'),
                          ('max_transition_ratio', '2')):
        retval, _, error = ceph(guard, 'config', 'set', 'mgr', 'mgr/perfguard/' + option, value)
        assert retval == 22, (option, value, error)


def test_refusals_are_one_line_with_an_errno(guard: Guard) -> None:
    before = guard.cluster.osd_dump()['flags_set']
    for argv in (('status', '--format', 'xml'), ('events', '-5'), ('campaign', 'show'),
                 ('campaign', 'show', 'first'), ('campaign', 'nonesuch'), ('nonesuch',)):
        retval, out, error = ceph(guard, 'perfguard', *argv)
        assert retval == 22 and not out and 'Traceback' not in error, argv
    for verb in ('pin', 'start', 'pause', 'resume', 'abort', 'finish'):
        retval, out, error = ceph(guard, 'perfguard', 'campaign', verb)
        assert retval == 2 and not out, verb
        # There was none yet, or the last one has ended.
        assert re.fullmatch('Error ENOENT: (no campaign is active|campaign \\d+ is \\w+ and has '
                            'ended): "expand", "drain" and other changes begin .*\n', error)
    assert guard.cluster.osd_dump()['flags_set'] == before


def test_plain_text_fits_a_terminal(guard: Guard) -> None:
    """test_release.py has all formats of all commands."""
    for command in (('status',), ('campaign', 'status'), ('preview',),
                    ('campaign', 'ls')):
        retval, plain, _ = ceph(guard, 'perfguard', *command)
        assert retval == 0 and plain.strip() and not plain.startswith('{')
        assert all(len(line) <= 120 for line in plain.splitlines()), plain


def test_prepare_by_hand_and_abort(guard: Guard) -> None:
    retval, out, error = ceph(guard, 'perfguard', 'campaign', 'prepare', '--accept', 'OSD_DOWN',
                              '--accept', 'degraded')
    assert retval == 0 and 'PREPARED' in out, error
    guard.wait_phase('PREPARED')
    campaign = guard.former + 1
    retval, out, _ = ceph(guard, 'perfguard', 'campaign', 'show', str(campaign))
    assert retval == 0 and 'PREPARED' in out
    retval, _, error = ceph(guard, 'perfguard', 'campaign', 'prepare')
    assert retval == 16 and 'campaign %d is PREPARED' % campaign in error
    assert ceph(guard, 'perfguard', 'campaign', 'abort')[0] == 0
    guard.wait_phase('ABORTED')
    assert 'norebalance' not in guard.cluster.osd_dump()['flags_set']

    assert [event['what'] for event in guard.get('events')['events'] if event['kind'] == 'request'
            ][-2:] == ['campaign prepare', 'campaign abort']

    # ceph-mgr sends its audit log to the mons about once a second.
    guard.cluster.wait(lambda: [
        line for line in guard.log_lines('"perfguard campaign abort"')
        if "entity='client.admin'" in line], 20, 'the entry of the abort in the audit log')


def test_a_health_check_is_switched_off_before_it_is_raised(guard: Guard) -> None:
    """By Ceph's own means, so that no option of the module is needed."""
    code = 'PERFGUARD_HELD_PINS'

    def check() -> Any:
        return guard.cluster.mon('health')['checks'].get(code)

    assert ceph(guard, 'health', 'mute', code, '--sticky')[0] == 0
    try:
        assert ceph(guard, 'perfguard', 'campaign', 'prepare')[0] == 0
        guard.wait_phase('PREPARED')
        assert ceph(guard, 'osd', 'crush', 'reweight', 'osd.0', '0.5')[0] == 0
        assert ceph(guard, 'perfguard', 'campaign', 'pin')[0] == 0
        guard.wait_phase('PINNED')
        assert ceph(guard, 'perfguard', 'campaign', 'abort')[0] == 0
        guard.wait_phase('ABORTED')
        guard.cluster.wait(check, 30, code)
        assert check()['muted']
        assert ceph(guard, 'perfguard', 'campaign', 'rollback')[0] == 0
        guard.cluster.wait(lambda: not check(), 60, 'the end of ' + code)
        guard.wait_phase('DONE')
        assert code in [mute['code'] for mute in guard.cluster.mon('health')['mutes']]
    finally:
        ceph(guard, 'health', 'unmute', code)


def test_disable_and_enable(guard: Guard) -> None:
    """What the module wrote is there after it was away."""
    before = guard.get('campaign ls')['campaigns']
    assert ceph(guard, 'mgr', 'module', 'disable', 'perfguard')[0] == 0

    def gone() -> bool:
        return guard.cluster.mgr('perfguard status')[0] != 0

    guard.cluster.wait(gone, 20, 'the commands to go')
    assert ceph(guard, 'mgr', 'module', 'enable', 'perfguard')[0] == 0
    guard.wait_ready()
    assert guard.get('campaign ls')['campaigns'] == before
    assert 'MGR_MODULE_ERROR' not in guard.cluster.mon('health')['checks']
    assert not guard.tracebacks()


def test_self_test(guard: Guard) -> None:
    """As Ceph's own suite runs it for each module."""
    retval, _, error = ceph(guard, 'mgr', 'module', 'enable', 'selftest')
    assert retval == 0, error
    try:
        guard.cluster.wait(lambda: ceph(guard, 'mgr', 'self-test', 'module', 'perfguard')[0] == 0,
                           60, 'the self-test: %s' % (ceph(
                               guard, 'mgr', 'self-test', 'module', 'perfguard'),))
    finally:
        ceph(guard, 'mgr', 'module', 'disable', 'selftest')
    assert not guard.tracebacks()
