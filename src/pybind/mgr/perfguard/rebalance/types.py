# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pins, flights and settings of a campaign, and its actions, as frozen data."""
import enum
import math
from dataclasses import dataclass, field, replace
from typing import (Annotated, ClassVar, Dict, FrozenSet, Mapping, NamedTuple, Optional, Tuple,
                    Union)

from ..cluster.types import OsdSet, UpmapEntry
from ..codec import BY_PG, Time
from ..errors import Code
from ..ledger import Held
from ..observation import OSD_OPTION
from ..options import Options
from ..upmap.pins import Unpinnable
from ..watch.slow_reads import SlowReads

#: A small CRUSH weight above 0 (units are 1/65536). The mons drop upmaps onto an OSD of weight 0,
#: but keep those onto an OSD of this weight.
TINY_WEIGHT = 0.0001


class Bounds(NamedTuple):
    """Options of the end state."""
    #: target_deviation.
    deviation: float
    #: max_extra_movement.
    extra: float

    @classmethod
    def of(cls, options: Options) -> 'Bounds':
        return cls(options.target_deviation, options.max_extra_movement)

    def limit(self, shards: int) -> int:
        """Shards that may move in all where CRUSH moves so many."""
        return math.ceil((1.0 + self.extra) * shards)


@dataclass(frozen=True)
class Pace:
    """The state of the throttle, part of the campaign."""
    #: PGs that may be in flight; 0: not decided yet.
    pgs: float = 0.0
    #: The reading that was last judged.
    decided: Time = 0.0
    #: Readings in a row over the limit of latency, and well below it; `under` also counts readings
    #: without evidence after which a halt ends or a lowered limit is raised.
    over: int = 0
    under: int = 0
    #: Lowering the limit to one PG was not enough.
    halted: bool = False
    why: str = ''
    #: The code of `why`.
    code: str = Code.FIRST_PACE
    #: "reads of pool rbd" -> latency in ms while nothing moved, although above the limit.
    levels: Mapping[str, float] = field(default_factory=dict)
    #: The reading that last added one.
    acquitted: Time = 0.0
    #: The most PGs that were in flight since the last reading.
    used: int = 0
    #: Readings in a row in which all pools together were over their limits.
    above: int = 0
    #: Hosts with recent movement -> when; only known to this mgr.
    burdened: Mapping[str, float] = field(default_factory=dict, compare=False)
    seen_since: float = field(default=0.0, compare=False)
    #: OSDs with slow reads; only known to this mgr.
    slow_reads: Mapping[int, SlowReads] = field(default_factory=dict, compare=False)
    #: The last reading with enough operations, or after such a minute; only known to this mgr.
    judged: float = field(default=0.0, compare=False)
    #: max_pgs_in_flight at the last reading, and whether it was raised and no latency judged since;
    #: only known to this mgr.
    cap: float = field(default=0.0, compare=False)
    raised: bool = field(default=False, compare=False)
    #: Latency has not stayed over its limit during the present halt, so movement is the cause; and
    #: when the last such halt ended. Only known to this mgr.
    helps: bool = field(default=False, compare=False)
    resumed: float = field(default=0.0, compare=False)
    #: How often the halt was repeated, in a row; the number of PGs that may be in flight after two
    #: repetitions (throttle.py; 0: no such number), and until when. Only known to this mgr.
    repetitions: int = field(default=0, compare=False)
    ceiling: int = field(default=0, compare=False)
    ceiling_until: float = field(default=0.0, compare=False)


class Phase(str, enum.Enum):
    IDLE = 'IDLE'
    PREPARED = 'PREPARED'
    PINNING = 'PINNING'
    PINNED = 'PINNED'
    RELEASING = 'RELEASING'
    HOLDING = 'HOLDING'
    FINISHING = 'FINISHING'
    DONE = 'DONE'
    ABORTING = 'ABORTING'
    ABORTED = 'ABORTED'


#: Phases of a finished campaign.
ENDED = frozenset({Phase.IDLE, Phase.DONE, Phase.ABORTED})
#: Phases in which a campaign can pin back what is in flight, and release it again.
RELEASING_PHASES = frozenset({Phase.RELEASING, Phase.HOLDING})


