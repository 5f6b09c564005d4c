# SPDX-License-Identifier: LGPL-2.1-or-later
"""A change that a campaign makes in the same OSDMap epoch as the pins that it requires.

Each kind of change is a type with a file of its own: weights.py, whole_map.py, pool_rule.py,
pg_num.py and balancing.py; `AnyChange` in campaign.py lists them. `Change` has what all kinds have
in common, and the questions that a campaign asks of them. Its methods read an observation and have
no effects. joining.py takes a change through its stages: WANTED -> SENT -> LANDED, and back to
WANTED for its next part. It divides and closes a WeightChange only, whose methods it calls there.
"""
import enum
import zlib
from dataclasses import dataclass, field, replace
from typing import (Annotated, ClassVar, FrozenSet, List, Literal, Mapping, NamedTuple, Optional,
                    Tuple, TypeVar)

from ..cluster.crush import CrushRules
from ..cluster.ports import Future, Outlook
from ..cluster.types import Document, OsdMap, OsdSet, PoolSetting, Space, UpmapEntry
from ..codec import BY_PG, Time
from ..observation import Observation
from ..upmap.pins import Unpinnable
from .moves import Move
from .risks import Risk
from .types import Action, PinRecord

Kind = TypeVar('Kind', bound='Change')
#: Keys of the details of previews: the verbs of their orders.
DetailsKey = Literal['rule', 'pg_num', 'balance', 'crushmap']
NO_WEIGHTS: Mapping[int, float] = {}
_NO_OSDS: OsdSet = ()
NO_PINS: Mapping[str, PinRecord] = {}


class ChangeStage(str, enum.Enum):
    WANTED = 'wanted'
    #: On its way: journalled, sent, not read back.
    SENT = 'sent'
    #: The OSDMap shows it.
    LANDED = 'landed'


@dataclass(frozen=True)
class Led:
    """An upmap of the campaign's that is no pin, and the PG's entry from before the change."""
    json_row: ClassVar[bool] = True
    before: UpmapEntry
    entry: UpmapEntry


class NextPart(NamedTuple):
    """What follows a part of a change that is in force."""
    change: 'Change'
    #: What is in force.
    text: str


class LeftSetting(NamedTuple):
    """A setting of a pool that the end of a campaign would leave as it is."""
    what: str
    before: str
    now: str
    #: How to restore it.
    restore: str


@dataclass(frozen=True)
class Planned:
    """The pins that a change requires, planned on the future mapping. Or the PGs that move before a
    pool is changed, or that are all that a change moves."""
    pins: Mapping[str, PinRecord] = field(default_factory=dict)
    #: PG -> why it will be remapped by the change, or why no upmap leads to its new place.
    unpinnable: Mapping[str, Unpinnable] = field(default_factory=dict)
    #: The move of the release of each pin.
    moves: Mapping[str, Move] = field(default_factory=dict)
    #: Pinned PG -> the entry with which it stays where it is without a pin.
    removed: Mapping[str, UpmapEntry] = field(default_factory=dict)

    @property
    def vectors(self) -> int:
        return sum(1 for pin in self.pins.values() if pin.entry.vector is not None)


@dataclass(frozen=True)
class Details:
    """What a preview shows of a change besides its pins."""
    #: The key of `shown` in the preview; None: nothing is shown.
    key: Optional[DetailsKey] = None
    shown: Document = field(default_factory=dict)
    #: Its PGs are released without having been pinned in the epoch of a change.
    moves_first: bool = False
    #: Its PGs end where the change leads them, whatever the target.
    follows_change: bool = False
    #: Of a change whose PGs move first: pins, or upmaps, in one epoch of the change.
    pins_at_once: int = 0
    #: PGs that an upmap keeps in place at the end.
    upmaps: int = 0
    #: Share (0 to 1) of the moves that the change itself requires; others are for the balance.
    required_share: float = 1.0
    risks: Tuple[Risk, ...] = ()


