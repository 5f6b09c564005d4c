# SPDX-License-Identifier: LGPL-2.1-or-later
"""A decision in the making: frozen, like the observation that it is based on.

A rule takes a draft and returns the next one, with a later state of the campaign, further actions,
reasons and events. Predicates only read drafts. So nothing but the return value of a rule can have
an effect, and `then` is the only way to combine rules.
"""
import functools
from dataclasses import dataclass, field, replace
from typing import Any, Callable, FrozenSet, Iterable, Mapping, Optional, Tuple

from ..cluster.types import Placement, Pool, UpmapEntry, pool_of, seed_of
from ..errors import Reason
from ..events import Event
from ..observation import Observation
from ..options import Options
from ..upmap.pins import INCOMPLETE, has_no_target
from ..watch.stop_conditions import Stop
from .campaign import Campaign
from .moves import Move, MoveIndex, route_osds
from .pin_index import PinIndex
from .states import STATES
from .types import Action, Phase, PinRecord, SetFlag

#: Report periods after which a PG that the OSDMap never showed remapped has peered even though
#: others are peering. If it were peering as well, the OSDMap would already show its acting set.
PEERING_PATIENCE_PERIODS = 6


@dataclass(frozen=True)
class Draft:
    observed: Observation
    options: Options
    #: The pins from before the turn, and the moves of their releases.
    pins: PinIndex
    moves: MoveIndex
    #: The state of the campaign after the actions.
    campaign: Campaign
    actions: Tuple[Action, ...] = ()
    reasons: Tuple[Reason, ...] = ()
    events: Tuple[Event, ...] = ()
    #: New and changed pins, to be noted before the actions are sent.
    new_pins: Mapping[str, PinRecord] = field(default_factory=dict)
    #: PGs whose pins from before the turn are forgotten.
    unpins: FrozenSet[str] = frozenset()
    #: The stop conditions of releases that touch certain OSDs or pools.
    stops: Tuple[Stop, ...] = ()
    #: OSDs that are too full: outside the time window, only PGs that leave them are released.
    #: Empty: the window is open.
    relieved: FrozenSet[int] = frozenset()
    #: Remapped PGs that are left to be pinned in later turns.
    to_pin: int = 0
    #: The cluster shows the settings that the campaign has borrowed.
    settings_in_force: bool = False
    #: The phase requires norebalance, but others have cleared it, and it is not set again.
    lacks_flag: bool = False

    @classmethod
    def of(cls, campaign: Campaign, pins: Mapping[str, PinRecord], moves: Mapping[str, Move],
           observation: Observation, options: Options) -> 'Draft':
        return cls(observation, options, PinIndex.of(pins), MoveIndex.of(moves), campaign)

    def moves_data(self, before: Campaign) -> bool:
        """Whether this decision on a campaign releases PGs, sends a change of CRUSH or of a pool,
        or lets data move by clearing a flag."""
        released = self.campaign.flights.in_flight.keys() - before.flights.in_flight.keys()
        return bool(released) or self.campaign.change != before.change or any(
            isinstance(action, SetFlag) and not action.on for action in self.actions)

    # ---- what rules return

    def then(self, *rules: 'Rule') -> 'Draft':
        """The draft after these rules, one after the other."""
        return functools.reduce(lambda draft, rule: rule(draft), rules, self)

    def set(self, **changes: Any) -> 'Draft':
        """The draft with other values of these fields of its campaign."""
        return replace(self, campaign=replace(self.campaign, **changes))

    def enter(self, phase: Phase, why: str = '') -> 'Draft':
        """The draft with the campaign in this phase, which STATES allows, and an event with the
        reason; unchanged if it is there already."""
        if phase is self.campaign.phase:
            return self
        assert phase in STATES[self.campaign.phase].exits, (self.campaign.phase, phase)
        return self.event('phase', 'campaign %d: %s' % (self.campaign.id, phase.value), why) \
            .set(phase=phase, phase_since=self.now)

    def because(self, code: str, text: str) -> 'Draft':
        return self.report(Reason(code, text))

    def report(self, *reasons: Reason) -> 'Draft':
        return replace(self, reasons=self.reasons + reasons)

    def event(self, kind: str, subject: str, why: str = '') -> 'Draft':
        return replace(self, events=(*self.events, Event(kind, subject, why)))

    def send(self, *actions: Action) -> 'Draft':
        return replace(self, actions=self.actions + actions)

    def note_pins(self, pins: Mapping[str, PinRecord]) -> 'Draft':
        """The draft with new or changed pins."""
        noted = {pgid: self._with_earlier(pgid, pin) for pgid, pin in pins.items()}
        return replace(self, new_pins={**self.new_pins, **noted}, unpins=self.unpins - pins.keys())

    def forget_pins(self, pgids: Iterable[str]) -> 'Draft':
        """The draft without the pins of these PGs, also those of this turn. Their upmaps stay as
        they are."""
        forgotten = frozenset(pgids)
        remaining = {pgid: pin for pgid, pin in self.new_pins.items() if pgid not in forgotten}
        return replace(self, new_pins=remaining, unpins=self.unpins | frozenset(
            pgid for pgid in forgotten if pgid in self.pins))

    def _with_earlier(self, pgid: str, pin: PinRecord) -> PinRecord:
        """The record with `earlier`: the entry of ours that may be in force instead of the new one,
        either because the OSDMap shows it, or because it was sent and is not read back. It matters
        if this mgr fails before it sends the new entry, or if the mons are late."""
        old, present = self.pins.get(pgid), self.observed.osdmap.entry(pgid)
        is_awaited = pgid in self.campaign.pinning.sent
        earlier: Optional[UpmapEntry] = None
        if old is None:
            pass
        elif present != pin.entry:
            if present in old.ours:
                earlier = present
            elif pin.entry == old.entry:
                earlier = old.earlier
            elif is_awaited:
                earlier = old.entry
        elif is_awaited and pin.entry == old.earlier:
            earlier = old.entry  # which was awaited in vain
        elif not is_awaited and pin.entry == old.entry:
            earlier = old.earlier
        return pin if pin.earlier == earlier else replace(pin, earlier=earlier)

    # ---- what predicates read

    @property
    def out(self) -> FrozenSet[int]:
        return self.observed.osdmap.out

    @property
    def lost(self) -> bool:
        """Whether an OSD is down and not replaced by others in its PGs yet."""
        return self.observed.osdmap.lost

    @property
    def now(self) -> float:
        return self.observed.now

    @property
    def pin_count(self) -> int:
        """PGs with a pin, including pins that were sent and are not in the OSDMap yet."""
        fresh = sum(1 for pgid in self.new_pins if pgid not in self.pins)
        return len(self.pins) + fresh - len(self.unpins)

    def pin_of(self, pgid: str) -> Optional[PinRecord]:
        if pgid in self.unpins:
            return None
        return self.new_pins.get(pgid) or self.pins.get(pgid)

    def pool(self, pgid: str) -> Optional[Pool]:
        """The pool of a PG that exists; None once the pool or the PG is gone."""
        pool = self.observed.osdmap.pools.get(pool_of(pgid))
        return pool if pool is not None and seed_of(pgid) < pool.pg_num else None

    def has_no_target(self, pgid: str, pool: Pool, place: Placement) -> bool:
        """Whether CRUSH has no place to which the PG could move (upmap.pins.has_no_target). While
        the up set may only lack an OSD that is down, True only if that was known before."""
        known_before = self.campaign.pinning.unpinnable.get(pgid) == INCOMPLETE
        return (known_before or not self.lost) and has_no_target(pool, place.up, place.acting)

    @functools.cached_property
    def in_transition(self) -> int:
        """The number of PGs between two intervals, by the last report. Unreported PGs of pools that
        the campaign does not touch do not count: these may remain so, for example if their OSDs are
        lost."""
        counts, counts_by_pool = self.observed.signals.counts, self.observed.signals.pool_counts
        if not counts.unreported:
            return counts.in_transition
        pgids = (*self.new_pins, *self.campaign.flights.in_flight, *self.observed.osdmap.pg_temp)
        pool_ids = {*self.pins.pools, *map(pool_of, pgids)} & set(self.observed.osdmap.pools)
        if not pool_ids <= counts_by_pool.keys():
            return counts.in_transition
        unreported = sum(counts_by_pool[pool].unreported for pool in pool_ids)
        return counts.in_transition - max(0, counts.unreported - unreported)

    def has_peered(self, since: float) -> bool:
        """Whether a PG whose up set changed at `since`, and that is not remapped, must have peered
        and so is in place: after two reports of PG states if no PG is peering, or after
        PEERING_PATIENCE_PERIODS. A PG without data never asks for its old acting set."""
        age = self.now - since
        return age > 2 * self.observed.stats_period and (
            self.in_transition == 0 or age > PEERING_PATIENCE_PERIODS * self.observed.stats_period)

    def peering_room(self) -> int:
        """How many more PGs may be sent through an interval change now; 0 or less: none. The limit
        is used up by the PGs that are peering by the last report or, if there are more, by flights
        that this report may not show yet."""
        unseen = sum(
            1 for flight in self.campaign.flights.in_flight.values()
            if flight.confirmed is None or (
                not flight.seen_remapped
                and self.now - flight.confirmed < self.observed.stats_period))
        return self.peering_limit() - max(self.in_transition, unseen)

    def peering_limit(self) -> int:
        """PGs that may be peering or activating at a time."""
        return max(8, int(self.options.max_transition_ratio * self.observed.signals.counts.total))


Rule = Callable[[Draft], Draft]


def flight_osds(campaign: Campaign) -> FrozenSet[int]:
    """OSDs of PGs in flight."""
    flights = campaign.flights.in_flight.values()
    return frozenset(osd for flight in flights for osd in route_osds(flight))
