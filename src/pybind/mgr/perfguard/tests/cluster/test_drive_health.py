# SPDX-License-Identifier: LGPL-2.1-or-later
"""SMART data: what is understood of smartctl's output, and how the drives are read."""
from typing import Any, Dict, List, Mapping, Optional, Tuple

import pytest

from perfguard.cluster.drive_health import (DRIVES_PER_JOB, FIRST_READ_SECONDS, READ_SECONDS,
                                            DriveHealth, Drives, drive_health)
from perfguard.cluster.tool_thread import ToolThread

DAY = 86400.0


def nvme(hot: int = 0, errors: int = 0, wear: int = 3, critical: int = 1) -> Dict[str, Any]:
    """As smartctl 7 prints it, without keys that are not read."""
    return {'device': {'name': '/dev/nvme0', 'type': 'nvme', 'protocol': 'NVMe'},
            'model_name': 'INTEL SSDPE2KX040T8', 'firmware_version': 'VDV10131',
            'nvme_smart_health_information_log': {
                'critical_warning': 0, 'temperature': 41, 'available_spare': 100,
                'percentage_used': wear, 'media_errors': errors, 'warning_temp_time': hot,
                'critical_comp_time': critical}}


def ata(pending: int = 0, hot: int = 7, raw: Any = 8, text: Any = None) -> Dict[str, Any]:
    return {'device': {'name': '/dev/sda', 'type': 'sat', 'protocol': 'ATA'},
            'model_name': 'SAMSUNG MZ7LH960', 'firmware_version': 'HXT7904Q',
            'write_cache': {'enabled': True},
            'ata_smart_attributes': {'table': [
                {'id': 5, 'name': 'Reallocated_Sector_Ct', 'value': 99,
                 'raw': {'value': raw, **({} if text is None else {'string': text})}},
                {'id': 9, 'name': 'Power_On_Hours', 'value': 95, 'raw': {'value': 20000}},
                {'id': 197, 'name': 'Current_Pending_Sector', 'raw': {'value': pending}}]},
            'ata_device_statistics': {'pages': [None, {'number': 5, 'table': [
                {'offset': 8, 'name': 'Current Temperature', 'value': 35},
                {'offset': 80, 'name': 'Time in Over-Temperature', 'value': hot}]},
                {'number': 7, 'table': [{'offset': 8, 'value': 91,
                                         'name': 'Percentage Used Endurance Indicator'}]}]}}


SAS = {'device': {'protocol': 'SCSI'}, 'scsi_vendor': 'SEAGATE', 'scsi_revision': 'E004',
       'scsi_grown_defect_list': 2, 'scsi_percentage_used_endurance_indicator': 11}


@pytest.mark.parametrize('samples, health', [
    ({0.0: nvme()}, DriveHealth('M_S', 'VDV10131', None, 3, 0, 0.0, 0, 0, 41)),
    ({DAY: nvme(61, 5), 0.0: nvme(20, 2)},
     DriveHealth('M_S', 'VDV10131', None, 3, 5, 24.0, 41, 3, 41)),
    ({DAY: nvme(20, critical=4), 0.0: nvme(20)},
     DriveHealth('M_S', 'VDV10131', None, 3, 0, 24.0, 3, 0, 41)),
    ({0.0: ata(), DAY: ata(3, 9)}, DriveHealth('M_S', 'HXT7904Q', True, 91, 11, 24.0, 2, 3)),
    # Two more numbers are in the upper words of the value.
    ({0.0: ata(raw=131072000, text='0 (2000 0)')},
     DriveHealth('M_S', 'HXT7904Q', True, 91, 0, 0.0, 0, 0)),
    ({0.0: ata(raw=8, text='-')}, DriveHealth('M_S', 'HXT7904Q', True, 91, 8, 0.0, 0, 0)),
    ({0.0: SAS}, DriveHealth('M_S', 'E004', None, 11, 2, 0.0, None, 0)),
    # The drive was replaced by one whose counts are smaller.
    ({0.0: nvme(61, 5), DAY: nvme()}, DriveHealth('M_S', 'VDV10131', None, 3, 0, 24.0, 0, 0, 41)),
    # smartctl has a temperature of its own for any kind of drive.
    ({0.0: {**SAS, 'temperature': {'current': 38, 'drive_trip': 60}}},
     DriveHealth('M_S', 'E004', None, 11, 2, 0.0, None, 0, 38)),
    ({0.0: {**nvme(), 'temperature': {'current': 43}}},
     DriveHealth('M_S', 'VDV10131', None, 3, 0, 0.0, 0, 0, 43)),
    # smartctl failed today.
    ({0.0: nvme(), DAY: {'error': 'smartctl failed', 'dev': '/dev/nvme0'}},
     DriveHealth('M_S', 'VDV10131', None, 3, 0, 0.0, 0, 0, 41)),
    ({0.0: {'error': 'smartctl failed'}}, None), ({}, None),
    ({0.0: {'firmware_version': 'X', 'write_cache': 'yes', 'ata_smart_attributes': [],
            'temperature': {'current': None},
            'ata_device_statistics': {'pages': {}}, 'nvme_smart_health_information_log': {
                'percentage_used': '3', 'media_errors': -1}}}, DriveHealth('M_S', 'X')),
    ({0.0: []}, None)])
