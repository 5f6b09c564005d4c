# SPDX-License-Identifier: LGPL-2.1-or-later
"""What is kept of all pins from turn to turn, and that a turn does not look at each of them."""
import json
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.dumps import KnownItems, osdmap_from_dump
from perfguard.cluster.types import (OsdMap, OsdSet, Placement, Pool, UpmapEntry, pool_of,
                                     seed_of)
from perfguard.errors import Code
from perfguard.observation import Observation
from perfguard.rebalance.campaign import Basis, GoalsMark
from perfguard.rebalance import goals
from perfguard.rebalance.campaign_store import PinStore
from perfguard.rebalance.executor import execute
from perfguard.rebalance.phases import judge
from perfguard.rebalance.pin_index import PinIndex
from perfguard.rebalance.draft import Draft
from perfguard.rebalance.release_moves import ReleaseMoves
from perfguard.rebalance.types import PinRecord
from perfguard.store import Store

from ..fakes.campaigns import changed
from ..fakes.cluster import MemoryKv
from .test_phases import OPTIONS, releasing

ENTRIES = [UpmapEntry(), UpmapEntry(((0, 3),)), UpmapEntry(((0, 4), (1, 5))),
           UpmapEntry(vector=(3, 1, 2)), UpmapEntry(((0, 3),), (3, 1, 2))]
PGIDS = st.sampled_from(['%d.%x' % (pool, seed) for pool in (1, 2) for seed in (0, 1, 7, 8)])
RECORDS = st.builds(PinRecord, st.sampled_from(ENTRIES), st.sampled_from(ENTRIES[1:]),
                    goal=st.sampled_from([None, *ENTRIES]), was=st.sampled_from([None, *ENTRIES]))
STEPS = st.lists(st.tuples(st.dictionaries(PGIDS, RECORDS, max_size=4),
                           st.frozensets(PGIDS, max_size=4)), max_size=6)
#: The basis of goals that are up to date.
NOW = Basis('now', {})


def map_of(entries: Dict[str, UpmapEntry], pg_nums: Dict[int, int]) -> OsdMap:
    pools = {pool: Pool(pool, 'p', False, 3, 2, 0, pg_num, pg_num, pg_num)
             for pool, pg_num in pg_nums.items()}
    vectors: Dict[str, OsdSet] = {pgid: entry.vector for pgid, entry in entries.items()
                                  if entry.vector is not None}
    return OsdMap(1, frozenset(), pools, {}, {pgid: entry.items for pgid, entry in entries.items()
                                              if entry.items}, vectors, {})


def exists(pgid: str, osdmap: OsdMap) -> bool:
    pool = osdmap.pools.get(pool_of(pgid))
    return pool is not None and seed_of(pgid) < pool.pg_num


@settings(max_examples=150, deadline=None)
@given(STEPS, st.dictionaries(PGIDS, st.sampled_from(ENTRIES)),
       st.dictionaries(st.sampled_from([1, 2]), st.sampled_from([4, 8, 16])), st.booleans())
def test_what_is_kept_is_what_the_pins_say(
        steps: List[Tuple[Dict[str, PinRecord], Any]], entries: Dict[str, UpmapEntry],
        pg_nums: Dict[int, int], in_force: bool) -> None:
    kv = MemoryKv()
    pins = PinStore(Store(kv))
    for noted, forgotten in steps:
        before = dict(pins)
        pins.note(noted)
        pins.forget(forgotten)
        changed = {pgid for pgid in {*before, *pins} if before.get(pgid) != pins.get(pgid)}
        assert changed <= set(pins.take_changed())
    if in_force:
        entries = {**entries, **{pgid: pin.entry for pgid, pin in pins.items()}}
    osdmap = map_of(entries, pg_nums)
    for found in (pins, PinIndex.of(dict(pins))):
        assert set(found.staying) == {pgid for pgid, pin in pins.items() if pin.stays}
        assert set(found.without_goal) == {p for p, pin in pins.items() if pin.goal is None}
        assert set(found.vectors) == {p for p, pin in pins.items() if pin.entry.vector is not None}
        assert set(found.pools) == set(map(pool_of, pins))
        for osds in ({1, 2, 3, 4}, {1, 2, 5}, set(range(6))):
            assert sorted(found.leading_elsewhere(osds)) == sorted(
                pgid for pgid, pin in pins.items() if not pin.ahead <= osds)
        assert sorted(found.differing(osdmap)) == sorted(
            pgid for pgid, pin in pins.items()
            if osdmap.entry(pgid) != pin.entry or not exists(pgid, osdmap))


