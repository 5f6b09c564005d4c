# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which options slow recovery on which scheduler, and where they must be set."""
from typing import Dict, Optional, Tuple

import pytest

from perfguard.cluster.types import ConfigEntry
from perfguard.ledger import same_value
from perfguard.mitigation.recovery import RecoveryOptions, slow_recovery

#: (who, option) -> (what is found, what is put)
Change = Dict[Tuple[str, str], Tuple[Optional[str], str]]


def entries(**values: str) -> Tuple[ConfigEntry, ...]:
    """osd__option='1', or osd_class_hdd__option, osd_3__option."""
    found = []
    for key, value in values.items():
        where, name = key.split('__')
        section, mask = where, ''
        if '_class_' in where:
            section, _, drive = where.partition('_class_')
            mask = 'class:' + drive
        found.append(ConfigEntry(section.replace('osd_', 'osd.'), mask, name, value))
    return tuple(found)


def changes(recovery: RecoveryOptions) -> Change:
    return {(s.who, s.name): (s.held.found, s.held.put) for s in recovery.settings}


def test_wpq_on_a_cluster_without_options() -> None:
    assert changes(slow_recovery((), {'wpq'})) == {
        ('osd', 'osd_max_backfills'): (None, '1'),
        ('osd', 'osd_recovery_max_active'): (None, '1')}


def test_masks_and_single_osds_win_and_are_changed_where_they_stand() -> None:
    found = entries(osd__osd_max_backfills='4', osd_class_hdd__osd_max_backfills='8',
                    osd_3__osd_max_backfills='2', global__osd_max_backfills='16',
                    mgr__osd_max_backfills='16')
    assert {who: change for (who, name), change in changes(slow_recovery(found, {'wpq'})).items()
            if name == 'osd_max_backfills'} == {
        'osd': ('4', '1'), 'osd/class:hdd': ('8', '1'), 'osd.3': ('2', '1')}


def test_what_is_as_slow_already_stays() -> None:
    found = entries(osd__osd_max_backfills='1', osd__osd_recovery_max_active='1',
                    osd__osd_recovery_sleep_hdd='0.500000', osd__osd_recovery_sleep_hybrid='0.025')
    assert slow_recovery(found, {'wpq'}).settings == ()
    # 0 stands for the default of the kind of drive.
    found = entries(osd__osd_max_backfills='1', osd__osd_recovery_max_active='0')
    assert changes(slow_recovery(found, {'wpq'})) == {
        ('osd', 'osd_recovery_max_active'): ('0', '1')}
    # ... or for no backfill at all.
    found = entries(osd__osd_max_backfills='0')
    assert ('osd', 'osd_max_backfills') not in changes(slow_recovery(found, {'wpq'}))


def sleeps(recovery: RecoveryOptions) -> Change:
    return {key: change for key, change in changes(recovery).items() if 'sleep' in key[1]}


def test_each_kind_of_drive_sleeps_at_least_as_by_default() -> None:
    found = entries(osd__osd_recovery_sleep_hdd='0', osd_3__osd_recovery_sleep_hdd='0.5',
                    osd_class_hdd__osd_recovery_sleep_hybrid='0.01')
    assert sleeps(slow_recovery(found, {'wpq'})) == {
        ('osd', 'osd_recovery_sleep_hdd'): ('0', '0.1'),
        ('osd/class:hdd', 'osd_recovery_sleep_hybrid'): ('0.01', '0.025')}


def test_no_ssd_is_made_to_sleep() -> None:
    for found in (entries(), entries(osd__osd_recovery_sleep_ssd='0'),
                  entries(osd__osd_recovery_sleep_hdd='0.5', osd__osd_recovery_sleep='0')):
        assert sleeps(slow_recovery(found, {'wpq'})) == {}


