# SPDX-License-Identifier: LGPL-2.1-or-later
"""The end state of a pool under a new rule that chooses several OSDs in each bucket, on what Ceph's
own CRUSH gives: what must move, against all sets that the rule allows."""
import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import Dict, Mapping, Sequence, Set

import pytest

from perfguard.cluster.types import Osd, OsdSet, Pool, UpmapEntry
from perfguard.upmap.balance import PlacedPg, balance
from perfguard.upmap.pins import Pin, broken_rule, plan_pin

from ..fakes.crushmaps import Map, place
from ..fakes.osdmaps import OsdMapFile
from .test_balance import Outcome, Racks, check_sets, hosts
from .test_lawful_sets import (INDEP_HOST, INDEP_OSD, FIRSTN_HOST, Shape, check_two_maps, hosts_in,
                               scattered, unavoidable)

FOUR_HOSTS = ('choose indep 4 type host', 'choose indep 2 type osd')
FOUR_RACKS = ('choose indep 4 type rack', 'chooseleaf indep 2 type host')
TWO_RACKS = ('choose indep 2 type rack', 'chooseleaf indep 4 type host')
THREE_OF_TWO = ('choose indep 3 type rack', 'chooseleaf indep 2 type host')
TWO_OF_TWO = ('choose firstn 2 type rack', 'chooseleaf firstn 2 type host')

SHAPES = [
    Shape(INDEP_HOST, FOUR_HOSTS, 8, hosts(12, 4)),
    Shape(INDEP_OSD, FOUR_HOSTS, 8, hosts(12, 4)),
    Shape(INDEP_HOST, FOUR_RACKS, 8, hosts(24, 2, racks=6)),
    Shape(FOUR_RACKS, TWO_RACKS, 8, hosts(24, 2, racks=4)),
    Shape(TWO_RACKS, FOUR_RACKS, 8, hosts(24, 2, racks=6)),
    Shape(FOUR_HOSTS, INDEP_HOST, 8, hosts(12, 4)),
    Shape(FOUR_HOSTS, FOUR_HOSTS, 8, hosts(12, 4), ('default', 'default class ssd')),
    Shape(FIRSTN_HOST, TWO_OF_TWO, 4, hosts(24, 2, racks=6)),
]


@pytest.mark.parametrize('shape', SHAPES)
def test_moves_what_the_rule_does_not_allow_to_stay(shape: Shape, tmp_path: Path) -> None:
    outcome = shape.change(tmp_path, 256)
    floor = unavoidable(outcome)
    check_sets(outcome)
    assert outcome.result.required == floor <= outcome.moved <= 1.05 * floor
    assert outcome.result.deviation < 1


@pytest.mark.parametrize('shape', [
    Shape(INDEP_HOST, THREE_OF_TWO, 6, hosts(12, 1, racks=6)),
    Shape(INDEP_HOST, THREE_OF_TWO, 6, hosts(12, 1, racks=4)),
    Shape(FIRSTN_HOST, TWO_OF_TWO, 4, hosts(12, 1, racks=4)),
    Shape(FIRSTN_HOST, TWO_OF_TWO, 4, hosts(12, 1, racks=6))])
def test_the_balance_of_few_osds_needs_few_further_moves(shape: Shape, tmp_path: Path) -> None:
    """Most PGs have several sets for which as few shards move."""
    outcome = shape.change(tmp_path, 32)
    check_sets(outcome)
    assert outcome.moved <= 1.06 * unavoidable(outcome)
    assert outcome.result.deviation < 1


def unavoidable_in_groups(outcome: Outcome, groups: Sequence[Sequence[int]],
                          bucket_of: Mapping[int, int]) -> int:
    """Shards that cannot stay if the positions of each group must be in one bucket, by trying all
    buckets."""
    domain = outcome.crush.spread(0, outcome.pool.size).domain
    buckets = sorted(set(bucket_of.values()))

    def staying(osds: OsdSet, chosen: Sequence[int]) -> int:
        return sum(len({domain[osds[position]] for position in group
                        if bucket_of[osds[position]] == bucket})
                   for group, bucket in zip(groups, chosen))

    return sum(outcome.pool.size - max(staying(pg.here, chosen) for chosen in
                                       itertools.permutations(buckets, len(groups)))
               for pg in outcome.pgs)


@pytest.mark.parametrize('old, new', [(INDEP_HOST, FOUR_RACKS), (TWO_RACKS, FOUR_RACKS),
                                      (FOUR_RACKS, TWO_RACKS), (FOUR_RACKS, FOUR_RACKS)])
def test_local_groups_stay_together(old: Sequence[str], new: Sequence[str],
                                    tmp_path: Path) -> None:
    outcome = local_groups(Shape(old, new, 8, hosts(24, 2, racks=5)), tmp_path)
    take, = outcome.crush.spread(0, 8).takes
    size, bucket_of = take.groups[0]
    groups = [range(first, first + size) for first in range(0, 8, size)]
    floor = unavoidable_in_groups(outcome, groups, bucket_of)
    check_sets(outcome)
    assert outcome.result.required == floor > 0
    for pg in outcome.pgs:
        final = outcome.final(pg)
        assert all(len({bucket_of[final[position]] for position in group}) == 1
                   for group in groups)


def local_groups(shape: Shape, directory: Path) -> Outcome:
    """With an LRC pool, of which each third PG is where others have moved it: the groups of two
    shards have exchanged one."""
    outcome = shape.change(directory, 128)
    pool = replace(outcome.pool, local_groups=True)
    pgs = [pg._replace(here=(pg.here[2], *pg.here[1:2], pg.here[0], *pg.here[3:]))
           if number % 3 == 0 else pg for number, pg in enumerate(outcome.pgs)]
    return Outcome(pool, pgs, outcome.crush, outcome.osds,
                   balance(pool, pgs, outcome.crush, outcome.osds, new_rule=True))


