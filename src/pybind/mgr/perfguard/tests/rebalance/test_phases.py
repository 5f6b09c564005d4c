# SPDX-License-Identifier: LGPL-2.1-or-later
"""The state machine against a cluster in memory, without a loop or a store."""
import copy
import time
from dataclasses import replace
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Set, Tuple

import pytest

from perfguard.cluster.evacuation import evacuated
from perfguard.cluster.types import (OsdSet, PgCounts, Placement, Signals, UpmapEntry,
                                     pool_of)
from perfguard.codec import decode, encode
from perfguard.errors import Code, texts
from perfguard.events import Event
from perfguard.ledger import Held
from perfguard.mitigation.controller import Mitigated, with_mitigation
from perfguard.observation import IDLE_SECONDS, Clients, Observation, Settings
from perfguard.options import DEFAULTS, Options
from perfguard.rebalance.campaign import Campaign, OwnCrush
from perfguard.rebalance.draft import Draft
from perfguard.rebalance.executor import execute
from perfguard.rebalance.moves import Move, release_move, serving_until_moved
from perfguard.rebalance.phases import LONG_PAUSE_SECONDS, judge
from perfguard.rebalance.releasing import _prime, others_degraded
from perfguard.rebalance.requests import Request, apply
from perfguard.rebalance.throttle import TRIM_SECONDS, maps_to_trim
from perfguard.rebalance.types import (NOREBALANCE_KEY, Action, Flight, Phase, PinRecord, Sent,
                                       SetEntry, SetFlag, SetOption)
from perfguard.why.causes import gate

from ..fakes.audit import load, over_caps
from ..fakes.campaigns import campaign_of, changed
from ..fakes.cluster import BALANCER, FakeCluster

OPTIONS = replace(DEFAULTS, max_pgs_in_flight=4, readback_timeout=6.0)


class Machine:
    """Feeds `judge` with what the cluster shows and carries out what it decides."""

    def __init__(self, cluster: Optional[FakeCluster] = None,
                 options: Options = OPTIONS) -> None:
        self.cluster = cluster or FakeCluster()
        self.options = options
        now = self.cluster.now
        self.campaign = campaign_of(1, Phase.PREPARED, now, phase_since=now)
        self.pins: Dict[str, PinRecord] = {}
        self.phases: List[Phase] = []
        self.events: List[Event] = []
        self.decision: Draft

    def observe(self) -> Observation:
        view = self.cluster.map_view()
        return Observation(
            self.cluster.now, self.cluster.signals(view.osdmap),
            Settings(view.osdmap, self.cluster.balancer_active(),
                     self.cluster.stored_options()),
            view.placement, self.cluster.crush(view.crush_version), self.cluster.period,
            degraded_osds=self.cluster.degraded_osds(),
            evacuation=evacuated(view.osdmap, view.placement,
                                 self.cluster.crush(view.crush_version)),
            clients=Clients(self.cluster.now, covered=IDLE_SECONDS))

    def judge(self) -> Draft:
        seen = self.observe()
        out = seen.osdmap.out
        moves = {}
        for pgid, pin in self.pins.items():
            place = seen.placement(pgid)
            if place is not None and seen.osdmap.entry(pgid) == pin.entry:
                moves[pgid] = release_move(pgid, seen.osdmap, place.up, pin, out, 1 << 30)
        before = copy.deepcopy((self.campaign, self.pins, moves))
        decision = judge(self.campaign, self.pins, moves, seen, self.options)
        assert (self.campaign, self.pins, moves) == before, 'an input was changed'
        return decision

    def turn(self) -> List[Action]:
        decision = self.decision = self.judge()
        # What is kept between two turns must survive JSON.
        self.campaign = decode(Campaign, encode(decision.campaign))
        assert self.campaign == decision.campaign
        if not self.phases or self.phases[-1] is not self.campaign.phase:
            self.phases.append(self.campaign.phase)
        self.events += decision.events
        self.pins.update(decision.new_pins)
        execute(self.cluster, decision.actions)
        for pgid in decision.unpins:
            del self.pins[pgid]
        self.cluster.tick()
        return list(decision.actions)

    def ask(self, verb: str, **kwargs: Any) -> None:
        self.campaign = apply(self.campaign, Request(verb, **kwargs), self.cluster.now)

    def until(self, done: Callable[[], bool], turns: int = 200) -> None:
        for _ in range(turns):
            if done():
                return
            self.turn()
        raise AssertionError('not reached: %s %s' % (self.campaign.phase, self.reasons))

    def to(self, phase: Phase) -> None:
        self.until(lambda: self.campaign.phase is phase)

    @property
    def reasons(self) -> str:
        return '; '.join(texts(self.decision.reasons))

    @property
    def codes(self) -> List[str]:
        return [reason.code for reason in self.decision.reasons]


def prepared(cluster: Optional[FakeCluster] = None, options: Options = OPTIONS) -> Machine:
    machine = Machine(cluster, options)
    machine.until(lambda: machine.campaign.holds.prepared)
    return machine


def expanded(cluster: Optional[FakeCluster] = None, options: Options = OPTIONS) -> Machine:
    machine = prepared(cluster, options)
    machine.cluster.expand()
    machine.until(lambda: len(machine.cluster.remapped()) == 12)
    return machine


def test_a_flag_on_its_way_does_not_count_as_in_force() -> None:
    """A PG that arrived after the OSDMap that perfguard sees would move again."""
    machine = releasing()
    machine.until(lambda: bool(machine.cluster.remapped()))
    machine.ask('abort')
    seen, flags = machine.observe(), frozenset({'norebalance'})
    seen = replace(seen, settings=replace(seen.settings, borrowed_elsewhere=flags))
    decision = judge(machine.campaign, machine.pins, {}, seen, OPTIONS)
    assert decision.campaign.flights.in_flight and not decision.new_pins
    there = replace(seen.osdmap, flags=seen.osdmap.flags | flags)
    seen = replace(seen, settings=replace(seen.settings, osdmap=there))
    decision = judge(machine.campaign, machine.pins, {}, seen, OPTIONS)
    assert not decision.campaign.flights.in_flight and decision.new_pins


def test_norebalance_is_not_cleared_before_an_osdmap_has_shown_it() -> None:
    """It was set for a PG that was remapped for a moment."""
    machine = releasing()
    machine.campaign = replace(machine.campaign, holds=machine.campaign.holds.put(
        NOREBALANCE_KEY, Held(None, 'norebalance')))
    assert SetFlag('norebalance', False) not in machine.turn()
    machine.until(lambda: machine.campaign.holds.flag is None)
    machine.to(Phase.DONE)
    assert not [event for event in machine.events if 'outside perfguard' in event.what]


def test_pgs_that_move_are_pinned_once_they_are_stopped() -> None:
    """As after an abort whose "resume" finds PGs on their way: of those that the OSDMap shows
    remapped, some arrive before norebalance is in force, and their pins would move them back."""
    machine = Machine()
    machine.cluster.expand()
    while len(machine.cluster.remapped()) < 12:
        machine.cluster.tick()
    machine.campaign = replace(machine.campaign, phase=Phase.PINNING, automatic=True)
    first = machine.turn()
    assert SetFlag('norebalance', True) in first
    assert not [action for action in first if isinstance(action, SetEntry)]
    assert Code.UNPINNED in machine.codes
    machine.to(Phase.PINNED)
    assert len(machine.pins) == 12


