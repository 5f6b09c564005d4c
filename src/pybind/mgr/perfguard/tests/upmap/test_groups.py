# SPDX-License-Identifier: LGPL-2.1-or-later
"""The end state of pools whose rule chooses several OSDs in each bucket: only all shards that a PG
has in a bucket can leave it."""
import random
from collections import Counter
from pathlib import Path
from typing import Dict, List, NamedTuple, Sequence

import pytest

from perfguard.cluster.types import Osd, Pool, Space, UpmapEntry
from perfguard.upmap.balance import BalanceLimit, PlacedPg, balance
from perfguard.upmap.pins import Pin, plan_pin
from perfguard.upmap.shares import Room

from ..fakes.crushmaps import Map, place
from ..fakes.osdmaps import OsdMapFile
from .test_balance import Outcome, Racks, change, check, hosts

Steps = Sequence[str]
FOUR_HOSTS = ('choose indep 4 type host', 'choose indep 2 type osd')
FIVE_RACKS = ('choose indep 5 type rack', 'chooseleaf indep 2 type host')
THREE_OF_THREE = ('choose indep 3 type host', 'choose indep 3 type osd')
TWO_SITES = ('choose firstn 0 type rack', 'chooseleaf firstn 2 type host')
ONE_SITE = ('choose firstn 1 type rack', 'chooseleaf firstn 0 type host')


def share(outcome: Outcome, racks: Racks) -> Dict[int, float]:
    """By OSD, its share of all shards by weight: no bucket is too heavy for its share."""
    weights = {osd: weight for rack in racks for host in rack for osd, weight in host.items()}
    whole = sum(weights.values())
    shards = sum(len(pg.here) for pg in outcome.pgs)
    return {osd: shards * weight / whole for osd, weight in weights.items()}


def distance(outcome: Outcome, racks: Racks) -> float:
    """Greatest distance of an OSD from its share."""
    counts = outcome.counts()
    return max(abs(counts[osd] - ideal) for osd, ideal in share(outcome, racks).items())


class Expansion(NamedTuple):
    steps: Steps
    size: int
    old: Racks
    new: Racks

    def of(self, directory: Path, pgs: int = 512) -> Outcome:
        return change(directory, Map(self.old, self.steps), Map(self.new, self.steps), self.size,
                      pgs, 'indep' in self.steps[0])


EXPANSIONS = [
    Expansion(FOUR_HOSTS, 8, hosts(10, 4), hosts(12, 4)),
    Expansion(FOUR_HOSTS, 8, hosts(7, 5), hosts(8, 5)),
    Expansion(FIVE_RACKS, 10, hosts(21, 2, racks=7), hosts(28, 2, racks=7)),
    Expansion(FIVE_RACKS, 10, hosts(18, 1, racks=6), hosts(18, 1, racks=6)
              + [[{50: 1.0}, {51: 1.0}, {52: 1.0}]]),
    Expansion(THREE_OF_THREE, 9, hosts(6, 6), hosts(7, 6)),
    Expansion(TWO_SITES, 4, hosts(8, 2, racks=2), hosts(12, 2, racks=2)),
    Expansion(('choose firstn 2 type rack', 'chooseleaf firstn 2 type host'), 4,
              hosts(12, 2, racks=4), hosts(16, 2, racks=4)),
    Expansion(ONE_SITE, 3, hosts(12, 2, racks=3), hosts(18, 2, racks=3)),
    # As of a rule with chooseleaf.
    Expansion(('choose indep 0 type host', 'choose indep 1 type osd'), 5, hosts(9, 2),
              hosts(11, 2))]


@pytest.mark.parametrize('expansion', EXPANSIONS)
def test_every_osd_has_its_share_of_the_whole_rule(expansion: Expansion, tmp_path: Path) -> None:
    outcome = expansion.of(tmp_path)
    check(outcome, 1.15)
    assert outcome.result.targets.ideal == pytest.approx(share(outcome, expansion.new))
    assert distance(outcome, expansion.new) < 1 and outcome.result.limit is None
    assert outcome.result.deviation == pytest.approx(distance(outcome, expansion.new))


@pytest.mark.parametrize('deviation', [3.0, 5.0])
def test_what_is_within_the_deviation_stays_and_is_reported_so(
        deviation: float, tmp_path: Path) -> None:
    expansion = Expansion(FOUR_HOSTS, 8, hosts(20, 10), hosts(22, 10))
    outcome = expansion.of(tmp_path, 880)
    found = balance(outcome.pool, outcome.pgs, outcome.crush, outcome.osds, deviation=deviation)
    loose = outcome._replace(result=found)
    assert found.deviation == pytest.approx(distance(loose, expansion.new))
    assert found.deviation < deviation and loose.moved < outcome.moved


