# SPDX-License-Identifier: LGPL-2.1-or-later
"""The end state of a pool under another CRUSH rule, on what Ceph's own CRUSH gives: what must move,
against all sets that the rule allows."""
import itertools
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import AbstractSet, Sequence, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.types import Osd, OsdSet, Pool
from perfguard.upmap.balance import LawfulSets, PlacedPg, balance
from perfguard.upmap.grouped_sets import EarlierRule
from perfguard.upmap.pins import broken_rule

from ..fakes.crushmaps import Map, place
from .test_balance import Outcome, Racks, check_sets, hosts

FIRSTN_HOST, FIRSTN_RACK = (('chooseleaf firstn 0 type %s' % name,) for name in ('host', 'rack'))
INDEP_HOST, INDEP_RACK = (('chooseleaf indep 0 type %s' % name,) for name in ('host', 'rack'))
INDEP_OSD = ('choose indep 0 type osd',)


@dataclass(frozen=True)
class Shape:
    old: Sequence[str]
    new: Sequence[str]
    size: int
    racks: Racks
    takes: Sequence[str] = ('default', 'default')

    @property
    def erasure(self) -> bool:
        return 'indep' in self.new[0]

    def change(self, directory: Path, pgs: int, deviation: float = 1.0) -> Outcome:
        """The pool's data is where the old rule puts it."""
        classes = {osd: 'ssd' if osd >= 200 else 'hdd' for rack in self.racks for host in rack
                   for osd in host}
        (_, here), (crush, raw) = (
            place(Map(self.racks, steps, take, classes), self.size, pgs, directory)
            for steps, take in zip((self.old, self.new), self.takes))
        pool = Pool(1, 'p', self.erasure, self.size, self.size - 1, 0, pgs, pgs, pgs)
        placed = [PlacedPg('1.%x' % i, a, b) for i, (a, b) in enumerate(zip(here, raw))]
        osds = {osd: Osd(osd, True, 1.0) for rack in self.racks for host in rack for osd in host}
        return Outcome(pool, placed, crush, osds,
                       balance(pool, placed, crush, osds, deviation=deviation, new_rule=True))


SHAPES = [
    Shape(FIRSTN_HOST, FIRSTN_RACK, 3, hosts(24, 2, racks=6)),
    Shape(INDEP_HOST, INDEP_RACK, 4, hosts(24, 2, racks=6)),
    Shape(INDEP_OSD, INDEP_HOST, 8, hosts(12, 4)),
    Shape(FIRSTN_HOST, FIRSTN_HOST, 3, hosts(12, 4), ('default', 'default class ssd')),
]


def unavoidable(outcome: Outcome, out: AbstractSet[int] = frozenset()) -> int:
    """Shards that the rule does not allow to stay, by trying all that might."""
    return sum(len(pg.here) - may_stay(outcome.pool, pg.here, outcome.crush, out)
               for pg in outcome.pgs)


def may_stay(pool: Pool, osds: OsdSet, crush: CrushRules,
             out: AbstractSet[int] = frozenset()) -> int:
    return next(number for number in range(len(osds), -1, -1) if any(
        broken_rule(pool, staying, crush, out) is None
        for staying in itertools.combinations(osds, number)))


@pytest.mark.parametrize('shape', SHAPES)
def test_moves_what_the_rule_does_not_allow_to_stay(shape: Shape, tmp_path: Path) -> None:
    outcome = shape.change(tmp_path, 512)
    floor = unavoidable(outcome)
    check_sets(outcome)
    assert outcome.moved <= 1.05 * floor
    assert outcome.result.deviation < 1


RULES = (FIRSTN_HOST, FIRSTN_RACK, INDEP_HOST, INDEP_RACK)


@pytest.mark.parametrize('seed', range(12))
def test_any_set_becomes_one_that_the_rule_allows(seed: int, tmp_path: Path) -> None:
    """Sets that no CRUSH rule gives, such as those of a pool that was moved by hand."""
    rng = random.Random(seed)
    steps, erasure = RULES[seed % len(RULES)], rng.random() < 0.5
    racks: Racks = [[{100 * rack + 10 * host + osd: rng.choice((1.0, 1.0, 2.0))
                      for osd in range(rng.randint(2, 4))} for host in range(rng.randint(3, 5))]
                    for rack in range(rng.randint(4, 6))]
    outcome, out = scattered(rng, Map(racks, steps), 4, erasure, tmp_path)
    for pg in outcome.pgs:
        assert broken_rule(outcome.pool, outcome.final(pg), outcome.crush, {out}) is None
    check_sets(outcome)
    assert outcome.moved == unavoidable(outcome, {out})


def scattered(rng: random.Random, crush_map: Map, size: int, erasure: bool,
              directory: Path) -> Tuple[Outcome, int]:
    """The end state of PGs on any OSDs, and the one of these that is out."""
    crush, raw = place(crush_map, size, 64, directory)
    pool = Pool(1, 'p', erasure, size, size - 1, 0, 64, 64, 64)
    out = rng.choice(crush_map.osds)
    osds = {osd: Osd(osd, True, 0.0 if osd == out else 1.0) for osd in crush_map.osds}
    placed = [PlacedPg('1.%x' % number, tuple(rng.sample(crush_map.osds, size)), there)
              for number, there in enumerate(raw) if out not in there]
    return Outcome(pool, placed, crush, osds, balance(
        pool, placed, crush, osds, budget=0, new_rule=True)), out


def hosts_in(*racks: Sequence[int]) -> Racks:
    """Racks of these hosts, each with two OSDs, whatever rack a host is in."""
    return [[{10 * host: 1.0, 10 * host + 1: 1.0} for host in rack] for rack in racks]


