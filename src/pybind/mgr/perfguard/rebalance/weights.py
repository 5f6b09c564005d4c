# SPDX-License-Identifier: LGPL-2.1-or-later
"""Other CRUSH weights for OSDs: an expansion, a drain, or the end of one.

Weights that require more pins than the mons commit in one epoch are sent in bursts, a few OSDs at a
time. Weights that require more pins than a campaign may keep come in tranches: each begins once the
PGs of the one before have moved.

A tranche brings all OSDs of the change closer to their weights by the same share. The straws of an
OSD in CRUSH (straw2) become longer or shorter in proportion, so a shard that enters one of the new
OSDs, or leaves a drained one, stays where it is in all later tranches: each shard moves once. OSD
by OSD, a host would pass shards on from its first OSD to its next one. All OSDs also receive data
from the first tranche on.
"""
import math
import struct
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import ClassVar, Iterable, List, Mapping, Optional, Sequence

from ..cluster.crush import CrushRules
from ..cluster.ports import Outlook
from ..cluster.types import OsdSet, Space, pool_of
from ..codec import Time
from ..observation import Observation
from ..text import plural
from .change import Change, ChangeStage, NextPart
from .join_plan import with_pins
from .moves import Caps, domains_of
from .types import TINY_WEIGHT, Action, SetWeight

#: Minimum share of the difference of weights that a tranche changes, and how close to the limit of
#: pins it is planned. A small part moves more PGs than its share of them, up to as many times as a
#: PG has shards.
SHARE_MIN, SAFETY = 0.001, 0.95
#: CRUSH keeps weights in units of 1/65536.
WEIGHT_UNIT = 1 / 0x10000
#: Intermediate weights are above those of drained OSDs.
WEIGHT_MIN = 3 * TINY_WEIGHT


def same_weight(a: float, b: float) -> bool:
    """Whether the mons make the same CRUSH weight of both, but for one unit."""
    return abs(_stored_units(a) - _stored_units(b)) < 2


def _stored_units(weight: float) -> int:
    """A weight as CRUSH keeps it, in WEIGHT_UNIT. The mons convert it by way of a 32-bit float
    (CrushWrapper::adjust_item_weightf), which from 2,048 on is coarser than the tolerance of
    `same_weight`."""
    as_float, = struct.unpack('f', struct.pack('f', weight))
    return int(as_float / WEIGHT_UNIT)


