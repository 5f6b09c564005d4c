# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the mitigation knows, remembers and decides: frozen data, JSON in and out."""
import enum
from dataclasses import dataclass, field
from typing import Any, ClassVar, Dict, FrozenSet, List, Mapping, Optional, Tuple

from ..cluster.types import ConfigEntry
from ..errors import Reason
from ..events import Event

Json = Dict[str, Any]


class Rung(str, enum.Enum):
    """In the order in which they are taken."""
    HOLD = 'hold releases'
    NOREBALANCE = 'norebalance'
    PIN_BACK = 'pin back'
    SLOW = 'slow recovery'
    AFFINITY = 'primary affinity'


class StepStage(str, enum.Enum):
    #: Mode observe: what would be done.
    WOULD = 'would'
    #: Not done, since it would reach beyond one failure domain, or too soon again.
    LIMITED = 'limited'
    HELD = 'held'
    UNDOING = 'undoing'
    #: Somebody else changed what was held: it is theirs.
    GIVEN_UP = 'given up'
    #: Undone by command.
    REVERTED = 'reverted'


class SettingKind(str, enum.Enum):
    FLAG = 'flag'
    CONFIG = 'config'
    AFFINITY = 'affinity'


@dataclass(frozen=True)
class Setting:
    """One thing of the cluster that a rung changes; values as text.

    ``who`` is the section (and mask) of an option, as in "osd/class:hdd". ``found`` None: it was
    not set.
    """
    kind: SettingKind
    name: str
    who: str
    found: Optional[str]
    put: str
    #: The cluster showed what was put.
    seen: bool = False
    #: Given back, or somebody else's: not looked at any more.
    done: bool = False

    def text(self) -> str:
        if self.kind is SettingKind.FLAG:
            return 'the flag ' + self.name
        if self.kind is SettingKind.AFFINITY:
            return 'primary affinity of osd.' + self.name
        return '%s of %s' % (self.name, self.who)


@dataclass(frozen=True)
class LadderStep:
    """One rung that was taken, or would be."""
    id: int
    rung: Rung
    stage: StepStage
    since: float
    why: str
    #: The OSD that the rung is about ("3"); '' where it is about the cluster.
    subject: str = ''
    settings: Tuple[Setting, ...] = ()
    #: PGs that are to be pinned back and still are under way.
    pgs: Tuple[str, ...] = ()
    #: What an undone step becomes; None: nothing, it is forgotten.
    then: Optional[StepStage] = None
    #: What else there is to say.
    note: str = ''