@dataclass(frozen=True)
class PinRecord:
    """One PG that perfguard keeps pinned.

    ``before`` is the PG's upmap entry from before the campaign; ``entry`` is ours. ``raw`` is the
    set CRUSH chose when the PG was pinned, if it was known. ``goal`` is what a release puts in
    place of ours; None: what was before. A goal that is our entry: the PG stays where it is.
    ``was`` is the entry that a rollback restores where that is not ``before``: the mon drops pairs
    that the new CRUSH map makes pointless. ``earlier`` is the entry of ours that the OSDMap had
    when this one was noted: until the mons have this one, that one is in force. Or it is one that
    was sent and awaited in vain: the mons may still set it.
    """
    json_row: ClassVar[bool] = True
    before: UpmapEntry
    entry: UpmapEntry
    raw: Optional[OsdSet] = None
    goal: Optional[UpmapEntry] = None
    was: Optional[UpmapEntry] = None
    earlier: Optional[UpmapEntry] = None

    @property
    def ours(self) -> Tuple[UpmapEntry, ...]:
        """Entries of ours that may be in force."""
        return (self.entry,) if self.earlier is None else (self.entry, self.earlier)

    @property
    def all_but_goal(self) -> Tuple[object, ...]:
        """All but the goal."""
        return self.before, self.entry, self.raw, self.was, self.earlier

    @property
    def rollback_entry(self) -> UpmapEntry:
        """The entry that a rollback restores."""
        return self.before if self.was is None else self.was

    @property
    def leads_to(self) -> UpmapEntry:
        """The entry that a release sets."""
        return self.before if self.goal is None else self.goal

    @property
    def stays(self) -> bool:
        """The goal is the present entry: the pin becomes an ordinary upmap."""
        return self.goal == self.entry

    @property
    def ahead(self) -> FrozenSet[int]:
        """OSDs that a release, or a rollback, may lead to by an upmap."""
        return frozenset(osd for entry in (self.before, self.goal, self.was) if entry
                         for osd in entry.targets)


@dataclass(frozen=True)
class Flight:
    """One PG on its way: released, or remapped and not pinnable."""
    json_row: ClassVar[bool] = True
    since: Time
    #: Its entry in the OSDMap while it moves.
    entry: UpmapEntry
    #: How often the release was sent; 0: maybe once or more, by an mgr that has failed since.
    sent: int = 1
    #: When the entry was read back from the OSDMap.
    confirmed: Optional[Time] = None
    #: The OSDMap showed the PG remapped: its primary has peered and asked for its acting set.
    seen_remapped: bool = False
    #: Epoch of the OSDMap before the release if the PG's acting set was sent along, so that the
    #: next OSDMap shows it remapped; 0: it was not.
    primed: int = 0
    sources: OsdSet = ()
    targets: OsdSet = ()
    primary: int = -1
    bytes: int = 0
    #: Further OSDs that are read, to rebuild a shard.
    readers: OsdSet = ()
    #: The pin to return to after a crash or an abort; None for a PG that was never pinned.
    pin: Optional[PinRecord] = None


class Landed(NamedTuple):
    """A PG that has arrived, or moves no longer."""
    #: As in Flight.
    confirmed: float
    targets: OsdSet


@dataclass(frozen=True)
class Sent:
    """A pin that was sent and is not in the OSDMap yet: last sent at `since`, `times` times in
    total. Time for which the mons kept commands waiting does not count (Pinning.delayed)."""
    json_row: ClassVar[bool] = True
    since: Time
    times: int = 1


#: By PG.
UnpinnablePgs = Annotated[Mapping[str, Unpinnable], BY_PG]


#: Keys of borrowed settings, or what they begin with.
FLAG = 'flag/'
NOREBALANCE_KEY = FLAG + 'norebalance'
AUTOSCALE_MODE = 'pg_autoscale_mode'
AUTOSCALE = AUTOSCALE_MODE + '/'


def is_option(key: str) -> bool:
    """Whether it is the key of an option of the mons or the OSDs."""
    return '/' not in key or key.startswith(OSD_OPTION)


