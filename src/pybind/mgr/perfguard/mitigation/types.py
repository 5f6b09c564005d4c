# SPDX-License-Identifier: LGPL-2.1-or-later
"""Types of the mitigation, and their JSON."""
import enum
from dataclasses import dataclass, field
from typing import AbstractSet, ClassVar, FrozenSet, Mapping, NamedTuple, Optional, Tuple

from ..cluster.types import Command, ConfigEntry
from ..codec import Time
from ..errors import Reason
from ..events import Event
from ..ledger import Held, config_command, flag_command
from ..text import pgs_are


class Rung(str, enum.Enum):
    """The mitigations, in the order in which they are applied."""
    HOLD = 'hold releases'
    NOREBALANCE = 'norebalance'
    PIN_BACK = 'pin back'
    SLOW = 'slow recovery'
    #: Of degraded PGs, while clients have room.
    FASTER = 'faster recovery'
    AFFINITY = 'primary affinity'


class StepStage(str, enum.Enum):
    #: Mode observe: would be applied in mode act.
    WOULD = 'would'
    #: Not applied, because it would affect a second failure domain, would not help, or too soon
    #: again.
    LIMITED = 'limited'
    HELD = 'held'
    UNDOING = 'undoing'
    #: The setting was changed outside perfguard, which leaves it alone.
    GIVEN_UP = 'given up'
    #: Undone by command.
    REVERTED = 'reverted'
    #: Undone, because the cause has lasted although nothing was rebalanced; or not applied again,
    #: because the cause returns each time.
    IN_VAIN = 'in vain'


class SettingKind(str, enum.Enum):
    FLAG = 'flag'
    CONFIG = 'config'
    AFFINITY = 'affinity'


@dataclass(frozen=True)
class Setting:
    """One setting of the cluster that a rung borrows.

    ``who`` is the section and mask of an option, for example "osd/class:hdd".
    """
    kind: SettingKind
    name: str
    who: str
    held: Held
    #: Given back, or changed outside perfguard: not considered anymore.
    done: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if self.kind is SettingKind.AFFINITY:
            int(self.name)

    def text(self) -> str:
        if self.kind is SettingKind.FLAG:
            return 'the flag ' + self.name
        if self.kind is SettingKind.AFFINITY:
            return 'primary affinity of osd.' + self.name
        return '%s of %s' % (self.name, self.who)


@dataclass(frozen=True)
class LadderStep:
    """One rung that was applied, or would be."""
    id: int
    rung: Rung
    stage: StepStage
    since: Time
    why: str
    #: The OSD of the rung ("3"), or its PG ("1.a"); '' for the whole cluster.
    subject: str = ''
    settings: Tuple[Setting, ...] = ()
    #: PGs to pin back that are still in flight.
    pgs: Tuple[str, ...] = ()
    #: Stage of the step once it is undone; None: the step is removed.
    then: Optional[StepStage] = None
    #: Additional text.
    note: str = ''
    #: Some OSDs have shown other values than those of `settings`; that is reported.
    differs: bool = False
    #: It is undone once the campaign does not need its settings either.
    needed_by_campaign: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if self.rung is Rung.AFFINITY:
            int(self.subject)


class Trouble(NamedTuple):
    """A condition that affects clients, through short breaks."""
    #: One of trouble_keys.
    key: str
    #: When it was last seen; 0.0: not by this mgr.
    seen_at: Time
    #: Seconds for which it has lasted although norebalance (of any origin) stopped PGs.
    stopped_seconds: float = 0.0
    #: That was long enough to show that movement is not its cause: rungs against it are in vain.
    in_vain: bool = False


class ClientRoom(NamedTuple):
    """Whether client latency leaves room for faster recovery."""
    #: Since when latency has been well within its limit, or clients idle; 0.0: it is not.
    room_since: float = 0.0
    #: Latency is above its limit.
    over_limit: bool = False
    #: When latency was last known; 0.0: no turn yet.
    known_at: float = 0.0
    #: Text on the last judgement of latency.
    why: str = ''


@dataclass(frozen=True)
class RecoveryPace:
    """How far recovery is accelerated, and how clients felt that."""
    #: 0: not at all.
    level: int = 0
    #: When the level last changed.
    changed: Time = 0.0
    #: The last level that clients felt (0: none), and when.
    felt_level: int = 0
    felt: Time = 0.0
    #: When the level was raised within the last day.
    raised: Tuple[Time, ...] = ()
    #: Since when degraded PGs wait; 0.0: they do not.
    waiting: Time = 0.0
    #: mitigation_backfills when the rung was last considered.
    bound: int = 0


@dataclass(frozen=True)
class MitigationState:
    """The state that survives a failover."""
    steps: Tuple[LadderStep, ...] = ()
    last_id: int = 0
    #: Since when there has been evidence, or none, without interruption; otherwise 0.0.
    bad_since: Time = 0.0
    clear_since: Time = 0.0
    #: When a rung was last applied or undone.
    stepped: Time = 0.0
    #: When PGs were last seen degraded.
    degraded: Time = 0.0
    #: OSDs whose primary affinity was given back within the last day, and when.
    returned: Tuple[Tuple[int, Time], ...] = ()
    #: Present and recent troubles, by key.
    troubles: Tuple[Trouble, ...] = ()
    #: Time of the last turn.
    turned: Time = 0.0
    recovery: RecoveryPace = RecoveryPace()
    #: Rungs against movement that were given back within the last hour, and when.
    given_back: Tuple[Tuple[Rung, Time], ...] = ()