def test_unknown_pgs_of_other_pools_take_no_room_for_peering() -> None:
    machine = pinned()
    counts = machine.observe().signals.counts
    lost = replace(counts, total=counts.total + 100, in_transition=100, unreported=100)
    signals = Signals(lost, {1: PgCounts(total=12), 2: PgCounts(total=12),
                             3: PgCounts(total=100, in_transition=100, unreported=100)})
    seen = replace(machine.observe(), signals=signals)
    assert Draft.of(machine.campaign, machine.pins, {}, seen, OPTIONS).peering_room() > 0
    nowhere = replace(seen, signals=replace(signals, pool_counts={}))
    assert Draft.of(machine.campaign, machine.pins, {}, nowhere, OPTIONS).peering_room() < 0


def pinned(cluster: Optional[FakeCluster] = None, options: Options = OPTIONS) -> Machine:
    machine = expanded(cluster, options)
    machine.ask('pin')
    machine.to(Phase.PINNED)
    return machine


def releasing(cluster: Optional[FakeCluster] = None) -> Machine:
    machine = pinned(cluster)
    machine.ask('start')
    machine.until(lambda: bool(machine.campaign.flights.in_flight))
    return machine


def paused(cluster: Optional[FakeCluster] = None) -> Machine:
    machine = releasing(cluster)
    machine.ask('pause')
    machine.turn()
    return machine


def pinning(cluster: Optional[FakeCluster] = None) -> Machine:
    machine = expanded(cluster)
    machine.ask('pin')
    machine.turn()
    return machine


def finishing(cluster: Optional[FakeCluster] = None) -> Machine:
    machine = releasing(cluster)
    machine.ask('finish', keep=True)
    machine.turn()
    return machine


STATES: List[Tuple[Phase, Callable[..., Machine]]] = [
    (Phase.PREPARED, prepared), (Phase.PREPARED, expanded), (Phase.PINNING, pinning),
    (Phase.PINNED, pinned), (Phase.RELEASING, releasing), (Phase.HOLDING, paused),
    (Phase.FINISHING, finishing)]
EVERY_STATE = pytest.mark.parametrize('phase, make', STATES,
                                      ids=[make.__name__ for _, make in STATES])


# ---- the straight way

def test_the_whole_way() -> None:
    cluster = FakeCluster()
    found = cluster.foreign()
    machine = releasing(cluster)
    assert cluster.moved == []
    machine.to(Phase.DONE)
    assert [phase.value for phase in machine.phases] == [
        'PREPARED', 'PINNING', 'PINNED', 'RELEASING', 'FINISHING', 'DONE']
    assert cluster.clean() and cluster.entries() == {} and cluster.foreign() == found
    assert sorted(moved.pgid for moved in cluster.moved) == sorted(
        {moved.pgid for moved in cluster.moved})
    assert 1 <= cluster.most_moving <= 4
    ended = machine.campaign
    assert (ended.progress.released, ended.progress.total, ended.progress.kept) == (12, 12, 0)
    assert ended.progress.bytes_done > 0 and ended.ended and not machine.pins


def test_a_campaign_without_remapped_pgs_ends() -> None:
    machine = prepared()
    machine.ask('pin')
    machine.to(Phase.PINNED)
    machine.ask('start')
    machine.to(Phase.DONE)
    assert machine.campaign.progress.released == 0 and not machine.pins
    assert not machine.cluster.map_view().osdmap.upmap_items


def test_prepared_holds_the_settings_and_waits() -> None:
    machine = prepared()
    cluster = machine.cluster
    assert 'norebalance' in cluster.flags
    assert cluster.config == {BALANCER: 'false'} and cluster.modes == {1: 'off', 2: 'warn'}
    assert [machine.turn() for _ in range(5)] == [[]] * 5
    assert machine.campaign.phase is Phase.PREPARED and machine.codes == ['AWAITS_CHANGE']
    machine.cluster.expand()
    machine.until(lambda: bool(cluster.remapped()))
    machine.turn()
    assert machine.turn() == [] and machine.codes == ['AWAITS_PIN']
    assert '12 PGs are remapped' in machine.reasons


def test_pinning_makes_every_pg_clean_and_moves_nothing() -> None:
    machine = pinned()
    cluster = machine.cluster
    assert cluster.clean() and cluster.moved == [] and len(machine.pins) == 12
    assert machine.campaign.pinning.unpinnable == {} and not machine.campaign.pinning.sent
    assert machine.turn() == [SetOption('mon', 'paxos_propose_interval', None)]
    assert [machine.turn() for _ in range(5)] == [[]] * 5
    assert machine.campaign.phase is Phase.PINNED and machine.codes == ['AWAITS_START']
    assert '12 PGs are pinned' in machine.reasons


def test_pins_go_in_batches() -> None:
    machine = expanded(options=replace(OPTIONS, pin_batch=5))
    machine.ask('pin')
    most = 0
    while machine.campaign.phase is not Phase.PINNED:
        most = max(most, sum(isinstance(action, SetEntry) for action in machine.turn()))
    assert most == 5 and len(machine.pins) == 12


def test_releases_wait_while_pgs_peer() -> None:
    machine = pinned()
    machine.cluster.trouble = {'in_transition': 8, 'inactive': 8}
    machine.ask('start')
    for _ in range(10):
        machine.turn()
    assert not machine.campaign.flights.in_flight and 'PEERING' in machine.codes
    machine.cluster.trouble = {}
    machine.to(Phase.DONE)


def test_items_from_before_are_kept() -> None:
    cluster = FakeCluster()
    cluster.add_upmap('1.1', cluster.pg['1.1'].data[0], 2)
    cluster.add_upmap('1.2', cluster.pg['1.2'].data[0], 5)
    found = cluster.entries()
    machine = pinned(cluster)
    assert len(cluster.entries()['1.2'].items) == 2
    assert machine.pins['1.2'].before == found['1.2'] and '1.1' not in machine.pins
    machine.ask('start')
    machine.to(Phase.DONE)
    assert cluster.entries() == found


def test_a_pinned_pg_that_crush_moves_again_keeps_what_was_before() -> None:
    cluster = FakeCluster()
    cluster.add_upmap('1.2', cluster.pg['1.2'].data[0], 5)
    found = cluster.entries()
    machine = pinned(cluster)
    first = machine.pins['1.2'].entry
    raw = cluster.pg['1.2'].mon.raw
    cluster.set_raw('1.2', (raw[0], 9, raw[2]))
    machine.until(lambda: machine.pins['1.2'].entry != first and not machine.campaign.pinning.sent)
    assert machine.pins['1.2'].before == found['1.2']
    assert set(first.items) < set(cluster.entries()['1.2'].items)
    machine.ask('start')
    machine.to(Phase.DONE)
    assert cluster.entries() == found


