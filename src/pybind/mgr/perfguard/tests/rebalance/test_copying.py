# SPDX-License-Identifier: LGPL-2.1-or-later
"""The pace of copying: which step, which options, and when they are given back."""
from dataclasses import replace
from typing import Dict, List, Mapping, Optional, Sequence

import pytest

from perfguard.cluster.types import QUEUE, ConfigEntry, Osd, OsdMap
from perfguard.rebalance.copying import (FASTER_SECONDS, FIRST_STEP, PROFILE,
                                         RECOVERED_SECONDS, SLOWER_SECONDS, STEPS, Copying,
                                         QueueKind, Reading, after_reading, basis_for,
                                         options_to_borrow, preview_text, queue_kinds, some_osds,
                                         values_of_others, with_basis)

from .test_orders import crush

IDLE = Reading(idle=True, lowered=False, comfortable=False)
LOWERED = Reading(idle=False, lowered=True, comfortable=False)
COMFORTABLE = Reading(idle=False, lowered=False, comfortable=True)
BETWEEN = Reading(idle=False, lowered=False, comfortable=False)
WPQ, MCLOCK = frozenset({'wpq'}), frozenset({'mclock_scheduler'})
LAST = len(STEPS) - 1
SSD, HYBRID, HDD = ('osd_recovery_sleep_' + kind for kind in ('ssd', 'hybrid', 'hdd'))


def steps(readings: Sequence[Optional[Reading]], every: float, step: int = FIRST_STEP) -> List[int]:
    copying, taken = Copying(step=step, changed=1.0), []
    for number, reading in enumerate(readings):
        copying = after_reading(copying, reading, 1.0 + every * (number + 1))
        taken.append(copying.step)
    return taken


def test_slower_at_once_and_faster_after_a_while() -> None:
    assert steps([LOWERED] * 9, SLOWER_SECONDS)[-1] == LAST
    assert steps([LOWERED] * 3, SLOWER_SECONDS) == [FIRST_STEP + 1, LAST, LAST]
    assert steps([LOWERED], SLOWER_SECONDS / 2) == [FIRST_STEP]
    assert steps([COMFORTABLE] * 9, FASTER_SECONDS)[-1] == 0
    assert steps([COMFORTABLE] * 5, FASTER_SECONDS / 6) == [FIRST_STEP] * 5


def test_the_step_stays_in_between_and_without_a_reading() -> None:
    assert steps([BETWEEN, None] * 5, FASTER_SECONDS) == [FIRST_STEP] * 10


def test_the_first_step_has_its_time() -> None:
    first = after_reading(Copying(), COMFORTABLE, 5000.0)
    assert first.step == FIRST_STEP
    assert after_reading(first, COMFORTABLE, 5000.0 + FASTER_SECONDS - 1).step == FIRST_STEP
    assert after_reading(first, COMFORTABLE, 5000.0 + FASTER_SECONDS).step == FIRST_STEP - 1


def test_full_speed_without_clients() -> None:
    idle = after_reading(Copying(), IDLE, 100.0)
    assert not basis_for(idle, 'auto', WPQ, 100.0)
    # They may be back, and feel what is in flight.
    back = after_reading(idle, BETWEEN, 105.0)
    assert back.step == FIRST_STEP and basis_for(back, 'auto', WPQ, 105.0)


