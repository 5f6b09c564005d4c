# SPDX-License-Identifier: LGPL-2.1-or-later
"""The end state of several pools, by PGs and by bytes, on what Ceph's own CRUSH gives."""
import random
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Dict, List, Mapping, Sequence, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.types import Osd, OsdSet, Pool, Space
from perfguard.upmap.balance import PlacedPg
from perfguard.upmap.evening import (FILL_TOLERANCE, PGS_TOLERANCE, Evened, EvenPool, EvenGround,
                                     even_out)
from perfguard.upmap.pins import broken_rule

from ..fakes.crushmaps import Map, place
from .test_balance import FIRSTN, INDEP, hosts, random_weights

GIB, TIB = 1 << 30, 1 << 40
Case = Tuple[List[EvenPool], EvenGround]
#: Two shards of a PG in each of two racks.
GROUPS = ('choose indep 2 type rack', 'chooseleaf indep 2 type host')


def case(directory: Path, map_: Map, pools: Sequence[Tuple[int, int, int]], erasure: bool = False,
         by_bytes: bool = False, deviation: float = 1.0) -> Case:
    """Pools of (size, PGs, GiB of a PG) where CRUSH places them. OSDs have 1 TiB for each unit of
    weight, and store 1 GiB beside the PGs."""
    parts, used = [], Counter({osd: GIB for osd in map_.osds})
    crush, begin = CrushRules({}, {}, {}), 0
    for number, (size, pgs, gib) in enumerate(pools, 1):
        crush, raw = place(map_, size, begin + pgs, directory)
        placed = [PlacedPg('%d.%x' % (number, seed), osds, osds)
                  for seed, osds in enumerate(raw[begin:])]
        begin += pgs
        used.update({osd: gib * GIB * count for osd, count in Counter(
            osd for pg in placed for osd in pg.here).items()})
        parts.append(EvenPool(Pool(number, 'p%d' % number, erasure, size, size - 1, 0, pgs, pgs,
                                   pgs), placed, {pg.pgid: gib * GIB for pg in placed}))
    weights = {osd: weight for rack in map_.racks for host in rack for osd, weight in host.items()}
    return parts, EvenGround(crush, {osd: Osd(osd, True, 1.0) for osd in map_.osds}, {
        osd: Space(int(weight * TIB), used[osd]) for osd, weight in weights.items()},
        0.85, deviation, by_bytes)


def sets(parts: Sequence[EvenPool], found: Evened) -> Dict[str, OsdSet]:
    return {pg.pgid: found.finals.get(pg.pgid, pg.here) for part in parts for pg in part.pgs}


def moved(parts: Sequence[EvenPool], found: Evened) -> int:
    total = 0
    for part in parts:
        for pg in part.pgs:
            there = found.finals.get(pg.pgid, pg.here)
            total += sum(a != b for a, b in zip(pg.here, there)) if part.pool.erasure \
                else len(set(there) - set(pg.here))
    return total


def check(parts: Sequence[EvenPool], on: EvenGround, found: Evened) -> None:
    """All sets are legal, and all numbers true."""
    for part in parts:
        for pg in part.pgs:
            if pg.pgid in found.finals:
                assert broken_rule(part.pool, found.finals[pg.pgid], on.crush, ()) is None
    assert moved(parts, found) == found.moved
    there = sets(parts, found)
    gained: 'Counter[int]' = Counter()
    for part in parts:
        for pg in part.pgs:
            gained.subtract({osd: part.sizes[pg.pgid] for osd in pg.here})
            gained.update({osd: part.sizes[pg.pgid] for osd in there[pg.pgid]})
    assert {osd: size for osd, size in gained.items() if size} \
        == {osd: size for osd, size in found.gained.items() if size}
    # Nothing is left to do, and nothing moves back.
    again = [part._replace(pgs=[pg._replace(here=there[pg.pgid]) for pg in part.pgs])
             for part in parts]
    space = {osd: row._replace(used_bytes=row.used_bytes + gained[osd])
             for osd, row in on.space.items()}
    if found.moved == found.moved_without_limit:
        assert even_out(again, on._replace(space=space), 10 ** 9).finals == {}


