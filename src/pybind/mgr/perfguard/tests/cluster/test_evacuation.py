# SPDX-License-Identifier: LGPL-2.1-or-later
"""PGs that leave OSDs which are to be emptied."""
from dataclasses import replace
from typing import Any, Dict, FrozenSet, Optional, Set, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.evacuation import evacuated, rejects, too_full
from perfguard.cluster.types import NO_OSD, Osd, OsdMap, OsdSet, Placement, Pool

from ..fakes.mon_model import ToyMon, ToyOsd

HASHED = frozenset({'hashpspool'})
#: Seeds of pool 7 (256 PGs) that "crushtool --test --pool-id 7" maps to osd.3 of 12 OSDs of weight
#: 1, and those of them that it maps elsewhere with "--weight 3 0.5".
ON_OSD_3 = (0, 2, 6, 7, 13, 15, 17, 20, 28, 33, 34, 37, 44, 46, 53, 57, 58, 62, 64, 67, 75)
REJECTED = frozenset({0, 6, 7, 15, 28, 34, 46, 53, 58, 64, 67, 75})


def pool(pg_num: int = 256, erasure: bool = False, flags: FrozenSet[str] = HASHED,
         **kwargs: Any) -> Pool:
    return Pool(7, 'p', erasure, 3, 2, 0, pg_num, pg_num, pg_num, flags=flags, **kwargs)


@pytest.mark.parametrize('seed', ON_OSD_3)
def test_crush_rejects_an_osd_by_its_reweight(seed: int) -> None:
    assert rejects(3, 0.5, pool(), seed) == (seed in REJECTED)
    assert rejects(3, 0.0, pool(), seed) and not rejects(3, 1.0, pool(), seed)


def test_pgs_that_split_and_are_not_placed_separately_yet_have_the_input_of_their_parents() -> None:
    for seed in ON_OSD_3:
        split = pool(512, pgp_num=256)
        assert rejects(3, 0.5, split, seed + 256) == rejects(3, 0.5, split, seed) == (
            seed in REJECTED)
    # 192 is between two powers of two: the upper quarter of 256 has no input of its own.
    odd = pool(192)
    assert [rejects(3, 0.5, odd, seed) for seed in range(64, 128)] == [
        rejects(3, 0.5, odd, seed + 128) for seed in range(64, 128)]


def evacuation(acting: OsdSet, up: OsdSet, reweights: Dict[int, float] = {},
               weights: Dict[int, float] = {}, of: Pool = pool(), seed: int = 0,
               fullness: Dict[int, str] = {}, **kwargs: Any) -> OsdSet:
    """OSDs that one PG leaves."""
    pgid = '7.%x' % seed
    osdmap = OsdMap(1, frozenset(), {7: of}, {
        osd: Osd(osd, True, reweights.get(osd, 1.0), fullness=fullness.get(osd, ''))
        for osd in range(12)}, {}, {}, {pgid: acting})
    toys = {osd: ToyOsd(osd, weights.get(osd, 1.0)) for osd in range(12)}
    return evacuated(osdmap, {pgid: Placement(up, acting)}.get, CrushRules.from_dump(
        ToyMon(toys, 3, ()).crush_dump()), **kwargs).get(pgid, ())


OUT = {0: 0.0}
ERASURE = pool(erasure=True)


@pytest.mark.parametrize('acting, up, of, left', [
    ((0, 1, 2), (5, 1, 2), pool(), (0,)),
    ((0, 1, 2), (1, 2, 5), pool(), (0,)),
    ((0, 1, 2), (5, 1, 2), ERASURE, (0,)),
    # CRUSH finds too few OSDs: the data has no place to go to.
    ((0, 1, 2), (1, 2), pool(), ()),
    ((0, 1, 2), (NO_OSD, 1, 2), ERASURE, ()),
    ((0, 1, 2), (NO_OSD, 1, 5), ERASURE, ()),
    # It leaves another OSD.
    ((0, 1, 2), (0, 1, 5), pool(), ()),
    ((3, 1, 2), (5, 1, 2), pool(), ()),
])
def test_pgs_of_an_osd_that_is_out(acting: OsdSet, up: OsdSet, of: Pool, left: OsdSet) -> None:
    assert evacuation(acting, up, OUT, of=of) == left


