# SPDX-License-Identifier: LGPL-2.1-or-later
"""Slower recovery, and faster recovery of degraded PGs while client latency leaves room. Pure.

Slower recovery: with the scheduler wpq, limits and sleeps (rebalance/copying.py) take effect. With
mclock, only its profile does: OSDs set sleeps to 0 and reset the limits, unless
osd_mclock_override_recovery_settings is true. 0.1 s of sleep limit a rotating drive to ten
operations per second, a fraction of its capacity; on flash they would extend recovery from minutes
to hours. So no OSD sleeps longer than the default for its type of drive: 0.1, 0.025 and 0 s
(src/common/options/osd.yaml.in, Pacific to Tentacle).

Faster recovery is the guard in the other direction: while degraded PGs wait for their turn and
clients do not need the OSDs, each level doubles osd_max_backfills and halves the recovery sleeps,
with the scheduler wpq. With mclock, recovery may use the OSDs as fully as clients, and nothing is
changed. A level that clients feel is left at once, and not tried again for a while.

The options are borrowed in the configuration database. Faster recovery sets them in the section
`osd` only: what others have set for single OSDs (osd.3) or with a mask (osd/class:ssd) stays in
force. Slower recovery changes that as well. A ceph.conf stays in force in both cases.
"""
from dataclasses import dataclass, replace
from typing import AbstractSet, Dict, List, Optional, Sequence, Tuple

from ..cluster.types import MCLOCK, MCLOCK_OVERRIDE, WPQ, ConfigEntry
from ..errors import Code, texts
from ..ledger import Held
from ..observation import Clients
from ..rebalance import copying
from ..rebalance.copying import (CUSTOM_PROFILE, PATIENT_PROFILE, PROFILE, SLEEP, SLEEP_SECONDS,
                                 number_or_zero)
from ..rebalance.types import Pace
from ..text import pgs_are
from .types import ClientRoom, Evidence, RecoveryPace, Setting, SettingKind

BACKFILLS = 'osd_max_backfills'
#: If not 0, it overrides the options for types of drives (..._hdd, ..._ssd).
MAX_ACTIVE = 'osd_recovery_max_active'
#: One backfill, or one recovery operation, at a time per OSD.
SLOWEST_LIMIT = '1'
#: osd_max_backfills if it is not set.
DEFAULT_BACKFILLS = '1'
#: Level n multiplies by 2 ** n.
MOST_LEVELS = 3
#: Time for which latency must be well within its limit before a level is raised, and least time
#: between two raises: OSDs need some to feel the first one.
ROOM_SECONDS = 30.0
RAISE_SECONDS = 60.0
#: Time in which OSDs and clients show the effect of a lower level.
LOWER_SECONDS = 10.0
#: Time for which a level that clients have felt is not tried again.
FELT_SECONDS = 1800.0
#: Time after the last judgement of latency from which it counts as unknown.
KNOWN_SECONDS = 60.0
#: Number of raises within a day: each changes about three options, and so does the way back.
MOST_RAISED = 8
RAISED_SECONDS = 86400.0
#: Flags with which degraded PGs wait whatever the options are.
NO_RECOVERY = frozenset({'nobackfill', 'norecover', 'pause'})
#: Why nothing is changed.
NO_BOUND = 'mitigation_backfills is 0'


# ---- When recovery may be faster

def room(before: ClientRoom, pace: Pace, clients: Clients, now: float) -> ClientRoom:
    """Since when client latency leaves room for faster recovery, whether it exceeds its limit, and
    when it was last known. `before`: the result of the last turn; `pace`: the judgement of the
    throttle on the last reading, `clients`."""
    idle = pace.code == Code.NO_CLIENTS
    if not before.known_at:
        # A mgr that has just become active gets some time to judge latency.
        before = before._replace(known_at=now)
    if not idle and pace.code not in (Code.LATENCY, Code.LATENCY_OK):
        # Latency could not be judged.
        return before._replace(room_since=0.0, over_limit=False, why=pace.why)
    # `under` counts readings well within the limit.
    has_room = idle or pace.code == Code.LATENCY_OK and pace.under > 0
    return ClientRoom(room_since=(before.room_since or now) if has_room else 0.0,
                      over_limit=pace.code == Code.LATENCY,
                      known_at=max(before.known_at, clients.time), why=pace.why)


