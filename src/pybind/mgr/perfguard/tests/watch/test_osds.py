# SPDX-License-Identifier: LGPL-2.1-or-later
"""Rates and latencies from counters; the replica that primaries wait for."""
import random
from statistics import median
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

import pytest

from perfguard.cluster.types import (NO_OSD, ClientOps, Ops, OsdCounters, OsdPlace, PgCounts,
                                     PgWrites)
from perfguard.watch.osds import (FEW_SLOW, LONGEST_SECONDS, Deletions, OsdFlows, OsdNorms,
                                  OsdWatch, PgLatency, Restarts, StoredNorm, Unexplained,
                                  add_reads, busy,
                                  faster_of_two, replica_flows, sample, without_erasure)
from perfguard.watch.pools import DECAY_PER_READING
from perfguard.watch.types import DELETION, NO_FLOW, RESTART, SCRUB, SOURCE, TARGET, Flow, OsdSample

MS = 1000000
NAN = float('nan')


def counters(time: float, read: Ops = Ops(), write: Ops = Ops(), process: Ops = Ops(),
             prepare: Ops = Ops(), commit: Ops = Ops(), store_read: Ops = Ops()) -> OsdCounters:
    return OsdCounters(time, read, write, process, prepare, commit, store_read)


def test_a_sample_is_the_difference_of_two_reports() -> None:
    before = counters(10.0, Ops(5 * MS, 1), Ops(100 * MS, 10), Ops(60 * MS, 10), Ops(10 * MS, 10),
                      Ops(7 * MS, 7), Ops(1 * MS, 1))
    after = counters(15.0, Ops(15 * MS, 6), Ops(200 * MS, 60), Ops(110 * MS, 60), Ops(20 * MS, 60),
                     Ops(57 * MS, 107), Ops(1 * MS, 1))
    found = sample(3, before, after)
    assert found is not None and (found.osd, found.seconds) == (3, 5.0)
    assert found.read == Flow(1.0, 2.0)
    assert found.write == Flow(10.0, 2.0)
    # 100 ms in all, of which 50 after dequeuing, 10 of these before the store had them: 60 of 50.
    assert found.own_write == Flow(10.0, 1.2)
    assert found.commit == Flow(20.0, 0.5)
    assert found.store_read == NO_FLOW


def test_no_sample_from_invalid_counters() -> None:
    before = counters(100.0, Ops(10 * MS, 10))
    more = Ops(20 * MS, 20)
    assert sample(0, before, counters(105.0, more)) is not None
    for time in (100.0, 95.0, 100.0 + LONGEST_SECONDS + 1, NAN, float('inf'), -1e300):
        assert sample(0, before, counters(time, more)) is None, time
    # It started anew: fewer operations, or less time spent on them.
    assert sample(0, before, counters(105.0, Ops(5 * MS, 5))) is None
    assert sample(0, before, counters(105.0, Ops(5 * MS, 50))) is None
    assert sample(0, before, counters(105.0, more)._replace(commit=Ops(-1, 0))) is None


#: The clock of a fast OSD was set back by a second under one operation.
SET_BACK = Ops((2 ** 32 - 1) * 10 ** 9, 50000)


@pytest.mark.parametrize('read', [Ops(2 ** 63, 5), Ops(10 ** 18, 1), Ops(1, 0), SET_BACK])
def test_no_sample_of_operations_that_cannot_be(read: Ops) -> None:
    assert sample(0, counters(100.0), counters(105.0, read)) is None


def test_the_number_of_pgs_may_go_down() -> None:
    before = counters(100.0)._replace(pgs=9)
    assert sample(0, before, counters(105.0)._replace(pgs=3)) is not None


