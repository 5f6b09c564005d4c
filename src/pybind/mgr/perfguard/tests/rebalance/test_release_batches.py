# SPDX-License-Identifier: LGPL-2.1-or-later
"""PGs that are released together share OSDMap epochs."""
from dataclasses import replace
from typing import Dict, List, Mapping, Set, Tuple

import pytest

from perfguard.cluster.types import ClientOps, Ops, UpmapEntry
from perfguard.errors import Code
from perfguard.observation import IDLE_SECONDS, Clients, Observation, PoolClients
from perfguard.options import Options
from perfguard.rebalance.flights import PRIMED_SECONDS
from perfguard.rebalance.types import Flight, Pace, Phase, SetEntry
from perfguard.rebalance.throttle import _path, set_pace
from perfguard.rebalance.stalls import (BATCH_PGS, BATCH_SECONDS, COMMIT_SHARE,
                                        LONGEST_BATCH_SECONDS, IntervalChange, Stalls, batch_pgs,
                                        batch_seconds)
from perfguard.rebalance.draft import Draft
from perfguard.watch.slow_reads import SlowReads

from ..fakes.campaigns import changed
from ..fakes.cluster import FakeCluster
from ..fakes.driver import Driver
from .test_phases import Machine, pinned, wide


def expanding(cluster: FakeCluster, options: Options, busy: bool = False) -> Machine:
    """A campaign that has just been started; `busy`: with clients, within their limits."""
    machine = Machine(cluster, options)
    machine.until(lambda: machine.campaign.holds.prepared)
    cluster.expand()
    machine.until(lambda: bool(cluster.remapped()))
    machine.ask('pin')
    machine.to(Phase.PINNED)
    if busy:
        observe = machine.observe

        def with_clients() -> Observation:
            now = cluster.now - cluster.now % cluster.period
            ops = Ops(100 * 1_000_000, 100)
            pools = {pool: PoolClients('pool%d' % pool, 64, 100.0, 2.0, 2.0, 1.5, 1.5)
                     for pool in (1, 2)}
            rows = tuple(ClientOps(pool, osd, ops, ops) for pool in pools for osd in range(6))
            return replace(observe(), clients=Clients(now, 5.0, rows, pools, 60.0))

        setattr(machine, 'observe', with_clients)
    machine.ask('start')
    return machine


def batches(machine: Machine) -> List[Tuple[float, int]]:
    """When PGs were released, and how many, until the campaign is done."""
    found: List[Tuple[float, int]] = []
    while machine.campaign.phase is not Phase.DONE:
        now = machine.cluster.now
        before = set(machine.campaign.flights.in_flight)
        entries = {action.pgid for action in machine.turn() if isinstance(action, SetEntry)}
        if entries - before:
            found.append((now, len(entries - before)))
    assert sum(number for _, number in found) == machine.campaign.progress.released
    return found


def test_releases_that_are_spread_out_go_in_batches() -> None:
    """The budget of stalls lets half a PG of each pool go in a second."""
    machine = expanding(FakeCluster(pgs=60, backfill_seconds=2.0),
                        replace(wide(), stall_ratio=0.004), busy=True)
    found = batches(machine)
    numbers = [number for _, number in found]
    # The budget is empty at first, and the last batch is what is left.
    assert machine.campaign.progress.released == 60 and len(numbers) <= 60 / BATCH_PGS + 2
    gaps = [after - before for (before, _), (after, _) in zip(found, found[1:])]
    for gap, number in zip(gaps, numbers[1:]):
        assert gap >= BATCH_SECONDS or number >= BATCH_PGS or number == numbers[-1]
    # It takes no longer than without batches.
    assert found[-1][0] - found[0][0] <= 60 * 1.2


@pytest.mark.parametrize('commit_seconds, seconds, number', [
    (0.0, BATCH_SECONDS, BATCH_PGS), (1.0, BATCH_SECONDS, BATCH_PGS), (3.0, 15.0, 24),
    (600.0, LONGEST_BATCH_SECONDS, 96)])
def test_batches_are_larger_and_rarer_where_the_mons_take_long(
        commit_seconds: float, seconds: float, number: int) -> None:
    assert batch_seconds(commit_seconds) == seconds
    assert batch_pgs(commit_seconds) == number
    assert seconds * COMMIT_SHARE >= min(commit_seconds, LONGEST_BATCH_SECONDS * COMMIT_SHARE)


def test_releases_wait_longer_for_slow_mons_and_take_no_longer_in_all() -> None:
    def run(commit_seconds: float, busy: bool = True) -> List[Tuple[float, int]]:
        options = replace(wide(), stall_ratio=0.004, max_transition_ratio=1.0)
        machine = expanding(FakeCluster(pgs=120, backfill_seconds=2.0), options, busy)
        observe = machine.observe
        setattr(machine, 'observe', lambda: replace(observe(), commit_seconds=commit_seconds))
        return batches(machine)

    fast, slow, idle = run(0.0), run(3.0), run(3.0, busy=False)
    assert len(slow) < len(fast)
    assert slow[-1][0] - slow[0][0] <= fast[-1][0] - fast[0][0] + 2 * batch_seconds(3.0)
    for found in (slow, idle):
        for (before, _), (after, number) in zip(found, found[1:-1]):
            assert after - before >= batch_seconds(3.0) or number >= batch_pgs(3.0)


