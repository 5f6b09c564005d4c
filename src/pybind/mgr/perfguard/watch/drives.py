# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the SMART data of a drive says of a slow OSD: facts, of which none is called the cause."""
import math
from collections import Counter
from typing import Collection, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ..cluster.drive_health import WORN_PERCENT, DriveHealth
from ..cluster.types import OsdPlace
from ..text import plural
from .slow_parts import DEVICE
from .types import SlowShared

#: Probability that the slow OSDs of a drive model have the same firmware by chance, up to which
#: that is reported.
FIRMWARE_CHANCE = 0.05


class Firmwares(NamedTuple):
    """Number of OSDs by the firmware of their main drive, of one model."""
    slow: Mapping[str, int]
    others: Mapping[str, int]


class DriveEvidence(NamedTuple):
    #: None: nothing is stored.
    health: Optional[DriveHealth]
    #: Of the same model; None: not known, or a device that several OSDs share.
    firmwares: Optional[Firmwares] = None


def firmwares(places: Mapping[int, OsdPlace], slow: Collection[int],
              drives: Mapping[str, DriveHealth]) -> Dict[str, Firmwares]:
    """Drive model -> number of its OSDs by the firmware of their drive, slow ones and others. Only
    the main drive of an OSD counts, its first device. `drives`: device -> its SMART data."""
    counts: Dict[str, Tuple[Counter[str], Counter[str]]] = {}
    for osd, place in places.items() if drives else ():
        health = drives.get(place.devices[0]) if place.devices else None
        if health is not None and health.model:
            of_slow, of_others = counts.setdefault(health.model, (Counter(), Counter()))
            (of_slow if osd in slow else of_others)[health.firmware] += 1
    return {model: Firmwares(*both) for model, both in counts.items()}


def drive_evidence(place: Optional[OsdPlace], shared: Optional[SlowShared],
                   drives: Optional[Mapping[str, DriveHealth]],
                   by_model: Mapping[str, Firmwares]) -> Optional[DriveEvidence]:
    """The health of the drive of a slow OSD: of the device that it shares with others if that is
    slow as a whole (`shared`), otherwise of its main drive. `drives`: device -> its SMART data,
    `by_model`: drive model -> firmwares(). None: SMART data is not read yet (`drives` is None), or
    the devices of the OSD are not known."""
    if drives is None or place is None or not place.devices:
        return None
    if shared is not None and shared.part[0] == DEVICE:
        return DriveEvidence(drives.get(shared.part[1]))
    health = drives.get(place.devices[0])
    return DriveEvidence(health, None if health is None else by_model.get(health.model))


def with_drive(text: str, evidence: Dict[str, object],
               drive: Optional[DriveEvidence]) -> Tuple[str, Dict[str, object]]:
    """The text and the evidence of a cause, with what the SMART data of the drive says. `drive`:
    None: that is not known, so both remain as they are."""
    if drive is None:
        return text, evidence
    if drive.health is None:
        return text + '; no SMART data of it is stored', evidence
    health = drive.health
    firmware = () if drive.firmwares is None else _firmware(health.firmware, drive.firmwares)
    facts = [*firmware, *_conspicuous(health)]
    numbers = {'device_id': health.device_id, 'firmware': health.firmware,
               'write_cache': health.write_cache, 'wear_percent': health.wear_percent,
               'media_errors': health.errors, 'hot_minutes': health.hot_minutes,
               'celsius': health.celsius}
    return '%s; %s' % (text, '; '.join(facts or ['its SMART data shows no reason'])), {
        **evidence, 'drive': {key: value for key, value in numbers.items() if value is not None}}


def _firmware(firmware: str, of_model: Firmwares) -> List[str]:
    """A text, alone in a list, that all slow OSDs of the drive model have this firmware, if that is
    unlikely by chance; [] otherwise."""
    if of_model.slow.keys() != {firmware}:
        return []
    slow, others_with_it = of_model.slow[firmware], of_model.others.get(firmware, 0)
    others = sum(of_model.others.values())
    # The chance that as many random OSDs of the model all have this firmware; 1 without others.
    if math.comb(slow + others_with_it, slow) > FIRMWARE_CHANCE * math.comb(slow + others, slow):
        return []
    common = max(of_model.others, key=lambda name: (of_model.others[name], name))
    return ['%s of this drive model %s firmware %s; %d of %s have %s' % (
        plural(slow, 'slow OSD'), 'has' if slow == 1 else 'have', firmware,
        of_model.others[common], plural(others, 'other'), common)]


def _conspicuous(health: DriveHealth) -> List[str]:
    """What is wrong with a drive, as texts."""
    facts = []
    if health.hot_minutes:
        facts.append('it was too hot for %s of the last %.0f hours%s' % (
            plural(health.hot_minutes, 'minute'), health.hours, '' if health.celsius is None
            else ' (%d degrees Celsius when last read)' % health.celsius))
    if health.errors:
        facts.append('it has %s%s' % (
            plural(health.errors, 'media error'), ', %d of them in the last %.0f hours' % (
                health.new_errors, health.hours) if health.new_errors else ''))
    if health.wear_percent is not None and health.wear_percent >= WORN_PERCENT:
        facts.append('%d %% of its life is used' % health.wear_percent)
    if health.write_cache:
        facts.append('its volatile write cache is on')
    return facts