def test_a_sleep_of_the_section_global_is_found() -> None:
    found = entries(global__osd_recovery_sleep_hdd='0')
    assert sleeps(slow_recovery(found, {'wpq'})) == {
        ('osd', 'osd_recovery_sleep_hdd'): (None, '0.1')}
    found += entries(osd__osd_recovery_sleep_hdd='0.1')
    assert sleeps(slow_recovery(found, {'wpq'})) == {}


def test_a_sleep_for_all_drives_is_left_alone() -> None:
    recovery = slow_recovery(entries(osd__osd_recovery_sleep='0.01'), {'wpq'})
    assert sleeps(recovery) == {}
    assert recovery.remarks == ('osd_recovery_sleep of osd is 0.01 for every drive '
                                'type and remains unchanged',)
    # 0, the default, is the sleep of the type of each drive.
    assert slow_recovery(entries(osd__osd_recovery_sleep='0'), {'wpq'}).remarks == ()


def test_mclock_has_its_profile_alone() -> None:
    found = entries(osd__osd_max_backfills='8', osd__osd_mclock_profile='balanced')
    assert changes(slow_recovery(found, {'mclock_scheduler'})) == {
        ('osd', 'osd_mclock_profile'): ('balanced', 'high_client_ops')}


def test_mclock_whose_limits_count() -> None:
    found = entries(osd__osd_mclock_override_recovery_settings='true',
                    osd__osd_max_backfills='8')
    assert changes(slow_recovery(found, {'mclock_scheduler'})) == {
        ('osd', 'osd_mclock_profile'): (None, 'high_client_ops'),
        ('osd', 'osd_max_backfills'): ('8', '1'),
        ('osd', 'osd_recovery_max_active'): (None, '1')}
    found = entries(osd__osd_mclock_override_recovery_settings='false',
                    osd__osd_fast_shutdown='true', osd__osd_max_backfills='8')
    assert changes(slow_recovery(found, {'mclock_scheduler'})) == {
        ('osd', 'osd_mclock_profile'): (None, 'high_client_ops')}


def test_a_custom_profile_is_left_alone() -> None:
    recovery = slow_recovery(entries(osd__osd_mclock_profile='custom'), {'mclock_scheduler'})
    assert recovery.settings == () and 'custom' in recovery.remarks[0]


def test_what_the_section_global_sets_is_left_alone_as_well() -> None:
    recovery = slow_recovery(entries(global__osd_mclock_profile='custom'), {'mclock_scheduler'})
    assert recovery.settings == () and 'custom' in recovery.remarks[0]
    # An operator has stopped all backfill.
    found = entries(global__osd_max_backfills='0', global__osd_recovery_max_active='1')
    assert changes(slow_recovery(found, {'wpq'})) == {}
    found += entries(osd_class_hdd__osd_max_backfills='4')
    assert changes(slow_recovery(found, {'wpq'})) == {
        ('osd/class:hdd', 'osd_max_backfills'): ('4', '1')}


def test_schedulers_mixed_and_unknown() -> None:
    both = slow_recovery((), {'wpq', 'mclock_scheduler'})
    assert len(both.settings) == 3 and both.remarks == ()
    other = slow_recovery((), {'debug_random'})
    assert other.settings == () and 'debug_random' in other.remarks[0]


def test_values_that_are_no_numbers() -> None:
    found = entries(osd__osd_max_backfills='many', osd__osd_recovery_sleep='',
                    osd__osd_recovery_sleep_hdd='')
    assert changes(slow_recovery(found, {'wpq'}))['osd', 'osd_max_backfills'] == ('many', '1')


@pytest.mark.parametrize('one,other,equal', [
    ('0.1', '0.100000', True), ('1', '1', True), (None, None, True), (None, '0', False),
    ('balanced', 'balanced ', True), ('balanced', 'custom', False), ('1', 'one', False)])
def test_same(one: Optional[str], other: Optional[str], equal: bool) -> None:
    assert same_value(one, other) is equal and same_value(other, one) is equal
