# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the SMART data of a drive adds to the cause that names it."""
from dataclasses import replace
from typing import Any, Dict, Optional, Set

import pytest

from perfguard.cluster.drive_health import DriveHealth
from perfguard.cluster.types import OsdPlace
from perfguard.watch.causes import OsdEvidence, causes
from perfguard.watch.drives import DriveEvidence, Firmwares, drive_evidence, firmwares, with_drive
from perfguard.watch.types import SlowShared

HEALTHY = DriveHealth('M_S0', 'NEW', False, 10, 0, 24.0, 0, 0)
PLACES = {osd: OsdPlace(osd, 'h1', 'default', 'ssd', 'M', devices=('h1:sd%d' % osd, 'h1:nvme0'))
          for osd in range(48)}
STORE = {'reads': 6.0, 'writes': 5.0, 'store commits': 7.0, 'store reads': 1.0}


def drives(old: Set[int]) -> Dict[str, DriveHealth]:
    return {place.devices[0]: replace(HEALTHY, device_id='M_S%d' % osd,
                                      firmware='OLD' if osd in old else 'NEW')
            for osd, place in PLACES.items()}


def text(evidence: Optional[DriveEvidence]) -> str:
    return with_drive('slow', {}, evidence)[0]


@pytest.mark.parametrize('old, slow, said', [
    ({3, 4, 5}, {3, 4, 5}, 'slow; 3 slow OSDs of this drive model have firmware OLD; 45 of 45 '
                           'others have NEW'),
    ({3}, {3}, 'slow; 1 slow OSD of this drive model has firmware OLD; 47 of 47 others have NEW'),
    ({3, 4, 5, 6}, {3, 4, 5}, 'slow; 3 slow OSDs of this drive model have firmware OLD; 44 of 45 '
                              'others have NEW'),
    # A coincidence, the usual firmware, and several.
    ({3, 4, 5}, {3}, 'slow; its SMART data shows no reason'),
    (set(), {3}, 'slow; its SMART data shows no reason'),
    (set(range(24)), {3, 4}, 'slow; its SMART data shows no reason'),
    ({3}, {3, 4}, 'slow; its SMART data shows no reason')])
def test_firmware_that_slow_drives_alone_have(old: Set[int], slow: Set[int], said: str) -> None:
    known = drives(old)
    evidence = drive_evidence(PLACES[3], None, known, firmwares(PLACES, slow, known))
    assert text(evidence) == said


@pytest.mark.parametrize('slow, others, said', [
    # A chance of 1 in 20, and of 1 in 19.
    ({'OLD': 1}, {'NEW': 19}, '1 slow OSD of this drive model has firmware OLD; 19 of 19 others '
                              'have NEW'),
    ({'OLD': 1}, {'NEW': 18}, 'its SMART data shows no reason'),
    ({'OLD': 2}, {'OLD': 1, 'NEW': 12, 'X': 12}, '2 slow OSDs of this drive model have firmware '
                                                 'OLD; 12 of 25 others have X'),
    ({'OLD': 2}, {'NEW': 1}, 'its SMART data shows no reason'),
    ({'OLD': 2}, {'NEW': 38}, '2 slow OSDs of this drive model have firmware OLD; 38 of 38 others '
                              'have NEW')])
def test_from_which_chance_on_firmware_is_named(
        slow: Dict[str, int], others: Dict[str, int], said: str) -> None:
    evidence = DriveEvidence(replace(HEALTHY, firmware='OLD'), Firmwares(slow, others))
    assert text(evidence) == 'slow; ' + said


def test_firmware_is_counted_by_model_of_the_main_drives() -> None:
    known = {'h1:sd0': HEALTHY, 'h1:sd1': replace(HEALTHY, firmware='OLD'),
             'h1:sd2': replace(HEALTHY, device_id='N_S2'), 'h1:sd3': replace(HEALTHY, device_id=''),
             'h1:nvme0': replace(HEALTHY, device_id='X_S9'), 'h1:sd5': HEALTHY}
    places = {**{osd: PLACES[osd] for osd in range(5)}, 5: PLACES[5]._replace(devices=())}
    assert firmwares(places, {1}, known) == {
        'M': Firmwares({'OLD': 1}, {'NEW': 1}), 'N': Firmwares({}, {'NEW': 1})}
    assert firmwares(places, {1}, {}) == {}


@pytest.mark.parametrize('change, said', [
    ({'wear_percent': 90}, '90 % of its life is used'),
    ({'wear_percent': 89}, 'its SMART data shows no reason'),
    ({'wear_percent': None}, 'its SMART data shows no reason'),
    ({'hot_minutes': 1, 'hours': 23.6}, 'it was too hot for 1 minute of the last 24 hours'),
    ({'hot_minutes': 41}, 'it was too hot for 41 minutes of the last 24 hours'),
    ({'hot_minutes': 41, 'celsius': 76},
     'it was too hot for 41 minutes of the last 24 hours (76 degrees Celsius when last read)'),
    ({'celsius': 76}, 'its SMART data shows no reason'),
    ({'errors': 12}, 'it has 12 media errors'),
    ({'errors': 12, 'new_errors': 3}, 'it has 12 media errors, 3 of them in the last 24 hours'),
    ({'wear_percent': 96}, '96 % of its life is used'),
    ({'write_cache': True}, 'its volatile write cache is on'),
    ({'write_cache': True, 'errors': 1}, 'it has 1 media error; its volatile write cache is on')])
def test_what_is_conspicuous(change: Dict[str, Any], said: str) -> None:
    assert text(DriveEvidence(replace(HEALTHY, **change))) == 'slow; ' + said


def test_absent_data_is_said_to_be_absent_once_it_was_read() -> None:
    cause, = causes(OsdEvidence(5, STORE))
    assert 'stored' not in cause.text
    cause, = causes(OsdEvidence(5, STORE, drive=DriveEvidence(None)))
    assert cause.code == 'drive' and cause.text.endswith('; no SMART data of it is stored')
    assert drive_evidence(PLACES[3], None, None, {}) is None
    assert drive_evidence(None, None, {}, {}) is None
    assert drive_evidence(PLACES[3], None, {}, {}) == DriveEvidence(None)


def test_a_shared_device_has_its_own_data() -> None:
    shared = SlowShared(('device', 'h1:nvme0'), (3, 4), 2, (), 6.0, 1e9, '')
    worn = replace(HEALTHY, wear_percent=97, celsius=44)
    evidence = drive_evidence(PLACES[3], shared, {**drives({3}), 'h1:nvme0': worn},
                              {'M': Firmwares({'OLD': 1}, {'NEW': 47})})
    assert evidence == DriveEvidence(worn)
    cause, = causes(OsdEvidence(5, STORE, shared=shared, drive=evidence))
    assert cause.text.endswith('check this device (SMART, kernel log); 97 % of its life is used')
    assert cause.evidence['drive'] == {
        'device_id': 'M_S0', 'firmware': 'NEW', 'write_cache': False, 'wear_percent': 97,
        'media_errors': 0, 'hot_minutes': 0, 'celsius': 44}
