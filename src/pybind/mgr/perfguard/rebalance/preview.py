# SPDX-License-Identifier: LGPL-2.1-or-later
"""The computed effects of an order, which is then shown to the operator, refused, or executed.

This includes the effects of a change of CRUSH on each OSD, its duration, and the settings that it
borrows. Pure, for any thread.
"""
import errno
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import (Callable, Collection, DefaultDict, Dict, List, Mapping, Optional, Sequence,
                    Tuple, get_args)

from ..cluster.ports import Future, NoFuture, Outlook
from ..cluster.types import ConfigEntry, Document, Json, Signals, Space, UpmapEntry, pool_of
from ..errors import Code
from ..observation import Observation
from ..options import Options
from ..text import pgs, pgs_are, plural
from ..upmap.pins import INCOMPLETE
from ..watch.stop_conditions import Touched
from . import copying
from .campaign import AnyChange, Campaign, Origin
from .capacity import CapacityChange, CrushAndSpace, capacity_change, unreported
from .change import Details, DetailsKey, Planned
from .epochs import GATHER_SECONDS, PROPOSE_INTERVAL, peering_forecast, pin_limit, why_too_many_pins
from .goals import Balanced, preview_balance
from .holds import reconcile, wanted_mon_options
from .join_plan import (NO_BASES, entries_needed, becomes_incomplete, mean_bytes, moved_by_weights,
                        plan_join, undersized)
from .joining import MAX_BURST_PINS
from .moves import Move, Movement, OsdLoad, movement_of, route_osds
from .orders import (Order, OrderFacts, change_of, check_weight_sets, must_fit_by_weight,
                     osds_left_out, weight_warnings)
from .pinning import are_many
from .progress import Eta
from .report import by_the_clock, campaign_rows
from .risks import Risk, risks_json
from .throttle import caps
from .types import Bounds, Holds, Phase
from .weights import WeightChange

#: Maximum number of tranches in which PGs without pins move: each takes minutes on a large cluster.
STEPS_MAX = 100
#: With fewer rates of earlier campaigns than FEW, the time is uncertain by FEW_FACTOR; without any,
#: by ASSUMED_FACTOR.
FEW, FEW_FACTOR, ASSUMED_FACTOR = 3, 2.0, 4.0
#: Where the speed of an estimate comes from.
EARLIER_CAMPAIGNS, ASSUMED = 'earlier campaigns', 'assumed'


@dataclass(frozen=True)
class OsdEffect:
    """One OSD that gains or loses PGs."""
    osd: int
    pgs_before: int
    pgs_after: int
    #: If all incoming PGs arrive before the first one leaves.
    pgs_peak: int
    #: Share of its space; None: it has not reported its size.
    fill_before: Optional[float]
    fill_after: Optional[float]