@pytest.mark.parametrize('seed', range(4))
def test_drives_of_several_sizes_end_within_a_wider_deviation(seed: int, tmp_path: Path) -> None:
    """A host at its own limit would need all of its OSDs at theirs."""
    rng = random.Random(seed)
    new = [[{osd: rng.choice([1.0, 2.0, 4.0]) for osd in host} for host in hosts(6, 10)[0]]]
    outcome = change(tmp_path, Map([new[0][:5]], FOUR_HOSTS), Map(new, FOUR_HOSTS), 8, 1000, True)
    found = balance(outcome.pool, outcome.pgs, outcome.crush, outcome.osds, deviation=5.0)
    assert 1 < found.deviation < 5


def test_half_groups_are_divided_evenly(tmp_path: Path) -> None:
    """Of three copies, one of two racks has two: a shard may change the rack without the others."""
    steps = ('choose firstn 2 type rack', 'chooseleaf firstn 2 type host')
    for new in (hosts(12, 2, racks=2), hosts(12, 2, racks=3)):
        outcome = change(tmp_path, Map(hosts(8, 2, racks=len(new)), steps), Map(new, steps), 3, 256)
        check(outcome)
        assert distance(outcome, new) < 1


def test_an_odd_number_of_osds_is_off_by_a_part_of_a_group(tmp_path: Path) -> None:
    """Hosts of three OSDs have 94 shards or 92, two of each PG, and their share is 93.3."""
    new = hosts(9, 3)
    outcome = change(tmp_path, Map(hosts(8, 3), FOUR_HOSTS), Map(new, FOUR_HOSTS), 8, 105,
                     True)
    check(outcome, 1.15)
    assert 1 < outcome.result.deviation < 1.2
    assert outcome.result.limit is BalanceLimit.GROUPS
    assert outcome.result.deviation == pytest.approx(distance(outcome, new))


@pytest.mark.parametrize('seed', range(6))
@pytest.mark.parametrize('steps, size, racks, per_rack', [
    (FOUR_HOSTS, 8, 1, 8), (FIVE_RACKS, 10, 7, 3), (TWO_SITES, 4, 2, 4), (ONE_SITE, 3, 3, 5)])
def test_drives_of_several_sizes(seed: int, steps: Steps, size: int, racks: int, per_rack: int,
                                 tmp_path: Path) -> None:
    """Hosts are added, or one is drained. A host may be too heavy for its share."""
    rng = random.Random(seed)
    old = [[{osd: rng.choice([1.0, 2.0, 4.0]) for osd in host} for host in rack]
           for rack in hosts(racks * per_rack, rng.randint(4, 6), racks=racks)]
    new = [[dict(host) for host in rack] for rack in old]
    if seed % 2:
        for number, rack in enumerate(new):
            rack.append({90 + number + 100 * i: rng.choice([1.0, 2.0]) for i in range(4)})
    else:
        new[0][0] = dict.fromkeys(new[0][0], 0.0001)
    outcome = change(tmp_path, Map(old, steps), Map(new, steps), size, 256, 'indep' in steps[0])
    check(outcome, 1.6)
    # Up to a group less or more in one bucket.
    assert outcome.result.deviation < 1.6
    counts = outcome.counts()
    assert not any(counts[osd] for rack in new for host in rack for osd, weight in host.items()
                   if weight < 0.001)


def test_a_budget_bounds_the_groups_that_move(tmp_path: Path) -> None:
    outcome = Expansion(FOUR_HOSTS, 8, hosts(20, 4), hosts(21, 4)).of(tmp_path)
    for budget in (0, 1, 2, 7, 50, 200):
        found = balance(outcome.pool, outcome.pgs, outcome.crush, outcome.osds, budget)
        assert outcome._replace(result=found).moved <= budget
    assert outcome.moved > 200 and found.after[20] > 0.8 * found.targets.ideal[20]


def test_a_host_with_too_few_osds_for_a_group_is_emptied(tmp_path: Path) -> None:
    old = hosts(7, 2)
    new = [[{osd: 0.0001 if osd == 100 else weight for osd, weight in host.items()}
            for host in old[0]]]
    outcome = change(tmp_path, Map(old, FOUR_HOSTS), Map(new, FOUR_HOSTS), 8, 128, True)
    counts = outcome.counts()
    assert counts[0] == counts[100] == 0 and outcome.result.deviation < 1
    # Without another host, what is there stays.
    few = [new[0][:4]]
    kept = change(tmp_path, Map([old[0][:4]], FOUR_HOSTS), Map(few, FOUR_HOSTS), 8, 128, True)
    assert kept.result.finals == {}


