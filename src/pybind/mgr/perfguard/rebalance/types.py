# SPDX-License-Identifier: LGPL-2.1-or-later
"""The state of the campaign and its actions, as frozen data."""
import enum
from dataclasses import dataclass, field, replace
from typing import (Annotated, ClassVar, Dict, FrozenSet, List, Mapping, Optional, Tuple,
                    Union)

from ..cluster.types import OsdSet, PoolPgs, PoolRule, UpmapEntry
from ..codec import BY_PG
from ..errors import Code
from ..holds import Held
from ..observation import OSD_OPTION
from ..upmap.pins import INCOMPLETE, Unpinnable
from .copying import Copying
from .latency import SlowReads
from .progress import Limits, Progress
from .stalls import Stalls

#: A small CRUSH weight above 0 (units are 1/65536). The mons drop upmaps onto an OSD of weight 0,
#: but keep those onto an OSD of this weight.
TINY_WEIGHT = 0.0001


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


@dataclass(frozen=True)
class Change:
    """A change of CRUSH that a campaign makes in the same OSDMap epoch as the pins that it
    requires."""
    #: OSD -> its new CRUSH weight.
    weights: Mapping[int, float] = field(default_factory=dict)
    #: A whole CRUSH map instead, kept in the store by the campaign's id.
    crush_map: bool = False
    #: OSDs to be emptied: no release leads to them.
    drained: OsdSet = ()
    stage: ChangeStage = ChangeStage.WANTED
    #: When it was sent last, how often in all, and with how many pins.
    since: float = 0.0
    times: int = 0
    pins: int = 0
    vectors: int = 0
    #: CrushRules.fingerprint of the whole new map, and the version of CRUSH when it was ordered,
    #: then when it was sent: the new map replaces that version only. Maps that differ in tunables
    #: alone have the same fingerprint. With weights: a checksum of the rest of CRUSH when they were
    #: sent.
    fingerprint: int = 0
    #: CrushRules.tunables with the change; 0: unknown.
    tunables: int = 0
    crush_version: int = 0
    #: CrushRules.identity of that version, which the mons also give new versions; 0: not known,
    #: or that of the new map as well.
    crush_identity: int = 0
    #: OSDs whose weights are in force, and the number of OSDs in one burst (0: all that are left).
    done: OsdSet = ()
    burst: int = 0
    #: The mons gather commands for longer than by default: all data for the next burst is known.
    gathers: bool = False
    #: Another rule for a pool instead, and the rule that follows once this one is in force.
    rule: Optional[PoolRule] = None
    then: Optional[int] = None
    #: The PGs are moved to where the rule places them before it is changed, and the number of
    #: passes so far. The upmaps that moved them are removed afterwards.
    moves_first: bool = False
    passes: int = 0
    #: Names: of that rule, since its id may be given to another one meanwhile; of the rule that
    #: the pool had; of the intermediate rule ('': none).
    rule_name: str = ''
    found_rule: str = ''
    via: str = ''
    #: Numbers of PGs for a pool instead: of the next step, at the end, and those that it had.
    pgs: Optional[PoolPgs] = None
    pg_num: int = 0
    found_pg_num: int = 0
    #: The targets of the pool when they were sent; once the mons have accepted the step, its own.
    #: None: not sent.
    replaces: Optional[PoolPgs] = None
    #: The order was forced although its preview was not available: if it still is not, the change
    #: is made without pins in the same epoch.
    ordinary: bool = False
    #: The end of a drain, or of a rollback that empties OSDs: weight 0 for OSDs that are empty. If
    #: it fails it is left out, and counts as landed without the weights that are not in force.
    closing: bool = False
    #: Weights that require too many pins come in tranches, each of which begins once the PGs of the
    #: one before have moved: the weights of the present tranche ({}: those at the end), of the one
    #: before, and from before the change; its share of the difference that was left, how many
    #: tranches came before it, and how many follow, by estimate.
    step: Mapping[int, float] = field(default_factory=dict)
    reached: Mapping[int, float] = field(default_factory=dict)
    start: Mapping[int, float] = field(default_factory=dict)
    share: float = 1.0
    tranche: int = 0
    following: int = 0
    #: PGs that were led to their place by an upmap.
    ahead: Annotated[Mapping[str, Led], BY_PG] = field(default_factory=dict)
    #: Since when upmaps of earlier tranches that are not needed any longer are removed; 0: they are
    #: not.
    removing: float = 0.0

    @property
    def pool(self) -> Optional[int]:
        """The pool whose rule or numbers of PGs change."""
        pool_change = self.rule or self.pgs
        return None if pool_change is None else pool_change.pool

    @property
    def needs_outlook(self) -> bool:
        """The future mapping is computed before the change. A split leaves them where they are, so
        does a merge after the step that has moved them."""
        return self.pgs is None or self.moves_first

    @property
    def intermediate(self) -> bool:
        """The intermediate rule is in force, or may be."""
        return bool(self.via) and self.stage is not ChangeStage.LANDED and (
            self.moves_first or self.pending)

    @property
    def chunk(self) -> Mapping[int, float]:
        """OSD -> new CRUSH weight, of the burst that is next or on its way."""
        left, weights = self._left(), self.step or self.weights
        return {osd: weights[osd] for osd in left[:self.burst or len(left)]}

    @property
    def tranches(self) -> int:
        """By estimate; 1: it is not divided."""
        return self.tranche + 1 + self.following

    @property
    def is_last(self) -> bool:
        """No tranche follows the present one."""
        return self.share >= 1.0

    @property
    def partly(self) -> bool:
        """Some tranches are in force, and others follow."""
        if self.stage is ChangeStage.LANDED:
            return not self.is_last
        return self.tranche > 0

    @property
    def pending(self) -> bool:
        """A burst was sent and not read back, and may still arrive, also while it is sent again."""
        return self.stage is ChangeStage.SENT or self.stage is ChangeStage.WANTED and self.times > 0

    @property
    def more(self) -> bool:
        """Bursts follow that one."""
        return len(self._left()) > len(self.chunk)

    def _left(self) -> List[int]:
        return sorted(self.weights.keys() - set(self.done))