def test_a_swap_is_pinned_by_a_vector_and_released() -> None:
    machine = prepared()
    cluster = machine.cluster
    here = cluster.pg['2.1'].data
    cluster.set_raw('2.1', (here[1], here[0], here[2]))
    machine.until(lambda: bool(cluster.remapped()))
    machine.ask('pin')
    machine.to(Phase.PINNED)
    assert cluster.entries() == {'2.1': UpmapEntry(vector=here)}
    assert machine.pins['2.1'].raw == (here[1], here[0], here[2])
    machine.ask('start')
    machine.to(Phase.DONE)
    assert cluster.entries() == {} and cluster.pg['2.1'].data == (here[1], here[0], here[2])


def test_a_release_says_who_serves_the_pg_until_it_has_moved() -> None:
    machine = pinned()
    cluster = machine.cluster
    machine.ask('start')
    primes: Dict[str, Any] = {}
    serving = {pgid: machine.observe().placement(pgid) for pgid in machine.pins}
    while machine.campaign.phase is not Phase.DONE:
        primes.update({action.pgid: action.prime for action in machine.turn()
                       if isinstance(action, SetEntry)})
    assert set(primes) == set(serving) == cluster.primed
    pools = machine.observe().osdmap.pools
    assert all(place is not None and primes[pgid] == serving_until_moved(
        pools[pool_of(pgid)], place.acting, cluster.pg[pgid].data)
        for pgid, place in serving.items())


def test_a_release_keeps_the_order_where_primary_affinities_decide_who_leads() -> None:
    machine = pinned()
    machine.cluster.affinity = {osd: 0.5 for osd in machine.cluster.toys}
    machine.ask('start')
    serving = {pgid: machine.observe().placement(pgid) for pgid in machine.pins}
    primes: Dict[str, Any] = {}
    while machine.campaign.phase is not Phase.DONE:
        primes.update({action.pgid: action.prime for action in machine.turn()
                       if isinstance(action, SetEntry)})
    assert set(primes) == set(serving) and all(
        place is not None and primes[pgid] == place.acting for pgid, place in serving.items())


def test_a_release_keeps_the_primary_that_a_pg_upmap_primary_entry_names() -> None:
    """CRUSH places osd.0 first: it would lead the PG for an interval, and osd.1 again after it."""
    machine = pinned()
    seen, pgid, here = machine.observe(), '1.0', (1, 0, 2)
    pin = PinRecord(UpmapEntry(), UpmapEntry(vector=here), raw=(0, 1, 9))
    move = release_move(pgid, seen.osdmap, here, pin, frozenset(), 1)

    def prime(primaries: Dict[str, int]) -> OsdSet:
        settings = replace(seen.settings, osdmap=replace(seen.osdmap, upmap_primaries=primaries))
        return _prime(Draft.of(machine.campaign, {pgid: pin}, {}, replace(
            seen, settings=settings, placement=lambda _: Placement(here, here)), OPTIONS),
            move, pin)

    assert prime({}) == (0, 1, 2)
    # An OSD that is not in the set leads no PG.
    assert prime({pgid: 5}) == (0, 1, 2)
    assert prime({pgid: 1}) == here


def test_a_release_does_not_say_it_where_the_mon_would_take_it_for_another_order() -> None:
    machine = pinned()
    cluster = machine.cluster
    cluster.ec_flags = frozenset({'hashpspool', 'ec_optimizations'})
    serving = list(machine.pins)
    machine.ask('start')
    # Its interval without a pg_temp is one more.
    for pool, number in (('1.', 1), ('2.', 2)):
        machine.until(lambda: any(
            pgid.startswith(pool) for pgid in machine.campaign.flights.in_flight))
        changes = [change.pgid for change in machine.campaign.stalls.changes]
        assert {changes.count(pgid) for pgid in machine.campaign.flights.in_flight
                if pgid.startswith(pool)} == {number}
    machine.to(Phase.DONE)
    assert cluster.primed and not [pgid for pgid in cluster.primed if pgid.startswith('2.')]
    assert machine.campaign.progress.released == len(serving) and any(
        pgid.startswith('2.') for pgid in serving)


def test_a_pinned_pg_that_was_remapped_while_an_osd_was_down_is_released_afterwards() -> None:
    machine = pinned()
    machine.ask('start')
    machine.until(lambda: machine.campaign.phase is Phase.RELEASING)
    number, pgid = len(machine.pins), max(machine.pins)
    assert pgid not in machine.campaign.flights.in_flight
    # It could not be pinned where it was meanwhile, and counted against the caps like any other.
    back = Flight(machine.cluster.now, machine.pins[pgid].entry, confirmed=machine.cluster.now,
                  seen_remapped=True)
    machine.campaign = changed(machine.campaign, in_flight={
        **machine.campaign.flights.in_flight, pgid: back})
    machine.to(Phase.DONE)
    assert machine.cluster.entries() == {} and machine.campaign.progress.released == number


# ---- caps

def wide(**caps: int) -> Options:
    """No cap but these is met."""
    return replace(OPTIONS, **{**{'max_pgs_in_flight': 100, 'max_backfills_source': 99,
                                  'max_backfills_primary': 99, 'max_backfills_target': 99,
                                  'max_backfills_host': 99, 'max_backfills_domain': 99}, **caps})


@pytest.mark.parametrize('role', ['source', 'target', 'primary', 'host', 'domain'])
def test_each_cap_is_reached_and_never_exceeded(role: str) -> None:
    """Four racks of two hosts with two OSDs each, the rack being the failure domain."""
    cluster = FakeCluster(hosts=8, osds_per_host=2, racks=4, pgs=24, backfill_seconds=10.0)
    machine = Machine(cluster, wide(**{'max_backfills_%s' % role: 2}))
    machine.until(lambda: machine.campaign.holds.prepared)
    cluster.expand(count=4, share=1)
    machine.until(lambda: len(cluster.remapped()) == 48)
    machine.ask('pin')
    machine.to(Phase.PINNED)
    machine.ask('start')
    most: Dict[str, int] = {}
    while machine.campaign.phase is not Phase.DONE:
        machine.turn()
        assert over_caps(cluster, machine.options) == []
        for name, counts in load(cluster).items():
            most[name] = max(most.get(name, 0), max(counts.values(), default=0))
    assert most.pop(role) == 2
    # Had the wrong places been counted, the others would not have been used as much.
    assert max(most.values()) > 2 and cluster.clean()


def test_no_more_pgs_peer_at_once_than_allowed_though_statistics_are_late() -> None:
    cluster = FakeCluster(pgs=60, period=10.0, peer_seconds=4.0)
    machine = prepared(cluster, replace(wide(), max_transition_ratio=0.0))
    cluster.expand()
    machine.until(lambda: len(cluster.remapped()) == 60)
    machine.ask('pin')
    machine.to(Phase.PINNED)
    machine.ask('start')
    most = 0
    while machine.campaign.phase is not Phase.DONE:
        machine.turn()
        most = max(most, sum(pg.peering_until is not None for pg in cluster.pg.values()))
    assert most == 8


def lacking_a_shard() -> Tuple[Machine, str, Set[int]]:
    """A PG of an erasure coded pool that has lost an OSD: no pin can hold it, and it moves.

    Returns it with the OSDs that hold its other shards.
    """
    machine = prepared()
    cluster = machine.cluster
    pgid, pg = next((pgid, pg) for pgid, pg in cluster.pg.items() if pool_of(pgid) == 2)
    first, second, lost = pg.data
    cluster.take_down(lost)
    cluster.mark_out(lost)
    machine.until(lambda: pgid in cluster.remapped())
    # The statistics do not show yet that it is degraded.
    cluster.trouble = {'degraded': 0}
    setattr(cluster, 'degraded_osds', frozenset)
    cluster.backfill_seconds = 1e6
    machine.ask('pin')
    machine.to(Phase.PINNED)
    assert pgid in machine.campaign.pinning.unpinnable
    machine.ask('start')
    return machine, pgid, {first, second}


