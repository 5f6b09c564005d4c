# SPDX-License-Identifier: LGPL-2.1-or-later
"""The end state of a pool, on what Ceph's own CRUSH gives."""
import math
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Dict, List, Mapping, NamedTuple, Sequence, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.types import NO_OSD, Osd, OsdSet, Pool, UpmapEntry
from perfguard.upmap.balance import Balance, PlacedPg, balance
from perfguard.upmap.pins import Pin, after_commit, broken_rule, plan_pin

from ..fakes.crushmaps import Map, place

Racks = List[List[Dict[int, float]]]
FIRSTN, INDEP = ('chooseleaf firstn 0 type host',), ('chooseleaf indep 0 type host',)


def hosts(count: int, per_host: int, weight: float = 1.0, racks: int = 1) -> Racks:
    """Hosts whose OSDs keep their ids when hosts or OSDs are added."""
    found: Racks = [[] for _ in range(racks)]
    for host in range(count):
        found[host % racks].append({host + 100 * i: weight for i in range(per_host)})
    return found


class Outcome(NamedTuple):
    pool: Pool
    pgs: List[PlacedPg]
    crush: CrushRules
    osds: Mapping[int, Osd]
    result: Balance

    def final(self, pg: PlacedPg) -> OsdSet:
        return self.result.finals.get(pg.pgid, pg.here)

    @property
    def moved(self) -> int:
        """Shards; where positions do not matter, OSDs that are new in the set."""
        if self.pool.erasure:
            return sum(a != b for pg in self.pgs for a, b in zip(pg.here, self.final(pg)))
        return sum(len(set(self.final(pg)) - set(pg.here)) for pg in self.pgs)

    def counts(self) -> 'Counter[int]':
        return Counter(osd for pg in self.pgs for osd in self.final(pg))


def change(directory: Path, old: Map, new: Map, size: int, pgs: int,
           erasure: bool = False, reweight: Mapping[int, float] = {}) -> Outcome:
    """Balance a pool whose data is where the old map puts it."""
    _, here = place(old, size, pgs, directory)
    crush, raw = place(new, size, pgs, directory)
    pool = Pool(1, 'p', erasure, size, size - 1, 0, pgs, pgs, pgs)
    placed = [PlacedPg('1.%x' % i, a, b) for i, (a, b) in enumerate(zip(here, raw))
              if NO_OSD not in a]
    osds = {osd: Osd(osd, True, reweight.get(osd, 1.0)) for osd in new.osds}
    return Outcome(pool, placed, crush, osds, balance(pool, placed, crush, osds))


def check(outcome: Outcome, times: float = 1.05) -> None:
    """Valid, and `times` the minimum at most."""
    check_sets(outcome)
    if not tight(outcome):
        assert outcome.moved <= times * outcome.result.least


def check_sets(outcome: Outcome) -> None:
    """The rule allows all sets, and each changed PG has one upmap entry that the mon keeps."""
    pool, crush, osds = outcome.pool, outcome.crush, outcome.osds
    for pg in outcome.pgs:
        final = outcome.final(pg)
        if final == pg.here:
            continue
        assert broken_rule(pool, final, crush, ()) is None
        assert pg.raw is not None
        pin = plan_pin(pool, pg.raw, final, UpmapEntry(), osds, crush)
        assert isinstance(pin, Pin), pin
        assert after_commit(pg.raw, pin.entry, pool, osds, crush) == pin.entry
    assert dict(outcome.counts()) == {osd: n for osd, n in outcome.result.after.items() if n}


def tight(outcome: Outcome) -> bool:
    """A host has a shard of nearly every PG. What it gets cannot come from everywhere, and the
    sum of what the others have too much is no measure of what must move."""
    share: Dict[int, float] = {}
    for osd, ideal in outcome.result.targets.ideal.items():
        host = osd % 100
        share[host] = share.get(host, 0.0) + ideal
    return max(share.values()) > 0.95 * len(outcome.pgs)


def random_weights(rng: random.Random, racks: Racks) -> Racks:
    """Drives of several sizes, and sometimes hosts that are all of one."""
    sizes = rng.choice([(1.0,), (1.0, 2.0), (1.0, 2.0, 4.0, 8.0)])
    return [[{osd: rng.choice(sizes) for osd in host} for host in rack] for rack in racks]