def spread_of(loads: Mapping[int, Tuple[float, float]], index: int) -> float:
    return max(row[index] for row in loads.values()) - min(row[index] for row in loads.values())


@pytest.mark.parametrize('seed', range(12))
def test_pgs_of_several_pools(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    count = rng.randint(6, 12)
    size = rng.randint(2, 4)
    erasure = rng.random() < 0.5
    map_ = Map(random_weights(rng, hosts(count, rng.randint(1, 3))), INDEP if erasure else FIRSTN)
    pools = [(size, rng.choice([32, 64, 128]), rng.randint(0, 2)) for _ in range(rng.randint(1, 5))]
    parts, on = case(tmp_path, map_, pools, erasure)
    found = even_out(parts, on, 10 ** 9)
    check(parts, on, found)
    assert max(after for _, after in found.deviations.values()) < 1
    assert spread_of(found.loads, 1) <= spread_of(found.loads, 0)


def test_many_small_pools_do_not_add_up(tmp_path: Path) -> None:
    """Each pool alone is balanced, and still some OSDs have many more PGs of all of them."""
    parts, on = case(tmp_path, Map(hosts(8, 2), FIRSTN), [(3, 16, 1)] * 20)
    found = even_out(parts, on, 10 ** 9)
    check(parts, on, found)
    assert max(after for _, after in found.deviations.values()) <= 1
    # 60 PGs are the share of each OSD.
    assert all(abs(after - 1.0) <= PGS_TOLERANCE for _, after in found.loads.values())


@pytest.mark.parametrize('steps', [GROUPS, ('choose firstn 2 type rack',
                                            'chooseleaf firstn 2 type host')])
def test_grouped_rules(steps: Tuple[str, ...], tmp_path: Path) -> None:
    size = 4 if steps is GROUPS else 3
    parts, on = case(tmp_path, Map(hosts(16, 2, racks=4), steps), [(size, 64, 1), (size, 32, 1)],
                     erasure=steps is GROUPS)
    found = even_out(parts, on, 10 ** 9)
    check(parts, on, found)
    assert max(after for _, after in found.deviations.values()) <= 1
    assert spread_of(found.loads, 1) < spread_of(found.loads, 0)


@pytest.mark.parametrize('percent', [0, 1, 3, 10])
@pytest.mark.parametrize('by_bytes', [False, True])
def test_no_more_moves_than_allowed(percent: int, by_bytes: bool, tmp_path: Path) -> None:
    parts, on = case(tmp_path, Map(hosts(8, 2), FIRSTN), [(3, 64, 1), (3, 128, 4)],
                     by_bytes=by_bytes)
    budget = sum(part.shards for part in parts) * percent // 100
    found, without = even_out(parts, on, budget), even_out(parts, on, 10 ** 9)
    check(parts, on, found)
    assert found.moved <= budget and found.moved_without_limit == without.moved
    assert found.moved == min(budget, found.moved_without_limit) or percent > 1
    assert spread_of(found.loads, 1) <= spread_of(found.loads, 0)


@pytest.mark.parametrize('seed', range(6))
def test_bytes_of_pools_with_pgs_of_other_sizes(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    sizes = [1.0, 2.0]
    map_ = Map([[{host + 100 * i: rng.choice(sizes) for i in range(3)} for host in range(10)]],
               FIRSTN)
    parts, on = case(tmp_path, map_, [(3, 128, 8), (3, 64, 1), (3, 256, 2)], by_bytes=True,
                     deviation=5.0)
    found = even_out(parts, on, 10 ** 9)
    check(parts, on, found)
    assert max(after for _, after in found.deviations.values()) <= 5
    assert spread_of(found.loads, 1) < 2 * FILL_TOLERANCE < spread_of(found.loads, 0)


def test_what_others_store_counts_by_bytes(tmp_path: Path) -> None:
    """osd.0 has 200 GiB of omap: it gets fewer PGs."""
    parts, on = case(tmp_path, Map(hosts(10, 2), FIRSTN), [(3, 256, 4)], by_bytes=True,
                     deviation=20.0)
    row = on.space[0]
    on = on._replace(space={**on.space, 0: row._replace(used_bytes=row.used_bytes + 60 * GIB)})
    found = even_out(parts, on, 10 ** 9)
    check(parts, on, found)
    assert found.gained[0] < 0 and spread_of(found.loads, 1) < 2 * FILL_TOLERANCE


def test_osds_that_are_full_or_out_get_nothing(tmp_path: Path) -> None:
    parts, on = case(tmp_path, Map(hosts(8, 2), FIRSTN), [(3, 128, 4)])
    counts = Counter(osd for pg in parts[0].pgs for osd in pg.here)
    least, next_one, third = sorted(counts, key=lambda osd: (counts[osd], osd))[:3]
    on = on._replace(osds={**on.osds, least: Osd(least, True, 1.0, fullness='nearfull'),
                           next_one: Osd(next_one, True, 0.0)},
                     space={**on.space, third: Space(TIB, int(0.849 * TIB))})
    parts = [parts[0]._replace(pgs=[pg._replace(may_move=next_one not in pg.here)
                                    for pg in parts[0].pgs])]
    found = even_out(parts, on, 10 ** 9)
    check(parts, on, found)
    assert found.finals and max(found.gained.get(osd, 0) for osd in (least, next_one, third)) <= 0
    assert found.gained.get(next_one, 0) == 0


# ---- brute force

def every_set(osds: Sequence[int], size: int) -> List[OsdSet]:
    return [osds_ for osds_ in product(osds, repeat=size) if len(set(osds_)) == size
            and list(osds_) == sorted(osds_)]


def outcomes(part: EvenPool, osds: Sequence[int]) -> Dict[Tuple[int, ...], int]:
    """Numbers of PGs of each OSD -> the least shards that move to get them."""
    found = {(0,) * len(osds): 0}
    choices = every_set(osds, part.pool.size)
    for pg in part.pgs:
        following: Dict[Tuple[int, ...], int] = {}
        for counts, moves in found.items():
            for there in choices:
                key = tuple(count + (osd in there) for osd, count in zip(osds, counts))
                cost = moves + len(set(there) - set(pg.here))
                following[key] = min(cost, following.get(key, cost))
        found = following
    return found


@pytest.mark.parametrize('seed', range(15))
def test_the_least_movement_of_small_clusters(seed: int, tmp_path: Path) -> None:
    """Of all states, those with each pool within one of its share and the totals as even as
    possible: ours is one of them, or as good to within a PG, and moves little more than needed."""
    rng = random.Random(seed)
    osds = list(range(rng.randint(4, 5)))
    map_ = Map([[{osd: 1.0} for osd in osds]], FIRSTN)
    parts, on = case(tmp_path, map_, [(2, rng.randint(4, 7), 1) for _ in range(2)])
    found = even_out(parts, on, 10 ** 9)
    check(parts, on, found)
    ideals = [2 * len(part.pgs) / len(osds) for part in parts]
    fitting = [{counts: moves for counts, moves in outcomes(part, osds).items()
                if max(abs(count - ideal) for count in counts) < 1}
               for part, ideal in zip(parts, ideals)]
    best: Dict[int, int] = {}
    for (one, cost), (two, more) in product(fitting[0].items(), fitting[1].items()):
        totals = [a + b for a, b in zip(one, two)]
        spread = max(totals) - min(totals)
        best[spread] = min(cost + more, best.get(spread, cost + more))
    total = Counter(osd for osds_ in sets(parts, found).values() for osd in osds_)
    spread = max(total[osd] for osd in osds) - min(total[osd] for osd in osds)
    assert spread == min(best)
    assert found.moved <= best[spread] + 1