def test_a_campaign_does_not_wait_for_a_pg_that_only_recovers() -> None:
    """The statistics need not have shown that it is degraded."""
    machine, pgid, _ = lacking_a_shard()
    machine.to(Phase.DONE)
    assert pgid in machine.cluster.remapped() and 'norebalance' not in machine.cluster.flags


def test_a_release_whose_way_was_not_known_is_charged_once_it_is() -> None:
    machine, pgid, holders = lacking_a_shard()
    now = machine.cluster.now
    blind = Flight(now, UpmapEntry(), confirmed=now)
    machine.campaign = changed(machine.campaign, in_flight={pgid: blind})
    machine.turn()
    flight = machine.campaign.flights.in_flight[pgid]
    assert set(flight.readers) == holders and len(flight.targets) == 1 and flight.bytes


def test_nothing_is_released_onto_an_osd_that_is_down() -> None:
    machine = pinned()
    new = machine.cluster.hosts
    machine.cluster.take_down(new)
    machine.ask('start')
    for _ in range(60):
        machine.turn()
        assert not any(new in transfer.targets for transfer in machine.cluster.released.values())
    assert 0 < machine.campaign.progress.released < 12 and machine.campaign.phase is Phase.RELEASING
    assert Code.TARGET_DOWN in machine.codes
    assert gate_down(machine, new) == {new}
    machine.cluster.revive(new)
    assert gate_down(machine, new) == frozenset()
    machine.to(Phase.DONE)


def test_no_pg_is_released_that_lacks_an_osd_before_it_is_reported_as_degraded() -> None:
    machine = pinned()
    cluster = machine.cluster
    cluster.take_down(0)
    # The OSDMap shows it some seconds before the statistics do.
    cluster.trouble = {'degraded': 0, 'inactive': 0}
    setattr(cluster, 'degraded_osds', frozenset)
    lacking = {pgid for pgid in machine.pins if 0 in cluster.pg[pgid].data}
    machine.ask('start')
    released: Set[str] = set()
    for _ in range(60):
        machine.turn()
        released |= machine.campaign.flights.in_flight.keys()
        assert not released & lacking
    assert lacking and released
    assert machine.campaign.phase is Phase.RELEASING and Code.DEGRADED in machine.codes
    cluster.revive(0)
    machine.to(Phase.DONE)


def gate_down(machine: Machine, target: int) -> FrozenSet[int]:
    """What `why` says of the targets of a PG that would move onto this OSD."""
    here = machine.cluster.pg['1.0'].data
    draft = Draft.of(machine.campaign, machine.pins, {}, machine.observe(), OPTIONS)
    return gate(draft, Move('1.0', here[:1], (target,), here[0], 0)).down


def test_what_recovers_is_pinned_at_once() -> None:
    """norebalance does not defer the backfill of degraded PGs."""
    machine = prepared()
    cluster = machine.cluster
    cluster.recovery_seconds = 30.0
    cluster.take_down(0)
    cluster.tick(10.0)
    cluster.revive(0)
    cluster.tick(5.0)
    degraded = cluster.degraded_osds()
    held = [pgid for pgid, pg in cluster.pg.items() if degraded.issuperset(pg.data)]
    assert held
    cluster.expand(share=1)
    cluster.tick(5.0)
    assert set(held) <= set(cluster.remapped())
    machine.ask('pin')
    machine.until(lambda: set(held) <= set(machine.pins), turns=5)
    assert machine.campaign.pinning.unpinnable == {} and set(held) <= set(cluster.entries())
    assert cluster.report_now().degraded
    machine.to(Phase.PINNED)


# ---- holding

@pytest.mark.parametrize('trouble', [
    {'trouble': {'laggy': 1}}, {'trouble': {'degraded': 2}}, {'slow_ops': 1},
    {'health': {'MON_DOWN': '1/3 mons down'}}, {'trouble': {'inactive': 1}}])
def test_a_stop_condition_stops_releases_until_it_is_over(trouble: Dict[str, Any]) -> None:
    machine = releasing()
    cluster = machine.cluster
    for name, value in trouble.items():
        setattr(cluster, name, value)
    for _ in range(12):
        assert not any(isinstance(action, SetEntry) for action in machine.turn())
        assert 'norebalance' not in cluster.flags
    assert machine.campaign.phase is Phase.HOLDING and machine.reasons
    under_way = machine.campaign.progress.released
    assert under_way == 4 and not machine.campaign.flights.in_flight, 'PGs in flight continue'
    cluster.trouble, cluster.health, cluster.slow_ops = {}, {}, 0
    machine.turn()
    assert machine.campaign.phase is Phase.HOLDING, 'it may be back with the next report'
    machine.to(Phase.DONE)


@pytest.mark.parametrize('check', ['MON_DISK_LOW', 'MON_DISK_CRIT', 'MON_DISK_BIG'])
def test_full_disks_of_mons_stop_releases(check: str) -> None:
    machine = releasing()
    cluster = machine.cluster
    # Its release may be the last one that the mons need to trim OSDMaps.
    cluster.refuse['osd pg-upmap'] = 'no'
    first, second, third = cluster.pg['2.1'].data
    cluster.set_raw('2.1', (second, first, third))
    machine.until(lambda: '2.1' in machine.campaign.pinning.unpinnable)
    cluster.health = {check: 'mon a is low on available space'}
    machine.until(lambda: machine.campaign.phase is Phase.HOLDING
                  and not machine.campaign.flights.in_flight)
    left = len(machine.pins)
    for _ in range(30):
        machine.turn()
    assert len(machine.pins) == left > 0 and 'MON_DISK' in machine.codes
    assert cluster.clean() and 'norebalance' not in cluster.flags, 'the mons could not trim'
    cluster.health = {}
    machine.to(Phase.DONE)


@pytest.mark.parametrize('flag', ['nobackfill', 'norebalance', 'norecover'])
def test_a_foreign_flag_holds_and_is_never_cleared(flag: str) -> None:
    machine = releasing()
    machine.cluster.flags.add(flag)
    for _ in range(8):
        machine.turn()
    assert flag in machine.cluster.flags
    assert machine.campaign.phase is Phase.HOLDING
    assert 'FOREIGN_FLAG' in machine.codes and flag in machine.reasons
    machine.cluster.flags.discard(flag)
    machine.to(Phase.DONE)


def test_a_flag_from_before_the_campaign_stays() -> None:
    cluster = FakeCluster()
    cluster.flags.add('norebalance')
    machine = pinned(cluster)
    machine.ask('abort')
    machine.to(Phase.ABORTED)
    assert 'norebalance' in cluster.flags