@dataclass(frozen=True)
class MitigationState:
    """What outlives the mgr."""
    steps: Tuple[LadderStep, ...] = ()
    last_id: int = 0
    #: Since when there has been evidence without a gap, or none; 0.0 where it is the other way.
    bad_since: float = 0.0
    clear_since: float = 0.0
    #: When a rung was last taken or undone.
    stepped: float = 0.0
    #: When PGs were last seen degraded.
    degraded: float = 0.0
    #: OSDs whose primary affinity was given back, and when.
    returned: Tuple[Tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Evidence:
    """Whether there is anything to mitigate."""
    #: What clients suffer from.
    trouble: Tuple[Reason, ...] = ()
    #: PGs are remapped, backfill or recover.
    moving: bool = False
    #: Of these, some that norebalance could stop.
    rebalancing: bool = False
    #: PGs that lack copies, whose recovery must not wait.
    degraded: int = 0
    #: OSDs that are slower than their peers, with the reason.
    slow_osds: Mapping[int, str] = field(default_factory=dict)
    #: PGs are not known to this mgr: that nothing is wrong means nothing.
    unknown: bool = False


@dataclass(frozen=True)
class LadderView:
    """What the cluster and the campaign show of what the rungs may change."""
    flags: FrozenSet[str] = frozenset()
    #: Primary affinity (0 to 1) by OSD that exists.
    affinities: Mapping[int, float] = field(default_factory=dict)
    #: Host by OSD that is up.
    hosts: Mapping[int, str] = field(default_factory=dict)
    #: The configuration database; None: not read in this turn.
    config: Optional[Tuple[ConfigEntry, ...]] = None
    #: The schedulers (osd_op_queue) that OSDs were found to use; None: not asked yet.
    schedulers: Optional[FrozenSet[str]] = None
    #: PGs that the campaign has released and can pin back.
    in_flight: FrozenSet[str] = frozenset()
    #: States of those; None: not asked yet.
    pg_states: Optional[Mapping[str, str]] = None
    #: The campaign has norebalance as its own; it wants nothing to move.
    campaign_flag: bool = False
    campaign_still: bool = False
    #: Options of the OSDs that the campaign holds to slow the copying.
    paced: FrozenSet[str] = frozenset()


@dataclass(frozen=True)
class Policy:
    """The operator's wishes."""
    #: off, observe or act.
    mode: str
    #: Seconds that evidence must last for the next rung.
    seconds: float
    #: The primary affinity of slow OSDs may be lowered.
    affinity: bool = False


class Need(str, enum.Enum):
    """What was not read and is needed to decide."""
    CONFIG = 'config'
    SCHEDULERS = 'schedulers'
    PG_STATES = 'pg states'


@dataclass(frozen=True)
class Put:
    """Make a setting have a value; None: not set."""
    setting: Setting
    value: Optional[str]


@dataclass(frozen=True)
class LadderDecision:
    state: MitigationState
    actions: Tuple[Put, ...] = ()
    events: Tuple[Event, ...] = ()
    needs: FrozenSet[Need] = frozenset()


def active(state: MitigationState) -> Tuple[LadderStep, ...]:
    """The steps that have an effect on the cluster, or may have one."""
    return tuple(step for step in state.steps if step.stage in (StepStage.HELD, StepStage.UNDOING))


def own_options(state: MitigationState) -> FrozenSet[str]:
    """Options of the OSDs that the mitigation has set in the configuration database."""
    return frozenset(setting.name for step in state.steps
                     if step.stage in (StepStage.HELD, StepStage.UNDOING)
                     for setting in step.settings
                     if setting.kind is SettingKind.CONFIG and not setting.done)


def own_flags(state: MitigationState) -> FrozenSet[str]:
    """Flags that are in the OSDMap, or on their way, because the mitigation set them."""
    return frozenset(setting.name for step in state.steps
                     if step.stage in (StepStage.HELD, StepStage.UNDOING)
                     for setting in step.settings
                     if setting.kind is SettingKind.FLAG and not setting.done)


# ---- JSON --------------------------------------------------------------------------------------

def state_to_json(state: MitigationState) -> Json:
    return {'last_id': state.last_id, 'bad_since': state.bad_since,
            'clear_since': state.clear_since, 'stepped': state.stepped,
            'degraded': state.degraded, 'returned': [list(each) for each in state.returned],
            'steps': [_step_to_json(step) for step in state.steps]}


def _step_to_json(step: LadderStep) -> Json:
    return {'id': step.id, 'rung': step.rung.value, 'stage': step.stage.value,
            'since': step.since, 'why': step.why, 'subject': step.subject,
            'pgs': list(step.pgs), 'then': None if step.then is None else step.then.value,
            'note': step.note,
            'settings': [[s.kind.value, s.name, s.who, s.found, s.put, s.seen, s.done]
                         for s in step.settings]}


def state_from_json(raw: Any) -> Tuple[MitigationState, List[str]]:
    """The state and, in words, what of it cannot be read."""
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
               for name in ('bad_since', 'clear_since', 'stepped', 'degraded')}
    returned = raw.get('returned')
    known = tuple((int(row[0]), float(row[1]))
                  for row in (returned if isinstance(returned, list) else [])
                  if isinstance(row, list) and len(row) == 2 and all(map(_is_number, row)))
    last_id = max([step.id for step in steps]
                  + [int(raw['last_id']) if _is_number(raw.get('last_id')) else 0])
    return MitigationState(tuple(steps), last_id, returned=known, **numbers), lost


def _is_number(value: Any) -> bool:
    """Finite, and a time or an id."""
    return isinstance(value, (int, float)) and 0 <= value < 1e12


def _step_from_json(raw: Mapping[str, Any]) -> LadderStep:
    if not _is_number(raw['since']):
        raise ValueError('since')
    settings = tuple(_setting_from_json(row) for row in raw['settings'])
    # Which OSDs a step is about is read as numbers in each turn.
    for name in [each.name for each in settings if each.kind is SettingKind.AFFINITY] + (
            [str(raw['subject'])] if raw['rung'] == Rung.AFFINITY else []):
        int(name)
    return LadderStep(int(raw['id']), Rung(raw['rung']), StepStage(raw['stage']),
                      float(raw['since']), str(raw['why']), str(raw['subject']), settings,
                      tuple(str(pgid) for pgid in raw['pgs']),
                      None if raw['then'] is None else StepStage(raw['then']), str(raw['note']))


def _setting_from_json(row: Any) -> Setting:
    kind, name, who, found, put, seen, done = row
    return Setting(SettingKind(kind), str(name), str(who), None if found is None else str(found),
                   str(put), bool(seen), bool(done))


@dataclass(frozen=True)
class Revert:
    """What an operator asks of the mitigation: to undo a rung."""
    rung: int
    #: Where such requests wait in the store.
    document: ClassVar[str] = 'reverts'

    def to_json(self) -> Json:
        return {'id': self.rung}

    @classmethod
    def from_json(cls, raw: Any) -> 'Revert':
        """Raises TypeError or ValueError on what is none of ours."""
        if not isinstance(raw, dict) or not isinstance(raw.get('id'), int):
            raise ValueError('no request to revert a rung')
        return cls(raw['id'])