def test_osds_with_other_work() -> None:
    kinds = {
        # More PGs than those in whose acting set it is, while PGs move.
        0: (PgCounts(total=10), 12, TARGET), 1: (PgCounts(total=10), 10, None),
        2: (PgCounts(total=10, backfilling=1), 10, SOURCE),
        3: (PgCounts(total=10, recovering=1, deep_scrubbing=1), 10, SOURCE),
        4: (PgCounts(total=10, deep_scrubbing=1), 10, SCRUB),
        5: (PgCounts(total=10, backfilling=1), 11, TARGET),
        6: (PgCounts(), 1, TARGET)}
    counts = {osd: count for osd, (count, _, _) in kinds.items() if osd != 6}
    read = {osd: counters(10.0)._replace(pgs=pgs) for osd, (_, pgs, _) in kinds.items()}
    assert busy(counts, read) == {osd: kind for osd, (_, _, kind) in kinds.items() if kind}
    # Without movement an OSD with more PGs has nothing to do for them, unless it deletes them.
    quiet = {osd: counts[osd] for osd in (0, 1, 4)}
    assert busy(quiet, read) == {4: SCRUB}
    assert busy({**quiet, 1: PgCounts(total=10, backfill_wait=1)}, read)[0] == TARGET
    assert busy(quiet, read, {0: 1, 4: 1}) == {0: DELETION, 4: DELETION}
    assert busy(counts, read, {0: 1, 1: 1, 2: 1}) == {
        **busy(counts, read), 1: DELETION}


def test_restarts_are_seen_in_the_counters() -> None:
    restarts = Restarts()
    before, some = counters(0.0, Ops(9 * MS, 9)), Ops(3 * MS, 3)
    for now, read, osds, restarted in (
            # What was before the first reading is not known.
            (0.0, {1: before, 2: before}, {1, 2}, {}), (5.0, {1: before}, {1, 2}, {}),
            # osd.2 was down.
            (60.0, {1: before, 2: counters(0.0, some)}, {1, 2}, {2: 60.0}),
            (65.0, {1: before._replace(commit=some), 2: before}, {1, 2}, {2: 60.0}),
            (70.0, {1: before, 2: before}, {1, 2}, {1: 70.0, 2: 60.0}),
            (1860.0, {1: before, 2: before}, {1, 2}, {1: 70.0, 2: 60.0}),
            (1865.0, {1: before, 2: before}, {1, 2}, {1: 70.0}),
            # It restarts again and again.
            (1870.0, {1: counters(0.0, some), 2: before}, {1, 2}, {1: 70.0}),
            (21670.0, {1: counters(0.0), 2: before}, {1, 2}, {}),
            (21671.0, {1: before, 2: before}, {1, 2}, {}),
            (21672.0, {1: counters(0.0), 2: before}, {1, 2}, {1: 21672.0}),
            # osd.1 is removed, and created anew.
            (21673.0, {2: before}, {2}, {}), (21674.0, {1: counters(0.0), 2: before}, {1, 2}, {})):
        restarts.update(now, read, osds)
        assert restarts.at == restarted, now
    assert busy({1: PgCounts(deep_scrubbing=1)}, {1: before, 2: before, 3: before}, (),
                {1: 0.0, 2: 0.0}) == {1: SCRUB, 2: RESTART}


def test_deletion_of_pgs_is_no_excuse_for_ever() -> None:
    deletions = Deletions()
    moving, still = {7: PgCounts(total=10, backfill_wait=1)}, {7: PgCounts(total=10)}
    now = 1e9
    for counts, hours, deleting, pgs in (
            # An expansion takes days, in which OSDs delete PGs all the time.
            (moving, 100, {3: 2}, {3: 2}), (moving, 0, {3: 2}, {3: 2}),
            (still, 11.9, {3: 40, 4: 1}, {3: 40, 4: 1}), (still, 0.2, {3: 39, 4: 1}, {4: 1}),
            (still, 0.2, {3: 1}, {}), (still, 0, {4: 1}, {4: 1}),
            # It begins anew.
            (still, 11.9, {3: 2}, {3: 2}), (still, 0, {3: 2}, {3: 2}),
            (still, 12.0, {3: 1}, {3: 1}), (still, 0.1, {3: 1}, {}), (moving, 9, {3: 1}, {3: 1})):
        now += 3600.0 * hours
        deletions.update(now, counts, deleting)
        assert deletions.pgs == pgs, (hours, deleting)