def test_nothing_waits_for_others_while_nothing_is_in_flight() -> None:
    """Each path is at its cap with two PGs: they arrive together, and the next two follow."""
    cluster = FakeCluster(pgs=24, backfill_seconds=1.0)
    machine = expanding(cluster, replace(wide(), max_pgs_in_flight=2))
    found = batches(machine)
    assert {number for _, number in found} <= {1, 2}
    idle = sum(1 for (before, _), (after, _) in zip(found, found[1:])
               if after - before > 2 * cluster.period + BATCH_SECONDS)
    assert not idle


def arrived_unseen(machine: Machine, seconds: int) -> List[str]:
    """Release PGs, and let them arrive while no OSDMap is read for `seconds`."""
    machine.ask('start')
    machine.until(lambda: bool(machine.campaign.flights.in_flight))
    released = list(machine.campaign.flights.in_flight)
    for _ in range(seconds):
        machine.cluster.tick()
    return released


def test_pgs_that_arrive_between_two_turns_do_not_stay_in_flight() -> None:
    """They would take places under the caps for two reports of PG states."""
    cluster = FakeCluster(peer_seconds=1.0, backfill_seconds=1.0, period=5.0)
    machine = pinned(cluster, wide())
    released = arrived_unseen(machine, 5)
    begin = machine.cluster.now
    while set(released) & machine.campaign.flights.in_flight.keys():
        assert not any(machine.campaign.flights.in_flight[pgid].seen_remapped
                       for pgid in released if pgid in machine.campaign.flights.in_flight)
        machine.turn()
    assert machine.cluster.now - begin <= 1 + PRIMED_SECONDS < machine.cluster.period
    machine.to(Phase.DONE)


@pytest.mark.parametrize('affinity', [1.0, 0.5])
def test_up_thru_of_the_first_osd_is_no_evidence_where_another_may_lead(affinity: float) -> None:
    cluster = FakeCluster()
    machine = pinned(cluster, wide())
    cluster.affinity = dict.fromkeys(cluster.toys, affinity)
    arrived_unseen(machine, 0)
    primed = [bool(flight.primed) for flight in machine.campaign.flights.in_flight.values()]
    assert set(primed) == {affinity == 1.0}


@pytest.mark.parametrize('lost', [False, True])
def test_a_pg_whose_acting_set_comes_late_is_in_flight_until_it_has_arrived(lost: bool) -> None:
    """While other PGs raise the up_thru of its primary. `lost`: it is not known whether the mons
    have received the acting set."""
    cluster = FakeCluster(peer_seconds=4.0, backfill_seconds=30.0, drops_primes=lost,
                          late_primes=not lost)
    machine = pinned(cluster, wide())
    arrived_unseen(machine, 0)
    observe = machine.observe
    if lost:
        setattr(machine, 'observe', lambda: replace(observe(), unanswered_at=cluster.now))
    for _ in range(20):
        cluster.led = dict.fromkeys(cluster.toys, cluster.epoch)
        machine.turn()
        assert all(pg.up == pg.data for pgid, pg in cluster.pg.items()
                   if pgid not in machine.campaign.flights.in_flight and pgid not in machine.pins)
    assert machine.campaign.flights.in_flight


def test_the_limit_rises_where_it_was_used_up_between_two_readings() -> None:
    """A batch may come and go between them."""
    machine = expanding(FakeCluster(), wide(), busy=True)
    flights = {'1.%d' % number: Flight(0.0, UpmapEntry()) for number in range(4)}
    machine.until(lambda: 'norebalance' not in machine.cluster.flags)
    first = machine.observe()
    before = Pace(pgs=4.0, decided=first.clients.time, why='known')

    def paced(seen: Observation, pace: Pace, in_flight: Mapping[str, Flight]) -> Pace:
        campaign = changed(machine.campaign, pace=pace, in_flight=in_flight)
        return set_pace(Draft.of(campaign, {}, {}, seen, machine.options)).campaign.pace

    used = paced(first, before, flights)
    assert used == replace(before, used=4)
    second = replace(first, clients=replace(first.clients, time=first.clients.time + 5.0))
    assert paced(second, used, {}).pgs > 4.0
    assert paced(second, before, {}).pgs == 4.0, 'it was not used up'
    assert paced(second, used, {}).used == 0