@pytest.mark.parametrize('slow, fast', [(LOWERED, COMFORTABLE), (BETWEEN, IDLE), (LOWERED, IDLE)])
@pytest.mark.parametrize('swing_seconds', [5.0, 60.0, 300.0, 3600.0])
def test_a_day_in_which_latency_swings_has_few_changes(slow: Reading, fast: Reading,
                                                       swing_seconds: float) -> None:
    copying, before, changes = Copying(), '', 0
    for number in range(86400 // 5):
        now = 1000.0 + 5.0 * number
        copying = after_reading(copying, fast if now // swing_seconds % 2 else slow, now)
        in_force = basis_for(copying, 'auto', WPQ, now)
        changes += in_force != before
        before = in_force
    assert 10 < changes < 70


def test_changes_to_a_faster_pace_return_with_time() -> None:
    assert steps([COMFORTABLE] * 4 + [LOWERED] * 4 + [COMFORTABLE] * 3, 400.0, LAST) \
        == [3, 2, 1, 0, 1, 2, 3, 4, 4, 3, 3]


def test_nothing_is_borrowed_without_a_reason() -> None:
    copying = Copying(degraded=1000.0)
    assert basis_for(copying, 'auto', WPQ, 1000.0 + RECOVERED_SECONDS)
    assert not basis_for(copying, 'auto', WPQ, 1000.0 + RECOVERED_SECONDS - 1)
    assert not basis_for(Copying(), 'off', WPQ, 0.0)
    assert not basis_for(Copying(step=0), 'auto', WPQ, 0.0)


def test_an_unknown_scheduler_changes_nothing() -> None:
    assert not basis_for(Copying(), 'auto', frozenset(), 0.0)
    # As after a failover, before the OSDs have answered.
    assert basis_for(Copying(basis='auto wpq 0.025'), 'auto', frozenset(), 0.0) == 'auto wpq 0.025'


def test_the_options_are_worked_out_anew_with_each_step_and_given_back_at_once() -> None:
    paced = with_basis(Copying(), 'auto wpq 0.025')
    assert paced.due and paced.basis
    done = replace(paced, due=False, wanted={SSD: '0.025'})
    assert with_basis(done, 'auto wpq 0.025') is done
    slower = with_basis(done, 'auto wpq 0.05')
    assert slower.due and slower.wanted == done.wanted
    back = with_basis(done, '')
    assert not back.due and not back.wanted and not back.basis


@pytest.mark.parametrize('step, there, mode, expected', [
    # Ceph's own sleeps of slower drives are longer already.
    (1, {}, 'auto', {SSD: '0.01'}),
    (2, {}, 'auto', {SSD: '0.025'}),
    (3, {}, 'auto', {SSD: '0.05', HYBRID: '0.05'}),
    (4, {}, 'auto', {SSD: '0.1', HYBRID: '0.1'}),
    # What others have set wins, and where it does not, nothing gets faster.
    (4, {SSD: '0'}, 'auto', {HYBRID: '0.1'}),
    (4, {SSD: '0', HDD: '0'}, 'on', {SSD: '0.1', HYBRID: '0.1', HDD: '0.1'}),
    (3, {SSD: '0.2', HYBRID: '0.05'}, 'on', {}),
    # It replaces all three.
    (4, {'osd_recovery_sleep': '0.01'}, 'on', {}),
    (4, {'osd_recovery_sleep': '0.000000'}, 'auto', {SSD: '0.1', HYBRID: '0.1'}),
    (4, {'osd_recovery_sleep': 'none'}, 'auto', {SSD: '0.1', HYBRID: '0.1'})])
def test_sleeps(step: int, there: Dict[str, str], mode: str, expected: Dict[str, str]) -> None:
    assert options_to_borrow(Copying(step=step), mode, WPQ, there) == expected


@pytest.mark.parametrize('there, mode, expected', [
    (None, 'auto', 'high_client_ops'), ('balanced', 'auto', None),
    ('balanced', 'on', 'high_client_ops'), ('high_recovery_ops', 'on', 'high_client_ops'),
    ('custom', 'on', None), ('high_client_ops', 'on', None)])
def test_the_profile_of_mclock(there: Optional[str], mode: str, expected: Optional[str]) -> None:
    profile = {} if there is None else {PROFILE: there}
    assert options_to_borrow(Copying(), mode, MCLOCK, profile).get(PROFILE) == expected
    assert PROFILE not in options_to_borrow(Copying(), mode, WPQ, profile)


def test_the_schedulers_are_known_after_a_failover() -> None:
    assert Copying(basis='auto mclock_scheduler wpq 0.05').schedulers == WPQ | MCLOCK
    assert Copying(basis='on wpq 0.1').schedulers == WPQ
    assert Copying().schedulers == frozenset()


def test_a_degraded_pg_requires_no_write_at_once() -> None:
    assert Copying(degraded=5.0).lasting() == Copying().lasting()
    assert Copying(step=1).lasting() != Copying(step=2).lasting()


@pytest.mark.parametrize('mode, expected', [
    ('off', 'the pace of recovery remains unchanged (pace_copying is off)'),
    ('auto', 'while PGs are released, OSDs with wpq sleep 0.01 to 0.1 s after each object unless '
             'osd_recovery_sleep* is set, and OSDs with mclock use the profile high_client_ops'),
    ('on', 'while PGs are released, OSDs with wpq sleep 0.01 to 0.1 s after each object unless '
           'osd_recovery_sleep* is set to a higher value, and OSDs with mclock use the profile '
           'high_client_ops')])
def test_the_text_of_previews(mode: str, expected: str) -> None:
    assert preview_text(mode) == expected


@pytest.mark.parametrize('number, asked', [
    (0, []), (1, [0]), (3, [0, 1, 2]), (4, [0, 1, 2, 3]), (7, [0, 1, 3, 5]), (8, [0, 2, 4, 6]),
    (41, [0, 10, 20, 30])])
def test_a_few_osds_are_asked_for_their_scheduler(number: int, asked: List[int]) -> None:
    osds = {osd: Osd(osd, osd < number, 1.0) for osd in range(number + 2)}
    assert some_osds(OsdMap(1, frozenset(), {}, osds, {}, {}, {}), {}) == asked


@pytest.mark.parametrize('kinds, asked', [
    (dict.fromkeys(range(40), '16.2.15'), [0, 10, 20, 30]),
    ({**dict.fromkeys(range(40), '16.2.15'), 7: '18.2.7'}, [0, 7, 10, 20, 30]),
    ({**dict.fromkeys(range(40), '16.2.15'), 20: '18.2.7', 21: '18.2.7'}, [0, 10, 20, 30]),
    ({**dict.fromkeys(range(40), '18.2.7'), 5: '', 35: '16.2.15'}, [0, 5, 10, 20, 30, 35]),
    # It is down.
    ({**dict.fromkeys(range(40), '16.2.15'), 41: '18.2.7'}, [0, 10, 20, 30])])
def test_an_osd_of_each_version_is_asked_for_its_scheduler(kinds: Mapping[int, str],
                                                           asked: List[int]) -> None:
    osds = {osd: Osd(osd, osd < 40, 1.0) for osd in range(42)}
    assert some_osds(OsdMap(1, frozenset(), {}, osds, {}, {}, {}), {
        osd: QueueKind(version) for osd, version in kinds.items()}) == asked


@pytest.mark.parametrize('entries, others', [
    ([], []), ([ConfigEntry('osd', '', QUEUE, 'wpq')], []),
    ([ConfigEntry('osd', '', 'osd_max_backfills', '1'),
      ConfigEntry('osd.7', '', 'osd_max_backfills', '2')], []),
    ([ConfigEntry('osd.7', '', QUEUE, 'wpq')], [7]),
    ([ConfigEntry('osd', 'class:ssd', QUEUE, 'wpq')], [3, 7]),
    ([ConfigEntry('osd', 'host:h7', QUEUE, 'wpq')], [7]),
    # The more specific one is in force.
    ([ConfigEntry('osd', 'class:ssd', QUEUE, 'wpq'), ConfigEntry('osd.7', '', QUEUE, 'mclock')],
     [3, 7])])
def test_osds_are_of_other_kinds_by_what_is_configured_for_them(entries: List[ConfigEntry],
                                                                others: List[int]) -> None:
    rules = crush(dict.fromkeys(range(8), 1.0), hosts=8, classes={
        osd: 'ssd' if osd in (3, 7) else 'hdd' for osd in range(8)})
    kinds = queue_kinds(dict.fromkeys(range(8), '18.2.7'), entries, rules)
    assert {kind.version for kind in kinds.values()} == {'18.2.7'}
    assert [osd for osd, kind in kinds.items() if kind != kinds[0]] == others
    osds = {osd: Osd(osd, True, 1.0) for osd in range(8)}
    asked = some_osds(OsdMap(1, frozenset(), {}, osds, {}, {}, {}), kinds)
    assert {kinds[osd] for osd in asked} == set(kinds.values())


def test_both_schedulers_are_paced_while_osds_are_upgraded() -> None:
    assert options_to_borrow(Copying(), 'auto', WPQ | MCLOCK, {}).keys() == {SSD, PROFILE}


@pytest.mark.parametrize('held, expected', [
    ({}, {SSD: '0.05', HDD: '0.2'}), ({SSD: None}, {HDD: '0.2'}),
    ({SSD: '0', HDD: None}, {SSD: '0', HDD: '1'})])
def test_what_others_have_set(held: Mapping[str, Optional[str]],
                              expected: Mapping[str, str]) -> None:
    stored = {'osd': {SSD: '0.05', HDD: '0.2'}, 'global': {HDD: '1'}, 'osd.1': {HYBRID: '1'}}
    assert values_of_others(stored, held) == expected