def grown(rng: random.Random, old: Racks) -> Racks:
    """One of the changes that operators make."""
    new = [[dict(host) for host in rack] for rack in old]
    kind = rng.choice(['hosts', 'osds', 'drain', 'weights'])
    rack = new[0]
    if kind == 'hosts':
        rack += hosts(len(rack) + rng.randint(1, 3), len(rack[0]))[0][len(rack):]
    elif kind == 'osds':
        for number, host in enumerate(rack):
            host[number + 100 * len(host)] = rng.choice([1.0, 2.0])
    elif kind == 'drain':
        rack[0] = {osd: 0.0001 for osd in rack[0]}
    else:
        new = random_weights(rng, new)
    return new


@pytest.mark.parametrize('seed', range(40))
def test_random_changes(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    count = rng.randint(5, 14)
    size = rng.randint(2, min(6, count - 2))
    erasure = size > 2 and rng.random() < 0.5
    old = random_weights(rng, hosts(count, rng.randint(1, 4)))
    new = grown(rng, old)
    classes, take = {}, 'default'
    steps = INDEP if erasure else FIRSTN
    if rng.random() < 0.3 and len(old[0][0]) > 1:
        # The rule is for the first OSD of each host only, however many there are.
        classes, take = {osd: 'ssd' for osd in range(100)}, 'default class ssd'
    outcome = change(tmp_path, Map(old, steps, take, classes), Map(new, steps, take, classes),
                     size, rng.choice([64, 256, 512]), erasure)
    check(outcome)
    assert outcome.result.deviation < 1
    drained = [osd for host in new[0] for osd, weight in host.items() if weight < 0.001]
    assert not any(outcome.counts()[osd] for osd in drained)


def test_a_balanced_pool_stays_as_it_is(tmp_path: Path) -> None:
    map_ = Map(hosts(8, 2))
    first = change(tmp_path, map_, map_, 3, 256)
    pgs = [pg._replace(here=first.final(pg)) for pg in first.pgs]
    assert first.result.finals
    again = balance(first.pool, pgs, first.crush, first.osds)
    assert again.finals == {} and again.least == 0


def test_pgs_that_are_not_free_stay(tmp_path: Path) -> None:
    outcome = change(tmp_path, Map(hosts(6, 2)), Map(hosts(9, 2)), 3, 128)
    pgs = [pg._replace(may_move=False) if i % 2 else pg._replace(raw=None if i % 8 == 0 else pg.raw)
           for i, pg in enumerate(outcome.pgs)]
    found = balance(outcome.pool, pgs, outcome.crush, outcome.osds)
    assert found.finals
    assert all(pg.may_move and pg.raw for pg in pgs if pg.pgid in found.finals)


def test_a_budget_bounds_what_moves_for_the_balance(tmp_path: Path) -> None:
    """A pool that was never balanced gets one host more; drained OSDs are emptied all the same."""
    outcome = change(tmp_path, Map(hosts(20, 1)), Map(hosts(21, 1)), 3, 512)
    by_crush = sum(len(set(pg.raw or ()) - set(pg.here)) for pg in outcome.pgs)
    assert outcome.moved > by_crush
    found = balance(outcome.pool, outcome.pgs, outcome.crush, outcome.osds, by_crush)
    assert outcome._replace(result=found).moved <= by_crush
    assert found.after[20] > 0.8 * found.targets.ideal[20] and found.deviation > 1
    drain = {**hosts(20, 1)[0][0], 0: 0.0001}
    drained = change(tmp_path, Map(hosts(20, 1)), Map([[drain, *hosts(20, 1)[0][1:]]]), 3, 512)
    found = balance(drained.pool, drained.pgs, drained.crush, drained.osds, 0)
    assert found.after[0] == 0


def test_only_what_is_beyond_the_deviation_moves_for_the_balance(tmp_path: Path) -> None:
    """A pool that was never balanced gets one host more."""
    outcome = change(tmp_path, Map(hosts(20, 1)), Map(hosts(21, 1)), 3, 512)
    moved = []
    for deviation in (1, 3, 5, 100):
        found = outcome._replace(result=balance(outcome.pool, outcome.pgs, outcome.crush,
                                                outcome.osds, deviation=deviation))
        assert found.result.deviation < deviation
        moved.append(found.moved)
    assert moved == sorted(moved, reverse=True) and moved[0] == outcome.moved > 2 * moved[-1]


def test_primaries_stay_where_there_is_a_choice(tmp_path: Path) -> None:
    outcome = change(tmp_path, Map(hosts(8, 1)), Map(hosts(12, 1)), 3, 512)
    lost = sum(outcome.final(pg)[0] != pg.here[0] for pg in outcome.pgs)
    by_crush = sum(pg.raw is not None and pg.raw[0] != pg.here[0] for pg in outcome.pgs)
    assert lost < 0.7 * by_crush


def test_reweight_counts(tmp_path: Path) -> None:
    map_ = Map(hosts(10, 1))
    outcome = change(tmp_path, map_, map_, 3, 256, reweight={0: 0.5, 1: 0.0})
    check(outcome)
    counts = outcome.counts()
    assert counts[1] == 0 and abs(counts[0] - 768 * 0.5 / 8.5) < 1
    assert abs(counts[2] - 768 / 8.5) < 1


def test_a_down_osd_has_its_share(tmp_path: Path) -> None:
    """It may be back in a minute."""
    outcome = change(tmp_path, Map(hosts(8, 1)), Map(hosts(10, 1)), 3, 128)
    osds = {**outcome.osds, 8: replace(outcome.osds[8], up=False)}
    found = balance(outcome.pool, outcome.pgs, outcome.crush, osds)
    assert found.after[8] > 30 and found == outcome.result


def test_a_host_that_is_too_heavy_has_one_shard_of_each_pg(tmp_path: Path) -> None:
    """Its ideal by weight is 1.5 shards of each PG; the others share the rest by weight."""
    racks = hosts(5, 2)
    racks[0][0] = {0: 4.0, 100: 4.0}
    outcome = change(tmp_path, Map(hosts(5, 2)), Map(racks), 3, 256)
    check(outcome)
    assert tight(outcome)
    counts = outcome.counts()
    assert (counts[0], counts[100]) == (128, 128)
    assert all(counts[osd] == 64 for osd in outcome.osds if osd not in (0, 100))


@pytest.mark.parametrize('seed', range(3))
def test_one_host_more_than_shards(seed: int, tmp_path: Path) -> None:
    """Hardly any PG has a host to spare: what leaves a drained OSD goes by way of others."""
    rng = random.Random(seed)
    old = [[{osd: rng.choice([1.0, 2.0, 4.0]) for osd in host} for host in hosts(9, 12)[0]]]
    new = [[{osd: 0.0001 if osd in (2, 102, 202, 302) else weight for osd, weight in host.items()}
            for host in old[0]]]
    outcome = change(tmp_path, Map(old, INDEP), Map(new, INDEP), 8, 4096, erasure=True)
    check(outcome)
    assert outcome.result.deviation < 1
    assert not any(outcome.counts()[osd] for osd in (2, 102, 202, 302))


def test_three_hosts_and_three_copies(tmp_path: Path) -> None:
    """Shards can only move within their host."""
    outcome = change(tmp_path, Map(hosts(3, 4)), Map(hosts(3, 5)), 3, 128)
    check(outcome)
    assert outcome.result.deviation < 1


def test_osds_as_failure_domain(tmp_path: Path) -> None:
    steps = ('choose firstn 0 type osd',)
    outcome = change(tmp_path, Map(hosts(2, 4), steps), Map(hosts(2, 6), steps), 3, 128)
    check(outcome)
    assert outcome.result.deviation < 1


@pytest.mark.parametrize('steps, size', [
    (('choose firstn 2 type rack', 'chooseleaf firstn 2 type host'), 4),
    (('choose indep 3 type rack', 'chooseleaf indep 2 type host'), 6)])
def test_rules_with_racks_keep_to_their_racks(steps: Sequence[str], size: int,
                                              tmp_path: Path) -> None:
    """Each rack keeps as many shards of a PG; what is in a rack is balanced."""
    erasure = 'indep' in steps[0]
    outcome = change(tmp_path, Map(hosts(12, 1, racks=3), steps),
                     Map(hosts(18, 1, racks=3), steps), size, 256, erasure)
    per_rack = 2
    for pg in outcome.pgs:
        final = outcome.final(pg)
        assert outcome.crush.violation(0, size, final) is None
        racks = Counter(osd % 3 for osd in final)
        assert set(racks.values()) == {per_rack}
    assert outcome.result.deviation < 1


def test_a_new_rack_is_filled_although_no_shard_can_move_there_alone(tmp_path: Path) -> None:
    steps = ('choose firstn 2 type rack', 'chooseleaf firstn 2 type host')
    old = hosts(9, 1, racks=3)
    new = old + [[{50: 1.0}, {51: 1.0}, {52: 1.0}]]
    outcome = change(tmp_path, Map(old, steps), Map(new, steps), 4, 256)
    counts = outcome.counts()
    assert all(abs(counts[osd] - 1024 / 12) < 6 for osd in outcome.osds), counts
    for pg in outcome.pgs:
        assert outcome.crush.violation(0, 4, outcome.final(pg)) is None


@pytest.mark.parametrize('steps, size, racks', [
    (('choose firstn 2 type rack', 'chooseleaf firstn 2 type host'), 4, 4),
    (('choose indep 3 type rack', 'chooseleaf indep 2 type host'), 6, 5),
    (('choose indep 4 type rack', 'choose indep 2 type osd'), 8, 6)])
def test_a_drained_rack_keeps_no_shard_although_none_can_leave_it_alone(
        steps: Sequence[str], size: int, racks: int, tmp_path: Path) -> None:
    """CRUSH gives some of the other racks more than their share."""
    old = hosts(3 * racks, 1, racks=racks)
    new = [[{osd: 0.0001 for osd in host} for host in old[0]], *old[1:]]
    outcome = change(tmp_path, Map(old, steps), Map(new, steps), size, 128, 'indep' in steps[0])
    drained = {osd for host in old[0] for osd in host}
    assert all(drained.isdisjoint(pg.raw or ()) for pg in outcome.pgs)
    assert [pg.pgid for pg in outcome.pgs if drained & set(outcome.final(pg))] == []
    for pg in outcome.pgs:
        assert outcome.crush.violation(0, size, outcome.final(pg)) is None


def total(outcome: Outcome) -> Tuple[int, int]:
    return sum(outcome.result.before.values()), sum(outcome.result.after.values())


def test_targets_are_whole_numbers_within_one(tmp_path: Path) -> None:
    outcome = change(tmp_path, Map(hosts(7, 1)), Map(hosts(9, 1)), 3, 64)
    found = outcome.result.targets
    for osd, ideal in found.ideal.items():
        assert {found.low[osd], found.high[osd]} == {math.floor(ideal), math.ceil(ideal)}
    assert total(outcome) == (192, 192)


@pytest.mark.parametrize('pgs', [32, 64, 128])
@pytest.mark.parametrize('erasure', [False, True])
def test_new_osds_are_filled_where_the_deviation_is_as_large_as_their_share(
        pgs: int, erasure: bool, tmp_path: Path) -> None:
    """With upmap_max_deviation 5 and about five PGs for each OSD no OSD is beyond the deviation,
    not even an empty one."""
    steps, size = INDEP if erasure else FIRSTN, 3
    old, new = Map(hosts(pgs * size // 5, 1), steps), Map(hosts(pgs * size // 5 + 2, 1), steps)
    first = change(tmp_path, old, old, size, pgs, erasure)
    crush, raw = place(new, size, pgs, tmp_path)
    osds = {osd: Osd(osd, True, 1.0) for osd in new.osds}
    # The old OSDs are balanced: none of them has more than its share with the new ones.
    placed = [PlacedPg(pg.pgid, first.final(pg), there) for pg, there in zip(first.pgs, raw)]
    by_crush = sum(sum(a != b for a, b in zip(pg.raw or (), there)) if erasure
                   else len(set(there) - set(pg.raw or ())) for pg, there in zip(first.pgs, raw))
    found = balance(first.pool, placed, crush, osds, by_crush, deviation=5.0)
    outcome = Outcome(first.pool, placed, crush, osds, found)
    check(outcome)
    by_osd = Counter(osd for pg in placed for osd in pg.raw or ())
    for osd in sorted(new.osds)[-2:]:
        least = min(by_osd[osd], 0.75 * found.targets.ideal[osd])
        assert found.after[osd] >= math.floor(0.75 * least) > 0
    # CRUSH places them there: no shard moves for the balance alone.
    assert outcome.moved == sum(found.after[osd] for osd in sorted(new.osds)[-2:]) <= by_crush


@pytest.mark.parametrize('erasure', [False, True])
def test_new_osds_take_nothing_of_a_pool_with_one_pg(erasure: bool, tmp_path: Path) -> None:
    """Their share is a part of a PG, and CRUSH may want the PG there."""
    wanted = 0
    for seed in range(1, 9):
        old, new = (Map(hosts(8 + more, seed), INDEP if erasure else FIRSTN) for more in (0, 8))
        outcome = change(tmp_path, old, new, 3, 1, erasure)
        wanted += any(osd % 100 >= 8 for osd in outcome.pgs[0].raw or ())
        found = balance(outcome.pool, outcome.pgs, outcome.crush, outcome.osds, 10, 5.0)
        assert outcome._replace(result=found).moved == 0
    assert wanted


def test_filling_new_osds_stays_within_the_budget(tmp_path: Path) -> None:
    outcome = change(tmp_path, Map(hosts(20, 1)), Map(hosts(24, 1)), 3, 32)
    for budget in range(6):
        found = balance(outcome.pool, outcome.pgs, outcome.crush, outcome.osds, budget, 5.0)
        assert outcome._replace(result=found).moved <= budget
