# SPDX-License-Identifier: LGPL-2.1-or-later
"""SMART data of drives, as Ceph's module devicehealth has stored it: once a day it has OSDs run
``smartctl -x --json``, for drives that the monitoring of devices covers.

Reading it blocks as long as the pool of that module does, so it has a thread of its own.
"""
import logging
import re
from dataclasses import dataclass
from functools import partial
from typing import Any, Dict, List, Mapping, Optional, Protocol, Sequence

from .tool_thread import ToolJob, ToolThread
from .types import Json

log = logging.getLogger(__name__)

#: Interval of readings. A sample is a day old when the next one is stored.
READ_SECONDS = 21600.0
#: The same after a failed one: that module is not ready for a while after a failover.
FAILED_READ_SECONDS = 1800.0
#: OSDs report their devices first, and the other module connects.
FIRST_READ_SECONDS = 20.0
#: Age of the samples that are read: what has grown since yesterday is a finding.
SAMPLES_SECONDS = 3 * 86400.0
#: Drives that one job reads. A sample has up to 60 KiB, and decoding it holds the GIL.
DRIVES_PER_JOB = 20
#: Share of its life from which a drive is worn.
WORN_PERCENT = 90
#: Names of ATA device statistics, and the ids of attributes that count bad sectors: reallocated and
#: pending ones.
OVER_TEMPERATURE, ENDURANCE = 'Time in Over-Temperature', 'Percentage Used Endurance Indicator'
BAD_SECTORS = (5, 197)


@dataclass(frozen=True)
class DriveHealth:
    """The newest sample of a drive. None: not reported."""
    #: VENDOR_MODEL_SERIAL.
    device_id: str
    firmware: str = ''
    #: Whether its volatile write cache is on.
    write_cache: Optional[bool] = None
    #: Share of its life that is used.
    wear_percent: Optional[int] = None
    #: Errors of the media or bad sectors, in all.
    errors: Optional[int] = None
    #: Between an earlier sample and the newest one: how many hours lie between them, and for how
    #: many minutes the drive was too hot; 0.0: there is no earlier one.
    hours: float = 0.0
    hot_minutes: Optional[int] = None
    new_errors: Optional[int] = None
    #: Its temperature when the sample was taken.
    celsius: Optional[int] = None

    @property
    def model(self) -> str:
        return self.device_id.rpartition('_')[0]


def drive_health(device_id: str, samples: Mapping[float, Json]) -> Optional[DriveHealth]:
    """The health of a drive; None: there is no sample, or smartctl failed each time. `samples`:
    seconds since the epoch -> output of smartctl."""
    # Output without a firmware version is that of a smartctl that could not read the drive.
    usable = sorted((taken, sample) for taken, sample in samples.items() if _firmware(sample))
    if not usable:
        return None
    (first_taken, first), (taken, newest) = usable[0], usable[-1]
    cache = _at(newest, 'write_cache', 'enabled')
    return DriveHealth(
        device_id, _firmware(newest), cache if isinstance(cache, bool) else None, _wear(newest),
        _errors(newest), hours=(taken - first_taken) / 3600.0,
        hot_minutes=_growth(_hot_minutes(first), _hot_minutes(newest)),
        new_errors=_growth(_errors(first), _errors(newest)),
        celsius=_first(_number(newest, 'temperature', 'current'), _number(
            newest, 'nvme_smart_health_information_log', 'temperature')))


def _growth(before: Optional[int], after: Optional[int]) -> Optional[int]:
    return None if before is None or after is None else max(0, after - before)


def _at(sample: Any, *keys: str) -> Any:
    for key in keys:
        sample = sample.get(key) if isinstance(sample, dict) else None
    return sample


def _number(sample: Any, *keys: str) -> Optional[int]:
    value = _at(sample, *keys)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _rows(sample: Any, *keys: str) -> Sequence[Any]:
    rows = _at(sample, *keys)
    return rows if isinstance(rows, list) else ()


def _firmware(sample: Json) -> str:
    names = (_at(sample, 'firmware_version'), _at(sample, 'scsi_revision'), _at(sample, 'revision'))
    return next((name for name in names if isinstance(name, str) and name), '')


def _statistic(sample: Json, name: str) -> Optional[int]:
    """One of the ATA device statistics."""
    return next((_number(row, 'value') for page in _rows(sample, 'ata_device_statistics', 'pages')
                 for row in _rows(page, 'table') if _at(row, 'name') == name), None)


def _first(*numbers: Optional[int]) -> Optional[int]:
    return next((number for number in numbers if number is not None), None)


def _wear(sample: Json) -> Optional[int]:
    return _first(_number(sample, 'nvme_smart_health_information_log', 'percentage_used'),
                  _number(sample, 'endurance_used', 'current_percent'),
                  _number(sample, 'scsi_percentage_used_endurance_indicator'),
                  _statistic(sample, ENDURANCE))


