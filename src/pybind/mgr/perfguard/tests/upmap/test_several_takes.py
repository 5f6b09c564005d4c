# SPDX-License-Identifier: LGPL-2.1-or-later
"""Rules that take one tree after the other: the mons check each set in the order of CRUSH, and the
order of an acting set is another."""
from itertools import combinations, permutations
from typing import Any, Dict, List, Sequence, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.types import Osd, OsdSet, Pool, UpmapEntry
from perfguard.upmap.pins import Pin, Unpinnable, lawful, plan_pin
from perfguard.upmap.semantics import apply_entry

from ..cluster.test_crush import EMIT, rule, step, take

SITES = [take(-2), step('chooseleaf_firstn', 2, 'host'), EMIT,
         take(-3), step('chooseleaf_firstn', 2, 'host'), EMIT]
FIRST_IN_A = [take(-2), step('chooseleaf_firstn', 1, 'host'), EMIT,
              take(-3), step('chooseleaf_firstn', -1, 'host'), EMIT]
#: Both trees of the rule have the hosts of site0.
FIRST_IN_A_REST_ANYWHERE = [take(-2), step('chooseleaf_firstn', 1, 'host'), EMIT,
                            take(-1), step('chooseleaf_firstn', -1, 'host'), EMIT]
ONE_ANYWHERE_REST_IN_A = [take(-1), step('chooseleaf_firstn', 1, 'host'), EMIT,
                          take(-2), step('chooseleaf_firstn', -1, 'host'), EMIT]
#: Four hosts with one OSD each in both sites: OSDs 0 to 3, and 4 to 7.
SITE_OF = {osd: osd // 4 for osd in range(8)}
OSDS = {osd: Osd(osd, True, 1.0) for osd in SITE_OF}


def bucket(number: int, name: str, type_id: int, items: Sequence[int]) -> Dict[str, Any]:
    return {'id': number, 'name': name, 'type_id': type_id,
            'items': [{'id': item, 'weight': 0x10000} for item in items]}


def crush_of(steps: List[Dict[str, Any]]) -> CrushRules:
    buckets = [bucket(-10 - osd, 'h%d' % osd, 1, [osd]) for osd in SITE_OF]
    buckets += [bucket(-2 - site, 'site%d' % site, 8, [
        -10 - osd for osd, its in SITE_OF.items() if its == site]) for site in (0, 1)]
    buckets.append(bucket(-1, 'default', 10, [-2, -3]))
    return CrushRules.from_dump({
        'buckets': buckets, 'rules': [rule(0, *steps)],
        'types': [{'name': name, 'type_id': number} for name, number in (
            ('osd', 0), ('host', 1), ('datacenter', 8), ('root', 10))]})


def pool_of_size(size: int, erasure: bool = False) -> Pool:
    return Pool(1, 'p', erasure, size, 2, 0, 8, 8, 8)


def sites(osds: OsdSet) -> List[int]:
    return [SITE_OF[osd] for osd in osds]


#: Steps, where CRUSH places the PG now, and where its data is.
CASES: List[Tuple[List[Dict[str, Any]], OsdSet, OsdSet]] = [
    (SITES, (0, 3, 4, 5), (0, 2, 4, 5)), (SITES, (0, 1, 4, 7), (0, 1, 4, 5)),
    (SITES, (3, 1, 7, 5), (0, 1, 4, 5)), (SITES, (2, 3, 6, 7), (0, 1, 4, 5)),
    (FIRST_IN_A, (3, 4, 5), (0, 4, 5)), (FIRST_IN_A, (3, 6, 5), (0, 4, 5)),
    (FIRST_IN_A_REST_ANYWHERE, (3, 4, 5), (0, 4, 5)),
    (FIRST_IN_A_REST_ANYWHERE, (3, 1, 5), (0, 1, 5)),
    (FIRST_IN_A_REST_ANYWHERE, (3, 1, 2), (0, 1, 2)),
    (ONE_ANYWHERE_REST_IN_A, (4, 0, 3), (4, 0, 1)), (ONE_ANYWHERE_REST_IN_A, (5, 0, 3), (4, 0, 1))]


@pytest.mark.parametrize('steps, raw, data', CASES)
def test_a_pg_is_pinned_whatever_the_order_of_its_acting_set(
        steps: List[Dict[str, Any]], raw: OsdSet, data: OsdSet) -> None:
    crush, pool = crush_of(steps), pool_of_size(len(raw))
    for acting in permutations(data):
        pin = plan_pin(pool, raw, acting, UpmapEntry(), OSDS, crush)
        assert isinstance(pin, Pin), (acting, pin)
        there = apply_entry(raw, pin.entry, ())
        assert set(there) == set(data) and sites(there) == sites(raw), (acting, pin)


@pytest.mark.parametrize('steps, raw, data', CASES)
def test_a_primary_affinity_does_not_prevent_a_pin(
        steps: List[Dict[str, Any]], raw: OsdSet, data: OsdSet) -> None:
    """It puts another OSD first in the up set. The mons apply upmaps before that."""
    crush, pool = crush_of(steps), pool_of_size(len(raw))
    for position in range(1, len(raw)):
        up = (raw[position], *raw[:position], *raw[position + 1:])
        pin = plan_pin(pool, up, data, UpmapEntry(), OSDS, crush)
        assert isinstance(pin, Pin), (up, pin)
        there = apply_entry(raw, pin.entry, ())
        assert set(there) == set(data) and sites(there) == sites(raw), (up, pin)


@pytest.mark.parametrize('steps', [SITES, FIRST_IN_A, FIRST_IN_A_REST_ANYWHERE,
                                   ONE_ANYWHERE_REST_IN_A])
@pytest.mark.parametrize('size', [3, 4])
def test_an_order_is_found_if_there_is_one(steps: List[Dict[str, Any]], size: int) -> None:
    crush = crush_of(steps)
    for chosen in combinations(SITE_OF, size):
        legal = {order for order in permutations(chosen)
                 if crush.violation(0, size, order) is None}
        for order in permutations(chosen):
            assert (crush.in_order(0, size, order) in legal) == bool(legal), order
        for order in legal:
            # Where the other OSDs belong follows from it.
            assert crush.in_order(0, size, chosen, order) == order


def test_an_earlier_upmap_is_restored_where_a_primary_affinity_reorders_the_set() -> None:
    entry = UpmapEntry(((3, 2),))
    assert lawful(entry, (4, 0, 3, 5), pool_of_size(4), crush_of(SITES), ()) == entry


@pytest.mark.parametrize('raw', [(0, 3, 4, 5), (4, 0, 3, 5)])
def test_a_set_with_too_many_osds_of_a_site_is_refused(raw: OsdSet) -> None:
    found = plan_pin(pool_of_size(4), raw, (0, 1, 2, 5), UpmapEntry(), OSDS, crush_of(SITES))
    assert isinstance(found, Unpinnable) and 'at its position' in found.reason


def test_the_shards_of_an_erasure_code_keep_their_positions() -> None:
    found = plan_pin(pool_of_size(4, erasure=True), (0, 3, 4, 5), (0, 4, 5, 2), UpmapEntry(),
                     OSDS, crush_of(SITES))
    assert isinstance(found, Unpinnable) and 'osd.4 is not below site0' in found.reason
