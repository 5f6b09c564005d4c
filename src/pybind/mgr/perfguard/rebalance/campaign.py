# SPDX-License-Identifier: LGPL-2.1-or-later
"""The state of a campaign, as frozen data.

It consists of groups of fields. Each group is a type, with methods for changes of several fields at
once: `Holds` and `Pace` in types.py, `Progress`, `Stalls`, `Copying` and `Bill` in the files of
these names, the others here.
"""
import zlib
from dataclasses import dataclass, field, replace
from typing import (AbstractSet, Annotated, Collection, Dict, FrozenSet, Iterable, List, Mapping,
                    Optional, Tuple, Union)

from ..cluster.types import OsdMap, OsdSet
from ..codec import BY_PG, As, Time
from ..observation import Observation
from ..upmap.pins import INCOMPLETE, Unpinnable
from .balancing import BalanceChange
from .bill import Bill
from .change import ChangeStage, Led
from .copying import Copying
from .pg_num import PgNumChange
from .pool_rule import RuleChange
from .progress import Progress
from .stalls import Stalls
from .types import ENDED, Flight, Holds, Landed, Pace, Phase, Sent, UnpinnablePgs
from .weights import WeightChange
from .whole_map import MapChange

#: All kinds of changes. doc/dev/perfguard.rst lists what another kind requires.
AnyChange = Union[WeightChange, MapChange, RuleChange, PgNumChange, BalanceChange]

#: Number of accepted undersized PGs that a campaign lists.
LISTED_UNDERSIZED = 1000
#: Seconds after which it is stored how much of a pause is left: a failover makes a pause longer by
#: at most as much, and by the time without an active mgr.
COUNT_SECONDS = 60.0


@dataclass(frozen=True)
class Origin:
    """How the campaign began; it never changes."""
    started: Time
    trigger: str = 'operator'
    first_epoch: int = 0
    #: The saved plan that it executes, and the token of that plan; '': none.
    plan: str = ''
    plan_token: str = ''


#: A reweight of 1 in the OSDMap.
_REWEIGHT_UNITS = 0x10000


def _packed_reweights(reweights: Mapping[int, float]) -> bytes:
    """Two bytes for each OSD id, 0 for those without a reweight, and compressed: the document of a
    campaign is written every few seconds, and all of 5,000 OSDs may have a reweight."""
    return zlib.compress(b''.join(
        round(_REWEIGHT_UNITS * reweights.get(osd, 0.0)).to_bytes(2, 'big')
        for osd in range(max(reweights, default=-1) + 1)))


