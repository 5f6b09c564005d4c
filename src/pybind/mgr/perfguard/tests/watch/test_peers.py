# SPDX-License-Identifier: LGPL-2.1-or-later
"""What is expected of an OSD: by its peers, at their load."""
import math
from typing import Dict, List, Sequence

import pytest

from perfguard.cluster.types import OsdPlace
from perfguard.watch.osd_window import (COMMITS, READS, REPLICATED, STORE_READS, WRITES,
                                        WindowLatency)
from perfguard.watch.peers import (CLIP, LEARN_SECONDS, MIN_PEERS, Excused, LoadPoint, Partners,
                                   PeerComparison, PeerFinding, Peers, ScoreBaseline, _choose,
                                   compare, excuse_waiting, groups_of, loads_of, queue_allowance)


def point(osd: int, ms: float, rate: float = 100.0, ops: float = 1e5) -> LoadPoint:
    return LoadPoint(osd, WindowLatency(ms, ms, math.log(ms), ops),
                     loads_of(0.6 * rate, 0.4 * rate))


def alike(count: int, ms: float = 10.0) -> List[LoadPoint]:
    """Within some percent of each other in latency and load."""
    return [point(osd, ms * (0.95 + 0.1 * (osd * 7 % count) / count),
                  95 + 10 * (osd * 3 % count) / count) for osd in range(count)]


def queue(rates: Sequence[float], capacity: float = 200.0) -> List[LoadPoint]:
    """M/M/1: all alike but for their load."""
    return [point(osd, 1000 / (capacity - rate), rate) for osd, rate in enumerate(rates)]


def test_the_slow_do_not_move_what_is_expected() -> None:
    healthy = Peers(alike(12)).expected(loads_of(60, 40))
    some_slow = alike(12)[:8] + [point(osd, 500.0) for osd in range(8, 12)]
    assert Peers(some_slow).expected(loads_of(60, 40)) == pytest.approx(healthy, abs=0.05)


@pytest.mark.parametrize('others, judged', [(2, False), (3, True)])
def test_three_others_are_needed(others: int, judged: bool) -> None:
    points = alike(others) + [point(99, 30.0)]
    found = compare(points[-1], Peers(points), True)
    assert (found is not None) == judged
    if found is not None:
        assert found.peers == 3 and found.score == pytest.approx(3.0, rel=0.1)


def test_in_a_small_group_an_osd_does_not_vouch_for_itself() -> None:
    points = alike(3) + [point(99, 30.0)]
    found = compare(points[-1], Peers(points), True)
    assert found is not None and found.spread_ms < 1.0


def test_load_explains_latency_within_the_range_of_the_peers() -> None:
    peers = Peers(queue([60 + 5 * i for i in range(16)]))  # 60 to 135 of 200
    assert math.exp(peers.expected(loads_of(0.6 * 130, 0.4 * 130))) == pytest.approx(
        1000 / 70, rel=0.15)


def test_the_latency_of_slow_osds_is_not_taken_for_that_of_their_load() -> None:
    """A third of the OSDs, most of them with more load than the median."""
    points = [point(osd, 10.0 * (1.0 + osd * 7 % 12 / 100), 100.0 + 3 * osd) for osd in range(12)]
    for osd in (4, 7, 8, 10):
        points[osd] = point(osd, 300.0, 100.0 + 3 * osd)
    points[8] = point(8, 300.0, 110.0)
    peers = Peers(points)
    assert peers.utilisation < 0.2 and 9.0 < math.exp(peers.expected(loads_of(66, 44))) < 12.0
    # The hottest ones are slow for their load.
    assert Peers(queue([60 + 2 * i for i in range(13)] + [180, 185, 190])).utilisation > 0.2