def test_pause_stops_all_movement_and_resume_goes_on() -> None:
    machine = paused()
    cluster = machine.cluster
    assert 'norebalance' in cluster.flags and machine.campaign.phase is Phase.HOLDING
    flights = set(machine.campaign.flights.in_flight)
    for _ in range(10):
        machine.turn()
    assert cluster.moved == [] and set(machine.campaign.flights.in_flight) == flights
    assert 'PAUSED' in machine.codes
    machine.ask('resume')
    machine.to(Phase.DONE)
    assert len(cluster.moved) == 12


def test_the_balancer_switched_on_by_others_holds() -> None:
    machine = releasing()
    machine.cluster.config[BALANCER] = 'true'
    machine.turn()
    machine.turn()
    assert machine.campaign.phase is Phase.HOLDING and 'BALANCER_ON' in machine.codes
    assert machine.cluster.config[BALANCER] == 'true'
    machine.cluster.config[BALANCER] = 'false'
    machine.to(Phase.DONE)
    # They have followed the advice of the reason, which must not leave it off for ever.
    assert machine.cluster.config[BALANCER] == 'true', 'as before the campaign'


def out_of_hours(options: Options, now: float) -> Options:
    hour = time.localtime(now).tm_hour
    return replace(options, begin_time='%02d00' % ((hour + 2) % 24),
                   end_time='%02d00' % ((hour + 3) % 24))


def test_nothing_is_released_out_of_hours_whatever_else_moves() -> None:
    machine = pinned()
    machine.options = out_of_hours(OPTIONS, machine.cluster.now)
    machine.ask('start')
    others = [pgid for pgid in machine.cluster.pg if pgid not in machine.pins]
    assert len(others) >= len(machine.pins)
    machine.campaign = changed(machine.campaign, in_flight={
        pgid: Flight(machine.cluster.now, UpmapEntry()) for pgid in others})
    for _ in range(3):
        assert not any(isinstance(action, SetEntry) for action in machine.turn())
    assert machine.campaign.phase is Phase.HOLDING
    assert 'WINDOW_CLOSED' in machine.codes


def test_nothing_is_released_while_the_window_falls_into_the_hour_that_is_skipped(
        monkeypatch: pytest.MonkeyPatch) -> None:
    machine = pinned()
    monkeypatch.setattr('perfguard.rebalance.throttle.opens_in', lambda when, now: None)
    machine.ask('start')
    for _ in range(3):
        assert not any(isinstance(action, SetEntry) for action in machine.turn())
    assert machine.campaign.phase is Phase.HOLDING
    assert 'WINDOW_CLOSED' in machine.codes and 'within the next week' in machine.reasons


def test_no_release_onto_an_osd_that_is_nearly_full() -> None:
    machine = pinned()
    full = machine.cluster.hosts
    machine.cluster.fullness = {full: 'nearfull'}
    machine.ask('start')
    for _ in range(60):
        machine.turn()
        flights = machine.campaign.flights.in_flight.values()
        assert all(full not in flight.targets for flight in flights)
    assert 0 < machine.campaign.progress.released < 12
    machine.cluster.fullness = {}
    machine.to(Phase.DONE)


def test_while_a_pg_is_too_full_only_other_targets_get_more() -> None:
    machine = releasing()
    machine.cluster.backfill_seconds = 1000.0
    flights = machine.campaign.flights.in_flight.values()
    targets = {osd for flight in flights for osd in flight.targets}
    machine.options = replace(OPTIONS, max_pgs_in_flight=12, max_backfills_target=12)
    machine.cluster.trouble = {'backfill_toofull': 1}
    under_way = set(machine.campaign.flights.in_flight)
    for _ in range(10):
        machine.turn()
    fresh = [flight for pgid, flight in machine.campaign.flights.in_flight.items()
             if pgid not in under_way]
    assert not any(targets & set(flight.targets) for flight in fresh)
    assert 'BACKFILL_TOOFULL' in machine.codes and machine.campaign.phase is Phase.RELEASING
    machine.cluster.trouble = {}
    machine.cluster.backfill_seconds = 4.0
    machine.to(Phase.DONE)


def test_pgs_on_an_osd_that_is_nearly_full_go_first() -> None:
    machine = pinned(options=replace(OPTIONS, max_pgs_in_flight=1))
    moves = {pgid: pg for pgid, pg in machine.cluster.pg.items() if pgid in machine.pins}
    last = sorted(moves)[-1]
    source = next(osd for osd in moves[last].data if osd not in moves[last].mon.raw)
    machine.cluster.fullness = {source: 'backfillfull'}
    machine.cluster.health = {'OSD_BACKFILLFULL': '1 backfillfull osd'}
    machine.ask('start')
    machine.until(lambda: bool(machine.campaign.flights.in_flight))
    [flight] = machine.campaign.flights.in_flight.values()
    assert source in flight.sources
    machine.cluster.fullness, machine.cluster.health = {}, {}
    machine.to(Phase.DONE)


# ---- others change things

def test_a_second_crush_change_is_pinned_while_releasing() -> None:
    machine = releasing()
    cluster = machine.cluster
    guarded: Set[str] = set(machine.campaign.flights.in_flight)
    cluster.set_raw('1.1', (9, 8, 10))
    machine.until(lambda: '1.1' in machine.pins)
    assert '1.1' not in guarded and machine.pins['1.1'].entry
    machine.to(Phase.DONE)
    assert set(cluster.pg['1.1'].data) == {9, 8, 10} and cluster.clean()
    assert machine.campaign.progress.released == 13


def test_an_upmap_of_others_replaces_a_pin_and_stays() -> None:
    machine = pinned()
    cluster = machine.cluster
    pgid = sorted(machine.pins)[-1]
    raw = cluster.pg[pgid].mon.raw
    other = next(osd for osd in range(8) if osd not in raw and osd not in cluster.pg[pgid].data)
    theirs = ((raw[0], other),)
    cluster.run([{'prefix': 'osd pg-upmap-items', 'pgid': pgid, 'id': list(theirs[0])}])
    machine.turn()
    assert pgid not in machine.pins
    assert any('replaced outside perfguard' in event.what for event in machine.events)


def test_a_pg_in_flight_that_others_pin_is_not_counted_as_moved() -> None:
    """As upmap-remapped.py does with all PGs that move."""
    machine = releasing()
    cluster = machine.cluster
    machine.until(lambda: any(
        flight.seen_remapped for flight in machine.campaign.flights.in_flight.values()))
    pgid = min(pgid for pgid, flight in machine.campaign.flights.in_flight.items()
               if flight.seen_remapped)
    data, total = cluster.pg[pgid].data, machine.campaign.progress.total
    theirs = tuple((new, old) for new, old in zip(cluster.pg[pgid].mon.raw, data) if new != old)
    cluster.set_upmap(pgid, theirs)
    machine.to(Phase.DONE)
    assert machine.campaign.progress.released == total - 1 and machine.campaign.progress.kept == 1
    assert [event.what for event in machine.events if event.kind == 'keep'] == [
        'PG %s does not move to where it was released' % pgid]
    assert cluster.pg[pgid].data == data and cluster.entries()[pgid].items == theirs