@dataclass(frozen=True)
class Effects:
    osds: Tuple[OsdEffect, ...]
    eta: Eta
    #: EARLIER_CAMPAIGNS or ASSUMED.
    eta_basis: str
    #: Borrowed settings and their values during the campaign.
    borrowed: Tuple[Tuple[str, str], ...]
    #: mon_max_pg_per_osd; 0: none.
    pg_limit: int = 0
    #: Of the bytes that move: those that clones of snapshots share now.
    clone_bytes: int = 0
    #: OSD -> its space, once all PGs have moved.
    space: Mapping[int, Space] = field(default_factory=dict)

    @property
    def crowded(self) -> Tuple[OsdEffect, ...]:
        """OSDs that would exceed the limit, fullest first."""
        rows = [row for row in self.osds
                if row.pgs_before < row.pgs_after and 0 < self.pg_limit < row.pgs_after]
        return tuple(sorted(rows, key=lambda row: (-row.pgs_after, row.osd)))

    def risks(self, nearfull_ratio: float, undoes: bool = False) -> List[Risk]:
        """The risks that an OSD has more PGs than it may hold, and that one is fuller than
        nearfull.

        `undoes`: the change undoes one that has begun, which must not be prevented by OSDs that are
        beyond their limits already.
        """
        risks = []
        crowded = [row for row in self.crowded if not undoes or row.pgs_before <= self.pg_limit]
        if crowded:
            worst = crowded[0]
            instead = '' if undoes else ': change more OSDs of the host at a time, or lower pg_num'
            risks.append(Risk(Code.PG_LIMIT, '%s would hold more PGs than mon_max_pg_per_osd (%d), '
                              'such as osd.%d with %s%s' % (
                                  plural(len(crowded), 'OSD'), self.pg_limit, worst.osd,
                                  pgs(worst.pgs_after), instead), errno.E2BIG))
        fuller: List[Tuple[float, int]] = []
        for row in self.osds:
            before, after = row.fill_before or 0.0, row.fill_after
            was_nearfull = before > nearfull_ratio
            if after is not None and nearfull_ratio < after > before \
                    and not (undoes and was_nearfull):
                fuller.append((after, row.osd))
        if fuller:
            fill, osd = max(fuller, key=lambda pair: (pair[0], -pair[1]))
            risks.append(Risk(Code.TARGET_FULL, 'not enough space: %s would be fuller than '
                              'nearfull (%d %%), such as osd.%d with %d %%' % (
                                  plural(len(fuller), 'OSD'), 100 * nearfull_ratio, osd,
                                  100 * fill), errno.ENOSPC))
        return risks

    def as_json(self) -> Json:
        return {'osds': [dict(vars(row)) for row in self.osds], 'pg_limit': self.pg_limit,
                'clone_bytes': self.clone_bytes,
                'eta_seconds': round(self.eta.seconds, 1),
                'eta_low_seconds': round(self.eta.low, 1),
                'eta_high_seconds': round(self.eta.high, 1), 'eta_basis': self.eta_basis,
                'borrowed': [{'what': what, 'put': put} for what, put in self.borrowed]}


def effects(moves: Sequence[Move], facts: OrderFacts, observation: Observation,
            options: Options, pgs_by_split: Mapping[int, int]) -> Effects:
    """The effects of a change on each OSD. `moves`: all moves of the campaign; `pgs_by_split`: OSD
    -> PGs that it gets by splits, or (below 0) loses by merges."""
    all_caps = caps(options)
    movement = movement_of(moves, all_caps.pgs, all_caps.target)
    eta, basis = _eta(movement, facts.rates)
    # With the hours in which nothing is released.
    clocked = Eta(*(by_the_clock(seconds, options, observation.wall) for seconds in eta))
    # Pool -> share of its bytes that clones of snapshots share.
    shared = facts.shared
    after = _spaces_after(movement, facts.space, pgs_by_split,
                          _space_beyond_copies(moves, shared, observation.signals))
    return Effects(tuple(_osd_effects(movement, facts.space, pgs_by_split, after)),
                   clocked, basis, tuple(_borrowed(observation, options)), pg_limit=facts.pg_limit,
                   clone_bytes=round(sum(move.bytes * shared.get(pool_of(move.pgid), 0.0)
                                         for move in (moves if shared else ()))),
                   space={**facts.space, **after})


def _space_beyond_copies(moves: Sequence[Move], shared: Mapping[int, float],
                         signals: Signals) -> Dict[int, float]:
    """OSD -> bytes of space that it gains besides those that are copied to it or away: shards take
    more or less space than they store, and what clones share is not freed. `shared`: pool -> share
    of its bytes that clones share."""
    bytes_by_osd: 'DefaultDict[int, float]' = defaultdict(float)
    overheads = {pool: signals.space_of(pool) / stored - 1.0
                 for pool, stored in signals.pool_bytes.items() if stored}
    pools = {pool for pool, overhead in overheads.items() if overhead} | shared.keys()
    for move in moves if pools else ():
        pool = pool_of(move.pgid)
        if move.targets and pool in pools:
            size, overhead = move.bytes / len(move.targets), overheads.get(pool, 0.0)
            for osd in move.sources:
                bytes_by_osd[osd] += size * (shared.get(pool, 0.0) - overhead)
            for osd in move.targets:
                bytes_by_osd[osd] += size * overhead
    return bytes_by_osd