def next_pace(pace: RecoveryPace, signs: Evidence, clients: ClientRoom, flags: AbstractSet[str],
              level_limit: int, wait_seconds: float, now: float) -> Tuple[RecoveryPace, str]:
    """The pace of recovery from now on, and why its level has changed ('': it has not, or only to
    respect `level_limit`, its maximum). At level 0, recovery is not accelerated.

    The level rises by one at a time while PGs wait for recovery and client latency leaves room. It
    falls by one when latency is above its limit, and to 0 where recovery must not be accelerated,
    such as in trouble. A level that clients have felt is not tried again for FELT_SECONDS.
    `wait_seconds`: for which PGs must have waited.
    """
    # In mode off, the level is 0 even while the evidence is unknown.
    pace = _at(pace, min(pace.level, level_limit), now)
    if signs.is_incomplete:
        return pace, ''
    pace = replace(pace, waiting=(pace.waiting or now) if signs.waiting else 0.0, raised=tuple(
        time for time in pace.raised if now - time < RAISED_SECONDS))
    why_not = _why_not(signs, clients, flags, now)
    if why_not:
        # In trouble, whatever the level was, no level from 1 on is tried again for a while.
        is_felt = pace.level and signs.trouble
        return _at(replace(pace, felt_level=1, felt=now) if is_felt else pace, 0, now), why_not
    level_seconds = now - pace.changed
    if clients.over_limit:
        if not pace.level or level_seconds < LOWER_SECONDS:
            return pace, ''
        return _at(replace(pace, felt_level=pace.level, felt=now), pace.level - 1, now), clients.why
    was_felt_lately = bool(pace.felt_level) and now - pace.felt < FELT_SECONDS
    may_rise = (
        pace.level < level_limit and level_seconds >= RAISE_SECONDS
        and len(pace.raised) < MOST_RAISED
        and pace.waiting and now - pace.waiting >= wait_seconds
        and clients.room_since and now - clients.room_since >= ROOM_SECONDS
        and not (was_felt_lately and pace.level + 1 >= pace.felt_level))
    if not may_rise:
        return pace, ''
    raised = _at(replace(pace, raised=(*pace.raised, now)), pace.level + 1, now)
    return raised, why_faster(signs, clients)


def why_faster(signs: Evidence, clients: ClientRoom) -> str:
    """Why recovery should be faster."""
    return '%s degraded and waiting; %s' % (pgs_are(signs.waiting), clients.why)


def _at(pace: RecoveryPace, level: int, now: float) -> RecoveryPace:
    """The pace with this level, and when it has changed."""
    return pace if level == pace.level else replace(pace, level=level, changed=now)


def _why_not(signs: Evidence, clients: ClientRoom, flags: AbstractSet[str], now: float) -> str:
    """Why recovery must not be accelerated at all; '': it may be."""
    if not signs.recovering:
        return 'no degraded PG is recovering'
    if signs.trouble:
        return '; '.join(texts(signs.trouble))
    if flags & NO_RECOVERY:
        return '%s is set' % ', '.join(sorted(flags & NO_RECOVERY))
    if now - clients.known_at >= KNOWN_SECONDS:
        return 'client latency is not known'
    return ''


# ---- Options

@dataclass(frozen=True)
class RecoveryOptions:
    settings: Tuple[Setting, ...]
    #: Options that remain unchanged, with the reason.
    remarks: Tuple[str, ...] = ()


def fast_recovery(entries: Sequence[ConfigEntry], schedulers: AbstractSet[str], level: int,
                  bound: int, borrowed_elsewhere: AbstractSet[str] = frozenset(),
                  held: Sequence[Setting] = (), degraded_sleep: str = SLEEP) -> RecoveryOptions:
    """The options to set so that recovery is accelerated: each `level` doubles the backfills per
    OSD, and halves the sleeps.

    `bound`: highest osd_max_backfills. `borrowed_elsewhere`: options that the campaign has
    borrowed; they are left to it. `held`: what is borrowed now, with the values from before.
    `degraded_sleep`: as Reader.degraded_sleep, with the same defaults.
    """
    values_before = {setting.name: setting.held.found for setting in held}
    stored: Dict[str, Dict[str, str]] = {'osd': {}, 'global': {}}
    for entry in entries:
        stored.setdefault(entry.who, {})[entry.name] = entry.value
    values_of_others = copying.values_of_others(stored, values_before)
    settings: List[Setting] = []

    def put(name: str, value: str) -> None:
        settings.append(Setting(SettingKind.CONFIG, name, 'osd', Held(
            values_before[name] if name in values_before else stored['osd'].get(name), value)))

    if schedulers != {WPQ}:
        return RecoveryOptions((), ('recovery is accelerated with the scheduler %s only' % WPQ,))
    backfills = values_of_others.get(BACKFILLS, DEFAULT_BACKFILLS).strip()
    if backfills.isdigit() and 0 < int(backfills) < bound:
        put(BACKFILLS, str(min(bound, int(backfills) << level)))
    # If not 0, it overrides the sleeps for types of drives, and remains unchanged.
    if number_or_zero(values_of_others.get(degraded_sleep, '0')) == 0.0:
        for option, default in SLEEP_SECONDS.items():
            name = option.replace(SLEEP, degraded_sleep)
            sleep = number_or_zero(values_of_others[name]) if name in values_of_others else default
            if sleep > 0.0:
                put(name, '%.4g' % (sleep / (1 << level)))
    names = {setting.name for setting in settings}
    remarks = ['%s of %s remains unchanged' % (entry.name, entry.who) for entry in entries
               if entry.name in names and entry.section.startswith('osd') and entry.who != 'osd']
    return _without_borrowed(settings, remarks, borrowed_elsewhere)