@dataclass(frozen=True)
class Pace:
    """The state of the throttle, part of the campaign."""
    #: PGs that may be in flight; 0: not decided yet.
    pgs: float = 0.0
    #: The reading that was last judged.
    decided: float = 0.0
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
    acquitted: float = 0.0
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


#: Campaign.kept_mark once everything that was pinned has been kept.
KEPT_ALL = 'all'

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
    when this one was noted: until the mons have this one, that one is in force.
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
    def rest(self) -> Tuple[object, ...]:
        """All but the goal."""
        return self.before, self.entry, self.raw, self.was, self.earlier

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
    since: float
    #: Its entry in the OSDMap while it moves.
    entry: UpmapEntry
    #: How often the release was sent.
    sent: int = 1
    #: When the entry was read back from the OSDMap.
    confirmed: Optional[float] = None
    #: The OSDMap showed the PG remapped: its primary has peered and asked for its acting set.
    seen_remapped: bool = False
    sources: OsdSet = ()
    targets: OsdSet = ()
    primary: int = -1
    bytes: int = 0
    #: Further OSDs that are read, to rebuild a shard.
    readers: OsdSet = ()
    #: The pin to return to after a crash or an abort; None for a PG that was never pinned.
    pin: Optional[PinRecord] = None


@dataclass(frozen=True)
class Sent:
    """A pin that was sent and is not in the OSDMap yet: last sent at `since`, `times` times in
    total."""
    json_row: ClassVar[bool] = True
    since: float
    times: int = 1


#: By PG.
UnpinnablePgs = Annotated[Mapping[str, Unpinnable], BY_PG]


#: Keys of borrowed settings, or what they begin with.
FLAG = 'flag/'
NOREBALANCE_KEY = FLAG + 'norebalance'
AUTOSCALE = 'pg_autoscale_mode/'


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
        """With the record of one setting; None: without it."""
        rest = {each: record for each, record in self.held.items() if each != key}
        return replace(self, held=rest if held is None else {**rest, key: held})

    def with_nothing_given_up(self) -> 'Holds':
        return replace(self, given_up=frozenset(), refused=frozenset())

    def give_up(self, *keys: str) -> 'Holds':
        return replace(self, given_up=self.given_up | set(keys))