def test_what_is_read_of_smartctl(samples: Mapping[float, Any],
                                  health: Optional[DriveHealth]) -> None:
    assert drive_health('M_S', samples) == health


class Source:
    """OSDs with a drive each, and a module that may fail."""

    def __init__(self, drives: int) -> None:
        self.ids = {'h%d:sda' % number: 'M_S%d' % number for number in range(drives)}
        self.asked: List[str] = []
        self.fails = False
        #: Drives whose samples are damaged.
        self.damaged: Tuple[str, ...] = ()

    def device_ids(self) -> Dict[str, str]:
        return self.ids

    def drive_samples(self, device_id: str, seconds: float) -> Dict[float, Any]:
        self.asked.append(device_id)
        if self.fails or device_id in self.damaged:
            raise RuntimeError('no such module')
        return {} if device_id == 'M_S1' else {0.0: nvme()}


class AtOnce(ToolThread):
    """Runs a job when it is submitted."""

    def submit(self, task: Any, first: bool = False) -> Any:
        job = super().submit(task, first)
        assert job is not None
        while not job.done:
            pass
        return job


@pytest.fixture
def tools() -> Any:
    tools = AtOnce(lambda: None)
    yield tools
    tools.close()


def test_drives_are_read_a_few_at_a_time_and_rarely(tools: ToolThread) -> None:
    source = Source(2 * DRIVES_PER_JOB + 1)
    drives = Drives(source, tools)
    drives.turn(0.0, True)
    assert not source.asked and drives.by_device is None
    now = FIRST_READ_SECONDS
    for most in (DRIVES_PER_JOB, 2 * DRIVES_PER_JOB, 2 * DRIVES_PER_JOB + 1):
        assert drives.by_device is None
        drives.turn(now, True)
        assert len(source.asked) == most
    for _ in range(3):
        drives.turn(now, True)
    assert drives.by_device is not None and len(source.asked) == len(set(source.asked))
    assert source.ids.keys() - drives.by_device.keys() == {'h1:sda'}
    assert drives.by_device['h0:sda'].firmware == 'VDV10131'
    source.asked.clear()
    drives.turn(now + READ_SECONDS - 1.0, True)
    assert not source.asked
    drives.turn(now + READ_SECONDS, True)
    assert source.asked


def test_the_module_is_not_asked_while_its_pool_may_not_answer(tools: ToolThread) -> None:
    source = Source(3)
    drives = Drives(source, tools)
    for now in (0.0, FIRST_READ_SECONDS, 100.0):
        drives.turn(now, False)
    assert not source.asked
    drives.turn(100.0, True)
    assert len(source.asked) == 3


def test_a_module_that_fails_leaves_what_was_known(tools: ToolThread) -> None:
    source = Source(3)
    drives = Drives(source, tools)
    source.fails = True
    for now in (0.0, FIRST_READ_SECONDS, 100.0, 105.0):
        drives.turn(now, True)
    assert drives.by_device == {}
    source.fails = False
    for _ in range(3):
        drives.turn(100.0 + READ_SECONDS, True)
    before = drives.by_device
    assert before and len(before) == 2
    source.fails = True
    for _ in range(3):
        drives.turn(200.0 + 2 * READ_SECONDS, True)
    assert drives.by_device == before


def test_damaged_samples_of_a_drive_do_not_hide_those_of_others(tools: ToolThread) -> None:
    source = Source(2 * DRIVES_PER_JOB)
    source.damaged = ('M_S0', 'M_S3')
    drives = Drives(source, tools)
    for _ in range(4):
        drives.turn(FIRST_READ_SECONDS, True)
        drives.turn(2 * FIRST_READ_SECONDS, True)
    assert drives.by_device is not None
    assert source.ids.keys() - drives.by_device.keys() == {'h0:sda', 'h1:sda', 'h3:sda'}


def test_a_module_that_is_not_ready_yet_is_asked_again_soon(tools: ToolThread) -> None:
    source = Source(3)
    drives = Drives(source, tools)
    source.fails = True
    for now in (0.0, FIRST_READ_SECONDS, 25.0):
        drives.turn(now, True)
    assert drives.by_device == {}
    source.fails = False
    asked = len(source.asked)
    drives.turn(600.0, True)
    assert len(source.asked) == asked
    for now in (3600.0, 3605.0):
        drives.turn(now, True)
    assert drives.by_device


def test_a_cluster_without_known_drives(tools: ToolThread) -> None:
    drives = Drives(Source(0), tools)
    for now in (0.0, FIRST_READ_SECONDS):
        drives.turn(now, True)
    assert drives.by_device == {}
