# SPDX-License-Identifier: LGPL-2.1-or-later
"""The state of a campaign, as frozen data."""
from dataclasses import dataclass, field
from typing import Annotated, FrozenSet, Mapping, Optional, Tuple

from ..cluster.types import OsdMap, OsdSet
from ..codec import BY_PG
from ..upmap.pins import INCOMPLETE, Unpinnable
from .change import ChangeStage, Led
from .changes import AnyChange
from .copying import Copying
from .progress import Limits, Progress
from .stalls import Stalls
from .types import ENDED, Flight, Holds, Pace, Phase, Sent, UnpinnablePgs

#: Campaign.kept_mark once everything that was pinned has been kept.
KEPT_ALL = 'all'


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
    change: Optional[AnyChange] = None
    #: CRUSH version when it began.
    crush_version: int = 0
    #: The CRUSH version that holds what the campaign, or the operator for it, has changed and
    #: nothing later; -1: others changed CRUSH along with it.
    crush_own: int = -1
    #: CrushRules.identity of that version; 0: not known, as in earlier documents.
    crush_identity: int = 0
    #: The change that restores CRUSH from before the campaign, after a rollback was requested.
    back: Optional[AnyChange] = None
    #: That change has begun.
    rolled_back: bool = False
    #: The change that it undoes.
    undone: Optional[AnyChange] = None
    #: OSDs that an aborted campaign was emptying when this one took over its pins.
    draining: OsdSet = ()
    #: OSDs to which the operator's own change has given CRUSH weight 0: their PGs are movement of
    #: the campaign, no evacuation.
    emptied: OsdSet = ()
    #: The pins that it begins with are not all stored yet. Only counts while it is PREPARED.
    storing: bool = False
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

    @property
    def drained(self) -> OsdSet:
        """OSDs that its change empties."""
        return () if self.change is None else self.change.drained

    @property
    def ahead(self) -> Mapping[str, Led]:
        """PGs that were led to their place by an upmap."""
        return {} if self.change is None else self.change.ahead

    def way_back(self, osdmap: OsdMap) -> str:
        """The command that undoes its change once it is aborted; '': there is none."""
        return 'campaign rollback' if self.change is None else self.change.way_back(osdmap)

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