class Compared(Tuple[Tuple[int, int], ...]):
    """Items that count how often they are compared."""
    times = 0

    def __ne__(self, other: object) -> bool:
        Compared.times += 1
        return tuple(self) != other

    __hash__ = None  # type: ignore[assignment]


def test_items_that_are_those_of_the_last_osdmap_are_not_compared_again() -> None:
    entries = {'1.%x' % seed: UpmapEntry(((0, 3), (1, seed + 10))) for seed in range(8)}
    pins = PinIndex({pgid: PinRecord(UpmapEntry(), UpmapEntry(Compared(entry.items)))
                     for pgid, entry in entries.items()})
    dump: Dict[str, Any] = {
        'epoch': 1, 'flags': '', 'pools': [], 'osds': [], 'pg_upmap': [], 'pg_temp': [],
        'pg_upmap_items': [
            {'pgid': pgid, 'mappings': [{'from': old, 'to': new} for old, new in entry.items]}
            for pgid, entry in entries.items()]}
    known = KnownItems()

    def next_map() -> OsdMap:
        pool = Pool(1, 'p', False, 3, 2, 0, 8, 8, 8)
        return replace(osdmap_from_dump(json.loads(json.dumps(dump)), known), pools={1: pool})

    assert not pins.differing(next_map())
    Compared.times = 0
    assert not pins.differing(next_map())
    dump['pg_upmap_items'][3]['mappings'] = [{'from': 2, 'to': 9}]
    assert pins.differing(next_map()) == pins.differing(next_map()) == ['1.3']
    dump['pg_upmap_items'][3]['mappings'] = [{'from': 0, 'to': 3}, {'from': 1, 'to': 13}]
    assert not pins.differing(next_map()) and not Compared.times


class Looks:
    """Counts pins that are looked at one by one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number = 0
        entry, item, every = OsdMap.entry, PinIndex.__getitem__, PinIndex.__iter__

        def look(number: int, found: Any) -> Any:
            self.number += number
            return found

        monkeypatch.setattr(OsdMap, 'entry', lambda *args: look(1, entry(*args)))
        monkeypatch.setattr(PinIndex, '__getitem__', lambda *args: look(1, item(*args)))
        monkeypatch.setattr(PinIndex, '__iter__', lambda pins: look(len(pins), every(pins)))


def weighted(weight: int) -> CrushRules:
    items = [{'id': osd, 'weight': weight} for osd in range(6)]
    return CrushRules.from_dump({'buckets': [
        {'id': -1, 'name': 'default', 'type_id': 10, 'items': items}], 'types': [], 'rules': []})


class Big:
    """A campaign at its caps, with `number` further pins, all in force."""

    def __init__(self, number: int) -> None:
        self.machine = releasing()
        self.entries = {'7.%x' % seed: UpmapEntry(((0, 3),)) for seed in range(number)}
        self.pins = PinStore(Store(MemoryKv()))
        self.pins.note({pgid: replace(pin, goal=pin.before)
                        for pgid, pin in self.machine.pins.items()})
        self.pins.note({pgid: PinRecord(UpmapEntry(), entry, goal=UpmapEntry())
                        for pgid, entry in self.entries.items()})
        self.release_moves = ReleaseMoves()
        self.campaign = changed(self.machine.campaign, target='balanced', goals=GoalsMark(1, NOW))

    def observe(self, epoch: int, changed: Mapping[str, UpmapEntry] = {}) -> Observation:
        seen = self.machine.observe()
        items = {pgid: entry.items for pgid, entry in {**self.entries, **changed}.items()}
        pool = Pool(7, 'p', False, 3, 2, 0, 1024, 1024, 1024, autoscale_mode='off')
        osdmap = replace(seen.osdmap, epoch=epoch, pools={**seen.osdmap.pools, 7: pool},
                         upmap_items={**seen.osdmap.upmap_items, **items})

        def placement(pgid: str) -> Optional[Placement]:
            return Placement((3, 1, 2), (3, 1, 2)) if pool_of(pgid) == 7 else seen.placement(pgid)

        return replace(seen, settings=replace(seen.settings, osdmap=osdmap), placement=placement)

    def turn(self, epoch: int, changed: Mapping[str, UpmapEntry] = {}) -> Draft:
        seen = self.observe(epoch, changed)
        assert not goals.needed(self.campaign, self.pins, NOW, seen.osdmap)
        self.release_moves.update_moves(self.pins, seen)
        decision = judge(self.campaign, self.pins, self.release_moves.moves, seen, OPTIONS)
        self.campaign = decision.campaign
        self.pins.forget(decision.unpins)
        execute(self.machine.cluster, decision.actions)
        return decision


def test_a_turn_looks_only_at_pins_that_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: Dict[int, List[int]] = {}
    for number in (100, 1000):
        big = Big(number)
        for epoch in (7, 8, 9, 10):
            big.turn(epoch)
        assert len(big.release_moves.moves) >= number
        with monkeypatch.context() as patch:
            looks = Looks(patch)
            decision = big.turn(11)
            quiet = looks.number
            lost = big.turn(12, {'7.5': UpmapEntry(), '7.6': UpmapEntry(((0, 9),))}).unpins
        # It came as far as the releases, and lost what others have changed.
        assert Code.FAST_PEERING in [reason.code for reason in decision.reasons]
        assert decision.campaign.flights.in_flight and lost >= {'7.6'}
        big.turn(13, {'7.5': UpmapEntry(), '7.6': UpmapEntry(((0, 9),))})
        assert '7.4' in big.release_moves.moves and not lost & set(big.release_moves.moves)
        looked[number] = [quiet, looks.number]
    assert looked[100] == looked[1000] and max(looked[100]) < 100


def test_a_restart_of_an_osd_changes_no_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives the same CRUSH map a new version. A PG whose path is busy still waits since then."""
    big = Big(100)
    big.turn(7)
    began = {pgid: move.since for pgid, move in big.release_moves.moves.items()}
    seen = big.observe(8)
    seen = replace(seen, now=seen.now + 500.0, crush_version=seen.crush_version + 1)
    with monkeypatch.context() as patch:
        looks = Looks(patch)
        big.release_moves.update_moves(big.pins, seen)
        assert looks.number < 100
    assert {pgid: move.since for pgid, move in big.release_moves.moves.items()} == began


