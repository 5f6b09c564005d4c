# SPDX-License-Identifier: LGPL-2.1-or-later
"""Types of the mitigation, and their JSON."""
import enum
from dataclasses import dataclass, field
from typing import Any, ClassVar, FrozenSet, List, Mapping, NamedTuple, Optional, Tuple

from ..cluster.types import ConfigEntry, Json
from ..errors import Reason
from ..events import Event


class Rung(str, enum.Enum):
    """The mitigations, in the order in which they are applied."""
    HOLD = 'hold releases'
    NOREBALANCE = 'norebalance'
    PIN_BACK = 'pin back'
    SLOW = 'slow recovery'
    AFFINITY = 'primary affinity'
    REPEER = 'repeer'


class StepStage(str, enum.Enum):
    #: Mode observe: would be applied in mode act.
    WOULD = 'would'
    #: Not applied, because it would affect a second failure domain, or too soon again.
    LIMITED = 'limited'
    HELD = 'held'
    UNDOING = 'undoing'
    #: The setting was changed outside perfguard, which leaves it alone.
    GIVEN_UP = 'given up'
    #: Undone by command.
    REVERTED = 'reverted'
    #: Done once, with nothing to undo.
    DONE = 'done'
    #: Undone, because the cause has lasted although nothing was rebalanced.
    IN_VAIN = 'in vain'


class SettingKind(str, enum.Enum):
    FLAG = 'flag'
    CONFIG = 'config'
    AFFINITY = 'affinity'


@dataclass(frozen=True)
class Setting:
    """One setting of the cluster that a rung changes; values as text.

    ``who`` is the section and mask of an option, for example "osd/class:hdd". ``found`` is None if
    it was not set.
    """
    kind: SettingKind
    name: str
    who: str
    found: Optional[str]
    put: str
    #: The cluster has shown the value that was put.
    seen: bool = False
    #: Given back, or changed outside perfguard: not considered anymore.
    done: bool = False
    #: It is being given back.
    returning: bool = False

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
    since: float
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


class Trouble(NamedTuple):
    """A condition that affects clients, through short breaks."""
    #: One of trouble_keys, and when it was last seen (0.0: not by this mgr).
    key: str
    last: float
    #: Seconds for which it has lasted although norebalance (of any origin) stopped PGs.
    still: float = 0.0
    #: That was long enough: movement is not why.
    in_vain: bool = False


@dataclass(frozen=True)
class MitigationState:
    """The state that survives a failover."""
    steps: Tuple[LadderStep, ...] = ()
    last_id: int = 0
    #: Since when there has been evidence, or none, without interruption; otherwise 0.0.
    bad_since: float = 0.0
    clear_since: float = 0.0
    #: When a rung was last applied or undone.
    stepped: float = 0.0
    #: When PGs were last seen degraded.
    degraded: float = 0.0
    #: OSDs whose primary affinity was given back, and when.
    returned: Tuple[Tuple[int, float], ...] = ()
    #: Present and recent troubles, by key.
    troubles: Tuple[Trouble, ...] = ()
    #: Time of the last turn.
    turned: float = 0.0


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
    #: PG whose lease renewals were lost beyond doubt, with the reason.
    wedged: Mapping[str, str] = field(default_factory=dict)
    #: Not all PGs are reported to this mgr: the absence of evidence means nothing.
    unknown: bool = False

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
    #: The campaign has set norebalance; it needs all PGs to stand still.
    campaign_flag: bool = False
    campaign_still: bool = False
    #: Options of OSDs that the campaign has borrowed to slow the copying.
    paced: FrozenSet[str] = frozenset()
    #: Slow OSDs whose clients would read from OSDs of another device class; see
    #: evidence.mixed_osds.
    mixed: FrozenSet[int] = frozenset()


@dataclass(frozen=True)
class Policy:
    """The options of the mitigation."""
    #: off, observe or act.
    mode: str
    #: Time for which evidence must last until the next rung is applied.
    seconds: float
    #: The primary affinity of slow OSDs may be lowered.
    affinity: bool = False
    #: A PG whose lease renewals were lost may be made to peer.
    repeer: bool = False


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


@dataclass(frozen=True)
class LadderDecision:
    state: MitigationState
    actions: Tuple[Put, ...] = ()
    events: Tuple[Event, ...] = ()
    needs: FrozenSet[Need] = frozenset()
    #: PG that is to peer; '': none.
    repeer: str = ''


def active(state: MitigationState) -> Tuple[LadderStep, ...]:
    """The steps that affect the cluster, or may."""
    return tuple(step for step in state.steps if step.stage in (StepStage.HELD, StepStage.UNDOING))


def own_options(state: MitigationState) -> FrozenSet[str]:
    """Options of the OSDs that the mitigation has set in the configuration database."""
    return frozenset(setting.name for step in state.steps
                     if step.stage in (StepStage.HELD, StepStage.UNDOING)
                     for setting in step.settings
                     if setting.kind is SettingKind.CONFIG and not setting.done)