def test_groups_move_only_where_there_is_room(tmp_path: Path) -> None:
    outcome = Expansion(FOUR_HOSTS, 8, hosts(10, 4), hosts(12, 4)).of(tmp_path)
    there = Counter(osd for pg in outcome.pgs for osd in pg.here)
    room = Room({osd: Space(1000, 10 * (there[osd] if osd != 10 else 80)) for osd in outcome.osds},
                0.85).of_pool(10)
    found = balance(outcome.pool, outcome.pgs, outcome.crush, outcome.osds, room=room)
    assert found.after[10] <= 5 and found.after[110] > 60


def test_the_order_of_pgs_does_not_matter(tmp_path: Path) -> None:
    outcome = Expansion(FOUR_HOSTS, 8, hosts(10, 4), hosts(12, 4)).of(tmp_path)
    pgs = list(outcome.pgs)
    random.Random(1).shuffle(pgs)
    assert balance(outcome.pool, pgs, outcome.crush, outcome.osds) == outcome.result


SITES = ('chooseleaf firstn 2 type host', 'emit', 'take r1', 'chooseleaf firstn 2 type host')
FIRST_IN_A = ('chooseleaf firstn 1 type host', 'emit', 'take r1', 'chooseleaf firstn -1 type host')


@pytest.mark.parametrize('steps, size', [(SITES, 4), (FIRST_IN_A, 3)])
@pytest.mark.parametrize('shuffled', [False, True])
def test_each_take_has_its_share(steps: Steps, size: int, shuffled: bool, tmp_path: Path) -> None:
    """Data may be in another order than that of the takes."""
    old, new = hosts(12, 2, racks=2), hosts(16, 2, racks=2)
    outcome = change(tmp_path, Map(old, steps, 'r0'), Map(new, steps, 'r0'), size, 256)
    if shuffled:
        rng = random.Random(2)
        pgs = [pg._replace(here=tuple(rng.sample(pg.here, size))) for pg in outcome.pgs]
        outcome = outcome._replace(pgs=pgs, result=balance(
            outcome.pool, pgs, outcome.crush, outcome.osds))
    check(outcome)
    counts = outcome.counts()
    for rack, shards in enumerate((2, 2) if size == 4 else (1, 2)):
        ideal = 256 * shards / 16
        assert all(abs(counts[osd] - ideal) < 1 for osd in new_osds(new, rack))


def new_osds(racks: Racks, number: int) -> List[int]:
    return [osd for host in racks[number] for osd in host]


@pytest.mark.parametrize('steps, size, allowed', [
    (FOUR_HOSTS, 8, True), (TWO_SITES, 4, True), (ONE_SITE, 3, True), (SITES, 4, True),
    (('choose indep 2 type rack', 'choose indep 2 type host', 'choose indep 1 type osd'), 4, False),
    (('choose firstn 1 type host', 'choose firstn 2 type osd', 'emit', 'take r1',
      'choose firstn 1 type host', 'choose firstn 2 type osd'), 4, False)])
def test_rules_under_which_no_upmap_lasts_are_not_balanced(
        steps: Steps, size: int, allowed: bool, tmp_path: Path) -> None:
    """The mons count the hosts of all OSDs of a PG, not of those below each rack or take."""
    racks = hosts(12, 2, racks=2)
    take = 'r0' if 'emit' in steps else 'default'
    outcome = change(tmp_path, Map(racks, steps, take), Map(racks, steps, take), size, 32)
    assert outcome.crush.balances(0, size) == allowed
    assert all((outcome.crush.violation(0, size, pg.here) is None) == allowed
               for pg in outcome.pgs)


@pytest.mark.parametrize('steps, take', [
    (('choose indep 2 type rack', 'choose indep 2 type host', 'choose indep 1 type osd'),
     'default'),
    (('choose firstn 2 type rack', 'chooseleaf firstn 1 type host', 'emit',
      'take default class hdd', 'choose firstn 2 type rack', 'chooseleaf firstn 1 type host'),
     'default class ssd')])