#: The steps and the racks of the present map and of the new one.
MAPS = [
    # Another failure domain.
    (FIRSTN_HOST, hosts_in((0, 1), (2, 3), (4, 5), (6,)), FIRSTN_RACK,
     hosts_in((0, 1), (2, 3), (4, 5), (6,))),
    (INDEP_HOST, hosts_in((0, 1), (2, 3), (4, 5), (6,)), INDEP_RACK,
     hosts_in((0, 1), (2, 3), (4, 5), (6,))),
    # Hosts that are in another rack, or have changed places.
    (FIRSTN_RACK, hosts_in((0, 1), (2, 3), (4, 5), (6,)), FIRSTN_RACK,
     hosts_in((0,), (1, 2, 3), (4, 5), (6,))),
    (FIRSTN_RACK, hosts_in((0, 1), (2, 3), (4, 5)), FIRSTN_RACK,
     hosts_in((0, 2), (1, 3), (4, 5))),
    (INDEP_RACK, hosts_in((0, 1), (2, 3), (4, 5)), INDEP_RACK,
     hosts_in((0, 2), (1, 4), (3, 5))),
    # A host that is new, and one that is not there any longer.
    (FIRSTN_HOST, hosts_in((0, 1), (2, 3), (4, 5)), FIRSTN_RACK,
     hosts_in((0, 1), (2, 3), (4,), (6,))),
]


@pytest.mark.parametrize('old_steps, old_racks, new_steps, new_racks', MAPS)
def test_as_few_shards_move_as_two_maps_allow(
        old_steps: Sequence[str], old_racks: Racks, new_steps: Sequence[str], new_racks: Racks,
        tmp_path: Path) -> None:
    check_two_maps(old_steps, old_racks, new_steps, new_racks, 3, tmp_path)


def check_two_maps(old_steps: Sequence[str], old_racks: Racks, new_steps: Sequence[str],
                   new_racks: Racks, size: int, tmp_path: Path) -> None:
    """Against all sets of OSDs."""
    number = 64
    old, here = place(Map(old_racks, old_steps), size, number, tmp_path)
    new, raw = place(Map(new_racks, new_steps), size, number, tmp_path)
    pool = Pool(1, 'p', 'indep' in new_steps[0], size, size - 1, 0, number, number, number)
    osds = {osd: Osd(osd, True, 1.0)
            for racks in (old_racks, new_racks) for osd in Map(racks).osds}
    pgs = [PlacedPg('1.%x' % i, *sets) for i, sets in enumerate(zip(here, raw))]
    result = balance(pool, pgs, new, osds, budget=0, new_rule=True, earlier=old)
    finals = result.finals

    def legal(osds: Sequence[int]) -> bool:
        return not any(broken_rule(pool, tuple(osds), crush, ()) for crush in (old, new))

    everything = [set(osds) for osds in itertools.combinations(sorted(osds), size) if legal(osds)]
    for pg in pgs:
        if broken_rule(pool, pg.here, new, ()) is None:
            assert pg.pgid not in finals
            continue
        final = finals[pg.pgid]
        assert legal(final)
        moved = sum(a != b for a, b in zip(pg.here, final))
        assert moved == min(size - len(osds & set(pg.here)) for osds in everything) > 0
    assert 0 < len(finals) < number
    balanced = balance(pool, pgs, new, osds, new_rule=True, earlier=old)
    assert all(map(legal, balanced.finals.values()))
    assert balanced.deviation <= result.deviation
    if old_racks == new_racks:
        # What moves is spread.
        before, after = (Counter(osd for osds in sets for osd in osds) for sets in (
            here, [finals.get(pg.pgid, pg.here) for pg in pgs]))
        assert max(after.values()) <= 1.25 * max(before.values())


#: Failure domains of the earlier rule: OSDs 0 and 2 to 4 share one, so no two of them are together.
EARLIER_DOMAIN = {0: 0, 1: 1, 2: 0, 3: 0, 4: 0}
#: It must have no shards.
OUT = 9


def lawful_sets() -> LawfulSets:
    """Five OSDs, each a failure domain of the new rule; OSD 1 may keep shards, but gets none."""
    return LawfulSets({osd: osd for osd in EARLIER_DOMAIN}, dict.fromkeys(EARLIER_DOMAIN, 1.0),
                      dict.fromkeys(EARLIER_DOMAIN, 9),
                      EarlierRule([], 2, EARLIER_DOMAIN, frozenset({0, 2, 3})))


def test_a_pg_without_a_lawful_set_counts_where_crush_places_it() -> None:
    """The first PG goes from OSD 0 to its raw set, so OSDs 0 and 3 are the emptiest."""
    raw = (2, OUT)
    pgs = [(0, OUT), (1, OUT), (1, OUT), (1, OUT)]
    assert lawful_sets().place(pgs, [raw, *[(OUT, OUT)] * 3], {0, 1, 2, 3}) == [
        raw, [1, 0], [1, 3], [1, 0]]


def test_an_osd_that_lost_shards_after_its_count_was_noted_is_the_emptiest() -> None:
    """The second PG looks at all OSDs, then leaves OSD 3, which has one of two shards left."""
    pgs = [(1, OUT), (3, OUT), (1, OUT), (0, 4), (2, 4), (2, 4), (3, 4)]
    sets = lawful_sets().place(pgs, [(OUT, OUT)] * len(pgs), {0, 1, 2})
    assert sets[:3] == [[1, 0], (OUT, OUT), [1, 3]]