def client(osd: int, ms: float, number: int = 1000, pool: int = 1) -> ClientOps:
    return ClientOps(pool, osd, Ops(round(ms * number * MS), number), Ops())


def of_host(osd: int, host: str, device_class: str = 'hdd') -> OsdPlace:
    return OsdPlace(osd, host, 'default', device_class)


def test_the_norm_of_an_osd_is_against_the_median_osd() -> None:
    """All of them take twice as long as usual, for instance because of the load."""
    norms = OsdNorms()
    norms.update([client(1, 2.0), client(2, 4.0), client(3, 6.0), client(3, 60.0, pool=2)],
                 {1: 2.0, 2: 20.0, 3: 1.0})
    # Of osd.3, 66 s instead of 22 s; the median is 2.
    assert norms.norms() == pytest.approx({1: 0.5, 2: 1.0, 3: 1.5})
    before = norms.norms()
    assert norms.norms() is before
    norms.update([client(1, 1.0, pool=9), ClientOps(1, 1, Ops(-1, 5), Ops())], {1: 2.0})
    assert norms.norms() is before, 'a pool without a baseline, and nonsense'
    norms.update([client(1, 2.0), client(2, 2.0), client(3, 2.0)], {1: 2.0})
    assert norms.norms() != before


@pytest.mark.parametrize('reads, norms', [(600, {1: 0.5, 2: 1.0, 3: 1.5}), (400, {})])
def test_a_norm_needs_enough_reads(reads: int, norms: Dict[int, float]) -> None:
    known = OsdNorms()
    known.update([client(osd, 2.0 * osd, reads) for osd in (1, 2, 3)], {1: 4.0})
    assert known.norms() == pytest.approx(norms)


def test_osds_with_few_reads_have_the_norm_of_their_host() -> None:
    known = OsdNorms()
    known.places = {osd: of_host(osd, host, device_class) for osd, host, device_class in (
        (1, 'a', 'hdd'), (2, 'a', 'hdd'), (3, 'a', 'ssd'), (4, 'b', 'hdd'))}
    known.load({1: StoredNorm(1.0, 3000, 900), 2: StoredNorm(2.0, 1000, 400),
                3: StoredNorm(9.0, 100, 100), 4: StoredNorm(0.0, 700, 700),
                5: StoredNorm(4.0, 500, 500), 6: StoredNorm(4.0, 499, 499)})
    # osd.2: 3 s and 2 s instead of 4 s.
    assert known.norms() == pytest.approx({1: 1.0, 2: 1.25, 5: 4.0})
    # No OSD of another host has enough reads.
    known.places = {**known.places, 2: of_host(2, 'b')}
    assert known.norms() == pytest.approx({1: 1.0, 2: 2000 / 1700, 5: 4.0})
    known.forget_others({2, 5})
    assert known.norms() == {5: 4.0}


def test_norms_survive_a_failover() -> None:
    norms, after = OsdNorms(), OsdNorms()
    norms.update([client(1, 2.0), client(2, 4.0), client(3, 7.0)], {1: 4.0})
    stored = norms.stored()
    assert {osd: row.norm for osd, row in stored.items()} == pytest.approx(
        {1: 0.5, 2: 1.0, 3: 1.75})
    assert (stored[2].usual_ms, stored[2].reads) == (
        round(4000 * DECAY_PER_READING), round(1000 * DECAY_PER_READING))
    after.load(stored)
    assert after.norms() == pytest.approx(norms.norms())
    assert after.stored() == stored


def test_client_reads_are_counted_by_kind_of_pool() -> None:
    reads: Dict[int, List[int]] = {}
    for _ in range(2):
        add_reads(reads, [client(1, 1.0, 30), client(1, 1.0, 5, pool=2), client(2, 1.0, 7, pool=2)],
                  {2})
    assert reads == {1: [60, 10], 2: [0, 14]}
    add_reads(reads, [client(3, 1.0)], set())
    assert 3 not in reads