def led_elsewhere(machine: Machine) -> Tuple[str, OsdSet, UpmapEntry]:
    """Others lead a PG in flight away from the OSD that it was released to. Returns the PG, where
    its data is, and their upmap. Nothing moves until the caller clears norebalance."""
    cluster = machine.cluster
    machine.until(lambda: bool(set(cluster.remapped()) & set(machine.campaign.flights.in_flight)))
    pgid = min(set(cluster.remapped()) & set(machine.campaign.flights.in_flight))
    pg = cluster.pg[pgid]
    bad = next(new for new, old in zip(pg.mon.raw, pg.data) if new != old)
    other = next(osd for osd in cluster.toys if osd not in pg.mon.raw and osd not in pg.data)
    cluster.flags.add('norebalance')
    cluster.set_upmap(pgid, [(bad, other)])
    machine.turn()
    assert pgid in machine.campaign.flights.in_flight and pgid in cluster.remapped()
    return pgid, pg.data, UpmapEntry(((bad, other),))


def test_an_abort_keeps_the_upmap_of_others_for_a_pg_in_flight() -> None:
    machine = releasing()
    pgid, data, theirs = led_elsewhere(machine)
    machine.ask('abort')
    machine.to(Phase.ABORTED)
    assert machine.cluster.pg[pgid].data == machine.cluster.pg[pgid].up == data
    pin = machine.pins[pgid]
    assert (pin.before, pin.leads_to, pin.was) == (theirs, theirs, None)
    machine.cluster.flags.discard('norebalance')
    machine.ask('resume')
    machine.to(Phase.DONE)
    assert machine.cluster.entries() == {pgid: theirs}
    assert theirs.items[0][1] in machine.cluster.pg[pgid].data


def test_a_pg_that_is_pinned_back_keeps_the_upmap_of_others() -> None:
    """The mitigation pins back PGs that wait for backfill."""
    machine = releasing()
    pgid, data, theirs = led_elsewhere(machine)
    observe = machine.observe
    setattr(machine, 'observe', lambda: with_mitigation(
        observe(), Mitigated(pin_back=frozenset({pgid}))))
    machine.until(lambda: machine.cluster.entries().get(pgid) not in (None, theirs))
    setattr(machine, 'observe', observe)
    assert machine.pins[pgid].before == machine.pins[pgid].leads_to == theirs
    for _ in range(5):
        machine.turn()
    assert machine.cluster.pg[pgid].data == machine.cluster.pg[pgid].up == data
    machine.cluster.flags.discard('norebalance')
    machine.to(Phase.DONE)
    assert machine.cluster.entries() == {pgid: theirs}
    assert theirs.items[0][1] in machine.cluster.pg[pgid].data
    assert machine.campaign.progress.released == 12 and machine.campaign.progress.kept == 0


@pytest.mark.parametrize('sent', [False, True])
def test_a_pin_that_never_reached_the_mons_is_not_replaced_by_others(sent: bool) -> None:
    """The one before it is in force, and keeps the PG in place."""
    machine = pinned()
    pgid = next(pgid for pgid, pin in sorted(machine.pins.items()) if pin.entry.items)
    found, newer = machine.pins[pgid], UpmapEntry(vector=machine.cluster.pg[pgid].data)
    machine.pins[pgid] = replace(found, entry=newer, earlier=found.entry)
    if sent:
        machine.campaign = changed(machine.campaign, sent={
            pgid: Sent(machine.cluster.now - machine.options.readback_timeout - 1.0)})
    machine.turn()
    assert not [event.what for event in machine.events if 'outside perfguard' in event.what]
    assert machine.cluster.entries()[pgid] == found.entry and not machine.campaign.pinning.sent
    assert machine.pins[pgid] == replace(found, raw=None)
    machine.ask('start')
    machine.to(Phase.DONE)
    assert machine.cluster.entries() == {}


def test_a_pin_that_is_sent_again_fits_where_crush_places_the_pg_by_then() -> None:
    """It was planned while an OSD was out, and is dropped once that OSD is in again."""
    machine = pinned()
    cluster = machine.cluster
    pgid = next(pgid for pgid, pin in sorted(machine.pins.items()) if len(pin.entry.items) == 1)
    pin, data = machine.pins[pgid], cluster.pg[pgid].data
    machine.pins[pgid] = pin = replace(pin, was=UpmapEntry(((0, 4),)))
    (source, target), = pin.entry.items
    raw = [osd for osd in data if osd != target] + [target]
    cluster.set_raw(pgid, [9 if source != 9 else 10, *raw[1:]])
    assert not cluster.entries().get(pgid)
    machine.campaign = changed(machine.campaign, sent={pgid: Sent(cluster.now)})
    machine.turn()
    assert pgid in machine.campaign.pinning.sent
    machine.until(lambda: not machine.campaign.pinning.sent and not cluster.remapped())
    assert machine.pins[pgid].entry not in (pin.entry, UpmapEntry())
    assert machine.pins[pgid].before == pin.before and machine.pins[pgid].was == pin.was
    assert not machine.campaign.pinning.unpinnable
    assert not cluster.moved and cluster.pg[pgid].data == data
    machine.ask('start')
    machine.to(Phase.DONE)


def test_a_pin_that_is_sent_again_keeps_what_a_rollback_restores() -> None:
    machine = pinned()
    cluster = machine.cluster
    pgid, pin = next((pgid, pin) for pgid, pin in sorted(machine.pins.items()) if pin.entry.items)
    machine.pins[pgid] = replace(pin, was=UpmapEntry(((0, 4),)), goal=UpmapEntry(((1, 5),)))
    cluster.run([{'prefix': 'osd rm-pg-upmap-items', 'pgid': pgid}])
    machine.campaign = changed(machine.campaign, sent={pgid: Sent(cluster.now)})
    machine.turn()
    machine.until(lambda: not machine.campaign.pinning.sent and not cluster.remapped())
    assert machine.pins[pgid] == replace(pin, was=UpmapEntry(((0, 4),)),
                                         goal=UpmapEntry(((1, 5),)))