def _spaces_after(movement: Movement, space: Mapping[int, Space], pgs_by_split: Mapping[int, int],
                  beyond_copies: Mapping[int, float]) -> Dict[int, Space]:
    """The space of the OSDs that gain or lose PGs, once all of these have moved. `beyond_copies`:
    from `_space_beyond_copies`."""
    after, loads = {}, {load.osd: load for load in movement.osds}
    for osd in sorted(loads.keys() | pgs_by_split.keys()):
        load = loads.get(osd, OsdLoad(osd, 0, 0, 0, 0))
        row = space.get(osd, Space(0, 0))
        used = row.used_bytes + load.bytes_in - load.bytes_out \
            + round(beyond_copies.get(osd, 0.0))
        after[osd] = Space(row.total_bytes, max(0, used),
                           (row.pgs or 0) + pgs_by_split.get(osd, 0)
                           + load.pgs_in - load.pgs_out)
    return after


def _osd_effects(movement: Movement, space: Mapping[int, Space], pgs_by_split: Mapping[int, int],
                 after: Mapping[int, Space]) -> List[OsdEffect]:
    """PGs and fill of each OSD before and after the change. `after`: the spaces once all PGs have
    moved."""
    rows, arriving = [], {load.osd: load.pgs_in for load in movement.osds}
    for osd, later in after.items():
        row = space.get(osd, Space(0, 0))
        before = row.pgs or 0
        # At the peak, all have arrived, and none has left.
        rows.append(OsdEffect(
            osd, before, later.pgs or 0,
            before + max(0, pgs_by_split.get(osd, 0)) + arriving.get(osd, 0),
            _share(row.used_bytes, row.total_bytes), _share(later.used_bytes, later.total_bytes)))
    return rows


def _share(used: int, total: int) -> Optional[float]:
    return round(used / total, 4) if total > 0 else None


def _eta(movement: Movement, rates: Sequence[float]) -> Tuple[Eta, str]:
    """The estimated time, and where its speed comes from."""
    if not rates:
        seconds = movement.estimated_seconds
        return Eta(seconds, seconds / ASSUMED_FACTOR, seconds * ASSUMED_FACTOR), ASSUMED
    return eta_of(movement.bytes, rates), EARLIER_CAMPAIGNS


