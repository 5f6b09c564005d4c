# SPDX-License-Identifier: LGPL-2.1-or-later
"""One OSD whose clients wait gets no release; the others go on."""
from dataclasses import replace
from typing import Any, Callable, Dict, FrozenSet, Iterable, List, Optional, Set

import pytest

from perfguard.cluster.types import ClientOps, Ops
from perfguard.errors import Code, Reason
from perfguard.observation import IDLE_SECONDS, Clients, Minute, Observation, PoolClients
from perfguard.rebalance.latency import (CAUSED_HOSTS, comparable_osds, explains_pool,
                                         slow_read_stops, slowed_by_movement, without_slow)
from perfguard.rebalance.moves import route_osds
from perfguard.rebalance.releasing import stops_of
from perfguard.rebalance.draft import Draft
from perfguard.rebalance.types import Phase
from perfguard.watch.slow_reads import (Places, SlowReads, judged_osds, places_of, slow_osds,
                                        slow_reads_after, stopped_osds)
from perfguard.watch.slowness import (ALARM_SECONDS, CROWD_PART, EXEMPT_SECONDS, RESUME_SECONDS,
                                      UNTOUCHED_SECONDS)

from ..fakes.campaigns import changed
from ..fakes.cluster import FakeCluster
from .test_phases import Machine, releasing

NORMS = {osd: 1.0 for osd in range(8)}
EVERYWHERE = frozenset(range(8))


def reading(slow: Dict[int, float], ops: int = 1000, norms: Optional[Dict[int, float]] = None,
            time: float = 5.0, **pool: Any) -> Clients:
    """Reads take 1 ms, and 1.5 are allowed; on some OSDs they take so many ms."""
    rows = tuple(ClientOps(1, osd, Ops(int(ops * slow.get(osd, 1.0) * 1e6), ops), Ops())
                 for osd in range(8))
    found = PoolClients('rbd', 64, 800.0, 1.5, None, 1.0)._replace(**pool)
    return Clients(time, 5.0, rows, {1: found}, IDLE_SECONDS, NORMS if norms is None else norms)


def held(clients: Clients, unsteady: FrozenSet[int] = frozenset(),
         in_flight: FrozenSet[int] = EVERYWHERE) -> Set[int]:
    return set(stopped_osds(twice(clients, unsteady, in_flight), 100.0))


def twice(clients: Clients, unsteady: FrozenSet[int] = frozenset(),
          in_flight: FrozenSet[int] = EVERYWHERE, places: Places = {}) -> Dict[int, SlowReads]:
    """The holds after two such readings, the later one at 100 s."""
    once = slow_reads_after({}, clients, unsteady, in_flight, 95.0, places)
    assert not stopped_osds(once, 95.0), 'one reading may be chance'
    return slow_reads_after(once, clients, unsteady, in_flight, 100.0, places)


def test_an_osd_that_is_slower_than_its_limit_is_held() -> None:
    assert held(reading({3: 20.0})) == {3}
    (stop,) = slow_read_stops(twice(reading({3: 20.0})), 100.0)
    assert stop.osds == frozenset({3}) and 'osd.3' in stop.reason.text
    assert stop.concerns([3, 5], [1]) and not stop.concerns([4, 5], [1])


@pytest.mark.parametrize('clients', [
    reading({}), reading({3: 1.4}),
    reading({3: 1.8}, ops=100),                            # chance explains it
    reading({3: 20.0}, ops=4),                             # too few
    reading({3: 4.0}, ops=5),                              # few, and chance explains it
    reading({osd: 20.0 for osd in range(8)}),              # the load, which the pool shows
    reading({3: 20.0}, norms={**NORMS, 3: 15.0}),          # as slow as its baseline
    reading({3: 20.0}, norms={osd: 1.0 for osd in range(3)}),  # no baseline of its own
    reading({3: 20.0}, erasure=True), reading({3: 20.0}, named=True),
    reading({3: 20.0}, read_baseline_ms=None, read_target_ms=None)])
def test_other_reasons_hold_nothing(clients: Clients) -> None:
    assert held(clients) == set()