def test_mons_that_keep_upmaps_compare_a_step_with_its_own_buckets(
        steps: Steps, take: str, tmp_path: Path) -> None:
    """Half of the hosts of a rack have SSDs."""
    old, new = hosts(12, 2, racks=2), hosts(16, 2, racks=2)
    classes = {osd: ('ssd', 'hdd')[number % 2] for rack in new for number, host in enumerate(rack)
               for osd in host}
    outcome = change(tmp_path, Map(old, steps, take, classes), Map(new, steps, take, classes), 4,
                     256, 'indep' in steps[0])
    assert not outcome.crush.balances(0, 4)
    crush = outcome.crush.with_upmaps_kept_under(
        frozenset({outcome.crush.checksum(0)}))
    assert crush.balances(0, 4) and crush is outcome.crush.with_upmaps_kept_under(
        crush.proven_rules)
    assert all(crush.violation(0, 4, pg.raw or ()) is None for pg in outcome.pgs)
    in_one_rack = tuple(osd for host in new[0] for osd in host)[:8:2]
    assert crush.violation(0, 4, in_one_rack)
    balanced = outcome._replace(crush=crush, result=balance(
        outcome.pool, outcome.pgs, crush, outcome.osds))
    check(balanced, 1.15)
    assert distance(balanced, new) < 1


@pytest.mark.parametrize('old, new', [
    (hosts(16, 4, racks=4)[:3], hosts(16, 4, racks=4)),
    (hosts(9, 4, racks=3), hosts(12, 4, racks=3)),
    (hosts(18, 4, racks=6)[:5], hosts(18, 4, racks=6))])
def test_groups_of_groups(old: Racks, new: Racks, tmp_path: Path) -> None:
    """Two OSDs on each of two hosts in each of two racks; for mons that keep such upmaps."""
    steps = ('choose indep 2 type rack', 'choose indep 2 type host', 'choose indep 2 type osd')
    outcome = change(tmp_path, Map(old, steps), Map(new, steps), 8, 256, True)
    crush = outcome.crush.with_upmaps_kept_under(
        frozenset({outcome.crush.checksum(0)}))
    balanced = outcome._replace(crush=crush, result=balance(
        outcome.pool, outcome.pgs, crush, outcome.osds))
    check(balanced, 1.15)
    assert distance(balanced, new) < 1


@pytest.mark.parametrize('steps, size, racks', [
    (FOUR_HOSTS, 8, 1), (FIVE_RACKS, 10, 6), (TWO_SITES, 4, 2), (TWO_SITES, 3, 2)])
def test_the_mons_keep_every_upmap_and_the_balancer_has_nothing_to_do(
        steps: Steps, size: int, racks: int, tmp_path: Path) -> None:
    """As osdmaptool says."""
    def of(count: int) -> Map:
        return Map([[{3 * host + i: 1.0 for i in range(3)} for host in range(rack, count, racks)]
                    for rack in range(racks)], steps)

    new, number = of(6 * racks), 18 * racks
    osdmap = OsdMapFile(tmp_path, number, 2, size)
    here, raw = osdmap.place(of(5 * racks)), osdmap.place(new)
    crush, _ = place(new, size, 1, tmp_path)
    pool = Pool(1, 'p', 'indep' in steps[0], size, 2, 0, len(raw), len(raw), len(raw))
    osds = {osd: Osd(osd, True, 1.0) for osd in range(number)}
    result = balance(pool, [PlacedPg(pgid, here[pgid], raw[pgid]) for pgid in raw], crush, osds)
    pins = {pgid: plan_pin(pool, raw[pgid], result.finals.get(pgid, here[pgid]), UpmapEntry(), osds,
                           crush) for pgid in raw}
    osdmap.store_upmaps({pgid: pin.entry for pgid, pin in pins.items() if isinstance(pin, Pin)})
    assert all(isinstance(pin, Pin) for pin in pins.values()) and result.deviation <= 1
    assert osdmap.cancelled() == []
    assert not osdmap.finds_more(1) and not osdmap.finds_more(5)


def test_osdmaptool_cancels_an_illegal_upmap_and_sees_what_is_uneven(tmp_path: Path) -> None:
    osdmap = OsdMapFile(tmp_path, 18, 2, 8)
    raw = osdmap.place(Map([[{3 * host + i: 1.0 for i in range(3)} for host in range(6)]],
                           FOUR_HOSTS))
    spare = next(osd for osd in range(18) if osd // 3 not in {o // 3 for o in raw['1.5']})
    osdmap.store_upmaps({'1.5': UpmapEntry(((raw['1.5'][0], spare),)),
                         '1.6': UpmapEntry(vector=raw['1.6'][::-1])})
    assert osdmap.cancelled() == ['ceph osd rm-pg-upmap-items 1.5'] and osdmap.finds_more(1)
