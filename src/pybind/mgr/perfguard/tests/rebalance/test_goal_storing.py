# SPDX-License-Identifier: LGPL-2.1-or-later
"""Many pins, and their goals, are stored or removed over several turns: a write may take the mons a
second."""
import errno
import json
from dataclasses import replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import pytest

from perfguard.cluster.types import UpmapEntry
from perfguard.rebalance.campaign import GoalsMark
from perfguard.rebalance.campaign_store import CampaignStore, PinStore, document_parts
from perfguard.rebalance.goals import Goals, Ground, work_out
from perfguard.rebalance.orders import Order
from perfguard.rebalance.types import Flight, PinRecord
from perfguard.request_queue import PendingOrder
from perfguard.store import Store

from ..fakes.cluster import FakeCluster, MemoryKv
from ..fakes.driver import OPTIONS, Driver
from ..fakes.straw_cluster import StrawCluster
from .test_adopting import expanded as pinned_by_others
from .test_mappings import a_pair, sets, text

#: A large cluster: many pins are sent and peer at once.
LARGE = replace(OPTIONS, target='balanced', max_extra_movement=100.0, pin_batch=100000,
                max_transition_ratio=1.0, readback_timeout=600.0)
NO_ENTRY = UpmapEntry()


class Writes:
    """The writes of each turn, each of which takes the mons a second."""

    def __init__(self, driver: Driver, seconds: float = 1.0) -> None:
        self._driver, self._seconds = driver, seconds
        self._set_store = driver.kv.set_store
        self.keys: List[str] = []
        setattr(driver.kv, 'set_store', self._write)

    def _write(self, key: str, val: Optional[str]) -> None:
        self._driver.cluster.now += self._seconds
        self.keys.append(key)
        self._set_store(key, val)

    def turn(self) -> List[str]:
        """The keys that a turn writes."""
        self.keys = []
        self._driver.turn()
        return self.keys


def goals(driver: Driver) -> GoalsMark:
    campaign = driver.loop.rebalance.campaign
    return campaign.pinning.goals


def stored(kv: MemoryKv) -> Dict[str, PinRecord]:
    """What another mgr would read."""
    copy = MemoryKv()
    copy.data = dict(kv.data)
    pins = PinStore(Store(copy))
    assert pins.load() == []
    return dict(pins)