@pytest.mark.parametrize('sent', [True, False])
def test_a_pin_that_the_mons_commit_late_is_not_forgotten(
        sent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """They had no quorum: it is a vector, and the one planned anew a pair. `sent`: that one arrives
    as well."""
    machine = pinned()
    cluster = machine.cluster
    pgid, pin = next((pgid, pin) for pgid, pin in sorted(machine.pins.items()) if pin.entry.items)
    vector = cluster.pg[pgid].data
    machine.pins[pgid] = replace(pin, entry=UpmapEntry((), vector))
    cluster.run([{'prefix': 'osd rm-pg-upmap-items', 'pgid': pgid}])
    run = cluster.run
    late = [{'prefix': 'osd pg-upmap', 'pgid': pgid, 'id': list(vector)}]

    def delayed(commands: Any) -> Any:
        if any(command.get('pgid') == pgid for command in commands):
            run(late[:])
            late.clear()
        return run([command for command in commands if sent or command.get('pgid') != pgid])

    monkeypatch.setattr(cluster, 'run', delayed)
    machine.campaign = changed(machine.campaign, sent={pgid: Sent(cluster.now)})
    machine.turn()
    machine.until(lambda: not machine.campaign.pinning.sent)
    assert not late and cluster.entries()[pgid] == machine.pins[pgid].entry == (
        pin.entry if sent else UpmapEntry((), vector))
    monkeypatch.setattr(cluster, 'run', run)
    machine.ask('start')
    machine.to(Phase.DONE)
    assert cluster.entries() == {}


def test_once_a_pin_is_in_force_the_one_before_it_is_no_longer_ours() -> None:
    machine = pinned()
    pgid = next(pgid for pgid, pin in sorted(machine.pins.items()) if pin.entry.items)
    found, older = machine.pins[pgid], UpmapEntry(vector=machine.cluster.pg[pgid].data)
    machine.pins[pgid] = replace(found, earlier=older)
    machine.campaign = changed(machine.campaign, sent={pgid: Sent(machine.cluster.now)})
    machine.turn()
    assert machine.pins[pgid] == found


def test_pins_that_others_removed_are_pinned_again() -> None:
    machine = pinned()
    pgid = sorted(machine.pins)[0]
    entry = machine.pins[pgid].entry
    machine.cluster.run([{'prefix': 'osd rm-pg-upmap-items', 'pgid': pgid}])
    machine.turn()
    assert pgid not in machine.pins
    machine.until(lambda: pgid in machine.pins and not machine.campaign.pinning.sent)
    assert machine.cluster.entries()[pgid] == entry and machine.cluster.moved == []


def test_what_the_mon_refuses_is_unpinnable_and_takes_the_place_of_releases() -> None:
    """Four PGs whose OSDs change places, for which no pairs but vectors would do."""
    machine = prepared()
    cluster = machine.cluster
    cluster.refuse['osd pg-upmap'] = 'no'
    cluster.expand()
    swapped = {'2.1', '2.3', '2.5', '2.7'}
    for pgid in swapped:
        first, second, third = cluster.pg[pgid].data
        cluster.set_raw(pgid, (second, first, third))
    machine.until(lambda: len(cluster.remapped()) == 16)
    machine.ask('pin')
    machine.to(Phase.PINNED)
    assert set(machine.campaign.pinning.unpinnable) == swapped and len(machine.pins) == 12
    assert '4 cannot be' in machine.reasons
    machine.ask('start')
    machine.until(lambda: bool(machine.campaign.flights.in_flight))
    assert set(machine.campaign.flights.in_flight) == swapped
    while machine.campaign.phase is not Phase.DONE:
        machine.turn()
        under_way = swapped.intersection(cluster.remapped()) | set(cluster.released)
        assert len(under_way) <= OPTIONS.max_pgs_in_flight
    assert cluster.clean() and machine.campaign.progress.released == 16


# ---- finish and abort

def test_finish_keep_leaves_the_pins_as_upmaps() -> None:
    machine = releasing()
    cluster = machine.cluster
    flights = set(machine.campaign.flights.in_flight)
    kept = {pgid: pin.entry for pgid, pin in machine.pins.items() if pgid not in flights}
    machine.ask('finish', keep=True)
    machine.to(Phase.DONE)
    assert cluster.entries() == kept and not machine.pins and cluster.clean()
    assert (machine.campaign.progress.kept, machine.campaign.progress.released) == (8, 4)


def test_finish_does_not_wait_for_ever_for_what_is_not_its_doing() -> None:
    machine = prepared()
    machine.cluster.trouble = {'remapped': 3}
    machine.ask('finish')
    begun = machine.cluster.now
    machine.to(Phase.DONE)
    assert 60 <= machine.cluster.now - begun < 70


@EVERY_STATE
def test_abort_works_in_every_state(phase: Phase, make: Callable[..., Machine]) -> None:
    cluster = FakeCluster()
    cluster.add_upmap('1.2', cluster.pg['1.2'].data[0], 5)
    mine = cluster.entries()
    machine = make(cluster)
    assert machine.campaign.phase is phase
    moved = len(cluster.moved)
    machine.ask('abort')
    machine.to(Phase.ABORTED)
    assert cluster.foreign() == cluster.quiet_for(machine.pins)
    assert not machine.campaign.flights.in_flight
    cluster.balances = bool(machine.pins)
    for _ in range(15):
        machine.turn()
    assert cluster.clean() and len(cluster.moved) == moved, 'nothing more has moved'
    entries = cluster.entries()
    assert all(entries[pgid] == pin.entry for pgid, pin in machine.pins.items())
    assert set(entries['1.2'].items) >= set(mine['1.2'].items)


@EVERY_STATE
def test_abort_works_on_a_sick_cluster(phase: Phase, make: Callable[..., Machine]) -> None:
    machine = make()
    machine.cluster.trouble = {'degraded': 5, 'laggy': 3, 'inactive': 2}
    machine.cluster.health = {'MON_DOWN': 'x', 'SLOW_OPS': 'y'}
    machine.ask('abort')
    machine.to(Phase.ABORTED)
    assert machine.cluster.foreign() == machine.cluster.quiet_for(machine.pins)


@EVERY_STATE
def test_judging_twice_decides_the_same(phase: Phase, make: Callable[..., Machine]) -> None:
    machine = make()
    first, second = machine.judge(), machine.judge()
    for name in ('campaign', 'actions', 'new_pins', 'unpins', 'reasons', 'events'):
        assert getattr(first, name) == getattr(second, name)


def test_releases_wait_until_the_mons_have_trimmed_their_osdmaps(
        monkeypatch: pytest.MonkeyPatch) -> None:
    machine = pinned()
    kept = [0]
    observe = machine.observe
    monkeypatch.setattr(machine, 'observe', lambda: replace(observe(), untrimmed_epochs=kept[0]))
    machine.ask('start')
    machine.until(lambda: bool(machine.campaign.flights.in_flight))
    kept[0] = machine.options.max_untrimmed_osdmaps + 1
    machine.turn()
    pace, in_flight = machine.campaign.pace.pgs, set(machine.campaign.flights.in_flight)
    assert machine.campaign.phase is Phase.HOLDING and 'UNTRIMMED_MAPS' in machine.codes
    machine.until(lambda: not machine.campaign.flights.in_flight)
    assert in_flight and machine.campaign.pace.pgs >= pace, 'movement is not what it waits for'
    left = len(machine.pins)
    machine.turn()
    assert len(machine.pins) == left > 0
    kept[0] = 500
    machine.until(lambda: bool(machine.campaign.flights.in_flight))
    assert machine.campaign.phase is Phase.RELEASING


def test_a_long_pause_does_not_keep_the_mons_from_trimming_their_osdmaps(
        monkeypatch: pytest.MonkeyPatch) -> None:
    machine = releasing()
    cluster, kept = machine.cluster, [500]
    observe = machine.observe
    monkeypatch.setattr(machine, 'observe', lambda: replace(observe(), untrimmed_epochs=kept[0]))
    cluster.backfill_seconds = 1000.0
    machine.ask('pause')
    cluster.tick(LONG_PAUSE_SECONDS / 2)
    kept[0] = machine.options.max_untrimmed_osdmaps + 1
    for _ in range(5):
        machine.turn()
    assert machine.campaign.flights.in_flight
    assert cluster.remapped(), 'what was copied is not lost yet'
    cluster.tick(LONG_PAUSE_SECONDS / 2)
    machine.until(lambda: not cluster.remapped(), turns=20)
    assert not machine.campaign.flights.in_flight and machine.campaign.orders.paused
    machine.ask('resume')
    cluster.backfill_seconds, kept[0] = 4.0, 500
    machine.to(Phase.DONE)


def test_a_long_pause_keeps_what_was_copied_if_other_pgs_keep_the_osdmaps(
        monkeypatch: pytest.MonkeyPatch) -> None:
    machine = releasing()
    cluster, observe = machine.cluster, machine.observe
    kept = 1000000

    def degraded() -> Observation:
        seen = observe()
        return replace(seen, untrimmed_epochs=kept, signals=replace(
            seen.signals, counts=replace(seen.signals.counts, degraded=5)))

    monkeypatch.setattr(machine, 'observe', degraded)
    cluster.backfill_seconds = 1000.0
    machine.ask('pause')
    cluster.tick(2 * LONG_PAUSE_SECONDS)
    for _ in range(10):
        machine.turn()
    assert machine.campaign.flights.in_flight and cluster.remapped()


def test_a_released_pg_that_peers_does_not_end_the_wait_for_the_mons_to_trim() -> None:
    machine = releasing()
    seen, options = machine.observe(), replace(machine.options, max_untrimmed_osdmaps=1000)

    def waits(**counts: int) -> bool:
        found = replace(seen, untrimmed_epochs=1001, signals=replace(seen.signals, counts=replace(
            seen.signals.counts, **counts)))
        draft = Draft.of(machine.campaign, machine.pins, {}, found, options)
        return bool(maps_to_trim(draft, others_degraded(draft)))

    assert waits() and waits(inactive=2, in_transition=2)
    assert not waits(inactive=2, in_transition=1) and not waits(degraded=1)
    assert not waits(backfill_toofull=1)


def test_a_pg_that_is_too_full_does_not_hold_those_that_make_room(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for space, the mons wait for it, and releases would wait for the mons."""
    machine = releasing()
    cluster, observe = machine.cluster, machine.observe
    pgid, flight = next(iter(machine.campaign.flights.in_flight.items()))
    backfills = cluster._backfills
    monkeypatch.setattr(cluster, '_backfills',
                        lambda each, pg: each != pgid and backfills(each, pg))
    monkeypatch.setattr(machine, 'observe', lambda: replace(
        observe(), untrimmed_epochs=10000 if cluster.remapped() else 500))
    cluster.trouble = {'backfill_toofull': 1}
    machine.until(lambda: list(machine.campaign.flights.in_flight) == [pgid]
                  and machine.campaign.progress.released > 4)
    machine.until(lambda: 'BACKFILL_TOOFULL' in machine.codes)
    left = {osd for each in machine.pins for osd in set(cluster.pg[each].mon.raw)
            - set(cluster.pg[each].data)}
    assert left == set(flight.targets), 'only these wait for the PG that is too full'


def test_pgs_that_only_norebalance_keeps_remapped_do_not_wait_for_the_mons_to_trim(
        monkeypatch: pytest.MonkeyPatch) -> None:
    machine = releasing()
    cluster, observe = machine.cluster, machine.observe
    monkeypatch.setattr(machine, 'observe', lambda: replace(
        observe(), untrimmed_epochs=10000 if cluster.remapped() else 500))
    cluster.refuse['osd pg-upmap'] = 'no'
    first, second, third = cluster.pg['2.1'].data
    cluster.set_raw('2.1', (second, first, third))
    machine.until(lambda: '2.1' in machine.campaign.pinning.unpinnable)
    assert machine.campaign.flights.in_flight
    machine.campaign = changed(machine.campaign, accepted_unpinnable=1)
    machine.to(Phase.DONE)
    assert cluster.clean()


@pytest.mark.parametrize('osds, most', [(12, 50000), (1000, 23000), (5000, 4700), (50000, 1500)])
def test_the_ceiling_of_untrimmed_maps_scales_with_their_size(osds: int, most: int) -> None:
    machine = pinned()
    seen = machine.observe()
    osdmap = replace(seen.osdmap, osds={osd: replace(seen.osdmap.osds[0], id=osd)
                                        for osd in range(osds)})
    seen = replace(seen, settings=replace(seen.settings, osdmap=osdmap))

    def stops(epochs: int) -> bool:
        found = replace(seen, untrimmed_epochs=epochs)
        reasons = maps_to_trim(Draft.of(machine.campaign, machine.pins, {}, found, OPTIONS), True)
        return [reason.code for reason in reasons] == ['UNTRIMMED_CEILING']

    assert not stops(round(0.95 * most)) and stops(round(1.05 * most) + 1)


@pytest.mark.parametrize('trouble', ['degraded', 'backfill_toofull'])
def test_nothing_is_released_above_the_ceiling_of_untrimmed_maps(
        monkeypatch: pytest.MonkeyPatch, trouble: str) -> None:
    """A PG without all of its objects may keep the mons from trimming for days."""
    machine, kept = releasing(), [300000]
    observe = machine.observe
    monkeypatch.setattr(machine, 'observe', lambda: replace(
        observe(), untrimmed_epochs=kept[0], osd_counts={0: PgCounts(total=9, degraded=1)}))
    machine.cluster.trouble = {trouble: 1}
    machine.turn()
    assert machine.campaign.phase is Phase.HOLDING and 'UNTRIMMED_CEILING' in machine.codes
    machine.until(lambda: not machine.campaign.flights.in_flight)
    left, epoch = len(machine.pins), machine.cluster.epoch
    for _ in range(200):
        machine.turn()
    assert len(machine.pins) == left > 0 and machine.cluster.epoch == epoch
    machine.ask('accept', code='UNTRIMMED_CEILING')
    machine.until(lambda: len(machine.pins) < left)


@pytest.mark.parametrize('why', ['off', 'unknown', 'degraded', 'long'])
def test_mons_that_do_not_trim_hold_no_campaign(why: str) -> None:
    machine = pinned()
    most = 0 if why == 'off' else 1000
    options = replace(machine.options, max_untrimmed_osdmaps=most)
    seen = replace(machine.observe(), untrimmed_epochs=None if why == 'unknown' else 1001)
    if why == 'degraded':
        seen = replace(seen, signals=replace(seen.signals, counts=replace(
            seen.signals.counts, degraded=1)))
    ago = TRIM_SECONDS + 1 if why == 'long' else 0.0
    campaign = changed(machine.campaign, progressed=seen.now - ago)
    draft = Draft.of(campaign, machine.pins, {}, seen, options)
    assert maps_to_trim(draft, others_degraded(draft)) == []
    waiting = replace(draft.options, max_untrimmed_osdmaps=1000)
    seen = replace(machine.observe(), untrimmed_epochs=1001)
    recent = changed(campaign, progressed=seen.now)
    assert maps_to_trim(Draft.of(recent, machine.pins, {}, seen, waiting), False)


def test_reweights_that_others_raise_are_noted() -> None:
    """And those of OSDs that were removed are forgotten."""
    machine = Machine()
    for osd, reweight in ((0, 0.75), (1, 0.25), (2, 1.0)):
        machine.cluster.toys[osd] = machine.cluster.toys[osd]._replace(reweight=reweight)
    machine.campaign = replace(machine.campaign, crush=OwnCrush(
        reweights={0: 0.5, 1: 0.5, 2: 0.5, 99: 0.5}))
    assert machine.judge().campaign.crush.reweights == {0: 0.75, 1: 0.5}