def eta_of(size: int, rates: Sequence[float]) -> Eta:
    """The time for so many bytes at the rates of earlier campaigns, the slowest to the fastest of
    them."""
    margin = FEW_FACTOR if len(rates) < FEW else 1.0
    times = sorted(size / rate for rate in rates)
    return Eta(times[len(times) // 2], times[0] / margin, times[-1] * margin)


def _borrowed(observation: Observation, options: Options) -> List[Tuple[str, str]]:
    """Settings that a campaign would borrow now."""
    campaign = Campaign(0, Origin(observation.now), Phase.RELEASING)
    # Settings that were not read would not be borrowed.
    settings = replace(observation.settings, stored=observation.settings.stored or {})
    mon = {PROPOSE_INTERVAL: GATHER_SECONDS,
           **wanted_mon_options(campaign, options, observation.osdmap)}
    holds = reconcile(Holds(), settings, norebalance=True, quiet=True, begin=True, mon=mon).holds
    return [(row.what, row.put) for row in
            campaign_rows(replace(campaign, holds=holds), observation.osdmap, 0)]


def costs(observation: Observation, options: Options) -> Document:
    """Costs of releases for the mons and the OSDs, according to the options."""
    return {'fast_peering': peering_forecast(observation.osdmap, options.fast_peering),
            'copying': {'text': copying.preview_text(options.pace_copying)}}


# ---- The effects of an order

#: How a rollback does with fewer pins.
_FEWER_PINS = 'end the campaign ("campaign abort", then "finish --keep") and "drain" or ' \
    '"undrain" the OSDs, which comes in tranches'
#: Maximum number of unpinnable PGs that an answer lists.
NAMED_PGS = 50


@dataclass(frozen=True)
class Preview:
    change: AnyChange
    planned: Planned = Planned()
    #: Why it is not known where CRUSH will place the PGs, so that no pins can be sent together with
    #: the change; '': it is known.
    no_outlook: str = ''
    crush_map: Optional[bytes] = None
    #: Upmap entries that must take effect in the epoch of the change; None: those of all pins.
    entries: Optional[int] = None
    #: PGs for which CRUSH finds enough OSDs now, and too few with the change.
    incomplete: Tuple[str, ...] = ()
    #: OSDs of CRUSH weight 0 that `expand` does not take, with the reason.
    left_out: Tuple[Tuple[int, str], ...] = ()
    warnings: Tuple[str, ...] = ()
    #: Where CRUSH will place the PGs; what is moved with target=balanced. None: not known, or the
    #: end state is another.
    outlook: Optional[Future] = None
    balanced: Optional[Balanced] = None
    details: Details = Details()
    #: Of a CRUSH map: the moves of the PGs that it does not allow to stay, before it is set.
    first: Tuple[Move, ...] = ()
    #: PGs that a new pg_num makes on each OSD (pgs_by_split); {} for other changes.
    pgs_by_split: Mapping[int, int] = field(default_factory=dict)
    #: Effects on OSDs; None: unknown.
    effects: Optional[Effects] = None
    #: Of a change of CRUSH weights; None: unknown.
    capacity: Optional[CapacityChange] = None
    #: The order; None: a rollback.
    order: Optional[Order] = None

    @property
    def moves(self) -> Sequence[Move]:
        """All moves of the campaign."""
        return (*self.first, *(self.planned.moves.values() if self.balanced is None
                               else self.balanced.moves))

    def with_balance_and_effects(self, order: Order, facts: OrderFacts, observation: Observation,
                                 options: Options) -> 'Preview':
        """The preview with its order, and with all that is computed from the moves: the balance if
        target=balanced, and the effects on OSDs and on the capacity. Without the effects if the
        moves are not known."""
        preview = replace(self, order=order)
        if self.outlook is not None and options.target == 'balanced':
            preview = replace(preview, balanced=preview_balance(
                self.planned, self.outlook, observation, Bounds.of(options), facts.space,
                self.change.settled_pools))
        # Without an outlook, only PGs that move before the change have known moves.
        if self.outlook is None and not self.details.moves_first:
            return preview
        return preview.with_effects(facts, observation, options)

    def with_effects(self, facts: OrderFacts, observation: Observation,
                     options: Options) -> 'Preview':
        """The preview with the effects on OSDs and on the capacity."""
        on_osds = effects(self.moves, facts, observation, options, self.pgs_by_split)
        capacity = None
        if isinstance(self.change, WeightChange) and self.outlook is not None:
            capacity = capacity_change(observation.osdmap,
                                       CrushAndSpace(facts.crush, facts.space),
                                       CrushAndSpace(self.outlook.crush, on_osds.space))
        warning = unreported(observation.osdmap, facts.space, observation.osdmap.osds.keys())
        return replace(self, effects=on_osds, capacity=capacity,
                       warnings=(*self.warnings, warning) if warning else self.warnings)

    @property
    def measured_eta(self) -> Document:
        """The estimate as in `as_json`, without one that is only assumed."""
        if self.effects is None or self.effects.eta_basis != ASSUMED:
            return {}
        return {**dict.fromkeys(('eta_seconds', 'eta_low_seconds', 'eta_high_seconds')),
                'eta_basis': ''}

    @property
    def most_pins(self) -> int:
        """What counts against max_pins: the pins of the change, or the upmaps that remain after it
        if these are more."""
        return max(len(self.planned.pins), self.details.upmaps)

    @property
    def required_bytes(self) -> Optional[int]:
        """Bytes that the change itself requires to move; None: not known."""
        if self.no_outlook:
            return None
        by_crush = self.details.required_share * sum(
            move.bytes for move in (*self.first, *self.planned.moves.values()))
        # A balanced end state may need less than what CRUSH moves, or more for the balance alone.
        return round(min(by_crush, sum(move.bytes for move in self.moves)))

    @cached_property
    def touched(self) -> Optional[Touched]:
        """The OSDs and pools that the change affects; None: unknown."""
        if self.no_outlook:
            return None
        moves = (*self.first, *self.planned.moves.values())
        osds = {osd for move in moves for osd in route_osds(move)}
        return Touched(osds | set(self.change.weights), {
            pool_of(pgid) for pgid in (*self.planned.pins, *self.planned.unpinnable)})

    @property
    def undersized(self) -> List[str]:
        return [] if self.outlook is None else undersized(self.planned, self.outlook)

    @property
    def bursts(self) -> int:
        """Approximate number of bursts of the change and its pins."""
        return max(1, -(-self._pins_at_once // MAX_BURST_PINS))

    @property
    def _pins_at_once(self) -> int:
        """Pins that must take effect together with the change."""
        if self.details.moves_first:
            return self.details.pins_at_once
        return len(self.planned.pins) if self.entries is None else self.entries

    def all_risks(self, order: Order, observation: Observation, options: Options) -> List[Risk]:
        """What the operator has to accept. A code may have several texts."""
        # PGs without pins of which each tranche moves a few, unless that takes too many tranches.
        in_tranches = self._moving_unpinned(observation)
        if -(-len(in_tranches) // caps(options).pgs) > STEPS_MAX:
            in_tranches = []
        if order.verb == 'rollback':
            # Weights are restored in bursts or tranches, but a whole CRUSH map at once.
            not_at_once = () if self.crush_map is not None or self.outlook is None else \
                self.planned.unpinnable.keys() - set(moved_by_weights(
                    self.planned, self.outlook, observation.osdmap)).difference(in_tranches)
            all_risks = [*self._pins_risk(order, observation, options),
                         *self._unpinnable_risk(options, not_at_once)]
            if self.crush_map is not None:
                all_risks += self._one_epoch_risk(order)
            if self.effects is not None:
                all_risks += self.effects.risks(observation.osdmap.nearfull_ratio, undoes=True)
            return all_risks
        all_risks = [*self._incomplete_risk(), *self._unpinnable_risk(options, in_tranches),
                     *self._one_epoch_risk(order), *self._pins_risk(order, observation, options)]
        if self.no_outlook:
            all_risks.append(Risk(Code.NO_PREVIEW,
                                  'cannot preview the CRUSH change: %s (try again; '
                                  'otherwise all PGs that it remaps peer at once, and are pinned '
                                  'afterwards)' % self.no_outlook, errno.EIO))
        all_risks += self.details.risks
        if self.effects is not None:
            all_risks += self.effects.risks(observation.osdmap.nearfull_ratio)
        return list(dict.fromkeys(all_risks))

    def _incomplete_risk(self) -> List[Risk]:
        """The risk of a drain, or a map, with which CRUSH finds too few OSDs for PGs. If OSDs get a
        weight, that is only a warning: they are filled in any case."""
        drains_or_replaces = self.change.drained or self.crush_map is not None
        if not self.incomplete or not drains_or_replaces:
            return []
        return [Risk(Code.TOO_FEW_OSDS, '%s (raise the tunable choose_total_tries, or the step '
                     'set_choose_tries of an erasure-coded rule)' % self._incomplete_text)]

    @property
    def _incomplete_text(self) -> str:
        return 'CRUSH would find too few OSDs for %s, such as PG %s: data would stay where it is' \
            % (pgs(len(self.incomplete)), min(self.incomplete))

    @property
    def accepted(self) -> Tuple[str, ...]:
        """Stop conditions that were accepted with the change."""
        crowded = self.effects is not None and self.effects.crowded
        return (Code.PG_LIMIT,) if crowded else ()

    def _one_epoch_risk(self, order: Order) -> List[Risk]:
        """The risk of a change that cannot be divided, and requires more pins than the mons take in
        one epoch."""
        # Only weights can change in several epochs. `key`: a change of something else.
        can_be_divided = self.crush_map is None and not self.details.key
        if can_be_divided or self.bursts <= 1:
            return []
        pins = self._pins_at_once
        cause, instead = ('rollback', 'run "campaign abort", then undo the change in several '
                          'steps with "crushmap"') if order.verb == 'rollback' else (
            'change', 'use "--upmaps-max %d", with which more data moves' % MAX_BURST_PINS
            if self.details.upmaps == pins else
            'apply the change in several steps')
        return [Risk(Code.ONE_EPOCH, 'the %s requires %d pins, but the mons accept at most %d in '
                     'the same epoch: %s; otherwise %s pinned one epoch later, after a second '
                     'peering that stalls client I/O' % (
                         cause, pins, MAX_BURST_PINS, instead, pgs_are(pins - MAX_BURST_PINS)),
                     errno.EFBIG)]

    def _pins_risk(self, order: Order, observation: Observation, options: Options) -> List[Risk]:
        """The risk of more pins than the mons should check, unless they come in tranches."""
        why = '' if self.in_tranches(order, observation) else why_too_many_pins(
            self.most_pins, options, observation.osdmap)
        return [Risk(Code.PIN_LIMIT, '%s: %s' % (
            why, _FEWER_PINS if order.verb == 'rollback' else self.change.fewer_pins),
                     errno.E2BIG)] if why else []

    def in_tranches(self, order: Order, observation: Observation) -> bool:
        """Whether the change comes in tranches if it requires too many pins."""
        return order.verb != 'rollback' and self.change.is_divisible(observation.crush)

    def answer(self, order: Order, campaign: Optional[int], observation: Observation,
               options: Options, health: Sequence[Risk] = ()) -> Document:
        """The answer to an order: the preview, its costs for the mons and the OSDs, the number of
        tranches, and the risks that the order does not accept. `campaign`: the one that it has
        begun; None: none. `health`: the risks of the state of the cluster."""
        max_pins = pin_limit(options, observation.osdmap)
        tranches, unpinned = 1, self._moving_unpinned(observation)
        if isinstance(self.change, WeightChange) and self.in_tranches(order, observation):
            max_moving = self.change.moving_at_once(
                caps(options), observation, unpinned, 0 if self.outlook is None else mean_bytes(
                    unpinned, self.outlook, observation))
            tranches = max(-(-len(self.planned.pins) // max_pins), -(-len(unpinned) // max_moving))
        return {**self.as_json(order, campaign), **costs(observation, options),
                'pin_limit': max_pins, 'moved_by_weights': dict(Counter(
                    observation.osdmap.pools[pool_of(pgid)].name for pgid in unpinned)),
                'risks': risks_json([*health, *self.all_risks(order, observation, options)],
                                    order.accept),
                'tranches': max(1, tranches)}

    def _moving_unpinned(self, observation: Observation) -> List[str]:
        """PGs that cannot be pinned, since the mons keep no upmaps under their rule, of a change
        that can come in tranches: each tranche moves a few of them. [] for other changes."""
        if self.outlook is None or not self.change.is_divisible(observation.crush):
            return []
        return moved_by_weights(self.planned, self.outlook, observation.osdmap)

    def _unpinnable_risk(self, options: Options, not_at_once: Collection[str]) -> List[Risk]:
        """The risk that too many PGs cannot be pinned, and move outside the caps. `not_at_once`:
        PGs that do not count, for example those of which each tranche moves a few."""
        # Without PGs that have nowhere to move (INCOMPLETE).
        moving = {pgid: why for pgid, why in self.planned.unpinnable.items()
                  if why != INCOMPLETE and pgid not in not_at_once}
        number, pins = len(moving), len(self.planned.pins)
        if not are_many(number, pins, options):
            return []
        pgid = min(moving)
        return [Risk(Code.UNPINNABLE, '%s of %d that the change remaps cannot be pinned (limit %g '
                     '%%, max_unpinnable_ratio), such as PG %s: %s (they peer when CRUSH changes, '
                     'and stay in place until "campaign start")' % (
                         pgs(number), number + pins, 100 * options.max_unpinnable_ratio, pgid,
                         moving[pgid].reason))]

    def as_json(self, order: Order, campaign: Optional[int]) -> Json:
        """The preview as it is shown. `campaign`: the one that the order has begun; None: none."""
        moves = self.planned.moves.values()
        return {
            'verb': order.verb, 'dry_run': order.dry_run, 'campaign': campaign,
            'weights': {'osd.%d' % osd: weight for osd, weight in self.change.weights.items()},
            **dict.fromkeys(get_args(DetailsKey)),
            **({self.details.key: self.details.shown} if self.details.key else {}),
            # Whether the mapping is known, so that the pins can be sent with the change: over
            # `bursts` epochs if they are many.
            'one_epoch': not self.no_outlook,
            'bursts': self.bursts,
            'pgs': len(self.planned.pins), 'vectors': self.planned.vectors,
            'pins_removed': len(self.planned.removed),
            'left_out': [{'osd': osd, 'reason': why} for osd, why in self.left_out[:NAMED_PGS]],
            'warnings': [*self.warnings,
                         *([self._incomplete_text] if self.incomplete else ())],
            'incomplete_pgs': len(self.incomplete),
            'shards': sum([len(move.targets) for move in moves]),
            'bytes': sum([move.bytes for move in moves]),
            'primaries_moving': sum([move.moves_primary for move in moves]),
            # Why not in one epoch.
            'reason': self.no_outlook,
            'balanced': self.balanced and self.balanced.as_json(),
            'capacity': self.capacity and self.capacity.as_json(),
            # Their keys are absent, not null, if they are unknown.
            **(self.effects.as_json() if self.effects is not None else {}),
            'unpinnable': [self.planned.unpinnable[pgid].as_json(pgid)
                           for pgid in sorted(self.planned.unpinnable)[:NAMED_PGS]],
            'unpinnable_pgs': len(self.planned.unpinnable)}


def preview_of(change: AnyChange, outlook: Outlook, observation: Observation,
               crush_map: Optional[bytes] = None,
               bases: Mapping[str, UpmapEntry] = NO_BASES) -> Preview:
    """The preview of a change: its pins, without the effects on OSDs. `outlook`: where CRUSH
    places the PGs with the change, or why that is not known. `bases`: pinned PG -> its
    entry from before the campaign; not empty for a rollback."""
    if isinstance(outlook, NoFuture):
        # The operator may accept that (NO_PREVIEW): then it is made without pins in its epoch.
        return Preview(replace(change, ordinary=True), no_outlook=outlook.reason)
    planned = plan_join(observation.osdmap, outlook, change.drains(observation.crush, outlook),
                        observation.signals.pool_bytes, bases, observation.evacuation)
    return Preview(change, planned, crush_map=crush_map, outlook=outlook,
                   entries=entries_needed(planned, outlook, observation.osdmap),
                   incomplete=tuple(pgid for pgid in (*planned.unpinnable, *planned.pins)
                                    if becomes_incomplete(pgid, outlook, observation.osdmap)))


def weights_preview(order: Order, facts: OrderFacts, observation: Observation,
                    outlook: Callable[[WeightChange], Outlook],
                    entries: Optional[Sequence[ConfigEntry]]) -> Preview:
    """The preview of an order that gives OSDs other CRUSH weights, without the effects on OSDs.
    Raises Refused.

    `outlook`: where CRUSH places the PGs with a change; `entries`: the configuration database;
    None: not known.
    """
    change = change_of(order, facts)
    weight_set_warnings = check_weight_sets(facts.crush, entries)
    not_new = osds_left_out(order, facts) if order.verb == 'expand' else {}
    preview = preview_of(change, outlook(change), observation)
    if change.drained and preview.no_outlook:
        # Without a preview, the effect of CRUSH is estimated from the weights.
        must_fit_by_weight(set(change.drained), facts.expanded({
            osd: weight for osd, weight in change.weights.items() if osd not in change.drained}))
    return replace(preview, left_out=tuple(not_new.items()),
                   warnings=weight_warnings(order, change, facts) + weight_set_warnings)