@pytest.mark.parametrize('reads, is_evidence', [
    ((90, 10), True), ((89, 10), False), ((0, 0), True), (None, False)])
def test_reads_of_erasure_coded_pools_are_no_evidence(
        reads: Optional[Tuple[int, int]], is_evidence: bool) -> None:
    """From a tenth of all reads on, and where it is not known which they are."""
    given = OsdSample(1, 5.0, read=Flow(9.0, 1.0), commit=Flow(9.0, 1.0))
    by_osd = {} if reads is None else {1: reads}
    assert without_erasure([given], by_osd, {2}) == [
        given if is_evidence else given._replace(read=NO_FLOW)]
    assert without_erasure([given], by_osd, set()) == [given]


def test_the_flows_of_an_osd_in_the_last_minute() -> None:
    watch = OsdWatch()
    assert watch.flows(1, 100.0, 5.0) == OsdFlows()
    for number in range(3):
        counts = 10 * number
        sampled = watch.update(100.0 + 5 * number, {1: counters(
            100.0 + 5 * number, Ops(counts * 2 * MS, counts), Ops(counts * 3 * MS, counts),
            commit=Ops(counts * MS, 2 * counts))}, [1])
        assert [each.osd for each in sampled] == [1] * (number > 0)
    assert watch.flows(1, 110.0, 5.0) == OsdFlows(Flow(2.0, 2.0), Flow(2.0, 3.0), Flow(4.0, 0.5))
    assert watch.flows(1, 170.0, 5.0) == OsdFlows()
    history = watch.history(1)
    assert history is not None and history.detailed.points(1) == [
        (110.0, 5.0, (10.0, 20.0 * MS, 10.0, 30.0 * MS, 20.0, 10.0 * MS))]
    watch.forget_others([2])
    assert watch.history(1) is None and watch.flows(1, 110.0, 5.0) == OsdFlows()


@pytest.mark.parametrize('write, process, flow', [
    (Ops(6 * MS, 3), Ops(), Flow(1.5, 2.0)), (Ops(0, 3), Ops(), Flow(1.5, 0.0)),
    (Ops(), Ops(), NO_FLOW), (Ops(), Ops(6 * MS, 3), NO_FLOW),
    (Ops(6 * MS, 3), Ops(9 * MS, 3), NO_FLOW)])
def test_flow(write: Ops, process: Ops, flow: Flow) -> None:
    """Operations of two seconds; process: the part after dequeuing, which may be counted earlier
    than all of them."""
    found = sample(1, counters(100.0), counters(102.0, write=write, process=process))
    assert found is not None and found.own_write == flow


def test_nonsense_makes_no_sample_or_a_number() -> None:
    rnd = random.Random(7)
    values = (0, 1, -1, 2 ** 63, 2 ** 64 - 1, -2 ** 63, 10 ** 30)
    for _ in range(2000):
        before, after = (
            counters(rnd.choice((0.0, 5.0, 1e18, NAN)), *[
                Ops(rnd.choice(values), rnd.choice(values)) for _ in range(6)])
            for _ in range(2))
        found = sample(1, before, after)
        if found is not None:
            for rate, ms in (found.read, found.write, found.own_write, found.commit,
                             found.store_read):
                assert rate >= 0.0 and ms >= 0.0


# ---- replicas

#: Milliseconds of a write without trouble.
USUAL = 2.0


def placed(rng: random.Random, osds: int, hosts: int, pgs: int, size: int = 3,
           pool: int = 1) -> Dict[str, Tuple[int, ...]]:
    """PG -> acting set; osd.N is in host N % hosts, one replica a host."""
    found = {}
    for seed in range(pgs):
        chosen = rng.sample(range(hosts), size)
        found['%d.%x' % (pool, seed)] = tuple(
            rng.choice([osd for osd in range(osds) if osd % hosts == host]) for host in chosen)
    return found