def test_one_slow_reading_holds_nothing_but_does_not_count_in_its_pools() -> None:
    """One read that waits for a peering PG makes a reading slow."""
    once = slow_reads_after({}, reading({3: 20.0}), frozenset(), EVERYWHERE, 100.0)
    assert slow_osds(once, 100.0) == {3} and not slow_osds(once, 101.0)
    assert not slow_reads_after(once, reading({}), frozenset(), EVERYWHERE, 105.0)
    # A reading that says nothing about this OSD contradicts nothing.
    few = slow_reads_after(once, reading({3: 20.0}, ops=4), frozenset(), EVERYWHERE, 105.0)
    more = slow_reads_after(few, reading({3: 20.0}), frozenset(), EVERYWHERE, 110.0)
    assert stopped_osds(more, 110.0) == {3}


def test_where_pgs_of_nearly_all_osds_peer_an_osd_is_compared_with_all_of_them() -> None:
    """On a small cluster, most readings are like that while PGs are released."""
    most = EVERYWHERE - {3, 4}
    assert held(reading({3: 20.0}), unsteady=most) == {3}
    assert held(reading({**{osd: 20.0 for osd in most}, 3: 20.0}), unsteady=most) == set()


@pytest.mark.parametrize('unsteady, ops', [({3}, 1000), (set(), 4)])
def test_a_hold_lasts_while_readings_say_nothing(unsteady: Set[int], ops: int) -> None:
    """Else its pools count it again for a moment, and the alarm that it causes holds everything."""
    now, holds = 100.0, twice(reading({3: 20.0}))
    while now < 100.0 + UNTOUCHED_SECONDS - 5.0:
        now += 5.0
        holds = slow_reads_after(holds, reading({3: 20.0}, ops), frozenset(unsteady), frozenset(),
                                 now)
        assert stopped_osds(holds, now) == {3}
    quick = slow_reads_after(holds, reading({}), frozenset({3}), frozenset(), now + 5.0)
    assert not stopped_osds(quick, now + RESUME_SECONDS)
    # Not for ever.
    for _ in range(int(RESUME_SECONDS / 5.0) + 1):
        now += 5.0
        holds = slow_reads_after(holds, reading({3: 20.0}, ops), frozenset(unsteady),
                                 frozenset({3}), now)
    assert not stopped_osds(holds, now) and not slow_osds(holds, now)


def test_osds_without_reads_are_forgotten() -> None:
    """Those of a host that was slow and then switched off: its pools would never count again."""
    now, holds = 100.0, twice(reading({3: 20.0, 4: 20.0}))
    assert stopped_osds(holds, now) == {3, 4}
    gone = reading({})
    gone = replace(gone, rows=tuple(row for row in gone.rows if row.osd not in (3, 4)))
    while now < 100.0 + RESUME_SECONDS:
        now += 5.0
        # A PG that is stuck in flight there changes nothing.
        holds = slow_reads_after(holds, gone, frozenset(), frozenset({3}), now)
    assert not slow_osds(holds, now) and not explains_pool(slow_osds(holds, now), 8)


def test_an_osd_of_a_small_load_is_held() -> None:
    """As many reads of the others as pools are judged by, else their pools would halt it all."""
    assert held(reading({3: 20.0}, ops=10)) == {3}
    assert held(reading({osd: 20.0 for osd in range(8)}, ops=10)) == set()
    assert held(reading({3: 20.0}, ops=7)) == set()


def test_an_osd_that_hardly_answers_is_held() -> None:
    clients = reading({})
    rows = tuple(row._replace(read=Ops(5 * 20_000_000, 5)) if row.osd == 3 else row
                 for row in clients.rows)
    assert held(replace(clients, rows=rows)) == {3}


def test_an_osd_is_judged_by_its_own_baseline_wherever_pgs_move() -> None:
    assert held(reading({3: 20.0}), in_flight=frozenset({1, 2})) == {3}
    assert held(reading({3: 20.0}), unsteady=frozenset({3})) == set()
    assert held(reading({3: 3.0}, norms={**NORMS, 3: 1.9})) == set()
    assert held(reading({3: 3.0}, norms={**NORMS, 3: 0.5})) == {3}


