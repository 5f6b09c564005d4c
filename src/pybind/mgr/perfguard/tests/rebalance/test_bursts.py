# SPDX-License-Identifier: LGPL-2.1-or-later
"""A change of CRUSH is divided into bursts that the mons take at once."""
import math
import random
from dataclasses import replace
from typing import Any, Dict, List, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.ports import Future, FuturePg
from perfguard.cluster.types import (Osd, OsdMap, OsdSet, PgCounts, Placement, Pool, Signals,
                                     UpmapEntry)
from perfguard.codec import decode, encode
from perfguard.observation import Observation, Settings
from perfguard.options import DEFAULTS
from perfguard.rebalance.campaign import Campaign
from perfguard.rebalance.change import ChangeStage
from perfguard.rebalance.draft import Draft
from perfguard.rebalance.joining import wants_outlook
from perfguard.rebalance.phases import judge
from perfguard.rebalance.types import TINY_WEIGHT, Action, Phase, PinRecord, SetEntry, SetWeight
from perfguard.rebalance.weights import WeightChange
from perfguard.upmap.semantics import apply_entry

from ..fakes.campaigns import campaign_of
from ..fakes.mon_model import ToyMon, ToyOsd

OLD, NEW = 40, 10


class LargeMap:
    """One OSD a host. Each PG draws a straw for each OSD, and the three shortest win (straw2)."""

    def __init__(self, pgs: int, weights: Dict[int, float]) -> None:
        self.pool = Pool(1, 'p', False, 3, 2, 0, pgs, pgs, pgs)
        self.weights = weights
        self.draws: List[List[Tuple[float, int]]] = []
        for seed in range(pgs):
            rng = random.Random(seed)
            self.draws.append(sorted((-math.log(rng.random()), osd) for osd in range(OLD + NEW)))
        self.entries: Dict[str, UpmapEntry] = {}
        self.raw = self.mapping(weights)
        self.acting = dict(self.raw)
        self.bursts: List[Tuple[int, int]] = []
        self.most_remapped = 0
        self.epoch = 1

    def mapping(self, weights: Dict[int, float]) -> Dict[str, OsdSet]:
        found: Dict[str, OsdSet] = {}
        equal = set(weights.values()) <= {0.0, 1.0}
        for seed, draws in enumerate(self.draws):
            if equal:
                chosen = [osd for _, osd in draws if weights[osd]][:3]
            else:
                straws = sorted((draw / weights[osd], osd) for draw, osd in draws if weights[osd])
                chosen = [osd for _, osd in straws[:3]]
            found['1.%x' % seed] = tuple(chosen)
        return found

    def crush(self) -> CrushRules:
        toys = {osd: ToyOsd(osd, weight) for osd, weight in self.weights.items()}
        return CrushRules.from_dump(ToyMon(toys, 3, ()).crush_dump())

    def up(self, pgid: str) -> OsdSet:
        return apply_entry(self.raw[pgid], self.entries.get(pgid, UpmapEntry()), ())

    def observe(self, now: float) -> Observation:
        remapped = {pgid: self.acting[pgid] for pgid in self.raw
                    if set(self.up(pgid)) != set(self.acting[pgid])}
        self.most_remapped = max(self.most_remapped, len(remapped))
        osdmap = OsdMap(
            self.epoch, frozenset({'norebalance'}), {1: self.pool},
            {osd: Osd(osd, True, 1.0) for osd in self.weights},
            {pgid: entry.items for pgid, entry in self.entries.items() if entry.items},
            {pgid: entry.vector for pgid, entry in self.entries.items()
             if entry.vector is not None}, remapped)
        stored = {'mon': {'paxos_propose_interval': '3'}}
        return Observation(
            now, Signals(PgCounts(len(self.raw), len(self.raw))), Settings(osdmap, 'false', stored),
            lambda pgid: Placement(self.up(pgid), self.acting[pgid]), self.crush(), 1.0,
            crush_version=self.epoch)

    def outlook(self, chunk: Any) -> Future:
        weights = {**self.weights, **chunk}
        later = self.mapping(weights)
        toys = {osd: ToyOsd(osd, weight) for osd, weight in weights.items()}
        return Future({pgid: FuturePg(self.acting[pgid], raw) for pgid, raw in later.items()
                       if raw != self.raw[pgid] or pgid in self.entries},
                      CrushRules.from_dump(ToyMon(toys, 3, ()).crush_dump()))

    def _cleaned(self, pgid: str, entry: UpmapEntry) -> UpmapEntry:
        """Without the pairs that the mon drops: their source is not in the raw set."""
        return replace(entry, items=tuple(pair for pair in entry.items
                                          if pair[0] in self.raw[pgid]))

    def carry_out(self, actions: Tuple[Action, ...]) -> None:
        """All in one proposal."""
        weights = {action.osd: action.weight for action in actions
                   if isinstance(action, SetWeight)}
        entries = [action for action in actions if isinstance(action, SetEntry)]
        if weights:
            self.weights = {**self.weights, **weights}
            self.raw = self.mapping(self.weights)
            self.bursts.append((len(weights), len(entries)))
        self.entries.update({action.pgid: action.entry for action in entries})
        self.entries = {pgid: self._cleaned(pgid, entry) for pgid, entry in self.entries.items()}
        self.epoch += bool(weights or entries)


def carried_out(map_: LargeMap, change: WeightChange) -> Campaign:
    campaign = campaign_of(1, Phase.PINNING, 0.0, automatic=True, prepared=True, change=change)
    pins: Dict[str, PinRecord] = {}
    for turn in range(100):
        seen = map_.observe(100.0 + turn)
        assert campaign.change is not None
        if wants_outlook(campaign, seen):
            seen = replace(seen, outlook=map_.outlook(campaign.change.chunk))
        decision: Draft = judge(campaign, pins, {}, seen, DEFAULTS)
        campaign = decode(Campaign, encode(decision.campaign))
        pins.update(decision.new_pins)
        map_.carry_out(decision.actions)
        for pgid in decision.unpins:
            pins.pop(pgid, None)
        if campaign.change is not None and campaign.change.stage is ChangeStage.LANDED:
            return campaign
    raise AssertionError('never landed')


@pytest.mark.parametrize('drain', [False, True])
def test_no_burst_takes_more_pins_than_the_mons_take_at_once(
        drain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """All at once it would be half of the PGs, most of them remapped if the mons proposed in the
    middle of it."""
    most = 150
    monkeypatch.setattr('perfguard.rebalance.joining.MAX_BURST_PINS', most)
    new = range(OLD, OLD + NEW)
    map_ = LargeMap(1000, {osd: 1.0 if drain or osd < OLD else 0.0 for osd in range(OLD + NEW)})
    weights = dict.fromkeys(new, TINY_WEIGHT if drain else 1.0)
    before = {pgid: map_.up(pgid) for pgid in map_.raw}
    campaign = carried_out(map_, WeightChange(weights=weights, drained=tuple(new) if drain else ()))
    assert {pgid: map_.up(pgid) for pgid in map_.raw} == before and map_.most_remapped == 0
    assert all(0 < pins <= most for _, pins in map_.bursts)
    assert sum(osds for osds, _ in map_.bursts) == NEW and len(map_.bursts) >= 3
    assert {osd: map_.weights[osd] for osd in new} == weights
    assert isinstance(campaign.change, WeightChange) and not campaign.change.has_more_bursts