@dataclass(frozen=True)
class WeightChange(Change):
    kind: ClassVar[str] = 'weights'
    fewer_pins: ClassVar[str] = 'change fewer OSDs at a time'

    weights: Mapping[int, float] = field(default_factory=dict)
    drained: OsdSet = ()
    #: The end of a drain, or of a rollback that empties OSDs. If it fails it is left out, and
    #: counts as landed without the weights that are not in force.
    closing: bool = False
    #: OSDs whose weights are in force, and the number of OSDs in one burst (0: all that are left).
    done: OsdSet = ()
    burst: int = 0
    #: The weights of the present tranche ({}: those at the end), of the one before, and from before
    #: the change ({}: not noted); its share of the difference that was left, how many tranches came
    #: before it, and how many follow, by estimate.
    step: Mapping[int, float] = field(default_factory=dict)
    reached: Mapping[int, float] = field(default_factory=dict)
    start: Mapping[int, float] = field(default_factory=dict)
    share: float = 1.0
    tranche: int = 0
    following: int = 0
    #: Since when upmaps of earlier tranches that are not needed any longer are removed; 0: they are
    #: not.
    removing: Time = 0.0
    #: PGs that the last tranche moves without a pin: as many as might be in flight then.
    unpinned: int = 0

    def succeeds(self, aborted: Change) -> bool:
        return bool(aborted.weights) and aborted.weights.keys() <= self.weights.keys()

    # ---- its stages

    @property
    def is_last(self) -> bool:
        return self.share >= 1.0

    @property
    def tranches(self) -> int:
        return self.tranche + 1 + self.following

    @property
    def partly(self) -> bool:
        if self.stage is ChangeStage.LANDED:
            return not self.is_last
        return self.tranche > 0

    @property
    def untouched(self) -> bool:
        return self.stage is ChangeStage.WANTED and not (self.done or self.tranche or self.closing)

    @property
    def has_more_bursts(self) -> bool:
        """Bursts follow the present one."""
        return len(self._remaining_osds()) > len(self.chunk)

    @property
    def chunk(self) -> Mapping[int, float]:
        remaining, weights = self._remaining_osds(), self.step or self.weights
        return {osd: weights[osd] for osd in remaining[:self.burst or len(remaining)]}

    def _remaining_osds(self) -> List[int]:
        """The OSDs of this burst and of later ones. New OSDs come before drained ones: between the
        bursts CRUSH may find too few failure domains otherwise, and PGs without a place cannot be
        pinned."""
        drained = set(self.drained)
        return sorted(self.weights.keys() - set(self.done), key=lambda osd: (osd in drained, osd))

    # ---- as a kind of change

    def foreseen(self, outlook: Outlook, observation: Observation,
                 space: Mapping[int, Space]) -> Outlook:
        return with_pins(outlook, observation, self)

    def commands(self, observation: Observation) -> List[Action]:
        return [SetWeight(osd, weight) for osd, weight in self.chunk.items()]

    def landed(self, observation: Observation) -> bool:
        return len(self._in_force(observation)) == len(self.chunk)

    def _in_force(self, observation: Observation) -> List[int]:
        """OSDs of the burst that have their new weight."""
        weights = observation.crush.weights()
        return [osd for osd, weight in self.chunk.items()
                if same_weight(weights.get(osd, -1.0), weight)]

    @property
    def follows_parts(self) -> bool:
        return bool(self.done or self.tranche)

    @property
    def awaited_pins(self) -> str:
        return 'waiting for the pins of %d of %s' % (
            len(self.done), plural(len(self.weights), 'OSD'))

    def begun(self, observation: Observation) -> 'WeightChange':
        weights = observation.crush.weights()
        return replace(self, start={osd: weights.get(osd, 0.0) for osd in self.weights})

    def remaining(self, observation: Observation) -> Change:
        if self.pending:
            return self
        change = self._without_purged(observation) if self.follows_parts else self
        return change._without_theirs(observation)

    def _without_purged(self, observation: Observation) -> 'WeightChange':
        """The change without the OSDs of later bursts that were purged: no preview of it would ever
        succeed."""
        crush_weights = observation.crush.weights()
        weights = {osd: weight for osd, weight in self.weights.items()
                   if osd in self.done or osd in crush_weights}
        if len(weights) == len(self.weights):
            return self
        stage = self.stage if weights.keys() - set(self.done) else ChangeStage.LANDED
        return replace(self, weights=weights, stage=stage, burst=0, gathers=False)

    def _without_theirs(self, observation: Observation) -> 'WeightChange':
        """The change without the OSDs to which others have given another weight since it began, or
        since the tranche before. Nor does it fill OSDs that the orchestrator is removing, or begin
        to empty those that were created again on another device."""
        if self.stage is ChangeStage.LANDED:
            return self
        present = observation.crush.weights()
        before, sent = self.reached if self.tranche else self.start, self.step or self.weights
        # `sent`: a burst that was taken back may have arrived late.
        theirs = {osd for osd in self.weights.keys() & before.keys() & present.keys()
                  if osd not in self.done and not any(
                      same_weight(present[osd], weight) for weight in (before[osd], sent[osd]))}
        # Not a rollback: it must restore all weights.
        recreated = frozenset() if self.tranche or self.closing \
            else observation.other_device & frozenset(self.drained)
        theirs |= {osd for osd, weight in self.weights.items()
                   if osd not in self.done and osd in present and osd in (
                       observation.orchestrating.removing if weight > present[osd] else recreated)}
        if not theirs:
            return self
        weights = {osd: weight for osd, weight in self.weights.items() if osd not in theirs}
        change = replace(
            self, weights=weights, drained=tuple(osd for osd in self.drained if osd not in theirs),
            stage=self.stage if weights.keys() - set(self.done) else ChangeStage.LANDED,
            burst=0, gathers=False)
        # With fewer OSDs, a tranche that has not begun may be a larger part of their weights.
        return change if self.done else replace(change, step={}, share=1.0)

    def next_part(self, observation: Observation, pins: int) -> Optional[NextPart]:
        """The next part of the weights, if the mons take only some pins at once; None: this was the
        last."""
        if not self.has_more_bursts:
            return None
        done = tuple(sorted((*self.done, *self.chunk)))
        return NextPart(
            replace(self, stage=ChangeStage.WANTED, done=done, times=0, since=observation.now),
            'CRUSH weights of %d of %s are in force' % (
                len(done), plural(len(self.weights), 'OSD')))

    def settled(self) -> Change:
        return replace(self, stage=ChangeStage.LANDED,
                       following=0 if self.is_last else self.following)

    def part_in_force(self, observation: Observation) -> Optional[Change]:
        """The part of the change that is in force after an abort, to continue with; None: there is
        none."""
        present = self.with_done(observation)
        if present.done:
            return present
        if self.tranche:
            # The one before is in force, and "campaign resume" continues after it. A share below 1
            # means that it was not the last.
            return replace(
                self, stage=ChangeStage.LANDED, tranche=self.tranche - 1, share=SHARE_MIN,
                following=self.following + 1, step=self.reached)
        return None

    def with_done(self, observation: Observation) -> 'WeightChange':
        """The change after the OSDs of the burst have their new weight."""
        return replace(self, done=tuple(sorted((*self.done, *self._in_force(observation)))))

    @property
    def parts_text(self) -> str:
        return '; CRUSH weights are changed in part, up to tranche %d of %d' % (
            self.tranche + (self.stage is ChangeStage.LANDED), self.tranches) \
            if self.partly else ''

    @property
    def features(self) -> Mapping[str, str]:
        return {'osd.%d: weight' % osd: str(weight) for osd, weight in sorted(self.weights.items())}

    # ---- bursts and tranches

    def is_divisible(self, crush: CrushRules) -> bool:
        """Whether a part of the weights can be set. An OSD whose weights differ between trees would
        get more of some of them."""
        return bool(self.weights) and self.weights.keys().isdisjoint(crush.uneven)

    def moving_at_once(self, caps: Caps, observation: Observation, moving: Iterable[str],
                       pg_bytes: int) -> int:
        """How many PGs without pins a tranche may move: as many as may be in flight, and as OSDs of
        the change, their devices, hosts and failure domains may give or receive on average.
        `moving`: PGs that the change moves without pins; `pg_bytes`: bytes that one moves, on
        average."""
        crush = observation.crush
        domain_of = domains_of(crush, observation.osdmap.pools)
        hosts = {crush.host_of(osd) for osd in self.weights}
        one_pg_by_pool = {pool_of(pgid): pgid for pgid in moving}
        domains = {domain_of(pgid, osd) for pgid in one_pg_by_pool.values()
                   for osd in self.weights} - {None}
        return max(1, min(caps.pgs, self._osds_may_move(caps, observation.devices),
                          caps.host * len(hosts), caps.domain * len(domains) or caps.pgs,
                          caps.bytes // max(1, pg_bytes)))

    def _osds_may_move(self, caps: Caps, devices: Mapping[int, Sequence[str]]) -> int:
        """How many PGs the OSDs of the change may give or receive in all. `devices`: OSD -> the
        devices that it shares with others."""
        drained, number = set(self.drained), 0
        by_device: Counter[str] = Counter()
        for osd in self.weights:
            osd_cap = caps.source if osd in drained else caps.target
            if devices.get(osd):
                by_device[devices[osd][0]] += osd_cap
            else:
                number += osd_cap
        return number + sum(min(on_device, caps.device) for on_device in by_device.values())

    def in_bursts(self, pins: int, limit: int) -> 'WeightChange':
        """The change with fewer OSDs at a time if the burst requires more than `limit` pins."""
        if pins <= limit or len(self.chunk) < 2:
            return self
        fitting = max(1, limit * len(self.chunk) // pins)
        return replace(self, burst=min(fitting, len(self.chunk) - 1))

    def divided(self, pins: int, limit: int, weights: Mapping[int, float]) -> 'WeightChange':
        """The change with a smaller tranche than the present one.

        `pins`: PGs that the present one pins, or moves without a pin; `limit`: how many of them a
        tranche may pin or move; `weights`: present CRUSH weights.
        """
        change = self
        if self.is_last:
            # It has all that is left. Its parts are equal, so that the last one also moves enough
            # PGs to balance the OSDs.
            tranches = math.ceil(pins / limit)
            change = replace(self, following=tranches - 1, start=self.start or {
                osd: weights.get(osd, 0.0) for osd in self.weights})
            share = 1.0 / tranches
        else:
            # It was divided before, and not enough. Pins become fewer less than in proportion: a PG
            # of which several shards move has a pin in each tranche. So the share falls by at least
            # a tenth.
            share = self.share * min(0.9, SAFETY * limit / pins)
        largest_step = max(abs(weight - weights.get(osd, 0.0))
                           for osd, weight in self.weights.items())
        # A smaller one would not change a weight, and so be followed by others for ever.
        share = min(1.0, max(SHARE_MIN, share,
                             4 * WEIGHT_UNIT / max(largest_step, WEIGHT_UNIT)))
        return replace(change, share=share, step={
            osd: _between(weights.get(osd, 0.0), weight, share)
            for osd, weight in self.weights.items()})

    def next_tranche(self, weights: Mapping[int, float]) -> 'WeightChange':
        """The change with the next tranche, at first with all that is left, without OSDs to which
        others have given another weight meanwhile."""
        return replace(
            self, reached=self.step, step={}, share=1.0, tranche=self.tranche + 1,
            following=max(0, self.following - 1), stage=ChangeStage.WANTED, done=(), burst=0,
            times=0, removing=0.0)._without_others(weights)

    def _without_others(self, weights: Mapping[int, float]) -> 'WeightChange':
        """The change without the OSDs that do not have the weight of the tranche before any longer.
        `weights`: present CRUSH weights."""
        ours = {osd: weight for osd, weight in self.weights.items()
                if same_weight(weights.get(osd, -1.0), self.reached.get(osd, -2.0))}
        return replace(self, weights=ours,
                       drained=tuple(osd for osd in self.drained if osd in ours))


def _between(now: float, end: float, share: float) -> float:
    """A weight between two, by a share of the way; above those of drained OSDs."""
    return max(now + (end - now) * share, min(WEIGHT_MIN, max(now, end)))