#: Two hosts of a rack, and the rest of the cluster.
PLACES: Places = {'host h0': frozenset({0, 1, 2, 3, 8}), 'host h1': frozenset({4, 5}),
                  'host h2': frozenset({6, 7})}
HOST = {osd: 2.6 for osd in range(4)}


def test_few_reads_of_each_osd_of_a_host_show_together_that_it_is_slow() -> None:
    clients = reading(HOST, ops=30)
    assert held(clients) == set(), 'chance explains what each of them shows'
    holds = twice(clients, places=PLACES)
    assert stopped_osds(holds, 100.0) == PLACES['host h0'], 'also one that serves nothing now'
    (stop,) = slow_read_stops(holds, 100.0)
    assert 'host h0' in stop.reason.text and 'osd.' not in stop.reason.text
    # One slow OSD beside it is named.
    (stop,) = slow_read_stops(twice(reading({**HOST, 7: 20.0}, ops=30), places=PLACES), 100.0)
    assert 'host h0, osd.7' in stop.reason.text and 8 in (stop.osds or ())


@pytest.mark.parametrize('slow, ops', [
    (dict.fromkeys(range(4), 2.6), 4),             # too few reads, also together
    (dict.fromkeys(range(8), 2.6), 30),            # the load
    (dict.fromkeys(range(4), 1.45), 1000),         # within the limit
    ({4: 2.6, 5: 2.6}, 30)])                       # two OSDs are no sample
def test_hosts_that_are_not_certainly_slow_are_not_held(slow: Dict[int, float], ops: int) -> None:
    assert twice(reading(slow, ops), places=PLACES) == {}


def test_slow_osds_do_not_make_their_host_slow() -> None:
    holds = twice(reading({0: 20.0, 1: 20.0}), places=PLACES)
    assert stopped_osds(holds, 100.0) == {0, 1}
    (stop,) = slow_read_stops(holds, 100.0)
    assert 'osd.0, osd.1' in stop.reason.text


def test_a_failure_domain_is_judged_like_a_host() -> None:
    cluster = FakeCluster(hosts=8, racks=4)
    places = places_of(cluster.crush(cluster.crush_version_), [0])
    assert {place.split()[0] for place in places} == {'host', 'rack'}
    assert frozenset({0, 4}) in places.values(), places


def test_a_host_that_is_slow_as_a_whole_gets_no_release() -> None:
    machine = releasing(FakeCluster(osds_per_host=3, backfill_seconds=8.0))
    cluster, observe = machine.cluster, machine.observe
    host = {0, 1, 2}
    norms = {osd: 1.0 for osd in (*range(24), *cluster.new)}
    pool = PoolClients('rbd', 64, 800.0, 1.5, None, 1.0, None)

    def seen() -> Observation:
        rows = tuple(ClientOps(1, osd, Ops(int(40 * (2.6 if osd in host else 1.0) * 1e6), 40),
                               Ops()) for osd in norms)
        return replace(observe(), clients=Clients(cluster.now, 5.0, rows, {1: pool}, IDLE_SECONDS,
                                                  norms))

    setattr(machine, 'observe', seen)
    limit, began, new = machine.campaign.pace.pgs, set(machine.campaign.flights.in_flight), 0
    for turn in range(60):
        machine.turn()
        if machine.campaign.phase is Phase.HOLDING:
            break  # the PGs that are left touch the slow host
        pace = machine.decision.campaign.pace
        assert pace.pgs >= limit, 'the pool did not count it'
        machine.campaign = replace(machine.campaign, pace=pace)
        flights = machine.campaign.flights.in_flight
        if turn > 1:
            assert stopped_osds(pace.slow_reads, cluster.now) == host
            fresh = flights.keys() - began
            assert not [pgid for pgid in fresh if host & set(route_osds(flights[pgid]))]
            new += len(fresh)
        began |= flights.keys()
    assert new and machine.pins