def own_flags(state: MitigationState) -> FrozenSet[str]:
    """Flags that the mitigation has set, including those that the OSDMap does not show yet."""
    return frozenset(setting.name for step in state.steps
                     if step.stage in (StepStage.HELD, StepStage.UNDOING)
                     for setting in step.settings
                     if setting.kind is SettingKind.FLAG and not setting.done)


# ---- JSON --------------------------------------------------------------------------------------

#: Earlier versions do not know all stages, and would lose a step with its borrowed settings.
_STORED = {StepStage.IN_VAIN: StepStage.REVERTED}


def state_to_json(state: MitigationState) -> Json:
    return {'last_id': state.last_id, 'bad_since': state.bad_since,
            'clear_since': state.clear_since, 'stepped': state.stepped,
            'degraded': state.degraded, 'returned': [list(each) for each in state.returned],
            'troubles': [list(each) for each in state.troubles], 'turned': state.turned,
            'steps': [_step_to_json(step) for step in state.steps]}


def _step_to_json(step: LadderStep) -> Json:
    then = None if step.then is None else _STORED.get(step.then, step.then).value
    return {'id': step.id, 'rung': step.rung.value,
            'stage': _STORED.get(step.stage, step.stage).value,
            'since': step.since, 'why': step.why, 'subject': step.subject,
            'pgs': list(step.pgs), 'then': then,
            'in_vain': StepStage.IN_VAIN in (step.stage, step.then), 'note': step.note,
            'settings': [[s.kind.value, s.name, s.who, s.found, s.put, s.seen, s.done,
                          s.returning]
                         for s in step.settings]}


def state_from_json(raw: Any) -> Tuple[MitigationState, List[str]]:
    """The state, and texts on the parts that are unreadable."""
    if not isinstance(raw, dict):
        return MitigationState(), ['not a mitigation']
    lost: List[str] = []
    steps: List[LadderStep] = []
    rows = raw.get('steps')
    for row in rows if isinstance(rows, list) else []:
        try:
            steps.append(_step_from_json(row))
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            lost.append('a mitigation (%r): %.200s' % (error, row))
    numbers = {name: float(raw[name]) if _is_number(raw.get(name)) else 0.0
               for name in ('bad_since', 'clear_since', 'stepped', 'degraded', 'turned')}
    returned = raw.get('returned')
    known = tuple((int(row[0]), float(row[1]))
                  for row in (returned if isinstance(returned, list) else [])
                  if isinstance(row, list) and len(row) == 2 and all(map(_is_number, row)))
    last_id = max([step.id for step in steps]
                  + [int(raw['last_id']) if _is_number(raw.get('last_id')) else 0])
    return MitigationState(tuple(steps), last_id, returned=known,
                           troubles=_troubles_from_json(raw.get('troubles')), **numbers), lost


def _troubles_from_json(rows: Any) -> Tuple[Trouble, ...]:
    """Those that are readable: the others are judged anew."""
    return tuple(Trouble(row[0], float(row[1]), float(row[2]), bool(row[3]))
                 for row in (rows if isinstance(rows, list) else [])
                 if isinstance(row, list) and len(row) == 4 and isinstance(row[0], str)
                 and _is_number(row[1]) and _is_number(row[2]))


def _is_number(value: object) -> bool:
    """Finite, and a time or an id."""
    return isinstance(value, (int, float)) and 0 <= value < 1e12


def _step_from_json(raw: Mapping[str, Any]) -> LadderStep:
    if not _is_number(raw['since']):
        raise ValueError('since')
    settings = tuple(_setting_from_json(row) for row in raw['settings'])
    # The ids of OSDs must be numbers.
    for name in [each.name for each in settings if each.kind is SettingKind.AFFINITY] + (
            [str(raw['subject'])] if raw['rung'] == Rung.AFFINITY else []):
        int(name)
    stage, then = StepStage(raw['stage']), None if raw['then'] is None else StepStage(raw['then'])
    if raw.get('in_vain'):
        stage = StepStage.IN_VAIN if stage is StepStage.REVERTED else stage
        then = StepStage.IN_VAIN if then is StepStage.REVERTED else then
    return LadderStep(int(raw['id']), Rung(raw['rung']), stage,
                      float(raw['since']), str(raw['why']), str(raw['subject']), settings,
                      tuple(str(pgid) for pgid in raw['pgs']), then, str(raw['note']))


def _setting_from_json(row: Any) -> Setting:
    kind, name, who, found, put, seen, done, *later = row
    return Setting(SettingKind(kind), str(name), str(who), None if found is None else str(found),
                   str(put), bool(seen), bool(done), bool(later and later[0]))


@dataclass(frozen=True)
class Revert:
    """An operator's request to undo a mitigation."""
    rung: int
    #: Document of pending requests in the store, and the one that has changed once they are
    #: executed.
    document: ClassVar[str] = 'reverts'
    effects: ClassVar[str] = 'mitigation'

    def to_json(self) -> Json:
        return {'id': self.rung}

    @classmethod
    def from_json(cls, raw: Any) -> 'Revert':
        """Raises ValueError if the data is invalid."""
        if not isinstance(raw, dict) or not isinstance(raw.get('id'), int):
            raise ValueError('no request to revert a mitigation')
        return cls(raw['id'])