@dataclass(frozen=True)
class Change:
    #: Tells the kinds apart in the store.
    kind: ClassVar[str]
    #: How to do with fewer pins.
    fewer_pins: ClassVar[str]
    #: The subject of events.
    subject: ClassVar[str] = 'CRUSH'
    #: Before it is sent, all PGs must have reported since the last part.
    awaits_reports: ClassVar[bool] = False
    #: PGs move, and nothing else is changed.
    moves_only: ClassVar[bool] = False
    #: Why a phase follows in which PGs move before it is made.
    why_first: ClassVar[str] = 'the PGs move before the pool is changed'

    stage: ChangeStage = ChangeStage.WANTED
    #: When it was sent last, and how often in all.
    since: Time = 0.0
    times: int = 0
    #: When it was sent: CrushRules.fingerprint and CrushRules.tunables (0: unknown) of a whole new
    #: map; of other changes, a checksum of the rest of CRUSH.
    fingerprint: int = 0
    tunables: int = 0
    #: The mons gather commands for longer than by default: all data for the next burst is known.
    gathers: bool = False
    #: The operator accepted that the preview was not available: if it still is not, the change
    #: is made without pins in the same epoch.
    ordinary: bool = False

    #: PGs that were led to their place by an upmap.
    ahead: Annotated[Mapping[str, Led], BY_PG] = field(default_factory=dict)

    # What only some kinds have. Without type hints, these are no fields here.
    #: OSD -> its new CRUSH weight.
    weights = NO_WEIGHTS
    #: OSD -> its CRUSH weight from before the change.
    start = NO_WEIGHTS
    #: OSDs to be emptied: no release leads to them.
    drained = _NO_OSDS
    #: Weight 0 for OSDs that are empty, which ends a drain.
    closing = False
    #: The PGs are moved to where the change places them before it is made. The upmaps that moved
    #: them are removed afterwards.
    moves_first = False
    #: Number of passes that have moved PGs so far.
    passes = 0
    #: The number of the present tranche, from 0.
    tranche = 0

    # ---- its stages

    @property
    def pending(self) -> bool:
        """A burst was sent and not read back, and may still arrive, also while it is sent again."""
        return self.stage is ChangeStage.SENT or self.stage is ChangeStage.WANTED and self.times > 0

    @property
    def is_last(self) -> bool:
        """No tranche follows the present one."""
        return True

    @property
    def tranches(self) -> int:
        """By estimate; 1: it is not divided."""
        return 1

    def is_divisible(self, crush: CrushRules) -> bool:
        """Whether it can be made in tranches."""
        return False

    @property
    def partly(self) -> bool:
        """Some tranches are in force, and others follow."""
        return False

    @property
    def untouched(self) -> bool:
        """No part of it was made yet."""
        return self.stage is ChangeStage.WANTED

    # ---- its effect

    @property
    def chunk(self) -> Mapping[int, float]:
        """OSD -> new CRUSH weight, of the burst that is next or on its way."""
        return NO_WEIGHTS

    @property
    def setting(self) -> Optional[PoolSetting]:
        """What a pool gets."""
        return None

    @property
    def pool(self) -> Optional[int]:
        """The pool that gets it."""
        return None if self.setting is None else self.setting.pool

    def commands(self, observation: Observation) -> List[Action]:
        """The actions of the present part, without pins."""
        raise NotImplementedError

    def landed(self, observation: Observation) -> bool:
        """Whether the OSDMap shows the present part."""
        raise NotImplementedError

    def expected(self, observation: Observation) -> Tuple[int, int]:
        """`fingerprint` and `tunables` if nothing but the change is made. New weights do not change
        tunables."""
        return self.rest_of_crush(observation), observation.crush.tunables

    def is_ours(self, observation: Observation) -> bool:
        """Whether CRUSH contains the change, if it is in force, and nothing by others since it was
        sent."""
        return self.fingerprint == self.rest_of_crush(observation) \
            and self.tunables in (0, observation.crush.tunables)

    def rest_of_crush(self, observation: Observation) -> int:
        """A checksum of CRUSH without the OSDs of the burst."""
        names = {'osd.%d' % osd for osd in self.chunk}
        others = sorted(item for item in observation.crush.digest.items() if item[0] not in names)
        return zlib.crc32(repr(others).encode())

    @property
    def removes_upmaps(self) -> bool:
        """It makes upmaps unnecessary, which are removed once it is read back."""
        return self.moves_first

    def upmaps_to_remove(self, osdmap: OsdMap, future: Future) -> Mapping[str, PinRecord]:
        """Upmaps of PGs that may not need them once the change is in force, as pins, so that they
        are removed when it is read back, and not before."""
        return NO_PINS

    @property
    def moving_first(self) -> bool:
        """It is made once PGs are where it allows them to be."""
        return self.moves_first and self.stage is ChangeStage.WANTED

    def first_moves(self, observation: Observation, outlook: Future,
                    pins: Mapping[str, PinRecord]) -> Optional[Planned]:
        """The PGs that move before it is made; None: it can be made. `pins`: the present ones."""
        return None

    def moves_noted(self) -> 'Change':
        """The change once the moves of `first_moves` are planned, as it is while they are made."""
        return self

    def first_moves_text(self, osdmap: OsdMap) -> str:
        """Text on the PGs of `first_moves`; '': there are none."""
        return ''

    # ---- what it waits for

    @property
    def whole(self) -> bool:
        """Its preview needs all PGs, not only those that CRUSH moves or that have an upmap."""
        return False

    def foreseen(self, outlook: Outlook, observation: Observation,
                 space: Mapping[int, Space]) -> Outlook:
        """The future mapping with what the kind of change computes from it, such as final sets; for
        the tool thread."""
        return outlook

    @property
    def needs_outlook(self) -> bool:
        """The future mapping is computed before the change."""
        return True

    @property
    def settled_pools(self) -> FrozenSet[int]:
        """The pools whose PGs are where they end once the change is in force: pins become
        upmaps."""
        return frozenset()

    @property
    def follows_parts(self) -> bool:
        """PGs may be peering, or wait for their pins, because of an earlier part of it."""
        return False

    @property
    def awaited_pins(self) -> str:
        """Text on what it waits for before its next part (see follows_parts)."""
        return 'waiting until no PG of the pool is peering or waiting for its pin'

    def awaited(self, observation: Observation) -> str:
        """Text on what it waits for once it is sent."""
        return 'waiting for the CRUSH change to show in the OSDMap'

    def impossible(self, observation: Observation) -> str:
        """Why it cannot be made any longer; '' if it can."""
        return ''

    @property
    def impossible_for_good(self) -> bool:
        """If it is impossible, others will hardly undo what made it so."""
        return True

    def drains(self, crush: CrushRules, future: Future) -> OsdSet:
        """OSDs to which upmaps no longer lead once the change has replaced `crush`."""
        return self.drained

    def harmful(self, observation: Observation, unpinnable: Mapping[str, Unpinnable]) -> str:
        """Why it must not be made now if these PGs cannot be pinned; '' if it may."""
        return ''

    def is_accepted(self, osdmap: OsdMap) -> bool:
        """Whether the mons have accepted a part that takes ceph-mgr some time."""
        return False

    # ---- what becomes of it

    def begun(self: Kind, observation: Observation) -> Kind:
        """The change as the campaign begins with it: what it is to replace is noted."""
        return self

    def succeeds(self, aborted: 'Change') -> bool:
        """Whether it decides on all that the change of an aborted campaign was about: the operator
        expects the PGs that this one keeps pinned to be released as well."""
        return False

    def continuing(self: Kind, aborted: Optional['Change'], osdmap: OsdMap) -> Kind:
        """The change with what must not be forgotten of the change of an aborted campaign which
        this one follows; None: it follows none."""
        return self

    def remaining(self, observation: Observation) -> 'Change':
        """What is still to be made of it, after what others have done meanwhile."""
        return self

    def sent(self, observation: Observation) -> 'Change':
        """The change once its present part is sent: what that replaces is noted."""
        return self

    def accepted(self, observation: Observation) -> 'Change':
        """The change once the mons have accepted the part that was sent (see is_accepted)."""
        return self

    def next_part(self, observation: Observation, pins: int) -> Optional[NextPart]:
        """What follows the present part, which is in force; None: nothing. `pins`: how many PGs are
        pinned."""
        return None

    def settled(self) -> 'Change':
        """With its last part in force."""
        return replace(self, stage=ChangeStage.LANDED)

    def stands_still(self, observation: Observation) -> bool:
        """Whether a part that was sent, and does not show, has no effects that continue."""
        return True

    def stop(self, observation: Observation) -> Tuple['Change', List[Action]]:
        """For an abort: the change whose sent part has no further effects (see stands_still), and
        the actions that stop these."""
        return self, []

    def part_in_force(self, observation: Observation) -> Optional['Change']:
        """What is left of it in an aborted campaign; None: nothing is in force."""
        return None

    def resumed(self: Kind) -> Kind:
        """The change as "campaign resume" continues it."""
        return self

    # ---- the way back

    def why_no_rollback(self, campaign: int) -> str:
        """Why a rollback does not undo it; '' if it does."""
        return ''

    def moves_back(self, observation: Observation) -> Optional[Planned]:
        """The moves that undo it, with upmaps alone; None: a rollback restores CRUSH."""
        return None

    def way_back(self, osdmap: OsdMap) -> str:
        """The command that undoes it once the campaign is aborted; '': there is none."""
        return 'campaign rollback'

    def begun_pools(self, osdmap: OsdMap) -> FrozenSet[int]:
        """The pool whose PGs are, by upmaps, where the change places them, although it is not in
        force yet."""
        return frozenset()

    def left_setting(self, osdmap: OsdMap) -> Optional[LeftSetting]:
        """What an end of the campaign now would leave behind."""
        return None

    # ---- texts

    @property
    def parts_text(self) -> str:
        """'; ' and a text on tranches that are still to come; '' if there are none."""
        return ''

    def left_intermediate(self, osdmap: OsdMap, verb: str = 'would keep') -> str:
        """Text on the intermediate rule that remains in force after the campaign; '': there is
        none."""
        return ''

    def same_as(self, other: 'Change') -> bool:
        """Whether both have the same effect."""
        return self == other

    @property
    def features(self) -> Mapping[str, str]:
        """Texts that show how it differs from another change of the same order."""
        return {}