@dataclass(frozen=True)
class Holds:
    """All settings besides upmaps that the campaign has changed and must give back, by key.

    "flag/norebalance", "mgr/balancer/active", "pg_autoscale_mode/<pool id>", and options in the
    configuration database: of the section mon by name, of the section osd as "osd/<name>".
    """
    held: Mapping[str, Held] = field(default_factory=dict)
    #: Settings that others have changed meanwhile, which are left alone from then on.
    given_up: FrozenSet[str] = frozenset()
    #: Options that the mons did not accept.
    refused: FrozenSet[str] = frozenset()
    #: The cluster has shown flag, balancer and autoscaler as required.
    prepared: bool = False
    #: The value that was found of the balancer, if it was borrowed and others have switched it on
    #: since: it is borrowed again once it is off. None: not so.
    balancer_found: Optional[str] = None
    #: When it was last borrowed again; 0: never. The order to switch it off came before.
    balancer_again: Time = 0.0
    #: Since when PGs without objects may have kept degraded ones from backfill; 0: they do not.
    blocked: Time = 0.0
    #: Since when norebalance keeps PGs on OSDs that are to be emptied; 0: it does not.
    evacuation_held: Time = 0.0

    def __bool__(self) -> bool:
        return bool(self.held)

    @property
    def flag(self) -> Optional[Held]:
        """norebalance."""
        return self.held.get(NOREBALANCE_KEY)

    @property
    def flags(self) -> FrozenSet[str]:
        """Names of the flags."""
        return frozenset(key[len(FLAG):] for key in self.held if key.startswith(FLAG))

    @property
    def gave_up_flag(self) -> bool:
        return NOREBALANCE_KEY in self.given_up

    @property
    def autoscale(self) -> Dict[int, Held]:
        """pg_autoscale_mode by pool id."""
        return {int(key[len(AUTOSCALE):]): held for key, held in self.held.items()
                if key.startswith(AUTOSCALE)}

    @property
    def mon(self) -> Dict[str, Held]:
        """Options of the mons and the OSDs."""
        return {key: held for key, held in self.held.items() if is_option(key)}

    def put(self, key: str, held: Optional[Held]) -> 'Holds':
        """The holds with the record of one setting; None: without it."""
        others = {name: record for name, record in self.held.items() if name != key}
        return replace(self, held=others if held is None else {**others, key: held})

    def with_nothing_given_up(self) -> 'Holds':
        return replace(self, given_up=frozenset(), refused=frozenset())

    def give_up(self, *keys: str) -> 'Holds':
        return replace(self, given_up=self.given_up | set(keys))

    def taken_over(self) -> 'Holds':
        """The holds with which the next campaign begins."""
        # The order to switch the balancer off may come between the last turn and the next campaign.
        return Holds(self.held, balancer_found=self.balancer_found,
                     balancer_again=self.balancer_again)

    def lasting(self) -> 'Holds':
        """What must be stored at once: all except times."""
        return replace(self, blocked=0.0, evacuation_held=0.0)


# ---- actions for the executor -------------------------------------------------

@dataclass(frozen=True)
class SetFlag:
    flag: str
    on: bool


@dataclass(frozen=True)
class SetBalancer:
    """Switch the balancer, also in the configuration database."""
    active: bool


@dataclass(frozen=True)
class SetOption:
    """An option in a section of the configuration database; value None: no entry."""
    who: str
    name: str
    value: Optional[str]


@dataclass(frozen=True)
class SetPool:
    """A property of a pool, such as "crush_rule"."""
    pool: str
    name: str
    value: str


@dataclass(frozen=True)
class SetWeight:
    """The CRUSH weight of an OSD."""
    osd: int
    weight: float


@dataclass(frozen=True)
class SetCrushMap:
    """A whole CRUSH map, if the one that it replaces still has this version."""
    crush_map: bytes
    version: int


@dataclass(frozen=True)
class SetEntry:
    """Make `entry` the whole upmap entry of a PG; `now` is its present one, so that only the
    difference is sent.

    `prime`: the PG's acting set, which stays in force until its data has moved. Sending it along
    saves the PG an interval in which its primary requests it: see qa/bench/bench_release_stall.py.
    """
    pgid: str
    entry: UpmapEntry
    now: UpmapEntry
    prime: OsdSet = ()


Action = Union[SetFlag, SetBalancer, SetOption, SetPool, SetWeight, SetCrushMap, SetEntry]