def test_a_hold_ends_a_while_after_the_last_slow_reading() -> None:
    holds = twice(reading({3: 20.0}))
    for _ in range(2):
        holds = slow_reads_after(holds, reading({}), frozenset(), EVERYWHERE,
                                 100.0 + RESUME_SECONDS - 1)
        assert slow_read_stops(holds, 100.0 + RESUME_SECONDS - 1)
    assert not slow_read_stops(holds, 100.0 + RESUME_SECONDS)
    assert not slow_reads_after(holds, reading({}), frozenset(), EVERYWHERE,
                                100.0 + ALARM_SECONDS)


def test_an_osd_that_stays_slow_without_moves_is_let_go() -> None:
    """A failing disk must not keep a campaign from its end."""
    now, holds = 100.0, twice(reading({3: 20.0}))
    while slow_read_stops(holds, now):
        now += 5.0
        assert now < 100.0 + UNTOUCHED_SECONDS + RESUME_SECONDS
        holds = slow_reads_after(holds, reading({3: 20.0}), frozenset(), frozenset(), now)
    assert now - 100.0 > UNTOUCHED_SECONDS
    for _ in range(int(EXEMPT_SECONDS / 5.0) - 1):
        now += 5.0
        holds = slow_reads_after(holds, reading({3: 20.0}), frozenset(), EVERYWHERE, now)
        assert not slow_read_stops(holds, now)
    now += 10.0
    assert slow_read_stops(slow_reads_after(holds, reading({3: 20.0}), frozenset(), EVERYWHERE,
                                            now), now)


def test_inputs_are_not_changed() -> None:
    holds = {3: SlowReads(100.0, 100.0)}
    slow_reads_after(holds, reading({3: 20.0}), frozenset(), EVERYWHERE, 110.0)
    assert holds == {3: SlowReads(100.0, 100.0)}


#: The alarm is raised so long after the OSDs have become slow.
RAISE_SECONDS = 4.0


def slowed(machine: Machine, *slow: int, others: Iterable[int] = (),
           factor: float = 20.0) -> Callable[[], Observation]:
    """Reads that some OSDs serve take `factor` times as long, and all writes of which these have a
    copy take longer; that raises an alarm of the pool. `others`: further OSDs that report."""
    cluster, observe = machine.cluster, machine.observe
    norms = {osd: 1.0 for osd in (*range(8), *cluster.new, *others)}
    pool = PoolClients('rbd', 64, 800.0, 1.5, 1.5, 1.0, 1.0)
    begin, alarm = cluster.now, Reason(Code.SLOW_POOL, 'writes of pool rbd are slow')

    def seen() -> Observation:
        rows = tuple(ClientOps(1, osd, Ops(int(1e9 * (factor if osd in slow else 1.0)), 1000),
                               Ops(int(400 * 6.0 * 1e6), 400)) for osd in norms)
        return replace(observe(), clients=Clients(cluster.now, 5.0, rows, {1: pool}, IDLE_SECONDS,
                                                  norms),
                       stops=(alarm,) if cluster.now >= begin + RAISE_SECONDS else ())

    return seen


@pytest.mark.parametrize('burdened', [True, False])
def test_the_others_are_released_while_one_osd_is_slow(burdened: bool) -> None:
    machine = releasing(FakeCluster(backfill_seconds=8.0))
    cluster = machine.cluster
    touched = moving_osds(machine)
    slow = min(osd for osd in range(12) if (osd in touched) == burdened)
    setattr(machine, 'observe', slowed(machine, slow))
    limit, began, late = machine.campaign.pace.pgs, set(machine.campaign.flights.in_flight), 0
    alarm = cluster.now + RAISE_SECONDS
    while cluster.now < 1150.0:
        places = map(machine.observe().placement, machine.pins)
        before = {pgid: place.acting for pgid, place in zip(machine.pins, places) if place}
        machine.turn()
        if machine.campaign.phase is Phase.HOLDING:
            break  # the PGs that are left touch the slow OSD
        # The same mgr knows more than the store.
        machine.campaign = replace(machine.campaign, pace=machine.decision.campaign.pace)
        flights = machine.campaign.flights.in_flight
        new = flights.keys() - began
        began |= new
        late += len(new) if cluster.now > alarm else 0
        assert machine.campaign.pace.slow_reads.keys() == {slow}
        assert machine.campaign.pace.pgs >= limit, 'the pools did not count it'
        assert not [pgid for pgid in new if slow in route_osds(flights[pgid])]
        # Their PGs would wait for it while they peer.
        assert not [pgid for pgid in new if slow in before[pgid]]
    assert late and machine.pins
    assert Code.OSD_LATENCY in [reason.code for reason in machine.decision.reasons]