def expanded(pgs: int, share: int = 1) -> Driver:
    """All remapped PGs are pinned, and the goals are computed once they have reported that."""
    driver = Driver(FakeCluster(pgs=pgs, hosts=40), LARGE)
    driver.ask('prepare')
    driver.run_to('PREPARED')
    driver.cluster.expand(share=share)
    driver.run_until(lambda: bool(driver.cluster.remapped()))
    driver.ask('pin')
    driver.run_until(lambda: len(driver.loop.rebalance.pins) == 2 * pgs // share)
    return driver


def test_no_turn_blocks_for_longer_than_a_write_while_goals_of_20000_pins_are_stored() -> None:
    driver = expanded(10000)
    writes, turns = Writes(driver), 0
    while driver.phase != 'PINNED':
        keys = writes.turn()
        # Besides the campaign and an event.
        assert len(keys) <= 3 and sum(key.startswith('pins/') for key in keys) <= 1, keys
        turns += 1
        assert turns < 60
    pins = dict(driver.loop.rebalance.pins)
    assert len(pins) >= 20000 and not driver.loop.rebalance.pins.without_goal
    assert stored(driver.kv) == pins
    before = goals(driver)
    driver.restart()
    driver.run(3)
    assert dict(driver.loop.rebalance.pins) == pins and goals(driver) == before


@pytest.fixture
def small_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the goals of 400 PGs are many values."""
    monkeypatch.setattr('perfguard.store.PART_BYTES', 1500)
    monkeypatch.setattr('perfguard.rebalance.campaign_store.PART_BYTES', 1500)


def storing(pgs: int = 200) -> Driver:
    """Some of the goals are stored."""
    driver = expanded(pgs)
    Writes(driver)
    pins = driver.loop.rebalance.pins
    driver.run_until(lambda: 0 < sum(pin.goal is not None for pin in pins.values()))
    driver.run(1)
    assert len(pins.without_goal) > 50 and driver.phase == 'PINNING'
    return driver


@pytest.mark.usefixtures('small_values')
def test_an_abort_acts_while_goals_are_stored() -> None:
    driver = storing()
    without_goal = set(driver.loop.rebalance.pins.without_goal)
    driver.ask('abort')
    driver.turn()
    assert driver.phase == 'ABORTING'
    driver.run_to('ABORTED')
    assert driver.loop.rebalance.pins.without_goal == without_goal
    assert not driver.cluster.moved and driver.status['kept']
    driver.ask('resume')
    driver.run_until(lambda: driver.status['released'] > 0)
    assert not driver.loop.rebalance.pins.without_goal


def recomputing() -> Driver:
    """PGs move, and the goals of the others are computed anew."""
    driver = Driver(FakeCluster(pgs=200, hosts=40, backfill_seconds=600.0), LARGE)
    driver.to_releasing()
    driver.cluster.mark_out(1)
    Writes(driver)
    driver.run_until(lambda: goals(driver).basis is None)
    return driver


@pytest.mark.usefixtures('small_values')
def test_a_pause_acts_while_goals_are_stored_and_nothing_is_released() -> None:
    driver = recomputing()
    cluster = driver.cluster
    in_flight = set(flights(driver))
    driver.run(3)
    assert goals(driver).basis is None
    driver.ask('pause')
    driver.run(3)
    assert driver.status['paused'] and 'norebalance' in cluster.flags
    assert set(flights(driver)) <= in_flight


def flights(driver: Driver) -> Mapping[str, Flight]:
    campaign = driver.loop.rebalance.campaign
    return campaign.flights.in_flight


def mark(kv: MemoryKv) -> GoalsMark:
    campaign, lost = CampaignStore(Store(kv), lambda: 0.0).load()
    assert not lost
    return campaign.pinning.goals


@pytest.mark.usefixtures('small_values')
def test_goals_of_which_a_part_is_stored_are_never_trusted() -> None:
    """The store is read after each write, as another mgr would. The basis of the goals has not
    changed: some pins have lost their goals, and others get another one."""
    driver = expanded(200)
    driver.run_to('PINNED')
    pins = driver.loop.rebalance.pins
    new = dict(pins)
    pins.note({pgid: replace(pin, goal=UpmapEntry(((1, 2), (3, 4)))) for pgid, pin in pins.items()})
    pins.note({pgid: replace(pin, goal=None) for pgid, pin in list(pins.items())[:3]})
    driver.loop.rebalance._pin_goals.look_again()
    kv, number = driver.kv, mark(driver.kv).number
    trusted: List[Tuple[GoalsMark, Dict[str, PinRecord]]] = []
    set_store = kv.set_store

    def write(key: str, val: Optional[str]) -> None:
        set_store(key, val)
        driver.cluster.now += 1.0
        found = stored(kv)
        if mark(kv).basis is not None and all(pin.goal is not None for pin in found.values()):
            trusted.append((mark(kv), found))

    setattr(kv, 'set_store', write)
    driver.run(40)
    assert trusted and all(found == new and mark.number != number
                           for mark, found in trusted)


@pytest.mark.usefixtures('small_values')
@pytest.mark.parametrize('raw', ['{', '{"version": 1, "document": {"goals": 7}}'])
def test_goals_of_a_document_that_cannot_be_read_are_computed_again(raw: str) -> None:
    driver = expanded(200)
    driver.run_to('PINNED')
    heads = [key for key, value in driver.kv.data.items()
             if key.startswith('pins/') and key.endswith('/head')
             and 'goals' in json.loads(value).get('document', ())]
    driver.kv.data[heads[0]] = raw
    driver.restart()
    assert goals(driver).basis is None
    driver.restart()
    assert goals(driver).basis is None, 'nothing was computed in between'


@pytest.mark.usefixtures('small_values')
@pytest.mark.parametrize('turns', [0, 1, 3, 8])
def test_a_new_mgr_computes_them_again(turns: int) -> None:
    driver = storing()
    driver.run(turns)
    driver.restart()
    driver.run_to('PINNED')
    undisturbed = expanded(200)
    undisturbed.run_to('PINNED')
    assert dict(driver.loop.rebalance.pins) == dict(undisturbed.loop.rebalance.pins)


@pytest.mark.usefixtures('small_values')
def test_pins_that_change_meanwhile_are_computed_again() -> None:
    driver = storing()
    pins = driver.loop.rebalance.pins
    pgid = list(pins.without_goal)[-1]
    pins.note({pgid: replace(pins[pgid], was=UpmapEntry(((1, 2),)))})
    driver.run_to('PINNED')
    assert pins[pgid].was and not pins.without_goal


@pytest.mark.usefixtures('small_values')
def test_a_pin_that_others_remove_meanwhile_does_not_return() -> None:
    driver = storing()
    pins = driver.loop.rebalance.pins
    pgid = list(pins.without_goal)[-1]
    driver.cluster.set_upmap(pgid, [])
    driver.run_to('PINNED', 600)
    driver.restart()
    driver.run(2)
    assert pgid in driver.loop.rebalance.pins, 'it was remapped, and pinned again'
    assert not driver.loop.rebalance.pins.without_goal
    assert driver.cluster.moved == []


def test_a_pg_that_no_longer_has_to_move_does_not_return_with_its_goal(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """The document of its pin is still there, because of another one."""
    driver = expanded(20, share=2)
    driver.run_to('PINNED')
    pins = driver.loop.rebalance.pins
    moving = frozenset(sorted(pgid for pgid, pin in pins.items() if pin.before == pin.entry)[1:])

    def without_them(on: Ground, *args: Any) -> Goals:
        found = work_out(on, *args)
        return replace(found, dropped=moving & set(on.pins), records={
            pgid: pin for pgid, pin in found.records.items() if pgid not in moving})

    monkeypatch.setattr('perfguard.rebalance.goals.work_out', without_them)
    pins.note({pgid: replace(pin, goal=None) for pgid, pin in pins.items() if pgid not in moving})
    driver.loop.rebalance._pin_goals.look_again()
    driver.run(5)
    left = set(pins)
    assert moving and left and moving.isdisjoint(left)
    driver.restart()
    driver.run(10)
    assert set(driver.loop.rebalance.pins) == left


def swapped(pgs: int = 100) -> Driver:
    """Pairs cannot express the pins of the erasure coded pool, and CRUSH places its PGs elsewhere
    again: the raw sets behind their vectors are others."""
    driver = Driver(FakeCluster(pgs=pgs, hosts=40), LARGE)
    cluster = driver.cluster
    driver.ask('prepare')
    driver.run_to('PREPARED')
    rotate(cluster)
    driver.run_until(lambda: len(cluster.remapped()) == pgs)
    driver.ask('pin')
    driver.run_to('PINNED')
    assert len(driver.loop.rebalance.pins.vectors) == pgs
    assert all(pin.raw is not None for pin in driver.loop.rebalance.pins.values())
    rotate(cluster)
    return driver


def rotate(cluster: FakeCluster) -> None:
    """The shards of each PG of the erasure coded pool change places."""
    for pgid, pg in cluster.pg.items():
        if pgid.startswith('2.'):
            first, second, third = pg.mon.raw
            pg.mon.raw = [second, third, first]
    cluster.change_tunables()


def raws_of(driver: Driver) -> Dict[str, Optional[Tuple[int, ...]]]:
    return {pgid: pin.raw for pgid, pin in driver.loop.rebalance.pins.items()}


def placed(driver: Driver) -> Dict[str, Optional[Tuple[int, ...]]]:
    """Where CRUSH places the PGs that are pinned."""
    return {pgid: tuple(driver.cluster.pg[pgid].mon.raw) for pgid in driver.loop.rebalance.pins}


@pytest.mark.usefixtures('small_values')
@pytest.mark.parametrize('crash', [None, 1, 3])
def test_no_turn_blocks_for_longer_than_a_write_while_raw_sets_are_stored(
        crash: Optional[int]) -> None:
    driver = swapped()
    moved, writes, turns = len(driver.cluster.moved), Writes(driver), 0
    driver.ask('start')
    while raws_of(driver) != placed(driver):
        keys = writes.turn()
        assert few(keys), keys
        assert driver.status['in_flight'] == 0 and len(driver.cluster.moved) == moved
        turns += 1
        assert turns < 80
        if turns == crash:
            driver.restart()
    assert turns > 4
    assert {pgid: pin.raw for pgid, pin in stored(driver.kv).items()} == placed(driver)
    driver.run_until(lambda: driver.status['in_flight'] > 0, 60)


@pytest.mark.usefixtures('small_values')
@pytest.mark.parametrize('why', ['', 'osdmaptool is not installed'])
def test_raw_sets_of_pins_that_change_meanwhile_are_computed_again(why: str) -> None:
    """A pin whose raw set is that of another CRUSH map must not be released by it."""
    driver = swapped()
    Writes(driver)
    pins = driver.loop.rebalance.pins
    before = raws_of(driver)
    driver.cluster.no_tools = why
    driver.ask('start')
    driver.run_until(lambda: raws_of(driver) != before)
    pgid = [pgid for pgid in pins if pins[pgid].raw == before[pgid]][-1]
    pins.note({pgid: replace(pins[pgid], was=UpmapEntry(((1, 2),)))})
    driver.run_until(lambda: driver.status['in_flight'] > 0, 200)
    assert pgid not in pins or pins[pgid].was
    assert set(raws_of(driver).values()) == {None} if why else raws_of(driver) == placed(driver)


def rest(number: int, goal: Optional[UpmapEntry]) -> PinRecord:
    return PinRecord(NO_ENTRY, UpmapEntry(((number % 4999, 3000 + number % 1999), (7, 1234),
                                           (8, 4321))), None, goal)


@pytest.mark.parametrize('goal, most', [
    (lambda number: UpmapEntry(((number % 4999, 3000 + number % 1999),)), 40),
    (lambda number: NO_ENTRY, 7)])
def test_goals_take_few_writes(goal: Callable[[int], UpmapEntry], most: int) -> None:
    """48,818 pins, as of an expansion of 1,000 OSDs; writing their records anew took 338."""
    kv = MemoryKv()
    sizes: List[int] = []
    pins = PinStore(Store(kv))
    for first in range(0, 48818, 2000):
        pins.note({'12.%x' % number: rest(number, None)
                   for number in range(first, min(48818, first + 2000))})
    set_store = kv.set_store

    def write(key: str, val: Optional[str]) -> None:
        sizes.append(len(val or ''))
        set_store(key, val)

    setattr(kv, 'set_store', write)
    new = {'12.%x' % number: rest(number, goal(number)) for number in range(48818)}
    for count, part in enumerate(document_parts(new, pins)):
        pins.note(part)
        assert len(sizes) == count + 1
    assert len(sizes) <= most and dict(pins) == new == stored(kv)
    # The next campaign forgets them.
    sizes.clear()
    pins.note({pgid: replace(pin, goal=None) for pgid, pin in pins.items()})
    assert len(sizes) <= most + 8 and not set(pins) - pins.without_goal


def few(keys: List[str]) -> bool:
    """Whether a turn writes one value of pins at most, besides the campaign and an event."""
    return len(keys) <= 5 and sum(key.startswith('pins/') for key in keys) <= 1


@pytest.mark.usefixtures('small_values')
def test_no_turn_blocks_for_longer_than_a_write_while_pins_are_handed_over() -> None:
    driver = expanded(200)
    driver.run_to('PINNED')
    writes, entries, turns = Writes(driver), driver.cluster.entries(), 0
    driver.ask('finish', keep=True)
    while not driver.history:
        keys = writes.turn()
        assert few(keys), keys
        turns += 1
        assert turns < 120
    assert turns > 10 and [row['phase'] for row in driver.history] == ['DONE']
    assert not any(key.startswith('pins/') for key in driver.kv.data)
    assert driver.cluster.entries() == entries


@pytest.mark.usefixtures('small_values')
@pytest.mark.parametrize('turns', [1, 3, 6])
def test_a_new_mgr_goes_on_handing_pins_over(turns: int) -> None:
    driver = expanded(200)
    driver.run_to('PINNED')
    Writes(driver)
    entries, kept = driver.cluster.entries(), len(driver.loop.rebalance.pins)
    driver.ask('finish', keep=True)
    driver.run(turns)
    assert any(key.startswith('pins/') for key in driver.kv.data)
    driver.restart()
    driver.run_until(lambda: bool(driver.history))
    row, = driver.history
    assert (row['phase'], row['kept']) == ('DONE', kept) and driver.cluster.entries() == entries
    driver.restart()
    driver.run(2)
    assert not driver.loop.rebalance.pins and driver.status['id'] is None


def ordered(driver: Driver, order: Order) -> Tuple[PendingOrder, int]:
    """The order, and the number of turns until it was answered; each stores one value of pins."""
    driver.cluster.now += 1.0
    waiting, writes, turns = driver.loop.requests.submit(order), Writes(driver), 0
    while waiting.answer is None:
        assert waiting.refused is None, waiting.refused
        keys = writes.turn()
        assert few(keys), keys
        turns += 1
        assert turns < 60
    return waiting, turns


def to_adopt() -> Tuple[Driver, List[str]]:
    cluster, pinned, _ = pinned_by_others()
    return Driver(cluster, OPTIONS), pinned


def to_import() -> Tuple[Driver, Order]:
    driver = Driver(StrawCluster(hosts=8, pgs=96), OPTIONS)
    driver.run(3)
    cluster: Any = driver.cluster
    return driver, Order('import', mappings=text([a_pair(cluster, pgid)
                                                  for pgid in sorted(cluster.pg)[:150]]))


@pytest.mark.usefixtures('small_values')
def test_no_turn_blocks_for_longer_than_a_write_while_upmaps_are_taken_over() -> None:
    driver, pinned = to_adopt()
    _, turns = ordered(driver, Order('adopt'))
    assert turns > 1 and sorted(stored(driver.kv)) == pinned
    driver.restart()
    driver.run(2)
    assert sorted(driver.loop.rebalance.pins) == pinned and driver.phase != 'PREPARED'


@pytest.mark.usefixtures('small_values')
def test_no_turn_blocks_for_longer_than_a_write_while_upmaps_are_imported() -> None:
    driver, order = to_import()
    before = sets(driver.cluster)  # type: ignore[arg-type]
    waiting, turns = ordered(driver, order)
    assert turns > 1 and waiting.answer is not None and waiting.answer['pgs'] == 150
    driver.run_to('DONE', 600)
    assert len([pgid for pgid, osds in sets(driver.cluster).items()  # type: ignore[arg-type]
                if osds != before[pgid]]) == 150


@pytest.mark.usefixtures('small_values')
@pytest.mark.parametrize('turns', [1, 2, 3])
def test_an_order_whose_pins_are_not_all_stored_has_not_begun(turns: int) -> None:
    """A part of the pins would be taken for all of them."""
    driver, order = to_import()
    Writes(driver)
    driver.loop.requests.submit(order)
    driver.run(turns)
    assert driver.status['id'] == 1 and 0 < len(stored(driver.kv)) < 150
    moved = len(driver.cluster.moved)
    driver.restart()
    driver.run(20)
    assert driver.status['id'] is None and not driver.loop.rebalance.pins
    assert not stored(driver.kv) and len(driver.cluster.moved) == moved
    assert not driver.cluster.progress_events and not driver.history
    assert 'campaign 1 has not begun' in [row['what'] for row in driver.loop.published.events]
    assert ordered(driver, order)[0].answer


@pytest.mark.usefixtures('small_values')
@pytest.mark.parametrize('verb', ['adopt', 'import'])
@pytest.mark.parametrize('crash', [False, True])
def test_an_order_that_is_aborted_before_its_pins_are_all_stored_has_not_begun(
        verb: str, crash: bool) -> None:
    driver, order = to_import() if verb == 'import' else (to_adopt()[0], Order('adopt'))
    writes = Writes(driver)
    entries, flags = driver.cluster.entries(), set(driver.cluster.flags)
    waiting = driver.loop.requests.submit(order)
    driver.turn()
    assert driver.status['id'] == 1 and waiting.answer is None
    driver.ask('abort')
    assert few(writes.turn()), writes.keys
    assert waiting.answer is None and waiting.refused is not None
    assert 'campaign 1 has not begun' in str(waiting.refused)
    if crash:
        driver.restart()
    driver.run(20)
    assert driver.status['id'] is None and not driver.history and not stored(driver.kv)
    assert driver.cluster.entries() == entries and driver.cluster.flags == flags
    assert not driver.cluster.progress_events
    again, _ = ordered(driver, order)
    assert again.answer is not None and again.answer['pgs'] == len(stored(driver.kv))


@pytest.mark.parametrize('order', [Order('adopt'), Order('drain', ('osd.1',)), None])
def test_what_has_not_begun_is_removed_before_another_campaign_begins(
        monkeypatch: pytest.MonkeyPatch, order: Optional[Order]) -> None:
    """Also over several turns."""
    monkeypatch.setattr('perfguard.rebalance.campaign_store.PART_BYTES', 600)
    driver, _ = to_adopt()
    writes = Writes(driver)
    driver.loop.requests.submit(Order('adopt'))
    driver.run(5)
    assert driver.status['id'] == 1 and driver.loop.rebalance.campaigns.storing
    driver.restart()
    writes.turn()
    turns = 0
    while driver.status['id'] is None:
        waiting = None
        if order is None:
            driver.ask('prepare')
        else:
            waiting = driver.loop.requests.submit(order)
        keys = writes.turn()
        assert sum(key.startswith('pins/') for key in keys) <= 2 and len(keys) <= 6, keys
        assert driver.loop.rebalance.campaigns.removing == (driver.status['id'] is None)
        assert waiting is None or not driver.loop.rebalance.campaigns.removing or (
            waiting.refused is not None and waiting.refused.errno == errno.EAGAIN)
        turns += 1
    assert turns > 2


@pytest.mark.parametrize('crash', [False, True])
def test_nothing_is_released_to_goals_that_an_abort_has_kept_from_being_discarded(
        monkeypatch: pytest.MonkeyPatch, crash: bool) -> None:
    """The second campaign leaves all PGs to CRUSH; the goals of the first were upmaps."""
    monkeypatch.setattr('perfguard.rebalance.campaign_store.PART_BYTES', 600)
    driver = expanded(200)
    driver.run_to('PINNED')
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.options = replace(driver.options, target='crush', max_pgs_in_flight=400)
    Writes(driver)
    driver.ask('prepare')
    driver.turn()
    driver.ask('abort')
    driver.run_to('ABORTED')
    pins = driver.loop.rebalance.pins
    assert driver.status['id'] == 2 and any(pin.goal is not None for pin in pins.values())
    if crash:
        driver.restart()
        driver.run(2)
    driver.ask('resume')
    driver.run_until(lambda: driver.history[-1]['phase'] == 'DONE', 3000)
    assert driver.history[-1]['released'] == 400 and not driver.cluster.entries()


@pytest.mark.usefixtures('small_values')
@pytest.mark.parametrize('turns', [None, 1])
def test_goals_of_an_aborted_campaign_are_discarded_over_several_turns(
        turns: Optional[int]) -> None:
    driver = expanded(200)
    driver.run_to('PINNED')
    driver.ask('abort')
    driver.run_to('ABORTED')
    pins = dict(driver.loop.rebalance.pins)
    assert all(pin.goal is not None for pin in pins.values())
    writes = Writes(driver)
    driver.ask('prepare')
    for _ in range(30 if turns is None else turns):
        assert few(writes.turn()), writes.keys
    if turns is not None:
        assert any(pin.goal is not None for pin in driver.loop.rebalance.pins.values())
        driver.restart()
        driver.run(30)
    assert driver.status['id'] == 2 and driver.phase == 'PREPARED'
    assert driver.loop.rebalance.pins.without_goal == pins.keys() == stored(driver.kv).keys()