def _unpacked_reweights(packed: bytes) -> Dict[int, float]:
    units = zlib.decompress(packed)
    return {osd: unit / _REWEIGHT_UNITS for osd in range(len(units) // 2)
            for unit in [int.from_bytes(units[2 * osd:2 * osd + 2], 'big')] if unit}


#: OSD -> its reweight, above 0 and below 1.
_Reweights = Annotated[Mapping[int, float], As(bytes, _packed_reweights, _unpacked_reweights)]


@dataclass(frozen=True)
class OwnCrush:
    """Which CRUSH map contains what the campaign has changed."""
    #: CRUSH version when it began, or when its change was complete; -1: unknown.
    version: int = 0
    #: The CRUSH version that holds what the campaign, or the operator for it, has changed and
    #: nothing later; -1: others changed CRUSH along with it.
    own: int = -1
    #: CrushRules.identity of that version.
    identity: int = 0
    #: OSDs that an aborted campaign was emptying when this one took over its pins.
    draining: OsdSet = ()
    #: OSDs to which the operator's own change has given CRUSH weight 0: their PGs are movement of
    #: the campaign, no evacuation.
    emptied: OsdSet = ()
    #: The reweights below 1 from at least a minute before the campaign, or to which others have
    #: raised them since: PGs that CRUSH rejects by these are movement of the campaign. Without
    #: those of OSDs that PGs were leaving when it began, maybe because of their reweights.
    reweights: _Reweights = field(default_factory=dict)

    def is_own(self, observation: Observation) -> bool:
        """Whether CRUSH is as the campaign has left it, regardless of its version."""
        return self.own == observation.crush_version or (
            self.own >= 0 and self.identity == observation.crush.identity)

    def accepted(self, observation: Observation) -> 'OwnCrush':
        """With the present CRUSH map as the operator's own change for the campaign."""
        version = self.version
        if self.own == version and self.is_own(observation):
            # Nothing has changed yet: the mons have renumbered the map from before.
            version = observation.crush_version
        return replace(self, version=version, own=observation.crush_version,
                       identity=observation.crush.identity)

    def claimed(self, observation: Observation, is_ours: bool) -> 'OwnCrush':
        """With the present CRUSH map as the campaign's, unless others changed it as well."""
        return replace(self, own=observation.crush_version if is_ours else -1,
                       identity=observation.crush.identity)


@dataclass(frozen=True)
class Rollback:
    #: The change that restores CRUSH from before the campaign, after a rollback was requested.
    wanted: Optional[AnyChange] = None
    #: That change has begun.
    begun: bool = False
    #: The change that it undoes.
    undone: Optional[AnyChange] = None

    def started(self, change: Optional[AnyChange]) -> 'Rollback':
        """`change`: the one in force or on its way before."""
        return Rollback(begun=True, undone=self.undone if self.begun else change)


@dataclass(frozen=True)
class Orders:
    """What the operator has ordered since the campaign began."""
    #: Stopped by the operator, not by a stop condition.
    paused: bool = False
    #: When a pause was ordered.
    paused_at: Time = 0.0
    #: The seconds of it that were left when they were last counted, and when that was; 0: it ends
    #: with "resume" only. The clock of the next mgr may differ, and nothing moves too early: time
    #: without an active mgr does not count.
    paused_seconds: float = 0.0
    paused_counted: Time = 0.0
    #: finish --keep: the remaining pins become ordinary upmaps.
    keep: bool = False
    #: Codes of stop conditions that the operator has waived.
    acknowledged: Tuple[str, ...] = ()
    #: Since when the conditions of such codes are absent.
    absent: Mapping[str, Time] = field(default_factory=dict)
    #: How many PGs without a pin may move at once: those that "campaign start" accepted, or that
    #: the last tranche moves. 0 again once they are in flight.
    accepted_unpinnable: int = 0
    #: Options of this campaign only, as text.
    settings: Mapping[str, str] = field(default_factory=dict)

    def pausing(self, now: float, seconds: float) -> 'Orders':
        """`seconds`: 0: until "resume"."""
        return replace(self, paused=True, paused_at=now, paused_seconds=seconds,
                       paused_counted=now)

    def with_pause_counted(self, now: float) -> 'Orders':
        """With the rest of a pause counted again, at intervals, for a later mgr."""
        if not self.paused_seconds or now - self.paused_counted < COUNT_SECONDS:
            return self
        return replace(self, paused_seconds=self.paused_until - now, paused_counted=now)

    def taken_over(self, now: float) -> 'Orders':
        """With a pause that goes on for the seconds that were left when they were last counted. For
        the orders of an earlier mgr, or after a time in which another one may have been active."""
        return replace(self, paused_counted=now) if self.paused_seconds else self

    def resumed(self) -> 'Orders':
        return replace(self, paused=False, paused_seconds=0.0, paused_counted=0.0)

    @property
    def paused_until(self) -> float:
        """When the pause ends; 0: with "resume" only."""
        return self.paused_seconds and self.paused_counted + self.paused_seconds

    def accepting(self, *codes: str) -> 'Orders':
        return replace(self, acknowledged=tuple(dict.fromkeys((*self.acknowledged, *codes))),
                       absent={code: since for code, since in self.absent.items()
                               if code not in codes})

    def without_past(self, absent: AbstractSet[str], now: float, seconds: float) -> 'Orders':
        """Without waived codes whose conditions have been absent for `seconds`: a later condition
        is another incident. `absent`: codes whose conditions are absent now."""
        since = {code: min(now, self.absent.get(code, now)) for code in sorted(absent)}
        past = {code for code in since if now - since[code] >= seconds}
        return replace(
            self, acknowledged=tuple(code for code in self.acknowledged if code not in past),
            absent={code: begin for code, begin in since.items() if code not in past})

    def with_setting(self, name: str, value: str) -> 'Orders':
        """`value`: '' removes the setting."""
        settings = {**self.settings, name: value}
        return replace(self, settings={name: value for name, value in settings.items() if value})

    def over(self) -> 'Orders':
        return replace(self, paused=False, acknowledged=(), absent={})


@dataclass(frozen=True)
class Basis:
    """What goals were computed from, by digests: if one changes, they are computed again."""
    #: CRUSH, the options of the balance and the weights of the OSDs.
    common: str
    #: What places the PGs of each pool that has pins, by pool id.
    pools: Mapping[int, str]
    #: OSDs that were down, and without which some PGs could not be placed.
    absent: FrozenSet[int] = frozenset()

    def covers(self, now: 'Basis') -> bool:
        """Whether `now` is the same. Pools that have no pins anymore do not matter."""
        return self.common == now.common and now.pools.items() <= self.pools.items()


@dataclass(frozen=True)
class GoalsMark:
    """Which goals are in the pins."""
    #: The number of their computation in this campaign; 0: none were computed.
    number: int = 0
    #: None: only a part of them is in the pins.
    basis: Optional[Basis] = None

    def being_stored(self) -> 'GoalsMark':
        """While a part of new goals is in the pins."""
        return GoalsMark(self.number)


#: Pinning.trials: what the mons did with a pin.
TRIAL_KEPT, TRIAL_REFUSED = 'kept', 'refused'


@dataclass(frozen=True)
class Pinning:
    """Pins that are on their way, and PGs that cannot be pinned."""
    #: Pins that were sent and not read back yet; when pins, or other commands that take effect like
    #: them, were last sent.
    sent: Annotated[Mapping[str, Sent], BY_PG] = field(default_factory=dict)
    sent_at: Time = 0.0
    #: The CRUSH version in which the mons have refused pins.
    refused_crush: int = -1
    unpinnable: UnpinnablePgs = field(default_factory=dict)
    #: Rules under which the mons were expected to cancel every upmap: the checksum of the steps ->
    #: the PG that was pinned nevertheless, to see what they do, and then what they did (TRIAL_KEPT,
    #: TRIAL_REFUSED). A later pin of this PG says nothing.
    trials: Mapping[int, str] = field(default_factory=dict)
    #: PGs that lacked an OSD, and so could not be pinned, when its change was ordered, and have not
    #: recovered since; how many more there were.
    undersized_pgs: Tuple[str, ...] = ()
    undersized: int = 0
    #: PGs that leave OSDs which are to be emptied, and whose other shards cannot be pinned; only
    #: known to this mgr.
    let_go: FrozenSet[str] = field(default=frozenset(), compare=False)
    #: With how many pins PINNING has ended: releases begin with these. 0: not known.
    begun_with: int = 0
    goals: GoalsMark = GoalsMark()
    #: The goals whose stayers were the last to be counted as kept; None: all pins were.
    kept_mark: Optional[GoalsMark] = GoalsMark()

    @property
    def incomplete(self) -> Mapping[str, Unpinnable]:
        """The unpinnable PGs that have nowhere to move. While an OSD is down this cannot be found
        out again: it may be the OSD that their up sets lack."""
        return {pgid: why for pgid, why in self.unpinnable.items() if why == INCOMPLETE}

    @property
    def kept_rules(self) -> FrozenSet[int]:
        """Checksums of the rules under which the mons have kept a pin against expectation."""
        return frozenset(rule for rule, tried in self.trials.items() if tried == TRIAL_KEPT)

    def tried(self, pgid: str, result: str) -> 'Pinning':
        """With the result (TRIAL_KEPT or TRIAL_REFUSED) of the pin of a PG. Unchanged unless a rule
        is being tried with this PG."""
        return replace(self, trials={rule: result if tried == pgid else tried
                                     for rule, tried in self.trials.items()})

    def cancelled_under(self, rule: int) -> 'Pinning':
        """With a pin that the mons have cancelled under the rule with this checksum: if they kept
        upmaps under it before, they may be of an older release now."""
        return replace(self, trials={**self.trials, rule: TRIAL_REFUSED}) \
            if rule in self.kept_rules else self

    def sending(self, pgids: Iterable[str], now: float) -> 'Pinning':
        return replace(self, sent_at=now, sent={**self.sent, **dict.fromkeys(pgids, Sent(now))})

    def sending_only(self, pgids: Collection[str], now: float) -> 'Pinning':
        """No other pin is awaited any longer."""
        return replace(self, sent=dict.fromkeys(pgids, Sent(now)),
                       sent_at=now if pgids else self.sent_at)

    def delayed(self, seconds: float) -> 'Pinning':
        """The mons have kept commands waiting for so long, and no OSDMap was looked at meanwhile:
        pins are awaited from that much later on."""
        return replace(self, sent={pgid: replace(sent, since=sent.since + seconds)
                                   for pgid, sent in self.sent.items()})

    def count_again(self, unanswered: Iterable[str]) -> 'Pinning':
        """Some pins were sent without an answer: these attempts do not count."""
        return replace(self, sent={**self.sent, **{
            pgid: replace(self.sent[pgid], times=self.sent[pgid].times - 1)
            for pgid in unanswered if pgid in self.sent}})

    def with_unpinnable(self, pgid: str, why: Unpinnable) -> 'Pinning':
        return replace(self, unpinnable={**self.unpinnable, pgid: why})

    def tried_again(self) -> 'Pinning':
        """PGs that could not be pinned are tried again."""
        return replace(self, unpinnable=self.incomplete)

    def accepting_undersized(self, pgids: Collection[str]) -> 'Pinning':
        """An order accepts these PGs although they are undersized."""
        listed = tuple(pgids)[:LISTED_UNDERSIZED]
        return replace(self, undersized_pgs=listed, undersized=len(pgids) - len(listed))

    def for_campaign_document(self) -> 'Pinning':
        """Without what has another document (`unpinnable`), or is not stored at all (`let_go`)."""
        return replace(self, unpinnable={}, let_go=frozenset())


@dataclass(frozen=True)
class Flights:
    """Released PGs that are moving."""
    in_flight: Mapping[str, Flight] = field(default_factory=dict)
    #: PGs that were pinned back, or count as not released, although a command with their release
    #: was not read back: the mons may still receive it, for example from an mgr that was replaced.
    recalled: Tuple[str, ...] = ()
    #: When data of PGs in flight was last seen to be copied; the number of misplaced objects in the
    #: last turn, only known to this mgr.
    copied: Time = 0.0
    misplaced: int = field(default=0, compare=False)
    #: PGs that have landed so recently that OSDs may not have reported them; see pg_limit.py. Only
    #: known to this mgr.
    landed: Tuple[Landed, ...] = field(default=(), compare=False)

    def joined_by(self, flights: Mapping[str, Flight]) -> 'Flights':
        return replace(self, in_flight={**self.in_flight, **flights})


@dataclass(frozen=True)
class Campaign:
    #: 0: there is none, see NO_CAMPAIGN.
    id: int
    origin: Origin
    phase: Phase
    #: When the present phase began.
    phase_since: Time = 0.0
    ended: Optional[Time] = None
    #: ABORTED with pins, or PGs that could not be pinned: the settings that keep them where they
    #: are stay borrowed until the operator decides. Remaining pins meanwhile.
    held: bool = False
    left: int = 0
    #: It enters each phase automatically; also once an operator has started it and it has to pin
    #: further PGs.
    automatic: bool = False
    #: The pins that it begins with are not all stored yet, or still have the goals of the aborted
    #: campaign that it continues. An abort does not wait for that, and what follows it does.
    storing: bool = False
    target: str = 'crush'
    #: Its own change of CRUSH; None: the operator makes the change.
    change: Optional[AnyChange] = None
    rollback: Rollback = Rollback()
    crush: OwnCrush = OwnCrush()
    orders: Orders = Orders()
    holds: Holds = Holds()
    pinning: Pinning = Pinning()
    flights: Flights = Flights()
    progress: Progress = Progress()
    #: The state of the throttle, the stalls of its releases, and its pace of copying.
    pace: Pace = Pace()
    stalls: Stalls = Stalls()
    copying: Copying = Copying()
    bill: Bill = Bill()

    def reopened(self, phase: Phase, now: float) -> 'Campaign':
        """In a phase that an order leads to; nothing is held any longer."""
        return replace(self, phase=phase, phase_since=now, held=False, left=0)

    @property
    def active(self) -> bool:
        return self.phase not in ENDED

    @property
    def drained(self) -> OsdSet:
        """OSDs that its change empties."""
        return () if self.change is None else self.change.drained

    @property
    def ahead(self) -> Mapping[str, Led]:
        """PGs that were led to their place by an upmap."""
        return {} if self.change is None else self.change.ahead

    @property
    def changes(self) -> Tuple[Optional[AnyChange], ...]:
        """Its change, the one of a rollback that was requested, and the one that it undoes."""
        return self.change, self.rollback.wanted, self.rollback.undone

    @property
    def led_ahead(self) -> List[Mapping[str, Led]]:
        """`ahead` of each of `changes`."""
        return [{} if change is None else change.ahead for change in self.changes]

    def with_led_ahead(self, mappings: Iterable[Mapping[str, Led]]) -> 'Campaign':
        """With `mappings` as the `ahead` of each of `changes`; a change that is None stays so."""
        change, wanted, undone = (change and replace(change, ahead=ahead)
                                  for change, ahead in zip(self.changes, mappings))
        return replace(self, change=change, rollback=replace(
            self.rollback, wanted=wanted, undone=undone))

    def way_back(self, osdmap: OsdMap) -> str:
        """The command that undoes its change once it is aborted; '': there is none."""
        if self.no_way_back:
            return ''
        return 'campaign rollback' if self.change is None else self.change.way_back(osdmap)

    @property
    def no_way_back(self) -> bool:
        """Whether a rollback was ordered already, or CRUSH from before is not known."""
        return self.rolls_back or self.crush.version < 0

    @property
    def rolls_back(self) -> bool:
        """Whether a rollback was ordered, unless it was aborted before all of its change was in
        force."""
        unfinished = (self.phase is Phase.ABORTED and self.change is not None
                      and self.change.stage is ChangeStage.WANTED)
        return self.rollback.wanted is not None or self.rollback.begun and not unfinished

    @property
    def keeps_pins(self) -> bool:
        """Further tranches of a rollback follow, of PGs that cannot be pinned. It makes the pins of
        the others unnecessary, or releases them with the last one, so that no PG moves twice."""
        return self.rollback.begun and self.change is not None and self.change.partly

    def idle_seconds(self, now: float) -> float:
        """Seconds without progress: since a PG was last released or arrived, pins were last sent,
        or the phase began."""
        return now - max(self.progress.progressed, self.phase_since, self.pinning.sent_at)

    @property
    def removes_upmaps(self) -> bool:
        """The change makes pins unnecessary, which are removed once it is read back."""
        return self.rollback.begun or self.change is not None and self.change.removes_upmaps

    @property
    def moving_first(self) -> bool:
        """The change is made once PGs are where it allows them to be."""
        return self.change is not None and self.change.moving_first

    @property
    def open(self) -> bool:
        """The loop must handle it in every turn."""
        return self.active or self.held

    @property
    def kept_now(self) -> int:
        """PGs that an upmap keeps in place, permanently or until the operator decides."""
        return self.progress.kept + self.left


#: The state of an mgr that knows no campaign. One that has ended is kept until the next one begins.
NO_CAMPAIGN = Campaign(0, Origin(0.0), Phase.IDLE)