@dataclass(frozen=True)
class Evidence:
    """Evidence for and against mitigation."""
    #: Conditions that affect clients.
    trouble: Tuple[Reason, ...] = ()
    #: Slow pools on hosts without movement.
    untouched: FrozenSet[int] = frozenset()
    #: PGs are remapped, backfill or recover.
    moving: bool = False
    #: Of these, some that norebalance could stop.
    rebalancing: bool = False
    #: Number of degraded PGs, whose recovery must not wait.
    degraded: int = 0
    #: Some of them wait for backfill, perhaps for PGs that norebalance defers.
    blocked: bool = False
    #: Slow OSDs, with the reason.
    slow_osds: Mapping[int, str] = field(default_factory=dict)
    #: Not all PGs are reported to this mgr: the absence of evidence means nothing.
    is_incomplete: bool = False
    #: Number of PGs that leave OSDs which are to be emptied.
    evacuating: int = 0
    #: Number of degraded PGs that wait for backfill or recovery.
    waiting: int = 0
    #: Degraded PGs wait, backfill or recover.
    recovering: bool = False
    #: Conditions that are no evidence, as the operator has accepted them for the campaign.
    accepted: Tuple[Reason, ...] = ()
    #: PERFGUARD_SLOW_OSD is muted: `slow_osds` has only chronically slow OSDs.
    slow_osds_muted: bool = False

    @property
    def against_norebalance(self) -> str:
        """Why norebalance must not be set; '' if it may be."""
        if self.evacuating:
            return '%s leaving OSDs that are to be emptied' % pgs_are(self.evacuating)
        return '%s degraded' % pgs_are(self.degraded) if self.blocked else ''

    @property
    def of_movement(self) -> Tuple[Reason, ...]:
        """The trouble that movement may cause."""
        return tuple(reason for reason in self.trouble
                     if not reason.pools or not reason.pools <= self.untouched)


@dataclass(frozen=True)
class LadderView:
    """The state of cluster and campaign that the rungs depend on."""
    flags: FrozenSet[str] = frozenset()
    #: Primary affinity (0 to 1) by OSD.
    affinities: Mapping[int, float] = field(default_factory=dict)
    #: Host by OSD that is up.
    hosts: Mapping[int, str] = field(default_factory=dict)
    #: The configuration database; None: not read in this turn.
    config: Optional[Tuple[ConfigEntry, ...]] = None
    #: The schedulers (osd_op_queue) that OSDs were found to use; None: not asked yet.
    schedulers: Optional[FrozenSet[str]] = None
    #: PGs that the campaign has released and can pin back.
    in_flight: FrozenSet[str] = frozenset()
    #: States of these PGs; None: not asked yet.
    pg_states: Optional[Mapping[str, str]] = None
    #: The campaign needs all PGs to stand still.
    campaign_still: bool = False
    #: Flags and options that other parts of perfguard have borrowed.
    borrowed_elsewhere: FrozenSet[str] = frozenset()
    #: Slow OSDs whose clients would read from OSDs of another device class; see
    #: evidence.mixed_osds.
    mixed: FrozenSet[int] = frozenset()
    #: Slow OSDs of which a lower primary affinity would not help clients, with the reason.
    futile: Mapping[int, str] = field(default_factory=dict)
    #: Slow OSDs of which it is not known at present which reads they serve, or how they compare
    #: with their peers.
    unread: AbstractSet[int] = frozenset()
    #: Flags in force that others have set as well.
    flags_set_by_others: FrozenSet[str] = frozenset()
    #: As Settings.values_set_by_others.
    values_set_by_others: Mapping[str, Tuple[str, float]] = field(default_factory=dict)
    #: As Observation.unanswered_at.
    unanswered_at: float = 0.0
    room: ClientRoom = ClientRoom()
    #: As Reader.degraded_sleep.
    degraded_sleep: str = 'osd_recovery_sleep'


@dataclass(frozen=True)
class Policy:
    """The options of the mitigation."""
    #: off, observe or act.
    mode: str
    #: Time for which evidence must last until the next rung is applied.
    seconds: float
    #: The primary affinity of slow OSDs may be lowered.
    affinity: bool = False
    #: The highest osd_max_backfills for degraded PGs; 0: recovery is not accelerated.
    backfills: int = 0


class Need(str, enum.Enum):
    """Data that a decision needs and that was not read."""
    CONFIG = 'config'
    SCHEDULERS = 'schedulers'
    PG_STATES = 'pg states'


@dataclass(frozen=True)
class Put:
    """Set a setting to a value; None: remove it."""
    setting: Setting
    value: Optional[str]

    @property
    def command(self) -> Command:
        """The mon command that does it."""
        setting, value = self.setting, self.value
        if setting.kind is SettingKind.FLAG:
            return flag_command(setting.name, value is not None)
        if setting.kind is SettingKind.AFFINITY:
            return {'prefix': 'osd primary-affinity', 'id': int(setting.name),
                    'weight': 1.0 if value is None else float(value)}
        return config_command(setting.who, setting.name, value)


@dataclass(frozen=True)
class LadderDecision:
    state: MitigationState
    actions: Tuple[Put, ...] = ()
    events: Tuple[Event, ...] = ()
    needs: FrozenSet[Need] = frozenset()


def active_steps(state: MitigationState) -> Tuple[LadderStep, ...]:
    """The steps whose settings are borrowed now, or are being given back."""
    return tuple(step for step in state.steps if step.stage in (StepStage.HELD, StepStage.UNDOING))


@dataclass(frozen=True)
class Revert:
    """An operator's request to undo a mitigation."""
    rung: int
    #: Document of pending requests in the store, and the one that has changed once they are
    #: executed.
    document: ClassVar[str] = 'reverts'
    effects: ClassVar[Tuple[str, ...]] = ('mitigation',)
    only_stops: ClassVar[bool] = False

    @property
    def text(self) -> str:
        return 'mitigation revert %d' % self.rung
