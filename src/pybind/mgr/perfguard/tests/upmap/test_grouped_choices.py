# SPDX-License-Identifier: LGPL-2.1-or-later
"""What stays of a set and what is new in it, with two shards in each of two buckets."""
from dataclasses import replace
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

import pytest

from perfguard.cluster.crush_rule import Group
from perfguard.cluster.types import OsdSet, Pool
from perfguard.upmap import grouped_sets
from perfguard.upmap.grouped_sets import EarlierRule, GroupedSets, _assigned, _Kept

#: Bucket 1 has OSDs 10 to 13, bucket 2 OSDs 20 to 23, and bucket 3 OSDs 30 to 33.
OSDS = [10 * bucket + osd for bucket in (1, 2, 3) for osd in range(4)]
BUCKET_OF = {osd: osd // 10 for osd in OSDS}
PAIRS = (Group(2, BUCKET_OF),)
ITSELF = {osd: osd for osd in OSDS}
POOL = Pool(1, 'p', False, 4, 2, 0, 8, 8, 8)


def sets(by_place: bool = False, groups: Sequence[Group] = PAIRS, size: int = 4,
         domain: Mapping[int, int] = ITSELF, weights: Mapping[int, float] = {},
         limits: Mapping[int, int] = {}, earlier: Optional[EarlierRule] = None) -> GroupedSets:
    pool = replace(POOL, size=size, local_groups=by_place)
    return GroupedSets(groups, pool, domain, {**dict.fromkeys(OSDS, 1.0), **weights},
                       {**dict.fromkeys(OSDS, 99), **limits}, earlier)


def placed(here: OsdSet, raw: OsdSet, others: Sequence[OsdSet] = (), **fields: object) -> List[int]:
    """The set of the first PG, while others stay."""
    found = sets(**fields).place([here, *others], [raw, *others], {0})  # type: ignore[arg-type]
    assert [tuple(row) for row in found[1:]] == list(others)
    return list(found[0])


# ---- what stays

@pytest.mark.parametrize('by_place, here, raw, expected', [
    # It obeys the rule.
    (False, (10, 11, 20, 21), (30, 31, 20, 21), [10, 11, 20, 21]),
    # One of three in a bucket leaves, to where CRUSH places it.
    (False, (10, 11, 12, 20), (20, 22, 10, 13), [10, 11, 22, 20]),
    # Four in one bucket: two stay.
    (False, (10, 11, 12, 13), (20, 21, 30, 31), [10, 11, 20, 21]),
    # In three buckets: the pair and the emptiest of the others stay.
    (False, (10, 11, 20, 30), (20, 21, 30, 31), [10, 11, 20, 21]),
    # With groups that belong together, places count.
    (True, (10, 11, 20, 21), (30, 31, 20, 21), [10, 11, 20, 21]),
    (True, (10, 20, 11, 21), (10, 11, 20, 21), [10, 11, 20, 21]),
    (True, (10, 20, 30, 21), (10, 11, 22, 23), [10, 11, 30, 31])])
def test_as_many_shards_stay_as_the_rule_allows(by_place: bool, here: OsdSet, raw: OsdSet,
                                                expected: List[int]) -> None:
    assert placed(here, raw, by_place=by_place) == expected


def test_of_a_failure_domain_the_emptiest_osd_stays() -> None:
    domain = {**ITSELF, 11: 10, 12: 10}
    others = [(10, 13, 20, 21)]
    assert placed((10, 11, 20, 21), (20, 21, 30, 31), others, domain=domain) == [13, 11, 20, 21]
    # By its weight.
    assert placed((10, 11, 20, 21), (20, 21, 30, 31), others, domain=domain,
                  weights={10: 3.0}) == [10, 13, 20, 21]


def test_the_emptiest_buckets_keep_their_shards() -> None:
    here, raw = (10, 11, 20, 30), (20, 21, 30, 31)
    assert placed(here, raw, [(20, 21, 22, 23)]) == [10, 11, 31, 30]
    assert placed(here, raw, [(30, 31, 32, 33)]) == [10, 11, 20, 21]
    # By their weight.
    heavy = dict.fromkeys((20, 21, 22, 23), 9.0)
    assert placed(here, raw, [(20, 21, 22, 23)], weights=heavy) == [10, 11, 20, 21]


def test_osds_without_weight_keep_nothing() -> None:
    assert placed((10, 11, 20, 21), (10, 12, 20, 21), weights={11: 0.0}) == [10, 12, 20, 21]
    assert placed((10, 11, 20, 21), (10, 11, 20, 21), weights={11: 0.0}) == [10, 12, 20, 21]


# ---- what is new

def test_new_shards_go_where_crush_places_them_within_their_share() -> None:
    here, raw = (10, 11, 12, 20), (23, 30, 31, 32)
    assert placed(here, raw) == [10, 11, 23, 20]
    # OSD 23 has more than its share: the emptiest is chosen.
    assert placed(here, raw, [(23, 22, 30, 31), (23, 22, 32, 33)]) == [10, 11, 21, 20]
    # It has no room, and OSD 22 is in its failure domain.
    domain = {**ITSELF, 23: 22}
    assert placed(here, raw, domain=domain) == [10, 11, 23, 20]
    assert placed(here, raw, domain=domain, limits={23: 1}) == [10, 11, 23, 20]
    assert placed(here, raw, domain=domain, limits={23: 0}) == [10, 11, 22, 20]


@pytest.mark.parametrize('others, osd', [(9, 23), (8, 21)])
def test_the_share_of_an_osd_is_reached(others: int, osd: int) -> None:
    """One shard of 12 is the share of one OSD of 12."""
    pgs = [(23, 30, 31, 32, 33, 30, 31, 32, 33)[:others]]
    assert placed((10, 11, 12, 20), (23, 30, 31, 32), pgs) == [10, 11, osd, 20]


def test_fullness_is_relative_to_the_weight_alone() -> None:
    """OSD 21 has two shards for a weight of 4, OSD 22 one for a weight of 1.9."""
    assert placed((10, 11, 12, 20), (30, 31, 32, 33), [(21, 22, 23, 30), (21, 30, 31, 32)],
                  weights={21: 4.0, 22: 1.9}) == [10, 11, 21, 20]


def test_a_shard_that_leaves_is_counted_out_once() -> None:
    """Of the OSDs for the new shard of the second PG, OSD 12 has one shard, and OSD 13 none."""
    pgs = [(10, 11, 12, 20), (20, 21, 22, 10), (12, 30, 31, 32)]
    raws = [(23, 30, 31, 32), (30, 31, 32, 33), (12, 30, 31, 32)]
    assert 13 in sets().place(pgs, raws, {0, 1})[1]


@pytest.mark.parametrize('heavy', [21, 22, 23])
def test_the_emptiest_osd_has_fewest_shards_for_its_weight(heavy: int) -> None:
    here, raw, others = (10, 11, 12, 20), (30, 31, 32, 33), [(21, 22, 23, 30)]
    assert placed(here, raw, others, weights={heavy: 4.0}) == [10, 11, heavy, 20]
    domain = {**ITSELF, 21: 5, 22: 5, 23: 5}
    assert placed(here, raw, others, weights={heavy: 4.0}, domain=domain) == [10, 11, heavy, 20]


def test_a_new_bucket_is_that_of_crush_or_the_emptiest() -> None:
    here, raw = (10, 11, 12, 13), (30, 31, 10, 11)
    assert placed(here, raw) == [10, 11, 30, 31]
    assert placed(here, raw, [raw, (32, 33, 12, 13), (30, 31, 12, 13)]) == [10, 11, 20, 21]
    assert placed(here, here) == [10, 11, 20, 21]


def test_a_pg_without_a_set_goes_to_its_raw_set() -> None:
    """Only two buckets have a weight, and of one only one OSD."""
    weights = {osd: 0.0 for osd in OSDS if osd // 10 == 3 or osd in (21, 22, 23)}
    assert placed((10, 11, 12, 20), (10, 11, 20, 21), weights=weights) == [10, 11, 20, 21]


# ---- two choices, one below the other

def test_buckets_within_buckets() -> None:
    """Two racks with two hosts each: two shards in a rack, one in each of two hosts."""
    racks = {osd: 1 if osd < 20 else 2 for osd in OSDS}
    groups = (Group(2, racks), Group(1, {osd: osd // 2 for osd in OSDS}))
    assert placed((10, 11, 20, 30), (10, 12, 20, 30), groups=groups) == [10, 12, 20, 30]
    assert placed((10, 12, 13, 30), (10, 12, 20, 30), groups=groups) == [10, 12, 20, 30]


# ---- the buckets of blocks

def kept(value: float) -> _Kept:
    return _Kept(value, {})


@pytest.mark.parametrize('rows, buckets', [
    ([], []), ([[]], [None]), ([[(1, 2.0)]], [1]), ([[(1, 2.0)], [(1, 1.0)]], [1, None]),
    ([[(1, 1.0)], [(1, 2.0)]], [None, 1]), ([[(1, 2.0), (2, 1.5)], [(1, 1.0)]], [2, 1]),
    ([[(1, 2.0), (2, 0.5)], [(1, 1.0)]], [1, None]),
    # The first of those that are as good.
    ([[(1, 1.0), (2, 1.0)], [(1, 1.0), (2, 1.0)]], [1, 2]),
    ([[(1, 3.0), (2, 2.0)], [(1, 3.0), (3, 1.0)], [(3, 3.0)]], [2, 1, 3])])
def test_the_buckets_in_which_most_stays(rows: List[List[Tuple[int, float]]],
                                         buckets: List[Optional[int]]) -> None:
    found = _assigned([[(bucket, kept(value)) for bucket, value in row] for row in rows])
    assert [bucket for bucket, _ in found] == buckets
    values: Dict[Tuple[int, Optional[int]], float] = {
        (block, bucket): value for block, row in enumerate(rows) for bucket, value in row}
    assert [row.value for _, row in found] == [
        values.get((block, bucket), 0.0) for block, bucket in enumerate(buckets)]


# ---- two rules

@pytest.mark.parametrize('osds, fitting', [
    # Any OSD begins, or joins a bucket with one shard, or another bucket.
    ((), OSDS), ((10,), [osd for osd in OSDS if osd != 10]),
    # A bucket with two is full, and with two buckets no other one follows.
    ((10, 11), [osd for osd in OSDS if osd >= 20]),
    ((10, 20), [11, 12, 13, 21, 22, 23]), ((10, 11, 20), [21, 22, 23]), ((10, 11, 20, 21), [])])
def test_what_an_earlier_rule_allows_beside_some_osds(osds: OsdSet,
                                                      fitting: List[int]) -> None:
    rule = EarlierRule(PAIRS, 4, ITSELF, set(OSDS))
    assert [osd for osd in OSDS if rule.beside(osds)(osd)] == fitting
    usable = EarlierRule(PAIRS, 4, ITSELF, {11, 21})
    assert [osd for osd in OSDS if usable.beside(osds)(osd)] == [
        osd for osd in fitting if osd in (11, 21)]
    domain = {**ITSELF, 11: 10, 21: 20}
    shared = EarlierRule(PAIRS, 4, domain, set(OSDS))
    assert [osd for osd in OSDS if shared.beside(osds)(osd)] == [
        osd for osd in fitting if domain[osd] not in {domain[other] for other in osds}]


#: Hosts of three OSDs across the buckets of the rule.
ACROSS = {osd: osd % 10 for osd in OSDS}


def test_sets_obey_both_rules() -> None:
    earlier = EarlierRule((), 4, ACROSS, set(OSDS))
    # OSDs 20, 21 and 30, 31 share hosts with 10 and 11.
    assert placed((10, 11, 12, 23), (20, 21, 10, 11), earlier=earlier) == [10, 11, 22, 23]
    assert placed((10, 11, 12, 13), (20, 21, 10, 11), earlier=earlier) == [10, 11, 22, 23]
    # No set obeys both: the raw one.
    alone = EarlierRule((), 4, dict.fromkeys(OSDS, 5), set(OSDS))
    assert placed((10, 11, 12, 13), (20, 21, 10, 11), earlier=alone) == [20, 21, 10, 11]


@pytest.mark.parametrize('tries, expected', [(10, [21, 11, 12, 20]), (9, [30, 31, 32, 33])])
def test_another_shard_leaves_if_the_earlier_rule_requires_it(
        tries: int, expected: List[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is free in bucket 2 shares a host with OSD 10, which would stay by the new rule.
    Three OSDs are tried for each of three parts with OSD 10, and one for the part without it. Each
    part but the first counts as well, and so does one that cannot stay together. Four do not
    count."""
    monkeypatch.setattr(grouped_sets, '_TRIES', tries)
    earlier = EarlierRule((), 4, {**ITSELF, 21: 10, 22: 10, 23: 10}, set(OSDS))
    assert placed((10, 11, 12, 20), (30, 31, 32, 33), earlier=earlier) == expected


@pytest.mark.parametrize('tries, all_tries', [(1000, 1000), (0, 1000), (1000, 0)])
def test_each_pg_may_try_as_many_domains_as_it_has_shards(
        tries: int, all_tries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouped_sets, '_TRIES', tries)
    monkeypatch.setattr(grouped_sets, '_ALL_TRIES', all_tries)
    earlier = EarlierRule((), 4, ACROSS, set(OSDS))
    assert placed((10, 11, 12, 23), (20, 21, 10, 11), earlier=earlier) == [10, 11, 22, 23]


@pytest.mark.parametrize('all_tries, both', [(20, True), (19, False)])
def test_all_pgs_share_a_number_of_tries(all_tries: int, both: bool,
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the two needs 14, of which 4 are its own."""
    monkeypatch.setattr(grouped_sets, '_ALL_TRIES', all_tries)
    earlier = EarlierRule((), 4, {**ITSELF, 21: 10, 22: 10, 23: 10}, set(OSDS))
    raw = (30, 31, 32, 33)
    found = sets(earlier=earlier).place([(10, 11, 12, 20)] * 2, [raw, raw], {0, 1})
    assert [tuple(row) == raw for row in found] == [False, not both]


def test_pgs_that_need_no_search_are_placed_however_many_they_are(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouped_sets, '_ALL_TRIES', 1)
    raw = (30, 31, 32, 33)
    found = sets().place([(10, 11, 12, 20)] * 3, [raw] * 3, {0, 1, 2})
    assert all(len({10, 11, 12, 20} & {*row}) == 3 for row in found)


def test_new_shards_count_for_the_pgs_that_follow() -> None:
    found = sets().place([(10, 11, 12, 20)] * 3, [(30, 31, 32, 33)] * 3, {0, 1, 2})
    assert sorted(osd for row in found for osd in row if osd > 20) == [21, 22, 23]
