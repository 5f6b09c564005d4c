# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which options slow recovery, and the values for it.

With the scheduler wpq, limits and sleeps take effect. With mclock, only its profile does: OSDs set
sleeps to 0 and reset the limits, unless osd_mclock_override_recovery_settings is true.

Sleeps depend on the drive: after each recovery operation, an OSD sleeps for osd_recovery_sleep_hdd,
_hybrid (data on a rotating drive, metadata on flash) or _ssd, unless osd_recovery_sleep is not 0,
which overrides all three (OSDService::get_osd_recovery_sleep). 0.1 s limit a rotating drive to ten
operations per second, a fraction of its capacity; on flash they would extend recovery from minutes
to hours. So no OSD sleeps longer than the default for its type of drive: 0.1, 0.025 and 0 s
(src/common/options/osd.yaml.in, Pacific to Tentacle).
"""
from dataclasses import dataclass
from typing import AbstractSet, Dict, List, Optional, Sequence, Tuple

from ..cluster.types import ConfigEntry
from ..holds import Held
from ..rebalance.copying import (CUSTOM_PROFILE, MCLOCK, PATIENT_PROFILE, PROFILE, SLEEP,
                                 SLEEP_SECONDS, WPQ)
from ..upmap.semantics import Command
from .types import SettingKind, Put, Setting

OVERRIDE = 'osd_mclock_override_recovery_settings'
BACKFILLS = 'osd_max_backfills'
#: If not 0, it overrides the options for types of drives (..._hdd, ..._ssd).
MAX_ACTIVE = 'osd_recovery_max_active'
#: One backfill, or one recovery operation, at a time per OSD.
SLOWEST_LIMIT = '1'


@dataclass(frozen=True)
class RecoveryOptions:
    settings: Tuple[Setting, ...]
    #: Options that remain unchanged, with the reason.
    remarks: Tuple[str, ...] = ()


def slow_recovery(entries: Sequence[ConfigEntry], schedulers: AbstractSet[str],
                  taken: AbstractSet[str] = frozenset()) -> RecoveryOptions:
    """The options to set, given the configuration database and the schedulers that OSDs use.

    `taken`: options that the campaign has borrowed to slow the copying; they are left to it.
    """
    settings: List[Setting] = []
    remarks: List[str] = []
    limits = WPQ in schedulers
    if MCLOCK in schedulers:
        for where, value in _places(entries, PROFILE).items():
            in_force = _in_force(entries, PROFILE, value)
            if in_force == CUSTOM_PROFILE:
                remarks.append('%s of %s is %s and remains unchanged' % (PROFILE, where, in_force))
            elif value != PATIENT_PROFILE:
                settings.append(_option(PROFILE, where, value, PATIENT_PROFILE))
        limits = limits or any(entry.name == OVERRIDE and entry.value == 'true'
                               for entry in entries)
    if limits:
        for name in (BACKFILLS, MAX_ACTIVE):
            settings += [_option(name, where, value, SLOWEST_LIMIT)
                         for where, value in _places(entries, name).items()
                         if not _is_slow_limit(name, _in_force(entries, name, value))]
    if WPQ in schedulers:
        settings += _sleeps(entries)
        remarks += ['%s of %s is %s for every drive '
                    'type and remains unchanged' % (SLEEP, where, value)
                    for where, value in _places(entries, SLEEP).items()
                    if value is not None and number(value) > 0.0]
    unknown = sorted(schedulers - {WPQ, MCLOCK})
    if unknown:
        remarks.append('unknown scheduler %s' % ', '.join(unknown))
    return without_taken(settings, remarks, taken)


def without_taken(settings: Sequence[Setting], remarks: Sequence[str],
                  taken: AbstractSet[str]) -> RecoveryOptions:
    """Without the options that the campaign has borrowed."""
    left = sorted({setting.name for setting in settings} & taken)
    return RecoveryOptions(
        tuple(setting for setting in settings if setting.name not in taken),
        (*remarks, *('%s is set by the campaign and remains unchanged' % name for name in left)))


def _sleeps(entries: Sequence[ConfigEntry]) -> List[Setting]:
    """Sleeps below the default for the type of drive; none becomes shorter."""
    settings: List[Setting] = []
    for name, seconds in SLEEP_SECONDS.items():
        for where, value in _places(entries, name).items():
            in_force = _in_force(entries, name, value)
            if in_force is not None and number(in_force) < seconds:
                settings.append(_option(name, where, value, '%g' % seconds))
    return settings


def _places(entries: Sequence[ConfigEntry], name: str) -> Dict[str, Optional[str]]:
    """The sections where an option must be set to reach all OSDs, with the current values.

    These are the section osd and all that override it: osd with a mask, and single OSDs.
    """
    places: Dict[str, Optional[str]] = {'osd': None}
    for entry in entries:
        if entry.name == name and (entry.section == 'osd' or entry.section.startswith('osd.')):
            places[entry.who] = entry.value
    return places


def _in_force(entries: Sequence[ConfigEntry], name: str, value: Optional[str]) -> Optional[str]:
    """The value of a section of `_places`, or the one that it inherits."""
    if value is not None:
        return value
    return next((entry.value for entry in entries
                 if entry.name == name and entry.who == 'global'), None)


def _is_slow_limit(name: str, value: Optional[str]) -> bool:
    """0 means the default for the type of drive, or no backfill at all."""
    if value is None or value.strip() not in ('0', SLOWEST_LIMIT):
        return False
    return name == BACKFILLS or value.strip() == SLOWEST_LIMIT


def number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return 0.0


def _option(name: str, who: str, value_before: Optional[str], put: str) -> Setting:
    return Setting(SettingKind.CONFIG, name, who, Held(value_before, put))


# ---- Mon commands

def command_of(put: Put) -> Command:
    """The mon command that puts or removes a setting."""
    setting, value = put.setting, put.value
    if setting.kind is SettingKind.FLAG:
        return {'prefix': 'osd unset' if value is None else 'osd set', 'key': setting.name}
    if setting.kind is SettingKind.AFFINITY:
        return {'prefix': 'osd primary-affinity', 'id': int(setting.name),
                'weight': 1.0 if value is None else float(value)}
    if value is None:
        return {'prefix': 'config rm', 'who': setting.who, 'name': setting.name}
    return {'prefix': 'config set', 'who': setting.who, 'name': setting.name, 'value': value}
