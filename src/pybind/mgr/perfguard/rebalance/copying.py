# SPDX-License-Identifier: LGPL-2.1-or-later
"""The pace of copying: options of the OSDs that slow backfill while PGs are released.

With the scheduler wpq an OSD sleeps after each object that it recovers or backfills, for
osd_recovery_sleep_hdd, _hybrid (data on a rotating drive, metadata on flash) or _ssd, unless
osd_recovery_sleep is not 0, which replaces all three (OSDService::get_osd_recovery_sleep). The
sleep spaces the copies of all PGs of which the OSD is the primary; from Tentacle on, degraded PGs
have sleeps of their own. With mclock, OSDs set the sleeps to 0, and only their profile has an
effect.

The options are borrowed in the section `osd` of the configuration database. What others have set
for single OSDs (osd.3) or with a mask (osd/class:ssd) stays in force, as does the ceph.conf of an
OSD. Only `pace_copying on` replaces a value in the section `osd` or `global`.
"""
from dataclasses import dataclass, field, replace
from typing import AbstractSet, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence

from ..cluster.crush import CrushRules
from ..cluster.inventory import ConfigTarget, in_force as in_force_on
from ..cluster.types import MCLOCK, QUEUE, WPQ, ConfigEntry, OsdMap
from ..codec import Time

PROFILE = 'osd_mclock_profile'
#: The profile that favours clients most, and the one with custom values.
PATIENT_PROFILE = 'high_client_ops'
CUSTOM_PROFILE = 'custom'
#: If not 0, it overrides the options for types of drives.
SLEEP = 'osd_recovery_sleep'
#: Option for a kind of drive -> seconds between two objects: Ceph's defaults
#: (src/common/options/osd.yaml.in, Pacific to Tentacle).
SLEEP_SECONDS = {'osd_recovery_sleep_hdd': 0.1, 'osd_recovery_sleep_hybrid': 0.025,
                 'osd_recovery_sleep_ssd': 0.0}
#: Options that may be borrowed.
NAMES = (*SLEEP_SECONDS, PROFILE)
#: Number of OSDs that are asked for their scheduler.
ASKED_OSDS = 4

#: Seconds of sleep by step. At the last step an OSD copies ten objects per second, as with Ceph's
#: default for a rotating drive.
STEPS = (0.0, 0.01, 0.025, 0.05, 0.1)
#: The step that a campaign begins with.
FIRST_STEP = 2
#: Minimum duration of a step: each one changes the configuration of all OSDs.
SLOWER_SECONDS = 10.0
FASTER_SECONDS = 60.0
#: Changes to a faster pace that may follow each other, and the seconds until another one may: where
#: latency swings about its limit, a day has few changes. To a slower pace there are no more.
FASTER_AT_ONCE = len(STEPS) - 1
FASTER_EVERY_SECONDS = 3600.0
#: Time after the last degraded PG in which recovery keeps its full speed.
RECOVERED_SECONDS = 30.0

OFF, AUTO, ON = 'off', 'auto', 'on'


@dataclass(frozen=True)
class Copying:
    """The pace of copying; part of the campaign."""
    step: int = FIRST_STEP
    #: When the step was changed last, and when PGs were degraded last that the campaign has not
    #: released; 0: never.
    changed: Time = 0.0
    degraded: Time = 0.0
    #: Option -> value for the section `osd`, and the basis of this choice; the basis is '' if
    #: nothing is borrowed.
    wanted: Mapping[str, str] = field(default_factory=dict)
    basis: str = ''
    #: `basis` has changed, and the configuration database has to be read for `wanted`.
    due: bool = False
    #: Nothing is borrowed, as a reading had no client operations; the step is kept.
    idle: bool = False
    #: When changes to a faster pace are unlimited again, as far as this mgr has made them.
    faster_used: float = field(default=0.0, compare=False)

    @property
    def sleep_seconds(self) -> float:
        return STEPS[self.step]

    def lasting(self) -> 'Copying':
        """What must be stored at once."""
        return replace(self, degraded=0.0)

    @property
    def schedulers(self) -> FrozenSet[str]:
        """The schedulers of the OSDs, or those before a failover."""
        return frozenset(self.basis.split()[1:-1])


@dataclass(frozen=True)
class Reading:
    """The last reading of client latency, as the throttle judges it."""
    #: No client operations at all.
    idle: bool
    #: The limit of PGs in flight was lowered, or all movement was halted.
    lowered: bool
    #: Latency is well below its limit, or not known; never if `idle`.
    comfortable: bool


def after_reading(copying: Copying, reading: Optional[Reading], now: float) -> Copying:
    """The pace after a new reading of latency (None: there is none). Copying is slowed soon, and
    accelerated after a while. Without client operations nothing is borrowed (`idle`), so copying
    has its full speed until the next reading with some."""
    if reading is None:
        return copying
    if not copying.changed:
        # The first step also lasts for the minimum duration.
        copying = replace(copying, changed=now, idle=reading.idle)
    if not reading.idle:
        copying = replace(copying, idle=False)
    step_seconds = now - copying.changed
    if reading.lowered and step_seconds >= SLOWER_SECONDS and copying.step < len(STEPS) - 1:
        return replace(copying, step=copying.step + 1, changed=now)
    # Each change to a faster pace adds an interval to `faster_used`, of FASTER_AT_ONCE at most.
    too_often = now < copying.faster_used - (FASTER_AT_ONCE - 1) * FASTER_EVERY_SECONDS
    # Step 0 is full speed.
    if not copying.step or too_often:
        return copying
    faster = replace(
        copying, faster_used=max(copying.faster_used, now) + FASTER_EVERY_SECONDS)
    if reading.idle and not copying.idle:
        return replace(faster, idle=True)
    if reading.comfortable and step_seconds >= FASTER_SECONDS:
        return replace(faster, step=copying.step - 1, changed=now)
    return copying


