# SPDX-License-Identifier: LGPL-2.1-or-later
"""The state of one decision: the observation, and the decisions so far."""
import functools
from dataclasses import dataclass, field, replace
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Tuple

from ..cluster.types import Placement, Pool, UpmapEntry, pool_of, seed_of
from ..errors import Reason
from ..events import Event
from ..observation import Observation
from ..options import Options
from ..upmap.pins import INCOMPLETE, stays
from ..upmap.semantics import out_osds
from ..watch.stop_conditions import Stop
from .moves import Move, MoveIndex, path_osds
from .pin_index import PinIndex
from .types import Action, Campaign, Phase, PinRecord


#: Report periods after which a PG that the OSDMap never showed remapped has peered even though
#: others are peering. If it were peering as well, the OSDMap would already show its acting set.
PEERING_PATIENCE_PERIODS = 6


@dataclass(frozen=True)
class CampaignDecision:
    """The actions, and the state of the campaign after them."""
    campaign: Campaign
    actions: Tuple[Action, ...] = ()
    #: Pins to note before the actions are sent, and pins to forget.
    pins: Mapping[str, PinRecord] = field(default_factory=dict)
    unpins: FrozenSet[str] = frozenset()
    reasons: Tuple[Reason, ...] = ()
    events: Tuple[Event, ...] = ()


def has_own_crush(campaign: Campaign, seen: Observation) -> bool:
    """Whether CRUSH is as the campaign has left it, regardless of its version."""
    return campaign.crush_own == seen.crush_version or (
        campaign.crush_own >= 0 and campaign.crush_identity == seen.crush.identity)


class Turn:
    """Collects a CampaignDecision; the inputs are not changed."""

    def __init__(self, campaign: Campaign, pins: Mapping[str, PinRecord],
                 moves: Mapping[str, Move], seen: Observation, options: Options) -> None:
        self.campaign = campaign
        self.moves = MoveIndex.of(moves)
        self.seen = seen
        self.options = options
        self.out = out_osds(seen.osdmap.osds)
        self.actions: List[Action] = []
        self.reasons: List[Reason] = []
        self.events: List[Event] = []
        self.unpins: Dict[str, None] = {}
        #: The stop conditions of releases that touch certain OSDs or pools.
        self.stops: List[Stop] = []
        self.new_pins: Dict[str, PinRecord] = {}
        self._pins = PinIndex.of(pins)

    @property
    def now(self) -> float:
        return self.seen.now

    @property
    def pin_count(self) -> int:
        """PGs with a pin, including pins that were sent and are not in the OSDMap yet."""
        fresh = sum(1 for pgid in self.new_pins if pgid not in self._pins)
        return len(self._pins) + fresh - len(self.unpins)

    def pin_of(self, pgid: str) -> Optional[PinRecord]:
        if pgid in self.unpins:
            return None
        return self.new_pins.get(pgid) or self._pins.get(pgid)

    def pinned(self) -> PinIndex:
        """The pins from before this turn."""
        return self._pins

    def note_pin(self, pgid: str, pin: PinRecord) -> None:
        self.unpins.pop(pgid, None)
        earlier = self._in_force(pgid, pin)
        self.new_pins[pgid] = pin if pin.earlier == earlier else replace(pin, earlier=earlier)

    def _in_force(self, pgid: str, pin: PinRecord) -> Optional[UpmapEntry]:
        """The entry of the record that `pin` replaces, if it is in force or may be later, since the
        mons may have it in their queue: this mgr may end before it sends anything."""
        old, present = self._pins.get(pgid), self.seen.osdmap.entry(pgid)
        if old is None or present == pin.entry:
            return None
        if present in old.ours:
            return present
        if pin.entry == old.entry:
            return old.earlier
        return old.entry if pgid in self.campaign.pinning else None

    def forget_pin(self, pgid: str) -> None:
        self.new_pins.pop(pgid, None)
        if pgid in self._pins:
            self.unpins[pgid] = None

    def set(self, **changes: Any) -> None:
        self.campaign = replace(self.campaign, **changes)

    def enter(self, phase: Phase, why: str = '') -> None:
        if phase is not self.campaign.phase:
            self.event('phase', 'campaign %d: %s' % (self.campaign.id, phase.value), why)
            self.set(phase=phase, phase_since=self.now)

    def because(self, code: str, text: str) -> None:
        self.reasons.append(Reason(code, text))

    def event(self, kind: str, what: str, why: str = '') -> None:
        self.events.append(Event(kind, what, why))

    def pool(self, pgid: str) -> Optional[Pool]:
        """The pool of a PG that exists; None once the pool or the PG is gone."""
        pool = self.seen.osdmap.pools.get(pool_of(pgid))
        return pool if pool is not None and seed_of(pgid) < pool.pg_num else None

    @functools.cached_property
    def lost(self) -> bool:
        """Whether an OSD is down and not replaced by others in its PGs yet."""
        return any(osd.is_down_but_in for osd in self.seen.osdmap.osds.values())

    def stays(self, pgid: str, pool: Pool, place: Placement) -> bool:
        """As upmap.pins.stays; not while the up set may only lack an OSD that is down, unless that
        was known before."""
        known = self.campaign.unpinnable.get(pgid) == INCOMPLETE
        return (known or not self.lost) and stays(pool, place.up, place.acting)

    @functools.cached_property
    def in_transition(self) -> int:
        """PGs between two intervals, without unreported PGs of other pools, which may remain so,
        for example if their OSDs are lost."""
        counts, pools = self.seen.signals.counts, self.seen.signals.pool_counts
        if not counts.unreported:
            return counts.in_transition
        pgids = (*self.new_pins, *self.campaign.in_flight, *self.seen.osdmap.pg_temp)
        own = {*self._pins.pools, *map(pool_of, pgids)} & set(self.seen.osdmap.pools)
        if not own <= pools.keys():
            return counts.in_transition
        unknown = sum(pools[pool].unreported for pool in own)
        return counts.in_transition - max(0, counts.unreported - unknown)

    def has_peered(self, since: float) -> bool:
        """Whether a PG whose up set changed then, and that is not remapped, is in place: after two
        reports of PG states without peering PGs. A PG without data never asks for its old acting
        set."""
        age = self.now - since
        return age > 2 * self.seen.stats_period and (
            self.in_transition == 0 or age > PEERING_PATIENCE_PERIODS * self.seen.stats_period)

    def peering_room(self) -> int:
        """PGs that may be sent through an interval change now.

        Counts the peering PGs of the statistics, and flights that these do not show yet.
        """
        unseen = sum(
            1 for flight in self.campaign.in_flight.values()
            if flight.confirmed is None or (
                not flight.seen_remapped
                and self.now - flight.confirmed < self.seen.stats_period))
        return self.peering_limit() - max(self.in_transition, unseen)

    def peering_limit(self) -> int:
        """PGs that may be peering or activating at a time."""
        return max(8, int(self.options.max_transition_ratio * self.seen.signals.counts.total))

    def decision(self) -> CampaignDecision:
        return CampaignDecision(
            self.campaign, tuple(self.actions), self.new_pins, frozenset(self.unpins),
            tuple(self.reasons), tuple(self.events))


def flight_osds(turn: Turn) -> FrozenSet[int]:
    """OSDs of PGs in flight."""
    flights = turn.campaign.in_flight.values()
    return frozenset(osd for flight in flights for osd in path_osds(flight))