@dataclass(frozen=True)
class Campaign:
    id: int
    phase: Phase
    started: float
    trigger: str = 'operator'
    target: str = 'crush'
    #: It enters each phase automatically.
    automatic: bool = False
    #: Its own change of CRUSH; None: the operator makes the change.
    change: Optional[Change] = None
    #: CRUSH version when it began.
    crush_version: int = 0
    #: The CRUSH version that holds what the campaign, or the operator for it, has changed and
    #: nothing later; -1: others changed CRUSH along with it.
    crush_own: int = -1
    #: CrushRules.identity of that version; 0: not known, as in earlier documents.
    crush_identity: int = 0
    #: The change that restores CRUSH from before the campaign, after a rollback was requested.
    back: Optional[Change] = None
    #: That change has begun.
    rolled_back: bool = False
    #: The change that it undoes.
    undone: Optional[Change] = None
    #: OSDs that an aborted campaign was emptying when this one took over its pins.
    draining: OsdSet = ()
    #: OSDs to which the operator's own change has given CRUSH weight 0: their PGs are movement of
    #: the campaign, no evacuation.
    emptied: OsdSet = ()
    #: The cluster has shown flag, balancer and autoscaler as required.
    prepared: bool = False
    #: Stopped by the operator, not by a stop condition.
    paused: bool = False
    #: finish --keep: the remaining pins become ordinary upmaps.
    keep: bool = False
    #: ABORTED with pins, or PGs that could not be pinned: the settings that keep them where they
    #: are stay borrowed until the operator decides.
    held: bool = False
    #: Remaining pins while it is held.
    left: int = 0
    #: Codes of stop conditions that the operator has waived.
    acknowledged: Tuple[str, ...] = ()
    ended: Optional[float] = None
    holds: Holds = Holds()
    in_flight: Mapping[str, Flight] = field(default_factory=dict)
    unpinnable: UnpinnablePgs = field(default_factory=dict)
    #: PGs that lacked an OSD, and so could not be pinned, when its change was ordered, and have not
    #: recovered since; how many more there were.
    undersized_pgs: Tuple[str, ...] = ()
    undersized: int = 0
    #: PGs that were pinned back although a command with their release was not read back: the mons
    #: may still receive it, for example from an mgr that was replaced.
    recalled: Tuple[str, ...] = ()
    #: PGs that leave OSDs which are to be emptied, and whose other shards cannot be pinned; only
    #: known to this mgr.
    let_go: FrozenSet[str] = field(default=frozenset(), compare=False)
    #: How many PGs "campaign start" accepted that cannot be pinned, and move at once.
    accepted_unpinnable: int = 0
    #: Since when PGs without objects may have kept degraded ones from backfill; 0: they do not.
    blocked: float = 0.0
    #: Since when norebalance keeps PGs on OSDs that are to be emptied; 0: it does not.
    evacuation_held: float = 0.0
    #: The CRUSH version in which the mons have refused pins.
    refused_crush: int = -1
    #: Pins that were sent and not read back yet.
    pinning: Annotated[Mapping[str, Sent], BY_PG] = field(default_factory=dict)
    #: When the present phase began, when pins were last sent, when the last turn was.
    phase_since: float = 0.0
    pins_sent: float = 0.0
    turned: float = 0.0
    #: When a PG was last released or arrived, and when a stop condition last held.
    progressed: float = 0.0
    stopped: float = 0.0
    #: When data of PGs in flight was last seen to be copied; the number of misplaced objects in the
    #: last turn, only known to this mgr.
    copied: float = 0.0
    misplaced: int = field(default=0, compare=False)
    #: PGs of this campaign in all, arrived at their target, left as upmaps.
    total: int = 0
    released: int = 0
    kept: int = 0
    #: "number:basis" of the goals in the pins; without a basis, a part of them is; empty: none were
    #: computed.
    goals: str = ''
    #: The last of what `kept` counts: the goals whose stayers were kept, or KEPT_ALL.
    kept_mark: str = ''
    bytes_done: int = 0
    #: Seconds in which PGs were in flight; with bytes_done the measured rate.
    moving_seconds: float = 0.0
    first_epoch: int = 0
    last_epoch: int = 0
    #: The state of the throttle, and the stalls of its releases.
    pace: Pace = Pace()
    stalls: Stalls = Stalls()
    copying: Copying = Copying()
    #: Arrived bytes by blocks of time.
    arrivals: Progress = Progress()
    #: Its limits, in seconds by code.
    limits: Limits = Limits()
    #: A pause ends then; 0: with "resume" only. When it was ordered; 0: unknown.
    paused_until: float = 0.0
    paused_at: float = 0.0
    #: The saved plan that it executes; '': none.
    plan: str = ''
    #: The token of that plan.
    plan_token: str = ''
    #: Options of this campaign only, as text.
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def active(self) -> bool:
        return self.phase not in ENDED

    @property
    def incomplete(self) -> Mapping[str, Unpinnable]:
        """The unpinnable PGs that have nowhere to move. While an OSD is down this cannot be found
        out again: it may be the OSD that their up sets lack."""
        return {pgid: why for pgid, why in self.unpinnable.items() if why == INCOMPLETE}

    def idle_seconds(self, now: float) -> float:
        """Seconds since the last release or arrival of a PG."""
        return now - max(self.progressed, self.phase_since, self.pins_sent)

    @property
    def removes_upmaps(self) -> bool:
        """The change makes pins unnecessary, which are removed once it is read back."""
        return self.rolled_back or self.change is not None and self.change.moves_first

    @property
    def moving_first(self) -> bool:
        """A pool is changed once the PGs are where the change places them."""
        change = self.change
        return change is not None and change.moves_first and change.stage is ChangeStage.WANTED

    @property
    def open(self) -> bool:
        """The loop must handle it in every turn."""
        return self.active or self.held

    @property
    def kept_now(self) -> int:
        """PGs that an upmap keeps in place, permanently or until the operator decides."""
        return self.kept + self.left


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
class SetAutoscale:
    pool: str
    mode: str


@dataclass(frozen=True)
class SetWeight:
    """The CRUSH weight of an OSD."""
    osd: int
    weight: float


@dataclass(frozen=True)
class SetPoolRule:
    """The CRUSH rule of a pool, by name."""
    pool: str
    rule: str


@dataclass(frozen=True)
class SetPoolPgs:
    """Numbers of PGs of a pool. ceph-mgr steps pg_num towards its target; pgp_num takes its new
    value at once."""
    pool: str
    pg_num: int
    pgp_num: int


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


Action = Union[SetFlag, SetBalancer, SetOption, SetAutoscale, SetWeight, SetPoolRule,
               SetPoolPgs, SetCrushMap, SetEntry]