def written(rng: random.Random, acting: Mapping[str, Tuple[int, ...]],
            added: Mapping[int, float], primaries: Mapping[int, float] = {}) -> List[PgWrites]:
    """A write waits for its slowest replica; means of a few operations scatter by a fifth."""
    rows = []
    for pgid, osds in acting.items():
        number = rng.randint(5, 60)
        ms = USUAL + primaries.get(osds[0], 0.0) + max(
            [added.get(osd, 0.0) for osd in osds[1:]])
        rows.append(PgWrites(pgid, osds, Ops(
            int(number * ms * 1e6 * rng.lognormvariate(0, 0.2)), number)))
    return rows


def slow(rows: Sequence[PgWrites], factor: float = 1.5) -> List[int]:
    flows = replica_flows(rows, 30.0, {})
    usual = sorted(flow.ms for flow in flows.values())[len(flows) // 2]
    return sorted(osd for osd, flow in flows.items() if flow.ms > factor * usual)


def pg_writes(primary: int, ms: float, *replicas: int, number: int = 10,
              pool: int = 1) -> PgWrites:
    return PgWrites('%d.0' % pool, (primary, *replicas), Ops(round(number * ms * MS), number))


def with_replica(ms: float) -> List[PgWrites]:
    """Four primaries with six PGs each: writes take 2 ms, and those that osd.1 replicates `ms`."""
    return [pg_writes(primary, ms if 1 in replicas else 2.0, *replicas)
            for primary in (10, 11, 12, 13)
            for replicas in ((1, 2), (2, 3), (2, 3), (3, 4), (3, 4), (1, 4))]


@pytest.mark.parametrize('ms, latency_ms', [(5.0, 5.0), (2.5, 2.5), (2.3, 2.0), (2.0, 2.0)])
def test_the_latency_that_a_replica_adds(ms: float, latency_ms: float) -> None:
    """From a fifth of what its PGs take without it."""
    flows = replica_flows(with_replica(ms), 20.0, {})
    assert flows == {1: Flow(4.0, latency_ms), 2: Flow(6.0, 2.0), 3: Flow(8.0, 2.0),
                     4: Flow(6.0, 2.0)}


@pytest.mark.parametrize('ms, latency_ms', [(2.4, 2.4), (2.5, 2.5), (3.0, 2.5)])
def test_what_slow_primaries_take_is_not_the_latency_of_their_replica(
        ms: float, latency_ms: float) -> None:
    rows = [*with_replica(2.0), *(pg_writes(14, ms, 5) for _ in range(4))]
    assert replica_flows(rows, 20.0, {})[5].ms == pytest.approx(latency_ms)


def test_which_pgs_are_evidence() -> None:
    rows = with_replica(2.0)
    few = [pg_writes(14, 9.0, 5) for _ in range(3)]
    assert 5 not in replica_flows([*rows, *few], 20.0, {})
    for row in (pg_writes(14, 9.0, 5, number=2), pg_writes(NO_OSD, 9.0, 5), PgWrites(
            '1.0', (), Ops(9 * MS, 9)), pg_writes(14, 9.0, NO_OSD)):
        assert 5 not in replica_flows([*rows, *few, row], 20.0, {})
        assert NO_OSD not in replica_flows([*rows, row, row, row, row], 20.0, {})
    assert 5 in replica_flows([*rows, *few, pg_writes(14, 9.0, 5, number=3)], 20.0, {})


def test_a_typical_latency_is_that_of_the_kind_of_an_osd() -> None:
    """Two pools, of which one is on flash; osd.5 replicates PGs of both."""
    rows = [*with_replica(2.0), *(pg_writes(14, 0.5, 5, pool=2) for _ in range(5)),
            *(pg_writes(10, 2.0, 5) for _ in range(4))]
    kinds = {osd: 'ssd' if osd == 5 else 'hdd' for osd in range(15)}
    assert replica_flows(rows, 20.0, kinds)[5] == Flow(4.5, 0.5)
    assert replica_flows(rows, 20.0, {})[5] == Flow(4.5, 2.0)


@pytest.mark.parametrize('osds, hosts, pgs', [(6, 3, 64), (8, 4, 64), (60, 10, 1024)])
@pytest.mark.parametrize('seed', range(5))
def test_one_slow_replica_is_found(osds: int, hosts: int, pgs: int, seed: int) -> None:
    rng = random.Random(seed)
    rows = written(rng, placed(rng, osds, hosts, pgs), {1: 3 * USUAL})
    assert slow(rows) == [1]
    flow = replica_flows(rows, 30.0, {})[1]
    assert 3 * USUAL < flow.ms < 5.5 * USUAL


@pytest.mark.parametrize('seed', range(20))
def test_no_osd_is_suspected_where_none_is_slow(seed: int) -> None:
    rng = random.Random(seed)
    assert slow(written(rng, placed(rng, 12, 4, 128), {})) == []


@pytest.mark.parametrize('seed', range(5))
def test_a_slow_primary_is_no_slow_replica(seed: int) -> None:
    """Its own writes are slow; those that it replicates for others are not."""
    rng = random.Random(seed)
    rows = written(rng, placed(rng, 12, 4, 256), {}, primaries={5: 10 * USUAL})
    assert slow(rows) == []


@pytest.mark.parametrize('seed', range(10))
def test_an_osd_that_replicates_for_slow_primaries_alone_is_no_slow_replica(seed: int) -> None:
    """As where the network of their host is slow: each of its PGs has one of them."""
    rng = random.Random(seed)
    acting = placed(rng, 12, 6, 128, 2)
    acting = {pgid: (rng.choice((1, 7)), osds[1]) if osds[1] == 4 else osds
              for pgid, osds in acting.items()}
    rows = written(rng, acting, {}, primaries={1: 10 * USUAL, 7: 10 * USUAL})
    assert slow(rows, 2.0) == []


def test_two_slow_replicas_and_a_slow_host() -> None:
    rng = random.Random(1)
    acting = placed(rng, 24, 8, 512)
    assert slow(written(rng, acting, {3: 4 * USUAL, 12: 8 * USUAL})) == [3, 12]
    # All of host 2.
    assert slow(written(rng, acting, {2: 3 * USUAL, 10: 3 * USUAL, 18: 3 * USUAL})) == [2, 10, 18]


@pytest.mark.parametrize('size', [3, 4])
@pytest.mark.parametrize('seed', range(10))
def test_pools_of_different_speed_make_no_suspect(seed: int, size: int) -> None:
    """About half of the PGs of each OSD are of either pool."""
    rng = random.Random(seed)
    fast = written(rng, placed(rng, 12, 4, 64), {})
    other = {osd: 9 * USUAL for osd in range(12)}
    assert slow(fast + written(rng, placed(rng, 12, 4, 64, size, pool=2), other)) == []


@pytest.mark.parametrize('seed', range(10))
def test_a_slow_replica_is_found_although_pools_differ_in_speed(seed: int) -> None:
    rng = random.Random(seed)
    other = {osd: 9 * USUAL for osd in range(24)}
    rows = (written(rng, placed(rng, 24, 8, 256), {3: 20 * USUAL})
            + written(rng, placed(rng, 24, 8, 256, pool=2), {**other, 3: 29 * USUAL}))
    assert slow(rows) == [3]


def test_osds_are_judged_by_the_pools_of_their_kind() -> None:
    """Those of disks are slower; a pool that only half of the disks have makes no difference."""
    rng = random.Random(7)
    disks, flash = range(12), range(12, 24)
    rows: List[PgWrites] = []
    for pool, osds, ms in ((1, flash, 0.0), (2, disks, 15 * USUAL), (3, disks[:6], 90 * USUAL)):
        acting = {'%d.%x' % (pool, seed): tuple(rng.sample(osds, 3)) for seed in range(128)}
        rows += written(rng, acting, dict.fromkeys(osds, ms))
    flows = replica_flows(rows, 30.0, {osd: osd in disks for osd in range(24)})
    assert max(flows[osd].ms for osd in flash) < 1.2 * USUAL
    slowest, fastest = (choose(flows[osd].ms for osd in disks) for choose in (max, min))
    assert slowest < 1.5 * fastest


def delayed(rng: random.Random, rows: Sequence[PgWrites], slow_osd: int,
            ms: float) -> List[PgWrites]:
    """With an OSD that delays writes by about so much, those of some PGs far more than others."""
    return [PgWrites(row.pgid, row.acting, Ops(
        row.write.sum_ns + int(row.write.number * 1e6 * ms * rng.uniform(0.2, 1.8)),
        row.write.number)) if slow_osd in row.acting else row for row in rows]


@pytest.mark.parametrize('seed', range(20))
def test_osds_beside_a_very_slow_one_keep_the_latency_of_their_pools(seed: int) -> None:
    """Half of the PGs of the slower pool have the slow OSD. If its median delay is subtracted, as
    many of them have a base latency of 0."""
    rng = random.Random(seed)
    fast = written(rng, placed(rng, 8, 4, 64), {})
    other = {osd: 9 * USUAL for osd in range(8)}
    assert slow(delayed(rng, fast + written(rng, placed(rng, 8, 4, 32, 4, 2), other),
                        2, 30 * USUAL)) == [2]


@pytest.mark.parametrize('seed', range(20))
def test_what_a_slow_replica_adds_varies_and_makes_no_suspect(seed: int) -> None:
    """In one pool, where others share half of their PGs with one of two slow OSDs."""
    rng = random.Random(seed)
    rows = written(rng, placed(rng, 12, 6, 128), {})
    for osd in (2, 5):
        rows = delayed(rng, rows, osd, 30 * USUAL)
    assert slow(rows) == [2, 5]


@pytest.mark.parametrize('seed', range(10))
def test_what_remains_without_a_replica_is_what_the_other_pgs_show(seed: int) -> None:
    """Only what a peeled replica changes is worked out again."""
    rng = random.Random(seed)
    other = {osd: 9 * USUAL for osd in range(24)}
    rows = (written(rng, placed(rng, 24, 6, 200), {3: 20 * USUAL, 9: 5 * USUAL})
            + written(rng, placed(rng, 24, 6, 60, pool=2), other))
    pgs = [PgLatency(row) for row in rows]
    of_replica = {osd: [pg for pg in pgs if osd in pg.replicas] for osd in range(24)}
    unexplained = Unexplained(pgs, of_replica)
    for _ in range(3):
        worst = max(unexplained.excess, key=unexplained.excess.__getitem__)
        assert unexplained.peel(worst) > 0.0 and worst not in unexplained.excess
        afresh = Unexplained(pgs, of_replica).excess
        assert unexplained.excess == {osd: afresh[osd] for osd in unexplained.excess}


def test_osds_that_cannot_be_distinguished_are_not_suspected() -> None:
    """One OSD a host and a replica a host: every PG has every OSD."""
    rng = random.Random(3)
    rows = written(rng, placed(rng, 3, 3, 64), {1: 5 * USUAL})
    assert slow(rows) in ([], [1])


def test_no_osd_is_named_where_all_are_slow() -> None:
    rng = random.Random(4)
    rows = written(rng, placed(rng, 12, 4, 128), {osd: 5 * USUAL for osd in range(12)})
    assert slow(rows) == []


@pytest.mark.parametrize('osds, hosts, pgs, size', [
    (240, 10, 8000, 3), (96, 4, 3200, 3), (72, 3, 3600, 2)])
@pytest.mark.parametrize('seed', range(2))
def test_all_osds_of_a_slow_host_are_found(osds: int, hosts: int, pgs: int, size: int,
                                           seed: int) -> None:
    """24 OSDs each. If the slowest few of them were named, noise would choose others each time."""
    rng = random.Random(seed)
    of_host = range(1, osds, hosts)
    assert len(of_host) == 24 > FEW_SLOW
    rows = written(rng, placed(rng, osds, hosts, pgs, size), dict.fromkeys(of_host, 2 * USUAL))
    assert slow(rows) == list(of_host)


@pytest.mark.parametrize('seed', range(5))
def test_no_osd_is_named_where_many_are_slow(seed: int) -> None:
    """A third are found, and no other one. If there are more, the cause is not these OSDs, but one
    that is far slower is found."""
    rng = random.Random(seed)
    acting = placed(rng, 60, 10, 600, 2)
    third = set(range(20))
    found = set(slow(written(rng, acting, dict.fromkeys(third, 5 * USUAL))))
    assert len(found) > 3 / 4 * len(third) and found <= third
    many = dict.fromkeys(range(27), 5 * USUAL)
    assert slow(written(rng, acting, many)) == []
    assert slow(written(rng, acting, {**many, 40: 50 * USUAL})) == [40]


@pytest.mark.parametrize('seed', range(3))
def test_a_slow_osd_beside_a_slower_kind_is_found(seed: int) -> None:
    """Half of the disks add as much as osd.65, a flash drive, and that is usual of them."""
    rng = random.Random(seed)
    flash = range(60, 80)
    primaries = [rng.lognormvariate(0, 0.1) for _ in range(80)]
    rows: List[PgWrites] = []
    for pool, osds, pgs, base_ms in ((1, range(60), 1000, 20.0), (2, flash, 300, 1.0)):
        for number in range(pgs):
            acting, writes = tuple(rng.sample(osds, 3)), max(3, int(rng.expovariate(0.01)))
            ms = base_ms * primaries[acting[0]] + sum(
                10.0 for osd in acting[1:] if osd < 30 or osd == 65)
            rows.append(PgWrites('%d.%x' % (pool, number), acting, Ops(int(
                writes * ms * 1e6 * rng.lognormvariate(0, 1.0 / writes ** 0.5)), writes)))
    flows = replica_flows(rows, 30.0, {osd: (osd in flash, osd < 30) for osd in range(80)})
    usual = median(flows[osd].ms for osd in flash)
    assert [osd for osd in flash if flows[osd].ms > 3 * usual] == [65]


@pytest.mark.parametrize('seed', range(5))
def test_noise_makes_few_slow_replicas(seed: int) -> None:
    """With four PGs per primary, the fastest of which is the base of the others, nearly half of all
    replicas have an excess."""
    rng = random.Random(seed)
    rows = [PgWrites('1.%x' % number, tuple(rng.sample(range(800), 3)), Ops(
        int(10 * USUAL * 1e6 * rng.lognormvariate(0, 0.45)), 10)) for number in range(3200)]
    assert len(slow(rows)) <= FEW_SLOW + 2


def test_nonsense() -> None:
    rows = [PgWrites('1.0', (), Ops(5, 5)), PgWrites('1.1', (NO_OSD, 1), Ops(5, 5)),
            PgWrites('1.2', (0, NO_OSD, 1), Ops(-5, 5)), PgWrites('1.3', (0, 1), Ops(10 ** 30, 4)),
            PgWrites('1.4', (0, 1), Ops(0, 0))]
    assert replica_flows(rows, 30.0, {}) == {}
    assert replica_flows([], 0.0, {}) == {}


def test_one_reading_of_half_a_minute_makes_no_suspect() -> None:
    """A stall of 2 s makes its mean 60 ms."""
    usual, stalled = {1: Flow(9.0, 2.0), 2: Flow(9.0, 2.0)}, {1: Flow(9.0, 62.0), 2: Flow(9.0, 2.1)}
    assert faster_of_two({}, stalled) == {}
    assert faster_of_two(usual, stalled) == faster_of_two(stalled, usual) == usual
    assert faster_of_two(stalled, stalled) == stalled