@pytest.mark.parametrize('before, after', [(1.0, 0.5), (0.5, 0.3), (0.3, 1.0)])
def test_another_reweight_of_an_osd_computes_the_moves_again(before: float, after: float) -> None:
    big = Big(4)

    def updated_at(seconds: float, reweight: float) -> Set[float]:
        """When the moves were computed, after that time."""
        seen = big.observe(7)
        osds = {**seen.osdmap.osds, 5: replace(seen.osdmap.osds[5], reweight=reweight)}
        seen = replace(seen, now=seen.now + seconds, settings=replace(
            seen.settings, osdmap=replace(seen.osdmap, osds=osds)))
        big.release_moves.update_moves(big.pins, seen)
        return {move.since - seen.now for move in big.release_moves.moves.values()}

    assert updated_at(0.0, before) == {0.0}
    assert updated_at(60.0, before) == {-60.0}
    assert updated_at(120.0, after) == {0.0}


def test_a_burst_of_a_change_does_not_work_out_the_moves_of_earlier_ones(
        monkeypatch: pytest.MonkeyPatch) -> None:
    big = Big(1000)
    seen = big.observe(7)
    big.release_moves.update_moves(big.pins, seen, pinning=True)
    looked, since = [], {}
    for burst in range(1, 4):
        pgid = '7.%x' % (1000 + burst)
        big.entries[pgid] = UpmapEntry(((0, 3),))
        big.pins.note({pgid: PinRecord(UpmapEntry(), big.entries[pgid], goal=UpmapEntry())})
        seen = replace(big.observe(7 + burst), crush=weighted(burst), now=seen.now + 60.0)
        with monkeypatch.context() as patch:
            looks = Looks(patch)
            big.release_moves.update_moves(big.pins, seen, pinning=True)
            looked.append(looks.number)
        since[pgid] = big.release_moves.moves[pgid].since
    # The pins of the burst before are looked at again.
    assert max(looked[1:]) < 20
    assert {pgid: big.release_moves.moves[pgid].since for pgid in since} == {
        '7.3e9': seen.now - 60.0, '7.3ea': seen.now, '7.3eb': seen.now}
    # What others change is not followed by pins.
    big.release_moves.update_moves(big.pins, replace(seen, crush=weighted(9), now=seen.now + 60.0))
    assert {move.since for move in big.release_moves.moves.values()} == {seen.now + 60.0}