def test_no_stall_is_measured_while_an_osd_goes_down_or_comes_back() -> None:
    machine = expanding(FakeCluster(), wide(), busy=True)
    machine.until(lambda: 'norebalance' not in machine.cluster.flags)
    seen = machine.observe()
    stalls = Stalls((IntervalChange(seen.clients.time - 1.0, 1, (0,)),))

    def measured(changed: float) -> bool:
        draft = Draft.of(replace(machine.campaign, stalls=stalls), {}, {},
                         replace(seen, osds_or_crush_changed=changed), machine.options)
        return set_pace(draft).campaign.stalls.rates > 0.0

    assert measured(seen.clients.time - 60.0) and not measured(seen.clients.time - 3.0)


@pytest.mark.parametrize('busy, commit_seconds, waits', [
    (False, 0.0, False), (True, 0.0, True), (False, 3.0, True)])
def test_a_release_waits_for_others_only_for_the_sake_of_clients_and_of_slow_mons(
        busy: bool, commit_seconds: float, waits: bool) -> None:
    machine = expanding(FakeCluster(pgs=24, backfill_seconds=60.0),
                        replace(wide(), max_pgs_in_flight=2), busy)
    observe = machine.observe
    setattr(machine, 'observe', lambda: replace(
        observe(), commit_seconds=commit_seconds, clients=observe().clients if busy
        else Clients(machine.cluster.now, 5.0, (), {}, IDLE_SECONDS)))
    machine.until(lambda: len(machine.campaign.flights.in_flight) == 2)
    machine.options = replace(machine.options, max_pgs_in_flight=3)

    def does_wait() -> bool:
        return Code.BATCH in [reason.code for reason in machine.decision.reasons]

    machine.until(lambda: does_wait() or len(machine.campaign.flights.in_flight) == 3)
    assert does_wait() == waits


def test_half_of_what_may_be_in_flight_is_enough_for_a_batch() -> None:
    """PGs arrive one by one: with few in flight, most of the time of a campaign was the wait until
    the last one of a batch had arrived."""
    machine = expanding(FakeCluster(pgs=48, backfill_seconds=60.0),
                        replace(wide(), max_pgs_in_flight=4), busy=True)
    machine.until(lambda: len(machine.campaign.flights.in_flight) == 4)
    now = machine.cluster.now
    machine.options = replace(machine.options, max_pgs_in_flight=8)
    for limit, number in ((7.0, 4), (8.0, 8)):
        machine.campaign = changed(machine.campaign, pace=replace(
            machine.campaign.pace, pgs=limit))
        machine.turn()
        assert len(machine.campaign.flights.in_flight) == number
    assert machine.cluster.now - now < BATCH_SECONDS


def test_a_release_does_not_wait_for_pgs_of_a_slow_osd_to_arrive() -> None:
    """It would wait for a batch each time, as long as the slow OSD keeps a PG in flight."""
    machine = expanding(FakeCluster(pgs=24, backfill_seconds=600.0),
                        replace(wide(), max_pgs_in_flight=1), busy=True)
    machine.until(lambda: len(machine.campaign.flights.in_flight) == 1)
    flight, = machine.campaign.flights.in_flight.values()
    now = machine.cluster.now
    machine.options = replace(machine.options, max_pgs_in_flight=2)
    while len(machine.campaign.flights.in_flight) == 1:
        assert machine.cluster.now - now < BATCH_SECONDS - 2.0
        # Holds are not stored, and the machine reads what is stored.
        machine.campaign = changed(machine.campaign, pace=replace(
            machine.campaign.pace, slow_reads={flight.sources[0]: SlowReads(now, now)}))
        machine.turn()


def test_the_stall_of_a_release_is_measured_on_the_osds_that_may_lead_its_pg() -> None:
    driver = Driver()
    driver.to_pinned()
    moves = dict(driver.loop.rebalance.release_moves.moves.items())
    driver.ask('start')
    released: Dict[str, Set[int]] = {}
    while len(released) < len(moves):
        driver.turn()
        campaign = driver.loop.rebalance.campaign
        assert campaign.active
        for change in campaign.stalls.changes:
            released.setdefault(change.pgid, set(change.primaries))
    assert {move.moves_primary for move in moves.values()} == {False, True}
    for pgid, move in moves.items():
        assert released[pgid] == ({*move.leaders, *move.targets} if move.moves_primary
                                  else {move.primary})


def test_the_pools_whose_rules_lead_to_moving_pgs_are_on_their_path() -> None:
    machine = expanding(FakeCluster(), wide())
    machine.until(lambda: bool(machine.campaign.flights.in_flight))
    seen = machine.observe()
    elsewhere = replace(seen.osdmap.pools[2], crush_rule=99)
    osdmap = replace(seen.osdmap, pools={**seen.osdmap.pools, 2: elsewhere})
    seen = replace(seen, settings=replace(seen.settings, osdmap=osdmap))
    draft = Draft.of(machine.campaign, {}, {}, seen, machine.options)
    path = _path(draft, machine.campaign.pace)
    assert path.osds and path.pools == seen.osdmap.pools.keys() - {2}