def slow_recovery(entries: Sequence[ConfigEntry], schedulers: AbstractSet[str],
                  borrowed_elsewhere: AbstractSet[str] = frozenset()) -> RecoveryOptions:
    """The options to set so that recovery is slowed down, given the configuration database and the
    schedulers that OSDs use.

    `borrowed_elsewhere`: options that the campaign has borrowed to slow the copying; they are left
    to it.
    """
    settings: List[Setting] = []
    remarks: List[str] = []
    # With mclock, the profile counts and, unless MCLOCK_OVERRIDE is true, no limit.
    limits_apply = WPQ in schedulers
    if MCLOCK in schedulers:
        for where, value in _places(entries, PROFILE).items():
            in_force = _in_force(entries, PROFILE, value)
            if in_force == CUSTOM_PROFILE:
                remarks.append('%s of %s is %s and remains unchanged' % (PROFILE, where, in_force))
            elif value != PATIENT_PROFILE:
                settings.append(_option(PROFILE, where, value, PATIENT_PROFILE))
        limits_apply = limits_apply or any(entry.name == MCLOCK_OVERRIDE and entry.value == 'true'
                                           for entry in entries)
    if limits_apply:
        for name in (BACKFILLS, MAX_ACTIVE):
            settings += [_option(name, where, value, SLOWEST_LIMIT)
                         for where, value in _places(entries, name).items()
                         if not _is_slow_limit(name, _in_force(entries, name, value))]
    if WPQ in schedulers:
        settings += _sleeps(entries)
        remarks += ['%s of %s is %s for every drive '
                    'type and remains unchanged' % (SLEEP, where, value)
                    for where, value in _places(entries, SLEEP).items()
                    if value is not None and number_or_zero(value) > 0.0]
    unknown = sorted(schedulers - {WPQ, MCLOCK})
    if unknown:
        remarks.append('unknown scheduler %s' % ', '.join(unknown))
    return _without_borrowed(settings, remarks, borrowed_elsewhere)


def _without_borrowed(settings: Sequence[Setting], remarks: Sequence[str],
                      borrowed_elsewhere: AbstractSet[str]) -> RecoveryOptions:
    """These settings and remarks, without options that the campaign has borrowed; further remarks
    name these."""
    names_elsewhere = sorted({setting.name for setting in settings} & borrowed_elsewhere)
    return RecoveryOptions(
        tuple(setting for setting in settings if setting.name not in borrowed_elsewhere),
        (*remarks, *('%s is set by the campaign and remains unchanged' % name
                     for name in names_elsewhere)))


def _sleeps(entries: Sequence[ConfigEntry]) -> List[Setting]:
    """The settings that raise sleeps to the default for the type of drive; none becomes shorter."""
    settings: List[Setting] = []
    for name, seconds in SLEEP_SECONDS.items():
        for where, value in _places(entries, name).items():
            in_force = _in_force(entries, name, value)
            if in_force is not None and number_or_zero(in_force) < seconds:
                settings.append(_option(name, where, value, '%g' % seconds))
    return settings


def _places(entries: Sequence[ConfigEntry], name: str) -> Dict[str, Optional[str]]:
    """The sections where an option must be set to reach all OSDs, with the current values; None: it
    is not set there.

    These are the section osd and all that override it: osd with a mask, and single OSDs.
    """
    places: Dict[str, Optional[str]] = {'osd': None}
    for entry in entries:
        if entry.name == name and (entry.section == 'osd' or entry.section.startswith('osd.')):
            places[entry.who] = entry.value
    return places


def _in_force(entries: Sequence[ConfigEntry], name: str, value: Optional[str]) -> Optional[str]:
    """`value`, that of an option in a section of `_places`, or if that is None the one of the
    section global, which it inherits; None: neither is set."""
    if value is not None:
        return value
    return next((entry.value for entry in entries
                 if entry.name == name and entry.who == 'global'), None)


def _is_slow_limit(name: str, value: Optional[str]) -> bool:
    """Whether the limit `name` is at most SLOWEST_LIMIT. None: it is not set. 0 is no backfill at
    all for BACKFILLS, but the default for the type of drive for MAX_ACTIVE."""
    slow_limits = ('0', SLOWEST_LIMIT) if name == BACKFILLS else (SLOWEST_LIMIT,)
    return value is not None and value.strip() in slow_limits


def _option(name: str, who: str, value_before: Optional[str], put: str) -> Setting:
    return Setting(SettingKind.CONFIG, name, who, Held(value_before, put))