def _hot_minutes(sample: Json) -> Optional[int]:
    """Minutes in which the drive was hotter than it should be, of its whole life; None: not
    known."""
    log_page = _at(sample, 'nvme_smart_health_information_log')
    warning, critical = (_number(log_page, key) for key in (
        'warning_temp_time', 'critical_comp_time'))
    if warning is None and critical is None:
        return _statistic(sample, OVER_TEMPERATURE)
    return (warning or 0) + (critical or 0)


def _errors(sample: Json) -> Optional[int]:
    """Errors of the media or bad sectors in the whole life of the drive; None: not reported."""
    counts = [_number(sample, 'nvme_smart_health_information_log', 'media_errors'),
              _number(sample, 'scsi_grown_defect_list')]
    attributes = _rows(sample, 'ata_smart_attributes', 'table')
    counts += [_count(row) for row in attributes if _at(row, 'id') in BAD_SECTORS]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _count(attribute: Json) -> Optional[int]:
    """As smartctl prints it, for example "0 (2000 0)": some drives keep other numbers in the upper
    words of the raw value."""
    text = _at(attribute, 'raw', 'string')
    count = re.match(r'\d{1,15}', text, re.ASCII) if isinstance(text, str) else None
    return int(count[0]) if count else _number(attribute, 'raw', 'value')


# ---- Reading

class DriveSource(Protocol):
    """The part of the cluster that knows drives; see ports.Reader."""

    def device_ids(self) -> Mapping[str, str]: ...

    def drive_samples(self, device_id: str, seconds: float) -> Mapping[float, Json]: ...


def read_drives(source: DriveSource, device_ids: Sequence[str]) -> Dict[str, DriveHealth]:
    """The health of drives by their id. Blocks, so it is a job of the tool thread. Drives without
    usable samples are left out, and those whose samples cannot be read; raises the error if no
    drive's can."""
    known: Dict[str, DriveHealth] = {}
    failed = 0
    for device_id in device_ids:
        try:
            health = drive_health(device_id, source.drive_samples(device_id, SAMPLES_SECONDS))
        except Exception as error:  # of another module
            failed += 1
            if failed == len(device_ids):
                raise
            log.info('could not read SMART data of %s: %r', device_id, error)
            continue
        if health is not None:
            known[device_id] = health
    return known


class Drives:
    """The SMART data of all drives, read a few drives at a time."""

    def __init__(self, source: DriveSource, tools: ToolThread) -> None:
        self._source = source
        self._tools = tools
        self._next_reading_at: Optional[float] = None
        #: Device -> id of its drive, of this reading, and the ids that are yet to be read.
        self._device_ids: Mapping[str, str] = {}
        self._unread_ids: List[str] = []
        self._job: Optional[ToolJob[Dict[str, DriveHealth]]] = None
        #: What this reading has got so far, by the id of the drive.
        self._health_by_id: Dict[str, DriveHealth] = {}
        #: Device, as in "h1:nvme0n1" -> its data, if there is any; a new mapping for each reading.
        #: None: not tried yet; after a failed first reading {}, so that the advice reports OSDs
        #: without data.
        self.by_device: Optional[Mapping[str, DriveHealth]] = None

    def turn(self, now: float, available: bool) -> None:
        """Begin or continue a reading if one is due, without waiting. Never raises. `available`:
        the pool with the data is likely to answer."""
        try:
            self._turn(now, available)
        except Exception as error:  # of another module
            log.info('could not read SMART data: %r', error)
            self._unread_ids = []
            self._next_reading_at = now + FAILED_READ_SECONDS
            self.by_device = self.by_device or {}

    def _turn(self, now: float, available: bool) -> None:
        """Read the drives, a few in each job of the tool thread, and publish when all are read."""
        if self._next_reading_at is None:
            self._next_reading_at = now + FIRST_READ_SECONDS
        if self._job is not None and self._job.done:
            job, self._job = self._job, None
            self._health_by_id.update(job.result())
            if not self._unread_ids:
                self._publish()
        if self._job is None and not self._unread_ids and now >= self._next_reading_at:
            self._next_reading_at = now + READ_SECONDS
            # Once per reading: costly on large clusters, and drives are rarely exchanged meanwhile.
            self._device_ids, self._health_by_id = self._source.device_ids(), {}
            self._unread_ids = sorted(set(self._device_ids.values()))
            if not self._unread_ids:
                self._publish()
        if self._job is None and self._unread_ids and available:
            self._job = self._tools.submit(
                partial(read_drives, self._source, self._unread_ids[:DRIVES_PER_JOB]))
            if self._job is not None:
                del self._unread_ids[:DRIVES_PER_JOB]

    def _publish(self) -> None:
        self.by_device = {device: self._health_by_id[device_id]
                          for device, device_id in self._device_ids.items()
                          if device_id in self._health_by_id}

    def close(self) -> None:
        self._tools.close()