@pytest.mark.parametrize('kwargs, left', [
    ({}, (0,)), ({'emptied': (0,)}, ()), ({'released': frozenset({'7.0'})}, (0,))])
def test_pgs_of_an_osd_without_crush_weight(kwargs: Any, left: Tuple[int, ...]) -> None:
    assert evacuation((0, 1, 2), (5, 1, 2), weights=OUT, **kwargs) == left


def test_a_lower_reweight_concerns_the_pgs_that_it_moves() -> None:
    """On clusters that balance by reweights, an expansion moves PGs from such OSDs as well."""
    for seed in ON_OSD_3:
        left = evacuation((3, 1, 2), (5, 1, 2), {3: 0.5}, seed=seed)
        assert left == ((3,) if seed in REJECTED else ())
    assert not evacuation((3, 1, 2), (5, 1, 2), {3: 0.5}, released=frozenset({'7.0'}))


@pytest.mark.parametrize('before, moved', [
    (1.0, REJECTED), (0.5, frozenset()), (0.4, frozenset()), (0.75, None)])
def test_only_a_lower_reweight_than_before_moves_pgs(before: float,
                                                     moved: Optional[FrozenSet[int]]) -> None:
    """None: those that CRUSH has not rejected before."""
    if moved is None:
        moved = frozenset(seed for seed in REJECTED if not rejects(3, before, pool(), seed))
        assert moved and moved < REJECTED
    assert moved == {seed for seed in ON_OSD_3 if evacuation(
        (3, 1, 2), (5, 1, 2), {3: 0.5}, seed=seed, reweights_before={3: before})}


@pytest.mark.parametrize('fullness, left', [('full', (0,)), ('backfillfull', (0,)),
                                            ('nearfull', ()), ('', ())])
@pytest.mark.parametrize('of', [pool(), ERASURE])
def test_pgs_of_an_osd_that_is_too_full(fullness: str, left: OsdSet, of: Pool) -> None:
    """Unless a campaign decides on them."""
    def leaving(**kwargs: Any) -> OsdSet:
        return evacuation((0, 1, 2), (5, 1, 2), fullness={0: fullness}, of=of, **kwargs)
    assert leaving(decided=()) == leaving(decided=('7.1',)) == left
    assert leaving(decided=('7.0',)) == leaving() == ()
    assert evacuation((0, 1, 2), (0, 1, 5), fullness={0: fullness}, of=of, decided=()) == ()


@pytest.mark.parametrize('fullness, number, left', [
    ('backfillfull', 3, (0,)), ('backfillfull', 4, ()), ('full', 12, (0,))])
def test_where_many_osds_are_backfillfull_their_pgs_are_paced(
        fullness: str, number: int, left: OsdSet) -> None:
    """Of 12 OSDs."""
    assert evacuation((0, 1, 2), (5, 1, 2), fullness=dict.fromkeys(range(number), fullness),
                      decided=()) == left


@pytest.mark.parametrize('fullness, leaving, left', [
    ('nearfull', {0}, (0,)), ('nearfull', {1}, ()), ('', {0}, ())])
def test_an_osd_is_emptied_until_it_is_not_even_nearly_full(fullness: str, leaving: Set[int],
                                                            left: OsdSet) -> None:
    """The first PG that has left may end backfillfull."""
    assert evacuation((0, 1, 2), (5, 1, 2), fullness={0: fullness}, decided=(),
                      leaving=leaving) == left


def test_one_of_three_osds_are_not_many() -> None:
    osds = {osd: Osd(osd, True, 1.0, fullness='backfillfull' if osd < 1 else '')
            for osd in range(3)}
    osdmap = OsdMap(1, frozenset(), {}, osds, {}, {}, {})
    assert too_full(osdmap, dict.fromkeys(osds, 1.0)) == {0}
    osdmap = replace(osdmap, osds={**osds, 1: replace(osds[0], id=1)})
    assert too_full(osdmap, dict.fromkeys(osds, 1.0)) == frozenset()