RULES = (FOUR_HOSTS, FOUR_RACKS, TWO_RACKS)


@pytest.mark.parametrize('seed', range(12))
def test_any_set_becomes_one_that_the_rule_allows(seed: int, tmp_path: Path) -> None:
    """Sets that no CRUSH rule gives, on OSDs of different weights of which one is out."""
    rng = random.Random(seed)
    steps, erasure = RULES[seed % len(RULES)], rng.random() < 0.5
    racks: Racks = [[{100 * rack + 10 * host + osd: rng.choice((1.0, 1.0, 2.0))
                      for osd in range(rng.randint(2, 4))} for host in range(rng.randint(4, 5))]
                    for rack in range(rng.randint(4, 5))]
    outcome, out = scattered(rng, Map(racks, steps), 8, erasure, tmp_path)
    assert len(outcome.pgs) > 32
    for pg in outcome.pgs:
        assert broken_rule(outcome.pool, outcome.final(pg), outcome.crush, {out}) is None
    check_sets(outcome)
    assert outcome.moved == unavoidable(outcome, {out} | alone(steps, racks, out))


def alone(steps: Sequence[str], racks: Racks, out: int) -> Set[int]:
    """OSDs that the rule cannot use: the last ones in a bucket in which it chooses two."""
    if steps != FOUR_HOSTS:
        return set()
    return {osd for rack in racks for host in rack for osd in host if len(set(host) - {out}) < 2}


TWO_HOSTS = ('choose firstn 2 type host', 'choose firstn 2 type osd')
EC_TWO_HOSTS = ('choose indep 2 type host', 'choose indep 2 type osd')
EC_TWO_OF_TWO = ('choose indep 2 type rack', 'chooseleaf indep 2 type host')
NINE = hosts_in((0, 1, 2), (3, 4, 5), (6, 7, 8))


def of_three(*osds: Sequence[int]) -> Racks:
    """Hosts with these OSDs in one rack."""
    return [[dict.fromkeys(members, 1.0) for members in osds]]


@pytest.mark.parametrize('old_steps, old_racks, new_steps, new_racks, size', [
    # A rule that gets groups.
    (FIRSTN_HOST, NINE, TWO_OF_TWO, NINE, 4),
    (INDEP_HOST, NINE, EC_TWO_OF_TWO, NINE, 4),
    (INDEP_OSD, hosts_in((0, 1, 2), (3, 4)), EC_TWO_HOSTS, hosts_in((0, 1, 2), (3, 4)), 4),
    # Hosts that are in another rack, or have changed places.
    (TWO_OF_TWO, NINE, TWO_OF_TWO, hosts_in((0, 1), (2, 3, 4, 5), (6, 7, 8)), 4),
    (EC_TWO_OF_TWO, NINE, EC_TWO_OF_TWO, hosts_in((0, 1, 3), (2, 4, 6), (5, 7, 8)), 4),
    (THREE_OF_TWO, NINE, THREE_OF_TWO, hosts_in((0, 1, 3), (2, 4, 5), (6, 7, 8)), 6),
    # OSDs that are in another host.
    (TWO_HOSTS, of_three((0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11)),
     TWO_HOSTS, of_three((0, 1, 3), (2, 4, 5), (6, 7, 9), (8, 10, 11)), 4),
    (EC_TWO_HOSTS, of_three((0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11)),
     EC_TWO_HOSTS, of_three((0, 1), (2, 3, 4, 5), (6, 7, 8), (9, 10, 11)), 4)])
def test_as_few_shards_move_as_two_maps_allow(
        old_steps: Sequence[str], old_racks: Racks, new_steps: Sequence[str], new_racks: Racks,
        size: int, tmp_path: Path) -> None:
    check_two_maps(old_steps, old_racks, new_steps, new_racks, size, tmp_path)


def test_the_mons_keep_the_upmaps(tmp_path: Path) -> None:
    racks = [[{9 * rack + 3 * host + i: 1.0 for i in range(3)} for host in range(3)]
             for rack in range(6)]
    size, number, steps = 8, 54, ('choose indep 4 type rack', 'chooseleaf indep 2 type host')
    osdmap = OsdMapFile(tmp_path, number, 2, size)
    here, raw = osdmap.place(Map(racks, INDEP_HOST)), osdmap.place(Map(racks, steps))
    crush, _ = place(Map(racks, steps), size, 1, tmp_path)
    pool = Pool(1, 'p', True, size, 2, 0, len(raw), len(raw), len(raw))
    osds = {osd: Osd(osd, True, 1.0) for osd in range(number)}
    result = balance(pool, [PlacedPg(pgid, here[pgid], raw[pgid]) for pgid in raw], crush, osds,
                     new_rule=True)
    finals: Dict[str, OsdSet] = {pgid: result.finals.get(pgid, here[pgid]) for pgid in raw}
    pins = {pgid: plan_pin(pool, raw[pgid], final, UpmapEntry(), osds, crush)
            for pgid, final in finals.items()}
    osdmap.store_upmaps({pgid: pin.entry for pgid, pin in pins.items() if isinstance(pin, Pin)})
    assert all(isinstance(pin, Pin) for pin in pins.values()) and result.required
    assert osdmap.cancelled() == [] and not osdmap.finds_more(1)