def test_the_alarm_of_a_pool_holds_everything_once_no_osd_is_slow() -> None:
    machine = releasing(FakeCluster(backfill_seconds=8.0))
    alarm = Reason(Code.SLOW_POOL, 'writes of pool rbd are slow')
    now = machine.cluster.now
    exempt = SlowReads(now - ALARM_SECONDS, now - 2 * UNTOUCHED_SECONDS, now + EXEMPT_SECONDS)
    for hold, everything in ((SlowReads(now, now), False), (exempt, True)):
        pace = replace(machine.campaign.pace, slow_reads={3: hold}, code=Code.LATENCY_OK)
        seen = replace(machine.observe(), stops=(alarm,))
        draft = Draft.of(replace(machine.campaign, pace=pace), machine.pins, {}, seen,
                         machine.options)
        found, = [stop for stop in stops_of(draft) if stop.reason == alarm]
        assert (found.osds is None) == everything


def test_the_alarm_of_a_pool_does_not_hold_an_exempt_osd() -> None:
    """The alarm may last a day; it would hold the PGs of the slow OSD for as long."""
    machine = releasing(FakeCluster(backfill_seconds=8.0))
    setattr(machine, 'observe', slowed(machine, 1))
    for _ in range(int(UNTOUCHED_SECONDS) + 300):
        if machine.campaign.phase is Phase.DONE:
            break
        machine.turn()
        machine.campaign = replace(machine.campaign, pace=machine.decision.campaign.pace)
    assert machine.campaign.phase is Phase.DONE, machine.reasons


def test_clients_count_again_once_an_exempt_osd_is_back() -> None:
    exempt = SlowReads(100.0, 100.0, exempt_until=4000.0)
    assert slow_osds({3: exempt}, 110.0) == {3}
    assert slow_osds({3: exempt}, 100.0 + RESUME_SECONDS) == frozenset()


def test_an_osd_of_very_many_does_not_explain_the_latency_of_a_pool() -> None:
    assert explains_pool({3}, 99)
    assert not explains_pool({3}, 1000)
    assert not explains_pool(set(), 8)


def test_many_slow_osds_count_in_their_pools() -> None:
    machine = releasing(FakeCluster(backfill_seconds=8.0))
    limit = machine.campaign.pace.pgs
    setattr(machine, 'observe', slowed(machine, 0, 1, 2, 3))
    machine.until(lambda: machine.campaign.pace.pgs < limit)


def moving_osds(machine: Machine) -> Set[int]:
    flights = machine.campaign.flights.in_flight.values()
    return {osd for flight in flights for osd in route_osds(flight)}


def of_three_hosts(machine: Machine, osds: Iterable[int]) -> List[int]:
    """As many of these OSDs as movement has to slow, each on another host."""
    hosts = {machine.observe().host_of(osd): osd for osd in osds}
    found = sorted(hosts.values())[:CAUSED_HOSTS]
    assert len(found) == CAUSED_HOSTS
    return found


def test_slow_osds_of_three_hosts_with_movement_count_in_their_pools() -> None:
    """Otherwise releases move on to other OSDs at full speed, and make these slow."""
    machine = releasing(FakeCluster(backfill_seconds=600.0))
    moving = moving_osds(machine)
    slow = of_three_hosts(machine, moving)
    assert len(moving) <= CROWD_PART * 48
    setattr(machine, 'observe', slowed(machine, *slow, others=range(12, 48)))
    for _ in range(30):
        machine.turn()
    # Not only in the first reading, of which chance may be the cause.
    assert machine.campaign.pace.code == Code.LATENCY, machine.campaign.pace.why