def basis_for(copying: Copying, mode: str, schedulers: AbstractSet[str], now: float) -> str:
    """What the options to borrow depend on, as text; '' if nothing is to be borrowed. `mode`: the
    option pace_copying; `schedulers`: of the OSDs, empty: not known."""
    recovering = copying.degraded and now - copying.degraded < RECOVERED_SECONDS
    # Step 0: full speed.
    if mode == OFF or recovering or copying.idle or not copying.step:
        return ''
    if not schedulers:
        return copying.basis  # not known yet, as after a failover
    return ' '.join([mode, *sorted(schedulers), '%g' % copying.sleep_seconds])


def with_basis(copying: Copying, now_basis: str) -> Copying:
    """The state with this basis (basis_for). If it has changed, the options to borrow are due to be
    computed from the configuration database; with '' none are borrowed, which needs no database."""
    if now_basis == copying.basis:
        return copying
    return replace(copying, basis=now_basis, due=bool(now_basis),
                   wanted=copying.wanted if now_basis else {})


def options_to_borrow(copying: Copying, mode: str, schedulers: AbstractSet[str],
                      set_by_others: Mapping[str, str]) -> Dict[str, str]:
    """Option -> value that the section `osd` must have; {}: none is to be borrowed.

    `mode`: the option pace_copying, AUTO or ON. `set_by_others`: option -> value that others have
    set for all OSDs; only the mode ON replaces some of them. No drive copies faster than without
    perfguard.
    """
    values: Dict[str, str] = {}
    if WPQ in schedulers and number_or_zero(set_by_others.get(SLEEP, '0')) == 0.0:
        for name, default in SLEEP_SECONDS.items():
            seconds = number_or_zero(set_by_others[name]) if name in set_by_others else default
            if (mode == ON or name not in set_by_others) and seconds < copying.sleep_seconds:
                values[name] = '%g' % copying.sleep_seconds
    profile = set_by_others.get(PROFILE)
    if MCLOCK in schedulers and (profile is None or (
            mode == ON and profile not in (PATIENT_PROFILE, CUSTOM_PROFILE))):
        values[PROFILE] = PATIENT_PROFILE
    return values


def number_or_zero(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return 0.0


def values_of_others(stored: Mapping[str, Mapping[str, str]], held: Mapping[str, Optional[str]]
                     ) -> Dict[str, str]:
    """Option -> value that others have set for all OSDs. `stored`: the configuration database by
    section and option. `held`: the borrowed options, which `stored` shows with perfguard's value,
    with the value that was found in the section `osd` (None: not set)."""
    others_values = {name: value for name, value in stored.get('osd', {}).items()
                     if name not in held}
    return {**stored.get('global', {}), **others_values,
            **{name: value for name, value in held.items() if value is not None}}


def slowed_text(copying: Copying) -> str:
    """Text on the borrowed options."""
    return 'copying is slowed: %s, unless a ceph.conf or an entry for one OSD differs' % ', '.join(
        '%s of the OSDs is %s' % option for option in sorted(copying.wanted.items()))


def preview_text(mode: str) -> str:
    """Text for previews on what `pace_copying` does to the OSDs."""
    if mode == OFF:
        return 'the pace of recovery remains unchanged (pace_copying is off)'
    return 'while PGs are released, OSDs with wpq sleep %g to %g s after each object unless ' \
        'osd_recovery_sleep* is set%s, and OSDs with mclock use the profile %s' % (
            STEPS[1], STEPS[-1], '' if mode == AUTO else ' to a higher value', PATIENT_PROFILE)


class QueueKind(NamedTuple):
    """What the scheduler of an OSD depends on, as far as that is known without its ceph.conf."""
    #: Releases differ in their default.
    version: str
    #: osd_op_queue of the configuration database; '' if it is not set for the OSD.
    configured: str = ''


def queue_kinds(versions: Mapping[int, str], entries: Sequence[ConfigEntry],
                crush: CrushRules) -> Dict[int, QueueKind]:
    """The kind of each OSD of `versions`. `entries`: the configuration database."""
    by_section: Dict[str, List[ConfigEntry]] = {}
    for entry in entries:
        if entry.name == QUEUE:
            by_section.setdefault(entry.section, []).append(entry)
    if not by_section:
        return {osd: QueueKind(version) for osd, version in versions.items()}
    kinds: Dict[int, QueueKind] = {}
    for osd, version in versions.items():
        target = ConfigTarget(osd, crush.class_of(osd), crush.location_of(osd))
        in_force = in_force_on((entry for section in target.sections
                                for entry in by_section.get(section, ())), target)
        kinds[osd] = QueueKind(version, '' if in_force is None else in_force.value)
    return kinds


def some_osds(osdmap: OsdMap, kinds: Mapping[int, QueueKind] = {}) -> List[int]:
    """A few OSDs that are up, spread over all ids, with at least one of each kind. `kinds`: as
    queue_kinds returns them; {}: not known."""
    osds = sorted(osd.id for osd in osdmap.osds.values() if osd.up)
    number = min(ASKED_OSDS, len(osds))
    chosen = [osds[index * len(osds) // number] for index in range(number)]
    chosen_kinds = {kinds[osd] for osd in chosen if osd in kinds}
    others = {kinds[osd]: osd for osd in osds if osd in kinds and kinds[osd] not in chosen_kinds}
    return sorted({*chosen, *others.values()})