@pytest.mark.parametrize('new', [30, 38, 45])
def test_new_osds_with_few_pgs_are_no_reason_to_expect_less(new: int) -> None:
    """While they are filled, their loads and those of the others are far apart. A queue with the
    slope between both, at the low load of most, would be saturated at the load of the others."""
    points = [point(osd, 0.6 + 0.1 * (osd % 3), 4.0 + osd % 9) for osd in range(new)]
    points += [point(osd, 3000 / (3300 - rate), rate) for osd, rate in enumerate(
        range(200, 1000, 800 // (63 - new)), new)]
    peers = Peers(points)
    assert 0.5 < math.exp(peers.expected(loads_of(5, 3))) < 0.9
    assert compare(points[2], peers, True).score < 1.5  # type: ignore[union-attr]


def test_the_curve_of_a_queue_passes_its_own_points() -> None:
    """Also where the loads are far apart."""
    for rates in ((20, 40, 60), (5, 6, 150), (5, 140, 150)):
        points = queue([rate for rate in rates for _ in range(6)])
        peers = Peers(points)
        for rate in rates:
            assert peers.expected(loads_of(0.6 * rate, 0.4 * rate)) >= math.log(
                1000 / (200 - rate)) - 0.05
        assert math.exp(peers.spread) < 1.02


def test_a_low_load_lowers_nothing() -> None:
    peers = Peers(queue([60 + 5 * i for i in range(16)]))
    assert peers.expected(loads_of(1, 1)) == peers.expected(loads_of(0.6 * 97, 0.4 * 97))


@pytest.mark.parametrize('ratio', [1.2, 1.5, 1.8])
def test_a_hot_osd_is_not_slow(ratio: float) -> None:
    peers = Peers(queue([80 + 2.5 * i for i in range(16)]))  # about half utilised
    hot = point(99, 1000 / (200 - 100 * ratio), 100 * ratio)
    found = peers.compare(hot, 16)
    allowed = queue_allowance(peers.utilisation, found.load_ratio, 1.15)
    assert found.score < 1.5 * allowed


def test_where_an_osd_may_be_saturated_no_latency_is_too_much() -> None:
    assert queue_allowance(0.6, 1.3, 1.15) == math.inf
    assert queue_allowance(0.6, 1.0, 1.15) == pytest.approx(0.4 / (1 - 0.6 * 1.15))


def test_a_load_of_other_composition_counts_as_load() -> None:
    """As many operations, but writes, which may cost more than reads."""
    peers = Peers([point(osd, 10.0) for osd in range(12)])
    assert peers.expected(loads_of(0, 100)) > peers.expected(loads_of(60, 40)) + math.log(2)


def test_the_load_ratio_is_one_of_operations() -> None:
    peers = Peers([point(osd, 10.0) for osd in range(12)])
    for reads, writes, ratio in ((60, 40, 1.0), (0, 100, 1.0), (300, 0, 3.0)):
        given = point(99, 20.0)._replace(loads=loads_of(reads, writes))
        assert peers.compare(given, 12).load_ratio == pytest.approx(ratio, rel=0.05)


def test_few_operations_prove_little() -> None:
    points = alike(12)
    many, few = point(99, 20.0), point(99, 20.0, ops=24)
    assert Peers(points).compare(many, 12).deviations > 5 > Peers(points).compare(
        few, 12).deviations


def places(models: Dict[str, int]) -> Dict[int, OsdPlace]:
    names = [model for model, count in models.items() for _ in range(count)]
    return {osd: OsdPlace(osd, 'h', 'default', 'ssd', model) for osd, model in enumerate(names)}


@pytest.mark.parametrize('models, groups, minorities', [
    ({'a': 6, 'b': 5}, 'aaaaaabbbbb', []),
    ({'a': 6, 'b': 4}, 'aaaaaa****', [6, 7, 8, 9]),
    ({'a': 4}, '****', []),
])
def test_a_model_is_a_group_when_it_has_members_enough(
        models: Dict[str, int], groups: str, minorities: List[int]) -> None:
    found, strange = groups_of(places(models))
    assert ''.join(found[osd][3] for osd in sorted(found)) == groups
    assert [osd for osd, is_strange in strange.items() if is_strange] == minorities


def test_osds_with_different_stores_are_no_peers() -> None:
    """Three without a DB device, and one whose metadata the mgr has not received yet."""
    where = {osd: OsdPlace(osd, 'h', 'default', 'hdd', 'm', store=(
        'plain' if osd < 3 else 'DB on flash')) for osd in range(12)}
    where[11] = where[11]._replace(store='')
    groups, strange = groups_of(where)
    assert len({groups[osd] for osd in range(3)}) == 1
    assert len({groups[osd] for osd in range(3, 12)}) == 1
    assert groups[0] != groups[3] and not any(strange.values())


# ---- OSDs that only wait for a slow replica

RATIO = 1.5


def finding(channel: int, ms: float, expected_ms: float = 1.0) -> PeerFinding:
    return PeerFinding(channel, PeerComparison(ms, ms, expected_ms, 0.1, 20.0, 0.1, 1.0, 9), 1.0)


#: OSDs below 100 are of one class, the others of another one.
PLACES = {osd: OsdPlace(osd, 'h', 'default', 'ssd' if osd < 100 else 'hdd') for osd in range(200)}


def excused(findings: Dict[int, List[PeerFinding]], partners: Partners = {}) -> Excused:
    found = excuse_waiting(findings, RATIO, PLACES, partners)
    assert found.findings.keys() == findings.keys(), 'who has no finding left is still judged'
    return found


def left(findings: Dict[int, List[PeerFinding]]) -> Dict[int, List[int]]:
    return {osd: [each.channel for each in found]
            for osd, found in excused(findings).findings.items()}


def test_without_a_cause_everything_stays() -> None:
    findings = {1: [finding(READS, 5.0)], 2: [finding(WRITES, 9.0)], 3: [finding(COMMITS, 1.1)]}
    assert excused(findings) == (findings, {}, frozenset())


def test_what_waits_for_a_replica_is_explained_by_it() -> None:
    findings = {1: [finding(READS, 5.0), finding(WRITES, 3.0)],
                3: [finding(REPLICATED, 6.0), finding(READS, 4.0)]}
    assert left(findings) == {1: [], 3: [REPLICATED, READS]}


def test_a_slow_store_is_a_cause_too() -> None:
    assert left({1: [finding(READS, 5.0)], 3: [finding(COMMITS, 300.0)]}) == {1: [], 3: [COMMITS]}


def test_an_osd_slower_than_the_cause_explains_is_slow_itself() -> None:
    assert left({1: [finding(READS, 50.0)], 3: [finding(REPLICATED, 6.0)]}) == {
        1: [READS], 3: [REPLICATED]}


def test_two_causes_are_both_named() -> None:
    findings = {1: [finding(COMMITS, 8.0), finding(WRITES, 5.0)], 3: [finding(REPLICATED, 90.0)],
                4: [finding(STORE_READS, 7.0), finding(READS, 7.0)]}
    assert left(findings) == {1: [COMMITS, WRITES], 3: [REPLICATED], 4: [STORE_READS, READS]}


def test_what_is_not_over_the_ratio_is_no_cause() -> None:
    findings = {1: [finding(READS, 5.0)], 3: [finding(REPLICATED, 1.3)]}
    assert excused(findings) == (findings, {}, frozenset())


def test_an_osd_waits_for_the_slowest_replica_only_if_it_may_share_pgs_with_it() -> None:
    findings = {1: [finding(READS, 5.0)], 2: [finding(READS, 5.0)], 101: [finding(READS, 5.0)],
                3: [finding(COMMITS, 9.0)], 4: [finding(COMMITS, 7.0), finding(READS, 4.0)],
                102: [finding(READS, 1.0)]}
    found = excused(findings)
    assert found.waits_for == {1: 3, 2: 3} and found.replicas == {3, 4}
    assert found.findings[101] and not found.findings[1]
    # Known partners may be of another class: rules may place primaries on flash, replicas on disks.
    assert excused(findings, {3: {1, 3, 101}}).waits_for == {1: 3, 2: 4, 101: 3}
    assert excused(findings, {3: {2, 3}, 4: {2, 4}}).waits_for == {2: 3}
    assert not excused(findings, {3: set(), 4: set()}).waits_for


def test_osds_with_the_same_work_are_peers_if_there_are_enough() -> None:
    for scrubbing, chosen in ((MIN_PEERS, ''), (MIN_PEERS + 1, 'scrub')):
        kinds = {'scrub': Peers(alike(scrubbing)), '': Peers(alike(12))}
        assert _choose('scrub', kinds) == chosen


@pytest.mark.parametrize('load, expected_ms', [(100.0, 1.0), (30.0, 20.0)])
def test_most_may_be_slow_but_not_because_the_others_have_less_to_do(
        load: float, expected_ms: float) -> None:
    few = [point(osd, 1.0, load) for osd in range(3)]
    peers = Peers(few + [point(osd, 20.0) for osd in range(3, 8)])
    assert math.exp(peers.expected(loads_of(60, 40))) == pytest.approx(expected_ms, rel=0.1)


def test_osds_with_other_operations_have_no_less_to_do() -> None:
    """The fast ones only read, as often."""
    readers = [point(osd, 1.0)._replace(loads=loads_of(100.0, 0.0)) for osd in range(3)]
    peers = Peers(readers + [point(osd, 20.0) for osd in range(3, 8)])
    assert math.exp(peers.expected(loads_of(60, 40))) == pytest.approx(1.0, rel=0.1)


def test_one_slow_moment_changes_little_of_what_was_learned() -> None:
    assert ScoreBaseline(seconds=0.0).learned(9.0, 10.0).mean == 9.0, 'nothing was'
    known = ScoreBaseline(mean=1.0, seconds=LEARN_SECONDS)
    share = 10.0 / (LEARN_SECONDS + 10.0)
    for value, most in ((9.0, CLIP), (-9.0, -CLIP)):
        assert known.learned(value, 10.0).mean == pytest.approx(1.0 + share * most * known.sigma())