def test_one_slow_osd_elsewhere_does_not_hide_writes_that_movement_slows() -> None:
    """The OSDs that movement slows are few, so that reads are within their limit."""
    machine = releasing(FakeCluster(hosts=120, backfill_seconds=600.0))
    moving = moving_osds(machine)
    slow = of_three_hosts(machine, moving)
    elsewhere = min(set(range(120)) - moving)
    setattr(machine, 'observe', slowed(machine, *slow, elsewhere, others=range(8, 120),
                                       factor=5.0))
    for _ in range(30):
        machine.turn()
    assert machine.campaign.pace.code == Code.LATENCY, machine.campaign.pace.why
    assert machine.campaign.pace.why.startswith('write'), machine.campaign.pace.why


def _host(osd: int) -> str:
    return 'host%d' % (osd // 4)


@pytest.mark.parametrize('slow, moving, comparable, caused', [
    ({0, 4, 8}, range(10), 100, True),
    ({0, 4, 8}, range(100), 100, True),                    # data moves everywhere
    ({0, 1, 2, 3, 4}, range(10), 100, False),              # two hosts
    ({0, 4, 8}, [0, 4], 100, False),
    ({0, 4, 8, *range(30, 57)}, range(10), 100, False),    # as many of those without movement
    ({0, 4, 8, 30}, range(10), 100, True),
    # Among OSDs that were not slow in any case, the share of those without movement is smaller.
    ({0, 4, 8, 12, 30, 31}, range(24), 40, False),
    ({0, 4, 8, 12, 30, 31}, range(24), 1000, True),
    ({0, 4, 50}, [0, 4, 50], 40, False)])
def test_movement_slows_osds_of_several_hosts(slow: Set[int], moving: Iterable[int],
                                              comparable: int, caused: bool) -> None:
    assert slowed_by_movement(slow, frozenset(moving), frozenset(range(comparable)),
                              _host) == caused


@pytest.mark.parametrize('deleting', [False, True])
def test_what_movement_slows_counts_until_pgs_are_deleted(deleting: bool) -> None:
    """The PGs have arrived elsewhere, and the OSDs that they have left delete them."""
    machine = releasing(FakeCluster(hosts=120, backfill_seconds=600.0))
    flights = machine.campaign.flights.in_flight.values()
    sources = {osd for flight in flights for osd in flight.sources}
    slow = of_three_hosts(machine, sources)
    observe = slowed(machine, *slow, others=range(8, 120), factor=5.0)
    machine.turn()
    left = {pgid: flight for pgid, flight in machine.campaign.flights.in_flight.items()
            if set(slow).isdisjoint(route_osds(flight))}
    # The same mgr knows more than the store.
    machine.campaign = changed(machine.campaign, in_flight=left,
                               pace=machine.decision.campaign.pace)
    deleting_by_osd = dict.fromkeys(slow, 1) if deleting else {}
    setattr(machine, 'observe', lambda: replace(observe(), deleting=deleting_by_osd))
    for _ in range(15):
        machine.turn()
        machine.campaign = replace(machine.campaign, pace=machine.decision.campaign.pace)
    assert (machine.campaign.pace.code == Code.LATENCY) == deleting, machine.campaign.pace.why


@pytest.mark.parametrize('exempt', [False, True])
def test_osds_that_are_slow_without_movement_are_not_slowed_by_it(exempt: bool) -> None:
    machine = releasing(FakeCluster(hosts=120, backfill_seconds=600.0))
    moving = moving_osds(machine)
    slow = of_three_hosts(machine, moving)
    setattr(machine, 'observe', slowed(machine, *slow, others=range(8, 120), factor=5.0))
    known = SlowReads(machine.cluster.now, machine.cluster.now,
                      exempt_until=machine.cluster.now + EXEMPT_SECONDS if exempt else 0.0)
    machine.campaign = replace(machine.campaign, pace=replace(
        machine.campaign.pace, slow_reads=dict.fromkeys(slow, known)))
    for _ in range(15):
        machine.turn()
        # The same mgr knows more than the store.
        machine.campaign = replace(machine.campaign, pace=machine.decision.campaign.pace)
    assert (machine.campaign.pace.code == Code.LATENCY) != exempt, machine.campaign.pace.why


def test_osds_of_other_pools_are_not_comparable() -> None:
    """Such as disks that serve an erasure-coded pool, while data moves between SSDs."""
    clients = reading({})
    other = tuple(ClientOps(2, osd, Ops(10 ** 9, 1000), Ops()) for osd in range(4, 8))
    clients = replace(clients, rows=clients.rows[:4] + other,
                      pools={**clients.pools, 2: clients.pools[1]})
    assert judged_osds(clients) == EVERYWHERE
    assert comparable_osds(clients, frozenset({0})) == {0, 1, 2, 3}
    erasure = replace(clients, pools={**clients.pools, 2: clients.pools[1]._replace(erasure=True)})
    assert judged_osds(erasure) == {0, 1, 2, 3}


def test_osds_that_are_slow_for_a_moment_one_after_the_other_are_not_many() -> None:
    """Of few reads, each reading may find another such OSD, and its hold lasts longer."""
    machine = releasing(FakeCluster(backfill_seconds=8.0))
    now, pace = machine.cluster.now, machine.campaign.pace
    touched = moving_osds(machine)
    slow = min(osd for osd in range(12) if osd not in touched)
    others = [osd for osd in range(12) if osd != slow][:5]
    before = {osd: SlowReads(now - 10.0, now - 10.0) for osd in others}
    machine.campaign = replace(machine.campaign, pace=replace(pace, slow_reads=before))
    setattr(machine, 'observe', slowed(machine, slow))
    machine.turn()
    found = machine.decision.campaign.pace
    assert found.slow_reads.keys() == {*before, slow}
    assert found.code == Code.LATENCY_OK, found.why


@pytest.mark.parametrize('erasure, reads', [(False, 1000), (True, 0)])
def test_what_waits_for_a_slow_osd_is_not_counted(erasure: bool, reads: int) -> None:
    clients = reading({3: 20.0}, erasure=erasure)
    clients = replace(clients, rows=tuple(row._replace(write=Ops(5, 5)) for row in clients.rows))
    assert without_slow(clients, frozenset(), frozenset({1})) == clients
    elsewhere = without_slow(clients, frozenset({3}), frozenset({2}))
    assert elsewhere.rows == tuple(row for row in clients.rows if row.osd != 3)
    left = without_slow(clients, frozenset({3}), frozenset({1}))
    assert [(row.read[1], row.write[1]) for row in left.rows] == [(reads, 0)] * 7
    minute = Minute(60.0, 20.0)
    recent = replace(clients, pools={1: clients.pools[1]._replace(write_minute=minute)})
    assert without_slow(recent, frozenset({3}), frozenset({1})).pools == clients.pools
    named = replace(recent, pools={1: recent.pools[1]._replace(named=True)})
    assert without_slow(named, frozenset({3}), frozenset({1})) == named


def test_the_alarm_of_a_pool_outlasts_the_slow_osds_that_have_caused_it() -> None:
    """With others at work on their hosts every other minute, either the alarm or the latency of
    these OSDs would hold every release."""
    machine = releasing(FakeCluster(backfill_seconds=8.0))
    alarm, now = Reason(Code.SLOW_POOL, 'writes of pool rbd are slow'), machine.cluster.now
    hold = SlowReads(now - RESUME_SECONDS - 60.0, now - RESUME_SECONDS - 60.0)
    holds = slow_reads_after({3: hold}, reading({}), frozenset(), EVERYWHERE, now)
    assert not slow_read_stops(holds, now)
    pace = replace(machine.campaign.pace, slow_reads=holds, code=Code.LATENCY_OK)
    draft = Draft.of(replace(machine.campaign, pace=pace), machine.pins, {},
                     replace(machine.observe(), stops=(alarm,)), machine.options)
    found, = [stop for stop in stops_of(draft) if stop.reason == alarm]
    assert found.osds == frozenset()
    # What is slow again counts from the second reading on, as if it had never been.
    assert not slow_read_stops(slow_reads_after(holds, reading({3: 20.0}), frozenset(), EVERYWHERE,
                                                now), now)
